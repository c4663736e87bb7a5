//! Attention on the GPU: one set of kernels for all scores, compiled for each shape and kind of attention.

mod shape;

use std::rc::Rc;

use bytemuck::{Pod, Zeroable};

use super::compile::{Defines, Source};
use super::dropout::DropoutArg;
use super::graph::Resident;
use super::sums::{Part, Pieces};
use super::{Cuda, source};
use crate::dry::Pass;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::attention::{Attention, AttentionKernels, Bias, DstGrads, Saved, Score, SrcGrads};
use crate::ops::edge_values::MOST_CATEGORIES;
use crate::ops::rows::RowIndex;
use crate::random::Ids;
pub(super) use shape::{Passes, Tails, Types, Variant};
use shape::{Shape, THREADS, WARP};

const OP: &str = "attention";
pub(super) static FORWARD: Source = source!("attention_forward", ["numbers", "lanes", "random", "edges", "attention"]);
pub(super) static BACKWARD: Source =
    source!("attention_backward", ["numbers", "lanes", "random", "edges", "attention"]);
/// Warps that make sums over all edges, each over its share of the items.
const SUMMING_WARPS: usize = 4096;

/// As in attention.cuh.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Operands {
    items: u64,
    indices: u64,
    map: u64,
    dst: u64,
    src: u64,
    value: u64,
    a: u64,
    bias: u64,
    feat: u64,
    weight: u64,
    features: u64,
    edge_weight: u64,
    src_ids: u64,
    dst_ids: u64,
    dropout: DropoutArg,
    count: u32,
    pieces: u32,
    slope: f64,
    scale: f64,
    first: [u32; 16],
    categories: [u32; 16],
}

/// As in attention_forward.cu.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct Target {
    out: u64,
    lse: u64,
    state: u64,
    pieces: u64,
}

/// As in attention_backward.cu.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Gradients {
    g: u64,
    lse: u64,
    big_d: u64,
    known: u64,
    row: u64,
    value: u64,
    shared: u64,
    bias: u64,
    weight: u64,
    terms: u64,
    pieces: u64,
    piece_size: u32,
    warps: u32,
    add: u32,
    unused: u32,
}

/// One attention, made ready for one direction of its graph.
struct Call {
    shape: Shape,
    types: Types,
    defines: Defines,
    graph: Rc<Resident>,
    operands: Operands,
}

impl Call {
    fn new(cuda: &Cuda, a: &Attention<'_>, pass: Pass) -> Result<Self> {
        let (types, d) = (Types::new(a)?, a.values());
        let (heads, width, compute) = (a.heads, d / a.heads, types.compute());
        let at = |what, m: &Matrix, dtype| cuda.address(OP, what, m, dtype);
        let (score, own_values, slope, [dst, src, value, shared]) = match a.score {
            Score::Dot { q, kv } => {
                let (q, kv) = (at("q", q, types.dst)?, at("kv", kv, types.src)?);
                (0, false, 0.0, [q, kv, kv + (d * types.src.size()) as u64, 0])
            }
            Score::Gat { l, r, z, slope } => {
                (1, false, slope, [at("l", l, types.dst)?, at("r", r, types.src)?, at("z", z, types.value)?, 0])
            }
            Score::Gatv2 { l, r, value, a, slope } => {
                let (l, r, a) = (at("l", l, types.dst)?, at("r", r, types.src)?, at("a", a, compute)?);
                let own = value.map(|m| at("value", m, types.value)).transpose()?;
                (2, own.is_some(), slope, [l, r, own.unwrap_or(r), a])
            }
        };
        let (kind, of_bias, [bias, feat, weight]) = match a.bias {
            Bias::None => (0, 1, [0; 3]),
            Bias::PerEdge(bias) => (1, 1, [at("bias", bias, compute)?, 0, 0]),
            Bias::Features { feat, weight } => {
                let places = [0, at("edge features", feat, compute)?, at("edge weight", weight, compute)?];
                (2, feat.cols(), places)
            }
        };
        let dropout = a.dropout.filter(|d| d.dropout.is_active());
        let (src_ids, dst_ids, numbers) = match dropout {
            Some(d) => {
                d.src.expect(OP, a.graph.num_src())?;
                d.dst.expect(OP, a.graph.num_dst())?;
                (cuda.ids(&d.src)?, cuda.ids(&d.dst)?, cuda.dropout_arg(&d.dropout, &Ids::Same)?)
            }
            None => (0, 0, DropoutArg::zeroed()),
        };
        let device = a.device();
        let by_source = pass == Pass::BySource;
        let graph = cuda.resident(device, if by_source { &a.graph.transpose } else { &a.graph.forward })?;
        let tails = Tails::of(a);
        let features = match a.edges.and_then(|edges| edges.rows.as_ref()) {
            Some(rows) => at("edge features", rows, compute)?,
            None => 0,
        };
        let edge_weight = a.edge_weight.map_or(Ok(0), |weight| at("edge weight", weight, compute))?;
        let mut places = [[0; MOST_CATEGORIES]; 2];
        for (k, [first, count]) in a.edges.iter().flat_map(|edges| edges.columns.places()).enumerate() {
            (places[0][k], places[1][k]) = (first as u32, count as u32);
        }
        let [first, categories] = places;
        let map = if by_source && a.map().is_some() { cuda.edge_map(device, a.graph, &graph)? } else { 0 };
        let passes = if pass == Pass::Forward { Passes::Forward } else { Passes::Backward };
        let places = graph.places(cuda);
        let operands = Operands {
            items: places.items,
            indices: places.indices,
            map,
            dst,
            src,
            value,
            a: shared,
            bias,
            feat,
            weight,
            features,
            edge_weight,
            src_ids,
            dst_ids,
            dropout: numbers,
            count: graph.count as u32,
            pieces: graph.pieces as u32,
            slope,
            scale: 1.0 / (width as f64).sqrt(),
            first,
            categories,
        };
        let (features, dropout) = (of_bias, dropout.is_some());
        let variant = Variant { score, types, own_values, bias: kind, features, tails, dropout };
        let shape = Shape::new(heads, width, tails.width, types.smallest());
        Ok(Self { shape, types, defines: variant.defines(heads, width, passes), graph, operands })
    }

    /// Blocks for `count` warps.
    fn grid(&self, count: usize) -> [usize; 2] {
        [count.div_ceil(THREADS / WARP), self.shape.tiles()]
    }

    /// Memory for what pieces come to.
    fn pieces(&self, a: &Attention<'_>, size: usize) -> Result<Matrix> {
        a.device().uninit(OP, self.graph.pieces, size, self.types.compute(), Tag::Workspace)
    }
}

/// Kernels for rows without edges, whose defines do not depend on the score.
fn rows_only(heads: usize, out: &Matrix, passes: Passes) -> (Shape, Defines) {
    let (width, out) = (out.cols() / heads.max(1), out.dtype());
    let types = Types { out, value: out, dst: out, src: out };
    let variant =
        Variant { score: 0, types, own_values: false, bias: 0, features: 1, tails: Tails::default(), dropout: false };
    (Shape::new(heads, width, 0, out.size()), variant.defines(heads, width, passes))
}

impl Cuda {
    fn attention_pass(&self, a: &Attention<'_>, mut target: Target) -> Result<()> {
        let call = Call::new(self, a, Pass::Forward)?;
        // As in the source: m and s, then the columns, each from a multiple of 8 on.
        let size = (2 * a.heads).next_multiple_of(8) + a.output().0.next_multiple_of(8);
        let mut pieces = call.pieces(a, size)?;
        target.pieces = self.address_mut(OP, "pieces", &mut pieces, call.types.compute())?;
        let kernel = |name| self.kernel(OP, &FORWARD, call.defines.clone(), name);
        let launch = kernel("attention_forward")?.arg(call.operands).arg(target);
        // SAFETY: the arguments are those of the kernel; shapes were checked by the operation, ids in a CSR are below
        // the number of rows of the operands, and there is memory for every piece.
        unsafe { launch.run(call.grid(call.graph.count), THREADS, 0)? };
        for (merges, count) in call.graph.merges(self) {
            let launch = kernel("attention_merge")?.arg(merges).arg(count as u32).arg(target);
            // SAFETY: as above; merges name pieces and rows of this graph.
            unsafe { launch.run(call.grid(count), THREADS, 0)? };
        }
        Ok(())
    }

    /// Runs a pass of backward, then adds up the pieces of rows into `parts`.
    fn backward_pass(
        &self,
        a: &Attention<'_>,
        call: &Call,
        name: &'static str,
        mut gradients: Gradients,
        parts: [Part; 2],
    ) -> Result<()> {
        let size = (parts[0].width + parts[1].width).next_multiple_of(8);
        let mut pieces = call.pieces(a, size)?;
        gradients.pieces = self.address_mut(OP, "pieces", &mut pieces, call.types.compute())?;
        gradients.piece_size = size as u32;
        let launch = self.kernel(OP, &BACKWARD, call.defines.clone(), name)?.arg(call.operands).arg(gradients);
        // SAFETY: as in `attention_pass`.
        unsafe { launch.run(call.grid(gradients.warps as usize), THREADS, 0)? };
        let pieces = Pieces { of: &pieces, factors: 0, parts, add: gradients.add != 0 };
        self.sum_pieces(OP, &call.graph, &pieces)
    }

    /// What both passes of backward are told.
    fn gradients(&self, call: &Call, s: &Saved<'_>, row: u64, value: u64, write: Write) -> Result<Gradients> {
        let compute = call.types.compute();
        for (what, m) in [("lse", s.lse), ("d", s.d)] {
            m.expect(OP, what, s.g.rows(), call.shape.heads)?;
        }
        Ok(Gradients {
            g: self.address(OP, "g", s.g, call.types.out)?,
            lse: self.address(OP, "lse", s.lse, compute)?,
            big_d: self.address(OP, "d", s.d, compute)?,
            row,
            value,
            warps: (call.grid(call.graph.count)[0] * (THREADS / WARP)) as u32,
            add: (write == Write::Add).into(),
            ..Gradients::zeroed()
        })
    }
}

impl AttentionKernels for Cuda {
    fn attention(&self, a: &Attention<'_>, out: &mut Matrix, lse: &mut Matrix) -> Result<()> {
        let (d, dtype) = a.output();
        out.expect(OP, "out", a.graph.num_dst(), d)?;
        lse.expect(OP, "lse", a.graph.num_dst(), a.heads)?;
        let (out, lse) = (self.address_mut(OP, "out", out, dtype)?, self.address_mut(OP, "lse", lse, dtype.compute())?);
        self.attention_pass(a, Target { out, lse, ..Target::default() })
    }

    fn attention_fold(&self, a: &Attention<'_>, state: &mut Matrix) -> Result<()> {
        let (d, dtype) = a.output();
        state.expect(OP, "state", a.graph.num_dst(), 2 * a.heads + d)?;
        let state = self.address_mut(OP, "state", state, dtype.compute())?;
        self.attention_pass(a, Target { state, ..Target::default() })
    }

    fn attention_merge(&self, heads: usize, partial: &Matrix, index: &RowIndex, state: &mut Matrix) -> Result<()> {
        self.merge_states(heads, partial, index, state)
    }

    fn attention_finish(&self, heads: usize, state: &Matrix, out: &mut Matrix, lse: &mut Matrix) -> Result<()> {
        let (rows, dtype) = (out.rows(), out.dtype());
        state.expect(OP, "state", rows, 2 * heads + out.cols())?;
        lse.expect(OP, "lse", rows, heads)?;
        let (shape, defines) = rows_only(heads, out, Passes::Forward);
        let target = Target {
            out: self.address_mut(OP, "out", out, dtype)?,
            lse: self.address_mut(OP, "lse", lse, dtype.compute())?,
            ..Target::default()
        };
        let state = self.address(OP, "state", state, dtype.compute())?;
        let launch = self.kernel(OP, &FORWARD, defines, "attention_finish")?.arg(state).arg(rows as u32).arg(target);
        let blocks = rows.div_ceil(shape.teams() * (THREADS / WARP));
        // SAFETY: the arguments are those of the kernel, and shapes were checked above.
        unsafe { launch.run([blocks, shape.tiles()], THREADS, 0) }
    }

    fn attention_d(&self, heads: usize, g: &Matrix, out: &Matrix, d: &mut Matrix) -> Result<()> {
        let (rows, dtype) = (out.rows(), out.dtype());
        g.expect(OP, "g", rows, out.cols())?;
        d.expect(OP, "d", rows, heads)?;
        let (shape, defines) = rows_only(heads, out, Passes::Backward);
        let launch = self
            .kernel(OP, &BACKWARD, defines, "attention_d")?
            .arg(self.address(OP, "g", g, dtype)?)
            .arg(self.address(OP, "out", out, dtype)?)
            .arg(self.address_mut(OP, "d", d, dtype.compute())?)
            .arg(rows as u32);
        let blocks = rows.div_ceil(shape.teams() * (THREADS / WARP));
        // SAFETY: the arguments are those of the kernel, and shapes were checked above.
        unsafe { launch.run([blocks, shape.tiles()], THREADS, 0) }
    }

    fn attention_dst(&self, a: &Attention<'_>, s: &Saved<'_>, to: DstGrads<'_>) -> Result<()> {
        let call = Call::new(self, a, Pass::ByDestination)?;
        let compute = call.types.compute();
        let (width, dtype) = (to.row.cols(), call.types.dst);
        let row = self.address_mut(OP, "gradient by destination", to.row, dtype)?;
        let mut gradients = self.gradients(&call, s, row, 0, to.write)?;
        // Sums over all edges: each warp makes one over its items.
        let per_warp = |sum: &Option<&mut Matrix>| -> Result<Option<Matrix>> {
            let Some(sum) = sum else { return Ok(None) };
            let warps = call.grid(call.graph.count.min(SUMMING_WARPS))[0] * (THREADS / WARP);
            a.device().uninit(OP, warps, sum.rows() * sum.cols(), compute, Tag::Workspace).map(Some)
        };
        let (mut shared, mut weight, mut terms) = (per_warp(&to.shared)?, None, per_warp(&to.edge_weight)?);
        let mut bias = to.bias;
        if let Bias::PerEdge(_) = a.bias {
            gradients.bias =
                bias.take().map_or(Ok(0), |to| self.address_mut(OP, "gradient of the bias", to, compute))?;
        } else {
            weight = per_warp(&bias)?;
        }
        let sums = [
            (&mut shared, &mut gradients.shared),
            (&mut weight, &mut gradients.weight),
            (&mut terms, &mut gradients.terms),
        ];
        for (sum, at) in sums {
            if let Some(sum) = sum {
                gradients.warps = sum.rows() as u32;
                *at = self.address_mut(OP, "sums", sum, compute)?;
            }
        }
        let part = Part { to: row, width, dtype };
        self.backward_pass(a, &call, "attention_dst", gradients, [part, Part::NONE])?;
        for (sum, to) in [(shared, to.shared), (weight, bias), (terms, to.edge_weight)] {
            if let (Some(sum), Some(to)) = (sum, to) {
                self.add_up_rows(OP, &sum, to)?;
            }
        }
        Ok(())
    }

    fn attention_src(&self, a: &Attention<'_>, s: &Saved<'_>, to: SrcGrads<'_>) -> Result<()> {
        let call = Call::new(self, a, Pass::BySource)?;
        let Types { value: value_type, src, .. } = call.types;
        let row =
            Part { width: to.row.cols(), dtype: src, to: self.address_mut(OP, "gradient by source", to.row, src)? };
        let value = match to.value {
            Some(m) => {
                let to = self.address_mut(OP, "gradient of values", m, value_type)?;
                Part { to, width: m.cols(), dtype: value_type }
            }
            None => Part::NONE,
        };
        // Where keys and values are one row, so are their gradients.
        let values_at = match a.score {
            Score::Dot { .. } => row.to + (row.width / 2 * src.size()) as u64,
            _ => value.to,
        };
        let mut gradients = self.gradients(&call, s, row.to, values_at, Write::Set)?;
        let (count, compute) = (s.lse.rows() * a.heads, call.types.compute());
        let mut known = a.device().uninit(OP, count, 2, compute, Tag::Workspace)?;
        gradients.known = self.address_mut(OP, "known", &mut known, compute)?;
        let launch = self
            .kernel(OP, &BACKWARD, call.defines.clone(), "attention_known")?
            .arg(gradients.lse)
            .arg(gradients.big_d)
            .arg(gradients.known)
            .arg(count as u64);
        // SAFETY: the arguments are those of the kernel; lse and D have a number per destination and head.
        unsafe { launch.run_each(count)? };
        // What is as wide as the values comes first in a piece.
        let parts = if let Score::Gat { .. } = a.score { [value, row] } else { [row, value] };
        self.backward_pass(a, &call, "attention_src", gradients, parts)
    }
}
