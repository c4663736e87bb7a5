//! Eigenvalues and eigenvectors of a small symmetric matrix, by Jacobi's rotations: slow, short and accurate to the
//! last digits.

/// Sweeps over all elements; ten are plenty for any matrix that fits here.
const SWEEPS: usize = 60;

/// The eigenvalues of `a` (n × n, symmetric), descending, and the eigenvectors as columns of a matrix in the same
/// order.
pub(super) fn symmetric(mut a: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut v: Vec<f64> = (0..n * n).map(|k| if k / n == k % n { 1.0 } else { 0.0 }).collect();
    let total: f64 = a.iter().map(|x| x * x).sum();
    for _ in 0..SWEEPS {
        let off: f64 = (0..n * n).filter(|k| k / n != k % n).map(|k| a[k] * a[k]).sum();
        if off <= total * 1e-30 {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, &mut v, n, p, q);
            }
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|x, y| a[y * n + y].total_cmp(&a[x * n + x]));
    let values = order.iter().map(|k| a[k * n + k]).collect();
    let vectors = (0..n * n).map(|k| v[k / n * n + order[k % n]]).collect();
    (values, vectors)
}

/// Makes the element (p, q) zero.
fn rotate(a: &mut [f64], v: &mut [f64], n: usize, p: usize, q: usize) {
    let element = a[p * n + q];
    if element == 0.0 {
        return;
    }
    let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * element);
    let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
    let c = t.hypot(1.0).recip();
    let s = t * c;
    for k in 0..n {
        let (x, y) = (a[k * n + p], a[k * n + q]);
        (a[k * n + p], a[k * n + q]) = (c * x - s * y, s * x + c * y);
    }
    for k in 0..n {
        let (x, y) = (a[p * n + k], a[q * n + k]);
        (a[p * n + k], a[q * n + k]) = (c * x - s * y, s * x + c * y);
        let (x, y) = (v[k * n + p], v[k * n + q]);
        (v[k * n + p], v[k * n + q]) = (c * x - s * y, s * x + c * y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_orthonormal_and_solve_the_equation() {
        for n in [1, 2, 7, 30] {
            let numbers = graphweft_tensor::gradcheck::numbers(5, n * n);
            let a: Vec<f64> = (0..n * n).map(|k| numbers[k] + numbers[k % n * n + k / n]).collect();
            let (values, vectors) = symmetric(a.clone(), n);
            assert!(values.windows(2).all(|w| w[0] >= w[1]));
            for x in 0..n {
                for i in 0..n {
                    let product: f64 = (0..n).map(|j| a[i * n + j] * vectors[j * n + x]).sum();
                    assert!((product - values[x] * vectors[i * n + x]).abs() < 1e-12);
                }
                for y in 0..n {
                    let dot: f64 = (0..n).map(|i| vectors[i * n + x] * vectors[i * n + y]).sum();
                    assert!((dot - f64::from(u8::from(x == y))).abs() < 1e-12);
                }
            }
        }
    }
}
