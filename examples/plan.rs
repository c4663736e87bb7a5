//! What every way to share a run between four ranks would take, and which one is best.

#![allow(clippy::print_stdout)]

use graphweft::units::{bytes, milliseconds};
use graphweft::{Result, Run};

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let run = Run::new("sbm:2000:4:12:f=32").model("gt").ranks(4).set("parallel.profile", "16-cpu-10g");
    let plan = run.plan()?;
    println!("{}", plan.title);
    for candidate in &plan.candidates {
        match candidate.prediction {
            Some(p) => {
                println!("  {:30} {:>10} {:>10}", candidate.name, milliseconds(p.seconds), bytes(p.peak.total()));
            }
            None => println!("  {:30} {}", candidate.name, candidate.reason.as_deref().unwrap_or_default()),
        }
    }
    println!("{}: {}", plan.chosen().name, plan.why);
    plan.plot(dir.path().join("plan.svg"))
}
