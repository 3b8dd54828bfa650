//! The block from which everything else is found: block 0, the ROOT of the device. It never
//! changes.

use super::{FormatError, HEADER_BYTES, Kind, open, put_u32, put_u64, seal, u32_at, u64_at};

const KIND: Kind = Kind::new(b"DHIS", "superblock");
const INDEX_KIND: Kind = Kind::new(b"DHJI", "index of the journal");
/// The format that this program reads and writes.
pub const VERSION: u32 = 1;
/// Where it is.
pub const SUPERBLOCK: u64 = 0;
const INDEXES_AT: usize = 96;
/// Where the list in an index begins.
const INDEX_LIST_AT: usize = 32;

/// What is needed to find the rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Size of the blocks, which is that of the device.
    pub block_bytes: usize,
    /// Told apart from other file systems, also from earlier ones on the same device.
    pub uuid: [u8; 16],
    /// The inode of the root directory.
    pub root: u64,
    /// The inode of the directory that holds files that are open and have no name any more.
    pub orphans: u64,
    /// The two blocks with the header of the journal, written in turn.
    pub journal_headers: [u64; 2],
    /// How many blocks the journal has.
    pub journal_blocks: u64,
    /// The blocks that list them.
    pub journal_indexes: Vec<u64>,
}

impl Superblock {
    /// How many blocks of the journal an index lists.
    pub fn per_index(block_bytes: usize) -> usize {
        (block_bytes - INDEX_LIST_AT) / 8
    }

    /// Most blocks of the journal.
    pub fn journal_blocks_max(block_bytes: usize) -> u64 {
        (Self::indexes_max(block_bytes) * Self::per_index(block_bytes)) as u64
    }

    fn indexes_max(block_bytes: usize) -> usize {
        (block_bytes - INDEXES_AT) / 8
    }

    /// As a block.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.block_bytes];
        put_u32(&mut bytes, HEADER_BYTES, VERSION);
        put_u32(&mut bytes, 28, self.block_bytes as u32);
        bytes[32..48].copy_from_slice(&self.uuid);
        put_u64(&mut bytes, 48, self.root);
        put_u64(&mut bytes, 56, self.orphans);
        put_u64(&mut bytes, 64, self.journal_headers[0]);
        put_u64(&mut bytes, 72, self.journal_headers[1]);
        put_u64(&mut bytes, 80, self.journal_blocks);
        put_u32(&mut bytes, 88, self.journal_indexes.len() as u32);
        for (i, index) in self.journal_indexes.iter().enumerate() {
            put_u64(&mut bytes, INDEXES_AT + 8 * i, *index);
        }
        seal(&mut bytes, KIND, SUPERBLOCK, SUPERBLOCK);
        bytes
    }

    /// From block 0 of a device with so many blocks.
    pub fn decode(bytes: &[u8], blocks: u64) -> Result<Superblock, FormatError> {
        open(bytes, KIND, SUPERBLOCK)?;
        if u32_at(bytes, HEADER_BYTES) != VERSION {
            return Err(KIND.bad("version"));
        }
        if u32_at(bytes, 28) as usize != bytes.len() {
            return Err(KIND.bad("size of blocks"));
        }
        let number = |at, field| {
            let block = u64_at(bytes, at);
            if block > 0 && block < blocks { Ok(block) } else { Err(KIND.bad(field)) }
        };
        let count = u32_at(bytes, 88) as usize;
        let journal_blocks = u64_at(bytes, 80);
        let per_index = Self::per_index(bytes.len()) as u64;
        if count > Self::indexes_max(bytes.len())
            || journal_blocks.div_ceil(per_index) != count as u64
            || journal_blocks == 0
        {
            return Err(KIND.bad("size of the journal"));
        }
        let indexes = (0..count).map(|i| number(INDEXES_AT + 8 * i, "journal"));
        Ok(Superblock {
            block_bytes: bytes.len(),
            uuid: bytes[32..48].try_into().expect("16 bytes"),
            root: number(48, "root directory")?,
            orphans: number(56, "directory of orphans")?,
            journal_headers: [number(64, "journal")?, number(72, "journal")?],
            journal_blocks,
            journal_indexes: indexes.collect::<Result<_, _>>()?,
        })
    }
}

/// A list of blocks of the journal.
pub fn encode_index(block_bytes: usize, block: u64, list: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; block_bytes];
    put_u32(&mut bytes, HEADER_BYTES, list.len() as u32);
    for (i, number) in list.iter().enumerate() {
        put_u64(&mut bytes, INDEX_LIST_AT + 8 * i, *number);
    }
    seal(&mut bytes, INDEX_KIND, block, SUPERBLOCK);
    bytes
}

/// The other way round.
pub fn decode_index(bytes: &[u8], block: u64, blocks: u64) -> Result<Vec<u64>, FormatError> {
    open(bytes, INDEX_KIND, block)?;
    let count = u32_at(bytes, HEADER_BYTES) as usize;
    if count > Superblock::per_index(bytes.len()) {
        return Err(INDEX_KIND.bad("length"));
    }
    let list = (0..count).map(|i| u64_at(bytes, INDEX_LIST_AT + 8 * i));
    let list: Vec<u64> = list.collect();
    if list.iter().any(|block| *block == 0 || *block >= blocks) {
        return Err(INDEX_KIND.bad("block"));
    }
    Ok(list)
}
