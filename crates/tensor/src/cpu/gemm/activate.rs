//! The end of a product: bias and activation, while the block is in cache.

use crate::cpu::Isa;
use crate::cpu::activation::{Smooth, apply, specialise};
use crate::cpu::elementwise::Convert;
use crate::ops::activation::Activation;

/// Where a finished block goes: rows of `y` (and of `pre`) from column `first` on.
pub(super) struct Target<'a, Y> {
    pub(super) y: &'a mut [Y],
    pub(super) pre: Option<&'a mut [Y]>,
    pub(super) width: usize,
    pub(super) first: usize,
}

/// Adds the bias to a block of products (rows of `n`), applies the activation and stores the result.
pub(super) fn finish<C: Smooth, Y: Convert>(
    isa: Isa,
    activation: Activation,
    block: &mut [C],
    bias: Option<&[C]>,
    n: usize,
    to: Target<'_, Y>,
) {
    let Target { y, mut pre, width, first } = to;
    isa.run(
        #[inline(always)]
        || {
            for (at, (row, y)) in block.chunks_mut(n).zip(y.chunks_mut(width)).enumerate() {
                if let Some(bias) = bias {
                    for (x, b) in row.iter_mut().zip(bias) {
                        *x = *x + *b;
                    }
                }
                if let Some(pre) = &mut pre {
                    for (to, x) in pre[at * width + first..][..n].iter_mut().zip(&*row) {
                        *to = Y::narrow(x.widen());
                    }
                }
                specialise!(
                    activation,
                    for (to, x) in y[first..][..n].iter_mut().zip(&*row) {
                        *to = Y::narrow(apply(activation, *x).widen());
                    }
                );
            }
        },
    );
}
