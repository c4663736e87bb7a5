//! y = x·W with a square or rectangular W [in, out]: a product from the right, for parameters that are stored the other
//! way round than a [linear](crate::ops::linear) layer's. The kernels are the linear layer's own, forward and backward
//! exchanged. And y = x·Wᵀ for a W that is computed: the product of each row of x with each of W.

use std::rc::Rc;

use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::activation::{Activated, Activation};
use crate::ops::linear::{Columns, Weights};
use crate::parameter::Parameter;
use crate::tape::{Tape, Var, one_output};

const OP: &str = "product from the right";

/// x·W.
pub fn matmul(tape: &mut Tape, x: &Var, weight: &Rc<Parameter>) -> Result<Var> {
    let weight = tape.parameter(weight);
    times(tape, x, &weight)
}

/// The same with a W that is itself computed.
pub fn times(tape: &mut Tape, x: &Var, weight: &Var) -> Result<Var> {
    let (inputs, outputs) = weight.value().shape();
    x.value().expect(OP, "x", x.value().rows(), inputs)?;
    let device = tape.device().clone();
    let mut y = device.uninit(OP, x.value().rows(), outputs, x.value().dtype(), Tag::Activations)?;
    device.backend().linear_dx(x.value(), &numbers(weight.value()), &mut y, Write::Set)?;
    let saved = [x.value().clone(), weight.value().clone()];
    Ok(tape.push(&[x, weight], y, || {
        one_output(move |g, grads| {
            let [x, weight] = saved;
            let device = grads.device().clone();
            let (rows, cols) = weight.shape();
            let mut dw = device.uninit(OP, rows, cols, weight.dtype(), Tag::Gradients)?;
            device.backend().linear_dw(&Activated::itself(g.clone()), Columns { of: &x, first: 0 }, &mut dw, None)?;
            grads.put(1, dw)?;
            if !grads.wants(0) {
                return Ok(());
            }
            let mut dx = device.uninit(OP, x.rows(), x.cols(), x.dtype(), Tag::Activations)?;
            device.backend().linear(&g, &numbers(&weight), &mut dx, None)?;
            grads.put(0, dx)
        })
    }))
}

/// x·Wᵀ with a W that is itself computed.
pub fn times_rows(tape: &mut Tape, x: &Var, rows: &Var) -> Result<Var> {
    let (outputs, inputs) = rows.value().shape();
    x.value().expect(OP, "x", x.value().rows(), inputs)?;
    let device = tape.device().clone();
    let mut y = device.uninit(OP, x.value().rows(), outputs, x.value().dtype(), Tag::Activations)?;
    device.backend().linear(x.value(), &numbers(rows.value()), &mut y, None)?;
    let saved = [x.value().clone(), rows.value().clone()];
    Ok(tape.push(&[x, rows], y, || {
        one_output(move |g, grads| {
            let [x, rows] = saved;
            let device = grads.device().clone();
            let like = |m: &Matrix, tag| device.uninit(OP, m.rows(), m.cols(), m.dtype(), tag);
            if grads.wants(1) {
                let mut dw = like(&rows, Tag::Gradients)?;
                device.backend().linear_dw(
                    &Activated::itself(x.clone()),
                    Columns { of: &g, first: 0 },
                    &mut dw,
                    None,
                )?;
                grads.put(1, dw)?;
            }
            if !grads.wants(0) {
                return Ok(());
            }
            let mut dx = like(&x, Tag::Activations)?;
            device.backend().linear_dx(&g, &numbers(&rows), &mut dx, Write::Set)?;
            grads.put(0, dx)
        })
    }))
}

fn numbers(weight: &Matrix) -> Weights<'_> {
    Weights { weight, bias: None, activation: Activation::None, first: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::*;

    gradients!(|device| {
        let weight = parameter(&device, "weight", (4, 3), DType::F64);
        let x = upload(&device, 1, (5, 4), 1.0);
        let one = std::slice::from_ref(&x);
        check(&device, one, std::slice::from_ref(&weight), |tape, x| matmul(tape, &x[0], &weight)).unwrap();
        let rows = upload(&device, 2, (6, 4), 1.0);
        check(&device, &[x, rows], &[], |tape, x| times_rows(tape, &x[0], &x[1])).unwrap();
    });

    #[test]
    fn it_is_the_product() {
        let device = Device::cpu();
        let new = |rows, cols, x: &[f64]| device.upload(rows, cols, x, Tag::Activations).unwrap();
        let weight = Parameter::new("w", new(2, 3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let mut tape = Tape::new(&device);
        let x = tape.leaf(new(1, 2, &[1.0, 10.0]));
        assert_eq!(f64s(matmul(&mut tape, &x, &weight).unwrap().value()), [41.0, 52.0, 63.0]);
        let wide = tape.leaf(new(1, 3, &[1.0; 3]));
        assert!(matmul(&mut tape, &wide, &weight).is_err());
        let rows = tape.leaf(new(3, 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        assert_eq!(f64s(times_rows(&mut tape, &x, &rows).unwrap().value()), [21.0, 43.0, 65.0]);
        assert!(times_rows(&mut tape, &wide, &rows).is_err());
    }

    fn case() -> Case {
        Case::new(vec![(700, 40)], vec![(40, 33), (90, 40)], |tape, x, p| {
            let rows = tape.parameter(&p[1]);
            Ok(vec![matmul(tape, &x[0], &p[0])?, times_rows(tape, &x[0], &rows)?])
        })
    }

    agrees_with_f64!([(case(), 5e-6, 2e-2)], case());
}
