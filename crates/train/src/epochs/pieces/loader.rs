//! Loads pieces: what is read, cut and computed on the host before a piece can be trained on. Any thread may do that.

use std::ops::Range;
use std::sync::Arc;

use graphweft_graph::chunks::{Chunks, Piece};
use graphweft_graph::dataset::{Dense, Features, Split};
use graphweft_model::{ModelConfig, Prepared, Shape, TypeCounts};
use graphweft_tensor::Ids;

use super::halo::Allowance;
use super::timetable::Visit;
use crate::config::{Correction, IsolatedConfig};
use crate::data::Data;
use crate::data::rows::{self, Rows};
use crate::epochs::source::{EpochInputs, Purpose};
use crate::error::{Error, Result};
use crate::task::{LearnedRows, check_split};

/// Rows gathered from mapped files before their pages are given back.
const LOT: usize = 1 << 14;

/// A piece on the host.
pub(crate) struct Loaded {
    pub(crate) piece: Piece,
    /// Its graph with the edges that the model adds.
    pub(crate) graph: Prepared,
    pub(crate) features: Rows<'static>,
    /// Row by row.
    pub(crate) encodings: Vec<f32>,
    pub(crate) learned: Learned,
}

/// What of a piece is learned from.
pub(crate) enum Learned {
    /// These rows.
    Rows(LearnedRows),
    /// This share of its rows, where nothing is read.
    Share(f64),
}

/// Where pieces come from.
pub(crate) struct Loader {
    data: Arc<Data>,
    chunks: Chunks,
    /// Nodes to learn from, as new ids, ascending; all, if nothing is said.
    seeds: Option<Vec<u32>>,
    settings: IsolatedConfig,
    model: ModelConfig,
    seed: u64,
    /// Whether features may be read as the chunks have them.
    in_order: bool,
    allowance: Allowance,
    /// Whether features and labels are read: not in a rehearsal.
    reads: bool,
}

impl Loader {
    pub(crate) fn new(inputs: &EpochInputs<'_>, chunks: &Chunks) -> Result<Self> {
        let EpochInputs { config, data, .. } = *inputs;
        let (split, known) = match inputs.purpose {
            Purpose::Train(split) | Purpose::Evaluate(split) => (Some(split), None),
            Purpose::Rehearse(shared) => (shared.split, shared.allowance),
            Purpose::Predict => (None, None),
        };
        let reads = !matches!(inputs.purpose, Purpose::Rehearse(_));
        if let Some(split) = split.filter(|_| reads) {
            data.labels()?;
            check_split(split)?;
        }
        let ascending = |split: &Split| {
            let mut seeds = chunks.new_ids(&split.train);
            seeds.sort_unstable();
            seeds
        };
        Ok(Self {
            data: Arc::clone(data),
            chunks: chunks.clone(),
            seeds: split.map(ascending),
            settings: config.isolated.clone(),
            model: config.model.clone(),
            seed: config.run.seed,
            in_order: config.data.takes_stored_features(),
            allowance: known.cloned().map_or_else(|| Allowance::new(data, config), Ok)?,
            reads,
        })
    }

    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    /// Whether features and labels are read.
    pub(crate) fn reads(&self) -> bool {
        self.reads
    }

    pub(crate) fn shape(&self) -> Result<Shape> {
        shape(&self.data, &self.model, self.seed)
    }

    /// How many nodes of each chunk are learned from.
    pub(crate) fn seeds_by_chunk(&self) -> Vec<usize> {
        (0..self.chunks.count()).map(|chunk| self.seeds_in(chunk)).collect()
    }

    fn seeds_in(&self, chunk: usize) -> usize {
        let rows = self.chunks.rows(chunk);
        self.seeds.as_ref().map_or(rows.len(), |seeds| among(seeds, rows).len())
    }

    /// Loads the piece of a visit.
    pub(crate) fn load(&self, visit: &Visit) -> Result<Loaded> {
        let chunks = &self.chunks;
        let (base, other) = visit.rows(chunks);
        let halo = self.allowance.halo(chunks, &base, other.as_ref(), visit.draw);
        let piece = Piece::cut(chunks, base.clone(), other, &halo);
        let graph = self.data.piece_for(&self.model, &piece, self.seed)?;
        if !self.reads {
            return Ok(self.unread(piece, graph, visit));
        }
        let features = match chunks.features().filter(|_| self.in_order) {
            Some(m) => Rows::Dense { values: gather(m, &piece.nodes).into(), width: m.width() },
            None => match &self.data.features {
                Features::Dense(m) => Rows::Dense { values: gather(m, &piece.originals).into(), width: m.width() },
                Features::Sparse(m) => Rows::Sparse(rows::sparse(m, Some(&piece.originals))),
            },
        };
        let width = self.data.encoding_width();
        let encodings = rows::numbers(&self.data.encodings, width, Some(&piece.originals)).into_owned();
        let learned = Learned::Rows(self.learned(&piece, base)?);
        self.release();
        Ok(Loaded { piece, graph, features, encodings, learned })
    }

    /// A piece of which only sizes and the structure of sparse features matter.
    fn unread(&self, piece: Piece, graph: Prepared, visit: &Visit) -> Loaded {
        let rows = piece.nodes.len();
        let features = match &self.data.features {
            Features::Dense(m) => Rows::Dense { values: vec![0.0; rows * m.width()].into(), width: m.width() },
            Features::Sparse(m) => Rows::Sparse(rows::sparse(m, Some(&piece.originals))),
        };
        let encodings = vec![0.0; rows * self.data.encoding_width()];
        let seeds = visit.base.map_or(0, |chunk| self.seeds_in(chunk));
        let learned = Learned::Share(seeds as f64 / rows.max(1) as f64);
        Loaded { piece, graph, features, encodings, learned }
    }

    /// The nodes that are learned from, with their weights.
    fn learned(&self, piece: &Piece, base: Range<usize>) -> Result<LearnedRows> {
        let row = |new: &u32| piece.base.start as u32 + (*new - base.start as u32);
        let seeds = among(self.seeds.as_deref().unwrap_or_default(), base.clone());
        let rows: Vec<u32> = seeds.iter().map(row).collect();
        let depth = match self.settings.correction {
            Correction::None => 0,
            Correction::FirstHop => self.model.hops().min(1),
            Correction::DepthAware | Correction::BatchScalar => self.model.hops(),
        };
        let coverage = piece.coverage(depth);
        let mut weights: Vec<f32> = rows.iter().map(|row| coverage[*row as usize - piece.base.start]).collect();
        if self.settings.correction == Correction::BatchScalar && !weights.is_empty() {
            let mean = weights.iter().map(|w| f64::from(*w)).sum::<f64>() / weights.len() as f64;
            weights.fill(mean as f32);
        }
        let shrinkage = self.settings.shrinkage as f32;
        weights.iter_mut().for_each(|w| *w = shrinkage + (1.0 - shrinkage) * *w);
        let ids = Ids::Listed(piece.originals.as_slice().into());
        let labels = self.data.labels()?.of_rows(&ids, self.data.classes);
        Ok(LearnedRows { rows, weights, labels })
    }

    /// Gives pages of mapped files back where memory is counted.
    fn release(&self) {
        if self.settings.memory.is_some() {
            self.chunks.release();
        }
    }
}

/// Those of `seeds`, which ascend, that are among these rows.
fn among(seeds: &[u32], rows: Range<usize>) -> &[u32] {
    let place = |row: usize| seeds.partition_point(|seed| (*seed as usize) < row);
    &seeds[place(rows.start)..place(rows.end)]
}

/// What a model must know of data that it sees in pieces.
pub(crate) fn shape(data: &Data, model: &ModelConfig, seed: u64) -> Result<Shape> {
    if data.types_for(model).is_some() {
        let problem = format!("{} tells types of edges apart, which pieces of a graph do not have", model.name());
        let remedy = "take an exact strategy, such as halo, or a model that does not, such as gcn";
        return Err(Error::setting("parallel.strategy", problem, remedy));
    }
    // What the model adds to edges does not depend on the graph.
    let one = graphweft_graph::Csr::from_valid(vec![0u64, 0], Vec::<u32>::new(), 1);
    let prepared = model.prepare(one, seed)?;
    Ok(Shape {
        features: data.features.width(),
        positional: data.encoding_width(),
        classes: data.outputs(),
        edge_features: match data.edges_for(model) {
            Some(edges) => prepared.with_features(edges.columns, Arc::from([]))?.columns,
            None => prepared.columns,
        },
        types: TypeCounts::default(),
        target: data.target(),
    })
}

/// Rows of a matrix that may be mapped, as f32; pages are given back as they are done with.
pub(crate) fn gather<I: Copy + Into<u64> + Sync>(m: &Dense, nodes: &[I]) -> Vec<f32> {
    let width = m.width();
    let mut all = vec![0.0; nodes.len() * width];
    for (to, lot) in all.chunks_mut(LOT * width.max(1)).zip(nodes.chunks(LOT)) {
        rows::copy_dense(m, lot, to);
        m.release();
    }
    all
}
