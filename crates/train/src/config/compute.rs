//! `[compute]`: with which numbers, and what is kept.

use graphweft_model::Remat;
use graphweft_tensor::{DType, Precision as Products};
use serde::{Deserialize, Serialize};

/// `[compute]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ComputeConfig {
    /// Type in which activations are stored. Parameters and sums are f32 for bf16.
    pub dtype: Storage,
    /// What is computed again in backward instead of being kept.
    pub remat: Remat,
    /// How products of f32 are computed on a GPU.
    pub precision: Precision,
    /// Whether a GPU records the steps of small graphs on one rank and does them again by one call. Their memory is not shared with
    /// evaluations then. Where it is not said, a GPU does so if it can; where it is asked for and cannot be done, that is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<bool>,
}

impl ComputeConfig {
    /// Whether steps are recorded where that can be done.
    pub fn records(&self) -> bool {
        self.record.unwrap_or(true)
    }
}

/// How products of f32 are computed on a GPU: in f32, or on tensor cores from operands of TF32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Precision {
    #[default]
    Full,
    Tf32,
}

impl From<Precision> for Products {
    fn from(p: Precision) -> Self {
        match p {
            Precision::Full => Self::Full,
            Precision::Tf32 => Self::Tf32,
        }
    }
}

/// Type of stored activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Storage {
    #[default]
    F32,
    Bf16,
    F64,
}

impl From<Storage> for DType {
    fn from(s: Storage) -> Self {
        match s {
            Storage::F32 => Self::F32,
            Storage::Bf16 => Self::Bf16,
            Storage::F64 => Self::F64,
        }
    }
}
