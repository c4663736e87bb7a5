//! Memory for sorting, as people write sizes.

use graphweft::Amount;

/// What sorting takes at least.
const LEAST_FOR_SORTING: u64 = 1 << 20;

/// Parses it: with less, runs are so short that merging them costs more than it saves.
pub(crate) fn for_sorting(text: &str) -> Result<u64, String> {
    Amount::parse_bytes(text).and_then(|bytes| match bytes {
        LEAST_FOR_SORTING.. => Ok(bytes),
        _ => Err("this is too little to sort in: give at least 1MiB".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::for_sorting;

    #[test]
    fn too_little_to_sort_in_is_refused() {
        assert_eq!(for_sorting("1MiB"), Ok(1 << 20));
        for bad in ["10", "1KiB", "1048575", "much"] {
            assert!(for_sorting(bad).is_err(), "{bad}");
        }
    }
}
