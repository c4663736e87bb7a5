//! Residual connections, fused with what stands beside them in a transformer block.
//!
//! * [`residual`]: x + dropout(z);
//! * [`post_norm`]: LN(x + dropout(z)), the block of the first transformers.
//!
//! Each is one pass over its operands, forward and backward. The norm saves the sum and μ, 1/σ of its rows; the mask of
//! the dropout is computed again. Where nothing is dropped, x and z get the same gradient in the same memory.

use crate::error::Result;
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::dropout::RowDropout;
use crate::ops::norm::{Dropped, KeptNorm, Norm, NormNumbers};
use crate::tape::{Backward, Grads, Tape, Var, one_output};

const OP: &str = "residual";

/// x, z and the dropout of z.
pub struct Branches<'a> {
    /// What goes past the sublayer.
    pub x: &'a Matrix,
    /// What comes out of it.
    pub z: &'a Matrix,
    /// Dropout of z.
    pub dropout: Option<&'a RowDropout>,
}

/// What a sum that is normalised at once is written to.
pub struct NormedSum<'a> {
    /// The sum.
    pub sum: &'a mut Matrix,
    /// The sum, normalised.
    pub y: &'a mut Matrix,
    /// μ and 1/σ of each row.
    pub stats: &'a mut Matrix,
}

kernels! {
    /// What a backend does for residual connections; backward is that of layer norm and of dropout.
    pub trait ResidualKernels {
        /// `sum = x + dropout(z)`.
        fn residual(b: &Branches<'_>, sum: &mut Matrix) -> Result<()> {
            |dry| dry.dropping("residual", b.dropout, &[b.x, b.z], &[sum])
        }

        /// The same and, of the sum, `y` and `stats`, as [`layer_norm`](crate::ops::norm::NormKernels::layer_norm).
        fn residual_norm(b: &Branches<'_>, norm: &NormNumbers<'_>, to: NormedSum<'_>) -> Result<()> {
            |dry| dry.dropping("residual norm", b.dropout, &[b.x, b.z], &[to.sum, to.y, to.stats])
        }
    }
}

/// x + dropout(z).
pub fn residual(tape: &mut Tape, x: &Var, z: &Var, dropout: Option<&RowDropout>) -> Result<Var> {
    let b = branches(x, z, dropout)?;
    let device = tape.device().clone();
    let mut sum = like(x.value(), Tag::Activations)?;
    device.backend().residual(&b, &mut sum)?;
    Ok(tape.push(&[x, z], sum, || ResidualBackward { dropout: b.dropout.cloned() }))
}

/// LN(x + dropout(z)).
pub fn post_norm(tape: &mut Tape, x: &Var, z: &Var, dropout: Option<&RowDropout>, norm: &Norm) -> Result<Var> {
    let b = branches(x, z, dropout)?;
    let [weight, bias] = norm.on(tape, OP, x.value().cols())?;
    let device = tape.device().clone();
    let (mut sum, mut y) = (like(x.value(), Tag::Activations)?, like(x.value(), Tag::Activations)?);
    let mut stats = device.uninit(OP, sum.rows(), 2, sum.dtype().compute(), Tag::Activations)?;
    let numbers = NormNumbers { weight: weight.value(), bias: bias.value(), epsilon: norm.epsilon };
    let to = NormedSum { sum: &mut sum, y: &mut y, stats: &mut stats };
    device.backend().residual_norm(&b, &numbers, to)?;
    let (kept, dropout) = (KeptNorm { x: sum, stats, weight: weight.value().clone() }, b.dropout.cloned());
    Ok(tape.push(&[x, z, &weight, &bias], y, || {
        one_output(move |g, grads| {
            let mut g = grads.own(OP, g)?;
            let mut dz = dropout.as_ref().map(|_| like(&g, Tag::Activations)).transpose()?;
            let dropped = dropout.as_ref().zip(dz.as_mut()).map(|(dropout, to)| Dropped { dropout, to });
            let [dw, db] = kept.backward(&mut g, None, dropped)?;
            grads.put(1, dz.unwrap_or_else(|| g.clone()))?;
            grads.put(0, g)?;
            grads.put(2, dw)?;
            grads.put(3, db)
        })
    }))
}

fn branches<'a>(x: &'a Var, z: &'a Var, dropout: Option<&'a RowDropout>) -> Result<Branches<'a>> {
    let (x, z) = (x.value(), z.value());
    z.expect(OP, "z", x.rows(), x.cols())?;
    if let Some(d) = dropout {
        d.ids.expect(OP, x.rows())?;
    }
    Ok(Branches { x, z, dropout: dropout.filter(|d| d.dropout.is_active()) })
}

fn like(m: &Matrix, tag: Tag) -> Result<Matrix> {
    m.device().uninit(OP, m.rows(), m.cols(), m.dtype(), tag)
}

struct ResidualBackward {
    dropout: Option<RowDropout>,
}

impl Backward for ResidualBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        // z gets it after dropout.
        let dz = match &self.dropout {
            None => g.clone(),
            Some(d) => {
                let mut dz = like(&g, Tag::Activations)?;
                grads.device().backend().dropout(d, &g, &mut dz)?;
                dz
            }
        };
        grads.put(1, dz)?;
        grads.put(0, g)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::dropout::dropout;
    use crate::ops::norm::layer_norm;
    use crate::ops::tests::*;

    gradients!(|device| {
        for shape in [(5, 3), (3, 17), (0, 3), (3, 0)] {
            let inputs = [upload(&device, 1, shape, 1.0), upload(&device, 2, shape, 1.0)];
            let norm = norm(&device, shape.1);
            let parameters = [norm.weight.clone(), norm.bias.clone()];
            for d in [None, Some(half())] {
                let d = d.as_ref();
                check(&device, &inputs, &[], |tape, x| residual(tape, &x[0], &x[1], d)).unwrap();
                check(&device, &inputs, &parameters, |tape, x| post_norm(tape, &x[0], &x[1], d, &norm)).unwrap();
            }
        }
    });

    #[test]
    fn equals_its_parts() {
        let device = Device::cpu();
        let (x, z) = (upload(&device, 1, (70, 40), 1.0), upload(&device, 2, (70, 40), 1.0));
        let norm = norm(&device, 40);
        let mut tape = Tape::new(&device);
        let (x, z) = (tape.leaf(x), tape.leaf(z));
        let dropped = dropout(&mut tape, &z, &half()).unwrap();
        let sum = residual(&mut tape, &x, &dropped, None).unwrap();
        let expected = layer_norm(&mut tape, &sum, &norm).unwrap();
        let s = residual(&mut tape, &x, &z, Some(&half())).unwrap();
        let y = post_norm(&mut tape, &x, &z, Some(&half()), &norm).unwrap();
        assert_eq!(f64s(s.value()), f64s(sum.value()));
        assert_eq!(f64s(y.value()), f64s(expected.value()));
    }

    fn case(shape: Shape) -> Case {
        Case::new(vec![shape; 2], vec![(1, shape.1), (1, shape.1)], |tape, x, p| {
            let norm = Norm::new(p[0].clone(), p[1].clone());
            let post = post_norm(tape, &x[0], &x[1], Some(&half()), &norm)?;
            let plain = residual(tape, &x[0], &x[1], Some(&half()))?;
            Ok(vec![post, plain])
        })
    }

    agrees_with_f64!(
        [(3, 7), (2000, 40), (600, 128), (70, 513)].map(|shape| (case(shape), 3e-6, 4e-2)),
        case((3000, 100))
    );

    #[test]
    fn backward_saves_one_matrix_and_two_numbers_a_row() {
        let device = Device::cpu();
        let (n, d) = (1000, 64);
        let norm = norm(&device, d);
        let up = |seed| upload(&device, seed, (n, d), 1.0);
        let mut tape = Tape::new(&device);
        let (x, z) = (tape.leaf(up(1)), tape.leaf(up(2)));
        let before = device.ledger().now().total();
        let y = post_norm(&mut tape, &x, &z, Some(&half()), &norm).unwrap();
        assert_eq!(device.ledger().now().total() - before, (8 * (n * d + n * d + 2 * n)) as u64);
        drop(y);
        assert_eq!(device.ledger().now().total() - before, (8 * (n * d + 2 * n)) as u64);
    }

    #[test]
    fn shapes_must_agree() {
        let (device, mut tape) = cpu_tape();
        let (x, z) = (tape.leaf(upload(&device, 1, (2, 5), 1.0)), tape.leaf(upload(&device, 1, (2, 4), 1.0)));
        assert!(residual(&mut tape, &x, &z, None).is_err());
        assert!(post_norm(&mut tape, &x, &z, None, &norm(&device, 5)).is_err());
    }
}
