//! The same in plain loops: for f64, and for processors without AVX2.

use num_traits::Zero;

use super::Shape;
use crate::cpu::rowwise::Storage;

/// Features whose sums stay in registers.
const LANES: usize = 16;

#[inline(always)]
pub(super) fn widen<T: Storage>(shape: Shape, x: &[T], weight: &[T::C], to: &mut [T]) {
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

#[inline(always)]
pub(super) fn absorb<T: Storage>(shape: Shape, wide: &[T], turned: &[T::C], to: &mut [T]) {
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
pub(super) fn tail_products<T: Storage>(shape: Shape, x: &[T], wide: &[T], sums: &mut [T::C]) {
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
