//! Scores of links beside those of pairs that are none, and of ranks.
//!
//! Scores compare the links of a part with the pairs that the split gives against them or, where it gives none, with as
//! many that are drawn once; of the links of training as many are scored as there are to choose by. They are computed
//! in f64, every rank some of them, and put together in the order of the split: a metric sees the same list on any
//! ranks. Where a decoder looks at columns one by one, ranks get some columns of all rows after others, as many as
//! [`LOT`] has room for: what a score takes beside the pairs does not grow with N × columns.

use graphweft_model::Total;
use graphweft_model::decoders::{HostDecoder, Missing};
use graphweft_tensor::ops::combine::columns;
use graphweft_tensor::{DType, Matrix, Tape};
use rayon::prelude::*;

use super::Links;
use super::known::{Link, Question};
use super::others::TEST;
use super::ranking::Ranking;
use crate::epochs::watch::Watch;
use crate::error::{Error, Result};
use crate::run::checkpoint::Scores;
use crate::task::metrics::{Measure, Metric, Scale};

/// Bytes of the columns that are looked at together while pairs are scored.
const LOT: usize = 1 << 26;
/// Links of training whose ends are ranked, at most.
const RANKED: usize = 1000;

/// What is scored.
#[derive(Clone, Copy)]
pub(super) struct Scored<'a> {
    /// This rank's.
    pub(super) rows: &'a Matrix,
    pub(super) decoder: &'a dyn HostDecoder,
    pub(super) watch: Option<&'a Watch>,
}

/// How many columns a decoder looks at together.
#[derive(Clone, Copy)]
pub(super) enum ColumnsAtOnce {
    Some,
    All,
}

impl Links {
    /// Gives `take` all rows for scores, in f64: so many columns of them after others, or all.
    pub(super) fn by_columns(
        &self,
        rows: &Matrix,
        width: ColumnsAtOnce,
        mut take: impl FnMut(&Matrix) -> Result<()>,
    ) -> Result<()> {
        let nodes = self.counts.iter().sum::<usize>().max(1);
        let width = match width {
            ColumnsAtOnce::Some => (LOT / (size_of::<f64>() * nodes)).clamp(1, rows.cols().max(1)),
            ColumnsAtOnce::All => rows.cols().max(1),
        };
        for first in (0..rows.cols()).step_by(width) {
            let range = first..rows.cols().min(first + width);
            let mut tape = Tape::without_gradients(rows.device());
            let some = tape.constant(rows.clone());
            let some = if range.len() < rows.cols() { columns(&mut tape, &some, range.clone())? } else { some };
            let all = self.gathered(&mut tape, &some)?;
            let wide = rows.device().convert("metrics", all.value(), DType::F64)?;
            drop((tape, some, all));
            take(&wide)?;
        }
        Ok(())
    }

    /// The scores of all parts, by a metric.
    pub(super) fn scores(&self, metric: &'static Metric, scored: &Scored<'_>, epoch: u64) -> Result<Scores> {
        match metric.measure {
            Measure::Ranks { score } => self.scores_of_ranks(score, scored, epoch),
            _ => self.scores_of_pairs(metric, scored, epoch),
        }
    }

    fn scores_of_ranks(&self, score: fn(f64) -> f64, scored: &Scored<'_>, epoch: u64) -> Result<Scores> {
        let Scored { rows, decoder, watch } = *scored;
        let (split, width) = (&self.split, self.split.width);
        let ranking = Ranking {
            rank: &self.rank,
            places: &self.places,
            counts: &self.counts,
            known: &self.known,
            decoder,
            reciprocal: self.reciprocal(),
            watch,
        };
        let some = some_of(&split.train, width, (split.valid.len() / width).min(RANKED));
        let asked = [&some[..], &split.valid[..], &split.test[..]].map(|list| 2 * (list.len() / width) as u64);
        watch.inspect(|watch| watch.begin(asked.iter().sum()));
        let ranks = |list: &[i64]| {
            let all = (0..list.len() / width).map(|k| Link::of(list, width, k));
            let both = |link: Link| [Missing::Tail, Missing::Head].map(|missing| link.ask(missing));
            ranking.ranks(rows, &all.flat_map(both).collect::<Vec<Question>>())
        };
        let [train, valid, test] = [ranks(&some)?, ranks(&split.valid)?, ranks(&split.test)?];
        let mean =
            |ranks: &[f64], of: fn(f64) -> f64| ranks.iter().map(|rank| of(*rank)).sum::<f64>() / ranks.len() as f64;
        let share = |ranks: &[f64]| 100.0 * mean(ranks, score);
        // In place of a loss: the mean logarithm of a rank.
        let valid_loss = mean(&valid, f64::ln);
        Ok(Scores { epoch, train: share(&train), valid: share(&valid), test: share(&test), valid_loss })
    }

    fn scores_of_pairs(&self, metric: &'static Metric, scored: &Scored<'_>, epoch: u64) -> Result<Scores> {
        let Scored { rows, decoder, .. } = *scored;
        let split = &self.split;
        let some = some_of(&split.train, 2, split.valid.len() / 2);
        let valid_neg = self.others.against(split.valid_neg.as_deref(), split.valid.len() / 2, 1);
        let test_neg = self.others.against(split.test_neg.as_deref(), split.test.len() / 2, TEST);
        let train_neg = self.others.against(None, some.len() / 2, 0);
        let lists = [&some, &train_neg, &split.valid[..], &valid_neg, &split.test[..], &test_neg];
        let [train, train_neg, valid, valid_neg, test, test_neg] = self.ranked(rows, decoder, lists)?;
        let parts = [(train, train_neg), (valid, valid_neg), (test, test_neg)];
        let [train, valid, test] = parts.map(|(positive, negative)| Part { positive, negative });
        // Every rank has the same list.
        let lost = [&train, &valid, &test].iter().map(|part| part.not_finite()).sum::<usize>();
        if lost > 0 {
            return Err(Error::NotScored { nodes: lost as u64 });
        }
        let score = |of: &Part| of.score(metric);
        Ok(Scores { epoch, train: score(&train), valid: score(&valid), test: score(&test), valid_loss: valid.loss() })
    }

    /// The scores of lists of pairs.
    fn ranked<const K: usize>(
        &self,
        rows: &Matrix,
        decoder: &dyn HostDecoder,
        lists: [&[i64]; K],
    ) -> Result<[Vec<f64>; K]> {
        let own = lists.map(|pairs| self.own(pairs.len() / 2));
        let mut found = own.clone().map(|own| vec![0.0; own.len()]);
        let places = &self.places;
        let width = if decoder.by_columns() { ColumnsAtOnce::Some } else { ColumnsAtOnce::All };
        self.by_columns(rows, width, |some| {
            let (all, cols) = (some.to_vec::<f64>()?, some.cols());
            let row = |id: i64| &all[places.of(id as u64) as usize * cols..][..cols];
            for ((found, own), pairs) in found.iter_mut().zip(&own).zip(lists) {
                found.par_iter_mut().zip(own.clone()).for_each(|(score, k)| {
                    let query = decoder.query(row(pairs[2 * k]), 0, Missing::Tail);
                    // Column after column, however many there are at a time.
                    *score = decoder.add(*score, &query, row(pairs[2 * k + 1]));
                });
            }
            Ok(())
        })?;
        let mut scores = lists.map(|pairs| vec![0.0; pairs.len() / 2]);
        for ((scores, own), found) in scores.iter_mut().zip(own).zip(found) {
            let finished: Vec<f64> = found.into_iter().map(|sum| decoder.finish(sum)).collect();
            scores[own].copy_from_slice(&finished);
            // Nobody has a part of an empty list.
            if !scores.is_empty() {
                *scores = self.rank.sum(Total::Metrics, scores)?;
            }
        }
        Ok(scores)
    }
}

/// So many links at most, spread evenly.
pub(super) fn some_of(links: &[i64], width: usize, most: usize) -> Vec<i64> {
    let count = links.len() / width;
    let taken = count.min(most);
    (0..taken).flat_map(|k| links[width * (k * count / taken)..][..width].to_vec()).collect()
}

/// Scores of a part.
struct Part {
    positive: Vec<f64>,
    negative: Vec<f64>,
}

impl Part {
    fn not_finite(&self) -> usize {
        self.positive.iter().chain(&self.negative).filter(|score| !score.is_finite()).count()
    }

    fn score(&self, metric: &Metric) -> f64 {
        let kinds = [(&self.positive, true), (&self.negative, false)];
        let list: Vec<(f64, bool)> = kinds.iter().flat_map(|(all, kind)| all.iter().map(|s| (*s, *kind))).collect();
        let found = match metric.measure {
            Measure::Ranking { score, .. } => score(&list).unwrap_or(f64::NAN),
            Measure::Sums { .. } | Measure::Ranks { .. } => f64::NAN,
        };
        if metric.scale == Scale::PerCent { 100.0 * found } else { found }
    }

    /// The mean over links plus the mean over pairs against them.
    fn loss(&self) -> f64 {
        let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let mean = |all: &[f64], sign: f64| all.iter().map(|x| softplus(sign * x)).sum::<f64>() / all.len() as f64;
        mean(&self.positive, -1.0) + mean(&self.negative, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_links_of_training_some_are_scored_evenly() {
        let all: Vec<i64> = (0..20).collect();
        assert_eq!(some_of(&all, 2, 3), [0, 1, 6, 7, 12, 13]);
        assert_eq!(some_of(&all, 2, 30), all);
        assert!(some_of(&[], 2, 3).is_empty());
    }
}
