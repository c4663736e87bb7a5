//! Settings of a run beside their defaults.

use serde::Serialize;
use toml::{Table, Value};

/// One key of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Setting {
    /// `section.key`.
    pub(crate) key: String,
    /// As the file has it.
    pub(crate) value: String,
    /// What it would be if nobody had said anything; nothing where that is not known.
    pub(crate) default: Option<String>,
}

/// All keys of `config`, each with its value in `defaults`.
pub(crate) fn compare(config: &Table, defaults: &Table) -> Vec<Setting> {
    let known = flat(defaults);
    let default_of = |key: &str| known.iter().find(|(other, _)| other == key).map(|(_, value)| value.clone());
    let all = flat(config).into_iter();
    all.map(|(key, value)| Setting { default: default_of(&key), key, value }).collect()
}

/// The value of `section.key`, as text without quotes.
pub(crate) fn text(config: &Table, section: &str, key: &str) -> Option<String> {
    config.get(section)?.get(key).map(plain)
}

fn flat(table: &Table) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (section, values) in table {
        match values {
            Value::Table(inner) => all.extend(flat(inner).into_iter().map(|(k, v)| (format!("{section}.{k}"), v))),
            value => all.push((section.clone(), plain(value))),
        }
    }
    all
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_default_beside_it() {
        let config: Table = "[train]\nlr = 0.01\n[model]\nname = \"gt\"\nheads = 4\n".parse().unwrap();
        let defaults: Table = "[train]\nlr = 0.001\n[model]\nname = \"gt\"\n".parse().unwrap();
        let all = compare(&config, &defaults);
        let of = |key: &str| all.iter().find(|s| s.key == key).unwrap().clone();
        assert_eq!((of("train.lr").value, of("train.lr").default), ("0.01".into(), Some("0.001".into())));
        assert_eq!(of("model.name").default.as_deref(), Some("gt"));
        assert_eq!(of("model.heads").default, None);
        assert_eq!(text(&config, "model", "name").as_deref(), Some("gt"));
    }
}
