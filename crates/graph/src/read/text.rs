//! Text in big blocks, parsed in parallel, in order.
//!
//! A block is cut at its last newline, then into pieces of whole lines that are parsed at once while the next block is
//! read. Results are consumed in file order, so nothing depends on the number of threads. A line longer than a block is
//! an error: a gigabyte without a newline is found out after the first few megabytes.

use std::io::Read;

use graphweft_base::{Error, Position, Problem, Result};
use rayon::prelude::*;

use super::{Context, Input};

const BLOCK: usize = 8 << 20;
const PIECE: usize = 256 << 10;
/// No number is longer; what is, is shown cut.
const LONGEST_TOKEN: usize = 64;

/// What is wrong in a line.
#[derive(Debug, PartialEq)]
pub(super) struct Wrong {
    /// Column of the line, from 1, or 0 for the line as a whole.
    pub(super) column: usize,
    pub(super) problem: String,
    pub(super) remedy: String,
}

impl Wrong {
    pub(super) fn new(column: usize, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { column, problem: problem.into(), remedy: remedy.into() }
    }
}

/// A text being read.
pub(super) struct Text<'a> {
    input: &'a Input,
    reader: Box<dyn Read + Send>,
    /// Read but not yet handed out.
    held: Vec<u8>,
    /// Lines handed out.
    lines: u64,
    ended: bool,
}

impl<'a> Text<'a> {
    pub(super) fn open(input: &'a Input, cx: &Context<'_>) -> Result<Self> {
        Ok(Self { input, reader: input.text(cx.progress)?, held: Vec::new(), lines: 0, ended: false })
    }

    /// The next line without its end, or `None` after the last one.
    pub(super) fn line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.held[searched..].iter().position(|&b| b == b'\n') {
                let rest = self.held.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.held, rest);
                line.pop();
                self.lines += 1;
                return Ok(Some(line));
            }
            searched = self.held.len();
            if self.ended {
                self.lines += u64::from(searched > 0);
                return Ok(Some(std::mem::take(&mut self.held)).filter(|line| !line.is_empty()));
            }
            self.read_more(1 << 16)?;
        }
    }

    /// Lines handed out so far: the number of the last one.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// An error in the line that was handed out last.
    pub(super) fn bad_line(&self, wrong: &Wrong) -> Error {
        self.bad(self.lines, wrong)
    }

    fn bad(&self, line: u64, wrong: &Wrong) -> Error {
        let (field, position) = match wrong.column as u64 {
            0 => (format!("line {line}"), Position::Line(line)),
            column => (format!("line {line}, column {column}"), Position::Field { line, column }),
        };
        self.input.bad(field, Problem::at(position, &wrong.problem), &wrong.remedy)
    }

    fn read_more(&mut self, bytes: usize) -> Result<()> {
        if self.held.len() >= BLOCK {
            let problem = format!("a line of more than {} MiB", BLOCK >> 20);
            let wrong = Wrong::new(0, problem, "this is no text of the expected format; check the file");
            return Err(self.bad(self.lines + 1, &wrong));
        }
        let read = self.reader.by_ref().take(bytes as u64).read_to_end(&mut self.held);
        let n = read.map_err(|e| self.input.unreadable(&e))?;
        self.ended = n < bytes;
        Ok(())
    }

    /// The next whole lines, empty after the last one.
    fn block(&mut self) -> Result<Vec<u8>> {
        while !self.ended {
            let before = self.held.len();
            self.read_more(BLOCK)?;
            if let Some(at) = self.held[before..].iter().rposition(|&b| b == b'\n') {
                let rest = self.held.split_off(before + at + 1);
                return Ok(std::mem::replace(&mut self.held, rest));
            }
        }
        Ok(std::mem::take(&mut self.held))
    }

    /// Parses the rest: `parse` turns a piece of whole lines into a result, in parallel; `consume` takes the results in
    /// order. A failed parse says in which of its lines, from 0.
    pub(super) fn pieces<T: Send>(
        mut self,
        parse: impl Fn(&[u8]) -> std::result::Result<T, (u64, Wrong)> + Sync,
        mut consume: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let mut block = self.block()?;
        while !block.is_empty() {
            let parse_block = || -> Vec<_> {
                let pieces = cut(&block);
                pieces.into_par_iter().map(|piece| (parse(piece), count_lines(piece))).collect()
            };
            let (parsed, next) = rayon::join(parse_block, || self.block());
            for (result, lines) in parsed {
                consume(result.map_err(|(line, wrong)| self.bad(self.lines + line + 1, &wrong))?)?;
                self.lines += lines;
            }
            block = next?;
        }
        Ok(())
    }
}

fn count_lines(piece: &[u8]) -> u64 {
    piece.iter().filter(|&&b| b == b'\n').count() as u64
}

/// Cuts a block into pieces of whole lines.
fn cut(mut block: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::with_capacity(block.len() / PIECE + 1);
    while block.len() > PIECE {
        let Some(at) = block[PIECE..].iter().position(|&b| b == b'\n') else { break };
        let (piece, rest) = block.split_at(PIECE + at + 1);
        pieces.push(piece);
        block = rest;
    }
    if !block.is_empty() {
        pieces.push(block);
    }
    pieces
}

/// Reads numbers from left to right. Fields are separated by blanks, or by one comma or semicolon with blanks around
/// it.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    /// Fields read in this line.
    column: usize,
    line: u64,
}

/// An integer as written: its sign and its magnitude.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Integer {
    pub(super) negative: bool,
    pub(super) magnitude: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, column: 0, line: 0 }
    }

    /// Lines passed.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Fields read in this line.
    pub(super) fn column(&self) -> usize {
        self.column
    }

    #[inline]
    fn skip_blanks(&mut self) {
        while let [b' ' | b'\t' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Moves to the next line that is neither empty nor a comment. `false` at the end of the text.
    #[inline]
    pub(super) fn next_line(&mut self) -> bool {
        loop {
            self.skip_blanks();
            match self.rest {
                [] => return false,
                [b'\n', rest @ ..] => {
                    self.rest = rest;
                    self.line += 1;
                    self.column = 0;
                }
                [b'#' | b'%', ..] | [b'/', b'/', ..] if self.column == 0 => self.skip_line(),
                _ => return true,
            }
        }
    }

    fn skip_line(&mut self) {
        let end = self.rest.iter().position(|&b| b == b'\n').unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    /// Moves over the separator to the next field. `false` at the end of the line.
    #[inline]
    pub(super) fn next_field(&mut self) -> std::result::Result<bool, Wrong> {
        self.skip_blanks();
        if let ([b',' | b';', rest @ ..], 1..) = (self.rest, self.column) {
            self.rest = rest;
            self.skip_blanks();
            if let [] | [b'\n' | b',' | b';', ..] = self.rest {
                return Err(Wrong::new(self.column + 1, "an empty field", "every field needs a number"));
            }
        }
        Ok(!matches!(self.rest, [] | [b'\n', ..]))
    }

    /// The next field as an integer.
    #[inline]
    pub(super) fn integer(&mut self) -> std::result::Result<Integer, Wrong> {
        let (negative, digits) = match self.rest {
            [b'-', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let mut magnitude = 0u64;
        let mut n = 0;
        while let Some(d) = digits.get(n).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
            // 19 digits always fit.
            magnitude = if n < 19 {
                magnitude * 10 + u64::from(d)
            } else {
                let next = magnitude.checked_mul(10).and_then(|m| m.checked_add(u64::from(d)));
                next.ok_or_else(|| self.not("an integer below 2⁶⁴"))?
            };
            n += 1;
        }
        let rest = &digits[n..];
        if n == 0 || !matches!(rest, [] | [b' ' | b'\t' | b'\r' | b'\n' | b',' | b';', ..]) {
            return Err(self.not("an integer"));
        }
        self.rest = rest;
        self.column += 1;
        Ok(Integer { negative, magnitude })
    }

    /// The next field as a count: an integer that is not negative.
    #[inline]
    pub(super) fn count(&mut self) -> std::result::Result<u64, Wrong> {
        let start = *self;
        match self.integer()? {
            Integer { negative: false, magnitude } => Ok(magnitude),
            Integer { negative: true, .. } => Err(start.not("a number that is not negative")),
        }
    }

    /// The next field as a number; NaN and infinities are for the caller to judge.
    pub(super) fn number(&mut self) -> std::result::Result<f32, Wrong> {
        let token = self.token();
        let number = std::str::from_utf8(token).ok().filter(|t| t.len() <= LONGEST_TOKEN).and_then(|t| t.parse().ok());
        let number = number.ok_or_else(|| self.not("a number"))?;
        self.rest = &self.rest[token.len()..];
        self.column += 1;
        Ok(number)
    }

    /// The next field as it is written.
    pub(super) fn token(&self) -> &'a [u8] {
        let end = self.rest.iter().position(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | b',' | b';'));
        &self.rest[..end.unwrap_or(self.rest.len())]
    }

    /// Moves over the next field, whatever it is.
    pub(super) fn skip(&mut self) {
        self.rest = &self.rest[self.token().len()..];
        self.column += 1;
    }

    /// An error about the field that comes next.
    pub(super) fn not(&self, expected: &str) -> Wrong {
        let problem = match self.token() {
            [] => format!("nothing where {expected} is expected"),
            token => format!("{} is not {expected}", show(token)),
        };
        Wrong::new(self.column + 1, problem, "correct the line, or check that the format is the right one")
    }
}

/// A token for a message: quoted, cut where it is long.
pub(super) fn show(token: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&token[..token.len().min(LONGEST_TOKEN)]);
    if token.len() > LONGEST_TOKEN { format!("{shown:?}… ({} bytes)", token.len()) } else { format!("{shown:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::testing::{KEEP, with_context};

    fn with<T>(text: &[u8], f: impl FnOnce(Text<'_>) -> T) -> T {
        let input = Input::memory("t.txt", text).unwrap();
        with_context(KEEP, |cx| f(Text::open(&input, cx).unwrap()))
    }

    #[test]
    fn pieces_cover_the_text_once_and_in_order() {
        let text: String = (0..2_000_000).map(|i| format!("{i}\n")).collect();
        for text in [&text[..], text.trim_end()] {
            let mut joined = Vec::new();
            let whole_lines = |p: &[u8]| Ok(p.to_vec());
            with(text.as_bytes(), |t| {
                t.pieces(whole_lines, |p| {
                    joined.extend_from_slice(&p);
                    Ok(())
                })
            })
            .unwrap();
            assert!(joined == text.as_bytes());
        }
    }

    #[test]
    fn errors_name_the_line_of_the_file() {
        let mut text: String = (0..200_000).map(|i| format!("{i}\n")).collect();
        text.insert_str(text.find("\n150000\n").unwrap() + 1, "oops\n");
        let parse = |p: &[u8]| {
            let mut c = Cursor::new(p);
            while c.next_line() {
                c.count().map_err(|w| (c.line(), w))?;
            }
            Ok(())
        };
        let error = with(text.as_bytes(), |mut t| {
            assert_eq!(t.line().unwrap().unwrap(), b"0");
            t.pieces(parse, |()| Ok(()))
        });
        let message = error.unwrap_err().to_string();
        assert!(message.contains("line 150001, column 1: \"oops\" is not an integer"), "{message}");
    }

    #[test]
    fn lines_without_an_end_are_given_up() {
        let text = vec![b'1'; BLOCK + 10];
        let message = with(&text, |t| t.pieces(|_| Ok(()), |()| Ok(()))).unwrap_err().to_string();
        assert!(message.contains("line 1: a line of more than 8 MiB"), "{message}");
        let message = with(&text, |mut t| t.line()).unwrap_err().to_string();
        assert!(message.contains("more than 8 MiB"), "{message}");
    }

    #[test]
    fn numbers_are_read_to_their_limits() {
        let int = |s: &str| Cursor::new(s.as_bytes()).integer().map(|i| (i.negative, i.magnitude));
        assert_eq!(int("18446744073709551615"), Ok((false, u64::MAX)));
        assert_eq!(int("-9223372036854775808 x"), Ok((true, 1 << 63)));
        assert_eq!(int("000000000000000000000000007"), Ok((false, 7)));
        for bad in ["18446744073709551616", "1.5", "", "-", "+1", "1x", "0x10"] {
            assert!(int(bad).is_err(), "{bad}");
        }
        let mut c = Cursor::new(b" # not me\n\n 1 ,\t2;-3e-1\r\n1,,2\n1,\n%");
        assert!(c.next_line());
        assert_eq!((c.line(), c.count(), c.next_field(), c.count()), (2, Ok(1), Ok(true), Ok(2)));
        assert_eq!((c.next_field(), c.number(), c.next_field()), (Ok(true), Ok(-0.3), Ok(false)));
        assert!(c.next_line());
        assert_eq!(c.count(), Ok(1));
        assert!(c.next_field().is_err());
    }
}
