//! Whole-matrix operations that touch each element once: conversions, sums, products, activations.

use super::compile::{Defines, Source};
use super::launch::{Launch, THREADS};
use super::{Cuda, source};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::activation::{Activation, ActivationKernels};
use crate::ops::product::ProductKernels;

pub(super) static SOURCE: Source = source!("elementwise");

/// An activation as kernels take it: its number and the slope of a leaky ReLU.
pub(super) fn numbered(activation: Activation) -> (i32, f64) {
    match activation {
        Activation::None => (0, 0.0),
        Activation::Relu => (1, 0.0),
        Activation::LeakyRelu { slope } => (2, slope),
        Activation::Elu => (3, 0.0),
        Activation::Gelu => (4, 0.0),
        Activation::Sigmoid => (5, 0.0),
    }
}

/// Fails unless `m` has elements of this type.
pub(super) fn typed(op: &'static str, what: &'static str, m: &Matrix, dtype: DType) -> Result<()> {
    if m.dtype() == dtype { Ok(()) } else { Err(Error::Type { op, what, got: m.dtype() }) }
}

impl Cuda {
    fn elementwise(&self, op: &'static str, name: &'static str, dtype: DType) -> Result<Launch<'_>> {
        self.kernel(op, &SOURCE, Defines::of(dtype).with("TARGET", 0), name)
    }

    pub(super) fn convert_elements(&self, to: &mut Matrix, from: &Matrix) -> Result<()> {
        const OP: &str = "convert";
        from.expect(OP, "source", to.rows(), to.cols())?;
        let target = match to.dtype() {
            DType::F32 => 0,
            DType::F64 => 1,
            DType::Bf16 => 2,
        };
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(from.dtype()).with("TARGET", target), "convert")?
            .read("source", from)?
            .write("target", to)?;
        // SAFETY: the arguments are those of the kernel; both matrices have so many elements.
        unsafe { over(launch, from) }
    }

    /// `to += x`.
    pub(super) fn add_elements(&self, to: &mut Matrix, x: &Matrix) -> Result<()> {
        const OP: &str = "add";
        x.expect(OP, "addend", to.rows(), to.cols())?;
        typed(OP, "addend", x, to.dtype())?;
        let place = super::place_mut(self, OP, "sum", to)?;
        let launch = self
            .elementwise(OP, "combine", x.dtype())?
            .arg(1.0f64)
            .read("addend", x)?
            .arg(1.0f64)
            .arg(place)
            .arg(place);
        // SAFETY: as above.
        unsafe { over(launch, x) }
    }

    /// `to = a·x`, plus b·y where b and y are given.
    pub(super) fn combine_elements(
        &self,
        op: &'static str,
        a: f64,
        x: &Matrix,
        other: Option<(f64, &Matrix)>,
        to: &mut Matrix,
    ) -> Result<()> {
        x.expect(op, "x", to.rows(), to.cols())?;
        typed(op, "result", to, x.dtype())?;
        if let Some((_, y)) = other {
            y.expect(op, "y", to.rows(), to.cols())?;
            typed(op, "y", y, x.dtype())?;
        }
        let launch = self
            .elementwise(op, "combine", x.dtype())?
            .arg(a)
            .read("x", x)?
            .arg(other.map_or(0.0, |(b, _)| b))
            .maybe_read("y", other.map(|(_, y)| y))?
            .write("result", to)?;
        // SAFETY: as above.
        unsafe { over(launch, x) }
    }

    /// `m = a·m`.
    pub(super) fn scale_elements(&self, op: &'static str, a: f64, m: &mut Matrix) -> Result<()> {
        let place = super::place_mut(self, op, "matrix", m)?;
        let launch = self.elementwise(op, "combine", m.dtype())?.arg(a).arg(place).arg(0.0f64).arg(0u64).arg(place);
        // SAFETY: as above.
        unsafe { over(launch, m) }
    }
}

/// Launches with the number of elements of `like` as the last argument, 16 bytes a thread.
///
/// # Safety
/// As for [`Launch::run`].
unsafe fn over(launch: Launch<'_>, like: &Matrix) -> Result<()> {
    let n = like.rows() * like.cols();
    let vec = 16 / like.dtype().size();
    // SAFETY: passed on.
    unsafe { launch.arg(n as i64).run([n.div_ceil(vec).div_ceil(THREADS), 1], THREADS, 0) }
}

impl ActivationKernels for Cuda {
    fn activate(&self, activation: Activation, x: &Matrix, y: &mut Matrix) -> Result<()> {
        const OP: &str = "activation";
        x.expect(OP, "x", y.rows(), y.cols())?;
        typed(OP, "y", y, x.dtype())?;
        let (number, slope) = numbered(activation);
        let launch =
            self.elementwise(OP, "activate_each", x.dtype())?.arg(number).arg(slope).read("x", x)?.write("y", y)?;
        // SAFETY: as above.
        unsafe { over(launch, x) }
    }

    fn activation_backward(&self, activation: Activation, saved: &Matrix, dy: &mut Matrix) -> Result<()> {
        const OP: &str = "activation";
        saved.expect(OP, "saved", dy.rows(), dy.cols())?;
        typed(OP, "dy", dy, saved.dtype())?;
        let (number, slope) = numbered(activation);
        let launch = self
            .elementwise(OP, "activation_backward", saved.dtype())?
            .arg(number)
            .arg(slope)
            .read("saved", saved)?
            .write("dy", dy)?;
        // SAFETY: as above.
        unsafe { over(launch, saved) }
    }
}

impl ProductKernels for Cuda {
    fn product(&self, a: &Matrix, shift: f64, b: &Matrix, y: &mut Matrix) -> Result<()> {
        const OP: &str = "product";
        for (what, m) in [("a", a), ("b", b)] {
            m.expect(OP, what, y.rows(), y.cols())?;
            typed(OP, what, m, y.dtype())?;
        }
        let launch =
            self.elementwise(OP, "product", y.dtype())?.read("a", a)?.arg(shift).read("b", b)?.write("y", y)?;
        // SAFETY: as above.
        unsafe { over(launch, a) }
    }
}
