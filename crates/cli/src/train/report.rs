//! What the user sees of a run when it is over.

use std::path::Path;

use graphweft_plan::explain;
use graphweft_tensor::{Place, Tag, Usage};
use graphweft_train::config::Config;
use graphweft_train::data::Data;
use graphweft_train::plan::Plan;
use graphweft_train::rank::{Sent, Toll};
use graphweft_train::session::Summary;
use serde_json::{Value, json};

use crate::memory;
use crate::ui::{self, Ui, counted};

pub(super) struct Report<'a> {
    pub(super) config: &'a Config,
    pub(super) data: &'a Data,
    pub(super) dir: &'a Path,
    /// Where the first rank computed.
    pub(super) place: Place,
    /// Of each rank.
    pub(super) threads: usize,
    pub(super) summary: &'a Summary,
    /// The same features without the graph.
    pub(super) floor: Option<&'a Summary>,
    /// Where epochs are timed as if, by name.
    pub(super) emulated: Option<String>,
}

impl Report<'_> {
    pub(super) fn show(&self, ui: &Ui) -> anyhow::Result<()> {
        ui.result(&self.json(), || self.text())
    }

    fn json(&self) -> Value {
        let s = self.summary;
        let seeds: Vec<Value> = s
            .runs
            .iter()
            .map(|r| {
                let best = &r.outcome.best;
                json!({ "seed": r.outcome.seed, "valid": best.valid, "test": best.test, "train": best.train,
                    "epochs": r.outcome.epochs, "best_epoch": best.epoch, "split": r.outcome.split })
            })
            .collect();
        let first = s.runs.first();
        let tolls = tolls(s);
        let peaks: Vec<u64> = tolls.iter().map(|t| t.peak.total()).collect();
        let sent: Vec<u64> = tolls.iter().map(Toll::bytes_sent).collect();
        let by_rank: Vec<Value> = tolls.iter().map(|t| ui::usage(t.peak)).collect();
        let mut json = json!({
            "metric": s.metric.name(), "valid": s.valid.mean, "test": s.test.mean,
            "valid_std": s.valid.std, "test_std": s.test.std, "seeds": seeds,
            "loss": first.map_or(&[][..], |r| &r.losses), "epoch_ms": epoch_ms(s),
            "epochs_ms": first.map_or(&[][..], |r| &r.cost.epoch_ms),
            "seconds": s.runs.iter().map(|r| r.cost.seconds).sum::<f64>(),
            "recorded": first.is_some_and(|r| r.cost.recorded),
            "parameters": first.map(|r| r.outcome.parameters),
            "peak_bytes": peaks, "peak": ui::usage(largest(tolls)), "peak_by_rank": by_rank,
            "bytes_sent_per_epoch": sent, "sent": operations(tolls), "threads": self.threads, "device": self.place.to_string(),
            "strategy": s.plan.strategy, "ranks": s.plan.ranks, "plan": self.dir.join("plan.json"),
            "resident_bytes": memory::peak_bytes(), "read_bytes": memory::read_bytes(),
            "remat": s.plan.remat, "predicted": s.plan.predicted, "measured": s.plan.measured,
            "graph": self.data.name, "model": self.config.model_name(), "run": self.dir,
        });
        if let (Some(floor), Value::Object(json)) = (self.floor, &mut json) {
            json.insert("floor".into(), json!({ "model": "mlp", "valid": floor.valid.mean, "test": floor.test.mean }));
        }
        if let (Some(name), Value::Object(json)) = (&self.emulated, &mut json) {
            // Whose times of epochs are those of elsewhere.
            json.insert("emulated".into(), json!(name));
        }
        json
    }

    fn text(&self) -> String {
        let (s, name) = (self.summary, self.config.model_name());
        let graph = format!(
            "{}: {} nodes, {} edges, {} classes",
            self.data.name,
            ui::count(self.data.graph.num_dst() as u64),
            ui::count(self.data.graph.num_edges() as u64),
            self.data.classes
        );
        let row = |name: &str, s: &Summary| {
            let epochs = s.runs.iter().map(|r| r.outcome.epochs).sum::<u64>() / s.runs.len().max(1) as u64;
            let parameters = s.runs.first().map_or(0, |r| r.outcome.parameters);
            let score = |x: graphweft_train::session::Spread| match s.runs.len() {
                1 => ui::score(x.mean),
                _ if x.mean.is_nan() => ui::score(x.mean),
                _ => format!("{:.2} ± {:.2}", x.mean, x.std),
            };
            let ms = epoch_ms(s).map_or("–".into(), |ms| format!("{ms:.1}"));
            [name.into(), ui::count(parameters as u64), score(s.valid), score(s.test), epochs.to_string(), ms]
        };
        let rows = std::iter::once(row(&name, s)).chain(self.floor.map(|f| row("mlp, no graph", f)));
        let header = ["model", "parameters", "valid %", "test %", "epochs", "ms/epoch"];
        let emulated = self.emulated.as_ref().map(|name| format!("\nms per epoch: emulated on {name}"));
        let (tolls, plan) = (tolls(s), &s.plan);
        let seconds: f64 =
            [Some(s), self.floor].into_iter().flatten().flat_map(|s| &s.runs).map(|r| r.cost.seconds).sum();
        let plan = match plan.ranks {
            1 => format!("{}: {}", plan.strategy, plan.why),
            ranks => format!("{} on {ranks} ranks: {}", plan.strategy, plan.why),
        };
        let compared = compared(&s.plan);
        format!(
            "{graph}\n{}, test at the best validation{}\n\n{}{}\n\n{}plan    {plan}\n{compared}memory  {}\ntime    {seconds:.1} s, \
             {}\nrun     {}",
            s.metric.name(),
            if s.runs.len() > 1 { format!(", mean ± deviation of {} seeds", s.runs.len()) } else { String::new() },
            ui::table(header, rows),
            emulated.unwrap_or_default(),
            between_ranks(tolls),
            held(tolls),
            match tolls.len() {
                0 | 1 => counted(self.threads, "thread"),
                ranks => format!("{ranks} ranks with {} each", counted(self.threads, "thread")),
            },
            self.dir.display(),
        )
    }
}

/// What the planner expected beside what came.
fn compared(plan: &Plan) -> String {
    let (Some(predicted), Some(measured)) = (plan.predicted, plan.measured) else { return String::new() };
    let peaks = format!("{} at the peak, measured {}", ui::bytes(predicted.peak_bytes), ui::bytes(measured.peak_bytes));
    match (predicted.epoch_ms, measured.epoch_ms) {
        (Some(p), Some(m)) => {
            let error = predicted.error.map_or(String::new(), |error| format!(" {}", explain::within(error)));
            format!("        predicted {p:.1} ms per epoch{error}, measured {m:.1}; {peaks}\n")
        }
        _ => format!("        predicted {peaks}\n"),
    }
}

/// Memory at the peak of the rank that needed most, by purpose.
fn held(tolls: &[Toll]) -> String {
    let peak = largest(tolls);
    let tags = Tag::ALL.into_iter().filter(|tag| peak.of(*tag) > 0);
    let tags: Vec<String> = tags.map(|tag| format!("{} {}", tag.name(), ui::bytes(peak.of(tag)))).collect();
    let whose = if tolls.len() > 1 { " of the largest rank" } else { "" };
    format!("{} at the peak{whose}: {}", ui::bytes(peak.total()), tags.join(", "))
}

/// What each rank needed and sent, and for which operations; nothing for one rank.
fn between_ranks(tolls: &[Toll]) -> String {
    if tolls.len() < 2 {
        return String::new();
    }
    let rank = |(rank, t): (usize, &Toll)| {
        let of = |tag| ui::bytes(t.peak.of(tag));
        let (peak, sent) = (ui::bytes(t.peak.total()), ui::bytes(t.bytes_sent()));
        [rank.to_string(), peak, of(Tag::Activations), of(Tag::Exchange), of(Tag::Graph), sent]
    };
    let header = ["rank", "peak", "activations", "exchange", "graph", "sent per epoch"];
    let ranks = ui::table(header, tolls.iter().enumerate().map(rank));
    let operation = |s: &Sent| [s.op.clone(), s.traffic.clone(), ui::bytes(s.bytes), ui::count(s.calls)];
    let header = ["operation", "carries", "sent per epoch, all ranks", "exchanges"];
    let operations = ui::table(header, operations(tolls).iter().map(operation));
    format!("{ranks}\n\n{operations}\n\n")
}

/// What all ranks together sent, by operation.
fn operations(tolls: &[Toll]) -> Vec<Sent> {
    let mut all: Vec<Sent> = Vec::new();
    for sent in tolls.iter().flat_map(|t| &t.sent) {
        match all.iter_mut().find(|s| (&s.op, &s.traffic) == (&sent.op, &sent.traffic)) {
            Some(sum) => (sum.bytes, sum.calls) = (sum.bytes + sent.bytes, sum.calls + sent.calls),
            None => all.push(sent.clone()),
        }
    }
    all
}

/// The median epoch; nothing where all was done before.
fn epoch_ms(s: &Summary) -> Option<f64> {
    let mut all: Vec<f64> = s.runs.iter().flat_map(|r| &r.cost.epoch_ms).copied().collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// What the run that took most memory took on each rank.
fn tolls(s: &Summary) -> &[Toll] {
    let all = s.runs.iter().map(|r| &r.cost.tolls[..]);
    all.max_by_key(|tolls| largest(tolls).total()).unwrap_or_default()
}

/// Memory of the rank that needed most.
fn largest(tolls: &[Toll]) -> Usage {
    tolls.iter().map(|t| t.peak).max_by_key(Usage::total).unwrap_or_default()
}
