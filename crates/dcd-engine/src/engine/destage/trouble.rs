//! The data-disk does not take what is to be destaged.
//!
//! ```text
//! bad in places     only what belongs there waits (C24): a write that failed is tried again in halves, until the
//!                   lines that cannot be written are alone; these wait longer each time
//! takes nothing     (full, read-only, gone, or all fails) everything waits, longer each time, and then one write
//!                   at a time is tried: if each line were tried for itself, the log would be read
//!                   again and again
//! keeps nothing     (a file that was unlinked: writes go into memory, the flush fails) everything waits, until a
//!                   flush succeeds: that writes are taken meanwhile says nothing
//! ```
//! Somebody must free space or change a disk, so it is told once when it begins, and once when it
//! ends.

use std::collections::BTreeMap;

use super::{Blocked, RETRY_MAX, RETRY_MIN};
use crate::engine::Engine;
use crate::io::IoError;
use crate::stats::DestageTrouble;
use crate::units::{Duration, Line, SegmentIndex, Time};

/// So many writes failed that had never failed before, with none between that did not: the disk
/// takes nothing.
const FAILURES_MAX: u32 = 16;

/// What is wrong, if anything is.
#[derive(Default)]
pub(super) struct Trouble {
    now: Option<Wrong>,
    /// Writes that failed since the last one that did not.
    failures: u32,
    /// The last flush failed: nothing that is taken counts, until one does not.
    flush_failed: bool,
}

struct Wrong {
    error: IoError,
    since: Time,
    /// Everything waits.
    is_whole: bool,
}

impl Trouble {
    fn failed(&mut self, error: IoError, is_whole: bool, now: Time) {
        let wrong = self.now.get_or_insert(Wrong { error, since: now, is_whole });
        // One place that is bad besides does not explain why everything waits.
        if is_whole || !wrong.is_whole {
            (wrong.error, wrong.is_whole) = (error, is_whole);
        }
    }

    /// The disk has taken a write.
    pub(super) fn has_written(&mut self) {
        self.failures = 0;
    }

    /// So ended a flush.
    pub(super) fn flushed(&mut self, is_ok: bool) {
        if is_ok
            && self.flush_failed
            && let Some(wrong) = &mut self.now
        {
            // Perhaps lines are left that are bad for themselves.
            wrong.is_whole = false;
        }
        self.flush_failed = !is_ok;
    }

    /// Whether the last write failed: one at a time, until one does not.
    pub(super) fn is_trying(&self) -> bool {
        self.failures > 0
    }
}

impl Engine {
    /// A write of destaging, or a read for it, has failed. Tells whether everything waits now.
    pub(super) fn destage_failed(&mut self, error: IoError, is_new: bool) -> bool {
        let trouble = &mut self.destage.trouble;
        trouble.failures += u32::from(is_new || trouble.failures == 0);
        // A volume may have lost one member, and the others take what is theirs.
        let is_whole = !self.below.is_volume()
            && (is_of_the_whole_disk(error) || trouble.failures >= FAILURES_MAX);
        trouble.failed(error, is_whole, self.now);
        if is_whole {
            self.back_off();
        }
        is_whole
    }

    /// A flush of destaging has failed: everything waits.
    pub(super) fn destage_flush_failed(&mut self, error: IoError) {
        let trouble = &mut self.destage.trouble;
        trouble.failures += 1;
        // As with writes: the others of a volume take what is theirs.
        trouble.failed(error, !self.below.is_volume(), self.now);
        self.back_off();
    }

    /// Something failed: not again at once.
    pub(super) fn back_off(&mut self) {
        let wait = match self.destage.retry {
            Some((at, wait)) if at > self.now => wait,
            Some((_, wait)) => Duration(wait.0 * 2).min(RETRY_MAX),
            None => RETRY_MIN,
        };
        self.destage.retry = Some((self.now.after(wait), wait));
    }

    /// A line could not be written or completed: it waits, longer each time, and holds back no
    /// others (C24). `together`: the lines that were written, or read, with it.
    pub(super) fn block_failed(&mut self, line: Line, error: IoError, together: u64) {
        let before = self.destage.blocked.get(&line);
        let longer = before.map_or(RETRY_MIN, |b| Duration(b.wait.0 * 2).min(RETRY_MAX));
        let (wait, together_max) = match error {
            // Twice what everything waits: the others have their try between.
            _ if is_of_the_whole_disk(error) => {
                let first = Duration(RETRY_MIN.0 * 2);
                let longer = before.map_or(first, |b| Duration(b.wait.0 * 2));
                let together_max = before.map_or(u64::MAX, |before| before.together_max);
                (longer.min(Duration(RETRY_MAX.0 * 2)), together_max)
            }
            // Which of them it is must be found out first.
            _ if together > 1 => (RETRY_MIN, together.div_ceil(2)),
            _ => (longer, 1),
        };
        let until = self.now.after(wait);
        self.destage.unblock_at = Some(self.destage.unblock_at.map_or(until, |at| at.min(until)));
        let blocked = Blocked { until: Some(until), wait, together_max };
        self.block_line(line, blocked);
    }

    /// Slots of lines that wait after a failure, or of all that have failed: a segment that has no
    /// others is not read for nothing.
    pub(super) fn blocked_slots(&self, all: bool) -> BTreeMap<SegmentIndex, u32> {
        let mut slots = BTreeMap::new();
        for (line, _) in self.destage.blocked.iter().filter(|(_, b)| all || b.until.is_some()) {
            for (slot, _) in self.pieces_to_ship(*line).as_slice() {
                let (segment, _) = self.superblock.geometry.locate(*slot);
                *slots.entry(segment).or_default() += 1;
            }
        }
        slots
    }

    /// Whether all is well again: told when nothing is left that could not be written.
    pub(super) fn watch_trouble(&mut self) {
        if self.destage.trouble.now.is_none()
            || !self.destage.blocked.is_empty()
            || !self.destage.zeroes_bad.is_empty()
        {
            return;
        }
        let trouble = &self.destage.trouble;
        if trouble.failures == 0 && !trouble.flush_failed || !self.has_destage_work() {
            self.destage.trouble = Trouble::default();
        }
    }

    /// Why what is dirty does not get to the data-disk, if that is so. Cheap.
    pub fn destage_trouble(&self) -> Option<DestageTrouble> {
        if self.config.data_disk_read_only && self.has_destage_work() {
            return Some(DestageTrouble {
                error: IoError::ReadOnly,
                since: self.opened_at,
                is_whole: true,
                blocked_lines: 0,
                retry_at: None,
            });
        }
        let wrong = self.destage.trouble.now.as_ref()?;
        Some(DestageTrouble {
            error: wrong.error,
            since: wrong.since,
            is_whole: wrong.is_whole,
            blocked_lines: self.destage.blocked.len() as u64,
            retry_at: self.destage.retry_at(self.now),
        })
    }
}

/// Whether this error says that other places will not be written either.
fn is_of_the_whole_disk(error: IoError) -> bool {
    match error {
        IoError::NoSpace | IoError::ReadOnly | IoError::Gone | IoError::TimedOut => true,
        IoError::Failed | IoError::Unsupported => false,
    }
}
