//! What a user who wrote a key that there is not may have meant.

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
    use super::*;

    #[test]
    fn the_nearest_word_is_offered_and_a_far_one_is_not() {
        let keys = ["epochs", "lr", "weight_decay", "warmup"];
        assert_eq!(nearest("epoch", keys), Some("epochs"));
        assert_eq!(nearest("weigth_decay", keys), Some("weight_decay"));
        assert_eq!(nearest("learning_rate_of_all", keys), None);
        assert_eq!((edits("", "abc"), edits("kitten", "sitting"), edits("ab", "ba")), (3, 3, 2));
    }
}
