//! Long work: on a thread of its own, so that the caller hears of epochs and can interrupt it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use graphweft::{Begin, Epoch, Error, Observer, Phase, Result, Scores, Stop, Unit};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Raise, failed, raised};

/// How soon Ctrl-C is noticed.
const LOOK: Duration = Duration::from_millis(100);
/// How long work that nothing is lost with may take to end by itself.
const PATIENCE: Duration = Duration::from_millis(500);
/// The process in which threads were started first; none before that.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// What becomes of work that somebody interrupts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// It looks for the request itself, and saves what there is to save.
    Saves,
    /// It ends where it next tells how far it is: what is not finished is removed on the way.
    Ends,
    /// The same; and where that lasts, it is left to itself, as it writes nothing.
    Left,
}

/// What unwinds the thread of work that was interrupted; no panic, so nothing is printed.
struct Unwound;

/// What the caller's thread hears.
enum Event {
    Begin(Begin),
    Epoch(Epoch),
    Note(String),
    /// Work of this name has so many units in all, and so many are done.
    Progress(String, u64, u64),
}

/// Sends what an observer is told to the caller's thread: Python is never called from elsewhere.
struct Telling {
    sender: Mutex<Sender<Event>>,
    /// What ends the work, if it does not look for that itself.
    ends: Option<Stop>,
}

impl Telling {
    fn tell(&self, event: Event) {
        // Nobody listens any more once the caller has given up.
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).send(event));
    }
}

/// Leaves the work if somebody asked for that. Whatever it holds is released on the way: a rank of several that ends so
/// is seen by the others as lost.
fn end(asked: Option<&Stop>) {
    if asked.is_some_and(Stop::is_requested) && !std::thread::panicking() {
        resume_unwind(Box::new(Unwound));
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
        end(self.ends.as_ref());
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (done, sender) = (Mutex::new((0, 0)), Mutex::new(sender));
        Box::new(Working { name: name.into(), total, done, sender, ends: self.ends.clone() })
    }
}

/// A phase that tells of every hundredth of its work.
struct Working {
    name: String,
    total: u64,
    /// Units done, and those that were told.
    done: Mutex<(u64, u64)>,
    sender: Mutex<Sender<Event>>,
    ends: Option<Stop>,
}

impl Phase for Working {
    fn add(&self, n: u64) {
        end(self.ends.as_ref());
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
/// happens; what it raises ends the work, as Ctrl-C does.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    watch: Option<&Bound<'_, PyAny>>,
    interrupted: Interrupted,
    work: impl FnOnce(Arc<dyn Observer>) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    run_until(py, watch, interrupted, &Stop::new(), work)
}

/// The same, where `work` knows `stop`.
pub(crate) fn run_until<T: Send + 'static>(
    py: Python<'_>,
    watch: Option<&Bound<'_, PyAny>>,
    interrupted: Interrupted,
    stop: &Stop,
    work: impl FnOnce(Arc<dyn Observer>) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    check_process()?;
    let (events, heard) = mpsc::channel();
    let (done, result) = mpsc::channel();
    let result = Mutex::new(result);
    let ends = (interrupted != Interrupted::Saves).then(|| stop.clone());
    let observer: Arc<dyn Observer> = Arc::new(Telling { sender: Mutex::new(events), ends });
    let thread = std::thread::Builder::new().name("graphweft".into()).spawn(move || {
        // A panic is a bug of ours: it is shown as an exception, and the process lives on.
        drop(done.send(catch_unwind(AssertUnwindSafe(|| work(observer)))));
    });
    thread.map_err(|e| PyRuntimeError::new_err(format!("no thread could be started: {e}")))?;
    let mut raised_here: Option<(PyErr, Instant)> = None;
    let outcome = loop {
        let next = py.detach(|| result.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK));
        // Events before the end are told before it.
        for event in heard.try_iter() {
            if raised_here.is_none() {
                raised_here = watch.and_then(|watch| tell(py, watch, &event).err()).map(|e| (e, Instant::now()));
            }
        }
        raised_here = raised_here.or_else(|| py.check_signals().err().map(|e| (e, Instant::now())));
        if raised_here.is_some() {
            stop.request();
        }
        match next {
            Ok(outcome) => break outcome,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the work ended without a result"));
            }
        }
        if interrupted == Interrupted::Left
            && let Some((raised, _)) = raised_here.take_if(|(_, since)| since.elapsed() > PATIENCE)
        {
            return Err(raised);
        }
    };
    match (outcome, raised_here) {
        (Ok(Ok(value)), None) => Ok(value),
        (Ok(Err(error)), None) => Err(raised(py, &error)),
        (Ok(ended), Some((interruption, _))) => Err(with_checkpoint(py, interruption, ended.err().as_ref())),
        (Err(panic), Some((interruption, _))) if panic.is::<Unwound>() => Err(interruption),
        (Err(panic), _) => Err(bug(py, &*panic)),
    }
}

/// Does short work here, without the interpreter's lock.
pub(crate) fn here<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    check_process()?;
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(done) => done.raise(py),
        Err(panic) => Err(bug(py, &*panic)),
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

/// A panic as an exception of the class that stands for no exit code in particular: nobody else made a mistake.
fn bug(py: Python<'_>, panic: &(dyn Any + Send)) -> PyErr {
    let text =
        panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref::<String>().cloned());
    failed(py, &format!("internal error: {}", text.unwrap_or_default()), "report this as a bug")
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

/// Panics where work is done, on its own thread or "here", for the test which shows that an exception comes of it.
#[pyfunction(name = "_panic_for_test")]
#[allow(clippy::panic)] // That is its purpose.
pub(crate) fn panic_for_test(py: Python<'_>, place: &str) -> PyResult<()> {
    match place {
        "here" => here(py, || panic!("asked for by a test")),
        _ => run(py, None, Interrupted::Ends, |_| panic!("asked for by a test")),
    }
}
