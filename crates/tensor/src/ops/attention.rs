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
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::random::{Dropout, Ids};
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "attention";

/// A term added to the scores of edges.
#[derive(Clone, Copy, Debug, Default)]
pub enum Bias<'a> {
    /// None.
    #[default]
    None,
    /// A number per edge and head: E × H.
    PerEdge(&'a Matrix),
    /// A linear function of edge features: E × F, with a weight H × F. No tensor of edges × heads is made.
    Features {
        /// E × F.
        feat: &'a Matrix,
        /// H × F.
        weight: &'a Matrix,
    },
}

/// Dropout on the weights of edges, keyed by original ids.
#[derive(Clone, Debug)]
pub struct EdgeDropout {
    /// Rate and key.
    pub dropout: Dropout,
    /// Original ids of the sources.
    pub src: Ids,
    /// Original ids of the destinations.
    pub dst: Ids,
}

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
    /// A term added to the scores.
    pub bias: Bias<'a>,
    /// Dropout of weights.
    pub dropout: Option<&'a EdgeDropout>,
}

impl DotAttention<'_> {
    /// Width of one head.
    pub fn head_width(&self) -> usize {
        self.q.cols() / self.heads
    }

    fn check(&self) -> Result<()> {
        let (d, heads, edges) = (self.q.cols(), self.heads, self.graph.num_edges());
        if heads == 0 || !d.is_multiple_of(heads) {
            return Err(Error::Argument { op: OP, problem: format!("{d} columns cannot be shared by {heads} heads") });
        }
        self.q.expect(OP, "q", self.graph.num_dst(), d)?;
        self.kv.expect(OP, "kv", self.graph.num_src(), 2 * d)?;
        match self.bias {
            Bias::None => return Ok(()),
            Bias::PerEdge(bias) => bias.expect(OP, "bias", edges, heads)?,
            Bias::Features { feat, weight } => {
                feat.expect(OP, "edge features", edges, weight.cols())?;
                weight.expect(OP, "edge weight", heads, feat.cols())?;
            }
        }
        if self.graph.edges.is_none() {
            let problem = "values on edges need an adjacency made with Adjacency::with_edges".into();
            return Err(Error::Argument { op: OP, problem });
        }
        Ok(())
    }
}

/// What a backend does for attention.
pub trait AttentionKernels {
    /// Overwrites `out` (as `q`) and `lse` (a row per destination, a column per head).
    fn dot_attention(&self, a: &DotAttention<'_>, out: &mut Matrix, lse: &mut Matrix) -> Result<()>;

    /// Folds the edges of one block into `state`, a row `m ‖ s ‖ acc` of 2·heads + d numbers per destination. A state starts
    /// as −∞, 0, 0 and after all blocks is made an output by [`AttentionKernels::attention_finish`].
    fn dot_attention_fold(&self, a: &DotAttention<'_>, state: &mut Matrix) -> Result<()>;

    /// Overwrites `out` and `lse` with what a state comes to.
    fn attention_finish(&self, heads: usize, state: &Matrix, out: &mut Matrix, lse: &mut Matrix) -> Result<()>;

    /// Overwrites `d` (as `lse`) with D_i = g_i·out_i.
    fn attention_d(&self, heads: usize, g: &Matrix, out: &Matrix, d: &mut Matrix) -> Result<()>;

    /// Writes `dq`, and where it is given overwrites the gradient of the bias (as the bias) or of the edge weight.
    fn dot_attention_dst(
        &self,
        a: &DotAttention<'_>,
        s: &Saved<'_>,
        dq: &mut Matrix,
        write: Write,
        dbias: Option<&mut Matrix>,
    ) -> Result<()>;

    /// Overwrites `dkv`.
    fn dot_attention_src(&self, a: &DotAttention<'_>, s: &Saved<'_>, dkv: &mut Matrix) -> Result<()>;
}

/// What backward has beside the operands.
pub struct Saved<'a> {
    /// The log-sum-exp of forward.
    pub lse: &'a Matrix,
    /// The gradient of the output.
    pub g: &'a Matrix,
    /// D_i = g_i·out_i.
    pub d: &'a Matrix,
}

/// A bias on the tape, as [`Bias`].
#[derive(Clone, Copy, Default)]
pub enum BiasVar<'a> {
    /// None.
    #[default]
    None,
    /// E × H.
    PerEdge(&'a Var),
    /// E × F, which gets no gradient, and H × F.
    Features {
        /// E × F.
        feat: &'a Matrix,
        /// H × F.
        weight: &'a Var,
    },
}

/// Attention of `q` over `kv` along `graph`, with `heads` heads.
pub fn attention(
    tape: &mut Tape,
    graph: &Rc<Adjacency>,
    heads: usize,
    q: &Var,
    kv: &Var,
    bias: BiasVar<'_>,
    dropout: Option<EdgeDropout>,
) -> Result<Var> {
    let mut inputs = vec![q, kv];
    let mut saved_bias = SavedBias::None;
    match bias {
        BiasVar::None => {}
        BiasVar::PerEdge(b) => {
            inputs.push(b);
            saved_bias = SavedBias::PerEdge(b.value().clone());
        }
        BiasVar::Features { feat, weight } => {
            inputs.push(weight);
            saved_bias = SavedBias::Features { feat: feat.clone(), weight: weight.value().clone() };
        }
    }
    let (q_value, kv_value) = (q.value().clone(), kv.value().clone());
    let mut saved =
        DotBackward { graph: Rc::clone(graph), heads, q: q_value, kv: kv_value, bias: saved_bias, dropout, out: None };
    saved.operands().check()?;
    let device = tape.device().clone();
    let (rows, cols, dtype) = (q.value().rows(), q.value().cols(), q.value().dtype());
    let mut out = device.uninit(OP, rows, cols, dtype, Tag::Activations)?;
    let mut lse = device.uninit(OP, rows, heads, dtype.compute(), Tag::Activations)?;
    device.backend().dot_attention(&saved.operands(), &mut out, &mut lse)?;
    saved.out = Some((out.clone(), lse));
    Ok(tape.push(&inputs, out, || saved))
}

enum SavedBias {
    None,
    PerEdge(Matrix),
    Features { feat: Matrix, weight: Matrix },
}

struct DotBackward {
    graph: Rc<Adjacency>,
    heads: usize,
    q: Matrix,
    kv: Matrix,
    bias: SavedBias,
    dropout: Option<EdgeDropout>,
    /// The output and its log-sum-exp.
    out: Option<(Matrix, Matrix)>,
}

impl DotBackward {
    fn operands(&self) -> DotAttention<'_> {
        let bias = match &self.bias {
            SavedBias::None => Bias::None,
            SavedBias::PerEdge(b) => Bias::PerEdge(b),
            SavedBias::Features { feat, weight } => Bias::Features { feat, weight },
        };
        let (q, kv) = (&self.q, &self.kv);
        DotAttention { graph: &self.graph, heads: self.heads, q, kv, bias, dropout: self.dropout.as_ref() }
    }
}

impl Backward for DotBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let (Some(g), Some((out, lse))) = (grads.output(0), &self.out) else { return Ok(()) };
        let device = grads.device().clone();
        let a = self.operands();
        let new = |m: &Matrix, tag| device.uninit("attention backward", m.rows(), m.cols(), m.dtype(), tag);
        let mut d = new(lse, Tag::Workspace)?;
        device.backend().attention_d(self.heads, &g, out, &mut d)?;
        let s = Saved { lse, g: &g, d: &d };
        let mut dq = new(&self.q, Tag::Activations)?;
        let mut dbias = match &self.bias {
            SavedBias::PerEdge(b) | SavedBias::Features { weight: b, .. } if grads.wants(2) => {
                Some(new(b, Tag::Activations)?)
            }
            _ => None,
        };
        device.backend().dot_attention_dst(&a, &s, &mut dq, Write::Set, dbias.as_mut())?;
        if grads.wants(1) {
            let mut dkv = new(&self.kv, Tag::Activations)?;
            device.backend().dot_attention_src(&a, &s, &mut dkv)?;
            grads.put(1, dkv)?;
        }
        if let Some(dbias) = dbias {
            grads.put(2, dbias)?;
        }
        grads.put(0, dq)
    }
}

#[cfg(test)]
mod tests {
    use graphweft_graph::Csr;

    use super::*;
    use crate::cpu::{Cpu, Isa};
    use crate::device::Device;
    use crate::dtype::DType;
    use crate::gradcheck::{check, numbers};

    /// 5 destinations, 6 sources: an isolated node, a self-loop, parallel edges, a row of many edges.
    fn small(device: &Device) -> Rc<Adjacency> {
        let csr = Csr::new(vec![0, 3, 3, 4, 6, 12], vec![0, 1, 1, 2, 0, 5, 0, 1, 2, 3, 4, 5], 6).unwrap();
        Rc::new(Adjacency::with_edges(device, csr))
    }

    /// A hub of 20,000 edges (cut into pieces), some ordinary rows, some empty ones.
    fn with_hub(device: &Device) -> Rc<Adjacency> {
        let mut indptr = vec![0u64];
        let mut indices = Vec::new();
        for i in 0..300u32 {
            let degree = match i {
                17 => 20_000,
                i if i % 7 == 0 => 0,
                i => i % 23,
            };
            let mut row: Vec<u32> = (0..degree).map(|k| (i * 31 + k * 17) % 300).collect();
            row.sort_unstable();
            indices.extend(row);
            indptr.push(indices.len() as u64);
        }
        Rc::new(Adjacency::with_edges(device, Csr::new(indptr, indices, 300).unwrap()))
    }

    #[test]
    fn gradients() {
        let device = Device::cpu();
        let graph = small(&device);
        let upload = |seed, r, c| device.upload(r, c, &numbers(seed, r * c), Tag::Activations).unwrap();
        for heads in [1, 2, 3] {
            let inputs = [upload(1, 5, 6), upload(2, 6, 12)];
            check(&device, &inputs, &[], |tape, x| attention(tape, &graph, heads, &x[0], &x[1], BiasVar::None, None))
                .unwrap();
        }
    }

    /// A dropout of half the edges with renumbered nodes.
    fn dropout(graph: &Adjacency) -> EdgeDropout {
        let ids = |n: usize| Ids::Listed((0..n as u64).map(|k| 1000 - 3 * k).collect());
        EdgeDropout { dropout: Dropout::new(0.5, 1, 2, 3, 4), src: ids(graph.num_src()), dst: ids(graph.num_dst()) }
    }

    #[test]
    fn gradients_with_bias_and_dropout() {
        let device = Device::cpu();
        let graph = small(&device);
        let upload = |seed, r, c| device.upload(r, c, &numbers(seed, r * c), Tag::Activations).unwrap();
        let (edges, heads) = (graph.num_edges(), 2);
        let feat = upload(4, edges, 3);
        for drop in [None, Some(dropout(&graph))] {
            let inputs = [upload(1, 5, 6), upload(2, 6, 12), upload(3, edges, heads)];
            check(&device, &inputs, &[], |tape, x| {
                attention(tape, &graph, heads, &x[0], &x[1], BiasVar::PerEdge(&x[2]), drop.clone())
            })
            .unwrap();
            let inputs = [upload(1, 5, 6), upload(2, 6, 12), upload(3, heads, 3)];
            check(&device, &inputs, &[], |tape, x| {
                let bias = BiasVar::Features { feat: &feat, weight: &x[2] };
                attention(tape, &graph, heads, &x[0], &x[1], bias, drop.clone())
            })
            .unwrap();
        }
    }

    #[test]
    fn equals_dense_softmax_in_f64() {
        let device = Device::cpu();
        let (graph, heads, w) = (small(&device), 2, 3);
        let (d, n) = (heads * w, graph.num_dst());
        let (q, kv) = (numbers(1, n * d), numbers(2, graph.num_src() * 2 * d));
        let up = |rows, cols, x: &[f64]| device.upload(rows, cols, x, Tag::Activations).unwrap();
        let mut tape = Tape::new(&device);
        let (qv, kvv) = (tape.leaf(up(n, d, &q)), tape.leaf(up(graph.num_src(), 2 * d, &kv)));
        let out = attention(&mut tape, &graph, heads, &qv, &kvv, BiasVar::None, None)
            .unwrap()
            .value()
            .to_vec::<f64>()
            .unwrap();
        for i in 0..n {
            for h in 0..heads {
                let score = |j: usize| (0..w).map(|c| q[i * d + h * w + c] * kv[j * 2 * d + h * w + c]).sum::<f64>();
                let weights: Vec<(usize, f64)> = graph
                    .forward
                    .csr
                    .row(i)
                    .iter()
                    .map(|&j| (j as usize, (score(j as usize) / (w as f64).sqrt()).exp()))
                    .collect();
                let total: f64 = weights.iter().map(|(_, p)| p).sum();
                for c in 0..w {
                    let sum: f64 = weights.iter().map(|(j, p)| p / total * kv[j * 2 * d + d + h * w + c]).sum();
                    assert!((out[i * d + h * w + c] - sum).abs() < 1e-12);
                }
            }
        }
    }

    /// out, dq, dkv and the bias's gradient on the graph with a hub.
    fn run(
        device: &Device,
        (heads, width): (usize, usize),
        q_type: DType,
        kv_type: DType,
        extras: bool,
    ) -> Vec<Vec<f64>> {
        let graph = with_hub(device);
        let (n, d) = (graph.num_dst(), heads * width);
        let upload = |seed, cols, dtype| {
            let x: Vec<f64> = numbers(seed, n * cols).iter().map(|x| 2.0 * x).collect();
            let m = device.upload(n, cols, &x, Tag::Activations).unwrap();
            device.convert("test", &m, dtype).unwrap()
        };
        let mut tape = Tape::new(device);
        let (q, kv) = (tape.leaf(upload(1, d, q_type)), tape.leaf(upload(2, 2 * d, kv_type)));
        let weights: Vec<f64> = numbers(5, 2 * heads);
        let weight = device.upload(heads, 2, &weights, Tag::Activations).unwrap();
        let weight = tape.leaf(device.convert("test", &weight, q_type.compute()).unwrap());
        let feat = device.upload(graph.num_edges(), 2, &numbers(6, 2 * graph.num_edges()), Tag::Activations).unwrap();
        let feat = device.convert("test", &feat, q_type.compute()).unwrap();
        let (bias, drop) = match extras {
            true => (BiasVar::Features { feat: &feat, weight: &weight }, Some(dropout(&graph))),
            false => (BiasVar::None, None),
        };
        let out = attention(&mut tape, &graph, heads, &q, &kv, bias, drop).unwrap();
        let value = out.value().clone();
        let found = tape.backward(vec![(out, upload(3, d, q_type))], &[&q, &kv, &weight], |_| Ok(())).unwrap();
        let f64s = |m: &Matrix| device.convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap();
        std::iter::once(&value).chain(found.iter().flatten()).map(f64s).collect()
    }

    #[test]
    fn every_instruction_set_and_type_agrees_with_f64() {
        use DType::{Bf16, F32, F64};
        let shapes = [(8, 16), (3, 8), (1, 32), (2, 5), (5, 16), (9, 8)];
        for ((heads, width), extras) in shapes.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            let exact = run(&Device::cpu(), (heads, width), F64, F64, extras);
            for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
                let device = Device::with_backend(Box::new(Cpu::with_isa(isa)));
                // Portable code adds up the hub's 20,000 edges one after another.
                let single = if isa == Isa::Portable { 5e-5 } else { 1e-5 };
                for (q, kv, tolerance) in [(F32, F32, single), (F32, Bf16, 2e-2), (Bf16, Bf16, 2e-2)] {
                    let found = run(&device, (heads, width), q, kv, extras);
                    for (name, (x, e)) in ["out", "dq", "dkv", "dweight"].iter().zip(found.iter().zip(&exact)) {
                        let scale = e.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
                        let worst = x.iter().zip(e).map(|(x, e)| (x - e).abs()).fold(0.0, f64::max);
                        assert!(
                            worst <= tolerance * scale,
                            "{heads}×{width} {isa} {q} {kv} {name}: {worst} of {scale}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(&Device::cpu(), (8, 16), DType::F32, DType::F32, true))
        };
        let one = run(1);
        assert!(one == run(2) && one == run(3));
    }

    #[test]
    fn memory_beyond_the_operands_is_one_number_per_node_and_head() {
        let device = Device::cpu();
        let graph = with_hub(&device);
        let (n, d, heads) = (graph.num_dst(), 128, 8);
        let up = |cols| device.upload(n, cols, &vec![0.5f32; n * cols], Tag::Activations).unwrap();
        let (q, kv, g) = (up(d), up(2 * d), up(d));
        let before = device.ledger().now().total();
        device.ledger().reset_peak();
        let mut tape = Tape::new(&device);
        let (q, kv) = (tape.leaf(q), tape.leaf(kv));
        let out = attention(&mut tape, &graph, heads, &q, &kv, BiasVar::None, None).unwrap();
        let grads = tape.backward(vec![(out, g)], &[&q, &kv], |_| Ok(())).unwrap();
        let unavoidable = 4 * n * (d + d + 2 * d);
        let beyond = device.ledger().peak().total() - before - unavoidable as u64;
        // At the peak: log-sum-exp, D, and for the pieces of the hub one row of dk ‖ dv each.
        let pieces = graph.transpose.tasks.pieces;
        assert_eq!(beyond, (4 * (n * 2 * heads + pieces * 2 * d)) as u64);
        drop(grads);
    }
}
