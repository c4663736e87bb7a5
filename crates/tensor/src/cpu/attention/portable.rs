//! The passes of attention in plain Rust, for every score: the version for f64, for processors without AVX2, and for
//! odd head widths. One edge at a time, hubs whole: the yardstick for the vector kernels.

use super::OP;
use super::edges::EdgeSlices;
use super::extras::{Extras, Places};
use super::score::{Edge, Plain, SourceGradients, add_scaled, dot};
use super::state::finish_row;
use crate::adjacency::Portion;
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::parallel::{each, each_chunk, each_with};
use crate::cpu::share::Shared;
use crate::cpu::{host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::attention::{Attention, Saved};

/// Where forward writes.
pub(super) enum Target<'a> {
    /// Output and log-sum-exp.
    Finish { out: &'a mut Matrix, lse: &'a mut Matrix },
    /// The state, which also is where the row begins.
    Carry(&'a mut Matrix),
}

pub(super) fn forward<C: Real, A: Plain<C>>(a: &Attention<'_>, score: &A, target: Target<'_>) -> Result<()> {
    let (csr, d, w, heads) = (&a.graph.forward.csr, score.wide(), score.head_width(), score.heads());
    let stride = score.stride().by;
    let log2_e = C::of(std::f64::consts::LOG2_E);
    let x = Extras::<C>::new(a, None)?;
    let size = 2 * heads + d;
    // Folds row i into a state.
    let fold = |i: usize, state: &mut [C]| {
        let first = csr.edges_of(i).start;
        for h in 0..heads {
            for (at, &j) in csr.row(i).iter().enumerate() {
                let j = j as usize;
                let e = (scored(score, &x, Edge { j, i, number: first + at }, h) + x.bias(first + at, h)) * log2_e;
                let new = state[h].max(e);
                let (shrink, p) = ((state[h] - new).exp2(), (e - new).exp2());
                state[h] = new;
                state[heads + h] = state[heads + h] * shrink + p;
                let acc = &mut state[2 * heads + h * stride..][..stride];
                acc.iter_mut().for_each(|x| *x = *x * shrink);
                let (own, tail) = acc.split_at_mut(w);
                let p = p * x.factor(j, i, h);
                add_scaled(own, p, score.values().part(j, h * w, (h + 1) * w));
                if let Some(edges) = tails(score, &x) {
                    edges.add(first + at, p, tail);
                }
            }
        }
    };
    match target {
        Target::Finish { out, lse } => {
            let (out, lse) = (host_mut::<A::Out>(OP, "out", out)?, host_mut::<C>(OP, "lse", lse)?);
            let (out, lse) = (Shared::new(out), Shared::new(lse));
            each_with(csr.num_dst(), &|| vec![C::zero(); size], &|state, i| {
                // SAFETY: rows are visited once.
                let (out, lse) = unsafe { (out.part(i * d..(i + 1) * d), lse.part(i * heads..(i + 1) * heads)) };
                state.fill(C::zero());
                state[..heads].fill(C::neg_infinity());
                fold(i, state);
                finish_row(heads, state, out, lse);
            });
        }
        Target::Carry(state) => {
            let state = host_mut::<C>(OP, "state", state)?;
            each_chunk(state, size, &fold);
        }
    }
    Ok(())
}

/// The features of edges, where they are for tails.
fn tails<'x, 'a, C: Real, A: Plain<C>>(score: &A, x: &'x Extras<'a, C>) -> Option<&'x EdgeSlices<'a, C>> {
    x.edges().filter(|_| score.tail() > 0)
}

/// The score of an edge with what tails add.
fn scored<C: Real, A: Plain<C>>(score: &A, x: &Extras<'_, C>, edge: Edge, h: usize) -> C {
    let tail = |edges: &EdgeSlices<'_, C>| edges.dot(edge.number, score.tail_of(edge.i, h)) * score.tail_scale();
    score.score(edge, h) + tails(score, x).map_or(C::zero(), tail)
}

/// Where backward by destination writes.
pub(super) struct ByDst<'a, C> {
    pub(super) to: &'a mut Matrix,
    pub(super) write: Write,
    pub(super) places: Places<'a, C>,
}

pub(super) fn by_dst<C: Real, A: Plain<C>>(
    a: &Attention<'_>,
    score: &A,
    saved: &Saved<'_>,
    b: &mut ByDst<'_, C>,
) -> Result<()> {
    let x = Extras::<C>::new(a, None)?;
    let (g, lse, big_d) =
        (host::<A::Out>(OP, "g", saved.g)?, host::<C>(OP, "lse", saved.lse)?, host::<C>(OP, "d", saved.d)?);
    let to = Shared::new(host_mut::<A::Dst>(OP, "gradient by destination", b.to)?);
    let (write, Places { bias, shared: parts, weight: weight_parts }) = (b.write, &b.places);
    let (csr, d, w, heads) = (&a.graph.forward.csr, score.wide(), score.head_width(), score.heads());
    let stride = score.stride().by;
    let (width, params, weights) = (score.widths().dst, score.widths().shared, score.edge_weights());
    let portions = &a.graph.forward.portions.all;
    // A hub's pieces are one row here: the first stands for all.
    let whole = |t: &Portion| t.piece.is_none() || t.edges.start == csr.edges_of(t.rows.start).start;
    each(portions.len(), &|number| {
        let portion = &portions[number];
        if !whole(portion) {
            return;
        }
        let mut acc = vec![C::zero(); width];
        // SAFETY: a portion runs on one thread.
        let shared = unsafe { parts.part(number * heads * params..(number + 1) * heads * params) };
        // SAFETY: as above.
        let weight = unsafe { weight_parts.part(number * weights..(number + 1) * weights) };
        for i in portion.rows.clone() {
            let first = csr.edges_of(i).start;
            // SAFETY: rows belong to one portion each, and a portion runs on one thread.
            let to = unsafe { to.part(i * heads * width..(i + 1) * heads * width) };
            for h in 0..heads {
                let (g, behind) = g[i * d + h * stride..][..stride].split_at(w);
                let shared = &mut shared[h * params..(h + 1) * params];
                acc.fill(C::zero());
                for (at, &j) in csr.row(i).iter().enumerate() {
                    let j = j as usize;
                    let edge = Edge { j, i, number: first + at };
                    let e = scored(score, &x, edge, h) + x.bias(first + at, h);
                    let alpha = (e - lse[i * heads + h]).exp();
                    let dp = dot::<C, _, _>(g, score.values().part(j, h * w, (h + 1) * w));
                    let more = tails(score, &x).map_or(C::zero(), |edges| edges.dot(first + at, behind));
                    let dp = (dp + more) * x.factor(j, i, h);
                    let de = alpha * (dp - big_d[i * heads + h]);
                    // SAFETY: as above.
                    unsafe { bias.add(number, heads, first + at, h, de) };
                    score.grad_dst(edge, h, de, &mut acc, shared, weight);
                    if let Some(edges) = tails(score, &x) {
                        edges.add(first + at, de * score.tail_scale(), &mut acc[w..]);
                    }
                }
                for (to, x) in to[h * width..].iter_mut().zip(&acc) {
                    let old = if write == Write::Add { C::of(*to) } else { C::zero() };
                    *to = A::Dst::narrow((old + *x).widen());
                }
            }
        }
    });
    Ok(())
}

pub(super) fn by_src<C: Real, A: Plain<C>>(
    a: &Attention<'_>,
    score: &A,
    saved: &Saved<'_>,
    to: &SourceGradients<'_, A>,
) -> Result<()> {
    let (g, lse, big_d) =
        (host::<A::Out>(OP, "g", saved.g)?, host::<C>(OP, "lse", saved.lse)?, host::<C>(OP, "d", saved.d)?);
    let x = Extras::<C>::new(a, a.map())?;
    let (csr, d, w, heads) = (&a.graph.transpose.csr, score.d(), score.head_width(), score.heads());
    let (width, wide, stride) = (score.widths().src, score.wide(), score.stride().by);
    each_with(csr.num_dst(), &|| vec![C::zero(); width + w], &|acc, j| {
        let first = csr.edges_of(j).start;
        for h in 0..heads {
            let v = score.values().part(j, h * w, (h + 1) * w);
            acc.fill(C::zero());
            let (through, direct) = acc.split_at_mut(width);
            for (position, &i) in csr.row(j).iter().enumerate() {
                let (i, number) = (i as usize, x.edge(first + position));
                let edge = Edge { j, i, number };
                let (g, behind) = g[i * wide + h * stride..][..stride].split_at(w);
                let e = scored(score, &x, edge, h) + x.bias(number, h);
                let alpha = (e - lse[i * heads + h]).exp();
                let factor = x.factor(j, i, h);
                let dp = dot::<C, _, _>(g, v) + tails(score, &x).map_or(C::zero(), |edges| edges.dot(number, behind));
                let de = alpha * (dp * factor - big_d[i * heads + h]);
                score.grad_src(edge, h, de, through);
                add_scaled(direct, alpha * factor, g);
            }
            match &to.values {
                Some(values) => {
                    // SAFETY: each source is visited by one thread.
                    let to = unsafe { values.part(j, d) };
                    for (to, x) in to[h * w..].iter_mut().zip(direct) {
                        *to = A::Value::narrow(x.widen());
                    }
                }
                None => {
                    for (t, x) in through.iter_mut().zip(direct) {
                        *t = *t + *x;
                    }
                }
            }
            // SAFETY: as above.
            let to = unsafe { to.through.part(j, heads * width) };
            for (to, x) in to[h * width..].iter_mut().zip(through) {
                *to = A::Src::narrow(x.widen());
            }
        }
    });
    Ok(())
}
