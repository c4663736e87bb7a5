//! What the user sees: progress and notes on stderr, the result on stdout.

mod log;
mod progress;
pub(crate) mod width;

use std::io::{self, IsTerminal, Write as _};
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use indicatif::MultiProgress;
use serde_json::Value;

use graphweft::Amount;
pub(crate) use progress::Live;

use log::Log;
use width::wrapped;

/// A size, for people.
pub(crate) fn bytes(n: u64) -> String {
    Amount::Bytes(n).to_string()
}

/// A count with groups of three digits.
pub(crate) fn count(n: u64) -> String {
    Amount::Count(n).to_string()
}

/// So many of something: 1 rank, 2 ranks.
pub(crate) fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// A time of seconds, in milliseconds where that is short.
pub(crate) fn ms(seconds: f64) -> String {
    Amount::Seconds(seconds).to_string()
}

/// How far a time may be off, as a share of it.
pub(crate) fn within(error: f64) -> String {
    Amount::Within(error).to_string()
}

/// What is said, and where: the same flags for every verb.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Print one line of JSON on stdout instead of a table
    #[arg(long, global = true)]
    json: bool,

    /// Say nothing but results and errors
    #[arg(long, short, global = true)]
    quiet: bool,

    /// Also write what goes to stderr to this file, with times; what it has is kept
    #[arg(long, global = true, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// The user's end of a verb.
#[derive(Clone)]
pub(crate) struct Ui {
    json: bool,
    terminal: bool,
    quiet: bool,
    log: Option<Log>,
    /// All bars that are shown, so that notes are written above them.
    bars: MultiProgress,
}

impl Ui {
    /// As asked for; `command` is what the log begins with.
    ///
    /// # Errors
    /// If the log cannot be opened; with the one that says so.
    pub(crate) fn new(output: &Output, command: &str) -> Result<Self, (Self, anyhow::Error)> {
        let &Output { json, quiet, .. } = output;
        let terminal = io::stderr().is_terminal();
        let mut ui = Self { json, terminal, quiet, log: None, bars: MultiProgress::new() };
        match output.log.as_deref().map(|path| Log::open(path, command)).transpose() {
            Ok(log) => ui.log = log,
            Err(e) => return Err((ui, e.into())),
        }
        Ok(ui)
    }

    /// Prints the verb's result: `json` as one line, or what `text` makes for people.
    pub(crate) fn result(&self, json: &Value, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{json}")?;
        } else {
            writeln!(out, "{}", wrapped(text().trim_end(), width::of_stdout()))?;
        }
        Ok(out.flush()?)
    }

    /// One line for people, on stderr.
    pub(crate) fn note(&self, line: &str) {
        if self.quiet { self.record(line) } else { self.say(line) }
    }

    /// What went wrong: always said.
    pub(crate) fn error(&self, text: &str) {
        self.say(text);
    }

    fn shows_bars(&self) -> bool {
        self.terminal && !self.quiet
    }

    /// A line for the log alone.
    fn record(&self, line: &str) {
        if let Some(log) = &self.log {
            log.add(line);
        }
    }

    /// A line for the log and for people.
    fn say(&self, line: &str) {
        self.record(line);
        let text = width::of_stderr().map_or_else(|| line.to_string(), |columns| wrapped(line, columns));
        // A user who closed stderr does not want notes.
        self.bars.suspend(|| drop(writeln!(io::stderr(), "{text}")));
    }
}

/// A table without frames; columns of numbers are aligned right. Where it is too wide, the last column is broken
/// between words.
pub(crate) fn table<const C: usize>(header: [&str; C], rows: impl IntoIterator<Item = [String; C]>) -> Table {
    table_of(&header, &rows.into_iter().map(Vec::from).collect::<Vec<_>>())
}

/// The same with any number of columns.
pub(crate) fn table_of(header: &[&str], rows: &[Vec<String>]) -> Table {
    let number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '–');
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table.add_rows(rows);
    for (k, column) in table.column_iter_mut().enumerate() {
        if rows.iter().all(|row| row.get(k).is_some_and(number)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let room = width::of_stdout();
    if table.lines().any(|line| line.trim_end().chars().count() > room) {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(room as u16);
        for column in table.column_iter_mut().take(header.len().saturating_sub(1)) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table
}

/// Parses the path of a picture, which is SVG whatever it is called.
pub(crate) fn svg() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.extension() {
        Some(ending) if ending.eq_ignore_ascii_case("svg") => Ok(path),
        _ => Err("pictures are SVG: name a file that ends in .svg"),
    })
}
