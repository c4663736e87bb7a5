//! How soon rows that edges read are read again: what decides whether a cache still has them.

use graphweft_graph::Csr;

/// How many rows a cache may hold, in powers of two: the sizes that are asked for.
const FIRST: u32 = 6;
const STEP: u32 = 2;
const SIZES: usize = 8;
/// Bins of a histogram of times, per factor of two.
const FINE: usize = 4;
const BINS: usize = 64 * FINE;
/// Edges that are looked at, about. Of larger graphs some rows tell of all.
const LOOKED_AT: usize = 1 << 24;

/// Of the edges of a graph, in the order in which they are visited, those whose far end is not among the rows that were
/// read last: for caches of several sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reuse([usize; SIZES]);

impl Reuse {
    /// Edges that a cache of `rows` rows does not serve; between known sizes, in proportion to the logarithm.
    pub fn missed(&self, rows: f64) -> f64 {
        let place = (rows.max(1.0).log2() - f64::from(FIRST)) / f64::from(STEP);
        let at = |k: usize| self.0[k.min(SIZES - 1)] as f64;
        let low = place.clamp(0.0, (SIZES - 1) as f64);
        let (k, part) = (low as usize, low.fract());
        at(k) + part * (at(k + 1) - at(k))
    }

    /// Of the edges of `csr`, row after row, as if they were visited again and again.
    ///
    /// What is between two visits of a row is not counted, which would take long, but follows from how long ago visits
    /// are on average: in a stretch of `w` edges there are `m − Σ max(t − w, 0) / n` different rows, where `t` are the
    /// times from one visit to the next, `n` of them, and `m` is the number of rows that are visited at all. Where
    /// there are many edges, only the visits of rows drawn by their ids are looked at (SHARDS): how long ago they are
    /// does not depend on which other rows are drawn.
    pub(crate) fn of(csr: &Csr<u32>) -> Self {
        Self::of_some(csr, csr.num_edges().div_ceil(LOOKED_AT).next_power_of_two().ilog2())
    }

    /// From one row of `2^halvings`.
    fn of_some(csr: &Csr<u32>, halvings: u32) -> Self {
        let (n, each) = (csr.num_edges(), f64::from(1_u32 << halvings));
        // Consecutive ids are spread evenly by the golden ratio.
        let is_drawn = |source: u32| u64::from(source.wrapping_mul(0x9E37_79B9)) >> (32 - halvings) == 0;
        let (mut counts, mut sums) = ([0_usize; BINS], [0.0_f64; BINS]);
        let mut note = |time: usize| {
            let bin = bin(time);
            counts[bin] += 1;
            sums[bin] += time as f64;
        };
        // The first and the last visit of each row, counted from 1.
        let mut visits = vec![(0_usize, 0_usize); csr.num_src()];
        for (at, source) in csr.indices().iter().enumerate().filter(|(_, source)| is_drawn(**source)) {
            let (first, last) = &mut visits[*source as usize];
            match *last {
                0 => *first = at + 1,
                before => note(at + 1 - before),
            }
            *last = at + 1;
        }
        let mut visited = 0.0;
        for (first, last) in visits.into_iter().filter(|(first, _)| *first > 0) {
            visited += each;
            note(first + n - last);
        }
        // From the longest times to the shortest: how many are longer, and how many rows a stretch of that length has.
        let mut missed = [0; SIZES];
        let (mut longer, mut sum, mut before) = (0.0, 0.0, (visited, 0.0));
        let mut size = SIZES;
        for bin in (0..BINS).rev() {
            (longer, sum) = (longer + each * counts[bin] as f64, sum + each * sums[bin]);
            let stretch = shortest(bin);
            let rows = visited - (sum - stretch * longer).max(0.0) / n.max(1) as f64;
            while size > 0 && rows <= rows_of(size - 1) {
                size -= 1;
                // Between this bin and the one before it.
                let (more, fewer) = (before.0, rows);
                let part = if more > fewer { ((rows_of(size) - fewer) / (more - fewer)).clamp(0.0, 1.0) } else { 1.0 };
                missed[size] = ((longer + part * (before.1 - longer)) as usize).min(n);
            }
            before = (rows, longer);
        }
        missed[..size].fill(n);
        Self(missed)
    }
}

fn rows_of(size: usize) -> f64 {
    f64::from(1_u32 << (FIRST + STEP * size as u32))
}

fn bin(time: usize) -> usize {
    let time = time.max(1) as f64;
    ((time.log2() * FINE as f64) as usize).min(BINS - 1)
}

/// The shortest time of a bin.
fn shortest(bin: usize) -> f64 {
    (bin as f64 / FINE as f64).exp2()
}

#[cfg(test)]
mod tests {
    use graphweft_base::progress::Silent;
    use graphweft_graph::generate::Spec;

    use super::*;

    fn rows(degree: usize, nodes: usize, source: impl Fn(usize, usize) -> usize) -> Csr<u32> {
        let indices = (0..nodes).flat_map(|row| {
            let mut all: Vec<u32> = (0..degree).map(|k| source(row, k) as u32).collect();
            all.sort_unstable();
            all
        });
        let indptr: Vec<u64> = (0..=nodes).map(|row| (row * degree) as u64).collect();
        Csr::new(indptr, indices.collect::<Vec<u32>>(), nodes).unwrap()
    }

    #[test]
    fn neighbours_that_are_near_are_found_in_a_small_cache() {
        // A band: every row is read by the eight rows around it, so one of eight visits is the first.
        let band = Reuse::of(&rows(8, 20_000, |row, k| (row + k) % 20_000));
        for cache in [64.0, 4096.0] {
            assert!((band.missed(cache) / 20_000.0 - 1.0).abs() < 0.1, "{cache}: {band:?}");
        }
        assert_eq!(band.missed(65_536.0), 0.0, "all rows are there");
    }

    #[test]
    fn neighbours_at_random_are_missed_as_far_as_the_cache_is_too_small() {
        let nodes = 30_000;
        // SplitMix64.
        let hash = |x: u64| {
            let x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            x ^ (x >> 31)
        };
        let random = Reuse::of(&rows(8, nodes, |row, k| (hash((row * 8 + k) as u64 + 1) % nodes as u64) as usize));
        for cache in [256.0, 4096.0, 16_384.0] {
            let expected = 1.0 - cache / nodes as f64;
            let found = random.missed(cache) / (8 * nodes) as f64;
            assert!((found - expected).abs() < 0.05, "{cache}: {found} for {expected}");
        }
        assert_eq!(random.missed(65_536.0), 0.0);
        assert!(random.missed(1.0) >= random.missed(64.0) && random.missed(1e9) == 0.0);
    }

    #[test]
    fn some_rows_tell_of_all() {
        // Hubs and leaves, near and far: a few rows have most of the visits.
        let graph = "rmat:16:16".parse::<Spec>().unwrap().graph(1, &Silent).unwrap();
        let (all, some) = (Reuse::of(&graph), Reuse::of_some(&graph, 4));
        for cache in [64.0, 1024.0, 4096.0, 16_384.0] {
            let [all, some] = [all, some].map(|reuse| reuse.missed(cache) / graph.num_edges() as f64);
            assert!((all - some).abs() < 0.02, "{cache} rows: {some} for {all}");
        }
        assert_ne!(all, some);
    }
}
