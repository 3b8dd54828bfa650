//! Discards of very many lines, whose lines leave the lookup table a part at a time while requests
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
//! terabyte is full. Discards of other ranges join those that are being carried out, and share
//! their walks of the table ([`Sweep`]): a trim of everything comes as thousands of them.
//!
//! Within a budget ([`super::index`]) memory has only some of the lines. When those have gone, the
//! others are counted along the run of the newest checkpoint, in one *pass* for all ranges that
//! wait, and what that lists of them is *void* from then on; no checkpoint is under way meanwhile,
//! which would take its place. Ranges that come during a pass are looked for in memory behind it,
//! and join the next.

use std::ops::Range;

use super::Engine;
use crate::log::lookup_table::{Pieces, Walker};
use crate::log::sweep::{LineRanges, Sweep};
use crate::units::{Duration, FRAGMENTS_PER_LINE, FragmentMask, LbaRange, Line, Time};

/// As short as an engine can say: others have their turn between.
const PAUSE: Duration = Duration::from_micros(1);
/// Rounds of discards that follow each other, before what waits for room in the log has its turn;
/// within a budget also passes.
const ROUNDS_MAX: u32 = 4;

/// Discards that are being carried out.
#[derive(Default)]
pub(super) struct Purge {
    sweep: Option<Sweep>,
    /// Memory has none of these lines any more: the rest of them is listed on the cache-disk. Comes
    /// before what is swept.
    in_run: Option<InRun>,
    /// Passes along the run that were begun since nothing was under way.
    passes: u32,
    /// A part went since the last input.
    has_paused: bool,
    /// Somebody waits for something to be destaged before the next discard.
    is_turn_of_destaging: bool,
}

/// Lines that are counted along the run.
struct InRun {
    lines: LineRanges,
    /// The line that was counted last.
    last: Option<Line>,
    /// What comes next is on its way.
    waits: bool,
}

impl Purge {
    pub(super) fn go_on(&mut self) {
        self.has_paused = false;
    }

    /// Whether lines that are discarded may still be in the table.
    pub(super) fn is_under_way(&self) -> bool {
        self.sweep.is_some() || self.in_run.is_some()
    }

    /// Whether that may be these.
    fn covers(&self, lines: Range<Line>) -> bool {
        self.in_run.as_ref().is_some_and(|it| it.lines.overlap(&lines))
            || self.sweep.as_ref().is_some_and(|sweep| sweep.covers(lines))
    }

    /// Destaging has begun something, or cannot.
    pub(super) fn turn_of_destaging_is_over(&mut self) {
        self.is_turn_of_destaging = false;
    }

    /// Whether nothing may be destaged for these, or those that wait.
    pub(super) fn holds_back_destaging(&self, one_waits: bool) -> bool {
        self.is_under_way() || one_waits && !self.is_turn_of_destaging
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
        self.purge.covers(line..Line(line.0 + 1))
    }

    /// Whether changes of these blocks have to wait.
    pub(super) fn is_being_purged(&self, range: LbaRange) -> bool {
        self.purge.is_under_way() && self.purge.covers(range.start.line()..end_line(range.end()))
    }

    /// Whether too many lines have to be looked at for a range to leave the table at once.
    pub(super) fn needs_purge(&self, range: LbaRange) -> bool {
        let first = range.start.0.div_ceil(FRAGMENTS_PER_LINE);
        let whole = Line(first)..Line(first + range.blocks / FRAGMENTS_PER_LINE);
        self.table.must_look_at_more(whole, self.config.limits.discarded_lines as u64)
    }

    /// Step 1.
    pub(super) fn may_purge(&self) -> bool {
        if self.purge.is_under_way() {
            let rounds = self.purge.sweep.as_ref().map_or(0, Sweep::rounds);
            return rounds.max(self.purge.passes) < ROUNDS_MAX && !self.table.is_full_of_void();
        }
        self.destage.is_idle() && !self.purge.is_turn_of_destaging && self.run_is_settled()
    }

    /// Behind step 2.
    pub(super) fn purge(&mut self, line: Line, lines: u64) {
        assert!(self.may_purge(), "nothing is destaged");
        self.forget_poison(line, lines);
        let sweep = self.purge.sweep.get_or_insert_with(|| Sweep::new(Walker::Purge));
        sweep.add(line..Line(line.0 + lines));
    }

    /// Step 3. Tells whether a part went.
    pub(super) fn advance_purge(&mut self) -> bool {
        if !self.purge.is_under_way() || self.purge.has_paused {
            return false;
        }
        if self.log_is_given_up() && self.purge.in_run.is_some() {
            // What is listed cannot be read any more.
            return false;
        }
        self.purge.has_paused = true;
        self.purge_part(self.config.limits.discarded_lines);
        true
    }

    /// What follows cannot be done beside one.
    pub(super) fn finish_purge(&mut self) {
        loop {
            // The cache-disk is clean: nothing is listed there.
            self.purge.in_run = None;
            self.table.end_voiding();
            if self.purge.sweep.is_none() {
                break;
            }
            self.purge_part(usize::MAX);
        }
        self.purge.passes = 0;
    }

    pub(super) fn purge_wake_up(&self) -> Option<Time> {
        let waits = self.purge.in_run.as_ref().is_some_and(|it| it.waits || self.log_is_given_up());
        (self.purge.is_under_way() && !waits).then(|| self.now.after(PAUSE))
    }

    fn purge_part(&mut self, count: usize) {
        if self.purge.in_run.is_some() {
            return self.purge_run_part(count);
        }
        let sweep = self.purge.sweep.as_mut().expect("under way");
        let found = sweep.part(&mut self.table, count);
        for line in found.lines {
            self.forget(line, FragmentMask::FULL);
        }
        if found.has_more {
            return;
        }
        let sweep = self.purge.sweep.take().expect("under way");
        if self.table.run().is_some_and(|run| !run.is_empty()) {
            let lines = sweep.into_swept();
            self.table.begin_voiding(lines.clone());
            self.purge.in_run = Some(InRun { lines, last: None, waits: false });
            self.purge.passes += 1;
            return self.begin_scan(Walker::Purge);
        }
        self.end_purge();
    }

    /// The same of what is listed and not in memory.
    fn purge_run_part(&mut self, count: usize) {
        let in_run = self.purge.in_run.take().expect("under way");
        let mut gone = Vec::new();
        let (has_more, waits) = self.walk_listed(Walker::Purge, count, |table, live| {
            if table.is_to_be_voided(live.line) {
                gone.push((live.line, live.slot));
            }
        });
        let mut last = in_run.last;
        for (line, slot) in gone {
            self.drop_dead_slots(&[slot]);
            if last != Some(line) {
                self.table.listed_line_left(line);
            }
            last = Some(line);
        }
        if has_more {
            self.purge.in_run = Some(InRun { last, waits, ..in_run });
            return;
        }
        self.end_scan(Walker::Purge);
        self.table.end_voiding();
        // Others may have come meanwhile.
        if self.purge.sweep.is_none() {
            self.end_purge();
        }
    }

    fn end_purge(&mut self) {
        self.purge.passes = 0;
        self.purge.is_turn_of_destaging = self.someone_waits_for_destaging();
        self.destage.something_changed();
    }
}

/// The line behind that of the last block before this one.
fn end_line(end: u64) -> Line {
    Line(end.div_ceil(FRAGMENTS_PER_LINE))
}
