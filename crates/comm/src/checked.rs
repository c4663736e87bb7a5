//! A debug mode: ranks that do not make the same calls are told so instead of hanging.

use std::cell::Cell;
use std::rc::Rc;

use crate::communicator::{Communicator, Label, Message, Pending, Traffic, of_inner};
use crate::error::{Error, Result};
use crate::view::{Type, View};

/// Numbers in a note.
const NUMBERS: usize = 8;
/// Bytes of an operation's name in it.
const NAME: usize = 40;
/// All its bytes.
const NOTE: usize = NUMBERS * 8 + NAME;

/// Checks that all ranks of a group make the same calls in the same order, and that each expects what the others send.
/// Before every exchange each rank writes to every other which call this is and what it sends and expects; what differs
/// is reported as
/// [`Error::Mismatch`] with both sides.
///
/// It costs a message to each rank per exchange, which a [`Metered`](crate::Metered) around this does not see; one
/// inside does.
pub struct Checked {
    inner: Rc<dyn Communicator>,
    calls: Cell<u64>,
    step: Rc<Cell<u64>>,
}

impl Checked {
    /// Checks what goes through `inner`.
    pub fn new(inner: Rc<dyn Communicator>) -> Self {
        Self { inner, calls: Cell::new(0), step: Rc::default() }
    }
}

impl Communicator for Checked {
    of_inner!(rank, size, added);

    fn set_step(&self, step: u64) {
        self.step.set(step);
        self.inner.set_step(step);
    }

    unsafe fn post(&self, label: Label, sends: &[Message], receives: &[Message]) -> Result<Box<dyn Pending>> {
        let (rank, size) = (self.rank(), self.size());
        let call = self.calls.get();
        self.calls.set(call + 1);
        let note = |peer: usize| Note {
            call,
            label: label.into(),
            sends: Flow::of(sends, peer),
            expects: Flow::of(receives, peer),
        };
        let ours: Vec<Note> = (0..size).map(note).collect();
        let mut written: Vec<u8> = ours.iter().flat_map(Note::write).collect();
        let mut read = vec![0u8; size * NOTE];
        let (out, into) = (View::host_mut(&mut written, Type::Bytes), View::host_mut(&mut read, Type::Bytes));
        let messages = |all: View| -> Vec<Message> {
            let peers = (0..size).filter(|p| *p != rank);
            peers.map(|peer| Message { peer, view: all.part(peer * NOTE, NOTE) }).collect()
        };
        // SAFETY: the notes are kept with the exchange; the rest as promised by the caller.
        let (notes, payload) = unsafe {
            (self.inner.post(label, &messages(out), &messages(into))?, self.inner.post(label, sends, receives)?)
        };
        Ok(Box::new(CheckedExchange { notes, payload, ours, read, _written: written, rank, step: self.step.get() }))
    }

    fn split(&self, members: &[usize]) -> Result<Rc<dyn Communicator>> {
        let inner = self.inner.split(members)?;
        Ok(Rc::new(Self { inner, calls: Cell::new(0), step: Rc::clone(&self.step) }))
    }
}

struct CheckedExchange {
    // Before the memory that it uses.
    notes: Box<dyn Pending>,
    payload: Box<dyn Pending>,
    /// What this rank wrote to each, and what each wrote.
    ours: Vec<Note>,
    read: Vec<u8>,
    _written: Vec<u8>,
    rank: usize,
    step: u64,
}

impl Pending for CheckedExchange {
    fn wait(self: Box<Self>) -> Result<()> {
        let Self { notes, payload, ours, read, rank, step, .. } = *self;
        notes.wait()?;
        for (peer, (ours, theirs)) in ours.iter().zip(read.chunks_exact(NOTE)).enumerate() {
            if peer == rank {
                continue;
            }
            let theirs = Note::read(theirs);
            let same = (ours.call, &ours.label) == (theirs.call, &theirs.label);
            if !same || ours.expects != theirs.sends || ours.sends != theirs.expects {
                let problem = format!("rank {rank} is in {} and rank {peer} in {}", ours.tell(peer), theirs.tell(rank));
                return Err(Error::Mismatch { step, problem });
            }
        }
        payload.wait()
    }
}

/// A label that came from elsewhere.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    op: String,
    traffic: u8,
    layer: u32,
}

impl From<Label> for Name {
    fn from(label: Label) -> Self {
        let mut end = label.op.len().min(NAME);
        while !label.op.is_char_boundary(end) {
            end -= 1;
        }
        let traffic = match label.traffic {
            Traffic::Rows => 0,
            Traffic::Gradients => 1,
            Traffic::Moments => 2,
            Traffic::Global => 3,
            Traffic::Metrics => 4,
            Traffic::Setup => 5,
            Traffic::Edges => 6,
        };
        Self { op: label.op[..end].to_owned(), traffic, layer: label.layer }
    }
}

/// Messages between two ranks in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    messages: u64,
    bytes: u64,
    /// Of the single lengths, in order.
    hash: u64,
}

impl Flow {
    fn of(messages: &[Message], peer: usize) -> Self {
        let mut flow = Self { messages: 0, bytes: 0, hash: 0xcbf2_9ce4_8422_2325 };
        for message in messages.iter().filter(|m| m.peer == peer) {
            let bytes = message.view.bytes as u64;
            flow.messages += 1;
            flow.bytes += bytes;
            flow.hash = (flow.hash ^ bytes).wrapping_mul(0x0000_0100_0000_01b3);
        }
        flow
    }
}

/// What a rank tells another of an exchange.
#[derive(Debug)]
struct Note {
    call: u64,
    label: Name,
    sends: Flow,
    expects: Flow,
}

impl Note {
    fn write(&self) -> [u8; NOTE] {
        let Self { call, label, sends, expects } = self;
        let kind = u64::from(label.layer) << 8 | u64::from(label.traffic);
        let mut bytes = [0; NOTE];
        let (numbers, name) = bytes.split_at_mut(NUMBERS * 8);
        let flows = [sends.messages, sends.bytes, sends.hash, expects.messages, expects.bytes, expects.hash];
        for (place, x) in numbers.chunks_exact_mut(8).zip([*call, kind].into_iter().chain(flows)) {
            place.copy_from_slice(&x.to_le_bytes());
        }
        name[..label.op.len()].copy_from_slice(label.op.as_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Self {
        let (numbers, name) = bytes.split_at(NUMBERS * 8);
        let mut x = [0; NUMBERS];
        for (x, bytes) in x.iter_mut().zip(numbers.as_chunks().0) {
            *x = u64::from_le_bytes(*bytes);
        }
        let [call, kind, messages, bytes, hash, ..] = x;
        let sends = Flow { messages, bytes, hash };
        let [.., messages, bytes, hash] = x;
        let expects = Flow { messages, bytes, hash };
        let op = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        Self { call, label: Name { op, traffic: kind as u8, layer: (kind >> 8) as u32 }, sends, expects }
    }

    /// For people, with `peer` as the other side.
    fn tell(&self, peer: usize) -> String {
        let Self { call, label, sends, expects } = self;
        format!(
            "{} of layer {} (call {call}: {} bytes in {} messages to rank {peer}, {} bytes in {} from it)",
            label.op, label.layer, sends.bytes, sends.messages, expects.bytes, expects.messages
        )
    }
}
