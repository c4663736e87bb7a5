//! Who gives which rows to whom, and who attends for whom: made once for each way of choosing, agreed on by all ranks.

use graphweft_comm::Label;
use graphweft_graph::Csr;
use graphweft_graph::partition::{Cover, Weights, covers};
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Error, Matrix, Result, Tag};

use crate::blocks::{Block, Edges, Nodes, position};
use crate::layout::Layout;
use crate::link::{Flight, Link};
use crate::member::SETUP;

/// What moves, and the edges that are computed with it.
pub(super) struct ExchangeList {
    link: Link,
    /// This rank's rows that others pull.
    given: Sent,
    /// This rank's rows that are pushed to others.
    pushed: Sent,
    /// Edges into this rank's rows from rows that are pulled.
    pub(super) pulled: Block,
    /// Edges into rows that others push here, from those of this rank's that serve them.
    pub(super) served: Block,
    serving: RowIndex,
}

/// Rows of this rank, those for rank 0 first, and how many come in turn from each.
struct Sent {
    index: RowIndex,
    to: Vec<usize>,
    from: Vec<usize>,
}

/// What all edges of a rank have.
#[derive(Clone, Copy)]
pub(super) struct OfEdges<'a> {
    /// A row for each.
    pub(super) features: Option<&'a Matrix>,
    /// A number for each.
    pub(super) relations: Option<&'a [u16]>,
}

/// A column that is not pulled.
const NONE: u32 = u32::MAX;

impl ExchangeList {
    /// Serves the edges of `cut`, all of which come from other ranks: with the least weight, or without weights by
    /// pulling all their sources. `of_edges` is that of this rank's edges.
    pub(super) fn new(cut: &Layout, link: &Link, of_edges: OfEdges<'_>, weights: Option<Weights>) -> Result<Self> {
        let (device, size, own) = (link.device(), link.size(), cut.own());
        let covers = match weights {
            Some(weights) => covers(cut.csr(), cut.ranges(), cut.rank(), weights),
            None => (0..size).map(|peer| Cover { pulled: cut.needed_of(peer), pushed: Vec::new() }).collect(),
        };
        let chosen = Chosen::new(cut, &covers)?;
        let received = link.all_to_all_ids(SETUP, &chosen.orders)?;
        let orders = received.iter().map(|list| Order::read(list)).collect::<Result<Vec<Order>>>()?;

        let counts = |count: &dyn Fn(&Order) -> usize| orders.iter().map(count).collect::<Vec<usize>>();
        let index = |rows: Vec<u32>| RowIndex::new(device, own.len(), rows);
        let given = Sent {
            index: index(orders.iter().flat_map(|o| &o.given).copied().collect())?,
            to: counts(&|o| o.given.len()),
            from: covers.iter().map(|c| c.pulled.len()).collect(),
        };
        let pushed = Sent {
            index: index(covers.iter().flat_map(|c| &c.pushed).copied().collect())?,
            to: covers.iter().map(|c| c.pushed.len()).collect(),
            from: counts(&|o| o.rows.len()),
        };
        let served_features = match of_edges.features {
            Some(all) => {
                let mut some = device.uninit(SETUP.op, chosen.pushed.len(), all.cols(), all.dtype(), Tag::Exchange)?;
                let index = RowIndex::new(device, all.rows(), chosen.pushed)?;
                device.backend().gather_rows(all, &index, &mut some)?;
                let from = counts(&|o| o.sources.len());
                Some(link.all_to_all(SETUP, &some, &chosen.pushed_edges, &from)?.wait_one()?)
            }
            None => None,
        };
        let own_nodes = Nodes::new(cut, own.clone());
        let pulled_nodes = Nodes::new(cut, covers.iter().flat_map(|c| &c.pulled).map(|j| *j as usize));
        let edges = Edges::of(chosen.positions, of_edges.features, of_edges.relations)?;
        let pulled = Block::new(device, chosen.csr, &own_nodes, &pulled_nodes, edges)?;

        let served_nodes = Nodes::new(cut, orders.iter().flat_map(|o| &o.rows).copied());
        let mut indptr = vec![0];
        indptr.extend(orders.iter().flat_map(|o| &o.counts).scan(0, |end, count| {
            *end += count;
            Some(*end)
        }));
        let mut serving: Vec<u32> = orders.iter().flat_map(|o| &o.sources).copied().collect();
        serving.sort_unstable();
        serving.dedup();
        let place = |row: &u32| serving.partition_point(|other| other < row) as u32;
        let sources: Vec<u32> = orders.iter().flat_map(|o| &o.sources).map(place).collect();
        let served = Csr::new(indptr, sources, serving.len()).map_err(|e| malformed(&e.to_string()))?;
        let serving_nodes = Nodes::new(cut, serving.iter().map(|row| own.start + *row as usize));
        let relations = orders.iter().flat_map(|o| &o.relations).copied().collect();
        let edges = Edges::of_others(served_features, of_edges.relations.map(|_| relations));
        let served = Block::new(device, served, &served_nodes, &serving_nodes, edges)?;
        Ok(Self { link: link.clone(), given, pushed, pulled, served, serving: index(serving)? })
    }

    /// Gets the rows of `x` that are pulled.
    pub(super) fn pull(&self, label: Label, x: &Matrix) -> Result<Flight> {
        self.given.send(&self.link, label, x)
    }

    /// Takes the gradient of pulled rows home.
    pub(super) fn give_back(&self, label: Label, gradient: &Matrix) -> Result<Flight> {
        self.given.answer(&self.link, label, gradient)
    }

    /// Adds what came home for the rows that were given.
    pub(super) fn add_given(&self, rows: &Matrix, to: &mut Matrix) -> Result<()> {
        to.device().clone().backend().scatter_rows(rows, &self.given.index, to, Write::Add)
    }

    /// Gets the rows of `x` that others push here.
    pub(super) fn push(&self, label: Label, x: &Matrix) -> Result<Flight> {
        self.pushed.send(&self.link, label, x)
    }

    /// The rows of `x` that pushed rows look at.
    pub(super) fn serving(&self, label: Label, x: &Matrix) -> Result<Matrix> {
        rows_of(label, x, &self.serving)
    }

    /// Adds the gradient of these rows.
    pub(super) fn add_serving(&self, gradient: &Matrix, to: &mut Matrix) -> Result<()> {
        to.device().clone().backend().scatter_rows(gradient, &self.serving, to, Write::Add)
    }

    /// Sends what was made of pushed rows back.
    pub(super) fn answer(&self, label: Label, made: &Matrix) -> Result<Flight> {
        self.pushed.answer(&self.link, label, made)
    }

    /// Adds what was made elsewhere of this rank's rows.
    pub(super) fn add_answers(&self, rows: &Matrix, to: &mut Matrix) -> Result<()> {
        to.device().clone().backend().scatter_rows(rows, &self.pushed.index, to, Write::Add)
    }

    /// This rank's rows that are pushed to others.
    pub(super) fn pushed(&self) -> &RowIndex {
        &self.pushed.index
    }
}

impl Sent {
    fn send(&self, link: &Link, label: Label, x: &Matrix) -> Result<Flight> {
        link.all_to_all(label, &rows_of(label, x, &self.index)?, &self.to, &self.from)
    }

    fn answer(&self, link: &Link, label: Label, m: &Matrix) -> Result<Flight> {
        link.all_to_all(label, m, &self.from, &self.to)
    }
}

fn rows_of(label: Label, x: &Matrix, index: &RowIndex) -> Result<Matrix> {
    let device = x.device();
    let mut some = device.uninit(label.op, index.index().len(), x.cols(), x.dtype(), Tag::Exchange)?;
    device.backend().gather_rows(x, index, &mut some)?;
    Ok(some)
}

/// How this rank's cut edges are served.
struct Chosen {
    /// Edges from pulled rows, and their positions among this rank's edges.
    csr: Csr<u32>,
    positions: Vec<u32>,
    /// Positions of the edges that other ranks compute, in their order.
    pushed: Vec<u32>,
    /// How many of these each rank has.
    pushed_edges: Vec<usize>,
    /// What each rank has to know: an [`Order`], written.
    orders: Vec<Vec<u64>>,
}

impl Chosen {
    fn new(cut: &Layout, covers: &[Cover]) -> Result<Self> {
        let (csr, size) = (cut.csr(), covers.len());
        let mut place = vec![NONE; cut.total_rows()];
        let columns = (0..).zip(covers.iter().flat_map(|c| &c.pulled));
        let mut pulled = 0;
        for (k, j) in columns {
            place[*j as usize] = k;
            pulled += 1;
        }
        let (mut indptr, mut indices, mut positions) = (vec![0], Vec::new(), Vec::new());
        for row in 0..csr.num_dst() {
            for e in csr.edges_of(row) {
                // An edge of which both ends are in the cover is computed where its destination is.
                let column = place[csr.indices()[e] as usize];
                if column != NONE {
                    indices.push(column);
                    positions.push(position(cut.edges()[e] as usize)?);
                }
            }
            indptr.push(indices.len() as u64);
        }
        let (mut pushed, mut pushed_edges, mut orders) = (Vec::new(), Vec::new(), Vec::with_capacity(size));
        for (peer, cover) in covers.iter().enumerate() {
            let (there, before) = (cut.rows_of(peer), pushed.len());
            let mut order = vec![cover.pulled.len() as u64];
            order.extend(cover.pulled.iter().map(|j| u64::from(*j) - there.start as u64));
            for row in &cover.pushed {
                order.extend([(cut.own().start + *row as usize) as u64, 0]);
                let count = order.len() - 1;
                for e in csr.edges_of(*row as usize) {
                    let source = csr.indices()[e] as usize;
                    if there.contains(&source) && place[source] == NONE {
                        let relation = cut.relations().map_or(0, |all| u64::from(all[e]));
                        order.push((source - there.start) as u64 | relation << RELATION);
                        order[count] += 1;
                        pushed.push(position(cut.edges()[e] as usize)?);
                    }
                }
            }
            pushed_edges.push(pushed.len() - before);
            orders.push(order);
        }
        Ok(Self { csr: Csr::from_valid(indptr, indices, pulled), positions, pushed, pushed_edges, orders })
    }
}

/// What another rank asks of this one.
struct Order {
    /// Rows of this rank that it pulls.
    given: Vec<u32>,
    /// Rows of its own, numbered as all ranks' are, that it pushes; how many edges each has here, and from which rows
    /// of this rank.
    rows: Vec<usize>,
    counts: Vec<u64>,
    sources: Vec<u32>,
    /// Of these edges; zeros where they have none.
    relations: Vec<u16>,
}

/// The bit from which on the relation of an edge stands, behind its source.
const RELATION: u32 = 32;

impl Order {
    fn read(list: &[u64]) -> Result<Self> {
        let mut rest = list.iter().copied();
        let mut next = || rest.next();
        let take = |count: u64, next: &mut dyn FnMut() -> Option<u64>| -> Result<Vec<u32>> {
            let id = |_| next().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| malformed("a list ends early"));
            (0..count).map(id).collect()
        };
        let count = next().ok_or_else(|| malformed("a list is empty"))?;
        let given = take(count, &mut next)?;
        let (mut rows, mut counts, mut sources, mut relations) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        while let Some(row) = next() {
            let count = next().ok_or_else(|| malformed("a list ends early"))?;
            rows.push(row as usize);
            counts.push(count);
            for _ in 0..count {
                let edge = next().ok_or_else(|| malformed("a list ends early"))?;
                let relation = u16::try_from(edge >> RELATION).map_err(|_| malformed("a relation is too large"))?;
                sources.push(edge as u32);
                relations.push(relation);
            }
        }
        Ok(Self { given, rows, counts, sources, relations })
    }
}

fn malformed(problem: &str) -> Error {
    Error::Argument { op: SETUP.op, problem: format!("another rank asks for rows that cannot be: {problem}") }
}
