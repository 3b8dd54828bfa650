//! Steps 1 to 3 of an opening: the tables as the newest root, its pages and the journal have them.

use std::collections::BTreeSet;

use super::{FoundRecord, IN_FLIGHT_MAX, READ_LINES, Reads, Step};
use crate::error::VolumeOpenError;
use crate::io::Device;
use crate::units::LINE_SIZE;
use crate::volume::checksums::{Checksums, LineSum};
use crate::volume::extents::ExtentIndex;
use crate::volume::format::area::{Region, TablePage};
use crate::volume::format::journal::{JournalItem, JournalRecord};
use crate::volume::format::page::{PAGE_CONTENT_BYTES, PageIndex};
use crate::volume::format::page_map;
use crate::volume::format::root::MemberState;
use crate::volume::lost::LineRun;
use crate::volume::members::Members;
use crate::volume::paths::checkpoint::Checkpointing;
use crate::volume::paths::journal::{Journal, RecordInRing, regions_of};
use crate::volume::paths::sums::PageRun;
use crate::volume::placement::RaidLevel;
use crate::volume::pointers::Pointers;
use crate::volume::twin::RING_LINES;
use crate::volume::{Purpose, Volume, VolumePhase};

/// Pages read at once, both places of most of them.
const PAGES_AT_ONCE: u32 = READ_LINES as u32 / 2;

impl Volume {
    pub(super) fn choose_root(&mut self) -> Result<(), VolumeOpenError> {
        if self.opening().root_error.is_some() {
            // The one that cannot be read may be the newer, and then the other speaks of pages that
            // are gone.
            return Err(VolumeOpenError::Unreadable { what: "a root" });
        }
        let root = match &self.opening().roots {
            [Ok(first), Ok(second)] if second.checkpoint > first.checkpoint => second.clone(),
            [Ok(first), _] => first.clone(),
            [_, Ok(second)] => second.clone(),
            [Err(error), _] => return Err(VolumeOpenError::Format(error.clone())),
        };
        if root.members.len() != self.members.len() {
            return Err(VolumeOpenError::RootFields);
        }
        let area = match root.pointer_pages_added {
            0 => Some(self.area.clone()),
            added => self.area.with_more_pointers(added),
        };
        self.area = area.ok_or(VolumeOpenError::RootFields)?;
        self.pointers = Pointers::new(self.area.pointer_slots(), self.extents.extents());
        let has_twin = self.header.config.twin_region_pages > 0;
        self.checkpoint = Checkpointing::new(self.area.pages(), has_twin);
        self.journal = Journal::new(self.ring_lines());
        if root.tail_line > self.ring_lines() {
            return Err(VolumeOpenError::RootFields);
        }
        self.members = Members::new(&root.members);
        self.members.load_label_epochs(&root.label_epochs);
        self.members.load_disks(&root.disks);
        self.epoch = root.epoch;
        self.lost.since_record = root.lost_since_record;
        self.twin_since = root.twin_since;
        self.checkpoint.number = root.checkpoint;
        self.journal.restore(Vec::new(), root.tail_line, root.tail_sequence);
        self.missed.load(root.missed.as_ref());
        self.scrubs.load(root.scrub, &self.layouts);
        let top = PageIndex(0);
        self.checkpoint.map.set(top, root.map);
        if root.map.is_some() {
            self.want_page(top);
        }
        Ok(())
    }

    /// The newest that were named first: what they name in turn is read before others of their
    /// level, and there are never many.
    pub(super) fn read_more_pages(&mut self) {
        while let Some(opening) = &mut self.opening
            && opening.in_flight < IN_FLIGHT_MAX
            && let Some(run) = opening.pages_left.pop()
        {
            opening.in_flight += 1;
            let bytes = self.bytes_of_run(run);
            let length = bytes.end - bytes.start;
            let purpose = Purpose::Open(Step::Pages(run));
            self.start_read(Device::CacheDisk, bytes.start, length, purpose);
        }
    }

    pub(super) fn take_pages(&mut self, run: PageRun, bytes: &[u8]) {
        for page in run.pages() {
            match self.content_in_run(run, bytes, page) {
                Some(content) => self.take_page(page, content),
                None => self.page_missed(page),
            }
        }
    }

    /// A page that the map names is not there.
    pub(super) fn page_missed(&mut self, page: PageIndex) {
        let is_of_sums = matches!(self.area.content(page), TablePage::Checksums { .. });
        match self.opening().is_twin && is_of_sums {
            true => self.opening().sums_unreadable.push(page),
            false => self.opening().is_page_lost = true,
        }
    }

    /// Of a twin, checksums may be missing where they count as not known.
    fn do_without_sums(&mut self) -> Result<(), VolumeOpenError> {
        for page in std::mem::take(&mut self.opening().sums_unreadable) {
            if !self.region_marks.has(self.area.region_of(page)) {
                return Err(VolumeOpenError::PagesLost);
            }
            self.checkpoint.map.set(page, None);
        }
        Ok(())
    }

    /// Lines of the journal that records are in.
    fn ring_lines(&self) -> u64 {
        let is_twin = self.opening.as_ref().is_some_and(|opening| opening.is_twin);
        if is_twin { RING_LINES } else { self.area.journal_lines() }
    }

    fn take_map_page(&mut self, page: PageIndex, content: &[u8; PAGE_CONTENT_BYTES]) {
        for (child, copy) in self.area.children(page).map(PageIndex).zip(page_map::decode(content))
        {
            if copy.is_some_and(|copy| copy.checkpoint > self.checkpoint.number) {
                self.phase = VolumePhase::Failed(VolumeOpenError::Tables);
                return;
            }
            self.checkpoint.map.set(child, copy);
            let Some(copy) = copy else { continue };
            let reads = self.opening().reads;
            let content = self.area.content(child);
            let is_of_map = matches!(content, TablePage::Map | TablePage::Marks(_));
            if reads == Reads::Map && !is_of_map {
                continue;
            }
            let has_sums = matches!(content, TablePage::Checksums { .. });
            if has_sums && !copy.has_lost && reads == Reads::AsStart {
                self.sum_pages.read_later(child, PAGES_AT_ONCE);
            } else {
                self.want_page(child);
            }
        }
    }

    fn want_page(&mut self, page: PageIndex) {
        let left = &mut self.opening().pages_left;
        match left.last_mut() {
            Some(run) if run.first.0 + run.count == page.0 && run.count < PAGES_AT_ONCE => {
                run.count += 1;
            }
            _ => left.push(PageRun { first: page, count: 1 }),
        }
    }

    fn take_page(&mut self, page: PageIndex, content: &[u8; PAGE_CONTENT_BYTES]) {
        let words = content.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        match self.area.content(page) {
            TablePage::Map => self.take_map_page(page, content),
            TablePage::Extents(first) => {
                for (i, packed) in words.enumerate() {
                    let extent = first + i as u64;
                    if extent < u64::from(self.extents.extents()) {
                        self.take_entry(ExtentIndex(extent as u32), packed);
                    }
                }
            }
            TablePage::Checksums { set, first } => {
                let has_lost = self.checkpoint.map.get(page).is_some_and(|copy| copy.has_lost);
                if has_lost || self.opening().reads == Reads::AsStart {
                    self.checksums.load_page(set, first, content);
                    self.sum_pages.came(page);
                }
            }
            TablePage::Marks(first) => {
                words
                    .enumerate()
                    .for_each(|(i, bits)| self.region_marks.add(first + i as u64, bits));
            }
            TablePage::LostLines { set, first } => {
                words.enumerate().for_each(|(i, bits)| self.lost.load(set, first + i as u64, bits));
            }
            TablePage::Pointers(first) => {
                for (i, packed) in words.enumerate() {
                    let slot = first + i as u64;
                    if slot < u64::from(self.pointers.slots())
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

    pub(super) fn check_pages(&mut self) -> Result<(), VolumeOpenError> {
        if self.opening().is_page_lost {
            return Err(VolumeOpenError::PagesLost);
        }
        let lines = self.ring_lines();
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

    /// The records that count, and the pages of the checksums that they change.
    pub(super) fn find_records(&mut self) -> Result<(), VolumeOpenError> {
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
        let ring_lines = self.ring_lines();
        let mut wanted = BTreeSet::new();
        loop {
            let here = self.record_at(&ring, line, sequence).map(|record| (line, 0, record));
            let at_start = || {
                let record = self.record_at(&ring, 0, sequence)?;
                Some((0, ring_lines - line, record))
            };
            let Some((at, skipped, record)) = here.or_else(at_start) else { break };
            for item in &record.items {
                if let JournalItem::Lines { set, stripe, row, column, lines }
                | JournalItem::Unsure { set, stripe, row, column, lines }
                | JournalItem::Lost { set, stripe, row, column, lines } = *item
                {
                    self.check_cells(set, stripe, row, column, lines)?;
                    let columns = column..column + lines;
                    wanted.extend(self.sum_pages_of(set, stripe, row..row + 1, columns));
                }
            }
            line = at + record.lines();
            sequence += 1;
            let lines = skipped + record.lines();
            self.opening().records.push(FoundRecord { record, line: at, lines });
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
        let opening = self.opening.as_ref().expect("it is being opened");
        let found = opening.records.iter().map(|found| RecordInRing {
            sequence: found.record.sequence,
            line: found.line,
            lines: found.lines,
            regions: regions_of(&found.record.items, &self.missed),
        });
        let found = found.collect();
        self.journal.restore(found, line, sequence);
        self.opening().ring = ring;
        // What was only looked at before is kept from here on.
        if self.opening().reads == Reads::Map {
            return Ok(());
        }
        self.opening().reads = Reads::AsStart;
        for page in wanted {
            let index = self.place_of_sums(page);
            let is_there = self.checksums.is_in_memory(index.0, index.1);
            if !is_there && self.checkpoint.map.get(page).is_some() {
                self.want_page(page);
            }
        }
        Ok(())
    }

    /// What they say, in order.
    pub(super) fn replay(&mut self) -> Result<(), VolumeOpenError> {
        if self.opening().is_page_lost {
            return Err(VolumeOpenError::PagesLost);
        }
        let records = std::mem::take(&mut self.opening().records);
        for item in records.iter().flat_map(|found| &found.record.items) {
            if let JournalItem::Marked { region } = *item {
                self.take_mark(region)?;
            }
        }
        self.do_without_sums()?;
        let opening = self.opening();
        let reads = opening.reads;
        let ring = std::mem::take(&mut opening.ring);
        for FoundRecord { record, line, .. } in records {
            match reads {
                Reads::Map => self.note_record(&record)?,
                _ => self.take_record(&record, line + 1, &ring)?,
            }
            self.counters.records_replayed += 1;
        }
        if reads == Reads::Map {
            return Ok(());
        }
        self.extents.index_loaded().map_err(|_| VolumeOpenError::Tables)?;
        self.pointers.index_loaded().map_err(|_| VolumeOpenError::Tables)?;
        self.count_lost_lines();
        self.opening().ring = ring;
        self.drop_dangling_pointers();
        Ok(())
    }

    /// A block may have been freed durably before its pointers were gone. They would keep what they
    /// point to alive, or be taken for those of the next block there.
    fn drop_dangling_pointers(&mut self) {
        let slots = 0..self.pointers.slots();
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

    fn take_mark(&mut self, region: u32) -> Result<(), VolumeOpenError> {
        if u64::from(region) >= self.region_marks.regions() {
            return Err(VolumeOpenError::Tables);
        }
        self.region_marks.mark(Region(region));
        self.checkpoint.dirty(self.area.page_of_mark(Region(region)));
        Ok(())
    }

    /// Which pages it changes, of tables that are not in memory.
    fn note_record(&mut self, record: &JournalRecord) -> Result<(), VolumeOpenError> {
        for item in &record.items {
            match *item {
                JournalItem::Extent { extent, .. } if extent < self.extents.extents().into() => {
                    self.checkpoint.dirty(self.area.page_of_extent(extent));
                }
                JournalItem::Pointer { slot, .. } if slot < self.pointers.slots().into() => {
                    self.checkpoint.dirty(self.area.page_of_pointer(slot));
                }
                JournalItem::Found { set, first, lines } => {
                    let run = LineRun { set, first, lines };
                    if !self.lost.has(run) {
                        return Err(VolumeOpenError::Tables);
                    }
                    self.dirty_lost_lines(run);
                }
                JournalItem::Lost { set, stripe, row, column, lines }
                | JournalItem::Unsure { set, stripe, row, column, lines } => {
                    let columns = column..column + lines;
                    for page in self.sum_pages_of(set, stripe, row..row + 1, columns) {
                        self.checkpoint.dirty(page);
                    }
                }
                JournalItem::Extent { .. } | JournalItem::Pointer { .. } => {
                    return Err(VolumeOpenError::Tables);
                }
                JournalItem::Lines { .. }
                | JournalItem::Member { .. }
                | JournalItem::Disk { .. }
                | JournalItem::Epoch { .. }
                | JournalItem::Marked { .. } => {}
            }
        }
        Ok(())
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
                    let slot = u32::try_from(slot).ok().filter(|s| *s < self.pointers.slots());
                    let slot = slot.ok_or(VolumeOpenError::Tables)?;
                    self.pointers.load(slot, packed).map_err(|_| VolumeOpenError::Tables)?;
                    self.checkpoint.dirty(self.area.page_of_pointer(slot.into()));
                }
                JournalItem::Member { member, state, is_noted } => {
                    if usize::from(member.0) >= self.members.len() {
                        return Err(VolumeOpenError::Tables);
                    }
                    self.members.get_mut(member).state = state;
                    match (is_noted, state) {
                        (true, MemberState::UpToDate) => self.missed.note_all(member),
                        _ => self.missed.replayed(member, is_noted),
                    }
                }
                JournalItem::Disk { member, disk } => {
                    if usize::from(member.0) >= self.members.len() {
                        return Err(VolumeOpenError::Tables);
                    }
                    self.members.get_mut(member).disk = disk;
                }
                JournalItem::Epoch { epoch, labelled } => {
                    self.epoch = epoch;
                    self.members.note_labels(epoch, labelled);
                }
                JournalItem::Found { set, first, lines } => {
                    let run = LineRun { set, first, lines };
                    if !self.lost.has(run) {
                        return Err(VolumeOpenError::Tables);
                    }
                    if record.sequence >= self.lost.since_record {
                        self.lost.committed(run);
                        self.dirty_lost_lines(run);
                    }
                }
                JournalItem::Marked { .. } => {}
                JournalItem::Unsure { set, stripe, row, column, lines } => {
                    for column in column..column + lines {
                        let index = Checksums::index(self.layout(set), stripe, row, column);
                        if self.checksums.get(set, index) == LineSum::Lost {
                            self.set_sum(set, stripe, row, column, LineSum::Never);
                        }
                    }
                }
                JournalItem::Lines { set, stripe, row, column, lines }
                | JournalItem::Lost { set, stripe, row, column, lines } => {
                    self.mark_again(set, stripe, row, column..column + lines);
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
}
