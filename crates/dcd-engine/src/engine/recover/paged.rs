//! Replay within a budget for the index: most of what the checkpoint lists is not in memory.
//!
//! - Entries are carried out some at a time: the lines that they speak of are pinned first, so pages
//!   of many are read together.
//! - What was announced is looked for along the run; lines of which something is dropped come into
//!   memory, as changed.
//! - Lines of large discards are looked for in memory, and then counted along the run, which is
//!   void for them from then on, as in [`crate::engine::purge`].

use std::ops::Range;

use super::replay::Replay;
use crate::engine::Engine;
use crate::engine::index::Next;
use crate::format::checkpoint::LiveSlot;
use crate::format::record::Entry;
use crate::log::lookup_table::Walker;
use crate::log::sweep::Sweep;
use crate::units::{FRAGMENTS_PER_LINE, Line, SlotIndex};

/// How far it is.
#[derive(Default)]
pub(super) struct Paged {
    /// So many of the entries that come next speak of known lines.
    admitted: usize,
    /// The same of entries whose lines are being found out.
    asked: usize,
    /// The lines were asked for.
    is_asked: bool,
    /// Lines are being counted along the run: the one that was counted last.
    voiding: Option<Option<Line>>,
    /// What the run has of the line that is being looked at.
    listed: Vec<LiveSlot>,
}

impl Paged {
    /// One of those that were admitted is carried out.
    pub(super) fn entry_taken(&mut self) {
        self.admitted = self.admitted.saturating_sub(1);
    }
}

impl Engine {
    /// Whether all is known of these lines; if not, it will be.
    pub(super) fn is_admitted(&mut self, paged: &mut Paged, lines: Vec<Line>) -> bool {
        if !paged.is_asked {
            self.recovery().waits_for_index = true;
            self.admit_replay(lines);
        }
        let waits = self.recovery().waits_for_index;
        paged.is_asked = waits;
        !waits
    }

    /// They are not looked at any more.
    pub(super) fn unpin_replayed(&mut self) {
        for line in std::mem::take(&mut self.recovery().pinned) {
            self.table.unpin(line);
        }
    }

    /// Whether the next entry may be carried out, or there is none.
    pub(super) fn admit_entries(&mut self, replay: &mut Replay) -> bool {
        if let Some(last) = replay.paged.voiding {
            return self.void_replayed(&mut replay.paged, last);
        }
        if replay.paged.admitted > 0 {
            return true;
        }
        let at_once = self.config.limits.checkpoint_lines;
        let mut lines = Vec::new();
        if !replay.paged.is_asked {
            self.unpin_replayed();
            while replay.entries.len() < at_once && self.replay_next_record(replay) {}
            for (entry, ..) in &replay.entries {
                if lines.len() >= at_once {
                    break;
                }
                replay.paged.asked += 1;
                lines.extend(self.lines_to_know(entry));
            }
            lines.sort_unstable();
            lines.dedup();
        }
        if !self.is_admitted(&mut replay.paged, lines) {
            return false;
        }
        replay.paged.admitted = std::mem::take(&mut replay.paged.asked);
        true
    }

    fn lines_to_know(&self, entry: &Entry) -> Vec<Line> {
        match *entry {
            // Of a forged record a line may lie behind the disk: nobody looks for it.
            Entry::Data { line, .. } if self.line_mask(line).is_empty() => Vec::new(),
            Entry::Data { line, .. } => vec![line],
            Entry::Announce { .. } => Vec::new(),
            Entry::Zero { line, lines, .. } => self.each_of(line, lines),
            Entry::Bypass { range } => {
                let start = range.start.line();
                self.each_of(start, range.end().div_ceil(FRAGMENTS_PER_LINE) - start.0)
            }
        }
    }

    fn each_of(&self, line: Line, lines: u64) -> Vec<Line> {
        let lines = self.on_disk(line, lines);
        match self.is_swept(&lines) {
            true => Vec::new(),
            false => (lines.start.0..lines.end.0).map(Line).collect(),
        }
    }

    /// Those of these lines that the data-disk has.
    pub(super) fn on_disk(&self, line: Line, lines: u64) -> Range<Line> {
        let disk_lines = self.data_disk.blocks.div_ceil(FRAGMENTS_PER_LINE);
        let end = line.0.saturating_add(lines).min(disk_lines);
        Line(line.0.min(end))..Line(end)
    }

    /// Whether lines that are left nothing of are too many to be known one by one.
    pub(super) fn is_swept(&self, lines: &Range<Line>) -> bool {
        lines.end.0 - lines.start.0 > self.config.limits.discarded_lines as u64
    }

    /// Drops what the run lists in segments that were announced. Tells whether there is more.
    pub(super) fn drop_listed(&mut self, replay: &mut Replay, count: usize) -> bool {
        for _ in 0..count {
            let next = self.next_listed(Walker::Start);
            let of = replay.paged.listed.first().map(|live| live.line);
            match next {
                Next::Waits => {
                    self.recovery().waits_for_index = true;
                    return true;
                }
                Next::Item(live) if of.is_none_or(|of| of == live.line) => {
                    replay.paged.listed.push(live);
                    self.pop_listed(Walker::Start);
                }
                Next::Item(_) | Next::Over => {
                    let Some(line) = of else {
                        self.end_scan(Walker::Start);
                        return false;
                    };
                    self.drop_listed_line(replay, line);
                }
            }
        }
        self.recovery().has_paused = true;
        true
    }

    fn drop_listed_line(&mut self, replay: &mut Replay, line: Line) {
        let listed = std::mem::take(&mut replay.paged.listed);
        let geometry = self.superblock.geometry;
        let is_dropped =
            |slot: SlotIndex| replay.is_announced.contains(geometry.locate(slot).0.0 as usize);
        if !listed.iter().any(|live| is_dropped(live.slot)) || !self.table.is_as_listed(line) {
            return;
        }
        self.load_listed(line, &listed);
        for live in listed.iter().filter(|live| is_dropped(live.slot)) {
            self.replay_remove(line, live.mask);
        }
        // It may have been destaged since the checkpoint learnt what is on the data-disk.
        self.witnesses.forget(line);
    }

    /// What was forgotten is not in memory any more: the rest is counted along the run.
    pub(super) fn begin_voiding_replayed(&mut self, paged: &mut Paged, sweep: Sweep) {
        if self.table.run().is_some_and(|run| !run.is_empty()) {
            self.table.begin_voiding(sweep.into_swept());
            self.begin_scan(Walker::Start);
            paged.voiding = Some(None);
        }
    }

    /// Tells whether all were counted.
    fn void_replayed(&mut self, paged: &mut Paged, mut last: Option<Line>) -> bool {
        let mut gone = Vec::new();
        let count = self.config.limits.checkpoint_lines;
        let (has_more, waits) = self.walk_listed(Walker::Start, count, |table, live| {
            if table.is_to_be_voided(live.line) {
                gone.push((live.line, live.slot));
            }
        });
        for (line, slot) in gone {
            let segment = self.superblock.geometry.locate(slot).0;
            self.log.segments.drop_live(segment);
            if last != Some(line) {
                self.table.listed_line_left(line);
            }
            last = Some(line);
        }
        paged.voiding = has_more.then_some(last);
        self.recovery().waits_for_index = waits;
        self.recovery().has_paused = has_more && !waits;
        if !has_more {
            self.end_scan(Walker::Start);
            self.table.end_voiding();
        }
        !has_more
    }
}
