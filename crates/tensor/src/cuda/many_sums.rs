//! Several weighted sums at once, on the GPU: by the kernels of single ones, one after another.

use super::Cuda;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::many_sums::{ManySums, ManySumsKernels, dw_one_by_one, one_by_one};

impl ManySumsKernels for Cuda {
    fn many_sums(&self, a: &ManySums<'_>, out: &mut Matrix, write: Write) -> Result<()> {
        a.check(out)?;
        one_by_one(self, a, out, write)
    }

    fn many_sums_dw(&self, a: &ManySums<'_>, g: &Matrix, dw: &mut Matrix) -> Result<()> {
        dw_one_by_one(self, a, g, dw)
    }
}
