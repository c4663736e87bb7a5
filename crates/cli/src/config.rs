//! `graphweft config`: every setting with its type, default and meaning.

use std::io::{self, Write as _};

use graphweft::Key;
use serde_json::{Value, json};

use crate::ui::Ui;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A setting, as train.lr, or a section, as train [default: all of them]
    #[arg(value_name = "KEY")]
    key: Option<String>,

    /// Print all of them as a page of Markdown
    #[arg(long, conflicts_with = "key")]
    markdown: bool,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    if args.markdown {
        return Ok(io::stdout().write_all(Key::markdown().as_bytes())?);
    }
    let keys = match &args.key {
        Some(name) => Key::find(name)?,
        None => Key::all(),
    };
    let one = |key: &Key| {
        json!({
            "key": key.name, "type": key.kind, "default": key.default, "meaning": key.meaning, "models": key.models,
        })
    };
    let json: Value = keys.iter().map(one).collect();
    ui.result(&json, || keys.iter().map(text).collect::<Vec<_>>().join("\n"))
}

fn text(key: &Key) -> String {
    let default = key.default.as_ref().map_or("unset".into(), |default| format!("default {default}"));
    let models = match &key.models[..] {
        [] => String::new(),
        models => format!("  models: {}\n", models.join(", ")),
    };
    format!("{}\n  {}; {default}\n{models}  {}\n", key.name, key.kind, key.meaning)
}
