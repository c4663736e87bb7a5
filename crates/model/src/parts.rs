//! Pieces that several models share.

pub mod activation;
pub mod head;
pub mod input;
pub mod norm;
pub mod readout;
pub mod remat;
