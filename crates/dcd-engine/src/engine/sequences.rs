//! Requests about sequences: which are kept, and what gives way to them.

use super::Engine;
use crate::copies::Sequence;
use crate::format::copy_page::{NAME_BYTES_MAX, SequenceLabel};
use crate::format::geometry::COPIES_PER_PAGE;
use crate::io::{NewSequence, RequestId, SequenceError, SequenceRequest};
use crate::units::{CopyPageIndex, FRAGMENTS_PER_LINE, Line, SequenceId};

impl Engine {
    pub(super) fn sequence_request(
        &mut self,
        request: SequenceRequest,
    ) -> Result<(), SequenceError> {
        match request {
            SequenceRequest::Store(new) => self.store_sequence(&new),
            SequenceRequest::Remove { name } => self.remove_sequences(Some(&name)),
            SequenceRequest::Clear => self.remove_sequences(None),
            SequenceRequest::Pin { name, is_pinned } => self.pin_sequence(&name, is_pinned),
            SequenceRequest::Serve { on } => self.serve_sequences(on),
            SequenceRequest::Save => unreachable!("it is answered later"),
        }
    }

    /// What is answered is to last: no checkpoint is made while the cache-disk is left alone.
    pub(super) fn may_use_read_area(&self) -> Result<(), SequenceError> {
        match self.has_no_use_for_copies() {
            _ if self.copies.pages() == 0 || self.log_is_given_up() => {
                Err(SequenceError::NoReadArea)
            }
            true => Err(SequenceError::ReadAreaUnused),
            false => Ok(()),
        }
    }

    fn serve_sequences(&mut self, on: bool) -> Result<(), SequenceError> {
        if self.copies.pages() == 0 {
            return Err(SequenceError::NoReadArea);
        }
        self.end_reading_ahead();
        self.prefetch.serve(on);
        Ok(())
    }

    /// Has a checkpoint made, and replies when it is durable.
    pub(super) fn save_copies(&mut self, id: RequestId) {
        if let Err(error) = self.may_use_read_area() {
            return self.reply(id, Err(error.into()), None);
        }
        self.checkpoint.force_for(id);
    }

    /// Keeps the lines of a sequence from now on; a sequence of that name is replaced.
    pub(super) fn store_sequence(&mut self, new: &NewSequence) -> Result<(), SequenceError> {
        self.may_use_read_area()?;
        if new.name.is_empty() || new.name.len() > NAME_BYTES_MAX || new.name.contains('\0') {
            return Err(SequenceError::BadSequence);
        }
        let lines = self.lines_of_sequence(new);
        if lines.is_empty() {
            return Err(SequenceError::BadSequence);
        }
        let pages = lines.len().div_ceil(COPIES_PER_PAGE as usize);
        if pages as u64 > self.sequence_pages_max() {
            return Err(SequenceError::NoRoom);
        }
        let old = self.copies.sequence_named(&new.name).map(|old| old.label().clone());
        let benefit = new.is_detected.then_some(new.occurrences * u64::from(COPIES_PER_PAGE));
        let mut going: Vec<SequenceId> = old.iter().map(|old| old.id).collect();
        self.choose_to_go(pages, benefit, &mut going).ok_or(SequenceError::NoRoom)?;
        for id in going {
            self.remove_sequence_now(id);
        }
        self.make_free_pages(pages);
        let free: Vec<CopyPageIndex> = self.copies.free_pages().take(pages).collect();
        if free.len() < pages {
            // Slots of what had to go are still being written.
            return Err(SequenceError::Busy);
        }
        let label = SequenceLabel {
            id: old.as_ref().map_or_else(|| self.copies.unused_sequence_id(), |old| old.id),
            name: new.name.clone(),
            is_pinned: old.is_some_and(|old| old.is_pinned),
            is_detected: new.is_detected,
            runs: 0,
            lines_served: 0,
        };
        self.copies.add_sequence(label, &lines, &free);
        self.arranging.try_again();
        Ok(())
    }

    /// The whole lines of a sequence, each once, in the order of their first block.
    fn lines_of_sequence(&self, new: &NewSequence) -> Vec<Line> {
        let end = self.data_disk.blocks / FRAGMENTS_PER_LINE;
        let mut known = std::collections::BTreeSet::new();
        let ranges = new.ranges.iter().filter(|range| range.blocks > 0);
        let lines = ranges.flat_map(|range| {
            let last = (range.end() - 1) / FRAGMENTS_PER_LINE;
            (range.start.line().0..=last.min(end.saturating_sub(1))).map(Line)
        });
        lines.filter(|line| line.0 < end && known.insert(*line)).collect()
    }

    /// Pages that sequences may take together.
    fn sequence_pages_max(&self) -> u64 {
        u64::from(self.copies.pages()) * u64::from(self.config.sequence_percent) / 100
    }

    /// The smallest read area, in pages, for all sequences that nobody but their owner gives up.
    pub(super) fn copy_pages_min(&self) -> u64 {
        let kept = self.copies.sequences().filter(|it| it.is_kept());
        let pages: u64 = kept.map(|it| it.pages().len() as u64).sum();
        (pages * 100).div_ceil(u64::from(self.config.sequence_percent).max(1))
    }

    /// Has the sequence go that brings least, of those that may. False: there is none.
    pub(super) fn give_up_a_sequence(&mut self) -> bool {
        let others = self.copies.sequences().filter(|it| !it.is_kept());
        let least = others.min_by_key(|it| (it.benefit(), it.label().id));
        let Some(id) = least.map(|it| it.label().id) else { return false };
        self.remove_sequence_now(id);
        true
    }

    /// Whether sequences take more than they may.
    pub(super) fn has_too_many_sequences(&self) -> bool {
        let taken: u64 = self.copies.sequences().map(|it| it.pages().len() as u64).sum();
        taken > self.sequence_pages_max()
    }

    /// Chooses which sequences go so that `pages` become free: those that bring the least for their
    /// room. A detected one, of this benefit, displaces no sequence that brings more, and none that
    /// was recorded.
    fn choose_to_go(
        &self,
        pages: usize,
        benefit: Option<u64>,
        going: &mut Vec<SequenceId>,
    ) -> Option<()> {
        let taken: u64 = self.copies.sequences().map(|s| s.pages().len() as u64).sum();
        let of = |id: &SequenceId| self.copies.sequence(*id).map_or(0, |s| s.pages().len() as u64);
        let mut left = taken - going.iter().map(of).sum::<u64>();
        let mut others: Vec<&Sequence> =
            self.copies.sequences().filter(|s| !going.contains(&s.label().id)).collect();
        others.sort_by_key(|s| (!s.label().is_detected, s.benefit(), s.label().id));
        for sequence in others {
            if left + pages as u64 <= self.sequence_pages_max() {
                return Some(());
            }
            let label = sequence.label();
            let may_go = !label.is_pinned
                && benefit.is_none_or(|new| label.is_detected && sequence.benefit() < new);
            if may_go {
                left -= sequence.pages().len() as u64;
                going.push(label.id);
            }
        }
        (left + pages as u64 <= self.sequence_pages_max()).then_some(())
    }

    fn remove_sequence_now(&mut self, id: SequenceId) {
        self.forget_streams_of(id);
        self.copies.remove_sequence(id);
    }

    /// Removes the sequence of that name, or all but the pinned ones.
    fn remove_sequences(&mut self, name: Option<&str>) -> Result<(), SequenceError> {
        let is_meant = |sequence: &&Sequence| match name {
            Some(name) => sequence.label().name == name,
            None => !sequence.label().is_pinned,
        };
        let ids: Vec<SequenceId> =
            self.copies.sequences().filter(is_meant).map(|s| s.label().id).collect();
        if name.is_some() && ids.is_empty() {
            return Err(SequenceError::NoSuchSequence);
        }
        for id in ids {
            self.remove_sequence_now(id);
        }
        Ok(())
    }

    /// Pins a sequence: nothing displaces it.
    fn pin_sequence(&mut self, name: &str, is_pinned: bool) -> Result<(), SequenceError> {
        let found = self.copies.sequence_named(name).map(|sequence| sequence.label().id);
        let sequence = found.and_then(|id| self.copies.sequence_mut(id));
        sequence.ok_or(SequenceError::NoSuchSequence)?.label_mut().is_pinned = is_pinned;
        Ok(())
    }
}
