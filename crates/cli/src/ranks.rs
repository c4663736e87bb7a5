//! How many ranks a verb runs on: the same flags everywhere.

use graphweft_graph::Error;
use graphweft_tensor::{Place, Precision};
use graphweft_train::Error as Training;
use graphweft_train::config::{CommName, Draft, ParallelConfig};
use graphweft_train::emulation::Emulation;
use graphweft_train::world::World;

use crate::ui::Ui;

#[derive(clap::Args)]
pub(crate) struct Ranks {
    /// Ranks that share the work [default: 1, or all processes of the launcher]
    #[arg(long, value_name = "P")]
    ranks: Option<u32>,

    /// How they share it: auto, local, gather, halo, heads, ring, grid:2x4; approximate: pipeline, pipeline:4x2, isolated
    #[arg(long, value_name = "NAME")]
    strategy: Option<String>,

    /// What they are: threads of this process, processes that mpirun started (mpi), or ranks with a GPU each that NCCL connects
    /// (nccl): processes of torchrun, mpirun or srun; without these, threads, as many as --ranks says
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
}

/// The same flags where auto may choose among strategies for training.
#[derive(clap::Args)]
pub(crate) struct Spread {
    #[command(flatten)]
    ranks: Ranks,

    /// Let auto choose what does not compute quite the same too: pipelines, and isolated, which learns from pieces of the graph
    #[arg(long)]
    allow_approximate: bool,
}

impl Spread {
    /// Adds what was given to a configuration in the making.
    pub(crate) fn set(&self, draft: &mut Draft) -> anyhow::Result<()> {
        if self.allow_approximate {
            draft.set("parallel", "allow_approximate", true)?;
        }
        self.ranks.set(draft)
    }
}

impl Ranks {
    fn set(&self, draft: &mut Draft) -> anyhow::Result<()> {
        if let Some(ranks) = self.ranks {
            draft.set("parallel", "ranks", i64::from(ranks))?;
        }
        for (key, value) in [("strategy", &self.strategy), ("comm", &self.comm)] {
            if let Some(value) = value {
                draft.set("parallel", key, value.as_str())?;
            }
        }
        Ok(())
    }

    /// The ranks that a trained model is used on: those given, or as many as it was trained on.
    pub(crate) fn apply(&self, stored: &mut ParallelConfig) -> anyhow::Result<()> {
        let mut given = Draft::default();
        self.set(&mut given)?;
        let given = given.finish()?.parallel;
        if self.ranks.is_some() || given.comm != CommName::Threads {
            // A strategy or parts for another number of ranks may not fit these.
            (stored.ranks, stored.strategy, stored.parts) = (given.ranks, given.strategy, None);
        }
        if self.strategy.is_some() {
            stored.strategy = given.strategy;
        }
        stored.comm = given.comm;
        Ok(())
    }
}

/// Runs a verb among the ranks of `config` as if they were elsewhere: each computes with one thread, which is timed.
pub(crate) fn emulate(
    config: &ParallelConfig,
    elsewhere: Vec<Emulation>,
    place: Place,
    ui: &Ui,
    verb: impl FnOnce(World, &Ui) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if place != Place::Cpu {
        let what = format!("an emulation times computing on processors, not on {place}");
        return Err(Error::request(what, "add --device cpu").into());
    }
    check_launcher(config)?;
    verb(World::emulated(config, elsewhere)?, ui)
}

/// Runs a verb among the ranks of `config`, the first of which computes at `place`. Under mpirun their number is that of the processes; `wanted`, if given, must be the
/// same.
pub(crate) fn enter(
    config: &ParallelConfig,
    wanted: Option<u64>,
    (place, precision): (Place, Precision),
    ui: &Ui,
    verb: impl FnOnce(World, &Ui) -> anyhow::Result<()> + Send,
) -> anyhow::Result<()> {
    check_launcher(config)?;
    World::enter(config, |world| {
        let world = world.at(place, precision)?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != world.ranks() as u64) {
            if !world.leads() {
                return Err(Training::Refused.into());
            }
            let what = format!("--ranks is {wanted}, but there are {} processes", world.ranks());
            return Err(Error::request(what, format!("start {wanted} processes, or leave out --ranks")).into());
        }
        let ui = ui.of_rank(world.leads());
        verb(world, &ui)
    })
}

/// Processes that a launcher started and nothing connects would each do all of the work, unaware of the others.
fn check_launcher(config: &ParallelConfig) -> anyhow::Result<()> {
    match launched(|name| std::env::var(name).ok()) {
        Some((launcher, processes)) if processes > 1 && config.comm == CommName::Threads => {
            let what = format!(
                "{launcher} has started {processes} processes, but ranks are threads: each process would do all the work"
            );
            let remedy = "add --comm mpi, or --comm nccl where each has a GPU; or start one process, with --ranks";
            Err(Error::request(what, remedy).into())
        }
        _ => Ok(()),
    }
}

/// What started this process, and how many like it. Slurm's variables say how many tasks a job may have; only those of a step
/// were started.
fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, usize)> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    [
        ("mpirun", "OMPI_COMM_WORLD_SIZE", &["OMPI_COMM_WORLD_RANK"][..]),
        ("torchrun", "WORLD_SIZE", &["LOCAL_RANK"]),
        ("srun", "SLURM_STEP_NUM_TASKS", &["SLURM_PROCID"]),
        ("srun", "SLURM_NTASKS", &["SLURM_PROCID", "SLURM_STEP_ID"]),
        ("mpirun", "PMI_SIZE", &["PMI_RANK"]),
    ]
    .into_iter()
    .find_map(|(name, size, beside)| {
        let beside = beside.iter().all(|other| number(other).is_some());
        number(size).filter(|_| beside).map(|size| (name, size))
    })
}

#[cfg(test)]
mod tests {
    use super::launched;

    #[test]
    fn processes_of_a_launcher_are_counted_by_its_variables() {
        let found = |set: &[(&str, &str)]| {
            launched(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
        };
        assert_eq!(found(&[("OMPI_COMM_WORLD_SIZE", "3"), ("OMPI_COMM_WORLD_RANK", "2")]), Some(("mpirun", 3)));
        assert_eq!(found(&[("PMI_SIZE", "2"), ("PMI_RANK", "0")]), Some(("mpirun", 2)));
        assert_eq!(found(&[("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")]), Some(("torchrun", 4)));
        assert_eq!(found(&[("WORLD_SIZE", "4")]), None);
        // A script of a job may have many tasks, and is one process.
        let job = [("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0"), ("SLURM_STEP_ID", "0")];
        assert_eq!((found(&job[..2]), found(&job)), (None, Some(("srun", 8))));
    }
}
