//! How many ranks a verb runs on: the same flags everywhere.

use graphweft::{Model, Run};

use crate::shortcuts::Flags;

/// All strategies, for a help text: those that compute the same as one rank, then the others.
fn strategies() -> String {
    let exact = Run::exact_strategies();
    let names = Run::strategies().into_iter().map(|(name, _)| name);
    let approximate: Vec<&str> = names.filter(|name| !exact.contains(name)).collect();
    format!("How they share it: auto, {}; approximate: {}", exact.join(", "), approximate.join(", "))
}

#[derive(clap::Args)]
pub(crate) struct Ranks {
    /// Ranks that share the work [default: 1, or all processes of the launcher]
    #[arg(long, value_name = "P")]
    ranks: Option<u32>,

    #[arg(long, value_name = "NAME", help = strategies())]
    strategy: Option<String>,

    /// What they are: threads of this process, processes that mpirun started (mpi), or ranks with a GPU each that NCCL
    /// connects (nccl): processes of torchrun, mpirun or srun; without these, threads, as many as --ranks says
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
}

/// The same flags where auto may choose among strategies for training.
#[derive(clap::Args)]
pub(crate) struct Spread {
    #[command(flatten)]
    ranks: Ranks,

    /// Let auto choose what does not compute quite the same too: pipelines, and isolated, which learns from pieces of
    /// the graph
    #[arg(long)]
    allow_approximate: bool,

    /// How rows travel in training under halo, ring and gather: exact, or approximate: bf16, f8, int8, int4, int2, int1
    /// or columns:R
    #[arg(long, value_name = "CODEC")]
    wire: Option<String>,
}

impl Spread {
    /// Adds what was given to the settings.
    pub(crate) fn set(&self, flags: &mut Flags) {
        flags.set("parallel.allow_approximate", self.allow_approximate.then_some(true));
        flags.set("wire.codec", self.wire.as_deref());
        flags.set("parallel.ranks", self.ranks.ranks);
        flags.set("parallel.strategy", self.ranks.strategy.as_deref());
        flags.set("parallel.comm", self.ranks.comm.as_deref());
    }
}

impl Ranks {
    /// A trained model on the ranks that were given.
    pub(crate) fn apply(&self, mut model: Model) -> Model {
        if let Some(ranks) = self.ranks {
            model = model.ranks(ranks.into());
        }
        if let Some(strategy) = &self.strategy {
            model = model.strategy(strategy);
        }
        if let Some(comm) = &self.comm {
            model = model.comm(comm);
        }
        model
    }
}
