//! `ring`: one rank's rows at a time (SAR: sequential aggregation and rematerialisation).
//!
//! In step t of P − 1, rank p sends to rank p + t the rows that this one needs and receives what it needs of rank p − t
//! itself; they are folded into what is carried (the state of an online softmax, a sum, a maximum) and freed. `depth`
//! steps are under way while one is computed, the first of them behind the rank's own rows.
//!
//! Forward moves α·N rows of kv (2d), z, r or x (d). Backward gets rows again only where a gradient needs them, and
//! sends theirs home: attention 2d + 2d, GAT and GATv2 d + d, sums and maxima d (who was largest is kept); d more where
//! weights of edges, or coefficients by relation, want a gradient, and for messages that rows and edges make together.
//! Features of edges stay where they are, and so do the tails that queries have for them. Nothing that was received is
//! kept between the two.
//!
//! With depth 1 a rank holds at most three times its share of the sources forward: its own, those in use, those under
//! way. Backward five times: its own and their gradient, the rows in use, and either the gradient of the last step in
//! both directions (while this step's pass by destination runs) or the next rows and this step's gradient (while its
//! pass by source runs). Where a peer needs every row, what is sent is the matrix itself and no copy.

use std::collections::VecDeque;
use std::rc::Rc;

use graphweft_comm::Label;
use graphweft_model::{Aggregation, Attend, EdgeWeight, GraphOps, Membership};
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::attention::Saved;
use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Backward, Charge, Error, Grads, Matrix, Result, Tag, Tape, Var};

use crate::blocks::aggregation::{self, Folded};
use crate::blocks::attention::{self, InputNumbers};
use crate::blocks::{Block, Edges, Nodes, cut_out};
use crate::layout::Layout;
use crate::link::{Flight, Link};
use crate::member::{Member, SETUP, rows};
use crate::strategy::{Family, Fewer, Many, Rows, Situation, Spread, number};
use crate::wire::{Outgoing, Way};

/// How far ahead rows are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How many ranks' rows are under way while one's are used.
    pub depth: usize,
}

impl Family for Settings {
    const NAME: &'static str = "ring";
    const FORMS: &'static [&'static str] = &["ring", "ring:DEPTH"];
    const ABOUT: &'static str = "one other rank's rows at a time, while the next are under way";
    const USUAL: Option<Self> = Some(Self { depth: 1 });

    fn parse(settings: &str) -> Option<Self> {
        Some(Self { depth: number(settings)? })
    }

    /// More steps under way than one are of use from four ranks on.
    fn candidates(ranks: usize, _: usize) -> Vec<Self> {
        let most = match ranks {
            1 => 0,
            2..4 => 1,
            _ => 2,
        };
        (1..=most).map(|depth| Self { depth }).collect()
    }
}

impl Spread for Settings {
    fn family(&self) -> &'static str {
        Self::NAME
    }

    fn name(&self) -> String {
        match self.depth {
            1 => Self::NAME.into(),
            depth => format!("{}:{depth}", Self::NAME),
        }
    }

    fn ops(&self, rows: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
        Ok(Rc::new(Ring::new(rows.layout, rows.link, rows.edge_features.as_ref(), self.depth)?))
    }

    fn reason(&self, _: &Situation) -> String {
        "a rank holds the rows of one other at a time, while the next are under way".into()
    }

    fn on_fewer(&self, many: &Many<'_>) -> std::result::Result<Fewer, String> {
        let groups = many.groups(many.ranks, many.most);
        Ok(Fewer { in_turn: true, ..Fewer::groups(*self, groups, many.ranks) })
    }
}

/// One rank's rows at a time.
pub struct Ring {
    member: Member,
    shards: Rc<Shards>,
}

/// The edges into this rank's rows, by the rank of their sources.
struct Shards {
    link: Link,
    depth: usize,
    own: Block,
    /// Step t is entry t − 1.
    steps: Vec<Step>,
    /// For the ids.
    _charge: Charge,
}

/// The edges from one other rank, and the rows for another.
struct Step {
    from: usize,
    block: Block,
    /// Original ids of its sources, where rows may be coded.
    ids: Vec<u64>,
    to: usize,
    give: Give,
}

/// Rows of this rank that another one needs.
struct Give {
    index: RowIndex,
    /// Their original ids, where rows may be coded.
    ids: Vec<u64>,
    /// They are all rows, in order.
    all: bool,
}

impl Give {
    fn of(&self, label: Label, x: &Matrix) -> Result<Matrix> {
        if self.all {
            return Ok(x.clone());
        }
        let (device, rows) = (x.device(), self.index.index().len());
        let mut some = device.uninit(label.op, rows, x.cols(), x.dtype(), Tag::Exchange)?;
        device.backend().gather_rows(x, &self.index, &mut some)?;
        Ok(some)
    }
}

impl Ring {
    /// Prepares the rows of `layout`, with `depth` steps, at least one, under way at a time; `edge_features` have a row
    /// per edge into them.
    pub fn new(layout: &Layout, link: &Link, edge_features: Option<&Matrix>, depth: usize) -> Result<Self> {
        let (rank, size, device) = (link.rank(), link.size(), link.device());
        let dst = Nodes::new(layout, layout.own());
        let cut = |peer: usize, needed: &[u32], src: &Rc<Nodes>| -> Result<Block> {
            let mut place = vec![0; layout.rows_of(peer).len()];
            let start = layout.rows_of(peer).start;
            for (k, j) in (0..).zip(needed) {
                place[*j as usize - start] = k;
            }
            let rename = |j: u32| place[j as usize - start];
            let (csr, positions) = cut_out(layout.csr(), layout.rows_of(peer), needed.len(), rename)?;
            Block::new(
                device,
                csr,
                &dst,
                src,
                Edges::of(positions, edge_features, layout.relations().map(|all| &**all))?,
            )
        };
        let needed: Vec<Vec<u32>> = (0..size).map(|peer| layout.needed_of(peer)).collect();
        let asked = needed.iter().enumerate().map(|(peer, list)| {
            let start = layout.rows_of(peer).start as u64;
            if peer == rank { Vec::new() } else { list.iter().map(|j| u64::from(*j) - start).collect() }
        });
        let given = link.all_to_all_ids(SETUP, &asked.collect::<Vec<Vec<u64>>>())?;
        let own_rows: Vec<u32> = layout.own().map(|row| row as u32).collect();
        let own = cut(rank, &own_rows, &dst)?;
        let mut steps: Vec<Step> = Vec::with_capacity(size - 1);
        for t in 1..size {
            let (from, to) = ((rank + size - t) % size, (rank + t) % size);
            let src = Nodes::new(layout, needed[from].iter().map(|j| *j as usize));
            let give: Vec<u32> = given[to].iter().map(|row| *row as u32).collect();
            let all = give.len() == own_rows.len();
            let originals = |rows: &[u32], first: usize| match link.may_code() {
                true => rows.iter().map(|row| layout.originals()[first + *row as usize]).collect(),
                false => Vec::new(),
            };
            let ids = originals(&give, layout.own().start);
            let give = Give { index: RowIndex::new(device, own_rows.len(), give)?, ids, all };
            let ids = originals(&needed[from], 0);
            steps.push(Step { from, block: cut(from, &needed[from], &src)?, ids, to, give });
        }
        let ids: usize = steps.iter().map(|step| step.ids.len() + step.give.ids.len()).sum();
        let _charge = device.charge(Tag::Graph, 8 * ids as u64);
        let shards = Shards { link: link.clone(), depth: depth.clamp(1, steps.len().max(1)), own, steps, _charge };
        Ok(Self { member: Member::new(link, layout), shards: Rc::new(shards) })
    }
}

/// Rows on their way from other ranks, step after step.
struct Fetch<'a> {
    shards: &'a Shards,
    label: Label,
    under_way: VecDeque<Flight>,
    /// The step that is asked for next.
    next: usize,
}

impl<'a> Fetch<'a> {
    /// Asks for the rows of the first steps, and sends `x`'s.
    fn new(shards: &'a Shards, label: Label, x: &Matrix) -> Result<Self> {
        let mut fetch = Self { shards, label, under_way: VecDeque::new(), next: 0 };
        (0..shards.depth).try_for_each(|_| fetch.ask(x))?;
        Ok(fetch)
    }

    fn ask(&mut self, x: &Matrix) -> Result<()> {
        let Some(step) = self.shards.steps.get(self.next) else { return Ok(()) };
        let (give, take) = (step.give.of(self.label, x)?, step.block.num_src());
        let out = Outgoing { rows: &give, ids: &step.give.ids, way: Way::There };
        self.under_way.push_back(self.shards.link.shift_rows(self.label, step.to, out, step.from, take)?);
        self.next += 1;
        Ok(())
    }

    /// The rows of the next step, when they are here.
    fn land(&mut self) -> Result<Matrix> {
        let nothing = || Error::Argument { op: self.label.op, problem: "nothing is under way".into() };
        self.under_way.pop_front().ok_or_else(nothing)?.wait_one()
    }

    /// The same, and asks for more.
    fn next(&mut self, x: &Matrix) -> Result<Matrix> {
        let rows = self.land()?;
        self.ask(x)?;
        Ok(rows)
    }
}

/// Gradients of other ranks' rows on their way home, and of this rank's coming back.
struct Return<'a> {
    shards: &'a Shards,
    label: Label,
    under_way: Option<(usize, Flight)>,
}

impl Return<'_> {
    /// Sends the gradient of the rows of step `k`.
    fn send(&mut self, k: usize, gradient: &Matrix) -> Result<()> {
        let step = &self.shards.steps[k];
        let back = step.give.index.index().len();
        let out = Outgoing { rows: gradient, ids: &step.ids, way: Way::Back };
        let flight = self.shards.link.shift_rows(self.label, step.from, out, step.to, back)?;
        self.under_way = Some((k, flight));
        Ok(())
    }

    /// Adds what came back for the rows that were given in the last step.
    fn land(&mut self, to: &mut Matrix) -> Result<()> {
        let Some((k, flight)) = self.under_way.take() else { return Ok(()) };
        let rows = flight.wait_one()?;
        let device = to.device().clone();
        device.backend().scatter_rows(&rows, &self.shards.steps[k].give.index, to, Write::Add)
    }
}

struct AttendBackward {
    shards: Rc<Shards>,
    label: Label,
    call: attention::Call,
    tokens: Option<Block>,
    out: Matrix,
    lse: Matrix,
    numbers: InputNumbers,
}

impl Backward for AttendBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let Self { shards, label, call, tokens, out, lse, numbers } = *self;
        let d = call.products(&g, &out, &lse)?;
        drop(out);
        let saved = Saved { lse: &lse, g: &g, d: &d };
        let mut sums = call.sums()?;
        let mut fetch = Fetch::new(&shards, label, call.src())?;
        let mut own = call.own_gradients(&shards.own, tokens.as_ref(), &saved, &mut sums)?;
        let mut home = Return { shards: &shards, label, under_way: None };
        for (k, step) in shards.steps.iter().enumerate() {
            let rows = fetch.land()?;
            let operands = call.operands(&step.block, call.dst(), &rows)?;
            operands.by_dst(&saved, &mut own.dst, Write::Add, &mut sums)?;
            home.land(&mut own.src)?;
            fetch.ask(call.src())?;
            let gradient = operands.by_src(&saved, &mut sums, Tag::Exchange)?;
            drop(operands);
            drop(rows);
            home.send(k, &gradient)?;
        }
        home.land(&mut own.src)?;
        own.put(grads, numbers, sums)
    }
}

struct AggregateBackward {
    shards: Rc<Shards>,
    label: Label,
    call: aggregation::Call,
    /// This rank's rows, where a gradient is made of them.
    x: Option<Matrix>,
    /// Whether there is a gradient beside that of rows.
    weight_wanted: bool,
    arg: Option<Matrix>,
}

impl Backward for AggregateBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let Self { shards, label, call, x, weight_wanted, arg } = &*self;
        let (arg, wanted) = (arg.as_ref(), grads.wants(0));
        let mut fetch = x.as_ref().map(|x| Fetch::new(shards, *label, x)).transpose()?;
        let mut dw = if *weight_wanted { call.weight_sums()? } else { None };
        let own = x.as_ref();
        let mut dx = wanted.then(|| call.gradient(&shards.own, own, &g, arg, Tag::Activations)).transpose()?;
        if let (Some(x), Some(dw)) = (x, &mut dw) {
            call.weight_gradient(&shards.own, x, &g, dw)?;
        }
        let mut home = Return { shards, label: *label, under_way: None };
        for (k, step) in shards.steps.iter().enumerate() {
            let rows = x.as_ref().zip(fetch.as_mut()).map(|(x, fetch)| fetch.next(x)).transpose()?;
            if let (Some(rows), Some(dw)) = (&rows, &mut dw) {
                call.weight_gradient(&step.block, rows, &g, dw)?;
            }
            if let Some(dx) = &mut dx {
                let gradient = call.gradient(&step.block, rows.as_ref(), &g, arg, Tag::Exchange)?;
                drop(rows);
                home.land(dx)?;
                home.send(k, &gradient)?;
            }
        }
        if let Some(mut dx) = dx {
            home.land(&mut dx)?;
            grads.put(0, dx)?;
        }
        dw.map_or(Ok(()), |dw| grads.put(1, dw))
    }
}

impl GraphOps for Ring {
    fn member(&self) -> &dyn Membership {
        &self.member
    }

    fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>) -> Result<Var> {
        let (call, inputs) = attention::Call::new(tape, a)?;
        let (label, token_block) = (rows("attend", layer), self.member.token_block(a.tokens)?);
        let mut fetch = Fetch::new(&self.shards, label, call.src())?;
        let mut state = call.empty_state(self.member.rows(), Tag::Activations)?;
        call.fold_own(&self.shards.own, token_block.as_ref(), &mut state)?;
        for step in &self.shards.steps {
            let rows = fetch.next(call.src())?;
            call.fold(&step.block, call.dst(), &rows, &mut state)?;
        }
        let (out, lse) = call.finish(&state)?;
        drop(state);
        let (kept, numbers, shards) = (out.clone(), inputs.numbers(), Rc::clone(&self.shards));
        let out = tape.push(&inputs.list(), out, || AttendBackward {
            shards,
            label,
            call,
            tokens: token_block,
            out: kept,
            lse,
            numbers,
        });
        attention::finished(tape, &a, out)
    }

    fn aggregate(&self, tape: &mut Tape, layer: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        let call = aggregation::Call::new(x, how, weight)?;
        let (label, rows) = (rows("aggregate", layer), x.value());
        let mut fetch = Fetch::new(&self.shards, label, rows)?;
        let mut folded = call.begin(&self.shards.own, rows, Tag::Activations)?;
        for step in &self.shards.steps {
            let arrived = fetch.next(rows)?;
            call.fold(&step.block, &arrived, &mut folded)?;
        }
        let Folded { out, arg } = folded;
        let (inputs, weight_wanted) = aggregation::inputs(tape, x, weight);
        let kept = weight_wanted || call.needs_rows();
        let (shards, x) = (Rc::clone(&self.shards), kept.then(|| rows.clone()));
        Ok(tape.push(&inputs, out, || AggregateBackward { shards, label, call, x, weight_wanted, arg }))
    }
}
