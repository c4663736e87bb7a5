//! The tables of nodes of one type: their ids, features, categories, labels and parts of a split.

use graphweft_base::{Error, Position, Problem, Result};

use super::batch::{Gathered, MOST_CATEGORIES, Part, Plan, Rows, Use, WordColumn, number};
use super::ids::Ids;
use super::schema::{Flags, Resolved, Role};
use super::source::Holds;
use crate::dataset::{Categories, Features, Labels, Split, Task};
use crate::read::features::{SparseBuilder, from_dense};
use crate::read::labels;
use crate::read::{Context, Input};

/// So few rows may have a class each.
const MOST_SMALL: usize = 64;
/// The name of a split that has none of its own; several are numbered.
pub(in crate::read) const NAME: &str = "given";

/// What tables say of the nodes of a type.
pub(in crate::read) struct Nodes {
    pub(in crate::read) rows: Rows,
    /// Their ids, if they have any.
    pub(in crate::read) ids: Option<Ids>,
    pub(in crate::read) label: Option<WordColumn>,
    /// Columns of categories, with their names.
    pub(in crate::read) categories: Vec<CategoryColumn>,
    pub(in crate::read) labels_are: LabelsAre,
    pub(in crate::read) notes: Vec<String>,
}

/// Which columns hold labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read) enum LabelsAre {
    None,
    One,
    Several,
}

/// Categories as numbers.
pub(in crate::read) struct CategoryColumn {
    pub(in crate::read) name: String,
    pub(in crate::read) codes: Vec<u16>,
    pub(in crate::read) size: u32,
    /// What the numbers stand for; `None` where these are the numbers in the table.
    pub(in crate::read) words: Option<Vec<String>>,
}

/// Labels with the number of classes, and the names of these where they were words.
pub(in crate::read) struct Classes {
    pub(in crate::read) labels: Labels,
    pub(in crate::read) count: usize,
    pub(in crate::read) names: Option<Vec<String>>,
}

impl Classes {
    /// What the user should know of the labels.
    pub(in crate::read) fn about(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Labels::Single(y) = &self.labels {
            let mut nodes = vec![0u64; self.count];
            y.iter().filter_map(|&c| usize::try_from(c).ok()).for_each(|c| nodes[c] += 1);
            let unknown = y.iter().filter(|c| **c < 0).count();
            if unknown > 0 {
                notes.push(format!("{unknown} of {} nodes have no label", y.len()));
            }
            let empty = nodes.iter().filter(|n| **n == 0).count();
            if empty > 0 {
                notes.push(format!(
                    "{empty} of {} classes have no node: classes are taken as numbered from 0",
                    self.count
                ));
            }
        }
        if let Labels::Values(y) = &self.labels {
            let unknown = y.iter().filter(|x| x.is_nan()).count();
            if unknown > 0 {
                notes.push(format!("{unknown} of {} numbers to predict are not known", y.len()));
            }
        }
        if let Some(names) = &self.names {
            let shown: Vec<String> =
                names.iter().take(4).enumerate().map(|(at, name)| format!("{at} = {name}")).collect();
            let more = if names.len() > 4 { ", …" } else { "" };
            notes.push(format!("classes are words, numbered in classes.txt: {}{more}", shown.join(", ")));
        }
        notes
    }
}

/// Reads the tables of a type.
pub(in crate::read) fn read(tables: &[&Resolved], flags: &Flags, cx: &Context<'_>) -> Result<Option<Nodes>> {
    let Some(first) = tables.first() else { return Ok(None) };
    let has_ids = first.has(Role::Id);
    let (mut gathered, mut ids, mut notes) = (None::<Gathered>, Ids::new(), Vec::new());
    for table in tables {
        check_same(first, table)?;
        let names = table.source.names();
        let plan = Plan { uses: uses(table)?, names: &names, leave_out: flags.skip };
        let gathered = match &mut gathered {
            Some(gathered) => gathered,
            none => none.insert(Gathered::new(&plan, cx)),
        };
        let (before, input) = (ids.len(), &table.source.input);
        let mut read = 0;
        table.source.scan(&plan, cx, |batch| {
            let rows = batch.rows as u64;
            let ided = gathered.add(batch, input)?;
            if has_ids {
                let numbers = ids.number(&ided.keys)?.concat();
                check_new(input, &ids, &numbers, before..before + read)?;
            }
            read += rows;
            Ok(())
        })?;
        notes.push(table.describe());
    }
    let Some(gathered) = gathered else { return Ok(None) };
    let mut rows = gathered.finish()?;
    let labels_are = match first.with(Role::Label).len() {
        0 => LabelsAre::None,
        1 => LabelsAre::One,
        _ => LabelsAre::Several,
    };
    let mut words = std::mem::take(&mut rows.words).into_iter();
    let label = if labels_are == LabelsAre::One { words.next() } else { None };
    let names = first.with(Role::Category).into_iter().map(|c| first.name(c));
    let number = |(name, column): (&str, WordColumn)| CategoryColumn::new(&first.source.input, name, column);
    let categories = names.zip(words).map(number).collect::<Result<_>>()?;
    Ok(Some(Nodes { rows, ids: has_ids.then_some(ids), label, categories, labels_are, notes }))
}

/// Tables of the same nodes have the same columns, in whatever places.
fn check_same(first: &Resolved, other: &Resolved) -> Result<()> {
    for role in [Role::Id, Role::Feature, Role::Category, Role::Label, Role::Split] {
        let names =
            |table: &Resolved| table.with(role).into_iter().map(|c| table.name(c).to_string()).collect::<Vec<_>>();
        let (expected, found) = (names(first), names(other));
        if expected != found && (role != Role::Id || expected.is_empty() != found.is_empty()) {
            let shown = |names: &[String]| if names.is_empty() { "none".to_string() } else { names.join(", ") };
            let problem = format!(
                "columns that are {}: {}; {} has {}",
                role.key(),
                shown(&found),
                first.source.input.path().display(),
                shown(&expected)
            );
            return Err(other.source.input.bad("line 1", problem, "tables of the same type need the same columns"));
        }
    }
    Ok(())
}

/// Ids of new rows get the next numbers; another number is that of the row that had the id before. `of_table` are the
/// rows of this table before these.
fn check_new(input: &Input, ids: &Ids, numbers: &[u64], of_table: std::ops::Range<u64>) -> Result<()> {
    let Some(at) = numbers.iter().zip(of_table.end..).position(|(&number, row)| number != row) else { return Ok(()) };
    let (row, other, id) = (of_table.end - of_table.start + at as u64 + 1, numbers[at], ids.text(numbers[at]));
    let problem = match other.checked_sub(of_table.start) {
        Some(other) => format!("rows {} and {row} both have the id {id}", other + 1),
        None => format!("row {row} has the id {id}, which a table before has too"),
    };
    Err(input.bad("ids", Problem::at(Position::Line(row), problem), "each node has one row"))
}

/// What becomes of the columns of a table of nodes: words are the label, then the categories.
fn uses(table: &Resolved) -> Result<Vec<Use<'static>>> {
    let several = table.with(Role::Label).len() > 1;
    let mut next = usize::from(table.with(Role::Label).len() == 1);
    (0..table.roles.len())
        .map(|column| {
            Ok(match table.roles[column] {
                Role::Id => Use::Key(0),
                Role::Label if several => Use::Label,
                Role::Label => Use::Word(0),
                Role::Split => Use::Split,
                Role::Category => {
                    next += 1;
                    Use::Word(next - 1)
                }
                Role::Feature => feature(table, column)?,
                _ => Use::Skip,
            })
        })
        .collect()
}

/// What becomes of a column of features.
pub(super) fn feature(table: &Resolved, column: usize) -> Result<Use<'static>> {
    match table.source.columns[column].holds {
        Holds::List(0) => {
            let problem = "the first row has an empty list";
            Err(table.source.input.bad(table.name(column), problem, "fill it in, or leave the column out"))
        }
        Holds::List(width) => Ok(Use::List(width)),
        _ => Ok(Use::Number),
    }
}

impl CategoryColumn {
    /// Whole numbers from 0 stay as they are where not too many are left out; other words are numbered, integers in
    /// ascending order, others by their bytes.
    pub(super) fn new(input: &Input, name: &str, column: WordColumn) -> Result<Self> {
        const SMALL: u64 = 256;
        let WordColumn { codes, words } = column;
        if words.len() > MOST_CATEGORIES {
            let problem = format!("{} different values: at most {MOST_CATEGORIES} are categories", words.len());
            return Err(input.bad(format!("column {name:?}"), problem, "leave the column out"));
        }
        let integers: Option<Vec<i64>> =
            words.iter().map(|w| w.parse::<i64>().ok().filter(|x| x.to_string() == **w)).collect();
        let place = |of_word: Vec<u16>| codes.iter().map(|&code| of_word[code as usize]).collect();
        if let Some(all) = &integers {
            let most = all.iter().copied().max().unwrap_or(0) as u64;
            let all_small = all.iter().all(|&x| x >= 0) && most < SMALL.max(4 * words.len() as u64);
            if all_small && most < MOST_CATEGORIES as u64 {
                let codes = place(all.iter().map(|&x| x as u16).collect());
                return Ok(Self { name: name.into(), codes, size: most as u32 + 1, words: None });
            }
        }
        let mut order: Vec<usize> = (0..words.len()).collect();
        match &integers {
            Some(all) => order.sort_unstable_by_key(|&at| all[at]),
            None => order.sort_unstable_by_key(|&at| &words[at]),
        }
        let mut of_word = vec![0u16; words.len()];
        order.iter().enumerate().for_each(|(number, &at)| of_word[at] = number as u16);
        let codes = place(of_word);
        let sorted = order.iter().map(|&at| words[at].clone()).collect();
        Ok(Self { name: name.into(), codes, size: words.len() as u32, words: Some(sorted) })
    }
}

impl Nodes {
    /// Features of the nodes of all types.
    pub(in crate::read) fn features(&mut self, input: &Input, cx: &Context<'_>) -> Result<Option<Features>> {
        if self.rows.width == 0 {
            return Ok(None);
        }
        let values = std::mem::replace(&mut self.rows.features, Vec::new().into());
        from_dense(input, "features", values, self.rows.rows, self.rows.width, cx).map(Some)
    }

    /// Columns of categories, where all nodes have them.
    pub(in crate::read) fn categories(&self) -> Result<Option<Categories>> {
        if self.categories.is_empty() {
            return Ok(None);
        }
        let (width, sizes) = (self.categories.len(), self.categories.iter().map(|c| c.size).collect::<Vec<_>>());
        let row = |row: usize| self.categories.iter().map(move |c| c.codes[row]);
        let values = (0..self.rows.rows).flat_map(row).collect::<Vec<u16>>();
        Categories::new(values, width, &sizes).map(Some)
    }

    /// Features of one type among others: each category is a column of its own, with ones in it, which is what models
    /// make of categories.
    pub(in crate::read) fn features_of_type(&mut self, input: &Input, cx: &Context<'_>) -> Result<Option<Features>> {
        if self.categories.is_empty() {
            return self.features(input, cx);
        }
        let width = self.rows.width;
        let total = width + self.categories.iter().map(|c| c.size as usize).sum::<usize>();
        let mut sparse = SparseBuilder::new(total, cx);
        for row in 0..self.rows.rows {
            let dense = self.rows.features[row * width..(row + 1) * width].iter().zip(0..).map(|(x, at)| (at, *x));
            let mut start = width as u32;
            let ones = self.categories.iter().map(|c| {
                let at = start + u32::from(c.codes[row]);
                start += c.size;
                (at, 1.0)
            });
            sparse.row(dense.chain(ones))?;
        }
        Ok(Some(Features::Sparse(sparse.finish()?)))
    }

    /// What the words of categories are numbered as.
    pub(in crate::read) fn words(&self) -> toml::Table {
        words(&self.categories)
    }

    /// The labels.
    pub(in crate::read) fn classes(&mut self, input: &Input, task: Task) -> Result<Option<Classes>> {
        match self.labels_are {
            LabelsAre::None => Ok(None),
            LabelsAre::One => {
                let empty = WordColumn { codes: Vec::new().into(), words: Vec::new() };
                classes(input, task, self.label.take().unwrap_or(empty)).map(Some)
            }
            LabelsAre::Several => {
                let labels = std::mem::take(&mut self.rows.labels);
                several(input, task, &labels, self.rows.rows).map(Some)
            }
        }
    }
}

/// What the words of categories are numbered as, by the names of their columns.
pub(super) fn words(categories: &[CategoryColumn]) -> toml::Table {
    let list = |words: &Vec<String>| toml::Value::Array(words.iter().cloned().map(toml::Value::String).collect());
    categories.iter().filter_map(|c| Some((c.name.clone(), list(c.words.as_ref()?)))).collect()
}

/// Labels in several columns.
pub(in crate::read) fn several(input: &Input, task: Task, labels: &[f32], rows: usize) -> Result<Classes> {
    let shape = [rows, labels.len() / rows.max(1)];
    let (labels, count) = labels::from_numbers(task, input, "label", &shape, rows, |at| labels[at].into())?;
    Ok(Classes { labels, count, names: None })
}

/// Labels from the column that holds them: numbers are classes, or what to predict; words are numbered in alphabetical
/// order.
pub(in crate::read) fn classes(input: &Input, task: Task, column: WordColumn) -> Result<Classes> {
    let WordColumn { codes: of, words } = column;
    let rows = of.len();
    let unknown = |word: &str| word.is_empty();
    let numbers: Option<Vec<f64>> =
        words.iter().map(|w| if unknown(w) { Some(f64::NAN) } else { number(w.as_bytes()) }).collect();
    if let Some(numbers) = numbers {
        let at = |row: usize| numbers[of[row] as usize];
        let (labels, count) = labels::from_numbers(task, input, "label", &[rows], rows, at)?;
        return Ok(Classes { labels, count, names: None });
    }
    if task == Task::NodeRegression {
        let no_number = |w: &u32| !unknown(&words[*w as usize]) && number(words[*w as usize].as_bytes()).is_none();
        let at = of.iter().position(no_number).unwrap_or(0);
        let problem = format!("{:?} of node {at} is not a number", words[of[at] as usize]);
        return Err(input.bad("label", problem, "leave a field empty where the number is not known"));
    }
    let mut names: Vec<&String> = words.iter().filter(|w| !unknown(w)).collect();
    names.sort_unstable();
    const MOST: usize = 1 << 16;
    if names.len() > MOST || names.len() * 2 > rows.max(MOST_SMALL) {
        let problem = format!("{} different labels in {rows} rows", names.len());
        return Err(input.bad("label", problem, "say which column holds the class: --label-columns, or NAME=label"));
    }
    let number: Vec<i64> = words.iter().map(|w| names.binary_search(&w).map_or(-1, |at| at as i64)).collect();
    let labels = Labels::Single(of.iter().map(|&w| number[w as usize]).collect::<Vec<_>>().into());
    Ok(Classes { labels, count: names.len(), names: Some(names.into_iter().cloned().collect()) })
}

/// The split that a column says, of nodes from `start` on among `nodes`.
pub(in crate::read) fn split(input: &Input, parts: &[Part], start: u64, nodes: usize) -> Result<Split> {
    let of = |part: Part| -> Vec<i64> {
        (start as i64..).zip(parts).filter(|(_, p)| **p == part).map(|(row, _)| row).collect()
    };
    let (train, valid, test) = (of(Part::Train), of(Part::Valid), of(Part::Test));
    let split = Split { name: NAME.into(), train: train.into(), valid: valid.into(), test: test.into() };
    crate::read::splits::learnable(split, nodes, |_, problem| -> Error {
        input.bad("split", problem, "the column says train, valid or test; train and valid are needed")
    })
}
