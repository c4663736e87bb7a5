//! Aggregation in plain Rust: the version for f64, for processors without AVX2, and for very short rows. One edge at a
//! time, hubs whole: the yardstick for the vector kernels.

use rayon::prelude::*;

use super::{NOBODY, OP, Weights, bits, bits_mut, check_ids};
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::{host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::spmm::{Along, EdgeWeights, MaxGradient, Spmm, SpmmMax};

/// `to (+)= factor·acc`
fn put<C: Real, T: Convert>(to: &mut [T], acc: &[C], factor: C, write: Write) {
    for (to, x) in to.iter_mut().zip(acc) {
        let old = if write == Write::Add { C::of(*to) } else { C::zero() };
        *to = T::narrow((old + factor * *x).widen());
    }
}

/// `to (+)= factor(row)·acc` for every row of `d` columns, of what `add` adds to acc.
fn each_row<C: Real, T: Convert>(
    to: &mut [T],
    d: usize,
    write: Write,
    factor: impl Fn(usize) -> C + Sync,
    add: impl Fn(usize, &mut [C]) + Sync,
) {
    if d == 0 {
        return;
    }
    to.par_chunks_mut(d).enumerate().for_each_init(
        || vec![C::zero(); d],
        |acc, (row, to)| {
            acc.fill(C::zero());
            add(row, acc);
            put(to, acc, factor(row), write);
        },
    );
}

pub(super) fn sum<C: Real, T: Convert, O: Convert>(a: &Spmm<'_>, out: &mut Matrix, write: Write) -> Result<()> {
    let (csr, d) = (&a.direction().csr, a.x.cols());
    let weights = Weights::<C>::new(a.graph, &a.weights, a.along)?;
    let (x, out) = (host::<T>(OP, "x", a.x)?, host_mut::<O>(OP, "out", out)?);
    let add = |row: usize, acc: &mut [C]| {
        for at in csr.edges_of(row) {
            let j = csr.indices()[at] as usize;
            let weight = weights.of_edge(at, j);
            for (a, x) in acc.iter_mut().zip(&x[j * d..(j + 1) * d]) {
                *a = *a + weight * C::of(*x);
            }
        }
    };
    each_row(out, d, write, |row| weights.of_row(row), add);
    Ok(())
}

pub(super) fn products<C: Real, T: Convert>(a: &Spmm<'_>, g: &Matrix, dw: &mut Matrix) -> Result<()> {
    let Spmm { graph, weights, x, .. } = *a;
    let (csr, d) = (&graph.forward.csr, x.cols());
    let factors = Weights::<C>::new(graph, &EdgeWeights { edge: None, ..weights }, Along::Edges)?;
    let (x, g) = (host::<T>(OP, "x", x)?, host::<T>(OP, "g", g)?);
    let mut rest = host_mut::<C>(OP, "dw", dw)?;
    let mut rows = Vec::with_capacity(csr.num_dst());
    for i in 0..csr.num_dst() {
        let (row, after) = rest.split_at_mut(csr.degree(i));
        rows.push(row);
        rest = after;
    }
    rows.into_par_iter().enumerate().for_each(|(i, row)| {
        let first = csr.edges_of(i).start;
        for (k, (dw, &j)) in row.iter_mut().zip(csr.row(i)).enumerate() {
            let j = j as usize;
            let both = g[i * d..(i + 1) * d].iter().zip(&x[j * d..(j + 1) * d]);
            let dot = both.fold(C::zero(), |sum, (g, x)| sum + C::of(*g) * C::of(*x));
            *dw = dot * factors.of_row(i) * factors.of_edge(first + k, j);
        }
    });
    Ok(())
}

/// A value, and the original id of the source that has it.
#[derive(Clone, Copy)]
pub(super) struct Largest<C> {
    pub(super) value: C,
    pub(super) id: u32,
}

/// What a maximum starts from: nothing, or what earlier blocks found.
pub(super) fn begin<C: Real, T: Convert>(out: T, arg: u32, write: Write) -> Largest<C> {
    if write == Write::Set || arg == NOBODY {
        Largest { value: C::neg_infinity(), id: NOBODY }
    } else {
        Largest { value: C::of(out), id: arg }
    }
}

/// The larger of two values with their ids. Among equals the smaller id, and NaN stays.
pub(super) fn larger<C: Real>(new: Largest<C>, best: Largest<C>) -> Largest<C> {
    let above = new.value.partial_cmp(&best.value).is_none_or(std::cmp::Ordering::is_gt) && !best.value.is_nan();
    if above || (new.value == best.value && new.id < best.id) { new } else { best }
}

/// Values are only compared, which f64 does exactly for every storage.
pub(super) fn max<T: Convert>(a: &SpmmMax<'_>, out: &mut Matrix, arg: &mut Matrix, write: Write) -> Result<()> {
    let SpmmMax { graph, x, ids } = *a;
    let (csr, d) = (&graph.forward.csr, x.cols());
    let ids = check_ids(ids, x.rows())?;
    let (x, out, arg) = (host::<T>(OP, "x", x)?, host_mut::<T>(OP, "out", out)?, bits_mut(arg)?);
    if d == 0 {
        return Ok(());
    }
    out.par_chunks_mut(d).zip(arg.par_chunks_mut(d)).enumerate().for_each(|(i, (out, arg))| {
        for (c, (out, arg)) in out.iter_mut().zip(arg).enumerate() {
            let mut best = begin::<f64, T>(*out, *arg, write);
            for &j in csr.row(i) {
                let j = j as usize;
                best = larger(Largest { value: x[j * d + c].widen(), id: ids.of(j) as u32 }, best);
            }
            let value = if best.id == NOBODY { 0.0 } else { best.value };
            (*out, *arg) = (T::narrow(value), best.id);
        }
    });
    Ok(())
}

pub(super) fn max_back<C: Real, T: Convert>(a: &MaxGradient<'_>, dx: &mut Matrix, write: Write) -> Result<()> {
    let MaxGradient { graph, ids, arg, g } = *a;
    let (csr, d) = (&graph.transpose.csr, g.cols());
    let ids = check_ids(ids, dx.rows())?;
    let (g, arg, dx) = (host::<T>(OP, "g", g)?, bits(arg)?, host_mut::<T>(OP, "dx", dx)?);
    let add = |j: usize, acc: &mut [C]| {
        // Parallel edges stand side by side and count once.
        for same in csr.row(j).chunk_by(|a, b| a == b) {
            let columns = same[0] as usize * d..(same[0] as usize + 1) * d;
            for (acc, (g, arg)) in acc.iter_mut().zip(g[columns.clone()].iter().zip(&arg[columns])) {
                if u64::from(*arg) == ids.of(j) {
                    *acc = *acc + C::of(*g);
                }
            }
        }
    };
    each_row(dx, d, write, |_| C::one(), add);
    Ok(())
}
