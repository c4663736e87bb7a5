//! Blocks of edges: some destinations, some sources, and what belongs to the edges between them.
//!
//! Rows of sources may stand in several matrices: this rank's own, and what arrived from others. An operation goes
//! through the blocks one after another and carries a state: [`attention`] that of an online softmax, [`aggregation`]
//! its sums or maxima.

pub(crate) mod aggregation;
pub(crate) mod attention;

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Adjacency, Charge, DType, Device, Error, Ids, Matrix, Result, Tag};

use crate::layout::Layout;
use crate::pairs::Pairs;

/// Nodes at one end of a block's edges.
pub(crate) struct Nodes {
    ids: Ids,
    /// In the whole graph.
    degrees: Vec<u32>,
    made: RefCell<Vec<((Factor, DType), Matrix)>>,
}

/// A number per node that edges are weighted with; 0 where the node has no edge into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Factor {
    /// 1/√degree.
    Root,
    /// 1/degree.
    Mean,
    /// Their product.
    MeanRoot,
}

impl Nodes {
    /// These rows of `layout`.
    pub(crate) fn new(layout: &Layout, rows: impl Iterator<Item = usize> + Clone) -> Rc<Self> {
        let ids = rows.clone().map(|row| layout.originals()[row]).collect();
        let degrees = rows.map(|row| layout.degrees()[row]).collect();
        Rc::new(Self { ids: Ids::Listed(ids), degrees, made: RefCell::default() })
    }

    /// Rows that are no nodes of the graph: nothing is weighted by their degrees.
    pub(crate) fn others(ids: Ids) -> Rc<Self> {
        Rc::new(Self { ids, degrees: Vec::new(), made: RefCell::default() })
    }

    /// Original ids.
    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }

    /// A column of factors in the type in which rows of type `dtype` are computed.
    fn factors(&self, device: &Device, factor: Factor, dtype: DType) -> Result<Matrix> {
        let key = (factor, dtype.compute());
        if let Some((_, column)) = self.made.borrow().iter().find(|(made, _)| *made == key) {
            return Ok(column.clone());
        }
        let of = |degree: &u32| match (f64::from(*degree), factor) {
            (0.0, _) => 0.0,
            (degree, Factor::Root) => degree.sqrt().recip(),
            (degree, Factor::Mean) => degree.recip(),
            (degree, Factor::MeanRoot) => (degree * degree.sqrt()).recip(),
        };
        let wide: Vec<f64> = self.degrees.iter().map(of).collect();
        let column = match key.1 {
            DType::F64 => device.upload(wide.len(), 1, &wide, Tag::Graph)?,
            _ => {
                let narrow: Vec<f32> = wide.iter().map(|x| *x as f32).collect();
                device.upload(narrow.len(), 1, &narrow, Tag::Graph)?
            }
        };
        self.made.borrow_mut().push((key, column.clone()));
        Ok(column)
    }
}

/// Edges from some sources to some destinations.
pub(crate) struct Block {
    graph: Rc<Adjacency>,
    dst: Rc<Nodes>,
    src: Rc<Nodes>,
    edges: Option<Edges>,
    /// Made when attention first asks for them.
    pairs: OnceCell<Rc<Pairs>>,
    _charge: Option<Charge>,
}

/// What the edges of a block have values of their own from.
pub(crate) struct Edges {
    /// Which of all edges of this rank they are; empty where they are another's.
    positions: Vec<u32>,
    index: RefCell<Option<Rc<RowIndex>>>,
    /// A row per edge of the block.
    features: Option<Matrix>,
    /// Of each edge of the block, where they have one.
    relations: Option<Vec<u16>>,
}

impl Edges {
    /// Edges with these positions among all of this rank's, of which `features` has a row each, and `relations` a
    /// number.
    pub(crate) fn of(positions: Vec<u32>, features: Option<&Matrix>, relations: Option<&[u16]>) -> Result<Self> {
        let index = RefCell::new(None);
        let relations = relations.map(|all| positions.iter().map(|at| all[*at as usize]).collect());
        let Some(all) = features else { return Ok(Self { positions, index, features: None, relations }) };
        let device = all.device().clone();
        let rows = RowIndex::new(&device, all.rows(), positions.clone())?;
        let mut some = device.uninit("edge features", positions.len(), all.cols(), all.dtype(), Tag::Graph)?;
        device.backend().gather_rows(all, &rows, &mut some)?;
        Ok(Self { positions, index, features: Some(some), relations })
    }

    /// Edges into other ranks' rows.
    pub(crate) fn of_others(features: Option<Matrix>, relations: Option<Vec<u16>>) -> Self {
        Self { positions: Vec::new(), index: RefCell::new(None), features, relations }
    }

    fn index(&self, device: &Device, all: usize) -> Result<Rc<RowIndex>> {
        let mut made = self.index.borrow_mut();
        if let Some(index) = made.as_ref().filter(|index| index.num_rows() == all) {
            return Ok(Rc::clone(index));
        }
        let index = Rc::new(RowIndex::new(device, all, self.positions.clone())?);
        *made = Some(Rc::clone(&index));
        Ok(index)
    }

    /// What `all`, which has a row per edge of this rank, says of the block's.
    fn values(&self, all: &Matrix) -> Result<Matrix> {
        let device = all.device();
        let index = self.index(device, all.rows())?;
        let mut some =
            device.uninit("values of edges", index.index().len(), all.cols(), all.dtype(), Tag::Workspace)?;
        device.backend().gather_rows(all, &index, &mut some)?;
        Ok(some)
    }

    /// The way back: adds the block's rows to those of all edges.
    fn add_values(&self, some: &Matrix, all: &mut Matrix) -> Result<()> {
        let device = all.device().clone();
        let index = self.index(&device, all.rows())?;
        device.backend().scatter_rows(some, &index, all, Write::Add)
    }
}

impl Block {
    /// The edges of `csr` between these nodes.
    pub(crate) fn new(device: &Device, csr: Csr<u32>, dst: &Rc<Nodes>, src: &Rc<Nodes>, edges: Edges) -> Result<Self> {
        let graph = Rc::new(Adjacency::new(device, csr)?);
        let _charge = Some(device.charge(Tag::Graph, 4 * edges.positions.len() as u64));
        Ok(Self {
            graph,
            dst: Rc::clone(dst),
            src: Rc::clone(src),
            edges: Some(edges),
            pairs: OnceCell::new(),
            _charge,
        })
    }

    /// Edges that no bias and no weight is given for.
    pub(crate) fn without_values(graph: &Rc<Adjacency>, dst: Rc<Nodes>, src: Rc<Nodes>) -> Self {
        Self { graph: Rc::clone(graph), dst, src, edges: None, pairs: OnceCell::new(), _charge: None }
    }

    /// Its sources by relation, of which there are `count`.
    fn pairs(&self, device: &Device, count: usize) -> Result<&Pairs> {
        if let Some(pairs) = self.pairs.get() {
            return Ok(pairs);
        }
        let relations = self.edges.as_ref().and_then(|edges| edges.relations.as_deref());
        let made = Rc::new(Pairs::new(device, &self.graph.forward.csr, relations, self.src.ids(), count)?);
        Ok(self.pairs.get_or_init(|| made))
    }

    /// Its sources.
    pub(crate) fn num_src(&self) -> usize {
        self.graph.num_src()
    }

    /// Its destinations.
    pub(crate) fn num_dst(&self) -> usize {
        self.graph.num_dst()
    }
}

/// The edges of a rank whose sources lie in `columns`, with columns renumbered by `rename`, which keeps their order;
/// and their positions among all edges.
pub(crate) fn cut_out(
    csr: &Csr<u32>,
    columns: Range<usize>,
    num_src: usize,
    rename: impl Fn(u32) -> u32,
) -> Result<(Csr<u32>, Vec<u32>)> {
    let (mut indptr, mut indices, mut positions) = (vec![0u64], Vec::new(), Vec::new());
    for row in 0..csr.num_dst() {
        let sources = csr.row(row);
        let at = |end: usize| sources.partition_point(|j| (*j as usize) < end);
        let (within, first) = (at(columns.start)..at(columns.end), csr.edges_of(row).start);
        indices.extend(sources[within.clone()].iter().map(|j| rename(*j)));
        for k in within {
            positions.push(position(first + k)?);
        }
        indptr.push(indices.len() as u64);
    }
    Ok((Csr::from_valid(indptr, indices, num_src), positions))
}

/// The position of an edge among all of a rank's.
pub(crate) fn position(edge: usize) -> Result<u32> {
    let problem = |_| Error::Argument { op: "edges", problem: format!("{edge} edges on one rank: use more ranks") };
    u32::try_from(edge).map_err(problem)
}
