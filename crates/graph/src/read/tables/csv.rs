//! Tables as spreadsheets and pandas write them: a header that names the columns, quotes where they are needed.
//!
//! Fields are separated by commas, semicolons, tabs or blanks, whichever the first line has. Lines are parsed in
//! parallel, without a copy of a field unless a doubled quote stands in it.

use std::borrow::Cow;

use graphweft_base::Result;

use super::batch::{Batch, Field, Plan, number, numbers};
use crate::read::text::{Text, Wrong, show};
use crate::read::{Context, Input};

/// Rows that are looked at to guess what columns hold.
pub(super) const SAMPLE: usize = 1000;

/// The first line of a table.
#[derive(Clone, Debug)]
pub(in crate::read) struct Header {
    /// Names of the columns; `None` where the first line is one of numbers.
    pub(in crate::read) names: Option<Vec<String>>,
    pub(in crate::read) columns: usize,
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

/// Where a field is in its line.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
    /// Two quotes stand for one in it.
    doubled: bool,
}

impl Header {
    /// Looks at the first line that is neither empty nor a comment.
    pub(in crate::read) fn read(input: &Input, cx: &Context<'_>) -> Result<Self> {
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
            let mut spans = Vec::new();
            split(line, separator, &mut spans).map_err(|wrong| text.bad_line(&wrong))?;
            let fields: Vec<Cow<'_, [u8]>> = spans.iter().map(|span| field(line, *span)).collect();
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

    /// The first rows, column by column.
    pub(super) fn sample(&self, input: &Input, cx: &Context<'_>) -> Result<Vec<Vec<Vec<u8>>>> {
        let mut text = self.rows(input, cx)?;
        let (mut columns, mut spans) = (vec![Vec::new(); self.columns], Vec::new());
        while let Some(line) = text.line()?.filter(|_| columns[0].len() < SAMPLE) {
            let line = without_end(without_mark(&line, text.lines()));
            if line.trim_ascii().is_empty() {
                continue;
            }
            split(line, self.separator, &mut spans).map_err(|wrong| text.bad_line(&wrong))?;
            if spans.len() != self.columns {
                return Err(text.bad_line(&self.ragged(spans.len())));
            }
            columns.iter_mut().zip(&spans).for_each(|(all, span)| all.push(field(line, *span).into_owned()));
        }
        Ok(columns)
    }

    /// The text from the first row on.
    fn rows<'a>(&self, input: &'a Input, cx: &Context<'_>) -> Result<Text<'a>> {
        let mut text = Text::open(input, cx)?;
        while text.lines() < self.lines {
            text.line()?;
        }
        Ok(text)
    }

    fn ragged(&self, found: usize) -> Wrong {
        let problem = format!("{found} columns, the first line has {}", self.columns);
        Wrong::new(0, problem, "all lines need the same number of columns")
    }

    /// Reads all rows as `plan` says; `consume` takes them in order.
    pub(super) fn scan(
        &self,
        input: &Input,
        plan: &Plan<'_>,
        cx: &Context<'_>,
        consume: impl FnMut(Batch) -> Result<()>,
    ) -> Result<()> {
        self.rows(input, cx)?.pieces(|piece| self.parse(piece, plan), consume)
    }

    fn parse(&self, text: &[u8], plan: &Plan<'_>) -> std::result::Result<Batch, (u64, Wrong)> {
        let (mut batch, mut spans) = (plan.batch(), Vec::new());
        for (number, line) in text.split(|&b| b == b'\n').enumerate() {
            // A file without a header may still begin with a mark.
            let line = without_end(without_mark(line, number as u64 + 1));
            if line.trim_ascii().is_empty() {
                continue;
            }
            self.row(line, plan, &mut spans, &mut batch).map_err(|wrong| (number as u64, wrong))?;
        }
        Ok(batch)
    }

    fn row(
        &self,
        line: &[u8],
        plan: &Plan<'_>,
        spans: &mut Vec<Span>,
        batch: &mut Batch,
    ) -> std::result::Result<(), Wrong> {
        split(line, self.separator, spans)?;
        if spans.len() != self.columns {
            return Err(self.ragged(spans.len()));
        }
        if spans.iter().all(|span| !span.doubled) {
            return plan.row(spans.iter().map(|span| Field::Text(&line[span.start..span.end])), batch);
        }
        let fields: Vec<Cow<'_, [u8]>> = spans.iter().map(|span| field(line, *span)).collect();
        plan.row(fields.iter().map(|field| Field::Text(field)), batch)
    }
}

/// What a column of text holds, by its first rows.
pub(super) fn holds(sample: &[Vec<u8>]) -> super::source::Holds {
    use super::source::Holds;
    let known: Vec<&[u8]> = sample.iter().map(|field| field.trim_ascii()).filter(|field| !field.is_empty()).collect();
    let integer = |field: &&[u8]| {
        let digits = field.strip_prefix(b"-").unwrap_or(field);
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    };
    // A column with one number in it is meant as numbers, and the rest are mistakes to be told.
    let numeric = known.iter().filter(|field| number(field).is_some()).count();
    match known.first().map(|first| numbers(first)) {
        None => Holds::Nothing,
        Some(_) if known.iter().all(integer) => Holds::Integers,
        Some(_) if numeric > 0 => Holds::Numbers,
        Some(Some(list)) if !list.is_empty() => Holds::List(list.len()),
        Some(_) => {
            let different: std::collections::BTreeSet<&&[u8]> = known.iter().collect();
            Holds::Words { different: different.len(), of: known.len() }
        }
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

/// Finds the fields of a line.
fn split(line: &[u8], separator: Separator, spans: &mut Vec<Span>) -> std::result::Result<(), Wrong> {
    spans.clear();
    let Separator::Byte(separator) = separator else {
        let blank = |b: &u8| matches!(b, b' ' | b'\t');
        let mut start = 0;
        while start < line.len() {
            let end = match separator {
                Separator::Nothing => line.len(),
                _ => start + line[start..].iter().position(blank).unwrap_or(line.len() - start),
            };
            if end > start {
                spans.push(unquoted(line, start, end, spans.len())?);
            }
            start = end + 1;
        }
        return Ok(());
    };
    let (mut start, mut quoted) = (0, false);
    for (at, &b) in line.iter().enumerate() {
        if b == b'"' {
            quoted = !quoted;
        } else if b == separator && !quoted {
            spans.push(unquoted(line, start, at, spans.len())?);
            start = at + 1;
        }
    }
    spans.push(unquoted(line, start, line.len(), spans.len())?);
    Ok(())
}

/// A field without blanks, and without the quotes, around it.
fn unquoted(line: &[u8], start: usize, end: usize, column: usize) -> std::result::Result<Span, Wrong> {
    let all = &line[start..end];
    let start = start + (all.len() - all.trim_ascii_start().len());
    let trimmed = all.trim_ascii();
    let plain = Span { start, end: start + trimmed.len(), doubled: false };
    let Some(rest) = trimmed.strip_prefix(b"\"") else { return Ok(plain) };
    let Some(inside) = rest.strip_suffix(b"\"") else {
        let problem = format!("the quote in {} is not closed", show(trimmed));
        return Err(Wrong::new(column + 1, problem, "a quoted field ends in the line that it begins in"));
    };
    // Blanks inside of quotes belong to the field no more than those outside.
    let inner = start + 1 + (inside.len() - inside.trim_ascii_start().len());
    let kept = inside.trim_ascii();
    Ok(Span { start: inner, end: inner + kept.len(), doubled: kept.contains(&b'"') })
}

/// The bytes of a field; two quotes inside stand for one.
fn field(line: &[u8], span: Span) -> Cow<'_, [u8]> {
    let inside = &line[span.start..span.end];
    if !span.doubled {
        return Cow::Borrowed(inside);
    }
    let mut out = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter().peekable();
    while let Some(&b) = bytes.next() {
        out.push(b);
        if b == b'"' {
            bytes.next_if(|&&next| next == b'"');
        }
    }
    Cow::Owned(out)
}
