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
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// use graphweft::Run;
    /// use graphweft::extend::{Computed, Embedding, Head, Init, Model, ModelInfo, ModelKeys, Network, Reach, Shape};
    /// use serde::{Deserialize, Serialize};
    ///
    /// /// Two linear layers. Its key is `model.hidden`.
    /// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    /// #[serde(default, deny_unknown_fields)]
    /// struct Plain {
    ///     hidden: usize,
    /// }
    ///
    /// impl Model for Plain {
    ///     fn describe(&self) -> ModelInfo {
    ///         ModelInfo::new(Reach::Row, self.hidden, 2)
    ///     }
    ///
    ///     fn network(&self, init: &Init<'_>, shape: &Shape) -> Computed<Network> {
    ///         let first = Embedding::new(init, "input", shape, self.hidden)?;
    ///         let last = Head::new(init, "output", self.hidden, shape.classes)?;
    ///         Ok(Network::new(vec![Rc::new(first), Rc::new(last)]))
    ///     }
    /// }
    ///
    /// impl ModelKeys for Plain {
    ///     const NAME: &'static str = "plain";
    ///     const ABOUT: &'static str = "two linear layers";
    /// }
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let run = Run::new("sbm:60:3:4:f=8").own_model::<Plain>().set("model.hidden", 8).epochs(2);
    /// let report = run.output(dir.path().join("run")).train()?;
    /// assert_eq!(report.model, "plain");
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    #[must_use]
    pub fn own_model<M: ModelKeys>(mut self) -> Self {
        self.given = self.given.with_models(&Models::default().with::<M>());
        self.model(M::NAME)
    }

    /// Learns a task of one's own, in place of what the dataset says.
    ///
    /// ```
    /// use graphweft::extend::{
    ///     LabelView, Labels, Learned, LossDevice, Measure, Metric, NodeClass, ScoredRows, StoredLabels, Targets, Task,
    ///     TrainConfig, What, Written,
    /// };
    ///
    /// /// Classification of which only the first class is scored: how many of its nodes are found.
    /// #[derive(Debug)]
    /// struct FirstClass;
    ///
    /// fn found(rows: &ScoredRows<'_>) -> Vec<f64> {
    ///     let of_first = rows.outputs().filter(|(row, _)| rows.labels.integers()[*row] == 0);
    ///     of_first.fold(vec![0.0; 2], |sums, (_, outputs)| {
    ///         let right = outputs.iter().skip(1).all(|other| *other < outputs[0]);
    ///         vec![sums[0] + f64::from(u8::from(right)), sums[1] + 1.0]
    ///     })
    /// }
    ///
    /// static METRICS: [Metric; 1] =
    ///     [Metric::share("found", Measure::Sums { count: found, score: |sums| sums[0] / sums[1] })];
    ///
    /// impl Task for FirstClass {
    ///     fn name(&self) -> &'static str {
    ///         "first-class"
    ///     }
    ///     fn metrics(&self) -> &'static [Metric] {
    ///         &METRICS
    ///     }
    ///     // The rest is as in NodeClass.
    ///     fn labels(&self, stored: &StoredLabels) -> Option<Labels> {
    ///         NodeClass.labels(stored)
    ///     }
    ///     fn unread(&self, rows: usize) -> Labels {
    ///         NodeClass.unread(rows)
    ///     }
    ///     fn known(&self, labels: LabelView<'_>, row: usize, columns: usize) -> usize {
    ///         NodeClass.known(labels, row, columns)
    ///     }
    ///     fn targets(&self, y: Labels, on: &LossDevice<'_>, train: &TrainConfig) -> Learned<Box<dyn Targets>> {
    ///         NodeClass.targets(y, on, train)
    ///     }
    ///     fn losses(&self, rows: &ScoredRows<'_>) -> [f64; 2] {
    ///         NodeClass.losses(rows)
    ///     }
    ///     fn forms(&self) -> [What; 2] {
    ///         NodeClass.forms()
    ///     }
    ///     fn written(&self, what: What, columns: usize) -> Option<Written> {
    ///         NodeClass.written(what, columns)
    ///     }
    /// }
    ///
    /// # use graphweft::{Dataset, Graph, Run, Split};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let graph = Graph::generate("grid:3:4", 0)?;
    /// # let data = Dataset::builder("grid", &graph)
    /// #     .features(1, (0..12).map(|node| node as f32).collect())
    /// #     .labels((0..12).map(|node| node % 2).collect())
    /// #     .split(Split::new("halves", (0..4).collect(), (4..8).collect(), (8..12).collect()))
    /// #     .build()?;
    /// let run = Run::new(&data).own_task(&FirstClass).model("gcn").epochs(2);
    /// let report = run.output(dir.path().join("run")).train()?;
    /// assert_eq!(report.metric.name(), "found");
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    #[must_use]
    pub fn own_task(mut self, task: &'static dyn Task) -> Self {
        self.task = Some(task);
        self
    }

    /// Shares the work of its ranks by a strategy of one's own.
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// use graphweft::Run;
    /// use graphweft::extend::{Computed, Gather, GraphOps, Rows, Situation, Spread};
    ///
    /// /// All rows everywhere.
    /// #[derive(Debug)]
    /// struct Everywhere;
    ///
    /// impl Spread for Everywhere {
    ///     fn family(&self) -> &'static str {
    ///         "everywhere"
    ///     }
    ///
    ///     fn ops(&self, rows: Rows<'_>) -> Computed<Rc<dyn GraphOps>> {
    ///         Ok(Rc::new(Gather::new(rows.layout, rows.link, rows.edge_features)?))
    ///     }
    ///
    ///     fn reason(&self, on: &Situation) -> String {
    ///         format!("all {} ranks have all rows", on.ranks)
    ///     }
    /// }
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let run = Run::new("sbm:60:3:4:f=8").model("gcn").epochs(2).ranks(2).own_strategy(&Everywhere);
    /// let report = run.output(dir.path().join("run")).train()?;
    /// assert_eq!(report.plan.strategy, "everywhere");
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    #[must_use]
    pub fn own_strategy(mut self, strategy: &'static dyn Spread) -> Self {
        self.own_strategy = Some(strategy);
        self
    }
}
