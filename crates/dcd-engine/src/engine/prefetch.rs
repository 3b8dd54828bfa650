//! Serving sequences: when reads follow the order of one, what comes next in it is read ahead from
//! the read area, in large reads.
//!
//! 1. A read of a line with a place in a sequence continues a *stream* if its place is close to
//!    where the stream is. At the beginning of a sequence, or when two reads follow its order, a
//!    stream begins. A line may be in several sequences, and so continue several streams.
//! 2. A stream keeps a *window* of places read ahead. The window doubles while it is used, up to a
//!    quarter of the memory for reading ahead. Of the streams that a read continues only that is
//!    read ahead which had the most lines to itself: libraries are part of every program's start.
//!    What is in a window is *planned*, and read a few chunks at a time, so that other reads of the
//!    cache-disk do not wait for all of it. Places that were asked for already are left out: a boot
//!    comes in another order each time, and several streams meet.
//! 3. Reads take what is here, and wait for what is on its way; a chunk that a read waits for is
//!    read at once. What was used, and what the reads have passed by, is dropped when there is no
//!    room for more. A stream that no read has followed for a while ends; what it has read goes to
//!    another one of its sequence, if there is one.
//! 4. A stream that ends tells its sequence how much of what was read ahead was used. A sequence
//!    that does not pay is switched off ([`crate::copies::Sequence::may_start`]).
//!
//! Nothing here decides what is true: a read asks the copies first, and takes bytes from memory
//! only if they have the checksum of a copy that is valid at that moment.

use std::collections::{BTreeMap, VecDeque};

use super::asked_places::AskedPlaces;
use super::read::CopyPart;
use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::copies::{Sequence, SlotState};
use crate::engine::Disk;
use crate::format::checksum::crc32c;
use crate::format::geometry::COPIES_PER_PAGE;
use crate::io::{IoError, RequestId};
use crate::units::{CopySlot, Duration, LINE_SIZE, LbaRange, Line, SequenceId, Time};

/// Streams at a time.
const STREAMS_MAX: usize = 16;
/// Of one sequence.
const STREAMS_OF_SEQUENCE_MAX: usize = 4;
/// A read so many places off still belongs to the stream: programs read in parallel, in another
/// order each time.
const PLACES_OFF_MAX: u32 = 512;
/// Two reads that begin a stream in the middle of a sequence are closer.
const PLACES_APART_MAX: u32 = 64;
/// Places at the beginning of a sequence that begin a stream at once.
const PLACES_AT_START: u32 = 16;
/// Window of a new stream, in places: 128 KiB.
const WINDOW_MIN: u32 = 32;
/// Most slots in one read: 512 KiB. Longer ones hardly save anything, and what is wanted at once
/// waits for them.
const SLOTS_PER_READ: u32 = 128;
/// Reads at a time. Others of the cache-disk wait for those that are on their way, so they are as
/// few as keep it busy. A chunk that a read waits for is not counted.
const READS_IN_FLIGHT_MAX: usize = 2;
/// With one arm for both disks each read between those of a window costs two seeks: they are long,
/// and all started.
const SLOTS_PER_READ_OF_ONE_ARM: u32 = 256;
/// Stale slots between two wanted ones are read along up to so many.
const GAP_SLOTS: u32 = 16;
/// Lines that reads have passed by after which a stream is judged.
const JUDGED_FROM_LINES: u64 = 256;
/// A stream ends when so many reads in a row did not follow it, or no read for so long.
const READS_OFF_MAX: u32 = 256;
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Reads remembered that may turn out to be the second last of a stream.
const SEEN_MAX: usize = 16;

/// Reading ahead.
#[derive(Default)]
pub(super) struct Prefetch {
    /// Somebody wants none of it.
    is_stopped: bool,
    streams: Vec<Stream>,
    /// Places of the last reads that no stream took.
    seen: VecDeque<(SequenceId, u32)>,
    next_stream: u64,
    chunks: VecDeque<Chunk>,
    next_chunk: u64,
    slots_held: u32,
    /// What reads have asked for of the sequences that are being followed.
    asked: BTreeMap<SequenceId, AskedPlaces>,
}

/// A sequence being followed.
struct Stream {
    id: StreamId,
    sequence: SequenceId,
    /// Places of the sequence.
    places: u32,
    /// Behind the furthest place that was asked for.
    cursor: u32,
    /// Behind the furthest place that was read ahead.
    ahead: u32,
    window: u32,
    read_ahead: u64,
    used: u64,
    /// Lines that were read of it and of no other stream.
    own_hits: u64,
    reads_off: u32,
    last: Time,
}

/// Name of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StreamId(u64);

/// Adjacent slots read ahead.
struct Chunk {
    id: ChunkId,
    stream: StreamId,
    /// Behind the last place of it.
    end_place: u32,
    first: CopySlot,
    slots: u32,
    state: ChunkState,
    /// Lines of it that were used.
    used: u32,
    waiting: Vec<(RequestId, CopySlot, CopyPart)>,
}

enum ChunkState {
    /// To be read when others have come.
    Planned,
    OnItsWay,
    Here(Buffer),
}

/// Name of a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkId(u64);

impl Chunk {
    fn holds(&self, slot: CopySlot) -> bool {
        (self.first.0..self.first.0 + self.slots).contains(&slot.0)
    }

    fn bytes_of(&self, slot: CopySlot) -> Option<&[u8]> {
        let at = (slot.0 - self.first.0) as usize * LINE_SIZE as usize;
        let ChunkState::Here(bytes) = &self.state else { return None };
        Some(&bytes.bytes()[at..at + LINE_SIZE as usize])
    }

    /// Whether it can be dropped now.
    fn may_go(&self) -> bool {
        match self.state {
            ChunkState::Planned => self.waiting.is_empty(),
            ChunkState::OnItsWay => false,
            ChunkState::Here(_) => true,
        }
    }
}

/// What reading ahead has of a copy.
pub(super) enum ReadAhead<'a> {
    /// Its bytes, as its checksum says.
    Here(&'a [u8]),
    /// The read waits for it.
    OnItsWay,
    /// Nothing.
    No,
}

impl Stream {
    /// Less than half of what reads have passed by was used by them.
    fn does_not_pay(&self) -> bool {
        let to_come = u64::from(self.ahead.saturating_sub(self.cursor));
        let passed = self.read_ahead.saturating_sub(to_come);
        passed >= JUDGED_FROM_LINES && self.used * 2 < passed
    }

    /// Whether it is a run of its sequence.
    fn has_served(&self) -> bool {
        self.read_ahead > 0 || self.used > 0
    }

    /// Its last place was asked for. What was read ahead may still be wanted.
    fn is_at_end(&self) -> bool {
        self.cursor >= self.places
    }

    fn is_near(&self, place: u32) -> bool {
        let from = self.cursor.saturating_sub(PLACES_OFF_MAX);
        (from..self.ahead.max(self.cursor) + PLACES_OFF_MAX).contains(&place)
    }
}

impl Prefetch {
    /// Whether sequences are followed.
    pub(super) fn is_serving(&self) -> bool {
        !self.is_stopped
    }

    pub(super) fn serve(&mut self, on: bool) {
        self.is_stopped = !on;
    }

    /// Memory that holds what was read ahead, in bytes.
    pub(super) fn bytes_held(&self) -> u64 {
        u64::from(self.slots_held) * LINE_SIZE
    }

    /// Whether nothing is read ahead at the moment.
    pub(super) fn is_idle(&self) -> bool {
        self.chunks.iter().all(|chunk| matches!(chunk.state, ChunkState::Here(_)))
    }

    fn holds(&self, slot: CopySlot) -> bool {
        self.chunks.iter().any(|chunk| chunk.holds(slot))
    }

    /// Drops chunks that are not on their way, except those that `keep` wants.
    fn drop_chunks(&mut self, keep: impl Fn(&Chunk) -> bool) {
        let slots_held = &mut self.slots_held;
        self.chunks.retain(|chunk| {
            let is_kept = !chunk.may_go() || keep(chunk);
            *slots_held -= if is_kept { 0 } else { chunk.slots };
            is_kept
        });
    }

    /// Drops the chunk that is missed least, if there is one: all of it was used, or the reads have
    /// passed it by. What they have passed by they may still come to, so it stays as long as there
    /// is room.
    fn drop_one(&mut self) -> bool {
        let is_passed_by = |chunk: &Chunk| {
            let stream = self.streams.iter().find(|stream| stream.id == chunk.stream);
            stream.is_none_or(|stream| {
                stream.is_at_end() || chunk.end_place + PLACES_OFF_MAX <= stream.cursor
            })
        };
        let chunks = || self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.may_go());
        let used = chunks().find(|(_, chunk)| chunk.used >= chunk.slots);
        let dropped = used.or_else(|| chunks().find(|(_, chunk)| is_passed_by(chunk)));
        let Some((index, _)) = dropped else { return false };
        let chunk = self.chunks.remove(index).expect("found");
        self.slots_held -= chunk.slots;
        true
    }
}

impl Engine {
    /// Steps 1 and 2, for a read that has come.
    pub(super) fn follow_sequences(&mut self, range: LbaRange) {
        let is_off = self.config.read_ahead_bytes == 0 || self.prefetch.is_stopped;
        if is_off || self.has_no_use_for_copies() {
            return;
        }
        if self.copies.sequences().next().is_none() {
            return;
        }
        if self.prefetch.streams.len() == STREAMS_MAX {
            self.end_streams(Stream::is_at_end);
        }
        let mut followed = [0u32; STREAMS_MAX];
        for (line, _) in range.lines() {
            self.follow_line(line, &mut followed);
        }
        let now = self.now;
        let mut best: Option<(u32, u64, StreamId)> = None;
        let mut goes_on = [None; STREAMS_MAX];
        for (index, stream) in self.prefetch.streams.iter_mut().enumerate() {
            let lines = followed[index];
            stream.reads_off = if lines > 0 { 0 } else { stream.reads_off + 1 };
            if lines == 0 {
                continue;
            }
            stream.last = now;
            if !stream.is_at_end() {
                goes_on[index] = Some(stream.sequence);
            }
            if best.is_none_or(|(most, hits, _)| (lines, stream.own_hits) > (most, hits)) {
                best = Some((lines, stream.own_hits, stream.id));
            }
        }
        // A sequence that has been read to its end and is being read once more.
        let streams = &self.prefetch.streams;
        let best = best.and_then(|(.., id)| streams.iter().find(|stream| stream.id == id));
        let best = best.map(|best| {
            let is_once_more = |other: &Option<SequenceId>| *other == Some(best.sequence);
            let once_more = goes_on.iter().position(is_once_more).filter(|_| best.is_at_end());
            once_more.map_or(best.id, |index| streams[index].id)
        });
        self.end_streams(|stream| {
            stream.reads_off > READS_OFF_MAX
                || stream.does_not_pay()
                || now.since(stream.last) > PAUSE_MAX
        });
        if let Some(id) = best {
            self.read_ahead(id);
        }
        // Now that what the read itself asks for is planned: from here on it need not be.
        let mut ended = Vec::new();
        for (line, _) in range.lines() {
            let places = self.copies.places(line).filter_map(|slot| self.copies.place_of(slot));
            for (sequence, place) in places {
                let Prefetch { asked, streams, .. } = &mut self.prefetch;
                if asked.get_mut(&sequence).is_some_and(|asked| asked.note(place)) {
                    for stream in streams.iter_mut().filter(|stream| stream.sequence == sequence) {
                        stream.ahead = stream.ahead.min(stream.cursor);
                        // It is being read once more: what was until now is a run.
                        if stream.has_served() {
                            let (read_ahead, used) = (stream.read_ahead, stream.used);
                            (stream.read_ahead, stream.used) = (0, 0);
                            ended.push((sequence, read_ahead, used));
                        }
                    }
                }
            }
        }
        for (sequence, read_ahead, used) in ended {
            if let Some(sequence) = self.copies.sequence_mut(sequence) {
                sequence.run_ended(read_ahead, used);
            }
        }
    }

    /// Moves the streams that a read of this line continues, and begins those that it begins.
    /// Counts the line for each of them.
    fn follow_line(&mut self, line: Line, followed: &mut [u32; STREAMS_MAX]) {
        // Also where the copy is stale: the line has its place in the order all the same.
        let places: Vec<(SequenceId, u32)> =
            self.copies.places(line).filter_map(|slot| self.copies.place_of(slot)).collect();
        if places.is_empty() {
            return;
        }
        let mut continued = [None; 2];
        for (index, stream) in self.prefetch.streams.iter_mut().enumerate() {
            let mine = places.iter().find(|(id, at)| *id == stream.sequence && stream.is_near(*at));
            if let Some((_, place)) = mine {
                stream.cursor = stream.cursor.max(place + 1);
                followed[index] += 1;
                continued = [Some(index), continued[0]];
            }
        }
        if let [Some(only), None] = continued {
            self.prefetch.streams[only].own_hits += 1;
        }
        for (sequence, place) in places {
            let streams = &self.prefetch.streams;
            let is_followed =
                streams.iter().any(|stream| stream.sequence == sequence && stream.is_near(place));
            if is_followed {
                continue;
            }
            let is_before = |seen: &(SequenceId, u32)| {
                seen.0 == sequence && seen.1 < place && place - seen.1 <= PLACES_APART_MAX
            };
            let begins = place < PLACES_AT_START || self.prefetch.seen.iter().any(is_before);
            if begins && self.begin_stream(sequence, place) {
                followed[self.prefetch.streams.len() - 1] = 1;
                continue;
            }
            self.prefetch.seen.push_back((sequence, place));
            if self.prefetch.seen.len() > SEEN_MAX {
                self.prefetch.seen.pop_front();
            }
        }
    }

    /// Begins a stream, if there is room for it and its sequence pays.
    fn begin_stream(&mut self, sequence: SequenceId, place: u32) -> bool {
        let streams = &self.prefetch.streams;
        let is_other = |stream: &&Stream| stream.sequence == sequence && !stream.is_at_end();
        let others = streams.iter().filter(is_other).count();
        // A program with threads is in several places at a time.
        if streams.len() == STREAMS_MAX || others == STREAMS_OF_SEQUENCE_MAX {
            return false;
        }
        let may_start = |sequence: &mut Sequence| sequence.may_start();
        if others == 0 && !self.copies.sequence_mut(sequence).is_some_and(may_start) {
            return false;
        }
        let places = self.copies.sequence(sequence).map_or(0, Sequence::places);
        let id = StreamId(self.prefetch.next_stream);
        self.prefetch.next_stream += 1;
        self.prefetch.asked.entry(sequence).or_default();
        self.prefetch.streams.push(Stream {
            id,
            sequence,
            places,
            cursor: place,
            ahead: place,
            window: WINDOW_MIN,
            read_ahead: 0,
            used: 0,
            own_hits: 0,
            reads_off: 0,
            last: self.now,
        });
        true
    }

    /// Step 4, for the streams that `has_ended`.
    fn end_streams(&mut self, has_ended: impl Fn(&Stream) -> bool) {
        let copies = &self.copies;
        let is_over =
            |stream: &Stream| copies.sequence(stream.sequence).is_none() || has_ended(stream);
        // It is asked with each input, and mostly none has.
        if !self.prefetch.streams.iter().any(is_over) {
            return;
        }
        let (gone, kept) =
            std::mem::take(&mut self.prefetch.streams).into_iter().partition::<Vec<_>, _>(is_over);
        self.prefetch.streams = kept;
        for stream in &gone {
            if let Some(sequence) = self.copies.sequence_mut(stream.sequence)
                && stream.has_served()
            {
                sequence.run_ended(stream.read_ahead, stream.used);
            }
        }
        let Prefetch { streams, asked, chunks, .. } = &mut self.prefetch;
        // What it has read ahead another one of the sequence has passed over, and counts on.
        for chunk in chunks.iter_mut() {
            if let Some(ended) = gone.iter().find(|ended| ended.id == chunk.stream)
                && let Some(other) = streams.iter().find(|one| one.sequence == ended.sequence)
            {
                chunk.stream = other.id;
            }
        }
        asked.retain(|sequence, _| streams.iter().any(|stream| stream.sequence == *sequence));
        let mut alive = [None; STREAMS_MAX];
        for (alive, stream) in alive.iter_mut().zip(&self.prefetch.streams) {
            *alive = Some(stream.id);
        }
        self.prefetch.drop_chunks(|chunk| alive.contains(&Some(chunk.stream)));
    }

    /// How often a sequence was served, and lines that reads had from it: what its label counts,
    /// and what has not ended yet.
    pub fn runs_of(&self, sequence: &Sequence) -> (u32, u64) {
        let label = sequence.label();
        let streams = self.prefetch.streams.iter();
        let mut runs = (label.runs, label.lines_served);
        for stream in streams.filter(|it| it.sequence == label.id && it.has_served()) {
            runs = (runs.0.saturating_add(1), runs.1.saturating_add(stream.used));
        }
        runs
    }

    /// All streams end: the cache does.
    pub(super) fn end_reading_ahead(&mut self) {
        self.end_streams(|_| true);
    }

    /// A sequence is about to be removed.
    pub(super) fn forget_streams_of(&mut self, id: SequenceId) {
        self.end_streams(|stream| stream.sequence == id);
        self.prefetch.seen.retain(|(known, _)| *known != id);
    }

    /// Streams that nobody has followed for a while end, whatever is read elsewhere or not at all.
    pub(super) fn end_paused_streams(&mut self) -> bool {
        let now = self.now;
        let before = self.prefetch.streams.len();
        if before > 0 {
            self.end_streams(|stream| now.since(stream.last) > PAUSE_MAX);
        }
        self.prefetch.streams.len() < before
    }

    pub(super) fn prefetch_wake_up(&self) -> Option<Time> {
        let last = self.prefetch.streams.iter().map(|stream| stream.last).min()?;
        Some(last.after(Duration(PAUSE_MAX.0 + 1)))
    }

    /// Step 2: keeps the window of a stream full.
    fn read_ahead(&mut self, stream_id: StreamId) {
        let slots_max = (self.config.read_ahead_bytes / LINE_SIZE) as u32;
        let index = self.prefetch.streams.iter().position(|stream| stream.id == stream_id);
        let Some(index) = index else { return };
        let stream = &self.prefetch.streams[index];
        let (id, cursor, window) = (stream.sequence, stream.cursor, stream.window);
        // Also what reads have passed over: they will come to it.
        let ahead = stream.ahead;
        // The last window was half as large: more is read when half of that was used.
        if ahead >= cursor + window / 4 && stream.read_ahead > 0 {
            return;
        }
        let slots_per_read = match self.config.one_disk {
            true => SLOTS_PER_READ_OF_ONE_ARM,
            false => SLOTS_PER_READ,
        };
        let to = cursor + window;
        let mut run: Option<(u32, u32)> = None;
        let mut place = ahead;
        while place < to {
            let slot = self.copies.sequence(id).and_then(|sequence| sequence.slot(place));
            let Some(slot) = slot else { break };
            let is_wanted = self.copies.slot(slot).state == SlotState::Valid
                && !self.prefetch.asked.get(&id).is_some_and(|asked| asked.has(place))
                && !self.prefetch.holds(slot);
            if is_wanted {
                let planned = run.map_or(0, |(first, end)| end - first);
                // Step 3: what was passed by goes when there is no room for more.
                if self.prefetch.slots_held + planned >= slots_max && !self.prefetch.drop_one() {
                    break;
                }
                match run {
                    Some((first, end))
                        if slot.0 >= end
                            // The next page lies elsewhere.
                            && slot.0 / COPIES_PER_PAGE == first / COPIES_PER_PAGE
                            && slot.0 - end <= GAP_SLOTS
                            && slot.0 - first < slots_per_read =>
                    {
                        run = Some((first, slot.0 + 1));
                    }
                    _ => {
                        self.plan_chunk(stream_id, run, place);
                        run = Some((slot.0, slot.0 + 1));
                    }
                }
            }
            place += 1;
        }
        self.plan_chunk(stream_id, run, place);
        let stream = &mut self.prefetch.streams[index];
        stream.ahead = place.max(stream.ahead);
        stream.window = (window * 2).min((slots_max / 4).max(WINDOW_MIN));
        self.start_chunks();
    }

    fn plan_chunk(&mut self, stream: StreamId, run: Option<(u32, u32)>, end: u32) {
        let Some((first, end_slot)) = run else { return };
        let id = ChunkId(self.prefetch.next_chunk);
        self.prefetch.next_chunk += 1;
        let (first, slots) = (CopySlot(first), end_slot - first);
        self.prefetch.slots_held += slots;
        self.prefetch.chunks.push_back(Chunk {
            id,
            stream,
            end_place: end,
            first,
            slots,
            state: ChunkState::Planned,
            used: 0,
            waiting: Vec::new(),
        });
    }

    /// Reads what is planned: what a read waits for at once, the rest in order, a few at a time.
    pub(super) fn start_chunks(&mut self) {
        let is_on_its_way = |chunk: &&Chunk| matches!(chunk.state, ChunkState::OnItsWay);
        let mut in_flight = self.prefetch.chunks.iter().filter(is_on_its_way).count();
        for index in 0..self.prefetch.chunks.len() {
            let chunk = &mut self.prefetch.chunks[index];
            let is_planned = matches!(chunk.state, ChunkState::Planned);
            let is_full = in_flight >= READS_IN_FLIGHT_MAX && !self.config.one_disk;
            if !is_planned || is_full && chunk.waiting.is_empty() {
                continue;
            }
            chunk.state = ChunkState::OnItsWay;
            in_flight += 1;
            let (id, first, slots, stream) = (chunk.id, chunk.first, chunk.slots, chunk.stream);
            self.counters.read_ahead_lines += u64::from(slots);
            let mut streams = self.prefetch.streams.iter_mut();
            if let Some(stream) = streams.find(|one| one.id == stream) {
                stream.read_ahead += u64::from(slots);
            }
            let offset = self.superblock.geometry.copy_slot_offset(first);
            let length = u64::from(slots) * LINE_SIZE;
            self.start_read(Disk::CacheDisk, offset, length, Purpose::ReadAhead(id));
        }
    }

    /// Step 3: what was read ahead has come.
    pub(super) fn read_ahead_done(
        &mut self,
        id: ChunkId,
        result: Result<(), IoError>,
        bytes: Option<Buffer>,
    ) {
        let index = self.prefetch.chunks.iter().position(|chunk| chunk.id == id);
        // Out of the way first: a read that has to look again must not wait here once more.
        let mut chunk = index
            .and_then(|index| self.prefetch.chunks.remove(index))
            .expect("a chunk on its way stays");
        let bytes = bytes.filter(|_| result.is_ok());
        for (request, slot, part) in std::mem::take(&mut chunk.waiting) {
            let at = (slot.0 - chunk.first.0) as usize * LINE_SIZE as usize;
            let piece = bytes.as_ref().map(|bytes| &bytes.bytes()[at..at + LINE_SIZE as usize]);
            self.copies_read(request, &[part], piece);
        }
        let mut streams = self.prefetch.streams.iter();
        let is_followed = streams.any(|stream| stream.id == chunk.stream);
        match bytes.filter(|_| is_followed) {
            Some(bytes) => {
                chunk.state = ChunkState::Here(bytes);
                self.prefetch.chunks.push_back(chunk);
            }
            None => self.prefetch.slots_held -= chunk.slots,
        }
        self.start_chunks();
    }

    /// The copy of a line to be read, of several the best: one that was read ahead, else the
    /// nearest to where the head of the cache-disk is. With one arm for both disks, only what was
    /// read ahead is worth it.
    pub(super) fn copy_to_read(&self, line: Line) -> Option<CopySlot> {
        if self.has_no_use_for_copies() {
            return None;
        }
        let mut best = None;
        for slot in self.copies.valid(line) {
            if self.prefetch.holds(slot) {
                return Some(slot);
            }
            let distance = self.copy_distance(slot);
            if best.is_none_or(|(least, _)| distance < least) {
                best = Some((distance, slot));
            }
        }
        best.filter(|_| !self.config.one_disk).map(|(_, slot)| slot)
    }

    /// How far a slot is from where the last copy was read, in bytes.
    fn copy_distance(&self, slot: CopySlot) -> u64 {
        let offset = |slot| self.superblock.geometry.copy_slot_offset(slot);
        offset(slot).abs_diff(offset(self.last_copy_read))
    }

    /// Takes a copy from what was read ahead, or waits for it there.
    pub(super) fn take_read_ahead(
        &mut self,
        id: RequestId,
        slot: CopySlot,
        part: &CopyPart,
    ) -> ReadAhead<'_> {
        self.last_copy_read = slot;
        let counters = &mut self.counters;
        let Prefetch { chunks, streams, .. } = &mut self.prefetch;
        let Some(chunk) = chunks.iter_mut().find(|chunk| chunk.holds(slot)) else {
            return ReadAhead::No;
        };
        let is_right = |bytes: &[u8]| crc32c(bytes) == part.checksum;
        // It may have been copied anew since it was read ahead.
        if chunk.bytes_of(slot).is_some_and(|bytes| !is_right(bytes)) {
            return ReadAhead::No;
        }
        if let Some(stream) = streams.iter_mut().find(|stream| stream.id == chunk.stream) {
            stream.used += 1;
        }
        counters.read_ahead_used_lines += 1;
        chunk.used += 1;
        if !matches!(chunk.state, ChunkState::Here(_)) {
            chunk.waiting.push((id, slot, *part));
            return ReadAhead::OnItsWay;
        }
        ReadAhead::Here(chunk.bytes_of(slot).expect("looked at"))
    }
}
