//! What a lookup table within a budget knows: the lines that have changed since the newest durable
//! checkpoint, and those that somebody works with. All others are as the *run* of that checkpoint
//! lists them on the cache-disk ([`IndexRun`]).
//!
//! ```text
//! known, clean     as the run has it; pinned, or it leaves memory
//! known, changed   the run has it otherwise, or not at all; also a line that left the log
//! known, gathered  changed, and as the checkpoint under way lists it: leaves memory with that
//! void             the run lists it, but it was discarded since
//! all others       as the run lists them; what the filter of the run does not have is not there
//! ```
//! Whoever looks for a line has it *pinned* first ([`super::lookup_table::LookupTable::pin`]):
//! what is not known would have to be read, and a table cannot read.

use super::index_run::IndexRun;
use super::sweep::LineRanges;
use crate::line_hash::LineHash;
use crate::line_map::{LineMap, LineValue};
use crate::units::{Line, SlotIndex};

/// Bits of the filter for each line: with fewer nearly every line would be read, more find hardly
/// more.
const FILTER_BITS: std::ops::RangeInclusive<u64> = 2..=10;
/// Memory for a line that has changed: three entries, a sixth of them unused.
const CHANGED_LINE_BYTES: u64 = 40;
/// To give back a chunk of a filter takes as long as to look at so many lines.
const CHUNK_COST: usize = 1024;
/// Ranges of lines that are void, before discards wait for a checkpoint.
const VOID_RANGES_MAX: usize = 4096;
/// Lines that may have changed, at least.
const CHANGED_LINES_MIN: u64 = 16;

/// How much of the index may be in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexBudget {
    /// Bits of the filter.
    pub(crate) filter_bits_per_line: u32,
    /// Lines that may have changed since the newest checkpoint, before changes wait for the next;
    /// that is begun with half of them.
    pub(crate) changed_lines_max: usize,
}

impl IndexBudget {
    /// Bytes that a cache of so many slots needs at least.
    pub(crate) fn bytes_min(slots: u32) -> u64 {
        slots.into()
    }

    /// What so many bytes give, if they are enough.
    pub(crate) fn new(bytes: u64, slots: u32) -> Option<IndexBudget> {
        if bytes < IndexBudget::bytes_min(slots) {
            return None;
        }
        let slots = u64::from(slots.max(1));
        let bits = (bytes / 4 * 8 / slots).clamp(*FILTER_BITS.start(), *FILTER_BITS.end());
        // Two runs, while one takes the place of the other, with eight bytes for each 256 items;
        // and the buckets of three maps.
        let fixed = 2 * (slots * bits / 8 + slots / 32) + slots / 8;
        let changed = (bytes.saturating_sub(fixed) / CHANGED_LINE_BYTES).max(CHANGED_LINES_MIN);
        Some(IndexBudget {
            filter_bits_per_line: bits as u32,
            changed_lines_max: usize::try_from(changed).unwrap_or(usize::MAX),
        })
    }
}

/// What is known of a line beside where it is.
#[derive(Clone, Copy)]
pub(super) struct Known {
    state: KnownState,
    pins: [u8; 3],
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum KnownState {
    None,
    Clean,
    Changed,
    Gathered,
}

impl LineValue for Known {
    const NONE: Known = Known { state: KnownState::None, pins: [0; 3] };

    fn is_none(&self) -> bool {
        self.state == KnownState::None
    }
}

impl Known {
    fn new(state: KnownState) -> Known {
        Known { state, pins: [0; 3] }
    }

    fn pins(self) -> u32 {
        u32::from_le_bytes([self.pins[0], self.pins[1], self.pins[2], 0])
    }

    fn set_pins(&mut self, pins: u32) {
        let [first, second, third, rest] = pins.to_le_bytes();
        assert!(rest == 0, "fewer pins than requests that can be under way");
        self.pins = [first, second, third];
    }
}

/// Checksum of a slot: five bytes, of which the last says that it is there.
#[derive(Clone, Copy)]
pub(super) struct SlotChecksum([u8; 5]);

impl LineValue for SlotChecksum {
    const NONE: SlotChecksum = SlotChecksum([0; 5]);

    fn is_none(&self) -> bool {
        self.0[4] == 0
    }
}

/// See the module.
pub(super) struct Paging {
    hash: LineHash,
    budget: IndexBudget,
    known: LineMap<Known>,
    /// By slot: of the slots of known lines.
    checksums: LineMap<SlotChecksum>,
    run: IndexRun,
    /// The one before, whose memory is given back by and by.
    retired: Option<IndexRun>,
    void: LineRanges,
    /// The same, of a discard whose lines are still being counted.
    voiding: LineRanges,
    /// Lines in the log, known or not.
    pub(super) lines: usize,
    /// Known lines that are not clean.
    changed: usize,
    /// Where the walk goes on after which what the newest checkpoint lists is in memory no more.
    evicting: Option<usize>,
}

impl Paging {
    pub(super) fn new(lines_max: usize, hash: LineHash, budget: IndexBudget) -> Paging {
        Paging {
            hash,
            budget,
            known: LineMap::new(lines_max, hash),
            checksums: LineMap::new(lines_max, hash),
            run: IndexRun::default(),
            retired: None,
            void: LineRanges::default(),
            voiding: LineRanges::default(),
            lines: 0,
            changed: 0,
            evicting: None,
        }
    }

    pub(super) fn budget(&self) -> IndexBudget {
        self.budget
    }

    pub(super) fn run(&self) -> &IndexRun {
        &self.run
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.known.memory_bytes()
            + self.checksums.memory_bytes()
            + self.run.memory_bytes()
            + self.retired.as_ref().map_or(0, IndexRun::memory_bytes)
    }

    // ---- what is known ------------------------------------------------------------------------

    /// Whether memory has all there is to know of a line.
    pub(super) fn is_known(&self, line: Line) -> bool {
        self.is_in_memory(line) || !self.may_be_listed(line)
    }

    /// Whether what the run says of a line does not count.
    pub(super) fn is_in_memory(&self, line: Line) -> bool {
        self.known.get(line).is_some()
    }

    /// Whether the run may list it, and that counts if nothing newer is in memory.
    pub(super) fn may_be_listed(&self, line: Line) -> bool {
        self.run.may_hold(self.hash.order(line.0)) && !self.is_void(line)
    }

    /// Whether it was discarded since the run was written.
    pub(super) fn is_void(&self, line: Line) -> bool {
        let lines = line..Line(line.0 + 1);
        self.void.overlap(&lines) || self.voiding.overlap(&lines)
    }

    /// Whether a line that the run lists is still to be counted for the discard under way: nobody
    /// has, when it left memory or in an earlier discard.
    pub(super) fn is_to_be_voided(&self, line: Line) -> bool {
        let lines = line..Line(line.0 + 1);
        let is_changed = |known: Known| known.state != KnownState::Clean;
        self.voiding.overlap(&lines)
            && !self.void.overlap(&lines)
            && !self.known.get(line).is_some_and(is_changed)
    }

    pub(super) fn pin(&mut self, line: Line) {
        let mut known = Known::new(KnownState::Clean);
        known.set_pins(1);
        if let Some(known) = self.known.get_or_insert(line, known) {
            known.set_pins(known.pins() + 1);
        }
    }

    /// One pin less. Tells whether nothing keeps the line in memory any more.
    pub(super) fn unpin(&mut self, line: Line) -> bool {
        let known = self.known.get_mut(line).expect("it was pinned");
        known.set_pins(known.pins().checked_sub(1).expect("it was pinned"));
        known.pins() == 0 && known.state == KnownState::Clean
    }

    /// The line is in memory as the run has it.
    pub(super) fn loaded(&mut self, line: Line) {
        let before = self.known.get_or_insert(line, Known::new(KnownState::Clean));
        assert!(before.is_none(), "what is known is not loaded");
    }

    /// The run has the line otherwise from now on.
    pub(super) fn change(&mut self, line: Line) {
        if let Some(known) = self.known.get_or_insert(line, Known::new(KnownState::Changed)) {
            self.changed += usize::from(known.state == KnownState::Clean);
            known.state = KnownState::Changed;
        } else {
            self.changed += 1;
        }
    }

    /// Nothing is known of it any more but what the run says.
    pub(super) fn forget(&mut self, line: Line) {
        let known = self.known.remove(line).expect("it was known");
        assert!(known.pins() == 0 && known.state != KnownState::Changed, "nothing is lost");
        self.changed -= usize::from(known.state == KnownState::Gathered);
    }

    // ---- checksums of slots -------------------------------------------------------------------

    pub(super) fn checksum(&self, slot: SlotIndex) -> u32 {
        let checksum = self.checksums.get(Line(slot.0.into())).expect("a slot of a known line");
        u32::from_le_bytes([checksum.0[0], checksum.0[1], checksum.0[2], checksum.0[3]])
    }

    pub(super) fn set_checksum(&mut self, slot: SlotIndex, checksum: u32) {
        let [a, b, c, d] = checksum.to_le_bytes();
        let value = SlotChecksum([a, b, c, d, 1]);
        if let Some(known) = self.checksums.get_or_insert(Line(slot.0.into()), value) {
            *known = value;
        }
    }

    pub(super) fn drop_checksum(&mut self, slot: SlotIndex) {
        self.checksums.remove(Line(slot.0.into()));
    }

    // ---- the budget ---------------------------------------------------------------------------

    /// Whether so much has changed that a checkpoint is due.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.changed >= self.budget.changed_lines_max / 2 || self.is_full_of_void()
    }

    /// Whether changes wait for it.
    pub(super) fn is_over_budget(&self) -> bool {
        self.changed >= self.budget.changed_lines_max
    }

    // ---- a new run ----------------------------------------------------------------------------

    /// The next bucket that has known lines.
    pub(super) fn bucket_from(&self, bucket: usize) -> Option<usize> {
        self.known.bucket_from(bucket)
    }

    pub(super) fn bucket_of(&self, line: Line) -> usize {
        self.known.bucket_of(line)
    }

    /// Lines of a bucket have been gathered, all but these, which are sorted: the checkpoint lacks
    /// a part of them.
    pub(super) fn bucket_gathered(&mut self, bucket: usize, but: &[Line]) {
        for (line, known) in self.known.bucket_mut(bucket) {
            if known.state != KnownState::Clean {
                known.state = match but.binary_search(&line) {
                    Ok(_) => KnownState::Changed,
                    Err(_) => KnownState::Gathered,
                };
            }
        }
    }

    /// The checkpoint that was gathered is durable.
    pub(super) fn run_is(&mut self, run: IndexRun) {
        assert!(self.evicting.is_none(), "it is begun when this is over");
        self.retired = Some(std::mem::replace(&mut self.run, run));
        self.void = LineRanges::default();
        self.evicting = Some(0);
    }

    /// The run that a start has read.
    pub(super) fn begin_with(&mut self, run: IndexRun) {
        self.run = run;
    }

    /// Whether what the newest checkpoint lists may still be in memory as if it did not.
    pub(super) fn is_evicting(&self) -> bool {
        self.evicting.is_some()
    }

    /// The next bucket of the walk; its lines that leave memory, and that nobody has pinned. Tells
    /// how many it has looked at.
    pub(super) fn evict_bucket(&mut self, leaving: &mut Vec<Line>) -> usize {
        let Some(next) = self.evicting else { return 0 };
        if let Some(retired) = &mut self.retired {
            if !retired.shrink() {
                self.retired = None;
            }
            return CHUNK_COST;
        }
        let Some(bucket) = self.known.bucket_from(next) else {
            self.evicting = None;
            return 0;
        };
        self.evicting = Some(bucket + 1);
        let mut looked_at = 0;
        for (line, known) in self.known.bucket_mut(bucket) {
            looked_at += 1;
            if known.state == KnownState::Gathered {
                known.state = KnownState::Clean;
                self.changed -= 1;
            }
            if known.state == KnownState::Clean && known.pins() == 0 {
                leaving.push(line);
            }
        }
        looked_at
    }

    /// What the run lists of these lines does not count any more. No line of them in memory has
    /// pieces.
    pub(super) fn begin_voiding(&mut self, lines: LineRanges) {
        self.voiding = lines;
    }

    /// They have been counted.
    pub(super) fn end_voiding(&mut self) {
        let lines = std::mem::take(&mut self.voiding);
        lines.iter().for_each(|lines| self.void.insert(lines));
    }

    /// Whether no more ranges of lines may be void before the next run.
    pub(super) fn is_full_of_void(&self) -> bool {
        self.void.len() >= VOID_RANGES_MAX
    }
}
