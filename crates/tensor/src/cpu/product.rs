//! Products of elements on the CPU.

use super::elementwise::{GRAIN, Real};
use super::parallel::each_chunk;
use super::rowwise::{Storage, by_dtype};
use super::{Cpu, host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::product::ProductKernels;

const OP: &str = "product";

impl ProductKernels for Cpu {
    fn product(&self, a: &Matrix, shift: f64, b: &Matrix, y: &mut Matrix) -> Result<()> {
        a.expect(OP, "a", y.rows(), y.cols())?;
        b.expect(OP, "b", y.rows(), y.cols())?;
        by_dtype!(y.dtype(), T => {
            let (a, b, y) = (host::<T>(OP, "a", a)?, host::<T>(OP, "b", b)?, host_mut::<T>(OP, "y", y)?);
            each_chunk(y, GRAIN, &|k, y| {
                let [a, b] = [a, b].map(|m| &m[k * GRAIN..][..y.len()]);
                self.isa.run(#[inline(always)] || multiply(a, shift, b, y));
            });
            Ok(())
        })
    }
}

#[inline(always)]
fn multiply<T: Storage>(a: &[T], shift: f64, b: &[T], y: &mut [T]) {
    let shift = T::C::of(shift);
    for (y, (a, b)) in y.iter_mut().zip(a.iter().zip(b)) {
        *y = T::store((a.load() + shift) * b.load());
    }
}
