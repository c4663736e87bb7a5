//! Macro-F1: the mean of F1 = 2·tp / (2·tp + fp + fn) over classes; as scikit-learn has it, over the classes that occur
//! among labels or predictions, or over all labels where nodes have several.

/// True positives, false positives and false negatives of each class.
pub(crate) struct Tally {
    pub(crate) sums: Vec<f64>,
}

/// What becomes of a class that neither labels nor predictions have.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Absent {
    LeftOut,
    Zero,
}

impl Tally {
    pub(crate) fn new(classes: usize) -> Self {
        Self { sums: vec![0.0; 3 * classes] }
    }

    pub(crate) fn true_positive(&mut self, class: usize) {
        self.sums[3 * class] += 1.0;
    }

    pub(crate) fn false_positive(&mut self, class: usize) {
        self.sums[3 * class + 1] += 1.0;
    }

    pub(crate) fn false_negative(&mut self, class: usize) {
        self.sums[3 * class + 2] += 1.0;
    }

    pub(crate) fn score(sums: &[f64], absent: Absent) -> f64 {
        let (mut total, mut classes) = (0.0, 0.0);
        for class in sums.chunks_exact(3) {
            let errors = class[1] + class[2];
            let occurs = class[0] + errors > 0.0;
            if occurs || absent == Absent::Zero {
                classes += 1.0;
                total += if occurs { 2.0 * class[0] / (2.0 * class[0] + errors) } else { 0.0 };
            }
        }
        total / classes
    }
}
