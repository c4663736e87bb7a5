//! How long a run would take elsewhere: real numerics, computing as measured here, messages as on a network that is not here.
//!
//! Each rank is a thread with one thread to compute with. What it computes is the time that the processor gave it, times a
//! factor; when messages arrive follows from the logs of all ranks and a [`Network`]: see [`graphweft_comm::Clocked`]. One run
//! gives the times on any number of networks.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use graphweft_comm::{Clocked, Communicator, Meeting, Network, Recorder, Times, replay};
use graphweft_plan::Profile;
use graphweft_tensor::Device;

use crate::error::Result;
use crate::rank::Rank;

/// Somewhere else.
#[derive(Clone, Debug, PartialEq)]
pub struct Emulation {
    /// What people call it.
    pub name: String,
    /// What is between ranks there.
    pub network: Network,
    /// What times of computing here are multiplied by.
    pub compute: f64,
}

impl Emulation {
    /// What a profile says, by its name or file.
    ///
    /// # Errors
    /// What is wrong in it.
    pub fn read(path: &Path) -> Result<Self> {
        let profile = Profile::find(&path.to_string_lossy())?;
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { name, network: profile.network, compute: profile.compute.factor() })
    }
}

/// What the ranks of an emulation share.
pub(crate) struct Emulated {
    elsewhere: Vec<Emulation>,
    meeting: Meeting<f64>,
}

impl Emulated {
    pub(crate) fn new(ranks: usize, elsewhere: Vec<Emulation>) -> Self {
        Self { elsewhere, meeting: Meeting::new(ranks) }
    }

    /// The rank of this thread.
    pub(crate) fn rank(self: &Arc<Self>, comm: Rc<dyn Communicator>, device: &Device) -> Rank {
        let recorder = Recorder::measuring();
        let rank = match comm.size() {
            1 => Rank::alone(device),
            _ => Rank::among(Rc::new(Clocked::new(Rc::clone(&comm), &recorder)), device),
        };
        rank.timed_by(Clock { recorder, comm, shared: Arc::clone(self) })
    }
}

/// The clock of one rank of an emulation.
#[derive(Clone)]
pub struct Clock {
    recorder: Recorder<f64>,
    /// What is not timed.
    comm: Rc<dyn Communicator>,
    shared: Arc<Emulated>,
}

impl Clock {
    /// Time begins; all ranks say so.
    pub fn start(&self) {
        self.recorder.take();
    }

    /// The times of all ranks since then, in each of the places elsewhere: on the rank that leads, while all ask.
    ///
    /// # Errors
    /// If a rank was lost.
    pub fn stop(&self) -> Result<Option<Vec<Vec<Times>>>> {
        let Some(logs) = self.shared.meeting.bring(&*self.comm, &self.recorder)? else { return Ok(None) };
        let times = |to: &Emulation| replay(&logs, &to.network, |_, seconds| to.compute * seconds);
        let all = self.shared.elsewhere.iter().map(times).collect::<graphweft_comm::Result<_>>()?;
        self.recorder.take();
        Ok(Some(all))
    }

    /// What everyone's times come to: when the last rank was ready.
    pub fn seconds(times: &[Times]) -> f64 {
        times.iter().map(|t| t.end).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_called_by_its_name_and_computes_as_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slow.toml");
        let wire = "[network]\nbetween = { latency = 1e-5, bandwidth = 1e9 }";
        for (compute, factor) in [("compute = 0.5", 0.5), ("compute = 'probe'", 1.0)] {
            std::fs::write(&path, format!("about = 'x'\n{compute}\n{wire}")).unwrap();
            let found = Emulation::read(&path).unwrap();
            assert_eq!((found.name.as_str(), found.compute), ("slow", factor));
        }
        assert!(Emulation::read(Path::new("not there.toml")).unwrap_err().to_string().contains("not there.toml"));
    }
}
