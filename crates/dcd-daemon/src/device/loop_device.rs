//! A loop device on the file of [`crate::frontend::fuse`], for those who need a block device.
//!
//! Order at the start of a daemon, and why:
//!
//! 1. [`detach_stale`], while the mount of a dead daemon is still there: once that is unmounted,
//!    the kernel no longer says where the file of a loop device was.
//! 2. [`crate::frontend::fuse::mount`].
//! 3. [`attach`], while the event loop runs.
//!
//! At the end: [`LoopDevice::detach`], then [`crate::frontend::fuse::FuseMount::unmount`], both
//! while the event loop runs.
//!
//! **Threads.** Nothing in here may be called on the thread of the event loop (or of the FUSE
//! session). While `ioctl` attaches a device, the kernel reads its partition table, and that read
//! comes to the event loop through FUSE; while [`LoopDevice::detach`] flushes, so do the writes.
//! The event loop would wait for itself.
//!
//! **`kill -9`.** For the same reason a killed daemon must not sit in such a call: its thread would
//! wait, deaf to the signal, for an answer from threads that are dead, and would thereby keep open
//! the connection whose closing makes the kernel give up on the answer. So every call that can do
//! I/O on the device runs on a thread that has left the process's table of open files
//! ([`crate::process::open_files`]), and [`LoopDevice`] keeps no descriptor: the last one to close
//! a block device writes back what is dirty in its page cache, and that must not be a dying daemon.
//!
//! After a `kill -9` the device stays, and answers with I/O errors. [`detach_stale`] detaches it at
//! the next start, and [`attach`] takes the same one again. If a file system is still mounted from
//! it, it goes as soon as that is unmounted, the new device is another, and its users are told: the
//! kernel gives a device that is in use no other file (`LOOP_CHANGE_FD` takes read-only ones,
//! `LOOP_CONFIGURE` unbound ones), and the file system has met I/O errors anyway.
//!
//! Tests: `tests/fuse.rs`, which needs root and `/dev/loop-control`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, Mode, StatxFlags};
use rustix::io::Errno as SystemError;
use serde::{Deserialize, Serialize};

use crate::device::fuse_mount::means_dead;
use crate::process::open_files;
use crate::process::users::users_of;

/// Where loop devices are asked for.
const CONTROL: &str = "/dev/loop-control";
/// The major number of loop devices.
const LOOP_MAJOR: u32 = 7;
/// Times that another program may snatch the free device before we give up.
const ATTEMPTS: u32 = 64;
/// How long a device may take to go after its last user (most often udev) has closed it.
const DETACH_WAIT: Duration = Duration::from_secs(2);

/// Makes a loop device of `file`, with direct I/O, so that the volume is not cached twice, and
/// with its partitions.
///
/// `block_size` is the volume's, 512 or 4096. A device that is free among those `left` by a daemon
/// that died is taken again, so that it has the same name. Not on the event loop's thread, see
/// above.
pub fn attach(
    file: &Path,
    block_size: u32,
    read_only: bool,
    left: &[StaleLoop],
) -> Result<LoopDevice, LoopError> {
    without_open_files(|| attach_here(file, block_size, read_only, left))?
}

/// Detaches the loop devices that a dead daemon has left on `file`, and tells which. Devices that
/// are still in use, say by a mounted file system, go when their last user closes them.
///
/// To be called before [`crate::frontend::fuse::mount`]. Devices whose file can be reached are left
/// alone: then `mount` will find that the directory is in use.
pub fn detach_stale(file: &Path) -> Result<Vec<StaleLoop>, LoopError> {
    without_open_files(|| detach_stale_here(file))?
}

/// A loop device that [`attach`] made. Dropping it leaves the device as it is.
#[derive(Debug)]
pub struct LoopDevice {
    number: u32,
    path: PathBuf,
    file: PathBuf,
}

impl LoopDevice {
    /// `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes back what is cached for the device, flushes it, and detaches it from its file.
    ///
    /// While somebody else has it open, the device stays until they close it: the error is
    /// [`LoopError::StillOpen`], and the daemon should serve on until then. If someone else has
    /// detached it already, this does nothing. Not on the event loop's thread, see above.
    pub fn detach(self) -> Result<(), LoopError> {
        without_open_files(|| {
            // The number may belong to another file by now.
            let Some(backing) = backing_file(self.number) else { return Ok(()) };
            let device = open_device(&self.path, true)?;
            if backing != self.file
                && !(has_lost_its_mount(&backing, &self.file)
                    && was_attached_to(&device, &self.file))
            {
                return Ok(());
            }
            let flushed = device.sync_all();
            detach_number(self.number, device)?;
            flushed.map_err(|source| LoopError::Flush { device: self.path.clone(), source })?;
            match is_gone(self.number, &backing, DETACH_WAIT) {
                true => Ok(()),
                false => Err(LoopError::StillOpen { device: self.path.clone() }),
            }
        })?
    }
}

/// A loop device whose daemon was dead.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StaleLoop {
    /// `/dev/loopN`.
    pub path: PathBuf,
    /// Somebody still has it open; it goes when they close it.
    pub still_open: bool,
    /// Who that is, in words.
    pub users: Vec<String>,
    /// Where it is mounted.
    pub mounts: Vec<PathBuf>,
    backing: PathBuf,
}

impl StaleLoop {
    /// Whether it is still there, and still dead.
    pub fn is_there(&self) -> bool {
        // Its mount has gone meanwhile.
        let is_it = |backing: PathBuf| {
            backing == self.backing || has_lost_its_mount(&backing, &self.backing)
        };
        self.number().and_then(backing_file).is_some_and(is_it)
    }

    fn number(&self) -> Option<u32> {
        self.path.to_str()?.strip_prefix("/dev/loop")?.parse().ok()
    }

    /// What its users have to know. `instead`: the device that has what they want.
    pub fn words(&self, instead: Option<&Path>) -> String {
        let path = self.path.display();
        if !self.still_open {
            return format!("detached {path}, left by a daemon that died");
        }
        let users = match self.users.is_empty() {
            true => "somebody has it open".to_owned(),
            false => self.users.join("; "),
        };
        let end = match self.mounts.is_empty() {
            true => "end that".to_owned(),
            false => {
                let places = self.mounts.iter().map(|place| format!("umount {}", place.display()));
                places.collect::<Vec<_>>().join("; ")
            }
        };
        let then = instead.map_or(String::new(), |it| format!(", then use {}", it.display()));
        format!(
            "{path}, left by a daemon that died, is dead: all that is read or written there fails. It is in use ({users}): \
             {end}{then}"
        )
    }
}

/// Why a loop device could not be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The system has no loop devices.
    #[error("cannot open {CONTROL}")]
    Control {
        /// What the system said.
        source: io::Error,
    },
    /// The file cannot be opened.
    #[error("cannot open {} for a loop device", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device node is missing and cannot be made.
    #[error("cannot make the device node {}", device.display())]
    Node {
        /// Which.
        device: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device cannot be opened.
    #[error("cannot open {}", device.display())]
    Device {
        /// Which.
        device: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device cannot be attached to the file.
    #[error("cannot attach {} to {}", device.display(), file.display())]
    Attach {
        /// Which.
        device: PathBuf,
        /// To what.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Other programs took every free device before we could.
    #[error("no free loop device after {ATTEMPTS} attempts")]
    NoneFree,
    /// What was cached for the device could not be written; the device has been detached.
    #[error("cannot flush {}", device.display())]
    Flush {
        /// Which.
        device: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device cannot be detached.
    #[error("cannot detach {}", device.display())]
    Detach {
        /// Which.
        device: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody has the device open; it will be detached when they close it.
    #[error("{} is still in use", device.display())]
    StillOpen {
        /// Which.
        device: PathBuf,
    },
    /// What the process says that does it for a daemon without the rights.
    #[error("{words}")]
    Elsewhere {
        /// What is wrong.
        words: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// No thread could be started for the work.
    #[error("cannot start a thread")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
}

impl LoopError {
    /// What to do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        use io::ErrorKind::{NotFound, PermissionDenied};
        const ROOT: &str = "loop devices need root; without, use the FUSE file itself or NBD";
        Some(match self {
            LoopError::Control { source } if source.kind() == PermissionDenied => ROOT.to_owned(),
            LoopError::Control { .. } => {
                "load the kernel module: modprobe loop (in a container, pass --device \
                 /dev/loop-control and the loop devices)"
                    .to_owned()
            }
            LoopError::File { source, .. } if source.kind() == NotFound => {
                "mount the volume first".to_owned()
            }
            LoopError::File { source, .. } | LoopError::Device { source, .. }
                if source.kind() == PermissionDenied =>
            {
                ROOT.to_owned()
            }
            LoopError::Node { device, .. } => {
                format!("make it as root: mknod {} b {LOOP_MAJOR} N", device.display())
            }
            LoopError::StillOpen { device } => format!(
                "unmount what is mounted from it (findmnt {0}; fuser -v {0}); then it goes by itself",
                device.display()
            ),
            LoopError::Device { .. }
            | LoopError::File { .. }
            | LoopError::Attach { .. }
            | LoopError::NoneFree
            | LoopError::Flush { .. }
            | LoopError::Detach { .. }
            | LoopError::Thread { .. } => return None,
            LoopError::Elsewhere { hint, .. } => return hint.clone(),
        })
    }
}

// Attaching.

fn attach_here(
    file: &Path,
    block_size: u32,
    read_only: bool,
    left: &[StaleLoop],
) -> Result<LoopDevice, LoopError> {
    let control = File::options()
        .read(true)
        .write(true)
        .open(CONTROL)
        .map_err(|source| LoopError::Control { source })?;
    let file_error = |source| LoopError::File { file: file.to_owned(), source };
    let backing = File::options().read(true).write(!read_only).open(file).map_err(file_error)?;
    let file = file.canonicalize().map_err(file_error)?;

    // Each is tried once: another program may have it by now.
    let mut again = left.iter().filter(|it| !it.still_open).filter_map(StaleLoop::number);
    for attempt in 0..ATTEMPTS {
        let number = match again.find(|number| backing_file(*number).is_none()) {
            Some(number) => number,
            None => free_device(&control).map_err(|source| LoopError::Control { source })?,
        };
        let path = PathBuf::from(format!("/dev/loop{number}"));
        ensure_node(number, &path)?;
        let device = open_device(&path, read_only)?;
        match configure(&device, &backing, &file, block_size, read_only) {
            Ok(()) => return Ok(LoopDevice { number, path, file }),
            // Another program was faster. Let it get ahead, then ask for another device.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(Duration::from_millis(u64::from(attempt.min(20))));
            }
            Err(source) => return Err(LoopError::Attach { device: path, file, source }),
        }
    }
    Err(LoopError::NoneFree)
}

/// Where nobody makes device nodes (a container with a `/dev` of its own), do it ourselves.
fn ensure_node(number: u32, path: &Path) -> Result<(), LoopError> {
    if path.exists() {
        return Ok(());
    }
    let node_error = |source| LoopError::Node { device: path.to_owned(), source };
    // The minor number is not the number of the device when the module was loaded with max_part.
    let minor = std::fs::read_to_string(format!("/sys/block/loop{number}/dev"))
        .ok()
        .and_then(|text| text.trim().split_once(':')?.1.parse().ok())
        .unwrap_or(number);
    let device = rustix::fs::makedev(LOOP_MAJOR, minor);
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::mknodat(CWD, path, FileType::BlockDevice, mode, device) {
        Ok(()) | Err(SystemError::EXIST) => Ok(()),
        Err(source) => Err(node_error(source.into())),
    }
}

fn open_device(path: &Path, read_only: bool) -> Result<File, LoopError> {
    let opened = File::options().read(true).write(!read_only).open(path);
    opened.map_err(|source| LoopError::Device { device: path.to_owned(), source })
}

/// Attaches in one step, or in several on a kernel before 5.8.
fn configure(
    device: &File,
    backing: &File,
    file: &Path,
    block_size: u32,
    read_only: bool,
) -> io::Result<()> {
    let mut info = LoopInfo {
        flags: FLAG_PARTSCAN | FLAG_DIRECT_IO,
        file_name: name_for_kernel(file),
        ..LoopInfo::default()
    };
    if read_only {
        info.flags |= FLAG_READ_ONLY;
    }
    let backing_fd = backing.as_raw_fd();
    let mut config =
        LoopConfig { fd: backing_fd as u32, block_size, info, ..LoopConfig::default() };
    match loop_configure(device, &mut config) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY)) => {}
        result => return result,
    }
    // The old way: the device is there from the first step on, so undo that if another fails.
    call(device, LOOP_SET_FD, backing_fd as libc::c_ulong)?;
    // The block size before the flags: with the flags comes the partition scan.
    let set_up = call(device, LOOP_SET_BLOCK_SIZE, block_size.into())
        .and_then(|_| loop_set_status(device, &mut info));
    if let Err(error) = set_up {
        let _ = call(device, LOOP_CLR_FD, 0);
        return Err(error);
    }
    // Without direct I/O everything works, only through one cache more.
    let _ = call(device, LOOP_SET_DIRECT_IO, 1);
    Ok(())
}

/// The name that `losetup` shows and [`detach_stale`] looks for, cut as losetup cuts it.
fn name_for_kernel(file: &Path) -> [u8; NAME_SIZE] {
    let bytes = file.as_os_str().as_bytes();
    let mut name = [0; NAME_SIZE];
    let length = bytes.len().min(NAME_SIZE - 1);
    name[..length].copy_from_slice(&bytes[..length]);
    if bytes.len() > length {
        name[length - 1] = b'*';
    }
    name
}

// Detaching.

fn detach_stale_here(file: &Path) -> Result<Vec<StaleLoop>, LoopError> {
    let file = absolute(file);
    // FORCE_SYNC: the kernel may answer from memory for a server that is dead.
    let reachable =
        match rustix::fs::statx(CWD, &file, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS) {
            Ok(_) => true,
            Err(error) => !means_dead(error) && error != SystemError::NOENT,
        };
    let mut stale = Vec::new();
    for number in loop_numbers() {
        let Some(backing) = backing_file(number) else { continue };
        let path = PathBuf::from(format!("/dev/loop{number}"));
        // What the kernel says of a file named /mnt/dcd/disk:
        //   /mnt/dcd/disk            the dead mount is there, or it is alive and not for us
        //   /mnt/dcd/disk (deleted)  a file that was removed
        //   /disk                    the mount is gone, the way from its root is left; then the
        //                            name given when it was attached tells whether it is ours
        let is_ours = if backing == file {
            !reachable
        } else if backing == with_suffix(&file, " (deleted)") {
            true
        } else {
            has_lost_its_mount(&backing, &file)
                && ensure_node(number, &path).is_ok()
                && open_device(&path, true).is_ok_and(|device| was_attached_to(&device, &file))
        };
        if !is_ours {
            continue;
        }
        ensure_node(number, &path)?;
        // Where it is in use this marks the device, which then goes with its last user.
        detach_number(number, open_device(&path, true)?)?;
        let still_open = !is_gone(number, &backing, DETACH_WAIT / 4);
        let (users, mounts) = match still_open {
            true => users_of(&path),
            false => (Vec::new(), Vec::new()),
        };
        stale.push(StaleLoop { path, still_open, users, mounts, backing });
    }
    Ok(stale)
}

fn detach_number(number: u32, device: File) -> Result<(), LoopError> {
    match call(&device, LOOP_CLR_FD, 0) {
        Ok(_) => Ok(()),
        // Somebody else was faster.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(()),
        Err(source) => {
            Err(LoopError::Detach { device: format!("/dev/loop{number}").into(), source })
        }
    }
}

/// Whether the kernel names `backing` as it would name `file` after the lazy unmount of its mount:
/// by the way from the root of that.
fn has_lost_its_mount(backing: &Path, file: &Path) -> bool {
    backing.parent() == Some(Path::new("/")) && backing.file_name() == file.file_name()
}

/// Whether the device was attached to `file` by us, or to a file whose server is dead: to detach
/// that does no harm either.
fn was_attached_to(device: &File, file: &Path) -> bool {
    match loop_status(device) {
        Ok(info) => info.file_name == name_for_kernel(file),
        Err(error) => error
            .raw_os_error()
            .is_some_and(|errno| means_dead(SystemError::from_raw_os_error(errno))),
    }
}

/// Waits until the device is no longer attached to `file`.
fn is_gone(number: u32, file: &Path, wait: Duration) -> bool {
    let deadline = Instant::now() + wait;
    loop {
        if backing_file(number).is_none_or(|backing| backing != file) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What the device is attached to, if it is.
fn backing_file(number: u32) -> Option<PathBuf> {
    let mut name = std::fs::read(format!("/sys/block/loop{number}/loop/backing_file")).ok()?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&name)))
}

/// The numbers of all loop devices, ascending; none where there is no loop driver.
fn loop_numbers() -> Vec<u32> {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("loop")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The path without links, as far as that can be found out. The file itself may be on a dead mount,
/// so only its directory is looked at.
fn absolute(file: &Path) -> PathBuf {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else {
        return file.to_owned();
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let directory = directory
        .canonicalize()
        .or_else(|_| std::path::absolute(directory))
        .unwrap_or_else(|_| directory.to_owned());
    directory.join(name)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

// The system calls.

/// Runs `work` where no descriptor of this process is open. See the head of this file for why.
fn without_open_files<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, LoopError> {
    open_files::without_open_files(work).map_err(|source| LoopError::Thread { source })
}

const LOOP_SET_FD: libc::c_ulong = 0x4c00;
const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LOOP_SET_STATUS64: libc::c_ulong = 0x4c04;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;
const LOOP_SET_DIRECT_IO: libc::c_ulong = 0x4c08;
const LOOP_SET_BLOCK_SIZE: libc::c_ulong = 0x4c09;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;

const FLAG_READ_ONLY: u32 = 1;
const FLAG_PARTSCAN: u32 = 8;
const FLAG_DIRECT_IO: u32 = 16;

const NAME_SIZE: usize = 64;

/// `struct loop_info64` of `linux/loop.h`.
#[derive(Clone, Copy)]
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; NAME_SIZE],
    crypt_name: [u8; NAME_SIZE],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const _: () = assert!(size_of::<LoopInfo>() == 232);

impl Default for LoopInfo {
    fn default() -> LoopInfo {
        LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: 0,
            file_name: [0; NAME_SIZE],
            crypt_name: [0; NAME_SIZE],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

/// `struct loop_config` of `linux/loop.h`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

fn free_device(control: &File) -> io::Result<u32> {
    let number = call(control, LOOP_CTL_GET_FREE, 0)?;
    u32::try_from(number).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

fn loop_configure(device: &File, config: &mut LoopConfig) -> io::Result<()> {
    call_with(device, LOOP_CONFIGURE, config)
}

fn loop_set_status(device: &File, info: &mut LoopInfo) -> io::Result<()> {
    call_with(device, LOOP_SET_STATUS64, info)
}

fn loop_status(device: &File) -> io::Result<LoopInfo> {
    let mut info = LoopInfo::default();
    call_with(device, LOOP_GET_STATUS64, &mut info)?;
    Ok(info)
}

/// What a loop device lies on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LoopBacking {
    /// The name of the file, as the kernel knows it; it may lead elsewhere, or nowhere.
    pub(crate) path: PathBuf,
    /// Number of the file system, as `stat` tells it.
    pub(crate) device: u64,
    /// Of the file.
    pub(crate) inode: u64,
    /// Number of the block device that it is; 0: it is a file.
    pub(crate) rdevice: u64,
    /// Where in it the loop device begins.
    pub(crate) offset: u64,
    /// Bytes from there on; 0: to its end.
    pub(crate) size_limit: u64,
}

/// Asks the kernel what is below a loop device.
pub(crate) fn backing(device: &File, path: PathBuf) -> io::Result<LoopBacking> {
    let info = loop_status(device)?;
    Ok(LoopBacking {
        path,
        device: info.device,
        inode: info.inode,
        rdevice: info.rdevice,
        offset: info.offset,
        size_limit: info.size_limit,
    })
}

/// An `ioctl` whose argument is a number.
fn call(file: &File, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<i32> {
    // SAFETY: the descriptor is open, and for the requests given here (SET_FD, CLR_FD,
    // SET_DIRECT_IO, SET_BLOCK_SIZE, GET_FREE) the kernel takes the argument as a number.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// An `ioctl` whose argument points to `argument`.
fn call_with<T: Copy>(file: &File, request: libc::c_ulong, argument: &mut T) -> io::Result<()> {
    // SAFETY: the descriptor is open; `T` is the struct that the kernel reads or fills for this
    // request (CONFIGURE: LoopConfig, SET_STATUS64 and GET_STATUS64: LoopInfo), its size is
    // checked when compiling, any bytes are a valid value of it, and it is ours alone meanwhile.
    let result =
        unsafe { libc::ioctl(file.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_with_a_star() {
        let short = name_for_kernel(Path::new("/mnt/dcd/disk"));
        assert_eq!(&short[..14], b"/mnt/dcd/disk\0");
        let long = name_for_kernel(Path::new(&format!("/{}", "x".repeat(100))));
        assert_eq!(long[62], b'*');
        assert_eq!(long[63], 0);
    }

    #[test]
    fn the_directory_of_a_file_is_made_absolute() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute(Path::new("disk")), here.join("disk"));
        assert_eq!(
            absolute(Path::new("/no/such/directory/disk")),
            Path::new("/no/such/directory/disk")
        );
    }
}
