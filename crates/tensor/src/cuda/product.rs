//! Products of elements on the GPU.

use super::compile::{Defines, Source};
use super::elementwise::{over, typed};
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::product::ProductKernels;

const OP: &str = "product";
pub(super) static SOURCE: Source = source!("product", ["numbers", "lanes", "elementwise"]);

impl ProductKernels for Cuda {
    fn product(&self, a: &Matrix, shift: f64, b: &Matrix, y: &mut Matrix) -> Result<()> {
        for (what, m) in [("a", a), ("b", b)] {
            m.expect(OP, what, y.rows(), y.cols())?;
            typed(OP, what, m, y.dtype())?;
        }
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(y.dtype()), "product")?
            .read("a", a)?
            .arg(shift)
            .read("b", b)?
            .write("y", y)?;
        // SAFETY: the arguments are those of the kernel; all matrices have so many elements.
        unsafe { over(launch, a) }
    }
}
