//! The transformations of a CSR against naive versions, for both id widths and any number of threads.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod arbitrary;

use std::collections::BTreeSet;

use arbitrary::{Edges, edges, edges_of, on_any_threads};
use graphweft_graph::{Csr, NodeId, Permutation, SelfLoops};
use proptest::prelude::*;

fn by_destination(mut list: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    list.sort_unstable_by_key(|&(j, i)| (i, j));
    list
}

fn transposing<I: NodeId>(e: &Edges) {
    let g = e.csr::<I>();
    let (t, from) = on_any_threads(|| g.transpose_with_edges());
    assert_eq!(on_any_threads(|| g.transpose()), t);
    assert_eq!(edges_of(&t), by_destination(e.list.iter().map(|&(j, i)| (i, j)).collect()));
    let forth = edges_of(&g);
    for (k, (i, j)) in edges_of(&t).into_iter().enumerate() {
        assert_eq!(forth[from[k] as usize], (j, i), "entry {k} of the transpose");
    }
    assert_eq!(from.iter().collect::<BTreeSet<_>>().len(), forth.len(), "each edge once");
    assert_eq!(t.transpose(), g);
}

fn renumbering<I: NodeId>(e: &Edges, keys: &[u64]) {
    let g = e.csr::<I>();
    let mut ids: Vec<u64> = (0..e.n as u64).collect();
    ids.sort_by_key(|&i| keys[i as usize % keys.len()].wrapping_mul(2 * i + 1));
    let p = Permutation::from_old_of_new(ids).unwrap();
    let renumbered = on_any_threads(|| g.permute(&p));
    let expected = e.list.iter().map(|&(j, i)| (p.new_of(j), p.new_of(i))).collect();
    assert_eq!(edges_of(&renumbered), by_destination(expected));
    assert_eq!(renumbered.permute(&p.clone().inverse()), g);
}

fn symmetrising<I: NodeId>(e: &Edges) {
    let g = e.csr::<I>();
    let s = on_any_threads(|| g.symmetrise());
    let both: BTreeSet<(usize, usize)> = e.list.iter().flat_map(|&(j, i)| [(j, i), (i, j)]).collect();
    assert_eq!(edges_of(&s), by_destination(both.into_iter().collect()));
    assert!(s.is_symmetric());
    assert_eq!(s.symmetrise(), s);
    let counts = |a, b| e.list.iter().filter(|&&x| x == (a, b)).count();
    assert_eq!(g.is_symmetric(), e.list.iter().all(|&(j, i)| counts(j, i) == counts(i, j)));
}

fn loops<I: NodeId>(e: &Edges) {
    let g = e.csr::<I>();
    let without: Vec<_> = e.list.iter().copied().filter(|(j, i)| j != i).collect();
    assert_eq!(g.num_self_loops(), e.list.len() - without.len());
    let removed = on_any_threads(|| g.with_self_loops(SelfLoops::Remove));
    assert_eq!(edges_of(&removed), by_destination(without.clone()));
    let added = on_any_threads(|| g.with_self_loops(SelfLoops::Add));
    assert_eq!(edges_of(&added), by_destination(without.into_iter().chain((0..e.n).map(|i| (i, i))).collect()));
    assert_eq!(g.with_self_loops(SelfLoops::Keep), g);
}

fn merging<I: NodeId>(e: &Edges) {
    let g = e.csr::<I>();
    let merged = on_any_threads(|| g.merge_parallel());
    let once: BTreeSet<_> = e.list.iter().copied().collect();
    assert_eq!(g.num_parallel_edges(), e.list.len() - once.len());
    assert_eq!(edges_of(&merged), by_destination(once.into_iter().collect()));
    assert_eq!(merged.num_parallel_edges(), 0);
}

/// The subgraph that nodes of `keep` induce, with nodes numbered in ascending order.
fn naive_induced(e: &Edges, keep: &BTreeSet<usize>) -> Vec<(usize, usize)> {
    let new = |old: usize| keep.iter().take_while(|&&k| k < old).count();
    let inside = e.list.iter().filter(|(j, i)| keep.contains(j) && keep.contains(i));
    by_destination(inside.map(|&(j, i)| (new(j), new(i))).collect())
}

fn cutting_out<I: NodeId>(e: &Edges, seeds: &[usize], hops: usize) {
    let g = e.csr::<I>();
    let mut keep: BTreeSet<usize> = seeds.iter().map(|s| s % e.n).collect();
    let ids: Vec<I> = seeds.iter().map(|s| I::new(s % e.n)).collect();
    let check = |sub: graphweft_graph::Subgraph<I>, keep: &BTreeSet<usize>| {
        assert_eq!(sub.nodes, keep.iter().map(|&k| I::new(k)).collect::<Vec<_>>());
        assert_eq!(edges_of(&sub.graph), naive_induced(e, keep));
    };
    check(on_any_threads(|| g.induced(&ids)), &keep);
    for _ in 0..hops {
        let more: Vec<usize> = e.list.iter().filter(|(_, i)| keep.contains(i)).map(|&(j, _)| j).collect();
        keep.extend(more);
    }
    check(on_any_threads(|| g.k_hop(&ids, hops)), &keep);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn transposing_turns_every_edge_round(e in edges(60)) {
        transposing::<u32>(&e);
        transposing::<u64>(&e);
    }

    #[test]
    fn renumbering_there_and_back_changes_nothing(e in edges(60), keys in prop::collection::vec(any::<u64>(), 1..8)) {
        renumbering::<u32>(&e, &keys);
        renumbering::<u64>(&e, &keys);
    }

    #[test]
    fn symmetrising_is_the_union_with_the_transpose(e in edges(60)) {
        symmetrising::<u32>(&e);
        symmetrising::<u64>(&e);
    }

    #[test]
    fn self_loops_are_removed_or_one_each(e in edges(60)) {
        loops::<u32>(&e);
        loops::<u64>(&e);
    }

    #[test]
    fn parallel_edges_are_merged(e in edges(30)) {
        merging::<u32>(&e);
        merging::<u64>(&e);
    }

    #[test]
    fn subgraphs_have_all_edges_between_their_nodes(
        e in edges(40), seeds in prop::collection::vec(any::<usize>(), 0..6), hops in 0usize..4,
    ) {
        cutting_out::<u32>(&e, &seeds, hops);
        cutting_out::<u64>(&e, &seeds, hops);
    }
}

#[test]
fn a_graph_without_nodes_survives_everything() {
    let g = Csr::<u32>::new(vec![0], vec![], 0).unwrap();
    assert_eq!(g.transpose(), g);
    assert_eq!(g.symmetrise(), g);
    assert_eq!(g.merge_parallel(), g);
    assert_eq!(g.with_self_loops(SelfLoops::Add), g);
    assert_eq!(g.k_hop(&[], 3).graph, g);
}
