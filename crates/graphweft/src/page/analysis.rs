//! What a run's data say about its predictions: which classes are taken for which, how good each label or target is,
//! how links are told from other pairs, and which nodes, graphs or links are hard.

mod columns;
mod links;
mod types;

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use graphweft_base::progress::Silent;
use graphweft_graph::Csr;
use graphweft_graph::npy::NpyFile;
use graphweft_train::config::{Config, Draft};
use graphweft_train::data::Data;
use graphweft_train::run::RunDir;
use graphweft_train::task::{Labels, What};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use types::{Type, Types};

/// A matrix of more cells would be no picture.
const MOST_CLASSES: usize = 64;
/// Numbers of neighbours that are shown together.
const DEGREES: [RangeInclusive<usize>; 7] = [0..=0, 1..=1, 2..=3, 4..=7, 8..=15, 16..=63, 64..=usize::MAX];
/// Numbers of nodes of graphs that are.
const SIZES: [RangeInclusive<usize>; 7] = [0..=7, 8..=15, 16..=31, 32..=63, 64..=127, 128..=255, 256..=usize::MAX];
/// Groups of nodes by the share of neighbours with the same class.
const SHARES: [&str; 5] = ["0–20 %", "20–40 %", "40–60 %", "60–80 %", "80–100 %"];
/// Names of classes are read up to so many bytes: they are for people.
const MOST_NAMES: u64 = 1 << 20;

/// Statistics of the dataset of the run in `folder` and, of a run that has ended, how good its predictions are. The
/// dataset is `data` where it is at hand, or else what the run's settings name.
pub(super) fn of_run(folder: &Path, data: Option<&Data>) -> Result<Value> {
    let missing = || Error::request("config.toml is missing or cut short", "statistics of the dataset are left out");
    let text = RunDir::config(folder).ok_or_else(missing)?;
    let config = Draft::parse(&text, folder)?.finish()?;
    let opened = match data {
        Some(_) => None,
        None => Some(Data::open(&config.data, &config.encoding, &Silent)?),
    };
    let Some(data) = data.or(opened.as_ref()) else { return Ok(Value::Null) };
    let types = Types::of(data)?;
    let predictions = predictions(&Made { folder, config: &config, types: &types }, data)?;
    Ok(json!({"statistics": statistics(data), "types": types.counts(), "classes": predictions}))
}

/// What the graph is like. A loop is no neighbour.
fn statistics(data: &Data) -> Value {
    let graph = &data.graph;
    let nodes = graph.num_dst();
    let neighbours = (0..nodes).map(|node| neighbours(graph, node));
    let (edges, most) = neighbours.fold((0, 0), |(sum, most): (usize, usize), d| (sum + d, most.max(d)));
    let mut all = json!({
        "nodes": nodes, "edges": edges, "features": data.features.width(), data.task.noun(): data.classes,
        "mean degree": edges as f64 / nodes.max(1) as f64, "largest degree": most,
    });
    let loops = graph.num_edges() - edges;
    if loops > 0 {
        all["loops"] = loops.into();
    }
    if let Some(ptr) = &data.graphs {
        all["graphs"] = data.items().into();
        all["nodes per graph"] = (nodes as f64 / data.items().max(1) as f64).into();
        all["nodes of the largest graph"] = sizes(ptr).max().into();
    } else if let Some(Labels::Integers(labels)) = &data.labels {
        let (same, known) = (0..nodes)
            .filter(|node| labels.get(*node).is_some_and(|label| *label >= 0))
            .map(|node| same_and_all(graph, labels, node))
            .fold((0, 0), |(same, all), (s, a)| (same + s, all + a));
        if known > 0 {
            all["edges within a class"] = format!("{:.1} %", 100.0 * same as f64 / known as f64).into();
        }
    }
    all
}

/// How many nodes each graph has.
fn sizes(ptr: &[u64]) -> impl Iterator<Item = usize> + '_ {
    ptr.windows(2).map(|ends| (ends[1] - ends[0]) as usize)
}

/// What predictions were made by, and of which types nodes are.
struct Made<'a> {
    folder: &'a Path,
    config: &'a Config,
    types: &'a Types,
}

/// How good predictions of the test nodes, graphs or links are.
fn predictions(made: &Made<'_>, data: &Data) -> Result<Value> {
    let Made { folder, config, types } = *made;
    let file = folder.join("predictions.npy");
    let items = data.items();
    let (Some(labels), true) = (&data.labels, file.exists()) else { return Ok(Value::Null) };
    let stored = NpyFile::open(&file)?;
    let columns = data.outputs();
    let fits = stored.shape() == [items, columns] && columns > 0;
    let Some(outputs) = stored.elements::<f32>().filter(|_| fits) else { return Ok(Value::Null) };
    let name = data.split_name(config.data.split.as_deref())?;
    let split = data.split(&name, config.run.seed)?;
    if !data.links.is_empty() {
        // Of other decoders, rows alone do not say what a link scores.
        let by_rows = config.scores_products() && data.links.iter().all(|links| links.width == 2);
        return if by_rows { links::links(data, &split.name, &outputs) } else { Ok(Value::Null) };
    }
    let test: Vec<usize> = split.test.iter().map(|item| *item as usize).filter(|item| *item < items).collect();
    let (of, sizes) = match &data.graphs {
        Some(ptr) => (Items::Graphs, sizes(ptr).collect()),
        None => (Items::Nodes, (0..items).map(|node| neighbours(&data.graph, node)).collect()),
    };
    let rows = Rows { of, sizes, types: &types.nodes, outputs: &outputs, columns, test };
    let names = names(data);
    let mut found = match labels {
        Labels::Integers(labels) if labels.len() == items => {
            classes(rows, labels, data.graphs.is_none().then_some(&data.graph))
        }
        Labels::Numbers(labels) if labels.len() == items * columns && data.task.forms()[0] == What::Values => {
            columns::targets(&rows, labels, names.as_deref())
        }
        Labels::Numbers(labels) if labels.len() == items * columns => columns::labels(&rows, labels, names.as_deref()),
        _ => return Ok(Value::Null),
    };
    if found.is_object() {
        found["names"] = names.into();
    }
    Ok(found)
}

/// What classes, labels or targets are called, where the dataset says.
fn names(data: &Data) -> Option<Vec<String>> {
    let path = data.folder.as_ref()?.join("classes.txt");
    let short = fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() <= MOST_NAMES);
    let text = short.then(|| fs::read(&path).ok()).flatten()?;
    Some(String::from_utf8_lossy(&text).lines().take(data.outputs()).map(String::from).collect())
}

/// Of what something is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Items {
    Nodes,
    Graphs,
}

impl Items {
    fn noun(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Graphs => "graphs",
        }
    }

    /// What they are grouped by, and how.
    fn groups(self) -> (&'static str, &'static [RangeInclusive<usize>]) {
        match self {
            Self::Nodes => ("number of neighbours", &DEGREES),
            Self::Graphs => ("number of nodes", &SIZES),
        }
    }
}

/// What a model gives for nodes or graphs, and which of them are tested.
struct Rows<'a> {
    of: Items,
    /// How many neighbours a node has, or nodes a graph.
    sizes: Vec<usize>,
    /// Where nodes have types.
    types: &'a [Type],
    outputs: &'a [f32],
    columns: usize,
    test: Vec<usize>,
}

/// What some items have in common, and which they are.
type Group = (String, Vec<usize>);

impl Rows<'_> {
    fn of(&self, item: usize) -> &[f32] {
        &self.outputs[item * self.columns..][..self.columns]
    }

    /// The tested items by their size, and by type where they have types, each group with the score that it comes to.
    fn grouped(&self, what: &str, unit: &str, score: impl Fn(&[usize]) -> Option<f64>) -> Vec<Value> {
        let (by, ranges) = self.of.groups();
        let of = |is_in: &dyn Fn(usize) -> bool| {
            self.test.iter().copied().filter(|item| is_in(*item)).collect::<Vec<usize>>()
        };
        let sizes = ranges.iter().map(|range| (range_name(range), of(&|item| range.contains(&self.sizes[item]))));
        let types = self.types.iter().map(|t| (t.name.clone(), of(&|item| t.nodes.contains(&item))));
        let all: [(&str, Vec<Group>); 2] = [(by, sizes.collect()), ("type", types.collect())];
        let group = |(by, groups): &(&str, Vec<Group>)| {
            let rows = groups
                .iter()
                .map(|(name, items)| json!({"name": name, "count": items.len(), "score": score(items)}))
                .collect::<Vec<_>>();
            json!({"title": format!("{what} test {}, by {by}", self.of.noun()), "unit": unit, "rows": rows})
        };
        all.iter().filter(|(_, groups)| !groups.is_empty()).map(group).collect()
    }
}

/// Of a task with one class per node or graph; where these are nodes, of this graph.
fn classes(mut rows: Rows<'_>, labels: &[i64], graph: Option<&Csr<u32>>) -> Value {
    let classes = rows.columns;
    rows.test.retain(|item| usize::try_from(labels[*item]).is_ok_and(|class| class < classes));
    let predicted: Vec<usize> = rows.outputs.chunks(classes).map(largest).collect();
    let right = |items: &[usize]| {
        let right = items.iter().filter(|item| labels[**item] == predicted[**item] as i64).count();
        (!items.is_empty()).then(|| 100.0 * right as f64 / items.len() as f64)
    };
    let by_homophily = graph.map(|graph| {
        let group_of = |node: usize| same_share(graph, labels, node).map(|share| ((share * 5.0) as usize).min(4));
        let group = |(k, name): (usize, &&str)| {
            let nodes: Vec<usize> = rows.test.iter().copied().filter(|node| group_of(*node) == Some(k)).collect();
            json!({"name": name, "count": nodes.len(), "score": right(&nodes)})
        };
        let title = "Right among test nodes, by share of neighbours of the same class";
        json!({"title": title, "unit": "%", "rows": SHARES.iter().enumerate().map(group).collect::<Vec<_>>()})
    });
    let groups = rows.grouped("Right among", "%", right).into_iter().chain(by_homophily);
    json!({
        "items": rows.of.noun(), "tested": rows.test.len(), "groups": groups.collect::<Vec<_>>(),
        "confusion": (classes <= MOST_CLASSES).then(|| confusion(labels, &predicted, &rows.test, classes)),
    })
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

/// How many neighbours a node has beside itself.
fn neighbours(graph: &Csr<u32>, node: usize) -> usize {
    graph.row(node).iter().filter(|other| **other as usize != node).count()
}

/// Of a node's neighbours, how many have its class, and how many have one that is known. Loops do not count.
fn same_and_all(graph: &Csr<u32>, labels: &[i64], node: usize) -> (usize, usize) {
    let others = graph.row(node).iter().map(|j| *j as usize).filter(|j| *j != node);
    let known = others.filter_map(|j| labels.get(j).filter(|label| **label >= 0));
    known.fold((0, 0), |(same, all), label| (same + usize::from(*label == labels[node]), all + 1))
}

/// The share of them; nothing without neighbours of a known class.
fn same_share(graph: &Csr<u32>, labels: &[i64], node: usize) -> Option<f64> {
    let (same, all) = same_and_all(graph, labels, node);
    (all > 0).then(|| same as f64 / all as f64)
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
