//! `[train]`: how parameters are found.

use graphweft_model::{Network, Rates};
use graphweft_tensor::optim::Rule;
use serde::{Deserialize, Serialize};

use super::{Problem, at_least_one, not_negative, part_of_one, positive};
use crate::task::metrics::MetricName;

/// Graphs in a batch.
const BATCH: u64 = 32;

/// `[train]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Passes over the graph; each is one update. Of many graphs, and of links, each is one for every batch.
    pub epochs: u64,
    /// Of whole graphs, how many there are in a batch; of links, how many each update is made by. Unset: 32 graphs, and
    /// all links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// How parameters follow their gradients.
    pub optimizer: OptimizerName,
    /// Learning rate.
    pub lr: f64,
    /// How the learning rate changes.
    pub schedule: ScheduleName,
    /// Epochs over which the learning rate rises from 0.
    pub warmup: u64,
    /// What cosine and plateau do not go below.
    pub min_lr: f64,
    /// plateau: what the learning rate is multiplied by.
    pub plateau_factor: f64,
    /// plateau: epochs without a better validation score before that.
    pub plateau_patience: u64,
    /// Weight decay: with adamw on parameters, otherwise as part of the gradient.
    pub weight_decay: f64,
    /// Which layers it acts on: all, or the first that has parameters.
    pub decayed_layers: DecayedLayers,
    /// sgd: momentum.
    pub momentum: f64,
    /// Gradients longer than this are shortened to it; 0: never.
    pub clip: f64,
    /// The part of the target that is spread over all classes.
    pub label_smoothing: f64,
    /// Of links: pairs that stand against each, drawn anew in every epoch.
    pub negatives: u64,
    /// The share of elements of rows between and inside layers that is dropped.
    pub dropout: f64,
    /// The share of elements of the features that is dropped.
    pub input_dropout: f64,
    /// The share of attention weights that is dropped.
    pub attention_dropout: f64,
    /// Stop after this many epochs without a better validation score; 0: never.
    pub patience: u64,
    /// What is scored. Unset: accuracy for classes, ROC-AUC for many labels and for links, MAE for numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<MetricName>,
    /// Epochs between evaluations.
    pub evaluate_every: u64,
}

/// More pairs against a link are not drawn apart.
const MOST_NEGATIVES: u64 = 255;

/// The optimizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum OptimizerName {
    Adam,
    AdamW,
    Sgd,
}

/// What weight decay acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DecayedLayers {
    All,
    First,
}

/// The schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ScheduleName {
    Constant,
    Cosine,
    Plateau,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            epochs: 200,
            batch: None,
            optimizer: OptimizerName::AdamW,
            lr: 1e-3,
            schedule: ScheduleName::Constant,
            warmup: 0,
            min_lr: 0.0,
            plateau_factor: 0.5,
            plateau_patience: 10,
            weight_decay: 0.0,
            decayed_layers: DecayedLayers::All,
            momentum: 0.0,
            clip: 0.0,
            label_smoothing: 0.0,
            negatives: 1,
            dropout: 0.0,
            input_dropout: 0.0,
            attention_dropout: 0.0,
            patience: 0,
            metric: None,
            evaluate_every: 1,
        }
    }
}

impl TrainConfig {
    /// The optimizer's rule.
    pub fn rule(&self) -> Rule {
        let decay = self.weight_decay;
        match self.optimizer {
            OptimizerName::Adam => Rule::adam(decay),
            OptimizerName::AdamW => Rule::adam_w(decay),
            OptimizerName::Sgd => Rule::Sgd { momentum: self.momentum, weight_decay: decay },
        }
    }

    /// How many of `graphs` graphs there are in a batch.
    pub(crate) fn batch_of(&self, graphs: usize) -> usize {
        usize::try_from(self.batch.unwrap_or(BATCH)).unwrap_or(usize::MAX).min(graphs.max(1))
    }

    /// Takes weight decay away from the parameters on which it does not act.
    pub(crate) fn choose_decayed(&self, network: &Network) {
        let first = match self.decayed_layers {
            DecayedLayers::All => return,
            DecayedLayers::First => network.layers().iter().position(|layer| !layer.parameters().is_empty()),
        };
        let others = network.layers().iter().skip(first.map_or(0, |first| first + 1));
        others.flat_map(|layer| layer.parameters()).for_each(|p| p.set_without_decay());
    }

    /// The dropout rates.
    pub fn rates(&self) -> Rates {
        Rates { input: self.input_dropout, hidden: self.dropout, attention: self.attention_dropout }
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        at_least_one("epochs", self.epochs)?;
        self.batch.map_or(Ok(()), |batch| at_least_one("batch", batch))?;
        at_least_one("evaluate_every", self.evaluate_every)?;
        at_least_one("negatives", self.negatives)?;
        if self.negatives > MOST_NEGATIVES {
            let problem = format!("{} pairs against each link", self.negatives);
            return Err(("negatives", problem, "set 255 at most"));
        }
        positive("lr", self.lr)?;
        not_negative("min_lr", self.min_lr)?;
        not_negative("weight_decay", self.weight_decay)?;
        not_negative("clip", self.clip)?;
        part_of_one("momentum", self.momentum)?;
        part_of_one("label_smoothing", self.label_smoothing)?;
        part_of_one("dropout", self.dropout)?;
        part_of_one("input_dropout", self.input_dropout)?;
        part_of_one("attention_dropout", self.attention_dropout)?;
        positive("plateau_factor", self.plateau_factor)?;
        part_of_one("plateau_factor", self.plateau_factor)?;
        if self.momentum != 0.0 && self.optimizer != OptimizerName::Sgd {
            return Err(("momentum", "only sgd has momentum".into(), "set train.optimizer=\"sgd\", or leave it out"));
        }
        if self.warmup > self.epochs {
            let problem = format!("{} epochs of warm-up, but {} epochs in all", self.warmup, self.epochs);
            return Err(("warmup", problem, "set fewer than train.epochs"));
        }
        Ok(())
    }
}
