//! The value of a setting.

use toml::Value;

/// The value of a setting: a truth value, a number or a text. [`Run::set`](crate::Run::set) takes all that becomes one.
///
/// ```
/// use graphweft::{Run, Setting};
/// let run = Run::new("cora").set("train.lr", 1e-3).set("train.epochs", 20).set("train.schedule", "cosine");
/// assert_eq!(Setting::from("cosine").to_string(), "\"cosine\"");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Setting(pub(crate) Value);

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! from {
    ($($kind:ty => $make:expr),*) => {
        $(impl From<$kind> for Setting {
            fn from(value: $kind) -> Self {
                Self($make(value))
            }
        })*
    };
}

/// Counts beyond what TOML can hold become numbers that no setting takes.
fn count(value: u64) -> Value {
    i64::try_from(value).map_or_else(|_| Value::Float(value as f64), Value::Integer)
}

from! {
    bool => Value::Boolean,
    i32 => |x| Value::Integer(i64::from(x)),
    i64 => Value::Integer,
    u32 => |x| Value::Integer(i64::from(x)),
    u64 => count,
    usize => |x| count(x as u64),
    f32 => |x| Value::Float(f64::from(x)),
    f64 => Value::Float,
    &str => |x: &str| Value::String(x.into()),
    String => Value::String
}
