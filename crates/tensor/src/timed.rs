//! A backend that times every kernel of another one: what a planner learns the speed of a device from.
//!
//! Kernels are called in an order that depends on the program alone. So the times of a program, in the order of calls,
//! stand beside what the same program reports on a dry device, call for call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::adjacency::Direction;
use crate::backend::{Backend, Block, Memory};
use crate::device::Device;
use crate::dry::Work;
use crate::error::Result;
use crate::matrix::{Address, Matrix};

/// One call of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The kernel.
    pub op: &'static str,
    /// How long it took, until the device was done.
    pub seconds: f64,
}

/// The calls of a device that is timed, first to last.
#[derive(Clone, Default)]
pub struct Timings(Rc<RefCell<Vec<Timing>>>);

impl Timings {
    /// The calls since the last time that this was asked for.
    pub fn take(&self) -> Vec<Timing> {
        self.0.take()
    }
}

/// The time since it was first asked for: a clock for kernels that run on several threads, or on a device of their own.
pub fn wall_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

pub(crate) struct Timed {
    pub(crate) inner: Box<dyn Backend>,
    clock: fn() -> Duration,
    timings: Timings,
    /// Whether a call is under way: what a kernel of the inner backend asks this one for is a part of that kernel.
    busy: Cell<bool>,
}

impl Device {
    /// A device run by `backend`, and the time of every call of its kernels by `clock`, which counts from any moment.
    pub fn timed(backend: Box<dyn Backend>, clock: fn() -> Duration) -> (Self, Timings) {
        let timings = Timings::default();
        let timed = Timed { inner: backend, clock, timings: timings.clone(), busy: Cell::new(false) };
        (Self::with_backend(Box::new(timed)), timings)
    }
}

impl Timed {
    /// Calls a kernel, and notes how long it takes until the device is done.
    pub(crate) fn time<T>(&self, op: &'static str, call: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.busy.replace(true) {
            return call();
        }
        let start = (self.clock)();
        let done = call().and_then(|done| self.inner.wait().map(|()| done));
        self.busy.set(false);
        let done = done?;
        let seconds = (self.clock)().saturating_sub(start).as_secs_f64();
        self.timings.0.borrow_mut().push(Timing { op, seconds });
        Ok(done)
    }
}

impl Memory for Timed {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn allocate(&self, bytes: usize) -> Result<Option<Block>> {
        self.inner.allocate(bytes)
    }

    fn upload(&self, to: &mut Matrix, bytes: &[u8]) -> Result<()> {
        self.time(Work::UPLOAD, || self.inner.upload(to, bytes))
    }

    fn download(&self, from: &Matrix, bytes: &mut [u8]) -> Result<()> {
        self.time(Work::DOWNLOAD, || self.inner.download(from, bytes))
    }

    fn zero(&self, m: &mut Matrix) -> Result<()> {
        self.time("zero", || self.inner.zero(m))
    }

    fn convert(&self, to: &mut Matrix, from: &Matrix) -> Result<()> {
        self.time("convert", || self.inner.convert(to, from))
    }

    fn copy_part(&self, from: &Matrix, start: usize, to: &mut Matrix, at: usize, count: usize) -> Result<()> {
        self.time("copy_part", || self.inner.copy_part(from, start, to, at, count))
    }

    fn add(&self, to: &mut Matrix, x: &Matrix) -> Result<()> {
        self.time("add", || self.inner.add(to, x))
    }

    fn address(&self, m: &Matrix) -> Result<Address> {
        self.inner.address(m)
    }

    fn wait(&self) -> Result<()> {
        self.inner.wait()
    }

    fn bring(&self, device: &Device, direction: &Direction) -> Result<()> {
        self.inner.bring(device, direction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Cpu, Isa};
    use crate::error::Error;

    #[test]
    fn what_a_kernel_asks_for_is_a_part_of_it() {
        let timings = Timings::default();
        let inner = Box::new(Cpu::with_isa(Isa::Portable));
        let timed = Timed { inner, clock: wall_time, timings: timings.clone(), busy: Cell::new(false) };
        timed.time("outer", || timed.time("inner", || Ok(()))).unwrap();
        let fails = || Err::<(), _>(Error::Argument { op: "fails", problem: String::new() });
        timed.time("fails", fails).unwrap_err();
        timed.time("next", || Ok(())).unwrap();
        let ops: Vec<&str> = timings.take().iter().map(|t| t.op).collect();
        assert_eq!(ops, ["outer", "next"]);
    }
}
