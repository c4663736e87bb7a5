//! Where the ranks of a run meet.

use super::secret::Secret;
use crate::error::Result;
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
    /// Whether some ranks are known to be on other machines.
    pub elsewhere: bool,
    /// What all ranks know and nobody else does. Without one, rank 0 makes one, which only processes of the same user
    /// on the same machine find.
    pub secret: Option<Secret>,
}

impl Rendezvous {
    /// As a launcher and the environment tell it.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the environment has a secret of no use.
    pub fn of(told: &Launcher) -> Result<Self> {
        Ok(Self {
            rank: told.rank,
            ranks: told.ranks,
            host: told.address.clone(),
            port: told.port,
            elsewhere: told.local_ranks.is_some_and(|near| near < told.ranks),
            secret: Secret::of_this_process()?,
        })
    }

    /// Of a rank that is a thread, for which rank 0's process listens at `port`; 0 for any that is free.
    pub(super) fn near(rank: usize, ranks: usize, port: u16, secret: &Secret) -> Self {
        Self { rank, ranks, host: "127.0.0.1".into(), port, elsewhere: false, secret: Some(secret.clone()) }
    }
}
