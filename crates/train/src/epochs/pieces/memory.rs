//! How much memory a piece takes, and into how many chunks a graph must be cut to fit.
//!
//! Operations over edges keep nothing per edge but the structure, so memory grows with the rows and with the
//! structure's bytes. Bytes per row are measured, on two small graphs with the same model and features: what the ledger
//! counts at the peak grows by so much per row. Bytes per edge are known.

use graphweft_base::Error as Bad;
use graphweft_graph::Csr;
use graphweft_graph::dataset::{Dense, Features, SparseFeatures};
use graphweft_model::Prepared;
use graphweft_parallel::Strategy;
use graphweft_tensor::Device;

use crate::config::{Choice, Config};
use crate::data::Data;
use crate::data::types::Types;
use crate::epochs::learner::Learner;
use crate::error::{Error, Result};
use crate::planning::plan::Plan;
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::task::Supervision;

/// Rows of the graphs that are measured.
const SMALL: usize = 1024;
const LARGE: usize = 5 * SMALL;
/// Bytes per edge: sources in both directions, the map between them, and the next piece's sources, which are there
/// twice while it is cut.
const PER_EDGE: f64 = 4.0 + 4.0 + 8.0 + 2.0 * 4.0;
/// Bytes per row beside what the ledger counts: ids, degrees and labels of this piece and of the next.
const PER_ROW: f64 = 2.0 * (4.0 + 8.0 + 8.0 + 4.0 + 8.0);
/// Bytes per node that is scored: its id, its place in its part and among them, its label, and whether it is learned
/// from.
const PER_SCORED: f64 = 4.0 + 4.0 + 8.0 + 8.0 + 4.0;
/// The part of the memory that pieces may take; the rest is for what the system keeps mapped.
const SHARE: f64 = 0.8;

/// What a piece takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    per_row: f64,
    /// Whatever the number of rows: parameters, labels of all nodes, and who is scored.
    fixed: f64,
}

impl Demand {
    /// Of learning from a piece, while the next is loaded.
    pub(crate) fn of_training(data: &Data, config: &Config) -> Result<Self> {
        let [small, large] = [SMALL, LARGE].map(|rows| peak(rows, data, config, Pass::Learning));
        Ok(Self::between(small?, large?, data))
    }

    /// Of computing the logits of a piece.
    pub(crate) fn of_inference(data: &Data, config: &Config) -> Result<Self> {
        let [small, large] = [SMALL, LARGE].map(|rows| peak(rows, data, config, Pass::Inference));
        Ok(Self::between(small?, large?, data))
    }

    fn between(small: u64, large: u64, data: &Data) -> Self {
        let slope = large.saturating_sub(small) as f64 / (LARGE - SMALL) as f64;
        let loaded = 4.0 * (row_width(&data.features) + data.encoding_width() as f64);
        // Data that are only planned for may have none yet.
        let labels = data.labels.as_ref().map_or(8 * data.graph.num_dst(), |labels| labels.bytes().len());
        let scored = data.splits.iter().map(|s| s.train.len() + s.valid.len() + s.test.len()).max().unwrap_or(0);
        let fixed = (small as f64 - slope * SMALL as f64).max(0.0) + labels as f64 + PER_SCORED * scored as f64;
        Self { per_row: slope + 2.0 * loaded + PER_ROW, fixed }
    }

    /// How many rows fit into `memory` bytes beside `edges` edges.
    pub(crate) fn rows_in(&self, memory: u64, edges: u64) -> u64 {
        let room = SHARE * (memory as f64 - self.fixed) - PER_EDGE * edges as f64;
        (room / self.per_row).max(0.0) as u64
    }
}

/// Numbers in a row of features as it is loaded.
fn row_width(features: &Features) -> f64 {
    match features {
        Features::Dense(m) => m.width() as f64,
        Features::Sparse(m) => 2.0 * m.indices.len() as f64 / (m.indptr.len() - 1).max(1) as f64,
    }
}

/// Fills in the number of chunks that the memory asks for: so few that the two chunks of a piece take at most half of
/// it, which leaves the other half for the halo.
///
/// # Errors
/// If one row with its edges is too much.
pub(crate) fn size(config: &mut Config, data: &Data) -> Result<()> {
    let isolated = matches!(config.parallel.strategy, Choice::Named(Strategy::Isolated(_)));
    let Some(memory) = config.isolated.memory else { return Ok(()) };
    if !isolated {
        let remedy = "add --strategy isolated, or leave it out";
        return Err(Error::setting("isolated.memory", "only the strategy isolated keeps to it", remedy));
    }
    if !config.model.follows_edges() {
        let problem = format!("{} looks at all nodes at once, which must be in memory", config.model_name());
        return Err(Error::setting("isolated.memory", problem, "leave it out, or take a model over edges, e.g. gt"));
    }
    if config.parallel.parts.is_some() {
        return Ok(());
    }
    let demand = Demand::of_training(data, config)?;
    let (nodes, edges) = (data.graph.num_dst() as u64, data.graph.num_edges() as u64);
    let ranks = config.parallel.ranks.unwrap_or(1);
    let most = nodes.clamp(1, graphweft_graph::partition::MOST_PARTS as u64);
    // A power of two: a little more memory does not make another run of it.
    let powers = |first: u64| std::iter::successors(Some(first), |c| c.checked_mul(2));
    let chunks_in = |memory: u64| {
        let fits = |c: &u64| demand.rows_in(memory / 2, 2 * edges.div_ceil(*c)) >= 2 * nodes.div_ceil(*c);
        let whole = demand.rows_in(memory, edges) >= nodes;
        let mut counts = powers(1).take_while(|c| *c <= most);
        if whole && ranks == 1 { Some(1) } else { counts.find(|c| *c >= ranks && fits(c)) }
    };
    match chunks_in(memory) {
        Some(chunks) => config.parallel.parts = Some(chunks),
        None => {
            let what = format!("training on pieces of {}, however small,", data.name);
            let needed = powers(memory).find(|more| chunks_in(*more).is_some()).unwrap_or(u64::MAX);
            let remedy = "allow more memory, or make model.hidden smaller".into();
            return Err(Bad::Memory { what, needed, available: memory, remedy }.into());
        }
    }
    Ok(())
}

/// What a piece is for.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Learning,
    Inference,
}

/// Bytes at the peak of a step on a ring of `rows` nodes, with features as wide as the data's.
fn peak(rows: usize, data: &Data, config: &Config, pass: Pass) -> Result<u64> {
    let device = Device::cpu();
    let rank = Rank::alone(&device);
    let like = ring(rows, data);
    let graph = Prepared::plain(like.graph.clone());
    let mut config = config.clone();
    config.isolated.memory = None;
    let shard = Shard::new(&rank, &like, &graph, &Plan::local(config.compute.remat), &config)?;
    let mut learner = Learner::new(&rank, shard.shape, &config)?;
    if pass == Pass::Inference {
        let _ = learner.logits(&shard)?;
        return Ok(device.ledger().peak().total().saturating_sub(structure(&like.graph)));
    }
    let nodes: Vec<i64> = (0..rows as i64).collect();
    let split = graphweft_graph::dataset::Split {
        name: "all".into(),
        train: nodes.clone().into(),
        valid: nodes.clone().into(),
        test: nodes.into(),
    };
    let supervision = Supervision::new(&shard, &like, &split, &config.train)?;
    learner.learn(&shard, &supervision, 1, 0.0, &mut |_, _| {})?;
    Ok(device.ledger().peak().total().saturating_sub(structure(&like.graph)))
}

/// Bytes of the edges, which are counted by themselves.
fn structure(graph: &Csr<u32>) -> u64 {
    16 * graph.num_edges() as u64
}

/// Data of the same shape on a ring.
fn ring(rows: usize, data: &Data) -> Data {
    let indptr: Vec<u64> = (0..=rows as u64).collect();
    let indices: Vec<u32> = (0..rows as u32).map(|k| (k + 1) % rows as u32).collect();
    let features = match &data.features {
        Features::Dense(m) => {
            let (values, width) = (vec![0.5f32; rows * m.width()].into(), m.width());
            Features::Dense(Dense::F32 { values, width })
        }
        Features::Sparse(m) => {
            let filled = (m.indices.len() / (m.indptr.len() - 1).max(1)).clamp(1, m.width.max(1)) as u64;
            let indptr: Vec<u64> = (0..=rows as u64).map(|row| row * filled).collect();
            let indices: Vec<u32> = (0..rows).flat_map(|_| 0..filled as u32).collect();
            Features::Sparse(SparseFeatures {
                indptr: indptr.into(),
                indices: indices.into(),
                data: None,
                width: m.width,
            })
        }
    };
    let labels = match &data.labels {
        Some(labels) => labels.zeros(rows, data.classes),
        None => data.task.unread(0).zeros(rows, data.classes),
    };
    Data {
        name: data.name.clone(),
        folder: None,
        graph: Csr::from_valid(indptr, indices, rows),
        features,
        is_directed: data.is_directed,
        edges: None,
        types: Types::default(),
        encodings: vec![0.0; rows * data.encoding_width()],
        task: data.task,
        labels: Some(labels),
        classes: data.classes,
        splits: Vec::new(),
        graphs: None,
        links: Vec::new(),
        relation_names: Vec::new(),
    }
}
