//! Short forms of the settings that are changed most, for the verbs that train or plan to.

use graphweft_train::config::Draft;

/// All models.
pub(crate) const MODELS: &str =
    "Model: gt, exphormer, gps, sgformer, polynormer, gcn, sage, gat, gatv2, gin, gcnii or mlp";

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
    /// Adds what was given to a configuration in the making.
    pub(crate) fn set(&self, draft: &mut Draft) -> anyhow::Result<()> {
        let &Self { epochs, lr, hidden, layers, dropout } = self;
        for (section, key, value) in
            [("train", "epochs", epochs), ("model", "hidden", hidden), ("model", "layers", layers)]
        {
            if let Some(value) = value {
                draft.set(section, key, i64::from(value))?;
            }
        }
        for (key, value) in [("lr", lr), ("dropout", dropout)] {
            if let Some(value) = value {
                draft.set("train", key, value)?;
            }
        }
        Ok(())
    }
}
