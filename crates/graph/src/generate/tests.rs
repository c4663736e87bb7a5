use std::collections::BTreeSet;

use graphweft_base::progress::Silent;

use super::*;
use crate::csr::SelfLoops;
use crate::dataset::{Dataset, Dense, Features};

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

fn graph(text: &str, seed: u64) -> Csr<u32> {
    spec(text).graph(seed, &Silent).unwrap()
}

const ALL: [&str; 10] = [
    "rmat:1:1",
    "rmat:11:16",
    "rmat:12:9+loops",
    "rmat:6:5:f=4:c=3+loops",
    "sbm:1:1:4",
    "sbm:3001:7:9",
    "sbm:2000:3:6:h=0.25:f=5:snr=2+loops",
    "grid:70:31",
    "grid:1:1+loops",
    "ba:5000:3",
];

/// The same graph by the obvious means: a set of pairs.
fn by_a_set_of_edges(spec: &Spec, seed: u64) -> Csr<u32> {
    let mut edges = BTreeSet::new();
    let n = with_draws!(spec, seed, draws => {
        draws.list(0..draws.len(), |u, v| {
            if u != v {
                edges.extend([(u, v), (v, u)]);
            }
        });
        draws.num_nodes()
    });
    if spec.loops == SelfLoops::Add {
        edges.extend((0..n as u32).map(|i| (i, i)));
    }
    let mut indptr = vec![0u64; n as usize + 1];
    for &(i, _) in &edges {
        indptr[i as usize + 1] += 1;
    }
    (1..indptr.len()).for_each(|i| indptr[i] += indptr[i - 1]);
    Csr::new(indptr, edges.iter().map(|&(_, j)| j).collect::<Vec<_>>(), n as usize).unwrap()
}

#[test]
fn counting_gives_the_set_of_edges() {
    for text in ALL {
        assert_eq!(graph(text, 5), by_a_set_of_edges(&spec(text), 5), "{text}");
    }
}

#[test]
fn several_rounds_give_the_same_as_one() {
    // More draws than fit into one round, and a last piece that is not full.
    let text = "sbm:900001:3:11";
    const { assert!(900_001 * 11 / 2 > 256 * counting::PIECE) };
    let g = graph(text, 1);
    assert!(g.is_symmetric());
    assert_eq!((g.num_self_loops(), g.num_parallel_edges()), (0, 0));
    let (mut draws, mut missing) = (0, 0);
    with_draws!(spec(text), 1, pairs => pairs.list(0..pairs.len(), |u, v| {
        draws += 1;
        missing += u32::from(g.row(u as usize).binary_search(&v).is_err());
    }));
    assert_eq!(missing, 0);
    assert!(g.num_edges() <= 2 * draws && g.num_edges() > 2 * draws - draws / 100);
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let files = |folder: &Path| {
        let mut found = Vec::new();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(at) = folders.pop() {
            for path in std::fs::read_dir(at).unwrap().map(|e| e.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.file_name().unwrap() != ".validated" {
                    found.push((path.strip_prefix(folder).unwrap().to_path_buf(), std::fs::read(&path).unwrap()));
                }
            }
        }
        found.sort();
        found
    };
    for (k, text) in ALL.iter().enumerate() {
        let [one, two, three] = [1, 2, 3].map(|threads| {
            let target = dir.path().join(format!("{k}-{threads}"));
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| spec(text).write(9, &target, &Silent)).unwrap();
            files(&target)
        });
        assert!(one.len() >= 3, "{text}");
        assert!(one == two && one == three, "{text}");
    }
    for text in ["rmat:11:16", "sbm:3001:7:9", "ba:5000:3"] {
        assert_ne!(graph(text, 1), graph(text, 2), "{text}: the seed must matter");
    }
}

#[test]
fn graphs_are_simple_symmetric_and_have_the_loops_asked_for() {
    for text in ALL {
        let g = graph(text, 0);
        assert!(g.is_symmetric(), "{text}");
        assert_eq!(g.num_parallel_edges(), 0, "{text}");
        assert_eq!(g.num_self_loops(), if text.ends_with("+loops") { g.num_dst() } else { 0 }, "{text}");
    }
}

#[test]
fn sizes_are_those_of_the_spec() {
    let g = graph("rmat:15:16+loops", 0);
    assert_eq!(g.num_dst(), 1 << 15);
    // 2^15·17 entries were drawn; an R-MAT graph this small repeats about a tenth of them.
    assert!((490_000..510_000).contains(&g.num_edges()), "{}", g.num_edges());
    assert!(g.max_degree() > 1000, "an R-MAT graph has hubs");

    let g = graph("grid:30:40", 0);
    assert_eq!((g.num_dst(), g.num_edges()), (1200, 2 * (29 * 40 + 30 * 39)));
    assert_eq!((g.row(0), g.row(41)), (&[1, 40][..], &[1, 40, 42, 81][..]));

    let g = graph("ba:10000:4", 0);
    assert_eq!(g.num_dst(), 10_000);
    assert!((78_000..=80_000).contains(&g.num_edges()), "{}", g.num_edges());

    let g = graph("sbm:10000:5:12", 0);
    assert!((118_000..=120_000).contains(&g.num_edges()), "{}", g.num_edges());
}

#[test]
fn specs_are_read_and_written_alike() {
    for text in ALL {
        assert_eq!(spec(text).to_string(), text);
    }
    assert_eq!(spec("sbm:10:2:3:snr=1.5:h=0.5").to_string(), "sbm:10:2:3:h=0.5");
}

#[test]
fn nonsense_is_refused_with_the_grammar() {
    let cases = [
        ("", "no generator"),
        ("erdos:5", "no generator \"erdos\""),
        ("rmat", "S is missing"),
        ("rmat:x", "S is \"x\""),
        ("rmat:99:1", "S is \"99\", expected a number from 1 to 32"),
        ("rmat:0:1", "S is \"0\""),
        ("rmat:5", "D is missing"),
        ("rmat:5:0", "D is \"0\""),
        ("rmat:5:-3", "D is \"-3\""),
        ("rmat:5:99999999999999999999", "D is"),
        ("rmat:5:4:3", "key=value"),
        ("rmat:5:4:q=3", "no key \"q\""),
        ("rmat:5:4:c=3", "needs f"),
        ("rmat:5:4+hubs", "no suffix \"+hubs\""),
        ("rmat:5:4+loops+loops", "no suffix"),
        ("rmat:5:4:+loops", "key=value"),
        ("rmat:+5:4", "no suffix"),
        ("sbm:10:20:3", "C is \"20\", expected a number from 1 to 10"),
        ("sbm:10:2:3:q=1", "no key \"q\""),
        ("sbm:10:2:3:h", "key=value"),
        ("sbm:10:2:3:h=1.5", "h is \"1.5\""),
        ("sbm:10:2:3:h=NaN", "h is \"NaN\""),
        ("sbm:10:2:3:snr=inf", "snr is \"inf\""),
        ("sbm:10:2:3:f=0", "f is \"0\""),
        ("grid:0:3", "R is \"0\""),
        ("grid:100000:100000", "more than 4294967296 nodes"),
        ("grid:4294967296:4294967296", "more than 4294967296 nodes"),
        ("ba:1:1", "N is \"1\""),
        ("ba:5:5", "M is \"5\""),
    ];
    for (text, problem) in cases {
        match text.parse::<Spec>() {
            Err(Error::Request { what, remedy }) => {
                assert!(what.contains(problem), "{text}: {what}");
                assert!(remedy.contains("rmat:S:D"), "{remedy}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn what_cannot_fit_into_memory_is_refused_before_it_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("g");
    let error = spec("rmat:32:1048576").write(0, &target, &Silent).unwrap_err();
    assert!(matches!(&error, Error::Memory { needed, .. } if *needed > 1 << 53), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

/// Test accuracy of the rule "the class whose training mean is nearest".
fn nearest_mean(x: &[f32], width: usize, labels: &[i64], classes: usize, data: &Dataset) -> f64 {
    let split = data.split("default").unwrap();
    let mut means = vec![0.0f64; classes * width];
    let mut sizes = vec![0.0f64; classes];
    for &i in &split.train[..] {
        let (i, c) = (i as usize, labels[i as usize] as usize);
        sizes[c] += 1.0;
        (0..width).for_each(|k| means[c * width + k] += f64::from(x[i * width + k]));
    }
    means.iter_mut().enumerate().for_each(|(k, m)| *m /= sizes[k / width]);
    let distance = |i: usize, c: usize| -> f64 {
        (0..width).map(|k| (f64::from(x[i * width + k]) - means[c * width + k]).powi(2)).sum()
    };
    let right = split.test.iter().filter(|&&i| {
        let i = i as usize;
        let best = (0..classes).min_by(|&a, &b| distance(i, a).total_cmp(&distance(i, b)));
        best == Some(labels[i] as usize)
    });
    right.count() as f64 / split.test.len() as f64
}

fn mean_over_neighbours(g: &Csr<u32>, x: &[f32], width: usize) -> Vec<f32> {
    let mut out = x.to_vec();
    for (i, row) in out.chunks_mut(width).enumerate() {
        for &j in g.row(i) {
            row.iter_mut().zip(&x[j as usize * width..]).for_each(|(a, b)| *a += b);
        }
        row.iter_mut().for_each(|a| *a /= (g.degree(i) + 1) as f32);
    }
    out
}

#[test]
fn the_block_model_is_a_task_that_needs_the_graph() {
    let dir = tempfile::tempdir().unwrap();
    for text in ["sbm:10000:7:12", "sbm:5000:10:16"] {
        let target = dir.path().join(text);
        let meta = spec(text).write(0, &target, &Silent).unwrap();
        let data = Dataset::open(&target).unwrap();
        let (Some(Features::Dense(Dense::F32 { values, width })), Some(Labels::Single(labels))) =
            (data.features(), data.labels())
        else {
            panic!("features and labels are missing");
        };
        let g = graph(text, 0);
        assert_eq!((*width, spec(text).labels(0)), (64, Some(Labels::Single(labels.clone()))));

        let raw = nearest_mean(values, *width, labels, meta.num_classes, &data);
        let hop = mean_over_neighbours(&g, values, *width);
        let hops = mean_over_neighbours(&g, &hop, *width);
        let smooth = nearest_mean(&hops, *width, labels, meta.num_classes, &data);
        assert!((0.4..0.6).contains(&raw), "{text}: features alone give {raw}");
        assert!(smooth > 0.9, "{text}: averaged over two hops they give {smooth}");
    }
}

#[test]
fn the_block_model_has_equal_classes_its_homophily_and_a_60_20_20_split() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("g");
    spec("sbm:1003:4:10:h=0.8:f=1").write(3, &target, &Silent).unwrap();
    let data = Dataset::open(&target).unwrap();
    let Some(Labels::Single(labels)) = data.labels() else { panic!("no labels") };
    let mut sizes = [0; 4];
    labels.iter().for_each(|&c| sizes[c as usize] += 1);
    sizes.sort_unstable();
    assert_eq!(sizes, [250, 251, 251, 251]);
    assert!(labels[..100].windows(2).any(|w| w[1] < w[0]), "classes are in random order");

    let split = data.split("default").unwrap();
    assert_eq!((split.train.len(), split.valid.len(), split.test.len()), (601, 201, 201));
    let all: BTreeSet<i64> = split.parts().into_iter().flat_map(|(_, ids)| ids.to_vec()).collect();
    assert_eq!(all.len(), 1003);

    let g = graph("sbm:1003:4:10:h=0.8", 3);
    let same = (0..1003).flat_map(|i| g.row(i).iter().map(move |&j| (i, j as usize)));
    let share = same.filter(|&(i, j)| labels[i] == labels[j]).count() as f64 / g.num_edges() as f64;
    assert!((share - 0.8).abs() < 0.02, "{share}");
}

#[test]
fn what_is_made_in_memory_is_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let spec: Spec = "sbm:300:4:6:f=5".parse().unwrap();
    spec.write(7, dir.path().join("g"), &Silent).unwrap();
    let written = Dataset::open(dir.path().join("g")).unwrap();
    assert_eq!(spec.features(7).as_ref(), written.features());
    assert_eq!(spec.labels(7).as_ref(), written.labels());
    assert_eq!(spec.split(7).as_ref(), written.splits().first());
    let bare: Spec = "grid:3:3".parse().unwrap();
    assert!(bare.features(7).is_none() && bare.split(7).is_none());
}
