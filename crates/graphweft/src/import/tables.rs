//! Tables of nodes and edges, as they are named one by one or by a schema.

use std::path::{Path, PathBuf};

use graphweft_base::Error as Bad;
use graphweft_graph::dataset::Task;
use graphweft_graph::read::Input;
use graphweft_graph::read::tables::{ColumnRole, Given, Guess, Schema, Table};
use serde_json::{Value, json};

/// What was named; it is looked at when the tables are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tables {
    pub(super) schema: Option<PathBuf>,
    pub(super) nodes: Vec<String>,
    pub(super) edges: Vec<String>,
    pub(super) columns: Vec<String>,
    pub(super) task: Task,
}

impl Tables {
    /// The files, known to exist.
    pub(super) fn open(&self) -> Result<Given, Bad> {
        let mut schema = self.schema.as_deref().map(read_schema).transpose()?.unwrap_or_default();
        schema.nodes.extend(self.nodes.iter().map(|named| node_table(named)));
        for named in &self.edges {
            schema.edges.push(edge_table(named)?);
        }
        schema.columns = self.columns.iter().map(|column| ColumnRole::parse(column)).collect::<Result<_, _>>()?;
        Given::open(schema, self.task, &|file| Input::file(file))
    }
}

/// The tables of a TOML file; their paths are taken from its folder.
fn read_schema(path: &Path) -> Result<Schema, Bad> {
    let text = std::fs::read_to_string(path).map_err(|e| Bad::unreadable(path, "file", &e))?;
    let mut schema: Schema = toml::from_str(&text).map_err(|e| {
        let remedy = "docs/guide.md has an example; --dry-run prints the schema of tables that are named one by one";
        Bad::bad(path, "schema", e.message().to_string(), remedy)
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    for table in schema.nodes.iter_mut().chain(&mut schema.edges).filter(|table| !table.file.is_empty()) {
        table.file = folder.join(&table.file).to_string_lossy().into_owned();
    }
    Ok(schema)
}

/// What stands before the file, and the file.
fn named(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, file)) if !name.contains('/') && !Path::new(text).exists() => (Some(name), file),
        _ => (None, text),
    }
}

/// `[TYPE=]FILE`, or `TYPE=ROWS`.
fn node_table(text: &str) -> Table {
    let (name, file) = named(text);
    let of_type = name.map(str::to_string);
    match file.parse() {
        Ok(rows) if !Path::new(file).exists() => Table { rows: Some(rows), of_type, ..Table::default() },
        _ => Table { file: file.to_string(), of_type, ..Table::default() },
    }
}

/// `[[SOURCE:]TYPE[:DESTINATION]=]FILE`; the type may be empty between two colons.
fn edge_table(text: &str) -> Result<Table, Bad> {
    let (name, file) = named(text);
    let table = Table { file: file.to_string(), ..Table::default() };
    let parts: Vec<&str> = name.unwrap_or_default().split(':').collect();
    let some = |part: &str| Some(part).filter(|part| !part.is_empty()).map(str::to_string);
    match parts[..] {
        [of_type] => Ok(Table { of_type: some(of_type), ..table }),
        [source, of_type, destination] => {
            let (source_type, destination_type) = (some(source), some(destination));
            Ok(Table { of_type: some(of_type), source_type, destination_type, ..table })
        }
        _ => {
            let what = format!("{text:?} does not say between which types the edges lead");
            Err(Bad::request(what, "write --edges FILE, --edges TYPE=FILE or --edges SOURCE:TYPE:DESTINATION=FILE"))
        }
    }
}

/// A guess as the program prints it with `--dry-run`.
pub(super) fn shown(guess: &Guess) -> Value {
    let columns = guess.columns.iter().map(
        |c| json!({"file": c.file, "column": c.name, "holds": c.holds, "used_as": c.used_as, "example": c.example}),
    );
    let toml = toml::to_string(&guess.schema).unwrap_or_default();
    json!({"columns": columns.collect::<Vec<_>>(), "toml": toml})
}
