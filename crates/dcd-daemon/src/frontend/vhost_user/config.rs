//! What the device says of itself: virtio features, and the configuration that the guest reads.

use dcd_engine::Uuid;

use super::QUEUES_MAX;
use super::message::CONFIG_BYTES_MAX;

/// Features of virtio-blk, of virtqueues and of virtio devices, by their names in the
/// specification.
pub mod feature {
    #![expect(missing_docs, reason = "the names are those of the specification")]
    pub const SIZE_MAX: u64 = 1 << 1;
    pub const SEG_MAX: u64 = 1 << 2;
    pub const RO: u64 = 1 << 5;
    pub const BLK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const TOPOLOGY: u64 = 1 << 10;
    pub const CONFIG_WCE: u64 = 1 << 11;
    pub const MQ: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
    pub const INDIRECT_DESC: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    /// Of vhost-user: there are features of the protocol, too.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
}

/// Longest piece of a request in bytes.
pub const PIECE_BYTES_MAX: u32 = 64 << 10;
/// Most pieces with data in a request: a chain of 128 less its head and its status.
pub const PIECES_MAX: u32 = 126;
/// Longest read or write in bytes.
pub const IO_BYTES_MAX: u32 = PIECE_BYTES_MAX * PIECES_MAX;
/// Longest discard or write of zeroes, in blocks of 512 bytes.
pub const ZEROES_BLOCKS_MAX: u32 = u32::MAX >> 9;
/// Length of the answer to "who are you".
pub const ID_BYTES: usize = 20;
/// Where the guest says whether there is a write cache.
pub const WRITE_CACHE_AT: usize = 32;

/// What is served.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Of its cache.
    pub uuid: Uuid,
    /// Size in blocks of 512 bytes.
    pub blocks: u64,
    /// Smallest request in bytes.
    pub logical_block_size: u32,
    /// What the data-disk writes at once, in bytes.
    pub physical_block_size: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether discards are offered: they give space back.
    pub trim: bool,
}

impl Volume {
    /// Features that are offered.
    pub fn features(&self) -> u64 {
        use self::feature::*;
        let common = SIZE_MAX | SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | CONFIG_WCE | MQ;
        let transport = INDIRECT_DESC | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1;
        let kind = match (self.read_only, self.trim) {
            (true, _) => RO,
            (false, true) => DISCARD | WRITE_ZEROES,
            (false, false) => WRITE_ZEROES,
        };
        common | transport | kind
    }

    /// The smallest request in blocks of 512 bytes.
    pub fn unit_blocks(&self) -> u64 {
        u64::from(self.logical_block_size / 512).max(1)
    }

    /// What the guest sees, padded with zeroes to the longest that can be asked for.
    pub fn config(&self, write_cache: bool) -> [u8; CONFIG_BYTES_MAX] {
        let mut config = [0; CONFIG_BYTES_MAX];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        let unit = self.unit_blocks();
        let physical = self.physical_block_size.max(self.logical_block_size);
        let per_physical = physical / self.logical_block_size.max(1);
        put(0, &(self.blocks / unit * unit).to_le_bytes());
        put(8, &PIECE_BYTES_MAX.to_le_bytes());
        put(12, &PIECES_MAX.to_le_bytes());
        put(20, &self.logical_block_size.to_le_bytes());
        // Topology: physical block as a power of two of logical ones, no offset, best least
        // request. No best largest: the log takes requests as they come.
        put(24, &[per_physical.checked_ilog2().unwrap_or(0) as u8]);
        put(26, &(per_physical.min(u16::MAX.into()) as u16).to_le_bytes());
        put(WRITE_CACHE_AT, &[u8::from(write_cache)]);
        put(34, &QUEUES_MAX.to_le_bytes());
        // Discards, then zeroes: longest, ranges of a request; where discards begin and that zeroes
        // may free blocks.
        let aligned = physical / 512;
        for (at, number) in [(36, ZEROES_BLOCKS_MAX), (40, 1), (44, aligned.max(1))] {
            put(at, &number.to_le_bytes());
        }
        for (at, number) in [(48, ZEROES_BLOCKS_MAX), (52, 1)] {
            put(at, &number.to_le_bytes());
        }
        put(56, &[1]);
        config
    }

    /// The serial number that the guest sees: `dcd-`, and the first half of the cache's UUID.
    pub fn id(&self) -> [u8; ID_BYTES] {
        let mut id = *b"dcd-0000000000000000";
        let digits = self.uuid.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        for (place, digit) in id.iter_mut().skip(4).zip(digits) {
            *place = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Volume {
        Volume {
            uuid: Uuid([0xa5; 16]),
            blocks: 1003,
            logical_block_size: 512,
            physical_block_size: 4096,
            read_only: false,
            trim: true,
        }
    }

    #[test]
    fn the_configuration_is_that_of_the_data_disk() {
        let config = volume().config(true);
        assert_eq!(config[..8], 1003u64.to_le_bytes());
        assert_eq!(config[20..24], 512u32.to_le_bytes());
        assert_eq!((config[24], config[WRITE_CACHE_AT], config[56]), (3, 1, 1));
        assert_eq!(config[44..48], 8u32.to_le_bytes());
        let large = Volume { logical_block_size: 4096, read_only: true, ..volume() };
        let config = large.config(false);
        assert_eq!(config[..8], 1000u64.to_le_bytes());
        assert_eq!((config[24], config[WRITE_CACHE_AT]), (0, 0));
        assert_eq!(&large.id(), b"dcd-a5a5a5a5a5a5a5a5");
        assert_eq!(large.features() & (feature::RO | feature::DISCARD), feature::RO);
        assert_eq!(volume().features() & (feature::RO | feature::DISCARD), feature::DISCARD);
    }
}
