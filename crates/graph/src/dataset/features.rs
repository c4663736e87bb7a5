//! Node features, dense or sparse.

use std::path::{Path, PathBuf};

use graphweft_base::{Error, Result};
use half::f16;

use super::{Meta, map_offsets};
use crate::buf::Buf;
use crate::npy::{NpyFile, NpyType};

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
            NpyType::F32 => file.elements().map(|values| Self::F32 { values, width }),
            NpyType::F16 => file.elements().map(|values| Self::F16 { values, width }),
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

/// Which files of a folder hold features, and of how many nodes.
pub(super) struct Place<'a> {
    /// The folder.
    pub(super) dir: &'a Path,
    /// What their names begin with.
    pub(super) stem: String,
    /// Nodes.
    pub(super) rows: usize,
    /// Columns, as `meta.toml` says.
    pub(super) columns: usize,
    /// What `meta.toml` calls that.
    pub(super) count: String,
}

impl<'a> Place<'a> {
    /// Those of all nodes.
    pub(super) fn of_all(dir: &'a Path, meta: &Meta) -> Self {
        let (rows, columns) = (meta.num_nodes, meta.num_features);
        Self { dir, stem: "feat".into(), rows, columns, count: "num_features".into() }
    }

    /// A file.
    pub(super) fn file(&self, part: &str) -> PathBuf {
        self.dir.join(format!("{}{part}.npy", self.stem))
    }

    /// What an array is called in messages.
    pub(super) fn field(&self, part: &str) -> String {
        format!("{}{part}", self.stem)
    }

    fn wrong_count(&self, part: &str, columns: usize) -> Error {
        let file = format!("{}{part}.npy", self.stem);
        Meta::wrong_count(self.dir, &self.count, self.columns, &file, columns)
    }
}

impl Features {
    pub(super) fn map(place: &Place<'_>) -> Result<Option<Self>> {
        let (dense, stem) = (place.file(""), &place.stem);
        let sparse = ["_indptr", "_indices", "_data"].into_iter().find(|part| place.file(part).exists());
        if let Some(sparse) = sparse {
            if dense.exists() {
                let problem = format!("there are dense features, and sparse ones as well ({stem}{sparse}.npy)");
                return Err(Error::bad(dense, stem, problem, format!("remove {stem}.npy, or all {stem}_*.npy")));
            }
            return Self::map_sparse(place).map(|s| Some(Self::Sparse(s)));
        }
        let dense = Dense::map(&dense, stem, place.rows)?;
        if let Some(m) = dense.as_ref().filter(|m| m.width() != place.columns) {
            return Err(place.wrong_count("", m.width()));
        }
        Ok(dense.map(Self::Dense))
    }

    fn map_sparse(place: &Place<'_>) -> Result<SparseFeatures> {
        let stem = &place.stem;
        let indptr = map_offsets(&place.file("_indptr"), &place.field("_indptr"), place.rows)?;
        let (file, field) = (NpyFile::open(place.file("_indices"))?, place.field("_indices"));
        let entries = indptr.last().copied().unwrap_or(0) as usize;
        if file.shape() != [entries] {
            return Err(file.wrong_shape(&field, &format!("[{entries}] (the last entry of {stem}_indptr)")));
        }
        let indices: Buf<u32> = file.elements().ok_or_else(|| file.wrong_dtype(&field, "uint32"))?;
        if place.columns == 0
            && let Some(last) = indices.iter().max()
        {
            return Err(place.wrong_count("_indices", *last as usize + 1));
        }
        if place.columns == 0 {
            let problem = format!("{} is 0 or missing, but there is {stem}_indptr.npy", place.count);
            let remedy = format!("set {} to the number of columns, or remove all {stem}_*.npy", place.count);
            return Err(Error::bad(place.dir.join("meta.toml"), place.count.as_str(), problem, remedy));
        }
        let (path, field) = (place.file("_data"), place.field("_data"));
        let data = if path.exists() {
            let file = NpyFile::open(&path)?;
            if file.shape() != [entries] {
                return Err(file.wrong_shape(&field, &format!("[{entries}] (as {stem}_indices)")));
            }
            Some(file.elements().ok_or_else(|| file.wrong_dtype(&field, "float32"))?)
        } else {
            None
        };
        Ok(SparseFeatures { indptr, indices, data, width: place.columns })
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
