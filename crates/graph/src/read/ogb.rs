//! Raw folders of OGB node-property datasets (ogbn-arxiv, ogbn-products, ogbn-proteins, ogbn-papers100M), of those that
//! have many graphs, and of those of links.
//!
//! Text: `raw/edge.csv.gz`, `raw/num-node-list.csv.gz`, `raw/num-edge-list.csv.gz`, `raw/node-label.csv.gz` and
//! optionally `raw/node-feat.csv.gz`, `raw/edge-feat.csv.gz`. Binary: `raw/data.npz` with `edge_index` [2, E],
//! `num_nodes_list`, `num_edges_list` and optionally `node_feat`, `edge_feat`; `raw/node-label.npz` with `node_label`.
//! Both: `split/<scheme>/{train,valid,test}.csv.gz`, which becomes the split of that name. OGB's loader adds the
//! reverse of each edge for some datasets; here that is asked for with `--symmetrise`. Datasets
//! with several types of nodes are in a layout of their own.

use graphweft_base::{Error, Result};

use super::edge_list::{Options, Scan};
use super::imported::EdgeFeatures;
use super::npz::{Array, Npz};
use super::table::{self, Table};
use super::text::Integer;
use super::{Context, Folder, Imported, Input, features, labels, ogb_graphs, ogb_links, ogb_typed};
use crate::build::{EdgeSorter, Expected};
use crate::dataset::{Labels, Split, Task};

pub(super) const INCOMPLETE: &str =
    "PATH is the dataset folder that contains raw/ and split/; extract the download again";
const CUT_SHORT: &str = "the file is cut short; extract the download again";

/// Reads a dataset folder.
///
/// # Errors
/// [`Error::BadInput`] naming the file and the line or array.
pub fn read(folder: &dyn Folder, cx: &Context<'_>) -> Result<Imported> {
    if folder.input(ogb_typed::TRIPLETS)?.is_some() {
        return ogb_typed::read(folder, cx);
    }
    if folder.input(ogb_graphs::LABELS)?.is_some() {
        return ogb_graphs::read(folder, cx);
    }
    if let Some(scheme) = ogb_links::scheme(folder)? {
        return ogb_links::read(folder, &scheme, cx);
    }
    let mut imported = match folder.input("raw/data.npz")? {
        Some(data) => binary(folder, &data, cx)?,
        None => text(folder, cx)?,
    };
    imported.splits = splits(folder, "node", imported.num_nodes, cx)?;
    Ok(imported)
}

pub(super) fn need(folder: &dyn Folder, name: &str) -> Result<Input> {
    let missing = || Error::bad(folder.path().join(name), "file", "there is no such file", INCOMPLETE);
    folder.input(name)?.ok_or_else(missing)
}

fn text(folder: &dyn Folder, cx: &Context<'_>) -> Result<Imported> {
    let [n, num_edges] = counts(folder, cx)?;
    // First what has a line for each node: afterwards the number of nodes is known to be true.
    let input = need(folder, "raw/node-label.csv.gz")?;
    let y = Table::read(&input, cx, |x| !x.is_infinite())?;
    let labels =
        labels::from_numbers(Task::NodeClassification, &input, "label", &[y.rows, y.width], n as usize, |at| {
            y.values[at].into()
        })?;
    let features = match folder.input("raw/node-feat.csv.gz")? {
        Some(input) => Some(features::from_table(Table::read(&input, cx, f32::is_finite)?, n as usize, &input, cx)?),
        None => None,
    };

    let edge_feat = folder.input("raw/edge-feat.csv.gz")?;
    let expected = Expected { num_nodes: n, origins: edge_feat.is_some() };
    let edges = edges(folder, expected, num_edges, cx, |_| {})?;
    let edge_features = edge_feat.map(|input| features_of_edges(&input, num_edges, cx)).transpose()?;
    Ok(Imported { features, labels: Some(labels), edge_features, ..Imported::new(n as usize, edges) })
}

/// The numbers of nodes and of edges of the only graph.
pub(super) fn counts(folder: &dyn Folder, cx: &Context<'_>) -> Result<[u64; 2]> {
    let count = |name: &str| {
        let input = need(folder, name)?;
        only(&input, "lines", &table::column(&input, cx)?)
    };
    Ok([count("raw/num-node-list.csv.gz")?, count("raw/num-edge-list.csv.gz")?])
}

/// Its edges, of which there are `num_edges`; `look` sees them all.
pub(super) fn edges(
    folder: &dyn Folder,
    expected: Expected,
    num_edges: u64,
    cx: &Context<'_>,
    mut look: impl FnMut(&[[u64; 2]]),
) -> Result<EdgeSorter> {
    let n = expected.num_nodes;
    let mut edges = EdgeSorter::new(expected, cx.rules, cx.scratch)?;
    let input = need(folder, "raw/edge.csv.gz")?;
    let id = |at: Integer| match at {
        Integer { negative: false, magnitude } if magnitude < n => Ok(magnitude),
        Integer { negative, magnitude } => {
            let sign = if negative { "−" } else { "" };
            let run = n.checked_sub(1).map_or("there are none".into(), |last| format!("nodes run from 0 to {last}"));
            Err((format!("node {sign}{magnitude}: {run}"), INCOMPLETE.to_string()))
        }
    };
    Scan::begin(&input, &Options::default(), cx)?.run(id, |piece| {
        look(&piece.edges);
        edges.push(&piece.edges)
    })?;
    check_edges(&input, edges.pushed(), num_edges)?;
    Ok(edges)
}

/// Fails unless as many edges were listed as a dataset says.
pub(super) fn check_edges(input: &Input, listed: u64, said: u64) -> Result<()> {
    if listed == said {
        return Ok(());
    }
    let problem = format!("{listed} edges, num-edge-list.csv.gz says {said}");
    Err(input.bad("edges", problem, CUT_SHORT))
}

/// Features of so many edges, a line each.
pub(super) fn features_of_edges(input: &Input, edges: u64, cx: &Context<'_>) -> Result<EdgeFeatures> {
    let table = table_of_edges(input, edges, cx)?;
    Ok(EdgeFeatures { values: table.values, width: table.width })
}

/// A row of numbers for each edge.
pub(super) fn table_of_edges(input: &Input, edges: u64, cx: &Context<'_>) -> Result<Table> {
    let table = Table::read(input, cx, f32::is_finite)?;
    if table.rows as u64 != edges {
        return Err(input.bad("lines", format!("{} lines for {edges} edges", table.rows), CUT_SHORT));
    }
    Ok(table)
}

/// The only number of a list that has one entry per graph.
fn only(input: &Input, field: &str, counts: &[u64]) -> Result<u64> {
    match *counts {
        [n] if n < 1 << 40 => Ok(n),
        [n] => Err(input.bad(field, format!("{n} is beyond any graph"), INCOMPLETE)),
        _ => {
            let problem = format!("{} graphs, expected one", counts.len());
            Err(input.bad(field, problem, "several graphs need raw/graph-label.csv.gz"))
        }
    }
}

fn binary(folder: &dyn Folder, data: &Input, cx: &Context<'_>) -> Result<Imported> {
    let mut npz = Npz::open(data, cx)?;
    let mut count = |name: &str| only(data, name, &npz.need(name)?.all_below(1 << 40)?);
    let (n, num_edges) = (count("num_nodes_list")?, count("num_edges_list")?);
    let labels = binary_labels(&need(folder, "raw/node-label.npz")?, n as usize, cx)?;

    let index = npz.need("edge_index")?;
    let expected = format!("[2, {num_edges}] (num_edges_list)");
    if index.dimensions(&expected)? != [2, num_edges as usize] {
        return Err(index.wrong_shape(&expected));
    }
    let edge_feat = npz.get("edge_feat")?;
    let mut edges = EdgeSorter::new(Expected { num_nodes: n, origins: edge_feat.is_some() }, cx.rules, cx.scratch)?;
    let count = index.shape[1];
    index.push_edges(count, n, |k| [k, count + k], &mut edges)?;
    drop(index);
    let edge_features = edge_feat.map(|array| edge_features(array, num_edges, cx)).transpose()?;
    let features = npz.get("node_feat")?.map(|array| features::from_array(array, n as usize, cx)).transpose()?;
    let known = ["edge_index", "num_nodes_list", "num_edges_list", "node_feat", "edge_feat"];
    let others: Vec<&str> = npz.names().iter().map(String::as_str).filter(|name| !known.contains(name)).collect();
    let notes = match others[..] {
        [] => Vec::new(),
        _ => vec![format!("arrays that a dataset folder has no place for were skipped: {}", others.join(", "))],
    };
    Ok(Imported { features, labels: Some(labels), edge_features, notes, ..Imported::new(n as usize, edges) })
}

fn binary_labels(input: &Input, n: usize, cx: &Context<'_>) -> Result<(Labels, usize)> {
    let y = Npz::open(input, cx)?.need("node_label")?;
    labels::from_numbers(Task::NodeClassification, input, "node_label", &y.shape, n, |at| y.number(at))
}

pub(super) fn edge_features(array: Array, num_edges: u64, cx: &Context<'_>) -> Result<EdgeFeatures> {
    let expected = format!("[{num_edges}, columns]");
    let [rows, width] = array.dimensions(&expected)?;
    if rows as u64 != num_edges || width == 0 {
        return Err(array.wrong_shape(&expected));
    }
    let input = array.input().clone();
    let name = array.name.clone();
    let values = array.into_f32(cx.scratch)?;
    if let Some(at) = values.iter().position(|x| !x.is_finite()) {
        return Err(features::not_finite(&input, &name, at, width));
    }
    Ok(EdgeFeatures { values, width })
}

/// The splits of `n` of what is called `noun`.
pub(super) fn splits(folder: &dyn Folder, noun: &str, n: usize, cx: &Context<'_>) -> Result<Vec<Split>> {
    folder
        .folders("split")?
        .into_iter()
        .map(|name| {
            let file = |part: &str| format!("split/{name}/{part}.csv.gz");
            let part = |part: &str| -> Result<Vec<i64>> {
                let ids = table::column(&need(folder, &file(part))?, cx)?;
                // What does not fit is refused below, with its position.
                Ok(ids.into_iter().map(|id| i64::try_from(id).unwrap_or(i64::MAX)).collect())
            };
            let (train, valid, test) = (part("train")?.into(), part("valid")?.into(), part("test")?.into());
            let split = Split { name: name.clone(), train, valid, test };
            match split.check_among(n, noun) {
                Ok(()) => Ok(split),
                Err((which, problem)) => {
                    let part = split.parts()[which].0;
                    let remedy = format!("each {noun} belongs to one of train, valid and test");
                    Err(Error::bad(folder.path().join(file(part)), part, problem, remedy))
                }
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Features;
    use crate::fuzz;
    use crate::read::Memory;
    use crate::read::testing::{KEEP, array, assert_refused, edges, with_context};

    type Files = Vec<(&'static str, Vec<u8>)>;

    fn read_files(files: &[(&str, Vec<u8>)]) -> Result<Imported> {
        let folder = Memory(files.iter().map(|(name, bytes)| (name.to_string(), bytes.clone())).collect());
        with_context(KEEP, |cx| read(&folder, cx))
    }

    fn csv() -> Files {
        vec![
            ("raw/edge.csv.gz", b"0,1\n1,2\n2,2\n".to_vec()),
            ("raw/num-node-list.csv.gz", b"3\n".to_vec()),
            ("raw/num-edge-list.csv.gz", b"3\n".to_vec()),
            ("raw/node-label.csv.gz", b"0\n4\nnan\n".to_vec()),
            ("raw/node-feat.csv.gz", b"0.5,-1\n1e-3,2\n3,4.0\n".to_vec()),
            ("raw/edge-feat.csv.gz", b"0.1,1\n0.2,2\n0.3,3\n".to_vec()),
            ("split/time/train.csv.gz", b"2\n0\n".to_vec()),
            ("split/time/valid.csv.gz", b"1\n".to_vec()),
            ("split/time/test.csv.gz", b"\n".to_vec()),
        ]
    }

    fn binary_files() -> Files {
        let data = [
            ("edge_index", array(&[2, 3], &[0i64, 1, 2, 1, 2, 2])),
            ("num_nodes_list", array(&[1], &[3i64])),
            ("num_edges_list", array(&[1], &[3i64])),
            ("node_feat", array(&[3, 2], &[half::f16::ONE; 6])),
            ("node_year", array(&[3, 1], &[1999i64, 2000, 2001])),
        ];
        let data: Vec<(String, Vec<u8>)> = data.into_iter().map(|(n, b)| (n.to_string(), b)).collect();
        let label = [("node_label".to_string(), array(&[3, 1], &[7.0f32, f32::NAN, 0.0]))];
        vec![("raw/data.npz", fuzz::archive(&data)), ("raw/node-label.npz", fuzz::archive(&label))]
    }

    #[test]
    fn text_and_binary_folders_are_read() {
        let imported = read_files(&csv()).unwrap();
        assert_eq!(imported.labels, Some((Labels::Single(vec![0, 4, -1].into()), 5)));
        assert_eq!(imported.features.as_ref().map(Features::width), Some(2));
        assert_eq!((imported.splits[0].name.as_str(), &imported.splits[0].train[..]), ("time", &[2, 0][..]));
        assert_eq!(edges(imported), [(0, 1, 0.1), (1, 2, 0.2), (2, 2, 0.3)]);

        let imported = read_files(&binary_files()).unwrap();
        assert_eq!(imported.labels, Some((Labels::Single(vec![7, -1, 0].into()), 8)));
        assert!(matches!(imported.features, Some(Features::Dense(crate::dataset::Dense::F16 { .. }))));
        assert!(imported.notes[0].contains("node_year"), "{:?}", imported.notes);
        assert_eq!(edges(imported), [(0, 1, 0.0), (1, 2, 0.0), (2, 2, 0.0)]);
    }

    #[test]
    fn several_labels_per_node() {
        let with = |labels: &str| {
            let mut files = csv();
            files[3].1 = labels.into();
            read_files(&files).unwrap().labels
        };
        assert_eq!(with("0,1\n1,1\n0,0\n"), Some((Labels::MultiU8(vec![0, 1, 1, 1, 0, 0].into()), 2)));
        assert!(matches!(with("0,1\n1,nan\n0,0\n"), Some((Labels::MultiF32(_), 2))));
        let far = |at| if at == 5 { 1e300 } else { f64::NAN };
        let input = Input::memory("t", &b"x"[..]).unwrap();
        let message =
            labels::from_numbers(Task::NodeClassification, &input, "y", &[3, 2], 3, far).unwrap_err().to_string();
        assert!(message.contains("y[2, 1] is inf: expected 0 or 1"), "{message}");
    }

    #[test]
    fn anything_missing_or_wrong_is_named_by_file() {
        let with = |name: &'static str, contents: &str| {
            let files = csv().into_iter().filter(|(n, _)| *n != name);
            read_files(&files.chain([(name, contents.as_bytes().to_vec())]).collect::<Vec<_>>())
        };
        for missing in
            ["raw/edge.csv.gz", "raw/num-node-list.csv.gz", "raw/node-label.csv.gz", "split/time/valid.csv.gz"]
        {
            let files: Files = csv().into_iter().filter(|(n, _)| *n != missing).collect();
            assert_refused(read_files(&files), &[missing, "no such file"]);
        }
        assert_refused(with("raw/triplet-type-list.csv.gz", "a,b,c\n"), &["num-node-dict.csv.gz", "no such file"]);
        assert_refused(with("raw/edge.csv.gz", "0,1\n1,3\n2,2\n"), &["edge.csv.gz: line 2, column 2", "0 to 2"]);
        assert_refused(with("raw/edge.csv.gz", "0,1\n-1,0\n2,2\n"), &["edge.csv.gz: line 2, column 1", "−1"]);
        assert_refused(with("raw/edge.csv.gz", "0,1\n"), &["1 edges", "says 3"]);
        assert_refused(with("raw/num-node-list.csv.gz", "3\n4\n"), &["2 graphs"]);
        assert_refused(with("raw/num-node-list.csv.gz", "9999999999999\n"), &["beyond any graph"]);
        assert_refused(with("raw/num-node-list.csv.gz", "1000000000000\n"), &["node-label.csv.gz"]);
        assert_refused(with("raw/node-feat.csv.gz", "1,2\n3,4\n"), &["2 lines of features for 3 nodes"]);
        assert_refused(with("raw/node-feat.csv.gz", "1,2\n3\n4,5\n"), &["line 2", "1 columns, the first line has 2"]);
        assert_refused(with("raw/node-feat.csv.gz", "1,2\n3,4,5\n4,5\n"), &["line 2", "more than 2 columns"]);
        assert_refused(with("raw/node-feat.csv.gz", "1,2\n3,nan\n4,5\n"), &["node-feat.csv.gz: line 2, column 2"]);
        assert_refused(with("raw/edge-feat.csv.gz", "1\n2\n"), &["2 lines for 3 edges"]);
        assert_refused(with("split/time/train.csv.gz", "0\n3\n"), &["train.csv.gz", "train[1] = 3"]);
        assert_refused(with("split/time/train.csv.gz", "0\n1\n"), &["valid.csv.gz", "already in train"]);
    }
}
