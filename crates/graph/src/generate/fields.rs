//! Reading the fields of a spec, with errors that show the grammar.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use graphweft_base::{Error, Result};

use super::GRAMMAR;

/// The fields of a spec after its name, from left to right.
pub(super) struct Fields<'a> {
    spec: &'a str,
    rest: std::iter::Peekable<std::str::Split<'a, char>>,
}

impl<'a> Fields<'a> {
    /// The generator's name, and its fields. `spec` is the whole text, `body` what is left of it without suffixes.
    pub(super) fn split(spec: &'a str, body: &'a str) -> (&'a str, Self) {
        let mut rest = body.split(':').peekable();
        let name = rest.next().unwrap_or_default();
        (name, Self { spec, rest })
    }

    /// An error about this spec.
    pub(super) fn error(&self, problem: impl Display) -> Error {
        error(self.spec, problem)
    }

    /// The next field, a whole number in `range`.
    pub(super) fn integer(&mut self, name: &str, range: RangeInclusive<u64>) -> Result<u64> {
        let text = self.rest.next().ok_or_else(|| self.error(format_args!("{name} is missing")))?;
        self.number(name, text, range)
    }

    /// The next field, `key=value`, if there is one.
    pub(super) fn setting(&mut self) -> Result<Option<(&'a str, &'a str)>> {
        let Some(text) = self.rest.next() else { return Ok(None) };
        text.split_once('=').map(Some).ok_or_else(|| self.error(format_args!("{text:?} is not of the form key=value")))
    }

    /// `text` as a number in `range`.
    pub(super) fn number<T>(&self, name: &str, text: &str, range: RangeInclusive<T>) -> Result<T>
    where
        T: FromStr + PartialOrd + Display,
    {
        // Rust would also read "+5", "inf" and "NaN"; a spec has digits.
        let plain = text.starts_with(|c: char| c.is_ascii_digit());
        let number = text.parse::<T>().ok().filter(|x| plain && range.contains(x));
        let (low, high) = range.into_inner();
        number.ok_or_else(|| self.error(format_args!("{name} is {text:?}, expected a number from {low} to {high}")))
    }

    /// Fails if fields are left.
    pub(super) fn end(mut self) -> Result<()> {
        match self.rest.next() {
            None => Ok(()),
            Some(text) => Err(self.error(format_args!("{text:?} is one field too many"))),
        }
    }
}

/// An error about a spec, with the grammar as its remedy.
pub(super) fn error(spec: &str, problem: impl Display) -> Error {
    Error::request(format!("graph {spec:?}: {problem}"), format!("write one of\n{GRAMMAR}"))
}
