//! Aggregation on the GPU, compiled for each width of rows.

use std::rc::Rc;

use bytemuck::{Pod, Zeroable};

use super::compile::{Defines, Source};
use super::graph::Resident;
use super::numbers::number;
use super::sums::{Part, Pieces};
use super::{Cuda, source};
use crate::adjacency::{Adjacency, Direction};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::spmm::{Along, EdgeWeights, MaxGradient, Spmm, SpmmKernels, SpmmMax};
use crate::random::Ids;

const OP: &str = "aggregate";
pub(super) static SUMS: Source = source!("spmm", ["numbers", "lanes", "random", "edges", "spmm"]);
pub(super) static MAXIMA: Source = source!("spmm_max", ["numbers", "lanes", "random", "edges", "spmm"]);
/// Threads of a block.
const THREADS: usize = 128;
const WARP: usize = 32;
/// Bytes of the widest load.
const LOAD: usize = 16;
/// Vectors that a lane has of a row at most.
const CHUNKS: usize = 4;

/// How the lanes of a warp share the columns of a row; see spmm.cuh.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    columns: usize,
    vec: usize,
    team: usize,
    chunks: usize,
}

impl Shape {
    /// For elements of at least `size` bytes.
    pub(super) fn new(columns: usize, size: usize) -> Self {
        let columns = columns.max(1);
        let vec = (1 << columns.trailing_zeros()).min(LOAD / size);
        let vectors = columns / vec;
        let team = vectors.next_power_of_two().min(WARP);
        Self { columns, vec, team, chunks: vectors.div_ceil(team).min(CHUNKS) }
    }

    /// Blocks that share the columns.
    fn tiles(&self) -> usize {
        self.columns.div_ceil(self.team * self.chunks * self.vec)
    }

    fn grid(&self, warps: usize) -> [usize; 2] {
        [warps.div_ceil(THREADS / WARP), self.tiles()]
    }

    pub(super) fn defines(&self, x: DType, out: DType) -> Defines {
        // More edges in flight hide more latency; more columns per lane leave fewer registers for them.
        let unroll = match self.chunks * self.vec {
            0..=4 => 4,
            5..=16 => 2,
            _ => 1,
        };
        Defines::of(x)
            .with("COLUMNS", self.columns)
            .with("X_TYPE", number(x))
            .with("OUT_TYPE", number(out))
            .with("VEC", self.vec)
            .with("TEAM", self.team)
            .with("CHUNKS", self.chunks)
            .with("UNROLL", unroll.min(self.team))
            .with("THREADS", THREADS)
    }
}

/// As in spmm.cuh.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Graph {
    items: u64,
    indices: u64,
    indptr: u64,
    count: u32,
    pieces: u32,
}

/// As in spmm.cuh.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Weights {
    edge: u64,
    map: u64,
    row: u64,
    column: u64,
}

/// As in spmm_max.cu.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Target {
    out: u64,
    arg: u64,
    values: u64,
    ids: u64,
    add: u32,
    unused: u32,
}

/// Where sums go: rows of `out`, and pieces of rows first to a workspace.
pub(super) struct Sums<'a> {
    pub(super) out: u64,
    pub(super) dtype: DType,
    pub(super) write: Write,
    /// A factor per row, or null.
    pub(super) factors: u64,
    pub(super) device: &'a Device,
}

impl Cuda {
    /// A direction of a graph, as kernels see it.
    pub(super) fn spmm_graph(&self, device: &Device, direction: &Direction) -> Result<(Rc<Resident>, Graph)> {
        let resident = self.resident(device, direction)?;
        let at = resident.places(self);
        let (count, pieces) = (resident.count as u32, resident.pieces as u32);
        Ok((resident, Graph { items: at.items, indices: at.indices, indptr: at.indptr, count, pieces }))
    }

    fn spmm_weights(
        &self,
        device: &Device,
        graph: &Adjacency,
        w: &EdgeWeights<'_>,
        along: Along,
        compute: DType,
    ) -> Result<Weights> {
        let at = |what, m| self.maybe_address(OP, what, m, compute);
        let edge = at("edge weights", w.edge)?;
        let (dst, src) = (at("destination factors", w.dst)?, at("source factors", w.src)?);
        Ok(match along {
            Along::Edges => Weights { edge, map: 0, row: dst, column: src },
            Along::Transpose => {
                let map = match w.edge {
                    Some(_) => self.edge_map(device, graph, &*self.resident(device, &graph.transpose)?)?,
                    None => 0,
                };
                Weights { edge, map, row: src, column: dst }
            }
        })
    }

    /// Runs a kernel that sums over the items of a graph, whose last arguments are `out`, the pieces, their size, and
    /// whether to add.
    pub(super) fn run_sums(
        &self,
        graph: &Resident,
        shape: &Shape,
        launch: super::launch::Launch<'_>,
        compute: DType,
        to: &Sums<'_>,
    ) -> Result<()> {
        let size = shape.columns.next_multiple_of(8);
        let mut pieces = to.device.uninit(OP, graph.pieces, size, compute, Tag::Workspace)?;
        let add = to.write == Write::Add;
        let launch = launch
            .arg(to.out)
            .arg(self.address_mut(OP, "pieces", &mut pieces, compute)?)
            .arg(size as u32)
            .arg(i32::from(add));
        // SAFETY: the arguments are those of the kernel; shapes were checked, ids in a CSR are below the number of rows
        // of the operands, and there is memory for every piece.
        unsafe { launch.run(shape.grid(graph.count), THREADS, 0)? };
        let parts = [Part { to: to.out, width: shape.columns, dtype: to.dtype }, Part::NONE];
        self.sum_pieces(OP, graph, &Pieces { of: &pieces, factors: to.factors, parts, add })
    }

    /// Original ids for kernels that compare 32 bits of them.
    fn short_ids(&self, ids: &Ids, rows: usize) -> Result<u64> {
        let problem = match ids {
            Ids::Listed(ids) if ids.len() != rows => format!("{} ids for {rows} sources", ids.len()),
            Ids::Listed(ids) if ids.iter().any(|id| *id >= u32::MAX.into()) => {
                "the maximum needs original ids below 2³² − 1".into()
            }
            _ => return self.ids(ids),
        };
        Err(Error::Argument { op: OP, problem })
    }
}

impl SpmmKernels for Cuda {
    fn inverse_degrees(&self, graph: &Adjacency, numerator: Option<&Matrix>, to: &mut Matrix) -> Result<()> {
        to.expect(OP, "factors", graph.num_dst(), 1)?;
        let dtype = to.dtype();
        let resident = self.resident(to.device(), &graph.forward)?;
        let launch = self
            .kernel(OP, &SUMS, Shape::new(1, dtype.size()).defines(dtype, dtype), "inverse_degrees")?
            .arg(resident.places(self).indptr)
            .arg(self.maybe_address(OP, "destination factors", numerator, dtype)?)
            .arg(self.address_mut(OP, "factors", to, dtype)?)
            .arg(graph.num_dst() as u32);
        // SAFETY: the arguments are those of the kernel, and shapes were checked.
        unsafe { launch.run_each(graph.num_dst()) }
    }

    fn spmm(&self, a: &Spmm<'_>, out: &mut Matrix, write: Write) -> Result<()> {
        let &Spmm { graph, ref weights, along, x } = a;
        let direction = a.direction();
        let (csr, d, device) = (&direction.csr, x.cols(), x.device());
        x.expect(OP, "x", csr.num_src(), d)?;
        out.expect(OP, "out", csr.num_dst(), d)?;
        let (from, to) = (x.dtype(), out.dtype());
        if from.compute() != to.compute() {
            return Err(Error::Type { op: OP, what: "out", got: to });
        }
        if d == 0 {
            return Ok(());
        }
        let shape = Shape::new(d, from.size().min(to.size()));
        let (resident, structure) = self.spmm_graph(device, direction)?;
        let weights = self.spmm_weights(device, graph, weights, along, from.compute())?;
        let launch = self
            .kernel(OP, &SUMS, shape.defines(from, to), "spmm")?
            .arg(structure)
            .arg(weights)
            .arg(self.address(OP, "x", x, from)?);
        let out = self.address_mut(OP, "out", out, to)?;
        let sums = Sums { out, dtype: to, write, factors: weights.row, device };
        self.run_sums(&resident, &shape, launch, from.compute(), &sums)
    }

    fn spmm_dw(&self, a: &Spmm<'_>, g: &Matrix, dw: &mut Matrix) -> Result<()> {
        let &Spmm { graph, ref weights, x, .. } = a;
        let (d, dtype, device) = (x.cols(), x.dtype(), x.device());
        x.expect(OP, "x", graph.num_src(), d)?;
        g.expect(OP, "g", graph.num_dst(), d)?;
        dw.expect(OP, "dw", graph.num_edges(), 1)?;
        if d == 0 {
            return device.backend().zero(dw);
        }
        let shape = Shape::new(d, dtype.size());
        let (resident, structure) = self.spmm_graph(device, &graph.forward)?;
        let factors = EdgeWeights { edge: None, ..*weights };
        let launch = self
            .kernel(OP, &SUMS, shape.defines(dtype, dtype), "weight_gradient")?
            .arg(structure)
            .arg(self.spmm_weights(device, graph, &factors, Along::Edges, dtype.compute())?)
            .arg(self.address(OP, "x", x, dtype)?)
            .arg(self.address(OP, "g", g, dtype)?)
            .arg(self.address_mut(OP, "dw", dw, dtype.compute())?);
        // SAFETY: as in `run_sums`.
        unsafe { launch.run([shape.grid(resident.count)[0], 1], THREADS, 0) }
    }

    fn spmm_max(&self, a: &SpmmMax<'_>, out: &mut Matrix, arg: &mut Matrix, write: Write) -> Result<()> {
        let SpmmMax { graph, x, ids } = *a;
        let (d, dtype, device) = (x.cols(), x.dtype(), x.device());
        x.expect(OP, "x", graph.num_src(), d)?;
        out.expect(OP, "out", graph.num_dst(), d)?;
        arg.expect(OP, "arg", graph.num_dst(), d)?;
        if d == 0 {
            return Ok(());
        }
        let shape = Shape::new(d, dtype.size());
        let (resident, structure) = self.spmm_graph(device, &graph.forward)?;
        let ids = self.short_ids(ids, x.rows())?;
        let piece = |dtype| device.uninit(OP, resident.pieces, d, dtype, Tag::Workspace);
        let (mut values, mut holders) = (piece(dtype.compute())?, piece(DType::F32)?);
        let target = Target {
            out: self.address_mut(OP, "out", out, dtype)?,
            arg: self.address_mut(OP, "arg", arg, DType::F32)?,
            values: self.address_mut(OP, "pieces", &mut values, dtype.compute())?,
            ids: self.address_mut(OP, "pieces", &mut holders, DType::F32)?,
            add: (write == Write::Add).into(),
            unused: 0,
        };
        let kernel = |name| self.kernel(OP, &MAXIMA, shape.defines(dtype, dtype), name);
        let x = self.address(OP, "x", x, dtype)?;
        let launch = kernel("max_forward")?.arg(structure).arg(ids).arg(x).arg(target);
        // SAFETY: as in `run_sums`.
        unsafe { launch.run(shape.grid(resident.count), THREADS, 0)? };
        for (merges, count) in resident.merges(self) {
            let launch = kernel("max_merge")?.arg(merges).arg(count as u32).arg(target);
            // SAFETY: as above; merges name pieces and rows of this graph.
            unsafe { launch.run(shape.grid(count), THREADS, 0)? };
        }
        Ok(())
    }

    fn spmm_max_dx(&self, a: &MaxGradient<'_>, dx: &mut Matrix, write: Write) -> Result<()> {
        let MaxGradient { graph, arg, g, ids } = *a;
        let (d, dtype, device) = (g.cols(), g.dtype(), g.device());
        g.expect(OP, "g", graph.num_dst(), d)?;
        arg.expect(OP, "arg", graph.num_dst(), d)?;
        dx.expect(OP, "dx", graph.num_src(), d)?;
        if d == 0 {
            return Ok(());
        }
        let shape = Shape::new(d, dtype.size());
        let (resident, structure) = self.spmm_graph(device, &graph.transpose)?;
        let launch = self
            .kernel(OP, &SUMS, shape.defines(dtype, dtype), "max_gradient")?
            .arg(structure)
            .arg(self.short_ids(ids, dx.rows())?)
            .arg(self.address(OP, "arg", arg, DType::F32)?)
            .arg(self.address(OP, "g", g, dtype)?);
        let out = self.address_mut(OP, "dx", dx, dtype)?;
        let sums = Sums { out, dtype, write, factors: 0, device };
        self.run_sums(&resident, &shape, launch, dtype.compute(), &sums)
    }
}
