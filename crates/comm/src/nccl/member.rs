//! What the groups of one rank share: its line to the hub, and NCCL once GPUs have something to say to each other.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaStream};

use super::hub::Hub;
use super::line::Line;
use super::raw::{self, Comm, Id};
use super::rendezvous::Rendezvous;
use crate::error::{Error, Result};
use crate::view::Gpu;

/// How long the others have to hear that the rank with the hub has failed.
const FAREWELL: Duration = Duration::from_millis(300);

/// How long a rank that waits sleeps at most before it looks again.
const NAP: Duration = Duration::from_micros(200);

/// NCCL between the GPUs of all ranks.
pub(super) struct Connection {
    pub(super) nccl: raw::Nccl,
    pub(super) comm: Comm,
    pub(super) device: usize,
    /// For what moves.
    pub(super) stream: Arc<CudaStream>,
}

/// A rank.
pub(super) struct Member {
    pub(super) line: Line,
    /// Rank 0's, where ranks are processes. After the line, which ends there.
    hub: Option<Hub>,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) deadline: Duration,
    pub(super) step: Cell<u64>,
    /// How many messages were asked for of each rank so far.
    expected: RefCell<Vec<u64>>,
    connection: OnceCell<Connection>,
    /// NCCL was aborted and must not be called any more.
    aborted: Cell<bool>,
}

impl Member {
    /// Meets the others, at the hub that this rank brings or at another's.
    pub(super) fn start(at: &Rendezvous, hub: Option<Hub>, deadline: Duration) -> Result<Self> {
        let line = Line::call(at, Instant::now() + deadline)?;
        let (rank, size) = (at.rank, at.ranks);
        let (step, aborted) = (Cell::new(0), Cell::new(false));
        let expected = RefCell::new(vec![0; size]);
        Ok(Self { line, hub, rank, size, deadline, step, expected, connection: OnceCell::new(), aborted })
    }

    /// The number of the next message of rank `from` that nobody has asked for: exchanges are waited for in any order,
    /// and get what was meant for them.
    pub(super) fn expect(&self, from: usize) -> u64 {
        let mut expected = self.expected.borrow_mut();
        let number = expected.get(from).copied().unwrap_or(0);
        if let Some(next) = expected.get_mut(from) {
            *next += 1;
        }
        number
    }

    fn lost_error(&self, op: &'static str, rank: usize) -> Error {
        Error::RankLost { rank, op, step: self.step.get() }
    }

    /// The error of an operation, if a rank was lost.
    pub(super) fn lost(&self, op: &'static str) -> Option<Error> {
        self.line.lost().map(|rank| self.lost_error(op, rank))
    }

    /// Rank `rank` is lost: whatever GPUs still wait for is given up.
    pub(super) fn lose(&self, op: &'static str, rank: usize) -> Error {
        self.abort();
        self.lost_error(op, rank)
    }

    /// `suspect` has not come in time.
    pub(super) fn late(&self, op: &'static str, suspect: usize) -> Error {
        let lost = self.line.complain(suspect);
        self.lose(op, lost)
    }

    /// NCCL has failed, which it does where a rank was lost: whoever knows which says so soon.
    pub(super) fn broken(&self, op: &'static str, problem: Error) -> Error {
        let end = Instant::now() + Duration::from_secs(1).min(self.deadline);
        while Instant::now() < end {
            if let Some(lost) = self.line.lost() {
                return self.lose(op, lost);
            }
            std::thread::sleep(NAP);
        }
        self.abort();
        problem
    }

    /// Never, but for an error: NCCL tells of some in the background.
    pub(super) fn is_broken(&self) -> Result<bool> {
        if let Some(Connection { nccl, comm, .. }) = self.connection.get().filter(|_| !self.aborted.get()) {
            // SAFETY: the communicator exists.
            unsafe { nccl.is_ready(*comm) }?;
        }
        Ok(false)
    }

    fn abort(&self) {
        if let Some(Connection { nccl, comm, .. }) = self.connection.get()
            && !self.aborted.replace(true)
        {
            // SAFETY: it exists, and whoever wants to use it looks at `aborted` first.
            unsafe { nccl.abort(*comm) };
        }
    }

    /// NCCL for memory of `gpu`. The first exchange between GPUs connects them.
    pub(super) fn connect(&self, op: &'static str, gpu: Gpu) -> Result<&Connection> {
        if self.aborted.get() {
            return Err(Error::Library { library: "NCCL", problem: "it was aborted".into() });
        }
        if let Some(known) = self.connection.get() {
            if known.device == gpu.device {
                return Ok(known);
            }
            let problem = format!("rank {} is on GPU {}, not {}", self.rank, known.device, gpu.device);
            return Err(Error::Argument { op, problem });
        }
        let nccl = raw::Nccl::load()?;
        let id = self.agree_on_id(op, &nccl)?;
        let problem = |e: cudarc::driver::DriverError| Error::Library { library: "CUDA", problem: e.to_string() };
        let context = CudaContext::new(gpu.device).map_err(problem)?;
        let stream = context.new_stream().map_err(problem)?;
        // SAFETY: the context was just bound to this thread.
        let comm = unsafe { nccl.init(id, self.rank, self.size) }?;
        let connection = self.connection.get_or_init(|| Connection { nccl, comm, device: gpu.device, stream });
        self.until_ready(op, connection)?;
        Ok(connection)
    }

    /// Rank 0 makes an id and tells all others.
    fn agree_on_id(&self, op: &'static str, nccl: &raw::Nccl) -> Result<Id> {
        if self.rank == 0 {
            let id = nccl.unique_id()?;
            (1..self.size).for_each(|rank| self.line.send(rank, &id.0));
            return Ok(id);
        }
        let bytes = self.hear(op, 0, self.expect(0), Instant::now() + self.deadline)?;
        let wrong = || Error::Mismatch { step: self.step.get(), problem: "rank 0 says something else".into() };
        Ok(Id(bytes.try_into().map_err(|_| wrong())?))
    }

    /// What rank `from` wrote next.
    pub(super) fn hear(&self, op: &'static str, from: usize, number: u64, end: Instant) -> Result<Vec<u8>> {
        match self.line.receive(from, number, end) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(self.late(op, from)),
            Err(lost) => Err(self.lose(op, lost)),
        }
    }

    /// Waits until NCCL has come to the end of a call.
    pub(super) fn until_ready(&self, op: &'static str, connection: &Connection) -> Result<()> {
        let suspect = if self.rank == 0 { self.size - 1 } else { 0 };
        // SAFETY: the communicator exists: it is not aborted before the end of this call.
        self.until(op, suspect, || unsafe { connection.nccl.is_ready(connection.comm) })
    }

    /// Looks again and again whether something is done, with a deadline and an eye on lost ranks.
    pub(super) fn until(&self, op: &'static str, suspect: usize, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        loop {
            match done() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(e) => return Err(self.broken(op, e)),
            }
            let waited = start.elapsed();
            // Most waits are short; those that are not leave the core to others.
            if waited < NAP {
                std::thread::yield_now();
                continue;
            }
            if let Some(lost) = self.line.lost() {
                return Err(self.lose(op, lost));
            }
            if waited >= self.deadline {
                return Err(self.late(op, suspect));
            }
            std::thread::sleep(NAP.min(waited / 8));
        }
    }

    /// This rank fails: the others are told, and have a moment to hear it.
    pub(super) fn fail(&self) {
        self.line.fail(self.rank);
        self.abort();
        if let Some(hub) = &self.hub {
            hub.close(Instant::now() + FAREWELL);
        }
    }

    /// Ends in peace; whoever has the hub goes last.
    pub(super) fn finish(&self) {
        self.line.leave();
        if let Some(hub) = &self.hub {
            hub.close(Instant::now() + self.deadline);
        }
        if let Some(Connection { nccl, comm, .. }) = self.connection.get()
            && !self.aborted.replace(true)
        {
            // SAFETY: it exists, nothing is under way, and nobody uses it afterwards.
            unsafe { nccl.destroy(*comm) };
        }
    }
}
