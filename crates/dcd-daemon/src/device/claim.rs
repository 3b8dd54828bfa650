//! That nobody else uses a disk, under whatever name. Who locks what:
//!
//! ```text
//!                                    what is held                                  whom it keeps away
//! 1. the disk itself, a file:        flock, and a lock of its range (OFD)          dcd, QEMU (which locks ranges)
//!    a block device:                 O_EXCL when it was opened, and the range      mounts, LVM, md, swap, dcd
//! 2. each layer below that nobody    a shared flock, and its range of bytes        dcd on the file, or on other loop
//!    sees to (loop device, overlay)                                                devices over the same bytes
//! 3. each loop device above or       O_EXCL                                        mounts of it, LVM, dcd
//!    beside that has bytes of it
//! ```
//!
//! A range is locked, and not a whole file: two partitions of one loop device may be a pair. Two
//! daemons meet whichever way they come: both from above at 2, one from above and one from below at
//! 1 and 2, and the kernel's own users at 3. A loop device that is made later than 3 can still be
//! mounted; only its maker can know. Of a share (`shares.rs`) 1 and 2 are its window, and whoever
//! has another share may have 3. Locks of a file belong to the file and to this process, not to
//! a name, a name space or a right, so they hold when rights are given up (`confine.rs`).

use std::fs;
use std::io;
use std::iter;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use dcd_engine::format::share_directory::{Window, Windows};
use rustix::fs::{FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::device::device_file::{DeviceError, is_alive};
use crate::device::identity::{DiskIdentity, Object, Piece, Step, System};
use crate::device::mounts::{mounted_at, mounts};
use crate::device::shares::{CHANGE, PRESENT};

/// What is held of a disk besides the disk itself.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    below: Vec<OwnedFd>,
    beside: Vec<OwnedFd>,
}

/// What is to be held.
pub(crate) enum Hold {
    /// All of the disk.
    Whole,
    /// A share of it, after [`Claim::join`]; `is_shared`: with others who read it.
    Share { windows: Windows, is_shared: bool },
    /// The right to change the directory, after [`Claim::join`].
    Directory,
}

impl Claim {
    /// Becomes one of those who have a share of an open disk.
    ///
    /// # Errors
    /// If somebody has all of it; or the file system has no such locks, without which nothing keeps
    /// shares apart.
    pub(crate) fn join(path: &Path, opened: &OwnedFd) -> Result<(), DeviceError> {
        match set_lock(opened, libc::F_RDLCK, &PRESENT) {
            Ok(()) => Ok(()),
            Err(error) if is_conflict(&error) => {
                Err(DeviceError::Locked { path: path.to_owned(), pid: holder_of(opened) })
            }
            Err(source) => {
                let operation = "lock a part of";
                Err(DeviceError::Io { path: path.to_owned(), operation, source })
            }
        }
    }

    /// Whether others have shares of an open disk.
    pub(crate) fn has_others(opened: &OwnedFd) -> bool {
        is_locked_by_others(opened, &PRESENT)
    }

    /// Keeps the directory as it is until [`Claim::looked_up`]. False: it is being changed.
    pub(crate) fn look_up(&self, opened: &OwnedFd) -> bool {
        lock_range(opened, false, CHANGE)
    }

    /// See [`Claim::look_up`]. Who changes it keeps it.
    pub(crate) fn looked_up(&self, opened: &OwnedFd, hold: &Hold) {
        if let Hold::Share { .. } = hold {
            let _ = set_lock(opened, libc::F_UNLCK, &CHANGE);
        }
    }

    /// Takes what there is to take for a disk, or a part of one, that is open.
    pub(crate) fn take(
        &mut self,
        path: &Path,
        opened: &OwnedFd,
        identity: &DiskIdentity,
        hold: &Hold,
    ) -> Result<(), DeviceError> {
        // 1. The disk itself. A file was locked as a whole; this tells those who lock ranges. Who
        //    they are is told nowhere.
        let one = |bytes: Range<u64>| iter::once(bytes).collect::<Vec<_>>();
        let (is_alone, parts) = match hold {
            Hold::Whole => (true, one(0..u64::MAX)),
            Hold::Share { windows, is_shared } => {
                (!is_shared, windows.iter().map(bytes_of).collect())
            }
            Hold::Directory => (true, one(CHANGE)),
        };
        for bytes in parts {
            let start = bytes.start;
            if !lock_range(opened, is_alone, bytes) {
                let pid = match hold {
                    Hold::Share { .. } => holder_of_part(opened, start),
                    Hold::Whole | Hold::Directory => None,
                };
                return Err(DeviceError::Locked { path: path.to_owned(), pid });
            }
        }
        if let Hold::Directory = hold {
            // What is below and beside is held by those who have shares.
            return Ok(());
        }
        let is_among_others = !matches!(hold, Hold::Whole) && Claim::has_others(opened);
        // 2. Below it.
        for piece in identity.pieces.iter().filter(|piece| piece.step == Step::Unguarded) {
            self.below.extend(hold_below(path, piece)?);
        }
        // 3. Above it, and beside it.
        for number in System::new().loop_devices() {
            let is_other = !identity.lies_on(number)
                && DiskIdentity::of_disk(number).shared_with(identity).is_some();
            if is_other {
                match hold_beside(path, number) {
                    // Whoever has another share holds it.
                    Err(DeviceError::UsedThrough { mounted_at: None, .. }) if is_among_others => {}
                    held => self.beside.extend(held?),
                }
            }
        }
        Ok(())
    }

    /// The right to change the directory of an open disk, of which a share is held. False: somebody
    /// else has it.
    pub(crate) fn hold_directory(&self, opened: &OwnedFd) -> bool {
        lock_range(opened, true, CHANGE)
    }

    /// Gives that back.
    pub(crate) fn leave_directory(&self, opened: &OwnedFd) {
        let _ = set_lock(opened, libc::F_UNLCK, &CHANGE);
    }

    /// Holds further parts of an open disk, and of what is held below it. False: somebody has one,
    /// and none of them is held.
    pub(crate) fn hold_parts(
        &self,
        opened: &OwnedFd,
        whole: &DiskIdentity,
        parts: &[Window],
    ) -> bool {
        let is_held = parts.iter().all(|part| {
            let mut below = Claim::below_of(whole, *part);
            lock_range(opened, true, bytes_of(part))
                && below.all(|piece| {
                    let held = self.held_of(&piece).next();
                    held.is_none_or(|held| lock_range(held, true, piece.bytes.clone()))
                })
        });
        if !is_held {
            self.leave_parts(opened, whole, parts);
        }
        is_held
    }

    /// Gives them back.
    pub(crate) fn leave_parts(&self, opened: &OwnedFd, whole: &DiskIdentity, parts: &[Window]) {
        for part in parts {
            let _ = set_lock(opened, libc::F_UNLCK, &bytes_of(part));
            // Whichever descriptor has it: each window that there was at the start has its own.
            for piece in Claim::below_of(whole, *part) {
                for held in self.held_of(&piece) {
                    let _ = set_lock(held, libc::F_UNLCK, &piece.bytes);
                }
            }
        }
    }

    /// Where a part of a disk is on the layers below that nobody sees to.
    fn below_of(whole: &DiskIdentity, part: Window) -> impl Iterator<Item = Piece> {
        whole.pieces_within(part).filter(|piece| piece.step == Step::Unguarded)
    }

    /// What is held of such a layer.
    fn held_of(&self, piece: &Piece) -> impl Iterator<Item = &OwnedFd> {
        let object = piece.object;
        self.below.iter().filter(move |held| is_object(held, object))
    }

    /// The same locks, in other descriptors.
    pub(crate) fn try_clone(&self) -> io::Result<Claim> {
        let below = self.below.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        Ok(Claim { below, beside: Vec::new() })
    }

    /// What another process holds.
    pub(crate) fn of(held: Vec<OwnedFd>) -> Claim {
        Claim { below: held, beside: Vec::new() }
    }

    /// What is held.
    pub(crate) fn held(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.below.iter().chain(&self.beside).map(OwnedFd::as_fd)
    }

    /// Gives back what closing alone may not give back at once (see `DeviceFile`).
    /// `is_share`: what one of our threads is about to write to its directory is written under a
    /// lock that is of this descriptor, too.
    pub(crate) fn release(&self, opened: &OwnedFd, is_share: bool) {
        let _alone = is_share.then(|| alone_with_directories(RELEASE_PATIENCE));
        for held in self.below.iter().chain([opened]) {
            unlock_range(held);
            let _ = rustix::fs::flock(held, FlockOperation::Unlock);
        }
    }
}

/// Who changes a directory through what a share is open as: all descriptors of that share have one
/// lock between them, which keeps other processes away and not our own threads.
static DIRECTORIES: Mutex<()> = Mutex::new(());
/// How long a thread that is about to write to one is waited for, by who closes the disk; and how
/// often it is tried.
const RELEASE_PATIENCE: Duration = Duration::from_secs(1);
const ALONE_INTERVAL: Duration = Duration::from_millis(5);

/// The right to change directories, among the threads of this process; `None`: somebody has had it
/// all the time.
pub(crate) fn alone_with_directories(patience: Duration) -> Option<MutexGuard<'static, ()>> {
    let until = Instant::now() + patience;
    loop {
        match DIRECTORIES.try_lock() {
            Ok(guard) => return Some(guard),
            // Nothing is behind it that could be half done.
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(ALONE_INTERVAL),
        }
    }
}

/// What cannot be opened from here (another name space, no right to) is not held: whoever uses it
/// is noticed at 1 and 3.
fn hold_below(path: &Path, piece: &Piece) -> Result<Option<OwnedFd>, DeviceError> {
    let flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let is_block_device = matches!(piece.object, Object::Disk(_));
    let opened = rustix::fs::open(&piece.path, flags | OFlags::RDWR, Mode::empty());
    let can_write = opened.is_ok();
    let opened = opened.or_else(|_| rustix::fs::open(&piece.path, flags, Mode::empty()));
    let Ok(opened) = opened else { return Ok(None) };
    if !is_object(&opened, piece.object) {
        return Ok(None);
    }
    let locked = || DeviceError::LockedBelow {
        path: path.to_owned(),
        below: piece.path.clone(),
        pid: holder_of(&opened),
    };
    if is_block_device {
        // Looked at and not held: another loop device of the pair may lie on it, too.
        let exclusive = rustix::fs::open(&piece.path, flags | OFlags::EXCL, Mode::empty());
        if let (Err(Errno::BUSY), Object::Disk(number)) = (exclusive, piece.object) {
            return Err(in_use(path, piece.path.clone(), number));
        }
    } else if let Err(Errno::WOULDBLOCK) =
        rustix::fs::flock(&opened, FlockOperation::NonBlockingLockShared)
    {
        return Err(locked());
    }
    // Whoever may only read may only share; that keeps writers away all the same.
    if !lock_range(&opened, can_write, piece.bytes.clone()) {
        return Err(locked());
    }
    Ok(Some(opened))
}

fn is_object(opened: &OwnedFd, object: Object) -> bool {
    rustix::fs::fstat(opened).is_ok_and(|stat| match object {
        Object::File { device, inode } => (stat.st_dev, stat.st_ino) == (device, inode),
        Object::Disk(number) => stat.st_rdev == number,
    })
}

fn bytes_of(window: &Window) -> Range<u64> {
    window.offset_bytes..window.end()
}

fn hold_beside(path: &Path, number: u64) -> Result<Option<OwnedFd>, DeviceError> {
    let device = System::new().node(number);
    let flags = OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let opened = match rustix::fs::open(&device, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::BUSY) => return Err(in_use(path, device, number)),
        // Without the right to open it, there is what everybody can see.
        Err(_) if mounted_at(&mounts(), |it| is_part_of(it, number)).is_some() => {
            return Err(in_use(path, device, number));
        }
        Err(_) => return Ok(None),
    };
    let is_it = rustix::fs::fstat(&opened).is_ok_and(|stat| stat.st_rdev == number);
    Ok(is_it.then_some(opened))
}

fn in_use(path: &Path, device: PathBuf, number: u64) -> DeviceError {
    let mounted_at = mounted_at(&mounts(), |it| is_part_of(it, number));
    DeviceError::UsedThrough { path: path.to_owned(), device, mounted_at }
}

/// Whether a device is this one, or a partition of it.
fn is_part_of(part: u64, whole: u64) -> bool {
    let is_disk = |number| rustix::fs::major(number) > 0;
    part == whole || is_disk(part) && DiskIdentity::of_disk(part).lies_on(whole)
}

/// Locks a file as a whole, or as one of those who have a part of it.
pub(crate) fn lock(file: &OwnedFd, path: &Path, is_whole: bool) -> Result<(), DeviceError> {
    let operation = match is_whole {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            Err(DeviceError::Locked { path: path.to_owned(), pid: holder_of(file) })
        }
        Err(errno) => {
            Err(DeviceError::Io { path: path.to_owned(), operation: "lock", source: errno.into() })
        }
    }
}

/// The process that has locked a file, if it is known and alive.
fn holder_of(file: &OwnedFd) -> Option<u32> {
    let stat = rustix::fs::fstat(file).ok()?;
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    lock_holder(&locks, &stat).filter(|pid| is_alive(*pid))
}

/// The process that has locked bytes of a file from this one on for itself, if it can be seen: what
/// the kernel tells of locks does not name it, but that of open files does.
fn holder_of_part(file: &OwnedFd, start: u64) -> Option<u32> {
    let place = place_of(&rustix::fs::fstat(file).ok()?);
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let processes = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let has_it = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        open.filter_map(|it| fs::read_to_string(it.path()).ok())
            .any(|info| parts_locked(&info, Some(&place)).iter().any(|it| it.contains(&start)))
    };
    processes.filter(|pid| is_alive(*pid)).find(has_it)
}

/// The parts of a file that are locked for one open file alone, from what the kernel tells of that
/// in `fdinfo`: `lock:   1: OFDLCK ADVISORY  WRITE -1 fe:00:131 1048576 5242879`. Those that lie side
/// by side are one. `place`: of which file, if that is not known anyway.
pub fn parts_locked(info: &str, place: Option<&str>) -> Vec<Range<u64>> {
    let part = |line: &str| {
        let words: Vec<&str> = line.strip_prefix("lock:")?.split_whitespace().collect();
        let is_it = words.get(1) == Some(&"OFDLCK")
            && words.get(3) == Some(&"WRITE")
            && place.is_none_or(|place| words.get(5) == Some(&place));
        let start = words.get(6).filter(|_| is_it)?.parse().ok()?;
        // The last byte of it, or `EOF`.
        let last: Option<u64> = words.get(7).and_then(|last| last.parse().ok());
        Some(start..last.map_or(u64::MAX, |last| last.saturating_add(1)))
    };
    info.lines().filter_map(part).collect()
}

/// How the kernel names a file in what it tells of locks. Of a block device the node counts.
fn place_of(stat: &Stat) -> String {
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    format!("{major:02x}:{minor:02x}:{}", stat.st_ino)
}

/// Who holds the flock, from the text of `/proc/locks`:
/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`.
fn lock_holder(locks: &str, stat: &Stat) -> Option<u32> {
    let place = place_of(stat);
    let is_ours = |pid: &u32| *pid == std::process::id();
    let holders = locks.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == "FLOCK").then_some(())?;
        let pid = words.nth(2)?.parse().ok()?;
        (words.next()? == place).then_some(pid)
    });
    let holders: Vec<u32> = holders.collect();
    // We hold a share of it ourselves by now, where it is somebody else's.
    holders.iter().find(|pid| !is_ours(pid)).or(holders.first()).copied()
}

/// Locks a range of bytes for this open file, until it is unlocked or closed. False: somebody else
/// has one. A file system without such locks has none to offer.
fn lock_range(file: &OwnedFd, exclusive: bool, bytes: Range<u64>) -> bool {
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    match set_lock(file, kind, &bytes) {
        Ok(()) => true,
        Err(error) => !is_conflict(&error),
    }
}

/// Whether somebody else has a lock.
fn is_conflict(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

fn unlock_range(file: &OwnedFd) {
    let _ = set_lock(file, libc::F_UNLCK, &(0..u64::MAX));
}

/// Whether another open file has a lock of some of these bytes.
fn is_locked_by_others(file: &OwnedFd, bytes: &Range<u64>) -> bool {
    let Some(mut lock) = lock_of(libc::F_WRLCK, bytes) else { return false };
    // SAFETY: the descriptor is open, and the kernel writes into the struct, which is ours.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    result >= 0 && lock.l_type != libc::F_UNLCK as libc::c_short
}

/// What the kernel is told of these bytes; `None`: they are none.
fn lock_of(kind: libc::c_int, bytes: &Range<u64>) -> Option<libc::flock> {
    let most = i64::MAX as u64;
    let start = bytes.start.min(most);
    // A length of 0 reaches to wherever the file will end.
    let length = if bytes.end >= most { 0 } else { bytes.end.saturating_sub(start) };
    if length == 0 && bytes.end < most {
        return None;
    }
    Some(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start as libc::off_t,
        l_len: length as libc::off_t,
        l_pid: 0,
    })
}

fn set_lock(file: &OwnedFd, kind: libc::c_int, bytes: &Range<u64>) -> io::Result<()> {
    let Some(lock) = lock_of(kind, bytes) else { return Ok(()) };
    // SAFETY: the descriptor is open, and the kernel only reads the struct, which is ours.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let path = std::env::temp_dir().join(format!("dcd-claim-holder-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        let mut stat = rustix::fs::stat(&path).unwrap();
        fs::remove_file(&path).unwrap();
        stat.st_dev = rustix::fs::makedev(0xfe, 0);
        stat.st_ino = 77;
        let own = std::process::id();
        let locks = format!(
            "1: POSIX  ADVISORY  WRITE 1 fe:00:77 0 EOF\n\
             2: FLOCK  ADVISORY  WRITE {own} fe:00:77 0 EOF\n\
             3: FLOCK  ADVISORY  WRITE 42 fe:00:78 0 EOF\n\
             4: FLOCK  ADVISORY  READ 43 fe:00:77 0 EOF\n"
        );
        assert_eq!(lock_holder(&locks, &stat), Some(43));
        let first = locks.lines().take(2).collect::<Vec<_>>().join("\n");
        assert_eq!(lock_holder(&first, &stat), Some(own));
        assert_eq!(lock_holder("", &stat), None);
    }

    #[test]
    fn locks_of_an_open_file_are_read() {
        let info = "pos:\t0\nflags:\t02140002\n\
            lock:\t1: FLOCK  ADVISORY  READ 71 fe:00:131 0 EOF\n\
            lock:\t2: OFDLCK ADVISORY  READ -1 fe:00:131 0 4095\n\
            lock:\t3: OFDLCK ADVISORY  WRITE -1 fe:00:132 0 4095\n\
            lock:\t4: OFDLCK ADVISORY  WRITE -1 fe:00:131 1048576 5242879\n";
        assert_eq!(parts_locked(info, Some("fe:00:131")), from_ref(&(1 << 20..5 << 20)));
        assert_eq!(parts_locked(info, None), [0..4096, 1 << 20..5 << 20]);
        let to_the_end = "lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:131 4096 EOF";
        assert_eq!(parts_locked(to_the_end, None), from_ref(&(4096..u64::MAX)));
    }

    #[test]
    fn ranges_are_locked_and_given_back() {
        let path = std::env::temp_dir().join(format!("dcd-claim-ranges-{}", std::process::id()));
        fs::write(&path, [0; 100]).unwrap();
        let open = || {
            let file = fs::File::options().read(true).write(true).open(&path).unwrap();
            OwnedFd::from(file)
        };
        let (first, second, third) = (open(), open(), open());
        assert!(lock_range(&first, true, 0..10) && lock_range(&second, true, 10..20));
        assert!(!lock_range(&third, true, 0..u64::MAX) && !lock_range(&third, false, 19..30));
        unlock_range(&second);
        assert!(
            lock_range(&third, true, 10..u64::MAX) && !lock_range(&second, true, 1 << 40..u64::MAX)
        );
        assert!(lock_range(&second, true, 5..5), "nothing of it is nobody's");
        fs::remove_file(&path).unwrap();
    }
}
