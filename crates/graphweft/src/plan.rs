//! What every way to spread a run would take, and which is best.

mod bars;
mod calibrate;
mod scaling;
mod search;

use std::path::Path;

use graphweft_model::Remat;
use graphweft_plan::search as found;
use graphweft_plan::{Candidate as Way, Profile};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::memory::Memory;

pub use calibrate::Calibration;
/// What [`Run::simulate`](crate::Run::simulate) takes.
///
/// ```
/// let graph: graphweft::Description = "nodes=2.4e6,edges=1.2e8,features=100,classes=47".parse()?;
/// assert_eq!((graph.nodes, graph.edges), (2.4e6, 1.2e8));
/// # Ok::<(), graphweft::Error>(())
/// ```
pub use graphweft_plan::simulate::Description;

/// What every way to spread a run over its ranks would take, and which one is taken.
///
/// ```
/// use graphweft::Run;
/// let plan = Run::new("sbm:400:4:8:f=8").ranks(2).set("parallel.profile", "16-cpu-10g").plan()?;
/// let choice = plan.chosen();
/// assert!(plan.candidates.iter().any(|candidate| candidate.strategy == choice.strategy));
/// assert!(choice.prediction.unwrap().seconds > 0.0);
/// println!("{}: {}", choice.name, plan.why);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// What is planned: the model, the graph and its size.
    pub title: String,
    /// All candidates: first those that fit, the fastest first; then those that do not. One rank is among them to
    /// compare with.
    pub candidates: Vec<Candidate>,
    /// Why the choice was made, in one sentence.
    pub why: String,
    /// Columns of the features that the plan is made with; `None` for a graph that is only described.
    pub features: Option<usize>,
    /// The same for classes.
    pub classes: Option<usize>,
    /// Where these two numbers come from; empty for a graph that is only described.
    pub origin: &'static str,
    /// What the graph is called.
    pub graph: String,
    /// How many ranks there will be.
    pub ranks: usize,
    /// Bytes that a rank may use; [`u64::MAX`] where that is not known.
    pub memory: u64,
    /// The machine, in words.
    pub machine: String,
    /// How far times may be off, as a share of them; `None` where the times of the machine are not known.
    pub error: Option<f64>,
    /// Epochs of a run.
    pub epochs: u64,
    /// Runs, one for each seed.
    pub seeds: u64,
    /// For a graph that is only described, what was assumed about it.
    pub assumed: Option<String>,
    /// The same where they are not known, as for pictures.
    profile_error: f64,
    scaling: Option<scaling::Curves>,
    chosen: Candidate,
    one_rank: Option<Prediction>,
    json: Value,
}

/// A way to spread the work, and what is known of it.
///
/// ```
/// let plan = graphweft::Run::new("sbm:400:4:8:f=8").ranks(2).set("parallel.profile", "16-cpu-10g").plan()?;
/// for candidate in plan.candidates.iter().filter(|candidate| !candidate.feasible) {
///     println!("{}: {}", candidate.name, candidate.reason.as_deref().unwrap_or_default());
/// }
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    /// All of it in words: strategy, parts and what is computed again.
    pub name: String,
    /// What moves between ranks.
    pub strategy: String,
    /// How the graph is divided; `None` for one rank.
    pub partition: Option<String>,
    /// What is computed again in backward instead of being kept: `none`, `attention`, `layer` or `both`.
    pub remat: String,
    /// How many ranks it takes.
    pub ranks: usize,
    /// What it would take, if it was rehearsed.
    pub prediction: Option<Prediction>,
    /// Whether it can be chosen.
    pub feasible: bool,
    /// Why not.
    pub reason: Option<String>,
    again: Remat,
}

/// What a candidate is predicted to take for one epoch.
///
/// ```
/// let plan = graphweft::Run::new("sbm:400:4:8:f=8").ranks(2).set("parallel.profile", "16-cpu-10g").plan()?;
/// let p = plan.chosen().prediction.unwrap();
/// assert!((p.compute + p.imbalance + p.exposed - p.seconds).abs() < 1e-9);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// Seconds until the last rank is done: the sum of the three below.
    pub seconds: f64,
    /// The mean rank's kernels.
    pub compute: f64,
    /// What the busiest rank computes more than that.
    pub imbalance: f64,
    /// Waiting for messages.
    pub exposed: f64,
    /// Bytes sent by all ranks.
    pub sent: u64,
    /// Memory of the rank that needs most.
    pub peak: Memory,
}

impl From<found::Prediction> for Prediction {
    fn from(p: found::Prediction) -> Self {
        let found::Prediction { seconds, compute, imbalance, exposed, sent, peak } = p;
        Self { seconds, compute, imbalance, exposed, sent, peak: peak.into() }
    }
}

impl Candidate {
    fn new(way: &Way, ranks: usize) -> Self {
        let remat = serde_json::json!(way.remat);
        Self {
            name: way.to_string(),
            strategy: way.strategy.to_string(),
            partition: way.partition.map(|method| method.to_string()),
            remat: remat.as_str().unwrap_or_default().into(),
            ranks,
            prediction: None,
            feasible: true,
            reason: None,
            again: way.remat,
        }
    }

    fn of(a: &found::Assessed, ranks: usize) -> Self {
        let (prediction, reason) = (a.prediction.map(Into::into), a.reason.clone());
        Self { prediction, feasible: a.feasible, reason, ..Self::new(&a.candidate, ranks) }
    }

    /// What is computed again in backward, in a word; `None` where everything is kept.
    pub fn computes_again(&self) -> Option<&'static str> {
        match self.again {
            Remat::None => None,
            Remat::Attention => Some("attention"),
            Remat::Layer => Some("layers"),
            Remat::Both => Some("both"),
        }
    }
}

impl Plan {
    /// The candidate that is taken: the fastest that fits, and of those that are as fast the one that needs least
    /// memory.
    pub fn chosen(&self) -> &Candidate {
        &self.chosen
    }

    /// What one rank would take, where there are several.
    pub fn one_rank(&self) -> Option<Prediction> {
        self.one_rank
    }

    /// Seconds of all epochs of all seeds.
    pub fn run_seconds(&self) -> f64 {
        let epoch = self.chosen.prediction.map_or(0.0, |p| p.seconds);
        epoch * self.epochs as f64 * self.seeds as f64
    }

    /// As `graphweft plan --json` prints it.
    pub fn to_json(&self) -> Value {
        self.json.clone()
    }

    /// Draws all candidates as SVG: what their time is spent on, and what their memory is for.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn plot(&self, path: impl AsRef<Path>) -> Result<()> {
        bars::write(path.as_ref(), self)
    }

    /// Draws the time of an epoch by the number of ranks as SVG.
    ///
    /// # Errors
    /// If that was not [asked for](crate::Run::simulate_scaling), or if the file cannot be written.
    pub fn plot_scaling(&self, path: impl AsRef<Path>) -> Result<()> {
        let missing = || Error::request("the plan has no curves over ranks", "take Run::simulate_scaling");
        self.scaling.as_ref().ok_or_else(missing)?.write(path.as_ref())
    }
}

/// How far times may be off, where they are known.
fn error_of(profile: &Profile) -> Option<f64> {
    (!profile.kernels.is_empty()).then(|| profile.error())
}
