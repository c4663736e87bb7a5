//! Activations that a model can choose between.

use graphweft_tensor::ops::activation::Activation;
use serde::{Deserialize, Serialize};

/// Which activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivationKind {
    /// max(x, 0)
    #[default]
    Relu,
    /// x where positive, eˣ − 1 elsewhere
    Elu,
    /// x·Φ(x)
    Gelu,
}

impl From<ActivationKind> for Activation {
    fn from(kind: ActivationKind) -> Self {
        match kind {
            ActivationKind::Relu => Self::Relu,
            ActivationKind::Elu => Self::Elu,
            ActivationKind::Gelu => Self::Gelu,
        }
    }
}
