use std::cell::RefCell;
use std::collections::BTreeMap;

use graphweft_tensor::{Alone, Result as Computed};
use serde::Deserialize;

use super::*;
use crate::task::{Labels, NodeClass, NodeLabels, NodeRegression};

/// Made by `golden/make.py` with scikit-learn.
#[derive(Deserialize)]
struct Golden {
    kind: String,
    cols: usize,
    logits: Vec<f64>,
    labels: Vec<Option<f64>>,
    scores: BTreeMap<String, f64>,
}

fn goldens() -> Vec<Golden> {
    serde_json::from_str(include_str!("golden/scores.json")).unwrap()
}

fn whole(values: Vec<f64>, cols: usize) -> Logits {
    Logits { rows: 0..values.len() / cols, values, cols }
}

/// A task with one of its metrics and labels.
type Given<'a> = (&'static dyn Task, &'static Metric, LabelView<'a>);

fn check(score: impl Fn(Given<'_>, &Logits, usize) -> f64) {
    for (case, golden) in goldens().into_iter().enumerate() {
        let logits = whole(golden.logits, golden.cols);
        let rows = logits.rows.len();
        let numbers = || golden.labels.iter().map(|x| x.map_or(f32::NAN, |x| x as f32)).collect();
        let (task, labels): (&'static dyn Task, _) = match golden.kind.as_str() {
            "class" => {
                let classes = golden.labels.iter().map(|x| x.map_or(-1, |x| x as i64)).collect();
                (&NodeClass, Labels::Integers(classes))
            }
            "each" => (&NodeLabels, Labels::Numbers(numbers())),
            _ => (&NodeRegression, Labels::Numbers(numbers())),
        };
        let mut scored = 0;
        for metric in task.metrics() {
            if let Some(expected) = golden.scores.get(metric.name) {
                let found = score((task, metric, labels.view()), &logits, rows);
                assert!((found - expected).abs() < 1e-9, "case {case} {}: {found} {expected}", metric.name);
                scored += 1;
            }
        }
        assert_eq!(scored, golden.scores.len());
    }
}

fn scoring<'a>(given: Given<'a>, device: &'a Device, reduce: &'a dyn Reduce) -> Scoring<'a> {
    let (task, metric, labels) = given;
    Scoring { task, metric, labels, device, reduce }
}

fn all(rows: usize) -> SplitPart {
    SplitPart { rows: (0..rows as u32).collect(), places: (0..rows).collect(), total: rows }
}

#[test]
fn scores_are_those_of_scikit_learn() {
    let device = Device::cpu();
    check(|given, logits, rows| scoring(given, &device, &Alone).score(logits, &all(rows)).unwrap());
}

/// OGB's evaluator of graph properties, from the definitions: of every target those rows of which it is known, and the
/// mean over targets.
fn by_target(name: &str, x: &[f64], y: &[f32], columns: usize) -> f64 {
    let mut scores = Vec::new();
    for column in 0..columns {
        let of = |row: usize| (x[row * columns + column], y[row * columns + column]);
        let known: Vec<(f64, f64)> =
            (0..x.len() / columns).map(of).filter(|(_, y)| !y.is_nan()).map(|(x, y)| (x, f64::from(y))).collect();
        let count = known.len() as f64;
        let kind = |positive: bool| known.iter().filter(move |(_, y)| (*y == 1.0) == positive).copied();
        let [pos, neg] = [true, false].map(|positive| kind(positive).collect::<Vec<_>>());
        let least = |score: f64| known.iter().filter(move |(x, _)| *x >= score);
        scores.extend(match name {
            _ if known.is_empty() => None,
            "accuracy" => Some(known.iter().filter(|(x, y)| (*x > 0.0) == (*y > 0.5)).count() as f64 / count),
            "mae" => Some(known.iter().map(|(x, y)| (x - y).abs()).sum::<f64>() / count),
            "rmse" => Some((known.iter().map(|(x, y)| (x - y) * (x - y)).sum::<f64>() / count).sqrt()),
            _ if pos.is_empty() || neg.is_empty() => None,
            "roc-auc" => {
                let won = |p: f64, n: f64| if p > n { 1.0 } else { f64::from(u8::from(p == n)) / 2.0 };
                let all: f64 = pos.iter().map(|p| neg.iter().map(|n| won(p.0, n.0)).sum::<f64>()).sum();
                Some(all / (pos.len() * neg.len()) as f64)
            }
            // Each positive adds the precision of all that score as much as it.
            _ => {
                let precision =
                    |p: &(f64, f64)| least(p.0).filter(|(_, y)| *y == 1.0).count() as f64 / least(p.0).count() as f64;
                Some(pos.iter().map(precision).sum::<f64>() / pos.len() as f64)
            }
        });
    }
    scores.iter().sum::<f64>() / scores.len() as f64
}

#[test]
fn several_targets_with_gaps_are_scored_as_by_the_evaluator_of_ogb() {
    let device = Device::cpu();
    let (rows, columns) = (90, 6);
    let bits = |k: usize| (k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    // Few distinct scores: many are tied. Gaps are many in some columns, and one column has none of a kind.
    let x: Vec<f64> = (0..rows * columns).map(|k| (bits(k) % 9) as f64 / 4.0 - 1.0).collect();
    let gap = |k: usize| bits(k + 7000) % 10 < 2 * (k % columns) as u64;
    let label = |k: usize| if k % columns == 3 { 0.0 } else { (bits(k + 900) % 3 % 2) as f32 };
    let labels: Vec<f32> = (0..rows * columns).map(|k| if gap(k) { f32::NAN } else { label(k) }).collect();
    let numbers: Vec<f32> = labels.iter().enumerate().map(|(k, y)| y + (bits(k + 50) % 7) as f32).collect();
    let (graph_labels, graph_numbers) = (TASKS[..].iter(), TASKS[..].iter());
    let tasks = graph_labels.filter(|task| ["each", "graph-each"].contains(&task.name())).map(|task| (task, &labels));
    let more = graph_numbers.filter(|task| task.name().ends_with("regression")).map(|task| (task, &numbers));
    let mut scored = 0;
    for (task, labels) in tasks.chain(more) {
        for metric in task.metrics().iter().filter(|metric| !["macro-f1", "r2"].contains(&metric.name)) {
            let given: Given<'_> = (*task, metric, LabelView::Numbers(labels));
            let found = scoring(given, &device, &Alone).score(&whole(x.clone(), columns), &all(rows)).unwrap();
            let factor = if metric.scale == Scale::PerCent { 100.0 } else { 1.0 };
            let expected = factor * by_target(metric.name, &x, labels, columns);
            assert!((found - expected).abs() < 1e-9, "{} {}: {found} {expected}", task.name(), metric.name);
            scored += 1;
        }
    }
    assert_eq!(scored, 2 * 3 + 2 * 2);
}

/// Adds what the other rank sent, message by message.
struct Recorded {
    others: RefCell<Vec<Vec<f64>>>,
    sent: RefCell<Vec<Vec<f64>>>,
}

impl Reduce for Recorded {
    fn sum(&self, m: &mut Matrix) -> Computed<()> {
        let own = m.to_vec::<f64>()?;
        self.sent.borrow_mut().push(own.clone());
        if !self.others.borrow().is_empty() {
            let other = self.others.borrow_mut().remove(0);
            let sum: Vec<f64> = own.iter().zip(&other).map(|(a, b)| a + b).collect();
            *m = m.device().upload(1, sum.len(), &sum, Tag::Workspace)?;
        }
        Ok(())
    }
}

#[test]
fn two_ranks_find_what_one_finds() {
    let device = Device::cpu();
    check(|given, logits, rows| {
        let score = |keep: fn(&u32) -> bool, others| {
            let own: Vec<u32> = (0..rows as u32).filter(keep).collect();
            let part = SplitPart { places: own.iter().map(|r| *r as usize).collect(), rows: own, total: rows };
            let reduce = Recorded { others: RefCell::new(others), sent: RefCell::default() };
            let score = scoring(given, &device, &reduce).score(logits, &part).unwrap();
            (score, reduce.sent.into_inner())
        };
        let (_, sent) = score(|r| r % 3 == 0, Vec::new());
        score(|r| r % 3 != 0, sent).0
    });
}

#[test]
fn lot_by_lot_is_what_all_at_once_is() {
    let device = Device::cpu();
    check(|given, logits, rows| {
        let lot = |first: usize| {
            let rows = first..(first + 3).min(rows);
            let values = logits.values[rows.start * logits.cols..rows.end * logits.cols].to_vec();
            Ok(Logits { values, cols: logits.cols, rows })
        };
        // Two parts take turns, the third has all.
        let some = |keep: usize| {
            let own: Vec<u32> = (0..rows as u32).filter(|r| *r as usize % 2 == keep).collect();
            SplitPart { places: (0..own.len()).collect(), total: own.len(), rows: own }
        };
        let (scoring, parts) = (scoring(given, &device, &Alone), [some(0), some(1), all(rows)]);
        let lots = scoring.scores_of_lots((0..rows).step_by(3).map(lot), &parts, 1).unwrap();
        // R² subtracts sums of squares; here it is far below zero, and rounding is relative to its size.
        let close = if given.1.name == "r2" { 1e-9 } else { 1e-12 };
        let same = |a: f64, b: f64| (a - b).abs() < close || a.is_nan() && b.is_nan();
        assert!(same(lots.train, scoring.score(logits, &parts[0]).unwrap()));
        assert!(same(lots.valid_loss, scoring.loss(logits, &parts[1]).unwrap()));
        lots.test
    });
}

#[test]
fn unknown_labels_do_not_count() {
    let device = Device::cpu();
    let logits = whole(vec![1.0, 0.0, 0.0, 1.0, 1.0, 0.0], 2);
    let score = |name| {
        let metric = NodeClass.metrics().iter().find(|metric| metric.name == name).unwrap();
        let given: Given<'_> = (&NodeClass, metric, LabelView::Integers(&[0, -1, 1]));
        scoring(given, &device, &Alone).score(&logits, &all(3)).unwrap()
    };
    assert_eq!(score("accuracy"), 50.0);
    assert_eq!(score("roc-auc"), 50.0, "the two scores tie");
}

#[test]
fn ranking_needs_two_kinds() {
    assert_eq!((roc_auc(&[(1.0, true)]), average_precision(&[(1.0, false), (2.0, false)])), (None, None));
    assert_eq!(roc_auc(&[(0.0, true), (-0.0, false)]), Some(0.5), "zeros tie");
    let metric = |task: &dyn Task, classes| task.metric(MetricName::named("roc-auc"), classes);
    let message = metric(&NodeClass, 7).unwrap_err().to_string();
    assert!(message.contains("has 7"), "{message}");
    assert!(metric(&NodeClass, 2).is_ok() && metric(&NodeLabels, 7).is_ok());
}

#[test]
fn a_task_has_metrics_of_its_own() {
    let of_links = ["hits@20", "hits@50", "hits@100", "mrr", "hits@1", "hits@3", "hits@10"];
    let of_rows = ["accuracy", "macro-f1", "roc-auc", "average-precision", "mae", "rmse", "r2"];
    assert_eq!(MetricName::all(), [&of_rows[..], &of_links].concat());
    let of = |task: &dyn Task, name| task.metric(name, 2).map(|metric| metric.name);
    assert_eq!(of(&NodeClass, None).unwrap(), "accuracy");
    assert_eq!(of(&NodeLabels, None).unwrap(), "roc-auc");
    assert_eq!(of(&NodeRegression, None).unwrap(), "mae");
    let message = of(&NodeRegression, MetricName::named("accuracy")).unwrap_err().to_string();
    assert!(message.contains("train.metric") && message.contains("mae, rmse, r2"), "{message}");
    assert!(of(&NodeClass, MetricName::named("mae")).is_err());
}

#[test]
fn places_do_not_depend_on_ranks() {
    let nodes = [7, 2, 9, 4];
    let whole = SplitPart::of_nodes(&nodes, &Ids::Same);
    assert_eq!((whole.rows, whole.places, whole.total), (vec![2, 4, 7, 9], vec![0, 1, 2, 3], 4));
    let some = SplitPart::of_nodes(&nodes, &Ids::Listed(vec![9, 0, 2].into()));
    assert_eq!((some.rows, some.places, some.total), (vec![0, 2], vec![3, 0], 4));
}

#[test]
fn scores_are_shown_in_their_unit() {
    let [accuracy, mae] = [&NodeClass.metrics()[0], &NodeRegression.metrics()[0]];
    assert_eq!((accuracy.show(81.234), accuracy.unit()), ("81.23".into(), " %"));
    assert_eq!((mae.show(0.123_456), mae.unit(), mae.show(f64::NAN)), ("0.1235".into(), "", "–".into()));
    assert_eq!(
        (mae.show(0.0), mae.show(4.5e-7), mae.show(-2e7)),
        ("0.0000".into(), "4.500e-7".into(), "-2.000e7".into())
    );
}

#[test]
fn losses_are_means_over_known_labels() {
    let device = Device::cpu();
    let logits = whole(vec![1.0, 0.0, 1000.0, -1000.0, -2.0, 3.0], 2);
    let loss = |task: &'static dyn Task, labels| {
        scoring((task, &task.metrics()[0], labels), &device, &Alone).loss(&logits, &all(3)).unwrap()
    };
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    // −ln of the softmax, by hand; the second row would overflow if it were not shifted.
    close(loss(&NodeClass, LabelView::Integers(&[0, 1, -1])), ((-1f64).exp().ln_1p() + 2000.0) / 2.0);
    let nan = f32::NAN;
    let (each, log) = ([1.0, nan, nan, nan, 0.0, 1.0], |x: f64| (1.0 + (-x).exp()).ln());
    close(loss(&NodeLabels, LabelView::Numbers(&each)), (log(1.0) + log(2.0) + log(3.0)) / 3.0);
    assert!(loss(&NodeClass, LabelView::Integers(&[-1, -1, -1])).is_nan());
    let known = [0.0, nan, 1000.5, nan, -4.0, 0.0];
    close(loss(&NodeRegression, LabelView::Numbers(&known)), (1.0 + 0.25 + 4.0 + 9.0) / 4.0);
    let none = [nan; 6];
    assert!(loss(&NodeRegression, LabelView::Numbers(&none)).is_nan());
}

#[test]
fn a_target_that_does_not_vary_is_hit_or_missed() {
    let device = Device::cpu();
    let r2 = NodeRegression.metrics().iter().find(|metric| metric.name == "r2").unwrap();
    let labels = [0.1f32; 7];
    let score = |x: f64| {
        let given: Given<'_> = (&NodeRegression, r2, LabelView::Numbers(&labels));
        scoring(given, &device, &Alone).score(&whole(vec![x; 7], 1), &all(7)).unwrap()
    };
    assert_eq!((score(f64::from(0.1f32)), score(3.0)), (1.0, 0.0));
}
