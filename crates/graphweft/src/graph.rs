//! Graphs in memory.

use std::fmt;
use std::sync::Arc;

use graphweft_base::progress::Silent;
use graphweft_base::{Error as Bad, Problem};
use graphweft_graph::generate::Spec;
use graphweft_graph::{AnyCsr, Csr, with_csr};

/// What [`Graph::with_self_loops`] takes.
///
/// ```
/// use graphweft::{Graph, SelfLoops};
/// let graph = Graph::from_edges(3, &[0, 2], &[1, 2])?;
/// assert_eq!(graph.with_self_loops(SelfLoops::Add).num_edges(), 4);
/// # Ok::<(), graphweft::Error>(())
/// ```
pub use graphweft_graph::SelfLoops;

use crate::error::{Error, Result};

/// A directed graph: for every node, the sources of the edges into it. Cheap to clone, and may be sent to other
/// threads.
///
/// ```
/// use graphweft::Graph;
/// // 0 → 1, 2 → 1 and 1 → 2
/// let graph = Graph::from_edges(3, &[0, 2, 1], &[1, 1, 2])?;
/// assert_eq!((graph.num_nodes(), graph.num_edges()), (3, 3));
/// assert_eq!(graph.sources(1), [0, 2]);
/// assert_eq!(graph.symmetrise().sources(0), [1]);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Graph(pub(crate) Arc<AnyCsr>);

impl Graph {
    /// Makes a graph to order: `rmat:S:D`, `sbm:N:C:D`, `grid:R:C` or `ba:N:M`, each optionally with `+loops`. The same
    /// seed gives the same graph.
    ///
    /// ```
    /// let graph = graphweft::Graph::generate("rmat:10:8", 0)?;
    /// assert_eq!(graph.num_nodes(), 1024);
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such generator, or the graph does not fit into memory.
    pub fn generate(spec: &str, seed: u64) -> Result<Self> {
        Ok(spec.parse::<Spec>()?.graph(seed, &Silent)?.into())
    }

    /// The graph of `nodes` nodes with the edges `sources[k] → targets[k]`, ids of any integer type; parallel edges
    /// stay.
    ///
    /// # Errors
    /// With the [position](Error::position) of the first id that is out of range.
    pub fn from_edges<I>(nodes: usize, sources: &[I], targets: &[I]) -> Result<Self>
    where
        I: Copy + Sync + fmt::Display + TryInto<usize>,
    {
        Ok(Csr::from_edges(nodes, sources, targets)?.into())
    }

    /// For each place in [`Graph::indices`], which of these edges stands there. What is known of edges as they were
    /// given, such as [features](crate::DatasetBuilder::edge_features), is so put in the order of the graph; parallel
    /// edges keep theirs.
    ///
    /// ```
    /// let (sources, targets) = ([2, 0, 1], [1, 1, 0]);
    /// let graph = graphweft::Graph::from_edges(3, &sources, &targets)?;
    /// assert_eq!(graph.edge_order(&sources, &targets)?, [2, 1, 0]);
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// If these are not the edges of the graph, or it has more nodes than 32-bit ids can name.
    pub fn edge_order<I>(&self, sources: &[I], targets: &[I]) -> Result<Vec<u64>>
    where
        I: Copy + Sync + fmt::Display + TryInto<usize>,
    {
        match &*self.0 {
            AnyCsr::Narrow(graph) => Ok(graph.edge_order(sources, targets)?),
            AnyCsr::Wide(_) => Err(wide()),
        }
    }

    /// The graph whose node `i` has the sources `indices[indptr[i]..indptr[i + 1]]`, sorted.
    ///
    /// ```
    /// let graph = graphweft::Graph::from_csr(vec![0, 0, 2, 3], vec![0, 2, 1])?;
    /// assert_eq!(graph.sources(1), [0, 2]);
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// With the position of the first offset or id that is out of range or out of order.
    pub fn from_csr(indptr: Vec<u64>, indices: Vec<u32>) -> Result<Self> {
        let nodes = indptr.len().saturating_sub(1);
        let graph = Csr::new(indptr, indices, nodes)
            .map_err(|e| Bad::bad("graph", e.array(), Problem::from(e), "correct the array"))?;
        Ok(graph.into())
    }

    /// Nodes.
    pub fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }

    /// Edges; one that goes both ways counts twice.
    pub fn num_edges(&self) -> usize {
        self.0.num_edges()
    }

    /// The sources of the edges into a node, in ascending order. `node` must be below [`Graph::num_nodes`].
    #[allow(clippy::useless_conversion)] // Ids have 32 bits or 64.
    pub fn sources(&self, node: usize) -> Vec<u64> {
        with_csr!(&*self.0, g => g.row(node).iter().map(|id| u64::from(*id)).collect())
    }

    /// Where the sources of every node begin in [`Graph::indices`], and where the last ones end.
    pub fn indptr(&self) -> &[u64] {
        with_csr!(&*self.0, g => g.indptr())
    }

    /// The sources of all nodes, one node after the other.
    ///
    /// # Errors
    /// If the graph has more nodes than 32-bit ids can name.
    pub fn indices(&self) -> Result<&[u32]> {
        match &*self.0 {
            AnyCsr::Narrow(graph) => Ok(graph.indices()),
            AnyCsr::Wide(_) => Err(wide()),
        }
    }

    /// Whether every edge stands beside its reverse.
    pub fn is_symmetric(&self) -> bool {
        with_csr!(&*self.0, g => g.is_symmetric())
    }

    /// The same graph with the reverse of every edge; parallel edges are merged.
    #[must_use]
    pub fn symmetrise(&self) -> Self {
        Self(Arc::new(AnyCsr::clone(&self.0).map(|g| g.symmetrise(), |g| g.symmetrise())))
    }

    /// The same graph with other edges from nodes to themselves.
    ///
    /// ```
    /// use graphweft::{Graph, SelfLoops};
    /// let graph = Graph::generate("grid:3:3", 0)?.with_self_loops(SelfLoops::Add);
    /// assert!((0..9).all(|node| graph.sources(node).contains(&(node as u64))));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    #[must_use]
    pub fn with_self_loops(&self, loops: SelfLoops) -> Self {
        Self(Arc::new(AnyCsr::clone(&self.0).map(|g| g.with_self_loops(loops), |g| g.with_self_loops(loops))))
    }
}

fn wide() -> Error {
    Error::request("ids of this graph have 64 bits", "read indices.npy of its folder")
}

impl From<Csr<u32>> for Graph {
    fn from(graph: Csr<u32>) -> Self {
        Self(Arc::new(graph.into()))
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} nodes, {} edges)", self.num_nodes(), self.num_edges())
    }
}
