//! Work that lasts: a bar on a terminal, elsewhere and in a log a line every few seconds.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use graphweft::{Observer, Phase, Unit};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Ui, bytes, count};

/// A phase that lasts prints a line this often.
const LINE_EVERY: Duration = Duration::from_secs(5);

impl Ui {
    /// A display of work that counts from `from` to `total` and has something to say at each step: `name` is the short
    /// one of what is counted, on a terminal, and `what` the one in lines.
    pub(crate) fn live(&self, name: &str, what: &str, from: u64, total: u64) -> Live {
        let bar = self.shows_bars().then(|| {
            let bar = self.bars.add(ProgressBar::new(total).with_position(from));
            // What does not fit is cut off at its end.
            if let Ok(style) = ProgressStyle::with_template("{prefix} {pos}/{len}  {wide_msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(name.to_string());
            bar
        });
        let shown = Shown::new(self, bar);
        Live { shown, what: what.to_string(), from, total, started: Instant::now(), printed: 0 }
    }
}

/// A bar as long as its work lasts, where bars are shown.
struct Shown {
    ui: Ui,
    bar: Option<ProgressBar>,
}

impl Shown {
    fn new(ui: &Ui, bar: Option<ProgressBar>) -> Self {
        Self { ui: ui.clone(), bar }
    }

    /// A line about what people can see in the bar.
    fn beside(&self, line: &str) {
        match &self.bar {
            Some(_) => self.ui.record(line),
            None => self.ui.note(line),
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            self.ui.bars.remove(bar);
        }
    }
}

impl Observer for Ui {
    fn note(&self, line: &str) {
        self.note(line);
    }

    fn phase(&self, phase: &str, total: u64, unit: Unit) -> Box<dyn Phase> {
        let bar = self.shows_bars().then(|| {
            let bar = self.bars.add(if total == 0 { ProgressBar::new_spinner() } else { ProgressBar::new(total) });
            // Only now: what is drawn before it is one of them stays where it is.
            dress(&bar, phase, total, unit);
            bar
        });
        Box::new(Working { shown: Shown::new(self, bar), lines: Lines::new(phase, total, unit) })
    }
}

/// A line of a terminal, or a line every few seconds.
pub(crate) struct Live {
    shown: Shown,
    what: String,
    /// Steps that were done before.
    from: u64,
    total: u64,
    started: Instant,
    printed: u64,
}

impl Live {
    /// Step `position` is over.
    pub(crate) fn at(&mut self, position: u64, message: &str) {
        let elapsed = self.started.elapsed();
        if let Some(bar) = &self.shown.bar {
            let pace = pace(position.saturating_sub(self.from), self.total.saturating_sub(position), elapsed);
            bar.set_message(format!("{pace}  {message}"));
            bar.set_position(position);
        }
        let periods = elapsed.as_secs() / LINE_EVERY.as_secs();
        if periods > self.printed {
            self.printed = periods;
            let line = format!("{} {position} of {}: {message}", self.what, self.total);
            self.shown.beside(&line);
        }
    }
}

/// How many steps a second there were since this process began, and how long those that are left will take.
fn pace(done: u64, left: u64, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-9);
    if done == 0 {
        return "–/s".into();
    }
    let digits = if rate < 10.0 { 1 } else { 0 };
    let left = (left as f64 / rate).ceil() as u64;
    let left = match left {
        ..=99 => format!("{left} s"),
        100..=5999 => format!("{} min", left.div_ceil(60)),
        _ => format!("{} h", left.div_ceil(3600)),
    };
    format!("{rate:.digits$}/s, {left} left")
}

fn dress(bar: &ProgressBar, phase: &str, total: u64, unit: Unit) {
    let counts = match (unit, total) {
        (Unit::Bytes, 0) => "{bytes} {bytes_per_sec}",
        (Unit::Bytes, _) => "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        (Unit::Items, 0) => "{human_pos} {per_sec}",
        (Unit::Items, _) => "{wide_bar} {human_pos}/{human_len} {per_sec} {eta}",
    };
    if let Ok(style) = ProgressStyle::with_template(&format!("{{msg:24}} {counts}")) {
        bar.set_style(style);
    }
    bar.set_message(phase.to_string());
    bar.enable_steady_tick(Duration::from_millis(200));
}

/// A phase.
struct Working {
    shown: Shown,
    lines: Lines,
}

impl Phase for Working {
    fn add(&self, n: u64) {
        if let Some(bar) = &self.shown.bar {
            bar.inc(n);
        }
        if let Some(line) = self.lines.add(n) {
            self.shown.beside(&line);
        }
    }
}

/// Progress for logs: a line every few seconds, and none for what is over sooner.
struct Lines {
    phase: String,
    total: u64,
    unit: Unit,
    done: AtomicU64,
    started: Instant,
    printed: AtomicU64,
}

impl Lines {
    fn new(phase: &str, total: u64, unit: Unit) -> Self {
        let phase = phase.to_string();
        Self { phase, total, unit, done: AtomicU64::new(0), started: Instant::now(), printed: AtomicU64::new(0) }
    }

    fn add(&self, n: u64) -> Option<String> {
        let done = self.done.fetch_add(n, Ordering::Relaxed) + n;
        let periods = self.started.elapsed().as_secs() / LINE_EVERY.as_secs();
        if periods <= self.printed.fetch_max(periods, Ordering::Relaxed) {
            return None;
        }
        let show = |n| if self.unit == Unit::Bytes { bytes(n) } else { count(n) };
        let mut line = format!("{}: {}", self.phase, show(done));
        if self.total > 0 {
            let _ = write!(line, " of {} ({:.0} %)", show(self.total), 100.0 * done as f64 / self.total as f64);
        }
        Some(format!("{line}, {} s", self.started.elapsed().as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_of_the_steps_of_this_process() {
        assert_eq!(pace(2, 8, Duration::from_secs(1)), "2.0/s, 4 s left");
        assert_eq!(pace(600, 60_000, Duration::from_secs(20)), "30/s, 34 min left");
        assert_eq!(pace(1, 1000, Duration::from_secs(60)), "0.0/s, 17 h left");
        assert_eq!(pace(0, 10, Duration::from_secs(1)), "–/s");
    }
}
