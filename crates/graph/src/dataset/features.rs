//! Node features, dense or sparse.

use std::path::Path;

use graphweft_base::{Error, Result};
use half::f16;

use super::{Meta, map_offsets};
use crate::buf::Buf;
use crate::npy::{Dtype, NpyFile};

/// A dense matrix, row by row.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Dense {
    F32 { values: Buf<f32>, width: usize },
    F16 { values: Buf<f16>, width: usize },
}

impl Dense {
    /// Maps `path` if it exists: a matrix of `rows` rows.
    pub(crate) fn map(path: &Path, field: &str, rows: usize) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let file = NpyFile::open(path)?;
        let &[stored, width] = file.shape() else {
            return Err(file.wrong_shape(field, &format!("[{rows}, columns]")));
        };
        if stored != rows {
            return Err(file.wrong_shape(field, &format!("[{rows}, columns]")));
        }
        if width == 0 {
            let remedy = "give it at least one column, or remove the file";
            return Err(Error::bad(path, field, "the matrix has no columns", remedy));
        }
        let matrix = match file.dtype() {
            Dtype::F32 => file.elements().map(|values| Self::F32 { values, width }),
            Dtype::F16 => file.elements().map(|values| Self::F16 { values, width }),
            _ => None,
        };
        matrix.map(Some).ok_or_else(|| file.wrong_dtype(field, "float32 or float16"))
    }

    /// Columns.
    pub fn width(&self) -> usize {
        match self {
            Self::F32 { width, .. } | Self::F16 { width, .. } => *width,
        }
    }

    /// Stored elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32 { values, .. } => values.len(),
            Self::F16 { values, .. } => values.len(),
        }
    }

    /// Gives the pages of a mapped file back; see [`Buf::release`].
    pub fn release(&self) {
        match self {
            Self::F32 { values, .. } => values.release(),
            Self::F16 { values, .. } => values.release(),
        }
    }

    /// Whether the matrix has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A sparse matrix by rows, e.g. a bag of words.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseFeatures {
    /// Offsets of the rows.
    pub indptr: Buf<u64>,
    /// Columns of the entries, ascending in each row.
    pub indices: Buf<u32>,
    /// Values of the entries; `None` where all are 1.
    pub data: Option<Buf<f32>>,
    /// Columns of the matrix.
    pub width: usize,
}

/// Node features.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Features {
    Dense(Dense),
    Sparse(SparseFeatures),
}

impl Features {
    pub(super) fn map(dir: &Path, meta: &Meta) -> Result<Option<Self>> {
        let dense = dir.join("feat.npy");
        let sparse =
            ["feat_indptr.npy", "feat_indices.npy", "feat_data.npy"].into_iter().find(|f| dir.join(f).exists());
        if let Some(sparse) = sparse {
            if dense.exists() {
                let problem = format!("there are dense features, and sparse ones as well ({sparse})");
                return Err(Error::bad(dense, "feat", problem, "remove feat.npy, or all feat_*.npy"));
            }
            return Self::map_sparse(dir, meta).map(|s| Some(Self::Sparse(s)));
        }
        let dense = Dense::map(&dense, "feat", meta.num_nodes)?;
        if let Some(m) = dense.as_ref().filter(|m| m.width() != meta.num_features) {
            return Err(Meta::wrong_count(dir, "num_features", meta.num_features, "feat.npy", m.width()));
        }
        Ok(dense.map(Self::Dense))
    }

    fn map_sparse(dir: &Path, meta: &Meta) -> Result<SparseFeatures> {
        let indptr = map_offsets(&dir.join("feat_indptr.npy"), "feat_indptr", meta.num_nodes)?;
        let file = NpyFile::open(dir.join("feat_indices.npy"))?;
        let entries = indptr.last().copied().unwrap_or(0) as usize;
        if file.shape() != [entries] {
            return Err(file.wrong_shape("feat_indices", &format!("[{entries}] (the last entry of feat_indptr)")));
        }
        let indices: Buf<u32> = file.elements().ok_or_else(|| file.wrong_dtype("feat_indices", "uint32"))?;
        if meta.num_features == 0
            && let Some(last) = indices.iter().max()
        {
            return Err(Meta::wrong_count(dir, "num_features", 0, "feat_indices.npy", *last as usize + 1));
        }
        if meta.num_features == 0 {
            let problem = "num_features is 0 or missing, but there is feat_indptr.npy";
            let remedy = "set num_features to the number of columns, or remove all feat_*.npy";
            return Err(Error::bad(dir.join("meta.toml"), "num_features", problem, remedy));
        }
        let path = dir.join("feat_data.npy");
        let data = if path.exists() {
            let file = NpyFile::open(&path)?;
            if file.shape() != [entries] {
                return Err(file.wrong_shape("feat_data", &format!("[{entries}] (as feat_indices)")));
            }
            Some(file.elements().ok_or_else(|| file.wrong_dtype("feat_data", "float32"))?)
        } else {
            None
        };
        Ok(SparseFeatures { indptr, indices, data, width: meta.num_features })
    }

    /// Columns.
    pub fn width(&self) -> usize {
        match self {
            Self::Dense(m) => m.width(),
            Self::Sparse(m) => m.width,
        }
    }

    /// The share of entries that are not zero.
    pub fn density(&self) -> f64 {
        use rayon::prelude::*;
        let (nonzero, all) = match self {
            Self::Dense(Dense::F32 { values, .. }) => {
                (values.par_iter().filter(|x| **x != 0.0).count(), values.len() as f64)
            }
            Self::Dense(Dense::F16 { values, .. }) => {
                (values.par_iter().filter(|x| x.to_f32() != 0.0).count(), values.len() as f64)
            }
            Self::Sparse(m) => (m.indices.len(), (m.indptr.len() - 1) as f64 * m.width as f64),
        };
        if all == 0.0 { 0.0 } else { nonzero as f64 / all }
    }
}
