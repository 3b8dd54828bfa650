//! Which old lines a job must read, and what follows from them: arithmetic on one chunk, no I/O.
//!
//! For a change of a RAID 5 stripe there are two ways to the new parity of a column, and the one
//! that reads less is taken:
//!
//! - *reconstruct*: the old lines of the rows that are not written;
//! - *modify*: the old lines of the rows that are, and the old parity.
//!
//! A line that cannot be read rules one of them out, and then the other is taken: with one member
//! missing there is always one, because the old line of a missing member is needed by one of them
//! only. A write of many short runs of lines reads everything instead (fragmented.rs).
//!
//! A row that nothing tells any more is *lost*: reads of it fail until it is written. It counts as
//! zeroes in the parity, and the record that says so has the parity that fits: the other rows are
//! protected as before.

use super::super::Volume;
use super::super::checksums::{Checksums, LineSum};
use super::super::extents::Place;
use super::super::format::root::MemberState;
use super::super::placement::RaidLevel;
use super::super::raid::{Location, xor_into};
use super::job::{ChunkKey, From, Job, Kind};
use crate::io::IoError;
use crate::units::{LINE_SIZE, MemberIndex};

const LINE_BYTES: usize = LINE_SIZE as usize;

/// How the old line of a row can be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Old {
    /// It was read, or nothing was ever written there: zeroes.
    Known,
    /// It is to be read at this place.
    At(usize),
    /// Not at all.
    Nowhere,
}

/// Whether there is something to be copied, and how it can be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ToCopy {
    Nothing,
    Redundant,
    Raid0,
}

/// A way to a parity: the rows whose old lines it takes.
struct Way {
    rows: Vec<u32>,
    /// What is still to be read; `None`: it cannot be gone.
    reads: Option<Vec<usize>>,
}

impl Volume {
    pub(super) fn sum(&self, job: &Job, row: u32, column: u32) -> LineSum {
        let index = Checksums::index(self.layout(job.key.set), job.key.stripe, row, column);
        self.checksums.get(job.key.set, index)
    }

    fn old(&self, job: &Job, row: u32, column: u32, not_at: Option<usize>) -> Old {
        let (set, stripe) = (job.key.set, job.key.stripe);
        if job.is_known(row, column) {
            return Old::Known;
        }
        let layout = self.layout(set);
        let mut current = layout
            .places_of_row(stripe, row)
            .filter(|place| Some(*place) != not_at && self.is_current(set, *place, stripe))
            .peekable();
        match self.sum(job, row, column) {
            // While the member of the parity is missing, its checksum is not kept.
            LineSum::Never if layout.parity_row() != Some(row) || current.peek().is_some() => {
                Old::Known
            }
            LineSum::Never | LineSum::Lost => Old::Nowhere,
            LineSum::Sum(_) => current
                .filter(|place| !job.bad.contains(&(*place, column)))
                .min_by_key(|place| self.is_late(set, *place))
                .map_or(Old::Nowhere, Old::At),
        }
    }

    /// The same for a row as a parity takes it: what is lost counts as zeroes.
    pub(super) fn old_in_parity(&self, job: &Job, row: u32, column: u32) -> Old {
        let is_data = self.layout(job.key.set).parity_row() != Some(row);
        let is_lost = self.sum(job, row, column) == LineSum::Lost;
        match is_data && (is_lost || job.lost.contains(&(row, column))) {
            true => Old::Known,
            false => self.old(job, row, column, None),
        }
    }

    fn way(&self, job: &Job, rows: impl Iterator<Item = u32>, column: u32) -> Way {
        let rows: Vec<u32> = rows.collect();
        let mut reads = Some(Vec::new());
        for row in &rows {
            match self.old_in_parity(job, *row, column) {
                Old::Known => {}
                Old::At(place) => reads.iter_mut().for_each(|reads| reads.push(place)),
                Old::Nowhere => reads = None,
            }
        }
        Way { rows, reads }
    }

    /// The two ways for a column of a write: reconstruct, modify.
    fn ways(&self, job: &Job, column: u32) -> (Way, Way) {
        let layout = self.layout(job.key.set);
        let data = 0..layout.data_units();
        let others = data.clone().filter(|row| !job.is_new(*row, column));
        let written = data.filter(|row| job.is_new(*row, column));
        let parity = layout.parity_row();
        let reconstruct = self.way(job, others, column);
        let mut modify = self.way(job, written.chain(parity), column);
        // A row that only the parity tells would share it with one that is written to it: then
        // neither could be had.
        if reconstruct.reads.is_none() && self.rows_in_parity_alone(job, column) > 0 {
            modify.reads = None;
        }
        (reconstruct, modify)
    }

    /// Rows of a column that are written, and whose members are not there: they are in the parity
    /// alone.
    fn rows_in_parity_alone(&self, job: &Job, column: u32) -> usize {
        let (set, stripe) = (job.key.set, job.key.stripe);
        let layout = self.layout(set);
        (0..layout.data_units())
            .filter(|row| job.is_new(*row, column))
            .filter(|row| !self.is_current(set, layout.data_places(stripe, *row).start, stripe))
            .count()
    }

    /// The cells, as places and columns in order, that are to be read next. None: all that can be
    /// known is known.
    pub(super) fn plan(&self, job: &mut Job) -> Vec<(usize, u32)> {
        let mut cells = Vec::new();
        // A member may have gone since the last time.
        let is_fragmented = self.is_fragmented(job);
        let spans = if is_fragmented { self.spans(job) } else { Vec::new() };
        job.gaps.clear();
        for column in job.columns.clone() {
            match &job.kind {
                Kind::Write(_) if is_fragmented => {
                    match self.plan_fragmented(job, &spans, column) {
                        Some(reads) => cells.extend(reads),
                        None => self.plan_write(job, column, &mut cells),
                    }
                }
                Kind::Write(_) => self.plan_write(job, column, &mut cells),
                Kind::Read(pieces) => {
                    let wanted = pieces.iter().filter(|piece| piece.columns().contains(&column));
                    for row in wanted.map(|piece| piece.row()) {
                        self.plan_row(job, row, column, None, &mut cells);
                    }
                }
                Kind::Rebuild { place, .. } => {
                    let row = self.layout(job.key.set).row_at(*place, job.key.stripe);
                    if self.is_written(job, row, column) {
                        self.plan_row(job, row, column, Some(*place), &mut cells);
                    }
                    self.plan_parity_anew(job, column, *place, &mut cells);
                }
                Kind::Scrub => self.plan_scrub(job, column, &mut cells),
                Kind::Copy { place } => self.plan_copy(job, *place, column, &mut cells),
            }
        }
        cells.sort_unstable();
        cells.dedup();
        match is_fragmented {
            true => self.bridge_gaps(job, cells),
            false => cells,
        }
    }

    fn plan_write(&self, job: &Job, column: u32, cells: &mut Vec<(usize, u32)>) {
        let (set, stripe) = (job.key.set, job.key.stripe);
        let layout = self.layout(set);
        let Some(parity) = layout.parity_place(stripe) else { return };
        let is_changed = (0..layout.data_units()).any(|row| job.is_new(row, column));
        if !is_changed || !self.is_current(set, parity, stripe) {
            return;
        }
        let (reconstruct, modify) = self.ways(job, column);
        let reads = match (reconstruct.reads, modify.reads) {
            (Some(reads), Some(others)) if others.len() < reads.len() => others,
            (Some(reads), _) | (None, Some(reads)) => reads,
            // Rows may have to be given up: then the parity is made of those that are left.
            (None, None) => {
                let is_at = |row: &u32| match self.old_in_parity(job, *row, column) {
                    Old::At(place) => Some(place),
                    Old::Known | Old::Nowhere => None,
                };
                reconstruct.rows.iter().filter_map(is_at).collect()
            }
        };
        cells.extend(reads.into_iter().map(|place| (place, column)));
    }

    /// A row is wanted: from a place that has it, else from all the others.
    fn plan_row(
        &self,
        job: &Job,
        row: u32,
        column: u32,
        not_at: Option<usize>,
        cells: &mut Vec<(usize, u32)>,
    ) {
        match self.old(job, row, column, not_at) {
            Old::Known => {}
            Old::At(place) => match self.way_around_late(job, row, column, place) {
                Some(reads) => cells.extend(reads.into_iter().map(|place| (place, column))),
                None => cells.push((place, column)),
            },
            Old::Nowhere => {
                let layout = self.layout(job.key.set);
                let is_lost = self.sum(job, row, column) == LineSum::Lost;
                if layout.level() != RaidLevel::Raid5 || is_lost && layout.parity_row() != Some(row)
                {
                    return;
                }
                let others = (0..layout.rows()).filter(|other| *other != row);
                if let Some(reads) = self.way(job, others, column).reads {
                    cells.extend(reads.into_iter().map(|place| (place, column)));
                }
            }
        }
    }

    /// The reads that tell a row without its member, if that is late and the others are not.
    fn way_around_late(
        &self,
        job: &Job,
        row: u32,
        column: u32,
        place: usize,
    ) -> Option<Vec<usize>> {
        let (set, layout) = (job.key.set, self.layout(job.key.set));
        if layout.level() != RaidLevel::Raid5 || !self.is_late(set, place) {
            return None;
        }
        let others = (0..layout.rows()).filter(|other| *other != row);
        let reads = self.way(job, others, column).reads?;
        reads.iter().all(|place| !self.is_late(set, *place)).then_some(reads)
    }

    fn is_late(&self, set: u8, place: usize) -> bool {
        self.members.get(self.layout(set).member(place)).is_late
    }

    /// A rebuild comes by every column: a parity that is lost is made anew from what the others
    /// have.
    fn plan_parity_anew(
        &self,
        job: &Job,
        column: u32,
        rebuilt: usize,
        cells: &mut Vec<(usize, u32)>,
    ) {
        let layout = self.layout(job.key.set);
        if !self.is_parity_lost(job, column) {
            return;
        }
        let rebuilt = layout.row_at(rebuilt, job.key.stripe);
        for row in (0..layout.data_units()).filter(|row| *row != rebuilt) {
            if let Old::At(place) = self.old_in_parity(job, row, column) {
                cells.push((place, column));
            }
        }
    }

    fn is_parity_lost(&self, job: &Job, column: u32) -> bool {
        let parity = self.layout(job.key.set).parity_row();
        parity.is_some_and(|row| self.sum(job, row, column) == LineSum::Lost)
    }

    /// All places are read, each once.
    fn plan_scrub(&self, job: &Job, column: u32, cells: &mut Vec<(usize, u32)>) {
        let (set, stripe) = (job.key.set, job.key.stripe);
        let layout = self.layout(set);
        for place in 0..layout.places() {
            let row = layout.row_at(place, stripe);
            let is_sum = matches!(self.sum(job, row, column), LineSum::Sum(_));
            let is_wanted = is_sum
                && self.is_current(set, place, stripe)
                && !job.bad.contains(&(place, column))
                && !job.compared.contains(&(place, column));
            if is_wanted {
                cells.push((place, column));
            }
        }
        if cells.is_empty() {
            // Everything was looked at; what is bad may need more rows than were read.
            let bad = job.bad.iter().filter(|(_, at)| *at == column);
            for row in bad.map(|(place, _)| layout.row_at(*place, stripe)) {
                self.plan_row(job, row, column, None, cells);
            }
        }
    }

    /// What a place has of a column: from there, or from the others.
    fn plan_copy(&self, job: &Job, place: usize, column: u32, cells: &mut Vec<(usize, u32)>) {
        let row = self.layout(job.key.set).row_at(place, job.key.stripe);
        match self.is_to_be_copied(job, row, column) {
            ToCopy::Nothing => {}
            ToCopy::Redundant => self.plan_row(job, row, column, None, cells),
            ToCopy::Raid0 => {
                if !job.is_known(row, column) && !job.bad.contains(&(place, column)) {
                    cells.push((place, column));
                }
            }
        }
    }

    fn is_to_be_copied(&self, job: &Job, row: u32, column: u32) -> ToCopy {
        let ChunkKey { set, stripe, .. } = job.key;
        let layout = self.layout(set);
        if layout.level() == RaidLevel::Raid0 {
            let line = layout.line_of(Location { stripe, unit: row, line_in_unit: column });
            let place = Place { set, extent: line.0 / self.extent_lines() };
            let is_placed = self.extents.has_place(place) && self.extents.is_taken(place);
            return match is_placed && !self.lost.is_lost(set, line) {
                true => ToCopy::Raid0,
                false => ToCopy::Nothing,
            };
        }
        // A parity that is lost counts for nothing, there and here.
        let is_parity_lost = layout.parity_row() == Some(row) && self.is_parity_lost(job, column);
        match self.is_written(job, row, column) && !is_parity_lost {
            true => ToCopy::Redundant,
            false => ToCopy::Nothing,
        }
    }

    fn conclude_copy(&self, job: &mut Job, place: usize) {
        let row = self.layout(job.key.set).row_at(place, job.key.stripe);
        for column in job.columns.clone() {
            let line = match self.is_to_be_copied(job, row, column) {
                ToCopy::Nothing => continue,
                ToCopy::Raid0 => job.is_known(row, column).then(|| job.old(row, column).to_vec()),
                ToCopy::Redundant => self.old_line(job, row, column, None),
            };
            let is_lost = self.layout(job.key.set).level() != RaidLevel::Raid0
                && self.sum(job, row, column) == LineSum::Lost;
            match line {
                Some(line) => {
                    job.put_old(row, column, &line);
                    job.writes.insert((place, column), (row, From::Old));
                }
                None if is_lost => drop(job.writes.insert((place, column), (row, From::Zeroes))),
                None => drop(job.unreadable.insert((row, column))),
            }
        }
    }

    /// Whether anything of the column was written, so that the row counts: a parity does as soon as
    /// any data does.
    fn is_written(&self, job: &Job, row: u32, column: u32) -> bool {
        let layout = self.layout(job.key.set);
        let is_sum = |row| self.sum(job, row, column) != LineSum::Never;
        match layout.parity_row() {
            Some(parity) if parity == row => (0..layout.data_units()).any(is_sum),
            _ => is_sum(row),
        }
    }

    /// The old line of a row, as far as it can be had: known, zeroes, or what all other rows say.
    /// What they say must have its checksum, where there is one.
    fn old_line(&self, job: &Job, row: u32, column: u32, not_at: Option<usize>) -> Option<Vec<u8>> {
        if job.is_known(row, column) {
            return Some(job.old(row, column).to_vec());
        }
        if self.old(job, row, column, not_at) == Old::Known {
            return Some(vec![0; LINE_BYTES]);
        }
        let layout = self.layout(job.key.set);
        if layout.level() != RaidLevel::Raid5 {
            return None;
        }
        let mut line = vec![0; LINE_BYTES];
        for other in (0..layout.rows()).filter(|other| *other != row) {
            if job.is_known(other, column) {
                xor_into(&mut line, job.old(other, column));
            } else if self.old_in_parity(job, other, column) != Old::Known {
                return None;
            }
        }
        match self.sum(job, row, column) {
            LineSum::Lost if layout.parity_row() == Some(row) => Some(line),
            LineSum::Lost => None,
            // A parity that was not kept up while its member was missing has the checksum of an
            // older one.
            LineSum::Sum(_) if layout.parity_row() == Some(row) => Some(line),
            LineSum::Sum(_) if LineSum::of(&line) != self.sum(job, row, column) => None,
            LineSum::Sum(_) | LineSum::Never => Some(line),
        }
    }

    /// Everything is known that can be: what is to be written, and answers to reads.
    pub(super) fn conclude(&mut self, job: &mut Job) {
        match &job.kind {
            Kind::Write(_) => self.conclude_write(job),
            Kind::Read(pieces) => {
                for piece in pieces.clone() {
                    let row = piece.row();
                    let lines: Vec<Option<Vec<u8>>> = piece
                        .columns()
                        .map(|column| self.old_line(job, row, column, None))
                        .collect();
                    for (column, line) in piece.columns().zip(&lines) {
                        self.repair_bad(job, row, column, line.as_deref());
                    }
                    self.piece_recovered(piece, lines.into_iter());
                }
            }
            Kind::Rebuild { place, is_last_try } => {
                self.conclude_rebuild(job, *place, *is_last_try);
            }
            Kind::Copy { place } => self.conclude_copy(job, *place),
            Kind::Scrub => {
                let layout = self.layout(job.key.set).clone();
                for (place, column) in job.bad.clone() {
                    let row = layout.row_at(place, job.key.stripe);
                    if layout.parity_row() == Some(row) {
                        continue;
                    }
                    let line = self.old_line(job, row, column, None);
                    if line.is_none() {
                        self.give_up_rotten(job, row, column);
                    }
                    self.repair_bad(job, row, column, line.as_deref());
                }
                for column in job.columns.clone() {
                    self.check_parity(job, column, None);
                }
            }
        }
    }

    /// A row that has rotted and cannot be had from the others is lost, unless one of them may come
    /// back.
    fn give_up_rotten(&self, job: &mut Job, row: u32, column: u32) {
        let places = self.layout(job.key.set).places_of_row(job.key.stripe, row);
        let may_come_back =
            |place| self.is_somebody_away(job, place) || self.has_read_error(job, column, place);
        let is_rotten = |place: usize| job.rotten.contains(&(place, column));
        if places.clone().any(is_rotten) && !places.clone().any(may_come_back) {
            self.give_up(job, row, column, None);
        }
    }

    /// A row is lost. `rebuilt`: a place that has nothing yet.
    fn give_up(&self, job: &mut Job, row: u32, column: u32, rebuilt: Option<usize>) {
        let (set, stripe) = (job.key.set, job.key.stripe);
        job.lost.insert((row, column));
        for place in self.layout(set).places_of_row(stripe, row) {
            if rebuilt == Some(place) || self.is_current(set, place, stripe) {
                job.writes.insert((place, column), (row, From::Zeroes));
            }
        }
    }

    /// A parity that does not fit the rows is written anew. `rebuilt`: a place that has nothing
    /// yet. False if it cannot be told whether it fits: not all rows are known.
    fn check_parity(&mut self, job: &mut Job, column: u32, rebuilt: Option<usize>) -> bool {
        let (set, stripe) = (job.key.set, job.key.stripe);
        let layout = self.layout(set).clone();
        let (Some(row), Some(place)) = (layout.parity_row(), layout.parity_place(stripe)) else {
            return true;
        };
        let is_known = |row| self.old_in_parity(job, row, column) == Old::Known;
        let is_kept = rebuilt == Some(place) || self.is_current(set, place, stripe);
        if !is_kept || !(0..layout.data_units()).all(is_known) {
            return false;
        }
        let mut line = vec![0; LINE_BYTES];
        for other in (0..layout.data_units()).filter(|row| job.is_known(*row, column)) {
            if !job.lost.contains(&(other, column)) {
                xor_into(&mut line, job.old(other, column));
            }
        }
        let is_right = match job.is_known(row, column) {
            true => line == job.old(row, column),
            false => {
                self.sum(job, row, column) == LineSum::Never && line.iter().all(|byte| *byte == 0)
            }
        };
        if !is_right {
            job.bad.insert((place, column));
            job.put_new(row, column, &line);
            job.writes.insert((place, column), (row, From::New));
            self.note_mended(layout.member(place));
        }
        true
    }

    /// Places that did not have a line get it.
    fn repair_bad(&mut self, job: &mut Job, row: u32, column: u32, line: Option<&[u8]>) {
        let (set, stripe) = (job.key.set, job.key.stripe);
        let layout = self.layout(set);
        let members: Vec<MemberIndex> = (0..layout.places()).map(|p| layout.member(p)).collect();
        let Some(line) = line else { return };
        let places: Vec<usize> = layout
            .places_of_row(stripe, row)
            .filter(|place| {
                job.bad.contains(&(*place, column)) && self.is_current(set, *place, stripe)
            })
            .collect();
        for place in places {
            if !job.is_known(row, column) {
                job.put_old(row, column, line);
            }
            job.writes.insert((place, column), (row, From::Old));
            self.note_mended(members[place]);
        }
    }

    fn note_mended(&mut self, member: MemberIndex) {
        self.counters.lines_repaired += 1;
        self.members.get_mut(member).lines_mended += 1;
    }

    fn conclude_write(&mut self, job: &mut Job) {
        let (set, stripe) = (job.key.set, job.key.stripe);
        let layout = self.layout(set).clone();
        let (Some(row), Some(place)) = (layout.parity_row(), layout.parity_place(stripe)) else {
            return;
        };
        if !self.is_current(set, place, stripe) {
            return self.lose_parity_of_one_away(job, row, place);
        }
        if self.is_fragmented(job) {
            self.keep_between(job);
        }
        for column in job.columns.clone() {
            let written: Vec<u32> =
                (0..layout.data_units()).filter(|row| job.is_new(*row, column)).collect();
            if written.is_empty() {
                continue;
            }
            if self.rows_in_parity_alone(job, column) > 1 {
                job.result = Err(IoError::Gone);
                return;
            }
            let (reconstruct, modify) = self.ways(job, column);
            let is_ready = |way: &Way| way.reads.as_ref().is_some_and(Vec::is_empty);
            let mut rows = &reconstruct.rows;
            if !is_ready(&reconstruct) {
                if is_ready(&modify) {
                    rows = &modify.rows;
                } else {
                    // Neither: a row that is not written, and one that is or the parity, cannot be
                    // read. If the first has rotted it is lost; it counts as zeroes from now on, so
                    // that the others are protected again. If it may be there another time, nothing
                    // is written; but not for ever: a bad sector would block the log.
                    let is_last_try = self.jobs.is_last_try(job.key)
                        && !self.is_somebody_away(job, layout.places());
                    for other in &reconstruct.rows {
                        if self.old_in_parity(job, *other, column) != Old::Nowhere {
                            continue;
                        }
                        let mut places = layout.places_of_row(stripe, *other);
                        if is_last_try || places.any(|place| job.rotten.contains(&(place, column)))
                        {
                            self.give_up(job, *other, column, None);
                        } else {
                            job.result = Err(IoError::Failed);
                        }
                    }
                }
            }
            let mut parity = vec![0; LINE_BYTES];
            for other in rows.iter().filter(|other| job.is_known(**other, column)) {
                if !job.lost.contains(&(*other, column)) {
                    xor_into(&mut parity, job.old(*other, column));
                }
            }
            for other in &written {
                xor_into(&mut parity, job.new_line(*other, column));
            }
            job.put_new(row, column, &parity);
        }
    }

    /// The member of the parity is not there, and will be believed when it is, because the others
    /// cannot do without it. It would come back with an old parity that has its checksum.
    fn lose_parity_of_one_away(&self, job: &mut Job, row: u32, place: usize) {
        let ChunkKey { set, stripe, .. } = job.key;
        if !self.members.counts(self.layout(set), set, place, stripe) {
            return;
        }
        for column in job.columns.clone() {
            let is_written = (0..row).any(|row| job.is_new(row, column));
            if is_written && self.sum(job, row, column) != LineSum::Lost {
                job.lost.insert((row, column));
            }
        }
    }

    /// Whether a member beside that of `place` is not there that is up to date: what it holds may
    /// come back. What has rotted, and what a stale member has missed, does not.
    fn is_somebody_away(&self, job: &Job, place: usize) -> bool {
        let layout = self.layout(job.key.set);
        (0..layout.places()).filter(|other| *other != place).any(|other| {
            let member = self.members.get(layout.member(other));
            !member.is_present && member.state == MemberState::UpToDate
        })
    }

    /// Whether a line of the column could not be read, beside that of `place`: another try may
    /// succeed.
    fn has_read_error(&self, job: &Job, column: u32, place: usize) -> bool {
        (0..self.layout(job.key.set).places()).filter(|other| *other != place).any(|other| {
            let cell = (other, column);
            job.bad.contains(&cell) && !job.rotten.contains(&cell)
        })
    }

    /// `is_last_try`: what cannot be read now is given up.
    fn conclude_rebuild(&mut self, job: &mut Job, place: usize, is_last_try: bool) {
        let (set, stripe) = (job.key.set, job.key.stripe);
        let layout = self.layout(set).clone();
        let row = layout.row_at(place, stripe);
        let is_parity = layout.parity_row() == Some(row);
        for column in job.columns.clone() {
            if !self.is_written(job, row, column) {
                self.renew_lost_parity(job, column, place, is_last_try);
                continue;
            }
            match self.old_line(job, row, column, Some(place)) {
                // The checksum of a parity was not kept while its member was missing; it comes with
                // the journal.
                Some(line) if is_parity => {
                    job.put_new(row, column, &line);
                    job.writes.insert((place, column), (row, From::New));
                }
                Some(line) => {
                    job.put_old(row, column, &line);
                    job.writes.insert((place, column), (row, From::Old));
                }
                None if self.sum(job, row, column) == LineSum::Lost && !is_parity => {
                    job.writes.insert((place, column), (row, From::Zeroes));
                }
                None if self.is_somebody_away(job, place)
                    || !is_last_try && self.has_read_error(job, column, place) =>
                {
                    job.result = Err(IoError::Failed);
                }
                None => {
                    // What has rotted beside it is lost too: without the two no parity fits.
                    for other in 0..layout.data_units() {
                        let mut places = layout.places_of_row(stripe, other);
                        if layout.level() == RaidLevel::Raid5
                            && places.any(|place| job.rotten.contains(&(place, column)))
                        {
                            self.give_up(job, other, column, None);
                        }
                    }
                    if !is_parity {
                        self.give_up(job, row, column, Some(place));
                    }
                    // A row that may come back is not known: then the parity does not fit what was
                    // given up, and counts for nothing.
                    if !self.check_parity(job, column, Some(place))
                        && let Some(parity) = layout.parity_row()
                    {
                        job.lost.insert((parity, column));
                    }
                }
            }
            self.renew_lost_parity(job, column, place, is_last_try);
        }
    }

    /// A parity that was lost while its member was away, and another one's line was written: when
    /// that member is there again as well, nothing else would protect the column.
    fn renew_lost_parity(&mut self, job: &mut Job, column: u32, place: usize, is_last_try: bool) {
        let Some(row) = self.layout(job.key.set).parity_row() else { return };
        let is_done = |job: &Job| job.is_new(row, column) || job.lost.contains(&(row, column));
        if !self.is_parity_lost(job, column) || is_done(job) {
            return;
        }
        self.check_parity(job, column, None);
        if !is_done(job) && !is_last_try && self.has_read_error(job, column, place) {
            job.result = Err(IoError::Failed);
        }
    }
}
