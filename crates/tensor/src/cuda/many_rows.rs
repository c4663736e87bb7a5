//! Rows of many matrices at once, on the GPU.

use std::any::Any;
use std::rc::Rc;

use bytemuck::{Pod, Zeroable};
use cudarc::driver::{CudaSlice, DevicePtr};

use super::compile::Source;
use super::launch::THREADS;
use super::rows::padded;
use super::shape::RowShape;
use super::{Cuda, source};
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::many_rows::ManyRows;

const OP: &str = "rows";
pub(super) static SOURCE: Source = source!("many_rows", ["numbers", "row_shape"]);
/// Matrices that a kernel looks into at once.
const MANY: usize = 64;

/// Where they are; null where there is none.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Places([u64; MANY]);

/// The rows of one matrix on the GPU.
pub(super) struct Rows {
    pub(super) at: u64,
    pub(super) cols: usize,
    pub(super) dtype: DType,
}

/// A list of rows of many matrices on the GPU: (number of the matrix among those of its launch, row).
struct ResidentMany(CudaSlice<[u32; 2]>);

impl Cuda {
    fn resident_many(&self, list: &ManyRows) -> Result<Rc<ResidentMany>> {
        if let Some(held) = list.resident().get() {
            return Rc::clone(held).downcast().map_err(|_| self.elsewhere("the list of rows"));
        }
        self.not_captured("a list of the host")?;
        let numbered = list.parts().iter().enumerate();
        let entries = numbered
            .flat_map(|(k, part)| list.rows()[part.entries.clone()].iter().map(move |row| [(k % MANY) as u32, *row]));
        let entries = self.stream.clone_htod(&padded(entries.collect()));
        let held = Rc::new(ResidentMany(entries.map_err(self.fail("copy a list of rows to the GPU"))?));
        let any: Rc<dyn Any> = Rc::clone(&held) as _;
        // The cell was empty just now, and a rank is one thread.
        let _ = list.resident().set(any);
        Ok(held)
    }

    /// Runs a kernel over the entries of every [`MANY`] lists, given where their matrices are.
    pub(super) fn over_many(
        &self,
        kernel: &'static str,
        list: &ManyRows,
        places: &[u64],
        Rows { at: rows_at, cols, dtype }: Rows,
    ) -> Result<()> {
        let held = self.resident_many(list)?;
        let entries_at = held.0.device_ptr(&self.stream).0;
        for (parts, some) in list.parts().chunks(MANY).zip(places.chunks(MANY)) {
            let (first, end) = (parts[0].entries.start, parts[parts.len() - 1].entries.end);
            let mut places = Places([0; MANY]);
            places.0[..some.len()].copy_from_slice(some);
            let shape = RowShape::new(end - first, cols, dtype);
            let launch = self
                .kernel(OP, &SOURCE, shape.defines(dtype), kernel)?
                .arg(places)
                .arg(entries_at + (first * size_of::<[u32; 2]>()) as u64)
                .arg(rows_at + (first * cols * dtype.size()) as u64)
                .arg((end - first) as i64)
                .arg(cols as i32);
            // SAFETY: the arguments are those of the kernel; entries are rows of the matrices at their places, and
            // there are as many rows at `rows_at` as entries. Vectors are no wider than a row is a multiple of, so that
            // they are aligned from any row on.
            unsafe { launch.run(shape.grid(), THREADS, 0) }?;
        }
        Ok(())
    }
}
