//! 1, 2, 4 or 8 bits a column, rounded at random.
//!
//! With z the minimum of a row and s = (max − z)/(2ᵇ − 1): q = ⌊(x − z)/s + u⌋ for a u of [0, 1), and z + s·q comes
//! out. Its mean over u is x, and its variance at most s²/4.

use super::{Rows, uniform};

/// Minimum and step.
const HEAD: usize = 2;

pub(super) fn words(cols: usize, bits: u32) -> usize {
    HEAD + cols.div_ceil((32 / bits) as usize)
}

pub(super) struct Bits<const B: u32>;

/// What goes side by side through a row.
const LANES: usize = 16;

/// Minimum and maximum; nothing where an element is no number or infinite.
#[inline(always)]
fn extremes(x: &[f32]) -> Option<[f32; 2]> {
    let first = x[0];
    let (mut low, mut high, mut finite) = ([first; LANES], [first; LANES], [0.0f32; LANES]);
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for k in 0..LANES {
            let x = chunk[k];
            low[k] = if x < low[k] { x } else { low[k] };
            high[k] = if x > high[k] { x } else { high[k] };
            finite[k] += x * 0.0;
        }
    }
    for (k, x) in rest.iter().enumerate() {
        low[k] = if *x < low[k] { *x } else { low[k] };
        high[k] = if *x > high[k] { *x } else { high[k] };
        finite[k] += x * 0.0;
    }
    let (mut least, mut most, mut all) = (first, first, 0.0);
    for k in 0..LANES {
        least = if low[k] < least { low[k] } else { least };
        most = if high[k] > most { high[k] } else { most };
        all += finite[k];
    }
    let range = most - least;
    (all == 0.0 && range.is_finite()).then_some([least, most])
}

impl<const B: u32> Bits<B> {
    const STEPS: f32 = ((1u32 << B) - 1) as f32;
    const MASK: u32 = (1 << B) - 1;
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
        let n = to.len();
        for (part, x) in x.chunks(n).enumerate() {
            let first = (part * n) as u32;
            for (k, (to, x)) in to.iter_mut().zip(x).enumerate() {
                let scaled = (x - low) * inverse + uniform(row, first + k as u32);
                let scaled = if scaled < Self::STEPS { scaled } else { Self::STEPS };
                // SAFETY: from 0 to 255.
                let q = unsafe { scaled.to_int_unchecked::<i32>() } as u32;
                *to = if part == 0 { q } else { *to | q << (part as u32 * B) };
            }
        }
    }

    #[inline(always)]
    fn decode(&self, from: &[u32], to: &mut [f32]) {
        let (low, step, from) = (f32::from_bits(from[0]), f32::from_bits(from[1]), &from[HEAD..]);
        for (part, to) in to.chunks_mut(from.len()).enumerate() {
            for (to, word) in to.iter_mut().zip(from) {
                *to = low + step * ((word >> (part as u32 * B)) & Self::MASK) as i32 as f32;
            }
        }
    }
}
