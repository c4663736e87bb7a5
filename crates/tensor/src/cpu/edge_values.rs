//! Rows of attention with tails for features of edges, on the CPU: one pass over the rows, the weight in the
//! first-level cache.

mod portable;
mod vector;

use half::bf16;
use num_traits::Zero;

use super::rowwise::{Blocks, Storage, by_dtype, span};
use super::share::Shared;
use super::simd::{Avx2, Avx512, Version};
use super::{Cpu, Isa, host, host_mut, scratch};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::edge_values::EdgeValueKernels;

const OP: &str = "edge features";

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

/// What blocks of rows go through, for each type they are stored as.
trait Rows: Storage {
    /// Writes the rows `x` with their tails.
    fn widen(isa: Isa, shape: Shape, x: &[Self], weight: &[Self::C], to: &mut [Self]);

    /// Writes rows from rows with tails; `turned` has the weight's numbers by head and feature.
    fn absorb(isa: Isa, shape: Shape, wide: &[Self], turned: &[Self::C], to: &mut [Self]);

    /// Adds to `sums` the products of rows with tails.
    fn tail_products(isa: Isa, shape: Shape, x: &[Self], wide: &[Self], sums: &mut [Self::C]);
}

/// A kernel for one type: in the widest vectors there are, or in none.
macro_rules! kernel {
    (f64, $name:ident($from:ty, $by:ty, $to:ty)) => {
        fn $name(isa: Isa, shape: Shape, from: &[$from], by: &[$by], to: &mut [$to]) {
            isa.run(
                #[inline(always)]
                || portable::$name(shape, from, by, to),
            );
        }
    };
    ($type:ident, $name:ident($from:ty, $by:ty, $to:ty)) => {
        fn $name(isa: Isa, shape: Shape, from: &[$from], by: &[$by], to: &mut [$to]) {
            match Version::new(isa, |_| true) {
                Version::Avx512 => isa.run(
                    #[inline(always)]
                    // SAFETY: the version is one that the processor has; slices are whole rows.
                    || unsafe { vector::$name::<Avx512, $type>(shape, from, by, to) },
                ),
                Version::Avx2 => isa.run(
                    #[inline(always)]
                    // SAFETY: the version is one that the processor has; slices are whole rows.
                    || unsafe { vector::$name::<Avx2, $type>(shape, from, by, to) },
                ),
                Version::Portable => portable::$name(shape, from, by, to),
            }
        }
    };
}

macro_rules! rows {
    ($($type:ident in $compute:ident),*) => { $(
        impl Rows for $type {
            kernel!($type, widen($type, $compute, $type));
            kernel!($type, absorb($type, $compute, $type));
            kernel!($type, tail_products($type, $type, $compute));
        }
    )* };
}

rows!(f64 in f64, f32 in f32, bf16 in f32);

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
                T::widen(self.isa, shape, &x[span(&rows, narrow)], w, to);
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
                T::absorb(self.isa, shape, &from[span(&rows, cols)], &turned, to);
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
                T::tail_products(self.isa, shape, x, wide, sums);
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

/// The weight with a row per head and feature.
fn turned<C: Copy>(shape: Shape, weight: &[C]) -> Vec<C> {
    let Shape { heads, width, features, .. } = shape;
    let feature = |h: usize, k: usize| (0..width).map(move |c| weight[(h * width + c) * features + k]);
    (0..heads).flat_map(|h| (0..features).flat_map(move |k| feature(h, k))).collect()
}
