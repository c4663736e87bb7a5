//! What models, tasks and strategies of one's own are made of.
//!
//! * A **model** is a struct with its keys that implements [`Model`] and [`ModelKeys`]; [`Run::own_model`] trains it
//!   like any other.
//! * A **task** implements [`Task`]: labels, loss, metrics and what is predicted; [`Run::own_task`].
//! * A **strategy** implements [`Spread`]: operations over the graph on the rows of one rank; [`Run::own_strategy`].
//!
//! `examples/` has a program for each. What is named here is described in the crate that it is from.

use crate::run::Run;

#[doc(no_inline)]
pub use graphweft_graph::dataset::Labels as StoredLabels;
#[doc(no_inline)]
pub use graphweft_model::parts::head::Head;
#[doc(no_inline)]
pub use graphweft_model::parts::input::Embedding;
#[doc(no_inline)]
pub use graphweft_model::{
    Aggregation, Context, EdgeWeight, GraphOps, Init, Layer, Model, ModelInfo, ModelKeys, Models, Network, Reach, Shape,
};
#[doc(no_inline)]
pub use graphweft_parallel::{Gather, Rows, Situation, Spread};
#[doc(no_inline)]
pub use graphweft_tensor::{Parameter, Result as Computed, Tape, Var};
#[doc(no_inline)]
pub use graphweft_train::Result as Learned;
#[doc(no_inline)]
pub use graphweft_train::config::TrainConfig;
#[doc(no_inline)]
pub use graphweft_train::task::{
    Better, LabelView, Labels, LossDevice, Measure, Metric, NodeClass, NodeRegression, Scale, ScoredRows, Targets,
    Task, What, Written,
};

impl Run {
    /// Trains a model of one's own; its keys are set as those of any other.
    #[must_use]
    pub fn own_model<M: ModelKeys>(mut self) -> Self {
        self.given = self.given.with_models(&Models::default().with::<M>());
        self.model(M::NAME)
    }

    /// Learns a task of one's own, in place of what the dataset says.
    #[must_use]
    pub fn own_task(mut self, task: &'static dyn Task) -> Self {
        self.task = Some(task);
        self
    }

    /// Shares the work of its ranks by a strategy of one's own.
    #[must_use]
    pub fn own_strategy(mut self, strategy: &'static dyn Spread) -> Self {
        self.own_strategy = Some(strategy);
        self
    }
}
