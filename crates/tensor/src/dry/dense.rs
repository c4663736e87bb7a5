//! Dense products, losses and optimizers, rehearsed.

use super::{Dry, Kind};
use crate::cpu::scratch;
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::activation::{Activated, Activation};
use crate::ops::global::{GlobalKernels, GlobalRows, GlobalSaved};
use crate::ops::linear::{LinearKernels, Weights};
use crate::ops::loss::{LossKernels, LossOperands};
use crate::optim::{OptimizerKernels, Slot, Step};

impl Dry {
    fn gemm(&self, op: &'static str, dtype: DType, [m, n, k]: [usize; 3]) -> Result<()> {
        self.tell(op, dtype, false, Kind::Gemm { m, n, k })
    }
}

impl LinearKernels for Dry {
    fn linear(&self, x: &Matrix, layer: &Weights<'_>, _: &mut Matrix, _: Option<&mut Matrix>) -> Result<()> {
        let (out, k) = layer.weight.shape();
        let op = match layer.activation {
            Activation::None => "linear",
            Activation::Gelu => "linear, gelu",
            _ => "linear, activation",
        };
        self.gemm(op, x.dtype(), [x.rows(), out, k])
    }

    fn linear_dx(&self, dy: &Matrix, layer: &Weights<'_>, _: &mut Matrix, add: bool) -> Result<()> {
        let (out, k) = layer.weight.shape();
        self.gemm(if add { "linear dx, added" } else { "linear dx" }, dy.dtype(), [dy.rows(), k, out])
    }

    fn linear_dw(&self, x: &Activated, dy: &Matrix, _: usize, dw: &mut Matrix, _: Option<&mut Matrix>) -> Result<()> {
        let (out, k) = dw.shape();
        if out == 0 {
            return Ok(());
        }
        let _sums = self.within(|| scratch::linear_dw(dw, dy.rows()))?;
        let op = if x.activation == Activation::None { "linear dw" } else { "linear dw, activation" };
        self.gemm(op, dy.dtype(), [out, k, dy.rows()])
    }
}

impl GlobalKernels for Dry {
    fn global_norms(&self, a: &GlobalRows<'_>, norms: &mut Matrix) -> Result<()> {
        self.stream("global norms", &[a.q, a.k], &[norms])
    }

    fn global_sums(&self, a: &GlobalRows<'_>, sums: &mut Matrix) -> Result<()> {
        let _sums = self.within(|| scratch::global_sums(a))?;
        self.gemm("global sums", a.k.dtype(), [sums.rows(), sums.cols(), a.k.rows()])
    }

    fn global_apply(&self, a: &GlobalRows<'_>, sums: &Matrix, _: &mut Matrix, _: &mut Matrix) -> Result<()> {
        self.gemm("global apply", a.q.dtype(), [a.q.rows(), sums.cols(), sums.rows()])
    }

    fn global_back_sums(&self, a: &GlobalRows<'_>, _: &GlobalSaved<'_>, sums: &mut Matrix) -> Result<()> {
        let _sums = self.within(|| scratch::global_sums(a))?;
        self.gemm("global back sums", a.q.dtype(), [sums.rows(), sums.cols(), a.q.rows()])
    }

    fn global_back_rows(
        &self,
        a: &GlobalRows<'_>,
        _: &GlobalSaved<'_>,
        sums: &Matrix,
        _: &Matrix,
        _: [&mut Matrix; 3],
    ) -> Result<()> {
        // Three products of the same size: for dq, dk and dv.
        self.gemm("global back rows", a.q.dtype(), [a.q.rows(), 3 * sums.cols(), sums.rows()])
    }
}

impl LossKernels for Dry {
    fn loss(&self, operands: &LossOperands<'_>, loss: &mut Matrix, gradient: Option<&mut Matrix>) -> Result<()> {
        let (rows, logits) = (operands.rows.rows().len(), operands.logits);
        let read = rows * logits.cols() * logits.dtype().size();
        // The gradient of rows that do not count is zero.
        let written = loss.bytes() + gradient.map_or(0, |g| g.bytes());
        self.tell("loss", logits.dtype(), false, Kind::Stream { read, written, rows })
    }
}

impl OptimizerKernels for Dry {
    fn step(&self, _: &Step, slots: &mut [Slot<'_>]) -> Result<()> {
        let Some(dtype) = slots.first().map(|slot| slot.value.dtype()) else { return Ok(()) };
        let kept = |slot: &Slot<'_>| slot.value.bytes() + slot.state.iter().map(Matrix::bytes).sum::<usize>();
        let written = slots.iter().map(kept).sum();
        let read = written + slots.iter().map(|slot| slot.gradient.bytes()).sum::<usize>();
        self.tell("optimizer", dtype, false, Kind::Stream { read, written, rows: slots.len() })
    }

    fn square_sums(&self, matrices: &[&Matrix]) -> Result<Vec<f64>> {
        self.stream("square sums", matrices, &[])?;
        Ok(vec![0.0; matrices.len()])
    }
}
