//! Where everything is while the demonstration runs, and that nothing of it stays.

use std::fs;
use std::path::{Path, PathBuf};

use super::arguments::DemoArguments;
use super::programs::{command, try_run};
use super::stand::detach_loops;
use crate::error::demo::DemoError;

/// Memory as a file system.
const MEMORY: &str = "/dev/shm";
/// What the slow disk may come to hold, of its 1 GiB.
const SLOW_DISK_BYTES_USED: u64 = 600 << 20;

/// The folders. They go with this.
pub struct Folders {
    work: PathBuf,
    cache: PathBuf,
    memory: PathBuf,
    picture: PathBuf,
    name: String,
}

impl Folders {
    /// Makes them.
    pub fn new(arguments: &DemoArguments) -> Result<Folders, DemoError> {
        let folders = Folders::of(arguments, std::process::id())?;
        for folder in [&folders.fuse(), &folders.mount_point(), &folders.cache, &folders.memory] {
            fs::create_dir_all(folder).map_err(DemoError::file("create", folder))?;
        }
        Ok(folders)
    }

    /// Those of the demonstration that this process runs, or ran.
    pub fn of(arguments: &DemoArguments, process: u32) -> Result<Folders, DemoError> {
        let make = |path: &Path| {
            fs::create_dir_all(path)
                .and_then(|()| path.canonicalize())
                .map_err(DemoError::file("create", path))
        };
        let name = format!("dcd-demo-{process}");
        let directory = make(&arguments.directory)?;
        let cache = make(arguments.cache_directory.as_ref().unwrap_or(&directory))?;
        let memory = if has_room(Path::new(MEMORY)) { Path::new(MEMORY) } else { &directory };
        Ok(Folders {
            work: directory.join(&name),
            cache: cache.join(format!("{name}-cache")),
            memory: memory.join(format!("{name}-memory")),
            picture: directory.join("untar-copy-remove.svg"),
            name,
        })
    }

    /// The names of all of them.
    pub fn names(&self) -> [String; 3] {
        ["", "-cache", "-memory"].map(|what| format!("{}{what}", self.name))
    }

    /// The image of the slow disk. It is in memory where possible: its slowness is the configured
    /// one, and nothing of the disk below.
    pub fn slow_disk(&self) -> PathBuf {
        self.memory.join("slow-disk.img")
    }

    /// The cache: on a real disk, unless another place was asked for.
    pub fn cache_disk(&self) -> PathBuf {
        self.cache.join("cache.img")
    }

    /// Where the daemon's memory goes that outlives it.
    pub fn memory(&self) -> &Path {
        &self.memory
    }

    /// The control socket; here because the name of a socket must be short.
    pub fn control(&self) -> PathBuf {
        self.memory.join("control")
    }

    /// Where the served disk appears as a file.
    pub fn fuse(&self) -> PathBuf {
        self.work.join("fuse")
    }

    /// Where the file system is mounted.
    pub fn mount_point(&self) -> PathBuf {
        self.work.join("mount")
    }

    /// What the daemon says.
    pub fn log(&self) -> PathBuf {
        self.work.join("daemon.log")
    }

    /// The tar archive.
    pub fn archive(&self) -> PathBuf {
        self.memory.join("tree.tar")
    }

    /// The picture, which stays.
    pub fn picture(&self) -> &Path {
        &self.picture
    }

    /// Unmounts and detaches what is left.
    pub fn clear_mounts(&self) {
        let file = self.fuse().join(dcd_daemon::frontend::fuse::FILE_NAME);
        unmount(&self.mount_point());
        // While the file is still mounted its loop devices can be told.
        detach_loops(&file);
        unmount(&self.fuse());
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        self.clear_mounts();
        if is_mounted(&self.fuse()) || is_mounted(&self.mount_point()) {
            super::tell(&format!("{} could not be unmounted and stays", self.work.display()));
            return;
        }
        // Whether there was room for memory elsewhere, when it began, nobody knows any more.
        let memory = Path::new(MEMORY).join(format!("{}-memory", self.name));
        for folder in [&self.work, &self.cache, &self.memory, &memory] {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn unmount(path: &Path) {
    if is_mounted(path) && !try_run(command("umount", [path])) {
        try_run(command("umount", [Path::new("-l"), path]));
    }
}

fn is_mounted(path: &Path) -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return false };
    // The fifth word, in which blanks are written as numbers.
    let path = path.to_string_lossy().replace('\\', "\\134").replace(' ', "\\040");
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(&path))
}

fn has_room(path: &Path) -> bool {
    rustix::fs::statvfs(path)
        .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) > SLOW_DISK_BYTES_USED)
}
