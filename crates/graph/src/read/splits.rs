//! Splits from masks, and what every split has to be.

use graphweft_base::{Error, Problem, Result};

use super::npz::Array;
use crate::dataset::Split;

/// A split that can be learned from; `error` is told which part is wrong.
pub(super) fn learnable(split: Split, n: usize, error: impl Fn(usize, Problem) -> Error) -> Result<Split> {
    split.check(n).map_err(|(part, problem)| error(part, problem))?;
    // Without nodes to report on, one can still learn.
    let parts = split.parts();
    match parts.iter().take(2).position(|(_, ids)| ids.is_empty()) {
        Some(part) => Err(error(part, format!("no node is in {}", parts[part].0).into())),
        None => Ok(split),
    }
}

/// The splits `public-0`, `public-1`, … from three arrays of masks [S, N] (or [N] for a single split).
pub(super) fn from_masks(train: &Array, valid: &Array, test: &Array, n: usize) -> Result<Vec<Split>> {
    let mut number = None;
    for masks in [train, valid, test] {
        let expected = format!("[splits, {n}], the same for all masks");
        let splits = match masks.shape[..] {
            [nodes] if nodes == n => 1,
            [splits, nodes] if nodes == n => splits,
            _ => return Err(masks.wrong_shape(&expected)),
        };
        if *number.get_or_insert(splits) != splits {
            return Err(masks.wrong_shape(&expected));
        }
    }
    (0..number.unwrap_or(0))
        .map(|s| {
            let nodes = |masks: &Array| -> Result<Vec<i64>> {
                let mut nodes = Vec::new();
                for i in 0..n {
                    if masks.below(s * n + i, 2)? == 1 {
                        nodes.push(i as i64);
                    }
                }
                Ok(nodes)
            };
            let split = Split {
                name: format!("public-{s}"),
                train: nodes(train)?.into(),
                valid: nodes(valid)?.into(),
                test: nodes(test)?.into(),
            };
            match split.check(n) {
                Ok(()) => Ok(split),
                Err((part, problem)) => {
                    let masks = [train, valid, test][part];
                    Err(masks.bad(format!("split {s}: {problem}")))
                }
            }
        })
        .collect()
}
