//! Completing physical sectors: a line that does not fill its sector is made whole in the log
//! before it is destaged, so that replay can repair a torn write of it (C15).
//!
//! ```text
//! 1. Read the line, together with others close by, from the data-disk.
//! 2. Append to the log what the log does not have of it, as a change of its own.
//!      Crash here: the line is as incomplete as it was.
//! 3. When that is durable the line fills its sector, and goes with a later batch.
//! ```
//! It happens in the background, never on the write path, and gives way as destage writes do. What
//! was read is older than any change made meanwhile: only what is still missing then is appended.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Step;
use crate::buffer::Buffer;
use crate::engine::Disk;
use crate::engine::pace::Go;
use crate::engine::{Engine, Purpose};
use crate::io::IoError;
use crate::log::Appender;
use crate::units::{BLOCK_SIZE, LINE_SIZE, Line, RecordNumber};

/// Most lines that wait to be completed.
const WAITING_MAX: usize = 1024;
/// Lines no further apart than this are read together: 64 KiB pass by the head while it would seek.
const GAP_LINES_MAX: u64 = 16;
/// Most lines in one read, those between counted: 1 MiB.
const READ_LINES_MAX: u64 = 256;

/// Lines to complete.
#[derive(Default)]
pub(super) struct Completions {
    /// Not read yet.
    waiting: BTreeSet<Line>,
    /// Those that wait are of the one victim that is emptied while the log is tight.
    may_use_reserve: bool,
    reading: BTreeMap<Line, Reading>,
    reads_in_flight: u32,
    /// The record of the newest one.
    record: RecordNumber,
}

/// A line that is being read.
struct Reading {
    /// It was discarded meanwhile.
    is_useless: bool,
    may_use_reserve: bool,
}

impl Completions {
    pub(super) fn reads_in_flight(&self) -> u32 {
        self.reads_in_flight
    }

    pub(super) fn is_reading(&self, line: Line) -> bool {
        self.reading.contains_key(&line)
    }

    /// Whether lines of this range are being read.
    pub(super) fn reads(&self, range: &Range<Line>) -> bool {
        self.reading.range(range.clone()).next().is_some()
    }

    pub(super) fn cancel(&mut self, range: Range<Line>) {
        for (_, reading) in self.reading.range_mut(range) {
            reading.is_useless = true;
        }
    }
}

impl Engine {
    pub(super) fn want_completions(&mut self, lines: BTreeSet<Line>) {
        self.destage.completions.may_use_reserve = self.log_is_tight();
        let waiting = &mut self.destage.completions.waiting;
        let room = WAITING_MAX.saturating_sub(waiting.len());
        for line in lines.into_iter().take(room) {
            if waiting.insert(line) {
                self.table.keep(line);
            }
        }
    }

    fn want_no_completions(&mut self) {
        for line in std::mem::take(&mut self.destage.completions.waiting) {
            self.table.unpin(line);
        }
    }

    /// Whether all completions have come to their end and are durable; sees to it that they do.
    pub(super) fn completions_are_durable(&mut self) -> bool {
        let completions = &self.destage.completions;
        let record = completions.record;
        if record > self.log.durable_record() {
            self.want_durable(record);
            return false;
        }
        completions.reading.is_empty() && completions.waiting.is_empty()
    }

    /// Step 1, as far as the pace allows.
    pub(super) fn advance_completions(&mut self) -> bool {
        if self.destage.completions.waiting.is_empty() || self.purge_holds_back_destaging() {
            return false;
        }
        // What is read and finds no room would be read again and again, for as long as the write of
        // a full segment buffer takes. Its end makes room, and makes destaging look again.
        let has_no_room = self.log_is_tight() || !self.log.has_room(1, Appender::Request);
        let may_use_reserve = self.destage.completions.may_use_reserve;
        if self.close_wants_no_destage() || has_no_room && !may_use_reserve {
            self.want_no_completions();
            return false;
        }
        let mut moved = false;
        while !self.destage.completions.waiting.is_empty()
            && self.destage.retry_at(self.now).is_none()
            && self.may_destage(self.destage.ios_in_flight()) == Go::Now
        {
            let lines = self.next_to_complete();
            moved = true;
            if !lines.is_empty() {
                self.read_for_completion(lines);
            }
        }
        moved
    }

    /// The first lines that wait, as many as one read takes; much may have happened to them since.
    fn next_to_complete(&mut self) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        while let Some(line) = self.destage.completions.waiting.first().copied() {
            if let (Some(first), Some(last)) = (lines.first(), lines.last())
                && (line.0 - last.0 > GAP_LINES_MAX || line.0 - first.0 >= READ_LINES_MAX)
            {
                break;
            }
            self.destage.completions.waiting.pop_first();
            let pieces = self.pieces_to_ship(line);
            let covered = self.covered_by_log(line, &pieces);
            if self.can_be_destaged(line, &pieces)
                && covered.is_some_and(|covered| !self.fills_sectors(line, covered))
            {
                lines.push(line);
            } else {
                self.table.unpin(line);
            }
        }
        lines
    }

    fn read_for_completion(&mut self, lines: Vec<Line>) {
        let (first, last) = (lines[0], lines[lines.len() - 1]);
        let last_bytes = u64::from(self.line_mask(last).0.count_ones()) * BLOCK_SIZE;
        let length = (last.0 - first.0) * LINE_SIZE + last_bytes;
        let completions = &mut self.destage.completions;
        completions.reads_in_flight += 1;
        let may_use_reserve = completions.may_use_reserve;
        for line in &lines {
            completions.reading.insert(*line, Reading { is_useless: false, may_use_reserve });
        }
        let purpose = Purpose::Destage(Step::ReadForCompletion(lines));
        self.start_read(Disk::DataDisk, first.lba().byte(), length, purpose);
    }

    /// Step 2.
    pub(super) fn completion_read(
        &mut self,
        lines: Vec<Line>,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let completions = &mut self.destage.completions;
        completions.reads_in_flight -= 1;
        let reading: Vec<Reading> = lines
            .iter()
            .map(|line| completions.reading.remove(line).expect("being read"))
            .collect();
        self.destage.something_changed();
        let (Ok(()), Some(buffer)) = (result, buffer) else {
            let error = result.err().unwrap_or(IoError::Failed);
            if self.destage_failed(error, false) {
                return self.unpin_completed(&lines);
            }
            match &lines[..] {
                [line] => self.block_failed(*line, error, 1),
                // One bad sector must not hold back its neighbours.
                several => {
                    for line in several {
                        if self.can_be_destaged(*line, &self.pieces_to_ship(*line)) {
                            self.table.keep(*line);
                            self.read_for_completion(vec![*line]);
                        }
                    }
                }
            }
            return self.unpin_completed(&lines);
        };
        for (line, reading) in lines.iter().zip(reading) {
            if !reading.is_useless {
                let at = ((line.0 - lines[0].0) * LINE_SIZE) as usize;
                self.complete(*line, &buffer.bytes()[at..], reading.may_use_reserve);
            }
        }
        self.unpin_completed(&lines);
        if self.destage_is_urgent() && self.destage.completions.reading.is_empty() {
            // All of a victim in one commit: each commit costs the log a header.
            self.want_durable(self.log.newest_record());
        }
    }

    fn unpin_completed(&mut self, lines: &[Line]) {
        lines.iter().for_each(|line| self.table.unpin(*line));
    }

    fn complete(&mut self, line: Line, bytes: &[u8], may_use_reserve: bool) {
        let present = self.table.find(line).mask();
        let poisoned = self.poisoned.get(&line).copied().unwrap_or_default();
        let missing = self.line_mask(line).without(present).without(poisoned);
        let appender = if may_use_reserve { Appender::Engine } else { Appender::Request };
        if present.is_empty() || missing.is_empty() {
            return;
        }
        if !self.log.has_room(1, appender) {
            if may_use_reserve {
                // Crashes and errors at a bad time have eaten the reserve. Standing still for ever
                // would be worse than a sector that is written as its fragments.
                self.destage.incomplete_allowed.insert(line);
            }
            return;
        }
        let mut data = Vec::with_capacity(LINE_SIZE as usize);
        for run in missing.byte_runs() {
            data.extend_from_slice(&bytes[run]);
        }
        let (slot, checksum) = self.log.append_data(line, missing, &data);
        self.log.end_request();
        let dead = self.table.insert(line, missing, slot, checksum);
        assert!(dead.as_slice().is_empty(), "what was missing kills nothing");
        self.note_if_stuck(line);
        self.counters.completed_lines += 1;
        self.destage.completions.record = self.log.newest_record();
    }
}
