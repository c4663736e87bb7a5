//! The models, one file each.

pub mod gat;
pub mod gcn;
pub mod gin;
pub mod gt;
pub mod mlp;
pub mod sage;
pub mod stack;

use graphweft_tensor::{Error, Result};

/// Fails unless `heads` can share `hidden` columns.
fn check_heads(op: &'static str, hidden: usize, heads: usize) -> Result<()> {
    if heads > 0 && hidden.is_multiple_of(heads) {
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
