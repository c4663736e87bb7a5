//! What one rank holds of the data: its rows of features and labels, and which of them count for what.
//!
//! Nothing here assumes that all rows are present. A split names original ids; a rank keeps those it has, with their places in
//! the whole, and totals are sums over ranks.

use std::collections::HashMap;
use std::rc::Rc;

use graphweft_graph::dataset::{Features as Stored, Split};
use graphweft_model::{Features, GraphOps, Shape};
use graphweft_parallel::Local;
use graphweft_tensor::ops::bag::Bag;
use graphweft_tensor::ops::loss::{LossRows, binary_cross_entropy, softmax_cross_entropy};
use graphweft_tensor::{DType, Device, Ids, Matrix, Tag, Tape, Var};

use crate::config::Config;
use crate::data::{Data, Target, dense};
use crate::error::{Error, Result};
use crate::metrics::{Part, Truth};

/// A rank's rows.
pub struct Shard {
    /// Where they are.
    pub device: Device,
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
}

impl Shard {
    /// Everything, on one rank, with the edges that the model adds.
    pub fn local(device: &Device, data: &Data, config: &Config) -> Result<Self> {
        let dtype = DType::from(config.compute.dtype);
        let rows = |values: &[f32], width: usize| -> Result<Matrix> {
            let x = device.upload(data.graph.num_dst(), width, values, Tag::Graph)?;
            Ok(if dtype == DType::F32 { x } else { device.convert("features", &x, dtype)? })
        };
        let features = match &data.features {
            Stored::Dense(m) => Features::Dense(rows(&dense(m), m.width())?),
            Stored::Sparse(m) => Features::Sparse(Rc::new(Bag::new(device, m, dtype.compute())?)),
        };
        let graph = config.model.prepare(data.graph.clone(), config.run.seed)?;
        let edge_features = match (graph.features(device, dtype.compute())?, &data.edge_features) {
            (None, Some(m)) => Some(device.upload(data.graph.num_edges(), m.width(), &dense(m), Tag::Graph)?),
            (made, _) => made,
        };
        let width = data.encoding_width();
        let positional = if width > 0 { Some(rows(&data.encodings, width)?) } else { None };
        let shape = Shape {
            features: features.width(),
            positional: width,
            classes: data.classes,
            edge_features: edge_features.as_ref().map_or(0, Matrix::cols),
        };
        let ops: Rc<dyn GraphOps> = Rc::new(Local::new(device, graph.csr, edge_features)?);
        Ok(Self { device: device.clone(), ops, features, positional, shape, dtype })
    }

    /// Rows of all ranks in the order of original ids, from this rank's: each rank puts its own into zeros, and the sum has all.
    pub fn collect(&self, own: &Matrix) -> Result<Vec<f32>> {
        let values = self.device.convert("collect", own, DType::F32)?.to_vec::<f32>()?;
        let Ids::Listed(ids) = self.ops.ids() else { return Ok(values) };
        let (total, cols) = (self.ops.total_rows() as usize, own.cols());
        let mut all = vec![0.0f32; total * cols];
        for (row, id) in values.chunks_exact(cols.max(1)).zip(ids.iter()) {
            all[*id as usize * cols..][..cols].copy_from_slice(row);
        }
        let mut all = self.device.upload(total, cols, &all, Tag::Workspace)?;
        self.ops.reduce().sum(&mut all)?;
        Ok(all.to_vec()?)
    }
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

impl Lesson {
    /// Prepares `target`, in original order, and `split` for the rows of `shard`.
    pub fn new(shard: &Shard, target: &Target, split: &Split) -> Result<Self> {
        if let Some((name, _)) = split.parts().into_iter().take(2).find(|(_, ids)| ids.is_empty()) {
            let problem = format!("split {:?} has no node in {name}", split.name);
            return Err(Error::setting("data.split", problem, "choose another one"));
        }
        let (classes, ids, device) = (shard.shape.classes, shard.ops.ids(), &shard.device);
        let parts = split.parts().map(|(_, nodes)| part(nodes, ids));
        let rows = LossRows::new(parts[0].rows.clone())?;
        let (own, labels) = match own_rows(target, ids, classes) {
            Target::Class(labels) => (rows.total(&labels), Labels::Class(labels.into())),
            Target::Each(host) => {
                let row = |row: &u32| &host[*row as usize * classes..][..classes];
                let known = rows.rows().iter().flat_map(row).filter(|y| **y >= 0.0).count();
                let labels = device.upload(shard.ops.rows(), classes, &host, Tag::Graph)?;
                let wide = shard.dtype.compute() == DType::F64;
                let labels = if wide { device.convert("labels", &labels, DType::F64)? } else { labels };
                (known as f64, Labels::Each { host, device: labels })
            }
        };
        let mut total = device.upload(1, 1, &[own], Tag::Workspace)?;
        shard.ops.reduce().sum(&mut total)?;
        Ok(Self { labels, parts, rows, total: total.to_vec::<f64>()?[0] })
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
        Ok(match &self.labels {
            Labels::Class(labels) => softmax_cross_entropy(tape, logits, labels, &self.rows, smoothing, self.total)?,
            Labels::Each { device, .. } => binary_cross_entropy(tape, logits, device, &self.rows, self.total)?,
        })
    }
}

/// The labels of a rank's rows.
fn own_rows(target: &Target, ids: &Ids, classes: usize) -> Target {
    let Ids::Listed(ids) = ids else { return target.clone() };
    match target {
        Target::Class(y) => Target::Class(ids.iter().map(|id| y[*id as usize]).collect()),
        Target::Each(y) => {
            Target::Each(ids.iter().flat_map(|id| &y[*id as usize * classes..][..classes]).copied().collect())
        }
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
