//! Attention with any score over blocks of sources.
//!
//! Forward folds block after block into the state of an online softmax. Backward goes through the blocks with the
//! log-sum-exp of all of them: a pass by destination, a pass by source. GAT's products of sources are made of their
//! rows when these arrive, and their gradient becomes part of the rows' before they go home, so that a source is one
//! row of z and nothing else.

use std::cell::RefCell;

use graphweft_model::{Attend, EdgeValues, HeadVectors, Score};
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::attention::{Attention, Bias, DstGrads, EdgeDropout, Saved, SrcGrads};
use graphweft_tensor::ops::attention_blocks::empty_states;
use graphweft_tensor::ops::edge_values::{EdgeColumns, EdgeTail, absorb, widen};
use graphweft_tensor::ops::head_dot::{HeadDot, head_dot};
use graphweft_tensor::{DType, Device, Dropout, Error, Grads, Matrix, Result, Tag, Tape, Var};

use super::Block;
use crate::gathered::check;
use crate::pairs::{PairRows, Pairs, relations_of};

const OP: &str = "attend";

/// One call of attention, with its operands: what backward needs of it.
pub(crate) struct Call {
    heads: usize,
    /// With this rank's rows. GAT's r is made where rows of sources arrive.
    score: Score<Matrix, Matrix, HeadVectors<Matrix>>,
    /// A row per edge of this rank, or a function of edge features.
    bias: Bias<Matrix, ()>,
    /// What the columns of edge features are, where edges add something. With dot products q is widened then, and other
    /// scores have a weight.
    edges: Option<EdgeColumns>,
    edge_weight: Option<Matrix>,
    dropout: Option<Dropout>,
    /// What relations make of keys and values.
    relations: Option<[Matrix; 2]>,
    /// The keys and values of tokens.
    tokens: Option<Matrix>,
}

/// What a call's operands are on the tape.
pub(crate) struct Inputs {
    vars: Vec<Var>,
    numbers: InputNumbers,
}

/// Which inputs these are. Input 0 is the destinations' operand, input 1 the sources'.
#[derive(Clone, Copy)]
pub(crate) struct InputNumbers {
    shared: Option<usize>,
    bias: Option<usize>,
    relations: [Option<usize>; 2],
    tokens: Option<usize>,
    edge_weight: Option<usize>,
}

/// Elements that move per row forward and backward, for a row that is pulled and one that is pushed.
pub(crate) struct Moved {
    pub(crate) pull: usize,
    pub(crate) push: usize,
}

impl Inputs {
    pub(crate) fn list(&self) -> Vec<&Var> {
        self.vars.iter().collect()
    }

    pub(crate) fn numbers(&self) -> InputNumbers {
        self.numbers
    }
}

impl Call {
    /// The operands of `a`.
    pub(crate) fn new(tape: &mut Tape, a: Attend<'_>) -> Result<(Self, Inputs)> {
        check(&a)?;
        let value = |var: &Var| var.value().clone();
        let (score, dst, src, shared) = match a.score {
            Score::Dot { q, kv } => {
                let q = match a.edges {
                    Some(EdgeValues { weight, columns }) => widen(tape, q, weight, a.heads, columns)?,
                    None => q.clone(),
                };
                (Score::Dot { q: value(&q), kv: value(kv) }, q, kv, None)
            }
            Score::Gat { l, r: HeadVectors(r), z, slope } => {
                let [l] = head_dot(tape, z, [l.0])?;
                (Score::Gat { l: value(&l), r: HeadVectors(value(r)), z: value(z), slope }, l, z, Some(r))
            }
            Score::Gatv2 { l, r, a, slope, .. } => {
                let score = Score::Gatv2 { l: value(l), r: value(r), value: None, a: value(a), slope };
                (score, l.clone(), r, Some(a))
            }
        };
        // That of dot products is in the queries.
        let edge_weight = a.edges.filter(|_| !matches!(a.score, Score::Dot { .. })).map(|edges| edges.weight);
        let call = Self {
            heads: a.heads,
            score,
            bias: a.bias.map(value, |()| ()),
            edges: a.edges.map(|edges| *edges.columns),
            edge_weight: edge_weight.map(value),
            dropout: a.dropout,
            relations: a.relations.map(|maps| [value(maps.keys), value(maps.values)]),
            tokens: a.tokens.map(value),
        };
        let mut vars = vec![dst, src.clone()];
        let (keys, values) = (a.relations.map(|maps| maps.keys), a.relations.map(|maps| maps.values));
        let optional = [shared, a.bias.learnt(), keys, values, a.tokens, edge_weight];
        let [shared, bias, keys, values, tokens, edge_weight] = optional.map(|var| {
            var.map(|var| {
                vars.push(var.clone());
                vars.len() - 1
            })
        });
        let numbers = InputNumbers { shared, bias, relations: [keys, values], tokens, edge_weight };
        Ok((call, Inputs { vars, numbers }))
    }

    pub(crate) fn heads(&self) -> usize {
        self.heads
    }

    /// This rank's rows as destinations.
    pub(crate) fn dst(&self) -> &Matrix {
        match &self.score {
            Score::Dot { q: rows, .. } | Score::Gat { l: rows, .. } | Score::Gatv2 { l: rows, .. } => rows,
        }
    }

    /// This rank's rows as sources.
    pub(crate) fn src(&self) -> &Matrix {
        match &self.score {
            Score::Dot { kv: rows, .. } | Score::Gat { z: rows, .. } | Score::Gatv2 { r: rows, .. } => rows,
        }
    }

    /// Whether edges have values that only the rank of their destination has.
    pub(crate) fn has_values_per_edge(&self) -> bool {
        matches!(self.bias, Bias::PerEdge(_))
    }

    pub(crate) fn moved(&self) -> Moved {
        let (d, h) = (self.output().0, self.heads);
        match &self.score {
            Score::Dot { kv, .. } => Moved { pull: 2 * kv.cols(), push: 4 * d + 4 * h },
            Score::Gat { .. } => Moved { pull: 2 * d, push: 2 * d + 6 * h },
            Score::Gatv2 { .. } => Moved { pull: 2 * d, push: 4 * d + 4 * h },
        }
    }

    /// Columns and type of the output.
    pub(crate) fn output(&self) -> (usize, DType) {
        let like = match &self.score {
            Score::Dot { q: rows, .. } | Score::Gat { z: rows, .. } | Score::Gatv2 { l: rows, .. } => rows,
        };
        (like.cols(), like.dtype())
    }

    fn device(&self) -> &Device {
        self.dst().device()
    }

    /// A state of `rows` rows that nothing was folded into yet.
    pub(crate) fn empty_state(&self, rows: usize, tag: Tag) -> Result<Matrix> {
        let (d, dtype) = self.output();
        empty_states(self.device(), rows, self.heads, d, dtype.compute(), tag)
    }

    /// The operands of one block, of whose ends `dst` and `src` have a row each.
    pub(crate) fn operands<'a>(&'a self, block: &'a Block, dst: &'a Matrix, src: &'a Matrix) -> Result<Operands<'a>> {
        let r = match &self.score {
            Score::Gat { r: HeadVectors(vector), .. } => {
                let mut r = src.device().uninit(OP, src.rows(), self.heads, vector.dtype(), Tag::Workspace)?;
                src.device().backend().head_dot(src, &[vector], &mut [&mut r])?;
                Some(r)
            }
            Score::Dot { .. } | Score::Gatv2 { .. } => None,
        };
        let pairs = match &self.relations {
            Some(maps) => {
                let pairs = block.pairs(src.device(), relations_of(&maps[0]))?;
                let rows = pairs.rows_of(src, maps)?;
                Some(OfPairs { pairs, kv: rows.value().clone(), rows: RefCell::new(Some(rows)) })
            }
            None => None,
        };
        let bias = match (&self.bias, &block.edges) {
            (Bias::PerEdge(all), Some(edges)) => Some(edges.values(all)?),
            _ => None,
        };
        let sources = pairs.as_ref().map_or_else(|| block.src.ids(), |of| &of.pairs.ids);
        let ends = |dropout| EdgeDropout { dropout, src: sources.clone(), dst: block.dst.ids().clone() };
        let tail = match (&self.edges, &block.edges) {
            (Some(columns), Some(edges)) => {
                let rows = Some(edges.features.clone().ok_or_else(no_features)?);
                Some(EdgeTail { columns: *columns, rows })
            }
            (Some(columns), None) => Some(EdgeTail { columns: *columns, rows: None }),
            (None, _) => None,
        };
        let dropout = self.dropout.map(ends);
        let operands = Operands { call: self, block, dst, src, r, pairs, bias, tail, dropout };
        operands.kernel()?.check()?;
        Ok(operands)
    }

    /// Folds the edges of `block` into `state`.
    pub(crate) fn fold(&self, block: &Block, dst: &Matrix, src: &Matrix, state: &mut Matrix) -> Result<()> {
        let operands = self.operands(block, dst, src)?;
        state.device().clone().backend().attention_fold(&operands.kernel()?, state)
    }

    /// Folds what this rank has itself: the edges of `own`, then the tokens.
    pub(crate) fn fold_own(&self, own: &Block, tokens: Option<&Block>, state: &mut Matrix) -> Result<()> {
        self.fold(own, self.dst(), self.src(), state)?;
        match (tokens, &self.tokens) {
            (Some(block), Some(rows)) => self.fold(block, self.dst(), rows, state),
            _ => Ok(()),
        }
    }

    /// What a state comes to: the output and the log-sum-exp.
    pub(crate) fn finish(&self, state: &Matrix) -> Result<(Matrix, Matrix)> {
        let (device, rows, (d, dtype)) = (self.device(), state.rows(), self.output());
        let mut out = device.uninit(OP, rows, d, dtype, Tag::Activations)?;
        let mut lse = device.uninit(OP, rows, self.heads, dtype.compute(), Tag::Activations)?;
        device.backend().attention_finish(self.heads, state, &mut out, &mut lse)?;
        Ok((out, lse))
    }

    /// D_i = g_i·out_i.
    pub(crate) fn products(&self, g: &Matrix, out: &Matrix, lse: &Matrix) -> Result<Matrix> {
        let mut d = self.device().uninit(OP, lse.rows(), lse.cols(), lse.dtype(), Tag::Activations)?;
        self.device().backend().attention_d(self.heads, g, out, &mut d)?;
        Ok(d)
    }

    /// Gradients of what all edges share, to be added to.
    pub(crate) fn sums(&self) -> Result<Sums> {
        let device = self.device();
        let zeros = |m: &Matrix, tag| device.zeros(OP, m.rows(), m.cols(), m.dtype(), tag).map(Some);
        let shared = match &self.score {
            Score::Dot { .. } => None,
            Score::Gat { r: HeadVectors(m), .. } | Score::Gatv2 { a: m, .. } => zeros(m, Tag::Gradients)?,
        };
        let bias = match &self.bias {
            Bias::None => None,
            Bias::PerEdge(m) => zeros(m, Tag::Activations)?,
            Bias::Features { weight: m, .. } => zeros(m, Tag::Gradients)?,
        };
        let edge_weight = self.edge_weight.as_ref().map(|m| zeros(m, Tag::Gradients)).transpose()?.flatten();
        let relations = match &self.relations {
            Some(maps) => maps.each_ref().map(|m| zeros(m, Tag::Gradients)),
            None => [Ok(None), Ok(None)],
        };
        let [keys, values] = relations;
        Ok(Sums { shared, bias, relations: [keys?, values?], edge_weight })
    }

    /// Backward through what this rank has itself: the gradients of its rows as destinations, as sources, and of the
    /// tokens.
    pub(crate) fn own_gradients(
        &self,
        own: &Block,
        tokens: Option<&Block>,
        saved: &Saved<'_>,
        sums: &mut Sums,
    ) -> Result<OwnGradients> {
        let rows = self.dst();
        let mut dst = self.device().uninit(OP, rows.rows(), rows.cols(), rows.dtype(), Tag::Activations)?;
        let operands = self.operands(own, rows, self.src())?;
        operands.by_dst(saved, &mut dst, Write::Set, sums)?;
        let src = operands.by_src(saved, sums, Tag::Activations)?;
        let tokens = match (tokens, &self.tokens) {
            (Some(block), Some(tokens)) => {
                let operands = self.operands(block, rows, tokens)?;
                operands.by_dst(saved, &mut dst, Write::Add, sums)?;
                Some(operands.by_src(saved, sums, Tag::Activations)?)
            }
            _ => None,
        };
        Ok(OwnGradients { dst, src, tokens })
    }
}

/// Gradients of this rank's rows.
pub(crate) struct OwnGradients {
    pub(crate) dst: Matrix,
    pub(crate) src: Matrix,
    tokens: Option<Matrix>,
}

impl OwnGradients {
    /// Gives everything to the tape.
    pub(crate) fn put(self, grads: &mut Grads<'_>, numbers: InputNumbers, sums: Sums) -> Result<()> {
        grads.put(0, self.dst)?;
        grads.put(1, self.src)?;
        let relations = numbers.relations.into_iter().zip(sums.relations);
        let others = [
            (numbers.shared, sums.shared),
            (numbers.bias, sums.bias),
            (numbers.edge_weight, sums.edge_weight),
            (numbers.tokens, self.tokens),
        ];
        for (at, gradient) in others.into_iter().chain(relations) {
            if let (Some(at), Some(gradient)) = (at, gradient) {
                grads.put(at, gradient)?;
            }
        }
        Ok(())
    }
}

/// Gradients that all blocks add to: of GAT's source vector or GATv2's a, of the bias or its weight, of the weight of
/// features of edges, and of what relations make of keys and values.
pub(crate) struct Sums {
    shared: Option<Matrix>,
    bias: Option<Matrix>,
    relations: [Option<Matrix>; 2],
    edge_weight: Option<Matrix>,
}

/// The sources of a block by relation, with their keys and values.
struct OfPairs<'a> {
    pairs: &'a Pairs,
    kv: Matrix,
    /// How these were made.
    rows: RefCell<Option<PairRows>>,
}

/// The operands of one block.
pub(crate) struct Operands<'a> {
    call: &'a Call,
    block: &'a Block,
    dst: &'a Matrix,
    src: &'a Matrix,
    /// GAT's products of the sources.
    r: Option<Matrix>,
    /// The sources by relation.
    pairs: Option<OfPairs<'a>>,
    /// A row per edge of the block.
    bias: Option<Matrix>,
    /// The features of edges.
    tail: Option<EdgeTail>,
    dropout: Option<EdgeDropout>,
}

fn no_features() -> Error {
    Error::Argument { op: OP, problem: "the graph has no edge features".into() }
}

/// The output of `a`, from what its call came to.
pub(crate) fn finished(tape: &mut Tape, a: &Attend<'_>, out: Var) -> Result<Var> {
    match (a.edges, a.score) {
        (Some(EdgeValues { weight, columns }), Score::Dot { .. }) => absorb(tape, &out, weight, a.heads, columns),
        _ => Ok(out),
    }
}

impl Operands<'_> {
    fn kernel(&self) -> Result<Attention<'_>> {
        let (dst, src) = (self.dst, self.src);
        let score = match (&self.call.score, &self.r) {
            (Score::Gat { slope, .. }, Some(r)) => Score::Gat { l: dst, r, z: src, slope: *slope },
            (Score::Gatv2 { a, slope, .. }, _) => Score::Gatv2 { l: dst, r: src, value: None, a, slope: *slope },
            _ => Score::Dot { q: dst, kv: self.pairs.as_ref().map_or(src, |of| &of.kv) },
        };
        let bias = match (&self.call.bias, &self.block.edges) {
            (Bias::Features { weight, .. }, Some(edges)) => {
                Bias::Features { feat: edges.features.as_ref().ok_or_else(no_features)?, weight }
            }
            _ => self.bias.as_ref().map_or(Bias::None, Bias::PerEdge),
        };
        let graph = self.pairs.as_ref().map_or(&*self.block.graph, |of| &of.pairs.graph);
        let (heads, dropout) = (self.call.heads, self.dropout.as_ref());
        let (edges, edge_weight) = (self.tail.as_ref(), self.call.edge_weight.as_ref());
        Ok(Attention { graph, heads, score, bias, edges, edge_weight, dropout })
    }

    /// The pass by destination.
    pub(crate) fn by_dst(&self, saved: &Saved<'_>, row: &mut Matrix, write: Write, sums: &mut Sums) -> Result<()> {
        let device = self.dst.device();
        let new = |m: &Matrix| device.uninit(OP, m.rows(), m.cols(), m.dtype(), Tag::Workspace);
        let mut shared = match (&self.call.score, &sums.shared) {
            (Score::Gatv2 { .. }, Some(sum)) => Some(new(sum)?),
            _ => None,
        };
        let mut bias = match (&self.bias, &sums.bias, &self.block.edges) {
            (Some(per_edge), ..) => Some(new(per_edge)?),
            (None, Some(weight), Some(_)) => Some(new(weight)?),
            _ => None,
        };
        let mut edge_weight = sums.edge_weight.as_ref().map(new).transpose()?;
        let (of_shared, of_bias) = (shared.as_mut(), bias.as_mut());
        let to = DstGrads { row, write, shared: of_shared, bias: of_bias, edge_weight: edge_weight.as_mut() };
        device.backend().attention_dst(&self.kernel()?, saved, to)?;
        for (sum, x) in [(&mut sums.shared, &shared), (&mut sums.edge_weight, &edge_weight)] {
            if let (Some(sum), Some(x)) = (sum, x) {
                device.backend().add(sum, x)?;
            }
        }
        if let (Some(sum), Some(x), Some(edges)) = (&mut sums.bias, &bias, &self.block.edges) {
            match self.bias {
                Some(_) => edges.add_values(x, sum)?,
                None => device.backend().add(sum, x)?,
            }
        }
        Ok(())
    }

    /// The pass by source: the gradient of the sources' rows.
    pub(crate) fn by_src(&self, saved: &Saved<'_>, sums: &mut Sums, tag: Tag) -> Result<Matrix> {
        let (device, src) = (self.src.device(), self.src);
        if let Some(of) = &self.pairs {
            let mut dkv = device.uninit(OP, of.kv.rows(), of.kv.cols(), of.kv.dtype(), Tag::Workspace)?;
            device.backend().attention_src(&self.kernel()?, saved, SrcGrads { row: &mut dkv, value: None })?;
            return of.gradient_of_sources(dkv, sums);
        }
        let mut rows = device.uninit(OP, src.rows(), src.cols(), src.dtype(), tag)?;
        let (Score::Gat { r: HeadVectors(vector), .. }, Some(r)) = (&self.call.score, &self.r) else {
            let to = SrcGrads { row: &mut rows, value: None };
            device.backend().attention_src(&self.kernel()?, saved, to)?;
            return Ok(rows);
        };
        let new = |m: &Matrix| device.uninit(OP, m.rows(), m.cols(), m.dtype(), Tag::Workspace);
        let (mut dr, mut dvector) = (new(r)?, new(vector)?);
        let to = SrcGrads { row: &mut dr, value: Some(&mut rows) };
        device.backend().attention_src(&self.kernel()?, saved, to)?;
        let products = HeadDot { z: src, vectors: &[vector], g: &[&dr] };
        device.backend().head_dot_backward(&products, &mut rows, Write::Add, &mut [&mut dvector])?;
        if let Some(sum) = &mut sums.shared {
            device.backend().add(sum, &dvector)?;
        }
        Ok(rows)
    }
}

impl OfPairs<'_> {
    /// From the gradient of pairs' keys and values, that of the sources'.
    fn gradient_of_sources(&self, dkv: Matrix, sums: &mut Sums) -> Result<Matrix> {
        let again = || Error::Argument { op: OP, problem: "the gradient of sources was asked for twice".into() };
        let [dsrc, dkeys, dvalues] = self.rows.take().ok_or_else(again)?.backward(dkv)?;
        for (sum, found) in sums.relations.iter_mut().zip([dkeys, dvalues]) {
            if let Some(sum) = sum {
                sum.device().clone().backend().add(sum, &found)?;
            }
        }
        Ok(dsrc)
    }
}
