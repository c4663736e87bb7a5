//! The same elements in rows of another length: the heads of a node as rows of their own, say. Costs nothing either
//! way.

use crate::error::Result;
use crate::tape::{Tape, Var, one_output};

/// The elements of `x` in `rows` rows.
pub fn reshape(tape: &mut Tape, x: &Var, rows: usize, cols: usize) -> Result<Var> {
    let y = x.value().reshaped(rows, cols)?;
    let (rows, cols) = x.value().shape();
    Ok(tape.push(&[x], y, || {
        one_output(move |dy, grads| {
            let dx = dy.reshaped(rows, cols)?;
            drop(dy);
            grads.put(0, dx)
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::gradcheck::check;
    use crate::ops::l2norm::l2_norm;
    use crate::ops::tests::{gradients, upload};

    gradients!(|device| {
        check(&device, &[upload(&device, 1, (4, 6), 1.0)], &[], |tape, x| {
            let heads = reshape(tape, &x[0], 8, 3)?;
            let heads = l2_norm(tape, &heads)?;
            reshape(tape, &heads, 4, 6)
        })
        .unwrap();
    });

    #[test]
    fn elements_are_neither_made_nor_lost() {
        let device = Device::cpu();
        let mut tape = Tape::new(&device);
        let x = tape.leaf(upload(&device, 1, (4, 6), 1.0));
        assert!(reshape(&mut tape, &x, 5, 5).is_err());
    }
}
