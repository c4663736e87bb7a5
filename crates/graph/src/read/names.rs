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

/// The ids of the rows of a table: the row is the number.
pub(super) struct RowIds {
    names: Names,
    /// The row of each name.
    rows: Vec<u64>,
    ids: NodeIds,
}

impl RowIds {
    /// From the ids of all rows; none may stand twice.
    pub(super) fn new(input: &Input, ids: &[Integer]) -> Result<Self> {
        let mut keyed = Vec::with_capacity(ids.len());
        for (row, &id) in ids.iter().enumerate() {
            let Some(key) = bits(id) else {
                let problem = format!("the id of row {} is below −2⁶³", row + 1);
                return Err(input.bad("ids", problem, "ids must be integers of 64 bits"));
            };
            keyed.push((key, row as u64));
        }
        let range = Range {
            negative: ids.iter().any(|i| i.negative),
            large: ids.iter().any(|i| !i.negative && i.magnitude >= SIGN),
        };
        range.check(input)?;
        let all: Vec<u64> = keyed.iter().map(|&(key, _)| key).collect();
        let order = |&(key, row): &(u64, u64)| (key ^ if range.negative { SIGN } else { 0 }, row);
        keyed.par_sort_unstable_by_key(order);
        if let Some(w) = keyed.windows(2).find(|w| w[0].0 == w[1].0) {
            let sign = if ids[w[0].1 as usize].negative { "−" } else { "" };
            let id = ids[w[0].1 as usize].magnitude;
            let problem = format!("rows {} and {} both have the id {sign}{id}", w[0].1 + 1, w[1].1 + 1);
            return Err(input.bad("ids", problem, "each node has one row"));
        }
        let rows = keyed.iter().map(|&(_, row)| row).collect();
        let mut sorted = all.clone();
        sorted.par_sort_unstable();
        let ids = if range.large { NodeIds::Unsigned(all) } else { NodeIds::Signed(bytemuck::cast_vec(all)) };
        Ok(Self { names: Names::new(sorted, range), rows, ids })
    }

    /// The row of an id.
    pub(super) fn number(&self, at: Integer) -> Option<u64> {
        self.names.number(at).map(|place| self.rows[place as usize])
    }

    /// The ids by row; `None` where they are the numbers of the rows.
    pub(super) fn into_ids(self) -> Option<NodeIds> {
        let plain = match &self.ids {
            NodeIds::Signed(ids) => ids.iter().enumerate().all(|(row, &id)| id == row as i64),
            NodeIds::Unsigned(_) => false,
        };
        (!plain).then_some(self.ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::testing::text;

    fn integers(ids: &[i128]) -> Vec<Integer> {
        ids.iter().map(|&x| Integer { negative: x < 0, magnitude: x.unsigned_abs() as u64 }).collect()
    }

    #[test]
    fn rows_are_found_by_their_ids_whatever_the_order() {
        let largest = i128::from(u64::MAX);
        for ids in [&[5i128, 3, 9][..], &[-7, 100, 0, -9_000_000_000], &[largest, 1, 2], &[0, 1, 2]] {
            let rows = RowIds::new(&text("x"), &integers(ids)).unwrap();
            for (row, id) in integers(ids).into_iter().enumerate() {
                assert_eq!(rows.number(id), Some(row as u64), "{ids:?}");
            }
            for other in integers(&[4, -1, 1 << 63]) {
                assert_eq!(rows.number(other), None, "{ids:?} {other:?}");
            }
            assert_eq!(rows.into_ids().is_none(), ids == [0, 1, 2]);
        }
        let message = |ids: &[i128]| RowIds::new(&text("x"), &integers(ids)).err().unwrap().to_string();
        assert!(message(&[4, 7, 4]).contains("rows 1 and 3 both have the id 4"));
        assert!(message(&[-4, largest]).contains("negative"));
    }
}
