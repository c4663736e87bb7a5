//! Products of heads with vectors on the CPU: one pass over the rows, vectors in the first-level cache.

use num_traits::Zero;

use super::rowwise::{Blocks, Storage, by_dtype, dot, span};
use super::share::Shared;
use super::{Cpu, host, host_mut};
use crate::dtype::Element;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::head_dot::HeadDotKernels;

const OP: &str = "products by head";

impl HeadDotKernels for Cpu {
    fn head_dot(&self, z: &Matrix, vectors: [&Matrix; 2], to: [&mut Matrix; 2]) -> Result<()> {
        by_dtype!(z.dtype(), T => forward::<T>(*self, z, vectors, to))
    }

    fn head_dot_backward(
        &self,
        z: &Matrix,
        vectors: [&Matrix; 2],
        g: [&Matrix; 2],
        dz: (&mut Matrix, Write),
        to: [&mut Matrix; 2],
    ) -> Result<()> {
        by_dtype!(z.dtype(), T => backward::<T>(*self, z, vectors, g, dz, to))
    }
}

fn forward<T: Storage>(cpu: Cpu, z: &Matrix, [a, b]: [&Matrix; 2], [l, r]: [&mut Matrix; 2]) -> Result<()> {
    let ((rows, cols), (heads, width)) = (z.shape(), a.shape());
    let z = host::<T>(OP, "z", z)?;
    let (a, b) = (host::<T::C>(OP, "vectors", a)?, host::<T::C>(OP, "vectors", b)?);
    let (l, r) = (Shared::new(host_mut::<T::C>(OP, "l", l)?), Shared::new(host_mut::<T::C>(OP, "r", r)?));
    Blocks::new(rows, cols).each(|_, rows| {
        // SAFETY: blocks of rows are disjoint.
        let (l, r) = unsafe { (l.part(span(&rows, heads)), r.part(span(&rows, heads))) };
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
                        l[k * heads + h] = dot(&buffer[at.clone()], &a[at.clone()]);
                        r[k * heads + h] = dot(&buffer[at.clone()], &b[at]);
                    }
                }
            },
        );
    });
    Ok(())
}

fn backward<T: Storage>(
    cpu: Cpu,
    z: &Matrix,
    [a, b]: [&Matrix; 2],
    [dl, dr]: [&Matrix; 2],
    (dz, write): (&mut Matrix, Write),
    [da, db]: [&mut Matrix; 2],
) -> Result<()> {
    let ((rows, cols), (heads, width)) = (z.shape(), a.shape());
    dl.expect(OP, "gradient", rows, heads)?;
    dr.expect(OP, "gradient", rows, heads)?;
    let blocks = Blocks::few(rows, cols);
    let mut partial = z.device().zeros(OP, blocks.count(), 2 * cols, T::C::DTYPE, Tag::Workspace)?;
    let sums = Shared::new(host_mut::<T::C>(OP, "partial sums", &mut partial)?);
    let z = host::<T>(OP, "z", z)?;
    let (a, b) = (host::<T::C>(OP, "vectors", a)?, host::<T::C>(OP, "vectors", b)?);
    let (dl, dr) = (host::<T::C>(OP, "gradient", dl)?, host::<T::C>(OP, "gradient", dr)?);
    let dz = Shared::new(host_mut::<T>(OP, "dz", dz)?);
    blocks.each(|number, rows| {
        // SAFETY: blocks of rows, and their sums, are disjoint.
        let (dz, sums) = unsafe { (dz.part(span(&rows, cols)), sums.part(span(&(number..number + 1), 2 * cols))) };
        let (da, db) = sums.split_at_mut(cols);
        cpu.isa.run(
            #[inline(always)]
            || {
                for (row, dz) in rows.zip(dz.chunks_exact_mut(cols.max(1))) {
                    let z = &z[row * cols..][..cols];
                    for h in 0..heads {
                        let (at, l, r) = (h * width..(h + 1) * width, dl[row * heads + h], dr[row * heads + h]);
                        let (da, db) = (&mut da[at.clone()], &mut db[at.clone()]);
                        for ((da, db), z) in da.iter_mut().zip(db).zip(&z[at.clone()]) {
                            *da = *da + l * z.load();
                            *db = *db + r * z.load();
                        }
                        let parts = dz[at.clone()].iter_mut().zip(a[at.clone()].iter().zip(&b[at]));
                        match write {
                            Write::Set => parts.for_each(|(dz, (a, b))| *dz = T::store(l * *a + r * *b)),
                            Write::Add => parts.for_each(|(dz, (a, b))| *dz = T::store(dz.load() + l * *a + r * *b)),
                        }
                    }
                }
            },
        );
    });
    let partial = host::<T::C>(OP, "partial sums", &partial)?;
    for (first, to) in [(0, da), (cols, db)] {
        let to = host_mut::<T::C>(OP, "gradient", to)?;
        to.fill(T::C::zero());
        for part in partial.chunks_exact((2 * cols).max(1)) {
            to.iter_mut().zip(&part[first..]).for_each(|(sum, x)| *sum = *sum + *x);
        }
    }
    Ok(())
}
