//! N-user untar, copy and remove, as in the paper's section 4.1: each user a process of its own,
//! the file system unmounted and mounted again before each phase, so that nothing is cached.

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use dcd_daemon::event_loop::request_counts::RequestCounts;
use dcd_daemon::report::status_report::StatusReport;
use serde::Serialize;

use super::folders::Folders;
use super::programs::{Interrupt, command};
use super::stand::{MountKind, Stand};
use super::tree::TOP;
use crate::error::demo::DemoError;

/// What the users do, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// `tar -x`
    Untar,
    /// `cp -r`
    Copy,
    /// `rm -r` of what was unpacked.
    Remove,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Phase; 3] = [Phase::Untar, Phase::Copy, Phase::Remove];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Untar => "untar",
            Phase::Copy => "copy",
            Phase::Remove => "remove",
        }
    }

    /// What one user does.
    fn command(self, folders: &Folders, user: u32) -> Command {
        let home = home(folders, user);
        match self {
            Phase::Untar => {
                let mut tar = command("tar", ["-x", "-f"]);
                tar.arg(folders.archive()).arg("-C").arg(home);
                tar
            }
            Phase::Copy => command("cp", ["-r".into(), home.join(TOP), home.join("copy")]),
            Phase::Remove => command("rm", ["-r".into(), home.join(TOP)]),
        }
    }
}

/// How one phase went.
pub struct Measured {
    /// Wall time, with the syncfs if there is one.
    pub seconds: f64,
    /// What the slow disk was given; only without dcd.
    pub requests: Option<RequestCounts>,
    /// What dcd did; only with dcd.
    pub figures: Option<CacheFigures>,
}

/// What dcd did in one phase.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CacheFigures {
    /// Flushes that the file system waited for.
    pub flushes: u64,
    /// Seconds it waited, all flushes together.
    pub flush_seconds: f64,
    /// Writes to the cache-disk.
    pub log_writes: u64,
    /// Bytes of them.
    pub log_write_bytes: u64,
    /// Lines of 4 KiB that were read from the cache, not from the slow disk.
    pub read_hit_lines: u64,
    /// Lines that were read from the slow disk.
    pub read_miss_lines: u64,
    /// Writes that had to wait for room, in the segment buffers or in the cache.
    pub stalled_writes: u64,
    /// Writes to the slow disk that moved data there meanwhile.
    pub destage_writes: u64,
}

impl CacheFigures {
    fn between(before: &StatusReport, after: &StatusReport) -> CacheFigures {
        let (old, new) = (&before.counters, &after.counters);
        let waited = |report: &StatusReport| {
            report.response_times.flushes.count as f64 * report.response_times.flushes.mean / 1e6
        };
        CacheFigures {
            flushes: new.flushes - old.flushes,
            flush_seconds: (waited(after) - waited(before)).max(0.0),
            log_writes: new.log_writes - old.log_writes,
            log_write_bytes: new.log_write_bytes - old.log_write_bytes,
            read_hit_lines: new.read_hit_lines - old.read_hit_lines,
            read_miss_lines: new.read_miss_lines - old.read_miss_lines,
            stalled_writes: new.stalled_writes - old.stalled_writes,
            destage_writes: new.destage_writes - old.destage_writes,
        }
    }
}

/// Makes a directory for each user, and leaves the file system unmounted.
pub fn make_homes(stand: &Stand, folders: &Folders, users: u32) -> Result<(), DemoError> {
    stand.mount(MountKind::Default)?;
    for user in 0..users {
        let home = home(folders, user);
        fs::create_dir(&home).map_err(DemoError::file("create", &home))?;
    }
    stand.unmount()
}

/// Where a user works.
pub fn home(folders: &Folders, user: u32) -> std::path::PathBuf {
    folders.mount_point().join(format!("user-{user}"))
}

/// Runs one phase, from unmounted to unmounted.
pub fn measure(
    stand: &Stand,
    folders: &Folders,
    interrupt: &Interrupt,
    mount: MountKind,
    phase: Phase,
    users: u32,
) -> Result<Measured, DemoError> {
    stand.mount(mount)?;
    let (requests_before, status_before) = (stand.requests()?, stand.status()?);
    let commands = (0..users).map(|user| phase.command(folders, user)).collect();
    let mut took = interrupt.run_all(commands)?;
    if mount == MountKind::Default {
        took += sync_all(folders)?;
    }
    let (requests, status) = (stand.requests()?, stand.status()?);
    stand.unmount()?;
    Ok(Measured {
        seconds: took.as_secs_f64(),
        requests: requests.zip(requests_before).map(|(after, before)| after.since(&before)),
        figures: status
            .zip(status_before)
            .map(|(after, before)| CacheFigures::between(&before, &after)),
    })
}

/// `syncfs`, and how long it took.
fn sync_all(folders: &Folders) -> Result<Duration, DemoError> {
    let path = folders.mount_point();
    let directory = File::open(&path).map_err(DemoError::file("open", &path))?;
    let started = Instant::now();
    rustix::fs::syncfs(&directory).map_err(|errno| DemoError::file("sync", &path)(errno.into()))?;
    Ok(started.elapsed())
}
