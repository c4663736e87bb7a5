//! Locks of the threads communicator. `tests/shuttle.rs` compiles its core with shuttle's instead and tries their
//! schedules.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
