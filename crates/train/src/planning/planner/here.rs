//! The machine at hand: what it has, and how fast it is.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use graphweft_base::progress::Progress;
use graphweft_comm::{Network, Wire, broadcast, threads};
use graphweft_parallel::ranks as between;
use graphweft_plan::cache::Machine;
use graphweft_plan::calibration::{Calibration, Detail, Measured, Measuring};
use graphweft_plan::explain::{self, counted};
use graphweft_plan::profile::{Compute, Profile, Source};
use graphweft_tensor::{DType, DeviceName};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::ranks::world::{World, launch};

/// Of the memory that is available, on a GPU of all of it, this much may be used: the pool keeps blocks that are idle.
const USABLE: f64 = 0.8;
/// Where nobody talks, as between ranks of one machine would be usual.
const NOBODY: Wire = Wire { latency: 1e-6, bandwidth: 1e10 };
/// A machine is measured in full, which takes up to a minute, for a run of more than so many seconds.
const LONG: f64 = 600.0;
/// How far times of a rough profile may be off at least.
const ROUGH: f64 = 0.5;
/// Others disturb a measurement if they use this share of the processors, and something does if steps differ by this
/// share.
const BUSY: f64 = 0.15;
const UNSTEADY: f64 = 0.25;
/// Types that rows are stored in.
const BOTH: [DType; 2] = [DType::F32, DType::Bf16];
/// A calibration takes seconds; a rank that says nothing for so long is lost.
const DEADLINE: Duration = Duration::from_secs(300);

/// What a GPU is called, if that is where ranks compute.
fn gpu_name(place: DeviceName) -> Option<String> {
    match place {
        #[cfg(feature = "cuda")]
        DeviceName::Cuda(index) => Some(graphweft_tensor::cuda::Gpu::all().get(index)?.name.clone()),
        _ => None,
    }
}

/// Bytes that each of `ranks` ranks at `place`, or on the GPUs from there on, may use.
fn memory_here(place: DeviceName, ranks: usize) -> Option<f64> {
    match place {
        DeviceName::Cpu => {
            let text = fs::read_to_string("/proc/meminfo").ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
            let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            let free = of_group(Path::new("/sys/fs/cgroup")).map_or(kib * 1024.0, |group| group.min(kib * 1024.0));
            Some(free * USABLE / ranks.max(1) as f64)
        }
        #[cfg(feature = "cuda")]
        DeviceName::Cuda(index) => {
            let gpus = graphweft_tensor::cuda::Gpu::all();
            // Ranks take the GPUs in turn: those on the first are as many as on any.
            Some(gpus.get(index)?.memory as f64 * USABLE / ranks.max(1).div_ceil(gpus.len()) as f64)
        }
        #[cfg(not(feature = "cuda"))]
        DeviceName::Cuda(_) => None,
    }
}

/// Bytes that a container, or another control group of version 2 below `root`, has left for this process: the least of
/// all groups it is in. What its files take of the page cache comes back when somebody needs it.
fn of_group(root: &Path) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    root.join(own).ancestors().take_while(|path| path.starts_with(root)).filter_map(left_in).reduce(f64::min)
}

fn left_in(group: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    // "max" is no limit.
    let limit: f64 = read("memory.max")?.trim().parse().ok()?;
    let used: f64 = read("memory.current")?.trim().parse().ok()?;
    let file = read("memory.stat")?.lines().find_map(|line| line.strip_prefix("file ")?.parse().ok()).unwrap_or(0.0);
    Some((limit - used + file).max(0.0))
}

/// How well the machine at hand must be known for a plan.
#[derive(Clone, Copy)]
pub(crate) enum Effort<'a> {
    /// As well as it can be: it is measured, unless that was done before.
    Full,
    /// As well as is worth its time for a run that takes as many seconds as this says of a rough profile, if it can
    /// say.
    ForRun(&'a dyn Fn(&Profile) -> Option<f64>),
    /// Nothing depends on times.
    Untimed,
}

/// Who hears of it: of work that goes on, and what there is to say in a line.
#[derive(Clone, Copy)]
pub struct Listener<'a> {
    /// Of work.
    pub progress: &'a Arc<dyn Progress>,
    /// Of lines.
    pub tell: &'a dyn Fn(&str),
}

impl Listener<'_> {
    /// The profile that a plan for the ranks of `world` is made with, in the process that leads if it needs one;
    /// nothing elsewhere. All processes ask together. `seconds` says how long a run takes, by a rough profile, if it
    /// can say.
    ///
    /// The machine at hand is as it was measured before. Else it is timed for some tenths of a second; and in full,
    /// which may take a minute, only for a run of more than ten.
    ///
    /// # Errors
    /// If the profile that is asked for cannot be read, or a rank was lost while calibrating.
    pub fn profile_for_run(
        self,
        config: &Config,
        world: &World,
        seconds: &dyn Fn(&Profile) -> Option<f64>,
    ) -> Result<Option<Profile>> {
        self.profile(config, world, Effort::ForRun(seconds))
    }

    /// The same with this effort.
    pub(crate) fn profile(self, config: &Config, world: &World, effort: Effort<'_>) -> Result<Option<Profile>> {
        profile_as(Role::of(world), config, world, effort, self)
    }

    /// How fast the ranks of `world` are, in the process that leads: measured now, whatever is known, and kept. All
    /// processes ask together.
    ///
    /// # Errors
    /// If a rank was lost.
    pub fn calibrate(self, world: &World, rounds: u64) -> Result<Option<Profile>> {
        let what = Measurement { detail: Detail::Full, dtypes: &BOTH, rounds: rounds as usize };
        measure(world, what, Role::of(world), self)
    }
}

/// What a process does where all of them measure together.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Role {
    /// It wants to know.
    Asks,
    /// It takes part, because others may want to know.
    TakesPart,
}

impl Role {
    pub(super) fn of(world: &World) -> Self {
        if world.leads() { Self::Asks } else { Self::TakesPart }
    }

    /// The same, if it wants to know and does not yet.
    fn unless<T>(self, known: &Option<T>) -> Self {
        if known.is_some() { Self::TakesPart } else { self }
    }

    /// What is known, if it wants to know.
    fn ask<T>(self, known: impl FnOnce() -> Option<T>) -> Option<T> {
        if self == Self::Asks { known() } else { None }
    }
}

/// The same for a process that may know already what it needs.
pub(crate) fn profile_as(
    role: Role,
    config: &Config,
    world: &World,
    effort: Effort<'_>,
    listener: Listener<'_>,
) -> Result<Option<Profile>> {
    let needed = role == Role::Asks;
    let asked = match config.parallel.profile.as_deref().filter(|_| needed) {
        Some(name) => Profile::find(name).map(Some),
        None => Ok(None),
    };
    let lacks = |asked: &Option<Profile>| asked.as_ref().is_none_or(|profile| profile.kernels.is_empty());
    let memory = memory_here(world.place(), world.ranks_here());
    let role = if asked.as_ref().is_ok_and(lacks) { role } else { Role::TakesPart };
    let here = here(config, world, role, effort, listener)?.map(|here| {
        let turns = world.ranks_here() as f64 / calibrated(world) as f64;
        Profile { memory, kept_cache: here.cache.map(|cache| cache / turns), ..here }
    });
    if !needed {
        return Ok(None);
    }
    Ok(Some(match (asked?, here) {
        (Some(asked), Some(here)) => asked.computing_as(&here),
        (Some(asked), None) => {
            let gpu = if asked.kernels.is_empty() { is_gpu(world) } else { asked.gpu };
            Profile { memory: asked.memory.or(memory), gpu, ..asked }
        }
        (None, here) => here.unwrap_or_else(|| unmeasured(world)),
    }))
}

/// The machine at hand, as well as it must be known.
fn here(
    config: &Config,
    world: &World,
    role: Role,
    effort: Effort<'_>,
    listener: Listener<'_>,
) -> Result<Option<Profile>> {
    let dtypes = [config.compute.dtype];
    let in_full =
        Measurement { detail: Detail::Full, dtypes: &dtypes, rounds: config.parallel.calibration_rounds as usize };
    // What somebody asked to be measured counts before what a run measured by itself.
    let full = || machine(world, &BOTH, Detail::Full).kept().or_else(|| machine(world, &dtypes, Detail::Full).kept());
    let seconds = match effort {
        Effort::Untimed => return Ok(None),
        Effort::Full => {
            let kept = role.ask(full);
            return Ok(measure(world, in_full, role.unless(&kept), listener)?.or(kept));
        }
        Effort::ForRun(seconds) => seconds,
    };
    let kept = role.ask(full);
    let role = role.unless(&kept);
    let before = role.ask(|| machine(world, &dtypes, Detail::Rough).kept());
    let roughly = Measurement { detail: Detail::Rough, rounds: 1, ..in_full };
    let rough = measure(world, roughly, role.unless(&before), listener)?.or(before);
    let long = rough.as_ref().and_then(seconds).filter(|seconds| *seconds > LONG);
    if let Some(seconds) = long {
        let minutes = seconds / 60.0;
        (listener.tell)(&format!(
            "measuring this machine first, once, for up to a minute: the run is expected to take {minutes:.0} min"
        ));
    }
    let role = if long.is_some() { Role::Asks } else { Role::TakesPart };
    let measured = measure(world, in_full, role, listener)?;
    if let (Some(rough), None) = (&rough, &measured) {
        (listener.tell)(&format!(
            "planning with a rough profile of this machine, times {}; to measure it: graphweft plan --calibrate --ranks {}",
            explain::within(rough.error()),
            world.ranks()
        ));
    }
    Ok(measured.or(kept).or(rough))
}

fn is_gpu(world: &World) -> bool {
    matches!(world.place(), DeviceName::Cuda(_))
}

/// What is known of a machine without measuring it: its memory.
pub(super) fn unmeasured(world: &World) -> Profile {
    Profile {
        about: String::new(),
        memory: memory_here(world.place(), world.ranks_here()),
        gpu: is_gpu(world),
        compute: Compute::Calibrated,
        source: Source::Given,
        known_error: None,
        cache: None,
        near_cache: None,
        kept_cache: None,
        network: Network { ranks_per_node: 1, inside: None, between: NOBODY },
        kernels: Vec::new(),
    }
}

/// What is measured of a machine.
#[derive(Clone, Copy)]
struct Measurement<'a> {
    detail: Detail,
    dtypes: &'a [DType],
    /// The least time of so many counts.
    rounds: usize,
}

/// What a measurement depends on.
fn machine(world: &World, dtypes: &[DType], detail: Detail) -> Machine {
    let ranks = calibrated(world);
    Machine {
        place: world.place(),
        ranks,
        // Threads beyond those that are measured change nothing; processes are all asked.
        world: if world.is_one_process() { ranks } else { world.ranks() },
        threads: world.threads_of_rank(),
        comm: world.comm_name().to_string(),
        dtypes: dtypes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        precision: format!("{:?}", world.precision()),
        gpu: gpu_name(world.place()),
        detail,
    }
}

fn measure(world: &World, what: Measurement<'_>, role: Role, listener: Listener<'_>) -> Result<Option<Profile>> {
    let (detail, ranks) = (what.detail, calibrated(world));
    let machine = machine(world, what.dtypes, detail);
    let measured = match (world.is_one_process(), role) {
        (true, Role::Asks) => Some(on_threads(world, ranks, what, listener.progress)?),
        (true, Role::TakesPart) => None,
        (false, _) => among(world, role, what, listener.progress)?,
    };
    let Some(measured) = measured.filter(|_| role == Role::Asks) else { return Ok(None) };
    let between =
        measured.message.map_or(NOBODY, |(latency, byte)| Wire { latency, bandwidth: byte.max(1e-15).recip() });
    // Where ranks are processes, the others are not strangers.
    let others = measured.others.filter(|_| world.is_one_process());
    let disturbed = disturbed(&measured, others);
    let (word, source) = match detail {
        Detail::Rough => ("timed roughly", Source::Rough),
        Detail::Full => ("measured", Source::Measured),
    };
    let threads = counted(machine.threads, "thread");
    let meanwhile = disturbed.as_ref().map_or(String::new(), |what| format!(", {what}"));
    let profile = Profile {
        about: format!("{word}: {} of {threads} at {}{meanwhile}", counted(ranks, "rank"), machine.place),
        memory: memory_here(world.place(), world.ranks_here()),
        gpu: is_gpu(world),
        compute: Compute::Calibrated,
        source,
        known_error: Some(error_of(&measured, detail)),
        cache: Some(measured.caches.last),
        near_cache: Some(measured.caches.near).filter(|near| *near > 0.0),
        kept_cache: None,
        network: Network { ranks_per_node: 1, inside: None, between },
        kernels: measured.kernels,
    };
    match (&disturbed, detail) {
        // Next time it may be idle, and it takes no time to ask.
        (Some(_), Detail::Rough) => {}
        _ => machine.keep(&profile)?,
    }
    if let Some(what) = disturbed {
        (listener.tell)(&format!("this machine is busy: it was timed {what}; times may be longer than they need be"));
    }
    Ok(Some(profile))
}

/// How far times may be off: what the rates do not explain, or what the machine does not repeat. A few measurements say
/// nothing of what was not measured.
fn error_of(measured: &Measured, detail: Detail) -> f64 {
    let found = measured.error.max(measured.spread);
    match detail {
        Detail::Rough => found.max(ROUGH),
        Detail::Full => found,
    }
}

/// What disturbed a measurement, if something did: strangers that used so much of the machine, or what is not seen.
fn disturbed(measured: &Measured, others: Option<f64>) -> Option<String> {
    match (others.filter(|others| *others > BUSY), measured.spread > UNSTEADY) {
        (Some(others), _) => Some(format!("while others used {:.0} % of its processors", 100.0 * others)),
        (None, true) => Some(format!("and the same step took up to {:.0} % longer", 100.0 * measured.spread)),
        (None, false) => None,
    }
}

/// Ranks that are measured at once: those that are threads beyond the cores of the machine take turns on them.
fn calibrated(world: &World) -> usize {
    world.ranks_here().clamp(1, std::thread::available_parallelism().map_or(1, usize::from))
}

/// On as many threads as the machine can run at once.
fn on_threads(world: &World, ranks: usize, what: Measurement<'_>, progress: &Arc<dyn Progress>) -> Result<Measured> {
    let (place, precision) = (world.place(), world.precision());
    let calibration = Arc::new(Calibration::prepare(what.detail, place, ranks, what.dtypes)?);
    let rounds = what.rounds;
    let (options, watching) =
        (threads::Options { ranks, threads: world.threads_of_rank(), deadline: DEADLINE }, Arc::clone(progress));
    let all = launch(world.comm_name(), options, move |comm| -> Result<Measured> {
        let rank = comm.rank();
        let progress: &dyn Progress = if rank == 0 { &*watching } else { &graphweft_base::progress::Silent };
        let comm = (comm.size() > 1).then_some(&comm);
        let on = Measuring { device: place.of_rank(rank), precision, sharing: ranks };
        Ok(calibration.measure(on, comm, rounds, progress)?)
    })?;
    all.into_iter().next().ok_or(Error::Refused)
}

/// Among processes, if the one that leads wants it.
fn among(world: &World, role: Role, what: Measurement<'_>, progress: &Arc<dyn Progress>) -> Result<Option<Measured>> {
    let (place, precision, sharing) = (world.place(), world.precision(), world.ranks_here());
    let (progress, dtypes) = (Arc::clone(progress), what.dtypes.to_vec());
    let Measurement { detail, rounds, .. } = what;
    world.run(move |rank| {
        let Some(link) = rank.link() else { return Ok(None) };
        let bytes = if rank.leads() && role == Role::Asks { vec![1] } else { Vec::new() };
        if broadcast(&**link.comm(), crate::ranks::rank::SETUP, bytes).map_err(between)?.is_empty() {
            return Ok(None);
        }
        let calibration = Calibration::prepare(detail, place, rank.count(), &dtypes)?;
        let place = Measuring { device: place.of_rank(rank.index()), precision, sharing };
        Ok(Some(calibration.measure(place, Some(link.comm()), rounds, &*progress)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(spread: f64, others: Option<f64>) -> Measured {
        Measured { kernels: Vec::new(), caches: Default::default(), message: None, error: 0.06, spread, others }
    }

    #[test]
    fn a_busy_machine_is_noticed_and_makes_the_error_larger() {
        assert_eq!(disturbed(&measured(0.03, None), Some(0.02)), None);
        assert!(disturbed(&measured(0.03, None), Some(0.45)).unwrap().contains("others used 45 %"));
        assert_eq!(disturbed(&measured(0.03, Some(0.45)), None), None, "the other ranks are not strangers");
        assert!(disturbed(&measured(0.4, None), None).unwrap().contains("40 % longer"));
        assert_eq!(error_of(&measured(0.03, None), Detail::Full), 0.06);
        assert_eq!(error_of(&measured(0.3, None), Detail::Full), 0.3);
        assert_eq!(error_of(&measured(0.03, None), Detail::Rough), ROUGH);
    }

    #[test]
    fn a_container_has_what_it_may_use_not_what_its_machine_has() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        assert_eq!(left_in(group.path()), None);
        write("memory.max", "max\n");
        write("memory.current", "3000\n");
        write("memory.stat", "anon 1000\nfile 2000\nkernel 5\n");
        assert_eq!(left_in(group.path()), None);
        write("memory.max", "5000\n");
        assert_eq!(left_in(group.path()), Some(4000.0));
    }
}
