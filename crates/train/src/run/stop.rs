//! Being asked to stop: by SIGTERM, SIGINT, SIGUSR1, or SIGHUP, which is what is left of a terminal that was closed.
//!
//! A run that has something to save answers itself, after the epoch that it is in. Everywhere else there is nothing to
//! wait for: what is not finished is removed, and the process ends. So it does at a second signal, whatever it is
//! doing.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use graphweft_base::durable;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::{flag, low_level};

/// The exit code of whoever was asked to stop.
const STOPPED: i32 = 75;
/// Slurm sends SIGUSR1 where a job asked to be told before its time is up, and launchers of MPI hand it on.
const SIGNALS: [(i32, &str); 4] = [(SIGTERM, "SIGTERM"), (SIGINT, "SIGINT"), (SIGHUP, "SIGHUP"), (SIGUSR1, "SIGUSR1")];

/// Whether somebody asked the run to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requested: AtomicBool,
    /// How many will look whether it was.
    looking: AtomicUsize,
}

/// As long as this lives, a request is left to whoever has it.
#[derive(Debug)]
pub struct Looking(Arc<State>);

impl Stop {
    /// Listens for signals from now on. Those that the process was started to ignore, as by nohup, it goes on to
    /// ignore.
    ///
    /// Also, a file that becomes larger than it may is an error like that of a full disk, and not the end of the
    /// process.
    pub fn on_signals() -> io::Result<Self> {
        flag::register(SIGXFSZ, Arc::default())?;
        let stop = Self::default();
        let (mut told, tells) = UnixStream::pair()?;
        let mut heard = Vec::new();
        for (signal, name) in SIGNALS.into_iter().filter(|(signal, _)| !is_ignored(*signal)) {
            let came = Arc::new(AtomicBool::new(false));
            // In this order: whoever is woken up finds out by which.
            flag::register(signal, Arc::clone(&came))?;
            low_level::pipe::register(signal, tells.try_clone()?)?;
            heard.push((came, name));
        }
        let state = Arc::clone(&stop.0);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let mut byte = [0];
            while told.read_exact(&mut byte).is_ok() {
                let name = heard.iter().find(|(came, _)| came.swap(false, Ordering::SeqCst)).map(|(_, name)| *name);
                // Several that came at once are one.
                name.into_iter().for_each(|name| state.answer(name));
            }
        })?;
        Ok(stop)
    }

    /// Asks.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::SeqCst);
    }

    /// Whether it was asked.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::SeqCst)
    }

    /// From now on a request is looked for, and answered by whoever does so.
    pub fn look(&self) -> Looking {
        self.0.looking.fetch_add(1, Ordering::SeqCst);
        Looking(Arc::clone(&self.0))
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.looking.fetch_sub(1, Ordering::SeqCst);
    }
}

impl State {
    fn answer(&self, name: &str) {
        // Nothing useful can be done if stderr is gone, as after SIGHUP it may be.
        let is_first = !self.requested.swap(true, Ordering::SeqCst);
        if is_first && self.looking.load(Ordering::SeqCst) > 0 {
            let _ = writeln!(io::stderr(), "{name}: stopping after this epoch; once more to stop at once");
            return;
        }
        durable::remove_unfinished();
        let _ = writeln!(io::stderr(), "error: stopped by {name}; what was not finished is removed");
        low_level::exit(STOPPED);
    }
}

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_is_left_to_whoever_looks_for_it() {
        let stop = Stop::default();
        let looking = stop.look();
        assert!(!stop.is_requested());
        stop.0.answer("SIGTERM");
        assert!(stop.is_requested());
        drop(looking);
        assert_eq!(stop.0.looking.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_request_comes_from_any_thread() {
        let stop = Stop::default();
        let other = stop.clone();
        std::thread::spawn(move || other.request()).join().unwrap();
        assert!(stop.is_requested());
    }
}
