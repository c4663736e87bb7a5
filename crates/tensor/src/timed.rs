//! A backend that times every kernel of another one: what a planner learns the speed of a device from.
//!
//! Kernels are called in an order that depends on the program alone. So the times of a program, in the order of calls, stand
//! beside what the same program reports on a dry device, call for call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::adjacency::{Adjacency, Direction};
use crate::backend::{Backend, Block, Floor, Memory};
use crate::device::Device;
use crate::error::Result;
use crate::matrix::{Address, Matrix};
use crate::ops::Write;
use crate::ops::activation::{Activated, Activation, ActivationKernels};
use crate::ops::attention::{Attention, AttentionKernels, DstGrads, Saved, SrcGrads};
use crate::ops::bag::BagKernels;
use crate::ops::batch_norm::{BatchNormKernels, Normaliser};
use crate::ops::combine::{CombineKernels, Patch};
use crate::ops::dropout::{DropoutKernels, RowDropout};
use crate::ops::epilogue::{Ending, EpilogueKernels};
use crate::ops::global::{GlobalKernels, GlobalRows, GlobalSaved};
use crate::ops::head_dot::HeadDotKernels;
use crate::ops::l2norm::L2NormKernels;
use crate::ops::linear::{LinearKernels, Weights};
use crate::ops::loss::{LossKernels, LossOperands};
use crate::ops::many_rows::ManyRows;
use crate::ops::norm::{NormKernels, NormNumbers, NormSaved};
use crate::ops::product::ProductKernels;
use crate::ops::residual::{Branches, ResidualKernels};
use crate::ops::rows::{RowIndex, RowKernels};
use crate::ops::spmm::{Along, EdgeWeights, SpmmKernels};
use crate::optim::{OptimizerKernels, Slot, Step};
use crate::random::Ids;

/// One call of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The kernel.
    pub op: &'static str,
    /// How long it took, until the device was done.
    pub seconds: f64,
}

/// The calls of a device that is timed, first to last.
#[derive(Clone, Default)]
pub struct Timings(Rc<RefCell<Vec<Timing>>>);

impl Timings {
    /// The calls since the last time that this was asked for.
    pub fn take(&self) -> Vec<Timing> {
        self.0.take()
    }
}

/// The time since it was first asked for: a clock for kernels that run on several threads, or on a device of their own.
pub fn wall_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

struct Timed {
    inner: Box<dyn Backend>,
    clock: fn() -> Duration,
    timings: Timings,
    /// Whether a call is under way: what a kernel of the inner backend asks this one for is a part of that kernel.
    busy: Cell<bool>,
}

impl Device {
    /// A device run by `backend`, and the time of every call of its kernels by `clock`, which counts from any moment.
    pub fn timed(backend: Box<dyn Backend>, clock: fn() -> Duration) -> (Self, Timings) {
        let timings = Timings::default();
        let timed = Timed { inner: backend, clock, timings: timings.clone(), busy: Cell::new(false) };
        (Self::with_backend(Box::new(timed)), timings)
    }
}

impl Timed {
    fn time<T>(&self, op: &'static str, call: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.busy.replace(true) {
            return call();
        }
        let start = (self.clock)();
        let done = call().and_then(|done| self.inner.wait().map(|()| done));
        self.busy.set(false);
        let done = done?;
        let seconds = (self.clock)().saturating_sub(start).as_secs_f64();
        self.timings.0.borrow_mut().push(Timing { op, seconds });
        Ok(done)
    }
}

/// Implements kernels by calling, and timing, those of the inner backend.
macro_rules! timed {
    ($($kernels:ident { $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)* })*) => {
        $(impl $kernels for Timed {
            $(fn $name(&self, $($arg: $type),*) -> Result<$result> {
                self.time(stringify!($name), || self.inner.$name($($arg),*))
            })*
        })*
    };
}

impl Memory for Timed {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn allocate(&self, bytes: usize) -> Result<Option<Block>> {
        self.inner.allocate(bytes)
    }

    fn upload(&self, to: &mut Matrix, bytes: &[u8]) -> Result<()> {
        self.time("upload", || self.inner.upload(to, bytes))
    }

    fn download(&self, from: &Matrix, bytes: &mut [u8]) -> Result<()> {
        self.time("download", || self.inner.download(from, bytes))
    }

    fn zero(&self, m: &mut Matrix) -> Result<()> {
        self.time("zero", || self.inner.zero(m))
    }

    fn convert(&self, to: &mut Matrix, from: &Matrix) -> Result<()> {
        self.time("convert", || self.inner.convert(to, from))
    }

    fn copy_part(&self, from: &Matrix, start: usize, to: &mut Matrix, at: usize, count: usize) -> Result<()> {
        self.time("copy_part", || self.inner.copy_part(from, start, to, at, count))
    }

    fn add(&self, to: &mut Matrix, x: &Matrix) -> Result<()> {
        self.time("add", || self.inner.add(to, x))
    }

    fn address(&self, m: &Matrix) -> Result<Address> {
        self.inner.address(m)
    }

    fn wait(&self) -> Result<()> {
        self.inner.wait()
    }
}

timed! {
    ActivationKernels {
        fn activate(activation: Activation, x: &Matrix, y: &mut Matrix) -> ();
        fn activation_backward(activation: Activation, saved: &Matrix, dy: &mut Matrix) -> ();
    }
    AttentionKernels {
        fn attention(a: &Attention<'_>, out: &mut Matrix, lse: &mut Matrix) -> ();
        fn attention_fold(a: &Attention<'_>, state: &mut Matrix) -> ();
        fn attention_merge(heads: usize, partial: &Matrix, index: &RowIndex, state: &mut Matrix) -> ();
        fn attention_finish(heads: usize, state: &Matrix, out: &mut Matrix, lse: &mut Matrix) -> ();
        fn attention_d(heads: usize, g: &Matrix, out: &Matrix, d: &mut Matrix) -> ();
        fn attention_dst(a: &Attention<'_>, s: &Saved<'_>, to: DstGrads<'_>) -> ();
        fn attention_src(a: &Attention<'_>, s: &Saved<'_>, to: SrcGrads<'_>) -> ();
    }
    BagKernels {
        fn transpose(from: &Matrix, to: &mut Matrix) -> ();
        fn spread_row(row: &Matrix, to: &mut Matrix) -> ();
        fn sum_rows(from: &Matrix, to: &mut Matrix) -> ();
        fn drop_entries(graph: &Adjacency, entries: Option<&Matrix>, drop: &RowDropout, to: &mut Matrix) -> ();
    }
    BatchNormKernels {
        fn moment_sums(x: &Matrix, shift: &Matrix, sums: &mut Matrix) -> ();
        fn normalise(x: &Matrix, by: &Normaliser<'_>, norm: &NormNumbers<'_>, y: &mut Matrix) -> ();
        fn batch_norm_sums(x: &Matrix, by: &Normaliser<'_>, dy: &Matrix, sums: &mut Matrix) -> ();
        fn batch_norm_dx(
            x: &Matrix,
            by: &Normaliser<'_>,
            weight: &Matrix,
            means: &Matrix,
            g: &mut Matrix,
            plus: Option<&Matrix>,
        ) -> ();
    }
    CombineKernels {
        fn combine(a: f64, x: &Matrix, other: Option<(f64, &Matrix)>, to: &mut Matrix) -> ();
        fn scale(a: f64, m: &mut Matrix) -> ();
        fn copy_patch(from: &Matrix, to: &mut Matrix, patch: Patch, add: bool) -> ();
    }
    DropoutKernels {
        fn dropout(d: &RowDropout, x: &Matrix, y: &mut Matrix) -> ();
        fn dropout_in_place(d: &RowDropout, m: &mut Matrix) -> ();
    }
    EpilogueKernels {
        fn epilogue(ending: &Ending<'_>, x: &Matrix, y: &mut Matrix, pre: Option<&mut Matrix>) -> ();
        fn epilogue_backward(
            ending: &Ending<'_>,
            saved: Option<&Matrix>,
            g: &mut Matrix,
            db: Option<&mut Matrix>,
        ) -> ();
        fn spread_groups(dy: &Matrix, groups: usize, dx: &mut Matrix) -> ();
    }
    Floor {
        fn touch(direction: &Direction, tables: &[&Matrix]) -> u64;
    }
    GlobalKernels {
        fn global_norms(a: &GlobalRows<'_>, norms: &mut Matrix) -> ();
        fn global_sums(a: &GlobalRows<'_>, sums: &mut Matrix) -> ();
        fn global_apply(a: &GlobalRows<'_>, sums: &Matrix, out: &mut Matrix, den: &mut Matrix) -> ();
        fn global_back_sums(a: &GlobalRows<'_>, saved: &GlobalSaved<'_>, sums: &mut Matrix) -> ();
        fn global_back_rows(
            a: &GlobalRows<'_>,
            saved: &GlobalSaved<'_>,
            sums: &Matrix,
            back: &Matrix,
            to: [&mut Matrix; 3],
        ) -> ();
    }
    HeadDotKernels {
        fn head_dot(z: &Matrix, vectors: &[&Matrix], to: &mut [&mut Matrix]) -> ();
        fn head_dot_backward(
            z: &Matrix,
            vectors: &[&Matrix],
            g: &[&Matrix],
            dz: (&mut Matrix, Write),
            to: &mut [&mut Matrix],
        ) -> ();
    }
    L2NormKernels {
        fn l2_norm(x: &Matrix, y: &mut Matrix, norms: &mut Matrix) -> ();
        fn l2_norm_backward(y: &Matrix, norms: &Matrix, g: &mut Matrix) -> ();
    }
    LinearKernels {
        fn linear(x: &Matrix, layer: &Weights<'_>, y: &mut Matrix, pre: Option<&mut Matrix>) -> ();
        fn linear_dx(dy: &Matrix, layer: &Weights<'_>, dx: &mut Matrix, add: bool) -> ();
        fn linear_dw(x: &Activated, dy: &Matrix, first: usize, dw: &mut Matrix, db: Option<&mut Matrix>) -> ();
    }
    LossKernels {
        fn loss(operands: &LossOperands<'_>, loss: &mut Matrix, gradient: Option<&mut Matrix>) -> ();
    }
    NormKernels {
        fn layer_norm(x: &Matrix, norm: &NormNumbers<'_>, y: &mut Matrix, stats: &mut Matrix) -> ();
        fn layer_norm_backward(
            saved: &NormSaved<'_>,
            g: &mut Matrix,
            plus: Option<&Matrix>,
            dropped: Option<(&RowDropout, &mut Matrix)>,
            dw: &mut Matrix,
            db: &mut Matrix,
        ) -> ();
    }
    OptimizerKernels {
        fn step(step: &Step, slots: &mut [Slot<'_>]) -> ();
        fn square_sums(matrices: &[&Matrix]) -> Vec<f64>;
    }
    ProductKernels {
        fn product(a: &Matrix, shift: f64, b: &Matrix, y: &mut Matrix) -> ();
    }
    ResidualKernels {
        fn residual(b: &Branches<'_>, sum: &mut Matrix) -> ();
        fn residual_norm(
            b: &Branches<'_>,
            norm: &NormNumbers<'_>,
            sum: &mut Matrix,
            y: &mut Matrix,
            stats: &mut Matrix,
        ) -> ();
    }
    RowKernels {
        fn gather_rows(x: &Matrix, index: &RowIndex, y: &mut Matrix) -> ();
        fn scatter_rows(x: &Matrix, index: &RowIndex, y: &mut Matrix, add: bool) -> ();
        fn gather_many(from: &[&Matrix], list: &ManyRows, y: &mut Matrix) -> ();
        fn scatter_many(x: &Matrix, list: &ManyRows, to: &mut [Option<Matrix>]) -> ();
    }
    SpmmKernels {
        fn inverse_degrees(graph: &Adjacency, numerator: Option<&Matrix>, to: &mut Matrix) -> ();
        fn spmm(
            graph: &Adjacency,
            weights: &EdgeWeights<'_>,
            along: Along,
            x: &Matrix,
            out: &mut Matrix,
            write: Write,
        ) -> ();
        fn spmm_dw(graph: &Adjacency, weights: &EdgeWeights<'_>, x: &Matrix, g: &Matrix, dw: &mut Matrix) -> ();
        fn spmm_max(
            graph: &Adjacency,
            x: &Matrix,
            ids: &Ids,
            out: &mut Matrix,
            arg: &mut Matrix,
            write: Write,
        ) -> ();
        fn spmm_max_dx(
            graph: &Adjacency,
            ids: &Ids,
            arg: &Matrix,
            g: &Matrix,
            dx: &mut Matrix,
            write: Write,
        ) -> ();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Cpu, Isa};
    use crate::error::Error;

    #[test]
    fn what_a_kernel_asks_for_is_a_part_of_it() {
        let timings = Timings::default();
        let inner = Box::new(Cpu::with_isa(Isa::Portable));
        let timed = Timed { inner, clock: wall_time, timings: timings.clone(), busy: Cell::new(false) };
        timed.time("outer", || timed.time("inner", || Ok(()))).unwrap();
        let fails = || Err::<(), _>(Error::Argument { op: "fails", problem: String::new() });
        timed.time("fails", fails).unwrap_err();
        timed.time("next", || Ok(())).unwrap();
        let ops: Vec<&str> = timings.take().iter().map(|t| t.op).collect();
        assert_eq!(ops, ["outer", "next"]);
    }
}
