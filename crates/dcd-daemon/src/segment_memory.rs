//! Memory of the segment buffers that outlives the process (contract C4): a file in `/dev/shm`.
//!
//! It survives `kill -9` of the daemon and of its whole process group, and is removed after a stop
//! in order. What it holds is worth something only within one boot of the machine: a boot id in the
//! first page tells, and memory of an earlier boot (the directory may be on a real disk) is zeroed
//! before the engine sees it. Memory that survived keeps its size, whatever the settings ask for: the
//! number of segment buffers changes after a stop in order only. Of a service, systemd keeps a descriptor of the file, so that
//! it outlives a cleaner of `/dev/shm`, too.
//!
//! ```text
//! 0..4032       header page, the engine's
//! 4032..4096    ours: magic, boot id
//! 4096..        the engine's
//! ```

use std::ffi::c_void;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dcd_engine::{SegmentMemory, Uuid};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::service_manager::take_stored;

/// Where our bytes are in the first page.
const OURS: Range<usize> = 4032..4096;
const PAGE: usize = 4096;
/// "dcdSHMEM" in ASCII.
const MAGIC: [u8; 8] = *b"dcdSHMEM";
const BOOT_ID_BYTES: usize = 36;
/// How long a former holder that is being ended by the kernel is waited for.
const DEAD_HOLDER_PATIENCE: Duration = Duration::from_secs(1);

/// Why there is no segment memory.
#[derive(Debug, thiserror::Error)]
pub enum SegmentMemoryError {
    /// The system refused.
    #[error("cannot {operation} the segment memory {}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Not a private regular file of ours.
    #[error("the segment memory {} is not ours: expected {expected}, found {found}", path.display())]
    NotOurs {
        /// Which file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// Another process uses it.
    #[error("another process uses the segment memory {}", path.display())]
    InUse {
        /// Which file.
        path: PathBuf,
    },
    /// It holds writes, but has a size that no run of this cache can have given it.
    #[error(
        "the segment memory {} has {found} bytes, which no dcd gave it; it may hold acknowledged writes",
        path.display()
    )]
    Size {
        /// Which file.
        path: PathBuf,
        /// Size found.
        found: u64,
    },
}

impl SegmentMemoryError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            SegmentMemoryError::Io { operation: "reserve", .. } => {
                "make room in that directory (df), or name another with --memory-directory".into()
            }
            SegmentMemoryError::Io { .. } => {
                "the directory must exist and be writable; name another with --memory-directory"
                    .into()
            }
            SegmentMemoryError::NotOurs { path, .. } => format!(
                "somebody else made {}; look at it, and remove it if it is not needed",
                path.display()
            ),
            SegmentMemoryError::InUse { path } => format!(
                "another daemon runs with a copy of this cache: fuser -v {}",
                path.display()
            ),
            SegmentMemoryError::Size { path, .. } => format!(
                "somebody has cut or extended it: restore it if you can; moving {} away gives up what \
                 was acknowledged and not flushed",
                path.display()
            ),
        })
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        // Said aloud for the reasons of `DeviceFile`.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// A mapping of the file. Shared by the engine, which reads and writes it, and by I/Os under way,
/// which keep it mapped until they have ended.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory, not bound to a thread. Rust references into it are made only
// by `SharedSegmentMemory`, of which there is one; others get addresses for the kernel only.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared `Mapping` gives out addresses, never references.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &OwnedFd, len: usize) -> Result<Mapping, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory. The
        // file is locked, private to our user and fully allocated, so it is not cut short below us.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        Ok(Mapping { start, len })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of a range, for the kernel to read from.
    ///
    /// # Panics
    /// If the range does not lie within the mapping.
    pub fn address(&self, range: &Range<usize>) -> *const u8 {
        assert!(range.start <= range.end && range.end <= self.len, "range in segment memory");
        // SAFETY: within the mapping, just checked.
        unsafe { self.start.as_ptr().add(range.start) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped in `new` with this length; nobody holds a reference into it, since
        // `SharedSegmentMemory` lends only for its own lifetime and holds a share of us.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// The engine's view of the memory; there is one for each [`Mapping`].
pub struct SharedSegmentMemory {
    mapping: Arc<Mapping>,
}

impl SegmentMemory for SharedSegmentMemory {
    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self.mapping` lives; changed only through `bytes_mut` of
        // this one owner.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr(), self.mapping.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` excludes other references. The kernel may be
        // reading parts for an I/O; the engine does not change those until the I/O is done.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start.as_ptr(), self.mapping.len) }
    }
}

/// The file below the memory.
pub struct SegmentFile {
    path: PathBuf,
    file: OwnedFd,
    mapping: Arc<Mapping>,
    /// Whether it held something from a former process of this boot.
    pub was_found: bool,
}

impl SegmentFile {
    /// Name of the file of a cache.
    pub fn path_of(directory: &Path, uuid: Uuid) -> PathBuf {
        directory.join(format!("dcd-{uuid}.segments"))
    }

    /// Opens (or makes) the memory of a cache and hands out the engine's view of it. Its size is
    /// `size`, unless it holds writes of a former process: then it has the size it had, which must
    /// be one that `is_possible`.
    pub fn open(
        directory: &Path,
        uuid: Uuid,
        size: usize,
        is_possible: &dyn Fn(u64) -> bool,
    ) -> Result<(SegmentFile, SharedSegmentMemory), SegmentMemoryError> {
        let boot_id = current_boot_id();
        let path = SegmentFile::path_of(directory, uuid);
        let stored = take_stored(&SegmentFile::stored_name(uuid));
        SegmentFile::open_in_boot(path, stored, size, is_possible, &boot_id)
    }

    fn open_in_boot(
        path: PathBuf,
        stored: Option<OwnedFd>,
        size: usize,
        is_possible: &dyn Fn(u64) -> bool,
        boot_id: &[u8; BOOT_ID_BYTES],
    ) -> Result<(SegmentFile, SharedSegmentMemory), SegmentMemoryError> {
        let failed = |operation| {
            let path = path.clone();
            move |errno: Errno| SegmentMemoryError::Io { path, operation, source: errno.into() }
        };
        // NONBLOCK: never wait for a FIFO that somebody put there.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What is there by name is newer, or the same: whoever ends in order voids what he removes.
        let stored = stored.filter(|_| !path.exists());
        let names_expected = if stored.is_some() { 0 } else { 1 };
        let file = match stored {
            Some(stored) => stored,
            None => rustix::fs::open(&path, flags | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR)
                .map_err(failed("open"))?,
        };
        let stat = rustix::fs::fstat(&file).map_err(failed("look at"))?;
        check_ours(&path, &stat, names_expected)?;
        // Whoever was killed may hold it for some moments yet. The disks are locked by now, so a
        // holder that stays has a copy of this cache.
        let until = Instant::now() + DEAD_HOLDER_PATIENCE;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(Errno::WOULDBLOCK) => return Err(SegmentMemoryError::InUse { path }),
                Err(errno) => return Err(failed("lock")(errno)),
            }
        }
        let mut header = [0; PAGE];
        let filled = rustix::io::pread(&file, &mut header, 0).map_err(failed("read"))?;
        let valid = filled == PAGE && is_of_this_boot(&header, boot_id);
        // An engine that has never written its part of the header has never acknowledged anything.
        let holds_writes = valid && header[..OURS.start].iter().any(|b| *b != 0);
        let found = stat.st_size as u64;
        let size = match usize::try_from(found) {
            _ if !holds_writes => size,
            Ok(size) if is_possible(found) => size,
            _ => return Err(SegmentMemoryError::Size { path, found }),
        };
        if !holds_writes {
            // Cutting to nothing and growing again makes it all zero.
            rustix::fs::ftruncate(&file, 0).map_err(failed("empty"))?;
            rustix::fs::ftruncate(&file, size as u64).map_err(failed("size"))?;
        }
        // Reserved now, so that no later store can fail (with SIGBUS) for want of room.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size as u64) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(failed("reserve")(errno)),
        }
        if !holds_writes {
            let mut ours = [0; OURS.end - OURS.start];
            ours[..8].copy_from_slice(&MAGIC);
            ours[8..8 + BOOT_ID_BYTES].copy_from_slice(boot_id);
            rustix::io::pwrite(&file, &ours, OURS.start as u64).map_err(failed("write"))?;
        }
        let mapping = Arc::new(Mapping::new(&file, size).map_err(failed("map"))?);
        let memory = SharedSegmentMemory { mapping: mapping.clone() };
        Ok((SegmentFile { path, file, mapping, was_found: holds_writes }, memory))
    }

    /// The mapping, for I/O from it.
    pub fn mapping(&self) -> Arc<Mapping> {
        self.mapping.clone()
    }

    /// The name under which a service manager keeps a descriptor of it.
    pub fn stored_name(uuid: Uuid) -> String {
        format!("segments-{uuid}")
    }

    /// A descriptor for somebody who keeps it when we are killed: opened anew, because a lock belongs to what was opened, and
    /// would be kept with it.
    ///
    /// # Errors
    /// Without `/proc`.
    pub fn descriptor_to_keep(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file if nobody's writes were in it.
    pub fn remove_if_new(self) {
        if !self.was_found {
            self.remove();
        }
    }

    /// Removes the file after a stop in order: everything it held is on the cache-disk.
    pub fn remove(self) {
        // A descriptor of it may be kept somewhere; nobody shall find writes in it.
        let _ = rustix::io::pwrite(&self.file, &[0; PAGE], 0);
        // Another file may have taken the name; ours goes with its last opener anyway.
        let same = match (rustix::fs::fstat(&self.file), rustix::fs::lstat(&self.path)) {
            (Ok(ours), Ok(there)) => (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino),
            _ => false,
        };
        if same {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

fn check_ours(
    path: &Path,
    stat: &rustix::fs::Stat,
    names_expected: u64,
) -> Result<(), SegmentMemoryError> {
    let not_ours =
        |expected, found| SegmentMemoryError::NotOurs { path: path.to_owned(), expected, found };
    let uid = rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(not_ours("a regular file", format!("mode {:o}", stat.st_mode)));
    }
    if stat.st_uid != uid {
        return Err(not_ours("our user as its owner", format!("user {}", stat.st_uid)));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(not_ours("mode 600", format!("mode {:o}", stat.st_mode & 0o777)));
    }
    if stat.st_nlink != names_expected {
        let expected = if names_expected == 1 { "one name" } else { "no name any more" };
        return Err(not_ours(expected, format!("{} names", stat.st_nlink)));
    }
    Ok(())
}

fn is_of_this_boot(header: &[u8; PAGE], boot_id: &[u8; BOOT_ID_BYTES]) -> bool {
    let ours = &header[OURS];
    ours[..8] == MAGIC && ours[8..8 + BOOT_ID_BYTES] == *boot_id
}

/// The boot id of the machine. Without one (no /proc) every start counts as another boot would be
/// unsafe the other way round, so a fixed text stands for it: memory is then trusted.
fn current_boot_id() -> [u8; BOOT_ID_BYTES] {
    let mut id = [b'-'; BOOT_ID_BYTES];
    if let Ok(text) = fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        for (to, from) in id.iter_mut().zip(text.trim().bytes()) {
            *to = from;
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT_1: [u8; BOOT_ID_BYTES] = [b'1'; BOOT_ID_BYTES];
    const BOOT_2: [u8; BOOT_ID_BYTES] = [b'2'; BOOT_ID_BYTES];
    const SIZE: usize = 3 * PAGE;

    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("dcd-memory-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    fn is_possible(size: u64) -> bool {
        size.is_multiple_of(PAGE as u64)
    }

    fn fill(memory: &mut SharedSegmentMemory) {
        memory.bytes_mut()[..8].fill(1);
        memory.bytes_mut()[PAGE..].fill(2);
    }

    #[test]
    fn outlives_its_user_within_one_boot() {
        let path = path("boot");
        let (file, mut memory) =
            SegmentFile::open_in_boot(path.clone(), None, SIZE, &is_possible, &BOOT_1).unwrap();
        assert!(!file.was_found);
        assert!(memory.bytes()[..OURS.start].iter().all(|b| *b == 0));
        fill(&mut memory);
        drop((file, memory));
        let (file, memory) =
            SegmentFile::open_in_boot(path.clone(), None, SIZE, &is_possible, &BOOT_1).unwrap();
        assert!(file.was_found);
        assert_eq!((memory.bytes()[0], memory.bytes()[SIZE - 1]), (1, 2));
        drop((file, memory));
        // After a boot it is all zero, ours apart.
        let (file, memory) =
            SegmentFile::open_in_boot(path.clone(), None, SIZE, &is_possible, &BOOT_2).unwrap();
        assert!(!file.was_found);
        assert!(memory.bytes()[..OURS.start].iter().all(|b| *b == 0));
        assert!(memory.bytes()[PAGE..].iter().all(|b| *b == 0));
        file.remove();
        assert!(!path.exists());
    }

    #[test]
    fn memory_that_holds_writes_keeps_its_size() {
        let path = path("size");
        let (_, memory) =
            SegmentFile::open_in_boot(path.clone(), None, SIZE, &is_possible, &BOOT_1).unwrap();
        drop(memory);
        let (file, mut memory) =
            SegmentFile::open_in_boot(path.clone(), None, 2 * SIZE, &is_possible, &BOOT_1).unwrap();
        fill(&mut memory);
        drop((file, memory));
        let (file, memory) =
            SegmentFile::open_in_boot(path.clone(), None, SIZE, &is_possible, &BOOT_1).unwrap();
        assert_eq!((file.mapping().len(), memory.bytes()[2 * SIZE - 1]), (2 * SIZE, 2));
        drop((file, memory));
        // Not a size that it can have had.
        fs::File::options().write(true).open(&path).unwrap().set_len(SIZE as u64 + 1).unwrap();
        assert!(matches!(
            SegmentFile::open_in_boot(path.clone(), None, SIZE, &is_possible, &BOOT_1),
            Err(SegmentMemoryError::Size { .. })
        ));
        let (file, _) = SegmentFile::open_in_boot(path, None, SIZE, &is_possible, &BOOT_2).unwrap();
        file.remove();
    }

    #[test]
    fn a_kept_descriptor_stands_for_a_file_that_is_gone() {
        let path = path("kept");
        let open =
            |stored| SegmentFile::open_in_boot(path.clone(), stored, SIZE, &is_possible, &BOOT_1);
        let (file, mut memory) = open(None).unwrap();
        fill(&mut memory);
        let kept = || file.descriptor_to_keep().unwrap();
        let (first, second, third) = (kept(), kept(), kept());
        drop(memory);
        // Killed, and somebody cleans up: only the descriptor has it now.
        rustix::fs::flock(&file.file, FlockOperation::Unlock).unwrap();
        fs::remove_file(&path).unwrap();
        let (again, memory) = open(Some(first)).unwrap();
        assert!(again.was_found);
        assert_eq!((memory.bytes()[0], memory.bytes()[SIZE - 1]), (1, 2));
        drop(memory);
        // An end in order: what is kept has no writes any more.
        rustix::fs::flock(&again.file, FlockOperation::Unlock).unwrap();
        again.remove();
        let (after, memory) = open(Some(second)).unwrap();
        assert!(!after.was_found);
        assert!(memory.bytes()[PAGE..].iter().all(|byte| *byte == 0));
        drop((after, memory));
        // A file that is there by name goes before what is kept.
        let (named, _memory) = open(None).unwrap();
        rustix::fs::flock(&named.file, FlockOperation::Unlock).unwrap();
        let inode = |file: &SegmentFile| rustix::fs::fstat(&file.file).unwrap().st_ino;
        let (found, _memory) = open(Some(third)).unwrap();
        assert_eq!(inode(&found), inode(&named));
        found.remove();
    }

    #[test]
    fn only_one_user_and_no_strangers() {
        let path = path("user");
        let (file, _memory) =
            SegmentFile::open_in_boot(path.clone(), None, SIZE, &is_possible, &BOOT_1).unwrap();
        assert!(matches!(
            SegmentFile::open_in_boot(path.clone(), None, SIZE, &is_possible, &BOOT_1),
            Err(SegmentMemoryError::InUse { .. })
        ));
        file.remove();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(
            SegmentFile::open_in_boot(path.clone(), None, SIZE, &is_possible, &BOOT_1).is_err()
        );
        fs::remove_file(&path).unwrap();
        fs::write(&path, "open to all").unwrap();
        assert!(matches!(
            SegmentFile::open_in_boot(path.clone(), None, SIZE, &is_possible, &BOOT_1),
            Err(SegmentMemoryError::NotOurs { .. })
        ));
        fs::remove_file(&path).unwrap();
    }
}
