//! That nothing of a demonstration stays, however it ends: one process works, this one waits for
//! it. What kills the first leaves its daemon, mounts and loop devices behind, and the second takes
//! them away; the first notices when the second is gone, and ends as with Ctrl-C.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use dcd_daemon::process::signals::Signals;
use rustix::process::{Pid, Signal, getppid, kill_process};

use super::arguments::DemoArguments;
use super::folders::Folders;
use crate::error::demo::DemoError;

/// Who works has the process of the guard in its environment.
const GUARD: &str = "DCD_DEMO_GUARD";
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Whether this is the process that works; the guard ends with the exit code of that one, and
/// returns only errors.
pub fn is_worker() -> bool {
    std::env::var_os(GUARD).is_some()
}

/// Whether the guard of this process has gone.
pub fn is_orphan() -> bool {
    let guard = std::env::var(GUARD).ok().and_then(|text| text.parse::<i32>().ok());
    guard.is_some_and(|guard| getppid().map(Pid::as_raw_nonzero).is_none_or(|it| it.get() != guard))
}

/// Runs the demonstration in a process of its own.
pub fn run(arguments: &DemoArguments) -> Result<std::convert::Infallible, DemoError> {
    let signals = Signals::install_with_hangup().map_err(DemoError::system("receive signals"))?;
    let program = std::env::current_exe().map_err(DemoError::system("find dcd itself"))?;
    let mut worker = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(GUARD, std::process::id().to_string())
        .stdin(Stdio::null())
        .spawn()
        .map_err(DemoError::system("start the demonstration"))?;
    loop {
        if signals.take().is_some() {
            let _ = kill_process(Pid::from_child(&worker), Signal::TERM);
        }
        if let Some(status) = worker.try_wait().map_err(DemoError::system("wait for it"))? {
            if let Some(code) = status.code() {
                std::process::exit(code);
            }
            clear(arguments, worker.id())?;
            return Err(DemoError::Killed);
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// What a worker that was killed has left.
fn clear(arguments: &DemoArguments, worker: u32) -> Result<(), DemoError> {
    let folders = Folders::of(arguments, worker)?;
    kill_users_of(&folders);
    drop(folders);
    Ok(())
}

/// Who guards the demonstration that a process belongs to.
fn guard_of(process: &Path) -> Option<u32> {
    let variables = fs::read(process.join("environ")).ok()?;
    let variables = String::from_utf8_lossy(&variables).into_owned();
    let own = variables.split('\0').find_map(|it| it.strip_prefix(GUARD)?.strip_prefix('='));
    own?.parse().ok()
}

/// Its daemon, and programs that work in its folders.
fn kill_users_of(folders: &Folders) {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    let names = folders.names();
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|text| text.parse().ok()) else {
            continue;
        };
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let works_there = String::from_utf8_lossy(&words).split('\0').any(|word| {
            Path::new(word.rsplit(['=', ':']).next().unwrap_or(word))
                .components()
                .any(|part| names.iter().any(|name| part.as_os_str() == name.as_str()))
        });
        // Somebody may look at a file there.
        let is_ours = guard_of(&process.path()) == Some(std::process::id());
        if let Some(pid) = Pid::from_raw(pid).filter(|_| works_there && is_ours) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    // Until the kernel has let go of what they had open.
    thread::sleep(LOOK_INTERVAL * 4);
}
