//! Products of heads with vectors on the CPU: one pass over the rows, vectors in the first-level cache.

use num_traits::Zero;

use super::rowwise::{Blocks, Storage, by_dtype, dot, span};
use super::share::Shared;
use super::{Cpu, host, host_mut, scratch};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::head_dot::{HeadDot, HeadDotKernels};

const OP: &str = "products by head";

impl HeadDotKernels for Cpu {
    fn head_dot(&self, z: &Matrix, vectors: &[&Matrix], to: &mut [&mut Matrix]) -> Result<()> {
        match (vectors, to) {
            ([a], [l]) => by_dtype!(z.dtype(), T => forward::<T, 1>(*self, z, [a], [l])),
            ([a, b], [l, r]) => by_dtype!(z.dtype(), T => forward::<T, 2>(*self, z, [a, b], [l, r])),
            _ => Err(neither_one_nor_two(vectors.len())),
        }
    }

    fn head_dot_backward(&self, a: &HeadDot<'_>, dz: &mut Matrix, write: Write, to: &mut [&mut Matrix]) -> Result<()> {
        let HeadDot { z, vectors, g } = *a;
        match (vectors, g, to) {
            ([a], [dl], [da]) => by_dtype!(z.dtype(), T => backward::<T, 1>(*self, z, [a], [dl], dz, write, [da])),
            ([a, b], [dl, dr], [da, db]) => {
                by_dtype!(z.dtype(), T => backward::<T, 2>(*self, z, [a, b], [dl, dr], dz, write, [da, db]))
            }
            _ => Err(neither_one_nor_two(vectors.len())),
        }
    }
}

fn neither_one_nor_two(vectors: usize) -> Error {
    Error::Argument { op: OP, problem: format!("{vectors} vectors: there may be one or two") }
}

/// `f` of each, unless one fails.
fn each<A, B, const K: usize>(of: [A; K], f: impl Fn(A) -> Result<B>) -> Result<[B; K]> {
    let all = of.into_iter().map(f).collect::<Result<Vec<B>>>()?;
    all.try_into().map_err(|_| neither_one_nor_two(K))
}

fn forward<T: Storage, const K: usize>(
    cpu: Cpu,
    z: &Matrix,
    vectors: [&Matrix; K],
    to: [&mut Matrix; K],
) -> Result<()> {
    let ((rows, cols), (heads, width)) = (z.shape(), vectors[0].shape());
    let z = host::<T>(OP, "z", z)?;
    let vectors = each(vectors, |v| host::<T::C>(OP, "vectors", v))?;
    let to = each(to, |m| Ok(Shared::new(host_mut::<T::C>(OP, "products", m)?)))?;
    Blocks::new(rows, cols).each(|_, rows| {
        // SAFETY: blocks of rows are disjoint.
        let mut to = to.each_ref().map(|to| unsafe { to.part(span(&rows, heads)) });
        let mut buffer = vec![T::C::zero(); cols];
        cpu.isa.run(
            #[inline(always)]
            || {
                for (k, row) in rows.enumerate() {
                    for (to, x) in buffer.iter_mut().zip(&z[row * cols..]) {
                        *to = x.load();
                    }
                    for h in 0..heads {
                        let at = h * width..(h + 1) * width;
                        for (to, vector) in to.iter_mut().zip(&vectors) {
                            to[k * heads + h] = dot(&buffer[at.clone()], &vector[at.clone()]);
                        }
                    }
                }
            },
        );
    });
    Ok(())
}

fn backward<T: Storage, const K: usize>(
    cpu: Cpu,
    z: &Matrix,
    vectors: [&Matrix; K],
    g: [&Matrix; K],
    dz: &mut Matrix,
    write: Write,
    to: [&mut Matrix; K],
) -> Result<()> {
    let ((rows, cols), (heads, width)) = (z.shape(), vectors[0].shape());
    let blocks = Blocks::few(rows, cols);
    let mut partial = scratch::head_dot_backward(z, K)?;
    let sums = Shared::new(host_mut::<T::C>(OP, "partial sums", &mut partial)?);
    let z = host::<T>(OP, "z", z)?;
    let vectors = each(vectors, |v| host::<T::C>(OP, "vectors", v))?;
    let g = each(g, |g| {
        g.expect(OP, "gradient", rows, heads)?;
        host::<T::C>(OP, "gradient", g)
    })?;
    let dz = Shared::new(host_mut::<T>(OP, "dz", dz)?);
    blocks.each(|number, rows| {
        // SAFETY: blocks of rows, and their sums, are disjoint.
        let (dz, sums) = unsafe { (dz.part(span(&rows, cols)), sums.part(span(&(number..number + 1), K * cols))) };
        cpu.isa.run(
            #[inline(always)]
            || {
                for (row, dz) in rows.zip(dz.chunks_exact_mut(cols.max(1))) {
                    let z = &z[row * cols..][..cols];
                    for h in 0..heads {
                        let at = h * width..(h + 1) * width;
                        let g = g.map(|g| g[row * heads + h]);
                        for (sums, g) in sums.chunks_exact_mut(cols.max(1)).zip(g) {
                            for (sum, z) in sums[at.clone()].iter_mut().zip(&z[at.clone()]) {
                                *sum = *sum + g * z.load();
                            }
                        }
                        let vectors = vectors.map(|v| &v[at.clone()]);
                        for (c, dz) in dz[at].iter_mut().enumerate() {
                            let start = match write {
                                Write::Set => T::C::zero(),
                                Write::Add => dz.load(),
                            };
                            let sum = |sum: T::C, k: usize| sum + g[k] * vectors[k][c];
                            *dz = T::store((0..K).fold(start, sum));
                        }
                    }
                }
            },
        );
    });
    let partial = host::<T::C>(OP, "partial sums", &partial)?;
    for (k, to) in to.into_iter().enumerate() {
        let to = host_mut::<T::C>(OP, "gradient", to)?;
        to.fill(T::C::zero());
        for part in partial.chunks_exact((K * cols).max(1)) {
            to.iter_mut().zip(&part[k * cols..]).for_each(|(sum, x)| *sum = *sum + *x);
        }
    }
    Ok(())
}
