//! What learning from pieces would take: pieces are cut as they would be, but nothing of them is read.

use std::ops::Range;

use graphweft_graph::chunks::{Chunks, Piece};
use graphweft_graph::dataset::{Features, Split};
use graphweft_tensor::DType;

use super::halo::Allowance;
use super::loader::{Loaded, Seeds};
use super::timetable::{Timetable, Visit};
use crate::config::Config;
use crate::data::{Data, Target};
use crate::error::Result;
use crate::learner::Learner;
use crate::rank::Rank;
use crate::rows::{self, Rows};
use crate::shard::{Lesson, Shard};

/// The pieces of a rank that learns nothing; see [`Pieces`](super::Pieces).
pub(crate) struct Unread<'a> {
    rank: &'a Rank,
    data: &'a Data,
    chunks: &'a Chunks,
    allowance: &'a Allowance,
    config: &'a Config,
    timetable: Timetable,
    /// How many nodes of each chunk are learned from.
    seeds: Vec<usize>,
    now: Option<(Visit, Shard, Lesson)>,
}

impl<'a> Unread<'a> {
    /// Those of `rank`; without a split, all nodes are learned from.
    pub(crate) fn new(
        rank: &'a Rank,
        data: &'a Data,
        (chunks, allowance): (&'a Chunks, &'a Allowance),
        config: &'a Config,
        split: Option<&Split>,
    ) -> Self {
        let mut seeds: Vec<usize> = (0..chunks.count()).map(|chunk| chunks.rows(chunk).len()).collect();
        if let Some(split) = split {
            let mut nodes = chunks.new_ids(&split.train);
            nodes.sort_unstable();
            let before = |row: usize| nodes.partition_point(|node| (*node as usize) < row);
            let among = |rows: Range<usize>| before(rows.end) - before(rows.start);
            seeds = (0..chunks.count()).map(|chunk| among(chunks.rows(chunk))).collect();
        }
        let timetable = Timetable::new(&seeds, rank.count(), rank.index(), config);
        Self { rank, data, chunks, allowance, config, timetable, seeds, now: None }
    }

    /// An epoch.
    pub(crate) fn learn(&mut self, learner: &mut Learner, epoch: u64) -> Result<()> {
        for step in 0..self.timetable.steps() {
            let visit = self.timetable.visit(epoch, step);
            if self.now.as_ref().is_none_or(|(at, ..)| *at != visit) {
                self.now = None;
                let (shard, lesson) = self.piece(&visit)?;
                self.now = Some((visit, shard, lesson));
            }
            if let Some((_, shard, lesson)) = &self.now {
                learner.learn(shard, lesson, epoch, self.config.train.lr, &mut |_, _| ())?;
            }
        }
        learner.average_moments()
    }

    fn piece(&self, visit: &Visit) -> Result<(Shard, Lesson)> {
        let Self { data, config, .. } = *self;
        let (base, other) = visit.rows(self.chunks);
        let halo = self.allowance.halo(self.chunks, &base, other.as_ref(), visit.draw);
        let piece = Piece::cut(self.chunks, base, other, &halo);
        let rows = piece.nodes.len();
        let learned = visit.base.map_or(0, |chunk| self.seeds[chunk]) as f64 / rows.max(1) as f64;
        let graph = config.model.prepare(piece.graph.clone(), config.run.seed)?;
        let features = match &data.features {
            Features::Dense(m) => Rows::Dense { values: vec![0.0; rows * m.width()].into(), width: m.width() },
            Features::Sparse(m) => Rows::Sparse(rows::sparse(m, Some(&piece.originals))),
        };
        let encodings = vec![0.0; rows * data.encoding_width()];
        let seeds = Seeds { rows: Vec::new(), weights: Vec::new(), labels: Target::Class(Vec::new()) };
        let loaded = Loaded { piece, graph, features, encodings, seeds };
        let (shard, _) = Shard::of_piece(self.rank, loaded, DType::from(config.compute.dtype), data.classes)?;
        let lesson = Lesson::unread(&shard, data.target.as_ref(), learned)?;
        Ok((shard, lesson))
    }
}
