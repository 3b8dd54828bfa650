//! A virtio-blk request: from a chain to what the engine is asked for, and back to a status,
//! without I/O.
//!
//! ```text
//! guest says      type u32, reserved u32, sector u64; then what is to be written, or one range to be zeroed
//! guest awaits    what is read; at last one byte of status
//! ```
//!
//! How that is cut into pieces says nothing. What is in the guest's memory is copied once, and
//! judged then.

use dcd_engine::buffer_pool::BufferPool;
use dcd_engine::units::{BLOCK_SIZE, Lba, LbaRange};
use dcd_engine::{Operation, RequestError};

use super::chain::Chain;
use super::config::{ID_BYTES, IO_BYTES_MAX, Volume, ZEROES_BLOCKS_MAX};
use super::memory::{GuestBytes, OutsideMemory};

/// Numbers of requests.
pub mod kind {
    #![expect(missing_docs, reason = "the names are those of the specification")]
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// What a guest is told of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// Not done.
    IoError = 1,
    /// Nothing that this device does.
    Unsupported = 2,
}

impl From<Result<(), RequestError>> for Status {
    fn from(result: Result<(), RequestError>) -> Status {
        if result.is_ok() { Status::Ok } else { Status::IoError }
    }
}

const HEADER_BYTES: usize = 16;
const RANGE_BYTES: usize = 16;
const STATUS_BYTES: u64 = 1;

/// Why a chain cannot be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockError {
    /// Not even a head.
    #[error("a request of {found} bytes, its head has {HEADER_BYTES}")]
    NoHead {
        /// Its length.
        found: u64,
    },
    /// Nowhere to put the answer.
    #[error("a request without a place for its status")]
    NoStatus,
    /// The memory has gone meanwhile.
    #[error(transparent)]
    Outside(#[from] OutsideMemory),
}

/// What a request wants.
#[derive(Debug)]
pub enum Wanted {
    /// Something of the engine.
    Operation(Operation),
    /// The serial number.
    Id,
    /// Nothing that can be done.
    Refused(Status),
}

/// How much of the budget for requests under way a request takes.
pub fn bytes_of(chain: &Chain) -> u64 {
    chain.readable.len().max(chain.writable.len())
}

/// Judges a request, and copies what is to be written, into memory of `pool`.
pub fn parse(
    chain: &Chain,
    memory: &impl GuestBytes,
    volume: &Volume,
    pool: &mut BufferPool,
) -> Result<Wanted, BlockError> {
    if chain.writable.is_empty() {
        return Err(BlockError::NoStatus);
    }
    let Some(said) = chain.readable.len().checked_sub(HEADER_BYTES as u64) else {
        return Err(BlockError::NoHead { found: chain.readable.len() });
    };
    let awaited = chain.writable.len() - STATUS_BYTES;
    let mut head = [0; HEADER_BYTES];
    chain.readable.read(memory, 0, &mut head)?;
    let [k0, k1, k2, k3, _, _, _, _, sector @ ..] = head;
    let sector = u64::from_le_bytes(sector);
    Ok(match u32::from_le_bytes([k0, k1, k2, k3]) {
        kind::IN => match io_range(volume, sector, awaited) {
            Some(range) => {
                Wanted::Operation(Operation::Read { range, buffer: pool.spare(awaited as usize) })
            }
            None => Wanted::Refused(Status::IoError),
        },
        kind::OUT => match io_range(volume, sector, said) {
            Some(range) => {
                let mut data = pool.take(said as usize);
                chain.readable.read(memory, HEADER_BYTES as u64, data.bytes_mut())?;
                Wanted::Operation(Operation::Write { start: range.start, data })
            }
            None => Wanted::Refused(Status::IoError),
        },
        kind::FLUSH => Wanted::Operation(Operation::Flush),
        kind::GET_ID if awaited >= ID_BYTES as u64 => Wanted::Id,
        kind::GET_ID => Wanted::Refused(Status::IoError),
        kind @ (kind::DISCARD | kind::WRITE_ZEROES) => {
            // One range: what the configuration says.
            if said != RANGE_BYTES as u64 {
                return Ok(Wanted::Refused(Status::IoError));
            }
            let mut range = [0; RANGE_BYTES];
            chain.readable.read(memory, HEADER_BYTES as u64, &mut range)?;
            zeroes(volume, kind, &range)
        }
        _ => Wanted::Refused(Status::Unsupported),
    })
}

/// The range of a read or write.
fn io_range(volume: &Volume, sector: u64, bytes: u64) -> Option<LbaRange> {
    if bytes > IO_BYTES_MAX.into() || !bytes.is_multiple_of(BLOCK_SIZE) {
        return None;
    }
    range(volume, sector, bytes / BLOCK_SIZE)
}

/// A range within the volume, of whole logical blocks.
fn range(volume: &Volume, start: u64, blocks: u64) -> Option<LbaRange> {
    let unit = volume.unit_blocks();
    let end = start.checked_add(blocks)?;
    let is_whole = start.is_multiple_of(unit) && blocks.is_multiple_of(unit);
    (is_whole && end <= volume.blocks / unit * unit)
        .then_some(LbaRange { start: Lba(start), blocks })
}

fn zeroes(volume: &Volume, kind: u32, bytes: &[u8; RANGE_BYTES]) -> Wanted {
    let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, f0, f1, f2, f3] = *bytes;
    let start = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    let blocks = u32::from_le_bytes([n0, n1, n2, n3]);
    let flags = u32::from_le_bytes([f0, f1, f2, f3]);
    const UNMAP: u32 = 1;
    if flags & !UNMAP != 0 || (kind == kind::DISCARD && flags != 0) {
        return Wanted::Refused(Status::Unsupported);
    }
    match range(volume, start, blocks.into()).filter(|_| blocks <= ZEROES_BLOCKS_MAX) {
        None => Wanted::Refused(Status::IoError),
        Some(range) if kind == kind::DISCARD => Wanted::Operation(Operation::Discard { range }),
        Some(range) => {
            let may_unmap = flags & UNMAP != 0;
            Wanted::Operation(Operation::WriteZeroes { range, may_unmap })
        }
    }
}

/// Writes the answer where the guest awaits it: `data`, if it was read, and the status. How many
/// bytes were written, as the guest counts: from the first on.
pub fn answer(
    chain: &Chain,
    memory: &impl GuestBytes,
    status: Status,
    data: Option<&[u8]>,
) -> Result<u32, OutsideMemory> {
    let status_at = chain.writable.len() - STATUS_BYTES;
    let mut written = 0;
    if let Some(data) = data {
        chain.writable.write(memory, 0, data)?;
        written = data.len() as u64;
    }
    chain.writable.write(memory, status_at, &[status as u8])?;
    if written == status_at {
        written += STATUS_BYTES;
    }
    // What is read is never longer than a request may be.
    Ok(u32::try_from(written).unwrap_or(u32::MAX))
}
