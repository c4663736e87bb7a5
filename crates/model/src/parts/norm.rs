//! Normalisations that a model can choose between.

use std::rc::Rc;

use graphweft_tensor::ops::batch_norm::{Running, batch_norm, fixed_norm};
use graphweft_tensor::ops::norm::{Norm, layer_norm};
use graphweft_tensor::ops::residual::{post_norm, residual};
use graphweft_tensor::{Parameter, Result, Tape, Var};
use serde::{Deserialize, Serialize};

use crate::graph_ops::Total;
use crate::init::Init;
use crate::network::{Buffer, Context, Mode, Rates};
use crate::parts::graph_norm::graph_norm;

/// Of the running moments, as in PyTorch.
const MOMENTUM: f64 = 0.1;

/// Which normalisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormKind {
    /// None.
    None,
    /// Over the columns of a row.
    #[default]
    Layer,
    /// Over all nodes of all ranks.
    Batch,
    /// Whole graphs: over the nodes of each graph.
    Graph,
}

/// A normalisation with its parameters.
pub enum Normalisation {
    /// None.
    None,
    /// Over the columns of a row.
    Layer(Norm),
    /// Over all nodes, with running moments for evaluation.
    Batch {
        /// Scale and shift.
        norm: Norm,
        /// Running moments.
        running: Rc<Running>,
        /// The same as they are saved: means and variances, n − 1 in the denominator.
        saved: [Rc<Buffer>; 2],
    },
    /// Over the nodes of each graph.
    Graph {
        /// Scale and shift.
        norm: Norm,
        /// How much of a mean is subtracted, by column.
        share: Rc<Parameter>,
    },
}

impl Normalisation {
    /// A normalisation of `width` columns called `name`.
    pub fn new(kind: NormKind, init: &Init<'_>, name: &str, width: usize) -> Result<Self> {
        Ok(match kind {
            NormKind::None => Self::None,
            NormKind::Layer => Self::Layer(init.norm(name, width)?),
            NormKind::Batch => {
                let running = Rc::new(init.running(width, MOMENTUM)?);
                Self::Batch { norm: init.norm(name, width)?, saved: Buffer::of_running(name, &running), running }
            }
            NormKind::Graph => Self::Graph {
                norm: init.norm(name, width)?,
                share: init.vector(&format!("{name}.mean_scale"), width, 1.0)?,
            },
        })
    }

    /// The same as PyTorch Geometric names it, whose batch norm is a module inside a module.
    pub fn wrapped(kind: NormKind, init: &Init<'_>, name: &str, width: usize) -> Result<Self> {
        match kind {
            NormKind::Batch => Self::new(kind, init, &format!("{name}.module"), width),
            _ => Self::new(kind, init, name, width),
        }
    }

    /// Whether it does nothing.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether a number that is added to a whole column before it makes no difference after it.
    pub fn ignores_shifts(&self) -> bool {
        matches!(self, Self::Batch { .. })
    }

    /// Those of `biases` that make no difference where they are added to what this normalises.
    pub fn hidden<'a>(&self, biases: impl IntoIterator<Item = Option<&'a Rc<Parameter>>>) -> Vec<Rc<Parameter>> {
        let biases = biases.into_iter().flatten().filter(|_| self.ignores_shifts());
        biases.cloned().collect()
    }

    /// The same for what [`forward_residual`](Self::forward_residual) normalises: dropout of it makes a bias visible.
    pub fn hidden_in_residual(&self, rates: Rates, bias: Option<&Rc<Parameter>>) -> Vec<Rc<Parameter>> {
        self.hidden([bias.filter(|_| rates.hidden == 0.0)])
    }

    /// What is trained.
    pub fn parameters(&self) -> Vec<Rc<Parameter>> {
        match self {
            Self::None => Vec::new(),
            Self::Layer(norm) | Self::Batch { norm, .. } => vec![Rc::clone(&norm.weight), Rc::clone(&norm.bias)],
            Self::Graph { norm, share } => vec![Rc::clone(&norm.weight), Rc::clone(&norm.bias), Rc::clone(share)],
        }
    }

    /// What else is saved.
    pub fn buffers(&self) -> Vec<Rc<Buffer>> {
        match self {
            Self::Batch { saved, .. } => saved.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Normalises `x`.
    pub fn forward(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Var) -> Result<Var> {
        match self {
            Self::None => Ok(x.clone()),
            Self::Layer(norm) => layer_norm(tape, x, norm),
            Self::Graph { norm, share } => graph_norm(tape, cx, x, norm, share),
            Self::Batch { norm, running, .. } if cx.mode == Mode::Evaluate => fixed_norm(tape, x, norm, running),
            Self::Batch { norm, running, .. } => {
                let moments = cx.ops.moments(layer, x.value())?;
                if !tape.is_replaying() {
                    running.follow(&moments)?;
                }
                batch_norm(tape, x, norm, &moments, cx.ops.reduce(Total::Moments, layer))
            }
        }
    }

    /// Normalises `x + dropout(z)`, with the dropout of hidden rows numbered `stream`.
    pub fn forward_residual(
        &self,
        tape: &mut Tape,
        cx: &Context,
        layer: u32,
        stream: u32,
        x: &Var,
        z: &Var,
    ) -> Result<Var> {
        let drop = cx.rows(cx.rates.hidden, layer, stream);
        match self {
            Self::Layer(norm) => post_norm(tape, x, z, drop.as_ref(), norm),
            _ => {
                let sum = residual(tape, x, z, drop.as_ref())?;
                self.forward(tape, cx, layer, &sum)
            }
        }
    }
}
