//! Some of the columns as they are, others not at all. Which ones is drawn for an exchange, so that both ends know it;
//! those that are sent are as much larger as they are fewer, so that the mean over draws stays.

use super::{Draw, Rows, mixed};

/// Columns of `cols` that are sent.
pub(super) fn kept(cols: usize, one_of: u32) -> usize {
    cols.div_ceil(one_of as usize)
}

pub(super) struct Columns {
    /// Ascending.
    kept: Vec<u32>,
    scale: f32,
}

impl Columns {
    pub(super) fn new(cols: usize, one_of: u32, draw: Draw) -> Self {
        let count = kept(cols, one_of);
        let mut all: Vec<u32> = (0..cols as u32).collect();
        for k in 0..count {
            let random = mixed(mixed(draw.0) ^ k as u64);
            let other = k + ((u128::from(random) * (cols - k) as u128) >> 64) as usize;
            all.swap(k, other);
        }
        all.truncate(count);
        all.sort_unstable();
        Self { kept: all, scale: cols as f32 / count.max(1) as f32 }
    }
}

impl Rows for Columns {
    #[inline(always)]
    fn encode(&self, _: u32, x: &[f32], to: &mut [u32]) {
        to.iter_mut().zip(&self.kept).for_each(|(to, column)| *to = (x[*column as usize] * self.scale).to_bits());
    }

    #[inline(always)]
    fn decode(&self, from: &[u32], to: &mut [f32]) {
        to.fill(0.0);
        from.iter().zip(&self.kept).for_each(|(word, column)| to[*column as usize] = f32::from_bits(*word));
    }
}
