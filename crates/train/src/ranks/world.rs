//! Who the ranks of a run are: this thread alone, threads of this process, or processes that MPI or NCCL connects.
//! Threads copy from each other, or NCCL moves what is on their GPUs.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use graphweft_comm::{Communicator, Fault, Faulty, Launcher, Starter, cpu_time, threads};
use graphweft_tensor::{Device, DeviceName, Precision, Timings, wall_time};

use crate::config::{CommName, ParallelConfig};
use crate::error::Error;
use crate::planning::emulation::{Emulated, Emulation};
use crate::ranks::rank::Rank;
use crate::ranks::rank::SETUP;
use crate::run::decision::Decision;

type Result<T, E = Error> = std::result::Result<T, E>;

/// The ranks, as this process sees them.
pub struct World {
    kind: Kind,
    /// Where the first computes, and how.
    place: DeviceName,
    precision: Precision,
    emulation: Option<Arc<Emulated>>,
    /// Whether every call of a kernel is timed.
    timing: bool,
}

enum Kind {
    Alone,
    Threads {
        options: threads::Options,
        faults: Arc<[Fault]>,
        /// How they talk: not by MPI.
        comm: CommName,
    },
    /// This process is one of those that something connects.
    Processes {
        comm: Rc<dyn Communicator>,
        name: CommName,
        /// What started it, where that is known.
        launcher: Option<Launcher>,
    },
}

impl World {
    /// One rank.
    pub fn alone() -> Self {
        Self::of(Kind::Alone)
    }

    fn of(kind: Kind) -> Self {
        Self { kind, place: DeviceName::Cpu, precision: Precision::default(), emulation: None, timing: false }
    }

    /// The same ranks, with the first computing at `place` and the others on the next GPUs; on the CPU if nothing is
    /// said.
    ///
    /// # Errors
    /// If NCCL is to connect threads of this process and there are not enough GPUs.
    pub fn at(self, place: DeviceName, precision: Precision) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if let (Kind::Threads { options, comm: CommName::Nccl, .. }, DeviceName::Cuda(_)) = (&self.kind, place) {
            let together = std::env::var(TOGETHER).is_ok_and(|value| value.trim() == "1");
            if !together {
                check_gpus(options.ranks, graphweft_tensor::cuda::Gpu::all().len())?;
            }
        }
        Ok(Self { place, precision, ..self })
    }

    /// The same ranks, each with the time of every call of a kernel: `Rank::kernels`.
    pub fn timing_kernels(self) -> Self {
        Self { timing: true, ..self }
    }

    /// The same where that costs two looks at a clock for each call: on the CPU. A GPU would be waited for every time.
    pub fn timing_kernels_if_cheap(self) -> Self {
        let cheap = self.place == DeviceName::Cpu && self.emulation.is_none();
        if cheap { self.timing_kernels() } else { self }
    }

    /// Whether [that](World::timing_kernels) is so.
    pub fn times_kernels(&self) -> bool {
        self.timing
    }

    /// Where the first rank computes.
    pub fn place(&self) -> DeviceName {
        self.place
    }

    /// How products are computed there.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Ranks as threads, as many as `config` says. They share the threads of the current rayon pool, at least one each.
    pub fn threads(config: &ParallelConfig) -> Self {
        let ranks = config.ranks.unwrap_or(1) as usize;
        if ranks == 1 {
            return Self::alone();
        }
        let (threads, deadline) = (share_of_threads(ranks), Duration::from_secs(config.deadline));
        Self::of_threads(threads::Options { ranks, threads, deadline })
    }

    fn of_threads(options: threads::Options) -> Self {
        Self::of(Kind::Threads { options, faults: Arc::new([]), comm: CommName::Threads })
    }

    /// The same threads with NCCL between their GPUs. One rank has nobody to talk to.
    #[cfg(feature = "cuda")]
    pub fn by_nccl(mut self) -> Self {
        if let Kind::Threads { comm, .. } = &mut self.kind {
            *comm = CommName::Nccl;
        }
        self
    }

    /// Ranks as threads, as many as `config` says, that compute with one thread each, as if they were on other
    /// machines. A machine with two cores can have many of them.
    ///
    /// # Errors
    /// If ranks are no threads, or a launcher has started several processes.
    pub fn emulated(config: &ParallelConfig, elsewhere: Vec<Emulation>) -> Result<Self> {
        if config.comm != CommName::Threads {
            let remedy = "leave it out: ranks of an emulation are threads of one process";
            return Err(Error::setting("parallel.comm", format!("{} cannot be emulated", config.comm), remedy));
        }
        check_alone(Launcher::of_this_process().as_ref())?;
        let ranks = config.ranks.unwrap_or(1) as usize;
        let options = threads::Options { ranks, threads: 1, deadline: Duration::from_secs(config.deadline) };
        Ok(Self { emulation: Some(Arc::new(Emulated::new(ranks, elsewhere))), ..Self::of_threads(options) })
    }

    /// Runs `body` among the ranks that `config` asks for. MPI begins and ends with it, and can do so once in a
    /// process.
    ///
    /// # Errors
    /// Of `body`; if this build cannot have such ranks; or if they are threads, and a launcher has started several
    /// processes.
    pub fn enter<T, E>(config: &ParallelConfig, body: impl FnOnce(Self) -> Result<T, E> + Send) -> Result<T, E>
    where
        T: Send,
        E: From<Error> + From<graphweft_comm::Error> + Send,
    {
        match config.comm {
            CommName::Threads => {
                check_alone(Launcher::of_this_process().as_ref())?;
                body(Self::threads(config))
            }
            CommName::Mpi => Self::enter_mpi(config, body),
            CommName::Nccl => Self::enter_nccl(config, body),
        }
    }

    fn enter_mpi<T, E>(config: &ParallelConfig, body: impl FnOnce(Self) -> Result<T, E> + Send) -> Result<T, E>
    where
        T: Send,
        E: From<Error> + From<graphweft_comm::Error> + Send,
    {
        let deadline = Duration::from_secs(config.deadline);
        let launcher = Launcher::of_this_process();
        let near = launcher.as_ref().map_or(1, |told| told.local_ranks.unwrap_or(told.ranks));
        let options = graphweft_comm::mpi::Options { threads: share_of_threads(near), deadline };
        graphweft_comm::mpi::run(options, |comm| {
            body(Self::of(Kind::Processes { comm, name: CommName::Mpi, launcher }))
        })
    }

    #[cfg(feature = "cuda")]
    fn enter_nccl<T, E>(config: &ParallelConfig, body: impl FnOnce(Self) -> Result<T, E> + Send) -> Result<T, E>
    where
        T: Send,
        E: From<Error> + From<graphweft_comm::Error> + Send,
    {
        use graphweft_comm::nccl::{Options, Rendezvous, run};
        let wrong = |problem: String| {
            let remedy = "start it as torchrun, mpirun or srun do, or say how many GPUs of this machine with --ranks, or \
                          leave it out";
            Error::setting("parallel.comm", problem, remedy)
        };
        let told = Launcher::checked().map_err(|e| wrong(e.to_string()))?;
        // The only process of a launcher, such as a shell within a job, may have ranks as any other.
        let several = |told: &Launcher| told.ranks > 1 || config.ranks.is_none_or(|ranks| ranks == 1);
        let Some(told) = told.filter(several) else {
            if config.ranks.is_some() {
                return body(Self::threads(config).by_nccl());
            }
            let problem = "nothing says which rank this process is: RANK and WORLD_SIZE must be set (and MASTER_ADDR and \
                           MASTER_PORT, where rank 0 listens)";
            return Err(wrong(problem.into()).into());
        };
        let near = told.local_ranks.unwrap_or(told.ranks);
        let deadline = Duration::from_secs(config.deadline);
        let rendezvous = Rendezvous::of(&told).map_err(|e| wrong(e.to_string()))?;
        let options = Options { rendezvous, threads: share_of_threads(near), deadline };
        run(&options, |comm| body(Self::of(Kind::Processes { comm, name: CommName::Nccl, launcher: Some(told) })))
    }

    #[cfg(not(feature = "cuda"))]
    fn enter_nccl<T, E: From<Error>>(_: &ParallelConfig, _: impl FnOnce(Self) -> Result<T, E>) -> Result<T, E> {
        let remedy = "build it with the feature cuda";
        Err(Error::setting("parallel.comm", "this build has no NCCL: it knows no GPUs", remedy).into())
    }

    /// The same with things that go wrong, on ranks that are threads: for tests.
    pub fn with_faults(mut self, wrong: &[Fault]) -> Self {
        if let Kind::Threads { faults, .. } = &mut self.kind {
            *faults = wrong.into();
        }
        self
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        match &self.kind {
            Kind::Alone => 1,
            Kind::Threads { options, .. } => options.ranks,
            Kind::Processes { comm, .. } => comm.size(),
        }
    }

    /// How many of them are in this process.
    pub fn ranks_inside(&self) -> usize {
        match &self.kind {
            Kind::Threads { options, .. } => options.ranks,
            _ => 1,
        }
    }

    /// Whether this process has the rank that writes and speaks for all.
    pub fn leads(&self) -> bool {
        match &self.kind {
            Kind::Alone | Kind::Threads { .. } => true,
            Kind::Processes { comm, .. } => comm.rank() == 0,
        }
    }

    /// What the process that leads has decided: it brings a result, the others nothing.
    ///
    /// # Errors
    /// Its error, where it leads; [`Error::Refused`] elsewhere.
    pub(crate) fn share(&self, own: Option<Result<Decision>>) -> Result<Decision> {
        if let Kind::Processes { comm, .. } = &self.kind {
            return share(&**comm, own);
        }
        own.unwrap_or(Err(Error::Refused))
    }

    /// Threads that each rank computes with.
    pub fn threads_of_rank(&self) -> usize {
        match &self.kind {
            Kind::Threads { options, .. } => options.threads,
            _ => rayon::current_num_threads(),
        }
    }

    /// Ranks that share this machine.
    pub fn ranks_here(&self) -> usize {
        match &self.kind {
            Kind::Alone | Kind::Threads { .. } => self.ranks(),
            Kind::Processes { comm, launcher, .. } => {
                launcher.as_ref().and_then(|told| told.local_ranks).unwrap_or(comm.size())
            }
        }
    }

    /// How they talk.
    pub fn comm_name(&self) -> CommName {
        match &self.kind {
            Kind::Alone => CommName::Threads,
            Kind::Threads { comm, .. } => *comm,
            Kind::Processes { name, .. } => *name,
        }
    }

    /// Whether there is no other process that must do the same as this one.
    pub(crate) fn is_one_process(&self) -> bool {
        matches!(self.kind, Kind::Alone | Kind::Threads { .. })
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
        let (place, precision) = (self.place, self.precision);
        // Ranks of an emulation have one thread, whose time is what counts.
        let clock = self.timing.then_some(if self.emulation.is_some() { cpu_time } else { wall_time });
        let open = move |rank: usize| -> Result<(Device, Option<Timings>)> {
            let place = place.of_rank(rank);
            Ok(match clock {
                None => (place.open(precision)?, None),
                Some(clock) => {
                    let (device, timings) = Device::timed(place.backend(precision)?, clock);
                    (device, Some(timings))
                }
            })
        };
        match &self.kind {
            Kind::Alone => on_worker(|| {
                let (device, kernels) = open(0)?;
                body(&Rank::alone(&device).with_kernels(kernels))
            }),
            Kind::Threads { options, faults, comm } => {
                // Held here: what `body` owns, such as a directory, is given back when this returns, not when the last
                // thread ends.
                let body = Arc::new(body);
                let (weak, faults, emulation) = (Arc::downgrade(&body), Arc::clone(faults), self.emulation.clone());
                let ended =
                    || Error::from(graphweft_comm::Error::Argument { op: "threads", problem: "all is over".into() });
                let all = launch(*comm, *options, move |comm| -> Result<Result<T>> {
                    let body = weak.upgrade().ok_or_else(ended)?;
                    let comm = if faults.is_empty() { comm } else { Rc::new(Faulty::new(comm, &faults, 0)) };
                    let (device, kernels) = open(comm.rank())?;
                    let rank = match &emulation {
                        None => Rank::among(comm, &device),
                        Some(emulation) => emulation.rank(comm, &device),
                    };
                    match body(&rank.with_kernels(kernels)) {
                        Err(e) if !e.is_agreed() => Err(e),
                        agreed => Ok(agreed),
                    }
                })?;
                all.into_iter().next().unwrap_or_else(|| Err(ended()))
            }
            Kind::Processes { comm, launcher, .. } => {
                let here = launcher.as_ref().and_then(|told| told.local_rank);
                let device = open(here.unwrap_or(comm.rank()));
                // The only process of a launcher has nobody to share rows with.
                let rank = |(device, kernels): (Device, _)| match comm.size() {
                    1 => Rank::alone(&device).with_kernels(kernels),
                    _ => Rank::among(Rc::clone(comm), &device).with_kernels(kernels),
                };
                match device.and_then(|opened| body(&rank(opened))) {
                    Err(e) if e.is_agreed() => {
                        // A launcher ends everyone when one process ends with an error: not before all are ready.
                        comm.barrier(SETUP)?;
                        Err(if self.leads() { e } else { Error::Echo(Box::new(e)) })
                    }
                    other => other,
                }
            }
        }
    }
}

/// Runs `body` on a thread of a pool, where the tasks of a kernel begin at once: a thread outside would have to wake
/// one inside for every kernel, and wait. The pool is this rank's own, since threads that load for it use the common
/// one.
fn on_worker<T: Send>(body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if rayon::current_thread_index().is_some() {
        return body();
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(rayon::current_num_threads()).build();
    let failed = |e: rayon::ThreadPoolBuildError| {
        Error::from(graphweft_comm::Error::Library { library: "rayon", problem: e.to_string() })
    };
    pool.map_err(failed)?.install(body)
}

/// Runs `body` on every rank, each a thread of this process, that talk so.
pub(crate) fn launch<T: Send + 'static>(
    comm: CommName,
    options: threads::Options,
    body: impl Fn(Rc<dyn Communicator>) -> Result<T> + Send + Sync + 'static,
) -> Result<Vec<T>> {
    match comm {
        #[cfg(feature = "cuda")]
        CommName::Nccl => graphweft_comm::nccl::launch(options, body),
        _ => threads::launch(options, body),
    }
}

/// Lets NCCL have several ranks of a process on one GPU: 2.32 knows it, 2.28 does not.
#[cfg(feature = "cuda")]
const TOGETHER: &str = "NCCL_MULTI_RANK_GPU_ENABLE";

/// NCCL refuses two ranks of a process on one GPU, in words of its own and when much was done already.
#[cfg(feature = "cuda")]
fn check_gpus(ranks: usize, gpus: usize) -> Result<()> {
    // Where there is none at all, the device says so.
    if gpus == 0 || ranks <= gpus {
        return Ok(());
    }
    let problem = format!("NCCL wants a GPU for each of {ranks} ranks, and this machine has {gpus}");
    let remedy = format!(
        "leave it out: ranks are then threads that copy between GPUs, several on one where they must; or ask for fewer ranks \
         (newer NCCL takes several on one GPU with {TOGETHER}=1)"
    );
    Err(Error::setting("parallel.comm", problem, remedy))
}

/// Processes that a launcher started and nothing connects would each do all of the work, unaware of the others.
fn check_alone(launcher: Option<&Launcher>) -> Result<()> {
    match launcher {
        Some(Launcher { starter, ranks, .. }) if *ranks > 1 && *starter != Starter::Unnamed => {
            let what = format!(
                "{starter} has started {ranks} processes, but ranks are threads: each process would do all the work"
            );
            let remedy = "add --comm mpi, or --comm nccl where each has a GPU; or start one process, with --ranks";
            Err(graphweft_base::Error::request(what, remedy).into())
        }
        _ => Ok(()),
    }
}

/// Threads of one of `ranks` that share those of the current pool.
fn share_of_threads(ranks: usize) -> usize {
    (rayon::current_num_threads() / ranks.max(1)).max(1)
}

/// No bytes stand for a refusal.
fn share(comm: &dyn Communicator, own: Option<Result<Decision>>) -> Result<Decision> {
    let bytes = match &own {
        Some(Ok(decision)) => decision.encode()?,
        _ => Vec::new(),
    };
    let bytes = graphweft_comm::broadcast(comm, SETUP, bytes)?;
    if bytes.is_empty() {
        // Nobody leaves before all have heard it. Why it is refused says more than who was lost meanwhile.
        let heard = comm.barrier(SETUP);
        if !matches!(own, Some(Err(_))) {
            heard?;
        }
    }
    match own {
        Some(own) => own,
        None if bytes.is_empty() => Err(Error::Refused),
        None => Decision::decode(&bytes),
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn nccl_has_a_gpu_for_each_rank_of_a_process() {
        for (ranks, gpus) in [(2, 2), (2, 8), (4, 0)] {
            assert!(check_gpus(ranks, gpus).is_ok(), "{ranks} {gpus}");
        }
        let message = check_gpus(4, 2).unwrap_err().to_string();
        assert!(
            ["parallel.comm", "4 ranks", "has 2", "leave it out"].iter().all(|part| message.contains(part)),
            "{message}"
        );
    }
}
