//! How long work reports where it is, without knowing who watches.

/// What a progress count means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of a file.
    Bytes,
    /// Nodes, edges, passes: things that are counted.
    Items,
}

/// A watcher of long work: the command line draws bars, tests stay silent.
pub trait Progress: Send + Sync {
    /// A phase begins; dropping what is returned ends it. `total` is 0 where it is not known.
    fn start(&self, phase: &str, total: u64, unit: Unit) -> Box<dyn Phase>;
}

/// Work that is under way.
///
/// ```
/// use graphweft_base::progress::Phase;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// struct Count(AtomicU64);
/// impl Phase for Count {
///     fn add(&self, n: u64) {
///         self.0.fetch_add(n, Ordering::Relaxed);
///     }
/// }
/// let count = Count(AtomicU64::new(0));
/// count.add(7);
/// assert_eq!(count.0.into_inner(), 7);
/// ```
pub trait Phase: Send + Sync {
    /// `n` more units are done. May be called from any thread.
    fn add(&self, n: u64);
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _: &str, _: u64, _: Unit) -> Box<dyn Phase> {
        Box::new(Self)
    }
}

impl Phase for Silent {
    fn add(&self, _: u64) {}
}
