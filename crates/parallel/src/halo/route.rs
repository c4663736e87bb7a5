//! How rows come from ranks that have them to those that want them, and what is made of them goes back.
//!
//! Without machines every rank that wants a row gets it from the rank that has it. With machines, one of the ranks of a
//! machine that want a row gets it for all of them, and passes it on inside. On the way back it first folds what the
//! others of its machine made of that row, in the order of their ranks, into its own: so one row crosses, either way,
//! however many ranks of the machine want it.

use std::rc::Rc;

use graphweft_comm::Label;
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::combine::Patch;
use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Charge, Matrix, Result, Tag};

use super::exchange_list::{malformed, rows_of};
use crate::layout::Layout;
use crate::link::{Flight, Link, Run};
use crate::member::SETUP;
use crate::wire::{Outgoing, Way};

/// What a rank wants of others, as rows numbered over all ranks.
pub(super) struct Wanted {
    /// From the ranks that have them.
    direct: Vec<Vec<u32>>,
    /// From ranks of this machine that get them for others too.
    passed_on: Vec<Vec<u32>>,
}

impl Wanted {
    /// What `rank` of `size` wants, by owner.
    pub(super) fn new(rank: usize, size: usize, wants: impl Iterator<Item = Want>) -> Self {
        let mut new = Self { direct: vec![Vec::new(); size], passed_on: vec![Vec::new(); size] };
        for Want { owner, row, by } in wants {
            let list = if by == rank { &mut new.direct[owner] } else { &mut new.passed_on[by] };
            list.push(row);
        }
        new
    }

    /// The rows in the order in which they stand here.
    pub(super) fn order(&self) -> impl Iterator<Item = u32> + Clone {
        self.direct.iter().chain(&self.passed_on).flatten().copied()
    }

    /// Those that a rank is asked for.
    pub(super) fn of(&self, owner: usize) -> &[u32] {
        &self.direct[owner]
    }
}

/// Rows of this rank that go to others, those for rank 0 first, and those that come.
pub(super) struct Route {
    index: RowIndex,
    /// Original ids of these rows, and of those that come from who has them, where rows may be coded.
    ids: Option<[Vec<u64>; 2]>,
    to: Vec<usize>,
    from: Vec<usize>,
    inside: Option<Rc<Inside>>,
    _charge: Option<Charge>,
}

/// What is passed on inside a machine.
struct Inside {
    /// Rows that came, for the others.
    index: RowIndex,
    to: Vec<usize>,
    from: Vec<usize>,
    /// Rows before those that others pass on.
    direct: usize,
}

/// How the ranks of a machine put together what they made of a row.
#[derive(Clone, Copy)]
pub(super) enum Fold {
    /// As sums.
    Add,
    /// As states of a softmax over so many heads.
    Merge(usize),
}

impl Route {
    /// Sends rows `given[rank]` of this rank of `layout` to each rank for what is `wanted` here; `by_machine` on all
    /// ranks or none.
    pub(super) fn new(
        link: &Link,
        layout: &Layout,
        given: &[Vec<u32>],
        wanted: &Wanted,
        by_machine: ByMachine,
    ) -> Result<Self> {
        let inside = match by_machine {
            ByMachine::No => None,
            ByMachine::Yes => Some(Rc::new(Inside::new(link, wanted)?)),
        };
        let own = layout.own();
        let index = RowIndex::new(link.device(), own.len(), given.concat())?;
        let (to, from) = (given.iter().map(Vec::len).collect(), wanted.direct.iter().map(Vec::len).collect());
        let ids = link.may_code().then(|| {
            let given = index.index().iter().map(|row| layout.originals()[own.start + *row as usize]);
            let came = wanted.direct.iter().flatten().map(|row| layout.originals()[*row as usize]);
            [given.collect(), came.collect()]
        });
        let bytes = |ids: &[Vec<u64>; 2]| 8 * (ids[0].len() + ids[1].len()) as u64;
        let _charge = ids.as_ref().map(|ids| link.device().charge(Tag::Graph, bytes(ids)));
        Ok(Self { index, ids, to, from, inside, _charge })
    }

    /// This rank's rows that go to others.
    pub(super) fn index(&self) -> &RowIndex {
        &self.index
    }

    /// Sends rows of `x`.
    pub(super) fn send(&self, link: &Link, label: Label, x: &Matrix, how: How) -> Result<Arriving> {
        let passed_on: usize = self.inside.iter().flat_map(|inside| &inside.from).sum();
        let rows = rows_of(label, x, &self.index)?;
        let flight = match (how, &self.ids) {
            (How::Coded, Some([ids, _])) => {
                let out = Outgoing { rows: &rows, ids, way: Way::There };
                link.rows(label, out, &self.to, &self.from, passed_on)?
            }
            _ => {
                let count = self.from.iter().sum::<usize>() + passed_on;
                let into = link.device().uninit(label.op, count, x.cols(), x.dtype(), Tag::Exchange)?;
                let (to, from) = (Run { first: 0, counts: &self.to }, Run { first: 0, counts: &self.from });
                link.exchange(label, &rows, to, into, from)?
            }
        };
        Ok(Arriving { flight, inside: self.inside.clone().map(|inside| (inside, link.clone(), label)) })
    }

    /// Sends back what was made of the rows that came: states of a softmax as they are, sums coded if rows are now.
    pub(super) fn answer(&self, link: &Link, label: Label, made: &Matrix, fold: Fold) -> Result<Flight> {
        let collected;
        let made = match &self.inside {
            None => made,
            Some(inside) => {
                collected = inside.collect(link, label, made, fold)?;
                &collected
            }
        };
        match (fold, &self.ids) {
            (Fold::Add, Some([_, ids])) => {
                let rows = first_rows(label, made, ids.len())?;
                link.rows(label, Outgoing { rows: &rows, ids, way: Way::Back }, &self.from, &self.to, 0)
            }
            _ => link.all_to_all(label, made, &self.from, &self.to),
        }
    }
}

/// A row that a rank wants, and who has it.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub(super) row: u32,
    pub(super) owner: usize,
    /// Who gets it from there.
    pub(super) by: usize,
}

/// Whether rows may be coded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Coded,
    Exact,
}

/// Whether a machine gets a row once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ByMachine {
    No,
    Yes,
}

/// Rows under way.
pub(super) struct Arriving {
    flight: Flight,
    inside: Option<(Rc<Inside>, Link, Label)>,
}

impl Arriving {
    /// Blocks until all are here. All ranks wait for the same at the same time: machines pass on what came.
    pub(super) fn wait(self) -> Result<Matrix> {
        let came = self.flight.wait_one()?;
        match self.inside {
            None => Ok(came),
            Some((inside, link, label)) => inside.pass_on(&link, label, came),
        }
    }
}

impl Inside {
    fn new(link: &Link, wanted: &Wanted) -> Result<Self> {
        let list = |rows: &Vec<u32>| rows.iter().map(|row| u64::from(*row)).collect();
        let asked = link.all_to_all_ids(SETUP, &wanted.passed_on.iter().map(list).collect::<Vec<Vec<u64>>>())?;
        let mut places: Vec<(u64, u32)> =
            wanted.direct.iter().flatten().zip(0..).map(|(row, place)| (u64::from(*row), place)).collect();
        places.sort_unstable();
        let place = |row: &u64| {
            let at = places.binary_search_by_key(row, |(row, _)| *row);
            at.map(|at| places[at].1).map_err(|_| malformed("it is to be passed on by a rank that does not have it"))
        };
        let index = asked.iter().flatten().map(place).collect::<Result<Vec<u32>>>()?;
        let from: Vec<usize> = wanted.passed_on.iter().map(Vec::len).collect();
        let (direct, to) = (places.len(), asked.iter().map(Vec::len).collect());
        let index = RowIndex::new(link.device(), direct + from.iter().sum::<usize>(), index)?;
        Ok(Self { index, to, from, direct })
    }

    /// Sends what came to those of the machine that want it too, and gets what others got for this rank.
    fn pass_on(&self, link: &Link, label: Label, rows: Matrix) -> Result<Matrix> {
        let packed = rows_of(label, &rows, &self.index)?;
        let (to, from) = (Run { first: 0, counts: &self.to }, Run { first: self.direct, counts: &self.from });
        link.exchange(label, &packed, to, rows, from)?.wait_one()
    }

    /// Sends what was made of rows that others got back to these, and folds what comes into what was made here: of the
    /// result the first rows are for those who have them.
    fn collect(&self, link: &Link, label: Label, made: &Matrix, fold: Fold) -> Result<Matrix> {
        let device = link.device();
        let new = |rows: usize| device.uninit(label.op, rows, made.cols(), made.dtype(), Tag::Exchange);
        let (to, from) = (Run { first: self.direct, counts: &self.from }, Run { first: 0, counts: &self.to });
        let others = link.exchange(label, made, to, new(self.index.index().len())?, from)?;
        let mut all = new(made.rows())?;
        let patch = Patch::columns(made.rows(), 0, 0, made.cols());
        device.backend().copy_patch(made, &mut all, patch, Write::Set)?;
        let others = others.wait_one()?;
        match fold {
            Fold::Add => device.backend().scatter_rows(&others, &self.index, &mut all, Write::Add)?,
            Fold::Merge(heads) => device.backend().attention_merge(heads, &others, &self.index, &mut all)?,
        }
        Ok(all)
    }
}

/// The first rows of `m`.
fn first_rows(label: Label, m: &Matrix, count: usize) -> Result<Matrix> {
    if count == m.rows() {
        return Ok(m.clone());
    }
    let mut first = m.device().uninit(label.op, count, m.cols(), m.dtype(), Tag::Exchange)?;
    m.device().backend().copy_patch(m, &mut first, Patch::columns(count, 0, 0, m.cols()), Write::Set)?;
    Ok(first)
}
