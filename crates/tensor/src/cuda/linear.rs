//! Linear layers on the GPU.
//!
//! Where rows are stored as bf16, products are of bf16 operands with sums in f32: the weights are rounded for it, their
//! gradients are f32 as they are.

use std::borrow::Cow;
use std::ops::Range;

use super::activation::numbered;
use super::blas::{Ending, Operand, Product};
use super::compile::Source;
use super::launch::THREADS;
use super::shape::{Parts, RowShape};
use super::{Cuda, place, place_mut, source};
use crate::backend::Memory;
use crate::dtype::DType;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::activation::{Activated, Activation, ActivationKernels};
use crate::ops::linear::{Columns, LinearKernels, Weights};

const OP: &str = "linear";
pub(super) static SOURCE: Source =
    source!("linear", ["numbers", "lanes", "random", "activation", "row_shape", "sum_columns"]);

impl Cuda {
    /// The end of a product in these columns of `y`: what is there (or in `pre`), plus a bias, goes to `pre`, its
    /// activation to `y`.
    pub(super) fn finish_product(
        &self,
        op: &'static str,
        bias: Option<&Matrix>,
        activation: Activation,
        columns: Range<usize>,
        y: &mut Matrix,
        pre: Option<&mut Matrix>,
    ) -> Result<()> {
        let ((rows, width), dtype, first, cols) = (y.shape(), y.dtype(), columns.start, columns.len());
        let shape = RowShape::strided(rows, cols, dtype, &[width, first]);
        let (number, slope) = numbered(activation);
        let place = place_mut(self, op, "y", y)?;
        let pre = pre.map(|m| place_mut(self, op, "pre", m)).transpose()?;
        let launch = self
            .kernel(op, &SOURCE, shape.defines(dtype), "finish")?
            .arg(pre.unwrap_or(place))
            .maybe_read("bias", bias)?
            .arg(place)
            // Without a bias it is what it will be.
            .arg(pre.filter(|_| bias.is_some()).unwrap_or(0))
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(width as i32)
            .arg(first as i32)
            .arg(number)
            .arg(slope);
        // SAFETY: the arguments are those of the kernel; columns are inside y, and pre is as large.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }

    /// `to = Σ x` over rows, of as many columns as `to` has, from `first` on.
    pub(super) fn column_sums(&self, op: &'static str, x: &Matrix, first: usize, to: &mut Matrix) -> Result<()> {
        let ((rows, width), cols, dtype) = (x.shape(), to.rows() * to.cols(), x.dtype());
        let (parts, shape) = (Parts::of(rows), RowShape::strided(rows, cols, dtype, &[width, first]));
        let mut partial = parts.room(x.device(), op, cols, dtype.compute())?;
        let launch = self
            .kernel(op, &SOURCE, shape.defines(dtype), "column_sums")?
            .read("rows", x)?
            .write("partial sums", &mut partial)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(parts.rows as i64)
            .arg(width as i32)
            .arg(first as i32);
        // SAFETY: the arguments are those of the kernel; the columns are inside x, a block has a row of partial sums.
        unsafe { launch.run([parts.count, 1], THREADS, 0) }?;
        self.add_parts(op, &partial, 0, to)
    }

    /// The same numbers as elements of this type.
    fn of_type<'a>(&self, m: &'a Matrix, dtype: DType) -> Result<Cow<'a, Matrix>> {
        if m.dtype() == dtype {
            return Ok(Cow::Borrowed(m));
        }
        let mut to = m.device().uninit(OP, m.rows(), m.cols(), dtype, Tag::Workspace)?;
        self.convert(&mut to, m)?;
        Ok(Cow::Owned(to))
    }

    /// A matrix in a product, from column `first` on.
    fn operand(&self, what: &'static str, m: &Matrix, first: usize) -> Result<Operand> {
        let at = place(self, OP, what, m)? + (first * m.dtype().size()) as u64;
        Ok(Operand { at, dtype: m.dtype(), row: m.cols().max(1), next: 0, transposed: false })
    }

    /// The same for the result.
    fn target(&self, what: &'static str, m: &mut Matrix, first: usize) -> Result<Operand> {
        let at = place_mut(self, OP, what, m)? + (first * m.dtype().size()) as u64;
        Ok(Operand { at, dtype: m.dtype(), row: m.cols().max(1), next: 0, transposed: false })
    }
}

/// The type in which two matrices meet: bf16 if one of them is that.
fn meeting(a: DType, b: DType) -> DType {
    if a == DType::Bf16 { a } else { b }
}

impl LinearKernels for Cuda {
    fn linear(&self, x: &Matrix, layer: &Weights<'_>, y: &mut Matrix, mut pre: Option<&mut Matrix>) -> Result<()> {
        let ((n, k), rows, activation) = (layer.weight.shape(), x.rows(), layer.activation);
        if rows * n == 0 {
            return Ok(());
        }
        let columns = layer.first..layer.first + n;
        if k == 0 {
            self.zero(y)?;
            if let Some(pre) = pre.as_deref_mut() {
                self.zero(pre)?;
            }
            return self.finish_product(OP, layer.bias, activation, columns, y, pre);
        }
        let dtype = meeting(x.dtype(), y.dtype());
        let (x, weight) = (self.of_type(x, dtype)?, self.of_type(layer.weight, dtype)?);
        // f64 has no endings.
        let bias = layer.bias.filter(|_| dtype != DType::F64).map(|b| self.of_type(b, y.dtype())).transpose()?;
        let ending = match (bias.is_some(), activation == Activation::Relu && dtype != DType::F64) {
            (true, true) => Ending::BiasRelu,
            (true, false) => Ending::Bias,
            (false, true) => Ending::Relu,
            (false, false) => Ending::Plain,
        };
        let product = Product {
            shape: [rows, n, k],
            batch: 1,
            a: self.operand("x", &x, 0)?,
            b: self.operand("weight", &weight, 0)?.transposed(),
            to: self.target("y", pre.as_deref_mut().unwrap_or(y), layer.first)?,
            write: Write::Set,
            ending,
            bias: bias.as_deref().map_or(Ok(0), |b| place(self, OP, "bias", b))?,
        };
        // SAFETY: x is rows × k, the weight n × k, and y has n columns from `first` on: the operation checked it.
        let ended = unsafe { self.multiply(OP, &product) }?;
        let left_bias = layer.bias.filter(|_| !ended || bias.is_none());
        let left =
            if ended && activation == Activation::Relu && dtype != DType::F64 { Activation::None } else { activation };
        if left_bias.is_none() && left == Activation::None && pre.is_none() {
            return Ok(());
        }
        self.finish_product(OP, left_bias, left, columns, y, pre)
    }

    fn linear_dx(&self, dy: &Matrix, layer: &Weights<'_>, dx: &mut Matrix, write: Write) -> Result<()> {
        let ((k, n), rows) = (layer.weight.shape(), dx.rows());
        if rows * n == 0 {
            return Ok(());
        }
        if k == 0 {
            return match write {
                Write::Set => self.zero(dx),
                Write::Add => Ok(()),
            };
        }
        let dtype = meeting(dy.dtype(), dx.dtype());
        let (dy, weight) = (self.of_type(dy, dtype)?, self.of_type(layer.weight, dtype)?);
        let product = Product {
            shape: [rows, n, k],
            batch: 1,
            a: self.operand("dy", &dy, layer.first)?,
            b: self.operand("weight", &weight, 0)?,
            to: self.target("dx", dx, 0)?,
            write,
            ending: Ending::Plain,
            bias: 0,
        };
        // SAFETY: dy has k columns from `first` on, the weight is k × n, dx rows × n.
        unsafe { self.multiply(OP, &product) }.map(|_| ())
    }

    fn linear_dw(&self, x: &Activated, dy: Columns<'_>, dw: &mut Matrix, db: Option<&mut Matrix>) -> Result<()> {
        let Columns { of: dy, first } = dy;
        let ((out, k), rows) = (dw.shape(), dy.rows());
        if let Some(db) = db {
            self.column_sums(OP, dy, first, db)?;
        }
        if out * k == 0 {
            return Ok(());
        }
        if rows == 0 {
            return self.zero(dw);
        }
        let mut activated = Cow::Borrowed(&x.of);
        if x.activation != Activation::None {
            let mut to = dw.device().uninit(OP, rows, k, x.of.dtype(), Tag::Workspace)?;
            self.activate(x.activation, &x.of, &mut to)?;
            activated = Cow::Owned(to);
        }
        let dtype = meeting(x.of.dtype(), dy.dtype());
        let (x, dy) = (self.of_type(&activated, dtype)?, self.of_type(dy, dtype)?);
        let product = Product {
            shape: [out, k, rows],
            batch: 1,
            a: self.operand("dy", &dy, first)?.transposed(),
            b: self.operand("x", &x, 0)?,
            to: self.target("dw", dw, 0)?,
            write: Write::Set,
            ending: Ending::Plain,
            bias: 0,
        };
        // SAFETY: dy has `out` columns from `first` on, x is rows × k, dw is out × k.
        unsafe { self.multiply(OP, &product) }.map(|_| ())
    }
}
