//! `halo`: what cut edges need moves, and nothing else.
//!
//! A cut edge j → i is served in one of two ways. Its source can be *pulled*: row j of kv, z, r or x comes here,
//! forward, and its gradient goes home, backward. Or its destination can be *pushed*: q_i or l_i goes to the rank of j,
//! which attends over its own rows and answers with the state (m, s, acc) of the softmax over them; states merge
//! exactly. Backward g_i, LSE_i and D_i follow (q_i was kept there), and dq_i or dl_i comes back. A sum needs no query:
//! the partial sum comes, and g_i goes. Which way serves an edge is the least in all, by a minimum cut
//! ([`graphweft_graph::partition::covers`]), chosen for each operation by what its rows weigh; `halo:plain` pulls
//! everything, as do maxima, sums by relation, messages that rows and edges make together, and operations whose edges
//! have values that only the rank of the destination has.
//!
//! Elements per row, forward and backward together: pulled, attention 4d, all else 2d; pushed, attention 4d + 4H, GAT
//! 2d + 6H, GATv2 4d + 4H, sums 2d. A pulled row travels once, however many sums by relation it goes into. Where edges
//! add features to keys and values, a pushed row has a tail of T numbers behind each head
//! ([`edge_values`](graphweft_tensor::ops::edge_values)): u_i goes, s_i comes back, then t_i and du_i, 4HT more, and
//! the choice counts that. A pulled row stays as it is: features are where their edges are computed.
//!
//! `halo:machines:8` knows that machines have eight ranks: a row that several ranks of a machine want crosses to it
//! once and is passed on inside; a query that several serve likewise. Partial states, partial sums and gradients of a
//! row are put together inside before they go back. Covers are then those of pairs of machines ([`service`]), and what
//! crosses between machines is the least that can. It costs a second round inside, where a row moves to as many ranks
//! as want it beside the one that got it.
//!
//! While the first messages fly, edges inside the rank are computed. Pulled and pushed rows are kept for backward.
//! Features that are aggregated as they are ([`GraphOps::keep`]) are pulled once and kept: after the first epoch they
//! cost no byte.

mod exchange_list;
mod route;
mod service;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use graphweft_comm::Label;
use graphweft_graph::partition::Weights;
use graphweft_model::{Aggregation, Attend, EdgeWeight, GraphOps, Membership};
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::attention::Saved;
use graphweft_tensor::{Backward, Charge, Error, Grads, Matrix, Result, Tag, Tape, Var};

use crate::blocks::attention::{InputNumbers, Moved};
use crate::blocks::{Block, Edges, Nodes, aggregation, attention, cut_out};
use crate::layout::Layout;
use crate::link::Link;
use crate::member::{Member, rows};
use crate::strategy::{Family, Fewer, Many, Rows, Situation, Spread, number};
use exchange_list::{ExchangeList, OfEdges};
use route::{Arriving, Fold, How};

/// How cut edges are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cover {
    /// Rows are pulled or queries pushed, whichever moves less in all.
    #[default]
    Least,
    /// Rows are pulled.
    Plain,
    /// The least between machines.
    Machines {
        /// So many ranks stand in each, one after another. Unset: a launcher or a profile says it.
        ranks: Option<usize>,
    },
}

/// Rows are not few if this share of them is needed on every other rank.
const MANY: f64 = 0.1;

impl Family for Cover {
    const NAME: &'static str = "halo";
    const FORMS: &'static [&'static str] = &["halo", "halo:plain", "halo:machines", "halo:machines:RANKS"];
    const ABOUT: &'static str = "what cut edges need moves, and nothing else";
    const USUAL: Option<Self> = Some(Self::Least);

    fn parse(settings: &str) -> Option<Self> {
        match settings.split_once(':') {
            None if settings == "plain" => Some(Self::Plain),
            None if settings == "machines" => Some(Self::Machines { ranks: None }),
            Some(("machines", ranks)) => Some(Self::Machines { ranks: Some(number(ranks)?) }),
            _ => None,
        }
    }

    fn candidates(ranks: usize, _: usize) -> Vec<Self> {
        if ranks > 1 { vec![Self::Least, Self::Plain] } else { Vec::new() }
    }
}

impl Spread for Cover {
    fn family(&self) -> &'static str {
        Self::NAME
    }

    fn name(&self) -> String {
        match self {
            Self::Least => "halo".into(),
            Self::Plain => "halo:plain".into(),
            Self::Machines { ranks: None } => "halo:machines".into(),
            Self::Machines { ranks: Some(ranks) } => format!("halo:machines:{ranks}"),
        }
    }

    fn ops(&self, rows: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
        Ok(Rc::new(Halo::new(rows.layout, rows.link, rows.edge_features, *self)?))
    }

    fn reason(&self, on: &Situation) -> String {
        let others = on.ranks - 1;
        match on.alpha {
            _ if matches!(self, Self::Machines { .. }) => {
                format!("{}what several ranks of a machine need crosses to it once", on.alpha_so(""))
            }
            Some(alpha) if alpha > MANY * others as f64 => {
                format!("α = {alpha:.2} of at most {others}: rows go where they are needed, and nowhere else")
            }
            _ => format!("{}few rows are needed elsewhere", on.alpha_so("")),
        }
    }

    fn on_fewer(&self, many: &Many<'_>) -> std::result::Result<Fewer, String> {
        Ok(Fewer::groups(*self, many.groups(many.ranks, many.most), many.ranks))
    }

    fn needs_structure(&self) -> bool {
        *self != Self::Plain
    }
}

/// What cut edges need, pulled or pushed.
pub struct Halo {
    member: Member,
    cover: Cover,
    /// The edges inside this rank.
    own: Rc<Block>,
    cut: Layout,
    _charge: Charge,
    /// A row per edge of this rank.
    edge_features: Option<Matrix>,
    /// The relation of each, where they have one.
    relations: Option<Arc<[u16]>>,
    /// By weights; without any, everything is pulled.
    lists: RefCell<BTreeMap<Option<Weights>, Rc<ExchangeList>>>,
    kept: RefCell<Option<Kept>>,
}

/// Rows that are the same at every step, and those of other ranks once they were pulled.
struct Kept {
    own: Matrix,
    pulled: Option<Matrix>,
}

impl Halo {
    /// Prepares the rows of `layout`; `edge_features` have a row per edge into them, in its order.
    pub fn new(layout: &Layout, link: &Link, edge_features: Option<Matrix>, cover: Cover) -> Result<Self> {
        let (own, nodes) = (layout.own(), Nodes::new(layout, layout.own()));
        let rename = |j: u32| j - own.start as u32;
        let (csr, positions) = cut_out(layout.csr(), own.clone(), own.len(), rename)?;
        let relations = layout.relations().cloned();
        let edges = Edges::of(positions, edge_features.as_ref(), relations.as_deref())?;
        let own = Rc::new(Block::new(link.device(), csr, &nodes, &nodes, edges)?);
        let (member, cut) = (Member::new(link, layout), layout.cut());
        let charge = link.device().charge(Tag::Graph, cut.csr().bytes() + 8 * cut.edges().len() as u64);
        Ok(Self {
            member,
            cover,
            own,
            cut,
            _charge: charge,
            edge_features,
            relations,
            lists: RefCell::default(),
            kept: RefCell::default(),
        })
    }

    /// The list for rows that weigh this, or for pulling everything. All ranks ask for the same at the same time.
    fn list(&self, moved: Option<Moved>) -> Result<Rc<ExchangeList>> {
        let machines = match self.cover {
            Cover::Least | Cover::Plain => None,
            Cover::Machines { ranks: Some(ranks) } => Some(ranks).filter(|each| *each < self.cut.ranks()),
            Cover::Machines { ranks: None } => {
                let problem = "nothing says how many ranks share a machine: set halo:machines:RANKS".into();
                return Err(Error::Argument { op: "strategy", problem });
            }
        };
        let weights = moved.filter(|_| self.cover != Cover::Plain).map(|moved| {
            let weight = |elements: usize| u32::try_from(elements).unwrap_or(u32::MAX);
            Weights { pull: weight(moved.pull), push: weight(moved.push) }.reduced()
        });
        let mut lists = self.lists.borrow_mut();
        if let Some(list) = lists.get(&weights) {
            return Ok(Rc::clone(list));
        }
        let list = Rc::new(ExchangeList::new(&self.cut, self.member.link(), self.of_edges(), weights, machines)?);
        lists.insert(weights, Rc::clone(&list));
        Ok(list)
    }

    fn of_edges(&self) -> OfEdges<'_> {
        OfEdges { features: self.edge_features.as_ref(), relations: self.relations.as_deref() }
    }

    /// The rows of others for aggregating `x`, from the first call or from this one.
    fn pulled(&self, list: &ExchangeList, label: Label, x: &Matrix) -> Result<Pulled> {
        let known = self.kept.borrow().as_ref().filter(|kept| kept.own.shares(x)).and_then(|kept| kept.pulled.clone());
        Ok(match known {
            Some(rows) => Pulled::Known(rows),
            // What is kept is had once, as it is.
            None => Pulled::Flying(list.pull(label, x, if self.is_kept(x) { How::Exact } else { How::Coded })?),
        })
    }

    fn is_kept(&self, x: &Matrix) -> bool {
        self.kept.borrow().as_ref().is_some_and(|kept| kept.own.shares(x))
    }
}

/// Rows of other ranks.
enum Pulled {
    Known(Matrix),
    Flying(Arriving),
}

impl Pulled {
    fn wait(self) -> Result<Matrix> {
        match self {
            Self::Known(rows) => Ok(rows),
            Self::Flying(rows) => rows.wait(),
        }
    }
}

struct AttendBackward {
    own: Rc<Block>,
    list: Rc<ExchangeList>,
    label: Label,
    call: attention::Call,
    tokens: Option<Block>,
    /// Rows of others as sources.
    pulled: Matrix,
    /// Rows of others as destinations.
    pushed: Matrix,
    out: Matrix,
    lse: Matrix,
    numbers: InputNumbers,
}

impl Backward for AttendBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let Self { own, list, label, call, tokens, pulled, pushed, out, lse, numbers } = *self;
        let (device, mut sums) = (grads.device().clone(), call.sums()?);
        let d = call.products(&g, &out, &lse)?;
        drop(out);
        let g_flight = list.push(label, &g, How::Coded)?;
        let [lse_flight, d_flight] = [list.push(label, &lse, How::Exact)?, list.push(label, &d, How::Exact)?];
        let saved = Saved { lse: &lse, g: &g, d: &d };
        // The gradient of pulled rows comes first: it travels while the rest is computed.
        let operands = call.operands(&list.pulled, call.dst(), &pulled)?;
        let home = list.give_back(label, &operands.by_src(&saved, &mut sums, Tag::Exchange)?)?;
        let mut found = call.own_gradients(&own, tokens.as_ref(), &saved, &mut sums)?;
        operands.by_dst(&saved, &mut found.dst, Write::Add, &mut sums)?;
        drop(operands);
        drop(pulled);

        let (g, lse, d) = (g_flight.wait()?, lse_flight.wait()?, d_flight.wait()?);
        let saved = Saved { lse: &lse, g: &g, d: &d };
        let serving = list.serving(label, call.src())?;
        let operands = call.operands(&list.served, &pushed, &serving)?;
        let mut answer = device.uninit(label.op, pushed.rows(), pushed.cols(), pushed.dtype(), Tag::Exchange)?;
        operands.by_dst(&saved, &mut answer, Write::Set, &mut sums)?;
        let answers = list.answer(label, &answer, Fold::Add)?;
        drop(answer);
        list.add_serving(&operands.by_src(&saved, &mut sums, Tag::Exchange)?, &mut found.src)?;
        drop(operands);
        drop(serving);
        list.add_given(&home.wait_one()?, &mut found.src)?;
        list.add_answers(&answers.wait_one()?, &mut found.dst)?;
        found.put(grads, numbers, sums)
    }
}

struct AggregateBackward {
    own: Rc<Block>,
    list: Rc<ExchangeList>,
    label: Label,
    call: aggregation::Call,
    /// This rank's rows and those that were pulled, where a gradient is made of them.
    x: Option<[Matrix; 2]>,
    /// Whether there is a gradient beside that of rows.
    weight_wanted: bool,
    arg: Option<Matrix>,
}

impl Backward for AggregateBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let Self { own, list, label, call, x, weight_wanted, arg } = *self;
        let arg = arg.as_ref();
        if let Some([here, pulled]) = x.as_ref().filter(|_| weight_wanted)
            && let Some(mut dw) = call.weight_sums()?
        {
            call.weight_gradient(&own, here, &g, &mut dw)?;
            call.weight_gradient(&list.pulled, pulled, &g, &mut dw)?;
            grads.put(1, dw)?;
        }
        if !grads.wants(0) {
            return Ok(());
        }
        let [here, pulled] = x.as_ref().map_or([None; 2], |rows| rows.each_ref().map(Some));
        let none_is_pushed = call.is_maximum() || call.needs_rows();
        let pushed = if none_is_pushed { None } else { Some(list.push(label, &g, How::Coded)?) };
        let home = list.give_back(label, &call.gradient(&list.pulled, pulled, &g, arg, Tag::Exchange)?)?;
        let mut dx = call.gradient(&own, here, &g, arg, Tag::Activations)?;
        if let Some(pushed) = pushed {
            let gradient = call.gradient(&list.served, None, &pushed.wait()?, None, Tag::Exchange)?;
            list.add_serving(&gradient, &mut dx)?;
        }
        list.add_given(&home.wait_one()?, &mut dx)?;
        grads.put(0, dx)
    }
}

impl GraphOps for Halo {
    fn member(&self) -> &dyn Membership {
        &self.member
    }

    fn keep(&self, rows: &Matrix) {
        *self.kept.borrow_mut() = Some(Kept { own: rows.clone(), pulled: None });
    }

    fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>) -> Result<Var> {
        let (call, inputs) = attention::Call::new(tape, a)?;
        let (label, token_block) = (rows("attend", layer), self.member.token_block(a.tokens)?);
        let list = self.list((!call.has_values_per_edge()).then(|| call.moved()))?;
        let pushed = list.push(label, call.dst(), How::Coded)?;
        let pulled = list.pull(label, call.src(), How::Coded)?;
        let mut state = call.empty_state(self.member.rows(), Tag::Activations)?;
        call.fold_own(&self.own, token_block.as_ref(), &mut state)?;
        let pushed = pushed.wait()?;
        let mut states = call.empty_state(pushed.rows(), Tag::Exchange)?;
        call.fold(&list.served, &pushed, &list.serving(label, call.src())?, &mut states)?;
        let answers = list.answer(label, &states, Fold::Merge(call.heads()))?;
        drop(states);
        let pulled = pulled.wait()?;
        call.fold(&list.pulled, call.dst(), &pulled, &mut state)?;
        let answers = answers.wait_one()?;
        tape.device().backend().attention_merge(call.heads(), &answers, list.pushed(), &mut state)?;
        drop(answers);
        let (out, lse) = call.finish(&state)?;
        drop(state);
        let (kept, numbers, own) = (out.clone(), inputs.numbers(), Rc::clone(&self.own));
        let out = tape.push(&inputs.list(), out, || AttendBackward {
            own,
            list,
            label,
            call,
            tokens: token_block,
            pulled,
            pushed,
            out: kept,
            lse,
            numbers,
        });
        attention::finished(tape, &a, out)
    }

    fn aggregate(&self, tape: &mut Tape, layer: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        let call = aggregation::Call::new(x, how, weight)?;
        let (label, here) = (rows("aggregate", layer), x.value());
        let is_kept = self.is_kept(here);
        let pulls_all = is_kept || call.is_maximum() || call.has_values_per_edge();
        let both = Moved { pull: 2 * here.cols(), push: 2 * here.cols() };
        let list = self.list((!pulls_all).then_some(both))?;
        let pulled = self.pulled(&list, label, here)?;
        let answers = match pulls_all {
            true => None,
            false => {
                let sums = call.begin(&list.served, &list.serving(label, here)?, Tag::Exchange)?.out;
                Some(list.answer(label, &sums, Fold::Add)?)
            }
        };
        let mut folded = call.begin(&self.own, here, Tag::Activations)?;
        let pulled = pulled.wait()?;
        if let Some(kept) = self.kept.borrow_mut().as_mut().filter(|_| is_kept) {
            kept.pulled = Some(pulled.clone());
        }
        call.fold(&list.pulled, &pulled, &mut folded)?;
        if let Some(answers) = answers {
            list.add_answers(&answers.wait_one()?, &mut folded.out)?;
        }
        let aggregation::Folded { out, arg } = folded;
        let (inputs, weight_wanted) = aggregation::inputs(tape, x, weight);
        let kept = weight_wanted || call.needs_rows();
        let (own, x) = (Rc::clone(&self.own), kept.then(|| [here.clone(), pulled]));
        Ok(tape.push(&inputs, out, || AggregateBackward { own, list, label, call, x, weight_wanted, arg }))
    }
}
