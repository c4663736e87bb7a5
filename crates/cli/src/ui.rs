//! What the user sees: progress on stderr, the result on stdout.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use graphweft_graph::progress::{Progress, Silent, Task, Unit};
use graphweft_tensor::{Tag, Usage};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

pub(crate) use graphweft_plan::explain::bytes;

/// Without a terminal, a phase that lasts prints a line this often.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The user's end of a verb.
#[derive(Clone)]
pub(crate) struct Ui {
    json: bool,
    terminal: bool,
    /// For the processes of a run that leave the talking to another.
    silent: bool,
}

impl Ui {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, terminal: io::stderr().is_terminal(), silent: false }
    }

    /// One that says nothing but errors, unless this process speaks for all.
    pub(crate) fn of_rank(&self, leads: bool) -> Self {
        Self { json: self.json, terminal: self.terminal, silent: !leads }
    }

    /// Prints the verb's result: `json` as one line, or what `text` makes for people.
    pub(crate) fn result(&self, json: &Value, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        if self.silent {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{json}")?;
        } else {
            writeln!(out, "{}", text().trim_end())?;
        }
        Ok(out.flush()?)
    }

    /// A display of work that counts from `from` to `total` and has something to say at each step.
    pub(crate) fn live(&self, what: &str, from: u64, total: u64) -> Live {
        let bar = self.terminal.then(|| {
            let bar = ProgressBar::new(total).with_position(from);
            let template = "{prefix} {pos}/{len} {bar:24} {msg}  {per_sec} {eta}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_prefix(what.to_string());
            bar
        });
        Live { bar, what: what.to_string(), total, started: Instant::now(), printed: 0 }
    }

    /// One line for people, on stderr.
    pub(crate) fn note(&self, line: &str) {
        if self.silent {
            return;
        }
        // A user who closed stderr does not want notes.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

impl Progress for Ui {
    fn start(&self, phase: &str, total: u64, unit: Unit) -> Box<dyn Task> {
        match (self.silent, self.terminal) {
            (true, _) => Box::new(Silent),
            (_, true) => Box::new(Bar::new(phase, total, unit)),
            (_, false) => Box::new(Lines::new(phase, total, unit)),
        }
    }
}

/// A bar with a message, or a line every few seconds.
pub(crate) struct Live {
    bar: Option<ProgressBar>,
    what: String,
    total: u64,
    started: Instant,
    printed: u64,
}

impl Live {
    /// Step `position` is over.
    pub(crate) fn at(&mut self, position: u64, message: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(message.to_string());
                bar.set_position(position);
            }
            None => {
                let periods = self.started.elapsed().as_secs() / LINE_EVERY.as_secs();
                if periods > self.printed {
                    self.printed = periods;
                    let _ = writeln!(io::stderr(), "{} {position} of {}: {message}", self.what, self.total);
                }
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

struct Bar(ProgressBar);

impl Bar {
    fn new(phase: &str, total: u64, unit: Unit) -> Self {
        let bar = if total == 0 { ProgressBar::new_spinner() } else { ProgressBar::new(total) };
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
        Self(bar)
    }
}

impl Task for Bar {
    fn add(&self, n: u64) {
        self.0.inc(n);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
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
}

impl Task for Lines {
    fn add(&self, n: u64) {
        let done = self.done.fetch_add(n, Ordering::Relaxed) + n;
        let periods = self.started.elapsed().as_secs() / LINE_EVERY.as_secs();
        if periods > self.printed.fetch_max(periods, Ordering::Relaxed) {
            let show = |n| if self.unit == Unit::Bytes { bytes(n) } else { count(n) };
            let mut line = format!("{}: {}", self.phase, show(done));
            if self.total > 0 {
                let _ = write!(line, " of {} ({:.0} %)", show(self.total), 100.0 * done as f64 / self.total as f64);
            }
            let _ = writeln!(io::stderr(), "{line}, {} s", self.started.elapsed().as_secs());
        }
    }
}

/// A table without frames; columns of numbers are aligned right.
pub(crate) fn table<const C: usize>(header: [&str; C], rows: impl IntoIterator<Item = [String; C]>) -> Table {
    let rows: Vec<_> = rows.into_iter().collect();
    let number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '–');
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table.add_rows(&rows);
    for (k, column) in table.column_iter_mut().enumerate() {
        if rows.iter().all(|row| number(&row[k])) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A score in per cent, or a dash where no label is known.
pub(crate) fn score(x: f64) -> String {
    if x.is_nan() { "–".into() } else { format!("{x:.2}") }
}

/// A count with thin groups of three: 1 234 567.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (k, c) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// Memory by purpose, as JSON.
pub(crate) fn usage(u: Usage) -> Value {
    Tag::ALL.into_iter().map(|tag| (tag.name().to_string(), u.of(tag).into())).collect::<serde_json::Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(count(1_234_567), "1 234 567");
        assert_eq!(count(42), "42");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(5 << 29), "2.5 GiB");
    }
}
