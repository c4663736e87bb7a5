//! A dataset from arrays in memory, one after the other.

use std::sync::Arc;

use graphweft_graph::dataset::{
    self, Categories, Codes, Dense, Features, Graphs, Labels, LinkSplit, NodeType, Parts, SparseFeatures,
};

use super::{Dataset, Split};
use crate::error::{Error, Result};

/// A dataset in the making; see [`Dataset::builder`].
///
/// ```
/// use graphweft::{Dataset, Graph};
/// let graph = Graph::from_edges(2, &[0], &[1])?;
/// let error = Dataset::builder("two", &graph).labels(vec![0, 1, 1]).build().unwrap_err();
/// assert_eq!(error.problem(), "there are 3 labels, expected 2 for 2 nodes");
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DatasetBuilder {
    parts: Parts,
    graphs: Option<Vec<u64>>,
    categories: Option<(usize, Vec<u16>)>,
}

impl DatasetBuilder {
    pub(super) fn of(parts: Parts) -> Self {
        Self { parts, graphs: None, categories: None }
    }

    /// Dense features: a row of `width` numbers for every node.
    #[must_use]
    pub fn features(mut self, width: usize, values: Vec<f32>) -> Self {
        self.parts.features = Some(Features::Dense(Dense::F32 { values: values.into(), width }));
        self
    }

    /// Sparse features of `width` columns; all values are 1 unless some are given.
    #[must_use]
    pub fn sparse_features(
        mut self,
        width: usize,
        indptr: Vec<u64>,
        indices: Vec<u32>,
        values: Option<Vec<f32>>,
    ) -> Self {
        let data = values.map(Into::into);
        let rows = SparseFeatures { indptr: indptr.into(), indices: indices.into(), data, width };
        self.parts.features = Some(Features::Sparse(rows));
        self
    }

    /// The type of every edge, in the order of the graph's rows, and what the types are called, by number.
    ///
    /// ```
    /// use graphweft::{Dataset, Graph};
    /// let graph = Graph::from_edges(3, &[0, 1], &[1, 2])?;
    /// let names = ["near".to_string(), "far".to_string()];
    /// let error = Dataset::builder("three", &graph).edge_types(&names, vec![0, 2]).build().unwrap_err();
    /// assert!(error.problem().starts_with("edge_type[1] = 2"));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    #[must_use]
    pub fn edge_types(mut self, names: &[String], types: Vec<u16>) -> Self {
        self.parts.types.edges = Some(Codes::of(types));
        self.parts.types.edge_names = names.to_vec();
        self
    }

    /// One more type of nodes: the next `nodes` of them, each with a row of `width` numbers, or none where `width` is
    /// 0.
    ///
    /// ```
    /// use graphweft::{Dataset, Graph};
    /// let graph = Graph::from_edges(3, &[0, 1], &[1, 2])?;
    /// let data = Dataset::builder("three", &graph)
    ///     .node_type("paper", 2, 2, vec![0.5, 1.0, 0.25, 2.0])
    ///     .node_type("author", 1, 0, Vec::new())
    ///     .build()?;
    /// assert_eq!(data.node_types()[1].name, "author");
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    #[must_use]
    pub fn node_type(mut self, name: &str, nodes: usize, width: usize, values: Vec<f32>) -> Self {
        let features = (width > 0).then(|| Features::Dense(Dense::F32 { values: values.into(), width }));
        self.parts.types.nodes.push(NodeType { name: name.into(), num_nodes: nodes, num_features: width });
        self.parts.types.features.push(features);
        self
    }

    /// The class of every node, −1 where it is not known. There are as many classes as the largest one says.
    #[must_use]
    pub fn labels(mut self, labels: Vec<i64>) -> Self {
        self.parts.classes = labels.iter().max().map_or(0, |most| usize::try_from(most + 1).unwrap_or(0));
        self.parts.labels = Some(Labels::Single(labels.into()));
        self
    }

    /// For nodes, or graphs, with several labels each: a row of `classes` numbers for every node, 0 or 1, or NaN where
    /// it is not known.
    #[must_use]
    pub fn label_rows(mut self, classes: usize, labels: Vec<f32>) -> Self {
        (self.parts.classes, self.parts.labels) = (classes, Some(Labels::MultiF32(labels.into())));
        self
    }

    /// For regression: a row of `width` numbers to predict for every node, NaN where one is not known.
    #[must_use]
    pub fn values(mut self, width: usize, values: Vec<f32>) -> Self {
        (self.parts.classes, self.parts.labels) = (width, Some(Labels::Values(values.into())));
        self
    }

    /// Features of edges: a row of `width` numbers for each, in the order of [`Graph::indices`](crate::Graph::indices);
    /// [`Graph::edge_order`](crate::Graph::edge_order) tells that of edges in any other.
    #[must_use]
    pub fn edge_features(mut self, width: usize, values: Vec<f32>) -> Self {
        self.parts.edge_features = Some(Dense::F32 { values: values.into(), width });
        self
    }

    /// Categories of nodes, such as what an atom is: a row of `width` small numbers for every node.
    #[must_use]
    pub fn categories(mut self, width: usize, values: Vec<u16>) -> Self {
        self.categories = Some((width, values));
        self
    }

    /// Many graphs in one: graph g has the nodes from `first[g]` up to `first[g + 1]`, and no edge leads to another.
    /// Labels, values and splits are then those of graphs.
    ///
    /// ```
    /// use graphweft::{Dataset, Graph};
    /// // An edge and a triangle.
    /// let graph = Graph::from_edges(5, &[0, 2, 3, 4], &[1, 3, 4, 2])?.symmetrise();
    /// let data = Dataset::builder("two", &graph).graphs(vec![0, 2, 5]).labels(vec![0, 1]).build()?;
    /// assert_eq!((data.graphs(), data.labels()), (Some(&[0, 2, 5][..]), Some(&[0, 1][..])));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    #[must_use]
    pub fn graphs(mut self, first: Vec<u64>) -> Self {
        self.graphs = Some(first);
        self
    }

    /// One more split of links: its parts have pairs of nodes, one after the other.
    ///
    /// ```
    /// use graphweft::{Dataset, Graph, Split};
    /// let graph = Graph::from_edges(4, &[0, 1, 2], &[1, 2, 3])?.symmetrise();
    /// let split = Split::new("own", vec![0, 1], vec![1, 2], vec![2, 3]).no_links(None, Some(vec![0, 3]));
    /// let data = Dataset::builder("path", &graph).links(split.clone()).build()?;
    /// assert_eq!(data.links(), [split]);
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    #[must_use]
    pub fn links(self, split: Split) -> Self {
        self.links_of(2, split)
    }

    /// One more split of links with relations: its parts have triples of head, relation and tail, one after the other.
    /// Relations are the [types of the edges](Self::edge_types), by number.
    #[must_use]
    pub fn triples(self, split: Split) -> Self {
        self.links_of(3, split)
    }

    fn links_of(mut self, width: usize, split: Split) -> Self {
        let Split { name, train, valid, test, no_links } = split;
        let [valid_neg, test_neg] = no_links.map(|pairs| pairs.map(Into::into));
        let (train, valid, test) = (train.into(), valid.into(), test.into());
        self.parts.links.push(LinkSplit { name, width, train, valid, test, valid_neg, test_neg });
        self
    }

    /// One more split.
    #[must_use]
    pub fn split(mut self, split: Split) -> Self {
        let Split { name, train, valid, test, .. } = split;
        self.parts.splits.push(dataset::Split { name, train: train.into(), valid: valid.into(), test: test.into() });
        self
    }

    /// Checks every element, as those of a folder are.
    ///
    /// # Errors
    /// With the array, as the file that would hold it, and the position.
    pub fn build(mut self) -> Result<Dataset> {
        // All of one kind: the folder has no features then.
        if self.parts.types.features.iter().all(Option::is_none) {
            self.parts.types.features.clear();
        }
        if let Some((width, values)) = self.categories {
            self.parts.categories = Some(Categories::new(values, width, &[])?);
        }
        if let Some(first) = self.graphs {
            self.parts.graphs = Some(Graphs { ptr: first.into(), labels: self.parts.labels.take() });
        }
        let links = self.parts.links.iter().map(|links| links.name.as_str());
        let mut names: Vec<&str> = self.parts.splits.iter().map(|split| split.name.as_str()).chain(links).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let what = format!("there are two splits called {:?}", twice[0]);
            return Err(Error::request(what, "give each a name of its own"));
        }
        Ok(Dataset(Arc::new(dataset::Dataset::in_memory(self.parts)?)))
    }
}
