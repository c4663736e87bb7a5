//! What a model says of every node, as a file: logits, probabilities or labels, as NumPy array or as CSV.
//!
//! Rows are nodes in original order and may come lot by lot. CSV has a line of names and, first, the node: the id that its source
//! used, where an import has numbered nodes anew (`node_id.npy`). A number that is not finite is an error, and leaves no file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use graphweft_graph::npy::{Dtype, NpyFile, NpyWriter};
use graphweft_graph::{Buf, Error as Bad, durable};
use serde::{Deserialize, Serialize};

use crate::data::Target;
use crate::error::{Error, Result};

/// What is written of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// As the model gives them: float32.
    Logits,
    /// Of classes, which sum to 1, or of each label by itself: float32.
    Probabilities,
    /// The most probable class (int64), or 0 or 1 for each label (uint8).
    Labels,
}

impl What {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Logits => "logits",
            Self::Probabilities => "probabilities",
            Self::Labels => "labels",
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

/// What a model was trained to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// One of the classes.
    Class,
    /// Each of several labels by itself.
    Each,
}

impl From<&Target> for Task {
    fn from(target: &Target) -> Self {
        match target {
            Target::Class(_) => Self::Class,
            Target::Each(_) => Self::Each,
        }
    }
}

impl Task {
    /// Turns logits, rows of `cols`, into probabilities.
    pub(crate) fn to_probabilities(self, rows: &mut [f32], cols: usize) {
        let sigmoid = |x: &mut f32| *x = (1.0 / (1.0 + (-f64::from(*x)).exp())) as f32;
        match self {
            Self::Each => rows.iter_mut().for_each(sigmoid),
            Self::Class => {
                for row in rows.chunks_mut(cols.max(1)) {
                    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let parts: Vec<f64> = row.iter().map(|x| f64::from(x - most).exp()).collect();
                    let sum: f64 = parts.iter().sum();
                    row.iter_mut().zip(parts).for_each(|(x, part)| *x = (part / sum) as f32);
                }
            }
        }
    }
}

/// Ids as the source of a dataset has them.
#[derive(Clone, Debug)]
pub enum NodeIds {
    /// Places in the dataset.
    Places,
    /// `node_id.npy`.
    Signed(Buf<i64>),
    /// The same where some are beyond int64.
    Unsigned(Buf<u64>),
}

impl NodeIds {
    /// Those of the dataset in `folder`, if it is one, which has so many nodes.
    ///
    /// # Errors
    /// If `node_id.npy` is there and not an id for each node.
    pub fn of(folder: Option<&Path>, nodes: usize) -> Result<Self> {
        let path = folder.map(|folder| folder.join("node_id.npy")).filter(|path| path.exists());
        let Some(path) = path else { return Ok(Self::Places) };
        let file = NpyFile::open(&path)?;
        if file.shape() != [nodes] {
            return Err(file.wrong_shape("node_id", &format!("[{nodes}] (num_nodes)")).into());
        }
        let found = match file.dtype() {
            Dtype::I64 => file.elements().map(Self::Signed),
            Dtype::U64 => file.elements().map(Self::Unsigned),
            _ => None,
        };
        found.ok_or_else(|| file.wrong_dtype("node_id", "int64 or uint64").into())
    }

    fn write(&self, out: &mut impl Write, node: usize) -> std::io::Result<()> {
        match self {
            Self::Places => write!(out, "{node}"),
            Self::Signed(ids) => write!(out, "{}", ids[node]),
            Self::Unsigned(ids) => write!(out, "{}", ids[node]),
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

    /// Writes what these lots of logits, rows of `cols`, come to. What fails leaves nothing behind.
    pub(crate) fn write_logits(
        &self,
        cols: usize,
        task: Task,
        ids: &NodeIds,
        lots: impl Iterator<Item = Result<Vec<f32>>>,
    ) -> Result<()> {
        let mut first = 0;
        let checked = lots.map(|lot| {
            let mut lot = lot?;
            check_finite(&lot, cols, first)?;
            first += lot.len() / cols.max(1);
            if self.what != What::Logits {
                task.to_probabilities(&mut lot, cols);
            }
            Ok(lot)
        });
        self.write(cols, task, ids, checked)
    }

    /// Writes numbers that are what they should be, or probabilities where labels are wanted.
    pub(crate) fn write(
        &self,
        cols: usize,
        task: Task,
        ids: &NodeIds,
        lots: impl Iterator<Item = Result<Vec<f32>>>,
    ) -> Result<()> {
        durable::replace_by(&self.path, |partial| {
            let mut out = Writer::create(partial, self, cols, task)?;
            for lot in lots {
                out.push(&lot?, ids)?;
            }
            out.finish()
        })
    }
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
    task: Task,
    what: What,
    /// Nodes so far.
    nodes: usize,
}

enum To {
    Numbers(NpyWriter<f32>),
    Class(NpyWriter<i64>),
    Each(NpyWriter<u8>),
    Text(BufWriter<File>),
}

impl Writer {
    fn create(path: &Path, output: &Output, cols: usize, task: Task) -> Result<Self> {
        let what = output.what;
        let to = match (output.format, what, task) {
            (Format::Npy, What::Labels, Task::Class) => To::Class(NpyWriter::create(path, &[])?),
            (Format::Npy, What::Labels, Task::Each) => To::Each(NpyWriter::create(path, &[cols])?),
            (Format::Npy, ..) => To::Numbers(NpyWriter::create(path, &[cols])?),
            (Format::Csv, ..) => {
                let mut out = BufWriter::new(File::create(path).map_err(Bad::write("create", path))?);
                let named = |name: &str| (0..cols).map(|k| format!("{name}_{k}")).collect::<Vec<_>>();
                let names = match (what, task) {
                    (What::Logits, _) => named("logit"),
                    (What::Probabilities, _) => named("probability"),
                    (What::Labels, Task::Each) => named("label"),
                    (What::Labels, Task::Class) => vec!["label".into()],
                };
                writeln!(out, "node,{}", names.join(",")).map_err(Bad::write("write", path))?;
                To::Text(out)
            }
        };
        Ok(Self { to, path: path.to_path_buf(), cols, task, what, nodes: 0 })
    }

    fn push(&mut self, rows: &[f32], ids: &NodeIds) -> Result<()> {
        let cols = self.cols.max(1);
        let first = self.nodes;
        self.nodes += rows.len() / cols;
        match &mut self.to {
            To::Numbers(out) => Ok(out.push(rows)?),
            To::Class(out) => Ok(out.push(&rows.chunks(cols).map(most_probable).collect::<Vec<_>>())?),
            To::Each(out) => Ok(out.push(&rows.iter().map(|p| u8::from(*p > 0.5)).collect::<Vec<_>>())?),
            To::Text(out) => {
                let mut line = |node: usize, row: &[f32]| -> std::io::Result<()> {
                    ids.write(out, node)?;
                    match (self.what, self.task) {
                        (What::Labels, Task::Class) => write!(out, ",{}", most_probable(row))?,
                        (What::Labels, Task::Each) => {
                            row.iter().try_for_each(|p| write!(out, ",{}", u8::from(*p > 0.5)))?;
                        }
                        _ => row.iter().try_for_each(|x| write!(out, ",{x}"))?,
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
            To::Numbers(out) => out.finish().map(|_| ())?,
            To::Class(out) => out.finish().map(|_| ())?,
            To::Each(out) => out.finish().map(|_| ())?,
            To::Text(out) => {
                let file = out.into_inner().map_err(|e| Bad::write("write", &self.path)(e.into_error()))?;
                file.sync_all().map_err(Bad::write("write", &self.path))?;
            }
        }
        Ok(())
    }
}

/// The place of the largest, the first of equals as NumPy has it.
fn most_probable(row: &[f32]) -> i64 {
    (1..row.len()).fold(0, |best, k| if row[k] > row[best] { k } else { best }) as i64
}

#[cfg(test)]
mod tests {
    use std::fs;

    use graphweft_graph::npy::write_npy;

    use super::*;

    fn written(output: &Output, task: Task, ids: &NodeIds, lots: &[&[f32]]) -> Result<Vec<u8>> {
        output.write_logits(2, task, ids, lots.iter().map(|lot| Ok(lot.to_vec())))?;
        Ok(fs::read(&output.path).unwrap())
    }

    #[test]
    fn csv_has_a_line_per_node_with_its_original_id() {
        let dir = tempfile::tempdir().unwrap();
        let csv = |what| Output { path: dir.path().join("p.csv"), what, format: Format::Csv };
        let lots: [&[f32]; 2] = [&[0.0, 0.0, -1.5, 0.5], &[2.0, 1.0]];
        let text = |what, task, ids| String::from_utf8(written(&csv(what), task, ids, &lots).unwrap()).unwrap();
        let ids = NodeIds::Signed(vec![10, -7, i64::MAX].into());
        assert_eq!(
            text(What::Logits, Task::Class, &ids),
            "node,logit_0,logit_1\n10,0,0\n-7,-1.5,0.5\n9223372036854775807,2,1\n"
        );
        assert_eq!(text(What::Labels, Task::Class, &NodeIds::Places), "node,label\n0,0\n1,1\n2,0\n");
        let ids = NodeIds::Unsigned(vec![1, 2, u64::MAX].into());
        assert_eq!(
            text(What::Labels, Task::Each, &ids),
            "node,label_0,label_1\n1,0,0\n2,0,1\n18446744073709551615,1,1\n"
        );
        let probabilities = text(What::Probabilities, Task::Class, &NodeIds::Places);
        let lines: Vec<&str> = probabilities.lines().collect();
        assert_eq!((lines[0], lines[1]), ("node,probability_0,probability_1", "0,0.5,0.5"));
        let last: f64 = lines[2].rsplit(',').next().unwrap().parse().unwrap();
        assert!((last - 1.0 / (1.0 + (-2f64).exp())).abs() < 1e-7, "{}", lines[2]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no partial file");
    }

    #[test]
    fn arrays_have_the_type_of_what_they_hold() {
        let dir = tempfile::tempdir().unwrap();
        let lots: [&[f32]; 1] = [&[-800.0, 800.0, 1.0, 0.5]];
        let npy = |what, task| {
            let output = Output { path: dir.path().join("p.npy"), what, format: Format::Npy };
            written(&output, task, &NodeIds::Places, &lots).unwrap();
            NpyFile::open(&output.path).unwrap()
        };
        let file = npy(What::Labels, Task::Class);
        assert_eq!((file.shape(), &file.elements::<i64>().unwrap()[..]), (&[2][..], &[1, 0][..]));
        let file = npy(What::Labels, Task::Each);
        assert_eq!((file.shape(), &file.elements::<u8>().unwrap()[..]), (&[2, 2][..], &[0, 1, 1, 1][..]));
        let file = npy(What::Probabilities, Task::Class);
        assert_eq!(&file.elements::<f32>().unwrap()[..2], &[0.0, 1.0], "large logits are no trouble");
        let file = npy(What::Logits, Task::Class);
        assert_eq!(&file.elements::<f32>().unwrap()[..], lots[0]);
    }

    #[test]
    fn what_is_not_finite_leaves_no_file_and_names_the_node() {
        let dir = tempfile::tempdir().unwrap();
        for bad in [f32::NAN, f32::INFINITY] {
            for what in [What::Logits, What::Probabilities, What::Labels] {
                for format in [Format::Npy, Format::Csv] {
                    let output = Output { path: dir.path().join("p"), what, format };
                    let error = written(&output, Task::Class, &NodeIds::Places, &[&[1.0, 2.0], &[1.0, 2.0, 3.0, bad]]);
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
