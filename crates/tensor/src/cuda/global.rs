//! Linear attention on the GPU: products of a batch of heads, in the compute type, and what stands around them.

use super::blas::{Ending, Operand, Product};
use super::compile::{Defines, Source};
use super::elementwise::typed;
use super::{Cuda, place, place_mut, source};
use crate::backend::Memory;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::global::{GlobalKernels, GlobalRows, GlobalSaved, Totals};
use crate::optim::OptimizerKernels;

const OP: &str = "global attention";
pub(super) static SOURCE: Source = source!("global", ["numbers", "lanes"]);

/// The sizes of a call.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    heads: usize,
    /// Columns of a head of q and k.
    m: usize,
    /// Columns of a head of v.
    d: usize,
    /// Type of the rows.
    dtype: DType,
}

impl Sizes {
    fn of(a: &GlobalRows<'_>) -> Self {
        let (m, d) = a.head_widths();
        Self { rows: a.q.rows(), heads: a.heads, m, d, dtype: a.q.dtype() }
    }

    /// A row per node, `width` columns per head, in the compute type.
    fn room(self, device: &Device, width: usize) -> Result<Matrix> {
        device.uninit(OP, self.rows, self.heads * width, self.dtype.compute(), Tag::Workspace)
    }
}

/// Heads side by side in the rows of a matrix, each `width` columns.
fn heads_of(cuda: &Cuda, m: &Matrix, width: usize) -> Result<Operand> {
    Ok(Operand { at: place(cuda, OP, "rows", m)?, dtype: m.dtype(), row: m.cols(), next: width, transposed: false })
}

/// Sums of heads, one below the other, of which each has `rows` rows.
fn sums_of(cuda: &Cuda, m: &Matrix, rows: usize) -> Result<Operand> {
    Ok(Operand {
        at: place(cuda, OP, "sums", m)?,
        dtype: m.dtype(),
        row: m.cols(),
        next: rows * m.cols(),
        transposed: false,
    })
}

impl Cuda {
    /// The same rows in the compute type.
    fn wide(&self, m: &Matrix) -> Result<Matrix> {
        if m.dtype() == m.dtype().compute() {
            return Ok(m.clone());
        }
        let mut to = m.device().uninit(OP, m.rows(), m.cols(), m.dtype().compute(), Tag::Workspace)?;
        self.convert(&mut to, m)?;
        Ok(to)
    }

    /// v ‖ 1.
    fn lay_out_values(&self, s: Sizes, v: &Matrix) -> Result<Matrix> {
        let mut to = s.room(v.device(), s.d + 1)?;
        let count = to.rows() * to.cols();
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(s.dtype), "lay_out_values")?
            .read("v", v)?
            .write("values", &mut to)?
            .arg(count as i64)
            .arg(s.d as i32);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes; so below.
        unsafe { launch.run_each(count) }?;
        Ok(to)
    }

    /// gn ‖ gd.
    fn lay_out_gradients(&self, s: Sizes, saved: &GlobalSaved<'_>) -> Result<Matrix> {
        saved.g.expect(OP, "g", saved.out.rows(), saved.out.cols())?;
        typed(OP, "g", saved.g, s.dtype)?;
        let mut to = s.room(saved.g.device(), s.d + 1)?;
        let count = s.rows * s.heads;
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(s.dtype), "lay_out_gradients")?
            .read("g", saved.g)?
            .read("out", saved.out)?
            .read("den", saved.den)?
            .write("gradients", &mut to)?
            .arg(count as i64)
            .arg(s.d as i32);
        // SAFETY: as above.
        unsafe { launch.run_each(count) }?;
        Ok(to)
    }

    /// `to[h] = Σ_i left_ihᵀ·right_ih`, of which right has d + 1 columns a head.
    fn head_sums(&self, s: Sizes, left: &Matrix, right: &Matrix, to: &mut Matrix) -> Result<()> {
        to.expect(OP, "sums", s.heads * s.m, s.d + 1)?;
        if s.rows == 0 {
            return self.zero(to);
        }
        let left = self.wide(left)?;
        let at = place_mut(self, OP, "sums", to)?;
        let product = Product {
            shape: [s.m, s.d + 1, s.rows],
            batch: s.heads,
            a: heads_of(self, &left, s.m)?.transposed(),
            b: heads_of(self, right, s.d + 1)?,
            to: Operand { at, dtype: to.dtype(), row: s.d + 1, next: s.m * (s.d + 1), transposed: false },
            write: Write::Set,
            ending: Ending::Plain,
            bias: 0,
        };
        // SAFETY: the operands are as large as the sizes say.
        unsafe { self.multiply(OP, &product) }.map(|_| ())
    }

    /// A product of each head's rows, k columns, with its small matrix: n columns a head.
    fn head_rows(&self, s: Sizes, left: &Matrix, k: usize, small: Operand, n: usize) -> Result<Matrix> {
        let mut to = s.room(left.device(), n)?;
        if s.rows == 0 {
            return Ok(to);
        }
        let at = place_mut(self, OP, "rows", &mut to)?;
        let product = Product {
            shape: [s.rows, n, k],
            batch: s.heads,
            a: heads_of(self, left, k)?,
            b: small,
            to: Operand { at, dtype: to.dtype(), row: to.cols(), next: n, transposed: false },
            write: Write::Set,
            ending: Ending::Plain,
            bias: 0,
        };
        // SAFETY: the operands are as large as the sizes say.
        unsafe { self.multiply(OP, &product) }?;
        Ok(to)
    }
}

impl GlobalKernels for Cuda {
    fn global_norms(&self, a: &GlobalRows<'_>, norms: &mut Matrix) -> Result<()> {
        norms.expect(OP, "norms", 1, 2)?;
        let squares = self.square_sums(&[a.q, a.k])?;
        let exact = norms.device().upload(1, 2, &squares, Tag::Workspace)?;
        self.convert(norms, &exact)
    }

    fn global_sums(&self, a: &GlobalRows<'_>, sums: &mut Matrix) -> Result<()> {
        let s = Sizes::of(a);
        let values = self.lay_out_values(s, a.v)?;
        self.head_sums(s, a.k, &values, sums)
    }

    fn global_apply(&self, a: &GlobalRows<'_>, sums: &Matrix, out: &mut Matrix, den: &mut Matrix) -> Result<()> {
        let s = Sizes::of(a);
        let q = self.wide(a.q)?;
        let product = self.head_rows(s, &q, s.m, sums_of(self, sums, s.m)?, s.d + 1)?;
        let count = s.rows * s.heads;
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(s.dtype), "finish")?
            .read("products", &product)?
            .read("v", a.v)?
            .maybe_read("norms", a.scale)?
            .write("out", out)?
            .write("den", den)?
            .arg(count as i64)
            .arg(s.d as i32)
            .arg(a.own)
            .arg(a.own + a.epsilon);
        // SAFETY: as above.
        unsafe { launch.run_each(count) }
    }

    fn global_back_sums(&self, a: &GlobalRows<'_>, saved: &GlobalSaved<'_>, sums: &mut Matrix) -> Result<()> {
        let s = Sizes::of(a);
        let incoming = self.lay_out_gradients(s, saved)?;
        self.head_sums(s, a.q, &incoming, sums)
    }

    fn global_back_rows(
        &self,
        a: &GlobalRows<'_>,
        saved: &GlobalSaved<'_>,
        Totals { sums, back }: Totals<'_>,
        [dq, dk, dv]: [&mut Matrix; 3],
    ) -> Result<()> {
        let s = Sizes::of(a);
        let mut inner = sums.device().uninit(OP, 1, 1, DType::F64, Tag::Workspace)?;
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(s.dtype), "inner_product")?
            .read("sums", sums)?
            .read("sums", back)?
            .write("product", &mut inner)?
            .arg((sums.rows() * sums.cols()) as i64);
        // SAFETY: as above; one block.
        unsafe { launch.run([1, 1], 256, 0) }?;
        let scale = |product: &Matrix, x: &Matrix, which: i32, to: &mut Matrix| -> Result<()> {
            let count = x.rows() * x.cols();
            let launch = self
                .kernel(OP, &SOURCE, Defines::of(s.dtype), "scale_rows")?
                .read("products", product)?
                .read("rows", x)?
                .maybe_read("norms", a.scale)?
                .read("product", &inner)?
                .arg(which)
                .write("gradient", to)?
                .arg(count as i64);
            // SAFETY: as above.
            unsafe { launch.run_each(count) }
        };
        let values = self.lay_out_values(s, a.v)?;
        let product = self.head_rows(s, &values, s.d + 1, sums_of(self, back, s.m)?.transposed(), s.m)?;
        drop(values);
        scale(&product, a.k, 1, dk)?;
        let incoming = self.lay_out_gradients(s, saved)?;
        let product = self.head_rows(s, &incoming, s.d + 1, sums_of(self, sums, s.m)?.transposed(), s.m)?;
        scale(&product, a.q, 0, dq)?;
        let k = self.wide(a.k)?;
        let product = self.head_rows(s, &k, s.m, sums_of(self, back, s.m)?, s.d)?;
        let count = s.rows * s.heads * s.d;
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(s.dtype), "value_gradients")?
            .read("products", &product)?
            .read("gradients", &incoming)?
            .maybe_read("norms", a.scale)?
            .write("dv", dv)?
            .arg(count as i64)
            .arg(s.d as i32)
            .arg(a.own);
        // SAFETY: as above.
        unsafe { launch.run_each(count) }
    }
}
