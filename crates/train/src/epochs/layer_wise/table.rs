//! Rows of all nodes, in a file: written in order, read in any.

use std::ops::Range;

use bytemuck::Pod;
use graphweft_graph::Buf;
use graphweft_graph::build::{Scratch, Spool};
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::combine::Patch;
use graphweft_tensor::{DType, Device, Element, Matrix, Tag};
use half::bf16;
use rayon::prelude::*;

use crate::error::Result;

/// Rows read before their pages are given back.
const LOT: usize = 1 << 14;
/// Of these, rows that a thread copies at a time.
const AT_A_TIME: usize = 1 << 12;

/// Rows written at a time.
const WRITTEN: usize = 1 << 17;

/// A table in the making.
pub(super) struct Writer {
    values: ByType<Spool<f32>, Spool<bf16>, Spool<f64>>,
    cols: usize,
}

/// One of these, by the type of the numbers.
enum ByType<F32, Bf16, F64> {
    F32(F32),
    Bf16(Bf16),
    F64(F64),
}

/// A row per node.
pub(super) struct Table {
    values: ByType<Buf<f32>, Buf<bf16>, Buf<f64>>,
    cols: usize,
}

impl Writer {
    /// For rows like those of `m`.
    pub(super) fn new(scratch: &Scratch, m: &Matrix) -> Self {
        let values = match m.dtype() {
            DType::F64 => ByType::F64(Spool::new(scratch)),
            DType::Bf16 => ByType::Bf16(Spool::new(scratch)),
            _ => ByType::F32(Spool::new(scratch)),
        };
        Self { values, cols: m.cols() }
    }

    /// Appends rows of `m`, some at a time: they are there in several copies until they are written.
    pub(super) fn push(&mut self, m: &Matrix, rows: Range<usize>) -> Result<()> {
        let device = m.device();
        for start in rows.clone().step_by(WRITTEN) {
            let count = WRITTEN.min(rows.end - start);
            let mut lot = device.uninit("state", count, m.cols(), m.dtype(), Tag::Activations)?;
            let patch = Patch { from: [start, 0], to: [0, 0], size: [count, m.cols()] };
            device.backend().copy_patch(m, &mut lot, patch, Write::Set)?;
            match &mut self.values {
                ByType::F32(to) => to.push(&lot.to_vec::<f32>()?)?,
                ByType::Bf16(to) => to.push(&lot.to_vec::<bf16>()?)?,
                ByType::F64(to) => to.push(&lot.to_vec::<f64>()?)?,
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Table> {
        let values = match self.values {
            ByType::F32(from) => ByType::F32(from.finish()?),
            ByType::Bf16(from) => ByType::Bf16(from.finish()?),
            ByType::F64(from) => ByType::F64(from.finish()?),
        };
        Ok(Table { values, cols: self.cols })
    }
}

impl Table {
    pub(super) fn cols(&self) -> usize {
        self.cols
    }

    /// The rows of these nodes, on a device.
    pub(super) fn rows(&self, device: &Device, nodes: &[u32]) -> Result<Matrix> {
        match &self.values {
            ByType::F32(values) => upload(device, values, self.cols, nodes),
            ByType::Bf16(values) => upload(device, values, self.cols, nodes),
            ByType::F64(values) => upload(device, values, self.cols, nodes),
        }
    }
}

fn upload<T: Element + Pod + Send + Sync>(
    device: &Device,
    values: &Buf<T>,
    cols: usize,
    nodes: &[u32],
) -> Result<Matrix> {
    let mut rows = vec![T::zeroed(); nodes.len() * cols];
    for (to, lot) in rows.chunks_mut(LOT * cols.max(1)).zip(nodes.chunks(LOT)) {
        let parts = to.par_chunks_mut(AT_A_TIME * cols.max(1)).zip(lot.par_chunks(AT_A_TIME));
        parts.for_each(|(to, nodes)| {
            let to = to.chunks_exact_mut(cols.max(1)).zip(nodes);
            to.for_each(|(to, node)| to.copy_from_slice(&values[*node as usize * cols..][..cols]));
        });
        values.release();
    }
    Ok(device.upload(nodes.len(), cols, &rows, Tag::Activations)?)
}
