//! Attention on the CPU: tasks over rows, a kernel per instruction set and score.

mod dot;
mod edges;
mod extras;
mod gat;
mod gatv2;
mod portable;
mod score;
mod state;
mod vector;
mod wide;

use half::bf16;

use super::elementwise::Real;
use super::neighbours::run;
use super::share::Shared;
use super::{Cpu, Isa, host, host_mut, scratch};
use crate::adjacency::Direction;
use crate::dry;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::attention::{Attention, AttentionKernels, Bias, DstGrads, Saved, Score, SrcGrads};
use crate::ops::rows::RowIndex;
use dot::Dot;
use extras::{BiasGrad, Extras, Places};
use gat::Gat;
use gatv2::Gatv2;
use score::{Any, Operands, SourceGradients};
use vector::{ByDst, BySrc, Forward, Pass, Passes, Statistics, Target};

const OP: &str = "attention";

/// Runs `$exact` or `$fast` with `$s`, the operands in their types: in f64, or in f32 with storage in f32 or bf16.
macro_rules! by_score {
    ($a:expr, $s:ident => $exact:expr, $fast:expr) => {
        match $a.score {
            Score::Dot { q, kv } => by_score!(@ ("kv", q, kv), $s, $exact, $fast, Dot::new($a.heads, q, kv)?,
                (F64, F64) => Dot<f64, f64>;
                (F32, F32) => Dot<f32, f32>, (F32, Bf16) => Dot<f32, bf16>, (Bf16, Bf16) => Dot<bf16, bf16>),
            Score::Gat { l, r, z, slope } => by_score!(@ ("z", l, z), $s, $exact, $fast, Gat::new($a, [l, r, z], slope)?,
                (F64, F64) => Gat<f64, f64>;
                (F32, F32) => Gat<f32, f32>, (F32, Bf16) => Gat<f32, bf16>),
            Score::Gatv2 { l, r, value, a, slope } =>
                by_score!(@ ("r", l, r), $s, $exact, $fast, Gatv2::new($a, [l, r, a], value, slope)?,
                (F64, F64) => Gatv2<f64, f64, f64>;
                (F32, F32) => Gatv2<f32, f32, f32>, (F32, Bf16) => Gatv2<f32, f32, bf16>,
                (Bf16, Bf16) => Gatv2<f32, bf16, bf16>),
        }
    };
    (@ ($what:literal, $x:ident, $y:ident), $s:ident, $exact:expr, $fast:expr, $new:expr,
     ($e1:ident, $e2:ident) => $double:ident<$($e:ty),*>; $(($f1:ident, $f2:ident) => $single:ident<$($f:ty),*>),*) => {
        match ($x.dtype(), $y.dtype()) {
            (DType::$e1, DType::$e2) => {
                let $s: &$double<'_, $($e),*> = &$new;
                $exact
            }
            $((DType::$f1, DType::$f2) => {
                let $s: &$single<'_, $($f),*> = &$new;
                $fast
            })*
            (_, got) => Err(Error::Type { op: OP, what: $what, got }),
        }
    };
}

impl AttentionKernels for Cpu {
    fn attention(&self, a: &Attention<'_>, out: &mut Matrix, lse: &mut Matrix) -> Result<()> {
        by_score!(a, s =>
            portable::forward::<f64, _>(a, s, portable::Target::Finish { out, lse }),
            finish(self.isa, a, s, out, lse))
    }

    fn attention_fold(&self, a: &Attention<'_>, state: &mut Matrix) -> Result<()> {
        by_score!(a, s =>
            portable::forward::<f64, _>(a, s, portable::Target::Carry(state)),
            fold(self.isa, a, s, state))
    }

    fn attention_merge(&self, heads: usize, partial: &Matrix, index: &RowIndex, state: &mut Matrix) -> Result<()> {
        match state.dtype() {
            DType::F64 => state::merge_rows::<f64>(self.isa, heads, partial, index, state),
            _ => state::merge_rows::<f32>(self.isa, heads, partial, index, state),
        }
    }

    fn attention_finish(&self, heads: usize, state: &Matrix, out: &mut Matrix, lse: &mut Matrix) -> Result<()> {
        match out.dtype() {
            DType::F64 => state::finish::<f64, f64>(heads, state, out, lse),
            DType::F32 => state::finish::<f32, f32>(heads, state, out, lse),
            DType::Bf16 => state::finish::<f32, bf16>(heads, state, out, lse),
        }
    }

    fn attention_d(&self, heads: usize, g: &Matrix, out: &Matrix, d: &mut Matrix) -> Result<()> {
        match out.dtype() {
            DType::F64 => state::products::<f64, f64>(self.isa, heads, g, out, d),
            DType::F32 => state::fast_products::<f32>(self.isa, heads, g, out, d),
            DType::Bf16 => state::fast_products::<bf16>(self.isa, heads, g, out, d),
        }
    }

    fn attention_dst(&self, a: &Attention<'_>, saved: &Saved<'_>, to: DstGrads<'_>) -> Result<()> {
        let DstGrads { row, write, shared, bias, edge_weight } = to;
        let sums = Sums { shared, bias, edge_weight };
        by_score!(a, s =>
        with_partials::<f64>(a, sums, |places| {
            portable::by_dst(a, s, saved, &mut portable::ByDst { to: row, write, places })
        }),
        with_partials::<f32>(a, sums, |places| {
            by_dst(self.isa, a, s, saved, portable::ByDst { to: row, write, places })
        }))
    }

    fn attention_src(&self, a: &Attention<'_>, saved: &Saved<'_>, to: SrcGrads<'_>) -> Result<()> {
        by_score!(a, s =>
            portable::by_src::<f64, _>(a, s, saved, &s.source_gradients(to)?),
            by_src(self.isa, a, s, saved, to))
    }
}

fn pass<'a, A: Any>(
    a: &Attention<'a>,
    direction: &'a Direction,
    map: Option<&'a [u64]>,
    score: &'a A,
) -> Result<Pass<'a, A>> {
    let (indptr, indices) = (direction.csr.indptr(), direction.csr.indices());
    Ok(Pass { indptr, indices, score, extras: Extras::new(a, map)? })
}

fn finish<'a, A: Any>(isa: Isa, a: &Attention<'a>, score: &'a A, out: &mut Matrix, lse: &mut Matrix) -> Result<()> {
    let Some(passes) = Passes::new(isa, score) else {
        return portable::forward::<f32, A>(a, score, portable::Target::Finish { out, lse });
    };
    let out = Shared::new(host_mut::<A::Out>(OP, "out", out)?);
    forward(&passes, a, score, Target::Finish { out, lse: Shared::new(host_mut(OP, "lse", lse)?) })
}

fn fold<'a, A: Any>(isa: Isa, a: &Attention<'a>, score: &'a A, state: &mut Matrix) -> Result<()> {
    let Some(passes) = Passes::new(isa, score) else {
        return portable::forward::<f32, A>(a, score, portable::Target::Carry(state));
    };
    forward(&passes, a, score, Target::Carry(Shared::new(host_mut(OP, "state", state)?)))
}

fn forward<'a, A: Any>(passes: &Passes<A>, a: &Attention<'a>, score: &'a A, target: Target<'_, A::Out>) -> Result<()> {
    let direction = &a.graph.forward;
    let o = pass(a, direction, None, score)?;
    let (heads, d) = (score.heads(), score.wide());
    let mut partial = scratch::attention_pieces(a, dry::Pass::Forward)?;
    let size = partial.cols();
    let f = Forward { target, partial: Shared::new(host_mut(OP, "partial", &mut partial)?) };
    run(
        direction,
        &|_, task| {
            // SAFETY: the passes were chosen by what the processor has; tasks write their own rows or pieces.
            unsafe { (passes.forward)(&o, &f, task) };
        },
        &|row, pieces| {
            // SAFETY: all tasks are done; each hub reads its own pieces and writes its own row.
            let pieces = unsafe { f.partial.part(pieces.start * size..pieces.end * size) };
            let (merged, rest) = pieces.split_at_mut(size);
            for piece in rest.chunks(size) {
                state::merge(heads, merged, piece);
            }
            match &f.target {
                Target::Finish { out, lse } => {
                    // SAFETY: as above.
                    let (out, lse) =
                        unsafe { (out.part(row * d..(row + 1) * d), lse.part(row * heads..(row + 1) * heads)) };
                    state::finish_row(heads, merged, out, lse);
                }
                Target::Carry(carried) => {
                    // SAFETY: as above.
                    state::merge(heads, unsafe { carried.part(row * size..(row + 1) * size) }, merged);
                }
            }
        },
    );
    Ok(())
}

/// Gradients of what all edges share.
struct Sums<'a> {
    shared: Option<&'a mut Matrix>,
    bias: Option<&'a mut Matrix>,
    edge_weight: Option<&'a mut Matrix>,
}

/// Runs `kernel` with places for what tasks find separately, the gradients of parameters, which are then summed in task
/// order.
fn with_partials<C: Real>(
    a: &Attention<'_>,
    Sums { shared: shared_sum, bias: bias_sum, edge_weight }: Sums<'_>,
    kernel: impl FnOnce(Places<'_, C>) -> Result<()>,
) -> Result<()> {
    let (mut shared_parts, mut weight_parts) = (scratch::attention_shared(a)?, scratch::attention_edges(a)?);
    let shared = Shared::new(host_mut(OP, "partial", &mut shared_parts)?);
    let weight = Shared::new(host_mut(OP, "partial", &mut weight_parts)?);
    match (a.bias, bias_sum) {
        (Bias::None, _) | (_, None) => kernel(Places { bias: BiasGrad::None, shared, weight })?,
        (Bias::PerEdge(_), Some(to)) => {
            let bias = BiasGrad::PerEdge(Shared::new(host_mut(OP, "dbias", to)?));
            kernel(Places { bias, shared, weight })?;
        }
        (Bias::Features { feat, .. }, Some(to)) => {
            let mut parts = scratch::attention_bias(a, feat.cols())?;
            let partial = Shared::new(host_mut(OP, "partial", &mut parts)?);
            let features = host(OP, "edge features", feat)?;
            kernel(Places {
                bias: BiasGrad::Features { partial, feat: features, width: feat.cols() },
                shared,
                weight,
            })?;
            add_up::<C>(&parts, to)?;
        }
    }
    match (edge_weight, a.score) {
        (Some(to), Score::Gatv2 { .. }) => add_up_turned::<C>(&weight_parts, to)?,
        (Some(to), _) => add_up::<C>(&weight_parts, to)?,
        (None, _) => {}
    }
    shared_sum.map_or(Ok(()), |to| add_up::<C>(&shared_parts, to))
}

/// The same where each of `parts` has a row for every column of `to`.
fn add_up_turned<C: Real>(parts: &Matrix, to: &mut Matrix) -> Result<()> {
    let (rows, cols) = to.shape();
    let parts = host::<C>(OP, "partial", parts)?;
    let to = host_mut::<C>(OP, "gradient", to)?;
    to.fill(C::zero());
    for part in parts.chunks(to.len().max(1)) {
        for (k, row) in part.chunks(rows.max(1)).enumerate() {
            row.iter().enumerate().for_each(|(c, x)| to[c * cols + k] = to[c * cols + k] + *x);
        }
    }
    Ok(())
}

/// `to` becomes the sum of the rows of `parts`.
fn add_up<C: Real>(parts: &Matrix, to: &mut Matrix) -> Result<()> {
    let parts = host::<C>(OP, "partial", parts)?;
    let to = host_mut::<C>(OP, "gradient", to)?;
    to.fill(C::zero());
    for part in parts.chunks(to.len().max(1)) {
        for (to, x) in to.iter_mut().zip(part) {
            *to = *to + *x;
        }
    }
    Ok(())
}

fn statistics<'a, O: Element>(s: &Saved<'a>) -> Result<Statistics<'a, O>> {
    Ok(Statistics { lse: host(OP, "lse", s.lse)?, big_d: host(OP, "d", s.d)?, g: host(OP, "g", s.g)? })
}

fn by_dst<'a, A: Any>(
    isa: Isa,
    a: &Attention<'a>,
    score: &'a A,
    s: &Saved<'_>,
    mut to: portable::ByDst<'_, f32>,
) -> Result<()> {
    let direction = &a.graph.forward;
    let Some(passes) = Passes::new(isa, score) else { return portable::by_dst(a, score, s, &mut to) };
    let o = pass(a, direction, None, score)?;
    let mut partial = scratch::attention_pieces(a, dry::Pass::ByDestination)?;
    let b = ByDst::<A> {
        known: statistics(s)?,
        to: Shared::new(host_mut(OP, "gradient by destination", to.to)?),
        write: to.write,
        places: to.places,
        partial: Shared::new(host_mut(OP, "partial", &mut partial)?),
    };
    run(
        direction,
        &|number, task| {
            // SAFETY: the passes were chosen by what the processor has; tasks write their own rows or pieces.
            unsafe { (passes.by_dst)(&o, &b, number, task) };
        },
        &|row, pieces| {
            // SAFETY: as in forward.
            unsafe { (passes.merge_dst)(&o, &b, row, pieces) };
        },
    );
    Ok(())
}

fn by_src<'a, A: Any>(isa: Isa, a: &Attention<'a>, score: &'a A, s: &Saved<'_>, to: SrcGrads<'_>) -> Result<()> {
    let direction = &a.graph.transpose;
    let source_gradients = score.source_gradients(to)?;
    let Some(passes) = Passes::new(isa, score) else {
        return portable::by_src::<f32, A>(a, score, s, &source_gradients);
    };
    let SourceGradients { through: to, values } = source_gradients;
    let o = pass(a, direction, a.map(), score)?;
    let mut partial = scratch::attention_pieces(a, dry::Pass::BySource)?;
    let b =
        BySrc::<A> { known: statistics(s)?, to, values, partial: Shared::new(host_mut(OP, "partial", &mut partial)?) };
    run(
        direction,
        &|_, task| {
            // SAFETY: the passes were chosen by what the processor has; tasks write their own rows or pieces.
            unsafe { (passes.by_src)(&o, &b, task) };
        },
        &|row, pieces| {
            // SAFETY: as in forward.
            unsafe { (passes.merge_src)(&o, &b, row, pieces) };
        },
    );
    Ok(())
}
