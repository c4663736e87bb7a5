//! ROC-AUC: how often a positive node has the higher score, of all pairs of a positive and a negative one; equal scores
//! count a half. That is the area under the ROC curve with one corner per distinct score, as scikit-learn draws it.

use super::{both, ties};

/// The area for (score, is positive) pairs; `None` unless there are both kinds.
pub(crate) fn roc_auc(pairs: &[(f64, bool)]) -> Option<f64> {
    let ties = ties(pairs);
    let (positives, negatives) = both(&ties)?;
    let (mut above, mut area) = (0.0, 0.0);
    for (p, n) in ties {
        area += n * (above + p / 2.0);
        above += p;
    }
    Some(area / (positives * negatives))
}
