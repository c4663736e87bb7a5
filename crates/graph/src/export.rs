//! A dataset folder in formats of other programs: tables of CSV, TSV or Parquet, an `.npz` of arrays, METIS `.graph`.
//!
//! Tables are written with a `schema.toml`, by which `import table` reads them back as they were: nodes in the order of
//! their ids, edges in that of the graph. A table holds the nodes of one type, or the edges of one type between two
//! types of nodes. Features are a list in one column.

mod columns;
mod metis;
mod npz;
mod parquet;
mod text;

use std::path::Path;

use graphweft_base::{Error, Result, durable};

use crate::Dataset;
use crate::dataset::Split;
use crate::read::tables::Schema;
use columns::Tables;

/// A format that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A folder of tables, separated by commas.
    Csv,
    /// A folder of tables, separated by tabs.
    Tsv,
    /// A folder of Parquet tables.
    Parquet,
    /// A file of arrays.
    Npz,
    /// A file that METIS reads.
    Metis,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Csv, Self::Tsv, Self::Parquet, Self::Npz, Self::Metis];

    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Parquet => "parquet",
            Self::Npz => "npz",
            Self::Metis => "metis",
        }
    }

    /// The format of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str) -> Result<Self> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| Error::request(format!("there is no format {name:?} to export"), format!("use {names}")))
    }
}

/// Writes `data` as `path`, a file or a folder that does not exist; of its splits the one of this name, or the first.
/// Says what was left out.
///
/// # Errors
/// [`Error::Request`] if `path` exists or the format cannot hold the data, [`Error::Write`] if it cannot be written.
pub fn write(data: &Dataset, format: Format, path: &Path, split: Option<&str>) -> Result<Vec<String>> {
    if path.exists() {
        let what = format!("{} exists already", path.display());
        return Err(Error::request(what, "remove it first, or name another path"));
    }
    if data.graphs().is_some() {
        return Err(Error::request("collections of graphs are not exported", "export a single graph"));
    }
    let split = match split {
        Some(name) => Some(data.split(name)?),
        None => data.splits().first(),
    };
    let mut notes = left_out(data, split);
    match format {
        Format::Csv | Format::Tsv | Format::Parquet => tables(data, format, path, split)?,
        Format::Npz => durable::replace_by(path, |path| npz::write(data, path, split))?,
        Format::Metis => {
            durable::replace_by(path, |path| metis::write(data, path))?;
            notes = vec!["a METIS file holds the graph alone".into()];
        }
    }
    Ok(notes)
}

fn left_out(data: &Dataset, split: Option<&Split>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(split) = split.filter(|_| data.splits().len() > 1) {
        let others = data.splits().len() - 1;
        notes.push(format!("of {} splits, {:?} was exported; --split names another", others + 1, split.name));
    }
    if !data.links().is_empty() {
        notes.push("splits of links were left out".into());
    }
    notes
}

fn tables(data: &Dataset, format: Format, path: &Path, split: Option<&Split>) -> Result<()> {
    let folder = durable::folder_beside(path)?;
    let tables = Tables::of(data, split)?;
    let mut schema = Schema::default();
    for table in tables.nodes().into_iter().chain(tables.edges()?) {
        let file = format!("{}.{}", table.name, format.name());
        let place = folder.path().join(&file);
        match format {
            Format::Parquet => parquet::write(&table, &place)?,
            Format::Csv => text::write(&table, &place, b',')?,
            _ => text::write(&table, &place, b'\t')?,
        }
        let entry = crate::read::tables::Table { file, ..table.schema };
        if table.of_edges { schema.edges.push(entry) } else { schema.nodes.push(entry) }
    }
    let text = toml::to_string(&schema).map_err(|e| Error::request(e.to_string(), "report this"))?;
    durable::write_new(&folder.path().join("schema.toml"), text.as_bytes())?;
    folder.publish(path)
}

#[cfg(test)]
mod tests;
