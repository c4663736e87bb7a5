//! `--comm nccl` with processes that are told who they are by their environment, and with threads of one. Without a GPU
//! in every machine these compute on the CPU, so that NCCL itself has nothing to do; everything else is as with GPUs.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::program::{Scratch, small, taken};

/// The same on the CPU, with what a test of processes needs.
fn usual<'a>(more: &[&'a str]) -> Vec<&'a str> {
    small(&[&["--device", "cpu", "run.checkpoint_every=2", "parallel.deadline=20"], more].concat())
}

/// Starts the program once per rank, as `torchrun` would.
fn start(scratch: &Scratch, ranks: usize, args: &[&str]) -> Vec<Child> {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let one = |rank: usize| {
        Command::new(env!("CARGO_BIN_EXE_graphweft"))
            .args(args)
            .args(["--comm", "nccl", "--json"])
            .env("XDG_CACHE_HOME", scratch.path("cache"))
            .envs([("RANK", rank.to_string()), ("WORLD_SIZE", ranks.to_string()), ("MASTER_PORT", port.to_string())])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    (0..ranks).map(one).collect()
}

fn finish(processes: Vec<Child>) -> Vec<Output> {
    processes.into_iter().map(|p| p.wait_with_output().unwrap()).collect()
}

fn message(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn ranks_that_nccl_connects_find_what_threads_find() {
    let scratch = Scratch::new();
    for (ranks, strategy) in [(2, "halo"), (3, "ring"), (2, "heads"), (4, "grid:2x2")] {
        let [threads, processes, inside] = ["threads", "processes", "inside"].map(|name| scratch.path(name));
        for run in [&threads, &processes, &inside] {
            let _ = fs::remove_dir_all(run);
        }
        let common = usual(&["train.epochs=4", "--strategy", strategy]);
        let count = ranks.to_string();
        let expected = scratch.json(&[&common[..], &["--ranks", &count, "-o", &threads]].concat());
        let one = scratch.json(&[&common[..], &["--comm", "nccl", "--ranks", &count, "-o", &inside]].concat());
        let ended = finish(start(&scratch, ranks, &[&common[..], &["-o", &processes]].concat()));
        assert!(ended.iter().all(|out| out.status.success()), "{:?}", ended.iter().map(message).collect::<Vec<_>>());
        assert!(ended[1..].iter().all(|out| out.stdout.is_empty()), "one rank speaks");
        let found: serde_json::Value = serde_json::from_slice(&ended[0].stdout).unwrap();
        for key in ["loss", "valid", "test", "ranks", "strategy", "bytes_sent_per_epoch", "peak_bytes"] {
            assert_eq!(found[key], expected[key], "{key} of {strategy} on {ranks}");
            assert_eq!(one[key], expected[key], "{key} of {strategy} on {ranks} in one process");
        }
        for file in ["model.safetensors", "predictions.npy", "metrics.jsonl", "plan.json"] {
            let read = |run: &str| crate::program::without_times(&Path::new(run).join(file));
            assert!(read(&threads) == read(&processes), "{file} of {strategy} on {ranks}");
            assert!(read(&threads) == read(&inside), "{file} of {strategy} on {ranks} in one process");
        }
    }
}

#[test]
fn a_killed_process_ends_the_others_with_5_at_once() {
    let scratch = Scratch::new();
    for victim in [0, 1] {
        let run = scratch.path(&format!("run-{victim}"));
        let mut processes = start(&scratch, 3, &usual(&["train.epochs=100000", "--strategy", "halo", "-o", &run]));
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(format!("{run}/metrics.jsonl")).map_or(0, |text| text.lines().count()) < 5 {
            assert!(Instant::now() < deadline, "the run does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        processes[victim].kill().unwrap();
        let killed = Instant::now();
        for (rank, out) in finish(processes).iter().enumerate().filter(|(rank, _)| *rank != victim) {
            assert_eq!(out.status.code(), Some(5), "rank {rank}: {}", message(out));
            assert!(message(out).contains(&format!("rank {victim} was lost during")), "rank {rank}: {}", message(out));
        }
        assert!(killed.elapsed() < Duration::from_secs(10), "nobody waits for the deadline");
    }
}

#[test]
fn a_refusal_is_said_once_and_ends_all() {
    let scratch = Scratch::new();
    let run = taken(&scratch);
    let ended = finish(start(&scratch, 3, &usual(&["-o", &run])));
    assert!(
        ended.iter().all(|out| out.status.code() == Some(2)),
        "{:?}",
        ended.iter().map(message).collect::<Vec<_>>()
    );
    assert_eq!(ended.iter().filter(|out| message(out).contains("exists already")).count(), 1);
}

#[test]
fn one_process_is_told_how_many_ranks_it_has() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    let refused = scratch.error(2, &usual(&["--comm", "nccl", "-o", &run]));
    assert!(refused.contains("RANK and WORLD_SIZE") && refused.contains("--ranks"), "{refused}");
    // A shell within a job is the only process of a launcher.
    let asked =
        usual(&["train.epochs=1", "--strategy", "halo", "--comm", "nccl", "--ranks", "2", "--json", "-o", &run]);
    let told = [("RANK", "0"), ("WORLD_SIZE", "1")];
    let out = Command::new(env!("CARGO_BIN_EXE_graphweft")).args(asked).envs(told).output().unwrap();
    assert!(out.status.success(), "{}", message(&out));
    let found: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(found["ranks"], 2);
}
