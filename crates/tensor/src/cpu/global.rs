//! Linear attention on the CPU: small products per head over blocks of rows.
//!
//! A block's rows are laid out per head beside one more column (`v ‖ 1`, `gn ‖ gd`), so that S and z, the numerator and
//! the denominator, T and t each are one product. Sums over rows are taken over fixed chunks, added in order.

use half::bf16;

use super::elementwise::Convert;
use super::gemm::{Compute, View, ViewMut, widen};
use super::parallel::{each_chunk_apart, each_with, map};
use super::share::Shared;
use super::{Cpu, Isa, host, host_mut, scratch};
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::global::{GlobalKernels, GlobalRows, GlobalSaved, Totals};

const OP: &str = "global attention";
/// Rows per block: what is laid out of one stays in cache.
pub(super) const BLOCK: usize = 128;

/// Calls a function for the type of the rows: in f64, or in f32 with storage in f32 or bf16.
macro_rules! by_type {
    ($m:expr, $f:ident ( $($x:expr),* )) => {
        match $m.dtype() {
            DType::F64 => $f::<f64, f64>($($x),*),
            DType::F32 => $f::<f32, f32>($($x),*),
            DType::Bf16 => $f::<f32, bf16>($($x),*),
        }
    };
}

impl GlobalKernels for Cpu {
    fn global_norms(&self, a: &GlobalRows<'_>, to: &mut Matrix) -> Result<()> {
        by_type!(a.q, norms(a, to))
    }

    fn global_sums(&self, a: &GlobalRows<'_>, to: &mut Matrix) -> Result<()> {
        by_type!(a.q, sums(self.isa, a, to))
    }

    fn global_apply(&self, a: &GlobalRows<'_>, sums: &Matrix, out: &mut Matrix, den: &mut Matrix) -> Result<()> {
        by_type!(a.q, apply(self.isa, a, sums, out, den))
    }

    fn global_back_sums(&self, a: &GlobalRows<'_>, saved: &GlobalSaved<'_>, to: &mut Matrix) -> Result<()> {
        by_type!(a.q, back_sums(self.isa, a, saved, to))
    }

    fn global_back_rows(
        &self,
        a: &GlobalRows<'_>,
        saved: &GlobalSaved<'_>,
        totals: Totals<'_>,
        to: [&mut Matrix; 3],
    ) -> Result<()> {
        by_type!(a.q, back_rows(self.isa, a, saved, totals, to))
    }
}

/// 1 / (‖q‖·‖k‖), or 1.
fn beta<C: Compute>(a: &GlobalRows<'_>) -> Result<C> {
    let Some(norms) = a.scale else { return Ok(C::one()) };
    let norms = host::<C>(OP, "norms", norms)?;
    Ok(C::one() / (norms[0].sqrt() * norms[1].sqrt()))
}

fn norms<C: Compute, T: Convert>(a: &GlobalRows<'_>, to: &mut Matrix) -> Result<()> {
    to.expect(OP, "norms", 1, 2)?;
    let to = host_mut::<C>(OP, "norms", to)?;
    for (to, m) in to.iter_mut().zip([a.q, a.k]) {
        let m = host::<T>(OP, "rows", m)?;
        // In f64: a sum of as many squares as the matrix has elements.
        let square = |part: &[T]| part.iter().map(|x| x.widen() * x.widen()).sum::<f64>();
        let parts = map(m.len().div_ceil(PART), &|k| square(&m[k * PART..m.len().min((k + 1) * PART)]));
        *to = C::of(parts.iter().sum::<f64>());
    }
    Ok(())
}

/// Elements whose squares are summed at a time.
const PART: usize = 1 << 15;

/// One row of one head with one more number.
fn lay_out<C: Compute, T: Convert>(to: &mut [C], row: &[T], factor: C, last: C) {
    let (end, to) = (to.len() - 1, to);
    for (to, x) in to.iter_mut().zip(row) {
        *to = C::of(*x) * factor;
    }
    to[end] = last;
}

/// `to[h] = Σ_i left_ihᵀ·right_ih`, where `fill(i, h, row)` writes a head's row of the right side.
fn sum_products<C: Compute, T: Convert>(
    isa: Isa,
    a: &GlobalRows<'_>,
    left: &Matrix,
    to: &mut Matrix,
    fill: impl Fn(usize, usize, &mut [C]) + Sync,
) -> Result<()> {
    let (heads, (m, d), n, width) = (a.heads, a.head_widths(), left.rows(), left.cols());
    let (rows, cols) = a.sums_shape();
    to.expect(OP, "sums", rows, cols)?;
    let size = rows * cols;
    let (chunk, mut partial) = scratch::global_sums(a)?;
    let partial = host_mut::<C>(OP, "partial", &mut partial)?;
    let left = host::<T>(OP, "rows", left)?;
    let engine = C::engine(isa, C::DTYPE);
    each_chunk_apart(partial, size, &|at, partial| {
        let (mut scratch, mut right) = (Vec::new(), vec![C::zero(); BLOCK * (d + 1)]);
        for start in (at * chunk..n.min((at + 1) * chunk)).step_by(BLOCK) {
            let count = BLOCK.min(n - start);
            let left = widen::<C, T>(&left[start * width..(start + count) * width], &mut scratch);
            for h in 0..heads {
                for (i, row) in right.chunks_mut(d + 1).take(count).enumerate() {
                    fill(start + i, h, row);
                }
                let l = View { start: left[h * m..].as_ptr(), row: 1, col: width };
                let r = View { start: right.as_ptr(), row: d + 1, col: 1 };
                let c = ViewMut { start: partial[h * m * (d + 1)..].as_mut_ptr(), row: d + 1 };
                // SAFETY: the views describe `count` rows of one head, and one head's m × (d + 1) sums.
                unsafe { C::multiply(engine, [m, d + 1, count], l, r, c, Write::Add) };
            }
        }
    });
    let to = host_mut::<C>(OP, "sums", to)?;
    to.fill(C::zero());
    for part in partial.chunks(size) {
        to.iter_mut().zip(part).for_each(|(to, x)| *to = *to + *x);
    }
    Ok(())
}

fn sums<C: Compute, T: Convert>(isa: Isa, a: &GlobalRows<'_>, to: &mut Matrix) -> Result<()> {
    let (d, width) = (a.head_widths().1, a.v.cols());
    let v = host::<T>(OP, "v", a.v)?;
    sum_products::<C, T>(isa, a, a.k, to, |i, h, row| {
        lay_out(row, &v[i * width + h * d..][..d], C::one(), C::one());
    })
}

fn apply<C: Compute, T: Convert>(
    isa: Isa,
    a: &GlobalRows<'_>,
    sums: &Matrix,
    out: &mut Matrix,
    den: &mut Matrix,
) -> Result<()> {
    let (heads, (m, d), q_width, width) = (a.heads, a.head_widths(), a.q.cols(), a.v.cols());
    let (own, beta, engine) = (C::of(a.own), beta::<C>(a)?, C::engine(isa, C::DTYPE));
    let alone = C::of(a.own + a.epsilon);
    let (q, v, sums) = (host::<T>(OP, "q", a.q)?, host::<T>(OP, "v", a.v)?, host::<C>(OP, "sums", sums)?);
    let (out, den) = (host_mut::<T>(OP, "out", out)?, host_mut::<C>(OP, "den", den)?);
    let (out, den, n) = (Shared::new(out), Shared::new(den), a.q.rows());
    each_with(n.div_ceil(BLOCK), &|| (Vec::new(), vec![C::zero(); BLOCK * (d + 1)]), &|(scratch, product), at| {
        let start = at * BLOCK;
        let count = BLOCK.min(n - start);
        // SAFETY: blocks of rows are disjoint.
        let (out, den) = unsafe {
            let rows = |width: usize| start * width..(start + count) * width;
            (out.part(rows(width)), den.part(rows(heads)))
        };
        let q = widen::<C, T>(&q[start * q_width..(start + count) * q_width], scratch);
        for h in 0..heads {
            let l = View { start: q[h * m..].as_ptr(), row: q_width, col: 1 };
            let r = View { start: sums[h * m * (d + 1)..].as_ptr(), row: d + 1, col: 1 };
            let c = ViewMut { start: product.as_mut_ptr(), row: d + 1 };
            // SAFETY: the views describe `count` rows of one head, that head's sums, and `count` rows of the
            // product.
            unsafe { C::multiply(engine, [count, d + 1, m], l, r, c, Write::Set) };
            for (i, product) in product.chunks(d + 1).take(count).enumerate() {
                let below = alone + beta * product[d];
                den[i * heads + h] = below;
                let v = &v[(start + i) * width + h * d..][..d];
                for ((to, v), x) in out[i * width + h * d..][..d].iter_mut().zip(v).zip(product) {
                    *to = T::narrow(((own * C::of(*v) + beta * *x) / below).widen());
                }
            }
        }
    });
    Ok(())
}

/// Lays out gn ‖ gd of one row and head.
struct Incoming<'a, C, T> {
    heads: usize,
    d: usize,
    out: &'a [T],
    den: &'a [C],
    g: &'a [T],
}

impl<'a, C: Compute, T: Convert> Incoming<'a, C, T> {
    fn new(a: &GlobalRows<'_>, s: &GlobalSaved<'a>) -> Result<Self> {
        s.g.expect(OP, "g", s.out.rows(), s.out.cols())?;
        let (out, den, g) = (host(OP, "out", s.out)?, host(OP, "den", s.den)?, host(OP, "g", s.g)?);
        Ok(Self { heads: a.heads, d: a.head_widths().1, out, den, g })
    }

    fn lay_out(&self, i: usize, h: usize, row: &mut [C]) {
        let at = (i * self.heads + h) * self.d;
        let (g, out) = (&self.g[at..at + self.d], &self.out[at..at + self.d]);
        let inverse = C::one() / self.den[i * self.heads + h];
        let product = g.iter().zip(out).fold(C::zero(), |sum, (g, o)| sum + C::of(*g) * C::of(*o));
        lay_out(row, g, inverse, -product * inverse);
    }
}

fn back_sums<C: Compute, T: Convert>(
    isa: Isa,
    a: &GlobalRows<'_>,
    saved: &GlobalSaved<'_>,
    to: &mut Matrix,
) -> Result<()> {
    let incoming = Incoming::<C, T>::new(a, saved)?;
    sum_products::<C, T>(isa, a, a.q, to, |i, h, row| incoming.lay_out(i, h, row))
}

/// Each head's sums turned round, so that rows of the right side are contiguous.
fn turned<C: Copy>(a: &GlobalRows<'_>, x: &[C]) -> Vec<C> {
    let (m, d) = a.head_widths();
    let turn = |h: usize| (0..(d + 1) * m).map(move |at| x[(h * m + at % m) * (d + 1) + at / m]);
    (0..a.heads).flat_map(turn).collect()
}

fn back_rows<C: Compute, T: Convert>(
    isa: Isa,
    a: &GlobalRows<'_>,
    saved: &GlobalSaved<'_>,
    totals: Totals<'_>,
    [dq, dk, dv]: [&mut Matrix; 3],
) -> Result<()> {
    let (heads, (m, d), q_width, width) = (a.heads, a.head_widths(), a.q.cols(), a.v.cols());
    let (own, beta, engine) = (C::of(a.own), beta::<C>(a)?, C::engine(isa, C::DTYPE));
    let (sums, back) = (host::<C>(OP, "sums", totals.sums)?, host::<C>(OP, "sums", totals.back)?);
    // What β's own gradient takes from q and k, per element.
    let (mut from_q, mut from_k) = (C::zero(), C::zero());
    if let Some(norms) = a.scale {
        let norms = host::<C>(OP, "norms", norms)?;
        let product: f64 = sums.iter().zip(back).map(|(s, t)| s.widen() * t.widen()).sum();
        (from_q, from_k) = (C::of(product) * beta / norms[0], C::of(product) * beta / norms[1]);
    }
    let (sums_t, back_t) = (turned(a, sums), turned(a, back));
    let incoming = Incoming::<C, T>::new(a, saved)?;
    let (q, k, v) = (host::<T>(OP, "q", a.q)?, host::<T>(OP, "k", a.k)?, host::<T>(OP, "v", a.v)?);
    let n = a.q.rows();
    let (dq, dk) = (Shared::new(host_mut::<T>(OP, "dq", dq)?), Shared::new(host_mut::<T>(OP, "dk", dk)?));
    let dv = Shared::new(host_mut::<T>(OP, "dv", dv)?);
    each_with(
        n.div_ceil(BLOCK),
        &|| (Vec::new(), vec![C::zero(); BLOCK * (d + 1)], vec![C::zero(); BLOCK * m.max(d)]),
        &|(scratch, left, product), block| {
            let start = block * BLOCK;
            let count = BLOCK.min(n - start);
            // SAFETY: blocks of rows are disjoint.
            let (dq, dk, dv) = unsafe {
                let rows = |width: usize| start * width..(start + count) * width;
                (dq.part(rows(q_width)), dk.part(rows(q_width)), dv.part(rows(width)))
            };
            let k_wide = widen::<C, T>(&k[start * q_width..(start + count) * q_width], scratch);
            for h in 0..heads {
                // `left` (count × (d + 1)) times a head's turned sums, minus `taken` of the operand itself.
                let mut rows = |left: &[C], turned: &[C], operand: &[T], taken: C, to: &mut [T]| {
                    let l = View { start: left.as_ptr(), row: d + 1, col: 1 };
                    let r = View { start: turned[h * (d + 1) * m..].as_ptr(), row: m, col: 1 };
                    let c = ViewMut { start: product.as_mut_ptr(), row: m };
                    // SAFETY: the views describe `count` laid out rows, one head's sums, and `count` rows of the
                    // product.
                    unsafe { C::multiply(engine, [count, m, d + 1], l, r, c, Write::Set) };
                    for (i, product) in product.chunks(m).take(count).enumerate() {
                        let operand = &operand[(start + i) * q_width + h * m..][..m];
                        for ((to, x), o) in to[i * q_width + h * m..][..m].iter_mut().zip(product).zip(operand) {
                            *to = T::narrow((beta * *x - taken * C::of(*o)).widen());
                        }
                    }
                };
                for (i, row) in left.chunks_mut(d + 1).take(count).enumerate() {
                    lay_out(row, &v[(start + i) * width + h * d..][..d], C::one(), C::one());
                }
                rows(left, &back_t, k, from_k, dk);
                for (i, row) in left.chunks_mut(d + 1).take(count).enumerate() {
                    incoming.lay_out(start + i, h, row);
                }
                rows(left, &sums_t, q, from_q, dq);
                let l = View { start: k_wide[h * m..].as_ptr(), row: q_width, col: 1 };
                let r = View { start: back[h * m * (d + 1)..].as_ptr(), row: d + 1, col: 1 };
                let c = ViewMut { start: product.as_mut_ptr(), row: d };
                // SAFETY: the views describe `count` rows of one head, the first d columns of its sums, and the
                // product.
                unsafe { C::multiply(engine, [count, d, m], l, r, c, Write::Set) };
                for (i, (product, gn)) in product.chunks(d).zip(left.chunks(d + 1)).take(count).enumerate() {
                    for ((to, x), gn) in dv[i * width + h * d..][..d].iter_mut().zip(product).zip(gn) {
                        *to = T::narrow((own * *gn + beta * *x).widen());
                    }
                }
            }
        },
    );
    Ok(())
}
