//! Watching long work: epochs, phases and lines for people.

use std::sync::Arc;

use graphweft_base::progress;
use graphweft_train::run as checkpoint;
use graphweft_train::run as trainer;
use graphweft_train::run::Line;

/// What [`Observer::phase`] gives.
///
/// ```
/// use graphweft::{Observer, Phase, Unit};
///
/// struct Bar(&'static str);
///
/// impl Phase for Bar {
///     fn add(&self, n: u64) {
///         println!("{n} more {}", self.0);
///     }
/// }
///
/// struct Bars;
///
/// impl Observer for Bars {
///     fn phase(&self, _name: &str, _total: u64, unit: Unit) -> Box<dyn Phase> {
///         Box::new(Bar(if unit == Unit::Bytes { "bytes" } else { "items" }))
///     }
/// }
///
/// graphweft::Info::watched_by("rmat:6:4", std::sync::Arc::new(Bars))?;
/// # Ok::<(), graphweft::Error>(())
/// ```
pub use graphweft_base::progress::Phase;
/// What the numbers of a [`Phase`] count.
///
/// ```
/// use graphweft::Unit;
/// let shown = |n: u64, unit| if unit == Unit::Bytes { format!("{n} bytes") } else { n.to_string() };
/// assert_eq!(shown(3, Unit::Items), "3");
/// ```
pub use graphweft_base::progress::Unit;

/// Who watches a run, or other work that lasts. Every method has a default that does nothing; all may be called from
/// any thread.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use graphweft::{Epoch, Observer, Run};
///
/// #[derive(Default)]
/// struct Losses(Mutex<Vec<f64>>);
///
/// impl Observer for Losses {
///     fn epoch(&self, epoch: &Epoch) {
///         self.0.lock().unwrap().push(epoch.loss);
///     }
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// let losses = Arc::new(Losses::default());
/// Run::new("sbm:60:3:4:f=8").epochs(3).output(dir.path().join("run")).observer(losses.clone()).train()?;
/// assert_eq!(losses.0.lock().unwrap().len(), 3);
/// # Ok::<(), graphweft::Error>(())
/// ```
pub trait Observer: Send + Sync {
    /// The run of a seed begins, or goes on.
    fn begin(&self, begin: &Begin) {
        let _ = begin;
    }

    /// An epoch is over.
    fn epoch(&self, epoch: &Epoch) {
        let _ = epoch;
    }

    /// One line for people, such as why a setting is not used.
    fn note(&self, line: &str) {
        let _ = line;
    }

    /// Work that lasts begins, such as reading a file; it ends when what is returned is dropped. `total` is 0 where it
    /// is not known.
    fn phase(&self, name: &str, total: u64, unit: Unit) -> Box<dyn Phase> {
        let _ = (name, total, unit);
        Box::new(progress::Silent)
    }
}

/// Nobody watches.
impl Observer for () {}

/// The run of a seed that begins, or goes on.
///
/// ```
/// use graphweft::{Begin, Observer};
/// struct Started;
/// impl Observer for Started {
///     fn begin(&self, begin: &Begin) {
///         println!("seed {}: epochs {} to {}", begin.seed, begin.from + 1, begin.epochs);
///     }
/// }
/// # let dir = tempfile::tempdir().unwrap();
/// let run = graphweft::Run::new("sbm:60:3:4:f=8").epochs(2).output(dir.path().join("run"));
/// run.observer(std::sync::Arc::new(Started)).train()?;
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Begin {
    /// The seed.
    pub seed: u64,
    /// How many seeds there are.
    pub seeds: u64,
    /// Epochs that were done before.
    pub from: u64,
    /// Epochs in all.
    pub epochs: u64,
}

/// An epoch that is over.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let run = graphweft::Run::new("sbm:60:3:4:f=8").epochs(2).output(dir.path().join("run"));
/// run.on_epoch(|epoch| assert!(epoch.number <= 2 && epoch.loss.is_finite())).train()?;
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Epoch {
    /// Its number, from 1.
    pub number: u64,
    /// Scores, if this epoch was evaluated.
    pub scores: Option<Scores>,
    /// The best so far by validation.
    pub best: Option<Scores>,
    /// The loss on the training nodes.
    pub loss: f64,
    /// The learning rate.
    pub lr: f64,
    /// Length of the gradient, before it was clipped.
    pub gradient_norm: f64,
}

/// Scores of a model, in per cent where the metric is one; NaN where no label is known.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let report = graphweft::Run::new("sbm:60:3:4:f=8").epochs(2).output(dir.path().join("run")).train()?;
/// assert!(report.seeds[0].best.valid <= 100.0);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Scores {
    /// The epoch that they are of, from 1.
    pub epoch: u64,
    /// On the nodes that are learned from.
    pub train: f64,
    /// On the nodes that the best epoch is chosen by.
    pub valid: f64,
    /// On the nodes that are reported on.
    pub test: f64,
    /// The loss on the nodes of `valid`.
    pub valid_loss: f64,
}

impl From<&checkpoint::Scores> for Scores {
    fn from(s: &checkpoint::Scores) -> Self {
        Self { epoch: s.epoch, train: s.train, valid: s.valid, test: s.test, valid_loss: s.valid_loss }
    }
}

/// An observer as the crates below know it. In a process that only follows another one it hears nothing.
#[derive(Clone)]
pub(crate) struct Watched {
    observer: Option<Arc<dyn Observer>>,
    /// How many seeds there are.
    seeds: u64,
}

impl Watched {
    pub(crate) fn by(observer: &Arc<dyn Observer>) -> Self {
        Self::of(Arc::clone(observer))
    }

    pub(crate) fn of(observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), seeds: 1 }
    }

    /// The same for a run of so many seeds.
    pub(crate) fn of_seeds(self, seeds: u64) -> Self {
        Self { seeds, ..self }
    }

    /// The same in a process that leads, or follows.
    pub(crate) fn of_world(&self, world: &graphweft_train::ranks::World) -> Self {
        Self { observer: self.observer.clone().filter(|_| world.leads()), seeds: self.seeds }
    }

    /// The same, heard by what `others` makes of who watches.
    pub(crate) fn through(self, others: impl FnOnce(Arc<dyn Observer>) -> Arc<dyn Observer>) -> Self {
        Self { observer: self.observer.map(others), ..self }
    }

    pub(crate) fn note(&self, line: &str) {
        if let Some(observer) = &self.observer {
            observer.note(line);
        }
    }
}

impl progress::Progress for Watched {
    fn start(&self, phase: &str, total: u64, unit: Unit) -> Box<dyn Phase> {
        match &self.observer {
            Some(observer) => observer.phase(phase, total, unit),
            None => Box::new(progress::Silent),
        }
    }
}

impl trainer::Observer for Watched {
    fn begin(&self, seed: u64, from: u64, epochs: u64) {
        if let Some(observer) = &self.observer {
            observer.begin(&Begin { seed, seeds: self.seeds, from, epochs });
        }
    }

    fn epoch(&self, line: &Line, best: Option<&checkpoint::Scores>) {
        let Some(observer) = &self.observer else { return };
        let scores = line.scores.as_ref().map(|s| Scores {
            epoch: line.epoch,
            train: s.train,
            valid: s.valid,
            test: s.test,
            valid_loss: s.valid_loss,
        });
        let (number, best) = (line.epoch, best.map(Scores::from));
        let (loss, lr, gradient_norm) = (line.loss, line.lr, line.gradient_norm);
        observer.epoch(&Epoch { number, loss, lr, gradient_norm, scores, best });
    }

    fn note(&self, line: &str) {
        self.note(line);
    }
}

/// A closure that hears of epochs, beside another observer.
pub(crate) struct EachEpoch<F> {
    pub(crate) call: F,
    pub(crate) others: Arc<dyn Observer>,
}

impl<F: Fn(&Epoch) + Send + Sync> Observer for EachEpoch<F> {
    fn begin(&self, begin: &Begin) {
        self.others.begin(begin);
    }

    fn epoch(&self, epoch: &Epoch) {
        (self.call)(epoch);
        self.others.epoch(epoch);
    }

    fn note(&self, line: &str) {
        self.others.note(line);
    }

    fn phase(&self, name: &str, total: u64, unit: Unit) -> Box<dyn Phase> {
        self.others.phase(name, total, unit)
    }
}
