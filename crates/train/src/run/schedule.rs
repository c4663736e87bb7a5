//! How the learning rate changes from epoch to epoch.
//!
//! * constant: it does not;
//! * cosine: from lr down to min_lr along half a cosine;
//! * plateau: times a factor whenever validation has not become better for a while, as PyTorch's `ReduceLROnPlateau`
//!   with its relative threshold of 10⁻⁴.
//!
//! Each may begin with a linear warm-up.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::config::{ScheduleName, TrainConfig};
use crate::task::metrics::Better;

/// Better means better by this part.
const THRESHOLD: f64 = 1e-4;

/// What plateau remembers; part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plateau {
    scale: f64,
    best: Option<f64>,
    waited: u64,
}

/// A learning rate for each epoch.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    config: TrainConfig,
    plateau: Plateau,
}

impl Schedule {
    /// As configured, at the start.
    pub(crate) fn new(config: &TrainConfig) -> Self {
        Self::resume(config, Plateau { scale: 1.0, best: None, waited: 0 })
    }

    /// Goes on from what [`Schedule::state`] gave.
    pub(crate) fn resume(config: &TrainConfig, plateau: Plateau) -> Self {
        Self { config: config.clone(), plateau }
    }

    /// What must be kept to go on.
    pub(crate) fn state(&self) -> Plateau {
        self.plateau
    }

    /// The learning rate of an epoch, from 1.
    pub(crate) fn lr(&self, epoch: u64) -> f64 {
        let TrainConfig { lr, min_lr, warmup, epochs, .. } = self.config;
        if epoch <= warmup {
            return lr * epoch as f64 / warmup as f64;
        }
        match self.config.schedule {
            ScheduleName::Constant => lr,
            ScheduleName::Cosine => {
                let way = (epoch - warmup - 1) as f64 / epochs.saturating_sub(warmup).max(1) as f64;
                let way = way.min(1.0);
                min_lr + (lr - min_lr) * (1.0 + (PI * way).cos()) / 2.0
            }
            ScheduleName::Plateau => (lr * self.plateau.scale).max(min_lr.min(lr)),
        }
    }

    /// Hears a validation score; NaN, where there was none, is not better.
    pub(crate) fn observe(&mut self, valid: f64, better: Better) {
        let state = &mut self.plateau;
        let threshold = match better {
            Better::Higher => 1.0 + THRESHOLD,
            Better::Lower => 1.0 - THRESHOLD,
        };
        if !valid.is_nan() && state.best.is_none_or(|best| better.is_better(valid, best * threshold)) {
            (state.best, state.waited) = (Some(valid), 0);
            return;
        }
        state.waited += 1;
        if state.waited > self.config.plateau_patience {
            state.scale *= self.config.plateau_factor;
            state.waited = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(schedule: ScheduleName) -> TrainConfig {
        let plateau_patience = 2;
        TrainConfig { schedule, epochs: 10, lr: 0.4, min_lr: 0.1, warmup: 2, plateau_patience, ..Default::default() }
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }

    #[test]
    fn warm_up_then_constant() {
        let s = Schedule::new(&config(ScheduleName::Constant));
        for (epoch, lr) in [(1, 0.2), (2, 0.4), (3, 0.4), (10, 0.4)] {
            close(s.lr(epoch), lr);
        }
    }

    #[test]
    fn cosine_goes_from_the_top_to_the_bottom() {
        let s = Schedule::new(&config(ScheduleName::Cosine));
        // PyTorch's CosineAnnealingLR with T_max = 8 gives these at steps 0, 4 and 8.
        for (epoch, lr) in [(2, 0.4), (3, 0.4), (7, 0.25), (11, 0.1)] {
            close(s.lr(epoch), lr);
        }
        assert!((3..10).all(|e| s.lr(e) > s.lr(e + 1)));
    }

    #[test]
    fn plateau_waits_then_halves_and_can_be_resumed() {
        let mut s = Schedule::new(&config(ScheduleName::Plateau));
        // Not better by enough: 50.004 is within 10⁻⁴ of 50.
        for valid in [50.0, 50.004, 49.0] {
            s.observe(valid, Better::Higher);
            close(s.lr(5), 0.4);
        }
        let mut s = Schedule::resume(&config(ScheduleName::Plateau), s.state());
        s.observe(50.0, Better::Higher);
        close(s.lr(6), 0.2);
        for _ in 0..12 {
            s.observe(0.0, Better::Higher);
        }
        close(s.lr(6), 0.1);
    }
}
