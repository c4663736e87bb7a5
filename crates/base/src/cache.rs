//! Where things are kept that are dear to make: compiled kernels, measurements of the machine, what was found valid.

use std::ffi::OsString;
use std::path::PathBuf;

/// `$GRAPHWEFT_CACHE`, or the user's cache folder; nothing where there is neither.
pub fn cache_folder() -> Option<PathBuf> {
    folder(|name| std::env::var_os(name))
}

fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|x| !x.is_empty()).map(PathBuf::from);
    set("GRAPHWEFT_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|x| x.join("graphweft")))
        .or_else(|| set("HOME").map(|x| x.join(".cache/graphweft")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_says_where_things_are_kept() {
        let found = |set: &[&str]| {
            let value = |name: &str| set.contains(&name).then(|| OsString::from(format!("/{name}")));
            folder(value).map(|path| path.display().to_string())
        };
        let all = ["GRAPHWEFT_CACHE", "XDG_CACHE_HOME", "HOME"];
        assert_eq!(found(&all).as_deref(), Some("/GRAPHWEFT_CACHE"));
        assert_eq!(found(&all[1..]).as_deref(), Some("/XDG_CACHE_HOME/graphweft"));
        assert_eq!(found(&all[2..]).as_deref(), Some("/HOME/.cache/graphweft"));
        assert_eq!(found(&[]), None);
    }
}
