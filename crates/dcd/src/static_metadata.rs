//! Where ext2, ext3, ext4 and XFS keep what they need to find everything else, as far as that stays
//! where mkfs put it: superblocks, group descriptors, bitmaps, inode tables and the journal of
//! ext4; the headers of the allocation groups and the internal log of XFS.
//!
//! The bytes are those of a disk and may be anything: each number is checked before it is used,
//! what does not lie on the disk is left out, and the work is bounded. A wrong answer is a wrong
//! hint, which may cost time and nothing else. Reached by the byte fuzzer.

use std::io;

/// A byte range of the file system.
pub type ByteRange = std::ops::Range<u64>;

/// Groups of ext4, allocation groups of XFS: more are no file system of these days (256 TiB with
/// groups of 128 MiB).
const GROUPS_MAX: u64 = 1 << 21;
/// Pieces that a journal may lie in, and nodes of the tree that lists them.
const JOURNAL_NODES_MAX: usize = 1024;
/// Depth of that tree.
const TREE_DEPTH_MAX: u16 = 5;

/// Reads of the file system; short or failing ones are errors.
pub trait ReadAt {
    /// Fills `buffer` from byte `offset` on.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for &[u8] {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = start.checked_add(buffer.len()).and_then(|end| self.get(start..end));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl ReadAt for &std::fs::File {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(*self, buffer, offset)
    }
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticMetadata {
    /// Kind of file system.
    pub kind: &'static str,
    /// Where, in order, apart from each other.
    pub ranges: Vec<ByteRange>,
}

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// Another file system, or none.
    #[error("neither ext2, ext3, ext4 nor XFS begins here")]
    Unknown,
    /// A field of the superblock that cannot be.
    #[error("the superblock of {kind} cannot be: {field} is {found}")]
    Field {
        /// Kind of file system.
        kind: &'static str,
        /// Which field.
        field: &'static str,
        /// What it says.
        found: u64,
    },
    /// The disk cannot be read there.
    #[error("cannot read at byte {offset}: {source}")]
    Read {
        /// Where.
        offset: u64,
        /// Why not.
        source: io::Error,
    },
}

/// Looks at the superblock and what it leads to.
pub fn static_metadata(disk: &mut dyn ReadAt) -> Result<StaticMetadata, MetadataError> {
    let mut start = [0; 4096];
    read(disk, 0, &mut start)?;
    let mut found = if start.starts_with(b"XFSB") {
        xfs(&start)?
    } else if le16(&start, 1024 + 56) == 0xef53 {
        ext4(disk, &start[1024..2048])?
    } else {
        return Err(MetadataError::Unknown);
    };
    found.ranges = merged(found.ranges);
    Ok(found)
}

fn read(disk: &mut dyn ReadAt, offset: u64, buffer: &mut [u8]) -> Result<(), MetadataError> {
    disk.read_at(offset, buffer).map_err(|source| MetadataError::Read { offset, source })
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A block number in two halves, the upper one of `bits` bits.
fn halves(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// In order, those that touch or overlap as one.
fn merged(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| range.start);
    let mut all: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// Blocks of a file system of which nothing lies beyond the end.
struct Blocks {
    size: u64,
    count: u64,
    ranges: Vec<ByteRange>,
}

impl Blocks {
    fn push(&mut self, first: u64, blocks: u64) {
        if let Some(end) = first.checked_add(blocks).filter(|end| *end <= self.count) {
            self.ranges.push(first * self.size..end * self.size);
        }
    }
}

const EXT4: &str = "ext4";

/// Where ext4 has put what does not move: fields of its superblock (fs/ext4/ext4.h), checked.
struct Ext4 {
    /// Of a block.
    size: u64,
    count: u64,
    first: u64,
    per_group: u64,
    groups: u64,
    inodes: u64,
    inode_size: u64,
    is_64bit: bool,
    descriptor: u64,
    /// Descriptors in a block, and blocks of them.
    in_block: u64,
    table_blocks: u64,
    /// With META_BG, descriptors from this block of them on lie in their own groups.
    meta_bg_first: u64,
    reserved: u64,
    sparse: bool,
    sparse2: Option<[u64; 2]>,
    has_journal: bool,
}

impl Ext4 {
    /// Reads the fields, at these bytes.
    fn of(superblock: &[u8]) -> Result<Ext4, MetadataError> {
        let field = |field, found: u64, fits| match fits {
            true => Ok(found),
            false => Err(MetadataError::Field { kind: EXT4, field, found }),
        };
        let u32_at = |at| u64::from(le32(superblock, at));
        let u16_at = |at| u64::from(le16(superblock, at));
        let (compatible, incompatible, read_only) = (u32_at(92), u32_at(96), u32_at(100));
        let has = |features: u64, bit: u64| features & bit != 0;
        let is_64bit = has(incompatible, 0x80);

        let log_size = u32_at(24);
        field("s_log_block_size", log_size, log_size <= 6)?;
        let size = 1024u64 << log_size;
        let high = if is_64bit { le32(superblock, 336) } else { 0 };
        let count = halves(le32(superblock, 4), high);
        field("s_blocks_count", count, count > 0 && count < 1 << 48)?;
        let first = u32_at(20);
        field("s_first_data_block", first, first <= 1 && first < count)?;
        let per_group = u32_at(32);
        // With BIGALLOC a bit of a bitmap stands for a cluster of blocks.
        let cluster_log =
            if has(read_only, 0x200) { u32_at(28).saturating_sub(log_size) } else { 0 };
        field("s_log_cluster_size", cluster_log, cluster_log <= 16)?;
        let fits = (8..=(size * 8) << cluster_log).contains(&per_group);
        field("s_blocks_per_group", per_group, fits)?;
        let inodes = u32_at(40);
        field("s_inodes_per_group", inodes, inodes > 0 && inodes <= size * 8)?;
        let inode_size = if u32_at(76) == 0 { 128 } else { u16_at(88) };
        let fits = (128..=size).contains(&inode_size) && inode_size.is_power_of_two();
        field("s_inode_size", inode_size, fits)?;
        let descriptor = if is_64bit { u16_at(254) } else { 32 };
        field(
            "s_desc_size",
            descriptor,
            (32..=1024).contains(&descriptor) && descriptor.is_power_of_two(),
        )?;
        let groups = (count - first).div_ceil(per_group);
        field("number of groups", groups, groups <= GROUPS_MAX)?;
        let in_block = size / descriptor;
        let table_blocks = groups.div_ceil(in_block);
        let has_meta_bg = has(incompatible, 0x10);
        let meta_bg_first = if has_meta_bg { u32_at(260).min(table_blocks) } else { table_blocks };
        let reserved = if has(compatible, 0x10) { u16_at(206) } else { 0 };
        let sparse = has(read_only, 0x1);
        let sparse2 = has(compatible, 0x200).then(|| [u32_at(588), u32_at(592)]);
        Ok(Ext4 {
            size,
            count,
            first,
            per_group,
            groups,
            inodes,
            inode_size,
            is_64bit,
            descriptor,
            in_block,
            table_blocks,
            meta_bg_first,
            reserved,
            sparse,
            sparse2,
            has_journal: has(compatible, 0x4),
        })
    }

    fn start_of(&self, group: u64) -> u64 {
        self.first + group * self.per_group
    }

    fn has_superblock(&self, group: u64) -> bool {
        match self.sparse2 {
            Some(backups) => group == 0 || backups.contains(&group),
            None => {
                !self.sparse || group <= 1 || [3, 5, 7].iter().any(|base| is_power_of(group, *base))
            }
        }
    }

    /// Superblocks and group descriptors, with their copies.
    fn push_descriptors(&self, blocks: &mut Blocks) {
        // The boot block belongs to group 0 where blocks have 1 KiB.
        blocks.push(0, 1);
        for group in (0..self.groups).filter(|group| self.has_superblock(*group)) {
            blocks.push(self.start_of(group), 1 + self.meta_bg_first + self.reserved);
        }
        // Each block of descriptors lies in the first, second and last of the groups that it
        // describes.
        for block in self.meta_bg_first..self.table_blocks {
            let group = block * self.in_block;
            for group in [group, group + 1, group + self.in_block - 1]
                .into_iter()
                .filter(|it| *it < self.groups)
            {
                blocks.push(self.start_of(group), 1 + u64::from(self.has_superblock(group)));
            }
        }
    }

    /// Bitmaps and inode tables of all groups. Returns where the first table is.
    fn push_tables(
        &self,
        disk: &mut dyn ReadAt,
        blocks: &mut Blocks,
    ) -> Result<Option<u64>, MetadataError> {
        let inode_blocks = (self.inodes * self.inode_size).div_ceil(self.size);
        let mut first_table = None;
        let mut page = vec![0; self.size as usize];
        for block in 0..self.table_blocks {
            let group = block * self.in_block;
            let place = if block < self.meta_bg_first {
                self.first + 1 + block
            } else {
                self.start_of(group) + u64::from(self.has_superblock(group))
            };
            if place >= self.count {
                continue;
            }
            read(disk, place * self.size, &mut page)?;
            for (_, bytes) in (group..self.groups).zip(page.chunks_exact(self.descriptor as usize))
            {
                let wide = self.is_64bit && self.descriptor >= 64;
                let block_at = |low: usize, high: usize| {
                    halves(le32(bytes, low), if wide { le32(bytes, high) } else { 0 })
                };
                blocks.push(block_at(0, 32), 1);
                blocks.push(block_at(4, 36), 1);
                let table = block_at(8, 40);
                first_table.get_or_insert(table);
                blocks.push(table, inode_blocks);
            }
        }
        Ok(first_table)
    }
}

fn ext4(disk: &mut dyn ReadAt, superblock: &[u8]) -> Result<StaticMetadata, MetadataError> {
    let layout = Ext4::of(superblock)?;
    let mut blocks = Blocks { size: layout.size, count: layout.count, ranges: Vec::new() };
    layout.push_descriptors(&mut blocks);
    if let Some(table) = layout.push_tables(disk, &mut blocks)?
        && layout.has_journal
    {
        journal(disk, superblock, (table, layout.inode_size), &mut blocks);
    }
    Ok(StaticMetadata { kind: EXT4, ranges: blocks.ranges })
}

/// Whether `number` is `base` to some power.
fn is_power_of(number: u64, base: u64) -> bool {
    let mut power = base;
    while power < number {
        power *= base;
    }
    power == number
}

/// The blocks of the journal's inode. What cannot be read or believed is left out.
fn journal(
    disk: &mut dyn ReadAt,
    superblock: &[u8],
    (table, inode_size): (u64, u64),
    blocks: &mut Blocks,
) {
    const EXTENTS_FLAG: u32 = 0x8_0000;
    let number = u64::from(le32(superblock, 224));
    // Inodes count from 1. That of the journal is 8, always in the first group.
    let in_first_group = 1..=u64::from(le32(superblock, 40));
    let Some(place) = in_first_group
        .contains(&number)
        .then(|| table.checked_mul(blocks.size)?.checked_add((number - 1) * inode_size))
        .flatten()
    else {
        return;
    };
    let mut inode = [0; 128];
    if disk.read_at(place, &mut inode).is_err() {
        return;
    }
    let map = &inode[40..100];
    if le32(&inode, 32) & EXTENTS_FLAG == 0 {
        // Direct blocks, and the blocks that lead to others: the journal of ext3, which lies
        // together.
        let direct: Vec<u64> = (0..12).map(|at| u64::from(le32(map, at * 4))).collect();
        let Some(first) = direct.first().filter(|first| **first > 0) else { return };
        let data = u64::from(le32(&inode, 4)).div_ceil(blocks.size);
        // Blocks of addresses lie between those of data, one for each size / 4, and one or two
        // above these.
        blocks.push(*first, data + data.div_ceil(blocks.size / 4) + 2);
        return;
    }
    let mut waiting = vec![(map.to_vec(), TREE_DEPTH_MAX)];
    let mut nodes = 0;
    while let Some((node, depth_max)) = waiting.pop() {
        nodes += 1;
        let (magic, entries, depth) = (le16(&node, 0), le16(&node, 2), le16(&node, 6));
        if magic != 0xf30a || depth > depth_max || nodes > JOURNAL_NODES_MAX {
            continue;
        }
        for entry in node[12..].chunks_exact(12).take(entries.into()) {
            if depth == 0 {
                let length = le16(entry, 4);
                // Longer than 32768: not yet written.
                let length = if length > 0x8000 { length - 0x8000 } else { length };
                let start = halves(le32(entry, 8), u32::from(le16(entry, 6)));
                blocks.push(start, length.into());
            } else {
                let start = halves(le32(entry, 4), u32::from(le16(entry, 8)));
                let mut child = vec![0; blocks.size as usize];
                let place = (start < blocks.count).then(|| start * blocks.size);
                if place.is_some_and(|place| disk.read_at(place, &mut child).is_ok()) {
                    blocks.push(start, 1);
                    waiting.push((child, depth - 1));
                }
            }
        }
    }
}

/// Fields of the superblock of XFS (fs/xfs/libxfs/xfs_format.h), at these bytes, big-endian.
fn xfs(superblock: &[u8]) -> Result<StaticMetadata, MetadataError> {
    const KIND: &str = "XFS";
    let u32_at = |at: usize| u64::from(le32(superblock, at).swap_bytes());
    let u64_at = |at: usize| u32_at(at) << 32 | u32_at(at + 4);
    let field = |field, found: u64, fits| match fits {
        true => Ok(found),
        false => Err(MetadataError::Field { kind: KIND, field, found }),
    };
    let size = u32_at(4);
    field("sb_blocksize", size, size.is_power_of_two() && (512..=65536).contains(&size))?;
    let count = u64_at(8);
    field("sb_dblocks", count, count > 0 && count < 1 << 47)?;
    let group_blocks = u32_at(84);
    field("sb_agblocks", group_blocks, group_blocks >= 64)?;
    let groups = u32_at(88);
    field("sb_agcount", groups, groups > 0 && groups <= GROUPS_MAX)?;
    let sector = u64::from(le16(superblock, 102).swap_bytes());
    field("sb_sectsize", sector, sector.is_power_of_two() && (512..=32768).contains(&sector))?;
    let group_log = u64::from(superblock[124]);
    field("sb_agblklog", group_log, group_log <= 31 && group_blocks <= 1 << group_log)?;

    let end = count * size;
    let mut ranges = Vec::new();
    let mut push = |start: u64, length: u64| {
        if let Some(last) = start.checked_add(length).filter(|last| *last <= end) {
            ranges.push(start..last);
        }
    };
    for group in 0..groups {
        // Superblock, free space, inodes, free list: a sector each.
        push(group * group_blocks * size, 4 * sector);
    }
    let (log, log_blocks) = (u64_at(48), u32_at(96));
    // 0: the log is on another disk.
    if log > 0 {
        let (group, block) = (log >> group_log, log & ((1 << group_log) - 1));
        if group < groups && block < group_blocks {
            push((group * group_blocks + block) * size, log_blocks * size);
        }
    }
    Ok(StaticMetadata { kind: KIND, ranges })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged() {
        assert_eq!(merged(vec![8..16, 0..4, 4..6, 12..14, 20..20]), [0..6, 8..16]);
    }

    #[test]
    fn powers() {
        let found: Vec<u64> = (2..130).filter(|it| is_power_of(*it, 5)).collect();
        assert_eq!(found, [5, 25, 125]);
    }

    #[test]
    fn garbage_is_no_file_system() {
        let error = static_metadata(&mut &[0xffu8; 8192][..]).unwrap_err();
        assert!(matches!(error, MetadataError::Unknown));
        assert!(matches!(static_metadata(&mut &[][..]), Err(MetadataError::Read { .. })));
        let mut odd = vec![0; 8192];
        odd[1080..1082].copy_from_slice(&[0x53, 0xef]);
        odd[1024 + 24] = 60;
        let error = static_metadata(&mut &odd[..]).unwrap_err().to_string();
        assert_eq!(error, "the superblock of ext4 cannot be: s_log_block_size is 60");
    }

    /// What is forged leads nowhere: all that is found lies on the disk.
    #[test]
    fn forged_numbers_stay_on_the_disk() {
        let mut xfs = vec![0; 8192];
        xfs[..4].copy_from_slice(b"XFSB");
        xfs[4..8].copy_from_slice(&4096u32.to_be_bytes());
        xfs[8..16].copy_from_slice(&1000u64.to_be_bytes());
        xfs[48..56].copy_from_slice(&u64::MAX.to_be_bytes());
        xfs[84..88].copy_from_slice(&256u32.to_be_bytes());
        xfs[88..92].copy_from_slice(&(GROUPS_MAX as u32).to_be_bytes());
        xfs[96..100].copy_from_slice(&u32::MAX.to_be_bytes());
        xfs[102..104].copy_from_slice(&512u16.to_be_bytes());
        xfs[124] = 8;
        let found = static_metadata(&mut &xfs[..]).unwrap();
        assert_eq!(found.ranges.len(), 4);
        assert!(found.ranges.iter().all(|range| range.end <= 1000 * 4096));
    }
}
