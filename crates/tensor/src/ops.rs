//! Operations, one file each: the backward half as a tape node, and the trait that a backend implements for it.

pub mod attention;
pub mod bag;
pub mod gat;
pub mod gatv2;
pub mod global;
#[cfg(test)]
mod graphs;
pub mod linear;
pub mod spmm;

/// Whether a kernel replaces what its target holds or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Replace.
    Set,
    /// Add.
    Add,
}
