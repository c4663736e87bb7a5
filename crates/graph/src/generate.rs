//! Graphs made to order: any size, in parallel, the same bytes for the same seed.
//!
//! A [`Spec`] is written as a short text that works wherever a graph is asked for:
//!
//! ```text
//! rmat:S:D          R-MAT: 2^S nodes, D·2^(S−1) draws; hubs, communities, a heavy tail
//!                   (keys: f feature columns, c classes: labels, features and a split that edges know nothing of)
//! sbm:N:C:D         block model: N nodes in C classes, about D edges per node; with features, labels and a split
//!                   (keys, as in sbm:1000:5:10:h=0.9: h homophily, f feature columns, snr signal to noise)
//! grid:R:C          R rows of C nodes, each joined to its four neighbours
//! ba:N:M            Barabási–Albert: each new node joins M earlier ones, by degree
//! …+loops           any of these with one self-loop on every node
//! ```
//!
//! All of them are undirected and simple: each edge is stored both ways and once. Every draw is a pure function of the
//! seed and its number ([`graphweft_base::random`]), so that draws can be repeated instead of remembered: `counting.rs`
//! makes them twice and builds the CSR in place, with no edge list. One file per generator; each implements the trait
//! `Draws`.

mod barabasi_albert;
mod block_model;
mod counting;
mod fields;
mod grid;
mod rmat;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use graphweft_base::progress::Progress;
use graphweft_base::{Error, Result, room};

use self::barabasi_albert::BarabasiAlbert;
use self::block_model::BlockModel;
use self::counting::{Draws, peak_bytes, symmetric_csr};
use self::fields::Fields;
use self::grid::Grid;
use self::rmat::Rmat;
use crate::csr::{Csr, SelfLoops};
use crate::dataset::{DatasetWriter, Features, Labels, Meta, Split};

/// Ids of generated graphs have 32 bits.
const MOST_NODES: u64 = 1 << 32;
/// More edges per node than any use has; keeps every product below 2⁶⁴.
const MOST_DEGREE: u64 = 1 << 20;

const SMALLER: &str = "ask for fewer nodes, a smaller degree or fewer features, or use a machine with more memory";
const LOOPS: &str = "+loops";

/// What can be written, as shown with every error.
const GRAMMAR: &str = "    rmat:S:D     2^S nodes, D·2^(S−1) undirected draws; optionally :f=32 :c=8
    sbm:N:C:D    N nodes in C classes, about D edges per node; optionally :h=0.7 :f=64 :snr=1.5
    grid:R:C     R rows of C nodes
    ba:N:M       N nodes, M edges per new node
  each optionally followed by +loops";

/// A graph to be made.
///
/// ```
/// use graphweft_graph::generate::Spec;
/// use graphweft_base::progress::Silent;
/// let spec: Spec = "grid:2:3".parse()?;
/// let g = spec.graph(0, &Silent)?;
/// assert_eq!(g.row(1), [0, 2, 4]);
/// # Ok::<(), graphweft_base::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    kind: Kind,
    /// Added, or those that were drawn removed.
    loops: SelfLoops,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Rmat(Rmat),
    BlockModel(BlockModel),
    Grid(Grid),
    BarabasiAlbert(BarabasiAlbert),
}

/// What random numbers are for; each purpose has a stream of its own.
#[derive(Clone, Copy)]
enum Stream {
    Edges,
    Order,
    Means,
    Noise,
    Split,
}

impl Stream {
    const fn number(self) -> u64 {
        self as u64
    }
}

/// Runs the same expression on the draws of whichever generator it is.
macro_rules! with_draws {
    ($spec:expr, $seed:expr, $draws:ident => $body:expr) => {
        match &$spec.kind {
            Kind::Rmat(k) => {
                let $draws = &k.draws($seed);
                $body
            }
            Kind::BlockModel(k) => {
                let $draws = &k.draws($seed);
                $body
            }
            Kind::Grid($draws) => $body,
            Kind::BarabasiAlbert(k) => {
                let $draws = &k.draws($seed);
                $body
            }
        }
    };
}

impl Spec {
    /// Makes the graph.
    ///
    /// # Errors
    /// [`Error::Memory`] if it needs more memory than there is.
    pub fn graph(&self, seed: u64, progress: &dyn Progress) -> Result<Csr<u32>> {
        with_draws!(self, seed, draws => {
            self.check_memory(draws)?;
            symmetric_csr(draws, self.loops, progress)
        })
    }

    /// Makes the graph, with features, labels and a split where the generator has them, and writes it as a dataset
    /// folder.
    ///
    /// # Errors
    /// As [`Spec::graph`]; [`Error::Request`] if `dir` exists; [`Error::Write`] if it cannot be written.
    pub fn write(&self, seed: u64, dir: impl AsRef<Path>, progress: &dyn Progress) -> Result<Meta> {
        let (dir, what) = (dir.as_ref(), format!("writing {self}"));
        let out = DatasetWriter::create(dir)?;
        // What is known before the edges are, then all of it.
        let beside = self.bytes_beside();
        let nodes = with_draws!(self, seed, draws => self.check_memory(draws).map(|()| draws.num_nodes()))?;
        room::check_disk(&what, dir, beside + 8 * u128::from(nodes))?;
        let graph = self.graph(seed, progress)?;
        room::check_disk(&what, dir, beside + u128::from(graph.bytes()))?;
        let mut meta = Meta::of(&self.to_string(), &graph, true);
        (meta.num_features, meta.num_classes) = (self.num_features(), self.num_classes());
        out.graph(&graph.into())?;
        if let Some(task) = self.task() {
            task.write(seed, &out)?;
        }
        out.finish(&meta)?;
        Ok(meta)
    }

    /// What can be learned about the nodes, if the generator makes anything of that kind.
    fn task(&self) -> Option<&BlockModel> {
        match &self.kind {
            Kind::BlockModel(model) => Some(model),
            Kind::Rmat(rmat) => rmat.task(),
            Kind::Grid(_) | Kind::BarabasiAlbert(_) => None,
        }
    }

    /// The labels that the graph of this seed has, if the generator makes any.
    pub fn labels(&self, seed: u64) -> Option<Labels> {
        self.task().map(|task| Labels::Single(task.labels(seed).into()))
    }

    /// The features that the graph of this seed has, if the generator makes any.
    pub fn features(&self, seed: u64) -> Option<Features> {
        self.task().map(|task| Features::Dense(task.features(seed)))
    }

    /// The split that the graph of this seed has, if the generator makes any.
    pub fn split(&self, seed: u64) -> Option<Split> {
        self.task().map(|task| task.split(seed))
    }

    /// Columns of the features that [`Spec::write`] makes; 0 if it makes none.
    pub fn num_features(&self) -> usize {
        self.task().map_or(0, BlockModel::width)
    }

    /// Classes of the labels; 0 if there are none.
    pub fn num_classes(&self) -> usize {
        self.task().map_or(0, BlockModel::classes)
    }

    /// Whether the graph fits into memory with its features, labels and split, to be asked before any of them is made.
    ///
    /// # Errors
    /// [`Error::Memory`] if it does not.
    pub fn check_whole(&self) -> Result<()> {
        with_draws!(self, 0, draws => {
            let graph = peak_bytes(draws.num_nodes(), draws.len(), self.loops);
            room::check_memory(format!("generating {self}"), graph + self.bytes_beside(), SMALLER)
        })
    }

    /// Bytes of features, labels and split.
    fn bytes_beside(&self) -> u128 {
        self.task().map_or(0, |task| task.num_nodes() * (4 * task.width() as u128 + 16))
    }

    fn check_memory(&self, draws: &impl Draws) -> Result<()> {
        let needed = peak_bytes(draws.num_nodes(), draws.len(), self.loops);
        room::check_memory(format!("generating {self}"), needed, SMALLER)
    }
}

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (body, loops) = match text.split_once('+') {
            Some((body, suffix)) if suffix == &LOOPS[1..] => (body, SelfLoops::Add),
            Some((_, suffix)) => {
                return Err(fields::error(text, format_args!("there is no suffix \"+{suffix}\", only {LOOPS:?}")));
            }
            None => (text, SelfLoops::Remove),
        };
        let (name, fields) = Fields::split(text, body);
        let kind = match name {
            "rmat" => Kind::Rmat(Rmat::parse(fields)?),
            "sbm" => Kind::BlockModel(BlockModel::parse(fields)?),
            "grid" => Kind::Grid(Grid::parse(fields)?),
            "ba" => Kind::BarabasiAlbert(BarabasiAlbert::parse(fields)?),
            _ => return Err(fields.error(format_args!("there is no generator {name:?}"))),
        };
        Ok(Self { kind, loops })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Rmat(k) => k.fmt(f),
            Kind::BlockModel(k) => k.fmt(f),
            Kind::Grid(k) => k.fmt(f),
            Kind::BarabasiAlbert(k) => k.fmt(f),
        }?;
        f.write_str(if self.loops == SelfLoops::Add { LOOPS } else { "" })
    }
}

#[cfg(test)]
mod tests;
