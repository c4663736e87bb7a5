//! Conversions between types of elements on the GPU.

use super::compile::{Defines, Source};
use super::elementwise::over;
use super::{Cuda, source};
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Matrix;

const OP: &str = "convert";
pub(super) static SOURCE: Source = source!("convert", ["numbers", "lanes", "elementwise"]);

impl Cuda {
    pub(super) fn convert_elements(&self, to: &mut Matrix, from: &Matrix) -> Result<()> {
        from.expect(OP, "source", to.rows(), to.cols())?;
        let target = match to.dtype() {
            DType::F32 => 0,
            DType::F64 => 1,
            DType::Bf16 => 2,
        };
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(from.dtype()).with("TARGET", target), "convert")?
            .read("source", from)?
            .write("target", to)?;
        // SAFETY: the arguments are those of the kernel; both matrices have so many elements.
        unsafe { over(launch, from) }
    }
}
