//! CRC-32C (Castagnoli), the checksum of everything on the cache-disk.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

/// CRC-32C of bytes of which `before` is that of all but the last, `bytes`.
pub fn crc32c_more(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new_with_init_state(Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

/// CRC-32C of bytes that come in pieces.
pub struct Crc32c(crc_fast::Digest);

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c(crc_fast::Digest::new(Crc32Iscsi))
    }
}

impl Crc32c {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all of them.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// CRC-32C of `bytes` with the four bytes at `hole` taken as zero: how a structure carries its own
/// checksum.
///
/// # Panics
/// If the hole does not lie within `bytes`.
pub fn crc32c_with_hole(bytes: &[u8], hole: usize) -> u32 {
    let mut digest = crc_fast::Digest::new(Crc32Iscsi);
    digest.update(&bytes[..hole]);
    digest.update(&[0; 4]);
    digest.update(&bytes[hole + 4..]);
    digest.finalize() as u32
}

/// Whether the checksum code computes a known answer. Vector code that is wrong on one kind of
/// processor has been seen elsewhere, so drivers call this before they trust a disk to it.
pub fn self_test() -> bool {
    is_right(crc32c)
}

/// Short inputs and long ones take different ways through the vector code, so both are tried.
fn is_right(crc32c: impl Fn(&[u8]) -> u32) -> bool {
    let page: [u8; 4096] = std::array::from_fn(|i| (i % 251) as u8);
    crc32c(b"123456789") == 0xe306_9283 && crc32c(&page) == bitwise(&page)
}

/// The definition, bit by bit.
fn bitwise(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (0u32.wrapping_sub(crc & 1)));
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert!(self_test());
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa); // RFC 3720, B.4
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn pieces_are_as_good_as_the_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|number| (number % 251) as u8).collect();
        for size in [1, 7, 4096, 10_000] {
            let mut checksum = Crc32c::default();
            bytes.chunks(size).for_each(|piece| checksum.update(piece));
            assert_eq!(checksum.finish(), crc32c(&bytes), "pieces of {size}");
            let more = bytes.chunks(size).fold(crc32c(&[]), crc32c_more);
            assert_eq!(more, crc32c(&bytes), "pieces of {size}");
        }
    }

    #[test]
    fn the_self_test_notices_wrong_code() {
        let wrong_for = |is_wrong: fn(usize) -> bool| {
            move |bytes: &[u8]| crc32c(bytes) ^ u32::from(is_wrong(bytes.len()))
        };
        assert!(is_right(wrong_for(|_| false)));
        assert!(!is_right(wrong_for(|length| length < 64)));
        assert!(!is_right(wrong_for(|length| length >= 64)));
        // Code that takes blocks in a wrong order.
        assert!(!is_right(|bytes| crc32c(
            &bytes.rchunks(256).flatten().copied().collect::<Vec<_>>()
        )));
    }

    #[test]
    fn hole_counts_as_zero() {
        let mut bytes = *b"0123456789abcdef";
        let expected = crc32c_with_hole(&bytes, 4);
        bytes[4..8].copy_from_slice(&[9; 4]);
        assert_eq!(crc32c_with_hole(&bytes, 4), expected);
        bytes[4..8].fill(0);
        assert_eq!(crc32c(&bytes), expected);
    }
}
