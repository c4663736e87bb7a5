//! Products of elements: y = (a + s) ∘ b, with a number s. Backward is the same kernel twice: da = g ∘ b, db = (a + s)
//! ∘ g.

use crate::error::Result;
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::tape::{Tape, Var, one_output};

const OP: &str = "product";

kernels! {
    /// What a backend does for it.
    pub trait ProductKernels {
        /// `y = (a + shift) ∘ b`.
        fn product(a: &Matrix, shift: f64, b: &Matrix, y: &mut Matrix) -> Result<()> {
            |dry| dry.stream("product", &[a, b], &[y])
        }
    }
}

/// (a + shift) ∘ b.
pub fn product(tape: &mut Tape, a: &Var, shift: f64, b: &Var) -> Result<Var> {
    let (a_value, b_value) = (a.value(), b.value());
    b_value.expect(OP, "b", a_value.rows(), a_value.cols())?;
    let y = multiply(a_value, shift, b_value)?;
    Ok(tape.push(&[a, b], y, || {
        let (a, b) = (a_value.clone(), b_value.clone());
        one_output(move |g, grads| {
            if grads.wants(0) {
                grads.put(0, multiply(&g, 0.0, &b)?)?;
            }
            if grads.wants(1) {
                grads.put(1, multiply(&a, shift, &g)?)?;
            }
            Ok(())
        })
    }))
}

fn multiply(a: &Matrix, shift: f64, b: &Matrix) -> Result<Matrix> {
    let device = a.device();
    let mut y = device.uninit(OP, a.rows(), a.cols(), a.dtype(), Tag::Activations)?;
    device.backend().product(a, shift, b, &mut y)?;
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::*;

    gradients!(|device| {
        for shape in [(5, 3), (0, 3), (3, 0)] {
            let inputs = [upload(&device, 1, shape, 1.0), upload(&device, 2, shape, 1.0)];
            check(&device, &inputs, &[], |tape, x| product(tape, &x[0], 0.9, &x[1])).unwrap();
            check(&device, &inputs[..1], &[], |tape, x| product(tape, &x[0], 0.0, &x[0])).unwrap();
        }
    });

    fn case() -> Case {
        Case::new(vec![(700, 70); 2], vec![], |tape, x, _| Ok(vec![product(tape, &x[0], 0.9, &x[1])?]))
    }

    agrees_with_f64!([(case(), 1e-6, 2e-2)], case());

    #[test]
    fn it_is_a_product() {
        let (device, mut tape) = cpu_tape();
        let mut leaf = |x: [f64; 2]| tape.leaf(device.upload(1, 2, &x, Tag::Activations).unwrap());
        let (a, b) = (leaf([1.0, -2.0]), leaf([3.0, 5.0]));
        assert_eq!(f64s(product(&mut tape, &a, 1.0, &b).unwrap().value()), [6.0, -5.0]);
        let tall = tape.leaf(upload(&device, 1, (2, 2), 1.0));
        assert!(product(&mut tape, &a, 1.0, &tall).is_err());
    }
}
