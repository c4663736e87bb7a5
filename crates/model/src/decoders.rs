//! Decoders: what scores a link, from the rows that an encoder gives its ends, and its relation.
//!
//! A decoder makes a *query* of one end and the relation, and compares it with rows of possible other ends. So one
//! query is scored against few partners or all nodes alike. Rows of relations are learned here. A decoder is a file in
//! this folder and its line in [`DecoderName`]; each also scores on the host, in f64 and column by column, which is
//! what evaluation and predictions go by: the order of sums there depends on nothing but the columns.

mod complex;
mod distance;
mod distmult;
mod dot;
pub mod losses;
mod mlp;
mod rotate;
mod transe;
pub mod variational;

use std::rc::Rc;

use graphweft_tensor::ops::dropout::{RowDropout, dropout};
use graphweft_tensor::ops::head_dot::head_dot;
use graphweft_tensor::ops::matmul::times_rows;
use graphweft_tensor::ops::product::product;
use graphweft_tensor::ops::rows::{RowIndex, gather};
use graphweft_tensor::{DType, Dropout, Error, Ids, Matrix, Parameter, Result, Tag, Tape, Var};
use serde::{Deserialize, Serialize};

use crate::init::Init;

const OP: &str = "decoder";
/// Queries that are compared with a row at once on the host.
pub const LANES: usize = 8;

/// The decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DecoderName {
    Dot,
    Mlp,
    DistMult,
    ComplEx,
    TransE,
    RotatE,
}

impl DecoderName {
    /// Whether it tells relations apart.
    pub fn reads_relations(self) -> bool {
        !matches!(self, Self::Dot | Self::Mlp)
    }

    /// Whether a query can be compared with all nodes while it is learned.
    pub fn compares_all(self) -> bool {
        matches!(self, Self::Dot | Self::DistMult | Self::ComplEx)
    }
}

/// What a decoder must know to be built.
#[derive(Clone, Copy, Debug)]
pub struct DecoderShape {
    /// Columns of the rows of nodes.
    pub columns: usize,
    /// Rows of relations; twice as many as there are relations, where each has one for the way back.
    pub relations: usize,
    /// Columns between the layers of an MLP.
    pub hidden: usize,
    /// Its layers.
    pub layers: usize,
    /// What distances are subtracted from.
    pub margin: f64,
}

/// Which end is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The given end is the head.
    Tail,
    /// The given end is the tail.
    Head,
}

/// Some queries: rows of given ends, each with a relation.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// A row per query.
    pub given: &'a Var,
    /// The relation of each, as a row of those that the decoder has; nothing where there are none.
    pub relations: &'a [u32],
    /// Which end is asked for.
    pub missing: Missing,
    /// Of the rows of relations.
    pub dropout: Option<Dropout>,
}

/// Scores links.
pub trait Decoder {
    /// What is trained.
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        Vec::new()
    }

    /// What partners are compared with: a row per query.
    fn query(&self, tape: &mut Tape, asked: Asked<'_>) -> Result<Var>;

    /// The score of each query with the partner in the same row.
    fn pairs(&self, tape: &mut Tape, query: &Var, partners: &Var) -> Result<Var> {
        let both = product(tape, query, 0.0, partners)?;
        row_sums(tape, &both)
    }

    /// The score of each query with each of the partners: a row per query.
    ///
    /// # Errors
    /// If this decoder compares pairs only.
    fn all(&self, tape: &mut Tape, query: &Var, partners: &Var) -> Result<Var> {
        times_rows(tape, query, partners)
    }

    /// The same on the host, with the parameters as they are.
    fn on_host(&self) -> Result<Box<dyn HostDecoder>>;
}

/// Scores links on the host, where evaluation does.
pub trait HostDecoder: Send + Sync {
    /// As [`Decoder::query`], of one row.
    fn query(&self, given: &[f64], relation: u32, missing: Missing) -> Vec<f64>;

    /// Adds what some columns of a partner's row say, from column `first` on, to the score so far.
    fn add(&self, score: f64, query: &[f64], partner: &[f64]) -> f64;

    /// The same for several queries at once, whose columns stand side by side: the same sums in the same order.
    fn add_lanes(&self, scores: &mut [f64; LANES], queries: &[[f64; LANES]], partner: &[f64]) {
        for (lane, score) in scores.iter_mut().enumerate() {
            let query: Vec<f64> = queries.iter().map(|column| column[lane]).collect();
            *score = self.add(*score, &query, partner);
        }
    }

    /// The score, from what all columns have added.
    fn finish(&self, sum: f64) -> f64 {
        sum
    }

    /// Whether columns may be looked at some at a time.
    fn by_columns(&self) -> bool {
        false
    }

    /// Whether a score is the plain product of a query with a row, which devices compare many of.
    fn is_product(&self) -> bool {
        false
    }
}

impl DecoderName {
    /// Builds it, with initial numbers.
    ///
    /// # Errors
    /// If rows have a number of columns that it cannot take.
    pub fn build(self, init: &Init<'_>, shape: &DecoderShape) -> Result<Rc<dyn Decoder>> {
        Ok(match self {
            Self::Dot => Rc::new(dot::Dot),
            Self::Mlp => Rc::new(mlp::Mlp::new(init, shape)?),
            Self::DistMult => Rc::new(distmult::DistMult::new(init, shape)?),
            Self::ComplEx => Rc::new(complex::ComplEx::new(init, shape)?),
            Self::TransE => Rc::new(transe::TransE::new(init, shape)?),
            Self::RotatE => Rc::new(rotate::RotatE::new(init, shape)?),
        })
    }
}

/// Rows of relations.
struct Relations(Rc<Parameter>);

impl Relations {
    /// Called `decoder.relations`, between −`bound` and `bound`.
    fn new(init: &Init<'_>, rows: usize, columns: usize, bound: f64) -> Result<Self> {
        Ok(Self(init.uniform("decoder.relations", rows, columns, bound)?))
    }

    /// Glorot's numbers.
    fn glorot(init: &Init<'_>, shape: &DecoderShape) -> Result<Self> {
        let bound = (6.0 / (shape.relations + shape.columns) as f64).sqrt();
        Self::new(init, shape.relations, shape.columns, bound)
    }

    /// The row of each query.
    fn of(&self, tape: &mut Tape, asked: &Asked<'_>) -> Result<Var> {
        let table = tape.parameter(&self.0);
        self.listed(tape, &table, asked)
    }

    /// The same of a table that was made of theirs.
    fn listed(&self, tape: &mut Tape, table: &Var, asked: &Asked<'_>) -> Result<Var> {
        let dropped = match asked.dropout {
            Some(drop) => dropout(tape, table, &RowDropout { dropout: drop, ids: Ids::Same })?,
            None => table.clone(),
        };
        let device = tape.device().clone();
        let index = Rc::new(RowIndex::drawn(&device, table.value().rows(), asked.relations.to_vec())?);
        gather(tape, &dropped, &index)
    }

    /// All numbers, on the host.
    fn numbers(&self) -> Result<Numbers> {
        Numbers::of(&self.0.value())
    }
}

/// A matrix on the host.
struct Numbers {
    values: Vec<f64>,
    columns: usize,
}

impl Numbers {
    fn of(m: &Matrix) -> Result<Self> {
        let wide = m.device().convert(OP, m, DType::F64)?;
        Ok(Self { values: wide.to_vec()?, columns: m.cols() })
    }

    fn row(&self, row: u32) -> &[f64] {
        &self.values[row as usize * self.columns..][..self.columns]
    }
}

/// The sum of each row: a column.
fn row_sums(tape: &mut Tape, x: &Var) -> Result<Var> {
    let (cols, device) = (x.value().cols(), tape.device().clone());
    let ones = device.upload(1, cols, &vec![1.0f64; cols], Tag::Workspace)?;
    let ones = tape.constant(device.convert(OP, &ones, x.value().dtype().compute())?);
    let [sums] = head_dot(tape, x, [&ones])?;
    Ok(sums)
}

/// The products of two rows, added up column by column.
fn add_products(score: f64, query: &[f64], partner: &[f64]) -> f64 {
    query.iter().zip(partner).fold(score, |sum, (a, b)| sum + a * b)
}

/// Half of the columns: what is real, or imaginary.
fn half(decoder: &'static str, columns: usize) -> Result<usize> {
    if columns.is_multiple_of(2) && columns > 0 {
        return Ok(columns / 2);
    }
    let problem = format!("{decoder} takes an even number of columns, half of them imaginary: {columns} are none");
    Err(Error::Argument { op: OP, problem })
}

#[cfg(test)]
mod tests;
