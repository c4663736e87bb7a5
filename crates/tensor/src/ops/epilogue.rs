//! What comes after an aggregation: mean over heads, sum with a residual branch, bias, activation and dropout, in one
//! pass.
//!
//! y = dropout(act(mean over groups of x + plus + b)), where a row of x is `groups` pieces side by side, each as wide
//! as y. All parts are optional. (After a product, bias and activation belong into [`linear`](crate::ops::linear); this
//! is for rows that an operation over edges has made.)
//!
//! Backward needs the slope of the activation. It is found in the output: where an element was dropped its gradient is
//! zero anyway, elsewhere the output divided by the dropout's scale is what the activation gave. GELU saves its input.

use std::rc::Rc;

use crate::cpu::scratch;
use crate::dry::present;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::activation::Activation;
use crate::ops::dropout::RowDropout;
use crate::parameter::Parameter;
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "epilogue";

/// What is done to rows.
pub struct Ending<'a> {
    /// Pieces that a row of x has the mean of.
    pub groups: usize,
    /// Added to it.
    pub plus: Option<&'a Matrix>,
    /// Added too, 1 × d.
    pub bias: Option<&'a Matrix>,
    /// Then applied.
    pub activation: Activation,
    /// Then applied.
    pub dropout: Option<&'a RowDropout>,
}

/// What backward writes.
pub struct EpilogueGrads<'a> {
    /// The gradient of y, which becomes that of the sum inside.
    pub g: &'a mut Matrix,
    /// Overwritten with the sum of that over rows.
    pub db: Option<&'a mut Matrix>,
}

kernels! {
    /// What a backend does for it.
    pub trait EpilogueKernels {
        /// Overwrites `y`, of the type of `x` or its compute type, and `pre` with what the activation is applied to.
        fn epilogue(ending: &Ending<'_>, x: &Matrix, y: &mut Matrix, pre: Option<&mut Matrix>) -> Result<()> {
            |dry|
            let read = present([Some(x), ending.plus]);
            dry.dropping("epilogue", ending.dropout, &read, &present([Some(y), pre.map(|m| &*m)]))
        }

        /// Goes back from the gradient of y. `saved` is what [`Activation::saves_input`] says: `pre` or y.
        fn epilogue_backward(ending: &Ending<'_>, saved: Option<&Matrix>, to: EpilogueGrads<'_>) -> Result<()> {
            |dry|
            let EpilogueGrads { g, db } = to;
            let _sums = dry.within(|| scratch::epilogue_backward(g, db.as_deref()))?;
            dry.dropping("epilogue backward", ending.dropout, &present([Some(g), saved]), &[g])
        }

        /// `dx`: in each of its `groups` pieces, dy / groups.
        fn spread_groups(dy: &Matrix, groups: usize, dx: &mut Matrix) -> Result<()> {
            |dry| dry.stream("spread groups", &[dy], &[dx])
        }
    }
}

/// The parts of an epilogue on the tape.
#[derive(Clone, Copy, Default)]
pub struct Epilogue<'a> {
    /// Pieces that a row of x has the mean of; 0 and 1 mean the same.
    pub groups: usize,
    /// A residual branch.
    pub plus: Option<&'a Var>,
    /// 1 × d.
    pub bias: Option<&'a Rc<Parameter>>,
    /// The activation.
    pub activation: Activation,
    /// The dropout.
    pub dropout: Option<&'a RowDropout>,
}

/// Applies `parts` to `x`; the output's elements are of type `dtype`: that of x, or its compute type.
pub fn epilogue(tape: &mut Tape, x: &Var, parts: Epilogue<'_>, dtype: DType) -> Result<Var> {
    let Epilogue { groups, plus, bias, activation, dropout } = parts;
    activation.check(OP)?;
    let (groups, dropout) = (groups.max(1), dropout.filter(|d| d.dropout.is_active()));
    let (rows, cols) = (x.value().rows(), x.value().cols() / groups);
    x.value().expect(OP, "x", rows, groups * cols)?;
    if let Some(d) = dropout {
        d.ids.expect(OP, rows)?;
    }
    if let Some(plus) = plus {
        plus.value().expect(OP, "plus", rows, cols)?;
        if plus.value().dtype() != x.value().dtype() {
            return Err(Error::Type { op: OP, what: "plus", got: plus.value().dtype() });
        }
    }
    let kept = x.value().dtype();
    if groups == 1
        && plus.is_none()
        && bias.is_none()
        && activation == Activation::None
        && dropout.is_none()
        && dtype == kept
    {
        return Ok(x.clone());
    }
    let bias = bias.map(|b| tape.parameter(b));
    if let Some(bias) = &bias {
        bias.value().expect(OP, "bias", 1, cols)?;
    }
    let inputs: Vec<&Var> = std::iter::once(x).chain(plus).chain(&bias).collect();
    let device = tape.device().clone();
    let mut y = device.uninit(OP, rows, cols, dtype, Tag::Activations)?;
    let saves = activation.saves_input() && tape.wants(&inputs);
    let mut pre = saves.then(|| device.uninit(OP, rows, cols, dtype, Tag::Activations)).transpose()?;
    let ending =
        Ending { groups, plus: plus.map(Var::value), bias: bias.as_ref().map(Var::value), activation, dropout };
    device.backend().epilogue(&ending, x.value(), &mut y, pre.as_mut())?;
    let saved = match activation {
        Activation::None => None,
        _ if activation.saves_input() => pre,
        _ => Some(y.clone()),
    };
    let (has_plus, bias) = (plus.is_some(), bias.as_ref().map(|b| b.value().dtype()));
    let dropout = dropout.cloned();
    Ok(tape.push(&inputs, y, || EpilogueBackward { groups, plus: has_plus, bias, activation, dropout, saved, kept }))
}

struct EpilogueBackward {
    groups: usize,
    plus: bool,
    /// Its type.
    bias: Option<DType>,
    activation: Activation,
    dropout: Option<RowDropout>,
    saved: Option<Matrix>,
    /// Type of x.
    kept: DType,
}

impl Backward for EpilogueBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let changes = self.saved.is_some() || self.dropout.is_some();
        let bias_at = 1 + usize::from(self.plus);
        let bias = self.bias.filter(|_| grads.wants(bias_at));
        let g = if changes || bias.is_some() { grads.own_output(OP, 0)? } else { grads.output(0) };
        let Some(mut g) = g else { return Ok(()) };
        let device = grads.device().clone();
        let (rows, cols) = g.shape();
        let mut db = bias.map(|dtype| device.uninit(OP, 1, cols, dtype, Tag::Gradients)).transpose()?;
        if changes || db.is_some() {
            let ending = Ending {
                groups: 1,
                plus: None,
                bias: None,
                activation: self.activation,
                dropout: self.dropout.as_ref(),
            };
            device.backend().epilogue_backward(
                &ending,
                self.saved.as_ref(),
                EpilogueGrads { g: &mut g, db: db.as_mut() },
            )?;
        }
        if g.dtype() != self.kept {
            g = device.convert(OP, &g, self.kept)?;
        }
        if let Some(db) = db {
            grads.put(bias_at, db)?;
        }
        if self.plus {
            grads.put(1, g.clone())?;
        }
        if self.groups == 1 || !grads.wants(0) {
            return grads.put(0, g);
        }
        let mut dx = device.uninit(OP, rows, self.groups * cols, g.dtype(), Tag::Activations)?;
        device.backend().spread_groups(&g, self.groups, &mut dx)?;
        grads.put(0, dx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::activation::activate;
    use crate::ops::dropout::dropout;
    use crate::ops::residual::residual;
    use crate::ops::tests::*;

    gradients!(|device| {
        for (activation, groups) in Activation::EXAMPLES.into_iter().flat_map(|a| [(a, 1), (a, 3)]) {
            for (rows, with_bias, with_plus, drop) in
                [(5, true, true, true), (5, true, false, false), (4, false, true, true), (0, true, true, true)]
            {
                let inputs = [upload(&device, 1, (rows, groups * 4), 2.0), upload(&device, 2, (rows, 4), 2.0)];
                let bias = parameter(&device, "bias", (1, 4), DType::F64);
                let half = half();
                check(&device, &inputs, std::slice::from_ref(&bias), |tape, x| {
                    let parts = Epilogue {
                        groups,
                        plus: with_plus.then_some(&x[1]),
                        bias: with_bias.then_some(&bias),
                        activation,
                        dropout: drop.then_some(&half),
                    };
                    epilogue(tape, &x[0], parts, DType::F64)
                })
                .unwrap();
            }
        }
    });

    #[test]
    fn equals_its_parts() {
        let device = Device::cpu();
        let bias = parameter(&device, "bias", (1, 40), DType::F64);
        let mut tape = Tape::new(&device);
        let (x, z) = (tape.leaf(upload(&device, 1, (70, 40), 1.0)), tape.leaf(upload(&device, 2, (70, 40), 1.0)));
        let row = f64s(&bias.value());
        let biased: Vec<f64> = f64s(z.value()).iter().enumerate().map(|(k, z)| z + row[k % 40]).collect();
        let biased = tape.leaf(device.upload(70, 40, &biased, Tag::Activations).unwrap());
        let sum = residual(&mut tape, &x, &biased, None).unwrap();
        let active = activate(&mut tape, &sum, Activation::Elu).unwrap();
        let expected = f64s(dropout(&mut tape, &active, &half()).unwrap().value());
        let half = half();
        let parts = Epilogue {
            plus: Some(&z),
            bias: Some(&bias),
            activation: Activation::Elu,
            dropout: Some(&half),
            ..Epilogue::default()
        };
        let found = f64s(epilogue(&mut tape, &x, parts, DType::F64).unwrap().value());
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12));
    }

    fn case(shape: Shape, groups: usize, activation: Activation) -> Case {
        let inputs = vec![(shape.0, groups * shape.1), shape];
        Case::new(inputs, vec![(1, shape.1)], move |tape, x, p| {
            let half = half();
            let parts = Epilogue { groups, plus: Some(&x[1]), bias: Some(&p[0]), activation, dropout: Some(&half) };
            let dtype = x[0].value().dtype();
            let plain = Epilogue { groups, ..Epilogue::default() };
            Ok(vec![epilogue(tape, &x[0], parts, dtype)?, epilogue(tape, &x[0], plain, dtype.compute())?])
        })
    }

    agrees_with_f64!(
        Activation::EXAMPLES
            .into_iter()
            .flat_map(|a| [case((600, 40), 1, a), case((70, 13), 8, a)].map(|case| (case, 5e-6, 4e-2))),
        case((3000, 100), 2, Activation::Elu)
    );

    #[test]
    fn nothing_to_do_costs_nothing() {
        let (device, mut tape) = cpu_tape();
        let x = tape.leaf(upload(&device, 1, (4, 6), 1.0));
        let before = device.ledger().now();
        let y = epilogue(&mut tape, &x, Epilogue::default(), DType::F64).unwrap();
        assert_eq!((f64s(y.value()), device.ledger().now()), (f64s(x.value()), before));
    }

    #[test]
    fn shapes_must_agree() {
        let (device, mut tape) = cpu_tape();
        let (x, z) = (tape.leaf(upload(&device, 1, (4, 6), 1.0)), tape.leaf(upload(&device, 1, (4, 5), 1.0)));
        let bias = parameter(&device, "bias", (1, 5), DType::F64);
        let none = Epilogue::default();
        assert!(epilogue(&mut tape, &x, Epilogue { groups: 4, ..none }, DType::F64).is_err());
        assert!(epilogue(&mut tape, &x, Epilogue { plus: Some(&z), ..none }, DType::F64).is_err());
        assert!(epilogue(&mut tape, &x, Epilogue { bias: Some(&bias), ..none }, DType::F64).is_err());
    }
}
