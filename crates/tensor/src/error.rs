//! What can go wrong in a computation, with the operation and the shapes.

use graphweft_base::room;

use crate::dtype::DType;
use crate::ledger::Usage;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    /// Operands whose shapes do not fit together.
    #[error("{op}: {what} is {got:?}, expected {expected:?}")]
    Shape { op: &'static str, what: &'static str, got: (usize, usize), expected: (usize, usize) },
    /// Operands of a type that the operation does not take.
    #[error("{op}: {what} is {got}, which this operation does not take")]
    Type { op: &'static str, what: &'static str, got: DType },
    /// An argument outside its range.
    #[error("{op}: {problem}")]
    Argument { op: &'static str, problem: String },
    /// The device has no memory left.
    #[error("out of memory: {requested} more bytes for {op} on {device}, which holds\n{usage}\n  remedy: {LESS}")]
    OutOfMemory { op: &'static str, device: String, requested: u64, usage: Usage },
    /// A computation gave a NaN or an infinity.
    #[error("{what} has a number that is not finite")]
    NotFinite { what: String },
    /// The device failed.
    #[error("{device}: {problem}")]
    Device { device: String, problem: String },
    /// Ranks could not agree: what their communicator says.
    #[error(transparent)]
    Ranks(Box<dyn std::error::Error + Send + Sync>),
}

const LESS: &str = "keep less with compute.remat=layer, store less with compute.dtype=bf16, or choose a smaller model";

impl Error {
    /// What to do about it, where that is known.
    pub fn remedy(&self) -> Option<&'static str> {
        matches!(self, Self::OutOfMemory { .. }).then_some(LESS)
    }
}

/// Fails unless the host has memory for so many bytes, to be asked before they are taken elsewhere than on a device.
///
/// # Errors
/// [`Error::OutOfMemory`] for `op`.
pub fn room_for(op: &'static str, bytes: u128) -> Result<()> {
    if room::memory().is_none_or(|available| bytes <= u128::from(available)) {
        return Ok(());
    }
    let (requested, usage) = (u64::try_from(bytes).unwrap_or(u64::MAX), Usage::default());
    Err(Error::OutOfMemory { op, device: "the host".into(), requested, usage })
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
