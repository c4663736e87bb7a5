//! Data of one's own: edges, features, labels and splits from NumPy and SciPy files, and from tables where these hold
//! one of them. [Tables](super::tables) that have all of it are read by themselves; the table of nodes here is one of
//! those.
//!
//! Row i of every file is node i. A [table of nodes](Given::nodes) may have a column of ids: then edges and lists of
//! ids are written in these, and they are kept as `node_id.npy`. How many nodes there are is said by whatever has a row
//! for each; where nothing does, by the largest id.
//!
//! Whatever is given is used or refused: an array whose name means nothing is an error, never skipped.

mod edges;
mod file;
mod nodes;
mod parts;
#[cfg(test)]
mod tests;

use graphweft_base::{Error, Result};

use super::edge_list::Options;
use super::features::{self, from_dense};
use super::imported::EdgeFeatures;
use super::labels;
use super::ogb::edge_features;
use super::tables::{self, All, Classes, Kept, LabelsAre, Nodes, Rows as TableRows, read_plain};
use super::{Context, Imported, Input};
use crate::dataset::{Features, Task};
use edges::Numbering;
use file::{Contents, Sparse};

pub use file::File;
pub use nodes::Columns;

/// What there is of a graph, file by file.
#[derive(Clone, Debug)]
pub struct Given {
    /// The edges: an edge list, `.npy` of shape [2, E] or [E, 2], a SciPy matrix, Matrix Market or METIS.
    pub edges: File,
    /// A CSV with a header and a row for each node: an id, features, a label, a part of a split.
    pub nodes: Option<Input>,
    /// How the columns of `nodes` are called.
    pub columns: Columns,
    /// Features: `.npy` [N, F], a SciPy csr matrix, or CSV.
    pub features: Option<File>,
    /// Labels: `.npy` \[N\] or [N, C], or CSV.
    pub labels: Option<File>,
    /// What the labels are for.
    pub task: Task,
    /// An archive of masks or ids for train, valid and test.
    pub splits: Option<File>,
    /// A mask or ids for train, valid and test each.
    pub parts: [Option<File>; 3],
    /// Numbers that belong to edges.
    pub edge_features: EdgeNumbers,
    /// The number of nodes, where no file says it.
    pub num_nodes: Option<u64>,
}

/// Where edge features are.
#[derive(Clone, Debug, Default)]
pub enum EdgeNumbers {
    /// There are none.
    #[default]
    None,
    /// In the edge list, from the third column on.
    Columns,
    /// In a file with a row for each edge, in the order of the edges.
    File(File),
}

/// How many nodes there are.
struct Rows {
    n: u64,
    /// What says so.
    by: String,
}

/// Reads all of it.
///
/// # Errors
/// [`Error::BadInput`] naming the file, the field and the position; [`Error::Request`] where the same is given twice.
pub fn read(given: &Given, cx: &Context<'_>) -> Result<Imported> {
    let mut notes = Vec::new();
    let read = |input| nodes::read(input, &given.columns, cx);
    let mut table = given.nodes.as_ref().map(read).transpose()?.flatten();
    check_twice(given, table.as_ref())?;
    let mut rows = given.num_nodes.map(|n| Rows { n, by: "--num-nodes".into() });
    let mut labels = None;
    if let (Some(table), Some(input)) = (&mut table, &given.nodes) {
        notes.append(&mut table.notes);
        agree(&mut rows, table.rows.rows, "nodes", input)?;
        labels = table.classes(input, given.task)?;
    }
    if let Some(file) = &given.labels {
        labels = Some(read_labels(file, given.task, &mut rows, cx)?);
    }
    if labels.is_none() && given.task == Task::NodeRegression {
        let what = "there are no numbers to predict, which node-regression needs";
        return Err(Error::request(what, "give them with --labels, or name their columns with --label-columns"));
    }
    let mut features = None;
    if let (Some(table), Some(input)) = (&mut table, &given.nodes) {
        features = table.features(input, cx)?;
    }
    if let Some(file) = &given.features {
        features = Some(read_features(file, &mut rows, cx)?);
    }

    let named = table.as_mut().and_then(|t| t.ids.take());
    let by = given.nodes.as_ref().map(|input| input.path().display().to_string()).unwrap_or_default();
    let numbering = match (&named, &rows) {
        (Some(ids), Some(rows)) => Numbering::Names { n: rows.n, ids, by: &by },
        (None, Some(rows)) => Numbering::Rows { n: rows.n, by: &rows.by },
        (_, None) => Numbering::Open,
    };
    let options = Options {
        edge_features: matches!(given.edge_features, EdgeNumbers::Columns),
        places: matches!(given.edge_features, EdgeNumbers::File(_)),
        ..Options::default()
    };
    let mut imported = edges::read(&given.edges, &numbering, &options, cx)?;
    if let EdgeNumbers::File(file) = &given.edge_features {
        imported.edge_features = Some(read_edge_features(file, imported.edges.pushed(), cx)?);
    }
    let parts_of = |t: &Nodes| Some(t.rows.parts.clone()).filter(|parts| !parts.is_empty());
    imported.splits = match (table.as_ref().and_then(parts_of).zip(given.nodes.as_ref()), source(given)?) {
        (Some((parts, input)), _) => vec![tables::split(input, &parts, 0, imported.num_nodes)?],
        (None, Some(source)) => parts::read(&source, imported.num_nodes, &numbering, cx)?,
        (None, None) => Vec::new(),
    };
    imported.categories = table.as_ref().map(Nodes::categories).transpose()?.flatten();
    if imported.splits.is_empty() {
        notes.push("no split was given: train with --split random:60/20/20".into());
    }
    if let Some(classes) = labels {
        notes.extend(classes.about());
        imported.labels = Some((classes.labels, classes.count));
        imported.class_names = classes.names;
    }
    imported.features = features;
    match named.map(|ids| ids.into_written().kept()) {
        None | Some(Kept::Nothing) => {}
        Some(Kept::Ids(ids)) => imported.node_ids = Some(ids),
        Some(Kept::Names(lines)) => imported.node_names = Some(lines),
    }
    imported.notes.splice(0..0, notes);
    Ok(imported)
}

/// Notes how many nodes a file is for, or refuses it.
fn agree(rows: &mut Option<Rows>, found: usize, field: &str, input: &Input) -> Result<()> {
    match rows {
        None => *rows = Some(Rows { n: found as u64, by: input.path().display().to_string() }),
        Some(known) if known.n == found as u64 => {}
        Some(Rows { n, by }) => {
            let problem = format!("{found} rows, but there are {n} nodes ({by})");
            return Err(input.bad(field, problem, "each file needs one row for each node"));
        }
    }
    Ok(())
}

/// Refuses what the table of nodes and another file both have.
fn check_twice(given: &Given, table: Option<&Nodes>) -> Result<()> {
    let twice = |what: &str, flag: &str| {
        let problem = format!("there are {what} in the table of nodes and in {flag}");
        Err(Error::request(problem, format!("leave out {flag}, or the columns with --skip-columns")))
    };
    let Some(table) = table else { return Ok(()) };
    if table.rows.width > 0 && given.features.is_some() {
        return twice("features", "--features");
    }
    if table.labels_are != LabelsAre::None && given.labels.is_some() {
        return twice("labels", "--labels");
    }
    let splits = given.splits.is_some() || given.parts.iter().any(Option::is_some);
    if !table.rows.parts.is_empty() && splits {
        return twice("splits", "the files of a split");
    }
    Ok(())
}

fn source(given: &Given) -> Result<Option<parts::Source<'_>>> {
    let [train, valid, test] = &given.parts;
    match (&given.splits, [train, valid, test]) {
        (Some(file), [None, None, None]) => Ok(Some(parts::Source::Archive(file))),
        (Some(_), _) => Err(Error::request(
            "a split is given twice: as one archive and in files of its own",
            "give --splits, or --train, --valid and --test",
        )),
        (None, [Some(a), Some(b), Some(c)]) => Ok(Some(parts::Source::Files([a, b, c]))),
        (None, [None, None, None]) => Ok(None),
        (None, files) => {
            let missing: Vec<&str> = ["--train", "--valid", "--test"]
                .iter()
                .zip(files)
                .filter(|(_, f)| f.is_none())
                .map(|(n, _)| *n)
                .collect();
            let what = format!("a split needs --train, --valid and --test: {} is missing", missing.join(" and "));
            Err(Error::request(what, "give all three, or none and train with --split random:60/20/20"))
        }
    }
}

fn table_features(table: TableRows, input: &Input, cx: &Context<'_>) -> Result<Features> {
    from_dense(input, "features", table.features, table.rows, table.width, cx)
}

fn read_features(file: &File, rows: &mut Option<Rows>, cx: &Context<'_>) -> Result<Features> {
    match file.load("features", cx)? {
        Contents::Array(array) => {
            let [n, _] = array.dimensions("[nodes, columns]")?;
            let features = features::from_array(array, n, cx)?;
            agree(rows, n, "features", &file.input)?;
            Ok(features)
        }
        Contents::Sparse(matrix) => match *matrix {
            Sparse::Rows(matrix) => {
                let [n, _] = matrix.shape;
                let features = matrix.into_features(n, cx)?;
                agree(rows, n, "features", &file.input)?;
                Ok(features)
            }
            other => Err(other.bad("sparse features are read by rows", "save scipy.sparse.csr_matrix(x)")),
        },
        Contents::Text => {
            let table = read_plain(&file.input, All::Features, cx)?;
            agree(rows, table.rows, "features", &file.input)?;
            table_features(table, &file.input, cx)
        }
    }
}

fn read_labels(file: &File, task: Task, rows: &mut Option<Rows>, cx: &Context<'_>) -> Result<Classes> {
    match file.load("labels", cx)? {
        Contents::Array(y) => {
            let n = y.shape.first().copied().unwrap_or(0);
            let (labels, count) = labels::from_numbers(task, &file.input, &y.name, &y.shape, n, |at| y.number(at))?;
            agree(rows, n, "labels", &file.input)?;
            Ok(Classes { labels, count, names: None })
        }
        Contents::Sparse(matrix) => {
            Err(matrix.bad("labels are not a sparse matrix", "save y.toarray() with numpy.save"))
        }
        Contents::Text => {
            let mut table = read_plain(&file.input, All::Labels, cx)?;
            agree(rows, table.rows, "labels", &file.input)?;
            match table.words.pop() {
                Some(words) => tables::classes(&file.input, task, words),
                None => tables::several(&file.input, task, &table.labels, table.rows),
            }
        }
    }
}

fn read_edge_features(file: &File, edges: u64, cx: &Context<'_>) -> Result<EdgeFeatures> {
    match file.load("edge_features", cx)? {
        Contents::Array(mut array) => {
            if let [rows] = array.shape[..] {
                // A weight each.
                array.shape = vec![rows, 1];
            }
            edge_features(array, edges, cx)
        }
        Contents::Sparse(matrix) => {
            Err(matrix.bad("edge features are not a sparse matrix", "save x.toarray() with numpy.save"))
        }
        Contents::Text => {
            let table = read_plain(&file.input, All::Features, cx)?;
            if table.rows as u64 != edges {
                let problem = format!("{} rows for {edges} edges", table.rows);
                return Err(file.input.bad("edge_features", problem, "give one row for each edge, in their order"));
            }
            Ok(EdgeFeatures { values: table.features, width: table.width })
        }
    }
}
