//! Tables as spreadsheets and pandas write them: a header that names the columns, quotes where they are needed.
//!
//! What a column holds is its [`Role`]. Lines are parsed in parallel; features go to a spool, so that their size is
//! bounded by the disk, while ids, classes and splits, a few bytes a row, stay in memory.

use std::collections::BTreeMap;

use graphweft_base::Result;

use super::super::text::{Integer, Text, Wrong, show};
use super::super::{Context, Input};
use crate::buf::Buf;
use crate::build::Spool;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Id,
    Feature,
    Label,
    Split,
    Skip,
}

/// The part of a split that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Train,
    Valid,
    Test,
    Nowhere,
}

/// The first line of a table.
pub(super) struct Header {
    /// Names of the columns; `None` where the first line is one of numbers.
    pub(super) names: Option<Vec<String>>,
    pub(super) columns: usize,
    separator: Separator,
    /// Lines before the first row.
    lines: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    Byte(u8),
    Blanks,
    /// A single column: the whole line is the field.
    Nothing,
}

/// The columns of a table, by role.
pub(super) struct Table {
    pub(super) rows: usize,
    /// Empty unless a column holds ids.
    pub(super) ids: Vec<Integer>,
    /// Row by row.
    pub(super) features: Buf<f32>,
    pub(super) width: usize,
    /// The class of each row as a place in `words`, where one column holds labels.
    pub(super) classes: Vec<u32>,
    /// Different labels, in the order of their first rows.
    pub(super) words: Vec<String>,
    /// Row by row, NaN where nothing stands, where several columns hold labels.
    pub(super) labels: Vec<f32>,
    /// Empty unless a column holds them.
    pub(super) parts: Vec<Part>,
}

impl Header {
    /// Looks at the first line that is neither empty nor a comment.
    pub(super) fn read(input: &Input, cx: &Context<'_>) -> Result<Self> {
        let mut text = Text::open(input, cx)?;
        while let Some(line) = text.line()? {
            let line = without_end(without_mark(&line, text.lines()));
            if line.trim_ascii().is_empty() || line.starts_with(b"#") {
                continue;
            }
            let separator = [b',', b';', b'\t'].into_iter().find(|b| line.contains(b)).map(Separator::Byte);
            let separator = match separator {
                Some(found) => found,
                None if line.contains(&b' ') => Separator::Blanks,
                None => Separator::Nothing,
            };
            let fields = fields(line, separator).map_err(|wrong| text.bad_line(&wrong))?;
            let named = fields.iter().any(|f| number(f).is_none());
            let names = fields.iter().map(|f| std::str::from_utf8(f).map(|name| name.trim().to_string()));
            let names = names.collect::<std::result::Result<Vec<_>, _>>().map_err(|_| {
                text.bad_line(&Wrong::new(0, "the names of the columns are not UTF-8", "save the file as UTF-8"))
            })?;
            let names = named.then_some(names);
            let lines = text.lines() - u64::from(!named);
            return Ok(Self { names, columns: fields.len(), separator, lines });
        }
        Err(input.bad("file", "there is no line in it", "a table has a header and a line for each row"))
    }
}

/// Without the byte order mark that some programs begin a file with.
fn without_mark(line: &[u8], number: u64) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").filter(|_| number == 1).unwrap_or(line)
}

/// Without what Windows ends a line with. Blanks stay: a last tab may stand before an empty field.
fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl Table {
    /// Reads all rows; `roles` has one for each column.
    pub(super) fn read(input: &Input, header: &Header, roles: &[Role], cx: &Context<'_>) -> Result<Self> {
        let count = |role| roles.iter().filter(|&&r| r == role).count();
        let shape =
            Shape { roles, names: header.names.as_deref(), separator: header.separator, labels: count(Role::Label) };
        let mut text = Text::open(input, cx)?;
        while text.lines() < header.lines {
            text.line()?;
        }
        let mut all = Piece::default();
        let mut features = Spool::new(cx.scratch);
        let mut seen: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        text.pieces(
            |piece| shape.parse(piece),
            |mut piece| {
                features.push(&piece.features)?;
                all.rows += piece.rows;
                all.ids.append(&mut piece.ids);
                all.labels.append(&mut piece.labels);
                all.parts.append(&mut piece.parts);
                let places: Vec<u32> = piece.words.into_iter().map(|word| place(&mut seen, word)).collect();
                all.classes.extend(piece.classes.iter().map(|&c| places[c as usize]));
                Ok(())
            },
        )?;
        if all.rows == 0 {
            return Err(input.bad("file", "there is no row in it", "a table has a header and a line for each row"));
        }
        let mut words = vec![String::new(); seen.len()];
        seen.into_iter().for_each(|(word, at)| words[at as usize] = String::from_utf8_lossy(&word).into_owned());
        Ok(Self {
            rows: all.rows,
            ids: all.ids,
            features: features.finish()?,
            width: count(Role::Feature),
            classes: all.classes,
            words,
            labels: all.labels,
            parts: all.parts,
        })
    }
}

fn place(seen: &mut BTreeMap<Vec<u8>, u32>, word: Vec<u8>) -> u32 {
    let next = seen.len() as u32;
    *seen.entry(word).or_insert(next)
}

/// Rows parsed from a piece of text.
#[derive(Default)]
struct Piece {
    rows: usize,
    ids: Vec<Integer>,
    features: Vec<f32>,
    classes: Vec<u32>,
    words: Vec<Vec<u8>>,
    labels: Vec<f32>,
    parts: Vec<Part>,
}

/// What is known of every line.
struct Shape<'a> {
    roles: &'a [Role],
    names: Option<&'a [String]>,
    separator: Separator,
    /// Columns that hold labels.
    labels: usize,
}

impl Shape<'_> {
    fn parse(&self, text: &[u8]) -> std::result::Result<Piece, (u64, Wrong)> {
        let mut piece = Piece::default();
        let mut seen = BTreeMap::new();
        for (number, line) in text.split(|&b| b == b'\n').enumerate() {
            // A file without a header may still begin with a mark.
            let line = without_end(without_mark(line, number as u64 + 1));
            if line.trim_ascii().is_empty() {
                continue;
            }
            self.row(line, &mut piece, &mut seen).map_err(|wrong| (number as u64, wrong))?;
        }
        piece.words = vec![Vec::new(); seen.len()];
        seen.into_iter().for_each(|(word, at)| piece.words[at as usize] = word);
        Ok(piece)
    }

    fn row(&self, line: &[u8], piece: &mut Piece, seen: &mut BTreeMap<Vec<u8>, u32>) -> std::result::Result<(), Wrong> {
        let fields = fields(line, self.separator)?;
        if fields.len() != self.roles.len() {
            let problem = format!("{} columns, the first line has {}", fields.len(), self.roles.len());
            return Err(Wrong::new(0, problem, "all lines need the same number of columns"));
        }
        for (column, (field, role)) in fields.iter().zip(self.roles).enumerate() {
            let field = field.trim_ascii();
            match role {
                Role::Skip => {}
                Role::Id => piece.ids.push(integer(field).ok_or_else(|| {
                    let remedy = "ids are integers of 64 bits: number the nodes, in the edges too";
                    self.wrong(column, &format!("{} is no node id", show(field)), remedy)
                })?),
                Role::Feature => {
                    let value = number(field).map(|x| x as f32).filter(|x| x.is_finite());
                    piece.features.push(value.ok_or_else(|| {
                        let remedy = "features are finite numbers: fill the field in, or leave the column out \
                                      (--skip-columns)";
                        self.wrong(column, &format!("{} is no number", show(field)), remedy)
                    })?);
                }
                Role::Label if self.labels == 1 => piece.classes.push(place(seen, field.to_vec())),
                Role::Label => {
                    let known = if field.is_empty() { Some(f64::NAN) } else { number(field) };
                    piece.labels.push(known.ok_or_else(|| {
                        let remedy = "several labels are 0 or 1 each, or nothing where one is not known";
                        self.wrong(column, &format!("{} is no number", show(field)), remedy)
                    })? as f32);
                }
                Role::Split => piece.parts.push(part(field).ok_or_else(|| {
                    let remedy = "write train, valid, test, or nothing for a node that is in none of them";
                    self.wrong(column, &format!("{} is no part of a split", show(field)), remedy)
                })?),
            }
        }
        piece.rows += 1;
        Ok(())
    }

    fn wrong(&self, column: usize, problem: &str, remedy: &str) -> Wrong {
        let named = self.names.and_then(|names| names.get(column)).filter(|name| !name.is_empty());
        let name = named.map_or(String::new(), |name| format!("{name:?}: "));
        Wrong::new(column + 1, name + problem, remedy)
    }
}

/// The fields of a line, without quotes.
fn fields(line: &[u8], separator: Separator) -> std::result::Result<Vec<Vec<u8>>, Wrong> {
    let Separator::Byte(separator) = separator else {
        let line = line.trim_ascii();
        let fields = match separator {
            Separator::Nothing => vec![line],
            _ => line.split(|b| matches!(b, b' ' | b'\t')).filter(|f| !f.is_empty()).collect(),
        };
        return fields.into_iter().enumerate().map(|(at, field)| unquoted(field, at)).collect();
    };
    let (mut all, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, &b) in line.iter().enumerate() {
        if b == b'"' {
            quoted = !quoted;
        } else if b == separator && !quoted {
            all.push(unquoted(&line[start..at], all.len())?);
            start = at + 1;
        }
    }
    all.push(unquoted(&line[start..], all.len())?);
    Ok(all)
}

/// A field without the quotes around it; two inside stand for one.
fn unquoted(field: &[u8], column: usize) -> std::result::Result<Vec<u8>, Wrong> {
    let field = field.trim_ascii();
    let Some(rest) = field.strip_prefix(b"\"") else { return Ok(field.to_vec()) };
    let Some(inside) = rest.strip_suffix(b"\"") else {
        let problem = format!("the quote in {} is not closed", show(field));
        return Err(Wrong::new(column + 1, problem, "a quoted field ends in the line that it begins in"));
    };
    let mut out = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter().peekable();
    while let Some(&b) = bytes.next() {
        out.push(b);
        if b == b'"' {
            bytes.next_if(|&&next| next == b'"');
        }
    }
    Ok(out)
}

/// A number, or a truth value as 0 or 1.
pub(super) fn number(field: &[u8]) -> Option<f64> {
    match field.to_ascii_lowercase().as_slice() {
        b"true" => Some(1.0),
        b"false" => Some(0.0),
        _ => std::str::from_utf8(field).ok()?.trim().parse().ok(),
    }
}

fn integer(field: &[u8]) -> Option<Integer> {
    let text = std::str::from_utf8(field).ok()?;
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let magnitude = all_digits.then(|| digits.parse().ok()).flatten()?;
    Some(Integer { negative: negative && magnitude > 0, magnitude })
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
