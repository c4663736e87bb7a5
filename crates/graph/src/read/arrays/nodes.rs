//! The table of nodes: which column holds what, and what becomes of it.

use graphweft_base::{Error, Result};

use super::super::labels;
use super::super::names::RowIds;
use super::super::{Context, Input};
use super::csv::{Header, Part, Role, Table, number};
use super::parts::{NAME, checked};
use crate::dataset::{Labels, Split, Task};

const IDS: &[&str] = &["id", "node", "node_id", "nodeid"];
const LABELS: &[&str] = &["label", "labels", "class", "y", "target"];
const SPLITS: &[&str] = &["split", "set", "subset"];
/// Columns that must not become features by accident.
const MASKS: &[&str] = &["train", "valid", "val", "test", "train_mask", "valid_mask", "val_mask", "test_mask"];

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

/// Labels with the number of classes, and the names of these where they were words.
pub(super) struct Classes {
    pub(super) labels: Labels,
    pub(super) count: usize,
    pub(super) names: Option<Vec<String>>,
}

/// What a table says of the nodes.
pub(super) struct Nodes {
    pub(super) table: Table,
    pub(super) ids: Option<RowIds>,
    pub(super) labels: Option<Classes>,
    pub(super) split: Option<Split>,
    pub(super) note: String,
}

/// Reads a table of nodes with a header.
pub(super) fn read(input: &Input, columns: &Columns, task: Task, cx: &Context<'_>) -> Result<Nodes> {
    let header = Header::read(input, cx)?;
    let Some(names) = &header.names else {
        let remedy = "name the columns in the first line, e.g. id,x0,x1,label,split; or give the files one by one with \
                      --features, --labels, --train, --valid and --test";
        return Err(input.bad("line 1", "it has only numbers, expected the names of the columns", remedy));
    };
    let roles = roles(input, names, columns)?;
    let mut table = Table::read(input, &header, &roles, cx)?;
    let ids = match roles.contains(&Role::Id) {
        true => Some(RowIds::new(input, &std::mem::take(&mut table.ids))?),
        false => None,
    };
    let note = describe(names, &roles);
    let labels = roles.contains(&Role::Label).then(|| classes(input, task, &mut table)).transpose()?;
    let split = roles.contains(&Role::Split).then(|| split(input, &table.parts)).transpose()?;
    Ok(Nodes { table, ids, labels, split, note })
}

/// The role of every column: as asked for, or by its name; what is left is a feature.
fn roles(input: &Input, names: &[String], columns: &Columns) -> Result<Vec<Role>> {
    let lower: Vec<String> = names.iter().map(|n| n.to_ascii_lowercase()).collect();
    if let Some((at, name)) = lower.iter().enumerate().find(|(at, name)| lower[..*at].contains(name)) {
        let problem = format!("columns {} and {} are both called {name:?}", place(&lower, name), at + 1);
        return Err(input.bad("line 1", problem, "give each column a name of its own"));
    }
    let mut roles = vec![None; names.len()];
    let mut assign = |wanted: &str, role: Role| -> Result<()> {
        let at = lower.iter().position(|n| *n == wanted.to_ascii_lowercase());
        let Some(at) = at else {
            let problem = format!("there is no column {wanted:?}");
            return Err(input.bad("line 1", problem, format!("the columns are: {}", names.join(", "))));
        };
        match roles[at].replace(role) {
            Some(other) if other != role => {
                let problem = format!("column {wanted:?} cannot be {} and {}", word(other), word(role));
                Err(input.bad("line 1", problem, "name each column once"))
            }
            _ => Ok(()),
        }
    };
    columns.skip.iter().try_for_each(|name| assign(name, Role::Skip))?;
    columns.id.iter().try_for_each(|name| assign(name, Role::Id))?;
    columns.labels.iter().try_for_each(|name| assign(name, Role::Label))?;
    columns.split.iter().try_for_each(|name| assign(name, Role::Split))?;
    let usual = [
        (IDS, Role::Id, "--id-column"),
        (LABELS, Role::Label, "--label-columns"),
        (SPLITS, Role::Split, "--split-column"),
    ];
    for (known, role, flag) in usual {
        if roles.contains(&Some(role)) {
            continue;
        }
        let found: Vec<usize> = (0..names.len()).filter(|&at| roles[at].is_none() && is(known, &lower[at])).collect();
        match found[..] {
            [] => {}
            [at] => roles[at] = Some(role),
            [a, b, ..] => {
                let problem = format!("columns {:?} and {:?} could both be {}", names[a], names[b], word(role));
                let remedy = format!("say which with {flag}, and leave the other out with --skip-columns");
                return Err(input.bad("line 1", problem, remedy));
            }
        }
    }
    let accident = |at: &usize| roles[*at].is_none() && is(MASKS, &lower[*at]);
    if let Some(at) = (0..names.len()).find(accident) {
        let problem = format!("column {:?} looks like a mask, and would become a feature", names[at]);
        let remedy = "write one column \"split\" of train, valid and test, or leave the column out with --skip-columns";
        return Err(input.bad("line 1", problem, remedy));
    }
    Ok(roles.into_iter().map(|role| role.unwrap_or(Role::Feature)).collect())
}

fn is(known: &[&str], name: &str) -> bool {
    known.contains(&name)
}

fn place(names: &[String], name: &str) -> usize {
    names.iter().position(|n| n == name).map_or(0, |at| at + 1)
}

fn word(role: Role) -> &'static str {
    match role {
        Role::Id => "the id",
        Role::Feature => "a feature",
        Role::Label => "the label",
        Role::Split => "the split",
        Role::Skip => "left out",
    }
}

fn describe(names: &[String], roles: &[Role]) -> String {
    let all: Vec<String> = [Role::Id, Role::Label, Role::Split, Role::Skip, Role::Feature]
        .into_iter()
        .filter_map(|role| {
            let of: Vec<&str> =
                names.iter().zip(roles).filter(|(_, r)| **r == role).map(|(name, _)| name.as_str()).collect();
            match of[..] {
                [] => None,
                [first, .., last] if of.len() > 3 => Some(format!("{}: {first} … {last} ({})", word(role), of.len())),
                _ => Some(format!("{}: {}", word(role), of.join(", "))),
            }
        })
        .collect();
    format!("columns by use: {}", all.join("; "))
}

/// Labels from the columns that hold them: numbers are classes, or what to predict; words are numbered in alphabetical
/// order.
pub(super) fn classes(input: &Input, task: Task, table: &mut Table) -> Result<Classes> {
    if table.classes.is_empty() {
        let labels = std::mem::take(&mut table.labels);
        let shape = [table.rows, labels.len() / table.rows.max(1)];
        let (labels, count) = labels::from_numbers(task, input, "label", &shape, table.rows, |at| labels[at].into())?;
        return Ok(Classes { labels, count, names: None });
    }
    let (words, of) = (std::mem::take(&mut table.words), std::mem::take(&mut table.classes));
    let unknown = |word: &str| word.is_empty();
    let numbers: Option<Vec<f64>> =
        words.iter().map(|w| if unknown(w) { Some(f64::NAN) } else { number(w.as_bytes()) }).collect();
    if let Some(numbers) = numbers {
        let shape = [table.rows];
        let at = |row: usize| numbers[of[row] as usize];
        let (labels, count) = labels::from_numbers(task, input, "label", &shape, table.rows, at)?;
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
    if names.len() > MOST || names.len() * 2 > table.rows.max(MOST_SMALL) {
        let problem = format!("{} different labels in {} rows", names.len(), table.rows);
        return Err(input.bad("label", problem, "name the column that holds the class with --label-columns"));
    }
    let number: Vec<i64> = words.iter().map(|w| names.binary_search(&w).map_or(-1, |at| at as i64)).collect();
    let labels = Labels::Single(of.iter().map(|&w| number[w as usize]).collect::<Vec<_>>().into());
    Ok(Classes { labels, count: names.len(), names: Some(names.into_iter().cloned().collect()) })
}

/// So few rows may have a class each.
const MOST_SMALL: usize = 64;

fn split(input: &Input, parts: &[Part]) -> Result<Split> {
    let of = |part: Part| -> Vec<i64> {
        parts.iter().enumerate().filter(|(_, p)| **p == part).map(|(row, _)| row as i64).collect()
    };
    let (train, valid, test) = (of(Part::Train), of(Part::Valid), of(Part::Test));
    let split = Split { name: NAME.into(), train: train.into(), valid: valid.into(), test: test.into() };
    checked(split, parts.len(), |_, problem| -> Error {
        input.bad("split", problem, "the column says train, valid or test; train and valid are needed")
    })
}
