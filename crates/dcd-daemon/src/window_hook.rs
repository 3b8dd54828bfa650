//! The hook of ordered shipping: a command of the user that keeps the data-disk as it is at the end
//! of a window, by a snapshot or a copy.
//!
//! The daemon gives up the right to run programs, so a second process does that, with a command
//! that it was told once and before: whoever has got hold of the daemon can have a snapshot made,
//! and nothing else.
//!
//! ```text
//! daemon -> keeper   what to run, how long at most; then the number of each window
//! keeper -> daemon   how it went: kept, or why not
//! ```
//! A data-disk in an object store has no hook: the end of a window is a commit of the store, which
//! a thread asks for (`device/network/store.rs`).
//!
//! The keeper and the hook hold the data-disk open, so that its locks last: when the daemon dies,
//! the keeper kills the hook, and no other daemon begins to write before that has gone.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::device::network::StoreName;
use crate::device::network::lease::Lease;
use crate::device::network::store::{Committer, lease_of};
use crate::device::network::store_report::StoreReport;
use crate::process::signals::{Signals, receive_in_child};

/// Most of what a hook says that is told.
const WORDS_MAX: u64 = 1024;
/// How often it is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long what it says may take to come, when it has ended.
const WORDS_PATIENCE: Duration = Duration::from_millis(200);
/// How long the end of the keeper may take.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// What it says when it knows what to do.
const GREETING: &str = "dcd window keeper: ready";

/// What is run at the end of each window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowHookOptions {
    /// For `/bin/sh -c`.
    pub command: OsString,
    /// It is killed after so long.
    pub timeout: Duration,
    /// A program that calls [`run`], ...
    pub keeper: PathBuf,
    /// ... and its arguments.
    pub keeper_arguments: Vec<OsString>,
}

/// What the keeper is told once.
#[derive(Serialize, Deserialize)]
struct Duty {
    command: OsString,
    timeout: Duration,
    data_disk: String,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    window: u64,
    /// Why it is not kept.
    problem: Option<String>,
    /// It was ended by what ends us, too: that is no failure of the hook.
    is_stopped: bool,
}

/// How the hook does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HookNews {
    /// What the last one said that has failed, if none has ended well since.
    pub problem: Option<String>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    to.write_all(line.as_bytes())?;
    to.flush()
}

// ---- the daemon's side ------------------------------------------------------------------------

/// The keeper, as the daemon has it. Dropped, it ends, and with it a hook that runs.
pub(crate) struct WindowHook {
    how: How,
    news: Arc<Mutex<HookNews>>,
    /// The window that it was asked for last.
    asked: Arc<AtomicU64>,
}

enum How {
    Keeper { orders: Option<ChildStdin>, child: Child, is_ending: Arc<AtomicBool> },
    Store { committer: Committer, lease: Option<Arc<Lease>> },
}

/// What there is to be said of a keeper that has ended.
const HAS_ENDED: &str = "the process that runs it has ended: start dcd again";

impl WindowHook {
    /// Starts the keeper, while that may be done. `ended` is told, on another thread, of each
    /// window whether it is kept.
    pub(crate) fn start(
        options: &WindowHookOptions,
        data_disk: &str,
        opened: impl AsFd,
        ended: impl Fn(u64, bool) + Send + 'static,
    ) -> io::Result<WindowHook> {
        // For the keeper, and for whatever it starts.
        let inherited: OwnedFd = rustix::io::dup(opened)?;
        rustix::io::fcntl_setfd(&inherited, FdFlags::empty())?;
        let mut child = Command::new(&options.keeper)
            .args(&options.keeper_arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        drop(inherited);
        let (Some(mut orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let WindowHookOptions { command, timeout, .. } = options.clone();
        send(&mut orders, &Duty { command, timeout, data_disk: data_disk.to_owned() })?;
        let mut answers = BufReader::new(answers);
        let mut line = String::new();
        while line.trim() != GREETING {
            line.clear();
            if answers.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let news = Arc::new(Mutex::new(HookNews::default()));
        let told = news.clone();
        let asked = Arc::new(AtomicU64::new(0));
        let last_asked = asked.clone();
        let is_ending = Arc::new(AtomicBool::new(false));
        let ends = is_ending.clone();
        std::thread::Builder::new().name("window-hook".into()).spawn(move || {
            for line in answers.lines().map_while(Result::ok) {
                let Ok(answer) = serde_json::from_str(&line) else { continue };
                let Answer { window, problem, is_stopped } = answer;
                let is_kept = problem.is_none();
                if !is_kept && (is_stopped || ends.load(Ordering::Acquire)) {
                    ended(window, false);
                    continue;
                }
                let before = std::mem::replace(&mut locked(&told).problem, problem.clone());
                match (before, problem) {
                    (before, Some(problem)) if before.as_ref() != Some(&problem) => eprintln!(
                        "dcd: the window hook has failed: {problem}. Nothing is written to the \
                         data-disk until it ends well; it is tried again"
                    ),
                    (Some(_), None) => eprintln!("dcd: the window hook has ended well again"),
                    _ => {}
                }
                ended(window, is_kept);
            }
            // It has ended, perhaps with a hook that ran. Whoever waits for that asks again, in
            // vain, and then it is told.
            ended(last_asked.load(Ordering::Relaxed), false);
        })?;
        Ok(WindowHook { how: How::Keeper { orders: Some(orders), child, is_ending }, news, asked })
    }

    /// The same for a data-disk that can do that itself.
    pub(crate) fn of_store(
        name: StoreName,
        ended: impl Fn(u64, bool) + Send + 'static,
    ) -> io::Result<WindowHook> {
        let news = Arc::new(Mutex::new(HookNews::default()));
        let told = news.clone();
        let lease = lease_of(&name);
        let committer = Committer::start(name, move |window, done| {
            // Told once by whoever finds that out.
            let is_lost = done.as_ref().is_err_and(|failure| failure.is_lost);
            let problem = done.err().map(|failure| failure.problem);
            let is_kept = problem.is_none();
            let before = std::mem::replace(&mut locked(&told).problem, problem.clone());
            match (before, problem) {
                (_, Some(_)) if is_lost => {}
                (before, Some(problem)) if before.as_ref() != Some(&problem) => eprintln!(
                    "dcd: a window cannot be committed: {problem}. Nothing is written to the store \
                     until it can; it is tried again"
                ),
                (Some(_), None) => eprintln!("dcd: windows are committed again"),
                _ => {}
            }
            ended(window, is_kept);
        })?;
        Ok(WindowHook { how: How::Store { committer, lease }, news, asked: Arc::default() })
    }

    /// Whether the data-disk is in an object store.
    pub(crate) fn is_of_store(&self) -> bool {
        matches!(self.how, How::Store { .. })
    }

    /// The lease on that.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.how {
            How::Store { lease, .. } => lease.as_deref(),
            How::Keeper { .. } => None,
        }
    }

    /// How the store stands, if there is one.
    pub(crate) fn store_report(&self) -> Option<StoreReport> {
        self.lease().map(Lease::report)
    }

    /// Nothing is written to the store any more, though it belongs to the same cache.
    pub(crate) fn rest(&self) {
        if let How::Store { committer, .. } = &self.how {
            committer.rest();
        }
    }

    /// The data-disk stands on its own from now on. Whoever is to know that is told.
    pub(crate) fn release(&self) {
        let How::Store { committer, .. } = &self.how else { return };
        if let Err(failure) = committer.release() {
            eprintln!(
                "dcd: the store does not know that its cache is detached: {failure}. Serve it with the same cache-disk and \
                 detach it once more; `dcd create --take-over` takes it without, but gives up what `dcd store info` calls \
                 staged"
            );
        }
    }

    /// Has a window kept.
    ///
    /// # Errors
    /// If the keeper has ended: no window is kept any more.
    pub(crate) fn keep(&mut self, window: u64) -> io::Result<()> {
        self.asked.store(window, Ordering::Relaxed);
        let sent = match &mut self.how {
            How::Keeper { orders, .. } => {
                send(orders.as_mut().expect("there until it is dropped"), &window)
            }
            How::Store { committer, .. } => committer.commit(window),
        };
        if sent.is_err() {
            let before = locked(&self.news).problem.replace(HAS_ENDED.to_owned());
            if before.as_deref() != Some(HAS_ENDED) {
                eprintln!("dcd: the window hook cannot be run: {HAS_ENDED}");
            }
        }
        sent
    }

    /// How it does.
    pub(crate) fn news(&self) -> HookNews {
        let problem = locked(&self.news).problem.clone();
        let of_lease = || self.lease().and_then(Lease::problem);
        HookNews { problem: problem.or_else(of_lease) }
    }
}

impl Drop for WindowHook {
    fn drop(&mut self) {
        let How::Keeper { orders, child, is_ending } = &mut self.how else { return };
        // What is killed for that has not failed.
        is_ending.store(true, Ordering::Release);
        *orders = None;
        let until = Instant::now() + END_PATIENCE;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

// ---- the keeper's side ------------------------------------------------------------------------

/// The process group of the hook that runs.
type Running = Arc<Mutex<Option<Pid>>>;

/// Runs the hook for a daemon, until that ends.
///
/// # Errors
/// If what it is told makes no sense.
pub fn run() -> io::Result<()> {
    // What ends the daemon is not for us: it has to end in order first.
    let signals = Signals::install_all()?;
    let ends = signals.as_fd().try_clone_to_owned()?;
    let mut lines = io::stdin().lines();
    let Some(first) = lines.next() else { return Ok(()) };
    let duty: Duty = serde_json::from_str(&first?)?;
    let mut out = io::stdout();
    out.write_all(format!("{GREETING}\n").as_bytes())?;
    out.flush()?;
    let running = Running::default();
    let of_worker = running.clone();
    let (windows, wanted) = std::sync::mpsc::channel::<u64>();
    let worker = std::thread::spawn(move || {
        for window in wanted {
            let end = keep(&duty, window, &of_worker).err();
            let is_stopped = end.as_ref().is_some_and(|end| end.by_sigterm) && has_come(&ends);
            let problem = end.map(|end| end.why);
            if send(&mut io::stdout(), &Answer { window, problem, is_stopped }).is_err() {
                return;
            }
        }
    });
    for line in lines {
        let window = serde_json::from_str(&line?)?;
        let _ = windows.send(window);
    }
    // The daemon has gone: what copies its data-disk must not go on while another one writes there.
    drop(windows);
    while !worker.is_finished() {
        if let Some(group) = *locked(&running) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Whether a signal that ends others has come to us, as one does to all processes of a service that
/// is stopped, in no order. It is left where it is.
fn has_come(signals: &OwnedFd) -> bool {
    let patience = Timespec { tv_sec: 0, tv_nsec: WORDS_PATIENCE.subsec_nanos().into() };
    poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&patience)).is_ok_and(|ready| ready > 0)
}

/// Why a hook has not ended well.
struct Failed {
    why: String,
    /// SIGTERM has ended it, not we.
    by_sigterm: bool,
}

impl From<String> for Failed {
    fn from(why: String) -> Failed {
        Failed { why, by_sigterm: false }
    }
}

/// Runs it once.
fn keep(duty: &Duty, window: u64, running: &Running) -> Result<(), Failed> {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(&duty.command)
        .env("DCD_WINDOW", window.to_string())
        .env("DCD_DATA_DISK", &duty.data_disk)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    // The keeper ignores what ends others; the hook is a program like any other.
    receive_in_child(&mut command);
    let group = {
        // Nobody looks for its group before it has one.
        let mut running = locked(running);
        let child = command.spawn().map_err(|error| format!("/bin/sh does not start: {error}"))?;
        let group = Pid::from_child(&child);
        *running = Some(group);
        (child, group)
    };
    let (mut child, group) = group;
    let said = child.stderr.take().map(words_of);
    let until = Instant::now() + duty.timeout;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() >= until => {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                break Err(format!("it took longer than {:?}", duty.timeout));
            }
            Ok(None) => std::thread::sleep(LOOK_EVERY),
            Err(error) => break Err(format!("it cannot be waited for: {error}")),
        }
    };
    *locked(running) = None;
    // A shell says so of a program that it has run.
    let is_term = |status: &ExitStatus| {
        status.signal() == Some(libc::SIGTERM) || status.code() == Some(128 + libc::SIGTERM)
    };
    let by_sigterm = ended.as_ref().is_ok_and(is_term);
    let why = match ended {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status_words(status),
        Err(why) => why,
    };
    let words = said.and_then(|said| said.recv_timeout(WORDS_PATIENCE).ok()).unwrap_or_default();
    let why = match words.trim() {
        "" => why,
        words => format!("{why}: {words}"),
    };
    Err(Failed { why, by_sigterm })
}

fn status_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "it has not ended well".to_owned(),
    }
}

/// What it says at the end, on a thread of its own: whoever writes much must not wait for us, and
/// whoever keeps the pipe must not keep us.
fn words_of(from: impl Read + Send + 'static) -> std::sync::mpsc::Receiver<String> {
    let (told, words) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut first = Vec::new();
        let mut from = from;
        let _ = from.by_ref().take(WORDS_MAX).read_to_end(&mut first);
        let _ = io::copy(&mut from, &mut io::sink());
        let _ = told.send(String::from_utf8_lossy(&first).into_owned());
    });
    words
}
