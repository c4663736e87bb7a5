//! Matrices that are never learned, made once where a layer first asks for them.

use std::cell::OnceCell;
use std::rc::Rc;

use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Device, Matrix, Result, Tag};

use crate::network::Context;

/// A matrix of ones, where `of` says so of row and column, and zeros, in the type of the computation.
pub(crate) fn constant(
    device: &Device,
    rows: usize,
    cols: usize,
    cx: &Context,
    of: impl Fn(usize, usize) -> bool,
) -> Result<Matrix> {
    let one = |at: usize| f32::from(u8::from(of(at / cols.max(1), at % cols.max(1))));
    let values: Vec<f32> = (0..rows * cols).map(one).collect();
    let m = device.upload(rows, cols, &values, Tag::Graph)?;
    device.convert("constants", &m, cx.dtype.compute())
}

/// For each of `rows` rows the number of the piece of so many rows that it is in.
pub(crate) fn pieces(device: &Device, rows: usize, size: usize) -> Result<Rc<RowIndex>> {
    let index = (0..rows).map(|row| (row / size.max(1)) as u32).collect();
    Ok(Rc::new(RowIndex::new(device, rows / size.max(1), index)?))
}

/// What `cell` has, which `make` makes at first.
pub(crate) fn once<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(made) = cell.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}
