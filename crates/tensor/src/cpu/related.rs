//! Sums by relation on the CPU: a row of the result at a time, edge by edge, hubs whole.

use num_traits::Zero;
use rayon::prelude::*;

use super::elementwise::Real;
use super::rowwise::{Blocks, Storage, by_dtype, dot, put, span};
use super::share::Shared;
use super::{Cpu, host, host_mut, scratch};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::related::{NUMBERS, Related, RelatedKernels, Table};
use crate::ops::spmm::Along;

const OP: &str = "sums by relation";

impl RelatedKernels for Cpu {
    fn related(&self, a: &Related<'_>, out: &mut Matrix, write: Write) -> Result<()> {
        a.check(out)?;
        if a.x.dtype() != out.dtype() {
            return Err(Error::Type { op: OP, what: "out", got: out.dtype() });
        }
        by_dtype!(a.x.dtype(), T => match a.along {
            Along::Edges => forward::<T>(*self, a, out, write),
            Along::Transpose => transposed::<T>(*self, a, out, write),
        })
    }

    fn related_da(&self, a: &Related<'_>, g: &Matrix, da: &mut Matrix, write: Write) -> Result<()> {
        a.check_gradient(g, da)?;
        by_dtype!(a.x.dtype(), T => gradient::<T>(*self, a, g, da, write))
    }

    fn related_weights(&self, a: &Related<'_>, sum: usize, weights: &mut Matrix) -> Result<()> {
        by_dtype!(a.edges.dtype(), T => {
            let numbers = Numbers::<<T as Storage>::C>::new(a)?;
            for (e, to) in host_mut::<<T as Storage>::C>(OP, "weights", weights)?.iter_mut().enumerate() {
                let (scale, relation) = numbers.of(e);
                *to = numbers.coefficients(relation).map_or_else(
                    || if sum == relation { scale } else { <T as Storage>::C::zero() },
                    |row| scale * row[sum],
                );
            }
            Ok(())
        })
    }

    fn totals_by_relation(&self, edges: &Matrix, products: &Matrix, totals: &mut Matrix) -> Result<()> {
        by_dtype!(edges.dtype(), T => {
            let each = Numbers::<<T as Storage>::C> { edges: host(OP, "edges", edges)?, stride: edges.cols(), table: None };
            let products = host::<<T as Storage>::C>(OP, "products", products)?;
            let totals = host_mut::<<T as Storage>::C>(OP, "totals", totals)?;
            totals.fill(<T as Storage>::C::zero());
            for (e, product) in products.iter().enumerate() {
                let (scale, relation) = each.of(e);
                totals[relation] += scale * *product;
            }
            Ok(())
        })
    }
}

/// What edges and relations have.
#[derive(Clone, Copy)]
struct Numbers<'a, C> {
    edges: &'a [C],
    /// Numbers of an edge.
    stride: usize,
    /// Coefficients, so many for each relation.
    table: Option<(&'a [C], usize)>,
}

impl<'a, C: Real + bytemuck::Pod> Numbers<'a, C> {
    fn new(a: &Related<'a>) -> Result<Self> {
        let table = match a.table {
            Table::Each(_) => None,
            Table::Rows(rows) => Some((host::<C>(OP, "coefficients", rows)?, rows.cols())),
        };
        Ok(Self { edges: host::<C>(OP, "edges", a.edges)?, stride: a.edges.cols(), table })
    }

    /// 1/c of an edge, and its relation.
    #[inline(always)]
    fn of(&self, e: usize) -> (C, usize) {
        let edge = &self.edges[e * self.stride..][..NUMBERS];
        (C::one() / edge[0], edge[1].to_usize().unwrap_or(usize::MAX))
    }

    /// Those of a relation, where there is a table.
    #[inline(always)]
    fn coefficients(&self, relation: usize) -> Option<&'a [C]> {
        self.table.map(|(table, sums)| &table[relation * sums..][..sums])
    }
}

/// `acc += w·x`
#[inline(always)]
fn add<T: Storage>(acc: &mut [T::C], w: T::C, x: &[T]) {
    for (a, x) in acc.iter_mut().zip(x) {
        *a = *a + w * x.load();
    }
}

fn forward<T: Storage>(cpu: Cpu, a: &Related<'_>, out: &mut Matrix, write: Write) -> Result<()> {
    let (csr, d, sums) = (&a.graph.forward.csr, a.width(), a.table.sums());
    let (x, numbers) = (host::<T>(OP, "x", a.x)?, Numbers::<T::C>::new(a)?);
    let row_of = |acc: &mut Vec<T::C>, i: usize, out: &mut [T]| {
        cpu.isa.run(
            #[inline(always)]
            || {
                acc.fill(T::C::zero());
                for e in csr.edges_of(i) {
                    let j = csr.indices()[e] as usize;
                    let (x, (scale, relation)) = (&x[j * d..][..d], numbers.of(e));
                    match numbers.coefficients(relation) {
                        None => add(&mut acc[relation * d..][..d], scale, x),
                        Some(row) => {
                            acc.chunks_exact_mut(d).zip(row).for_each(|(acc, a)| add(acc, scale * *a, x));
                        }
                    }
                }
                put(out, acc, write);
            },
        );
    };
    if sums * d == 0 {
        return Ok(());
    }
    let rows = host_mut::<T>(OP, "out", out)?.par_chunks_mut(sums * d).enumerate();
    rows.for_each_init(|| vec![T::C::zero(); sums * d], |acc, (i, out)| row_of(acc, i, out));
    Ok(())
}

fn transposed<T: Storage>(cpu: Cpu, a: &Related<'_>, out: &mut Matrix, write: Write) -> Result<()> {
    let (csr, d, sums) = (&a.graph.transpose.csr, a.width(), a.table.sums());
    let (g, numbers) = (host::<T>(OP, "x", a.x)?, Numbers::<T::C>::new(a)?);
    let map = a.graph.edges();
    let row_of = |acc: &mut Vec<T::C>, j: usize, out: &mut [T]| {
        cpu.isa.run(
            #[inline(always)]
            || {
                acc.fill(T::C::zero());
                for at in csr.edges_of(j) {
                    let i = csr.indices()[at] as usize;
                    let (g, (scale, relation)) = (&g[i * sums * d..][..sums * d], numbers.of(map[at] as usize));
                    match numbers.coefficients(relation) {
                        None => add(acc, scale, &g[relation * d..][..d]),
                        Some(row) => g.chunks_exact(d).zip(row).for_each(|(g, a)| add(acc, scale * *a, g)),
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

fn gradient<T: Storage>(cpu: Cpu, a: &Related<'_>, g: &Matrix, da: &mut Matrix, write: Write) -> Result<()> {
    let (csr, d, sums) = (&a.graph.forward.csr, a.width(), a.table.sums());
    let (size, rows, cols) = (da.rows() * da.cols(), g.rows(), g.cols());
    let mut partial = scratch::tables(g, da)?;
    let tables = Shared::new(host_mut::<T::C>(OP, "partial sums", &mut partial)?);
    let (x, g, numbers) = (host::<T>(OP, "x", a.x)?, host::<T>(OP, "g", g)?, Numbers::<T::C>::new(a)?);
    let of_rows = |table: &mut [T::C], rows: std::ops::Range<usize>| {
        let (mut wide_g, mut wide_x) = (vec![T::C::zero(); cols], vec![T::C::zero(); d]);
        let load = |to: &mut [T::C], from: &[T]| to.iter_mut().zip(from).for_each(|(to, x)| *to = x.load());
        for i in rows {
            load(&mut wide_g, &g[i * cols..][..cols]);
            for e in csr.edges_of(i) {
                let (j, (scale, relation)) = (csr.indices()[e] as usize, numbers.of(e));
                load(&mut wide_x, &x[j * d..][..d]);
                for (k, da) in table[relation * sums..][..sums].iter_mut().enumerate() {
                    *da = *da + scale * dot(&wide_g[k * d..][..d], &wide_x);
                }
            }
        }
    };
    Blocks::few(rows, cols).each(|number, rows| {
        // SAFETY: blocks have tables of their own.
        let table = unsafe { tables.part(span(&(number..number + 1), size)) };
        cpu.isa.run(
            #[inline(always)]
            || of_rows(table, rows),
        );
    });
    let partial = host::<T::C>(OP, "partial sums", &partial)?;
    let to = host_mut::<T::C>(OP, "gradient", da)?;
    if write == Write::Set {
        to.fill(T::C::zero());
    }
    for part in partial.chunks_exact(size.max(1)) {
        to.iter_mut().zip(part).for_each(|(sum, x)| *sum = *sum + *x);
    }
    Ok(())
}
