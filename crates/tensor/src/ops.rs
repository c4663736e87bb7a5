//! Operations, one file each: what they compute, their kernels, and the backward half as a node of the tape.
//!
//! # How an operation is added
//!
//! 1. `ops/<name>.rs` says what is computed, for whoever calls it and for the tape: a function that takes a [`Tape`]
//!    and [`Var`]s, asks the device's [`Backend`] for a kernel and [pushes](crate::Tape::push) a node; and the node,
//!    which is [`Backward`]. The kernels are declared in the same file, by `kernels!`: for each one its arguments, and
//!    what it would be on a device that computes nothing. How it is timed and how it is rehearsed follow from that.
//! 2. `cpu/<name>.rs` implements the kernels for the CPU, which is also their reference.
//! 3. `cuda/<name>.rs` launches them on a GPU, from a `.cu` file of the same name.
//! 4. One line in the table `operations!` below, which declares these files and makes the kernels a part of every
//!    device.
//!
//! The tests of an operation are in its file: finite differences in f64, every type and instruction set against f64,
//! the same bits for any number of threads, and as much memory in a rehearsal as on the CPU.
//!
//! An operation that is no part of this crate, or that has no kernel for GPUs yet, is a [`custom::Kernel`]: one file
//! anywhere. It is written for host memory; a GPU works on a copy.
//!
//! [`Backward`]: crate::Backward
//! [`Tape`]: crate::Tape
//! [`Var`]: crate::Var

pub mod attention_blocks;
pub mod convert;
pub mod gat;
pub mod gatv2;
#[cfg(test)]
pub(crate) mod graphs;
pub mod grouped;
pub mod linear;
pub mod many_rows;
pub mod matmul;
pub mod ranks;
pub mod reshape;
pub mod segments;
#[cfg(test)]
pub(crate) mod tests;

/// The operations that have kernels, by their files and what these declare. A file of that name stands here, in `cpu/`
/// and in `cuda/`, and nobody else lists it.
macro_rules! operations {
    ($declare:path) => {
        $declare! {
            activation::ActivationKernels,
            attention::AttentionKernels,
            bag::BagKernels,
            batch_norm::BatchNormKernels,
            combine::CombineKernels,
            custom::CustomKernels,
            dropout::DropoutKernels,
            edge_values::EdgeValueKernels,
            epilogue::EpilogueKernels,
            gine::GineKernels,
            global::GlobalKernels,
            head_dot::HeadDotKernels,
            l2norm::L2NormKernels,
            loss::LossKernels,
            norm::NormKernels,
            product::ProductKernels,
            related::RelatedKernels,
            residual::ResidualKernels,
            rows::RowKernels,
            spmm::SpmmKernels,
        }
    };
}
pub(crate) use operations;

operations!(crate::kernels::backend);

/// Whether a kernel replaces what its target holds or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// Replace.
    Set,
    /// Add.
    Add,
}
