//! What kernels read and write: the caller's arrays, here or on a GPU.

use graphweft_tensor::DType;

/// Numbers that a kernel reads, row by row.
///
/// ```
/// use graphweft::Graph;
/// use graphweft::kernels::{EdgeKernels, Values, ValuesMut};
/// let kernels = EdgeKernels::new(&Graph::from_edges(2, &[0], &[1])?)?;
/// let (mut out, mut whose) = ([0.0; 2], [0; 2]);
/// kernels.max(1, Values::F64(&[3.0, 4.0]), ValuesMut::F64(&mut out), ValuesMut::Ids(&mut whose))?;
/// assert_eq!((out, whose[1]), ([0.0, 3.0], 0));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Double precision.
    F64(&'a [f64]),
    /// The bits of bfloat16.
    Bf16(&'a [u16]),
    /// Nodes.
    Ids(&'a [u32]),
    /// Of either type, on a GPU.
    Gpu(GpuArray),
}

impl Values<'_> {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::F64(x) => x.len(),
            Self::Bf16(x) => x.len(),
            Self::Ids(x) => x.len(),
            Self::Gpu(x) => x.count,
        }
    }
}

/// Numbers that a kernel overwrites, row by row.
///
/// ```
/// use graphweft::Graph;
/// use graphweft::kernels::{Along, EdgeKernels, Sum, Values, ValuesMut};
/// let kernels = EdgeKernels::new(&Graph::from_edges(2, &[0], &[1])?)?;
/// let sum = Sum { along: Along::Edges, width: 1, edge: None, dst: None, src: None, x: Values::F32(&[3.0, 4.0]) };
/// let mut out = [9.0; 2];
/// kernels.sum(&sum, ValuesMut::F32(&mut out))?;
/// assert_eq!(out, [0.0, 3.0]);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Debug)]
pub enum ValuesMut<'a> {
    /// Single precision.
    F32(&'a mut [f32]),
    /// Double precision.
    F64(&'a mut [f64]),
    /// The bits of bfloat16.
    Bf16(&'a mut [u16]),
    /// Nodes.
    Ids(&'a mut [u32]),
    /// Of either type, on a GPU.
    Gpu(GpuArray),
}

/// Numbers on a GPU.
///
/// ```
/// use graphweft::kernels::{GpuArray, Values};
/// // SAFETY: there is nothing at this address, and nothing is read.
/// let nothing = Values::Gpu(unsafe { GpuArray::f32(0, 0) });
/// assert!(matches!(nothing, Values::Gpu(_)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GpuArray {
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a build with CUDA looks there"))]
    pub(super) start: u64,
    pub(super) count: usize,
    pub(super) kind: Kind,
}

/// What is in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Numbers.
    Numbers(DType),
    /// Nodes, of 32 bits.
    Ids,
}

/// A function for each type: its name, its kind, and what it is.
macro_rules! arrays {
    ($($name:ident, $kind:expr, $what:literal;)*) => {
        $(#[doc = concat!("So many ", $what, " from address `start` on, a multiple of 16.")]
        ///
        /// # Safety
        /// The memory is on the GPU of the [`EdgeKernels`](super::EdgeKernels) that get it, and lives until the call
        /// is done there. In the order of the stream, nobody else writes it then, nor reads what the call writes; and
        /// no call gets memory twice of which it writes one.
        pub unsafe fn $name(start: u64, count: usize) -> Self {
            Self { start, count, kind: $kind }
        })*
    };
}

impl GpuArray {
    arrays! {
        f32, Kind::Numbers(DType::F32), "numbers of single precision";
        f64, Kind::Numbers(DType::F64), "numbers of double precision";
        bf16, Kind::Numbers(DType::Bf16), "bfloat16 numbers";
        ids, Kind::Ids, "nodes of 32 bits";
    }
}

#[cfg(feature = "cuda")]
impl Kind {
    /// How kernels store it. Ids have the width of f32, and are only compared.
    pub(super) fn stored(self) -> DType {
        match self {
            Self::Numbers(dtype) => dtype,
            Self::Ids => DType::F32,
        }
    }
}
