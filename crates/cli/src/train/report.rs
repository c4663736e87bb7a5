//! What the user sees of a run when it is over.

use std::path::Path;

use graphweft_tensor::{Place, Tag, Usage};
use graphweft_train::config::Config;
use graphweft_train::data::Data;
use graphweft_train::session::Summary;
use serde_json::{Value, json};

use crate::ui::{self, Ui};

pub(super) struct Report<'a> {
    pub(super) config: &'a Config,
    pub(super) data: &'a Data,
    pub(super) dir: &'a Path,
    pub(super) place: Place,
    pub(super) summary: &'a Summary,
    /// The same features without the graph.
    pub(super) floor: Option<&'a Summary>,
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
        let peak = peak(s);
        let mut json = json!({
            "metric": s.metric.name(), "valid": s.valid.mean, "test": s.test.mean,
            "valid_std": s.valid.std, "test_std": s.test.std, "seeds": seeds,
            "loss": first.map_or(&[][..], |r| &r.losses), "epoch_ms": epoch_ms(s),
            "seconds": s.runs.iter().map(|r| r.cost.seconds).sum::<f64>(),
            "parameters": first.map(|r| r.outcome.parameters),
            "peak_bytes": [peak.total()], "peak": ui::usage(peak), "bytes_sent_per_epoch": [0],
            "strategy": "local", "ranks": 1, "device": self.place.to_string(), "plan": self.dir.join("plan.json"),
            "graph": self.data.name, "model": self.config.model_name(), "run": self.dir,
        });
        if let (Some(floor), Value::Object(json)) = (self.floor, &mut json) {
            json.insert("floor".into(), json!({ "model": "mlp", "valid": floor.valid.mean, "test": floor.test.mean }));
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
                1 => format!("{:.2}", x.mean),
                _ => format!("{:.2} ± {:.2}", x.mean, x.std),
            };
            let ms = epoch_ms(s).map_or("–".into(), |ms| format!("{ms:.1}"));
            [name.into(), ui::count(parameters as u64), score(s.valid), score(s.test), epochs.to_string(), ms]
        };
        let rows = std::iter::once(row(&name, s)).chain(self.floor.map(|f| row("mlp, without the graph", f)));
        let header = ["model", "parameters", "valid %", "test %", "epochs", "ms per epoch"];
        let peak = peak(s);
        let tags = Tag::ALL.into_iter().filter(|tag| peak.of(*tag) > 0);
        let tags: Vec<String> = tags.map(|tag| format!("{} {}", tag.name(), ui::bytes(peak.of(tag)))).collect();
        let seconds: f64 =
            [Some(s), self.floor].into_iter().flatten().flat_map(|s| &s.runs).map(|r| r.cost.seconds).sum();
        format!(
            "{graph}\n{}, test at the best validation{}\n\n{}\n\nplan    local: one rank has every row, nothing \
             moves\nmemory  {} at the peak: {}\ntime    {seconds:.1} s, {} threads\nrun     {}",
            s.metric.name(),
            if s.runs.len() > 1 { format!(", mean ± deviation of {} seeds", s.runs.len()) } else { String::new() },
            ui::table(header, rows),
            ui::bytes(peak.total()),
            tags.join(", "),
            rayon::current_num_threads(),
            self.dir.display(),
        )
    }
}

/// The median epoch; nothing where all was done before.
fn epoch_ms(s: &Summary) -> Option<f64> {
    let mut all: Vec<f64> = s.runs.iter().flat_map(|r| &r.cost.epoch_ms).copied().collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Memory of the run that took most.
fn peak(s: &Summary) -> Usage {
    s.runs.iter().map(|r| r.cost.peak).max_by_key(Usage::total).unwrap_or_default()
}
