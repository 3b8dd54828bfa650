//! Overwriting what a cache-disk held, after it is detached: `dcd detach --wipe`.
//!
//! In pieces from the beginning to the end of the disk: what the log held, checkpoints, copies of
//! reads, also of caches before this one. Only the superblocks, and labels of legs, are left to the
//! end, so that one which was interrupted is known for what it is, and begun again. Whether nothing
//! depends on these bytes any more is for the caller to know.
//!
//! A piece of a block device is discarded securely, if the disk can do that, and what then still
//! reads as anything but zeroes is written. A plain discard is no erasure: the disk may keep the
//! old bytes, and may go on to give them. So after that, or without any, zeroes are written. Holes
//! of a file hold no bytes, and stay holes.

use std::io;
use std::ops::Range;

use dcd_engine::Buffer;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::leg_label::{LEG_LABEL_BYTES, LEG_LABEL_OFFSETS};
use dcd_engine::format::superblock::SUPERBLOCK_SIZE;
use dcd_engine::units::LINE_SIZE;
use rustix::io::Errno;

use crate::device::device_file::{DeviceError, DeviceFile, SeekTo};

/// What is wiped last: a superblock, and behind it the label of a leg, which says who knows it to
/// be older.
const KEPT_BYTES: u64 = (SUPERBLOCK_SIZE + LEG_LABEL_BYTES) as u64;
const _: () = assert!(LEG_LABEL_OFFSETS[1] - SUPERBLOCK_OFFSETS[1] == SUPERBLOCK_SIZE as u64);

/// Wiped at once.
const PIECE_BYTES: u64 = 4 << 20;

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wiped {
    /// The disk is zero.
    All,
    /// Somebody did not want to wait; the superblocks are there.
    UpTo(u64),
}

/// Overwrites everything on a disk. `goes_on` is told how many of how many bytes are done, and says
/// whether to go on.
///
/// Crash before step 3: the superblocks say that the cache is detached, as they did; to be begun
/// again. Crash amid step 3: one of them says so, or none is left and the disk is zero.
pub fn wipe(
    disk: &DeviceFile,
    goes_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Wiped, DeviceError> {
    let end = disk.size_bytes / LINE_SIZE * LINE_SIZE;
    let mut wiper = Wiper {
        disk,
        zeroes: Buffer::zeroed(PIECE_BYTES as usize),
        discards: if disk.is_block_device { Discards::Secure } else { Discards::Nothing },
    };
    // 1. What it says of its end is durable before anything that it spoke of goes.
    disk.flush()?;
    // 2. All but the superblocks.
    let [first, second] = SUPERBLOCK_OFFSETS;
    let size = KEPT_BYTES;
    for part in [first + size..second, second + size..end] {
        let mut offset = part.start;
        while offset < part.end {
            if !goes_on(offset, end) {
                return Ok(Wiped::UpTo(offset));
            }
            let piece = offset..part.end.min(offset + PIECE_BYTES);
            offset = piece.end;
            wiper.wipe(piece)?;
        }
    }
    disk.flush()?;
    // 3. Then these.
    for offset in SUPERBLOCK_OFFSETS {
        wiper.wipe(offset..(offset + size).min(end))?;
    }
    disk.flush()?;
    Ok(Wiped::All)
}

/// Writes zeroes over a part of a disk that is somebody's no more, where it holds anything else.
/// `goes_on`: as of [`wipe`].
///
/// # Errors
/// If the disk fails.
pub fn zero_part(
    disk: &DeviceFile,
    part: Range<u64>,
    goes_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Wiped, DeviceError> {
    let zeroes = Buffer::zeroed(PIECE_BYTES as usize);
    let wiper = Wiper { disk, zeroes, discards: Discards::Nothing };
    let mut at = part.start;
    while at < part.end {
        if !goes_on(at - part.start, part.end - part.start) {
            return Ok(Wiped::UpTo(at));
        }
        let piece_end = part.end.min(at + PIECE_BYTES);
        while let Some(data) = wiper.data_in(at..piece_end) {
            at = data.end;
            if !wiper.is_zero(&data)? {
                wiper.write(data)?;
            }
        }
        at = piece_end;
    }
    disk.flush()?;
    Ok(Wiped::All)
}

/// What the disk does with a discard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Discards {
    /// It may erase.
    Secure,
    /// It gives the space up.
    Plain,
    /// Nothing.
    Nothing,
}

struct Wiper<'a> {
    disk: &'a DeviceFile,
    zeroes: Buffer,
    discards: Discards,
}

impl Wiper<'_> {
    fn wipe(&mut self, piece: Range<u64>) -> Result<(), DeviceError> {
        if self.discard(&piece) && self.is_zero(&piece)? {
            return Ok(());
        }
        let mut at = piece.start;
        while let Some(data) = self.data_in(at..piece.end) {
            at = data.end;
            self.write(data)?;
        }
        Ok(())
    }

    /// Whether it is erased. A discard that fails is as if there were none: zeroes are written.
    fn discard(&mut self, piece: &Range<u64>) -> bool {
        // <linux/fs.h>: _IO(0x12, 119) and _IO(0x12, 125).
        const BLKDISCARD: u32 = 0x1277;
        const BLKSECDISCARD: u32 = 0x127d;
        if self.discards == Discards::Secure {
            if discard(self.disk, BLKSECDISCARD, piece).is_ok() {
                return true;
            }
            self.discards = Discards::Plain;
        }
        if self.discards == Discards::Plain && discard(self.disk, BLKDISCARD, piece).is_err() {
            self.discards = Discards::Nothing;
        }
        false
    }

    fn is_zero(&self, piece: &Range<u64>) -> Result<bool, DeviceError> {
        let length = (piece.end - piece.start) as usize;
        let found = self.disk.read_at(piece.start, length)?;
        Ok(found.bytes() == &self.zeroes.bytes()[..length])
    }

    /// The first part of `place` that is no hole.
    fn data_in(&self, place: Range<u64>) -> Option<Range<u64>> {
        if place.is_empty() {
            return None;
        }
        let start = match (self.disk.is_block_device, self.disk.seek(SeekTo::Data, place.start)) {
            (false, Ok(start)) => start / LINE_SIZE * LINE_SIZE,
            (false, Err(Errno::NXIO)) => return None,
            // It knows no holes.
            _ => return Some(place),
        };
        if start >= place.end {
            return None;
        }
        let end = self.disk.seek(SeekTo::Hole, start).unwrap_or(place.end);
        let end = end.next_multiple_of(LINE_SIZE);
        Some(start.max(place.start)..end.min(place.end))
    }

    fn write(&self, place: Range<u64>) -> Result<(), DeviceError> {
        let zeroes = &self.zeroes.bytes()[..(place.end - place.start) as usize];
        self.disk.write_all_at(place.start, zeroes)
    }
}

fn discard(disk: &DeviceFile, request: u32, piece: &Range<u64>) -> io::Result<()> {
    let mut start = piece.start;
    while start < piece.end {
        let (at, length) = disk.place(start, piece.end - start);
        let range = [at, length];
        // SAFETY: the descriptor is open; the kernel reads two numbers, which are there.
        let result = unsafe {
            libc::ioctl(disk.descriptor(), libc::c_ulong::from(request) as _, range.as_ptr())
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        start += length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::{Path, PathBuf};

    use super::*;

    const SIZE: u64 = 9 << 20;

    fn image(name: &str, size: u64) -> PathBuf {
        let path = std::env::temp_dir().join(format!("dcd-wipe-{}-{name}", std::process::id()));
        std::fs::write(&path, vec![0xa5; size as usize]).unwrap();
        path
    }

    fn has_superblocks(path: &Path) -> bool {
        let bytes = std::fs::read(path).unwrap();
        let is_there = |offset: u64| {
            bytes[offset as usize..][..SUPERBLOCK_SIZE].iter().all(|byte| *byte == 0xa5)
        };
        SUPERBLOCK_OFFSETS.into_iter().all(is_there)
    }

    #[test]
    fn nothing_is_left_and_superblocks_go_last() {
        // The last bytes are in no line, and never held anything.
        let path = image("all", SIZE);
        let disk = DeviceFile::open(&path).unwrap();
        let mut told = Vec::new();
        let wiped = wipe(&disk, &mut |done, total| {
            assert!(has_superblocks(&path));
            told.push((done, total));
            true
        });
        assert_eq!(wiped.unwrap(), Wiped::All);
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        assert!(told.is_sorted() && told.len() > 3 && told.iter().all(|(_, total)| *total == SIZE));
        drop(disk);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn one_that_is_interrupted_can_be_begun_again() {
        let path = image("part", SIZE);
        let disk = DeviceFile::open(&path).unwrap();
        for pieces in 0..4 {
            let mut left = pieces;
            let wiped = wipe(&disk, &mut |_, _| {
                left -= 1;
                left >= 0
            });
            assert!(matches!(wiped.unwrap(), Wiped::UpTo(at) if at < SIZE));
            assert!(has_superblocks(&path));
        }
        assert_eq!(wipe(&disk, &mut |_, _| true).unwrap(), Wiped::All);
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        drop(disk);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn holes_stay_holes() {
        let path = image("holes", 0);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(SIZE).unwrap();
        for offset in [0, 64 << 10, 5 << 20] {
            file.write_all_at(&[0xa5; 4096], offset).unwrap();
        }
        let before = file.metadata().unwrap().blocks();
        let disk = DeviceFile::open(&path).unwrap();
        assert_eq!(wipe(&disk, &mut |_, _| true).unwrap(), Wiped::All);
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        assert!(file.metadata().unwrap().blocks() <= before + 64, "it has grown");
        drop(disk);
        std::fs::remove_file(path).unwrap();
    }
}
