//! Every setting, for people.

use graphweft_train::config::reference;

use crate::error::{Error, Result};

/// A setting: what it can be, what it is if nothing is said, and what it means.
///
/// ```
/// let lr = &graphweft::Key::find("train.lr")?[0];
/// assert_eq!((lr.kind.as_str(), lr.default.as_deref()), ("a number", Some("0.001")));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Key {
    /// `section.key`.
    pub name: String,
    /// What it can be, in words.
    pub kind: String,
    /// What it is if nothing is said; `None` if it is then unset.
    pub default: Option<String>,
    /// What it means.
    pub meaning: String,
    /// For keys of `[model]`, the models that have it so.
    pub models: Vec<&'static str>,
}

impl Key {
    /// All settings, section by section. A key that models have with other defaults is there once for each of these.
    ///
    /// ```
    /// assert!(graphweft::Key::all().iter().any(|key| key.name == "parallel.ranks"));
    /// ```
    pub fn all() -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for reference::Key { name, kind, default, meaning, model } in reference::Key::all() {
            let mut key = Self { name, kind, default, meaning, models: Vec::new() };
            match all.iter_mut().find(|other| Self { models: Vec::new(), ..(*other).clone() } == key) {
                Some(same) => same.models.extend(model),
                None => {
                    key.models.extend(model);
                    all.push(key);
                }
            }
        }
        all
    }

    /// The settings of this name, or of this section.
    ///
    /// # Errors
    /// If there are none; with those that have a name like it.
    pub fn find(name: &str) -> Result<Vec<Self>> {
        let name = name.trim();
        let within = |key: &Self| key.name == name || key.name.split('.').next() == Some(name);
        let (found, others): (Vec<Self>, Vec<Self>) = Self::all().into_iter().partition(within);
        if !found.is_empty() {
            return Ok(found);
        }
        let last = name.rsplit('.').next().unwrap_or(name);
        let mut like: Vec<String> = others.into_iter().map(|key| key.name).filter(|key| key.contains(last)).collect();
        like.dedup();
        let remedy = match like.is_empty() {
            true => "`graphweft config` lists all of them".into(),
            false => format!("did you mean {}?", like.join(" or ")),
        };
        Err(Error::request(format!("there is no setting {name:?}"), remedy))
    }

    /// All settings as a page of Markdown: `docs/config.md`.
    pub fn markdown() -> String {
        let mut page = String::from(PAGE);
        let all = Self::all();
        for (section, about) in SECTIONS {
            page += &format!("\n## [{section}]\n\n{about}\n\n");
            let of_models = section == "model";
            page +=
                if of_models { "| key | models | type | default | meaning |\n|---|---|---|---|---|\n" } else { HEADER };
            for key in all.iter().filter(|key| key.name.split('.').next() == Some(section)) {
                let models = if of_models { format!(" {} |", key.models.join(", ")) } else { String::new() };
                let default = key.default.as_ref().map_or("–".into(), |default| format!("`{default}`"));
                let Self { name, kind, meaning, .. } = key;
                page += &format!("| `{name}` |{models} {kind} | {default} | {meaning} |\n");
            }
        }
        page
    }
}

const PAGE: &str = "# Configuration

Every setting of a run. In a TOML file, `train.lr` is the key `lr` below `[train]`; on the command line it is written
`train.lr=0.01`; in Rust, `run.set(\"train.lr\", 0.01)`. A dash means that it is unset. `graphweft config KEY` says the
same of one.

This page is made from the code by `graphweft config --markdown`, and a test holds it true.
";
const HEADER: &str = "| key | type | default | meaning |\n|---|---|---|---|\n";
const SECTIONS: [(&str, &str); 11] = [
    ("data", "Which graph, and what is done to it."),
    ("encoding", "Positional encodings: where a node is, as columns beside its features."),
    ("model", "Which model, and its keys. A key that differs from model to model has a row for each default."),
    ("link", "How it is learned which links there are."),
    ("train", "How parameters are found."),
    ("compute", "With which numbers, and what is kept."),
    ("parallel", "How many ranks, and how the work is spread over them."),
    ("wire", "How rows are written for other ranks, under `halo`, `ring` and `gather`."),
    ("pipeline", "For the strategy `pipeline`: how chunks pass through stages."),
    ("isolated", "For the strategy `isolated`: training on pieces of the graph."),
    ("run", "Seeds and checkpoints."),
];
