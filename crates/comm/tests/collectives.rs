//! Sums over ranks against sums on one, for any lengths, types and numbers of ranks.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use graphweft_comm::{Error, Label, Sum, Traffic, Type, View, threads};
use half::bf16;
use proptest::prelude::*;

const SUM: Label = Label { op: "sum", traffic: Traffic::Gradients, layer: 0 };

/// What ranks have: values whose sum shows the order in which they were added.
fn value(seed: u64, rank: usize, k: usize) -> f64 {
    let x = (seed ^ (rank as u64) << 40 ^ k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> 12) as f64 / (1u64 << 40) as f64 - 2000.0
}

trait Element: bytemuck::Pod + Send + Sync + PartialEq + std::fmt::Debug {
    const TYPE: Type;
    fn of(x: f64) -> Self;
    fn sum(all: impl Iterator<Item = Self>) -> Self;
}

impl Element for f64 {
    const TYPE: Type = Type::F64;
    fn of(x: f64) -> Self {
        x
    }
    fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.reduce(|a, b| a + b).unwrap()
    }
}

impl Element for f32 {
    const TYPE: Type = Type::F32;
    fn of(x: f64) -> Self {
        x as f32
    }
    fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.reduce(|a, b| a + b).unwrap()
    }
}

impl Element for bf16 {
    const TYPE: Type = Type::BF16;
    fn of(x: f64) -> Self {
        Self::from_f64(x)
    }
    fn sum(all: impl Iterator<Item = Self>) -> Self {
        Self::from_f32(all.map(Self::to_f32).reduce(|a, b| a + b).unwrap())
    }
}

fn check<T: Element>(ranks: usize, lengths: &[usize], seed: u64) {
    let options = threads::Options { ranks, threads: 1, deadline: Duration::from_secs(30) };
    let total: usize = lengths.iter().sum();
    let expected: Vec<T> = (0..total).map(|k| T::sum((0..ranks).map(|p| T::of(value(seed, p, k))))).collect();
    threads::run(options, |comm| {
        let rank = comm.rank();
        let own: Vec<T> = (0..total).map(|k| T::of(value(seed, rank, k))).collect();
        let (mut all, mut later, mut part) = (own.clone(), own.clone(), vec![T::of(0.0); lengths[rank]]);
        // SAFETY: the vectors outlive the sums and are left alone meanwhile.
        unsafe {
            comm.all_reduce(SUM, View::host_mut(&mut all, T::TYPE))?;
            let sum = Sum::start(&comm, SUM, View::host_mut(&mut later, T::TYPE))?;
            comm.reduce_scatter(SUM, View::host(&own, T::TYPE), lengths, View::host_mut(&mut part, T::TYPE))?;
            sum.wait()?;
        }
        let start: usize = lengths[..rank].iter().sum();
        assert_eq!(all, expected);
        assert_eq!(later, expected);
        assert_eq!(part, expected[start..start + lengths[rank]]);
        Ok::<_, Error>(())
    })
    .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn sums_over_ranks_are_sums_on_one(lengths in prop::collection::vec(0usize..3000, 1..7), seed: u64) {
        check::<f64>(lengths.len(), &lengths, seed);
        check::<f32>(lengths.len(), &lengths, seed);
        check::<bf16>(lengths.len(), &lengths, seed);
    }
}

#[test]
fn long_sums_go_in_rounds() {
    // A round has 4 MiB from all ranks: rank 0 takes part in two, the others in one or none.
    check::<f64>(3, &[260_000, 5, 0], 1);
    check::<bf16>(2, &[3, 2_500_001], 2);
}
