//! Operations on some rows whose sources are all at hand: on one rank because it has every row, on many once the rows
//! that are needed have arrived.
//!
//! What is at hand is made by a [`Bring`]: a function on the tape that turns this rank's rows of an operand into those
//! of all sources, and whose backward takes the gradients home. GAT's products with the source vector are made of what
//! arrived, so that z alone travels.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use graphweft_graph::Csr;
use graphweft_model::{Aggregation, Attend, EdgeBias, EdgeValues, EdgeWeight, Score};
use graphweft_tensor::ops::attention::{Bias, EdgeDropout, EdgeTerms, attention};
use graphweft_tensor::ops::attention_blocks::{Block, attention_blocks};
use graphweft_tensor::ops::edge_values::{EdgeColumns, EdgeTail, absorb, widen};
use graphweft_tensor::ops::gine::gine;
use graphweft_tensor::ops::head_dot::head_dot;
use graphweft_tensor::ops::related::related;
use graphweft_tensor::ops::spmm::{Reduction, WeightVar, aggregate};
use graphweft_tensor::{Adjacency, Device, Dropout, Error, Ids, Matrix, Result, Tape, Var};

use crate::degrees::Factors;
use crate::pairs::{Pairs, relations_of};
use crate::sampled::{Sampled, SampledBias};
use crate::tokens::TokenGraphs;

/// How the rows of all sources are had from this rank's; `None` where these are all.
pub(crate) type Bring<'a> = Option<&'a dyn Fn(&mut Tape, &Var) -> Result<Var>>;

/// Destinations with all their sources.
pub(crate) struct Gathered {
    graph: Rc<Adjacency>,
    /// A row per edge.
    edge_features: Option<Matrix>,
    /// The relation of each edge, where they have one, and the pairs of these and sources, made when attention first
    /// asks for them.
    relations: Option<Arc<[u16]>>,
    pairs: OnceCell<Rc<Pairs>>,
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
            relations: None,
            pairs: OnceCell::new(),
            dst_roots: Factors::inverse_roots(device, dst.degrees)?,
            src_roots: Factors::inverse_roots(device, src.degrees)?,
            dst: dst.ids,
            src: src.ids,
            sampled: None,
        })
    }

    /// The same with the relation of each edge.
    pub(crate) fn with_relations(mut self, relations: Option<Arc<[u16]>>) -> Self {
        self.relations = relations;
        self
    }

    fn pairs(&self, device: &Device, count: usize) -> Result<&Rc<Pairs>> {
        if let Some(pairs) = self.pairs.get() {
            return Ok(pairs);
        }
        let (csr, relations) = (&self.graph.forward.csr, self.relations.as_deref());
        let made = Rc::new(Pairs::new(device, csr, relations, &self.src, count)?);
        Ok(self.pairs.get_or_init(|| made))
    }

    /// The same where source k stands for `scales[k]` nodes, on a graph whose nodes have these in-degrees.
    pub(crate) fn sampled(mut self, device: &Device, degrees: &[u32], scales: &[f32]) -> Result<Self> {
        self.sampled = Some(Sampled::new(device, degrees, scales)?);
        Ok(self)
    }

    pub(crate) fn rows(&self) -> usize {
        self.graph.num_dst()
    }

    /// Copies the edges to where the kernels are.
    pub(crate) fn bring(&self) -> Result<()> {
        self.graph.bring()
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
        made: &'a mut Option<SampledBias>,
    ) -> Result<Bias<&'a Var, &'a Matrix>> {
        if let Some(sampled) = &self.sampled {
            let (csr, features) = (&self.graph.forward.csr, self.edge_features.as_ref());
            let bias = sampled.bias(tape, csr, features, a.heads, a.bias, a.score.dtype())?;
            let SampledBias { terms: feat, weight } = &*made.insert(bias);
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

    /// What edges add inside of a LeakyReLU.
    fn terms<'a>(&self, a: &Attend<'a>) -> Result<Option<EdgeTerms<&'a Var>>> {
        let terms = |EdgeValues { weight, columns }| -> Result<_> {
            Ok(EdgeTerms { tail: self.tail(columns)?, weight: Some(weight) })
        };
        a.edges.map(terms).transpose()
    }

    /// Attention, also to tokens where `a` has some: `tokens` are their graphs.
    pub(crate) fn attend(
        &self,
        tape: &mut Tape,
        a: Attend<'_>,
        tokens: Option<&TokenGraphs>,
        bring: Bring<'_>,
    ) -> Result<Var> {
        check(&a)?;
        if a.relations.is_some() && self.sampled.is_some() {
            let problem = "a graph whose sources were drawn has no pairs of all of them and relations".into();
            return Err(Error::Argument { op: "attend", problem });
        }
        let mut made = None;
        let (graph, bias, dropout) = (&self.graph, self.bias(tape, &a, &mut made)?, self.dropout(a.dropout));
        let beside = a.tokens.zip(tokens);
        match a.score {
            Score::Dot { q, kv } => {
                let kv = brought(tape, bring, kv)?;
                if let Some(maps) = a.relations {
                    let pairs = self.pairs(tape.device(), relations_of(maps.keys.value()))?;
                    let kv = &pairs.rows(tape, &kv, maps)?;
                    let ends = |dropout| EdgeDropout { dropout, src: pairs.ids.clone(), dst: self.dst.clone() };
                    let (score, dropout) = (Score::Dot { q, kv }, a.dropout.map(ends));
                    return attention(tape, &pairs.graph, a.heads, score, Bias::None, None, dropout);
                }
                let wide = a.edges.map(|e| widen(tape, q, e.weight, a.heads, e.columns)).transpose()?;
                let (q, edges) = (wide.as_ref().unwrap_or(q), a.edges.map(|e| self.tail(e.columns)).transpose()?);
                let out = match beside {
                    None => {
                        let score = Score::Dot { q, kv: &kv };
                        attention(tape, graph, a.heads, score, bias, edges.map(EdgeTerms::from), dropout)?
                    }
                    Some((rows, graphs)) => {
                        let near = Block { graph, kv: &kv, bias, edges, dropout };
                        let edges = a.edges.map(|e| EdgeTail { columns: *e.columns, rows: None });
                        let far = Block { edges, ..graphs.block(rows, a.dropout, &self.dst) };
                        attention_blocks(tape, a.heads, q, &[near, far])?
                    }
                };
                a.edges.map_or(Ok(out.clone()), |e| absorb(tape, &out, e.weight, a.heads, e.columns))
            }
            Score::Gat { l, r, z, slope } => {
                let ([l, r], z) = match bring {
                    None => (head_dot(tape, z, [l.0, r.0])?, z.clone()),
                    Some(bring) => {
                        let [l] = head_dot(tape, z, [l.0])?;
                        let z = bring(tape, z)?;
                        let [r] = head_dot(tape, &z, [r.0])?;
                        ([l, r], z)
                    }
                };
                let (edges, score) = (self.terms(&a)?, Score::Gat { l: &l, r: &r, z: &z, slope });
                attention(tape, graph, a.heads, score, bias, edges, dropout)
            }
            Score::Gatv2 { l, r, a: weight, slope, .. } => {
                let r = &brought(tape, bring, r)?;
                let (edges, score) = (self.terms(&a)?, Score::Gatv2 { l, r, value: None, a: weight, slope });
                attention(tape, graph, a.heads, score, bias, edges, dropout)
            }
        }
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
            check_sum(how)?;
            let x = brought(tape, bring, x)?;
            return related(tape, &self.graph, &x, self.features("aggregate")?, table);
        }
        if let (EdgeWeight::Messages(EdgeValues { weight, columns }), None) = (weight, &self.sampled) {
            check_sum(how)?;
            let x = brought(tape, bring, x)?;
            return gine(tape, &self.graph, &x, columns, self.features("aggregate")?, weight);
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
            EdgeWeight::None | EdgeWeight::Relations(_) | EdgeWeight::Messages(_) => WeightVar::None,
            EdgeWeight::PerEdge(w) => WeightVar::PerEdge(w),
            EdgeWeight::Symmetric => {
                WeightVar::Factors { dst: self.dst_roots.of(dtype), src: self.src_roots.of(dtype) }
            }
        };
        let x = brought(tape, bring, x)?;
        aggregate(tape, &self.graph, &x, reduction, weight)
    }
}

/// Whether this can be asked for: tokens have their part in dot products only, and GATv2's values are its sources'
/// rows.
pub(crate) fn check(a: &Attend<'_>) -> Result<()> {
    let alone = a.edges.is_none() && a.tokens.is_none() && matches!(a.bias, EdgeBias::None);
    let problem = match a.score {
        Score::Dot { .. } if a.relations.is_none() || alone => return Ok(()),
        _ if a.relations.is_some() => "relations have maps in dot products only, without anything else on edges",
        _ if a.tokens.is_some() => "tokens are attended to by dot products only",
        Score::Gatv2 { value: Some(_), .. } => "values of GATv2 that are not its sources' rows stay on one rank",
        _ => return Ok(()),
    };
    Err(Error::Argument { op: "attend", problem: problem.into() })
}

/// Whether coefficients by relation, or messages of edges, go with this.
pub(crate) fn check_sum(how: Aggregation) -> Result<()> {
    if how == Aggregation::Sum {
        return Ok(());
    }
    Err(Error::Argument {
        op: "aggregate",
        problem: "coefficients by relation, and messages of edges, are for sums".into(),
    })
}

/// What relations or biases ask for is not there.
pub(crate) fn no_features(op: &'static str) -> Error {
    Error::Argument { op, problem: "the graph has no edge features".into() }
}

fn brought(tape: &mut Tape, bring: Bring<'_>, x: &Var) -> Result<Var> {
    bring.map_or_else(|| Ok(x.clone()), |bring| bring(tape, x))
}
