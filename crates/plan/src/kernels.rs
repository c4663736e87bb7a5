//! How fast the kernels of a device are: a few numbers each.
//!
//! A kernel's time is a sum over what it has to do ([`Amounts`]), each weighted by a [rate](Kernel). The same five amounts serve
//! every kernel, from a dense product to a pass over edges; what differs are the rates. A table has a row for each kind of work,
//! and more particular rows where more is known: the one that says most about a piece of work is the one that counts.

use graphweft_tensor::DType;
use graphweft_tensor::dry::{Kind, Pass, Work};
use serde::{Deserialize, Serialize};

/// A unit in which rates are written.
const PICO: f64 = 1e-12;
const MICRO: f64 = 1e-6;

/// What a kernel has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts {
    /// Additions and multiplications.
    pub flops: f64,
    /// Bytes that are read or written in order.
    pub bytes: f64,
    /// Of these and of those read at random, the ones that no cache has.
    pub misses: f64,
    /// Scores of edges, one per edge and head.
    pub scores: f64,
}

/// The rates of some kernels: all that agree with what it says about them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// What kind of work.
    pub kind: Class,
    /// The operation; all of the kind if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The pass over edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<PassName>,
    /// Type of the elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<TypeName>,
    /// Whether random masks are drawn on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<bool>,
    /// Columns of a head: attention has other kernels for some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<usize>,
    /// Microseconds of every call.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub us_per_call: f64,
    /// Picoseconds of an addition or multiplication: the inverse of TFLOP/s.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_flop: f64,
    /// Picoseconds of a byte: the inverse of TB/s.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_byte: f64,
    /// Picoseconds more of a byte that is not in a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_miss: f64,
    /// Picoseconds of the score of an edge and a head.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_score: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde wants it.
fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

/// Kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Class {
    Gemm,
    Edges,
    Stream,
}

/// A pass over edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum PassName {
    Forward,
    ByDestination,
    BySource,
}

/// Type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum TypeName {
    F32,
    F64,
    Bf16,
}

impl From<DType> for TypeName {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::F64 => Self::F64,
            DType::Bf16 => Self::Bf16,
        }
    }
}

impl From<Pass> for PassName {
    fn from(pass: Pass) -> Self {
        match pass {
            Pass::Forward => Self::Forward,
            Pass::ByDestination => Self::ByDestination,
            Pass::BySource => Self::BySource,
        }
    }
}

impl Class {
    /// The kind of a piece of work.
    pub fn of(work: &Work) -> Self {
        match work.kind {
            Kind::Gemm { .. } => Self::Gemm,
            Kind::Edges { .. } => Self::Edges,
            Kind::Stream { .. } => Self::Stream,
        }
    }
}

/// The pass of a piece of work, if it is over edges.
pub(crate) fn pass_of(work: &Work) -> Option<PassName> {
    match work.kind {
        Kind::Edges { pass, .. } => Some(pass.into()),
        _ => None,
    }
}

/// Columns of a head, if there are heads.
pub(crate) fn columns_of(work: &Work) -> Option<usize> {
    match work.kind {
        Kind::Edges { width, heads, .. } if heads > 1 => Some(width / heads),
        _ => None,
    }
}

impl Kernel {
    /// Rates of zero for a kind.
    pub fn of(kind: Class) -> Self {
        Self {
            kind,
            op: None,
            pass: None,
            dtype: None,
            dropout: None,
            columns: None,
            us_per_call: 0.0,
            ps_per_flop: 0.0,
            ps_per_byte: 0.0,
            ps_per_miss: 0.0,
            ps_per_score: 0.0,
        }
    }

    /// How much it says about `work`; nothing if it is about other work.
    fn says(&self, work: &Work) -> Option<usize> {
        let agrees = |said: Option<bool>| said != Some(false);
        let about = [
            self.op.as_deref().map(|op| op == work.op),
            self.pass.map(|pass| Some(pass) == pass_of(work)),
            self.dtype.map(|dtype| dtype == work.dtype.into()),
            self.dropout.map(|dropout| dropout == work.dropout),
            self.columns.map(|columns| Some(columns) == columns_of(work)),
        ];
        let fits = self.kind == Class::of(work) && about.into_iter().all(agrees);
        // The operation says more than everything else about it.
        fits.then(|| about.iter().flatten().count() + if self.op.is_some() { about.len() } else { 0 })
    }

    /// Seconds of one call.
    pub fn seconds(&self, a: &Amounts) -> f64 {
        let rest = self.ps_per_flop * a.flops
            + self.ps_per_byte * a.bytes
            + self.ps_per_miss * a.misses
            + self.ps_per_score * a.scores;
        self.us_per_call * MICRO + rest * PICO
    }

    /// The rates as a list, in seconds, for whoever fits them to measurements.
    pub(crate) fn set_rates(&mut self, [call, flop, byte, miss, score]: [f64; 5]) {
        self.us_per_call = call / MICRO;
        self.ps_per_flop = flop / PICO;
        self.ps_per_byte = byte / PICO;
        self.ps_per_miss = miss / PICO;
        self.ps_per_score = score / PICO;
    }

    /// Everything takes `factor` times as long.
    pub(crate) fn scale(&mut self, factor: f64) {
        let rates = [
            &mut self.us_per_call,
            &mut self.ps_per_flop,
            &mut self.ps_per_byte,
            &mut self.ps_per_miss,
            &mut self.ps_per_score,
        ];
        rates.into_iter().for_each(|rate| *rate *= factor);
    }

    /// All rates, by name.
    pub(crate) fn rates(&self) -> [(&'static str, f64); 5] {
        [
            ("us_per_call", self.us_per_call),
            ("ps_per_flop", self.ps_per_flop),
            ("ps_per_byte", self.ps_per_byte),
            ("ps_per_miss", self.ps_per_miss),
            ("ps_per_score", self.ps_per_score),
        ]
    }
}

/// The most particular of `kernels` for `work`: of equals, the first.
pub fn kernel_for<'a>(kernels: &'a [Kernel], work: &Work) -> Option<&'a Kernel> {
    let candidates = kernels.iter().rev().filter_map(|kernel| Some((kernel.says(work)?, kernel)));
    candidates.max_by_key(|(says, _)| *says).map(|(_, kernel)| kernel)
}

impl Amounts {
    /// What `work` amounts to on a device whose cache has `cache` bytes for it.
    pub fn of(work: &Work, cache: f64) -> Self {
        let size = work.dtype.size() as f64;
        match work.kind {
            Kind::Gemm { m, n, k } => {
                let [m, n, k] = [m, n, k].map(|x| x as f64);
                let bytes = size * (m * k + k * n + m * n);
                Self { flops: 2.0 * m * n * k, bytes, misses: bytes * missing(bytes, cache), scores: 0.0 }
            }
            Kind::Edges { edges, rows, sources, width, heads, .. } => {
                let [edges, rows, sources, width, heads] = [edges, rows, sources, width, heads].map(|x| x as f64);
                let (row, table) = (size * width, size * width * sources);
                Self {
                    flops: 2.0 * edges * width,
                    bytes: row * rows,
                    misses: row * edges * missing(table, cache),
                    scores: edges * heads,
                }
            }
            Kind::Stream { read, written } => {
                let bytes = read as f64 + written as f64;
                Self { flops: 0.0, bytes, misses: bytes * missing(bytes, cache), scores: 0.0 }
            }
        }
    }

    /// As a list, with the call itself first.
    pub(crate) fn list(&self) -> [f64; 5] {
        [1.0, self.flops, self.bytes, self.misses, self.scores]
    }
}

/// The share of accesses to `bytes` bytes that a cache of `cache` bytes does not have: of a table that is read at random, the
/// cache holds as much as it can.
fn missing(bytes: f64, cache: f64) -> f64 {
    if bytes > cache { 1.0 - cache / bytes } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemm(op: &'static str, dtype: DType) -> Work {
        Work { op, dtype, dropout: false, kind: Kind::Gemm { m: 100, n: 10, k: 5 } }
    }

    fn kernel(op: Option<&str>, dtype: Option<TypeName>, ps_per_flop: f64) -> Kernel {
        Kernel { op: op.map(String::from), dtype, ps_per_flop, ..Kernel::of(Class::Gemm) }
    }

    #[test]
    fn the_most_particular_row_counts() {
        let table = [
            kernel(None, None, 1.0),
            kernel(None, Some(TypeName::Bf16), 2.0),
            kernel(Some("linear"), None, 3.0),
            kernel(Some("linear"), Some(TypeName::Bf16), 4.0),
        ];
        let found = |op, dtype| kernel_for(&table, &gemm(op, dtype)).map(|k| k.ps_per_flop);
        assert_eq!(found("other", DType::F32), Some(1.0));
        assert_eq!(found("other", DType::Bf16), Some(2.0));
        assert_eq!(found("linear", DType::F32), Some(3.0));
        assert_eq!(found("linear", DType::Bf16), Some(4.0));
        let stream = Work { kind: Kind::Stream { read: 1, written: 1 }, ..gemm("x", DType::F32) };
        assert_eq!(kernel_for(&table, &stream), None);
    }

    #[test]
    fn amounts_are_those_of_the_shape() {
        let a = Amounts::of(&gemm("linear", DType::F32), 1e3);
        let bytes = 4.0 * (500.0 + 50.0 + 1000.0);
        assert_eq!((a.flops, a.bytes, a.misses), (10_000.0, bytes, bytes - 1e3));
        let kind = Kind::Edges { pass: Pass::Forward, edges: 1000, rows: 10, sources: 50, width: 8, heads: 2 };
        let edges = Work { op: "attention", dtype: DType::Bf16, dropout: false, kind };
        let a = Amounts::of(&edges, 200.0);
        assert_eq!((a.flops, a.bytes, a.scores), (16_000.0, 160.0, 2000.0));
        // A quarter of the table of 800 bytes is at hand.
        assert_eq!(a.misses, 16_000.0 * 0.75);
        assert_eq!(Amounts::of(&edges, 1e6).misses, 0.0);
        let rates = Kernel { us_per_call: 2.0, ps_per_flop: 10.0, ps_per_score: 5.0, ..Kernel::of(Class::Edges) };
        assert!((rates.seconds(&a) - (2e-6 + 16e4 * 1e-12 + 1e4 * 1e-12)).abs() < 1e-18);
    }
}
