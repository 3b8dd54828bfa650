//! Jobs: what a change of a stripe takes, and whatever else must have it to itself.
//!
//! ```text
//! 1. A job gets its chunk when no other has it, and the checksums of its lines are in memory
//!    (sums.rs). What has come for the chunk meanwhile goes together.
//! 2. plan.rs says which old lines are needed; they are read, and it says so again, because one may
//!    be unreadable.
//! 3. The new parity is computed.
//! 4. New lines and parity are written to the journal, durable.
//!      Crash before: the stripe is as it was. Crash behind: a start writes all of it again, to the
//!      members that are there then. Without this, a crash in step 5 leaves a parity that fits
//!      neither the old nor the new lines: what a missing member held would be lost, though nobody
//!      wrote there.
//! 5. The members are written; one that cannot be is done without (C26), if the others can do
//!    without it.
//! 6. The chunk is free.
//! ```
//! A RAID 5 write of less than all rows waits in step 1 while others write all of theirs: the rest
//! of it is probably on its way, and then nothing is read for its parity, and no arm leaves its
//! place between two stripes of a stream. One with many short runs of lines rewrites what lies
//! between them (fragmented.rs).
//!
//! A *chunk* is some columns of a stripe, so many that a record of the journal has room for all of
//! its rows. Columns do not depend on each other. RAID 0 has steps 1, 5 and 6; RAID 1 has no
//! step 2.

use std::collections::BTreeSet;

use super::super::checksums::{Checksums, LineSum};
use super::super::format::journal::{JOURNAL_ITEMS_MAX, JOURNAL_PAYLOAD_LINES_MAX, JournalItem};
use super::super::lost::LineRun;
use super::super::placement::RaidLevel;
use super::super::raid::Location;
use super::super::{Purpose, Volume};
use super::job::{CellChange, CellRun, ChunkKey, From, Job, JobId, Kind, Source, State};
use super::read::Piece;
use super::sums::Sums;
use super::write::OpId;
use crate::buffer::Buffer;
use crate::io::{Device, IoError};
use crate::units::{Duration, LINE_SIZE, MemberIndex, Time};

const LINE_BYTES: usize = LINE_SIZE as usize;
/// How long a write of a part of a stripe waits for the rest, at most.
const REST_OF_STRIPE_WAIT: Duration = Duration::from_millis(30);

impl Volume {
    /// Columns of a chunk of a set.
    pub(in crate::volume) fn chunk_columns(&self, set: u8) -> u32 {
        let layout = self.layout(set);
        // Each line may be an item of its own.
        let lines = JOURNAL_PAYLOAD_LINES_MAX.min(JOURNAL_ITEMS_MAX as u32);
        (lines / layout.rows()).min(layout.unit_lines())
    }

    // ---- step 1 -------------------------------------------------------------------------------

    pub(in crate::volume) fn want_write(
        &mut self,
        key: ChunkKey,
        op: OpId,
        changes: Vec<CellChange>,
    ) {
        let now = self.now;
        let waiting = self.jobs.waiting.entry(key).or_default();
        waiting.since.get_or_insert(now);
        waiting.ops.insert(op);
        let changes =
            changes.into_iter().map(|change| ((change.row, change.column), change.source));
        waiting.changes.extend(changes);
    }

    pub(in crate::volume) fn want_read(&mut self, key: ChunkKey, piece: Piece) {
        self.jobs.waiting.entry(key).or_default().reads.push(piece);
    }

    /// `kind`: a rebuild or a scrub.
    pub(in crate::volume) fn want_repair(&mut self, key: ChunkKey, kind: Kind) {
        self.jobs.waiting.entry(key).or_default().repair = Some(kind);
    }

    pub(in crate::volume) fn advance_jobs(&mut self) -> bool {
        let mut free: Vec<ChunkKey> = self
            .jobs
            .waiting
            .keys()
            .copied()
            .filter(|key| !self.jobs.holders.contains_key(key))
            .collect();
        // Parts of stripes look at whether whole ones are under way.
        free.sort_by_cached_key(|key| !self.is_whole_stripe(*key));
        let mut moved = false;
        for key in free {
            moved |= self.start_job(key);
        }
        moved
    }

    /// Reads before writes: they were there first. No writes to a stripe that is being rebuilt:
    /// until the whole stripe counts, they would leave out the member.
    fn start_job(&mut self, key: ChunkKey) -> bool {
        let waiting = &self.jobs.waiting[&key];
        let is_rebuilt = self.repair.is_at(key.set, key.stripe);
        if is_rebuilt && waiting.reads.is_empty() && waiting.repair.is_none() {
            return false;
        }
        if self.waits_for_the_rest(key) {
            return false;
        }
        let sums = self.want_sums_of_chunk(key);
        if sums == Sums::Awaited {
            return false;
        }
        let is_whole_stripe = self.is_whole_stripe(key);
        let mut waiting = self.jobs.waiting.remove(&key).expect("looked at");
        let layout = self.layout(key.set);
        let (rows, whole) = (layout.rows(), self.columns_of_chunk(key));
        let mut job = if !waiting.reads.is_empty() {
            let pieces = std::mem::take(&mut waiting.reads);
            let start = pieces.iter().map(|piece| piece.columns().start).min().expect("some");
            let end = pieces.iter().map(|piece| piece.columns().end).max().expect("some");
            Job::new(key, Kind::Read(pieces), start..end, rows)
        } else if !waiting.ops.is_empty() && !is_rebuilt {
            let changes = std::mem::take(&mut waiting.changes);
            let start = changes.keys().map(|(_, column)| *column).min().expect("some");
            let end = changes.keys().map(|(_, column)| *column + 1).max().expect("some");
            let ops = std::mem::take(&mut waiting.ops);
            waiting.since = None;
            let fua = ops.iter().any(|op| self.is_fua(*op));
            let mut job = Job::new(key, Kind::Write(ops), start..end, rows);
            job.fua = fua;
            job.is_whole_stripe = is_whole_stripe;
            for ((row, column), source) in changes {
                match source {
                    Source::Zeroes => job.put_new(row, column, &[0; LINE_BYTES]),
                    Source::Upper(upper, offset) => {
                        let buffer = self.uppers[&upper].buffer.as_ref().expect("of a write");
                        job.put_new(row, column, &buffer.bytes()[offset..offset + LINE_BYTES]);
                    }
                }
            }
            job.is_fragmented = job.new_runs().len() > rows as usize;
            job
        } else {
            let kind = waiting.repair.take().expect("else it would not wait");
            let columns =
                if self.has_missed(&kind, key) { whole } else { whole.start..whole.start };
            Job::new(key, kind, columns, rows)
        };
        if !waiting.reads.is_empty() || !waiting.ops.is_empty() || waiting.repair.is_some() {
            self.jobs.waiting.insert(key, waiting);
        }
        let id = JobId(self.jobs.next);
        self.jobs.next += 1;
        self.jobs.holders.insert(key, id);
        self.counters.stripe_jobs += 1;
        match sums {
            Sums::Unreadable => {
                self.fail_reads(&job);
                (job.is_without_sums, job.result) = (true, Err(IoError::Failed));
                self.end_job(id, job);
            }
            Sums::There | Sums::Awaited => self.read_for_job(id, job),
        }
        true
    }

    /// Nothing is known of what they want.
    fn fail_reads(&mut self, job: &Job) {
        let Kind::Read(pieces) = &job.kind else { return };
        for piece in pieces.clone() {
            self.piece_recovered(piece, piece.columns().map(|_| None));
        }
    }

    pub(super) fn columns_of_chunk(&self, key: ChunkKey) -> std::ops::Range<u32> {
        let columns = self.chunk_columns(key.set);
        key.chunk * columns..((key.chunk + 1) * columns).min(self.layout(key.set).unit_lines())
    }

    /// Whether all data of the columns that are to be written is there, of a set with parity.
    fn is_whole_stripe(&self, key: ChunkKey) -> bool {
        let layout = self.layout(key.set);
        let changes = &self.jobs.waiting[&key].changes;
        if layout.parity_row().is_none() || changes.is_empty() {
            return false;
        }
        let columns: BTreeSet<u32> = changes.keys().map(|(_, column)| *column).collect();
        changes.len() == columns.len() * layout.data_units() as usize
    }

    /// Whether a write of a part of a stripe is put off. Not one that writes everything, and
    /// nothing when no stream goes on.
    fn waits_for_the_rest(&self, key: ChunkKey) -> bool {
        let waiting = &self.jobs.waiting[&key];
        let is_in_time =
            waiting.since.is_some_and(|since| self.now < since.after(REST_OF_STRIPE_WAIT));
        is_in_time
            && waiting.reads.is_empty()
            && waiting.repair.is_none()
            && self.layout(key.set).parity_row().is_some()
            && !self.is_whole_stripe(key)
            && self.jobs.jobs.values().any(|job| job.is_whole_stripe && job.key.set == key.set)
    }

    /// When the next write of a part of a stripe has waited long enough.
    pub(in crate::volume) fn jobs_wake_up(&self) -> Option<Time> {
        let times = self.jobs.waiting.values().filter_map(|waiting| waiting.since);
        times.map(|since| since.after(REST_OF_STRIPE_WAIT)).filter(|at| *at > self.now).min()
    }

    // ---- step 2 -------------------------------------------------------------------------------

    fn read_for_job(&mut self, id: JobId, mut job: Job) {
        let cells = self.plan(&mut job);
        if cells.is_empty() {
            return self.job_knows_enough(id, job);
        }
        let mut runs: Vec<CellRun> = Vec::new();
        for (place, column) in cells {
            match runs.last_mut() {
                Some(run)
                    if run.place == place
                        && run.column + run.lines == column
                        && !job.alone.contains(&(place, column)) =>
                {
                    run.lines += 1
                }
                _ => runs.push(CellRun { place, column, lines: 1 }),
            }
        }
        job.state = State::Reading;
        job.ios_left = runs.len() as u32;
        let (set, stripe) = (job.key.set, job.key.stripe);
        self.jobs.jobs.insert(id, job);
        for run in runs {
            let layout = self.layout(set);
            let device = Device::Member(layout.member(run.place));
            let offset = layout.offset(stripe, run.column);
            self.counters.member_reads += 1;
            let length = u64::from(run.lines) * LINE_SIZE;
            self.start_read(device, offset, length, Purpose::Cells(id, run));
        }
    }

    pub(in crate::volume) fn cells_read(
        &mut self,
        id: JobId,
        run: CellRun,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let mut job = self.jobs.jobs.remove(&id).expect("it waits for this");
        let layout = &self.layouts[usize::from(job.key.set)];
        let row = layout.row_at(run.place, job.key.stripe);
        // One bad sector takes no other line with it.
        let is_split = result == Err(IoError::Failed) && run.lines > 1;
        let columns = run.column..run.column + run.lines;
        if is_split {
            job.alone.extend(columns.clone().map(|column| (run.place, column)));
        }
        let gaps = std::mem::take(&mut job.gaps);
        let is_wanted = |column: u32| !is_split && !gaps.contains(&(run.place, column));
        for (i, column) in columns.enumerate().filter(|(_, column)| is_wanted(*column)) {
            job.compared.insert((run.place, column));
            let bytes = match (&result, &buffer) {
                (Ok(()), Some(buffer)) => Some(&buffer.bytes()[i * LINE_BYTES..][..LINE_BYTES]),
                _ => None,
            };
            // A RAID 0 set has no checksums.
            let expected = (layout.level() != RaidLevel::Raid0).then(|| {
                let index = Checksums::index(layout, job.key.stripe, row, column);
                self.checksums.get(job.key.set, index)
            });
            let is_right =
                |bytes: &&[u8]| expected.is_none_or(|expected| expected == LineSum::of(bytes));
            match bytes.filter(is_right) {
                Some(bytes) => job.put_old(row, column, bytes),
                None => {
                    self.counters.lines_bad += 1;
                    if bytes.is_some() {
                        self.members.get_mut(layout.member(run.place)).lines_rotten += 1;
                        job.rotten.insert((run.place, column));
                    }
                    job.bad.insert((run.place, column));
                }
            }
        }
        job.gaps = gaps;
        let member = layout.member(run.place);
        if matches!(result, Err(IoError::Gone | IoError::TimedOut)) {
            self.do_without(member);
        }
        job.ios_left -= 1;
        if job.ios_left > 0 {
            self.jobs.jobs.insert(id, job);
        } else {
            self.read_for_job(id, job);
        }
    }

    // ---- steps 3 and 4 ------------------------------------------------------------------------

    fn job_knows_enough(&mut self, id: JobId, mut job: Job) {
        self.conclude(&mut job);
        if matches!(job.kind, Kind::Write(_)) {
            self.jobs.note_try(job.key, job.result.is_err());
        }
        if job.result.is_err() {
            return self.end_job(id, job);
        }
        let ChunkKey { set, stripe, .. } = job.key;
        if self.is_journaled(set) {
            for (row, column, lines) in job.new_runs() {
                job.items.push(JournalItem::Lines { set, stripe, row, column, lines });
            }
        }
        for (row, column) in &job.lost {
            let (row, column) = (*row, *column);
            job.items.push(JournalItem::Lost { set, stripe, row, column, lines: 1 });
        }
        if job.items.is_empty() {
            return self.write_members(id, job);
        }
        job.state = State::Journaling;
        self.jobs.jobs.insert(id, job);
        self.journal_job(id);
    }

    /// The record with what a job changes is durable.
    pub(in crate::volume) fn job_journaled(&mut self, id: JobId, result: Result<(), IoError>) {
        let mut job = self.jobs.jobs.remove(&id).expect("it waits for the journal");
        assert_eq!(job.state, State::Journaling);
        if let Err(error) = result {
            job.result = Err(error);
            return self.end_job(id, job);
        }
        let (set, stripe) = (job.key.set, job.key.stripe);
        if self.is_journaled(set) {
            for (row, first, count) in job.new_runs() {
                for column in first..first + count {
                    let sum = LineSum::of(job.new_line(row, column));
                    self.set_sum(set, stripe, row, column, sum);
                }
            }
        }
        for (row, column) in &job.lost {
            // A parity that is lost is no loss of data.
            let is_data = self.layout(set).parity_row() != Some(*row);
            self.counters.lines_lost += u64::from(is_data);
            self.set_sum(set, stripe, *row, *column, LineSum::Lost);
        }
        self.write_members(id, job);
    }

    pub(in crate::volume) fn set_sum(
        &mut self,
        set: u8,
        stripe: u64,
        row: u32,
        column: u32,
        sum: LineSum,
    ) {
        let index = Checksums::index(self.layout(set), stripe, row, column);
        let location = Location { stripe, unit: row, line_in_unit: column };
        self.sum_changes(set, location, self.checksums.get(set, index), sum);
        let page = self.area.page_of_checksum(set.into(), index);
        if !self.checksums.is_in_memory(set.into(), index) {
            let named = self.checkpoint.map.get(page);
            assert!(named.is_none(), "who changes checksums has read them: {page:?}");
            self.sum_pages.came(page);
        }
        let had_lost = self.has_lost_sums(page);
        self.checksums.set(set, index, sum);
        self.checkpoint.dirty_sums(page, had_lost || sum == LineSum::Lost);
    }

    // ---- step 5 -------------------------------------------------------------------------------

    fn write_members(&mut self, id: JobId, mut job: Job) {
        let (set, stripe) = (job.key.set, job.key.stripe);
        let layout = self.layout(set).clone();
        if matches!(job.kind, Kind::Write(_)) {
            for (row, first, count) in job.new_runs() {
                let places = layout.places_of_row(stripe, row);
                let mut is_written = false;
                for place in places.filter(|place| self.is_current(set, *place, stripe)) {
                    is_written = true;
                    job.writes.extend(
                        (first..first + count).map(|column| ((place, column), (row, From::New))),
                    );
                }
                // A line of a missing member is in the parity, where there is one.
                let parity = layout.parity_place(stripe);
                let is_data = layout.parity_row() != Some(row);
                if is_data
                    && !is_written
                    && !parity.is_some_and(|place| self.is_current(set, place, stripe))
                {
                    job.result = Err(IoError::Gone);
                }
            }
        }
        let mut runs: Vec<(usize, u32, Vec<u8>)> = Vec::new();
        for ((place, column), (row, from)) in &job.writes {
            let bytes = job.line(*row, *column, *from);
            match runs.last_mut() {
                Some((last, first, data))
                    if last == place && *first + (data.len() / LINE_BYTES) as u32 == *column =>
                {
                    data.extend_from_slice(bytes);
                }
                _ => runs.push((*place, *column, bytes.to_vec())),
            }
        }
        let is_copy = matches!(job.kind, Kind::Copy { .. });
        if runs.is_empty() || is_copy && !self.is_copied_to() {
            return self.end_job(id, job);
        }
        job.state = State::Writing;
        job.ios_left = runs.len() as u32;
        // The journal makes the others durable.
        let is_raid0 = layout.level() == RaidLevel::Raid0;
        // Those of the others are in the journal, which goes with the cache-disk.
        let fua = job.fua && (is_raid0 || self.has_twin());
        self.jobs.jobs.insert(id, job);
        for (place, column, data) in runs {
            if is_copy {
                self.copy_to_new_disk(id, layout.offset(stripe, column), Buffer::copy_of(&data));
                continue;
            }
            let index = layout.member(place);
            self.counters.member_writes += 1;
            self.counters.member_write_bytes += data.len() as u64;
            let offset = layout.offset(stripe, column);
            let purpose = Purpose::Written(id, index);
            self.start_write(Device::Member(index), offset, Buffer::copy_of(&data), fua, purpose);
        }
    }

    pub(in crate::volume) fn cells_written(
        &mut self,
        id: JobId,
        member: MemberIndex,
        result: Result<(), IoError>,
    ) {
        let job = &self.jobs.jobs[&id];
        let is_raid0 = self.layout(job.key.set).level() == RaidLevel::Raid0;
        // A write to a RAID 0 set that has failed promised nothing: no flush is for it, which would
        // fail with all else in it.
        if !(is_raid0 && (job.fua || result.is_err())) {
            let member = self.members.get_mut(member);
            member.writes += 1;
            if is_raid0 {
                member.newest_raid0 = member.writes;
            }
        }
        if let Err(error) = result {
            let is_kept = !is_raid0 && self.do_without(member);
            self.note_refusal(member, !is_kept);
            let job = self.jobs.jobs.get_mut(&id).expect("it waits for this");
            if !is_kept {
                job.result = Err(error);
            }
        } else {
            self.note_refusal(member, false);
        }
        self.job_write_ended(id);
    }

    pub(super) fn job_write_ended(&mut self, id: JobId) {
        let job = self.jobs.jobs.get_mut(&id).expect("it waits for this");
        job.ios_left -= 1;
        if job.ios_left == 0 {
            let job = self.jobs.jobs.remove(&id).expect("looked at");
            self.end_job(id, job);
        }
    }

    // ---- step 6 -------------------------------------------------------------------------------

    fn lost_lines_written(&mut self, job: &Job) {
        let ChunkKey { set, stripe, .. } = job.key;
        for (unit, line_in_unit, lines) in job.new_runs() {
            let first = self.layout(set).line_of(Location { stripe, unit, line_in_unit });
            let run = LineRun { set, first, lines: lines.into() };
            self.lost.written(run);
            self.note_readable(run);
        }
    }

    fn end_job(&mut self, id: JobId, job: Job) {
        self.jobs.holders.remove(&job.key);
        self.release_sums_of_chunk(job.key);
        self.job_left_record(id);
        match &job.kind {
            Kind::Write(ops) => {
                if job.result.is_ok() && !self.is_journaled(job.key.set) {
                    self.lost_lines_written(&job);
                }
                for op in ops {
                    self.chunk_written(*op, job.result);
                }
            }
            // They were answered when everything was known; what was written was to repair.
            Kind::Read(_) => {}
            Kind::Rebuild { .. } | Kind::Scrub | Kind::Copy { .. } => self.repair_job_ended(&job),
        }
    }
}
