//! What the twin is told, and when ([`super::super::twin`]).
//!
//! A record of the journal:
//! ```text
//! 1. It is durable on the cache-disk.
//! 2. Its changes of tables and states, and marks of regions where its lines are the first since
//!    checksums were written, become records of the twin: durable on all holders.
//!      Crash before: the next start finds the record, and tells the twin (step 4 of a checkpoint)
//!      before it writes a member. Should the cache-disk be lost now, nobody was told of it.
//! 3. Members are written, and who waits is answered.
//! ```
//! A checkpoint of the twin, when its ring is half full, at a start, and when regions are to lose
//! their marks:
//! ```text
//! 1. Regions are chosen whose jobs have all ended. Their marks go, in memory: whoever changes one
//!    from here on marks it anew, in a record that counts behind this checkpoint.
//! 2. Members are flushed: checksums must not speak of lines that a power cut takes away.
//! 3. Their checksums are read, if they are not in memory.
//! 4. Changed pages are written, each where the copy that counts is not; then those that name them.
//! 5. The holders are flushed, and the root is written, durable. Records before the tail, which was
//!    chosen in step 1, count no more.
//!      Crash before: the older root, with all marks and records.
//! ```
//! A holder that fails:
//! ```text
//! 1. It is written to no more.
//! 2. Labels of a new generation name the others, on all members, flushed.
//! 3. Records are done with again.
//!      Crash before: some labels are older, and both holders have what anybody was told of.
//! ```

use std::collections::{BTreeSet, VecDeque};

use super::super::format::area::{ENTRIES_PER_PAGE, Region, TablePage, VolumeArea};
use super::super::format::journal::{JOURNAL_ITEMS_MAX, JournalItem, encode};
use super::super::format::label::TwinLabel;
use super::super::format::page::{self, PageIndex};
use super::super::format::page_map::{self, PageCopy};
use super::super::format::root::{MemberState, Root, ScrubRecord};
use super::super::members::MemberMask;
use super::super::page_map::PageMap;
use super::super::status::TwinStatus;
use super::super::twin::{REGIONS_AT_ONCE, RING_LINES, RecordUnderWay, Round, State, Touch, Twin};
use super::super::{Purpose, Volume, VolumePhase};
use super::flush::For;
use super::sums::Sums;
use crate::buffer::Buffer;
use crate::io::{Device, IoError, IoOperation};
use crate::units::{Duration, LINE_SIZE, MemberIndex, Time};

/// Writes of pages at a time: when nobody waits for the members, and when somebody does.
const IN_FLIGHT_MAX: u32 = 32;
const IN_FLIGHT_BUSY_MAX: u32 = 4;
/// Regions that lose their marks together, those included that have no checksums yet: of most of a
/// new volume nothing was ever written.
const CHOSEN_MAX: usize = 256;
/// Regions, or pages, looked at in one step.
const LOOKED_AT_MAX: u64 = 1 << 12;
/// A region that is changed all the time is not waited for any longer than this, but for its jobs
/// that are under way: what is marked an import cannot verify.
const MARKED_MAX: Duration = Duration::from_secs(600);
/// How often it is looked whether a region has become quiet; and after how long without requests
/// the members have nothing else to do.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// While members have other work, checksums wait so many times as long as writing them took, ten
/// minutes at most.
const PAUSE_TIMES: u64 = 20;

/// What an I/O is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::volume) enum Step {
    Clear,
    Record,
    Page,
    Flush,
    Root,
    Label,
    LabelFlush,
}

impl Volume {
    /// Whether the volume is to be found again without its cache-disk. Then nothing counts as durable
    /// that is in the journal alone.
    pub(in crate::volume) fn has_twin(&self) -> bool {
        self.header.config.twin_region_pages > 0
    }

    /// What a label says of the twin now.
    pub(in crate::volume) fn twin_label(&self) -> Option<TwinLabel> {
        let twin = self.twin.as_ref()?;
        Some(twin.label(twin.told, twin.generation))
    }

    /// Whether a record under way waits for the twin: it was durable before the twin was told.
    pub(super) fn tell_twin(&mut self, items: &[JournalItem], sequence: u64) -> bool {
        let Some(twin) = &self.twin else { return false };
        // When the last has failed, labels must say so before anybody is told of anything.
        let (has_holders, is_told) = (!twin.holders.is_none(), twin.is_told());
        if !has_holders && is_told {
            return false;
        }
        let items = if has_holders { self.items_for_twin(items, sequence) } else { Vec::new() };
        if has_holders && items.is_empty() {
            return false;
        }
        let left: VecDeque<_> = items.chunks(JOURNAL_ITEMS_MAX).map(<[_]>::to_vec).collect();
        let twin = self.twin.as_mut().expect("looked at");
        twin.record = Some(RecordUnderWay { left, ios_left: 0, is_begun: false });
        true
    }

    fn items_for_twin(&mut self, items: &[JournalItem], sequence: u64) -> Vec<JournalItem> {
        let mut told = Vec::new();
        for item in items {
            let (JournalItem::Lines { set, stripe, row, column, lines }
            | JournalItem::Lost { set, stripe, row, column, lines }) = *item
            else {
                told.push(*item);
                continue;
            };
            let mut has_lost = false;
            for page in self.sum_pages_of(set, stripe, row..row + 1, column..column + lines) {
                let region = self.area.region_of(page);
                let (set, first) = self.place_of_sums(page);
                has_lost |= self.checksums.has_lost(set, first);
                let now = self.now;
                let touched = &mut self.twin.as_mut().expect("there is one").touched;
                let since = touched.get(&region).map_or(now, |touch| touch.since);
                touched.insert(region, Touch { sequence, at: now, since });
                if self.region_marks.mark(region) {
                    self.checkpoint.twin_dirty.insert(self.area.page_of_mark(region));
                    told.push(JournalItem::Marked { region: region.0 });
                }
            }
            match item {
                JournalItem::Lost { .. } => told.push(*item),
                // Else the lines would be lost still, by their page.
                _ if has_lost => {
                    told.push(JournalItem::Unsure { set, stripe, row, column, lines });
                }
                _ => {}
            }
        }
        told
    }

    pub(in crate::volume) fn advance_twin(&mut self) -> bool {
        let Some(twin) = &self.twin else { return false };
        if self.is_twin_to_rest() {
            return false;
        }
        let has_holders = !twin.holders.is_none();
        let is_record_begun = twin.record.as_ref().is_some_and(|record| record.is_begun);
        if self.phase == VolumePhase::Running && self.begin_round() {
            return true;
        }
        if matches!(self.twin().state, State::Loading) {
            return self.load_chosen();
        }
        let may_begin = matches!(self.twin().state, State::Idle) && !is_record_begun && has_holders;
        if may_begin && self.is_twin_checkpoint_due() {
            self.begin_twin_checkpoint();
            return true;
        }
        self.advance_twin_record()
    }

    fn is_twin_checkpoint_due(&mut self) -> bool {
        let has_grown = self.twin().area.pointer_pages_added() != self.area.pointer_pages_added();
        let is_begun_anew = self.twin().is_to_be_built && self.twin().whole.is_none();
        if has_grown && !is_begun_anew {
            self.begin_twin_anew();
        }
        let twin = self.twin();
        if twin.is_to_be_built {
            // Before nobody is named what is there is not touched.
            return twin.is_told() && twin.round == Round::Idle;
        }
        let is_ring_filling = twin.next_sequence - twin.tail >= RING_LINES / 2;
        twin.is_behind || is_ring_filling || self.is_settling_due()
    }

    fn twin(&mut self) -> &mut Twin {
        self.twin.as_mut().expect("there is one")
    }

    /// When something is to be done although nothing happens.
    pub(in crate::volume) fn twin_wake_up(&self) -> Option<Time> {
        let twin = self.twin.as_ref()?;
        let is_waiting = self.region_marks.marked() > 0
            && !twin.holders.is_none()
            && matches!(twin.state, State::Idle)
            && twin.settle_at > self.now;
        is_waiting.then_some(twin.settle_at)
    }

    // ---- records ------------------------------------------------------------------------------

    fn advance_twin_record(&mut self) -> bool {
        let is_opening = self.phase != VolumePhase::Running;
        let twin = self.twin();
        let Some(record) = &mut twin.record else { return false };
        if record.ios_left > 0 || twin.is_behind || matches!(twin.state, State::Clearing { .. }) {
            return false;
        }
        if twin.holders.is_none() {
            record.left.clear();
        }
        let needed = record.left.len() as u64;
        let Some(items) = record.left.front() else {
            // Labels of the start are written before anybody is answered.
            if !is_opening && !twin.is_told() {
                return false;
            }
            twin.record = None;
            self.record_durable();
            return true;
        };
        let items = items.clone();
        if !record.is_begun && !twin.has_room(needed) {
            return self.go_on_without_room();
        }
        let record = twin.record.as_mut().expect("looked at");
        record.left.pop_front();
        record.is_begun = true;
        record.ios_left = twin.holders.count();
        let (sequence, offset) = (twin.next_sequence, twin.record_offset(twin.next_sequence));
        twin.next_sequence += 1;
        for member in twin.holders() {
            let bytes = encode(self.header.uuid, sequence, &items, &[]);
            let purpose = Purpose::Twin(Step::Record, member);
            self.start_write(Device::Member(member), offset, bytes, true, purpose);
        }
        true
    }

    /// The ring is full. While a twin is built that takes long, and nobody waits for that: what the
    /// record says is in the pages of the checkpoint behind it.
    fn go_on_without_room(&mut self) -> bool {
        let twin = self.twin();
        if !twin.is_to_be_built || matches!(twin.state, State::Idle) {
            return false;
        }
        if twin.whole.is_none() {
            twin.has_missed = true;
            twin.record.as_mut().expect("it waits").left.clear();
            return true;
        }
        // Somebody has it whole, and stays so. The new one is not taken.
        let new = twin.holders.without(twin.whole);
        if new.is_none() {
            return false;
        }
        twin.holders = twin.whole;
        twin.dropped = twin.dropped.with(new);
        twin.is_to_be_built = false;
        twin.build_next = None;
        true
    }

    // ---- checkpoints --------------------------------------------------------------------------

    fn is_settling_due(&mut self) -> bool {
        let now = self.now;
        if self.region_marks.marked() == 0
            || self.twin().settle_at > now
            || self.phase != VolumePhase::Running
            || self.is_closing()
            || self.journal.error.is_some()
        {
            return false;
        }
        if self.is_at_rest() || self.twin().paused_until <= now {
            self.choose_regions();
        }
        if self.twin().chosen.is_empty() {
            self.twin().settle_at = now.after(LOOK_EVERY);
        }
        !self.twin().chosen.is_empty()
    }

    /// Step 1.
    fn choose_regions(&mut self) {
        let (now, quiet, tail) = (self.now, self.twin_quiet, self.journal.tail().0);
        if self.twin().noted_from > tail {
            return;
        }
        let mut left = LOOKED_AT_MAX;
        let (mut chosen, mut with_sums) = (Vec::new(), 0);
        let (mut at, at_once) = (self.twin().cursor, self.twin().regions_at_once);
        while with_sums < at_once && chosen.len() < CHOSEN_MAX && left > 0 {
            let Some(region) = self.region_marks.next(at, left) else {
                let end = u64::from(at.0) + left;
                at = Region(if end < self.region_marks.regions() { end as u32 } else { 0 });
                break;
            };
            left -= u64::from(region.0 - at.0).min(left - 1) + 1;
            at = Region(region.0 + 1);
            let touch = self.twin().touched.get(&region).copied();
            let may_settle = |touch: Touch| {
                let is_quiet = now.since(touch.at) >= quiet;
                touch.sequence < tail && (is_quiet || now.since(touch.since) >= MARKED_MAX)
            };
            if touch.is_none_or(may_settle) {
                let mut pages = self.area.pages_of_region(region).map(PageIndex);
                with_sums += usize::from(pages.any(|page| self.has_written_sums(page)));
                chosen.push(region);
            }
        }
        if u64::from(at.0) >= self.region_marks.regions() {
            at = Region(0);
        }
        self.twin().cursor = at;
        for region in &chosen {
            self.region_marks.clear(*region);
            self.checkpoint.twin_dirty.insert(self.area.page_of_mark(*region));
            self.twin().touched.remove(region);
        }
        self.twin().chosen = chosen;
    }

    fn begin_twin_checkpoint(&mut self) {
        let now = self.now;
        let twin = self.twin();
        twin.begun_at = now;
        twin.next_tail = twin.next_sequence;
        // What was missed so far is in the pages that are written now.
        let is_catching_up = std::mem::take(&mut twin.has_missed);
        if twin.is_to_be_built && !is_catching_up {
            self.begin_to_build();
            if self.clear_new_holders() {
                return;
            }
        }
        if self.twin().chosen.is_empty() {
            return self.write_twin_pages();
        }
        let left = self.flush_members(For::Twin);
        self.twin().state = State::FlushingMembers { left };
        if left == 0 {
            self.begin_loading();
        }
    }

    /// Step 2. `is_lost`: what was written to a member may not be there.
    pub(super) fn twin_member_flushed(&mut self, is_lost: bool) {
        if is_lost {
            self.forget_chosen();
        }
        let State::FlushingMembers { left } = &mut self.twin().state else {
            unreachable!("members are flushed for it")
        };
        *left -= 1;
        if *left == 0 {
            self.begin_loading();
        }
    }

    fn begin_loading(&mut self) {
        let pages = self.pages_of_chosen();
        self.sum_pages.hold(&pages);
        let twin = self.twin();
        twin.held = pages;
        twin.state = State::Loading;
    }

    /// The chosen regions stay as they were, and are tried again as if they had been changed now;
    /// fewer together, so that the one that cannot be had keeps none of the others waiting.
    fn forget_chosen(&mut self) {
        let (at, since) = (self.now, self.now);
        let twin = self.twin();
        twin.regions_at_once = (twin.regions_at_once / 2).max(1);
        for region in std::mem::take(&mut twin.chosen) {
            // Who has changed it meanwhile may be under way still.
            let touched = &mut self.twin().touched;
            touched.entry(region).or_insert(Touch { sequence: 0, at, since });
            self.region_marks.mark(region);
        }
    }

    fn release_held(&mut self) {
        let held = std::mem::take(&mut self.twin().held);
        self.sum_pages.release(&held);
    }

    fn pages_of_chosen(&self) -> BTreeSet<PageIndex> {
        let chosen = self.twin.iter().flat_map(|twin| &twin.chosen);
        let pages = chosen.flat_map(|region| self.area.pages_of_region(*region)).map(PageIndex);
        pages.filter(|page| self.has_written_sums(*page)).collect()
    }

    /// Whether a page has checksums that were ever written.
    fn has_written_sums(&self, page: PageIndex) -> bool {
        let (set, first) = self.place_of_sums(page);
        self.checksums.is_in_memory(set, first) || self.checkpoint.map.get(page).is_some()
    }

    /// Step 3.
    fn load_chosen(&mut self) -> bool {
        let pages = self.twin().held.clone();
        match self.want_sums(&pages) {
            Sums::Awaited => return false,
            Sums::There => {}
            Sums::Unreadable => {
                self.forget_chosen();
                self.release_held();
            }
        }
        self.write_twin_pages();
        true
    }

    /// Step 4.
    fn write_twin_pages(&mut self) {
        let mut left = std::mem::take(&mut self.checkpoint.twin_dirty);
        left.extend(self.twin().held.iter().copied());
        // More pages have come since it began: another twin is built for them.
        let pages = self.twin().area.pages();
        left.retain(|page| u64::from(page.0) < pages);
        self.twin().state = State::Writing { left, in_flight: 0 };
        self.write_more_twin_pages();
    }

    fn write_more_twin_pages(&mut self) {
        self.build_more();
        let first_named = self.twin().area.tables_start();
        let in_flight_max = match self.is_in_the_way() {
            true => IN_FLIGHT_BUSY_MAX,
            false => IN_FLIGHT_MAX,
        };
        loop {
            let holders = self.twin().holders();
            if holders.is_empty() {
                // For nobody.
                self.twin().build_next = None;
            }
            let State::Writing { left, in_flight } = &mut self.twin().state else { return };
            if holders.is_empty() {
                left.clear();
            }
            if *in_flight >= in_flight_max {
                return;
            }
            // What names a page has a lower number: it comes when all that it names is known. The
            // others come as they lie: backwards each would cost an arm a turn.
            let first = left.range(PageIndex(first_named)..).next().or(left.last());
            let Some(page) = first.copied() else {
                if *in_flight == 0 {
                    self.flush_holders();
                }
                return;
            };
            let area = &self.twin.as_ref().expect("there is one").area;
            let is_of_map = matches!(area.content(page), TablePage::Map);
            let parent = area.parent(page).map(|(parent, _)| parent);
            if is_of_map && self.twin().build_next.is_some() {
                self.build_more();
                continue;
            }
            let State::Writing { left, in_flight } = &mut self.twin().state else { return };
            left.remove(&page);
            left.extend(parent);
            *in_flight += holders.len() as u32;
            self.write_twin_page(page, &holders);
        }
    }

    fn write_twin_page(&mut self, page: PageIndex, holders: &[MemberIndex]) {
        let checkpoint = self.twin().number + 1;
        let twin = self.twin.as_ref().expect("there is one");
        let content = match twin.area.content(page) {
            TablePage::Map => {
                let named = twin.area.children(page).map(PageIndex);
                page_map::encode(named.map(|page| twin.map.get(page)))
            }
            _ => self.page_content(page),
        };
        let bytes = page::encode(self.header.uuid, page, checkpoint, &content);
        let copy = PageCopy {
            checkpoint,
            second: self.twin().map.get(page).is_some_and(|copy| !copy.second),
            has_lost: self.has_lost_sums(page),
            checksum: page::checksum_of(bytes.bytes()),
        };
        let twin = self.twin();
        twin.map.set(page, Some(copy));
        let offset = twin.area.page_offset(page, copy.second);
        for member in holders {
            let purpose = Purpose::Twin(Step::Page, *member);
            self.start_write(Device::Member(*member), offset, bytes.clone(), false, purpose);
        }
    }

    /// Step 5.
    fn flush_holders(&mut self) {
        let holders = self.twin().holders();
        if holders.is_empty() {
            return self.end_twin_checkpoint(false);
        }
        self.twin().state = State::Flushing { left: holders.len() as u32 };
        for member in holders {
            let purpose = Purpose::Twin(Step::Flush, member);
            self.start_io(Device::Member(member), IoOperation::Flush, purpose);
        }
    }

    fn write_twin_root(&mut self) {
        let holders = self.twin().holders();
        if holders.is_empty() {
            return self.end_twin_checkpoint(false);
        }
        let twin = self.twin.as_ref().expect("there is one");
        let root = Root {
            uuid: self.header.uuid,
            checkpoint: twin.number + 1,
            tail_sequence: twin.next_tail,
            tail_line: twin.next_tail % RING_LINES,
            epoch: self.epoch,
            map: twin.map.get(PageIndex(0)),
            // Lines that were lost again are in a twin that is built anew.
            lost_since_record: 0,
            pointer_pages_added: twin.area.pointer_pages_added(),
            twin_since: 0,
            members: self.members.states(),
            label_epochs: self.members.label_epochs(),
            disks: self.members.disks(),
            // Whoever is imported from a twin and not up to date is rebuilt whole.
            missed: None,
            scrub: ScrubRecord::default(),
        };
        let offset = twin.area.root_offset(root.checkpoint);
        self.twin().state = State::WritingRoot { left: holders.len() as u32 };
        for member in holders {
            let purpose = Purpose::Twin(Step::Root, member);
            self.start_write(Device::Member(member), offset, root.encode(), true, purpose);
        }
    }

    fn end_twin_checkpoint(&mut self, is_written: bool) {
        let now = self.now;
        self.release_held();
        let twin = self.twin();
        twin.state = State::Idle;
        twin.is_behind = false;
        if is_written {
            twin.number += 1;
            twin.tail = twin.next_tail;
            if twin.is_to_be_built && !twin.has_missed {
                twin.is_to_be_built = false;
                twin.whole = twin.holders;
            }
        } else {
            twin.is_to_be_built = false;
            twin.has_missed = false;
        }
        // Also behind one that had to forget them: it flushed, and wrote, as much.
        let took = now.since(twin.begun_at);
        twin.paused_until = now.after(Duration(took.0.saturating_mul(PAUSE_TIMES)).min(MARKED_MAX));
        if !std::mem::take(&mut twin.chosen).is_empty() {
            twin.regions_at_once = (twin.regions_at_once * 2).min(REGIONS_AT_ONCE);
            twin.settle_at = now;
        }
        if is_written {
            self.counters.twin_checkpoints += 1;
        }
    }

    pub(in crate::volume) fn twin_io_done(
        &mut self,
        step: Step,
        member: MemberIndex,
        result: Result<(), IoError>,
    ) {
        if matches!(step, Step::Label | Step::LabelFlush) {
            return self.round_io_done(step, member, result);
        }
        if result.is_err() {
            self.twin().drop_holder(member);
        }
        let twin = self.twin();
        let left = match (&mut twin.state, step) {
            (State::Clearing { left }, Step::Clear) => left,
            (_, Step::Record) => {
                twin.record.as_mut().expect("it was written").ios_left -= 1;
                return;
            }
            (State::Writing { in_flight, .. }, Step::Page) => {
                *in_flight -= 1;
                return self.write_more_twin_pages();
            }
            (State::Flushing { left }, Step::Flush) => left,
            (State::WritingRoot { left }, Step::Root) => left,
            _ => unreachable!("{step:?} was not under way"),
        };
        *left -= 1;
        if *left > 0 {
            return;
        }
        match step {
            Step::Clear => self.write_twin_pages(),
            Step::Flush => self.write_twin_root(),
            _ => {
                let is_written = !self.twin().holders.is_none();
                self.end_twin_checkpoint(is_written);
            }
        }
    }

    /// Whether the members have had nothing else to do for a while.
    fn is_at_rest(&self) -> bool {
        let was_asked = |at: Time| self.now.since(at) < LOOK_EVERY;
        let is_idle = self.uppers.is_empty() && self.jobs.is_empty();
        is_idle && !self.scrubs.asked_at().is_some_and(was_asked)
    }

    /// Whether somebody waits for the members, and not for this checkpoint.
    fn is_in_the_way(&self) -> bool {
        let Some(twin) = &self.twin else { return false };
        let is_waited_for = twin
            .record
            .as_ref()
            .is_some_and(|record| !record.is_begun && !twin.has_room(record.left.len() as u64));
        let only_settles = !twin.chosen.is_empty() && !twin.is_to_be_built && !twin.is_behind;
        only_settles && !is_waited_for && !(self.uppers.is_empty() && self.jobs.is_empty())
    }

    // ---- a twin that somebody has not -----------------------------------------------------------

    /// Nothing of what is there counts any more.
    pub(super) fn begin_twin_anew(&mut self) {
        let Some(twin) = &mut self.twin else { return };
        twin.whole = MemberMask::default();
        twin.is_to_be_built = true;
    }

    /// All tables are to be written, and of checksums those that tell of lost lines.
    fn begin_to_build(&mut self) {
        self.region_marks.mark_all();
        let next_record = self.journal.next_sequence();
        let (area, pages) = (self.area.clone(), self.area.pages());
        let twin = self.twin.as_mut().expect("there is one");
        if twin.whole.is_none() {
            let added = area.pointer_pages_added();
            let of_header = VolumeArea::of(&self.header, twin.offset).expect("it was looked at");
            twin.area = match added {
                0 => of_header,
                added => of_header.with_more_pointers(added).expect("the volume has them"),
            };
            twin.map = PageMap::new(pages);
        }
        // Of those before nobody has noted what they change.
        twin.noted_from = next_record;
        twin.build_next = Some(twin.area.pages() as u32);
        // A new holder has not even those that name nothing that is written now.
        let maps = (0..pages as u32).map(PageIndex);
        let maps = maps.take_while(|page| matches!(area.content(*page), TablePage::Map));
        let maps = maps.filter(|page| twin.map.get(*page).is_some());
        self.checkpoint.twin_dirty.extend(maps);
    }

    /// Roots and records of another time are overwritten where somebody has nothing that counts.
    /// Whether that is under way.
    fn clear_new_holders(&mut self) -> bool {
        let twin = self.twin.as_ref().expect("there is one");
        let new: Vec<MemberIndex> = twin.holders.without(twin.whole).members().collect();
        let other_root = (twin.area.root_offset(twin.number), LINE_SIZE);
        let ring = (twin.area.journal_offset(), RING_LINES * LINE_SIZE);
        let headers = twin.area.header_offsets();
        let left = 4 * new.len() as u32;
        if left == 0 {
            return false;
        }
        self.twin().state = State::Clearing { left };
        for member in new {
            for (offset, length) in [other_root, ring] {
                let zeroes = Buffer::zeroed(length as usize);
                let purpose = Purpose::Twin(Step::Clear, member);
                self.start_write(Device::Member(member), offset, zeroes, false, purpose);
            }
            for offset in headers {
                let purpose = Purpose::Twin(Step::Clear, member);
                let header = self.header.encode();
                self.start_write(Device::Member(member), offset, header, false, purpose);
            }
        }
        true
    }

    /// More pages for the checkpoint under way, downwards.
    fn build_more(&mut self) {
        let sums = self.area.all_checksum_pages();
        let Some(mut next) = self.twin().build_next else { return };
        let mut found = Vec::new();
        for _ in 0..LOOKED_AT_MAX {
            let Some(page) = next.checked_sub(1).map(PageIndex) else { break };
            if matches!(self.area.content(page), TablePage::Map) || found.len() >= 64 {
                break;
            }
            if sums.contains(&page.0) && self.checksums.lost() == 0 {
                next = sums.start;
                continue;
            }
            next = page.0;
            let is_wanted = match self.area.content(page) {
                TablePage::Checksums { .. } => self.has_lost_sums(page),
                TablePage::Marks(_) => true,
                _ => self.checkpoint.map.get(page).is_some() || self.checkpoint.needs(page),
            };
            if is_wanted {
                found.push(page);
            }
        }
        let is_over = next == 0 || matches!(self.area.content(PageIndex(next - 1)), TablePage::Map);
        self.twin().build_next = (!is_over).then_some(next);
        if let State::Writing { left, .. } = &mut self.twin().state {
            left.extend(found);
        }
    }

    /// Who could have it.
    pub(super) fn twin_candidates(&self) -> MemberMask {
        let Some(twin) = &self.twin else { return MemberMask::default() };
        let can = |(index, member): &(MemberIndex, &super::super::members::Member)| {
            member.is_present
                && member.state == MemberState::UpToDate
                && !twin.dropped.has(*index)
                && !twin.holders.has(*index)
        };
        let fit = self.members.iter().filter(can).map(|(index, _)| index);
        fit.fold(MemberMask::default(), |mask, member| mask.with(MemberMask::of(member)))
    }

    // ---- who has it -----------------------------------------------------------------------------

    /// Labels are written if they are not true any more, or a new holder is taken.
    fn begin_round(&mut self) -> bool {
        // Both would write labels to the same place.
        let has_labels_under_way = self.are_end_labels_under_way()
            || self.is_rebuilt_label_under_way()
            || self.is_new_disk_labelled();
        let is_closing = self.is_closing();
        let is_recording = self.is_new_disk_being_recorded();
        let wanted = Twin::holders_wanted(&self.header.config);
        let candidates = self.twin_candidates();
        let twin = self.twin();
        if twin.round != Round::Idle || has_labels_under_way {
            return false;
        }
        if !matches!(twin.state, State::Idle) && twin.is_told() {
            return false;
        }
        let missing = wanted.saturating_sub(twin.holders.count());
        if missing > 0
            && !is_closing
            && !candidates.is_none()
            && matches!(twin.state, State::Idle)
            && (twin.is_to_be_built || twin.told == twin.whole)
        {
            for member in candidates.members().take(missing as usize) {
                twin.holders = twin.holders.with(MemberMask::of(member));
            }
            twin.is_to_be_built = true;
            return true;
        }
        if twin.told == twin.whole {
            return false;
        }
        let (says, generation) = (twin.whole, twin.generation + 1);
        // A record that names another disk for a member is on its way to those that have the twin.
        // A crash may leave one of the new labels, on the disk that goes, and the record on the new
        // holder alone: an import would read the one and refuse that disk, and with the other disk,
        // whose labels do not name the holder, refuse that. One that fails is told at once: the
        // record waits for it.
        let only_adds = twin.told.without(says).is_none();
        if only_adds && is_recording {
            return false;
        }
        let twin_label = twin.label(says, generation);
        let members: Vec<MemberIndex> = self.present_members();
        let left = members.len() as u32;
        self.twin().round = Round::Writing { left, says };
        self.twin().labelled = MemberMask::default();
        for member in members {
            let epoch = self.members.get(member).label_epoch;
            let label = self.label_of(member, epoch, Some(twin_label));
            let offset = self.members.label_offset(member);
            let purpose = Purpose::Twin(Step::Label, member);
            self.start_write(Device::Member(member), offset, label.encode(), false, purpose);
        }
        if left == 0 {
            self.end_round(says);
        }
        true
    }

    fn present_members(&self) -> Vec<MemberIndex> {
        let present = self.members.iter().filter(|(_, member)| member.is_present);
        present.map(|(index, _)| index).collect()
    }

    fn round_io_done(&mut self, step: Step, member: MemberIndex, result: Result<(), IoError>) {
        if result.is_err() {
            self.twin().drop_holder(member);
        }
        let now_left = match &mut self.twin().round {
            Round::Writing { left, .. } | Round::Flushing { left, .. } => {
                *left -= 1;
                *left
            }
            Round::Idle => unreachable!("labels were written"),
        };
        // One that has not taken its label keeps the copy that it has.
        if step == Step::Label && result.is_ok() {
            let twin = self.twin();
            twin.labelled = twin.labelled.with(MemberMask::of(member));
        }
        if step == Step::LabelFlush && result.is_ok() {
            let member = self.members.get_mut(member);
            member.label_copy = 1 - member.label_copy;
        }
        if now_left > 0 {
            return;
        }
        match self.twin().round {
            Round::Writing { says, .. } => {
                let members: Vec<MemberIndex> = self.twin().labelled.members().collect();
                let left = members.len() as u32;
                self.twin().round = Round::Flushing { left, says };
                for member in members {
                    let purpose = Purpose::Twin(Step::LabelFlush, member);
                    self.start_io(Device::Member(member), IoOperation::Flush, purpose);
                }
                if left == 0 {
                    self.end_round(says);
                }
            }
            Round::Flushing { says, .. } => self.end_round(says),
            Round::Idle => unreachable!("looked at"),
        }
    }

    fn end_round(&mut self, says: MemberMask) {
        let twin = self.twin();
        twin.round = Round::Idle;
        twin.generation += 1;
        twin.told = says;
    }

    /// Whether labels are written for the twin.
    pub(super) fn is_twin_telling(&self) -> bool {
        self.twin.as_ref().is_some_and(|twin| twin.round != Round::Idle)
    }

    /// Whether nothing of it is under way.
    pub(in crate::volume) fn is_twin_idle(&self) -> bool {
        self.twin.as_ref().is_none_or(|twin| twin.is_idle())
    }

    /// Whether nothing of it is under way that an end of the volume would cut off.
    pub(super) fn is_twin_quiet(&self) -> bool {
        self.twin.as_ref().is_none_or(|twin| twin.is_quiet())
    }

    /// What labels that are about to be written say of it.
    pub(super) fn twin_label_to_write(&mut self) -> Option<TwinLabel> {
        self.twin.as_mut()?.tell();
        self.twin_label()
    }

    /// How it is.
    pub(in crate::volume) fn twin_status(&self) -> Option<TwinStatus> {
        let config = &self.header.config;
        (config.twin_region_pages > 0).then(|| {
            let twin = self.twin.as_ref();
            TwinStatus {
                holders: twin.map_or(MemberMask::default(), |twin| twin.found_now()),
                holders_wanted: Twin::holders_wanted(config),
                is_built: twin.is_some_and(|twin| twin.is_to_be_built),
                regions_marked: self.region_marks.marked(),
                regions: self.region_marks.regions(),
            }
        })
    }

    /// Words of a page of marks.
    pub(super) fn marks_page(&self, first: u64) -> Vec<u8> {
        self.region_marks.page(first, ENTRIES_PER_PAGE)
    }
}
