//! Sparse multi-head attention over the edges of a graph, fused.
//!
//! For destination i and head h, over the edges j → i: e_ij = q_i·k_j / √d_h (+ bias), α = softmax over j, out_i = Σ α_ij v_j.
//! One pass over the neighbours with an online softmax; only the output and the log-sum-exp are kept. Backward recomputes
//! α = exp(e − LSE) and, with D_i = g_i·out_i, makes two passes: one by destination for dq, one by source for dk and dv. No
//! tensor of the size of the edges exists, and nothing is added atomically.
//!
//! Scores differ between models ([`Score`]): dot products here, [`gat`](crate::ops::gat) and [`gatv2`](crate::ops::gatv2) in files
//! of their own. All else is shared.
//!
//! Keys and values of a node are one row `k ‖ v`, so that an edge touches one contiguous piece of memory.

use std::rc::Rc;

use crate::adjacency::Adjacency;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::rows::RowIndex;
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

/// How an edge j → i gets its score for a head, with the operands.
#[derive(Clone, Copy, Debug)]
pub enum Score<'a> {
    /// q_i·k_j / √d_h.
    Dot {
        /// Queries, a row per destination.
        q: &'a Matrix,
        /// Keys and values side by side, a row per source, twice as wide as `q`.
        kv: &'a Matrix,
    },
    /// LeakyReLU(l_i + r_j): see [`gat`](crate::ops::gat).
    Gat {
        /// A row per destination, a column per head, in the type of the computation.
        l: &'a Matrix,
        /// The same per source.
        r: &'a Matrix,
        /// Values, a row per source.
        z: &'a Matrix,
        /// Of the LeakyReLU, where its argument is not positive.
        slope: f64,
    },
    /// a·LeakyReLU(l_i + r_j): see [`gatv2`](crate::ops::gatv2).
    Gatv2 {
        /// A row per destination.
        l: &'a Matrix,
        /// A row per source.
        r: &'a Matrix,
        /// Values, a row per source; r where they are absent.
        value: Option<&'a Matrix>,
        /// A row per head, in the type of the computation.
        a: &'a Matrix,
        /// Of the LeakyReLU, where its argument is not positive.
        slope: f64,
    },
}

/// The operands of attention.
pub struct Attention<'a> {
    /// Who attends to whom.
    pub graph: &'a Adjacency,
    /// Heads; they share the columns equally.
    pub heads: usize,
    /// Scores and values.
    pub score: Score<'a>,
    /// A term added to the scores.
    pub bias: Bias<'a>,
    /// Dropout of weights.
    pub dropout: Option<&'a EdgeDropout>,
}

impl Attention<'_> {
    /// Columns and type of the output.
    pub fn output(&self) -> (usize, DType) {
        let like = match self.score {
            Score::Dot { q, .. } => q,
            Score::Gat { z, .. } => z,
            Score::Gatv2 { l, .. } => l,
        };
        (like.cols(), like.dtype())
    }

    /// Where everything is.
    pub fn device(&self) -> &Device {
        match self.score {
            Score::Dot { q: m, .. } | Score::Gat { l: m, .. } | Score::Gatv2 { l: m, .. } => m.device(),
        }
    }

    /// Whether the operands fit together.
    ///
    /// # Errors
    /// Naming the operand that does not.
    pub fn check(&self) -> Result<()> {
        let (d, heads, edges) = (self.output().0, self.heads, self.graph.num_edges());
        if heads == 0 || d == 0 || !d.is_multiple_of(heads) {
            return Err(Error::Argument { op: OP, problem: format!("{d} columns cannot be shared by {heads} heads") });
        }
        let (dst, src) = (self.graph.num_dst(), self.graph.num_src());
        match self.score {
            Score::Dot { q, kv } => {
                q.expect(OP, "q", dst, d)?;
                kv.expect(OP, "kv", src, 2 * d)?;
            }
            Score::Gat { l, r, z, .. } => {
                l.expect(OP, "l", dst, heads)?;
                r.expect(OP, "r", src, heads)?;
                z.expect(OP, "z", src, d)?;
            }
            Score::Gatv2 { l, r, value, a, .. } => {
                l.expect(OP, "l", dst, d)?;
                r.expect(OP, "r", src, d)?;
                value.map_or(Ok(()), |m| m.expect(OP, "value", src, d))?;
                a.expect(OP, "a", heads, d / heads)?;
            }
        }
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
    /// Overwrites `out` (a row per destination) and `lse` (a row per destination, a column per head).
    fn attention(&self, a: &Attention<'_>, out: &mut Matrix, lse: &mut Matrix) -> Result<()>;

    /// Folds the edges of one block into `state`, a row `m ‖ s ‖ acc` of 2·heads + d numbers per destination. A state starts
    /// as −∞, 0, 0 and after all blocks is made an output by [`AttentionKernels::attention_finish`].
    fn attention_fold(&self, a: &Attention<'_>, state: &mut Matrix) -> Result<()>;

    /// Merges states of some rows, which were folded elsewhere over other edges, into `state`: row k of `partial` into row k of the
    /// list `index`. A row that is listed more than once takes them in order of k.
    fn attention_merge(&self, heads: usize, partial: &Matrix, index: &RowIndex, state: &mut Matrix) -> Result<()>;

    /// Overwrites `out` and `lse` with what a state comes to.
    fn attention_finish(&self, heads: usize, state: &Matrix, out: &mut Matrix, lse: &mut Matrix) -> Result<()>;

    /// Overwrites `d` (as `lse`) with D_i = g_i·out_i.
    fn attention_d(&self, heads: usize, g: &Matrix, out: &Matrix, d: &mut Matrix) -> Result<()>;

    /// The pass by destination.
    fn attention_dst(&self, a: &Attention<'_>, s: &Saved<'_>, to: DstGrads<'_>) -> Result<()>;

    /// The pass by source.
    fn attention_src(&self, a: &Attention<'_>, s: &Saved<'_>, to: SrcGrads<'_>) -> Result<()>;
}

/// What the pass by destination writes.
pub struct DstGrads<'a> {
    /// The gradient of the destinations' operand: q or l.
    pub row: &'a mut Matrix,
    /// How it is written.
    pub write: Write,
    /// Overwritten with the gradient of GATv2's `a`.
    pub shared: Option<&'a mut Matrix>,
    /// Overwritten with the gradient of the bias (as the bias) or of the edge weight.
    pub bias: Option<&'a mut Matrix>,
}

/// What the pass by source overwrites.
pub struct SrcGrads<'a> {
    /// The gradient of the sources' operand: kv or r. Where GATv2 has no values of their own, those of r as values are in it.
    pub row: &'a mut Matrix,
    /// The gradient of the values, where they are a matrix of their own: GAT's z, GATv2's value.
    pub value: Option<&'a mut Matrix>,
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
    let score = SavedScore::Dot { q: q.value().clone(), kv: kv.value().clone() };
    let inputs = Inputs { dst: q, src: kv, value: None, shared: None };
    record(tape, graph, heads, score, &inputs, bias, dropout)
}

/// The operands of a score on the tape, by what their gradients come from.
pub(crate) struct Inputs<'a> {
    pub(crate) dst: &'a Var,
    pub(crate) src: &'a Var,
    pub(crate) value: Option<&'a Var>,
    pub(crate) shared: Option<&'a Var>,
}

/// Operands kept for backward, as [`Score`].
pub(crate) enum SavedScore {
    Dot { q: Matrix, kv: Matrix },
    Gat { l: Matrix, r: Matrix, z: Matrix, slope: f64 },
    Gatv2 { l: Matrix, r: Matrix, value: Option<Matrix>, a: Matrix, slope: f64 },
}

enum SavedBias {
    None,
    PerEdge(Matrix),
    Features { feat: Matrix, weight: Matrix },
}

/// Runs attention with any score and puts it on the tape.
pub(crate) fn record(
    tape: &mut Tape,
    graph: &Rc<Adjacency>,
    heads: usize,
    score: SavedScore,
    inputs: &Inputs<'_>,
    bias: BiasVar<'_>,
    dropout: Option<EdgeDropout>,
) -> Result<Var> {
    let (bias, bias_var) = match bias {
        BiasVar::None => (SavedBias::None, None),
        BiasVar::PerEdge(b) => (SavedBias::PerEdge(b.value().clone()), Some(b)),
        BiasVar::Features { feat, weight } => {
            (SavedBias::Features { feat: feat.clone(), weight: weight.value().clone() }, Some(weight))
        }
    };
    let mut vars = vec![inputs.dst, inputs.src];
    let [value, shared, bias_at] = [inputs.value, inputs.shared, bias_var].map(|var| {
        var.map(|var| {
            vars.push(var);
            vars.len() - 1
        })
    });
    let call = Call { graph: Rc::clone(graph), heads, score, bias, dropout };
    let operands = call.operands();
    operands.check()?;
    let device = tape.device().clone();
    let (d, dtype) = operands.output();
    let mut out = device.uninit(OP, graph.num_dst(), d, dtype, Tag::Activations)?;
    let mut lse = device.uninit(OP, graph.num_dst(), heads, dtype.compute(), Tag::Activations)?;
    device.backend().attention(&operands, &mut out, &mut lse)?;
    let saved = out.clone();
    Ok(tape.push(&vars, out, || AttentionBackward { call, out: saved, lse, value, shared, bias: bias_at }))
}

/// All operands, kept for backward.
struct Call {
    graph: Rc<Adjacency>,
    heads: usize,
    score: SavedScore,
    bias: SavedBias,
    dropout: Option<EdgeDropout>,
}

impl Call {
    fn operands(&self) -> Attention<'_> {
        let score = match &self.score {
            SavedScore::Dot { q, kv } => Score::Dot { q, kv },
            SavedScore::Gat { l, r, z, slope } => Score::Gat { l, r, z, slope: *slope },
            SavedScore::Gatv2 { l, r, value, a, slope } => {
                Score::Gatv2 { l, r, value: value.as_ref(), a, slope: *slope }
            }
        };
        let bias = match &self.bias {
            SavedBias::None => Bias::None,
            SavedBias::PerEdge(b) => Bias::PerEdge(b),
            SavedBias::Features { feat, weight } => Bias::Features { feat, weight },
        };
        Attention { graph: &self.graph, heads: self.heads, score, bias, dropout: self.dropout.as_ref() }
    }
}

struct AttentionBackward {
    call: Call,
    out: Matrix,
    lse: Matrix,
    /// Which inputs these are. Input 0 is the destinations' operand, input 1 the sources'.
    value: Option<usize>,
    shared: Option<usize>,
    bias: Option<usize>,
}

impl Backward for AttentionBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let device = grads.device().clone();
        let a = self.call.operands();
        let new = |m: &Matrix, tag| device.uninit("attention backward", m.rows(), m.cols(), m.dtype(), tag);
        let mut d = new(&self.lse, Tag::Workspace)?;
        device.backend().attention_d(a.heads, &g, &self.out, &mut d)?;
        let saved = Saved { lse: &self.lse, g: &g, d: &d };
        let (dst, src, value, shared) = match a.score {
            Score::Dot { q, kv } => (q, kv, None, None),
            Score::Gat { l, r, z, .. } => (l, r, Some(z), None),
            Score::Gatv2 { l, r, value, a, .. } => (l, r, value, Some(a)),
        };
        let bias = match a.bias {
            Bias::PerEdge(b) | Bias::Features { weight: b, .. } => Some(b),
            Bias::None => None,
        };
        let wanted = |grads: &Grads<'_>, at: Option<usize>, m: Option<&Matrix>| match (at, m) {
            (Some(at), Some(m)) if grads.wants(at) => new(m, Tag::Activations).map(Some),
            _ => Ok(None),
        };
        let mut row = new(dst, Tag::Activations)?;
        let (mut dshared, mut dbias) = (wanted(grads, self.shared, shared)?, wanted(grads, self.bias, bias)?);
        let to = DstGrads { row: &mut row, write: Write::Set, shared: dshared.as_mut(), bias: dbias.as_mut() };
        device.backend().attention_dst(&a, &saved, to)?;
        if grads.wants(1) || self.value.is_some_and(|at| grads.wants(at)) {
            let mut row = new(src, Tag::Activations)?;
            // The pass computes both or none.
            let mut dvalue = value.map(|m| new(m, Tag::Activations)).transpose()?;
            device.backend().attention_src(&a, &saved, SrcGrads { row: &mut row, value: dvalue.as_mut() })?;
            grads.put(1, row)?;
            put(grads, self.value, dvalue)?;
        }
        put(grads, self.shared, dshared)?;
        put(grads, self.bias, dbias)?;
        grads.put(0, row)
    }
}

fn put(grads: &mut Grads<'_>, at: Option<usize>, gradient: Option<Matrix>) -> Result<()> {
    match (at, gradient) {
        (Some(at), Some(gradient)) => grads.put(at, gradient),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::cpu::{Cpu, Isa};
    use crate::dry::tests::takes_as_much;
    use crate::gradcheck::{check, numbers};
    use crate::ops::graphs::{blocks, dropout, empty, f64s, near, rows_of, small, upload, with_hub};
    use crate::ops::tests::on_every_device;

    on_every_device!(
        gradients,
        gradients_with_bias_and_dropout,
        equals_dense_softmax_in_f64,
        block_by_block_is_the_same,
        blocks_without_edges_or_rows
    );

    fn gradients(device: &Device) {
        let graph = small(device);
        let upload = |seed, r, c| device.upload(r, c, &numbers(seed, r * c), Tag::Activations).unwrap();
        for heads in [1, 2, 3] {
            let inputs = [upload(1, 5, 6), upload(2, 6, 12)];
            check(device, &inputs, &[], |tape, x| attention(tape, &graph, heads, &x[0], &x[1], BiasVar::None, None))
                .unwrap();
        }
    }

    fn gradients_with_bias_and_dropout(device: &Device) {
        let graph = small(device);
        let upload = |seed, r, c| device.upload(r, c, &numbers(seed, r * c), Tag::Activations).unwrap();
        let (edges, heads) = (graph.num_edges(), 2);
        let feat = upload(4, edges, 3);
        for drop in [None, Some(dropout(&graph))] {
            let inputs = [upload(1, 5, 6), upload(2, 6, 12), upload(3, edges, heads)];
            check(device, &inputs, &[], |tape, x| {
                attention(tape, &graph, heads, &x[0], &x[1], BiasVar::PerEdge(&x[2]), drop.clone())
            })
            .unwrap();
            let inputs = [upload(1, 5, 6), upload(2, 6, 12), upload(3, heads, 3)];
            check(device, &inputs, &[], |tape, x| {
                let bias = BiasVar::Features { feat: &feat, weight: &x[2] };
                attention(tape, &graph, heads, &x[0], &x[1], bias, drop.clone())
            })
            .unwrap();
        }
    }

    fn equals_dense_softmax_in_f64(device: &Device) {
        let (graph, heads, w) = (small(device), 2, 3);
        let (d, n) = (heads * w, graph.num_dst());
        let (q, kv) = (numbers(1, n * d), numbers(2, graph.num_src() * 2 * d));
        let up = |rows, cols, x: &[f64]| device.upload(rows, cols, x, Tag::Activations).unwrap();
        let mut tape = Tape::new(device);
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
        let shapes = [(8, 16), (16, 16), (3, 8), (1, 32), (2, 5), (5, 16), (9, 8)];
        for ((heads, width), extras) in shapes.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            for (q, kv) in [(F64, F64), (F32, F32), (F32, Bf16), (Bf16, Bf16)] {
                let what = format!("{heads}×{width} {q} {kv}");
                takes_as_much(&what, |device| run(device, (heads, width), q, kv, extras));
            }
            let exact = run(&Device::cpu(), (heads, width), F64, F64, extras);
            for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16] {
                let device = Device::with_backend(Box::new(Cpu::with_isa(isa)));
                // Portable code adds up the hub's 20,000 edges one after another.
                let single = if isa == Isa::Portable || width % 8 != 0 { 5e-5 } else { 2e-5 };
                for (q, kv, tolerance) in [(F32, F32, single), (F32, Bf16, 2e-2), (Bf16, Bf16, 2e-2)] {
                    let found = run(&device, (heads, width), q, kv, extras);
                    agree(&found, &exact, tolerance, &format!("{heads}×{width} {isa} {q} {kv}"));
                }
            }
        }
    }

    fn agree(found: &[Vec<f64>], exact: &[Vec<f64>], tolerance: f64, what: &str) {
        for (name, (x, e)) in ["out", "dq", "dkv", "dweight"].iter().zip(found.iter().zip(exact)) {
            near(x, e, tolerance, &format!("{what} {name}"));
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a GPU"]
    fn a_gpu_agrees_with_f64() {
        use DType::{Bf16, F32, F64};
        let usual = [(8, 16), (16, 16), (3, 8), (1, 32), (2, 5), (5, 16), (9, 8)];
        let shapes = usual.into_iter().chain([(32, 8), (1, 1), (4, 128), (2, 96), (12, 64), (3, 40), (1, 300)]);
        let case = |(heads, width), extras| {
            let exact = run(&Device::cpu(), (heads, width), F64, F64, extras);
            let device = crate::ops::tests::gpu();
            for (q, kv, tolerance) in [(F64, F64, 1e-11), (F32, F32, 5e-5), (F32, Bf16, 2e-2), (Bf16, Bf16, 2e-2)] {
                let found = run(&device, (heads, width), q, kv, extras);
                agree(&found, &exact, tolerance, &format!("{heads}×{width} {q} {kv}"));
                let again = run(&device, (heads, width), q, kv, extras);
                assert!(found == again, "{heads}×{width} {q} {kv}: other bits the second time");
            }
        };
        // Side by side: most of the time goes to compiling kernels.
        std::thread::scope(|scope| {
            for (shape, extras) in shapes.flat_map(|s| [(s, false), (s, true)]) {
                scope.spawn(move || case(shape, extras));
            }
        });
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

    /// One of each score, with 2 heads of width `w`.
    fn scores(device: &Device, n: usize, heads: usize, w: usize, dtype: DType) -> [SavedScore; 4] {
        let up = |seed, rows, cols, dtype| upload(device, seed, (rows, cols), dtype);
        let (d, c) = (heads * w, dtype.compute());
        let gatv2 = |value| SavedScore::Gatv2 {
            l: up(1, n, d, dtype),
            r: up(2, n, d, dtype),
            value,
            a: up(3, heads, w, c),
            slope: 0.2,
        };
        [
            SavedScore::Dot { q: up(1, n, d, dtype), kv: up(2, n, 2 * d, dtype) },
            SavedScore::Gat { l: up(1, n, heads, c), r: up(2, n, heads, c), z: up(3, n, d, dtype), slope: 0.2 },
            gatv2(None),
            gatv2(Some(up(4, n, d, dtype))),
        ]
    }

    /// The score of a block that has only these sources.
    fn restricted(score: &SavedScore, sources: &Range<usize>) -> SavedScore {
        let some = |m: &Matrix| rows_of(m, sources.clone());
        match score {
            SavedScore::Dot { q, kv } => SavedScore::Dot { q: q.clone(), kv: some(kv) },
            SavedScore::Gat { l, r, z, slope } => {
                SavedScore::Gat { l: l.clone(), r: some(r), z: some(z), slope: *slope }
            }
            SavedScore::Gatv2 { l, r, value, a, slope } => SavedScore::Gatv2 {
                l: l.clone(),
                r: some(r),
                value: value.as_ref().map(some),
                a: a.clone(),
                slope: *slope,
            },
        }
    }

    /// What both passes of backward give: by destination, shared, bias; by source, values.
    fn backward(call: &Call, out: &Matrix, lse: &Matrix) -> ([Matrix; 3], Vec<Matrix>) {
        let a = call.operands();
        let device = out.device();
        let zeros = |m: &Matrix| device.zeros("test", m.rows(), m.cols(), m.dtype(), Tag::Activations).unwrap();
        let g = upload(device, 7, out.shape(), out.dtype());
        let mut d = zeros(lse);
        device.backend().attention_d(a.heads, &g, out, &mut d).unwrap();
        let saved = Saved { lse, g: &g, d: &d };
        let (dst, src, value, shared) = match a.score {
            Score::Dot { q, kv } => (q, kv, None, None),
            Score::Gat { l, r, z, .. } => (l, r, Some(z), None),
            Score::Gatv2 { l, r, value, a, .. } => (l, r, value, Some(a)),
        };
        let Bias::PerEdge(bias) = a.bias else { panic!("with a bias") };
        let (mut row, mut dshared, mut dbias) = (zeros(dst), zeros(shared.unwrap_or(lse)), zeros(bias));
        let shared = shared.map(|_| &mut dshared);
        let to = DstGrads { row: &mut row, write: Write::Add, shared, bias: Some(&mut dbias) };
        device.backend().attention_dst(&a, &saved, to).unwrap();
        let (mut by_src, mut dvalue) = (zeros(src), value.map(zeros));
        device.backend().attention_src(&a, &saved, SrcGrads { row: &mut by_src, value: dvalue.as_mut() }).unwrap();
        ([row, dshared, dbias], std::iter::once(by_src).chain(dvalue).collect())
    }

    fn block_by_block_is_the_same(device: &Device) {
        for (heads, w, dtype, tolerance) in [
            (2, 3, DType::F64, 1e-12),
            (2, 16, DType::F32, 2e-5),
            (16, 16, DType::F32, 2e-5),
            (8, 16, DType::Bf16, 4e-2),
            (2, 5, DType::F32, 5e-5),
        ] {
            let graph = with_hub(device);
            let (n, d) = (graph.num_dst(), heads * w);
            let drop = dropout(&graph);
            let bias = upload(device, 9, (graph.num_edges(), heads), dtype.compute());
            let new = |cols, dtype| device.uninit("test", n, cols, dtype, Tag::Activations).unwrap();
            for score in scores(device, n, heads, w, dtype) {
                let cut: Vec<Call> = blocks(device, &graph, 77)
                    .into_iter()
                    .map(|(block, first, edges)| {
                        let sources = first..first + block.num_src();
                        let ids = sources.clone().map(|j| drop.src.view().of(j)).collect();
                        Call {
                            graph: block,
                            heads,
                            score: restricted(&score, &sources),
                            bias: SavedBias::PerEdge(rows_of(&bias, edges)),
                            dropout: Some(EdgeDropout { src: Ids::Listed(ids), ..drop.clone() }),
                        }
                    })
                    .collect();
                let bias = SavedBias::PerEdge(bias.clone());
                let whole = Call { graph: graph.clone(), heads, score, bias, dropout: Some(drop.clone()) };
                let c = dtype.compute();
                let (mut out, mut lse, mut out2, mut lse2) =
                    (new(d, dtype), new(heads, c), new(d, dtype), new(heads, c));
                device.backend().attention(&whole.operands(), &mut out, &mut lse).unwrap();
                let start: Vec<f64> = (0..n * (2 * heads + d))
                    .map(|k| if k % (2 * heads + d) < heads { f64::NEG_INFINITY } else { 0.0 })
                    .collect();
                let state = device.upload(n, 2 * heads + d, &start, Tag::Activations).unwrap();
                let mut state = device.convert("test", &state, c).unwrap();
                for call in &cut {
                    device.backend().attention_fold(&call.operands(), &mut state).unwrap();
                }
                device.backend().attention_finish(heads, &state, &mut out2, &mut lse2).unwrap();
                near(&f64s(&out2), &f64s(&out), tolerance, "out");
                let finite = |m: &Matrix| f64s(m).into_iter().filter(|x| x.is_finite()).collect::<Vec<_>>();
                near(&finite(&lse2), &finite(&lse), tolerance, "lse");

                let ([row, shared, _], by_src) = backward(&whole, &out, &lse);
                let parts: Vec<_> = cut.iter().map(|call| backward(call, &out, &lse)).collect();
                let sum = |k: usize| {
                    parts
                        .iter()
                        .map(|p| f64s(&p.0[k]))
                        .reduce(|a, b| a.iter().zip(b).map(|(a, b)| a + b).collect())
                        .unwrap()
                };
                near(&sum(0), &f64s(&row), 2.0 * tolerance, "by destination");
                near(&sum(1), &f64s(&shared), 2.0 * tolerance, "shared");
                for (k, by_src) in by_src.iter().enumerate() {
                    let parts: Vec<f64> = parts.iter().flat_map(|p| f64s(&p.1[k])).collect();
                    near(&parts, &f64s(by_src), 2.0 * tolerance, "by source");
                }
            }
        }
    }

    fn blocks_without_edges_or_rows(device: &Device) {
        for (graph, dtype) in empty(device).into_iter().flat_map(|g| [(g.clone(), DType::F32), (g, DType::F64)]) {
            let mut tape = Tape::new(device);
            let mut leaf = |rows, cols| tape.leaf(upload(device, 1, (rows, cols), dtype));
            let (q, kv) = (leaf(graph.num_dst(), 16), leaf(graph.num_src(), 32));
            let out = attention(&mut tape, &graph, 1, &q, &kv, BiasVar::None, None).unwrap();
            assert!(f64s(out.value()).iter().all(|x| *x == 0.0));
            let g = upload(device, 2, out.value().shape(), dtype);
            for found in tape.backward(vec![(out, g)], &[&q, &kv], |_| Ok(())).unwrap() {
                assert!(f64s(&found.unwrap()).iter().all(|x| *x == 0.0));
            }
        }
    }
}
