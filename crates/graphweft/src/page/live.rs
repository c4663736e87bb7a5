//! The page of a run that is still going, and what was remarked about it.
//!
//! What pages cost stays below a share of the run, from the first page on: the next one waits until so much time has
//! passed that it is paid for, with all before it.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use graphweft_report::{Growing, Renewals};
use graphweft_train::data::Data;
use serde_json::json;

use super::Page;
use crate::error::Result;
use crate::observe::{Begin, Epoch, Observer, Phase, Unit};

/// The page is not written more often than this, nor sooner after the run has begun.
const LEAST: Duration = Duration::from_secs(3);
/// Nor so often that pages take more than this share of the time: a 250th is 0.4 %.
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
    /// Nothing if nobody asked for a page.
    pages: Option<Mutex<Pages>>,
}

/// What pages have taken so far, and when the next one is due.
struct Pages {
    /// When the run began.
    began: Instant,
    count: u64,
    /// How long all took, and the last one.
    spent: Duration,
    last: Duration,
    due: Instant,
    /// When the last epoch was over, and the longest time between two.
    epoch: Instant,
    longest: Duration,
    before: Growing,
}

impl Pages {
    fn new() -> Self {
        let now = Instant::now();
        let (spent, last, longest) = Default::default();
        Self { began: now, count: 0, spent, last, due: now + LEAST, epoch: now, longest, before: Growing::default() }
    }

    /// How long after `now` the next page is due, if it takes as long as one that took `took`.
    fn wait(&self, now: Instant, took: Duration) -> Duration {
        let paid = self.began + (self.spent + took) * SHARE;
        LEAST.max(paid.saturating_duration_since(now))
    }

    /// What is said of renewals in a page that has been in the making for `so_far`, if there is another after it.
    fn said(&self, so_far: Duration) -> Renewals {
        // Packing and writing it takes about as long again as reading did.
        let took = self.last.max(2 * so_far);
        let next = self.wait(Instant::now(), 2 * took) + self.longest;
        Renewals { pages: self.count, spent: self.spent, run: self.began.elapsed(), next: Some(next) }
    }

    /// A page has been made since `start`.
    fn count(&mut self, start: Instant) {
        let now = Instant::now();
        self.last = now - start;
        self.spent += self.last;
        self.count += 1;
        self.due = now + self.wait(now, self.last);
    }
}

impl LivePage {
    /// Of the run in `folder`, beside whoever watches.
    pub(crate) fn new(folder: PathBuf, others: Arc<dyn Observer>) -> Self {
        Self { folder, others, notes: Mutex::default(), pages: None }
    }

    /// The same with a page.
    pub(crate) fn with_page(self) -> Self {
        Self { pages: Some(Mutex::new(Pages::new())), ..self }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("report.html")
    }

    fn pages(&self) -> Option<MutexGuard<'_, Pages>> {
        self.pages.as_ref().map(|pages| pages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The run has ended before its end: its page, if there is one, no longer says that it goes on.
    pub(crate) fn give_up(&self) {
        let Some(pages) = self.pages() else { return };
        let path = self.path();
        if path.exists() {
            let said = Renewals { next: None, ..pages.said(Duration::ZERO) };
            let page = Page::of_files(&self.folder, &pages.before);
            // Why the run has ended is the error that matters.
            drop(page.and_then(|page| page.over().renewed(&said).write(path)));
        }
    }

    /// The run is over: its last page, if it has any, with what the data say of it.
    pub(crate) fn finish(&self, data: &Data) -> Result<()> {
        let Some(mut pages) = self.pages() else { return Ok(()) };
        let start = Instant::now();
        let page = Page::of_ended(&self.folder, data, &pages.before)?;
        let said = Renewals { next: None, ..pages.said(Duration::ZERO) };
        page.renewed(&said).write(self.path())?;
        pages.count(start);
        Ok(())
    }

    /// Writes the page, and says when it is due again. One that cannot be written now may be later: training goes on.
    fn renew(&self, pages: &mut Pages) {
        let start = Instant::now();
        let read = Page::of_files(&self.folder, &pages.before);
        let written = read.and_then(|page| page.renewed(&pages.said(start.elapsed())).write(self.path()));
        if let Err(e) = written {
            self.others.note(&format!("the page was not written: {e}"));
        }
        pages.count(start);
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
        if let Some(mut pages) = self.pages() {
            let now = Instant::now();
            pages.longest = pages.longest.max(now - pages.epoch);
            if now >= pages.due {
                self.renew(&mut pages);
            }
            // What the page took is no time of an epoch.
            pages.epoch = Instant::now();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_paid_for_before_they_are_made() {
        let mut pages = Pages::new();
        let at = |ms: u64| pages.began + Duration::from_millis(ms);
        assert_eq!(pages.due, at(3000), "a run of less has one page, the last");
        // Quick ones come every three seconds.
        assert_eq!(pages.wait(at(3000), Duration::from_millis(2)), LEAST);
        // 20 ms have been spent; another 20 are 0.4 % of 10 s.
        pages.spent = Duration::from_millis(20);
        let wait = pages.wait(pages.began + Duration::from_secs(4), Duration::from_millis(20));
        assert_eq!(wait, Duration::from_secs(6));
    }

    #[test]
    fn a_page_says_when_the_next_one_comes_at_the_latest() {
        let mut pages = Pages::new();
        let start = Instant::now();
        pages.longest = Duration::from_secs(300);
        let said = pages.said(Duration::from_millis(40));
        pages.count(start);
        let due = pages.due.saturating_duration_since(Instant::now()) + pages.longest;
        assert!(said.next.unwrap() >= due, "{said:?} {due:?}");
        assert_eq!((said.pages, pages.count), (0, 1));
    }
}
