//! What a rank has under every strategy: its rows and ids, sums over ranks, tokens.

use std::rc::Rc;

use graphweft_comm::{Label, Traffic};
use graphweft_model::{Membership, OwnRows, TokensAttend, Total};
use graphweft_tensor::{Ids, Matrix, Reduce, Result, Tape, Var};

use crate::blocks::Block;
use crate::layout::Layout;
use crate::link::Link;
use crate::tokens::{TokenGraphs, Tokens, TokensCall, tokens_attend};

/// One of the ranks.
pub(crate) struct Member {
    link: Link,
    rows: usize,
    total: u64,
    ids: Ids,
    tokens: Tokens,
}

impl Member {
    /// The rank of `layout`, talking by `link`.
    pub(crate) fn new(link: &Link, layout: &Layout) -> Self {
        let (rows, total, ids) = (layout.own().len(), layout.total_rows() as u64, layout.ids(layout.own()));
        Self { link: link.clone(), rows, total, ids, tokens: Tokens::new(link.device(), rows) }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The graphs between this rank's rows and `count` tokens.
    pub(crate) fn tokens(&self, count: usize) -> Result<Rc<TokenGraphs>> {
        self.tokens.graphs(count)
    }

    /// The edges from tokens to this rank's rows.
    pub(crate) fn token_block(&self, tokens: Option<&Var>) -> Result<Option<Block>> {
        tokens.map(|tokens| Ok(self.tokens(tokens.value().rows())?.edges_to(&self.ids))).transpose()
    }
}

impl Membership for Member {
    fn own(&self) -> OwnRows<'_> {
        OwnRows { rows: self.rows, total: self.total, ids: &self.ids }
    }

    fn reduce(&self, total: Total, layer: u32) -> Rc<dyn Reduce> {
        sums(&self.link, total, layer)
    }

    fn tokens_attend(&self, tape: &mut Tape, layer: u32, a: TokensAttend<'_>) -> Result<Var> {
        let graphs = self.tokens(a.q.value().rows())?;
        let dropout = graphs.dropout_of_seeing(a.dropout, &self.ids);
        let label = Label { op: "tokens", traffic: Traffic::Global, layer };
        tokens_attend(tape, TokensCall { link: &self.link, label, graph: graphs.seeing(), attend: a, dropout })
    }
}

/// What is agreed on once.
pub(crate) const SETUP: Label = Label { op: "setup", traffic: Traffic::Setup, layer: 0 };

/// Rows of nodes, moved for an operation of a layer.
pub(crate) fn rows(op: &'static str, layer: u32) -> Label {
    Label { op, traffic: Traffic::Rows, layer }
}

/// Sums over the ranks of a link, in the account of `total` and `layer`.
pub fn sums(link: &Link, total: Total, layer: u32) -> Rc<dyn Reduce> {
    let (op, traffic) = match total {
        Total::Global => ("global", Traffic::Global),
        Total::Moments => ("moments", Traffic::Moments),
        Total::Gradients => ("gradients", Traffic::Gradients),
        Total::Loss => ("loss", Traffic::Metrics),
        Total::Metrics => ("metrics", Traffic::Metrics),
        Total::Setup => ("setup", Traffic::Setup),
    };
    Rc::new(Sums { link: link.clone(), label: Label { op, traffic, layer } })
}

struct Sums {
    link: Link,
    label: Label,
}

impl Reduce for Sums {
    fn sum(&self, m: &mut Matrix) -> Result<()> {
        self.link.sum(self.label, m)
    }
}
