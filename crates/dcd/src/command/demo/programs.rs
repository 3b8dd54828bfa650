//! Running programs for the demonstration: several at once, timed, until all have ended, or until
//! Ctrl-C, which ends them.
//!
//! They run in process groups of their own, so that Ctrl-C reaches only us, and what was begun is
//! ended in the right order.

use std::cell::Cell;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dcd_daemon::process::signals::Signals;
use rustix::process::{Pid, Signal, kill_process};

use super::guard;
use crate::error::demo::DemoError;

/// How often is looked for Ctrl-C.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// After so long something must be wrong.
const PATIENCE: Duration = Duration::from_secs(45 * 60);
/// The same when cleaning up.
const CLEANING_PATIENCE: Duration = Duration::from_secs(20);

/// Ctrl-C, as something to ask for.
pub struct Interrupt {
    signals: Signals,
    came: Cell<bool>,
}

impl Interrupt {
    /// Takes SIGINT, SIGTERM and SIGHUP. Before other threads are started.
    pub fn install() -> Result<Interrupt, DemoError> {
        let signals =
            Signals::install_with_hangup().map_err(DemoError::system("receive signals"))?;
        Ok(Interrupt { signals, came: Cell::new(false) })
    }

    /// An error once Ctrl-C has come.
    pub fn check(&self) -> Result<(), DemoError> {
        if self.signals.take().is_some() || guard::is_orphan() {
            self.came.set(true);
        }
        if self.came.get() { Err(DemoError::Interrupted) } else { Ok(()) }
    }

    /// Waits for a message, and for Ctrl-C.
    pub fn receive<T>(
        &self,
        receiver: &mpsc::Receiver<T>,
        what: &str,
        patience: Duration,
    ) -> Result<T, DemoError> {
        let started = Instant::now();
        loop {
            match receiver.recv_timeout(LOOK_INTERVAL) {
                Ok(message) => return Ok(message),
                Err(_) if started.elapsed() > patience => {
                    return Err(DemoError::TooLong { what: what.to_owned(), patience });
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => thread::sleep(LOOK_INTERVAL),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            self.check()?;
        }
    }

    /// Runs a program to its end.
    pub fn run(&self, command: Command) -> Result<(), DemoError> {
        self.run_all(vec![command]).map(drop)
    }

    /// Runs programs side by side until the last has ended; how long that took.
    pub fn run_all(&self, commands: Vec<Command>) -> Result<Duration, DemoError> {
        let (sender, receiver) = mpsc::channel();
        let mut running = Running(Vec::new());
        let started = Instant::now();
        for (number, mut command) in commands.into_iter().enumerate() {
            let name = words_of(&command);
            let child = spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()))?;
            running.0.push((number, Pid::from_child(&child)));
            let sender = sender.clone();
            thread::spawn(move || {
                let output = child.wait_with_output();
                let _ = sender.send((number, name, Instant::now(), output));
            });
        }
        let mut ended = started;
        while !running.0.is_empty() {
            let (number, name, at, output) = self.receive(&receiver, "a program", PATIENCE)?;
            running.0.retain(|(other, _)| *other != number);
            let output =
                output.map_err(|source| DemoError::Start { program: name.clone(), source })?;
            if !output.status.success() {
                return Err(failure(name, &output));
            }
            ended = ended.max(at);
        }
        Ok(ended - started)
    }
}

/// Starts a program that Ctrl-C does not reach.
pub fn spawn(command: &mut Command) -> Result<Child, DemoError> {
    command.stdin(Stdio::null()).process_group(0).spawn().map_err(|source| DemoError::Start {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })
}

/// Programs that have not ended; they end with this.
struct Running(Vec<(usize, Pid)>);

impl Drop for Running {
    fn drop(&mut self) {
        for (_, pid) in &self.0 {
            let _ = kill_process(*pid, Signal::KILL);
        }
    }
}

/// Runs a program when cleaning up: nobody hears of its failure. Whether it succeeded.
pub fn try_run(mut command: Command) -> bool {
    let Ok(mut child) = spawn(command.stdout(Stdio::null()).stderr(Stdio::null())) else {
        return false;
    };
    let started = Instant::now();
    while started.elapsed() < CLEANING_PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => thread::sleep(Duration::from_millis(5)),
            Err(_) => return false,
        }
    }
    false
}

/// A command with its arguments.
pub fn command<A: AsRef<std::ffi::OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

fn words_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn failure(program: String, output: &Output) -> DemoError {
    let text = String::from_utf8_lossy(&output.stderr);
    let words = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("").to_owned();
    DemoError::Program { program, status: output.status, words }
}

/// Says that a program is missing before anything is made.
pub fn check_programs(wanted: &[(&'static str, &'static str)]) -> Result<(), DemoError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where mount and mkfs are, also for a root whose PATH is a user's.
    let folders: Vec<_> = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into(), "/usr/bin".into(), "/bin".into()])
        .collect();
    for (program, package) in wanted {
        if !folders.iter().any(|folder| folder.join(program).exists()) {
            return Err(DemoError::ProgramMissing { program, package });
        }
    }
    Ok(())
}
