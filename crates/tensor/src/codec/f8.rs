//! 8 bits a column: a sign, four bits of exponent, three of mantissa (E4M3), over a scale by which the largest of a row
//! is the largest of these. Rounded to nearest, to even where both are as near.

use super::Rows;
use super::blocks::{self, BLOCK};

/// The scale.
const HEAD: usize = 1;
/// The largest E4M3, and its code.
const MOST: f32 = 448.0;
const MOST_CODE: u32 = 0x7e;
/// From here on numbers are as far apart as their exponent says; below, 2⁻⁹.
const NORMAL: f32 = 1.0 / 64.0;
/// What an exponent of f32 has more than one of four bits, behind a mantissa of three.
const BIAS: u32 = (127 - 7) << 3;

/// Added to a number of which the last bit is 1, the sum is rounded to whole numbers.
const WHOLE: f32 = 8_388_608.0;

pub(super) fn words(cols: usize) -> usize {
    HEAD + cols.div_ceil(4)
}

pub(super) struct F8;

#[inline(always)]
fn narrow(x: f32) -> u32 {
    let (sign, size) = ((x.to_bits() >> 31) << 7, x.abs());
    let bits = size.to_bits();
    let normal = (bits.wrapping_add(0x7_ffff + ((bits >> 20) & 1)) >> 20).wrapping_sub(BIAS);
    let small = (size * 512.0 + WHOLE).to_bits() & 0xf;
    let code = if size < NORMAL { small } else { normal };
    sign | if code < MOST_CODE { code } else { MOST_CODE }
}

#[inline(always)]
fn widen(code: u32) -> f32 {
    let (sign, code) = ((code & 0x80) << 24, code & 0x7f);
    let small = code as i32 as f32 * (1.0 / 512.0);
    let normal = f32::from_bits((code + BIAS) << 20);
    let size = if code < 8 { small } else { normal };
    f32::from_bits(size.to_bits() | sign)
}

impl Rows for F8 {
    #[inline(always)]
    fn encode(&self, _: u32, x: &[f32], to: &mut [u32]) {
        let (head, to) = to.split_at_mut(HEAD);
        let mut lanes = [0u32; BLOCK];
        // As bits: numbers without a sign are in the order of their bits, and what is no number is above all.
        blocks::each(
            x,
            0.0,
            #[inline(always)]
            |x: &[f32; BLOCK]| {
                for k in 0..BLOCK {
                    let bits = x[k].to_bits() & 0x7fff_ffff;
                    lanes[k] = if bits > lanes[k] { bits } else { lanes[k] };
                }
            },
        );
        let most = f32::from_bits(blocks::reduce(lanes, |a, b| if b > a { b } else { a }));
        if !most.is_finite() {
            head[0] = f32::NAN.to_bits();
            to.fill(0);
            return;
        }
        let scale = most / MOST;
        let inverse = if scale > f32::MIN_POSITIVE { scale.recip() } else { 0.0 };
        head[0] = scale.to_bits();
        blocks::encode::<8>(
            x,
            to,
            0.0,
            #[inline(always)]
            |block, _| {
                let mut codes = [0u32; BLOCK];
                for k in 0..BLOCK {
                    codes[k] = narrow(block[k] * inverse);
                }
                codes
            },
        );
    }

    #[inline(always)]
    fn decode(&self, from: &[u32], to: &mut [f32]) {
        let scale = f32::from_bits(from[0]);
        blocks::decode::<8>(
            &from[HEAD..],
            to,
            #[inline(always)]
            |code| scale * widen(code),
        );
    }
}
