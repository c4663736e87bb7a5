//! What the linear layer over sparse features needs beside aggregation.

use half::bf16;
use rayon::prelude::*;

use super::elementwise::{Convert, Real};
use super::parallel::{each, each_chunk};
use super::share::Shared;
use super::{Cpu, Isa, host, host_mut, scratch};
use crate::adjacency::Adjacency;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::bag::{Bag, BagKernels};
use crate::ops::dropout::RowDropout;
use crate::random::{GROUP, LOT};

const OP: &str = "bag";
/// Side of the squares in which a matrix is transposed: both sides of one stay in cache.
const SIDE: usize = 32;
/// Rows per partial sum.
pub(super) const ROWS: usize = 2048;

impl BagKernels for Cpu {
    fn transpose(&self, from: &Matrix, to: &mut Matrix) -> Result<()> {
        to.expect(OP, "transpose", from.cols(), from.rows())?;
        match from.dtype() {
            DType::F64 => transpose::<f64>(from, to),
            DType::F32 => transpose::<f32>(from, to),
            DType::Bf16 => transpose::<bf16>(from, to),
        }
    }

    fn spread_row(&self, row: &Matrix, to: &mut Matrix) -> Result<()> {
        row.expect(OP, "row", 1, to.cols())?;
        match (row.dtype(), to.dtype()) {
            (DType::F64, DType::F64) => spread::<f64, f64>(row, to),
            (DType::F32, DType::F32) => spread::<f32, f32>(row, to),
            (DType::F32, DType::Bf16) => spread::<f32, bf16>(row, to),
            (got, _) => Err(Error::Type { op: OP, what: "row", got }),
        }
    }

    fn sum_rows(&self, from: &Matrix, to: &mut Matrix) -> Result<()> {
        to.expect(OP, "sum", 1, from.cols())?;
        match (from.dtype(), to.dtype()) {
            (DType::F64, DType::F64) => sum_rows::<f64, f64>(self.isa, from, to),
            (DType::F32, DType::F32) => sum_rows::<f32, f32>(self.isa, from, to),
            (DType::Bf16, DType::F32) => sum_rows::<f32, bf16>(self.isa, from, to),
            (_, got) => Err(Error::Type { op: OP, what: "sum", got }),
        }
    }

    fn drop_entries(&self, x: &Bag, drop: &RowDropout, to: &mut Matrix) -> Result<()> {
        let (graph, entries) = x.parts();
        match to.dtype() {
            DType::F64 => drop_entries::<f64>(self.isa, graph, entries, drop, to),
            DType::F32 => drop_entries::<f32>(self.isa, graph, entries, drop, to),
            got => Err(Error::Type { op: OP, what: "entries", got }),
        }
    }
}

/// Masks are made for a lot of entries at once, whatever rows they are in.
fn drop_entries<C: Real>(
    isa: Isa,
    graph: &Adjacency,
    entries: Option<&Matrix>,
    drop: &RowDropout,
    to: &mut Matrix,
) -> Result<()> {
    let csr = &graph.forward.csr;
    to.expect(OP, "entries", csr.num_edges(), 1)?;
    let entries = entries.map(|m| host::<C>(OP, "entries", m)).transpose()?;
    let to = Shared::new(host_mut::<C>(OP, "entries", to)?);
    let (ids, dropout, columns) = (drop.ids.view(), drop.dropout, &csr.indices()[..]);
    let tasks = &graph.forward.portions.all;
    each(tasks.len(), &|number| {
        let task = &tasks[number];
        // SAFETY: the edges of tasks are disjoint.
        let to = unsafe { to.part(task.edges.clone()) };
        isa.run(
            #[inline(always)]
            || {
                let (mut nodes, mut groups, mut bits) = ([0; LOT], [0; LOT], [0; 2 * LOT]);
                let mut row = task.rows.start;
                for (lot, to) in to.chunks_mut(LOT).enumerate() {
                    let first = task.edges.start + lot * LOT;
                    for k in 0..to.len() {
                        while csr.edges_of(row).end <= first + k {
                            row += 1;
                        }
                        nodes[k] = ids.of(row);
                        groups[k] = u64::from(columns[first + k]) / GROUP as u64;
                    }
                    dropout.row_bits(&nodes, &groups, &mut bits);
                    let bits: &[u16] = bytemuck::cast_slice(&bits);
                    for (k, to) in to.iter_mut().enumerate() {
                        let factor = dropout.factor(bits[k * GROUP + columns[first + k] as usize % GROUP]);
                        *to = entries.map_or(C::one(), |entries| entries[first + k]) * C::of(factor);
                    }
                }
            },
        );
    });
    Ok(())
}

fn transpose<T: Element>(from: &Matrix, to: &mut Matrix) -> Result<()> {
    let (rows, cols) = from.shape();
    let (from, to) = (host::<T>(OP, "matrix", from)?, host_mut::<T>(OP, "transpose", to)?);
    if rows * cols == 0 {
        return Ok(());
    }
    each_chunk(to, SIDE * rows, &|block, to| {
        for first in (0..rows).step_by(SIDE) {
            for (c, to) in to.chunks_mut(rows).enumerate() {
                for (r, to) in to[first..rows.min(first + SIDE)].iter_mut().enumerate() {
                    *to = from[(first + r) * cols + block * SIDE + c];
                }
            }
        }
    });
    Ok(())
}

fn spread<A: Convert, B: Convert>(row: &Matrix, to: &mut Matrix) -> Result<()> {
    let row: Vec<B> = host::<A>(OP, "row", row)?.iter().map(|x| B::narrow(x.widen())).collect();
    if !row.is_empty() {
        host_mut::<B>(OP, "matrix", to)?
            .par_chunks_mut(row.len())
            .with_min_len(64)
            .for_each(|to| to.copy_from_slice(&row));
    }
    Ok(())
}

fn sum_rows<C: Real, T: Convert>(isa: Isa, from: &Matrix, to: &mut Matrix) -> Result<()> {
    let cols = from.cols();
    let mut parts = scratch::sum_rows(from)?;
    let (from, to) = (host::<T>(OP, "matrix", from)?, host_mut::<C>(OP, "sum", to)?);
    if cols == 0 {
        return Ok(());
    }
    let parts = host_mut::<C>(OP, "partial", &mut parts)?;
    each_chunk(parts, cols, &|part, sum| {
        isa.run(|| {
            for row in from[part * ROWS * cols..].chunks(cols).take(ROWS) {
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum = *sum + C::of(*x));
            }
        });
    });
    to.fill(C::zero());
    for part in parts.chunks(cols) {
        to.iter_mut().zip(part).for_each(|(sum, x)| *sum = *sum + *x);
    }
    Ok(())
}
