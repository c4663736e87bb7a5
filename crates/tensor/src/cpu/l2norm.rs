//! Rows of length one, on the CPU.

use num_traits::{Float, Zero};

use super::elementwise::Real;
use super::rowwise::{Blocks, Storage, by_dtype, dot, span, sum};
use super::share::Shared;
use super::{Cpu, host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::l2norm::{EPSILON, L2NormKernels};

const OP: &str = "l2 norm";

impl L2NormKernels for Cpu {
    fn l2_norm(&self, x: &Matrix, y: &mut Matrix, norms: &mut Matrix) -> Result<()> {
        by_dtype!(x.dtype(), T => forward::<T>(*self, x, y, norms))
    }

    fn l2_norm_backward(&self, y: &Matrix, norms: &Matrix, g: &mut Matrix) -> Result<()> {
        y.expect(OP, "saved", g.rows(), g.cols())?;
        by_dtype!(y.dtype(), T => backward::<T>(*self, y, norms, g))
    }
}

fn forward<T: Storage>(cpu: Cpu, x: &Matrix, y: &mut Matrix, norms: &mut Matrix) -> Result<()> {
    let (rows, cols) = x.shape();
    let (x, y) = (host::<T>(OP, "x", x)?, Shared::new(host_mut::<T>(OP, "y", y)?));
    let norms = Shared::new(host_mut::<T::C>(OP, "norms", norms)?);
    Blocks::new(rows, cols).each(|_, rows| {
        // SAFETY: blocks of rows are disjoint.
        let (y, norms) = unsafe { (y.part(span(&rows, cols)), norms.part(rows.clone())) };
        let mut row = vec![T::C::zero(); cols];
        norms.fill(T::C::zero());
        cpu.isa.run(
            #[inline(always)]
            || {
                let x = x[span(&rows, cols)].chunks_exact(cols.max(1));
                for ((y, x), norm) in y.chunks_exact_mut(cols.max(1)).zip(x).zip(norms) {
                    for (to, x) in row.iter_mut().zip(x) {
                        *to = x.load();
                    }
                    *norm = sum(&row, |x| x * x).sqrt();
                    let length = norm.max(T::C::of(EPSILON));
                    for (y, x) in y.iter_mut().zip(&row) {
                        *y = T::store(*x / length);
                    }
                }
            },
        );
    });
    Ok(())
}

fn backward<T: Storage>(cpu: Cpu, y: &Matrix, norms: &Matrix, g: &mut Matrix) -> Result<()> {
    let (rows, cols) = g.shape();
    let (y, norms) = (host::<T>(OP, "saved", y)?, host::<T::C>(OP, "norms", norms)?);
    let g = Shared::new(host_mut::<T>(OP, "gradient", g)?);
    Blocks::new(rows, cols).each(|_, rows| {
        // SAFETY: blocks of rows are disjoint.
        let g = unsafe { g.part(span(&rows, cols)) };
        let (mut a, mut b) = (vec![T::C::zero(); cols], vec![T::C::zero(); cols]);
        cpu.isa.run(
            #[inline(always)]
            || {
                let y = y[span(&rows, cols)].chunks_exact(cols.max(1));
                for ((g, y), norm) in g.chunks_exact_mut(cols.max(1)).zip(y).zip(&norms[rows]) {
                    for ((a, b), (y, g)) in a.iter_mut().zip(&mut b).zip(y.iter().zip(g.iter())) {
                        (*a, *b) = (y.load(), g.load());
                    }
                    let epsilon = T::C::of(EPSILON);
                    // A row shorter than ε was only multiplied by a constant.
                    let along = if *norm > epsilon { dot(&a, &b) } else { T::C::zero() };
                    let length = norm.max(epsilon);
                    for (g, (y, dy)) in g.iter_mut().zip(a.iter().zip(&b)) {
                        *g = T::store((*dy - *y * along) / length);
                    }
                }
            },
        );
    });
    Ok(())
}
