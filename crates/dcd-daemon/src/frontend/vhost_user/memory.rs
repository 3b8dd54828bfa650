//! Memory that another process shares with this one: the guest's, and the record of requests under
//! way. All `unsafe` code of this front-end is in this file.
//!
//! Whoever is on the other side may write to it at any time. So nothing here gives out a reference
//! into it: bytes are copied out or in, once, and numbers that both sides change are atomics.
//!
//! Files are taken only if they are sealed against shrinking (`F_SEAL_SHRINK`) and long enough now.
//! A page can go all the same: a hole is punched into a file of huge pages, and somebody else takes
//! the page; memory that breaks. Each access therefore goes through [`crate::memory::fault`]: if a
//! page is gone, the mapping becomes zeroes, [`is_lost`] says so, and the connection ends.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::memory::fault;
pub(crate) use crate::memory::fault::{forget_lost, is_lost};

/// Regions of guest memory at a time: as many as QEMU has slots for memory modules.
pub const REGIONS_MAX: usize = 256;
const PAGE: u64 = 4096;
/// The largest pages that there are.
const PAGE_MAX: u64 = 1 << 30;

/// Why shared memory is refused.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Its file may become shorter.
    #[error("the memory's file is not sealed against shrinking (F_SEAL_SHRINK)")]
    NotSealed,
    /// Its file is shorter than what is to be mapped.
    #[error("expected a file of at least {expected} bytes of memory, found {found}")]
    FileTooShort {
        /// What is needed.
        expected: u64,
        /// What there is.
        found: u64,
    },
    /// No bytes, or more than addresses reach.
    #[error("a region of {size} bytes from address {start:#x} and file offset {offset}")]
    Bounds {
        /// First address.
        start: u64,
        /// Length.
        size: u64,
        /// In its file.
        offset: u64,
    },
    /// Two regions have addresses in common.
    #[error("the region of {size} bytes from address {start:#x} overlaps another")]
    Overlap {
        /// First address.
        start: u64,
        /// Length.
        size: u64,
    },
    /// More than are kept.
    #[error("more than {REGIONS_MAX} regions of memory")]
    TooMany,
    /// No such region.
    #[error("there is no region of {size} bytes from address {start:#x}")]
    NoRegion {
        /// First address.
        start: u64,
        /// Length.
        size: u64,
    },
    /// The system refused.
    #[error("cannot {operation} shared memory: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
}

fn system(operation: &'static str) -> impl FnOnce(rustix::io::Errno) -> MemoryError {
    move |errno| MemoryError::System { operation, source: errno.into() }
}

/// A mapped part of a file that cannot shrink.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: NonNull<u8>,
    mapping_len: usize,
    /// Where the part begins within the mapping, which begins at a page.
    skipped: usize,
    len: usize,
}

impl SharedMemory {
    /// Maps `len` bytes from `offset` of a file on.
    pub fn map(file: impl AsFd, offset: u64, len: u64) -> Result<SharedMemory, MemoryError> {
        if len == 0 || offset.checked_add(len).is_none() {
            return Err(MemoryError::Bounds { start: 0, size: len, offset });
        }
        // Other files than of memory have no seals, and say EINVAL.
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| MemoryError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::NotSealed);
        }
        SharedMemory::map_any(file, offset, len)
    }

    /// The same of a file that may be cut short.
    fn map_any(file: impl AsFd, offset: u64, len: u64) -> Result<SharedMemory, MemoryError> {
        fault::expect_faults();
        let bounds = || MemoryError::Bounds { start: 0, size: len, offset };
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or_else(bounds)?;
        // After the seals: from now on it cannot be less.
        let stat = rustix::fs::fstat(&file).map_err(system("look at"))?;
        let found = u64::try_from(stat.st_size).unwrap_or(0);
        if found < end {
            return Err(MemoryError::FileTooShort { expected: end, found });
        }
        // Huge pages are mapped from the start of one to the end of one.
        let page = u64::try_from(stat.st_blksize).unwrap_or(PAGE);
        let page = if page.is_power_of_two() { page.clamp(PAGE, PAGE_MAX) } else { PAGE };
        let start = offset / page * page;
        let mapping_len = end.checked_next_multiple_of(page).ok_or_else(bounds)? - start;
        let mapping_len = usize::try_from(mapping_len).map_err(|_| bounds())?;
        let (len, skipped) = (len as usize, (offset - start) as usize);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let mapping = unsafe {
            let nowhere = std::ptr::null_mut();
            rustix::mm::mmap(nowhere, mapping_len, protection, MapFlags::SHARED, &file, start)
        };
        let mapping = mapping.map_err(system("map"))?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(bounds)?;
        // A core dump of this process has no business with a guest's memory. SAFETY: exactly the
        // mapping that has just been made; the advice changes nothing that can be seen in memory.
        let _ = unsafe {
            let advice = rustix::mm::Advice::LinuxDontDump;
            rustix::mm::madvise(mapping.as_ptr().cast(), mapping_len, advice)
        };
        Ok(SharedMemory { mapping, mapping_len, skipped, len })
    }

    /// New memory of zeroes, and the sealed file that it lies in, to be handed to another process.
    pub fn new(name: &str, len: u64) -> Result<(SharedMemory, OwnedFd), MemoryError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags).map_err(system("make"))?;
        rustix::fs::ftruncate(&file, len).map_err(system("make"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(system("seal"))?;
        Ok((SharedMemory::map(&file, 0, len)?, file))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a part without bytes is refused.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of a range, if it lies within the memory.
    fn address(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        if end > self.len {
            return None;
        }
        // SAFETY: `skipped + len` bytes were mapped, and `offset` is at most `len`.
        Some(unsafe { self.mapping.as_ptr().add(self.skipped + offset) })
    }

    /// Touches it: it may become zeroes meanwhile.
    fn guarded<T>(&self, touch: impl FnOnce() -> T) -> T {
        fault::guarded(self.mapping.as_ptr() as usize, self.mapping_len, touch)
    }

    /// Copies out; whether the range lies within the memory.
    #[must_use]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        let Some(from) = self.address(offset, into.len()) else { return false };
        self.guarded(|| SharedMemory::copy_out(from, into));
        true
    }

    fn copy_out(from: *mut u8, into: &mut [u8]) {
        let words = if from.cast::<u64>().is_aligned() { into.len() / 8 } else { 0 };
        let (head, tail) = into.split_at_mut(words * 8);
        for (index, word) in head.chunks_exact_mut(8).enumerate() {
            // SAFETY: within the range that `read` has checked, and aligned; volatile, because
            // others write here meanwhile. Any bytes are a number.
            let value = unsafe { from.cast::<u64>().add(index).read_volatile() };
            word.copy_from_slice(&value.to_ne_bytes());
        }
        for (index, byte) in tail.iter_mut().enumerate() {
            // SAFETY: as above; a byte is always aligned.
            *byte = unsafe { from.add(words * 8 + index).read_volatile() };
        }
    }

    /// Copies in; whether the range lies within the memory.
    #[must_use]
    pub fn write(&self, offset: usize, from: &[u8]) -> bool {
        let Some(to) = self.address(offset, from.len()) else { return false };
        self.guarded(|| SharedMemory::copy_in(to, from));
        true
    }

    fn copy_in(to: *mut u8, from: &[u8]) {
        let words = if to.cast::<u64>().is_aligned() { from.len() / 8 } else { 0 };
        let (head, tail) = from.split_at(words * 8);
        for (index, word) in head.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: within the range that `write` has checked, and aligned; volatile, because
            // others read here meanwhile. No reference into the mapping is ever made, so none is
            // broken.
            unsafe { to.cast::<u64>().add(index).write_volatile(u64::from_ne_bytes(*word)) };
        }
        for (index, byte) in tail.iter().enumerate() {
            // SAFETY: as above; a byte is always aligned.
            unsafe { to.add(words * 8 + index).write_volatile(*byte) };
        }
    }

    /// A number that both sides read and write.
    fn number(&self, offset: usize) -> Option<&AtomicU16> {
        let address = self.address(offset, 2)?.cast::<u16>();
        if !address.is_aligned() {
            return None;
        }
        // SAFETY: two bytes within the mapping, aligned, that live as long as `self`; in this
        // process they are reached by atomics and volatile copies only.
        Some(unsafe { AtomicU16::from_ptr(address) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; nobody holds a reference into it, since
        // `number` borrows `self`.
        let _ = unsafe { rustix::mm::munmap(self.mapping.as_ptr().cast(), self.mapping_len) };
    }
}

/// A range of shared memory that stays mapped as long as this lives.
#[derive(Clone, Debug)]
pub struct Area {
    memory: Rc<SharedMemory>,
    offset: usize,
    len: usize,
}

impl Area {
    /// A range of `memory`, if there is one at which numbers are aligned: where a mapping begins in
    /// its file, and so here, is the other side's choice.
    pub fn new(memory: &Rc<SharedMemory>, offset: u64, len: u64) -> Option<Area> {
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        memory.address(offset, len).filter(|address| address.cast::<u16>().is_aligned())?;
        Some(Area { memory: memory.clone(), offset, len })
    }

    fn within(&self, offset: usize, len: usize) -> usize {
        let end = offset.checked_add(len).expect("offsets within an area are small");
        assert!(end <= self.len, "{offset}+{len} of an area of {} bytes", self.len);
        self.offset + offset
    }

    /// Copies out.
    ///
    /// # Panics
    /// If the range does not lie within the area; all offsets come from layouts, none from the
    /// other side.
    pub fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        assert!(self.memory.read(self.within(offset, N), &mut bytes), "the area is in the memory");
        bytes
    }

    /// Copies in. Panics like [`Area::read`].
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let offset = self.within(offset, bytes.len());
        assert!(self.memory.write(offset, bytes), "the area is in the memory");
    }

    fn number(&self, offset: usize) -> &AtomicU16 {
        let offset = self.within(offset, 2);
        self.memory.number(offset).expect("numbers of an area are aligned")
    }

    /// A number, and everything that the other side wrote before it.
    pub fn load(&self, offset: usize) -> u16 {
        let number = self.number(offset);
        u16::from_le(self.memory.guarded(|| number.load(Ordering::Acquire)))
    }

    /// A number, after everything that was written before.
    pub fn store(&self, offset: usize, value: u16) {
        let number = self.number(offset);
        self.memory.guarded(|| number.store(value.to_le(), Ordering::Release));
    }
}

/// One range of the guest's addresses.
#[derive(Debug)]
pub struct Region {
    /// Where the guest has it.
    pub guest: u64,
    /// Where the front-end has it, which says in its own addresses where rings are.
    pub user: u64,
    /// Length.
    pub size: u64,
    memory: Rc<SharedMemory>,
}

impl Region {
    /// Maps a region.
    pub fn map(
        guest: u64,
        user: u64,
        size: u64,
        file: impl AsFd,
        offset: u64,
    ) -> Result<Region, MemoryError> {
        for start in [guest, user] {
            if size == 0 || start.checked_add(size).is_none() {
                return Err(MemoryError::Bounds { start, size, offset });
            }
        }
        let memory = Rc::new(SharedMemory::map(file, offset, size)?);
        Ok(Region { guest, user, size, memory })
    }
}

/// A guest address range that no region, or only part of one, holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{len} bytes from address {address:#x} are not all in the guest's memory")]
pub struct OutsideMemory {
    /// First address.
    pub address: u64,
    /// Length.
    pub len: u64,
}

/// Memory that a guest names by addresses.
pub trait GuestBytes {
    /// Copies out of it.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), OutsideMemory>;
    /// Copies into it.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), OutsideMemory>;
    /// Whether all of a range is there.
    fn check(&self, address: u64, len: u64) -> Result<(), OutsideMemory>;
}

/// All regions. A change makes a new one, so that requests under way keep the mapping that they
/// were read from.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    /// By guest address; they do not overlap.
    regions: Vec<Rc<Region>>,
}

impl GuestMemory {
    /// With one more region.
    pub fn with(&self, region: Region) -> Result<GuestMemory, MemoryError> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(MemoryError::TooMany);
        }
        let size = region.size;
        let overlap = |a: u64, b: u64, b_size: u64| a < b + b_size && b < a + size;
        for other in &self.regions {
            for (start, other_start) in [(region.guest, other.guest), (region.user, other.user)] {
                if overlap(start, other_start, other.size) {
                    return Err(MemoryError::Overlap { start, size });
                }
            }
        }
        let mut regions = self.regions.clone();
        regions.push(Rc::new(region));
        regions.sort_by_key(|region| region.guest);
        Ok(GuestMemory { regions })
    }

    /// Without this region.
    pub fn without(&self, guest: u64, user: u64, size: u64) -> Result<GuestMemory, MemoryError> {
        let is_it =
            |region: &Rc<Region>| (region.guest, region.user, region.size) == (guest, user, size);
        if !self.regions.iter().any(is_it) {
            return Err(MemoryError::NoRegion { start: guest, size });
        }
        let regions = self.regions.iter().filter(|region| !is_it(region)).cloned().collect();
        Ok(GuestMemory { regions })
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// What the front-end has at one of its own addresses.
    pub fn at_user(&self, address: u64, len: u64) -> Result<Area, OutsideMemory> {
        let regions = self.regions.iter();
        let mut found = regions.filter_map(|region| {
            let offset = address.checked_sub(region.user)?;
            Area::new(&region.memory, offset, len)
        });
        found.next().ok_or(OutsideMemory { address, len })
    }

    /// Calls `part` for the part of each region that the range covers, in order, with where it is
    /// in the range.
    fn parts(
        &self,
        address: u64,
        len: u64,
        mut part: impl FnMut(&Region, usize, std::ops::Range<usize>) -> bool,
    ) -> Result<(), OutsideMemory> {
        let outside = OutsideMemory { address, len };
        let mut done = 0;
        while done < len {
            let at = address.checked_add(done).ok_or(outside)?;
            let before = self.regions.partition_point(|region| region.guest <= at);
            let region = before.checked_sub(1).and_then(|index| self.regions.get(index));
            let region = region.ok_or(outside)?;
            let offset = at - region.guest;
            let here = region.size.saturating_sub(offset).min(len - done);
            if here == 0 || !part(region, offset as usize, done as usize..(done + here) as usize) {
                return Err(outside);
            }
            done += here;
        }
        // Zeroes that nobody wrote are no bytes of the guest.
        if is_lost() { Err(outside) } else { Ok(()) }
    }
}

impl GuestBytes for GuestMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), OutsideMemory> {
        self.parts(address, into.len() as u64, |region, offset, range| {
            region.memory.read(offset, &mut into[range])
        })
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), OutsideMemory> {
        self.parts(address, from.len() as u64, |region, offset, range| {
            region.memory.write(offset, &from[range])
        })
    }

    fn check(&self, address: u64, len: u64) -> Result<(), OutsideMemory> {
        self.parts(address, len, |_, _, _| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn file(len: u64) -> OwnedFd {
        SharedMemory::new("test", len).unwrap().1
    }

    #[test]
    fn areas_begin_where_numbers_are_aligned() {
        let (_, file) = SharedMemory::new("test", 100).unwrap();
        let odd = Rc::new(SharedMemory::map(&file, 1, 90).unwrap());
        assert!(Area::new(&odd, 0, 10).is_none());
        Area::new(&odd, 1, 10).unwrap().store(2, 7);
    }

    #[test]
    fn bytes_go_in_and_come_out_at_any_alignment() {
        let (memory, _) = SharedMemory::new("test", 100).unwrap();
        for offset in 0..17 {
            let bytes: Vec<u8> = (0..60).map(|byte| byte ^ offset as u8).collect();
            let mut back = vec![0; 60];
            assert!(memory.write(offset, &bytes) && memory.read(offset, &mut back));
            assert_eq!(bytes, back);
        }
        let mut one = [0];
        assert!(memory.read(99, &mut one) && !memory.read(100, &mut one));
        assert!(!memory.write(usize::MAX, &[1]) && memory.write(100, &[]));
    }

    #[test]
    fn a_file_that_can_shrink_or_is_short_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&open, MIB).unwrap();
        assert!(matches!(SharedMemory::map(&open, 0, MIB), Err(MemoryError::NotSealed)));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(SharedMemory::map(&null, 0, MIB), Err(MemoryError::NotSealed)));
        let sealed = file(MIB);
        assert!(rustix::fs::ftruncate(&sealed, 0).is_err());
        let short = SharedMemory::map(&sealed, 4096, MIB).unwrap_err();
        assert!(
            matches!(short, MemoryError::FileTooShort { expected, found: MIB } if expected == MIB + 4096)
        );
        for (offset, len) in [(0, 0), (u64::MAX, 1), (1, u64::MAX)] {
            let error = SharedMemory::map(&sealed, offset, len).unwrap_err();
            assert!(matches!(error, MemoryError::Bounds { .. }), "{error}");
        }
        // An odd place in the file is mapped from the page before.
        let odd = SharedMemory::map(&sealed, 5000, 100).unwrap();
        assert!(odd.write(0, b"odd"));
        let mut back = [0; 3];
        assert!(SharedMemory::map(&sealed, 0, MIB).unwrap().read(5000, &mut back));
        assert_eq!(&back, b"odd");
    }

    #[test]
    fn memory_that_is_taken_away_is_zero_and_said_to_be_lost() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        for touch in 0..4 {
            let file = rustix::fs::memfd_create("test", flags).unwrap();
            rustix::fs::ftruncate(&file, MIB).unwrap();
            let shared = Rc::new(SharedMemory::map_any(&file, 0, MIB).unwrap());
            let region = Region { guest: 0, user: 0, size: MIB, memory: shared.clone() };
            let memory = GuestMemory::default().with(region).unwrap();
            let area = Area::new(&shared, 8192, 64).unwrap();
            memory.write(8192, &[7; 4096]).unwrap();
            rustix::fs::ftruncate(&file, 4096).unwrap();
            // What is still there is as it was.
            assert!(memory.write(0, &[1]).is_ok() && !is_lost());
            let mut bytes = [9; 64];
            match touch {
                0 => assert!(memory.read(8190, &mut bytes).is_err()),
                1 => assert!(memory.write(4090, &bytes).is_err()),
                2 => assert_eq!(area.load(2), 0),
                _ => area.store(2, 5),
            }
            assert!(is_lost() && memory.check(0, 1).is_err());
            // Others are on other threads, and whoever comes next on this one begins anew.
            std::thread::spawn(|| assert!(!is_lost())).join().unwrap();
            forget_lost();
            assert!(memory.read(8192, &mut bytes).is_ok() && !is_lost());
        }
    }

    #[test]
    fn regions_do_not_overlap_and_ranges_may_go_over_their_ends() {
        let file = file(4 * MIB);
        let region = |guest, user, size, offset| Region::map(guest, user, size, &file, offset);
        let memory = GuestMemory::default()
            .with(region(MIB, 8 * MIB, MIB, MIB).unwrap())
            .and_then(|memory| memory.with(region(0, 16 * MIB, MIB, 0)?))
            .unwrap();
        for (guest, user) in [(MIB + 1, 64 * MIB), (64 * MIB, 16 * MIB - 1), (0, 0)] {
            let error = memory.with(region(guest, user, MIB, 0).unwrap()).unwrap_err();
            assert!(matches!(error, MemoryError::Overlap { .. }), "{error}");
        }
        assert!(matches!(region(u64::MAX - 5, 0, MIB, 0), Err(MemoryError::Bounds { .. })));
        memory.write(MIB - 2, b"over").unwrap();
        let mut back = [0; 4];
        memory.read(MIB - 2, &mut back).unwrap();
        assert_eq!(&back, b"over");
        assert_eq!(&memory.at_user(8 * MIB, 2).unwrap().read::<2>(0), b"er");
        assert!(memory.check(0, 2 * MIB).is_ok() && memory.check(0, 0).is_ok());
        for (address, len) in [(0, 2 * MIB + 1), (2 * MIB, 1), (u64::MAX, 2), (1, u64::MAX)] {
            assert_eq!(memory.check(address, len), Err(OutsideMemory { address, len }));
        }
        assert!(memory.at_user(17 * MIB - 1, 2).is_err() && memory.at_user(u64::MAX, 2).is_err());
        let less = memory.without(MIB, 8 * MIB, MIB).unwrap();
        assert!(less.check(0, MIB + 1).is_err() && memory.check(0, MIB + 1).is_ok());
        assert!(matches!(less.without(MIB, 8 * MIB, MIB), Err(MemoryError::NoRegion { .. })));
    }
}
