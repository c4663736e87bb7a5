//! Whole graphs: batches on any number of ranks are those of one, bit for bit when a run is repeated or goes on; every
//! model that reads out; several labels and missing ones; a row per graph is written; what makes no sense is refused.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::whole::rings::{GRAPHS, Known, Nodes, folder};
use crate::whole::{apart, fresh, numbers, resume, same, stopped};
use graphweft_base::progress::Silent;
use graphweft_graph::dataset::{Categories, Dataset, Dense, Features, Graphs, Labels, Parts, Split};
use graphweft_graph::npy::{NpyFile, write_npy};
use graphweft_graph::{AnyCsr, Csr};
use graphweft_train::config::{Config, Draft};
use graphweft_train::data::Data;
use graphweft_train::ranks::World;
use graphweft_train::run::Trained;
use graphweft_train::task::{Format, Output, What};

fn config(data: &Path, more: &[&str]) -> Config {
    let usual = [
        "model.name=gin",
        "model.hidden=16",
        "model.layers=2",
        "train.batch=10",
        "train.epochs=4",
        "train.lr=0.01",
        "train.dropout=0.3",
        "run.checkpoint_every=2",
        "parallel.profile=16-cpu-10g",
    ];
    let mut draft = Draft::default();
    draft.set("data", "path", data.display().to_string()).unwrap();
    usual.iter().chain(more).for_each(|setting| draft.assign(setting).unwrap());
    draft.finish().unwrap()
}

fn with<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<&'a str> {
    a.iter().chain(b).copied().collect()
}

fn predictions(dir: &Path) -> (Vec<usize>, Vec<f64>) {
    let file = NpyFile::open(dir.join("predictions.npy")).unwrap();
    (file.shape().to_vec(), file.elements::<f32>().unwrap().iter().map(|x| f64::from(*x)).collect())
}

#[test]
fn batches_on_ranks_are_those_of_one_rank() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), Nodes::Both, Known::Class);
    let tuned = ["model.stack=tuned", "model.input_linear=true", "model.norm=batch", "model.readout=sum"];
    for (name, model) in [
        ("gin", &["model.norm=batch", "model.readout=sum", "model.readout_from=all"][..]),
        ("virtual", &with(&tuned, &["model.virtual_node=true"])),
        ("gt", &["model.name=gt", "model.heads=2", "train.attention_dropout=0.2", "model.readout=attention"]),
        ("gat", &["model.name=gat", "model.heads=2", "model.readout=max"]),
        ("gps", &["model.name=gps", "train.attention_dropout=0.2", "encoding.laplacian=3", "encoding.random_walk=4"]),
        ("set", &["model.name=sage", "model.norm=graph", "model.readout=set"]),
    ] {
        let more = with(model, &["compute.dtype=f64"]);
        let alone = root.path().join(format!("{name}-1"));
        fresh(&config(&data, &more), &alone);
        for ranks in [2, 3, 4, 8] {
            let (count, path) = (format!("parallel.ranks={ranks}"), root.path().join(format!("{name}-{ranks}")));
            fresh(&config(&data, &with(&more, &[&count])), &path);
            let off = apart(&numbers(&alone), &numbers(&path));
            assert!(off < 1e-9, "{name} on {ranks}: {off}");
            let off = apart(&predictions(&alone).1, &predictions(&path).1);
            // They are stored as f32.
            assert!(off < 1e-6, "{name} on {ranks}: predictions {off}");
            let plan = fs::read_to_string(path.join("plan.json")).unwrap();
            assert!(plan.contains("\"batches\""), "{plan}");
        }
    }
}

/// The rings with two numbers for each edge.
fn with_bonds(root: &Path) -> std::path::PathBuf {
    let data = folder(root, Nodes::Both, Known::Class);
    let edges = NpyFile::open(data.join("indices.npy")).unwrap().shape()[0];
    let values: Vec<f32> = (0..2 * edges).map(|k| (k * 7 % 11) as f32 / 5.0 - 1.0).collect();
    write_npy(data.join("edge_feat.npy"), &[2], &values).unwrap();
    data
}

#[test]
fn features_of_edges_go_with_their_edges_into_every_batch() {
    with_features_of_edges(&["model.name=gt", "model.heads=2", "compute.dtype=f64"]);
}

#[test]
fn messages_of_edges_are_in_every_batch() {
    let dense = ["model.stack=tuned", "model.input_linear=true"];
    with_features_of_edges(&with(&["model.name=gin", "compute.dtype=f64"], &dense));
}

fn with_features_of_edges(more: &[&str]) {
    let root = tempfile::tempdir().unwrap();
    let data = with_bonds(root.path());
    let alone = root.path().join("alone");
    fresh(&config(&data, more), &alone);
    let without = root.path().join("without");
    fresh(&config(&data, &with(more, &["model.edges=ignore"])), &without);
    let [used, ignored] = [&alone, &without].map(|dir| predictions(dir).1);
    assert!(apart(&used, &ignored) > 1e-3, "they change what is predicted");
    for ranks in ["parallel.ranks=2", "parallel.ranks=3", "parallel.ranks=8"] {
        let path = root.path().join(ranks);
        fresh(&config(&data, &with(more, &[ranks])), &path);
        assert!(apart(&numbers(&alone), &numbers(&path)) < 1e-9, "{ranks}");
    }
    // Each graph by itself, and in company: of the same model.
    let mut trained = Trained::open(&alone, None).unwrap();
    let opened = Arc::new(Data::open(&trained.config.data, &trained.config.encoding, &Silent).unwrap());
    for batch in [1, 7, 60] {
        trained.config.train.batch = Some(batch);
        let (rows, _) = Arc::new(trained.clone()).predict(&World::alone(), &opened, &Silent).unwrap().unwrap();
        let rows: Vec<f64> = rows.into_iter().map(f64::from).collect();
        assert!(apart(&used, &rows) < 1e-6, "{batch}");
    }
    // A run that was stopped ends with the same bytes.
    let stopped_one = root.path().join("stopped");
    let config = config(&data, more);
    stopped(&config, &stopped_one, &graphweft_train::run::Start::New, 2);
    resume(&config, &stopped_one);
    same(&alone, &stopped_one, "resumed");
}

#[test]
fn the_same_bytes_every_time_and_after_a_stop() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), Nodes::Categories, Known::Several);
    for ranks in ["parallel.ranks=1", "parallel.ranks=3"] {
        let config = config(&data, &["model.norm=batch", ranks]);
        let path = |name: &str| root.path().join(format!("{name}-{ranks}"));
        fresh(&config, &path("a"));
        fresh(&config, &path("b"));
        same(&path("a"), &path("b"), ranks);
        stopped(&config, &path("c"), &graphweft_train::run::Start::New, 2);
        resume(&config, &path("c"));
        same(&path("a"), &path("c"), ranks);
    }
}

#[test]
fn every_model_that_reads_out_learns_of_graphs() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), Nodes::Both, Known::Class);
    for model in ["gin", "gcn", "sage", "gat", "gatv2", "gt", "gps"] {
        for readout in ["sum", "mean", "max", "attention", "set"] {
            let (name, readout) = (format!("model.name={model}"), format!("model.readout={readout}"));
            let path = root.path().join(format!("{model}-{readout}"));
            let run = fresh(&config(&data, &[&name, &readout, "train.epochs=2"]), &path);
            assert!(run.runs[0].losses[0].is_finite(), "{model} {readout}");
            assert_eq!(predictions(&path).0, [GRAPHS, 2]);
        }
    }
}

#[test]
fn what_can_be_told_of_graphs_is_learned() {
    let root = tempfile::tempdir().unwrap();
    for (known, metric) in [
        (Known::Class, "train.metric=accuracy"),
        (Known::Class, "train.metric=roc-auc"),
        (Known::Several, "train.metric=average-precision"),
        (Known::Numbers, "train.metric=mae"),
        (Known::Numbers, "train.metric=rmse"),
    ] {
        let place = root.path().join(metric);
        fs::create_dir(&place).unwrap();
        let data = folder(&place, Nodes::Categories, known);
        let more = ["model.norm=batch", "model.readout=sum", "train.epochs=40", "train.dropout=0", metric];
        let run = fresh(&config(&data, &more), &place.join("run"));
        let (losses, best) = (&run.runs[0].losses, run.runs[0].outcome.best);
        assert!(losses[39] < 0.6 * losses[0], "{metric}: {losses:?}");
        assert!(best.train.is_finite() && best.valid.is_finite() && best.test.is_finite(), "{metric}");
    }
}

#[test]
fn a_row_per_graph_is_written_and_scores_come_back() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), Nodes::Categories, Known::Class);
    let config = config(&data, &["model.norm=batch"]);
    let run = fresh(&config, &root.path().join("run"));
    let trained = Arc::new(Trained::open(&root.path().join("run"), None).unwrap());
    let opened = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
    for world in [World::alone(), World::threads(&self::config(&data, &["parallel.ranks=3"]).parallel)] {
        let (_, _, scores) = trained.evaluate(&world, &opened, &Silent).unwrap();
        assert_eq!(scores.test, run.runs[0].outcome.best.test);
        let path = root.path().join("p.csv");
        let output = Output { path: path.clone(), what: What::Labels, format: Format::Csv };
        trained.write_predictions(&world, &opened, &Silent, &output).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (GRAPHS + 1, "graph,label"));
        assert!(lines[GRAPHS].starts_with(&format!("{},", GRAPHS - 1)));
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_model_speaks_of_graphs_that_it_has_not_seen() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), Nodes::Both, Known::Class);
    let gps = ["model.name=gps", "model.norm=graph", "encoding.laplacian=2", "encoding.random_walk=3"];
    let tuned = ["model.name=gcn", "model.stack=tuned", "model.input_linear=true", "encoding.random_walk=3"];
    for more in [&gps[..], &tuned] {
        let (config, dir) = (config(&data, more), root.path().join(more[0]));
        let run = fresh(&config, &dir);
        let trained = Arc::new(Trained::open(&dir, None).unwrap());
        let opened = Dataset::open(&data).unwrap();
        let known = predictions(&dir).1;
        // The last graphs alone, as another dataset: what is said of one does not depend on those beside it.
        let (first, graphs) = (41usize, opened.graphs().unwrap());
        let nodes = graphs.nodes(first).start..graphs.nodes(GRAPHS - 1).end;
        let (AnyCsr::Narrow(csr), Some(categories)) = (opened.graph().unwrap(), opened.categories()) else { panic!() };
        let start = nodes.start as u32;
        let edges = nodes.clone().flat_map(|i| csr.row(i).iter().map(move |j| (j - start, i as u32 - start)));
        let (from, to): (Vec<u32>, Vec<u32>) = edges.unzip();
        let Some(Features::Dense(Dense::F32 { values, width })) = opened.features() else { panic!() };
        let values = values[nodes.start * width..nodes.end * width].to_vec();
        let of = |row: usize| (0..2).map(move |column| categories.get(row, column) as u16);
        let classes = opened.graphs().unwrap().labels.clone();
        let Some(Labels::Single(classes)) = classes else { panic!() };
        let part = |from: i64, to: i64| (from..to).collect::<Vec<_>>().into();
        let count = (GRAPHS - first) as i64;
        let others = Dataset::in_memory(Parts {
            features: Some(Features::Dense(Dense::F32 { values: values.into(), width: *width })),
            classes: 2,
            splits: vec![Split { name: "own".into(), train: part(0, 5), valid: part(5, 9), test: part(9, count) }],
            categories: Some(Categories::new(nodes.clone().flat_map(of).collect::<Vec<_>>(), 2, &[4, 6]).unwrap()),
            graphs: Some(Graphs {
                ptr: (first..=GRAPHS).map(|g| graphs.ptr[g] - graphs.ptr[first]).collect::<Vec<_>>().into(),
                labels: Some(Labels::Single(classes[first..].to_vec().into())),
            }),
            ..Parts::new("others", Csr::from_edges(nodes.len(), &from, &to).unwrap().into())
        });
        let others = Arc::new(Data::of(&others.unwrap(), &config.data, &config.encoding).unwrap());
        let (rows, _) = trained.predict(&World::alone(), &others, &Silent).unwrap().unwrap();
        let rows: Vec<f64> = rows.into_iter().map(f64::from).collect();
        assert!(apart(&known[2 * first..], &rows) < 1e-5, "{}", more[0]);
        let (_, name, scores) = trained.evaluate(&World::alone(), &others, &Silent).unwrap();
        assert!(name == "own" && scores.test.is_finite() && run.runs[0].losses[0].is_finite());
    }
}

/// What is said where a run is refused.
fn refused(config: &Config) -> String {
    let dir = tempfile::tempdir().unwrap();
    let found = crate::whole::run(config, &dir.path().join("x"), &graphweft_train::run::Start::New, Default::default());
    found.unwrap_err().to_string()
}

#[test]
fn what_makes_no_sense_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), Nodes::Categories, Known::Class);
    for (more, words) in [
        (&["parallel.ranks=2", "parallel.strategy=halo"][..], &["parallel.strategy", "halo", "has many"][..]),
        (&["encoding.random_walk=4"], &["positional encodings", "gps", "tuned"]),
        (&["model.name=appnp"], &["appnp predicts nothing of whole graphs", "gin"]),
        (&["model.virtual_node=true"], &["model.virtual_node", "tuned"]),
        (&["model.readout=max", "model.readout_from=all"], &["model.readout_from", "sum"]),
        (&["train.metric=mae"], &["train.metric", "accuracy"]),
    ] {
        let message = refused(&config(&data, more));
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    let message = refused(&crate::whole::config(&["model.norm=graph"]));
    assert!(message.contains("model.norm = \"graph\"") && message.contains("many graphs"), "{message}");
}

#[test]
fn damaged_folders_are_refused() {
    let none: fn(&Path) = |data| write_npy(data.join("split/own/valid.npy"), &[], &[0i64; 0]).unwrap();
    let unknown: fn(&Path) = |data| write_npy(data.join("graph_label.npy"), &[], &[-1i64; GRAPHS]).unwrap();
    let kind: fn(&Path) = |data| {
        let meta = fs::read_to_string(data.join("meta.toml")).unwrap();
        let meta = meta.replace("graph-classification", "graph-regression").replace("classes = 2", "classes = 1");
        fs::write(data.join("meta.toml"), meta).unwrap();
    };
    let empty: fn(&Path) = |data| {
        let mut ptr = NpyFile::open(data.join("graph_ptr.npy")).unwrap().elements::<i64>().unwrap().to_vec();
        ptr[4] = ptr[3];
        write_npy(data.join("graph_ptr.npy"), &[], &ptr).unwrap();
    };
    for (damage, words) in [
        (none, &["split/own/valid.npy", "no graph in valid"][..]),
        (unknown, &["no label is known in train", "own"]),
        (kind, &["graph_label.npy", "graph_label", "float32"]),
        (empty, &["graph_ptr.npy", "graph_ptr", "graph 3 has no node"]),
    ] {
        let root = tempfile::tempdir().unwrap();
        let data = folder(root.path(), Nodes::Categories, Known::Class);
        damage(&data);
        let message = refused(&config(&data, &[]));
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}
