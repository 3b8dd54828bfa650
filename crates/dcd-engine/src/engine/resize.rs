//! The log grows and shrinks while requests are served, and the read area with it.
//!
//! Nothing that exists moves: what is added is an annex behind everything else
//! ([`crate::format::geometry`]), and what is given up are the last segments. The size is a matter
//! of one superblock, and of the one checkpoint that it names.
//!
//! Growing:
//!
//! ```text
//! 1. A checkpoint is made as ever ([`super::checkpoint`]), but it goes to the areas of the annex,
//!    and with it the end mark behind the annex. Both are flushed.
//!      Crash: the old superblock counts, and with it the checkpoints in the old areas. Nothing
//!      was done that they do not allow: the new one does not count yet. Nobody reads what lies
//!      behind the old end.
//! 2. The superblock with the new geometry. It says which session it is of, for its generation is
//!    higher now, and names the checkpoint: no older one counts, wherever it is.
//!      Crash: whichever superblock is found, its checkpoint is whole, and the same records follow.
//! 3. Its second copy, until it is durable.
//!      Without it a copy that cannot be read later would bring back the old areas, with what
//!      they said long ago.
//! 4. The new segments come into the tables, some at a time, as empty ones.
//! ```
//!
//! Shrinking:
//!
//! ```text
//! 1. The last segments are retired, some at a time: one that is empty is not announced, nor listed
//!    as free.
//! 2. The log goes through those of them that it has to fill next: each gets a record that holds
//!    nothing. So their order stays the one that a start finds.
//! 3. What they hold goes to the data-disk.
//!      Crash in steps 1 to 3, or somebody wants it no more: no word of it is on the disk.
//! 4. A checkpoint is durable that was begun behind that: no start needs them any more. Only now
//!    something else may be written there: the end mark of step 5.
//! 5. As steps 1 to 3 of growing: a checkpoint, in the areas that count then, and the end mark; the
//!    superblock; its second copy.
//!      Crash: as there. With the old superblock the retired segments are empty ones.
//! 6. They are gone from the tables.
//! ```
//!
//! Another size of the read area, which has the end of the room that the log was made with:
//!
//! ```text
//! 1. What it is to grow by, the log gives up as in steps 1 to 4 of shrinking, and with it its
//!    annexes: all segments whose place is another one then, or none. What it is to give up is
//!    emptied: hot blocks go, pages of sequences move.
//!      Crash: there is less on it, or it is to be copied again.
//! 2. The places of its pages, not of what is on them, are others in another size: pages are
//!    written to the new ones, some at a time, as they are at the old ones; and from here on each
//!    checkpoint writes those that change to both.
//!      Crash: nobody looks there.
//! 3. As steps 1 to 3 of growing.
//!      Crash: whichever superblock is found, it finds the pages that its checkpoint names.
//! 4. The tables of both become larger, some at a time.
//! ```
//!
//! Whoever waits is told when it gets on no more, as with a drain. In step 5, or 1 of growing, it
//! takes no more than a checkpoint, and is not broken off behind the header of that.

use super::destage::{Headway, Left};
use super::grow_volume::VolumePlace;
use super::{Engine, Purpose, checkpoint};
use crate::config::Mode;
use crate::copies::{PageUse, PageWrite};
use crate::engine::Disk;
use crate::engine::checkpoint::PAUSE;
use crate::format::Geometry;
use crate::format::geometry::COPY_PAGE_SPACE_BYTES;
use crate::format::superblock::Resized;
use crate::io::{IoError, RequestError, RequestId, ResizeError};
use crate::legs::LegStanding;
use crate::log::lookup_table::IndexBudget;
use crate::stats::{ResizeReport, ResizeState};
use crate::units::{CopyPageIndex, LINE_SIZE, SegmentIndex, Time};
use crate::volume::GrowthCutShort;

/// Who asks for nothing: the volume.
const NOBODY: RequestId = RequestId(u64::MAX);
/// Segments that are retired, or added, in one step.
const SEGMENTS_AT_ONCE: u32 = 1024;
/// The same of pages of the read area that are added, or looked at: 16,000 slots.
const PAGES_AT_ONCE: u32 = 64;
/// Pages of hot blocks that go in one step.
const HOT_PAGES_AT_ONCE: u32 = 2;
/// Pages that are on their way to their new places.
const PAGE_WRITES_MAX: u32 = 16;

/// A change of the log's size, if one is under way.
#[derive(Default)]
pub(super) struct Resizing {
    stage: Stage,
    /// A part was done since the last input.
    has_paused: bool,
    /// Pages of the read area that are to go and are empty: this one and those behind it are not
    /// known to be.
    pages_emptied_to: u32,
    /// Writes of pages to their new places that have not ended.
    page_writes_left: u32,
    /// What was written of them and not flushed may be gone: all are written again.
    pages_may_be_gone: bool,
    /// The last victim was not a retired segment, although there was one.
    others_had_turn: bool,
}

#[derive(Default)]
enum Stage {
    #[default]
    Resting,
    /// Shrinking, steps 1 to 3.
    Emptying(Wanted, Headway),
    /// Shrinking, step 4: until a checkpoint is durable that is later than this generation.
    Settling(Wanted, u64),
    /// Another read area, step 2: pages from this one on are still to be written.
    Moving(Wanted, u32),
    /// Growing, steps 1 to 3.
    Listing(Wanted),
    /// Growing, step 4.
    Extending(Wanted),
    /// Somebody wanted it no more: the retired segments are what they were.
    TakingBack,
}

#[derive(Clone, Copy)]
struct Wanted {
    id: RequestId,
    geometry: Geometry,
    segments_before: u32,
    /// Segments that keep their places: the others are emptied before.
    segments_kept: u32,
    copy_pages_before: u32,
    since: Time,
    /// It is the volume that gets another size; the log stays as it is.
    volume: Option<VolumePlace>,
}

impl Resizing {
    /// What happens comes from outside: another part may be done.
    pub(super) fn input_came(&mut self) {
        self.has_paused = false;
    }

    /// Whether destaging is urgent.
    pub(super) fn wants_destage(&self) -> bool {
        matches!(self.stage, Stage::Emptying(..))
    }

    /// Whether readers keep it from everything, and have to share.
    pub(super) fn is_held_up(&self) -> bool {
        matches!(&self.stage, Stage::Emptying(_, headway) if headway.is_held_up())
    }

    /// The size of which the next checkpoint has to tell.
    pub(super) fn geometry_to_list(&self) -> Option<Geometry> {
        match &self.stage {
            Stage::Listing(wanted) => Some(wanted.geometry),
            _ => None,
        }
    }

    /// What it has to tell of the volume with it.
    fn volume_to_list(&self) -> Option<VolumePlace> {
        match &self.stage {
            Stage::Listing(wanted) => wanted.volume,
            _ => None,
        }
    }

    fn wanted(&self) -> Option<&Wanted> {
        match &self.stage {
            Stage::Emptying(wanted, _)
            | Stage::Settling(wanted, _)
            | Stage::Moving(wanted, _)
            | Stage::Listing(wanted)
            | Stage::Extending(wanted) => Some(wanted),
            Stage::Resting | Stage::TakingBack => None,
        }
    }
}

impl Engine {
    /// How large the log is to be: as large as it can be on so many bytes of the cache-disk.
    pub(super) fn resize(&mut self, id: RequestId, cache_disk_bytes: u64) {
        let geometry = match self.geometry_wanted(cache_disk_bytes) {
            Ok(geometry) => geometry,
            Err(error) => return self.reply(id, Err(error), None),
        };
        let wanted = self.wanted(id, geometry, None);
        match wanted.segments_kept < wanted.segments_before {
            true => self.begin_emptying(wanted),
            false => self.resize.stage = Stage::Listing(wanted),
        }
    }

    /// How much of the cache-disk the read area is to have.
    pub(super) fn resize_read_area(&mut self, id: RequestId, bytes: u64) {
        let geometry = match self.geometry_wanted_for(bytes) {
            Ok(geometry) => geometry,
            Err(error) => return self.reply(id, Err(error), None),
        };
        if geometry.copy_pages < self.copies.pages() {
            self.copies.limit_to(geometry.copy_pages);
        }
        self.begin_emptying(self.wanted(id, geometry, None));
    }

    fn wanted(&self, id: RequestId, geometry: Geometry, volume: Option<VolumePlace>) -> Wanted {
        let segments_before = self.log.segments.total();
        Wanted {
            id,
            geometry,
            segments_before,
            segments_kept: self.superblock.geometry.segments_kept(&geometry),
            copy_pages_before: self.superblock.geometry.copy_pages,
            since: self.now,
            volume,
        }
    }

    fn begin_emptying(&mut self, wanted: Wanted) {
        // Somebody may have mended what was in the way, and asks therefore.
        self.try_again_now();
        // All that there are, unless some are to go.
        self.resize.pages_emptied_to = self.copies.pages();
        self.resize.stage = Stage::Emptying(wanted, self.headway_from(self.left_in_retired()));
    }

    /// Whether the log can have the size that it would get on so many bytes, as far as can be said
    /// before it is tried.
    ///
    /// # Errors
    /// Why not.
    pub fn check_resize(&self, cache_disk_bytes: u64) -> Result<(), RequestError> {
        self.geometry_wanted(cache_disk_bytes).map(drop)
    }

    /// The same of the read area.
    ///
    /// # Errors
    /// Why not.
    pub fn check_read_area(&self, bytes: u64) -> Result<(), RequestError> {
        self.geometry_wanted_for(bytes).map(drop)
    }

    fn geometry_wanted_for(&self, read_area_bytes: u64) -> Result<Geometry, RequestError> {
        self.may_tell_size()?;
        if self.is_volume_growing() {
            return Err(ResizeError::UnderWay.into());
        }
        if self.table.has_budget() {
            return Err(ResizeError::ReadAreaBesideBudget.into());
        }
        let geometry = self.superblock.geometry_with_read_area(read_area_bytes)?;
        let copy_pages = geometry.copy_pages;
        // Where they take more than their share already, all of it.
        let least = self.copy_pages_min().min(self.copies.pages().into());
        if u64::from(copy_pages) < least {
            return Err(ResizeError::Sequences { needed: least * COPY_PAGE_SPACE_BYTES }.into());
        }
        let before = self.superblock.geometry;
        if before.segments_kept(&geometry) < before.segments && self.destages_never() {
            return Err(RequestError::ReadOnly);
        }
        Ok(geometry)
    }

    fn geometry_wanted(&self, cache_disk_bytes: u64) -> Result<Geometry, RequestError> {
        self.may_tell_size()?;
        if self.is_volume_growing() {
            return Err(ResizeError::UnderWay.into());
        }
        let bytes = cache_disk_bytes / LINE_SIZE * LINE_SIZE;
        let geometry = self.superblock.geometry_on(bytes)?;
        let before = self.superblock.geometry.segments;
        if geometry.segments == before {
            return Err(ResizeError::Same { segments: before }.into());
        }
        let (needed, most) =
            (IndexBudget::bytes_min(geometry.slots()), self.config.index_bytes_max);
        if self.table.has_budget() && needed > most {
            return Err(ResizeError::Index { needed, most }.into());
        }
        if geometry.segments < before && self.destages_never() {
            return Err(RequestError::ReadOnly);
        }
        Ok(geometry)
    }

    /// Whether another size is being told of.
    pub(super) fn is_resizing(&self) -> bool {
        !matches!(self.resize.stage, Stage::Resting)
    }

    /// The superblock is about to tell of one.
    pub(super) fn is_telling_size(&self) -> bool {
        matches!(self.resize.stage, Stage::Listing(_))
    }

    pub(super) fn is_leg_being_filled(&self) -> bool {
        let is_being_filled =
            |standing| matches!(standing, Some(LegStanding::Joining | LegStanding::Filling));
        self.legs().any(|leg| is_being_filled(leg.standing))
    }

    /// The next checkpoint tells where the tables of the volume are.
    pub(super) fn list_volume(&mut self, place: VolumePlace) {
        let wanted = self.wanted(NOBODY, self.superblock.geometry, Some(place));
        self.resize.stage = Stage::Listing(wanted);
    }

    /// It was told, or cannot be.
    fn reply_resized(&mut self, wanted: &Wanted, result: Result<(), RequestError>) {
        match (wanted.volume, result) {
            (None, result) => self.reply(wanted.id, result, None),
            (Some(_), Ok(())) => self.volume_is_moved(),
            (Some(_), Err(error)) => self.volume_is_not_moved(match error {
                RequestError::ShuttingDown => GrowthCutShort::End,
                RequestError::Cancelled => GrowthCutShort::Cancelled,
                _ => GrowthCutShort::CacheDisk,
            }),
        }
    }

    /// Whether changes go to the log, and are to.
    fn logs_changes(&self) -> bool {
        self.config.mode == Mode::WriteBack && !self.config.no_log && !self.is_passing_by()
    }

    /// Somebody wants it no more: everything is as before, unless the checkpoint is on its way
    /// that tells of it.
    pub(super) fn cancel_resize(&mut self, which: RequestId) {
        if self.resize.wanted().is_some_and(|wanted| wanted.id == which) {
            self.give_up_resize(RequestError::Cancelled);
        }
    }

    /// Tells whether it could be.
    fn give_up_resize(&mut self, error: RequestError) -> bool {
        let may_give_up = match self.resize.stage {
            Stage::Emptying(..) | Stage::Settling(..) | Stage::Moving(..) => true,
            Stage::Listing(_) => !self.checkpoint.tells_of_size() || self.drop_checkpoint_of_size(),
            Stage::Resting | Stage::Extending(_) | Stage::TakingBack => false,
        };
        let Some(wanted) = self.resize.wanted().filter(|_| may_give_up).copied() else {
            return false;
        };
        let end = self.superblock.end();
        if let Some(legs) = &mut self.legs {
            legs.set_end(end);
        }
        self.resize.stage = Stage::TakingBack;
        self.reply_resized(&wanted, Err(error));
        true
    }

    /// The cache is being closed.
    pub(super) fn end_resize(&mut self) {
        if let Some(volume) = self.below.volume_mut() {
            volume.cancel_growth(GrowthCutShort::End);
        }
        if let Stage::Extending(wanted) = self.resize.stage {
            // The next start makes its tables anew.
            self.resize.stage = Stage::Resting;
            return self.reply(wanted.id, Ok(()), None);
        }
        self.give_up_resize(RequestError::ShuttingDown);
    }

    pub(super) fn advance_resize(&mut self) -> bool {
        if matches!(self.resize.stage, Stage::Resting) {
            return false;
        }
        // It is told, and no disk is needed for the rest.
        match self.resize.stage {
            Stage::Extending(wanted) => return self.extend_tables(wanted),
            Stage::TakingBack => return self.take_back(),
            _ => {}
        }
        if self.log_is_given_up() || self.is_passing_by() {
            let wanted = self.resize.wanted().copied();
            self.resize.stage = Stage::Resting;
            self.copies.limit_to(self.superblock.geometry.copy_pages);
            match (wanted, self.below.volume_mut()) {
                (Some(Wanted { volume: Some(_), .. }), Some(volume)) => {
                    volume.tables_may_be_moved()
                }
                (Some(wanted), _) => self.reply(wanted.id, Err(RequestError::Io), None),
                (None, _) => {}
            }
            return true;
        }
        if !self.logs_changes() && self.give_up_resize(ResizeError::NotLogging.into()) {
            return true;
        }
        match &self.resize.stage {
            Stage::Resting => false,
            Stage::Emptying(wanted, _) => {
                let limit = wanted.segments_kept;
                let has_emptied = self.empty_some_pages();
                self.retire_some(limit) || self.empty_retired(limit) || has_emptied
            }
            Stage::Settling(wanted, generation) => {
                let (wanted, generation) = (*wanted, *generation);
                // The superblock tells of one thing at a time.
                let is_settled = self.checkpoint.generation > generation && !self.is_naming_nvram();
                let moves = wanted.geometry.copy_pages != wanted.copy_pages_before;
                if is_settled && moves {
                    self.resize.stage = Stage::Moving(wanted, 0);
                    self.resize.pages_may_be_gone = false;
                } else if is_settled {
                    self.resize.stage = Stage::Listing(wanted);
                } else if self.checkpoint.is_idle() && self.checkpoint.generation <= generation {
                    self.checkpoint.force();
                }
                is_settled
            }
            Stage::Listing(wanted) if self.resize.pages_may_be_gone => {
                // One that has begun to write them fails by itself, and is made anew.
                let wanted = *wanted;
                let moves_again = self.checkpoint.is_at_rest() || self.drop_checkpoint_of_size();
                if moves_again {
                    self.resize.stage = Stage::Moving(wanted, 0);
                }
                moves_again
            }
            Stage::Listing(_) => {
                if self.checkpoint.is_idle() {
                    self.checkpoint.force();
                }
                false
            }
            Stage::Moving(wanted, next) => {
                let (wanted, next) = (*wanted, *next);
                self.move_some_pages(wanted, next)
            }
            Stage::Extending(_) | Stage::TakingBack => unreachable!("carried out above"),
        }
    }

    // ---- shrinking ----------------------------------------------------------------------------

    /// Step 1. Tells whether anything was done.
    fn retire_some(&mut self, limit: u32) -> bool {
        let now = self.log.segments.limit();
        let has_more = now > limit && !self.resize.has_paused;
        if has_more {
            self.log.segments.retire_from(limit.max(now.saturating_sub(SEGMENTS_AT_ONCE)));
            self.resize.has_paused = true;
            self.destage.something_changed();
        }
        has_more
    }

    /// The same backwards.
    fn take_back(&mut self) -> bool {
        // What is on its way would land in segments that are in use again, and in slots.
        if self.resize.has_paused || self.are_pages_on_their_way() {
            return false;
        }
        let segments = &mut self.log.segments;
        let limit = segments.total().min(segments.limit().saturating_add(SEGMENTS_AT_ONCE));
        segments.retire_from(limit);
        self.resize.has_paused = true;
        if limit == segments.total() {
            self.copies.limit_to(self.superblock.geometry.copy_pages);
            self.resize.stage = Stage::Resting;
        }
        true
    }

    fn are_pages_on_their_way(&self) -> bool {
        self.is_moving_pages() || self.checkpoint.is_writing_pages()
    }

    /// Steps 2 and 3; destaging does the rest. Tells whether anything was done.
    fn empty_retired(&mut self, limit: u32) -> bool {
        if self.log.segments.limit() > limit {
            return false;
        }
        let segments = &self.log.segments;
        let are_over = segments.retired_in_use() == 0
            && self.resize.pages_emptied_to >= self.copies.pages_known()
            && !segments.retired_are_read()
            // One that was begun before may list them as free.
            && !self.checkpoint.frees(|segment| segments.is_retired(segment));
        if are_over {
            let Stage::Emptying(wanted, _) = std::mem::take(&mut self.resize.stage) else {
                unreachable!("looked at");
            };
            self.resize.stage = Stage::Settling(wanted, self.checkpoint.begun());
            return true;
        }
        let has_passed = self.pass_retired();
        if self.log.newest_record() > self.log.durable_record() {
            self.want_durable(self.log.newest_record());
        }
        has_passed || self.give_up_if_stuck_emptying()
    }

    /// Step 2: the log goes on behind the retired segments that it is in or comes to.
    fn pass_retired(&mut self) -> bool {
        let is_in_one = self.log.current_segment();
        if is_in_one.is_some_and(|segment| self.log.segments.is_retired(segment)) {
            self.log.close_segment();
            return true;
        }
        let passes = self.log.segments.must_fill_retired() && self.log.can_pass_segment();
        if passes {
            self.log.pass_segment();
        }
        passes
    }

    /// The read area gives up pages, some at a time: hot blocks go, and pages of sequences move to
    /// others. Tells whether anything was done. What is being written is waited for.
    fn empty_some_pages(&mut self) -> bool {
        let known = self.copies.pages_known();
        let before = self.resize.pages_emptied_to;
        if before >= known || self.resize.has_paused {
            return false;
        }
        let end = known.min(before.saturating_add(PAGES_AT_ONCE));
        let mut hot_pages = 0;
        while self.resize.pages_emptied_to < end && hot_pages < HOT_PAGES_AT_ONCE {
            let page = CopyPageIndex(self.resize.pages_emptied_to);
            match self.copies.use_of(page) {
                PageUse::Nobody => self.resize.pages_emptied_to += 1,
                PageUse::HotBlocks if self.take_hot_page(page) => hot_pages += 1,
                PageUse::HotBlocks | PageUse::Written => {
                    return self.resize.pages_emptied_to > before;
                }
                PageUse::Sequence => {
                    // Each goes through the list of pages to find one.
                    self.resize.has_paused = true;
                    return self.empty_page_of_sequence(page);
                }
            }
        }
        self.resize.has_paused = self.resize.pages_emptied_to < known;
        true
    }

    /// A page of a sequence gives its lines to another, or all of the sequence that brings least
    /// goes. Tells whether anything was done.
    fn empty_page_of_sequence(&mut self, page: CopyPageIndex) -> bool {
        if self.has_too_many_sequences() && self.give_up_a_sequence() {
            return true;
        }
        self.make_free_pages(1);
        let free = self.copies.free_pages().next();
        if let Some(free) = free {
            self.copies.move_page(page, free);
            self.arranging.try_again();
            return true;
        }
        self.resize.has_paused = false;
        // What is written there ends. Else somebody has pinned one, or there is less room for them.
        let needed = self.copy_pages_min() * COPY_PAGE_SPACE_BYTES;
        !self.copies.may_become_free()
            && self.give_up_resize(ResizeError::Sequences { needed }.into())
    }

    /// Step 2 of another read area. Tells whether anything was done.
    fn move_some_pages(&mut self, wanted: Wanted, next: u32) -> bool {
        if self.resize.has_paused || self.moving_waits() {
            return false;
        }
        let next = match std::mem::take(&mut self.resize.pages_may_be_gone) {
            true => 0,
            false => next,
        };
        self.move_pages_from(wanted, next)
    }

    /// For those that are on their way; for a checkpoint, of whose pages only the old places are
    /// known; or because the superblock tells of one thing at a time.
    fn moving_waits(&self) -> bool {
        let is_in_turn = self.checkpoint.is_at_rest() && !self.checkpoint.waits_for_pages;
        self.is_moving_pages() || !is_in_turn || self.is_naming_nvram()
    }

    fn move_pages_from(&mut self, wanted: Wanted, mut next: u32) -> bool {
        let end = self.copies.pages_known().min(next.saturating_add(PAGES_AT_ONCE));
        while next < end && self.resize.page_writes_left < PAGE_WRITES_MAX {
            let written = self.copies.as_it_is_durable(CopyPageIndex(next));
            if let Some(PageWrite { page, generation, bytes }) = written {
                self.resize.page_writes_left += 1;
                let offset = wanted.geometry.copy_page_offset(page, generation);
                self.start_write(Disk::CacheDisk, offset, bytes, Purpose::MovePage);
            }
            next += 1;
        }
        self.resize.has_paused = true;
        let is_over = next >= self.copies.pages_known() && !self.is_moving_pages();
        self.resize.stage = match is_over {
            true => Stage::Listing(wanted),
            false => Stage::Moving(wanted, next),
        };
        true
    }

    /// Whether pages are on their way to their new places.
    pub(super) fn is_moving_pages(&self) -> bool {
        self.resize.page_writes_left > 0
    }

    /// A write or a flush of the cache-disk has failed: with it may be gone what was written
    /// before, and no later flush tells (C22).
    pub(super) fn moved_pages_may_be_gone(&mut self) {
        self.resize.pages_may_be_gone = match self.resize.stage {
            Stage::Moving(..) => true,
            Stage::Listing(_) => {
                self.pages_move_to().is_some() && !self.checkpoint.has_flushed_moved_pages()
            }
            _ => false,
        };
    }

    pub(super) fn page_moved(&mut self, result: Result<(), IoError>) {
        self.resize.page_writes_left -= 1;
        if let Err(error) = result {
            self.cache_disk_error(error);
        }
    }

    /// Where a checkpoint writes pages, too: from when they are moved on.
    pub(super) fn pages_move_to(&self) -> Option<Geometry> {
        match &self.resize.stage {
            Stage::Moving(wanted, _) | Stage::Listing(wanted)
                if wanted.geometry.copy_pages != wanted.copy_pages_before =>
            {
                Some(wanted.geometry)
            }
            _ => None,
        }
    }

    /// Whether the checkpoint tells of pages that were moved: behind a flush.
    pub(super) fn has_moved_pages(&self) -> bool {
        self.is_telling_size() && self.pages_move_to().is_some()
    }

    fn give_up_if_stuck_emptying(&mut self) -> bool {
        if self.log.segments.retired_live_slots() == 0 || !self.destage.is_between_works() {
            return false;
        }
        let Stage::Emptying(wanted, mut headway) = std::mem::take(&mut self.resize.stage) else {
            unreachable!("looked at");
        };
        let left = self.left_in_retired();
        let is_stuck = self.is_stuck(&mut headway, left);
        self.resize.stage = Stage::Emptying(wanted, headway);
        is_stuck && self.give_up_resize(self.stuck_now())
    }

    fn left_in_retired(&self) -> Left {
        Left::of_slots(self.log.segments.retired_live_slots())
    }

    /// What is to be destaged next while the log is being shrunk: by turns with the others if
    /// somebody waits for room, which the retired segments do not make.
    pub(super) fn retired_victim(
        &mut self,
        is_suitable: impl Fn(&Engine, SegmentIndex) -> bool,
    ) -> Option<SegmentIndex> {
        if !self.resize.wants_destage() {
            return None;
        }
        let others_have_turn = self.someone_waits_for_destaging() && !self.resize.others_had_turn;
        self.resize.others_had_turn = others_have_turn;
        let mut retired = self.log.segments.retired_live().filter(|_| !others_have_turn);
        retired.find(|index| is_suitable(self, *index))
    }

    // ---- what the checkpoint does -------------------------------------------------------------

    /// Where the end mark is with a size that a checkpoint has to tell of.
    pub(super) fn end_mark_to_list(&self, geometry: &Geometry) -> u64 {
        match self.resize.volume_to_list() {
            Some(volume) => volume.offset + volume.bytes,
            None => self.superblock.end_mark_offset_with(geometry),
        }
    }

    /// The same, if one has to be written: the one that counts stays as it is.
    pub(super) fn end_mark_to_write(&self, geometry: &Geometry) -> Option<u64> {
        let offset = self.end_mark_to_list(geometry);
        let is_new = self.superblock.end_mark_offset() != Some(offset);
        (is_new && self.will_have_end_mark(geometry)).then_some(offset)
    }

    /// Step 2 of growing: the checkpoint with this generation is durable.
    pub(super) fn tell_size(&mut self, geometry: Geometry, generation: u64) {
        let session_epoch = self.superblock.session_epoch_min();
        self.superblock.count(!self.config.data_disk_read_only);
        if let Some(VolumePlace { offset, bytes, blocks }) = self.resize.volume_to_list() {
            (self.superblock.volume_moved_to, self.superblock.volume_bytes) = (offset, bytes);
            self.superblock.data_disk.blocks = blocks;
        }
        self.superblock.has_end_mark = self.will_have_end_mark(&geometry);
        self.superblock.resized =
            Some(Resized { session_epoch, checkpoint_generation: generation });
        self.superblock.geometry = geometry;
    }

    /// Whether there is an end mark with this size. Where there was none the disk need not have room
    /// for it: only who gives the log another size has looked.
    pub(super) fn will_have_end_mark(&self, geometry: &Geometry) -> bool {
        self.superblock.has_end_mark || geometry.copy_pages == self.superblock.geometry.copy_pages
    }

    /// Steps 2 and 3 of growing.
    pub(super) fn write_size(&mut self, is_second: bool) {
        let offset = match is_second {
            false => self.superblock.offset(),
            true => self.superblock.second_offset(),
        };
        let purpose = Purpose::Checkpoint(checkpoint::Step::Superblock { is_second });
        self.write_superblock_copy(offset, purpose);
    }

    /// Both copies are durable.
    pub(super) fn size_is_durable(&mut self) {
        let end = self.superblock.end();
        if let Some(legs) = &mut self.legs {
            legs.set_end(end);
        }
        let wanted = match self.resize.stage {
            Stage::Listing(wanted) => wanted,
            _ => unreachable!("a size is told of that somebody waits for"),
        };
        if wanted.volume.is_some() {
            self.resize.stage = Stage::Resting;
            return self.reply_resized(&wanted, Ok(()));
        }
        self.log.geometry_is(self.superblock.geometry);
        if wanted.segments_kept < self.log.segments.total() {
            self.log.segments.cut();
            self.fit_tables();
        }
        self.resize.stage = Stage::Extending(wanted);
        if self.close.is_some() {
            self.end_resize();
        }
    }

    /// Step 4 of growing. Tells whether anything was done.
    fn extend_tables(&mut self, wanted: Wanted) -> bool {
        if self.resize.has_paused {
            return false;
        }
        let total = self.log.segments.total();
        let next = wanted.geometry.segments.min(total.saturating_add(SEGMENTS_AT_ONCE));
        if next > total {
            self.log.segments.grow(next);
            self.fit_tables();
            self.resize.has_paused = true;
        } else if self.copies.pages() < wanted.geometry.copy_pages {
            let at_last = wanted.geometry.copy_pages;
            let next = at_last.min(self.copies.pages().saturating_add(PAGES_AT_ONCE));
            if self.copies.fit_chains(at_last) {
                self.grow_read_area(next, at_last);
            }
            self.resize.has_paused = true;
        } else {
            self.resize.stage = Stage::Resting;
            self.reply(wanted.id, Ok(()), None);
        }
        true
    }

    /// Tables by slot are as large as the log.
    fn fit_tables(&mut self) {
        let total = self.log.segments.total();
        let per_segment = self.superblock.geometry.slots_per_segment();
        let slots = total * per_segment;
        let budget = IndexBudget::new(self.config.index_bytes_max, slots);
        self.table.set_slots(slots, total * (per_segment - 1), budget);
        if let Some(clean) = &mut self.clean {
            clean.set_segments(total);
        }
    }

    /// Tables and log are as large as the superblock says, unless that is being changed.
    ///
    /// # Panics
    /// If they are not.
    pub(super) fn check_size(&self) {
        let segments = &self.log.segments;
        let is_at_rest = matches!(self.resize.stage, Stage::Resting)
            && self.close.is_none()
            && self.logs_changes()
            && !self.log_is_given_up();
        if is_at_rest {
            let expected = self.superblock.geometry.segments;
            assert_eq!((segments.limit(), segments.total()), (expected, expected));
            assert_eq!(self.copies.pages(), self.superblock.geometry.copy_pages);
        }
    }

    // ---- what is told -------------------------------------------------------------------------

    pub(super) fn resize_wake_up(&self) -> Option<Time> {
        match &self.resize.stage {
            Stage::Emptying(wanted, headway) => {
                let has_more = self.log.segments.limit() > wanted.segments_kept;
                // A page that is being written wakes it when it is.
                let has_more_pages = self.resize.has_paused
                    && self.resize.pages_emptied_to < self.copies.pages_known();
                match has_more || has_more_pages {
                    true => Some(self.now.after(PAUSE)),
                    false => self.headway_wake_up(headway),
                }
            }
            // What is on its way wakes it.
            Stage::TakingBack if self.are_pages_on_their_way() => None,
            Stage::Moving(..) if self.moving_waits() => None,
            Stage::Extending(_) | Stage::TakingBack | Stage::Moving(..) => {
                Some(self.now.after(PAUSE))
            }
            Stage::Resting | Stage::Settling(..) | Stage::Listing(_) => None,
        }
    }

    /// How far a change of the log's size is, if one is under way. Cheap.
    pub fn resize_report(&self) -> Option<ResizeReport> {
        let wanted = self.resize.wanted().filter(|wanted| wanted.volume.is_none())?;
        let state = match &self.resize.stage {
            Stage::Emptying(..) => ResizeState::Emptying,
            _ => ResizeState::Writing,
        };
        let segments = &self.log.segments;
        let not_retired = segments.limit().saturating_sub(wanted.segments_kept);
        Some(ResizeReport {
            segments_before: wanted.segments_before,
            segments_wanted: wanted.geometry.segments,
            copy_pages_before: wanted.copy_pages_before,
            copy_pages_wanted: wanted.geometry.copy_pages,
            state,
            segments_left: match state {
                ResizeState::Emptying => segments.retired_in_use() + not_retired,
                ResizeState::Writing => 0,
            },
            lines_left: segments.retired_live_slots(),
            since: wanted.since,
        })
    }
}
