//! Parts by METIS: multilevel k-way partitioning of the undirected graph.
//!
//! METIS wants a symmetric graph without self-loops or parallel edges, in arrays of 32-bit numbers of its own. It is
//! sequential. Its random numbers are the C library's, one state per process, hence the lock: two calls at once would
//! still be valid, but not the same every time.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use graphweft_base::progress::{Progress, Unit};
use graphweft_base::{Error, Result};
use metis::Idx;
use rayon::prelude::*;

use super::balance::{Balance, Weighing};
use super::{Options, PartId};
use crate::csr::{Csr, NodeId};

/// In thousandths: METIS aims at 1.03, and the last step moves a few nodes where it misses 1.05.
const ALLOWED_IMBALANCE: Idx = 30;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub(super) fn assign<I: NodeId>(
    graph: &Csr<I>,
    options: &Options,
    weighing: Weighing<'_>,
    progress: &dyn Progress,
) -> Result<Vec<PartId>> {
    let Options { parts, balance, seed, .. } = *options;
    // Symmetrising can only add entries: refuse before it takes the memory.
    fits(graph.num_dst(), distinct(graph).sum())?;
    let phase = progress.start("preparing METIS", 0, Unit::Items);
    let undirected = if graph.is_symmetric() { Cow::Borrowed(graph) } else { Cow::Owned(graph.symmetrise()) };
    fits(graph.num_dst(), distinct(&undirected).sum())?;
    let (offsets, neighbours) = arrays(&undirected);
    drop(undirected);
    drop(phase);
    match balance {
        Balance::Nodes => {}
        Balance::Edges => fits(graph.num_dst(), graph.num_edges())?,
        Balance::Both => fits(2 * graph.num_dst(), graph.num_edges())?,
    }
    fits(weighing.rows(graph.num_dst()) as usize, 0)?;
    let edges = (0..graph.num_dst()).map(|i| graph.degree(i) as Idx);
    let rows = (0..graph.num_dst()).map(|i| weighing.row(i) as Idx);
    let (constraints, weights): (_, Option<Vec<Idx>>) = match balance {
        Balance::Nodes => (1, weighing.costs.map(|_| rows.collect())),
        Balance::Edges => (1, Some(edges.collect())),
        Balance::Both => (2, Some(rows.zip(edges).flat_map(|(row, degree)| [row, degree]).collect())),
    };

    let _phase = progress.start("METIS", 0, Unit::Items);
    let mut part_of: Vec<Idx> = vec![0; graph.num_dst()];
    let failed = |why: String| {
        let remedy = "choose the method streaming, which needs far less memory";
        Error::request(format!("METIS cannot divide this graph: {why}"), remedy)
    };
    // METIS takes negative seeds for "none".
    let seed = (seed ^ (seed >> 32)) as Idx & Idx::MAX;
    let job = metis::Graph::new(constraints, parts as Idx, &offsets, &neighbours).map_err(|e| failed(e.to_string()))?;
    let job = match &weights {
        Some(w) => job.set_vwgt(w),
        None => job,
    };
    let job = job.set_option(metis::option::UFactor(ALLOWED_IMBALANCE)).set_option(metis::option::Seed(seed));
    divide(job, &mut part_of).map_err(|e| failed(e.to_string()))?;
    Ok(part_of.into_iter().map(|p| p as PartId).collect())
}

/// Runs METIS. It ends with an error where it cannot go on; see `metis.c`.
fn divide(job: metis::Graph<'_>, part_of: &mut [Idx]) -> metis::Result<Idx> {
    unsafe extern "C" {
        safe fn graphweft_metis();
    }
    graphweft_metis();
    let _lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    job.part_kway(part_of)
}

/// The number of neighbours of every node, itself not counted.
fn distinct<I: NodeId>(graph: &Csr<I>) -> impl IndexedParallelIterator<Item = usize> {
    (0..graph.num_dst()).into_par_iter().with_min_len(1024).map(|i| neighbours_of(graph, i).count())
}

fn neighbours_of<I: NodeId>(graph: &Csr<I>, i: usize) -> impl Iterator<Item = I> {
    graph.row(i).chunk_by(|a, b| a == b).map(|same| same[0]).filter(move |j| j.index() != i)
}

fn fits(nodes: usize, entries: usize) -> Result<()> {
    let most = Idx::MAX as usize;
    if nodes >= most || entries > most {
        let what = format!("{nodes} nodes with {entries} entries are more than METIS's 32-bit numbers can count");
        return Err(Error::request(what, "choose the method streaming"));
    }
    Ok(())
}

/// METIS's offsets and neighbour lists. Everything is known to fit.
fn arrays<I: NodeId>(graph: &Csr<I>) -> (Vec<Idx>, Vec<Idx>) {
    let mut offsets: Vec<Idx> = vec![0; graph.num_dst() + 1];
    offsets[1..].par_iter_mut().zip(distinct(graph)).for_each(|(slot, count)| *slot = count as Idx);
    let mut sum = 0;
    for x in &mut offsets {
        sum += *x;
        *x = sum;
    }
    let mut neighbours = Vec::with_capacity(sum as usize);
    neighbours.extend((0..graph.num_dst()).flat_map(|i| neighbours_of(graph, i)).map(|j| j.index() as Idx));
    (offsets, neighbours)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use signal_hook::consts::SIGTERM;

    use super::*;

    /// A square of nodes that know those beside them.
    fn square(side: usize) -> [Vec<Idx>; 2] {
        let (mut offsets, mut neighbours) = (vec![0], Vec::new());
        for node in 0..side * side {
            let (row, column) = (node / side, node % side);
            let beside = [(row > 0, node.wrapping_sub(side)), (column > 0, node.wrapping_sub(1))];
            let after = [(column + 1 < side, node + 1), (row + 1 < side, node + side)];
            let there = beside.into_iter().chain(after).filter(|(there, _)| *there);
            neighbours.extend(there.map(|(_, other)| other as Idx));
            offsets.push(neighbours.len() as Idx);
        }
        [offsets, neighbours]
    }

    /// Signals come to a thread that METIS does not run on, and to the handler that the program has.
    #[test]
    fn signals_are_left_to_those_who_listen() {
        let heard = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGTERM, Arc::clone(&heard)).unwrap();
        let [offsets, neighbours] = square(300);
        let divided = || {
            let mut part_of = vec![0; offsets.len() - 1];
            divide(metis::Graph::new(1, 16, &offsets, &neighbours).unwrap(), &mut part_of).map(|cut| (cut, part_of))
        };
        let alone = divided().unwrap();
        let sent = thread::scope(|scope| {
            let dividing = scope.spawn(|| [divided().unwrap(), divided().unwrap()]);
            let mut sent = 0;
            while !dividing.is_finished() {
                signal_hook::low_level::raise(SIGTERM).unwrap();
                assert!(heard.swap(false, Ordering::Relaxed), "signal {sent} was heard by somebody else");
                sent += 1;
            }
            assert!(dividing.join().unwrap().iter().all(|found| *found == alone));
            sent
        });
        assert!(sent > 0, "METIS was not waited for");
    }

    /// What METIS refuses in the middle of its work is an error of this call alone.
    #[test]
    fn a_failure_of_metis_is_an_error_and_the_next_call_works() {
        let (offsets, neighbours) = ([0, 1, 2, 3, 4], [1, 0, 3, 2]);
        let job = || metis::Graph::new(1, 2, &offsets, &neighbours).unwrap();
        let in_one_piece = job().set_option(metis::option::Contig(true));
        assert_eq!(divide(in_one_piece, &mut [0; 4]), Err(metis::Error::Other));
        assert_eq!(divide(job(), &mut [0; 4]), Ok(0));
    }

    #[test]
    fn what_does_not_fit_32_bits_is_refused_with_a_way_out() {
        assert!(fits((1 << 31) - 2, (1 << 31) - 1).is_ok());
        for (nodes, entries) in [((1 << 31) - 1, 10), (10, 1 << 31)] {
            let message = fits(nodes, entries).unwrap_err().to_string();
            assert!(message.contains("32-bit") && message.contains("streaming"), "{message}");
        }
    }

    #[test]
    fn loops_and_parallel_edges_are_not_shown_to_metis() {
        let g = Csr::<u32>::new(vec![0, 3, 5, 6], vec![0, 1, 1, 0, 0, 2], 3).unwrap();
        assert_eq!(arrays(&g), (vec![0, 1, 2, 2], vec![1, 0]));
    }
}
