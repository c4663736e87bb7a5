//! Means over columns, each of which counts the labels of it that are known, as OGB's evaluators have it.

/// The mean over the columns of which some label is known; of each there is a sum, and how many it is of.
pub(crate) fn mean_by_column(sums: &[f64], of: fn(f64, f64) -> f64) -> f64 {
    let (mut total, mut columns) = (0.0, 0.0);
    for column in sums.chunks_exact(2).filter(|column| column[1] > 0.0) {
        total += of(column[0], column[1]);
        columns += 1.0;
    }
    total / columns
}
