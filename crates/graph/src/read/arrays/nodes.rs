//! The table of nodes: what its columns are for, as `import arrays` names them.

use graphweft_base::Result;

use super::super::tables::{Flags, Names, NodeTable, Nodes, Table};
use super::super::{Context, Input};

const FLAGS: Flags =
    Flags { id: "--id-column", label: "--label-columns", split: "--split-column", skip: "--skip-columns" };

/// Columns of the table of nodes that are not called as usual.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Node ids; usually `id`, `node` or `node_id`.
    pub id: Option<String>,
    /// Labels; usually `label`, `class`, `y` or `target`. Several: each holds 0 or 1.
    pub labels: Vec<String>,
    /// `train`, `valid` or `test`; usually `split` or `set`.
    pub split: Option<String>,
    /// Not to be read.
    pub skip: Vec<String>,
}

/// Reads a table of nodes with a header.
pub(super) fn read(input: &Input, columns: &Columns, cx: &Context<'_>) -> Result<Option<Nodes>> {
    let one = |name: &Option<String>| Names(name.iter().cloned().collect());
    let table = Table {
        id: one(&columns.id),
        label: Names(columns.labels.clone()),
        split: one(&columns.split),
        skip: Names(columns.skip.clone()),
        ..Table::default()
    };
    NodeTable { input, table: &table, flags: &FLAGS }.read(cx)
}
