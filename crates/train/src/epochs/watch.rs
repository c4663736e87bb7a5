//! How far the ranks of this process are with something long, for whoever watches.
//!
//! Ranks are threads that outlive no call, but what watches belongs to the caller: ranks count, and a thread beside
//! them tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use graphweft_base::progress::{Progress, Unit};

/// Between looks.
const PAUSE: Duration = Duration::from_millis(100);

/// What is counted.
#[derive(Default)]
pub(crate) struct Watch {
    total: AtomicU64,
    done: AtomicU64,
    over: AtomicBool,
}

impl Watch {
    /// So much is to be done.
    pub(crate) fn begin(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// So much more was done.
    pub(crate) fn add(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
    }

    /// Runs `body`, and tells `progress` of what it counts as `phase`.
    pub(crate) fn tell<T>(progress: &dyn Progress, phase: &str, body: impl FnOnce(Arc<Self>) -> T) -> T {
        let watch = Arc::new(Self::default());
        std::thread::scope(|scope| {
            scope.spawn(|| watch.follow(progress, phase));
            // Also where it panics.
            let _over = Over(&watch);
            body(Arc::clone(&watch))
        })
    }

    fn follow(&self, progress: &dyn Progress, name: &str) {
        let (mut phase, mut told) = (None, 0);
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            let total = self.total.load(Ordering::Relaxed);
            if total > 0 {
                let phase = phase.get_or_insert_with(|| progress.start(name, total, Unit::Items));
                let done = self.done.load(Ordering::Relaxed);
                phase.add(done - told);
                told = done;
            }
        }
    }
}

/// Ends the telling.
struct Over<'a>(&'a Watch);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}
