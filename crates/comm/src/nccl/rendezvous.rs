//! Where the ranks of a run meet.

use crate::launcher::Launcher;

/// Who this process is among the ranks, and where rank 0 listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// This rank.
    pub rank: usize,
    /// All ranks.
    pub ranks: usize,
    /// A name or an address of rank 0's machine.
    pub host: String,
    /// A port of it that is free.
    pub port: u16,
}

impl From<&Launcher> for Rendezvous {
    fn from(told: &Launcher) -> Self {
        Self { rank: told.rank, ranks: told.ranks, host: told.address.clone(), port: told.port }
    }
}
