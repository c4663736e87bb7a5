//! The `.npz` files of gnn-benchmark (Amazon, Coauthor, CitationFull) and its descendants.
//!
//! The adjacency matrix is a SciPy CSR matrix in `adj_data`, `adj_indices`, `adj_indptr`, `adj_shape` (or
//! `adj_matrix.data` and so on), the features likewise in `attr_…`, or dense in `attr_matrix`; `labels` are classes.
//! Other members, such as pickled class names, are never read. An entry in row i and column j is the edge i → j; values
//! other than 1 become edge features.

use graphweft_base::Result;

use super::features::{Compressed, from_array};
use super::imported::EdgeFeatures;
use super::npz::{Array, Npz};
use super::{Context, Imported, Input, labels};
use crate::build::{EdgeSorter, Expected, Spool};
use crate::dataset::Task;

/// Edges checked and pushed at a time.
const CHUNK: usize = 1 << 16;

/// Reads a file of this kind.
///
/// # Errors
/// [`Error::BadInput`](graphweft_base::Error::BadInput) naming the array and the element.
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
    let mut edges = EdgeSorter::new(Expected { num_nodes: n as u64, origins: weighted }, cx.rules, cx.scratch)?;
    push_rows(&offsets, &adjacency.indices, n, &mut edges)?;
    let mut imported = Imported::new(n, edges);
    if let Some(weights) = adjacency.data.as_ref().filter(|_| weighted) {
        imported.edge_features = Some(weights_of(weights, cx)?);
    }

    imported.features = match compressed(&mut npz, "attr")? {
        Some(m) => Some(m.into_features(n, cx)?),
        None => npz.get("attr_matrix")?.map(|matrix| from_array(matrix, n, cx)).transpose()?,
    };
    if let Some(y) = npz.get("labels")? {
        imported.labels =
            Some(labels::from_numbers(Task::NodeClassification, input, "labels", &y.shape, n, |at| y.number(at))?);
    }
    Ok(imported)
}

/// The CSR matrix called `stem` in either spelling.
fn compressed(npz: &mut Npz<'_>, stem: &str) -> Result<Option<Compressed>> {
    let spellings = [format!("{stem}_"), format!("{stem}_matrix.")];
    let Some(prefix) = spellings.iter().find(|p| npz.has(&format!("{p}indptr"))) else { return Ok(None) };
    Compressed::read(npz, prefix).map(Some)
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

pub(super) fn weights_of(weights: &Array, cx: &Context<'_>) -> Result<EdgeFeatures> {
    let mut values = Spool::new(cx.scratch);
    for at in 0..weights.len() {
        let value = weights.number(at) as f32;
        if !value.is_finite() {
            return Err(weights.bad(weights.at(at, " is not a finite number")));
        }
        values.push(&[value])?;
    }
    Ok(EdgeFeatures { values: values.finish()?, width: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Dense, Features, Labels};
    use crate::read::testing::{KEEP, array, assert_refused, edges, npz, with_context};

    type Members = Vec<(String, Vec<u8>)>;

    /// 0 → 1, 0 → 2, 2 → 0; features of 40 columns with unsorted, repeated and zero entries.
    fn good(adj: &str, attr: &str) -> Members {
        let name = |stem: &str, part: &str| format!("{stem}{part}");
        vec![
            (name(adj, "data"), array(&[3], &[1.0f32; 3])),
            (name(adj, "indices"), array(&[3], &[1i32, 2, 0])),
            (name(adj, "indptr"), array(&[4], &[0i32, 2, 2, 3])),
            (name(adj, "shape"), array(&[2], &[3i64, 3])),
            (name(attr, "data"), array(&[5], &[1.0f32, 2.0, 4.0, 0.0, 1.0])),
            (name(attr, "indices"), array(&[5], &[9i32, 3, 9, 5, 39])),
            (name(attr, "indptr"), array(&[4], &[0i32, 4, 4, 5])),
            (name(attr, "shape"), array(&[2], &[3i64, 40])),
            ("labels".into(), array(&[3], &[2i64, 0, 1])),
        ]
    }

    fn read_members(members: &Members) -> Result<Imported> {
        let members: Vec<(&str, Vec<u8>)> = members.iter().map(|(n, b)| (n.as_str(), b.clone())).collect();
        with_context(KEEP, |cx| read(&npz(&members), cx))
    }

    fn with(name: &str, bytes: Vec<u8>) -> Members {
        let mut members = good("adj_", "attr_");
        members.retain(|(n, _)| n != name);
        members.push((name.to_string(), bytes));
        members
    }

    #[test]
    fn both_spellings_are_read() {
        for (adj, attr) in [("adj_", "attr_"), ("adj_matrix.", "attr_matrix.")] {
            let imported = read_members(&good(adj, attr)).unwrap();
            let Some(Features::Sparse(m)) = &imported.features else { panic!("40 columns are smaller sparse") };
            assert_eq!((&m.indptr[..], &m.indices[..], m.width), (&[0, 2, 2, 3][..], &[3, 9, 39][..], 40));
            assert_eq!(&m.data.as_ref().unwrap()[..], [2.0, 5.0, 1.0]);
            assert_eq!(imported.labels, Some((Labels::Single(vec![2, 0, 1].into()), 3)));
            assert_eq!(edges(imported), [(2, 0, 0.0), (0, 1, 0.0), (0, 2, 0.0)]);
        }
    }

    #[test]
    fn weights_become_edge_features_and_dense_stays_dense() {
        let imported = read_members(&with("adj_data", array(&[3], &[1.0f64, 2.5, 3.0]))).unwrap();
        assert_eq!(edges(imported), [(2, 0, 3.0), (0, 1, 1.0), (0, 2, 2.5)]);
        let mut members = with("attr_matrix", array(&[3, 2], &[1u8, 2, 3, 4, 5, 6]));
        members.retain(|(n, _)| !n.starts_with("attr_i"));
        let dense = Dense::F32 { values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0].into(), width: 2 };
        assert_eq!(read_members(&members).unwrap().features, Some(Features::Dense(dense)));
        // A sparse matrix that is full is stored dense.
        let mut members = with("attr_shape", array(&[2], &[3i64, 1]));
        for (name, bytes) in &mut members {
            match name.as_str() {
                "attr_indices" => *bytes = array(&[3], &[0i32; 3]),
                "attr_data" => *bytes = array(&[3], &[7.0f32, 8.0, 9.0]),
                "attr_indptr" => *bytes = array(&[4], &[0i32, 1, 2, 3]),
                _ => {}
            }
        }
        let dense = Dense::F32 { values: vec![7.0, 8.0, 9.0].into(), width: 1 };
        assert_eq!(read_members(&members).unwrap().features, Some(Features::Dense(dense)));
    }

    #[test]
    fn matrices_that_are_none_are_refused() {
        let refused =
            |name: &str, bytes: Vec<u8>, words: &[&str]| assert_refused(read_members(&with(name, bytes)), words);
        refused("adj_indices", array(&[3], &[1i32, 3, 0]), &["adj_indices[1] is 3, expected 0 to 2"]);
        refused("adj_indptr", array(&[4], &[0i32, 2, 1, 3]), &["adj_indptr[2] is below"]);
        refused("adj_indptr", array(&[4], &[0i32, 2, 2, 4]), &["adj_indptr[3] is 4"]);
        refused("adj_indptr", array(&[4], &[1i32, 2, 2, 3]), &["runs from 1 to 3"]);
        refused("adj_indptr", array(&[3], &[0i32, 2, 3]), &["adj_indptr: shape is [3]"]);
        refused("adj_shape", array(&[2], &[3i64, 4]), &["3 rows and 4 columns"]);
        refused("adj_shape", array(&[2], &[-3i64, -3]), &["adj_shape[0] is -3"]);
        refused("adj_shape", array(&[2], &[1i64 << 47, 1 << 47]), &["adj_indptr: shape is [4]"]);
        refused("adj_data", array(&[2], &[1.0f32; 2]), &["adj_data: shape is [2]"]);
        refused("adj_data", array(&[3], &[1.0f32, f32::NAN, 1.0]), &["adj_data[1] is not a finite"]);
        refused("attr_indices", array(&[5], &[9i32, 3, 9, 40, 39]), &["attr_indices[3] is 40"]);
        refused("attr_data", array(&[5], &[1.0f32, 2.0, f32::INFINITY, 0.0, 1.0]), &["row 0, column 9"]);
        refused("attr_shape", array(&[2], &[2i64, 40]), &["2 rows, the graph 3 nodes"]);
        refused("attr_shape", array(&[2], &[3i64, 1 << 40]), &["at most 2³²"]);
        refused("labels", array(&[2], &[0i64; 2]), &["labels: shape is [2]"]);
        assert_refused(read_members(&vec![("x".into(), array(&[1], &[0u8]))]), &["adj_indptr", "the archive has: x"]);
    }
}
