//! The end of a layer on the GPU.

use super::activation::numbered;
use super::compile::Source;
use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::{Parts, RowShape};
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::epilogue::{Ending, EpilogueGrads, EpilogueKernels};

const OP: &str = "epilogue";
pub(super) static SOURCE: Source = source!("epilogue", ["numbers", "random", "activation", "row_shape", "sum_columns"]);

impl EpilogueKernels for Cuda {
    fn epilogue(&self, ending: &Ending<'_>, x: &Matrix, y: &mut Matrix, pre: Option<&mut Matrix>) -> Result<()> {
        let ((rows, cols), dtype) = (y.shape(), x.dtype());
        x.expect(OP, "x", rows, ending.groups * cols)?;
        let wide = y.dtype() != dtype;
        if wide {
            typed(OP, "y", y, dtype.compute())?;
        }
        let shape = RowShape::new(rows, cols, dtype);
        let (number, slope) = numbered(ending.activation);
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype).with("WIDE", usize::from(wide)), "epilogue")?
            .read("x", x)?
            .maybe_read("plus", ending.plus)?
            .maybe_read("bias", ending.bias)?
            .write("y", y)?
            .maybe_write("pre", pre)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(ending.groups as i32)
            .arg(number)
            .arg(slope)
            .arg(self.row_dropout(ending.dropout)?);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes; so below.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }

    fn epilogue_backward(&self, ending: &Ending<'_>, saved: Option<&Matrix>, to: EpilogueGrads<'_>) -> Result<()> {
        let EpilogueGrads { g, db } = to;
        let ((rows, cols), dtype) = (g.shape(), g.dtype());
        if let Some(saved) = saved {
            saved.expect(OP, "saved", rows, cols)?;
            typed(OP, "saved", saved, dtype)?;
        }
        // What is saved of an activation that finds its slope in the output has gone through the dropout.
        let unscale = match ending.dropout {
            Some(d) if !ending.activation.saves_input() => d.dropout.unscale(),
            _ => 1.0,
        };
        let (number, slope) = numbered(ending.activation);
        let (parts, shape) = (Parts::of(rows), RowShape::new(rows, cols, dtype));
        let mut partial = parts.room(g.device(), OP, cols, dtype.compute())?;
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype).with("WIDE", 0), "epilogue_backward")?
            .maybe_read("saved", saved)?
            .write("gradient", g)?
            .write("partial sums", &mut partial)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(parts.rows as i64)
            .arg(number)
            .arg(slope)
            .arg(unscale)
            .arg(self.row_dropout(ending.dropout)?);
        // SAFETY: as above; a block for each part.
        unsafe { launch.run([parts.count, 1], THREADS, 0) }?;
        match db {
            Some(db) => self.add_parts(OP, &partial, 0, db),
            None => Ok(()),
        }
    }

    fn spread_groups(&self, dy: &Matrix, groups: usize, dx: &mut Matrix) -> Result<()> {
        let ((rows, cols), dtype) = (dy.shape(), dy.dtype());
        dx.expect(OP, "dx", rows, groups * cols)?;
        typed(OP, "dx", dx, dtype)?;
        let shape = RowShape::new(rows, cols, dtype);
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype).with("WIDE", 0), "spread_groups")?
            .read("dy", dy)?
            .write("dx", dx)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(groups as i32);
        // SAFETY: as above.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }
}
