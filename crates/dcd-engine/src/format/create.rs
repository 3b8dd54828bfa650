//! The first bytes of a new cache.

use super::Geometry;
use super::checkpoint::{Checkpoint, LogPosition};
use super::geometry::SUPERBLOCK_OFFSETS;
use super::superblock::{CacheState, Superblock};
use crate::buffer::Buffer;
use crate::config::DataDiskInfo;
use crate::units::{RecordNumber, SegmentIndex, SegmentSerial, Uuid};

/// What a new cache is to be.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Its identity: 16 random bytes.
    pub uuid: Uuid,
    /// Where things will be.
    pub geometry: Geometry,
    /// The data-disk it will belong to.
    pub data_disk: DataDiskInfo,
    /// Serial number or WWN of the data-disk; at most 64 bytes.
    pub data_disk_serial: String,
    /// Seconds since 1970.
    pub created_unix_seconds: u64,
}

/// What to write, in this order: (byte address, bytes). Flush before the last two, which are the
/// superblock copies: a crash before that leaves a disk that is no cache, not a broken one.
pub fn create(options: CreateOptions) -> Vec<(u64, Buffer)> {
    let CreateOptions { uuid, geometry, data_disk, data_disk_serial, created_unix_seconds } =
        options;
    let checkpoint = Checkpoint {
        uuid,
        generation: 0,
        epoch: 0,
        position: LogPosition {
            segment: SegmentIndex(0),
            serial: SegmentSerial(1),
            slot_in_segment: 0,
            next_record: RecordNumber(1),
            previous_checksum: 0,
        },
        free: (1..geometry.segments).map(SegmentIndex).collect(),
        filled: Vec::new(),
        live: Vec::new(),
        zeroes: Vec::new(),
        poisoned: Vec::new(),
        witnesses: Vec::new(),
        copy_pages: Vec::new(),
    };
    let superblock = |generation| Superblock {
        uuid,
        generation,
        state: CacheState::Detached,
        geometry,
        data_disk,
        data_disk_serial: data_disk_serial.clone(),
        created_unix_seconds,
    };
    vec![
        (geometry.checkpoint_offsets[0], checkpoint.encode()),
        // An old checkpoint of a former cache must not look like ours with another geometry.
        (geometry.checkpoint_offsets[1], Buffer::zeroed(4096)),
        (SUPERBLOCK_OFFSETS[0], superblock(0).encode()),
        (SUPERBLOCK_OFFSETS[1], superblock(1).encode()),
    ]
}
