//! A volume grows while it serves ([`super::super::growth`]): its tables are written once more, for
//! what it is to be, behind all else on the cache-disk; then one superblock names them.
//!
//! ```text
//! 1. No record is begun any more, as for more pointers. Those that were are done with, and a
//!    checkpoint leaves none that counts. What is read goes on, and the log takes what is written.
//! 2. Every page that counts is read, and written with its new number to the new area; then the
//!    pages of the map there, zeroes for the journal, the header, and a root; flushed.
//!      Crash up to here: nobody names the new area.
//! 3. A checkpoint of the log, and with it the end mark behind the new area; then both copies of a
//!    superblock, which name the area and the size of the volume (`engine/resize.rs`).
//!      Crash: the volume is as before, or has grown. Nothing was placed where there was no room
//!      before, and both areas say the same of all else.
//! 4. The pages in memory have their new numbers. With a twin: the one that there was stays as is,
//!    because nothing is recorded still, and another is written behind the larger sets; then labels
//!    name that.
//!      Crash, and the cache-disk is lost: labels name the old twin, and it says what is true, but
//!      for the size. Crash, and the cache-disk is there: the start writes another twin.
//! 5. Records are begun again, and there is more room.
//! ```
//! Until step 3 whatever is in the way ends it, and the volume is as it was.

use super::super::format::area::{TablePage, VolumeArea};
use super::super::format::header::VolumeHeader;
use super::super::format::page::{self, PAGE_BYTES, PageIndex};
use super::super::format::page_map::{self, PageCopy};
use super::super::format::root::MemberState;
use super::super::growth::{Grown, Growth, GrowthError};
use super::super::members::MemberMask;
use super::super::page_map::PageMap;
use super::super::raid::Layout;
use super::super::twin::{RegionMarks, Twin};
use super::super::{Purpose, Volume, VolumeOutput, missed};
use crate::buffer::Buffer;
use crate::io::{Device, IoError, IoOperation};
use crate::units::LINE_SIZE;
use crate::volume::lost::LINES_PER_WORD;

/// Reads and writes at a time.
const IN_FLIGHT_MAX: u32 = 32;
/// Lines overwritten at once.
const LINES_AT_ONCE: u64 = 256;

/// What an I/O is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::volume) enum Step {
    /// A page of the old area.
    Read(PageIndex),
    Write,
    Flush,
}

/// Why a volume has not grown, although it could have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrowthCutShort {
    /// The cache-disk has not given a page, or has not taken one.
    CacheDisk,
    /// A member has failed meanwhile.
    Member,
    /// Somebody has stopped it.
    Cancelled,
    /// dcd ends.
    End,
}

/// How far a growth is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrowthStage {
    /// Changes under way are recorded.
    Emptying,
    /// Tables are written.
    Tables,
    /// The superblock is.
    Superblock,
    /// The twin is.
    Twin,
}

/// A growth that is under way, or the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrowthStatus {
    /// Counts them since the start, from 1 on.
    pub number: u64,
    /// Size that users see before ...
    pub bytes_before: u64,
    /// ... and behind it.
    pub bytes_wanted: u64,
    /// How far it is, or how it has ended.
    pub state: Result<GrowthStage, GrowthEnd>,
}

/// How a growth has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrowthEnd {
    /// The volume has grown.
    Grown,
    /// It is as it was.
    CutShort(GrowthCutShort),
}

/// A growth under way.
pub(in crate::volume) struct Growing {
    to: Grown,
    /// The map of the new area.
    map: PageMap,
    state: State,
    in_flight: u32,
    /// The cache-disk has failed since the first page: no flush proves that they are there.
    is_distrusted: bool,
    /// The first reason against it.
    cut_short: Option<GrowthCutShort>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Records go on, until the engine says that nothing waits for them that a checkpoint of the
    /// log would wait for.
    Waiting,
    /// Step 1.
    Emptying,
    /// Step 2: the next page of the old area.
    Pages(PageIndex),
    /// The page of the map before this one.
    Map(u32),
    /// The next line of the journal.
    Ring(u64),
    /// The header and the roots.
    Root,
    Flushing,
    /// Waits until no page of checksums is being read.
    Settling,
    /// Step 3, by the engine.
    Telling,
    /// Step 4: the twin; whom the labels name that were written before, until others are.
    Twin(MemberMask),
}

impl State {
    fn stage(self) -> GrowthStage {
        match self {
            State::Waiting | State::Emptying => GrowthStage::Emptying,
            State::Pages(_) | State::Map(_) | State::Ring(_) | State::Root | State::Flushing => {
                GrowthStage::Tables
            }
            State::Settling | State::Telling => GrowthStage::Superblock,
            State::Twin(_) => GrowthStage::Twin,
        }
    }
}

impl Volume {
    /// Whether it can grow so, and what it is then. `offset`: where its tables go on the
    /// cache-disk.
    pub(crate) fn look_at_growth(
        &self,
        growth: &Growth,
        offset: u64,
    ) -> Result<Grown, GrowthError> {
        for (member, found) in self.members.iter() {
            let is_noted = self.missed.is_noted(member);
            if !found.is_present || found.state != MemberState::UpToDate || is_noted {
                return Err(GrowthError::Away(member));
            }
        }
        growth.of(&self.header, &self.area, offset)
    }

    /// Whether something is under way that has to end before.
    pub(crate) fn is_too_busy_to_grow(&self) -> bool {
        self.growing.is_some()
            || self.more_pointers.is_some()
            || self.replacement.is_some()
            || self.repair.is_under_way_by_hand()
            || self.spares.is_any_under_way()
            || self.is_closing()
            || self.journal.error.is_some()
            || self.has_checkpoint_failed()
            || self.are_records_held()
            || self.twin.as_ref().is_some_and(|twin| !twin.is_idle())
    }

    /// Begins to. How far it is the status tells.
    pub(crate) fn grow(&mut self, to: Grown) {
        self.set_scrub_aside();
        self.last_growth = Some(GrowthStatus {
            number: self.last_growth.map_or(1, |last| last.number + 1),
            bytes_before: self.header.config.logical_bytes,
            bytes_wanted: to.header.config.logical_bytes,
            state: Ok(GrowthStage::Emptying),
        });
        self.growing = Some(Box::new(Growing {
            map: PageMap::new(to.area.pages()),
            to,
            state: State::Waiting,
            in_flight: 0,
            is_distrusted: false,
            cut_short: None,
        }));
    }

    /// Nothing is under way that waits for records, and that a checkpoint of the log waits for; and
    /// nothing will be while it grows.
    pub(crate) fn let_growth_begin(&mut self) {
        if let Some(growing) = &mut self.growing
            && growing.state == State::Waiting
        {
            growing.state = State::Emptying;
        }
    }

    /// Whether records are begun no more until it has grown.
    pub(super) fn holds_growth_records(&self) -> bool {
        self.growing.as_ref().is_some_and(|growing| growing.state != State::Waiting)
    }

    /// Whether it grows.
    pub fn is_growing(&self) -> bool {
        self.growing.is_some()
    }

    /// How far the newest growth since the start is.
    pub fn growth_status(&self) -> Option<GrowthStatus> {
        let last = self.last_growth?;
        let state = self.growing.as_ref().map(|growing| Ok(growing.state.stage()));
        Some(GrowthStatus { state: state.unwrap_or(last.state), ..last })
    }

    /// Whether no page of checksums may be begun to be read: its number will be another.
    pub(super) fn are_pages_about_to_move(&self) -> bool {
        let state = self.growing.as_ref().map(|growing| growing.state);
        matches!(state, Some(State::Settling | State::Telling))
    }

    /// Whether nothing of the twin may be begun: another is about to take its place, and what is
    /// under way then would end in that one. The first step waits until nothing is.
    pub(super) fn is_twin_to_rest(&self) -> bool {
        let state = self.growing.as_ref().map(|growing| growing.state);
        !matches!(state, None | Some(State::Waiting | State::Emptying | State::Twin(_)))
    }

    /// Somebody wants it no more, or it cannot be. Too late from step 3 on.
    pub(crate) fn cancel_growth(&mut self, why: GrowthCutShort) {
        if let Some(growing) = &mut self.growing
            && !matches!(growing.state, State::Telling | State::Twin(_))
        {
            growing.cut_short = growing.cut_short.or(Some(why));
        }
    }

    pub(in crate::volume) fn distrust_growth(&mut self) {
        if let Some(growing) = &mut self.growing {
            growing.is_distrusted |= !matches!(growing.state, State::Waiting | State::Emptying);
        }
    }

    pub(in crate::volume) fn advance_growth(&mut self) -> bool {
        let Some(growing) = &self.growing else { return false };
        let (state, in_flight) = (growing.state, growing.in_flight);
        if let State::Twin(told) = state {
            return self.await_twin(told);
        }
        if state == State::Telling {
            return false;
        }
        // Who fails has to be recorded before anybody is answered.
        let is_stuck = self.journal.error.is_some()
            || self.has_checkpoint_failed()
            || self.are_records_held()
            || self.is_checkpoint_put_off();
        if !self.state_changes.is_empty() {
            self.cancel_growth(GrowthCutShort::Member);
        } else if is_stuck || growing.is_distrusted {
            self.cancel_growth(GrowthCutShort::CacheDisk);
        } else if self.is_closing() {
            self.cancel_growth(GrowthCutShort::End);
        }
        let growing = self.growing.as_ref().expect("looked at");
        if let Some(why) = growing.cut_short {
            if in_flight == 0 {
                self.end_growth(GrowthEnd::CutShort(why));
                // Those that were not begun to be read, because they were to move.
                self.read_awaited_sums();
            }
            return in_flight == 0;
        }
        match state {
            State::Waiting => false,
            State::Emptying => {
                let is_quiet = self.journal.is_empty()
                    && !self.journal.is_under_way()
                    && self.is_checkpoint_idle()
                    && self.is_twin_idle();
                if is_quiet {
                    self.set_growth_state(State::Pages(PageIndex(0)));
                }
                is_quiet
            }
            State::Settling => {
                let is_quiet = self.sum_pages.is_none_read();
                if is_quiet {
                    self.set_growth_state(State::Telling);
                    let Grown { header, area } = &self.growing().to;
                    let (area_bytes, blocks) = (area.bytes(), header.config.blocks());
                    self.outputs.push_back(VolumeOutput::TablesWritten { area_bytes, blocks });
                }
                is_quiet
            }
            _ if in_flight < IN_FLIGHT_MAX => self.write_more_of_area(),
            _ => false,
        }
    }

    fn growing(&mut self) -> &mut Growing {
        self.growing.as_mut().expect("it is under way")
    }

    fn set_growth_state(&mut self, state: State) {
        self.growing().state = state;
    }

    // ---- step 2 -------------------------------------------------------------------------------

    /// The next I/O. Whether there was one, or the state is another.
    fn write_more_of_area(&mut self) -> bool {
        let number = self.checkpoint.number() + 1;
        let Growing { state, in_flight, to, .. } = self.growing();
        let (in_flight, area) = (*in_flight, to.area.clone());
        match *state {
            State::Pages(from) => match self.checkpoint.map.next_written(from) {
                Some(page) => {
                    self.set_growth_state(State::Pages(PageIndex(page.0 + 1)));
                    self.read_page_to_move(page);
                    true
                }
                None if in_flight > 0 => false,
                None => {
                    self.set_growth_state(State::Map(area.tables_start()));
                    true
                }
            },
            State::Map(0) if in_flight > 0 => false,
            State::Map(0) => {
                self.set_growth_state(State::Ring(0));
                true
            }
            // What names a page has a lower number.
            State::Map(next) => {
                let page = PageIndex(next - 1);
                self.set_growth_state(State::Map(page.0));
                let named = area.children(page).map(PageIndex);
                let named: Vec<_> = named.map(|page| self.growing().map.get(page)).collect();
                if named.iter().any(Option::is_some) {
                    let content = page_map::encode(named.into_iter());
                    self.write_moved_page(page, number, &content, false);
                }
                true
            }
            State::Ring(line) => {
                let lines = LINES_AT_ONCE.min(area.journal_lines() - line);
                if lines == 0 {
                    self.set_growth_state(State::Root);
                    return true;
                }
                self.set_growth_state(State::Ring(line + lines));
                let zeroes = Buffer::zeroed((lines * LINE_SIZE) as usize);
                self.write_growth(area.journal_offset() + line * LINE_SIZE, zeroes);
                true
            }
            State::Root if in_flight > 0 => false,
            State::Root => {
                self.set_growth_state(State::Flushing);
                let header = self.growing().to.header.clone();
                for offset in area.header_offsets() {
                    self.write_growth(offset, header.encode());
                }
                let root = self.root_of_grown(&area);
                let other = Buffer::zeroed(LINE_SIZE as usize);
                self.write_growth(area.root_offset(number + 1), other);
                self.write_growth(area.root_offset(number), root);
                true
            }
            State::Flushing if in_flight > 0 => false,
            State::Flushing => {
                self.growing().in_flight += 1;
                let purpose = Purpose::Grow(Step::Flush);
                self.start_io(Device::CacheDisk, IoOperation::Flush, purpose);
                // The end of the flush goes on.
                false
            }
            State::Waiting
            | State::Emptying
            | State::Settling
            | State::Telling
            | State::Twin(_) => {
                unreachable!("nothing is written then")
            }
        }
    }

    fn root_of_grown(&mut self, area: &VolumeArea) -> Buffer {
        let mut root = self.root_of_empty_ring(area);
        root.map = self.growing().map.get(PageIndex(0));
        // Whoever was noted is up to date.
        root.missed = None;
        root.encode()
    }

    fn read_page_to_move(&mut self, page: PageIndex) {
        let is_kept = !matches!(self.area.content(page), TablePage::Map | TablePage::Marks(_));
        if !is_kept {
            return;
        }
        let copy = self.checkpoint.map.get(page).expect("the map names it");
        let offset = self.area.page_offset(page, copy.second);
        self.growing().in_flight += 1;
        let purpose = Purpose::Grow(Step::Read(page));
        self.start_read(Device::CacheDisk, offset, PAGE_BYTES as u64, purpose);
    }

    fn write_moved_page(&mut self, page: PageIndex, number: u64, content: &[u8], has_lost: bool) {
        let bytes = page::encode(self.header.uuid, page, number, content);
        let checksum = page::checksum_of(bytes.bytes());
        let copy = PageCopy { checkpoint: number, second: false, has_lost, checksum };
        let growing = self.growing();
        growing.map.set(page, Some(copy));
        let offset = growing.to.area.page_offset(page, false);
        self.write_growth(offset, bytes);
    }

    fn write_growth(&mut self, offset: u64, bytes: Buffer) {
        self.growing().in_flight += 1;
        let purpose = Purpose::Grow(Step::Write);
        self.start_write(Device::CacheDisk, offset, bytes, false, purpose);
    }

    pub(in crate::volume) fn growth_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        self.growing().in_flight -= 1;
        if result.is_err() {
            return self.cancel_growth(GrowthCutShort::CacheDisk);
        }
        match step {
            Step::Write => {}
            Step::Read(page) => self.page_to_move_read(page, buffer),
            Step::Flush => self.set_growth_state(State::Settling),
        }
    }

    fn page_to_move_read(&mut self, page: PageIndex, buffer: Option<Buffer>) {
        let number = self.checkpoint.number() + 1;
        let copy = self.checkpoint.map.get(page).expect("the map names it");
        let to = new_number(&self.area, &self.growing.as_ref().expect("looked at").to.area, page);
        let content = buffer.as_ref().and_then(|buffer| {
            page::decode_copy(buffer.bytes(), self.header.uuid, page, copy).ok()
        });
        match content {
            Some(content) => self.write_moved_page(to, number, content, copy.has_lost),
            None => self.cancel_growth(GrowthCutShort::CacheDisk),
        }
    }

    // ---- steps 3 to 5 -------------------------------------------------------------------------

    /// The superblock names the new area, durable.
    pub(crate) fn tables_are_moved(&mut self) {
        let Growing { to, map, .. } = self.growing();
        let Grown { header, area } = to.clone();
        let map = std::mem::replace(map, PageMap::new(0));
        let VolumeHeader { config, .. } = &header;
        let (old_area, config) = (self.area.clone(), config.clone());
        let number = |page| new_number(&old_area, &area, page);
        self.sum_pages.renumber(number);
        self.checkpoint.moved(map, number, |page| {
            matches!(old_area.content(page), TablePage::Map | TablePage::Marks(_))
        });
        self.journal.begin_again(area.journal_lines());
        self.layouts = config.sets.iter().map(Layout::new).collect();
        self.extents.set_len(config.extents());
        self.pointers.set_extents(config.extents() as u32);
        self.checksums.grow(&config);
        self.lost.grow(&config);
        self.missed = missed::Missed::new(&self.layouts);
        self.region_marks = RegionMarks::new(area.regions());
        (self.header, self.area) = (header, area);
        let told = self.begin_larger_twin();
        self.set_growth_state(State::Twin(told));
        self.read_awaited_sums();
    }

    /// Nobody knows whether one does: no record may be written, neither there nor here.
    pub(crate) fn tables_may_be_moved(&mut self) {
        self.journal.error = self.journal.error.or(Some(IoError::Failed));
        self.tables_are_not_moved(GrowthCutShort::CacheDisk);
    }

    /// It could not be told.
    pub(crate) fn tables_are_not_moved(&mut self, why: GrowthCutShort) {
        self.end_growth(GrowthEnd::CutShort(why));
        self.read_awaited_sums();
    }

    /// Whom labels name that have the twin before.
    fn begin_larger_twin(&mut self) -> MemberMask {
        let Some(before) = self.twin.take() else { return MemberMask::default() };
        assert!(before.is_quiet(), "something of the twin is under way that is given up");
        let offset = self.header.config.twin_offset_bytes().expect("it had one before");
        let area = VolumeArea::of(&self.header, offset).expect("as that of the cache-disk");
        let mut twin = Twin::new(area, offset);
        // That nobody is told of it yet is no reason to write labels: those that there are name a
        // twin that is as good.
        twin.generation = before.generation;
        twin.dropped = before.dropped;
        self.twin = Some(Box::new(twin));
        before.told
    }

    /// Step 4.
    fn await_twin(&mut self, told: MemberMask) -> bool {
        let candidates = self.twin_candidates();
        let is_urgent = !self.state_changes.is_empty() || self.is_closing();
        if let Some(twin) = &mut self.twin {
            let has_nobody = twin.holders.is_none() && candidates.is_none();
            let are_labels_older = twin.told.is_none() && !told.is_none();
            if (is_urgent || has_nobody) && twin.whole.is_none() && are_labels_older {
                // Labels say that nobody has it before anything is recorded. Once: behind that
                // they do.
                twin.told = told;
                self.set_growth_state(State::Twin(MemberMask::default()));
                return true;
            }
            let is_given_up = twin.whole.is_none() && (is_urgent || has_nobody);
            let is_whole = !twin.whole.is_none() && twin.told == twin.whole;
            // From here on sets are larger, and what was the twin is written over.
            if !(twin.is_told() && (is_whole || is_given_up)) {
                return false;
            }
        }
        self.end_growth(GrowthEnd::Grown);
        true
    }

    /// Step 5, or everything is as before.
    fn end_growth(&mut self, end: GrowthEnd) {
        self.growing = None;
        if let Some(last) = &mut self.last_growth {
            last.state = Err(end);
        }
        if end == GrowthEnd::Grown {
            let config = self.header.config.clone();
            self.extents.grow(&config);
            self.migration.look_at_all();
            self.outputs.push_back(VolumeOutput::Grown { blocks: config.blocks() });
        } else {
            self.outputs.push_back(VolumeOutput::NotGrown);
        }
    }
}

/// The number that a page of a table has in another area that has all that this one has.
fn new_number(from: &VolumeArea, to: &VolumeArea, page: PageIndex) -> PageIndex {
    match from.content(page) {
        TablePage::Extents(first) => to.page_of_extent(first),
        TablePage::Checksums { set, first } => to.page_of_checksum(set, first),
        TablePage::Pointers(first) => to.page_of_pointer(first),
        TablePage::LostLines { set, first } => to.page_of_lost_line(set, first * LINES_PER_WORD),
        TablePage::Map | TablePage::Marks(_) => unreachable!("page {} is not moved", page.0),
    }
}
