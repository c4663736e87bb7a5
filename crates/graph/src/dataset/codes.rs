//! Small numbers that name things: the type of an edge, or categories in columns.

use std::path::Path;

use graphweft_base::{Error, Position, Problem, Result};
use rayon::prelude::*;

use crate::buf::Buf;
use crate::npy::{NpyFile, NpyType, write_npy};

/// A matrix of such numbers, row by row. A vector has one column.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Codes {
    U8 { values: Buf<u8>, width: usize },
    U16 { values: Buf<u16>, width: usize },
}

/// The shape of a file of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    /// A vector.
    One,
    /// A matrix.
    Any,
}

/// The same code, whichever width the numbers have.
macro_rules! with_codes {
    ($codes:expr, $values:ident, $width:ident => $body:expr) => {
        match $codes {
            Codes::U8 { values: $values, width: $width } => $body,
            Codes::U16 { values: $values, width: $width } => $body,
        }
    };
}

impl Codes {
    /// A vector in the narrowest type that holds its numbers.
    pub fn of(values: Vec<u16>) -> Self {
        Self::rows(values, 1)
    }

    /// Rows of `width` numbers, in the narrowest type that holds them.
    pub fn rows(values: Vec<u16>, width: usize) -> Self {
        match values.iter().all(|&code| code <= u16::from(u8::MAX)) {
            true => Self::U8 { values: values.iter().map(|&code| code as u8).collect::<Vec<_>>().into(), width },
            false => Self::U16 { values: values.into(), width },
        }
    }

    /// Maps `path` if it exists: `rows` numbers, or rows of numbers.
    pub(crate) fn map(path: &Path, field: &str, rows: usize, columns: Columns) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let file = NpyFile::open(path)?;
        let width = match (columns, file.shape()) {
            (Columns::One, &[stored]) if stored == rows => 1,
            (Columns::One, _) => return Err(file.wrong_shape(field, &format!("[{rows}]"))),
            (Columns::Any, &[stored, width]) if stored == rows && width > 0 => width,
            (Columns::Any, _) => return Err(file.wrong_shape(field, &format!("[{rows}, columns]"))),
        };
        let codes = match file.dtype() {
            NpyType::U8 => file.elements().map(|values| Self::U8 { values, width }),
            NpyType::U16 => file.elements().map(|values| Self::U16 { values, width }),
            _ => None,
        };
        codes.map(Some).ok_or_else(|| file.wrong_dtype(field, "uint8 or uint16"))
    }

    /// Columns.
    pub fn width(&self) -> usize {
        with_codes!(self, _values, width => *width)
    }

    /// Numbers, of all rows.
    pub fn len(&self) -> usize {
        with_codes!(self, values, _width => values.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number at `at`, row by row.
    pub fn get(&self, at: usize) -> u16 {
        match self {
            Self::U8 { values, .. } => u16::from(values[at]),
            Self::U16 { values, .. } => values[at],
        }
    }

    /// All numbers, row by row.
    pub fn to_vec(&self) -> Vec<u16> {
        match self {
            Self::U8 { values, .. } => values.iter().map(|&code| u16::from(code)).collect(),
            Self::U16 { values, .. } => values.to_vec(),
        }
    }

    /// One more than the largest number; 0 where there is none.
    pub fn count(&self) -> usize {
        match self {
            Self::U8 { values, .. } => values.par_iter().max().map_or(0, |&most| usize::from(most) + 1),
            Self::U16 { values, .. } => values.par_iter().max().map_or(0, |&most| usize::from(most) + 1),
        }
    }

    /// How often each number below `count` occurs; larger ones are left out.
    pub fn counts(&self, count: usize) -> Vec<u64> {
        let mut counts = vec![0; count];
        for at in 0..self.len() {
            if let Some(slot) = counts.get_mut(usize::from(self.get(at))) {
                *slot += 1;
            }
        }
        counts
    }

    /// All are below `count`.
    pub(crate) fn check(&self, path: &Path, field: &str, count: usize) -> Result<()> {
        let bad = match self {
            Self::U8 { values, .. } => values.par_iter().position_first(|&code| usize::from(code) >= count),
            Self::U16 { values, .. } => values.par_iter().position_first(|&code| usize::from(code) >= count),
        };
        bad.map_or(Ok(()), |at| {
            let problem = format!("{field}[{at}] = {}: meta.toml names only {count} types", self.get(at));
            let remedy = format!("name them all in {field}s of meta.toml, or correct the array");
            Err(Error::bad(path, field, Problem::at(Position::element(at), problem), remedy))
        })
    }

    /// Writes them: a vector, or a matrix.
    pub(crate) fn write(&self, path: impl AsRef<Path>, columns: Columns) -> Result<()> {
        let row = match columns {
            Columns::One => Vec::new(),
            Columns::Any => vec![self.width()],
        };
        with_codes!(self, values, _width => write_npy(path, &row, values))
    }
}
