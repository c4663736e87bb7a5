//! The keys of a section, and what a user who wrote another one may have meant.

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// The names of the fields that a struct is deserialised from.
pub(super) fn fields_of<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields = &[][..];
    // The deserializer below gives no value, so this always fails, after it was told the fields.
    let _ = T::deserialize(Listener(&mut fields));
    fields
}

/// Hears which fields a struct wants and gives it nothing.
struct Listener<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Listener<'_> {
    type Error = de::value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(de::Error::custom("only the fields were asked for"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(de::Error::custom("not a struct"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The candidate that takes the fewest edits to become `word`, if it is anything like it.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = word.chars().count() / 2 + 1;
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
    fn fields_are_those_of_the_struct() {
        #[derive(serde::Deserialize)]
        #[allow(dead_code)]
        struct Two {
            one: u32,
            #[serde(rename = "the-other")]
            other: String,
        }
        assert_eq!(fields_of::<Two>(), ["one", "the-other"]);
        assert!(fields_of::<u32>().is_empty());
    }
}
