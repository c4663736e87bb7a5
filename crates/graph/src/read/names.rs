//! Node ids that are names: from any integers of 64 bits to the numbers 0 … N−1.

use graphweft_base::Result;
use rayon::prelude::*;

use super::Input;
use super::imported::NodeIds;
use super::text::Integer;

/// The sign bit.
pub(super) const SIGN: u64 = 1 << 63;

const BOTH_SIGNS: &str = "some ids are negative and some are beyond 2⁶³−1";

/// Two's complement, if 64 bits suffice.
pub(super) fn bits(Integer { negative, magnitude }: Integer) -> Option<u64> {
    if negative { (magnitude <= SIGN).then(|| magnitude.wrapping_neg()) } else { Some(magnitude) }
}

/// Which integers ids are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    /// Some are negative.
    pub(super) negative: bool,
    /// Some are beyond int64.
    pub(super) large: bool,
}

impl Range {
    /// Refuses ids of which some only fit into int64 and some only into uint64.
    pub(super) fn check(self, input: &Input) -> Result<()> {
        if self.negative && self.large {
            return Err(input.bad("ids", BOTH_SIGNS, "ids must all fit into int64, or all into uint64"));
        }
        Ok(())
    }
}

/// Different ids, numbered in ascending order.
pub(super) struct Names {
    /// Ascending, with the sign bit flipped if some are negative, so that the order of the bits is the order of the
    /// ids.
    sorted: Vec<u64>,
    range: Range,
    /// Where ids with the same leading bits begin: most look-ups end within a few entries.
    directory: Vec<usize>,
    shift: u32,
}

impl Names {
    /// From the [`bits`] of ids, ascending and none twice.
    pub(super) fn new(mut sorted: Vec<u64>, range: Range) -> Self {
        const PER_BUCKET: u64 = 4;
        if range.negative {
            let positive = sorted.partition_point(|&x| x < SIGN);
            sorted.rotate_left(positive);
            sorted.par_iter_mut().for_each(|x| *x ^= SIGN);
        }
        let (first, last) = (sorted.first().copied().unwrap_or(0), sorted.last().copied().unwrap_or(0));
        // Two at least: then a shift by 63 always suffices.
        let buckets = (sorted.len() as u64 / PER_BUCKET).max(2);
        let mut shift = 0;
        while (last - first) >> shift >= buckets {
            shift += 1;
        }
        let count = ((last - first) >> shift) as usize + 1;
        let begins = |bucket| sorted.partition_point(|&x| (x - first) >> shift < bucket as u64);
        let directory = (0..=count).into_par_iter().map(begins).collect();
        Self { sorted, range, directory, shift }
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.sorted.len() as u64
    }

    /// The number of an id.
    pub(super) fn number(&self, at: Integer) -> Option<u64> {
        let key = match (self.range.negative, at.negative) {
            (true, negative) if negative || at.magnitude < SIGN => bits(at)? ^ SIGN,
            (false, false) => at.magnitude,
            _ => return None,
        };
        let bucket = (key.checked_sub(*self.sorted.first()?)? >> self.shift) as usize;
        let (&start, &end) = (self.directory.get(bucket)?, self.directory.get(bucket + 1)?);
        let place = self.sorted[start..end].binary_search(&key);
        place.ok().map(|i| (start + i) as u64)
    }

    /// The ids, in the order of their numbers.
    pub(super) fn into_ids(mut self) -> NodeIds {
        if self.range.large {
            return NodeIds::Unsigned(self.sorted);
        }
        if self.range.negative {
            self.sorted.par_iter_mut().for_each(|x| *x ^= SIGN);
        }
        NodeIds::Signed(bytemuck::cast_vec(self.sorted))
    }
}
