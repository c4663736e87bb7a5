//! The state of an online softmax: m (the largest score, in units of log₂), s (Σ 2^(score − m)) and acc (Σ 2^(score −
//! m)·v), as one row `m ‖ s ‖ acc` of 2·heads + d numbers. States over disjoint sets of edges merge exactly, in any
//! grouping.

use rayon::prelude::*;

use super::OP;
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::neighbours::FOUR;
use crate::cpu::parallel::each_chunk;
use crate::cpu::rowwise::Blocks;
use crate::cpu::share::Shared;
use crate::cpu::simd::{Avx2, Avx512, Simd, Source, Stored, Version};
use crate::cpu::{Isa, host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::rows::RowIndex;

/// `to` becomes the state over both sets of edges.
#[inline(always)]
pub(super) fn merge<C: Real>(heads: usize, to: &mut [C], from: &[C]) {
    let w = (to.len() - 2 * heads) / heads;
    for h in 0..heads {
        let m = to[h].max(from[h]);
        // Both empty: −∞ − (−∞) would be NaN.
        if m == C::neg_infinity() {
            continue;
        }
        let (a, b) = ((to[h] - m).exp2(), (from[h] - m).exp2());
        to[h] = m;
        to[heads + h] = to[heads + h] * a + from[heads + h] * b;
        for c in 2 * heads + h * w..2 * heads + (h + 1) * w {
            to[c] = to[c] * a + from[c] * b;
        }
    }
}

/// [`merge`] of row k of `partial` into row `index[k]` of `state`, in order of k.
pub(super) fn merge_rows<C: Real>(
    isa: Isa,
    heads: usize,
    partial: &Matrix,
    index: &RowIndex,
    state: &mut Matrix,
) -> Result<()> {
    let (rows, size) = state.shape();
    state.expect(OP, "state", index.num_rows(), size)?;
    partial.expect(OP, "partial states", index.index().len(), size)?;
    let (partial, groups) = (host::<C>(OP, "partial states", partial)?, index.groups());
    let state = Shared::new(host_mut::<C>(OP, "state", state)?);
    Blocks::new(rows, size).each(|_, rows| {
        isa.run(
            #[inline(always)]
            || {
                for (row, positions) in groups.within(rows) {
                    // SAFETY: blocks of rows are disjoint, and a row is in its block once.
                    let to = unsafe { state.part(row * size..(row + 1) * size) };
                    for k in positions {
                        merge(heads, to, &partial[*k as usize * size..][..size]);
                    }
                }
            },
        );
    });
    Ok(())
}

/// The output and the log-sum-exp of one row. Without edges these are 0 and −∞.
pub(super) fn finish_row<C: Real, Q: Convert>(heads: usize, state: &[C], out: &mut [Q], lse: &mut [C]) {
    let w = out.len() / heads;
    let ln_2 = C::of(std::f64::consts::LN_2);
    for h in 0..heads {
        let s = state[heads + h];
        let inverse = if s == C::zero() { s } else { C::one() / s };
        lse[h] = state[h] * ln_2 + s.ln();
        for c in h * w..(h + 1) * w {
            out[c] = Q::narrow((state[2 * heads + c] * inverse).widen());
        }
    }
}

/// [`finish_row`] for all rows.
pub(super) fn finish<C: Real, Q: Convert>(
    heads: usize,
    state: &Matrix,
    out: &mut Matrix,
    lse: &mut Matrix,
) -> Result<()> {
    let (d, size) = (out.cols(), state.cols());
    let (state, out, lse) =
        (host::<C>(OP, "state", state)?, host_mut::<Q>(OP, "out", out)?, host_mut::<C>(OP, "lse", lse)?);
    let rows = state.par_chunks(size).zip(out.par_chunks_mut(d)).zip(lse.par_chunks_mut(heads));
    rows.with_min_len(64).for_each(|((state, out), lse)| finish_row(heads, state, out, lse));
    Ok(())
}

/// D_i = g_i·out_i for every head.
pub(super) fn products<C: Real, Q: Convert>(
    isa: Isa,
    heads: usize,
    g: &Matrix,
    out: &Matrix,
    d: &mut Matrix,
) -> Result<()> {
    each_product::<C, Q>(heads, g, out, d, &|w, g, out, to| {
        isa.run(|| {
            for (to, (g, out)) in to.iter_mut().zip(g.chunks(w).zip(out.chunks(w))) {
                *to = g.iter().zip(out).fold(C::zero(), |sum, (g, o)| sum + C::of(*g) * C::of(*o));
            }
        });
    })
}

/// The same with vector instructions, where there are any.
pub(super) fn fast_products<Q: Stored>(isa: Isa, heads: usize, g: &Matrix, out: &Matrix, d: &mut Matrix) -> Result<()> {
    match Version::new(isa, |_| true) {
        Version::Avx512 => each_product::<f32, Q>(heads, g, out, d, &|w, g, out, to| {
            // SAFETY: the version is one that the processor has.
            isa.run(
                #[inline(always)]
                || unsafe { vector_products::<Avx512, Q>(w, g, out, to) },
            );
        }),
        Version::Avx2 => each_product::<f32, Q>(heads, g, out, d, &|w, g, out, to| {
            // SAFETY: as above.
            isa.run(
                #[inline(always)]
                || unsafe { vector_products::<Avx2, Q>(w, g, out, to) },
            );
        }),
        Version::Portable => products::<f32, Q>(isa, heads, g, out, d),
    }
}

/// Products of pairs of rows of `w` numbers, four pairs at a time.
///
/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn vector_products<S: Simd, Q: Source<S>>(w: usize, g: &[Q], out: &[Q], to: &mut [f32]) {
    let whole = w - w % S::LANES;
    for (k, to) in to.chunks_mut(FOUR).enumerate() {
        // SAFETY: each of `to` has w numbers in both, and sums of missing ones stay 0.
        unsafe {
            let mut sums = [S::splat(0.0); FOUR];
            for (h, sum) in sums.iter_mut().enumerate().take(to.len()) {
                let at = (FOUR * k + h) * w;
                let (g, out) = (g.as_ptr().add(at), out.as_ptr().add(at));
                for t in (0..whole).step_by(S::LANES) {
                    *sum = S::fma(Q::load(g.add(t)), Q::load(out.add(t)), *sum);
                }
                if whole < w {
                    let part = |p: *const Q| Q::load_first(p.add(whole), w - whole);
                    *sum = S::fma(part(g), part(out), *sum);
                }
            }
            let mut four = [0f32; FOUR];
            S::sum4(sums, four.as_mut_ptr());
            to.copy_from_slice(&four[..to.len()]);
        }
    }
}

/// The width of a head, and blocks of whole rows: of two factors, and of what their products come to.
type Products<'a, C, Q> = dyn Fn(usize, &[Q], &[Q], &mut [C]) + Sync + 'a;

/// Hands `f` the blocks of all rows.
fn each_product<C: Real, Q: Convert>(
    heads: usize,
    g: &Matrix,
    out: &Matrix,
    d: &mut Matrix,
    f: &Products<'_, C, Q>,
) -> Result<()> {
    g.expect(OP, "g", out.rows(), out.cols())?;
    let (cols, w) = (out.cols(), out.cols() / heads);
    let (g, out, to) = (host::<Q>(OP, "g", g)?, host::<Q>(OP, "out", out)?, host_mut::<C>(OP, "d", d)?);
    const ROWS: usize = 64;
    each_chunk(to, ROWS * heads, &|block, to| {
        let [g, out] = [g, out].map(|m| &m[block * ROWS * cols..][..to.len() * w]);
        f(w, g, out, to);
    });
    Ok(())
}

/// The vectors of a pass go on from what earlier blocks left in a state: m in all four lanes of a head, s in the first.
#[inline(always)]
pub(super) fn carry_on(heads: usize, state: &[f32], m: &mut [f32], s: &mut [f32], acc: &mut [f32]) {
    for h in 0..heads {
        m[FOUR * h..FOUR * (h + 1)].fill(state[h]);
        s[FOUR * h] = state[heads + h];
    }
    acc.copy_from_slice(&state[2 * heads..]);
}
