//! The first bytes of a new cache.

use crate::buffer::Buffer;
use crate::config::LISTED_FREE_MAX;
use crate::format::Geometry;
use crate::format::checkpoint::{Checkpoint, LogPosition};
use crate::format::end_mark;
use crate::format::geometry::SUPERBLOCK_OFFSETS;
use crate::format::superblock::{CacheState, DataDiskInfo, Superblock};
use crate::units::{RecordNumber, SegmentIndex, SegmentSerial, Uuid};
use crate::volume::format::area::VolumeArea;
use crate::volume::format::header::VolumeHeader;
use crate::volume::format::label::DiskTag;
use crate::volume::format::root::{MemberState, Root, ScrubRecord};

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
    /// The volume that takes the place of the data-disk; its `uuid` must be that of the cache. Its
    /// members get labels of epoch 0 ([`MemberLabel`](crate::volume::format::label::MemberLabel))
    /// before the superblocks are written.
    pub volume: Option<VolumeHeader>,
    /// Where the payload of the data-disk begins; 0 if it has no label. Else its
    /// [label](crate::format::data_label) of epoch 0 must be durable before the superblocks are
    /// written.
    pub data_offset_bytes: u64,
    /// Whether there is room for an [end mark](crate::format::end_mark) behind everything else.
    /// Only disks that nobody can shorten do without.
    pub has_end_mark: bool,
    /// Whether the cache-disk is on several disks: all get these bytes, and before the superblocks
    /// a [label](crate::format::leg_label) each, in both copies.
    pub has_legs: bool,
}

/// What to write, in this order: (byte address, bytes). Flush before the last two, which are the
/// superblock copies: a crash before that leaves a disk that is no cache, not a broken one.
///
/// # Panics
/// If the area of the volume would have too many pages, or its header is of another cache.
pub fn create(options: CreateOptions) -> Vec<(u64, Buffer)> {
    let CreateOptions {
        uuid,
        geometry,
        data_disk,
        data_disk_serial,
        created_unix_seconds,
        volume,
        data_offset_bytes,
        has_end_mark,
        has_legs,
    } = options;
    let area = volume.as_ref().map(|header| {
        assert_eq!(header.uuid, uuid);
        VolumeArea::of(header, geometry.end()).expect("its size was checked")
    });
    let position = LogPosition {
        segment: SegmentIndex(0),
        serial: SegmentSerial(1),
        slot_in_segment: 0,
        next_record: RecordNumber(1),
        previous_checksum: 0,
    };
    let checkpoint = Checkpoint {
        free: (1..geometry.segments.min(1 + LISTED_FREE_MAX)).map(SegmentIndex).collect(),
        ..Checkpoint::without_lists(uuid, 0, 0, position)
    };
    let superblock = |generation| Superblock {
        uuid,
        generation,
        state: CacheState::Detached,
        geometry,
        data_disk,
        data_disk_serial: data_disk_serial.clone(),
        created_unix_seconds,
        volume_bytes: area.as_ref().map_or(0, VolumeArea::bytes),
        volume_moved_to: 0,
        data_offset_bytes,
        data_label_epoch: 0,
        has_end_mark,
        has_legs,
        memory: None,
        resized: None,
        nvram: None,
    };
    let end_mark = superblock(0).end_mark_offset();
    let mut writes = Vec::from_iter(end_mark.map(|offset| (offset, end_mark::encode(uuid))));
    if let (Some(header), Some(area)) = (&volume, &area) {
        writes.extend(area.header_offsets().map(|offset| (offset, header.encode())));
        writes.extend(first_root(header, area));
    }
    writes.extend([
        (geometry.checkpoint_offsets[0], checkpoint.encode()),
        // An old checkpoint of a former cache must not look like ours with another geometry.
        (geometry.checkpoint_offsets[1], Buffer::zeroed(4096)),
        (SUPERBLOCK_OFFSETS[0], superblock(0).encode()),
        (SUPERBLOCK_OFFSETS[1], superblock(1).encode()),
    ]);
    writes
}

/// A volume of which nothing is mapped. Pages and records of a former one have another uuid.
fn first_root(header: &VolumeHeader, area: &VolumeArea) -> [(u64, Buffer); 2] {
    let root = Root {
        uuid: header.uuid,
        checkpoint: 1,
        tail_sequence: 1,
        tail_line: 0,
        epoch: 0,
        map: None,
        lost_since_record: 0,
        pointer_pages_added: 0,
        twin_since: 0,
        members: vec![MemberState::UpToDate; header.config.members],
        label_epochs: vec![0; header.config.members],
        disks: vec![DiskTag::default(); header.config.members],
        missed: None,
        scrub: ScrubRecord::default(),
    };
    [(area.root_offset(1), root.encode()), (area.root_offset(0), Buffer::zeroed(4096))]
}
