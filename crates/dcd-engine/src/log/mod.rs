//! The write cache on the cache-disk: nouns only. [`Log`] joins them: it knows how a record is put
//! together in a segment buffer and when it is durable; *when* something is appended, written or
//! flushed is decided in `engine/`.

pub mod control;
mod filled_segments;
pub(crate) mod index_run;
pub mod lookup_table;
mod paging;
pub(crate) mod rebuilt_zeroes;
pub(crate) mod regions;
pub mod segment;
pub(crate) mod sweep;

use std::collections::VecDeque;
use std::ops::Range;

use self::control::{CONTROL_SIZE, OpenMark};
use self::segment::{BufferIndex, SegmentState, SegmentTable};
use crate::buffer::SegmentMemory;
use crate::format::Geometry;
use crate::format::checkpoint::LogPosition;
use crate::format::checksum::{crc32c, crc32c_more};
use crate::format::record::{
    self, ENTRIES_MAX, ENTRIES_OFFSET, ENTRY_SIZE, Entry, RecordHeader, Seal,
};
use crate::units::{
    FragmentMask, LINE_SIZE, Line, RecordNumber, SegmentIndex, SegmentSerial, SlotIndex, Uuid,
};

/// Free segments that requests leave alone.
pub(crate) const SEGMENTS_RESERVED: u32 = 3;

/// Who appends: what one may take of the last free segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Appender {
    /// A request of a client.
    Request,
    /// A discard while requests find no room: it makes some, in the log and perhaps on the
    /// data-disk, which may be full, too. It shares with announcements: if it leaves them none, a
    /// checkpoint lists what is empty.
    Discard,
    /// An announcement: there has to be room for one while the cache is full of what requests
    /// wrote.
    Announcement,
    /// The engine, for what has been promised or must be moved: completing a physical sector (C15)
    /// must be possible while the cache is full, or it could never be emptied.
    Engine,
}

impl Appender {
    /// Free segments that it leaves to others.
    fn leaves(self) -> usize {
        match self {
            Appender::Request => SEGMENTS_RESERVED as usize,
            Appender::Discard | Appender::Announcement => SEGMENTS_RESERVED as usize - 1,
            Appender::Engine => 0,
        }
    }
}

/// A sealed record that is to be written to the cache-disk.
#[derive(Clone, Debug)]
pub(crate) struct LogWrite {
    /// Which record.
    pub(crate) number: RecordNumber,
    /// Where its bytes are in the segment memory.
    pub(crate) memory: Range<usize>,
    /// Byte address on the cache-disk.
    pub(crate) offset: u64,
}

/// A record that is being filled.
struct OpenRecord {
    buffer: BufferIndex,
    header_slot: u32,
    entries: usize,
    /// Entries of requests that were appended whole, and their checksum.
    entries_whole: usize,
    entries_checksum: u32,
    data_slots: u32,
    /// Data slots of requests that were appended whole.
    data_slots_whole: u32,
}

/// Slots with the beginning of a request that goes on in a later record.
struct UnfinishedSlots {
    /// The record they are in.
    record: RecordNumber,
    /// The record with the end of the request, when it has been sealed.
    ends_in: Option<RecordNumber>,
    slots: Range<SlotIndex>,
}

/// A sealed record that is not durable yet.
struct PendingRecord {
    number: RecordNumber,
    buffer: BufferIndex,
    header_slot: u32,
    end_slot: u32,
    checksum: u32,
    is_written: bool,
}

/// A slot whose content was logged again elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MovedSlot {
    /// Whose fragments it holds.
    pub(crate) line: Line,
    /// Where they were ...
    pub(crate) from: SlotIndex,
    /// ... and are.
    pub(crate) to: SlotIndex,
    /// CRC-32C of the slot.
    pub(crate) checksum: u32,
}

/// A segment buffer.
#[derive(Clone, Copy, Default)]
struct SegmentBuffer {
    /// The segment whose image it is.
    segment: Option<SegmentIndex>,
    /// Slots taken.
    used_slots: u32,
    /// Slots of durable records.
    durable_slots: u32,
    /// Nothing more is appended.
    is_closed: bool,
}

/// The log.
pub struct Log {
    uuid: Uuid,
    geometry: Geometry,
    epoch: u64,
    /// The segments.
    pub(crate) segments: SegmentTable,
    memory: Box<dyn SegmentMemory>,
    buffers: Vec<SegmentBuffer>,
    current: Option<BufferIndex>,
    open: Option<OpenRecord>,
    open_marks: u64,
    next_serial: SegmentSerial,
    next_record: RecordNumber,
    previous_checksum: u32,
    /// Sealed records that are not durable, in order.
    pending: VecDeque<PendingRecord>,
    /// Sealed records whose write has not been handed out.
    unstarted: VecDeque<LogWrite>,
    /// Segments that a record announces which is not durable yet, in order.
    announced: VecDeque<(RecordNumber, SegmentIndex)>,
    /// Slots that a power cut would take back although their record is durable (C14).
    unfinished: Vec<UnfinishedSlots>,
    durable: RecordNumber,
    /// Checksum of the header of record `durable`.
    durable_checksum: u32,
    /// The newest durable checkpoint, for record headers.
    pub(crate) checkpoint_generation: u64,
}

impl Log {
    /// A log whose place is not known yet; see [`Log::start`].
    pub(crate) fn new(uuid: Uuid, geometry: Geometry, memory: Box<dyn SegmentMemory>) -> Log {
        let size = geometry.segment_size_bytes as usize;
        let buffers = (memory.bytes().len() - CONTROL_SIZE) / size;
        Log {
            uuid,
            geometry,
            epoch: 0,
            segments: SegmentTable::new(geometry.segments),
            memory,
            buffers: vec![SegmentBuffer::default(); buffers],
            current: None,
            open: None,
            open_marks: 0,
            next_serial: SegmentSerial(1),
            next_record: RecordNumber(1),
            previous_checksum: 0,
            pending: VecDeque::new(),
            unstarted: VecDeque::new(),
            announced: VecDeque::new(),
            unfinished: Vec::new(),
            durable: RecordNumber(0),
            durable_checksum: 0,
            checkpoint_generation: 0,
        }
    }

    /// The log goes on with a new segment after what recovery found; everything found is durable.
    pub(crate) fn start(
        &mut self,
        epoch: u64,
        next_serial: SegmentSerial,
        next_record: RecordNumber,
        previous_checksum: u32,
    ) {
        self.epoch = epoch;
        self.next_serial = next_serial;
        self.next_record = next_record;
        self.previous_checksum = previous_checksum;
        self.durable = RecordNumber(next_record.0 - 1);
        self.durable_checksum = previous_checksum;
        // Marks of the session before must not be mistaken for ours after the next death.
        self.memory.bytes_mut()[64..192].fill(0);
    }

    /// The segment memory.
    pub(crate) fn memory(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// The segment memory, for recovery to complete a record that was open.
    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// Where slot `slot` of segment buffer `buffer` begins in the segment memory.
    pub(crate) fn memory_offset(&self, buffer: BufferIndex, slot: u32) -> usize {
        CONTROL_SIZE
            + buffer.0 as usize * self.geometry.segment_size_bytes as usize
            + slot as usize * LINE_SIZE as usize
    }

    /// Number of segment buffers.
    pub(crate) fn buffer_count(&self) -> u32 {
        self.buffers.len() as u32
    }

    /// Segment buffers that requests may fill. The others are for logging the same again after an
    /// error (C22).
    pub(crate) fn buffers_for_requests(&self) -> u32 {
        (self.buffer_count() / 2).max(2)
    }

    /// Slots of a segment buffer that were given out.
    pub(crate) fn used_slots(&self, buffer: BufferIndex) -> u32 {
        self.buffers[buffer.0 as usize].used_slots
    }

    /// Segment buffers that hold something: filling, or not durable.
    pub(crate) fn buffers_in_use(&self) -> u32 {
        self.buffers.iter().filter(|buffer| buffer.segment.is_some()).count() as u32
    }

    // ---- appending ----------------------------------------------------------------------------

    /// Whether a request that needs `entries` entries, each perhaps with a slot, can be appended
    /// whole now.
    pub(crate) fn has_room(&self, entries: u32, appender: Appender) -> bool {
        // Mostly the open segment has room, and nobody counts buffers.
        self.has_room_with(entries, appender, || self.buffers_in_use())
    }

    fn has_room_with(
        &self,
        entries: u32,
        appender: Appender,
        buffers_in_use: impl FnOnce() -> u32,
    ) -> bool {
        let per_segment = self.geometry.slots_per_segment();
        let reserved = appender.leaves();
        if self.segments.free().len() < reserved {
            // What is left of a segment that was taken from the reserve belongs to it, too.
            return false;
        }
        let mut room = match (&self.open, self.current) {
            (Some(open), Some(buffer)) => {
                let left = per_segment - self.buffers[buffer.0 as usize].used_slots;
                let in_open = left.min((ENTRIES_MAX - open.entries) as u32);
                // Behind the open record, new headers take their part.
                in_open + data_slots_within(left - in_open)
            }
            (None, Some(buffer)) => {
                data_slots_within(per_segment - self.buffers[buffer.0 as usize].used_slots)
            }
            _ => 0,
        };
        if room >= entries {
            return true;
        }
        let free = self.segments.free();
        let segments = free.len().saturating_sub(reserved);
        let segments = if self.segments.next_is_ready() { segments } else { 0 };
        let buffers = match appender {
            Appender::Request | Appender::Discard => self.buffers_for_requests(),
            Appender::Announcement | Appender::Engine => self.buffer_count(),
        };
        let buffers = buffers.saturating_sub(buffers_in_use()) as usize;
        for index in free.iter().take(segments.min(buffers)) {
            if self.segments.get(*index).readers > 0 {
                return false;
            }
            room += data_slots_within(per_segment);
            if room >= entries {
                return true;
            }
        }
        false
    }

    /// Whether a request has no room, and would have none if all segment buffers were free: until
    /// something is destaged, a checkpoint is durable, or a reader is done.
    pub(crate) fn lacks_segments(&self, entries: u32, appender: Appender) -> bool {
        !self.has_room_with(entries, appender, || 0)
    }

    /// Appends fragments of a line. `bytes` are those fragments, one after the other.
    ///
    /// # Panics
    /// If there is no room: see [`Log::has_room`].
    pub(crate) fn append_data(
        &mut self,
        line: Line,
        mask: FragmentMask,
        bytes: &[u8],
    ) -> (SlotIndex, u32) {
        let (buffer, entry_index) = self.make_room(1);
        let state = &mut self.buffers[buffer.0 as usize];
        let slot_in_segment = state.used_slots;
        state.used_slots += 1;
        let segment = state.segment.expect("a buffer that is filled has a segment");
        let at = self.memory_offset(buffer, slot_in_segment);
        let slot = &mut self.memory.bytes_mut()[at..at + LINE_SIZE as usize];
        if mask.is_full() {
            slot.copy_from_slice(bytes);
        } else {
            slot.fill(0);
            let mut rest = bytes;
            for run in mask.byte_runs() {
                let (head, tail) = rest.split_at(run.len());
                slot[run].copy_from_slice(head);
                rest = tail;
            }
            assert!(rest.is_empty(), "as many bytes as the mask says");
        }
        let checksum = crc32c(slot);
        self.put(buffer, entry_index, &Entry::Data { line, mask, checksum });
        self.open.as_mut().expect("make_room opened it").data_slots += 1;
        self.segments.add_live(segment);
        (self.geometry.slot(segment, slot_in_segment), checksum)
    }

    /// Appends an entry that has no data.
    ///
    /// # Panics
    /// If there is no room, or the entry is data.
    pub(crate) fn append_entry(&mut self, entry: &Entry) {
        assert!(!matches!(entry, Entry::Data { .. }));
        let (buffer, entry_index) = self.make_room(0);
        self.put(buffer, entry_index, entry);
    }

    /// Says that these empty segments are filled next, in this order; each may be when the record
    /// that says so is durable. Those for which there is no room are left out.
    pub(crate) fn announce(&mut self, segments: &[SegmentIndex]) {
        let runs = segments.chunk_by(|before, next| before.0 + 1 == next.0);
        for run in runs {
            if !self.has_room(1, Appender::Announcement) {
                break;
            }
            self.append_entry(&Entry::Announce { first: run[0], count: run.len() as u32 });
            for segment in run {
                self.segments.announce(*segment);
                self.announced.push_back((self.newest_record(), *segment));
            }
        }
        self.end_request();
    }

    /// Segments that are announced by records that are not durable yet, in order.
    pub(crate) fn announced(&self) -> impl ExactSizeIterator<Item = SegmentIndex> {
        self.announced.iter().map(|(_, segment)| *segment)
    }

    /// The record of the newest of them.
    pub(crate) fn newest_announcement(&self) -> RecordNumber {
        self.announced.back().map_or(self.durable, |(record, _)| *record)
    }

    /// The request whose entries were appended since the last call is whole: from here on it
    /// survives the process.
    pub(crate) fn end_request(&mut self) {
        let Some(open) = &self.open else { return };
        let (buffer, header_slot, entries) = (open.buffer, open.header_slot, open.entries);
        let at = self.memory_offset(buffer, header_slot) + ENTRIES_OFFSET;
        let new = at + open.entries_whole * ENTRY_SIZE..at + entries * ENTRY_SIZE;
        let entries_checksum = crc32c_more(open.entries_checksum, &self.memory.bytes()[new]);
        let open = self.open.as_mut().expect("looked at");
        open.entries_whole = entries;
        open.entries_checksum = entries_checksum;
        open.data_slots_whole = open.data_slots;
        self.open_marks += 1;
        let memory = self.memory.bytes_mut();
        let mark = OpenMark {
            epoch: self.epoch,
            buffer: buffer.0,
            header_slot,
            entries: entries as u32,
            entries_checksum,
            checkpoint_generation: self.checkpoint_generation,
        };
        control::write_mark(&mut memory[..CONTROL_SIZE], self.open_marks, &mark);
    }

    /// Makes the open record have room for an entry with `slots` data slots: opens one, seals a
    /// full one, goes on to the next segment, as needed.
    fn make_room(&mut self, slots: u32) -> (BufferIndex, usize) {
        let per_segment = self.geometry.slots_per_segment();
        if let (Some(open), Some(buffer)) = (&self.open, self.current) {
            let left = per_segment - self.buffers[buffer.0 as usize].used_slots;
            if open.entries < ENTRIES_MAX && left >= slots {
                return (buffer, open.entries);
            }
            self.seal();
        }
        let buffer = match self.current {
            Some(buffer) => buffer,
            None => self.fill_next_segment(),
        };
        self.open_record(buffer);
        (buffer, 0)
    }

    fn fill_next_segment(&mut self) -> BufferIndex {
        let index = self
            .buffers
            .iter()
            .position(|buffer| buffer.segment.is_none())
            .expect("has_room saw a free segment buffer");
        let buffer = BufferIndex(index as u32);
        let segment = self.segments.fill_next(buffer, self.next_serial);
        self.next_serial.0 += 1;
        self.buffers[index] = SegmentBuffer { segment: Some(segment), ..SegmentBuffer::default() };
        self.current = Some(buffer);
        buffer
    }

    fn open_record(&mut self, buffer: BufferIndex) {
        let state = &mut self.buffers[buffer.0 as usize];
        let header_slot = state.used_slots;
        state.used_slots += 1;
        let segment = state.segment.expect("a buffer that is filled has a segment");
        let header = RecordHeader {
            uuid: self.uuid,
            epoch: self.epoch,
            serial: self.segments.get(segment).serial(),
            segment,
            slot_in_segment: header_slot,
            number: self.next_record,
            previous_checksum: self.previous_checksum,
            durable: RecordNumber(0),
            checkpoint_generation: 0,
            unfinished: 0,
        };
        let at = self.memory_offset(buffer, header_slot);
        record::start_header(&mut self.memory.bytes_mut()[at..], &header);
        self.open = Some(OpenRecord {
            buffer,
            header_slot,
            entries: 0,
            entries_whole: 0,
            entries_checksum: crc32c(&[]),
            data_slots: 0,
            data_slots_whole: 0,
        });
    }

    fn put(&mut self, buffer: BufferIndex, index: usize, entry: &Entry) {
        let open = self.open.as_mut().expect("an open record");
        open.entries = index + 1;
        let header_slot = open.header_slot;
        let at = self.memory_offset(buffer, header_slot);
        record::put_entry(&mut self.memory.bytes_mut()[at..], index, &entry.encode());
    }

    // ---- sealing, writing, durability ---------------------------------------------------------

    /// Whether a record is open and has something in it.
    pub(crate) fn has_open_record(&self) -> bool {
        self.open.is_some()
    }

    /// Number of the newest record, open or sealed.
    pub(crate) fn newest_record(&self) -> RecordNumber {
        match self.open {
            Some(_) => self.next_record,
            None => RecordNumber(self.next_record.0 - 1),
        }
    }

    /// Number of the newest sealed record.
    pub(crate) fn sealed_record(&self) -> RecordNumber {
        RecordNumber(self.next_record.0 - 1)
    }

    /// Every record up to this one is durable.
    pub(crate) fn durable_record(&self) -> RecordNumber {
        self.durable
    }

    /// Every record up to this one has been written.
    pub(crate) fn written_record(&self) -> RecordNumber {
        self.pending
            .iter()
            .take_while(|record| record.is_written)
            .last()
            .map_or(self.durable, |record| record.number)
    }

    /// Completes the open record; its write is handed out by [`Log::next_write`].
    pub(crate) fn seal(&mut self) {
        let Some(open) = self.open.take() else { return };
        let at = self.memory_offset(open.buffer, open.header_slot);
        let seal = Seal {
            entries: open.entries,
            data_slots: open.data_slots,
            durable: self.durable,
            checkpoint_generation: self.checkpoint_generation,
            unfinished: (open.entries - open.entries_whole) as u16,
        };
        self.previous_checksum = record::seal_header(&mut self.memory.bytes_mut()[at..], &seal);
        let number = self.next_record;
        self.next_record = number.next();
        let state = &mut self.buffers[open.buffer.0 as usize];
        let end_slot = state.used_slots;
        let segment = state.segment.expect("a buffer that is filled has a segment");
        if open.entries_whole > 0 {
            for slots in self.unfinished.iter_mut().filter(|slots| slots.ends_in.is_none()) {
                slots.ends_in = Some(number);
            }
        }
        if open.data_slots_whole < open.data_slots {
            let first = open.header_slot + 1 + open.data_slots_whole;
            let slots = self.geometry.slot(segment, first)..self.geometry.slot(segment, end_slot);
            self.unfinished.push(UnfinishedSlots { record: number, ends_in: None, slots });
        }
        // What is left of a segment must hold a header and a slot, or it is full.
        if end_slot + 2 > self.geometry.slots_per_segment() {
            state.is_closed = true;
            self.current = None;
        }
        self.pending.push_back(PendingRecord {
            number,
            buffer: open.buffer,
            header_slot: open.header_slot,
            end_slot,
            checksum: self.previous_checksum,
            is_written: false,
        });
        let write = self.write_of(self.pending.back().expect("just put there"));
        self.unstarted.push_back(write);
    }

    fn write_of(&self, record: &PendingRecord) -> LogWrite {
        let PendingRecord { number, buffer, header_slot, end_slot, .. } = *record;
        let memory = self.memory_offset(buffer, header_slot)..self.memory_offset(buffer, end_slot);
        let segment = self.buffers[buffer.0 as usize].segment.expect("it is being filled");
        let offset = self.geometry.slot_offset(self.geometry.slot(segment, header_slot));
        LogWrite { number, memory, offset }
    }

    /// Where the next sealed record is to be written, if there is one.
    pub(crate) fn next_write_offset(&self) -> Option<u64> {
        self.unstarted.front().map(|write| write.offset)
    }

    /// What is in the segment memory counts no more, also after the death of this process.
    pub(crate) fn void_memory(&mut self) {
        let epoch = self.epoch;
        control::write_session_note(&mut self.memory.bytes_mut()[..CONTROL_SIZE], epoch, true);
    }

    /// A new session: what is in the segment memory from now on counts.
    pub(crate) fn note_session(&mut self) {
        let epoch = self.epoch;
        control::write_session_note(&mut self.memory.bytes_mut()[..CONTROL_SIZE], epoch, false);
    }

    /// The next sealed record to write, if any.
    pub(crate) fn next_write(&mut self) -> Option<LogWrite> {
        self.unstarted.pop_front()
    }

    /// Whether record `number` is the oldest one that is not durable: then its being durable makes
    /// everything up to it durable.
    pub(crate) fn is_oldest_pending(&self, number: RecordNumber) -> bool {
        self.durable.next() == number
    }

    /// Goes on in a new segment: what is appended from now on has a higher serial.
    pub(crate) fn close_segment(&mut self) {
        self.seal();
        if let Some(buffer) = self.current.take() {
            self.buffers[buffer.0 as usize].is_closed = true;
            self.free_durable_buffers();
        }
    }

    /// The write of a record has ended well.
    pub(crate) fn record_written(&mut self, number: RecordNumber) {
        let first = self.durable.next().0;
        let record = &mut self.pending[(number.0 - first) as usize];
        assert!(record.number == number, "pending records are in order and without gaps");
        record.is_written = true;
    }

    /// Every record up to `number` is durable.
    pub(crate) fn make_durable(&mut self, number: RecordNumber) {
        while self.pending.front().is_some_and(|record| record.number <= number) {
            let record = self.pending.pop_front().expect("looked at");
            assert!(record.is_written, "only what is written can be durable");
            self.buffers[record.buffer.0 as usize].durable_slots = record.end_slot;
            self.durable = record.number;
            self.durable_checksum = record.checksum;
        }
        let durable = self.durable;
        self.unfinished.retain(|slots| slots.ends_in.is_none_or(|end| end > durable));
        while let Some((_, segment)) = self.announced.pop_front_if(|(by, _)| *by <= durable) {
            self.segments.make_free(&[segment]);
        }
        self.free_durable_buffers();
    }

    fn free_durable_buffers(&mut self) {
        for state in &mut self.buffers {
            if state.is_closed && state.durable_slots == state.used_slots {
                let segment = state.segment.take().expect("a closed buffer has a segment");
                *state = SegmentBuffer::default();
                self.segments.leave_buffer(segment);
            }
        }
    }

    // ---- a log that grows and shrinks ---------------------------------------------------------

    /// The log has another size.
    pub(crate) fn geometry_is(&mut self, geometry: Geometry) {
        self.geometry = geometry;
    }

    /// The segment that is being filled.
    pub(crate) fn current_segment(&self) -> Option<SegmentIndex> {
        self.buffers[self.current?.0 as usize].segment
    }

    /// Whether [`Log::pass_segment`] has a segment and a buffer.
    pub(crate) fn can_pass_segment(&self) -> bool {
        self.segments.next_is_ready() && self.buffers_in_use() < self.buffers_for_requests()
    }

    /// The log goes on behind the next free segment: that gets a record which holds nothing.
    ///
    /// # Panics
    /// If there is none, or no buffer for it: see [`Log::can_pass_segment`].
    pub(crate) fn pass_segment(&mut self) {
        self.close_segment();
        let buffer = self.fill_next_segment();
        self.open_record(buffer);
        self.close_segment();
    }

    // ---- logging again elsewhere --------------------------------------------------------------

    /// After a failed write or flush (C22): copies every record that is not durable, as it is and
    /// under its old number, to segments that have not been written to. Returns where the slots
    /// went; nothing, and no change, if there is no room for it.
    ///
    /// The old records may lie on the cache-disk all the same. Recovery takes the newer copy of a
    /// record, which has the higher serial; that they are alike makes either right.
    pub(crate) fn log_again(&mut self) -> Option<Vec<MovedSlot>> {
        self.seal();
        let mut buffers: Vec<BufferIndex> = self.pending.iter().map(|r| r.buffer).collect();
        // The segment being filled is left, too, even if all in it is durable.
        buffers.extend(self.current);
        buffers.dedup();
        let free_buffers = self.buffer_count() - self.buffers_in_use();
        let free_segments = self.segments.free().len();
        let ready = self.segments.free().iter().all(|index| self.segments.get(*index).readers == 0);
        if free_buffers < buffers.len() as u32 || free_segments < buffers.len() || !ready {
            return None;
        }
        self.unstarted.clear();
        let old = std::mem::take(&mut self.pending);
        self.current = None;
        self.next_record = self.durable.next();
        self.previous_checksum = self.durable_checksum;
        let durable = self.durable;
        self.unfinished.retain(|slots| slots.record <= durable);
        let mut moved = Vec::new();
        for record in &old {
            self.copy_record(record, &mut moved);
        }
        for buffer in buffers {
            let state = &mut self.buffers[buffer.0 as usize];
            state.used_slots = state.durable_slots;
            state.is_closed = true;
        }
        Some(moved)
    }

    /// The same where there is no room: every record that is not durable is written to its place
    /// again, with the same bytes.
    pub(crate) fn write_again(&mut self) {
        for record in &mut self.pending {
            record.is_written = false;
        }
        self.unstarted = self.pending.iter().map(|record| self.write_of(record)).collect();
    }

    /// The slots that moved are known to the table now: the old segment buffers are free.
    pub(crate) fn end_log_again(&mut self) {
        self.free_durable_buffers();
    }

    fn copy_record(&mut self, old: &PendingRecord, moved: &mut Vec<MovedSlot>) {
        let at = self.memory_offset(old.buffer, old.header_slot);
        let record = record::Record::decode(&self.memory.bytes()[at..at + LINE_SIZE as usize])
            .expect("a record that was sealed here");
        assert!(record.header.number == self.next_record, "in order and without gaps");
        // It fitted into a segment, so it fits into an empty one.
        let left = self.current.map_or(0, |buffer| {
            self.geometry.slots_per_segment() - self.buffers[buffer.0 as usize].used_slots
        });
        if left < record.slots()
            && let Some(buffer) = self.current.take()
        {
            self.buffers[buffer.0 as usize].is_closed = true;
        }
        let buffer = self.current.unwrap_or_else(|| self.fill_next_segment());
        let old_segment = record.header.segment;
        self.open_record(buffer);
        let mut old_slot = old.header_slot;
        let entries_whole = record.entries.len() - usize::from(record.header.unfinished);
        for (index, entry) in record.entries.iter().enumerate() {
            self.put(buffer, index, entry);
            let Entry::Data { line, checksum, .. } = *entry else { continue };
            old_slot += 1;
            let state = &mut self.buffers[buffer.0 as usize];
            let slot = state.used_slots;
            state.used_slots += 1;
            let segment = state.segment.expect("a buffer that is filled has a segment");
            let from = self.memory_offset(old.buffer, old_slot);
            let to = self.memory_offset(buffer, slot);
            self.memory.bytes_mut().copy_within(from..from + LINE_SIZE as usize, to);
            self.segments.add_live(segment);
            let open = self.open.as_mut().expect("opened above");
            open.data_slots += 1;
            open.data_slots_whole += u32::from(index < entries_whole);
            moved.push(MovedSlot {
                line,
                from: self.geometry.slot(old_segment, old_slot),
                to: self.geometry.slot(segment, slot),
                checksum,
            });
        }
        let open = self.open.as_mut().expect("opened above");
        open.entries_whole = entries_whole;
        self.seal();
    }

    // ---- looking ------------------------------------------------------------------------------

    /// The bytes of a slot, if its segment is in a buffer.
    pub(crate) fn slot_in_memory(&self, slot: SlotIndex) -> Option<&[u8]> {
        let (segment, slot_in_segment) = self.geometry.locate(slot);
        let SegmentState::Buffered(buffer) = self.segments.get(segment).state else { return None };
        let at = self.memory_offset(buffer, slot_in_segment);
        Some(&self.memory.bytes()[at..at + LINE_SIZE as usize])
    }

    /// Whether what is in a slot would survive a power cut: its record is durable, and so is the
    /// last record of the request it belongs to.
    pub(crate) fn is_durable(&self, slot: SlotIndex) -> bool {
        if self.unfinished.iter().any(|unfinished| unfinished.slots.contains(&slot)) {
            return false;
        }
        let (segment, slot_in_segment) = self.geometry.locate(slot);
        match self.segments.get(segment).state {
            SegmentState::Buffered(buffer) => {
                slot_in_segment < self.buffers[buffer.0 as usize].durable_slots
            }
            _ => true,
        }
    }

    /// Slots of a segment that are taken and durable.
    pub(crate) fn durable_slots(&self, segment: SegmentIndex) -> u32 {
        match self.segments.get(segment).state {
            SegmentState::Buffered(buffer) => self.buffers[buffer.0 as usize].durable_slots,
            _ => self.geometry.slots_per_segment(),
        }
    }

    /// Serial of the newest segment that has been started.
    pub(crate) fn newest_serial(&self) -> SegmentSerial {
        SegmentSerial(self.next_serial.0 - 1)
    }

    /// Where the next record will begin. No record may be open.
    ///
    /// Without a segment being filled this is the first of `free`, which the checkpoint then does
    /// not list again.
    pub(crate) fn position(&self, free: &mut VecDeque<SegmentIndex>) -> LogPosition {
        assert!(self.open.is_none(), "a checkpoint lies between records");
        let (segment, serial, slot_in_segment) = match self.current {
            Some(buffer) => {
                let state = &self.buffers[buffer.0 as usize];
                let segment = state.segment.expect("a buffer that is filled has a segment");
                (segment, self.segments.get(segment).serial(), state.used_slots)
            }
            None => match free.pop_front() {
                Some(segment) => (segment, self.next_serial, 0),
                // Nothing can be appended before the next checkpoint, and no record is there.
                None => (SegmentIndex(0), self.next_serial, self.geometry.slots_per_segment()),
            },
        };
        LogPosition {
            segment,
            serial,
            slot_in_segment,
            next_record: self.next_record,
            previous_checksum: self.previous_checksum,
        }
    }

    /// Checks what must always hold; for tests and the fuzzer.
    ///
    /// # Panics
    /// If something does not hold.
    pub(crate) fn check_invariants(&self) {
        let buffered = self.segments.counts().buffered;
        assert_eq!(buffered, self.buffers_in_use(), "each has its own buffer");
        for (i, state) in self.buffers.iter().enumerate() {
            assert!(state.durable_slots <= state.used_slots);
            assert!(state.used_slots <= self.geometry.slots_per_segment());
            if let Some(segment) = state.segment {
                let expected = SegmentState::Buffered(BufferIndex(i as u32));
                assert!(self.segments.get(segment).state == expected);
            }
        }
        let mut number = self.durable;
        for record in &self.pending {
            number = number.next();
            assert!(record.number == number);
        }
        assert!(number == self.sealed_record());
    }
}

/// Data slots that fit into `slots` slots together with the record headers they need.
fn data_slots_within(slots: u32) -> u32 {
    let record = ENTRIES_MAX as u32 + 1;
    let whole = slots / record;
    whole * ENTRIES_MAX as u32 + (slots % record).saturating_sub(1)
}

#[cfg(test)]
mod tests;
