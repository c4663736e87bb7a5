//! Labels: classes or several labels per node, from whatever numbers a format uses.

use super::Input;
use crate::dataset::Labels;
use crate::error::Result;

/// A class id beyond this is no class id.
const MOST_CLASSES: f64 = (1 << 24) as f64;

/// Labels of `n` nodes from numbers of `shape`, with the number of classes: [n] or [n, 1] is one class per node, where NaN
/// and −1 mean none; [n, C] is several labels per node, 0 or 1, where NaN means that it is not known.
pub(super) fn from_numbers(
    input: &Input,
    field: &str,
    shape: &[usize],
    n: usize,
    number: impl Fn(usize) -> f64,
) -> Result<(Labels, usize)> {
    let columns = match *shape {
        [rows] if rows == n => 1,
        [rows, columns] if rows == n && columns > 0 => columns,
        _ => {
            let problem = format!("shape is {shape:?}, expected [{n}] or [{n}, labels]");
            return Err(input.bad(field, problem, "there must be one row of labels for each node"));
        }
    };
    match columns {
        1 => single(input, field, n, number),
        c => several(input, field, n, c, number).map(|labels| (labels, c)),
    }
}

fn single(input: &Input, field: &str, n: usize, number: impl Fn(usize) -> f64) -> Result<(Labels, usize)> {
    let mut most = -1;
    let mut classes = Vec::with_capacity(n);
    for at in 0..n {
        let x = number(at);
        let class = if x.is_nan() { -1.0 } else { x };
        if class.fract() != 0.0 || !(-1.0..MOST_CLASSES).contains(&class) {
            let problem = format!("{field}[{at}] is {x}: expected a class from 0 on, or −1 or NaN for none");
            return Err(input.bad(field, problem, "number the classes from 0"));
        }
        classes.push(class as i64);
        most = most.max(class as i64);
    }
    Ok((Labels::Single(classes.into()), (most + 1) as usize))
}

fn several(input: &Input, field: &str, n: usize, c: usize, number: impl Fn(usize) -> f64) -> Result<Labels> {
    let value = |at| number(at) as f32;
    let is_label = |y: f32| y == 0.0 || y == 1.0;
    if let Some(at) = (0..n * c).find(|&at| !is_label(value(at)) && !value(at).is_nan()) {
        let problem = format!("{field}[{}, {}] is {}: expected 0 or 1", at / c, at % c, value(at));
        return Err(input.bad(field, problem, "use 0 and 1, and NaN where a label is not known"));
    }
    Ok(if (0..n * c).all(|at| is_label(value(at))) {
        Labels::MultiU8((0..n * c).map(|at| value(at) as u8).collect::<Vec<_>>().into())
    } else {
        // Only numbers can say that a label is not known.
        Labels::MultiF32((0..n * c).map(value).collect::<Vec<_>>().into())
    })
}
