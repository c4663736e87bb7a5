//! What the linear layer over sparse features needs beside aggregation, on the GPU.

use super::compile::{Defines, Source};
use super::launch::THREADS;
use super::{Cuda, source};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::bag::{Bag, BagKernels};
use crate::ops::dropout::RowDropout;

const OP: &str = "bag";
pub(super) static SOURCE: Source = source!("bag", ["numbers", "lanes", "random", "edges"]);
/// Side of the squares in which a matrix is transposed.
const SIDE: usize = 32;

impl BagKernels for Cuda {
    fn transpose(&self, from: &Matrix, to: &mut Matrix) -> Result<()> {
        let (rows, cols) = from.shape();
        to.expect(OP, "transpose", cols, rows)?;
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(from.dtype()), "transpose")?
            .arg(self.address(OP, "matrix", from, from.dtype())?)
            .arg(self.address_mut(OP, "transpose", to, from.dtype())?)
            .arg(rows as u64)
            .arg(cols as u64);
        // SAFETY: the arguments are those of the kernel, and the shapes were checked.
        unsafe { launch.run([rows.div_ceil(SIDE), cols.div_ceil(SIDE)], THREADS, 0) }
    }

    fn spread_row(&self, row: &Matrix, to: &mut Matrix) -> Result<()> {
        row.expect(OP, "row", 1, to.cols())?;
        let (elements, stored) = (to.rows() * to.cols(), to.dtype());
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(stored), "spread_row")?
            .arg(self.address(OP, "row", row, stored.compute())?)
            .arg(self.address_mut(OP, "matrix", to, stored)?)
            .arg(elements as u64)
            .arg(row.cols() as u64);
        // SAFETY: as above.
        unsafe { launch.run_each(elements) }
    }

    fn sum_rows(&self, from: &Matrix, to: &mut Matrix) -> Result<()> {
        to.expect(OP, "sum", 1, from.cols())?;
        self.add_up_rows(OP, from, to)
    }

    fn drop_entries(&self, x: &Bag, drop: &RowDropout, to: &mut Matrix) -> Result<()> {
        let (graph, entries) = x.parts();
        let dtype = to.dtype();
        if dtype == DType::Bf16 {
            return Err(Error::Type { op: OP, what: "entries", got: dtype });
        }
        to.expect(OP, "entries", graph.num_edges(), 1)?;
        drop.ids.expect(OP, graph.num_dst())?;
        let resident = self.resident(to.device(), &graph.forward)?;
        let at = resident.places(self);
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(dtype), "drop_entries")?
            .arg(at.items)
            .arg(resident.count as u32)
            .arg(at.indices)
            .arg(self.maybe_address(OP, "entries", entries, dtype)?)
            .arg(self.row_dropout(Some(drop))?)
            .arg(self.address_mut(OP, "entries", to, dtype)?);
        // SAFETY: as above; items cover the edges of the graph.
        unsafe { launch.run([resident.count.div_ceil(THREADS / 32), 1], THREADS, 0) }
    }
}
