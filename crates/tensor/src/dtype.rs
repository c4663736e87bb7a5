//! Element types.

use std::fmt;

use bytemuck::Pod;
pub use graphweft_base::DType;
use half::bf16;

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
