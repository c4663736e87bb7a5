//! `gather`: every rank gets all rows of the sources' operand, and computes its own destinations.
//!
//! Forward: an all-gather of kv (2d), z, r or x (d): N·(P − 1) rows in all. Backward: a reduce-scatter of its gradient,
//! as many bytes again, added up in the order of ranks. A rank holds N·2d numbers of the operand, whatever its share of
//! the graph is: for small graphs, and for two ranks.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use graphweft_comm::Label;
use graphweft_model::{Aggregation, Attend, EdgeWeight, GraphOps, Membership};
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::combine::Patch;
use graphweft_tensor::{Backward, Grads, Matrix, Result, Tag, Tape, Var};

use crate::gathered::{Ends, Gathered};
use crate::layout::Layout;
use crate::link::Link;
use crate::member::{Member, rows};
use crate::strategy::{Family, Fewer, Many, Rows, Situation, Spread, no_settings};
use crate::wire::{Coder, Decoding, Outgoing, Way};

no_settings!("gather", "every rank gets all rows of the sources' operand");

impl Spread for Settings {
    fn family(&self) -> &'static str {
        Self::NAME
    }

    fn ops(&self, rows: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
        Ok(Rc::new(Gather::new(rows.layout, rows.link, rows.edge_features)?))
    }

    fn reason(&self, _: &Situation) -> String {
        "the graph is small enough for every rank to have all rows in one round of messages".into()
    }

    fn on_fewer(&self, many: &Many<'_>) -> std::result::Result<Fewer, String> {
        match many.ranks > many.most {
            true => Err(format!("every one of {} ranks would work on all nodes", many.ranks)),
            false => Ok(Fewer { gathers: true, ..Fewer::groups(*self, many.ranks, many.ranks) }),
        }
    }
}

/// All rows of the sources' operand on every rank.
pub struct Gather {
    member: Member,
    /// Rows of every rank.
    counts: Rc<[usize]>,
    own: Gathered,
    /// Where rows may be coded.
    coded: Option<Rc<Coded>>,
}

/// Rows that are coded on their way to all ranks, this rank's own excepted.
struct Coded {
    link: Link,
    counts: Rc<[usize]>,
    own: Range<usize>,
    /// Original ids of all rows.
    ids: Arc<[u64]>,
}

impl Gather {
    /// Prepares the rows of `layout`; `edge_features` have a row per edge into them, in its order.
    pub fn new(layout: &Layout, link: &Link, edge_features: Option<Matrix>) -> Result<Self> {
        let (own, all) = (layout.own(), 0..layout.total_rows());
        let own = Gathered::new(
            link.device(),
            layout.csr().clone(),
            edge_features,
            Ends { ids: layout.ids(own.clone()), degrees: &layout.degrees()[own] },
            Ends { ids: layout.ids(all), degrees: layout.degrees() },
        )?
        .with_relations(layout.relations().cloned());
        let counts: Rc<[usize]> = layout.counts().into();
        let coded = link.may_code().then(|| {
            let (link, counts, ids) = (link.clone(), Rc::clone(&counts), Arc::clone(layout.originals()));
            Rc::new(Coded { link, counts, own: layout.own(), ids })
        });
        Ok(Self { member: Member::new(link, layout), counts, own, coded })
    }

    fn all_rows(&self, tape: &mut Tape, label: Label, x: &Var) -> Result<Var> {
        if let Some((coded, coder)) = self.coded.as_ref().zip(self.member.link().coder(label, Way::There)) {
            let all = coded.gather(label, coder, x.value())?;
            return Ok(tape.push(&[x], all, || CodedBackward { coded: Rc::clone(coded), label }));
        }
        all_gather(tape, self.member.link(), label, x, &self.counts)
    }
}

/// The rows of all ranks on each of them, `counts[rank]` of each, in order, for operation `op`. Backward sums each
/// rank's over all.
pub fn all_rows(tape: &mut Tape, link: &Link, op: &'static str, x: &Var, counts: &Rc<[usize]>) -> Result<Var> {
    all_gather(tape, link, rows(op, 0), x, counts)
}

/// The rows of all ranks, `counts[rank]` of each, in order. Backward sums each rank's over all.
pub(crate) fn all_gather(tape: &mut Tape, link: &Link, label: Label, x: &Var, counts: &Rc<[usize]>) -> Result<Var> {
    let all = link.all_gather(label, x.value(), counts)?.wait_one()?;
    Ok(tape.push(&[x], all, || AllGatherBackward { link: link.clone(), label, counts: Rc::clone(counts) }))
}

struct AllGatherBackward {
    link: Link,
    label: Label,
    counts: Rc<[usize]>,
}

impl Backward for AllGatherBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let own = self.link.scatter_sum(self.label, &g, &self.counts)?;
        drop(g);
        grads.put(0, own)
    }
}

impl Coded {
    /// The rows of all ranks, of which this rank's are what they were.
    fn gather(&self, label: Label, coder: Coder, x: &Matrix) -> Result<Matrix> {
        let out = Outgoing { rows: x, ids: &self.ids[self.own.clone()], way: Way::There };
        let coded = self.link.all_gather(label, &coder.encode(out)?, &self.counts)?.wait_one()?;
        let mut all = self.decoding(label, coder, x).decode(&coded)?;
        let patch = Patch { from: [0, 0], to: [self.own.start, 0], size: [x.rows(), x.cols()] };
        x.device().backend().copy_patch(x, &mut all, patch, Write::Set)?;
        Ok(all)
    }

    /// The sum over ranks of this rank's rows of `g`: its own, then those of the others in order.
    fn scatter_sum(&self, label: Label, coder: Coder, g: &Matrix) -> Result<Matrix> {
        let coded = coder.encode(Outgoing { rows: g, ids: &self.ids, way: Way::Back })?;
        let (rows, cols) = (self.own.len(), vec![coded.cols(); self.counts.len()]);
        let flight = self.link.unstack(label, &coded, &self.counts, rows, &cols)?;
        let mut sum = g.device().uninit(label.op, rows, g.cols(), g.dtype(), Tag::Exchange)?;
        let patch = Patch { from: [self.own.start, 0], to: [0, 0], size: [rows, g.cols()] };
        g.device().backend().copy_patch(g, &mut sum, patch, Write::Set)?;
        for others in flight.wait()? {
            let others = self.decoding(label, coder, g).decode(&others)?;
            g.device().backend().copy_patch(&others, &mut sum, Patch { from: [0, 0], ..patch }, Write::Add)?;
        }
        Ok(sum)
    }

    fn decoding(&self, label: Label, coder: Coder, like: &Matrix) -> Decoding {
        Decoding { coder, op: label.op, cols: like.cols(), dtype: like.dtype(), more: 0 }
    }
}

struct CodedBackward {
    coded: Rc<Coded>,
    label: Label,
}

impl Backward for CodedBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let Self { coded, label } = *self;
        let own = match coded.link.coder(label, Way::Back) {
            Some(coder) => coded.scatter_sum(label, coder, &g)?,
            None => coded.link.scatter_sum(label, &g, &coded.counts)?,
        };
        drop(g);
        grads.put(0, own)
    }
}

impl GraphOps for Gather {
    fn member(&self) -> &dyn Membership {
        &self.member
    }

    fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>) -> Result<Var> {
        let tokens = a.tokens.map(|tokens| self.member.tokens(tokens.value().rows())).transpose()?;
        let bring = |tape: &mut Tape, x: &Var| self.all_rows(tape, rows("attend", layer), x);
        self.own.attend(tape, a, tokens.as_deref(), Some(&bring))
    }

    fn aggregate(&self, tape: &mut Tape, layer: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        self.own.aggregate(tape, x, how, weight, Some(&|tape, x| self.all_rows(tape, rows("aggregate", layer), x)))
    }
}
