//! Using what was trained: that damage is noticed, that nothing which is no number is written, and what several seeds
//! say.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::whole::{config, contents, fresh};
use graphweft_base::progress::Silent;
use graphweft_graph::dataset::{Dense, Features};
use graphweft_graph::npy::NpyFile;
use graphweft_train::Error;
use graphweft_train::config::{Config, Draft, ParallelConfig};
use graphweft_train::data::Data;
use graphweft_train::ranks::World;
use graphweft_train::run::Line;
use graphweft_train::run::Trained;
use graphweft_train::task::{Format, Output, What};

fn mlp(more: &[&str]) -> Config {
    let usual = ["data.graph=sbm:200:3:6:f=8", "model.name=mlp", "model.hidden=8", "train.epochs=3"];
    let mut draft = Draft::default();
    usual.iter().chain(more).for_each(|s| draft.assign(s).unwrap());
    draft.finish().unwrap()
}

fn open(config: &Config) -> Arc<Data> {
    Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap())
}

/// The validation loss of every epoch, as `metrics.jsonl` has it.
fn valid_losses(run: &Path) -> Vec<f64> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let line = |line: &str| serde_json::from_str::<Line>(line).unwrap();
    text.lines().map(|text| line(text).scores.unwrap().valid_loss).collect()
}

#[test]
fn a_trained_model_is_used_from_a_run_a_checkpoint_or_a_bare_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&["model.norm=batch"]);
    let best = fresh(&config, dir.path()).runs[0].outcome.best;
    let data = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
    let of_run = Arc::new(Trained::open(dir.path(), None).unwrap());
    let (metric, split, scores) = of_run.evaluate(&World::alone(), &data, &Silent).unwrap();
    assert_eq!((metric.name(), split.as_str()), ("accuracy", "default"));
    assert_eq!((scores.train, scores.valid, scores.test), (best.train, best.valid, best.test));
    let predict = |model: Trained| Arc::new(model).predict(&World::alone(), &data, &Silent).unwrap().unwrap();
    let (rows, cols) = predict(Trained::clone(&of_run));
    let stored = NpyFile::open(dir.path().join("predictions.npy")).unwrap();
    assert_eq!((stored.shape(), cols), (&[200, 3][..], 3));
    assert_eq!(&stored.elements::<f32>().unwrap()[..], rows);

    let bare = Trained::open(&dir.path().join("model.safetensors"), None).unwrap();
    assert_eq!(predict(bare).0, rows);
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("m.safetensors");
    fs::copy(dir.path().join("model.safetensors"), &file).unwrap();
    assert!(Trained::open(&file, None).unwrap_err().to_string().contains("--config"));
    let given = Trained::open(&file, Some(&dir.path().join("config.toml"))).unwrap();
    assert_eq!(predict(given).0, rows);

    let last = Trained::open(&dir.path().join("checkpoints/step-000012"), None).unwrap();
    assert_eq!(predict(last).0 == rows, best.epoch == 12);
    let message = Trained::open(elsewhere.path(), None).unwrap_err().to_string();
    assert!(message.contains("neither a run directory"), "{message}");

    // While the run goes on, the model with which it ended before is not the best so far.
    let source = || Trained::open(dir.path(), None).unwrap().source;
    assert!(source().ends_with("model.safetensors"));
    fs::remove_file(dir.path().join("result.json")).unwrap();
    assert!(source().ends_with("step-000012"), "{}", source().display());
}

#[test]
fn a_model_is_not_used_on_data_that_it_is_not_for() {
    let dir = tempfile::tempdir().unwrap();
    let one_layer = ["data.graph=sbm:200:3:6:f=8", "model.name=mlp", "model.layers=1", "train.epochs=2"];
    let mut draft = Draft::default();
    one_layer.iter().for_each(|s| draft.assign(s).unwrap());
    for (k, config) in [config(&["train.epochs=2"]), draft.finish().unwrap()].into_iter().enumerate() {
        let path = dir.path().join(k.to_string());
        fresh(&config, &path);
        let file = path.join("model.safetensors");
        let mut trained = Trained::open(&path, None).unwrap();
        for (graph, parts) in [
            ("sbm:100:3:6:f=9", ["features per node", "is for 8, sbm:100:3:6:f=9 has 9"]),
            ("sbm:100:4:6:f=8", ["classes", "is for 3, sbm:100:4:6:f=8 has 4"]),
        ] {
            trained.config.data.graph = Some(graph.into());
            let data = Arc::new(Data::open(&trained.config.data, &config.encoding, &Silent).unwrap());
            let trained = Arc::new(trained.clone());
            for error in [
                trained.predict(&World::alone(), &data, &Silent).unwrap_err(),
                trained.evaluate(&World::alone(), &data, &Silent).unwrap_err(),
            ] {
                let message = error.to_string();
                assert!(message.starts_with(file.to_str().unwrap()) && message.contains("remedy"), "{message}");
                assert!(parts.iter().all(|part| message.contains(part)), "{message}");
            }
        }
    }
}

#[test]
fn predictions_are_refused_before_they_are_computed() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&["train.epochs=1"]);
    fresh(&config, dir.path());
    let data = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
    let trained = Arc::new(Trained::open(dir.path(), None).unwrap());
    let before = contents(dir.path());
    let checkpoints = dir.path().join("checkpoints");
    let message = trained
        .write_predictions(&World::alone(), &data, &Silent, &Output::logits(&checkpoints))
        .unwrap_err()
        .to_string();
    assert!(message.contains("is a folder"), "{message}");
    assert!(contents(dir.path()) == before, "nothing is left behind");
}

#[test]
fn the_validation_loss_is_that_of_the_whole_graph_however_the_work_is_spread() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("alone");
    fresh(&config(&["train.evaluate_every=1"]), &alone);
    let exact = valid_losses(&alone);
    assert_eq!(exact.len(), 12);
    let profile = "parallel.profile=16-cpu-10g";
    for (k, (settings, is_exact)) in [
        ("parallel.ranks=2 parallel.strategy=gather", true),
        ("parallel.ranks=3 parallel.strategy=halo", true),
        ("parallel.ranks=3 parallel.strategy=ring", true),
        ("parallel.ranks=2 parallel.strategy=heads", true),
        ("parallel.ranks=2 parallel.strategy=pipeline", false),
        ("parallel.ranks=2 parallel.strategy=isolated parallel.parts=4", false),
        // Out of core: some rows after others.
        ("parallel.ranks=1 parallel.strategy=isolated parallel.parts=4", false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = dir.path().join(k.to_string());
        let settings: Vec<&str> = settings.split(' ').chain([profile]).collect();
        let best = fresh(&config(&settings), &path).runs[0].outcome.best;
        let found = valid_losses(&path);
        assert_eq!(found.len(), 12, "{settings:?}");
        assert_eq!(found[best.epoch as usize - 1], best.valid_loss, "{settings:?}");
        if is_exact {
            let apart = exact.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-5, "{settings:?}: {apart}");
        }
        // What one rank finds with all rows at hand.
        let mut trained = Trained::open(&path, None).unwrap();
        trained.config.parallel = ParallelConfig::default();
        let (_, _, scores) = Arc::new(trained).evaluate(&World::alone(), &open(&config(&[])), &Silent).unwrap();
        assert!((scores.valid_loss - best.valid_loss).abs() < 1e-5, "{settings:?}: {scores:?} {best:?}");
        assert_eq!(scores.valid, best.valid, "{settings:?}");
    }
}

#[test]
fn a_flipped_byte_anywhere_in_the_model_of_a_run_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    fresh(&mlp(&[]), &run);
    let file = run.join("model.safetensors");
    let good = fs::read(&file).unwrap();
    for k in 0..200 {
        let mut bad = good.clone();
        bad[k * (good.len() - 1) / 199] ^= 1 << (k % 8);
        fs::write(&file, &bad).unwrap();
        for path in [&run, &file] {
            let message = Trained::open(path, None).unwrap_err().to_string();
            assert!(message.starts_with(file.to_str().unwrap()) && message.contains("remedy"), "{k}: {message}");
        }
    }
    fs::write(&file, &good).unwrap();
    assert!(Trained::open(&run, None).is_ok() && Trained::open(&file, None).is_ok());
    // A bare file has nobody to say what it should be.
    let bare = dir.path().join("bare.safetensors");
    fs::copy(&file, &bare).unwrap();
    assert!(Trained::open(&bare, Some(&run.join("config.toml"))).is_ok());
    // As older versions ended runs.
    let result = run.join("result.json");
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    assert!(text.as_object_mut().unwrap().remove("model_sha256").is_some());
    fs::write(&result, text.to_string()).unwrap();
    assert!(Trained::open(&run, None).is_ok());
}

#[test]
fn the_file_that_is_wrong_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    fresh(&mlp(&[]), &run);
    let broken = |name: &str, bytes: &[u8]| {
        let file = run.join(name);
        let good = fs::read(&file).unwrap();
        fs::write(&file, bytes).unwrap();
        let message = Trained::open(&run, None).unwrap_err().to_string();
        fs::write(&file, good).unwrap();
        assert!(message.starts_with(file.to_str().unwrap()), "{name}: {message}");
        message
    };
    broken("config.toml", b"[model]\nhidden = \"many\"\n\n# end\n");
    broken("result.json", b"{\"model_sha256\":");
    // Its settings are cut short, and there is nothing else to take them from.
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    assert!(broken("config.toml", b"[model]\n").contains("cut short"));
    // A number that is none, in a file whose hash nobody knows.
    let (bare, config) = (dir.path().join("bare.safetensors"), run.join("config.toml"));
    let mut bytes = fs::read(run.join("model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[header..header + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&bare, &bytes).unwrap();
    let message = Trained::open(&bare, Some(&config)).unwrap_err().to_string();
    assert!(message.starts_with(bare.to_str().unwrap()) && message.contains("number 0 is not finite"), "{message}");
    // Tensors of another model.
    let other = dir.path().join("other");
    fresh(&mlp(&["model.layers=3"]), &other);
    let file = run.join("model.safetensors");
    let trained = Arc::new(Trained::open(&file, Some(&other.join("config.toml"))).unwrap());
    let error = trained.predict(&World::alone(), &open(&mlp(&[])), &Silent).unwrap_err();
    assert!(error.to_string().starts_with(file.to_str().unwrap()), "{error}");
    assert!(matches!(error, Error::Graph(graphweft_base::Error::BadInput { .. })));
}

#[test]
fn logits_that_are_not_finite_are_neither_scored_nor_written() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    // One layer: nothing between features and logits makes numbers of what is none.
    fresh(&mlp(&["model.layers=1"]), &run);
    let mut data = Data::clone(&open(&mlp(&[])));
    let Features::Dense(Dense::F32 { values, .. }) = &mut data.features else { panic!("dense features") };
    let (node, width) = (data.splits[0].test[0] as usize, 8);
    let mut extreme = values.to_vec();
    extreme[node * width..][..width].fill(f32::INFINITY);
    *values = extreme.into();
    let data = Arc::new(data);
    let before = contents(dir.path());
    let worlds = [("1", 1), ("3", 3)].map(|(ranks, count)| {
        let config = mlp(&["model.layers=1", &format!("parallel.ranks={ranks}")]);
        (World::threads(&config.parallel), config.parallel, count)
    });
    for (world, parallel, ranks) in worlds {
        let mut trained = Trained::open(&run, None).unwrap();
        trained.config.parallel = parallel;
        let trained = Arc::new(trained);
        let error = trained.evaluate(&world, &data, &Silent).unwrap_err();
        assert!(matches!(error, Error::NotScored { nodes: 1 }), "{ranks} ranks: {error}");
        assert!(error.to_string().contains("remedy"));
        for (what, format) in [(What::Logits, Format::Npy), (What::Probabilities, Format::Csv)] {
            let output = Output { path: dir.path().join("p"), what, format };
            let error = trained.write_predictions(&world, &data, &Silent, &output).unwrap_err();
            assert!(matches!(error, Error::NotPredicted { node: n } if n == node as u64), "{ranks} ranks: {error}");
        }
        assert!(contents(dir.path()) == before, "nothing was written");
    }
}

#[test]
fn several_seeds_are_used_together() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    fresh(&mlp(&["run.seed=4", "run.seeds=3"]), &run);
    let all: Vec<Arc<Trained>> = Trained::open_all(&run, None).unwrap().into_iter().map(Arc::new).collect();
    assert_eq!(all.iter().map(|t| t.config.run.seed).collect::<Vec<_>>(), [4, 5, 6]);
    let data = open(&mlp(&[]));
    let output = |what| Output { path: dir.path().join("p.npy"), what, format: Format::Npy };
    let write = |all: &[Arc<Trained>], what| -> graphweft_train::Result<NpyFile> {
        Trained::write_together(all, &World::alone(), &data, &Silent, &output(what))?;
        Ok(NpyFile::open(dir.path().join("p.npy")).unwrap())
    };
    let of = |all: &[Arc<Trained>]| write(all, What::Probabilities).unwrap().elements::<f32>().unwrap().to_vec();
    let each: Vec<Vec<f32>> = all.iter().map(|one| of(std::slice::from_ref(one))).collect();
    assert!(each[0] != each[1]);
    let mean = of(&all);
    for (k, p) in mean.iter().enumerate() {
        let expected = each.iter().map(|one| one[k]).sum::<f32>() / 3.0;
        assert!((p - expected).abs() < 1e-6, "{k}: {p} {expected}");
    }
    let labels = write(&all, What::Labels).unwrap().elements::<i64>().unwrap().to_vec();
    for (row, label) in mean.chunks(3).zip(&labels) {
        assert!(row.iter().all(|p| *p <= row[*label as usize]));
    }
    let message = write(&all, What::Logits).unwrap_err().to_string();
    assert!(message.contains("3 seeds") && message.contains("--what"), "{message}");
    // One that has lost its model stops it all.
    fs::remove_dir_all(run.join("seed-5/checkpoints")).unwrap();
    fs::remove_file(run.join("seed-5/model.safetensors")).unwrap();
    assert!(Trained::open_all(&run, None).unwrap_err().to_string().contains("seed-5"));
    fs::remove_dir_all(run.join("seed-5")).unwrap();
    let message = Trained::open_all(&run, None).unwrap_err().to_string();
    assert!(message.contains("seed-5: seed: the run has 3 seeds, and this one is missing"), "{message}");
    // As long as the run lasts, some have not begun.
    fs::remove_file(run.join("result.json")).unwrap();
    assert_eq!(Trained::open_all(&run, None).unwrap().len(), 2);
}
