//! Category columns of nodes, such as what an atom is: each a small number that stands for itself.

use std::path::Path;

use graphweft_base::{Error, Position, Problem, Result};
use rayon::prelude::*;

use super::Meta;
use crate::buf::Buf;
use crate::npy::{NpyFile, NpyType};

const FILE: &str = "cat.npy";

/// A row of categories per node.
#[derive(Clone, Debug, PartialEq)]
pub struct Categories {
    values: Values,
    width: usize,
    sizes: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    U8(Buf<u8>),
    U16(Buf<u16>),
}

impl Categories {
    /// Rows of `width` categories. Column k has `sizes[k]` of them, or as many as its largest says.
    ///
    /// # Errors
    /// [`Error::BadInput`] with the first category that is beyond.
    pub fn new(values: impl Into<Buf<u16>>, width: usize, sizes: &[u32]) -> Result<Self> {
        let values = values.into();
        // One byte each where that is enough.
        let stored = match values.iter().all(|x| *x < 256) {
            true => Values::U8(values.iter().map(|x| *x as u8).collect::<Vec<_>>().into()),
            false => Values::U16(values),
        };
        Self::of(stored, width, sizes, Path::new(""))
    }

    pub(super) fn map(dir: &Path, meta: &Meta) -> Result<Option<Self>> {
        let path = dir.join(FILE);
        if !path.exists() {
            return match meta.node_categories.is_empty() {
                true => Ok(None),
                false => {
                    let problem = "node_categories is there, but cat.npy is not";
                    Err(Error::bad(dir.join("meta.toml"), "node_categories", problem, "add cat.npy or remove the key"))
                }
            };
        }
        let file = NpyFile::open(&path)?;
        let expected = format!("[{}, columns]", meta.num_nodes);
        let &[rows, width] = file.shape() else { return Err(file.wrong_shape("cat", &expected)) };
        if rows != meta.num_nodes || width == 0 {
            return Err(file.wrong_shape("cat", &expected));
        }
        let values = match file.dtype() {
            NpyType::U8 => file.elements().map(Values::U8),
            NpyType::U16 => file.elements().map(Values::U16),
            _ => None,
        };
        let values = values.ok_or_else(|| file.wrong_dtype("cat", "uint8 or uint16"))?;
        Self::of(values, width, &meta.node_categories, dir).map(Some)
    }

    fn of(values: Values, width: usize, sizes: &[u32], dir: &Path) -> Result<Self> {
        if !sizes.is_empty() && sizes.len() != width {
            let problem = format!("node_categories has {} numbers, cat.npy has {width} columns", sizes.len());
            let remedy = "give one for each column, or leave the key out";
            return Err(Error::bad(dir.join("meta.toml"), "node_categories", problem, remedy));
        }
        let mut found = Self { values, width, sizes: Vec::new() };
        let largest = found.largest();
        let sizes: Vec<u32> = if sizes.is_empty() { largest.iter().map(|x| x + 1).collect() } else { sizes.to_vec() };
        if let Some(column) = (0..width).find(|column| largest[*column] >= sizes[*column]) {
            let beyond = |row: &usize| found.get(*row, column) >= sizes[column];
            let row = (0..found.rows()).find(beyond).unwrap_or(0);
            let category = found.get(row, column);
            let problem = format!("cat[{row}, {column}] = {category}: node_categories allows {} there", sizes[column]);
            let problem = Problem::at(Position::in_matrix(row * width + column, width), problem);
            return Err(Error::bad(dir.join(FILE), "cat", problem, "correct node_categories in meta.toml, or cat.npy"));
        }
        found.sizes = sizes;
        Ok(found)
    }

    /// The largest category of every column; 0 where there is no row.
    fn largest(&self) -> Vec<u32> {
        let most = |mut a: Vec<u32>, b: Vec<u32>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).max(b));
            a
        };
        let rows = 0..self.rows();
        let row = |row: usize| (0..self.width).map(|column| self.get(row, column)).collect::<Vec<_>>();
        rows.into_par_iter().with_min_len(1 << 12).map(row).reduce(|| vec![0; self.width], most)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.len() / self.width.max(1)
    }

    /// Entries of all rows.
    pub fn len(&self) -> usize {
        match &self.values {
            Values::U8(values) => values.len(),
            Values::U16(values) => values.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many categories each column has.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// What a row has in a column.
    pub fn get(&self, row: usize, column: usize) -> u32 {
        let at = row * self.width + column;
        match &self.values {
            Values::U8(values) => values[at].into(),
            Values::U16(values) => values[at].into(),
        }
    }

    /// All rows, one after the other.
    pub fn values(&self) -> Vec<u16> {
        match &self.values {
            Values::U8(values) => values.iter().map(|x| u16::from(*x)).collect(),
            Values::U16(values) => values.to_vec(),
        }
    }

    /// Writes the file.
    pub(super) fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        match &self.values {
            Values::U8(values) => crate::npy::write_npy(path, &[self.width], values),
            Values::U16(values) => crate::npy::write_npy(path, &[self.width], values),
        }
    }
}
