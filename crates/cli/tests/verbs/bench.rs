//! `graphweft bench`: the keys that other programs read, and requests that make no sense.

use crate::program::Scratch;

/// What every bench of a graph operation prints.
const KEYS: [&str; 10] =
    ["op", "graph", "nodes", "edges", "threads", "dtype", "forward_ms", "backward_ms", "peak_bytes", "floor_ms"];

#[test]
fn graph_operations_report_the_agreed_keys() {
    let scratch = Scratch::new();
    for op in ["attention", "spmm"] {
        for dtype in ["f32", "bf16"] {
            let flags = ["bench", op, "--graph", "rmat:8:4+loops", "--threads", "2", "--runs", "1", "--dtype", dtype];
            let line = scratch.json(&flags);
            for key in KEYS {
                assert!(!line[key].is_null(), "{op} has no {key}: {line}");
            }
            assert_eq!((&line["op"], &line["dtype"]), (&op.into(), &dtype.into()));
            assert_eq!((&line["nodes"], &line["threads"]), (&256.into(), &2.into()));
            assert!(line["forward_ms"].as_f64() > Some(0.0) && line["floor_ms"].as_f64() > Some(0.0), "{line}");
        }
    }
}

#[test]
fn products_report_the_time_of_each() {
    let line = Scratch::new().json(&["bench", "gemm", "--rows", "500", "--out", "48", "--runs", "1"]);
    for key in ["forward_ms", "backward_ms", "forward_gflops", "input_gradient_gflops", "weight_gradient_gflops"] {
        assert!(line[key].as_f64() > Some(0.0), "{key}: {line}");
    }
    let flops = 2e-6 * 500.0 * 128.0 * 48.0;
    let back: f64 =
        ["input_gradient_gflops", "weight_gradient_gflops"].map(|key| flops / line[key].as_f64().unwrap()).iter().sum();
    assert!((back / line["backward_ms"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{line}");
}

#[test]
fn heads_must_divide_the_width() {
    let scratch = Scratch::new();
    for op in ["attention", "layer"] {
        for heads in ["0", "7"] {
            let message = scratch.error(2, &["bench", op, "--graph", "rmat:5:2", "--heads", heads]);
            assert!(message.contains("--heads"), "{message}");
        }
    }
}

#[test]
fn counts_of_zero_and_flags_without_effect_exit_with_2() {
    let scratch = Scratch::new();
    for (args, part) in [
        (&["attention", "--graph", "rmat:5:2", "--hidden", "0", "--heads", "1"][..], "--hidden"),
        (&["layer", "--graph", "rmat:5:2", "--layers", "0"], "--layers"),
        (&["train", "--graph", "rmat:5:2", "--classes", "0"], "--classes"),
        (&["train", "--graph", "rmat:5:2", "--features", "0"], "--features"),
        (&["gemm", "--rows", "0"], "--rows"),
        (&["gemm", "--seed", "1"], "--seed"),
    ] {
        let message = scratch.error(2, &[&["bench"], args].concat());
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn settings_are_reported_in_place_of_flags() {
    let scratch = Scratch::new();
    let bench = ["bench", "train", "--graph", "rmat:6:4", "--runs", "1", "--device", "cpu"];
    let settings = ["model.layers=2", "model.hidden=16", "train.dropout=0.25"];
    let line = scratch.json(&[&bench[..], &settings].concat());
    assert_eq!((&line["layers"], &line["hidden"], &line["dropout"]), (&2.into(), &16.into(), &0.25.into()));
    let text = String::from_utf8(scratch.run(&[&bench[..], &settings].concat()).stdout).unwrap();
    assert!(text.contains("with 2 layers"), "{text}");
}

#[test]
fn one_run_is_timed_on_any_number_of_networks_that_are_not_here() {
    let scratch = Scratch::new();
    let profile = |name: &str, bandwidth: &str| {
        let path = scratch.path(name);
        let wire = format!("{{ latency = 1e-6, bandwidth = {bandwidth} }}");
        std::fs::write(&path, format!("compute = 0.5\n[network]\nbetween = {wire}\n")).unwrap();
        path
    };
    let (fast, slow) = (profile("fast.toml", "1e12"), profile("slow.toml", "1e5"));
    let bench = ["bench", "train", "--graph", "rmat:8:4+loops", "--hidden", "16", "--runs", "1", "--layers", "1"];
    let more = ["--ranks", "3", "--strategy", "gather", "--emulate", &fast, "--emulate", &slow];
    let line = scratch.json(&[&bench[..], &more].concat());
    let emulated = line["emulated"].as_array().unwrap();
    assert_eq!((&emulated[0]["profile"], &emulated[1]["profile"]), (&"fast".into(), &"slow".into()));
    assert!(line["forward_ms"].is_null() && line["step_ms"] == emulated[0]["step_ms"] && line["threads"] == 1);
    assert_eq!(emulated[0]["computing_ms"], emulated[1]["computing_ms"], "it is the same run");
    let ms = |k: usize| emulated[k]["step_ms"].as_f64().unwrap();
    let sent = line["bytes_sent_by_rank"][0].as_f64().unwrap();
    assert!(ms(0) > 0.0 && ms(1) > ms(0) && ms(1) >= sent / 1e5 * 1e3, "{line}");
    let out = scratch.run(&[&bench[..], &["--emulate", &fast]].concat());
    assert!(String::from_utf8_lossy(&out.stdout).contains("emulated on fast"), "{out:?}");

    let wrong = profile("wrong.toml", "0");
    for verb in [&bench[..], &["train", "-o", &scratch.path("run")]] {
        let message = scratch.error(3, &[verb, &["--emulate", &wrong]].concat());
        assert!(message.contains("wrong.toml") && message.contains("between.bandwidth"), "{message}");
    }
}
