//! Element types.

use std::fmt;

use bytemuck::Pod;
use half::bf16;

/// The type of a matrix's elements. Computation is in f32 or f64; bf16 is storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DType {
    F32,
    F64,
    Bf16,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// The type in which operations on these elements compute: f32 for bf16.
    pub fn compute(self) -> Self {
        if self == Self::Bf16 { Self::F32 } else { self }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bf16 => "bf16",
        })
    }
}

/// A Rust type that is some [`DType`].
pub trait Element: Pod + Send + Sync + fmt::Debug {
    /// Which one.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for f64 {
    const DTYPE: DType = DType::F64;
}

impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
}
