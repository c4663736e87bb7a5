//! Sparse multi-head attention over the edges of a graph, fused.
//!
//! For destination i and head h, over the edges j → i: e_ij = q_i·k_j / √d_h (+ bias), α = softmax over j, out_i = Σ α_ij v_j.
//! One pass over the neighbours with an online softmax; only the output and the log-sum-exp are kept. Backward recomputes
//! α = exp(e − LSE) and, with D_i = g_i·out_i, makes two passes: one by destination for dq, one by source for dk and dv. No
//! tensor of the size of the edges exists, and nothing is added atomically.
//!
//! Keys and values of a node are one row `k ‖ v`, so that an edge touches one contiguous piece of memory.

use std::rc::Rc;

use crate::adjacency::Adjacency;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::tape::{Backward, Grads, Tape, Var};

/// The operands of dot-product attention.
pub struct DotAttention<'a> {
    /// Who attends to whom.
    pub graph: &'a Adjacency,
    /// Heads; they share the columns equally.
    pub heads: usize,
    /// Queries, a row per destination.
    pub q: &'a Matrix,
    /// Keys and values side by side, a row per source, twice as wide as `q`.
    pub kv: &'a Matrix,
}

impl DotAttention<'_> {
    /// Width of one head.
    pub fn head_width(&self) -> usize {
        self.q.cols() / self.heads
    }

    fn check(&self) -> Result<()> {
        let op = "attention";
        let d = self.q.cols();
        if self.heads == 0 || !d.is_multiple_of(self.heads) {
            return Err(Error::Argument { op, problem: format!("{d} columns cannot be shared by {} heads", self.heads) });
        }
        self.q.expect(op, "q", self.graph.num_dst(), d)?;
        self.kv.expect(op, "kv", self.graph.num_src(), 2 * d)
    }
}

/// What a backend does for attention.
pub trait AttentionKernels {
    /// Overwrites `out` (as `q`) and `lse` (a row per destination, a column per head).
    fn dot_attention(&self, a: &DotAttention<'_>, out: &mut Matrix, lse: &mut Matrix) -> Result<()>;

    /// From the gradient `g` of `out`: overwrites `dq`, and leaves D_i = g_i·out_i in `d` (as `lse`).
    fn dot_attention_dst(&self, a: &DotAttention<'_>, s: &Saved<'_>, dq: &mut Matrix, d: &mut Matrix) -> Result<()>;

    /// Overwrites `dkv`.
    fn dot_attention_src(&self, a: &DotAttention<'_>, s: &Saved<'_>, d: &Matrix, dkv: &mut Matrix) -> Result<()>;
}

/// What backward has beside the operands.
pub struct Saved<'a> {
    /// The output of forward.
    pub out: &'a Matrix,
    /// Its log-sum-exp.
    pub lse: &'a Matrix,
    /// The gradient of `out`.
    pub g: &'a Matrix,
}

/// Attention of `q` over `kv` along `graph`, with `heads` heads.
pub fn attention(tape: &mut Tape, graph: &Rc<Adjacency>, heads: usize, q: &Var, kv: &Var) -> Result<Var> {
    let operands = DotAttention { graph, heads, q: q.value(), kv: kv.value() };
    operands.check()?;
    let device = tape.device().clone();
    let (rows, cols, dtype) = (q.value().rows(), q.value().cols(), q.value().dtype());
    let mut out = device.uninit("attention", rows, cols, dtype, Tag::Activations)?;
    let mut lse = device.uninit("attention", rows, heads, stats_type(dtype), Tag::Activations)?;
    device.backend().dot_attention(&operands, &mut out, &mut lse)?;
    let saved = out.clone();
    Ok(tape.push(&[q, kv], out, || DotBackward {
        graph: Rc::clone(graph),
        heads,
        q: q.value().clone(),
        kv: kv.value().clone(),
        out: saved,
        lse,
    }))
}

/// Statistics are kept in the type of the computation.
fn stats_type(dtype: DType) -> DType {
    dtype.compute()
}

struct DotBackward {
    graph: Rc<Adjacency>,
    heads: usize,
    q: Matrix,
    kv: Matrix,
    out: Matrix,
    lse: Matrix,
}

impl Backward for DotBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let device = grads.device().clone();
        let a = DotAttention { graph: &self.graph, heads: self.heads, q: &self.q, kv: &self.kv };
        let s = Saved { out: &self.out, lse: &self.lse, g: &g };
        let new = |m: &Matrix, tag| device.uninit("attention backward", m.rows(), m.cols(), m.dtype(), tag);
        let (mut dq, mut d) = (new(&self.q, Tag::Activations)?, new(&self.lse, Tag::Workspace)?);
        device.backend().dot_attention_dst(&a, &s, &mut dq, &mut d)?;
        if grads.wants(1) {
            let mut dkv = new(&self.kv, Tag::Activations)?;
            device.backend().dot_attention_src(&a, &s, &d, &mut dkv)?;
            grads.put(1, dkv)?;
        }
        grads.put(0, dq)
    }
}
