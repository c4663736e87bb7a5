//! What the user sees of a run while it lasts.

use std::sync::Mutex;

use graphweft::{Begin, Epoch, Observer, Phase, Unit};

use crate::ui::{Live, Ui};

pub(super) struct Watch {
    ui: Ui,
    /// Notes: what holds for every seed is said once.
    said: Mutex<Vec<String>>,
    live: Mutex<Option<Live>>,
}

impl Watch {
    pub(super) fn new(ui: Ui) -> Self {
        Self { ui, said: Mutex::default(), live: Mutex::new(None) }
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

impl Observer for Watch {
    fn phase(&self, name: &str, total: u64, unit: Unit) -> Box<dyn Phase> {
        self.ui.phase(name, total, unit)
    }

    fn begin(&self, start: &Begin) {
        let Begin { seed, from, epochs, seeds, .. } = *start;
        let name = if seeds > 1 { format!("seed {seed}:") } else { "epoch".into() };
        self.with(|live| *live = Some(self.ui.live(&name, &format!("seed {seed}, epoch"), from, epochs)));
    }

    fn epoch(&self, epoch: &Epoch) {
        // Errors are small numbers, of which one digit says nothing.
        let short = |x: f64| if x.abs() < 10.0 { format!("{x:.3}") } else { format!("{x:.1}") };
        let mut text = format!("loss {:.4}", epoch.loss);
        if let Some(scores) = &epoch.scores {
            text.push_str(&format!("  valid {}", short(scores.valid)));
        }
        if let Some(best) = &epoch.best {
            let test = if best.test.is_nan() { String::new() } else { format!(", test {}", short(best.test)) };
            text.push_str(&format!("  best {}{test}", short(best.valid)));
        }
        self.with(|live| {
            if let Some(live) = live {
                live.at(epoch.number, &text);
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
