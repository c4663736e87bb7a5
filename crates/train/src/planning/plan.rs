//! How the work of a run is spread: `plan.json`.
//!
//! A checkpoint keeps the plan and the partition that a run began with, so that a run which goes on does so bit for
//! bit, even where another choice would be made today.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_base::Error as Bad;
use graphweft_base::progress::Progress;
use graphweft_graph::Csr;
use graphweft_graph::chunks::{self, Chunks};
use graphweft_graph::partition::{self, Balance, Method, Options, Partition};
use graphweft_model::Remat;
use graphweft_parallel::Strategy;
use graphweft_parallel::settings::{self, Stages};
use serde::{Deserialize, Serialize};

use crate::config::{Choice, Config, ParallelConfig};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::planning::machines;
use crate::ranks::world::World;
use crate::run::decision::Decision;

/// What is taken for a strategy that nobody named, where planning is not worth its time.
const USUAL: Strategy = Strategy::Halo(settings::Cover::Least);

/// How the work is spread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What moves between ranks.
    pub strategy: Strategy,
    /// How many there are.
    pub ranks: usize,
    /// Why so, in one sentence.
    pub why: String,
    /// What is computed again in backward instead of being kept.
    #[serde(default)]
    pub remat: Remat,
    /// How the graph is divided; nothing for one rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<Division>,
    /// The folder with the graph in chunks, if they are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<PathBuf>,
    /// What the planner expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
    /// What it came to, once a run is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// What is tried before a run begins, with the same parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<Trial>,
    /// The parts themselves.
    #[serde(skip)]
    pub parts: Option<Arc<Partition>>,
    /// Everything that the planner looked at, as `plan --json` has it; for `candidates.json`.
    #[serde(skip)]
    pub candidates: Option<Arc<serde_json::Value>>,
}

/// A way to spread the work that is tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// What moves between ranks.
    pub strategy: Strategy,
    /// What is computed again.
    pub remat: Remat,
    /// What the planner expects of it.
    pub predicted: Predicted,
}

/// What the planner expects of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// Milliseconds; nothing for one rank, of which only the memory is planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_ms: Option<f64>,
    /// How far that may be off, as a share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Memory of the rank that needs most.
    pub peak_bytes: u64,
}

/// What an epoch took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Milliseconds, of the epoch in the middle of all; nothing where none was timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_ms: Option<f64>,
    /// Memory of the rank that needed most.
    pub peak_bytes: u64,
}

/// How a graph was divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Division {
    /// The method.
    pub method: Method,
    /// Parts.
    pub parts: usize,
    /// The folder, if it was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<PathBuf>,
}

impl Plan {
    /// One rank has every row.
    pub fn local(remat: Remat) -> Self {
        Self {
            strategy: settings::Local.into(),
            ranks: 1,
            why: "one rank has every row: nothing moves".to_string(),
            remat,
            partition: None,
            chunks: None,
            predicted: None,
            measured: None,
            trials: Vec::new(),
            parts: None,
            candidates: None,
        }
    }

    /// What `config` asks for, or the usual choice, for a graph whose dataset folder, if it has one, may hold a
    /// partition.
    ///
    /// # Errors
    /// If the graph cannot be divided so, or a stored partition is damaged.
    pub fn unplanned(config: &Config, ranks: usize, data: &Data, progress: &dyn Progress) -> Result<Self> {
        if let Choice::Named(Strategy::Isolated(_)) = config.parallel.strategy {
            return Self::isolated(config, ranks, data, progress);
        }
        let local = Self::local(config.compute.remat);
        if let Choice::Named(strategy @ Strategy::Pipeline(settings::Pipeline { shape })) = config.parallel.strategy {
            let why = "it was asked for: approximate, chunks pass through layers that ranks share".to_string();
            let (division, parts) = divide(config, chunk_parts(shape, ranks, config)?, data, progress)?;
            let (partition, parts) = (Some(division), Some(Arc::new(parts)));
            let remat = local.remat.with_attention();
            return Ok(Self { strategy, ranks, why, remat, partition, parts, ..local });
        }
        if ranks == 1 {
            return Ok(local);
        }
        let (strategy, why) = match config.parallel.strategy {
            Choice::Named(strategy) => (machines::known(strategy, &config.parallel, None)?, "it was asked for"),
            Choice::Auto => (USUAL, "of several ranks each takes a part and moves only the rows along cut edges"),
        };
        let (division, parts) = divide(config, config.parallel.parts_for(ranks), data, progress)?;
        let (partition, parts) = (Some(division), Some(Arc::new(parts)));
        Ok(Self { strategy, ranks, why: why.to_string(), partition, parts, ..local })
    }

    /// The same for these data: batches where there are many graphs.
    ///
    /// # Errors
    /// Also if another strategy is asked for there.
    pub(crate) fn for_data(config: &Config, ranks: usize, data: &Data, progress: &dyn Progress) -> Result<Self> {
        if data.graphs.is_none() {
            return Self::unplanned(config, ranks, data, progress);
        }
        if config.wire.codec.0.is_some() && ranks > 1 {
            let problem =
                format!("{} is for rows, and ranks that share batches of graphs send none", config.wire.codec);
            return Err(Error::setting("wire.codec", problem, "leave it out"));
        }
        match config.parallel.strategy {
            Choice::Auto | Choice::Named(Strategy::Batches(_)) => {}
            Choice::Named(Strategy::Local(_)) if ranks == 1 => {}
            Choice::Named(other) => {
                let problem = format!("{other} divides one graph, and {} has many", data.name);
                return Err(Error::setting("parallel.strategy", problem, "leave it out: ranks share every batch"));
            }
        }
        let why = "whole graphs need nothing of others: ranks share every batch".to_string();
        Ok(Self { strategy: settings::Batches.into(), ranks, why, ..Self::local(config.compute.remat) })
    }

    /// Pieces of the graph, with gradients alone on the wire. Chunks that are stored for this graph are taken.
    fn isolated(config: &Config, ranks: usize, data: &Data, progress: &dyn Progress) -> Result<Self> {
        let graph = &data.graph;
        let (method, count) = (config.parallel.partition, config.parallel.parts_for(ranks));
        let why = format!("it was asked for: approximate, each rank learns from pieces of {count} chunks");
        let strategy = settings::Isolated.into();
        let division = Division { method, parts: count, stored: None };
        let plan = Self { strategy, ranks, why, partition: Some(division), ..Self::local(config.compute.remat) };
        let folder = config.data.path.as_ref().map(|path| chunks::folder(Path::new(path), method, count));
        if let Some(folder) = folder.filter(|folder| folder.exists()) {
            let stored = stored_chunks(config, &folder, graph, progress)?;
            let parts = if ranks > 1 { Some(Arc::new(stored.partition()?)) } else { None };
            return Ok(Self { chunks: Some(folder), parts, ..plan });
        }
        // One rank needs no partition where ids are ranges already.
        if ranks == 1 && (count == 1 || method == Method::Contiguous) {
            return Ok(plan);
        }
        let (division, parts) = divide(config, count, data, progress)?;
        Ok(Self { partition: Some(division), parts: Some(Arc::new(parts)), ..plan })
    }

    /// Whether a plan of before can be followed: stored chunks must be those of the graph as it is now.
    ///
    /// # Errors
    /// If they are not.
    pub(crate) fn check_chunks(&self, config: &Config, graph: &Csr<u32>, progress: &dyn Progress) -> Result<()> {
        self.chunks.as_ref().map_or(Ok(()), |folder| stored_chunks(config, folder, graph, progress).map(|_| ()))
    }

    /// The graph in chunks, where the strategy learns from pieces.
    pub(crate) fn chunks(&self, graph: &Csr<u32>) -> Result<Option<Chunks>> {
        if !matches!(self.strategy, Strategy::Isolated(_)) {
            return Ok(None);
        }
        Ok(Some(match (&self.chunks, &self.parts) {
            (Some(folder), _) => Chunks::open(folder)?.0,
            (None, Some(parts)) => Chunks::divided(graph, parts),
            (None, None) => Chunks::contiguous(graph.clone(), self.partition.as_ref().map_or(1, |p| p.parts)),
        }))
    }

    /// The same for the ranks of `world`, as decided by the process that leads.
    pub fn shared_unplanned(config: &Config, world: &World, data: &Data, progress: &dyn Progress) -> Result<Self> {
        let plan = world.leads().then(|| Self::for_data(config, world.ranks(), data, progress));
        Self::share(world, plan)
    }

    /// The plan of the process that leads, which brings it, in all processes.
    pub(crate) fn share(world: &World, plan: Option<Result<Self>>) -> Result<Self> {
        let decision = plan.map(|plan| Ok(Decision { folder: PathBuf::new(), plan: plan?, from: None }));
        Ok(world.share(decision)?.plan)
    }

    /// The plan of a checkpoint, if `config` asks for nothing else than the checkpoint's configuration `before`.
    pub fn again(
        text: &str,
        parts: Option<Arc<Partition>>,
        before: &ParallelConfig,
        now: &ParallelConfig,
    ) -> Option<Self> {
        let plan: Self = serde_json::from_str(text).ok()?;
        let whole = plan.ranks == 1 || parts.is_some() || matches!(plan.strategy, Strategy::Batches(_));
        (whole && before.spreads_as(now)).then_some(Self { parts, ..plan })
    }

    /// As `plan.json` has it.
    pub fn to_json(&self) -> Result<String> {
        let bug = |e: serde_json::Error| Bad::request(format!("cannot write plan.json: {e}"), "report this as a bug");
        Ok(serde_json::to_string_pretty(self).map_err(bug)? + "\n")
    }
}

/// Parts of the graph for chunks that pass through stages: each of the ranks that share one has a part of every chunk.
///
/// # Errors
/// If the stages are not for so many ranks.
pub(crate) fn chunk_parts(shape: Option<Stages>, ranks: usize, config: &Config) -> Result<usize> {
    let Stages { count, ways, .. } = Stages::of(shape, ranks);
    if count.checked_mul(ways) != Some(ranks) {
        let problem = format!("{count} stages of {ways} are not for {ranks} ranks");
        return Err(Error::setting("parallel.strategy", problem, "choose pipeline: a stage for every rank"));
    }
    Ok(config.pipeline.chunks_for(count).saturating_mul(ways))
}

/// The chunks in a folder, if they are of this graph.
fn stored_chunks(config: &Config, folder: &Path, graph: &Csr<u32>, progress: &dyn Progress) -> Result<Chunks> {
    let (stored, recipe) = Chunks::open(folder)?;
    let same = (recipe.symmetrise, recipe.self_loops) == (config.data.symmetrise, config.data.self_loops.into());
    let sizes = |graph: &Csr<u32>| (graph.num_dst(), graph.num_edges());
    if !same || sizes(stored.graph()) != sizes(graph) {
        let problem = "these chunks are of another graph, or were made with other data.symmetrise or data.self_loops";
        return Err(Bad::bad(folder, "chunks", problem, "remove the folder and create it again").into());
    }
    if let Some(data) = &config.data.path {
        stored.check(folder, Path::new(data), graph, progress)?;
    }
    Ok(stored)
}

/// A stored partition, or one made now, whose parts share what rows cost where types of nodes differ in it.
pub(crate) fn divide(
    config: &Config,
    parts: usize,
    data: &Data,
    progress: &dyn Progress,
) -> Result<(Division, Partition)> {
    let graph = &data.graph;
    let (method, nodes) = (config.parallel.partition, graph.num_dst());
    let folder = config.data.path.as_ref().map(|path| Path::new(path).join("part").join(format!("{method}-{parts}")));
    if let Some(folder) = folder.filter(|folder| folder.exists()) {
        let partition = partition::load(&folder, nodes)?.partition;
        return Ok((Division { method, parts, stored: Some(folder) }, partition));
    }
    // METIS can hold two things level: hubs would give ranks of equally many rows very different work.
    let balance = if method == Method::Metis { Balance::Both } else { Balance::default() };
    // Ranks beyond the last node have none.
    let options = Options { balance, ..Options::new(method, parts.min(nodes.max(1))) };
    let costs = data.row_costs(&config.model);
    let costs = costs.as_ref().map(|costs| &costs.of_nodes[..]);
    let partition = partition::partition_by_cost(graph, &options, costs, progress)?;
    Ok((Division { method, parts, stored: None }, partition))
}

#[cfg(test)]
mod tests {
    use graphweft_base::progress::Silent;
    use graphweft_graph::generate::Spec;

    use super::*;
    use crate::config::Draft;

    fn config(settings: &[&str]) -> Config {
        let mut draft = Draft::default();
        settings.iter().for_each(|s| draft.assign(s).unwrap());
        draft.finish().unwrap()
    }

    fn data() -> Data {
        let graph = "sbm:60:3:4".parse::<Spec>().unwrap().graph(0, &Silent).unwrap();
        Data::unread("sbm".into(), graph, 1, 2)
    }

    #[test]
    fn what_is_asked_for_is_planned_and_the_rest_is_usual() {
        assert_eq!(Plan::unplanned(&config(&[]), 1, &data(), &Silent).unwrap(), Plan::local(Remat::None));
        let plan = |settings: &[&str], ranks| Plan::unplanned(&config(settings), ranks, &data(), &Silent).unwrap();
        let usual = plan(&[], 3);
        assert_eq!((&usual.strategy, usual.ranks), (&USUAL, 3));
        assert_eq!(usual.parts.unwrap().num_parts(), 3);
        let asked = plan(&["parallel.strategy=gather", "parallel.parts=8", "parallel.partition=contiguous"], 3);
        assert_eq!((asked.strategy.to_string(), asked.parts.unwrap().num_parts()), ("gather".into(), 8));
        assert_eq!(plan(&[], 100).parts.unwrap().num_parts(), 60, "no part is empty");
    }

    #[test]
    fn a_plan_holds_until_something_else_is_asked_for() {
        let plan = Plan::unplanned(&config(&[]), 2, &data(), &Silent).unwrap();
        let text = plan.to_json().unwrap();
        let again = |parts, now: &[&str]| {
            let before = config(&["parallel.ranks=2"]).parallel;
            Plan::again(&text, parts, &before, &config(now).parallel)
        };
        let parts = plan.parts.clone();
        assert_eq!(again(parts.clone(), &["parallel.ranks=2", "parallel.deadline=3"]), Some(plan));
        for other in ["parallel.ranks=3", "parallel.strategy=ring", "parallel.parts=4", "parallel.partition=random"] {
            assert_eq!(again(parts.clone(), &[other]), None, "{other}");
        }
        assert_eq!(again(None, &["parallel.ranks=2"]), None, "parts are missing");
    }
}
