//! Things that go wrong, on purpose: for tests of everything above.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::communicator::{Communicator, Label, Message, Pending, of_inner};
use crate::error::Result;

/// What goes wrong. Operations are the exchanges that a rank posts, in all its groups together, from 0; ranks are those
/// of the communicator that was made faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every exchange of every rank starts late by up to this much. Nothing may come of it.
    Delay(Duration),
    /// From operation `at` on, nothing of what `from` sends reaches `to`.
    Drop {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// Its first operation.
        at: u64,
    },
    /// A rank panics.
    Panic {
        /// Which.
        rank: usize,
        /// At which operation.
        at: u64,
    },
    /// The process of a rank is killed, as by the system when memory is short.
    Kill {
        /// Which.
        rank: usize,
        /// At which operation.
        at: u64,
    },
    /// A rank does not go on for some time.
    Hang {
        /// Which.
        rank: usize,
        /// At which operation.
        at: u64,
        /// How long.
        time: Duration,
    },
}

/// What the groups of a rank share.
struct Fate {
    faults: Vec<Fault>,
    /// In the communicator that was made faulty.
    rank: usize,
    next: Cell<u64>,
    random: RefCell<u64>,
}

impl Fate {
    /// Splitmix64: enough for delays.
    fn random(&self) -> u64 {
        let mut state = self.random.borrow_mut();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A communicator with faults.
pub struct Faulty {
    inner: Rc<dyn Communicator>,
    fate: Rc<Fate>,
    /// Ranks of this group in the communicator that was made faulty.
    members: Vec<usize>,
}

impl Faulty {
    /// Lets `faults` happen to `inner`, the same ones every time for a seed.
    pub fn new(inner: Rc<dyn Communicator>, faults: &[Fault], seed: u64) -> Self {
        let (rank, members) = (inner.rank(), (0..inner.size()).collect());
        let random = RefCell::new(seed ^ (rank as u64).wrapping_mul(0xd134_2543_de82_ef95));
        Self { inner, fate: Rc::new(Fate { faults: faults.to_vec(), rank, next: Cell::new(0), random }), members }
    }
}

impl Communicator for Faulty {
    of_inner!(rank, size, set_step, added);

    unsafe fn post(&self, label: Label, sends: &[Message], receives: &[Message]) -> Result<Box<dyn Pending>> {
        let (me, now) = (self.fate.rank, self.fate.next.get());
        self.fate.next.set(now + 1);
        let mut sends = sends.to_vec();
        for fault in &self.fate.faults {
            match *fault {
                Fault::Delay(most) => {
                    let part = self.fate.random() as f64 / u64::MAX as f64;
                    std::thread::sleep(most.mul_f64(part));
                }
                Fault::Drop { from, to, at } if from == me && now >= at => {
                    sends.retain(|m| self.members.get(m.peer) != Some(&to));
                }
                Fault::Panic { rank, at } if (rank, at) == (me, now) => {
                    // Without the message of a real one.
                    std::panic::resume_unwind(Box::new(format!("rank {rank} was to panic")));
                }
                Fault::Kill { rank, at } if (rank, at) == (me, now) => kill(),
                Fault::Hang { rank, at, time } if (rank, at) == (me, now) => std::thread::sleep(time),
                Fault::Drop { .. } | Fault::Panic { .. } | Fault::Kill { .. } | Fault::Hang { .. } => {}
            }
        }
        // SAFETY: as promised by the caller.
        unsafe { self.inner.post(label, &sends, receives) }
    }

    fn split(&self, members: &[usize]) -> Result<Rc<dyn Communicator>> {
        let inner = self.inner.split(members)?;
        let members = members.iter().filter_map(|m| self.members.get(*m).copied()).collect();
        Ok(Rc::new(Self { inner, fate: Rc::clone(&self.fate), members }))
    }
}

/// Ends this process at once: no destructor runs and nobody is told.
fn kill() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort();
}
