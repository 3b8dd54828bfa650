//! A study on a thread of its own, with Python let go. The thread that called waits: it looks for
//! signals (Ctrl-C ends the study), tells progress, and takes what a panic leaves behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dcd_study::StudyError;
use dcd_study::watch::{Counted, Watcher};
use pyo3::prelude::*;

use crate::errors::{BUG, error, of_study};

/// Between two looks.
const TICK: Duration = Duration::from_millis(50);

/// The last panic, for the exception that it becomes.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Panics of this library are kept, and not printed: they become exceptions.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let what = panic.payload_as_str().unwrap_or("unknown");
        let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
        // The first of several is the cause.
        locked(&PANIC).get_or_insert(format!("{what}{}", place.unwrap_or_default()));
    }));
}

fn bug(py: Python<'_>) -> PyErr {
    let what = locked(&PANIC).take().unwrap_or_else(|| "unknown".into());
    let text = format!("this is a bug in dcd: {what}");
    error(py, BUG, &text, Some("please report it, with what you did"))
}

/// The interpreter ends: whoever asks for it then is ended by it, in the middle of this library.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Threads that are asking for it, or have it.
static ASKING: AtomicUsize = AtomicUsize::new(0);
/// The interpreter does not wait longer for them.
const END_WAIT: Duration = Duration::from_secs(5);

/// A thread asks for the interpreter, until [`has_asked`]. Once that ends it stays here, for as
/// long as the process does.
fn asks(is_over: &AtomicBool) {
    ASKING.fetch_add(1, Ordering::SeqCst);
    if IS_ENDING.load(Ordering::SeqCst) {
        ASKING.fetch_sub(1, Ordering::SeqCst);
        is_over.store(true, Ordering::Relaxed);
        loop {
            std::thread::park();
        }
    }
}

fn has_asked() {
    ASKING.fetch_sub(1, Ordering::SeqCst);
}

/// Called by the interpreter before it ends (`atexit`): waits for those who are asking.
#[pyfunction]
pub fn _end(py: Python<'_>) {
    IS_ENDING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let started = std::time::Instant::now();
        while ASKING.load(Ordering::SeqCst) > 0 && started.elapsed() < END_WAIT {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// How far a study is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Told {
    /// Number of the stage, from 1.
    stage: u32,
    what: &'static str,
    is_bytes: bool,
    done: u64,
    total: u64,
}

#[derive(Default)]
struct Watched {
    told: Arc<Mutex<Told>>,
    is_over: Arc<AtomicBool>,
}

impl Watcher for Watched {
    fn begin(&mut self, what: &'static str, counted: Counted) {
        let mut told = locked(&self.told);
        let is_bytes = counted == Counted::Bytes;
        *told = Told { stage: told.stage + 1, what, is_bytes, done: 0, total: 0 };
    }

    fn update(&mut self, done: u64, total: u64) {
        let mut told = locked(&self.told);
        (told.done, told.total) = (done, total);
    }

    fn end(&mut self) {
        let mut told = locked(&self.told);
        told.done = told.total;
    }

    fn is_over(&self) -> Arc<AtomicBool> {
        self.is_over.clone()
    }
}

/// Runs a study. `progress` is called with stage, name, whether it counts bytes, done, total.
pub fn run<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    study: impl FnOnce(&mut dyn Watcher) -> Result<T, StudyError> + Send,
) -> PyResult<T> {
    let mut watched = Watched::default();
    let (told, is_over) = (watched.told.clone(), watched.is_over.clone());
    let look = |last: &mut Told| -> PyResult<()> {
        let now = *locked(&told);
        asks(&is_over);
        let looked = Python::attach(|py| -> PyResult<()> {
            py.check_signals()?;
            if let Some(progress) = progress.filter(|_| now != *last && now.stage > 0) {
                let Told { stage, what, is_bytes, done, total } = now;
                progress.call1(py, (stage, what, is_bytes, done, total))?;
            }
            Ok(())
        });
        has_asked();
        *last = now;
        looked
    };
    let (ended, stopped) = py.detach(|| {
        let over = std::thread::scope(|scope| {
            let (alive, over) = channel::<()>();
            let worker = std::thread::Builder::new().name("dcd".into()).spawn_scoped(scope, || {
                // Dropped when this thread ends, however it does.
                let _alive = alive;
                catch_unwind(AssertUnwindSafe(|| study(&mut watched)))
            });
            let worker = match worker {
                Ok(worker) => worker,
                Err(problem) => return (None, Err(problem.into())),
            };
            let (mut last, mut stopped) = (Told::default(), Ok(()));
            while over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if stopped.is_ok() {
                    stopped = look(&mut last);
                }
                if stopped.is_err() {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
            if stopped.is_ok() {
                stopped = look(&mut last);
            }
            (Some(worker.join()), stopped)
        });
        asks(&is_over);
        over
    });
    has_asked();
    match ended {
        // What somebody else raised goes first: a study that was ended has nothing of its own.
        Some(Ok(Ok(_) | Err(_))) | None if stopped.is_err() => Err(stopped.unwrap_err()),
        Some(Ok(Ok(Ok(value)))) => Ok(value),
        Some(Ok(Ok(Err(problem)))) => Err(of_study(py, &problem)),
        _ => Err(bug(py)),
    }
}

/// Runs what is short with Python held; a panic becomes an exception.
pub fn guarded<T>(py: Python<'_>, short: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(short)).unwrap_or_else(|_| Err(bug(py)))
}
