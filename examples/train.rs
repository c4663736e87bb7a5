//! Trains a model and says how good it became: `cargo run --release --example train`.

#![allow(clippy::print_stdout)]

use graphweft::{Result, Run};

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let report = Run::new("sbm:500:4:8:f=16")
        .model("gcn")
        .set("model.hidden", 32)
        .set("train.lr", 1e-2)
        .epochs(30)
        .ranks(2)
        .output(dir.path().join("run"))
        .train()?;
    println!("{}: {} %", report.metric.name(), report.metric.show(report.test.mean));
    println!("{} on {} ranks: {}", report.plan.strategy, report.plan.ranks, report.plan.why);
    println!("{:.1} ms per epoch", report.epoch_ms().unwrap_or_default());
    Ok(())
}
