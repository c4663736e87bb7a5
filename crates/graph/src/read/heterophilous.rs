//! The `.npz` files of the heterophilous-graphs collection (roman-empire, amazon-ratings, minesweeper, tolokers, questions).
//!
//! `node_features` [N, F], `node_labels` [N], `edges` [E, 2] with each undirected edge once, and `train_masks`, `val_masks`,
//! `test_masks` [S, N], which become the splits `public-0` to `public-(S−1)`. The edges are undirected by meaning but listed
//! once: import them with `--symmetrise`.

use super::npz::{Array, Npz};
use super::{Context, Imported, Input, features, labels, splits};
use crate::build::EdgeSorter;
use crate::error::Result;

/// Edges checked and pushed at a time.
const CHUNK: usize = 1 << 16;

/// Reads a file of this collection.
///
/// # Errors
/// [`Error::BadInput`](crate::Error::BadInput) naming the array and the element.
pub fn read(input: &Input, cx: &Context<'_>) -> Result<Imported> {
    let mut npz = Npz::open(input, cx)?;
    let labels = npz.need("node_labels")?;
    // The labels say how many nodes there are: unlike a matrix without columns, they cannot claim nodes for nothing.
    let n = labels.shape.first().copied().unwrap_or(0);
    let labels = labels::from_numbers(input, "node_labels", &labels.shape, n, |at| labels.number(at))?;
    if n == 0 {
        return Err(input.bad("node_labels", "the graph has no nodes", "check that the file is complete"));
    }
    let mut edges = EdgeSorter::new(n as u64, false, cx.rules, cx.scratch)?;
    push_pairs(&npz.need("edges")?, n, &mut edges)?;
    let features = features::from_array(npz.need("node_features")?, n, cx)?;
    let splits = if npz.has("train_masks") {
        splits::from_masks(&npz.need("train_masks")?, &npz.need("val_masks")?, &npz.need("test_masks")?, n)?
    } else {
        Vec::new()
    };
    Ok(Imported { features, labels: Some(labels), splits, ..Imported::new(n, edges) })
}

/// Pushes the rows [source, destination] of an array.
fn push_pairs(pairs: &Array, n: usize, edges: &mut EdgeSorter) -> Result<()> {
    let [rows, 2] = pairs.dimensions("[edges, 2]")? else {
        return Err(pairs.wrong_shape("[edges, 2]"));
    };
    let mut chunk = Vec::with_capacity(rows.min(CHUNK));
    for start in (0..rows).step_by(CHUNK) {
        chunk.clear();
        for e in start..rows.min(start + CHUNK) {
            chunk.push([pairs.below(2 * e, n as u64)?, pairs.below(2 * e + 1, n as u64)?]);
        }
        edges.push(&chunk)?;
    }
    Ok(())
}
