//! Rates from measurements: the non-negative numbers that explain the times of calls best, relative to each time.

/// Rounds of coordinate descent; for a handful of unknowns it settles long before.
const ROUNDS: usize = 5000;
/// A change below this share of the largest coefficient is none.
const SETTLED: f64 = 1e-9;

/// The `rates` ≥ 0 with the least Σ ((amounts·rates − seconds) / seconds)² over all samples, times what makes the mean
/// of amounts·rates / seconds one: where no rates explain all samples, the least squares alone are too short on
/// average.
pub(crate) fn rates<const K: usize>(samples: &[([f64; K], f64)]) -> [f64; K] {
    // Columns scaled to length one, so that counts and bytes weigh alike.
    let rows: Vec<[f64; K]> =
        samples.iter().filter(|(_, t)| *t > 0.0).map(|(amounts, t)| amounts.map(|a| a / t)).collect();
    let lengths: [f64; K] = std::array::from_fn(|k| rows.iter().map(|r| r[k] * r[k]).sum::<f64>().sqrt());
    let scaled = |k: usize, r: &[f64; K]| if lengths[k] > 0.0 { r[k] / lengths[k] } else { 0.0 };
    let gram: [[f64; K]; K] =
        std::array::from_fn(|i| std::array::from_fn(|j| rows.iter().map(|r| scaled(i, r) * scaled(j, r)).sum()));
    let right: [f64; K] = std::array::from_fn(|k| rows.iter().map(|r| scaled(k, r)).sum());
    let mut x = [0.0f64; K];
    for _ in 0..ROUNDS {
        let mut moved = 0.0f64;
        for k in 0..K {
            if gram[k][k] > 0.0 {
                let others: f64 = (0..K).filter(|j| *j != k).map(|j| gram[k][j] * x[j]).sum();
                let next = ((right[k] - others) / gram[k][k]).max(0.0);
                moved = moved.max((next - x[k]).abs());
                x[k] = next;
            }
        }
        if moved <= SETTLED * x.iter().copied().fold(0.0, f64::max) {
            break;
        }
    }
    let explained = |row: &[f64; K]| (0..K).map(|k| scaled(k, row) * x[k]).sum::<f64>();
    let mean = rows.iter().map(explained).sum::<f64>() / rows.len().max(1) as f64;
    let whole = if mean > 0.0 { mean } else { 1.0 };
    std::array::from_fn(|k| if lengths[k] > 0.0 { x[k] / lengths[k] / whole } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_made_the_times_is_found() {
        let truth = [2e-6, 3e-12, 0.0];
        let amounts = [[1.0, 1e6, 5e3], [1.0, 2e7, 1e2], [1.0, 3e5, 9e6], [1.0, 8e8, 4e4]];
        let time = |a: &[f64; 3]| a.iter().zip(truth).map(|(a, r)| a * r).sum::<f64>();
        let samples: Vec<_> = amounts.iter().map(|a| (*a, time(a))).collect();
        let found = rates(&samples);
        for k in 0..3 {
            assert!((found[k] - truth[k]).abs() <= 1e-4 * truth[k] + 1e-16, "{found:?}");
        }
        assert_eq!(rates::<2>(&[]), [0.0; 2]);
    }

    #[test]
    fn no_rate_is_negative() {
        // More work took less time.
        let found = rates(&[([1.0, 10.0], 3.0), ([1.0, 20.0], 2.0)]);
        assert_eq!(found[1], 0.0);
        // As much too long for one as too short for the other.
        assert!((found[0] / 3.0 + found[0] / 2.0 - 2.0).abs() < 1e-9, "{found:?}");
    }
}
