//! The superblock: who this cache is, where things are, which data-disk it belongs to.
//!
//! Two copies, written in turn and never both at once (C20); the valid one with the higher
//! generation counts.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::COUNTER_END;
use super::checksum::crc32c_with_hole;
use super::end_mark::END_MARK_BYTES;
use super::geometry::{ANNEXES_MAX, Annexes, Geometry, SUPERBLOCK_OFFSETS};
use super::layout::{FieldLayout, layout_of};
use super::nvram::NvramIdentity;
use super::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::io::ResizeError;
use crate::units::{BLOCK_SIZE, LINE_SIZE, Uuid};

/// "dcdSUPER" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdSUPER");
/// The version that this program writes and reads.
pub const VERSION: u32 = 2;
/// Size of a copy on the cache-disk.
pub const SUPERBLOCK_SIZE: usize = 4096;
/// Largest data-disk, in blocks of 512 bytes: 4 PiB.
pub const DATA_DISK_BLOCKS_MAX: u64 = 1 << 43;
/// Incompatible feature: the cache has a read area, at the end of the room of its segments. A
/// program that did not know of it would change the data and leave the copies there as they are.
/// (Bit 1 was that of a read area behind that room, whose caches are refused.)
pub const FEATURE_READ_AREA: u64 = 128;
/// Incompatible feature: the data-disks are members of a volume, whose tables are behind everything
/// else.
pub const FEATURE_VOLUME: u64 = 2;
/// Incompatible feature: the data-disk begins with a label, and its payload behind that (contract
/// C29).
pub const FEATURE_LABELLED: u64 = 4;
/// Incompatible feature: the cache-disk is on several disks, each with a
/// [label](super::leg_label). A program that did not know of it would write to one of them alone.
pub const FEATURE_LEGS: u64 = 8;
/// Incompatible feature: the log has not the size that it was made with, or was given another one
/// in this session. A program that did not know of it would take other bytes for its segments and
/// checkpoints.
pub const FEATURE_RESIZED: u64 = 16;
/// Incompatible feature: a [memory](super::nvram) in front of the log holds what is nowhere else. A
/// program that did not know of it would serve what is older.
pub const FEATURE_NVRAM: u64 = 32;
/// Incompatible feature: the tables of the volume are not where they were made. A program that did
/// not know of it would believe those that are there.
pub const FEATURE_VOLUME_MOVED: u64 = 64;
/// Compatible feature: an [end mark](super::end_mark) lies behind everything else.
pub const FEATURE_END_MARK: u64 = 1;
/// Longest name of the place of a segment memory, in bytes.
pub const MEMORY_PLACE_BYTES_MAX: usize = 96;
/// Largest head of a labelled data-disk.
pub const DATA_OFFSET_BYTES_MAX: u64 = 1 << 30;
/// A `memory_id` that says that there is none.
const NO_MEMORY: [u8; 16] = [0; 16];
const WHAT: &str = "the superblock";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

/// Whether a cache is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheState {
    /// Closed in order; there may be dirty blocks.
    Closed,
    /// In use, or its user died.
    Open,
    /// Detached: the data-disk stands on its own, the log holds nothing.
    Detached,
}

impl CacheState {
    fn code(self) -> u32 {
        match self {
            CacheState::Closed => 1,
            CacheState::Open => 2,
            CacheState::Detached => 3,
        }
    }
}

/// Which segment memory an open session has, so that a start can tell whether it has found that one
/// or has lost it, and with it what was acknowledged and not flushed (C4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryIdentity {
    /// The boot of the machine: of another one nothing can be left.
    pub boot_id: [u8; 16],
    /// Random, not 0; the memory carries it, too.
    pub memory_id: [u8; 16],
    /// Its directory, for the next start and for people; at most [`MEMORY_PLACE_BYTES_MAX`] bytes.
    pub place: String,
    /// The `max-delay` of the session: what was acknowledged so long before its end and not flushed
    /// may be nowhere else. 0: it acknowledges what is durable, and nothing is lost with the
    /// memory.
    pub max_delay_milliseconds: u32,
}

/// What the engine must know of the data-disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataDiskInfo {
    /// Size in 512-byte blocks.
    pub blocks: u64,
    /// Smallest read or write, in bytes: 512 or 4096.
    pub logical_block_size: u32,
    /// What the disk writes at once, in bytes: 512 or 4096. A torn write damages that much (C15).
    pub physical_sector_size: u32,
}

impl DataDiskInfo {
    /// Size in bytes.
    pub fn bytes(self) -> u64 {
        self.blocks * BLOCK_SIZE
    }
}

/// The superblock in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Identity of the cache.
    pub uuid: Uuid,
    /// Counts the writings of superblocks.
    pub generation: u64,
    /// Whether the cache is in use.
    pub state: CacheState,
    /// Where things are.
    pub geometry: Geometry,
    /// The data-disk at creation.
    pub data_disk: DataDiskInfo,
    /// Serial number or WWN of the data-disk, where it has one; at most 64 bytes.
    pub data_disk_serial: String,
    /// Seconds since 1970 at creation; for people only.
    pub created_unix_seconds: u64,
    /// Size of the volume area; 0: there is one data-disk.
    pub volume_bytes: u64,
    /// Where the volume area begins since the volume has grown: behind all that was there then. 0:
    /// behind what the log was made with.
    pub volume_moved_to: u64,
    /// Where the payload of the data-disk begins: behind its label. 0: it has none, and is the
    /// volume byte for byte.
    pub data_offset_bytes: u64,
    /// The epoch that the [label](super::data_label) of the data-disk has or allows: raised with
    /// each superblock, unless the data-disk takes no writes. 0 without a label.
    pub data_label_epoch: u64,
    /// Whether an [end mark](super::end_mark) lies behind everything else.
    pub has_end_mark: bool,
    /// Whether the cache-disk is on several disks.
    pub has_legs: bool,
    /// Which segment memory the session has; `None` if none is open, or its driver did not say.
    pub memory: Option<MemoryIdentity>,
    /// What follows from a change of the log's size in this session, or the last.
    pub resized: Option<Resized>,
    /// The memory in front of the log, from when a session begins with it until one ends in order
    /// with nothing left in it.
    pub nvram: Option<NvramIdentity>,
}

/// A superblock that was written in the middle of a session, because the log has got another size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resized {
    /// The session: its records and checkpoints have this epoch, although the generation of the
    /// superblock is higher.
    pub session_epoch: u64,
    /// The first checkpoint that knows of the size. No older one counts any more, wherever it is:
    /// it may speak of segments that are gone.
    pub checkpoint_generation: u64,
}

/// The superblock on the cache-disk, format version 2.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SuperblockOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) features_compatible: U64,
    pub(crate) features_read_only_compatible: U64,
    pub(crate) features_incompatible: U64,
    pub(crate) uuid: [u8; 16],
    pub(crate) generation: U64,
    pub(crate) segments_offset: U64,
    pub(crate) segment_size_bytes: U32,
    pub(crate) segments: U32,
    pub(crate) checkpoint_offsets: [U64; 2],
    pub(crate) checkpoint_area_bytes: U64,
    pub(crate) data_disk_blocks: U64,
    pub(crate) data_disk_logical_block_size: U32,
    pub(crate) data_disk_physical_sector_size: U32,
    pub(crate) state: U32,
    pub(crate) reserved: U32,
    pub(crate) data_disk_serial: [u8; 64],
    pub(crate) created_unix_seconds: U64,
    pub(crate) copy_pages: U32,
    pub(crate) reserved_after_copy_pages: U32,
    pub(crate) volume_bytes: U64,
    pub(crate) data_offset_bytes: U64,
    pub(crate) memory_boot_id: [u8; 16],
    pub(crate) memory_id: [u8; 16],
    pub(crate) memory_place: [u8; MEMORY_PLACE_BYTES_MAX],
    pub(crate) memory_max_delay_milliseconds: U32,
    pub(crate) reserved_after_memory: U32,
    pub(crate) data_label_epoch: U64,
    pub(crate) session_epoch: U64,
    pub(crate) checkpoint_generation_min: U64,
    pub(crate) annexes_offset: U64,
    pub(crate) segments_in_use: U32,
    pub(crate) annex_segments: [U32; ANNEXES_MAX],
    pub(crate) nvram_id: [u8; 16],
    pub(crate) nvram_generation: U64,
    pub(crate) volume_moved_to: U64,
    pub(crate) unused: [u8; 3608],
}

const _: () = assert!(size_of::<SuperblockOnDisk>() == SUPERBLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(SuperblockOnDisk, checksum) == CHECKSUM_OFFSET);
// What is not zero is in the first sector: no crash can tear a copy.
const _: () = assert!(std::mem::offset_of!(SuperblockOnDisk, unused) <= 512);

/// Every field of a copy, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(SuperblockOnDisk {
        magic,
        version,
        checksum,
        features_compatible,
        features_read_only_compatible,
        features_incompatible,
        uuid,
        generation,
        segments_offset,
        segment_size_bytes,
        segments,
        checkpoint_offsets,
        checkpoint_area_bytes,
        data_disk_blocks,
        data_disk_logical_block_size,
        data_disk_physical_sector_size,
        state,
        reserved,
        data_disk_serial,
        created_unix_seconds,
        copy_pages,
        reserved_after_copy_pages,
        volume_bytes,
        data_offset_bytes,
        memory_boot_id,
        memory_id,
        memory_place,
        memory_max_delay_milliseconds,
        reserved_after_memory,
        data_label_epoch,
        session_epoch,
        checkpoint_generation_min,
        annexes_offset,
        segments_in_use,
        annex_segments,
        nvram_id,
        nvram_generation,
        volume_moved_to,
        unused,
    })
}

impl SuperblockOnDisk {
    fn geometry(&self) -> Result<Geometry, FormatError> {
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let segment_size = u64::from(self.segment_size_bytes.get());
        let (room, copy_pages) = (self.segments.get(), self.copy_pages.get());
        let has_read_area = self.features_incompatible.get() & FEATURE_READ_AREA != 0;
        if has_read_area != (copy_pages > 0) {
            return Err(field("copy_pages", copy_pages.into()));
        }
        // All places follow from the two, and are told all the same.
        let told = |geometry: &Geometry| {
            geometry.checkpoint_offsets == self.checkpoint_offsets.map(|offset| offset.get())
                && geometry.checkpoint_area_bytes == self.checkpoint_area_bytes.get()
                && geometry.segments_offset == self.segments_offset.get()
        };
        let made = Geometry::as_told(room, segment_size, copy_pages).filter(told);
        self.resized_geometry(made.ok_or_else(|| field("segments", room.into()))?)
    }

    /// What has become of a log that was made like this.
    fn resized_geometry(&self, made: Geometry) -> Result<Geometry, FormatError> {
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let annexes = Annexes {
            offset: self.annexes_offset.get(),
            segments: self.annex_segments.map(|segments| segments.get()),
        };
        let segments = self.segments_in_use.get();
        if self.features_incompatible.get() & FEATURE_RESIZED == 0 {
            return match (segments, annexes == Annexes::default()) {
                (0, true) => Ok(made),
                (0, false) => Err(field("annexes_offset", annexes.offset)),
                _ => Err(field("segments_in_use", segments.into())),
            };
        }
        let volume_bytes = self.volume_bytes.get();
        let volume_offset = match self.volume_moved_to.get() {
            0 => made.end(),
            moved_to => moved_to,
        };
        let behind = volume_offset.saturating_add(volume_bytes);
        let ends = [behind, behind.saturating_add(END_MARK_BYTES as u64)];
        if annexes.offset > 0 && !ends.contains(&annexes.offset) {
            return Err(field("annexes_offset", annexes.offset));
        }
        let is_alone = made.copy_pages == 0 && volume_bytes == 0;
        if !is_alone && segments < made.segments {
            return Err(field("segments_in_use", segments.into()));
        }
        let geometry = Geometry::resized_as(made, annexes, segments);
        // The bit says something.
        let geometry = geometry.filter(|it| it.is_resized() || self.session_epoch.get() > 0);
        geometry.ok_or_else(|| field("segments_in_use", segments.into()))
    }

    fn resized(&self) -> Result<Option<Resized>, FormatError> {
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let (epoch, checkpoint) = (self.session_epoch.get(), self.checkpoint_generation_min.get());
        let may_be = self.features_incompatible.get() & FEATURE_RESIZED != 0;
        if epoch > self.generation.get() || epoch > 0 && !may_be {
            return Err(field("session_epoch", epoch));
        }
        if checkpoint >= COUNTER_END || (checkpoint > 0) != (epoch > 0) {
            return Err(field("checkpoint_generation_min", checkpoint));
        }
        let resized = Resized { session_epoch: epoch, checkpoint_generation: checkpoint };
        Ok((epoch > 0).then_some(resized))
    }

    fn nvram(&self) -> Result<Option<NvramIdentity>, FormatError> {
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let (id, generation) = (Uuid(self.nvram_id), self.nvram_generation.get());
        let is_named = self.features_incompatible.get() & FEATURE_NVRAM != 0;
        if is_named != (id != Uuid([0; 16])) {
            return Err(field("nvram_id", self.nvram_id[0].into()));
        }
        if generation >= COUNTER_END || !is_named && generation > 0 {
            return Err(field("nvram_generation", generation));
        }
        Ok(is_named.then_some(NvramIdentity { id, generation }))
    }

    fn data_disk(&self) -> Result<DataDiskInfo, FormatError> {
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let data_disk = DataDiskInfo {
            blocks: self.data_disk_blocks.get(),
            logical_block_size: self.data_disk_logical_block_size.get(),
            physical_sector_size: self.data_disk_physical_sector_size.get(),
        };
        for (name, size) in [
            ("data_disk_logical_block_size", data_disk.logical_block_size),
            ("data_disk_physical_sector_size", data_disk.physical_sector_size),
        ] {
            if size != 512 && size != 4096 {
                return Err(field(name, size.into()));
            }
        }
        if data_disk.blocks == 0 || data_disk.blocks > DATA_DISK_BLOCKS_MAX {
            return Err(field("data_disk_blocks", data_disk.blocks));
        }
        Ok(data_disk)
    }
}

impl Superblock {
    /// Byte address of the volume area.
    pub fn volume_offset(&self) -> u64 {
        match self.volume_moved_to {
            0 => self.geometry.end(),
            moved_to => moved_to,
        }
    }

    /// Where a larger volume area could begin: behind all that is in use, the end mark too, which
    /// is there until another is told of.
    pub(crate) fn next_volume_offset(&self) -> u64 {
        self.end()
    }

    /// Byte address of the end mark, if there is one.
    pub fn end_mark_offset(&self) -> Option<u64> {
        self.has_end_mark.then(|| self.end_without_mark())
    }

    /// Byte address of the end mark if the log were like this.
    pub(crate) fn end_mark_offset_with(&self, geometry: &Geometry) -> u64 {
        geometry.resized_end().unwrap_or(self.volume_offset() + self.volume_bytes)
    }

    /// Bytes of the cache-disk with a log of the size that it was made with.
    pub(crate) fn made_end(&self) -> u64 {
        match self.geometry.annexes.offset {
            0 => self.volume_offset() + self.volume_bytes + END_MARK_BYTES as u64,
            offset => offset,
        }
    }

    /// Bytes of the cache-disk in use.
    pub fn end(&self) -> u64 {
        let mark = if self.has_end_mark { END_MARK_BYTES as u64 } else { 0 };
        self.end_without_mark() + mark
    }

    fn end_without_mark(&self) -> u64 {
        self.end_mark_offset_with(&self.geometry)
    }

    /// The log on so many bytes of the cache-disk, with as many segments as fit; it has an end mark
    /// then.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn geometry_on(&self, cache_disk_bytes: u64) -> Result<Geometry, ResizeError> {
        let made_end = self.made_end();
        let is_alone = self.geometry.copy_pages == 0 && self.volume_bytes == 0;
        self.geometry.resized(cache_disk_bytes, made_end, is_alone)
    }

    /// The cache-disk with a read area of so many bytes.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn geometry_with_read_area(&self, bytes: u64) -> Result<Geometry, ResizeError> {
        self.geometry.with_read_area(bytes, self.made_end())
    }

    /// The epoch that records and checkpoints have at least that count: of the session that is open
    /// or was the last.
    pub fn session_epoch_min(&self) -> u64 {
        match (self.resized, self.state) {
            (Some(resized), _) => resized.session_epoch,
            (None, CacheState::Open) => self.generation,
            // A new cache of which only the first superblock copy was written has generation 0.
            (None, CacheState::Closed | CacheState::Detached) => self.generation.saturating_sub(1),
        }
    }

    /// The oldest checkpoint that counts.
    pub fn checkpoint_generation_min(&self) -> u64 {
        self.resized.map_or(0, |resized| resized.checkpoint_generation)
    }

    /// Byte address of the copy that holds this generation first.
    pub fn offset(&self) -> u64 {
        SUPERBLOCK_OFFSETS[(self.generation % 2) as usize]
    }

    /// Byte address of the copy that holds it, too, when the first is durable: until then the
    /// generation before is there.
    pub fn second_offset(&self) -> u64 {
        SUPERBLOCK_OFFSETS[(self.generation.wrapping_add(1) % 2) as usize]
    }

    /// Another writing of it. `tells_data_disk`: the label of the data-disk is written with it, if
    /// there is one.
    pub(crate) fn count(&mut self, tells_data_disk: bool) {
        self.generation += 1;
        if self.data_offset_bytes > 0 && tells_data_disk {
            self.data_label_epoch += 1;
        }
    }

    fn is_or_was_resized(&self) -> bool {
        self.geometry.is_resized() || self.resized.is_some()
    }

    /// The bytes of a copy.
    ///
    /// # Panics
    /// If the serial number of the data-disk is longer than 64 bytes, or the place of the memory
    /// than [`MEMORY_PLACE_BYTES_MAX`].
    pub fn encode(&self) -> Buffer {
        let mut disk = SuperblockOnDisk::new_zeroed();
        disk.magic = MAGIC.into();
        disk.version = VERSION.into();
        let feature = |is_used, feature| if is_used { feature } else { 0 };
        let features = feature(self.geometry.copy_pages > 0, FEATURE_READ_AREA)
            | feature(self.volume_bytes > 0, FEATURE_VOLUME)
            | feature(self.data_offset_bytes > 0, FEATURE_LABELLED)
            | feature(self.has_legs, FEATURE_LEGS)
            | feature(self.is_or_was_resized(), FEATURE_RESIZED)
            | feature(self.nvram.is_some(), FEATURE_NVRAM)
            | feature(self.volume_moved_to > 0, FEATURE_VOLUME_MOVED);
        disk.features_incompatible = features.into();
        disk.features_compatible = feature(self.has_end_mark, FEATURE_END_MARK).into();
        disk.volume_bytes = self.volume_bytes.into();
        disk.volume_moved_to = self.volume_moved_to.into();
        disk.data_offset_bytes = self.data_offset_bytes.into();
        disk.data_label_epoch = self.data_label_epoch.into();
        if let Some(memory) = &self.memory {
            disk.memory_boot_id = memory.boot_id;
            disk.memory_id = memory.memory_id;
            let place = memory.place.as_bytes();
            disk.memory_place[..place.len()].copy_from_slice(place);
            disk.memory_max_delay_milliseconds = memory.max_delay_milliseconds.into();
        }
        if let Some(nvram) = self.nvram {
            disk.nvram_id = nvram.id.0;
            disk.nvram_generation = nvram.generation.into();
        }
        disk.copy_pages = self.geometry.copy_pages.into();
        disk.uuid = self.uuid.0;
        disk.generation = self.generation.into();
        disk.segments_offset = self.geometry.segments_offset.into();
        disk.segment_size_bytes = (self.geometry.segment_size_bytes as u32).into();
        // How it was made, and then what has become of it.
        let made = self.geometry.as_made();
        disk.segments = made.room_segments.into();
        disk.checkpoint_offsets = made.checkpoint_offsets.map(U64::from);
        disk.checkpoint_area_bytes = made.checkpoint_area_bytes.into();
        if self.is_or_was_resized() {
            disk.segments_in_use = self.geometry.segments.into();
            disk.annexes_offset = self.geometry.annexes.offset.into();
            disk.annex_segments = self.geometry.annexes.segments.map(U32::from);
        }
        if let Some(resized) = self.resized {
            disk.session_epoch = resized.session_epoch.into();
            disk.checkpoint_generation_min = resized.checkpoint_generation.into();
        }
        disk.data_disk_blocks = self.data_disk.blocks.into();
        disk.data_disk_logical_block_size = self.data_disk.logical_block_size.into();
        disk.data_disk_physical_sector_size = self.data_disk.physical_sector_size.into();
        disk.state = self.state.code().into();
        let serial = self.data_disk_serial.as_bytes();
        disk.data_disk_serial[..serial.len()].copy_from_slice(serial);
        disk.created_unix_seconds = self.created_unix_seconds.into();
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        Buffer::copy_of(disk.as_bytes())
    }

    /// Reads one copy. Every byte may be anything.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, FormatError> {
        let (disk, _) = PREAMBLE.verify::<SuperblockOnDisk>(bytes)?;
        let incompatible = disk.features_incompatible.get();
        let known = FEATURE_READ_AREA
            | FEATURE_VOLUME
            | FEATURE_LABELLED
            | FEATURE_LEGS
            | FEATURE_RESIZED
            | FEATURE_NVRAM
            | FEATURE_VOLUME_MOVED;
        let unknown = incompatible & !known | disk.features_read_only_compatible.get();
        if unknown != 0 {
            return Err(FormatError::Features { unknown });
        }
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        if disk.generation.get() >= COUNTER_END {
            return Err(field("generation", disk.generation.get()));
        }
        let state = match disk.state.get() {
            1 => CacheState::Closed,
            2 => CacheState::Open,
            3 => CacheState::Detached,
            other => return Err(field("state", other.into())),
        };
        let geometry = disk.geometry()?;
        let data_disk = disk.data_disk()?;
        let volume_bytes = disk.volume_bytes.get();
        let has_volume = incompatible & FEATURE_VOLUME != 0;
        if has_volume != (volume_bytes > 0) || volume_bytes >= DATA_DISK_BLOCKS_MAX {
            return Err(field("volume_bytes", volume_bytes));
        }
        let volume_moved_to = disk.volume_moved_to.get();
        let has_moved = incompatible & FEATURE_VOLUME_MOVED != 0;
        let is_behind_the_log = volume_moved_to > geometry.end()
            && volume_moved_to.is_multiple_of(LINE_SIZE)
            && volume_moved_to < DATA_DISK_BLOCKS_MAX;
        if has_moved != (volume_moved_to > 0) || has_moved && !(has_volume && is_behind_the_log) {
            return Err(field("volume_moved_to", volume_moved_to));
        }
        let data_offset_bytes = disk.data_offset_bytes.get();
        let is_labelled = incompatible & FEATURE_LABELLED != 0;
        let is_aligned = data_offset_bytes.is_multiple_of(LINE_SIZE);
        if is_labelled != (data_offset_bytes > 0)
            || !is_aligned
            || data_offset_bytes > DATA_OFFSET_BYTES_MAX
            || is_labelled && has_volume
        {
            return Err(field("data_offset_bytes", data_offset_bytes));
        }
        let data_label_epoch = disk.data_label_epoch.get();
        if data_label_epoch >= COUNTER_END || !is_labelled && data_label_epoch > 0 {
            return Err(field("data_label_epoch", data_label_epoch));
        }
        let text = |name, bytes: &[u8]| {
            let bytes = &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())];
            match str::from_utf8(bytes) {
                Ok(text) => Ok(text.to_owned()),
                Err(error) => Err(field(name, bytes[error.valid_up_to()].into())),
            }
        };
        let data_disk_serial = text("data_disk_serial", &disk.data_disk_serial)?;
        let memory = match disk.memory_id {
            NO_MEMORY => None,
            memory_id => Some(MemoryIdentity {
                boot_id: disk.memory_boot_id,
                memory_id,
                place: text("memory_place", &disk.memory_place)?,
                max_delay_milliseconds: disk.memory_max_delay_milliseconds.get(),
            }),
        };
        Ok(Superblock {
            uuid: Uuid(disk.uuid),
            generation: disk.generation.get(),
            state,
            geometry,
            data_disk,
            data_disk_serial,
            created_unix_seconds: disk.created_unix_seconds.get(),
            volume_bytes,
            volume_moved_to,
            data_offset_bytes,
            data_label_epoch,
            has_end_mark: disk.features_compatible.get() & FEATURE_END_MARK != 0,
            has_legs: incompatible & FEATURE_LEGS != 0,
            memory,
            resized: disk.resized()?,
            nvram: disk.nvram()?,
        })
    }

    /// The newer of the two copies that is valid; if none is, what is wrong with the first (or
    /// with the second, when only that one looks like a superblock at all).
    pub fn newest(copy_0: &[u8], copy_1: &[u8]) -> Result<Superblock, FormatError> {
        match (Superblock::decode(copy_0), Superblock::decode(copy_1)) {
            (Ok(first), Ok(second)) if first.uuid != second.uuid => Err(FormatError::Uuid {
                what: "the second superblock copy",
                expected: first.uuid,
                found: second.uuid,
            }),
            (Ok(first), Ok(second)) if second.generation > first.generation => Ok(second),
            (Ok(first), _) => Ok(first),
            (Err(_), Ok(second)) => Ok(second),
            (Err(FormatError::Magic { .. }), Err(second)) => Err(second),
            (Err(first), Err(_)) => Err(first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(generation: u64) -> Superblock {
        Superblock {
            uuid: Uuid([3; 16]),
            generation,
            state: CacheState::Open,
            geometry: Geometry::fit(16 << 20, 128 << 10).unwrap(),
            data_disk: DataDiskInfo {
                blocks: 4096,
                logical_block_size: 512,
                physical_sector_size: 4096,
            },
            data_disk_serial: "WD-1".into(),
            created_unix_seconds: 5,
            volume_bytes: 0,
            volume_moved_to: 0,
            data_offset_bytes: 0,
            data_label_epoch: 0,
            has_end_mark: false,
            has_legs: false,
            memory: None,
            resized: None,
            nvram: None,
        }
    }

    #[test]
    fn it_names_the_memory_in_front_of_the_log() {
        let nvram = Some(NvramIdentity { id: Uuid([4; 16]), generation: 9 });
        let with = Superblock { nvram, ..superblock(4) };
        assert_eq!(Superblock::decode(with.encode().bytes()), Ok(with));
        let nvram = Some(NvramIdentity { id: Uuid([0; 16]), generation: 9 });
        let nameless = Superblock { nvram, ..superblock(4) };
        let error = Superblock::decode(nameless.encode().bytes());
        assert!(matches!(error, Err(FormatError::Field { field: "nvram_id", .. })));
        let nvram = Some(NvramIdentity { id: Uuid([4; 16]), generation: COUNTER_END });
        let forged = Superblock { nvram, ..superblock(4) };
        let error = Superblock::decode(forged.encode().bytes());
        assert!(matches!(error, Err(FormatError::Field { field: "nvram_generation", .. })));
    }

    #[test]
    fn an_epoch_is_raised_with_each_writing_of_a_labelled_one() {
        let mut plain = superblock(4);
        plain.count(true);
        assert_eq!((plain.generation, plain.data_label_epoch), (5, 0));
        let mut labelled = Superblock { data_offset_bytes: 1 << 20, ..superblock(4) };
        labelled.count(true);
        labelled.count(false);
        assert_eq!((labelled.generation, labelled.data_label_epoch), (6, 1));
        assert_eq!(Superblock::decode(labelled.encode().bytes()), Ok(labelled.clone()));
        labelled.data_offset_bytes = 0;
        let field = "data_label_epoch";
        let error = FormatError::Field { what: WHAT, field, found: 1 };
        assert_eq!(Superblock::decode(labelled.encode().bytes()), Err(error));
    }

    #[test]
    fn comes_back_and_the_newer_copy_counts() {
        let (old, new) = (superblock(4), superblock(5));
        assert_eq!(Superblock::decode(old.encode().bytes()), Ok(old.clone()));
        let newest = Superblock::newest(old.encode().bytes(), new.encode().bytes());
        assert_eq!(newest, Ok(new));
        assert_eq!(Superblock::newest(old.encode().bytes(), &[0; 4096]), Ok(old));
    }

    #[test]
    fn every_state_and_the_longest_serial_come_back() {
        for state in [CacheState::Closed, CacheState::Open, CacheState::Detached] {
            let superblock = Superblock {
                state,
                data_disk_serial: "0123456789abcdef".repeat(4),
                ..superblock(4)
            };
            assert_eq!(Superblock::decode(superblock.encode().bytes()), Ok(superblock));
        }
    }

    #[test]
    fn a_read_area_comes_back_and_is_a_feature() {
        let geometry = Geometry::fit_with_copies(16 << 20, 128 << 10, 5).unwrap();
        let with_area = Superblock { geometry, ..superblock(4) };
        let bytes = with_area.encode();
        assert_eq!(Superblock::decode(bytes.bytes()), Ok(with_area.clone()));
        // An older program must not write beside it; one of the two alone was forged.
        let mut disk = SuperblockOnDisk::read_from_bytes(bytes.bytes()).unwrap();
        assert_eq!(disk.features_incompatible.get(), FEATURE_READ_AREA);
        let forged = |disk: &mut SuperblockOnDisk| {
            disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
            Superblock::decode(disk.as_bytes())
        };
        let error = |field, found| Err(FormatError::Field { what: WHAT, field, found });
        disk.features_incompatible = 0.into();
        assert_eq!(forged(&mut disk), error("copy_pages", 5));
        disk.features_incompatible = FEATURE_READ_AREA.into();
        disk.copy_pages = 0.into();
        assert_eq!(forged(&mut disk), error("copy_pages", 0));
        disk.copy_pages = u32::MAX.into();
        assert_eq!(forged(&mut disk), error("segments", geometry.room_segments.into()));
    }

    #[test]
    fn tables_that_have_moved_are_a_feature_and_lie_behind_the_log() {
        let end = superblock(4).geometry.end();
        let moved = |volume_bytes, volume_moved_to| Superblock {
            volume_bytes,
            volume_moved_to,
            ..superblock(4)
        };
        let there = moved(5 << 20, end + 8192);
        assert_eq!(Superblock::decode(there.encode().bytes()), Ok(there.clone()));
        assert_eq!(there.volume_offset(), end + 8192);
        assert_eq!(there.end(), end + 8192 + (5 << 20));
        let mut disk = SuperblockOnDisk::read_from_bytes(there.encode().bytes()).unwrap();
        assert_eq!(disk.features_incompatible.get(), FEATURE_VOLUME | FEATURE_VOLUME_MOVED);
        disk.features_incompatible = FEATURE_VOLUME.into();
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        let error = |found| Err(FormatError::Field { what: WHAT, field: "volume_moved_to", found });
        assert_eq!(Superblock::decode(disk.as_bytes()), error(end + 8192));
        for (bytes, moved_to) in
            [(0, end + 8192), (5 << 20, end), (5 << 20, end + 512), (1, 1 << 43)]
        {
            let forged = moved(bytes, moved_to);
            assert_eq!(Superblock::decode(forged.encode().bytes()), error(moved_to));
        }
    }

    #[test]
    fn the_copies_take_turns() {
        assert_eq!([6, 7, 8].map(|generation| superblock(generation).offset()), [0, 65_536, 0]);
    }

    #[test]
    fn a_data_disk_that_cannot_be_is_refused() {
        let problem = |change: &dyn Fn(&mut DataDiskInfo)| {
            let mut forged = superblock(4);
            change(&mut forged.data_disk);
            match Superblock::decode(forged.encode().bytes()) {
                Ok(back) if back == forged => "none",
                Err(FormatError::Field { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(problem(&|d| d.blocks = 1), "none");
        assert_eq!(problem(&|d| d.blocks = 0), "data_disk_blocks");
        assert_eq!(problem(&|d| d.blocks = 1 << 43), "none");
        assert_eq!(problem(&|d| d.blocks = (1 << 43) + 1), "data_disk_blocks");
        assert_eq!(problem(&|d| d.logical_block_size = 4096), "none");
        assert_eq!(problem(&|d| d.logical_block_size = 1024), "data_disk_logical_block_size");
        assert_eq!(problem(&|d| d.physical_sector_size = 512), "none");
        assert_eq!(problem(&|d| d.physical_sector_size = 8192), "data_disk_physical_sector_size");
    }

    /// What a person is told when neither copy is valid: of a disk that was never a cache, that;
    /// else what is wrong with the copy that once was one.
    #[test]
    fn without_a_valid_copy_the_error_says_the_most() {
        let newer = {
            let bytes = superblock(4).encode();
            let mut disk = SuperblockOnDisk::read_from_bytes(bytes.bytes()).unwrap();
            disk.version = 3.into();
            disk
        };
        let (nothing, newer) = ([0; SUPERBLOCK_SIZE], newer.as_bytes());
        let error = |first: &[u8], second: &[u8]| Superblock::newest(first, second).unwrap_err();
        assert!(matches!(error(&nothing, &nothing), FormatError::Magic { found: 0, .. }));
        assert!(matches!(error(&nothing, newer), FormatError::Version { found: 3, .. }));
        assert!(matches!(error(newer, &nothing), FormatError::Version { found: 3, .. }));
        let valid = superblock(5);
        assert_eq!(Superblock::newest(newer, valid.encode().bytes()), Ok(valid));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = superblock(4).encode();
        for byte in 0..SUPERBLOCK_SIZE {
            let mut bytes = good.bytes().to_vec();
            bytes[byte] ^= 1 << (byte % 8);
            assert!(Superblock::decode(&bytes).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn a_generation_that_could_overflow_is_refused() {
        let mut forged = superblock(4);
        forged.generation = COUNTER_END;
        let error = Superblock::decode(forged.encode().bytes()).unwrap_err();
        let field = "generation";
        assert_eq!(error, FormatError::Field { what: WHAT, field, found: COUNTER_END });
    }

    /// Decoded with replacement characters it would be longer than its field, and could never be
    /// written again.
    #[test]
    fn a_serial_that_is_no_text_is_refused() {
        let mut disk = SuperblockOnDisk::read_from_bytes(superblock(4).encode().bytes()).unwrap();
        disk.data_disk_serial = [0xff; 64];
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        let error = Superblock::decode(disk.as_bytes()).unwrap_err();
        let field = "data_disk_serial";
        assert_eq!(error, FormatError::Field { what: WHAT, field, found: 0xff });
    }

    #[test]
    fn foreign_copies_are_refused() {
        let (first, mut second) = (superblock(4), superblock(5));
        second.uuid = Uuid([4; 16]);
        assert!(matches!(
            Superblock::newest(first.encode().bytes(), second.encode().bytes()),
            Err(FormatError::Uuid { .. })
        ));
    }

    #[test]
    fn another_size_of_the_log_comes_back_and_is_a_feature() {
        let made = Superblock { has_end_mark: true, ..superblock(9) };
        let on = |superblock: &Superblock, bytes| Superblock {
            geometry: superblock.geometry_on(bytes).unwrap(),
            ..superblock.clone()
        };
        let grown = on(&made, 64 << 20);
        let resized = Some(Resized { session_epoch: 7, checkpoint_generation: 3 });
        let told = Superblock { resized, ..grown.clone() };
        let smaller = on(&told, 40 << 20);
        let back_again = on(&told, 17 << 20);
        assert_eq!(back_again.geometry, made.geometry);
        let shrunk = on(&made, 10 << 20);
        for superblock in [&grown, &told, &smaller, &back_again, &shrunk] {
            let bytes = superblock.encode();
            assert_eq!(Superblock::decode(bytes.bytes()).as_ref(), Ok(superblock));
            assert!(bytes.bytes()[512..].iter().all(|byte| *byte == 0), "no crash tears it");
        }
        assert_eq!((told.session_epoch_min(), grown.session_epoch_min()), (7, 9));
        assert_eq!((told.checkpoint_generation_min(), grown.checkpoint_generation_min()), (3, 0));
        assert_eq!(grown.end_mark_offset(), grown.geometry.resized_end());
        assert!(grown.end() <= 64 << 20 && shrunk.end() <= 10 << 20);
        assert_eq!(back_again.end(), made.end());

        let forged = |change: &dyn Fn(&mut SuperblockOnDisk)| {
            let mut disk = SuperblockOnDisk::read_from_bytes(told.encode().bytes()).unwrap();
            change(&mut disk);
            disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
            match Superblock::decode(disk.as_bytes()) {
                Err(FormatError::Field { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        let no_bit = |disk: &mut SuperblockOnDisk| disk.features_incompatible = 0.into();
        assert_eq!(forged(&no_bit), "segments_in_use");
        assert_eq!(forged(&|disk| disk.annexes_offset += U64::new(4096)), "annexes_offset");
        assert_eq!(forged(&|disk| disk.segments_in_use = 12.into()), "segments_in_use");
        assert_eq!(forged(&|disk| disk.session_epoch = 10.into()), "session_epoch");
        let checkpoint = "checkpoint_generation_min";
        assert_eq!(forged(&|disk| disk.checkpoint_generation_min = 0.into()), checkpoint);
        let nothing = |disk: &mut SuperblockOnDisk| {
            disk.session_epoch = 0.into();
            disk.checkpoint_generation_min = 0.into();
            disk.annexes_offset = 0.into();
            disk.annex_segments = [0.into(); ANNEXES_MAX];
            disk.segments_in_use = disk.segments;
        };
        assert_eq!(forged(&nothing), "segments_in_use");
    }

    #[test]
    fn newer_versions_and_features_are_refused() {
        let mut disk = SuperblockOnDisk::read_from_bytes(superblock(4).encode().bytes()).unwrap();
        disk.features_incompatible = 256.into();
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        assert_eq!(
            Superblock::decode(disk.as_bytes()),
            Err(FormatError::Features { unknown: 256 })
        );
        // A feature of both kinds is as unknown as one of either.
        disk.features_read_only_compatible = 256.into();
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        assert_eq!(
            Superblock::decode(disk.as_bytes()),
            Err(FormatError::Features { unknown: 256 })
        );
        disk.features_incompatible = 0.into();
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        assert_eq!(
            Superblock::decode(disk.as_bytes()),
            Err(FormatError::Features { unknown: 256 })
        );
        disk.version = 3.into();
        assert!(matches!(
            Superblock::decode(disk.as_bytes()),
            Err(FormatError::Version { found: 3, .. })
        ));
    }
}
