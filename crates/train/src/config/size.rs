//! Sizes as people write them: `512MiB`, `8GiB`, `1.5GB`, `1000000`.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

use super::Config;

/// What a key for a size wants.
pub(super) const WANTED: &str = "a size, such as 512MiB, 8GiB or a number of bytes";

impl Config {
    /// The bytes of a size.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    ///
    /// ```
    /// assert_eq!(graphweft_train::config::Config::parse_bytes("1.5GiB"), Ok(3 << 29));
    /// ```
    pub fn parse_bytes(text: &str) -> Result<u64, String> {
        bytes(text)
    }
}

fn bytes(text: &str) -> Result<u64, String> {
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
    let found = match number.parse::<u64>() {
        Ok(n) => n.checked_mul(factor),
        Err(_) => match number.parse::<f64>() {
            Ok(x) => Some(x * factor as f64).filter(|b| *b < 9e18).map(|b| b as u64),
            Err(_) => return Err(format!("{number:?} is no number")),
        },
    };
    found.ok_or_else(|| "this is more than any machine has".to_string())
}

/// A size of a configuration file: a number of bytes, or a text.
pub(super) fn maybe<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    struct Size;
    impl Visitor<'_> for Size {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(WANTED)
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
            Ok(value)
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
            u64::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            bytes(text).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
        }
    }
    from.deserialize_any(Size).map(Some)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        assert_eq!(bytes("8 gib"), Ok(8 << 30));
        assert_eq!(bytes("1.5G"), Ok(3 << 29));
        assert_eq!(bytes("2MB"), Ok(2_000_000));
        assert_eq!(bytes("77"), Ok(77));
        for bad in ["", "MiB", "1XB", "-1", "1.2.3", "99999999999TiB", "1e3"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
