//! Datasets of many graphs, for the tests.

#![allow(clippy::unwrap_used, clippy::panic, dead_code)] // Only tests come here, and not all of them need everything.

use std::path::{Path, PathBuf};

use graphweft_base::random::Philox;
use graphweft_graph::Csr;
use graphweft_graph::dataset::{Categories, Dataset, Dense, Features, Graphs, Labels, Parts, Split};

/// How many there are.
pub(crate) const GRAPHS: usize = 60;

/// What nodes of a dataset have.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Nodes {
    Categories,
    Numbers,
    Both,
}

/// What is known of graphs.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Known {
    Class,
    Several,
    Numbers,
}

/// Rings of 3 to 12 nodes, some with a chord: whether there is one, and how long the ring is, can be told.
pub(crate) fn folder(root: &Path, nodes: Nodes, known: Known) -> PathBuf {
    let random = Philox::new(5, 1);
    let (mut ptr, mut sources, mut targets) = (vec![0u64], Vec::new(), Vec::new());
    let (mut classes, mut lengths) = (Vec::new(), Vec::new());
    for graph in 0..GRAPHS as u64 {
        let (first, length) = (*ptr.last().unwrap() as u32, 3 + random.below(graph, 10) as u32);
        let mut edge = |a: u32, b: u32| {
            sources.extend([first + a, first + b]);
            targets.extend([first + b, first + a]);
        };
        (0..length - 1).for_each(|k| edge(k, k + 1));
        let chord = length > 3 && random.below(1000 + graph, 2) == 1;
        if chord {
            edge(0, length - 2);
        }
        classes.push(i64::from(chord));
        lengths.push(length as f32);
        ptr.push(u64::from(first + length));
    }
    let count = *ptr.last().unwrap() as usize;
    let categories: Vec<u16> = (0..2 * count).map(|k| random.below(5000 + k as u64, 4) as u16).collect();
    let values: Vec<f32> = (0..3 * count).map(|k| random.uniform(9000 + k as u64) as f32).collect();
    let dense = Features::Dense(Dense::F32 { values: values.into(), width: 3 });
    let missing = |k: usize, x: f32| if k % 7 == 3 { f32::NAN } else { x };
    let (labels, columns) = match known {
        Known::Class => (Labels::Single(classes.into()), 2),
        Known::Several => {
            let both = classes.iter().zip(&lengths).flat_map(|(c, l)| [*c as f32, f32::from(*l > 7.0)]);
            (Labels::MultiF32(both.enumerate().map(|(k, y)| missing(k, y)).collect::<Vec<_>>().into()), 2)
        }
        Known::Numbers => {
            let all = lengths.iter().flat_map(|l| [l / 8.0, 1.0 - l / 4.0]);
            (Labels::Values(all.enumerate().map(|(k, y)| missing(k, y)).collect::<Vec<_>>().into()), 2)
        }
    };
    let ids = |from: usize, to: usize| (from as i64..to as i64).collect::<Vec<_>>().into();
    let split = Split { name: "own".into(), train: ids(0, 37), valid: ids(37, 50), test: ids(50, GRAPHS) };
    let dir = root.join("graphs");
    Dataset::in_memory(Parts {
        features: (nodes != Nodes::Categories).then_some(dense),
        classes: columns,
        splits: vec![split],
        categories: (nodes != Nodes::Numbers).then(|| Categories::new(categories, 2, &[4, 6]).unwrap()),
        graphs: Some(Graphs { ptr: ptr.into(), labels: Some(labels) }),
        ..Parts::new("rings", Csr::from_edges(count, &sources, &targets).unwrap().into())
    })
    .unwrap()
    .save(&dir)
    .unwrap();
    dir
}
