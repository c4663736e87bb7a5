//! `[link]`: how it is learned which links there are.

use graphweft_model::decoders::DecoderName;
use serde::{Deserialize, Serialize};

use super::{Problem, at_least_one, not_negative, part_of_one, positive};

/// `[link]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConfig {
    /// What scores a link, from the rows of its ends. Unset: dot, or distmult where links have relations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder: Option<DecoderName>,
    /// logistic and adversarial learn from pairs that are drawn against links; one-of-all and some-of-all from all
    /// nodes as partners of an end; all-pairs, without relations, from all pairs of nodes.
    pub loss: LinkLoss,
    /// Where nodes come from that stand against links: all, or those of the rank.
    pub draw: DrawFrom,
    /// adversarial: how much more pairs count that score high.
    pub temperature: f64,
    /// transe and rotate: what distances are subtracted from.
    pub margin: f64,
    /// some-of-all: the part of each target that is spread over all nodes.
    pub smoothing: f64,
    /// Each relation has a second row, for links read from tail to head.
    pub reciprocal: bool,
    /// mlp: columns between its layers. Unset: data.embedding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<u64>,
    /// mlp: its layers.
    pub layers: u64,
    /// Rows are drawn around what the model says, as in a VGAE: it then gives twice as many numbers.
    pub variational: bool,
}

/// How it is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum LinkLoss {
    Logistic,
    Adversarial,
    OneOfAll,
    SomeOfAll,
    AllPairs,
}

impl LinkLoss {
    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Logistic => "logistic",
            Self::Adversarial => "adversarial",
            Self::OneOfAll => "one-of-all",
            Self::SomeOfAll => "some-of-all",
            Self::AllPairs => "all-pairs",
        }
    }
}

/// Where nodes against links come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DrawFrom {
    Global,
    Local,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            decoder: None,
            loss: LinkLoss::Logistic,
            draw: DrawFrom::Global,
            temperature: 1.0,
            margin: 9.0,
            smoothing: 0.0,
            reciprocal: false,
            hidden: None,
            layers: 3,
            variational: false,
        }
    }
}

impl LinkConfig {
    /// What scores links, which have relations or not.
    pub(crate) fn decoder(&self, relations: usize) -> DecoderName {
        let usual = if relations > 0 { DecoderName::DistMult } else { DecoderName::Dot };
        self.decoder.unwrap_or(usual)
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        at_least_one("layers", self.layers)?;
        self.hidden.map_or(Ok(()), |hidden| at_least_one("hidden", hidden))?;
        not_negative("temperature", self.temperature)?;
        part_of_one("smoothing", self.smoothing)?;
        positive("margin", self.margin)
    }
}
