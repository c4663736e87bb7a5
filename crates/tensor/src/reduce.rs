//! How ranks agree on small sums (moments, global attention), whoever they are and however they talk.

use crate::error::Result;
use crate::matrix::Matrix;

/// Sums a small matrix over ranks, in place and with the same result on each.
pub trait Reduce {
    /// Replaces `m` by the sum of all ranks' `m`.
    fn sum(&self, m: &mut Matrix) -> Result<()>;
}

/// One rank alone: its sums are the sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Reduce for Alone {
    fn sum(&self, _: &mut Matrix) -> Result<()> {
        Ok(())
    }
}
