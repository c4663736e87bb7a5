//! Hits@K as OGB's evaluator of links has it: the share of positives that score more than the K-th highest of all
//! negatives. One that scores the same is no hit. Where there are fewer than K negatives, all are.

/// Of scores, and which are positive.
pub(crate) fn hits<const K: usize>(pairs: &[(f64, bool)]) -> Option<f64> {
    let mut negatives: Vec<f64> = pairs.iter().filter(|(_, positive)| !positive).map(|(score, _)| *score).collect();
    let positives = pairs.iter().filter(|(_, positive)| *positive);
    let count = positives.clone().count();
    if count == 0 {
        return None;
    }
    if negatives.len() < K {
        return Some(1.0);
    }
    let (_, threshold, _) = negatives.select_nth_unstable_by(K - 1, |a, b| b.total_cmp(a));
    let threshold = *threshold;
    Some(positives.filter(|(score, _)| *score > threshold).count() as f64 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By sorting, as the definition reads.
    fn reference(k: usize, pairs: &[(f64, bool)]) -> f64 {
        let of = |kind: bool| pairs.iter().filter(move |(_, p)| *p == kind).map(|(s, _)| *s);
        let mut negatives: Vec<f64> = of(false).collect();
        negatives.sort_by(|a, b| b.partial_cmp(a).unwrap());
        let better = |score: f64| negatives.get(k - 1).is_none_or(|threshold| score > *threshold);
        of(true).filter(|score| better(*score)).count() as f64 / of(true).count() as f64
    }

    #[test]
    fn it_is_what_the_definition_says_with_ties() {
        // Few distinct scores: nearly all are tied.
        let pair = |k: u64| ((k * k * 7 % 11) as f64, k.is_multiple_of(3));
        for count in [1u64, 2, 5, 30, 31, 100, 1000] {
            let pairs: Vec<(f64, bool)> = (0..count).map(pair).collect();
            assert_eq!(hits::<20>(&pairs), Some(reference(20, &pairs)), "{count}");
            assert_eq!(hits::<3>(&pairs), Some(reference(3, &pairs)), "{count}");
        }
        // OGB's own example of its rule: strictly greater than the K-th.
        let pairs = [(0.9, true), (0.5, true), (0.4, true), (0.5, false), (0.3, false)];
        assert_eq!((hits::<1>(&pairs), hits::<2>(&pairs), hits::<3>(&pairs)), (Some(1.0 / 3.0), Some(1.0), Some(1.0)));
        assert_eq!(hits::<1>(&[(0.5, false)]), None);
    }
}
