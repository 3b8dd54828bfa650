//! Checkpoints: when, and in which order.
//!
//! ```text
//! 1. Seal the open record: a start with this checkpoint replays the records from here on. Take a
//!    picture of all that is small, and gather the index a part at a time ([`super::gather`]):
//!    requests go on meanwhile.
//! 2. Make every record durable that there is at the end of that. Else the picture could speak of
//!    slots that never were, or lack what only a record that never was had overwritten.
//! 3. Write the copy pages that have changed to their older places, and flush, if there are any.
//!    Else a start could find a checkpoint that names a page which is not there, and with it the
//!    sequence. Then write it to the older area, the header last.
//!                                   Crash here: the newer one is still whole, and what it names.
//! 4. Flush.                         Crash here: one or the other is found, both are true.
//! 5. A start follows the log from here on: what is empty and was filled before may be announced
//!    ([`super::announce`]). The segments that it lists as free may be filled. Only now: nothing
//!    that a recovery could need speaks of them any more (C13, trap 1 of the design).
//! ```
//! It lists empty segments as free only where no record may announce them: at a start and an end,
//! when the cache is empty, or when the log has no room for a record. Those that list
//! nothing make the cache-disk clean: [`super::log_use`].

use super::{Engine, Phase, Purpose};
use crate::buffer::Buffer;
use crate::copies::PageWrite;
use crate::engine::Disk;
use crate::engine::gather::{Gathering, Progress};
use crate::format::Geometry;
use crate::format::checkpoint::{
    Checkpoint, CheckpointWriter, Ending, HEADER_SIZE, ITEM_SIZE, LiveSlot, LogPosition,
};
use crate::format::end_mark::{self, END_MARK_BYTES};
use crate::io::{IoError, RequestError, RequestId};
use crate::log::index_run::{IndexRun, RunBuilder};
use crate::log::lookup_table::Walker;
use crate::units::{Duration, RecordNumber, SegmentIndex, SegmentSerial, Time};

/// What comes in goes between two parts of what takes long, and for a driver time must pass.
pub(super) const PAUSE: Duration = Duration::from_micros(1);
/// So many times the index is logged until it is written again: it makes an eighth of that.
const LOG_FOR_INDEX: u64 = 8;
/// The same of a full log: for each byte logged the cache-disk writes 1.07 at most.
const LOG_FOR_INDEX_WHEN_FULL: u64 = 16;
/// Writes of a checkpoint under way with which no more of it is gathered.
const GATHERED_WRITES_MAX: u32 = 8;

/// An I/O of a checkpoint.
pub(super) enum Step {
    Write,
    Flush,
    /// One copy of the superblock that tells of another size of the log.
    Superblock {
        is_second: bool,
    },
}

/// The checkpoint under way, if any.
#[derive(Default)]
pub(super) struct Checkpointing {
    state: State,
    /// Generation of the newest durable one.
    pub(super) generation: u64,
    /// The session, for those that follow.
    pub(super) epoch: u64,
    /// Where the log was at the last picture.
    last_serial: SegmentSerial,
    /// Make one even if nothing asks for it.
    forced: bool,
    /// One is due, and begins when the zeroes that are on their way are there: the rest of them
    /// waits, or readers that hold it back would hold back the checkpoint for as long as they like.
    waits_for_zeroes: bool,
    /// One is due, and begins when the pages of the read area that are on their way are there: no
    /// more are written before.
    pub(super) waits_for_pages: bool,
    /// Those who wait for the next that is begun, and for the one under way.
    waiting: [Vec<RequestId>; 2],
    /// Writes of it that have not ended, and whether one has failed.
    writes_left: u32,
    write_failed: bool,
    /// The cache-disk has failed since the flush under way was started: it proves nothing.
    is_distrusted: bool,
    /// One that listed empty segments as free has failed, and a start may find it all the same.
    has_listed_in_vain: bool,
    /// What was found damaged, and is in no durable checkpoint.
    unlisted: UnlistedDamage,
}

/// Damage that only a checkpoint can tell a start of.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum UnlistedDamage {
    #[default]
    None,
    /// The checkpoint under way lists it.
    InPicture,
    Some,
}

#[derive(Default)]
enum State {
    #[default]
    None,
    Gathering(Box<Picture>, Box<Gathering>),
    WaitDurable(Box<Picture>, Ending),
    /// Its copy pages, and then a flush, with what is written behind that; or that.
    Writing(Box<Picture>, Option<Ending>),
    Flushing(Box<Picture>, Option<Ending>),
    /// It is durable, and counts when both copies of the superblock are that name it
    /// ([`super::resize`]): which is written next, and whether it is under way.
    Telling(Box<Picture>, Telling),
    /// It counts no more, and another may be begun when its writes have ended.
    Dropped,
}

#[derive(Clone, Copy)]
struct Telling {
    is_second: bool,
    is_under_way: bool,
}

struct Picture {
    /// What it lists; the index is gathered.
    listed: Checkpoint,
    /// Its area.
    offset: u64,
    /// Copy pages that it names and that are not on the disk yet.
    pages: Vec<PageWrite>,
    /// They are, by a flush.
    pages_are_flushed: bool,
    reusable: Vec<SegmentIndex>,
    /// The log has another size with it.
    size: Option<Geometry>,
    /// It counts when all records up to this one are durable.
    after: RecordNumber,
    /// It listed nothing when it was begun.
    is_empty: bool,
    /// What is read of it, within a budget.
    run: Option<IndexRun>,
}

impl Checkpointing {
    /// None is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        matches!(self.state, State::None)
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::None) && !self.forced
    }

    /// Generation of the newest that was begun: what is listed from now on is in later ones.
    pub(super) fn begun(&self) -> u64 {
        self.generation + u64::from(!matches!(self.state, State::None | State::Dropped))
    }

    /// Whether the index is being gathered.
    pub(super) fn is_gathering(&self) -> bool {
        matches!(self.state, State::Gathering(..))
    }

    /// Whether somebody asked for it.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.iter().any(|waiting| !waiting.is_empty())
    }

    /// What it takes over from the one before has been read.
    pub(super) fn run_came(&mut self) {
        if let State::Gathering(_, gathering) = &mut self.state {
            gathering.run_came();
        }
    }

    /// What happens comes from outside: a part may be gathered again.
    pub(super) fn input_came(&mut self) {
        if let State::Gathering(_, gathering) = &mut self.state {
            gathering.go_on();
        }
    }

    /// Nothing of the checkpoint under way counts, and its header is not on its way: it is begun
    /// anew. Tells whether there was one.
    fn drop_unwritten(&mut self) -> bool {
        let is_unwritten = matches!(self.state, State::Gathering(..) | State::WaitDurable(..));
        if is_unwritten {
            self.state = if self.writes_left == 0 { State::None } else { State::Dropped };
            self.forced = true;
        }
        is_unwritten
    }

    /// A write or flush of the cache-disk has failed. With it may be gone what had been written of
    /// a checkpoint, and no later flush tells (C22): it is made anew. One whose header is not on
    /// its way yet is dropped when the records are logged again ([`super::log_again`]), and does
    /// not go on before.
    pub(super) fn cache_disk_failed(&mut self) {
        match &mut self.state {
            State::Writing(..) if self.writes_left == 0 => self.fail(),
            State::Writing(..) => self.write_failed = true,
            State::Flushing(..) => self.is_distrusted = true,
            // What was flushed is durable.
            State::None
            | State::Gathering(..)
            | State::WaitDurable(..)
            | State::Telling(..)
            | State::Dropped => {}
        }
    }

    /// The area holds nothing that counts: another picture goes there.
    fn fail(&mut self) {
        let state = std::mem::take(&mut self.state);
        if let State::Writing(picture, _) | State::Flushing(picture, _) = state {
            self.has_listed_in_vain |= !picture.reusable.is_empty();
        }
        self.forced = true;
    }

    /// Whether zeroes that are not on their way yet have to wait.
    pub(super) fn goes_before_zeroes(&self) -> bool {
        self.is_gathering() || self.waits_for_zeroes
    }

    pub(super) fn force(&mut self) {
        self.forced = true;
    }

    /// A line has left the table because it is damaged: no record says so.
    pub(super) fn found_damage(&mut self) {
        self.unlisted = UnlistedDamage::Some;
    }

    /// Whether what a record announces would be filled in the order in which a start with any
    /// checkpoint finds it, and nothing that was found damaged would be forgotten by it.
    pub(super) fn lets_announce(&self) -> bool {
        let picture = match &self.state {
            State::None | State::Dropped => None,
            State::Gathering(picture, _)
            | State::WaitDurable(picture, _)
            | State::Writing(picture, _)
            | State::Flushing(picture, _)
            | State::Telling(picture, _) => Some(picture),
        };
        picture.is_none_or(|picture| picture.reusable.is_empty())
            && !self.has_listed_in_vain
            && self.unlisted == UnlistedDamage::None
    }

    /// Whether copy pages are on their way for that under way.
    pub(super) fn is_writing_pages(&self) -> bool {
        matches!(self.state, State::Writing(_, Some(_)))
    }

    /// Whether that under way has made all copy pages durable that it names.
    fn has_flushed_pages(&self) -> bool {
        match &self.state {
            State::None | State::Dropped | State::Gathering(..) => false,
            State::WaitDurable(picture, _)
            | State::Writing(picture, _)
            | State::Flushing(picture, _)
            | State::Telling(picture, _) => picture.pages_are_flushed,
        }
    }

    /// Whether pages that were moved before, for the size that it tells of, are durable.
    pub(super) fn has_flushed_moved_pages(&self) -> bool {
        self.tells_of_size() && self.has_flushed_pages()
    }

    /// Whether that under way tells of another size of the log.
    pub(super) fn tells_of_size(&self) -> bool {
        match &self.state {
            State::None | State::Dropped => false,
            State::Gathering(picture, _)
            | State::WaitDurable(picture, _)
            | State::Writing(picture, _)
            | State::Flushing(picture, _)
            | State::Telling(picture, _) => picture.size.is_some(),
        }
    }

    /// Whether that under way makes one of these segments free.
    pub(super) fn frees(&self, is_one: impl Fn(SegmentIndex) -> bool) -> bool {
        match &self.state {
            State::None | State::Dropped => false,
            State::Gathering(picture, _)
            | State::WaitDurable(picture, _)
            | State::Writing(picture, _)
            | State::Flushing(picture, _)
            | State::Telling(picture, _) => picture.reusable.iter().copied().any(is_one),
        }
    }

    /// The same, for somebody who wants to know when it is durable.
    pub(super) fn force_for(&mut self, id: RequestId) {
        self.forced = true;
        self.waiting[0].push(id);
    }
}

impl Engine {
    pub(super) fn advance_checkpoint(&mut self) -> bool {
        if self.log_is_given_up() || self.log_again.is_wanted() {
            return false;
        }
        // As mostly: nothing is taken out and put back for it.
        if matches!(self.checkpoint.state, State::None) {
            return self.begin_checkpoint_if_due();
        }
        let is_wanted = self.checkpoint.is_gathering() && self.someone_waits_for_run();
        let logged = self.counters.logged_lines;
        match std::mem::take(&mut self.checkpoint.state) {
            State::Gathering(picture, gathering)
                if gathering.may_go_on(self.now, logged, is_wanted)
                    && self.checkpoint.writes_left < GATHERED_WRITES_MAX =>
            {
                self.gather_index(picture, gathering);
                true
            }
            State::WaitDurable(picture, ending) if self.log.durable_record() >= picture.after => {
                match picture.pages_are_flushed {
                    true => self.write_picture(picture, ending),
                    false => self.write_pages(picture, ending),
                }
                true
            }
            State::Writing(picture, behind)
                if self.checkpoint.writes_left == 0 && !self.checkpoint.write_failed =>
            {
                self.checkpoint.state = State::Flushing(picture, behind);
                self.checkpoint.is_distrusted = false;
                self.start_flush(Disk::CacheDisk, Purpose::Checkpoint(Step::Flush));
                true
            }
            State::Telling(picture, telling) if !telling.is_under_way => {
                self.write_size(telling.is_second);
                let telling = Telling { is_under_way: true, ..telling };
                self.checkpoint.state = State::Telling(picture, telling);
                true
            }
            other => {
                self.checkpoint.state = other;
                false
            }
        }
    }

    fn begin_checkpoint_if_due(&mut self) -> bool {
        // Asked each time: it notes since when the cache is empty.
        let clean_is_due = self.clean_checkpoint_is_due();
        let due = clean_is_due
            || self.checkpoint.forced
            || self.checkpoint_is_due()
            || self.table.wants_checkpoint()
            || self.zero_ranges_want_checkpoint()
            || self.copies.wants_checkpoint();
        let begins = due && self.may_gather() && !self.is_moving_pages();
        self.checkpoint.waits_for_pages = due && self.is_moving_pages();
        // Where anything else is in the way, too, they may go on.
        let is_free = !self.purge.is_under_way() && !self.table.is_evicting();
        self.checkpoint.waits_for_zeroes =
            due && !begins && is_free && self.destage.zeroes_under_way();
        if begins {
            self.begin_checkpoint();
        }
        begins
    }

    fn checkpoint_is_due(&self) -> bool {
        let counts = self.log.segments.counts();
        let total = self.log.segments.limit();
        let since = self.log.newest_serial().0 - self.checkpoint.last_serial.0;
        let someone_waits = self.someone_waits_for_destaging();
        let few = self.few_segments();
        let is_full = self.log_is_full();
        let is_long_ago = since >= self.checkpoint_segments(is_full).max(2);
        // Of a large log a checkpoint lists a part.
        let listed_free = self.config.limits.listed_free;
        let few_listed = u32::try_from(listed_free - listed_free / 4).unwrap_or(u32::MAX);
        let few_free = counts.free <= few.min(few_listed) || someone_waits;
        // What a record can say, or has said, needs no checkpoint.
        let few_free = few_free && self.log.announced().len() == 0 && !self.can_announce();
        // With writers waiting, one segment is worth it; else several, or checkpoints would come
        // one after the other while the cache is nearly full.
        let empty = self.log.segments.empty_in_use();
        let worth_it =
            empty >= (total / 32).max(2) || empty > 0 && (someone_waits || self.table.lines() == 0);
        is_long_ago || few_free && worth_it && !self.log.segments.reusable(1).is_empty()
    }

    fn few_segments(&self) -> u32 {
        (self.log.segments.limit() / 16).max(3)
    }

    /// Whatever is logged takes the place of something else, or soon will.
    fn log_is_full(&self) -> bool {
        self.log.segments.usable() <= self.few_segments() || self.someone_waits_for_destaging()
    }

    /// With so many segments filled since the last, a checkpoint is due: while the log has room, so
    /// that a start reads little; when it is full, and whatever is logged takes the place of
    /// something else, so that the cache-disk writes little more than the log.
    fn checkpoint_segments(&self, is_full: bool) -> u64 {
        let part = u64::from(self.log.segments.limit() / self.config.limits.checkpoint_part);
        let index_bytes = self.table.lines() as u64 * ITEM_SIZE as u64;
        let log_bytes = match is_full {
            true => index_bytes * LOG_FOR_INDEX_WHEN_FULL,
            false => index_bytes * LOG_FOR_INDEX,
        };
        let log_bytes = log_bytes.max(self.config.limits.checkpoint_log_bytes);
        part.min(log_bytes / self.superblock.geometry.segment_size_bytes)
    }

    /// The checkpoint under way is made anew if its header is not on its way yet.
    pub(super) fn drop_checkpoint(&mut self) {
        if self.checkpoint.drop_unwritten() {
            self.table.end_walk(Walker::Checkpoint);
            self.end_scan(Walker::Checkpoint);
            self.table.checkpoint_dropped();
            self.zeroes_rebuilt.picture_dropped();
        }
    }

    /// The same of one that tells of another size; tells whether it was.
    pub(super) fn drop_checkpoint_of_size(&mut self) -> bool {
        let is_unwritten =
            matches!(self.checkpoint.state, State::Gathering(..) | State::WaitDurable(..));
        if is_unwritten {
            self.drop_checkpoint();
        }
        is_unwritten
    }

    /// The rest of the index is gathered by and by, if nothing else happens.
    pub(super) fn gathering_wake_up(&self) -> Option<Time> {
        let State::Gathering(_, gathering) = &self.checkpoint.state else { return None };
        let may_go_on = !self.health.cache_disk_failed()
            && !self.log_again.is_wanted()
            && self.checkpoint.writes_left < GATHERED_WRITES_MAX;
        if !may_go_on {
            return None;
        }
        gathering.wake_up(self.now, self.someone_waits_for_run())
    }

    /// Zeroes that get to the data-disk while the index is gathered would still be listed, above
    /// lines that were destaged meanwhile and that the index lacks. So they wait; a small index is
    /// gathered at once.
    fn may_gather(&self) -> bool {
        if self.purge.is_under_way() {
            return false;
        }
        if self.table.is_evicting() {
            return false;
        }
        let is_at_once = !self.table.has_budget();
        is_at_once && self.table.lines() <= self.config.limits.checkpoint_lines
            || !self.destage.zeroes_under_way()
    }

    /// Step 1.
    fn begin_checkpoint(&mut self) {
        self.checkpoint.forced = false;
        let [next, this] = &mut self.checkpoint.waiting;
        this.append(next);
        self.log.seal();
        let mut free = self.log.segments.free().clone();
        free.extend(self.log.announced());
        let mut reusable = Vec::new();
        let size = self.resize.geometry_to_list();
        if !self.may_announce() && size.is_none() {
            let most = match self.someone_waits_for_destaging() {
                true => usize::MAX,
                false => self.config.limits.listed_free.saturating_sub(free.len()),
            };
            reusable = self.log.segments.reusable(most);
        }
        free.extend(&reusable);
        let position = self.log.position(&mut free);
        let (copy_pages, pages) = self.copies.picture();
        let writer = CheckpointWriter::new(free.make_contiguous());
        let listed = Checkpoint {
            generation: self.checkpoint.generation + 1,
            copy_pages,
            ..self.small_picture(position)
        };
        self.zeroes_rebuilt.picture_taken();
        self.log.segments.checkpoint_begun();
        self.checkpoint.last_serial = self.log.newest_serial();
        if self.checkpoint.unlisted == UnlistedDamage::Some {
            self.checkpoint.unlisted = UnlistedDamage::InPicture;
        }
        self.table.begin_walk(Walker::Checkpoint);
        self.table.checkpoint_begun();
        let lists_others = !listed.zeroes.is_empty() || !listed.poisoned.is_empty();
        if let Some(since) = self.table.since_checkpoint() {
            since.checkpoint_begun();
            if lists_others {
                since.note_all();
            }
        }
        self.begin_scan(Walker::Checkpoint);
        let geometry = size.unwrap_or(self.superblock.geometry);
        let mark = size.map(|size| self.end_mark_to_list(&size));
        if let (Some(mark), Some(legs)) = (mark, &mut self.legs) {
            legs.extend_end(mark + END_MARK_BYTES as u64);
        }
        let picture = Picture {
            offset: geometry.checkpoint_offsets[listed.area()],
            listed,
            pages_are_flushed: pages.is_empty() && !self.has_moved_pages(),
            pages,
            reusable,
            size,
            after: self.log.newest_record(),
            is_empty: self.cache_is_empty(),
            run: None,
        };
        self.checkpoint.write_failed = false;
        let builder = self.table.budget().map(|budget| {
            let bits = budget.filter_bits_per_line;
            RunBuilder::new(picture.offset, self.table.lines(), bits)
        });
        let is_full = self.log_is_full();
        let progress = Progress::new(
            self.table.lines() as u64,
            self.counters.logged_lines,
            self.checkpoint_segments(is_full),
            self.superblock.geometry.slots_per_segment().into(),
            is_full,
        );
        self.gather_index(Box::new(picture), Box::new(Gathering::new(writer, builder, progress)));
    }

    /// The next part of the index, and when there is no more, the end of step 1.
    fn gather_index(&mut self, mut picture: Box<Picture>, mut gathering: Box<Gathering>) {
        let is_urgent = picture.size.is_some()
            || !picture.reusable.is_empty() && self.someone_waits_for_destaging();
        if self.gather_index_part(&picture.listed.position, &mut gathering, is_urgent) {
            let piece_bytes = self.config.limits.checkpoint_write_bytes;
            while let Some((at, piece)) = gathering.take(piece_bytes, &mut self.buffers) {
                self.write_piece(picture.offset + at, piece);
            }
            self.checkpoint.state = State::Gathering(picture, gathering);
            return;
        }
        // What was destaged meanwhile is compared as it is now.
        picture.listed.witnesses = self.witnesses.list_for_checkpoint();
        self.log.seal();
        picture.after = self.log.newest_record();
        self.want_durable(picture.after);
        let geometry = picture.size.unwrap_or(self.superblock.geometry);
        let ending;
        (ending, picture.run) = gathering.finish(&picture.listed, &geometry);
        self.end_scan(Walker::Checkpoint);
        self.table.checkpoint_gathered();
        self.checkpoint.state = State::WaitDurable(picture, ending);
    }

    /// Zeroes and damage, as they are now. Segments, slots, witnesses and copy pages are left out.
    fn small_picture(&self, position: LogPosition) -> Checkpoint {
        let zeroes = self.zeroes_rebuilt.listed();
        let Checkpointing { generation, epoch, .. } = self.checkpoint;
        Checkpoint {
            order: self.table.order_of_lines(),
            zeroes: zeroes.iter().collect(),
            poisoned: self.poisoned.iter().map(|(line, mask)| (*line, *mask)).collect(),
            ..Checkpoint::without_lists(self.superblock.uuid, generation, epoch, position)
        }
    }

    /// The index as it is now, for tests; free segments and copy pages are left out.
    pub(super) fn index_picture(&self, position: LogPosition) -> Checkpoint {
        let mut live = Vec::new();
        for (line, pieces) in self.table.iter() {
            for (slot, mask) in pieces.as_slice() {
                let checksum = self.table.checksum(*slot);
                live.push(LiveSlot { line, mask: *mask, slot: *slot, checksum });
            }
        }
        let filled = self.log.segments.iter().filter(|(_, segment)| segment.live_slots > 0);
        let filled = filled.map(|(index, segment)| (index, segment.serial())).collect();
        let witnesses = self.witnesses.list();
        Checkpoint { filled, live, witnesses, ..self.small_picture(position) }
    }

    fn write_piece(&mut self, offset: u64, piece: Buffer) {
        self.checkpoint.writes_left += 1;
        self.counters.checkpoint_bytes += piece.bytes().len() as u64;
        self.start_write(Disk::CacheDisk, offset, piece, Purpose::Checkpoint(Step::Write));
    }

    /// Step 3, its copy pages; those that the read area has moved before are flushed with them.
    fn write_pages(&mut self, mut picture: Box<Picture>, ending: Ending) {
        let before = self.superblock.geometry;
        let moves_to = self.pages_move_to();
        for PageWrite { page, generation, bytes } in std::mem::take(&mut picture.pages) {
            if let Some(geometry) = moves_to {
                let bytes = Buffer::copy_of(bytes.bytes());
                self.write_piece(geometry.copy_page_offset(page, generation), bytes);
            }
            // Here the superblock of before looks for them, which counts until the next one does.
            self.write_piece(before.copy_page_offset(page, generation), bytes);
        }
        self.checkpoint.state = State::Writing(picture, Some(ending));
    }

    /// Step 3, the rest.
    fn write_picture(&mut self, picture: Box<Picture>, ending: Ending) {
        if let Some(offset) = picture.size.and_then(|size| self.end_mark_to_write(&size)) {
            self.write_piece(offset, end_mark::encode(self.superblock.uuid));
        }
        let mut rest = ending.bytes.as_slice();
        let mut offset = picture.offset;
        if ending.taken > 0 {
            let (header, payload) = rest.split_at(HEADER_SIZE);
            self.write_piece(offset, Buffer::copy_of(header));
            (rest, offset) = (payload, offset + HEADER_SIZE as u64 + ending.taken);
        }
        for piece in rest.chunks(self.config.limits.checkpoint_write_bytes) {
            let buffer = self.buffers.take_copy(piece);
            self.write_piece(offset, buffer);
            offset += piece.len() as u64;
        }
        self.checkpoint.state = State::Writing(picture, None);
    }

    pub(super) fn checkpoint_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        match (step, &self.checkpoint.state) {
            (Step::Write, _) => {
                self.buffers.put(buffer);
                // One that failed is told below.
                self.checkpoint.writes_left -= 1;
                let is_over = self.checkpoint.writes_left == 0;
                match &self.checkpoint.state {
                    State::Writing(..) if is_over && self.checkpoint.write_failed => {
                        self.checkpoint.fail();
                    }
                    State::Dropped if is_over => self.checkpoint.state = State::None,
                    _ => {}
                }
            }
            (Step::Flush, State::Flushing(..))
                if result.is_ok() && !self.checkpoint.is_distrusted =>
            {
                self.checkpoint_flushed();
            }
            (Step::Superblock { is_second }, State::Telling(..)) => {
                self.size_told(is_second, result.is_ok());
            }
            (Step::Flush, State::Flushing(..)) => self.checkpoint.fail(),
            _ => unreachable!("a checkpoint waits for what it started"),
        }
        if let Err(error) = result {
            self.cache_disk_error(error);
        }
    }

    /// There will be no more.
    pub(super) fn fail_checkpoint_waiters(&mut self) {
        for id in std::mem::take(&mut self.checkpoint.waiting).into_iter().flatten() {
            self.reply(id, Err(RequestError::Io), None);
        }
    }

    fn checkpoint_flushed(&mut self) {
        let State::Flushing(picture, behind) = std::mem::take(&mut self.checkpoint.state) else {
            unreachable!("looked at");
        };
        if let Some(ending) = behind {
            // Its turn comes, unless the log is given up, or its records are to be logged again.
            let picture = Box::new(Picture { pages_are_flushed: true, ..*picture });
            self.checkpoint.state = State::WaitDurable(picture, ending);
            return;
        }
        let Some(size) = picture.size else { return self.checkpoint_durable(picture) };
        self.tell_size(size, picture.listed.generation);
        let telling = Telling { is_second: false, is_under_way: false };
        self.checkpoint.state = State::Telling(picture, telling);
    }

    /// A copy of the superblock was written; again, if that has failed: nobody knows which counts.
    fn size_told(&mut self, is_second: bool, is_durable: bool) {
        let State::Telling(picture, _) = std::mem::take(&mut self.checkpoint.state) else {
            unreachable!("looked at");
        };
        if is_second && is_durable {
            self.size_is_durable();
            return self.checkpoint_durable(picture);
        }
        let telling = Telling { is_second: is_second || is_durable, is_under_way: false };
        self.checkpoint.state = State::Telling(picture, telling);
    }

    /// Step 5.
    fn checkpoint_durable(&mut self, picture: Box<Picture>) {
        if let Some(run) = picture.run {
            self.index_run_is(run);
        }
        if let Some(since) = self.table.since_checkpoint() {
            since.checkpoint_durable();
        }
        self.checkpoint.generation = picture.listed.generation;
        self.checkpoint.has_listed_in_vain = false;
        self.witnesses.checkpoint_durable();
        self.zeroes_rebuilt.picture_durable();
        self.copies.picture_durable();
        for id in std::mem::take(&mut self.checkpoint.waiting[1]) {
            self.reply(id, Ok(()), None);
        }
        self.log.checkpoint_generation = picture.listed.generation;
        self.log.segments.checkpoint_durable(picture.listed.position.serial);
        self.log.segments.make_free(&picture.reusable);
        if self.checkpoint.unlisted == UnlistedDamage::InPicture {
            self.checkpoint.unlisted = UnlistedDamage::None;
        }
        self.counters.checkpoints += 1;
        if picture.is_empty {
            // What was logged while it was gathered is in no segment that it speaks of.
            let begun_after = RecordNumber(picture.listed.position.next_record.0 - 1);
            // Without the cache-disk no volume goes on.
            let is_enough = self.phase == Phase::Opening || self.below.is_volume();
            self.log_use.empty_checkpoint_durable(begun_after, is_enough);
        } else {
            self.log_use.full_checkpoint_durable();
        }
    }
}
