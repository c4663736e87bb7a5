//! One rank that has every row: nothing moves.

use std::cell::RefCell;
use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_model::{Aggregation, Attend, EdgeBias, EdgeWeight, GraphOps, Score};
use graphweft_tensor::ops::attention::{BiasVar, EdgeDropout, attention};
use graphweft_tensor::ops::attention_blocks::{Block, attention_blocks};
use graphweft_tensor::ops::gat::{Gat, gat};
use graphweft_tensor::ops::gatv2::{Gatv2, gatv2};
use graphweft_tensor::ops::spmm::{Reduction, WeightVar, aggregate};
use graphweft_tensor::{Adjacency, Alone, DType, Device, Dropout, Error, Ids, Matrix, Reduce, Result, Tag, Tape, Var};

/// The whole graph on this rank.
pub struct Local {
    graph: Rc<Adjacency>,
    /// A row per edge.
    edge_features: Option<Matrix>,
    /// 1/√degree of each node, in f32 and, for tests, f64.
    scale: [Matrix; 2],
    ids: Ids,
    device: Device,
    tokens: RefCell<Option<Rc<Tokens>>>,
}

/// Everyone sees every token, and every token sees everyone: graphs like any other, made when a model first asks.
struct Tokens {
    ids: Ids,
    /// From tokens to nodes.
    seen: Rc<Adjacency>,
    /// From nodes to tokens.
    seeing: Rc<Adjacency>,
}

/// Tokens are no nodes: their ids begin where no node's do.
const FIRST_TOKEN: u64 = 1 << 48;

impl Local {
    /// Prepares `csr` on `device`; `edge_features` have a row per edge, in the order of `csr`.
    pub fn new(device: &Device, csr: Csr<u32>, edge_features: Option<Matrix>) -> Result<Self> {
        let scale: Vec<f64> = (0..csr.num_dst())
            .map(|row| csr.edges_of(row).len() as f64)
            .map(|degree| if degree > 0.0 { degree.sqrt().recip() } else { 0.0 })
            .collect();
        let wide = device.upload(scale.len(), 1, &scale, Tag::Graph)?;
        let narrow: Vec<f32> = scale.iter().map(|&x| x as f32).collect();
        let narrow = device.upload(narrow.len(), 1, &narrow, Tag::Graph)?;
        let graph = Rc::new(Adjacency::with_edges(device, csr));
        let (device, tokens) = (device.clone(), RefCell::new(None));
        Ok(Self { graph, edge_features, scale: [narrow, wide], ids: Ids::Same, device, tokens })
    }

    fn tokens(&self, count: usize) -> Rc<Tokens> {
        let mut cached = self.tokens.borrow_mut();
        if let Some(tokens) = cached.as_ref().filter(|t| t.seen.num_src() == count) {
            return Rc::clone(tokens);
        }
        let all = |rows: usize, sources: usize| {
            let indptr: Vec<u64> = (0..=rows as u64).map(|row| row * sources as u64).collect();
            let indices: Vec<u32> = (0..rows).flat_map(|_| 0..sources as u32).collect();
            Rc::new(Adjacency::new(&self.device, Csr::from_valid(indptr, indices, sources)))
        };
        let ids = Ids::Listed((0..count as u64).map(|k| FIRST_TOKEN + k).collect());
        let nodes = self.graph.num_dst();
        let tokens = Rc::new(Tokens { ids, seen: all(nodes, count), seeing: all(count, nodes) });
        *cached = Some(Rc::clone(&tokens));
        tokens
    }

    fn dropout(&self, a: &Attend<'_>) -> Option<EdgeDropout> {
        a.dropout.map(|dropout| EdgeDropout { dropout, src: self.ids.clone(), dst: self.ids.clone() })
    }

    fn bias<'a>(&'a self, bias: EdgeBias<'a>) -> Result<BiasVar<'a>> {
        Ok(match bias {
            EdgeBias::None => BiasVar::None,
            EdgeBias::PerEdge(b) => BiasVar::PerEdge(b),
            EdgeBias::Features(weight) => {
                let problem = || Error::Argument { op: "attend", problem: "the graph has no edge features".into() };
                BiasVar::Features { feat: self.edge_features.as_ref().ok_or_else(problem)?, weight }
            }
        })
    }
}

impl GraphOps for Local {
    fn rows(&self) -> usize {
        self.graph.num_dst()
    }

    fn total_rows(&self) -> u64 {
        self.graph.num_dst() as u64
    }

    fn ids(&self) -> &Ids {
        &self.ids
    }

    fn reduce(&self) -> Rc<dyn Reduce> {
        Rc::new(Alone)
    }

    fn attend(&self, tape: &mut Tape, _: u32, a: Attend<'_>) -> Result<Var> {
        let (bias, dropout) = (self.bias(a.bias)?, self.dropout(&a));
        match a.score {
            Score::Dot { q, kv } => attention(tape, &self.graph, a.heads, q, kv, bias, dropout),
            Score::Gat { l, r, z, slope } => gat(tape, &self.graph, Gat { l, r, z, slope }, bias, dropout),
            Score::Gatv2 { l, r, a, slope } => {
                gatv2(tape, &self.graph, Gatv2 { l, r, value: None, a, slope }, bias, dropout)
            }
        }
    }

    fn attend_with_tokens(&self, tape: &mut Tape, _: u32, a: Attend<'_>, tokens: &Var) -> Result<Var> {
        let Score::Dot { q, kv } = a.score else {
            let problem = "tokens are attended to by dot products only".into();
            return Err(Error::Argument { op: "attend", problem });
        };
        let all = self.tokens(tokens.value().rows());
        let dropout = a.dropout.map(|dropout| EdgeDropout { dropout, src: all.ids.clone(), dst: self.ids.clone() });
        let near = Block { graph: &self.graph, kv, bias: self.bias(a.bias)?, dropout: self.dropout(&a) };
        let far = Block { graph: &all.seen, kv: tokens, bias: BiasVar::None, dropout };
        attention_blocks(tape, a.heads, q, &[near, far])
    }

    fn tokens_attend(
        &self,
        tape: &mut Tape,
        _: u32,
        heads: usize,
        q: &Var,
        kv: &Var,
        dropout: Option<Dropout>,
    ) -> Result<Var> {
        let all = self.tokens(q.value().rows());
        let dropout = dropout.map(|dropout| EdgeDropout { dropout, src: self.ids.clone(), dst: all.ids.clone() });
        attention(tape, &all.seeing, heads, q, kv, BiasVar::None, dropout)
    }

    fn aggregate(&self, tape: &mut Tape, _: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        let reduction = match how {
            Aggregation::Sum => Reduction::Sum,
            Aggregation::Mean => Reduction::Mean,
            Aggregation::Max => Reduction::Max(self.ids.clone()),
        };
        let weight = match weight {
            EdgeWeight::None => WeightVar::None,
            EdgeWeight::PerEdge(w) => WeightVar::PerEdge(w),
            EdgeWeight::Symmetric => {
                let scale = &self.scale[usize::from(x.value().dtype() == DType::F64)];
                WeightVar::Factors { dst: scale, src: scale }
            }
        };
        aggregate(tape, &self.graph, x, reduction, weight)
    }
}
