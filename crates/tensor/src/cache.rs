//! Where things are kept that are dear to make: compiled kernels, measurements of the machine.

use std::path::PathBuf;

/// `$GRAPHWEFT_CACHE`, or the user's cache folder; nothing where there is neither.
pub fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|x| !x.is_empty()).map(PathBuf::from);
    set("GRAPHWEFT_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|x| x.join("graphweft")))
        .or_else(|| set("HOME").map(|x| x.join(".cache/graphweft")))
}
