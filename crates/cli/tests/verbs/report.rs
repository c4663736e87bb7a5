//! `graphweft report`, `runs`, `train --report` and `plan --report`. What the page looks like is tested in a browser.

use std::fs;
use std::path::Path;

use crate::program::Scratch;

const SMALL: [&str; 5] = ["--graph", "sbm:120:3:6:f=8", "--epochs", "4", "model.hidden=8"];

fn train(scratch: &Scratch, name: &str, more: &[&str]) -> String {
    let run = scratch.path(name);
    scratch.text(&[&["train"], &SMALL[..], more, &["-o", &run]].concat());
    run
}

#[test]
fn a_page_of_runs_is_one_file_without_addresses() {
    let scratch = Scratch::new();
    let (one, two) = (train(&scratch, "runs/one", &["--ranks", "2"]), train(&scratch, "runs/two", &["--model", "gcn"]));
    let page = scratch.path("page.html");
    assert_eq!(scratch.json(&["report", &one, &two, "-o", &page])["runs"], 2);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("<title>2 runs · Graphweft</title>") && text.contains("default-src 'none'"));
    assert!(!text.contains("src=\"http") && !text.contains("href=\"http"), "nothing is fetched");
    let usage: serde_json::Value = serde_json::from_slice(&fs::read(format!("{one}/usage.json")).unwrap()).unwrap();
    let to = |rank: usize| usage["ranks"][rank]["to"].as_array().unwrap().clone();
    assert_eq!((to(0)[0].as_u64(), to(1)[1].as_u64()), (Some(0), Some(0)), "nothing is sent to oneself");
    let sent = usage["ranks"][0]["sent"].as_array().unwrap();
    let by_layer: u64 = sent.iter().map(|one| one["bytes"].as_u64().unwrap()).sum();
    assert_eq!(to(0)[1].as_u64(), Some(by_layer), "bytes by peer and by layer are the same bytes");
    assert!(Path::new(&format!("{one}/candidates.json")).exists(), "the planner was asked");
    for rank in usage["ranks"].as_array().unwrap() {
        let kernels = &rank["kernels"];
        let all: f64 = kernels["by_kernel"].as_object().unwrap().values().map(|one| one["ms"].as_f64().unwrap()).sum();
        let learned = kernels["learn_ms"].as_f64().unwrap();
        assert!(0.0 < all && all <= learned, "kernels took {all} of {learned} ms");
        assert_eq!(kernels["by_kernel"]["attention"]["calls"].as_u64().map(|calls| calls % 4), Some(0), "four epochs");
    }
    let result: serde_json::Value = serde_json::from_slice(&fs::read(format!("{one}/result.json")).unwrap()).unwrap();
    assert_eq!((&result["better"], &result["unit"]), (&"higher".into(), &"%".into()));
}

#[test]
fn a_run_that_is_asked_for_a_page_has_one_when_it_is_over() {
    let scratch = Scratch::new();
    let run = train(&scratch, "run", &["--report"]);
    let page = fs::read_to_string(format!("{run}/report.html")).unwrap();
    assert!(page.contains("id=\"data\""));
    // The same from a file of settings.
    let settings = scratch.path("settings.toml");
    fs::write(&settings, "[run]\nreport = true\n").unwrap();
    let run = train(&scratch, "set", &[&settings]);
    assert!(fs::read_to_string(format!("{run}/report.html")).unwrap().contains("id=\"data\""));
    assert!(!Path::new(&format!("{}/report.html", train(&scratch, "unasked", &[]))).exists());
    let plan = scratch.path("plan.html");
    scratch.text(&[&["plan"], &SMALL[..2], &["--ranks", "2", "--profile", "16-cpu-10g", "--report", &plan]].concat());
    assert!(fs::read_to_string(&plan).unwrap().contains("id=\"data\""));
}

#[test]
fn runs_are_listed_with_what_became_of_them() {
    let scratch = Scratch::new();
    train(&scratch, "runs/b", &["--model", "gcn"]);
    train(&scratch, "runs/deep/a", &["--model", "mlp"]);
    let folder = scratch.path("runs");
    let all = scratch.json(&["runs", &folder]);
    let models: Vec<&str> = all["runs"].as_array().unwrap().iter().map(|run| run["model"].as_str().unwrap()).collect();
    assert_eq!(models, ["gcn", "mlp"]);
    assert_eq!((&all["runs"][0]["state"], &all["runs"][0]["epochs"]), (&"finished".into(), &4.into()));
    assert!(scratch.text(&["runs", &folder, "--sort", "model"]).contains("finished"));
    // A run without times comes last, whichever way numbers are sorted.
    fs::remove_file(scratch.path("runs/b/times.jsonl")).unwrap();
    let by_time = scratch.json(&["runs", &folder, "--sort", "time"]);
    assert_eq!(
        (&by_time["runs"][0]["model"], &by_time["runs"][1]["epoch_ms"]),
        (&"mlp".into(), &serde_json::Value::Null)
    );
    // The best comes first, also where less is better; what has no score comes last.
    for (name, metric, score) in
        [("e1", "mae", "0.5"), ("e2", "mae", "0.25"), ("s1", "accuracy", "60"), ("s2", "f1", "70")]
    {
        let run = scratch.path(&format!("scores/{name}"));
        fs::create_dir_all(&run).unwrap();
        fs::write(format!("{run}/config.toml"), "[model]\nname = \"gcn\"\n").unwrap();
        let best = format!(r#"{{"metric":"{metric}","best":{{"epoch":1,"valid":{score},"test":{score}}}}}"#);
        fs::write(format!("{run}/result.json"), best).unwrap();
    }
    fs::create_dir_all(scratch.path("scores/a")).unwrap();
    fs::write(scratch.path("scores/a/config.toml"), "").unwrap();
    for column in ["test", "valid"] {
        let sorted = scratch.json(&["runs", &scratch.path("scores"), "--sort", column]);
        let name = |run: &serde_json::Value| Path::new(run["folder"].as_str().unwrap()).file_name().unwrap().to_owned();
        let names: Vec<_> = sorted["runs"].as_array().unwrap().iter().map(name).collect();
        assert_eq!(names, ["s2", "s1", "e2", "e1", "a"], "by {column}");
    }
    assert!(scratch.error(3, &["runs", &scratch.path("nowhere")]).contains("nowhere"));
    let message = scratch.error(2, &["report", &scratch.path("runs/deep")]);
    assert!(message.contains("is not the folder of a run"), "{message}");
}

#[test]
fn what_bench_timed_for_a_run_stays_with_it() {
    let scratch = Scratch::new();
    let run = train(&scratch, "run", &[]);
    let bench = ["bench", "spmm", "--graph", "rmat:6:4", "--hidden", "8", "--runs", "1", "--for"];
    for _ in 0..2 {
        scratch.text(&[&bench[..], &[&run]].concat());
    }
    let text = fs::read_to_string(format!("{run}/bench.json")).unwrap();
    let all: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(all.len() == 2 && all.iter().all(|one| one["op"] == "spmm" && one["floor_ms"].as_f64() > Some(0.0)));
    let nowhere = scratch.path("nowhere");
    let message = scratch.error(2, &[&bench[..], &[&nowhere]].concat());
    assert!(message.contains("cannot add to") && !Path::new(&nowhere).exists(), "{message}");
}
