//! The rank of the right partner among all nodes, filtered: exact, and never a matrix of all scores.
//!
//! A link asks two questions: for its tail, and for its head. rank = 1 + #{higher scores} + ½·#{equal scores}, of all
//! nodes but those that are known to be right as well, in any part of the split.
//!
//! Rows of nodes stay on their ranks. The given ends of a block of questions are brought together, a row each, and so
//! are the right partners; every rank then counts the higher and the equal scores among its own rows, less those of its
//! known partners, and one sum over ranks of two integers a question ends the block. A score is a function of two rows
//! alone, so counts are the same on any ranks. Beside the rows that takes some numbers per question of a block: with
//! 10⁵ questions and 10⁷ nodes as much as with few. Where scores are plain products, the device [counts](ranks), a lot
//! of rows after another.

use std::ops::Range;

use graphweft_model::Total;
use graphweft_model::decoders::{HostDecoder, LANES};
use graphweft_tensor::ops::ranks::{GROUP, Queries, higher_and_equal};
use graphweft_tensor::{DType, Matrix, Tag};
use rayon::prelude::*;

use super::Places;
use super::known::{Known, Question};
use crate::epochs::watch::Watch;
use crate::error::{Error, Result};
use crate::ranks::rank::Rank;

/// Questions that are looked at together.
const BLOCK: usize = 512;
/// Rows of nodes that stay in cache while the questions of a block are gone through.
const ROWS: usize = 64;
/// Bytes of the rows, in f64, that a device compares with a block at a time.
const LOT: usize = 1 << 26;

/// What questions are answered from, on one rank.
pub(super) struct Ranking<'a> {
    pub(super) rank: &'a Rank,
    pub(super) places: &'a Places,
    /// How many rows each rank has.
    pub(super) counts: &'a [usize],
    pub(super) known: &'a Known,
    pub(super) decoder: &'a dyn HostDecoder,
    /// Relations of the data, where each has a second row for the way back.
    pub(super) reciprocal: Option<u32>,
    pub(super) watch: Option<&'a Watch>,
}

/// Rows of this rank, as they are stored.
struct Rows {
    values: Values,
    columns: usize,
    /// Their places among those of all ranks.
    own: Range<usize>,
}

enum Values {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl Rows {
    fn count(&self) -> usize {
        self.own.len()
    }

    /// Some rows, in f64.
    fn wide(&self, rows: Range<usize>) -> Vec<f64> {
        let range = rows.start * self.columns..rows.end * self.columns;
        match &self.values {
            Values::Single(all) => all[range].iter().map(|x| f64::from(*x)).collect(),
            Values::Double(all) => all[range].to_vec(),
        }
    }
}

/// Rows as metrics take them.
fn plain(m: &Matrix) -> Result<Matrix> {
    let dtype = if m.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    Ok(m.device().convert("metrics", m, dtype)?)
}

/// How many of these rows score higher than the right partner, and how many the same, question by question, where
/// scores are products.
fn counts_on_device(rows: &Matrix, asked: &[Asked]) -> Result<Vec<i64>> {
    let size = [asked.len(), rows.cols()];
    let queries = Queries::new(rows.device(), size, |k| &asked[k].query, |k| asked[k].right)?;
    let mut counts = vec![0; 2 * asked.len()];
    compare(rows, &queries, |found| {
        for piece in found.to_vec::<f64>()?.chunks(asked.len().next_multiple_of(GROUP)) {
            for (counts, found) in counts.chunks_exact_mut(2).zip(piece) {
                let [higher, equal] = higher_and_equal(*found);
                counts[0] += higher;
                counts[1] += equal;
            }
        }
        Ok(())
    })?;
    Ok(counts)
}

/// Compares a lot of rows after another.
fn compare(rows: &Matrix, queries: &Queries, mut take: impl FnMut(&Matrix) -> Result<()>) -> Result<()> {
    let (device, columns) = (rows.device(), rows.cols());
    let most = (LOT / (size_of::<f64>() * columns.max(1))).max(1);
    for first in (0..rows.rows()).step_by(most) {
        let count = most.min(rows.rows() - first);
        let mut lot = rows.clone();
        if count < rows.rows() {
            lot = device.uninit("ranks", count, columns, rows.dtype(), Tag::Workspace)?;
            device.backend().copy_part(rows, first * columns, &mut lot, 0, count * columns)?;
        }
        if lot.dtype() != DType::F64 {
            lot = device.convert("ranks", &lot, DType::F64)?;
        }
        take(&queries.compare(&lot)?)?;
    }
    Ok(())
}

/// Takes the memory that ranks of so many questions take, where scores are products.
pub(super) fn rehearse(rows: &Matrix, questions: usize) -> Result<()> {
    drop(plain(rows)?);
    let queries = Queries::new(rows.device(), [questions.min(BLOCK), rows.cols()], |_| &[], |_| 0.0)?;
    compare(rows, &queries, |_| Ok(()))
}

/// A question with its query, and what the right answer scores.
struct Asked {
    query: Vec<f64>,
    right: f64,
}

impl Ranking<'_> {
    /// The rank of each question's partner.
    ///
    /// # Errors
    /// [`Error::NotScored`], on all ranks, if a row is not finite.
    pub(super) fn ranks(&self, on_device: &Matrix, questions: &[Question]) -> Result<Vec<f64>> {
        let rows = self.rows(on_device)?;
        let mut found = Vec::with_capacity(questions.len());
        for block in questions.chunks(BLOCK) {
            found.extend(self.block(on_device, &rows, block)?);
            self.watch.inspect(|watch| watch.add(block.len() as u64));
        }
        Ok(found)
    }

    fn rows(&self, m: &Matrix) -> Result<Rows> {
        let plain = plain(m)?;
        let values = match plain.dtype() {
            DType::F64 => Values::Double(plain.to_vec()?),
            _ => Values::Single(plain.to_vec()?),
        };
        let lost = match &values {
            Values::Single(all) => all.iter().filter(|x| !x.is_finite()).count(),
            Values::Double(all) => all.iter().filter(|x| !x.is_finite()).count(),
        };
        let lost = self.rank.sum(Total::Metrics, &[lost as f64])?[0];
        if lost > 0.0 {
            return Err(Error::NotScored { nodes: lost as u64 });
        }
        let before = self.counts[..self.rank.index()].iter().sum::<usize>();
        Ok(Rows { values, columns: m.cols(), own: before..before + m.rows() })
    }

    /// Rows of nodes, wherever they are.
    fn brought(&self, rows: &Rows, nodes: impl Iterator<Item = u64>) -> Result<Vec<f64>> {
        let mut all = Vec::new();
        for node in nodes {
            let (place, from) = (self.places.of(node) as usize, all.len());
            all.resize(from + rows.columns, 0.0);
            if rows.own.contains(&place) {
                let at = place - rows.own.start;
                all[from..].copy_from_slice(&rows.wide(at..at + 1));
            }
        }
        // One rank has each; the others add zeros.
        self.rank.sum(Total::Metrics, &all)
    }

    fn block(&self, on_device: &Matrix, rows: &Rows, block: &[Question]) -> Result<Vec<f64>> {
        let given = self.brought(rows, block.iter().map(|question| question.given))?;
        let partners = self.brought(rows, block.iter().map(|question| question.partner))?;
        let row = |of: &[f64], k: usize| of[k * rows.columns..][..rows.columns].to_vec();
        let asked = |(k, question): (usize, &Question)| {
            let (relation, missing) = question.of_decoder(self.reciprocal);
            let query = self.decoder.query(&row(&given, k), relation, missing);
            let right = self.score(&query, &row(&partners, k));
            Asked { query, right }
        };
        let asked: Vec<Asked> = block.iter().enumerate().map(asked).collect();
        let mut counts = match self.decoder.is_product() {
            true => counts_on_device(on_device, &asked)?,
            false => self.counts_of_all(rows, &asked),
        };
        for (k, question) in block.iter().enumerate() {
            let own = self.counts_of_known(rows, question, &asked[k]);
            (counts[2 * k], counts[2 * k + 1]) = (counts[2 * k] - own[0], counts[2 * k + 1] - own[1]);
        }
        let counts = self.rank.sum(Total::Metrics, &counts.iter().map(|count| *count as f64).collect::<Vec<_>>())?;
        Ok(counts.chunks_exact(2).map(|count| 1.0 + count[0] + 0.5 * count[1]).collect())
    }

    fn score(&self, query: &[f64], partner: &[f64]) -> f64 {
        self.decoder.finish(self.decoder.add(0.0, query, partner))
    }

    /// How many of this rank's rows score higher than the right partner, and how many the same, question by question.
    fn counts_of_all(&self, rows: &Rows, asked: &[Asked]) -> Vec<i64> {
        // Column by column, the numbers of several queries side by side.
        let interleaved = |lanes: &[Asked]| -> Vec<[f64; LANES]> {
            let number = |column: usize, lane: usize| lanes.get(lane).map_or(0.0, |asked| asked.query[column]);
            (0..asked[0].query.len()).map(|column| std::array::from_fn(|lane| number(column, lane))).collect()
        };
        let queries: Vec<Vec<[f64; LANES]>> = asked.chunks(LANES).map(interleaved).collect();
        let pieces = (0..rows.count().div_ceil(ROWS)).into_par_iter();
        let count = |mut counts: Vec<i64>, piece: usize| {
            let own = rows.wide(piece * ROWS..rows.count().min((piece + 1) * ROWS));
            for (group, queries) in queries.iter().enumerate() {
                for partner in own.chunks_exact(rows.columns) {
                    let mut sums = [0.0; LANES];
                    self.decoder.add_lanes(&mut sums, queries, partner);
                    for (asked, (k, sum)) in asked[group * LANES..].iter().zip((group * LANES..).zip(sums)) {
                        let score = self.decoder.finish(sum);
                        counts[2 * k] += i64::from(score > asked.right);
                        counts[2 * k + 1] += i64::from(score == asked.right);
                    }
                }
            }
            counts
        };
        let none = || vec![0; 2 * asked.len()];
        let add = |mut a: Vec<i64>, b: Vec<i64>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        pieces.fold(none, count).reduce(none, add)
    }

    /// The same of the partners that are known, the right one among them.
    fn counts_of_known(&self, rows: &Rows, question: &Question, asked: &Asked) -> [i64; 2] {
        let Question { given, relation, missing, partner } = *question;
        let known = self.known.partners(given, relation, missing).iter().map(|[.., node]| u64::from(*node));
        let mut counts = [0, 0];
        // The right one counts as known, whatever the filter has.
        for node in known.filter(|node| *node != partner).chain([partner]) {
            let place = self.places.of(node) as usize;
            if rows.own.contains(&place) {
                let at = place - rows.own.start;
                let score = self.score(&asked.query, &rows.wide(at..at + 1));
                counts[0] += i64::from(score > asked.right);
                counts[1] += i64::from(score == asked.right);
            }
        }
        counts
    }
}
