//! The kernels over the edges of a graph by themselves, for those who have arrays and a training loop of their own.
//!
//! Nothing is copied: kernels read and write the caller's arrays, here or on a GPU. Attention keeps a row and a number
//! per head of every node, never something of the size of the edges. The same arguments give the same bits, whatever
//! the threads; work is spread over rayon's current pool.
//!
//! ```
//! use graphweft::Graph;
//! use graphweft::kernels::{Along, EdgeKernels, Sum, Values, ValuesMut};
//! let kernels = EdgeKernels::new(&Graph::from_edges(3, &[0, 2], &[1, 1])?)?;
//! let mut out = [0.0; 3];
//! let sum = Sum { along: Along::Edges, width: 1, edge: None, dst: None, src: None, x: Values::F64(&[1.0, 2.0, 4.0]) };
//! kernels.sum(&sum, ValuesMut::F64(&mut out))?;
//! assert_eq!(out, [0.0, 5.0, 0.0]);
//! # Ok::<(), graphweft::Error>(())
//! ```

mod operands;
mod place;
mod values;

use std::sync::{Mutex, MutexGuard, PoisonError};

use graphweft_graph::AnyCsr;
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::attention as op;
use graphweft_tensor::ops::edge_values::{EdgeColumns, EdgeTail};
use graphweft_tensor::ops::spmm::{EdgeWeights, MaxGradient, Spmm, SpmmMax};
use graphweft_tensor::{Adjacency, Device, Dropout, Element, Ids, Matrix, Tag};
use half::bf16;

use crate::error::{Error, Result};
use crate::graph::Graph;
use place::{Place, Visit};

pub use operands::{Attention, AttentionGradients, Seed, Sum};
pub use place::GpuHost;
use values::Kind;
pub use values::{GpuArray, Values, ValuesMut};

#[doc(no_inline)]
pub use graphweft_tensor::ops::attention::Score;
#[doc(no_inline)]
pub use graphweft_tensor::ops::spmm::Along;

/// A graph made ready for kernels. Calls from several threads wait for each other: each uses all of the pool. A task of
/// that pool must not make one, since it could be given another such task while it waits.
///
/// On a GPU (see [`EdgeKernels::on_gpu`]) calls return as soon as the GPU was told.
///
/// ```
/// use graphweft::Graph;
/// use graphweft::kernels::{Along, EdgeKernels, Sum, Values, ValuesMut};
/// let kernels = EdgeKernels::new(&Graph::from_edges(2, &[0], &[1])?)?;
/// // The gradient of a sum goes back along the edges.
/// let g = Values::F64(&[0.0, 1.0]);
/// let mut dx = [9.0; 2];
/// let sum = Sum { along: Along::Transpose, width: 1, edge: None, dst: None, src: None, x: g };
/// kernels.sum(&sum, ValuesMut::F64(&mut dx))?;
/// assert_eq!(dx, [1.0, 0.0]);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Debug)]
pub struct EdgeKernels(Mutex<Prepared>);

#[derive(Debug)]
struct Prepared {
    // Goes first: what of the graph is on a GPU must not be given back too early.
    place: Place,
    graph: Adjacency,
}

// SAFETY: every counted reference to the device is in this struct or in matrices that are made and dropped while it is
// locked, so that all of them move between threads together.
unsafe impl Send for Prepared {}

/// A call under way.
struct Call<'a> {
    visit: Visit,
    graph: &'a Adjacency,
}

impl Prepared {
    fn call(&self) -> Result<Call<'_>> {
        Ok(Call { visit: self.place.enter(None)?, graph: &self.graph })
    }

    /// The same with dropouts of `seed`.
    fn call_with(&self, seed: Seed) -> Result<Call<'_>> {
        let key = match seed {
            Seed::Number(_) => None,
            Seed::OnGpu(at) => Some(at),
        };
        Ok(Call { visit: self.place.enter(key)?, graph: &self.graph })
    }
}

/// The matrix over numbers that are read (`Values`) or written (`ValuesMut`).
macro_rules! numbers {
    ($call:ident, $of:ident, $what:ident, $values:ident, $shape:expr) => {
        match $values {
            $of::F32(x) => $call.over::<f32, f32>($what, x, $shape),
            $of::F64(x) => $call.over::<f64, f64>($what, x, $shape),
            $of::Bf16(x) => $call.over::<u16, bf16>($what, x, $shape),
            $of::Gpu(x) if x.kind != Kind::Ids => $call.over_gpu($what, x, $shape),
            $of::Ids(_) | $of::Gpu(_) => Err(mistaken($what, "numbers")),
        }
    };
}

/// The same over nodes, `width` for each destination.
macro_rules! ids {
    ($call:ident, $of:ident, $ids:ident, $width:expr) => {{
        let shape = [$call.graph.num_dst(), $width];
        match $ids {
            $of::Ids(x) => $call.over::<u32, f32>("arg", x, shape),
            $of::Gpu(x) if x.kind == Kind::Ids => $call.over_gpu("arg", x, shape),
            _ => Err(mistaken("arg", "ids")),
        }
    }};
}

impl Call<'_> {
    fn device(&self) -> &Device {
        self.visit.device()
    }

    /// A matrix over `elements`, which must be so many rows and columns.
    fn over<T, E: Element>(&self, what: &'static str, elements: *const [T], shape: [usize; 2]) -> Result<Matrix> {
        let [rows, cols] = shape;
        self.fits(what, elements.len(), shape)?;
        // SAFETY: the elements are borrowed for the call, and no matrix is kept. Those of `Values` are only read. Every
        // T is as large as its E, and all bits are numbers.
        Ok(unsafe { self.device().lend(rows, cols, elements.cast::<E>().cast_mut(), Tag::Activations) }?)
    }

    /// The same over numbers on a GPU.
    fn over_gpu(&self, what: &'static str, x: GpuArray, shape: [usize; 2]) -> Result<Matrix> {
        self.fits(what, x.count, shape)?;
        // SAFETY: by the promise of who made `x`; no matrix is kept.
        unsafe { place::lend(self.device(), x, shape) }
    }

    fn fits(&self, what: &'static str, count: usize, shape: [usize; 2]) -> Result<()> {
        let [rows, cols] = shape;
        if rows.checked_mul(cols) != Some(count) {
            let problem = format!("{what} has {count} numbers, expected {rows} × {cols}");
            return Err(Error::request(problem, "give a row per node, or per edge"));
        }
        Ok(())
    }

    fn read(&self, what: &'static str, values: Values<'_>, rows: usize, cols: usize) -> Result<Matrix> {
        numbers!(self, Values, what, values, [rows, cols])
    }

    fn written(&self, what: &'static str, values: ValuesMut<'_>, rows: usize, cols: usize) -> Result<Matrix> {
        numbers!(self, ValuesMut, what, values, [rows, cols])
    }

    /// What edges bring for the tails of heads.
    fn edges(&self, values: Values<'_>) -> Result<EdgeTail> {
        let edges = self.graph.num_edges();
        let columns = values.count() / edges.max(1);
        let rows = Some(self.read("edges", values, edges, columns)?);
        Ok(EdgeTail { columns: EdgeColumns::numbers(columns), rows })
    }

    /// The operands of a score, with so many numbers behind each head of a destination.
    fn score(&self, a: &Attention<'_>, tail: usize) -> Result<Score<Matrix>> {
        let (heads, d) = (a.heads, a.width);
        let (dst, src) = (self.graph.num_dst(), self.graph.num_src());
        Ok(match a.score {
            Score::Dot { q, kv } => {
                let own = d.saturating_sub(heads.saturating_mul(tail));
                Score::Dot { q: self.read("q", q, dst, d)?, kv: self.read("kv", kv, src, own.saturating_mul(2))? }
            }
            Score::Gat { l, r, z, slope } => Score::Gat {
                l: self.read("l", l, dst, heads)?,
                r: self.read("r", r, src, heads)?,
                z: self.read("z", z, src, d)?,
                slope,
            },
            Score::Gatv2 { l, r, value, a, slope } => Score::Gatv2 {
                l: self.read("l", l, dst, d)?,
                r: self.read("r", r, src, d)?,
                value: value.map(|value| self.read("value", value, src, d)).transpose()?,
                a: self.read("a", a, heads, d / heads.max(1))?,
                slope,
            },
        })
    }

    /// Hands `f` the operands of `a`, checked.
    fn attend<T>(&self, a: &Attention<'_>, f: impl FnOnce(&op::Attention<'_>) -> Result<T>) -> Result<T> {
        let edges = a.edges.map(|edges| self.edges(edges)).transpose()?;
        let score = self.score(a, edges.as_ref().map_or(0, |edges| edges.columns.tail()))?;
        let bias = a.bias.map(|bias| self.read("bias", bias, self.graph.num_edges(), a.heads)).transpose()?;
        if !(0.0..=1.0).contains(&a.dropout) {
            return Err(Error::request(format!("a dropout of {}", a.dropout), "give a number from 0 to 1"));
        }
        let seed = match a.seed {
            Seed::Number(seed) => seed,
            Seed::OnGpu(_) => 0,
        };
        let dropout = Dropout::new(a.dropout, seed, 0, 0, 0);
        let dropout = op::EdgeDropout { dropout, src: Ids::Same, dst: Ids::Same };
        let operands = op::Attention {
            graph: self.graph,
            heads: a.heads,
            score: score.as_ref(),
            bias: bias.as_ref().map_or(op::Bias::None, op::Bias::PerEdge),
            edges: edges.as_ref(),
            edge_weight: None,
            dropout: dropout.dropout.is_active().then_some(&dropout),
        };
        operands.check()?;
        f(&operands)
    }

    /// Hands `f` the operands of `sum`, with a row of x for each of `rows`.
    fn add<T>(&self, sum: &Sum<'_>, f: impl FnOnce(&Spmm<'_>) -> Result<T>) -> Result<T> {
        let column = |what, values: Option<Values<'_>>, rows| values.map(|v| self.read(what, v, rows, 1)).transpose();
        let edge = column("edge weights", sum.edge, self.graph.num_edges())?;
        let dst = column("destination factors", sum.dst, self.graph.num_dst())?;
        let src = column("source factors", sum.src, self.graph.num_src())?;
        let weights = EdgeWeights { edge: edge.as_ref(), dst: dst.as_ref(), src: src.as_ref() };
        let rows = match sum.along {
            Along::Edges => self.graph.num_src(),
            Along::Transpose => self.graph.num_dst(),
        };
        let x = self.read("x", sum.x, rows, sum.width)?;
        f(&Spmm { graph: self.graph, weights, along: sum.along, x: &x })
    }

    /// Whose maxima are, `width` for each destination. Ids that are of no source do no harm: backward only compares
    /// them.
    fn arg(&self, arg: Values<'_>, width: usize) -> Result<Matrix> {
        ids!(self, Values, arg, width)
    }

    /// The same, to be written.
    fn arg_mut(&self, arg: ValuesMut<'_>, width: usize) -> Result<Matrix> {
        ids!(self, ValuesMut, arg, width)
    }
}

fn mistaken(what: &str, expected: &str) -> Error {
    Error::request(format!("{what} has no {expected}"), "give memory of the other kind")
}

impl EdgeKernels {
    /// Makes `graph` ready: its transpose, and the work cut into tasks.
    ///
    /// # Errors
    /// If it has more nodes than 32-bit ids can name.
    pub fn new(graph: &Graph) -> Result<Self> {
        Self::at(Place::Cpu(Device::cpu()), graph)
    }

    /// The same on GPU number `index`, which `host` has started: kernels go to its streams, and it gives the memory
    /// that they need. Arguments are [`Values::Gpu`].
    ///
    /// # Errors
    /// As [`EdgeKernels::new`]; and if a library of CUDA is missing or the GPU does not answer.
    pub fn on_gpu(graph: &Graph, index: usize, host: impl GpuHost + 'static) -> Result<Self> {
        Self::at(Place::of(index, host)?, graph)
    }

    fn at(place: Place, graph: &Graph) -> Result<Self> {
        let AnyCsr::Narrow(csr) = &*graph.0 else {
            return Err(Error::request("ids of this graph have 64 bits", "take a graph of fewer than 2³² nodes"));
        };
        let graph = Adjacency::new(place.enter(None)?.device(), csr.clone())?;
        Ok(Self(Mutex::new(Prepared { place, graph })))
    }

    fn prepared(&self) -> MutexGuard<'_, Prepared> {
        // Nothing is half done after a panic: kernels change the caller's arrays only.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Overwrites `out` with a row per node and `lse` with a number per node and head, for
    /// [`EdgeKernels::attention_backward`].
    ///
    /// # Errors
    /// If arrays do not fit together, in length or type.
    pub fn attention(&self, a: &Attention<'_>, out: ValuesMut<'_>, lse: ValuesMut<'_>) -> Result<()> {
        let on = &*self.prepared();
        let on = on.call_with(a.seed)?;
        let rows = on.graph.num_dst();
        on.attend(a, |operands| {
            let (mut out, mut lse) = (on.written("out", out, rows, a.width)?, on.written("lse", lse, rows, a.heads)?);
            Ok(on.device().backend().attention(operands, &mut out, &mut lse)?)
        })
    }

    /// Overwrites the gradients of the operands.
    ///
    /// # Errors
    /// As [`EdgeKernels::attention`].
    pub fn attention_backward(&self, a: &Attention<'_>, to: AttentionGradients<'_>) -> Result<()> {
        let on = &*self.prepared();
        let on = on.call_with(a.seed)?;
        let (rows, backend) = (on.graph.num_dst(), on.device().backend());
        on.attend(a, |operands| {
            let (out, g) = (on.read("out", to.out, rows, a.width)?, on.read("g", to.g, rows, a.width)?);
            let lse = on.read("lse", to.lse, rows, a.heads)?;
            let mut d = on.device().uninit("attention backward", rows, a.heads, lse.dtype(), Tag::Workspace)?;
            backend.attention_d(a.heads, &g, &out, &mut d)?;
            let saved = op::Saved { lse: &lse, g: &g, d: &d };
            let place = |what, values: Option<ValuesMut<'_>>, like: Option<&Matrix>| match (values, like) {
                (Some(values), Some(like)) => on.written(what, values, like.rows(), like.cols()).map(Some),
                (None, _) => Ok(None),
                (Some(_), None) => Err(Error::request(format!("a place for {what}"), "leave out what has no operand")),
            };
            let [dst, src, value, shared] = match operands.score {
                Score::Dot { q, kv } => [Some(q), Some(kv), None, None],
                Score::Gat { l, r, z, .. } => [Some(l), Some(r), Some(z), None],
                Score::Gatv2 { l, r, value, a, .. } => [Some(l), Some(r), value, Some(a)],
            };
            let mut row = place("gradient of destinations", Some(to.dst), dst)?;
            let mut shared = place("gradient of a", to.shared, shared)?;
            let mut bias = place("gradient of the bias", to.bias, operands.bias.learnt())?;
            if let Some(row) = &mut row {
                let (shared, bias) = (shared.as_mut(), bias.as_mut());
                let to = op::DstGrads { row, write: Write::Set, shared, bias, edge_weight: None };
                backend.attention_dst(operands, &saved, to)?;
            }
            let mut row = place("gradient of sources", Some(to.src), src)?;
            // The pass computes both or none.
            if value.is_some() != to.value.is_some() {
                return Err(Error::request("values without a place for their gradient", "give both or none"));
            }
            let mut value = place("gradient of values", to.value, value)?;
            if let Some(row) = &mut row {
                backend.attention_src(operands, &saved, op::SrcGrads { row, value: value.as_mut() })?;
            }
            Ok(())
        })
    }

    /// Overwrites `out` with the sums, a row per node.
    ///
    /// # Errors
    /// If arrays do not fit together, in length or type.
    pub fn sum(&self, sum: &Sum<'_>, out: ValuesMut<'_>) -> Result<()> {
        let on = &*self.prepared();
        let on = on.call()?;
        on.add(sum, |operands| {
            let mut out = on.written("out", out, operands.direction().csr.num_dst(), sum.width)?;
            Ok(on.device().backend().spmm(operands, &mut out, Write::Set)?)
        })
    }

    /// Overwrites `dw` with the gradient of the numbers of edges, of a sum to destinations whose gradient is `g`.
    ///
    /// # Errors
    /// If arrays do not fit together, in length or type.
    pub fn sum_weights(&self, sum: &Sum<'_>, g: Values<'_>, dw: ValuesMut<'_>) -> Result<()> {
        let on = &*self.prepared();
        let on = on.call()?;
        on.add(sum, |operands| {
            let g = on.read("g", g, on.graph.num_dst(), sum.width)?;
            let mut dw = on.written("dw", dw, on.graph.num_edges(), 1)?;
            Ok(on.device().backend().spmm_dw(operands, &g, &mut dw)?)
        })
    }

    /// Overwrites `out` with the maximum of each of `width` columns over the sources of a node, 0 where it has none,
    /// and `arg` with whose it is; of equals the first.
    ///
    /// # Errors
    /// If arrays do not fit together, in length or type.
    pub fn max(&self, width: usize, x: Values<'_>, out: ValuesMut<'_>, arg: ValuesMut<'_>) -> Result<()> {
        let on = &*self.prepared();
        let on = on.call()?;
        let x = on.read("x", x, on.graph.num_src(), width)?;
        let (mut out, mut arg) = (on.written("out", out, on.graph.num_dst(), width)?, on.arg_mut(arg, width)?);
        let operands = SpmmMax { graph: on.graph, x: &x, ids: &Ids::Same };
        Ok(on.device().backend().spmm_max(&operands, &mut out, &mut arg, Write::Set)?)
    }

    /// Overwrites `dx` with the gradient of x, of a maximum whose gradient is `g`.
    ///
    /// # Errors
    /// If arrays do not fit together, in length or type.
    pub fn max_backward(&self, width: usize, g: Values<'_>, arg: Values<'_>, dx: ValuesMut<'_>) -> Result<()> {
        let on = &*self.prepared();
        let on = on.call()?;
        let (g, arg) = (on.read("g", g, on.graph.num_dst(), width)?, on.arg(arg, width)?);
        let mut dx = on.written("dx", dx, on.graph.num_src(), width)?;
        let operands = MaxGradient { graph: on.graph, ids: &Ids::Same, arg: &arg, g: &g };
        Ok(on.device().backend().spmm_max_dx(&operands, &mut dx, Write::Set)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_that_do_not_fit_are_refused() {
        let kernels = EdgeKernels::new(&Graph::from_edges(3, &[0, 2], &[1, 1]).unwrap()).unwrap();
        let (q, kv) = ([1.0f32; 6], [1.0f32; 12]);
        let (mut out, mut lse, mut short) = ([0.0f32; 6], [0.0f32; 3], [0.0f32; 5]);
        let call = |q| Attention {
            heads: 1,
            width: 2,
            score: Score::Dot { q, kv: Values::F32(&kv) },
            bias: None,
            edges: None,
            dropout: 0.0,
            seed: Seed::Number(0),
        };
        let (good, narrow) = (call(Values::F32(&q)), call(Values::F32(&q[1..])));
        kernels.attention(&good, ValuesMut::F32(&mut out), ValuesMut::F32(&mut lse)).unwrap();
        assert_eq!(out, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
        assert!(kernels.attention(&narrow, ValuesMut::F32(&mut out), ValuesMut::F32(&mut lse)).is_err());
        assert!(kernels.attention(&good, ValuesMut::F32(&mut short), ValuesMut::F32(&mut lse)).is_err());
        assert!(kernels.attention(&good, ValuesMut::F64(&mut [0.0; 6]), ValuesMut::F32(&mut lse)).is_err());
        let dropped = Attention { dropout: f64::NAN, ..good };
        assert!(kernels.attention(&dropped, ValuesMut::F32(&mut out), ValuesMut::F32(&mut lse)).is_err());
    }

    /// One head of two columns, and a feature of edges: a number and three zeros behind each.
    #[test]
    fn features_of_edges_meet_the_tails_of_heads() {
        let kernels = EdgeKernels::new(&Graph::from_edges(3, &[0, 2], &[1, 1]).unwrap()).unwrap();
        let (mut q, mut out, mut lse) = ([0.0; 18], [0.0; 18], [0.0; 3]);
        // Node 1 asks for the feature alone.
        q[8] = 2f64.sqrt();
        let (kv, features) = ([1.0; 12], [0.0, 3f64.ln()]);
        let call = |features| Attention {
            heads: 1,
            width: 6,
            score: Score::Dot { q: Values::F64(&q), kv: Values::F64(&kv) },
            bias: None,
            edges: Some(Values::F64(features)),
            dropout: 0.0,
            seed: Seed::Number(0),
        };
        kernels.attention(&call(&features), ValuesMut::F64(&mut out), ValuesMut::F64(&mut lse)).unwrap();
        // The edge from node 2 weighs three times as much as the other one.
        let expected = [1.0, 1.0, 0.75 * 3f64.ln(), 0.0, 0.0, 0.0];
        assert!(out[6..12].iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-12), "{out:?}");
        let wide = [0.0; 20];
        assert!(kernels.attention(&call(&wide), ValuesMut::F64(&mut out), ValuesMut::F64(&mut lse)).is_err());
    }

    #[test]
    fn threads_may_share_them() {
        fn shared<T: Send + Sync>() {}
        shared::<EdgeKernels>();
    }
}
