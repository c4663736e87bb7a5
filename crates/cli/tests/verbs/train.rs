//! `graphweft train`, `eval` and `predict`, and how they are interrupted.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{Scratch, small as train};

/// Files that tell how a run went, with its times, peaks and interruptions.
const OF_THE_WAY: [&str; 6] = ["trace.json", "times.jsonl", "run.json", "usage.json", "notes.jsonl", "candidates.json"];

/// Every file whose bytes are a function of the configuration.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if !OF_THE_WAY.contains(&&*name) && !name.starts_with("events.") {
                all.insert(path.strip_prefix(dir).unwrap().into(), crate::program::without_times(&path));
            }
        }
    }
    all
}

fn same(a: &str, b: &str) {
    let (a, b) = (contents(Path::new(a)), contents(Path::new(b)));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in &a {
        assert!(*bytes == b[name], "{} differs", name.display());
    }
}

#[test]
fn the_json_has_the_keys_that_others_rely_on() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    let json = scratch.json(&train(&["train.epochs=30", "--seeds", "2", "-o", &run]));
    assert_eq!((&json["metric"], &json["strategy"]), (&"accuracy".into(), &"local".into()));
    assert_eq!(json["ranks"], 1);
    assert_eq!(json["loss"].as_array().unwrap().len(), 30);
    assert_eq!((json["bytes_sent_per_epoch"][0].as_u64(), json["plan"].as_str().is_some()), (Some(0), true));
    assert!(json["epoch_ms"].as_f64().unwrap() > 0.0 && json["peak_bytes"][0].as_u64().unwrap() > 10_000);
    let seeds = json["seeds"].as_array().unwrap();
    assert_eq!(seeds.iter().map(|s| s["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1]);
    let mean = |key: &str| seeds.iter().map(|s| s[key].as_f64().unwrap()).sum::<f64>() / 2.0;
    for key in ["valid", "test"] {
        assert!((json[key].as_f64().unwrap() - mean(key)).abs() < 1e-9);
    }
    assert!(json["test"].as_f64().unwrap() > 40.0, "chance is 25 %");
    assert!(seeds.iter().all(|s| s["epochs"] == 30 && s["split"] == "default"));
    assert!(Path::new(&run).join("seed-1/predictions.npy").exists());
}

#[test]
fn people_see_what_happened() {
    let scratch = Scratch::new();
    let out = scratch.run(&train(&["train.epochs=5", "-o", &scratch.path("run")]));
    let text = String::from_utf8(out.stdout).unwrap();
    for part in
        ["sbm:300:4:6:f=8: 300 nodes", "accuracy", "gt", "plan", "local", "memory", "activations", "time", "run"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn a_file_reproduces_a_run_and_settings_change_it() {
    let scratch = Scratch::new();
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    scratch.json(&train(&["train.epochs=6", "-o", &first]));
    scratch.json(&["train", &format!("{first}/config.toml"), "-o", &second]);
    same(&first, &second);
    let json =
        scratch.json(&["train", &format!("{first}/config.toml"), "train.epochs=3", "-o", &scratch.path("third")]);
    assert_eq!(json["loss"].as_array().unwrap().len(), 3);
    // A flag takes the place of what the file says about the graph.
    let folder = scratch.path("g");
    scratch.json(&["generate", "sbm:100:4:6:f=8", "-o", &folder]);
    let fourth = scratch.path("fourth");
    let json = scratch.json(&["train", &format!("{first}/config.toml"), "--data", &folder, "-o", &fourth]);
    assert_eq!(json["graph"], "sbm:100:4:6:f=8");
}

#[test]
fn eval_and_predict_find_what_training_found() {
    let scratch = Scratch::new();
    let (run, out) = (scratch.path("run"), scratch.path("p.npy"));
    let trained = scratch.json(&train(&["train.epochs=12", "run.checkpoint_every=5", "-o", &run]));
    let scored = scratch.json(&["eval", &run]);
    for key in ["metric", "valid", "test", "model", "graph"] {
        assert_eq!(trained[key], scored[key], "{key}");
    }
    let written = scratch.json(&["predict", &run, "-o", &out]);
    assert_eq!((written["nodes"].as_u64(), written["classes"].as_u64()), (Some(300), Some(4)));
    assert_eq!(fs::read(&out).unwrap(), fs::read(format!("{run}/predictions.npy")).unwrap());
    let bare = scratch.json(&["eval", &format!("{run}/model.safetensors")]);
    assert_eq!(bare["test"], scored["test"]);
    scratch.json(&["eval", &format!("{run}/checkpoints/step-000010")]);
    // Another graph of the same shape, and one of another.
    scratch.json(&["predict", &run, "--graph", "sbm:90:4:6:f=8", "-o", &out]);
    let message = scratch.error(3, &["predict", &run, "--graph", "sbm:90:4:6:f=9", "-o", &out]);
    assert!(message.contains("features per node: the model is for 8, sbm:90:4:6:f=9 has 9"), "{message}");
    let message = scratch.error(3, &["eval", &scratch.path("")]);
    assert!(message.contains("neither a run directory"), "{message}");
}

#[test]
fn predictions_are_written_as_csv_with_the_ids_of_the_source() {
    let scratch = Scratch::new();
    let (folder, run, out) = (scratch.path("g"), scratch.path("run"), scratch.path("p.csv"));
    scratch.json(&["generate", "sbm:60:4:6:f=8", "-o", &folder]);
    let ids: Vec<i64> = (0..60).map(|k| 1000 - 7 * k).collect();
    graphweft_graph::npy::write_npy(format!("{folder}/node_id.npy"), &[], &ids).unwrap();
    scratch.json(&["train", "--data", &folder, "--model", "mlp", "train.epochs=3", "-o", &run]);
    let lines = |args: &[&str]| -> Vec<Vec<String>> {
        let json = scratch.json(&[&["predict", &run], args].concat());
        let text = fs::read_to_string(json["path"].as_str().unwrap()).unwrap();
        text.lines().map(|line| line.split(',').map(String::from).collect()).collect()
    };
    let probabilities = lines(&["-o", &out, "--what", "probabilities"]);
    assert_eq!(probabilities[0].join(","), "node,probability_0,probability_1,probability_2,probability_3");
    let labels = lines(&["-o", &scratch.path("labels"), "--format", "csv", "--what", "labels"]);
    assert_eq!((labels[0].join(","), labels.len()), ("node,label".into(), 61));
    for ((p, label), id) in probabilities[1..].iter().zip(&labels[1..]).zip(&ids) {
        assert_eq!((&p[0], &label[0]), (&id.to_string(), &id.to_string()));
        let p: Vec<f64> = p[1..].iter().map(|p| p.parse().unwrap()).collect();
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{p:?}");
        let most = p[label[1].parse::<usize>().unwrap()];
        assert!(p.iter().all(|p| *p <= most));
    }
    assert_eq!(lines(&["-o", &out])[0][1], "logit_0");
    // Written anew, not added to; and an id for each node, or none.
    graphweft_graph::npy::write_npy(format!("{folder}/node_id.npy"), &[], &ids[1..]).unwrap();
    assert!(scratch.error(3, &["predict", &run, "-o", &out]).contains("node_id.npy"));
}

#[test]
fn eval_and_predict_take_all_seeds_of_a_run() {
    let scratch = Scratch::new();
    let (run, out) = (scratch.path("run"), scratch.path("p.csv"));
    let trained = scratch.json(&train(&["train.epochs=12", "--seeds", "3", "-o", &run]));
    let scored = scratch.json(&["eval", &run]);
    let close = |a: &serde_json::Value, b: &serde_json::Value| (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-9;
    for key in ["valid", "test", "valid_std", "test_std"] {
        assert!(close(&trained[key], &scored[key]), "{key}: {scored}");
    }
    for (a, b) in trained["seeds"].as_array().unwrap().iter().zip(scored["seeds"].as_array().unwrap()) {
        assert!(a["seed"] == b["seed"] && a["test"] == b["test"], "{scored}");
    }
    let text = String::from_utf8(scratch.run(&["eval", &run]).stdout).unwrap();
    assert!(text.contains("3 seeds") && text.contains(" ± "), "{text}");
    let written = scratch.json(&["predict", &run, "-o", &out]);
    assert_eq!((written["seeds"].as_u64(), written["what"].as_str()), (Some(3), Some("probabilities")));
    assert!(fs::read_to_string(&out).unwrap().starts_with("node,probability_0,"));
    let starts: serde_json::Value = serde_json::from_slice(&fs::read(format!("{run}/run.json")).unwrap()).unwrap();
    assert!(starts.as_array().unwrap().len() == 1 && starts[0]["command"][1] == "train", "{starts}");
    assert!(scratch.error(2, &["predict", &run, "-o", &out, "--what", "logits"]).contains("3 seeds"));
}

#[test]
fn what_is_not_finite_exits_with_1_and_a_damaged_model_with_3() {
    let scratch = Scratch::new();
    let (folder, run, out) = (scratch.path("g"), scratch.path("run"), scratch.path("p.npy"));
    scratch.json(&["generate", "sbm:60:4:6:f=8", "-o", &folder]);
    let plain = ["--model", "mlp", "model.hidden=16", "train.epochs=2"];
    scratch.json(&[&["train", "--data", &folder, "-o", &run], &plain[..]].concat());
    let extreme = scratch.path("extreme");
    scratch.json(&["generate", "sbm:60:4:6:f=8", "-o", &extreme]);
    graphweft_graph::npy::write_npy(format!("{extreme}/feat.npy"), &[8], &[3e38f32; 60 * 8]).unwrap();
    assert!(scratch.error(1, &["eval", &run, "--data", &extreme]).contains("not finite"));
    let message = scratch.error(1, &["predict", &run, "--data", &extreme, "-o", &out]);
    assert!(message.contains("node 0") && message.contains("remedy"), "{message}");
    assert!(!Path::new(&out).exists());
    let model = format!("{run}/model.safetensors");
    let mut bytes = fs::read(&model).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&model, bytes).unwrap();
    for args in [&["eval", &run][..], &["predict", &run, "-o", &out], &["eval", &model]] {
        assert!(scratch.error(3, args).contains(&model), "{args:?}");
    }
    // Who ran it, with what.
    let starts: serde_json::Value = serde_json::from_slice(&fs::read(format!("{run}/run.json")).unwrap()).unwrap();
    let command = starts[0]["command"].as_array().unwrap();
    assert!(command.iter().any(|arg| arg == "model.hidden=16"), "{starts}");
    assert!(starts[0]["version"].as_str().unwrap().starts_with(env!("CARGO_PKG_VERSION")), "{starts}");
}

#[test]
fn bad_settings_exit_with_2_and_leave_nothing_behind() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    for (setting, part) in [
        ("train.epoch=5", "did you mean train.epochs?"),
        ("train.lr=fast", "train.lr"),
        ("model.hidden=many", "model.hidden"),
        ("model.hiden=8", "did you mean model.hidden?"),
        ("optimizer.lr=1", "no section [optimizer]"),
        ("data.split=mine", "choose one of default"),
        ("train.metric=roc-auc", "this dataset has 4"),
        ("model.hidden=0", "model.hidden = 0"),
    ] {
        let message = scratch.error(2, &train(&[setting, "-o", &run]));
        assert!(message.contains(part), "{setting}: {message}");
    }
    // No machine has room for such a model.
    let message = scratch.error(4, &train(&["model.hidden=8000000000", "-o", &run]));
    assert!(message.contains("out of memory") && message.contains("remedy"), "{message}");
    assert!(!Path::new(&run).exists());
    for args in [&["train", "--model", "resnet"][..], &["train", "--graph", "grid:3:3"], &["train", "a.toml", "b.toml"]]
    {
        assert!(scratch.error(2, &[args, &["-o", &run]].concat()).contains("remedy"));
    }
    scratch.error(3, &["train", &scratch.path("no.toml"), "-o", &run]);
    scratch.error(3, &["train", "--data", &scratch.path("no"), "-o", &run]);
    scratch.error(2, &["train", "--resume"]);
    let config = scratch.path("bad.toml");
    fs::write(&config, "[train]\nlr = = 3\n").unwrap();
    assert!(scratch.error(3, &["train", &config, "-o", &run]).contains("line 2"));
    scratch.json(&train(&["train.epochs=2", "-o", &run]));
    assert!(scratch.error(2, &train(&["-o", &run])).contains("exists already"));
}

#[test]
fn a_setting_after_resume_is_no_checkpoint() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    scratch.json(&train(&["train.epochs=4", "run.checkpoint_every=2", "-o", &run]));
    let json = scratch.json(&["train", "-o", &run, "--resume", "train.epochs=5"]);
    assert_eq!(json["loss"].as_array().unwrap().len(), 5);
    let named = format!("--resume={run}/checkpoints/step-000004");
    let json = scratch.json(&["train", "-o", &run, &named, "train.epochs=6"]);
    assert_eq!(json["loss"].as_array().unwrap().len(), 6);
}

#[test]
fn going_on_where_no_run_is_begins_one_only_if_it_is_said_on_what() {
    let scratch = Scratch::new();
    let run = scratch.path("typo");
    for more in [&[][..], &["train.epochs=2", "--model", "mlp"]] {
        let message = scratch.error(2, &[&["train", "--resume", "-o", &run], more].concat());
        assert!(message.contains("there is no run in") && message.contains("remedy"), "{message}");
        assert!(!Path::new(&run).exists());
    }
    let json = scratch.json(&train(&["train.epochs=2", "--resume", "-o", &run]));
    assert_eq!(json["graph"], "sbm:300:4:6:f=8");
    // Settings that are cut short, and no checkpoint that has them.
    fs::remove_dir_all(format!("{run}/checkpoints")).unwrap();
    fs::write(format!("{run}/config.toml"), "[data]\n").unwrap();
    let message = scratch.error(3, &["train", "--resume", "-o", &run]);
    assert!(message.contains("config.toml") && message.contains("cut short"), "{message}");
}

#[test]
fn a_checkpoint_of_another_run_overwrites_no_run() {
    let scratch = Scratch::new();
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    scratch.json(&train(&["train.epochs=2", "-o", &first]));
    scratch.json(&train(&["train.epochs=2", "--seed", "1", "-o", &second]));
    let before = contents(Path::new(&second));
    let named = format!("--resume={first}/checkpoints/step-000002");
    let message = scratch.error(2, &["train", &named, "train.epochs=3", "-o", &second]);
    assert!(message.contains("another run") && message.contains("remedy"), "{message}");
    assert!(before == contents(Path::new(&second)));
    scratch.json(&["train", &named, "train.epochs=3", "-o", &scratch.path("new")]);
}

#[test]
fn data_that_changed_since_are_refused_with_3() {
    let scratch = Scratch::new();
    let (folder, run) = (scratch.path("g"), scratch.path("run"));
    let generate = |seed: &str| {
        let _ = fs::remove_dir_all(&folder);
        scratch.json(&["generate", "sbm:100:4:6:f=8", "--seed", seed, "-o", &folder]);
    };
    generate("0");
    scratch.json(&["train", "--data", &folder, "--model", "mlp", "train.epochs=2", "-o", &run]);
    let before = contents(Path::new(&run));
    let again = ["train", "-o", &run, "--resume", "train.epochs=3"];
    generate("1");
    let message = scratch.error(3, &again);
    assert!(message.contains(&folder) && message.contains("not as they were"), "{message}");
    assert!(before == contents(Path::new(&run)));
    // The same data at the same place, by another path, are the same.
    generate("0");
    let link = scratch.path("link");
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    scratch.json(&[&again[..], &["--data", &link]].concat());
}

#[test]
fn the_floor_goes_on_from_its_own_checkpoint() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    let first = scratch.json(&["train", "train.epochs=2", "train.warmup=0", "run.checkpoint_every=1", "-o", &run]);
    let named = format!("--resume={run}/checkpoints/step-000001");
    let again = scratch.json(&["train", "-o", &run, &named]);
    assert!(first["floor"]["test"].is_number(), "{first}");
    assert_eq!((&again["test"], &again["floor"]), (&first["test"], &first["floor"]));
}

#[test]
fn a_folder_that_cannot_be_made_is_told_once_with_a_remedy() {
    let scratch = Scratch::new();
    let file = scratch.path("afile");
    fs::write(&file, "mine").unwrap();
    let message = scratch.error(1, &["generate", "grid:3:3", "-o", &format!("{file}/inside")]);
    assert!(message.matches("os error").count() == 1 && message.contains("remedy"), "{message}");
}

#[test]
fn flags_that_would_do_nothing_are_refused() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    let message = scratch.error(2, &train(&["--guard", "stop", "-o", &run]));
    assert!(message.contains("--guard") && message.contains("remedy"), "{message}");
    assert!(!Path::new(&run).exists());
    for verb in ["eval", "predict"] {
        assert!(scratch.error(2, &[verb, &run, "--allow-approximate"]).contains("--allow-approximate"));
    }
}

fn spawn(scratch: &Scratch, args: &[&str]) -> Child {
    let mut program = Command::new(env!("CARGO_BIN_EXE_graphweft"));
    program.args(args).env("XDG_CACHE_HOME", scratch.path("cache")).stdout(Stdio::null()).stderr(Stdio::null());
    program.spawn().unwrap()
}

/// Waits until a run has written this many epochs.
fn wait_for(run: &str, epochs: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let done = || fs::read_to_string(format!("{run}/metrics.jsonl")).map_or(0, |text| text.lines().count());
    while done() < epochs {
        assert!(Instant::now() < deadline, "the run does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn killed_at_any_moment_a_run_ends_with_the_same_bytes() {
    let scratch = Scratch::new();
    let (whole, run) = (scratch.path("whole"), scratch.path("run"));
    // A checkpoint every other epoch: half of the time is spent writing one.
    let settings = ["train.epochs=120", "run.checkpoint_every=2", "model.norm=batch", "--threads", "1"];
    scratch.json(&train(&[&settings[..], &["-o", &whole]].concat()));
    for (k, epochs) in [1, 9, 20, 34, 51, 70, 88, 101].into_iter().enumerate() {
        let mut child = spawn(&scratch, &train(&[&settings[..], &["-o", &run, "--resume"]].concat()));
        wait_for(&run, epochs);
        std::thread::sleep(Duration::from_micros(700 * k as u64));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    scratch.json(&train(&[&settings[..], &["-o", &run, "--resume"]].concat()));
    same(&whole, &run);
}

#[test]
fn asked_to_stop_a_run_saves_and_exits_with_75() {
    let scratch = Scratch::new();
    let (whole, run) = (scratch.path("whole"), scratch.path("run"));
    let settings = ["train.epochs=400", "--threads", "1"];
    scratch.json(&train(&[&settings[..], &["-o", &whole]].concat()));
    for (signal, epochs) in [("TERM", 30), ("INT", 150)] {
        let mut child = spawn(&scratch, &train(&[&settings[..], &["-o", &run, "--resume"]].concat()));
        wait_for(&run, epochs);
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(75), "{signal}");
        let checkpoints = fs::read_dir(format!("{run}/checkpoints")).unwrap().count();
        assert!(checkpoints > 0);
    }
    // Settings are those of the run; naming others is an error.
    let message = scratch.error(2, &["train", "-o", &run, "--resume", "train.lr=1"]);
    assert!(message.contains("train.lr"), "{message}");
    scratch.json(&["train", "-o", &run, "--resume"]);
    same(&whole, &run);
}

#[test]
fn a_flipped_byte_in_any_file_of_a_checkpoint_exits_with_3_and_its_name() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    scratch.json(&train(&["train.epochs=4", "model.norm=batch", "-o", &run]));
    let checkpoint = format!("{run}/checkpoints/step-000004");
    for file in fs::read_dir(&checkpoint).unwrap().map(|e| e.unwrap().path()) {
        let good = fs::read(&file).unwrap();
        let mut bad = good.clone();
        bad[good.len() * 2 / 3] ^= 4;
        fs::write(&file, &bad).unwrap();
        for args in [&["train", "-o", &run, "--resume"][..], &["eval", &checkpoint], &["predict", &checkpoint]] {
            let message = scratch.error(3, args);
            assert!(message.contains(file.to_str().unwrap()), "{args:?}: {message}");
        }
        fs::write(&file, &good).unwrap();
    }
    scratch.json(&["train", "-o", &run, "--resume"]);
}

#[test]
fn an_epoch_is_timed() {
    let scratch = Scratch::new();
    let bench = ["bench", "train", "--graph", "rmat:9:8", "--hidden", "16", "--layers", "2", "--runs", "2"];
    let f32 = scratch.json(&bench);
    for key in ["forward_ms", "backward_ms", "update_ms", "step_ms", "peak_bytes"] {
        assert!(f32[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert_eq!((&f32["op"], &f32["model"], &f32["nodes"]), (&"train".into(), &"gt".into(), &512.into()));
    let less = scratch.json(&[&bench[..], &["--remat", "layer", "--dtype", "bf16", "model.heads=2"]].concat());
    assert!(less["peak_bytes"].as_u64() < f32["peak_bytes"].as_u64());
    assert!(scratch.error(2, &[&bench[..], &["model.heds=2"]].concat()).contains("model.heads"));
}

#[test]
fn without_a_graph_settings_are_for_the_default_one() {
    let scratch = Scratch::new();
    let short = ["train", "train.epochs=1", "train.warmup=0", "model.hidden=16"];
    let json = scratch.json(&[&short[..], &["model.heads=8", "-o", &scratch.path("gt")]].concat());
    assert_eq!((&json["graph"], &json["model"]), (&"sbm:10000:10:12:snr=1.2".into(), &"gt".into()));
    let json = scratch.json(&[&short[..], &["--model", "mlp", "-o", &scratch.path("mlp")]].concat());
    assert_eq!((&json["graph"], &json["model"]), (&"sbm:10000:10:12:snr=1.2".into(), &"mlp".into()));
    let message = scratch.error(2, &[&short[..], &["model.heads=7", "-o", &scratch.path("seven")]].concat());
    assert!(message.contains("model.heads = 7"), "{message}");
}

/// Cora, as everyone knows it.
#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn features_alone_classify_some_of_cora() {
    let scratch = Scratch::new();
    let cora = crate::program::shared_data().join("cora");
    let args = ["train", "--data", cora.to_str().unwrap(), "--model", "mlp", "model.hidden=16", "train.epochs=60"];
    let more = ["data.normalise=row", "train.lr=0.01", "train.weight_decay=5e-3", "train.optimizer=adam", "-o"];
    let json = scratch.json(&[&args[..], &more, &[&scratch.path("run")]].concat());
    assert_eq!(json["seeds"][0]["split"], "public");
    let test = json["test"].as_f64().unwrap();
    assert!((50.0..65.0).contains(&test), "published MLPs reach 55 to 59 %: {test}");
    // Ten official splits: seed k takes the k-th.
    let minesweeper = crate::program::shared_data().join("minesweeper");
    let args = ["train", "--data", minesweeper.to_str().unwrap(), "--model", "mlp", "train.epochs=2"];
    let more = ["train.metric=roc-auc", "--seed", "3", "--seeds", "2", "-o", &scratch.path("m")];
    let json = scratch.json(&[&args[..], &more].concat());
    assert_eq!((&json["seeds"][0]["split"], &json["seeds"][1]["split"]), (&"public-3".into(), &"public-4".into()));
}
