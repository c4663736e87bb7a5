//! One rank that has every row: nothing moves.

use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_model::{Aggregation, Attend, EdgeBias, EdgeWeight, GraphOps, Score};
use graphweft_tensor::ops::attention::{BiasVar, EdgeDropout, attention};
use graphweft_tensor::ops::gat::{Gat, gat};
use graphweft_tensor::ops::gatv2::{Gatv2, gatv2};
use graphweft_tensor::ops::spmm::{Reduction, WeightVar, aggregate};
use graphweft_tensor::{Adjacency, Alone, DType, Device, Error, Ids, Matrix, Reduce, Result, Tag, Tape, Var};

/// The whole graph on this rank.
pub struct Local {
    graph: Rc<Adjacency>,
    /// A row per edge.
    edge_features: Option<Matrix>,
    /// 1/√degree of each node, in f32 and, for tests, f64.
    scale: [Matrix; 2],
    ids: Ids,
}

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
        Ok(Self { graph, edge_features, scale: [narrow, wide], ids: Ids::Same })
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
