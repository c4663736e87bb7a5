//! Rows of a table, by what their columns are for.

use std::collections::HashMap;

use graphweft_base::Result;

use super::ids::{Ids, Keys, LONGEST};
use crate::buf::Buf;
use crate::build::Spool;
use crate::read::text::{Wrong, show};
use crate::read::{Context, Input};

/// More different values than this are no categories.
pub(super) const MOST_CATEGORIES: usize = 1 << 16;

/// The part of a split that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read) enum Part {
    Train,
    Valid,
    Test,
    Nowhere,
}

/// A value of a table, as a format gives it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field<'a> {
    Text(&'a [u8]),
    Integer(i64),
    Unsigned(u64),
    Number(f64),
    Truth(bool),
    List(&'a [f64]),
    Missing,
}

impl Field<'_> {
    /// Whether it may be an id. Programs make floats of integers where one is missing: whole ones are.
    fn is_whole(self) -> bool {
        const WHOLE: f64 = (1u64 << 53) as f64;
        !matches!(self, Self::Number(x) if x.fract() != 0.0 || x.abs() >= WHOLE)
    }

    /// As text; `None` for a list.
    fn with_text<T>(self, then: impl FnOnce(&[u8]) -> T) -> Option<T> {
        Some(match self {
            Self::Text(text) => then(text),
            Self::Integer(x) => then(x.to_string().as_bytes()),
            Self::Unsigned(x) => then(x.to_string().as_bytes()),
            Self::Number(x) if x.is_nan() => then(b""),
            Self::Number(x) => then(x.to_string().as_bytes()),
            Self::Truth(x) => then(if x { b"true" } else { b"false" }),
            Self::Missing => then(b""),
            Self::List(_) => return None,
        })
    }

    fn number(self) -> Option<f64> {
        match self {
            Self::Text(text) => number(text),
            Self::Integer(x) => Some(x as f64),
            Self::Unsigned(x) => Some(x as f64),
            Self::Number(x) => Some(x),
            Self::Truth(x) => Some(x.into()),
            Self::List(&[x]) => Some(x),
            Self::List(_) | Self::Missing => None,
        }
    }

    /// For a message.
    pub(super) fn show(self) -> String {
        match self {
            Self::Text(text) => show(text),
            Self::Integer(x) => x.to_string(),
            Self::Unsigned(x) => x.to_string(),
            Self::Number(x) => x.to_string(),
            Self::Truth(x) => x.to_string(),
            Self::List(all) => format!("a list of {} numbers", all.len()),
            Self::Missing => "a missing value".into(),
        }
    }
}

/// A number, or a truth value as 0 or 1.
pub(in crate::read) fn number(field: &[u8]) -> Option<f64> {
    match std::str::from_utf8(field).ok()?.trim().parse() {
        Ok(x) => Some(x),
        Err(_) if field.eq_ignore_ascii_case(b"true") => Some(1.0),
        Err(_) if field.eq_ignore_ascii_case(b"false") => Some(0.0),
        Err(_) => None,
    }
}

/// Numbers between blanks, commas, semicolons or bars, with or without brackets around them.
pub(super) fn numbers(text: &[u8]) -> Option<Vec<f64>> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let separates = |c: char| c.is_ascii_whitespace() || matches!(c, ',' | ';' | '|');
    inside.split(separates).filter(|word| !word.is_empty()).map(|word| word.parse().ok()).collect()
}

fn part(field: &[u8]) -> Option<Part> {
    match field.to_ascii_lowercase().as_slice() {
        b"train" | b"training" => Some(Part::Train),
        b"valid" | b"val" | b"validation" | b"dev" => Some(Part::Valid),
        b"test" => Some(Part::Test),
        b"" | b"none" | b"-" | b"nan" | b"unlabelled" | b"unlabeled" => Some(Part::Nowhere),
        _ => None,
    }
}

/// What ids are known before a table is read.
pub(in crate::read) enum Known {
    /// Numbers of rows.
    Rows(u64),
    /// Ids of rows.
    Ids(Ids),
}

impl Known {
    pub(in crate::read) fn len(&self) -> u64 {
        match self {
            Self::Rows(n) => *n,
            Self::Ids(ids) => ids.len(),
        }
    }

    fn find(&self, id: &[u8]) -> Option<u64> {
        match self {
            Self::Rows(n) => std::str::from_utf8(id).ok()?.parse().ok().filter(|row| row < n),
            Self::Ids(ids) => ids.find(id),
        }
    }
}

/// What becomes of a column.
pub(super) enum Use<'a> {
    Skip,
    /// Ids that are still to be numbered, by the place of their list.
    Key(usize),
    /// Ids that are known, by the place of the list of their numbers; who has them, for messages.
    Known {
        ids: &'a Known,
        list: usize,
        by: &'a str,
    },
    Number,
    /// As many numbers.
    List(usize),
    /// Words by the place of their column.
    Word(usize),
    Label,
    Split,
}

/// What becomes of every column of a table.
pub(super) struct Plan<'a> {
    pub(super) uses: Vec<Use<'a>>,
    /// Empty where columns have no names.
    pub(super) names: &'a [String],
    /// How a user says that a column is to be left out.
    pub(super) leave_out: &'a str,
}

impl Plan<'_> {
    fn count(&self, counted: impl Fn(&Use<'_>) -> bool) -> usize {
        self.uses.iter().filter(|u| counted(u)).count()
    }

    /// Columns of features.
    pub(super) fn width(&self) -> usize {
        let width = |u: &Use<'_>| match u {
            Use::Number => 1,
            Use::List(width) => *width,
            _ => 0,
        };
        self.uses.iter().map(width).sum()
    }

    fn lists(&self, of: impl Fn(&Use<'_>) -> Option<usize>) -> usize {
        self.uses.iter().filter_map(of).max().map_or(0, |most| most + 1)
    }

    pub(super) fn words(&self) -> usize {
        self.count(|u| matches!(u, Use::Word(_)))
    }

    pub(super) fn batch(&self) -> Batch {
        let keys = self.lists(|u| if let Use::Key(at) = u { Some(*at) } else { None });
        let known = self.lists(|u| if let Use::Known { list, .. } = u { Some(*list) } else { None });
        Batch {
            keys: (0..keys).map(|_| Keys::default()).collect(),
            known: vec![Vec::new(); known],
            words: (0..self.words()).map(|_| Words::default()).collect(),
            ..Batch::default()
        }
    }

    /// Adds a row; the fields are as many as there are uses.
    pub(super) fn row<'f>(
        &self,
        fields: impl Iterator<Item = Field<'f>>,
        batch: &mut Batch,
    ) -> std::result::Result<(), Wrong> {
        for (column, (field, how)) in fields.zip(&self.uses).enumerate() {
            match how {
                Use::Skip => {}
                Use::Number => {
                    let value = field.number().map(|x| x as f32).filter(|x| x.is_finite());
                    batch.features.push(value.ok_or_else(|| self.no_number(column, field))?);
                }
                Use::List(width) => self.list(column, field, *width, batch)?,
                Use::Key(at) => {
                    let keys = &mut batch.keys[*at];
                    self.id(column, field, |id| keys.push(id))?;
                }
                Use::Known { ids, list, by } => {
                    let found = self.id(column, field, |id| ids.find(id))?;
                    batch.known[*list].push(found.ok_or_else(|| self.unknown(column, field, ids, by))?);
                }
                Use::Word(at) => {
                    let words = &mut batch.words[*at];
                    let done = field.with_text(|word| (word.len() <= LONGEST).then(|| words.push(word))).flatten();
                    done.ok_or_else(|| {
                        let problem = format!("{} is no category", field.show());
                        self.wrong(
                            column,
                            &problem,
                            &format!("categories are words or whole numbers; {}", self.leave()),
                        )
                    })?;
                }
                Use::Label => {
                    let empty = matches!(field, Field::Missing | Field::Text(b""));
                    let known = if empty { Some(f64::NAN) } else { field.number() };
                    batch.labels.push(known.ok_or_else(|| {
                        let remedy = "several labels are 0 or 1 each, or nothing where one is not known";
                        self.wrong(column, &format!("{} is no number", field.show()), remedy)
                    })? as f32);
                }
                Use::Split => {
                    let found = field.with_text(part).flatten();
                    batch.parts.push(found.ok_or_else(|| {
                        let remedy = "write train, valid, test, or nothing for a node that is in none of them";
                        self.wrong(column, &format!("{} is no part of a split", field.show()), remedy)
                    })?);
                }
            }
        }
        batch.rows += 1;
        Ok(())
    }

    fn id<T>(&self, column: usize, field: Field<'_>, then: impl FnOnce(&[u8]) -> T) -> std::result::Result<T, Wrong> {
        let fits = |id: &[u8]| !id.is_empty() && id.len() <= LONGEST && !id.contains(&b'\n');
        let whole = Some(field).filter(|field| field.is_whole());
        let found = whole.and_then(|field| field.with_text(|id| fits(id).then(|| then(id))).flatten());
        found.ok_or_else(|| {
            let remedy = format!("an id is a whole number or a text of 1 to {LONGEST} bytes in one line");
            self.wrong(column, &format!("{} is no node id", field.show()), &remedy)
        })
    }

    fn unknown(&self, column: usize, field: Field<'_>, ids: &Known, by: &str) -> Wrong {
        let shown = field.with_text(|id| String::from_utf8_lossy(id).into_owned()).unwrap_or_default();
        match ids {
            Known::Ids(_) => {
                let remedy = format!("add a row for it to {by}, or leave it out here");
                self.wrong(column, &format!("there is no node {shown} in {by}"), &remedy)
            }
            Known::Rows(n) => {
                let problem = format!("{shown} is none of the {n} nodes of {by}, which are numbered from 0");
                self.wrong(column, &problem, "correct the id; or give the table of nodes a column of ids")
            }
        }
    }

    fn list(&self, column: usize, field: Field<'_>, width: usize, batch: &mut Batch) -> std::result::Result<(), Wrong> {
        let parsed;
        let all = match field {
            Field::List(all) => all,
            Field::Text(text) => {
                parsed = numbers(text).ok_or_else(|| self.no_number(column, field))?;
                &parsed
            }
            other => return Err(self.no_number(column, other)),
        };
        if all.len() != width {
            let problem = format!("a list of {} numbers, the first row has {width}", all.len());
            return Err(self.wrong(column, &problem, "lists need the same length in all rows"));
        }
        if let Some(x) = all.iter().find(|x| !(**x as f32).is_finite()) {
            return Err(self.no_number(column, Field::Number(*x)));
        }
        batch.features.extend(all.iter().map(|x| *x as f32));
        Ok(())
    }

    fn leave(&self) -> String {
        format!("or leave the column out ({})", self.leave_out)
    }

    fn no_number(&self, column: usize, field: Field<'_>) -> Wrong {
        let remedy = format!("features are finite numbers: fill the field in, {}", self.leave());
        self.wrong(column, &format!("{} is no number", field.show()), &remedy)
    }

    fn wrong(&self, column: usize, problem: &str, remedy: &str) -> Wrong {
        let named = self.names.get(column).filter(|name| !name.is_empty());
        let name = named.map_or(String::new(), |name| format!("{name:?}: "));
        Wrong::new(column + 1, name + problem, remedy)
    }
}

/// Different words of a column in a piece, and which of them each row has.
#[derive(Default)]
pub(super) struct Words {
    numbers: HashMap<Vec<u8>, u32>,
    codes: Vec<u32>,
}

impl Words {
    fn push(&mut self, word: &[u8]) {
        let next = self.numbers.len() as u32;
        let code = match self.numbers.get(word) {
            Some(code) => *code,
            None => *self.numbers.entry(word.to_vec()).or_insert(next),
        };
        self.codes.push(code);
    }
}

/// Rows read from a piece of a table.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) rows: usize,
    pub(super) keys: Vec<Keys>,
    pub(super) known: Vec<Vec<u64>>,
    features: Vec<f32>,
    words: Vec<Words>,
    labels: Vec<f32>,
    parts: Vec<Part>,
}

/// A column of words.
pub(in crate::read) struct WordColumn {
    /// What each row has, as a place in `words`.
    pub(in crate::read) codes: Buf<u32>,
    /// Different words, in the order of their first rows.
    pub(in crate::read) words: Vec<String>,
}

/// The rows of one or more tables, but for their ids.
pub(super) struct Gathered {
    pub(super) rows: usize,
    features: Spool<f32>,
    width: usize,
    numbers: Vec<HashMap<Vec<u8>, u32>>,
    codes: Vec<Spool<u32>>,
    labels: Vec<f32>,
    parts: Vec<Part>,
}

/// The same, complete.
pub(in crate::read) struct Rows {
    pub(in crate::read) rows: usize,
    /// Row by row.
    pub(in crate::read) features: Buf<f32>,
    pub(in crate::read) width: usize,
    pub(in crate::read) words: Vec<WordColumn>,
    /// Row by row, NaN where nothing stands, where several columns hold labels.
    pub(in crate::read) labels: Vec<f32>,
    /// Empty unless a column holds them.
    pub(in crate::read) parts: Vec<Part>,
}

impl Gathered {
    pub(super) fn new(plan: &Plan<'_>, cx: &Context<'_>) -> Self {
        let words = plan.words();
        Self {
            rows: 0,
            features: Spool::new(cx.scratch),
            width: plan.width(),
            numbers: vec![HashMap::new(); words],
            codes: (0..words).map(|_| Spool::new(cx.scratch)).collect(),
            labels: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Adds rows; gives back what has their ids.
    pub(super) fn add(&mut self, mut batch: Batch, input: &Input) -> Result<Ided> {
        self.rows += batch.rows;
        self.features.push(&batch.features)?;
        self.labels.append(&mut batch.labels);
        self.parts.append(&mut batch.parts);
        for ((words, numbers), codes) in batch.words.into_iter().zip(&mut self.numbers).zip(&mut self.codes) {
            let mut of_piece: Vec<(Vec<u8>, u32)> = words.numbers.into_iter().collect();
            // The order of a hash map is none.
            of_piece.sort_unstable_by_key(|(_, code)| *code);
            let place = |(word, _): (Vec<u8>, u32)| {
                let next = numbers.len() as u32;
                *numbers.entry(word).or_insert(next)
            };
            let places: Vec<u32> = of_piece.into_iter().map(place).collect();
            codes.push(&words.codes.iter().map(|&code| places[code as usize]).collect::<Vec<_>>())?;
        }
        if self.rows as u64 >= 1 << 40 {
            return Err(input.bad("file", "more rows than any table has", "check the file"));
        }
        Ok(Ided { keys: batch.keys, known: batch.known })
    }

    pub(super) fn finish(self) -> Result<Rows> {
        let column = |(numbers, codes): (HashMap<Vec<u8>, u32>, Spool<u32>)| -> Result<WordColumn> {
            let mut words = vec![String::new(); numbers.len()];
            numbers.into_iter().for_each(|(word, at)| words[at as usize] = String::from_utf8_lossy(&word).into_owned());
            Ok(WordColumn { codes: codes.finish()?, words })
        };
        Ok(Rows {
            rows: self.rows,
            features: self.features.finish()?,
            width: self.width,
            words: self.numbers.into_iter().zip(self.codes).map(column).collect::<Result<_>>()?,
            labels: self.labels,
            parts: self.parts,
        })
    }
}

/// The ids of some rows.
pub(super) struct Ided {
    /// Those to number, list by list.
    pub(super) keys: Vec<Keys>,
    /// Those that were known, as numbers.
    pub(super) known: Vec<Vec<u64>>,
}
