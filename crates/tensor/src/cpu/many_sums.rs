//! Several weighted sums at once, on the CPU: a row of the result at a time, edge by edge, hubs whole.

use num_traits::Zero;
use rayon::prelude::*;

use super::rowwise::{Storage, by_dtype, dot};
use super::{Cpu, host, host_mut};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::many_sums::{ManySums, ManySumsKernels};
use crate::ops::spmm::Along;

const OP: &str = "many sums";

impl ManySumsKernels for Cpu {
    fn many_sums(&self, a: &ManySums<'_>, out: &mut Matrix, write: Write) -> Result<()> {
        a.check(out)?;
        if a.x.dtype() != out.dtype() {
            return Err(Error::Type { op: OP, what: "out", got: out.dtype() });
        }
        by_dtype!(a.x.dtype(), T => match a.along {
            Along::Edges => forward::<T>(*self, a, out, write),
            Along::Transpose => transposed::<T>(*self, a, out, write),
        })
    }

    fn many_sums_dw(&self, a: &ManySums<'_>, g: &Matrix, dw: &mut Matrix) -> Result<()> {
        let (graph, d) = (a.graph, a.width());
        a.x.expect(OP, "x", graph.num_src(), d)?;
        g.expect(OP, "g", graph.num_dst(), a.count() * d)?;
        dw.expect(OP, "dw", graph.num_edges(), a.count())?;
        by_dtype!(a.x.dtype(), T => products::<T>(*self, a, g, dw))
    }
}

/// `to (+)= acc`
#[inline(always)]
fn put<T: Storage>(to: &mut [T], acc: &[T::C], write: Write) {
    for (to, x) in to.iter_mut().zip(acc) {
        let old = if write == Write::Add { to.load() } else { T::C::zero() };
        *to = T::store(old + *x);
    }
}

/// `acc += w·x`
#[inline(always)]
fn add<T: Storage>(acc: &mut [T::C], w: T::C, x: &[T]) {
    for (a, x) in acc.iter_mut().zip(x) {
        *a = *a + w * x.load();
    }
}

fn forward<T: Storage>(cpu: Cpu, a: &ManySums<'_>, out: &mut Matrix, write: Write) -> Result<()> {
    let (csr, d, count) = (&a.graph.forward.csr, a.width(), a.count());
    let (x, w) = (host::<T>(OP, "x", a.x)?, host::<T::C>(OP, "weights", a.weights)?);
    let row_of = |acc: &mut Vec<T::C>, i: usize, out: &mut [T]| {
        cpu.isa.run(
            #[inline(always)]
            || {
                acc.fill(T::C::zero());
                for e in csr.edges_of(i) {
                    let j = csr.indices()[e] as usize;
                    let x = &x[j * d..(j + 1) * d];
                    for (acc, w) in acc.chunks_exact_mut(d).zip(&w[e * count..(e + 1) * count]) {
                        if *w != T::C::zero() {
                            add(acc, *w, x);
                        }
                    }
                }
                put(out, acc, write);
            },
        );
    };
    if count * d == 0 {
        return Ok(());
    }
    let rows = host_mut::<T>(OP, "out", out)?.par_chunks_mut(count * d).enumerate();
    rows.for_each_init(|| vec![T::C::zero(); count * d], |acc, (i, out)| row_of(acc, i, out));
    Ok(())
}

fn transposed<T: Storage>(cpu: Cpu, a: &ManySums<'_>, out: &mut Matrix, write: Write) -> Result<()> {
    let (csr, d, count) = (&a.graph.transpose.csr, a.width(), a.count());
    let (g, w) = (host::<T>(OP, "x", a.x)?, host::<T::C>(OP, "weights", a.weights)?);
    let map = a.graph.edges();
    let row_of = |acc: &mut Vec<T::C>, j: usize, out: &mut [T]| {
        cpu.isa.run(
            #[inline(always)]
            || {
                acc.fill(T::C::zero());
                for at in csr.edges_of(j) {
                    let (i, e) = (csr.indices()[at] as usize, map[at] as usize);
                    let g = g[i * count * d..(i + 1) * count * d].chunks_exact(d);
                    for (g, w) in g.zip(&w[e * count..(e + 1) * count]) {
                        if *w != T::C::zero() {
                            add(acc, *w, g);
                        }
                    }
                }
                put(out, acc, write);
            },
        );
    };
    if d == 0 {
        return Ok(());
    }
    let rows = host_mut::<T>(OP, "out", out)?.par_chunks_mut(d).enumerate();
    rows.for_each_init(|| vec![T::C::zero(); d], |acc, (j, out)| row_of(acc, j, out));
    Ok(())
}

fn products<T: Storage>(cpu: Cpu, a: &ManySums<'_>, g: &Matrix, dw: &mut Matrix) -> Result<()> {
    let (csr, d, count) = (&a.graph.forward.csr, a.width(), a.count());
    let (x, g) = (host::<T>(OP, "x", a.x)?, host::<T>(OP, "g", g)?);
    let mut rest = host_mut::<T::C>(OP, "dw", dw)?;
    let mut rows = Vec::with_capacity(csr.num_dst());
    for i in 0..csr.num_dst() {
        let (row, after) = rest.split_at_mut(csr.degree(i) * count);
        rows.push(row);
        rest = after;
    }
    let of_row = |(wide_g, wide_x): &mut (Vec<T::C>, Vec<T::C>), i: usize, row: &mut [T::C]| {
        cpu.isa.run(
            #[inline(always)]
            || {
                for (to, g) in wide_g.iter_mut().zip(&g[i * count * d..(i + 1) * count * d]) {
                    *to = g.load();
                }
                for (dw, &j) in row.chunks_exact_mut(count).zip(csr.row(i)) {
                    let j = j as usize;
                    for (to, x) in wide_x.iter_mut().zip(&x[j * d..(j + 1) * d]) {
                        *to = x.load();
                    }
                    for (k, dw) in dw.iter_mut().enumerate() {
                        *dw = dot(&wide_g[k * d..(k + 1) * d], wide_x);
                    }
                }
            },
        );
    };
    if count == 0 {
        return Ok(());
    }
    let scratch = || (vec![T::C::zero(); count * d], vec![T::C::zero(); d]);
    rows.into_par_iter().enumerate().for_each_init(scratch, |wide, (i, row)| of_row(wide, i, row));
    Ok(())
}
