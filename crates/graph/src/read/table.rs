//! Tables of numbers without a header: the `.csv.gz` files of OGB.

use graphweft_base::Result;

use super::text::{Cursor, Text, Wrong};
use super::{Context, Input};
use crate::buf::Buf;
use crate::build::Spool;

/// A table, row by row.
pub(super) struct Table {
    pub(super) values: Buf<f32>,
    pub(super) rows: usize,
    pub(super) width: usize,
}

impl Table {
    /// Reads a table whose rows are as long as its first one and whose values are all accepted.
    pub(super) fn read(input: &Input, cx: &Context<'_>, accept: impl Fn(f32) -> bool + Sync) -> Result<Self> {
        let width = first_width(input, cx)?;
        let mut values = Spool::new(cx.scratch);
        Text::open(input, cx)?.pieces(
            |piece| {
                let mut out = Vec::with_capacity(piece.len() / 4);
                let mut c = Cursor::new(piece);
                while c.next_line() {
                    row(&mut c, width, &accept, &mut out).map_err(|wrong| (c.line(), wrong))?;
                }
                Ok(out)
            },
            |piece: Vec<f32>| values.push(&piece),
        )?;
        let rows = values.len() / width;
        Ok(Self { values: values.finish()?, rows, width })
    }
}

/// Columns of the first line.
fn first_width(input: &Input, cx: &Context<'_>) -> Result<usize> {
    let mut text = Text::open(input, cx)?;
    while let Some(line) = text.line()? {
        let mut c = Cursor::new(&line);
        if c.next_line() {
            let mut count = || {
                while c.next_field()? {
                    c.number()?;
                }
                Ok(c.column())
            };
            return count().map_err(|wrong| text.bad_line(&wrong));
        }
    }
    Err(input.bad("file", "there is no line of numbers in it", "copy or download it again"))
}

fn row(
    c: &mut Cursor<'_>,
    width: usize,
    accept: impl Fn(f32) -> bool,
    out: &mut Vec<f32>,
) -> std::result::Result<(), Wrong> {
    while c.next_field()? {
        let before = *c;
        let value = c.number()?;
        if !accept(value) {
            return Err(before.not("a finite number"));
        }
        if c.column() > width {
            break;
        }
        out.push(value);
    }
    if c.column() != width {
        let more = if c.column() > width { "more than " } else { "" };
        let problem = format!("{more}{} columns, the first line has {width}", c.column().min(width));
        return Err(Wrong::new(0, problem, "all lines need the same number of columns"));
    }
    Ok(())
}

/// Reads a file with one count per line.
pub(super) fn column(input: &Input, cx: &Context<'_>) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    Text::open(input, cx)?.pieces(
        |piece| {
            let mut out = Vec::with_capacity(piece.len() / 4);
            let mut c = Cursor::new(piece);
            while c.next_line() {
                let value = c.count().map_err(|wrong| (c.line(), wrong))?;
                if c.next_field().map_err(|wrong| (c.line(), wrong))? {
                    let wrong = Wrong::new(2, "a second column", "this file has one number per line");
                    return Err((c.line(), wrong));
                }
                out.push(value);
            }
            Ok(out)
        },
        |mut piece| {
            all.append(&mut piece);
            Ok(())
        },
    )?;
    Ok(all)
}
