//! Memory of the segment buffers that outlives the process (contract C4): a file in a directory of
//! our own, in memory ([`crate::memory::places`]).
//!
//! It survives `kill -9` of the daemon and of its whole process group, and is removed after a stop
//! in order. What it holds is worth something only within one boot of the machine: a boot id in the
//! first page tells. Its identity, beside that, is in the superblock of the session that it is of:
//! which file a start takes, and what it does without, is decided in [`crate::memory::search`].
//! Memory that survived keeps its size, whatever the settings ask for: the number of segment
//! buffers changes after a stop in order only. Of a service, systemd keeps a descriptor of the
//! file, so that it outlives who cleans up, too; while it is served, [`crate::memory::watch`] puts
//! it back where it was removed.
//!
//! ```text
//! 0..3776       header page, the engine's
//! 3776..4032    name of the cache-disk, for people
//! 4032..4096    magic, boot id, identity
//! 4096..        the engine's
//! ```

use std::ffi::c_void;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dcd_engine::log::control;
use dcd_engine::{MemoryUse, SegmentMemory, Uuid};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

pub use crate::memory::error::SegmentMemoryError;
use crate::memory::fault;
use crate::memory::places;

/// Where the engine's part of the first page ends, and the name of the cache-disk begins.
const CACHE_DISK: Range<usize> = 3776..4032;
/// Where what tells the file from others is.
const OURS: Range<usize> = 4032..4096;
const PAGE: usize = 4096;
/// "dcdSHMEM" in ASCII.
const MAGIC: [u8; 8] = *b"dcdSHMEM";
const BOOT_ID: Range<usize> = 4040..4076;
const MEMORY_ID: Range<usize> = 4076..4092;
/// How long a former holder that is being ended by the kernel is waited for.
const DEAD_HOLDER_PATIENCE: Duration = Duration::from_secs(1);

/// Which memory this is; 0: of a program that gave none.
pub type MemoryId = [u8; 16];

/// A boot of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootId([u8; 36]);

impl BootId {
    /// The present one. Without one (no /proc) to count every start as another boot would be unsafe
    /// the other way round, so a fixed text stands for it: memory is then trusted.
    pub fn current() -> BootId {
        let mut id = [b'-'; 36];
        if let Ok(text) = fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            for (to, from) in id.iter_mut().zip(text.trim().bytes()) {
                *to = from;
            }
        }
        BootId(id)
    }

    /// As the superblock has it.
    pub fn bytes(&self) -> [u8; 16] {
        let digits = self.0.iter().filter_map(|byte| char::from(*byte).to_digit(16));
        let digits: Vec<u8> = digits.map(|digit| digit as u8).collect();
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        bytes
    }
}

/// What the first page of a file says.
#[derive(Clone, Copy)]
pub struct MemoryHeader([u8; PAGE]);

impl MemoryHeader {
    /// Of a file; `None`: it is too short.
    pub(crate) fn read(file: &OwnedFd) -> Result<Option<MemoryHeader>, Errno> {
        let mut page = [0; PAGE];
        let filled = rustix::io::pread(file, &mut page, 0)?;
        Ok((filled == PAGE).then_some(MemoryHeader(page)))
    }

    fn new(boot: BootId, id: MemoryId, cache_disk: &str) -> MemoryHeader {
        let mut page = [0; PAGE];
        page[OURS][..8].copy_from_slice(&MAGIC);
        page[BOOT_ID].copy_from_slice(&boot.0);
        page[MEMORY_ID].copy_from_slice(&id);
        // A name that is too long loses its end, not in the middle of a letter.
        let cut = cache_disk.floor_char_boundary(CACHE_DISK.len());
        page[CACHE_DISK][..cut].copy_from_slice(&cache_disk.as_bytes()[..cut]);
        MemoryHeader(page)
    }

    /// Whether it is of this boot; nothing in memory of another counts.
    pub fn is_of(&self, boot: BootId) -> bool {
        self.0[OURS][..8] == MAGIC && self.0[BOOT_ID] == boot.0
    }

    /// Whether it is a segment memory at all.
    pub fn is_ours(&self) -> bool {
        self.0[OURS][..8] == MAGIC
    }

    /// Its identity.
    pub fn id(&self) -> MemoryId {
        self.0[MEMORY_ID].try_into().expect("sixteen bytes")
    }

    /// Whether an engine has written its part of it: one that never has has acknowledged nothing.
    pub fn holds_writes(&self) -> bool {
        self.0[..CACHE_DISK.start].iter().any(|byte| *byte != 0)
    }

    /// The session that it is of: the generation of the superblock that opened it.
    pub fn session(&self) -> Option<u64> {
        control::session(&self.0)
    }

    /// The cache-disk that it belongs to, as it was named when the file was made; for people.
    pub fn cache_disk(&self) -> String {
        let name = &self.0[CACHE_DISK];
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
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
        let start: NonNull<u8> = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        fault::tell_of_segments(start.as_ptr() as usize, len);
        Ok(Mapping { start, len })
    }

    /// A mapping of the medium of the tier in front of the log: of a file in memory, which is
    /// locked and fully allocated, or of memory that stands for a device.
    pub(crate) fn of_medium(file: Option<BorrowedFd<'_>>, len: usize) -> Result<Mapping, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe {
            match file {
                Some(file) => {
                    let shared = flags | MapFlags::SHARED;
                    rustix::mm::mmap(std::ptr::null_mut(), len, protection, shared, file, 0)
                }
                None => {
                    let private = flags | MapFlags::PRIVATE;
                    rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, private)
                }
            }
        }?;
        fault::expect_faults();
        Ok(Mapping { start: NonNull::new(start.cast()).ok_or(Errno::FAULT)?, len })
    }

    /// A mapping of a file on persistent memory, of which the kernel promises that whatever is in it
    /// is found there after a loss of power, once the processor has written it back
    /// (`MAP_SYNC`, Linux 4.15, on a file system that is mounted with DAX). `None`: it is none.
    ///
    /// # Errors
    /// If it cannot be mapped.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn of_persistent_memory(
        file: BorrowedFd<'_>,
        len: usize,
    ) -> Result<Option<Mapping>, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // With it flags that are not known are refused, and not ignored.
        let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) };
        match start {
            Ok(start) => {
                fault::expect_faults();
                Ok(Some(Mapping { start: NonNull::new(start.cast()).ok_or(Errno::FAULT)?, len }))
            }
            Err(Errno::NOMEM) => Err(Errno::NOMEM),
            // No DAX, a kernel that does not know of it, or a file system that maps nothing.
            Err(_) => Ok(None),
        }
    }

    /// How caches are written back is not known here, so such a file is written as one of a disk.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn of_persistent_memory(
        _file: BorrowedFd<'_>,
        _len: usize,
    ) -> Result<Option<Mapping>, Errno> {
        Ok(None)
    }

    /// Moves another mapping of the same size to the addresses of this one, in one step. What it
    /// maps must hold the same: whoever reads meanwhile (an I/O) sees the one or the other.
    fn become_this(&self, other: Mapping) {
        assert_eq!(self.len, other.len, "mappings of one size");
        let (from, to) = (other.start.as_ptr().cast(), self.start.as_ptr().cast());
        // SAFETY: both ranges are mappings of ours. Nobody has a reference into either: `other` is
        // new, and whoever owns the `SharedSegmentMemory` of this one lends from it only while an
        // engine runs.
        let moved =
            unsafe { rustix::mm::mremap_fixed(from, self.len, self.len, MremapFlags::MAYMOVE, to) };
        // What was mapped here may be gone, so nothing can go on. A start finds the file that has
        // the name by now.
        moved.expect("the kernel moves a mapping");
        fault::tell_of_segments(self.start.as_ptr() as usize, self.len);
        // Its old addresses are free already.
        std::mem::forget(other);
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

    /// The bytes of a range as they are now: for who does not give them to the kernel.
    ///
    /// # Panics
    /// If the range does not lie within the mapping.
    pub(crate) fn copy_of(&self, range: &Range<usize>) -> dcd_engine::Buffer {
        let address = self.address(range);
        // SAFETY: within the mapping, which is there as long as this. The engine writes to it on
        // this thread, which is here, and gives away what it has filled.
        dcd_engine::Buffer::copy_of(unsafe { std::slice::from_raw_parts(address, range.len()) })
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

impl SharedSegmentMemory {
    /// The one view of a mapping of [`Mapping::of_medium`].
    pub(crate) fn of_medium(mapping: Mapping) -> (SharedSegmentMemory, Arc<Mapping>) {
        let mapping = Arc::new(mapping);
        (SharedSegmentMemory { mapping: mapping.clone() }, mapping)
    }

    /// Stores 8 bytes at once, behind all stores before.
    ///
    /// # Panics
    /// If they do not lie within the mapping, at a multiple of 8.
    pub(crate) fn store_word(&mut self, at: usize, word: u64) {
        assert!(at.is_multiple_of(8) && at + 8 <= self.mapping.len, "a word of the memory");
        // SAFETY: within the mapping, and aligned, since that begins with a page. `&mut self`
        // excludes references of ours; the kernel reads nothing that is being stored.
        let to = unsafe { AtomicU64::from_ptr(self.mapping.start.as_ptr().add(at).cast()) };
        to.store(word.to_le(), Ordering::Release);
    }
}

/// Bytes that a processor writes back at once.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;

#[cfg(target_arch = "x86_64")]
impl SharedSegmentMemory {
    /// Begins to write back what was stored into these bytes; what was begun is done with
    /// [`SharedSegmentMemory::written_back`].
    ///
    /// # Panics
    /// If they do not lie within the mapping.
    pub(crate) fn write_back(&self, bytes: Range<usize>) {
        assert!(bytes.start <= bytes.end && bytes.end <= self.mapping.len, "within the memory");
        let first = bytes.start / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
        for at in (first..bytes.end).step_by(CACHE_LINE_BYTES) {
            // SAFETY: each line has a byte of the mapping, and nothing in it changes by this. SSE2,
            // of which it is a part, is in each x86_64.
            unsafe { std::arch::x86_64::_mm_clflush(self.mapping.start.as_ptr().add(at)) };
        }
    }

    /// When it returns, all that was begun is in the memory itself.
    pub(crate) fn written_back(&self) {
        // SAFETY: it orders stores of this processor, and needs SSE, as above.
        unsafe { std::arch::x86_64::_mm_mfence() };
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl SharedSegmentMemory {
    pub(crate) fn write_back(&self, _bytes: Range<usize>) {
        unreachable!("there is no persistent memory here: `Mapping::of_persistent_memory`")
    }

    pub(crate) fn written_back(&self) {
        unreachable!("there is no persistent memory here: `Mapping::of_persistent_memory`")
    }
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

/// A file that may be a memory; nothing in it has been changed.
pub struct FoundMemory {
    file: OwnedFd,
    stat: Stat,
    /// Its first page, if it has one.
    pub header: Option<MemoryHeader>,
}

impl FoundMemory {
    /// The file of this name. Whose it is, the caller decides.
    pub fn at(path: &Path) -> Result<FoundMemory, SegmentMemoryError> {
        // NONBLOCK: never wait for a FIFO that somebody put there.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            // What may not be opened tells whose it is all the same.
            Err(Errno::ACCESS) if places::owner(path).is_some_and(|owner| owner != user()) => {
                let owner = places::owner(path).unwrap_or_default();
                return Err(SegmentMemoryError::OfUser { path: path.to_owned(), owner });
            }
            opened => opened.map_err(failed(path, "open"))?,
        };
        FoundMemory::of(file, path, 1..=1)
    }

    /// One that was kept for us, under whatever name it has, or none.
    pub fn kept(file: OwnedFd, path: &Path) -> Result<FoundMemory, SegmentMemoryError> {
        // A lock belongs to what was opened, and would be kept with it.
        let file = reopen(&file).unwrap_or(file);
        FoundMemory::of(file, path, 0..=1)
    }

    fn of(
        file: OwnedFd,
        path: &Path,
        names: std::ops::RangeInclusive<u64>,
    ) -> Result<FoundMemory, SegmentMemoryError> {
        let stat = rustix::fs::fstat(&file).map_err(failed(path, "look at"))?;
        check_private(path, &stat, names)?;
        let header = MemoryHeader::read(&file).map_err(failed(path, "read"))?;
        Ok(FoundMemory { file, stat, header })
    }

    /// Whose it is.
    pub fn owner(&self) -> u32 {
        self.stat.st_uid
    }

    /// Whether this name leads to it.
    pub fn is_at(&self, path: &Path) -> bool {
        is_same(&self.stat, path)
    }

    /// Takes it into use as it is. Its size must be one that `is_possible`. `id` is noted in it if
    /// it has none.
    pub fn adopt(
        self,
        path: PathBuf,
        id: MemoryId,
        is_possible: &dyn Fn(u64) -> bool,
    ) -> Result<(SegmentFile, SharedSegmentMemory), SegmentMemoryError> {
        lock(&self.file, &path)?;
        let found = self.stat.st_size as u64;
        let size = match usize::try_from(found) {
            Ok(size) if is_possible(found) => size,
            _ => return Err(SegmentMemoryError::Size { path, found }),
        };
        if self.header.is_some_and(|header| header.id() != id) {
            rustix::io::pwrite(&self.file, &id, MEMORY_ID.start as u64)
                .map_err(failed(&path, "write"))?;
        }
        reserve(&self.file, size).map_err(failed(&path, "reserve"))?;
        let mapping = Mapping::new(&self.file, size).map_err(failed(&path, "map"))?;
        let file = SegmentFile {
            path,
            owner: self.stat.st_uid,
            file: self.file,
            mapping: Arc::new(mapping),
            id,
            was_found: true,
            is_kept: true,
        };
        let memory = SharedSegmentMemory { mapping: file.mapping.clone() };
        Ok((file, memory))
    }
}

/// The file below the memory. A new one goes when this is dropped, unless a session has begun with
/// it.
pub struct SegmentFile {
    path: PathBuf,
    owner: u32,
    file: OwnedFd,
    mapping: Arc<Mapping>,
    id: MemoryId,
    /// Whether it held something from a former process of this boot.
    pub was_found: bool,
    is_kept: bool,
}

impl SegmentFile {
    /// Name of the file of a cache.
    pub fn path_of(directory: &Path, uuid: Uuid) -> PathBuf {
        directory.join(format!("dcd-{uuid}.segments"))
    }

    /// Makes a new one, of zeroes. What is there under its name, and in nobody's use, is given up:
    /// whoever calls has seen that nothing in it counts.
    pub fn create(
        path: PathBuf,
        size: usize,
        boot: BootId,
        id: MemoryId,
        cache_disk: &str,
    ) -> Result<(SegmentFile, SharedSegmentMemory), SegmentMemoryError> {
        // NONBLOCK: never wait for a FIFO that somebody put there.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR)
            .map_err(failed(&path, "open"))?;
        let stat = rustix::fs::fstat(&file).map_err(failed(&path, "look at"))?;
        check_private(&path, &stat, 1..=1)?;
        if stat.st_uid != user() {
            return Err(SegmentMemoryError::OfUser { path, owner: stat.st_uid });
        }
        lock(&file, &path)?;
        match fill_new(&file, size, &MemoryHeader::new(boot, id, cache_disk), &path) {
            Ok(mapping) => {
                let mapping = Arc::new(mapping);
                let memory = SharedSegmentMemory { mapping: mapping.clone() };
                let (was_found, is_kept, owner) = (false, false, user());
                Ok((SegmentFile { path, owner, file, mapping, id, was_found, is_kept }, memory))
            }
            Err(error) => {
                // Room that was found to be too small is given back.
                let _ = rustix::fs::unlink(&path);
                Err(error)
            }
        }
    }

    /// The mapping, for I/O from it.
    pub fn mapping(&self) -> Arc<Mapping> {
        self.mapping.clone()
    }

    /// Its identity.
    pub fn id(&self) -> MemoryId {
        self.id
    }

    /// The name under which a service manager keeps a descriptor of it.
    pub fn stored_name(uuid: Uuid) -> String {
        format!("segments-{uuid}")
    }

    /// A descriptor for somebody who keeps it when we are killed: opened anew, because a lock
    /// belongs to what was opened, and would be kept with it.
    ///
    /// # Errors
    /// Without `/proc`.
    pub fn descriptor_to_keep(&self) -> io::Result<OwnedFd> {
        Ok(reopen(&self.file)?)
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is of our own user.
    pub fn is_of_user(&self) -> bool {
        self.owner == user()
    }

    /// The directory that it is in.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// From here on it may hold what is acknowledged and nowhere else: it stays, whatever happens.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// The engine that used it is gone. What becomes of it: one that no session has begun with was
    /// made in vain, and what the last one has is on the cache-disk, if it ended in order.
    pub fn end(mut self, last_use: MemoryUse) {
        match last_use {
            MemoryUse::NotBegun => {}
            MemoryUse::InUse => self.is_kept = true,
            MemoryUse::Over => self.is_kept = false,
        }
    }

    /// Whether its name leads to it, so that the next start will find it.
    pub fn is_in_place(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|ours| is_same(&ours, &self.path))
    }

    /// Gives it another name, in a directory that is better, and the name that it had to nobody. To
    /// be called where no engine runs meanwhile.
    ///
    /// ```text
    /// 1. A copy takes the new name.
    ///      Death here: a start finds either, and both hold the same.
    /// 2. It is used from here on, and the old one is emptied.
    /// 3. The old name goes.
    ///      Death before: it leads to an empty file, which is not taken for it.
    /// ```
    pub fn move_to(&mut self, path: PathBuf) -> Result<(), SegmentMemoryError> {
        let was_in_place = self.is_in_place();
        let old_path = std::mem::replace(&mut self.path, path);
        match self.put_back() {
            Ok(_) => {
                if was_in_place {
                    let _ = rustix::fs::unlink(&old_path);
                    remove_directory_of(&old_path);
                }
                Ok(())
            }
            Err(error) => {
                self.path = old_path;
                Err(error)
            }
        }
    }

    /// Its name is gone, or leads to another file: makes a file that has it, holds the same and is
    /// used from here on. What somebody else put there is moved aside; tells to where. To be called
    /// where no engine runs meanwhile.
    pub fn put_back(&mut self) -> Result<Option<PathBuf>, SegmentMemoryError> {
        let new_path = self.path.with_added_extension("new");
        let _ = rustix::fs::unlink(&new_path);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let new = rustix::fs::open(&new_path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(failed(&self.path, "put back"))?;
        let put_back = self.put_back_as(&new, &new_path);
        match put_back {
            Ok(displaced) => {
                // The old one may be kept somewhere, or have another name; nobody shall find writes
                // in it.
                let old = std::mem::replace(&mut self.file, new);
                self.owner = user();
                let _ = rustix::io::pwrite(&old, &[0; PAGE], 0);
                Ok(displaced)
            }
            Err(error) => {
                let _ = rustix::fs::unlink(&new_path);
                Err(error)
            }
        }
    }

    fn put_back_as(
        &self,
        new: &OwnedFd,
        new_path: &Path,
    ) -> Result<Option<PathBuf>, SegmentMemoryError> {
        // 1. A whole copy, locked, under another name. Crash here: the old one is all there is, as
        //    before.
        lock(new, &self.path)?;
        let size = self.mapping.len();
        reserve(new, size).map_err(failed(&self.path, "put back"))?;
        let mut done = 0;
        while done < size {
            // SAFETY: mapped, of this length; nobody writes to it while no engine runs.
            let rest = unsafe {
                std::slice::from_raw_parts(self.mapping.address(&(done..size)), size - done)
            };
            match rustix::io::pwrite(new, rest, done as u64) {
                Ok(0) => return Err(failed(&self.path, "put back")(Errno::NOSPC)),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(&self.path, "put back")(errno)),
            }
        }
        let mapping = Mapping::new(new, size).map_err(failed(&self.path, "map"))?;
        // 2. It gets its name. Crash here: a start finds it, and it holds the same as the old one.
        let displaced = self.move_aside()?;
        rustix::fs::rename(new_path, &self.path).map_err(failed(&self.path, "put back"))?;
        // 3. The engine's addresses lead to it. Until then nothing has been written to either.
        self.mapping.become_this(mapping);
        Ok(displaced)
    }

    /// Moves away what has our name, if nobody uses it.
    fn move_aside(&self) -> Result<Option<PathBuf>, SegmentMemoryError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            // Another dcd with a copy of this cache: two would take turns for ever.
            Ok(file) => match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    return Err(SegmentMemoryError::InUse { path: self.path.clone() });
                }
                _ => drop(file),
            },
            // A link, a socket, something that we may not read: moved all the same.
            Err(_) => {}
        }
        let aside = self.path.with_added_extension("displaced");
        rustix::fs::rename(&self.path, &aside).map_err(failed(&self.path, "move aside"))?;
        Ok(Some(aside))
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // A descriptor of it may be kept somewhere; nobody shall find writes in it.
            let _ = rustix::io::pwrite(&self.file, &[0; PAGE], 0);
            // Another file may have taken the name; ours goes with its last opener anyway.
            if self.is_in_place() {
                let _ = rustix::fs::unlink(&self.path);
                remove_directory_of(&self.path);
            }
        }
        // Said aloud for the reasons of `DeviceFile`.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

fn failed(path: &Path, operation: &'static str) -> impl FnOnce(Errno) -> SegmentMemoryError {
    let path = path.to_owned();
    move |errno| SegmentMemoryError::Io { path, operation, source: errno.into() }
}

fn reopen(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Whoever was killed may hold it for some moments yet. The disks are locked by now, so a holder
/// that stays has a copy of this cache.
fn lock(file: &OwnedFd, path: &Path) -> Result<(), SegmentMemoryError> {
    let until = Instant::now() + DEAD_HOLDER_PATIENCE;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(SegmentMemoryError::InUse { path: path.to_owned() });
            }
            Err(errno) => return Err(failed(path, "lock")(errno)),
        }
    }
}

/// Reserved now, so that no later store can fail (with SIGBUS) for want of room.
fn reserve(file: &OwnedFd, size: usize) -> Result<(), Errno> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size as u64) {
        Err(Errno::OPNOTSUPP) => Ok(()),
        result => result,
    }
}

fn fill_new(
    file: &OwnedFd,
    size: usize,
    header: &MemoryHeader,
    path: &Path,
) -> Result<Mapping, SegmentMemoryError> {
    // Cutting to nothing and growing again makes it all zero.
    rustix::fs::ftruncate(file, 0).map_err(failed(path, "empty"))?;
    rustix::fs::ftruncate(file, size as u64).map_err(failed(path, "size"))?;
    reserve(file, size).map_err(failed(path, "reserve"))?;
    let ours = &header.0[CACHE_DISK.start..];
    rustix::io::pwrite(file, ours, CACHE_DISK.start as u64).map_err(failed(path, "write"))?;
    Mapping::new(file, size).map_err(failed(path, "map"))
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn is_same(ours: &Stat, path: &Path) -> bool {
    rustix::fs::lstat(path)
        .is_ok_and(|there| (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino))
}

/// A directory that was made for this one file.
fn remove_directory_of(path: &Path) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let uuid = name.strip_prefix("dcd-").and_then(|name| name.strip_suffix(".segments"));
    if let (Some(directory), Some(uuid)) = (path.parent(), uuid) {
        places::remove(directory, uuid);
    }
}

/// Whether a file is one that only its owner can change.
fn check_private(
    path: &Path,
    stat: &Stat,
    names: std::ops::RangeInclusive<u64>,
) -> Result<(), SegmentMemoryError> {
    let not_ours =
        |expected, found| SegmentMemoryError::NotOurs { path: path.to_owned(), expected, found };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(not_ours("a regular file", format!("mode {:o}", stat.st_mode)));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(not_ours("mode 600", format!("mode {:o}", stat.st_mode & 0o777)));
    }
    if !names.contains(&stat.st_nlink) {
        return Err(not_ours("one name", format!("{} names", stat.st_nlink)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT_1: BootId = BootId([b'1'; 36]);
    const BOOT_2: BootId = BootId([b'2'; 36]);
    const ID: MemoryId = [7; 16];
    const SIZE: usize = 3 * PAGE;

    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("dcd-memory-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    fn is_possible(size: u64) -> bool {
        size.is_multiple_of(PAGE as u64)
    }

    fn create(path: &Path) -> (SegmentFile, SharedSegmentMemory) {
        SegmentFile::create(path.to_owned(), SIZE, BOOT_1, ID, "/dev/fast").unwrap()
    }

    fn adopt(path: &Path) -> (SegmentFile, SharedSegmentMemory) {
        FoundMemory::at(path).unwrap().adopt(path.to_owned(), ID, &is_possible).unwrap()
    }

    fn fill(memory: &mut SharedSegmentMemory) {
        memory.bytes_mut()[..8].fill(1);
        memory.bytes_mut()[PAGE..].fill(2);
    }

    /// As after `kill -9`.
    fn kill(mut file: SegmentFile) {
        file.keep();
    }

    #[test]
    fn outlives_its_user_and_says_what_it_is() {
        let path = path("boot");
        let (file, mut memory) = create(&path);
        assert!(memory.bytes()[..CACHE_DISK.start].iter().all(|b| *b == 0));
        let header = FoundMemory::at(&path).unwrap().header.unwrap();
        assert!(header.is_of(BOOT_1) && !header.is_of(BOOT_2) && !header.holds_writes());
        assert_eq!((header.id(), header.cache_disk()), (ID, "/dev/fast".into()));
        fill(&mut memory);
        kill(file);
        drop(memory);
        let (file, memory) = adopt(&path);
        assert!(file.was_found && FoundMemory::at(&path).unwrap().header.unwrap().holds_writes());
        assert_eq!((memory.bytes()[0], memory.bytes()[SIZE - 1]), (1, 2));
        drop(memory);
        file.end(MemoryUse::Over);
        assert!(!path.exists());
    }

    #[test]
    fn a_new_one_goes_unless_a_session_has_begun_with_it_and_a_found_one_stays() {
        let path = path("vain");
        drop(create(&path));
        assert!(!path.exists());
        create(&path).0.end(MemoryUse::NotBegun);
        assert!(!path.exists());
        create(&path).0.end(MemoryUse::InUse);
        assert!(path.exists());
        adopt(&path).0.end(MemoryUse::NotBegun);
        drop(adopt(&path));
        assert!(path.exists());
        // What there is no room for leaves nothing either.
        fs::remove_file(&path).unwrap();
        let all = 1 << 60;
        assert!(SegmentFile::create(path.clone(), all, BOOT_1, ID, "").is_err());
        assert!(!path.exists());
    }

    #[test]
    fn what_is_made_anew_is_zero() {
        let path = path("anew");
        let (file, mut memory) = create(&path);
        fill(&mut memory);
        kill(file);
        drop(memory);
        let (_file, memory) =
            SegmentFile::create(path, 2 * SIZE, BOOT_2, ID, &"long\u{e9}".repeat(99)).unwrap();
        assert_eq!(memory.bytes().len(), 2 * SIZE);
        assert!(memory.bytes()[..CACHE_DISK.start].iter().all(|b| *b == 0));
        assert!(memory.bytes()[PAGE..].iter().all(|b| *b == 0));
    }

    #[test]
    fn memory_that_holds_writes_keeps_its_size() {
        let path = path("size");
        kill(create(&path).0);
        let file = fs::File::options().write(true).open(&path).unwrap();
        // Not a size that it can have had.
        file.set_len(SIZE as u64 + 1).unwrap();
        let found = FoundMemory::at(&path).unwrap();
        assert!(matches!(
            found.adopt(path.clone(), ID, &is_possible),
            Err(SegmentMemoryError::Size { .. })
        ));
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_kept_descriptor_stands_for_a_file_that_is_gone() {
        let path = path("kept");
        let (file, mut memory) = create(&path);
        fill(&mut memory);
        let (first, second) =
            (file.descriptor_to_keep().unwrap(), file.descriptor_to_keep().unwrap());
        drop(memory);
        kill(file);
        // Somebody cleans up: only the descriptor has it now.
        fs::remove_file(&path).unwrap();
        let found = FoundMemory::kept(first, &path).unwrap();
        let (mut again, memory) = found.adopt(path.clone(), ID, &is_possible).unwrap();
        assert_eq!((memory.bytes()[0], memory.bytes()[SIZE - 1]), (1, 2));
        assert!(!again.is_in_place());
        assert_eq!(again.put_back().unwrap(), None);
        assert!(again.is_in_place() && memory.bytes()[SIZE - 1] == 2);
        // There is one that holds writes, and no other.
        assert!(!FoundMemory::kept(second, &path).unwrap().header.unwrap().is_ours());
        drop(memory);
        again.end(MemoryUse::Over);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_was_removed_or_replaced_is_put_back_with_what_it_holds() {
        let path = path("back");
        let (mut file, mut memory) = create(&path);
        let address = memory.bytes().as_ptr();
        fill(&mut memory);
        file.keep();
        assert!(file.is_in_place());
        for round in 3..9 {
            let displaced = path.with_added_extension("displaced");
            match round % 3 {
                0 => fs::remove_file(&path).unwrap(),
                1 => {
                    fs::remove_file(&path).unwrap();
                    fs::write(&path, "somebody else's").unwrap();
                }
                _ => fs::rename(&path, path.with_added_extension("moved")).unwrap(),
            }
            assert!(!file.is_in_place());
            let told = file.put_back().unwrap();
            assert_eq!(told, (round % 3 == 1).then(|| displaced.clone()));
            assert!(file.is_in_place());
            // The engine's addresses are the same, and what is written there is in the file of the
            // name.
            assert_eq!(memory.bytes().as_ptr(), address);
            memory.bytes_mut()[PAGE + round] = round as u8;
            let found = fs::read(&path).unwrap();
            assert!(found == memory.bytes(), "round {round}");
            assert_eq!(FoundMemory::at(&path).unwrap().header.unwrap().id(), ID);
            if round % 3 == 1 {
                assert_eq!(fs::read(&displaced).unwrap(), b"somebody else's");
                fs::remove_file(displaced).unwrap();
            }
            if round % 3 == 2 {
                let moved = path.with_added_extension("moved");
                assert!(!FoundMemory::at(&moved).unwrap().header.unwrap().is_ours());
                fs::remove_file(moved).unwrap();
            }
        }
        // One that is in use by somebody else is left alone, and nothing stays of the attempt.
        fs::remove_file(&path).unwrap();
        let other = create(&path);
        assert!(matches!(file.put_back(), Err(SegmentMemoryError::InUse { .. })));
        assert!(!path.with_added_extension("new").exists());
        drop(other);
        file.put_back().unwrap();
        file.end(MemoryUse::Over);
        assert!(!path.exists());
    }

    #[test]
    fn only_one_user_and_no_strangers() {
        let path = path("user");
        let user = create(&path);
        assert!(matches!(
            SegmentFile::create(path.clone(), SIZE, BOOT_1, ID, ""),
            Err(SegmentMemoryError::InUse { .. })
        ));
        drop(user);
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(SegmentFile::create(path.clone(), SIZE, BOOT_1, ID, "").is_err());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "open to all").unwrap();
        assert!(matches!(FoundMemory::at(&path), Err(SegmentMemoryError::NotOurs { .. })));
        assert!(matches!(
            SegmentFile::create(path.clone(), SIZE, BOOT_1, ID, ""),
            Err(SegmentMemoryError::NotOurs { .. })
        ));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_boot_has_the_bytes_of_its_text() {
        let boot = BootId(*b"01234567-89ab-cdef-0123-456789abcdef");
        let expected = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes();
        assert_eq!(boot.bytes(), expected);
        assert_eq!(BootId([b'-'; 36]).bytes(), [0; 16]);
        assert!(BootId::current() == BootId::current());
    }
}
