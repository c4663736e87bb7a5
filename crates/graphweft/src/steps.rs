//! A training loop of one's own.

use graphweft_train::run;

use crate::error::Result;
use crate::input;
use crate::observe::Scores;
use crate::report::Metric;
use crate::run::Run;

/// A model with its optimizer and its data on one device, for a training loop of one's own: forward, backward and step
/// are called by hand. It stays on the thread that made it.
///
/// ```
/// use graphweft::Run;
/// let mut steps = Run::new("sbm:60:3:4:f=8").model("gcn").set("train.optimizer", "adam").steps()?;
/// let mut losses = Vec::new();
/// for epoch in 1..=20 {
///     let pass = steps.forward(epoch)?;
///     losses.push(steps.backward(pass)?);
///     steps.step(0.05)?;
/// }
/// assert!(losses[19] < losses[0]);
/// println!("{}", steps.metric().show(steps.evaluate()?.test));
/// # Ok::<(), graphweft::Error>(())
/// ```
pub struct Steps(run::Steps);

/// A forward pass that can be walked back.
///
/// ```
/// let mut steps = graphweft::Run::new("sbm:60:3:4:f=8").model("mlp").steps()?;
/// let pass = steps.forward(1)?;
/// // A loss of one's own: the mean of the squares of all outputs.
/// let outputs = pass.outputs()?;
/// let count = outputs.len() as f32;
/// steps.backward_with(pass, &outputs.iter().map(|x| 2.0 * x / count).collect::<Vec<_>>())?;
/// steps.step(0.1)?;
/// # Ok::<(), graphweft::Error>(())
/// ```
pub struct Pass(run::Pass);

impl Pass {
    /// What the model gives for every node, row by row.
    ///
    /// # Errors
    /// If the device fails.
    pub fn outputs(&self) -> Result<Vec<f32>> {
        Ok(self.0.outputs()?)
    }

    /// How many numbers it gives for each.
    pub fn columns(&self) -> usize {
        self.0.columns()
    }
}

impl Run {
    /// What the run would train, on one device, for a loop of one's own. Nothing is written.
    ///
    /// # Errors
    /// As [`train`](Run::train), before the first epoch.
    pub fn steps(&self) -> Result<Steps> {
        let (config, watched) = (self.finished()?, self.watched());
        let data = input::open(self.memory.as_ref(), &config, &watched)?;
        Ok(Steps(run::Steps::new(config, &data, self.device.place(&watched))?))
    }
}

impl Steps {
    /// The outputs of all nodes, with dropout as in this epoch.
    ///
    /// # Errors
    /// If memory is too small, or the device fails.
    pub fn forward(&self, epoch: u64) -> Result<Pass> {
        Ok(Pass(self.0.forward(epoch)?))
    }

    /// Adds up the gradients of the loss of the task, on the nodes that are learned from, and gives the loss.
    ///
    /// # Errors
    /// As [`Steps::forward`].
    pub fn backward(&mut self, pass: Pass) -> Result<f64> {
        Ok(self.0.backward(pass.0)?)
    }

    /// The same for a loss of one's own, by its gradients with respect to the outputs.
    ///
    /// # Errors
    /// If there is not a gradient for every output; as [`Steps::forward`].
    pub fn backward_with(&mut self, pass: Pass, gradients: &[f32]) -> Result<()> {
        Ok(self.0.backward_with(pass.0, gradients)?)
    }

    /// The length of the gradients that were added up.
    ///
    /// # Errors
    /// If one is not finite; the message names the parameter.
    pub fn gradient_norm(&self) -> Result<f64> {
        Ok(self.0.gradient_norm()?)
    }

    /// Moves the parameters by the gradients that were added up, clipped as `train.clip` says, and forgets these.
    ///
    /// # Errors
    /// If a gradient is not finite.
    pub fn step(&mut self, lr: f64) -> Result<()> {
        Ok(self.0.step(lr)?)
    }

    /// Scores on the parts of the split, without dropout.
    ///
    /// # Errors
    /// As [`Steps::forward`].
    pub fn evaluate(&self) -> Result<Scores> {
        Ok((&self.0.evaluate()?).into())
    }

    /// What is scored.
    pub fn metric(&self) -> Metric {
        Metric(self.0.metric())
    }

    /// Numbers that are trained.
    pub fn size(&self) -> usize {
        self.0.size()
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Steps({} numbers to train)", self.size())
    }
}
