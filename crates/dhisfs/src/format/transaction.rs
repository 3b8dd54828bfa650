//! A transaction in the journal: new contents of blocks of metadata, and pointers that come and go.
//! All of it counts, or nothing.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 24 | 8 | its number |
//! | 32 | 16 | the file system |
//! | 48 | 4 | blocks that it takes in the journal |
//! | 52 | 4 | images |
//! | 56 | 4 | changes of pointers |
//! | 64 | 8 each | where the images belong |
//! | then | 17 each | changes: from, to, 0 for one that comes, 1 for one that goes |
//! | the next whole block | | the images |
//!
//! The checksum is over all its blocks.

use std::sync::Arc;

use dcd_client::{PointerChange, PointerVerb};

use super::{FormatError, HEADER_BYTES, Kind, open, put_u32, put_u64, seal, u32_at, u64_at};

const KIND: Kind = Kind::new(b"DHTX", "transaction");
const LIST_AT: usize = 64;
const CHANGE_BYTES: usize = 17;

/// A transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// Number: one more than that of the one before.
    pub sequence: u64,
    /// Contents of blocks.
    pub images: Vec<(u64, Arc<Vec<u8>>)>,
    /// Pointers that come and go; each pointer at most once.
    pub changes: Vec<PointerChange>,
}

/// How many blocks one with so much in it takes.
pub fn blocks_of(block_bytes: usize, images: usize, changes: usize) -> usize {
    (LIST_AT + 8 * images + CHANGE_BYTES * changes).div_ceil(block_bytes) + images
}

impl Transaction {
    /// As whole blocks, to begin at this place of the journal.
    pub fn encode(&self, block_bytes: usize, uuid: &[u8; 16], position: u64) -> Vec<u8> {
        let blocks = blocks_of(block_bytes, self.images.len(), self.changes.len());
        let mut bytes = vec![0; blocks * block_bytes];
        put_u64(&mut bytes, HEADER_BYTES, self.sequence);
        bytes[32..48].copy_from_slice(uuid);
        put_u32(&mut bytes, 48, blocks as u32);
        put_u32(&mut bytes, 52, self.images.len() as u32);
        put_u32(&mut bytes, 56, self.changes.len() as u32);
        let mut at = LIST_AT;
        for (block, _) in &self.images {
            put_u64(&mut bytes, at, *block);
            at += 8;
        }
        for change in &self.changes {
            put_u64(&mut bytes, at, change.from);
            put_u64(&mut bytes, at + 8, change.to);
            bytes[at + 16] = (change.verb == PointerVerb::Delete).into();
            at += CHANGE_BYTES;
        }
        let images_at = (blocks - self.images.len()) * block_bytes;
        let places = bytes[images_at..].chunks_mut(block_bytes);
        for (place, (_, image)) in places.zip(&self.images) {
            place.copy_from_slice(image);
        }
        seal(&mut bytes, KIND, position, 0);
        bytes
    }

    /// How many blocks the one takes that seems to begin with this block; to be checked by
    /// [`Transaction::decode`].
    pub fn blocks(first: &[u8], sequence: u64) -> Option<u64> {
        let is_one = first[..4] == KIND.magic && u64_at(first, HEADER_BYTES) == sequence;
        is_one.then(|| u64::from(u32_at(first, 48))).filter(|blocks| *blocks > 0)
    }

    /// The other way round. `blocks` is the size of the device.
    pub fn decode(
        bytes: &[u8],
        block_bytes: usize,
        uuid: &[u8; 16],
        position: u64,
        blocks: u64,
    ) -> Result<Transaction, FormatError> {
        open(bytes, KIND, position)?;
        if bytes[32..48] != *uuid {
            return Err(KIND.bad("file system"));
        }
        let (images, changes) = (u32_at(bytes, 52) as usize, u32_at(bytes, 56) as usize);
        // Neither can be larger than what holds them; this way the sum cannot overflow.
        if images.max(changes) > bytes.len()
            || blocks_of(block_bytes, images, changes) * block_bytes != bytes.len()
        {
            return Err(KIND.bad("length"));
        }
        let is_there = |block: u64| block < blocks;
        let numbers: Vec<u64> = (0..images).map(|i| u64_at(bytes, LIST_AT + 8 * i)).collect();
        let changes_at = LIST_AT + 8 * images;
        let changes = bytes[changes_at..].chunks(CHANGE_BYTES).take(changes).map(|change| {
            let verb = match change[16] {
                0 => PointerVerb::Create,
                1 => PointerVerb::Delete,
                _ => return Err(KIND.bad("pointer")),
            };
            let (from, to) = (u64_at(change, 0), u64_at(change, 8));
            if is_there(from) && is_there(to) {
                Ok(PointerChange { verb, from, to })
            } else {
                Err(KIND.bad("pointer"))
            }
        });
        let changes = changes.collect::<Result<_, _>>()?;
        if !numbers.iter().all(|block| is_there(*block)) {
            return Err(KIND.bad("image"));
        }
        let images_at = bytes.len() - images * block_bytes;
        let images = bytes[images_at..].chunks(block_bytes).map(|image| Arc::new(image.to_vec()));
        let images = numbers.into_iter().zip(images).collect();
        Ok(Transaction { sequence: u64_at(bytes, HEADER_BYTES), images, changes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [7; 16];

    fn transaction() -> Transaction {
        let images = (1..4).map(|i| (i * 100, Arc::new(vec![i as u8; 4096]))).collect();
        let changes = (0..500).map(|i| PointerChange::delete(i, 2 * i)).collect();
        Transaction { sequence: 12, images, changes }
    }

    #[test]
    fn there_and_back() {
        let bytes = transaction().encode(4096, &UUID, 77);
        assert_eq!(Transaction::blocks(&bytes, 12), Some(bytes.len() as u64 / 4096));
        assert_eq!(Transaction::blocks(&bytes, 13), None);
        assert_eq!(Transaction::decode(&bytes, 4096, &UUID, 77, 1000), Ok(transaction()));
    }

    #[test]
    fn anything_else_does_not_count() {
        let bytes = transaction().encode(4096, &UUID, 77);
        assert!(Transaction::decode(&bytes, 4096, &UUID, 78, 1000).is_err());
        assert!(Transaction::decode(&bytes, 4096, &[8; 16], 77, 1000).is_err());
        assert!(Transaction::decode(&bytes, 4096, &UUID, 77, 998).is_err());
        for at in (0..bytes.len()).step_by(97) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(Transaction::decode(&damaged, 4096, &UUID, 77, 1000).is_err(), "at {at}");
        }
        let torn = &bytes[..bytes.len() - 4096];
        assert!(Transaction::decode(torn, 4096, &UUID, 77, 1000).is_err());
    }
}
