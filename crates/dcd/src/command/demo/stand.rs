//! The test stand: a slow disk with a file system on it, served with or without dcd, mounted and
//! unmounted. Both ways go through the same FUSE file and loop device, so only the cache differs.
//!
//! However a run ends, the stand takes away what it made: it kills its daemon first, so that
//! nothing waits for a slow disk, then the mounts and loop devices go.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dcd_daemon::control::client::{ControlClient, ControlError};
use dcd_daemon::device::device_spec::{DeviceSpec, SlowTimes};
use dcd_daemon::event_loop::request_counts::RequestCounts;
use dcd_daemon::report::status_report::StatusReport;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::folders::Folders;
use super::programs::{Interrupt, command, spawn, try_run};
use crate::error::demo::DemoError;

/// Size of the slow disk.
pub const SLOW_DISK_BYTES: u64 = 1 << 30;
/// Size of the cache.
pub const CACHE_SIZE: &str = "256M";
/// How long a daemon may take to start or end.
const DAEMON_PATIENCE: Duration = Duration::from_secs(120);

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskKind {
    /// The slow disk as it is.
    Raw,
    /// The same behind dcd.
    Dcd,
}

impl DiskKind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            DiskKind::Raw => "the slow disk",
            DiskKind::Dcd => "dcd",
        }
    }
}

/// How the file system is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MountKind {
    /// Data and metadata synchronous, as UFS had its metadata.
    Sync,
    /// As usual, with a syncfs at the end.
    Default,
}

impl MountKind {
    /// For people and mount.
    pub fn options(self) -> &'static str {
        match self {
            MountKind::Sync => "sync,dirsync",
            MountKind::Default => "defaults",
        }
    }
}

/// A served slow disk.
pub struct Stand<'a> {
    folders: &'a Folders,
    interrupt: &'a Interrupt,
    kind: DiskKind,
    times: SlowTimes,
    daemon: Option<Daemon>,
}

struct Daemon {
    child: Child,
    device: PathBuf,
    /// The whole ready line.
    ready: String,
}

impl<'a> Stand<'a> {
    /// Makes a new slow disk with an empty file system, and serves it.
    pub fn new(
        folders: &'a Folders,
        interrupt: &'a Interrupt,
        kind: DiskKind,
        times: SlowTimes,
    ) -> Result<Stand<'a>, DemoError> {
        let image = folders.slow_disk();
        remove_if_there(&image)?;
        remove_if_there(&folders.cache_disk())?;
        File::create(&image)
            .and_then(|file| file.set_len(SLOW_DISK_BYTES))
            .map_err(DemoError::file("create", &image))?;
        // On the file itself: the file system is there before dcd comes, and is not timed.
        let no_later = "lazy_itable_init=0,lazy_journal_init=0";
        let mut mkfs = command("mkfs.ext4", ["-q", "-F", "-E", no_later]);
        mkfs.arg(&image);
        interrupt.run(mkfs)?;
        let mut stand = Stand { folders, interrupt, kind, times, daemon: None };
        if kind == DiskKind::Dcd {
            let mut create = stand.dcd("create")?;
            create.arg("--cache-disk").arg(folders.cache_disk());
            create.args(["--cache-size", CACHE_SIZE, "--fill", "--data-disk"]).arg(&image);
            interrupt.run(create)?;
        }
        stand.serve()?;
        Ok(stand)
    }

    /// Starts the daemon: the same line each time. Gives the ready line.
    pub fn serve(&mut self) -> Result<&str, DemoError> {
        let disk = DeviceSpec::Slow { path: self.folders.slow_disk(), times: self.times };
        let mut serve = match self.kind {
            DiskKind::Raw => {
                let mut serve = self.dcd("slow-disk")?;
                serve.arg("--disk").arg(disk.to_string());
                serve
            }
            DiskKind::Dcd => {
                let mut serve = self.dcd("serve")?;
                serve.arg("--cache-disk").arg(self.folders.cache_disk());
                serve.arg("--data-disk").arg(disk.to_string());
                serve.arg("--memory-directory").arg(self.folders.memory());
                serve
            }
        };
        serve.arg("--fuse").arg(self.folders.fuse()).arg("--loop");
        serve.arg("--control").arg(self.folders.control()).arg("--quiet");
        let log = self.folders.log();
        let errors = File::create(&log).map_err(DemoError::file("create", &log))?;
        let mut child = spawn(serve.stdout(Stdio::piped()).stderr(errors))?;
        let first_line = first_line_of(&mut child);
        // From here on the daemon is ended with the stand.
        let daemon =
            self.daemon.insert(Daemon { child, device: PathBuf::new(), ready: String::new() });
        daemon.ready = self.interrupt.receive(&first_line, "starting dcd", DAEMON_PATIENCE)?;
        let device = daemon.ready.split_whitespace().find_map(|word| word.strip_prefix("loop="));
        match device {
            Some(device) if daemon.ready.starts_with("ready") => daemon.device = device.into(),
            _ => {
                return Err(DemoError::NotReady { what: self.kind.name(), words: last_line(&log) });
            }
        }
        Ok(&daemon.ready)
    }

    /// Mounts the file system.
    pub fn mount(&self, mount: MountKind) -> Result<(), DemoError> {
        let mut words = command("mount", ["-t", "ext4", "-o", mount.options()]);
        words.arg(self.device()).arg(self.folders.mount_point());
        self.interrupt.run(words)
    }

    /// Unmounts it. What was cached is forgotten.
    pub fn unmount(&self) -> Result<(), DemoError> {
        self.interrupt.run(command("umount", [self.folders.mount_point()]))
    }

    /// The loop device.
    pub fn device(&self) -> &Path {
        self.daemon.as_ref().map_or(Path::new(""), |daemon| &daemon.device)
    }

    /// Requests that the slow disk has been given; only without dcd.
    pub fn requests(&self) -> Result<Option<RequestCounts>, DemoError> {
        if self.kind == DiskKind::Dcd {
            return Ok(None);
        }
        let path = self.folders.control();
        let answer =
            ControlClient::connect(&path)?.request(dcd_protocol::Command::Requests, &mut |_| {})?;
        let counts = RequestCounts::deserialize(&answer["requests"]);
        counts
            .map(Some)
            .map_err(|_| ControlError::Answer { path, found: answer.to_string() }.into())
    }

    /// How dcd does; only with dcd.
    pub fn status(&self) -> Result<Option<StatusReport>, DemoError> {
        match self.kind {
            DiskKind::Raw => Ok(None),
            DiskKind::Dcd => Ok(Some(ControlClient::connect(&self.folders.control())?.status()?)),
        }
    }

    /// Ends the daemon in order. Nothing may be mounted.
    pub fn stop(mut self) -> Result<(), DemoError> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let _ = kill_process(Pid::from_child(&daemon.child), Signal::TERM);
        let started = Instant::now();
        loop {
            let ended = daemon.child.try_wait().map_err(DemoError::system("wait for dcd"))?;
            match ended {
                Some(status) if status.success() => break,
                Some(status) => {
                    let (program, words) =
                        (self.kind.name().to_owned(), last_line(&self.folders.log()));
                    return Err(DemoError::Program { program, status, words });
                }
                None if started.elapsed() > DAEMON_PATIENCE => {
                    let what = self.kind.name();
                    return Err(DemoError::DoesNotEnd { what, patience: DAEMON_PATIENCE });
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
        self.daemon = None;
        Ok(())
    }

    /// `kill -9`. Mounts and loop device stay, dead.
    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.child.kill();
            let _ = daemon.child.wait();
        }
    }

    fn dcd(&self, verb: &str) -> Result<Command, DemoError> {
        let program = std::env::current_exe().map_err(DemoError::system("find dcd itself"))?;
        let mut command = Command::new(program);
        command.arg(verb);
        Ok(command)
    }
}

impl Drop for Stand<'_> {
    fn drop(&mut self) {
        // 1. The daemon: whoever waits for the disk gets an error and ends.
        self.kill();
        // 2. What is mounted, from the top.
        self.folders.clear_mounts();
        // 3. The files.
        for file in [self.folders.slow_disk(), self.folders.cache_disk()] {
            let _ = fs::remove_file(file);
        }
    }
}

/// Detaches loop devices over `file`, also over one that is gone.
pub fn detach_loops(file: &Path) {
    let Ok(devices) = fs::read_dir("/sys/block") else { return };
    for device in devices.flatten() {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        let is_ours = backing.is_ok_and(|backing| {
            Path::new(backing.trim_end().trim_end_matches(" (deleted)")) == file
        });
        if is_ours {
            try_run(command(
                "losetup",
                [Path::new("-d"), &Path::new("/dev").join(device.file_name())],
            ));
        }
    }
}

/// Waits for the first line on another thread, and lets the rest go by.
fn first_line_of(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = String::new();
            let _ = reader.read_line(&mut line);
            let _ = sender.send(line);
            let _ = reader.read_to_end(&mut Vec::new());
        });
    }
    receiver
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().find(|line| line.contains("error")).or(text.lines().last());
    line.unwrap_or_default().to_owned()
}

fn remove_if_there(path: &Path) -> Result<(), DemoError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(DemoError::file("remove", path)(error))
        }
        _ => Ok(()),
    }
}
