//! What decided, in words and numbers.

use graphweft_graph::partition::Method;
use graphweft_parallel::{Situation, Strategy};
use graphweft_tensor::Tag;
use serde_json::{Value, json};

use crate::candidates::{Candidate, name_of};
use crate::search::{Assessed, Found, Prediction};

/// What a choice depends on, beside what was rehearsed.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Ranks.
    pub ranks: usize,
    /// Bytes that a rank may use.
    pub memory: u64,
    /// What can be shared between ranks without moving nodes: heads of attention, or columns of sums.
    pub shares: usize,
    /// Whether those are heads.
    pub heads: bool,
    /// Whether rows are stored in f32 or wider.
    pub wide: bool,
    /// Of every way to divide the graph: α, rows of others that are needed over the number of nodes.
    pub alphas: Vec<(Option<Method>, f64)>,
    /// Seconds until an empty message arrives, and bytes per second of a large one, between most ranks.
    pub latency: f64,
    /// As above.
    pub bandwidth: f64,
}

impl Facts {
    fn alpha(&self, method: Option<Method>) -> Option<f64> {
        self.alphas.iter().find(|(m, _)| *m == method).map(|(_, alpha)| *alpha)
    }
}

/// One sentence with the facts that decided.
pub(crate) fn why(choice: &Candidate, p: &Prediction, all: &[Assessed], facts: &Facts) -> String {
    let mut parts = Vec::new();
    match choice.strategy {
        Strategy::Local(_) => parts.push("one rank has every row: nothing moves".to_string()),
        _ => parts.push(moves(choice, p, facts)),
    }
    if choice.remat != graphweft_model::Remat::None {
        let kept =
            all.iter().filter(|a| a.candidate.strategy == choice.strategy && a.candidate.partition == choice.partition);
        let larger = kept.filter(|a| !a.feasible).filter_map(|a| a.prediction).map(|p| p.peak.total()).max();
        if let Some(larger) = larger {
            parts.push(format!(
                "computing {} again makes it fit: {} instead of {} on ranks of {}",
                name_of(choice.remat),
                bytes(p.peak.total()),
                bytes(larger),
                bytes(facts.memory)
            ));
        }
    }
    let fastest = all.first().filter(|a| a.feasible).and_then(|a| Some((a.candidate, a.prediction?)));
    if let Some((fastest, q)) = fastest.filter(|(fastest, _)| fastest != choice) {
        let (larger, smaller) = (bytes(q.peak.total()), bytes(p.peak.total()));
        let more = if larger == smaller { String::new() } else { format!(" and needs {larger}, not {smaller}") };
        parts.push(format!("{fastest} is as fast{more}"));
    }
    let other = |a: &&Assessed| a.candidate.strategy.family() != choice.strategy.family();
    let mut slower = all.iter().filter(|a| a.feasible && a.prediction.is_some_and(|q| q.seconds >= p.seconds));
    if let Some((next, q)) = slower.find(other).and_then(|a| Some((a.candidate, a.prediction?))) {
        parts.push(format!("next is {next} with {} and {} sent", ms(q.seconds), bytes(q.sent)));
    }
    // What would have been faster with more memory.
    let faster = all.iter().filter(|a| !a.feasible).filter_map(|a| Some((a.candidate, a.prediction?)));
    let faster = faster.filter(|(c, q)| q.seconds < p.seconds && c.strategy.family() != choice.strategy.family());
    if let Some((c, q)) = faster.min_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds)) {
        parts.push(format!("{c} would take {} but does not fit", ms(q.seconds)));
    }
    parts.join("; ")
}

/// What moves between ranks, and why that is little.
fn moves(choice: &Candidate, p: &Prediction, facts: &Facts) -> String {
    let situation = Situation {
        ranks: facts.ranks,
        alpha: facts.alpha(choice.partition),
        shares: facts.shares,
        shares_are: if facts.heads { "heads" } else { "columns" },
    };
    let network = format!("on a network of {} and {:.1} µs", rate(facts.bandwidth), facts.latency * 1e6);
    let sent = format!("{} are sent per epoch", bytes(p.sent));
    format!("{}: {} {network}, {sent}", choice.strategy.reason(&situation), ms(p.seconds))
}

/// As `plan --json` has it.
pub fn to_json(found: &Found) -> Value {
    let (choice, p) = &found.choice;
    // Where kernels were not timed, only memory and messages are known.
    let timed = |p: &Prediction, seconds: f64| (p.seconds > 0.0).then_some(seconds * 1e3);
    let candidate = |a: &Assessed| {
        let p = a.prediction.as_ref();
        let mut one = json!({
            "strategy": a.candidate.strategy, "partition": a.candidate.partition, "remat": a.candidate.remat,
            "time_ms": p.and_then(|p| timed(p, p.seconds)), "compute_ms": p.and_then(|p| timed(p, p.compute)),
            "comm_ms": p.and_then(|p| timed(p, p.exposed)), "imbalance_ms": p.and_then(|p| timed(p, p.imbalance)),
            "bytes_sent": p.map(|p| p.sent), "peak_bytes": p.map(|p| p.peak.total()),
            // Of what nobody looked at it is not known.
            "feasible": (!a.skipped).then_some(a.feasible), "reason": a.reason,
        });
        if let (Some(p), Value::Object(one)) = (p, &mut one) {
            let tags = Tag::ALL.into_iter().map(|tag| (tag.name().to_string(), p.peak.of(tag).into()));
            one.insert("peak".into(), Value::Object(tags.collect()));
        }
        one
    };
    json!({
        "choice": {
            "strategy": choice.strategy, "partition": choice.partition, "remat": choice.remat,
            "time_ms": timed(p, p.seconds), "peak_bytes": p.peak.total(),
        },
        "why": found.why,
        "candidates": found.candidates.iter().map(candidate).collect::<Vec<Value>>(),
    })
}

/// Milliseconds, for people.
pub fn ms(seconds: f64) -> String {
    match seconds * 1e3 {
        ms if ms >= 10_000.0 => format!("{:.1} s", ms / 1e3),
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.3} ms"),
    }
}

/// A size in binary units.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut x, mut unit) = (n as f64, 0);
    while x >= 1024.0 && unit + 1 < units.len() {
        (x, unit) = (x / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{n} B") } else { format!("{x:.1} {}", units[unit]) }
}

/// How far a time may be off, as a share of it, for people: ±8 %.
pub fn within(error: f64) -> String {
    format!("±{:.0} %", 100.0 * error)
}

/// So many of something: 1 rank, 2 ranks.
pub fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn rate(bytes_per_second: f64) -> String {
    match bytes_per_second {
        b if b >= 1e9 => format!("{:.1} GB/s", b / 1e9),
        b => format!("{:.1} MB/s", b / 1e6),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn facts(ranks: usize, memory: u64) -> Facts {
        Facts {
            ranks,
            memory,
            shares: 8,
            heads: true,
            wide: true,
            alphas: vec![(Some(Method::Contiguous), 0.25)],
            latency: 2e-6,
            bandwidth: 1.25e8,
        }
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([ms(0.000_05), ms(0.0123), ms(0.5), ms(75.0)], ["0.050 ms", "12.3 ms", "500 ms", "75.0 s"]);
        assert_eq!([counted(0, "rank"), counted(1, "rank"), counted(2, "thread")], ["0 ranks", "1 rank", "2 threads"]);
        assert_eq!([rate(1.25e8), rate(4.5e11)], ["125.0 MB/s", "450.0 GB/s"]);
    }

    #[test]
    fn the_sentence_names_what_decided() {
        let p = |seconds| Prediction {
            seconds,
            compute: 0.0,
            imbalance: 0.0,
            exposed: 0.0,
            sent: 1 << 20,
            peak: Default::default(),
        };
        let candidate = |name: &str| Candidate {
            strategy: name.parse().unwrap(),
            partition: Some(Method::Contiguous),
            remat: Default::default(),
        };
        let assessed = |name: &str, seconds, feasible| Assessed {
            candidate: candidate(name),
            prediction: Some(p(seconds)),
            feasible,
            skipped: false,
            reason: None,
        };
        let all = [assessed("halo", 0.01, true), assessed("heads", 0.02, true), assessed("gather", 0.005, false)];
        let text = why(&candidate("halo"), &p(0.01), &all, &facts(4, 1 << 30));
        for part in [
            "α = 0.25",
            "10.0 ms",
            "125.0 MB/s",
            "2.0 µs",
            "1.0 MiB",
            "next is heads, contiguous with 20.0 ms",
            "gather, contiguous would take 5.0 ms",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = why(&candidate("heads"), &p(0.01), &all, &facts(4, 1 << 30));
        assert!(text.contains("8 heads are enough for 4 ranks") && text.contains("next is halo"), "{text}");
    }
}
