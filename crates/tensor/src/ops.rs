//! Operations, one file each: the backward half as a tape node, and the trait that a backend implements for it.

pub mod activation;
pub mod attention;
pub mod dropout;
pub mod linear;
pub mod norm;
pub mod residual;
#[cfg(test)]
mod tests;
