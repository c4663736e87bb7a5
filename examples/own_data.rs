//! Trains on arrays that are in memory, then keeps them as a dataset folder.

#![allow(clippy::print_stdout)]

use graphweft::{Dataset, Graph, Result, Run, Split};

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // Two rings of 50 nodes; the class of a node is its ring.
    let sources: Vec<u32> = (0..100).collect();
    let targets: Vec<u32> = (0..100).map(|node| node / 50 * 50 + (node + 1) % 50).collect();
    let graph = Graph::from_edges(100, &sources, &targets)?.symmetrise();
    let features = (0..100).flat_map(|node| [f32::from(node < 50), (node % 7) as f32]).collect();
    let third = |k: i64| (0..100).filter(|node| node % 3 == k).collect::<Vec<i64>>();
    let data = Dataset::builder("rings", &graph)
        .features(2, features)
        .labels((0..100).map(|node| node / 50).collect())
        .split(Split::new("thirds", third(0), third(1), third(2)))
        .build()?;

    let report = Run::new(&data).model("sage").epochs(20).output(dir.path().join("run")).train()?;
    println!("{} on {}: {:.1} %", report.model, report.graph, report.test.mean);

    data.save(dir.path().join("rings"))?;
    println!("{:?}", Dataset::open(dir.path().join("rings"))?);

    // Every element is checked, and an error says where it is.
    let error = Dataset::builder("bad", &graph).labels(vec![0; 99]).build();
    if let Err(error) = error {
        println!("{:?} in {:?}: {}", error.kind(), error.field(), error.problem());
    }
    Ok(())
}
