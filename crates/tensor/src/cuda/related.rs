//! Sums by relation on the GPU: by the kernels of single sums, one after another, with weights that are looked up
//! first. So each of the B sums, or R without a table, is a pass over all edges.

use super::compile::{Defines, Source};
use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::Parts;
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::related::{Related, RelatedKernels, Table, da_one_by_one, one_by_one};

const OP: &str = "sums by relation";
pub(super) static SOURCE: Source = source!("related", ["numbers", "lanes"]);

impl RelatedKernels for Cuda {
    fn related(&self, a: &Related<'_>, out: &mut Matrix, write: Write) -> Result<()> {
        a.check(out)?;
        one_by_one(self, a, out, write)
    }

    fn related_da(&self, a: &Related<'_>, g: &Matrix, da: &mut Matrix, write: Write) -> Result<()> {
        a.check_gradient(g, da)?;
        da_one_by_one(self, a, g, da, write)
    }

    fn related_weights(&self, a: &Related<'_>, sum: usize, weights: &mut Matrix) -> Result<()> {
        typed(OP, "weights", weights, a.edges.dtype())?;
        let table = match a.table {
            Table::Each(_) => None,
            Table::Rows(rows) => Some(rows),
        };
        let count = weights.rows();
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(a.edges.dtype()), "weights_by_relation")?
            .read("edges", a.edges)?
            .maybe_read("coefficients", table)?
            .write("weights", weights)?
            .arg(count as i64)
            .arg(a.edges.cols() as i32)
            .arg(a.table.sums() as i32)
            .arg(sum as i32);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes that the operation checked.
        unsafe { launch.run_each(count) }
    }

    fn totals_by_relation(&self, edges: &Matrix, products: &Matrix, totals: &mut Matrix) -> Result<()> {
        typed(OP, "products", products, edges.dtype())?;
        let parts = Parts::of(edges.rows());
        let mut partial = parts.room(edges.device(), OP, totals.rows(), totals.dtype())?;
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(edges.dtype()), "totals_by_relation")?
            .read("edges", edges)?
            .read("products", products)?
            .write("partial sums", &mut partial)?
            .arg(edges.rows() as i64)
            .arg(parts.rows as i64)
            .arg(edges.cols() as i32)
            .arg(totals.rows() as i32);
        // SAFETY: as above; a block has a row of partial sums.
        unsafe { launch.run([parts.count, 1], THREADS, 0) }?;
        self.add_parts(OP, &partial, 0, totals)
    }
}
