//! R-GCN of Schlichtkrull et al.: a [stack] of `torch_geometric.nn.RGCNConv`, with a matrix for each type
//! of edges. Where edges have no types, all are of one.
//!
//! A linear layer comes first, because features are often sparse, and columns of a node without features are learnt
//! rows there.

use graphweft_graph::{Csr, TypedCsr};
use graphweft_tensor::{Error, Result};

use super::stack::{self, Shell, keys_of_a_stack};
use crate::convs::rgcn::{Decomposition, RgcnConv};
use crate::init::Init;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Network, Shape};
use crate::prepare::Prepared;

keys_of_a_stack! {
    /// Keys of the `[model]` section: those of a [stack](stack::Config), `bases` and `blocks`.
    {
        /// Matrices that those of the types of edges are sums of; 0 for one of its own for each type.
        bases: usize,
        /// Blocks on the diagonal of each type's matrix, which is zero elsewhere; 0 for whole matrices. They divide the
        /// columns of every layer.
        blocks: usize,
    }
}

impl Default for Config {
    fn default() -> Self {
        let stack = stack::Config { layers: 2, stack: Shell::Tuned, input_linear: true, ..stack::Config::default() };
        Self::beside(stack, 0, 0)
    }
}

impl Config {
    fn decomposition(&self) -> Result<Decomposition> {
        match (self.bases, self.blocks) {
            (0, 0) => Ok(Decomposition::None),
            (bases, 0) => Ok(Decomposition::Bases(bases)),
            (0, blocks) => Ok(Decomposition::Blocks(blocks)),
            _ => {
                let problem = "model.bases and model.blocks are both set: take one of them".into();
                Err(Error::Argument { op: Self::NAME, problem })
            }
        }
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo::new(Reach::Edges, self.hidden, self.layers)
    }

    fn prepare(&self, csr: Csr<u32>, _: u64) -> Result<Prepared> {
        let types = vec![0; csr.num_edges()];
        Prepared::counted(&TypedCsr::new(&csr, &types), 1)
    }

    fn reads_types(&self) -> bool {
        true
    }

    fn prepare_typed(&self, graph: &TypedCsr, types: usize, _: u64) -> Result<Prepared> {
        Prepared::counted(graph, types)
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let (decomposition, types) =
            (self.decomposition()?, shape.edge_features.categories().first().copied().unwrap_or(1));
        stack::build(Self::NAME, &self.of_stack(), init, shape, |spec| {
            Ok(Box::new(RgcnConv::new(init, spec.name, spec.inputs.width, spec.outputs, types, decomposition)?))
        })
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "rgcn";
    const ABOUT: &'static str = "relational GCN: a matrix for each type of edges";
}
