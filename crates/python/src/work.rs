//! Long work: on a thread of its own, so that the caller hears of epochs and can interrupt it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use graphweft::{Begin, Epoch, Error, Observer, Phase, Result, Scores, Stop, Unit};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::raised;

/// How soon Ctrl-C is noticed.
const LOOK: Duration = Duration::from_millis(100);
/// The process in which threads were started first; none before that.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// What the caller's thread hears.
enum Event {
    Begin(Begin),
    Epoch(Epoch),
    Note(String),
    /// Work of this name has so many units in all, and so many are done.
    Progress(String, u64, u64),
}

/// Sends what an observer is told to the caller's thread: Python is never called from elsewhere.
struct Telling(Mutex<Sender<Event>>);

impl Telling {
    fn tell(&self, event: Event) {
        // Nobody listens any more once the caller has given up.
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).send(event));
    }
}

impl Observer for Telling {
    fn begin(&self, begin: &Begin) {
        self.tell(Event::Begin(*begin));
    }

    fn epoch(&self, epoch: &Epoch) {
        self.tell(Event::Epoch(epoch.clone()));
    }

    fn note(&self, line: &str) {
        self.tell(Event::Note(line.into()));
    }

    fn phase(&self, name: &str, total: u64, _: Unit) -> Box<dyn Phase> {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::new(Working { name: name.into(), total, done: Mutex::new((0, 0)), sender: Mutex::new(sender) })
    }
}

/// A phase that tells of every hundredth of its work.
struct Working {
    name: String,
    total: u64,
    /// Units done, and those that were told.
    done: Mutex<(u64, u64)>,
    sender: Mutex<Sender<Event>>,
}

impl Phase for Working {
    fn add(&self, n: u64) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.0 += n;
        if done.0 >= done.1 + (self.total / 100).max(1) || done.0 == self.total {
            done.1 = done.0;
            let event = Event::Progress(self.name.clone(), self.total, done.0);
            drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).send(event));
        }
    }
}

/// Does `work` on another thread. `watch`, if it is not None, is called here with a dictionary for everything that
/// happens; what it raises ends the work, as Ctrl-C does, with a checkpoint where there is something to save.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    watch: Option<&Bound<'_, PyAny>>,
    stop: &Stop,
    work: impl FnOnce(Arc<dyn Observer>) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    check_process()?;
    let (events, heard) = mpsc::channel();
    let (done, result) = mpsc::channel();
    let result = Mutex::new(result);
    let observer: Arc<dyn Observer> = Arc::new(Telling(Mutex::new(events)));
    let thread = std::thread::Builder::new().name("graphweft".into()).spawn(move || {
        // A panic is a bug of ours: it is shown as an exception, and the process lives on.
        drop(done.send(catch_unwind(AssertUnwindSafe(|| work(observer)))));
    });
    thread.map_err(|e| PyRuntimeError::new_err(format!("no thread could be started: {e}")))?;
    let mut interrupted: Option<PyErr> = None;
    let outcome = loop {
        let next = py.detach(|| result.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK));
        // Events before the end are told before it.
        for event in heard.try_iter() {
            if interrupted.is_none() {
                interrupted = watch.and_then(|watch| tell(py, watch, &event).err());
            }
        }
        interrupted = interrupted.or_else(|| py.check_signals().err());
        if interrupted.is_some() {
            stop.request();
        }
        match next {
            Ok(outcome) => break outcome,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the work ended without a result"));
            }
        }
    };
    match (outcome, interrupted) {
        (Ok(Ok(value)), None) => Ok(value),
        (Ok(Err(error)), None) => Err(raised(py, &error)),
        (Ok(ended), Some(interruption)) => Err(with_checkpoint(py, interruption, ended.err().as_ref())),
        (Err(panic), _) => Err(raised(py, &panicked(&*panic))),
    }
}

/// Says what was saved, if something was, beside what interrupted the work.
fn with_checkpoint(py: Python<'_>, interruption: PyErr, error: Option<&Error>) -> PyErr {
    if let Some(path) = error.and_then(Error::checkpoint) {
        let note = format!("the run was saved in {}; train(..., resume=True) goes on", path.display());
        // Without the note the exception is still the right one.
        drop(interruption.value(py).call_method1("add_note", (note,)));
    }
    interruption
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text =
        panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref::<String>().cloned());
    Error::request(format!("internal error: {}", text.unwrap_or_default()), "report this as a bug")
}

/// Threads do not survive a fork: what was started before is missing in the child, which would wait for it for ever.
pub(crate) fn check_process() -> PyResult<()> {
    let own = std::process::id();
    match PROCESS.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != own => Err(PyRuntimeError::new_err(
            "graphweft was used before this process was forked, and its threads are not here: \
             start processes with multiprocessing.get_context(\"spawn\")",
        )),
        _ => Ok(()),
    }
}

fn tell(py: Python<'_>, watch: &Bound<'_, PyAny>, event: &Event) -> PyResult<()> {
    let told = PyDict::new(py);
    match event {
        Event::Begin(begin) => {
            told.set_item("event", "begin")?;
            told.set_item("seed", begin.seed)?;
            told.set_item("seeds", begin.seeds)?;
            told.set_item("from_epoch", begin.from)?;
            told.set_item("epochs", begin.epochs)?;
        }
        Event::Epoch(epoch) => {
            told.set_item("event", "epoch")?;
            told.set_item("epoch", epoch.number)?;
            told.set_item("loss", epoch.loss)?;
            told.set_item("lr", epoch.lr)?;
            told.set_item("gradient_norm", epoch.gradient_norm)?;
            for (key, scores) in [("scores", epoch.scores), ("best", epoch.best)] {
                told.set_item(key, scores.map(|scores| scores_of(py, &scores)).transpose()?)?;
            }
        }
        Event::Note(text) => {
            told.set_item("event", "note")?;
            told.set_item("text", text)?;
        }
        Event::Progress(name, total, done) => {
            told.set_item("event", "progress")?;
            told.set_item("name", name)?;
            told.set_item("total", *total)?;
            told.set_item("done", *done)?;
        }
    }
    watch.call1((told,)).map(|_| ())
}

fn scores_of<'py>(py: Python<'py>, scores: &Scores) -> PyResult<Bound<'py, PyDict>> {
    let of = PyDict::new(py);
    of.set_item("epoch", scores.epoch)?;
    of.set_item("train", scores.train)?;
    of.set_item("valid", scores.valid)?;
    of.set_item("test", scores.test)?;
    of.set_item("valid_loss", scores.valid_loss)?;
    Ok(of)
}

/// Panics on the thread that works, for the test which shows that an exception comes of it.
#[pyfunction(name = "_panic_for_test")]
#[allow(clippy::panic)] // That is its purpose.
pub(crate) fn panic_for_test(py: Python<'_>) -> PyResult<()> {
    run(py, None, &Stop::new(), |_| -> Result<()> { panic!("asked for by a test") })
}
