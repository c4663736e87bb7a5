//! GAT of Veličković et al. and GATv2 of Brody, Alon and Yahav: `torch_geometric.nn.models.GAT`. Self-loops are added unless the
//! configuration says otherwise. In the plain stack the last layer's output is the mean of its heads.

use graphweft_tensor::{Error, Result};
use serde::{Deserialize, Serialize};

use super::check_heads;
use super::stack::{self, Place, Shell};
use crate::convs::gat::{Bias, GatConv, Heads};
use crate::convs::gatv2::Gatv2Conv;
use crate::init::Init;
use crate::network::{Network, Shape};
use crate::parts::activation::ActivationKind;
use crate::parts::norm::NormKind;

/// Keys of the `[model]` section: those of a [stack](stack::Config) and `heads`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)] // As in the stack.
pub struct Config {
    pub hidden: usize,
    pub layers: usize,
    pub stack: Shell,
    pub norm: NormKind,
    pub activation: ActivationKind,
    pub residual: bool,
    pub input_linear: bool,
    /// Attention heads, which share the hidden columns.
    pub heads: usize,
    /// Heads of the last layer of the plain stack, where they are not `heads`: the paper has 1 on Cora. PyTorch Geometric's own
    /// model has the same number everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_heads: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        let stack::Config { hidden, layers, stack, norm, residual, input_linear, .. } = Default::default();
        Self {
            hidden,
            layers,
            stack,
            norm,
            activation: ActivationKind::Elu,
            residual,
            input_linear,
            heads: 8,
            output_heads: None,
        }
    }
}

impl Config {
    fn split(&self, op: &'static str) -> Result<(stack::Config, [usize; 2])> {
        let &Self { hidden, layers, stack, norm, activation, residual, input_linear, heads, output_heads } = self;
        check_heads(op, hidden, heads)?;
        let problem = match output_heads {
            Some(0) => "model.output_heads = 0: it takes at least one",
            Some(_) if stack == Shell::Tuned => {
                "model.output_heads needs model.stack = \"plain\": no head is last in \"tuned\""
            }
            _ => {
                let heads = [heads, output_heads.unwrap_or(heads)];
                return Ok((stack::Config { hidden, layers, stack, norm, activation, residual, input_linear }, heads));
            }
        };
        Err(Error::Argument { op, problem: problem.into() })
    }
}

fn heads_of(place: &Place<'_>, [heads, last]: [usize; 2]) -> Heads {
    if place.last { Heads::Mean(last) } else { Heads::Concat(heads) }
}

/// Builds GAT.
pub fn build(config: &Config, init: &Init<'_>, shape: &Shape) -> Result<Network> {
    let (config, heads) = config.split("gat")?;
    let bias = if config.stack == Shell::Plain { Bias::Zeros } else { Bias::None };
    stack::build("gat", &config, init, shape, |place| {
        let heads = heads_of(place, heads);
        Ok(Box::new(GatConv::new(init, place.name, place.inputs, place.outputs, heads, bias)?))
    })
}

/// Builds GATv2.
pub fn build_v2(config: &Config, init: &Init<'_>, shape: &Shape) -> Result<Network> {
    let (config, heads) = config.split("gatv2")?;
    stack::build("gatv2", &config, init, shape, |place| {
        let heads = heads_of(place, heads);
        Ok(Box::new(Gatv2Conv::new(init, place.name, place.inputs, place.outputs, heads)?))
    })
}
