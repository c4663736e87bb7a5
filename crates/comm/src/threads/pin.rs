//! Cores for ranks.

use std::sync::Arc;

/// The cores that the threads of all ranks are pinned to, one each; empty if they go where the system puts them.
#[derive(Clone)]
pub(super) struct Cores(Arc<[usize]>);

impl Cores {
    /// Wherever the system puts them.
    pub(super) fn any() -> Self {
        Self(Arc::new([]))
    }

    /// One core for each thread of several ranks, if this process may use so many: threads that share cores must be
    /// free to move, and one rank alone has nobody to be kept apart from.
    pub(super) fn for_ranks(ranks: usize, threads: usize) -> Self {
        let wanted = ranks.saturating_mul(threads.max(1));
        match allowed() {
            cores if ranks > 1 && cores.len() >= wanted => Self(cores.into()),
            _ => Self::any(),
        }
    }

    /// Pins the calling thread to the `k`-th core. A system that refuses runs it anywhere: only speed depends on it.
    pub(super) fn pin(&self, k: usize) {
        if let Some(core) = self.0.get(k) {
            pin(*core);
        }
    }
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(target_os = "linux")]
fn pin(core: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

/// Lets the calling thread run on every core that the process may use. One that a rank has started is pinned as that
/// rank is.
#[cfg(target_os = "linux")]
pub fn unpin() {
    use rustix::thread::{sched_getaffinity, sched_setaffinity};
    // The process's number is that of its main thread, which is never pinned.
    if let Ok(set) = sched_getaffinity(Some(rustix::process::getpid())) {
        let _ = sched_setaffinity(None, &set);
    }
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn pin(_: usize) {}

/// Nothing is pinned here.
#[cfg(not(target_os = "linux"))]
pub fn unpin() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_pinned_only_if_there_is_a_core_for_each_thread() {
        let cores = allowed();
        assert!(Cores::for_ranks(cores.len() + 1, 1).0.is_empty());
        assert!(Cores::for_ranks(2, cores.len()).0.is_empty());
        assert!(Cores::for_ranks(1, 1).0.is_empty());
        let (last, all) = (cores.len() - 1, cores.clone());
        let pinned = std::thread::spawn(move || {
            Cores(cores.into()).pin(last);
            let inherited = std::thread::spawn(|| {
                let before = allowed();
                unpin();
                (before, allowed())
            });
            (allowed(), inherited.join().unwrap())
        });
        let own = vec![all[last]];
        assert_eq!(pinned.join().unwrap(), (own.clone(), (own, all)));
    }
}
