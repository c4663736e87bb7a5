//! How ranks talk.
//!
//! Everything goes through one trait, [`Communicator`], which knows messages between ranks and nothing of graphs. What
//! it moves are [`View`]s of memory, on the host or on a GPU (or, in a rehearsal, nowhere). Collectives are made of
//! messages in a fixed order, so that sums have the same bits on every rank, every time, and on every communicator:
//!
//! * [`threads`]: ranks in this process; nothing to install.
//! * [`mpi`]: ranks as processes, started by `mpirun` or `srun`; the library is loaded at run time.
//! * `nccl` (feature `cuda`): ranks with a GPU each, as processes or as threads of one.
//!
//! Around any of them, in any order:
//!
//! * [`Metered`] counts what is sent to other ranks, by [`Label`].
//! * [`Clocked`] notes what a rank does, for the times that it would take on another [`Network`].
//! * [`Checked`] tells ranks that make different calls so, instead of letting them hang.
//! * [`Faulty`] lets things go wrong on purpose.
//!
//! Every wait has a deadline and every call a [`Result`]. A rank that dies, panics, fails or hangs becomes
//! [`Error::RankLost`] on all others, with the rank that is to blame, not the one that happened to be waited for.
//!
//! A rank sends to the next one, counted and checked:
//!
//! ```
//! use std::rc::Rc;
//! use std::time::Duration;
//! use graphweft_comm::{Checked, Communicator, Error, Label, Message, Metered, Traffic, Type, View, threads};
//!
//! let options = threads::Options { ranks: 3, threads: 1, deadline: Duration::from_secs(10) };
//! let sent = threads::run(options, |comm| {
//!     let metered = Metered::new(Rc::new(Checked::new(comm)));
//!     let account = metered.account();
//!     let (rank, size) = (metered.rank(), metered.size());
//!     let (own, mut got) = ([rank as f32; 4], [0.0f32; 4]);
//!     let send = Message { peer: (rank + 1) % size, view: View::host(&own, Type::F32) };
//!     let receive = Message { peer: (rank + size - 1) % size, view: View::host_mut(&mut got, Type::F32) };
//!     let label = Label { op: "shift", traffic: Traffic::Rows, layer: 0 };
//!     // SAFETY: both arrays outlive the exchange and are left alone meanwhile.
//!     let exchange = unsafe { metered.post(label, &[send], &[receive]) }?;
//!     // … compute what needs no neighbour …
//!     exchange.wait()?;
//!     assert_eq!(got, [((rank + size - 1) % size) as f32; 4]);
//!     Ok::<_, Error>(account.snapshot().total(|label| label.traffic == Traffic::Rows).bytes)
//! })?;
//! assert_eq!(sent, [16, 16, 16]);
//! # Ok::<(), Error>(())
//! ```
#![warn(missing_docs)]

mod add;
mod bytes;
mod checked;
mod clocked;
mod collective;
mod communicator;
mod error;
mod faulty;
#[cfg(feature = "cuda")]
mod gpu;
mod group;
mod launcher;
mod metered;
mod moving;
pub mod mpi;
#[cfg(feature = "cuda")]
pub mod nccl;
mod process;
mod scratch;
mod sync;
pub mod threads;
mod view;

pub use bytes::{broadcast, gather};
pub use checked::Checked;
pub use clocked::{Clocked, Event, Log, Meeting, Network, Recorder, Times, Transfer, Wire, cpu_time, replay};
pub use collective::Sum;
pub use communicator::{Communicator, Label, Message, Pending, Traffic};
pub use error::{Error, Result};
pub use faulty::{Fault, Faulty};
pub use launcher::{Launcher, Starter};
pub use metered::{Account, Count, Counts, Exchange, Metered};
pub use view::{Gpu, Place, Type, View};
