//! Short forms of the settings that are changed most, for the verbs that train or plan to.

use graphweft::{Run, Setting};

/// All models, for a help text.
pub(crate) fn models() -> String {
    let names = Run::models();
    match names.split_last() {
        Some((last, others)) => format!("Model: {} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[derive(clap::Args)]
pub(crate) struct Shortcuts {
    /// How often to go through the data: train.epochs
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,

    /// Learning rate: train.lr
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    lr: Option<f64>,

    /// Width of a layer: model.hidden
    #[arg(long, value_name = "D")]
    hidden: Option<u32>,

    /// Layers: model.layers
    #[arg(long, value_name = "L")]
    layers: Option<u32>,

    /// Share of elements that dropout drops: train.dropout
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    dropout: Option<f64>,
}

impl Shortcuts {
    /// Adds what was given to the settings.
    pub(crate) fn set(&self, flags: &mut Flags) {
        flags.set("train.epochs", self.epochs);
        flags.set("model.hidden", self.hidden);
        flags.set("model.layers", self.layers);
        flags.set("train.lr", self.lr);
        flags.set("train.dropout", self.dropout);
    }
}

/// Settings that flags are short forms of.
#[derive(Default)]
pub(crate) struct Flags(Vec<(&'static str, Setting)>);

impl Flags {
    /// Adds a flag, if it was given.
    pub(crate) fn set(&mut self, key: &'static str, value: Option<impl Into<Setting>>) {
        self.0.extend(value.map(|value| (key, value.into())));
    }

    /// Whether a flag says this setting.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| *name == key)
    }

    /// All of them.
    pub(crate) fn into_all(self) -> Vec<(&'static str, Setting)> {
        self.0
    }
}
