//! Files with a JSON object per line, turned into columns.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Numbers by key, each with an entry per line; `null` where a line has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Columns {
    by_key: BTreeMap<String, Vec<Option<f64>>>,
    /// What is no number, with the place of its line: how far an approximate pass was from an exact one, say.
    pub(crate) objects: Vec<(usize, String, Value)>,
    lines: usize,
    /// Lines of the text, with empty ones.
    read: usize,
}

impl Columns {
    /// Reads `text`. The first line that is no JSON object ends it, and is named: a killed run cuts its last one short.
    #[cfg(test)]
    pub(crate) fn read(text: &str) -> (Self, Option<usize>) {
        let mut columns = Self::default();
        let cut = columns.extend(text);
        (columns, cut)
    }

    /// Reads what comes next, up to the first line that is no JSON object; its number is returned.
    pub(crate) fn extend(&mut self, text: &str) -> Option<usize> {
        for line in text.lines() {
            self.read += 1;
            if line.trim().is_empty() {
                continue;
            }
            match serde_json::from_str::<Map<String, Value>>(line) {
                Ok(object) => self.add(object),
                Err(_) => return Some(self.read),
            }
        }
        None
    }

    fn add(&mut self, object: Map<String, Value>) {
        for (key, value) in object {
            match value {
                Value::Object(_) | Value::Array(_) | Value::String(_) => self.objects.push((self.lines, key, value)),
                number => {
                    let column = self.by_key.entry(key).or_default();
                    column.resize(self.lines, None);
                    // JSON has no NaN: what could not be scored is null.
                    column.push(number.as_f64().filter(|x| x.is_finite()));
                }
            }
        }
        self.lines += 1;
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.lines
    }

    /// One column; empty where no line has this key.
    pub(crate) fn get(&self, key: &str) -> &[Option<f64>] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    /// As the page reads it.
    pub(crate) fn to_json(&self) -> Value {
        let whole = |column: &Vec<Option<f64>>| {
            let mut column = column.clone();
            column.resize(self.lines, None);
            Value::from(column)
        };
        Value::Object(self.by_key.iter().map(|(key, column)| (key.clone(), whole(column))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_columns_and_gaps_stay_gaps() {
        let text = "{\"epoch\":1,\"loss\":0.5}\n{\"epoch\":2,\"loss\":null,\"valid\":7}\n\n{\"epoch\":3,\"guard\":{\"a\":1}}\n";
        let (columns, cut) = Columns::read(text);
        assert_eq!((columns.len(), cut), (3, None));
        assert_eq!(columns.get("loss"), [Some(0.5), None]);
        assert_eq!(columns.to_json()["valid"], serde_json::json!([null, 7.0, null]));
        assert_eq!(columns.objects.len(), 1);
        assert_eq!(columns.objects[0].0, 2);
    }

    #[test]
    fn a_line_that_was_cut_short_ends_the_columns_and_is_named() {
        let (columns, cut) = Columns::read("{\"epoch\":1}\n{\"epo");
        assert_eq!((columns.len(), cut), (1, Some(2)));
    }
}
