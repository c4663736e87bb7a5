//! `pipeline`: layers in stages, a rank each, through which chunks of the graph pass (GNNPipe). Approximate, and only on request.
//!
//! An epoch: chunks in an order drawn from the seed go forward through all stages, then back the other way round;
//! one update follows, of each stage's own parameters with their own gradients, so that none travel. What moves is a chunk's state
//! (all matrices of it: GCNII's h⁰ as well) to the next stage and its gradient back: 2·(S − 1)·N·d numbers an epoch. Layers are
//! computed again in backward. What chunks see of one another is told in [`graphweft_parallel::Pipeline`].
//!
//! *History*, the rows that stand for chunks which come later, is made by an exact pass in which all rows go through the layers at
//! once, stage after stage, every `refresh_every` epochs. So it is a function of the parameters at that time: a checkpoint keeps
//! these, and a run that goes on makes the same history again.
//!
//! Scores are exact: they come from a pass of the same kind. So does the [guard](Divergence)'s view: in its epochs an exact forward
//! pass with the same dropout is compared with what chunks come to.

mod cut;
mod exact;
mod guard;
mod learn;
mod survey;

use std::ops::Range;
use std::path::Path;

use graphweft_comm::{Label, Traffic};
use graphweft_graph::random::{Bijection, Philox};
use graphweft_model::{Shape, Total};
use graphweft_parallel::{Flight, Link, Pipeline};
use graphweft_tensor::{DType, Error as Computation, Matrix};

use crate::checkpoint::Tensors;
use crate::config::{Config, PipelineConfig};
use crate::course::Material;
use crate::error::{Error, Result};
use crate::learner::Learner;
use crate::rank::Rank;
use crate::rows;
use crate::shard::{Lesson, Shard, upload};
use survey::Survey;

pub use guard::Divergence;

/// Keeps the draws of orders apart from others of the same seed.
const STREAM: u64 = 0x9199;
/// Before the names of the parameters that history was made with, in a checkpoint.
const HISTORY: &str = "history.";
/// The epoch in which that was.
const HISTORY_EPOCH: &str = "history.epoch";

/// Columns and types of the matrices of a state.
type State = Vec<(usize, DType)>;

/// One stage: a rank with some layers and all rows.
pub(crate) struct Stage {
    rank: Rank,
    settings: PipelineConfig,
    seed: u64,
    graph: Pipeline,
    shape: Shape,
    layers: Range<usize>,
    /// What comes from the stage before, if there is one.
    before: Option<State>,
    /// What goes to the stage after.
    after: Option<State>,
    /// All rows at once, and chunk by chunk.
    whole: Shard,
    chunks: Vec<Shard>,
    /// Where the logits are.
    end: Option<End>,
    history: Option<History>,
}

/// What the last stage learns from.
struct End {
    whole: Lesson,
    chunks: Vec<Lesson>,
}

/// What historical rows were made with.
struct History {
    epoch: u64,
    model: Tensors,
    /// Whether they are in the tables: not yet, where a run goes on.
    made: bool,
}

impl Stage {
    /// Divides the layers of the model among all ranks, and prepares this one's.
    ///
    /// # Errors
    /// If there are more ranks than layers, or the model needs all rows at once.
    pub(crate) fn new(rank: &Rank, material: &Material<'_>) -> Result<Self> {
        let Material { config, plan, data, graph, split, .. } = *material;
        let (device, dtype) = (rank.device(), DType::from(config.compute.dtype));
        let missing = || Computation::Argument { op: "pipeline", problem: "the plan has no chunks".into() };
        let parts = plan.parts.as_deref().ok_or_else(missing)?;
        let edge_features = |edges: &[u64]| -> Result<Option<Matrix>> {
            let found = match &data.edge_features {
                _ if graph.width > 0 => (rows::numbers(graph.edge_rows(), graph.width, Some(edges)), graph.width),
                Some(m) => (rows::dense(m, Some(edges)), m.width()),
                None => return Ok(None),
            };
            upload(device, &found.0, found.1, dtype.compute()).map(Some)
        };
        let shape = Shape {
            features: data.features.width(),
            positional: data.encoding_width(),
            classes: data.classes,
            edge_features: edge_features(&[])?.map_or(0, |m| m.cols()),
        };
        let survey = Survey::new(rank, data, shape, config)?;
        let costs = survey.costs(&data.features, graph.csr.num_dst(), graph.csr.num_edges());
        let (stage, stages) = (rank.index(), rank.count());
        if costs.len() < stages {
            let problem = format!("{stages} stages for the {} layers of the model", costs.len());
            return Err(Error::setting("parallel.ranks", problem, "set at most as many, or model.layers higher"));
        }
        let layers = cut::cut(&costs, stages).swap_remove(stage);
        let (first, last) = (stage == 0, stage + 1 == stages);
        let tables = Pipeline::new(device, &graph.csr, parts, |edges| edge_features(edges).map_err(computation))?;
        // Rows of stages are nobody else's: nothing is summed over ranks.
        let alone = Rank::alone(device);
        let whole = (tables.whole(), &tables.originals()[..]);
        let whole = Shard::of_rows(&alone, data, whole, (shape, dtype, first))?;
        let of_chunk = |chunk: usize| {
            let ids = &tables.originals()[tables.rows(chunk)];
            Shard::of_rows(&alone, data, (tables.chunk(chunk), ids), (shape, dtype, first))
        };
        let chunks = (0..tables.count()).map(of_chunk).collect::<Result<Vec<Shard>>>()?;
        let end = if last {
            let lesson = |shard: &Shard| Lesson::new(shard, data.target()?, split);
            let all = lesson(&whole)?;
            let chunks = chunks.iter().map(|c| Ok(lesson(c)?.of(all.total()))).collect::<Result<Vec<Lesson>>>()?;
            Some(End { whole: all, chunks })
        } else {
            None
        };
        Ok(Self {
            rank: rank.clone(),
            settings: config.pipeline.clone(),
            seed: config.run.seed,
            graph: tables,
            shape,
            before: (!first).then(|| survey.state_after(layers.start - 1)),
            after: (!last).then(|| survey.state_after(layers.end - 1)),
            layers,
            whole,
            chunks,
            end,
            history: None,
        })
    }

    /// This stage's layers, before they have learned anything.
    pub(crate) fn learner(&self, config: &Config) -> Result<Learner> {
        let mut config = config.clone();
        config.compute.remat = config.compute.remat.with_layers();
        Learner::of_layers(&self.rank, self.shape, &config, self.layers.clone())
    }

    /// Numbers that are trained, on all stages.
    pub(crate) fn size(&self, learner: &Learner) -> Result<usize> {
        Ok(self.rank.sum(Total::Metrics, &[learner.size() as f64])?[0] as usize)
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

    /// What history was made with, for a checkpoint.
    pub(crate) fn memory(&self) -> Tensors {
        let Some(history) = &self.history else { return Tensors::default() };
        let mut all = history.model.prefixed(HISTORY);
        all.add_vector(HISTORY_EPOCH, &[history.epoch as f64]);
        all
    }

    /// Takes over what history was made with; without it the next epoch makes a new one.
    pub(crate) fn restore(&mut self, from: &Tensors) -> Result<()> {
        if from.names().any(|name| name == HISTORY_EPOCH) {
            let epoch = from.numbers(HISTORY_EPOCH, 1)?[0] as u64;
            self.history = Some(History { epoch, model: from.below(HISTORY), made: false });
        }
        Ok(())
    }

    /// The tensors of all stages, on the rank that leads.
    pub(crate) fn together(&self, own: &Tensors) -> Result<Option<Tensors>> {
        let mut all = Tensors::default();
        for bytes in self.rank.gather("checkpoint", own.encode()?)? {
            all.extend(Tensors::decode(Path::new("a stage's tensors"), &bytes)?);
        }
        Ok(self.rank.leads().then_some(all))
    }

    /// Sends a state, or its gradient, to another stage.
    fn send(&self, op: &'static str, to: usize, state: Vec<Matrix>) -> Result<Option<Flight>> {
        let each = state.into_iter().map(|m| (to, m)).collect();
        Ok(self.link().map(|link| link.send_each(self.label(op), each, &[])).transpose()?)
    }

    /// Asks for a state of so many rows, or its gradient, from another stage.
    fn ask(&self, op: &'static str, from: usize, rows: usize, state: &State) -> Result<Option<Flight>> {
        let each: Vec<_> = state.iter().map(|(cols, dtype)| (from, (rows, *cols), *dtype)).collect();
        Ok(self.link().map(|link| link.send_each(self.label(op), Vec::new(), &each)).transpose()?)
    }

    fn link(&self) -> Option<&Link> {
        self.rank.link()
    }

    fn label(&self, op: &'static str) -> Label {
        Label { op, traffic: Traffic::Rows, layer: self.layers.start as u32 }
    }
}

/// An error where only those of computations can be.
fn computation(e: Error) -> Computation {
    match e {
        Error::Tensor(e) => e,
        other => Computation::Argument { op: "pipeline", problem: other.to_string() },
    }
}
