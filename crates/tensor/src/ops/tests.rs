//! What the tests of operations share: one case run in every type, on every instruction set, with any number of
//! threads.

use std::rc::Rc;

use crate::cpu::{Cpu, Isa};
use crate::dry::tests::takes_as_much;
use crate::error::Result;
use crate::gradcheck::numbers;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::dropout::RowDropout;
use crate::ops::norm::Norm;
use crate::parameter::Parameter;
use crate::random::{Dropout, Ids};
use crate::tape::{Tape, Var};

pub(crate) use crate::device::Device;
pub(crate) use crate::dtype::DType;
pub(crate) use crate::gradcheck::check;

/// A CPU and an empty tape on it.
pub(crate) fn cpu_tape() -> (Device, Tape) {
    let device = Device::cpu();
    let tape = Tape::new(&device);
    (device, tape)
}

/// Rows and columns, as [`Matrix::shape`] gives them.
pub(crate) type Shape = (usize, usize);

/// Numbers between −`scale` and `scale` in f64.
pub(crate) fn upload(device: &Device, seed: u64, shape: Shape, scale: f64) -> Matrix {
    let (rows, cols) = shape;
    let x: Vec<f64> = numbers(seed, rows * cols).iter().map(|x| scale * x).collect();
    device.upload(rows, cols, &x, Tag::Activations).unwrap()
}

/// A parameter of such numbers.
pub(crate) fn parameter(device: &Device, name: &str, shape: Shape, dtype: DType) -> Rc<Parameter> {
    let m = upload(device, name.len() as u64 + 7, shape, 1.0);
    Parameter::new(name, device.convert("test", &m, dtype).unwrap())
}

/// The parameters of a norm of so many columns, in f64.
pub(crate) fn norm(device: &Device, cols: usize) -> Norm {
    let new = |name| parameter(device, name, (1, cols), DType::F64);
    Norm::new(new("weight"), new("bias"))
}

/// Half of everything is dropped.
pub(crate) fn half() -> RowDropout {
    RowDropout { dropout: Dropout::new(0.5, 1, 2, 3, 4), ids: Ids::Same }
}

/// The elements as f64.
pub(crate) fn f64s(m: &Matrix) -> Vec<f64> {
    m.device().convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap()
}

/// A function of inputs (stored in the type under test) and parameters (in its compute type).
pub(crate) struct Case {
    inputs: Vec<Shape>,
    parameters: Vec<Shape>,
    f: Box<Function>,
}

type Function = dyn Fn(&mut Tape, &[Var], &[Rc<Parameter>]) -> Result<Vec<Var>> + Sync;

impl Case {
    pub(crate) fn new(
        inputs: Vec<Shape>,
        parameters: Vec<Shape>,
        f: impl Fn(&mut Tape, &[Var], &[Rc<Parameter>]) -> Result<Vec<Var>> + Sync + 'static,
    ) -> Self {
        Self { inputs, parameters, f: Box::new(f) }
    }

    /// Outputs, gradients of inputs, gradients of parameters.
    fn run(&self, device: &Device, dtype: DType) -> Vec<Vec<f64>> {
        let mut tape = Tape::new(device);
        let convert = |m: &Matrix, dtype| device.convert("test", m, dtype).unwrap();
        let inputs: Vec<Var> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(k, shape)| {
                // Rounded to bf16 for every type: what differs is the computation, not the input.
                let x = convert(&upload(device, k as u64 + 1, *shape, 2.0), DType::Bf16);
                tape.leaf(convert(&x, dtype))
            })
            .collect();
        let names = ["weight", "bias", "other one"];
        let parameters: Vec<_> = self
            .parameters
            .iter()
            .zip(names)
            .map(|(shape, name)| parameter(device, name, *shape, dtype.compute()))
            .collect();
        let outputs = (self.f)(&mut tape, &inputs, &parameters).unwrap();
        let values: Vec<Matrix> = outputs.iter().map(|v| v.value().clone()).collect();
        let seeds = outputs.into_iter().enumerate().map(|(k, out)| {
            let g = convert(&upload(device, k as u64 + 50, out.value().shape(), 1.0), DType::Bf16);
            let g = convert(&g, out.value().dtype());
            (out, g)
        });
        let leaves: Vec<&Var> = inputs.iter().collect();
        let found = tape.backward(seeds.collect(), &leaves, |_| Ok(())).unwrap();
        let found = found.into_iter().flatten().chain(parameters.iter().filter_map(|p| p.take_grad()));
        values.into_iter().chain(found).map(|m| f64s(&m)).collect()
    }
}

/// f32 and bf16 against f64 on every instruction set, errors relative to the largest element.
pub(crate) fn everywhere(case: &Case, single: f64, half: f64) {
    for dtype in [DType::F64, DType::F32, DType::Bf16] {
        takes_as_much(&format!("{dtype}"), |device| case.run(device, dtype));
    }
    let exact = case.run(&Device::cpu(), DType::F64);
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16] {
        let device = Device::with_backend(Box::new(Cpu::with_isa(isa)));
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, single), (DType::Bf16, half)] {
            near(&format!("{isa} {dtype}"), &case.run(&device, dtype), &exact, tolerance);
        }
    }
}

/// The same on a GPU, where all types also have the same bits every time.
#[cfg(feature = "cuda")]
pub(crate) fn on_a_gpu(case: &Case, single: f64, half: f64) {
    let exact = case.run(&Device::cpu(), DType::F64);
    let device = gpu();
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, single), (DType::Bf16, half)] {
        let found = case.run(&device, dtype);
        near(&format!("cuda {dtype}"), &found, &exact, tolerance);
        assert!(found == case.run(&device, dtype), "{dtype}: other bits the second time");
    }
}

/// The GPU that ignored tests run on, the same for all cases of a test.
#[cfg(feature = "cuda")]
pub(crate) fn gpu() -> Device {
    thread_local! {
        static GPU: Device = Device::with_backend(Box::new(crate::cuda::Cuda::new(0).unwrap()));
    }
    GPU.with(Clone::clone)
}

fn near(who: &str, found: &[Vec<f64>], exact: &[Vec<f64>], tolerance: f64) {
    assert_eq!(found.len(), exact.len());
    for (k, (x, e)) in found.iter().zip(exact).enumerate() {
        assert_eq!(x.len(), e.len());
        let scale = e.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        // A NaN is as far off as can be.
        let off = |(x, e): (&f64, &f64)| Some((x - e).abs()).filter(|d| !d.is_nan()).unwrap_or(f64::INFINITY);
        let worst = x.iter().zip(e).map(off).fold(0.0, f64::max);
        assert!(worst <= tolerance * scale, "{who} result {k}: {worst} of {scale}");
    }
}

/// The test of an operation's gradients: a function of a CPU.
macro_rules! gradients {
    (|$device:ident| $body:block) => {
        #[test]
        fn gradients() {
            let $device = $crate::device::Device::cpu();
            $body
        }
    };
}
pub(crate) use gradients;

/// Two tests of the same cases, each with its tolerances for f32 and bf16: on every instruction set of the CPU, and on
/// a GPU. A third one is of a case of its own, which gives the same bits for any number of threads.
macro_rules! agrees_with_f64 {
    ($cases:expr, $case:expr) => {
        $crate::ops::tests::agrees_with_f64!($cases);

        #[test]
        fn the_same_bits_for_any_number_of_threads() {
            $crate::ops::tests::on_any_threads(&$case);
        }
    };
    ($cases:expr) => {
        #[test]
        fn every_instruction_set_and_type_agrees_with_f64() {
            for (case, single, half) in $cases {
                $crate::ops::tests::everywhere(&case, single, half);
            }
        }

        #[cfg(feature = "cuda")]
        #[test]
        #[ignore = "needs a GPU"]
        fn a_gpu_agrees_with_f64() {
            for (case, single, half) in $cases {
                $crate::ops::tests::on_a_gpu(&case, single, half);
            }
        }
    };
}
pub(crate) use agrees_with_f64;

/// Two tests of each function of a device: on the CPU, and on a GPU.
macro_rules! on_every_device {
    ($($name:ident),*) => {
        mod on_the_cpu {
            $(#[test]
            fn $name() {
                super::$name(&$crate::device::Device::cpu());
            })*
        }

        #[cfg(feature = "cuda")]
        mod on_a_gpu {
            $(#[test]
            #[ignore = "needs a GPU"]
            fn $name() {
                super::$name(&$crate::ops::tests::gpu());
            })*
        }
    };
}
pub(crate) use on_every_device;

/// The same bits with 1, 2 and 3 threads.
pub(crate) fn on_any_threads(case: &Case) {
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| case.run(&Device::cpu(), DType::F32))
    };
    let one = run(1);
    assert!(one.iter().flatten().all(|x| x.is_finite()));
    assert!(one == run(2) && one == run(3));
}
