//! Where things are on the cache-disk.

use super::end_mark::END_MARK_BYTES;
use crate::io::ResizeError;
use crate::units::{CopyPageIndex, CopySlot, LINE_SIZE, SegmentIndex, SlotIndex};

/// Byte addresses of the two superblock copies: far enough apart to be in different physical
/// sectors of any disk (contract C20).
pub const SUPERBLOCK_OFFSETS: [u64; 2] = [0, 64 << 10];
/// Where the first checkpoint area begins.
pub const CHECKPOINTS_OFFSET: u64 = 128 << 10;
/// Smallest and largest segment.
pub const SEGMENT_SIZE_BYTES_MIN: u64 = 64 << 10;
/// See [`SEGMENT_SIZE_BYTES_MIN`].
pub const SEGMENT_SIZE_BYTES_MAX: u64 = 4 << 20;
/// Fewest segments that can work: buffers, reserve and something to destage.
pub const SEGMENTS_MIN: u64 = 16;

/// Most zero ranges that a checkpoint has room for.
pub const ZERO_RANGES_MAX: u64 = 8192;
/// Most poisoned lines that a checkpoint has room for.
pub const POISONED_LINES_MAX: u64 = 8192;
/// Most witnesses (checksums of data-disk places) that a checkpoint has room for.
pub const WITNESSES_MAX: u64 = 256;

/// How often a log can grow by an [annex](Annexes).
pub const ANNEXES_MAX: usize = 15;
/// Most slots: their numbers have 31 bits.
const SLOTS_MAX: u64 = 1 << 31;

/// Copy slots that a copy page lists.
pub const COPIES_PER_PAGE: u32 = 248;
/// What a copy page takes of the read area: its slots, and two places for the page itself.
pub const COPY_PAGE_SPACE_BYTES: u64 = (COPIES_PER_PAGE as u64 + 2) * LINE_SIZE;

/// Sizes and places on one cache-disk. All offsets and sizes are bytes, multiples of 4096.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Size of a segment.
    pub segment_size_bytes: u64,
    /// Number of segments, all annexes included.
    pub segments: u32,
    /// Where each checkpoint area begins that is in use: those of the last annex, if there is one.
    pub checkpoint_offsets: [u64; 2],
    /// Size of a checkpoint area.
    pub checkpoint_area_bytes: u64,
    /// Where segment 0 begins.
    pub segments_offset: u64,
    /// Segments that there would be room for here, before any annex, without a read area. Never
    /// changes.
    pub room_segments: u32,
    /// Those of them that the read area leaves; fewer are in use if the log was shrunk.
    pub segments_made: u32,
    /// Copy pages of the read area, which is the end of that room; 0: there is none.
    pub copy_pages: u32,
    /// What it has grown by.
    pub annexes: Annexes,
}

/// What a log has grown by: each time two checkpoint areas with room for the index of all segments
/// up to here, some segments, and a place for the end mark, behind everything else. So nothing that
/// exists ever moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Annexes {
    /// Where the first begins; the others follow. 0: there is none.
    pub offset: u64,
    /// Segments of each as it was made, of the last perhaps more than are in use; then 0.
    pub segments: [u32; ANNEXES_MAX],
}

impl Annexes {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.segments.iter().take_while(|segments| **segments > 0).count()
    }
}

/// Where one annex is.
struct Annex {
    offset: u64,
    checkpoint_area_bytes: u64,
    segments_offset: u64,
    first: u32,
    segments: u32,
}

/// A cache-disk on which no geometry fits.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GeometryError {
    /// Too small.
    #[error(
        "the cache-disk has {found} bytes; with segments of {segment_size} bytes it needs at least {needed}{}",
        if *copy_pages > 0 { ", read area included" } else { "" }
    )]
    TooSmall {
        /// Bytes there.
        found: u64,
        /// Bytes needed.
        needed: u64,
        /// Segment size asked for.
        segment_size: u64,
        /// Copy pages asked for.
        copy_pages: u32,
    },
    /// Too large for 32-bit slot numbers.
    #[error("the cache-disk has {found} bytes; at most {most} can be used")]
    TooLarge {
        /// Bytes there.
        found: u64,
        /// Most that can be addressed.
        most: u64,
    },
    /// Segment size out of range.
    #[error("a segment of {found} bytes cannot be: it must be a power of two from 64 KiB to 4 MiB")]
    SegmentSize {
        /// Size asked for.
        found: u64,
    },
}

impl GeometryError {
    /// The same of the whole cache-disk, of which something else takes `others` bytes.
    pub fn beside(self, cache_disk: u64, others: u64) -> GeometryError {
        match self {
            GeometryError::TooSmall { needed, segment_size, copy_pages, .. } => {
                let (found, needed) = (cache_disk, needed + others);
                GeometryError::TooSmall { found, needed, segment_size, copy_pages }
            }
            GeometryError::TooLarge { most, .. } => {
                GeometryError::TooLarge { found: cache_disk, most: most + others }
            }
            other => other,
        }
    }
}

impl Geometry {
    /// Segment size for a cache of that size when none is asked for: 1 MiB, and less for caches
    /// that would then have few segments.
    pub fn default_segment_size(cache_disk_bytes: u64) -> u64 {
        let mut size = 1 << 20;
        while size > SEGMENT_SIZE_BYTES_MIN && cache_disk_bytes / size < 64 {
            size /= 2;
        }
        size
    }

    /// The geometry that uses as much of `cache_disk_bytes` as possible, without a read area.
    pub fn fit(cache_disk_bytes: u64, segment_size_bytes: u64) -> Result<Geometry, GeometryError> {
        Geometry::fit_with_copies(cache_disk_bytes, segment_size_bytes, 0)
    }

    /// Copy pages that fit into a read area of that size.
    pub fn copy_pages_in(read_area_bytes: u64) -> u32 {
        u32::try_from(read_area_bytes / COPY_PAGE_SPACE_BYTES).unwrap_or(u32::MAX)
    }

    /// The same with a read area of so many copy pages; the segments get what is left.
    pub fn fit_with_copies(
        cache_disk_bytes: u64,
        segment_size_bytes: u64,
        copy_pages: u32,
    ) -> Result<Geometry, GeometryError> {
        if !segment_size_bytes.is_power_of_two()
            || !(SEGMENT_SIZE_BYTES_MIN..=SEGMENT_SIZE_BYTES_MAX).contains(&segment_size_bytes)
        {
            return Err(GeometryError::SegmentSize { found: segment_size_bytes });
        }
        let most = SLOTS_MAX * LINE_SIZE;
        if cache_disk_bytes > most {
            return Err(GeometryError::TooLarge { found: cache_disk_bytes, most });
        }
        let total = |segments: u64| {
            CHECKPOINTS_OFFSET
                + 2 * checkpoint_area_bytes(segments, segment_size_bytes)
                + segments * segment_size_bytes
        };
        let mut room = cache_disk_bytes / segment_size_bytes;
        while room > 0 && total(room) > cache_disk_bytes {
            room -= 1;
        }
        let needed = SEGMENTS_MIN + read_area_segments(copy_pages, segment_size_bytes);
        if room < needed {
            return Err(GeometryError::TooSmall {
                found: cache_disk_bytes,
                needed: total(needed),
                segment_size: segment_size_bytes,
                copy_pages,
            });
        }
        Ok(Geometry::with_room(room as u32, segment_size_bytes, copy_pages))
    }

    /// As it is made where there is room for so many segments, of which the read area takes some.
    fn with_room(room_segments: u32, segment_size_bytes: u64, copy_pages: u32) -> Geometry {
        let area = checkpoint_area_bytes(room_segments.into(), segment_size_bytes);
        let taken = read_area_segments(copy_pages, segment_size_bytes);
        let segments = u64::from(room_segments).saturating_sub(taken) as u32;
        Geometry {
            segment_size_bytes,
            segments,
            checkpoint_offsets: [CHECKPOINTS_OFFSET, CHECKPOINTS_OFFSET + area],
            checkpoint_area_bytes: area,
            segments_offset: CHECKPOINTS_OFFSET + 2 * area,
            room_segments,
            segments_made: segments,
            copy_pages,
            annexes: Annexes::default(),
        }
    }

    /// As the cache-disk was made if a superblock says this of it, with the read area that it has
    /// now. `None` if none can be so.
    pub(crate) fn as_told(
        room_segments: u32,
        segment_size_bytes: u64,
        copy_pages: u32,
    ) -> Option<Geometry> {
        let is_possible = segment_size_bytes.is_power_of_two()
            && (SEGMENT_SIZE_BYTES_MIN..=SEGMENT_SIZE_BYTES_MAX).contains(&segment_size_bytes)
            && u64::from(room_segments) * (segment_size_bytes / LINE_SIZE) <= SLOTS_MAX;
        let geometry = is_possible
            .then(|| Geometry::with_room(room_segments, segment_size_bytes, copy_pages))?;
        (u64::from(geometry.segments) >= SEGMENTS_MIN).then_some(geometry)
    }

    /// Where what the log was made with ends, its read area included: a volume area begins here.
    pub fn end(&self) -> u64 {
        self.segments_offset + u64::from(self.room_segments) * self.segment_size_bytes
    }

    /// Where the read area begins; it ends where what the log was made with does.
    pub fn read_area_offset(&self) -> u64 {
        self.end() - u64::from(self.copy_pages) * COPY_PAGE_SPACE_BYTES
    }

    /// Copy slots in the read area.
    pub fn copy_slots(&self) -> u32 {
        self.copy_pages * COPIES_PER_PAGE
    }

    /// Byte address of the place of a copy page that holds this generation of it. It is another
    /// one when the read area gets another size.
    pub fn copy_page_offset(&self, page: CopyPageIndex, generation: u64) -> u64 {
        self.read_area_offset() + (2 * u64::from(page.0) + generation % 2) * LINE_SIZE
    }

    /// Byte address of a copy slot. Pages are counted from the end, so that a read area which
    /// becomes larger in front has each slot where it was; within a page they are in order.
    pub fn copy_slot_offset(&self, slot: CopySlot) -> u64 {
        let (page, index) = (slot.0 / COPIES_PER_PAGE, slot.0 % COPIES_PER_PAGE);
        let lines_to_end = (u64::from(page) + 1) * u64::from(COPIES_PER_PAGE) - u64::from(index);
        self.end() - lines_to_end * LINE_SIZE
    }

    /// 4 KiB slots in a segment, record headers included.
    pub(crate) fn slots_per_segment(&self) -> u32 {
        (self.segment_size_bytes / LINE_SIZE) as u32
    }

    /// All slots, record headers included.
    pub fn slots(&self) -> u32 {
        self.segments * self.slots_per_segment()
    }

    /// Most slots that can hold data: every segment spends at least one on a header.
    pub fn data_slots_max(&self) -> u32 {
        self.segments * (self.slots_per_segment() - 1)
    }

    /// Byte address of a segment.
    pub fn segment_offset(&self, segment: SegmentIndex) -> u64 {
        let (first, offset) = self.part_of(segment);
        offset + u64::from(segment.0 - first) * self.segment_size_bytes
    }

    /// The segment that has this byte of the cache-disk, if one has.
    pub(crate) fn segment_at(&self, offset: u64) -> Option<SegmentIndex> {
        let within = |first: u32, start: u64, segments: u32| {
            let index = offset.checked_sub(start)? / self.segment_size_bytes;
            (index < u64::from(segments)).then(|| SegmentIndex(first + index as u32))
        };
        let made = within(0, self.segments_offset, self.segments_made);
        let found = made.or_else(|| {
            self.annex_places().find_map(|it| within(it.first, it.segments_offset, it.segments))
        });
        found.filter(|segment| segment.0 < self.segments)
    }

    /// Byte address of a slot.
    pub fn slot_offset(&self, slot: SlotIndex) -> u64 {
        let (segment, slot_in_segment) = self.locate(slot);
        self.segment_offset(segment) + u64::from(slot_in_segment) * LINE_SIZE
    }

    /// The first segment of those that lie behind one another with this one, and where it is.
    fn part_of(&self, segment: SegmentIndex) -> (u32, u64) {
        // As mostly.
        if segment.0 < self.segments_made {
            return (0, self.segments_offset);
        }
        let mut annexes = self.annex_places();
        let annex = annexes.find(|it| segment.0 < it.first + it.segments);
        // One that is not in the log: what has read its number from damaged bytes finds nothing
        // there that has its checksum.
        annex.map_or((0, self.segments_offset), |it| (it.first, it.segments_offset))
    }

    /// The slot `index_in_segment` of a segment.
    pub fn slot(&self, segment: SegmentIndex, index_in_segment: u32) -> SlotIndex {
        SlotIndex(segment.0 * self.slots_per_segment() + index_in_segment)
    }

    /// The segment a slot lies in, and its number there.
    pub fn locate(&self, slot: SlotIndex) -> (SegmentIndex, u32) {
        let per_segment = self.slots_per_segment();
        (SegmentIndex(slot.0 / per_segment), slot.0 % per_segment)
    }
}

// ---- a log that has grown or shrunk -----------------------------------------------------------

impl Geometry {
    fn annex_places(&self) -> impl DoubleEndedIterator<Item = Annex> {
        let mut places: [Option<Annex>; ANNEXES_MAX] = [const { None }; ANNEXES_MAX];
        let (mut offset, mut first) = (self.annexes.offset, self.segments_made);
        for (place, segments) in places.iter_mut().zip(self.annexes.segments) {
            if segments == 0 {
                break;
            }
            let annex = self.annex(offset, first, segments);
            offset = self.annex_end(&annex);
            first += segments;
            *place = Some(annex);
        }
        places.into_iter().flatten()
    }

    fn annex(&self, offset: u64, first: u32, segments: u32) -> Annex {
        // Those that the read area has may be the log's again one day.
        let all = u64::from(first) + u64::from(segments) + u64::from(self.segments_taken());
        let area = checkpoint_area_bytes(all, self.segment_size_bytes);
        let segments_offset = offset + 2 * area;
        Annex { offset, checkpoint_area_bytes: area, segments_offset, first, segments }
    }

    /// Where an annex ends, its end mark included.
    fn annex_end(&self, annex: &Annex) -> u64 {
        let segments = u64::from(annex.segments) * self.segment_size_bytes;
        annex.segments_offset + segments + END_MARK_BYTES as u64
    }

    /// Segments that there is a place for: in use, or given up by shrinking.
    fn places(&self) -> u64 {
        let annexes = self.annexes.segments.iter().map(|segments| u64::from(*segments));
        u64::from(self.segments_made) + annexes.sum::<u64>()
    }

    /// As it was made, but for its read area.
    pub(crate) fn as_made(&self) -> Geometry {
        self.with_segments(self.segments_made)
    }

    /// How many segments have the same place with this other geometry of the same cache-disk.
    pub(crate) fn segments_kept(&self, other: &Geometry) -> u32 {
        let kept = self.segments.min(other.segments);
        match self.segments_made == other.segments_made {
            true => kept,
            // Those of an annex lie elsewhere.
            false => kept.min(self.segments_made).min(other.segments_made),
        }
    }

    /// Segments of the room here that the read area takes.
    fn segments_taken(&self) -> u32 {
        self.room_segments - self.segments_made
    }

    /// Whether the log has another size than it was made with.
    pub fn is_resized(&self) -> bool {
        self.segments != self.segments_made
    }

    /// Where the last segment ends, if the log has another size than it was made with: all that is
    /// in use lies before it, and the end mark there.
    pub fn resized_end(&self) -> Option<u64> {
        let last = SegmentIndex(self.segments - 1);
        self.is_resized().then(|| self.segment_offset(last) + self.segment_size_bytes)
    }

    /// The same log with so many segments, of those for which there is a place.
    fn with_segments(self, segments: u32) -> Geometry {
        let mut geometry = Geometry { segments, ..self };
        let mut first = self.segments_made;
        for annex in &mut geometry.annexes.segments {
            let is_used = first < segments;
            first += *annex;
            *annex = if is_used { *annex } else { 0 };
        }
        if geometry.annexes.count() == 0 {
            geometry.annexes.offset = 0;
        }
        let area = (self.segments_offset - CHECKPOINTS_OFFSET) / 2;
        let (offset, area) = geometry
            .annex_places()
            .next_back()
            .map_or((CHECKPOINTS_OFFSET, area), |it| (it.offset, it.checkpoint_area_bytes));
        geometry.checkpoint_offsets = [offset, offset + area];
        geometry.checkpoint_area_bytes = area;
        geometry
    }

    /// What is on a cache-disk whose log has these annexes and so many segments; `made` is how it
    /// was made, and what lies behind that, a volume and an end mark, ends at `annexes.offset`, if
    /// there are annexes. `None` if no log can be so.
    pub(crate) fn resized_as(made: Geometry, annexes: Annexes, segments: u32) -> Option<Geometry> {
        let all = Geometry { annexes, ..made };
        let count = annexes.count();
        let is_in_order = annexes.segments[count..].iter().all(|segments| *segments == 0);
        let slots = all.places().checked_mul(u64::from(made.slots_per_segment()))?;
        let before_last =
            all.places() - annexes.segments[..count].last().map_or(0, |last| u64::from(*last));
        let is_last_used = count == 0 || u64::from(segments) > before_last;
        let is_possible = is_in_order
            && slots <= SLOTS_MAX
            && (count > 0) == (annexes.offset > 0)
            && is_last_used
            && u64::from(segments) <= all.places()
            && u64::from(segments) >= SEGMENTS_MIN
            && annexes.offset < SLOTS_MAX * LINE_SIZE * 2;
        is_possible.then(|| all.with_segments(segments))
    }

    /// The same cache-disk with a read area of so many bytes, which the log makes room for or gets
    /// the room of. No slot of either that stays in use has another place. The log has no annexes
    /// then: their segments would get other numbers.
    ///
    /// # Errors
    /// If the log would be too small, if its end was given up ([`ResizeError::BehindReadArea`]), or
    /// if the read area has that size, or so nearly that the places of its pages would overlap with
    /// those of before, which count until all is told.
    pub fn with_read_area(
        &self,
        read_area_bytes: u64,
        made_end: u64,
    ) -> Result<Geometry, ResizeError> {
        let copy_pages = Geometry::copy_pages_in(read_area_bytes);
        if copy_pages == 0 && read_area_bytes > 0 {
            return Err(ResizeError::ReadAreaTooSmall { least: COPY_PAGE_SPACE_BYTES });
        }
        if self.segments < self.segments_made {
            return Err(ResizeError::BehindReadArea { needed: made_end });
        }
        let size = self.segment_size_bytes;
        let Some(made) = Geometry::as_told(self.room_segments, size, copy_pages) else {
            let room = (u64::from(self.room_segments) - SEGMENTS_MIN) * size;
            let most = room / COPY_PAGE_SPACE_BYTES * COPY_PAGE_SPACE_BYTES;
            return Err(ResizeError::ReadAreaTooLarge { most });
        };
        let (less, more) = (copy_pages.min(self.copy_pages), copy_pages.max(self.copy_pages));
        let slots = u64::from(more) * u64::from(COPIES_PER_PAGE) * LINE_SIZE;
        if less > 0 && slots < u64::from(less) * COPY_PAGE_SPACE_BYTES {
            let bytes = u64::from(self.copy_slots()) * LINE_SIZE;
            return Err(ResizeError::SameReadArea { bytes });
        }
        if more == 0 {
            return Err(ResizeError::SameReadArea { bytes: 0 });
        }
        Ok(made)
    }

    /// The same log on so many bytes of the cache-disk, with an end mark: as many segments as fit.
    /// Nothing that stays in use has another place. `made_end`: where what the cache-disk was made
    /// with ends, the volume area and the end mark included; `is_alone`: it is the log's last
    /// segment that ends there, but for the mark.
    ///
    /// # Errors
    /// If it is too small, or has grown too often.
    pub fn resized(
        &self,
        cache_disk_bytes: u64,
        made_end: u64,
        is_alone: bool,
    ) -> Result<Geometry, ResizeError> {
        let mark = END_MARK_BYTES as u64;
        let size = self.segment_size_bytes;
        let fitting = |offset: u64| cache_disk_bytes.saturating_sub(offset + mark) / size;
        let mut annexes = self.annex_places().rev();
        let reached = annexes.find(|it| fitting(it.segments_offset) > 0);
        let segments = match reached {
            Some(it) => u64::from(it.first) + fitting(it.segments_offset).min(it.segments.into()),
            None if cache_disk_bytes >= made_end => u64::from(self.segments_made),
            None if !is_alone => {
                return Err(ResizeError::BehindLog { needed: made_end });
            }
            None => fitting(self.segments_offset).min(self.segments_made.into()),
        };
        if segments < SEGMENTS_MIN {
            let needed = self.segments_offset + SEGMENTS_MIN * size + mark;
            return Err(ResizeError::TooSmall { needed });
        }
        let within = self.with_segments(segments as u32);
        if segments < self.places() {
            return Ok(within);
        }
        match self.another_annex(cache_disk_bytes, made_end) {
            Ok(Some(annexes)) => {
                let all = Geometry { annexes, ..*self };
                Ok(all.with_segments(all.places() as u32))
            }
            Err(error) if within.segments == self.segments => Err(error),
            _ => Ok(within),
        }
    }

    /// With one annex more, if there is room for it.
    fn another_annex(
        &self,
        cache_disk_bytes: u64,
        made_end: u64,
    ) -> Result<Option<Annexes>, ResizeError> {
        let last = self.annex_places().next_back();
        let offset = last.map_or(made_end, |annex| self.annex_end(&annex));
        let first = self.places() as u32;
        let slots_max = SLOTS_MAX / u64::from(self.slots_per_segment());
        let room = cache_disk_bytes.saturating_sub(offset) / self.segment_size_bytes;
        let mut segments = room.min(slots_max - u64::from(first)) as u32;
        while segments > 0
            && self.annex_end(&self.annex(offset, first, segments)) > cache_disk_bytes
        {
            segments -= 1;
        }
        if segments == 0 {
            return Ok(None);
        }
        let mut annexes = self.annexes;
        let count = annexes.count();
        let place = annexes.segments.get_mut(count).ok_or(ResizeError::TooOften)?;
        *place = segments;
        if annexes.offset == 0 {
            annexes.offset = offset;
        }
        Ok(Some(annexes))
    }
}

/// Segments of which a read area of so many pages takes the place.
fn read_area_segments(copy_pages: u32, segment_size_bytes: u64) -> u64 {
    (u64::from(copy_pages) * COPY_PAGE_SPACE_BYTES).div_ceil(segment_size_bytes)
}

/// Room for the largest checkpoint that can be: every slot live. Where the read area has taken the
/// place of segments, fewer are listed than they had slots.
fn checkpoint_area_bytes(segments: u64, segment_size_bytes: u64) -> u64 {
    let slots = segments * (segment_size_bytes / LINE_SIZE - 1);
    let entries = ZERO_RANGES_MAX + POISONED_LINES_MAX + WITNESSES_MAX + segments + slots;
    LINE_SIZE + (entries * 16).next_multiple_of(LINE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_and_says_what_is_too_small() {
        let geometry = Geometry::fit(256 << 20, 1 << 20).unwrap();
        assert!(geometry.end() <= 256 << 20);
        assert!(geometry.segments >= 253);
        assert!(matches!(Geometry::fit(1 << 20, 64 << 10), Err(GeometryError::TooSmall { .. })));
        assert!(matches!(Geometry::fit(1 << 30, 100_000), Err(GeometryError::SegmentSize { .. })));
        assert!(matches!(Geometry::fit(1 << 44, 1 << 20), Err(GeometryError::TooLarge { .. })));
    }

    /// A cache is opened again only with the very places it was made with, so they are pinned.
    #[test]
    fn every_place_is_as_it_always_was() {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        // A checkpoint area: a header, and 16 bytes for each of 8192 + 8192 + 256 + 121 + 121 * 31.
        let expected = Geometry {
            segment_size_bytes: 131_072,
            segments: 121,
            checkpoint_offsets: [131_072, 131_072 + 335_872],
            checkpoint_area_bytes: 335_872,
            segments_offset: 131_072 + 2 * 335_872,
            room_segments: 121,
            segments_made: 121,
            copy_pages: 0,
            annexes: Annexes::default(),
        };
        assert_eq!(geometry, expected);
        assert_eq!(SUPERBLOCK_OFFSETS, [0, 65_536]);
        assert_eq!(geometry.end(), 16_662_528);
        assert_eq!(geometry.slots_per_segment(), 32);
        assert_eq!((geometry.slots(), geometry.data_slots_max()), (121 * 32, 121 * 31));
        assert_eq!(geometry.segment_offset(SegmentIndex(3)), 802_816 + 3 * 131_072);
        assert_eq!(geometry.slot(SegmentIndex(3), 5), SlotIndex(101));
        assert_eq!(geometry.slot_offset(SlotIndex(101)), 802_816 + 101 * 4096);
        // Not a byte more is needed, and with one less there is a segment less.
        assert_eq!(Geometry::fit(geometry.end(), 128 << 10), Ok(expected));
        let less = Geometry::fit(geometry.end() - 1, 128 << 10).unwrap();
        assert_eq!(less.segments, 120);
    }

    #[test]
    fn a_read_area_takes_the_place_of_the_last_segments() {
        // 3 MB and a byte: three pages, in the place of 24 segments.
        let pages = Geometry::copy_pages_in(3 * 1_024_000 + 1);
        assert_eq!(pages, 3);
        let without = Geometry::fit(16 << 20, 128 << 10).unwrap();
        let geometry = Geometry::fit_with_copies(16 << 20, 128 << 10, pages).unwrap();
        assert_eq!((geometry.segments, geometry.copy_slots()), (121 - 24, 744));
        assert_eq!(geometry.checkpoint_area_bytes, without.checkpoint_area_bytes);
        assert_eq!(geometry.end(), without.end());
        let area = geometry.end() - 3 * 1_024_000;
        assert_eq!(geometry.read_area_offset(), area);
        assert!(geometry.segment_offset(SegmentIndex(96)) + (128 << 10) <= area);
        assert_eq!(geometry.copy_page_offset(CopyPageIndex(2), 8), area + 4 * 4096);
        assert_eq!(geometry.copy_page_offset(CopyPageIndex(2), 9), area + 5 * 4096);
        // The first page is the last.
        assert_eq!(geometry.copy_slot_offset(CopySlot(2 * 248)), area + 6 * 4096);
        assert_eq!(geometry.copy_slot_offset(CopySlot(247)) + 4096, geometry.end());
        assert_eq!(geometry.copy_slot_offset(CopySlot(0)) + 248 * 4096, geometry.end());
        assert_eq!(Geometry::fit_with_copies(geometry.end(), 128 << 10, 3), Ok(geometry));
        assert!(Geometry::fit_with_copies(16 << 20, 128 << 10, 13).is_ok());
        let needed = without.end() + (1 << 20);
        let error = Geometry::fit_with_copies(16 << 20, 128 << 10, 14);
        assert!(
            matches!(error, Err(GeometryError::TooSmall { needed: n, .. }) if n < needed),
            "{error:?}"
        );
    }

    #[test]
    fn a_read_area_of_another_size_has_every_slot_where_it_was() {
        let none = Geometry::fit(64 << 20, 128 << 10).unwrap();
        let made_end = none.end() + 4096;
        let mut geometry = none;
        for pages in [5, 40, 7, 1, 50, 0, 3] {
            let next = geometry.with_read_area(pages * COPY_PAGE_SPACE_BYTES, made_end).unwrap();
            assert_eq!((next.end(), u64::from(next.copy_pages)), (none.end(), pages));
            for slot in (0..next.copy_slots().min(geometry.copy_slots())).map(CopySlot) {
                assert_eq!(next.copy_slot_offset(slot), geometry.copy_slot_offset(slot));
            }
            for segment in (0..next.segments.min(geometry.segments)).map(SegmentIndex) {
                assert_eq!(next.segment_offset(segment), geometry.segment_offset(segment));
            }
            assert_eq!(next.checkpoint_offsets, none.checkpoint_offsets);
            let last = SegmentIndex(next.segments - 1);
            assert!(next.segment_offset(last) + (128 << 10) <= next.read_area_offset());
            // The places of pages do not overlap with what counts until the new ones do.
            let places = |it: &Geometry| {
                let offset = it.read_area_offset();
                offset..offset + 2 * u64::from(it.copy_pages) * 4096
            };
            let (old, new) = (places(&geometry), places(&next));
            assert!(old.end <= new.start || new.end <= old.start, "{pages}");
            let grown = next.resized(96 << 20, made_end, false).unwrap();
            assert_eq!(
                grown.segment_offset(SegmentIndex(next.segments - 1)),
                next.segment_offset(last)
            );
            assert_eq!(
                grown.with_read_area(20 << 20, made_end),
                next.with_read_area(20 << 20, made_end)
            );
            geometry = next;
        }
    }

    #[test]
    fn a_read_area_that_cannot_be_is_refused() {
        let geometry = Geometry::fit_with_copies(512 << 20, 128 << 10, 300).unwrap();
        let made_end = geometry.end() + 4096;
        let with = |pages: u32| {
            geometry.with_read_area(u64::from(pages) * COPY_PAGE_SPACE_BYTES, made_end)
        };
        let same = ResizeError::SameReadArea { bytes: 300 * 248 * 4096 };
        // Two places of each page move by two lines for each page, and are behind others when
        // there are 248 lines for each more.
        assert_eq!([298, 299, 300, 301, 302].map(with), [Err(same); 5]);
        assert!(with(303).is_ok() && with(297).is_ok());
        let most = u64::from(geometry.room_segments - 16) * (128 << 10) / 1_024_000;
        assert_eq!(with(most as u32).map(|it| it.copy_pages), Ok(most as u32));
        let error = ResizeError::ReadAreaTooLarge { most: most * 1_024_000 };
        assert_eq!(with(most as u32 + 1), Err(error));
        assert_eq!(with(u32::MAX), Err(error));
        let none = with(0).unwrap();
        let error = ResizeError::SameReadArea { bytes: 0 };
        assert_eq!(none.with_read_area(0, made_end), Err(error));
        let shrunk = none.resized(256 << 20, made_end, true).unwrap();
        for bytes in [1, 20, COPY_PAGE_SPACE_BYTES - 1] {
            let error = ResizeError::ReadAreaTooSmall { least: COPY_PAGE_SPACE_BYTES };
            assert_eq!(geometry.with_read_area(bytes, made_end), Err(error));
        }
        let error = ResizeError::BehindReadArea { needed: made_end };
        assert_eq!(shrunk.with_read_area(3 << 20, made_end), Err(error));
    }

    #[test]
    fn the_smallest_and_the_largest() {
        // 16 segments: areas of a header and 16 * (8192 + 8192 + 256 + 16 * 32) bytes.
        let needed = 131_072 + 2 * (4096 + 274_432) + 16 * 131_072;
        assert_eq!(
            Geometry::fit(needed, 128 << 10).map(|g| (g.segments, g.end())),
            Ok((16, needed))
        );
        for found in [needed - 1, 128 << 10, 0] {
            let error =
                GeometryError::TooSmall { found, needed, segment_size: 128 << 10, copy_pages: 0 };
            assert_eq!(Geometry::fit(found, 128 << 10), Err(error));
        }
        // Slot numbers have 31 bits.
        let most = 1 << 43;
        let largest = Geometry::fit(most, 4 << 20).unwrap();
        assert!(largest.end() <= most && most - largest.end() < 32 << 20, "{largest:?}");
        let error = GeometryError::TooLarge { found: most + 1, most };
        assert_eq!(Geometry::fit(most + 1, 4 << 20), Err(error));
        for size in [64 << 10, 4 << 20] {
            assert!(Geometry::fit(1 << 30, size).is_ok());
        }
        for found in [0, 32 << 10, 96 << 10, 8 << 20] {
            assert_eq!(Geometry::fit(1 << 30, found), Err(GeometryError::SegmentSize { found }));
        }
    }

    #[test]
    fn small_caches_get_small_segments() {
        for (cache_disk_bytes, expected) in [
            (0, 64 << 10),
            (3 << 20, 64 << 10),
            (8 << 20, 128 << 10),
            ((64 << 20) - 1, 512 << 10),
            (64 << 20, 1 << 20),
            (1 << 40, 1 << 20),
        ] {
            let size = Geometry::default_segment_size(cache_disk_bytes);
            assert_eq!(size, expected, "{cache_disk_bytes}");
        }
    }

    #[test]
    fn slots_and_segments_agree() {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        let slot = geometry.slot(SegmentIndex(3), 5);
        assert_eq!(geometry.locate(slot), (SegmentIndex(3), 5));
        assert_eq!(geometry.slot_offset(slot), geometry.segment_offset(SegmentIndex(3)) + 5 * 4096);
        let at = |offset| geometry.segment_at(offset);
        assert_eq!(at(geometry.slot_offset(slot)), Some(SegmentIndex(3)));
        let (begin, end) = (geometry.segments_offset, geometry.read_area_offset());
        assert_eq!([at(begin - 1), at(end)], [None, None]);
        assert_eq!(at(end - 1), Some(SegmentIndex(geometry.segments - 1)));
    }

    /// As it was made, with an end mark: (geometry, where that ends).
    fn made() -> (Geometry, u64) {
        let geometry = Geometry::fit((16 << 20) - 4096, 128 << 10).unwrap();
        (geometry, geometry.end() + 4096)
    }

    #[test]
    fn a_log_that_grows_and_shrinks_has_every_slot_where_it_was() {
        let (first, made_end) = made();
        let mut geometry = first;
        let mut known: Vec<u64> = Vec::new();
        for size in [64 << 20, 33 << 20, 40 << 20, 200 << 20, 20 << 20, 12 << 20, 16 << 20] {
            let next = geometry.resized(size, made_end, true).unwrap();
            let end = next.resized_end().map_or(made_end, |end| end + 4096);
            assert!(end <= size && size - end < 3 << 20, "{size}: {next:?}");
            for segment in 0..next.segments {
                let offset = next.segment_offset(SegmentIndex(segment));
                match known.get(segment as usize) {
                    Some(known) => assert_eq!(offset, *known, "{segment} has not moved"),
                    None => known.push(offset),
                }
                assert!(offset + (128 << 10) < size);
                assert_eq!(next.segment_at(offset), Some(SegmentIndex(segment)));
                assert_eq!(next.segment_at(offset + (128 << 10) - 1), Some(SegmentIndex(segment)));
                let slot = next.slot(SegmentIndex(segment), 31);
                assert_eq!(next.slot_offset(slot), offset + 31 * 4096);
            }
            // The areas hold the index of all, and lie in front of their own segments.
            let needed = checkpoint_area_bytes(next.segments.into(), 128 << 10);
            assert!(next.checkpoint_area_bytes >= needed);
            assert_eq!(next.segment_at(next.checkpoint_offsets[0]), None);
            assert_eq!(next.segment_at(next.checkpoint_offsets[1]), None);
            assert_eq!(Geometry::resized_as(first, next.annexes, next.segments), Some(next));
            geometry = next;
        }
        assert_eq!(geometry, first, "as large as it was made");
    }

    #[test]
    fn what_lies_behind_the_log_stays() {
        let geometry = Geometry::fit_with_copies(16 << 20, 128 << 10, 3).unwrap();
        let made_end = geometry.end() + 4096;
        let grown = geometry.resized(64 << 20, made_end, false).unwrap();
        assert!(grown.segments > geometry.segments);
        assert_eq!(grown.read_area_offset(), geometry.read_area_offset());
        assert_eq!(grown.annexes.offset, made_end);
        assert_eq!(grown.resized(made_end, made_end, false), Ok(geometry));
        let error = ResizeError::BehindLog { needed: made_end };
        assert_eq!(grown.resized(made_end - 1, made_end, false), Err(error));
    }

    #[test]
    fn it_cannot_be_smaller_than_the_smallest_nor_grow_for_ever() {
        let (geometry, made_end) = made();
        let needed = geometry.segments_offset + 16 * (128 << 10) + 4096;
        assert_eq!(geometry.resized(needed, made_end, true).map(|it| it.segments), Ok(16));
        let error = geometry.resized(needed - 1, made_end, true);
        assert_eq!(error, Err(ResizeError::TooSmall { needed }));
        assert!(geometry.resized(0, made_end, true).is_err());
        let mut grown = geometry;
        let mut size = 16 << 20;
        for _ in 0..ANNEXES_MAX {
            size += 2 << 20;
            let next = grown.resized(size, made_end, true).unwrap();
            assert!(next.segments > grown.segments);
            assert_eq!(next.resized(size, made_end, true), Ok(next), "it has all that fits");
            grown = next;
        }
        assert_eq!(grown.resized(2 * size, made_end, true), Err(ResizeError::TooOften));
        let less = grown.resized(size - (1 << 20), made_end, true).unwrap();
        assert!(less.segments < grown.segments);
        assert_eq!(less.resized(2 * size, made_end, true), Ok(grown), "what there is a place for");
        // Slot numbers have 31 bits.
        let most = geometry.resized(1 << 50, made_end, true).unwrap();
        assert!(u64::from(most.segments) * 32 <= 1 << 31);
        assert!(u64::from(most.segments) * 32 > (1 << 31) - 64);
    }

    #[test]
    fn what_no_log_can_be_is_refused() {
        let (geometry, made_end) = made();
        let grown = geometry.resized(64 << 20, made_end, true).unwrap();
        let twice = grown.resized(96 << 20, made_end, true).unwrap();
        let as_read = |change: &dyn Fn(&mut Annexes), segments| {
            let mut annexes = twice.annexes;
            change(&mut annexes);
            Geometry::resized_as(geometry, annexes, segments)
        };
        assert_eq!(as_read(&|_| (), twice.segments), Some(twice));
        assert_eq!(as_read(&|_| (), twice.segments + 1), None, "more than there are");
        assert_eq!(as_read(&|_| (), grown.segments), None, "the last is not in use");
        assert_eq!(as_read(&|_| (), 3), None);
        assert_eq!(as_read(&|it| it.segments[5] = 1, twice.segments), None, "a gap");
        assert_eq!(as_read(&|it| it.offset = 0, twice.segments), None);
        assert_eq!(as_read(&|it| it.segments[1] = u32::MAX, twice.segments), None);
        assert_eq!(as_read(&|it| it.offset = u64::MAX / 2, twice.segments), None);
    }
}
