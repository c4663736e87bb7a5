//! What every rank of a process is given once, and nobody keeps: the whole graph, of which each cuts out its part.

use std::sync::{Arc, Mutex, PoisonError};

use graphweft_tensor::Error as Computation;

use crate::error::Result;

/// Something for each of some ranks. Its memory is free again when the last of them has let it go.
pub(crate) struct OncePerRank<T>(Mutex<Option<(Arc<T>, usize)>>);

impl<T> OncePerRank<T> {
    /// For so many ranks.
    pub(crate) fn new(what: T, ranks: usize) -> Self {
        Self(Mutex::new(Some((Arc::new(what), ranks))))
    }

    /// For one of them.
    ///
    /// # Errors
    /// If more ask than were announced.
    pub(crate) fn take(&self) -> Result<Arc<T>> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match left.take() {
            Some((what, ranks)) if ranks > 0 => {
                *left = (ranks > 1).then(|| (Arc::clone(&what), ranks - 1));
                Ok(what)
            }
            _ => Err(Computation::Argument { op: "once", problem: "every rank has had its own".into() }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_let_go_frees_it() {
        let once = OncePerRank::new(vec![1, 2], 2);
        let first = once.take().unwrap();
        let weak = Arc::downgrade(&first);
        drop(first);
        assert!(weak.upgrade().is_some(), "one is still to come");
        drop(once.take().unwrap());
        assert!(weak.upgrade().is_none() && once.take().is_err());
    }
}
