//! Attention over sources that stand in several matrices, in one softmax: neighbours and tokens, say.
//!
//! Each block has a graph with the same destinations, and keys and values of its own sources. Forward folds block after
//! block into one state of the online softmax; backward goes through the blocks with the log-sum-exp of all of them.

use std::rc::Rc;

use crate::adjacency::Adjacency;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::attention::{Attention, Bias, DstGrads, EdgeDropout, Saved, Score, SrcGrads};
use crate::ops::edge_values::EdgeTail;
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "attention over blocks";

/// Some of the sources.
#[derive(Clone)]
pub struct Block<'a> {
    /// Who attends to whom.
    pub graph: &'a Rc<Adjacency>,
    /// Keys and values side by side, a row per source.
    pub kv: &'a Var,
    /// A term added to the scores.
    pub bias: Bias<&'a Var, &'a Matrix>,
    /// What edges bring for the tails of `q`; if one block has it, all have.
    pub edges: Option<EdgeTail>,
    /// Dropout of weights.
    pub dropout: Option<EdgeDropout>,
}

/// Attention of `q` over the sources of all `blocks`.
pub fn attention_blocks(tape: &mut Tape, heads: usize, q: &Var, blocks: &[Block<'_>]) -> Result<Var> {
    let device = tape.device().clone();
    let (rows, d, dtype) = (q.value().rows(), q.value().cols(), q.value().dtype());
    if heads == 0 || d == 0 || !d.is_multiple_of(heads) {
        return Err(Error::Argument { op: OP, problem: format!("{d} columns cannot be shared by {heads} heads") });
    }
    let mut state = empty_states(&device, rows, heads, d, dtype.compute(), Tag::Workspace)?;
    let mut saved = Vec::with_capacity(blocks.len());
    let mut vars = vec![q];
    for block in blocks {
        vars.push(block.kv);
        let kv = block.kv.value().clone();
        vars.extend(block.bias.learnt());
        let bias = block.bias.map(|var| var.value().clone(), Matrix::clone);
        let (edges, dropout) = (block.edges.clone(), block.dropout.clone());
        saved.push(SavedBlock { graph: Rc::clone(block.graph), kv, bias, edges, dropout });
    }
    for block in &saved {
        let operands = block.operands(heads, q.value());
        operands.check()?;
        device.backend().attention_fold(&operands, &mut state)?;
    }
    let mut out = device.uninit(OP, rows, d, dtype, Tag::Activations)?;
    let mut lse = device.uninit(OP, rows, heads, dtype.compute(), Tag::Activations)?;
    device.backend().attention_finish(heads, &state, &mut out, &mut lse)?;
    drop(state);
    let kept = out.clone();
    let q_value = q.value().clone();
    Ok(tape.push(&vars, out, || BlocksBackward { heads, q: q_value, blocks: saved, out: kept, lse }))
}

/// States of `rows` rows, of `heads` heads and `d` columns, that no edge was folded into yet.
pub fn empty_states(device: &Device, rows: usize, heads: usize, d: usize, dtype: DType, tag: Tag) -> Result<Matrix> {
    let empty: Vec<f64> = (0..2 * heads + d).map(|k| if k < heads { f64::NEG_INFINITY } else { 0.0 }).collect();
    let empty = device.upload(1, empty.len(), &empty, Tag::Workspace)?;
    let empty = device.convert(OP, &empty, dtype)?;
    let mut states = device.uninit(OP, rows, empty.cols(), dtype, tag)?;
    device.backend().spread_row(&empty, &mut states)?;
    Ok(states)
}

struct SavedBlock {
    graph: Rc<Adjacency>,
    kv: Matrix,
    bias: Bias<Matrix>,
    edges: Option<EdgeTail>,
    dropout: Option<EdgeDropout>,
}

impl SavedBlock {
    fn operands<'a>(&'a self, heads: usize, q: &'a Matrix) -> Attention<'a> {
        let (score, bias, edges) = (Score::Dot { q, kv: &self.kv }, self.bias.as_ref(), self.edges.as_ref());
        let (graph, dropout) = (&*self.graph, self.dropout.as_ref());
        Attention { graph, heads, score, bias, edges, edge_weight: None, dropout }
    }
}

struct BlocksBackward {
    heads: usize,
    q: Matrix,
    blocks: Vec<SavedBlock>,
    out: Matrix,
    lse: Matrix,
}

impl Backward for BlocksBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let device = grads.device().clone();
        let new = |m: &Matrix, tag| device.uninit(OP, m.rows(), m.cols(), m.dtype(), tag);
        let mut d = new(&self.lse, Tag::Workspace)?;
        device.backend().attention_d(self.heads, &g, &self.out, &mut d)?;
        let saved = Saved { lse: &self.lse, g: &g, d: &d };
        let mut dq = new(&self.q, Tag::Activations)?;
        let (mut write, mut at) = (Write::Set, 1);
        for block in &self.blocks {
            let a = block.operands(self.heads, &self.q);
            let mut dbias = block.bias.as_ref().learnt().map(|bias| new(bias, Tag::Activations)).transpose()?;
            let to = DstGrads { row: &mut dq, write, shared: None, bias: dbias.as_mut(), edge_weight: None };
            device.backend().attention_dst(&a, &saved, to)?;
            write = Write::Add;
            if grads.wants(at) {
                let mut dkv = new(&block.kv, Tag::Activations)?;
                device.backend().attention_src(&a, &saved, SrcGrads { row: &mut dkv, value: None })?;
                grads.put(at, dkv)?;
            }
            at += 1;
            if let Some(dbias) = dbias {
                grads.put(at, dbias)?;
                at += 1;
            }
        }
        match write {
            Write::Add => grads.put(0, dq),
            Write::Set => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::check;
    use crate::ops::attention::attention;
    use crate::ops::graphs::InputType::{Computed, Stored};
    use crate::ops::graphs::{
        Case, blocks, dropout, f64s, from_rows, near, rows_of, same_bits_for_any_number_of_threads, small, upload,
        with_hub,
    };
    use crate::ops::rows::RowIndex;
    use crate::ops::tests::on_every_device;

    on_every_device!(gradients, blocks_of_one_matrix_are_attention_over_it);

    /// Neighbours with a bias per edge, then three tokens that everyone sees. x: q, kv, bias, kv of tokens.
    fn with_tokens(tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var]) -> Result<Var> {
        let tokens = from_rows(tape.device(), vec![vec![0, 1, 2]; graph.num_dst()], 3);
        let neighbours =
            Block { graph, kv: &x[1], bias: Bias::PerEdge(&x[2]), edges: None, dropout: Some(dropout(graph)) };
        let tokens = Block { graph: &tokens, kv: &x[3], bias: Bias::None, edges: None, dropout: None };
        attention_blocks(tape, 2, &x[0], &[neighbours, tokens])
    }

    fn gradients(device: &Device) {
        let graph = small(device);
        let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
        let inputs = [up(1, 5, 6), up(2, 6, 12), up(3, graph.num_edges(), 2), up(4, 3, 12)];
        check(device, &inputs, &[], |tape, x| with_tokens(tape, &graph, x)).unwrap();
    }

    fn blocks_of_one_matrix_are_attention_over_it(device: &Device) {
        let graph = with_hub(device);
        let n = graph.num_dst();
        let (q, kv) = (upload(device, 1, (n, 8), DType::F64), upload(device, 2, (n, 16), DType::F64));
        let mut tape = Tape::new(device);
        let (q, whole) = (tape.leaf(q), tape.leaf(kv.clone()));
        let expected =
            attention(&mut tape, &graph, 2, Score::Dot { q: &q, kv: &whole }, Bias::None, None, None).unwrap();
        let parts: Vec<_> = blocks(device, &graph, 77)
            .into_iter()
            .map(|(block, first, _)| {
                let rows = first..first + block.num_src();
                (block, tape.leaf(rows_of(&kv, rows)))
            })
            .collect();
        let list: Vec<_> =
            parts.iter().map(|(graph, kv)| Block { graph, kv, bias: Bias::None, edges: None, dropout: None }).collect();
        let found = attention_blocks(&mut tape, 2, &q, &list).unwrap();
        near(&f64s(found.value()), &f64s(expected.value()), 1e-12, "out");
    }

    /// The same as attention: every third row's edges are folded into states elsewhere, in pieces, and these are
    /// merged.
    fn merged(tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var]) -> Result<Var> {
        let (device, heads, csr) = (tape.device().clone(), 2, &graph.forward.csr);
        let (q, kv, n) = (x[0].value(), x[1].value(), graph.num_dst());
        let (d, dtype) = (q.cols(), q.dtype());
        let far = |i: usize| i % 3 == 2;
        let here: Vec<Vec<u32>> = (0..n).map(|i| if far(i) { vec![] } else { csr.row(i).to_vec() }).collect();
        let pieces = |i: usize| csr.row(i).chunks(500).map(move |piece| (i as u32, piece.to_vec()));
        // Those of the last rows first, and each row's in pieces: rows are listed many times and out of order.
        let (list, there): (Vec<u32>, Vec<Vec<u32>>) = (0..n).rev().filter(|i| far(*i)).flat_map(pieces).unzip();
        let fold = |rows: Vec<Vec<u32>>, q: &Matrix| -> Result<Matrix> {
            let graph = from_rows(&device, rows, kv.rows());
            let mut state = empty_states(&device, q.rows(), heads, d, dtype.compute(), Tag::Workspace)?;
            let score = Score::Dot { q, kv };
            let (bias, graph) = (Bias::None, &graph);
            let a = Attention { graph, heads, score, bias, edges: None, edge_weight: None, dropout: None };
            device.backend().attention_fold(&a, &mut state)?;
            Ok(state)
        };
        let mut state = fold(here, q)?;
        let partial = fold(there, &rows_of(q, list.iter().map(|i| *i as usize)))?;
        let index = RowIndex::new(&device, n, list)?;
        device.backend().attention_merge(heads, &partial, &index, &mut state)?;
        let mut out = device.uninit(OP, n, d, dtype, Tag::Activations)?;
        let mut lse = device.uninit(OP, n, heads, dtype.compute(), Tag::Activations)?;
        device.backend().attention_finish(heads, &state, &mut out, &mut lse)?;
        Ok(tape.constant(out))
    }

    #[test]
    fn merged_states_are_attention_over_all_edges() {
        let inputs = [(300, 32, Stored), (300, 64, Stored)];
        let whole = |tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var]| {
            attention(tape, graph, 2, Score::Dot { q: &x[0], kv: &x[1] }, Bias::None, None, None)
        };
        let exact = Case { graph: &with_hub, inputs: &inputs, f: &whole }.run(&Device::cpu(), DType::F64);
        let case = || Case { graph: &with_hub, inputs: &inputs, f: &merged };
        near(&case().run(&Device::cpu(), DType::F64)[0], &exact[0], 1e-12, "merged");
        case().agrees_with_f64("merged", 2e-5, 2e-2);
        same_bits_for_any_number_of_threads(|| case().run(&Device::cpu(), DType::F32), "merged");
    }

    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a GPU"]
    fn merged_states_agree_on_a_gpu() {
        let inputs = [(300, 32, Stored), (300, 64, Stored)];
        Case { graph: &with_hub, inputs: &inputs, f: &merged }.agrees_on_a_gpu("merged", 2e-5, 2e-2);
    }

    #[test]
    fn states_that_do_not_fit_are_refused() {
        let device = Device::cpu();
        let index = RowIndex::new(&device, 3, vec![0, 2]).unwrap();
        let states = |rows| empty_states(&device, rows, 1, 2, DType::F32, Tag::Workspace).unwrap();
        let merge = |partial, state| device.backend().attention_merge(1, &states(partial), &index, &mut states(state));
        assert!(merge(2, 3).is_ok());
        assert!(merge(3, 3).is_err());
        assert!(merge(2, 4).is_err());
    }

    fn case() -> Case<'static> {
        static INPUTS: std::sync::OnceLock<Vec<(usize, usize, crate::ops::graphs::InputType)>> =
            std::sync::OnceLock::new();
        let inputs = INPUTS.get_or_init(|| {
            let edges = with_hub(&Device::cpu()).num_edges();
            vec![(300, 32, Stored), (300, 64, Stored), (edges, 2, Computed), (3, 64, Stored)]
        });
        Case { graph: &with_hub, inputs, f: &with_tokens }
    }

    #[test]
    fn every_instruction_set_and_type_agrees_with_f64() {
        case().agrees_with_f64("blocks", 2e-5, 2e-2);
    }

    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a GPU"]
    fn a_gpu_agrees_with_f64() {
        case().agrees_on_a_gpu("blocks", 2e-5, 2e-2);
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        same_bits_for_any_number_of_threads(|| case().run(&Device::cpu(), DType::F32), "blocks");
    }

    #[test]
    fn heads_must_share_the_columns() {
        let device = Device::cpu();
        let mut tape = Tape::new(&device);
        let q = tape.leaf(upload(&device, 1, (5, 6), DType::F64));
        assert!(attention_blocks(&mut tape, 4, &q, &[]).is_err());
    }
}
