//! A write, from request to reply.
//!
//! 1. Large ones go past the log: [`super::bypass`].
//! 2. The others are cut into parts that are atomic across crashes (C14), and each part is appended
//!    to the segment buffer, if there is room for all of it.
//! 3. If there is not, or a bypass of the same blocks is under way, the request waits in line. What
//!    waits for room in the log lets nobody pass but discards, which make some; what waits for
//!    something else (a discard, for room among the zero ranges) only those of other blocks: it has
//!    not been answered, so it has no place in the order yet (C8).
//! 4. The reply comes when the mode says: [`Engine::acknowledge`].

use std::collections::VecDeque;

use super::Engine;
use super::bypass::BYPASS_BYTES_WHEN_FULL;
use super::discards::Owner;
use super::zero::ENTRIES_OF_ZERO;
use crate::buffer::Buffer;
use crate::config::AckMode;
use crate::io::{RequestError, RequestId};
use crate::log::Appender;
use crate::units::{
    BLOCK_SIZE, FRAGMENTS_PER_LINE, FragmentMask, Lba, LbaRange, Line, SlotIndex, Time,
};
use crate::zero_ranges::ZeroRanges;

/// Most bytes of a logged write that are all or nothing across a crash, if the segment buffers are
/// large enough.
pub(crate) const MAX_ATOMIC_BYTES: u64 = 1 << 20;

/// A request that waits in line.
pub(super) struct Stalled {
    pub(super) owner: Owner,
    pub(super) change: Change,
    pub(super) fua: bool,
    /// When it began to wait for this, or it, or one before it that waited for the same, last got
    /// some, by the clock of [`Patience`](crate::patience::Patience).
    since: Time,
    waits_for: WaitsFor,
}

/// What a request waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// Room in the log.
    Room,
    /// Room among the zero ranges.
    ZeroRanges,
    /// The end of a bypass of the same blocks.
    Bypass,
    /// The end of a large discard of the same blocks, or, for a large discard, of another.
    Purge,
    /// A switch of the mode.
    Switch,
    /// An earlier one of the same blocks that waits, too.
    Earlier,
}

impl Stalled {
    /// Whether a change that came later must wait for this one, and how.
    fn holds_up(&self, later: &Change) -> Option<WaitsFor> {
        if self.change.range().overlaps(later.range()) {
            return Some(WaitsFor::Earlier);
        }
        match self.waits_for {
            WaitsFor::Room if later.makes_room() => None,
            WaitsFor::Room => Some(WaitsFor::Room),
            WaitsFor::ZeroRanges if later.is_zero() => Some(WaitsFor::ZeroRanges),
            _ => None,
        }
    }
}

/// What a stalled request wants.
pub(super) enum Change {
    Write { start: Lba, data: Buffer, blocks_done: u64 },
    Zero { range: LbaRange, may_unmap: bool },
}

impl Engine {
    pub(super) fn write(&mut self, id: RequestId, start: Lba, data: Buffer, fua: bool) {
        let range = LbaRange { start, blocks: data.len() as u64 / BLOCK_SIZE };
        assert!(self.check_range(range) && range.bytes() == data.len() as u64);
        self.counters.writes += 1;
        self.counters.write_bytes += data.len() as u64;
        self.pace.foreground(self.now);
        self.pace.write_came(range.bytes() < BYPASS_BYTES_WHEN_FULL);
        let is_held = self.is_held_by_switch();
        if self.is_passing_by() && !is_held {
            return self.pass(id.into(), Change::Write { start, data, blocks_done: 0 }, fua);
        }
        if self.log_is_given_up() {
            return self.reply(id, Err(RequestError::Io), Some(data));
        }
        if !is_held && self.goes_past_the_log(range) {
            return self.bypass(id, range, data, fua);
        }
        self.change(id.into(), Change::Write { start, data, blocks_done: 0 }, fua);
    }

    /// Whether a change waits for a switch of the mode. One of a cache-disk that has failed is about
    /// to end: what was admitted behind the same input ([`super::index`]) does not wait for it.
    pub(super) fn is_held_by_switch(&self) -> bool {
        self.mode.holds_changes() && !self.log_is_given_up()
    }

    /// Does a change now, or puts it in line.
    pub(super) fn change(&mut self, owner: Owner, mut change: Change, fua: bool) {
        if self.refuses_stuck(&change) {
            return self.reply(owner, Err(RequestError::Io), change.into_buffer());
        }
        let held_up = self.stalled.iter().find_map(|stalled| stalled.holds_up(&change));
        let waits_for = match held_up {
            Some(waits_for) => waits_for,
            None => match self.try_change(&mut change) {
                Ok(()) => return self.acknowledge(owner, change.into_buffer(), fua),
                Err(waits_for) => waits_for,
            },
        };
        let is_for_room = matches!(waits_for, WaitsFor::Room | WaitsFor::ZeroRanges);
        self.counters.stalled_writes += u64::from(is_for_room);
        let since = self.patience.now();
        self.stalled.push_back(Stalled { owner, change, fua, since, waits_for });
    }

    /// Lets those in line go on as far as they can. Tells whether anything moved.
    pub(super) fn admit_stalled(&mut self) -> bool {
        self.stalled_since = None;
        if self.stalled.is_empty() {
            return false;
        }
        let mut moved = false;
        // What those that went had waited for: the next that waits for it waits from now on.
        let (mut room_moved, mut zeroes_moved) = (false, false);
        let mut kept: VecDeque<Stalled> = VecDeque::new();
        for mut stalled in std::mem::take(&mut self.stalled) {
            if self.refuses_stuck(&stalled.change) {
                // It came before its member was away, or before others had taken the share of the
                // log.
                self.reply(stalled.owner, Err(RequestError::Io), stalled.change.into_buffer());
                moved = true;
                continue;
            }
            let held_up = kept.iter().find_map(|earlier| earlier.holds_up(&stalled.change));
            if let Some(waits_for) = held_up {
                stalled.waits_for = waits_for;
                kept.push_back(stalled);
                continue;
            }
            let waits_anew = match stalled.waits_for {
                WaitsFor::Room => std::mem::take(&mut room_moved),
                WaitsFor::ZeroRanges => std::mem::take(&mut zeroes_moved),
                WaitsFor::Earlier => true,
                WaitsFor::Bypass | WaitsFor::Purge | WaitsFor::Switch => false,
            };
            if waits_anew {
                stalled.since = self.patience.now();
            }
            let before = stalled.change.progress();
            let Err(waits_for) = self.try_change(&mut stalled.change) else {
                match stalled.waits_for {
                    WaitsFor::Room => room_moved = true,
                    WaitsFor::ZeroRanges => zeroes_moved = true,
                    WaitsFor::Bypass | WaitsFor::Purge | WaitsFor::Switch | WaitsFor::Earlier => {}
                }
                self.acknowledge(stalled.owner, stalled.change.into_buffer(), stalled.fua);
                moved = true;
                continue;
            };
            if stalled.change.progress() > before || stalled.waits_for != waits_for {
                stalled.since = self.patience.now();
            }
            stalled.waits_for = waits_for;
            if matches!(waits_for, WaitsFor::Purge | WaitsFor::Switch) {
                // It ends by itself, however long it takes, and nothing is full.
                kept.push_back(stalled);
                continue;
            }
            if self.patience.is_over(stalled.since, self.config.full_timeout) {
                // Bounded wait (C25). Parts that were done stay done: this was not acknowledged.
                // Those behind it have waited for the same, and not from now on.
                self.reply(stalled.owner, Err(RequestError::NoSpace), stalled.change.into_buffer());
                moved = true;
                continue;
            }
            let since = self.stalled_since.map_or(stalled.since, |since| since.min(stalled.since));
            self.stalled_since = Some(since);
            kept.push_back(stalled);
        }
        // What came meanwhile came later.
        kept.append(&mut self.stalled);
        self.stalled = kept;
        moved
    }

    /// Whether a change, or the tombstone of one, waits until something is destaged, and not only
    /// for segment buffers: for the log to be written, which destaging would disturb.
    pub(super) fn someone_waits_for_destaging(&self) -> bool {
        // Asked several times behind each input, and mostly nobody waits for anything.
        if self.stalled.is_empty() && !self.has_bypasses() {
            return false;
        }
        let mut stalled = self.stalled.iter();
        let first = stalled.find(|stalled| stalled.waits_for == WaitsFor::Room);
        let is_stalled = first.is_some_and(|stalled| match &stalled.change {
            Change::Write { start, data, blocks_done } => {
                let part = self.next_part(*start, data, *blocks_done);
                self.log.lacks_segments(part.lines().count() as u32, Appender::Request)
            }
            Change::Zero { .. } => {
                self.log.lacks_segments(ENTRIES_OF_ZERO, stalled.change.appender())
            }
        });
        is_stalled
            || !self.may_gather_zero_ranges(ZeroRanges::GROWTH_BY_INSERT)
                && self.stalled.iter().any(|stalled| stalled.waits_for == WaitsFor::ZeroRanges)
            || self.has_bypasses_without_room() && self.log.lacks_segments(1, Appender::Engine)
    }

    /// Whether a change waits for room among the zero ranges.
    pub(super) fn someone_waits_for_zero_ranges(&self) -> bool {
        self.stalled.iter().any(|stalled| stalled.waits_for == WaitsFor::ZeroRanges)
    }

    /// Whether a request waits for segment buffers: for records to be durable, and nothing else.
    pub(super) fn someone_waits_for_buffers(&self) -> bool {
        self.stalled.iter().any(|stalled| stalled.waits_for == WaitsFor::Room)
            && !self.someone_waits_for_destaging()
    }

    /// Whether nothing may be destaged: lines that are discarded are still in the table, or a large
    /// discard waits until nothing is under way.
    pub(super) fn purge_holds_back_destaging(&self) -> bool {
        let mut stalled = self.stalled.iter();
        let one_waits = stalled.any(|it| it.waits_for == WaitsFor::Purge && it.change.is_zero());
        self.purge.holds_back_destaging(one_waits)
    }

    /// Whether one waits until what is being destaged has ended. It would wait for as long as
    /// somebody reads.
    pub(super) fn purge_waits_for_destaging(&self) -> bool {
        !self.purge.is_under_way() && self.stalled.iter().any(|it| it.waits_for == WaitsFor::Purge)
    }

    pub(super) fn fail_stalled(&mut self, error: RequestError) {
        while let Some(stalled) = self.stalled.pop_front() {
            self.reply(stalled.owner, Err(error), stalled.change.into_buffer());
        }
    }

    fn try_change(&mut self, change: &mut Change) -> Result<(), WaitsFor> {
        if self.waits_for_switch(change.makes_room()) {
            return Err(WaitsFor::Switch);
        }
        if self.is_overtaking_a_bypass(change.range()) {
            return Err(WaitsFor::Bypass);
        }
        if self.is_being_purged(change.range()) {
            return Err(WaitsFor::Purge);
        }
        let appender = change.appender();
        let is_done = match change {
            Change::Write { start, data, blocks_done } => self.try_write(*start, data, blocks_done),
            Change::Zero { .. } if !self.has_room_for_zero_ranges(ZeroRanges::GROWTH_BY_INSERT) => {
                return Err(WaitsFor::ZeroRanges);
            }
            Change::Zero { .. } if !self.log.has_room(ENTRIES_OF_ZERO, appender) => false,
            Change::Zero { range, may_unmap } => {
                let is_purged = self.needs_purge(*range);
                if is_purged && !self.may_purge() {
                    return Err(WaitsFor::Purge);
                }
                self.zero(*range, *may_unmap, is_purged);
                true
            }
        };
        if is_done { Ok(()) } else { Err(WaitsFor::Room) }
    }

    /// Appends the write part by part; false when there is no room for the next part.
    fn try_write(&mut self, start: Lba, data: &Buffer, blocks_done: &mut u64) -> bool {
        let blocks = data.len() as u64 / BLOCK_SIZE;
        while *blocks_done < blocks {
            let part = self.next_part(start, data, *blocks_done);
            let lines = part.lines().count() as u32;
            let at = (*blocks_done * BLOCK_SIZE) as usize;
            let bytes = &data.bytes()[at..at + part.bytes() as usize];
            if self.log.may_replace(lines) && self.is_in_open_record(part) {
                self.replace(part, bytes);
            } else if self.log.has_room(lines, Appender::Request) {
                self.append(part, bytes);
                self.log.end_request();
            } else {
                return false;
            }
            *blocks_done += part.blocks;
        }
        true
    }

    /// Whether each line of the part has a slot in the record that is being filled.
    fn is_in_open_record(&self, part: LbaRange) -> bool {
        part.lines().all(|(line, _)| self.open_slot(line).is_some())
    }

    /// The slot of a line in the record that is being filled, with what it holds, if all of that is
    /// live and may be replaced.
    fn open_slot(&self, line: Line) -> Option<(SlotIndex, FragmentMask)> {
        let pieces = self.table.find(line);
        // In the order of its fragments, and at most one is the last of its line in the record.
        let mut pieces = pieces.as_slice().iter().copied();
        pieces.find(|(slot, live)| {
            self.log.replaceable(*slot) == Some(*live) && !self.is_of_window(line, *slot)
        })
    }

    /// Replaces data that is in the record that is being filled.
    fn replace(&mut self, part: LbaRange, bytes: &[u8]) {
        let mut rest = bytes;
        for (line, mask) in part.lines() {
            let (head, tail) = rest.split_at(mask.0.count_ones() as usize * BLOCK_SIZE as usize);
            rest = tail;
            self.keep_for_window(line);
            let (slot, live) = self.open_slot(line).expect("each of them has one");
            let checksum = self.log.stage(line, slot, mask, head);
            let dead = self.table.insert(line, live.or(mask), slot, checksum);
            self.drop_dead_slots(dead.as_slice());
            self.note_if_stuck(line);
            self.clear_poison(line, mask);
            self.copies_of_line_changed(line);
            self.counters.overwritten_lines += 1;
            self.counters.logged_lines += 1;
        }
        self.log.end_replace();
    }

    fn next_part(&self, start: Lba, data: &Buffer, blocks_done: u64) -> LbaRange {
        let part_start = start.0 + blocks_done;
        // Parts end at line boundaries, so that no line is in two parts.
        let part_end =
            (part_start + self.part_blocks_max()) / FRAGMENTS_PER_LINE * FRAGMENTS_PER_LINE;
        let part_end = part_end.min(start.0 + data.len() as u64 / BLOCK_SIZE);
        LbaRange::new(part_start, part_end - part_start)
    }

    /// Blocks in an atomic part: a part must always find room once the buffers are free.
    fn part_blocks_max(&self) -> u64 {
        let per_segment = u64::from(self.superblock.geometry.slots_per_segment());
        // One buffer less than there are: the one being filled may have little room left.
        let buffers = self.log.buffers_for_requests() - 1;
        let segments = buffers.min(self.log.segments.limit() / 2 - 2);
        let lines = (per_segment - 2) * u64::from(segments);
        (lines * FRAGMENTS_PER_LINE).min(MAX_ATOMIC_BYTES / BLOCK_SIZE)
    }

    /// Appends data to the log and makes it the newest copy.
    pub(super) fn append(&mut self, range: LbaRange, bytes: &[u8]) {
        let mut rest = bytes;
        for (line, mask) in range.lines() {
            let (head, tail) = rest.split_at(mask.0.count_ones() as usize * BLOCK_SIZE as usize);
            rest = tail;
            self.keep_for_window(line);
            let (slot, checksum) = self.log.append_data(line, mask, head);
            let dead = self.table.insert(line, mask, slot, checksum);
            self.counters.overwritten_lines += u64::from(!dead.as_slice().is_empty());
            self.drop_dead_slots(dead.as_slice());
            self.note_if_stuck(line);
            self.clear_poison(line, mask);
            self.copies_of_line_changed(line);
            self.counters.logged_lines += 1;
        }
    }

    /// Replies to a change that has been appended, at once or when its records have come as far as
    /// the mode asks (C5).
    pub(super) fn acknowledge(&mut self, owner: Owner, buffer: Option<Buffer>, fua: bool) {
        if !fua {
            self.expect_flush();
        }
        match self.config.ack {
            AckMode::Memory if !fua => self.reply(owner, Ok(()), buffer),
            AckMode::Log if !fua => self.reply_when_written(owner, buffer),
            _ => self.reply_when_durable(owner, buffer),
        }
    }
}

impl Change {
    pub(super) fn range(&self) -> LbaRange {
        match self {
            Change::Write { start, data, .. } => {
                LbaRange { start: *start, blocks: data.len() as u64 / BLOCK_SIZE }
            }
            Change::Zero { range, .. } => *range,
        }
    }

    /// A discard of more lines than it takes slots: what it throws away need not be destaged. Where
    /// log and data-disk are full, nothing else makes room.
    pub(super) fn makes_room(&self) -> bool {
        let Change::Zero { range, may_unmap: true } = self else { return false };
        let whole_start = range.start.0.div_ceil(FRAGMENTS_PER_LINE);
        (range.end() / FRAGMENTS_PER_LINE).saturating_sub(whole_start) >= ENTRIES_OF_ZERO.into()
    }

    fn appender(&self) -> Appender {
        if self.makes_room() { Appender::Discard } else { Appender::Request }
    }

    fn is_zero(&self) -> bool {
        matches!(self, Change::Zero { .. })
    }

    fn progress(&self) -> u64 {
        match self {
            Change::Write { blocks_done, .. } => *blocks_done,
            Change::Zero { .. } => 0,
        }
    }

    pub(super) fn into_buffer(self) -> Option<Buffer> {
        match self {
            Change::Write { data, .. } => Some(data),
            Change::Zero { .. } => None,
        }
    }
}
