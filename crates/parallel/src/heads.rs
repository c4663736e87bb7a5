//! `heads`: ranks exchange rows for heads. Each has some rows with all columns; for an operation over the graph it gets
//! some columns of all rows of its group, computes these heads by an inner strategy, and gives the rows of the result
//! back.
//!
//! Forward, of rows that are not its own and heads that are: q and kv there and the output back, 4d; GAT z and the
//! output, 2d; GATv2 l, r and the output, 3d; aggregation x and the output, 2d. Backward the same again, the other way
//! round. In all that is a multiple of d_h·(N·H − Σ_p N_p·H_p), and every rank holds N·d/P of each operand and the
//! structure of the whole group.
//!
//! Heads are shared as evenly as they go, rank p of P having those from p·H/P up to (p+1)·H/P: with fewer heads than
//! ranks some have none. Aggregation knows no heads and shares columns in the same way. Vectors and tokens are the same
//! on all ranks: each takes its heads' part, as of the weight of edge features, which are collected once. Biases and
//! weights of edges travel like rows, one per edge.

use std::ops::Range;
use std::rc::Rc;

use graphweft_comm::{Label, Traffic};
use graphweft_model::{
    Aggregation, Attend, EdgeBias, EdgeValues, EdgeWeight, GraphOps, HeadVectors, Membership, RelationMaps, Score,
};
use graphweft_tensor::ops::combine::{columns, concat};
use graphweft_tensor::ops::related::Table;
use graphweft_tensor::ops::rows::{RowIndex, gather};
use graphweft_tensor::{Backward, DType, Grads, Matrix, Result, Tag, Tape, Var};

use crate::columns::{Exchange, Shares};
use crate::gather::all_gather;
use crate::grid::{self, Inside};
use crate::layout::Layout;
use crate::link::Link;
use crate::member::{Member, rows};
use crate::strategy::{Family, Fewer, Many, Rows, Situation, Spread, no_settings};

no_settings!("heads", "ranks exchange rows for heads: each gets all rows for some of the heads");

impl Spread for Settings {
    fn family(&self) -> &'static str {
        Self::NAME
    }

    fn ops(&self, rows: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
        grid::Settings { nodes: 1, heads: rows.link.size(), inside: Inside::Gather }.ops(rows)
    }

    fn reason(&self, on: &Situation) -> String {
        let (so, Situation { ranks, shares, shares_are, .. }) = (on.alpha_so(" is high"), on);
        format!("{so}rows are needed nearly everywhere, and {shares} {shares_are} are enough for {ranks} ranks")
    }

    fn on_fewer(&self, many: &Many<'_>) -> std::result::Result<Fewer, String> {
        match many.ranks > many.most {
            true => Err(format!("every one of {} ranks would work on all nodes", many.ranks)),
            false => Ok(Fewer::whole(*self, many.ranks)),
        }
    }
}

/// Some heads of all rows of a group of ranks, computed by `inner`.
pub struct Heads {
    member: Member,
    group: Group,
    inner: Rc<dyn GraphOps>,
}

/// Ranks that have different heads of the same rows.
pub(crate) struct Group {
    /// Between them.
    pub(crate) link: Link,
    /// Rows of each.
    pub(crate) rows: Rc<[usize]>,
    /// Edges into these.
    pub(crate) edges: Rc<[usize]>,
}

/// This rank's heads.
struct Mine {
    rank: usize,
    shares: Rc<Shares>,
    all: usize,
}

impl Mine {
    fn heads(&self) -> Range<usize> {
        self.shares.of(self.rank)
    }

    /// Of a matrix with a row per head, which all ranks have, the rows of these heads.
    fn rows(&self, tape: &mut Tape, of_heads: &Var) -> Result<Var> {
        let index = self.heads().map(|head| head as u32).collect();
        let index = RowIndex::new(tape.device(), self.all, index)?;
        gather(tape, of_heads, &Rc::new(index))
    }

    /// Of a matrix with a row per column of all heads, which all ranks have, the rows of these heads.
    fn column_rows(&self, tape: &mut Tape, of_columns: &Var) -> Result<Var> {
        let all = of_columns.value().rows();
        let index = self.shares.columns(self.rank, all).map(|row| row as u32).collect();
        let index = RowIndex::new(tape.device(), all, index)?;
        gather(tape, of_columns, &Rc::new(index))
    }

    /// Of matrices of relations, which all ranks have, those of these heads.
    fn of_relations(&self, tape: &mut Tape, map: &Var) -> Result<Var> {
        let (rows, d) = map.value().shape();
        let own = self.shares.columns(self.rank, d);
        let index = (0..rows).filter(|row| own.contains(&(row % d))).map(|row| row as u32).collect();
        let index = RowIndex::new(tape.device(), rows, index)?;
        let some = gather(tape, map, &Rc::new(index))?;
        columns(tape, &some, own)
    }

    /// Of keys and values, which all ranks have, the columns of these heads.
    fn key_values(&self, tape: &mut Tape, kv: &Var) -> Result<Var> {
        let d = kv.value().cols() / 2;
        let own = self.shares.columns(self.rank, d);
        let k = columns(tape, kv, own.clone())?;
        let v = columns(tape, kv, d + own.start..d + own.end)?;
        concat(tape, &[&k, &v])
    }
}

impl Heads {
    /// The rows of `layout` on a rank of `link`; those of its group are all that `inner` has.
    pub(crate) fn new(layout: &Layout, link: &Link, group: Group, inner: Rc<dyn GraphOps>) -> Self {
        Self { member: Member::new(link, layout), group, inner }
    }

    fn exchange(&self, label: Label, counts: &Rc<[usize]>, shares: &Rc<Shares>) -> Exchange {
        Exchange { link: self.group.link.clone(), label, counts: Rc::clone(counts), shares: Rc::clone(shares) }
    }
}

/// Numbers of edges, moved for a layer.
fn edges(layer: u32) -> Label {
    Label { op: "edges", traffic: Traffic::Edges, layer }
}

/// What no head comes to: a matrix without columns, a row for each of the first of `inputs`. Backward gives all of
/// these zeros, so that a rank without heads takes part in what follows.
fn nothing(tape: &mut Tape, inputs: &[&Var]) -> Result<Var> {
    let inputs_of = inputs.iter().map(|x| x.value().clone()).collect::<Vec<Matrix>>();
    let (rows, dtype) = inputs_of.first().map_or((0, DType::F32), |m| (m.rows(), m.dtype()));
    let none = tape.device().uninit("heads", rows, 0, dtype, Tag::Activations)?;
    Ok(tape.push(inputs, none, || NothingBackward(inputs_of)))
}

struct NothingBackward(Vec<Matrix>);

impl Backward for NothingBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let device = grads.device().clone();
        for (k, m) in self.0.into_iter().enumerate() {
            grads.put(k, device.zeros("heads", m.rows(), m.cols(), m.dtype(), Tag::Activations)?)?;
        }
        Ok(())
    }
}

impl GraphOps for Heads {
    fn member(&self) -> &dyn Membership {
        &self.member
    }

    /// By heads: `inner` computes it from this rank's heads of all operands.
    fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>) -> Result<Var> {
        let shares = Rc::new(Shares::new(a.heads, self.group.link.size()));
        let there = self.exchange(rows("attend", layer), &self.group.rows, &shares);
        let mine = Mine { rank: self.group.link.rank(), shares, all: a.heads };
        let (operands, cols) = match a.score {
            Score::Dot { q, kv } => {
                let cols = q.value().cols();
                let [q, kv] = there.split(tape, [(q, 1), (kv, 2)])?;
                (Score::Dot { q, kv }, cols)
            }
            Score::Gat { l, r, z, slope } => {
                let cols = z.value().cols();
                let [z] = there.split(tape, [(z, 1)])?;
                let [l, r] = [mine.rows(tape, l.0)?, mine.rows(tape, r.0)?];
                (Score::Gat { l, r, z, slope }, cols)
            }
            Score::Gatv2 { l, r, value, a, slope } => {
                let cols = l.value().cols();
                let [l, r] = there.split(tape, [(l, 1), (r, 1)])?;
                (Score::Gatv2 { l, r, value: value.cloned(), a: mine.rows(tape, a)?, slope }, cols)
            }
        };
        let bias = match a.bias {
            EdgeBias::None => None,
            EdgeBias::Features { weight, .. } => Some(mine.rows(tape, weight)?),
            EdgeBias::PerEdge(b) => {
                let [b] = self.exchange(edges(layer), &self.group.edges, &mine.shares).split(tape, [(b, 1)])?;
                Some(b)
            }
        };
        let tokens = a.tokens.map(|kv| mine.key_values(tape, kv)).transpose()?;
        let weight = a.edges.map(|edges| mine.column_rows(tape, edges.weight)).transpose()?;
        let relations = match a.relations {
            Some(maps) => Some([mine.of_relations(tape, maps.keys)?, mine.of_relations(tape, maps.values)?]),
            None => None,
        };
        let out = if mine.heads().is_empty() {
            let operands = match &operands {
                Score::Dot { q, kv } => vec![q, kv],
                Score::Gat { l, r, z, .. } => vec![z, l, r],
                Score::Gatv2 { l, r, a, .. } => vec![l, r, a],
            };
            let shared = bias.iter().chain(&tokens).chain(&weight).chain(relations.iter().flatten());
            nothing(tape, &operands.into_iter().chain(shared).collect::<Vec<_>>())?
        } else {
            let bias = match (a.bias, &bias) {
                (EdgeBias::PerEdge(_), Some(b)) => EdgeBias::PerEdge(b),
                (EdgeBias::Features { .. }, Some(weight)) => EdgeBias::Features { feat: (), weight },
                _ => EdgeBias::None,
            };
            let dropout = a.dropout.map(|dropout| dropout.from_head(mine.heads().start as u32));
            let edges = a.edges.zip(weight.as_ref());
            let edges = edges.map(|(edges, weight)| EdgeValues { weight, columns: edges.columns });
            let score = match &operands {
                Score::Dot { q, kv } => Score::Dot { q, kv },
                Score::Gat { l, r, z, slope } => Score::Gat { l: HeadVectors(l), r: HeadVectors(r), z, slope: *slope },
                Score::Gatv2 { l, r, value, a, slope } => {
                    Score::Gatv2 { l, r, value: value.as_ref(), a, slope: *slope }
                }
            };
            let heads = mine.heads().len();
            let relations = relations.as_ref().map(|[keys, values]| RelationMaps { keys, values });
            let a = Attend { heads, score, bias, edges, relations, tokens: tokens.as_ref(), dropout };
            self.inner.attend(tape, layer, a)?
        };
        there.join(tape, &out, cols, 1)
    }

    fn aggregate(&self, tape: &mut Tape, layer: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        let cols = x.value().cols();
        let shares = Rc::new(Shares::new(cols, self.group.link.size()));
        let there = self.exchange(rows("aggregate", layer), &self.group.rows, &shares);
        let [mine] = there.split(tape, [(x, 1)])?;
        // The inner strategy has the features of all edges of the group; coefficients are the same everywhere.
        let (coefficients, sums) = match weight {
            EdgeWeight::Relations(Table::Rows(rows)) => (Some(rows), rows.value().cols()),
            EdgeWeight::Relations(Table::Each(relations)) => (None, relations),
            _ => (None, 1),
        };
        // A weight has a row per column.
        let messages = match weight {
            EdgeWeight::Messages(EdgeValues { weight, columns }) => {
                let own = Mine { rank: self.group.link.rank(), shares, all: cols };
                Some((own.column_rows(tape, weight)?, columns))
            }
            _ => None,
        };
        let all = match weight {
            EdgeWeight::PerEdge(w) => Some(all_gather(tape, &self.group.link, edges(layer), w, &self.group.edges)?),
            _ => None,
        };
        let out = if mine.value().cols() == 0 {
            let weight = messages.as_ref().map(|(weight, _)| weight);
            nothing(tape, &std::iter::once(&mine).chain(&all).chain(coefficients).chain(weight).collect::<Vec<_>>())?
        } else {
            let weight = match (&messages, &all) {
                (Some((weight, columns)), _) => EdgeWeight::Messages(EdgeValues { weight, columns }),
                (None, Some(all)) => EdgeWeight::PerEdge(all),
                (None, None) => weight,
            };
            self.inner.aggregate(tape, layer, &mine, how, weight)?
        };
        there.join(tape, &out, sums * cols, sums)
    }
}
