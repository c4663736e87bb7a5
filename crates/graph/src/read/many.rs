//! What formats of many graphs have in common.

use graphweft_base::{Position, Problem, Result};

use super::Input;
use super::table::Table;
use crate::dataset::Categories;

/// More categories in a column than this are no categories.
const MOST_CATEGORIES: usize = 1 << 16;

/// Where graphs with so many nodes begin and end.
///
/// # Errors
/// If one has none, or there are more than any data have.
pub(super) fn ends(input: &Input, counts: &[u64]) -> Result<Vec<u64>> {
    let mut ptr = Vec::with_capacity(counts.len() + 1);
    ptr.push(0u64);
    let mut end = 0u64;
    for (graph, count) in counts.iter().enumerate() {
        let line = graph as u64 + 1;
        let wrong = |problem: String| {
            input.bad(format!("line {line}"), Problem::at(Position::Line(line), problem), "leave out what is no graph")
        };
        if *count == 0 {
            return Err(wrong(format!("graph {graph} has no node")));
        }
        end = end.saturating_add(*count);
        if end >= 1 << 40 {
            return Err(wrong("all graphs together have more nodes than any data".into()));
        }
        ptr.push(end);
    }
    Ok(ptr)
}

/// The graph of a node.
pub(super) fn graph_of(ptr: &[u64], node: u64) -> usize {
    ptr.partition_point(|first| *first <= node).saturating_sub(1)
}

/// A table of whole numbers from 0 on, as categories; `None` if it holds others.
pub(super) fn categories(table: &Table) -> Option<Result<Categories>> {
    let is_one = |x: &f32| x.fract() == 0.0 && (0.0..MOST_CATEGORIES as f32).contains(x);
    let all = table.values.iter().all(is_one);
    all.then(|| Categories::new(table.values.iter().map(|x| *x as u16).collect::<Vec<_>>(), table.width, &[]))
}

/// A table of any whole numbers, as categories: those of a column in ascending order, numbered from 0.
///
/// # Errors
/// If some number is not whole, or a column has too many.
pub(super) fn numbered(input: &Input, table: &Table) -> Result<Categories> {
    let mut values = vec![0u16; table.values.len()];
    for column in 0..table.width {
        let (numbers, _) = distinct(input, table, column)?;
        for (to, x) in values.iter_mut().zip(table.values.iter()).skip(column).step_by(table.width) {
            *to = numbers.partition_point(|number| number < x) as u16;
        }
    }
    Categories::new(values, table.width, &[])
}

/// The numbers in a column, each once, ascending; and for every row which of them it has.
pub(super) fn distinct(input: &Input, table: &Table, column: usize) -> Result<(Vec<f32>, Vec<i64>)> {
    let of_column = || table.values.iter().copied().skip(column).step_by(table.width);
    if let Some(row) = of_column().position(|x| x.fract() != 0.0) {
        let line = row as u64 + 1;
        let problem = format!("{} is not a whole number", table.values[row * table.width + column]);
        let field = format!("line {line}, column {}", column + 1);
        return Err(input.bad(field, Problem::at(Position::Line(line), problem), "labels are whole numbers"));
    }
    let mut numbers: Vec<f32> = of_column().collect();
    numbers.sort_unstable_by(f32::total_cmp);
    // −0 and 0 are one number.
    numbers.dedup_by(|a, b| a == b);
    if numbers.len() > MOST_CATEGORIES {
        let problem = format!("column {} has {} different numbers", column + 1, numbers.len());
        return Err(input.bad("labels", problem, format!("at most {MOST_CATEGORIES} are supported")));
    }
    let at = of_column().map(|x| numbers.partition_point(|number| *number < x) as i64).collect();
    Ok((numbers, at))
}
