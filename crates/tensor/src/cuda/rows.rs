//! Rows picked and added up by index, on the GPU.

use std::any::Any;
use std::rc::Rc;

use bytemuck::Zeroable;

use super::compile::{Defines, Source};
use super::elementwise::typed;
use super::launch::THREADS;
use super::many_rows::Rows;
use super::shape::RowShape;
use super::{Cuda, CudaBlock, place, place_mut, source};
use crate::backend::Memory;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::many_rows::ManyRows;
use crate::ops::rows::{RowIndex, RowKernels};

const OP: &str = "rows";
pub(super) static SOURCE: Source = source!("rows", ["numbers", "row_shape"]);
pub(super) static MERGE: Source = source!("attention_merge", ["numbers", "lanes"]);
/// Positions that one thread group adds up; rows that are listed more often are cut.
const PIECE: usize = 128;
/// A piece that is its row's only one.
const WHOLE: u32 = u32::MAX;

/// A list of rows on the GPU, and what a scatter by it does.
struct Resident {
    index: CudaBlock,
    positions: CudaBlock,
    /// (row, first position, end, place among the partial sums or [`WHOLE`]).
    pieces: CudaBlock,
    /// (row, first place among the partial sums, end, 0).
    hubs: CudaBlock,
    /// (row, first position, end, 0) of every listed row.
    targets: CudaBlock,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    pieces: usize,
    hubs: usize,
    partial: usize,
    targets: usize,
}

impl Cuda {
    fn resident_rows(&self, index: &RowIndex) -> Result<Rc<Resident>> {
        if let Some(held) = index.resident().get() {
            return Rc::clone(held).downcast().map_err(|_| self.elsewhere("the list of rows"));
        }
        self.not_captured("a list of the host")?;
        let (mut pieces, mut hubs, mut partial, mut positions) = (Vec::new(), Vec::new(), 0u32, Vec::new());
        let mut targets = Vec::new();
        for (row, list) in index.groups().within(0..index.num_rows()) {
            let first = positions.len() as u32;
            targets.push([row as u32, first, first + list.len() as u32, 0]);
            let count = list.len().div_ceil(PIECE) as u32;
            if count > 1 {
                hubs.push([row as u32, partial, partial + count, 0]);
            }
            for chunk in list.chunks(PIECE) {
                let start = positions.len() as u32;
                let place = if count > 1 { partial } else { WHOLE };
                partial += u32::from(count > 1);
                pieces.push([row as u32, start, start + chunk.len() as u32, place]);
                positions.extend_from_slice(chunk);
            }
        }
        let counts =
            Counts { pieces: pieces.len(), hubs: hubs.len(), partial: partial as usize, targets: targets.len() };
        let copy = |e| self.fail("copy a list of rows to the GPU")(e);
        let held = Rc::new(Resident {
            index: self.brought(bytemuck::cast_slice(index.index())).map_err(copy)?,
            positions: self.brought(bytemuck::cast_slice(&positions)).map_err(copy)?,
            pieces: self.brought(bytemuck::cast_slice(&pieces)).map_err(copy)?,
            hubs: self.brought(bytemuck::cast_slice(&hubs)).map_err(copy)?,
            targets: self.brought(bytemuck::cast_slice(&targets)).map_err(copy)?,
            counts,
        });
        let any: Rc<dyn Any> = Rc::clone(&held) as _;
        // The cell was empty just now, and a rank is one thread.
        let _ = index.resident().set(any);
        Ok(held)
    }
}

impl Cuda {
    /// Merges states of attention of listed rows, one after the other.
    pub(super) fn merge_states(
        &self,
        heads: usize,
        partial: &Matrix,
        index: &RowIndex,
        state: &mut Matrix,
    ) -> Result<()> {
        let (size, dtype) = (state.cols(), state.dtype());
        state.expect(OP, "state", index.num_rows(), size)?;
        partial.expect(OP, "partial states", index.index().len(), size)?;
        typed(OP, "partial states", partial, dtype)?;
        let held = self.resident_rows(index)?;
        let count = held.counts.targets * heads;
        let launch = self
            .kernel(OP, &MERGE, Defines::of(dtype), "attention_merge")?
            .read("partial states", partial)?
            .arg(held.targets.place(&self.stream))
            .arg(held.positions.place(&self.stream))
            .write("state", state)?
            .arg(count as i64)
            .arg(heads as i32)
            .arg((size - 2 * heads) as i32);
        // SAFETY: the arguments are those of the kernel; positions are below the rows of partial, targets below those
        // of state.
        unsafe { launch.run_each(count) }
    }
}

/// An empty list has a place on the GPU too.
pub(super) fn padded<X: Zeroable>(mut list: Vec<X>) -> Vec<X> {
    if list.is_empty() {
        list.push(X::zeroed());
    }
    list
}

impl RowKernels for Cuda {
    fn gather_rows(&self, x: &Matrix, index: &RowIndex, y: &mut Matrix) -> Result<()> {
        let (rows, cols, dtype) = (index.index().len(), x.cols(), x.dtype());
        x.expect(OP, "x", index.num_rows(), cols)?;
        y.expect(OP, "y", rows, cols)?;
        typed(OP, "y", y, dtype)?;
        let held = self.resident_rows(index)?;
        let shape = RowShape::new(rows, cols, dtype);
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype), "gather_rows")?
            .read("x", x)?
            .arg(held.index.place(&self.stream))
            .write("y", y)?
            .arg(rows as i64)
            .arg(cols as i32);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes; indices are below the number of
        // rows of x.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }

    fn scatter_rows(&self, x: &Matrix, index: &RowIndex, y: &mut Matrix, write: Write) -> Result<()> {
        let (cols, dtype) = (y.cols(), y.dtype());
        x.expect(OP, "x", index.index().len(), cols)?;
        y.expect(OP, "y", index.num_rows(), cols)?;
        typed(OP, "x", x, dtype)?;
        if write == Write::Set {
            self.zero(y)?;
        }
        let held = self.resident_rows(index)?;
        let counts = held.counts;
        let mut partial = y.device().uninit(OP, counts.partial, cols, dtype.compute(), Tag::Workspace)?;
        let shape = RowShape::new(counts.pieces, cols, dtype);
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype), "scatter_pieces")?
            .read("x", x)?
            .arg(held.pieces.place(&self.stream))
            .arg(held.positions.place(&self.stream))
            .write("y", y)?
            .write("partial sums", &mut partial)?
            .arg(counts.pieces as i64)
            .arg(cols as i32);
        // SAFETY: as above; positions are below the number of rows of x, rows of pieces below that of y.
        unsafe { launch.run(shape.grid(), THREADS, 0) }?;
        let shape = RowShape::new(counts.hubs, cols, dtype);
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype), "scatter_hubs")?
            .arg(held.hubs.place(&self.stream))
            .read("partial sums", &partial)?
            .write("y", y)?
            .arg(counts.hubs as i64)
            .arg(cols as i32);
        // SAFETY: as above.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }

    fn gather_many(&self, from: &[&Matrix], list: &ManyRows, y: &mut Matrix) -> Result<()> {
        let (cols, dtype) = (y.cols(), y.dtype());
        list.expect(from.iter().map(|m| Some(*m)), cols, dtype)?;
        y.expect(OP, "y", list.len(), cols)?;
        let places = from.iter().map(|m| place(self, OP, "from", m)).collect::<Result<Vec<u64>>>()?;
        self.over_many("gather_many", list, &places, Rows { at: place_mut(self, OP, "y", y)?, cols, dtype })
    }

    fn scatter_many(&self, x: &Matrix, list: &ManyRows, to: &mut [Option<Matrix>]) -> Result<()> {
        let (cols, dtype) = (x.cols(), x.dtype());
        list.expect(to.iter().map(Option::as_ref), cols, dtype)?;
        x.expect(OP, "x", list.len(), cols)?;
        let at = |m: &mut Option<Matrix>| m.as_mut().map_or(Ok(0), |m| place_mut(self, OP, "to", m));
        let places = to.iter_mut().map(at).collect::<Result<Vec<u64>>>()?;
        self.over_many("scatter_many", list, &places, Rows { at: place(self, OP, "x", x)?, cols, dtype })
    }
}
