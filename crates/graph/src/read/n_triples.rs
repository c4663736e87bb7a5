//! N-Triples, plain or gzip: every subject and object is a node, literals among them, every predicate a relation.
//!
//! Nodes are numbered in the order in which they first appear, relations too; what they are called is kept, that of
//! nodes as `nodes.txt`. A triple that is listed twice is two edges. An edge leads from subject to object; the graph
//! has one direction unless it is to be symmetrised.
//!
//! Where the labels are in tables of their own, as for AIFB, MUTAG, BGS and AM ([`Sets`]), each has a header line, and
//! fields separated by tabs: the column whose name begins with `label`, and the first other one that is not `id`, which
//! names the node. Classes are numbered in the order of their names. Of the nodes to train on, every fifth is for
//! validation, as R-GCN holds a fifth back to choose by.

use std::collections::{BTreeSet, HashMap};

use graphweft_base::Result;

use super::relations::Relations;
use super::text::{Text, Wrong, show};
use super::{Context, Imported, Input};
use crate::build::Spool;
use crate::dataset::{Labels, Split, Types};

/// As many as a type in two bytes can name.
const MOST_RELATIONS: usize = 1 << 16;
/// Every so many nodes to train on, one is for validation.
const HELD_BACK: usize = 5;
/// The split's name.
const NAME: &str = "official";

/// Tables of labelled nodes.
#[derive(Clone, Debug)]
pub struct Sets {
    /// To learn from.
    pub train: Input,
    /// To report on.
    pub test: Input,
}

/// Reads triples, and labels where there are some.
///
/// # Errors
/// [`Error::BadInput`](graphweft_base::Error::BadInput) naming the line and the term.
pub fn read(input: &Input, sets: Option<&Sets>, cx: &Context<'_>) -> Result<Imported> {
    let mut text = Text::open(input, cx)?;
    let (mut nodes, mut relations) = (Numbers::default(), Numbers::default());
    let mut triples: Spool<u32> = Spool::new(cx.scratch);
    while let Some(line) = text.line()? {
        let Some(triple) = triple(&line).map_err(|wrong| text.bad_line(&wrong))? else { continue };
        let too_many = |what: &str| Wrong::new(0, format!("more {what} than are supported"), "divide the file");
        let numbers = [nodes.of(triple.subject), relations.of(triple.predicate), nodes.of(triple.object)];
        let [Some(subject), Some(predicate), Some(object)] = numbers else {
            return Err(text.bad_line(&too_many("nodes")));
        };
        if predicate as usize >= MOST_RELATIONS {
            return Err(text.bad_line(&too_many("relations")));
        }
        triples.push(&[subject, predicate, object])?;
    }
    if nodes.names.is_empty() {
        return Err(input.bad("triples", "there are none", "check that the file is complete"));
    }
    let triples = triples.finish()?;
    let names: Vec<String> = relations.names.iter().map(|name| trimmed(name)).collect();
    let mut edges = Relations::new(nodes.names.len() as u64, names, cx)?;
    for triple in triples.chunks_exact(3) {
        edges.push(triple[1] as u16, &[[triple[0].into(), triple[2].into()]])?;
    }
    let labelled = sets.map(|sets| labels(sets, &nodes, cx)).transpose()?;
    let (edges, types, edge_names) = edges.finish();
    let mut imported = Imported {
        types: Types { edges: Some(types), edge_names, ..Types::default() },
        node_names: Some(nodes.names.iter().flat_map(|name| name.iter().copied().chain([b'\n'])).collect()),
        ..Imported::new(nodes.names.len(), edges)
    };
    if let Some(Labelled { labels, classes, split }) = labelled {
        let [train, valid] = [split.train.len(), split.valid.len()];
        let note = format!("of {} nodes to train on, every fifth is for validation: {valid}", train + valid);
        imported.notes.push(note);
        imported.labels = Some((Labels::Single(labels.into()), classes.len()));
        imported.class_names = Some(classes);
        imported.splits = vec![split];
    }
    Ok(imported)
}

/// Names in the order of their first appearance.
#[derive(Default)]
pub(super) struct Numbers {
    numbers: HashMap<Vec<u8>, u32>,
    pub(super) names: Vec<Vec<u8>>,
}

impl Numbers {
    /// The number of `name`, a new one if it is new; `None` after the last.
    pub(super) fn of(&mut self, name: &[u8]) -> Option<u32> {
        if let Some(&number) = self.numbers.get(name) {
            return Some(number);
        }
        let number = u32::try_from(self.names.len()).ok()?;
        self.numbers.insert(name.to_vec(), number);
        self.names.push(name.to_vec());
        Some(number)
    }
}

/// An IRI without its brackets.
fn trimmed(name: &[u8]) -> String {
    let inside = name.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
    String::from_utf8_lossy(inside.unwrap_or(name)).into_owned()
}

#[derive(Debug, PartialEq)]
struct Triple<'a> {
    subject: &'a [u8],
    predicate: &'a [u8],
    object: &'a [u8],
}

const REMEDY: &str = "a line is: <subject> <predicate> <object> or \"literal\", and a full stop";

/// The terms of a line; `None` if it is empty or a comment.
fn triple(line: &[u8]) -> std::result::Result<Option<Triple<'_>>, Wrong> {
    let mut rest = Terms { line, at: 0, column: 0 };
    rest.blanks();
    if matches!(rest.left(), [] | [b'#', ..]) {
        return Ok(None);
    }
    let subject = rest.term("a subject: an IRI or a blank node", |t| matches!(t, [b'<' | b'_', ..]))?;
    let predicate = rest.term("a predicate: an IRI", |t| t.starts_with(b"<"))?;
    let object = rest.term("an object: an IRI, a blank node or a literal", |_| true)?;
    rest.blanks();
    rest.column += 1;
    let Some(after) = rest.left().strip_prefix(b".") else { return Err(rest.wrong("a full stop")) };
    let after = after.trim_ascii_start();
    if after.is_empty() || after.starts_with(b"#") {
        return Ok(Some(Triple { subject, predicate, object }));
    }
    Err(Wrong::new(rest.column + 1, format!("{} after the full stop", show(after)), REMEDY))
}

/// A line, read term by term.
struct Terms<'a> {
    line: &'a [u8],
    at: usize,
    column: usize,
}

impl<'a> Terms<'a> {
    fn left(&self) -> &'a [u8] {
        &self.line[self.at..]
    }

    fn blanks(&mut self) {
        self.at += self.left().iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r')).count();
    }

    fn wrong(&self, expected: &str) -> Wrong {
        let problem = match self.left() {
            [] => format!("the line ends where {expected} is expected"),
            left => format!("{} where {expected} is expected", show(left)),
        };
        Wrong::new(self.column, problem, REMEDY)
    }

    fn term(&mut self, expected: &str, fits: impl Fn(&[u8]) -> bool) -> std::result::Result<&'a [u8], Wrong> {
        self.blanks();
        self.column += 1;
        let left = self.left();
        let length = length_of(left).filter(|_| fits(left)).ok_or_else(|| self.wrong(expected))?;
        self.at += length;
        if std::str::from_utf8(&left[..length]).is_err() {
            return Err(Wrong::new(self.column, "the term is not UTF-8", "save the file as UTF-8"));
        }
        Ok(&left[..length])
    }
}

/// How many bytes the term at the start of `text` has; `None` if there is none.
fn length_of(text: &[u8]) -> Option<usize> {
    let blank = |b: &u8| matches!(b, b' ' | b'\t' | b'\r');
    let iri = |text: &[u8]| {
        let end = text.strip_prefix(b"<")?.iter().position(|&b| b == b'>' || blank(&b) || b == b'<')?;
        (text[end + 1] == b'>').then_some(end + 2)
    };
    match text {
        [b'<', ..] => iri(text),
        [b'_', b':', rest @ ..] => {
            let label = rest.iter().position(|b| blank(b) || matches!(b, b'<' | b'"')).unwrap_or(rest.len());
            // A full stop at the end ends the line, not the label.
            let label = label - rest[..label].iter().rev().take_while(|&&b| b == b'.').count();
            (label > 0).then_some(2 + label)
        }
        [b'"', ..] => {
            let mut end = 1;
            while *text.get(end)? != b'"' {
                end += if text[end] == b'\\' { 2 } else { 1 };
            }
            let after = text.get(end + 1..)?;
            let more = match after {
                [b'^', b'^', datatype @ ..] => 2 + iri(datatype)?,
                [b'@', tag @ ..] => {
                    let tag = tag.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'-').count();
                    (tag > 0).then_some(1 + tag)?
                }
                _ => 0,
            };
            Some(end + 1 + more)
        }
        _ => None,
    }
}

/// What tables say of nodes.
struct Labelled {
    labels: Vec<i64>,
    classes: Vec<String>,
    split: Split,
}

fn labels(sets: &Sets, nodes: &Numbers, cx: &Context<'_>) -> Result<Labelled> {
    let (train, test) = (table(&sets.train, nodes, cx)?, table(&sets.test, nodes, cx)?);
    let names: BTreeSet<&String> = train.iter().chain(&test).map(|(_, label)| label).collect();
    let classes: Vec<String> = names.into_iter().cloned().collect();
    let mut labels = vec![-1i64; nodes.names.len()];
    for (node, label) in train.iter().chain(&test) {
        labels[*node as usize] = classes.binary_search(label).map_or(-1, |class| class as i64);
    }
    let ids = |rows: &[(u32, String)], keep: &dyn Fn(usize) -> bool| -> Vec<i64> {
        rows.iter().enumerate().filter(|(k, _)| keep(*k)).map(|(_, (node, _))| i64::from(*node)).collect()
    };
    let is_held_back = |k: usize| k % HELD_BACK == HELD_BACK - 1;
    let split = Split {
        name: NAME.into(),
        train: ids(&train, &|k| !is_held_back(k)).into(),
        valid: ids(&train, &is_held_back).into(),
        test: ids(&test, &|_| true).into(),
    };
    split.check(nodes.names.len()).map_err(|(part, problem)| {
        let input = if part < 2 { &sets.train } else { &sets.test };
        input.bad("nodes", problem.to_string(), "list each node once, in one of the two tables")
    })?;
    Ok(Labelled { labels, classes, split })
}

/// The nodes that a table lists, with their labels.
fn table(input: &Input, nodes: &Numbers, cx: &Context<'_>) -> Result<Vec<(u32, String)>> {
    let mut text = Text::open(input, cx)?;
    let header = text.line()?.unwrap_or_default();
    let names: Vec<String> = fields(&header).collect();
    let label = names.iter().position(|name| name.to_ascii_lowercase().starts_with("label"));
    let node = names.iter().enumerate().position(|(k, name)| !name.eq_ignore_ascii_case("id") && Some(k) != label);
    let (Some(label), Some(node)) = (label, node) else {
        let problem = format!("the columns are {}", names.join(", "));
        let remedy = "one whose name begins with label, and one that names the node, separated by tabs";
        return Err(text.bad_line(&Wrong::new(0, problem, remedy)));
    };
    let mut rows = Vec::new();
    while let Some(line) = text.line()? {
        let all: Vec<String> = fields(&line).collect();
        if all.iter().all(String::is_empty) {
            continue;
        }
        let (Some(name), Some(label)) = (all.get(node), all.get(label).filter(|label| !label.is_empty())) else {
            let problem = format!("{} fields, the header has {}", all.len(), names.len());
            return Err(text.bad_line(&Wrong::new(0, problem, "separate fields by tabs, and leave none empty")));
        };
        let found = nodes.numbers.get(format!("<{name}>").as_bytes()).or_else(|| nodes.numbers.get(name.as_bytes()));
        let Some(&number) = found else {
            let problem = format!("{} is in no triple", show(name.as_bytes()));
            return Err(text.bad_line(&Wrong::new(node + 1, problem, "check that the table belongs to these triples")));
        };
        rows.push((number, label.clone()));
    }
    Ok(rows)
}

fn fields(line: &[u8]) -> impl Iterator<Item = String> + '_ {
    line.split(|&b| b == b'\t').map(|field| String::from_utf8_lossy(field.trim_ascii()).into_owned())
}

#[cfg(test)]
mod tests;
