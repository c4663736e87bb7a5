//! Tokens: rows that are no nodes, the same on all ranks. Everyone sees every token, and every token sees everyone.
//!
//! Nodes attend to tokens where they are: nothing moves, and a rank's gradient of the tokens is its nodes' part of it.
//! Tokens attend to nodes on every rank over that rank's nodes; the states of the softmax, 2·H + d numbers a token, are
//! gathered and merged in the order of ranks, so that the result has the same bits everywhere. In backward the gradient
//! of that result, which each rank has a part of, is summed first.

use std::cell::RefCell;
use std::rc::Rc;

use graphweft_comm::Label;
use graphweft_graph::Csr;
use graphweft_model::TokensAttend;
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::attention::{Attention, Bias, DstGrads, EdgeDropout, Saved, Score, SrcGrads};
use graphweft_tensor::ops::attention_blocks::{Block, empty_states};
use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Adjacency, Backward, Device, Dropout, Grads, Ids, Matrix, Result, Tag, Tape, Var, room_for};

use crate::blocks::{self, Nodes};
use crate::link::Link;

const OP: &str = "tokens";

/// Tokens are no nodes: their ids begin where no node's do.
const FIRST_TOKEN: u64 = 1 << 48;

/// The graphs between tokens and some rows: like any other, made when a model first asks.
pub(crate) struct TokenGraphs {
    ids: Ids,
    /// From tokens to rows.
    seen: Rc<Adjacency>,
    /// From rows to tokens.
    seeing: Rc<Adjacency>,
}

impl TokenGraphs {
    /// The tokens, with keys and values `kv`, as sources of attention of rows with these original ids.
    pub(crate) fn block<'a>(&'a self, kv: &'a Var, dropout: Option<Dropout>, rows: &Ids) -> Block<'a> {
        let dropout = dropout.map(|dropout| EdgeDropout { dropout, src: self.ids.clone(), dst: rows.clone() });
        Block { graph: &self.seen, kv, bias: Bias::None, edges: None, dropout }
    }

    /// The edges from tokens to rows with these original ids.
    pub(crate) fn edges_to(&self, rows: &Ids) -> blocks::Block {
        blocks::Block::without_values(&self.seen, Nodes::others(rows.clone()), Nodes::others(self.ids.clone()))
    }

    /// From rows to tokens.
    pub(crate) fn seeing(&self) -> &Rc<Adjacency> {
        &self.seeing
    }

    /// The dropout of tokens' attention to rows with these original ids.
    pub(crate) fn dropout_of_seeing(&self, dropout: Option<Dropout>, rows: &Ids) -> Option<EdgeDropout> {
        dropout.map(|dropout| EdgeDropout { dropout, src: rows.clone(), dst: self.ids.clone() })
    }
}

/// The graphs of a rank's rows with the tokens of the last model that asked.
pub(crate) struct Tokens {
    device: Device,
    rows: usize,
    made: RefCell<Option<Rc<TokenGraphs>>>,
}

impl Tokens {
    pub(crate) fn new(device: &Device, rows: usize) -> Self {
        Self { device: device.clone(), rows, made: RefCell::new(None) }
    }

    pub(crate) fn graphs(&self, count: usize) -> Result<Rc<TokenGraphs>> {
        let mut made = self.made.borrow_mut();
        if let Some(graphs) = made.as_ref().filter(|g| g.seen.num_src() == count) {
            return Ok(Rc::clone(graphs));
        }
        // Edges from all to all, in both graphs and both directions.
        room_for("virtual nodes", 16 * self.rows as u128 * count as u128)?;
        let all = |rows: usize, sources: usize| {
            let indptr: Vec<u64> = (0..=rows as u64).map(|row| row * sources as u64).collect();
            let indices: Vec<u32> = (0..rows).flat_map(|_| 0..sources as u32).collect();
            Adjacency::new(&self.device, Csr::from_valid(indptr, indices, sources)).map(Rc::new)
        };
        let ids = Ids::Listed((0..count as u64).map(|k| FIRST_TOKEN + k).collect());
        let graphs = Rc::new(TokenGraphs { ids, seen: all(self.rows, count)?, seeing: all(count, self.rows)? });
        *made = Some(Rc::clone(&graphs));
        Ok(graphs)
    }
}

/// Attention of tokens, on one of several ranks.
pub(crate) struct TokensCall<'a> {
    /// The other ranks.
    pub(crate) link: &'a Link,
    /// Of what is sent to them.
    pub(crate) label: Label,
    /// From this rank's rows to the tokens.
    pub(crate) graph: &'a Rc<Adjacency>,
    /// The operands.
    pub(crate) attend: TokensAttend<'a>,
    /// Their dropout along these edges.
    pub(crate) dropout: Option<EdgeDropout>,
}

/// Attention of tokens over the rows of all ranks.
pub(crate) fn tokens_attend(tape: &mut Tape, call: TokensCall<'_>) -> Result<Var> {
    let TokensCall { link, label, graph, attend: TokensAttend { heads, q, kv, .. }, dropout } = call;
    let device = tape.device().clone();
    let ((rows, d), dtype) = (q.value().shape(), q.value().dtype());
    let mut call = TokensBackward {
        link: link.clone(),
        label,
        graph: Rc::clone(graph),
        heads,
        q: q.value().clone(),
        kv: kv.value().clone(),
        dropout,
        out: device.uninit(OP, rows, d, dtype, Tag::Activations)?,
        lse: device.uninit(OP, rows, heads, dtype.compute(), Tag::Activations)?,
    };
    call.operands().check()?;
    let empty = || empty_states(&device, rows, heads, d, dtype.compute(), Tag::Workspace);
    let mut own = empty()?;
    device.backend().attention_fold(&call.operands(), &mut own)?;
    let states = link.all_gather(label, &own, &vec![rows; link.size()])?.wait_one()?;
    let tokens = (0..link.size()).flat_map(|_| 0..rows as u32).collect();
    let mut state = empty()?;
    device.backend().attention_merge(heads, &states, &RowIndex::new(&device, rows, tokens)?, &mut state)?;
    device.backend().attention_finish(heads, &state, &mut call.out, &mut call.lse)?;
    let out = call.out.clone();
    Ok(tape.push(&[q, kv], out, || call))
}

struct TokensBackward {
    link: Link,
    label: Label,
    graph: Rc<Adjacency>,
    heads: usize,
    q: Matrix,
    kv: Matrix,
    dropout: Option<EdgeDropout>,
    out: Matrix,
    lse: Matrix,
}

impl TokensBackward {
    fn operands(&self) -> Attention<'_> {
        let (score, dropout) = (Score::Dot { q: &self.q, kv: &self.kv }, self.dropout.as_ref());
        let (graph, heads, bias) = (&*self.graph, self.heads, Bias::None);
        Attention { graph, heads, score, bias, edges: None, edge_weight: None, dropout }
    }
}

impl Backward for TokensBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(mut g) = grads.own_output(OP, 0)? else { return Ok(()) };
        self.link.sum(self.label, &mut g)?;
        let device = grads.device().clone();
        let (a, new) = (self.operands(), |m: &Matrix, tag| device.uninit(OP, m.rows(), m.cols(), m.dtype(), tag));
        let mut d = new(&self.lse, Tag::Workspace)?;
        device.backend().attention_d(self.heads, &g, &self.out, &mut d)?;
        let saved = Saved { lse: &self.lse, g: &g, d: &d };
        if grads.wants(0) {
            let mut dq = new(&self.q, Tag::Activations)?;
            let to = DstGrads { row: &mut dq, write: Write::Set, shared: None, bias: None, edge_weight: None };
            device.backend().attention_dst(&a, &saved, to)?;
            grads.put(0, dq)?;
        }
        if grads.wants(1) {
            let mut dkv = new(&self.kv, Tag::Activations)?;
            device.backend().attention_src(&a, &saved, SrcGrads { row: &mut dkv, value: None })?;
            grads.put(1, dkv)?;
        }
        Ok(())
    }
}
