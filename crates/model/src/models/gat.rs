//! GAT of Veličković et al.: `torch_geometric.nn.models.GAT`. Self-loops are added unless the configuration says
//! otherwise. In the plain stack the last layer's output is the mean of its heads.
//!
//! Features of edges are in the scores of every layer. A self-loop that was added has zeros, and in each column of
//! categories one of its own, where PyTorch Geometric has the mean of the node's other edges unless `fill_value` says
//! otherwise.

use graphweft_tensor::{Error, Result};

use super::check_heads;
use super::stack::{self, ConvSpec, Shell, keys_of_a_stack};
use crate::convs::gat::{Between, Bias, GatConv, Heads};
use crate::init::Init;
use crate::model::{Model, ModelInfo, ModelKeys, Reach, UseEdges};
use crate::network::{Network, Shape};
use crate::parts::activation::ActivationKind;

keys_of_a_stack! {
    /// Keys of the `[model]` section: those of a [stack](stack::Config) and `heads`.
    {
        /// Attention heads, which share the hidden columns.
        heads: usize,
        /// Heads of the last layer of the plain stack, where they are not `heads`: the paper has 1 on Cora. PyTorch
        /// Geometric's own model has the same number everywhere.
        #[serde(skip_serializing_if = "Option::is_none")]
        output_heads: Option<usize>,
        /// Whether layers use features of edges, where the data have some.
        edges: UseEdges,
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::beside(
            stack::Config { activation: ActivationKind::Elu, ..stack::Config::default() },
            8,
            None,
            UseEdges::Use,
        )
    }
}

/// Heads of all layers but the last of a plain stack, and of that.
#[derive(Clone, Copy)]
pub(super) struct LayerHeads {
    hidden: usize,
    last: usize,
}

impl LayerHeads {
    /// Those of one layer.
    pub(super) fn of(self, spec: &ConvSpec<'_>) -> Heads {
        if spec.last { Heads::Mean(self.last) } else { Heads::Concat(self.hidden) }
    }
}

impl Config {
    /// What the stack is told, and the heads of its layers.
    pub(super) fn split(&self, op: &'static str) -> Result<(stack::Config, LayerHeads)> {
        let &Self { hidden, stack, heads, output_heads, .. } = self;
        check_heads(op, hidden, heads)?;
        let problem = match output_heads {
            Some(0) => "model.output_heads = 0: it takes at least one",
            Some(_) if stack == Shell::Tuned => {
                "model.output_heads needs model.stack = \"plain\": no head is last in \"tuned\""
            }
            _ => {
                let heads = LayerHeads { hidden: heads, last: output_heads.unwrap_or(heads) };
                return Ok((self.of_stack(), heads));
            }
        };
        Err(Error::Argument { op, problem: problem.into() })
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo {
            heads: Some(self.heads),
            reads_out: true,
            self_loops: true,
            edges: self.edges,
            ..ModelInfo::new(Reach::Edges, self.hidden, self.layers)
        }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let (config, heads) = self.split(Self::NAME)?;
        let bias = if config.stack == Shell::Plain { Bias::Zeros } else { Bias::None };
        stack::build(Self::NAME, &config, init, shape, |spec| {
            let heads = heads.of(spec);
            let between = Between { inputs: spec.inputs, outputs: spec.outputs, edges: &shape.edge_features };
            Ok(Box::new(GatConv::new(init, spec.name, between, heads, bias)?))
        })
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "gat";
    const ABOUT: &'static str = "graph attention network";
}
