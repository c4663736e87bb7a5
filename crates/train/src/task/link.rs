//! Links: which pairs of nodes are linked, and by which relation.
//!
//! A model gives every node a row of `data.embedding` numbers, and a [decoder](graphweft_model::decoders) scores a pair
//! by its rows. What is learned from and scored are pairs, not rows: [`links`](crate::epochs::links) has the loss and
//! asks the metrics here for scores of rankings. What is predicted of a node is its row.
//!
//! Pairs are scored beside pairs that are none, or by the rank of each end among all nodes; triples, which have a
//! relation, by ranks alone.

use graphweft_graph::dataset::Task as DatasetTask;

use super::{LabelView, Labels, LossDevice, Targets, Task, no_smoothing};
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::task::metrics::{Logits, Measure, Metric, ScoredRows, average_precision, hits, roc_auc};
use crate::task::predictions::{What, Written};

/// Numbers that a model gives for a node where nobody says.
const EMBEDDING: usize = 64;

const fn ranking(name: &'static str, score: crate::task::metrics::Ranking) -> Metric {
    Metric::share(name, Measure::Ranking { columns: |_| 1, look, score })
}

const fn of_rank(name: &'static str, score: fn(f64) -> f64) -> Metric {
    Metric::share(name, Measure::Ranks { score })
}

/// Whether a rank is at most K.
fn within<const K: u32>(rank: f64) -> f64 {
    f64::from(u8::from(rank <= f64::from(K)))
}

const RANKS: [Metric; 4] = [
    of_rank("mrr", f64::recip),
    of_rank("hits@1", within::<1>),
    of_rank("hits@3", within::<3>),
    of_rank("hits@10", within::<10>),
];

static OF_TRIPLES: [Metric; 4] = RANKS;

static OF_PAIRS: [Metric; 9] = {
    let [mrr, first, third, tenth] = RANKS;
    [
        ranking("roc-auc", roc_auc),
        ranking("average-precision", average_precision),
        ranking("hits@20", hits::<20>),
        ranking("hits@50", hits::<50>),
        ranking("hits@100", hits::<100>),
        mrr,
        first,
        third,
        tenth,
    ]
};

/// A task of links with its metrics.
macro_rules! links {
    ($(#[$about:meta])* $task:ident, $name:literal, $metrics:ident) => {
        $(#[$about])*
        #[derive(Debug)]
        pub(crate) struct $task;

        impl Task for $task {
            /// Pairs stand for labels, which rows have none of.
            fn unlabelled(&self) -> Option<Labels> {
                Some(Labels::Numbers(Vec::new()))
            }

            fn classes_of(&self, _stored: usize, embedding: Option<u64>) -> usize {
                embedding.map_or(EMBEDDING, |width| width as usize)
            }

            fn noun(&self) -> &'static str {
                "numbers per node"
            }

            fn dataset(&self) -> DatasetTask {
                DatasetTask::Link
            }

            fn name(&self) -> &'static str {
                $name
            }

            /// Rows have no labels.
            fn known(&self, _labels: LabelView<'_>, _row: usize, _columns: usize) -> usize {
                0
            }

            fn check(&self, train: &TrainConfig, _data: &str) -> Result<()> {
                no_smoothing(train, || "links have no class".into())
            }

            fn targets(&self, _labels: Labels, _on: &LossDevice<'_>, _train: &TrainConfig) -> Result<Box<dyn Targets>> {
                let problem = "links are learned from the whole graph";
                Err(Error::setting("parallel.strategy", problem, "choose an exact one"))
            }

            fn losses(&self, _rows: &ScoredRows<'_>) -> [f64; 2] {
                [0.0, 0.0]
            }

            fn metrics(&self) -> &'static [Metric] {
                &$metrics
            }

            fn forms(&self) -> [What; 2] {
                [What::Logits, What::Logits]
            }

            fn written(&self, what: What, columns: usize) -> Option<Written> {
                (what == What::Logits).then(|| Written::floats("embedding", columns))
            }
        }
    };
}

links! {
    /// Links between nodes.
    Link, "link", OF_PAIRS
}

links! {
    /// Links of several relations.
    Triple, "triple", OF_TRIPLES
}

/// Rows by themselves are not ranked.
fn look(_logits: &Logits, _labels: LabelView<'_>, _row: usize, _column: usize) -> (f64, Option<bool>) {
    (0.0, None)
}
