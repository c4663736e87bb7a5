//! What people see: help, the width of lines, what is said when, and to whom.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::process::Command;

use crate::program::Scratch;

/// What git says of this checkout; nothing where there is none.
fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    out.status.success().then(|| String::from_utf8(out.stdout).unwrap().trim().to_string())
}

#[test]
fn the_version_has_the_commit() {
    let scratch = Scratch::new();
    let version = String::from_utf8(scratch.run(&["--version"]).stdout).unwrap();
    let plain = format!("graphweft {}", env!("CARGO_PKG_VERSION"));
    match git(&["rev-parse", "--short", "HEAD"]) {
        Some(commit) => {
            let expected = [format!("{plain} ({commit})"), format!("{plain} ({commit}-dirty)")];
            assert!(expected.iter().any(|text| text == version.trim()), "{version}");
        }
        None => assert_eq!(version.trim(), plain),
    }
    assert!(version.contains(scratch.json(&["doctor"])["build"].as_str().unwrap()));
}

const VERBS: [&str; 16] = [
    "bench",
    "completions",
    "config",
    "doctor",
    "eval",
    "generate",
    "import",
    "info",
    "launch",
    "man",
    "partition",
    "plan",
    "predict",
    "report",
    "runs",
    "train",
];

/// Fails if a line has more than 80 letters.
fn fits(text: &str, what: &str) {
    for line in text.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{what}: {} letters: {line}", line.chars().count());
    }
}

#[test]
fn help_has_examples_models_exit_codes_and_variables_in_80_columns() {
    let scratch = Scratch::new();
    let all = scratch.text(&["--help"]);
    for part in ["Examples:", "Exit codes:", "GRAPHWEFT_CACHE", "75", "--quiet", "--log"] {
        assert!(all.contains(part), "{part}: {all}");
    }
    fits(&all, "--help");
    for verb in VERBS {
        let help = scratch.text(&[verb, "--help"]);
        assert!(help.contains(&format!("Examples:\n  graphweft {verb}")), "{help}");
        fits(&help, verb);
    }
    // The models that there are, from the message to somebody who names another.
    let message = scratch.error(2, &["train", "--model", "nonsense"]);
    let help = scratch.text(&["train", "--help"]);
    let models = help.split("Model: ").nth(1).unwrap().split("--").next().unwrap();
    for name in graphweft::Run::models() {
        assert!(message.contains(name), "{name}: {message}");
        let listed = models.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == name);
        assert!(listed, "{name}: {models}");
    }
}

const SMALL: [&str; 4] = ["--graph", "sbm:300:3:6:f=8", "--device", "cpu"];

/// What a terminal of 80 columns shows of a command.
fn on_a_terminal(scratch: &Scratch, args: &[&str]) -> String {
    let quoted: Vec<String> = args.iter().map(|a| format!("'{a}'")).collect();
    let command = format!("stty cols 80 rows 24; {} {}", env!("CARGO_BIN_EXE_graphweft"), quoted.join(" "));
    let mut script = Command::new("script");
    script.args(["-qefc", &command, "/dev/null"]).env("XDG_CACHE_HOME", scratch.path("cache")).env("TERM", "xterm");
    let out = script.env_remove("COLUMNS").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{args:?}: {text}");
    text
}

/// What is left of a line that was written over and cleared.
fn shown(line: &str) -> String {
    let mut text = String::new();
    let mut letters = line.chars();
    while let Some(c) = letters.next() {
        match c {
            '\r' => text.clear(),
            '\u{1b}' => drop(letters.by_ref().find(char::is_ascii_alphabetic)),
            c => text.push(c),
        }
    }
    text
}

#[test]
fn every_verb_fits_a_terminal_of_80_columns() {
    let scratch = Scratch::new();
    let (data, run) = (scratch.path("data"), scratch.path("run"));
    let (ranks, seeds) = (scratch.path("ranks"), scratch.path("seeds"));
    let plan = ["--profile=16-cpu-10g", "--ranks", "4", "model.hidden=16"];
    let commands: Vec<Vec<&str>> = vec![
        vec!["generate", "sbm:300:3:6:f=8", "-o", &data],
        vec!["info", "--data", &data, "--partition"],
        vec!["partition", "--data", &data, "-p", "3"],
        vec!["doctor"],
        [&["train", "--epochs", "3", "-o", &run][..], &SMALL].concat(),
        [&["train", "--epochs", "3", "--ranks", "2", "-o", &ranks][..], &SMALL].concat(),
        vec!["train", "--epochs", "2", "--seeds", "2", "-o", &seeds],
        vec!["eval", &run],
        vec!["bench", "gemm", "--runs", "1", "--hidden", "16"],
        [&["bench", "train", "--runs", "1", "--ranks", "2", "--hidden", "16"][..], &SMALL].concat(),
        [&["plan"][..], &SMALL, &plan].concat(),
        vec!["plan", "--graph", "rmat:8:4", "--ranks", "1", "--profile", "h200x8"],
        [&["plan", "--simulate", "nodes=1e6,edges=1e7,features=8,classes=2"][..], &plan].concat(),
    ];
    for args in commands {
        let text = on_a_terminal(&scratch, &args);
        let text: String = text.lines().map(|line| shown(line.trim_end_matches('\r')) + "\n").collect();
        // A path of this test may be longer than any line.
        let lines = text.lines().filter(|line| !line.split(' ').any(|word| word.len() > 60));
        fits(&lines.collect::<Vec<_>>().join("\n"), &format!("{args:?}"));
        assert!(!text.contains('░'), "a bar is left: {text}");
        assert!(!text.contains("1 ranks") && !text.contains("1 threads") && !text.contains("1 parts"), "{text}");
    }
    // Elsewhere too.
    fits(&scratch.text(&[&["plan"][..], &SMALL, &plan].concat()), "plan, not on a terminal");
}

#[test]
fn the_rate_after_a_resumption_is_that_of_the_epochs_since() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    let train = [&["train", "-o", &run, "run.checkpoint_every=600"][..], &SMALL].concat();
    let first =
        scratch.json(&[&train[..], &["--epochs", "600", "--hidden", "8", "--layers", "1", "model.heads=1"]].concat());
    // The rate of epochs when all of them count, half as long as they were.
    let fastest = 2.0 * 1e3 / first["epoch_ms"].as_f64().unwrap();
    let text = on_a_terminal(&scratch, &[&train[..4], &["--resume", "train.epochs=640"]].concat());
    let rates: Vec<f64> = text
        .match_indices("/s")
        .filter_map(|(at, _)| {
            let number = text[..at].rsplit(|c: char| !(c.is_ascii_digit() || c == '.')).next()?;
            number.parse().ok()
        })
        .collect();
    assert!(!rates.is_empty(), "{text}");
    // 600 epochs in the time of one would be hundreds of times as many.
    assert!(rates.iter().all(|rate| *rate < 20.0 * fastest), "{rates:?} of {fastest}");
}

#[test]
fn a_quiet_run_says_only_its_result_and_a_log_has_all_with_times() {
    let scratch = Scratch::new();
    let log = scratch.path("run.log");
    std::fs::write(&log, "before\n").unwrap();
    let run = |name: &str, more: &[&str]| {
        let folder = scratch.path(name);
        scratch.run(&[&["train", "--epochs", "2", "--ranks", "2", "-o", &folder][..], &SMALL, more].concat())
    };
    let (said, quiet) = (run("a", &[]), run("b", &["--quiet", "--log", &log]));
    assert!(said.status.success() && quiet.status.success());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text(&said.stderr).contains("rough profile"), "{}", text(&said.stderr));
    assert!(quiet.stderr.is_empty(), "{}", text(&quiet.stderr));
    assert!(text(&quiet.stdout).contains("accuracy"));
    let kept = std::fs::read_to_string(&log).unwrap();
    assert!(kept.starts_with("before\n") && kept.contains("rough profile") && kept.contains("--epochs 2"), "{kept}");
    for line in kept.lines().skip(1) {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.len() == 20 && time.ends_with('Z') && time.as_bytes()[10] == b'T' && !rest.is_empty(), "{line}");
    }
    // Errors are said and kept, whatever is quiet.
    let message = scratch.error(2, &["train", "--quiet", "--log", &log, "train.lr=fast"]);
    assert!(message.contains("train.lr"), "{message}");
    assert!(std::fs::read_to_string(&log).unwrap().contains("error: train.lr"));
    let message = scratch.error(1, &["doctor", "--log", &scratch.path("no/such/folder.log")]);
    assert!(message.contains("folder.log"), "{message}");
    let message = scratch.error(1, &["doctor", "--log", "/dev/full"]);
    assert!(message.contains("/dev/full"), "{message}");
}

#[test]
fn the_usual_flags_are_short_forms_of_settings() {
    let scratch = Scratch::new();
    let (file, run) = (scratch.path("run.toml"), scratch.path("run"));
    std::fs::write(&file, "[train]\nepochs = 50\nlr = 0.5\n[model]\nname = \"gcn\"\nhidden = 99\n").unwrap();
    let flags = ["--epochs", "2", "--lr", "0.02", "--hidden", "8", "--layers", "3", "--dropout", "0.25"];
    scratch.json(&[&["train", &file, "-o", &run][..], &SMALL, &flags].concat());
    let config = std::fs::read_to_string(format!("{run}/config.toml")).unwrap();
    for setting in ["epochs = 2\n", "lr = 0.02\n", "hidden = 8\n", "layers = 3\n", "dropout = 0.25\n", "\"gcn\""] {
        assert!(config.contains(setting), "{setting}: {config}");
    }
    let message = scratch.error(2, &[&["train", "--lr", "0.1", "train.lr=0.2"][..], &SMALL].concat());
    assert!(message.contains("train.lr is given twice"), "{message}");
    let message = scratch.error(2, &[&["train", "--model", "gcn", "model.name=gat"][..], &SMALL].concat());
    assert!(message.contains("model.name is given twice"), "{message}");
    let plan = ["plan", "--profile", "16-cpu-10g", "--ranks", "2", "--hidden", "24", "--layers", "1"];
    let [narrow, wide] = ["8", "64"].map(|hidden| {
        let hidden = ["--hidden", hidden];
        scratch.json(&[&plan[..5], &hidden, &plan[7..], &SMALL].concat())["choice"]["peak_bytes"].as_u64().unwrap()
    });
    assert!(narrow < wide);
}
