//! `kill -9` in the middle of an untar: the same serve line again must bring back everything that
//! was synced before.
//!
//! ```text
//! users unpack, fsync each file and note it -> half is done -> kill -9
//! unmount the dead file system -> serve again -> mount -> compare each noted file -> e2fsck -fn
//! ```

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dcd_daemon::device::device_spec::SlowTimes;
use dcd_engine::format::checksum::crc32c;
use serde::Serialize;

use super::folders::Folders;
use super::phases::{home, make_homes};
use super::programs::{Interrupt, command};
use super::stand::{DiskKind, MountKind, Stand};
use super::tree::Tree;
use crate::error::demo::DemoError;

/// How long the users may need until half is done.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// What was left after the kill.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KillResult {
    /// Users at work.
    pub users: u32,
    /// Files that were synced before the kill.
    pub files_synced: usize,
    /// Bytes of them.
    pub bytes_synced: u64,
    /// Files of those that are missing or different afterwards.
    pub files_lost: usize,
    /// Seconds from the kill to the mounted file system.
    pub seconds_to_mounted: f64,
    /// How dcd told of its recovery: the words of its ready line.
    pub ready_line: String,
    /// Whether `e2fsck -fn` found nothing.
    pub fsck_clean: bool,
}

/// A file that was synced, as its user noted.
struct Noted {
    path: PathBuf,
    bytes: u64,
    checksum: u32,
}

/// Runs it.
pub fn kill_run(
    folders: &Folders,
    interrupt: &Interrupt,
    times: SlowTimes,
    tree: &Tree,
    users: u32,
) -> Result<KillResult, DemoError> {
    let mut stand = Stand::new(folders, interrupt, DiskKind::Dcd, times)?;
    make_homes(&stand, folders, users)?;
    stand.mount(MountKind::Sync)?;
    let noted = unpack_until_killed(&mut stand, folders, interrupt, tree, users)?;

    // What is mounted is dead: it is unmounted, and its loop device goes with the next start.
    let killed = Instant::now();
    stand.unmount()?;
    let ready_line = stand.serve()?.trim_end().to_owned();
    stand.mount(MountKind::Sync)?;
    let seconds_to_mounted = killed.elapsed().as_secs_f64();

    let is_as_noted = |file: &Noted| {
        let found = fs::read(&file.path);
        found.is_ok_and(|found| found.len() as u64 == file.bytes && crc32c(&found) == file.checksum)
    };
    let files_lost = noted.iter().filter(|file| !is_as_noted(file)).count();
    stand.unmount()?;
    let mut fsck = command("e2fsck", ["-f", "-n"]);
    fsck.arg(stand.device());
    let fsck_clean = match interrupt.run(fsck) {
        Ok(()) => true,
        Err(DemoError::Program { .. }) => false,
        Err(error) => return Err(error),
    };
    stand.stop()?;
    Ok(KillResult {
        users,
        files_synced: noted.len(),
        bytes_synced: noted.iter().map(|file| file.bytes).sum(),
        files_lost,
        seconds_to_mounted,
        ready_line,
        fsck_clean,
    })
}

/// Users unpack until half of all is done; then the daemon dies, and they with errors. What was
/// synced before.
fn unpack_until_killed(
    stand: &mut Stand,
    folders: &Folders,
    interrupt: &Interrupt,
    tree: &Tree,
    users: u32,
) -> Result<Vec<Noted>, DemoError> {
    let noted = Mutex::new(Vec::new());
    let (done, running) = (AtomicUsize::new(0), AtomicUsize::new(users as usize));
    let give_up = AtomicBool::new(false);
    let half = tree.files.len() * users as usize / 2;
    let result = thread::scope(|scope| {
        for user in 0..users {
            let home = home(folders, user);
            let (noted, done, running, give_up) = (&noted, &done, &running, &give_up);
            scope.spawn(move || {
                // An error ends this user: it is the kill, or the run fails for want of it.
                let _ = unpack(tree, &home, give_up, &mut |file| {
                    done.fetch_add(1, Ordering::Relaxed);
                    if let Ok(mut noted) = noted.lock() {
                        noted.push(file);
                    }
                });
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let started = Instant::now();
        let result = loop {
            if done.load(Ordering::Relaxed) >= half {
                break Ok(());
            }
            if running.load(Ordering::Relaxed) == 0 {
                break Err(DemoError::NotKilled { what: "unpacking" });
            }
            if started.elapsed() > PATIENCE {
                let what = "unpacking".to_owned();
                break Err(DemoError::TooLong { what, patience: PATIENCE });
            }
            if let Err(error) = interrupt.check() {
                break Err(error);
            }
            thread::sleep(Duration::from_millis(1));
        };
        // In every case: the users cannot end while they wait for a disk that does not answer.
        stand.kill();
        give_up.store(true, Ordering::Relaxed);
        result
    });
    result?;
    Ok(noted.into_inner().unwrap_or_default())
}

/// Unpacks the tree. Each file is told of once it has been synced, never before.
fn unpack(
    tree: &Tree,
    home: &std::path::Path,
    give_up: &AtomicBool,
    synced: &mut dyn FnMut(Noted),
) -> std::io::Result<()> {
    for directory in &tree.directories {
        fs::create_dir(home.join(directory))?;
    }
    for file in &tree.files {
        if give_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        let path = home.join(&file.path);
        let mut new = File::create(&path)?;
        new.write_all(&file.content)?;
        new.sync_all()?;
        synced(Noted { path, bytes: file.content.len() as u64, checksum: file.checksum });
    }
    Ok(())
}
