//! `--device`: names, and what happens where there is no such device, or no room on it.

use std::fs;

use crate::program::Scratch;

const SMALL: [&str; 7] =
    ["train", "--graph", "sbm:300:4:6:f=8", "model.hidden=16", "model.heads=2", "model.layers=2", "train.epochs=20"];

#[test]
fn a_device_is_named_or_refused() {
    let scratch = Scratch::new();
    let (run, other) = (scratch.path("run"), scratch.path("other"));
    let json = scratch.json(&[&SMALL[..], &["--device", "cpu", "-o", &run]].concat());
    assert_eq!(json["device"], "cpu");
    let message = scratch.error(2, &[&SMALL[..], &["--device", "gpu"]].concat());
    assert!(message.contains("cuda:1"), "{message}");
    let message = scratch.error(1, &[&SMALL[..], &["--device", "cuda:77", "-o", &other]].concat());
    assert!(message.contains("cuda:77"), "{message}");
    for verb in ["eval", "predict"] {
        let message = scratch.error(1, &[verb, &run, "--device", "cuda:77"]);
        assert!(message.contains("cuda:77"), "{message}");
    }
    let bench = scratch.json(&["bench", "gemm", "--rows", "100", "--runs", "1", "--device", "cpu"]);
    assert!(bench["device"].as_str().is_some_and(|name| name.starts_with("cpu")), "{bench}");
}

#[test]
#[ignore = "needs a GPU"]
fn a_gpu_trains_the_same_model_twice_and_the_cpu_scores_it() {
    let scratch = Scratch::new();
    let dirs = [scratch.path("one"), scratch.path("two")];
    let [one, two] = dirs.each_ref().map(|dir| {
        let json = scratch.json(&[&SMALL[..], &["--device", "cuda", "-o", dir]].concat());
        assert_eq!(json["device"], "cuda:0");
        (json["loss"].clone(), fs::read(format!("{dir}/model.safetensors")).unwrap())
    });
    assert!(one == two);
    let score = |device| scratch.json(&["eval", &dirs[0], "--device", device])["test"].as_f64().unwrap();
    assert!((score("cpu") - score("cuda")).abs() < 1.0);
}

/// Models, and whether a step of theirs is recorded, in training and in what `bench` times: Exphormer's tokens need the
/// host within a step; of Polynormer's steps those that `bench` times were seen not to be recorded.
const RECORDED: [(&str, &str, [bool; 2]); 7] = [
    ("gt", "train.dropout=0.3 train.attention_dropout=0.2", [true, true]),
    ("gcn", "train.dropout=0.5 compute.remat=layer", [true, true]),
    ("gat", "train.dropout=0.3 compute.dtype=bf16", [true, true]),
    ("sage", "train.dropout=0.0", [true, true]),
    ("polynormer", "train.dropout=0.2 model.warm_up=9", [true, false]),
    ("gcn", "model.norm=batch model.stack=tuned", [true, true]),
    ("exphormer", "train.dropout=0.2 model.heads=2", [false, false]),
];

#[test]
#[ignore = "needs a GPU"]
fn recorded_steps_on_a_gpu_are_the_same_steps() {
    let scratch = Scratch::new();
    for (k, (model, settings, [in_training, in_bench])) in RECORDED.iter().enumerate() {
        let common = ["train", "--graph", "sbm:300:4:6:f=8", "--model", model, "model.hidden=16", "train.epochs=20"];
        let settings: Vec<&str> = settings.split(' ').collect();
        let [with, without] = ["true", "false"].map(|record| {
            let (dir, record) = (scratch.path(&format!("{k}-{record}")), format!("compute.record={record}"));
            let args = [&common[..], &settings, &[&record, "--device", "cuda", "-o", &dir]].concat();
            let json = scratch.json(&args);
            assert_eq!(json["recorded"], *in_training && record.ends_with("true"), "{model}");
            let metrics = fs::read_to_string(format!("{dir}/metrics.jsonl")).unwrap();
            (json["loss"].clone(), metrics, fs::read(format!("{dir}/model.safetensors")).unwrap())
        });
        assert!(with == without, "{model}: {:?} {:?}", with.0, without.0);
        let bench = [
            "bench",
            "train",
            "--graph",
            "rmat:10:8",
            "--model",
            model,
            "--runs",
            "2",
            "--device",
            "cuda",
            "compute.record=true",
        ];
        let model_settings = settings.iter().filter(|s| s.starts_with("model") || s.starts_with("compute")).copied();
        let bench = scratch.json(&bench.into_iter().chain(model_settings).collect::<Vec<_>>());
        assert_eq!(bench["recorded"], *in_bench, "{model}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_gpu_that_is_full_is_an_error_with_the_account() {
    let layers = ["bench", "layer", "--graph", "rmat:18:2", "--hidden", "512", "--layers", "400", "--runs", "1"];
    let message = Scratch::new().error(4, &[&layers[..], &["--device", "cuda"]].concat());
    for part in ["out of memory", "activations", "parameters", "remedy"] {
        assert!(message.contains(part), "{message}");
    }
}
