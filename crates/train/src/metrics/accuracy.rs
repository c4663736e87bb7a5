//! Accuracy: the share that is right.

use super::{Logits, Truth};

/// Right ones and all, among these rows.
pub(super) fn count(logits: &Logits, truth: Truth<'_>, rows: &[u32]) -> Vec<f64> {
    let (mut right, mut all) = (0u64, 0u64);
    for row in rows.iter().map(|row| *row as usize) {
        match truth {
            Truth::Class(labels) => {
                if let Ok(label) = usize::try_from(labels[row]) {
                    all += 1;
                    right += u64::from(logits.class(row) == label);
                }
            }
            Truth::Each(labels) => {
                let labels = &labels[row * logits.cols()..][..logits.cols()];
                for (x, y) in logits.row(row).iter().zip(labels).filter(|(_, y)| **y >= 0.0) {
                    all += 1;
                    right += u64::from((*x > 0.0) == (*y > 0.5));
                }
            }
        }
    }
    vec![right as f64, all as f64]
}

pub(super) fn score(sums: &[f64]) -> f64 {
    sums[0] / sums[1]
}
