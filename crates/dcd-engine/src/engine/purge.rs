//! A discard of very many lines, whose lines leave the lookup table a part at a time while requests
//! go on.
//!
//! ```text
//! 1. Nothing is being destaged; what would be waits.
//! 2. The range is in the log, and among the zero ranges below the table: answered, and durable, as
//!    any discard.
//!      Crash from here on: a start replays it, and none of its lines is left.
//! 3. Lines of the range that are still in the table are dead. Until they are gone
//!    - whoever reads does not look for them there ([`Engine::pieces`]);
//!    - changes of the range wait: a new line would look like an old one;
//!    - nothing is destaged, and no checkpoint is begun that would list them. One that is being
//!    gathered may list
//!      them: the discard is behind its position, and is replayed.
//! ```
//! All at once would hold up everybody for as long as it takes, which is seconds where a cache of a
//! terabyte is full.

use super::Engine;
use crate::log::lookup_table::{Pieces, Walker};
use crate::log::sweep::Sweep;
use crate::units::{Duration, FRAGMENTS_PER_LINE, FragmentMask, LbaRange, Line, Time};

/// As short as an engine can say: others have their turn between.
const PAUSE: Duration = Duration::from_micros(1);

/// A discard that is being carried out.
pub(super) struct Purge {
    sweep: Sweep,
    /// A part went since the last input.
    has_paused: bool,
}

impl Purge {
    pub(super) fn go_on(&mut self) {
        self.has_paused = false;
    }
}

impl Engine {
    /// Where the newest fragments of a line are; what is discarded is nowhere.
    pub(super) fn pieces(&self, line: Line) -> Pieces {
        match self.is_purged(line) {
            true => Pieces::default(),
            false => self.table.find(line),
        }
    }

    /// Whether the line is discarded, and perhaps still in the table.
    pub(super) fn is_purged(&self, line: Line) -> bool {
        self.purge.as_ref().is_some_and(|purge| purge.sweep.covers(line))
    }

    /// Whether changes of these blocks have to wait.
    pub(super) fn is_being_purged(&self, range: LbaRange) -> bool {
        let Some(purge) = &self.purge else { return false };
        let lines = purge.sweep.lines();
        range.start.line() < lines.end && lines.start.lba().0 < range.end()
    }

    /// Whether too many lines have to be looked at for a range to leave the table at once.
    pub(super) fn needs_purge(&self, range: LbaRange) -> bool {
        let first = Line(range.start.0.div_ceil(FRAGMENTS_PER_LINE));
        let looked_at = self.table.looked_at_for(first, range.blocks / FRAGMENTS_PER_LINE);
        looked_at > self.config.limits.discarded_lines as u64
    }

    /// Step 1.
    pub(super) fn may_begin_purge(&self) -> bool {
        self.purge.is_none() && self.destage.is_idle()
    }

    /// Behind step 2.
    pub(super) fn begin_purge(&mut self, line: Line, lines: u64) {
        assert!(self.may_begin_purge(), "one at a time, and nothing is destaged");
        self.forget_poison(line, lines);
        let sweep = Sweep::new(&mut self.table, Walker::Purge, line..Line(line.0 + lines));
        self.purge = Some(Purge { sweep, has_paused: false });
    }

    /// Step 3. Tells whether a part went.
    pub(super) fn advance_purge(&mut self) -> bool {
        let has_paused = self.purge.as_ref().is_none_or(|purge| purge.has_paused);
        !has_paused && {
            self.purge_part(self.config.limits.discarded_lines);
            true
        }
    }

    /// What follows cannot be done beside one.
    pub(super) fn finish_purge(&mut self) {
        while self.purge.is_some() {
            self.purge_part(usize::MAX);
        }
    }

    pub(super) fn purge_wake_up(&self) -> Option<Time> {
        self.purge.as_ref().map(|_| self.now.after(PAUSE))
    }

    fn purge_part(&mut self, count: usize) {
        let mut purge = self.purge.take().expect("under way");
        let (found, has_more) = purge.sweep.part(&mut self.table, count);
        for line in found {
            self.forget(line, FragmentMask::FULL);
        }
        if has_more {
            self.purge = Some(Purge { has_paused: true, ..purge });
        } else {
            self.destage.something_changed();
        }
    }
}
