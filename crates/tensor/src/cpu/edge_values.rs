//! Rows of attention with tails for features of edges, on the CPU: one pass over the rows, the weight in the
//! first-level cache.

use num_traits::Zero;

use super::rowwise::{Blocks, Storage, by_dtype, span};
use super::share::Shared;
use super::{Cpu, host, host_mut, scratch};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::edge_values::EdgeValueKernels;

const OP: &str = "edge features";
/// Features whose sums stay in registers.
const LANES: usize = 16;

/// How rows are divided.
#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    /// Columns of a head.
    width: usize,
    /// Numbers behind them.
    tail: usize,
    /// Those that are features.
    features: usize,
}

impl Shape {
    fn new(x: &Matrix, wide: &Matrix, weight: &Matrix, heads: usize) -> Self {
        let (width, all) = (x.cols() / heads.max(1), wide.cols() / heads.max(1));
        Self { heads, width, tail: all - width, features: weight.cols() }
    }

    /// Columns of a row, and of a widened one.
    fn cols(self) -> [usize; 2] {
        [self.heads * self.width, self.heads * (self.width + self.tail)]
    }
}

impl EdgeValueKernels for Cpu {
    fn widen(&self, x: &Matrix, weight: &Matrix, heads: usize, wide: &mut Matrix) -> Result<()> {
        let shape = Shape::new(x, wide, weight, heads);
        by_dtype!(x.dtype(), T => {
            let (x, w) = (host::<T>(OP, "rows", x)?, host::<<T as Storage>::C>(OP, "weight", weight)?);
            let rows = wide.rows();
            let to = Shared::new(host_mut::<T>(OP, "widened rows", wide)?);
            let [narrow, cols] = shape.cols();
            Blocks::new(rows, cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let to = unsafe { to.part(span(&rows, cols)) };
                self.isa.run(#[inline(always)] || widen_rows(shape, &x[span(&rows, narrow)], w, to));
            });
            Ok(())
        })
    }

    fn absorb(&self, wide: &Matrix, weight: &Matrix, heads: usize, x: &mut Matrix) -> Result<()> {
        let shape = Shape::new(x, wide, weight, heads);
        by_dtype!(x.dtype(), T => {
            let (from, w) = (host::<T>(OP, "widened rows", wide)?, host::<<T as Storage>::C>(OP, "weight", weight)?);
            let rows = x.rows();
            let to = Shared::new(host_mut::<T>(OP, "rows", x)?);
            let [narrow, cols] = shape.cols();
            // Behind one another, so that a feature's numbers are a contiguous row.
            let turned = turned(shape, w);
            Blocks::new(rows, cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let to = unsafe { to.part(span(&rows, narrow)) };
                self.isa.run(#[inline(always)] || absorb_rows(shape, &from[span(&rows, cols)], &turned, to));
            });
            Ok(())
        })
    }

    fn tail_products(&self, x: &Matrix, wide: &Matrix, heads: usize, dw: &mut Matrix) -> Result<()> {
        let (shape, size) = (Shape::new(x, wide, dw, heads), dw.rows() * dw.cols());
        by_dtype!(x.dtype(), T => {
            let mut partial = scratch::tail_products(x, dw)?;
            let sums = Shared::new(host_mut::<<T as Storage>::C>(OP, "partial sums", &mut partial)?);
            let rows = x.rows();
            let blocks = Blocks::few(rows, x.cols());
            let (x, wide) = (host::<T>(OP, "rows", x)?, host::<T>(OP, "widened rows", wide)?);
            let [narrow, cols] = shape.cols();
            blocks.each(|number, rows| {
                // SAFETY: blocks have sums of their own.
                let sums = unsafe { sums.part(span(&(number..number + 1), size)) };
                let (x, wide) = (&x[span(&rows, narrow)], &wide[span(&rows, cols)]);
                self.isa.run(#[inline(always)] || multiply_tails(shape, x, wide, sums));
            });
            let partial = host::<<T as Storage>::C>(OP, "partial sums", &partial)?;
            let to = host_mut::<<T as Storage>::C>(OP, "gradient", dw)?;
            to.fill(<T as Storage>::C::zero());
            for part in partial.chunks_exact(size.max(1)) {
                to.iter_mut().zip(part).for_each(|(sum, x)| *sum += *x);
            }
            Ok(())
        })
    }
}

#[inline(always)]
fn widen_rows<T: Storage>(shape: Shape, x: &[T], weight: &[T::C], to: &mut [T]) {
    let Shape { width, tail, features: f, .. } = shape;
    let heads = x.chunks_exact(width.max(1)).zip(to.chunks_exact_mut((width + tail).max(1)));
    for (k, (x, to)) in heads.enumerate() {
        let (own, behind) = to.split_at_mut(width);
        own.copy_from_slice(x);
        let weight = &weight[k % shape.heads * width * f..][..width * f];
        for (part, to) in behind.chunks_mut(LANES).enumerate() {
            let first = part * LANES;
            let mut sums = [T::C::zero(); LANES];
            if first + LANES <= f {
                for (x, w) in x.iter().zip(weight.chunks_exact(f)) {
                    let (x, w) = (x.load(), &w[first..first + LANES]);
                    for (sum, w) in sums.iter_mut().zip(w) {
                        *sum = *sum + x * *w;
                    }
                }
            } else if first < f {
                for (x, w) in x.iter().zip(weight.chunks_exact(f)) {
                    let x = x.load();
                    for (sum, w) in sums.iter_mut().zip(&w[first..]) {
                        *sum = *sum + x * *w;
                    }
                }
            }
            for (to, sum) in to.iter_mut().zip(sums) {
                *to = T::store(sum);
            }
        }
    }
}

/// The weight with a row per head and feature.
fn turned<C: Copy>(shape: Shape, weight: &[C]) -> Vec<C> {
    let Shape { heads, width, features, .. } = shape;
    let feature = |h: usize, k: usize| (0..width).map(move |c| weight[(h * width + c) * features + k]);
    (0..heads).flat_map(|h| (0..features).flat_map(move |k| feature(h, k))).collect()
}

#[inline(always)]
fn absorb_rows<T: Storage>(shape: Shape, wide: &[T], turned: &[T::C], to: &mut [T]) {
    let Shape { width, tail, features: f, .. } = shape;
    let heads = to.chunks_exact_mut(width.max(1)).zip(wide.chunks_exact((width + tail).max(1)));
    for (k, (to, wide)) in heads.enumerate() {
        let (own, behind) = wide.split_at(width);
        let weight = &turned[k % shape.heads * width * f..][..width * f];
        for (part, to) in to.chunks_mut(LANES).enumerate() {
            let first = part * LANES;
            let mut sums = [T::C::zero(); LANES];
            for (sum, x) in sums.iter_mut().zip(&own[first..]) {
                *sum = x.load();
            }
            if first + LANES <= width {
                for (s, w) in behind[..f].iter().zip(weight.chunks_exact(width)) {
                    let (s, w) = (s.load(), &w[first..first + LANES]);
                    for (sum, w) in sums.iter_mut().zip(w) {
                        *sum = *sum + s * *w;
                    }
                }
            } else {
                for (s, w) in behind[..f].iter().zip(weight.chunks_exact(width)) {
                    let s = s.load();
                    for (sum, w) in sums.iter_mut().zip(&w[first..]) {
                        *sum = *sum + s * *w;
                    }
                }
            }
            for (to, sum) in to.iter_mut().zip(sums) {
                *to = T::store(sum);
            }
        }
    }
}

/// Adds x_h times the tails of some rows. A head's sums stay in the first-level cache while all rows go by.
#[inline(always)]
fn multiply_tails<T: Storage>(shape: Shape, x: &[T], wide: &[T], sums: &mut [T::C]) {
    let Shape { width, tail, features: f, .. } = shape;
    let [narrow, cols] = shape.cols();
    let mut behind = vec![T::C::zero(); f];
    for (x, wide) in x.chunks_exact(narrow.max(1)).zip(wide.chunks_exact(cols.max(1))) {
        for h in 0..shape.heads {
            for (to, s) in behind.iter_mut().zip(&wide[h * (width + tail) + width..]) {
                *to = s.load();
            }
            let sums = &mut sums[h * width * f..][..width * f];
            for (sums, x) in sums.chunks_exact_mut(f.max(1)).zip(&x[h * width..]) {
                let x = x.load();
                for (sum, s) in sums.iter_mut().zip(&behind) {
                    *sum = *sum + x * *s;
                }
            }
        }
    }
}
