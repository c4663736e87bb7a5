//! Products of a row's heads with vectors, in one pass over the rows: l_ih = z_ih·a_h, or that and r_ih = z_ih·b_h.
//!
//! GAT's scores are made of these. Backward, in one pass too: dz_ih = dl_ih·a_h + dr_ih·b_h, da_h = Σ_i dl_ih·z_ih,
//! db_h = Σ_i dr_ih·z_ih.

use crate::cpu::scratch;
use crate::dry::present;
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "products by head";

/// What backward has: the operands, and the gradients of the products.
#[derive(Clone, Copy)]
pub struct HeadDot<'a> {
    /// N × H·C.
    pub z: &'a Matrix,
    /// H × C, each.
    pub vectors: &'a [&'a Matrix],
    /// N × H, of the product with each vector.
    pub g: &'a [&'a Matrix],
}

kernels! {
    /// What a backend does for it, with one vector or two. z has H·C columns, vectors are H × C, products are N × H;
    /// the last two in the compute type.
    pub trait HeadDotKernels {
        /// Overwrites `to` with the products of z with each of `vectors`.
        fn head_dot(z: &Matrix, vectors: &[&Matrix], to: &mut [&mut Matrix]) -> Result<()> {
            |dry| dry.stream("products by head", &[z], &to.iter().map(|m| &**m).collect::<Vec<_>>())
        }

        /// From the gradients of the products: that of z, and overwrites those of the vectors.
        fn head_dot_backward(
            a: &HeadDot<'_>,
            dz: &mut Matrix,
            write: Write,
            to: &mut [&mut Matrix],
        ) -> Result<()> {
            |dry|
            let HeadDot { z, vectors, g } = *a;
            let _sums = dry.within(|| scratch::head_dot_backward(z, vectors.len()))?;
            let held = if write == Write::Add { Some(&*dz) } else { None };
            let read: Vec<&Matrix> = present([Some(z), held]).into_iter().chain(g.iter().copied()).collect();
            dry.stream("products by head backward", &read, &[dz])
        }
    }
}

/// The products of the heads of `z` with the rows of each of one or two `vectors`.
pub fn head_dot<const K: usize>(tape: &mut Tape, z: &Var, vectors: [&Var; K]) -> Result<[Var; K]> {
    let (rows, device) = (z.value().rows(), tape.device().clone());
    let values = vectors.map(Var::value);
    let mut products = Vec::with_capacity(K);
    for vector in values {
        let (heads, width) = vector.shape();
        vector.expect(OP, "vectors", values[0].rows(), values[0].cols())?;
        z.value().expect(OP, "z", rows, heads * width)?;
        products.push(device.uninit(OP, rows, heads, vector.dtype(), Tag::Activations)?);
    }
    device.backend().head_dot(z.value(), &values, &mut products.iter_mut().collect::<Vec<_>>())?;
    let inputs: Vec<&Var> = std::iter::once(z).chain(vectors).collect();
    let count = |products: Vec<Matrix>| Error::Argument { op: OP, problem: format!("{} products", products.len()) };
    let products: [Matrix; K] = products.try_into().map_err(count)?;
    let vectors = values.map(Matrix::clone);
    Ok(tape.push_many(&inputs, products, || HeadDotBackward { z: z.value().clone(), vectors }))
}

struct HeadDotBackward<const K: usize> {
    z: Matrix,
    vectors: [Matrix; K],
}

impl<const K: usize> Backward for HeadDotBackward<K> {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let device = grads.device().clone();
        let new = |m: &Matrix, tag| device.uninit(OP, m.rows(), m.cols(), m.dtype(), tag);
        let (mut incoming, mut found) = (Vec::with_capacity(K), Vec::with_capacity(K));
        for (k, vector) in self.vectors.iter().enumerate() {
            incoming.push(match grads.output(k) {
                Some(g) => g,
                None => device.zeros(OP, self.z.rows(), vector.rows(), vector.dtype(), Tag::Activations)?,
            });
            found.push(new(vector, Tag::Gradients)?);
        }
        let ((rows, cols), dtype) = (self.z.shape(), self.z.dtype());
        let (mut dz, write) = grads.begin(OP, 0, rows, cols, dtype)?;
        let (vectors, incoming) = (self.vectors.each_ref(), incoming.iter().collect::<Vec<_>>());
        let a = HeadDot { z: &self.z, vectors: &vectors, g: &incoming };
        device.backend().head_dot_backward(&a, &mut dz, write, &mut found.iter_mut().collect::<Vec<_>>())?;
        grads.put(0, dz)?;
        found.into_iter().enumerate().try_for_each(|(k, gradient)| grads.put(k + 1, gradient))
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::ops::combine::concat;
    use crate::ops::tests::*;
    use crate::parameter::Parameter;

    fn both(tape: &mut Tape, z: &Var, [a, b]: [&Rc<Parameter>; 2]) -> Result<[Var; 2]> {
        let (a, b) = (tape.parameter(a), tape.parameter(b));
        head_dot(tape, z, [&a, &b])
    }

    gradients!(|device| {
        for (rows, heads, width) in [(5, 3, 4), (4, 1, 33), (0, 2, 3)] {
            let new = |name| parameter(&device, name, (heads, width), DType::F64);
            let [a, b] = [new("a"), new("other")];
            let z = upload(&device, 1, (rows, heads * width), 1.0);
            let vectors = [a.clone(), b.clone()];
            check(&device, std::slice::from_ref(&z), &vectors, |tape, x| {
                let [l, r] = both(tape, &x[0], [&a, &b])?;
                concat(tape, &[&l, &x[0], &r])
            })
            .unwrap();
            // One of the two is not used.
            let one = std::slice::from_ref(&z);
            check(&device, one, &vectors, |tape, x| Ok(both(tape, &x[0], [&a, &b])?[1].clone())).unwrap();
            check(&device, one, &vectors[..1], |tape, x| {
                let a = tape.parameter(&a);
                let [l] = head_dot(tape, &x[0], [&a])?;
                concat(tape, &[&l, &x[0]])
            })
            .unwrap();
        }
    });

    #[test]
    fn equals_its_definition() {
        let device = Device::cpu();
        let (rows, heads, width) = (7, 2, 5);
        let new = |name| parameter(&device, name, (heads, width), DType::F64);
        let [a, b] = [new("a"), new("other")];
        let mut tape = Tape::new(&device);
        let z = tape.leaf(upload(&device, 1, (rows, heads * width), 1.0));
        let found = both(&mut tape, &z, [&a, &b]).unwrap();
        let z = f64s(z.value());
        for (found, vector) in found.iter().zip([a, b]) {
            let vector = f64s(&vector.value());
            for (k, x) in f64s(found.value()).iter().enumerate() {
                let expected: f64 = (0..width).map(|c| z[k * width + c] * vector[k % heads * width + c]).sum();
                assert!((x - expected).abs() < 1e-12);
            }
        }
    }

    fn case([rows, heads, width]: [usize; 3]) -> Case {
        Case::new(vec![(rows, heads * width)], vec![(heads, width); 2], |tape, x, p| {
            Ok(both(tape, &x[0], [&p[0], &p[1]])?.to_vec())
        })
    }

    agrees_with_f64!(
        [[600, 8, 16], [300, 3, 7], [1000, 1, 40]].map(|shape| (case(shape), 5e-6, 2e-2)),
        case([3000, 8, 16])
    );

    #[test]
    fn shapes_must_agree() {
        let device = Device::cpu();
        let new = |cols| parameter(&device, "a", (2, cols), DType::F64);
        let mut tape = Tape::new(&device);
        let z = tape.leaf(upload(&device, 1, (4, 6), 1.0));
        assert!(both(&mut tape, &z, [&new(3), &new(4)]).is_err());
        assert!(both(&mut tape, &z, [&new(4), &new(4)]).is_err());
    }
}
