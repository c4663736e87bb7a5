//! METIS `.graph`: a line for each node, with the numbers from 1 of those it is connected to.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use graphweft_base::{Error, Result};

use crate::Dataset;
use crate::csr::NodeId;
use crate::with_csr;

/// Writes a graph that goes both ways and has no self-loops, which is what the format can hold.
pub(super) fn write(data: &Dataset, path: &Path) -> Result<()> {
    let (graph, n) = (data.graph()?, data.meta().num_nodes);
    let loops = with_csr!(graph, g => (0..n).find(|&i| g.row(i).iter().any(|&j| Into::<u64>::into(j) == i as u64)));
    if let Some(node) = loops {
        let what = format!("node {node} is connected to itself, which a METIS file cannot say");
        return Err(Error::request(what, "import the graph with --self-loops remove, and export that"));
    }
    if !with_csr!(graph, g => g.is_symmetric()) {
        let what = "some edges go one way only, which a METIS file cannot say";
        return Err(Error::request(what, "import the graph with --symmetrise, and export that"));
    }
    let failed = |e| Error::write("write", path)(e);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(Error::write("create", path))?);
    writeln!(out, "{n} {}", data.meta().num_edges / 2).map_err(failed)?;
    let mut line = String::new();
    for i in 0..n {
        line.clear();
        with_csr!(graph, g => g.row(i).iter().for_each(|&j| {
            line.push_str(&(j.index() + 1).to_string());
            line.push(' ');
        }));
        writeln!(out, "{}", line.trim_end()).map_err(failed)?;
    }
    out.into_inner().map_err(|e| failed(e.into_error()))?.sync_all().map_err(failed)
}
