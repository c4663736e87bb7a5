//! The machine at hand: what it has, and how fast it is.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use graphweft_comm::{Network, Wire, broadcast, threads};
use graphweft_graph::progress::Progress;
use graphweft_parallel::ranks as between;
use graphweft_plan::cache::Machine;
use graphweft_plan::probe::{Measured, Probe};
use graphweft_plan::profile::{Compute, Profile};
use graphweft_tensor::{DType, Place};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::world::{World, launch};

/// Of the memory that is available, on a GPU of all of it, this much may be used: the pool keeps blocks that are idle.
const USABLE: f64 = 0.8;
/// Where nobody talks, as between ranks of one machine would be usual.
const NOBODY: Wire = Wire { latency: 1e-6, bandwidth: 1e10 };
/// The probe takes seconds; a rank that says nothing for so long is lost.
const DEADLINE: Duration = Duration::from_secs(300);

/// What a GPU is called, if that is where ranks compute.
fn gpu_name(place: Place) -> Option<String> {
    match place {
        #[cfg(feature = "cuda")]
        Place::Cuda(index) => Some(graphweft_tensor::cuda::Gpu::all().get(index)?.name.clone()),
        _ => None,
    }
}

/// Bytes that each of `ranks` ranks at `place`, or on the GPUs from there on, may use.
fn memory_here(place: Place, ranks: usize) -> Option<f64> {
    match place {
        Place::Cpu => {
            let text = fs::read_to_string("/proc/meminfo").ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
            let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            let free = of_group(Path::new("/sys/fs/cgroup")).map_or(kib * 1024.0, |group| group.min(kib * 1024.0));
            Some(free * USABLE / ranks.max(1) as f64)
        }
        #[cfg(feature = "cuda")]
        Place::Cuda(index) => {
            let gpus = graphweft_tensor::cuda::Gpu::all();
            // Ranks take the GPUs in turn: those on the first are as many as on any.
            Some(gpus.get(index)?.memory as f64 * USABLE / ranks.max(1).div_ceil(gpus.len()) as f64)
        }
        #[cfg(not(feature = "cuda"))]
        Place::Cuda(_) => None,
    }
}

/// Bytes that a container, or another control group of version 2 below `root`, has left for this process: the least of all groups it is
/// in. What its files take of the page cache comes back when somebody needs it.
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

/// The profile that a plan for the ranks of `world` is made with, in the process that leads if it needs one; nothing elsewhere.
/// All processes ask together.
///
/// # Errors
/// If the profile that is asked for cannot be read, or a rank was lost while probing.
pub fn profile(config: &Config, world: &World, needed: bool, progress: &Arc<dyn Progress>) -> Result<Option<Profile>> {
    profile_of(config, world, (needed, true), progress)
}

/// The same, to choose by: where there is one rank there is nothing to choose, and nothing is timed for it.
pub(super) fn profile_to_choose(
    config: &Config,
    world: &World,
    needed: bool,
    progress: &Arc<dyn Progress>,
) -> Result<Option<Profile>> {
    profile_of(config, world, (needed, world.ranks() > 1), progress)
}

fn profile_of(
    config: &Config,
    world: &World,
    (needed, timed): (bool, bool),
    progress: &Arc<dyn Progress>,
) -> Result<Option<Profile>> {
    let asked = match config.parallel.profile.as_deref().filter(|_| needed) {
        Some(name) => Profile::find(name).map(Some),
        None => Ok(None),
    };
    let lacks = |asked: &Option<Profile>| asked.as_ref().is_none_or(|profile| profile.kernels.is_empty());
    let memory = memory_here(world.place(), world.ranks_here());
    let here = if timed {
        let wanted = needed && asked.as_ref().is_ok_and(lacks);
        probe(world, &[config.compute.dtype.into()], config.parallel.probe_rounds, wanted, progress)?.map(|here| {
            let turns = world.ranks_here() as f64 / probed(world) as f64;
            Profile { memory, kept_cache: here.cache.map(|cache| cache / turns), ..here }
        })
    } else {
        // Memory is known without measuring.
        None
    };
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

fn is_gpu(world: &World) -> bool {
    matches!(world.place(), Place::Cuda(_))
}

/// What is known of a machine without measuring it: its memory.
pub(super) fn unmeasured(world: &World) -> Profile {
    Profile {
        about: String::new(),
        memory: memory_here(world.place(), world.ranks_here()),
        gpu: is_gpu(world),
        compute: Compute::Probe,
        cache: None,
        near_cache: None,
        kept_cache: None,
        network: Network { ranks_per_node: 1, inside: None, between: NOBODY },
        kernels: Vec::new(),
    }
}

/// How fast the ranks of `world` are, in the process that leads if it `wanted` to know: as was measured before, or as is measured
/// now, in so many rounds. All processes ask together.
///
/// # Errors
/// If a rank was lost.
pub fn probe(
    world: &World,
    dtypes: &[DType],
    rounds: u64,
    wanted: bool,
    progress: &Arc<dyn Progress>,
) -> Result<Option<Profile>> {
    let (rounds, ranks) = (rounds as usize, probed(world));
    let machine = Machine {
        place: world.place(),
        ranks,
        // Threads beyond those that are measured change nothing; processes are all asked.
        world: if world.is_one_process() { ranks } else { world.ranks() },
        threads: world.threads_of_rank(),
        comm: world.comm_name().to_string(),
        dtypes: dtypes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        precision: format!("{:?}", world.precision()),
        gpu: gpu_name(world.place()),
    };
    let kept = if wanted { machine.kept() } else { None };
    let wanted = wanted && kept.is_none();
    let measured = match world.is_one_process() {
        true if wanted => Some(on_threads(world, (ranks, rounds), dtypes, progress)?),
        true => None,
        false => among(world, (wanted, rounds), dtypes, progress)?,
    };
    let Some(measured) = measured.filter(|_| wanted) else { return Ok(kept) };
    let between =
        measured.message.map_or(NOBODY, |(latency, byte)| Wire { latency, bandwidth: byte.max(1e-15).recip() });
    let profile = Profile {
        about: format!("measured: {ranks} ranks of {} threads at {}", machine.threads, machine.place),
        memory: memory_here(world.place(), world.ranks_here()),
        gpu: is_gpu(world),
        compute: Compute::Probe,
        cache: Some(measured.caches.last),
        near_cache: Some(measured.caches.near).filter(|near| *near > 0.0),
        kept_cache: None,
        network: Network { ranks_per_node: 1, inside: None, between },
        kernels: measured.kernels,
    };
    machine.keep(&profile)?;
    Ok(Some(profile))
}

/// Ranks that are measured at once: those that are threads beyond the cores of the machine take turns on them.
fn probed(world: &World) -> usize {
    world.ranks_here().clamp(1, std::thread::available_parallelism().map_or(1, usize::from))
}

/// On as many threads as the machine can run at once.
fn on_threads(
    world: &World,
    (ranks, rounds): (usize, usize),
    dtypes: &[DType],
    progress: &Arc<dyn Progress>,
) -> Result<Measured> {
    let (place, precision) = (world.place(), world.precision());
    let probe = Arc::new(Probe::prepare(place, ranks, dtypes)?);
    let (options, watching) =
        (threads::Options { ranks, threads: world.threads_of_rank(), deadline: DEADLINE }, Arc::clone(progress));
    let all = launch(world.comm_name(), options, move |comm| -> Result<Measured> {
        let rank = comm.rank();
        let progress: &dyn Progress = if rank == 0 { &*watching } else { &graphweft_graph::progress::Silent };
        let comm = (comm.size() > 1).then_some(&comm);
        Ok(probe.measure((place.of_rank(rank), precision), comm, rounds, progress)?)
    })?;
    all.into_iter().next().ok_or(Error::Refused)
}

/// Among processes, if the one that leads wants it.
fn among(
    world: &World,
    (wanted, rounds): (bool, usize),
    dtypes: &[DType],
    progress: &Arc<dyn Progress>,
) -> Result<Option<Measured>> {
    let (place, precision) = (world.place(), world.precision());
    let (progress, dtypes) = (Arc::clone(progress), dtypes.to_vec());
    world.run(move |rank| {
        let Some(link) = rank.link() else { return Ok(None) };
        let bytes = if rank.leads() && wanted { vec![1] } else { Vec::new() };
        if broadcast(&**link.comm(), crate::rank::SETUP, bytes).map_err(between)?.is_empty() {
            return Ok(None);
        }
        let probe = Probe::prepare(place, rank.count(), &dtypes)?;
        let place = (place.of_rank(rank.index()), precision);
        Ok(Some(probe.measure(place, Some(link.comm()), rounds, &*progress)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
