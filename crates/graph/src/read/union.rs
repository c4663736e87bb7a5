//! Several dataset folders as one: their nodes one folder after the other, no edge between them.
//!
//! Features are of the same columns everywhere, dense or sparse; where they differ that is an error, as it is where
//! labels are of another kind. Category columns, classes and features of edges follow. A split of the union is made of
//! the splits that have its name in every folder. Nodes are numbered anew, so ids of the sources are left behind.

use graphweft_base::{Error, Result};

use super::imported::EdgeFeatures;
use super::{Context, Imported};
use crate::build::{EdgeSorter, Expected};
use crate::csr::NodeId;
use crate::dataset::{Categories, Dataset, Dense, Features, Labels, SparseFeatures, Split, Task};
use crate::with_csr;

/// Edges that are handed to the sorter at a time.
const LOT: usize = 1 << 16;

/// Puts datasets together.
///
/// # Errors
/// [`Error::BadInput`] naming the folder that differs from the first, and in what.
pub fn read(folders: &[Dataset], cx: &Context<'_>) -> Result<Imported> {
    let Some(first) = folders.first() else {
        return Err(Error::request("there is no folder to put together", "name two or more"));
    };
    for data in folders {
        let task = data.meta().task;
        if data.graphs().is_some() || task == Task::Link {
            let problem = "it has many graphs, or links to predict: only data of nodes can be put together";
            return Err(Error::bad(data.dir(), "task", problem, "leave it out"));
        }
        if !data.meta().node_types.is_empty() || data.edge_types()?.is_some() || data.edge_categories().is_some() {
            let problem = "its nodes or edges have types or categories, which cannot be put together yet";
            return Err(Error::bad(data.dir(), "types", problem, "leave it out"));
        }
        same(first, data, "task", |data| format!("{:?}", data.meta().task))?;
        same(first, data, "features", |data| columns(data.features().map(Features::width)))?;
        same(first, data, "cat", |data| columns(data.categories().map(|c| c.sizes().len())))?;
        same(first, data, "edge_feat", |data| columns(data.edge_features().map(Dense::width)))?;
        same(first, data, "label", kind)?;
        same(first, data, "classes.txt", |data| {
            class_names(data).map_or("no names of classes".into(), |n| n.join(", "))
        })?;
    }
    let nodes: Vec<usize> = folders.iter().map(|data| data.meta().num_nodes).collect();
    let total: usize = nodes.iter().sum();
    let expected = Expected { num_nodes: total as u64, origins: first.edge_features().is_some() };
    let mut edges = EdgeSorter::new(expected, cx.rules, cx.scratch)?;
    for (data, start) in folders.iter().zip(starts(&nodes)) {
        with_csr!(data.graph()?, graph => push(graph, start as u64, &mut edges)?);
    }
    let mut imported = Imported::new(total, edges);
    imported.features = features(folders, &nodes);
    imported.categories = categories(folders)?;
    imported.edge_features = edge_features(folders);
    imported.labels = labels(folders);
    imported.class_names = class_names(first);
    let (splits, left) = splits(folders, &nodes);
    imported.splits = splits;
    if !left.is_empty() {
        imported
            .notes
            .push(format!("not every folder has a split of this name, so it is left out: {}", left.join(", ")));
    }
    let ids: Vec<String> =
        folders.iter().zip(starts(&nodes)).map(|(data, start)| format!("{} from {start}", data.meta().name)).collect();
    imported.notes.push(format!("nodes are numbered anew: {}", ids.join(", ")));
    Ok(imported)
}

/// Fails where something is not as in the first folder.
fn same(first: &Dataset, data: &Dataset, field: &str, of: impl Fn(&Dataset) -> String) -> Result<()> {
    let (wanted, found) = (of(first), of(data));
    if wanted == found {
        return Ok(());
    }
    let problem = format!("{found}, but {} has {wanted}", first.dir().display());
    Err(Error::bad(data.dir(), field, problem, "put together only data whose columns mean the same"))
}

fn columns(count: Option<usize>) -> String {
    count.map_or_else(|| "no columns".into(), |count| format!("{count} columns"))
}

/// What classes are called, where the source had words.
fn class_names(data: &Dataset) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(data.dir().join("classes.txt")).ok()?;
    Some(text.lines().map(String::from).collect())
}

fn kind(data: &Dataset) -> String {
    let classes = data.meta().num_classes;
    match data.labels() {
        None => "no labels".into(),
        Some(Labels::Single(_)) => "a class per node".into(),
        Some(Labels::MultiU8(_) | Labels::MultiF32(_)) => format!("{classes} labels per node"),
        Some(Labels::Values(_)) => format!("{classes} numbers per node"),
    }
}

/// Where the nodes of each folder begin.
fn starts(nodes: &[usize]) -> impl Iterator<Item = usize> {
    nodes.iter().scan(0, |next, count| {
        let start = *next;
        *next += count;
        Some(start)
    })
}

fn push<I: NodeId>(graph: &crate::csr::Csr<I>, start: u64, edges: &mut EdgeSorter) -> Result<()> {
    let mut lot: Vec<[u64; 2]> = Vec::with_capacity(LOT);
    for node in 0..graph.num_dst() {
        for source in graph.row(node) {
            lot.push([start + source.index() as u64, start + node as u64]);
            if lot.len() == LOT {
                edges.push(&lot)?;
                lot.clear();
            }
        }
    }
    edges.push(&lot)
}

/// Sparse if one of them is.
fn features(folders: &[Dataset], nodes: &[usize]) -> Option<Features> {
    let all: Vec<&Features> = folders.iter().map(Dataset::features).collect::<Option<_>>()?;
    let width = all.first()?.width();
    let dense: Option<Vec<&Dense>> =
        all.iter().map(|x| if let Features::Dense(m) = x { Some(m) } else { None }).collect();
    if let Some(dense) = dense {
        let values: Vec<f32> = dense.iter().flat_map(|m| numbers(m)).collect();
        return Some(Features::Dense(Dense::F32 { values: values.into(), width }));
    }
    let (mut indptr, mut indices, mut data) = (vec![0u64], Vec::new(), Vec::new());
    for (features, nodes) in all.iter().zip(nodes) {
        let before = indices.len() as u64;
        match features {
            Features::Sparse(m) => {
                indices.extend_from_slice(&m.indices);
                data.extend((0..m.indices.len()).map(|at| m.data.as_ref().map_or(1.0, |data| data[at])));
                indptr.extend(m.indptr[1..].iter().map(|end| before + end));
            }
            Features::Dense(m) => {
                let values = numbers(m);
                for row in 0..*nodes {
                    let row = &values[row * width..][..width];
                    for (x, column) in row.iter().zip(0u32..).filter(|(x, _)| **x != 0.0) {
                        indices.push(column);
                        data.push(*x);
                    }
                    indptr.push(indices.len() as u64);
                }
            }
        }
    }
    let data = data.iter().any(|x| *x != 1.0).then(|| data.into());
    Some(Features::Sparse(SparseFeatures { indptr: indptr.into(), indices: indices.into(), data, width }))
}

fn numbers(m: &Dense) -> Vec<f32> {
    match m {
        Dense::F32 { values, .. } => values.to_vec(),
        Dense::F16 { values, .. } => values.iter().map(|x| x.to_f32()).collect(),
    }
}

/// A column has as many categories as it has in the folder where there are most.
fn categories(folders: &[Dataset]) -> Result<Option<Categories>> {
    let Some(all) = folders.iter().map(Dataset::categories).collect::<Option<Vec<_>>>() else { return Ok(None) };
    let width = all.first().map_or(0, |c| c.sizes().len());
    let most = |column| all.iter().map(|c| c.sizes()[column]).max().unwrap_or(0);
    let sizes: Vec<u32> = (0..width).map(most).collect();
    let row = |c: &Categories, row: usize| (0..width).map(|column| c.get(row, column) as u16).collect::<Vec<_>>();
    let values: Vec<u16> = all.iter().flat_map(|c| (0..c.rows()).flat_map(|at| row(c, at))).collect();
    Categories::new(values, width, &sizes).map(Some)
}

/// In the order in which edges are pushed, which is that of the folders.
fn edge_features(folders: &[Dataset]) -> Option<EdgeFeatures> {
    let all: Vec<&Dense> = folders.iter().map(Dataset::edge_features).collect::<Option<_>>()?;
    let values: Vec<f32> = all.iter().flat_map(|m| numbers(m)).collect();
    Some(EdgeFeatures { values: values.into(), width: all.first()?.width() })
}

fn labels(folders: &[Dataset]) -> Option<(Labels, usize)> {
    let all: Vec<&Labels> = folders.iter().map(Dataset::labels).collect::<Option<_>>()?;
    let classes = folders.iter().map(|data| data.meta().num_classes).max().unwrap_or(0);
    let wide = |labels: &Labels| match labels {
        Labels::MultiU8(y) => y.iter().map(|x| f32::from(*x)).collect(),
        Labels::MultiF32(y) | Labels::Values(y) => y.to_vec(),
        Labels::Single(_) => Vec::new(),
    };
    let rows = || all.iter().flat_map(|labels| wide(labels)).collect::<Vec<f32>>().into();
    let labels = match all.first()? {
        Labels::Single(_) => {
            let ids = |labels: &&Labels| if let Labels::Single(y) = labels { y.to_vec() } else { Vec::new() };
            Labels::Single(all.iter().flat_map(ids).collect::<Vec<i64>>().into())
        }
        Labels::MultiU8(_) | Labels::MultiF32(_) => Labels::MultiF32(rows()),
        Labels::Values(_) => Labels::Values(rows()),
    };
    Some((labels, classes))
}

/// Splits that all folders have, and the names of the others.
fn splits(folders: &[Dataset], nodes: &[usize]) -> (Vec<Split>, Vec<String>) {
    let has = |data: &Dataset, name: &str| data.splits().iter().any(|split| split.name == name);
    let mut names: Vec<&str> = folders.iter().flat_map(Dataset::splits).map(|split| split.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let (kept, left): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| folders.iter().all(|data| has(data, name)));
    let whole = |name: &&str| {
        let mut parts = [const { Vec::new() }; 3];
        for (data, start) in folders.iter().zip(starts(nodes)) {
            for split in data.splits().iter().filter(|split| split.name == *name) {
                for (part, (_, ids)) in parts.iter_mut().zip(split.parts()) {
                    part.extend(ids.iter().map(|id| id + start as i64));
                }
            }
        }
        let [train, valid, test] = parts.map(Into::into);
        Split { name: (*name).into(), train, valid, test }
    };
    (kept.iter().map(whole).collect(), left.into_iter().map(String::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;
    use crate::dataset::{DatasetWriter, Meta};
    use crate::read::testing::{KEEP, assert_refused, edges, with_context};

    /// Three nodes, or two, with a class and a row each.
    fn folder(dir: &std::path::Path, name: &str, features: &Features, class: i64) -> Dataset {
        let n = match features {
            Features::Dense(m) => m.len() / m.width(),
            Features::Sparse(m) => m.indptr.len() - 1,
        };
        let graph = Csr::from_edges(n, &[0, 1], &[1, 0]).unwrap();
        let out = DatasetWriter::create(dir.join(name)).unwrap();
        out.graph(&graph.clone().into()).unwrap();
        out.features(features).unwrap();
        out.labels(&Labels::Single(vec![class; n].into()), 2).unwrap();
        let split =
            |name: &str| Split { name: name.into(), train: vec![0].into(), valid: vec![].into(), test: vec![1].into() };
        out.split(&split("both")).unwrap();
        out.split(&split(name)).unwrap();
        let meta = Meta { num_features: features.width(), num_classes: 2, ..Meta::of(name, &graph, true) };
        out.finish(&meta).unwrap();
        Dataset::open(dir.join(name)).unwrap()
    }

    fn dense(values: &[f32], width: usize) -> Features {
        Features::Dense(Dense::F32 { values: values.to_vec().into(), width })
    }

    #[test]
    fn nodes_follow_one_another_with_all_that_they_have() {
        let dir = tempfile::tempdir().unwrap();
        let a = folder(dir.path(), "a", &dense(&[1.0, 0.0, 2.0, 3.0, 0.0, 4.0], 2), 0);
        let bag = SparseFeatures { indptr: vec![0, 1, 2].into(), indices: vec![1, 0].into(), data: None, width: 2 };
        let b = folder(dir.path(), "b", &Features::Sparse(bag), 1);
        let both = with_context(KEEP, |cx| read(&[a.clone(), b], cx)).unwrap();
        let Some(Features::Sparse(m)) = &both.features else { panic!("sparse") };
        assert_eq!((&m.indptr[..], &m.indices[..]), (&[0, 1, 3, 4, 5, 6][..], &[0, 0, 1, 1, 1, 0][..]));
        assert_eq!(m.data.as_ref().unwrap()[..], [1.0, 2.0, 3.0, 4.0, 1.0, 1.0]);
        assert_eq!(both.labels, Some((Labels::Single(vec![0, 0, 0, 1, 1].into()), 2)));
        let [split] = &both.splits[..] else { panic!("one split") };
        assert_eq!((split.name.as_str(), &split.train[..], &split.test[..]), ("both", &[0, 3][..], &[1, 4][..]));
        assert!(both.notes[0].contains("a, b") && both.notes[1].contains("b from 3"), "{:?}", both.notes);
        assert_eq!(edges(both), [(1, 0, 0.0), (0, 1, 0.0), (4, 3, 0.0), (3, 4, 0.0)]);
        let c = folder(dir.path(), "c", &dense(&[5.0, 6.0, 7.0, 8.0], 2), 1);
        let alike = with_context(KEEP, |cx| read(&[a, c], cx)).unwrap();
        assert_eq!(alike.features, Some(dense(&[1.0, 0.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 7.0, 8.0], 2)));
    }

    #[test]
    fn what_differs_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let a = folder(dir.path(), "a", &dense(&[1.0, 0.0, 2.0, 3.0], 2), 0);
        let b = folder(dir.path(), "b", &dense(&[1.0, 0.0], 1), 0);
        let union = |folders: &[Dataset]| with_context(KEEP, |cx| read(folders, cx));
        assert_refused(union(&[a, b]), &["b: features", "1 columns", "has 2 columns"]);
        assert!(union(&[]).is_err());
    }
}
