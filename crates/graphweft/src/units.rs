//! Numbers as people read them.

use graphweft_plan::explain;

/// A count with groups of three.
///
/// ```
/// assert_eq!(graphweft::units::count(1_234_567), "1 234 567");
/// ```
pub fn count(n: u64) -> String {
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

/// So many of something.
///
/// ```
/// use graphweft::units::counted;
/// assert_eq!((counted(1, "rank"), counted(2, "rank")), ("1 rank".into(), "2 ranks".into()));
/// ```
pub fn counted(n: usize, what: &str) -> String {
    explain::counted(n, what)
}

/// A size in binary units.
///
/// ```
/// assert_eq!(graphweft::units::bytes(5 << 29), "2.5 GiB");
/// ```
pub fn bytes(n: u64) -> String {
    explain::bytes(n)
}

/// A size as people write it.
///
/// ```
/// assert_eq!(graphweft::units::parse_bytes("8GiB"), Ok(8 << 30));
/// assert!(graphweft::units::parse_bytes("much").is_err());
/// ```
///
/// # Errors
/// What is wrong with it.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    graphweft_train::config::bytes(text)
}

/// A time of seconds, in milliseconds where that is short.
///
/// ```
/// assert_eq!(graphweft::units::milliseconds(0.0123), "12.3 ms");
/// ```
pub fn milliseconds(seconds: f64) -> String {
    explain::ms(seconds)
}

/// How far a time may be off, as a share of it.
///
/// ```
/// assert_eq!(graphweft::units::within(0.08), "±8 %");
/// ```
pub fn within(error: f64) -> String {
    explain::within(error)
}
