//! Dot-product attention with vector instructions, four neighbours at a time.
//!
//! Names: h head, e one of the four edges of a block, d width of all heads, w width of one head, t vector within a head.
//!
//! Scores of a block lie as `[h][e]` in the passes by destination: a vector holds whole groups of four, the maximum over a
//! block is two shuffles, and the exponentials of four edges and eight heads are two vectors. In the pass by source, where each
//! edge has statistics of its own, they lie as `[e][h]`, as the statistics do.
//!
//! What costs is fetching rows at random: the rows of neighbours a few edges ahead are prefetched, across row boundaries, since
//! a task's edges are contiguous.

#![allow(unsafe_op_in_unsafe_fn)]

use std::ops::Range;

use super::extras::{BiasGrad, Extras};
use crate::adjacency::Task;
use crate::cpu::neighbours::{AHEAD, FOUR, prefetch, rows};
use crate::cpu::share::Shared;
use crate::cpu::simd::{Avx2, Avx512, Simd, Sink, Source};
use crate::ops::Write;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LN_2: f32 = std::f32::consts::LN_2;

/// Operands as slices.
pub(super) struct Operands<'a, Q, K> {
    pub(super) indptr: &'a [u64],
    pub(super) indices: &'a [u32],
    pub(super) heads: usize,
    pub(super) d: usize,
    pub(super) q: &'a [Q],
    pub(super) kv: &'a [K],
    pub(super) extras: Extras<'a, f32>,
}

impl<Q, K> Operands<'_, Q, K> {
    fn w(&self) -> usize {
        self.d / self.heads
    }

    fn scale(&self) -> f32 {
        1.0 / (self.w() as f32).sqrt()
    }

    fn edges(&self, task: &Task, row: usize) -> Range<usize> {
        task.edges_of(self.indptr, row)
    }
}

/// Whether vectors of `lanes` fit the heads: each head is whole vectors.
pub(super) fn fits(lanes: usize, d: usize, heads: usize) -> bool {
    (d / heads).is_multiple_of(lanes)
}

/// Where forward writes.
pub(super) struct Forward<'a, Q> {
    pub(super) target: Target<'a, Q>,
    /// For each piece of a hub a [`State`]: m, s (per head) and acc.
    pub(super) partial: Shared<'a, f32>,
}

/// What becomes of a row.
pub(super) enum Target<'a, Q> {
    /// It is finished: output and log-sum-exp.
    Finish { out: Shared<'a, Q>, lse: Shared<'a, f32> },
    /// It goes on with the next block: m (in units of log₂), s and acc are carried, `2·heads + d` numbers a row.
    Carry(Shared<'a, f32>),
}

/// `scores[4h + e] = x_h · rows[e]_h` for all heads.
#[inline(always)]
unsafe fn dots<S: Simd, X: Source<S>, T: Source<S>>(
    heads: usize,
    w: usize,
    x: *const X,
    rows: [*const T; FOUR],
    scores: *mut f32,
) {
    for h in 0..heads {
        let mut sums = [S::splat(0.0); FOUR];
        let mut t = h * w;
        while t < (h + 1) * w {
            let x = X::load(x.add(t));
            for e in 0..FOUR {
                sums[e] = S::fma(x, T::load(rows[e].add(t)), sums[e]);
            }
            t += S::LANES;
        }
        S::sum4(sums, scores.add(FOUR * h));
    }
}

/// `acc_h = acc_h · keep[4h] + Σ_e weights[4h + e] · rows[e]_h`; `keep` may be left out.
#[inline(always)]
unsafe fn accumulate<S: Simd, T: Source<S>>(
    heads: usize,
    w: usize,
    weights: *const f32,
    keep: Option<*const f32>,
    rows: [*const T; FOUR],
    acc: *mut f32,
) {
    for h in 0..heads {
        let weight: [S::V; FOUR] = std::array::from_fn(|e| S::splat(*weights.add(FOUR * h + e)));
        let mut t = h * w;
        while t < (h + 1) * w {
            let mut sum = S::load(acc.add(t));
            if let Some(keep) = keep {
                sum = S::mul(sum, S::splat(*keep.add(FOUR * h)));
            }
            for e in 0..FOUR {
                sum = S::fma(weight[e], T::load(rows[e].add(t)), sum);
            }
            S::store(acc.add(t), sum);
            t += S::LANES;
        }
    }
}

/// Adds the biases of a block's edges to the raw scores, which are multiplied by 1/√w later.
#[inline(always)]
unsafe fn add_bias(x: &Extras<'_, f32>, heads: usize, w: usize, at: usize, count: usize, scores: &mut [f32]) {
    let root = (w as f32).sqrt();
    for e in 0..count {
        let edge = x.edge(at + e);
        for h in 0..heads {
            scores[FOUR * h + e] += root * x.bias(edge, h);
        }
    }
}

/// The dropout factors of a block's edges. `other` are their far ends, `row` the near one; `ends(row, other)` is (src, dst).
#[inline(always)]
unsafe fn factors(
    x: &Extras<'_, f32>,
    row: usize,
    other: &[u32],
    ends: impl Fn(usize, usize) -> (usize, usize),
    mask: &mut [f32],
) {
    for (e, &j) in other.iter().enumerate() {
        let (src, dst) = ends(row, j as usize);
        x.factors(src, dst, |h, factor| mask[FOUR * h + e] = factor);
    }
}

/// x ∘ mask.
#[inline(always)]
unsafe fn masked<S: Simd>(x: S::V, mask: Option<*const f32>) -> S::V {
    match mask {
        Some(mask) => S::mul(x, S::load(mask)),
        None => x,
    }
}

#[inline(always)]
unsafe fn forward<S: Simd, Q: Sink<S>, K: Source<S>>(o: &Operands<'_, Q, K>, f: &Forward<'_, Q>, task: &Task) {
    let (heads, d, w) = (o.heads, o.d, o.w());
    let scale = S::splat(o.scale() * LOG2_E);
    // Groups of four lanes per head, padded to whole vectors.
    let lanes = (FOUR * heads).next_multiple_of(S::LANES);
    let mut scratch = vec![0f32; 5 * lanes + d];
    let (m, rest) = scratch.split_at_mut(lanes);
    let (s, rest) = rest.split_at_mut(lanes);
    let (p, rest) = rest.split_at_mut(lanes);
    let (keep, rest) = rest.split_at_mut(lanes);
    let (mask, acc) = rest.split_at_mut(lanes);
    let x = &o.extras;
    let (plain, drops) = (x.is_empty(), x.has_dropout());
    let size = 2 * heads + d;

    for row in task.rows.clone() {
        let edges = o.edges(task, row);
        let q = o.q.as_ptr().add(row * d);
        m.fill(f32::NEG_INFINITY);
        s.fill(0.0);
        acc.fill(0.0);
        if let (Target::Carry(state), None) = (&f.target, task.piece) {
            let state = state.part(row * size..(row + 1) * size);
            for h in 0..heads {
                m[FOUR * h..FOUR * (h + 1)].fill(state[h]);
                s[FOUR * h] = state[heads + h];
            }
            acc.copy_from_slice(&state[2 * heads..]);
        }
        let mut at = edges.start;
        while at < edges.end {
            let count = FOUR.min(edges.end - at);
            for e in 0..count {
                if let Some(&j) = o.indices.get(at + AHEAD + e) {
                    prefetch(o.kv.as_ptr().add(2 * d * j as usize), 2 * d);
                }
            }
            let k = rows(o.kv.as_ptr(), 2 * d, o.indices, at, count);
            let v = k.map(|k| k.add(d));
            dots::<S, Q, K>(heads, w, q, k, p.as_mut_ptr());
            if !plain {
                add_bias(x, heads, w, at, count, p);
                factors(x, row, &o.indices[at..at + count], |i, j| (j, i), mask);
            }
            for h in 0..heads {
                p[FOUR * h + count..FOUR * (h + 1)].fill(f32::NEG_INFINITY);
            }
            let mut same = true;
            for t in (0..lanes).step_by(S::LANES) {
                let score = S::mul(S::load(p.as_ptr().add(t)), scale);
                let old = S::load(m.as_ptr().add(t));
                let new = S::max(old, S::max_in_fours(score));
                let weight = S::exp2(S::sub(score, new));
                if !S::all_equal(old, new) {
                    same = false;
                }
                let shrink = S::exp2(S::sub(old, new));
                S::store(m.as_mut_ptr().add(t), new);
                let kept = masked::<S>(weight, drops.then(|| mask.as_ptr().add(t)));
                S::store(p.as_mut_ptr().add(t), kept);
                S::store(keep.as_mut_ptr().add(t), shrink);
                let sum = S::fma(S::load(s.as_ptr().add(t)), shrink, weight);
                S::store(s.as_mut_ptr().add(t), sum);
            }
            let keep = (!same).then_some(keep.as_ptr());
            accumulate::<S, K>(heads, w, p.as_ptr(), keep, v, acc.as_mut_ptr());
            at += count;
        }
        // Each head's s is spread over its four lanes.
        let total = |h: usize| s[FOUR * h..FOUR * (h + 1)].iter().sum::<f32>();
        let state = match (&f.target, task.piece) {
            (_, Some(piece)) => f.partial.part(piece * size..(piece + 1) * size),
            (Target::Carry(state), None) => state.part(row * size..(row + 1) * size),
            (Target::Finish { out, lse }, None) => {
                let out = out.part(row * d..(row + 1) * d);
                let lse = lse.part(row * heads..(row + 1) * heads);
                for h in 0..heads {
                    let s = total(h);
                    let empty = edges.is_empty();
                    lse[h] = if empty { f32::NEG_INFINITY } else { m[FOUR * h] * LN_2 + s.ln() };
                    let inverse = S::splat(if empty { 0.0 } else { 1.0 / s });
                    for t in (h * w..(h + 1) * w).step_by(S::LANES) {
                        Q::store(out.as_mut_ptr().add(t), S::mul(S::load(acc.as_ptr().add(t)), inverse));
                    }
                }
                continue;
            }
        };
        for h in 0..heads {
            state[h] = m[FOUR * h];
            state[heads + h] = total(h);
        }
        state[2 * heads..].copy_from_slice(acc);
    }
}

/// What backward by destination reads and writes.
pub(super) struct ByDst<'a, Q> {
    pub(super) lse: &'a [f32],
    pub(super) big_d: &'a [f32],
    pub(super) g: &'a [Q],
    pub(super) dq: Shared<'a, Q>,
    pub(super) write: Write,
    pub(super) dbias: BiasGrad<'a, f32>,
    /// For each piece of a hub: dq.
    pub(super) partial: Shared<'a, f32>,
}

#[inline(always)]
unsafe fn by_dst<S: Simd, Q: Sink<S>, K: Source<S>>(
    o: &Operands<'_, Q, K>,
    b: &ByDst<'_, Q>,
    number: usize,
    task: &Task,
) {
    let (heads, d, w) = (o.heads, o.d, o.w());
    let (scale2, scale) = (S::splat(o.scale() * LOG2_E), S::splat(o.scale()));
    let lanes = (FOUR * heads).next_multiple_of(S::LANES);
    let mut scratch = vec![0f32; 5 * lanes + d];
    let (lse, rest) = scratch.split_at_mut(lanes);
    let (big_d, rest) = rest.split_at_mut(lanes);
    let (p, rest) = rest.split_at_mut(lanes);
    let (dp, rest) = rest.split_at_mut(lanes);
    let (mask, acc) = rest.split_at_mut(lanes);
    let x = &o.extras;
    let (plain, drops) = (x.is_empty(), x.has_dropout());

    for row in task.rows.clone() {
        let edges = o.edges(task, row);
        let (q, g) = (o.q.as_ptr().add(row * d), b.g.as_ptr().add(row * d));
        for h in 0..heads {
            big_d[FOUR * h..FOUR * (h + 1)].fill(b.big_d[row * heads + h]);
            lse[FOUR * h..FOUR * (h + 1)].fill(b.lse[row * heads + h] * LOG2_E);
        }
        acc.fill(0.0);
        let mut at = edges.start;
        while at < edges.end {
            let count = FOUR.min(edges.end - at);
            for e in 0..count {
                if let Some(&j) = o.indices.get(at + AHEAD + e) {
                    prefetch(o.kv.as_ptr().add(2 * d * j as usize), 2 * d);
                }
            }
            let k = rows(o.kv.as_ptr(), 2 * d, o.indices, at, count);
            let v = k.map(|k| k.add(d));
            dots::<S, Q, K>(heads, w, q, k, p.as_mut_ptr());
            dots::<S, Q, K>(heads, w, g, v, dp.as_mut_ptr());
            if !plain {
                add_bias(x, heads, w, at, count, p);
                factors(x, row, &o.indices[at..at + count], |i, j| (j, i), mask);
            }
            for h in 0..heads {
                p[FOUR * h + count..FOUR * (h + 1)].fill(f32::NEG_INFINITY);
            }
            for t in (0..lanes).step_by(S::LANES) {
                let exponent = S::sub(S::mul(S::load(p.as_ptr().add(t)), scale2), S::load(lse.as_ptr().add(t)));
                let dp = masked::<S>(S::load(dp.as_ptr().add(t)), drops.then(|| mask.as_ptr().add(t)));
                let de = S::mul(S::exp2(exponent), S::sub(dp, S::load(big_d.as_ptr().add(t))));
                S::store(p.as_mut_ptr().add(t), S::mul(de, scale));
            }
            if b.dbias.is_wanted() {
                let root = (w as f32).sqrt();
                for e in 0..count {
                    for h in 0..heads {
                        b.dbias.add(number, heads, x.edge(at + e), h, root * p[FOUR * h + e]);
                    }
                }
            }
            accumulate::<S, K>(heads, w, p.as_ptr(), None, k, acc.as_mut_ptr());
            at += count;
        }
        match task.piece {
            Some(piece) => b.partial.part(piece * d..(piece + 1) * d).copy_from_slice(acc),
            None => {
                let dq = b.dq.part(row * d..(row + 1) * d).as_mut_ptr();
                for t in (0..d).step_by(S::LANES) {
                    let mut sum = S::load(acc.as_ptr().add(t));
                    if b.write == Write::Add {
                        sum = S::add(sum, Q::load(dq.add(t)));
                    }
                    Q::store(dq.add(t), sum);
                }
            }
        }
    }
}

/// What backward by source reads and writes. The operands' `indptr` and `indices` are those of the transpose.
pub(super) struct BySrc<'a, Q, K> {
    pub(super) lse: &'a [f32],
    pub(super) big_d: &'a [f32],
    pub(super) g: &'a [Q],
    pub(super) dkv: Shared<'a, K>,
    /// For each piece of a hub: dk ‖ dv.
    pub(super) partial: Shared<'a, f32>,
}

#[inline(always)]
unsafe fn by_src<S: Simd, Q: Source<S>, K: Sink<S>>(o: &Operands<'_, Q, K>, b: &BySrc<'_, Q, K>, task: &Task) {
    let (heads, d, w) = (o.heads, o.d, o.w());
    let (scale2, scale) = (S::splat(o.scale() * LOG2_E), S::splat(o.scale()));
    let lanes = (FOUR * heads).next_multiple_of(S::LANES);
    let mut scratch = vec![0f32; 5 * lanes + 2 * d];
    let (lse, rest) = scratch.split_at_mut(lanes);
    let (big_d, rest) = rest.split_at_mut(lanes);
    let (p, rest) = rest.split_at_mut(lanes);
    let (de, rest) = rest.split_at_mut(lanes);
    let (mask, acc) = rest.split_at_mut(lanes);
    let x = &o.extras;
    let (plain, drops) = (x.is_empty(), x.has_dropout());

    for row in task.rows.clone() {
        let edges = o.edges(task, row);
        let k = o.kv.as_ptr().add(2 * row * d);
        let v = k.add(d);
        acc.fill(0.0);
        let (dk, dv) = acc.split_at_mut(d);
        let mut at = edges.start;
        while at < edges.end {
            let count = FOUR.min(edges.end - at);
            for e in 0..count {
                if let Some(&i) = o.indices.get(at + AHEAD + e) {
                    let i = i as usize;
                    prefetch(o.q.as_ptr().add(d * i), d);
                    prefetch(b.g.as_ptr().add(d * i), d);
                    prefetch(b.lse.as_ptr().add(heads * i), heads);
                    prefetch(b.big_d.as_ptr().add(heads * i), heads);
                }
            }
            let q = rows(o.q.as_ptr(), d, o.indices, at, count);
            let g = rows(b.g.as_ptr(), d, o.indices, at, count);
            for e in 0..FOUR {
                let i = o.indices[at + e.min(count - 1)] as usize;
                for h in 0..heads {
                    // A missing edge gets the weight exp(−∞) = 0.
                    lse[FOUR * h + e] = if e < count { b.lse[heads * i + h] } else { f32::INFINITY };
                    big_d[FOUR * h + e] = b.big_d[heads * i + h];
                }
            }
            dots::<S, K, Q>(heads, w, k, q, p.as_mut_ptr());
            dots::<S, K, Q>(heads, w, v, g, de.as_mut_ptr());
            p[FOUR * heads..].fill(0.0);
            if !plain {
                add_bias(x, heads, w, at, count, p);
                factors(x, row, &o.indices[at..at + count], |j, i| (j, i), mask);
            }
            for t in (0..lanes).step_by(S::LANES) {
                let exponent = S::mul(S::load(lse.as_ptr().add(t)), S::splat(-LOG2_E));
                let alpha = S::exp2(S::fma(S::load(p.as_ptr().add(t)), scale2, exponent));
                let mask = drops.then(|| mask.as_ptr().add(t));
                let dp = masked::<S>(S::load(de.as_ptr().add(t)), mask);
                let difference = S::sub(dp, S::load(big_d.as_ptr().add(t)));
                S::store(p.as_mut_ptr().add(t), masked::<S>(alpha, mask));
                S::store(de.as_mut_ptr().add(t), S::mul(S::mul(alpha, difference), scale));
            }
            accumulate::<S, Q>(heads, w, de.as_ptr(), None, q, dk.as_mut_ptr());
            accumulate::<S, Q>(heads, w, p.as_ptr(), None, g, dv.as_mut_ptr());
            at += count;
        }
        match task.piece {
            Some(piece) => b.partial.part(2 * piece * d..2 * (piece + 1) * d).copy_from_slice(acc),
            None => {
                let dkv = b.dkv.part(2 * row * d..2 * (row + 1) * d);
                for t in (0..2 * d).step_by(S::LANES) {
                    K::store(dkv.as_mut_ptr().add(t), S::load(acc.as_ptr().add(t)));
                }
            }
        }
    }
}

/// One function per instruction set: everything inlines into it and is compiled with its instructions.
macro_rules! versions {
    ($($kernel:ident ( $($arg:ident : $type:ty),* ) => $avx512:ident, $avx2:ident;)*) => { $(
        /// # Safety
        /// The processor has AVX-512 F, BW, DQ and VL; no two tasks that run at the same time overlap.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        pub(super) unsafe fn $avx512<Q: Sink<Avx512>, K: Sink<Avx512>>($($arg: $type),*, task: &Task) {
            $kernel::<Avx512, Q, K>($($arg),*, task);
        }

        /// # Safety
        /// The processor has AVX2 and FMA; no two tasks that run at the same time overlap.
        #[target_feature(enable = "avx2,fma")]
        pub(super) unsafe fn $avx2<Q: Sink<Avx2>, K: Sink<Avx2>>($($arg: $type),*, task: &Task) {
            $kernel::<Avx2, Q, K>($($arg),*, task);
        }
    )* };
}

versions! {
    forward(o: &Operands<'_, Q, K>, f: &Forward<'_, Q>) => forward_avx512, forward_avx2;
    by_dst(o: &Operands<'_, Q, K>, b: &ByDst<'_, Q>, number: usize) => by_dst_avx512, by_dst_avx2;
    by_src(o: &Operands<'_, Q, K>, b: &BySrc<'_, Q, K>) => by_src_avx512, by_src_avx2;
}
