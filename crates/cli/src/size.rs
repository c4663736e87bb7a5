//! Sizes as people write them: `512MiB`, `8GiB`, `1.5GB`, `1000000`.

/// What sorting takes at least.
const LEAST_FOR_SORTING: u64 = 1 << 20;

/// Parses a number of bytes.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(format!("{unit:?} is no unit: use KiB, MiB, GiB or TiB")),
    };
    let bytes = match number.parse::<u64>() {
        Ok(n) => n.checked_mul(factor),
        Err(_) => match number.parse::<f64>() {
            Ok(x) => Some(x * factor as f64).filter(|b| *b < 9e18).map(|b| b as u64),
            Err(_) => return Err(format!("{number:?} is no number")),
        },
    };
    bytes.ok_or_else(|| "this is more than any machine has".to_string())
}

/// Parses the memory for sorting: with less, runs are so short that merging them costs more than it saves.
pub(crate) fn for_sorting(text: &str) -> Result<u64, String> {
    parse(text).and_then(|bytes| match bytes {
        LEAST_FOR_SORTING.. => Ok(bytes),
        _ => Err("this is too little to sort in: give at least 1MiB".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::{for_sorting, parse};

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse("512MiB"), Ok(512 << 20));
        assert_eq!(parse("8 gib"), Ok(8 << 30));
        assert_eq!(parse("1.5G"), Ok(3 << 29));
        assert_eq!(parse("2MB"), Ok(2_000_000));
        assert_eq!(parse("77"), Ok(77));
        for bad in ["", "MiB", "1XB", "-1", "1.2.3", "99999999999TiB", "1e3"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn too_little_to_sort_in_is_refused() {
        assert_eq!(for_sorting("1MiB"), Ok(1 << 20));
        for bad in ["10", "1KiB", "1048575", "much"] {
            assert!(for_sorting(bad).is_err(), "{bad}");
        }
    }
}
