//! A table of rates from a few measurements: that of a machine that is known, every kind of kernel faster or slower by
//! what was seen.
//!
//! So what a moment cannot tell, as what rows cost that no cache has, is in the proportion that is usual.

use std::path::Path;

use graphweft_tensor::DeviceName;
use graphweft_tensor::dry::Work;

use crate::error::Result;
use crate::kernels::{Amounts, Caches, Class, Kernel, kernel_for};
use crate::profile::Profile;

/// One core with AVX-512, as `graphweft plan --calibrate --ranks 2` has measured it.
const CORE: &str = include_str!("../../../../profiles/core.toml");

/// The machine that is known, and whose kernels are like those at `place`.
fn known(place: DeviceName) -> Result<Profile> {
    match place {
        DeviceName::Cpu => Profile::parse(CORE, Path::new("core")),
        DeviceName::Cuda(_) => Profile::find("h200x8"),
    }
}

/// Rates that agree with `samples` in what all calls of a kind took together.
pub(super) fn rates(samples: &[(Work, f64)], caches: Caches, place: DeviceName) -> Result<Vec<Kernel>> {
    let mut kernels = known(place)?.kernels;
    let predicted = |work: &Work| kernel_for(&kernels, work).map_or(0.0, |k| k.seconds(&Amounts::of(work, caches)));
    let factor = |of: &dyn Fn(&Work) -> bool| {
        let some = || samples.iter().filter(|(work, _)| of(work));
        let (measured, usual): (f64, f64) =
            (some().map(|(_, seconds)| seconds).sum(), some().map(|(work, _)| predicted(work)).sum());
        (measured > 0.0 && usual > 0.0).then(|| measured / usual)
    };
    let all = factor(&|_| true).unwrap_or(1.0);
    let by_kind = |kind: Class| factor(&|work| Class::of(work) == kind).unwrap_or(all);
    let factors: Vec<f64> = kernels.iter().map(|kernel| by_kind(kernel.kind)).collect();
    kernels.iter_mut().zip(factors).for_each(|(kernel, factor)| kernel.scale(factor));
    Ok(kernels)
}

#[cfg(test)]
mod tests {
    use graphweft_tensor::DType;
    use graphweft_tensor::dry::{Pass, WorkKind};

    use super::*;

    #[test]
    fn another_machine_is_known_by_a_few_calls() {
        let caches = Caches { near: 1e6, last: 16e6, kept: 16e6 };
        let work = |kind| Work { op: "attention", dtype: DType::F32, dropout: false, kind };
        let product = |m: usize| Work { op: "linear", ..work(WorkKind::Gemm { m, n: 64, k: 64 }) };
        let copy = |bytes: usize| Work { op: "add", ..work(WorkKind::Stream { read: bytes, written: bytes, rows: 1 }) };
        let edges = |edges: usize| {
            let (rows, sources) = (edges / 16, edges / 16);
            let (pass, fours) = (Pass::Forward, edges / 4);
            work(WorkKind::Edges { pass, edges, rows, fours, sources, row: 256, reuse: None, width: 64, heads: 4 })
        };
        // A machine whose products are four times as fast, whose memory is half as fast, and that follows edges as the
        // known one.
        let known = known(DeviceName::Cpu).unwrap().kernels;
        let factor = |work: &Work| match Class::of(work) {
            Class::Gemm => 0.25,
            Class::Stream => 2.0,
            Class::Edges => 1.0,
        };
        let truth = |work: &Work| factor(work) * kernel_for(&known, work).unwrap().seconds(&Amounts::of(work, caches));
        let seen = [product(2000), product(16_000), copy(1 << 20), edges(30_000), edges(200_000)];
        let samples: Vec<(Work, f64)> = seen.iter().map(|work| (*work, truth(work))).collect();
        let found = rates(&samples, caches, DeviceName::Cpu).unwrap();
        // Also at sizes that were not seen, where no cache has the rows.
        for work in [product(1 << 20), copy(1 << 30), edges(1 << 24)] {
            let seconds = kernel_for(&found, &work).unwrap().seconds(&Amounts::of(&work, caches));
            assert!((seconds / truth(&work) - 1.0).abs() < 1e-9, "{work:?}: {seconds} for {}", truth(&work));
        }
        // What was not seen at all is as much faster or slower as the rest.
        let found = rates(&samples[..2], caches, DeviceName::Cpu).unwrap();
        let seconds = kernel_for(&found, &copy(1 << 20)).unwrap().seconds(&Amounts::of(&copy(1 << 20), caches));
        let usual = kernel_for(&known, &copy(1 << 20)).unwrap().seconds(&Amounts::of(&copy(1 << 20), caches));
        assert!((seconds / usual - 0.25).abs() < 1e-9);
    }
}
