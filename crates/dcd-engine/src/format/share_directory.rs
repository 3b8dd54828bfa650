//! The directory of a cache-disk that several caches share: who has which bytes of it. Each cache
//! has a share, a window of the disk, or several ([`super::windows`]), in which everything is as on
//! a disk of its own; the engine does not know of it. The rules of the directory are here, reading
//! and writing it is for a driver.
//!
//! ```text
//! 0            directory, copy 0                 512 KiB    directory, copy 1
//! 1 MiB        the first share may begin; shares begin and end at whole MiB
//! ```
//!
//! A change is written to the copy that does not count, with the next generation, and flushed. A
//! torn one leaves the other copy, which says what was before. So each change of the directory is
//! whole or has not been, and what is made or wiped in a window has states before and behind it:
//!
//! ```text
//! making   1. The directory: `Making`.   Crash: room that is taken again by the next creation.
//!          2. The cache, in its window.  Crash: the same, whatever is in the window.
//!          3. The directory: `InUse`.
//! leaving  1. The superblock in the window: detached.
//!          2. The directory: `Leaving`.  Crash: nothing depends on it; it is wiped again, or taken.
//!          3. The window is wiped, if that was asked for.
//!          4. The directory, without it.
//! growing  1. The directory, both copies: the share has more.
//!                                       Crash: the next start gives back what its log has not.
//!          2. The log, into it.
//! shrink-  1. The log, both copies of its superblock. Crash: the same.
//! ing      2. The directory: the share has less.
//! ```
//! Growing goes to both copies, one after the other, before the log goes there: the one that does
//! not count would else, if the other cannot be read one day, give the same room to somebody else.

use std::fmt;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::COUNTER_END;
use super::checksum::crc32c_with_hole;
use super::layout::{FieldLayout, layout_of};
use super::preamble::{CHECKSUM_OFFSET, Preamble};
pub use super::windows::{Window, Windows};
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::units::Uuid;

/// "dcdSHARE" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdSHARE");
/// The version of a directory in which each share has one window.
pub const VERSION: u32 = 1;
/// The version of one in which some have more, which older programs do not know.
pub const VERSION_WITH_FURTHER: u32 = 2;
/// Byte addresses of the two copies, on a disk that is shared.
pub const DIRECTORY_OFFSETS: [u64; 2] = [0, 512 << 10];
/// Size of a copy.
pub const DIRECTORY_COPY_BYTES: usize = 32 << 10;
/// What the directory takes of the disk: the first share may begin behind it.
pub const DIRECTORY_BYTES: u64 = 1 << 20;
/// Shares begin and end at multiples of this.
pub const SHARE_GRAIN_BYTES: u64 = 1 << 20;
/// Most shares of a disk; each further window of one counts, too.
pub const SHARES_MAX: usize = 127;
/// Longest name of a share.
pub const SHARE_NAME_BYTES_MAX: usize = 32;
/// Longest name of a data-disk that is noted; of a longer one nothing is.
pub const DATA_DISK_NAME_BYTES_MAX: usize = 176;
const WHAT: &str = "the directory of shares";
/// The state of an entry that is a further window of a share, and not a share.
const FURTHER: u32 = 4;

/// What has become of a share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShareState {
    /// Its cache is being made, or that was interrupted: it holds nothing.
    Making,
    /// It has a cache.
    InUse,
    /// Its cache is detached, and it is about to be given back.
    Leaving,
}

impl ShareState {
    const ALL: [ShareState; 3] = [ShareState::Making, ShareState::InUse, ShareState::Leaving];

    fn code(self) -> u32 {
        match self {
            ShareState::Making => 1,
            ShareState::InUse => 2,
            ShareState::Leaving => 3,
        }
    }
}

/// A share of a cache-disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// Its name on this disk; see [`is_share_name`].
    pub name: String,
    /// The cache that is in it.
    pub cache: Uuid,
    /// Where it is.
    pub windows: Windows,
    /// What has become of it.
    pub state: ShareState,
    /// The name that the data-disk had when the share was made; empty: too long, or several.
    pub data_disk: String,
}

/// What a share is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewShare {
    /// Its name.
    pub name: String,
    /// The cache that is going to be in it.
    pub cache: Uuid,
    /// At least so many bytes.
    pub size_bytes: u64,
    /// The name of the data-disk.
    pub data_disk: String,
}

/// Why a share cannot be what is asked for. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShareError {
    /// No name of a share.
    #[error(
        "{found:?} cannot be the name of a share: that has 1 to {SHARE_NAME_BYTES_MAX} letters, digits, `_`, `-` and `.`, and does \
         not begin with `.`"
    )]
    Name {
        /// What was asked for.
        found: String,
    },
    /// Another share has the name, or the cache.
    #[error("there is a share {name} already")]
    Taken {
        /// The other.
        name: String,
    },
    /// A share of no bytes.
    #[error("a share of 0 bytes cannot be")]
    Empty,
    /// There is no room of that size in one piece.
    #[error(
        "a share of {asked} bytes has no room: the largest free piece has {largest} bytes, of {free} that are free"
    )]
    NoRoom {
        /// Bytes asked for, in whole MiB.
        asked: u64,
        /// The largest free piece.
        largest: u64,
        /// All that is free.
        free: u64,
    },
    /// So much is not free.
    #[error("a share of {asked} bytes has no room: it has {has} now, and {free} more are free")]
    NoMore {
        /// Bytes asked for, in whole MiB.
        asked: u64,
        /// What it has.
        has: u64,
        /// All that is free.
        free: u64,
    },
    /// The directory has no place for another.
    #[error(
        "a directory has no place for more than {SHARES_MAX} shares, and further windows of shares"
    )]
    Full,
    /// No share is called that, or has that cache.
    #[error("there is no share {share}")]
    Unknown {
        /// What was asked for.
        share: String,
    },
}

/// Whether this may be the name of a share: it is a part of a path, and of the name of a service.
pub fn is_share_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=SHARE_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.starts_with('.')
}

/// A directory in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareDirectory {
    /// The name of the disk.
    pub uuid: Uuid,
    /// Counts the writings of the directory; the greater one counts.
    pub generation: u64,
    /// Size of the disk when the directory was last written. Shares lie within it.
    pub disk_bytes: u64,
    /// In the order in which they lie on the disk; none overlaps another.
    shares: Vec<Share>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DirectoryOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) generation: U64,
    pub(crate) disk_bytes: U64,
    pub(crate) shares: U32,
    pub(crate) reserved: U32,
    pub(crate) unused: [u8; 200],
    pub(crate) entries: [ShareOnDisk; SHARES_MAX],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct ShareOnDisk {
    pub(crate) cache: [u8; 16],
    pub(crate) offset_bytes: U64,
    pub(crate) size_bytes: U64,
    pub(crate) state: U32,
    pub(crate) part: U32,
    pub(crate) name: [u8; SHARE_NAME_BYTES_MAX],
    pub(crate) data_disk: [u8; DATA_DISK_NAME_BYTES_MAX],
    pub(crate) unused: [u8; 8],
}

const _: () = assert!(size_of::<DirectoryOnDisk>() == DIRECTORY_COPY_BYTES);
const _: () = assert!(size_of::<ShareOnDisk>() == 256);
const _: () = assert!(std::mem::offset_of!(DirectoryOnDisk, checksum) == CHECKSUM_OFFSET);
const _: () = assert!(DIRECTORY_OFFSETS[1] + DIRECTORY_COPY_BYTES as u64 <= DIRECTORY_BYTES);

/// Every field of a copy, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(DirectoryOnDisk {
        magic,
        version,
        checksum,
        uuid,
        generation,
        disk_bytes,
        shares,
        reserved,
        unused,
        entries,
    })
}

/// The same of a share in it.
pub fn share_layout() -> Vec<FieldLayout> {
    layout_of!(ShareOnDisk {
        cache,
        offset_bytes,
        size_bytes,
        state,
        part,
        name,
        data_disk,
        unused,
    })
}

impl ShareDirectory {
    /// Of a disk without shares, not yet written.
    pub fn new(uuid: Uuid, disk_bytes: u64) -> ShareDirectory {
        ShareDirectory { uuid, generation: 1, disk_bytes, shares: Vec::new() }
    }

    /// Takes the size that the disk has now: what it has grown is free. Of one that has become
    /// shorter, no share is cut off: who opens it says so.
    pub fn fit_to(&mut self, disk_bytes: u64) {
        let end = self.shares.iter().map(|share| share.windows.end()).max().unwrap_or(0);
        self.disk_bytes = disk_bytes.max(end);
    }

    /// In the order in which they lie on the disk.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The share of this name, or with the cache of this UUID.
    pub fn find(&self, share: &str) -> Option<&Share> {
        let by_name = self.shares.iter().find(|it| it.name == share);
        let uuid = share.parse::<Uuid>().ok();
        by_name.or_else(|| self.shares.iter().find(|it| Some(it.cache) == uuid))
    }

    /// What no share has, in the order of the disk.
    pub fn free(&self) -> Vec<Window> {
        let end = self.disk_bytes / SHARE_GRAIN_BYTES * SHARE_GRAIN_BYTES;
        let mut free = Vec::new();
        let mut at = DIRECTORY_BYTES;
        let mut taken: Vec<Window> = self.windows().copied().collect();
        taken.sort_by_key(|window| window.offset_bytes);
        let ends = taken.iter().map(|window| (window.offset_bytes, window.end()));
        for (start, next) in ends.chain([(end, end)]) {
            if start > at {
                free.push(Window { offset_bytes: at, size_bytes: start - at });
            }
            at = at.max(next);
        }
        free
    }

    fn windows(&self) -> impl Iterator<Item = &Window> {
        self.shares.iter().flat_map(|share| share.windows.iter())
    }

    /// How much that is.
    pub fn free_bytes(&self) -> u64 {
        self.free().iter().map(|window| window.size_bytes).sum()
    }

    /// Takes room for a share that is being made: the first that is large enough.
    ///
    /// # Errors
    /// If its name or its size cannot be, or somebody has them.
    pub fn allocate(&mut self, new: NewShare) -> Result<Window, ShareError> {
        let NewShare { name, cache, size_bytes, data_disk } = new;
        if !is_share_name(&name) {
            return Err(ShareError::Name { found: name });
        }
        if let Some(other) = self.shares.iter().find(|it| it.name == name || it.cache == cache) {
            return Err(ShareError::Taken { name: other.name.clone() });
        }
        if self.windows().count() >= SHARES_MAX {
            return Err(ShareError::Full);
        }
        let size_bytes = whole_grains(size_bytes)?;
        let free = self.free();
        let offset_bytes = free
            .iter()
            .find(|piece| piece.size_bytes >= size_bytes)
            .ok_or_else(|| no_room(size_bytes, &free))?
            .offset_bytes;
        let window = Window { offset_bytes, size_bytes };
        let is_note = data_disk.len() <= DATA_DISK_NAME_BYTES_MAX && !data_disk.contains('\0');
        let data_disk = if is_note { data_disk } else { String::new() };
        let windows = window.into();
        let share = Share { name, cache, windows, state: ShareState::Making, data_disk };
        let place =
            self.shares.partition_point(|it| it.windows.first().offset_bytes < offset_bytes);
        self.shares.insert(place, share);
        Ok(window)
    }

    /// Says what has become of the share of a cache.
    ///
    /// # Errors
    /// If it has none.
    pub fn set_state(&mut self, cache: Uuid, state: ShareState) -> Result<(), ShareError> {
        self.share_of(cache)?.state = state;
        Ok(())
    }

    /// Gives the room of a cache back.
    ///
    /// # Errors
    /// If it has none.
    pub fn give_back(&mut self, cache: Uuid) -> Result<Windows, ShareError> {
        let place = self.shares.iter().position(|share| share.cache == cache);
        let place = place.ok_or(ShareError::Unknown { share: cache.to_string() })?;
        Ok(self.shares.remove(place).windows)
    }

    /// Makes the share of a cache larger, into what is free behind it and elsewhere, or smaller at
    /// its end. Who makes it smaller has emptied what goes.
    ///
    /// # Errors
    /// If it has none, so much is not free, or the directory has no place for more windows. Nothing
    /// is changed then.
    pub fn resize(&mut self, cache: Uuid, size_bytes: u64) -> Result<Windows, ShareError> {
        let size_bytes = whole_grains(size_bytes)?;
        let free = self.free();
        let others = self.windows().count();
        let share = self.share_of(cache)?;
        let has = share.windows.size_bytes();
        let others = others - share.windows.iter().count();
        let windows = match size_bytes.checked_sub(has) {
            None => share.windows.cut(size_bytes),
            Some(more) => {
                let total = free.iter().map(|piece| piece.size_bytes).sum();
                if more > total {
                    return Err(ShareError::NoMore { asked: size_bytes, has, free: total });
                }
                grown(&share.windows, more, free)
            }
        };
        if others + windows.iter().count() > SHARES_MAX {
            return Err(ShareError::Full);
        }
        share.windows = windows.clone();
        Ok(windows)
    }

    fn share_of(&mut self, cache: Uuid) -> Result<&mut Share, ShareError> {
        let found = self.shares.iter_mut().find(|share| share.cache == cache);
        found.ok_or(ShareError::Unknown { share: cache.to_string() })
    }

    /// Byte address of the copy that a directory of this generation goes to.
    pub fn offset(&self) -> u64 {
        DIRECTORY_OFFSETS[(self.generation % 2) as usize]
    }

    /// The bytes of a copy.
    pub fn encode(&self) -> Buffer {
        let mut disk = DirectoryOnDisk::new_zeroed();
        let mut entries: Vec<ShareOnDisk> = self.shares.iter().flat_map(Share::encode).collect();
        entries.sort_by_key(|entry| entry.offset_bytes.get());
        disk.magic = MAGIC.into();
        disk.version = match entries.len() > self.shares.len() {
            true => VERSION_WITH_FURTHER.into(),
            false => VERSION.into(),
        };
        disk.uuid = self.uuid.0;
        disk.generation = self.generation.into();
        disk.disk_bytes = self.disk_bytes.into();
        disk.shares = (entries.len() as u32).into();
        disk.entries[..entries.len()].copy_from_slice(&entries);
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        Buffer::copy_of(disk.as_bytes())
    }

    /// Reads a copy. Every byte may be anything.
    ///
    /// # Errors
    /// If it is none, or says what cannot be.
    pub fn decode(bytes: &[u8]) -> Result<ShareDirectory, FormatError> {
        let of_version = |version| Preamble { what: WHAT, magic: MAGIC, version };
        let has_further =
            of_version(VERSION_WITH_FURTHER).identify::<DirectoryOnDisk>(bytes).is_ok();
        let version = if has_further { VERSION_WITH_FURTHER } else { VERSION };
        let (disk, _) = of_version(version).verify::<DirectoryOnDisk>(bytes)?;
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let (generation, count) = (disk.generation.get(), disk.shares.get());
        if generation >= COUNTER_END {
            return Err(field("generation", generation));
        }
        let entries = disk.entries.get(..count as usize);
        let entries = entries.ok_or(field("shares", count.into()))?;
        let mut directory = ShareDirectory::new(Uuid(disk.uuid), disk.disk_bytes.get());
        directory.generation = generation;
        let mut end = 0;
        let mut further = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let (window, share) = entry.decode().map_err(|name| field(name, index as u64))?;
            // They are in order, so only the one before it can overlap.
            if window.offset_bytes < end || window.end() > directory.disk_bytes {
                return Err(field("offset_bytes", window.offset_bytes));
            }
            end = window.end();
            let Some(share) = share else {
                further.push((entry.part.get(), Uuid(entry.cache), window));
                continue;
            };
            let is_other = |it: &Share| it.name != share.name && it.cache != share.cache;
            if !directory.shares.iter().all(is_other) {
                return Err(field("name", index as u64));
            }
            directory.shares.push(share);
        }
        if has_further == further.is_empty() {
            return Err(field("version", version.into()));
        }
        // In the order of each share, without a gap.
        further.sort_by_key(|(part, ..)| *part);
        for (part, cache, window) in further {
            let share = directory.share_of(cache).map_err(|_| field("cache", part.into()))?;
            if part as usize != share.windows.further().len() + 1 {
                return Err(field("part", part.into()));
            }
            share.windows.push(window);
        }
        Ok(directory)
    }

    /// The newer of two copies. A driver reads both; what it cannot read is no copy.
    ///
    /// # Errors
    /// [`FormatError::Magic`] or [`FormatError::Short`] if neither is a directory at all; if one
    /// looks like one, what is wrong with it.
    pub fn newest(copy_0: &[u8], copy_1: &[u8]) -> Result<ShareDirectory, FormatError> {
        match (ShareDirectory::decode(copy_0), ShareDirectory::decode(copy_1)) {
            (Ok(first), Ok(second)) if second.generation > first.generation => Ok(second),
            (Ok(first), _) => Ok(first),
            (Err(_), Ok(second)) => Ok(second),
            (Err(FormatError::Magic { .. } | FormatError::Short { .. }), Err(second)) => {
                Err(second)
            }
            (Err(first), Err(_)) => Err(first),
        }
    }
}

impl Share {
    /// Its entry, and those of its further windows.
    fn encode(&self) -> Vec<ShareOnDisk> {
        let numbered = (0..).zip(self.windows.iter());
        let mut entries: Vec<ShareOnDisk> = numbered
            .map(|(part, window): (u32, _)| {
                let mut entry = ShareOnDisk::new_zeroed();
                entry.cache = self.cache.0;
                entry.offset_bytes = window.offset_bytes.into();
                entry.size_bytes = window.size_bytes.into();
                entry.state = FURTHER.into();
                entry.part = part.into();
                entry
            })
            .collect();
        let first = &mut entries[0];
        first.state = self.state.code().into();
        first.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        first.data_disk[..self.data_disk.len()].copy_from_slice(self.data_disk.as_bytes());
        entries
    }
}

impl ShareOnDisk {
    /// The name of a field that cannot be, or the window and the share that begins with it; one
    /// that is a further window of another begins none.
    fn decode(&self) -> Result<(Window, Option<Share>), &'static str> {
        let code = self.state.get();
        let (offset_bytes, size_bytes) = (self.offset_bytes.get(), self.size_bytes.get());
        let is_whole = |bytes: u64| bytes.is_multiple_of(SHARE_GRAIN_BYTES);
        if offset_bytes < DIRECTORY_BYTES || !is_whole(offset_bytes) {
            return Err("offset_bytes");
        }
        let end = offset_bytes.checked_add(size_bytes);
        if size_bytes == 0 || !is_whole(size_bytes) || end.is_none() {
            return Err("size_bytes");
        }
        let window = Window { offset_bytes, size_bytes };
        if code == FURTHER {
            return Ok((window, None));
        }
        let state = ShareState::ALL.into_iter().find(|state| state.code() == code);
        let state = state.ok_or("state")?;
        let name = text_in(&self.name).filter(|name| is_share_name(name)).ok_or("name")?;
        let data_disk = text_in(&self.data_disk).ok_or("data_disk")?;
        let windows = window.into();
        Ok((window, Some(Share { name, cache: Uuid(self.cache), windows, state, data_disk })))
    }
}

/// Windows with so much more of what is free: first what lies behind the last of them, then where
/// the rest fits into one piece, and as long as it does not the largest pieces.
fn grown(windows: &Windows, more: u64, mut free: Vec<Window>) -> Windows {
    let mut windows = windows.clone();
    let last = windows.further().last().copied().unwrap_or(windows.first());
    let mut at = free.iter().position(|piece| piece.offset_bytes == last.end());
    let mut left = more;
    while left > 0 {
        let fits = || free.iter().position(|piece| piece.size_bytes >= left);
        let largest = || (0..free.len()).rev().max_by_key(|at| free[*at].size_bytes);
        let piece = at.take().or_else(fits).or_else(largest).expect("so much is free");
        let piece = free.remove(piece);
        let size_bytes = piece.size_bytes.min(left);
        windows.add(Window { size_bytes, ..piece });
        left -= size_bytes;
    }
    windows
}

/// A text that ends at the first zero byte.
fn text_in(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    str::from_utf8(&bytes[..end]).ok().map(str::to_owned)
}

fn whole_grains(size_bytes: u64) -> Result<u64, ShareError> {
    match size_bytes.checked_next_multiple_of(SHARE_GRAIN_BYTES) {
        Some(0) => Err(ShareError::Empty),
        Some(size_bytes) => Ok(size_bytes),
        None => Err(ShareError::NoRoom { asked: size_bytes, largest: 0, free: 0 }),
    }
}

fn no_room(asked: u64, free: &[Window]) -> ShareError {
    let sizes = free.iter().map(|piece| piece.size_bytes);
    ShareError::NoRoom { asked, largest: sizes.clone().max().unwrap_or(0), free: sizes.sum() }
}

impl fmt::Display for ShareState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShareState::Making => "making",
            ShareState::InUse => "in-use",
            ShareState::Leaving => "leaving",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn directory() -> ShareDirectory {
        ShareDirectory::new(Uuid([9; 16]), 64 * MIB + 4096)
    }

    fn new(name: &str, mib: u64) -> NewShare {
        let mut cache = Uuid([0; 16]);
        cache.0[..name.len()].copy_from_slice(name.as_bytes());
        let data_disk = format!("/dev/{name}");
        NewShare { name: name.into(), cache, size_bytes: mib * MIB, data_disk }
    }

    fn places(directory: &ShareDirectory) -> Vec<(&str, u64, u64)> {
        let shares = directory.shares().iter();
        let windows = shares.flat_map(|it| it.windows.iter().map(|part| (it.name.as_str(), part)));
        windows.map(|(name, it)| (name, it.offset_bytes / MIB, it.size_bytes / MIB)).collect()
    }

    #[test]
    fn room_is_taken_and_given_back() {
        let mut it = directory();
        for (name, mib) in [("a", 10), ("b", 20), ("c", 5)] {
            it.allocate(new(name, mib)).unwrap();
        }
        assert_eq!(places(&it), [("a", 1, 10), ("b", 11, 20), ("c", 31, 5)]);
        assert_eq!(it.free_bytes(), 28 * MIB, "what is less than a MiB at the end is nobody's");
        it.give_back(new("b", 0).cache).unwrap();
        // The hole is taken first; what does not fit goes behind.
        it.allocate(new("d", 21)).unwrap();
        it.allocate(NewShare { size_bytes: 20 * MIB - 1, ..new("e", 0) }).unwrap();
        let expected = [("a", 1, 10), ("e", 11, 20), ("c", 31, 5), ("d", 36, 21)];
        assert_eq!(places(&it), expected);
        assert_eq!(it.find("e").unwrap().data_disk, "/dev/e");
        let cache = it.find("d").unwrap().cache;
        assert_eq!(it.find(&cache.to_string()).unwrap().name, "d");
        assert!(it.find("f").is_none());
        it.fit_to(80 * MIB);
        assert_eq!(it.free_bytes(), 23 * MIB);
        it.fit_to(20 * MIB);
        assert_eq!((it.disk_bytes, it.free_bytes()), (57 * MIB, 0), "no share is cut off");
        assert_eq!(ShareDirectory::decode(it.encode().bytes()), Ok(it.clone()));
        it.fit_to(64 * MIB);
        for name in ["a", "c", "d", "e"] {
            it.give_back(new(name, 0).cache).unwrap();
        }
        let whole = Window { offset_bytes: MIB, size_bytes: 63 * MIB };
        assert_eq!((it.shares().len(), it.free()), (0, vec![whole]));
        it.allocate(new("all", 63)).unwrap();
        assert_eq!(it.free(), []);
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let mut it = directory();
        it.allocate(new("a", 30)).unwrap();
        it.allocate(new("b", 10)).unwrap();
        it.give_back(new("a", 0).cache).unwrap();
        let before = it.clone();
        let largest =
            |mib: u64| ShareError::NoRoom { asked: mib * MIB, largest: 30 * MIB, free: 53 * MIB };
        assert_eq!(it.allocate(new("c", 31)), Err(largest(31)));
        assert_eq!(it.allocate(new("b", 1)), Err(ShareError::Taken { name: "b".into() }));
        let twice = NewShare { cache: new("b", 0).cache, ..new("c", 1) };
        assert_eq!(it.allocate(twice), Err(ShareError::Taken { name: "b".into() }));
        assert_eq!(it.allocate(new("c", 0)), Err(ShareError::Empty));
        let huge = NewShare { size_bytes: u64::MAX, ..new("c", 0) };
        assert!(matches!(it.allocate(huge), Err(ShareError::NoRoom { largest: 0, .. })));
        for name in ["", ".", "..", ".a", "a/b", "a b", "ä", &"a".repeat(33)] {
            let named = NewShare { name: name.into(), ..new("c", 1) };
            assert_eq!(it.allocate(named), Err(ShareError::Name { found: name.into() }), "{name}");
        }
        let unknown = new("z", 0).cache;
        let error = ShareError::Unknown { share: unknown.to_string() };
        assert_eq!(it.give_back(unknown), Err(error.clone()));
        assert_eq!(it.set_state(unknown, ShareState::InUse), Err(error.clone()));
        assert_eq!(it.resize(unknown, MIB), Err(error));
        assert_eq!(it, before);
        let mut full = ShareDirectory::new(Uuid([9; 16]), 1 << 40);
        for index in 0..SHARES_MAX {
            full.allocate(new(&format!("s{index}"), 1)).unwrap();
        }
        assert_eq!(full.allocate(new("more", 1)), Err(ShareError::Full));
        assert_eq!(ShareDirectory::decode(full.encode().bytes()), Ok(full));
        // A name that is too long to be noted is none.
        let long = NewShare { data_disk: "x".repeat(177), ..new("c", 1) };
        it.allocate(long).unwrap();
        assert_eq!(it.find("c").unwrap().data_disk, "");
    }

    #[test]
    fn room_moves_from_share_to_share() {
        let mut it = directory();
        for (name, mib) in [("a", 10), ("b", 10), ("c", 10), ("d", 30)] {
            it.allocate(new(name, mib)).unwrap();
        }
        let cache = |name| new(name, 0).cache;
        let before = it.clone();
        let refused = ShareError::NoMore { asked: 14 * MIB, has: 10 * MIB, free: 3 * MIB };
        assert_eq!(it.resize(cache("a"), 14 * MIB), Err(refused));
        assert_eq!(it, before);
        // What one gives back another takes, wherever it is.
        assert_eq!(it.resize(cache("b"), 4 * MIB - 1).unwrap().size_bytes(), 4 * MIB);
        assert_eq!(it.resize(cache("a"), 18 * MIB).unwrap().iter().count(), 3);
        let a = [("a", 1, 10), ("a", 15, 6), ("a", 61, 2)];
        assert_eq!(places(&it), [a[0], a[1], a[2], ("b", 11, 4), ("c", 21, 10), ("d", 31, 30)]);
        assert_eq!(it.free_bytes(), MIB);
        assert_eq!(ShareDirectory::decode(it.encode().bytes()), Ok(it.clone()));
        // In place, where it can be; and from its end.
        it.resize(cache("a"), 19 * MIB).unwrap();
        assert_eq!(places(&it)[2], ("a", 61, 3));
        it.resize(cache("a"), 12 * MIB).unwrap();
        assert_eq!(places(&it)[..3], [("a", 1, 10), ("a", 15, 2), ("b", 11, 4)]);
        assert_eq!(it.free_bytes(), 7 * MIB);
        it.resize(cache("a"), 10 * MIB).unwrap();
        it.resize(cache("b"), 10 * MIB).unwrap();
        assert_eq!(it, before, "as it was, and an older program knows it");
        assert_eq!(it.encode().bytes()[8..12], VERSION.to_le_bytes());
        // A new one takes one piece; all goes with the share.
        it.resize(cache("b"), 4 * MIB).unwrap();
        it.resize(cache("c"), 8 * MIB).unwrap();
        assert!(matches!(it.allocate(new("e", 7)), Err(ShareError::NoRoom { .. })));
        it.resize(cache("d"), 40 * MIB).unwrap();
        assert_eq!(it.give_back(cache("d")).unwrap().iter().count(), 3);
        assert_eq!(it.free_bytes(), (6 + 2 + 33) * MIB);
        assert_eq!(it.resize(cache("a"), 0), Err(ShareError::Empty));
    }

    #[test]
    fn windows_are_as_many_as_the_directory_has_places() {
        let mut it = ShareDirectory::new(Uuid([9; 16]), 202 * MIB);
        let names: Vec<String> = (0..100).map(|index| format!("s{index}")).collect();
        for name in &names {
            it.allocate(new(name, 2)).unwrap();
        }
        it.allocate(new("grows", 1)).unwrap();
        for name in &names {
            it.resize(new(name, 0).cache, MIB).unwrap();
        }
        assert_eq!(it.free_bytes(), 100 * MIB);
        let (cache, before) = (new("grows", 0).cache, it.clone());
        assert_eq!(it.resize(cache, 28 * MIB), Err(ShareError::Full));
        assert_eq!(it, before);
        assert_eq!(it.resize(cache, 27 * MIB).unwrap().iter().count(), 27);
        assert_eq!(ShareDirectory::decode(it.encode().bytes()), Ok(it.clone()));
        assert_eq!(it.allocate(new("more", 1)), Err(ShareError::Full));
        it.resize(cache, 26 * MIB).unwrap();
        it.allocate(new("more", 1)).unwrap();
    }

    #[test]
    fn comes_back_and_the_later_generation_counts() {
        let mut first = directory();
        first.allocate(new("a", 10)).unwrap();
        let mut second = first.clone();
        second.generation += 1;
        second.set_state(new("a", 0).cache, ShareState::InUse).unwrap();
        assert_eq!([second.offset(), first.offset()], DIRECTORY_OFFSETS);
        let (old, latest) = (first.encode(), second.encode());
        let newest = |a: &[u8], b: &[u8]| ShareDirectory::newest(a, b);
        assert_eq!(newest(old.bytes(), latest.bytes()), Ok(second.clone()));
        assert_eq!(newest(latest.bytes(), old.bytes()), Ok(second.clone()));
        // A torn one leaves the other, wherever it is torn.
        for at in (0..DIRECTORY_COPY_BYTES).step_by(512) {
            let mut torn = old.bytes().to_vec();
            torn[at..].copy_from_slice(&latest.bytes()[at..]);
            let found = newest(old.bytes(), &torn);
            assert!(found == Ok(first.clone()) || found == Ok(second.clone()), "{at}");
        }
        let nothing = [0; DIRECTORY_COPY_BYTES];
        assert!(matches!(newest(&nothing, &nothing), Err(FormatError::Magic { .. })));
        let mut damaged = old.bytes().to_vec();
        damaged[300] ^= 1;
        for (a, b) in [(&nothing[..], &damaged[..]), (&damaged, &nothing), (&damaged, &[])] {
            assert!(matches!(newest(a, b), Err(FormatError::Checksum { .. })));
        }
        assert_eq!(newest(&damaged, latest.bytes()), Ok(second));
    }

    #[test]
    fn forged_ones_are_refused() {
        let mut it = directory();
        it.allocate(new("a", 10)).unwrap();
        it.allocate(new("b", 10)).unwrap();
        let problem = |change: &dyn Fn(&mut ShareDirectory)| {
            let mut forged = it.clone();
            change(&mut forged);
            match ShareDirectory::decode(forged.encode().bytes()) {
                Err(FormatError::Field { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(problem(&|it| it.generation = COUNTER_END), "generation");
        assert_eq!(problem(&|it| it.disk_bytes = 20 * MIB), "offset_bytes");
        assert_eq!(problem(&|it| it.shares[1].name = "a".into()), "name");
        assert_eq!(problem(&|it| it.shares[1].cache = it.shares[0].cache), "name");
        assert_eq!(problem(&|it| it.shares[1].name = "x/y".into()), "name");
        for offset_bytes in [0, 10 * MIB, 11 * MIB + 4096] {
            let window = Window { offset_bytes, size_bytes: 10 * MIB };
            let problem = problem(&|it| it.shares[1].windows = window.into());
            assert_eq!(problem, "offset_bytes");
        }
        for size_bytes in [0, MIB + 1, u64::MAX / MIB * MIB] {
            let window = Window { offset_bytes: 11 * MIB, size_bytes };
            let problem = problem(&|it| it.shares[1].windows = window.into());
            assert_eq!(problem, "size_bytes", "{size_bytes}");
        }
        let (a, b) = (it.shares[0].cache, it.shares[1].cache);
        it.allocate(new("c", 10)).unwrap();
        it.resize(b, 12 * MIB).unwrap();
        it.resize(a, 8 * MIB).unwrap();
        it.resize(b, 14 * MIB).unwrap();
        assert_eq!(places(&it)[1..3], [("b", 11, 10), ("b", 31, 4)]);
        // Further windows of nobody, or out of order.
        let problem = |entry: usize, change: &dyn Fn(&mut ShareOnDisk)| {
            let bytes = it.encode();
            let mut disk = DirectoryOnDisk::read_from_bytes(bytes.bytes()).unwrap();
            change(&mut disk.entries[entry]);
            disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
            match ShareDirectory::decode(disk.as_bytes()) {
                Err(FormatError::Field { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(problem(3, &|it| it.cache = [7; 16]), "cache");
        assert_eq!(problem(3, &|it| it.part = 2.into()), "part");
        assert_eq!(problem(3, &|it| it.part = 0.into()), "part");
        assert_eq!(problem(1, &|it| it.state = FURTHER.into()), "cache");
        assert_eq!(problem(3, &|it| it.state = 5.into()), "state");
        assert_eq!(problem(3, &|it| it.offset_bytes = (20 * MIB).into()), "offset_bytes");
        let mut one = it.encode().bytes().to_vec();
        one[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let checksum = crc32c_with_hole(&one, CHECKSUM_OFFSET);
        one[CHECKSUM_OFFSET..][..4].copy_from_slice(&checksum.to_le_bytes());
        let problem = ShareDirectory::decode(&one);
        assert!(matches!(problem, Err(FormatError::Field { field: "version", .. })), "{problem:?}");
        let bytes = it.encode();
        for byte in 0..1280 {
            let mut changed = bytes.bytes().to_vec();
            changed[byte] ^= 1 << (byte % 8);
            assert!(ShareDirectory::decode(&changed).is_err(), "byte {byte}");
        }
    }
}
