//! Tensors for Graphweft: matrices whose rows are nodes.
//!
//! * [`Matrix`]: a dense matrix in the memory of a [`Device`], counted by [`Tag`] in the device's [`Ledger`];
//! * [`Tape`]: records what is computed, then walks back through it in reverse order;
//! * [`ops`]: one file per operation, forward and backward, written against the trait [`Backend`];
//! * [`optim`]: optimizers over lists of [`Parameter`]s;
//! * [`cpu`]: the kernels of the CPU, dispatched at run time to what the processor has;
//! * [`dry`]: a device that only counts, for rehearsals;
//! * `cuda`: those of NVIDIA GPUs, with the feature of that name. A [`DeviceName`] names either.
//!
//! A rank owns its device, its tape and its parameters: there are no globals and no locks. No operation assumes that a
//! matrix lies in host memory; only kernels of the CPU backend look at slices.

pub mod adjacency;
mod backend;
mod capture;
pub mod codec;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod device_name;
pub mod dry;
mod dtype;
mod error;
pub mod gradcheck;
mod kernels;
mod ledger;
mod matrix;
pub mod ops;
pub mod optim;

mod parameter;
mod pool;
mod random;
mod reduce;
mod tape;
mod timed;

pub use adjacency::Adjacency;
pub use backend::Backend;
pub use capture::Captured;
pub use device::{Charge, Device};
pub use device_name::{DeviceName, Precision};
pub use dry::Work;
pub use dtype::{DType, Element};
pub use error::{Error, Result, room_for};
pub use ledger::{Ledger, Tag, Usage};
pub use matrix::{Address, Matrix, OnGpu};
pub use parameter::Parameter;
pub use random::{Dropout, Ids};
pub use reduce::{Alone, Reduce};
pub use tape::{Backward, Grads, Tape, Var, one_output};
pub use timed::{Timing, Timings, wall_time};
