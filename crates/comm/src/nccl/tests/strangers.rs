//! Whoever is not of the run: turned away, told why if they know the secret, and of no effect.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::nccl::greeting::{self, Guest, Verdict};
use crate::nccl::meeting::{Timed, addresses_of};
use crate::nccl::secret::draw;

fn at(rank: usize, port: u16, secret: Option<Secret>) -> Rendezvous {
    Rendezvous { rank, ranks: 2, host: "127.0.0.1".into(), port, elsewhere: false, secret }
}

fn start(rendezvous: Rendezvous, body: impl Fn(&dyn Communicator) -> Result<()> + Sync) -> Result<()> {
    run(&Options { rendezvous, threads: 1, deadline: PATIENT }, |comm| body(&*comm))
}

/// What this process has in memory, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A guest who behaves, with this secret; what it is told.
fn greet(port: u16, secret: &Secret, rank: u32, ranks: u32) -> io::Result<Verdict> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    let mut line = Timed { stream, end: Instant::now() + PATIENT };
    greeting::call(&mut line, secret, draw().unwrap(), Guest { rank, ranks })
}

/// One of a thousand. Those that stay silent are kept open in `silent`.
fn bother(number: usize, port: u16, silent: &mut Vec<TcpStream>) -> io::Result<()> {
    let wrong = Secret::of_text("what others think that it could be", "a test").unwrap();
    let mut line = TcpStream::connect(("127.0.0.1", port))?;
    match number % 6 {
        0 => line.write_all(format!("GET /{number} HTTP/1.1\r\n\r\n").as_bytes())?,
        // Frames that claim to be very long.
        1 => line.write_all(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 127, 0, 0, 0])?,
        2 => silent.push(line),
        3 => assert_eq!(greet(port, &wrong, 1, 2)?, Verdict::Stranger),
        4 => assert_eq!(greet(port, &secret(), 0, 2)?, Verdict::Taken),
        _ => assert_eq!(greet(port, &secret(), 1, 3)?, Verdict::Ranks),
    }
    Ok(())
}

#[test]
fn a_thousand_strangers_disturb_nobody() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let (bothered, told) = (AtomicBool::new(false), AtomicUsize::new(0));
    let going_on = &|comm: &dyn Communicator| {
        for step in 0..200 {
            comm.set_step(step);
            talk(comm)?;
            // Nobody listens any more.
            assert!(comm.rank() == 1 || TcpStream::connect(("127.0.0.1", port)).is_err());
        }
        Ok(())
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| start(at(0, port, Some(secret())), going_on));
        // Until rank 0 is there itself.
        while greet(port, &secret(), 0, 2).map_or(true, |verdict| verdict != Verdict::Taken) {
            thread::sleep(Duration::from_millis(5));
        }
        let (before, mut silent) = (resident(), Vec::new());
        for number in 0..1000 {
            let done = bother(number, port, &mut silent);
            told.fetch_add(usize::from(done.is_ok()), Ordering::Relaxed);
        }
        assert!(resident() - before.min(resident()) < 16 << 20, "{} MiB more", (resident() - before) >> 20);
        bothered.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        let second = scope.spawn(|| start(at(1, port, Some(secret())), going_on));
        second.join().unwrap().unwrap();
        first.join().unwrap().unwrap();
        assert!(begun.elapsed() < PATIENT, "the second rank was let in late");
    });
    assert!(told.load(Ordering::Relaxed) > 900, "{told:?} were told");
}

#[test]
fn whoever_dribbles_is_given_up_in_time() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut dribbler = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) && dribbler.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let begun = Instant::now();
        let mut line = Timed { stream, end: begun + Duration::from_millis(100) };
        assert!(line.read_exact(&mut [0; 10_000]).is_err());
        over.store(true, Ordering::Relaxed);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    });
}

#[test]
fn processes_of_one_user_on_one_machine_find_their_secret() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    thread::scope(|scope| {
        // The early one waits for the secret to be there.
        let second = scope.spawn(|| start(at(1, port, None), talk));
        thread::sleep(Duration::from_millis(50));
        start(at(0, port, None), talk).unwrap();
        second.join().unwrap().unwrap();
    });
}

#[test]
fn ranks_with_different_secrets_are_told() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let other = Secret::of_text("what another run knows of itself", "a test").unwrap();
    thread::scope(|scope| {
        let options = Options { rendezvous: at(0, port, Some(secret())), threads: 1, deadline: Duration::from_secs(2) };
        let first = scope.spawn(move || run(&options, |comm| talk(&*comm)));
        let error = start(at(1, port, Some(other)), talk).unwrap_err().to_string();
        assert!(error.contains("another secret") && error.contains("GRAPHWEFT_SECRET"), "{error}");
        assert!(matches!(first.join().unwrap(), Err(Error::RankLost { rank: 1, .. })));
    });
}

#[test]
fn ranks_that_others_could_reach_need_a_secret() {
    let near = at(0, 4000, None);
    assert!(addresses_of(&near).is_ok());
    let problem = addresses_of(&Rendezvous { host: "192.0.2.1".into(), ..near.clone() }).unwrap_err().to_string();
    assert!(problem.contains("set GRAPHWEFT_SECRET"), "{problem}");
    let far = Rendezvous { host: "192.0.2.1".into(), secret: Some(secret()), elsewhere: true, ..near.clone() };
    assert!(addresses_of(&far).is_ok());
    let problem = addresses_of(&Rendezvous { elsewhere: true, ..near }).unwrap_err().to_string();
    assert!(problem.contains("MASTER_ADDR"), "{problem}");
}
