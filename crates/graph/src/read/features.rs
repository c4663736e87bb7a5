//! Node features: from any matrix to the smaller of dense and sparse.

use graphweft_base::{Error, Position, Problem, Result};
use half::f16;
use rayon::prelude::*;

use super::npz::{Array, Npz, Values};
use super::table::Table;
use super::{Context, Input};
use crate::buf::Buf;
use crate::build::Spool;
use crate::dataset::{Dense, Features, SparseFeatures};

/// Rows converted at a time, about.
const PIECE: usize = 1 << 18;

/// Features from a matrix of `n` rows.
pub(super) fn from_array(array: Array, n: usize, cx: &Context<'_>) -> Result<Features> {
    let expected = format!("[{n}, columns]");
    let [rows, width] = array.dimensions(&expected)?;
    if rows != n {
        return Err(array.wrong_shape(&expected));
    }
    if width == 0 {
        return Err(no_columns(array.input(), &array.name));
    }
    let (input, name) = (array.input().clone(), array.name.clone());
    if let Values::F16(values) = array.values {
        let bad = values.par_iter().position_first(|x: &f16| !x.is_finite());
        return match bad {
            Some(at) => Err(not_finite(&input, &name, at, width)),
            None => Ok(Features::Dense(Dense::F16 { values, width })),
        };
    }
    from_dense(&input, &name, array.into_f32(cx.scratch)?, n, width, cx)
}

/// Features from a table of `n` rows.
pub(super) fn from_table(table: Table, n: usize, input: &Input, cx: &Context<'_>) -> Result<Features> {
    if table.rows != n {
        let problem = format!("{} lines of features for {n} nodes", table.rows);
        return Err(input.bad("lines", problem, "the file is cut short or belongs to another graph"));
    }
    from_dense(input, "features", table.values, n, table.width, cx)
}

fn no_columns(input: &Input, name: &str) -> Error {
    input.bad(name, "the matrix has no columns", "give features of at least one column, or leave them out")
}

pub(super) fn not_finite(input: &Input, name: &str, at: usize, width: usize) -> Error {
    let problem = format!("{name}[{}, {}] is not a finite number", at / width, at % width);
    let problem = Problem::at(Position::in_matrix(at, width), problem);
    input.bad(name, problem, "replace NaN and infinite values, and save the file again")
}

/// Stores a dense matrix sparse where that takes fewer bytes.
pub(super) fn from_dense(
    input: &Input,
    name: &str,
    values: Buf<f32>,
    n: usize,
    width: usize,
    cx: &Context<'_>,
) -> Result<Features> {
    if let Some(at) = values.par_iter().position_first(|x| !x.is_finite()) {
        return Err(not_finite(input, name, at, width));
    }
    let entries = values.par_iter().filter(|&&x| x != 0.0).count();
    let ones = values.par_iter().all(|&x| x == 0.0 || x == 1.0);
    if !sparse_is_smaller(n, width, entries, if ones { ONE } else { VALUE }) {
        return Ok(Features::Dense(Dense::F32 { values, width }));
    }
    let mut sparse = SparseBuilder::new(width, cx);
    for row in values.chunks(width) {
        sparse.row(row.iter().enumerate().map(|(j, &x)| (j as u32, x)))?;
    }
    sparse.finish().map(Features::Sparse)
}

/// Bytes on disk of an entry: its column, and its value unless all are 1.
const ONE: usize = 4;
const VALUE: usize = 8;

/// Bytes on disk: dense float32, against offsets and entries.
fn sparse_is_smaller(n: usize, width: usize, entries: usize, bytes_of_entry: usize) -> bool {
    let dense = 4 * n as u128 * width as u128;
    let sparse = 8 * (n as u128 + 1) + bytes_of_entry as u128 * entries as u128;
    sparse < dense && width as u64 <= 1 << 32
}

/// Sparse rows, one after another.
pub(super) struct SparseBuilder {
    indptr: Vec<u64>,
    indices: Spool<u32>,
    data: Spool<f32>,
    ones: bool,
    width: usize,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl SparseBuilder {
    pub(super) fn new(width: usize, cx: &Context<'_>) -> Self {
        let (indices, data) = (Spool::new(cx.scratch), Spool::new(cx.scratch));
        Self { indptr: vec![0], indices, data, ones: true, width, columns: Vec::new(), values: Vec::new() }
    }

    /// Appends a row of ascending columns; zeros are left out.
    pub(super) fn row(&mut self, entries: impl Iterator<Item = (u32, f32)>) -> Result<()> {
        for (column, value) in entries.filter(|&(_, x)| x != 0.0) {
            self.columns.push(column);
            self.values.push(value);
            self.ones &= value == 1.0;
        }
        self.indptr.push((self.indices.len() + self.columns.len()) as u64);
        if self.columns.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.indices.push(&self.columns)?;
        self.data.push(&self.values)?;
        self.columns.clear();
        self.values.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<SparseFeatures> {
        self.flush()?;
        let data = if self.ones { None } else { Some(self.data.finish()?) };
        Ok(SparseFeatures { indptr: self.indptr.into(), indices: self.indices.finish()?, data, width: self.width })
    }
}

/// Rows and columns of the matrix whose arrays in an archive begin with `prefix`.
pub(super) fn matrix_shape(npz: &mut Npz<'_>, prefix: &str) -> Result<[usize; 2]> {
    let shape = npz.need(&format!("{prefix}shape"))?;
    if shape.shape != [2] {
        return Err(shape.wrong_shape("[2]"));
    }
    // No real matrix comes near; what stays below can be added and multiplied.
    let extent = |at| shape.below(at, 1 << 48).map(|x| x as usize);
    Ok([extent(0)?, extent(1)?])
}

/// A sparse matrix by rows as SciPy stores it.
pub(super) struct Compressed {
    pub(super) indptr: Array,
    pub(super) indices: Array,
    pub(super) data: Option<Array>,
    /// Rows and columns.
    pub(super) shape: [usize; 2],
}

impl Compressed {
    /// The matrix whose arrays in an archive begin with `prefix`.
    pub(super) fn read(npz: &mut Npz<'_>, prefix: &str) -> Result<Self> {
        Ok(Self {
            shape: matrix_shape(npz, prefix)?,
            indptr: npz.need(&format!("{prefix}indptr"))?,
            indices: npz.need(&format!("{prefix}indices"))?,
            data: npz.get(&format!("{prefix}data"))?,
        })
    }

    /// The offsets, checked: ascending from 0 to the number of entries, one more than there are rows.
    pub(super) fn offsets(&self) -> Result<Vec<u64>> {
        let [rows, _] = self.shape;
        let entries = self.indices.len() as u64;
        if self.indptr.shape.len() != 1 || self.indptr.len().checked_sub(1) != Some(rows) {
            return Err(self.indptr.wrong_shape(&format!("[{}]: one more than there are rows", rows as u128 + 1)));
        }
        if self.indices.shape.len() != 1 {
            return Err(self.indices.wrong_shape("one dimension"));
        }
        if let Some(data) = self.data.as_ref().filter(|d| d.shape != self.indices.shape) {
            return Err(data.wrong_shape(&format!("{:?}, as {}", self.indices.shape, self.indices.name)));
        }
        let offsets = self.indptr.all_below(entries + 1)?;
        if let Some(row) = offsets.windows(2).position(|w| w[1] < w[0]) {
            return Err(self.indptr.bad(self.indptr.at(row + 1, " is below the one before")));
        }
        if (offsets[0], offsets[rows]) != (0, entries) {
            let problem = format!("runs from {} to {}, expected 0 to {entries}", offsets[0], offsets[rows]);
            return Err(self.indptr.bad(problem));
        }
        Ok(offsets)
    }

    /// Features from this matrix. Columns are sorted, entries of the same place added up (as SciPy means them), zeros
    /// dropped.
    pub(super) fn into_features(self, n: usize, cx: &Context<'_>) -> Result<Features> {
        let [rows, width] = self.shape;
        if rows != n {
            return Err(self.indptr.bad(format!("the matrix has {rows} rows, the graph {n} nodes")));
        }
        let offsets = self.offsets()?;
        let limit = width as u64;
        if limit > 1 << 32 {
            return Err(self.indices.bad(format!("the matrix has {width} columns, at most 2³² are supported")));
        }
        if width == 0 {
            return Err(no_columns(self.indices.input(), &self.indices.name));
        }
        let mut sparse = SparseBuilder::new(width, cx);
        let mut row: Vec<(u32, f32)> = Vec::new();
        for w in offsets.windows(2) {
            row.clear();
            for at in w[0] as usize..w[1] as usize {
                let value = self.data.as_ref().map_or(1.0, |d| d.number(at) as f32);
                row.push((self.indices.below(at, limit)? as u32, value));
            }
            row.sort_by_key(|&(column, _)| column);
            row.dedup_by(|b, a| {
                let same = a.0 == b.0;
                a.1 += if same { b.1 } else { 0.0 };
                same
            });
            if let Some((column, _)) = row.iter().find(|(_, x)| !x.is_finite()) {
                let data = self.data.as_ref().unwrap_or(&self.indices);
                let (row, column) = (sparse.indptr.len() as u64 - 1, u64::from(*column));
                return Err(data.bad(Problem::at(
                    Position::Cell { row, column },
                    format!("the value in row {row}, column {column} is not a finite number"),
                )));
            }
            sparse.row(row.iter().copied())?;
        }
        let sparse = sparse.finish()?;
        if sparse_is_smaller(n, width, sparse.indices.len(), if sparse.data.is_none() { ONE } else { VALUE }) {
            return Ok(Features::Sparse(sparse));
        }
        densify(&sparse, cx).map(|values| Features::Dense(Dense::F32 { values, width }))
    }
}

fn densify(m: &SparseFeatures, cx: &Context<'_>) -> Result<Buf<f32>> {
    let mut values = Spool::new(cx.scratch);
    let mut row = vec![0.0f32; m.width];
    for w in m.indptr.windows(2) {
        row.fill(0.0);
        for at in w[0] as usize..w[1] as usize {
            row[m.indices[at] as usize] = m.data.as_ref().map_or(1.0, |d| d[at]);
        }
        values.push(&row)?;
    }
    values.finish()
}
