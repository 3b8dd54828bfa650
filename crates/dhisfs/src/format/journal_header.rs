//! Where the journal begins. Two blocks hold it, written in turn; the newer one that can be read
//! counts.

use super::superblock::SUPERBLOCK;
use super::{FormatError, HEADER_BYTES, Kind, open, put_u64, seal, u64_at};

const KIND: Kind = Kind::new(b"DHJH", "header of the journal");

/// A place in the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// Number of the transaction that begins there.
    pub sequence: u64,
    /// How many blocks were written to the journal before it, ever.
    pub block: u64,
}

/// The header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalHeader {
    /// One more with each that is written.
    pub serial: u64,
    /// Pointers may not have been told to the device from here on.
    pub pointers_from: Position,
    /// Blocks may not be in their places from here on. Not before `pointers_from`.
    pub images_from: Position,
}

impl JournalHeader {
    /// As a block.
    pub fn encode(&self, block_bytes: usize, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; block_bytes];
        let Position { sequence, block: at } = self.pointers_from;
        let numbers =
            [self.serial, sequence, at, self.images_from.sequence, self.images_from.block];
        for (i, number) in numbers.into_iter().enumerate() {
            put_u64(&mut bytes, HEADER_BYTES + 8 * i, number);
        }
        seal(&mut bytes, KIND, block, SUPERBLOCK);
        bytes
    }

    /// From a block.
    pub fn decode(bytes: &[u8], block: u64) -> Result<JournalHeader, FormatError> {
        open(bytes, KIND, block)?;
        let number = |i: usize| u64_at(bytes, HEADER_BYTES + 8 * i);
        let header = JournalHeader {
            serial: number(0),
            pointers_from: Position { sequence: number(1), block: number(2) },
            images_from: Position { sequence: number(3), block: number(4) },
        };
        let (pointers, images) = (header.pointers_from, header.images_from);
        // So far from the end that no sum can overflow.
        let is_sane = [header.serial, images.sequence, images.block].iter().all(|n| n >> 60 == 0);
        if !is_sane || pointers.sequence > images.sequence || pointers.block > images.block {
            return Err(KIND.bad("position"));
        }
        Ok(header)
    }
}
