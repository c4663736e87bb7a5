//! Which program this is.

/// The version and, if it was built in a git checkout, the commit; see `build/commit.rs`.
pub(crate) const VERSION: &str = env!("GRAPHWEFT_VERSION");
