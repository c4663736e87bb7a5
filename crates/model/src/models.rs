//! The models, one file each.

pub mod gt;
pub mod mlp;
