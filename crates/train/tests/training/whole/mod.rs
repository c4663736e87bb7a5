//! Whole runs and what they leave, for the tests of training.

#![allow(clippy::unwrap_used, clippy::panic, dead_code)] // Only tests come here, and not all of them need everything.

pub(crate) mod rings;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use graphweft_base::progress::{Phase, Progress, Silent, Unit};
use graphweft_base::random::Philox;
use graphweft_graph::dataset::{DatasetWriter, Dense, Features, LinkSplit, Meta, Task};
use graphweft_graph::{AnyCsr, Csr};
use graphweft_train::config::{Config, Draft};
use graphweft_train::data::Data;
use graphweft_train::ranks::World;
use graphweft_train::run::Launch;
use graphweft_train::run::Line;
use graphweft_train::run::Observer;
use graphweft_train::run::Scores;
use graphweft_train::run::{Session, Start, Summary};
use graphweft_train::{Error, Result, Stop};

/// Asks for a stop after an epoch, and remembers notes.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) stop: Stop,
    pub(crate) stop_after: Option<u64>,
    pub(crate) notes: Mutex<Vec<String>>,
}

impl Progress for Watch {
    fn start(&self, phase: &str, total: u64, unit: Unit) -> Box<dyn Phase> {
        Silent.start(phase, total, unit)
    }
}

impl Observer for Watch {
    fn begin(&self, _: u64, _: u64, _: u64) {}

    fn epoch(&self, line: &Line, _: Option<&Scores>) {
        if self.stop_after == Some(line.epoch) {
            self.stop.request();
        }
    }

    fn note(&self, line: &str) {
        self.notes.lock().unwrap().push(line.into());
    }
}

pub(crate) const SMALL: [&str; 10] = [
    "data.graph=sbm:200:3:6:f=8",
    "data.self_loops=add",
    "model.hidden=8",
    "model.layers=2",
    "model.heads=2",
    "train.epochs=12",
    "train.lr=0.01",
    "train.dropout=0.2",
    "train.attention_dropout=0.1",
    "run.checkpoint_every=4",
];

pub(crate) fn config(more: &[&str]) -> Config {
    let mut draft = Draft::default();
    SMALL.iter().chain(more).for_each(|s| draft.assign(s).unwrap());
    draft.finish().unwrap()
}

/// A run that is stopped after each of these epochs and goes on ends as one that is not.
pub(crate) fn goes_on(config: &Config, dir: &Path, epochs: &[u64], what: &str) {
    let (whole, path) = (dir.join(format!("{what}-whole")), dir.join(what));
    fresh(config, &whole);
    for (k, epoch) in epochs.iter().enumerate() {
        stopped(config, &path, if k == 0 { &Start::New } else { &Start::Newest }, *epoch);
    }
    resume(config, &path);
    same(&whole, &path, what);
}

/// Trains on data that are at hand; `watch` is asked afterwards what it was told.
pub(crate) fn watched(data: Data, config: &Config, dir: &Path, start: Start, watch: &Arc<Watch>) -> Result<Summary> {
    let (world, stop) = (World::alone(), watch.stop.clone());
    let observer = Arc::clone(watch) as Arc<dyn Observer>;
    Session { world: &world, data: Arc::new(data), start, launch: Launch::default(), observer, stop }
        .train(config.clone(), dir)
}

pub(crate) fn notes(watch: &Watch) -> String {
    watch.notes.lock().unwrap().join("\n")
}

pub(crate) fn train_on(data: Data, config: &Config, dir: &Path) -> Result<Summary> {
    on_world(&World::threads(&config.parallel), data, config, dir, &Start::New, Watch::default())
}

pub(crate) fn run(config: &Config, dir: &Path, start: &Start, watch: Watch) -> Result<Summary> {
    let data = Data::open(&config.data, &config.encoding, &Silent)?;
    on_world(&World::threads(&config.parallel), data, config, dir, start, watch)
}

pub(crate) fn on_world(
    world: &World,
    data: Data,
    config: &Config,
    dir: &Path,
    start: &Start,
    watch: Watch,
) -> Result<Summary> {
    let (stop, observer) = (watch.stop.clone(), Arc::new(watch));
    Session { world, data: Arc::new(data), start: start.clone(), launch: Launch::default(), observer, stop }
        .train(config.clone(), dir)
}

/// The small run, uninterrupted, in the folder `whole` of `dir`, to compare with another one that will be in `name`.
pub(crate) fn beside_whole(dir: &Path, name: &str) -> (Config, PathBuf, PathBuf) {
    let (config, whole) = (config(&[]), dir.join("whole"));
    fresh(&config, &whole);
    (config, whole, dir.join(name))
}

pub(crate) fn fresh(config: &Config, dir: &Path) -> Summary {
    run(config, dir, &Start::New, Watch::default()).unwrap()
}

pub(crate) fn resume(config: &Config, dir: &Path) -> Summary {
    run(config, dir, &Start::Newest, Watch::default()).unwrap()
}

/// Stops after an epoch and gives the error's checkpoint.
pub(crate) fn stopped(config: &Config, dir: &Path, start: &Start, epoch: u64) -> PathBuf {
    let watch = Watch { stop_after: Some(epoch), ..Default::default() };
    match run(config, dir, start, watch) {
        Err(Error::Stopped { epoch: at, checkpoint }) => {
            assert_eq!(at, epoch);
            checkpoint
        }
        other => panic!("expected a stop, found {other:?}"),
    }
}

/// Files that say when and where: no two runs have the same.
pub(crate) const TIMES: [&str; 6] =
    ["trace.json", "events.out.tfevents.0.graphweft", "times.jsonl", "run.json", "usage.json", "candidates.json"];

/// Every file whose bytes are a function of the configuration.
pub(crate) fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn look(dir: &Path, root: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            if path.is_dir() {
                look(&path, root, all);
            } else if !TIMES.contains(&name.as_str()) {
                let mut bytes = fs::read(&path).unwrap();
                if name == "plan.json" {
                    // What came of it at the end is told in times.
                    let mut plan: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                    plan.as_object_mut().unwrap().remove("measured");
                    bytes = serde_json::to_vec(&plan).unwrap();
                }
                all.insert(path.strip_prefix(root).unwrap().into(), bytes);
            }
        }
    }
    let mut all = BTreeMap::new();
    look(dir, dir, &mut all);
    all
}

pub(crate) fn same(a: &Path, b: &Path, what: &str) {
    same_contents(&contents(a), &contents(b), what);
}

pub(crate) fn same_contents(a: &BTreeMap<PathBuf, Vec<u8>>, b: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{what}");
    for (name, bytes) in a {
        assert!(*bytes == b[name], "{what}: {} differs", name.display());
    }
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Puts other bytes into a file of a checkpoint, as if they had been saved.
pub(crate) fn rewrite(checkpoint: &Path, name: &str, bytes: &[u8]) {
    use sha2::{Digest, Sha256};
    let hash = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let file = checkpoint.join(name);
    let old = fs::read(&file).unwrap();
    fs::write(&file, bytes).unwrap();
    let manifest = checkpoint.join("manifest.sha256");
    let text = fs::read_to_string(&manifest).unwrap();
    let (body, _) = text.rsplit_once("# end ").unwrap();
    let length = |bytes: &[u8]| format!("# {:020} {name}\n", bytes.len());
    let body = body.replace(&length(&old), &length(bytes)).replace(&hash(&old), &hash(bytes));
    let own = hash(body.as_bytes());
    fs::write(&manifest, format!("{body}# end {own}\n")).unwrap();
}

pub(crate) fn lines(dir: &Path) -> Vec<Line> {
    let text = fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Losses, lengths of gradients and scores of every epoch, then parameters and values.
pub(crate) fn numbers(dir: &Path) -> Vec<f64> {
    let of = |line: Line| {
        let scores = line.scores.unwrap();
        [line.loss, line.gradient_norm, scores.train, scores.valid, scores.test, scores.valid_loss]
    };
    let mut all: Vec<f64> = lines(dir).into_iter().flat_map(of).collect();
    let bytes = fs::read(dir.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut names = file.names();
    names.sort_unstable();
    for name in names {
        let tensor = file.tensor(name).unwrap();
        match tensor.dtype() {
            safetensors::Dtype::F64 => {
                all.extend(tensor.data().chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().unwrap())));
            }
            safetensors::Dtype::F32 => {
                let values = tensor.data().chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()));
                all.extend(values.map(f64::from));
            }
            _ => {}
        }
    }
    all
}

/// The largest difference between two lists, relative to the numbers.
pub(crate) fn apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / a.abs().max(1.0)).fold(0.0, f64::max)
}

/// Nodes of [`link_folder`].
pub(crate) const LINKED: u64 = 60;

/// A graph of which a part of the edges is predicted, as a folder; with so many pairs against them, or without any.
pub(crate) fn link_folder(root: &Path, negatives: Option<u64>) -> PathBuf {
    let random = Philox::new(5, 0);
    let mut links: Vec<[i64; 2]> = (0..240u64)
        .map(|k| {
            [
                random.below(2 * k, LINKED) as i64,
                (random.below(2 * k + 1, 12) + random.below(2 * k, LINKED)) as i64 % 60,
            ]
        })
        .filter(|[a, b]| a != b)
        .map(|[a, b]| [a.min(b), a.max(b)])
        .collect();
    links.sort_unstable();
    links.dedup();
    let train: Vec<[i64; 2]> = links.iter().enumerate().filter(|(k, _)| k % 5 < 3).map(|(_, pair)| *pair).collect();
    let part = |rest: usize| {
        links.iter().enumerate().filter(|(k, _)| k % 5 == rest).flat_map(|(_, p)| *p).collect::<Vec<i64>>()
    };
    let against = |from: u64| {
        negatives.map(|count| {
            (from..from + 2 * count).map(|k| random.below(1000 + k, LINKED) as i64).collect::<Vec<_>>().into()
        })
    };
    let (from, to): (Vec<u32>, Vec<u32>) =
        train.iter().flat_map(|[a, b]| [(*a as u32, *b as u32), (*b as u32, *a as u32)]).unzip();
    let graph = Csr::from_edges(LINKED as usize, &from, &to).unwrap();
    let split = LinkSplit {
        name: "own".into(),
        width: 2,
        train: train.concat().into(),
        valid: part(3).into(),
        test: part(4).into(),
        valid_neg: against(0),
        test_neg: against(500),
    };
    let path = root.join("links");
    let out = DatasetWriter::create(&path).unwrap();
    let values: Vec<f32> = (0..LINKED * 8).map(|k| random.normals(50_000 + k)[0]).collect();
    out.graph(&AnyCsr::from(graph.clone())).unwrap();
    out.features(&Features::Dense(Dense::F32 { values: values.into(), width: 8 })).unwrap();
    out.links(&split).unwrap();
    out.finish(&Meta { task: Task::Link, num_features: 8, ..Meta::of("links", &graph, true) }).unwrap();
    path
}
