//! The keys of a section, and what a user who wrote another one may have meant.

use std::fmt;

use serde::de::value::MapDeserializer;
use serde::de::{self, Deserialize};

/// The names of the fields that `T` is deserialised from; for an enum with a tag, those of the variant that `given` names.
pub(super) fn fields_of<T: for<'de> Deserialize<'de>>(given: &[(&str, &str)]) -> &'static [&'static str] {
    match ask::<T>(given.iter().copied().chain([("", "")])) {
        Some(Refusal::Field(expected)) => expected,
        _ => &[],
    }
}

/// The names of the variants of `T`, told apart by `tag`.
pub(super) fn variants_of<T: for<'de> Deserialize<'de>>(tag: &str) -> &'static [&'static str] {
    match ask::<T>([(tag, "")].into_iter()) {
        Some(Refusal::Variant(expected)) => expected,
        _ => &[],
    }
}

fn ask<'a, T: for<'de> Deserialize<'de>>(map: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Refusal> {
    T::deserialize(MapDeserializer::new(map)).err()
}

/// Why a map cannot become a `T`: serde hands us the names it knows when it meets one that it does not.
#[derive(Debug)]
enum Refusal {
    Field(&'static [&'static str]),
    Variant(&'static [&'static str]),
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

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::Variant(expected)
    }
}

/// The candidate that takes the fewest edits to become `word`, if it is anything like it.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = word.chars().count() / 2;
    let near = candidates.into_iter().map(|c| (edits(word, c), c));
    near.min_by_key(|(distance, _)| *distance).filter(|(distance, _)| *distance <= limit).map(|(_, c)| c)
}

/// Insertions, deletions and replacements between two words.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use graphweft_model::ModelConfig;

    use super::*;

    #[test]
    fn the_nearest_word_is_offered_and_a_far_one_is_not() {
        let keys = ["epochs", "lr", "weight_decay", "warmup"];
        assert_eq!(nearest("epoch", keys), Some("epochs"));
        assert_eq!(nearest("weigth_decay", keys), Some("weight_decay"));
        assert_eq!(nearest("learning_rate_of_all", keys), None);
        assert_eq!((edits("", "abc"), edits("kitten", "sitting"), edits("ab", "ba")), (3, 3, 2));
    }

    #[test]
    fn fields_are_those_of_the_struct_or_the_variant() {
        assert_eq!(fields_of::<super::super::RunConfig>(&[]), ["seed", "seeds", "checkpoint_every", "keep"]);
        assert!(fields_of::<ModelConfig>(&[("name", "gt")]).contains(&"heads"));
        assert!(!fields_of::<ModelConfig>(&[("name", "mlp")]).contains(&"heads"));
        assert!(variants_of::<ModelConfig>("name").contains(&"mlp"));
    }
}
