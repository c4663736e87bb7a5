//! 1, 2, 4 or 8 bits a column, rounded at random.
//!
//! With z the minimum of a row and s = (max − z)/(2ᵇ − 1): q = ⌊(x − z)/s + u⌋ for a u of [0, 1), and z + s·q comes
//! out. Its mean over u is x, and its variance at most s²/4. A u has 16 bits: two columns of a block share the 32 of a
//! number.

use super::blocks::{self, BLOCK};
use super::{Rows, number};

/// Minimum and step.
const HEAD: usize = 2;

pub(super) fn words(cols: usize, bits: u32) -> usize {
    HEAD + cols.div_ceil((32 / bits) as usize)
}

pub(super) struct Bits<const B: u32>;

/// Minimum and maximum; nothing where an element is no number or infinite.
#[inline(always)]
fn extremes(x: &[f32]) -> Option<[f32; 2]> {
    let first = x[0];
    let (mut low, mut high, mut finite) = ([first; BLOCK], [first; BLOCK], [0.0f32; BLOCK]);
    blocks::each(
        x,
        first,
        #[inline(always)]
        |x: &[f32; BLOCK]| {
            for k in 0..BLOCK {
                low[k] = if x[k] < low[k] { x[k] } else { low[k] };
                high[k] = if x[k] > high[k] { x[k] } else { high[k] };
                finite[k] += x[k] * 0.0;
            }
        },
    );
    let low = blocks::reduce(low, |a, b| if b < a { b } else { a });
    let high = blocks::reduce(high, |a, b| if b > a { b } else { a });
    let finite = blocks::reduce(finite, |a, b| a + b);
    (finite == 0.0 && (high - low).is_finite()).then_some([low, high])
}

impl<const B: u32> Bits<B> {
    const STEPS: f32 = ((1u32 << B) - 1) as f32;
}

/// A column's share of a number, as a u of [0, 1).
#[inline(always)]
fn uniform(bits: u32) -> f32 {
    bits as i32 as f32 * (1.0 / 65536.0)
}

impl<const B: u32> Rows for Bits<B> {
    #[inline(always)]
    fn encode(&self, row: u32, x: &[f32], to: &mut [u32]) {
        let (head, to) = to.split_at_mut(HEAD);
        let Some([low, high]) = extremes(x) else {
            head.fill(f32::NAN.to_bits());
            to.fill(0);
            return;
        };
        let step = (high - low) / Self::STEPS;
        // Of a row of equal elements, or nearly, all are the minimum.
        let inverse = if step > f32::MIN_POSITIVE { step.recip() } else { 0.0 };
        head.copy_from_slice(&[low.to_bits(), step.to_bits()]);
        let code = |x: f32, u: f32| {
            let scaled = (x - low) * inverse + u;
            let scaled = if scaled < Self::STEPS { scaled } else { Self::STEPS };
            // SAFETY: from 0 to 255.
            unsafe { scaled.to_int_unchecked::<i32>() as u32 }
        };
        blocks::encode::<B>(
            x,
            to,
            low,
            #[inline(always)]
            |block, first| {
                let mut shared = [0u32; BLOCK / 2];
                for (shared, column) in shared.iter_mut().zip(first..) {
                    *shared = number(row, column);
                }
                let mut codes = [0u32; BLOCK];
                for k in 0..BLOCK / 2 {
                    codes[k] = code(block[k], uniform(shared[k] & 0xffff));
                }
                for k in 0..BLOCK / 2 {
                    codes[BLOCK / 2 + k] = code(block[BLOCK / 2 + k], uniform(shared[k] >> 16));
                }
                codes
            },
        );
    }

    #[inline(always)]
    fn decode(&self, from: &[u32], to: &mut [f32]) {
        let (low, step) = (f32::from_bits(from[0]), f32::from_bits(from[1]));
        blocks::decode::<B>(
            &from[HEAD..],
            to,
            #[inline(always)]
            |code| low + step * code as i32 as f32,
        );
    }
}
