//! Rows of all nodes, in a file: written in order, read in any.

use std::ops::Range;

use bytemuck::Pod;
use graphweft_graph::Buf;
use graphweft_graph::build::{Scratch, Spool};
use graphweft_tensor::{DType, Device, Element, Matrix, Tag};
use half::bf16;

use crate::error::Result;

/// Rows read before their pages are given back.
const LOT: usize = 1 << 17;

/// A table in the making.
pub(super) struct Writer {
    values: Writing,
    cols: usize,
}

enum Writing {
    F32(Spool<f32>),
    Bf16(Spool<bf16>),
    F64(Spool<f64>),
}

/// A row per node.
pub(super) struct Table {
    values: Values,
    cols: usize,
}

enum Values {
    F32(Buf<f32>),
    Bf16(Buf<bf16>),
    F64(Buf<f64>),
}

impl Writer {
    /// For rows like those of `m`.
    pub(super) fn new(scratch: &Scratch, m: &Matrix) -> Self {
        let values = match m.dtype() {
            DType::F64 => Writing::F64(Spool::new(scratch)),
            DType::Bf16 => Writing::Bf16(Spool::new(scratch)),
            _ => Writing::F32(Spool::new(scratch)),
        };
        Self { values, cols: m.cols() }
    }

    /// Appends rows of `m`.
    pub(super) fn push(&mut self, m: &Matrix, rows: Range<usize>) -> Result<()> {
        let range = rows.start * self.cols..rows.end * self.cols;
        match &mut self.values {
            Writing::F32(to) => to.push(&m.to_vec::<f32>()?[range])?,
            Writing::Bf16(to) => to.push(&m.to_vec::<bf16>()?[range])?,
            Writing::F64(to) => to.push(&m.to_vec::<f64>()?[range])?,
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Table> {
        let values = match self.values {
            Writing::F32(from) => Values::F32(from.finish()?),
            Writing::Bf16(from) => Values::Bf16(from.finish()?),
            Writing::F64(from) => Values::F64(from.finish()?),
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
            Values::F32(values) => upload(device, values, self.cols, nodes),
            Values::Bf16(values) => upload(device, values, self.cols, nodes),
            Values::F64(values) => upload(device, values, self.cols, nodes),
        }
    }
}

fn upload<T: Element + Pod>(device: &Device, values: &Buf<T>, cols: usize, nodes: &[u32]) -> Result<Matrix> {
    let mut rows = Vec::with_capacity(nodes.len() * cols);
    for lot in nodes.chunks(LOT) {
        lot.iter().for_each(|node| rows.extend_from_slice(&values[*node as usize * cols..][..cols]));
        values.release();
    }
    Ok(device.upload(nodes.len(), cols, &rows, Tag::Activations)?)
}
