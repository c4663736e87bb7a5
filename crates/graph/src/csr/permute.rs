//! Renumbering nodes.

use graphweft_base::{Position, Problem};

use super::{Csr, NodeId, rows};

/// A renumbering of nodes, kept in both directions.
///
/// ```
/// use graphweft_graph::Permutation;
/// let p = Permutation::from_old_of_new(vec![2, 0, 1])?;
/// assert_eq!((p.old_of(0), p.new_of(2)), (2, 0));
/// # Ok::<(), graphweft_graph::PermutationError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    old_of_new: Vec<u64>,
    new_of_old: Vec<u64>,
}

/// Why a list is no permutation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PermutationError {
    #[error("entry {at} is {id}: there are only {len} nodes")]
    OutOfRange { at: usize, id: u64, len: usize },
    #[error("node {id} appears twice, at {first} and {second}")]
    Twice { id: u64, first: u64, second: usize },
}

impl From<PermutationError> for Problem {
    fn from(e: PermutationError) -> Self {
        let (PermutationError::OutOfRange { at, .. } | PermutationError::Twice { second: at, .. }) = e;
        Self::at(Position::element(at), e.to_string())
    }
}

const UNSEEN: u64 = u64::MAX;

impl Permutation {
    /// From the list that stored partitions hold: entry k is the original id of the node that gets id k
    /// (`x_new = x[perm]` in NumPy).
    ///
    /// # Errors
    /// If an id is out of range or appears twice.
    pub fn from_old_of_new(old_of_new: Vec<u64>) -> Result<Self, PermutationError> {
        let len = old_of_new.len();
        let mut new_of_old = vec![UNSEEN; len];
        for (at, &id) in old_of_new.iter().enumerate() {
            let slot = new_of_old.get_mut(id as usize).ok_or(PermutationError::OutOfRange { at, id, len })?;
            if *slot != UNSEEN {
                return Err(PermutationError::Twice { id, first: *slot, second: at });
            }
            *slot = at as u64;
        }
        Ok(Self { old_of_new, new_of_old })
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.old_of_new.len()
    }

    /// Whether there is no node at all.
    pub fn is_empty(&self) -> bool {
        self.old_of_new.is_empty()
    }

    /// The original id of the node that is now `new`.
    pub fn old_of(&self, new: usize) -> usize {
        self.old_of_new[new] as usize
    }

    /// The new id of the node that was `old`.
    pub fn new_of(&self, old: usize) -> usize {
        self.new_of_old[old] as usize
    }

    /// Original ids in new order.
    pub fn old_of_new(&self) -> &[u64] {
        &self.old_of_new
    }

    /// The way back.
    pub fn inverse(self) -> Self {
        Self { old_of_new: self.new_of_old, new_of_old: self.old_of_new }
    }
}

impl<I: NodeId> Csr<I> {
    /// The same graph with its nodes renumbered.
    pub fn permute(&self, p: &Permutation) -> Self {
        assert!(self.num_dst() == p.len() && self.num_src() == p.len(), "the permutation is for another graph");
        rows::build(
            p.len(),
            p.len(),
            |new| self.degree(p.old_of(new)),
            |new, out| {
                for (slot, j) in out.iter_mut().zip(self.row(p.old_of(new))) {
                    *slot = I::new(p.new_of(j.index()));
                }
                out.sort_unstable();
            },
        )
    }
}
