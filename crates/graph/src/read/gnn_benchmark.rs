//! The `.npz` files of gnn-benchmark (Amazon, Coauthor, CitationFull) and its descendants.
//!
//! The adjacency matrix is a SciPy CSR matrix in `adj_data`, `adj_indices`, `adj_indptr`, `adj_shape` (or `adj_matrix.data`
//! and so on), the features likewise in `attr_…`, or dense in `attr_matrix`; `labels` are classes. Other members, such as
//! pickled class names, are never read. An entry in row i and column j is the edge i → j; values other than 1 become edge
//! features.

use super::features::{Compressed, from_array};
use super::imported::EdgeFeatures;
use super::npz::{Array, Npz};
use super::{Context, Imported, Input, labels};
use crate::build::{EdgeSorter, Spool};
use crate::error::Result;

/// Edges checked and pushed at a time.
const CHUNK: usize = 1 << 16;

/// Reads a file of this kind.
///
/// # Errors
/// [`Error::BadInput`](crate::Error::BadInput) naming the array and the element.
pub fn read(input: &Input, cx: &Context<'_>) -> Result<Imported> {
    let mut npz = Npz::open(input, cx)?;
    let Some(adjacency) = compressed(&mut npz, "adj")? else {
        // Asking for it by the usual name gives an error that lists the names there are.
        return npz.need("adj_indptr").and_then(|a| Err(a.bad("the adjacency matrix is incomplete")));
    };
    let [n, columns] = adjacency.shape;
    if n != columns || n == 0 {
        let problem = format!("the adjacency matrix has {n} rows and {columns} columns, expected as many of each");
        return Err(adjacency.indptr.bad(problem));
    }
    let offsets = adjacency.offsets()?;
    let weighted = adjacency.data.as_ref().is_some_and(|d| (0..d.len()).any(|at| d.number(at) != 1.0));
    let mut edges = EdgeSorter::new(n as u64, weighted, cx.rules, cx.scratch)?;
    push_rows(&offsets, &adjacency.indices, n, &mut edges)?;
    let mut imported = Imported::new(n, edges);
    if let Some(weights) = adjacency.data.as_ref().filter(|_| weighted) {
        imported.edge_features = Some(weights_of(weights, cx)?);
    }

    imported.features = match compressed(&mut npz, "attr")? {
        Some(m) => m.into_features(n, cx)?,
        None => match npz.get("attr_matrix")? {
            Some(matrix) => from_array(matrix, n, cx)?,
            None => None,
        },
    };
    if let Some(y) = npz.get("labels")? {
        imported.labels = Some(labels::from_numbers(input, "labels", &y.shape, n, |at| y.number(at))?);
    }
    Ok(imported)
}

/// The CSR matrix called `stem` in either spelling.
fn compressed(npz: &mut Npz<'_>, stem: &str) -> Result<Option<Compressed>> {
    let spellings = [format!("{stem}_"), format!("{stem}_matrix.")];
    let Some(prefix) = spellings.iter().find(|p| npz.has(&format!("{p}indptr"))) else { return Ok(None) };
    let shape = npz.need(&format!("{prefix}shape"))?;
    if shape.shape != [2] {
        return Err(shape.wrong_shape("[2]"));
    }
    // No real matrix comes near; what stays below can be added and multiplied.
    let extent = |at| shape.below(at, 1 << 48).map(|x| x as usize);
    Ok(Some(Compressed {
        indptr: npz.need(&format!("{prefix}indptr"))?,
        indices: npz.need(&format!("{prefix}indices"))?,
        data: npz.get(&format!("{prefix}data"))?,
        shape: [extent(0)?, extent(1)?],
    }))
}

fn push_rows(offsets: &[u64], indices: &Array, n: usize, edges: &mut EdgeSorter) -> Result<()> {
    let mut chunk = Vec::with_capacity(CHUNK);
    for (row, w) in offsets.windows(2).enumerate() {
        for at in w[0]..w[1] {
            chunk.push([row as u64, indices.below(at as usize, n as u64)?]);
            if chunk.len() == CHUNK {
                edges.push(&chunk)?;
                chunk.clear();
            }
        }
    }
    edges.push(&chunk)
}

fn weights_of(weights: &Array, cx: &Context<'_>) -> Result<EdgeFeatures> {
    let mut values = Spool::new(cx.scratch);
    for at in 0..weights.len() {
        let value = weights.number(at) as f32;
        if !value.is_finite() {
            return Err(weights.bad(format!("{} is not a finite number", weights.position(at))));
        }
        values.push(&[value])?;
    }
    Ok(EdgeFeatures { values: values.finish()?, width: 1 })
}
