//! `dcd serve` of several caches: each is served by a process of its own, the same program, so that
//! what ends one of them (a kill, no memory left, a mistake of ours) is nothing to the others. This
//! one starts them, says whose message is whose, passes signals on, and tells how they have ended.
//!
//! ```text
//!   1. signals are received from here on: none can end us before those whom we have started
//!   2. each is started; one that cannot be counts as failed, and the others go on
//!   3. ready is told once each has said so, or has ended
//!   4. SIGTERM, SIGINT, SIGUSR1 and SIGHUP go to all that run. A second one, too: they end at once
//!   5. when the last has ended, so do we
//! killed anywhere: those that run get SIGTERM of the kernel, and end in order
//! ```
//!
//! They are in process groups of their own: what a terminal sends to ours reaches them through us,
//! and once. It holds no disk, no socket and nothing that counts.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open};
use serde_json::Value;

use crate::process::log;
use crate::process::service_manager::Notifier;
use crate::process::signals::{Signal, Signals};
use crate::process::supervisor::supervise;
use crate::serve::error::ServeError;

/// What is served, and by which program.
pub struct SeveralOptions {
    /// The program.
    pub program: PathBuf,
    /// Each cache.
    pub caches: Vec<CacheProcess>,
    /// No messages but errors.
    pub quiet: bool,
    /// Each of them says what it says on stdout, and what is wrong, in JSON.
    pub json: bool,
}

/// Something for stdout.
pub enum Said<'a> {
    /// A cache has said this.
    Line {
        /// Which.
        cache: &'a str,
        /// A line without its end.
        line: &'a str,
    },
    /// Each is ready or has ended.
    Ready {
        /// Those that run.
        running: Vec<&'a str>,
        /// Those that do not.
        ended: Vec<&'a str>,
    },
}

/// How the process of one cache is started.
pub struct CacheProcess {
    /// What it is called, before its messages.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// How a person serves it again.
    pub again: String,
}

/// A cache that has not ended in order.
pub struct FailedCache {
    /// Its name.
    pub name: String,
    /// How it has ended, in words.
    pub how: String,
    /// Its exit code, if it had one.
    pub code: Option<u8>,
}

/// What the service manager said to us, and to nobody whom we start.
const OF_SERVICE_MANAGER: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];

/// A line that is longer is told in parts. As much as a pipe holds is read at a time.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Serves them until the last has ended, and tells which did not end in order. `tell` gets what is
/// for stdout.
pub fn serve_several(
    options: SeveralOptions,
    tell: &mut dyn FnMut(Said<'_>),
) -> Result<Vec<FailedCache>, ServeError> {
    let signals = Signals::install_all().map_err(ServeError::system("receive signals"))?;
    let mut notifier = Notifier::from_environment();
    notifier.status(&format!("starting {} caches", options.caches.len()));
    let caches = options.caches.into_iter();
    let mut caches: Vec<Served> =
        caches.map(|cache| Served::start(&options.program, cache, options.json)).collect();
    let (mut is_told, mut is_stopping) = (false, false);
    let mut ended = 0;
    loop {
        for cache in &mut caches {
            cache.relay(tell);
            cache.look_for_end(tell);
        }
        let running = caches.iter().filter(|cache| cache.process.is_some()).count();
        if caches.len() - running > ended {
            ended = caches.len() - running;
            tell_ended(&mut caches, running, is_stopping, options.quiet);
            if is_told && !is_stopping {
                notifier.status(&status(&caches));
            }
        }
        let is_begun = caches.iter().all(|cache| cache.is_ready || cache.process.is_none());
        if is_begun && !is_told && !is_stopping && running > 0 {
            is_told = true;
            notifier.ready(&status(&caches));
            tell(ready(&caches));
        }
        if running == 0 {
            return Ok(caches.into_iter().filter_map(Served::failed).collect());
        }
        notifier.turn();
        wait(&signals, &caches, notifier.watchdog_due());
        while let Some(signal) = signals.take() {
            if signal != Signal::ReadSettings && !is_stopping {
                is_stopping = true;
                notifier.stopping();
            }
            caches.iter().for_each(|cache| cache.pass_on(signal));
        }
    }
}

/// Until one of them says something or ends, a signal comes, or it is time.
fn wait(signals: &Signals, caches: &[Served], due: Option<Instant>) {
    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let watched = caches.iter().filter_map(|cache| cache.process.as_ref());
    let mut events = vec![PollFd::new(signals, PollFlags::IN)];
    for process in watched {
        events.extend(process.watched().map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)));
    }
    // One that is cut off by a signal is begun again.
    let _ = poll(&mut events, left.as_ref());
}

/// For people and scripts: which could not be started they have to know.
fn ready(caches: &[Served]) -> Said<'_> {
    let ended = caches.iter().filter(|cache| cache.process.is_none());
    let ended = ended.map(|cache| cache.name.as_str()).collect();
    Said::Ready { running: running(caches).collect(), ended }
}

/// For the service manager.
fn status(caches: &[Served]) -> String {
    let names: Vec<&str> = running(caches).collect();
    let ended = caches.iter().filter(|cache| cache.process.is_none());
    let ended: Vec<&str> = ended.map(|cache| cache.name.as_str()).collect();
    match ended.is_empty() {
        true => format!("serves {}", names.join(", ")),
        false => format!("serves {}; ended: {}", names.join(", "), ended.join(", ")),
    }
}

fn running(caches: &[Served]) -> impl Iterator<Item = &str> {
    caches.iter().filter(|cache| cache.process.is_some()).map(|cache| cache.name.as_str())
}

/// Says of each that has ended since how it has, and what becomes of the others.
fn tell_ended(caches: &mut [Served], running: usize, is_stopping: bool, quiet: bool) {
    let others = match running {
        _ if is_stopping => "",
        0 => "; no other is left",
        _ => "; the others go on",
    };
    for cache in caches {
        let Some(end) = cache.end.as_ref().filter(|_| !cache.end_is_told) else { continue };
        cache.end_is_told = true;
        let name = &cache.name;
        match end.failure() {
            Some(how) if is_stopping => eprintln!("dcd: {name} {how}"),
            Some(how) => {
                eprintln!("dcd: {name} {how}{others}. To serve it again: {}", cache.again);
            }
            None if quiet || is_stopping => {}
            None => eprintln!("dcd: {name} has ended in order{others}"),
        }
    }
}

/// A cache, and the process that serves it.
struct Served {
    name: String,
    again: String,
    json: bool,
    process: Option<Process>,
    /// It has said so.
    is_ready: bool,
    end: Option<End>,
    end_is_told: bool,
}

/// How a process has ended.
enum End {
    NotStarted(io::Error),
    Unknown(io::Error),
    Status(ExitStatus),
}

impl End {
    /// In words, if it has not ended in order.
    fn failure(&self) -> Option<String> {
        match self {
            End::NotStarted(error) => Some(format!("cannot be started: {error}")),
            End::Unknown(error) => Some(format!("cannot be waited for: {error}")),
            End::Status(status) if status.success() => None,
            End::Status(status) => Some(match (status.code(), status.signal()) {
                (Some(code), _) => format!("has ended with exit code {code}"),
                (None, Some(signal)) => format!("was killed by signal {signal}"),
                (None, None) => format!("has ended: {status}"),
            }),
        }
    }

    fn code(&self) -> Option<u8> {
        match self {
            End::NotStarted(_) | End::Unknown(_) => None,
            End::Status(status) => status.code().and_then(|code| u8::try_from(code).ok()),
        }
    }
}

/// A process that runs.
struct Process {
    child: Child,
    /// Can be read when it has ended.
    end: OwnedFd,
    stdout: Lines,
    stderr: Lines,
}

impl Process {
    fn start(program: &Path, arguments: &[OsString]) -> io::Result<Process> {
        let mut command = Command::new(program);
        // What systemd spares at the very end by this mark it is to spare with us.
        let name = std::env::args_os().next();
        if let Some(name) = name.filter(|name| name.as_bytes().starts_with(b"@")) {
            command.arg0(name);
        }
        for name in OF_SERVICE_MANAGER {
            command.env_remove(name);
        }
        if log::is_to_journal() {
            command.env(log::OF_JOURNAL, "1");
        }
        supervise(&mut command);
        command.args(arguments).process_group(0).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        match Process::watch(&mut child) {
            Ok((end, stdout, stderr)) => Ok(Process { child, end, stdout, stderr }),
            // One that nobody hears must not serve.
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn watch(child: &mut Child) -> io::Result<(OwnedFd, Lines, Lines)> {
        let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let stdout = Lines::of(child.stdout.take().map(OwnedFd::from))?;
        let stderr = Lines::of(child.stderr.take().map(OwnedFd::from))?;
        Ok((end, stdout, stderr))
    }

    fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pipes = [&self.stdout, &self.stderr].into_iter().filter_map(|it| it.pipe.as_ref());
        pipes.chain([&self.end]).map(AsFd::as_fd)
    }
}

impl Served {
    fn start(program: &Path, cache: CacheProcess, json: bool) -> Served {
        let (process, end) = match Process::start(program, &cache.arguments) {
            Ok(process) => (Some(process), None),
            Err(error) => (None, Some(End::NotStarted(error))),
        };
        let CacheProcess { name, again, .. } = cache;
        Served { name, again, json, process, is_ready: false, end, end_is_told: false }
    }

    /// Passes on what it has said.
    fn relay(&mut self, tell: &mut dyn FnMut(Said<'_>)) {
        let Some(process) = &mut self.process else { return };
        let (cache, json) = (&self.name, self.json);
        process.stderr.take(&mut |line| complain(cache, line, json));
        process.stdout.take(&mut |line| {
            self.is_ready |= is_ready(line, json);
            tell(Said::Line { cache, line });
        });
    }

    /// Whether it has ended, and how. Its end is looked for behind its pipes: another process that
    /// it has started may hold them open.
    fn look_for_end(&mut self, tell: &mut dyn FnMut(Said<'_>)) {
        let Some(process) = &mut self.process else { return };
        let end = match process.child.try_wait() {
            Ok(None) => return,
            Ok(Some(status)) => End::Status(status),
            Err(error) => End::Unknown(error),
        };
        // What it said last.
        self.relay(tell);
        if let Some(mut process) = self.process.take() {
            let (cache, json) = (&self.name, self.json);
            process.stderr.take_rest(&mut |line| complain(cache, line, json));
            process.stdout.take_rest(&mut |line| tell(Said::Line { cache, line }));
        }
        self.end = Some(end);
    }

    fn pass_on(&self, signal: Signal) {
        let signal = match signal {
            Signal::Stop => rustix::process::Signal::TERM,
            Signal::Restart => rustix::process::Signal::USR1,
            Signal::ReadSettings => rustix::process::Signal::HUP,
        };
        if let Some(process) = &self.process {
            // It has not been waited for, so its number is nobody else's.
            let _ = kill_process(Pid::from_child(&process.child), signal);
        }
    }

    fn failed(self) -> Option<FailedCache> {
        let end = self.end?;
        let (how, code) = (end.failure()?, end.code());
        Some(FailedCache { name: self.name, how, code })
    }
}

/// Whether a cache says by this that it can be used.
fn is_ready(line: &str, json: bool) -> bool {
    match json {
        true => serde_json::from_str(line).is_ok_and(|said: Value| said["state"] == "ready"),
        false => line.starts_with("ready "),
    }
}

/// Tells on stderr what a cache has said there. An error in JSON stays an object.
fn complain(cache: &str, line: &str, json: bool) {
    match serde_json::from_str(line) {
        Ok(Value::Object(mut object)) if json => {
            object.insert("cache".into(), cache.into());
            eprintln!("{}", Value::Object(object));
        }
        _ => eprintln!("{cache}: {line}"),
    }
}

/// What comes out of a pipe, line by line.
struct Lines {
    /// `None`: nothing more comes.
    pipe: Option<OwnedFd>,
    /// A line without its end.
    begun: Vec<u8>,
}

impl Lines {
    fn of(pipe: Option<OwnedFd>) -> io::Result<Lines> {
        pipe.as_ref().map_or(Ok(()), |pipe| rustix::io::ioctl_fionbio(pipe, true))?;
        Ok(Lines { pipe, begun: Vec::new() })
    }

    /// The lines that are there, as many as a pipe holds at most: the others want to be heard, too.
    fn take(&mut self, each: &mut dyn FnMut(&str)) {
        let mut bytes = [0; 4096];
        let mut taken = 0;
        while let Some(pipe) = self.pipe.as_ref().filter(|_| taken < LINE_BYTES_MAX) {
            match rustix::io::read(pipe, &mut bytes) {
                Ok(0) => self.pipe = None,
                Ok(read) => {
                    taken += read;
                    self.add(&bytes[..read], each);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    fn add(&mut self, mut bytes: &[u8], each: &mut dyn FnMut(&str)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            each(&String::from_utf8_lossy(&std::mem::take(&mut self.begun)));
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() >= LINE_BYTES_MAX {
            self.take_rest(each);
        }
    }

    fn take_rest(&mut self, each: &mut dyn FnMut(&str)) {
        if !self.begun.is_empty() {
            each(&String::from_utf8_lossy(&std::mem::take(&mut self.begun)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(parts: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines { pipe: None, begun: Vec::new() };
        let mut found = Vec::new();
        for part in parts {
            lines.add(part, &mut |line| found.push(line.to_owned()));
        }
        lines.take_rest(&mut |line| found.push(format!("rest {line}")));
        found
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        assert_eq!(lines(&[b"re", b"ady a\nb\n", b"\nc"]), ["ready a", "b", "", "rest c"]);
        assert_eq!(lines(&[b"\xff\n"]), ["\u{fffd}"]);
        assert!(lines(&[]).is_empty());
        // One without an end is told all the same.
        let long = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(lines(&[&long, b"y\n"]).len(), 2);
    }

    #[test]
    fn ends_are_told_as_they_were() {
        let status = |raw| End::Status(ExitStatus::from_raw(raw));
        assert_eq!(status(0).failure(), None);
        assert_eq!(status(5 << 8).failure().unwrap(), "has ended with exit code 5");
        assert_eq!((status(5 << 8).code(), status(9).code()), (Some(5), None));
        assert_eq!(status(9).failure().unwrap(), "was killed by signal 9");
    }
}
