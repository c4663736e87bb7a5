//! Which instructions the processor has.

use std::fmt;

/// A level of vector instructions. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// What every processor has.
    Portable,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 with dot products of bf16.
    Avx512Bf16,
}

impl Isa {
    /// The best this processor has.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Self {
        use std::arch::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("fma");
        let avx512 = avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
        match (avx2, avx512, avx512 && has!("avx512bf16")) {
            (_, _, true) => Self::Avx512Bf16,
            (_, true, _) => Self::Avx512,
            (true, ..) => Self::Avx2,
            _ => Self::Portable,
        }
    }

    /// The best this processor has.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Self {
        Self::Portable
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
        })
    }
}
