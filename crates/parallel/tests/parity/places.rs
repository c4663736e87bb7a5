//! Tests that are the same wherever they compute.

/// A test of each name that calls a function with a place, with attributes of that place.
macro_rules! at {
    ($place:expr, $attributes:tt, { $($test:ident => $body:expr,)* }) => {
        $(at!(@one $place, $attributes, $test, $body);)*
    };
    (@one $place:expr, [$($attribute:meta),*], $test:ident, $body:expr) => {
        #[test]
        $(#[$attribute])*
        fn $test() {
            let body: fn($crate::DeviceName) = $body;
            body($place);
        }
    };
}
