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

    /// Let auto choose what does not compute quite the same too: pipelines, and isolated, which learns from pieces of the graph
    #[arg(long)]
    allow_approximate: bool,

    /// What they are: threads of this process, processes that mpirun started (mpi), or processes with a GPU each (nccl)
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
}

impl Ranks {
    /// Adds what was given to a configuration in the making.
    pub(crate) fn set(&self, draft: &mut Draft) -> anyhow::Result<()> {
        if let Some(ranks) = self.ranks {
            draft.set("parallel", "ranks", i64::from(ranks))?;
        }
        if self.allow_approximate {
            draft.set("parallel", "allow_approximate", true)?;
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
    World::enter(config, |world| {
        let world = world.at(place, precision);
        if let Some(wanted) = wanted.filter(|wanted| *wanted != world.ranks() as u64) {
            if !world.leads() {
                return Err(Training::Refused.into());
            }
            let what = format!("{wanted} ranks are asked for, but there are {} processes", world.ranks());
            return Err(Error::request(what, format!("start {wanted} processes, or leave out --ranks")).into());
        }
        let ui = ui.of_rank(world.leads());
        verb(world, &ui)
    })
}
