//! `graphweft import table`: nodes and edges from CSV, TSV and Parquet files.

use std::path::PathBuf;
use std::sync::Arc;

use graphweft::Import;

use super::Common;
use super::arrays::For;
use crate::ui::{self, Ui};

/// Arguments of `import table`. What a column is for is guessed from its name and its first rows.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// A table of nodes: CSV or TSV with a header (plain, .gz, .zst) or Parquet, with a row for each node. With types,
    /// one or more for each; TYPE=N is for N nodes that only have numbers
    #[arg(long, value_name = "[TYPE=]FILE")]
    nodes: Vec<String>,

    /// A table of edges, in the ids of the nodes, with a header unless it has only numbers; nodes that have no table
    /// are those that edges name. Types are written TYPE=FILE, or SOURCE:TYPE:DESTINATION=FILE where nodes have some
    #[arg(long, value_name = "[TYPE=]FILE", required_unless_present = "schema")]
    edges: Vec<String>,

    /// What a column is for: id, source, destination, type, label, split, feature, category or skip. TABLE is its type,
    /// or its file up to the first full stop; without it, all tables that have such a column are meant
    #[arg(long = "column", value_name = "[TABLE.]NAME=ROLE")]
    columns: Vec<String>,

    /// A TOML file with all of this, as --dry-run prints it; paths are taken from its folder
    #[arg(long, value_name = "TOML")]
    schema: Option<PathBuf>,

    /// What the labels are for
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    task: For,

    /// Only show what the columns are taken for, as a table and as a schema; nothing is written
    #[arg(long)]
    pub(super) dry_run: bool,

    /// The dataset folder to create
    #[arg(short, long = "output", value_name = "DIR", required_unless_present = "dry_run")]
    output: Option<PathBuf>,

    #[command(flatten)]
    pub(super) common: Common,
}

const EXAMPLES: &str = "Examples:
  graphweft import table --edges edges.csv.gz -o mine
  graphweft import table --nodes nodes.csv --edges edges.csv --dry-run
  graphweft import table --nodes paper=papers.parquet --nodes author=authors.csv \\
      --edges author:writes:paper=writes.parquet --column papers.year=label -o mine";

impl Args {
    /// The tables.
    pub(super) fn import(&self) -> Import {
        let import = self.schema.iter().fold(Import::tables(), Import::schema).task(self.task.into());
        let import = self.nodes.iter().fold(import, |import, table| import.node_table(table));
        let import = self.edges.iter().fold(import, |import, table| import.edge_table(table));
        self.columns.iter().fold(import, |import, column| import.column(column))
    }

    pub(super) fn output(&self) -> anyhow::Result<&PathBuf> {
        self.output.as_ref().ok_or_else(|| anyhow::anyhow!("DIR is needed"))
    }

    /// Prints what the columns are taken for.
    pub(super) fn show(&self, ui: &Ui) -> anyhow::Result<()> {
        let guess = self.import().observer(Arc::new(ui.clone())).guess()?;
        ui.result(&guess, || {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
            let rows = guess["columns"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|c| ["file", "column", "holds", "used_as", "example"].map(|key| text(&c[key])));
            let table = ui::table(["file", "column", "holds", "used as", "example"], rows);
            format!("{table}\n\n{}", text(&guess["toml"]))
        })
    }
}
