//! Errors as Python exceptions: one class per meaning of an exit code; file, field, position and remedy are attributes.

use std::fmt::Display;

use graphweft::{Error, ErrorKind, Position};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The exception of an error; see `graphweft._errors`.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    made(py, error).unwrap_or_else(|failure| failure)
}

fn made(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let name = match error.kind() {
        ErrorKind::Usage => "UsageError",
        ErrorKind::BadInput => "InputError",
        ErrorKind::DoesNotFit => "DoesNotFit",
        ErrorKind::RankLost => "RankLost",
        ErrorKind::Stopped => "Stopped",
        _ => "GraphweftError",
    };
    let details = PyDict::new(py);
    details.set_item("file", error.file().map(|path| path.display().to_string()))?;
    details.set_item("field", error.field())?;
    details.set_item("position", error.position().map(words))?;
    details.set_item("problem", error.problem())?;
    details.set_item("remedy", error.remedy())?;
    details.set_item("checkpoint", error.checkpoint().map(|path| path.display().to_string()))?;
    exception(py, name, &error.to_string(), &details)
}

/// An exception of the class that all others are of.
pub(crate) fn failed(py: Python<'_>, problem: &str, remedy: &str) -> PyErr {
    of_class(py, "GraphweftError", problem, remedy)
}

/// What a wrong argument is: the call is wrong, not the data.
pub(crate) fn usage(problem: impl Display, remedy: &str) -> PyErr {
    Python::attach(|py| of_class(py, "UsageError", &problem.to_string(), remedy))
}

fn of_class(py: Python<'_>, class: &str, problem: &str, remedy: &str) -> PyErr {
    let made = || {
        let details = PyDict::new(py);
        details.set_item("problem", problem)?;
        details.set_item("remedy", remedy)?;
        exception(py, class, &format!("{problem}\n  remedy: {remedy}"), &details)
    };
    made().unwrap_or_else(|failure| failure)
}

fn exception(py: Python<'_>, name: &str, message: &str, details: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let class = py.import("graphweft._errors")?.getattr(name)?;
    Ok(PyErr::from_value(class.call((message,), Some(details))?))
}

/// A position as the message has it.
fn words(position: Position) -> String {
    match position {
        Position::Line(line) => format!("line {line}"),
        Position::Field { line, column } => format!("line {line}, column {column}"),
        Position::Element(at) => format!("element {at}"),
        Position::Cell { row, column } => format!("row {row}, column {column}"),
        other => format!("{other:?}"),
    }
}

/// The result of the facade, for Python.
pub(crate) trait Raise<T> {
    fn raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raise<T> for graphweft::Result<T> {
    fn raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, &error))
    }
}
