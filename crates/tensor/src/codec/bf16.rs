//! 16 bits a column: the upper half of an f32, rounded to nearest, to even where both are as near.

use super::Rows;

pub(super) fn words(cols: usize) -> usize {
    cols.div_ceil(2)
}

pub(super) struct Bf16;

#[inline(always)]
fn narrow(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // Rounding up would make something else of what is no number.
    if x.is_nan() { 0x7fc0 } else { rounded }
}

impl Rows for Bf16 {
    #[inline(always)]
    fn encode(&self, _: u32, x: &[f32], to: &mut [u32]) {
        let (low, high) = x.split_at(to.len());
        to.iter_mut().zip(low).for_each(|(to, x)| *to = narrow(*x));
        to.iter_mut().zip(high).for_each(|(to, x)| *to |= narrow(*x) << 16);
    }

    #[inline(always)]
    fn decode(&self, from: &[u32], to: &mut [f32]) {
        let (low, high) = to.split_at_mut(from.len());
        low.iter_mut().zip(from).for_each(|(to, word)| *to = f32::from_bits(*word << 16));
        high.iter_mut().zip(from).for_each(|(to, word)| *to = f32::from_bits(*word & 0xffff_0000));
    }
}
