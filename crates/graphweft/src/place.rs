//! Where ranks compute, and how a run finds them.

use std::fmt;
use std::str::FromStr;

use graphweft_tensor::{DeviceName, Precision};
use graphweft_train::Error as Training;
use graphweft_train::config::{CommName, ParallelConfig};
use graphweft_train::planning::Emulation;
use graphweft_train::ranks::World;

use crate::doctor;
use crate::error::{Error, Result};
use crate::observe::Watched;

/// Where to compute: `cpu`, `cuda`, or `cuda:1` for the second GPU. The default is a GPU where one is found with the
/// libraries that it needs, else the CPU.
///
/// ```
/// let device: graphweft::Device = "cuda:1".parse()?;
/// assert_eq!(device.to_string(), "cuda:1");
/// assert!("gpu".parse::<graphweft::Device>().is_err());
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Device(Option<DeviceName>);

impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(Self(Some(name.parse()?)))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.unwrap_or_else(DeviceName::best).fmt(f)
    }
}

impl Device {
    /// Where the ranks of `config` compute. Those of MPI do so on the CPU if nothing is said: MPI moves host memory.
    pub(crate) fn place_of(self, config: &ParallelConfig, watched: &Watched) -> DeviceName {
        if self.0.is_none() && config.comm == CommName::Mpi { DeviceName::Cpu } else { self.place(watched) }
    }

    /// The place that was named; else a GPU, if one is there with the libraries that it needs, or the CPU.
    pub(crate) fn place(self, watched: &Watched) -> DeviceName {
        let place = self.0.unwrap_or_else(DeviceName::best);
        let missing = if place == DeviceName::Cpu { Vec::new() } else { doctor::load_cuda() };
        if self.0.is_none() && !missing.is_empty() {
            watched.note(&format!("computing on the CPU: {} not found, see graphweft doctor", missing.join(", ")));
            return DeviceName::Cpu;
        }
        place
    }
}

/// The ranks that work is done on.
pub(crate) struct Ranks<'a> {
    pub(crate) config: &'a ParallelConfig,
    /// How many were asked for, where a launcher may have started another number.
    pub(crate) wanted: Option<u64>,
    /// Where the first computes.
    pub(crate) place: DeviceName,
    pub(crate) precision: Precision,
    pub(crate) watched: &'a Watched,
}

impl Ranks<'_> {
    /// Runs `work` among them. Under a launcher their number is that of the processes.
    pub(crate) fn enter<T: Send>(self, work: impl FnOnce(World, Watched) -> Result<T> + Send) -> Result<T> {
        World::enter(self.config, |world| {
            let world = world.at(self.place, self.precision)?;
            if let Some(wanted) = self.wanted.filter(|wanted| *wanted != world.ranks() as u64) {
                if !world.leads() {
                    return Err(Training::Refused.into());
                }
                let what = format!("--ranks is {wanted}, but there are {} processes", world.ranks());
                return Err(Error::request(what, format!("start {wanted} processes, or leave out --ranks")));
            }
            let watched = self.watched.of_world(&world);
            work(world, watched)
        })
    }

    /// Runs `work` among them as if they were elsewhere: each computes with one thread, which is timed.
    pub(crate) fn emulate<T>(
        self,
        elsewhere: Vec<Emulation>,
        work: impl FnOnce(World, Watched) -> Result<T>,
    ) -> Result<T> {
        if self.place != DeviceName::Cpu {
            let what = format!("an emulation times computing on processors, not on {}", self.place);
            return Err(Error::request(what, "add --device cpu"));
        }
        work(World::emulated(self.config, elsewhere)?, self.watched.clone())
    }
}
