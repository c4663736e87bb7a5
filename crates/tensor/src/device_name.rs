//! Where to compute, by name: what a rank opens its own [`Device`] from.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::cpu::Cpu;
use crate::device::Device;
use crate::error::{Error, Result};

/// A processor or a GPU of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// The CPU, with the current rayon pool.
    Cpu,
    /// The GPU with this number.
    Cuda(usize),
}

/// How products of f32 are computed on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// In f32.
    #[default]
    Full,
    /// On tensor cores: operands rounded to 10 bits of mantissa, sums in f32.
    Tf32,
}

impl DeviceName {
    /// The first GPU where there is one that this build can use, else the CPU.
    pub fn best() -> Self {
        #[cfg(feature = "cuda")]
        if !crate::cuda::Gpu::all().is_empty() {
            return Self::Cuda(0);
        }
        Self::Cpu
    }

    /// Where rank `rank` computes if the first computes here: on the next GPU, all in turn.
    pub fn of_rank(self, rank: usize) -> Self {
        match self {
            Self::Cpu => Self::Cpu,
            #[cfg(feature = "cuda")]
            Self::Cuda(first) => match crate::cuda::Gpu::all().len() {
                // A GPU that is not there is for `open` to tell.
                count if first < count => Self::Cuda((first + rank) % count),
                _ => self,
            },
            #[cfg(not(feature = "cuda"))]
            Self::Cuda(_) => {
                let _ = rank;
                self
            }
        }
    }

    /// A device there, for one rank.
    ///
    /// # Errors
    /// [`Error::Device`] that says what is missing.
    pub fn open(self, precision: Precision) -> Result<Device> {
        Ok(Device::with_backend(self.backend(precision)?))
    }

    /// What runs the kernels of a device there.
    ///
    /// # Errors
    /// [`Error::Device`] that says what is missing.
    pub fn backend(self, precision: Precision) -> Result<Box<dyn Backend>> {
        match self {
            Self::Cpu => Ok(Box::new(Cpu::new())),
            #[cfg(feature = "cuda")]
            Self::Cuda(index) => Ok(Box::new(crate::cuda::Cuda::with_precision(index, precision)?)),
            #[cfg(not(feature = "cuda"))]
            Self::Cuda(_) => {
                let _ = precision;
                let problem = "this program was built without GPUs; build it with the feature cuda".into();
                Err(Error::Device { device: self.to_string(), problem })
            }
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let cuda = name.strip_prefix("cuda").map(|rest| if rest.is_empty() { ":0" } else { rest });
        match (name, cuda.and_then(|rest| rest.strip_prefix(':')).map(str::parse)) {
            ("cpu", _) => Ok(Self::Cpu),
            (_, Some(Ok(index))) => Ok(Self::Cuda(index)),
            _ => Err(Error::Argument { op: "device", problem: format!("{name:?} is none: write cpu, cuda or cuda:1") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (name, place) in [("cpu", DeviceName::Cpu), ("cuda", DeviceName::Cuda(0)), ("cuda:3", DeviceName::Cuda(3))]
        {
            assert_eq!(name.parse::<DeviceName>().unwrap(), place);
            assert_eq!(place.to_string().parse::<DeviceName>().unwrap(), place);
        }
        for wrong in ["", "gpu", "cuda1", "cuda:", "cuda:x", "cuda:-1", "cpu:0"] {
            assert!(wrong.parse::<DeviceName>().is_err(), "{wrong}");
        }
    }
}
