//! What can be said about a graph in numbers. One file per question; all are exact, parallel and need O(N) memory at
//! most.

mod components;
mod degree;
mod homophily;

pub use components::{Components, components};
pub use degree::{Bin, Degrees, degrees};
pub use homophily::{class_counts, edge_homophily};
