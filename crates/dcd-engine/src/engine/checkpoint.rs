//! Checkpoints: when, and in which order.
//!
//! ```text
//! 1. Seal the open record and take the picture: the whole index between two records.
//! 2. Make every record in it durable.  Else the picture could speak of slots that never were.
//! 3. Write it to the older area, and the copy pages that have changed to their older places.
//!                                      Crash here: the newer one is still whole, and what it names.
//! 4. Flush.                            Crash here: one or the other is found, both are true.
//! 5. A start follows the log from here on: what is empty and was filled before may be announced
//!    ([`super::announce`]). The segments that it lists as free may be filled. Only now: nothing that a
//!    recovery could need speaks of them any more (C13, trap 1 of the design).
//! ```
//! It lists empty segments as free only where no record may announce them: at a start and an end, when the
//! cache is empty, or when the log has no room for a record.
//! One that lists nothing makes the cache-disk clean: [`super::log_use`].

use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::copies::PageWrite;
use crate::engine::Disk;
use crate::format::checkpoint::{Checkpoint, LiveSlot, LogPosition};
use crate::io::{IoError, RequestError, RequestId};
use crate::units::{RecordNumber, SegmentIndex, SegmentSerial};

/// An I/O of a checkpoint.
pub(super) enum Step {
    Write,
    Flush,
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
    /// Those who wait for the next that is begun, and for the one under way.
    waiting: [Vec<RequestId>; 2],
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
    WaitDurable(Picture),
    Writing {
        picture: Picture,
        writes_left: u32,
        failed: bool,
    },
    Flushing(Picture),
}

struct Picture {
    generation: u64,
    offset: u64,
    bytes: Buffer,
    /// Copy pages that it names and that are not on the disk yet.
    pages: Vec<PageWrite>,
    reusable: Vec<SegmentIndex>,
    /// The filling that a start with it begins with.
    chain_from: SegmentSerial,
    /// It lies behind this record ...
    after: RecordNumber,
    /// ... and lists nothing.
    is_empty: bool,
}

impl Checkpointing {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::None) && !self.forced
    }

    /// A picture whose records are not durable yet is taken again. Tells whether there was one.
    pub(super) fn start_over_if_waiting(&mut self) -> bool {
        let is_waiting = matches!(self.state, State::WaitDurable(_));
        if is_waiting {
            self.state = State::None;
            self.forced = true;
        }
        is_waiting
    }

    /// A write or flush of the cache-disk has failed. With it may be gone what had been written of a
    /// checkpoint, and no later flush tells (C22): it is made anew.
    pub(super) fn cache_disk_failed(&mut self) {
        match &mut self.state {
            State::Writing { writes_left: 0, .. } => self.fail(),
            State::Writing { failed, .. } => *failed = true,
            State::Flushing(_) => self.is_distrusted = true,
            State::None | State::WaitDurable { .. } => {}
        }
    }

    /// The area holds nothing that counts: another picture goes there.
    fn fail(&mut self) {
        let state = std::mem::take(&mut self.state);
        if let State::Writing { picture, .. } | State::Flushing(picture) = state {
            self.has_listed_in_vain |= !picture.reusable.is_empty();
        }
        self.forced = true;
    }

    pub(super) fn force(&mut self) {
        self.forced = true;
    }

    /// A line has left the table because it is damaged: no record says so.
    pub(super) fn found_damage(&mut self) {
        self.unlisted = UnlistedDamage::Some;
    }

    /// Whether what a record announces would be filled in the order in which a start with any checkpoint finds it, and
    /// nothing that was found damaged would be forgotten by it.
    pub(super) fn lets_announce(&self) -> bool {
        let picture = match &self.state {
            State::None => None,
            State::WaitDurable(picture)
            | State::Writing { picture, .. }
            | State::Flushing(picture) => Some(picture),
        };
        picture.is_none_or(|picture| picture.reusable.is_empty())
            && !self.has_listed_in_vain
            && self.unlisted == UnlistedDamage::None
    }

    /// The same, for somebody who wants to know when it is durable.
    pub(super) fn force_for(&mut self, id: RequestId) {
        self.forced = true;
        self.waiting[0].push(id);
    }
}

impl Engine {
    pub(super) fn advance_checkpoint(&mut self) -> bool {
        if self.health.cache_disk_failed() || self.log_again.is_wanted() {
            return false;
        }
        match std::mem::take(&mut self.checkpoint.state) {
            State::None => {
                let due = self.checkpoint.forced
                    || self.checkpoint_is_due()
                    || self.zero_ranges_want_checkpoint()
                    || self.copies.wants_checkpoint()
                    || self.clean_checkpoint_is_due();
                if due {
                    self.take_picture();
                }
                due
            }
            State::WaitDurable(picture) if self.log.durable_record() >= picture.after => {
                self.write_picture(picture);
                true
            }
            State::Writing { picture, writes_left: 0, failed: false } => {
                self.checkpoint.state = State::Flushing(picture);
                self.checkpoint.is_distrusted = false;
                self.start_flush(Disk::CacheDisk, Purpose::Checkpoint(Step::Flush));
                true
            }
            other => {
                self.checkpoint.state = other;
                false
            }
        }
    }

    fn checkpoint_is_due(&self) -> bool {
        let counts = self.log.segments.counts();
        let total = self.log.segments.total();
        let since = self.log.newest_serial().0 - self.checkpoint.last_serial.0;
        let is_long_ago = since >= u64::from((total / self.config.limits.checkpoint_part).max(2));
        let few_free = counts.free <= (total / 16).max(3) || self.someone_waits_for_destaging();
        // What a record can say, or has said, needs no checkpoint.
        let few_free = few_free && self.log.announced().len() == 0 && !self.can_announce();
        // With writers waiting, one segment is worth it; else several, or checkpoints would come
        // one after the other while the cache is nearly full.
        let worth_it = counts.empty >= (total / 32).max(2)
            || counts.empty > 0 && (self.someone_waits_for_destaging() || self.table.lines() == 0);
        is_long_ago || few_free && worth_it && !self.log.segments.reusable().is_empty()
    }

    /// Step 1.
    fn take_picture(&mut self) {
        self.checkpoint.forced = false;
        let [next, this] = &mut self.checkpoint.waiting;
        this.append(next);
        self.log.seal();
        let mut free = self.log.segments.free().clone();
        free.extend(self.log.announced());
        let mut reusable = Vec::new();
        if !self.may_announce() {
            reusable = self.log.segments.reusable();
            if !self.someone_waits_for_destaging() {
                reusable.truncate(self.config.limits.listed_free.saturating_sub(free.len()));
            }
        }
        free.extend(&reusable);
        let position = self.log.position(&mut free);
        let (copy_pages, pages) = self.copies.picture();
        let witnesses = self.witnesses.list_for_checkpoint();
        let picture = Checkpoint {
            generation: self.checkpoint.generation + 1,
            free: free.into(),
            witnesses,
            copy_pages,
            ..self.index_picture(position)
        };
        self.zeroes_rebuilt.picture_taken();
        self.checkpoint.last_serial = self.log.newest_serial();
        if self.checkpoint.unlisted == UnlistedDamage::Some {
            self.checkpoint.unlisted = UnlistedDamage::InPicture;
        }
        let after = self.log.newest_record();
        self.want_durable(after);
        let picture = Picture {
            generation: picture.generation,
            offset: self.superblock.geometry.checkpoint_offsets[picture.area()],
            bytes: picture.encode_for(&self.superblock.geometry),
            pages,
            reusable,
            chain_from: position.serial,
            after,
            is_empty: self.cache_is_empty(),
        };
        self.checkpoint.state = State::WaitDurable(picture);
    }

    /// The index as it is now; what else a checkpoint says is left out.
    pub(super) fn index_picture(&self, position: LogPosition) -> Checkpoint {
        let zeroes = self.zeroes_rebuilt.listed();
        // Reserved at once: a vector that grows takes twice as much, and nobody has counted on that.
        let slots = self.log.segments.iter().map(|(_, segment)| segment.live_slots as usize).sum();
        let mut live = Vec::with_capacity(slots);
        for (line, pieces) in self.table.iter() {
            for (slot, mask) in pieces.as_slice() {
                let checksum = self.table.checksum(*slot);
                live.push(LiveSlot { line, mask: *mask, slot: *slot, checksum });
            }
        }
        let filled = self.log.segments.iter().filter(|(_, segment)| segment.live_slots > 0);
        Checkpoint {
            uuid: self.superblock.uuid,
            generation: self.checkpoint.generation,
            epoch: self.checkpoint.epoch,
            position,
            filled: filled.map(|(index, segment)| (index, segment.serial)).collect(),
            free: Vec::new(),
            live,
            zeroes: zeroes.iter().collect(),
            poisoned: self.poisoned.iter().map(|(line, mask)| (*line, *mask)).collect(),
            witnesses: self.witnesses.list(),
            copy_pages: Vec::new(),
        }
    }

    /// Step 3.
    fn write_picture(&mut self, mut picture: Picture) {
        let mut writes_left = 0;
        for PageWrite { page, generation, bytes } in std::mem::take(&mut picture.pages) {
            writes_left += 1;
            self.counters.checkpoint_bytes += bytes.len() as u64;
            let offset = self.superblock.geometry.copy_page_offset(page, generation);
            let purpose = Purpose::Checkpoint(Step::Write);
            self.start_write(Disk::CacheDisk, offset, bytes, purpose);
        }
        let mut offset = picture.offset;
        for piece in picture.bytes.bytes().chunks(self.config.limits.checkpoint_write_bytes) {
            writes_left += 1;
            let purpose = Purpose::Checkpoint(Step::Write);
            self.start_write(Disk::CacheDisk, offset, Buffer::copy_of(piece), purpose);
            offset += piece.len() as u64;
        }
        self.counters.checkpoint_bytes += picture.bytes.len() as u64;
        self.checkpoint.state = State::Writing { picture, writes_left, failed: false };
    }

    pub(super) fn checkpoint_io_done(&mut self, step: Step, result: Result<(), IoError>) {
        match (step, &mut self.checkpoint.state) {
            (Step::Write, State::Writing { writes_left, failed, .. }) => {
                *writes_left -= 1;
                *failed |= result.is_err();
                if *failed && *writes_left == 0 {
                    self.checkpoint.fail();
                }
            }
            (Step::Flush, State::Flushing(_))
                if result.is_ok() && !self.checkpoint.is_distrusted =>
            {
                self.checkpoint_durable();
            }
            (Step::Flush, State::Flushing(_)) => self.checkpoint.fail(),
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

    /// Step 5.
    fn checkpoint_durable(&mut self) {
        let State::Flushing(picture) = std::mem::take(&mut self.checkpoint.state) else {
            unreachable!("looked at");
        };
        self.checkpoint.generation = picture.generation;
        self.checkpoint.has_listed_in_vain = false;
        self.witnesses.checkpoint_durable();
        self.zeroes_rebuilt.picture_durable();
        self.copies.picture_durable();
        for id in std::mem::take(&mut self.checkpoint.waiting[1]) {
            self.reply(id, Ok(()), None);
        }
        self.log.checkpoint_generation = picture.generation;
        self.log.segments.chain_begins(picture.chain_from);
        self.log.segments.make_free(&picture.reusable);
        if self.checkpoint.unlisted == UnlistedDamage::InPicture {
            self.checkpoint.unlisted = UnlistedDamage::None;
        }
        self.counters.checkpoints += 1;
        if picture.is_empty {
            self.log_use.empty_checkpoint_durable(picture.after);
        }
    }
}
