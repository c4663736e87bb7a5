//! What one rank holds of the data: its rows of features and labels, and which of them count for what.
//!
//! Nothing here assumes that all rows are present. A split names original ids; a rank keeps those it has, with their places in
//! the whole, and totals are sums over ranks.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use graphweft_graph::dataset::{Features as Stored, Split};
use graphweft_model::{Features, GraphOps, Prepared, Shape, Total};
use graphweft_parallel::{Layout, Local, Strategy, spread};
use graphweft_tensor::ops::bag::Bag;
use graphweft_tensor::ops::loss::{LossRows, binary_cross_entropy, softmax_cross_entropy};
use graphweft_tensor::{DType, Device, Error as Computation, Ids, Matrix, Tag, Tape, Var};

use crate::config::Config;
use crate::data::{Data, Target};
use crate::error::{Error, Result};
use crate::isolated::{Loaded, Seeds};
use crate::metrics::{Part, Truth};
use crate::plan::Plan;
use crate::rank::Rank;
use crate::rows::{self, Rows, Which};

/// A rank's rows.
pub struct Shard {
    /// Whose they are.
    pub rank: Rank,
    /// The graph.
    pub ops: Rc<dyn GraphOps>,
    /// Node features.
    pub features: Features,
    /// Positional encodings.
    pub positional: Option<Matrix>,
    /// What a model must know of the data.
    pub shape: Shape,
    /// Type of stored activations.
    pub dtype: DType,
    /// Original ids of all ranks' rows, where there are several ranks.
    originals: Option<Arc<[u64]>>,
}

impl Shard {
    /// What `rank` holds of `data` as `plan` has it; `graph` is that of the data with the edges that the model adds.
    pub fn new(rank: &Rank, data: &Data, graph: &Prepared, plan: &Plan, config: &Config) -> Result<Self> {
        let layout = match (rank.link(), &plan.parts) {
            (Some(link), Some(parts)) => Some(Layout::new(&graph.csr, parts, link.size(), link.rank())?),
            (None, _) => None,
            (Some(link), None) => {
                let problem = format!("the plan does not say which of {} ranks has which rows", link.size());
                return Err(Computation::Argument { op: "shard", problem }.into());
            }
        };
        Self::with_layout(rank, data, graph, (&plan.strategy, layout.as_ref()), config)
    }

    /// The same with the rank's layout at hand, which it needs where there are others.
    pub(crate) fn with_layout<'d>(
        rank: &Rank,
        data: &'d Data,
        graph: &'d Prepared,
        (strategy, layout): (&Strategy, Option<&Layout>),
        config: &Config,
    ) -> Result<Self> {
        let (device, dtype) = (rank.device(), DType::from(config.compute.dtype));
        let own = layout.map(|layout| &layout.originals()[layout.own()]);
        let count = own.map_or(graph.csr.num_dst(), <[u64]>::len);
        let features = features_of(device, data, own, count, dtype)?;
        let edges = layout.map(Layout::edges);
        let of_edges = || {
            let count = edges.map_or(graph.csr.num_edges(), <[u64]>::len);
            let values = || rows::numbers(graph.edge_rows(), graph.width, edges);
            upload_from(device, count, graph.width, dtype.compute(), values)
        };
        let edge_features = (graph.width > 0).then(of_edges).transpose()?;
        let positional = encodings_of(device, data, own, count, dtype)?;
        let width = data.encoding_width();
        let shape =
            Shape { features: features.width(), positional: width, classes: data.classes, edge_features: graph.width };
        let originals = layout.map(|layout| Arc::clone(layout.originals()));
        let ops: Rc<dyn GraphOps> = match layout.zip(rank.link()) {
            None => Rc::new(Local::new(device, graph.csr.clone(), edge_features)?),
            Some((layout, link)) => spread(strategy, layout, link, edge_features).map_err(|e| match e {
                Computation::Argument { op: "strategy", problem } => {
                    Error::setting("parallel.strategy", problem, "choose another one, or auto")
                }
                other => other.into(),
            })?,
        };
        if let Features::Dense(rows) = &features {
            ops.keep(rows);
        }
        Ok(Self { rank: rank.clone(), ops, features, positional, shape, dtype, originals })
    }

    /// Where its rows are.
    pub fn device(&self) -> &Device {
        self.rank.device()
    }

    /// Rows by themselves, with these original ids, on which `ops` work. Features are where the first layer is.
    pub(crate) fn of_rows(
        rank: &Rank,
        data: &Data,
        (ops, ids): (Rc<dyn GraphOps>, &[u64]),
        (shape, dtype, first): (Shape, DType, bool),
    ) -> Result<Self> {
        let (device, own, count) = (rank.device(), Some(ids), ids.len());
        let none = || device.zeros("features", count, 0, dtype, Tag::Graph);
        Ok(Self {
            rank: rank.clone(),
            ops,
            features: if first { features_of(device, data, own, count, dtype)? } else { Features::Dense(none()?) },
            positional: if first { encodings_of(device, data, own, count, dtype)? } else { None },
            shape,
            dtype,
            originals: None,
        })
    }

    /// The rows of a piece of the graph, by themselves.
    pub(crate) fn of_piece(rank: &Rank, loaded: Loaded, dtype: DType, classes: usize) -> Result<(Self, Seeds)> {
        let (device, Loaded { piece, graph, features, encodings, seeds }) = (rank.device(), loaded);
        let count = piece.nodes.len();
        let features = upload_features(device, &features, count, dtype)?;
        let edges = match graph.width {
            0 => None,
            width => Some(upload(device, graph.edge_rows(), width, dtype.compute())?),
        };
        let width = encodings.len() / count.max(1);
        let positional = if width > 0 { Some(upload(device, &encodings, width, dtype)?) } else { None };
        let shape = Shape { features: features.width(), positional: width, classes, edge_features: graph.width };
        let (ids, scales) = (Ids::Listed(piece.originals.as_slice().into()), piece.scales());
        let ops = Rc::new(Local::cut(device, graph.csr, edges, ids, &piece.degrees, scales.as_deref())?);
        Ok((Self { rank: rank.clone(), ops, features, positional, shape, dtype, originals: None }, seeds))
    }

    /// Rows of all ranks in the order of original ids, from everyone's own, on the rank that [leads](Rank::leads).
    pub fn collect(&self, own: &Matrix) -> Result<Option<Vec<f32>>> {
        let values = self.device().convert("collect", own, DType::F32)?.to_vec::<f32>()?;
        let Some(originals) = &self.originals else { return Ok(Some(values)) };
        let parts = self.rank.gather("metrics", bytemuck::cast_slice(&values).to_vec())?;
        if !self.rank.leads() {
            return Ok(None);
        }
        let cols = own.cols();
        let mut all = vec![0.0f32; originals.len() * cols];
        // Ranks have their rows in the order of new ids, rank after rank.
        let rows: Vec<f32> = bytemuck::pod_collect_to_vec(&parts.concat());
        for (row, id) in rows.chunks_exact(cols.max(1)).zip(originals.iter()) {
            all[*id as usize * cols..][..cols].copy_from_slice(row);
        }
        Ok(Some(all))
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

/// The nodes that are learned from, chosen by and reported on, as this rank sees them.
pub struct Lesson {
    labels: Labels,
    /// Train, valid, test.
    pub parts: [Part; 3],
    rows: LossRows,
    /// What the loss is divided by, over all ranks.
    total: f64,
}

/// Labels of a rank's rows, where losses and metrics want them.
enum Labels {
    Class(Rc<[i64]>),
    Each { host: Vec<f32>, device: Matrix },
}

impl Labels {
    /// Numbers for every row and class.
    fn each(shard: &Shard, host: Vec<f32>) -> Result<Self> {
        let (device, rows, classes) = (shard.device(), shard.ops.rows(), shard.shape.classes);
        let labels = device.upload_from(rows, classes, Tag::Graph, || &host)?;
        let wide = shard.dtype.compute() == DType::F64;
        let labels = if wide { device.convert("labels", &labels, DType::F64)? } else { labels };
        Ok(Self::Each { host, device: labels })
    }
}

impl Lesson {
    /// Prepares `target`, in original order, and `split` for the rows of `shard`.
    pub fn new(shard: &Shard, target: &Target, split: &Split) -> Result<Self> {
        check_split(split)?;
        let ids = shard.ops.ids();
        let parts = split.parts().map(|(_, nodes)| part(nodes, ids));
        let rows = LossRows::new(parts[0].rows.clone())?;
        Self::build(shard, own_rows(target, ids, shard.shape.classes), parts, rows)
    }

    /// The rows of a piece that are learned from, with their weights.
    pub(crate) fn of_seeds(shard: &Shard, seeds: Seeds) -> Result<Self> {
        let Seeds { rows, weights, labels } = seeds;
        let parts = || [(); 3].map(|()| Part { rows: Vec::new(), places: Vec::new(), total: 0 });
        let equal = LossRows::new(rows.clone())?;
        let are_equal = weights.iter().all(|w| *w == 1.0);
        let weighted = if are_equal { equal.clone() } else { LossRows::weighted(rows, weights)? };
        let lesson = Self::build(shard, labels.clone(), parts(), weighted)?;
        // Where nothing at all is covered, on any rank, weights say nothing. Every rank sees the same total, so that all of them
        // add up again, those without weights or seeds too.
        if lesson.total > 0.0 { Ok(lesson) } else { Self::build(shard, labels, parts(), equal) }
    }

    fn build(shard: &Shard, labels: Target, parts: [Part; 3], rows: LossRows) -> Result<Self> {
        let classes = shard.shape.classes;
        let (own, labels) = match labels {
            Target::Class(labels) => (rows.total(&labels), Labels::Class(labels.into())),
            Target::Each(host) => {
                let known =
                    |row: &u32| host[*row as usize * classes..][..classes].iter().filter(|y| **y >= 0.0).count();
                let weight = |k: usize| rows.weights().map_or(1.0, |w| f64::from(w[k]));
                let own = rows.rows().iter().enumerate().map(|(k, row)| weight(k) * known(row) as f64).sum();
                (own, Labels::each(shard, host)?)
            }
        };
        let total = shard.rank.sum(Total::Setup, &[own])?[0];
        Ok(Self { labels, parts, rows, total })
    }

    /// The same as a part of lessons that count `total` together.
    pub(crate) fn of(self, total: f64) -> Self {
        Self { total, ..self }
    }

    /// What the loss is divided by: how much this lesson counts among several.
    pub(crate) fn total(&self) -> f64 {
        self.total
    }

    /// What stands for the labels of `shard` in a rehearsal, in which nobody looks at them: as many numbers, with a part `learned`
    /// of the rows to learn from.
    pub(crate) fn unread(shard: &Shard, target: Option<&Target>, learned: f64) -> Result<Self> {
        let rows = shard.ops.rows();
        let labels = match target {
            None | Some(Target::Class(_)) => Labels::Class(vec![0; rows].into()),
            Some(Target::Each(_)) => Labels::each(shard, Vec::new())?,
        };
        let counted = (rows as f64 * learned.clamp(0.0, 1.0)).round() as u32;
        let parts = [(); 3].map(|()| Part { rows: Vec::new(), places: Vec::new(), total: 0 });
        Ok(Self { labels, parts, rows: LossRows::new((0..counted).collect::<Vec<u32>>())?, total: 1.0 })
    }

    /// The rows that are learned from.
    pub(crate) fn rows(&self) -> &LossRows {
        &self.rows
    }

    /// As metrics want the labels.
    pub fn truth(&self) -> Truth<'_> {
        match &self.labels {
            Labels::Class(labels) => Truth::Class(labels),
            Labels::Each { host, .. } => Truth::Each(host),
        }
    }

    /// This rank's part of the loss: the sum over ranks is the mean over all nodes learned from.
    pub fn loss(&self, tape: &mut Tape, logits: &Var, smoothing: f64) -> Result<Var> {
        // Where no label is known on any rank, the loss is nothing, not nothing divided by nothing.
        let total = if self.total > 0.0 { self.total } else { 1.0 };
        Ok(match &self.labels {
            Labels::Class(labels) => softmax_cross_entropy(tape, logits, labels, &self.rows, smoothing, total)?,
            Labels::Each { device, .. } => binary_cross_entropy(tape, logits, device, &self.rows, total)?,
        })
    }
}

/// Fails unless there are nodes to learn from and to choose by.
pub(crate) fn check_split(split: &Split) -> Result<()> {
    if let Some((name, _)) = split.parts().into_iter().take(2).find(|(_, ids)| ids.is_empty()) {
        let problem = format!("split {:?} has no node in {name}", split.name);
        return Err(Error::setting("data.split", problem, "choose another one"));
    }
    Ok(())
}

/// An error about a part of a split: one of the data's, or one that was made for the run.
fn bad_part(split: &Split, part: &str, data: &Data, problem: String, remedy: &str) -> Error {
    let own = data.splits.iter().any(|s| s.name == split.name);
    let file = format!("split/{}/{part}.npy", split.name);
    let lacks = data.lacks(&file, part, &problem, remedy).filter(|_| own);
    lacks.unwrap_or_else(|| Error::setting("data.split", problem, remedy))
}

/// Fails unless some label to learn from and some to choose by is known, and says whether one to report on is.
pub(crate) fn check_labels(split: &Split, data: &Data) -> Result<bool> {
    if let Some((name, _)) = split.parts().into_iter().take(2).find(|(_, ids)| ids.is_empty()) {
        let problem = format!("split {:?} has no node in {name}", split.name);
        return Err(bad_part(split, name, data, problem, "choose another split"));
    }
    let target = data.target()?;
    let known = |ids: &[i64]| ids.iter().any(|id| target.knows(*id as usize, data.classes));
    let parts = split.parts();
    if let Some((name, _)) = parts.iter().take(2).find(|(_, ids)| !known(ids)) {
        let problem = format!("no label is known in {name} of split {:?} of {}", split.name, data.name);
        return Err(bad_part(split, name, data, problem, "choose another split, or complete label.npy"));
    }
    Ok(known(parts[2].1))
}

/// The labels of a rank's rows.
pub(crate) fn own_rows(target: &Target, ids: &Ids, classes: usize) -> Target {
    let Ids::Listed(ids) = ids else { return target.clone() };
    match target {
        Target::Class(y) => Target::Class(rows::numbers(y, 1, Some(&ids[..])).into_owned()),
        Target::Each(y) => Target::Each(rows::numbers(y, classes, Some(&ids[..])).into_owned()),
    }
}

/// The nodes of a part that a rank has, in the order of its rows. Places are by original id, so that they do not depend on ranks.
fn part(nodes: &[i64], ids: &Ids) -> Part {
    let mut nodes: Vec<u64> = nodes.iter().map(|id| *id as u64).collect();
    nodes.sort_unstable();
    let total = nodes.len();
    let mut own: Vec<(u32, usize)> = match ids {
        Ids::Same => nodes.iter().enumerate().map(|(place, id)| (*id as u32, place)).collect(),
        Ids::Listed(ids) => {
            let row: HashMap<u64, u32> = ids.iter().enumerate().map(|(row, id)| (*id, row as u32)).collect();
            nodes.iter().enumerate().filter_map(|(place, id)| Some((*row.get(id)?, place))).collect()
        }
    };
    own.sort_unstable();
    let (rows, places) = own.into_iter().unzip();
    Part { rows, places, total }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_keeps_what_it_has_and_knows_its_place() {
        let nodes = [7, 2, 9, 4];
        let whole = part(&nodes, &Ids::Same);
        assert_eq!((whole.rows, whole.places, whole.total), (vec![2, 4, 7, 9], vec![0, 1, 2, 3], 4));
        let some = part(&nodes, &Ids::Listed(vec![9, 0, 2].into()));
        assert_eq!((some.rows, some.places, some.total), (vec![0, 2], vec![3, 0], 4));
        let target = Target::Class((0..10).map(|k| k * 10).collect());
        let ids = Ids::Listed(vec![9, 0, 2].into());
        assert_eq!(own_rows(&target, &ids, 1), Target::Class(vec![90, 0, 20]));
        let each = Target::Each((0..20).map(|k| k as f32).collect());
        assert_eq!(own_rows(&each, &ids, 2), Target::Each(vec![18.0, 19.0, 0.0, 1.0, 4.0, 5.0]));
    }
}
