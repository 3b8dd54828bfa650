//! Where the blocks of a file lie on the disk of its file system (FS_IOC_FIEMAP). The only `unsafe`
//! around it is here.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A piece of a file that has blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// Byte of the file.
    pub logical: u64,
    /// Byte of the device; meaningless where it is not allocated.
    pub physical: u64,
    /// Length in bytes.
    pub length: u64,
    /// Whether its blocks are known. Not: the file system has not chosen them yet, or keeps the
    /// bytes in another way (within the inode, compressed, packed).
    pub is_mapped: bool,
    /// Its blocks will be chosen when it is written back.
    pub is_delayed: bool,
}

/// Extents asked for at once.
const BATCH: usize = 128;

const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
const FLAG_SYNC: u32 = 1;
const EXTENT_LAST: u32 = 1;
const EXTENT_UNKNOWN: u32 = 2;
const EXTENT_DELALLOC: u32 = 4;
/// Encoded, encrypted, not aligned, inline, packed with others.
const EXTENT_OTHER: u32 = 0x8 | 0x80 | 0x100 | 0x200 | 0x400;

/// `struct fiemap_extent` of `linux/fiemap.h`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with room for its extents.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; BATCH],
}

const _: () = assert!(size_of::<RawExtent>() == 56);
const _: () = assert!(size_of::<Request>() == 32 + 56 * BATCH);

/// The pieces of an open file, in order. With `sync` it is written back first, so that all of them
/// have blocks.
pub fn file_extents(file: impl AsFd, sync: bool) -> io::Result<Vec<FileExtent>> {
    let file = file.as_fd();
    let mut all: Vec<FileExtent> = Vec::new();
    let mut start = 0;
    loop {
        let mut request = Request {
            start,
            length: u64::MAX - start,
            flags: if sync { FLAG_SYNC } else { 0 },
            mapped_extents: 0,
            extent_count: BATCH as u32,
            reserved: 0,
            extents: [RawExtent::default(); BATCH],
        };
        // SAFETY: the descriptor is open. The kernel reads the header and writes at most
        // `extent_count` extents behind it, for all of which `request` has room; any bytes are
        // valid values of its fields, and it is ours alone.
        let result = unsafe {
            libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, std::ptr::from_mut(&mut request))
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let found = &request.extents[..(request.mapped_extents as usize).min(BATCH)];
        for extent in found {
            all.push(FileExtent {
                logical: extent.logical,
                physical: extent.physical,
                length: extent.length,
                is_mapped: extent.flags & (EXTENT_UNKNOWN | EXTENT_DELALLOC | EXTENT_OTHER) == 0,
                is_delayed: extent.flags & EXTENT_DELALLOC != 0,
            });
        }
        match found.last() {
            Some(last) if last.flags & EXTENT_LAST == 0 => {
                // A file system that gives the same again would hold us here.
                let next = last.logical.saturating_add(last.length);
                if next <= start {
                    return Ok(all);
                }
                start = next;
            }
            _ => return Ok(all),
        }
    }
}
