//! The twin: a volume's tables once more, on two of its members. With it the volume is found again
//! when the cache-disk is lost ([`super::import`]).
//!
//! An area of the same form as that of the cache-disk, behind all sets of a member. Its journal has
//! no lines: what belongs to a line is on the members themselves. Three things hold:
//!
//! - *What counts is in the twin too.* A record of the journal is done with when the twin has its
//!   changes of tables and states, durable on all holders.
//! - *Checksums lag.* Before a member is written where the twin's checksums are right so far, a mark
//!   says of the *region* (some pages of checksums) that they are not known. Marks go when its pages
//!   have been written ([`super::paths::twin`]).
//! - *Labels say who has it.* A holder that fails is left out of the newest labels before anything
//!   is acknowledged that it lacks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::config::VolumeConfig;
use super::format::area::{Region, VolumeArea};
use super::format::journal::JournalItem;
use super::format::label::TwinLabel;
use super::format::page::PageIndex;
use super::members::MemberMask;
use super::page_map::PageMap;
use crate::units::{MemberIndex, Time};

/// Members that have it.
const HOLDERS_MAX: usize = 2;
/// Regions whose checksums are written together.
pub(super) const REGIONS_AT_ONCE: usize = 16;
/// Records that a ring has room for. Each takes one line.
pub(super) const RING_LINES: u64 = 256;

/// Regions whose checksums are not known: a bit each.
pub(super) struct RegionMarks {
    words: Vec<u64>,
    regions: u64,
    marked: u64,
}

impl RegionMarks {
    /// None of so many.
    pub(super) fn new(regions: u64) -> RegionMarks {
        RegionMarks { words: vec![0; regions.div_ceil(64) as usize], regions, marked: 0 }
    }

    /// How many there are.
    pub(super) fn regions(&self) -> u64 {
        self.regions
    }

    /// How many are marked.
    pub(super) fn marked(&self) -> u64 {
        self.marked
    }

    /// Whether one is.
    pub(super) fn has(&self, region: Region) -> bool {
        self.words[region.0 as usize / 64] & 1 << (region.0 % 64) != 0
    }

    /// Marks one; whether it was not.
    pub(super) fn mark(&mut self, region: Region) -> bool {
        let is_new = !self.has(region);
        self.words[region.0 as usize / 64] |= 1 << (region.0 % 64);
        self.marked += u64::from(is_new);
        is_new
    }

    /// Its checksums are known.
    pub(super) fn clear(&mut self, region: Region) {
        self.marked -= u64::from(self.has(region));
        self.words[region.0 as usize / 64] &= !(1 << (region.0 % 64));
    }

    /// Marks all.
    pub(super) fn mark_all(&mut self) {
        (0..self.regions).for_each(|region| {
            self.mark(Region(region as u32));
        });
    }

    /// Words from this one on, for a page.
    pub(super) fn page(&self, first: u64, words: u64) -> Vec<u8> {
        let words = self.words.iter().skip(first as usize).take(words as usize);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A word of a page is added. Bits beyond the last region say nothing.
    pub(super) fn add(&mut self, word: u64, bits: u64) {
        for bit in (0..64).filter(|bit| bits & 1 << bit != 0) {
            let region = word * 64 + bit;
            if region < self.regions {
                self.mark(Region(region as u32));
            }
        }
    }

    /// Those of another are added.
    pub(super) fn add_all(&mut self, other: &RegionMarks) {
        for (word, bits) in (0..).zip(&other.words) {
            self.add(word, *bits);
        }
    }

    /// The first that is marked from this one on, of so many that are looked at.
    pub(super) fn next(&self, from: Region, looked_at_max: u64) -> Option<Region> {
        let end = (u64::from(from.0) + looked_at_max).min(self.regions);
        let mut region = u64::from(from.0);
        while region < end {
            let word = self.words[region as usize / 64] >> (region % 64);
            if word != 0 {
                let found = region + u64::from(word.trailing_zeros());
                return (found < end).then_some(Region(found as u32));
            }
            region = (region / 64 + 1) * 64;
        }
        None
    }
}

/// Where a checkpoint of the twin stands.
pub(super) enum State {
    Idle,
    /// Roots and records of another time are overwritten on a new holder.
    Clearing {
        left: u32,
    },
    FlushingMembers {
        left: u32,
    },
    /// Checksums of the chosen regions are read from the cache-disk.
    Loading,
    Writing {
        left: BTreeSet<PageIndex>,
        in_flight: u32,
    },
    Flushing {
        left: u32,
    },
    WritingRoot {
        left: u32,
    },
}

/// Where labels stand that say who has the twin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    Idle,
    Writing { left: u32, says: MemberMask },
    Flushing { left: u32, says: MemberMask },
}

/// What a record of the journal waits for.
pub(super) struct RecordUnderWay {
    /// What has not been written yet, a record of the twin each.
    pub(super) left: VecDeque<Vec<JournalItem>>,
    /// Writes under way.
    pub(super) ios_left: u32,
    pub(super) is_begun: bool,
}

/// The twin of a volume that is served.
pub(super) struct Twin {
    pub(super) area: VolumeArea,
    pub(super) offset: u64,
    /// Of each page the copy that counts.
    pub(super) map: PageMap,
    /// The newest checkpoint.
    pub(super) number: u64,
    pub(super) next_sequence: u64,
    /// The first record that counts.
    pub(super) tail: u64,
    /// Who is written to.
    pub(super) holders: MemberMask,
    /// Those of them that have all.
    pub(super) whole: MemberMask,
    /// What the newest labels say of that, and their number.
    pub(super) told: MemberMask,
    pub(super) generation: u64,
    /// Who has failed as one since the start.
    pub(super) dropped: MemberMask,
    pub(super) record: Option<RecordUnderWay>,
    pub(super) state: State,
    pub(super) round: Round,
    /// A start has read it, and it lacks what the journal has.
    pub(super) is_behind: bool,
    /// Records were done with that it has not got, because its ring was full while it was built.
    pub(super) has_missed: bool,
    /// Who has taken the labels that are being written.
    pub(super) labelled: MemberMask,
    /// All tables are to be written: to a member that has nothing, or by somebody who knows nothing
    /// of what is there.
    pub(super) is_to_be_built: bool,
    /// While that is done: the next page, downwards.
    pub(super) build_next: Option<u32>,
    /// From where on records count when the checkpoint under way has ended.
    pub(super) next_tail: u64,
    /// Regions whose checksums are being written.
    pub(super) chosen: Vec<Region>,
    /// Their pages, while they are needed.
    pub(super) held: BTreeSet<PageIndex>,
    /// Of regions that this start has changed: how.
    pub(super) touched: BTreeMap<Region, Touch>,
    /// Of records of the journal before this one `touched` need not have what they change.
    pub(super) noted_from: u64,
    /// Where to look for marked ones.
    pub(super) cursor: Region,
    /// How many are taken together, fewer behind some that could not be had.
    pub(super) regions_at_once: usize,
    /// When to look again for regions whose checksums may be written.
    pub(super) settle_at: Time,
    /// Not before, unless the members are at rest.
    pub(super) paused_until: Time,
    /// When the checkpoint under way began.
    pub(super) begun_at: Time,
}

/// What happened to a marked region.
#[derive(Clone, Copy)]
pub(super) struct Touch {
    /// The record of the journal that changed it last.
    pub(super) sequence: u64,
    /// When.
    pub(super) at: Time,
    /// When it was changed first since it was marked.
    pub(super) since: Time,
}

impl Twin {
    /// Nobody has anything.
    pub(super) fn new(area: VolumeArea, offset: u64) -> Twin {
        Twin {
            map: PageMap::new(area.pages()),
            area,
            offset,
            number: 0,
            next_sequence: 1,
            tail: 1,
            holders: MemberMask::default(),
            whole: MemberMask::default(),
            told: MemberMask::default(),
            generation: 0,
            dropped: MemberMask::default(),
            record: None,
            state: State::Idle,
            round: Round::Idle,
            is_behind: false,
            has_missed: false,
            labelled: MemberMask::default(),
            is_to_be_built: false,
            build_next: None,
            next_tail: 0,
            chosen: Vec::new(),
            held: BTreeSet::new(),
            touched: BTreeMap::new(),
            noted_from: 0,
            cursor: Region(0),
            regions_at_once: REGIONS_AT_ONCE,
            settle_at: Time::ZERO,
            paused_until: Time::ZERO,
            begun_at: Time::ZERO,
        }
    }

    /// What labels say.
    pub(super) fn label(&self, holders: MemberMask, generation: u64) -> TwinLabel {
        TwinLabel { offset: self.offset, generation, holders }
    }

    /// How many members are to have it.
    pub(super) fn holders_wanted(config: &VolumeConfig) -> u32 {
        config.members.min(HOLDERS_MAX) as u32
    }

    /// Whether labels name nobody who lacks something.
    pub(super) fn is_told(&self) -> bool {
        self.told.without(self.whole).is_none()
    }

    /// Those who have it, and of whom labels say so.
    pub(super) fn found_now(&self) -> MemberMask {
        MemberMask(self.told.0 & self.whole.0)
    }

    /// Labels that are about to be written tell how it is.
    pub(super) fn tell(&mut self) {
        if self.told != self.whole {
            self.told = self.whole;
            self.generation += 1;
        }
    }

    /// A member has failed as a holder.
    pub(super) fn drop_holder(&mut self, member: MemberIndex) {
        let gone = MemberMask::of(member);
        self.holders = self.holders.without(gone);
        self.whole = self.whole.without(gone);
        self.dropped = self.dropped.with(gone);
    }

    /// The holders, in order.
    pub(super) fn holders(&self) -> Vec<MemberIndex> {
        self.holders.members().collect()
    }

    /// Byte address of the line of a record.
    pub(super) fn record_offset(&self, sequence: u64) -> u64 {
        self.area.journal_offset() + sequence % RING_LINES * crate::units::LINE_SIZE
    }

    /// Whether so many records more have room.
    pub(super) fn has_room(&self, records: u64) -> bool {
        self.next_sequence - self.tail + records < RING_LINES
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.is_quiet() && self.told == self.whole
    }

    /// The same, but for labels that are still to be written.
    pub(super) fn is_quiet(&self) -> bool {
        self.record.is_none() && matches!(self.state, State::Idle) && self.round == Round::Idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_where_they_are() {
        let mut marks = RegionMarks::new(200);
        assert!(marks.mark(Region(3)) && marks.mark(Region(199)) && !marks.mark(Region(3)));
        assert_eq!((marks.marked(), marks.regions()), (2, 200));
        assert_eq!(marks.next(Region(0), 1000), Some(Region(3)));
        assert_eq!(marks.next(Region(4), 1000), Some(Region(199)));
        assert_eq!(marks.next(Region(4), 195), None);
        let mut loaded = RegionMarks::new(200);
        let page = marks.page(0, 504);
        for (word, bytes) in (0..).zip(page.as_chunks::<8>().0) {
            loaded.add(word, u64::from_le_bytes(*bytes));
        }
        loaded.add(3, u64::MAX << 8);
        assert_eq!((loaded.marked(), loaded.has(Region(3))), (2, true));
        marks.clear(Region(3));
        marks.clear(Region(3));
        assert_eq!((marks.marked(), marks.has(Region(3))), (1, false));
        marks.mark_all();
        assert_eq!(marks.marked(), 200);
    }
}
