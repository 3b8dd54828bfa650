//! Where things are on the cache-disk.

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

/// Copy slots that a copy page lists.
pub const COPIES_PER_PAGE: u32 = 248;
/// What a copy page takes of the read area: its slots, and two places for the page itself.
pub const COPY_PAGE_SPACE_BYTES: u64 = (COPIES_PER_PAGE as u64 + 2) * LINE_SIZE;

/// Sizes and places on one cache-disk. All offsets and sizes are bytes, multiples of 4096.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Size of a segment.
    pub segment_size_bytes: u64,
    /// Number of segments.
    pub segments: u32,
    /// Where each checkpoint area begins.
    pub checkpoint_offsets: [u64; 2],
    /// Size of a checkpoint area.
    pub checkpoint_area_bytes: u64,
    /// Where segment 0 begins.
    pub segments_offset: u64,
    /// Copy pages of the read area, which begins behind the last segment; 0: there is none.
    pub copy_pages: u32,
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
        let most = (1u64 << 31) * LINE_SIZE;
        if cache_disk_bytes > most {
            return Err(GeometryError::TooLarge { found: cache_disk_bytes, most });
        }
        let total = |segments: u64| {
            CHECKPOINTS_OFFSET
                + 2 * checkpoint_area_bytes(segments, segment_size_bytes, copy_pages)
                + segments * segment_size_bytes
                + u64::from(copy_pages) * COPY_PAGE_SPACE_BYTES
        };
        let mut segments = cache_disk_bytes / segment_size_bytes;
        while segments > 0 && total(segments) > cache_disk_bytes {
            segments -= 1;
        }
        if segments < SEGMENTS_MIN {
            return Err(GeometryError::TooSmall {
                found: cache_disk_bytes,
                needed: total(SEGMENTS_MIN),
                segment_size: segment_size_bytes,
                copy_pages,
            });
        }
        let area = checkpoint_area_bytes(segments, segment_size_bytes, copy_pages);
        Ok(Geometry {
            segment_size_bytes,
            segments: segments as u32,
            checkpoint_offsets: [CHECKPOINTS_OFFSET, CHECKPOINTS_OFFSET + area],
            checkpoint_area_bytes: area,
            segments_offset: CHECKPOINTS_OFFSET + 2 * area,
            copy_pages,
        })
    }

    /// Bytes of cache-disk in use.
    pub fn end(&self) -> u64 {
        self.read_area_offset() + u64::from(self.copy_pages) * COPY_PAGE_SPACE_BYTES
    }

    /// Where the read area begins: behind the last segment.
    pub fn read_area_offset(&self) -> u64 {
        self.segments_offset + u64::from(self.segments) * self.segment_size_bytes
    }

    /// Copy slots in the read area.
    pub fn copy_slots(&self) -> u32 {
        self.copy_pages * COPIES_PER_PAGE
    }

    /// Byte address of the place of a copy page that holds this generation of it.
    pub fn copy_page_offset(&self, page: CopyPageIndex, generation: u64) -> u64 {
        self.read_area_offset() + (2 * u64::from(page.0) + generation % 2) * LINE_SIZE
    }

    /// Byte address of a copy slot.
    pub fn copy_slot_offset(&self, slot: CopySlot) -> u64 {
        let directory = 2 * u64::from(self.copy_pages) * LINE_SIZE;
        self.read_area_offset() + directory + u64::from(slot.0) * LINE_SIZE
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
        self.segments_offset + u64::from(segment.0) * self.segment_size_bytes
    }

    /// The segment that has this byte of the cache-disk, if one has.
    pub(crate) fn segment_at(&self, offset: u64) -> Option<SegmentIndex> {
        let index = offset.checked_sub(self.segments_offset)? / self.segment_size_bytes;
        (index < u64::from(self.segments)).then_some(SegmentIndex(index as u32))
    }

    /// Byte address of a slot.
    pub fn slot_offset(&self, slot: SlotIndex) -> u64 {
        self.segments_offset + u64::from(slot.0) * LINE_SIZE
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

/// Room for the largest checkpoint that can be: every slot live.
fn checkpoint_area_bytes(segments: u64, segment_size_bytes: u64, copy_pages: u32) -> u64 {
    let slots = segments * (segment_size_bytes / LINE_SIZE - 1);
    let entries = ZERO_RANGES_MAX
        + POISONED_LINES_MAX
        + WITNESSES_MAX
        + segments
        + slots
        + u64::from(copy_pages);
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
            copy_pages: 0,
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
    fn a_read_area_takes_its_place_behind_the_segments() {
        // 3 MB and a byte: three pages. The area of a checkpoint has room for three items more.
        let pages = Geometry::copy_pages_in(3 * 1_024_000 + 1);
        assert_eq!(pages, 3);
        let geometry = Geometry::fit_with_copies(16 << 20, 128 << 10, pages).unwrap();
        assert_eq!((geometry.segments, geometry.copy_slots()), (98, 744));
        assert_eq!(geometry.checkpoint_area_bytes, 323_584);
        let area = 131_072 + 2 * 323_584 + 98 * 131_072;
        assert_eq!(geometry.read_area_offset(), area);
        assert_eq!(geometry.copy_page_offset(CopyPageIndex(2), 8), area + 4 * 4096);
        assert_eq!(geometry.copy_page_offset(CopyPageIndex(2), 9), area + 5 * 4096);
        assert_eq!(geometry.copy_slot_offset(CopySlot(0)), area + 6 * 4096);
        assert_eq!(geometry.copy_slot_offset(CopySlot(743)) + 4096, geometry.end());
        assert!(geometry.end() <= 16 << 20);
        assert_eq!(Geometry::fit_with_copies(geometry.end(), 128 << 10, 3), Ok(geometry));
        let error = Geometry::fit_with_copies(16 << 20, 128 << 10, 16);
        assert!(matches!(error, Err(GeometryError::TooSmall { .. })));
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
}
