//! The end of a product: bias and activation, while the block is in cache.

use crate::cpu::Isa;
use crate::cpu::activation::{Smooth, apply, specialise};
use crate::cpu::elementwise::Convert;
use crate::cpu::share::Shared;
use crate::ops::Write;
use crate::ops::activation::Activation;

use super::tile;

/// Where the rows of a product go: into the columns of `y` (and of `pre`) from `first` on.
pub(super) struct Finish<'a, C, Y> {
    pub(super) y: Shared<'a, Y>,
    /// Gets the value before the activation.
    pub(super) pre: Option<Shared<'a, Y>>,
    /// Columns of y.
    pub(super) width: usize,
    pub(super) first: usize,
    pub(super) bias: Option<&'a [C]>,
    pub(super) activation: Activation,
    pub(super) write: Write,
}

impl<C: Smooth, Y: Convert> Finish<'_, C, Y> {
    /// Finishes a block of products, `rows` of `n` columns.
    ///
    /// # Safety
    /// No other block with these rows is finished at the same time.
    pub(super) unsafe fn block(&self, isa: Isa, rows: std::ops::Range<usize>, block: &mut [C], n: usize) {
        let &Self { width, first, bias, activation, write, .. } = self;
        let elements = rows.start * width..rows.end * width;
        // SAFETY: passed on from the caller.
        let (y, mut pre) = unsafe { (self.y.part(elements.clone()), self.pre.map(|pre| pre.part(elements))) };
        isa.run(
            #[inline(always)]
            || {
                for (at, (row, y)) in block.chunks_mut(n).zip(y.chunks_mut(width)).enumerate() {
                    let y = &mut y[first..][..n];
                    if let Some(bias) = bias {
                        row.iter_mut().zip(bias).for_each(|(x, b)| *x = *x + *b);
                    }
                    if write == Write::Add {
                        row.iter_mut().zip(&*y).for_each(|(x, y)| *x = *x + C::of(*y));
                    }
                    if let Some(pre) = &mut pre {
                        let pre = &mut pre[at * width + first..][..n];
                        pre.iter_mut().zip(&*row).for_each(|(to, x)| *to = Y::narrow(x.widen()));
                    }
                    specialise!(
                        activation,
                        for (to, x) in y.iter_mut().zip(&*row) {
                            *to = Y::narrow(apply(activation, *x).widen());
                        }
                    );
                }
            },
        );
    }
}

impl<Y: tile::Cell> Finish<'_, f32, Y> {
    /// The same for tiles over `rows`.
    ///
    /// # Safety
    /// As for [`Finish::block`].
    pub(super) unsafe fn tiles(&self, rows: std::ops::Range<usize>) -> tile::Finish<Y> {
        let elements = rows.start * self.width..rows.end * self.width;
        // SAFETY: passed on from the caller.
        let start = |m: &Shared<'_, Y>| unsafe { m.part(elements.clone()) }[self.first..].as_mut_ptr();
        tile::Finish {
            y: start(&self.y),
            pre: self.pre.as_ref().map_or(std::ptr::null_mut(), start),
            row: self.width,
            bias: self.bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
            activation: self.activation,
            write: self.write,
        }
    }
}
