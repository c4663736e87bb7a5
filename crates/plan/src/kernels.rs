//! How fast the kernels of a device are: a few numbers each.
//!
//! A kernel's time is a sum over what it has to do ([`Amounts`]), each weighted by a [rate](Kernel). The same amounts
//! serve every kernel, from a dense product to a pass over edges; what differs are the rates. A table has a row for
//! each kind of work, and more particular rows where more is known: the one that says most about a piece of work is the
//! one that counts.

use graphweft_tensor::DType;
use graphweft_tensor::dry::{Pass, Work, WorkKind};
use serde::{Deserialize, Serialize};

/// A unit in which rates are written.
const PICO: f64 = 1e-12;
const MICRO: f64 = 1e-6;

/// Products are computed in tiles of so many columns, of which the last may be empty in part.
const TILE: usize = 32;

/// What communicators compute: the one piece of work that no device is asked for.
pub const SUM: &str = "sum over ranks";

/// To leave the sum of so many pieces, which ranks have sent, in `bytes` bytes.
pub fn sum_over_ranks(dtype: DType, bytes: usize, pieces: usize) -> Work {
    let kind = WorkKind::Stream { read: bytes.saturating_mul(pieces), written: bytes, rows: pieces };
    Work { op: SUM, dtype, dropout: false, kind }
}

/// What a kernel has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts {
    /// Additions and multiplications, also those for columns that only fill a tile.
    pub flops: f64,
    /// Bytes that are read or written in order.
    pub bytes: f64,
    /// Of these and of those read at random, the ones that the cache next to the processor does not have.
    pub spills: f64,
    /// The ones that no cache has.
    pub misses: f64,
    /// Rows that are made.
    pub rows: f64,
    /// Edges.
    pub edges: f64,
    /// Groups of up to four edges of a row, which are taken together.
    pub fours: f64,
    /// Scores of edges, one per edge and head.
    pub scores: f64,
}

/// How many rates there are: of a call, and of each amount.
pub(crate) const RATES: usize = 9;

/// Bytes of cache that a rank has for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caches {
    /// Next to a processor.
    pub near: f64,
    /// Before memory.
    pub last: f64,
    /// Of the last one, what is still the rank's own when it begins a kernel: where more ranks take turns than were
    /// measured at once, others have used the cache meanwhile.
    pub kept: f64,
}

/// The rates of some kernels: all that agree with what it says about them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// What kind of work.
    pub kind: Class,
    /// The operation; all of the kind if it is not said.
    pub op: Option<String>,
    /// The pass over edges.
    pub pass: Option<Pass>,
    /// Type of the elements.
    pub dtype: Option<DType>,
    /// Whether random masks are drawn on the way.
    pub dropout: Option<bool>,
    /// Columns of a head: attention has other kernels for some.
    pub columns: Option<usize>,
    /// Microseconds of every call.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub us_per_call: f64,
    /// Where calls are queued, as on GPUs: microseconds that the device itself takes to begin and to end. The next call
    /// is made meanwhile, so that of the two, calling and computing, only the longer counts.
    pub us_in_queue: Option<f64>,
    /// The same where the device has recorded the call, beside what it computes: may be less than nothing, as that was
    /// fitted to calls that were waited for.
    pub us_recorded: Option<f64>,
    /// Picoseconds of an addition or multiplication: the inverse of TFLOP/s.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_flop: f64,
    /// Picoseconds of a byte: the inverse of TB/s.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_byte: f64,
    /// Picoseconds more of a byte that is not in the nearest cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_spill: f64,
    /// Picoseconds more of a byte that is in no cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_miss: f64,
    /// Picoseconds of a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_row: f64,
    /// Picoseconds of an edge, whatever it carries.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_edge: f64,
    /// Picoseconds of a group of up to four edges.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ps_per_four: f64,
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

impl Class {
    /// The kind of a piece of work.
    pub fn of(work: &Work) -> Self {
        match work.kind {
            WorkKind::Gemm { .. } => Self::Gemm,
            WorkKind::Edges { .. } => Self::Edges,
            WorkKind::Stream { .. } => Self::Stream,
        }
    }
}

/// The pass of a piece of work, if it is over edges.
pub(crate) fn pass_of(work: &Work) -> Option<Pass> {
    match work.kind {
        WorkKind::Edges { pass, .. } => Some(pass),
        _ => None,
    }
}

/// Columns of a head, if there are heads.
pub(crate) fn columns_of(work: &Work) -> Option<usize> {
    match work.kind {
        WorkKind::Edges { width, heads, .. } if heads > 0 => Some(width / heads),
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
            us_in_queue: None,
            us_recorded: None,
            ps_per_flop: 0.0,
            ps_per_byte: 0.0,
            ps_per_spill: 0.0,
            ps_per_miss: 0.0,
            ps_per_row: 0.0,
            ps_per_edge: 0.0,
            ps_per_four: 0.0,
            ps_per_score: 0.0,
        }
    }

    /// How much it says about `work`; nothing if it is about other work.
    fn says(&self, work: &Work) -> Option<usize> {
        let agrees = |said: Option<bool>| said != Some(false);
        let about = [
            self.op.as_deref().map(|op| op == work.op),
            self.pass.map(|pass| Some(pass) == pass_of(work)),
            self.dtype.map(|dtype| dtype == work.dtype),
            self.dropout.map(|dropout| dropout == work.dropout),
            self.columns.map(|columns| Some(columns) == columns_of(work)),
        ];
        let fits = self.kind == Class::of(work) && about.into_iter().all(agrees);
        // The operation says more than everything else about it.
        fits.then(|| about.iter().flatten().count() + if self.op.is_some() { about.len() } else { 0 })
    }

    /// Seconds of one call.
    pub fn seconds(&self, amounts: &Amounts) -> f64 {
        match self.us_in_queue {
            Some(queued) => (self.us_per_call * MICRO).max(queued * MICRO + self.computing(amounts)),
            None => self.us_per_call * MICRO + self.computing(amounts),
        }
    }

    /// Seconds where the call has been recorded: what the device itself takes.
    pub fn seconds_recorded(&self, amounts: &Amounts) -> f64 {
        let called = self.us_recorded.or(self.us_in_queue).unwrap_or(self.us_per_call);
        (called * MICRO + self.computing(amounts)).max(0.0)
    }

    fn computing(&self, amounts: &Amounts) -> f64 {
        let [_, rest @ ..] = self.rates().map(|(_, rate)| rate);
        let [_, amounts @ ..] = amounts.list();
        rest.iter().zip(amounts).map(|(rate, amount)| rate * amount).sum::<f64>() * PICO
    }

    /// Sets the rates, which are in seconds and in the order of [`Amounts::list`].
    pub(crate) fn set_rates(&mut self, [call, rest @ ..]: [f64; RATES]) {
        let [to_call, to_rest @ ..] = self.rates_mut();
        *to_call = call / MICRO;
        to_rest.into_iter().zip(rest).for_each(|(to, rate)| *to = rate / PICO);
    }

    /// Everything takes `factor` times as long.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.rates_mut().into_iter().for_each(|rate| *rate *= factor);
        self.us_in_queue.iter_mut().chain(&mut self.us_recorded).for_each(|rate| *rate *= factor);
    }

    /// Every call takes `seconds` longer, or less if that is negative; `queued` seconds where the device computes
    /// meanwhile, and `recorded` where it has recorded the call.
    pub(crate) fn delay(&mut self, seconds: f64, queued: Option<f64>, recorded: Option<f64>) {
        let later = |by: f64| self.us_per_call + by / MICRO;
        (self.us_per_call, self.us_in_queue, self.us_recorded) =
            (later(seconds).max(0.0), queued.map(|by| later(by).max(0.0)), recorded.map(later));
    }

    /// The host waits with it, `seconds` each time, or `recorded` where the step has been recorded.
    pub(crate) fn wait(&mut self, seconds: f64, recorded: f64) {
        self.us_per_call += seconds / MICRO;
        self.us_in_queue.iter_mut().for_each(|rate| *rate += seconds / MICRO);
        self.us_recorded.iter_mut().for_each(|rate| *rate += recorded / MICRO);
    }

    fn rates_mut(&mut self) -> [&mut f64; RATES] {
        [
            &mut self.us_per_call,
            &mut self.ps_per_flop,
            &mut self.ps_per_byte,
            &mut self.ps_per_spill,
            &mut self.ps_per_miss,
            &mut self.ps_per_row,
            &mut self.ps_per_edge,
            &mut self.ps_per_four,
            &mut self.ps_per_score,
        ]
    }

    /// All rates, by name.
    pub(crate) fn rates(&self) -> [(&'static str, f64); RATES] {
        [
            ("us_per_call", self.us_per_call),
            ("ps_per_flop", self.ps_per_flop),
            ("ps_per_byte", self.ps_per_byte),
            ("ps_per_spill", self.ps_per_spill),
            ("ps_per_miss", self.ps_per_miss),
            ("ps_per_row", self.ps_per_row),
            ("ps_per_edge", self.ps_per_edge),
            ("ps_per_four", self.ps_per_four),
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
    /// What `work` amounts to on a device with these caches.
    pub fn of(work: &Work, caches: Caches) -> Self {
        let size = work.dtype.size() as f64;
        match work.kind {
            WorkKind::Gemm { m, n, k } => {
                let padded = n.next_multiple_of(TILE) as f64;
                let [m, n, k] = [m, n, k].map(|x| x as f64);
                Self { flops: 2.0 * m * padded * k, ..Self::in_order(size * (m * k + k * n + m * n), caches) }
            }
            WorkKind::Edges { edges, rows, fours, sources, row, reuse, width, heads, .. } => {
                let [edges, rows, fours, sources] = [edges, rows, fours, sources].map(|x| x as f64);
                let [row, width, heads] = [row, width, heads].map(|x| x as f64);
                let missed = |cache: f64| match reuse {
                    Some(reuse) => reuse.missed(cache / row.max(1.0)),
                    None => edges * missing(row * sources, cache),
                };
                // What others have displaced is fetched once, what does not fit again and again.
                let displaced = sources.min(edges) * missing(row * sources, caches.kept);
                Self {
                    flops: 2.0 * edges * width,
                    bytes: size * width * rows,
                    spills: row * missed(caches.near),
                    misses: row * missed(caches.last).max(displaced),
                    rows,
                    edges,
                    fours,
                    scores: edges * heads,
                }
            }
            WorkKind::Stream { read, written, rows } => {
                Self { rows: rows as f64, ..Self::in_order(read as f64 + written as f64, caches) }
            }
        }
    }

    /// Bytes from end to end.
    fn in_order(bytes: f64, caches: Caches) -> Self {
        let [spills, misses] = [caches.near, caches.last].map(|cache| bytes * missing(bytes, cache));
        Self { bytes, spills, misses, ..Self::default() }
    }

    /// As a list, with the call itself first.
    pub(crate) fn list(&self) -> [f64; RATES] {
        let Self { flops, bytes, spills, misses, rows, edges, fours, scores } = *self;
        [1.0, flops, bytes, spills, misses, rows, edges, fours, scores]
    }
}

/// The share of accesses to `bytes` bytes that a cache of `cache` bytes does not have: of a table that is read at
/// random, the cache holds as much as it can.
fn missing(bytes: f64, cache: f64) -> f64 {
    if bytes > cache { 1.0 - cache / bytes } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemm(op: &'static str, dtype: DType) -> Work {
        Work { op, dtype, dropout: false, kind: WorkKind::Gemm { m: 100, n: 10, k: 5 } }
    }

    fn kernel(op: Option<&str>, dtype: Option<DType>, ps_per_flop: f64) -> Kernel {
        Kernel { op: op.map(String::from), dtype, ps_per_flop, ..Kernel::of(Class::Gemm) }
    }

    #[test]
    fn the_most_particular_row_counts() {
        let table = [
            kernel(None, None, 1.0),
            kernel(None, Some(DType::Bf16), 2.0),
            kernel(Some("linear"), None, 3.0),
            kernel(Some("linear"), Some(DType::Bf16), 4.0),
        ];
        let found = |op, dtype| kernel_for(&table, &gemm(op, dtype)).map(|k| k.ps_per_flop);
        assert_eq!(found("other", DType::F32), Some(1.0));
        assert_eq!(found("other", DType::Bf16), Some(2.0));
        assert_eq!(found("linear", DType::F32), Some(3.0));
        assert_eq!(found("linear", DType::Bf16), Some(4.0));
        let stream = Work { kind: WorkKind::Stream { read: 1, written: 1, rows: 1 }, ..gemm("x", DType::F32) };
        assert_eq!(kernel_for(&table, &stream), None);
    }

    #[test]
    fn a_call_that_is_queued_costs_nothing_while_the_device_computes() {
        let mut kernel = Kernel { us_per_call: 9.0, ps_per_flop: 1.0, ..Kernel::of(Class::Gemm) };
        let takes = |kernel: &Kernel, flops: f64, micros: f64| {
            let found = kernel.seconds(&Amounts { flops, ..Amounts::default() });
            assert!((found / (micros * MICRO) - 1.0).abs() < 1e-9, "{found} for {micros} µs");
        };
        takes(&kernel, 20e6, 29.0);
        let recorded = |kernel: &Kernel| kernel.seconds_recorded(&Amounts { flops: 1e6, ..Amounts::default() }) / MICRO;
        assert!((recorded(&kernel) - 10.0).abs() < 1e-9);
        kernel.delay(-4.0 * MICRO, Some(-7.0 * MICRO), None);
        takes(&kernel, 1e6, 5.0);
        assert!((recorded(&kernel) - 3.0).abs() < 1e-9, "two in the queue");
        kernel.us_recorded = Some(0.5);
        assert!((recorded(&kernel) - 1.5).abs() < 1e-9);
        takes(&kernel, 20e6, 22.0);
        kernel.scale(2.0);
        takes(&kernel, 20e6, 44.0);
        kernel.delay(-100.0 * MICRO, None, None);
        takes(&kernel, 20e6, 40.0);
    }

    #[test]
    fn amounts_are_those_of_the_shape() {
        let caches = |near, last| Caches { near, last, kept: last };
        let a = Amounts::of(&gemm("linear", DType::F32), caches(500.0, 1e3));
        let bytes = 4.0 * (500.0 + 50.0 + 1000.0);
        assert_eq!((a.flops, a.bytes, a.spills, a.misses), (32_000.0, bytes, bytes - 500.0, bytes - 1e3));
        let kind = WorkKind::Edges {
            pass: Pass::Forward,
            edges: 1000,
            rows: 10,
            fours: 255,
            sources: 50,
            row: 16,
            reuse: None,
            width: 8,
            heads: 2,
        };
        let edges = Work { op: "attention", dtype: DType::Bf16, dropout: false, kind };
        let a = Amounts::of(&edges, caches(0.0, 200.0));
        assert_eq!((a.flops, a.bytes, a.rows, a.edges), (16_000.0, 160.0, 10.0, 1000.0));
        assert_eq!((a.fours, a.scores), (255.0, 2000.0));
        // A quarter of the table of 800 bytes is at hand.
        assert_eq!((a.spills, a.misses), (16_000.0, 16_000.0 * 0.75));
        assert_eq!(Amounts::of(&edges, caches(0.0, 1e6)).misses, 0.0);
        // Of a table that fits, but was displaced but for a quarter, the rest is fetched once.
        let shared = Caches { near: 0.0, last: 1e6, kept: 200.0 };
        assert_eq!(Amounts::of(&edges, shared).misses, 800.0 * 0.75);
        let rates = Kernel { us_per_call: 2.0, ps_per_flop: 10.0, ps_per_score: 5.0, ..Kernel::of(Class::Edges) };
        assert!((rates.seconds(&a) - (2e-6 + 16e4 * 1e-12 + 1e4 * 1e-12)).abs() < 1e-18);
    }
}
