//! A format that this crate does not know, read from outside. `docs/extend.md` shows this file.

#![allow(clippy::unwrap_used)]

use graphweft_base::progress::Silent;
use graphweft_base::{Error, Result};
use graphweft_graph::build::{EdgeRules, EdgeSorter, Expected, Scratch};
use graphweft_graph::dataset::DatasetWriter;
use graphweft_graph::read::{Context, Imported};
use graphweft_graph::{Dataset, SelfLoops};

/// Reads a text in which line *i* lists the neighbours of node *i*.
fn read(text: &str, cx: &Context<'_>) -> Result<Imported> {
    let nodes = text.lines().count() as u64;
    let mut edges = EdgeSorter::new(Expected::bare(nodes), cx.rules, cx.scratch)?;
    for (line, neighbours) in (1..).zip(text.lines()) {
        for word in neighbours.split_whitespace() {
            let source = word.parse().ok().filter(|&id| id < nodes).ok_or_else(|| {
                let (field, problem) = (format!("line {line}"), format!("{word:?} is no node"));
                Error::bad("neighbours.txt", field, problem, format!("nodes are 0 to {}", nodes - 1))
            })?;
            edges.push(&[[source, line - 1]])?;
        }
    }
    Ok(Imported::new(nodes as usize, edges))
}

#[test]
fn a_format_from_outside_becomes_a_dataset_folder() {
    let dir = tempfile::tempdir().unwrap();
    let rules = EdgeRules { symmetrise: true, merge_parallel: false, self_loops: SelfLoops::Keep, memory: 1 << 20 };
    let cx = Context { rules, scratch: &Scratch::new(dir.path()), progress: &Silent };
    let folder = dir.path().join("mine");
    read("1 2\n\n1", &cx).unwrap().write("mine", DatasetWriter::create(&folder).unwrap(), &cx).unwrap();
    let meta = Dataset::open(&folder).unwrap().meta().clone();
    assert_eq!((meta.num_nodes, meta.num_edges, meta.symmetric), (3, 6, true));

    let message = read("1 2\n\n7", &cx).err().unwrap().to_string();
    assert!(message.contains("line 3") && message.contains("nodes are 0 to 2"), "{message}");
}
