//! Dropout of elements of rows.
//!
//! Whether an element is dropped is a function of its original node id and its column ([`Dropout`]), so the mask is not
//! stored: backward computes it again.

use crate::error::Result;
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::random::{Dropout, Ids};
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "dropout";

/// Dropout of the elements of rows, keyed by original ids.
#[derive(Clone, Debug)]
pub struct RowDropout {
    /// Rate and key.
    pub dropout: Dropout,
    /// Original ids of the rows.
    pub ids: Ids,
}

kernels! {
    /// What a backend does for dropout.
    pub trait DropoutKernels {
        /// `y = x ∘ mask`.
        fn dropout(d: &RowDropout, x: &Matrix, y: &mut Matrix) -> Result<()> {
            |dry| dry.dropping("dropout", Some(d), &[x], &[y])
        }

        /// `m = m ∘ mask`.
        fn dropout_in_place(d: &RowDropout, m: &mut Matrix) -> Result<()> {
            |dry| dry.dropping("dropout", Some(d), &[m], &[m])
        }
    }
}

/// Drops elements of `x` and scales the others so that the mean stays.
pub fn dropout(tape: &mut Tape, x: &Var, d: &RowDropout) -> Result<Var> {
    let (rows, cols) = x.value().shape();
    d.ids.expect(OP, rows)?;
    if !d.dropout.is_active() {
        return Ok(x.clone());
    }
    let device = tape.device().clone();
    let mut y = device.uninit(OP, rows, cols, x.value().dtype(), Tag::Activations)?;
    device.backend().dropout(d, x.value(), &mut y)?;
    Ok(tape.push(&[x], y, || DropoutBackward(d.clone())))
}

struct DropoutBackward(RowDropout);

impl Backward for DropoutBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(mut dy) = grads.output(0) else { return Ok(()) };
        let device = grads.device().clone();
        if dy.is_unique() {
            device.backend().dropout_in_place(&self.0, &mut dy)?;
            return grads.put(0, dy);
        }
        let mut dx = device.uninit(OP, dy.rows(), dy.cols(), dy.dtype(), Tag::Activations)?;
        device.backend().dropout(&self.0, &dy, &mut dx)?;
        grads.put(0, dx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::*;

    fn half(ids: Ids) -> RowDropout {
        RowDropout { dropout: Dropout::new(0.5, 1, 2, 3, 4), ids }
    }

    gradients!(|device| {
        for shape in [(5, 3), (4, 16), (3, 0), (0, 3)] {
            let x = upload(&device, 1, shape, 1.0);
            check(&device, &[x], &[], |tape, x| dropout(tape, &x[0], &half(Ids::Same))).unwrap();
            // A gradient that two operations share is not overwritten.
            let x = upload(&device, 1, shape, 1.0);
            check(&device, &[x], &[], |tape, x| {
                let y = dropout(tape, &x[0], &half(Ids::Same))?;
                crate::ops::residual::residual(tape, &y, &y, None)
            })
            .unwrap();
        }
    });

    fn case(cols: usize) -> Case {
        Case::new(vec![(1500, cols)], vec![], |tape, x, _| Ok(vec![dropout(tape, &x[0], &half(Ids::Same))?]))
    }

    agrees_with_f64!([1, 7, 40, 128, 1030].map(|cols| (case(cols), 1e-6, 1e-2)), case(100));

    #[test]
    fn masks_follow_the_original_id_and_the_column() {
        let device = Device::cpu();
        for cols in [3, 40, 128, 600] {
            let rows = 300;
            let ones = device.upload(rows, cols, &vec![1.0; rows * cols], Tag::Activations).unwrap();
            let run = |ids: Ids| {
                let mut tape = Tape::new(&device);
                let x = tape.leaf(ones.clone());
                f64s(dropout(&mut tape, &x, &half(ids)).unwrap().value())
            };
            let (plain, turned) = (run(Ids::Same), run(Ids::Listed((0..rows as u64).rev().collect())));
            for row in 0..rows {
                let of = |all: &[f64], row: usize| all[row * cols..(row + 1) * cols].to_vec();
                assert_eq!(of(&plain, row), of(&turned, rows - 1 - row));
                let d = half(Ids::Same).dropout;
                let expected: Vec<f64> = (0..cols).map(|c| d.row(row as u64, c as u32 / 8)[c % 8].into()).collect();
                assert_eq!(of(&plain, row), expected);
            }
        }
    }

    #[test]
    fn rate_zero_costs_nothing_and_rate_one_drops_all() {
        let (device, mut tape) = cpu_tape();
        let x = tape.leaf(upload(&device, 1, (3, 9), 1.0));
        let before = device.ledger().now();
        let rate = |r| RowDropout { dropout: Dropout::new(r, 1, 1, 1, 1), ids: Ids::Same };
        let same = dropout(&mut tape, &x, &rate(0.0)).unwrap();
        assert_eq!((f64s(same.value()), device.ledger().now()), (f64s(x.value()), before));
        let none = dropout(&mut tape, &x, &rate(1.0)).unwrap();
        assert!(f64s(none.value()).iter().all(|x| *x == 0.0));
    }

    #[test]
    fn ids_must_fit_the_rows() {
        let (device, mut tape) = cpu_tape();
        let x = tape.leaf(upload(&device, 1, (3, 9), 1.0));
        assert!(dropout(&mut tape, &x, &half(Ids::Listed([1, 2].into()))).is_err());
    }
}
