//! The tables of edges: whom they connect, of which type they are, and what they carry.
//!
//! Ends whose ids are known from tables of nodes are looked up while the lines are parsed, so that an unknown one is
//! told by its line and column. The ids of other types are numbered afterwards, some pieces at a time.

use graphweft_base::{Error, Result};

use super::batch::{Gathered, Ided, Known, Plan, Rows, Use, WordColumn};
use super::ids::{Ids, Keys};
use super::nodes::{CategoryColumn, feature};
use super::schema::{Flags, Resolved, Role};
use crate::build::{EdgeSorter, Spool};
use crate::read::{Context, Input};

/// Edges whose ids are numbered at a time.
const BATCH: usize = 1 << 19;

/// The nodes of a type, as far as edges need them.
pub(super) struct Ends {
    pub(super) name: String,
    /// What has their rows, for messages.
    pub(super) by: String,
    /// Those that tables of nodes have.
    pub(super) known: Option<Known>,
    /// Where there is no such table: those that edges named so far.
    pub(super) found: Ids,
}

impl Ends {
    pub(super) fn len(&self) -> u64 {
        self.known.as_ref().map_or(self.found.len(), Known::len)
    }
}

/// A table of edges, and between which types it leads.
pub(super) struct EdgeTable<'a> {
    pub(super) resolved: &'a Resolved,
    pub(super) source: usize,
    pub(super) destination: usize,
}

/// Where edges go as they are read.
pub(super) enum Sink {
    /// Into the graph: all nodes are of one type, and so are all edges.
    Sorter(Box<EdgeSorter>),
    /// Aside, until all types are known.
    Spool(Spool<u64>),
}

impl Sink {
    fn push(&mut self, edges: &[[u64; 2]]) -> Result<()> {
        match self {
            Self::Sorter(sorter) => sorter.push(edges),
            Self::Spool(spool) => spool.push(edges.as_flattened()),
        }
    }
}

/// What a table said, but for the ends.
pub(super) struct Carried {
    pub(super) rows: Rows,
    /// The type of each edge, where a column has it.
    pub(super) types: Option<WordColumn>,
    pub(super) categories: Vec<WordColumn>,
}

/// Reads a table.
pub(super) fn read(
    table: &EdgeTable<'_>,
    ends: &mut [Ends],
    sink: &mut Sink,
    flags: &Flags,
    cx: &Context<'_>,
) -> Result<Carried> {
    let (resolved, input) = (table.resolved, &table.resolved.source.input);
    let (known, by): (Vec<Option<Known>>, Vec<String>) =
        ends.iter_mut().map(|e| (e.known.take(), e.by.clone())).unzip();
    let mut found: Vec<Ids> = ends.iter_mut().map(|e| std::mem::replace(&mut e.found, Ids::new())).collect();
    let names = resolved.source.names();
    let layout = Layout::of(table, &known)?;
    let plan = Plan { uses: layout.uses(table, &known, &by)?, names: &names, leave_out: flags.skip };
    let mut gathered = Gathered::new(&plan, cx);
    let (mut held, mut rows) = (Vec::new(), 0);
    let result = resolved.source.scan(&plan, cx, |batch| {
        rows += batch.rows;
        held.push(gathered.add(batch, input)?);
        if rows < BATCH {
            return Ok(());
        }
        rows = 0;
        layout.hand_on(std::mem::take(&mut held), table, &mut found, sink)
    });
    result.and_then(|()| layout.hand_on(held, table, &mut found, sink))?;
    ends.iter_mut().zip(known).for_each(|(e, known)| e.known = known);
    ends.iter_mut().zip(found).for_each(|(e, found)| e.found = found);
    let mut rows = gathered.finish()?;
    let mut words = std::mem::take(&mut rows.words).into_iter();
    let types = if resolved.has(Role::Type) { words.next() } else { None };
    Ok(Carried { rows, types, categories: words.collect() })
}

/// Which lists of ids have the ends of a table's edges.
struct Layout {
    source: End,
    destination: End,
    /// The columns of the ends.
    columns: [usize; 2],
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// A list of numbers.
    Known(usize),
    /// A list of ids, one for each row.
    Own(usize),
    /// Ids of both ends, one after the other: the first or the second of each two.
    Shared(usize),
}

impl Layout {
    fn of(table: &EdgeTable<'_>, known: &[Option<Known>]) -> Result<Self> {
        let column = |role| {
            let found = table.resolved.with(role).first().copied();
            let missing = || Error::request("a table of edges has no column for its ends", "name them");
            found.ok_or_else(missing)
        };
        let columns = [column(Role::Source)?, column(Role::Destination)?];
        let (source, destination) = match (&known[table.source], &known[table.destination]) {
            (Some(_), Some(_)) => (End::Known(0), End::Known(1)),
            (Some(_), None) => (End::Known(0), End::Own(0)),
            (None, Some(_)) => (End::Own(0), End::Known(0)),
            // In the order of the columns, as they stand in a row.
            (None, None) if table.source == table.destination => {
                let first = usize::from(columns[0] > columns[1]);
                (End::Shared(first), End::Shared(1 - first))
            }
            (None, None) => (End::Own(0), End::Own(1)),
        };
        Ok(Self { source, destination, columns })
    }

    /// What becomes of the columns: words are the type, then the categories.
    fn uses<'a>(&self, table: &EdgeTable<'_>, known: &'a [Option<Known>], by: &'a [String]) -> Result<Vec<Use<'a>>> {
        let resolved = table.resolved;
        let mut next = usize::from(resolved.has(Role::Type));
        let end = |end: End, of: usize| match (end, &known[of]) {
            (End::Known(list), Some(ids)) => Use::Known { ids, list, by: &by[of] },
            (End::Own(list), _) => Use::Key(list),
            _ => Use::Key(0),
        };
        let of_column = |column: usize| {
            Ok(match resolved.roles[column] {
                _ if column == self.columns[0] => end(self.source, table.source),
                _ if column == self.columns[1] => end(self.destination, table.destination),
                Role::Type => Use::Word(0),
                Role::Category => {
                    next += 1;
                    Use::Word(next - 1)
                }
                Role::Feature => feature(resolved, column)?,
                _ => Use::Skip,
            })
        };
        (0..resolved.roles.len()).map(of_column).collect()
    }

    /// Numbers the ids that are not known, and pushes the edges.
    fn hand_on(&self, mut held: Vec<Ided>, table: &EdgeTable<'_>, found: &mut [Ids], sink: &mut Sink) -> Result<()> {
        let mut own: Vec<Vec<Vec<u64>>> = Vec::new();
        let lists = held.first().map_or(0, |ided| ided.keys.len());
        for list in 0..lists {
            let keys: Vec<Keys> = held.iter_mut().map(|ided| std::mem::take(&mut ided.keys[list])).collect();
            let of_source = self.source == End::Own(list) || matches!(self.source, End::Shared(_));
            let of = if of_source { table.source } else { table.destination };
            own.push(found[of].number(&keys)?);
        }
        let mut edges: Vec<[u64; 2]> = Vec::new();
        for (piece, ided) in held.iter().enumerate() {
            let at = |end: End, row: usize| match end {
                End::Known(list) => ided.known[list][row],
                End::Own(list) => own[list][piece][row],
                End::Shared(place) => own[0][piece][2 * row + place],
            };
            let rows = match self.source {
                End::Known(list) => ided.known[list].len(),
                End::Own(list) => own[list][piece].len(),
                End::Shared(_) => own[0][piece].len() / 2,
            };
            edges.clear();
            edges.extend((0..rows).map(|row| [at(self.source, row), at(self.destination, row)]));
            sink.push(&edges)?;
        }
        Ok(())
    }
}

/// Columns of categories of all edges, from those of each table; one that a table does not have is refused before.
pub(super) fn categories(
    input: &Input,
    names: &[&str],
    mut tables: Vec<Vec<WordColumn>>,
) -> Result<Vec<CategoryColumn>> {
    let join = |(at, name): (usize, &&str)| {
        let mut columns = tables.iter_mut().map(|columns| {
            std::mem::replace(&mut columns[at], WordColumn { codes: Vec::new().into(), words: Vec::new() })
        });
        let Some(mut all) = columns.next() else { return Err(input.bad("file", "there are no edges", "add some")) };
        for other in columns {
            all = joined(all, other);
        }
        CategoryColumn::new(input, name, all)
    };
    names.iter().enumerate().map(join).collect()
}

/// Two columns as one.
pub(super) fn joined(mut all: WordColumn, other: WordColumn) -> WordColumn {
    let mut numbers: std::collections::HashMap<String, u32> = all.words.iter().cloned().zip(0..).collect();
    let mut place = |word: String| {
        let next = numbers.len() as u32;
        let number = *numbers.entry(word.clone()).or_insert(next);
        if number == next {
            all.words.push(word);
        }
        number
    };
    let places: Vec<u32> = other.words.into_iter().map(&mut place).collect();
    let codes = all.codes.iter().copied().chain(other.codes.iter().map(|&code| places[code as usize]));
    WordColumn { codes: codes.collect::<Vec<u32>>().into(), words: all.words }
}
