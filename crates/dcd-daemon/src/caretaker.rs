//! What a daemon that has given up its rights still needs of them, done by a second process that
//! has not: a small one that speaks to nobody else, and knows from the beginning what it may be
//! asked for.
//!
//! ```text
//! duties   said once, before the daemon gives up its rights: its sockets, its FUSE mount, how its loop device is made
//! orders   remove a socket, unmount, attach and detach the loop device, look who uses the disk, have their file systems synced
//! ```
//! Whoever has got hold of the daemon can have its own sockets removed and its own mount taken
//! away, which is his anyway.
//!
//! It does nothing by itself. When the daemon dies its orders end, and so does it: all stays as it
//! was for the next start.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::device::fuse_mount::{self, UnmountError};
use crate::device::loop_device::{self, LoopDevice, LoopError, StaleLoop};
use crate::process::signals::Signals;
use crate::process::users::{Users, look_for_daemon};

/// How it is started: a program that calls [`run`], and its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaretakerProgram {
    /// Which.
    pub program: PathBuf,
    /// With what.
    pub arguments: Vec<OsString>,
}

/// What it may be asked for.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Duties {
    pub(crate) sockets: Vec<PathBuf>,
    pub(crate) mount: Option<PathBuf>,
    pub(crate) loop_device: Option<LoopDuty>,
}

/// A loop device that is made of the FUSE file.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct LoopDuty {
    pub(crate) block_size: u32,
    pub(crate) read_only: bool,
    pub(crate) left: Vec<StaleLoop>,
}

#[derive(Serialize, Deserialize)]
enum Order {
    /// Not answered: whoever drops a socket may be the thread that others wait for.
    Remove(PathBuf),
    Unmount,
    UnmountLazily,
    Attach,
    Detach,
    Look {
        devices: Vec<PathBuf>,
    },
    Sync,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Done,
    Busy,
    /// Somebody else has done it.
    Gone,
    Device(PathBuf),
    Users(Users),
    Failed {
        words: String,
        hint: Option<String>,
    },
}

/// What it says when it knows its duties. Whatever comes before is not of it.
const GREETING: &str = "dcd caretaker: ready";

/// How long its end may take.
const END_PATIENCE: Duration = Duration::from_secs(5);

// The daemon's side.

/// The one of this process: rights are given up by processes, so there is one at most.
static CARETAKER: Mutex<Option<Arc<Caretaker>>> = Mutex::new(None);

struct Caretaker {
    orders: Mutex<ChildStdin>,
    answers: Mutex<BufReader<ChildStdout>>,
    child: Mutex<Child>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn present() -> Option<Arc<Caretaker>> {
    locked(&CARETAKER).clone()
}

/// Starts it, while that may be done.
pub(crate) fn start(program: &CaretakerProgram, duties: &Duties) -> io::Result<()> {
    let mut command = Command::new(&program.program);
    // What systemd spares at the very end by this mark it is to spare with us.
    if let Some(name) = std::env::args_os().next().filter(|name| name.as_bytes().starts_with(b"@"))
    {
        command.arg0(name);
    }
    let mut child =
        command.args(&program.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(mut orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut answers = BufReader::new(answers);
    send(&mut orders, duties)?;
    let mut line = String::new();
    while line.trim() != GREETING {
        line.clear();
        if answers.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let (orders, answers) = (Mutex::new(orders), Mutex::new(answers));
    let caretaker = Caretaker { orders, answers, child: Mutex::new(child) };
    *locked(&CARETAKER) = Some(Arc::new(caretaker));
    Ok(())
}

/// Lets it do what was ordered, and end. Nothing can be ordered any more.
pub(crate) fn finish() {
    let Some(caretaker) = locked(&CARETAKER).take() else { return };
    if let Ok(Caretaker { orders, child, .. }) = Arc::try_unwrap(caretaker) {
        drop(orders);
        // One that hangs with a disk of somebody else is left behind.
        let until = Instant::now() + END_PATIENCE;
        while matches!(locked(&child).try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn send(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    to.write_all(line.as_bytes())?;
    to.flush()
}

impl Caretaker {
    fn ask(&self, order: &Order) -> Answer {
        // Held from the order to the answer, so that nobody gets that of another.
        let mut answers = locked(&self.answers);
        let mut line = String::new();
        let asked = send(&mut *locked(&self.orders), order);
        let answer = asked
            .and_then(|()| answers.read_line(&mut line))
            .and_then(|_| serde_json::from_str(&line).map_err(io::Error::from));
        answer.unwrap_or_else(|error| Answer::Failed {
            words: format!("the process that does this for dcd has ended: {error}"),
            hint: None,
        })
    }
}

/// Has a socket of ours removed; whether there is somebody to do that.
pub(crate) fn remove(socket: &Path) -> bool {
    let Some(caretaker) = present() else { return false };
    send(&mut *locked(&caretaker.orders), &Order::Remove(socket.to_owned())).is_ok()
}

/// Has our mount taken away; `None`: there is nobody to do that.
pub(crate) fn unmount(lazily: bool) -> Option<Result<(), UnmountError>> {
    let order = if lazily { Order::UnmountLazily } else { Order::Unmount };
    Some(match present()?.ask(&order) {
        Answer::Busy => Err(UnmountError::System(Errno::BUSY)),
        Answer::Gone => Err(UnmountError::System(Errno::INVAL)),
        Answer::Failed { words, .. } => Err(UnmountError::Fusermount(words)),
        _ => Ok(()),
    })
}

/// Has the loop device made; `None`: there is nobody to do that.
pub(crate) fn attach() -> Option<Result<PathBuf, LoopError>> {
    Some(match present()?.ask(&Order::Attach) {
        Answer::Device(path) => Ok(path),
        Answer::Failed { words, hint } => Err(LoopError::Elsewhere { words, hint }),
        _ => Err(LoopError::NoneFree),
    })
}

/// Has it taken away.
pub(crate) fn detach() -> Option<Result<(), LoopError>> {
    Some(match present()?.ask(&Order::Detach) {
        Answer::Failed { words, hint } => Err(LoopError::Elsewhere { words, hint }),
        _ => Ok(()),
    })
}

/// Who uses these devices, and the FUSE mount.
pub(crate) fn look(devices: &[PathBuf]) -> Option<Users> {
    match present()?.ask(&Order::Look { devices: devices.to_vec() }) {
        Answer::Users(users) => Some(users),
        _ => None,
    }
}

/// Has the file systems written that were found last; whether there is somebody to do that.
pub(crate) fn sync() -> bool {
    present().is_some_and(|caretaker| matches!(caretaker.ask(&Order::Sync), Answer::Done))
}

// The other process.

/// A socket, as it was in the beginning.
struct Socket {
    path: PathBuf,
    device: u64,
    inode: u64,
}

struct Keeper {
    duties: Duties,
    sockets: Vec<Socket>,
    attached: Option<LoopDevice>,
    /// Where those who were found last have it mounted.
    mounts: Vec<PathBuf>,
}

/// Does what the daemon that has started this process orders, until that ends.
pub fn run() -> io::Result<()> {
    // What ends the daemon is not for us: it has to end in order first.
    let _signals = Signals::install_all()?;
    let mut lines = io::stdin().lines();
    let Some(first) = lines.next() else { return Ok(()) };
    let duties: Duties = serde_json::from_str(&first?)?;
    let sockets = duties.sockets.iter().filter_map(|path| {
        let found = std::fs::symlink_metadata(path).ok()?;
        let is_socket = found.file_type().is_socket();
        is_socket.then(|| Socket { path: path.clone(), device: found.dev(), inode: found.ino() })
    });
    let sockets = sockets.collect();
    let mut keeper = Keeper { duties, sockets, attached: None, mounts: Vec::new() };
    let mut out = io::stdout();
    out.write_all(format!("{GREETING}\n").as_bytes())?;
    out.flush()?;
    for line in lines {
        if let Some(answer) = keeper.obey(serde_json::from_str(&line?)?) {
            send(&mut out, &answer)?;
        }
    }
    Ok(())
}

impl Keeper {
    fn obey(&mut self, order: Order) -> Option<Answer> {
        Some(match order {
            Order::Remove(path) => {
                self.remove(&path);
                return None;
            }
            Order::Unmount => self.unmounted(fuse_mount::unmount_now),
            Order::UnmountLazily => self.unmounted(|directory| {
                fuse_mount::unmount_lazily(directory)
                    .map_err(|error| UnmountError::Fusermount(words_of(&error)))
            }),
            Order::Attach => self.attach(),
            Order::Detach => match self.attached.take().map(LoopDevice::detach) {
                Some(Err(error)) => failed(&error, error.hint()),
                _ => Answer::Done,
            },
            Order::Look { devices } => {
                let users = look_for_daemon(&devices, self.duties.mount.as_deref());
                self.mounts.clone_from(&users.mounts);
                Answer::Users(users)
            }
            Order::Sync => {
                let mounts = self.mounts.clone();
                // It takes as long as it takes; other orders come meanwhile.
                std::thread::spawn(move || Users { names: Vec::new(), mounts }.sync());
                Answer::Done
            }
        })
    }

    fn remove(&self, path: &Path) {
        let Some(socket) = self.sockets.iter().find(|socket| socket.path == path) else { return };
        // Somebody may have replaced it meanwhile; theirs stays.
        if std::fs::symlink_metadata(path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (socket.device, socket.inode))
        {
            let _ = std::fs::remove_file(path);
        }
    }

    fn unmounted(&self, unmount: impl Fn(&Path) -> Result<(), UnmountError>) -> Answer {
        let Some(directory) = &self.duties.mount else { return Answer::Gone };
        match unmount(directory) {
            Ok(()) => Answer::Done,
            Err(UnmountError::System(Errno::BUSY)) => Answer::Busy,
            Err(UnmountError::System(Errno::INVAL)) => Answer::Gone,
            Err(error) => {
                let error = error.at(directory.clone());
                failed(&error, error.hint())
            }
        }
    }

    fn attach(&mut self) -> Answer {
        let (Some(directory), Some(duty)) = (&self.duties.mount, &self.duties.loop_device) else {
            return Answer::Gone;
        };
        let file = directory.join(fuse_mount::FILE_NAME);
        match loop_device::attach(&file, duty.block_size, duty.read_only, &duty.left) {
            Ok(device) => {
                let path = device.path().to_owned();
                self.attached = Some(device);
                Answer::Device(path)
            }
            Err(error) => failed(&error, error.hint()),
        }
    }
}

fn failed(error: &dyn std::error::Error, hint: Option<String>) -> Answer {
    Answer::Failed { words: words_of(error), hint }
}

/// With its causes: they are lost on the way.
fn words_of(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words += &format!(": {error}");
        cause = error.source();
    }
    words
}
