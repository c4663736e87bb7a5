//! A graph from its edges, in any order.

use std::fmt::Display;

use graphweft_base::{Error, Position, Problem, Result};
use rayon::prelude::*;

use super::Csr;

/// Rows that one task sorts.
const ROWS: usize = 1 << 12;

impl Csr<u32> {
    /// The graph of `nodes` nodes with the edges `sources[k] → targets[k]`, ids of any integer type; parallel edges
    /// stay. Beside the graph it takes memory for one number per node: callers have edges of many bytes already.
    ///
    /// # Errors
    /// [`Error::BadInput`] with the first id that is out of range, or if there are not as many sources as targets;
    /// [`Error::Request`] if there are more nodes than 32-bit ids can name.
    pub fn from_edges<I>(nodes: usize, sources: &[I], targets: &[I]) -> Result<Self>
    where
        I: Copy + Sync + Display + TryInto<usize>,
    {
        check(nodes, sources, targets)?;
        let (indptr, mut indices) = by_target(nodes, targets, |edge| index(sources[edge]) as u32);
        sort_rows(&indptr, &mut indices, <[u32]>::sort_unstable);
        Ok(Self::from_valid(indptr, indices, nodes))
    }

    /// For each place in the indices, which of these edges stands there: what is known of edges as they were given is
    /// so put in the order of the graph. Parallel edges keep their order.
    ///
    /// # Errors
    /// As [`Csr::from_edges`]; if these are not the edges of this graph.
    pub fn edge_order<I>(&self, sources: &[I], targets: &[I]) -> Result<Vec<u64>>
    where
        I: Copy + Sync + Display + TryInto<usize>,
    {
        check(self.num_dst(), sources, targets)?;
        let (indptr, mut order) = by_target(self.num_dst(), targets, |edge| edge as u64);
        let source = |edge: &u64| index(sources[*edge as usize]);
        sort_rows(&indptr, &mut order, |row| row.sort_by_key(source));
        let same = |(edge, id): (&u64, &u32)| source(edge) == *id as usize;
        if indptr[..] != self.indptr()[..] || !order.par_iter().zip(self.indices().par_iter()).all(same) {
            let remedy = "give the edges that the graph was made of";
            return Err(Error::bad("edges", "edges", "these are not the edges of the graph", remedy));
        }
        Ok(order)
    }
}

/// What `of` says of each edge, row by row, in the order of the edges; and where rows begin.
fn by_target<I, T>(nodes: usize, targets: &[I], of: impl Fn(usize) -> T) -> (Vec<u64>, Vec<T>)
where
    I: Copy + TryInto<usize>,
    T: Copy + Default,
{
    let mut indptr = vec![0u64; nodes + 1];
    for &target in targets {
        indptr[index(target) + 1] += 1;
    }
    for row in 0..nodes {
        indptr[row + 1] += indptr[row];
    }
    let mut next = indptr.clone();
    let mut rows = vec![T::default(); targets.len()];
    for (edge, &target) in targets.iter().enumerate() {
        let place = &mut next[index(target)];
        rows[*place as usize] = of(edge);
        *place += 1;
    }
    (indptr, rows)
}

/// Sorts every row by itself, many at once.
fn sort_rows<T: Send>(indptr: &[u64], all: &mut [T], sort: impl Fn(&mut [T]) + Sync) {
    let mut tasks = Vec::new();
    let mut rest = all;
    for first in (0..indptr.len() - 1).step_by(ROWS) {
        let ends = &indptr[first..=(first + ROWS).min(indptr.len() - 1)];
        let (rows, after) = rest.split_at_mut((ends[ends.len() - 1] - ends[0]) as usize);
        tasks.push((ends, rows));
        rest = after;
    }
    tasks.into_par_iter().for_each(|(ends, rows)| {
        for row in ends.windows(2) {
            sort(&mut rows[(row[0] - ends[0]) as usize..(row[1] - ends[0]) as usize]);
        }
    });
}

/// An id as an index; one that is none is past every node.
fn index<I: TryInto<usize>>(id: I) -> usize {
    id.try_into().unwrap_or(usize::MAX)
}

fn check<I>(nodes: usize, sources: &[I], targets: &[I]) -> Result<()>
where
    I: Copy + Sync + Display + TryInto<usize>,
{
    if nodes as u64 > u64::from(u32::MAX) + 1 {
        let what = format!("{nodes} nodes are more than 32-bit ids can name");
        return Err(Error::request(what, "import such a graph from files, with `graphweft import`"));
    }
    if sources.len() != targets.len() {
        let problem = format!("there are {} sources and {} targets", sources.len(), targets.len());
        return Err(Error::bad("edges", "targets", problem, "give a target for every source"));
    }
    for (field, ids) in [("sources", sources), ("targets", targets)] {
        if let Some(at) = ids.par_iter().position_first(|id| index(*id) >= nodes) {
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
        assert_eq!(Csr::from_edges::<u32>(2, &[], &[]).unwrap().num_edges(), 0);
        assert_eq!(Csr::from_edges::<u32>(0, &[], &[]).unwrap().num_edges(), 0);
    }

    #[test]
    fn rows_of_several_tasks_are_sorted() {
        let nodes = 2 * ROWS + 3;
        let sources: Vec<i64> = (0..nodes as i64).chain((0..nodes as i64).rev()).collect();
        let targets: Vec<i64> = (0..nodes as i64).chain(0..nodes as i64).collect();
        let graph = Csr::from_edges(nodes, &sources, &targets).unwrap();
        for row in 0..nodes {
            let (own, other) = (row as u32, (nodes - 1 - row) as u32);
            assert_eq!(graph.row(row), [own.min(other), own.max(other)]);
        }
    }

    #[test]
    fn what_is_known_of_edges_finds_their_places() {
        let (sources, targets) = ([3, 0, 2, 0, 0, 3], [1, 1, 0, 3, 3, 1]);
        let graph = Csr::from_edges(4, &sources, &targets).unwrap();
        assert_eq!(graph.edge_order(&sources, &targets).unwrap(), [2, 1, 0, 5, 3, 4]);
        for (sources, targets) in [(&[3, 0, 2, 0, 0, 2], &targets), (&sources, &[1, 1, 0, 3, 3, 2])] {
            let message = graph.edge_order(sources, targets).unwrap_err().to_string();
            assert!(message.contains("not the edges of the graph"), "{message}");
        }
        assert!(graph.edge_order(&sources[1..], &targets[1..]).is_err());
    }

    #[test]
    fn a_bad_edge_is_named_by_its_place() {
        let message = |sources: &[i64], targets: &[i64]| Csr::from_edges(3, sources, targets).unwrap_err().to_string();
        assert!(message(&[0, 3], &[0, 0]).contains("sources[1] = 3"));
        assert!(message(&[0, -1], &[0, 0]).contains("sources[1] = -1"));
        assert!(message(&[0, 1], &[0, 9]).contains("targets[1] = 9"));
        assert!(message(&[0], &[]).contains("1 sources and 0 targets"));
    }
}
