//! Tables of nodes and edges, as files of CSV, TSV (plain, gzip or zstd) and Parquet.
//!
//! A [`Schema`] says which file has which nodes or edges, and what its columns are for; what it does not say is guessed
//! from names and first rows, and [`guess`] shows that before anything is read. Ids are any text or integers. Those of
//! a type that has a table are its rows; those of others are numbered in the order in which edges name them first, and
//! are in memory, once each. Everything else goes through the disk where it is large: features and categories to
//! temporary files, edges into the sorter. One pass over each file.
//!
//! With several types of nodes, or edges that have types, the result is a typed graph: nodes type by type in the order
//! of the schema, features of each type of its own.

mod batch;
mod blocks;
mod csv;
mod edges;
mod ids;
mod nodes;
mod parquet;
mod plain;
mod schema;
mod source;
#[cfg(test)]
mod tests;
mod typed;

use graphweft_base::{Error, Result};

use super::imported::EdgeFeatures;
use super::{Context, Imported, Input};
use crate::build::{EdgeSorter, Expected, Spool};
use crate::csr::NodeId;
use crate::dataset::{Categories, Features, NodeType, Task, is_plain_name};
use batch::Part;
use edges::{Carried, EdgeTable, Ends, Sink};
use schema::{FLAGS, Resolved, Role};
use source::{Holds, Source};

pub(super) use batch::Rows;
pub(super) use ids::{Ids, Kept};
pub(super) use nodes::{Classes, LabelsAre, NAME, Nodes, classes, several, split};
pub(super) use plain::{All, NodeTable, read as read_plain};
pub(super) use schema::Flags;
pub use schema::{ColumnRole, Names, Schema, Table};

/// The files of a schema, open.
#[derive(Clone, Debug)]
pub struct Given {
    schema: Schema,
    /// One for each table of nodes that has a file.
    nodes: Vec<Option<Input>>,
    edges: Vec<Input>,
    task: Task,
}

impl Given {
    /// Opens the files of `schema` by their names; labels are for `task`.
    ///
    /// # Errors
    /// If a file is missing, or a table has none.
    pub fn open(schema: Schema, task: Task, open: &dyn Fn(&str) -> Result<Input>) -> Result<Self> {
        let no_file = |side: &str| {
            let what = format!("a table of {side} has no file");
            Err(Error::request(what, "name it; nodes that only have numbers need rows = N instead"))
        };
        let mut nodes = Vec::new();
        for table in &schema.nodes {
            nodes.push(match (table.file.as_str(), table.rows) {
                ("", Some(rows)) if rows > EdgeSorter::MOST_NODES => {
                    let what = format!("{rows} nodes: at most {} are supported", EdgeSorter::MOST_NODES);
                    return Err(Error::request(what, "correct the number"));
                }
                ("", Some(_)) => None,
                ("", None) => return no_file("nodes"),
                (file, None) => Some(open(file)?),
                (file, Some(_)) => {
                    let what = format!("{file} says itself how many rows it has");
                    return Err(Error::request(what, "leave its rows out"));
                }
            });
        }
        if schema.edges.is_empty() {
            return Err(Error::request(
                "there is no table of edges",
                "name one: --edges FILE, or [[edges]] in a schema",
            ));
        }
        if schema.edges.iter().any(|table| table.file.is_empty()) {
            return no_file("edges");
        }
        let edges = schema.edges.iter().map(|table| open(&table.file)).collect::<Result<_>>()?;
        Ok(Self { schema, nodes, edges, task })
    }
}

/// What was guessed of the columns of tables.
#[derive(Clone, Debug)]
pub struct Guess {
    /// All tables, with all of their columns.
    pub schema: Schema,
    /// Column by column, to show.
    pub columns: Vec<GuessedColumn>,
}

/// A column of a [`Guess`].
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct GuessedColumn {
    pub file: String,
    pub name: String,
    pub holds: String,
    pub used_as: &'static str,
    pub example: String,
}

/// Looks at the first rows of all tables and says what their columns are taken for. Reads nothing else.
///
/// # Errors
/// If a table cannot be read, or a column of the schema is not there.
pub fn guess(given: &Given, cx: &Context<'_>) -> Result<Guess> {
    let tables = Tables::open(given, cx)?;
    let (mut schema, mut columns) = (Schema::default(), Vec::new());
    for (table, resolved) in given.schema.nodes.iter().zip(&tables.nodes) {
        schema.nodes.push(resolved.as_ref().map_or_else(|| table.clone(), Resolved::complete));
    }
    schema.edges = tables.edges.iter().map(Resolved::complete).collect();
    for resolved in tables.nodes.iter().flatten().chain(&tables.edges) {
        for (column, role) in resolved.source.columns.iter().zip(&resolved.roles) {
            columns.push(GuessedColumn {
                file: resolved.source.input.path().display().to_string(),
                name: column.name.clone(),
                holds: match column.holds {
                    Holds::Integers => "integers".into(),
                    Holds::Numbers => "numbers".into(),
                    Holds::List(width) => format!("lists of {width} numbers"),
                    Holds::Words { different, of } => format!("text: {different} different in {of} rows"),
                    Holds::Nothing => "nothing in the first rows".into(),
                    Holds::Other(what) => what.into(),
                },
                used_as: role.key(),
                example: column.example.chars().take(40).collect(),
            });
        }
    }
    Ok(Guess { schema, columns })
}

/// Reads all tables.
///
/// # Errors
/// [`Error::BadInput`] naming the file, the row and the column; [`Error::Request`] where tables do not fit together.
pub fn read(given: &Given, cx: &Context<'_>) -> Result<Imported> {
    let tables = Tables::open(given, cx)?;
    let types = tables.types(&given.schema)?;
    let mut notes = Vec::new();
    let mut nodes = Vec::new();
    for name in &types {
        let own: Vec<&Resolved> = tables.of_type(&given.schema, name).collect();
        let mut read = nodes::read(&own, &FLAGS, cx)?;
        if let (Some(nodes), true) = (&mut read, types.len() == 1) {
            // Of many types, the names of the columns would be many.
            notes.append(&mut nodes.notes);
        }
        nodes.push(read);
    }
    let mut ends: Vec<Ends> =
        types.iter().zip(&mut nodes).map(|(name, nodes)| tables.ends(given, name, nodes)).collect();
    let edge_tables = tables.edge_tables(&given.schema, &types)?;
    let typed = types.len() > 1
        || given.schema.edges.iter().any(|table| table.of_type.is_some())
        || tables.edges.iter().any(|table| table.has(Role::Type));
    let mut imported =
        if typed { typed::edges(&edge_tables, &mut ends, cx)? } else { untyped(&edge_tables, &mut ends, cx)? };
    let mut words = toml::Table::new();
    if let Some(of_edges) = imported.take_words() {
        words.insert("edges".into(), of_edges.into());
    }
    let imported = Whole { given, tables: &tables, types, nodes, ends, words, notes, cx }.finish(imported.graph)?;
    Ok(imported)
}

/// A graph of which the nodes are still to be told.
struct Edges {
    graph: Imported,
    /// What the words of categories are numbered as.
    words: toml::Table,
}

impl Edges {
    fn take_words(&mut self) -> Option<toml::Table> {
        Some(std::mem::take(&mut self.words)).filter(|words| !words.is_empty())
    }
}

/// Tables that are open, with the roles of their columns.
struct Tables {
    nodes: Vec<Option<Resolved>>,
    edges: Vec<Resolved>,
}

impl Tables {
    fn open(given: &Given, cx: &Context<'_>) -> Result<Self> {
        let named = &given.schema.columns;
        let resolve = |input: &Input, table: &Table, side: schema::Side| {
            Resolved::new(Source::open(input.clone(), cx)?, table, side, named, &FLAGS)
        };
        let nodes = given.nodes.iter().zip(&given.schema.nodes);
        let node = |(input, table): (&Option<Input>, &Table)| {
            input.as_ref().map(|input| resolve(input, table, schema::Side::Nodes)).transpose()
        };
        let edges = given.edges.iter().zip(&given.schema.edges);
        let tables = Self {
            nodes: nodes.map(node).collect::<Result<_>>()?,
            edges: edges.map(|(input, table)| resolve(input, table, schema::Side::Edges)).collect::<Result<_>>()?,
        };
        for column in named {
            if !tables.nodes.iter().flatten().chain(&tables.edges).any(|table| column.fits(table)) {
                let what = format!("no table has the column that {column} names");
                return Err(Error::request(what, "import table … --dry-run lists the columns"));
            }
        }
        Ok(tables)
    }

    /// The types of nodes, in the order of the schema; one without a name where there are none.
    fn types(&self, schema: &Schema) -> Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        let unnamed = schema.nodes.iter().filter(|table| table.of_type.is_none()).count();
        let of_edges = schema.edges.iter().flat_map(|t| [&t.source_type, &t.destination_type]).flatten();
        for name in schema.nodes.iter().filter_map(|table| table.of_type.as_ref()).chain(of_edges) {
            if !is_plain_name(name) {
                let what = format!("{name:?} is no name of a type, which is a part of the names of files");
                return Err(Error::request(what, "use up to 64 of the letters a–z, digits, and _ - ."));
            }
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        if unnamed > 0 && !names.is_empty() {
            let what = "some tables of nodes have a type, and others have none";
            return Err(Error::request(what, "give all of them types: --nodes TYPE=FILE"));
        }
        for table in schema.nodes.iter().filter(|table| table.rows.is_some()) {
            if schema.nodes.iter().filter(|other| other.of_type == table.of_type).count() > 1 {
                let what = "nodes that only have numbers are all nodes of their type, and there is another table of it";
                return Err(Error::request(what, "leave out one of the two"));
            }
        }
        if names.is_empty() {
            names.push(String::new());
        }
        Ok(names)
    }

    fn of_type<'a, 'n>(
        &'a self,
        schema: &'a Schema,
        name: &'n str,
    ) -> impl Iterator<Item = &'a Resolved> + use<'a, 'n> {
        let is = move |(table, _): &(&'a Table, &'a Option<Resolved>)| table.of_type.as_deref().unwrap_or("") == name;
        schema.nodes.iter().zip(&self.nodes).filter(is).filter_map(|(_, resolved)| resolved.as_ref())
    }

    /// The nodes of a type, as edges name them. Takes the ids of the tables.
    fn ends(&self, given: &Given, name: &str, nodes: &mut Option<Nodes>) -> Ends {
        let by = self.of_type(&given.schema, name).map(|table| table.source.input.path().display().to_string());
        let by = by.collect::<Vec<_>>().join(", ");
        let counted =
            given.schema.nodes.iter().find(|t| t.of_type.as_deref().unwrap_or("") == name && t.rows.is_some());
        let known = match (nodes, counted.and_then(|table| table.rows)) {
            (Some(nodes), _) => Some(match nodes.ids.take() {
                Some(ids) => batch::Known::Ids(ids),
                None => batch::Known::Rows(nodes.rows.rows as u64),
            }),
            (None, Some(rows)) => Some(batch::Known::Rows(rows)),
            (None, None) => None,
        };
        let by = if by.is_empty() { format!("type {name:?}") } else { by };
        Ends { name: name.to_string(), by, known, found: Ids::new() }
    }

    fn edge_tables<'a>(&'a self, schema: &Schema, types: &[String]) -> Result<Vec<EdgeTable<'a>>> {
        let place = |table: &Table, given: &Option<String>| -> Result<usize> {
            match given {
                Some(name) => Ok(types.iter().position(|other| other == name).unwrap_or(0)),
                None if types.len() == 1 => Ok(0),
                None => {
                    let what = format!("between which of the types {} does {} lead?", types.join(", "), table.file);
                    let remedy = "write --edges SOURCE:TYPE:DESTINATION=FILE, or source_type and destination_type";
                    Err(Error::request(what, remedy))
                }
            }
        };
        let table = |(table, resolved): (&Table, &'a Resolved)| -> Result<EdgeTable<'a>> {
            let (source, destination) = (place(table, &table.source_type)?, place(table, &table.destination_type)?);
            Ok(EdgeTable { resolved, source, destination })
        };
        schema.edges.iter().zip(&self.edges).map(table).collect()
    }
}

/// Edges of one kind between nodes of one type: they go into the graph as they are read.
fn untyped(tables: &[EdgeTable<'_>], ends: &mut [Ends], cx: &Context<'_>) -> Result<Edges> {
    let shape = typed::Shape::of(tables)?;
    let limit = ends[0].known.as_ref().map_or(<u32 as NodeId>::CAPACITY, batch::Known::len);
    let expected = Expected { num_nodes: limit, origins: shape.carries() };
    let mut sink = Sink::Sorter(Box::new(EdgeSorter::new(expected, cx.rules, cx.scratch)?));
    let (mut features, mut columns, mut notes) = (Spool::new(cx.scratch), Vec::new(), shape.notes());
    for table in tables {
        let carried = edges::read(table, ends, &mut sink, &FLAGS, cx)?;
        let Carried { rows, categories, .. } = carried;
        notes.push(table.resolved.describe());
        shape.rows(&rows, 0..rows.rows, &mut features)?;
        columns.push(categories);
    }
    let categories = edges::categories(&tables[0].resolved.source.input, &shape.categories(), columns)?;
    let Sink::Sorter(sorter) = sink else { return Err(Error::request("edges were set aside", "report this")) };
    let edge_features = match shape.width {
        0 => None,
        width => Some(EdgeFeatures { values: features.finish()?, width }),
    };
    let codes = categories.first().map(|first| {
        let rows = 0..first.codes.len();
        let values: Vec<u16> = rows.flat_map(|row| categories.iter().map(move |c| c.codes[row])).collect();
        Categories::new(values, categories.len(), &[])
    });
    let words = nodes::words(&categories);
    let graph = Imported { edge_features, edge_categories: codes.transpose()?, notes, ..Imported::new(0, *sorter) };
    Ok(Edges { graph, words })
}

/// Everything that was read, on its way into one.
struct Whole<'a> {
    given: &'a Given,
    tables: &'a Tables,
    types: Vec<String>,
    nodes: Vec<Option<Nodes>>,
    ends: Vec<Ends>,
    words: toml::Table,
    notes: Vec<String>,
    cx: &'a Context<'a>,
}

impl<'a> Whole<'a> {
    /// The first file of a type, for messages.
    fn input(&self, name: &str) -> &'a Input {
        let (tables, schema) = (self.tables, &self.given.schema);
        let first = tables.of_type(schema, name).next().unwrap_or(&tables.edges[0]);
        &first.source.input
    }

    fn finish(mut self, mut graph: Imported) -> Result<Imported> {
        let n = self.ends.iter().map(Ends::len).sum::<u64>();
        graph.num_nodes = n as usize;
        const SMALL: u64 = 1 << 20;
        if self.types.len() > 1 && n > SMALL && n / 32 > graph.edges.pushed() {
            // Labels and ids of all nodes are in memory.
            let what = format!("{} edges for {n} nodes: nearly all nodes would be isolated", graph.edges.pushed());
            return Err(Error::request(what, "correct the numbers of nodes that are given in place of tables"));
        }
        let mut of_nodes = toml::Table::new();
        let mut nodes = std::mem::take(&mut self.nodes);
        if let [only] = &mut nodes[..] {
            if let Some(only) = only {
                let input = self.input(&self.types[0]);
                graph.features = only.features(input, self.cx)?;
                graph.categories = only.categories()?;
                of_nodes = only.words();
            }
        } else {
            for (name, nodes) in self.types.iter().zip(&mut nodes) {
                let Some(nodes) = nodes else { continue };
                if !nodes.words().is_empty() {
                    of_nodes.insert(name.clone(), nodes.words().into());
                }
            }
            graph.types.nodes = self.node_types(&mut nodes, &mut graph.types.features)?;
        }
        if !of_nodes.is_empty() {
            self.words.insert("nodes".into(), of_nodes.into());
        }
        self.labels(&mut nodes, &mut graph)?;
        self.split(&nodes, &mut graph)?;
        self.keep_ids(&mut graph);
        if !self.words.is_empty() {
            let text = toml::to_string(&self.words).unwrap_or_default();
            graph.texts.push(super::imported::TextFile { name: "categories.toml", text });
            graph.notes.push("categories are words, numbered from 0 in categories.toml".into());
        }
        if graph.splits.is_empty() {
            graph.notes.push("no split was given: train with --split random:60/20/20".into());
        }
        graph.notes.splice(0..0, self.notes);
        Ok(graph)
    }

    /// The types with their nodes; their features go into `features`.
    fn node_types(&self, nodes: &mut [Option<Nodes>], features: &mut Vec<Option<Features>>) -> Result<Vec<NodeType>> {
        let mut types = Vec::new();
        for ((name, ends), nodes) in self.types.iter().zip(&self.ends).zip(nodes) {
            let own =
                nodes.as_mut().map(|nodes| nodes.features_of_type(self.input(name), self.cx)).transpose()?.flatten();
            let num_features = own.as_ref().map_or(0, Features::width);
            types.push(NodeType { name: name.clone(), num_nodes: ends.len() as usize, num_features });
            features.push(own);
        }
        if features.iter().all(Option::is_none) {
            features.clear();
        }
        Ok(types)
    }

    /// Labels of the one type that has some, among all nodes.
    fn labels(&self, nodes: &mut [Option<Nodes>], graph: &mut Imported) -> Result<()> {
        let mut start = 0;
        let mut labelled: Option<&str> = None;
        for ((name, ends), nodes) in self.types.iter().zip(&self.ends).zip(nodes) {
            let input = self.input(name);
            let found = nodes.as_mut().map(|nodes| nodes.classes(input, self.given.task)).transpose()?.flatten();
            if let Some(classes) = found {
                if let Some(other) = labelled.replace(name) {
                    let what = format!("nodes of type {other} have labels, and so have those of type {name}");
                    return Err(Error::request(what, "leave one of the columns out: --column TYPE.NAME=skip"));
                }
                graph.notes.extend(classes.about());
                let labels = super::labels::among(classes.labels, start, graph.num_nodes, classes.count);
                (graph.labels, graph.class_names) = (Some((labels, classes.count)), classes.names);
            }
            start += ends.len() as usize;
        }
        if labelled.is_none() && self.given.task == Task::NodeRegression {
            let what = "there are no numbers to predict, which node-regression needs";
            return Err(Error::request(what, "name their columns: --column NAME=label"));
        }
        Ok(())
    }

    fn split(&self, nodes: &[Option<Nodes>], graph: &mut Imported) -> Result<()> {
        let mut parts = Vec::new();
        let mut input = None;
        for ((name, ends), nodes) in self.types.iter().zip(&self.ends).zip(nodes) {
            let own = nodes.as_ref().map_or(&[][..], |nodes| &nodes.rows.parts);
            if !own.is_empty() {
                input = input.or(Some(self.input(name)));
                parts.extend_from_slice(own);
            } else if input.is_some() {
                parts.resize(parts.len() + ends.len() as usize, Part::Nowhere);
            }
        }
        let Some(input) = input else { return Ok(()) };
        // Nodes of types before the first that has a split are in no part of it.
        let start = graph.num_nodes - parts.len();
        graph.splits = vec![split(input, &parts, start as u64, graph.num_nodes)?];
        Ok(())
    }

    /// Ids, unless all are the numbers of rows.
    fn keep_ids(&mut self, graph: &mut Imported) {
        let has_ids = |ends: &Ends| !matches!(ends.known, Some(batch::Known::Rows(_)));
        if !self.ends.iter().any(has_ids) {
            return;
        }
        let mut all = ids::Written::default();
        for ends in std::mem::take(&mut self.ends) {
            all.append(match ends.known {
                Some(batch::Known::Rows(count)) => ids::Written::rows(count),
                Some(batch::Known::Ids(ids)) => ids.into_written(),
                None => ends.found.into_written(),
            });
        }
        match all.kept() {
            Kept::Nothing => {}
            Kept::Ids(ids) => graph.node_ids = Some(ids),
            Kept::Names(lines) => graph.node_names = Some(lines),
        }
    }
}
