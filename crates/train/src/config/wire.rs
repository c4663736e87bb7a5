//! `[wire]`: how rows are written for other ranks.

use std::fmt;

use graphweft_parallel::{Coding, Strategy};
use graphweft_tensor::codec::Codec;
use serde::{Deserialize, Serialize};

use super::Problem;

/// `[wire]`: for halo, ring and gather. Scores and predictions are always exact, whatever is set here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WireConfig {
    /// How rows and their gradients travel in training: `exact`, or approximate as `bf16`, `f8`, `int8`, `int4`,
    /// `int2`, `int1` (rounded at random, with a scale for each row) or `columns:R` (one of R columns, drawn anew).
    pub codec: CodecName,
    /// Whether the codec stays, or the R of `columns:R` falls evenly to 1, which is exact, until the last of
    /// `train.epochs`.
    pub schedule: WireSchedule,
}

/// How a codec changes from epoch to epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireSchedule {
    /// Not at all.
    #[default]
    Fixed,
    /// Towards exact rows.
    Falling,
}

/// A codec, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CodecName(pub Option<Codec>);

/// What none is called.
const EXACT: &str = "exact";

impl fmt::Display for CodecName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str(EXACT),
            Some(codec) => codec.fmt(f),
        }
    }
}

impl From<CodecName> for String {
    fn from(name: CodecName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for CodecName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if name == EXACT {
            return Ok(Self(None));
        }
        let forms = || format!("there is no codec {name:?}; choose one of: {EXACT}, {}", Codec::FORMS.join(", "));
        name.parse().map(|codec| Self(Some(codec))).map_err(|_| forms())
    }
}

impl WireConfig {
    /// How rows are coded in a run of so many epochs with this seed, if they are.
    pub(crate) fn coding(&self, epochs: u64, seed: u64) -> Option<Coding> {
        let falling = (self.schedule == WireSchedule::Falling).then_some(epochs);
        self.codec.0.map(|codec| Coding { codec, falling, seed })
    }

    /// The same with most on the wire, as it will be in the end.
    pub(crate) fn at_last(&self) -> Self {
        match (self.codec.0, self.schedule) {
            (Some(Codec::Columns(_)), WireSchedule::Falling) => {
                Self { codec: CodecName(Some(Codec::Columns(1))), schedule: WireSchedule::Fixed }
            }
            _ => self.clone(),
        }
    }

    /// Whether rows are coded under this strategy as it is set here: what moves no rows has none to code.
    pub(crate) fn is_for(&self, strategy: &Strategy) -> bool {
        let coded = matches!(
            strategy,
            Strategy::Halo(_) | Strategy::Ring(_) | Strategy::Gather(_) | Strategy::Local(_) | Strategy::Own(_)
        );
        self.codec.0.is_none() || coded
    }

    pub(super) fn check(&self, strategy: Option<&Strategy>) -> Result<(), Problem> {
        if self.schedule == WireSchedule::Falling && !matches!(self.codec.0, Some(Codec::Columns(_))) {
            let problem = format!("with the codec {} nothing can fall", self.codec);
            return Err(("schedule", problem, "set wire.codec=columns:R, or leave it out"));
        }
        match strategy.filter(|strategy| !self.is_for(strategy)) {
            None => Ok(()),
            Some(strategy) => {
                Err(("codec", format!("{} is not for {strategy}", self.codec), "choose halo, ring or gather, or exact"))
            }
        }
    }
}
