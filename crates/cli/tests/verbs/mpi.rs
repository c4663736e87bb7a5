//! `mpirun -n P graphweft train … --comm mpi` and `graphweft launch`: the same as threads, bit for bit, and what
//! happens when a process is killed.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{Scratch, small, taken};

const OPEN_MPI: &str = env!("GRAPHWEFT_TEST_OPEN_MPI");

/// The same with what a test of processes needs.
fn usual<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let settings = ["run.checkpoint_every=2", "parallel.deadline=20", "parallel.profile=16-cpu-10g"];
    small(&[&settings, more].concat())
}

/// Starts the program on `ranks` processes; each leaves its number and how it ended in `codes`, and its process in
/// `pids`.
fn mpirun(scratch: &Scratch, ranks: usize, args: &[&str]) -> Child {
    for folder in ["codes", "pids"] {
        let _ = fs::remove_dir_all(scratch.path(folder));
        fs::create_dir_all(scratch.path(folder)).unwrap();
    }
    let script = r#"
        rank=$OMPI_COMM_WORLD_RANK; folder=$1; shift
        "$@" & echo $! > "$folder/pids/$rank"; wait $!; code=$?
        echo $code > "$folder/codes/$rank.partial"; mv "$folder/codes/$rank.partial" "$folder/codes/$rank"; exit $code"#;
    Command::new(OPEN_MPI)
        .args(["-n", &ranks.to_string(), "sh", "-c", script, "sh", &scratch.path("")])
        .arg(env!("CARGO_BIN_EXE_graphweft"))
        .args(args)
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        .envs([("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("OMPI_MCA_hwloc_base_binding_policy", "none")])
        // Others live on to report when one is killed.
        .env("OMPI_MCA_orte_enable_recovery", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn codes(scratch: &Scratch, ranks: usize) -> Vec<String> {
    let code = |rank| fs::read_to_string(scratch.path(&format!("codes/{rank}"))).unwrap_or_default();
    (0..ranks).map(|rank| code(rank).trim().to_string()).collect()
}

#[test]
#[cfg_attr(not(open_mpi), ignore = "needs Open MPI")]
fn processes_find_what_threads_find() {
    let scratch = Scratch::new();
    for (ranks, strategy) in [(2, "halo"), (4, "ring"), (2, "heads"), (4, "gather")] {
        let (threads, processes) = (scratch.path("threads"), scratch.path("processes"));
        for run in [&threads, &processes] {
            let _ = fs::remove_dir_all(run);
        }
        let common = usual(&["train.epochs=4", "--strategy", strategy]);
        let count = ranks.to_string();
        let expected = scratch.json(&[&common[..], &["--ranks", &count, "-o", &threads]].concat());
        let args = [&common[..], &["--json", "--comm", "mpi", "-o", &processes]].concat();
        let out = mpirun(&scratch, ranks, &args).wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&out.stderr);
        assert_eq!(codes(&scratch, ranks), vec!["0"; ranks], "{message}");
        let text = String::from_utf8(out.stdout).unwrap();
        assert_eq!(text.lines().count(), 1, "one rank speaks: {text}");
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        for key in ["loss", "valid", "test", "ranks", "strategy", "bytes_sent_per_epoch", "peak_bytes"] {
            assert_eq!(found[key], expected[key], "{key} of {strategy} on {ranks}");
        }
        for file in ["model.safetensors", "predictions.npy", "metrics.jsonl", "plan.json"] {
            let read = |run: &str| crate::program::without_times(&Path::new(run).join(file));
            assert!(read(&threads) == read(&processes), "{file} of {strategy} on {ranks}");
        }
    }
}

#[test]
#[cfg_attr(not(open_mpi), ignore = "needs Open MPI")]
fn a_refusal_is_said_once_and_ends_all() {
    let scratch = Scratch::new();
    let run = taken(&scratch);
    for seeds in ["1", "2"] {
        let args = usual(&["--strategy", "auto", "--seeds", seeds, "--comm", "mpi", "-o", &run]);
        let out = mpirun(&scratch, 3, &args).wait_with_output().unwrap();
        let message = String::from_utf8(out.stderr).unwrap();
        assert_eq!(codes(&scratch, 3), ["2"; 3], "{message}");
        assert_eq!(message.matches("exists already").count(), 1, "{message}");
    }
}

#[test]
#[cfg_attr(not(open_mpi), ignore = "needs Open MPI")]
fn a_killed_process_ends_the_others_with_5_and_the_last_checkpoint_loads() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    let args = usual(&["--json", "--comm", "mpi", "train.epochs=100000", "-o", &run]);
    let child = mpirun(&scratch, 3, &args);
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(format!("{run}/metrics.jsonl")).map_or(0, |text| text.lines().count()) < 9 {
        assert!(Instant::now() < deadline, "the run does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let victim = fs::read_to_string(scratch.path("pids/1")).unwrap();
    assert!(Command::new("kill").args(["-KILL", victim.trim()]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    let message = String::from_utf8(out.stderr).unwrap();
    let codes = codes(&scratch, 3);
    assert_eq!([codes[0].as_str(), &codes[2]], ["5", "5"], "{message}");
    for part in ["rank 1 was lost during", "in epoch", "checkpoints/step-", "--resume"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // Threads go on where processes were.
    let json = scratch.json(&["train", "-o", &run, "--resume", "--comm", "threads", "--ranks", "2", "train.epochs=12"]);
    assert!(json["loss"].as_array().unwrap().len() >= 12);
}

/// `graphweft launch` with the launcher that comes first in `PATH`, if that is not the system's.
fn launch(scratch: &Scratch, mpiexec: &str, args: &[&str]) -> Command {
    let folder = Path::new(mpiexec).parent().unwrap();
    let before = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths([folder.to_path_buf()].into_iter().chain(std::env::split_paths(&before))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphweft"));
    command.arg("launch").args(args).env("PATH", path).env("XDG_CACHE_HOME", scratch.path("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Processes of a run that `graphweft launch` started.
fn ranks_of(run: &str) -> Vec<String> {
    let is_rank = |process: &Path| {
        let words = fs::read(process.join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.first().is_some_and(|program| program.ends_with(b"graphweft"))
            && words.get(1).is_some_and(|verb| *verb == b"train")
            && words.contains(&run.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let ranks = processes.filter(|process| is_rank(process));
    ranks.map(|process| process.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

/// Waits until a run has that many epochs.
fn await_epochs(run: &str, epochs: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(format!("{run}/metrics.jsonl")).map_or(0, |text| text.lines().count()) < epochs {
        assert!(Instant::now() < deadline, "the run does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
}

/// Started by either MPI, a run finds what threads find, is saved when it is asked to stop, and goes on to the same
/// bytes when it is resumed, or when a process was killed and all were started again.
fn goes_on(mpiexec: &str) {
    let scratch = Scratch::new();
    let [expected, stopped, killed] = ["expected", "stopped", "killed"].map(|name| scratch.path(name));
    let epochs = |count: &'static str| usual(&[count, "--strategy", "halo"]);
    scratch.json(&[&epochs("train.epochs=600")[..], &["--ranks", "2", "-o", &expected]].concat());
    let model = |run: &str| fs::read(Path::new(run).join("model.safetensors")).unwrap();

    let args = [&["-n", "2"][..], &epochs("train.epochs=600"), &["-o", &stopped]].concat();
    let child = launch(&scratch, mpiexec, &args).spawn().unwrap();
    await_epochs(&stopped, 3);
    signal("-TERM", &child.id().to_string());
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(75), "{}", String::from_utf8_lossy(&out.stderr));
    let args = ["-n", "2", "train", "--resume", "-o", &stopped];
    let out = launch(&scratch, mpiexec, &args).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(model(&stopped) == model(&expected), "stopped and resumed");

    let args = [&["-n", "2", "--restarts", "2"][..], &epochs("train.epochs=600"), &["-o", &killed]].concat();
    let child = launch(&scratch, mpiexec, &args).spawn().unwrap();
    await_epochs(&killed, 5);
    signal("-KILL", &ranks_of(&killed)[1]);
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(model(&killed) == model(&expected), "killed and started again");
}

#[test]
#[cfg_attr(not(open_mpi), ignore = "needs Open MPI")]
fn open_mpi_launches_stops_and_restarts() {
    goes_on(OPEN_MPI);
}

#[test]
#[cfg_attr(not(mpich_wheel), ignore = "needs the Python package mpich")]
fn mpich_launches_stops_and_restarts() {
    goes_on(env!("GRAPHWEFT_TEST_MPICH_WHEEL"));
}

#[test]
#[cfg_attr(not(all(open_mpi, mpich)), ignore = "needs Open MPI and MPICH")]
fn a_library_of_another_launcher_is_noticed() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    let args = usual(&["--comm", "mpi", "-o", &run]);
    for (library, part) in [("libmpich.so.12", "knows of 1"), ("libc.so.6", "no MPI library")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graphweft"));
        command.args(&args).envs([("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "0")]);
        let out = command.env("GRAPHWEFT_MPI", library).output().unwrap();
        let message = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{message}");
        assert!(message.contains(part) && message.contains("GRAPHWEFT_MPI"), "{message}");
        assert!(!Path::new(&run).exists());
    }
}

#[test]
fn launch_says_what_it_needs() {
    let scratch = Scratch::new();
    let message = scratch.error(2, &["launch", "-n", "2", "--restarts", "1", "train"]);
    assert!(message.contains("needs a folder"), "{message}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphweft"));
    let out = command.args(["launch", "-n", "2", "train"]).env("PATH", "/nowhere").env_remove("VIRTUAL_ENV");
    let out = out.env_remove("CONDA_PREFIX").output().unwrap();
    let message = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && message.contains("pip install mpich"), "{message}");
}
