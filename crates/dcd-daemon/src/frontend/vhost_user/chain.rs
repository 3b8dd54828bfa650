//! A chain of descriptors: which pieces of the guest's memory a request consists of, without I/O.
//!
//! Each descriptor is copied out of the guest's memory once, and everything is said of the copy:
//! the guest may change its own at any time. The number of steps is bounded, so that a chain that
//! leads into itself ends.

use super::memory::{GuestBytes, OutsideMemory};

/// Length of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;
/// Longest chain, and longest indirect table. Queues have no more descriptors than that, either.
pub const CHAIN_MAX: u16 = 1024;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Why a chain is no request. Where its status belongs is not known then, so nothing can be
/// answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChainError {
    /// A number that no descriptor has.
    #[error("descriptor {index} of {size}")]
    Index {
        /// The number.
        index: u16,
        /// How many there are.
        size: u16,
    },
    /// It has no end.
    #[error("a chain of more than {most} descriptors, or one that leads into itself")]
    TooLong {
        /// What may be.
        most: u16,
    },
    /// A table that is none, or not where it may be.
    #[error("an indirect table of {len} bytes, {problem}")]
    IndirectTable {
        /// Its length.
        len: u32,
        /// What is wrong.
        problem: &'static str,
    },
    /// What the guest reads comes first.
    #[error("a piece to be read by the device behind one to be written")]
    Order,
    /// Nothing in it.
    #[error("a piece without bytes")]
    Empty,
    /// No memory of the guest.
    #[error(transparent)]
    Outside(#[from] OutsideMemory),
}

/// A descriptor, as it was when it was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    /// Reads one.
    pub fn parse(bytes: &[u8; DESCRIPTOR_BYTES]) -> Descriptor {
        let [a, b, c, d, e, f, g, h, l0, l1, l2, l3, f0, f1, n0, n1] = *bytes;
        Descriptor {
            address: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            flags: u16::from_le_bytes([f0, f1]),
            next: u16::from_le_bytes([n0, n1]),
        }
    }
}

/// A piece of the guest's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First address.
    pub address: u64,
    /// Length.
    pub len: u32,
}

/// A sequence of pieces that is read or written as one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pieces {
    pieces: Vec<Piece>,
    len: u64,
}

impl Pieces {
    fn push(&mut self, piece: Piece) {
        self.pieces.push(piece);
        // At most 1024 of 4 GiB.
        self.len += u64::from(piece.len);
    }

    /// Bytes of all of them.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies out, from `skip` bytes on.
    pub fn read(
        &self,
        memory: &impl GuestBytes,
        skip: u64,
        into: &mut [u8],
    ) -> Result<(), OutsideMemory> {
        let mut rest = into;
        for piece in self.from(skip) {
            let (here, later) = rest.split_at_mut(rest.len().min(piece.len as usize));
            memory.read(piece.address, here)?;
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { Err(self.behind(rest.len())) }
    }

    /// Copies in, from `skip` bytes on.
    pub fn write(
        &self,
        memory: &impl GuestBytes,
        skip: u64,
        from: &[u8],
    ) -> Result<(), OutsideMemory> {
        let mut rest = from;
        for piece in self.from(skip) {
            let (here, later) = rest.split_at(rest.len().min(piece.len as usize));
            memory.write(piece.address, here)?;
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { Err(self.behind(rest.len())) }
    }

    fn behind(&self, missing: usize) -> OutsideMemory {
        OutsideMemory { address: self.len, len: missing as u64 }
    }

    /// The pieces behind the first `skip` bytes.
    fn from(&self, mut skip: u64) -> impl Iterator<Item = Piece> {
        self.pieces.iter().filter_map(move |piece| {
            let skipped = skip.min(piece.len.into()) as u32;
            skip -= u64::from(skipped);
            let len = piece.len - skipped;
            // The whole piece was checked, so its addresses have no end before its own.
            (len > 0).then(|| Piece { address: piece.address + u64::from(skipped), len })
        })
    }
}

/// A request's memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// What the guest says.
    pub readable: Pieces,
    /// Where it awaits the answer.
    pub writable: Pieces,
}

impl Chain {
    /// Follows a chain from `head` on. `descriptor` copies one out of the ring's table of `size`;
    /// indices below `size` are asked for only.
    pub fn follow(
        memory: &impl GuestBytes,
        head: u16,
        size: u16,
        has_indirect: bool,
        descriptor: impl Fn(u16) -> Descriptor,
    ) -> Result<Chain, ChainError> {
        let mut chain = Chain::default();
        let mut index = head;
        // No chain without a loop is longer than its table.
        for _ in 0..size {
            if index >= size {
                return Err(ChainError::Index { index, size });
            }
            let found = descriptor(index);
            if found.flags & INDIRECT != 0 {
                return chain.follow_table(memory, found, has_indirect);
            }
            chain.push(memory, found)?;
            if found.flags & NEXT == 0 {
                return Ok(chain);
            }
            index = found.next;
        }
        Err(ChainError::TooLong { most: size })
    }

    /// The rest of a chain, in a table of its own.
    fn follow_table(
        mut self,
        memory: &impl GuestBytes,
        found: Descriptor,
        has_indirect: bool,
    ) -> Result<Chain, ChainError> {
        let len = found.len;
        let wrong = |problem| Err(ChainError::IndirectTable { len, problem });
        if !has_indirect {
            return wrong("which was not agreed on");
        }
        if found.flags & NEXT != 0 {
            return wrong("with a descriptor behind it");
        }
        if !(len as usize).is_multiple_of(DESCRIPTOR_BYTES) {
            return wrong("which is no number of descriptors");
        }
        if len == 0 || len as usize > usize::from(CHAIN_MAX) * DESCRIPTOR_BYTES {
            return wrong("expected one to 1024 descriptors");
        }
        let mut bytes = vec![0; len as usize];
        memory.read(found.address, &mut bytes)?;
        let (table, _) = bytes.as_chunks();
        let size = table.len() as u16;
        let mut index = 0;
        for _ in 0..size {
            let Some(found) = table.get(usize::from(index)) else {
                return Err(ChainError::Index { index, size });
            };
            let found = Descriptor::parse(found);
            if found.flags & INDIRECT != 0 {
                return wrong("within another");
            }
            self.push(memory, found)?;
            if found.flags & NEXT == 0 {
                return Ok(self);
            }
            index = found.next;
        }
        Err(ChainError::TooLong { most: size })
    }

    fn push(&mut self, memory: &impl GuestBytes, found: Descriptor) -> Result<(), ChainError> {
        let piece = Piece { address: found.address, len: found.len };
        if piece.len == 0 {
            return Err(ChainError::Empty);
        }
        memory.check(piece.address, piece.len.into())?;
        match found.flags & WRITE != 0 {
            true => self.writable.push(piece),
            false if self.writable.is_empty() => self.readable.push(piece),
            false => return Err(ChainError::Order),
        }
        Ok(())
    }
}
