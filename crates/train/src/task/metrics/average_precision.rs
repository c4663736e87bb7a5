//! Average precision: Σ (Rₖ − Rₖ₋₁)·Pₖ over distinct scores from the highest, with P precision and R recall of
//! everything that scores at least so much.

use super::{both, ties};

/// The average precision of (score, is positive) pairs; `None` unless there are both kinds.
pub(crate) fn average_precision(pairs: &[(f64, bool)]) -> Option<f64> {
    let ties = ties(pairs);
    let (positives, _) = both(&ties)?;
    let (mut found, mut taken, mut sum) = (0.0, 0.0, 0.0);
    for (p, n) in ties {
        found += p;
        taken += p + n;
        sum += p / positives * (found / taken);
    }
    Some(sum)
}
