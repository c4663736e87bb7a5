//! How far a measurement is off: what its rates do not explain, and what the machine does not repeat.

use graphweft_tensor::dry::Work;

use super::Least;
use crate::kernels::{Amounts, Caches, Kernel, kernel_for};

/// Of programs, this share is explained at least as well as is said.
const EXPLAINED: f64 = 0.9;
/// No machine repeats itself better than this.
const LEAST_ERROR: f64 = 0.05;

/// How far the times of programs, a step of each, are from what `kernels` say: as far as the [share](EXPLAINED) of them
/// that is closest.
pub(super) fn explained(kernels: &[Kernel], caches: Caches, works: &[&[Work]], least: &[Least]) -> f64 {
    let predicted = |works: &[Work]| -> f64 {
        let seconds = |work: &Work| kernel_for(kernels, work).map_or(0.0, |k| k.seconds(&Amounts::of(work, caches)));
        works.iter().map(seconds).sum()
    };
    let known = works.iter().zip(least).filter(|(works, least)| works.len() == least.calls.len());
    let mut off: Vec<f64> = known
        .map(|(works, least)| (predicted(works), least.calls.iter().sum::<f64>()))
        .filter(|(_, measured)| *measured > 0.0)
        .map(|(predicted, measured)| (predicted / measured - 1.0).abs())
        .collect();
    off.sort_by(f64::total_cmp);
    let at = (off.len() as f64 * EXPLAINED) as usize;
    off.get(at.min(off.len().saturating_sub(1))).copied().unwrap_or(0.0).max(LEAST_ERROR)
}

/// By how much the two shortest of some times differ, as a share.
pub(super) fn differ(steps: &[f64]) -> Option<f64> {
    let mut steps = steps.to_vec();
    steps.sort_by(f64::total_cmp);
    match steps[..] {
        [first, second, ..] if first > 0.0 => Some(second / first - 1.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use graphweft_tensor::DType;
    use graphweft_tensor::dry::WorkKind;

    use super::*;
    use crate::kernels::Class;

    const ALL: Caches = Caches { near: 1e9, last: 1e9, kept: 1e9 };

    #[test]
    fn an_error_is_that_of_whole_steps_and_a_spread_that_of_repetitions() {
        let copy = |bytes: usize| Work {
            op: "convert",
            dtype: DType::F32,
            dropout: false,
            kind: WorkKind::Stream { read: bytes, written: 0, rows: 1 },
        };
        let mut kernel = Kernel::of(Class::Stream);
        kernel.ps_per_byte = 1000.0;
        let works: Vec<Vec<Work>> = (0..20).map(|_| vec![copy(1000), copy(3000)]).collect();
        let works: Vec<&[Work]> = works.iter().map(|w| &w[..]).collect();
        let least = |calls: [f64; 2]| Least { calls: calls.to_vec(), whole: 0.0, recorded: 0.0, steps: Vec::new() };
        // One call longer and the other shorter is the same step; one program of twenty is far off, the others by a
        // fifth.
        let mut all = vec![least([2.5e-6, 2.5e-6]); 19];
        all.push(least([1e-3, 1e-3]));
        assert!((explained(&[kernel.clone()], ALL, &works, &all) - 0.2).abs() < 1e-9);
        let exact = vec![least([2e-6, 2e-6]); 20];
        assert_eq!(explained(&[kernel], ALL, &works, &exact), LEAST_ERROR, "nothing is that exact");
        assert!((differ(&[3.0, 2.0, 2.5]).unwrap() - 0.25).abs() < 1e-12);
        assert_eq!(differ(&[2.0]), None);
    }
}
