//! Scores a trained model, and asks it about nodes that it has not seen.

#![allow(clippy::print_stdout)]

use graphweft::{Model, PredictionFile, Result, Run};

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let run = dir.path().join("run");
    Run::new("sbm:300:3:8:f=8").model("gcn").epochs(20).seeds(0, 2).output(&run).train()?;

    let model = Model::open(&run)?;
    let found = model.evaluate()?;
    println!("{} seeds: test {}", model.count(), found.metric.show_over_seeds(found.test));

    // Another graph of the same kind; of several seeds the mean of their probabilities.
    let said = model.on("sbm:100:3:8:f=8").predict_probabilities()?;
    println!("node 0: {:?}, class {}", said.row(0), said.classes()[0]);

    let file = PredictionFile::new(dir.path().join("labels.csv")).labels();
    let written = Model::open(&run)?.write_predictions(&file)?;
    println!("{} of {} nodes in {}", written.what, written.nodes, written.path.display());
    Ok(())
}
