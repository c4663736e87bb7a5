//! Aggregation with vector instructions.
//!
//! A row is cut into panels of up to eight vectors, which stay in registers while a panel goes through all of the row's
//! edges. A panel prefetches the columns that it will read itself, a few edges ahead and across row boundaries, so each
//! cache line comes once. Widths that are not whole vectors need no special code: the last vector ends with the row and
//! overlaps the one before; both compute the same numbers there.

#![allow(unsafe_op_in_unsafe_fn)]

use std::ops::Range;

use super::{NOBODY, Weights};
use crate::adjacency::Portion;
use crate::cpu::neighbours::{AHEAD, FOUR, prefetch};
use crate::cpu::share::Shared;
use crate::cpu::simd::{Avx2, Avx512, Simd, Sink, Stored, Version};
use crate::ops::Write;
use crate::random::IdsView;

/// Runs `$body` for panels that cover a row's vectors; panel `$v` vectors wide, a constant, from vector `$first` on.
macro_rules! panels {
    ($simd:ident, $d:expr, |$first:ident, $v:ident| $body:block) => {{
        let vectors = usize::div_ceil($d, $simd::LANES);
        let mut $first = 0;
        while $first < vectors {
            panels!(@ vectors - $first, $first, $v, $body, 8, 4, 2, 1);
        }
    }};
    (@ $left:expr, $first:ident, $v:ident, $body:block, $($width:literal),*) => {
        match $left {
            $($width.. => {
                const $v: usize = $width;
                $body
                $first += $v;
            })*
            0 => {}
        }
    };
}

/// Where vector `k` of a row begins.
#[inline(always)]
fn column<S: Simd>(d: usize, k: usize) -> usize {
    (k * S::LANES).min(d - S::LANES)
}

/// Prefetches what panels of `vectors` from `first` on will read of the row `AHEAD` edges after `at`.
#[inline(always)]
fn look_ahead<S: Simd, T>(indices: &[u32], at: usize, from: &[T], d: usize, first: usize, vectors: usize) {
    if let Some(&j) = indices.get(at + AHEAD) {
        let start = d * j as usize + column::<S>(d, first);
        prefetch(from.as_ptr().wrapping_add(start), vectors * S::LANES);
    }
}

/// A row that panels are written to.
struct Target<S: Simd, T> {
    d: usize,
    to: *mut T,
    write: Write,
    factor: S::V,
    /// The row's last vector as it was. Where it overlaps the one before, that is overwritten first.
    last: S::V,
}

impl<S: Simd, T: Sink<S>> Target<S, T> {
    #[inline(always)]
    unsafe fn new(row: &mut [T], write: Write, factor: f32) -> Self {
        let (d, to) = (row.len(), row.as_mut_ptr());
        let last = if write == Write::Add { T::load(to.add(d - S::LANES)) } else { S::splat(0.0) };
        Self { d, to, write, factor: S::splat(factor), last }
    }

    /// `to (+)= factor·acc`
    #[inline(always)]
    unsafe fn put<const V: usize>(&self, first: usize, acc: [S::V; V]) {
        for (k, acc) in acc.into_iter().enumerate() {
            let at = column::<S>(self.d, first + k);
            let sum = match self.write {
                Write::Set => S::mul(self.factor, acc),
                Write::Add if at + S::LANES == self.d => S::fma(self.factor, acc, self.last),
                Write::Add => S::fma(self.factor, acc, T::load(self.to.add(at))),
            };
            T::store(self.to.add(at), sum);
        }
    }
}

/// A sum over neighbours.
pub(super) struct Sum<'a, T, O> {
    pub(super) indptr: &'a [u64],
    pub(super) indices: &'a [u32],
    pub(super) d: usize,
    pub(super) x: &'a [T],
    pub(super) weights: Weights<'a, f32>,
    pub(super) out: Shared<'a, O>,
    pub(super) write: Write,
    /// For each piece of a hub its sum, without the row's factor.
    pub(super) partial: Shared<'a, f32>,
}

/// Sums of `V` vectors of columns over `edges`; without `weights`, all are 1.
#[inline(always)]
unsafe fn sum_panel<S: Simd, T: Sink<S>, O: Sink<S>, const V: usize>(
    o: &Sum<'_, T, O>,
    edges: Range<usize>,
    first: usize,
    weights: Option<&Weights<'_, f32>>,
) -> [S::V; V] {
    let d = o.d;
    let mut acc = [S::splat(0.0); V];
    for at in edges {
        look_ahead::<S, T>(o.indices, at, o.x, d, first, V);
        let j = *o.indices.get_unchecked(at) as usize;
        let x = o.x.as_ptr().add(d * j);
        match weights {
            None => {
                for (k, acc) in acc.iter_mut().enumerate() {
                    *acc = S::add(*acc, T::load(x.add(column::<S>(d, first + k))));
                }
            }
            Some(weights) => {
                let weight = S::splat(weights.of_edge(at, j));
                for (k, acc) in acc.iter_mut().enumerate() {
                    *acc = S::fma(weight, T::load(x.add(column::<S>(d, first + k))), *acc);
                }
            }
        }
    }
    acc
}

#[inline(always)]
unsafe fn sum<S: Simd, T: Sink<S>, O: Sink<S>>(o: &Sum<'_, T, O>, portion: &Portion) {
    let d = o.d;
    let weights = if o.weights.is_uniform() { None } else { Some(&o.weights) };
    for row in portion.rows.clone() {
        let edges = portion.edges_of(o.indptr, row);
        if edges.is_empty() && o.write == Write::Add {
            continue;
        }
        match portion.piece {
            Some(piece) => {
                let to = Target::<S, f32>::new(o.partial.part(piece * d..(piece + 1) * d), Write::Set, 1.0);
                panels!(S, d, |first, V| {
                    to.put::<V>(first, sum_panel::<S, T, O, V>(o, edges.clone(), first, weights));
                });
            }
            None => {
                let to = Target::<S, O>::new(o.out.part(row * d..(row + 1) * d), o.write, o.weights.of_row(row));
                panels!(S, d, |first, V| {
                    to.put::<V>(first, sum_panel::<S, T, O, V>(o, edges.clone(), first, weights));
                });
            }
        }
    }
}

/// g_i·x_j of every edge.
pub(super) struct Products<'a, T> {
    pub(super) indptr: &'a [u64],
    pub(super) indices: &'a [u32],
    pub(super) d: usize,
    pub(super) x: &'a [T],
    pub(super) g: &'a [T],
    pub(super) factors: Weights<'a, f32>,
    pub(super) dw: Shared<'a, f32>,
}

#[inline(always)]
unsafe fn products<S: Simd, T: Sink<S>>(o: &Products<'_, T>, portion: &Portion) {
    let d = o.d;
    let vectors = d.div_ceil(S::LANES);
    // g_i vector by vector; what the last one repeats of the one before is made zero.
    let mut g = vec![0f32; vectors * S::LANES];
    let last = (vectors - 1) * S::LANES;
    let repeated = last - column::<S>(d, vectors - 1);
    let dw = o.dw.part(portion.edges.clone());
    for row in portion.rows.clone() {
        for k in 0..vectors {
            let from = T::load(o.g.as_ptr().add(row * d + column::<S>(d, k)));
            S::store(g.as_mut_ptr().add(k * S::LANES), from);
        }
        g[last..last + repeated].fill(0.0);
        let factor = o.factors.of_row(row);
        let edges = portion.edges_of(o.indptr, row);
        let mut at = edges.start;
        while at < edges.end {
            let count = FOUR.min(edges.end - at);
            for e in 0..count {
                look_ahead::<S, T>(o.indices, at + e, o.x, d, 0, vectors);
            }
            let j: [usize; FOUR] = std::array::from_fn(|e| *o.indices.get_unchecked(at + e.min(count - 1)) as usize);
            let mut sums = [S::splat(0.0); FOUR];
            for k in 0..vectors {
                let g = S::load(g.as_ptr().add(k * S::LANES));
                for e in 0..FOUR {
                    sums[e] = S::fma(g, T::load(o.x.as_ptr().add(d * j[e] + column::<S>(d, k))), sums[e]);
                }
            }
            let mut found = [0f32; FOUR];
            S::sum4(sums, found.as_mut_ptr());
            for e in 0..count {
                dw[at + e - portion.edges.start] = found[e] * factor * o.factors.of_edge(at + e, j[e]);
            }
            at += count;
        }
    }
}

/// The maximum over neighbours.
pub(super) struct Max<'a, T> {
    pub(super) indptr: &'a [u64],
    pub(super) indices: &'a [u32],
    pub(super) d: usize,
    pub(super) x: &'a [T],
    pub(super) ids: IdsView<'a>,
    pub(super) out: Shared<'a, T>,
    pub(super) arg: Shared<'a, u32>,
    pub(super) write: Write,
    /// For each piece of a hub: values ‖ ids.
    pub(super) partial: Shared<'a, f32>,
}

#[inline(always)]
unsafe fn max_panel<S: Simd, T: Sink<S>, const V: usize>(
    o: &Max<'_, T>,
    edges: Range<usize>,
    first: usize,
    best: &mut [S::V; V],
    arg: &mut [S::V; V],
) {
    let d = o.d;
    for at in edges {
        look_ahead::<S, T>(o.indices, at, o.x, d, first, V);
        let j = *o.indices.get_unchecked(at) as usize;
        let (x, id) = (o.x.as_ptr().add(d * j), S::splat_bits(o.ids.of(j) as u32));
        for k in 0..V {
            (best[k], arg[k]) = S::larger(T::load(x.add(column::<S>(d, first + k))), id, best[k], arg[k]);
        }
    }
}

#[inline(always)]
unsafe fn max<S: Simd, T: Sink<S>>(o: &Max<'_, T>, portion: &Portion) {
    let d = o.d;
    let (nobody, least, zero) = (S::splat_bits(NOBODY), S::splat(f32::NEG_INFINITY), S::splat(0.0));
    for row in portion.rows.clone() {
        let edges = portion.edges_of(o.indptr, row);
        if edges.is_empty() && o.write == Write::Add {
            continue;
        }
        if let Some(piece) = portion.piece {
            let to = o.partial.part(2 * piece * d..2 * (piece + 1) * d).as_mut_ptr();
            panels!(S, d, |first, V| {
                let (mut best, mut arg) = ([least; V], [nobody; V]);
                max_panel::<S, T, V>(o, edges.clone(), first, &mut best, &mut arg);
                for k in 0..V {
                    let at = column::<S>(d, first + k);
                    S::store(to.add(at), best[k]);
                    S::store(to.add(d + at), arg[k]);
                }
            });
            continue;
        }
        let to = o.out.part(row * d..(row + 1) * d).as_mut_ptr();
        let to_arg = o.arg.part(row * d..(row + 1) * d).as_mut_ptr().cast::<f32>();
        panels!(S, d, |first, V| {
            let (mut best, mut arg) = ([least; V], [nobody; V]);
            if o.write == Write::Add {
                // The last vector may overlap what is stored already; a maximum taken twice stays what it is.
                for k in 0..V {
                    let at = column::<S>(d, first + k);
                    arg[k] = S::load(to_arg.add(at));
                    best[k] = S::if_same(arg[k], nobody, least, T::load(to.add(at)));
                }
            }
            max_panel::<S, T, V>(o, edges.clone(), first, &mut best, &mut arg);
            for k in 0..V {
                let at = column::<S>(d, first + k);
                T::store(to.add(at), S::if_same(arg[k], nobody, zero, best[k]));
                S::store(to_arg.add(at), arg[k]);
            }
        });
    }
}

/// Backward of the maximum, by source.
pub(super) struct MaxBack<'a, T> {
    pub(super) indptr: &'a [u64],
    pub(super) indices: &'a [u32],
    pub(super) d: usize,
    pub(super) g: &'a [T],
    pub(super) arg: &'a [u32],
    pub(super) ids: IdsView<'a>,
    pub(super) dx: Shared<'a, T>,
    pub(super) write: Write,
    /// For each piece of a hub its sum.
    pub(super) partial: Shared<'a, f32>,
}

#[inline(always)]
unsafe fn max_back_panel<S: Simd, T: Sink<S>, const V: usize>(
    o: &MaxBack<'_, T>,
    row: usize,
    edges: Range<usize>,
    first: usize,
) -> [S::V; V] {
    let (d, start) = (o.d, o.indptr[row] as usize);
    let (id, zero) = (S::splat_bits(o.ids.of(row) as u32), S::splat(0.0));
    let mut acc = [zero; V];
    for at in edges {
        look_ahead::<S, T>(o.indices, at, o.g, d, first, V);
        look_ahead::<S, u32>(o.indices, at, o.arg, d, first, V);
        let i = *o.indices.get_unchecked(at);
        // Parallel edges stand side by side and count once.
        if at > start && *o.indices.get_unchecked(at - 1) == i {
            continue;
        }
        let (g, arg) = (o.g.as_ptr().add(d * i as usize), o.arg.as_ptr().add(d * i as usize).cast::<f32>());
        for (k, acc) in acc.iter_mut().enumerate() {
            let at = column::<S>(d, first + k);
            *acc = S::add(*acc, S::if_same(S::load(arg.add(at)), id, T::load(g.add(at)), zero));
        }
    }
    acc
}

#[inline(always)]
unsafe fn max_back<S: Simd, T: Sink<S>>(o: &MaxBack<'_, T>, portion: &Portion) {
    let d = o.d;
    for row in portion.rows.clone() {
        let edges = portion.edges_of(o.indptr, row);
        if edges.is_empty() && o.write == Write::Add {
            continue;
        }
        match portion.piece {
            Some(piece) => {
                let to = Target::<S, f32>::new(o.partial.part(piece * d..(piece + 1) * d), Write::Set, 1.0);
                panels!(S, d, |first, V| {
                    to.put::<V>(first, max_back_panel::<S, T, V>(o, row, edges.clone(), first));
                });
            }
            None => {
                let to = Target::<S, T>::new(o.dx.part(row * d..(row + 1) * d), o.write, 1.0);
                panels!(S, d, |first, V| {
                    to.put::<V>(first, max_back_panel::<S, T, V>(o, row, edges.clone(), first));
                });
            }
        }
    }
}

/// A kernel for the portions over `O`. Safety: the processor has its instructions; no two portions that run at the same
/// time overlap.
type Kernel<O> = unsafe fn(&O, &Portion);

/// One function per instruction set, everything inlines into it and is compiled with its instructions; and the choice
/// between them, `None` where only portable code will do.
macro_rules! versions {
    ($($choice:ident: $kernel:ident($type:ident<$($t:ident),*>);)*) => { $(
        pub(super) fn $choice<'a, $($t: Stored),*>(version: Version) -> Option<Kernel<$type<'a, $($t),*>>> {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            unsafe fn avx512<$($t: Stored),*>(o: &$type<'_, $($t),*>, portion: &Portion) {
                $kernel::<Avx512, $($t),*>(o, portion);
            }
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2<$($t: Stored),*>(o: &$type<'_, $($t),*>, portion: &Portion) {
                $kernel::<Avx2, $($t),*>(o, portion);
            }
            match version {
                Version::Avx512 => Some(avx512::<$($t),*>),
                Version::Avx2 => Some(avx2::<$($t),*>),
                Version::Portable => None,
            }
        }
    )* };
}

versions! {
    sum_for: sum(Sum<T, O>);
    products_for: products(Products<T>);
    max_for: max(Max<T>);
    max_back_for: max_back(MaxBack<T>);
}
