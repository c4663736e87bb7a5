//! What a plan looks like: a table of candidates.

use graphweft::{Candidate, Plan, Prediction};

use crate::ui::{bytes, count, counted, ms, table_of, width, within};

/// From this many columns on there is room for what the time of an epoch is spent on.
const WIDE: usize = 104;
/// What is chosen is marked by this.
const MARK: &str = "→ ";

/// A plan, to be shown.
pub(super) struct Shown<'a>(pub(super) &'a Plan);

impl Shown<'_> {
    fn is_one_of_several(&self, candidate: &Candidate) -> bool {
        self.0.ranks > 1 && candidate.ranks == 1
    }

    fn is_chosen(&self, candidate: &Candidate) -> bool {
        candidate.feasible && candidate.name == self.0.chosen().name
    }

    pub(super) fn text(&self) -> String {
        let plan = self.0;
        let (rehearsed, others): (Vec<&Candidate>, Vec<&Candidate>) =
            plan.candidates.iter().partition(|a| a.prediction.is_some());
        let mut lines = vec![plan.title.clone()];
        if let (Some(features), Some(classes)) = (plan.features, plan.classes) {
            let columns = counted(features, "column");
            let classes = if classes == 1 { "1 class".into() } else { format!("{} classes", count(classes as u64)) };
            lines.push(format!("features  {columns} and {classes}, {}", plan.origin));
        }
        let machine = if plan.machine.is_empty() { "unknown" } else { &plan.machine };
        let memory = match plan.memory {
            u64::MAX => String::new(),
            memory => format!(", {}{} to use", if plan.ranks > 1 { "each with " } else { "with " }, bytes(memory)),
        };
        lines.push(format!("ranks     {}{memory}", plan.ranks));
        lines.push(match plan.error {
            Some(error) => format!("machine   {machine}; times {}", within(error)),
            None => format!("machine   {machine}; its times are not known"),
        });
        lines.extend([String::new(), self.table(&rehearsed), String::new()]);
        lines.extend(self.legend(&rehearsed));
        if !others.is_empty() {
            lines.push(format!("not rehearsed: {} (--json has each with its reason)", others.len()));
            lines.extend(reasons(&others));
        }
        lines.push(String::new());
        lines.push(format!("{}: {}", plan.chosen().name, plan.why));
        if let (Some(error), Some(p)) = (plan.error, plan.chosen().prediction) {
            let epochs = plan.epochs;
            let (low, high) = (p.seconds * (1.0 - error).max(0.0), p.seconds * (1.0 + error));
            lines.push(format!(
                "an epoch takes {} to {}; {} of {epochs} epochs about {}",
                ms(low),
                ms(high),
                counted(plan.seeds as usize, "run"),
                lasting(plan.run_seconds())
            ));
        }
        lines.join("\n")
    }

    fn table(&self, rehearsed: &[&Candidate]) -> String {
        let wide = width::of_stdout() >= WIDE;
        let again = self.says_what_is_computed_again(rehearsed);
        let mut header = vec!["  strategy", "parts"];
        header.extend(again.then_some("recomputed"));
        header.push("epoch");
        header.extend([("kernels", wide), ("uneven", wide), ("waiting", true)].iter().filter(|c| c.1).map(|c| c.0));
        header.extend(["sent", "peak"]);
        let row = |a: &&Candidate| {
            let p = a.prediction.as_ref();
            let time = |of: fn(&Prediction) -> f64| match p {
                Some(p) if self.0.error.is_some() => ms(of(p)),
                _ => "–".to_string(),
            };
            let mark = if self.is_chosen(a) { MARK } else { "  " };
            let over = p.is_some_and(|p| p.peak.total() > self.0.memory);
            let name = if self.is_one_of_several(a) { "one rank" } else { a.strategy.as_str() };
            let mut row = vec![format!("{mark}{name}"), a.partition.clone().unwrap_or_else(|| "–".into())];
            row.extend(again.then(|| a.computes_again().unwrap_or("–").to_string()));
            row.push(time(|p| p.seconds));
            row.extend(wide.then(|| time(|p| p.compute)));
            row.extend(wide.then(|| time(|p| p.imbalance)));
            row.push(time(|p| p.exposed));
            row.push(p.map_or("–".into(), |p| bytes(p.sent)));
            let full = if over { " ×" } else { "" };
            row.push(p.map_or("–".into(), |p| format!("{}{full}", bytes(p.peak.total()))));
            row
        };
        table_of(&header, &rehearsed.iter().map(row).collect::<Vec<_>>()).to_string()
    }

    fn says_what_is_computed_again(&self, rehearsed: &[&Candidate]) -> bool {
        rehearsed.iter().any(|a| a.computes_again().is_some())
    }

    /// What the words and marks of the table mean.
    fn legend(&self, rehearsed: &[&Candidate]) -> Vec<String> {
        let mut lines = vec![format!("{MARK}what auto takes: the fastest that fits")];
        if width::of_stdout() >= WIDE {
            lines.push("epoch = kernels of the mean rank + uneven shares + waiting for messages".into());
        }
        if self.says_what_is_computed_again(rehearsed) {
            lines.push(
                "recomputed: what backward computes a second time instead of keeping it from forward, which saves memory"
                    .into(),
            );
        } else {
            lines.push("nothing is computed twice: all that backward needs is kept from forward".into());
        }
        if rehearsed.iter().any(|a| a.prediction.is_some_and(|p| p.peak.total() > self.0.memory)) {
            lines.push(format!("× more than the {} of a rank", bytes(self.0.memory)));
        }
        if let (Some(one), Some(_), Some(p)) = (self.0.one_rank(), self.0.error, self.0.chosen().prediction) {
            let slower = p.seconds >= one.seconds && one.peak.total() <= self.0.memory;
            let advice = if slower { ", which is less: leave out --ranks" } else { "" };
            let ranks = self.0.ranks;
            lines.push(format!("one rank, as fast as each of the {ranks}, takes {}{advice}", ms(one.seconds)));
        }
        lines
    }
}

/// The time of a run, for people.
fn lasting(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => ms(s),
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Why candidates were not rehearsed, each reason once.
fn reasons(others: &[&Candidate]) -> Vec<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for reason in others.iter().filter_map(|a| a.reason.as_deref()) {
        match counts.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => counts.push((reason, 1)),
        }
    }
    counts.iter().map(|(reason, count)| format!("  {count} × {reason}")).collect()
}
