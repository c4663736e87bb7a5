//! `pipeline`: layers in stages, through which chunks of the graph pass (GNNPipe). Approximate, and only on request.
//!
//! An epoch: chunks in an order drawn from the seed go forward through all stages, then back the other way round; one
//! update follows, of each stage's own parameters with their own gradients, so that none travel. What moves is a
//! chunk's state (all matrices of it: GCNII's h⁰ as well) to the next stage and its gradient back: 2·(S − 1)·N·d
//! numbers an epoch. Attention is computed again in backward, or all of a layer, as `compute.remat` has it. What chunks
//! see of one another is told in [`graphweft_parallel::Pipeline`].
//!
//! `pipeline:SxW` has W ranks in every stage: rank s·W + w is way w of stage s. Each has a part of every chunk, talks
//! to way w of the stages before and after, and shares the stage's operations, sums of gradients and scores with its
//! other ways.
//!
//! *History*, the rows that stand for chunks which come later, is made by an exact pass in which all rows go through
//! the layers at once, stage after stage. It has no dropout: what stays the same for many epochs would otherwise be
//! learned with the noise of one of them. It is made anew every `refresh_every` epochs, and sooner while a run is young
//! and its parameters move fast: never is it older than half of the run. So it is a function of the parameters at that
//! time: a checkpoint keeps these, and a run that goes on makes the same history again.
//!
//! Scores are exact: they come from a pass of the same kind. So does the [guard](Divergence)'s view.

mod cut;
mod exact;
mod guard;
mod learn;
mod survey;

use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use graphweft_base::random::{Bijection, Philox};
use graphweft_comm::{Label, Traffic};
use graphweft_model::{Shape, Target, Total};
use graphweft_parallel::settings::{self, Stages};
use graphweft_parallel::{Expected, Flight, Link, Pipeline, Sharing, Strategy};
use graphweft_tensor::ops::grouped::RowTypes;
use graphweft_tensor::{DType, Error as Computation, Matrix};

use crate::config::{Config, PipelineConfig};
use crate::data::rows;
use crate::epochs::learner::{Learner, Phases, Report};
use crate::epochs::source::{EpochInputs, EpochSource, RehearsedEpochs, TakeOutputs};
use crate::error::{Error, Result};
use crate::ranks::rank::Rank;
use crate::ranks::shard::{ListedRows, Seen, Shard, upload_from};
use crate::run::checkpoint::{Scores, Tensors};
use crate::task::Supervision;
use crate::task::metrics::Metric;
use survey::Survey;

pub(crate) use guard::Divergence;

/// Keeps the draws of orders apart from others of the same seed.
const STREAM: u64 = 0x9199;
/// Before the names of the parameters that history was made with, in a checkpoint.
const HISTORY: &str = "history.";
/// The epoch in which that was.
const HISTORY_EPOCH: &str = "history.epoch";

/// Columns and types of the matrices of a state.
type State = Vec<(usize, DType)>;

/// One rank of a stage: some layers, and its part of all chunks.
pub(crate) struct Stage {
    /// Among all.
    rank: Rank,
    /// Among those of this stage.
    ways: Rank,
    settings: PipelineConfig,
    seed: u64,
    graph: Pipeline,
    shape: Shape,
    /// The type of each row of all chunks, where the model tells types apart.
    types: Option<Rc<RowTypes>>,
    layers: Range<usize>,
    before: Option<Neighbour>,
    after: Option<Neighbour>,
    chunks: Vec<Shard>,
    /// Where the logits are.
    end: Option<End>,
    history: Option<History>,
}

/// The rank that has the same rows in the stage before or after.
struct Neighbour {
    rank: usize,
    /// What is between the two.
    state: State,
}

/// What the last stage learns from: all rows at once, and chunk by chunk.
struct End {
    whole: Supervision,
    chunks: Vec<Supervision>,
}

/// What historical rows were made with.
struct History {
    epoch: u64,
    model: Tensors,
    /// Whether they are in the tables: not yet, where a run goes on.
    made: bool,
}

impl Stage {
    /// Divides the layers of the model among the stages, and prepares this rank's part of one.
    ///
    /// # Errors
    /// If there are more stages than layers, or the model needs all rows at once.
    pub(crate) fn new(rank: &Rank, inputs: &EpochInputs<'_>) -> Result<Self> {
        let EpochInputs { config, plan, data, graph, .. } = *inputs;
        let (device, dtype) = (rank.device(), config.compute.dtype);
        let missing = |problem: &str| Computation::Argument { op: "pipeline", problem: problem.into() };
        let parts = plan.parts.as_deref().ok_or_else(|| missing("the plan has no chunks"))?;
        let Strategy::Pipeline(settings::Pipeline { shape }) = plan.strategy else {
            return Err(missing("the plan has no stages").into());
        };
        let Stages { count: stages, ways, within } = Stages::of(shape, rank.count());
        let edge_features = |edges: &[u64]| -> Result<Option<Matrix>> {
            let stored = graph.columns.stored();
            let values = || rows::numbers(graph.edge_rows(), stored, Some(edges));
            let rows = || upload_from(device, edges.len(), stored, dtype.compute(), values);
            (stored > 0).then(rows).transpose()
        };
        let shape = Shape {
            features: data.features.width(),
            positional: data.encoding_width(),
            classes: data.outputs(),
            edge_features: graph.columns,
            types: data.type_counts(&config.model, graph),
            target: Target::Nodes,
        };
        let survey = Survey::new(inputs, shape, ways)?;
        if survey.costs().len() < stages {
            let problem = format!("{stages} stages for the {} layers of the model", survey.costs().len());
            return Err(Error::setting("parallel.ranks", problem, "set at most as many, or model.layers higher"));
        }
        let stage = rank.index() / ways;
        let layers = cut::cut(survey.costs(), stages).swap_remove(stage);
        let group = rank.part(&(stage * ways..(stage + 1) * ways).collect::<Vec<_>>())?;
        let sharing = group.link().map(|link| Sharing { link, strategy: within.into() });
        let tables =
            Pipeline::new(device, &graph.csr, parts, sharing.as_ref(), graph.relations().map(|all| &**all), |edges| {
                edge_features(edges).map_err(computation)
            })?;
        let neighbour =
            |rank: Option<usize>, layer: usize| rank.map(|rank| Neighbour { rank, state: survey.state_after(layer) });
        let before = neighbour(rank.index().checked_sub(ways), layers.start.saturating_sub(1));
        let after = neighbour(Some(rank.index() + ways).filter(|next| *next < rank.count()), layers.end - 1);
        // Rows of a chunk are nobody else's: nothing is summed over ranks while they pass.
        let alone = Rank::alone(device);
        let of_chunk = |chunk: usize| {
            let ids = &tables.originals()[tables.rows(chunk)];
            let seen = if before.is_none() { Seen::Features } else { Seen::State };
            let (ops, model) = (tables.chunk(chunk), &config.model);
            Shard::of_rows(&alone, data, &ListedRows { ops, ids, model, shape, dtype, seen })
        };
        let chunks = (0..tables.count()).map(of_chunk).collect::<Result<Vec<Shard>>>()?;
        let end = if after.is_none() {
            let supervision = |shard: &Shard| -> Result<Supervision> {
                Ok(inputs.supervision(shard)?.ok_or_else(|| missing("nothing is learned from"))?)
            };
            let (ops, ids) = (tables.all_rows(), &tables.originals()[..]);
            let all = ListedRows { ops, ids, model: &config.model, shape, dtype, seen: Seen::State };
            let whole = supervision(&Shard::of_rows(&group, data, &all)?)?;
            let chunks =
                chunks.iter().map(|c| Ok(supervision(c)?.of(whole.total()))).collect::<Result<Vec<Supervision>>>()?;
            Some(End { whole, chunks })
        } else {
            None
        };
        Ok(Self {
            rank: rank.clone(),
            types: data.types_of(device, &config.model, tables.originals())?,
            ways: group,
            settings: config.pipeline.clone(),
            seed: config.run.seed,
            graph: tables,
            shape,
            layers,
            before,
            after,
            chunks,
            end,
            history: None,
        })
    }

    /// Whether this rank speaks for the ways of its stage, which all have the same parameters.
    fn speaks(&self) -> bool {
        self.ways.leads()
    }

    /// The order of chunks in an epoch, the same on all stages.
    fn order(&self, epoch: u64) -> Vec<usize> {
        let chunks = self.graph.count();
        if !self.settings.shuffle {
            return (0..chunks).collect();
        }
        let drawn = Bijection::new(chunks as u64, &Philox::new(self.seed, STREAM.wrapping_add(epoch << 16)));
        (0..chunks as u64).map(|turn| drawn.forward(turn) as usize).collect()
    }

    /// Sends a state, or its gradient, to another stage.
    fn send(&self, op: &'static str, to: &Neighbour, state: Vec<Matrix>) -> Result<Option<Flight>> {
        let each = state.into_iter().map(|m| (to.rank, m)).collect();
        Ok(self.link().map(|link| link.send_each(self.label(op), each, &[])).transpose()?)
    }

    /// Asks for a state of so many rows, or its gradient, from another stage.
    fn ask(&self, op: &'static str, from: &Neighbour, rows: usize) -> Result<Option<Flight>> {
        let expected = |&(cols, dtype): &(usize, DType)| Expected { peer: from.rank, rows, cols, dtype };
        let each: Vec<Expected> = from.state.iter().map(expected).collect();
        Ok(self.link().map(|link| link.send_each(self.label(op), Vec::new(), &each)).transpose()?)
    }

    fn link(&self) -> Option<&Link> {
        self.rank.link()
    }

    fn label(&self, op: &'static str) -> Label {
        Label { op, traffic: Traffic::Rows, layer: self.layers.start as u32 }
    }
}

impl EpochSource for Stage {
    fn learner(&self, config: &Config) -> Result<Learner> {
        let mut config = config.clone();
        // Attention would otherwise keep its operands of all chunks for each of them.
        config.compute.remat = config.compute.remat.with_attention();
        Learner::of_layers(&self.rank, self.shape, &config, self.layers.clone())
    }

    fn size(&self, learner: &Learner) -> Result<usize> {
        let own = if self.speaks() { learner.size() } else { 0 };
        Ok(self.rank.sum(Total::Metrics, &[own as f64])?[0] as usize)
    }

    /// Also what history was made with.
    fn memory(&self, learner: &Learner) -> Result<Tensors> {
        let mut all = learner.optimizer()?;
        if let Some(history) = &self.history {
            all.extend(history.model.prefixed(HISTORY));
            all.add_vector(HISTORY_EPOCH, &[history.epoch as f64]);
        }
        Ok(all)
    }

    /// Takes over what history was made with; without it the next epoch makes a new one.
    fn restore(&mut self, from: &Tensors) -> Result<()> {
        if from.names().any(|name| name == HISTORY_EPOCH) {
            let epoch = from.numbers(HISTORY_EPOCH, 1)?[0] as u64;
            self.history = Some(History { epoch, model: from.below(HISTORY), made: false });
        }
        Ok(())
    }

    /// The tensors of all stages.
    fn together(&self, learner: &Learner, own: &dyn Fn() -> Result<Tensors>) -> Result<Option<Tensors>> {
        let (rank, own) = (learner.rank(), own()?);
        let mut all = Tensors::default();
        let own = if self.speaks() { own.encode()? } else { Vec::new() };
        for bytes in rank.gather("checkpoint", own)?.iter().filter(|bytes| !bytes.is_empty()) {
            all.extend(Tensors::decode(Path::new("a stage's tensors"), bytes)?);
        }
        Ok(rank.leads().then_some(all))
    }

    fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        self.learn_chunks(learner, epoch, lr, phase)
    }

    fn scores(&mut self, learner: &Learner, metric: &'static Metric, epoch: u64) -> Result<Scores> {
        self.exact_scores(learner, metric, epoch)
    }

    fn predict(&self, learner: &Learner, _scored: Option<u64>, take: TakeOutputs<'_>) -> Result<()> {
        self.exact_outputs(learner, take)
    }

    /// The first two epochs make history; scores are made by a pass of its own, which may need most memory.
    fn rehearsed(&self) -> RehearsedEpochs {
        RehearsedEpochs { count: 3, scored_after: Some(3) }
    }

    fn rehearse_scores(&self, learner: &Learner) -> Result<()> {
        self.exact(learner).map(drop)
    }
}

/// An error where only those of computations can be.
fn computation(e: Error) -> Computation {
    match e {
        Error::Tensor(e) => e,
        other => Computation::Argument { op: "pipeline", problem: other.to_string() },
    }
}
