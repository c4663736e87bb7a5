//! Attention on the CPU: tasks over rows, a kernel per instruction set.

mod extras;
mod portable;
mod state;
#[cfg(target_arch = "x86_64")]
mod vector;

use half::bf16;

use super::elementwise::{Convert, Real};
use super::neighbours::run;
use super::share::Shared;
use super::simd::{Stored, Version};
use super::{Cpu, host, host_mut};
use crate::adjacency::Direction;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::attention::{AttentionKernels, Bias, DotAttention, Saved};
use extras::{BiasGrad, Extras};
use vector::{ByDst, BySrc, Forward, Operands, Target};

const OP: &str = "attention";

impl Cpu {
    fn version(self, a: &DotAttention<'_>) -> Version {
        Version::new(self.isa, |lanes| vector::fits(lanes, a.q.cols(), a.heads))
    }
}

fn operands<'a, Q: Convert, K: Convert>(
    a: &DotAttention<'a>,
    direction: &'a Direction,
    map: Option<&'a [u64]>,
) -> Result<Operands<'a, Q, K>> {
    Ok(Operands {
        indptr: direction.csr.indptr(),
        indices: direction.csr.indices(),
        heads: a.heads,
        d: a.q.cols(),
        q: host(OP, "q", a.q)?,
        kv: host(OP, "kv", a.kv)?,
        extras: Extras::new(a, map)?,
    })
}

macro_rules! by_type {
    ($a:expr, $f:ident ( $($x:expr),* )) => {
        match ($a.q.dtype(), $a.kv.dtype()) {
            (DType::F32, DType::F32) => $f::<f32, f32>($($x),*),
            (DType::F32, DType::Bf16) => $f::<f32, bf16>($($x),*),
            (DType::Bf16, DType::Bf16) => $f::<bf16, bf16>($($x),*),
            (_, got) => Err(Error::Type { op: OP, what: "kv", got }),
        }
    };
}

impl AttentionKernels for Cpu {
    fn dot_attention(&self, a: &DotAttention<'_>, out: &mut Matrix, lse: &mut Matrix) -> Result<()> {
        if a.q.dtype() == DType::F64 {
            return portable::forward::<f64, f64, f64>(a, portable::Target::Finish { out, lse });
        }
        by_type!(a, finish(self.version(a), a, out, lse))
    }

    fn dot_attention_fold(&self, a: &DotAttention<'_>, state: &mut Matrix) -> Result<()> {
        if a.q.dtype() == DType::F64 {
            return portable::forward::<f64, f64, f64>(a, portable::Target::Carry(state));
        }
        by_type!(a, fold(self.version(a), a, state))
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
            DType::F32 => state::products::<f32, f32>(self.isa, heads, g, out, d),
            DType::Bf16 => state::products::<f32, bf16>(self.isa, heads, g, out, d),
        }
    }

    fn dot_attention_dst(
        &self,
        a: &DotAttention<'_>,
        s: &Saved<'_>,
        dq: &mut Matrix,
        write: Write,
        dbias: Option<&mut Matrix>,
    ) -> Result<()> {
        if a.q.dtype() == DType::F64 {
            return with_bias_grad::<f64>(a, dbias, |dbias| portable::by_dst::<f64, f64, f64>(a, s, dq, write, &dbias));
        }
        let version = self.version(a);
        with_bias_grad::<f32>(a, dbias, |dbias| by_type!(a, by_dst(version, a, s, dq, write, dbias)))
    }

    fn dot_attention_src(&self, a: &DotAttention<'_>, s: &Saved<'_>, dkv: &mut Matrix) -> Result<()> {
        if a.q.dtype() == DType::F64 {
            return portable::by_src::<f64, f64, f64>(a, s, dkv);
        }
        by_type!(a, by_src(self.version(a), a, s, dkv))
    }
}

fn finish<Q: Stored, K: Stored>(
    version: Version,
    a: &DotAttention<'_>,
    out: &mut Matrix,
    lse: &mut Matrix,
) -> Result<()> {
    if version == Version::Portable {
        return portable::forward::<f32, Q, K>(a, portable::Target::Finish { out, lse });
    }
    let out = Shared::new(host_mut::<Q>(OP, "out", out)?);
    forward::<Q, K>(version, a, Target::Finish { out, lse: Shared::new(host_mut(OP, "lse", lse)?) })
}

fn fold<Q: Stored, K: Stored>(version: Version, a: &DotAttention<'_>, state: &mut Matrix) -> Result<()> {
    if version == Version::Portable {
        return portable::forward::<f32, Q, K>(a, portable::Target::Carry(state));
    }
    forward::<Q, K>(version, a, Target::Carry(Shared::new(host_mut(OP, "state", state)?)))
}

fn forward<Q: Stored, K: Stored>(version: Version, a: &DotAttention<'_>, target: Target<'_, Q>) -> Result<()> {
    let direction = &a.graph.forward;
    let o = operands::<Q, K>(a, direction, None)?;
    let (heads, d) = (o.heads, o.d);
    let size = 2 * heads + d;
    let mut partial = a.q.device().uninit(OP, direction.tasks.pieces, size, DType::F32, Tag::Workspace)?;
    let f = Forward { target, partial: Shared::new(host_mut(OP, "partial", &mut partial)?) };
    run(
        direction,
        // SAFETY: `version` was chosen by what the processor has; tasks write their own rows or pieces.
        |_, task| match version {
            Version::Avx512 => unsafe { vector::forward_avx512(&o, &f, task) },
            _ => unsafe { vector::forward_avx2(&o, &f, task) },
        },
        |row, pieces| {
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

/// Runs `kernel` with a place for the bias's gradient; what tasks found separately is summed in task order.
fn with_bias_grad<C: Real>(
    a: &DotAttention<'_>,
    to: Option<&mut Matrix>,
    kernel: impl FnOnce(BiasGrad<'_, C>) -> Result<()>,
) -> Result<()> {
    let Some(to) = to else { return kernel(BiasGrad::None) };
    match a.bias {
        Bias::None => kernel(BiasGrad::None),
        Bias::PerEdge(_) => kernel(BiasGrad::PerEdge(Shared::new(host_mut(OP, "dbias", to)?))),
        Bias::Features { feat, weight } => {
            let (tasks, size) = (a.graph.forward.tasks.all.len(), weight.rows() * weight.cols());
            let mut partial = a.q.device().zeros(OP, tasks, size, C::DTYPE, Tag::Workspace)?;
            let place = Shared::new(host_mut(OP, "partial", &mut partial)?);
            kernel(BiasGrad::Features { partial: place, feat: host(OP, "edge features", feat)?, width: feat.cols() })?;
            let partial = host::<C>(OP, "partial", &partial)?;
            let to = host_mut::<C>(OP, "dbias", to)?;
            to.fill(C::zero());
            for part in partial.chunks(size) {
                for (to, x) in to.iter_mut().zip(part) {
                    *to = *to + *x;
                }
            }
            Ok(())
        }
    }
}

fn by_dst<Q: Stored, K: Stored>(
    version: Version,
    a: &DotAttention<'_>,
    s: &Saved<'_>,
    dq: &mut Matrix,
    write: Write,
    dbias: BiasGrad<'_, f32>,
) -> Result<()> {
    let direction = &a.graph.forward;
    let o = operands::<Q, K>(a, direction, None)?;
    if version == Version::Portable {
        return portable::by_dst::<f32, Q, K>(a, s, dq, write, &dbias);
    }
    let d = o.d;
    let mut partial = a.q.device().uninit(OP, direction.tasks.pieces, d, DType::F32, Tag::Workspace)?;
    let b = ByDst {
        lse: host(OP, "lse", s.lse)?,
        big_d: host(OP, "d", s.d)?,
        g: host(OP, "g", s.g)?,
        dq: Shared::new(host_mut::<Q>(OP, "dq", dq)?),
        write,
        dbias,
        partial: Shared::new(host_mut(OP, "partial", &mut partial)?),
    };
    run(
        direction,
        // SAFETY: as in forward.
        |number, task| match version {
            Version::Avx512 => unsafe { vector::by_dst_avx512(&o, &b, number, task) },
            _ => unsafe { vector::by_dst_avx2(&o, &b, number, task) },
        },
        |row, pieces| {
            // SAFETY: as in forward.
            let (partial, dq) =
                unsafe { (b.partial.part(pieces.start * d..pieces.end * d), b.dq.part(row * d..(row + 1) * d)) };
            for (c, to) in dq.iter_mut().enumerate() {
                let old = if write == Write::Add { f32::of(*to) } else { 0.0 };
                *to = Q::narrow(f64::from(old + partial.chunks(d).map(|p| p[c]).sum::<f32>()));
            }
        },
    );
    Ok(())
}

fn by_src<Q: Stored, K: Stored>(version: Version, a: &DotAttention<'_>, s: &Saved<'_>, dkv: &mut Matrix) -> Result<()> {
    let direction = &a.graph.transpose;
    let o = operands::<Q, K>(a, direction, a.graph.edges.as_deref())?;
    if version == Version::Portable {
        return portable::by_src::<f32, Q, K>(a, s, dkv);
    }
    let size = 2 * o.d;
    let mut partial = a.q.device().uninit(OP, direction.tasks.pieces, size, DType::F32, Tag::Workspace)?;
    let b = BySrc {
        lse: host(OP, "lse", s.lse)?,
        big_d: host(OP, "d", s.d)?,
        g: host(OP, "g", s.g)?,
        dkv: Shared::new(host_mut::<K>(OP, "dkv", dkv)?),
        partial: Shared::new(host_mut(OP, "partial", &mut partial)?),
    };
    run(
        direction,
        // SAFETY: as in forward.
        |_, task| match version {
            Version::Avx512 => unsafe { vector::by_src_avx512(&o, &b, task) },
            _ => unsafe { vector::by_src_avx2(&o, &b, task) },
        },
        |row, pieces| {
            // SAFETY: as in forward.
            let (partial, dkv) = unsafe {
                (b.partial.part(pieces.start * size..pieces.end * size), b.dkv.part(row * size..(row + 1) * size))
            };
            for (c, to) in dkv.iter_mut().enumerate() {
                *to = K::narrow(f64::from(partial.chunks(size).map(|p| p[c]).sum::<f32>()));
            }
        },
    );
    Ok(())
}
