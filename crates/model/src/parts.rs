//! Pieces that several models share.

pub mod head;
pub mod input;
pub mod norm;
