//! A block that lists blocks of a file.

use super::{FormatError, Kind, open, put_u64, seal, u64_at};

const KIND: Kind = Kind::new(b"DHIB", "indirect block");
const LIST_AT: usize = 32;

/// How many blocks it lists.
pub fn fan_out(block_bytes: usize) -> usize {
    (block_bytes - LIST_AT) / 8
}

/// As a block; zero is a hole.
pub fn encode(list: &[u64], block_bytes: usize, block: u64, owner: u64) -> Vec<u8> {
    let mut bytes = vec![0; block_bytes];
    for (i, number) in list.iter().enumerate() {
        put_u64(&mut bytes, LIST_AT + 8 * i, *number);
    }
    seal(&mut bytes, KIND, block, owner);
    bytes
}

/// The list, and the inode that it belongs to.
pub fn decode(bytes: &[u8], block: u64, blocks: u64) -> Result<(Vec<u64>, u64), FormatError> {
    let owner = open(bytes, KIND, block)?;
    let list = (0..fan_out(bytes.len())).map(|i| u64_at(bytes, LIST_AT + 8 * i));
    let list: Vec<u64> = list.collect();
    if list.iter().any(|number| *number >= blocks) {
        return Err(KIND.bad("block"));
    }
    Ok((list, owner))
}
