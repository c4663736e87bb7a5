//! Node labels: one class per node, or several labels per node.

use std::path::Path;

use super::Meta;
use crate::buf::Buf;
use crate::error::{Error, Result};
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
}

impl Labels {
    pub(super) fn map(dir: &Path, meta: &Meta) -> Result<Option<Self>> {
        let path = dir.join("label.npy");
        if !path.exists() {
            return if meta.num_classes == 0 {
                Ok(None)
            } else {
                let problem = format!("num_classes is {}, but there is no label.npy", meta.num_classes);
                Err(Error::bad(dir.join("meta.toml"), "num_classes", problem, "add label.npy or set num_classes = 0"))
            };
        }
        let file = NpyFile::open(&path)?;
        let (n, c) = (meta.num_nodes, meta.num_classes);
        let labels = match (file.shape(), file.dtype()) {
            (&[rows], Dtype::I64) if rows == n => file.elements().map(Self::Single),
            (&[_], Dtype::I64) => return Err(file.wrong_shape("label", &format!("[{n}] (num_nodes)"))),
            (&[_], _) => return Err(file.wrong_dtype("label", "int64")),
            (&[rows, cols], dtype) if (rows, cols) == (n, c) => match dtype {
                Dtype::U8 => file.elements().map(Self::MultiU8),
                Dtype::F32 => file.elements().map(Self::MultiF32),
                _ => return Err(file.wrong_dtype("label", "uint8 or float32")),
            },
            (&[rows, cols], _) if rows == n => {
                return Err(Meta::wrong_count(dir, "num_classes", c, ("label.npy", cols)));
            }
            _ => return Err(file.wrong_shape("label", &format!("[{n}] or [{n}, {c}] (num_nodes, num_classes)"))),
        };
        Ok(labels)
    }
}
