//! `graphweft bench train`: one epoch of a model: forward, loss, backward and update.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use graphweft::{Bench, Run};

use super::{Common, DType, Input, at_least_one};
use crate::ranks::Spread;
use crate::shortcuts::{Flags, models};
use crate::ui::Ui;

/// What is computed again in backward instead of being kept.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Remat {
    /// Nothing
    None,
    /// Attention, with the projections of its operands
    Attention,
    /// Everything inside a layer
    Layer,
    /// The same, and in that again its attention
    Both,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) input: Input,

    #[command(flatten)]
    common: Common,

    #[arg(long, default_value = "gt", value_name = "NAME", help = models())]
    model: String,

    /// Layers
    #[arg(long, default_value_t = 4, value_name = "L")]
    layers: u32,

    /// Columns of the features [default: as --hidden]
    #[arg(long, value_name = "F", value_parser = at_least_one())]
    features: Option<usize>,

    /// Classes
    #[arg(long, default_value_t = 40, value_name = "C", value_parser = at_least_one())]
    classes: usize,

    /// Share of elements that dropout drops
    #[arg(long, default_value_t = 0.1, value_name = "RATE")]
    dropout: f64,

    /// What to compute again instead of keeping it
    #[arg(long, value_enum, default_value_t = Remat::None)]
    remat: Remat,

    #[command(flatten)]
    ranks: Spread,

    /// Time epochs as if ranks were elsewhere: shipped profiles, such as 16-cpu-10g, or TOML files with the network and
    /// how fast ranks compute; one run serves all
    #[arg(long, value_name = "NAME|FILE")]
    emulate: Vec<PathBuf>,

    /// Also time every kernel, beside what the planner expects of it
    #[arg(long)]
    kernels: bool,

    /// Other keys of the model and of training, e.g. model.heads=4
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

impl Args {
    /// What is timed.
    pub(super) fn bench(&self, ui: &Ui) -> Bench {
        let bench = self.common.bench(ui).classes(self.classes).emulate(&self.emulate);
        let bench = self.features.map_or(bench.clone(), |features| bench.features(features));
        if self.kernels { bench.kernels() } else { bench }
    }

    /// With which settings.
    pub(super) fn run(&self) -> Run {
        let mut flags = Flags::default();
        flags.set("model.name", Some(self.model.as_str()));
        flags.set("model.hidden", Some(self.common.hidden));
        flags.set("model.layers", Some(self.layers));
        flags.set("train.dropout", Some(self.dropout));
        flags.set("train.attention_dropout", Some(self.dropout));
        flags.set("compute.dtype", Some(if self.common.dtype == DType::Bf16 { "bf16" } else { "f32" }));
        let remat = self.remat.to_possible_value();
        flags.set("compute.remat", remat.as_ref().map(PossibleValue::get_name));
        // Where partitions may be stored.
        flags.set("data.path", self.input.source.folder().map(|folder| folder.display().to_string()));
        self.ranks.set(&mut flags);
        let run = Run::default();
        let run = flags.into_all().into_iter().fold(run, |run, (key, value)| run.set(key, value));
        self.settings.iter().fold(run, |run, setting| run.assign(setting))
    }
}
