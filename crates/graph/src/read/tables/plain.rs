//! Tables on their own: of nodes, as `import arrays` reads them, and such in which all columns are of one kind.

use graphweft_base::Result;

use super::batch::{Gathered, Plan, Rows, Use};
use super::nodes::{self, Nodes};
use super::schema::{Flags, Resolved, Side, Table};
use super::source::Source;
use crate::read::{Context, Input};

/// A table of nodes.
pub(in crate::read) struct NodeTable<'a> {
    pub(in crate::read) input: &'a Input,
    pub(in crate::read) table: &'a Table,
    pub(in crate::read) flags: &'a Flags,
}

impl NodeTable<'_> {
    /// Reads it.
    pub(in crate::read) fn read(&self, cx: &Context<'_>) -> Result<Option<Nodes>> {
        let source = Source::open(self.input.clone(), cx)?;
        let resolved = Resolved::new(source, self.table, Side::Nodes, &[], self.flags)?;
        nodes::read(&[&resolved], self.flags, cx)
    }
}

/// What all columns of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read) enum All {
    Features,
    /// Words, where there is one column; numbers, where there are several.
    Labels,
}

/// Reads a table in which all columns are alike, with a header or without.
pub(in crate::read) fn read(input: &Input, all: All, cx: &Context<'_>) -> Result<Rows> {
    let source = Source::open(input.clone(), cx)?;
    let names = if source.named { source.names() } else { Vec::new() };
    let id = names.iter().find(|name| matches!(name.to_ascii_lowercase().as_str(), "id" | "node_id"));
    if let Some(id) = id {
        let problem = format!("there is a column {id:?}: rows of this file are nodes in order, without ids");
        return Err(input.bad("line 1", problem, "give a table of nodes with --nodes, or leave the column out"));
    }
    let columns = source.columns.len();
    let of_column = |_| match all {
        All::Features => Use::Number,
        All::Labels if columns == 1 => Use::Word(0),
        All::Labels => Use::Label,
    };
    let plan = Plan { uses: (0..columns).map(of_column).collect(), names: &names, leave_out: "cut it off first" };
    let mut gathered = Gathered::new(&plan, cx);
    source.scan(&plan, cx, |batch| gathered.add(batch, input).map(|_| ()))?;
    gathered.finish()
}
