//! What a model says of every node, as a file: logits, probabilities, labels or values, as NumPy array or as CSV. Which
//! of them there are, and what they look like, a [`Task`] says.
//!
//! Rows are nodes in original order and may come lot by lot. CSV has a line of names and, first, the node: the id that
//! its source used, where an import has numbered nodes anew (`node_id.npy`). A number that is not finite is an error,
//! and leaves no file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use graphweft_base::{Error as Bad, durable};
use graphweft_graph::Buf;
use graphweft_graph::npy::{NpyFile, NpyType, NpyWriter};

use crate::error::{Error, Result};
use crate::task::Task;

/// What is written of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// As the model gives them: float32.
    Logits,
    /// Of classes, which sum to 1, or of each label by itself: float32.
    Probabilities,
    /// The most probable class (int64), or 0 or 1 for each label (uint8).
    Labels,
    /// Numbers that are predicted: float32.
    Values,
}

impl What {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Logits => "logits",
            Self::Probabilities => "probabilities",
            Self::Labels => "labels",
            Self::Values => "values",
        }
    }
}

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A NumPy array, a row per node.
    Npy,
    /// Text, a line per node after one with names.
    Csv,
}

/// What is written of a row.
#[derive(Clone, Debug)]
pub struct Written {
    /// What its columns are called.
    pub names: Vec<String>,
    /// What is in them.
    pub cells: Cells,
}

/// How numbers of a row become what is written.
#[derive(Clone, Copy, Debug)]
pub enum Cells {
    /// All as they are: float32.
    Floats,
    /// All together become one: int64.
    Integer(fn(&[f32]) -> i64),
    /// Each becomes one: uint8.
    Bytes(fn(f32) -> u8),
}

impl Written {
    /// Numbers as they are, in columns that are called `name` and numbered.
    pub fn floats(name: &str, columns: usize) -> Self {
        Self { names: (0..columns).map(|k| format!("{name}_{k}")).collect(), cells: Cells::Floats }
    }

    /// What is written of models that choose among classes, or say yes or no to each of several: logits, probabilities
    /// or these `labels`.
    pub(crate) fn of_choices(what: What, columns: usize, labels: impl FnOnce() -> Self) -> Option<Self> {
        match what {
            What::Logits => Some(Self::floats("logit", columns)),
            What::Probabilities => Some(Self::floats("probability", columns)),
            What::Labels => Some(labels()),
            What::Values => None,
        }
    }
}

/// Ids as the source of a dataset has them.
#[derive(Clone, Debug)]
pub(crate) enum NodeIds {
    /// Places in the dataset.
    Places,
    /// The same, of graphs.
    Graphs,
    /// `node_id.npy`.
    Signed(Buf<i64>),
    /// The same where some are beyond int64.
    Unsigned(Buf<u64>),
    /// `nodes.txt`.
    Named(Vec<String>),
}

impl NodeIds {
    /// Those of the dataset in `folder`, if it is one, which has so many nodes.
    ///
    /// # Errors
    /// If `node_id.npy` is there and not an id for each node.
    pub(crate) fn of(folder: Option<&Path>, nodes: usize) -> Result<Self> {
        let path = folder.map(|folder| folder.join("node_id.npy")).filter(|path| path.exists());
        let Some(path) = path else { return Ok(Self::Places) };
        let file = NpyFile::open(&path)?;
        if file.shape() != [nodes] {
            return Err(file.wrong_shape("node_id", &format!("[{nodes}] (num_nodes)")).into());
        }
        let found = match file.dtype() {
            NpyType::I64 => file.elements().map(Self::Signed),
            NpyType::U64 => file.elements().map(Self::Unsigned),
            _ => None,
        };
        found.ok_or_else(|| file.wrong_dtype("node_id", "int64 or uint64").into())
    }

    /// What the nodes of the dataset in `folder` are called, or their ids where they have no names.
    ///
    /// # Errors
    /// If `nodes.txt` is there and not a name for each node.
    pub(crate) fn of_names(folder: Option<&Path>, nodes: usize) -> Result<Self> {
        let path = folder.map(|folder| folder.join("nodes.txt")).filter(|path| path.exists());
        let Some(path) = path else { return Self::of(folder, nodes) };
        let text = std::fs::read_to_string(&path).map_err(|e| Bad::unreadable(&path, "file", &e))?;
        let names: Vec<String> = text.lines().map(String::from).collect();
        if names.len() != nodes {
            let problem = format!("{} names, expected one for each of {nodes} nodes", names.len());
            return Err(Bad::bad(path, "lines", problem, "import the data again").into());
        }
        Ok(Self::Named(names))
    }

    /// The nodes of ids, as text, where there are `nodes`.
    pub(crate) fn places(&self, nodes: usize) -> Places {
        let listed = |texts: &mut dyn Iterator<Item = String>| Places::Listed(texts.zip(0u32..).collect());
        match self {
            Self::Places | Self::Graphs => Places::Numbers(nodes),
            Self::Signed(ids) => listed(&mut ids.iter().map(ToString::to_string)),
            Self::Unsigned(ids) => listed(&mut ids.iter().map(ToString::to_string)),
            Self::Named(names) => listed(&mut names.iter().cloned()),
        }
    }

    /// What has them.
    fn item(&self) -> &'static str {
        if let Self::Graphs = self { "graph" } else { "node" }
    }

    /// Writes the id of a node.
    pub(crate) fn write(&self, out: &mut impl Write, node: usize) -> std::io::Result<()> {
        match self {
            Self::Places | Self::Graphs => write!(out, "{node}"),
            Self::Signed(ids) => write!(out, "{}", ids[node]),
            Self::Unsigned(ids) => write!(out, "{}", ids[node]),
            Self::Named(names) => write!(out, "{}", quoted(&names[node])),
        }
    }
}

/// A name as a field of CSV.
pub(crate) fn quoted(name: &str) -> std::borrow::Cow<'_, str> {
    match name.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")).into(),
        false => name.into(),
    }
}

/// Nodes by their ids.
pub(crate) enum Places {
    /// Ids are numbers below this.
    Numbers(usize),
    Listed(HashMap<String, u32>),
}

impl Places {
    /// The node with this id.
    pub(crate) fn of(&self, id: &str) -> Option<usize> {
        match self {
            Self::Numbers(nodes) => id.parse().ok().filter(|place| place < nodes),
            Self::Listed(all) => all.get(id).map(|place| *place as usize),
        }
    }
}

/// What is to be written, and where.
#[derive(Clone, Debug)]
pub struct Output {
    /// The file.
    pub path: PathBuf,
    /// Of each node.
    pub what: What,
    /// How.
    pub format: Format,
}

impl Output {
    /// Logits as a NumPy array.
    pub fn logits(path: &Path) -> Self {
        Self { path: path.to_path_buf(), what: What::Logits, format: Format::Npy }
    }

    /// Writes numbers of every node, rows of `cols`, as a NumPy array.
    ///
    /// # Errors
    /// [`Error::NotPredicted`] if one is not finite.
    pub fn write_rows(path: &Path, cols: usize, rows: Vec<f32>) -> Result<()> {
        write_outputs(path, cols, std::iter::once(Ok(rows)))
    }

    /// What is to be written of these lots of outputs, rows of `cols`: they are [finished](Task::finish), but where
    /// logits are wanted.
    pub(crate) fn finished(
        &self,
        cols: usize,
        task: &dyn Task,
        lots: impl Iterator<Item = Result<Vec<f32>>>,
    ) -> impl Iterator<Item = Result<Vec<f32>>> {
        checked(cols, lots).map(move |lot| {
            let mut lot = lot?;
            if self.what != What::Logits {
                task.finish(&mut lot, cols);
            }
            Ok(lot)
        })
    }

    /// Writes numbers that are finished. What fails leaves nothing behind.
    pub(crate) fn write(
        &self,
        cols: usize,
        task: &dyn Task,
        ids: &NodeIds,
        lots: impl Iterator<Item = Result<Vec<f32>>>,
    ) -> Result<()> {
        let written = task.form(self.what, cols)?;
        write(&self.path, self.format, cols, &written, ids, lots)
    }
}

/// Writes what a model gives for every node as a NumPy array, whatever it means.
pub(crate) fn write_outputs(path: &Path, cols: usize, lots: impl Iterator<Item = Result<Vec<f32>>>) -> Result<()> {
    let written = Written { names: Vec::new(), cells: Cells::Floats };
    write(path, Format::Npy, cols, &written, &NodeIds::Places, checked(cols, lots))
}

/// The same lots, as far as their numbers are finite.
fn checked(cols: usize, lots: impl Iterator<Item = Result<Vec<f32>>>) -> impl Iterator<Item = Result<Vec<f32>>> {
    let mut first = 0;
    lots.map(move |lot| {
        let lot = lot?;
        check_finite(&lot, cols, first)?;
        first += lot.len() / cols.max(1);
        Ok(lot)
    })
}

fn write(
    path: &Path,
    format: Format,
    cols: usize,
    written: &Written,
    ids: &NodeIds,
    lots: impl Iterator<Item = Result<Vec<f32>>>,
) -> Result<()> {
    durable::replace_by(path, |partial| {
        let mut out = Writer::create(partial, format, cols, written, ids.item())?;
        for lot in lots {
            out.push(&lot?, ids)?;
        }
        out.finish()
    })
}

/// Fails if a number of these logits, whose first row is that of node `first`, is not finite.
fn check_finite(rows: &[f32], cols: usize, first: usize) -> Result<()> {
    match rows.iter().position(|x| !x.is_finite()) {
        Some(at) => Err(Error::NotPredicted { node: (first + at / cols.max(1)) as u64 }),
        None => Ok(()),
    }
}

/// The same for those of all nodes.
pub(crate) fn check_logits(rows: &[f32], cols: usize) -> Result<()> {
    check_finite(rows, cols, 0)
}

/// A file in the making.
struct Writer {
    to: To,
    path: PathBuf,
    cols: usize,
    /// Nodes so far.
    nodes: usize,
}

enum To {
    Floats(NpyWriter<f32>),
    Integers(NpyWriter<i64>, fn(&[f32]) -> i64),
    Bytes(NpyWriter<u8>, fn(f32) -> u8),
    Text(BufWriter<File>, Cells),
}

impl Writer {
    fn create(path: &Path, format: Format, cols: usize, written: &Written, item: &str) -> Result<Self> {
        let to = match (format, written.cells) {
            (Format::Npy, Cells::Integer(of)) => To::Integers(NpyWriter::create(path, &[])?, of),
            (Format::Npy, Cells::Bytes(of)) => To::Bytes(NpyWriter::create(path, &[cols])?, of),
            (Format::Npy, Cells::Floats) => To::Floats(NpyWriter::create(path, &[cols])?),
            (Format::Csv, cells) => {
                let mut out = BufWriter::new(File::create(path).map_err(Bad::write("create", path))?);
                writeln!(out, "{item},{}", written.names.join(",")).map_err(Bad::write("write", path))?;
                To::Text(out, cells)
            }
        };
        Ok(Self { to, path: path.to_path_buf(), cols, nodes: 0 })
    }

    fn push(&mut self, rows: &[f32], ids: &NodeIds) -> Result<()> {
        let cols = self.cols.max(1);
        let first = self.nodes;
        self.nodes += rows.len() / cols;
        match &mut self.to {
            To::Floats(out) => Ok(out.push(rows)?),
            To::Integers(out, of) => Ok(out.push(&rows.chunks(cols).map(*of).collect::<Vec<_>>())?),
            To::Bytes(out, of) => Ok(out.push(&rows.iter().map(|x| of(*x)).collect::<Vec<_>>())?),
            To::Text(out, cells) => {
                let mut line = |node: usize, row: &[f32]| -> std::io::Result<()> {
                    ids.write(out, node)?;
                    match cells {
                        Cells::Integer(of) => write!(out, ",{}", of(row))?,
                        Cells::Bytes(of) => row.iter().try_for_each(|x| write!(out, ",{}", of(*x)))?,
                        Cells::Floats => row.iter().try_for_each(|x| write!(out, ",{x}"))?,
                    }
                    writeln!(out)
                };
                let mut all = rows.chunks(cols).zip(first..);
                Ok(all.try_for_each(|(row, node)| line(node, row)).map_err(Bad::write("write", &self.path))?)
            }
        }
    }

    /// Hands the bytes to the disk.
    fn finish(self) -> Result<()> {
        match self.to {
            To::Floats(out) => out.finish().map(|_| ())?,
            To::Integers(out, _) => out.finish().map(|_| ())?,
            To::Bytes(out, _) => out.finish().map(|_| ())?,
            To::Text(out, _) => {
                let file = out.into_inner().map_err(|e| Bad::write("write", &self.path)(e.into_error()))?;
                file.sync_all().map_err(Bad::write("write", &self.path))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use graphweft_graph::npy::write_npy;

    use super::*;
    use crate::task::{NodeClass, NodeLabels, NodeRegression};

    fn written(output: &Output, task: &dyn Task, ids: &NodeIds, lots: &[&[f32]]) -> Result<Vec<u8>> {
        let lots = output.finished(2, task, lots.iter().map(|lot| Ok(lot.to_vec())));
        output.write(2, task, ids, lots)?;
        Ok(fs::read(&output.path).unwrap())
    }

    #[test]
    fn csv_has_a_line_per_node_with_its_original_id() {
        let dir = tempfile::tempdir().unwrap();
        let csv = |what| Output { path: dir.path().join("p.csv"), what, format: Format::Csv };
        let lots: [&[f32]; 2] = [&[0.0, 0.0, -1.5, 0.5], &[2.0, 1.0]];
        let text =
            |what, task: &dyn Task, ids| String::from_utf8(written(&csv(what), task, ids, &lots).unwrap()).unwrap();
        let ids = NodeIds::Signed(vec![10, -7, i64::MAX].into());
        assert_eq!(
            text(What::Logits, &NodeClass, &ids),
            "node,logit_0,logit_1\n10,0,0\n-7,-1.5,0.5\n9223372036854775807,2,1\n"
        );
        assert_eq!(text(What::Labels, &NodeClass, &NodeIds::Places), "node,label\n0,0\n1,1\n2,0\n");
        let ids = NodeIds::Unsigned(vec![1, 2, u64::MAX].into());
        assert_eq!(
            text(What::Labels, &NodeLabels, &ids),
            "node,label_0,label_1\n1,0,0\n2,0,1\n18446744073709551615,1,1\n"
        );
        let probabilities = text(What::Probabilities, &NodeClass, &NodeIds::Places);
        let lines: Vec<&str> = probabilities.lines().collect();
        assert_eq!((lines[0], lines[1]), ("node,probability_0,probability_1", "0,0.5,0.5"));
        let last: f64 = lines[2].rsplit(',').next().unwrap().parse().unwrap();
        assert!((last - 1.0 / (1.0 + (-2f64).exp())).abs() < 1e-7, "{}", lines[2]);
        assert_eq!(
            text(What::Values, &NodeRegression, &ids),
            "node,value_0,value_1\n1,0,0\n2,-1.5,0.5\n18446744073709551615,2,1\n"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no partial file");
        for (what, task) in [(What::Values, &NodeClass as &dyn Task), (What::Labels, &NodeRegression)] {
            let message = written(&csv(what), task, &NodeIds::Places, &lots).unwrap_err().to_string();
            assert!(message.contains(what.name()) && message.contains("--what"), "{message}");
        }
        assert_eq!(NodeRegression.written(What::Values, 1).unwrap().names, ["value"]);
    }

    #[test]
    fn arrays_have_the_type_of_what_they_hold() {
        let dir = tempfile::tempdir().unwrap();
        let lots: [&[f32]; 1] = [&[-800.0, 800.0, 1.0, 0.5]];
        let npy = |what, task: &dyn Task| {
            let output = Output { path: dir.path().join("p.npy"), what, format: Format::Npy };
            written(&output, task, &NodeIds::Places, &lots).unwrap();
            NpyFile::open(&output.path).unwrap()
        };
        let file = npy(What::Labels, &NodeClass);
        assert_eq!((file.shape(), &file.elements::<i64>().unwrap()[..]), (&[2][..], &[1, 0][..]));
        let file = npy(What::Labels, &NodeLabels);
        assert_eq!((file.shape(), &file.elements::<u8>().unwrap()[..]), (&[2, 2][..], &[0, 1, 1, 1][..]));
        let file = npy(What::Probabilities, &NodeClass);
        assert_eq!(&file.elements::<f32>().unwrap()[..2], &[0.0, 1.0], "large logits are no trouble");
        let file = npy(What::Logits, &NodeClass);
        assert_eq!(&file.elements::<f32>().unwrap()[..], lots[0]);
    }

    #[test]
    fn what_is_not_finite_leaves_no_file_and_names_the_node() {
        let dir = tempfile::tempdir().unwrap();
        for bad in [f32::NAN, f32::INFINITY] {
            for what in [What::Logits, What::Probabilities, What::Labels] {
                for format in [Format::Npy, Format::Csv] {
                    let output = Output { path: dir.path().join("p"), what, format };
                    let error = written(&output, &NodeClass, &NodeIds::Places, &[&[1.0, 2.0], &[1.0, 2.0, 3.0, bad]]);
                    assert!(matches!(error, Err(Error::NotPredicted { node: 2 })));
                    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
                }
            }
        }
    }

    #[test]
    fn ids_are_those_of_the_folder_and_must_be_as_many() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(NodeIds::of(None, 3).unwrap(), NodeIds::Places));
        assert!(matches!(NodeIds::of(Some(dir.path()), 3).unwrap(), NodeIds::Places));
        write_npy(dir.path().join("node_id.npy"), &[], &[4i64, 5, 6]).unwrap();
        assert!(matches!(NodeIds::of(Some(dir.path()), 3).unwrap(), NodeIds::Signed(ids) if ids[2] == 6));
        let message = NodeIds::of(Some(dir.path()), 4).unwrap_err().to_string();
        assert!(message.contains("node_id.npy") && message.contains('4'), "{message}");
        write_npy(dir.path().join("node_id.npy"), &[], &[4.0f32, 5.0]).unwrap();
        assert!(NodeIds::of(Some(dir.path()), 2).unwrap_err().to_string().contains("int64 or uint64"));
    }
}
