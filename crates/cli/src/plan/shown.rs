//! What a plan looks like: a table of candidates for people, all of them with all numbers as JSON.

use graphweft_graph::dataset::Features;
use graphweft_parallel::Strategy;
use graphweft_plan::candidates::name_of;
use graphweft_plan::explain::{self, ms, within};
use graphweft_plan::search::{Assessed, Prediction};
use graphweft_plan::{Candidate, Found, Profile};
use graphweft_train::config::Config;
use graphweft_train::data::Data;
use serde_json::{Value, json};

use super::Args;
use crate::ui::{bytes, count, counted, table_of, width};

/// From this many columns on there is room for what the time of an epoch is spent on.
const WIDE: usize = 104;
/// Letters of the heading of a picture that is two panels wide.
const HEADING: usize = 110;
/// What is chosen is marked by this.
pub(super) const MARK: &str = "→ ";

/// With which features a plan is made.
pub(super) struct Columns {
    features: usize,
    classes: usize,
    origin: &'static str,
}

impl Columns {
    pub(super) fn of(args: &Args, data: &Data) -> Self {
        // What will only be rehearsed has a width and no numbers.
        let unread = matches!(&data.features, Features::Dense(dense) if dense.len() < data.graph.num_dst());
        let origin = match (args.features, unread) {
            (Some(_), _) => "as --features says",
            (None, true) => "assumed: the graph has none (--features says otherwise)",
            (None, false) => "those of the graph",
        };
        Self { features: data.features.width(), classes: data.classes, origin }
    }
}

/// A plan, to be shown.
pub(super) struct Shown<'a> {
    pub(super) found: &'a Found,
    pub(super) title: String,
    /// Nothing for a graph that is only described.
    pub(super) features: Option<Columns>,
    /// What one rank would take, where there are several.
    pub(super) one_rank: Option<Prediction>,
    pub(super) config: &'a Config,
    pub(super) ranks: usize,
    /// Bytes that a rank may use.
    pub(super) memory: u64,
    pub(super) profile: &'a Profile,
}

impl Shown<'_> {
    /// All candidates; among them one rank, which is compared and not chosen: others are asked for.
    fn candidates(&self) -> Vec<Assessed> {
        let mut all = self.found.candidates.clone();
        if let Some(p) = self.one_rank {
            let candidate = Candidate { strategy: Strategy::Local, partition: None, remat: self.config.compute.remat };
            let reason = match p.peak.total() > self.memory {
                true => format!("{} are more than a rank has", bytes(p.peak.total())),
                false => format!("one rank, to compare with: {} are asked for", self.ranks),
            };
            let place = all.iter().position(|a| !a.feasible).unwrap_or(all.len());
            all.insert(place, Assessed { candidate, prediction: Some(p), feasible: false, reason: Some(reason) });
        }
        all
    }

    fn is_one_of_several(&self, candidate: &Candidate) -> bool {
        self.ranks > 1 && candidate.strategy == Strategy::Local
    }

    fn timed(&self) -> bool {
        !self.profile.kernels.is_empty()
    }

    /// For whom, and made of what.
    pub(super) fn heading(&self) -> String {
        let whole = format!("{}; {}; {}", self.title, counted(self.ranks, "rank"), self.profile.about);
        match whole.char_indices().nth(HEADING) {
            Some((end, _)) => format!("{}…", &whole[..end]),
            None => whole,
        }
    }

    pub(super) fn json(&self, graph: &str) -> Value {
        let all = Found { candidates: self.candidates(), ..self.found.clone() };
        let mut json = explain::to_json(&all);
        let error = self.timed().then(|| self.profile.error());
        let with_error = |one: &mut Value| {
            let time = one["time_ms"].as_f64();
            one["time_error_ms"] = json!(time.zip(error).map(|(time, error)| time * error));
        };
        with_error(&mut json["choice"]);
        for (one, a) in json["candidates"].as_array_mut().into_iter().flatten().zip(&all.candidates) {
            with_error(one);
            one["ranks"] = json!(if self.is_one_of_several(&a.candidate) { 1 } else { self.ranks });
        }
        let Value::Object(map) = &mut json else { return json };
        for (key, value) in [
            ("graph", json!(graph)),
            ("ranks", json!(self.ranks)),
            ("memory", json!(self.memory)),
            ("profile", json!(self.profile.about)),
            ("profile_source", json!(self.profile.source)),
            ("error", json!(error)),
            ("run_seconds", json!(error.map(|_| self.run_seconds()))),
        ] {
            map.insert(key.into(), value);
        }
        if let Some(columns) = &self.features {
            map.insert("features".into(), json!(columns.features));
            map.insert("classes".into(), json!(columns.classes));
            map.insert("features_are".into(), json!(columns.origin));
        }
        json
    }

    fn run_seconds(&self) -> f64 {
        self.found.choice.1.seconds * self.config.train.epochs as f64 * self.config.run.seeds as f64
    }

    pub(super) fn text(&self) -> String {
        let all = self.candidates();
        let (rehearsed, others): (Vec<&Assessed>, Vec<&Assessed>) = all.iter().partition(|a| a.prediction.is_some());
        let mut lines = vec![self.title.clone()];
        if let Some(Columns { features, classes, origin }) = &self.features {
            let columns = counted(*features, "column");
            let classes = if *classes == 1 { "1 class".into() } else { format!("{} classes", count(*classes as u64)) };
            lines.push(format!("features  {columns} and {classes}, {origin}"));
        }
        let machine = if self.profile.about.is_empty() { "unknown" } else { &self.profile.about };
        let memory = match self.memory {
            u64::MAX => String::new(),
            memory => format!(", {}{} to use", if self.ranks > 1 { "each with " } else { "with " }, bytes(memory)),
        };
        lines.push(format!("ranks     {}{memory}", self.ranks));
        lines.push(match self.timed() {
            true => format!("machine   {machine}; times {}", within(self.profile.error())),
            false => format!("machine   {machine}; its times are not known"),
        });
        lines.extend([String::new(), self.table(&rehearsed), String::new()]);
        lines.extend(self.legend(&rehearsed));
        if !others.is_empty() {
            lines.push(format!("not rehearsed: {} (--json has each with its reason)", others.len()));
            lines.extend(reasons(&others));
        }
        let (choice, p) = &self.found.choice;
        lines.push(String::new());
        lines.push(format!("{choice}: {}", self.found.why));
        if self.timed() {
            let (epochs, error) = (self.config.train.epochs, self.profile.error());
            let (low, high) = (p.seconds * (1.0 - error).max(0.0), p.seconds * (1.0 + error));
            lines.push(format!(
                "an epoch takes {} to {}; {} of {epochs} epochs about {}",
                ms(low),
                ms(high),
                counted(self.config.run.seeds as usize, "run"),
                lasting(self.run_seconds())
            ));
        }
        lines.join("\n")
    }

    fn table(&self, rehearsed: &[&Assessed]) -> String {
        let wide = width::of_stdout() >= WIDE;
        let again = self.says_what_is_computed_again(rehearsed);
        let mut header = vec!["  strategy", "parts"];
        header.extend(again.then_some("recomputed"));
        header.push("epoch");
        header.extend([("kernels", wide), ("uneven", wide), ("waiting", true)].iter().filter(|c| c.1).map(|c| c.0));
        header.extend(["sent", "peak"]);
        let row = |a: &&Assessed| {
            let p = a.prediction.as_ref();
            let time = |of: fn(&Prediction) -> f64| match p {
                Some(p) if self.timed() => ms(of(p)),
                _ => "–".to_string(),
            };
            let mark = if a.candidate == self.found.choice.0 && a.feasible { MARK } else { "  " };
            let over = p.is_some_and(|p| p.peak.total() > self.memory);
            let name = match self.is_one_of_several(&a.candidate) {
                true => "one rank".into(),
                false => a.candidate.strategy.to_string(),
            };
            let mut row = vec![format!("{mark}{name}"), a.candidate.partition.map_or("–".into(), |m| m.to_string())];
            row.extend(again.then(|| short(&a.candidate).to_string()));
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

    fn says_what_is_computed_again(&self, rehearsed: &[&Assessed]) -> bool {
        rehearsed.iter().any(|a| a.candidate.remat != graphweft_model::Remat::None)
    }

    /// What the words and marks of the table mean.
    fn legend(&self, rehearsed: &[&Assessed]) -> Vec<String> {
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
        if rehearsed.iter().any(|a| a.prediction.is_some_and(|p| p.peak.total() > self.memory)) {
            lines.push(format!("× more than the {} of a rank", bytes(self.memory)));
        }
        if let (Some(one), true) = (self.one_rank, self.timed()) {
            let slower = self.found.choice.1.seconds >= one.seconds && one.peak.total() <= self.memory;
            let advice = if slower { ", which is less: leave out --ranks" } else { "" };
            let ranks = self.ranks;
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

/// What is computed again, for a column.
fn short(candidate: &Candidate) -> &'static str {
    match candidate.remat {
        graphweft_model::Remat::None => "–",
        graphweft_model::Remat::Both => "both",
        remat => name_of(remat),
    }
}

/// Why candidates were not rehearsed, each reason once.
fn reasons(others: &[&Assessed]) -> Vec<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for reason in others.iter().filter_map(|a| a.reason.as_deref()) {
        match counts.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => counts.push((reason, 1)),
        }
    }
    counts.iter().map(|(reason, count)| format!("  {count} × {reason}")).collect()
}
