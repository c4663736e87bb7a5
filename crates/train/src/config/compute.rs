//! `[compute]`: with which numbers, and what is kept.

use graphweft_model::Remat;
use graphweft_tensor::{DType, Precision};
use serde::{Deserialize, Serialize};

/// `[compute]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ComputeConfig {
    /// Type in which activations are stored. Parameters and sums are f32 for bf16.
    pub dtype: DType,
    /// What is computed again in backward instead of being kept.
    pub remat: Remat,
    /// How products of f32 are computed on a GPU.
    pub precision: Precision,
    /// Whether a GPU records the steps of small graphs on one rank and does them again by one call. Their memory is not
    /// shared with evaluations then. Where it is not said, a GPU does so if it can; where it is asked for and cannot be
    /// done, that is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<bool>,
}

impl ComputeConfig {
    /// Whether steps are recorded where that can be done.
    pub fn records(&self) -> bool {
        self.record.unwrap_or(true)
    }
}
