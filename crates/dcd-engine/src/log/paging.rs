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
/// Memory for a line that has changed: what is known of it, and if it is in the log where that is
/// and its checksum. Entries of 6, 10 and 10 bytes, a quarter of them unused.
const KNOWN_BYTES: u64 = 10;
const PLACE_BYTES: u64 = 28;
/// Lines that are pinned at once, mostly: with more the map of pins is slower.
const PINNED_LINES: usize = 1 << 16;
/// To give back a chunk of a filter takes as long as to look at so many lines.
const CHUNK_COST: usize = 1024;
/// Ranges of lines that are void, before discards wait for a checkpoint.
const VOID_RANGES_MAX: usize = 4096;
/// Lines that may have changed, at least.
const CHANGED_LINES_MIN: u64 = 16;
/// A checkpoint is begun when this part of the room for changes is left at least.
const RESERVE_PART_MIN: u64 = 16;
/// And this one at most.
const RESERVE_PART_MAX: u64 = 2;
/// The reserve is so many quarters of what changed during the last checkpoint: the next takes
/// longer, or more changes meanwhile. What is held in reserve is logged sooner for each checkpoint.
const RESERVE_QUARTERS_OF_LAST: u64 = 5;
/// The same if nearly all the room was taken: more might have changed, and somebody may have
/// waited.
const RESERVE_QUARTERS_AFTER_TIGHT: u64 = 8;
/// Changes may be ahead of the checkpoint under way by this part of the room for them: what comes
/// in a burst does not wait for it.
const AHEAD_PART: u64 = 8;

/// How much of the index may be in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexBudget {
    /// Bits of the filter.
    pub(crate) filter_bits_per_line: u32,
    /// Memory for lines that have changed since the newest checkpoint: when there is no more,
    /// changes wait for the next.
    pub(crate) changed_bytes_max: u64,
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
        // Three of sixteen bytes of the budget.
        let bits = (bytes * 3 / 2 / slots).clamp(*FILTER_BITS.start(), *FILTER_BITS.end());
        // Two runs, while one takes the place of the other, with eight bytes for each 256 items;
        // and the buckets of three maps.
        let fixed = 2 * (slots * bits / 8 + slots / 32) + slots / 8;
        let least = CHANGED_LINES_MIN * (KNOWN_BYTES + PLACE_BYTES);
        Some(IndexBudget {
            filter_bits_per_line: bits as u32,
            changed_bytes_max: bytes.saturating_sub(fixed).max(least),
        })
    }
}

/// What is known of a line beside where it is: one byte.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Known {
    None,
    Clean,
    /// It is in the log.
    Changed,
    /// It has left the log.
    Gone,
    /// [`Known::Changed`], and the checkpoint under way lists it so.
    Gathered,
    /// [`Known::Gone`], and the checkpoint under way does not list it.
    GoneGathered,
}

impl LineValue for Known {
    const NONE: Known = Known::None;

    fn is_none(&self) -> bool {
        *self == Known::None
    }
}

impl Known {
    /// What it takes of the room for changes.
    fn changed_bytes(self) -> u64 {
        match self {
            Known::None | Known::Clean => 0,
            Known::Gone | Known::GoneGathered => KNOWN_BYTES,
            Known::Changed | Known::Gathered => KNOWN_BYTES + PLACE_BYTES,
        }
    }

    /// Whether no checkpoint has it, not even one that is under way.
    fn is_ungathered(self) -> bool {
        matches!(self, Known::Changed | Known::Gone)
    }

    fn is_gathered(self) -> bool {
        matches!(self, Known::Gathered | Known::GoneGathered)
    }

    fn gathered(self) -> Known {
        match self {
            Known::Changed => Known::Gathered,
            Known::Gone => Known::GoneGathered,
            other => other,
        }
    }

    fn ungathered(self) -> Known {
        match self {
            Known::Gathered => Known::Changed,
            Known::GoneGathered => Known::Gone,
            other => other,
        }
    }
}

/// How many pin a line.
#[derive(Clone, Copy)]
struct Pins([u8; 4]);

impl LineValue for Pins {
    const NONE: Pins = Pins([0; 4]);

    fn is_none(&self) -> bool {
        self.0 == [0; 4]
    }
}

impl Pins {
    fn new(count: u32) -> Pins {
        Pins(count.to_le_bytes())
    }

    fn count(self) -> u32 {
        u32::from_le_bytes(self.0)
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

/// How changes keep pace with checkpoints.
#[derive(Default)]
struct Pacing {
    pace: Option<Pace>,
    /// What changed from the beginning of the last one until what it lists had left memory, and
    /// whether there was hardly room for it.
    last_bytes: Option<u64>,
    last_was_tight: bool,
}

/// What has changed in all and since the last checkpoint, when one was begun, and which bucket is
/// gathered next.
struct Pace {
    begun_at: u64,
    begun_with: u64,
    bucket: usize,
}

/// See the module.
pub(super) struct Paging {
    hash: LineHash,
    budget: IndexBudget,
    known: LineMap<Known>,
    /// Of those that somebody works with.
    pins: LineMap<Pins>,
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
    /// Memory of known lines that are not clean.
    changed_bytes: u64,
    /// All that ever was added to that.
    added_bytes: u64,
    /// How the checkpoint under way, until what it lists has left memory, and the last one bear on
    /// changes.
    pacing: Pacing,
    /// Where the walk goes on after which what the newest checkpoint lists is in memory no more.
    evicting: Option<usize>,
}

impl Paging {
    pub(super) fn new(lines_max: usize, hash: LineHash, budget: IndexBudget) -> Paging {
        Paging {
            hash,
            budget,
            known: LineMap::new(lines_max, hash),
            pins: LineMap::new(lines_max.min(PINNED_LINES), hash),
            checksums: LineMap::new(lines_max, hash),
            run: IndexRun::default(),
            retired: None,
            void: LineRanges::default(),
            voiding: LineRanges::default(),
            lines: 0,
            changed_bytes: 0,
            added_bytes: 0,
            pacing: Pacing::default(),
            evicting: None,
        }
    }

    pub(super) fn budget(&self) -> IndexBudget {
        self.budget
    }

    /// Another one: the next run has a filter like that.
    pub(super) fn set_budget(&mut self, budget: IndexBudget) {
        self.budget = budget;
    }

    pub(super) fn run(&self) -> &IndexRun {
        &self.run
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.known.memory_bytes()
            + self.pins.memory_bytes()
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
        let is_changed = |known: Known| known != Known::Clean;
        self.voiding.overlap(&lines)
            && !self.void.overlap(&lines)
            && !self.known.get(line).is_some_and(is_changed)
    }

    pub(super) fn pin(&mut self, line: Line) {
        let _ = self.known.get_or_insert(line, Known::Clean);
        if let Some(pins) = self.pins.get_or_insert(line, Pins::new(1)) {
            *pins = Pins::new(pins.count() + 1);
        }
    }

    /// One pin less. Tells whether nothing keeps the line in memory any more.
    pub(super) fn unpin(&mut self, line: Line) -> bool {
        let pins = self.pins.get_mut(line).expect("it was pinned");
        if pins.count() > 1 {
            *pins = Pins::new(pins.count() - 1);
            return false;
        }
        self.pins.remove(line);
        self.known.get(line).expect("it was pinned") == Known::Clean
    }

    /// The line is in memory as the run has it.
    pub(super) fn loaded(&mut self, line: Line) {
        let before = self.known.get_or_insert(line, Known::Clean);
        assert!(before.is_none(), "what is known is not loaded");
    }

    /// The run has the line otherwise from now on: `is_there` in the log, or not any more.
    pub(super) fn change(&mut self, line: Line, is_there: bool) {
        let changed = if is_there { Known::Changed } else { Known::Gone };
        let mut before = Known::None;
        if let Some(known) = self.known.get_or_insert(line, changed) {
            before = *known;
            *known = changed;
        }
        let (bytes, bytes_before) = (changed.changed_bytes(), before.changed_bytes());
        self.changed_bytes = self.changed_bytes - bytes_before + bytes;
        self.added_bytes += bytes.saturating_sub(bytes_before);
    }

    /// Nothing is known of it any more but what the run says.
    pub(super) fn forget(&mut self, line: Line) {
        let known = self.known.remove(line).expect("it was known");
        assert!(self.pins.get(line).is_none() && !known.is_ungathered(), "nothing is lost");
        self.changed_bytes -= known.changed_bytes();
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

    /// Whether so much has changed that a checkpoint is due: what is left is for what changes until
    /// it is durable.
    pub(super) fn wants_checkpoint(&self) -> bool {
        let most = self.budget.changed_bytes_max;
        let reserve = match self.pacing.last_bytes {
            Some(bytes) if self.pacing.last_was_tight => {
                (bytes / 4).saturating_mul(RESERVE_QUARTERS_AFTER_TIGHT)
            }
            Some(bytes) => (bytes / 4).saturating_mul(RESERVE_QUARTERS_OF_LAST),
            None => most,
        };
        let reserve = reserve.clamp(most / RESERVE_PART_MIN, most / RESERVE_PART_MAX);
        self.changed_bytes >= most - reserve || self.is_full_of_void()
    }

    /// Whether changes wait for it: there is no room for more, or what has come since it was begun
    /// has taken more of the room that was left by then than it has been gathered of the index. So
    /// no change waits for all of it.
    pub(super) fn is_over_budget(&self) -> bool {
        let most = self.budget.changed_bytes_max;
        let Some(Pace { begun_at, begun_with, bucket }) = self.pacing.pace else {
            return self.changed_bytes >= most;
        };
        let room = most.saturating_sub(begun_with);
        let buckets = self.known.buckets().max(1) as u64;
        let part = room / AHEAD_PART + room.saturating_mul(bucket as u64) / buckets;
        self.changed_bytes >= most || self.added_bytes - begun_at > part.min(room)
    }

    /// One is begun.
    pub(super) fn checkpoint_begun(&mut self) {
        let (begun_at, begun_with) = (self.added_bytes, self.changed_bytes);
        self.pacing.pace = Some(Pace { begun_at, begun_with, bucket: 0 });
    }

    /// All of the index has been gathered: what is left to do does not take long.
    pub(super) fn checkpoint_gathered(&mut self) {
        let buckets = self.known.buckets();
        if let Some(pace) = &mut self.pacing.pace {
            pace.bucket = buckets;
        }
    }

    /// It came to nothing.
    pub(super) fn checkpoint_dropped(&mut self) {
        self.pacing.pace = None;
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
            *known = match but.binary_search(&line) {
                Ok(_) => known.ungathered(),
                Err(_) => known.gathered(),
            };
        }
        if let Some(pace) = &mut self.pacing.pace {
            pace.bucket = bucket + 1;
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
        let Some(bucket) = self.known.bucket_from(next) else {
            // Changes wait for room of lines, and not for that of runs: this comes last.
            if let Some(retired) = &mut self.retired {
                if !retired.shrink() {
                    self.retired = None;
                }
                return CHUNK_COST;
            }
            self.evicting = None;
            if let Some(pace) = self.pacing.pace.take() {
                let (bytes, most) =
                    (self.added_bytes - pace.begun_at, self.budget.changed_bytes_max);
                let room = most.saturating_sub(pace.begun_with);
                self.pacing.last_bytes = Some(bytes);
                self.pacing.last_was_tight = bytes >= room - room / 8;
            }
            return 0;
        };
        self.evicting = Some(bucket + 1);
        let mut looked_at = 0;
        for (line, known) in self.known.bucket_mut(bucket) {
            looked_at += 1;
            if known.is_gathered() {
                self.changed_bytes -= known.changed_bytes();
                *known = Known::Clean;
            }
            if *known == Known::Clean && self.pins.get(line).is_none() {
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

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u32 = 1 << 16;

    /// Lines that change until something is so: one behind the other.
    struct Writer {
        paging: Paging,
        next: u64,
    }

    impl Writer {
        fn new() -> Writer {
            let budget = IndexBudget::new(4 * u64::from(SLOTS), SLOTS).unwrap();
            let paging = Paging::new(SLOTS as usize, LineHash::new(1), budget);
            Writer { paging, next: 0 }
        }

        fn change_until(&mut self, is_so: impl Fn(&Paging) -> bool) -> u64 {
            let first = self.next;
            while !is_so(&self.paging) {
                self.paging.change(Line(self.next), true);
                self.next += 1;
            }
            self.next - first
        }

        /// The log has so many slots from now on, and the settings are what they were.
        fn resized(&mut self, slots: u32) {
            let bytes = 4 * u64::from(SLOTS);
            self.paging.set_budget(IndexBudget::new(bytes, slots).unwrap());
        }

        fn share_in_use(&self) -> f64 {
            self.paging.changed_bytes as f64 / self.paging.budget.changed_bytes_max as f64
        }

        fn end_checkpoint(&mut self) {
            self.paging.checkpoint_gathered();
            self.paging.run_is(IndexRun::default());
            let mut leaving = Vec::new();
            while self.paging.is_evicting() {
                self.paging.evict_bucket(&mut leaving);
            }
            leaving.into_iter().for_each(|line| self.paging.forget(line));
        }
    }

    /// Who changes as much as may be never waits for more than a bucket, and not at all when there
    /// is room at the end.
    #[test]
    fn changes_keep_pace_with_a_checkpoint() {
        let mut writer = Writer::new();
        writer.change_until(Paging::wants_checkpoint);
        assert!((0.49..0.51).contains(&writer.share_in_use()), "nobody knows how long it takes");
        writer.paging.checkpoint_begun();
        let buckets = writer.paging.known.buckets();
        let mut came = Vec::new();
        for bucket in 0..buckets {
            came.push(writer.change_until(Paging::is_over_budget));
            writer.paging.bucket_gathered(bucket, &[]);
        }
        let (first, total) = (came[0], came.iter().sum::<u64>());
        assert!(first > total / 10 && first < total / 6, "{first} of {total} come at once");
        let most = came[1..].iter().max().unwrap();
        assert!(*most <= total / buckets as u64 + 1, "{most} of {total} for a bucket");
        assert!(writer.share_in_use() > 0.9, "all room is used");
        writer.end_checkpoint();
        // What came was gathered in part: the rest has not left.
        assert!((0.1..0.4).contains(&writer.share_in_use()), "{}", writer.share_in_use());
        assert!(!writer.paging.is_over_budget());
    }

    /// With few changes during the last checkpoint the next one can wait.
    #[test]
    fn a_checkpoint_is_due_when_what_comes_meanwhile_has_just_room() {
        let mut writer = Writer::new();
        let due_at = |writer: &mut Writer, meanwhile: f64| {
            writer.change_until(Paging::wants_checkpoint);
            let due_at = writer.share_in_use();
            writer.paging.checkpoint_begun();
            writer.change_until(|paging| {
                let part = paging.added_bytes - paging.pacing.pace.as_ref().unwrap().begun_at;
                part as f64 >= meanwhile * paging.budget.changed_bytes_max as f64
            });
            (0..writer.paging.known.buckets())
                .for_each(|it| writer.paging.bucket_gathered(it, &[]));
            writer.end_checkpoint();
            due_at
        };
        assert!((0.49..0.51).contains(&due_at(&mut writer, 0.1)));
        let due = due_at(&mut writer, 0.0);
        assert!((0.87..0.88).contains(&due), "a quarter more than a tenth is left: {due}");
        assert!((0.93..0.95).contains(&due_at(&mut writer, 0.06)), "and never nothing");
        let due = due_at(&mut writer, 0.4);
        assert!((0.87..0.89).contains(&due), "twice what had hardly room is left: {due}");
        assert!((0.49..0.51).contains(&due_at(&mut writer, 0.0)));
    }

    /// Filters of a larger log take more of what the settings give.
    #[test]
    fn a_log_that_has_grown_has_less_room_for_changes() {
        let before = Writer::new().change_until(Paging::is_over_budget);
        let mut grown = Writer::new();
        grown.resized(2 * SLOTS);
        assert!(
            grown.paging.budget().filter_bits_per_line
                < Writer::new().paging.budget().filter_bits_per_line
        );
        let after = grown.change_until(Paging::is_over_budget);
        assert!(after < before, "{after} lines in place of {before}");
    }
}
