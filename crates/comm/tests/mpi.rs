//! Ranks as processes of MPI: the same work with the same bits as threads, and the right rank named whatever breaks.
//!
//! Each test starts this program again under a launcher; every rank leaves what it saw in a file. All of it holds for
//! Open MPI and for MPICH, as the system has it and as Python's package index has it, with the same program.
#![allow(clippy::unwrap_used, clippy::panic)]

mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use graphweft_comm::{Checked, Communicator, Error, Fault, Faulty, Message, Metered, Result, Type, View, mpi, threads};
use work::{OPS, label, work};

/// How long a rank hangs where one does, and how long the others wait then.
const HANG: Duration = Duration::from_secs(4);
const DEADLINE: Duration = Duration::from_secs(1);

/// Ranks, the one that is killed, and at which of its operations.
const KILLS: [(usize, usize, u64); 3] = [(2, 1, 5), (4, 0, 11), (4, 2, 40)];

/// What each rank of a case left, and after what time.
type Seen = Vec<Option<(String, Duration)>>;

/// What a launcher does with the others when one is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Others {
    End,
    Live,
}

/// A program that starts processes.
#[derive(Clone, Copy)]
struct Launcher {
    name: &'static str,
    program: &'static str,
    /// How it is told to let the others live.
    to_let_live: &'static [&'static str],
}

/// Runs a case on some ranks.
fn mpirun(launcher: Launcher, case: &str, ranks: usize, others: Others) -> Seen {
    let name = format!("{}-{case}-{ranks}-{others:?}", launcher.name);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new(launcher.program);
    command
        .args(if others == Others::Live { launcher.to_let_live } else { &[] })
        .args(["-n", &ranks.to_string()])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "as_a_rank", "--ignored", "--nocapture"])
        .env("GRAPHWEFT_MPI_CASE", case)
        .env("GRAPHWEFT_MPI_FOLDER", &folder)
        // As options these would be OpenMPI's own.
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        .envs([("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("OMPI_MCA_hwloc_base_binding_policy", "none")])
        .env("OMPI_MCA_orte_enable_recovery", if others == Others::Live { "1" } else { "0" })
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let (start, clock) = (Instant::now(), SystemTime::now());
    let mut child = command.spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{case} on {ranks} ranks takes too long");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let read = |rank: usize| {
        let path = folder.join(rank.to_string());
        let written = fs::metadata(&path).ok()?.modified().unwrap();
        Some((fs::read_to_string(path).unwrap(), written.duration_since(clock).unwrap_or_default()))
    };
    (0..ranks).map(read).collect()
}

#[test]
#[ignore = "a rank of the other tests, started by mpirun"]
fn as_a_rank() {
    let (Ok(case), Ok(folder)) = (std::env::var("GRAPHWEFT_MPI_CASE"), std::env::var("GRAPHWEFT_MPI_FOLDER")) else {
        return;
    };
    // As programs that save their work do: `mpirun` asks all to end when one was killed, and waits before it kills
    // them.
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::default()).unwrap();
    // By this one MPICH tells the others that one was lost.
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::default()).unwrap();
    // Before MPI starts: a rank may be lost before this one knows who it is.
    let variables = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
    let rank = variables.iter().find_map(|name| std::env::var(name).ok()).unwrap();
    let deadline = if case.starts_with("hang") { DEADLINE } else { Duration::from_secs(20) };
    let outcome = std::panic::catch_unwind(|| mpi::run(mpi::Options { threads: 1, deadline }, |comm| act(&case, comm)));
    let text = match &outcome {
        Ok(Ok(text)) => text.clone(),
        Ok(Err(e)) => format!("{e:?}"),
        Err(_) => "panicked".into(),
    };
    fs::write(Path::new(&folder).join(rank), text).unwrap();
    std::process::exit(if matches!(outcome, Ok(Ok(_))) { 0 } else { 5 });
}

/// `kill:1:7` is: rank 1 is killed at its seventh operation.
fn act(case: &str, comm: Rc<dyn Communicator>) -> Result<String> {
    let parts: Vec<&str> = case.split(':').collect();
    let number = |k: usize| parts[k].parse::<u64>().unwrap();
    let fault = match parts[0] {
        "work" => return work(&comm, 3).map(|bits| digest(&bits)),
        "checked" => {
            let comm: Rc<dyn Communicator> = Rc::new(Checked::new(Rc::new(Metered::new(comm))));
            return work(&comm, 3).map(|bits| digest(&bits));
        }
        "fail" => {
            if comm.rank() == 1 {
                return Err(Error::Argument { op: "own", problem: "of rank 1".into() });
            }
            return work(&comm, 2).map(|_| String::new());
        }
        "unequal" => return unequal(&*comm).map(|()| String::new()),
        "differ" => return unequal(&Checked::new(comm)).map(|()| String::new()),
        "panic" => Fault::Panic { rank: number(1) as usize, at: number(2) },
        "kill" => Fault::Kill { rank: number(1) as usize, at: number(2) },
        "hang" => Fault::Hang { rank: number(1) as usize, at: number(2), time: HANG },
        "delay" => Fault::Delay(Duration::from_millis(3)),
        other => panic!("no case {other}"),
    };
    let comm: Rc<dyn Communicator> = Rc::new(Faulty::new(comm, &[fault], 7));
    work(&comm, if parts[0] == "delay" { 3 } else { 20 }).map(|bits| digest(&bits))
}

/// Rank 0 sends more than rank 1 expects.
fn unequal(comm: &dyn Communicator) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let own = vec![0u8; if rank == 0 { 3000 } else { 2999 }];
    let mut got = vec![0u8; if rank == 0 { own.len() - 1 } else { 2999 }];
    let send = Message { peer: (rank + 1) % size, view: View::host(&own, Type::Bytes) };
    let receive = Message { peer: (rank + size - 1) % size, view: View::host_mut(&mut got, Type::Bytes) };
    // SAFETY: the vectors outlive the exchange.
    unsafe { comm.post(label("shift"), &[send], &[receive])?.wait() }
}

fn digest(bits: &[u64]) -> String {
    let hash = bits.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ b).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{} numbers {hash:x}", bits.len())
}

fn processes_have_the_bits_of_threads(launcher: Launcher) {
    for ranks in [1, 2, 4] {
        let options = threads::Options { ranks, threads: 1, deadline: Duration::from_secs(30) };
        let expected = threads::run(options, |comm| work(&comm, 3)).unwrap();
        let expected: Vec<String> = expected.iter().map(|bits| digest(bits)).collect();
        for case in ["work", "checked", "delay"] {
            let seen = mpirun(launcher, case, ranks, Others::End);
            let found: Vec<String> = seen.into_iter().flatten().map(|(text, _)| text).collect();
            assert_eq!(found, expected, "{case} on {ranks} ranks");
        }
    }
}

/// All ranks but `victim` saw in time that it was lost, and in one of their operations.
fn all_name(victim: usize, case: &str, limit: Duration, seen: &Seen) {
    for (rank, left) in seen.iter().enumerate().filter(|(rank, _)| *rank != victim) {
        let Some((text, time)) = left else { panic!("{case}: rank {rank} saw nothing") };
        assert!(text.starts_with(&format!("RankLost {{ rank: {victim}, op: ")), "{case}: rank {rank} saw {text}");
        let op = text.split('"').nth(1).unwrap();
        assert!(OPS.contains(&op) || ["setup", "split"].contains(&op), "{case}: rank {rank} saw {text}");
        assert!(*time < limit, "{case}: rank {rank} saw it after {time:?}");
    }
}

/// MPICH may kill the others at once, whatever it is told: those that could tell have named the right one.
fn a_killed_process_ends_all_at_once(launcher: Launcher) {
    for (ranks, victim, at) in KILLS {
        let (case, start) = (format!("kill:{victim}:{at}"), Instant::now());
        let seen = mpirun(launcher, &case, ranks, Others::Live);
        assert!(seen[victim].is_none() && start.elapsed() < Duration::from_secs(10), "{case}: {seen:?}");
        let lost = format!("RankLost {{ rank: {victim}, ");
        assert!(seen.iter().flatten().all(|(text, _)| text.starts_with(&lost)), "{case}: {seen:?}");
    }
}

fn a_process_that_hangs_is_named_by_all_others_within_the_deadline(launcher: Launcher) {
    // At the same time: all they do is wait.
    std::thread::scope(|scope| {
        for (ranks, victim, at) in [(2, 0, 3), (4, 3, 12)] {
            let case = format!("hang:{victim}:{at}");
            scope.spawn(move || all_name(victim, &case, HANG, &mpirun(launcher, &case, ranks, Others::Live)));
        }
    });
}

fn a_process_that_panics_or_fails_is_named_by_all_others_at_once(launcher: Launcher) {
    for (ranks, victim, at) in [(2, 0, 3), (4, 3, 12)] {
        let case = format!("panic:{victim}:{at}");
        all_name(victim, &case, Duration::from_secs(10), &mpirun(launcher, &case, ranks, Others::Live));
    }
    let seen = mpirun(launcher, "fail", 4, Others::Live);
    all_name(1, "fail", Duration::from_secs(10), &seen);
    assert!(seen[1].as_ref().is_some_and(|(text, _)| text.contains("of rank 1")), "{:?}", seen[1]);
}

fn calls_that_differ_are_told(launcher: Launcher) {
    let text = |seen: Seen| seen.into_iter().nth(1).flatten().map_or_else(String::new, |(text, _)| text);
    let unequal = text(mpirun(launcher, "unequal", 2, Others::Live));
    assert!(unequal.contains("rank 0 sends more bytes to rank 1, which expects 2999"), "{unequal}");
    let differ = text(mpirun(launcher, "differ", 4, Others::Live));
    let sides = ["3000 bytes in 1 messages to rank 1", "2999 bytes in 1 from it"];
    assert!(sides.iter().all(|side| differ.contains(side)), "{differ}");
}

/// All of it under one launcher.
macro_rules! under {
    ($name:ident, $program:literal, $to_let_live:expr, $missing:literal) => {
        mod $name {
            use super::Launcher;

            const LAUNCHER: Launcher =
                Launcher { name: stringify!($name), program: env!($program), to_let_live: $to_let_live };

            under!(
                tests $name, $missing, processes_have_the_bits_of_threads, a_killed_process_ends_all_at_once,
                a_process_that_hangs_is_named_by_all_others_within_the_deadline,
                a_process_that_panics_or_fails_is_named_by_all_others_at_once, calls_that_differ_are_told
            );
        }
    };
    (tests $launcher:ident, $missing:literal, $($test:ident),*) => {
        $(
            #[test]
            #[cfg_attr(not($launcher), ignore = $missing)]
            fn $test() {
                super::$test(LAUNCHER);
            }
        )*
    };
}

#[test]
#[cfg_attr(not(open_mpi), ignore = "needs Open MPI")]
fn a_killed_process_is_named_by_all_others_at_once() {
    let launcher = Launcher { name: "open_mpi", program: env!("GRAPHWEFT_TEST_OPEN_MPI"), to_let_live: &[] };
    for (ranks, victim, at) in KILLS {
        let case = format!("kill:{victim}:{at}");
        let seen = mpirun(launcher, &case, ranks, Others::Live);
        assert!(seen[victim].is_none());
        all_name(victim, &case, Duration::from_secs(10), &seen);
        // Left to itself, `mpirun` kills the others a second later: on a busy machine some may be too late to tell.
        let seen: Seen = mpirun(launcher, &case, ranks, Others::End).into_iter().filter(Option::is_some).collect();
        assert!(!seen.is_empty(), "{case}: nobody told");
        let lost = format!("RankLost {{ rank: {victim}, ");
        assert!(seen.iter().flatten().all(|(text, _)| text.starts_with(&lost)), "{case}: {seen:?}");
    }
}

under!(open_mpi, "GRAPHWEFT_TEST_OPEN_MPI", &[], "needs Open MPI");
under!(mpich, "GRAPHWEFT_TEST_MPICH", &["-disable-auto-cleanup"], "needs MPICH");
under!(mpich_wheel, "GRAPHWEFT_TEST_MPICH_WHEEL", &["-disable-auto-cleanup"], "needs the Python package mpich");
