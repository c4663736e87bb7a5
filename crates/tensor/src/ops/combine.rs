//! Sums with coefficients, and columns side by side. (The plain sum of two matrices is
//! [`residual`](crate::ops::residual::residual).)

use std::ops::Range;

use crate::dry::{Work, WorkKind, present};
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::tape::{Backward, Tape, Var, one_output};

const OP: &str = "combine";

kernels! {
    /// What a backend does for these.
    pub trait CombineKernels {
        /// `to = a·x`, plus b·y where that is given.
        fn combine(a: f64, x: &Matrix, other: Option<Term<'_>>, to: &mut Matrix) -> Result<()> {
            |dry| dry.stream("combine", &present([Some(x), other.map(|term| term.y)]), &[to])
        }

        /// `m = a·m`.
        fn scale(a: f64, m: &mut Matrix) -> Result<()> {
            |dry| dry.stream("scale", &[m], &[m])
        }

        /// Copies a patch of `from` to one of `to`, or adds it.
        fn copy_patch(from: &Matrix, to: &mut Matrix, patch: Patch, write: Write) -> Result<()> {
            |dry|
            patch.check(from, to)?;
            let bytes = patch.size[0] * patch.size[1] * to.dtype().size();
            let (op, read) = match write {
                Write::Set => ("copy patch", bytes),
                Write::Add => ("copy patch, added", 2 * bytes),
            };
            dry.tell(Work::new(op, to.dtype(), WorkKind::Stream { read, written: bytes, rows: patch.size[0] }))
        }
    }
}

/// What is added: b·y.
#[derive(Clone, Copy, Debug)]
pub struct Term<'a> {
    /// b.
    pub b: f64,
    /// y.
    pub y: &'a Matrix,
}

/// Some columns of some rows, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// First row and column in the source.
    pub from: [usize; 2],
    /// First row and column in the target.
    pub to: [usize; 2],
    /// How many rows and columns.
    pub size: [usize; 2],
}

impl Patch {
    /// Columns of all `rows` rows.
    pub fn columns(rows: usize, from: usize, to: usize, count: usize) -> Self {
        Self { from: [0, from], to: [0, to], size: [rows, count] }
    }

    /// Fails unless both matrices have it.
    pub(crate) fn check(&self, from: &Matrix, to: &Matrix) -> Result<()> {
        let inside = |at: [usize; 2], m: &Matrix| at[0] + self.size[0] <= m.rows() && at[1] + self.size[1] <= m.cols();
        if inside(self.from, from) && inside(self.to, to) {
            return Ok(());
        }
        Err(Error::Argument { op: OP, problem: format!("{self:?} of {from:?} and {to:?}") })
    }
}

/// a·x + b·y.
pub fn combine(tape: &mut Tape, a: f64, x: &Var, b: f64, y: &Var) -> Result<Var> {
    let (rows, cols) = x.value().shape();
    y.value().expect(OP, "y", rows, cols)?;
    let device = tape.device().clone();
    let mut to = device.uninit(OP, rows, cols, x.value().dtype(), Tag::Activations)?;
    device.backend().combine(a, x.value(), Some(Term { b, y: y.value() }), &mut to)?;
    Ok(tape.push(&[x, y], to, || combined(vec![a, b])))
}

/// a·x.
pub fn scale(tape: &mut Tape, a: f64, x: &Var) -> Result<Var> {
    let (rows, cols) = x.value().shape();
    let device = tape.device().clone();
    let mut to = device.uninit(OP, rows, cols, x.value().dtype(), Tag::Activations)?;
    device.backend().combine(a, x.value(), None, &mut to)?;
    Ok(tape.push(&[x], to, || combined(vec![a])))
}

/// The columns of all `parts`, side by side.
pub fn concat(tape: &mut Tape, parts: &[&Var]) -> Result<Var> {
    let Some(first) = parts.first() else {
        return Err(Error::Argument { op: OP, problem: "nothing to put side by side".into() });
    };
    let (rows, dtype) = (first.value().rows(), first.value().dtype());
    let widths: Vec<usize> = parts.iter().map(|p| p.value().cols()).collect();
    let device = tape.device().clone();
    let mut y = device.uninit(OP, rows, widths.iter().sum(), dtype, Tag::Activations)?;
    let mut at = 0;
    for part in parts {
        let count = part.value().cols();
        part.value().expect(OP, "part", rows, count)?;
        device.backend().copy_patch(part.value(), &mut y, Patch::columns(rows, 0, at, count), Write::Set)?;
        at += count;
    }
    Ok(tape.push(parts, y, || {
        one_output(move |dy, grads| {
            let device = grads.device().clone();
            let mut at = 0;
            for (k, &count) in widths.iter().enumerate() {
                if grads.wants(k) {
                    let (mut dx, write) = grads.begin(OP, k, dy.rows(), count, dy.dtype())?;
                    device.backend().copy_patch(&dy, &mut dx, Patch::columns(dy.rows(), at, 0, count), write)?;
                    grads.put(k, dx)?;
                }
                at += count;
            }
            Ok(())
        })
    }))
}

/// The first `count` columns of a matrix, as numbers for the moment.
pub fn first_columns(m: &Matrix, count: usize) -> Result<Matrix> {
    let mut some = m.device().uninit(OP, m.rows(), count, m.dtype(), Tag::Workspace)?;
    m.device().backend().copy_patch(m, &mut some, Patch::columns(m.rows(), 0, 0, count), Write::Set)?;
    Ok(some)
}

/// Some columns of `x`.
pub fn columns(tape: &mut Tape, x: &Var, range: Range<usize>) -> Result<Var> {
    let (rows, cols) = x.value().shape();
    if range.start > range.end || range.end > cols {
        return Err(Error::Argument { op: OP, problem: format!("columns {range:?} of a matrix with {cols}") });
    }
    let (device, count) = (tape.device().clone(), range.len());
    let mut y = device.uninit(OP, rows, count, x.value().dtype(), Tag::Activations)?;
    device.backend().copy_patch(x.value(), &mut y, Patch::columns(rows, range.start, 0, count), Write::Set)?;
    Ok(tape.push(&[x], y, || {
        one_output(move |dy, grads| {
            let device = grads.device().clone();
            let mut dx = match grads.take(0) {
                Some(dx) => dx,
                None => device.zeros(OP, dy.rows(), cols, dy.dtype(), Tag::Activations)?,
            };
            let columns = Patch::columns(dy.rows(), 0, range.start, range.len());
            device.backend().copy_patch(&dy, &mut dx, columns, Write::Add)?;
            grads.put(0, dx)
        })
    }))
}

/// The same factors, backward.
fn combined(factors: Vec<f64>) -> impl Backward {
    one_output(move |dy, grads| {
        let device = grads.device().clone();
        let mut left = Some(dy);
        for (k, a) in factors.iter().enumerate().rev() {
            // The last to be served may have the memory.
            let last = (0..k).all(|j| !grads.wants(j));
            let Some(dy) = (if last { left.take() } else { left.clone() }) else { break };
            if !grads.wants(k) {
                continue;
            }
            let scaled = match dy {
                dy if *a == 1.0 => dy,
                mut dy if dy.is_unique() => {
                    device.backend().scale(*a, &mut dy)?;
                    dy
                }
                dy => {
                    let mut to = device.uninit(OP, dy.rows(), dy.cols(), dy.dtype(), Tag::Activations)?;
                    device.backend().combine(*a, &dy, None, &mut to)?;
                    to
                }
            };
            grads.put(k, scaled)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::*;

    gradients!(|device| {
        for shape in [(5, 3), (0, 3), (3, 0)] {
            let inputs = [upload(&device, 1, shape, 1.0), upload(&device, 2, shape, 1.0)];
            check(&device, &inputs, &[], |tape, x| combine(tape, 0.7, &x[0], -1.3, &x[1])).unwrap();
            check(&device, &inputs, &[], |tape, x| combine(tape, 1.0, &x[0], 2.0, &x[0])).unwrap();
            check(&device, &inputs, &[], |tape, x| scale(tape, 2.5, &x[1])).unwrap();
            check(&device, &inputs, &[], |tape, x| concat(tape, &[&x[0], &x[1], &x[0]])).unwrap();
            check(&device, &inputs[..1], &[], |tape, x| {
                let (a, b) = (columns(tape, &x[0], 0..shape.1 / 2)?, columns(tape, &x[0], shape.1 / 3..shape.1)?);
                concat(tape, &[&b, &a])
            })
            .unwrap();
        }
    });

    #[test]
    fn a_constant_operand_gets_no_gradient() {
        let device = Device::cpu();
        let constant = upload(&device, 3, (4, 2), 1.0);
        check(&device, &[upload(&device, 1, (4, 2), 1.0)], &[], |tape, x| {
            let c = tape.constant(constant.clone());
            let y = combine(tape, 2.0, &c, 3.0, &x[0])?;
            concat(tape, &[&c, &y])
        })
        .unwrap();
    }

    fn case() -> Case {
        Case::new(vec![(1000, 40), (1000, 40)], vec![], |tape, x, _| {
            let sum = combine(tape, 0.7, &x[0], -1.3, &x[1])?;
            let wide = concat(tape, &[&x[0], &sum])?;
            let scaled = scale(tape, 3.0, &wide)?;
            Ok(vec![columns(tape, &scaled, 20..70)?, sum])
        })
    }

    agrees_with_f64!([(case(), 1e-6, 2e-2)], case());

    #[test]
    fn columns_stand_where_they_should() {
        let (device, mut tape) = cpu_tape();
        let x = tape.leaf(device.upload(2, 2, &[1.0, 2.0, 3.0, 4.0], Tag::Activations).unwrap());
        let y = tape.leaf(device.upload(2, 1, &[5.0, 6.0], Tag::Activations).unwrap());
        let wide = concat(&mut tape, &[&x, &y]).unwrap();
        assert_eq!(f64s(wide.value()), [1.0, 2.0, 5.0, 3.0, 4.0, 6.0]);
        assert_eq!(f64s(columns(&mut tape, &wide, 1..3).unwrap().value()), [2.0, 5.0, 4.0, 6.0]);
        assert!(columns(&mut tape, &wide, 1..4).is_err());
        let tall = tape.leaf(upload(&device, 1, (3, 2), 1.0));
        assert!(concat(&mut tape, &[&wide, &tall]).is_err());
        assert!(combine(&mut tape, 1.0, &wide, 1.0, &tall).is_err());
    }
}
