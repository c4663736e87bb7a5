//! How links are told from pairs that are none: the scores of both, as the run has scored them.

use graphweft_train::data::Data;
use graphweft_train::task::{Measure, Scale};
use serde_json::{Value, json};

use super::{DEGREES, neighbours, range_name};
use crate::error::Result;

/// Bars of the picture of scores.
const BINS: usize = 40;

/// Of the test links of a split and the pairs against them, by what a model gives for every node.
pub(super) fn links(data: &Data, split: &str, outputs: &[f32]) -> Result<Value> {
    let columns = data.outputs();
    let row = |node: i64| outputs.get(node as usize * columns..(node as usize + 1) * columns).unwrap_or_default();
    let score = |pair: &[i64]| {
        let both = row(pair[0]).iter().zip(row(pair[1]));
        both.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
    };
    let pairs = data.tested_pairs(split)?;
    let [links, others] = [0, 1].map(|k: usize| pairs[k].chunks_exact(2).map(score).collect::<Vec<f64>>());
    if links.iter().chain(&others).any(|score| !score.is_finite()) {
        return Ok(Value::Null);
    }
    let degree = |pair: &[i64]| [0, 1].map(|end: usize| neighbours(&data.graph, pair[end] as usize)).into_iter().min();
    let degrees = pairs[0].chunks_exact(2).map(|pair| degree(pair).unwrap_or(0)).collect();
    let tested = Tested { links, others, degrees };
    Ok(json!({
        "items": "links", "tested": tested.links.len(), "others": tested.others.len(),
        "drawn": data.links.iter().any(|one| one.name == split && one.test_neg.is_none()),
        "metrics": tested.metrics(data), "histogram": tested.histogram(), "groups": [tested.by_degree()],
    }))
}

/// Scores of links and of pairs that are none.
struct Tested {
    links: Vec<f64>,
    others: Vec<f64>,
    /// For each link, the neighbours of that of its ends which has fewer.
    degrees: Vec<usize>,
}

impl Tested {
    /// Every metric that links can be scored by.
    fn metrics(&self, data: &Data) -> Vec<Value> {
        let kinds = [(&self.links, true), (&self.others, false)];
        let all: Vec<(f64, bool)> = kinds.iter().flat_map(|(all, kind)| all.iter().map(|s| (*s, *kind))).collect();
        let ranked = data.task.metrics().iter().filter_map(|metric| {
            let Measure::Ranking { score, .. } = metric.measure else { return None };
            let unit = if metric.scale == Scale::PerCent { 100.0 } else { 1.0 };
            Some(json!({"name": metric.name, "score": score(&all).map(|score| unit * score), "unit": metric.unit()}))
        });
        ranked.collect()
    }

    /// How many links, and how many other pairs, have about which score.
    fn histogram(&self) -> Value {
        let all = || self.links.iter().chain(&self.others).copied();
        let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        if low >= high {
            return Value::Null;
        }
        let place = |score: &f64| (((score - low) / (high - low) * BINS as f64) as usize).min(BINS - 1);
        let count = |scores: &[f64]| {
            let mut bins = vec![0u64; BINS];
            scores.iter().for_each(|score| bins[place(score)] += 1);
            bins
        };
        json!({"low": low, "high": high, "links": count(&self.links), "others": count(&self.others)})
    }

    /// The share of comparisons with other pairs that links win, by degree. The mean over links is the ROC-AUC.
    fn by_degree(&self) -> Value {
        let mut others = self.others.clone();
        others.sort_by(f64::total_cmp);
        let won = |score: f64| {
            let below = others.partition_point(|other| *other < score);
            let not_above = others.partition_point(|other| *other <= score);
            (below + not_above) as f64 / 2.0 / others.len() as f64
        };
        let group = |range: &std::ops::RangeInclusive<usize>| {
            let of = self.links.iter().zip(&self.degrees).filter(|(_, degree)| range.contains(degree));
            let won: Vec<f64> = of.map(|(score, _)| won(*score)).collect();
            let score = 100.0 * won.iter().sum::<f64>() / won.len() as f64;
            // Without links, or pairs to compare with, it is no number, which JSON has as null.
            json!({"name": range_name(range), "count": won.len(), "score": score})
        };
        let title = "How often a test link scores above a pair that is none, by neighbours of its end with fewer";
        json!({"title": title, "unit": "%", "rows": DEGREES.iter().map(group).collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_compared_with_other_pairs_ties_half() {
        let tested = Tested { links: vec![2.0, 1.0, 3.0], others: vec![0.0, 1.0, 2.0, 4.0], degrees: vec![1, 1, 2] };
        let groups = tested.by_degree();
        // 2 wins two and a half, 1 wins one and a half, of four each; 3 wins three.
        assert_eq!(groups["rows"][1], json!({"name": "1", "count": 2, "score": 50.0}));
        assert_eq!(groups["rows"][2], json!({"name": "2–3", "count": 1, "score": 75.0}));
        assert_eq!(groups["rows"][0]["score"], Value::Null);
        let bins = tested.histogram();
        assert_eq!((&bins["links"][20], &bins["others"][39], &bins["low"]), (&json!(1), &json!(1), &json!(0.0)));
        let same = Tested { links: vec![1.0], others: vec![1.0], degrees: vec![0] };
        assert_eq!(same.histogram(), Value::Null);
    }
}
