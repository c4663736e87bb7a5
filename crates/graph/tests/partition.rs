//! What every partition must be, whatever the method.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod arbitrary;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use arbitrary::{Edges, edges, on_any_threads};
use graphweft_base::Error;
use graphweft_base::progress::Silent;
use graphweft_graph::generate::Spec;
use graphweft_graph::partition::{
    About, Balance, Existing, Method, Options, Order, Partition, Weights, check_target, covers, halo_lists, load,
    partition, partition_by_cost, save, statistics,
};
use graphweft_graph::{AnyCsr, Csr, Dataset, NodeId};
use proptest::prelude::*;

fn options() -> impl Strategy<Value = Options> {
    let balance = prop_oneof![Just(Balance::Nodes), Just(Balance::Edges), Just(Balance::Both)];
    let (method, order) = (prop::sample::select(&Method::ALL[..]), prop::sample::select(&Order::ALL[..]));
    (method, 1usize..9, balance, order, any::<u64>()).prop_map(|(method, parts, balance, order, seed)| Options {
        method,
        parts,
        balance,
        order,
        seed,
    })
}

/// Each node once, ranges in order, and both directions of the numbering agree.
fn is_a_partition(p: &Partition, n: usize, parts: usize) {
    assert_eq!((p.num_nodes(), p.num_parts()), (n, parts));
    let mut seen = HashSet::new();
    for part in 0..parts {
        for new in p.rows(part) {
            let old = p.permutation().old_of(new);
            assert!(seen.insert(old), "node {old} twice");
            assert_eq!((p.permutation().new_of(old), p.part_of(old)), (new, part));
        }
    }
    assert_eq!(seen.len(), n);
    assert_eq!((p.ranges()[0], p.ranges()[parts]), (0, n as u64));
}

/// The weights of the parts stay within 1.05 of the mean, or within what the heaviest node forces.
fn is_balanced<I: NodeId>(g: &Csr<I>, p: &Partition, options: &Options) {
    let mean = (g.num_edges() as f64 / g.num_dst().max(1) as f64).round().max(1.0) as u64;
    let weight = |i: usize| match options.balance {
        Balance::Nodes => 1,
        Balance::Edges => g.degree(i) as u64,
        Balance::Both => g.degree(i) as u64 + mean,
    };
    let (mut loads, mut total, mut heaviest) = (vec![0u64; options.parts], 0, 0);
    for i in 0..g.num_dst() {
        loads[p.part_of(i)] += weight(i);
        total += weight(i);
        heaviest = heaviest.max(weight(i));
    }
    let mean = total as f64 / options.parts as f64;
    // Contiguous parts can only be cut between nodes, the others end with room for no node of the heaviest part.
    let forced = match options.method {
        Method::Contiguous => mean + heaviest as f64,
        _ => ((total - heaviest) / options.parts as u64 + heaviest) as f64,
    };
    let most = *loads.iter().max().unwrap() as f64;
    assert!(most <= (1.05 * mean).max(forced), "{options:?}: {most} of {mean}, heaviest node {heaviest}");
}

fn made_right<I: NodeId>(e: &Edges, options: &Options) {
    let g = e.csr::<I>();
    let p = on_any_threads(|| partition(&g, options, &Silent).unwrap());
    is_a_partition(&p, e.n, options.parts);
    is_balanced(&g, &p, options);

    let stats = on_any_threads(|| statistics(&g, &p));
    let mut total = 0;
    for r in 0..options.parts {
        let lists = on_any_threads(|| halo_lists(&g, &p, r));
        for (s, list) in lists.iter().enumerate() {
            let remote = e.list.iter().filter(|&&(j, i)| r != s && p.part_of(i) == r && p.part_of(j) == s);
            let naive: BTreeSet<u64> = remote.map(|&(j, _)| p.permutation().new_of(j) as u64).collect();
            assert_eq!(*list, naive.iter().copied().collect::<Vec<_>>(), "what {r} needs of {s}");
            assert_eq!(stats.halo[r][s], naive.len() as u64);
            total += naive.len();
        }
        let (rows, into) = (p.rows(r).len(), e.list.iter().filter(|(_, i)| p.part_of(*i) == r).count());
        assert_eq!((stats.rows[r], stats.edges[r]), (rows as u64, into as u64));
    }
    let cut = e.list.iter().filter(|&&(j, i)| p.part_of(i) != p.part_of(j)).count();
    assert_eq!(stats.cut_edges, cut as u64);
    assert!((stats.alpha - total as f64 / e.n as f64).abs() < 1e-12);
    assert!((stats.cut - cut as f64 / e.list.len().max(1) as f64).abs() < 1e-12);
    let gap =
        |&(j, i): &(usize, usize)| (1.0 + p.permutation().new_of(i).abs_diff(p.permutation().new_of(j)) as f64).log2();
    let gaps: f64 = e.list.iter().map(gap).sum();
    assert!((stats.gap_bits - gaps / e.list.len().max(1) as f64).abs() < 1e-3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_method_gives_each_node_one_part_and_counts_what_it_costs(e in edges(80), mut options in options()) {
        options.parts = options.parts.min(e.n);
        made_right::<u32>(&e, &options);
        made_right::<u64>(&e, &options);
    }

    #[test]
    fn contiguous_parts_without_reordering_keep_all_ids(e in edges(60), parts in 1usize..9) {
        let options = Options { order: Order::None, ..Options::new(Method::Contiguous, parts.min(e.n)) };
        let p = partition(&e.csr::<u32>(), &options, &Silent).unwrap();
        prop_assert!(p.permutation().old_of_new().iter().copied().eq(0..e.n as u64));
    }

}

proptest! {
    // Each case waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_stored_is_loaded(e in edges(40), mut options in options()) {
        options.parts = options.parts.min(e.n);
        let g = e.csr::<u32>();
        let p = partition(&g, &options, &Silent).unwrap();
        let about = About::new(&options, false, statistics(&g, &p));
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("part/here");
        save(&dir, &p, &about, Existing::Keep).unwrap();
        let stored = load(&dir, e.n).unwrap();
        prop_assert_eq!(stored.partition, p);
        prop_assert_eq!(stored.about, about);
    }
}

/// More blocks than one, so that passes of several blocks are compared across threads too.
#[test]
fn a_larger_graph_is_divided_the_same_on_any_number_of_threads() {
    let n = 10_000usize;
    let random = |k: usize| k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let list = (0..5 * n).map(|k| (k % n, if k % 3 == 0 { random(k) % n } else { (k % n + random(k) % 50) % n }));
    let g = Edges { n, list: list.collect() }.csr::<u32>().symmetrise();
    let options = |balance| Options { balance, ..Options::new(Method::Streaming, 5) };
    let made = [Balance::Nodes, Balance::Edges, Balance::Both].map(|balance| {
        let p = on_any_threads(|| partition(&g, &options(balance), &Silent).unwrap());
        is_a_partition(&p, n, 5);
        is_balanced(&g, &p, &options(balance));
        p
    });
    let other = partition(&g, &Options { seed: 1, ..options(Balance::Nodes) }, &Silent).unwrap();
    assert_ne!(other, made[0], "the seed changes nothing");
}

/// Hubs with few nodes around them: parts of as many nodes differ in edges, and the other way round.
#[cfg(feature = "metis")]
#[test]
fn metis_shares_out_nodes_and_edges_at_once() {
    let n = 4000usize;
    let random = |k: usize| k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    // Node i has about n / (i + 20) random neighbours among those near it.
    let list = (0..n).flat_map(|i| (0..1 + n / (i + 20)).map(move |k| (i, (i + random(n * i + k) % 200) % n)));
    let g = Edges { n, list: list.collect() }.csr::<u32>().symmetrise();
    let imbalance = |balance| {
        let p = partition(&g, &Options { balance, ..Options::new(Method::Metis, 4) }, &Silent).unwrap();
        statistics(&g, &p).imbalance
    };
    let (nodes, edges, both) = (imbalance(Balance::Nodes), imbalance(Balance::Edges), imbalance(Balance::Both));
    assert!(nodes.edges > 1.3 && edges.nodes > 1.3, "{nodes:?} {edges:?}: this graph shows nothing");
    assert!(both.nodes < 1.15 && both.edges < 1.15, "{both:?}");
}

#[test]
fn graphs_without_edges_or_nodes_are_divided_too() {
    for method in Method::ALL {
        for balance in [Balance::Nodes, Balance::Edges, Balance::Both] {
            let options = Options { balance, ..Options::new(method, 1) };
            let nothing = Csr::<u32>::new(vec![0], vec![], 0).unwrap();
            let p = partition(&nothing, &options, &Silent).unwrap();
            assert_eq!((p.num_parts(), p.num_nodes(), statistics(&nothing, &p).alpha), (1, 0, 0.0));

            let isolated = Csr::<u32>::new(vec![0; 11], vec![], 10).unwrap();
            let p = partition(&isolated, &Options { parts: 5, ..options }, &Silent).unwrap();
            is_a_partition(&p, 10, 5);
            let stats = statistics(&isolated, &p);
            assert_eq!((stats.alpha, stats.cut, stats.imbalance.edges), (0.0, 0.0, 1.0), "{method}");
            if balance == Balance::Nodes {
                assert_eq!(stats.rows, [2; 5], "{method}");
            }
        }
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let g = Csr::<u32>::new(vec![0; 4], vec![], 3).unwrap();
    for (parts, says) in [(0, "0 parts"), (4, "3 nodes")] {
        for method in Method::ALL {
            match partition(&g, &Options::new(method, parts), &Silent) {
                Err(Error::Request { what, .. }) => assert!(what.contains(says), "{what}"),
                other => panic!("{parts} parts by {method}: {other:?}"),
            }
        }
    }
    let many = Csr::<u32>::new(vec![0; 5001], vec![], 5000).unwrap();
    let error = partition(&many, &Options::new(Method::Random, 4097), &Silent).unwrap_err();
    assert!(error.to_string().contains("4096"), "{error}");
    assert!("spectral".parse::<Method>().unwrap_err().to_string().contains("streaming"));
    assert!(Method::ALL.into_iter().all(|m| m.to_string().parse::<Method>().unwrap() == m));
    assert!(Order::ALL.into_iter().all(|o| o.to_string().parse::<Order>().unwrap() == o));
}

#[test]
fn corrupt_files_are_named() {
    use graphweft_graph::npy::write_npy;
    let e = Edges { n: 6, list: vec![(0, 1), (1, 0), (4, 5), (5, 4)] };
    let g = e.csr::<u32>();
    let options = Options::new(Method::Streaming, 2);
    let p = partition(&g, &options, &Silent).unwrap();
    let about = About::new(&options, false, statistics(&g, &p));
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("p");
    let cases: Vec<(&str, Vec<i64>, &str)> = vec![
        ("perm", vec![0, 1, 2, 3, 4, 4], "twice"),
        ("perm", vec![0, 1, 2, 3, 4, 6], "only 6 nodes"),
        ("perm", vec![0, 1, 2, 3, 4, -1], "negative"),
        ("perm", vec![0, 1, 2, 3, 4], "expected [6]"),
        ("ranges", vec![0, 3, 5], "there are 6 nodes"),
        ("ranges", vec![1, 3, 6], "expected 0"),
        ("ranges", vec![0, 7, 6], "below"),
        ("ranges", vec![0, 6], "expected [3]"),
        ("ranges", vec![0, -3, 6], "negative"),
    ];
    for (file, ids, says) in cases {
        save(&dir, &p, &about, Existing::Replace).unwrap();
        assert!(load(&dir, 6).is_ok());
        let path = dir.join(format!("{file}.npy"));
        write_npy(&path, &[], &ids).unwrap();
        match load(&dir, 6) {
            Err(Error::BadInput { file: named, field, problem, .. }) => {
                assert_eq!((named, field.as_str()), (path, file));
                assert!(problem.to_string().contains(says), "{problem}");
            }
            other => panic!("{file} {ids:?}: {other:?}"),
        }
    }
    save(&dir, &p, &about, Existing::Replace).unwrap();
    write_npy(dir.join("perm.npy"), &[], &[0u32; 6]).unwrap();
    assert!(load(&dir, 6).unwrap_err().to_string().contains("int64"));
    save(&dir, &p, &about, Existing::Replace).unwrap();
    fs::write(dir.join("about.toml"), "method = \"spectral\"").unwrap();
    assert!(load(&dir, 6).unwrap_err().to_string().contains("about.toml"));
    assert!(load(&root.path().join("none"), 6).unwrap_err().to_string().contains("check the path"));
}

#[test]
fn nothing_is_overwritten_unless_asked_and_nothing_is_left_behind() {
    let g = Edges { n: 4, list: vec![] }.csr::<u32>();
    let options = Options::new(Method::Contiguous, 2);
    let p = partition(&g, &options, &Silent).unwrap();
    let about = About::new(&options, false, statistics(&g, &p));
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("p");
    save(&dir, &p, &about, Existing::Keep).unwrap();
    assert!(matches!(save(&dir, &p, &about, Existing::Keep), Err(Error::Request { .. })));
    save(&dir, &p, &about, Existing::Replace).unwrap();
    let other = root.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("precious"), "data").unwrap();
    assert!(matches!(check_target(&other, Existing::Replace), Err(Error::Request { .. })));
    assert!(matches!(save(&other, &p, &about, Existing::Replace), Err(Error::Request { .. })));
    let mut left: Vec<_> = fs::read_dir(root.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["other", "p"]);
}

// On real graphs, where partitioners differ.

fn real(name: &str) -> Csr<u32> {
    let dir = Path::new(env!("GRAPHWEFT_SHARED_DATA")).join(name);
    match Dataset::open(&dir).unwrap().graph().unwrap() {
        AnyCsr::Narrow(g) => g.symmetrise(),
        AnyCsr::Wide(_) => panic!("{name} has few nodes"),
    }
}

/// Divides into 8, checks the balance, and gives α.
#[test]
fn parts_share_what_rows_cost() {
    let g: Csr<u32> = "sbm:400:4:8".parse::<Spec>().unwrap().graph(0, &Silent).unwrap();
    // A type with cheap rows before one with dear ones.
    let costs: Vec<u32> = (0..400).map(|i| if i < 300 { 10 } else { 90 }).collect();
    let of = |found: &Partition, part: usize| -> u64 {
        let rows = &found.permutation().old_of_new()[found.rows(part)];
        rows.iter().map(|old| u64::from(costs[*old as usize])).sum()
    };
    for method in Method::ALL.into_iter().filter(|method| method.is_available()) {
        // METIS alone holds both rows and edges level; elsewhere they are one sum.
        let both = (method == Method::Metis).then_some(Balance::Both);
        for balance in std::iter::once(Balance::Nodes).chain(both) {
            let options = Options { balance, ..Options::new(method, 4) };
            let found = partition_by_cost(&g, &options, Some(&costs), &Silent).unwrap();
            let most = (0..4).map(|part| of(&found, part)).max().unwrap();
            let mean = costs.iter().map(|cost| u64::from(*cost)).sum::<u64>() as f64 / 4.0;
            assert!(most as f64 <= 1.06 * mean, "{method} {balance:?}: {most} of {mean}");
        }
        let alike = partition_by_cost(&g, &Options::new(method, 4), Some(&[7; 400]), &Silent).unwrap();
        let sizes: Vec<usize> = (0..4).map(|part| alike.rows(part).len()).collect();
        assert!(sizes.iter().all(|size| (95..=105).contains(size)), "{method}: {sizes:?}");
    }
    let few = partition_by_cost(&g, &Options::new(Method::Random, 4), Some(&[1; 3]), &Silent);
    assert!(few.unwrap_err().to_string().contains("3 costs"));
}

fn alpha(g: &Csr<u32>, method: Method, balance: Balance) -> f64 {
    // The order inside parts does not change what they cost each other.
    let p = partition(g, &Options { balance, order: Order::None, ..Options::new(method, 8) }, &Silent).unwrap();
    let stats = statistics(g, &p);
    let imbalance = if balance == Balance::Nodes { stats.imbalance.nodes } else { stats.imbalance.edges };
    assert!(imbalance <= 1.05, "{method} by {balance:?}: {imbalance}");
    stats.alpha
}

fn alphas(g: &Csr<u32>, balance: Balance) -> [f64; 4] {
    Method::ALL.map(|method| alpha(g, method, balance))
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn law_cnr2000_in_eight() {
    let g = real("law-cnr2000");
    let a = alphas(&g, Balance::Nodes);
    assert!((a[0] - 0.136).abs() < 0.001 && (a[1] - 3.56).abs() < 0.02, "{a:?}");
    assert!(a[2] <= 0.025 && a[3] <= 0.025, "{a:?}");
    let a = alphas(&g, Balance::Edges);
    assert!(a[2] <= 0.09 && a[3] <= 0.1, "{a:?}");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn web_google_in_eight() {
    let g = real("snap-web-google");
    let a = alphas(&g, Balance::Nodes);
    assert!((a[0] - 3.60).abs() < 0.01 && (a[1] - 3.63).abs() < 0.02, "{a:?}");
    assert!(a[2] <= 0.08 && a[3] <= 0.07, "{a:?}");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn web_google_in_eight_by_edges() {
    let g = real("snap-web-google");
    let a = alphas(&g, Balance::Edges);
    assert!(a[2] <= 0.08 && a[3] <= 0.07, "{a:?}");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn clusters_bring_neighbours_together() {
    let g = real("pubmed");
    let gap = |order| {
        let p = partition(&g, &Options { order, ..Options::new(Method::Streaming, 8) }, &Silent).unwrap();
        statistics(&g, &p).gap_bits
    };
    let gaps = Order::ALL.map(gap);
    let others = gaps[..3].iter().copied().fold(f64::INFINITY, f64::min);
    assert!(gaps[3] < others - 1.0, "{gaps:?}");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn small_graphs_in_eight() {
    for (name, most) in [("pubmed", 0.4), ("coauthor-cs", 0.8), ("amazon-photo", 1.4)] {
        let g = real(name);
        for balance in [Balance::Nodes, Balance::Edges] {
            let a = alphas(&g, balance);
            assert!(a[2] <= most && a[3] <= most, "{name} by {balance:?}: {a:?}");
        }
    }
}

/// The rows that the covers of all parts move for a graph transformer of width 128 with 8 heads, and how long they
/// took.
fn covered(g: &Csr<u32>, p: &Partition) -> (u64, Duration) {
    let permuted = g.permute(p.permutation());
    let ranges: Vec<usize> = p.ranges().iter().map(|r| *r as usize).collect();
    let weights = Weights { pull: 4 * 128, push: 4 * 128 + 4 * 8 };
    let (mut moved, mut time) = (0, Duration::ZERO);
    for part in 0..p.num_parts() {
        let rows = p.rows(part);
        let first = permuted.indptr()[rows.start];
        let indptr: Vec<u64> = permuted.indptr()[rows.start..=rows.end].iter().map(|x| x - first).collect();
        let indices = permuted.indices()[first as usize..permuted.indptr()[rows.end] as usize].to_vec();
        let own = Csr::new(indptr, indices, permuted.num_src()).unwrap();
        let start = Instant::now();
        let covers = covers(&own, &ranges, part, weights);
        time += start.elapsed();
        moved += covers.iter().map(|c| (c.pulled.len() + c.pushed.len()) as u64).sum::<u64>();
    }
    (moved, time)
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn a_cover_moves_fewer_rows_than_a_halo_and_takes_less_time_than_metis() {
    for (name, least) in [
        ("pubmed", 1.25),
        ("coauthor-cs", 1.33),
        ("amazon-photo", 1.45),
        ("law-cnr2000", 2.5),
        ("snap-web-google", 1.4),
    ] {
        let g = real(name);
        let start = Instant::now();
        let p = partition(&g, &Options { order: Order::None, ..Options::new(Method::Metis, 8) }, &Silent).unwrap();
        let partitioning = start.elapsed();
        let halo = statistics(&g, &p).halo.iter().flatten().sum::<u64>();
        let (moved, covering) = covered(&g, &p);
        let ratio = halo as f64 / moved as f64;
        eprintln!("{name}: {halo} rows by halo, {moved} by cover: {ratio:.2}; METIS {partitioning:?}, {covering:?}");
        assert!(ratio >= least && covering < partitioning, "{name}: {ratio} {covering:?} {partitioning:?}");
    }
}
