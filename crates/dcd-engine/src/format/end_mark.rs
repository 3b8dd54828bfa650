//! The end mark: the last bytes of a cache-disk that are in use, written when the cache is made and
//! never again.
//!
//! A cache-disk that was shortened and lengthened again has its superblocks, its checkpoints and
//! some segments, and zeroes in place of the others. The log then ends early, as after a power cut,
//! and nothing in it tells that flushed writes are missing. The end mark does: it is what is lost
//! first.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::checksum::crc32c_with_hole;
use super::layout::{FieldLayout, layout_of};
use super::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::units::Uuid;

/// "dcdENDMK" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdENDMK");
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// What it takes of the cache-disk.
pub const END_MARK_BYTES: usize = 4096;
const WHAT: &str = "the end mark";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct EndMarkOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) unused: [u8; 4064],
}

const _: () = assert!(size_of::<EndMarkOnDisk>() == END_MARK_BYTES);
const _: () = assert!(std::mem::offset_of!(EndMarkOnDisk, checksum) == CHECKSUM_OFFSET);

/// Every field, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(EndMarkOnDisk { magic, version, checksum, uuid, unused })
}

/// The bytes of the end mark of a cache.
pub fn encode(uuid: Uuid) -> Buffer {
    let mut disk = EndMarkOnDisk::new_zeroed();
    disk.magic = MAGIC.into();
    disk.version = VERSION.into();
    disk.uuid = uuid.0;
    disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
    Buffer::copy_of(disk.as_bytes())
}

/// Whether this is the end mark of that cache. Every byte may be anything.
///
/// # Errors
/// If it is none, a damaged one, or that of another cache.
pub fn verify(bytes: &[u8], uuid: Uuid) -> Result<(), FormatError> {
    let (disk, _) = PREAMBLE.verify::<EndMarkOnDisk>(bytes)?;
    if disk.uuid != uuid.0 {
        let found = Uuid(disk.uuid);
        return Err(FormatError::Uuid { what: WHAT, expected: uuid, found });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_bytes_are_an_end_mark() {
        let (uuid, other) = (Uuid([3; 16]), Uuid([4; 16]));
        let bytes = encode(uuid);
        assert_eq!(verify(bytes.bytes(), uuid), Ok(()));
        let error = FormatError::Uuid { what: WHAT, expected: other, found: uuid };
        assert_eq!(verify(bytes.bytes(), other), Err(error));
        assert!(matches!(verify(&[0; END_MARK_BYTES], uuid), Err(FormatError::Magic { .. })));
        for at in 0..END_MARK_BYTES {
            let mut flipped = bytes.bytes().to_vec();
            flipped[at] ^= 1;
            assert!(verify(&flipped, uuid).is_err(), "byte {at}");
            assert!(verify(&bytes.bytes()[..at], uuid).is_err(), "cut at {at}");
        }
    }
}
