//! Where files have the settings that a draft took from them, so that what is wrong with one is said of its line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use graphweft_base::{Error as Bad, Position, Problem};
use toml::de::{DeTable, DeValue};

use crate::error::Error;

/// File and line, from 1, by `section.key`.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(BTreeMap<String, (PathBuf, usize)>);

impl Places {
    /// Those of the text of a file; `section` is where it is first opened.
    pub(super) fn of(text: &str, path: &Path) -> Self {
        let mut all = BTreeMap::new();
        let mut add = |name: String, at: usize| drop(all.insert(name, (path.to_path_buf(), line(text, at))));
        let Ok(table) = DeTable::parse(text) else { return Self::default() };
        for (section, content) in table.get_ref() {
            add(section.get_ref().to_string(), section.span().start);
            let DeValue::Table(content) = content.get_ref() else { continue };
            for key in content.keys() {
                add(format!("{}.{}", section.get_ref(), key.get_ref()), key.span().start);
            }
        }
        Self(all)
    }

    /// Takes that of a setting over, or forgets it: it was given elsewhere.
    pub(super) fn take(&mut self, name: &str, from: &Self) {
        match from.0.get(name) {
            Some(place) => self.0.insert(name.into(), place.clone()),
            None => self.0.remove(name),
        };
    }

    /// Adds its place to what is wrong with a setting.
    pub(super) fn name(&self, error: Error) -> Error {
        match error {
            Error::Setting { key, problem, remedy } => match self.0.get(&key) {
                Some((file, line)) => {
                    let problem = Problem::at(Position::Line(*line as u64), format!("line {line}: {problem}"));
                    Bad::bad(file, key, problem, remedy).into()
                }
                None => Error::Setting { key, problem, remedy },
            },
            other => other,
        }
    }
}

/// The line, from 1, of a place in a text.
pub(super) fn line(text: &str, at: usize) -> usize {
    text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}
