//! Elements of another type: what a parameter is where it flows as rows.

use crate::dtype::DType;
use crate::error::Result;
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "convert";

/// The elements of `x` as `dtype`.
pub fn convert(tape: &mut Tape, x: &Var, dtype: DType) -> Result<Var> {
    let from = x.value().dtype();
    if from == dtype {
        return Ok(x.clone());
    }
    let y = tape.device().convert(OP, x.value(), dtype)?;
    Ok(tape.push(&[x], y, || ConvertBackward { from }))
}

struct ConvertBackward {
    from: DType,
}

impl Backward for ConvertBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        match grads.output(0) {
            Some(g) => {
                let g = grads.device().convert(OP, &g, self.from)?;
                grads.put(0, g)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{cpu_tape, f64s, upload};

    #[test]
    fn types_change_and_change_back() {
        let (device, mut tape) = cpu_tape();
        let x = tape.leaf(upload(&device, 1, (3, 5), 1.0));
        let before = device.ledger().now();
        assert!(convert(&mut tape, &x, DType::F64).is_ok() && device.ledger().now() == before, "nothing to do");
        let y = convert(&mut tape, &x, DType::F32).unwrap();
        assert_eq!(y.value().dtype(), DType::F32);
        let g = device.convert("test", &upload(&device, 2, (3, 5), 1.0), DType::F32).unwrap();
        let expected = f64s(&g);
        let found = tape.backward(vec![(y, g)], &[&x], |_| Ok(())).unwrap().remove(0).unwrap();
        assert_eq!((found.dtype(), f64s(&found)), (DType::F64, expected));
    }
}
