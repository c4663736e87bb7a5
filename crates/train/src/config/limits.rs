//! Counts that nobody means: refused before memory is asked for, or a loop goes on for years.

use toml::{Table, Value};

use crate::error::{Error, Result};

/// The most that some keys may be.
const MOST: [(&str, &str, i64); 6] = [
    ("encoding", "laplacian", 1000),
    ("encoding", "random_walk", 1000),
    ("link", "layers", 4096),
    ("link", "hidden", 1 << 40),
    ("train", "epochs", 1_000_000_000),
    ("run", "seeds", 10_000),
];
/// The most that a count of a model may be whose key ends so. How many columns fit is found where they are allocated.
const OF_MODELS: [(&str, i64); 5] = [
    ("layers", 4096),
    ("virtual_nodes", 4096),
    ("expander_degree", 1000),
    ("heads", 1 << 20),
    // All others, so that no product of two counts is beyond what a number holds.
    ("", 1 << 40),
];

/// Checks all settings, by section.
pub(super) fn check(settings: &Table) -> Result<()> {
    let of = |section: &str| settings.get(section).and_then(Value::as_table);
    for (section, key, most) in MOST {
        check_one(section, key, of(section).and_then(|s| s.get(key)), most)?;
    }
    let mut model = of("model").into_iter().flatten();
    model.try_for_each(|(key, value)| {
        let most = OF_MODELS.iter().find(|(end, _)| key.ends_with(end)).map_or(i64::MAX, |(_, most)| *most);
        check_one("model", key, Some(value), most)
    })
}

fn check_one(section: &str, key: &str, value: Option<&Value>, most: i64) -> Result<()> {
    match value.and_then(Value::as_integer) {
        Some(count) if count > most => {
            let problem = format!("{count} are more than the {most} that are supported");
            Err(Error::setting(format!("{section}.{key}"), problem, "set fewer"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Draft;

    #[test]
    fn counts_that_nobody_means_are_refused_by_name() {
        for setting in [
            "model.hidden=9223372036854775807",
            "model.heads=1000000000",
            "model.layers=1000000000",
            "encoding.laplacian=1000000",
            "encoding.random_walk=1000000",
            "train.epochs=1000000000000000000",
            "run.seeds=1000000000",
        ] {
            let mut draft = Draft::default();
            draft.assign("data.graph=sbm:60:3:4").unwrap();
            draft.assign(setting).unwrap();
            let message = draft.finish().unwrap_err().to_string();
            let (key, count) = setting.split_once('=').unwrap();
            assert!(message.contains(key) && message.contains(count) && message.contains("set fewer"), "{message}");
        }
    }
}
