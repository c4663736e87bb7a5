//! What must not be lost, and what must not bring the program down: outputs that are no files, folders that changed
//! behind a stamp, sizes that nobody means, signals, full disks.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::Scratch;

const GRAPH: &str = "sbm:300:4:6:f=8";
const SMALL: [&str; 3] = ["model.hidden=8", "model.layers=2", "model.heads=2"];

fn spawn(scratch: &Scratch, args: &[&str]) -> Child {
    let mut program = Command::new(env!("CARGO_BIN_EXE_graphweft"));
    let cache = scratch.path("cache");
    program.args(args).env("XDG_CACHE_HOME", cache).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn make_pipe(path: &str) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn trained(scratch: &Scratch) -> String {
    let run = scratch.path("run");
    let args = [&["train", "--graph", GRAPH, "-o", &run, "train.epochs=2"], &SMALL[..]].concat();
    scratch.json(&args);
    run
}

/// Names in a folder and below it.
fn names(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            all.push(path.file_name().unwrap().to_str().unwrap().to_string());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    all
}

#[test]
fn outputs_that_are_no_files_are_written_into_and_links_stay() {
    let scratch = Scratch::new();
    let run = trained(&scratch);
    // The verb up to its output, and how its output is called.
    let verbs: [(&[&str], &str); 2] =
        [(&["predict", &run, "-o"], "p.npy"), (&["info", "--graph", GRAPH, "--plot"], "p.svg")];
    for (verb, name) in verbs {
        let [plain, target, link, dangling, null, pipe] = ["plain-", "target-", "link-", "dangling-", "null-", "pipe-"]
            .map(|kind| scratch.path(&format!("{kind}{name}")));
        scratch.json(&[verb, &[&plain]].concat());
        let expected = fs::read(&plain).unwrap();

        fs::write(&target, "old").unwrap();
        symlink(&target, &link).unwrap();
        scratch.json(&[verb, &[&link]].concat());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "{verb:?}");
        assert!(fs::read(&target).unwrap() == expected);

        symlink("/dev/null", &null).unwrap();
        scratch.json(&[verb, &[&null]].concat());
        assert!(fs::symlink_metadata(&null).unwrap().is_symlink());
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());

        symlink(scratch.path("nowhere"), &dangling).unwrap();
        let message = scratch.error(2, &[verb, &[&dangling]].concat());
        assert!(message.contains("which is not there"), "{message}");
        assert!(fs::symlink_metadata(&dangling).unwrap().is_symlink());

        make_pipe(&pipe);
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        scratch.json(&[verb, &[&pipe]].concat());
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo(), "{verb:?}: it is still a pipe");
        assert!(reader.join().unwrap() == expected, "{verb:?}");
    }
    let here = fs::read_dir(scratch.path("")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert_eq!(here.filter(|name| name.starts_with('.')).count(), 0, "nothing is left");
}

/// Overwrites elements at the end of a file, which keeps its size, its inode and its time.
fn overwrite(path: &Path, bytes: &[u8]) {
    let about = fs::metadata(path).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, about.len() - bytes.len() as u64).unwrap();
    file.set_modified(about.modified().unwrap()).unwrap();
}

/// Makes the stamp say that a file was looked at as it is now.
fn forge(data: &Path, name: &str) {
    let about = fs::metadata(data.join(name)).unwrap();
    let text = fs::read_to_string(data.join(".validated")).unwrap();
    let lines = text.lines().map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [file, size, modified, _, dev, inode] if file == name => {
            let changed = format!("{}.{:09}", about.ctime(), about.ctime_nsec());
            [file, size, modified, &changed, dev, inode].join(" ")
        }
        _ => line.to_string(),
    });
    let forged = lines.collect::<Vec<_>>().join("\n") + "\n";
    assert!(text.contains(&format!("\n{name} ")), "the stamp has a line for {name}: {text}");
    fs::write(data.join(".validated"), forged).unwrap();
}

#[test]
fn contents_that_changed_behind_a_stamp_are_an_error_and_nothing_else() {
    let scratch = Scratch::new();
    let damages: [(&str, Vec<u8>); 5] = [
        ("indices.npy", [u32::MAX.to_le_bytes(); 50].concat()),
        ("indices.npy", [3_000_000u32.to_le_bytes(); 1].concat()),
        ("indptr.npy", [[0xf0; 8], 1u64.to_le_bytes()].concat()),
        ("label.npy", [i64::MAX.to_le_bytes(); 300].concat()),
        ("split/default/train.npy", [(1i64 << 40).to_le_bytes(); 3].concat()),
    ];
    for (number, (name, bytes)) in damages.into_iter().enumerate() {
        for is_forged in [false, true] {
            let data = scratch.path(&format!("data-{number}-{is_forged}"));
            scratch.json(&["generate", GRAPH, "-o", &data]);
            let bytes = match name {
                // The last offset is compared with meta.toml on every opening.
                "indptr.npy" => {
                    [&bytes[..], &fs::read(format!("{data}/indptr.npy")).unwrap()[128 + 8 * 300..]].concat()
                }
                _ => bytes.clone(),
            };
            overwrite(&Path::new(&data).join(name), &bytes);
            let run = scratch.path(&format!("run-{number}-{is_forged}"));
            let verbs: [&[&str]; 8] = [
                &["info", "--data", &data],
                &["partition", "--data", &data, "--parts", "4"],
                &["partition", "--data", &data, "--parts", "4", "--chunks"],
                &["bench", "attention", "--data", &data, "--runs", "1"],
                &["bench", "spmm", "--data", &data, "--runs", "1"],
                &["bench", "layer", "--data", &data, "--runs", "1"],
                &["train", "--data", &data, "-o", &run, "train.epochs=2"],
                &["train", "--data", &data, "-o", &run, "train.epochs=2", "--model", "gcn", "data.symmetrise=true"],
            ];
            for verb in verbs {
                if is_forged {
                    forge(Path::new(&data), name);
                }
                let message = scratch.error(3, verb);
                assert!(message.contains(name) && !message.contains("panicked"), "{verb:?}: {message}");
            }
        }
    }
}

#[test]
fn chunks_that_changed_are_an_error_and_nothing_else() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    scratch.json(&["generate", GRAPH, "-o", &data]);
    scratch.json(&["partition", "--data", &data, "--method", "random", "--parts", "4", "--chunks"]);
    let chunks = PathBuf::from(&data).join("chunks/random-4");
    for (name, bytes) in [("indices.npy", [0xff; 40].to_vec()), ("perm.npy", (1u64 << 50).to_le_bytes().to_vec())] {
        let good = fs::read(chunks.join(name)).unwrap();
        overwrite(&chunks.join(name), &bytes);
        let run = scratch.path(&format!("run-{name}"));
        let train = ["train", "--data", &data, "-o", &run, "--strategy", "isolated", "train.epochs=2"];
        let settings = ["parallel.partition=random", "parallel.parts=4"];
        let message = scratch.error(3, &[&train[..], &settings, &SMALL].concat());
        assert!(message.contains(name) || message.contains("chunks"), "{message}");
        fs::write(chunks.join(name), good).unwrap();
    }
}

#[test]
fn sizes_that_nobody_means_are_refused_at_once() {
    let scratch = Scratch::new();
    let (data, out, list) = (scratch.path("data"), scratch.path("out"), scratch.path("edges.txt"));
    scratch.json(&["generate", GRAPH, "-o", &data]);
    fs::write(&list, "0 1\n1 2\n").unwrap();
    let train = |setting: &'static str| vec!["train", "--data", &data, "-o", &out, setting];
    let cases: Vec<(i32, Vec<&str>, &str)> = vec![
        (4, train("model.hidden=1000000000000"), "out of memory"),
        (4, train("model.hidden=16000000"), "out of memory"),
        (
            4,
            ["train", "--data", &data, "-o", &out, "--model", "gcn", "model.hidden=1000000000000"].to_vec(),
            "of memory",
        ),
        (
            4,
            ["train", "--data", &data, "-o", &out, "--model", "gat", "model.hidden=1000000000000"].to_vec(),
            "of memory",
        ),
        (2, vec!["bench", "train", "--graph", GRAPH, "--hidden", "100000000000000"], "model.hidden"),
        (2, train("model.layers=1000000000"), "model.layers"),
        (2, train("model.heads=1000000000"), "model.heads"),
        (2, train("train.epochs=1000000000000000000"), "train.epochs"),
        (2, train("run.seeds=1000000000"), "run.seeds"),
        (2, train("parallel.ranks=1000000000000"), "parallel.ranks"),
        (2, train("encoding.laplacian=1000000"), "encoding.laplacian"),
        (2, train("encoding.random_walk=1000000000"), "encoding.random_walk"),
        (2, vec!["info", "--data", &data, "--threads", "10000"], "--threads"),
        (4, vec!["train", "--graph", "sbm:40000000:4:6:f=65536", "-o", &out], "bytes of memory"),
        (4, vec!["generate", "sbm:100000000:4:2:f=65536", "-o", &out], "on the disk"),
        (4, vec!["generate", "rmat:32:1000", "-o", &out], "bytes of memory"),
        (2, vec!["generate", "rmat:40:16", "-o", &out], "from 1 to 32"),
        (2, vec!["generate", "grid:1000000:1000000", "-o", &out], "more than"),
        (4, vec!["import", "edge-list", &list, "-o", &out, "--num-nodes", "1000000000000"], "on the disk"),
        (4, vec!["bench", "attention", "--graph", GRAPH, "--hidden", "1000000000000"], "bytes of memory"),
        (4, vec!["bench", "gemm", "--rows", "1000000000000"], "bytes of memory"),
        (2, vec!["bench", "layer", "--graph", GRAPH, "--layers", "1000000000000"], "--layers"),
        (2, vec!["partition", "--data", &data, "--parts", "1000000000000"], "parts"),
    ];
    for (code, args, part) in cases {
        let started = Instant::now();
        let message = scratch.error(code, &args);
        assert!(message.contains(part) && !message.contains("panicked"), "{args:?}: {message}");
        assert!(started.elapsed() < Duration::from_secs(20), "{args:?} took {:?}", started.elapsed());
        assert!(!Path::new(&out).exists(), "{args:?}");
    }
    let meta = fs::read_to_string(format!("{data}/meta.toml")).unwrap();
    for classes in ["1000000000000", "9223372036854775807"] {
        fs::write(format!("{data}/meta.toml"), meta.replace("num_classes = 4", &format!("num_classes = {classes}")))
            .unwrap();
        for verb in [&["info", "--data", &data][..], &["train", "--data", &data, "-o", &out]] {
            let message = scratch.error(3, verb);
            assert!(message.contains("num_classes") && message.contains(classes), "{message}");
        }
    }
    assert!(!names(Path::new(&scratch.path(""))).iter().any(|name| name.starts_with(".graphweft")), "nothing is left");
}

/// Waits until `is_so`, for some seconds.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn tell(signal: &str, child: &Child) {
    assert!(Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap().success());
}

/// How it ended, and that it did so within seconds.
fn end(child: Child, what: &str) -> (Option<i32>, String) {
    let started = Instant::now();
    let out = child.wait_with_output().unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{what} took {:?}", started.elapsed());
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

#[test]
fn what_has_nothing_to_save_stops_at_once_and_leaves_nothing() {
    let scratch = Scratch::new();
    let (list, out) = (scratch.path("edges.txt"), scratch.path("there/out"));
    let there = PathBuf::from(scratch.path("there"));
    fs::create_dir(&there).unwrap();
    let line = |k: u64| format!("{} {}\n", k * 7919 % 1_000_003, k * 104_729 % 1_000_003);
    fs::write(&list, (0..3_000_000).map(line).collect::<String>()).unwrap();
    let generate = ["generate", "rmat:22:64", "-o", &out];
    let verbs: [(&[&str], &str); 4] = [
        (&generate, "TERM"),
        (&generate, "INT"),
        (&generate, "HUP"),
        (&["import", "edge-list", &list, "-o", &out, "--symmetrise"], "TERM"),
    ];
    for (verb, signal) in verbs {
        let child = spawn(&scratch, verb);
        wait_until("a hidden folder", || fs::read_dir(&there).unwrap().count() > 0);
        tell(signal, &child);
        let (code, message) = end(child, signal);
        assert_eq!(code, Some(75), "{verb:?}: {message}");
        assert!(message.contains(&format!("stopped by SIG{signal}")), "{message}");
        assert_eq!(names(&there), [""; 0], "{verb:?}");
    }
    // A run that has not begun: its graph is being made, or the encodings of its nodes.
    for (graph, encoding) in
        [("rmat:22:64:f=4", "encoding.degree=false"), ("sbm:40000:4:6:f=8", "encoding.laplacian=300")]
    {
        let child = spawn(&scratch, &["train", "--graph", graph, encoding, "-o", &out]);
        std::thread::sleep(Duration::from_millis(700));
        tell("TERM", &child);
        let (code, message) = end(child, encoding);
        assert_eq!(code, Some(75), "{graph}: {message}");
        assert_eq!(names(&there), [""; 0], "{graph}");
    }
}

fn epochs(run: &str) -> usize {
    fs::read_to_string(format!("{run}/metrics.jsonl")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_terminal_that_closes_saves_a_run_unless_it_was_started_not_to_care() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    let args = [&["train", "--graph", GRAPH, "-o", &run, "train.epochs=3000"], &SMALL[..]].concat();
    let child = spawn(&scratch, &args);
    wait_until("ten epochs", || epochs(&run) >= 10);
    tell("HUP", &child);
    let (code, message) = end(child, "a run");
    assert_eq!(code, Some(75), "{message}");
    assert!(message.contains("SIGHUP: stopping after this epoch") && message.contains("saved in"), "{message}");
    assert!(names(Path::new(&run)).iter().any(|name| name.starts_with("step-")));

    let other = scratch.path("other");
    let settings = [&["train", "--graph", GRAPH, "-o", &other, "train.epochs=300"], &SMALL[..]].concat();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_graphweft")]).args(settings);
    let child = shell.env("XDG_CACHE_HOME", scratch.path("cache")).stdout(Stdio::null()).spawn().unwrap();
    wait_until("ten epochs", || epochs(&other) >= 10);
    tell("HUP", &child);
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), epochs(&other)), (Some(0), 300));
}

/// Runs the program where files may have so many blocks of 512 bytes.
fn limited(scratch: &Scratch, blocks: u32, args: &[&str]) -> (Option<i32>, String) {
    let mut shell = Command::new("sh");
    let limit = format!("ulimit -f {blocks}; exec \"$@\"");
    shell.args(["-c", &limit, "sh", env!("CARGO_BIN_EXE_graphweft")]).args(args);
    let out = shell.env("XDG_CACHE_HOME", scratch.path("cache")).output().unwrap();
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

fn unfinished(folder: &Path) -> Vec<String> {
    let is_unfinished =
        |name: &String| name.ends_with(".partial") || name.ends_with(".tmp") || name.starts_with(".graphweft-");
    names(folder).into_iter().filter(is_unfinished).collect()
}

#[test]
fn a_file_that_cannot_be_written_in_full_leaves_nothing_unfinished() {
    let scratch = Scratch::new();
    let run = trained(&scratch);
    let (data, other, out) = (scratch.path("data"), scratch.path("other"), scratch.path("out"));
    scratch.json(&["generate", "sbm:3000:4:6:f=32", "-o", &data]);
    let cases: [(u32, &[&str]); 6] = [
        (100, &["train", "--data", &data, "-o", &other, "train.epochs=2"]),
        (8, &["predict", &run, "-o", &out]),
        (8, &["info", "--graph", GRAPH, "--plot", &scratch.path("out.svg")]),
        (100, &["generate", "sbm:3000:4:6:f=32", "-o", &out]),
        (20, &["partition", "--data", &data, "--parts", "4"]),
        (100, &["partition", "--data", &data, "--parts", "4", "--chunks"]),
    ];
    for (blocks, args) in cases {
        let (code, message) = limited(&scratch, blocks, args);
        assert_eq!(code, Some(1), "{args:?}: {message}");
        assert!(message.contains("cannot write") && message.contains("remedy"), "{args:?}: {message}");
        // Chunks that are complete are gone on with: their folder stays, what is incomplete in it does not.
        let left: Vec<String> =
            unfinished(Path::new(&scratch.path(""))).into_iter().filter(|n| !n.ends_with("-4.partial")).collect();
        assert_eq!(left, [""; 0], "{args:?}");
    }
}

#[test]
fn a_full_disk_leaves_nothing_unfinished() {
    let scratch = Scratch::new();
    let disk = scratch.path("disk");
    fs::create_dir(&disk).unwrap();
    // A small disk, seen by this script only.
    let script = "mount -t tmpfs -o size=300k none \"$1\" || exit 77; run=$2; disk=$1; shift 2; \
                  \"$run\" \"$@\"; code=$?; find \"$disk\" -name '*.partial' -o -name '.graphweft-*' >&2; exit $code";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", script, "sh", &disk, env!("CARGO_BIN_EXE_graphweft")]);
    shell.args(["train", "--graph", GRAPH, "-o", &format!("{disk}/run"), "train.epochs=2", "model.hidden=64"]);
    let out = shell.env("XDG_CACHE_HOME", scratch.path("cache")).output();
    let Some(out) = out.ok().filter(|out| out.status.code() == Some(1)) else {
        let skipped = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", &disk]).status();
        assert!(!skipped.is_ok_and(|status| status.success()), "a disk could be mounted, but the run did not fail");
        eprintln!("skipped: no disk can be mounted here");
        return;
    };
    let message = String::from_utf8(out.stderr).unwrap();
    assert!(message.contains("No space left") && message.contains("free some space"), "{message}");
    let left = |line: &&str| line.ends_with(".partial") || line.contains("/.graphweft-");
    assert_eq!(message.lines().filter(left).collect::<Vec<_>>(), [""; 0]);
}
