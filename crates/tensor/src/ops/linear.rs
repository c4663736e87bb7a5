//! Linear layers: y = act(x·Wᵀ + b), with weights as PyTorch stores them ([out, in]).
//!
//! Several layers over the same input write side by side into one output (keys and values, say): one pass over x, one
//! row per node. Forward applies bias and activation to a block of rows while it is in cache. Backward: dx = dy·W, dW =
//! dyᵀ·x, db = Σ dy, where dy has gone back through the activation. GELU's input is kept for that; a layer that follows
//! (the second of a feed-forward network) keeps the same matrix and applies GELU again block by block, instead of
//! keeping GELU's output too.

use std::rc::Rc;

use crate::cpu::scratch;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::activation::{Activated, Activation};
use crate::parameter::Parameter;
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "linear";

/// A weight [out, in] and a bias [1, out].
#[derive(Clone, Debug)]
pub struct Affine {
    /// Out × in.
    pub weight: Rc<Parameter>,
    /// 1 × out.
    pub bias: Option<Rc<Parameter>>,
}

/// A matrix from column `first` on.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// The matrix.
    pub of: &'a Matrix,
    /// The first of the columns.
    pub first: usize,
}

kernels! {
    /// What a backend does for linear layers. `y`, `dy` may be wider than the layer: its columns start at `first`.
    pub trait LinearKernels {
        /// `y[:, first..] = act(x·Wᵀ + b)`; where `pre` is given, it gets the value before the activation.
        fn linear(x: &Matrix, layer: &Weights<'_>, y: &mut Matrix, pre: Option<&mut Matrix>) -> Result<()> {
            |dry|
            let (out, k) = layer.weight.shape();
            let op = match layer.activation {
                Activation::None => "linear",
                Activation::Gelu => "linear, gelu",
                _ => "linear, activation",
            };
            dry.gemm(op, x.dtype(), [x.rows(), out, k])
        }

        /// `dx (+)= dy[:, first..]·W`.
        fn linear_dx(dy: &Matrix, layer: &Weights<'_>, dx: &mut Matrix, write: Write) -> Result<()> {
            |dry|
            let (out, k) = layer.weight.shape();
            let op = match write {
                Write::Set => "linear dx",
                Write::Add => "linear dx, added",
            };
            dry.gemm(op, dy.dtype(), [dy.rows(), k, out])
        }

        /// `dW = dyᵀ·x` and `db = Σ dy`, always overwritten.
        fn linear_dw(x: &Activated, dy: Columns<'_>, dw: &mut Matrix, db: Option<&mut Matrix>) -> Result<()> {
            |dry|
            let dy = dy.of;
            let (out, k) = dw.shape();
            if out == 0 {
                return Ok(());
            }
            let _sums = dry.within(|| scratch::linear_dw(dw, dy.rows()))?;
            let op = if x.activation == Activation::None { "linear dw" } else { "linear dw, activation" };
            dry.gemm(op, dy.dtype(), [out, k, dy.rows()])
        }
    }
}

/// One layer's numbers.
pub struct Weights<'a> {
    /// Out × in.
    pub weight: &'a Matrix,
    /// 1 × out.
    pub bias: Option<&'a Matrix>,
    /// The activation.
    pub activation: Activation,
    /// Where the layer's columns start in y.
    pub first: usize,
}

/// Applies `layers` to `x`, side by side, with elements of type `dtype`.
pub fn linear(tape: &mut Tape, x: &Var, layers: &[Affine], activation: Activation, dtype: DType) -> Result<Var> {
    activation.check(OP)?;
    let (rows, cols) = x.value().shape();
    let mut vars = vec![x.clone()];
    let mut width = 0;
    let mut firsts = Vec::new();
    for layer in layers {
        let weight = tape.parameter(&layer.weight);
        let out = weight.value().rows();
        weight.value().expect(OP, "weight", out, cols)?;
        vars.push(weight);
        if let Some(bias) = &layer.bias {
            let bias = tape.parameter(bias);
            bias.value().expect(OP, "bias", 1, out)?;
            vars.push(bias);
        }
        firsts.push(width);
        width += out;
    }
    let inputs: Vec<&Var> = vars.iter().collect();
    let device = tape.device().clone();
    let new = || device.uninit(OP, rows, width, dtype, Tag::Activations);
    let mut y = new()?;
    let mut pre = if activation.saves_input() && tape.wants(&inputs) { Some(new()?) } else { None };

    let mut at = 1;
    let mut shape = Vec::new();
    for (layer, &first) in layers.iter().zip(&firsts) {
        let weight = at;
        let bias = layer.bias.as_ref().map(|_| at + 1);
        at += 1 + usize::from(bias.is_some());
        let numbers = Weights { weight: vars[weight].value(), bias: bias.map(|b| vars[b].value()), activation, first };
        device.backend().linear(x.value(), &numbers, &mut y, pre.as_mut())?;
        shape.push(Part { weight, bias, first });
    }
    let saved = match activation {
        Activation::None => None,
        _ if activation.saves_input() => pre,
        _ => Some(y.clone()),
    };
    let source = saved.clone().filter(|_| activation.saves_input());
    let y = tape.push(&inputs, y, || LinearBackward {
        x: x.to_save(),
        weights: shape.iter().map(|p| vars[p.weight].value().clone()).collect(),
        parts: shape,
        activation,
        saved,
    });
    Ok(match source {
        Some(of) => y.made_from(Activated { of, activation }),
        None => y,
    })
}

/// Where a layer's numbers are among the inputs of the tape node.
struct Part {
    weight: usize,
    bias: Option<usize>,
    first: usize,
}

struct LinearBackward {
    x: Activated,
    weights: Vec<Matrix>,
    parts: Vec<Part>,
    activation: Activation,
    saved: Option<Matrix>,
}

impl Backward for LinearBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let dy = if self.saved.is_some() { grads.own_output(OP, 0)? } else { grads.output(0) };
        let Some(mut dy) = dy else { return Ok(()) };
        let device = grads.device().clone();
        if let Some(saved) = &self.saved {
            device.backend().activation_backward(self.activation, saved, &mut dy)?;
        }
        drop(self.saved);
        let gradient = |like: (usize, usize), dtype| device.uninit(OP, like.0, like.1, dtype, Tag::Gradients);
        for (part, weight) in self.parts.iter().zip(&self.weights) {
            let mut dw = gradient(weight.shape(), weight.dtype())?;
            let bias = part.bias.filter(|k| grads.wants(*k));
            let mut db = bias.map(|_| gradient((1, weight.rows()), weight.dtype())).transpose()?;
            let columns = Columns { of: &dy, first: part.first };
            device.backend().linear_dw(&self.x, columns, &mut dw, db.as_mut())?;
            grads.put(part.weight, dw)?;
            if let (Some(k), Some(db)) = (bias, db) {
                grads.put(k, db)?;
            }
        }
        if !grads.wants(0) {
            return Ok(());
        }
        let ((rows, cols), dtype) = (self.x.of.shape(), self.x.of.dtype());
        // Its gradient may take its place.
        drop(self.x);
        let (mut dx, mut write) = grads.begin(OP, 0, rows, cols, dtype)?;
        for (part, weight) in self.parts.iter().zip(&self.weights) {
            let numbers = Weights { weight, bias: None, activation: Activation::None, first: part.first };
            device.backend().linear_dx(&dy, &numbers, &mut dx, write)?;
            write = Write::Add;
        }
        grads.put(0, dx)
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::cpu::{Cpu, Isa};
    use crate::device::Device;
    use crate::dry::tests::takes_as_much;
    use crate::gradcheck::{check, numbers};
    use crate::ops::tests::gradients;

    #[test]
    fn a_bias_without_effect_gets_zeros_and_changes_no_other_gradient() {
        let device = Device::cpu();
        let run = |without_effect: bool| {
            let (weight, bias) = (parameter(&device, "weight", 3, 4), parameter(&device, "bias", 1, 3));
            if without_effect {
                bias.set_without_effect();
            }
            let layer = Affine { weight: Rc::clone(&weight), bias: Some(Rc::clone(&bias)) };
            let mut tape = Tape::new(&device);
            let x = tape.leaf(device.upload(5, 4, &numbers(1, 20), Tag::Activations).unwrap());
            let y = linear(&mut tape, &x, &[layer], Activation::None, DType::F64).unwrap();
            let dy = device.upload(5, 3, &numbers(2, 15), Tag::Activations).unwrap();
            let mut heard = Vec::new();
            let dx = tape.backward(vec![(y, dy)], &[&x], |p| {
                heard.push(p.name().to_string());
                Ok(())
            });
            let of = |m: Option<Matrix>| m.unwrap().to_vec::<f64>().unwrap();
            assert_eq!(heard, ["bias", "weight"], "a sum over ranks needs both");
            (of(dx.unwrap().remove(0)), of(weight.take_grad()), of(bias.take_grad()))
        };
        let (seen, unseen) = (run(false), run(true));
        assert_eq!((&seen.0, &seen.1), (&unseen.0, &unseen.1));
        assert!(seen.2.iter().all(|g| *g != 0.0));
        assert_eq!(unseen.2, [0.0; 3]);
    }

    fn parameter(device: &Device, name: &str, rows: usize, cols: usize) -> Rc<Parameter> {
        let values = numbers(name.len() as u64 + 7, rows * cols);
        Parameter::new(name, device.upload(rows, cols, &values, Tag::Parameters).unwrap())
    }

    gradients!(|device| {
        for activation in Activation::EXAMPLES {
            let layer = |name: &str, out| Affine {
                weight: parameter(&device, &format!("{name}.weight"), out, 3),
                bias: Some(parameter(&device, &format!("{name}.b"), 1, out)),
            };
            let layers = [layer("key", 4), Affine { bias: None, ..layer("value", 2) }];
            let parameters: Vec<_> =
                layers.iter().flat_map(|l| [Some(l.weight.clone()), l.bias.clone()]).flatten().collect();
            let x = device.upload(5, 3, &numbers(1, 15), Tag::Activations).unwrap();
            check(&device, &[x], &parameters, |tape, x| linear(tape, &x[0], &layers, activation, DType::F64)).unwrap();
        }
    });

    /// y, dx, dW and db computed in another type or by other instructions.
    fn run(device: &Device, shape: [usize; 3], compute: DType, storage: DType) -> Vec<Vec<f64>> {
        let [rows, k, out] = shape;
        let upload = |seed, r, c, dtype, tag| {
            let m = device.upload(r, c, &numbers(seed, r * c), tag).unwrap();
            device.convert("test", &m, dtype).unwrap()
        };
        let x = upload(1, rows, k, storage, Tag::Activations);
        let layer = Affine {
            weight: Parameter::new("w", upload(2, out, k, compute, Tag::Parameters)),
            bias: Some(Parameter::new("b", upload(3, 1, out, compute, Tag::Parameters))),
        };
        let mut tape = Tape::new(device);
        let x = tape.leaf(x);
        let y = linear(&mut tape, &x, std::slice::from_ref(&layer), Activation::Gelu, storage).unwrap();
        let value = y.value().clone();
        let g = upload(4, rows, out, storage, Tag::Activations);
        let dx = tape.backward(vec![(y, g)], &[&x], |_| Ok(())).unwrap().remove(0).unwrap();
        let dw = layer.weight.take_grad().unwrap();
        let db = layer.bias.unwrap().take_grad().unwrap();
        let f64s = |m: &Matrix| device.convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap();
        [value, dx, dw, db].iter().map(f64s).collect()
    }

    fn agrees_with_f64(device: &Device, shape: [usize; 3]) {
        let exact = run(&Device::cpu(), shape, DType::F64, DType::F64);
        let types =
            [(DType::F64, DType::F64, 1e-12), (DType::F32, DType::F32, 2e-6), (DType::F32, DType::Bf16, 1.5e-2)];
        for (compute, storage, tolerance) in types {
            for (name, (x, e)) in
                ["y", "dx", "dw", "db"].iter().zip(run(device, shape, compute, storage).iter().zip(&exact))
            {
                let scale = e.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
                let worst = x.iter().zip(e).map(|(x, e)| (x - e).abs()).fold(0.0, f64::max);
                assert!(worst <= tolerance * scale, "{device:?} {shape:?} {storage} {name}: {worst} of {scale}");
            }
        }
    }

    const SHAPES: [[usize; 3]; 5] = [[1, 1, 1], [3, 5, 7], [400, 128, 130], [2500, 33, 48], [777, 6, 2]];

    #[test]
    fn every_instruction_set_and_type_agrees_with_f64() {
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16] {
            let device = Device::with_backend(Box::new(Cpu::with_isa(isa)));
            SHAPES.into_iter().for_each(|shape| agrees_with_f64(&device, shape));
        }
        for shape in SHAPES {
            takes_as_much(&format!("{shape:?}"), |device| run(device, shape, DType::F32, DType::Bf16));
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a GPU"]
    fn a_gpu_agrees_with_f64() {
        let device = crate::ops::tests::gpu();
        for shape in SHAPES {
            agrees_with_f64(&device, shape);
            let again = || run(&device, shape, DType::F32, DType::Bf16);
            assert!(again() == again(), "{shape:?}: other bits the second time");
        }
        // Nothing but the bias; no outputs; no rows.
        for shape in [[300, 0, 5], [300, 4, 0], [0, 4, 5]] {
            agrees_with_f64(&device, shape);
        }
    }

    #[test]
    fn what_gelu_made_is_not_kept() {
        let device = Device::cpu();
        let bytes = |activation, keep: bool| {
            let layers = [(6, 9, "first"), (9, 4, "second")]
                .map(|(input, out, name)| Affine { weight: parameter(&device, name, out, input), bias: None });
            let mut tape = Tape::new(&device);
            let x = tape.leaf(device.upload(50, 6, &numbers(1, 300), Tag::Activations).unwrap());
            let h = linear(&mut tape, &x, &layers[..1], activation, DType::F64).unwrap();
            let y = linear(&mut tape, &h, &layers[1..], Activation::None, DType::F64).unwrap();
            let kept = keep.then_some(h);
            let now = device.ledger().now().of(Tag::Activations);
            drop((kept, y));
            now
        };
        let h = 50 * 9 * 8;
        assert_eq!(bytes(Activation::Gelu, true), bytes(Activation::Gelu, false) + h);
        assert_eq!(bytes(Activation::Relu, true), bytes(Activation::Relu, false));
        assert_eq!(bytes(Activation::Gelu, false), bytes(Activation::Relu, false));

        let layers = [(3, 4, "first"), (4, 2, "second")]
            .map(|(input, out, name)| Affine { weight: parameter(&device, name, out, input), bias: None });
        let parameters: Vec<_> = layers.iter().map(|l| l.weight.clone()).collect();
        let x = device.upload(5, 3, &numbers(1, 15), Tag::Activations).unwrap();
        check(&device, &[x], &parameters, |tape, x| {
            let h = linear(tape, &x[0], &layers[..1], Activation::Gelu, DType::F64)?;
            linear(tape, &h, &layers[1..], Activation::None, DType::F64)
        })
        .unwrap();
    }

    #[test]
    fn without_input_columns_the_bias_is_all() {
        for isa in [Isa::Portable, Isa::Avx512, Isa::Avx512Bf16] {
            let device = Device::with_backend(Box::new(Cpu::with_isa(isa)));
            for (compute, storage) in [(DType::F64, DType::F64), (DType::F32, DType::F32), (DType::F32, DType::Bf16)] {
                let [y, dx, dw, db] = run(&device, [300, 0, 5], compute, storage).try_into().unwrap();
                assert!(dx.is_empty() && dw.is_empty() && db.len() == 5, "{isa} {storage}");
                assert!(y.chunks(5).all(|row| row == &y[..5]) && y[..5].iter().any(|x| *x != 0.0), "{isa} {storage}");
                assert!(db.iter().any(|x| *x != 0.0), "{isa} {storage}");
            }
            // No outputs, no rows.
            let nothing = run(&device, [300, 4, 0], DType::F32, DType::F32);
            assert!(nothing[1].iter().all(|x| *x == 0.0) && nothing[1].len() == 1200);
            run(&device, [0, 4, 5], DType::F32, DType::Bf16);
        }
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(&Device::cpu(), [5000, 64, 40], DType::F32, DType::Bf16))
        };
        let one = run(1);
        assert!(one == run(2) && one == run(3));
    }

    #[test]
    fn bf16_rounds_to_nearest_even() {
        assert_eq!(bf16::from_f32(1.003_906_2).to_f32(), 1.0);
    }
}
