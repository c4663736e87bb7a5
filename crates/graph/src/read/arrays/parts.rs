//! Splits from masks and from lists of ids.
//!
//! Truth values are masks, `[N]`, or several splits as `[N, S]` (PyTorch Geometric) or `[S, N]`; integers are node ids.
//! In an archive, the arrays are told by their names; one that is none of them is refused, not skipped.

use graphweft_base::Result;

use super::super::npz::{Array, Npz};
use super::super::splits::learnable;
use super::super::tables::NAME;
use super::super::text::{Cursor, Integer, Text};
use super::super::{Context, Input};
use super::edges::Numbering;
use super::file::{Contents, File};
use crate::dataset::Split;
use crate::npy::NpyType;

const PARTS: [&str; 3] = ["train", "valid", "test"];
const SUFFIXES: [&str; 7] = ["", "_mask", "_masks", "_idx", "_index", "_id", "_ids"];

/// Where splits come from.
pub(super) enum Source<'a> {
    /// One archive.
    Archive(&'a File),
    /// One file for train, valid and test each.
    Files([&'a File; 3]),
}

/// One of train, valid and test, for every split.
struct Of {
    input: Input,
    field: String,
    form: Form,
}

enum Form {
    /// One for each split.
    Masks(Vec<Vec<i64>>),
    Ids(Vec<i64>),
}

/// Reads the splits of `n` nodes.
pub(super) fn read(source: &Source<'_>, n: usize, numbering: &Numbering<'_>, cx: &Context<'_>) -> Result<Vec<Split>> {
    let [train, valid, test] = match source {
        Source::Archive(file) => archive(file, n, numbering, cx)?,
        Source::Files([a, b, c]) => {
            let of = |file: &File, part| one(file, part, n, numbering, cx);
            [of(a, PARTS[0])?, of(b, PARTS[1])?, of(c, PARTS[2])?]
        }
    };
    let all = [&train, &valid, &test];
    let columns = all.map(|part| match &part.form {
        Form::Masks(masks) => masks.len(),
        Form::Ids(_) => 1,
    });
    if let Some(at) = columns.iter().position(|&c| c != columns[0]) {
        let problem = format!("{} splits, train has {}", columns[at], columns[0]);
        return Err(all[at].input.bad(&all[at].field, problem, "the masks need the same shape"));
    }
    (0..columns[0])
        .map(|s| {
            let ids = |part: &Of| match &part.form {
                Form::Masks(masks) => masks[s].clone(),
                Form::Ids(ids) => ids.clone(),
            };
            let name = if columns[0] == 1 { NAME.to_string() } else { format!("{NAME}-{s}") };
            let split = Split { name, train: ids(&train).into(), valid: ids(&valid).into(), test: ids(&test).into() };
            learnable(split, n, |part, problem| {
                let problem = if columns[0] == 1 { problem } else { problem.within(&format!("split {s}")) };
                all[part].input.bad(&all[part].field, problem, "each node belongs to one of train, valid and test")
            })
        })
        .collect()
}

/// Which of train, valid and test an array is for, by its name.
fn part_of(name: &str) -> Option<usize> {
    let stems: [&[&str]; 3] = [&["train"], &["valid", "val", "validation"], &["test"]];
    let lower = name.to_ascii_lowercase();
    stems.iter().position(|stems| stems.iter().any(|s| lower.strip_prefix(s).is_some_and(|r| SUFFIXES.contains(&r))))
}

fn archive(file: &File, n: usize, numbering: &Numbering<'_>, cx: &Context<'_>) -> Result<[Of; 3]> {
    const REMEDY: &str = "call the arrays train_mask, val_mask and test_mask (or train_idx, valid_idx and test_idx), and \
                          leave others out; or name them: --train FILE.npz:NAME, --valid …, --test …";
    let input = &file.input;
    if let Some(array) = &file.array {
        let problem = format!("{array} is one array, expected the archive of all three");
        return Err(input.bad(array, problem, "leave out the colon and the name"));
    }
    let mut npz = Npz::open(input, cx)?;
    let mut found: [Option<String>; 3] = Default::default();
    for name in npz.names() {
        let Some(part) = part_of(name) else {
            let problem = format!("this array is no part of a split; the archive has: {}", npz.listed());
            return Err(input.bad(name, problem, REMEDY));
        };
        if let Some(other) = found[part].replace(name.clone()) {
            return Err(input.bad(name, format!("{other} is for {} too", PARTS[part]), REMEDY));
        }
    }
    let mut part = |at: usize| match found[at].take() {
        Some(name) => from_array(&npz.need(&name)?, n, numbering),
        None => {
            Err(input.bad(PARTS[at], format!("there is no array for it; the archive has: {}", npz.listed()), REMEDY))
        }
    };
    Ok([part(0)?, part(1)?, part(2)?])
}

fn one(file: &File, part: &str, n: usize, numbering: &Numbering<'_>, cx: &Context<'_>) -> Result<Of> {
    match file.load(part, cx)? {
        Contents::Array(array) => from_array(&array, n, numbering),
        Contents::Sparse(matrix) => Err(matrix.bad("a sparse matrix is no mask", "save a mask or ids with numpy.save")),
        Contents::Text => from_text(&file.input, part, n, numbering, cx),
    }
}

fn from_array(array: &Array, n: usize, numbering: &Numbering<'_>) -> Result<Of> {
    let form = match (array.dtype, &array.shape[..]) {
        (NpyType::Bool, _) => Form::Masks(masks(array, n)?),
        (_, &[_, _]) => {
            return Err(array.bad(format!("a matrix of {}: several splits are masks", array.dtype)));
        }
        (_, &[len]) => {
            if len == n && n > 2 && (0..len).all(|at| matches!(array.integer(at), Some(0 | 1))) {
                let problem = format!("{len} numbers that are all 0 or 1: is this a mask, or are these ids?");
                let remedy = "save a mask as truth values: mask.astype(bool)";
                return Err(array.input().bad(&array.name, problem, remedy));
            }
            let node = |at: usize| numbering.of_array(array, at).map(|id| id as i64);
            Form::Ids((0..len).map(node).collect::<Result<_>>()?)
        }
        _ => return Err(array.wrong_shape(&format!("a mask [{n}] or [{n}, splits], or a list of ids"))),
    };
    Ok(Of { input: array.input().clone(), field: array.name.clone(), form })
}

fn masks(array: &Array, n: usize) -> Result<Vec<Vec<i64>>> {
    let ids = |of: &dyn Fn(usize) -> usize| -> Result<Vec<i64>> {
        let mut ids = Vec::new();
        for i in 0..n {
            if array.below(of(i), 2)? == 1 {
                ids.push(i as i64);
            }
        }
        Ok(ids)
    };
    match array.shape[..] {
        [rows] if rows == n => Ok(vec![ids(&|i| i)?]),
        [rows, columns] if rows == n && columns == n && n > 1 => {
            Err(array.bad("as many splits as nodes: rows and columns cannot be told apart"))
        }
        [rows, splits] if rows == n && splits > 0 => (0..splits).map(|s| ids(&|i| i * splits + s)).collect(),
        [splits, columns] if columns == n && splits > 0 => (0..splits).map(|s| ids(&|i| s * n + i)).collect(),
        _ => {
            let problem = format!("shape is {:?}, but there are {n} nodes", array.shape);
            let remedy = format!("a mask has shape [{n}], or [{n}, splits] for several");
            Err(array.input().bad(&array.name, problem, remedy))
        }
    }
}

/// A line as it stands in a list of ids or a mask.
#[derive(Clone, Copy)]
enum Line {
    Truth(bool),
    Id(Integer),
}

fn from_text(input: &Input, part: &str, n: usize, numbering: &Numbering<'_>, cx: &Context<'_>) -> Result<Of> {
    let mut lines: Vec<Line> = Vec::new();
    Text::open(input, cx)?.pieces(
        |piece| {
            let mut out = Vec::new();
            let mut c = Cursor::new(piece);
            while c.next_line() {
                out.push(match c.token().to_ascii_lowercase().as_slice() {
                    truth @ (b"true" | b"false") => {
                        c.skip();
                        Line::Truth(truth == b"true")
                    }
                    _ => c.integer().map(Line::Id).map_err(|wrong| (c.line(), wrong))?,
                });
                if c.next_field().map_err(|wrong| (c.line(), wrong))? {
                    return Err((c.line(), c.not("the end of the line: there is one id, or true or false, per line")));
                }
            }
            Ok(out)
        },
        |mut piece| {
            lines.append(&mut piece);
            Ok(())
        },
    )?;
    let is_truth = |line: &Line| matches!(line, Line::Truth(_));
    let is_bit = |line: &Line| matches!(line, Line::Id(Integer { negative: false, magnitude: 0 | 1 }));
    let truths = lines.iter().filter(|line| is_truth(line)).count();
    let about = |problem: String, remedy: &str| Err(input.bad(part, problem, remedy));
    if truths > 0 && (truths < lines.len() || lines.len() != n) {
        let problem = format!("{truths} of {} lines are true or false, and there are {n} nodes", lines.len());
        return about(problem, "a mask has true or false for every node, a list of ids only ids");
    }
    if lines.len() == n && n > 2 && lines.iter().all(is_bit) {
        let problem = format!("{n} lines that are all 0 or 1: is this a mask, or are these ids?");
        return about(problem, "write true and false for a mask");
    }
    let mut ids = Vec::new();
    for (at, line) in lines.into_iter().enumerate() {
        match line {
            Line::Truth(true) => ids.push(at as i64),
            Line::Truth(false) => {}
            Line::Id(id) => match numbering.of_text(id) {
                Ok(node) => ids.push(node as i64),
                Err((problem, remedy)) => return about(format!("entry {}: {problem}", at + 1), &remedy),
            },
        }
    }
    let form = if truths > 0 { Form::Masks(vec![ids]) } else { Form::Ids(ids) };
    Ok(Of { input: input.clone(), field: part.to_string(), form })
}
