//! Opening: from what the cache-disk has to a volume that takes I/O.
//!
//! ```text
//! 1. The newer valid root. Nothing is written before step 5.
//! 2. Its pages: of each the newest copy that is not newer than the root. The root knows which there must be.
//! 3. The journal from the tail on: changes of the tables, and lines. The cache-disk is flushed.
//!      A record that was being written when the process died may be there and not be durable. Without the flush, a power
//!      cut in step 5 could take it away when its lines are on some members and not on others, or behind step 6,
//!      where it would leave a hole before a record that is durable.
//! 4. Members: which are there, and whose label is as new as the journal says.
//! 5. The lines are written again, to members that count; those are flushed.
//!      Crash here: the same again.
//! 6. Members that do not count are recorded as stale, durable.
//!      Before step 7 they have an old label; behind it only the record tells.
//! 7. Labels with the next epoch, flushed: of each member the copy whose turn it is, the other stays.
//!      Crash here: one copy may be torn, and the other is whole. With one copy a torn label would look like a blank disk.
//! 8. The epoch is recorded. A member that is not there now will have an old label from now on.
//!      Before step 7 it would make all members stale after a crash.
//! ```

use std::collections::{BTreeMap, VecDeque};

use super::super::checksums::LineSum;
use super::super::extents::{Entry, ExtentIndex};
use super::super::format::area::TablePage;
use super::super::format::journal::{JournalItem, JournalRecord};
use super::super::format::label::{LABEL_OFFSETS, MemberLabel};
use super::super::format::page::{PAGE_BYTES, PageIndex, decode};
use super::super::format::root::{MemberState, ROOT_BYTES, Root, pages_checksum};
use super::super::members::MemberInfo;
use super::super::placement::RaidLevel;
use super::super::{Purpose, Volume, VolumePhase};
use super::journal::Then;
use crate::buffer::Buffer;
use crate::error::{FormatError, VolumeOpenError};
use crate::io::{Device, IoError, IoOperation};
use crate::seeded_bugs::{SeededBug, seeded};
use crate::units::{LINE_SIZE, MemberIndex};

/// Lines read at once.
const READ_LINES: u64 = 256;
/// Reads, or lines written again, at a time.
const IN_FLIGHT_MAX: usize = 32;

/// What an I/O of an opening is for.
#[derive(Clone, Copy, Debug)]
pub(in crate::volume) enum Step {
    Root(usize),
    /// Both places of pages from this one on.
    Pages(u32),
    /// Lines of the journal from this one on.
    Ring(u64),
    RingFlush,
    Redo(MemberIndex),
    RedoFlush(MemberIndex),
    Label(MemberIndex),
    LabelFlush(MemberIndex),
}

/// Where an opening stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Roots,
    Pages,
    Ring,
    RingFlush,
    Redo,
    RedoFlush,
    States,
    Labels,
    LabelFlush,
    Epoch,
}

/// A line that is written again: set, stripe, row, column.
type Cell = (u8, u64, u32, u32);

/// An opening under way.
pub(in crate::volume) struct Opening {
    infos: Vec<Option<MemberInfo>>,
    stage: Stage,
    roots: [Result<Root, FormatError>; 2],
    root_error: Option<IoError>,
    /// I/Os that have not been started.
    todo: VecDeque<(Device, IoOperation, Step)>,
    in_flight: usize,
    ring: Vec<u8>,
    /// Lines of the journal that could not be read.
    unreadable: Vec<u64>,
    /// What belongs there: bytes of the ring from here on, or zeroes.
    redo: BTreeMap<Cell, Option<usize>>,
}

impl Opening {
    pub(in crate::volume) fn new(infos: Vec<Option<MemberInfo>>) -> Opening {
        let short = || {
            Err(FormatError::Short {
                what: "the root of the volume",
                expected: ROOT_BYTES,
                found: 0,
            })
        };
        Opening {
            infos,
            stage: Stage::Roots,
            roots: [short(), short()],
            root_error: None,
            todo: VecDeque::new(),
            in_flight: 0,
            ring: Vec::new(),
            unreadable: Vec::new(),
            redo: BTreeMap::new(),
        }
    }
}

impl Volume {
    fn opening(&mut self) -> &mut Opening {
        self.opening.as_mut().expect("it is being opened")
    }

    fn want(&mut self, device: Device, operation: IoOperation, step: Step) {
        self.opening().todo.push_back((device, operation, step));
    }

    fn want_read_of_cache_disk(&mut self, offset: u64, length: u64, step: Step) {
        let buffer = Buffer::zeroed(length as usize);
        self.want(Device::CacheDisk, IoOperation::Read { offset, buffer }, step);
    }

    /// Step 1.
    pub(in crate::volume) fn start_opening(&mut self) {
        for place in 0..2 {
            let offset = self.area.root_offset(place as u64);
            self.want_read_of_cache_disk(offset, ROOT_BYTES as u64, Step::Root(place));
        }
    }

    pub(in crate::volume) fn advance_opening(&mut self) {
        loop {
            while let Some(opening) = &mut self.opening
                && opening.in_flight < IN_FLIGHT_MAX
                && let Some((device, operation, step)) = opening.todo.pop_front()
            {
                opening.in_flight += 1;
                self.start_io(device, operation, Purpose::Open(step));
            }
            let Some(opening) = &self.opening else { return };
            if opening.in_flight > 0 || self.phase != VolumePhase::Opening {
                return;
            }
            if let Err(error) = self.next_stage() {
                self.phase = VolumePhase::Failed(error);
                return;
            }
            // Steps 6 and 8 wait for the journal.
            if self.opening.as_ref().is_none_or(|opening| opening.todo.is_empty()) {
                self.advance_journal();
                // The members have all that the journal speaks of.
                if self.journal.is_full() {
                    self.advance_checkpoint();
                }
                if !self.journal.is_idle() || self.opening.is_none() {
                    return;
                }
            }
        }
    }

    fn next_stage(&mut self) -> Result<(), VolumeOpenError> {
        let stage = self.opening().stage;
        let next = match stage {
            Stage::Roots => {
                self.choose_root()?;
                Stage::Pages
            }
            Stage::Pages => {
                self.check_pages()?;
                Stage::Ring
            }
            Stage::Ring => {
                self.replay()?;
                if !seeded(SeededBug::RingNotFlushed) {
                    self.want(Device::CacheDisk, IoOperation::Flush, Step::RingFlush);
                }
                Stage::RingFlush
            }
            Stage::RingFlush => {
                self.look_at_members()?;
                self.write_lines_again();
                Stage::Redo
            }
            Stage::Redo => {
                for index in self.present() {
                    self.want(Device::Member(index), IoOperation::Flush, Step::RedoFlush(index));
                }
                Stage::RedoFlush
            }
            // Step 6: what look_at_members and the steps since have found.
            Stage::RedoFlush => Stage::States,
            Stage::States if !self.state_changes.is_empty() => Stage::States,
            Stage::States => {
                self.write_labels();
                Stage::Labels
            }
            Stage::Labels => {
                for index in self.present() {
                    self.want(Device::Member(index), IoOperation::Flush, Step::LabelFlush(index));
                }
                Stage::LabelFlush
            }
            Stage::LabelFlush => {
                self.epoch += u64::from(!seeded(SeededBug::EpochNotRaised));
                let epoch = JournalItem::Epoch(self.epoch);
                self.journal_items(vec![epoch], Then::Opened);
                Stage::Epoch
            }
            Stage::Epoch => Stage::Epoch,
        };
        self.opening().stage = next;
        Ok(())
    }

    pub(in crate::volume) fn open_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        self.opening().in_flight -= 1;
        match (step, result, buffer) {
            (Step::Root(place), Ok(()), Some(buffer)) => {
                let uuid = self.header.uuid;
                self.opening().roots[place] = Root::decode(buffer.bytes(), uuid);
            }
            (Step::Root(_), Err(error), _) => self.opening().root_error = Some(error),
            (Step::Pages(first), Ok(()), Some(buffer)) => self.take_pages(first, buffer.bytes()),
            // A page that cannot be read is missed by the root's checksum.
            (Step::Pages(_), ..) => {}
            (Step::Ring(first), Ok(()), Some(buffer)) => {
                let at = (first * LINE_SIZE) as usize;
                self.opening().ring[at..at + buffer.len()].copy_from_slice(buffer.bytes());
            }
            (Step::RingFlush, Ok(()), _) => {}
            (Step::RingFlush, Err(_), _) => {
                self.phase = VolumePhase::Failed(VolumeOpenError::Unwritable);
            }
            (Step::Ring(first), ..) => self.opening().unreadable.push(first),
            (
                Step::Redo(member)
                | Step::RedoFlush(member)
                | Step::Label(member)
                | Step::LabelFlush(member),
                Err(_),
                _,
            ) => {
                // Where the others cannot do without it, reads will see from checksums what is not there.
                let is_lost = !self.do_without(member);
                if is_lost && matches!(step, Step::Redo(_) | Step::RedoFlush(_)) {
                    self.hold_records();
                }
                if matches!(step, Step::Label(_) | Step::LabelFlush(_)) {
                    self.members.get_mut(member).has_old_label = true;
                }
            }
            (
                Step::Redo(_) | Step::RedoFlush(_) | Step::Label(_) | Step::LabelFlush(_),
                Ok(()),
                _,
            )
            | (Step::Root(_), Ok(()), None) => {}
        }
    }

    fn present(&self) -> Vec<MemberIndex> {
        self.members
            .iter()
            .filter(|(_, member)| member.is_present)
            .map(|(index, _)| index)
            .collect()
    }

    // ---- steps 1 and 2 ------------------------------------------------------------------------

    fn choose_root(&mut self) -> Result<(), VolumeOpenError> {
        if self.opening().root_error.is_some() {
            // The one that cannot be read may be the newer, and then the other speaks of pages that are gone.
            return Err(VolumeOpenError::Unreadable { what: "a root" });
        }
        let root = match &self.opening().roots {
            [Ok(first), Ok(second)] if second.checkpoint > first.checkpoint => second.clone(),
            [Ok(first), _] => first.clone(),
            [_, Ok(second)] => second.clone(),
            [Err(error), _] => return Err(VolumeOpenError::Format(error.clone())),
        };
        if root.members.len() != self.members.len() || root.tail_line > self.area.journal_lines() {
            return Err(VolumeOpenError::RootFields);
        }
        self.members = super::super::members::Members::new(&root.members);
        self.epoch = root.epoch;
        self.checkpoint.number = root.checkpoint;
        self.journal.restore(&[], root.tail_line, root.tail_sequence);
        let pages = self.area.pages();
        let mut first = 0;
        while first < pages {
            let count = (READ_LINES / 2).min(pages - first);
            let offset = self.area.page_offset(PageIndex(first as u32), false);
            self.want_read_of_cache_disk(offset, 2 * count * LINE_SIZE, Step::Pages(first as u32));
            first += count;
        }
        Ok(())
    }

    /// Both places of pages, one behind the other.
    fn take_pages(&mut self, first: u32, bytes: &[u8]) {
        for (i, places) in bytes.chunks(2 * PAGE_BYTES).enumerate() {
            let page = PageIndex(first + i as u32);
            let copies =
                places.chunks(PAGE_BYTES).map(|bytes| decode(bytes, self.header.uuid, page));
            if copies.flatten().any(|(checkpoint, _)| checkpoint > self.checkpoint.number) {
                // A checkpoint that was cut off has left it. The next has the same number, and would take it for its own.
                self.checkpoint.dirty(page);
            }
            let newest = places
                .chunks(PAGE_BYTES)
                .enumerate()
                .filter_map(|(place, bytes)| {
                    let (checkpoint, content) = decode(bytes, self.header.uuid, page).ok()?;
                    let counts = checkpoint <= self.checkpoint.number;
                    counts.then_some((checkpoint, place == 1, content))
                })
                .max_by_key(|(checkpoint, ..)| *checkpoint);
            if let Some((checkpoint, second, content)) = newest {
                self.checkpoint.pages[page.0 as usize] = (checkpoint, second);
                self.take_page(page, content);
            }
        }
    }

    fn take_page(&mut self, page: PageIndex, content: &[u8]) {
        let words = content.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        match self.area.content(page) {
            TablePage::Extents(first) => {
                for (i, packed) in words.enumerate() {
                    let extent = first + i as u64;
                    if extent < u64::from(self.extents.extents()) {
                        self.take_entry(ExtentIndex(extent as u32), packed);
                    }
                }
            }
            TablePage::Checksums { set, first } => self.checksums.load_page(set, first, content),
            TablePage::Pointers(first) => {
                for (i, packed) in words.enumerate() {
                    let slot = first + i as u64;
                    if slot < u64::from(self.header.pointers_max)
                        && self.pointers.load(slot as u32, packed).is_err()
                    {
                        self.phase = VolumePhase::Failed(VolumeOpenError::Tables);
                    }
                }
            }
        }
    }

    fn take_entry(&mut self, extent: ExtentIndex, packed: u64) {
        if self.extents.set_packed(extent, packed).is_err() {
            self.phase = VolumePhase::Failed(VolumeOpenError::Tables);
        }
    }

    fn check_pages(&mut self) -> Result<(), VolumeOpenError> {
        let number = self.checkpoint.number;
        let root = self.opening().roots.iter().flatten().find(|root| root.checkpoint == number);
        let expected = root.expect("it was chosen").pages_checksum;
        let pages = self.checkpoint.pages.iter().map(|(checkpoint, _)| *checkpoint);
        if pages_checksum(pages) != expected {
            return Err(VolumeOpenError::PagesLost);
        }
        let lines = self.area.journal_lines();
        self.opening().ring = vec![0; (lines * LINE_SIZE) as usize];
        let mut first = 0;
        while first < lines {
            let count = READ_LINES.min(lines - first);
            let offset = self.area.journal_offset() + first * LINE_SIZE;
            self.want_read_of_cache_disk(offset, count * LINE_SIZE, Step::Ring(first));
            first += count;
        }
        Ok(())
    }

    // ---- step 3 -------------------------------------------------------------------------------

    fn replay(&mut self) -> Result<(), VolumeOpenError> {
        if !self.opening().unreadable.is_empty() {
            return Err(VolumeOpenError::Unreadable { what: "the journal" });
        }
        let ring = std::mem::take(&mut self.opening().ring);
        let (mut sequence, mut line) = {
            let number = self.checkpoint.number;
            let root = self.opening().roots.iter().flatten().find(|root| root.checkpoint == number);
            let root = root.expect("it was chosen");
            (root.tail_sequence, root.tail_line)
        };
        let ring_lines = self.area.journal_lines();
        let mut found = Vec::new();
        loop {
            let here = self.record_at(&ring, line, sequence).map(|record| (line, 0, record));
            let at_start = || {
                let record = self.record_at(&ring, 0, sequence)?;
                Some((0, ring_lines - line, record))
            };
            let Some((at, skipped, record)) = here.or_else(at_start) else { break };
            found.push((sequence, at, skipped + record.lines()));
            self.take_record(&record, at + 1, &ring)?;
            self.counters.records_replayed += 1;
            line = at + record.lines();
            sequence += 1;
        }
        // One record is on its way at a time: a later one proves that this one was durable.
        let later = (0..ring_lines).any(|line| {
            let bytes = &ring[(line * LINE_SIZE) as usize..][..LINE_SIZE as usize];
            JournalRecord::decode(bytes, self.header.uuid)
                .is_ok_and(|record| record.sequence > sequence)
        });
        if later {
            return Err(VolumeOpenError::JournalDamaged { lost: sequence });
        }
        self.journal.restore(&found, line, sequence);
        self.extents.index_loaded().map_err(|_| VolumeOpenError::Tables)?;
        self.pointers.index_loaded().map_err(|_| VolumeOpenError::Tables)?;
        self.opening().ring = ring;
        self.drop_dangling_pointers();
        Ok(())
    }

    /// A block may have been freed durably before its pointers were gone. They would keep what they point to alive, or be
    /// taken for those of the next block there.
    fn drop_dangling_pointers(&mut self) {
        let slots = 0..self.header.pointers_max;
        let dangling: Vec<(ExtentIndex, ExtentIndex)> = slots
            .filter_map(|slot| self.pointers.slot(slot))
            .filter(|(from, to)| {
                !self.extents.get(*from).is_allocated() || !self.extents.get(*to).is_allocated()
            })
            .collect();
        for (from, to) in dangling {
            // It was found in the table.
            let _ = self.remove_pointer(from, to);
        }
    }

    fn record_at(&self, ring: &[u8], line: u64, sequence: u64) -> Option<JournalRecord> {
        let bytes = ring.get((line * LINE_SIZE) as usize..)?;
        let record = JournalRecord::decode(bytes, self.header.uuid).ok()?;
        let payload = &bytes[LINE_SIZE as usize..];
        let length = record.payload_lines as usize * LINE_SIZE as usize;
        (record.sequence == sequence && record.has_payload(payload.get(..length)?))
            .then_some(record)
    }

    /// `line`: where its payload begins.
    fn take_record(
        &mut self,
        record: &JournalRecord,
        mut line: u64,
        ring: &[u8],
    ) -> Result<(), VolumeOpenError> {
        for item in &record.items {
            match *item {
                JournalItem::Extent { extent, packed } => {
                    let extent = u32::try_from(extent).map_err(|_| VolumeOpenError::Tables)?;
                    self.take_entry(ExtentIndex(extent), packed);
                    self.checkpoint.dirty(self.area.page_of_extent(extent.into()));
                }
                JournalItem::Pointer { slot, packed } => {
                    let slot = u32::try_from(slot).ok().filter(|s| *s < self.header.pointers_max);
                    let slot = slot.ok_or(VolumeOpenError::Tables)?;
                    self.pointers.load(slot, packed).map_err(|_| VolumeOpenError::Tables)?;
                    self.checkpoint.dirty(self.area.page_of_pointer(slot.into()));
                }
                JournalItem::Member { member, state } => {
                    if usize::from(member.0) >= self.members.len() {
                        return Err(VolumeOpenError::Tables);
                    }
                    self.members.get_mut(member).state = state;
                }
                JournalItem::Epoch(epoch) => self.epoch = epoch,
                JournalItem::Lines { set, stripe, row, column, lines }
                | JournalItem::Lost { set, stripe, row, column, lines } => {
                    self.check_cells(set, stripe, row, column, lines)?;
                    let is_lost = matches!(item, JournalItem::Lost { .. });
                    for column in column..column + lines {
                        if is_lost {
                            self.opening().redo.insert((set, stripe, row, column), None);
                            self.set_sum(set, stripe, row, column, LineSum::Lost);
                            continue;
                        }
                        let at = (line * LINE_SIZE) as usize;
                        self.opening().redo.insert((set, stripe, row, column), Some(at));
                        let sum = LineSum::of(&ring[at..at + LINE_SIZE as usize]);
                        self.set_sum(set, stripe, row, column, sum);
                        line += 1;
                    }
                }
            }
        }
        if let VolumePhase::Failed(error) = &self.phase {
            return Err(error.clone());
        }
        Ok(())
    }

    fn check_cells(
        &self,
        set: u8,
        stripe: u64,
        row: u32,
        column: u32,
        lines: u32,
    ) -> Result<(), VolumeOpenError> {
        let layout = self.layouts.get(usize::from(set)).ok_or(VolumeOpenError::Tables)?;
        let fits = layout.level() != RaidLevel::Raid0
            && stripe < layout.stripes()
            && row < layout.rows()
            && column.checked_add(lines).is_some_and(|end| end <= layout.unit_lines());
        if fits { Ok(()) } else { Err(VolumeOpenError::Tables) }
    }

    // ---- steps 4 and 5 ------------------------------------------------------------------------

    fn look_at_members(&mut self) -> Result<(), VolumeOpenError> {
        let infos = self.opening().infos.clone();
        let missing: Vec<MemberIndex> = self
            .members
            .iter()
            .filter(|(index, member)| {
                let is_there = infos[usize::from(index.0)].is_some_and(|info| info.label.is_some());
                !is_there && member.state == MemberState::UpToDate
            })
            .map(|(index, _)| index)
            .collect();
        if !missing.is_empty() && !self.degraded_allowed {
            return Err(VolumeOpenError::MembersMissing { missing });
        }
        for (index, info) in infos.iter().enumerate() {
            let index = MemberIndex(index as u8);
            let member = self.members.get_mut(index);
            member.is_present = info.is_some();
            if let MemberState::Rebuilding { set, stripe } = member.state {
                member.rebuilt = (set, stripe);
            }
        }
        for (index, info) in infos.iter().enumerate() {
            let index = MemberIndex(index as u8);
            let label = info.and_then(|info| info.label);
            let is_new = label.is_some_and(|label| {
                label.epoch >= self.epoch || seeded(SeededBug::StaleMemberBelieved)
            });
            let is_blank = info.is_some() && label.is_none();
            let is_new = is_new || is_blank && seeded(SeededBug::BlankMemberBelieved);
            if is_blank {
                self.forget_raid0(index);
            }
            if is_new || self.members.get(index).state == MemberState::Stale {
                continue;
            }
            if is_blank || self.members.can_do_without(index, &self.layouts) {
                self.members.get_mut(index).state = MemberState::Stale;
                self.state_changes.waiting.push_back((index, MemberState::Stale));
            }
        }
        Ok(())
    }

    /// A blank disk is in a member's place, and whoever put it there knows what that means for RAID 0: extents that had lines
    /// there have no place any more.
    fn forget_raid0(&mut self, member: MemberIndex) {
        let extent_lines = self.extent_lines();
        for extent in (0..self.extents.extents()).map(ExtentIndex) {
            let entry = self.extents.get(extent);
            let Some(place) = entry.place else { continue };
            let layout = self.layout(place.set);
            if layout.level() != RaidLevel::Raid0 || layout.place_of(member).is_none() {
                continue;
            }
            let first = place.first_line(self.header.config.extent_bytes);
            if layout.has_lines_on(first, extent_lines, member) {
                self.counters.extents_lost += 1;
                self.change_entry(extent, Entry { place: None, ..entry });
            }
        }
    }

    fn write_lines_again(&mut self) {
        let redo = std::mem::take(&mut self.opening().redo);
        let ring = std::mem::take(&mut self.opening().ring);
        // Adjacent columns are one write.
        let mut runs: Vec<(Cell, Vec<u8>)> = Vec::new();
        for ((set, stripe, row, column), at) in redo {
            let bytes = match at {
                Some(at) => &ring[at..at + LINE_SIZE as usize],
                None => &[0; LINE_SIZE as usize],
            };
            match runs.last_mut() {
                Some(((a, b, c, first), data))
                    if (*a, *b, *c) == (set, stripe, row)
                        && u64::from(*first) + data.len() as u64 / LINE_SIZE
                            == u64::from(column) =>
                {
                    data.extend_from_slice(bytes);
                }
                _ => runs.push(((set, stripe, row, column), bytes.to_vec())),
            }
        }
        for ((set, stripe, row, column), data) in runs {
            let layout = self.layout(set).clone();
            for place in layout.places_of_row(stripe, row) {
                let is_skipped =
                    seeded(SeededBug::ParityNotRedone) && layout.parity_row() == Some(row);
                if !self.is_current(set, place, stripe) || is_skipped {
                    continue;
                }
                let index = layout.member(place);
                let offset = layout.offset(stripe, column);
                let data = crate::io::IoData::Owned(Buffer::copy_of(&data));
                let write = IoOperation::Write { offset, data, fua: false };
                self.want(Device::Member(index), write, Step::Redo(index));
                self.counters.lines_redone += 1;
            }
        }
    }

    // ---- steps 7 and 8 ------------------------------------------------------------------------

    /// Of the two copies the one whose turn it is: a torn one leaves that of the epoch before, which counts until step 8.
    fn write_labels(&mut self) {
        let copy = match seeded(SeededBug::LabelSameCopy) {
            true => 0,
            false => ((self.epoch + 1) % 2) as usize,
        };
        for index in self.present() {
            let label =
                MemberLabel { uuid: self.header.uuid, member: index, epoch: self.epoch + 1 };
            let data = crate::io::IoData::Owned(label.encode());
            let write = IoOperation::Write { offset: LABEL_OFFSETS[copy], data, fua: false };
            self.want(Device::Member(index), write, Step::Label(index));
        }
    }

    /// The epoch is durable, or the journal has failed.
    pub(super) fn opened(&mut self, result: Result<(), IoError>) {
        if result.is_err() {
            self.phase = VolumePhase::Failed(VolumeOpenError::Unwritable);
            return;
        }
        self.opening = None;
        self.phase = VolumePhase::Running;
        self.queue_misplaced();
        self.resume_rebuild();
        for io in std::mem::take(&mut self.early) {
            self.submit(self.now, io);
        }
        for (id, request) in std::mem::take(&mut self.early_requests) {
            // The log is not open yet either.
            self.request(self.now, id, request, &|_| false);
        }
    }
}
