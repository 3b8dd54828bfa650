//! What clients asked and saw, with stamps in every sector so that each read tells which write it
//! has seen.

/// Size of what is written, read and judged as one: dcd's block (C16).
pub const SECTOR: usize = 512;

/// What a sector holds: the stamp of the write that put it there, or [`ZERO`]. No two writes have
/// the same stamp.
pub type Stamp = u64;

/// Never written, discarded, or zeroed. The only value that several changes write.
pub const ZERO: Stamp = 0;

/// What the sector `index` holds after the write with this stamp: every word depends on the stamp,
/// the sector and its own place, so that neither a mixed nor a misplaced sector looks right.
pub fn sector_bytes(stamp: Stamp, index: usize) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if stamp == ZERO {
        return bytes;
    }
    bytes[..8].copy_from_slice(&stamp.to_le_bytes());
    for (place, word) in bytes.chunks_exact_mut(8).enumerate().skip(1) {
        let mixed = (stamp ^ (index as u64) << 32).wrapping_mul(2 * place as u64 + 1);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    bytes
}

/// The stamp of a sector, unless it is torn, misplaced, or nobody's.
pub fn stamp_of(bytes: &[u8], index: usize) -> Result<Stamp, String> {
    let stamp = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    if bytes == sector_bytes(stamp, index) {
        return Ok(stamp);
    }
    Err(format!("sector {index} is no whole sector of any write: {:02x?}...", &bytes[..24]))
}

/// The stamps of sectors from `start` on.
pub fn stamps_of(bytes: &[u8], start: usize) -> Result<Vec<Stamp>, String> {
    let sectors = bytes.chunks_exact(SECTOR).enumerate();
    sectors.map(|(index, bytes)| stamp_of(bytes, start + index)).collect()
}

/// A point in the one order of all sends and receipts of all clients.
pub type Tick = u64;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// What each sector showed.
    Read(Vec<Stamp>),
    /// So many sectors with this stamp. `durable`: all changes up to this one were, at the reply
    /// (FUA, or any change in the ack mode `durable`).
    Write {
        stamp: Stamp,
        sectors: usize,
        durable: bool,
    },
    Flush,
}

/// A request. Without a reply (a crash came first) it has happened or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    pub sent: Tick,
    pub replied: Option<Tick>,
    /// First sector.
    pub start: usize,
    pub action: Action,
}

impl Op {
    pub fn sectors(&self) -> std::ops::Range<usize> {
        let count = match &self.action {
            Action::Read(stamps) => stamps.len(),
            Action::Write { sectors, .. } => *sectors,
            Action::Flush => 0,
        };
        self.start..self.start + count
    }

    /// Whether this request had its reply before `other` was sent.
    pub fn is_before(&self, other: &Op) -> bool {
        self.replied.is_some_and(|replied| replied < other.sent)
    }
}
