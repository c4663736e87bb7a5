//! Rows of length one: y = x / max(‖x‖, ε), as `torch.nn.functional.normalize`.
//!
//! Saved are the output and ‖x‖ of each row; dx = (dy − y (y·dy))/‖x‖, or dy/ε where the row is shorter than ε.

use crate::error::Result;
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::tape::{Tape, Var, one_output};

const OP: &str = "l2 norm";
/// Shorter rows are not stretched to length one.
pub const EPSILON: f64 = 1e-12;

kernels! {
    /// What a backend does for it.
    pub trait L2NormKernels {
        /// Overwrites `y` and `norms` (a number per row).
        fn l2_norm(x: &Matrix, y: &mut Matrix, norms: &mut Matrix) -> Result<()> {
            |dry| dry.stream("l2 norm", &[x], &[y, norms])
        }

        /// Turns the gradient of the output in `g` into that of the input.
        fn l2_norm_backward(y: &Matrix, norms: &Matrix, g: &mut Matrix) -> Result<()> {
            |dry| dry.stream("l2 norm backward", &[y, norms, g], &[g])
        }
    }
}

/// Divides each row of `x` by its length.
pub fn l2_norm(tape: &mut Tape, x: &Var) -> Result<Var> {
    let (rows, cols) = x.value().shape();
    let (device, dtype) = (tape.device().clone(), x.value().dtype());
    let mut y = device.uninit(OP, rows, cols, dtype, Tag::Activations)?;
    let mut norms = device.uninit(OP, rows, 1, dtype.compute(), Tag::Activations)?;
    device.backend().l2_norm(x.value(), &mut y, &mut norms)?;
    Ok(tape.push(&[x], y.clone(), || {
        one_output(move |g, grads| {
            let mut g = grads.own(OP, g)?;
            grads.device().backend().l2_norm_backward(&y, &norms, &mut g)?;
            grads.put(0, g)
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::*;

    gradients!(|device| {
        for shape in [(5, 3), (4, 40), (3, 0), (0, 3)] {
            let x = upload(&device, 1, shape, 2.0);
            check(&device, &[x], &[], |tape, x| l2_norm(tape, &x[0])).unwrap();
        }
    });

    agrees_with_f64!(
        [(2, 3), (700, 70), (50, 513)].map(|shape| (
            Case::new(vec![shape], vec![], |tape, x, _| Ok(vec![l2_norm(tape, &x[0])?])),
            1e-6,
            2e-2
        )),
        Case::new(vec![(3000, 70)], vec![], |tape, x, _| Ok(vec![l2_norm(tape, &x[0])?]))
    );

    #[test]
    fn a_row_of_zeros_stays_one() {
        let (device, mut tape) = cpu_tape();
        let x = tape.leaf(device.upload(1, 3, &[0.0f32; 3], Tag::Activations).unwrap());
        let y = l2_norm(&mut tape, &x).unwrap();
        assert_eq!(f64s(y.value()), [0.0; 3]);
        let seed = device.upload(1, 3, &[1e-12f32; 3], Tag::Activations).unwrap();
        let dx = tape.backward(vec![(y, seed)], &[&x], |_| Ok(())).unwrap().remove(0).unwrap();
        assert!(f64s(&dx).iter().all(|x| (x - 1.0).abs() < 1e-6), "dy/ε");
    }
}
