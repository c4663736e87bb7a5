//! The mean loss of nodes that are not learned from: cross-entropy of classes, or of each label by itself.

use super::{Logits, Truth};

/// The sum of losses and how many there are, among these rows.
pub(super) fn count(logits: &Logits, truth: Truth<'_>, rows: &[u32]) -> Vec<f64> {
    let (mut sum, mut all) = (0.0, 0.0);
    for row in rows.iter().map(|row| *row as usize) {
        let x = logits.row(row);
        match truth {
            Truth::Class(labels) => {
                if let Some(at) = usize::try_from(labels[row]).ok().and_then(|label| x.get(label)) {
                    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    sum += most + x.iter().map(|x| (x - most).exp()).sum::<f64>().ln() - at;
                    all += 1.0;
                }
            }
            Truth::Each(labels) => {
                let labels = &labels[row * logits.cols()..][..logits.cols()];
                for (x, y) in x.iter().zip(labels).filter(|(_, y)| **y >= 0.0) {
                    sum += x.max(0.0) - x * f64::from(*y) + (-x.abs()).exp().ln_1p();
                    all += 1.0;
                }
            }
        }
    }
    vec![sum, all]
}
