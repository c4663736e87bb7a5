//! One rank that has every row: nothing moves.

use std::rc::Rc;
use std::sync::Arc;

use graphweft_graph::Csr;
use graphweft_model::{Aggregation, Attend, EdgeWeight, GraphOps, Membership, OwnRows, TokensAttend, Total};
use graphweft_tensor::ops::attention::{Bias, Score, attention};
use graphweft_tensor::{Alone, Device, Error, Ids, Matrix, Reduce, Result, Tape, Var};

use crate::gathered::{Ends, Gathered};
use crate::layout::Layout;
use crate::strategy::{Family, Fewer, Many, Rows, Situation, Spread, no_settings};
use crate::tokens::Tokens;

no_settings!("local", "one rank has every row: nothing moves", for_one);

fn for_one(ranks: usize) -> Vec<Settings> {
    if ranks == 1 { vec![Settings] } else { Vec::new() }
}

impl Spread for Settings {
    fn family(&self) -> &'static str {
        Self::NAME
    }

    fn ops(&self, rows: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
        match rows.link.size() {
            1 => Ok(Rc::new(Local::renumbered(rows.link.device(), rows.layout, rows.edge_features)?)),
            ranks => Err(Error::Argument { op: "strategy", problem: format!("local is for one rank, not {ranks}") }),
        }
    }

    fn reason(&self, _: &Situation) -> String {
        String::new()
    }

    fn on_fewer(&self, many: &Many<'_>) -> std::result::Result<Fewer, String> {
        let _ = many;
        Ok(Fewer::whole(*self, 1))
    }
}

/// The whole graph on this rank.
pub struct Local {
    rows: Gathered,
    tokens: Tokens,
}

impl Local {
    /// Prepares `csr`, in original ids, on `device`; `edge_features` have a row per edge, in the order of `csr`.
    pub fn new(device: &Device, csr: Csr<u32>, edge_features: Option<Matrix>) -> Result<Self> {
        let degree = |row| csr.degree(row).min(u32::MAX as usize) as u32;
        let degrees: Vec<u32> = (0..csr.num_dst()).map(degree).collect();
        let tokens = Tokens::new(device, csr.num_dst());
        let ends = Ends { ids: Ids::Same, degrees: &degrees };
        Ok(Self { rows: Gathered::new(device, csr, edge_features, ends.clone(), ends)?, tokens })
    }

    /// The same with the relation of each edge, in the order of the graph.
    #[must_use]
    pub fn with_relations(mut self, relations: Option<Arc<[u16]>>) -> Self {
        self.rows = self.rows.with_relations(relations);
        self
    }

    /// A graph that was cut out of a larger one: original ids and in-degrees there are of its nodes. Where nodes were
    /// sampled, node k stands for `scales[k]` of them as a source.
    pub fn cut(
        device: &Device,
        csr: Csr<u32>,
        edge_features: Option<Matrix>,
        ids: Ids,
        degrees: &[u32],
        scales: Option<&[f32]>,
    ) -> Result<Self> {
        let tokens = Tokens::new(device, csr.num_dst());
        let ends = Ends { ids, degrees };
        let rows = Gathered::new(device, csr, edge_features, ends.clone(), ends)?;
        let rows = match scales {
            Some(scales) => rows.sampled(device, degrees, scales)?,
            None => rows,
        };
        Ok(Self { rows, tokens })
    }

    /// A whole graph that was renumbered, of which `layout` has all rows.
    pub(crate) fn renumbered(device: &Device, layout: &Layout, edge_features: Option<Matrix>) -> Result<Self> {
        let ends = Ends { ids: layout.ids(0..layout.total_rows()), degrees: layout.degrees() };
        let rows = Gathered::new(device, layout.csr().clone(), edge_features, ends.clone(), ends)?;
        let rows = rows.with_relations(layout.relations().cloned());
        Ok(Self { rows, tokens: Tokens::new(device, layout.total_rows()) })
    }
}

impl Membership for Local {
    fn own(&self) -> OwnRows<'_> {
        OwnRows { rows: self.rows.rows(), total: self.rows.rows() as u64, ids: self.rows.ids() }
    }

    fn reduce(&self, _: Total, _: u32) -> Rc<dyn Reduce> {
        Rc::new(Alone)
    }

    fn tokens_attend(&self, tape: &mut Tape, _: u32, a: TokensAttend<'_>) -> Result<Var> {
        let TokensAttend { heads, q, kv, dropout } = a;
        let graphs = self.tokens.graphs(q.value().rows())?;
        let dropout = graphs.dropout_of_seeing(dropout, self.rows.ids());
        attention(tape, graphs.seeing(), heads, Score::Dot { q, kv }, Bias::None, None, dropout)
    }
}

impl GraphOps for Local {
    fn member(&self) -> &dyn Membership {
        self
    }

    fn attend(&self, tape: &mut Tape, _: u32, a: Attend<'_>) -> Result<Var> {
        let tokens = a.tokens.map(|tokens| self.tokens.graphs(tokens.value().rows())).transpose()?;
        self.rows.attend(tape, a, tokens.as_deref(), None)
    }

    fn aggregate(&self, tape: &mut Tape, _: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        self.rows.aggregate(tape, x, how, weight, None)
    }
}
