//! A file with a table in it, whatever its format: its columns, and its rows.

use graphweft_base::Result;

use super::batch::{Batch, Plan};
use super::csv::{self, Header};
use super::parquet::ParquetTable;
use crate::read::{Context, Input};

/// What a column holds, by its first rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Holds {
    Integers,
    Numbers,
    /// So many numbers in each row.
    List(usize),
    /// So many different ones in so many rows.
    Words {
        different: usize,
        of: usize,
    },
    /// All fields are empty.
    Nothing,
    /// Something that is not read.
    Other(&'static str),
}

/// A column, as it is shown.
pub(super) struct Column {
    pub(super) holds: Holds,
    pub(super) name: String,
    /// The first value that is there.
    pub(super) example: String,
}

/// A table that is open.
pub(super) struct Source {
    pub(super) input: Input,
    pub(super) columns: Vec<Column>,
    /// Whether the columns have names of their own.
    pub(super) named: bool,
    form: Form,
}

enum Form {
    Text(Header),
    Parquet(ParquetTable),
}

impl Source {
    /// Looks at the names of the columns and at the first rows.
    pub(super) fn open(input: Input, cx: &Context<'_>) -> Result<Self> {
        if input.start(4)? == b"PAR1" {
            let table = ParquetTable::open(&input)?;
            let columns = table.columns(&input)?;
            return Ok(Self { input, columns, named: true, form: Form::Parquet(table) });
        }
        let header = Header::read(&input, cx)?;
        let sample = header.sample(&input, cx)?;
        let named = header.names.is_some();
        let names = header.names.clone().unwrap_or_else(|| (1..=header.columns).map(|c| format!("c{c}")).collect());
        let column = |(name, sample): (String, Vec<Vec<u8>>)| {
            let example = sample.iter().find(|field| !field.is_empty()).cloned().unwrap_or_default();
            Column { name, holds: csv::holds(&sample), example: String::from_utf8_lossy(&example).into_owned() }
        };
        let columns = names.into_iter().zip(sample).map(column).collect();
        Ok(Self { input, columns, named, form: Form::Text(header) })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.columns.iter().map(|c| c.name.clone()).collect()
    }

    /// Reads all rows; `consume` takes them in order.
    pub(super) fn scan(
        &self,
        plan: &Plan<'_>,
        cx: &Context<'_>,
        mut consume: impl FnMut(Batch) -> Result<()>,
    ) -> Result<()> {
        let mut rows = 0;
        let counted = |batch: Batch| {
            rows += batch.rows;
            consume(batch)
        };
        match &self.form {
            Form::Text(header) => header.scan(&self.input, plan, cx, counted)?,
            Form::Parquet(table) => table.scan(&self.input, plan, cx, counted)?,
        }
        if rows == 0 {
            let remedy = "a table has a header and a line for each row";
            return Err(self.input.bad("file", "there is no row in it", remedy));
        }
        Ok(())
    }
}
