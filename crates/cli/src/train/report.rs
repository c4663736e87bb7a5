//! What the user sees of a run when it is over.

use graphweft::{OverSeeds, RankUsage, Report as Made, Sent};

use crate::ui::{self, Ui, counted, within};

pub(super) struct Report<'a>(pub(super) &'a Made);

impl Report<'_> {
    pub(super) fn show(&self, ui: &Ui) -> anyhow::Result<()> {
        ui.result(&self.0.to_json(), || self.text())
    }

    fn text(&self) -> String {
        let s = self.0;
        let graph = format!(
            "{}: {} nodes, {} edges, {} {}",
            s.graph,
            ui::count(s.nodes as u64),
            ui::count(s.edges as u64),
            s.classes,
            s.noun
        );
        let floor = s.floor.as_deref();
        let rows = std::iter::once(row(&s.model, s)).chain(floor.map(|f| row("mlp, no graph", f)));
        let [valid, test] = ["valid", "test"].map(|part| format!("{part}{}", s.metric.unit()));
        let header = ["model", "parameters", &valid, &test, "epochs", "ms/epoch"];
        let emulated = s.emulated.as_ref().map(|name| format!("\nms per epoch: emulated on {name}"));
        let seconds = s.seconds() + floor.map_or(0.0, Made::seconds);
        let plan = match s.plan.ranks {
            1 => format!("{}: {}", s.plan.strategy, s.plan.why),
            ranks => format!("{} on {ranks} ranks: {}", s.plan.strategy, s.plan.why),
        };
        format!(
            "{graph}\n{}, test at the best validation{}\n\n{}{}\n\n{}plan    {plan}\n{}memory  {}\ntime    {seconds:.1} s, \
             {}\nrun     {}",
            s.metric.name(),
            if s.seeds.len() > 1 { format!(", mean ± deviation of {} seeds", s.seeds.len()) } else { String::new() },
            ui::table(header, rows),
            emulated.unwrap_or_default(),
            between_ranks(s),
            compared(s),
            held(s),
            match s.ranks().len() {
                0 | 1 => counted(s.threads, "thread"),
                ranks => format!("{ranks} ranks with {} each", counted(s.threads, "thread")),
            },
            s.folder.display(),
        )
    }
}

/// A model and its scores.
fn row(name: &str, s: &Made) -> [String; 6] {
    let epochs = s.seeds.iter().map(|seed| seed.epochs).sum::<u64>() / s.seeds.len().max(1) as u64;
    let parameters = s.seeds.first().map_or(0, |seed| seed.parameters);
    let score = |x: OverSeeds| match s.seeds.len() {
        1 => s.metric.show(x.mean),
        _ => s.metric.show_over_seeds(x),
    };
    let ms = s.epoch_ms().map_or("–".into(), |ms| format!("{ms:.1}"));
    [name.into(), ui::count(parameters as u64), score(s.valid), score(s.test), epochs.to_string(), ms]
}

/// What the planner expected beside what came.
fn compared(s: &Made) -> String {
    let (Some(predicted), Some(measured)) = (s.plan.predicted, s.plan.measured) else { return String::new() };
    let peaks = format!("{} at the peak, measured {}", ui::bytes(predicted.peak_bytes), ui::bytes(measured.peak_bytes));
    match (predicted.epoch_ms, measured.epoch_ms) {
        (Some(p), Some(m)) => {
            let error = predicted.error.map_or(String::new(), |error| format!(" {}", within(error)));
            format!("        predicted {p:.1} ms per epoch{error}, measured {m:.1}; {peaks}\n")
        }
        _ => format!("        predicted {peaks}\n"),
    }
}

/// Memory at the peak of the rank that needed most, by purpose.
fn held(s: &Made) -> String {
    let peak = s.peak();
    let used = peak.by_purpose().filter(|(_, bytes)| *bytes > 0);
    let used: Vec<String> = used.map(|(name, bytes)| format!("{name} {}", ui::bytes(bytes))).collect();
    let whose = if s.ranks().len() > 1 { " of the largest rank" } else { "" };
    format!("{} at the peak{whose}: {}", ui::bytes(peak.total()), used.join(", "))
}

/// What each rank needed and sent, and for which operations; nothing for one rank.
fn between_ranks(s: &Made) -> String {
    if s.ranks().len() < 2 {
        return String::new();
    }
    let rank = |(rank, r): (usize, &RankUsage)| {
        let peak = [r.peak.total(), r.peak.activations(), r.peak.exchange(), r.peak.graph()];
        let [all, activations, exchange, graph] = peak.map(ui::bytes);
        [rank.to_string(), all, activations, exchange, graph, ui::bytes(r.bytes_sent())]
    };
    let header = ["rank", "peak", "activations", "exchange", "graph", "sent per epoch"];
    let ranks = ui::table(header, s.ranks().iter().enumerate().map(rank));
    let operation = |s: &Sent| [s.op.clone(), s.traffic.clone(), ui::bytes(s.bytes), ui::count(s.calls)];
    let header = ["operation", "carries", "sent per epoch, all ranks", "exchanges"];
    let operations = ui::table(header, s.sent().iter().map(operation));
    format!("{ranks}\n\n{operations}\n\n")
}
