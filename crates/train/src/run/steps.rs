//! Steps of training one by one, for a loop of somebody's own: one rank that has every row.

use graphweft_model::Mode;
use graphweft_tensor::{DType, DeviceName, Tag, Tape, Var};

use crate::config::Config;
use crate::data::Data;
use crate::epochs::learner::Learner;
use crate::error::{Error, Result};
use crate::planning::plan::Plan;
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::Scores;
use crate::run::session::resolve;
use crate::task::Supervision;
use crate::task::metrics::Metric;

/// A model with its optimizer and its data on one device.
pub struct Steps {
    rank: Rank,
    shard: Shard,
    supervision: Supervision,
    learner: Learner,
    metric: &'static Metric,
}

/// A forward pass that can be walked back.
pub struct Pass {
    tape: Tape,
    outputs: Var,
}

impl Pass {
    /// What the model gives for every node, row by row.
    pub fn outputs(&self) -> Result<Vec<f32>> {
        Ok(self.tape.device().convert("outputs", self.outputs.value(), DType::F32)?.to_vec()?)
    }

    /// How many numbers it gives for each.
    pub fn columns(&self) -> usize {
        self.outputs.value().cols()
    }
}

impl Steps {
    /// What a run with these settings trains, on the device called `place`.
    pub fn new(config: Config, data: &Data, place: DeviceName) -> Result<Self> {
        let config = resolve(config, data)?;
        let device = place.open(config.compute.precision)?;
        let rank = Rank::alone(&device);
        let graph = data.graph_for(&config.model, config.run.seed)?;
        let shard = Shard::new(&rank, data, &graph, &Plan::local(config.compute.remat), &config)?;
        let split = data.split(config.data.split.as_deref().unwrap_or_default(), config.run.seed)?;
        let supervision = Supervision::new(&shard, data, &split, &config.train)?;
        let learner = Learner::new(&rank, shard.shape, &config)?;
        let metric = data.task.metric(config.train.metric, data.classes)?;
        Ok(Self { rank, shard, supervision, learner, metric })
    }

    /// The outputs of all nodes, with dropout as in this epoch.
    pub fn forward(&self, epoch: u64) -> Result<Pass> {
        let mut tape = Tape::new(self.rank.device());
        let context = self.learner.context_of(&self.shard, Mode::Train, epoch);
        let outputs = self.learner.forward(&mut tape, &context)?;
        Ok(Pass { tape, outputs })
    }

    /// Adds up the gradients of the loss of the task, on the nodes that are learned from, and gives the loss.
    pub fn backward(&mut self, pass: Pass) -> Result<f64> {
        let Pass { mut tape, outputs } = pass;
        let loss = self.supervision.loss(&mut tape, &outputs)?;
        drop(outputs);
        let value = self.rank.device().convert("loss", loss.value(), DType::F64)?.to_vec::<f64>()?[0];
        tape.start_from(&loss);
        drop(loss);
        tape.backward(Vec::new(), &[], |_| Ok(()))?;
        Ok(value)
    }

    /// The same for a loss of somebody's own, by its gradients with respect to the outputs.
    ///
    /// # Errors
    /// If there is not a gradient for every output.
    pub fn backward_with(&mut self, pass: Pass, gradients: &[f32]) -> Result<()> {
        let Pass { tape, outputs } = pass;
        let (rows, cols) = (outputs.value().rows(), outputs.value().cols());
        if gradients.len() != rows * cols {
            let problem = format!("{} gradients are not {rows} rows of {cols}", gradients.len());
            return Err(Error::setting("gradients", problem, "give one for every output"));
        }
        let device = self.rank.device();
        let given = device.upload(rows, cols, gradients, Tag::Activations)?;
        let given = device.convert("gradients", &given, outputs.value().dtype())?;
        tape.backward(vec![(outputs, given)], &[], |_| Ok(()))?;
        Ok(())
    }

    /// The length of the gradients that were added up.
    ///
    /// # Errors
    /// If one is not finite; the message names the parameter.
    pub fn gradient_norm(&self) -> Result<f64> {
        Ok(self.learner.gradient_norm()?)
    }

    /// Moves the parameters by the gradients that were added up, clipped as `train.clip` says, and forgets these.
    ///
    /// # Errors
    /// If a gradient is not finite.
    pub fn step(&mut self, lr: f64) -> Result<()> {
        let norm = self.gradient_norm()?;
        self.learner.descend(lr, norm)
    }

    /// Scores on the parts of the split, without dropout.
    pub fn evaluate(&self) -> Result<Scores> {
        self.learner.evaluate(&self.shard, &self.supervision, self.metric, 0)
    }

    /// What is scored.
    pub fn metric(&self) -> &'static Metric {
        self.metric
    }

    /// Numbers that are trained.
    pub fn size(&self) -> usize {
        self.learner.size()
    }
}
