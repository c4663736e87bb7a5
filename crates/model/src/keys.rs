//! The keys of a section, asked of what serde derives.

use std::fmt;

use serde::de::value::MapDeserializer;
use serde::de::{self, DeserializeOwned};

/// The keys of a model in the `[model]` section, each with its default.
macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident: $kind:ty = $default:expr,)*) => {
        /// Keys of the `[model]` section.
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Config {
            $($(#[$doc])* pub $key: $kind,)*
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }
    };
}
pub(crate) use keys;

/// The names of the fields that the struct `T` is deserialised from, in their order.
///
/// It must refuse unknown ones (`deny_unknown_fields`), or nothing is known of it.
pub fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let nameless = [("", "")].into_iter();
    match T::deserialize(MapDeserializer::<_, Refusal>::new(nameless)) {
        Err(Refusal::Field(expected)) => expected,
        _ => &[],
    }
}

/// The comment on the field `name` in the source of a struct, as one line without links.
///
/// ```
/// let source = "pub struct Config {\n    /// Columns of\n    /// a [layer](crate::Layer).\n    pub hidden: usize,\n}";
/// assert_eq!(graphweft_model::comment_on_field(source, "hidden").as_deref(), Some("Columns of a layer."));
/// ```
pub fn comment_on_field(source: &str, name: &str) -> Option<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_field = |at: &usize| names(lines[*at].strip_prefix("pub ").unwrap_or(lines[*at]), name);
    // Where a value is given to a field, nothing is said about it.
    (0..lines.len()).filter(is_field).find_map(|field| {
        let above = lines[..field].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
        let mut comment: Vec<&str> = above.filter_map(|line| line.strip_prefix("///")).map(str::trim).collect();
        comment.reverse();
        if comment.is_empty() { None } else { Some(without_links(&comment.join(" "))) }
    })
}

/// Whether a declaration is of this field.
fn names(declaration: &str, field: &str) -> bool {
    declaration.strip_prefix(field).is_some_and(|rest| rest.starts_with(':'))
}

/// `[words](target)` as the words, and `[word]` in quotes as it is.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let Some((words, after)) = after.split_once(']') else {
            rest = after;
            break;
        };
        out.push_str(words);
        rest = match after.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    out.push_str(rest);
    out
}

/// Why a map cannot become a `T`: serde hands us the names it knows when it meets one that it does not.
#[derive(Debug)]
enum Refusal {
    Field(&'static [&'static str]),
    Other,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<D: fmt::Display>(_: D) -> Self {
        Self::Other
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::Field(expected)
    }
}
