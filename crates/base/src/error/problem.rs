//! What is wrong with input, and where.

use std::fmt;

/// Where in a file or an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Position {
    /// A line of text, from 1.
    Line(u64),
    /// A field of a line of text, both from 1.
    Field {
        /// The line.
        line: u64,
        /// The field in it.
        column: u64,
    },
    /// An element of an array, from 0.
    Element(u64),
    /// An element of a matrix, both from 0.
    Cell {
        /// The row.
        row: u64,
        /// The column.
        column: u64,
    },
}

impl Position {
    /// Element `at` of an array.
    pub fn element(at: usize) -> Self {
        Self::Element(at as u64)
    }

    /// Element `at` of a matrix of `columns` columns that is stored row by row.
    pub fn in_matrix(at: usize, columns: usize) -> Self {
        let columns = columns.max(1);
        Self::Cell { row: (at / columns) as u64, column: (at % columns) as u64 }
    }

    /// The number that is looked for first: of the line, of the element, of the row.
    pub fn number(self) -> u64 {
        match self {
            Self::Line(line) | Self::Field { line, .. } => line,
            Self::Element(at) => at,
            Self::Cell { row, .. } => row,
        }
    }
}

/// What is wrong, as text, and the position where there is one. The text says the position too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    text: String,
    position: Option<Position>,
}

impl Problem {
    /// What is wrong at `position`.
    pub fn at(position: Position, text: impl Into<String>) -> Self {
        Self { text: text.into(), position: Some(position) }
    }

    /// The same, said of a part of something.
    pub fn within(self, whole: &str) -> Self {
        Self { text: format!("{whole}: {}", self.text), ..self }
    }

    /// Where it is.
    pub fn position(&self) -> Option<Position> {
        self.position
    }
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self { text, position: None }
    }
}

impl From<&str> for Problem {
    fn from(text: &str) -> Self {
        text.to_string().into()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
