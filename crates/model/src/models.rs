//! The models, one file each.

pub mod exphormer;
pub mod gat;
pub mod gcn;
pub mod gcnii;
pub mod gin;
pub mod gps;
pub mod gt;
pub mod mlp;
pub mod polynormer;
pub mod sage;
pub mod sgformer;
pub mod stack;

use graphweft_tensor::{Error, Result};

use crate::network::Shape;

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
    let problem = format!("{op} takes no positional encodings: leave them out, or take gt, gps or exphormer");
    Err(Error::Argument { op, problem })
}
