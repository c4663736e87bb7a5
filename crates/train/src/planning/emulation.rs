//! How long a run would take elsewhere: real numerics, computing as measured here, messages as on a network that is not
//! here.
//!
//! Each rank is a thread with one thread to compute with. What it computes is the time that the processor gave it,
//! times a factor; when messages arrive follows from the logs of all ranks and a [`Network`]: see
//! [`graphweft_comm::Clocked`]. One run gives the times on any number of networks.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use graphweft_comm::{Clocked, Communicator, Event, Log, Meeting, Network, Recorder, Times, replay};
use graphweft_plan::Profile;
use graphweft_tensor::Device;

use crate::error::Result;
use crate::ranks::rank::Rank;

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

/// What every rank did in an epoch, with the seconds that it computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Epoch(Vec<Log<f64>>);

impl Epoch {
    /// Epochs that went alike as one, in which every stretch of computing takes the least of its times: what disturbs a
    /// rank here, and all others would wait for, only makes it longer, and is not elsewhere.
    pub fn least(epochs: &[Self]) -> Self {
        let mut least = epochs.last().cloned().unwrap_or_default();
        for (rank, log) in least.0.iter_mut().enumerate() {
            let alike = |epoch: &&Self| epoch.0.get(rank).is_some_and(|other| other.len() == log.len());
            let same: Vec<&Self> = epochs.iter().filter(alike).collect();
            for (k, event) in log.iter_mut().enumerate() {
                let Event::Compute(seconds) = event else { continue };
                let times = same.iter().filter_map(|epoch| match epoch.0.get(rank)?.get(k)? {
                    Event::Compute(seconds) => Some(*seconds),
                    _ => None,
                });
                *seconds = times.fold(*seconds, f64::min);
            }
        }
        least
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

    /// What all ranks did since then: on the rank that leads, while all ask.
    ///
    /// # Errors
    /// If a rank was lost.
    pub fn stop(&self) -> Result<Option<Epoch>> {
        Ok(self.shared.meeting.bring(&*self.comm, &self.recorder)?.map(Epoch))
    }

    /// The times of all ranks in each of the places elsewhere.
    ///
    /// # Errors
    /// None for what [`Clock::stop`] gave.
    pub fn times(&self, epoch: &Epoch) -> Result<Vec<Vec<Times>>> {
        let times = |to: &Emulation| replay(&epoch.0, &to.network, |_, seconds| to.compute * seconds);
        Ok(self.shared.elsewhere.iter().map(times).collect::<graphweft_comm::Result<_>>()?)
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
    fn the_least_epoch_has_nothing_that_disturbed_one() {
        let post = || Event::Post { exchange: 0, sends: Vec::new(), receives: Vec::new() };
        let epoch = |a: f64, b: f64| Epoch(vec![vec![Event::Compute(a), post(), Event::Compute(b)]]);
        let all = [epoch(1.0, 90.0), epoch(50.0, 3.0), epoch(2.0, 4.0)];
        assert_eq!(Epoch::least(&all), epoch(1.0, 3.0));
        assert_eq!(Epoch::least(&[]), Epoch::default());
    }

    #[test]
    fn a_profile_is_called_by_its_name_and_computes_as_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slow.toml");
        let wire = "[network]\nbetween = { latency = 1e-5, bandwidth = 1e9 }";
        for (compute, factor) in [("compute = 0.5", 0.5), ("compute = 'calibrated'", 1.0)] {
            std::fs::write(&path, format!("about = 'x'\n{compute}\n{wire}")).unwrap();
            let found = Emulation::read(&path).unwrap();
            assert_eq!((found.name.as_str(), found.compute), ("slow", factor));
        }
        assert!(Emulation::read(Path::new("not there.toml")).unwrap_err().to_string().contains("not there.toml"));
    }
}
