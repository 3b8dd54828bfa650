//! Makes a file system on a device.

use std::time::{SystemTime, UNIX_EPOCH};

use dcd_client::{Allocation, AttributeChange, Attributes, BlockDevice, PointerChange, Write};

use crate::error::{FsError, FsResult};
use crate::format::inode::Inode;
use crate::format::journal_header::{JournalHeader, Position};
use crate::format::superblock::{SUPERBLOCK, Superblock, encode_index};
use crate::format::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
use crate::pointers::kept;
use crate::runs::write_blocks;

/// Smallest journal, in blocks: the largest change fits in a third of it.
const JOURNAL_BLOCKS_MIN: u64 = 128;
/// What the journal takes unless somebody says so.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// Blocks for files that must be left, and pointers to them.
const FILE_BLOCKS_MIN: u64 = 64;
/// The journal takes one of so many pointers, unless somebody says how large it is.
const JOURNAL_POINTERS_SHARE: u64 = 8;

/// For how many pointers the device should have room, if files are to use all of its blocks: one to
/// each block, with some more for files with several names, and those that are kept for removing
/// files.
pub fn pointers_for(blocks: u64) -> u64 {
    (blocks + blocks / 16 + 2 * kept(blocks)).next_multiple_of(1024)
}

/// How to make it.
#[derive(Clone, Copy, Debug)]
pub struct MakeOptions {
    /// Blocks of the journal; otherwise a fitting number.
    pub journal_blocks: Option<u64>,
    /// Free all that was allocated first.
    pub force: bool,
    /// Tells it from others.
    pub uuid: [u8; 16],
    /// Who owns the root directory.
    pub uid: u32,
    /// And which group.
    pub gid: u32,
}

/// Makes an empty file system.
pub fn make(device: &mut impl BlockDevice, options: &MakeOptions) -> FsResult<Superblock> {
    let geometry = device.geometry();
    let block_bytes = geometry.block_bytes;
    if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes) {
        return Err(FsError::BlockBytes { found: block_bytes });
    }
    if device.is_read_only() {
        return Err(FsError::ReadOnlyDevice);
    }
    let pointers_max = device.usage()?.pointers_max;
    let wish = (geometry.blocks / 32).min(JOURNAL_BYTES_MAX / block_bytes as u64);
    let wish = wish.min(pointers_max / JOURNAL_POINTERS_SHARE);
    let journal_blocks = options.journal_blocks.unwrap_or(wish).max(JOURNAL_BLOCKS_MIN);
    let journal_blocks = journal_blocks.min(Superblock::journal_blocks_max(block_bytes));
    let wanted = journal_blocks + FILE_BLOCKS_MIN;
    if geometry.blocks < wanted {
        return Err(FsError::TooSmall { found: geometry.blocks, wanted });
    }
    let indexes = journal_blocks.div_ceil(Superblock::per_index(block_bytes) as u64);
    let wanted = 4 + indexes + wanted + kept(pointers_max);
    if pointers_max < wanted {
        return Err(FsError::TooFewPointers { found: pointers_max, wanted });
    }
    if options.force {
        // Without a ROOT nothing can be reached.
        let change = AttributeChange { set: Attributes::NONE, clear: Attributes::ROOT };
        device.set_attributes(&[SUPERBLOCK], change)?;
        device.collect()?;
        device.flush()?;
        device.settle()?;
    }
    let mut made = Maker { device, block_bytes };
    // Where a mount looks for it: the first block that nobody uses.
    let is_used = !made.device.mapped(SUPERBLOCK..SUPERBLOCK + 1)?.is_empty();
    if is_used || made.allocate(1, None, Attributes::METADATA)? != [SUPERBLOCK] {
        return Err(FsError::InUse);
    }
    let near = Some(SUPERBLOCK);
    let metadata = made.allocate(4 + indexes, near, Attributes::METADATA)?;
    let journal = made.allocate(journal_blocks, near, Attributes::METADATA)?;
    // What is written has its room on the disks: the journal cannot find that there is none.
    let zeroes = vec![0; block_bytes];
    write_blocks(made.device, journal.iter().map(|block| (*block, &zeroes)))?;
    let (fixed, indexes) = metadata.split_at(4);
    let superblock = Superblock {
        block_bytes,
        uuid: options.uuid,
        root: fixed[0],
        orphans: fixed[1],
        journal_headers: [fixed[2], fixed[3]],
        journal_blocks,
        journal_indexes: indexes.to_vec(),
    };
    let mut pointers: Vec<_> =
        metadata.iter().map(|block| PointerChange::create(SUPERBLOCK, *block)).collect();
    for (index, list) in indexes.iter().zip(journal.chunks(Superblock::per_index(block_bytes))) {
        made.write(*index, &encode_index(block_bytes, *index, list))?;
        pointers.extend(list.iter().map(|block| PointerChange::create(*index, *block)));
    }
    for directory in [superblock.root, superblock.orphans] {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_nanos() as i64);
        let mut inode = Inode::empty_directory(directory, block_bytes, now);
        (inode.uid, inode.gid, inode.parent) = (options.uid, options.gid, directory);
        made.write(directory, &inode.encode(block_bytes, directory))?;
    }
    let start = Position { sequence: 1, block: 0 };
    for block in superblock.journal_headers {
        let header = JournalHeader { serial: 1, pointers_from: start, images_from: start };
        made.write(block, &header.encode(block_bytes, block))?;
    }
    let change = AttributeChange { set: Attributes::ROOT, clear: Attributes::NONE };
    device.set_attributes(&[SUPERBLOCK], change)?;
    for told in device.change_pointers(&pointers) {
        told?;
    }
    // What it leads to is durable before it is there.
    device.flush()?;
    device.write(&[Write { block: SUPERBLOCK, data: &superblock.encode() }])?;
    device.flush()?;
    Ok(superblock)
}

struct Maker<'a, D> {
    device: &'a mut D,
    block_bytes: usize,
}

impl<D: BlockDevice> Maker<'_, D> {
    fn allocate(
        &mut self,
        count: u64,
        near: Option<u64>,
        attributes: Attributes,
    ) -> FsResult<Vec<u64>> {
        let wanted = vec![Allocation { near, attributes }; count as usize];
        let blocks = self.device.allocate(&wanted).into_iter();
        blocks.map(|block| Ok(block?)).collect()
    }

    fn write(&mut self, block: u64, data: &[u8]) -> FsResult<()> {
        debug_assert_eq!(data.len(), self.block_bytes);
        Ok(self.device.write(&[Write { block, data }])?)
    }
}
