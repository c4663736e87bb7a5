//! What the tests of graph operations share: graphs with everything that can go wrong, and one case run in every type,
//! on every instruction set, with any number of threads.

use std::rc::Rc;

use graphweft_graph::Csr;

use crate::adjacency::Adjacency;
use crate::cpu::{Cpu, Isa};
use crate::device::Device;
use crate::dry::tests::takes_as_much;
use crate::dtype::DType;
use crate::error::Result;
use crate::gradcheck::numbers;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::attention::EdgeDropout;
use crate::ops::tests::Shape;
use crate::random::{Dropout, Ids};
use crate::tape::{Tape, Var};

/// A graph from the sources of every row.
pub(crate) fn from_rows(device: &Device, rows: impl IntoIterator<Item = Vec<u32>>, num_src: usize) -> Rc<Adjacency> {
    let mut indptr = vec![0u64];
    let mut indices = Vec::new();
    for mut row in rows {
        row.sort_unstable();
        indices.extend(row);
        indptr.push(indices.len() as u64);
    }
    Rc::new(Adjacency::new(device, Csr::new(indptr, indices, num_src).unwrap()).unwrap())
}

/// 5 destinations, 6 sources: an isolated node, a self-loop, parallel edges, a row of many edges.
pub(crate) fn small(device: &Device) -> Rc<Adjacency> {
    let rows = [vec![0, 1, 1], vec![], vec![2], vec![0, 5], vec![0, 1, 2, 3, 4, 5]];
    from_rows(device, rows, 6)
}

/// No edges; no rows; no sources.
pub(crate) fn empty(device: &Device) -> [Rc<Adjacency>; 3] {
    [from_rows(device, vec![vec![]; 3], 4), from_rows(device, Vec::new(), 4), from_rows(device, vec![vec![]; 3], 0)]
}

/// 300 nodes: one with 20,000 incoming and another with more than 10,000 outgoing edges, both cut into pieces; some
/// ordinary rows, some empty ones.
pub(crate) fn with_hub(device: &Device) -> Rc<Adjacency> {
    let rows = (0..300u32).map(|i| {
        let degree = match i {
            17 => 20_000,
            i if i % 7 == 0 => return Vec::new(),
            i => i % 23,
        };
        (0..degree).map(|k| (i * 31 + k * 17) % 300).chain(std::iter::repeat_n(5, 45)).collect()
    });
    let graph = from_rows(device, rows, 300);
    assert!(graph.forward.portions.hubs.len() == 1 && graph.transpose.portions.hubs.len() == 1);
    graph
}

/// The edges of `graph` in blocks of sources: each block has the same rows, and the sources of one range, renumbered
/// from 0. With each block come its first source and the forward positions of its edges.
pub(crate) fn blocks(device: &Device, graph: &Adjacency, size: usize) -> Vec<(Rc<Adjacency>, usize, Vec<usize>)> {
    let csr = &graph.forward.csr;
    let block = |first: usize| {
        let within = |j: &u32| (first..first + size).contains(&(*j as usize));
        let rows =
            (0..csr.num_dst()).map(|i| csr.row(i).iter().filter(|j| within(j)).map(|j| j - first as u32).collect());
        let edges = (0..csr.num_edges()).filter(|e| within(&csr.indices()[*e])).collect();
        (from_rows(device, rows, size.min(csr.num_src() - first)), first, edges)
    };
    (0..csr.num_src()).step_by(size).map(block).collect()
}

/// A dropout of half the edges with renumbered nodes.
pub(crate) fn dropout(graph: &Adjacency) -> EdgeDropout {
    EdgeDropout {
        dropout: Dropout::new(0.5, 1, 2, 3, 4),
        src: renumbered(graph.num_src()),
        dst: renumbered(graph.num_dst()),
    }
}

/// Original ids in another order.
pub(crate) fn renumbered(n: usize) -> Ids {
    Ids::Listed((0..n as u64).map(|k| 1000 - 3 * k).collect())
}

/// Numbers between −2 and 2 that every type can store.
pub(crate) fn upload(device: &Device, seed: u64, shape: Shape, dtype: DType) -> Matrix {
    let (rows, cols) = shape;
    let x: Vec<f64> = numbers(seed, rows * cols).iter().map(|x| half::bf16::from_f64(2.0 * x).to_f64()).collect();
    let m = device.upload(rows, cols, &x, Tag::Activations).unwrap();
    device.convert("test", &m, dtype).unwrap()
}

/// The elements as f64.
pub(crate) fn f64s(m: &Matrix) -> Vec<f64> {
    m.device().convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap()
}

/// A function of matrices over a graph. `Stored` operands have the type under test, the others its compute type.
pub(crate) struct Case<'a> {
    pub(crate) graph: &'a dyn Fn(&Device) -> Rc<Adjacency>,
    pub(crate) inputs: &'a [(usize, usize, InputType)],
    pub(crate) f: &'a Function<'a>,
}

/// From the graph and the inputs to the output.
pub(crate) type Function<'a> = dyn Fn(&mut Tape, &Rc<Adjacency>, &[Var]) -> Result<Var> + 'a;

/// How an operand is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InputType {
    Stored,
    Computed,
}

impl Case<'_> {
    /// The output, then the gradients of all inputs.
    pub(crate) fn run(&self, device: &Device, dtype: DType) -> Vec<Vec<f64>> {
        let graph = (self.graph)(device);
        let mut tape = Tape::new(device);
        let input = |(k, (rows, cols, kind)): (usize, &(usize, usize, InputType))| {
            let dtype = if let InputType::Stored = kind { dtype } else { dtype.compute() };
            upload(device, k as u64 + 1, (*rows, *cols), dtype)
        };
        let vars: Vec<Var> = self.inputs.iter().enumerate().map(input).map(|m| tape.leaf(m)).collect();
        let out = (self.f)(&mut tape, &graph, &vars).unwrap();
        let value = out.value().clone();
        let g = upload(device, 77, value.shape(), value.dtype());
        let found = tape.backward(vec![(out, g)], &vars.iter().collect::<Vec<_>>(), |_| Ok(())).unwrap();
        std::iter::once(&value).chain(found.iter().flatten()).map(f64s).collect()
    }

    /// Every instruction set, in f32 and in bf16, against f64.
    pub(crate) fn agrees_with_f64(&self, what: &str, single: f64, half: f64) {
        for dtype in [DType::F64, DType::F32, DType::Bf16] {
            takes_as_much(&format!("{what} {dtype}"), |device| self.run(device, dtype));
        }
        let exact = self.run(&Device::cpu(), DType::F64);
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
            let device = Device::with_backend(Box::new(Cpu::with_isa(isa)));
            for (dtype, tolerance) in [(DType::F32, single), (DType::Bf16, half)] {
                let found = self.run(&device, dtype);
                // Portable code adds up a hub's edges one after another.
                let tolerance = if isa == Isa::Portable { 5.0 * tolerance } else { tolerance };
                assert_eq!(found.len(), exact.len());
                for (k, (x, e)) in found.iter().zip(&exact).enumerate() {
                    near(x, e, tolerance, &format!("{what} {isa} {dtype} result {k}"));
                }
            }
        }
    }
}

#[cfg(feature = "cuda")]
impl Case<'_> {
    /// A GPU in every type against f64 on the CPU; the same bits every time.
    pub(crate) fn agrees_on_a_gpu(&self, what: &str, single: f64, half: f64) {
        let exact = self.run(&Device::cpu(), DType::F64);
        let device = crate::ops::tests::gpu();
        for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F32, single), (DType::Bf16, half)] {
            let found = self.run(&device, dtype);
            assert_eq!(found.len(), exact.len());
            for (k, (x, e)) in found.iter().zip(&exact).enumerate() {
                near(x, e, tolerance, &format!("{what} {dtype} result {k}"));
            }
            assert!(found == self.run(&device, dtype), "{what} {dtype}: other bits the second time");
        }
    }
}

/// Two tests of the same cases, which a function hands out with tolerances for f32 and bf16: on every instruction set
/// of the CPU, and on a GPU.
macro_rules! cases_agree_with_f64 {
    ($cases:ident) => {
        #[test]
        fn every_instruction_set_and_type_agrees_with_f64() {
            $cases(|case, what, single, half| case.agrees_with_f64(what, single, half));
        }

        #[cfg(feature = "cuda")]
        #[test]
        #[ignore = "needs a GPU"]
        fn a_gpu_agrees_with_f64() {
            $cases(|case, what, single, half| case.agrees_on_a_gpu(what, single, half));
        }
    };
}
pub(crate) use cases_agree_with_f64;

/// A function over the graph with a hub gives the same bits in f32 for any number of threads.
pub(crate) fn same_bits_over_a_hub(
    what: &str,
    inputs: &[(usize, usize, InputType)],
    f: impl Fn(&mut Tape, &Rc<Adjacency>, &[Var]) -> Result<Var> + Sync,
) {
    let run = || Case { graph: &with_hub, inputs, f: &f }.run(&Device::cpu(), DType::F32);
    same_bits_for_any_number_of_threads(run, what);
}

/// What `case` gives is the same for one, two and three threads.
pub(crate) fn same_bits_for_any_number_of_threads(case: impl Fn() -> Vec<Vec<f64>> + Sync, what: &str) {
    let run = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(&case);
    let one = run(1);
    assert!(one == run(2) && one == run(3), "{what}");
}

/// `x` is `expected` within `tolerance`, relative to the largest element where that is above 1.
pub(crate) fn near(x: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(x.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    // A NaN is as far off as can be.
    let off = |(x, e): (&f64, &f64)| Some((x - e).abs()).filter(|d| !d.is_nan()).unwrap_or(f64::INFINITY);
    let worst = x.iter().zip(expected).map(off).fold(0.0, f64::max);
    assert!(worst <= tolerance * scale, "{what}: {worst} of {scale}");
}

/// Rows of a matrix, copied.
pub(crate) fn rows_of(m: &Matrix, rows: impl IntoIterator<Item = usize>) -> Matrix {
    let (all, cols) = (f64s(m), m.cols());
    let some: Vec<f64> = rows.into_iter().flat_map(|r| &all[r * cols..(r + 1) * cols]).copied().collect();
    let some = m.device().upload(some.len() / cols, cols, &some, Tag::Activations).unwrap();
    m.device().convert("test", &some, m.dtype()).unwrap()
}

/// Softmax attention by its definition: `score(edge, j, i, h)` with everything in it, `values` a row per source.
pub(crate) fn dense_attention(
    graph: &Adjacency,
    heads: usize,
    values: &[f64],
    dropout: Option<&EdgeDropout>,
    score: impl Fn(usize, usize, usize, usize) -> f64,
) -> Vec<f64> {
    let (csr, d) = (&graph.forward.csr, values.len() / graph.num_src());
    let w = d / heads;
    let factor = |j: usize, i: usize, h: usize| {
        dropout.map_or(1.0, |x| {
            f64::from(x.dropout.edge(x.src.view().of(j), x.dst.view().of(i), (h / 8) as u32, 8)[h % 8])
        })
    };
    let mut out = vec![0.0; graph.num_dst() * d];
    for (i, h) in (0..graph.num_dst()).flat_map(|i| (0..heads).map(move |h| (i, h))) {
        let edges: Vec<(usize, usize)> = csr.edges_of(i).map(|e| (e, csr.indices()[e] as usize)).collect();
        let weights: Vec<f64> = edges.iter().map(|&(e, j)| score(e, j, i, h).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (weight, (_, j)) in weights.iter().zip(edges) {
            for c in h * w..(h + 1) * w {
                out[i * d + c] += weight / total * factor(j, i, h) * values[j * d + c];
            }
        }
    }
    out
}
