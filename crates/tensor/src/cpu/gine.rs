//! Messages of edges on the CPU: portions over rows, some columns of a message in registers at a time. The weight has a
//! row per feature here, and stays in the cache.

use std::ops::Range;

use graphweft_graph::Csr;
use num_traits::{One, Zero};

use super::elementwise::Real;
use super::neighbours::run;
use super::rowwise::{Blocks, Storage, by_dtype, put, span};
use super::share::Shared;
use super::{Cpu, host, host_mut, scratch};
use crate::adjacency::{Direction, Portion};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::gine::{Gine, GineKernels};

const OP: &str = "messages of edges";
/// Columns of a message that are made at a time.
const LANES: usize = 16;

impl GineKernels for Cpu {
    fn gine(&self, a: &Gine<'_>, out: &mut Matrix, write: Write) -> Result<()> {
        a.check(Some(out), None)?;
        by_dtype!(a.x.dtype(), T => pass::<T>(*self, a, None, out, write))
    }

    fn gine_dx(&self, a: &Gine<'_>, g: &Matrix, dx: &mut Matrix, write: Write) -> Result<()> {
        a.check(Some(g), Some(dx))?;
        by_dtype!(a.x.dtype(), T => pass::<T>(*self, a, Some(g), dx, write))
    }

    fn gine_dw(&self, a: &Gine<'_>, g: &Matrix, dw: &mut Matrix, write: Write) -> Result<()> {
        a.check_gradient(g, dw)?;
        by_dtype!(a.x.dtype(), T => gradient::<T>(*self, a, g, dw, write))
    }
}

/// What edges have, and what that comes to.
struct Terms<'a, C> {
    edges: &'a [C],
    /// Numbers of an edge, and those of them that are no ids.
    stored: usize,
    dense: usize,
    /// Of each column of categories, the row of its first.
    firsts: Vec<usize>,
    /// A row per feature and one of b, each of a multiple of [`LANES`].
    table: Vec<C>,
    wide: usize,
    /// The row of b.
    constant: usize,
}

impl<'a, C: Real + bytemuck::Pod> Terms<'a, C> {
    fn new(a: &Gine<'a>) -> Result<Self> {
        let ((d, rows), columns) = (a.weight.shape(), a.columns);
        let (weight, wide) = (host::<C>(OP, "weight", a.weight)?, d.next_multiple_of(LANES));
        let mut table = vec![C::zero(); rows * wide];
        for (column, weight) in weight.chunks_exact(rows).enumerate() {
            weight.iter().enumerate().for_each(|(row, w)| table[row * wide + column] = *w);
        }
        Ok(Self {
            edges: host::<C>(OP, "edges", a.edges)?,
            stored: columns.stored(),
            dense: columns.dense(),
            firsts: columns.places().map(|[first, _]| first).collect(),
            table,
            wide,
            constant: rows - 1,
        })
    }

    /// The features of an edge that are numbers, and the rows of its categories.
    #[inline(always)]
    fn edge(&self, e: usize) -> (&'a [C], impl Iterator<Item = usize>) {
        let (numbers, ids) = self.edges[e * self.stored..][..self.stored].split_at(self.dense);
        (numbers, self.firsts.iter().zip(ids).map(|(first, id)| first + id.to_usize().unwrap_or(0)))
    }

    #[inline(always)]
    fn row(&self, row: usize, at: usize) -> [C; LANES] {
        let mut to = [C::zero(); LANES];
        to.copy_from_slice(&self.table[row * self.wide + at..][..LANES]);
        to
    }

    /// x + W·e + b of an edge, from column `at` on.
    #[inline(always)]
    fn message<T: Storage<C = C>>(&self, x: &[T], e: usize, at: usize) -> [C; LANES] {
        let mut sums = self.row(self.constant, at);
        let (numbers, rows) = self.edge(e);
        for (k, number) in numbers.iter().enumerate() {
            let w = self.row(k, at);
            (0..LANES).for_each(|lane| sums[lane] = sums[lane] + *number * w[lane]);
        }
        for row in rows {
            let w = self.row(row, at);
            (0..LANES).for_each(|lane| sums[lane] = sums[lane] + w[lane]);
        }
        let x = load::<T>(x, at);
        (0..LANES).for_each(|lane| sums[lane] = sums[lane] + x[lane]);
        sums
    }

    /// What of the gradient `g` of a sum is that of an edge's message.
    #[inline(always)]
    fn through<T: Storage<C = C>>(&self, x: &[T], e: usize, g: &[T], at: usize) -> [C; LANES] {
        let (message, mut g) = (self.message(x, e, at), load::<T>(g, at));
        (0..LANES).for_each(|lane| g[lane] = if message[lane] > C::zero() { g[lane] } else { C::zero() });
        g
    }
}

/// Some columns of a row, and zeros behind the last.
#[inline(always)]
fn load<T: Storage>(row: &[T], at: usize) -> [T::C; LANES] {
    let mut to = [T::C::zero(); LANES];
    match row[at..].first_chunk::<LANES>() {
        Some(all) => (0..LANES).for_each(|lane| to[lane] = all[lane].load()),
        None => to.iter_mut().zip(&row[at..]).for_each(|(to, x)| *to = x.load()),
    }
    to
}

/// Rows at both ends of edges, in the order of one direction.
struct Rows<'a, T: Storage> {
    terms: Terms<'a, T::C>,
    csr: &'a Csr<u32>,
    /// From positions to edges, in the transpose.
    map: Option<&'a [u64]>,
    x: &'a [T],
    /// The gradient of the sums.
    g: Option<&'a [T]>,
    d: usize,
}

impl<'a, T: Storage> Rows<'a, T> {
    fn new(a: &Gine<'a>, g: Option<&'a Matrix>, direction: &'a Direction, map: Option<&'a [u64]>) -> Result<Self> {
        let g = g.map(|g| host::<T>(OP, "gradient", g)).transpose()?;
        let x = host::<T>(OP, "x", a.x)?;
        Ok(Self { terms: Terms::new(a)?, csr: &direction.csr, map, x, g, d: a.x.cols() })
    }

    #[inline(always)]
    fn row(&self, of: &'a [T], row: usize) -> &'a [T] {
        &of[row * self.d..][..self.d]
    }

    /// Adds the messages of a row's edges to `acc`, or along the transpose the gradients of these.
    #[inline(always)]
    fn add_edges(&self, acc: &mut [T::C], row: usize, portion: &Portion) {
        for at in portion.edges_of(self.csr.indptr(), row) {
            let other = self.csr.indices()[at] as usize;
            for (k, acc) in acc.chunks_exact_mut(LANES).enumerate() {
                let found = match (self.g, self.map) {
                    (Some(g), Some(map)) => {
                        let (x, g) = (self.row(self.x, row), self.row(g, other));
                        self.terms.through(x, map[at] as usize, g, k * LANES)
                    }
                    _ => {
                        let mut message = self.terms.message(self.row(self.x, other), at, k * LANES);
                        let zero = T::C::zero();
                        message.iter_mut().for_each(|x| *x = if *x < zero { zero } else { *x });
                        message
                    }
                };
                (0..LANES).for_each(|lane| acc[lane] = acc[lane] + found[lane]);
            }
        }
    }

    /// Adds the gradients of the edges' messages, times the edges' features, to a table with a row per feature.
    #[inline(always)]
    fn add_products(&self, table: &mut [T::C], rows: Range<usize>) {
        let Some(g) = self.g else { return };
        let (terms, d) = (&self.terms, self.d);
        for (i, e) in rows.flat_map(|i| self.csr.edges_of(i).map(move |e| (i, e))) {
            let (x, g) = (self.row(self.x, self.csr.indices()[e] as usize), self.row(g, i));
            for at in (0..d).step_by(LANES) {
                let found = terms.through(x, e, g, at);
                let (numbers, rows) = terms.edge(e);
                for (k, number) in numbers.iter().enumerate() {
                    add(&mut table[k * d + at..(k + 1) * d], *number, &found);
                }
                for k in rows.chain([terms.constant]) {
                    add(&mut table[k * d + at..(k + 1) * d], T::C::one(), &found);
                }
            }
        }
    }
}

/// Sums by destination, or with the gradient of these that of rows by source.
fn pass<T: Storage>(cpu: Cpu, a: &Gine<'_>, g: Option<&Matrix>, to: &mut Matrix, write: Write) -> Result<()> {
    let (direction, map) = match g {
        None => (&a.graph.forward, None),
        Some(_) => (&a.graph.transpose, Some(a.graph.edges())),
    };
    let (rows, d) = (Rows::<T>::new(a, g, direction, map)?, a.x.cols());
    let mut pieces = scratch::gine_pieces(a.x, direction)?;
    let pieces = Shared::new(host_mut::<T::C>(OP, "pieces", &mut pieces)?);
    let to = Shared::new(host_mut::<T>(OP, "sums", to)?);
    let portion = |_: usize, portion: &Portion| {
        let mut acc = vec![T::C::zero(); rows.terms.wide];
        for row in portion.rows.clone() {
            acc.fill(T::C::zero());
            cpu.isa.run(
                #[inline(always)]
                || rows.add_edges(&mut acc, row, portion),
            );
            match portion.piece {
                // SAFETY: each piece has a row of its own.
                Some(piece) => unsafe { pieces.part(piece * d..(piece + 1) * d) }.copy_from_slice(&acc[..d]),
                // SAFETY: each row is that of one portion.
                None => put(unsafe { to.part(row * d..(row + 1) * d) }, &acc, write),
            }
        }
    };
    run(direction, &portion, &|row, of_row| {
        // SAFETY: all portions are done; each hub reads its own pieces and writes its own row.
        let (pieces, to) = unsafe { (pieces.part(span(&of_row, d)), to.part(row * d..(row + 1) * d)) };
        let mut acc = vec![T::C::zero(); d];
        for piece in pieces.chunks_exact(d.max(1)) {
            acc.iter_mut().zip(piece).for_each(|(sum, x)| *sum = *sum + *x);
        }
        put(to, &acc, write);
    });
    Ok(())
}

fn gradient<T: Storage>(cpu: Cpu, a: &Gine<'_>, g: &Matrix, dw: &mut Matrix, write: Write) -> Result<()> {
    let (rows, (d, features)) = (Rows::<T>::new(a, Some(g), &a.graph.forward, None)?, dw.shape());
    let size = d * features;
    let mut partial = scratch::tables(g, dw)?;
    let tables = Shared::new(host_mut::<T::C>(OP, "partial sums", &mut partial)?);
    Blocks::few(g.rows(), d).each(|number, block| {
        // SAFETY: blocks have tables of their own.
        let table = unsafe { tables.part(span(&(number..number + 1), size)) };
        cpu.isa.run(
            #[inline(always)]
            || rows.add_products(table, block),
        );
    });
    let partial = host::<T::C>(OP, "partial sums", &partial)?;
    let to = host_mut::<T::C>(OP, "gradient of the weight", dw)?;
    if write == Write::Set {
        to.fill(T::C::zero());
    }
    for part in partial.chunks_exact(size.max(1)) {
        for (column, to) in to.chunks_exact_mut(features).enumerate() {
            to.iter_mut().enumerate().for_each(|(k, sum)| *sum = *sum + part[k * d + column]);
        }
    }
    Ok(())
}

/// Adds `number` times some columns to those of a row from the same one on.
#[inline(always)]
fn add<C: Real>(row: &mut [C], number: C, columns: &[C; LANES]) {
    match row.first_chunk_mut::<LANES>() {
        Some(all) => (0..LANES).for_each(|lane| all[lane] = all[lane] + number * columns[lane]),
        None => row.iter_mut().zip(columns).for_each(|(sum, x)| *sum = *sum + number * *x),
    }
}
