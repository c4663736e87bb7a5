//! What is predicted, and from what that is learned.
//!
//! A [`Task`] says what a split means, how many numbers a model gives, what its loss is, what can be
//! scored (`metrics`) and what is written of a prediction (`predictions`). Everything else asks it: no other file knows
//! kinds of labels. A task is a file in this folder and a line in the table below; one from outside is set in
//! `Config::data.task`.
//!
//! Labels go three ways. [`Labels`] are those of all nodes, or of some rows, on the host. [`Targets`] are those of a
//! rank's rows where the loss is computed. [`LabelView`] is how metrics read either. `Supervision` keeps targets
//! together with the rows that are learned from, chosen by and reported on.

mod labels;
pub(crate) mod metrics;
mod of_graphs;
pub(crate) mod predictions;
mod supervision;

use std::fmt;

use graphweft_base::Error as Bad;
use graphweft_graph::dataset::{Labels as Stored, Split, Task as DatasetTask};
use graphweft_tensor::ops::loss::LossRows;
use graphweft_tensor::{DType, Device, Ids, Matrix, Tag, Tape, Var};

use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::task::metrics::{MetricName, SplitPart};

pub use labels::{LabelView, Labels};
pub use metrics::{Better, Measure, Metric, Scale, ScoredRows};
pub use predictions::{Format, Output, What, Written};
pub(crate) use supervision::{LearnedRows, Supervision, check_labels, check_split};

/// Declares the files and lists what is in them. A task that is to be named outside of this crate is `public`.
macro_rules! tasks {
    (@use $file:ident $task:ident) => {
        pub(crate) use $file::$task;
    };
    (@use $file:ident $task:ident public) => {
        pub use $file::$task;
    };
    ($($file:ident::$task:ident $($public:ident)?,)*) => {
        $(mod $file; tasks!(@use $file $task $($public)?);)*

        /// All tasks. Of those for the same datasets, the first whose kind the labels are is meant.
        pub(crate) static TASKS: &[&dyn Task] = &[$(&$task,)*];
    };
}

tasks! {
    node_class::NodeClass public,
    node_labels::NodeLabels public,
    node_regression::NodeRegression public,
    graph_class::GraphClass,
    graph_labels::GraphLabels,
    graph_regression::GraphRegression,
    link::Link,
    triple::Triple,
}

/// What is predicted, and from what that is learned.
pub trait Task: fmt::Debug + Send + Sync {
    /// Its name, by which `result.json` says what a model was trained for.
    fn name(&self) -> &'static str;

    /// What `task` in `meta.toml` is for datasets that it learns from. Usually nodes have classes.
    fn dataset(&self) -> DatasetTask {
        DatasetTask::NodeClassification
    }

    /// The labels of a dataset, if they are of its kind. Where there are none, it learns from something else.
    fn labels(&self, _stored: &Stored) -> Option<Labels> {
        None
    }

    /// What stands for labels where the data need none: it learns from something else that they have.
    fn unlabelled(&self) -> Option<Labels> {
        None
    }

    /// Classes of data that are stored with so many, where `data.embedding` is as given.
    fn classes_of(&self, stored: usize, _embedding: Option<u64>) -> usize {
        stored
    }

    /// Labels that stand for those of so many rows in a rehearsal, which reads none. Numbers need not be there.
    fn unread(&self, _rows: usize) -> Labels {
        Labels::Numbers(Vec::new())
    }

    /// How many numbers a model gives for a row, where the data have so many classes.
    fn outputs(&self, classes: usize) -> usize {
        classes
    }

    /// What the data have so many of.
    fn noun(&self) -> &'static str {
        "classes"
    }

    /// What the parts of a split are among rows with these original ids. Usually a split names nodes, and rows are
    /// nodes.
    fn parts(&self, split: &Split, ids: &Ids) -> [SplitPart; 3] {
        split.parts().map(|(_, nodes)| SplitPart::of_nodes(nodes, ids))
    }

    /// How many labels of a row are known, of rows with so many. Each adds a loss.
    fn known(&self, labels: LabelView<'_>, row: usize, columns: usize) -> usize;

    /// The class of every node, −1 where it is not known, for splits that are drawn class by class.
    ///
    /// # Errors
    /// Why there are no classes, in words that follow "nodes of DATA".
    fn classes<'a>(&self, _labels: LabelView<'a>) -> std::result::Result<&'a [i64], &'static str> {
        Err("have no class")
    }

    /// Refuses settings that mean nothing for this task; `data` is what the data are called.
    ///
    /// # Errors
    /// [`Error::Setting`] with the key.
    fn check(&self, train: &TrainConfig, data: &str) -> Result<()> {
        no_smoothing(train, || format!("the nodes of {data} have no class"))
    }

    /// Labels of a rank's rows, where the loss is computed.
    fn targets(&self, labels: Labels, on: &LossDevice<'_>, train: &TrainConfig) -> Result<Box<dyn Targets>>;

    /// The sum of the losses of some rows, and how many there are: as the loss of training, on the host and without
    /// what only helps training.
    fn losses(&self, rows: &ScoredRows<'_>) -> [f64; 2];

    /// What can be scored; what is scored where nothing is asked for is first.
    fn metrics(&self) -> &'static [Metric];

    /// Fails if data with so many classes cannot be scored so.
    fn check_metric(&self, _metric: &Metric, _classes: usize) -> Result<()> {
        Ok(())
    }

    /// What can be written of a prediction: of one model without being asked the first, of several the second.
    fn forms(&self) -> [What; 2];

    /// How that is written, for rows of so many outputs; `None` if it cannot be.
    fn written(&self, what: What, columns: usize) -> Option<Written>;

    /// Makes of outputs what has a mean over models, and of which all forms but the outputs themselves are written.
    /// Usually outputs are that.
    fn finish(&self, _rows: &mut [f32], _columns: usize) {}

    /// What outputs of a row say, as far as that is one thing or another: as many numbers for each row, or none.
    fn decide(&self, _outputs: &[f64], _to: &mut Vec<u32>) {}
}

/// Refuses smoothing of labels, of which there is nothing that could be: `problem` says why.
fn no_smoothing(train: &TrainConfig, problem: impl FnOnce() -> String) -> Result<()> {
    if train.label_smoothing > 0.0 {
        return Err(Error::setting("train.label_smoothing", problem(), "leave it out"));
    }
    Ok(())
}

/// The task for labels of a dataset that is for this, with them.
pub(crate) fn for_labels(stored: &Stored, dataset: DatasetTask) -> Option<(&'static dyn Task, Labels)> {
    let of = |task: &&'static dyn Task| Some((*task, task.labels(stored)?));
    TASKS.iter().filter(|task| task.dataset() == dataset).find_map(of)
}

/// What would be predicted for a dataset that is for this and has no labels: the first such task.
pub(crate) fn without_labels(dataset: DatasetTask) -> &'static dyn Task {
    TASKS.iter().copied().find(|task| task.dataset() == dataset).unwrap_or(&NodeClass)
}

/// The task of this name.
pub(crate) fn named(name: &str) -> Option<&'static dyn Task> {
    TASKS.iter().copied().find(|task| task.name() == name)
}

/// The task whose metric this is, for data without labels of which it is known how they were scored.
pub(crate) fn scored_by(metric: Option<MetricName>, classes: usize) -> &'static dyn Task {
    let mut fitting = TASKS.iter().filter(|task| task.metric(metric, classes).is_ok());
    fitting.next().copied().unwrap_or(&NodeClass)
}

impl dyn Task + '_ {
    /// What is scored: what is asked for, or the default.
    ///
    /// # Errors
    /// If this task, or data with so many classes, cannot be scored so.
    pub fn metric(&self, asked: Option<MetricName>, classes: usize) -> Result<&'static Metric> {
        let all = self.metrics();
        let found = match asked {
            None => all.first(),
            Some(asked) => all.iter().find(|metric| metric.name == asked.as_str()),
        };
        let Some(metric) = found else {
            let names: Vec<&str> = all.iter().map(|metric| metric.name).collect();
            let asked = asked.map_or("nothing", MetricName::as_str);
            let problem = format!("{asked} cannot be scored for these labels");
            return Err(Error::setting("train.metric", problem, format!("choose one of {}", names.join(", "))));
        };
        self.check_metric(metric, classes).map(|()| metric)
    }

    /// How `what` is written.
    ///
    /// # Errors
    /// If it cannot be.
    pub(crate) fn form(&self, what: What, columns: usize) -> Result<Written> {
        self.written(what, columns).ok_or_else(|| {
            let problem = format!("the model predicts no {}", what.name());
            let remedy = format!("ask for --what {}", self.forms()[0].name());
            Bad::request(problem, remedy).into()
        })
    }
}

impl PartialEq for dyn Task {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// Labels of a rank's rows, where the loss is computed.
pub trait Targets {
    /// As metrics read them.
    fn view(&self) -> LabelView<'_>;

    /// The sum of the losses of these rows, divided by `total`.
    fn loss(&self, tape: &mut Tape, outputs: &Var, rows: &LossRows, total: f64) -> Result<Var>;
}

/// Where a loss is computed, and of what.
pub struct LossDevice<'a> {
    /// Where.
    pub device: &'a Device,
    /// Rows of the outputs.
    pub rows: usize,
    /// How many labels a row has.
    pub labels: usize,
    /// The type losses are computed in.
    pub dtype: DType,
}

impl LossDevice<'_> {
    /// The numbers of all rows, in the type losses are computed in.
    pub fn upload(&self, values: &[f32]) -> Result<Matrix> {
        let m = self.device.upload_from(self.rows, self.labels, Tag::Graph, || values)?;
        Ok(if self.dtype == DType::F64 { self.device.convert("labels", &m, DType::F64)? } else { m })
    }
}

/// Numbers for every output, on the host and where the loss is computed.
struct Numbers {
    host: Vec<f32>,
    device: Matrix,
    loss: NumbersLoss,
}

/// The loss of outputs, of which some rows count, divided by a total.
type NumbersLoss = fn(&mut Tape, &Var, &Matrix, &LossRows, f64) -> graphweft_tensor::Result<Var>;

impl Numbers {
    /// Those of `labels`, which are learned by this loss.
    fn targets(labels: Labels, on: &LossDevice<'_>, loss: NumbersLoss) -> Result<Box<dyn Targets>> {
        let host = labels.into_numbers();
        let device = on.upload(&host)?;
        Ok(Box::new(Self { host, device, loss }))
    }
}

impl Targets for Numbers {
    fn view(&self) -> LabelView<'_> {
        LabelView::Numbers(&self.host)
    }

    fn loss(&self, tape: &mut Tape, outputs: &Var, rows: &LossRows, total: f64) -> Result<Var> {
        Ok((self.loss)(tape, outputs, &self.device, rows, total)?)
    }
}
