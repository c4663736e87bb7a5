//! Operations, one file each: the backward half as a tape node, and the trait that a backend implements for it.

pub mod attention;
pub mod linear;
