//! Which instructions the processor has.

use std::fmt;

/// A level of vector instructions of x86-64. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// What every such processor has.
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
}

impl Isa {
    /// Runs `f`, a plain loop over slices, compiled with the instructions of this level: the compiler vectorises it.
    pub(crate) fn run<R>(self, f: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn avx512<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        #[target_feature(enable = "avx2,fma")]
        fn avx2<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        match self {
            // SAFETY: a level is only ever as high as what `detect` found.
            Self::Avx512 | Self::Avx512Bf16 => unsafe { avx512(f) },
            // SAFETY: as above.
            Self::Avx2 => unsafe { avx2(f) },
            Self::Portable => f(),
        }
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
