//! Macro-F1: the mean of F1 = 2·tp / (2·tp + fp + fn) over classes; as scikit-learn has it, over the classes that occur among
//! labels or predictions, or over all labels where nodes have several.

use super::{Logits, Truth};

/// True positives, false positives and false negatives of each class.
pub(super) fn count(logits: &Logits, truth: Truth<'_>, rows: &[u32]) -> Vec<f64> {
    let classes = logits.cols();
    let mut sums = vec![0.0; 3 * classes];
    let mut add = |class: usize, predicted: bool, is: bool| match (predicted, is) {
        (true, true) => sums[3 * class] += 1.0,
        (true, false) => sums[3 * class + 1] += 1.0,
        (false, true) => sums[3 * class + 2] += 1.0,
        (false, false) => {}
    };
    for row in rows.iter().map(|row| *row as usize) {
        match truth {
            Truth::Class(labels) => {
                if let Ok(label) = usize::try_from(labels[row]) {
                    let predicted = logits.class(row);
                    add(predicted, true, predicted == label);
                    if predicted != label {
                        add(label, false, true);
                    }
                }
            }
            Truth::Each(labels) => {
                let labels = &labels[row * classes..][..classes];
                for (class, (x, y)) in logits.row(row).iter().zip(labels).enumerate().filter(|(_, (_, y))| **y >= 0.0) {
                    add(class, *x > 0.0, *y > 0.5);
                }
            }
        }
    }
    sums
}

pub(super) fn score(sums: &[f64], truth: Truth<'_>) -> f64 {
    let (mut total, mut classes) = (0.0, 0.0);
    for class in sums.chunks_exact(3) {
        let errors = class[1] + class[2];
        let occurs = class[0] + errors > 0.0;
        if occurs || matches!(truth, Truth::Each(_)) {
            classes += 1.0;
            total += if occurs { 2.0 * class[0] / (2.0 * class[0] + errors) } else { 0.0 };
        }
    }
    total / classes
}
