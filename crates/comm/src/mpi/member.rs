//! What the groups of one rank share: MPI itself, and what is known of the other ranks.
//!
//! Beside the messages of exchanges, ranks that wait talk about who is to blame. A rank whose deadline has passed asks
//! those that it waits for whom they wait for, and so on; whoever waits answers, so the one that does not is lost.
//! Whoever finds a rank lost, or fails itself, tells everyone.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::time::{Duration, Instant};

use super::alive::Process;
use super::library;
use super::raw::{Calls, Comm, Request, Word, failed};
use crate::error::{Error, Result};
use crate::launcher::{Launcher, Starter};
use crate::view::{Type, View};

/// How long ranks have to answer who they wait for; less if the deadline is short.
const INQUEST: Duration = Duration::from_secs(1);

/// How long a failed rank stays, so that all hear of it before the launcher ends them for its exit.
const FAREWELL: Duration = Duration::from_millis(100);

/// Kinds of words, which name ranks and end with [`NOBODY`].
const LOST: u64 = 1;
const ASK: u64 = 2;
const ANSWER: u64 = 3;
const NOBODY: u64 = u64::MAX;

fn word(kind: u64, ranks: &[usize]) -> Word {
    let mut word = [NOBODY; 8];
    word[0] = kind;
    word.iter_mut().skip(1).zip(ranks).for_each(|(place, rank)| *place = *rank as u64);
    word
}

/// A rank of MPI's world.
pub(super) struct Member {
    pub(super) mpi: Box<dyn Calls>,
    /// For exchanges.
    pub(super) data: Comm,
    /// For everything said beside them.
    control: Comm,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) deadline: Duration,
    pub(super) step: Cell<u64>,
    /// How many groups this rank has numbered.
    pub(super) groups: Cell<usize>,
    /// The rank whose loss came first.
    lost: Cell<Option<usize>>,
    /// MPI may still use memory that is gone, or is over: it must not be called any more.
    closed: Cell<bool>,
    processes: RefCell<Vec<Process>>,
    /// Words that MPI still sends. They are boxed because it knows their addresses.
    outbox: RefCell<Vec<(Request, Box<Word>)>>,
    answers: RefCell<Vec<(usize, Word)>>,
}

impl Member {
    /// Starts MPI on this thread, which alone may use it.
    pub(super) fn start(deadline: Duration) -> Result<Self> {
        let (library, mpi) = library::open()?;
        let [rank, size] = mpi.start()?;
        if let Some(told) = Launcher::of_this_process().filter(|told| connects(told.starter) && told.ranks != size) {
            return Err(failed(format!(
                "{} has started {} processes, but {} ({}) knows of {size}: it is not the launcher's own. Let \
                 GRAPHWEFT_MPI name the library that belongs to the launcher, or start the processes with \
                 `graphweft launch` (with srun: --mpi=pmix or --mpi=pmi2)",
                told.starter, told.ranks, library.file, library.version
            )));
        }
        // SAFETY: MPI was started above, by this thread.
        let [data, control] = unsafe { [mpi.duplicate()?, mpi.duplicate()?] };
        Ok(Self {
            mpi,
            data,
            control,
            rank,
            size,
            deadline,
            step: Cell::new(0),
            groups: Cell::new(0),
            lost: Cell::new(None),
            closed: Cell::new(false),
            processes: RefCell::default(),
            outbox: RefCell::default(),
            answers: RefCell::default(),
        })
    }

    /// Where the others are, once they have told.
    pub(super) fn know(&self, processes: Vec<Process>) {
        self.processes.replace(processes);
    }

    /// Whether MPI may not be called any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// From now on nothing of MPI is called: only in its calls does it touch our memory.
    pub(super) fn close(&self) {
        self.closed.set(true);
        // Words on their way stay where they are.
        std::mem::forget(self.outbox.take());
    }

    /// The error of an operation, if a rank was lost.
    pub(super) fn lost(&self, op: &'static str) -> Option<Error> {
        self.lost.get().map(|rank| Error::RankLost { rank, op, step: self.step.get() })
    }

    /// `rank` is lost, unless another was before; everyone is told.
    pub(super) fn lose(&self, op: &'static str, rank: usize) -> Error {
        if self.lost.get().is_none() {
            self.lost.set(Some(rank));
            for peer in (0..self.size).filter(|p| *p != self.rank && *p != rank) {
                // Who cannot be told finds out by itself.
                let _ = self.say(peer, word(LOST, &[rank]));
            }
        }
        Error::RankLost { rank: self.lost.get().unwrap_or(rank), op, step: self.step.get() }
    }

    /// This rank fails: the others are told, and have a moment to hear it.
    pub(super) fn fail(&self) {
        self.lose("the end", self.rank);
        let end = Instant::now() + FAREWELL;
        while !self.is_closed() && Instant::now() < end {
            let _ = self.listen(&[]);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.close();
    }

    /// Ends MPI.
    pub(super) fn finish(&self) -> Result<()> {
        if self.closed.replace(true) {
            return Ok(());
        }
        std::mem::forget(self.outbox.take());
        // SAFETY: MPI is initialised and no request is active.
        unsafe { self.mpi.finish() }
    }

    fn say(&self, peer: usize, word: Word) -> Result<()> {
        if self.is_closed() {
            return Ok(());
        }
        let mut word = Box::new(word);
        let view = View::host_mut(&mut word[..], Type::Bytes);
        // SAFETY: the box is kept until MPI is done with it, or for ever.
        let request = unsafe { self.mpi.send(self.control, view, peer, 0) }?;
        self.outbox.borrow_mut().push((request, word));
        Ok(())
    }

    /// Hears what others say, while this rank waits for `absent`.
    ///
    /// # Errors
    /// Of MPI. That a rank was lost is kept, not returned.
    pub(super) fn listen(&self, absent: &[usize]) -> Result<()> {
        if self.is_closed() {
            return Ok(());
        }
        // SAFETY: MPI is not closed.
        while let Some((from, heard)) = unsafe { self.mpi.next_word(self.control) }? {
            match heard {
                [LOST, rank, ..] => {
                    let _ = self.lost.get().is_none().then(|| self.lost.set(Some(rank as usize)));
                }
                [ASK, ..] => self.say(from, word(ANSWER, absent))?,
                _ => self.answers.borrow_mut().push((from, heard)),
            }
        }
        let mut outbox = self.outbox.borrow_mut();
        let mut requests: Vec<_> = outbox.iter().map(|(request, _)| *request).collect();
        // SAFETY: MPI is not closed; the requests are copied back below.
        let done = unsafe { self.mpi.test_some(&mut requests) }?;
        outbox.iter_mut().zip(requests).for_each(|((request, _), now)| *request = now);
        let mut place = 0;
        outbox.retain(|_| {
            place += 1;
            !done.iter().any(|(at, _)| at + 1 == place)
        });
        Ok(())
    }

    /// A rank of `peers` whose process has ended.
    pub(super) fn dead(&self, peers: &[usize]) -> Option<usize> {
        let processes = self.processes.borrow();
        let this = processes.get(self.rank)?;
        peers.iter().copied().find(|p| processes.get(*p).is_some_and(|process| process.is_dead(*this)))
    }

    /// Finds whom to blame that `absent` do not come.
    pub(super) fn inquest(&self, absent: &[usize]) -> Result<usize> {
        let end = Instant::now() + INQUEST.min(self.deadline / 2);
        self.answers.take();
        let (mut asked, mut answered): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut next = absent.to_vec();
        while Instant::now() < end {
            for peer in std::mem::take(&mut next) {
                if peer != self.rank && !asked.contains(&peer) {
                    asked.push(peer);
                    self.say(peer, word(ASK, &[]))?;
                }
            }
            self.listen(absent)?;
            if let Some(lost) = self.lost.get() {
                return Ok(lost);
            }
            for (from, answer) in self.answers.take() {
                answered.push(from);
                next.extend(answer[1..].iter().filter(|r| **r != NOBODY).map(|r| *r as usize));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let silent = asked.iter().find(|peer| !answered.contains(peer));
        // Where all wait for each other, whom this rank waits for.
        Ok(silent.or(absent.first()).copied().unwrap_or(self.rank))
    }
}

/// Whether a launcher of this kind tells MPI itself who there is.
fn connects(starter: Starter) -> bool {
    matches!(starter, Starter::OpenMpi | Starter::Mpich | Starter::Srun)
}

/// The largest tag that every MPI has.
pub(super) const LAST_TAG: c_int = 32767;
