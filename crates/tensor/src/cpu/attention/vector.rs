//! The passes of attention with vector instructions, four neighbours at a time, for every [`Score`].
//!
//! Names: h head, e one of the four edges of a block, d width of all heads, with their tails where a row has some, w
//! width of one head, t vector within a head.
//!
//! Numbers of a block lie as `[4h + e]`: a vector holds whole groups of four, the maximum over a block is two shuffles,
//! and the exponentials of four edges and eight heads are two vectors.
//!
//! What costs is fetching rows at random: the rows of neighbours a few edges ahead are prefetched, across row
//! boundaries, since a portion's edges are contiguous.

#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::_mm_storeu_ps;
use std::ops::Range;

use super::edges::scale_tails;
use super::extras::{Extras, Places};
use super::score::{
    Any, Collected, GradientRows, Gradients, Operands, Score, accumulate, dots, far_dots, store, store_scaled,
};
use super::state::carry_on;
use crate::adjacency::Portion;
use crate::cpu::Isa;
use crate::cpu::neighbours::{AHEAD, FOUR, prefetch};
use crate::cpu::share::Shared;
use crate::cpu::simd::{Avx2, Avx512, Simd, Version, by_heads};
use crate::ops::Write;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LN_2: f32 = std::f32::consts::LN_2;

/// One direction of a graph with what its edges bring, and how they are scored.
pub(super) struct Pass<'a, A> {
    pub(super) indptr: &'a [u64],
    pub(super) indices: &'a [u32],
    pub(super) score: &'a A,
    pub(super) extras: Extras<'a, f32>,
}

impl<A> Pass<'_, A> {
    /// The far ends of up to four edges; missing ones repeat the last, their weight is made zero.
    #[inline(always)]
    pub(super) unsafe fn four(&self, at: usize, count: usize) -> [usize; FOUR] {
        std::array::from_fn(|e| *self.indices.get_unchecked(at + e.min(count - 1)) as usize)
    }
}

/// Groups of four lanes per head, padded to whole vectors.
fn lanes<S: Simd>(heads: usize) -> usize {
    (FOUR * heads).next_multiple_of(S::LANES)
}

/// Where forward writes.
pub(super) struct Forward<'a, O> {
    pub(super) target: Target<'a, O>,
    /// For each piece of a hub a state: m, s (per head) and acc.
    pub(super) partial: Shared<'a, f32>,
}

/// What becomes of a row.
pub(super) enum Target<'a, O> {
    /// It is finished: output and log-sum-exp.
    Finish { out: Shared<'a, O>, lse: Shared<'a, f32> },
    /// It goes on with the next block: m (in units of log₂), s and acc are carried, `2·heads + d` numbers a row.
    Carry(Shared<'a, f32>),
}

/// `N` times the numbers of a block, and what is left.
#[inline(always)]
fn blocks<const N: usize>(scratch: &mut [f32], lanes: usize) -> ([&mut [f32]; N], &mut [f32]) {
    let (blocks, rest) = scratch.split_at_mut(N * lanes);
    let mut blocks = blocks.chunks_exact_mut(lanes);
    (std::array::from_fn(|_| blocks.next().unwrap_or_default()), rest)
}

/// The sources of the edges at `at`; those of later edges are asked for.
#[inline(always)]
unsafe fn sources<S: Simd, A: Score<S>>(o: &Pass<'_, A>, at: usize, count: usize) -> [usize; FOUR] {
    for e in 0..count {
        if let Some(&j) = o.indices.get(at + AHEAD + e) {
            o.score.prefetch_src(j as usize);
        }
    }
    o.four(at, count)
}

/// x ∘ mask.
#[inline(always)]
unsafe fn masked<S: Simd>(x: S::V, mask: Option<*const f32>) -> S::V {
    match mask {
        Some(mask) => S::mul(x, S::load(mask)),
        None => x,
    }
}

/// One step of the online softmax: the raw scores in `p` become weights, by which m and s move; `keep` is how much the
/// sums so far shrink. Whether all stay as they are.
#[inline(always)]
unsafe fn softmax_step<S: Simd>(
    scale: S::V,
    m: &mut [f32],
    s: &mut [f32],
    p: &mut [f32],
    keep: &mut [f32],
    mask: Option<*const f32>,
) -> bool {
    let mut same = true;
    for t in (0..m.len()).step_by(S::LANES) {
        let score = S::mul(S::load(p.as_ptr().add(t)), scale);
        let old = S::load(m.as_ptr().add(t));
        let new = S::max(old, S::max_in_fours(score));
        let weight = S::exp2(S::sub(score, new));
        if !S::all_equal(old, new) {
            same = false;
        }
        let shrink = S::exp2(S::sub(old, new));
        S::store(m.as_mut_ptr().add(t), new);
        let kept = masked::<S>(weight, mask.map(|mask| mask.add(t)));
        S::store(p.as_mut_ptr().add(t), kept);
        S::store(keep.as_mut_ptr().add(t), shrink);
        let sum = S::fma(S::load(s.as_ptr().add(t)), shrink, weight);
        S::store(s.as_mut_ptr().add(t), sum);
    }
    same
}

#[inline(always)]
unsafe fn forward<S: Simd, A: Score<S>>(o: &Pass<'_, A>, f: &Forward<'_, A::Out>, portion: &Portion) {
    let score = o.score;
    let (heads, d, w, values) = (score.heads(), score.wide(), score.head_width(), score.values());
    let (columns, stride, tail) = (score.columns(), score.stride(), score.tail());
    let scale = S::splat(score.scale() * LOG2_E);
    let lanes = lanes::<S>(heads);
    let mut scratch = vec![0f32; 5 * lanes + d];
    let ([m, s, p, keep, mask], acc) = blocks(&mut scratch, lanes);
    let x = &o.extras;
    let (plain, drops) = (x.is_empty(), x.has_dropout());
    let size = 2 * heads + d;

    for row in portion.rows.clone() {
        let edges = portion.edges_of(o.indptr, row);
        // A row that this block has nothing for stays as it is.
        if edges.is_empty() && matches!(f.target, Target::Carry(_)) {
            continue;
        }
        m.fill(f32::NEG_INFINITY);
        s.fill(0.0);
        acc.fill(0.0);
        if let (Target::Carry(state), None) = (&f.target, portion.piece) {
            carry_on(heads, state.part(row * size..(row + 1) * size), m, s, acc);
        }
        let mut at = edges.start;
        while at < edges.end {
            let count = FOUR.min(edges.end - at);
            let (j, features) = (sources::<S, A>(o, at, count), x.four(at, count));
            // Nobody asks for the slopes again, and `keep` is written after them.
            score.by_dst(row, j, features, p.as_mut_ptr(), keep.as_mut_ptr());
            if !plain {
                x.add_biases(score.scale(), at, count, p);
                x.set_factors(count, |e| (j[e], row), mask);
            }
            for h in 0..heads {
                p[FOUR * h + count..FOUR * (h + 1)].fill(f32::NEG_INFINITY);
            }
            let mask = drops.then_some(mask.as_ptr());
            let same = softmax_step::<S>(scale, m, s, p, keep, mask);
            let keep = (!same).then_some(keep.as_ptr());
            accumulate::<S, A::Value>(columns, p.as_ptr(), keep, j.map(|j| values.at(j)), acc.as_mut_ptr());
            if let Some(keep) = keep.filter(|_| tail > 0) {
                scale_tails(stride, tail, keep, acc.as_mut_ptr().add(w));
            }
            if let Some(features) = features.filter(|_| tail > 0) {
                features.accumulate::<S>(stride, p.as_ptr(), acc.as_mut_ptr().add(w));
            }
            at += count;
        }
        // Each head's s is spread over its four lanes.
        for h in 0..heads {
            s[FOUR * h] = s[FOUR * h..FOUR * (h + 1)].iter().sum::<f32>();
        }
        let state = match (&f.target, portion.piece) {
            (_, Some(piece)) => f.partial.part(piece * size..(piece + 1) * size),
            (Target::Carry(state), None) => state.part(row * size..(row + 1) * size),
            (Target::Finish { out, lse }, None) => {
                let out = out.part(row * d..(row + 1) * d);
                let lse = lse.part(row * heads..(row + 1) * heads);
                for h in 0..heads {
                    let (s, empty) = (s[FOUR * h], edges.is_empty());
                    lse[h] = if empty { f32::NEG_INFINITY } else { m[FOUR * h] * LN_2 + s.ln() };
                    let inverse = if empty { 0.0 } else { 1.0 / s };
                    let (from, to) = (acc.as_ptr().add(h * stride.by), out.as_mut_ptr().add(h * stride.by));
                    store_scaled::<S, A::Out>(stride.by, from, inverse, to);
                }
                continue;
            }
        };
        for h in 0..heads {
            state[h] = m[FOUR * h];
            state[heads + h] = s[FOUR * h];
        }
        state[2 * heads..].copy_from_slice(acc);
    }
}

/// What backward knows of destinations.
#[derive(Clone, Copy)]
pub(super) struct Statistics<'a, O> {
    pub(super) lse: &'a [f32],
    pub(super) big_d: &'a [f32],
    pub(super) g: &'a [O],
}

/// Where backward by destination writes.
pub(super) struct ByDst<'a, A: Operands> {
    pub(super) known: Statistics<'a, A::Out>,
    pub(super) to: Shared<'a, A::Dst>,
    pub(super) write: Write,
    pub(super) places: Places<'a, f32>,
    /// For each piece of a hub what was collected.
    pub(super) partial: Shared<'a, f32>,
}

#[inline(always)]
unsafe fn by_dst<S: Simd, A: Score<S>>(o: &Pass<'_, A>, b: &ByDst<'_, A>, number: usize, portion: &Portion) {
    let score = o.score;
    let (heads, d, w, values) = (score.heads(), score.wide(), score.head_width(), score.values());
    let (columns, stride) = (score.columns(), score.stride());
    let (size, width, shared) = (score.dst_size(), heads * score.widths().dst, heads * score.widths().shared);
    let (scale2, scale) = (S::splat(score.scale() * LOG2_E), S::splat(score.scale()));
    let lanes = lanes::<S>(heads);
    let mut scratch = vec![0f32; 6 * lanes + size];
    let ([lse, big_d, p, dp, mask, slopes], acc) = blocks(&mut scratch, lanes);
    let (weights, dbias) = (score.edge_weights(), &b.places.bias);
    let shared = b.places.shared.part(number * shared..(number + 1) * shared);
    let weight = b.places.weight.part(number * weights..(number + 1) * weights);
    let x = &o.extras;
    let (plain, drops) = (x.is_empty(), x.has_dropout());

    for row in portion.rows.clone() {
        let edges = portion.edges_of(o.indptr, row);
        if edges.is_empty() && b.write == Write::Add {
            continue;
        }
        let g = b.known.g.as_ptr().add(row * d);
        for h in 0..heads {
            big_d[FOUR * h..FOUR * (h + 1)].fill(b.known.big_d[row * heads + h]);
            lse[FOUR * h..FOUR * (h + 1)].fill(b.known.lse[row * heads + h] * LOG2_E);
        }
        acc.fill(0.0);
        let mut at = edges.start;
        while at < edges.end {
            let count = FOUR.min(edges.end - at);
            let (j, features) = (sources::<S, A>(o, at, count), x.four(at, count));
            let tails = features.filter(|_| score.tail() > 0);
            score.by_dst(row, j, features, p.as_mut_ptr(), slopes.as_mut_ptr());
            dots::<S, A::Out, A::Value>(columns, g, j.map(|j| values.at(j)), tails, dp.as_mut_ptr());
            if !plain {
                x.add_biases(score.scale(), at, count, p);
                x.set_factors(count, |e| (j[e], row), mask);
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
            if dbias.is_wanted() {
                for e in 0..count {
                    for h in 0..heads {
                        dbias.add(number, heads, x.edge(at + e), h, p[FOUR * h + e] / score.scale());
                    }
                }
            }
            let of = Gradients { de: p.as_ptr(), slopes: slopes.as_mut_ptr(), edges: features };
            let to = Collected { dst: acc.as_mut_ptr(), shared: shared.as_mut_ptr(), weight: weight.as_mut_ptr() };
            score.grad_dst(row, j, of, to);
            if let Some(tails) = tails {
                tails.accumulate::<S>(stride, p.as_ptr(), acc.as_mut_ptr().add(w));
            }
            at += count;
        }
        match portion.piece {
            Some(piece) => b.partial.part(piece * size..(piece + 1) * size).copy_from_slice(acc),
            None => {
                let to = b.to.part(row * width..(row + 1) * width);
                score.store_dst(acc.as_ptr(), to.as_mut_ptr(), b.write);
            }
        }
    }
}

/// Adds up the pieces of a hub in order; the sum is where the first piece was.
#[inline(always)]
unsafe fn add_pieces<'a>(partial: &Shared<'a, f32>, size: usize, pieces: Range<usize>) -> &'a mut [f32] {
    let (sum, rest) = partial.part(pieces.start * size..pieces.end * size).split_at_mut(size);
    for piece in rest.chunks(size) {
        for (sum, x) in sum.iter_mut().zip(piece) {
            *sum += x;
        }
    }
    sum
}

#[inline(always)]
unsafe fn merge_dst<S: Simd, A: Score<S>>(o: &Pass<'_, A>, b: &ByDst<'_, A>, row: usize, pieces: Range<usize>) {
    let width = o.score.heads() * o.score.widths().dst;
    let sum = add_pieces(&b.partial, o.score.dst_size(), pieces);
    let to = b.to.part(row * width..(row + 1) * width);
    o.score.store_dst(sum.as_ptr(), to.as_mut_ptr(), b.write);
}

/// Where backward by source writes. The indices of the pass are those of the transpose.
pub(super) struct BySrc<'a, A: Operands> {
    pub(super) known: Statistics<'a, A::Out>,
    /// The gradient that goes through the score.
    pub(super) to: GradientRows<'a, A::Src>,
    /// That of the values; `None` where the values are the operand of the score, which then gets both.
    pub(super) values: Option<GradientRows<'a, A::Value>>,
    /// For each piece of a hub what was collected.
    pub(super) partial: Shared<'a, f32>,
}

#[inline(always)]
unsafe fn by_src<S: Simd, A: Score<S>>(o: &Pass<'_, A>, b: &BySrc<'_, A>, portion: &Portion) {
    let score = o.score;
    let (heads, d, wide, values) = (score.heads(), score.d(), score.wide(), score.values());
    let columns = score.columns().turned();
    let Statistics { lse: all_lse, big_d: all_d, g: all_g } = b.known;
    let size = score.src_size() + d;
    let (scale2, scale) = (S::splat(score.scale() * LOG2_E), S::splat(score.scale()));
    let lanes = lanes::<S>(heads);
    let mut scratch = vec![0f32; 6 * lanes + size];
    let ([lse, big_d, p, de, mask, slopes], acc) = blocks(&mut scratch, lanes);
    let x = &o.extras;
    let (plain, drops) = (x.is_empty(), x.has_dropout());

    for row in portion.rows.clone() {
        let edges = portion.edges_of(o.indptr, row);
        acc.fill(0.0);
        let (through, direct) = acc.split_at_mut(score.src_size());
        let mut at = edges.start;
        while at < edges.end {
            let count = FOUR.min(edges.end - at);
            for e in 0..count {
                if let Some(&i) = o.indices.get(at + AHEAD + e) {
                    let i = i as usize;
                    score.prefetch_dst(i);
                    prefetch(all_g.as_ptr().wrapping_add(wide * i), wide);
                    prefetch(all_lse.as_ptr().wrapping_add(heads * i), heads);
                    prefetch(all_d.as_ptr().wrapping_add(heads * i), heads);
                    if let Some((features, count)) = x.edges().map(|edges| edges.at(x.edge(at + AHEAD + e))) {
                        prefetch(features, count);
                    }
                }
            }
            let (i, features) = (o.four(at, count), x.four(at, count));
            let g = i.map(|i| all_g.as_ptr().add(wide * i));
            by_heads(heads, i.map(|i| all_lse.as_ptr().add(heads * i)), |h, x| {
                _mm_storeu_ps(lse.as_mut_ptr().add(FOUR * h), x);
            });
            by_heads(heads, i.map(|i| all_d.as_ptr().add(heads * i)), |h, x| {
                _mm_storeu_ps(big_d.as_mut_ptr().add(FOUR * h), x);
            });
            if count < FOUR {
                // A missing edge gets the weight exp(−∞) = 0.
                for h in 0..heads {
                    lse[FOUR * h + count..FOUR * (h + 1)].fill(f32::INFINITY);
                }
            }
            let tails = features.filter(|_| score.tail() > 0);
            score.by_src(row, i, features, p.as_mut_ptr(), slopes.as_mut_ptr());
            far_dots::<S, A::Value, A::Out>(columns, values.at(row), g, tails, de.as_mut_ptr());
            p[FOUR * heads..].fill(0.0);
            if !plain {
                x.add_biases(score.scale(), at, count, p);
                x.set_factors(count, |e| (row, i[e]), mask);
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
            let of = Gradients { de: de.as_ptr(), slopes: slopes.as_mut_ptr(), edges: features };
            score.grad_src(row, i, of, through.as_mut_ptr());
            accumulate::<S, A::Out>(columns, p.as_ptr(), None, g, direct.as_mut_ptr());
            at += count;
        }
        match portion.piece {
            Some(piece) => b.partial.part(piece * size..(piece + 1) * size).copy_from_slice(acc),
            None => store_src::<S, A>(score, b, row, acc),
        }
    }
}

/// Writes what was collected for a source: through its score ‖ through its values.
#[inline(always)]
unsafe fn store_src<S: Simd, A: Score<S>>(score: &A, b: &BySrc<'_, A>, row: usize, collected: &mut [f32]) {
    let (through, direct) = collected.split_at_mut(score.src_size());
    match &b.values {
        Some(values) => {
            let to = values.part(row, direct.len());
            store::<S, A::Value>(direct.len(), direct.as_ptr(), to.as_mut_ptr(), Write::Set);
        }
        None => {
            for (t, d) in through.iter_mut().zip(direct) {
                *t += *d;
            }
        }
    }
    let to = b.to.part(row, score.heads() * score.widths().src);
    score.store_src(through.as_ptr(), to.as_mut_ptr());
}

#[inline(always)]
unsafe fn merge_src<S: Simd, A: Score<S>>(o: &Pass<'_, A>, b: &BySrc<'_, A>, row: usize, pieces: Range<usize>) {
    let size = o.score.src_size() + o.score.d();
    store_src::<S, A>(o.score, b, row, add_pieces(&b.partial, size, pieces));
}

/// The passes, compiled for some instruction set. Safety: the processor has it; no two calls that run at the same time
/// write the same rows or pieces.
pub(super) struct Passes<A: Operands> {
    pub(super) forward: unsafe fn(&Pass<'_, A>, &Forward<'_, A::Out>, &Portion),
    pub(super) by_dst: unsafe fn(&Pass<'_, A>, &ByDst<'_, A>, usize, &Portion),
    pub(super) merge_dst: unsafe fn(&Pass<'_, A>, &ByDst<'_, A>, usize, Range<usize>),
    pub(super) by_src: unsafe fn(&Pass<'_, A>, &BySrc<'_, A>, &Portion),
    pub(super) merge_src: unsafe fn(&Pass<'_, A>, &BySrc<'_, A>, usize, Range<usize>),
}

impl<A: Any> Passes<A> {
    /// The fastest for a score on a processor; `None` where only portable ones will do.
    pub(super) fn new(isa: Isa, score: &A) -> Option<Self> {
        // Each head must be whole vectors.
        let version = Version::new(isa, |lanes| score.head_width().is_multiple_of(lanes));
        score.own_passes(isa).or(match version {
            Version::Avx512 => Some(Self::avx512()),
            Version::Avx2 => Some(Self::avx2()),
            Version::Portable => None,
        })
    }

    pub(super) fn avx512() -> Self {
        Self {
            forward: forward_avx512,
            by_dst: by_dst_avx512,
            merge_dst: merge_dst_avx512,
            by_src: by_src_avx512,
            merge_src: merge_src_avx512,
        }
    }

    fn avx2() -> Self {
        Self {
            forward: forward_avx2,
            by_dst: by_dst_avx2,
            merge_dst: merge_dst_avx2,
            by_src: by_src_avx2,
            merge_src: merge_src_avx2,
        }
    }
}

/// One function per instruction set: everything inlines into it and is compiled with its instructions.
macro_rules! versions {
    ($($kernel:ident ( $($arg:ident : $type:ty),* ) => $avx512:ident, $avx2:ident;)*) => { $(
        /// # Safety
        /// The processor has AVX-512 F, BW, DQ and VL; no two calls that run at the same time write the same rows or
        /// pieces.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn $avx512<A: Score<Avx512>>(o: &Pass<'_, A>, $($arg: $type),*) {
            $kernel::<Avx512, A>(o, $($arg),*);
        }

        /// # Safety
        /// The processor has AVX2 and FMA; no two calls that run at the same time write the same rows or pieces.
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $avx2<A: Score<Avx2>>(o: &Pass<'_, A>, $($arg: $type),*) {
            $kernel::<Avx2, A>(o, $($arg),*);
        }
    )* };
}

versions! {
    forward(f: &Forward<'_, A::Out>, portion: &Portion) => forward_avx512, forward_avx2;
    by_dst(b: &ByDst<'_, A>, number: usize, portion: &Portion) => by_dst_avx512, by_dst_avx2;
    merge_dst(b: &ByDst<'_, A>, row: usize, pieces: Range<usize>) => merge_dst_avx512, merge_dst_avx2;
    by_src(b: &BySrc<'_, A>, portion: &Portion) => by_src_avx512, by_src_avx2;
    merge_src(b: &BySrc<'_, A>, row: usize, pieces: Range<usize>) => merge_src_avx512, merge_src_avx2;
}
