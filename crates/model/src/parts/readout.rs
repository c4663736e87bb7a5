//! From nodes to whole graphs: the last layers of a model that predicts something of graphs, and a node that all nodes
//! of a graph see.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::dropout::{RowDropout, dropout};
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::ops::residual::residual;
use graphweft_tensor::ops::segments::{Readout, Segments};
use graphweft_tensor::{Error, Parameter, Result, Tag, Tape, Var};
use serde::{Deserialize, Serialize};

use crate::init::Init;
use crate::network::{Buffer, Context, Layer, Rates};
use crate::parts::head::parameters;
use crate::parts::input::Input;
use crate::parts::norm::{NormKind, Normalisation};
use crate::parts::set2set::Set2Set;

/// Stream of the dropout of rows of graphs.
const STREAM: u32 = 9;
/// And of those of virtual nodes.
const VIRTUAL: u32 = 10;

/// How the nodes of a graph become one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadoutKind {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// Their maximum per column.
    Max,
    /// A sum, weighed by a softmax inside the graph of a score that is learned.
    Attention,
    /// Set2Set: an LSTM asks three times, and each time gets a sum that a softmax inside the graph weighs.
    Set,
}

impl ReadoutKind {
    /// The same as an operation; nothing for those that have parameters.
    fn plain(self) -> Option<Readout> {
        match self {
            Self::Sum => Some(Readout::Sum),
            Self::Mean => Some(Readout::Mean),
            Self::Max => Some(Readout::Max),
            Self::Attention | Self::Set => None,
        }
    }
}

/// Which layers' rows are read out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadoutFrom {
    /// Those of the last.
    #[default]
    Last,
    /// Those of each and the features, with a linear layer for each, whose outputs are added up: as GIN was published.
    All,
}

/// The graphs of the batch.
pub(crate) fn graphs<'a>(op: &'static str, cx: &'a Context) -> Result<&'a Rc<Segments>> {
    let problem = || Error::Argument { op, problem: "this is one graph, and it is for data of many graphs".into() };
    cx.graphs.as_ref().ok_or_else(problem)
}

/// A dropout of rows of graphs, if anything is to be dropped.
fn drop_graphs(cx: &Context, of: &Segments, layer: u32, stream: u32) -> Option<RowDropout> {
    cx.rows(cx.rates.hidden, layer, stream).map(|drop| RowDropout { ids: of.ids().clone(), ..drop })
}

/// Logits of graphs from rows of nodes: a readout, a dropout and a linear layer.
pub struct GraphHead {
    kind: ReadoutKind,
    gate: Option<Affine>,
    set: Option<Set2Set>,
    affine: Affine,
}

impl GraphHead {
    /// A layer called `name`; the score of an attention is called `readout.gate`, an LSTM `readout.lstm`.
    pub fn new(init: &Init<'_>, name: &str, kind: ReadoutKind, inputs: usize, classes: usize) -> Result<Self> {
        // The softmax subtracts a bias of the score again.
        let gate = || init.linear("readout.gate", inputs, 1).map(|affine| Affine { bias: None, ..affine });
        let gate = (kind == ReadoutKind::Attention).then(gate).transpose()?;
        let set = || Set2Set::new(init, "readout.lstm", inputs);
        let set = (kind == ReadoutKind::Set).then(set).transpose()?;
        let inputs = if set.is_some() { 2 * inputs } else { inputs };
        Ok(Self { kind, gate, set, affine: init.linear(name, inputs, classes)? })
    }
}

impl Layer for GraphHead {
    fn name(&self) -> String {
        "output".into()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let set = self.set.iter().flat_map(Set2Set::parameters);
        self.gate.iter().chain([&self.affine]).flat_map(parameters).chain(set).collect()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let (of, x, compute) = (graphs("readout", cx)?, &state[0], cx.dtype.compute());
        let pooled = match (&self.gate, &self.set) {
            (Some(gate), _) => {
                let score = linear(tape, x, std::slice::from_ref(gate), Activation::None, compute)?;
                of.attend(tape, &score, x)?
            }
            (None, Some(set)) => set.forward(tape, of, x)?,
            (None, None) => of.readout(tape, x, self.kind.plain().unwrap_or(Readout::Mean))?,
        };
        let pooled = match drop_graphs(cx, of, 0, STREAM) {
            Some(drop) => dropout(tape, &pooled, &drop)?,
            None => pooled,
        };
        Ok(vec![linear(tape, &pooled, std::slice::from_ref(&self.affine), Activation::None, compute)?])
    }
}

/// What one layer's rows add to the logits of graphs, which are carried beside them.
pub struct LayerReadout {
    number: u32,
    how: Readout,
    affine: Affine,
    /// For the features, which the first layer's readout takes along.
    features: Option<Affine>,
    last: bool,
}

impl LayerReadout {
    /// That of layer `number` of `layers`, counted from 1. Linear layers are called `readout.{number}`, that of the
    /// features `readout.0`.
    ///
    /// # Errors
    /// If the readout is not linear.
    pub fn new(init: &Init<'_>, kind: ReadoutKind, number: usize, layers: usize, shapes: [usize; 3]) -> Result<Self> {
        let [features, hidden, classes] = shapes;
        let how = kind.plain().filter(|how| *how != Readout::Max).ok_or_else(|| Error::Argument {
            op: "readout",
            problem: "model.readout_from = \"all\" needs model.readout = \"sum\" or \"mean\"".into(),
        })?;
        Ok(Self {
            number: number as u32,
            how,
            affine: init.linear(&format!("readout.{number}"), hidden, classes)?,
            features: (number == 1).then(|| init.linear("readout.0", features, classes)).transpose()?,
            last: number == layers,
        })
    }
}

impl Layer for LayerReadout {
    fn name(&self) -> String {
        format!("readout.{}", self.number)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        std::iter::once(&self.affine).chain(&self.features).flat_map(parameters).collect()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let (of, compute) = (graphs("readout", cx)?, cx.dtype.compute());
        let dropped = |tape: &mut Tape, y: Var, layer: u32| match drop_graphs(cx, of, layer, STREAM) {
            Some(drop) => dropout(tape, &y, &drop),
            None => Ok(y),
        };
        let pooled = of.readout(tape, &state[0], self.how)?;
        let own = linear(tape, &pooled, std::slice::from_ref(&self.affine), Activation::None, compute)?;
        let mut sum = dropped(tape, own, self.number)?;
        if let Some(affine) = &self.features {
            // A sum of products is the product of the sum, and rows of features may be sparse.
            let product = Affine { bias: None, ..affine.clone() };
            let rows = Input::features(tape, cx)?.linear(tape, &product, Activation::None, compute)?;
            let rows = of.readout(tape, &rows, self.how)?;
            let first = Epilogue { bias: affine.bias.as_ref(), ..Epilogue::default() };
            let first = epilogue(tape, &rows, first, compute)?;
            let first = dropped(tape, first, 0)?;
            sum = residual(tape, &sum, &first, None)?;
        }
        if let Some(before) = state.get(1) {
            sum = residual(tape, before, &sum, None)?;
        }
        Ok(if self.last { vec![sum] } else { vec![state[0].clone(), sum] })
    }
}

/// A node that all nodes of its graph see, and that sees them: before a layer its row is added to theirs, and after all
/// layers but the last it is a network of its own row and their sum, as OGB has it.
pub struct VirtualNode {
    number: u32,
    /// Its row before the first layer.
    start: Option<Rc<Parameter>>,
    update: Option<Update>,
    hidden: usize,
}

/// Two linear layers with batch norms.
struct Update {
    lins: [Affine; 2],
    norms: [Normalisation; 2],
}

impl VirtualNode {
    /// That of layer `number` of `layers`, counted from 1.
    pub fn new(init: &Init<'_>, number: usize, layers: usize, hidden: usize) -> Result<Self> {
        let name = format!("virtual.{number}");
        let update = || -> Result<Update> {
            let norm = |k: usize, width| Normalisation::new(NormKind::Batch, init, &format!("{name}.norms.{k}"), width);
            let lins = [
                init.linear(&format!("{name}.lins.0"), hidden, 2 * hidden)?,
                init.linear(&format!("{name}.lins.1"), 2 * hidden, hidden)?,
            ];
            Ok(Update { lins, norms: [norm(0, 2 * hidden)?, norm(1, hidden)?] })
        };
        Ok(Self {
            number: number as u32,
            start: (number == 1).then(|| init.vector("virtual.start", hidden, 0.0)).transpose()?,
            update: (number < layers).then(update).transpose()?,
            hidden,
        })
    }
}

impl Layer for VirtualNode {
    fn name(&self) -> String {
        format!("virtual.{}", self.number)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let update = self.update.iter().flat_map(|update| {
            let norms = update.norms.iter().flat_map(Normalisation::parameters);
            update.lins.iter().flat_map(parameters).chain(norms)
        });
        self.start.iter().cloned().chain(update).collect()
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.update.iter().flat_map(|update| &update.norms).flat_map(Normalisation::buffers).collect()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn without_effect(&self, _: Rates) -> Vec<Rc<Parameter>> {
        let hidden = |update: &Update| {
            let both = update.norms.iter().zip(&update.lins);
            both.flat_map(|(norm, affine)| norm.hidden([affine.bias.as_ref()])).collect::<Vec<_>>()
        };
        self.update.iter().flat_map(hidden).collect()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let of = graphs("virtual node", cx)?;
        let before = match (&self.start, state.get(1)) {
            (None, Some(before)) => before.clone(),
            (start, _) => {
                let zeros = tape.device().zeros("virtual node", of.count(), self.hidden, cx.dtype, Tag::Activations)?;
                let zeros = tape.constant(zeros);
                epilogue(tape, &zeros, Epilogue { bias: start.as_ref(), ..Epilogue::default() }, cx.dtype)?
            }
        };
        let seen = of.spread(tape, &before)?;
        let x = residual(tape, &state[0], &seen, None)?;
        let Some(update) = &self.update else { return Ok(vec![x]) };
        let sum = of.readout(tape, &x, Readout::Sum)?;
        let mut row = residual(tape, &before, &sum, None)?;
        for (k, (affine, norm)) in update.lins.iter().zip(&update.norms).enumerate() {
            row = linear(tape, &row, std::slice::from_ref(affine), Activation::None, cx.dtype)?;
            row = norm.forward(tape, cx, self.number, &row)?;
            let drop = if k == 1 { drop_graphs(cx, of, self.number, VIRTUAL) } else { None };
            let end = Epilogue { activation: Activation::Relu, dropout: drop.as_ref(), ..Epilogue::default() };
            row = epilogue(tape, &row, end, cx.dtype)?;
        }
        Ok(vec![x, row])
    }
}
