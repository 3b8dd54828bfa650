//! What is on a disk that is about to be overwritten. `dcd create` overwrites zeroes; whatever is
//! not zero belongs to somebody, and is told by the marks that file systems, disk images, databases
//! and archives leave at fixed places, or as so many bytes that are not zero.
//!
//! # How much is read
//!
//! Of a file all that is no hole. What is longer than [`READ_WHOLE_BYTES`], also of a block device,
//! is read at both ends, and in [`SAMPLES`] places in between: 1 MiB of each thousandth part or
//! less. So what takes up a thousandth of a large disk is found wherever it lies; less than that,
//! only near its ends, where all known formats have their marks.

use std::fmt;
use std::ops::Range;

use rustix::io::Errno;

use crate::device::device_file::{DeviceError, DeviceFile, SeekTo};
use crate::units_text::format_size;

/// Bytes from the start that hold every mark of the start.
pub const LENGTH: usize = 256 << 10;
/// Bytes before the end that hold every mark of the end.
const TAIL: usize = 128 << 10;
/// As much is read without choosing.
pub const READ_WHOLE_BYTES: u64 = 8 << 30;
/// At each end of more than that.
const ENDS_BYTES: u64 = 1 << 30;
/// In between.
const SAMPLES: u64 = 2048;
const CHUNK: usize = 1 << 20;
/// Enough is known when so much was found that is not zero.
const FOUND_ENOUGH_BYTES: u64 = 256 << 20;
/// What is counted.
const UNIT: usize = 4096;
/// Data and holes of a file that are told apart; what is behind counts as data.
const EXTENTS_MAX: usize = 1 << 20;

/// What it looks like, byte address of the mark, the mark.
const MARKS: &[(&str, usize, &[u8])] = &[
    ("an ext2, ext3 or ext4 file system", 1080, &[0x53, 0xef]),
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 0x10040, b"_BHRfS_M"),
    ("a bcachefs file system", 4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9]),
    ("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("an EROFS file system", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    ("an NTFS file system", 3, b"NTFS    "),
    ("a ReFS file system", 3, b"ReFS"),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("an encrypted disk (BitLocker)", 3, b"-FVE-FS-"),
    ("a FAT file system", 82, b"FAT32   "),
    ("a FAT file system", 54, b"FAT1"),
    ("an HFS+ file system", 1024, b"H+\0\x04"),
    ("an APFS container", 32, b"NXSB"),
    ("a ReiserFS file system", 65536 + 52, b"ReIsEr"),
    ("a JFS file system", 32768, b"JFS1"),
    ("a NILFS2 file system", 1024 + 6, &[0x34, 0x34, 0x00, 0x00]),
    ("a UDF file system", 32769, b"BEA01"),
    ("an ISO 9660 file system", 32769, b"CD001"),
    ("a squashfs file system", 0, b"hsqs"),
    ("a cramfs file system", 0, &[0x45, 0x3d, 0xcd, 0x28]),
    ("a romfs file system", 0, b"-rom1fs-"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("swap space", 65526, b"SWAPSPACE2"),
    ("swap space of a hibernated system", 4086, b"S1SUSPEND"),
    ("an encrypted disk (LUKS)", 0, b"LUKS\xba\xbe"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("an LVM physical volume", 0, b"LABELONE"),
    ("a Stratis pool", 516, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("a member of a ZFS pool", 128 << 10, &[0x0c, 0xb1, 0xba, 0x00]),
    ("a member of a RAID (md)", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a member of a RAID (md)", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a bcache device", 4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca]),
    ("a Ceph OSD", 0, b"bluestore block device"),
    ("a VDO volume", 0, b"dmvdo001"),
    ("a disk image (qcow2)", 0, b"QFI\xfb"),
    ("a disk image (VMDK)", 0, b"KDMV"),
    ("a disk image (VMDK)", 0, b"COWD"),
    ("a description of a disk image (VMDK)", 0, b"# Disk DescriptorFile"),
    ("a disk image (VHDX)", 0, b"vhdxfile"),
    ("a disk image (VHD)", 0, b"conectix"),
    ("a disk image (VDI)", 0x40, &[0x7f, 0x10, 0xda, 0xbe]),
    ("a SQLite database", 0, b"SQLite format 3\0"),
    ("an LMDB database", 16, &[0xde, 0xc0, 0xef, 0xbe]),
    ("a tar archive", 257, b"ustar"),
    ("a gzip file", 0, &[0x1f, 0x8b, 0x08]),
    ("an xz file", 0, b"\xfd7zXZ\0"),
    ("a zstd file", 0, &[0x28, 0xb5, 0x2f, 0xfd]),
    ("a bzip2 file", 0, b"BZh"),
    ("an lz4 file", 0, &[0x04, 0x22, 0x4d, 0x18]),
    ("a zip archive", 0, b"PK\x03\x04"),
    ("a 7z archive", 0, b"7z\xbc\xaf\x27\x1c"),
    ("a RAR archive", 0, b"Rar!\x1a\x07"),
    ("a cpio archive", 0, b"070701"),
    ("an ar archive", 0, b"!<arch>\n"),
    ("an ELF program", 0, b"\x7fELF"),
    ("a PDF document", 0, b"%PDF-"),
    ("a PNG picture", 0, b"\x89PNG\r\n\x1a\n"),
    ("a JPEG picture", 0, &[0xff, 0xd8, 0xff]),
    ("a film", 4, b"ftyp"),
    ("a Matroska film", 0, &[0x1a, 0x45, 0xdf, 0xa3]),
    ("a Parquet file", 0, b"PAR1"),
    ("an HDF5 file", 0, b"\x89HDF\r\n\x1a\n"),
    ("a Git pack", 0, b"PACK"),
    ("a partition table (GPT)", 512, b"EFI PART"),
    ("a partition table (GPT)", 4096, b"EFI PART"),
    // Last: also the mark of a boot sector.
    ("a partition table or boot sector", 510, &[0x55, 0xaa]),
];

/// The same from the end on: how far before it.
const END_MARKS: &[(&str, usize, &[u8])] = &[
    ("a partition table (GPT)", 512, b"EFI PART"),
    ("a partition table (GPT)", 4096, b"EFI PART"),
    ("a disk image (VHD)", 512, b"conectix"),
    ("a disk image (DMG)", 512, b"koly"),
    ("a member of a RAID (DDF)", 512, &[0xde, 0x11, 0xde, 0x11]),
    ("a member of a RAID (Intel)", 1024, b"Intel Raid ISM Cfg"),
    ("a member of a RAID (md)", 64 << 10, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a member of a RAID (md)", 8 << 10, &[0xfc, 0x4e, 0x2b, 0xa9]),
];

/// What the first bytes of a disk look like, if they look like anything.
pub fn recognise(start: &[u8]) -> Option<&'static str> {
    let has = |at: usize, mark: &[u8]| start.get(at..at + mark.len()) == Some(mark);
    let found = MARKS.iter().find(|(_, at, mark)| has(*at, mark)).map(|(name, ..)| *name);
    found.or_else(|| is_text(start).then_some("text"))
}

fn recognise_end(end: &[u8]) -> Option<&'static str> {
    let has = |before: usize, mark: &[u8]| {
        let at = end.len().checked_sub(before);
        at.and_then(|at| end.get(at..at + mark.len())) == Some(mark)
    };
    END_MARKS.iter().find(|(_, before, mark)| has(*before, mark)).map(|(name, ..)| *name)
}

/// A page of words: what somebody has written, or a program for people.
fn is_text(start: &[u8]) -> bool {
    let page = &start[..start.len().min(512)];
    let words = page.iter().position(|byte| *byte == 0).unwrap_or(page.len());
    let is_word = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..);
    words >= 8 && page[..words].iter().all(is_word) && page[words..].iter().all(|byte| *byte == 0)
}

/// What is on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// It has a mark that is known.
    Known(&'static str),
    /// It is not zero.
    Unknown {
        /// Bytes in pages that are not zero.
        bytes: u64,
        /// There may be more.
        is_least: bool,
    },
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Known(what) => write!(f, "looks like {what}"),
            Content::Unknown { bytes, is_least } => {
                let least = if *is_least { "at least " } else { "" };
                write!(f, "holds {least}{} that are not zero", format_size(*bytes))
            }
        }
    }
}

/// What is on these bytes of a disk; `None`: nothing. `progress` is told of bytes looked at and all
/// bytes, and may end it: then what was found so far is the answer.
pub fn look(
    disk: &DeviceFile,
    range: Range<u64>,
    known: &dyn Fn(&[u8]) -> Option<&'static str>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Option<Content>, DeviceError> {
    if range.start == 0 {
        let start = disk.read_at(0, LENGTH)?;
        if let Some(what) = known(start.bytes()) {
            return Ok(Some(Content::Known(what)));
        }
    }
    if range.end == disk.size_bytes && disk.size_bytes > range.start {
        let at = disk.size_bytes.saturating_sub(TAIL as u64) / UNIT as u64 * UNIT as u64;
        let end = disk.read_at(at.max(range.start), 2 * TAIL)?;
        if let Some(what) = recognise_end(end.bytes()) {
            return Ok(Some(Content::Known(what)));
        }
    }
    let data = data_of(disk, &range);
    let parts = chosen(data.clone());
    let is_sample = parts != data;
    let all = parts.iter().map(|range| range.end - range.start).sum();
    let (mut seen, mut found) = (0, 0);
    for part in &parts {
        let mut at = part.start;
        while at < part.end {
            // A file may end anywhere; direct I/O reads whole units, and what there is of the last.
            let length = (part.end - at).next_multiple_of(UNIT as u64).min(CHUNK as u64) as usize;
            let bytes = disk.read_at(at, length)?;
            if bytes.is_empty() {
                break;
            }
            found += bytes.bytes().chunks(UNIT).filter(|unit| !is_zero(unit)).count() as u64;
            at += bytes.len() as u64;
            seen += bytes.len() as u64;
            if !progress(seen, all) || found * UNIT as u64 >= FOUND_ENOUGH_BYTES {
                let bytes = found * UNIT as u64;
                return Ok((found > 0).then_some(Content::Unknown { bytes, is_least: true }));
            }
        }
    }
    let bytes = found * UNIT as u64;
    Ok((found > 0).then_some(Content::Unknown { bytes, is_least: is_sample }))
}

fn is_zero(bytes: &[u8]) -> bool {
    // Many at a time, which the compiler makes vectors of.
    bytes.chunks(64).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

/// The parts of a range that are no holes, where that can be told.
fn data_of(disk: &DeviceFile, range: &Range<u64>) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end && !disk.is_block_device {
        if found.len() == EXTENTS_MAX {
            break;
        }
        let start = match disk.seek(SeekTo::Data, at) {
            // Nothing but a hole follows.
            Err(Errno::NXIO) => return found,
            Err(_) => break,
            Ok(start) => start,
        };
        let end = disk.seek(SeekTo::Hole, start).unwrap_or(range.end);
        // Read in whole pages; the end of the file ends it.
        let page = UNIT as u64;
        let (start, end) = (start / page * page, end.next_multiple_of(page).min(range.end));
        if start >= range.end || end <= start {
            return found;
        }
        found.push(start.max(range.start)..end);
        at = end;
    }
    if at < range.end {
        found.push(at..range.end);
    }
    found
}

/// What is read of them.
fn chosen(data: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let all: u64 = data.iter().map(|range| range.end - range.start).sum();
    if all <= READ_WHOLE_BYTES {
        return data;
    }
    // Places are counted in data alone, and then laid over its parts.
    let mut wanted = Vec::with_capacity(SAMPLES as usize + 2);
    wanted.push(0..ENDS_BYTES);
    let step = (all - 2 * ENDS_BYTES) / SAMPLES / UNIT as u64 * UNIT as u64;
    for sample in 0..SAMPLES {
        let start = ENDS_BYTES + sample * step;
        wanted.push(start..start + (CHUNK as u64).min(step));
    }
    wanted.push(all - ENDS_BYTES..all);
    let mut parts = Vec::new();
    let mut wanted = wanted.into_iter().peekable();
    let mut passed = 0;
    for range in data {
        let length = range.end - range.start;
        while let Some(want) = wanted.peek_mut() {
            if want.start >= passed + length {
                break;
            }
            let end = want.end.min(passed + length);
            parts.push(range.start + (want.start - passed)..range.start + (end - passed));
            if want.end > passed + length {
                want.start = passed + length;
                break;
            }
            wanted.next();
        }
        passed += length;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_engine::Buffer;

    #[test]
    fn every_mark_lies_in_what_is_read_and_is_found() {
        for (name, at, mark) in MARKS {
            let mut start = vec![0; LENGTH];
            start[*at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(recognise(&start), Some(*name));
        }
        for (name, before, mark) in END_MARKS {
            let mut end = vec![0; TAIL];
            end[TAIL - before..TAIL - before + mark.len()].copy_from_slice(mark);
            assert_eq!(recognise_end(&end), Some(*name));
        }
        assert_eq!(recognise(&[0; LENGTH]), None);
        assert_eq!(recognise(&[]), None);
        assert_eq!(recognise(b"Dear diary, today \xc3\xa4"), Some("text"));
        assert_eq!(recognise(&[&b"Dear diary"[..], &[0; 600]].concat()), Some("text"));
        assert_eq!(recognise(&[7; 600]), None);
    }

    #[test]
    fn zeroes_and_holes_are_nothing_and_a_bit_is_something() {
        let path = std::env::temp_dir().join(format!("dcd-content-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let disk = DeviceFile::open(&path).unwrap();
        let look = |range: Range<u64>| {
            look(&disk, range, &recognise, &mut |seen, all| {
                assert!(seen <= all);
                true
            })
        };
        assert_eq!(look(0..64 << 20).unwrap(), None);
        disk.write_at(8 << 20, &Buffer::zeroed(1 << 20)).unwrap();
        assert_eq!(look(0..64 << 20).unwrap(), None);
        let mut page = Buffer::zeroed(4096);
        page.bytes_mut()[4095] = 1;
        disk.write_at((40 << 20) + 4096, &page).unwrap();
        let found = Content::Unknown { bytes: 4096, is_least: false };
        assert_eq!(look(0..64 << 20).unwrap(), Some(found));
        assert_eq!(found.to_string(), "holds 4 KiB that are not zero");
        // Only what is to be overwritten counts.
        assert_eq!(look(0..40 << 20).unwrap(), None);
        assert_eq!(look(41 << 20..64 << 20).unwrap(), None);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn of_much_data_both_ends_and_places_in_between_are_read() {
        let gib = 1 << 30;
        let data = vec![0..3 * gib, 10 * gib..40 * gib, 50 * gib..50 * gib + (5 << 20)];
        let all = 33 * gib + (5 << 20);
        let parts = chosen(data.clone());
        let read: u64 = parts.iter().map(|part| part.end - part.start).sum();
        assert_eq!(read, 2 * gib + SAMPLES * CHUNK as u64);
        assert!(read < all && parts[0] == (0..gib));
        assert_eq!(parts.last(), Some(&(50 * gib..50 * gib + (5 << 20))));
        for part in &parts {
            assert!(data.iter().any(|data| data.start <= part.start && part.end <= data.end));
        }
        assert_eq!(chosen(data[..1].to_vec()), data[..1]);
    }
}
