//! Numbers as people read them.

use std::fmt;

use graphweft_plan::explain;
use graphweft_train::config::Config;

/// A number as people read it.
///
/// ```
/// use graphweft::Amount;
/// assert_eq!(Amount::Count(1_234_567).to_string(), "1 234 567");
/// assert_eq!(Amount::Bytes(5 << 29).to_string(), "2.5 GiB");
/// assert_eq!(Amount::Seconds(0.0123).to_string(), "12.3 ms");
/// assert_eq!(Amount::Within(0.08).to_string(), "±8 %");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Amount {
    /// How many, with groups of three digits.
    Count(u64),
    /// A size, in binary units.
    Bytes(u64),
    /// A time in seconds, shown in milliseconds where it is short.
    Seconds(f64),
    /// How far a number may be off, as a share of it.
    Within(f64),
}

impl Amount {
    /// The bytes of a size as people write it.
    ///
    /// ```
    /// use graphweft::Amount;
    /// assert_eq!(Amount::parse_bytes("8GiB"), Ok(8 << 30));
    /// assert!(Amount::parse_bytes("much").is_err());
    /// ```
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_bytes(text: &str) -> Result<u64, String> {
        Config::parse_bytes(text)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match *self {
            Self::Count(n) => count(n),
            Self::Bytes(n) => explain::bytes(n),
            Self::Seconds(seconds) => explain::ms(seconds),
            Self::Within(error) => explain::within(error),
        })
    }
}

/// A count with groups of three.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (k, c) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}
