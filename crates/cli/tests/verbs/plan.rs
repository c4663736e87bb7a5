//! `graphweft plan`: what it says, and what other programs read of it.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;

use crate::program::Scratch;
use serde_json::Value;

const SMALL: [&str; 7] = ["plan", "--graph", "rmat:9:8", "--ranks", "4", "model.hidden=16", "--profile=16-cpu-10g"];

fn strategies(json: &Value) -> Vec<String> {
    let all = json["candidates"].as_array().unwrap().iter();
    all.map(|c| c["strategy"].as_str().unwrap().to_string()).collect()
}

#[test]
fn every_candidate_is_told_and_the_fastest_that_fits_is_chosen() {
    let scratch = Scratch::new();
    let (plot, json) =
        (scratch.path("plan.svg"), scratch.json(&[&SMALL[..], &["--plot", &scratch.path("plan.svg")]].concat()));
    for name in ["gather", "halo", "halo:plain", "heads", "ring", "ring:2", "grid:2x2", "grid:2x2:gather"] {
        assert!(strategies(&json).contains(&name.to_string()), "{name}");
    }
    let candidates = json["candidates"].as_array().unwrap();
    let time = |c: &Value| c["time_ms"].as_f64().unwrap();
    let fit: Vec<&Value> = candidates.iter().filter(|c| c["feasible"] == true).collect();
    let best = fit.iter().map(|c| time(c)).fold(f64::INFINITY, f64::min);
    // Of those that are as fast, the one with least memory.
    let memory = |c: &Value| c["peak_bytes"].as_u64().unwrap();
    let least = fit.iter().filter(|c| time(c) <= 1.01 * best).map(|c| memory(c)).min().unwrap();
    assert!(time(&json["choice"]) <= 1.01 * best && memory(&json["choice"]) == least, "{json}");
    for c in &fit {
        let parts = ["compute_ms", "comm_ms", "imbalance_ms"].map(|key| c[key].as_f64().unwrap());
        assert!((parts.iter().sum::<f64>() - time(c)).abs() < 1e-6 * time(c), "{c}");
        let tags: f64 = c["peak"].as_object().unwrap().values().map(|b| b.as_f64().unwrap()).sum();
        assert_eq!(tags, c["peak_bytes"].as_f64().unwrap());
    }
    let others: Vec<&Value> = candidates.iter().filter(|c| c["feasible"] != true).collect();
    assert!(others.iter().all(|c| c["reason"].as_str().unwrap().len() > 5));
    // What is left out because it could only be slower is not said to be too large.
    let left_out = |c: &&&Value| c["reason"].as_str().unwrap().contains("slower without need");
    assert!(others.iter().any(|c| left_out(&c)));
    for c in others.iter().filter(left_out) {
        assert!(c["feasible"].is_null() && c["time_ms"].is_null(), "{c}");
    }
    assert!(json["why"].as_str().unwrap().contains("network"));
    let svg = fs::read_to_string(plot).unwrap();
    assert!(svg.contains("waiting for messages") && svg.contains("activations") && svg.contains("halo"));
    let out = scratch.run(&SMALL);
    let text = String::from_utf8(out.stdout).unwrap();
    for part in ["strategy", "waiting", "peak", "not rehearsed", "without need"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    // The same again, to the byte: nothing was measured.
    assert_eq!(json, scratch.json(&SMALL));
}

#[test]
fn the_choice_is_marked_and_what_it_was_made_of_is_said() {
    let scratch = Scratch::new();
    let (text, json) = (String::from_utf8(scratch.run(&SMALL).stdout).unwrap(), scratch.json(&SMALL));
    let chosen = json["choice"]["strategy"].as_str().unwrap();
    let marked: Vec<&str> =
        text.lines().filter(|line| line.trim_start().starts_with(&format!("→ {chosen} "))).collect();
    assert_eq!(marked.len(), 1, "{text}");
    // One rank is there to compare with, and is not chosen where four are asked for.
    let one: Vec<&Value> = json["candidates"].as_array().unwrap().iter().filter(|c| c["strategy"] == "local").collect();
    assert_eq!((one.len(), &one[0]["ranks"], &one[0]["feasible"]), (1, &1.into(), &false.into()), "{one:?}");
    assert!(one[0]["time_ms"].as_f64().unwrap() > 0.0 && text.contains("one rank"), "{text}");
    // An R-MAT graph has no features; a block model has its own; and flags say otherwise.
    assert!(text.contains("128 columns") && text.contains("assumed"), "{text}");
    assert_eq!((&json["features"], &json["classes"]), (&128.into(), &40.into()));
    let plan = |graph: &[&str]| {
        let flags = ["plan", "--ranks", "2", "model.hidden=16", "--profile=16-cpu-10g"];
        String::from_utf8(scratch.run(&[&flags[..], graph].concat()).stdout).unwrap()
    };
    let own = plan(&["--graph", "sbm:300:3:6:f=24"]);
    assert!(own.contains("24 columns and 3 classes, those of the graph"), "{own}");
    let given = plan(&["--graph", "sbm:300:3:6:f=24", "--features", "48"]);
    assert!(given.contains("48 columns") && given.contains("as --features says"), "{given}");
    // Times carry an error: that of a machine from a data sheet.
    assert_eq!((&json["error"], &json["profile_source"]), (&0.3.into(), &"given".into()));
    let [time, error] = ["time_ms", "time_error_ms"].map(|key| json["choice"][key].as_f64().unwrap());
    assert!((error / time - 0.3).abs() < 1e-9);
    assert!(text.contains("±30 %"), "{text}");
    assert!(!text.contains("again") && text.contains("computed twice"), "{text}");
}

#[test]
fn what_is_recomputed_is_said_in_words() {
    let scratch = Scratch::new();
    let file = scratch.path("small.toml");
    let shipped = include_str!("../../../../profiles/16-cpu-10g.toml");
    let fits = scratch.json(&SMALL)["choice"]["peak_bytes"].as_f64().unwrap();
    fs::write(&file, shipped.replace("memory = 115e9", &format!("memory = {}", 0.8 * fits))).unwrap();
    let text = String::from_utf8(scratch.run(&[&SMALL[..6], &["--profile", &file]].concat()).stdout).unwrap();
    assert!(text.contains("recomputed: what backward computes a second time"), "{text}");
    assert!(text.contains("× more than"), "{text}");
}

#[test]
fn a_short_run_does_not_wait_for_a_measurement_and_a_long_one_does() {
    let scratch = Scratch::new();
    let plan = ["plan", "--graph", "sbm:300:3:6:f=8", "--ranks", "2", "--device", "cpu", "--hidden", "8"];
    let with = |epochs: &str| {
        let out = scratch.run(&[&plan[..], &["--json", "--epochs", epochs]].concat());
        let (json, said) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
        (serde_json::from_str::<Value>(&json).unwrap(), said)
    };
    let (short, said) = with("10");
    assert_eq!(short["profile_source"], "rough");
    assert!(short["error"].as_f64().unwrap() >= 0.5, "{}", short["error"]);
    assert_eq!(said.matches("rough profile").count(), 1, "{said}");
    assert!(said.contains("graphweft plan --calibrate --ranks 2"), "{said}");
    // As what is asked for says; and what was measured is used from then on, also for short ones.
    let (long, said) = with("100000000");
    assert_eq!(long["profile_source"], "measured", "{said}");
    assert!(said.contains("measuring this machine first"), "{said}");
    assert!(long["error"].as_f64().unwrap() >= 0.05);
    let (again, said) = with("10");
    assert_eq!(again["profile_source"], "measured");
    assert!(!said.contains("rough") && !said.contains("measuring"), "{said}");
    // Who asks for it measures once more, and that counts; no file need be written.
    let calibrated = scratch.json(&["plan", "--calibrate", "--ranks", "2", "--device", "cpu"]);
    let (after, _) = with("10");
    assert_eq!(after["profile_source"], "measured");
    assert!(
        calibrated["error"] == after["error"] && again["error"] != after["error"],
        "{calibrated}, {}",
        after["error"]
    );
}

#[test]
fn names_in_a_picture_do_not_overlap() {
    let scratch = Scratch::new();
    let plot = scratch.path("plan.svg");
    // Sixteen ranks have grids with long names, and as many candidates as are drawn.
    let plan = ["plan", "--graph", "rmat:9:8", "--ranks", "16", "model.hidden=64", "model.heads=16", "--plot", &plot];
    scratch.json(&[&plan[..], &["--profile=16-cpu-10g"]].concat());
    let svg = fs::read_to_string(plot).unwrap();
    let number = |text: &str, key: &str| -> Option<f64> {
        text.split_once(&format!("{key}=\""))?.1.split_once('"')?.0.parse().ok()
    };
    let mut upwards: Vec<(f64, f64, String)> = Vec::new();
    for text in svg.split("<text").skip(1) {
        let Some((head, rest)) = text.split_once('>') else { continue };
        let words = rest.split('<').next().unwrap().trim().to_string();
        if head.contains("rotate(270") && words != "ms" && words != "MiB" {
            let end = number(head, "y").unwrap() + 6.6 * words.chars().count() as f64;
            assert!(end < 556.0, "{words} ends at {end}, below the picture");
            upwards.push((number(head, "x").unwrap(), number(head, "y").unwrap(), words));
        }
    }
    assert!(upwards.len() >= 20, "{upwards:?}");
    upwards.sort_by(|a, b| a.0.total_cmp(&b.0));
    for pair in upwards.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= 12.0, "{pair:?} are on one another");
    }
}

#[test]
fn what_does_not_fit_exits_with_4_and_says_what_would() {
    let scratch = Scratch::new();
    let file = scratch.path("tiny.toml");
    let shipped = include_str!("../../../../profiles/16-cpu-10g.toml");
    fs::write(&file, shipped.replace("memory = 115e9", "memory = 3e5")).unwrap();
    let message = scratch.error(4, &[&SMALL[..6], &["--profile", &file]].concat());
    for part in ["nothing fits", "more", "ranks instead of 4", "remedy"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    fs::write(&file, "memory = 1\n").unwrap();
    let message = scratch.error(3, &[&SMALL[..6], &["--profile", &file]].concat());
    assert!(message.contains("tiny.toml") && message.contains("network"), "{message}");
    let message = scratch.error(3, &[&SMALL[..6], &["--profile", "h2000"]].concat());
    assert!(message.contains("h2000") && message.contains("h200x8"), "{message}");
}

#[test]
fn a_graph_may_be_described() {
    let scratch = Scratch::new();
    let simulate = |graph: &str, ranks: &str, more: &[&str]| {
        let flags = ["plan", "--simulate", graph, "--ranks", ranks, "--profile", "64-cpu-25g", "model.hidden=64"];
        scratch.json(&[&flags[..], more].concat())
    };
    let curve = scratch.path("scaling.svg");
    let papers = "nodes=1.1e8,edges=3.2e9,features=128,classes=172,alpha=0.6";
    let json = simulate(papers, "8", &["--scaling", &curve]);
    assert!(json["choice"]["time_ms"].as_f64().unwrap() > 100.0);
    assert!(fs::read_to_string(curve).unwrap().contains("seconds per epoch"));
    // As many edges as anyone has, on as many ranks as there may be.
    let json = simulate("nodes=1e10,edges=1e12,features=64,classes=10", "4096", &["compute.dtype=bf16"]);
    assert!(json["choice"]["peak_bytes"].as_f64().unwrap() > 1e9, "{}", json["choice"]);
    let message = scratch.error(2, &["plan", "--simulate", "nodes=1e10", "--ranks", "2", "--profile", "64-cpu-25g"]);
    assert!(message.contains("edges"), "{message}");
}

#[test]
fn what_would_be_ignored_or_lost_is_refused_before_anything_is_done() {
    let scratch = Scratch::new();
    let (there, picture, scaling) = (scratch.path("there.toml"), scratch.path("p.png"), scratch.path("s.svg"));
    fs::write(&there, "mine").unwrap();
    let described = ["plan", "--simulate", "nodes=1e6,edges=1e7,features=8,classes=2", "--profile", "64-cpu-25g"];
    for (args, part) in [
        ([&SMALL[..], &["--plot", &picture]].concat(), ".svg"),
        ([&described[..], &["--scaling", &picture]].concat(), ".svg"),
        ([&described[..], &["--data", "cora"]].concat(), "--data"),
        ([&described[..], &["--features", "8"]].concat(), "--features"),
        ([&SMALL[..], &["-o", &there]].concat(), "--calibrate"),
        ([&SMALL[..], &["--scaling", &scaling]].concat(), "--simulate"),
        (vec!["plan", "--calibrate", "-o", &there], "--replace"),
    ] {
        let message = scratch.error(2, &args);
        assert!(message.contains(part), "{args:?}: {message}");
    }
    assert_eq!(fs::read_to_string(there).unwrap(), "mine");
    assert!(!std::path::Path::new(&picture).exists());
    let message = scratch.error(1, &["plan", "--calibrate", "-o", &scratch.path("no/such/folder.toml")]);
    assert!(message.contains("no/such") && message.contains("remedy"), "{message}");
}

#[test]
fn what_is_planned_for_given_features_is_what_an_epoch_with_them_takes() {
    let scratch = Scratch::new();
    // A block model has features and classes of its own: those that are asked for count.
    let graph = ["--graph", "sbm:400:4:6:f=8", "--ranks", "2", "--features", "24", "--classes", "5", "--device", "cpu"];
    let model = ["model.heads=4", "train.dropout=0.1", "train.attention_dropout=0.1", "parallel.partition=contiguous"];
    let sized = ["model.hidden=16", "model.layers=2", "--profile", "16-cpu-10g", "--strategy", "heads"];
    let plan = scratch.json(&[&["plan"][..], &graph, &model, &sized].concat());
    let flags = [
        "--hidden",
        "16",
        "--layers",
        "2",
        "--strategy",
        "heads",
        "--runs",
        "2",
        "--kernels",
        "--emulate",
        "16-cpu-10g",
    ];
    let bench = scratch.json(&[&["bench", "train"][..], &graph, &model, &flags].concat());
    assert_eq!(plan["choice"]["peak_bytes"], bench["peak_bytes"]);
    let kernels = bench["kernels"].as_array().unwrap();
    let attention = kernels.iter().find(|k| k["op"] == "attention forward").unwrap();
    assert_eq!((attention["shape"][0].as_u64(), attention["shape"][1].as_u64()), (Some(2), Some(8)), "{attention}");
    assert!(kernels.iter().all(|k| k["predicted_ms"].as_f64().unwrap() > 0.0), "{kernels:?}");
}
