//! A strategy of one's own: here the one that gathers all rows, under another name. One from scratch implements
//! `GraphOps`, operations over the graph on the rows of one rank.

#![allow(clippy::print_stdout)]

use std::fmt;
use std::rc::Rc;

use graphweft::Run;
use graphweft::extend::{Computed, Gather, GraphOps, Rows, Situation, Spread};

#[derive(Debug)]
struct Everywhere;

impl fmt::Display for Everywhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("everywhere")
    }
}

impl Spread for Everywhere {
    fn family(&self) -> &'static str {
        "everywhere"
    }

    fn ops(&self, rows: Rows<'_>) -> Computed<Rc<dyn GraphOps>> {
        Ok(Rc::new(Gather::new(rows.layout, rows.link, rows.edge_features)?))
    }

    fn reason(&self, on: &Situation) -> String {
        format!("all {} ranks have all rows", on.ranks)
    }
}

fn main() -> graphweft::Result<()> {
    let dir = tempfile::tempdir()?;
    let run = Run::new("sbm:300:3:8:f=8").model("gcn").epochs(10).ranks(3);
    let own = run.clone().own_strategy(&Everywhere).output(dir.path().join("own")).train()?;
    let known = run.strategy("halo").output(dir.path().join("halo")).train()?;
    // Exact strategies compute the same function, up to the order of sums.
    let [own_loss, known_loss] = [&own, &known].map(|report| report.seeds[0].losses[9]);
    println!("{}: {own_loss:.6}; {}: {known_loss:.6}", own.plan.strategy, known.plan.strategy);
    Ok(())
}
