//! `[wire]`: how rows are written for other ranks.

use std::fmt;
use std::str::FromStr;

use graphweft_parallel::Strategy;
use graphweft_tensor::codec::Codec;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Problem;

/// `[wire]`: for halo, ring and gather. Scores and predictions are always exact, whatever is set here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WireConfig {
    /// How rows and their gradients travel in training: `exact`, or approximate as `bf16`, `f8`, `int8`, `int4`,
    /// `int2`, `int1` (rounded at random, with a scale for each row) or `columns:R` (one of R columns, drawn anew).
    pub codec: Coding,
}

/// A codec, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coding(pub Option<Codec>);

/// What none is called.
const EXACT: &str = "exact";

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str(EXACT),
            Some(codec) => codec.fmt(f),
        }
    }
}

impl FromStr for Coding {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            EXACT => Ok(Self(None)),
            name => name.parse().map(|codec| Self(Some(codec))).map_err(|_| {
                format!("there is no codec {name:?}; choose one of: {EXACT}, {}", Codec::FORMS.join(", "))
            }),
        }
    }
}

impl Serialize for Coding {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Coding {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl WireConfig {
    /// Whether rows are coded under this strategy as it is set here: what moves no rows has none to code.
    pub(crate) fn is_for(&self, strategy: &Strategy) -> bool {
        let coded = matches!(
            strategy,
            Strategy::Halo(_) | Strategy::Ring(_) | Strategy::Gather(_) | Strategy::Local(_) | Strategy::Own(_)
        );
        self.codec.0.is_none() || coded
    }

    pub(super) fn check(&self, strategy: Option<&Strategy>) -> Result<(), Problem> {
        match strategy.filter(|strategy| !self.is_for(strategy)) {
            None => Ok(()),
            Some(strategy) => {
                Err(("codec", format!("{} is not for {strategy}", self.codec), "choose halo, ring or gather, or exact"))
            }
        }
    }
}
