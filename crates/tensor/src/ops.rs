//! Operations, one file each: the backward half as a tape node, and the trait that a backend implements for it.

pub mod activation;
pub mod attention;
pub mod attention_blocks;
pub mod bag;
pub mod batch_norm;
pub mod combine;
pub mod convert;
pub mod dropout;
pub mod epilogue;
pub mod gat;
pub mod gatv2;
pub mod global;
#[cfg(test)]
pub(crate) mod graphs;
pub mod head_dot;
pub mod l2norm;
pub mod linear;
pub mod loss;
pub mod many_rows;
pub mod norm;
pub mod product;
pub mod reshape;
pub mod residual;
pub mod right;
pub mod rows;
pub mod spmm;
#[cfg(test)]
pub(crate) mod tests;

/// Whether a kernel replaces what its target holds or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Replace.
    Set,
    /// Add.
    Add,
}
