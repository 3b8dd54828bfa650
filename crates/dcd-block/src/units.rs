//! Addresses, counts and time, each with its unit in its type.
//!
//! A *block* is 512 bytes, the smallest thing a frontend may address ([`Lba`]). A *cache line* is
//! 4 KiB of the data-disk, aligned ([`Line`]); its eight blocks are its *fragments*, and a
//! [`FragmentMask`] says which of them are meant. A *slot* is the room of one cache line on the
//! cache-disk ([`SlotIndex`]).

use std::fmt;
use std::ops::Range;

/// Bytes in a block, the unit of [`Lba`].
pub const BLOCK_SIZE: u64 = 512;
/// Bytes in a cache line and in a slot.
pub const LINE_SIZE: u64 = 4096;
/// Fragments (blocks) in a cache line.
pub const FRAGMENTS_PER_LINE: u64 = LINE_SIZE / BLOCK_SIZE;

/// A moment, in nanoseconds since an origin that the driver chooses. Never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);

    /// This moment plus `duration`, at most the end of time.
    pub fn after(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(duration.0))
    }

    /// How long ago `earlier` was; nothing if it is not earlier.
    pub fn since(self, earlier: Time) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.0 as f64 / 1e9)
    }
}

/// A span of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(pub u64);

impl Duration {
    /// Whole microseconds.
    pub const fn from_micros(micros: u64) -> Duration {
        Duration(micros * 1_000)
    }

    /// Whole milliseconds.
    pub const fn from_millis(millis: u64) -> Duration {
        Duration(millis * 1_000_000)
    }

    /// Whole seconds.
    pub const fn from_secs(secs: u64) -> Duration {
        Duration(secs * 1_000_000_000)
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.0 as f64 / 1e9)
    }
}

/// One data-disk of a volume, by its place in the list of members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MemberIndex(pub u8);

/// One of the disks that a cache-disk is on, by the place that its driver has given it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LegIndex(pub u8);

/// Address of a 512-byte block on the volume (and on the data-disk, which has the same layout).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lba(pub u64);

impl Lba {
    /// The cache line this block lies in.
    pub fn line(self) -> Line {
        Line(self.0 / FRAGMENTS_PER_LINE)
    }

    /// Byte address.
    pub fn byte(self) -> u64 {
        self.0 * BLOCK_SIZE
    }
}

/// A run of blocks: `start`, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LbaRange {
    /// First block.
    pub start: Lba,
    /// Number of blocks.
    pub blocks: u64,
}

impl LbaRange {
    /// `blocks` blocks from block `start`.
    pub fn new(start: u64, blocks: u64) -> LbaRange {
        LbaRange { start: Lba(start), blocks }
    }

    /// First block after the range.
    pub fn end(self) -> u64 {
        self.start.0 + self.blocks
    }

    /// Length in bytes.
    pub fn bytes(self) -> u64 {
        self.blocks * BLOCK_SIZE
    }

    /// Whether the two ranges share a block.
    pub fn overlaps(self, other: LbaRange) -> bool {
        self.start.0 < other.end() && other.start.0 < self.end()
    }

    /// The lines touched by the range, in order, each with the fragments of it that are touched.
    ///
    /// ```
    /// use dcd_block::units::LbaRange;
    /// let parts: Vec<_> = LbaRange::new(6, 4).lines().map(|(l, m)| (l.0, m.0)).collect();
    /// assert_eq!(parts, [(0, 0b1100_0000), (1, 0b0000_0011)]);
    /// ```
    pub fn lines(self) -> impl Iterator<Item = (Line, FragmentMask)> {
        let first = self.start.0 / FRAGMENTS_PER_LINE;
        let last = self.end().div_ceil(FRAGMENTS_PER_LINE);
        (first..last).map(move |line| (Line(line), Line(line).mask_within(self)))
    }
}

/// Number of a cache line: byte address / 4096. At most 40 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Line(pub u64);

impl Line {
    /// First block of the line.
    pub fn lba(self) -> Lba {
        Lba(self.0 * FRAGMENTS_PER_LINE)
    }

    /// The fragments of this line that lie within `range`.
    pub fn mask_within(self, range: LbaRange) -> FragmentMask {
        let base = self.lba().0;
        let first = range.start.0.clamp(base, base + FRAGMENTS_PER_LINE) - base;
        let end = range.end().clamp(base, base + FRAGMENTS_PER_LINE) - base;
        FragmentMask::span(first, end)
    }
}

/// Which of the eight fragments of a cache line: bit 0 is the first block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FragmentMask(pub u8);

impl FragmentMask {
    /// No fragment.
    pub const NONE: FragmentMask = FragmentMask(0);
    /// The whole line.
    pub const FULL: FragmentMask = FragmentMask(0xff);

    /// Fragments `first..end`, both within 0..=8.
    pub fn span(first: u64, end: u64) -> FragmentMask {
        if end <= first {
            return FragmentMask::NONE;
        }
        FragmentMask((((1u16 << (end - first)) - 1) << first) as u8)
    }

    /// Whether no fragment is meant.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all eight are.
    pub fn is_full(self) -> bool {
        self.0 == 0xff
    }

    /// Fragments in both.
    pub fn and(self, other: FragmentMask) -> FragmentMask {
        FragmentMask(self.0 & other.0)
    }

    /// Fragments in either.
    pub fn or(self, other: FragmentMask) -> FragmentMask {
        FragmentMask(self.0 | other.0)
    }

    /// Fragments in this and not in the other.
    pub fn without(self, other: FragmentMask) -> FragmentMask {
        FragmentMask(self.0 & !other.0)
    }

    /// Whether every fragment of `other` is in this.
    pub fn contains(self, other: FragmentMask) -> bool {
        other.0 & !self.0 == 0
    }

    /// Indices of the fragments, ascending.
    pub fn indices(self) -> impl Iterator<Item = usize> {
        (0..FRAGMENTS_PER_LINE as usize).filter(move |i| self.0 & (1 << i) != 0)
    }

    /// Byte ranges, within the line, of each run of adjacent fragments.
    ///
    /// ```
    /// use dcd_block::units::FragmentMask;
    /// let runs: Vec<_> = FragmentMask(0b1000_0110).byte_runs().collect();
    /// assert_eq!(runs, [512..1536, 3584..4096]);
    /// ```
    pub fn byte_runs(self) -> impl Iterator<Item = Range<usize>> {
        let mut next = 0u32;
        std::iter::from_fn(move || {
            let rest = (self.0 as u32) >> next << next;
            if rest == 0 {
                return None;
            }
            let first = rest.trailing_zeros();
            let length = (!(rest >> first)).trailing_zeros();
            next = first + length;
            Some(first as usize * BLOCK_SIZE as usize..next as usize * BLOCK_SIZE as usize)
        })
    }
}

impl fmt::Debug for FragmentMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08b}", self.0)
    }
}

/// Place of a segment on the cache-disk, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SegmentIndex(pub u32);

/// Monotonic number of a filling of a segment; orders recovery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SegmentSerial(pub u64);

/// Monotonic number of a record. The order of records is the order of acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RecordNumber(pub u64);

impl RecordNumber {
    /// The number after this one.
    pub fn next(self) -> RecordNumber {
        RecordNumber(self.0 + 1)
    }
}

/// Address of a 4 KiB slot in the segment area of the cache-disk: unified addressing (USENIX'99
/// section 3.4), the same while the slot is only in a segment buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SlotIndex(pub u32);

/// Number of a copy slot: room for a clean copy of a cache line in the read area of the cache-disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CopySlot(pub u32);

/// Number of a copy page: the copy slots that are listed together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CopyPageIndex(pub u32);

/// Name of a sequence on the cache-disk; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SequenceId(pub u32);

/// Identity of a cache, random, chosen at creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// As it is shown, with or without its hyphens.
impl std::str::FromStr for Uuid {
    type Err = String;

    fn from_str(text: &str) -> Result<Uuid, String> {
        let problem = || format!("{text:?} is no name like 0b5c9e8a-3f1d-4c62-9a77-5d2e8f0146b3");
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(problem());
        }
        let mut uuid = Uuid::default();
        for (byte, pair) in uuid.0.iter_mut().zip(digits.chunks(2)) {
            let digit = |digit: u8| (digit as char).to_digit(16).map_or(0, |value| value as u8);
            *byte = digit(pair[0]) << 4 | digit(pair[1]);
        }
        Ok(uuid)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
