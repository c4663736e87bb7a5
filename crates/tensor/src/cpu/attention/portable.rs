//! Dot-product attention in plain Rust: the version for f64, for processors without AVX2, and for odd head widths. One edge at a
//! time, hubs whole: the yardstick for the vector kernels.

use rayon::prelude::*;

use super::OP;
use super::extras::{BiasGrad, Extras};
use super::state::finish_row;
use crate::adjacency::Task;
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::share::Shared;
use crate::cpu::{host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::attention::{DotAttention, Saved};

/// x·y, from storage, in the type of the computation.
fn dot<C: Real, A: Convert, B: Convert>(x: &[A], y: &[B]) -> C {
    x.iter().zip(y).fold(C::zero(), |sum, (x, y)| sum + C::of(*x) * C::of(*y))
}

/// acc += weight · x
fn add_scaled<C: Real, A: Convert>(acc: &mut [C], weight: C, x: &[A]) {
    for (a, x) in acc.iter_mut().zip(x) {
        *a = *a + weight * C::of(*x);
    }
}

fn scale_of<C: Real>(a: &DotAttention<'_>) -> C {
    C::one() / C::of(a.head_width() as f64).sqrt()
}

/// Where forward writes.
pub(super) enum Target<'a> {
    /// Output and log-sum-exp.
    Finish { out: &'a mut Matrix, lse: &'a mut Matrix },
    /// The state, which also is where the row begins.
    Carry(&'a mut Matrix),
}

pub(super) fn forward<C: Real, Q: Convert, K: Convert>(a: &DotAttention<'_>, target: Target<'_>) -> Result<()> {
    let (q, kv) = (host::<Q>(OP, "q", a.q)?, host::<K>(OP, "kv", a.kv)?);
    let (csr, d, w, heads) = (&a.graph.forward.csr, a.q.cols(), a.head_width(), a.heads);
    let scale = scale_of::<C>(a);
    let log2_e = C::of(std::f64::consts::LOG2_E);
    let x = Extras::<C>::new(a, None)?;
    let size = 2 * heads + d;
    // Folds row i into a state.
    let fold = |i: usize, state: &mut [C]| {
        let first = csr.edges_of(i).start;
        for h in 0..heads {
            let q = &q[i * d + h * w..][..w];
            for (at, &j) in csr.row(i).iter().enumerate() {
                let k = &kv[2 * d * j as usize + h * w..];
                let score = (dot::<C, _, _>(q, &k[..w]) * scale + x.bias(first + at, h)) * log2_e;
                let new = state[h].max(score);
                let (shrink, p) = ((state[h] - new).exp2(), (score - new).exp2());
                state[h] = new;
                state[heads + h] = state[heads + h] * shrink + p;
                let acc = &mut state[2 * heads + h * w..][..w];
                acc.iter_mut().for_each(|x| *x = *x * shrink);
                add_scaled(acc, p * x.factor(j as usize, i, h), &k[d..d + w]);
            }
        }
    };
    match target {
        Target::Finish { out, lse } => {
            let (out, lse) = (host_mut::<Q>(OP, "out", out)?, host_mut::<C>(OP, "lse", lse)?);
            let rows = out.par_chunks_mut(d).zip(lse.par_chunks_mut(heads)).enumerate();
            rows.for_each_init(
                || vec![C::zero(); size],
                |state, (i, (out, lse))| {
                    state.fill(C::zero());
                    state[..heads].fill(C::neg_infinity());
                    fold(i, state);
                    finish_row(heads, state, out, lse);
                },
            );
        }
        Target::Carry(state) => {
            let state = host_mut::<C>(OP, "state", state)?;
            state.par_chunks_mut(size).enumerate().for_each(|(i, state)| fold(i, state));
        }
    }
    Ok(())
}

pub(super) fn by_dst<C: Real, Q: Convert, K: Convert>(
    a: &DotAttention<'_>,
    saved: &Saved<'_>,
    dq: &mut Matrix,
    write: Write,
    dbias: &BiasGrad<'_, C>,
) -> Result<()> {
    let x = Extras::<C>::new(a, None)?;
    let (q, kv) = (host::<Q>(OP, "q", a.q)?, host::<K>(OP, "kv", a.kv)?);
    let (g, lse, big_d) =
        (host::<Q>(OP, "g", saved.g)?, host::<C>(OP, "lse", saved.lse)?, host::<C>(OP, "d", saved.d)?);
    let dq = host_mut::<Q>(OP, "dq", dq)?;
    let (csr, d, w, heads) = (&a.graph.forward.csr, a.q.cols(), a.head_width(), a.heads);
    let scale = scale_of::<C>(a);
    let dq = Shared::new(dq);
    let tasks = &a.graph.forward.tasks.all;
    // A hub's pieces are one row here: the first stands for all.
    let whole = |t: &Task| t.piece.is_none() || t.edges.start == csr.edges_of(t.rows.start).start;
    tasks.par_iter().enumerate().filter(|(_, t)| whole(t)).for_each(|(number, task)| {
        let mut acc = vec![C::zero(); w];
        for i in task.rows.clone() {
            let first = csr.edges_of(i).start;
            // SAFETY: rows belong to one task each, and a task runs on one thread.
            let dq = unsafe { dq.part(i * d..(i + 1) * d) };
            for h in 0..heads {
                let at = i * d + h * w..i * d + (h + 1) * w;
                let (q, g) = (&q[at.clone()], &g[at]);
                acc.fill(C::zero());
                for (at, &j) in csr.row(i).iter().enumerate() {
                    let k = &kv[2 * d * j as usize + h * w..];
                    let score = dot::<C, _, _>(q, &k[..w]) * scale + x.bias(first + at, h);
                    let alpha = (score - lse[i * heads + h]).exp();
                    let dp = dot::<C, _, _>(g, &k[d..d + w]) * x.factor(j as usize, i, h);
                    let de = alpha * (dp - big_d[i * heads + h]);
                    // SAFETY: as above.
                    unsafe { dbias.add(number, heads, first + at, h, de) };
                    add_scaled(&mut acc, de * scale, &k[..w]);
                }
                for (to, x) in dq[h * w..].iter_mut().zip(&acc) {
                    let old = if write == Write::Add { C::of(*to) } else { C::zero() };
                    *to = Q::narrow((old + *x).widen());
                }
            }
        }
    });
    Ok(())
}

pub(super) fn by_src<C: Real, Q: Convert, K: Convert>(
    a: &DotAttention<'_>,
    saved: &Saved<'_>,
    dkv: &mut Matrix,
) -> Result<()> {
    let (q, kv) = (host::<Q>(OP, "q", a.q)?, host::<K>(OP, "kv", a.kv)?);
    let (g, lse) = (host::<Q>(OP, "g", saved.g)?, host::<C>(OP, "lse", saved.lse)?);
    let (big_d, dkv) = (host::<C>(OP, "d", saved.d)?, host_mut::<K>(OP, "dkv", dkv)?);
    let x = Extras::<C>::new(a, a.graph.edges.as_deref())?;
    let (csr, d, w, heads) = (&a.graph.transpose.csr, a.q.cols(), a.head_width(), a.heads);
    let scale = scale_of::<C>(a);
    dkv.par_chunks_mut(2 * d).enumerate().for_each_init(
        || vec![C::zero(); 2 * w],
        |acc, (j, dkv)| {
            let first = csr.edges_of(j).start;
            for h in 0..heads {
                let k = &kv[2 * d * j + h * w..];
                let (k, v) = (&k[..w], &k[d..d + w]);
                acc.fill(C::zero());
                let (dk, dv) = acc.split_at_mut(w);
                for (position, &i) in csr.row(j).iter().enumerate() {
                    let i = i as usize;
                    let at = i * d + h * w..i * d + (h + 1) * w;
                    let (q, g) = (&q[at.clone()], &g[at]);
                    let score = dot::<C, _, _>(q, k) * scale + x.bias(x.edge(first + position), h);
                    let alpha = (score - lse[i * heads + h]).exp();
                    let factor = x.factor(j, i, h);
                    let de = alpha * (dot::<C, _, _>(g, v) * factor - big_d[i * heads + h]);
                    add_scaled(dk, de * scale, q);
                    add_scaled(dv, alpha * factor, g);
                }
                for c in 0..w {
                    dkv[h * w + c] = K::narrow(dk[c].widen());
                    dkv[d + h * w + c] = K::narrow(dv[c].widen());
                }
            }
        },
    );
    Ok(())
}
