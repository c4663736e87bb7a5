//! A graph from its edges, in any order.

use graphweft_base::{Error, Position, Problem, Result};
use rayon::prelude::*;

use super::Csr;

impl Csr<u32> {
    /// The graph of `nodes` nodes with the edges `sources[k] → targets[k]`; parallel edges stay.
    ///
    /// # Errors
    /// [`Error::BadInput`] with the first id that is out of range, or if there are not as many sources as targets;
    /// [`Error::Request`] if there are more nodes than 32-bit ids can name.
    pub fn from_edges(nodes: usize, sources: &[u32], targets: &[u32]) -> Result<Self> {
        check(nodes, sources, targets)?;
        let mut indptr = vec![0u64; nodes + 1];
        for &target in targets {
            indptr[target as usize + 1] += 1;
        }
        for row in 0..nodes {
            indptr[row + 1] += indptr[row];
        }
        let mut next = indptr.clone();
        let mut indices = vec![0u32; sources.len()];
        for (&source, &target) in sources.iter().zip(targets) {
            let place = &mut next[target as usize];
            indices[*place as usize] = source;
            *place += 1;
        }
        drop(next);
        let mut rows = Vec::with_capacity(nodes);
        let mut rest = &mut indices[..];
        for ends in indptr.windows(2) {
            let (row, after) = rest.split_at_mut((ends[1] - ends[0]) as usize);
            rows.push(row);
            rest = after;
        }
        rows.into_par_iter().for_each(<[u32]>::sort_unstable);
        Ok(Self::from_valid(indptr, indices, nodes))
    }
}

fn check(nodes: usize, sources: &[u32], targets: &[u32]) -> Result<()> {
    if nodes as u64 > u64::from(u32::MAX) + 1 {
        let what = format!("{nodes} nodes are more than 32-bit ids can name");
        return Err(Error::request(what, "import such a graph from files, with `graphweft import`"));
    }
    if sources.len() != targets.len() {
        let problem = format!("there are {} sources and {} targets", sources.len(), targets.len());
        return Err(Error::bad("edges", "targets", problem, "give a target for every source"));
    }
    for (field, ids) in [("sources", sources), ("targets", targets)] {
        if let Some(at) = ids.par_iter().position_first(|id| *id as usize >= nodes) {
            let text = format!("{field}[{at}] = {}: there are only {nodes} nodes", ids[at]);
            let problem = Problem::at(Position::element(at), text);
            return Err(Error::bad("edges", field, problem, "correct the id, or say that there are more nodes"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_become_sorted_rows_by_target() {
        let graph = Csr::from_edges(4, &[3, 0, 2, 0, 0], &[1, 1, 0, 3, 3]).unwrap();
        assert_eq!([graph.row(0), graph.row(1), graph.row(2), graph.row(3)], [&[2][..], &[0, 3], &[], &[0, 0]]);
        assert_eq!(Csr::from_edges(2, &[], &[]).unwrap().num_edges(), 0);
    }

    #[test]
    fn a_bad_edge_is_named_by_its_place() {
        let message = |sources: &[u32], targets: &[u32]| Csr::from_edges(3, sources, targets).unwrap_err().to_string();
        assert!(message(&[0, 3], &[0, 0]).contains("sources[1] = 3"));
        assert!(message(&[0, 1], &[0, 9]).contains("targets[1] = 9"));
        assert!(message(&[0], &[]).contains("1 sources and 0 targets"));
    }
}
