//! What superblock, checkpoint and record begin with: magic number, version, checksum. Checked
//! here, in that order, so that each error says the most it can.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::checksum::crc32c_with_hole;
use crate::error::FormatError;

/// Offset of the checksum in each of the structures; it covers the whole structure.
pub(crate) const CHECKSUM_OFFSET: usize = std::mem::offset_of!(PreambleOnDisk, checksum);

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PreambleOnDisk {
    magic: U64,
    version: U32,
    checksum: U32,
}

/// What the beginning of one kind of structure must say.
pub(crate) struct Preamble {
    /// What the structure is called in errors.
    pub(crate) what: &'static str,
    pub(crate) magic: u64,
    pub(crate) version: u32,
}

impl Preamble {
    /// The structure at the front of `bytes`, if it is there and of our version. A version that is
    /// not ours may keep its checksum elsewhere, so the checksum is not looked at here.
    pub(crate) fn identify<'a, T>(&self, bytes: &'a [u8]) -> Result<&'a T, FormatError>
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        let Preamble { what, magic, version } = *self;
        let short = FormatError::Short { what, expected: size_of::<T>(), found: bytes.len() };
        let (structure, _) = T::ref_from_prefix(bytes).map_err(|_| short.clone())?;
        let (found, _) = PreambleOnDisk::ref_from_prefix(bytes).map_err(|_| short)?;
        if found.magic.get() != magic {
            return Err(FormatError::Magic { what, expected: magic, found: found.magic.get() });
        }
        if found.version.get() != version {
            let found = found.version.get();
            return Err(FormatError::Version { what, expected: version, found });
        }
        Ok(structure)
    }

    /// The same, with a checksum that matches, and that checksum.
    pub(crate) fn verify<'a, T>(&self, bytes: &'a [u8]) -> Result<(&'a T, u32), FormatError>
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        let structure: &T = self.identify(bytes)?;
        let bytes = structure.as_bytes();
        let expected = crc32c_with_hole(bytes, CHECKSUM_OFFSET);
        let (found, _) =
            U32::read_from_prefix(&bytes[CHECKSUM_OFFSET..]).expect("longer than a preamble");
        if found.get() != expected {
            let what = self.what;
            return Err(FormatError::Checksum { what, expected, found: found.get() });
        }
        Ok((structure, expected))
    }
}
