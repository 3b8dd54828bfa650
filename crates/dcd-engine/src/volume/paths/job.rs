//! A chunk of a stripe, and what a job knows and wants of it: no I/O.

use std::collections::{BTreeMap, BTreeSet};

use super::read::Piece;
use super::write::OpId;
use crate::buffer::Buffer;
use crate::io::IoError;
use crate::units::{LINE_SIZE, Time};
use crate::volume::UpperId;
use crate::volume::format::journal::JournalItem;

const LINE_BYTES: usize = LINE_SIZE as usize;
/// After so many tries what cannot be read is given up.
pub(super) const TRIES_MAX: u32 = 4;

/// Some columns of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::volume) struct ChunkKey {
    pub(in crate::volume) set: u8,
    pub(in crate::volume) stripe: u64,
    pub(in crate::volume) chunk: u32,
}

/// Names a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::volume) struct JobId(pub(super) u64);

/// Where a new line comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::volume) enum Source {
    /// From this byte of the buffer on.
    Upper(UpperId, usize),
    Zeroes,
}

/// A new line.
#[derive(Clone, Copy, Debug)]
pub(in crate::volume) struct CellChange {
    pub(in crate::volume) row: u32,
    pub(in crate::volume) column: u32,
    pub(in crate::volume) source: Source,
}

/// Lines that lie together on a member.
#[derive(Clone, Copy, Debug)]
pub(in crate::volume) struct CellRun {
    pub(super) place: usize,
    pub(super) column: u32,
    pub(super) lines: u32,
}

/// What a job is for.
#[derive(Debug)]
pub(in crate::volume) enum Kind {
    Write(BTreeSet<OpId>),
    Read(Vec<Piece>),
    /// What belongs on a place is written there.
    Rebuild {
        place: usize,
        /// What cannot be read is given up.
        is_last_try: bool,
    },
    /// Everything is read and compared.
    Scrub,
    /// What a place has is copied to another disk.
    Copy {
        place: usize,
    },
}

#[derive(Default)]
pub(super) struct Waiting {
    /// When the first of the ops came.
    pub(super) since: Option<Time>,
    pub(super) ops: BTreeSet<OpId>,
    pub(super) changes: BTreeMap<(u32, u32), Source>,
    pub(super) reads: Vec<Piece>,
    pub(super) repair: Option<Kind>,
}

/// What a write of step 5 takes its bytes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    New,
    Old,
    Zeroes,
}

/// A chunk, and what is known and wanted of it. Lines are kept by row, for `columns` only.
pub(in crate::volume) struct Job {
    pub(super) key: ChunkKey,
    pub(super) kind: Kind,
    pub(super) columns: std::ops::Range<u32>,
    pub(super) rows: u32,
    pub(super) old: Buffer,
    pub(super) known: Vec<bool>,
    pub(super) new: Buffer,
    pub(super) is_new: Vec<bool>,
    /// Places whose line of a column could not be read, or has not its checksum.
    pub(super) bad: BTreeSet<(usize, u32)>,
    /// Those of them that were read, and have not their checksum.
    pub(super) rotten: BTreeSet<(usize, u32)>,
    /// Places of columns to be read alone: they could not be read together with others.
    pub(super) alone: BTreeSet<(usize, u32)>,
    /// Places of columns that are read only because they lie between others.
    pub(super) gaps: BTreeSet<(usize, u32)>,
    /// Places that a scrub has read.
    pub(super) compared: BTreeSet<(usize, u32)>,
    /// Rows of columns that nothing tells any more.
    pub(super) lost: BTreeSet<(u32, u32)>,
    /// Rows of columns that were to be copied, and cannot be had.
    pub(super) unreadable: BTreeSet<(u32, u32)>,
    /// Step 5: place, column, row and where from.
    pub(super) writes: BTreeMap<(usize, u32), (u32, From)>,
    pub(super) items: Vec<JournalItem>,
    pub(super) ios_left: u32,
    pub(super) state: State,
    pub(super) fua: bool,
    /// Writes all rows of a stripe with parity.
    pub(super) is_whole_stripe: bool,
    /// Its new lines are in many runs (fragmented.rs).
    pub(super) is_fragmented: bool,
    /// Its checksums cannot be read.
    pub(super) is_without_sums: bool,
    pub(super) result: Result<(), IoError>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Reading,
    Journaling,
    Writing,
}

/// All jobs.
#[derive(Default)]
pub(in crate::volume) struct Jobs {
    pub(super) waiting: BTreeMap<ChunkKey, Waiting>,
    pub(super) holders: BTreeMap<ChunkKey, JobId>,
    pub(super) jobs: BTreeMap<JobId, Job>,
    pub(super) next: u64,
    /// Chunks of which changes have failed because old lines could not be read, and how often one
    /// after the other.
    pub(super) unreadable: BTreeMap<ChunkKey, u32>,
}

impl Jobs {
    pub(in crate::volume) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.jobs.is_empty()
    }

    /// Errors may pass; sectors that cannot be read do not.
    pub(super) fn is_last_try(&self, key: ChunkKey) -> bool {
        self.unreadable.get(&key).is_some_and(|tries| *tries + 1 >= TRIES_MAX)
    }

    pub(super) fn note_try(&mut self, key: ChunkKey, is_unreadable: bool) {
        match is_unreadable {
            true => *self.unreadable.entry(key).or_default() += 1,
            false => drop(self.unreadable.remove(&key)),
        }
    }

    pub(in crate::volume) fn set_of(&self, job: JobId) -> Option<u8> {
        self.jobs.get(&job).map(|job| job.key.set)
    }

    pub(super) fn get(&self, job: JobId) -> &Job {
        &self.jobs[&job]
    }
}

impl Job {
    pub(super) fn new(key: ChunkKey, kind: Kind, columns: std::ops::Range<u32>, rows: u32) -> Job {
        let cells = rows as usize * columns.len();
        Job {
            key,
            kind,
            columns,
            rows,
            old: Buffer::default(),
            known: vec![false; cells],
            new: Buffer::default(),
            is_new: vec![false; cells],
            bad: BTreeSet::new(),
            rotten: BTreeSet::new(),
            alone: BTreeSet::new(),
            gaps: BTreeSet::new(),
            compared: BTreeSet::new(),
            lost: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            writes: BTreeMap::new(),
            items: Vec::new(),
            ios_left: 0,
            state: State::Reading,
            fua: false,
            is_whole_stripe: false,
            is_without_sums: false,
            is_fragmented: false,
            result: Ok(()),
        }
    }

    fn cell(&self, row: u32, column: u32) -> usize {
        row as usize * self.columns.len() + (column - self.columns.start) as usize
    }

    pub(super) fn is_known(&self, row: u32, column: u32) -> bool {
        self.known[self.cell(row, column)]
    }

    pub(super) fn is_new(&self, row: u32, column: u32) -> bool {
        self.is_new[self.cell(row, column)]
    }

    pub(super) fn old(&self, row: u32, column: u32) -> &[u8] {
        let at = self.cell(row, column) * LINE_BYTES;
        &self.old.bytes()[at..at + LINE_BYTES]
    }

    pub(super) fn put_old(&mut self, row: u32, column: u32, bytes: &[u8]) {
        let cell = self.cell(row, column);
        if self.old.is_empty() {
            self.old = Buffer::zeroed(self.known.len() * LINE_BYTES);
        }
        self.old.bytes_mut()[cell * LINE_BYTES..][..LINE_BYTES].copy_from_slice(bytes);
        self.known[cell] = true;
    }

    pub(super) fn new_line(&self, row: u32, column: u32) -> &[u8] {
        let at = self.cell(row, column) * LINE_BYTES;
        &self.new.bytes()[at..at + LINE_BYTES]
    }

    pub(super) fn put_new(&mut self, row: u32, column: u32, bytes: &[u8]) {
        let cell = self.cell(row, column);
        if self.new.is_empty() {
            self.new = Buffer::zeroed(self.is_new.len() * LINE_BYTES);
        }
        self.new.bytes_mut()[cell * LINE_BYTES..][..LINE_BYTES].copy_from_slice(bytes);
        self.is_new[cell] = true;
    }

    pub(super) fn line(&self, row: u32, column: u32, from: From) -> &[u8] {
        match from {
            From::New => self.new_line(row, column),
            From::Old => self.old(row, column),
            From::Zeroes => &[0; LINE_BYTES],
        }
    }

    /// New lines in runs of adjacent columns: row, first column, how many.
    pub(super) fn new_runs(&self) -> Vec<(u32, u32, u32)> {
        let mut runs: Vec<(u32, u32, u32)> = Vec::new();
        for row in 0..self.rows {
            for column in self.columns.clone().filter(|column| self.is_new(row, *column)) {
                match runs.last_mut() {
                    Some((last, first, count)) if *last == row && *first + *count == column => {
                        *count += 1;
                    }
                    _ => runs.push((row, column, 1)),
                }
            }
        }
        runs
    }

    /// How its writes have ended.
    pub(super) fn result(&self) -> Result<(), IoError> {
        self.result
    }

    /// Lines of the journal that it needs behind the items.
    pub(super) fn payload_lines(&self) -> u32 {
        self.is_new.iter().filter(|is_new| **is_new).count() as u32
    }

    /// Appends its new lines, in the order of its items.
    pub(super) fn append_payload(&self, payload: &mut Vec<u8>) {
        for (row, first, count) in self.new_runs() {
            for column in first..first + count {
                payload.extend_from_slice(self.new_line(row, column));
            }
        }
    }
}
