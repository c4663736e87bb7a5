//! How kernels are spread over threads.
//!
//! Rayon is compiled anew for every closure that it gets, some ten functions each time; with one closure per kernel,
//! type and instruction set that was a third of this crate's code. Here the closures are behind pointers: one more
//! indirect call per task, which is thousands of elements.

use rayon::prelude::*;

/// Runs `f` for every number below `count`.
pub(super) fn each(count: usize, f: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(f);
}

/// The same for few long tasks: none waits behind another that a thread has taken with it.
pub(super) fn each_apart(count: usize, f: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().with_max_len(1).for_each(f);
}

/// The same with something of its own, made by `make`, for every thread's share.
pub(super) fn each_apart_with<A>(count: usize, make: &(dyn Fn() -> A + Sync), f: &(dyn Fn(&mut A, usize) + Sync)) {
    (0..count).into_par_iter().with_max_len(1).for_each_init(make, f);
}

/// Runs `f` for every number below `count` with something of its own, made by `make`, for every thread's share.
pub(super) fn each_with<A>(count: usize, make: &(dyn Fn() -> A + Sync), f: &(dyn Fn(&mut A, usize) + Sync)) {
    (0..count).into_par_iter().for_each_init(make, f);
}

/// What `f` returns for every number below `count`, in order.
pub(super) fn map<R: Send>(count: usize, f: &(dyn Fn(usize) -> R + Sync)) -> Vec<R> {
    (0..count).into_par_iter().map(f).collect()
}

/// Runs `f` for every chunk of so many elements, with its number.
pub(super) fn each_chunk<T: Send>(of: &mut [T], size: usize, f: &(dyn Fn(usize, &mut [T]) + Sync)) {
    of.par_chunks_mut(size).enumerate().for_each(|(k, chunk)| f(k, chunk));
}

/// The same for few long tasks.
pub(super) fn each_chunk_apart<T: Send>(of: &mut [T], size: usize, f: &(dyn Fn(usize, &mut [T]) + Sync)) {
    of.par_chunks_mut(size).enumerate().with_max_len(1).for_each(|(k, chunk)| f(k, chunk));
}
