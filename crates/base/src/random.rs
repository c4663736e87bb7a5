//! Randomness as a function: the same key and counter give the same numbers, whoever asks, in whatever order.
//!
//! Nothing here has state that advances. A generator asks for "the numbers of draw k", dropout for "the numbers of this
//! row in this epoch", and the answer does not depend on threads, ranks or on what was asked before. That is what lets
//! a graph be drawn twice instead of being stored as a list of edges, and what makes parallel strategies
//! interchangeable.
//!
//! * [`philox4x32_10`]: the function itself (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
//!   3", SC 2011), ten rounds;
//! * [`Philox`]: the function with a seed and a stream fixed, and numbers of the usual kinds;
//! * [`Bijection`]: a keyed permutation of `0..n` that needs no table.

/// Philox4x32 with ten rounds: 128 random bits for a 128-bit counter under a 64-bit key.
///
/// ```
/// use graphweft_base::random::philox4x32_10;
/// assert_eq!(philox4x32_10([0; 4], [0; 2])[0], 0x6627_e8d5);
/// ```
#[inline]
pub const fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let ([mut a, mut b, mut c, mut d], [mut k0, mut k1]) = (counter, key);
    let mut round = 0;
    while round < 10 {
        let p = MULTIPLIERS[0] * a as u64;
        let q = MULTIPLIERS[1] * c as u64;
        (a, b, c, d) = ((q >> 32) as u32 ^ b ^ k0, q as u32, (p >> 32) as u32 ^ d ^ k1, p as u32);
        k0 = k0.wrapping_add(KEY_STEPS[0]);
        k1 = k1.wrapping_add(KEY_STEPS[1]);
        round += 1;
    }
    [a, b, c, d]
}

/// Random numbers of one seed and one stream, addressed by a counter.
///
/// Streams keep purposes apart: edges and features drawn from the same seed share no numbers. One counter gives 128
/// bits; the methods are different views of these same bits, so use each counter for one purpose.
///
/// ```
/// use graphweft_base::random::Philox;
/// let random = Philox::new(7, 0);
/// assert_eq!(random.below(3, 10), random.below(3, 10));
/// assert!(random.uniform(4) < 1.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    seed: u64,
    stream: u64,
}

impl Philox {
    /// The numbers of `stream` under `seed`.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self { seed, stream }
    }

    /// Four words of 32 random bits.
    #[inline]
    pub const fn words(&self, counter: u64) -> [u32; 4] {
        let (low, high) = (split(counter), split(self.stream));
        philox4x32_10([low[0], low[1], high[0], high[1]], split(self.seed))
    }

    /// 64 random bits.
    #[inline]
    pub const fn bits(&self, counter: u64) -> u64 {
        let [a, b, ..] = self.words(counter);
        join(a, b)
    }

    /// A number of `0..n`, for n > 0. A value is more likely than another by at most n/2⁶⁴.
    #[inline]
    pub const fn below(&self, counter: u64, n: u64) -> u64 {
        scale(self.bits(counter), n)
    }

    /// A number of [0, 1) with 53 random bits.
    #[inline]
    pub fn uniform(&self, counter: u64) -> f64 {
        (self.bits(counter) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Four independent numbers of the standard normal distribution, by the transform of Box and Muller.
    #[inline]
    pub fn normals(&self, counter: u64) -> [f32; 4] {
        const STEP: f64 = 1.0 / (1u64 << 32) as f64;
        let [a, b, c, d] = self.words(counter);
        let pair = |radius: u32, angle: u32| {
            // The radius needs a uniform number above zero, hence the half step.
            let radius = (-2.0 * ((f64::from(radius) + 0.5) * STEP).ln()).sqrt();
            let (sin, cos) = (std::f64::consts::TAU * STEP * f64::from(angle)).sin_cos();
            [(radius * cos) as f32, (radius * sin) as f32]
        };
        let ([w, x], [y, z]) = (pair(a, b), pair(c, d));
        [w, x, y, z]
    }
}

const fn split(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// 64 bits from two words.
#[inline]
pub const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Maps 64 random bits to `0..n`: the high half of their product with n.
#[inline]
pub const fn scale(bits: u64, n: u64) -> u64 {
    ((bits as u128 * n as u128) >> 64) as u64
}

/// Rounds of mixing in a [`Bijection`].
const ROUNDS: usize = 4;
/// Few bits mix badly; so narrow a permutation is drawn from a wider one. Costs nothing where it matters.
const FEWEST_BITS: u32 = 10;

/// A keyed permutation of `0..n`, both ways, without a table.
///
/// A few rounds of invertible mixing (xor with a key, multiplication by an odd number, xor with the high half) permute
/// all numbers of as many bits as n needs. Where n is no power of two, a number that lands outside `0..n` is sent on
/// until it lands inside: at most half of the numbers lie outside (unless n is tiny), so that takes two steps on
/// average at worst, and it is still a permutation.
///
/// ```
/// use graphweft_base::random::{Bijection, Philox};
/// let shuffle = Bijection::new(1000, &Philox::new(7, 1));
/// let there = shuffle.forward(42);
/// assert!(there < 1000);
/// assert_eq!(shuffle.inverse(there), 42);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bijection {
    n: u64,
    mask: u64,
    shift: u32,
    keys: [u64; ROUNDS],
    multipliers: [u64; ROUNDS],
    inverses: [u64; ROUNDS],
}

impl Bijection {
    /// The permutation of `0..n` that `random`'s seed and stream select.
    pub fn new(n: u64, random: &Philox) -> Self {
        let bits = (u64::BITS - n.saturating_sub(1).leading_zeros()).max(FEWEST_BITS);
        let mask = u64::MAX >> (u64::BITS - bits);
        let mut this = Self {
            n,
            mask,
            shift: bits.div_ceil(2),
            keys: [0; ROUNDS],
            multipliers: [0; ROUNDS],
            inverses: [0; ROUNDS],
        };
        for round in 0..ROUNDS {
            let [a, b, c, d] = random.words(round as u64);
            let odd = join(c, d) | 1;
            (this.keys[round], this.multipliers[round], this.inverses[round]) =
                (join(a, b) & mask, odd, reciprocal(odd));
        }
        this
    }

    /// Where `x` goes. `x` must be below n.
    #[inline]
    pub fn forward(&self, mut x: u64) -> u64 {
        debug_assert!(x < self.n);
        loop {
            for (key, multiplier) in self.keys.iter().zip(&self.multipliers) {
                x = (x ^ key).wrapping_mul(*multiplier) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }

    /// What goes to `y`. `y` must be below n.
    #[inline]
    pub fn inverse(&self, mut y: u64) -> u64 {
        debug_assert!(y < self.n);
        loop {
            for (key, inverse) in self.keys.iter().zip(&self.inverses).rev() {
                // Shifting by at least half of the bits undoes itself.
                y ^= y >> self.shift;
                y = (y.wrapping_mul(*inverse) & self.mask) ^ key;
            }
            if y < self.n {
                return y;
            }
        }
    }
}

/// The number that an odd `x` must be multiplied with, modulo 2⁶⁴, to give 1.
const fn reciprocal(x: u64) -> u64 {
    // Newton's iteration doubles the correct low bits; x itself has three.
    let mut inverse = x;
    let mut correct = 3;
    while correct < u64::BITS {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(x.wrapping_mul(inverse)));
        correct *= 2;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_known_answers() {
        // From the known-answer vectors that come with the Random123 library.
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (pi, [0xa409_3822, 0x299f_31d0], [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
        let random = Philox::new(join(0xa409_3822, 0x299f_31d0), join(pi[2], pi[3]));
        assert_eq!(random.words(join(pi[0], pi[1])), cases[2].2, "seed is the key, stream the upper counter");
    }

    #[test]
    fn uniform_and_bounded_numbers_are_even() {
        let random = Philox::new(1, 2);
        let count = 100_000u64;
        let mean = (0..count).map(|k| random.uniform(k)).sum::<f64>() / count as f64;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        let mut bins = [0u32; 7];
        (0..count).for_each(|k| bins[random.below(k, 7) as usize] += 1);
        let expected = count as f64 / 7.0;
        assert!(bins.iter().all(|&b| (f64::from(b) - expected).abs() < 5.0 * expected.sqrt()), "{bins:?}");
        assert!((0..100).all(|k| random.below(k, 1) == 0));
    }

    #[test]
    fn normal_numbers_have_the_moments_of_the_normal_distribution() {
        let random = Philox::new(3, 4);
        let x: Vec<f64> = (0..50_000).flat_map(|k| random.normals(k)).map(f64::from).collect();
        let moment = |p: i32| x.iter().map(|v| v.powi(p)).sum::<f64>() / x.len() as f64;
        for (p, expected, tolerance) in [(1, 0.0, 0.01), (2, 1.0, 0.02), (3, 0.0, 0.05), (4, 3.0, 0.1)] {
            assert!((moment(p) - expected).abs() < tolerance, "moment {p} is {}", moment(p));
        }
        let neighbours = x.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / x.len() as f64;
        assert!(neighbours.abs() < 0.01, "{neighbours}");
    }

    #[test]
    fn a_bijection_hits_everything_once_and_finds_back() {
        for n in (1..=70).chain([100, 1000, 4095, 4096, 4097]) {
            let shuffle = Bijection::new(n, &Philox::new(n, 9));
            let mut seen = vec![false; n as usize];
            for x in 0..n {
                let y = shuffle.forward(x);
                assert!(!std::mem::replace(&mut seen[y as usize], true), "{y} of {n} twice");
                assert_eq!(shuffle.inverse(y), x);
            }
        }
        let wide = Bijection::new(u64::MAX, &Philox::new(5, 9));
        assert!([0, 1, u64::MAX - 1, 1 << 40].into_iter().all(|x| wide.inverse(wide.forward(x)) == x));
    }

    #[test]
    fn a_bijection_looks_random_over_seeds_and_over_elements() {
        // Over seeds, one element goes anywhere; within one permutation, neighbours do not stay together.
        for n in [2u64, 3, 10, 16, 37, 130, 256, 600] {
            let mut bins = vec![0u32; n as usize];
            let seeds = 20_000;
            (0..seeds).for_each(|seed| bins[Bijection::new(n, &Philox::new(seed, 1)).forward(n / 3) as usize] += 1);
            let expected = seeds as f64 / n as f64;
            let chi2: f64 = bins.iter().map(|&b| (f64::from(b) - expected).powi(2) / expected).sum();
            let limit = n as f64 + 6.0 * (2.0 * n as f64).sqrt();
            assert!(chi2 < limit, "n = {n}: chi² = {chi2}, limit {limit}");
        }
        let n = 1 << 16;
        let shuffle = Bijection::new(n, &Philox::new(0, 1));
        let steps = (1..n).map(|x| shuffle.forward(x).abs_diff(shuffle.forward(x - 1)) as f64);
        let mean = steps.sum::<f64>() / n as f64;
        // Two independent uniform numbers are n/3 apart on average.
        assert!((mean / n as f64 - 1.0 / 3.0).abs() < 0.01, "{mean}");
    }
}
