//! The planner: how to spread the work of training, chosen from this graph and this hardware.
//!
//! It does not calculate what a strategy would take; it *rehearses* it. The code that trains runs on a device that
//! computes nothing ([`graphweft_tensor::dry`]), over a communicator whose clock is logical. Memory is counted by the
//! same ledger, messages are those that would be sent; what remains to be modelled is how long a kernel takes, and that
//! is here:
//!
//! * [`profile`]: what is known of a machine, from a file or measured by a [`calibration`] (and [kept](cache));
//! * [`kernels`]: rates of kernels, and the amounts of work that they are multiplied with;
//! * [`candidates`], [`search`](mod@search): what there is to choose from, and which is the fastest that fits;
//! * [`explain`]: the choice in a sentence and in JSON;
//! * [`simulate`]: the same for graphs that are only described.
//!
//! Who rehearses is not known here: whatever can [`Rehearse`](search::Rehearse).

pub mod cache;
pub mod calibration;
pub mod candidates;
mod error;
pub mod explain;
mod fit;
pub mod kernels;
pub mod profile;
pub mod search;
pub mod simulate;

pub use candidates::Candidate;
pub use error::{Error, Result, kind_of_computation};
pub use profile::Profile;
pub use search::{Found, search};
