//! How the work of a run is spread over ranks.
//!
//! * `plan`: what was decided; `planner`: who decides it; `machines`: which ranks share one;
//! * `rehearsal`: what a run would take, without computing; `emulation`: how long it would take elsewhere; `timing`:
//!   how long it takes here.

pub(crate) mod emulation;
mod machines;
pub(crate) mod plan;
pub(crate) mod planner;
pub(crate) mod rehearsal;
mod timing;

pub use emulation::Emulation;
pub use plan::Plan;
pub use planner::{Listener, Planner, PreparedData};
pub use timing::{EpochTiming, TimedEpochs};
