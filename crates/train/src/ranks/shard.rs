//! What one rank holds of the data: its rows of features and edges. What they should come to is a
//! [`Supervision`](crate::task::Supervision).
//!
//! Nothing here assumes that all rows are present. A split names original ids; a rank keeps those it has, with their
//! places in the whole, and totals are sums over ranks.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use graphweft_graph::Csr;
use graphweft_graph::dataset::{Features as Stored, SparseFeatures};
use graphweft_model::{Features, GraphOps, ModelConfig, OwnColumns, Prepared, Shape, Target, TypeCounts};
use graphweft_parallel::{Batch, BatchRows, Layout, Local, Strategy, spread};
use graphweft_tensor::ops::bag::Bag;
use graphweft_tensor::ops::grouped::RowTypes;
use graphweft_tensor::ops::segments::Segments;
use graphweft_tensor::{DType, Device, Element, Error as Computation, Ids, Matrix, Tag};

use crate::config::Config;
use crate::data::Data;
use crate::data::rows::{self, Rows, Which};
use crate::epochs::batches::{self, LoadedBatch};
use crate::epochs::pieces::{Learned, Loaded};
use crate::error::{Error, Result};
use crate::planning::plan::Plan;
use crate::ranks::rank::Rank;

/// A rank's rows.
pub(crate) struct Shard {
    /// Whose they are.
    pub rank: Rank,
    /// The graph.
    pub ops: Rc<dyn GraphOps>,
    /// Node features.
    pub features: Features,
    /// Positional encodings.
    pub positional: Option<Matrix>,
    /// Where graphs begin and end, where there are many.
    pub graphs: Option<Rc<Segments>>,
    /// The type of each row, where a model tells types apart.
    pub types: Option<Rc<RowTypes>>,
    /// What a model must know of the data.
    pub shape: Shape,
    /// Type of stored activations.
    pub dtype: DType,
    /// Columns of features that it has of all, where each of these is of one node.
    pub own_columns: Option<OwnColumns>,
    /// Original ids of all ranks' rows, where there are several ranks.
    originals: Option<Arc<[u64]>>,
    /// How many rows each rank has.
    counts: Rc<[usize]>,
}

/// Rows that are named one by one.
pub(crate) struct ListedRows<'a> {
    /// Work on them.
    pub(crate) ops: Rc<dyn GraphOps>,
    /// Their original ids.
    pub(crate) ids: &'a [u64],
    /// What they are for.
    pub(crate) model: &'a ModelConfig,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    pub(crate) seen: Seen,
}

/// What the layers of a rank see first.
#[derive(Clone, Copy)]
pub(crate) enum Seen {
    /// Features of nodes.
    Features,
    /// What other layers have made of them.
    State,
}

impl Shard {
    /// What `rank` holds of `data` as `plan` has it; `graph` is that of the data with the edges that the model adds.
    pub(crate) fn new(rank: &Rank, data: &Data, graph: &Prepared, plan: &Plan, config: &Config) -> Result<Self> {
        let layout = layout_of(rank, &graph.csr, plan)?;
        let layout = layout.map(|layout| layout.with_relations(graph.relations().map(|all| &**all)));
        Self::with_layout(rank, data, graph, &plan.strategy, layout.as_ref(), config)
    }

    /// The same with the rank's layout at hand, which it needs where there are others.
    pub(crate) fn with_layout<'d>(
        rank: &Rank,
        data: &'d Data,
        graph: &'d Prepared,
        strategy: &Strategy,
        layout: Option<&Layout>,
        config: &Config,
    ) -> Result<Self> {
        let rank = &rank.coded(config);
        let (device, dtype) = (rank.device(), config.compute.dtype);
        let own = layout.map(|layout| &layout.originals()[layout.own()]);
        let count = own.map_or(graph.csr.num_dst(), <[u64]>::len);
        let own_columns = own_columns(data, own.filter(|_| shares_columns(config)));
        let features = match (&own_columns, &data.features) {
            (Some(columns), Stored::Sparse(m)) => {
                let found = with_own_columns(rows::sparse(m, own), columns);
                Features::Sparse(Rc::new(Bag::new(device, &found, dtype.compute())?))
            }
            _ => features_of(device, data, own, count, dtype)?,
        };
        let edges = layout.map(Layout::edges);
        let of_edges = || {
            let count = edges.map_or(graph.csr.num_edges(), <[u64]>::len);
            let values = || rows::numbers(graph.edge_rows(), graph.columns.stored(), edges);
            upload_from(device, count, graph.columns.stored(), dtype.compute(), values)
        };
        let edge_features = (!graph.columns.is_empty()).then(of_edges).transpose()?;
        let positional = encodings_of(device, data, own, count, dtype)?;
        let width = data.encoding_width();
        let shape = Shape {
            features: features.width(),
            positional: width,
            classes: data.outputs(),
            edge_features: graph.columns,
            types: data.type_counts(&config.model, graph),
            target: Target::Nodes,
        };
        let types = data.row_types(device, &config.model, own, count)?;
        let originals = layout.map(|layout| Arc::clone(layout.originals()));
        let ops = spread_over(rank, graph, strategy, layout, edge_features)?;
        if let Features::Dense(rows) = &features {
            ops.keep(rows);
        }
        let counts: Rc<[usize]> = layout.map_or_else(|| [count].into(), |layout| layout.counts().into());
        let (rank, graphs) = (rank.clone(), None);
        Ok(Self { rank, ops, features, positional, graphs, types, shape, dtype, own_columns, originals, counts })
    }

    /// Original ids of all ranks' rows, where there are several ranks.
    pub(crate) fn originals(&self) -> Option<&[u64]> {
        self.originals.as_deref()
    }

    /// How many rows each rank has.
    pub(crate) fn counts(&self) -> Rc<[usize]> {
        Rc::clone(&self.counts)
    }

    /// Where its rows are.
    pub(crate) fn device(&self) -> &Device {
        self.rank.device()
    }

    /// Rows by themselves.
    pub(crate) fn of_rows(rank: &Rank, data: &Data, rows: &ListedRows<'_>) -> Result<Self> {
        let ListedRows { ids, shape, dtype, .. } = *rows;
        let (device, own, count) = (rank.device(), Some(ids), ids.len());
        let (features, positional) = match rows.seen {
            Seen::Features => {
                (features_of(device, data, own, count, dtype)?, encodings_of(device, data, own, count, dtype)?)
            }
            Seen::State => (Features::Dense(device.zeros("features", count, 0, dtype, Tag::Graph)?), None),
        };
        let types = data.row_types(device, rows.model, own, count)?;
        let (rank, ops, graphs, own_columns) = (rank.clone(), Rc::clone(&rows.ops), None, None);
        let (originals, counts) = (None, [count].into());
        Ok(Self { rank, ops, features, positional, graphs, types, shape, dtype, own_columns, originals, counts })
    }

    /// The rows of a piece of the graph, by themselves.
    pub(crate) fn of_piece(rank: &Rank, loaded: Loaded, dtype: DType, classes: usize) -> Result<(Self, Learned)> {
        let (device, Loaded { piece, graph, features, encodings, learned }) = (rank.device(), loaded);
        let count = piece.nodes.len();
        let features = upload_features(device, &features, count, dtype)?;
        let edges = match graph.columns.stored() {
            0 => None,
            width => Some(upload(device, graph.edge_rows(), width, dtype.compute())?),
        };
        let width = encodings.len() / count.max(1);
        let positional = if width > 0 { Some(upload(device, &encodings, width, dtype)?) } else { None };
        let shape = Shape {
            features: features.width(),
            positional: width,
            classes,
            edge_features: graph.columns,
            types: TypeCounts::default(),
            target: Target::Nodes,
        };
        let (ids, scales) = (Ids::Listed(piece.originals.as_slice().into()), piece.scales());
        let ops = Rc::new(Local::cut(device, graph.csr, edges, ids, &piece.degrees, scales.as_deref())?);
        let (rank, graphs, types, own_columns) = (rank.clone(), None, None, None);
        let (originals, counts) = (None, [count].into());
        let shard =
            Self { rank, ops, features, positional, graphs, types, shape, dtype, own_columns, originals, counts };
        Ok((shard, learned))
    }

    /// A rank's graphs of a batch.
    pub(crate) fn of_batch(
        rank: &Rank,
        loaded: batches::Loaded,
        dtype: DType,
        data: &Data,
    ) -> Result<(Self, LoadedBatch)> {
        let batches::Loaded { csr, ptr, nodes, graphs, features, edges, encodings, batch } = loaded;
        let (device, count) = (rank.device(), nodes.len());
        let features = upload_features(device, &features, count, dtype)?;
        let width = data.encoding_width();
        let positional = if width > 0 { Some(upload(device, &encodings, width, dtype)?) } else { None };
        let target = Target::Graphs;
        let shape = Shape {
            features: features.width(),
            positional: width,
            classes: data.outputs(),
            edge_features: edges.as_ref().map(|edges| edges.columns).unwrap_or_default(),
            types: TypeCounts::default(),
            target,
        };
        let edge_features =
            edges.map(|edges| upload(device, &edges.rows, edges.columns.stored(), dtype.compute())).transpose()?;
        let (ids, graphs) = (Ids::Listed(nodes.into()), Ids::Listed(graphs.into()));
        let segments = Segments::new(device, &ptr, ids.clone(), graphs)?;
        let rows = BatchRows { csr, edge_features, ids, total: batch.rows };
        let ops = Rc::new(Batch::new(device, rank.link(), rows)?);
        let (rank, graphs, types, own_columns) = (rank.clone(), Some(Rc::new(segments)), None, None);
        let (originals, counts) = (None, [count].into());
        let shard =
            Self { rank, ops, features, positional, graphs, types, shape, dtype, own_columns, originals, counts };
        Ok((shard, batch))
    }

    /// Copies edges, entries and graphs, which other steps do not have, to the device at once. Nobody reads them before
    /// the first kernel, so they go together.
    pub(crate) fn bring(&self) -> Result<()> {
        self.ops.bring()?;
        if let Features::Sparse(bag) = &self.features {
            bag.bring()?;
        }
        Ok(self.graphs.as_ref().map_or(Ok(()), |graphs| graphs.bring())?)
    }

    /// Rows of what the model gives: of nodes, or of graphs.
    pub(crate) fn outputs(&self) -> usize {
        self.graphs.as_ref().map_or(self.ops.rows(), |graphs| graphs.count())
    }

    /// Rows of all ranks in the order of original ids, from everyone's own, on the rank that [leads](Rank::leads).
    pub(crate) fn collect(&self, own: &Matrix) -> Result<Option<Vec<f32>>> {
        self.collect_as::<f32>(own)
    }

    /// The same as numbers of another type.
    pub(crate) fn collect_as<T: Element>(&self, own: &Matrix) -> Result<Option<Vec<T>>> {
        let values = self.device().convert("collect", own, T::DTYPE)?.to_vec::<T>()?;
        let Some(originals) = &self.originals else { return Ok(Some(values)) };
        let parts = self.rank.gather("metrics", bytemuck::cast_slice(&values).to_vec())?;
        if !self.rank.leads() {
            return Ok(None);
        }
        let cols = own.cols();
        let mut all = vec![T::zeroed(); originals.len() * cols];
        // Ranks have their rows in the order of new ids, rank after rank.
        let rows: Vec<T> = bytemuck::pod_collect_to_vec(&parts.concat());
        for (row, id) in rows.chunks_exact(cols.max(1)).zip(originals.iter()) {
            all[*id as usize * cols..][..cols].copy_from_slice(row);
        }
        Ok(Some(all))
    }
}

/// Work of `rank` on the edges of the data alone, for the rows that it has by `plan`.
pub(crate) fn graph_ops(rank: &Rank, data: &Data, plan: &Plan) -> Result<Rc<dyn GraphOps>> {
    let layout = layout_of(rank, &data.graph, plan)?;
    spread_over(rank, &Prepared::plain(data.graph.clone()), &plan.strategy, layout.as_ref(), None)
}

/// The rows of a rank, where there are others.
fn layout_of(rank: &Rank, graph: &Csr<u32>, plan: &Plan) -> Result<Option<Layout>> {
    match (rank.link(), &plan.parts) {
        (Some(link), Some(parts)) => Ok(Some(Layout::new(graph, parts, link.size(), link.rank())?)),
        (None, _) => Ok(None),
        (Some(link), None) => {
            let problem = format!("the plan does not say which of {} ranks has which rows", link.size());
            Err(Computation::Argument { op: "shard", problem }.into())
        }
    }
}

fn spread_over(
    rank: &Rank,
    graph: &Prepared,
    strategy: &Strategy,
    layout: Option<&Layout>,
    edge_features: Option<Matrix>,
) -> Result<Rc<dyn GraphOps>> {
    match layout.zip(rank.link()) {
        None => {
            let local = Local::new(rank.device(), graph.csr.clone(), edge_features)?;
            Ok(Rc::new(local.with_relations(graph.relations().cloned())))
        }
        Some((layout, link)) => spread(strategy, layout, link, edge_features).map_err(|e| match e {
            Computation::Argument { op: "strategy", problem } => {
                Error::setting("parallel.strategy", problem, "choose another one, or auto")
            }
            other => other.into(),
        }),
    }
}

/// Numbers on a device, row by row, which are not looked at where nothing is computed.
pub(crate) fn upload_from<'v>(
    device: &Device,
    rows: usize,
    width: usize,
    dtype: DType,
    values: impl FnOnce() -> Cow<'v, [f32]>,
) -> Result<Matrix> {
    let x = device.upload_from(rows, width, Tag::Graph, values)?;
    Ok(if dtype == DType::F32 { x } else { device.convert("features", &x, dtype)? })
}

/// The features of `count` nodes: those of `own`, or all.
fn features_of(device: &Device, data: &Data, own: Which<'_>, count: usize, dtype: DType) -> Result<Features> {
    Ok(match &data.features {
        Stored::Dense(m) if m.width() == 0 => Features::Dense(device.zeros("features", count, 0, dtype, Tag::Graph)?),
        Stored::Dense(m) => Features::Dense(upload_from(device, count, m.width(), dtype, || rows::dense(m, own))?),
        Stored::Sparse(m) => Features::Sparse(Rc::new(Bag::new(device, &rows::sparse(m, own), dtype.compute())?)),
    })
}

/// Whether a rank takes columns of features that are each of one node for its own nodes alone: not where a model passes
/// features on to others, nor where dropout of features is drawn by their columns.
fn shares_columns(config: &Config) -> bool {
    !config.model.passes_features() && config.train.rates().input == 0.0
}

/// The columns that the nodes `own` alone have, where there are such nodes.
fn own_columns(data: &Data, own: Which<'_>) -> Option<OwnColumns> {
    let (own, total) = (own?, data.types.columns_of_nodes());
    let Stored::Sparse(m) = &data.features else { return None };
    let shared = m.width.checked_sub(total).filter(|_| total > 0)?;
    let last = |id: &u64| {
        let row = &m.indices[m.indptr[*id as usize] as usize..m.indptr[*id as usize + 1] as usize];
        (*row.last()? as usize).checked_sub(shared)
    };
    Some(OwnColumns { shared, ids: own.iter().filter_map(last).map(|id| id as u64).collect(), total })
}

/// Rows whose columns are those of a rank: what all have, and one after the other those that are each of one row.
fn with_own_columns(mut m: SparseFeatures, columns: &OwnColumns) -> SparseFeatures {
    let own = (columns.shared..).map(|column| column as u32);
    let is_own = |column: u32| column as usize >= columns.shared;
    let mut indices = m.indices.to_vec();
    indices.iter_mut().filter(|column| is_own(**column)).zip(own).for_each(|(column, new)| *column = new);
    (m.indices, m.width) = (indices.into(), columns.shared + columns.ids.len());
    m
}

/// Their positional encodings, if there are any.
fn encodings_of(device: &Device, data: &Data, own: Which<'_>, count: usize, dtype: DType) -> Result<Option<Matrix>> {
    match data.encoding_width() {
        0 => Ok(None),
        width => upload_from(device, count, width, dtype, || rows::numbers(&data.encodings, width, own)).map(Some),
    }
}

/// Numbers on a device, row by row.
pub(crate) fn upload(device: &Device, values: &[f32], width: usize, dtype: DType) -> Result<Matrix> {
    let x = device.upload(values.len() / width.max(1), width, values, Tag::Graph)?;
    Ok(if dtype == DType::F32 { x } else { device.convert("features", &x, dtype)? })
}

/// Features of `count` nodes on a device.
pub(crate) fn upload_features(device: &Device, rows: &Rows<'_>, count: usize, dtype: DType) -> Result<Features> {
    Ok(match rows {
        Rows::Dense { width: 0, .. } => Features::Dense(device.zeros("features", count, 0, dtype, Tag::Graph)?),
        Rows::Dense { values, width } => Features::Dense(upload(device, values, *width, dtype)?),
        Rows::Sparse(m) => Features::Sparse(Rc::new(Bag::new(device, m, dtype.compute())?)),
    })
}
