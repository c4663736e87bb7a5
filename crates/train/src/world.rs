//! Who the ranks of a run are: this thread alone, threads of this process, or processes that `mpirun` started.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use graphweft_comm::{Fault, Faulty, threads};
use graphweft_tensor::Device;

use crate::config::{CommName, ParallelConfig};
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::rank::Rank;

/// The ranks, as this process sees them.
pub struct World(Kind);

enum Kind {
    Alone,
    Threads { options: threads::Options, faults: Arc<[Fault]> },
    #[cfg(feature = "mpi")]
    Mpi(Rc<dyn graphweft_comm::Communicator>),
}

impl World {
    /// One rank.
    pub fn alone() -> Self {
        Self(Kind::Alone)
    }

    /// The ranks that `config` asks for. Threads share the threads of the current rayon pool, at least one each.
    ///
    /// # Errors
    /// If this build or this machine cannot have them.
    pub fn new(config: &ParallelConfig) -> Result<Self> {
        let deadline = Duration::from_secs(config.deadline);
        match config.comm {
            CommName::Threads => {
                let ranks = config.ranks.unwrap_or(1) as usize;
                let threads = (rayon::current_num_threads() / ranks).max(1);
                Ok(Self(if ranks == 1 {
                    Kind::Alone
                } else {
                    let options = threads::Options { ranks, threads, deadline };
                    Kind::Threads { options, faults: Arc::new([]) }
                }))
            }
            CommName::Mpi => Self::mpi(config, deadline),
        }
    }

    #[cfg(not(feature = "mpi"))]
    fn mpi(_: &ParallelConfig, _: Duration) -> Result<Self> {
        let remedy = "build with `cargo build --release --features mpi` (it needs an MPI library and libclang), or leave \
                      it out: ranks are then threads of one process";
        Err(Error::setting("parallel.comm", "this build has no MPI", remedy))
    }

    /// The same with things that go wrong, on ranks that are threads: for tests.
    pub fn with_faults(mut self, wrong: &[Fault]) -> Self {
        if let Kind::Threads { faults, .. } = &mut self.0 {
            *faults = wrong.into();
        }
        self
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        match &self.0 {
            Kind::Alone => 1,
            Kind::Threads { options, .. } => options.ranks,
            #[cfg(feature = "mpi")]
            Kind::Mpi(comm) => comm.size(),
        }
    }

    /// Whether this process has the rank that writes and speaks for all.
    pub fn leads(&self) -> bool {
        match &self.0 {
            Kind::Alone | Kind::Threads { .. } => true,
            #[cfg(feature = "mpi")]
            Kind::Mpi(comm) => comm.rank() == 0,
        }
    }

    /// What the process that leads has decided: it brings a result, the others nothing.
    ///
    /// # Errors
    /// Its error, where it leads; [`Error::Refused`] elsewhere.
    pub(crate) fn share(&self, own: Option<Result<Decision>>) -> Result<Decision> {
        #[cfg(feature = "mpi")]
        if let Kind::Mpi(comm) = &self.0 {
            return share(&**comm, own);
        }
        own.unwrap_or(Err(Error::Refused))
    }

    /// Threads that each rank computes with.
    pub fn threads(&self) -> usize {
        match &self.0 {
            Kind::Threads { options, .. } => options.threads,
            _ => rayon::current_num_threads(),
        }
    }

    /// Runs `body` on every rank of this process and gives the result of the first of them.
    ///
    /// # Errors
    /// The failure that came first. What all ranks agree on ([`Error::is_agreed`]) takes no other rank down.
    pub fn run<T, F>(&self, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Rank) -> Result<T> + Send + Sync + 'static,
    {
        match &self.0 {
            Kind::Alone => body(&Rank::alone(&Device::cpu())),
            Kind::Threads { options, faults } => {
                let faults = Arc::clone(faults);
                let all = threads::launch(*options, move |comm| -> Result<Result<T>> {
                    let comm = if faults.is_empty() { comm } else { Rc::new(Faulty::new(comm, &faults, 0)) };
                    match body(&Rank::among(comm, &Device::cpu())) {
                        Err(e) if !e.is_agreed() => Err(e),
                        agreed => Ok(agreed),
                    }
                })?;
                let none = graphweft_comm::Error::Argument { op: "threads", problem: "there is no rank".into() };
                all.into_iter().next().unwrap_or(Err(none.into()))
            }
            #[cfg(feature = "mpi")]
            Kind::Mpi(comm) => body(&Rank::among(Rc::clone(comm), &Device::cpu())),
        }
    }
}

/// No bytes stand for a refusal.
#[cfg(feature = "mpi")]
fn share(comm: &dyn graphweft_comm::Communicator, own: Option<Result<Decision>>) -> Result<Decision> {
    let bytes = match &own {
        Some(Ok(decision)) => decision.encode()?,
        _ => Vec::new(),
    };
    let label = graphweft_comm::Label { op: "setup", traffic: graphweft_comm::Traffic::Setup, layer: 0 };
    let bytes = graphweft_comm::broadcast(comm, label, bytes)?;
    match own {
        Some(own) => own,
        None if bytes.is_empty() => Err(Error::Refused),
        None => Decision::decode(&bytes),
    }
}
