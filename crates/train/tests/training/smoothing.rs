//! Predictions that are spread over the graph: as a dense matrix would spread them, and the same on any ranks.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::path::Path;
use std::sync::Arc;

use crate::whole::fresh;
use graphweft_base::progress::Silent;
use graphweft_train::config::{Config, Draft};
use graphweft_train::data::Data;
use graphweft_train::ranks::World;
use graphweft_train::run::{Known, SmoothMethod, SmoothWeights, Smoothed, Smoothing, Trained};

const GRAPH: &str = "data.graph=sbm:90:3:6:f=4";

fn config(more: &[&str]) -> Config {
    let mut draft = Draft::default();
    let usual = [GRAPH, "model.name=mlp", "model.hidden=8", "train.epochs=20", "train.lr=0.01", "compute.dtype=f64"];
    usual.iter().chain(more).for_each(|s| draft.assign(s).unwrap());
    draft.finish().unwrap()
}

fn open(config: &Config) -> Arc<Data> {
    Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap())
}

fn smoothed(run: &Path, parallel: &[&str], how: Smoothing) -> Smoothed {
    let mut trained = Trained::open(run, None).unwrap();
    trained.config.parallel = config(parallel).parallel;
    let (world, data) = (World::threads(&trained.config.parallel), open(&trained.config));
    Arc::new(trained).smooth(&world, &data, &Silent, how).unwrap()
}

fn all_weights() -> [SmoothWeights; 3] {
    [SmoothWeights::Symmetric, SmoothWeights::Row, SmoothWeights::Column]
}

/// S as a dense matrix.
fn operator(data: &Data, weights: SmoothWeights) -> Vec<Vec<f64>> {
    let graph = &data.graph;
    let degree = |i: usize| graph.degree(i) as f64;
    let entry = |i: usize, j: usize| match weights {
        SmoothWeights::Symmetric => 1.0 / (degree(i) * degree(j)).sqrt(),
        SmoothWeights::Row => 1.0 / degree(i),
        SmoothWeights::Column => 1.0 / degree(j),
    };
    let mut dense = vec![vec![0.0; graph.num_dst()]; graph.num_dst()];
    for (i, row) in dense.iter_mut().enumerate() {
        graph
            .row(i)
            .iter()
            .filter(|j| degree(**j as usize) > 0.0)
            .for_each(|j| row[*j as usize] += entry(i, *j as usize));
    }
    dense
}

fn spread(s: &[Vec<f64>], start: &[Vec<f64>], alpha: f64, [low, high]: [f64; 2], steps: u32) -> Vec<Vec<f64>> {
    (0..steps).fold(start.to_vec(), |now, _| {
        let one = |i: usize, c: usize| s[i].iter().zip(&now).map(|(s, row)| s * row[c]).sum::<f64>();
        let row = |(i, start): (usize, &Vec<f64>)| {
            start.iter().enumerate().map(|(c, x)| ((1.0 - alpha) * x + alpha * one(i, c)).clamp(low, high)).collect()
        };
        start.iter().enumerate().map(row).collect()
    })
}

/// What `how` should come to, for these probabilities.
fn reference(data: &Data, z: Vec<Vec<f64>>, known: &[usize], how: Smoothing) -> Vec<Vec<f64>> {
    let s = operator(data, how.weights);
    let labels = data.labels().unwrap().view().integers();
    let truth = |i: usize| (0..3).map(|c| f64::from(u8::from(labels[i] == c))).collect::<Vec<f64>>();
    let length = |row: &[f64]| row.iter().map(|x| x.abs()).sum::<f64>();
    let mut z = z;
    match how.method {
        SmoothMethod::LabelPropagation => z.iter_mut().for_each(|row| row.fill(0.0)),
        SmoothMethod::CorrectAndSmooth => {
            let mut errors = vec![vec![0.0; 3]; z.len()];
            for i in known {
                errors[*i] = truth(*i).iter().zip(&z[*i]).map(|(y, z)| y - z).collect();
            }
            let mean = known.iter().map(|i| length(&errors[*i])).sum::<f64>() / known.len() as f64;
            let errors = spread(&s, &errors, how.correct, [-1.0, 1.0], how.steps);
            for (row, error) in z.iter_mut().zip(errors) {
                let mut factor = mean / length(&error);
                if !factor.is_finite() || factor > 1000.0 {
                    factor = 1.0;
                }
                row.iter_mut().zip(error).for_each(|(z, e)| *z += factor * e);
            }
        }
    }
    known.iter().for_each(|i| z[*i] = truth(*i));
    let found = spread(&s, &z, how.smooth, [0.0, 1.0], how.steps);
    let normal = |row: Vec<f64>| {
        let sum: f64 = row.iter().sum();
        if sum > 0.0 { row.iter().map(|x| x / sum).collect() } else { vec![1.0 / 3.0; 3] }
    };
    found.into_iter().map(normal).collect()
}

/// A run in this folder, and its data.
fn trained(dir: &Path) -> (Arc<Trained>, Arc<Data>) {
    fresh(&config(&[]), dir);
    let trained = Arc::new(Trained::open(dir, None).unwrap());
    let data = open(&trained.config);
    (trained, data)
}

#[test]
fn it_is_what_a_dense_matrix_would_come_to() {
    let dir = tempfile::tempdir().unwrap();
    let (trained, data) = trained(dir.path());
    let (z, _) = Trained::probabilities(&[trained], &World::alone(), &data, &Silent).unwrap().unwrap();
    let z: Vec<Vec<f64>> = z.chunks(3).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect();
    let ids = |nodes: &[i64]| nodes.iter().map(|id| *id as usize).collect::<Vec<_>>();
    let split = data.splits[0].clone();
    for weights in all_weights() {
        for (method, tolerance) in [(SmoothMethod::LabelPropagation, 1e-12), (SmoothMethod::CorrectAndSmooth, 1e-6)] {
            for known in [Known::Train, Known::TrainAndValid] {
                let how = Smoothing { method, weights, known, steps: 7, ..Smoothing::default() };
                let rows = match known {
                    Known::Train => ids(&split.train),
                    Known::TrainAndValid => [ids(&split.train), ids(&split.valid)].concat(),
                };
                let wanted = reference(&data, z.clone(), &rows, how).concat();
                let (found, cols) = smoothed(dir.path(), &[], how).shares.unwrap();
                assert_eq!((cols, found.len()), (3, wanted.len()));
                let worst = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst <= tolerance, "{how:?}: {worst}");
            }
        }
    }
}

#[test]
fn ranks_and_strategies_come_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    fresh(&config(&["model.name=gcn"]), dir.path());
    for weights in all_weights() {
        let how = Smoothing { weights, steps: 10, known: Known::TrainAndValid, ..Smoothing::default() };
        let alone = smoothed(dir.path(), &[], how);
        for (ranks, strategies) in [
            (2, &["gather", "halo", "heads", "ring"][..]),
            (3, &["halo", "ring", "isolated"]),
            (4, &["gather", "halo", "grid:2x2"]),
            (8, &["halo", "heads", "ring"]),
        ] {
            for strategy in strategies {
                let (ranks, strategy) = (format!("parallel.ranks={ranks}"), format!("parallel.strategy={strategy}"));
                let found = smoothed(dir.path(), &[&ranks, &strategy], how);
                let what = format!("{weights:?} {ranks} {strategy}");
                let (a, b) = (&found.shares.as_ref().unwrap().0, &alone.shares.as_ref().unwrap().0);
                let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(a.len() == b.len() && worst <= 1e-9, "{what}: {worst}");
                for (found, alone) in [(found.before, alone.before), (found.after, alone.after)] {
                    assert_eq!(
                        (found.train, found.valid, found.test),
                        (alone.train, alone.valid, alone.test),
                        "{what}"
                    );
                }
            }
        }
    }
}

#[test]
fn labels_of_test_nodes_change_no_prediction_and_those_of_valid_nodes_not_their_score() {
    let dir = tempfile::tempdir().unwrap();
    let (trained, data) = trained(dir.path());
    let with = |nodes: &[i64], known| {
        let mut changed = Data::clone(&data);
        let mut labels = changed.labels().unwrap().view().integers().to_vec();
        nodes.iter().for_each(|id| labels[*id as usize] = (labels[*id as usize] + 1) % 3);
        changed.labels = Some(graphweft_train::task::Labels::Integers(labels));
        let how = Smoothing { known, ..Smoothing::default() };
        trained.smooth(&World::alone(), &Arc::new(changed), &Silent, how).unwrap()
    };
    let split = data.splits[0].clone();
    for known in [Known::Train, Known::TrainAndValid] {
        let (found, other) = (with(&[], known), with(&split.test, known));
        assert_eq!(found.shares, other.shares);
        assert!(found.after.test > other.after.test);
    }
    let [alone, both] = [Known::Train, Known::TrainAndValid].map(|known| with(&[], known));
    assert_eq!((alone.after.valid, alone.after.valid_loss), (both.after.valid, both.after.valid_loss));
    assert!(alone.shares != both.shares);
    assert!(alone.after.test > alone.before.test, "{:?}", alone.after);
}

#[test]
fn what_cannot_be_spread_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fresh(&config(&["train.epochs=1"]), dir.path());
    let trained = Arc::new(Trained::open(dir.path(), None).unwrap());
    let data = open(&trained.config);
    for (how, part) in [
        (Smoothing { correct: 1.5, ..Smoothing::default() }, "--correct"),
        (Smoothing { smooth: f64::NAN, ..Smoothing::default() }, "--smooth"),
        (Smoothing { steps: 0, ..Smoothing::default() }, "--steps"),
    ] {
        let message = trained.smooth(&World::alone(), &data, &Silent, how).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("remedy"), "{message}");
    }
}
