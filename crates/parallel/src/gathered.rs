//! Operations on some rows whose sources are all at hand: on one rank because it has every row, on many once the rows
//! that are needed have arrived.
//!
//! What is at hand is made by a [`Bring`]: a function on the tape that turns this rank's rows of an operand into those
//! of all sources, and whose backward takes the gradients home. GAT's products with the source vector are made of what
//! arrived, so that z alone travels.

use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_model::{Aggregation, Attend, EdgeBias, EdgeValues, EdgeWeight, Score};
use graphweft_tensor::ops::attention::{Bias, EdgeDropout, attention, attention_with_edges};
use graphweft_tensor::ops::attention_blocks::{Block, attention_blocks};
use graphweft_tensor::ops::edge_values::{EdgeColumns, EdgeTail, absorb, widen};
use graphweft_tensor::ops::gat::{Gat, gat};
use graphweft_tensor::ops::gatv2::{Gatv2, gatv2};
use graphweft_tensor::ops::head_dot::head_dot;
use graphweft_tensor::ops::related::related;
use graphweft_tensor::ops::spmm::{Reduction, WeightVar, aggregate};
use graphweft_tensor::{Adjacency, Device, Dropout, Error, Ids, Matrix, Result, Tape, Var};

use crate::degrees::Factors;
use crate::sampled::Sampled;
use crate::tokens::TokenGraphs;

/// How the rows of all sources are had from this rank's; `None` where these are all.
pub(crate) type Bring<'a> = Option<&'a dyn Fn(&mut Tape, &Var) -> Result<Var>>;

/// Destinations with all their sources.
pub(crate) struct Gathered {
    graph: Rc<Adjacency>,
    /// A row per edge.
    edge_features: Option<Matrix>,
    /// Original ids.
    dst: Ids,
    src: Ids,
    dst_roots: Factors,
    src_roots: Factors,
    /// Where some of the sources stand for others.
    sampled: Option<Sampled>,
}

/// The nodes at one end of edges.
#[derive(Clone)]
pub(crate) struct Ends<'a> {
    /// Original ids.
    pub(crate) ids: Ids,
    /// In-degrees in the whole graph.
    pub(crate) degrees: &'a [u32],
}

impl Gathered {
    /// Prepares the edges of `csr`, from `src` to `dst`.
    pub(crate) fn new(
        device: &Device,
        csr: Csr<u32>,
        edge_features: Option<Matrix>,
        dst: Ends<'_>,
        src: Ends<'_>,
    ) -> Result<Self> {
        Ok(Self {
            graph: Rc::new(Adjacency::new(device, csr)?),
            edge_features,
            dst_roots: Factors::inverse_roots(device, dst.degrees)?,
            src_roots: Factors::inverse_roots(device, src.degrees)?,
            dst: dst.ids,
            src: src.ids,
            sampled: None,
        })
    }

    /// The same where source k stands for `scales[k]` nodes, on a graph whose nodes have these in-degrees.
    pub(crate) fn sampled(mut self, device: &Device, degrees: &[u32], scales: &[f32]) -> Result<Self> {
        self.sampled = Some(Sampled::new(device, degrees, scales)?);
        Ok(self)
    }

    pub(crate) fn rows(&self) -> usize {
        self.graph.num_dst()
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.dst
    }

    fn dropout(&self, dropout: Option<Dropout>) -> Option<EdgeDropout> {
        dropout.map(|dropout| EdgeDropout { dropout, src: self.src.clone(), dst: self.dst.clone() })
    }

    /// A term of scores as the operation wants it; `made` keeps what is made for it.
    fn bias<'a>(
        &'a self,
        tape: &mut Tape,
        a: &Attend<'a>,
        made: &'a mut Option<(Matrix, Var)>,
    ) -> Result<Bias<&'a Var, &'a Matrix>> {
        if let Some(sampled) = &self.sampled {
            let (csr, features) = (&self.graph.forward.csr, self.edge_features.as_ref());
            let bias = sampled.bias(tape, csr, features, a.heads, a.bias, a.score.dtype())?;
            let (feat, weight) = &*made.insert(bias);
            return Ok(Bias::Features { feat, weight });
        }
        Ok(match a.bias {
            EdgeBias::None => Bias::None,
            EdgeBias::PerEdge(b) => Bias::PerEdge(b),
            EdgeBias::Features { weight, .. } => Bias::Features { feat: self.features("attend")?, weight },
        })
    }

    fn features(&self, op: &'static str) -> Result<&Matrix> {
        self.edge_features.as_ref().ok_or_else(|| no_features(op))
    }

    fn tail(&self, columns: &EdgeColumns) -> Result<EdgeTail> {
        Ok(EdgeTail { columns: *columns, rows: Some(self.features("attend")?.clone()) })
    }

    pub(crate) fn attend(&self, tape: &mut Tape, a: Attend<'_>, bring: Bring<'_>) -> Result<Var> {
        check_edges(&a)?;
        let mut made = None;
        let (graph, bias, dropout) = (&self.graph, self.bias(tape, &a, &mut made)?, self.dropout(a.dropout));
        match a.score {
            Score::Dot { q, kv } => {
                let kv = brought(tape, bring, kv)?;
                let Some(EdgeValues { weight, columns }) = a.edges else {
                    return attention(tape, graph, a.heads, q, &kv, bias, dropout);
                };
                let q = widen(tape, q, weight, a.heads, columns)?;
                let edges = self.tail(columns)?;
                let out = attention_with_edges(tape, graph, a.heads, [&q, &kv], bias, edges, dropout)?;
                absorb(tape, &out, weight, a.heads, columns)
            }
            Score::Gat { z, dst, src, slope } => {
                let ([l, r], z) = match bring {
                    None => (head_dot(tape, z, [dst, src])?, z.clone()),
                    Some(bring) => {
                        let [l] = head_dot(tape, z, [dst])?;
                        let z = bring(tape, z)?;
                        let [r] = head_dot(tape, &z, [src])?;
                        ([l, r], z)
                    }
                };
                gat(tape, graph, Gat { l: &l, r: &r, z: &z, slope }, bias, dropout)
            }
            Score::Gatv2 { l, r, a, slope } => {
                let r = brought(tape, bring, r)?;
                gatv2(tape, graph, Gatv2 { l, r: &r, value: None, a, slope }, bias, dropout)
            }
        }
    }

    pub(crate) fn attend_with_tokens(
        &self,
        tape: &mut Tape,
        a: Attend<'_>,
        graphs: &TokenGraphs,
        tokens: &Var,
        bring: Bring<'_>,
    ) -> Result<Var> {
        let Score::Dot { q, kv } = a.score else {
            let problem = "tokens are attended to by dot products only".into();
            return Err(Error::Argument { op: "attend", problem });
        };
        let kv = brought(tape, bring, kv)?;
        let mut made = None;
        let bias = self.bias(tape, &a, &mut made)?;
        let near = Block { graph: &self.graph, kv: &kv, bias, edges: None, dropout: self.dropout(a.dropout) };
        let tokens = graphs.block(tokens, a.dropout, &self.dst);
        let Some(EdgeValues { weight, columns }) = a.edges else {
            return attention_blocks(tape, a.heads, q, &[near, tokens]);
        };
        let near = Block { edges: Some(self.tail(columns)?), ..near };
        let tokens = Block { edges: Some(EdgeTail { columns: *columns, rows: None }), ..tokens };
        let q = widen(tape, q, weight, a.heads, columns)?;
        let out = attention_blocks(tape, a.heads, &q, &[near, tokens])?;
        absorb(tape, &out, weight, a.heads, columns)
    }

    pub(crate) fn aggregate(
        &self,
        tape: &mut Tape,
        x: &Var,
        how: Aggregation,
        weight: EdgeWeight<'_>,
        bring: Bring<'_>,
    ) -> Result<Var> {
        if let (EdgeWeight::Relations(table), None) = (weight, &self.sampled) {
            check_relations(how)?;
            let x = brought(tape, bring, x)?;
            return related(tape, &self.graph, &x, self.features("aggregate")?, table);
        }
        let reduction = match how {
            Aggregation::Sum => Reduction::Sum,
            Aggregation::Mean => Reduction::Mean,
            Aggregation::Max => Reduction::Max(self.src.clone()),
        };
        let dtype = x.value().dtype();
        if let (Some(sampled), Aggregation::Sum | Aggregation::Mean) = (&self.sampled, how) {
            let weight = sampled.factors(how, weight, dtype)?;
            let x = brought(tape, bring, x)?;
            return aggregate(tape, &self.graph, &x, Reduction::Sum, weight);
        }
        let weight = match weight {
            EdgeWeight::None | EdgeWeight::Relations(_) => WeightVar::None,
            EdgeWeight::PerEdge(w) => WeightVar::PerEdge(w),
            EdgeWeight::Symmetric => {
                WeightVar::Factors { dst: self.dst_roots.of(dtype), src: self.src_roots.of(dtype) }
            }
        };
        let x = brought(tape, bring, x)?;
        aggregate(tape, &self.graph, &x, reduction, weight)
    }
}

/// Whether edges may add to keys and values: there are none but with dot products.
pub(crate) fn check_edges(a: &Attend<'_>) -> Result<()> {
    if a.edges.is_none() || matches!(a.score, Score::Dot { .. }) {
        return Ok(());
    }
    let problem = "features of edges are added to keys and values of dot products only".into();
    Err(Error::Argument { op: "attend", problem })
}

/// Whether coefficients by relation go with this.
pub(crate) fn check_relations(how: Aggregation) -> Result<()> {
    if how == Aggregation::Sum {
        return Ok(());
    }
    Err(Error::Argument { op: "aggregate", problem: "coefficients by relation are for sums".into() })
}

/// What relations or biases ask for is not there.
pub(crate) fn no_features(op: &'static str) -> Error {
    Error::Argument { op, problem: "the graph has no edge features".into() }
}

fn brought(tape: &mut Tape, bring: Bring<'_>, x: &Var) -> Result<Var> {
    bring.map_or_else(|| Ok(x.clone()), |bring| bring(tape, x))
}
