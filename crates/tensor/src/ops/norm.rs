//! Layer normalisation: each row to mean 0 and variance 1, then scaled and shifted by column.
//!
//! x̂ = (x − μ)/σ, y = x̂ ∘ w + b, with the variance of the row itself (not the unbiased one) and ε inside the root, as
//! in PyTorch. Saved are the input and, for each row, μ and 1/σ. Backward, in one pass: with h = dy ∘ w, dx = (h −
//! mean(h) − x̂·mean(h ∘ x̂))/σ, dw = Σ dy ∘ x̂, db = Σ dy.

use std::rc::Rc;

use crate::cpu::scratch;
use crate::dry::present;
use crate::error::Result;
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::dropout::RowDropout;
use crate::ops::residual::Branches;
use crate::parameter::Parameter;
use crate::tape::{Tape, Var, one_output};

const OP: &str = "layer norm";

/// The trained part of a normalisation: scale and shift by column.
#[derive(Clone, Debug)]
pub struct Norm {
    /// 1 × d.
    pub weight: Rc<Parameter>,
    /// 1 × d.
    pub bias: Rc<Parameter>,
    /// Added to the variance.
    pub epsilon: f64,
}

impl Norm {
    /// With PyTorch's ε.
    pub fn new(weight: Rc<Parameter>, bias: Rc<Parameter>) -> Self {
        Self { weight, bias, epsilon: 1e-5 }
    }

    /// Weight and bias on the tape.
    pub(crate) fn on(&self, tape: &mut Tape, op: &'static str, cols: usize) -> Result<[Var; 2]> {
        let vars = [tape.parameter(&self.weight), tape.parameter(&self.bias)];
        vars[0].value().expect(op, "weight", 1, cols)?;
        vars[1].value().expect(op, "bias", 1, cols)?;
        Ok(vars)
    }
}

/// A normalisation's numbers.
pub struct NormNumbers<'a> {
    /// 1 × d.
    pub weight: &'a Matrix,
    /// 1 × d.
    pub bias: &'a Matrix,
    /// Added to the variance.
    pub epsilon: f64,
}

/// What backward needs.
pub struct NormSaved<'a> {
    /// What was normalised.
    pub x: &'a Matrix,
    /// μ and 1/σ of each row.
    pub stats: &'a Matrix,
    /// 1 × d.
    pub weight: &'a Matrix,
}

/// Branches, and where their sum goes.
pub(crate) struct BranchSum<'a> {
    pub(crate) branches: &'a Branches<'a>,
    pub(crate) to: &'a mut Matrix,
}

/// What a norm is written to: `sum` where it is one of branches, whose sum is made on the way.
pub(crate) struct NormTarget<'a> {
    pub(crate) sum: Option<BranchSum<'a>>,
    pub(crate) y: &'a mut Matrix,
    /// μ and 1/σ of each row.
    pub(crate) stats: &'a mut Matrix,
}

/// A copy after a dropout.
pub struct Dropped<'a> {
    /// The dropout.
    pub dropout: &'a RowDropout,
    /// Where the copy goes.
    pub to: &'a mut Matrix,
}

/// What backward of layer norm writes, and what it adds on the way.
pub struct NormGrads<'a> {
    /// The gradient of the output, which becomes that of the input, plus `plus`.
    pub g: &'a mut Matrix,
    /// What the input's gradient was so far.
    pub plus: Option<&'a Matrix>,
    /// Overwritten with the new `g` after a dropout.
    pub dropped: Option<Dropped<'a>>,
    /// Overwritten with the gradient of the weight.
    pub dw: &'a mut Matrix,
    /// Overwritten with the gradient of the bias.
    pub db: &'a mut Matrix,
}

kernels! {
    /// What a backend does for layer norm.
    pub trait NormKernels {
        /// Overwrites `y` and `stats`: μ and 1/σ of each row.
        fn layer_norm(x: &Matrix, norm: &NormNumbers<'_>, y: &mut Matrix, stats: &mut Matrix) -> Result<()> {
            |dry| dry.stream("layer norm", &[x], &[y, stats])
        }

        /// Goes back from the gradient of the output.
        fn layer_norm_backward(saved: &NormSaved<'_>, to: NormGrads<'_>) -> Result<()> {
            |dry|
            let NormGrads { g, plus, dropped, .. } = to;
            let _sums = dry.within(|| scratch::layer_norm_backward(g))?;
            let dropout = dropped.as_ref().map(|dropped| dropped.dropout);
            let read = present([Some(saved.x), Some(saved.stats), Some(g), plus]);
            dry.dropping("layer norm backward", dropout, &read, &present([Some(g), dropped.map(|dropped| &*dropped.to)]))
        }
    }
}

/// Normalises the rows of `x`.
pub fn layer_norm(tape: &mut Tape, x: &Var, norm: &Norm) -> Result<Var> {
    let (rows, cols) = x.value().shape();
    let [weight, bias] = norm.on(tape, OP, cols)?;
    let (device, dtype) = (tape.device().clone(), x.value().dtype());
    let mut y = device.uninit(OP, rows, cols, dtype, Tag::Activations)?;
    let mut stats = device.uninit(OP, rows, 2, dtype.compute(), Tag::Activations)?;
    let numbers = NormNumbers { weight: weight.value(), bias: bias.value(), epsilon: norm.epsilon };
    device.backend().layer_norm(x.value(), &numbers, &mut y, &mut stats)?;
    let kept = KeptNorm { x: x.value().clone(), stats, weight: weight.value().clone() };
    Ok(tape.push(&[x, &weight, &bias], y, || {
        one_output(move |g, grads| {
            let mut g = grads.own(OP, g)?;
            // Where the input went elsewhere too, its gradient so far is added in the same pass.
            let plus = grads.take(0);
            let [dw, db] = kept.backward(&mut g, plus.as_ref(), None)?;
            grads.put(0, g)?;
            grads.put(1, dw)?;
            grads.put(2, db)
        })
    }))
}

/// Kept for backward.
pub(crate) struct KeptNorm {
    /// What was normalised.
    pub(crate) x: Matrix,
    /// μ and 1/σ of each row.
    pub(crate) stats: Matrix,
    /// 1 × d.
    pub(crate) weight: Matrix,
}

impl KeptNorm {
    /// Makes the gradient of the output in `g` that of the input; the gradients of weight and bias.
    pub(crate) fn backward(
        &self,
        g: &mut Matrix,
        plus: Option<&Matrix>,
        dropped: Option<Dropped<'_>>,
    ) -> Result<[Matrix; 2]> {
        let (device, (_, cols)) = (self.x.device(), self.x.shape());
        let new = || device.uninit(OP, 1, cols, self.weight.dtype(), Tag::Gradients);
        let [mut dw, mut db] = [new()?, new()?];
        let saved = NormSaved { x: &self.x, stats: &self.stats, weight: &self.weight };
        device.backend().layer_norm_backward(&saved, NormGrads { g, plus, dropped, dw: &mut dw, db: &mut db })?;
        Ok([dw, db])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::residual::residual;
    use crate::ops::tests::*;

    gradients!(|device| {
        for shape in [(5, 3), (4, 33), (2, 1), (0, 3), (3, 0)] {
            let norm = norm(&device, shape.1);
            let parameters = [norm.weight.clone(), norm.bias.clone()];
            let x = upload(&device, 1, shape, 2.0);
            check(&device, std::slice::from_ref(&x), &parameters, |tape, x| layer_norm(tape, &x[0], &norm)).unwrap();
            // The input is used again, so that its gradient has two parts.
            check(&device, &[x], &parameters, |tape, x| {
                let y = layer_norm(tape, &x[0], &norm)?;
                residual(tape, &x[0], &y, None)
            })
            .unwrap();
        }
    });

    #[test]
    fn rows_have_mean_zero_and_variance_one() {
        let device = Device::cpu();
        let ones = device.upload(1, 50, &[1.0; 50], Tag::Parameters).unwrap();
        let zeros = device.upload(1, 50, &[0.0; 50], Tag::Parameters).unwrap();
        let norm = Norm { epsilon: 0.0, ..Norm::new(Parameter::new("w", ones), Parameter::new("b", zeros)) };
        let mut tape = Tape::new(&device);
        let x = tape.leaf(upload(&device, 3, (20, 50), 7.0));
        for row in f64s(layer_norm(&mut tape, &x, &norm).unwrap().value()).chunks(50) {
            let mean = row.iter().sum::<f64>() / 50.0;
            let variance = row.iter().map(|x| x * x).sum::<f64>() / 50.0;
            assert!(mean.abs() < 1e-14 && (variance - 1.0).abs() < 1e-13);
        }
    }

    fn case(shape: Shape) -> Case {
        Case::new(vec![shape], vec![(1, shape.1), (1, shape.1)], |tape, x, p| {
            Ok(vec![layer_norm(tape, &x[0], &Norm::new(p[0].clone(), p[1].clone()))?])
        })
    }

    agrees_with_f64!(
        [(1, 2), (3, 7), (2000, 40), (600, 128), (70, 513)].map(|shape| (case(shape), 3e-6, 2e-2)),
        case((3000, 100))
    );

    #[test]
    fn a_constant_row_has_no_spread_but_stays_finite() {
        let device = Device::cpu();
        let norm = norm(&device, 4);
        let mut tape = Tape::new(&device);
        let x = tape.leaf(device.upload(1, 4, &[3.0; 4], Tag::Activations).unwrap());
        let y = layer_norm(&mut tape, &x, &norm).unwrap();
        assert_eq!(f64s(y.value()), f64s(&norm.bias.value()));
    }

    #[test]
    fn parameters_must_fit() {
        let device = Device::cpu();
        let norm = norm(&device, 4);
        let mut tape = Tape::new(&device);
        let x = tape.leaf(upload(&device, 1, (2, 5), 1.0));
        assert!(layer_norm(&mut tape, &x, &norm).is_err());
    }
}
