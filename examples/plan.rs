//! What every way to share a run between four ranks would take, and which one is best.

#![allow(clippy::print_stdout)]

use graphweft::{Amount, Result, Run};

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let run = Run::new("sbm:2000:4:12:f=32").model("gt").ranks(4).set("parallel.profile", "16-cpu-10g");
    let plan = run.plan()?;
    println!("{}", plan.title);
    for candidate in &plan.candidates {
        match candidate.prediction {
            Some(p) => {
                let (time, peak) = (Amount::Seconds(p.seconds).to_string(), Amount::Bytes(p.peak.total()).to_string());
                println!("  {:30} {time:>10} {peak:>10}", candidate.name);
            }
            None => println!("  {:30} {}", candidate.name, candidate.reason.as_deref().unwrap_or_default()),
        }
    }
    println!("{}: {}", plan.chosen().name, plan.why);
    plan.plot(dir.path().join("plan.svg"))
}
