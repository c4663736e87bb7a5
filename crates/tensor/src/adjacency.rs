//! A graph made ready for kernels: both directions, and the work cut into portions.

use std::ops::Range;
use std::rc::Rc;

use graphweft_graph::Csr;

use crate::device::{Charge, Device};
use crate::error::{Error, Result};
use crate::ledger::Tag;

/// Edges per portion: some hundred microseconds of work.
const PORTION_EDGES: usize = 4096;
/// Rows with more edges than this are cut into pieces of [`PORTION_EDGES`], so that one hub does not hold up the
/// machine.
const HUB_EDGES: usize = 2 * PORTION_EDGES;

/// Some rows, or a piece of one hub's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portion {
    /// The rows.
    pub rows: Range<usize>,
    /// Their edges, as positions in the CSR's indices.
    pub edges: Range<usize>,
    /// For a piece of a hub: its number among all pieces, where its partial result is kept.
    pub piece: Option<usize>,
}

impl Portion {
    /// The edges of one of the portion's rows, as far as they belong to the portion.
    pub fn edges_of(&self, indptr: &[u64], row: usize) -> Range<usize> {
        if self.piece.is_some() { self.edges.clone() } else { indptr[row] as usize..indptr[row + 1] as usize }
    }
}

/// The work on all rows of a CSR, in row order. Depends on the graph only, never on the number of threads.
#[derive(Clone, Debug)]
pub struct Portions {
    /// All portions.
    pub all: Vec<Portion>,
    /// The hubs with the numbers of their pieces.
    pub hubs: Vec<(usize, Range<usize>)>,
    /// How many pieces there are.
    pub pieces: usize,
}

impl Portions {
    /// Cuts the rows of `csr`.
    pub fn new(csr: &Csr<u32>) -> Self {
        let mut portions = Self { all: Vec::new(), hubs: Vec::new(), pieces: 0 };
        let mut first = 0;
        let close = |all: &mut Vec<Portion>, rows: Range<usize>| {
            if !rows.is_empty() {
                let edges = csr.indptr()[rows.start] as usize..csr.indptr()[rows.end] as usize;
                all.push(Portion { rows, edges, piece: None });
            }
        };
        let mut cost = 0;
        for row in 0..csr.num_dst() {
            let edges = csr.edges_of(row);
            if edges.len() > HUB_EDGES {
                close(&mut portions.all, first..row);
                let pieces = edges.len().div_ceil(PORTION_EDGES);
                portions.hubs.push((row, portions.pieces..portions.pieces + pieces));
                for k in 0..pieces {
                    let start = edges.start + k * PORTION_EDGES;
                    let edges = start..edges.end.min(start + PORTION_EDGES);
                    portions.all.push(Portion { rows: row..row + 1, edges, piece: Some(portions.pieces + k) });
                }
                portions.pieces += pieces;
                (first, cost) = (row + 1, 0);
                continue;
            }
            // A row without edges still costs something.
            cost += edges.len() + 4;
            if cost >= PORTION_EDGES {
                close(&mut portions.all, first..row + 1);
                (first, cost) = (row + 1, 0);
            }
        }
        close(&mut portions.all, first..csr.num_dst());
        portions
    }
}

/// One direction of a graph with its portions.
#[derive(Clone, Debug)]
pub struct Direction {
    /// The structure.
    pub csr: Csr<u32>,
    /// The work.
    pub portions: Portions,
    /// How many groups of four its edges are taken in, and how soon they read rows again; found where that is asked
    /// for.
    pub(crate) rehearsed: std::cell::OnceCell<(usize, crate::dry::Reuse)>,
    /// Pieces of its rows on a GPU for which a run is rehearsed, and the account of lists of them.
    pub(crate) listed: std::cell::OnceCell<(usize, Rc<Charge>)>,
    /// A copy of the structure where the kernels are, if that is not the host; made by the backend at first use.
    #[cfg(feature = "cuda")]
    pub(crate) resident: std::cell::OnceCell<Rc<dyn std::any::Any>>,
}

/// A graph, or the block of one that a rank works on: by destination for forward, by source for backward.
#[derive(Clone, Debug)]
pub struct Adjacency {
    /// Rows are destinations.
    pub forward: Direction,
    /// Rows are sources.
    pub transpose: Direction,
    edges: std::cell::OnceCell<Rc<(Vec<u64>, Charge)>>,
    device: Device,
    _charge: Rc<Charge>,
}

impl Adjacency {
    /// Prepares `csr` for kernels on `device`; its bytes are counted there as [`Tag::Graph`].
    ///
    /// Kernels look up rows by the ids of edges without asking whether they are there. So this is where that is made
    /// sure of: what is mapped is copied, and every offset and id of the copy is seen to be in range, whatever was
    /// known before.
    ///
    /// # Errors
    /// [`Error::Argument`] with the first that is not.
    pub fn new(device: &Device, csr: Csr<u32>) -> Result<Self> {
        let csr = bounded(csr)?;
        let transpose = csr.transpose();
        Ok(Self::both_ways(device, csr, transpose))
    }

    /// The same of a graph that is its own transpose, which is not made then. Both are counted: a GPU has a copy of
    /// each.
    ///
    /// # Errors
    /// As [`Adjacency::new`].
    pub(crate) fn symmetric(device: &Device, csr: Csr<u32>) -> Result<Self> {
        let csr = bounded(csr)?;
        let transpose = csr.clone();
        Ok(Self::both_ways(device, csr, transpose))
    }

    fn both_ways(device: &Device, csr: Csr<u32>, transpose: Csr<u32>) -> Self {
        let charge = Rc::new(device.charge(Tag::Graph, csr.bytes() + transpose.bytes()));
        let direction = |csr: Csr<u32>| Direction {
            portions: Portions::new(&csr),
            csr,
            rehearsed: Default::default(),
            listed: Default::default(),
            #[cfg(feature = "cuda")]
            resident: Default::default(),
        };
        let (forward, transpose) = (direction(csr), direction(transpose));
        Self { forward, transpose, edges: Default::default(), device: device.clone(), _charge: charge }
    }

    /// For each entry of the transpose, where the same edge stands in the forward direction. Made, and counted, when
    /// values on edges first ask for it: it is as large as the rest of the graph, and most models have none.
    pub fn edges(&self) -> &[u64] {
        let made = self.edges.get_or_init(|| {
            let (_, edges) = self.forward.csr.transpose_with_edges();
            let charge = self.device.charge(Tag::Graph, 8 * edges.len() as u64);
            Rc::new((edges, charge))
        });
        &made.0
    }

    /// Copies both directions to where the kernels are, if that is not the host, with what else is copied just now.
    pub fn bring(&self) -> Result<()> {
        [&self.forward, &self.transpose].into_iter().try_for_each(|way| self.device.backend().bring(&self.device, way))
    }

    /// Rows of the forward direction.
    pub fn num_dst(&self) -> usize {
        self.forward.csr.num_dst()
    }

    /// Columns of the forward direction.
    pub fn num_src(&self) -> usize {
        self.forward.csr.num_src()
    }

    /// Edges.
    pub fn num_edges(&self) -> usize {
        self.forward.csr.num_edges()
    }
}

/// What kernels may look up rows by without asking.
fn bounded(csr: Csr<u32>) -> Result<Csr<u32>> {
    csr.into_bounded().map_err(|e| Error::Argument { op: "graph", problem: e.to_string() })
}
