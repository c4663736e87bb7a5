//! The page of a run that is still going, and what was remarked about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use super::Page;
use crate::observe::{Begin, Epoch, Observer, Phase, Unit};

/// The page is not written more often than this.
const LEAST: Duration = Duration::from_secs(3);
/// Nor so often that it takes more than this share of the time: a 250th is 0.4 %.
const SHARE: u32 = 250;

/// Remarks so far.
#[derive(Default)]
struct Notes {
    all: Vec<String>,
    /// Whether the run has begun to write: a folder in which a run is refused stays as it was.
    begun: bool,
}

/// Keeps remarks in `notes.jsonl` and, if that was asked for, renews `report.html` while a run goes on.
pub(crate) struct LivePage {
    folder: PathBuf,
    others: Arc<dyn Observer>,
    notes: Mutex<Notes>,
    /// When the page is due again; nothing if nobody asked for it.
    due: Option<Mutex<Instant>>,
}

impl LivePage {
    /// Of the run in `folder`, beside whoever watches.
    pub(crate) fn new(folder: PathBuf, others: Arc<dyn Observer>) -> Self {
        Self { folder, others, notes: Mutex::default(), due: None }
    }

    /// The same with a page.
    pub(crate) fn with_page(self) -> Self {
        Self { due: Some(Mutex::new(Instant::now())), ..self }
    }

    /// The run in `folder` has ended before its end: its page, if there is one, no longer says that it goes on.
    pub(crate) fn give_up(folder: &Path) {
        let path = folder.join("report.html");
        if path.exists() {
            // Why the run has ended is the error that matters.
            drop(Page::of_files(folder).and_then(|page| page.write(path)));
        }
    }

    /// Writes the page, and says when it is due again. One that cannot be written now may be later: training goes on.
    fn renew(&self, due: &mut Instant) {
        let start = Instant::now();
        let written = Page::of_files(&self.folder).and_then(|page| page.write(self.folder.join("report.html")));
        if let Err(e) = written {
            self.others.note(&format!("the page was not written: {e}"));
        }
        *due = Instant::now() + LEAST.max(start.elapsed() * SHARE);
    }

    /// Writes all remarks, once there is a run that they are about.
    fn keep(&self, notes: &Notes) {
        let text: String = notes.all.iter().map(|note| json!({"text": note}).to_string() + "\n").collect();
        if notes.begun {
            // What is remarked is also said; that it could not be kept is no reason to stop training.
            drop(fs::write(self.folder.join("notes.jsonl"), text));
        }
    }
}

impl Observer for LivePage {
    fn begin(&self, begin: &Begin) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.begun = true;
        self.keep(&notes);
        drop(notes);
        self.others.begin(begin);
    }

    fn epoch(&self, epoch: &Epoch) {
        self.others.epoch(epoch);
        if let Some(due) = &self.due {
            let mut due = due.lock().unwrap_or_else(PoisonError::into_inner);
            if Instant::now() >= *due {
                self.renew(&mut due);
            }
        }
    }

    fn note(&self, line: &str) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.all.iter().any(|before| before == line) {
            notes.all.push(line.to_string());
            self.keep(&notes);
        }
        self.others.note(line);
    }

    fn phase(&self, name: &str, total: u64, unit: Unit) -> Box<dyn Phase> {
        self.others.phase(name, total, unit)
    }
}
