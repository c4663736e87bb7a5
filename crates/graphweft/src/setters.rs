//! Builders: methods that take a builder and give it back with one field changed.

/// `field: Type` takes the value of the field, `field: Type => f` takes what `f` makes a value of; `field = value`
/// takes nothing, and so does `name => field = value`, which is called otherwise than the field.
macro_rules! setters {
    () => {};
    ($(#[$doc:meta])* $field:ident: $kind:ty, $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub fn $field(self, $field: $kind) -> Self {
            Self { $field, ..self }
        }

        $crate::setters::setters! { $($rest)* }
    };
    ($(#[$doc:meta])* $field:ident: $kind:ty => $make:path, $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub fn $field(self, $field: $kind) -> Self {
            Self { $field: $make($field), ..self }
        }

        $crate::setters::setters! { $($rest)* }
    };
    ($(#[$doc:meta])* $field:ident = $value:expr, $($rest:tt)*) => {
        $crate::setters::setters! { $(#[$doc])* $field => $field = $value, $($rest)* }
    };
    ($(#[$doc:meta])* $name:ident => $field:ident = $value:expr, $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name(self) -> Self {
            Self { $field: $value, ..self }
        }

        $crate::setters::setters! { $($rest)* }
    };
}
pub(crate) use setters;
