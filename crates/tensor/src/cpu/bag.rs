//! What the linear layer over sparse features needs beside aggregation.

use half::bf16;
use rayon::prelude::*;

use super::elementwise::{Convert, Real};
use super::{Cpu, Isa, host, host_mut};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::bag::BagKernels;

const OP: &str = "bag";
/// Side of the squares in which a matrix is transposed: both sides of one stay in cache.
const SIDE: usize = 32;
/// Rows per partial sum.
const ROWS: usize = 2048;

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
}

fn transpose<T: Element>(from: &Matrix, to: &mut Matrix) -> Result<()> {
    let (rows, cols) = from.shape();
    let (from, to) = (host::<T>(OP, "matrix", from)?, host_mut::<T>(OP, "transpose", to)?);
    if rows * cols == 0 {
        return Ok(());
    }
    to.par_chunks_mut(SIDE * rows).enumerate().for_each(|(block, to)| {
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
    let (rows, cols) = from.shape();
    let mut parts = from.device().zeros(OP, rows.div_ceil(ROWS), cols, C::DTYPE, Tag::Workspace)?;
    let (from, to) = (host::<T>(OP, "matrix", from)?, host_mut::<C>(OP, "sum", to)?);
    if cols == 0 {
        return Ok(());
    }
    let parts = host_mut::<C>(OP, "partial", &mut parts)?;
    parts.par_chunks_mut(cols).zip(from.par_chunks(ROWS * cols)).for_each(|(sum, rows)| {
        isa.run(|| {
            for row in rows.chunks(cols) {
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
