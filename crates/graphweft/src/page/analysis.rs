//! What a run's data say about its predictions: which classes are taken for which, and which nodes are hard.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use graphweft_base::progress::Silent;
use graphweft_graph::Csr;
use graphweft_graph::npy::NpyFile;
use graphweft_graph::stats::degrees;
use graphweft_train::config::{Config, Draft};
use graphweft_train::data::Data;
use graphweft_train::run::RunDir;
use graphweft_train::task::Labels;
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// A matrix of more cells would be no picture.
const MOST_CLASSES: usize = 64;
/// Degrees that are shown together.
const DEGREES: [RangeInclusive<usize>; 7] = [0..=0, 1..=1, 2..=3, 4..=7, 8..=15, 16..=63, 64..=usize::MAX];
/// Groups of nodes by the share of neighbours with the same class.
const SHARES: [&str; 5] = ["0–20 %", "20–40 %", "40–60 %", "60–80 %", "80–100 %"];

/// Statistics of the dataset of the run in `folder` and, of a run that has ended, what it says of classes.
pub(super) fn of_run(folder: &Path) -> Result<Value> {
    let missing = || Error::request("config.toml is missing or cut short", "statistics of the dataset are left out");
    let text = RunDir::config(folder).ok_or_else(missing)?;
    let config = Draft::parse(&text, folder)?.finish()?;
    let data = Data::open(&config.data, &config.encoding, &Silent)?;
    let degrees = degrees(&data.graph);
    let statistics = json!({
        "nodes": data.graph.num_dst(), "edges": data.graph.num_edges(), "features": data.features.width(),
        "classes": data.classes, "mean degree": degrees.mean(), "largest degree": degrees.max(),
    });
    Ok(json!({"statistics": statistics, "classes": classes(folder, &config, &data)?}))
}

/// Of a task with one class per node.
fn classes(folder: &Path, config: &Config, data: &Data) -> Result<Value> {
    let file = folder.join("predictions.npy");
    let (Some(Labels::Integers(labels)), true) = (&data.labels, file.exists()) else { return Ok(Value::Null) };
    let stored = NpyFile::open(&file)?;
    let fits = stored.shape() == [labels.len(), data.classes];
    let Some(logits) = stored.elements::<f32>().filter(|_| fits && data.classes > 0) else { return Ok(Value::Null) };
    let predicted: Vec<usize> = logits.chunks(data.classes).map(largest).collect();
    let name = data.split_name(config.data.split.as_deref())?;
    let split = data.split(&name, config.run.seed)?;
    let known = |node: &usize| usize::try_from(labels[*node]).is_ok_and(|class| class < data.classes);
    let test: Vec<usize> = split.test.iter().map(|node| *node as usize).filter(known).collect();
    let is_right = |node: usize| labels[node] == predicted[node] as i64;
    let confusion = (data.classes <= MOST_CLASSES).then(|| confusion(labels, &predicted, &test, data.classes));
    let by_degree = DEGREES.iter().map(|range| {
        let nodes: Vec<usize> = test.iter().copied().filter(|node| range.contains(&data.graph.degree(*node))).collect();
        group(&range_name(range), &nodes, is_right)
    });
    let group_of = |node: usize| same_share(&data.graph, labels, node).map(|share| ((share * 5.0) as usize).min(4));
    let by_homophily = SHARES.iter().enumerate().map(|(k, name)| {
        let nodes: Vec<usize> = test.iter().copied().filter(|node| group_of(*node) == Some(k)).collect();
        group(name, &nodes, is_right)
    });
    let names = data.folder.as_ref().and_then(|dir| fs::read_to_string(dir.join("classes.txt")).ok());
    Ok(json!({
        "names": names.map(|text| text.lines().map(String::from).collect::<Vec<_>>()),
        "confusion": confusion,
        "by_degree": by_degree.collect::<Vec<_>>(),
        "by_homophily": by_homophily.collect::<Vec<_>>(),
    }))
}

/// The place of the largest number; of equal ones the first.
fn largest(row: &[f32]) -> usize {
    (0..row.len()).rev().max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap_or(0)
}

/// How often a class (row) was taken for another (column).
fn confusion(labels: &[i64], predicted: &[usize], nodes: &[usize], classes: usize) -> Vec<Vec<u64>> {
    let mut table = vec![vec![0; classes]; classes];
    for node in nodes {
        table[labels[*node] as usize][predicted[*node]] += 1;
    }
    table
}

/// Of a node's neighbours, the share that has its class; nothing without neighbours of a known one. Loops do not count.
fn same_share(graph: &Csr<u32>, labels: &[i64], node: usize) -> Option<f64> {
    let others = graph.row(node).iter().map(|j| *j as usize).filter(|j| *j != node && labels[*j] >= 0);
    let (mut same, mut all) = (0, 0);
    for other in others {
        same += usize::from(labels[other] == labels[node]);
        all += 1;
    }
    (all > 0).then(|| same as f64 / all as f64)
}

fn group(name: &str, nodes: &[usize], is_right: impl Fn(usize) -> bool) -> Value {
    let right = nodes.iter().filter(|node| is_right(**node)).count();
    let score = (!nodes.is_empty()).then(|| 100.0 * right as f64 / nodes.len() as f64);
    json!({"name": name, "nodes": nodes.len(), "score": score})
}

fn range_name(range: &RangeInclusive<usize>) -> String {
    match (*range.start(), *range.end()) {
        (from, usize::MAX) => format!("{from} and more"),
        (from, to) if from == to => from.to_string(),
        (from, to) => format!("{from}–{to}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_counted_by_node() {
        let (labels, predicted) = ([0, 1, 1, 0], [0, 0, 1, 1]);
        assert_eq!(confusion(&labels, &predicted, &[0, 1, 2, 3], 2), [[1, 1], [1, 1]]);
        assert_eq!(confusion(&labels, &predicted, &[0, 1], 2), [[1, 0], [1, 0]]);
        assert_eq!((largest(&[1.0, 3.0, 3.0]), largest(&[f32::NEG_INFINITY])), (1, 0));
    }

    #[test]
    fn neighbours_of_the_same_class_are_shared_out_without_loops_and_unknown_ones() {
        let graph = Csr::new(vec![0u64, 4, 4], vec![0u32, 1, 2, 3], 4).unwrap();
        assert_eq!(same_share(&graph, &[0, 0, 1, -1], 0), Some(0.5));
        assert_eq!(same_share(&graph, &[0, 0, 1, -1], 1), None);
    }
}
