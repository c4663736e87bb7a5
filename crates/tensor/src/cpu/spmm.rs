//! Aggregation on the CPU: portions over rows, a kernel per instruction set.

mod portable;
mod vector;

use half::bf16;
use rayon::prelude::*;

use super::elementwise::{Convert, Real};
use super::neighbours::run;
use super::share::Shared;
use super::simd::{Stored, Version};
use super::{Cpu, Isa, host, host_mut, scratch};
use crate::adjacency::{Adjacency, Direction, Portion};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::spmm::{Along, EdgeWeights, MaxGradient, Spmm, SpmmKernels, SpmmMax};
use crate::random::{Ids, IdsView};
use vector::{Max, MaxBack, Products, Sum};

const OP: &str = "aggregate";
/// The id of no node: what a row without edges has as its largest.
const NOBODY: u32 = u32::MAX;

/// Weights as slices, seen from the rows of one direction.
struct Weights<'a, C> {
    edge: Option<&'a [C]>,
    /// From positions in the direction to edges; `None` where they are the same.
    map: Option<&'a [u64]>,
    row: Option<&'a [C]>,
    col: Option<&'a [C]>,
}

impl<'a, C: Element + num_traits::Float> Weights<'a, C> {
    fn new(graph: &'a Adjacency, w: &EdgeWeights<'a>, along: Along) -> Result<Self> {
        let slice = |what, m: Option<&'a Matrix>| m.map(|m| host::<C>(OP, what, m)).transpose();
        let edge = slice("edge weights", w.edge)?;
        let (dst, src) = (slice("destination factors", w.dst)?, slice("source factors", w.src)?);
        Ok(match along {
            Along::Edges => Self { edge, map: None, row: dst, col: src },
            Along::Transpose => Self { edge, map: edge.map(|_| graph.edges()), row: src, col: dst },
        })
    }

    /// Whether the weights within a row are all 1.
    fn is_uniform(&self) -> bool {
        self.edge.is_none() && self.col.is_none()
    }

    /// The factor of a whole row.
    #[inline(always)]
    fn of_row(&self, row: usize) -> C {
        self.row.map_or(C::one(), |r| r[row])
    }

    /// The weight of the edge at a position, whose far end is `other`, without its row's factor.
    #[inline(always)]
    fn of_edge(&self, at: usize, other: usize) -> C {
        let edge = self.edge.map_or(C::one(), |e| e[self.map.map_or(at, |map| map[at] as usize)]);
        self.col.map_or(edge, |c| edge * c[other])
    }
}

/// The maximum is stored as its operand is.
fn same_type(x: &Matrix, what: &'static str, other: &Matrix) -> Result<()> {
    if x.dtype() == other.dtype() { Ok(()) } else { Err(Error::Type { op: OP, what, got: other.dtype() }) }
}

/// Original ids as u32.
fn check_ids(ids: &Ids, rows: usize) -> Result<IdsView<'_>> {
    let view = ids.view();
    let problem = match ids {
        Ids::Listed(ids) if ids.len() != rows => format!("{} ids for {rows} sources", ids.len()),
        Ids::Listed(ids) if ids.par_iter().any(|id| *id >= NOBODY.into()) => {
            "the maximum needs original ids below 2³² − 1".into()
        }
        _ => return Ok(view),
    };
    Err(Error::Argument { op: OP, problem })
}

/// Vectors suit rows that are at least as long: the last one overlaps the one before.
pub(super) fn version(isa: Isa, d: usize) -> Version {
    Version::new(isa, |lanes| d >= lanes)
}

/// The bits that a matrix of f32 carries.
fn bits(m: &Matrix) -> Result<&[u32]> {
    host::<f32>(OP, "arg", m).map(bytemuck::cast_slice)
}

fn bits_mut(m: &mut Matrix) -> Result<&mut [u32]> {
    host_mut::<f32>(OP, "arg", m).map(bytemuck::cast_slice_mut)
}

impl SpmmKernels for Cpu {
    fn inverse_degrees(&self, graph: &Adjacency, numerator: Option<&Matrix>, to: &mut Matrix) -> Result<()> {
        fn fill<C: Real>(graph: &Adjacency, numerator: Option<&Matrix>, to: &mut Matrix) -> Result<()> {
            let numerator = numerator.map(|m| host::<C>(OP, "destination factors", m)).transpose()?;
            for (i, to) in host_mut::<C>(OP, "factors", to)?.iter_mut().enumerate() {
                let degree = graph.forward.csr.degree(i);
                let above = numerator.map_or(C::one(), |n| n[i]);
                *to = if degree == 0 { C::zero() } else { above / C::of(degree as f64) };
            }
            Ok(())
        }
        to.expect(OP, "factors", graph.num_dst(), 1)?;
        match to.dtype() {
            DType::F64 => fill::<f64>(graph, numerator, to),
            _ => fill::<f32>(graph, numerator, to),
        }
    }

    fn spmm(&self, a: &Spmm<'_>, out: &mut Matrix, write: Write) -> Result<()> {
        let (x, csr) = (a.x, &a.direction().csr);
        let d = x.cols();
        x.expect(OP, "x", csr.num_src(), d)?;
        out.expect(OP, "out", csr.num_dst(), d)?;
        match (x.dtype(), out.dtype()) {
            (DType::F64, DType::F64) => portable::sum::<f64, f64, f64>(a, out, write),
            (DType::F32, DType::F32) => sum::<f32, f32>(self.isa, a, out, write),
            (DType::F32, DType::Bf16) => sum::<f32, bf16>(self.isa, a, out, write),
            (DType::Bf16, DType::F32) => sum::<bf16, f32>(self.isa, a, out, write),
            (DType::Bf16, DType::Bf16) => sum::<bf16, bf16>(self.isa, a, out, write),
            (_, got) => Err(Error::Type { op: OP, what: "out", got }),
        }
    }

    fn spmm_dw(&self, a: &Spmm<'_>, g: &Matrix, dw: &mut Matrix) -> Result<()> {
        let Spmm { graph, x, .. } = *a;
        x.expect(OP, "x", graph.num_src(), x.cols())?;
        g.expect(OP, "g", graph.num_dst(), x.cols())?;
        dw.expect(OP, "dw", graph.num_edges(), 1)?;
        match x.dtype() {
            DType::F64 => portable::products::<f64, f64>(a, g, dw),
            DType::F32 => products::<f32>(self.isa, a, g, dw),
            DType::Bf16 => products::<bf16>(self.isa, a, g, dw),
        }
    }

    fn spmm_max(&self, a: &SpmmMax<'_>, out: &mut Matrix, arg: &mut Matrix, write: Write) -> Result<()> {
        let SpmmMax { graph, x, .. } = *a;
        x.expect(OP, "x", graph.num_src(), x.cols())?;
        out.expect(OP, "out", graph.num_dst(), x.cols())?;
        arg.expect(OP, "arg", graph.num_dst(), x.cols())?;
        same_type(x, "out", out)?;
        match x.dtype() {
            DType::F64 => portable::max::<f64>(a, out, arg, write),
            DType::F32 => max::<f32>(self.isa, a, out, arg, write),
            DType::Bf16 => max::<bf16>(self.isa, a, out, arg, write),
        }
    }

    fn spmm_max_dx(&self, a: &MaxGradient<'_>, dx: &mut Matrix, write: Write) -> Result<()> {
        let MaxGradient { graph, arg, g, .. } = *a;
        g.expect(OP, "g", graph.num_dst(), g.cols())?;
        arg.expect(OP, "arg", graph.num_dst(), g.cols())?;
        dx.expect(OP, "dx", graph.num_src(), g.cols())?;
        same_type(g, "dx", dx)?;
        match g.dtype() {
            DType::F64 => portable::max_back::<f64, f64>(a, dx, write),
            DType::F32 => max_back::<f32>(self.isa, a, dx, write),
            DType::Bf16 => max_back::<bf16>(self.isa, a, dx, write),
        }
    }
}

/// Adds up the pieces of a hub, times `factor`, into its row.
fn merge<T: Convert>(partial: &[f32], factor: f32, row: &mut [T], write: Write) {
    let d = row.len();
    for (c, to) in row.iter_mut().enumerate() {
        let old = if write == Write::Add { f32::of(*to) } else { 0.0 };
        *to = T::narrow(f64::from(old + factor * partial.chunks(d).map(|p| p[c]).sum::<f32>()));
    }
}

/// From the row of a hub and what its pieces came to, makes what is written to the row.
type Merge<'a, O> = dyn Fn(usize, &[f32], &mut [O]) + Sync + 'a;

/// Runs `portion` over all portions, then `merge` over the hubs: their row, what their pieces came to, and where that
/// goes.
fn run_sums<O: Send + Sync>(
    direction: &Direction,
    d: usize,
    portion: &(dyn Fn(&Portion) + Sync),
    partial: &Shared<'_, f32>,
    out: &Shared<'_, O>,
    merge: &Merge<'_, O>,
) {
    run(direction, &|_, one| portion(one), &|row, pieces| {
        // SAFETY: all portions are done; each hub reads its own pieces and writes its own row.
        let (partial, out) =
            unsafe { (partial.part(pieces.start * d..pieces.end * d), out.part(row * d..(row + 1) * d)) };
        merge(row, partial, out);
    });
}

fn sum<T: Stored, O: Stored>(isa: Isa, a: &Spmm<'_>, out: &mut Matrix, write: Write) -> Result<()> {
    let (x, direction, d) = (a.x, a.direction(), a.x.cols());
    let Some(kernel) = vector::sum_for(version(isa, d)) else {
        return portable::sum::<f32, T, O>(a, out, write);
    };
    let mut partial = scratch::spmm_pieces(x, direction, d)?;
    let o = Sum {
        indptr: direction.csr.indptr(),
        indices: direction.csr.indices(),
        d,
        x: host::<T>(OP, "x", x)?,
        weights: Weights::new(a.graph, &a.weights, a.along)?,
        out: Shared::new(host_mut::<O>(OP, "out", out)?),
        write,
        partial: Shared::new(host_mut(OP, "partial", &mut partial)?),
    };
    // SAFETY: the kernel was chosen by what the processor has; portions write their own rows or pieces.
    let portion = |portion: &Portion| unsafe { kernel(&o, portion) };
    run_sums(direction, d, &portion, &o.partial, &o.out, &|row, partial, out| {
        merge(partial, o.weights.of_row(row), out, write);
    });
    Ok(())
}

fn products<T: Stored>(isa: Isa, a: &Spmm<'_>, g: &Matrix, dw: &mut Matrix) -> Result<()> {
    let Spmm { graph, weights, x, .. } = *a;
    let Some(kernel) = vector::products_for(version(isa, x.cols())) else {
        return portable::products::<f32, T>(a, g, dw);
    };
    let factors = EdgeWeights { edge: None, ..weights };
    let o = Products {
        indptr: graph.forward.csr.indptr(),
        indices: graph.forward.csr.indices(),
        d: x.cols(),
        x: host::<T>(OP, "x", x)?,
        g: host::<T>(OP, "g", g)?,
        factors: Weights::new(graph, &factors, Along::Edges)?,
        dw: Shared::new(host_mut(OP, "dw", dw)?),
    };
    run(
        &graph.forward,
        // SAFETY: as in `sum`; portions write their own edges.
        &|_, portion| unsafe { kernel(&o, portion) },
        &|_, _| {},
    );
    Ok(())
}

fn max<T: Stored>(isa: Isa, a: &SpmmMax<'_>, out: &mut Matrix, arg: &mut Matrix, write: Write) -> Result<()> {
    let SpmmMax { graph, x, ids } = *a;
    let (direction, d) = (&graph.forward, x.cols());
    let Some(kernel) = vector::max_for(version(isa, d)) else {
        return portable::max::<T>(a, out, arg, write);
    };
    let mut partial = scratch::spmm_pieces(x, direction, 2 * d)?;
    let o = Max {
        indptr: direction.csr.indptr(),
        indices: direction.csr.indices(),
        d,
        x: host::<T>(OP, "x", x)?,
        ids: check_ids(ids, x.rows())?,
        out: Shared::new(host_mut(OP, "out", out)?),
        arg: Shared::new(bits_mut(arg)?),
        write,
        partial: Shared::new(host_mut(OP, "partial", &mut partial)?),
    };
    run(
        direction,
        // SAFETY: as in `sum`.
        &|_, portion| unsafe { kernel(&o, portion) },
        &|row, pieces| {
            // SAFETY: as in `sum`.
            let (partial, out, arg) = unsafe {
                let columns = row * d..(row + 1) * d;
                let partial = o.partial.part(2 * pieces.start * d..2 * pieces.end * d);
                (partial, o.out.part(columns.clone()), o.arg.part(columns))
            };
            for (c, (out, arg)) in out.iter_mut().zip(arg).enumerate() {
                let mut best = portable::begin::<f32, T>(*out, *arg, write);
                for piece in partial.chunks(2 * d) {
                    let found = portable::Largest { value: piece[c], id: piece[d + c].to_bits() };
                    best = portable::larger(found, best);
                }
                *out = T::narrow(best.value.into());
                *arg = best.id;
            }
        },
    );
    Ok(())
}

fn max_back<T: Stored>(isa: Isa, a: &MaxGradient<'_>, dx: &mut Matrix, write: Write) -> Result<()> {
    let MaxGradient { graph, ids, arg, g } = *a;
    let (direction, d) = (&graph.transpose, g.cols());
    let Some(kernel) = vector::max_back_for(version(isa, d)) else {
        return portable::max_back::<f32, T>(a, dx, write);
    };
    let mut partial = scratch::spmm_pieces(g, direction, d)?;
    let o = MaxBack {
        indptr: direction.csr.indptr(),
        indices: direction.csr.indices(),
        d,
        g: host::<T>(OP, "g", g)?,
        arg: bits(arg)?,
        ids: check_ids(ids, dx.rows())?,
        dx: Shared::new(host_mut(OP, "dx", dx)?),
        write,
        partial: Shared::new(host_mut(OP, "partial", &mut partial)?),
    };
    // SAFETY: as in `sum`.
    let portion = |portion: &Portion| unsafe { kernel(&o, portion) };
    run_sums(direction, d, &portion, &o.partial, &o.dx, &|_, partial, dx| merge(partial, 1.0, dx, write));
    Ok(())
}
