//! What a key wants, in plain words.

use super::size;

/// The kind of value that serde expected where it said `message`, if that is one we know.
pub(super) fn kind(message: &str) -> Option<String> {
    let (_, expected) = message.trim_end().rsplit_once("expected ")?;
    Some(match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        size::WANTED => size::WANTED.into(),
        "a string" => "a text in quotes".into(),
        names if names.contains('`') => names.replace('`', ""),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_said_in_plain_words() {
        for (message, expected) in [
            ("invalid type: string \"3\", expected u64\n", Some("a whole number, 0 or more")),
            ("invalid type: string \"x\", expected f64", Some("a number")),
            ("invalid type: integer `3`, expected a boolean", Some("true or false")),
            ("unknown variant `x`, expected one of `adam`, `sgd`", Some("one of adam, sgd")),
            ("unknown variant `x`, expected `none` or `row`", Some("none or row")),
            ("there is no strategy", None),
        ] {
            assert_eq!(kind(message).as_deref(), expected, "{message}");
        }
    }
}
