//! Kernels from outside of this crate: an operation in one file, for every device.
//!
//! A [`Kernel`] computes a matrix from others in host memory. The CPU runs it as it is; a GPU works on a copy, so that
//! a new operation is right everywhere before it is fast everywhere. To be fast there too, a kernel says its
//! [half for GPUs](Kernel::gpu), CUDA C++ in a file beside it. It is rehearsed under its own name, as a pass over all
//! that it reads and writes.
//!
//! ```
//! use graphweft_tensor::cpu::{host, host_mut};
//! use graphweft_tensor::ops::custom::{Kernel, custom};
//! use graphweft_tensor::{Backward, Device, Grads, Matrix, Result, Tag, Tape, Var};
//!
//! /// y = x²
//! fn square(tape: &mut Tape, x: &Var) -> Result<Var> {
//!     let y = custom(&Square, &[x.value()], x.value().rows(), x.value().cols())?;
//!     let x_value = x.value().clone();
//!     Ok(tape.push(&[x], y, || SquareBackward { x: x_value }))
//! }
//!
//! struct Square;
//!
//! impl Kernel for Square {
//!     fn name(&self) -> &'static str {
//!         "square"
//!     }
//!
//!     fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
//!         let x = host::<f64>("square", "x", from[0])?;
//!         host_mut::<f64>("square", "y", to)?.iter_mut().zip(x).for_each(|(y, x)| *y = x * x);
//!         Ok(())
//!     }
//! }
//!
//! struct SquareBackward {
//!     x: Matrix,
//! }
//!
//! impl Backward for SquareBackward {
//!     fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
//!         let Some(dy) = grads.output(0) else { return Ok(()) };
//!         grads.put(0, custom(&TwiceTheProduct, &[&self.x, &dy], self.x.rows(), self.x.cols())?)
//!     }
//! }
//!
//! struct TwiceTheProduct;
//!
//! impl Kernel for TwiceTheProduct {
//!     fn name(&self) -> &'static str {
//!         "square backward"
//!     }
//!
//!     fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
//!         let (x, dy) = (host::<f64>("square", "x", from[0])?, host::<f64>("square", "dy", from[1])?);
//!         let dx = host_mut::<f64>("square", "dx", to)?;
//!         dx.iter_mut().zip(x.iter().zip(dy)).for_each(|(dx, (x, dy))| *dx = 2.0 * x * dy);
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let device = Device::cpu();
//! let x = device.upload(1, 3, &[1.0, 2.0, 3.0], Tag::Activations)?;
//! // The gradient is the one that finite differences find.
//! graphweft_tensor::gradcheck::check(&device, &[x], &[], |tape, x| square(tape, &x[0])).unwrap();
//! # Ok(())
//! # }
//! ```

use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;

/// Computes a matrix from others, in host memory.
pub trait Kernel {
    /// Its name, for messages and for what is told of its time.
    fn name(&self) -> &'static str;

    /// Overwrites `to`. Elements are reached by [`host`](crate::cpu::host) and [`host_mut`](crate::cpu::host_mut).
    ///
    /// # Errors
    /// Of the kernel: types that it has no code for, say.
    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()>;

    /// The same for GPUs; without it they work on copies in host memory.
    fn gpu(&self) -> Option<GpuKernel> {
        None
    }
}

/// A kernel in CUDA C++, with a thread for each element of what it makes.
///
/// Its parameters are those of the operands, of the result, and its [numbers](GpuKernel::number): for each matrix
/// `const T *x, i64 rows, i32 cols` (`T *to` for the result), for each number `double`. `T` is the type of all
/// matrices, `C` the one to compute in; `load`, `store`, `thread_number` and the functions of `cuda/numbers.cuh` are
/// there. It is compiled when it is first needed, and kept on disk.
///
/// ```
/// use graphweft_tensor::ops::custom::GpuKernel;
///
/// const SQUARE: &str = r#"
/// extern "C" __global__ void square(const T *x, i64, i32, T *y, i64 rows, i32 cols) {
///     i64 at = thread_number();
///     if (at < rows * cols) y[at] = store<T>(load(x[at]) * load(x[at]));
/// }
/// "#;
/// // SAFETY: these are the parameters of one operand and the result, and `at` is inside of both.
/// let gpu = unsafe { GpuKernel::new(SQUARE, "square") };
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "builds without GPUs have nothing that runs it"))]
pub struct GpuKernel {
    pub(crate) text: &'static str,
    pub(crate) function: &'static str,
    pub(crate) numbers: Vec<f64>,
}

impl GpuKernel {
    /// The kernel `function` of a text.
    ///
    /// # Safety
    /// The kernel must have the parameters that are said above, and must stay inside the matrices that it is given.
    pub unsafe fn new(text: &'static str, function: &'static str) -> Self {
        Self { text, function, numbers: Vec::new() }
    }

    /// One more number, behind the matrices.
    pub fn number(mut self, x: f64) -> Self {
        self.numbers.push(x);
        self
    }
}

kernels! {
    /// What a backend does with kernels that it does not know.
    pub trait CustomKernels {
        /// Runs `kernel`; its half for GPUs there, or on a copy in host memory.
        fn custom(kernel: &dyn Kernel, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
            |dry| dry.stream(kernel.name(), from, &[to])
        }
    }
}

/// What `kernel` makes of `from`: a matrix of `rows` × `cols`, of the type and on the device of the first.
///
/// # Errors
/// Of the kernel; if there is no first matrix; if memory is short.
pub fn custom(kernel: &dyn Kernel, from: &[&Matrix], rows: usize, cols: usize) -> Result<Matrix> {
    let op = kernel.name();
    let first = from.first().ok_or_else(|| Error::Argument { op, problem: "it is given no matrix".into() })?;
    let device = first.device().clone();
    let mut to = device.uninit(op, rows, cols, first.dtype(), Tag::Activations)?;
    device.backend().custom(kernel, from, &mut to)?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{host, host_mut};
    use crate::device::Device;
    use crate::dry::tests::takes_as_much;
    use crate::ops::graphs::f64s;
    use crate::ops::tests::on_every_device;

    on_every_device!(is_computed);

    struct Sum;

    const SUM: &str = r#"
extern "C" __global__ void sum(const T *a, i64, i32, const T *b, i64, i32, T *to, i64 rows, i32 cols, double factor) {
    i64 at = thread_number();
    if (at < rows * cols) to[at] = store<T>((C)factor * (load(a[at]) + load(b[at])));
}
"#;

    impl Kernel for Sum {
        fn name(&self) -> &'static str {
            "sum of two"
        }

        fn gpu(&self) -> Option<GpuKernel> {
            // SAFETY: two operands of the result's size, and a number.
            Some(unsafe { GpuKernel::new(SUM, "sum") }.number(1.0))
        }

        fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
            let (a, b) = (host::<f64>(self.name(), "a", from[0])?, host::<f64>(self.name(), "b", from[1])?);
            let to = host_mut::<f64>(self.name(), "sum", to)?;
            to.iter_mut().zip(a.iter().zip(b)).for_each(|(to, (a, b))| *to = a + b);
            Ok(())
        }
    }

    /// The same without a half for GPUs.
    struct OnCopies;

    impl Kernel for OnCopies {
        fn name(&self) -> &'static str {
            Sum.name()
        }

        fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
            Sum.compute(from, to)
        }
    }

    fn is_computed(device: &Device) {
        let up = |x: [f64; 4]| device.upload(2, 2, &x, Tag::Activations).unwrap();
        for kernel in [&Sum as &dyn Kernel, &OnCopies] {
            let sum = custom(kernel, &[&up([1.0, 2.0, 3.0, 4.0]), &up([0.5; 4])], 2, 2).unwrap();
            assert_eq!(f64s(&sum), [1.5, 2.5, 3.5, 4.5]);
        }
    }

    #[test]
    fn it_takes_what_it_gives_and_fails_as_it_should() {
        takes_as_much("custom", |device| {
            let x = device.upload(3, 2, &[1.0f64; 6], Tag::Activations).unwrap();
            custom(&Sum, &[&x, &x], 3, 2).unwrap()
        });
        let single = Device::cpu().upload(1, 1, &[1f32], Tag::Activations).unwrap();
        assert!(custom(&Sum, &[&single, &single], 1, 1).is_err() && custom(&Sum, &[], 1, 1).is_err());
    }
}
