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

#[cfg(test)]
mod tests {
    use graphweft_graph::Csr;

    use super::*;
    use crate::cpu::{Cpu, Isa};
    use crate::device::Device;
    use crate::gradcheck::{check, numbers};

    /// 5 destinations, 6 sources: an isolated node, a self-loop, parallel edges, a row of many edges.
    fn small(device: &Device) -> Rc<Adjacency> {
        let csr = Csr::new(vec![0, 3, 3, 4, 6, 12], vec![0, 1, 1, 2, 0, 5, 0, 1, 2, 3, 4, 5], 6).unwrap();
        Rc::new(Adjacency::new(device, csr))
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
        Rc::new(Adjacency::new(device, Csr::new(indptr, indices, 300).unwrap()))
    }

    #[test]
    fn gradients() {
        let device = Device::cpu();
        let graph = small(&device);
        let upload = |seed, r, c| device.upload(r, c, &numbers(seed, r * c), Tag::Activations).unwrap();
        for heads in [1, 2, 3] {
            let inputs = [upload(1, 5, 6), upload(2, 6, 12)];
            check(&device, &inputs, &[], |tape, x| attention(tape, &graph, heads, &x[0], &x[1])).unwrap();
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
        let out = attention(&mut tape, &graph, heads, &qv, &kvv).unwrap().value().to_vec::<f64>().unwrap();
        for i in 0..n {
            for h in 0..heads {
                let score = |j: usize| (0..w).map(|c| q[i * d + h * w + c] * kv[j * 2 * d + h * w + c]).sum::<f64>();
                let weights: Vec<(usize, f64)> = graph.forward.csr.row(i).iter()
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

    /// out, dq and dkv of the graph with a hub.
    fn run(device: &Device, heads: usize, width: usize, q_type: DType, kv_type: DType) -> Vec<Vec<f64>> {
        let graph = with_hub(device);
        let (n, d) = (graph.num_dst(), heads * width);
        let upload = |seed, cols, dtype| {
            let x: Vec<f64> = numbers(seed, n * cols).iter().map(|x| 2.0 * x).collect();
            let m = device.upload(n, cols, &x, Tag::Activations).unwrap();
            device.convert("test", &m, dtype).unwrap()
        };
        let mut tape = Tape::new(device);
        let (q, kv) = (tape.leaf(upload(1, d, q_type)), tape.leaf(upload(2, 2 * d, kv_type)));
        let out = attention(&mut tape, &graph, heads, &q, &kv).unwrap();
        let value = out.value().clone();
        let mut found = tape.backward(vec![(out, upload(3, d, q_type))], &[&q, &kv], |_| Ok(())).unwrap();
        let (dkv, dq) = (found.pop().unwrap().unwrap(), found.pop().unwrap().unwrap());
        let f64s = |m: &Matrix| device.convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap();
        [value, dq, dkv].iter().map(f64s).collect()
    }

    #[test]
    fn every_instruction_set_and_type_agrees_with_f64() {
        use DType::{Bf16, F32, F64};
        for (heads, width) in [(8, 16), (3, 8), (1, 32), (2, 5), (5, 16)] {
            let exact = run(&Device::cpu(), heads, width, F64, F64);
            for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
                let device = Device::with_backend(Box::new(Cpu::with_isa(isa)));
                // Portable code adds up the hub's 20,000 edges one after another.
                let single = if isa == Isa::Portable { 5e-5 } else { 1e-5 };
                for (q, kv, tolerance) in [(F32, F32, single), (F32, Bf16, 2e-2), (Bf16, Bf16, 2e-2)] {
                    let found = run(&device, heads, width, q, kv);
                    for (name, (x, e)) in ["out", "dq", "dkv"].iter().zip(found.iter().zip(&exact)) {
                        let scale = e.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
                        let worst = x.iter().zip(e).map(|(x, e)| (x - e).abs()).fold(0.0, f64::max);
                        assert!(worst <= tolerance * scale, "{heads}×{width} {isa} {q} {kv} {name}: {worst} of {scale}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(&Device::cpu(), 8, 16, DType::F32, DType::F32))
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
        let out = attention(&mut tape, &graph, heads, &q, &kv).unwrap();
        let grads = tape.backward(vec![(out, g)], &[&q, &kv], |_| Ok(())).unwrap();
        let unavoidable = 4 * n * (d + d + 2 * d);
        let beyond = device.ledger().peak().total() - before - unavoidable as u64;
        // At the peak: log-sum-exp, D, and for the pieces of the hub one row of dk ‖ dv each.
        let pieces = graph.transpose.tasks.pieces;
        assert_eq!(beyond, (4 * (n * 2 * heads + pieces * 2 * d)) as u64);
        drop(grads);
    }
}
