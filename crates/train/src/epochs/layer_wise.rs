//! Exact logits of a graph that does not fit: one layer after another, in each layer some rows after others.
//!
//! A block of rows needs the state before a layer of its own nodes and of their sources, which is a piece with a whole
//! halo; what comes out for the block's rows is appended to a file, and that file, mapped, is the state before the next
//! layer. So memory holds one block, the disk two states. Layers that compute each row by itself go with the one before
//! or after them, and blocks are as large as fit, because sources that blocks have in common are computed for each.
//! This is for models whose layers look along edges and nowhere else; dropout is off and normalisation uses running
//! moments, so rows do not depend on who is computed with them.

mod table;

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use graphweft_graph::build::Scratch;
use graphweft_graph::chunks::{Chunks, Halo, Piece};
use graphweft_graph::dataset::{Features, Split};
use graphweft_model::Total;
use graphweft_tensor::{DType, Ids, Matrix};

use crate::config::Config;
use crate::data::Data;
use crate::data::rows::{self, Rows};
use crate::epochs::learner::Learner;
use crate::epochs::pieces::{Demand, Learned, Loaded, gather};
use crate::epochs::source::TakeOutputs;
use crate::error::Result;
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::Scores;
use crate::task::Labels;
use crate::task::metrics::{Logits, Metric, Scoring, SplitPart};
use table::{Table, Writer};

/// Rows of logits that are scored or written at a time.
const LOT: usize = 1 << 18;

/// The whole graph, some rows at a time.
pub(crate) struct LayerWise {
    rank: Rank,
    data: Arc<Data>,
    chunks: Chunks,
    config: Config,
    blocks: OnceCell<Vec<Range<usize>>>,
    scratch: Scratch,
    /// The logits that were scored last, and after which epoch.
    scored_last: RefCell<Option<(u64, Table)>>,
}

/// The nodes that are scored.
pub(crate) struct ScoredNodes {
    /// New ids, ascending.
    nodes: Vec<u32>,
    /// Positions in `nodes`.
    parts: [SplitPart; 3],
    labels: Labels,
}

impl LayerWise {
    /// For blocks that fit; states go to unnamed files in `folder`.
    pub(crate) fn new(rank: &Rank, data: &Arc<Data>, chunks: &Chunks, config: &Config, folder: &Path) -> Self {
        Self {
            rank: rank.clone(),
            data: Arc::clone(data),
            chunks: chunks.clone(),
            config: config.clone(),
            blocks: OnceCell::new(),
            scratch: Scratch::new(folder),
            scored_last: RefCell::default(),
        }
    }

    /// Rows that are computed together; how many fit is found out when they are first needed.
    fn blocks(&self) -> Result<&[Range<usize>]> {
        if let Some(blocks) = self.blocks.get() {
            return Ok(blocks);
        }
        let (chunks, config) = (&self.chunks, &self.config);
        let blocks = match config.isolated.memory {
            Some(memory) => fitting(chunks, 0..chunks.num_nodes(), &Demand::of_inference(&self.data, config)?, memory),
            None => (0..chunks.count()).map(|chunk| chunks.rows(chunk)).collect(),
        };
        Ok(self.blocks.get_or_init(|| blocks))
    }

    /// Finds the nodes of a split.
    pub(crate) fn scored(&self, split: &Split) -> Result<ScoredNodes> {
        let parts = split.parts().map(|(_, nodes)| {
            let mut nodes = nodes.to_vec();
            nodes.sort_unstable();
            self.chunks.new_ids(&nodes)
        });
        let mut nodes = parts.concat();
        nodes.sort_unstable();
        let place = |id: &u32| nodes.partition_point(|other| other < id) as u32;
        let parts = parts.map(|ids| {
            let mut own: Vec<(u32, usize)> = ids.iter().zip(0..).map(|(id, at)| (place(id), at)).collect();
            own.sort_unstable();
            let total = own.len();
            let (rows, places) = own.into_iter().unzip();
            SplitPart { rows, places, total }
        });
        let originals: Vec<u64> = nodes.iter().map(|new| self.chunks.original(*new as usize)).collect();
        let labels = self.data.labels()?.of_rows(&Ids::Listed(originals.into()), self.data.classes);
        Ok(ScoredNodes { nodes, parts, labels })
    }

    /// The scores of all three parts.
    pub(crate) fn evaluate(
        &self,
        learner: &Learner,
        scored: &ScoredNodes,
        metric: &'static Metric,
        epoch: u64,
    ) -> Result<Scores> {
        let (logits, device) = (self.logits(learner)?, self.rank.device());
        let reduce = self.rank.reduce(Total::Metrics);
        let (task, labels) = (self.data.task, scored.labels.view());
        let scoring = Scoring { task, metric, labels, device, reduce: &*reduce };
        let lots = scored.nodes.chunks(LOT).zip((0..).step_by(LOT));
        let lots = lots.map(|(nodes, first)| Logits::of_lot(&logits.rows(device, nodes)?, first));
        let scores = scoring.scores_of_lots(lots, &scored.parts, epoch)?;
        self.scored_last.replace(Some((epoch, logits)));
        Ok(scores)
    }

    /// Gives the logits of all nodes to `take`, row by row in original ids, lot by lot. Those that were scored after
    /// epoch `scored` are not computed again, if they are the last that were.
    pub(crate) fn predict(&self, learner: &Learner, scored: Option<u64>, take: TakeOutputs<'_>) -> Result<()> {
        let device = self.rank.device();
        let logits = match self.scored_last.take() {
            Some((epoch, logits)) if Some(epoch) == scored => logits,
            _ => self.logits(learner)?,
        };
        let originals: Vec<i64> = (0..self.chunks.num_nodes() as i64).collect();
        let order = self.chunks.new_ids(&originals);
        drop(originals);
        let mut lots = order.chunks(LOT).map(|lot| {
            let rows = logits.rows(device, lot)?;
            Ok(device.convert("predictions", &rows, DType::F32)?.to_vec::<f32>()?)
        });
        take(logits.cols(), &mut lots)
    }

    /// The state after the last layer.
    fn logits(&self, learner: &Learner) -> Result<Table> {
        // What was scored before takes room on the disk.
        self.scored_last.take();
        let mut state: Vec<Table> = Vec::new();
        for (pass, layers) in learner.passes().into_iter().enumerate() {
            let mut after: Vec<Writer> = Vec::new();
            for block in self.blocks()? {
                let piece = Piece::cut(&self.chunks, block.clone(), None, &Halo::All);
                let (nodes, own) = (piece.nodes.clone(), piece.base.clone());
                let shard = if pass == 0 { self.with_features(piece)? } else { self.with_state(piece)? };
                let device = self.rank.device();
                let before = state.iter().map(|table| table.rows(device, &nodes)).collect::<Result<Vec<Matrix>>>()?;
                drop(nodes);
                let found = learner.layers(layers.clone(), &shard, before)?;
                if after.is_empty() {
                    after = found.iter().map(|m| Writer::new(&self.scratch, m)).collect();
                }
                for (to, m) in after.iter_mut().zip(&found) {
                    to.push(m, own.clone())?;
                }
                self.chunks.release();
            }
            state = after.into_iter().map(Writer::finish).collect::<Result<_>>()?;
        }
        let none = || graphweft_tensor::Error::Argument { op: "model", problem: "it has no layers".into() };
        Ok(state.into_iter().next().ok_or_else(none)?)
    }

    /// The rows of a block with its sources, as the first layers see them.
    fn with_features(&self, piece: Piece) -> Result<Shard> {
        let width = self.data.encoding_width();
        let in_order = self.config.data.takes_stored_features();
        let features = match (self.chunks.features().filter(|_| in_order), &self.data.features) {
            (Some(m), _) => Rows::Dense { values: gather(m, &piece.nodes).into(), width: m.width() },
            (None, Features::Dense(m)) => Rows::Dense { values: gather(m, &piece.originals).into(), width: m.width() },
            (None, Features::Sparse(m)) => Rows::Sparse(rows::sparse(m, Some(&piece.originals))),
        };
        let encodings = rows::numbers(&self.data.encodings, width, Some(&piece.originals)).into_owned();
        self.shard(piece, features, encodings)
    }

    /// The same as later layers see them, which look at no features.
    fn with_state(&self, piece: Piece) -> Result<Shard> {
        self.shard(piece, Rows::Dense { values: Vec::new().into(), width: 0 }, Vec::new())
    }

    fn shard(&self, piece: Piece, features: Rows<'static>, encodings: Vec<f32>) -> Result<Shard> {
        let graph = self.data.piece_for(&self.config.model, &piece, self.config.run.seed)?;
        let loaded = Loaded { piece, graph, features, encodings, learned: Learned::Share(0.0) };
        let dtype = self.config.compute.dtype;
        Ok(Shard::of_piece(&self.rank, loaded, dtype, self.data.outputs())?.0)
    }
}

/// Cuts rows in halves until each block fits with its halo.
fn fitting(chunks: &Chunks, rows: Range<usize>, demand: &Demand, memory: u64) -> Vec<Range<usize>> {
    let indptr = chunks.graph().indptr();
    let room = demand.rows_in(memory, indptr[rows.end] - indptr[rows.start]);
    let fits = Piece::reaches_at_most(chunks, &rows, usize::try_from(room).unwrap_or(usize::MAX));
    chunks.release();
    if fits || rows.len() <= 1 {
        return vec![rows];
    }
    let middle = rows.start + rows.len() / 2;
    let halves = [rows.start..middle, middle..rows.end];
    halves.into_iter().flat_map(|half| fitting(chunks, half, demand, memory)).collect()
}
