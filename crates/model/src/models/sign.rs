//! SIGN of Frasca et al. ("Scalable inception graph neural networks"), as PyTorch Geometric's example has it: features
//! of neighbourhoods of several sizes, then a perceptron.
//!
//! X, SX, S²X, … with S = D^-½AD^-½ do not depend on any parameter. They are computed in the first step and kept; each
//! is then multiplied by weights of its own (`lins.k`), with ReLU and dropout; side by side they go through a
//! perceptron (`mlp.k`). After the first step only gradients are sent, and a row is work of its own: hops · features
//! numbers per node are kept for that.
//!
//! Where rows of neighbours are not the same at every step, as in a pipeline, they are computed in each.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::combine::concat;
use graphweft_tensor::ops::dropout::dropout;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{DType, Error, Matrix, Parameter, Result, Tape, Var};

use super::{check_layers, no_encodings};
use crate::graph_ops::{Aggregation, EdgeWeight, GraphOps};
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Context, Features, Layer, Network, Shape};
use crate::parts::head::parameters;
use crate::parts::input::Input;
use crate::parts::linear::Perceptron;

/// Stream of the dropout of features, as that of other models.
const STREAM: u32 = 7;

keys! {
    /// Columns between linear layers, for each hop those of the first.
    hidden: usize = 128,
    /// Linear layers, with the first, of which there is one per hop.
    layers: usize = 2,
    /// How far features are gathered: each step is kept.
    hops: usize = 3,
}

/// Features of one more hop, which are appended to the state.
struct Hop {
    number: u32,
    kept: RefCell<Option<Kept>>,
}

/// What was computed with these operations.
struct Kept {
    by: Weak<dyn GraphOps>,
    rows: Matrix,
}

impl Hop {
    /// What was kept, if it is of this graph.
    fn kept(&self, ops: &Rc<dyn GraphOps>) -> Option<Matrix> {
        let kept = self.kept.borrow();
        let own = |kept: &&Kept| kept.by.ptr_eq(&Rc::downgrade(ops)) && ops.repeats();
        kept.as_ref().filter(own).map(|kept| kept.rows.clone())
    }

    /// The rows of the hop before.
    fn before(&self, cx: &Context, state: &[Var]) -> Result<Matrix> {
        match (state.last(), &cx.features) {
            (Some(x), _) => Ok(x.value().clone()),
            (None, Features::Dense(x)) => Ok(x.clone()),
            (None, Features::Sparse(bag)) => bag.dense(cx.dtype),
        }
    }
}

impl Layer for Hop {
    fn name(&self) -> String {
        format!("hops.{}", self.number)
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let rows = match self.kept(&cx.ops) {
            Some(rows) => rows,
            None => {
                let mut once = Tape::without_gradients(tape.device());
                let x = once.constant(self.before(cx, state)?);
                let (how, weight) = (Aggregation::Sum, EdgeWeight::Symmetric);
                let rows = cx.ops.aggregate(&mut once, self.number, &x, how, weight)?.value().clone();
                *self.kept.borrow_mut() = Some(Kept { by: Rc::downgrade(&cx.ops), rows: rows.clone() });
                rows
            }
        };
        let mut state = state.to_vec();
        state.push(tape.constant(rows));
        Ok(state)
    }
}

/// Weights for the features of every hop, and what they come to side by side.
struct Mix {
    /// Counts on from the hops.
    number: u32,
    hops: Vec<Affine>,
}

impl Layer for Mix {
    fn name(&self) -> String {
        "lins".into()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        self.hops.iter().flat_map(parameters).collect()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let mut parts = vec![Input::features(tape, cx)?.linear(tape, &self.hops[0], Activation::Relu, cx.dtype)?];
        for (k, (x, affine)) in state.iter().zip(&self.hops[1..]).enumerate() {
            let drop = cx.rows(cx.rates.input, k as u32 + 1, STREAM);
            let x = drop.map_or_else(|| Ok(x.clone()), |drop| dropout(tape, x, &drop))?;
            parts.push(linear(tape, &x, std::slice::from_ref(affine), Activation::Relu, cx.dtype)?);
        }
        let y = concat(tape, &parts.iter().collect::<Vec<_>>())?;
        let drop = cx.rows(cx.rates.hidden, self.number, 1);
        Ok(vec![epilogue(tape, &y, Epilogue { dropout: drop.as_ref(), ..Epilogue::default() }, cx.dtype)?])
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo { hops: self.hops, ..ModelInfo::new(Reach::Edges, self.hidden, self.layers) }
    }

    fn passes_features(&self) -> bool {
        true
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let &Config { hidden, layers, hops } = self;
        check_layers(Self::NAME, layers)?;
        no_encodings(Self::NAME, shape)?;
        let refused = |problem: &str| Error::Argument { op: Self::NAME, problem: problem.into() };
        if layers < 2 {
            return Err(refused(
                "model.layers = 1: the first layer is one per hop, another one puts them together; take 2",
            ));
        }
        if hops == 0 {
            return Err(refused("model.hops = 0: it takes at least one; without any it is model.name = \"mlp\""));
        }
        let hop = |k: usize| -> Rc<dyn Layer> { Rc::new(Hop { number: k as u32, kept: RefCell::default() }) };
        let mut all: Vec<Rc<dyn Layer>> = (0..hops).map(hop).collect();
        let lins = (0..=hops).map(|k| init.linear(&format!("lins.{k}"), shape.features, hidden));
        all.push(Rc::new(Mix { number: hops as u32, hops: lins.collect::<Result<_>>()? }));
        let (first, inputs) = (hops as u32 + 1, (hops + 1) * hidden);
        let rest = Perceptron {
            name: "mlp",
            first,
            layers: layers - 1,
            inputs: inputs.into(),
            hidden,
            outputs: shape.classes,
        };
        all.extend(rest.build(init, DType::compute)?);
        Ok(Network::new(all))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "sign";
    const ABOUT: &'static str = "features of several hops, computed once, then a perceptron";
}
