//! What the user sees of a run while it lasts.

use std::sync::Mutex;

use graphweft_graph::progress::{Progress, Task, Unit};
use graphweft_train::checkpoint::Scores;
use graphweft_train::run_dir::Line;
use graphweft_train::trainer::Observer;

use crate::ui::{Live, Ui};

pub(super) struct Watch {
    ui: Ui,
    /// How many there are.
    seeds: u64,
    /// Notes: what holds for every seed is said once.
    said: Mutex<Vec<String>>,
    live: Mutex<Option<Live>>,
}

impl Watch {
    pub(super) fn new(ui: Ui, seeds: u64) -> Self {
        Self { ui, seeds, said: Mutex::default(), live: Mutex::new(None) }
    }

    /// Takes the display away.
    pub(super) fn end(&self) {
        self.with(|live| *live = None);
    }

    fn with(&self, f: impl FnOnce(&mut Option<Live>)) {
        // A display that panicked is no reason to stop training.
        f(&mut self.live.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

impl Progress for Watch {
    fn start(&self, phase: &str, total: u64, unit: Unit) -> Box<dyn Task> {
        self.ui.start(phase, total, unit)
    }
}

impl Observer for Watch {
    fn begin(&self, seed: u64, from: u64, epochs: u64) {
        let name = if self.seeds > 1 { format!("seed {seed}:") } else { "epoch".into() };
        self.with(|live| *live = Some(self.ui.live(&name, &format!("seed {seed}, epoch"), from, epochs)));
    }

    fn epoch(&self, line: &Line, best: Option<&Scores>) {
        let mut text = format!("loss {:.4}", line.loss);
        if let Some(scores) = &line.scores {
            text.push_str(&format!("  valid {:.1}", scores.valid));
        }
        if let Some(best) = best {
            let test = if best.test.is_nan() { String::new() } else { format!(", test {:.1}", best.test) };
            text.push_str(&format!("  best {:.1}{test}", best.valid));
        }
        self.with(|live| {
            if let Some(live) = live {
                live.at(line.epoch, &text);
            }
        });
    }

    fn note(&self, line: &str) {
        let mut said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !said.iter().any(|before| before == line) {
            said.push(line.to_string());
            self.ui.note(line);
        }
    }
}
