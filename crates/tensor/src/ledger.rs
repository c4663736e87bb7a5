//! Memory by purpose, to the byte.
//!
//! Every device has a ledger, also one that computes nothing: what a rehearsal counts is what a run takes, and what a
//! run that is out of memory holds can be told by purpose.

use std::cell::Cell;
use std::fmt;

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// Master copies of parameters.
    Parameters,
    /// Gradients of parameters.
    Gradients,
    /// State of the optimizer.
    Optimizer,
    /// Values on the tape and gradients that flow through it.
    Activations,
    /// The graph's structure: CSR and transpose.
    Graph,
    /// Rows received from or on their way to other ranks.
    Exchange,
    /// Scratch of a single kernel call.
    Workspace,
}

impl Tag {
    /// All of them, in the order of [`Usage`]'s rows.
    pub const ALL: [Self; 7] = [
        Self::Parameters,
        Self::Gradients,
        Self::Optimizer,
        Self::Activations,
        Self::Graph,
        Self::Exchange,
        Self::Workspace,
    ];

    /// The name used in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::Optimizer => "optimizer",
            Self::Activations => "activations",
            Self::Graph => "graph",
            Self::Exchange => "exchange",
            Self::Workspace => "workspace",
        }
    }
}

/// Bytes by tag at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage([u64; Tag::ALL.len()]);

impl Usage {
    /// Bytes by tag, e.g. of another rank.
    pub fn new(of: impl Fn(Tag) -> u64) -> Self {
        Self(Tag::ALL.map(of))
    }

    /// Bytes of one purpose.
    pub fn of(&self, tag: Tag) -> u64 {
        self.0[tag as usize]
    }

    /// Bytes of all purposes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tag in Tag::ALL.into_iter().filter(|t| self.of(*t) > 0) {
            writeln!(f, "  {:12} {:>16} bytes", tag.name(), self.of(tag))?;
        }
        write!(f, "  {:12} {:>16} bytes", "total", self.total())
    }
}

/// Counts what a device holds now, and what it held when it held most.
#[derive(Debug, Default)]
pub struct Ledger {
    now: Cell<Usage>,
    peak: Cell<Usage>,
    /// All that was ever added.
    #[cfg(test)]
    requested: Cell<Usage>,
}

impl Ledger {
    pub(crate) fn add(&self, tag: Tag, bytes: u64) {
        let mut now = self.now.get();
        now.0[tag as usize] += bytes;
        self.now.set(now);
        #[cfg(test)]
        {
            let mut requested = self.requested.get();
            requested.0[tag as usize] += bytes;
            self.requested.set(requested);
        }
        if now.total() > self.peak.get().total() {
            self.peak.set(now);
        }
    }

    pub(crate) fn remove(&self, tag: Tag, bytes: u64) {
        let mut now = self.now.get();
        now.0[tag as usize] -= bytes;
        self.now.set(now);
    }

    #[cfg(test)]
    pub(crate) fn requested(&self) -> Usage {
        self.requested.get()
    }

    /// What is held now.
    pub fn now(&self) -> Usage {
        self.now.get()
    }

    /// What was held at the moment when the total was highest.
    pub fn peak(&self) -> Usage {
        self.peak.get()
    }

    /// Starts a new search for the peak from here.
    pub fn reset_peak(&self) {
        self.peak.set(self.now.get());
    }

    /// The peak within `work`, which counts for the peak of all as well.
    pub(crate) fn peak_within<T>(&self, work: impl FnOnce() -> T) -> (Usage, T) {
        let before = self.peak.replace(self.now.get());
        let done = work();
        let peak = self.peak.get();
        if before.total() > peak.total() {
            self.peak.set(before);
        }
        (peak, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_a_part_does_not_hide_that_of_all() {
        let ledger = Ledger::default();
        let blip = |bytes| {
            ledger.add(Tag::Activations, bytes);
            ledger.remove(Tag::Activations, bytes);
        };
        ledger.add(Tag::Graph, 10);
        blip(100);
        assert_eq!(ledger.peak_within(|| blip(50)).0.total(), 60);
        assert_eq!(ledger.peak().total(), 110);
        assert_eq!(ledger.peak_within(|| blip(200)).0.total(), 210);
        assert_eq!(ledger.peak().total(), 210);
    }
}
