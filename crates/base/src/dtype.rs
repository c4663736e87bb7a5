//! The type of stored numbers: the same word for matrices, messages, profiles and configurations.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of a matrix's elements. Computation is in f32 or f64; bf16 is storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DType {
    #[default]
    F32,
    Bf16,
    F64,
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

    /// As it is written in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F64 => "f64",
        }
    }

    /// The type in which operations on these elements compute: f32 for bf16.
    pub fn compute(self) -> Self {
        if self == Self::Bf16 { Self::F32 } else { self }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
