//! Node labels: one class per node, several labels per node, or numbers to predict.

use std::path::Path;

use graphweft_base::{Error, Result};

use super::{Meta, Task};
use crate::buf::Buf;
use crate::npy::{Dtype, NpyFile};

/// Node labels.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// One class per node, −1 where it is not known.
    Single(Buf<i64>),
    /// A row of 0/1 per node, one column per label.
    MultiU8(Buf<u8>),
    /// The same as numbers; NaN where a label is not known.
    MultiF32(Buf<f32>),
    /// A row of numbers per node, one column per target; NaN where a number is not known.
    Values(Buf<f32>),
}

impl Labels {
    /// What they are labels for.
    pub fn task(&self) -> Task {
        match self {
            Self::Single(_) | Self::MultiU8(_) | Self::MultiF32(_) => Task::NodeClassification,
            Self::Values(_) => Task::NodeRegression,
        }
    }

    pub(super) fn map(dir: &Path, meta: &Meta) -> Result<Option<Self>> {
        let path = dir.join("label.npy");
        if !path.exists() {
            return if meta.num_classes == 0 || meta.task == Task::Link {
                Ok(None)
            } else {
                let problem = format!("num_classes is {}, but there is no label.npy", meta.num_classes);
                Err(Error::bad(dir.join("meta.toml"), "num_classes", problem, "add label.npy or set num_classes = 0"))
            };
        }
        let file = NpyFile::open(&path)?;
        match meta.task {
            Task::NodeClassification => Self::classes(dir, &file, meta),
            Task::NodeRegression => Self::values(dir, &file, meta),
            Task::Link => Ok(None),
        }
    }

    fn classes(dir: &Path, file: &NpyFile, meta: &Meta) -> Result<Option<Self>> {
        let (n, c) = (meta.num_nodes, meta.num_classes);
        Ok(match (file.shape(), file.dtype()) {
            (&[rows], Dtype::I64) if rows == n => file.elements().map(Self::Single),
            (&[_], Dtype::I64) => return Err(file.wrong_shape("label", &format!("[{n}] (num_nodes)"))),
            (&[_], _) => return Err(file.wrong_dtype("label", "int64")),
            (&[rows, cols], dtype) if (rows, cols) == (n, c) => match dtype {
                Dtype::U8 => file.elements().map(Self::MultiU8),
                Dtype::F32 => file.elements().map(Self::MultiF32),
                _ => return Err(file.wrong_dtype("label", "uint8 or float32")),
            },
            (&[rows, cols], _) if rows == n => {
                return Err(Meta::wrong_count(dir, "num_classes", c, "label.npy", cols));
            }
            _ => return Err(file.wrong_shape("label", &format!("[{n}] or [{n}, {c}] (num_nodes, num_classes)"))),
        })
    }

    fn values(dir: &Path, file: &NpyFile, meta: &Meta) -> Result<Option<Self>> {
        let (n, c) = (meta.num_nodes, meta.num_classes);
        let columns = match *file.shape() {
            [rows] if rows == n => 1,
            [rows, columns] if rows == n && columns > 0 => columns,
            _ => return Err(file.wrong_shape("label", &format!("[{n}] or [{n}, {c}] (num_nodes, num_classes)"))),
        };
        if columns != c {
            return Err(Meta::wrong_count(dir, "num_classes", c, "label.npy", columns));
        }
        let values = file.elements().map(Self::Values);
        values.ok_or_else(|| file.wrong_dtype("label", "float32")).map(Some)
    }
}
