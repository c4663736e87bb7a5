//! `batches`: whole graphs, some of every batch on each rank. Exact, for data of many graphs.
//!
//! A rank has a run of the graphs of a batch, all nodes of each, so no row is ever needed elsewhere: what moves are
//! gradients, and the sums of batch norms, in which the nodes of all ranks count.

use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_model::{Aggregation, Attend, EdgeWeight, GraphOps, Membership, OwnRows, TokensAttend, Total};
use graphweft_tensor::ops::global::Global;
use graphweft_tensor::{Alone, Device, Error, Ids, Matrix, Reduce, Result, Tape, Var};

use crate::gathered::{Ends, Gathered};
use crate::link::Link;
use crate::member::sums;
use crate::strategy::{Family, Rows, Situation, Spread, no_settings};

// `train.batch` says how many graphs there are in a batch.
no_settings!("batches", "whole graphs, some of every batch on each rank: gradients move, and no rows", for_none);

/// Data of many graphs have no other, and other data cannot have it.
fn for_none(_: usize) -> Vec<Settings> {
    Vec::new()
}

impl Spread for Settings {
    fn family(&self) -> &'static str {
        Self::NAME
    }

    fn ops(&self, _: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
        let problem = "batches is for data of many graphs, and this is one graph".into();
        Err(Error::Argument { op: "strategy", problem })
    }

    fn reason(&self, _: &Situation) -> String {
        "whole graphs need nothing of others: ranks share every batch".into()
    }
}

/// The graphs of a batch that a rank has, as one graph.
pub struct Batch {
    rows: Gathered,
    link: Option<Link>,
    total: u64,
}

/// What a rank has of a batch.
pub struct BatchRows {
    /// Its graphs, block after block.
    pub csr: Csr<u32>,
    /// A row per edge.
    pub edge_features: Option<Matrix>,
    /// Original ids of its nodes.
    pub ids: Ids,
    /// Nodes of all ranks.
    pub total: u64,
}

impl Batch {
    /// Prepares the rows of a rank, which talks to the others by `link` if there are any.
    pub fn new(device: &Device, link: Option<&Link>, batch: BatchRows) -> Result<Self> {
        let BatchRows { csr, edge_features, ids, total } = batch;
        let degrees: Vec<u32> = (0..csr.num_dst()).map(|row| csr.degree(row) as u32).collect();
        let ends = Ends { ids, degrees: &degrees };
        let rows = Gathered::new(device, csr, edge_features, ends.clone(), ends)?;
        Ok(Self { rows, link: link.cloned(), total })
    }
}

/// What looks at all nodes would look from graph to graph.
fn refused(op: &'static str) -> Error {
    Error::Argument { op, problem: "in a batch of graphs a node sees its own graph, along edges".into() }
}

impl Membership for Batch {
    fn own(&self) -> OwnRows<'_> {
        OwnRows { rows: self.rows.rows(), total: self.total, ids: self.rows.ids() }
    }

    fn reduce(&self, total: Total, layer: u32) -> Rc<dyn Reduce> {
        match &self.link {
            Some(link) => sums(link, total, layer),
            None => Rc::new(Alone),
        }
    }

    fn tokens_attend(&self, _: &mut Tape, _: u32, _: TokensAttend<'_>) -> Result<Var> {
        Err(refused("tokens"))
    }
}

impl GraphOps for Batch {
    fn member(&self) -> &dyn Membership {
        self
    }

    fn bring(&self) -> Result<()> {
        self.rows.bring()
    }

    fn attend(&self, tape: &mut Tape, _: u32, a: Attend<'_>) -> Result<Var> {
        match a.tokens {
            None => self.rows.attend(tape, a, None, None),
            Some(_) => Err(refused("tokens")),
        }
    }

    fn aggregate(&self, tape: &mut Tape, _: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        self.rows.aggregate(tape, x, how, weight, None)
    }

    fn global(&self, _: &mut Tape, _: u32, _: Global<&Var>) -> Result<Var> {
        Err(refused("global attention"))
    }
}
