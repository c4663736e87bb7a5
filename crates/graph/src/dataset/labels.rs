//! Labels of nodes, or of whole graphs: one class each, several labels each, or numbers to predict.

use std::path::Path;

use graphweft_base::{Error, Result};

use super::{Meta, Task};
use crate::buf::Buf;
use crate::npy::{NpyFile, NpyType};

/// Labels of nodes, or of graphs where there are many.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// One class each, −1 where it is not known.
    Single(Buf<i64>),
    /// A row of 0/1 each, one column per label.
    MultiU8(Buf<u8>),
    /// The same as numbers; NaN where a label is not known.
    MultiF32(Buf<f32>),
    /// A row of numbers each, one column per target; NaN where a number is not known.
    Values(Buf<f32>),
}

impl Labels {
    /// What they are labels for, where they are those of nodes.
    pub fn task(&self) -> Task {
        if self.are_numbers() { Task::NodeRegression } else { Task::NodeClassification }
    }

    /// Whether they are numbers to predict.
    pub fn are_numbers(&self) -> bool {
        matches!(self, Self::Values(_))
    }

    pub(super) fn map(dir: &Path, meta: &Meta, of: Labelled) -> Result<Option<Self>> {
        let path = dir.join(of.file());
        if !path.exists() {
            return if meta.num_classes == 0 || meta.task == Task::Link {
                Ok(None)
            } else {
                let file = of.file();
                let problem = format!("num_classes is {}, but there is no {file}", meta.num_classes);
                let remedy = format!("add {file} or set num_classes = 0");
                Err(Error::bad(dir.join("meta.toml"), "num_classes", problem, remedy))
            };
        }
        let file = NpyFile::open(&path)?;
        match meta.task {
            Task::Link => Ok(None),
            task if task.is_regression() => of.values(dir, &file, meta),
            _ => of.classes(dir, &file, meta),
        }
    }
}

/// What has labels, and how many there are of it.
#[derive(Clone, Copy)]
pub(super) enum Labelled {
    Nodes(usize),
    Graphs(usize),
}

impl Labelled {
    /// What its file is called.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Nodes(_) => "label.npy",
            Self::Graphs(_) => "graph_label.npy",
        }
    }

    /// What its field is called.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Nodes(_) => "label",
            Self::Graphs(_) => "graph_label",
        }
    }

    /// How many rows there must be, and what says so.
    fn rows(self) -> (usize, &'static str) {
        match self {
            Self::Nodes(n) => (n, "num_nodes"),
            Self::Graphs(n) => (n, "graphs of graph_ptr.npy"),
        }
    }

    fn classes(self, dir: &Path, file: &NpyFile, meta: &Meta) -> Result<Option<Labels>> {
        let ((n, said), c, field) = (self.rows(), meta.num_classes, self.field());
        Ok(match (file.shape(), file.dtype()) {
            (&[rows], NpyType::I64) if rows == n => file.elements().map(Labels::Single),
            (&[_], NpyType::I64) => return Err(file.wrong_shape(field, &format!("[{n}] ({said})"))),
            (&[_], _) => return Err(file.wrong_dtype(field, "int64")),
            (&[rows, cols], dtype) if (rows, cols) == (n, c) => match dtype {
                NpyType::U8 => file.elements().map(Labels::MultiU8),
                NpyType::F32 => file.elements().map(Labels::MultiF32),
                _ => return Err(file.wrong_dtype(field, "uint8 or float32")),
            },
            (&[rows, cols], _) if rows == n => {
                return Err(Meta::wrong_count(dir, "num_classes", c, self.file(), cols));
            }
            _ => return Err(file.wrong_shape(field, &format!("[{n}] or [{n}, {c}] ({said}, num_classes)"))),
        })
    }

    fn values(self, dir: &Path, file: &NpyFile, meta: &Meta) -> Result<Option<Labels>> {
        let ((n, said), c, field) = (self.rows(), meta.num_classes, self.field());
        let columns = match *file.shape() {
            [rows] if rows == n => 1,
            [rows, columns] if rows == n && columns > 0 => columns,
            _ => return Err(file.wrong_shape(field, &format!("[{n}] or [{n}, {c}] ({said}, num_classes)"))),
        };
        if columns != c {
            return Err(Meta::wrong_count(dir, "num_classes", c, self.file(), columns));
        }
        let values = file.elements().map(Labels::Values);
        values.ok_or_else(|| file.wrong_dtype(field, "float32")).map(Some)
    }
}
