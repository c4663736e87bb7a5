//! Adding up edge weights by label.

use crate::csr::NodeId;

/// A map from labels to sums that is emptied in time proportional to its use. Entries are listed in the order they
/// came, so that whoever reads it sees the same order every time.
pub(in crate::partition) struct Ratings<I> {
    /// Open addressing; a sum of 0 marks a free slot.
    slots: Vec<(I, u64)>,
    used: Vec<usize>,
}

impl<I: NodeId> Ratings<I> {
    pub(in crate::partition) fn new() -> Self {
        Self { slots: vec![(I::new(0), 0); 64], used: Vec::new() }
    }

    /// Empties the map and makes room for `labels` different labels.
    pub(in crate::partition) fn reset(&mut self, labels: usize) {
        if labels * 2 > self.slots.len() {
            self.slots = vec![(I::new(0), 0); (labels * 2).next_power_of_two()];
        } else {
            for &slot in &self.used {
                self.slots[slot].1 = 0;
            }
        }
        self.used.clear();
    }

    /// Adds a positive `weight` to the sum of `label`.
    pub(in crate::partition) fn add(&mut self, label: I, weight: u64) {
        let slot = self.find(label);
        let entry = &mut self.slots[slot];
        if entry.1 == 0 {
            entry.0 = label;
            self.used.push(slot);
        }
        entry.1 += weight;
    }

    /// The sum of `label`, 0 if it never came.
    pub(in crate::partition) fn get(&self, label: I) -> u64 {
        self.slots[self.find(label)].1
    }

    /// Different labels.
    pub(in crate::partition) fn len(&self) -> usize {
        self.used.len()
    }

    /// Labels and sums, in the order the labels came.
    pub(in crate::partition) fn iter(&self) -> impl Iterator<Item = (I, u64)> {
        self.used.iter().map(|&slot| self.slots[slot])
    }

    fn find(&self, label: I) -> usize {
        let mask = self.slots.len() - 1;
        let spread = Into::<u64>::into(label).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut slot = (spread >> 32) as usize & mask;
        while self.slots[slot].1 != 0 && self.slots[slot].0 != label {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_kept_by_label_in_order_of_arrival() {
        let mut r = Ratings::<u32>::new();
        for round in 1..=3u64 {
            r.reset(200);
            for k in (0..200u32).rev().chain(0..200) {
                r.add(k * 64, round);
            }
            assert_eq!((r.len(), r.get(64), r.get(1)), (200, 2 * round, 0));
            assert_eq!(r.iter().next(), Some((199 * 64, 2 * round)));
        }
    }
}
