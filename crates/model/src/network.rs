//! A model as a list of layers, and what they are told.
//!
//! What goes from layer to layer is explicit: a list of matrices, such as x, or x and the first layer's output. So
//! whoever runs a model may stop between any two layers: to compute a layer again in backward, to share layers among
//! the stages of a pipeline, or to go through a graph that does not fit, layer by layer.
//!
//! A layer names the parameters on which the loss does not depend, such as biases before a batch norm and biases of
//! keys. Their gradient is made exactly zero. By rounding alone it would not be, it would differ from strategy to
//! strategy, and Adam would make steps of full length of it.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use graphweft_tensor::ops::bag::Bag;
use graphweft_tensor::ops::batch_norm::Running;
use graphweft_tensor::ops::dropout::RowDropout;
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::ops::grouped::RowTypes;
use graphweft_tensor::ops::segments::Segments;
use graphweft_tensor::{DType, Dropout, Matrix, Parameter, Result, Tape, Var};
use serde::{Deserialize, Serialize};

use crate::init::Inputs;

use crate::graph_ops::GraphOps;

/// The features of this rank's nodes.
#[derive(Clone)]
pub enum Features {
    /// A row per node.
    Dense(Matrix),
    /// A bag of words.
    Sparse(Rc<Bag>),
}

impl Features {
    /// Columns.
    pub fn width(&self) -> usize {
        match self {
            Self::Dense(m) => m.cols(),
            Self::Sparse(bag) => bag.cols(),
        }
    }
}

/// What a forward pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout, moments of the batch.
    Train,
    /// No dropout, running moments.
    Evaluate,
}

/// Shares of elements that dropout drops.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Of the input features.
    pub input: f64,
    /// Of rows between and inside layers.
    pub hidden: f64,
    /// Of attention weights.
    pub attention: f64,
}

/// What is computed again in backward instead of being kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remat {
    /// Nothing.
    #[default]
    None,
    /// Attention, with the projections of its operands.
    Attention,
    /// Everything inside a layer.
    Layer,
    /// The same, and in that again its attention: least memory, but attention is computed three times.
    Both,
}

impl Remat {
    /// Every level.
    pub const ALL: [Self; 4] = [Self::None, Self::Attention, Self::Layer, Self::Both];

    /// The same, with attention computed again wherever layers are not.
    pub fn with_attention(self) -> Self {
        if self.of_layers() { self } else { Self::Attention }
    }

    /// Whether whole layers are computed again.
    pub fn of_layers(self) -> bool {
        matches!(self, Self::Layer | Self::Both)
    }

    /// Whether attention is, on its own.
    pub fn of_attention(self) -> bool {
        matches!(self, Self::Attention | Self::Both)
    }
}

impl fmt::Display for Remat {
    /// As it is written in a configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Attention => "attention",
            Self::Layer => "layer",
            Self::Both => "both",
        })
    }
}

/// What layers are told beside their input: one forward pass on one rank.
#[derive(Clone)]
pub struct Context {
    /// The graph.
    pub ops: Rc<dyn GraphOps>,
    /// The features.
    pub features: Features,
    /// Positional encodings, a row per node.
    pub positional: Option<Matrix>,
    /// Where the graphs of a batch begin and end, where there are many.
    pub graphs: Option<Rc<Segments>>,
    /// The type of each row, where nodes are of several.
    pub types: Option<Rc<RowTypes>>,
    /// Training or not.
    pub mode: Mode,
    /// Key of dropout.
    pub seed: u64,
    /// Key of dropout: the epoch, and above 32 bits the number of a step, where an epoch has several.
    pub epoch: u64,
    /// Dropout.
    pub rates: Rates,
    /// What is computed again.
    pub remat: Remat,
    /// What activations are stored as.
    pub dtype: DType,
}

impl Context {
    /// The number of the epoch.
    pub fn whole_epoch(&self) -> u64 {
        self.epoch & u64::from(u32::MAX)
    }

    /// A dropout of rows at `rate`, if anything is to be dropped. `stream` tells the dropouts of one layer apart.
    pub fn rows(&self, rate: f64, layer: u32, stream: u32) -> Option<RowDropout> {
        self.dropout(rate, layer, stream).map(|dropout| RowDropout { dropout, ids: self.ops.ids().clone() })
    }

    /// A dropout of attention weights, if anything is to be dropped.
    pub fn edges(&self, layer: u32) -> Option<Dropout> {
        self.dropout(self.rates.attention, layer, 0)
    }

    /// The same where all nodes of a graph attend to one another, beside edges.
    pub fn pairs(&self, layer: u32) -> Option<Dropout> {
        self.dropout(self.rates.attention, layer, 1)
    }

    fn dropout(&self, rate: f64, layer: u32, stream: u32) -> Option<Dropout> {
        let dropout = Dropout::new(rate, self.seed, self.epoch, layer, stream);
        (self.mode == Mode::Train && dropout.is_active()).then_some(dropout)
    }
}

/// Numbers of a layer that are not trained but belong to the model, such as running moments.
#[derive(Debug)]
pub struct Buffer {
    name: String,
    kept: Kept,
}

/// Where they are.
#[derive(Debug)]
enum Kept {
    Host(RefCell<Vec<f64>>),
    /// Means, or variances, where the layer is computed.
    Mean(Rc<Running>),
    Variance(Rc<Running>),
}

impl Buffer {
    /// A buffer with a PyTorch-style name.
    pub fn new(name: impl Into<String>, values: Vec<f64>) -> Rc<Self> {
        Rc::new(Self { name: name.into(), kept: Kept::Host(RefCell::new(values)) })
    }

    /// The running mean and the running variance of the norm with this name.
    pub fn of_running(norm: &str, running: &Rc<Running>) -> [Rc<Self>; 2] {
        let buffer = |name, kept| Rc::new(Self { name: format!("{norm}.{name}"), kept });
        let (mean, variance) = (Kept::Mean(Rc::clone(running)), Kept::Variance(Rc::clone(running)));
        [buffer("running_mean", mean), buffer("running_var", variance)]
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many values it has.
    pub fn count(&self) -> usize {
        match &self.kept {
            Kept::Host(values) => values.borrow().len(),
            Kept::Mean(running) | Kept::Variance(running) => running.cols(),
        }
    }

    /// Its values; the host waits for those that are elsewhere.
    pub fn values(&self) -> Result<Vec<f64>> {
        Ok(match &self.kept {
            Kept::Host(values) => values.borrow().clone(),
            Kept::Mean(running) => running.numbers()?.into_iter().next().unwrap_or_default(),
            Kept::Variance(running) => running.numbers()?.into_iter().nth(1).unwrap_or_default(),
        })
    }

    /// Replaces its values.
    ///
    /// # Errors
    /// If there are not as many.
    pub fn set(&self, new: Vec<f64>) -> Result<()> {
        let (running, at) = match &self.kept {
            Kept::Host(values) => {
                *values.borrow_mut() = new;
                return Ok(());
            }
            Kept::Mean(running) => (running, 0),
            Kept::Variance(running) => (running, 1),
        };
        let mut numbers = running.numbers()?;
        numbers[at] = new;
        running.set(&numbers)
    }

    /// What [puts it back](Buffer::put_back) after a forward pass that is not to count.
    pub fn mark(&self) -> Result<Mark> {
        match &self.kept {
            Kept::Host(values) => Ok(Mark(Some(values.borrow().clone()))),
            Kept::Mean(running) | Kept::Variance(running) => running.settle().map(|()| Mark(None)),
        }
    }

    /// Undoes what a forward pass has made of it since it was marked.
    pub fn put_back(&self, mark: Mark) {
        match (&self.kept, mark.0) {
            (Kept::Host(values), Some(before)) => *values.borrow_mut() = before,
            (Kept::Mean(running) | Kept::Variance(running), _) => running.forget(),
            (Kept::Host(_), None) => {}
        }
    }
}

/// What a buffer was. Running moments need not be kept: what a pass makes of them waits until it counts.
pub struct Mark(Option<Vec<f64>>);

/// A piece of a model between two states.
pub trait Layer {
    /// What to call it in messages.
    fn name(&self) -> String;

    /// What is trained.
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        Vec::new()
    }

    /// What else is saved.
    fn buffers(&self) -> Vec<Rc<Buffer>> {
        Vec::new()
    }

    /// Whether it looks along edges; if not, a row of its output depends on that row of its input alone.
    fn sees_edges(&self) -> bool {
        true
    }

    /// Passes of epochs for which this is the same number compute the same, but for dropout.
    fn phase(&self, _epoch: u64) -> u64 {
        0
    }

    /// Those of its parameters on which the loss does not depend while it is trained with these rates: biases that a
    /// batch norm subtracts again, or that add the same to all scores of a softmax.
    fn without_effect(&self, _rates: Rates) -> Vec<Rc<Parameter>> {
        Vec::new()
    }

    /// From the state before to the state after. The state before the first layer is empty (features are in `context`),
    /// that after the last one is the logits alone.
    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>>;
}

/// What a model predicts something of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Each node.
    #[default]
    Nodes,
    /// Each graph of a batch.
    Graphs,
}

/// What a model must know to be built.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Columns of the features.
    pub features: usize,
    /// Columns of the positional encodings; 0 without any.
    pub positional: usize,
    /// Columns of the logits.
    pub classes: usize,
    /// Features of edges; none where the model is not to look at any.
    pub edge_features: EdgeColumns,
    /// What it tells apart.
    pub types: TypeCounts,
    /// What its logits are of.
    pub target: Target,
}

/// How many types there are, of those that a model tells apart; 1 where it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeCounts {
    /// Of nodes.
    pub nodes: usize,
    /// Of edges, where attention has maps for them.
    pub relations: usize,
}

impl Default for TypeCounts {
    fn default() -> Self {
        Self { nodes: 1, relations: 1 }
    }
}

impl Shape {
    /// Of nodes with this many columns of features, and classes; edges have no features.
    pub fn of_nodes(features: usize, classes: usize) -> Self {
        let (edge_features, types) = (EdgeColumns::default(), TypeCounts::default());
        Self { features, positional: 0, classes, edge_features, types, target: Target::Nodes }
    }

    /// The columns of the features, for the layers that take them.
    pub fn inputs(&self) -> Inputs {
        Inputs::of_features(self.features)
    }

    /// Whether logits are those of whole graphs.
    pub fn of_graphs(&self) -> bool {
        self.target == Target::Graphs
    }
}

/// A model: layers, first to last.
pub struct Network {
    layers: Vec<Rc<dyn Layer>>,
}

impl Network {
    /// A model of these layers.
    pub fn new(layers: Vec<Rc<dyn Layer>>) -> Self {
        Self { layers }
    }

    /// The layers, first to last.
    pub fn layers(&self) -> &[Rc<dyn Layer>] {
        &self.layers
    }

    /// What is trained, in the order of the layers.
    pub fn parameters(&self) -> Vec<Rc<Parameter>> {
        self.layers.iter().flat_map(|l| l.parameters()).collect()
    }

    /// Parameters on which the loss does not depend while it is trained with these rates.
    pub fn without_effect(&self, rates: Rates) -> Vec<Rc<Parameter>> {
        self.layers.iter().flat_map(|l| l.without_effect(rates)).collect()
    }

    /// What else is saved, in the order of the layers.
    pub fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.layers.iter().flat_map(|l| l.buffers()).collect()
    }

    /// What buffers are now, before a forward pass that may not count: all that passed before do.
    pub fn marks(&self) -> Result<Vec<Mark>> {
        self.buffers().iter().map(|buffer| buffer.mark()).collect()
    }

    /// Undoes what a forward pass has made of buffers since they were marked.
    pub fn put_back(&self, marks: Vec<Mark>) {
        self.buffers().iter().zip(marks).for_each(|(buffer, mark)| buffer.put_back(mark));
    }

    /// Passes of epochs for which this is the same number compute the same, but for dropout.
    pub fn phase(&self, epoch: u64) -> u64 {
        self.layers.iter().map(|l| l.phase(epoch)).sum()
    }

    /// The logits of this rank's nodes.
    pub fn forward(&self, tape: &mut Tape, cx: &Context) -> Result<Option<Var>> {
        self.forward_watched(tape, cx, |_, _| Ok(()))
    }

    /// The same; `watch` sees each layer with the state after it.
    pub fn forward_watched(
        &self,
        tape: &mut Tape,
        cx: &Context,
        watch: impl FnMut(&dyn Layer, &[Var]) -> Result<()>,
    ) -> Result<Option<Var>> {
        let state = self.forward_from(tape, cx, Vec::new(), watch)?;
        Ok(state.into_iter().next())
    }

    /// From the state before the first of these layers to the state after the last; `watch` sees each layer with the
    /// state after it.
    pub fn forward_from(
        &self,
        tape: &mut Tape,
        cx: &Context,
        mut state: Vec<Var>,
        mut watch: impl FnMut(&dyn Layer, &[Var]) -> Result<()>,
    ) -> Result<Vec<Var>> {
        for layer in &self.layers {
            state = if cx.remat.of_layers() {
                let (segment, cx) = (Rc::clone(layer), cx.clone());
                let inputs: Vec<&Var> = state.iter().collect();
                tape.checkpoint(&inputs, move |tape, state| segment.forward(tape, &cx, state))?
            } else {
                layer.forward(tape, cx, &state)?
            };
            watch(&**layer, &state)?;
        }
        Ok(state)
    }
}
