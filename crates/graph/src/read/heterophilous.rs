//! The `.npz` files of the heterophilous-graphs collection (roman-empire, amazon-ratings, minesweeper, tolokers,
//! questions).
//!
//! `node_features` [N, F], `node_labels` \[N\], `edges` [E, 2] with each undirected edge once, and `train_masks`,
//! `val_masks`, `test_masks` [S, N], which become the splits `public-0` to `public-(S−1)`. The edges are undirected by
//! meaning but listed once: the command line symmetrises them unless told otherwise.

use graphweft_base::Result;

use super::npz::Npz;
use super::{Context, Imported, Input, features, labels, splits};
use crate::build::{EdgeSorter, Expected};
use crate::dataset::Task;

const ARRAYS: [&str; 3] = ["node_features", "node_labels", "edges"];
const MASKS: [&str; 3] = ["train_masks", "val_masks", "test_masks"];

fn is_mask(name: &str) -> bool {
    MASKS.contains(&name)
}

/// Reads a file of this collection.
///
/// # Errors
/// [`Error::BadInput`](graphweft_base::Error::BadInput) naming the array and the element.
pub fn read(input: &Input, cx: &Context<'_>) -> Result<Imported> {
    let mut npz = Npz::open(input, cx)?;
    // A mask under another name would be a split that is silently gone.
    if let Some(name) = npz.names().iter().find(|name| !ARRAYS.contains(&name.as_str()) && !is_mask(name)) {
        let problem = format!("files of this collection have no such array; the archive has: {}", npz.listed());
        let remedy =
            format!("they have: {}, {}; for others, graphweft import arrays", ARRAYS.join(", "), MASKS.join(", "));
        return Err(input.bad(name, problem, remedy));
    }
    let labels = npz.need("node_labels")?;
    // The labels say how many nodes there are: unlike a matrix without columns, they cannot claim nodes for nothing.
    let n = labels.shape.first().copied().unwrap_or(0);
    let labels =
        labels::from_numbers(Task::NodeClassification, input, "node_labels", &labels.shape, n, |at| labels.number(at))?;
    if n == 0 {
        return Err(input.bad("node_labels", "the graph has no nodes", "check that the file is complete"));
    }
    let mut edges = EdgeSorter::new(Expected::bare(n as u64), cx.rules, cx.scratch)?;
    let pairs = npz.need("edges")?;
    let [count, 2] = pairs.dimensions("[edges, 2]")? else {
        return Err(pairs.wrong_shape("[edges, 2]"));
    };
    pairs.push_edges(count, n as u64, |k| [2 * k, 2 * k + 1], &mut edges)?;
    let features = features::from_array(npz.need("node_features")?, n, cx)?;
    let splits = if MASKS.iter().any(|name| npz.has(name)) {
        splits::from_masks(&npz.need("train_masks")?, &npz.need("val_masks")?, &npz.need("test_masks")?, n)?
    } else {
        Vec::new()
    };
    Ok(Imported { features: Some(features), labels: Some(labels), splits, ..Imported::new(n, edges) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Features, Labels};
    use crate::read::testing::{KEEP, array, assert_refused, edges, npz, replaced, with_context};

    type Members = Vec<(&'static str, Vec<u8>)>;

    fn good() -> Members {
        vec![
            ("node_features", array(&[3, 4], &[1.0f64, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, -2.0])),
            ("node_labels", array(&[3, 1], &[0i32, -1, 2])),
            ("edges", array(&[2, 2], &[0u16, 1, 2, 1])),
            ("train_masks", array(&[2, 3], &[1u8, 0, 0, 0, 0, 1])),
            ("val_masks", array(&[2, 3], &[0u8, 1, 0, 0, 0, 0])),
            ("test_masks", array(&[2, 3], &[0u8, 0, 1, 1, 1, 0])),
        ]
    }

    fn read_members(members: &[(&str, Vec<u8>)]) -> Result<Imported> {
        with_context(KEEP, |cx| read(&npz(members), cx))
    }

    #[test]
    fn all_arrays_arrive() {
        let imported = read_members(&good()).unwrap();
        assert_eq!(imported.labels, Some((Labels::Single(vec![0, -1, 2].into()), 3)));
        let Some(Features::Dense(dense)) = &imported.features else { panic!("12 numbers are smaller dense") };
        assert_eq!((dense.width(), dense.len()), (4, 12));
        let names: Vec<&str> = imported.splits.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["public-0", "public-1"]);
        assert_eq!(&imported.splits[1].test[..], [0, 1]);
        assert_eq!(edges(imported), [(0, 1, 0.0), (2, 1, 0.0)]);
    }

    #[test]
    fn anything_wrong_is_named_by_array_and_element() {
        let with = |name: &str, bytes: Vec<u8>| read_members(&replaced(good(), name, bytes));
        let without = |name: &str| read_members(&good().into_iter().filter(|(n, _)| *n != name).collect::<Vec<_>>());
        assert_refused(without("edges"), &["t.npz: edges", "the archive has: node_features, node_labels"]);
        assert_refused(without("val_masks"), &["t.npz: val_masks"]);
        assert_refused(without("train_masks"), &["t.npz: train_masks"]);
        let unmasked = read_members(&good()[..3]).unwrap();
        assert!(unmasked.splits.is_empty());
        let renamed: Members =
            good().into_iter().map(|(n, b)| (if is_mask(n) { "mask" } else { n }, b)).take(4).collect();
        assert_refused(read_members(&renamed), &["t.npz: mask", "train_masks", "import arrays"]);
        assert_refused(with("edges", array(&[1, 2], &[0i64, 3])), &["edges[0, 1] is 3, expected 0 to 2"]);
        assert_refused(with("edges", array(&[1, 2], &[-1i64, 0])), &["edges[0, 0] is -1"]);
        assert_refused(with("edges", array(&[2, 1], &[0i64, 1])), &["edges: shape is [2, 1]"]);
        assert_refused(with("edges", array(&[1, 2], &[0.0f32, 1.0])), &["edges", "fractions"]);
        assert_refused(with("node_labels", array(&[3], &[0.5f32, 0.0, 0.0])), &["node_labels[0] is 0.5"]);
        assert_refused(with("node_labels", array(&[3], &[0i64, i64::MAX, 0])), &["node_labels[1]"]);
        assert_refused(with("node_labels", array(&[3], &[0i64, -2, 0])), &["node_labels[1] is -2"]);
        assert_refused(with("node_labels", array::<i64>(&[0], &[])), &["no nodes"]);
        assert_refused(with("node_features", array(&[2, 1], &[0.0f32; 2])), &["node_features", "[3, columns]"]);
        let nan = array(&[3, 1], &[0.0f32, f32::NAN, 0.0]);
        assert_refused(with("node_features", nan), &["node_features[1, 0] is not a finite number"]);
        let far = array(&[3, 1], &[0.0f64, 0.0, 1e300]);
        assert_refused(with("node_features", far), &["node_features[2, 0] is not a finite number"]);
        assert_refused(with("val_masks", array(&[1, 3], &[0u8; 3])), &["val_masks", "[splits, 3]"]);
        assert_refused(with("val_masks", array(&[2, 3], &[1u8, 0, 0, 0, 0, 0])), &["val_masks", "already in train"]);
        assert_refused(with("val_masks", array(&[2, 3], &[2u8, 0, 0, 0, 0, 0])), &["val_masks[0, 0] is 2"]);
    }

    #[test]
    fn claims_of_a_header_are_not_believed() {
        let claim = |shape: &[usize]| array::<i64>(shape, &[0, 1]);
        let with = |name: &'static str, bytes: Vec<u8>| read_members(&[good(), vec![(name, bytes)]].concat()[1..]);
        for shape in [&[1usize << 60][..], &[usize::MAX], &[1 << 40, 1 << 40], &[3]] {
            assert_refused(with("node_features", claim(shape)), &["t.npz: node_features"]);
        }
        assert_refused(with("node_features", [claim(&[2]), vec![0]].concat()), &["more data"]);
    }
}
