//! Discard and write-zeroes: logged, O(1) on the disks, zero from the reply on (C12).
//!
//! Whole lines become a range in the log and in memory ([`Engine::zeroes`]), below the lookup
//! table: a later write of such a line is in the table and wins. Lines touched in part get zero
//! fragments as ordinary data; rounding is never outward.
//!
//! A zeroed range must reach the data-disk before any line above it does, or it would wipe out what
//! is newer: [`super::destage`] sees to that.

use super::Engine;
use super::discards::Owner;
use super::write::Change;
use crate::format::record::Entry;
use crate::io::RequestError;
use crate::units::{BLOCK_SIZE, FRAGMENTS_PER_LINE, FragmentMask, LbaRange, Line};
use crate::zero_ranges::ZeroRange;

/// Zeroed bytes for the fragments at the edges.
static ZEROES: [u8; 4096] = [0; 4096];

/// Entries of a zeroed range: itself, and the parts of lines at both ends.
pub(super) const ENTRIES_OF_ZERO: u32 = 3;

impl Engine {
    pub(super) fn write_zeroes(
        &mut self,
        owner: Owner,
        range: LbaRange,
        may_unmap: bool,
        fua: bool,
    ) {
        assert!(self.check_range(range));
        self.counters.zeroes += 1;
        self.pace.foreground(self.now);
        if self.is_passing_by() && !self.is_held_by_switch() {
            return self.pass(owner, Change::Zero { range, may_unmap }, fua);
        }
        if self.log_is_given_up() {
            return self.reply(owner, Err(RequestError::Io), None);
        }
        self.change(owner, Change::Zero { range, may_unmap }, fua);
    }

    /// Appends it; there is room. `is_purged`: its lines leave the table by and by.
    pub(super) fn zero(&mut self, range: LbaRange, may_unmap: bool, is_purged: bool) {
        let whole_start = range.start.0.div_ceil(FRAGMENTS_PER_LINE);
        let mut whole_end = range.end() / FRAGMENTS_PER_LINE;
        if range.end() == self.data_disk.blocks {
            // The last line of an odd-sized disk has no more fragments than the range covers.
            whole_end = range.end().div_ceil(FRAGMENTS_PER_LINE);
        }
        if whole_start >= whole_end {
            for (line, mask) in range.lines() {
                let part = LbaRange::new(
                    line.lba().0 + u64::from(mask.0.trailing_zeros()),
                    mask.0.count_ones().into(),
                );
                self.append(part, &ZEROES[..part.bytes() as usize]);
            }
            return self.log.end_request();
        }
        let head_blocks = (whole_start * FRAGMENTS_PER_LINE).saturating_sub(range.start.0);
        let head = LbaRange::new(range.start.0, head_blocks);
        let tail_start = (whole_end * FRAGMENTS_PER_LINE).min(range.end());
        let tail = LbaRange::new(tail_start, range.end() - tail_start);
        for edge in [head, tail] {
            if edge.blocks > 0 {
                self.append(edge, &ZEROES[..(edge.blocks * BLOCK_SIZE) as usize]);
            }
        }
        let (line, lines) = (Line(whole_start), whole_end - whole_start);
        self.log.append_entry(&Entry::Zero { line, lines, may_unmap });
        if let Some(since) = self.table.since_checkpoint() {
            since.note_all();
        }
        self.log.end_request();
        match is_purged {
            true => self.purge(line, lines),
            false => self.forget_lines(line, lines),
        }
        let zero = ZeroRange { line, lines, may_unmap };
        self.zeroes.insert(zero);
        self.zeroed_behind_window(zero);
        self.zeroes_rebuilt.zeroed(zero);
        self.copies_changed(line, lines);
        self.destage.zeroes_logged(self.log.newest_record());
        self.destage.something_changed();
    }

    // ---- room in checkpoints ------------------------------------------------------------------

    /// Whether a change may be logged that adds so many zero ranges. A checkpoint must list them,
    /// those that are zero now, and those that a start would rebuild.
    pub(super) fn has_room_for_zero_ranges(&self, more: usize) -> bool {
        let rebuilt = self.zeroes_rebuilt.rebuilt_max() + self.zero_ranges_of_bypasses() + more;
        self.may_gather_zero_ranges(more) && rebuilt <= self.config.limits.zero_ranges
    }

    /// The same of those that are zero now: so many may gather before requests wait for them to be
    /// destaged. Half of a checkpoint, so that the other half is there for what is logged until the
    /// next.
    pub(super) fn may_gather_zero_ranges(&self, more: usize) -> bool {
        let now = self.zeroes_rebuilt.listed().len().max(self.zeroes.len());
        // They come to the others when those of the window are being destaged.
        let now = now + self.windows.zeroed_behind_len();
        now + self.zero_ranges_of_bypasses() + more <= self.config.limits.zero_ranges / 2
    }

    /// Whether only a checkpoint makes room for zero ranges soon, and does.
    pub(super) fn zero_ranges_want_checkpoint(&self) -> bool {
        let most = self.config.limits.zero_ranges;
        let rebuilt = self.zeroes_rebuilt.rebuilt_from_durable();
        rebuilt + self.zero_ranges_of_bypasses() >= most - most / 4
            && self.zeroes_rebuilt.listed().len() + most / 8 <= rebuilt
    }

    /// Takes whole lines out of the log.
    pub(super) fn forget_lines(&mut self, line: Line, lines: u64) {
        for line in self.table.lines_within(line..Line(line.0.saturating_add(lines))) {
            self.forget(line, FragmentMask::FULL);
        }
        self.forget_poison(line, lines);
        self.destage.cancel_completions(line, lines);
    }

    pub(super) fn forget_poison(&mut self, line: Line, lines: u64) {
        let end = Line(line.0.saturating_add(lines));
        while let Some((line, _)) = self.poisoned.range(line..end).next() {
            let line = *line;
            self.poisoned.remove(&line);
        }
    }
}
