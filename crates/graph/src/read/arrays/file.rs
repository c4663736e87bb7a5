//! A file that holds an array, a sparse matrix or a table, told by its first bytes, not by its name.

use std::path::Path;

use graphweft_base::{Error, Problem, Result};

use super::super::features::{Compressed, matrix_shape};
use super::super::npz::{Array, Npz};
use super::super::{Context, Input};

const NUMPY: &[u8] = b"\x93NUMPY";
const ZIP: &[u8] = b"PK";
const SPARSE: &str = "save it with scipy.sparse.save_npz as csr, csc or coo";

/// A file, and which of its arrays is meant where it has several: `data.npz:x`.
#[derive(Clone, Debug)]
pub struct File {
    /// The file itself.
    pub input: Input,
    /// The array of an archive.
    pub array: Option<String>,
}

impl File {
    /// The file at `path`; what follows a last colon is an array of the archive before it.
    ///
    /// # Errors
    /// [`Error::BadInput`] if it is missing, a folder, or empty.
    pub fn open(path: &Path) -> Result<Self> {
        let text = path.to_string_lossy();
        match text.rsplit_once(':') {
            Some((archive, array)) if !path.exists() && !array.is_empty() && Path::new(archive).exists() => {
                Ok(Self { input: Input::file(archive)?, array: Some(array.to_string()) })
            }
            _ => Ok(Self { input: Input::file(path)?, array: None }),
        }
    }

    /// What the file holds; `role` is what an array without a name is called in messages.
    pub(super) fn load(&self, role: &str, cx: &Context<'_>) -> Result<Contents> {
        let start = self.input.start(NUMPY.len())?;
        if start.starts_with(ZIP) {
            return self.archived(cx);
        }
        if let Some(array) = &self.array {
            let problem = format!("there is no array {array} in it: the file is no .npz archive");
            return Err(self.input.bad(role, problem, "leave out the colon and what follows it"));
        }
        if start == NUMPY {
            return Array::read(&self.input, role, &mut self.input.open()?, cx).map(Contents::Array);
        }
        Ok(Contents::Text)
    }

    fn archived(&self, cx: &Context<'_>) -> Result<Contents> {
        let mut npz = Npz::open(&self.input, cx)?;
        if let Some(name) = &self.array {
            return npz.need(name).map(Contents::Array);
        }
        if let Some(matrix) = sparse(&self.input, &mut npz)? {
            return Ok(Contents::Sparse(Box::new(matrix)));
        }
        match npz.names() {
            [only] => {
                let only = only.clone();
                npz.need(&only).map(Contents::Array)
            }
            [] => Err(self.input.bad("archive", "there is no array in it", "save it with numpy.savez")),
            _ => {
                let problem = format!("it has several arrays: {}", npz.listed());
                let remedy = format!("say which one is meant, as in {}:NAME", self.input.path().display());
                Err(self.input.bad("archive", problem, remedy))
            }
        }
    }
}

/// What a file holds.
pub(super) enum Contents {
    Array(Array),
    Sparse(Box<Sparse>),
    Text,
}

/// A matrix that SciPy saved.
pub(super) enum Sparse {
    /// csr
    Rows(Compressed),
    /// csc: its transpose by rows.
    Columns(Compressed),
    /// coo
    Pairs(Pairs),
}

/// A matrix as a list of its entries.
pub(super) struct Pairs {
    pub(super) row: Array,
    pub(super) col: Array,
    pub(super) data: Option<Array>,
    pub(super) shape: [usize; 2],
}

impl Sparse {
    /// Rows and columns.
    pub(super) fn shape(&self) -> [usize; 2] {
        match self {
            Self::Rows(m) => m.shape,
            Self::Columns(m) => [m.shape[1], m.shape[0]],
            Self::Pairs(m) => m.shape,
        }
    }

    /// An error about the matrix.
    pub(super) fn bad(&self, problem: impl Into<Problem>, remedy: &str) -> Error {
        let input = match self {
            Self::Rows(m) | Self::Columns(m) => m.indptr.input(),
            Self::Pairs(m) => m.row.input(),
        };
        input.bad("matrix", problem, remedy)
    }
}

fn sparse(input: &Input, npz: &mut Npz<'_>) -> Result<Option<Sparse>> {
    if !npz.has("shape") || !(npz.has("indptr") || npz.has("row") || npz.has("format")) {
        return Ok(None);
    }
    // Archives of before SciPy 1.0 do not say; those of csr matrices are the common ones.
    let form = if npz.has("format") { npz.word("format")? } else { "csr".to_string() };
    match form.as_str() {
        "csr" => Compressed::read(npz, "").map(Sparse::Rows).map(Some),
        "csc" => {
            let mut matrix = Compressed::read(npz, "")?;
            matrix.shape.reverse();
            Ok(Some(Sparse::Columns(matrix)))
        }
        "coo" => {
            let shape = matrix_shape(npz, "")?;
            let (row, col, data) = (npz.need("row")?, npz.need("col")?, npz.get("data")?);
            for other in [Some(&col), data.as_ref()].into_iter().flatten() {
                if row.shape.len() != 1 || other.shape != row.shape {
                    return Err(other.wrong_shape(&format!("{:?}, as row, in one dimension", row.shape)));
                }
            }
            Ok(Some(Sparse::Pairs(Pairs { row, col, data, shape })))
        }
        other => Err(input.bad("format", format!("a sparse matrix of the form {other:?} is not read"), SPARSE)),
    }
}
