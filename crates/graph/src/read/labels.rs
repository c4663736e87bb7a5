//! Labels: classes, several labels per node or numbers to predict, from whatever numbers a format uses.

use graphweft_base::{Position, Problem, Result};

use super::Input;
use crate::dataset::{Labels, Task};

/// A class id beyond this is no class id.
const MOST_CLASSES: f64 = (1 << 24) as f64;

/// Labels for `task` of `n` nodes from numbers of `shape`, with the number of classes or of columns. For classes, [n]
/// or [n, 1] is one per node, where NaN and −1 mean none; [n, C] is several labels per node, 0 or 1, where NaN means
/// that it is not known.
pub(super) fn from_numbers(
    task: Task,
    input: &Input,
    field: &str,
    shape: &[usize],
    n: usize,
    number: impl Fn(usize) -> f64,
) -> Result<(Labels, usize)> {
    match columns(input, field, shape, n)? {
        c if task.is_regression() => values(input, field, n, c, number).map(|labels| (labels, c)),
        1 => single(input, field, n, number),
        c => several(input, field, n, c, number).map(|labels| (labels, c)),
    }
}

/// How many labels there are for each of `n` nodes.
fn columns(input: &Input, field: &str, shape: &[usize], n: usize) -> Result<usize> {
    match *shape {
        [rows] if rows == n => Ok(1),
        [rows, columns] if rows == n && columns > 0 => Ok(columns),
        _ => {
            let problem = format!("shape is {shape:?}, expected [{n}] or [{n}, labels]");
            Err(input.bad(field, problem, "there must be one row of labels for each node"))
        }
    }
}

fn values(input: &Input, field: &str, n: usize, c: usize, number: impl Fn(usize) -> f64) -> Result<Labels> {
    let value = |at| number(at) as f32;
    if let Some(at) = (0..n * c).find(|&at| value(at).is_infinite()) {
        let problem = format!("{field}[{}, {}] is {}, which is not finite as float32", at / c, at % c, number(at));
        let problem = Problem::at(Position::in_matrix(at, c), problem);
        return Err(input.bad(field, problem, "use finite numbers, and NaN where one is not known"));
    }
    Ok(Labels::Values((0..n * c).map(value).collect::<Vec<_>>().into()))
}

fn single(input: &Input, field: &str, n: usize, number: impl Fn(usize) -> f64) -> Result<(Labels, usize)> {
    let mut most = -1;
    let mut classes = Vec::with_capacity(n);
    for at in 0..n {
        let x = number(at);
        let class = if x.is_nan() { -1.0 } else { x };
        if class.fract() != 0.0 || !(-1.0..MOST_CLASSES).contains(&class) {
            let problem = format!("{field}[{at}] is {x}: expected a class from 0 on, or −1 or NaN for none");
            let problem = Problem::at(Position::element(at), problem);
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
        let problem = Problem::at(Position::in_matrix(at, c), problem);
        return Err(input.bad(field, problem, "use 0 and 1, and NaN where a label is not known"));
    }
    Ok(if (0..n * c).all(|at| is_label(value(at))) {
        Labels::MultiU8((0..n * c).map(|at| value(at) as u8).collect::<Vec<_>>().into())
    } else {
        // Only numbers can say that a label is not known.
        Labels::MultiF32((0..n * c).map(value).collect::<Vec<_>>().into())
    })
}

/// The labels of some nodes, from `start` on, among those of all `nodes`, of which the others have none.
pub(super) fn among(found: Labels, start: usize, nodes: usize, columns: usize) -> Labels {
    let rows = |values: &[f32]| {
        let mut all = vec![f32::NAN; nodes * columns];
        all[start * columns..start * columns + values.len()].copy_from_slice(values);
        all.into()
    };
    match found {
        Labels::Single(y) => {
            let mut all = vec![-1i64; nodes];
            all[start..start + y.len()].copy_from_slice(&y);
            Labels::Single(all.into())
        }
        // Only numbers can say that a label is not known.
        Labels::MultiU8(y) if y.len() < nodes * columns => {
            Labels::MultiF32(rows(&y.iter().map(|&y| y.into()).collect::<Vec<f32>>()))
        }
        Labels::MultiU8(y) => Labels::MultiU8(y),
        Labels::MultiF32(y) => Labels::MultiF32(rows(&y)),
        Labels::Values(y) => Labels::Values(rows(&y)),
    }
}
