//! Who gives which rows to whom, and who attends for whom: made once for each way of choosing, agreed on by all ranks.

use graphweft_comm::Label;
use graphweft_graph::Csr;
use graphweft_graph::partition::Weights;
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Device, Error, Matrix, Result, Tag};

use super::route::{Arriving, ByMachine, Fold, How, Route, Want, Wanted};
use super::service::Service;
use crate::blocks::{Block, Edges, Nodes, position};
use crate::layout::Layout;
use crate::link::{Flight, Link};
use crate::member::SETUP;

/// What moves, and the edges that are computed with it.
pub(super) struct ExchangeList {
    link: Link,
    /// Rows that are pulled.
    given: Route,
    /// Rows that are pushed.
    pushed: Route,
    /// Edges into this rank's rows from rows that are pulled.
    pub(super) pulled: Block,
    /// Edges into rows that others push here, from those of this rank's that serve them.
    pub(super) served: Block,
    serving: RowIndex,
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
    /// pulling all their sources; by machines of so many ranks, if that is given. `of_edges` is that of this rank's
    /// edges.
    pub(super) fn new(
        cut: &Layout,
        link: &Link,
        of_edges: OfEdges<'_>,
        weights: Option<Weights>,
        machines: Option<usize>,
    ) -> Result<Self> {
        let (device, size, rank, own) = (link.device(), link.size(), link.rank(), cut.own());
        let OfEdges { features, relations } = of_edges;
        let (service, by_machine) = match machines {
            Some(each) => (Service::by_machine(cut, link, weights, each)?, ByMachine::Yes),
            None => (Service::by_rank(cut, weights), ByMachine::No),
        };
        let pulls = service.covers.iter().zip(&service.pulled_by).enumerate().flat_map(|(owner, (cover, by))| {
            cover.pulled.iter().zip(by).map(move |(row, by)| Want { owner, row: *row, by: *by as usize })
        });
        let pulls = Wanted::new(rank, size, pulls);
        let chosen = Chosen::new(cut, &service, &pulls)?;
        let received = link.all_to_all_ids(SETUP, &chosen.orders)?;
        let mut given = Vec::with_capacity(size);
        let mut asked = Vec::new();
        for (owner, list) in received.iter().enumerate() {
            given.push(read(owner, list, &mut asked)?);
        }
        let mut from = vec![0; size];
        asked.iter().for_each(|row| from[row.want.owner] += row.sources.len());
        let came = Came { features, edges: chosen.pushed, to: chosen.pushed_edges, from };
        let served_features = came.features(link)?;

        let nodes = Nodes::new(cut, own.clone());
        let pulled_nodes = Nodes::new(cut, pulls.order().map(|j| j as usize));
        let edges = Edges::of(chosen.positions, features, relations)?;
        let pulled = Block::new(device, chosen.csr, &nodes, &pulled_nodes, edges)?;
        let given = Route::new(link, cut, &given, &pulls, by_machine)?;

        let pushes = Wanted::new(rank, size, asked.iter().map(|row| row.want));
        let pushed = Route::new(link, cut, &service.first_pushed(), &pushes, by_machine)?;
        let Served { graph, serving, features, relations: known } = serve(device, &asked, rank, served_features)?;
        let served_nodes = Nodes::new(cut, pushes.order().map(|row| row as usize));
        let serving_nodes = Nodes::new(cut, serving.iter().map(|row| own.start + *row as usize));
        let edges = Edges::of_others(features, relations.map(|_| known));
        let served = Block::new(device, graph, &served_nodes, &serving_nodes, edges)?;
        let serving = RowIndex::new(device, own.len(), serving)?;
        Ok(Self { link: link.clone(), given, pushed, pulled, served, serving })
    }

    /// Gets the rows of `x` that are pulled.
    pub(super) fn pull(&self, label: Label, x: &Matrix, how: How) -> Result<Arriving> {
        self.given.send(&self.link, label, x, how)
    }

    /// Takes the gradient of pulled rows home.
    pub(super) fn give_back(&self, label: Label, gradient: &Matrix) -> Result<Flight> {
        self.given.answer(&self.link, label, gradient, Fold::Add)
    }

    /// Adds what came home for the rows that were given.
    pub(super) fn add_given(&self, rows: &Matrix, to: &mut Matrix) -> Result<()> {
        to.device().clone().backend().scatter_rows(rows, self.given.index(), to, Write::Add)
    }

    /// Gets the rows of `x` that others push here.
    pub(super) fn push(&self, label: Label, x: &Matrix, how: How) -> Result<Arriving> {
        self.pushed.send(&self.link, label, x, how)
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
    pub(super) fn answer(&self, label: Label, made: &Matrix, fold: Fold) -> Result<Flight> {
        self.pushed.answer(&self.link, label, made, fold)
    }

    /// Adds what was made elsewhere of this rank's rows.
    pub(super) fn add_answers(&self, rows: &Matrix, to: &mut Matrix) -> Result<()> {
        to.device().clone().backend().scatter_rows(rows, self.pushed.index(), to, Write::Add)
    }

    /// This rank's rows that are pushed to others.
    pub(super) fn pushed(&self) -> &RowIndex {
        self.pushed.index()
    }
}

/// Features of edges that go to the ranks that compute these.
struct Came<'a> {
    features: Option<&'a Matrix>,
    edges: Vec<u32>,
    to: Vec<usize>,
    from: Vec<usize>,
}

impl Came<'_> {
    fn features(self, link: &Link) -> Result<Option<Matrix>> {
        let Some(all) = self.features else { return Ok(None) };
        let device = link.device();
        let mut some = device.uninit(SETUP.op, self.edges.len(), all.cols(), all.dtype(), Tag::Exchange)?;
        let index = RowIndex::new(device, all.rows(), self.edges)?;
        device.backend().gather_rows(all, &index, &mut some)?;
        Ok(Some(link.all_to_all(SETUP, &some, &self.to, &self.from)?.wait_one()?))
    }
}

/// The edges into the rows that others push here, in the order in which these stand here.
struct Served {
    graph: Csr<u32>,
    /// Which rows of this rank they come from.
    serving: Vec<u32>,
    features: Option<Matrix>,
    /// Zeros where edges have none.
    relations: Vec<u16>,
}

/// What is served of what was asked for; `features` are in the order of that.
fn serve(device: &Device, asked: &[Asked], rank: usize, features: Option<Matrix>) -> Result<Served> {
    let mut serving: Vec<u32> = asked.iter().flat_map(|row| &row.sources).copied().collect();
    serving.sort_unstable();
    serving.dedup();
    let first_edges = asked.iter().scan(0, |end, row| {
        let first = *end;
        *end += row.sources.len() as u32;
        Some(first)
    });
    let mut rows: Vec<(u32, &Asked)> = first_edges.zip(asked).collect();
    // As `Wanted` has them.
    rows.sort_by_key(|(_, row)| if row.want.by == rank { (0, row.want.owner) } else { (1, row.want.by) });
    let (mut indptr, mut sources, mut edges, mut relations) = (vec![0], Vec::new(), Vec::new(), Vec::new());
    for (first, row) in rows {
        relations.extend_from_slice(&row.relations);
        edges.extend(first..first + row.sources.len() as u32);
        sources.extend(row.sources.iter().map(|row| serving.partition_point(|other| other < row) as u32));
        indptr.push(sources.len() as u64);
    }
    let graph = Csr::new(indptr, sources, serving.len()).map_err(|e| malformed(&e.to_string()))?;
    let all = match features {
        Some(all) if !edges.is_sorted() => all,
        features => return Ok(Served { graph, serving, features, relations }),
    };
    let mut sorted = device.uninit(SETUP.op, all.rows(), all.cols(), all.dtype(), Tag::Exchange)?;
    device.backend().gather_rows(&all, &RowIndex::new(device, all.rows(), edges)?, &mut sorted)?;
    Ok(Served { graph, serving, features: Some(sorted), relations })
}

pub(super) fn rows_of(label: Label, x: &Matrix, index: &RowIndex) -> Result<Matrix> {
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
    /// What each rank has to know: see [`read`].
    orders: Vec<Vec<u64>>,
}

impl Chosen {
    fn new(cut: &Layout, service: &Service, pulls: &Wanted) -> Result<Self> {
        let (csr, size) = (cut.csr(), service.covers.len());
        let mut place = vec![NONE; cut.total_rows()];
        let mut pulled = 0;
        for (k, j) in (0..).zip(pulls.order()) {
            place[j as usize] = k;
            pulled += 1;
        }
        let (mut indptr, mut indices, mut positions) = (vec![0], Vec::new(), Vec::new());
        let mut edges: Vec<(u32, usize)> = Vec::new();
        for row in 0..csr.num_dst() {
            // An edge of which both ends are in the cover is computed where its destination is.
            let columns = csr.edges_of(row).map(|e| (place[csr.indices()[e] as usize], e));
            edges.clear();
            edges.extend(columns.filter(|(column, _)| *column != NONE));
            edges.sort_unstable();
            for (column, e) in &edges {
                indices.push(*column);
                positions.push(position(cut.edges()[*e] as usize)?);
            }
            indptr.push(indices.len() as u64);
        }
        let (mut pushed, mut pushed_edges, mut orders) = (Vec::new(), Vec::new(), Vec::with_capacity(size));
        for (peer, (cover, by)) in service.covers.iter().zip(&service.pushed_by).enumerate() {
            let (there, before) = (cut.rows_of(peer), pushed.len());
            let mut order = vec![pulls.of(peer).len() as u64];
            order.extend(pulls.of(peer).iter().map(|j| u64::from(*j) - there.start as u64));
            for (row, by) in cover.pushed.iter().zip(by) {
                order.extend([(cut.own().start + *row as usize) as u64, u64::from(*by), 0]);
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

/// A row that another rank pushes here, and the rows of this rank that its edges come from.
struct Asked {
    want: Want,
    sources: Vec<u32>,
    /// Of these edges; zeros where they have none.
    relations: Vec<u16>,
}

/// The bit from which on the relation of an edge stands, behind its source.
const RELATION: u32 = 32;

/// Reads what `owner` asks of this rank: the rows of this rank that it pulls; then for each row that it pushes, which
/// is added to `asked`, its number, who gets it, and the rows of this rank that serve it, with the relations of its
/// edges.
fn read(owner: usize, list: &[u64], asked: &mut Vec<Asked>) -> Result<Vec<u32>> {
    let mut rest = list.iter().copied();
    let mut next = || rest.next();
    let take = |count: u64, next: &mut dyn FnMut() -> Option<u64>| -> Result<Vec<u32>> {
        let id = |_| next().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| malformed("a list ends early"));
        (0..count).map(id).collect()
    };
    let count = next().ok_or_else(|| malformed("a list is empty"))?;
    let given = take(count, &mut next)?;
    while let Some(row) = next() {
        let (by, count) = next().zip(next()).ok_or_else(|| malformed("a list ends early"))?;
        let want = Want { owner, row: row as u32, by: by as usize };
        let (mut sources, mut relations) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let edge = next().ok_or_else(|| malformed("a list ends early"))?;
            sources.push(edge as u32);
            relations.push(u16::try_from(edge >> RELATION).map_err(|_| malformed("a relation is too large"))?);
        }
        asked.push(Asked { want, sources, relations });
    }
    Ok(given)
}

pub(super) fn malformed(problem: &str) -> Error {
    Error::Argument { op: SETUP.op, problem: format!("another rank asks for rows that cannot be: {problem}") }
}
