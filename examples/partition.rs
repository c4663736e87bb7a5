//! Divides a graph by every method and compares what that costs.

#![allow(clippy::print_stdout)]

use graphweft::{Graph, Method, Partition, Result};

fn main() -> Result<()> {
    println!("{:?}", Graph::generate("grid:40:40", 0)?);
    for method in Method::ALL.into_iter().filter(|method| method.is_available()) {
        let made = Partition::of("grid:40:40", 4).method(method).divide()?;
        println!(
            "{:12} {:.3} rows of others per node, {:.1} % of edges cut",
            made.method,
            made.stats.alpha,
            100.0 * made.stats.cut
        );
    }
    Ok(())
}
