//! What a model says of itself.
//!
//! A model is one file in [`models`](crate::models) and its line in the table there. The file has a struct with the
//! keys that users set, which says what kind of model it is ([`Model`]), what it is called ([`ModelKeys`]) and how its
//! layers are built. Configuration, planner, help texts and tests go through the table, so nothing else names a model.
//!
//! A model of one's own needs no change of this crate. Handed to a configuration it is trained like any other; with
//! [`Models::with`](crate::Models::with) it can also be named in a file or on a command line.
//!
//! ```
//! use std::rc::Rc;
//!
//! use graphweft_model::parts::head::Head;
//! use graphweft_model::parts::input::Embedding;
//! use graphweft_model::{ModelInfo, Init, Model, ModelConfig, ModelKeys, Models, Network, Reach, Shape};
//! use graphweft_tensor::Result;
//! use serde::{Deserialize, Serialize};
//!
//! /// A linear function of the features, by way of a few columns.
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
//! #[serde(default, deny_unknown_fields)]
//! struct Narrow {
//!     /// Columns in between.
//!     hidden: usize,
//! }
//!
//! impl Default for Narrow {
//!     fn default() -> Self {
//!         Self { hidden: 8 }
//!     }
//! }
//!
//! impl Model for Narrow {
//!     fn describe(&self) -> ModelInfo {
//!         ModelInfo::new(Reach::Row, self.hidden, 2)
//!     }
//!
//!     fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
//!         let first = Embedding::new(init, "input", shape, self.hidden)?;
//!         let last = Head::new(init, "output", self.hidden, shape.classes)?;
//!         Ok(Network::new(vec![Rc::new(first), Rc::new(last)]))
//!     }
//! }
//!
//! impl ModelKeys for Narrow {
//!     const NAME: &'static str = "narrow";
//!     const ABOUT: &'static str = "a linear function of the features, by way of a few columns";
//! }
//!
//! // Handed to a configuration as it is,
//! let model = ModelConfig::new(Narrow { hidden: 4 });
//! assert_eq!((model.name(), model.hops(), model.sees_edges()), ("narrow", 0, false));
//! // or named beside the models that there are.
//! let models = Models::default().with::<Narrow>();
//! let read = models.read(toml::from_str("name = 'narrow'\nhidden = 4")?)?;
//! assert_eq!(read, model);
//! # Ok::<(), toml::de::Error>(())
//! ```

use std::any::Any;
use std::fmt;

use graphweft_graph::{Csr, TypedCsr};
use graphweft_tensor::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::init::Init;
use crate::network::{Network, Shape};
use crate::prepare::Prepared;

/// What the layers of a model look at beside a node's own row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing: edges do not matter.
    Row,
    /// Nodes at the other end of the data's edges, and nothing else. Its rows can be computed some at a time.
    Edges,
    /// Any node: all of them, or those that edges of the model's own lead to.
    Anywhere,
}

/// What a model does with features of edges that the data have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UseEdges {
    /// It looks at them.
    Use,
    /// It does not.
    #[default]
    Ignore,
}

/// What a model does with types of nodes that the data have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UseTypes {
    /// Each type has linear maps of its own.
    Use,
    /// All types have the same.
    #[default]
    Ignore,
}

/// What is known of a model before it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// What its layers look at.
    pub reach: Reach,
    /// Columns of a row between layers.
    pub hidden: usize,
    /// Layers, as users count them.
    pub layers: usize,
    /// How many of its layers look along edges: a node's logits depend on nodes that are so many edges away.
    pub hops: usize,
    /// Attention heads, if it has any. Ranks share them; columns where there are none.
    pub heads: Option<usize>,
    /// Whether it can predict something of whole graphs.
    pub reads_out: bool,
    /// Whether it is published, and built by PyTorch Geometric, with an edge from every node to itself.
    pub self_loops: bool,
    /// Whether it looks at features of edges where the data have some.
    pub edges: UseEdges,
}

impl ModelInfo {
    /// A model without heads, whose layers all look along edges unless none does.
    pub fn new(reach: Reach, hidden: usize, layers: usize) -> Self {
        let hops = if reach == Reach::Row { 0 } else { layers };
        Self { reach, hidden, layers, hops, heads: None, reads_out: false, self_loops: false, edges: UseEdges::Ignore }
    }
}

/// A model with its settings.
pub trait Model: Any + fmt::Debug + Send + Sync {
    /// What it says of itself.
    fn describe(&self) -> ModelInfo;

    /// The graph that the model works on: `csr`, with the edges that the model adds to it.
    fn prepare(&self, csr: Csr<u32>, _seed: u64) -> Result<Prepared> {
        Ok(Prepared::plain(csr))
    }

    /// Whether it tells edges of different types apart.
    fn reads_types(&self) -> bool {
        false
    }

    /// Whether it tells nodes of different types apart.
    fn reads_node_types(&self) -> bool {
        false
    }

    /// Whether it passes the features of nodes on to others as they are.
    fn passes_features(&self) -> bool {
        false
    }

    /// As [`Model::prepare`], of a graph whose edges are of so many `types`; for models that
    /// [read these](Model::reads_types).
    fn prepare_typed(&self, graph: &TypedCsr, _types: usize, seed: u64) -> Result<Prepared> {
        self.prepare(graph.graph.clone(), seed)
    }

    /// Its layers, with initial weights.
    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network>;
}

impl dyn Model {
    /// How many of its layers look along edges.
    pub fn hops(&self) -> usize {
        self.describe().hops
    }

    /// Columns of a row between layers.
    pub fn hidden(&self) -> usize {
        self.describe().hidden
    }

    /// Layers, as users count them.
    pub fn layers(&self) -> usize {
        self.describe().layers
    }

    /// Attention heads, if it has any.
    pub fn heads(&self) -> Option<usize> {
        self.describe().heads
    }

    /// Whether it looks at edges at all.
    pub fn sees_edges(&self) -> bool {
        self.describe().reach != Reach::Row
    }

    /// Whether a layer looks along the edges of the data and nowhere else.
    pub fn follows_edges(&self) -> bool {
        self.describe().reach != Reach::Anywhere
    }

    /// Whether it looks at features of edges, where the data have some.
    pub fn uses_edge_features(&self) -> bool {
        self.describe().edges == UseEdges::Use
    }

    /// Whether it can predict something of whole graphs.
    pub fn reads_out(&self) -> bool {
        self.describe().reads_out
    }

    /// Whether it is published with an edge from every node to itself.
    pub fn adds_self_loops(&self) -> bool {
        self.describe().self_loops
    }
}

/// The keys of a model's `[model]` section, each with a default, and the name that goes with them.
pub trait ModelKeys: Model + Clone + Default + PartialEq + Serialize + DeserializeOwned {
    /// As users write it.
    const NAME: &'static str;

    /// What it is, in one line.
    const ABOUT: &'static str;
}
