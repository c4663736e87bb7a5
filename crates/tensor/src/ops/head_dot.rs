//! Products of a row's heads with vectors: l_ih = z_ih·a_h and r_ih = z_ih·b_h, both in one pass over z.
//!
//! GAT's scores are made of these. Backward, in one pass too: dz_ih = dl_ih·a_h + dr_ih·b_h, da_h = Σ_i dl_ih·z_ih,
//! db_h = Σ_i dr_ih·z_ih.

use std::rc::Rc;

use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::tape::{Backward, Grads, Parameter, Tape, Var};

const OP: &str = "products by head";

/// What a backend does for it. z has H·C columns, vectors are H × C, products are N × H; the last two in the compute type.
pub trait HeadDotKernels {
    /// Overwrites `to` with the products of z with each of `vectors`.
    fn head_dot(&self, z: &Matrix, vectors: [&Matrix; 2], to: [&mut Matrix; 2]) -> Result<()>;

    /// From the gradients `g` of the products: that of z, and overwrites those of the vectors.
    fn head_dot_backward(
        &self,
        z: &Matrix,
        vectors: [&Matrix; 2],
        g: [&Matrix; 2],
        dz: (&mut Matrix, Write),
        to: [&mut Matrix; 2],
    ) -> Result<()>;
}

/// The products of the heads of `z` with the rows of each of two vectors.
pub fn head_dot(tape: &mut Tape, z: &Var, vectors: [&Rc<Parameter>; 2]) -> Result<[Var; 2]> {
    let vars = vectors.map(|v| tape.parameter(v));
    let [a, b] = [vars[0].value(), vars[1].value()];
    let (heads, width) = a.shape();
    let (rows, dtype, device) = (z.value().rows(), a.dtype(), tape.device().clone());
    b.expect(OP, "vectors", heads, width)?;
    z.value().expect(OP, "z", rows, heads * width)?;
    let new = || device.uninit(OP, rows, heads, dtype, Tag::Activations);
    let (mut l, mut r) = (new()?, new()?);
    device.backend().head_dot(z.value(), [a, b], [&mut l, &mut r])?;
    let saved = [a.clone(), b.clone()];
    Ok(tape.push_many(&[z, &vars[0], &vars[1]], [l, r], || HeadDotBackward { z: z.value().clone(), vectors: saved }))
}

struct HeadDotBackward {
    z: Matrix,
    vectors: [Matrix; 2],
}

impl Backward for HeadDotBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let device = grads.device().clone();
        let [a, b] = &self.vectors;
        let mut incoming = |k| match grads.output(k) {
            Some(g) => Ok(g),
            None => device.zeros(OP, self.z.rows(), a.rows(), a.dtype(), Tag::Activations),
        };
        let (dl, dr) = (incoming(0)?, incoming(1)?);
        let new = |m: &Matrix, tag| device.uninit(OP, m.rows(), m.cols(), m.dtype(), tag);
        let (mut da, mut db) = (new(a, Tag::Gradients)?, new(b, Tag::Gradients)?);
        let (mut dz, write) = match grads.take(0) {
            Some(dz) => (dz, Write::Add),
            None => (new(&self.z, Tag::Activations)?, Write::Set),
        };
        device.backend().head_dot_backward(&self.z, [a, b], [&dl, &dr], (&mut dz, write), [&mut da, &mut db])?;
        grads.put(0, dz)?;
        grads.put(1, da)?;
        grads.put(2, db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::dtype::DType;
    use crate::gradcheck::check;
    use crate::ops::combine::concat;
    use crate::ops::tests::{Case, agrees_with_f64, f64s, on_any_threads, parameter, upload};

    #[test]
    fn gradients() {
        let device = Device::cpu();
        for (rows, heads, width) in [(5, 3, 4), (4, 1, 33), (0, 2, 3)] {
            let new = |name| parameter(&device, name, (heads, width), DType::F64);
            let [a, b] = [new("a"), new("other")];
            let z = upload(&device, 1, (rows, heads * width), 1.0);
            let both = [a.clone(), b.clone()];
            check(&device, std::slice::from_ref(&z), &both, |tape, x| {
                let [l, r] = head_dot(tape, &x[0], [&a, &b])?;
                concat(tape, &[&l, &x[0], &r])
            })
            .unwrap();
            // One of the two is not used.
            check(&device, &[z], &both, |tape, x| Ok(head_dot(tape, &x[0], [&a, &b])?[1].clone())).unwrap();
        }
    }

    #[test]
    fn equals_its_definition() {
        let device = Device::cpu();
        let (rows, heads, width) = (7, 2, 5);
        let new = |name| parameter(&device, name, (heads, width), DType::F64);
        let [a, b] = [new("a"), new("other")];
        let mut tape = Tape::new(&device);
        let z = tape.leaf(upload(&device, 1, (rows, heads * width), 1.0));
        let found = head_dot(&mut tape, &z, [&a, &b]).unwrap();
        let z = f64s(z.value());
        for (found, vector) in found.iter().zip([a, b]) {
            let vector = f64s(&vector.value());
            for (k, x) in f64s(found.value()).iter().enumerate() {
                let expected: f64 = (0..width).map(|c| z[k * width + c] * vector[k % heads * width + c]).sum();
                assert!((x - expected).abs() < 1e-12);
            }
        }
    }

    fn case((rows, heads, width): (usize, usize, usize)) -> Case {
        Case::new(vec![(rows, heads * width)], vec![(heads, width); 2], |tape, x, p| {
            Ok(head_dot(tape, &x[0], [&p[0], &p[1]])?.to_vec())
        })
    }

    agrees_with_f64!([(600, 8, 16), (300, 3, 7), (1000, 1, 40)].map(|shape| (case(shape), 5e-6, 2e-2)));

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        on_any_threads(&case((3000, 8, 16)));
    }

    #[test]
    fn shapes_must_agree() {
        let device = Device::cpu();
        let new = |cols| parameter(&device, "a", (2, cols), DType::F64);
        let mut tape = Tape::new(&device);
        let z = tape.leaf(upload(&device, 1, (4, 6), 1.0));
        assert!(head_dot(&mut tape, &z, [&new(3), &new(4)]).is_err());
        assert!(head_dot(&mut tape, &z, [&new(4), &new(4)]).is_err());
    }
}
