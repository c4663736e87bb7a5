//! How an edge gets its score: the one thing in which dot-product attention, GAT and GATv2 differ.
//!
//! The passes over edges (`vector`, `portable`) do everything that is the same: softmax, dropout, biases, sums of
//! values, the work on hubs. A score says how an edge's score comes from the rows at its two ends, and what the score's
//! gradient means for these rows. Everything is generic and inlined, so that each score has passes of its own in the
//! machine code.

#![allow(unsafe_op_in_unsafe_fn)]

use super::OP;
use super::edges::{FourEdges, Stride};
use super::vector::Passes;
use crate::cpu::Isa;
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::host_mut;
use crate::cpu::neighbours::FOUR;
use crate::cpu::share::Shared;
use crate::cpu::simd::{Avx2, Avx512, Simd, Sink, Source, Stored};
use crate::error::Result;
use crate::ops::Write;
use crate::ops::attention::SrcGrads;

/// Rows that are parts of wider rows.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
    pub(super) all: &'a [T],
    pub(super) stride: usize,
    pub(super) offset: usize,
}

impl<'a, T> Rows<'a, T> {
    /// Columns `from` to `to` of row `j`.
    pub(super) fn part(&self, j: usize, from: usize, to: usize) -> &'a [T] {
        let start = j * self.stride + self.offset;
        &self.all[start + from..start + to]
    }

    /// Where row `j` begins.
    #[inline(always)]
    pub(super) fn at(&self, j: usize) -> *const T {
        self.all.as_ptr().wrapping_add(j * self.stride + self.offset)
    }
}

/// How wide gradients are, per head.
#[derive(Clone, Copy)]
pub(super) struct Widths {
    /// Of a destination's operand.
    pub(super) dst: usize,
    /// Of a source's operand.
    pub(super) src: usize,
    /// Of a parameter that all edges share; 0 if there is none.
    pub(super) shared: usize,
}

/// The operands of one attention, and their types.
pub(super) trait Operands: Sync {
    /// Of the output and its gradient.
    type Out: Convert;
    /// Of the values.
    type Value: Convert;
    /// Of the gradient of the destinations' operand.
    type Dst: Convert;
    /// Of the gradient of the sources' operand.
    type Src: Convert;

    fn heads(&self) -> usize;

    /// Width of one head's values.
    fn head_width(&self) -> usize;

    fn widths(&self) -> Widths;

    /// The values, a row per source.
    fn values(&self) -> Rows<'_, Self::Value>;

    /// Width of all heads' values.
    fn d(&self) -> usize {
        self.heads() * self.head_width()
    }

    /// Numbers behind each head of the output, and of the destinations' operand.
    fn tail(&self) -> usize {
        0
    }

    /// Numbers of the weight of features of edges, where scores have one.
    fn edge_weights(&self) -> usize {
        0
    }

    /// Columns of the output.
    fn wide(&self) -> usize {
        self.heads() * (self.head_width() + self.tail())
    }

    /// From one head of the output to the next.
    fn stride(&self) -> Stride {
        Stride { heads: self.heads(), by: self.head_width() + self.tail() }
    }

    /// The heads of a row with tails, and those of a row without.
    fn columns(&self) -> Heads {
        let w = self.head_width();
        Heads { count: self.heads(), width: w, near: w + self.tail(), far: w }
    }

    /// Numbers in which vector kernels collect the gradient of a destination's operand.
    fn dst_size(&self) -> usize {
        self.heads() * self.widths().dst
    }

    /// The same for a source's.
    fn src_size(&self) -> usize {
        self.heads() * self.widths().src
    }

    /// Where the gradients of the sources' operands go: through the score, and through the values.
    fn source_gradients<'a>(&self, to: SrcGrads<'a>) -> Result<SourceGradients<'a, Self>> {
        let stride = self.heads() * self.widths().src;
        let through = GradientRows { all: Shared::new(host_mut(OP, "gradient by source", to.row)?), stride, offset: 0 };
        let Some(values) = to.value else { return Ok(SourceGradients { through, values: None }) };
        let all = Shared::new(host_mut(OP, "gradient of values", values)?);
        Ok(SourceGradients { through, values: Some(GradientRows { all, stride: self.d(), offset: 0 }) })
    }
}

/// A part of each row of a matrix, to be written.
pub(super) struct GradientRows<'a, T> {
    pub(super) all: Shared<'a, T>,
    pub(super) stride: usize,
    pub(super) offset: usize,
}

impl<'a, T> GradientRows<'a, T> {
    /// `width` elements of row `j`.
    ///
    /// # Safety
    /// As [`Shared::part`].
    #[inline(always)]
    pub(super) unsafe fn part(&self, j: usize, width: usize) -> &'a mut [T] {
        let start = j * self.stride + self.offset;
        self.all.part(start..start + width)
    }
}

/// Where the gradients of the sources' operands go.
pub(super) struct SourceGradients<'a, A: Operands + ?Sized> {
    /// What comes through the score.
    pub(super) through: GradientRows<'a, A::Src>,
    /// That of the values; `None` where the values are the operand of the score, which then gets both.
    pub(super) values: Option<GradientRows<'a, A::Value>>,
}

/// The heads of two rows.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub(super) count: usize,
    /// Columns of a head.
    pub(super) width: usize,
    /// From one head to the next in the row at hand.
    pub(super) near: usize,
    /// The same in rows at the other ends of edges.
    pub(super) far: usize,
}

impl Heads {
    /// The same from the other end.
    pub(super) fn turned(self) -> Self {
        Self { near: self.far, far: self.near, ..self }
    }
}

/// An edge j → i: its ends, and its number among the edges of the graph.
#[derive(Clone, Copy)]
pub(super) struct Edge {
    pub(super) j: usize,
    pub(super) i: usize,
    pub(super) number: usize,
}

/// A score in plain Rust, one edge j → i and head h at a time.
pub(super) trait Plain<C: Real>: Operands {
    fn score(&self, edge: Edge, h: usize) -> C;

    /// What stands behind a head of a destination's operand.
    fn tail_of(&self, _i: usize, _h: usize) -> &[Self::Dst] {
        &[]
    }

    /// What products of tails with features of edges are multiplied by.
    fn tail_scale(&self) -> C {
        C::one()
    }

    /// Adds what `de`, the gradient of the score, means for the destination's operand, for the shared parameter and for
    /// the weight of features of edges.
    fn grad_dst(&self, edge: Edge, h: usize, de: C, dst: &mut [C], shared: &mut [C], weight: &mut [C]);

    /// Adds what `de` means for the source's operand.
    fn grad_src(&self, edge: Edge, h: usize, de: C, src: &mut [C]);
}

/// What the passes hand a score of four edges for its gradients.
#[derive(Clone, Copy)]
pub(super) struct Gradients<'a> {
    /// Of the raw scores.
    pub(super) de: *const f32,
    /// What the score left there when it was made; it may be written.
    pub(super) slopes: *mut f32,
    pub(super) edges: Option<FourEdges<'a>>,
}

/// Where a score adds its gradients by destination.
#[derive(Clone, Copy)]
pub(super) struct Collected {
    pub(super) dst: *mut f32,
    /// Of the parameter that all edges share.
    pub(super) shared: *mut f32,
    /// Of the weight of features of edges.
    pub(super) weight: *mut f32,
}

/// A score with vector instructions, four edges of one node at a time. Scores and their gradients lie as `[4h + e]`.
///
/// Safety of all methods: the processor has the instructions, nodes are rows of the operands, and pointers lead to as
/// many numbers as the widths say.
pub(super) trait Score<S: Simd>: Operands<Out: Sink<S>, Value: Sink<S>, Dst: Sink<S>, Src: Sink<S>> {
    /// What raw scores are to be multiplied by.
    fn scale(&self) -> f32 {
        1.0
    }

    /// Asks for what an edge reads of its source, values included.
    fn prefetch_src(&self, j: usize);

    /// Asks for what an edge reads of its destination.
    fn prefetch_dst(&self, i: usize);

    /// The raw scores of the edges `j[e] → i`, which may have features. In `slopes`, as many numbers, it may leave what
    /// it wants to know again for the gradients.
    unsafe fn by_dst(&self, i: usize, j: [usize; FOUR], edges: Option<FourEdges<'_>>, to: *mut f32, slopes: *mut f32);

    /// The raw scores of the edges `j → i[e]`.
    unsafe fn by_src(&self, j: usize, i: [usize; FOUR], edges: Option<FourEdges<'_>>, to: *mut f32, slopes: *mut f32);

    /// Adds what the gradients of the raw scores of `j[e] → i` mean for i's operand and for parameters.
    unsafe fn grad_dst(&self, i: usize, j: [usize; FOUR], of: Gradients<'_>, to: Collected);

    /// Adds what the gradients of the raw scores of `j → i[e]` mean for j's operand.
    unsafe fn grad_src(&self, j: usize, i: [usize; FOUR], of: Gradients<'_>, src: *mut f32);

    /// Writes what was collected for a destination.
    unsafe fn store_dst(&self, collected: *const f32, to: *mut Self::Dst, write: Write);

    /// Writes what was collected for a source.
    unsafe fn store_src(&self, collected: *const f32, to: *mut Self::Src);
}

/// A score that every version of the passes can use.
pub(super) trait Any:
    Score<Avx512> + Score<Avx2> + Plain<f32> + Operands<Out: Stored, Value: Stored, Dst: Stored, Src: Stored> + Sized
{
    /// Passes that were written for this score alone, where the processor and the shape suit them.
    fn own_passes(&self, _: Isa) -> Option<Passes<Self>> {
        None
    }
}

/// x·y, from storage, in the type of the computation.
pub(super) fn dot<C: Real, A: Convert, B: Convert>(x: &[A], y: &[B]) -> C {
    x.iter().zip(y).fold(C::zero(), |sum, (x, y)| sum + C::of(*x) * C::of(*y))
}

/// acc += weight · x
pub(super) fn add_scaled<C: Real, A: Convert>(acc: &mut [C], weight: C, x: &[A]) {
    for (a, x) in acc.iter_mut().zip(x) {
        *a = *a + weight * C::of(*x);
    }
}

/// `scores[4h + e] = x_h · rows[e]_h` for all heads, and features of edges times the tail behind x_h.
#[inline(always)]
pub(super) unsafe fn dots<S: Simd, X: Convert + Source<S>, T: Source<S>>(
    Heads { count, width: w, near, far }: Heads,
    x: *const X,
    rows: [*const T; FOUR],
    edges: Option<FourEdges<'_>>,
    scores: *mut f32,
) {
    for h in 0..count {
        let mut sums = [S::splat(0.0); FOUR];
        for t in (0..w).step_by(S::LANES) {
            let x = X::load(x.add(h * near + t));
            for e in 0..FOUR {
                sums[e] = S::fma(x, T::load(rows[e].add(h * far + t)), sums[e]);
            }
        }
        if let Some(edges) = edges {
            edges.dots::<S, X>(x.add(h * near + w), &mut sums);
        }
        S::sum4(sums, scores.add(FOUR * h));
    }
    if let Some(edges) = edges {
        edges.look_up(Stride { heads: count, by: near }, [x.wrapping_add(w); FOUR], scores);
    }
}

/// The same with the tails behind the heads of `rows[e]`.
#[inline(always)]
pub(super) unsafe fn far_dots<S: Simd, X: Source<S>, T: Convert + Source<S>>(
    Heads { count, width: w, near, far }: Heads,
    x: *const X,
    rows: [*const T; FOUR],
    edges: Option<FourEdges<'_>>,
    scores: *mut f32,
) {
    for h in 0..count {
        let mut sums = [S::splat(0.0); FOUR];
        for t in (0..w).step_by(S::LANES) {
            let x = X::load(x.add(h * near + t));
            for e in 0..FOUR {
                sums[e] = S::fma(x, T::load(rows[e].add(h * far + t)), sums[e]);
            }
        }
        if let Some(edges) = edges {
            edges.far_dots::<S, T>(rows.map(|row| row.wrapping_add(h * far + w)), &mut sums);
        }
        S::sum4(sums, scores.add(FOUR * h));
    }
    if let Some(edges) = edges {
        edges.look_up(Stride { heads: count, by: far }, rows.map(|row| row.wrapping_add(w)), scores);
    }
}

/// `acc_h = keep_h·acc_h + Σ_e weights[4h + e]·rows[e]_h` for all heads.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd, T: Source<S>>(
    Heads { count, width: w, near, far }: Heads,
    weights: *const f32,
    keep: Option<*const f32>,
    rows: [*const T; FOUR],
    acc: *mut f32,
) {
    for h in 0..count {
        let weight: [S::V; FOUR] = std::array::from_fn(|e| S::splat(*weights.add(FOUR * h + e)));
        for t in (0..w).step_by(S::LANES) {
            let to = acc.add(h * near + t);
            let mut sum = S::load(to);
            if let Some(keep) = keep {
                sum = S::mul(sum, S::splat(*keep.add(FOUR * h)));
            }
            for e in 0..FOUR {
                sum = S::fma(weight[e], T::load(rows[e].add(h * far + t)), sum);
            }
            S::store(to, sum);
        }
    }
}

/// `to (+)= acc`, whole vectors first.
#[inline(always)]
pub(super) unsafe fn store<S: Simd, T: Convert + Sink<S>>(d: usize, acc: *const f32, to: *mut T, write: Write) {
    let whole = d - d % S::LANES;
    for t in (0..whole).step_by(S::LANES) {
        let mut sum = S::load(acc.add(t));
        if write == Write::Add {
            sum = S::add(sum, T::load(to.add(t)));
        }
        T::store(to.add(t), sum);
    }
    for t in whole..d {
        let old = if write == Write::Add { f32::of(*to.add(t)) } else { 0.0 };
        to.add(t).write(T::narrow((old + *acc.add(t)).widen()));
    }
}

/// `to = by·acc`, whole vectors first.
#[inline(always)]
pub(super) unsafe fn store_scaled<S: Simd, T: Convert + Sink<S>>(count: usize, acc: *const f32, by: f32, to: *mut T) {
    let whole = count - count % S::LANES;
    for t in (0..whole).step_by(S::LANES) {
        T::store(to.add(t), S::mul(S::load(acc.add(t)), S::splat(by)));
    }
    for t in whole..count {
        to.add(t).write(T::narrow((by * *acc.add(t)).widen()));
    }
}
