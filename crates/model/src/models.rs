//! The models, one file each, and their table.
//!
//! A model is its file and its line here: its `Config` says everything else ([`Model`](crate::Model)).

pub mod stack;

use graphweft_tensor::{Error, Result};

use crate::config::ModelKind;
use crate::keys::comment_on_field;
use crate::model::ModelKeys;
use crate::network::Shape;

/// Declares the files and lists what their `Config`s say.
macro_rules! models {
    ($($file:ident,)*) => {
        $(pub mod $file;)*

        /// The models of this crate, in the order in which users see them.
        pub(crate) const BUILT_IN: &[ModelKind] = &[$(ModelKind::of::<$file::Config>(),)*];

        /// The files, which document the keys, by the names of the models.
        const SOURCES: &[(&str, &str)] =
            &[$((<$file::Config as ModelKeys>::NAME, include_str!(concat!("models/", stringify!($file), ".rs"))),)*];
    };
}

models! {
    gt,
    exphormer,
    gps,
    sgformer,
    polynormer,
    gcn,
    sage,
    gat,
    gatv2,
    gin,
    rgcn,
    hgt,
    simple_hgn,
    compgcn,
    gcnii,
    appnp,
    sign,
    mlp,
}

/// What a key of a model of this crate means: the comment on its field, or on that of the stack of layers or of the
/// model whose keys it shares.
pub fn meaning_of(model: &str, key: &str) -> Option<String> {
    let own = SOURCES.iter().find(|(name, _)| *name == model)?.1;
    let others = SOURCES.iter().map(|(_, source)| *source);
    [own, include_str!("models/stack.rs")].into_iter().chain(others).find_map(|source| comment_on_field(source, key))
}

/// Fails unless `heads` can share `hidden` columns.
fn check_heads(op: &'static str, hidden: usize, heads: usize) -> Result<()> {
    if heads > 0 && hidden > 0 && hidden.is_multiple_of(heads) {
        return Ok(());
    }
    let problem = format!(
        "model.hidden = {hidden} cannot be shared by model.heads = {heads}: take a number of heads that divides it"
    );
    Err(Error::Argument { op, problem })
}

/// Fails unless there is a layer.
fn check_layers(op: &'static str, layers: usize) -> Result<()> {
    if layers > 0 {
        return Ok(());
    }
    Err(Error::Argument { op, problem: "model.layers = 0: it takes at least one".into() })
}

/// Fails unless a share is between 0 and 1.
fn check_share(op: &'static str, key: &str, share: f64) -> Result<()> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    Err(Error::Argument { op, problem: format!("model.{key} = {share}: it is a share, between 0 and 1") })
}

/// Fails if there are positional encodings.
fn no_encodings(op: &'static str, shape: &Shape) -> Result<()> {
    if shape.positional == 0 {
        return Ok(());
    }
    let problem = format!(
        "{op} takes no positional encodings: leave them out, or take gt, gps, exphormer or a stack of \
                          layers with model.stack = \"tuned\" and model.input_linear = true"
    );
    Err(Error::Argument { op, problem })
}
