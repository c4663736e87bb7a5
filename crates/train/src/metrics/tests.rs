use std::cell::RefCell;
use std::collections::BTreeMap;

use graphweft_tensor::{Alone, Result as Computed};
use serde::Deserialize;

use super::*;

const METRICS: [Metric; 4] = [Metric::Accuracy, Metric::MacroF1, Metric::RocAuc, Metric::AveragePrecision];

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

fn check(score: impl Fn(Metric, Truth<'_>, &Logits, usize) -> f64) {
    for (case, golden) in goldens().into_iter().enumerate() {
        let logits = whole(golden.logits, golden.cols);
        let rows = logits.rows.len();
        let classes: Vec<i64> = golden.labels.iter().map(|x| x.map_or(-1, |x| x as i64)).collect();
        let each: Vec<f32> = golden.labels.iter().map(|x| x.map_or(f32::NAN, |x| x as f32)).collect();
        let truth = if golden.kind == "class" { Truth::Class(&classes) } else { Truth::Each(&each) };
        let mut scored = 0;
        for metric in METRICS {
            if let Some(expected) = golden.scores.get(metric.name()) {
                let found = score(metric, truth, &logits, rows);
                assert!((found - expected).abs() < 1e-9, "case {case} {}: {found} {expected}", metric.name());
                scored += 1;
            }
        }
        assert_eq!(scored, golden.scores.len());
    }
}

fn all(rows: usize) -> Part {
    Part { rows: (0..rows as u32).collect(), places: (0..rows).collect(), total: rows }
}

#[test]
fn scores_are_those_of_scikit_learn() {
    let device = Device::cpu();
    check(|metric, truth, logits, rows| {
        Scoring { metric, truth, device: &device, reduce: &Alone }.score(logits, &all(rows)).unwrap()
    });
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
    check(|metric, truth, logits, rows| {
        let score = |keep: fn(&u32) -> bool, others| {
            let own: Vec<u32> = (0..rows as u32).filter(keep).collect();
            let part = Part { places: own.iter().map(|r| *r as usize).collect(), rows: own, total: rows };
            let reduce = Recorded { others: RefCell::new(others), sent: RefCell::default() };
            let score = Scoring { metric, truth, device: &device, reduce: &reduce }.score(logits, &part).unwrap();
            (score, reduce.sent.into_inner())
        };
        let (_, sent) = score(|r| r % 3 == 0, Vec::new());
        score(|r| r % 3 != 0, sent).0
    });
}

#[test]
fn lot_by_lot_is_what_all_at_once_is() {
    let device = Device::cpu();
    check(|metric, truth, logits, rows| {
        let lot = |first: usize| {
            let rows = first..(first + 3).min(rows);
            let values = logits.values[rows.start * logits.cols..rows.end * logits.cols].to_vec();
            Ok(Logits { values, cols: logits.cols, rows })
        };
        // Two parts take turns, the third has all.
        let some = |keep: usize| {
            let own: Vec<u32> = (0..rows as u32).filter(|r| *r as usize % 2 == keep).collect();
            Part { places: (0..own.len()).collect(), total: own.len(), rows: own }
        };
        let (scoring, parts) =
            (Scoring { metric, truth, device: &device, reduce: &Alone }, [some(0), some(1), all(rows)]);
        let lots = scoring.scores_of_lots((0..rows).step_by(3).map(lot), &parts, 1).unwrap();
        let same = |a: f64, b: f64| (a - b).abs() < 1e-12 || a.is_nan() && b.is_nan();
        assert!(same(lots.train, scoring.score(logits, &parts[0]).unwrap()));
        assert!(same(lots.valid_loss, scoring.loss(logits, &parts[1]).unwrap()));
        lots.test
    });
}

#[test]
fn unknown_labels_do_not_count() {
    let device = Device::cpu();
    let logits = whole(vec![1.0, 0.0, 0.0, 1.0, 1.0, 0.0], 2);
    let truth = Truth::Class(&[0, -1, 1]);
    let score = |metric| Scoring { metric, truth, device: &device, reduce: &Alone }.score(&logits, &all(3)).unwrap();
    assert_eq!(score(Metric::Accuracy), 50.0);
    assert_eq!(score(Metric::RocAuc), 50.0, "the two scores tie");
}

#[test]
fn ranking_needs_two_kinds() {
    assert_eq!((roc_auc(&[(1.0, true)]), average_precision(&[(1.0, false), (2.0, false)])), (None, None));
    assert_eq!(roc_auc(&[(0.0, true), (-0.0, false)]), Some(0.5), "zeros tie");
    let message = Metric::RocAuc.check(&Truth::Class(&[]), 7).unwrap_err().to_string();
    assert!(message.contains("has 7"), "{message}");
    assert!(Metric::RocAuc.check(&Truth::Class(&[]), 2).is_ok() && Metric::RocAuc.check(&Truth::Each(&[]), 7).is_ok());
}

#[test]
fn losses_are_means_over_known_labels() {
    let device = Device::cpu();
    let logits = whole(vec![1.0, 0.0, 1000.0, -1000.0, -2.0, 3.0], 2);
    let loss = |truth| {
        Scoring { metric: Metric::Accuracy, truth, device: &device, reduce: &Alone }.loss(&logits, &all(3)).unwrap()
    };
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    // −ln of the softmax, by hand; the second row would overflow if it were not shifted.
    close(loss(Truth::Class(&[0, 1, -1])), ((-1f64).exp().ln_1p() + 2000.0) / 2.0);
    let nan = f32::NAN;
    let (each, log) = ([1.0, nan, nan, nan, 0.0, 1.0], |x: f64| (1.0 + (-x).exp()).ln());
    close(loss(Truth::Each(&each)), (log(1.0) + log(2.0) + log(3.0)) / 3.0);
    assert!(loss(Truth::Class(&[-1, -1, -1])).is_nan());
}
