//! Rows of nodes that are learned, where nothing that is stored tells nodes apart.
//!
//! A node then has one feature of its own, which is 1. A first layer looks up a row of its weights for it: that is the
//! row that is learned. Where ranks share a whole graph, each has the weights of its nodes, N/P × width numbers with
//! their gradients and what the optimizer remembers of them, and nothing of it is sent. Otherwise every rank has all.

use graphweft_graph::dataset::{Features, SparseFeatures, Task as DatasetTask};
use graphweft_graph::generate::Spec;
use graphweft_graph::{Csr, Dataset};

use super::{categories, types};
use crate::config::{DataConfig, NodeFeatures};

/// Whether rows are learned whatever is stored.
pub(super) fn is_asked(config: &DataConfig) -> bool {
    config.features == NodeFeatures::Learned
}

/// Whether they are learned of this dataset.
fn are_learned(dataset: &Dataset, config: &DataConfig) -> bool {
    let none = dataset.features().is_none() && dataset.categories().is_none() && dataset.features_by_type().is_empty();
    is_asked(config) || dataset.meta().task == DatasetTask::Link && none
}

/// Whether it is known, without reading, what a row of features is.
pub(super) fn has_features(dataset: &Dataset, config: &DataConfig) -> bool {
    dataset.graphs().is_some() || types::has_features(dataset) || are_learned(dataset, config)
}

/// How many columns of the features of a dataset are each of one node: all, where rows are learned.
pub(super) fn columns_of_nodes(dataset: &Dataset, config: &DataConfig) -> usize {
    if are_learned(dataset, config) { dataset.meta().num_nodes } else { 0 }
}

/// The features of the nodes of a dataset; nothing if there are none.
pub(super) fn features_of(dataset: &Dataset, config: &DataConfig) -> Option<Features> {
    if are_learned(dataset, config) {
        return Some(one_each(dataset.meta().num_nodes));
    }
    categories::features_of(dataset)
}

/// The same of a graph that was generated.
pub(super) fn features_of_spec(spec: &Spec, config: &DataConfig, graph: &Csr<u32>) -> Option<Features> {
    if is_asked(config) { Some(one_each(graph.num_dst())) } else { spec.features(config.graph_seed) }
}

/// A column for each of so many nodes.
fn one_each(nodes: usize) -> Features {
    let (indptr, indices) = ((0..=nodes as u64).collect::<Vec<_>>(), (0..nodes as u32).collect::<Vec<_>>());
    Features::Sparse(SparseFeatures { indptr: indptr.into(), indices: indices.into(), data: None, width: nodes })
}
