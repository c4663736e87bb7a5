//! Edges that have types, and what edges of several tables carry.

use std::collections::HashMap;
use std::ops::Range;

use graphweft_base::{Error, Result};

use super::Edges;
use super::batch::{Rows, Use, WordColumn};
use super::edges::{self, Carried, EdgeTable, Ends, Sink};
use super::nodes;
use super::schema::{FLAGS, Role};
use crate::buf::Buf;
use crate::build::Spool;
use crate::dataset::{Categories, Types};
use crate::read::imported::EdgeFeatures;
use crate::read::relations::Relations;
use crate::read::{Context, Imported};

/// Edges handed on at a time.
const CHUNK: usize = 1 << 16;
/// As many as a type in two bytes can name.
const MOST_TYPES: usize = 1 << 16;

/// The columns that edges carry, the same in all tables.
pub(super) struct Shape {
    pub(super) width: usize,
    categories: Vec<String>,
    /// Tables that have no features, though others have.
    without: Vec<String>,
}

impl Shape {
    pub(super) fn of(tables: &[EdgeTable<'_>]) -> Result<Self> {
        let mut shape: Option<(Vec<String>, usize)> = None;
        let (mut categories, mut without) = (None::<Vec<String>>, Vec::new());
        for table in tables.iter().map(|table| table.resolved) {
            let named = |role| table.with(role).into_iter().map(|c| table.name(c).to_string()).collect::<Vec<_>>();
            let path = table.source.input.path().display().to_string();
            let differ = |what: &str, found: &[String], expected: &[String]| {
                let problem = format!("{what} are {}; a table before has {}", found.join(", "), expected.join(", "));
                Err(table.source.input.bad("line 1", problem, "edges carry the same in all tables"))
            };
            let (features, of_table) = (named(Role::Feature), named(Role::Category));
            let mut width = 0;
            for column in table.with(Role::Feature) {
                width += match nodes::feature(table, column)? {
                    Use::List(width) => width,
                    _ => 1,
                };
            }
            match &shape {
                _ if width == 0 => without.push(path),
                Some((expected, _)) if *expected != features => return differ("features", &features, expected),
                Some((_, expected)) if *expected != width => {
                    let problem = format!("{width} numbers for each edge; a table before has {expected}");
                    return Err(table.source.input.bad("features", problem, "edges carry the same in all tables"));
                }
                Some(_) => {}
                None => shape = Some((features, width)),
            }
            match &categories {
                Some(expected) if *expected != of_table => return differ("categories", &of_table, expected),
                _ => categories = Some(of_table),
            }
        }
        let width = shape.map_or(0, |(_, width)| width);
        let without = if width == 0 { Vec::new() } else { without };
        Ok(Self { width, categories: categories.unwrap_or_default(), without })
    }

    pub(super) fn carries(&self) -> bool {
        self.width > 0 || !self.categories.is_empty()
    }

    pub(super) fn categories(&self) -> Vec<&str> {
        self.categories.iter().map(String::as_str).collect()
    }

    pub(super) fn notes(&self) -> Vec<String> {
        match &self.without[..] {
            [] => Vec::new(),
            tables => vec![format!("edges of {} have features of zeros: there are none in it", tables.join(", "))],
        }
    }

    /// Appends the features of these rows, zeros where the table has none.
    pub(super) fn rows(&self, of: &Rows, rows: Range<usize>, features: &mut Spool<f32>) -> Result<()> {
        match (self.width, of.width) {
            (0, _) => Ok(()),
            (width, 0) => {
                let chunk = |at: usize| CHUNK.min(rows.end - at);
                (rows.start..rows.end).step_by(CHUNK).try_for_each(|at| features.push(&vec![0.0; width * chunk(at)]))
            }
            (width, _) => features.push(&of.features[rows.start * width..rows.end * width]),
        }
    }
}

/// A table that was read.
struct Read {
    /// Source and destination of each edge, numbered inside their types.
    ends: Buf<u64>,
    rows: Rows,
    types: TypeOf,
    source: usize,
    destination: usize,
}

/// The type of the edges of a table.
enum TypeOf {
    All(u16),
    Each { codes: Buf<u32>, numbers: Vec<u16> },
}

/// Types in the order in which they first appear.
#[derive(Default)]
struct TypeNames {
    numbers: HashMap<String, u16>,
    names: Vec<String>,
}

impl TypeNames {
    fn number(&mut self, name: &str) -> Result<u16> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        if self.names.len() == MOST_TYPES {
            let what = format!("more than {MOST_TYPES} types of edges");
            return Err(Error::request(what, "name another column for the type, or none"));
        }
        let number = self.names.len() as u16;
        self.numbers.insert(name.to_string(), number);
        self.names.push(name.to_string());
        Ok(number)
    }

    /// The type that all edges of a table have, or that its column says.
    fn of(&mut self, table: &EdgeTable<'_>, column: Option<WordColumn>, ends: &[Ends]) -> Result<TypeOf> {
        let Some(WordColumn { codes, words }) = column else {
            let between = || match &ends[table.source].name[..] {
                "" => "edge".to_string(),
                source => format!("{source}-{}", ends[table.destination].name),
            };
            let name = table.resolved.table.of_type.clone().unwrap_or_else(between);
            return self.number(&name).map(TypeOf::All);
        };
        let input = &table.resolved.source.input;
        if words.iter().any(String::is_empty) {
            let problem = "an edge has no type";
            return Err(input.bad("types", problem, "fill the field in, or leave the edge out"));
        }
        let numbers = words.iter().map(|word| self.number(word)).collect::<Result<_>>()?;
        Ok(TypeOf::Each { codes, numbers })
    }
}

/// Reads the tables, one after the other; the nodes of a type are those that are known when all have been read.
pub(super) fn edges(tables: &[EdgeTable<'_>], ends: &mut [Ends], cx: &Context<'_>) -> Result<Edges> {
    let shape = Shape::of(tables)?;
    let (mut names, mut read, mut columns) = (TypeNames::default(), Vec::new(), Vec::new());
    for table in tables {
        let mut sink = Sink::Spool(Spool::new(cx.scratch));
        let Carried { rows, types, categories } = edges::read(table, ends, &mut sink, &FLAGS, cx)?;
        let types = names.of(table, types, ends)?;
        let ends = match sink {
            Sink::Spool(spool) => spool.finish()?,
            Sink::Sorter(_) => Vec::new().into(),
        };
        read.push(Read { ends, rows, types, source: table.source, destination: table.destination });
        columns.push(categories);
    }
    let categories = edges::categories(&tables[0].resolved.source.input, &shape.categories(), columns)?;
    let starts: Vec<u64> = std::iter::once(0)
        .chain(ends.iter().scan(0, |end, ends| {
            *end += ends.len();
            Some(*end)
        }))
        .collect();
    let nodes = starts[ends.len()];
    let mut relations = Relations::new(nodes, names.names, cx)?;
    let (mut features, mut codes, mut before) = (Spool::new(cx.scratch), Vec::new(), 0);
    for table in &read {
        let [source, destination] = [starts[table.source], starts[table.destination]];
        for chunk in (0..table.rows.rows).step_by(CHUNK) {
            let rows = chunk..table.rows.rows.min(chunk + CHUNK);
            let (pairs, _) = table.ends[2 * rows.start..2 * rows.end].as_chunks::<2>();
            let pairs: Vec<[u64; 2]> = pairs.iter().map(|[s, d]| [s + source, d + destination]).collect();
            let types: Vec<u16> = match &table.types {
                TypeOf::All(number) => vec![*number; pairs.len()],
                TypeOf::Each { codes, numbers } => {
                    codes[rows.clone()].iter().map(|&code| numbers[code as usize]).collect()
                }
            };
            // The reverses of these edges come after them, and carry the same.
            for _ in 0..relations.push_each(&types, &pairs)? {
                shape.rows(&table.rows, rows.clone(), &mut features)?;
                let row = |row: usize| categories.iter().map(move |c| c.codes[row]);
                codes.extend((before + rows.start..before + rows.end).flat_map(row));
            }
        }
        before += table.rows.rows;
    }
    let (sorter, types, edge_names) = relations.finish();
    let mut graph = Imported {
        types: Types { edges: Some(types), edge_names, ..Types::default() },
        notes: shape.notes(),
        ..Imported::new(nodes as usize, sorter)
    };
    if shape.width > 0 {
        graph.edge_features = Some(EdgeFeatures { values: features.finish()?, width: shape.width });
    }
    if !categories.is_empty() {
        graph.edge_categories = Some(Categories::new(codes, categories.len(), &[])?);
    }
    Ok(Edges { graph, words: nodes::words(&categories) })
}
