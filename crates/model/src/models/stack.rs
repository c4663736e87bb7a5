//! Convolutions one after another: what GCN, GraphSAGE, GAT, GATv2 and GIN share. There are two shapes.
//!
//! *Plain*, PyTorch Geometric's `torch_geometric.nn.models`: x = dropout(act(norm(convs.k(x)))) for all layers but the
//! last, which gives the logits. Parameters are called `convs.k.*` and `norms.k.*`.
//!
//! *Tuned*, after Luo, Shi and Wu, "Classic GNNs are strong baselines" (NeurIPS 2024): x =
//! dropout(act(norm(local_convs.k(x) + lins.k(x)))), with residual branch and norm as asked for, then the linear layer
//! `pred_local`; on request the linear layer `lin_in` and a dropout come first.
//!
//! Where whole graphs are predicted, all layers of both are as those between, and [readouts](crate::parts::readout)
//! come at the end: `readout.lin` in place of a plain last layer's output, or a linear layer `readout.k` for each.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::dropout::dropout;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::{Error, Parameter, Result, Tape, Var};
use serde::{Deserialize, Serialize};

use super::{check_layers, no_encodings};
use crate::convs::{Conv, End};
use crate::init::{Init, Inputs};
use crate::keys::keys;
use crate::network::{Buffer, Context, Layer, Network, Rates, Shape};
use crate::parts::activation::ActivationKind;
use crate::parts::head::{Head, parameters};
use crate::parts::input::{Embedding, Input};
use crate::parts::norm::{NormKind, Normalisation};
use crate::parts::readout::{GraphHead, LayerReadout, ReadoutFrom, ReadoutKind, VirtualNode};

/// Which shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shell {
    /// PyTorch Geometric's own models.
    #[default]
    Plain,
    /// With residual branches and a linear layer at the end.
    Tuned,
}

keys! {
    /// Columns between layers.
    hidden: usize = 128,
    /// Convolutions.
    layers: usize = 3,
    /// The shape.
    stack: Shell = Shell::Plain,
    /// Between layers.
    norm: NormKind = NormKind::None,
    /// Between layers.
    activation: ActivationKind = ActivationKind::Relu,
    /// A linear function of a layer's input is added to its output (`tuned`).
    residual: bool = false,
    /// A linear layer comes first (`tuned`).
    input_linear: bool = false,
    /// Whole graphs: how the nodes of one become a row.
    readout: ReadoutKind = ReadoutKind::Mean,
    /// Whole graphs: which layers are read out.
    readout_from: ReadoutFrom = ReadoutFrom::Last,
    /// Whole graphs: all nodes of one see a node of its own (`tuned`, after a linear layer).
    virtual_node: bool = false,
}

/// The keys of a stack and more, since keys that are unknown could not be refused if one were inside of the other.
macro_rules! keys_of_a_stack {
    ($(#[$about:meta])* { $($(#[$doc:meta])* $key:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[allow(missing_docs)] // As in the stack.
        pub struct Config {
            pub hidden: usize,
            pub layers: usize,
            pub stack: $crate::models::stack::Shell,
            pub norm: $crate::parts::norm::NormKind,
            pub activation: $crate::parts::activation::ActivationKind,
            pub residual: bool,
            pub input_linear: bool,
            pub readout: $crate::parts::readout::ReadoutKind,
            pub readout_from: $crate::parts::readout::ReadoutFrom,
            pub virtual_node: bool,
            $($(#[$doc])* pub $key: $kind,)*
        }

        impl Config {
            /// The keys of the stack.
            fn of_stack(&self) -> $crate::models::stack::Config {
                $crate::models::stack::Config {
                    hidden: self.hidden,
                    layers: self.layers,
                    stack: self.stack,
                    norm: self.norm,
                    activation: self.activation,
                    residual: self.residual,
                    input_linear: self.input_linear,
                    readout: self.readout,
                    readout_from: self.readout_from,
                    virtual_node: self.virtual_node,
                }
            }

            /// Those of a stack, with these of its own.
            fn beside(of_stack: $crate::models::stack::Config, $($key: $kind),*) -> Self {
                Self {
                    hidden: of_stack.hidden,
                    layers: of_stack.layers,
                    stack: of_stack.stack,
                    norm: of_stack.norm,
                    activation: of_stack.activation,
                    residual: of_stack.residual,
                    input_linear: of_stack.input_linear,
                    readout: of_stack.readout,
                    readout_from: of_stack.readout_from,
                    virtual_node: of_stack.virtual_node,
                    $($key),*
                }
            }
        }
    };
}
pub(super) use keys_of_a_stack;

/// A convolution to be made.
pub struct ConvSpec<'a> {
    /// Of its parameters.
    pub name: &'a str,
    /// Columns of its input.
    pub inputs: Inputs,
    /// Columns of its output.
    pub outputs: usize,
    /// Whether its output is the model's.
    pub last: bool,
}

/// Builds `model`, a stack of what `conv` makes.
pub fn build(
    model: &'static str,
    config: &Config,
    init: &Init<'_>,
    shape: &Shape,
    conv: impl Fn(&ConvSpec<'_>) -> Result<Box<dyn Conv>>,
) -> Result<Network> {
    config.check(model, shape)?;
    let stack = Stack { config, init, shape, conv: &conv };
    match config.stack {
        Shell::Plain => stack.plain(),
        Shell::Tuned => stack.tuned(),
    }
}

impl Config {
    fn check(&self, model: &'static str, shape: &Shape) -> Result<()> {
        check_layers(model, self.layers)?;
        if !self.input_linear {
            no_encodings(model, shape)?;
        }
        let problem = if self.hidden == 0 {
            "model.hidden = 0: it takes at least one column"
        } else if self.stack == Shell::Plain && self.residual {
            "model.residual = true needs model.stack = \"tuned\""
        } else if self.stack == Shell::Plain && self.input_linear {
            "model.input_linear = true needs model.stack = \"tuned\""
        } else if self.virtual_node && !(self.stack == Shell::Tuned && self.input_linear) {
            "model.virtual_node = true needs model.stack = \"tuned\" and model.input_linear = true"
        } else if self.virtual_node && !shape.of_graphs() {
            "model.virtual_node = true is for data of many graphs"
        } else {
            return Ok(());
        };
        Err(Error::Argument { op: model, problem: problem.into() })
    }
}

/// A stack to be made of convolutions.
struct Stack<'a> {
    config: &'a Config,
    init: &'a Init<'a>,
    shape: &'a Shape,
    conv: &'a dyn Fn(&ConvSpec<'_>) -> Result<Box<dyn Conv>>,
}

impl Stack<'_> {
    fn plain(&self) -> Result<Network> {
        let &Self { config, init, shape, conv } = self;
        let layer = |k: usize| -> Result<Rc<dyn Layer>> {
            let last = k + 1 == config.layers && !shape.of_graphs();
            let name = format!("convs.{k}");
            let inputs = if k == 0 { shape.inputs() } else { config.hidden.into() };
            let outputs = if last { shape.classes } else { config.hidden };
            let norm = if last { NormKind::None } else { config.norm };
            Ok(Rc::new(StackLayer {
                number: k as u32 + 1,
                conv: conv(&ConvSpec { name: &name, inputs, outputs, last })?,
                name,
                branch: None,
                norm: Normalisation::wrapped(norm, init, &format!("norms.{k}"), outputs)?,
                activation: if last { Activation::None } else { config.activation.into() },
                last,
            }))
        };
        let layers = (0..config.layers).map(layer).collect::<Result<Vec<_>>>()?;
        Ok(Network::new(if shape.of_graphs() { self.read_out(layers, "readout.lin")? } else { layers }))
    }

    fn tuned(&self) -> Result<Network> {
        let &Self { config, init, shape, conv } = self;
        let mut layers: Vec<Rc<dyn Layer>> = Vec::new();
        if config.input_linear {
            layers.push(Rc::new(Entrance(Embedding::new(init, "lin_in", shape, config.hidden)?)));
        }
        let mut convolutions: Vec<Rc<dyn Layer>> = Vec::new();
        for k in 0..config.layers {
            let name = format!("local_convs.{k}");
            let inputs = if k == 0 && layers.is_empty() { shape.inputs() } else { config.hidden.into() };
            let outputs = config.hidden;
            let branch = config.residual.then(|| init.linear(&format!("lins.{k}"), inputs, outputs)).transpose()?;
            let norm = match config.norm {
                NormKind::Batch => format!("bns.{k}"),
                _ => format!("lns.{k}"),
            };
            convolutions.push(Rc::new(StackLayer {
                number: k as u32 + 1,
                conv: conv(&ConvSpec { name: &name, inputs, outputs, last: false })?,
                name,
                branch,
                norm: Normalisation::new(config.norm, init, &norm, outputs)?,
                activation: config.activation.into(),
                last: false,
            }));
        }
        if shape.of_graphs() {
            layers.extend(self.read_out(convolutions, "pred_local")?);
            return Ok(Network::new(layers));
        }
        layers.extend(convolutions);
        layers.push(Rc::new(Head::new(init, "pred_local", config.hidden, shape.classes)?));
        Ok(Network::new(layers))
    }

    /// Convolutions with what reads graphs out of them; a layer called `head`, where that is one layer.
    fn read_out(&self, convolutions: Vec<Rc<dyn Layer>>, head: &str) -> Result<Vec<Rc<dyn Layer>>> {
        let &Self { config, init, shape, .. } = self;
        let mut layers: Vec<Rc<dyn Layer>> = Vec::new();
        let shapes = [shape.features, config.hidden, shape.classes];
        for (k, convolution) in (1..).zip(convolutions) {
            if config.virtual_node {
                layers.push(Rc::new(VirtualNode::new(init, k, config.layers, config.hidden)?));
            }
            layers.push(convolution);
            if config.readout_from == ReadoutFrom::All {
                layers.push(Rc::new(LayerReadout::new(init, config.readout, k, config.layers, shapes)?));
            }
        }
        if config.readout_from == ReadoutFrom::Last {
            layers.push(Rc::new(GraphHead::new(init, head, config.readout, config.hidden, shape.classes)?));
        }
        Ok(layers)
    }
}

/// The linear layer that comes first, with positional encodings where there are any, and a dropout.
struct Entrance(Embedding);

impl Layer for Entrance {
    fn name(&self) -> String {
        "lin_in".into()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        self.0.parameters()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let mut rows = self.0.forward(tape, cx, state)?;
        if let Some(drop) = cx.rows(cx.rates.hidden, 0, 1) {
            rows[0] = dropout(tape, &rows[0], &drop)?;
        }
        Ok(rows)
    }
}

struct StackLayer {
    number: u32,
    name: String,
    conv: Box<dyn Conv>,
    branch: Option<Affine>,
    norm: Normalisation,
    activation: Activation,
    last: bool,
}

impl Layer for StackLayer {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let branch = self.branch.iter().flat_map(parameters);
        self.conv.parameters().into_iter().chain(branch).chain(self.norm.parameters()).collect()
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.conv.buffers().into_iter().chain(self.norm.buffers()).collect()
    }

    fn without_effect(&self, _: Rates) -> Vec<Rc<Parameter>> {
        let branch = self.branch.as_ref().and_then(|a| a.bias.as_ref());
        let mut all = self.norm.hidden([self.conv.bias(), branch]);
        all.extend(self.conv.without_effect());
        all
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let x = Input::of(tape, cx, state)?;
        let branch = self.branch.as_ref().map(|a| x.linear(tape, a, Activation::None, cx.dtype)).transpose()?;
        let plus = branch.as_ref();
        if self.last {
            let end = End { plus, ..End::default() };
            return Ok(vec![self.conv.forward(tape, cx, self.number, &x, end, cx.dtype.compute())?]);
        }
        let (activation, dropped) = (self.activation, cx.rows(cx.rates.hidden, self.number, 1));
        let dropout = dropped.as_ref();
        // What is carried beside the rows goes on as it is.
        let with_rest = |y: Var| std::iter::once(y).chain(state.iter().skip(1).cloned()).collect();
        if self.norm.is_none() {
            let end = End { plus, activation, dropout };
            return Ok(with_rest(self.conv.forward(tape, cx, self.number, &x, end, cx.dtype)?));
        }
        let y = self.conv.forward(tape, cx, self.number, &x, End { plus, ..End::default() }, cx.dtype)?;
        drop((x, branch));
        let y = self.norm.forward(tape, cx, self.number, &y)?;
        Ok(with_rest(epilogue(tape, &y, Epilogue { activation, dropout, ..Epilogue::default() }, cx.dtype)?))
    }
}
