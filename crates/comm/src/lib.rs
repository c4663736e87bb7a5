//! How ranks talk.
//!
//! Everything goes through one trait, [`Communicator`], which knows messages between ranks and nothing of graphs. What it moves
//! are [`View`]s of memory, on the host or on a GPU. Collectives are made of messages in a fixed order, so that sums have the
//! same bits on every rank and every time.
//!
//! * [`threads`]: ranks in this process; nothing to install.
//! * [`Metered`]: counts what another communicator sends.
#![warn(missing_docs)]

mod add;
mod bytes;
mod checked;
mod collective;
mod communicator;
mod error;
mod faulty;
mod launcher;
mod metered;
#[cfg(feature = "mpi")]
pub mod mpi;
mod sync;
pub mod threads;
mod view;

pub use bytes::{broadcast, gather};
pub use checked::Checked;
pub use collective::Sum;
pub use communicator::{Communicator, Label, Message, Pending, Traffic};
pub use error::{Error, Result};
pub use faulty::{Fault, Faulty};
pub use launcher::Launcher;
pub use metered::{Account, Count, Counts, Metered};
pub use view::{Place, Type, View};
