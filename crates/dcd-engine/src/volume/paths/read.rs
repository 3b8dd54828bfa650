//! Reads.
//!
//! ```text
//! 0. An extent that has a copy on faster devices is read there (replicate.rs); what is not as it
//!    was copied goes on with step 1.
//! 1. For each extent: not mapped, being written for the first time, or not known to be zeroes on
//!    the disk (fresh.rs): zeroes. Lost with a disk that was replaced (lost.rs): an error.
//! 2. Else pieces that lie together on a member, all at once, from the copy that is least busy,
//!    when their checksums are in memory (sums.rs).
//! 3. Each line has the checksum that it should have, or the set has none (RAID 0): into the
//!    buffer.
//! 4. Else a job that holds the stripe: another copy, or what the other rows say (stripe.rs). What
//!    was wrong is written anew there.
//! ```
//! Step 2 holds nothing: a write of the same line may be under way, and then its old and new
//! contents are both right. A checksum that belongs to the other of the two is no error, step 4
//! looks again when the write is over.

use super::super::checksums::{Checksums, LineSum};
use super::super::extents::{ExtentIndex, Place};
use super::super::placement::RaidLevel;
use super::super::raid::{Location, SetLine};
use super::super::{Purpose, UpperId, Volume};
use super::job::ChunkKey;
use super::sums::Sums;
use crate::buffer::Buffer;
use crate::io::{Device, IoError};
use crate::units::LINE_SIZE;

/// What is known of a line before it is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Zeroes,
    Lost,
    OnMembers,
}

/// Lines that lie together on a member.
#[derive(Clone, Copy, Debug)]
pub(in crate::volume) struct Piece {
    pub(in crate::volume) set: u8,
    /// The extent that the lines belong to has this place while they are read.
    place: Place,
    extent: ExtentIndex,
    /// It is a copy of the extent, and this is not its own place.
    is_replica: bool,
    stripe: u64,
    row: u32,
    column: u32,
    lines: u32,
    pub(in crate::volume) upper: UpperId,
    /// Where they go in the buffer of the upper I/O.
    buffer_offset: usize,
}

impl Volume {
    /// What was read ahead comes from memory (follow.rs), the rest from the members.
    pub(in crate::volume) fn read(&mut self, upper: UpperId, offset: u64) {
        self.read_extents(upper, offset, true);
    }

    /// All from the members.
    pub(super) fn read_past_memory(&mut self, upper: UpperId, offset: u64) {
        self.read_extents(upper, offset, false);
    }

    fn read_extents(&mut self, upper: UpperId, offset: u64, may_be_ahead: bool) {
        let length = self.uppers[&upper].buffer.as_ref().expect("of a read").len() as u64;
        let extent_bytes = self.header.config.extent_bytes;
        let mut at = offset;
        while at < offset + length {
            let extent = self.extent_of(at);
            let end = ((at / extent_bytes + 1) * extent_bytes).min(offset + length);
            let (range, in_buffer) = (at..end, (at - offset) as usize);
            at = end;
            if may_be_ahead && self.read_from_memory(upper, extent, &range, in_buffer) {
                continue;
            }
            match self.replica_of(extent) {
                Some(replica) => self.read_replica(upper, extent, replica, range, in_buffer),
                None => self.read_in_place(upper, extent, range, in_buffer),
            }
        }
    }

    /// From its own place, if it has one.
    fn read_in_place(
        &mut self,
        upper: UpperId,
        extent: ExtentIndex,
        range: std::ops::Range<u64>,
        offset: usize,
    ) {
        let place = self.extents.get(extent).place;
        match place.filter(|_| !self.writes.is_new(extent)) {
            Some(place) => self.read_extent(upper, extent, place, range, offset),
            None => {
                let length = (range.end - range.start) as usize;
                self.put_zeroes(upper, offset..offset + length);
            }
        }
    }

    /// From a copy of it on faster devices (replicate.rs).
    fn read_replica(
        &mut self,
        upper: UpperId,
        extent: ExtentIndex,
        replica: Place,
        range: std::ops::Range<u64>,
        offset: usize,
    ) {
        let extent_bytes = self.header.config.extent_bytes;
        let first = range.start % extent_bytes / LINE_SIZE;
        let lines = (range.end - range.start) / LINE_SIZE;
        let first = SetLine(replica.first_line(extent_bytes).0 + first);
        self.read_lines(upper, replica, (extent, true), first, lines, offset);
    }

    fn put_zeroes(&mut self, upper: UpperId, range: std::ops::Range<usize>) {
        let buffer = self.uppers.get_mut(&upper).and_then(|upper| upper.buffer.as_mut());
        buffer.expect("of a read").bytes_mut()[range].fill(0);
    }

    /// Bytes `range` of the volume, all of them in an extent.
    fn read_extent(
        &mut self,
        upper: UpperId,
        extent: ExtentIndex,
        place: Place,
        range: std::ops::Range<u64>,
        offset: usize,
    ) {
        let extent_bytes = self.header.config.extent_bytes;
        let base = place.first_line(extent_bytes).0;
        let first = range.start % extent_bytes / LINE_SIZE;
        let end = first + (range.end - range.start) / LINE_SIZE;
        let known = |volume: &Volume, line: u64| {
            if volume.fresh.counts_as_zeroes(extent, line as u32) {
                Known::Zeroes
            } else if volume.lost.is_lost(place.set, SetLine(base + line)) {
                Known::Lost
            } else {
                Known::OnMembers
            }
        };
        let mut line = first;
        while line < end {
            let here = known(self, line);
            let lines = (line..end).take_while(|line| known(self, *line) == here).count() as u64;
            let at = offset + ((line - first) * LINE_SIZE) as usize;
            match here {
                Known::Zeroes => self.put_zeroes(upper, at..at + (lines * LINE_SIZE) as usize),
                Known::Lost => {
                    let upper = self.uppers.get_mut(&upper).expect("under way");
                    upper.result = Err(IoError::Failed);
                }
                Known::OnMembers => {
                    self.read_lines(upper, place, (extent, false), SetLine(base + line), lines, at);
                }
            }
            line += lines;
        }
    }

    fn read_lines(
        &mut self,
        upper: UpperId,
        place: Place,
        (extent, is_replica): (ExtentIndex, bool),
        first: SetLine,
        lines: u64,
        offset: usize,
    ) {
        let set = place.set;
        let unit_lines = u64::from(self.layout(set).unit_lines());
        let mut line = first.0;
        while line < first.0 + lines {
            let at = self.layout(set).locate(SetLine(line));
            let count = (unit_lines - u64::from(at.line_in_unit)).min(first.0 + lines - line);
            let piece = Piece {
                set,
                place,
                extent,
                is_replica,
                stripe: at.stripe,
                row: at.unit,
                column: at.line_in_unit,
                lines: count as u32,
                upper,
                buffer_offset: offset + ((line - first.0) * LINE_SIZE) as usize,
            };
            self.begin_piece(&piece);
            self.read_piece(piece);
            line += count;
        }
    }

    fn begin_piece(&mut self, piece: &Piece) {
        self.uppers.get_mut(&piece.upper).expect("under way").pieces += 1;
        self.add_reader(piece.place);
        self.hold_sums_of_piece(piece);
    }

    pub(super) fn end_piece(&mut self, piece: &Piece, result: Result<(), IoError>) {
        self.release_sums_of_piece(piece);
        self.drop_reader(piece.place);
        self.piece_done(piece.upper, result);
    }

    pub(super) fn read_piece(&mut self, piece: Piece) {
        match self.want_sums_of_piece(&piece) {
            Sums::There => {}
            Sums::Awaited => return,
            Sums::Unreadable => return self.end_piece(&piece, Err(IoError::Failed)),
        }
        let layout = self.layout(piece.set);
        let current = layout
            .places_of_row(piece.stripe, piece.row)
            .filter(|place| self.is_current(piece.set, *place, piece.stripe));
        let offset = layout.offset(piece.stripe, piece.column);
        // Of mirrors that have as much to do the one whose arm has the shortest way.
        let place = current.min_by_key(|place| {
            let member = self.members.get(layout.member(*place));
            (member.is_late, member.in_flight, member.arm_at.abs_diff(offset))
        });
        // Who is late is not asked where the others can tell.
        let is_asked_late =
            place.is_some_and(|place| self.members.get(layout.member(place)).is_late);
        if piece.is_replica && (is_asked_late || place.is_none()) {
            return self.replica_read(piece, Err(IoError::Gone), None);
        }
        if is_asked_late && layout.level() == RaidLevel::Raid5 {
            return self.read_under_lock(piece);
        }
        let Some(place) = place else {
            return match layout.level() {
                // Nobody else has it.
                RaidLevel::Raid0 => self.piece_read(piece, Err(IoError::Gone), None),
                RaidLevel::Raid1 | RaidLevel::Raid5 => self.read_under_lock(piece),
            };
        };
        let device = Device::Member(layout.member(place));
        let length = u64::from(piece.lines) * LINE_SIZE;
        self.counters.member_reads += 1;
        self.start_read(device, offset, length, Purpose::Read(piece));
    }

    pub(in crate::volume) fn piece_read(
        &mut self,
        piece: Piece,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        if piece.is_replica {
            return self.replica_read(piece, result, buffer);
        }
        let is_raid0 = self.layout(piece.set).level() == RaidLevel::Raid0;
        let buffer = match (result, buffer) {
            (Ok(()), Some(buffer)) if is_raid0 || self.has_sums(&piece, buffer.bytes()) => buffer,
            // Its lines are elsewhere by now, or nowhere: what this disk does not give is no loss.
            (Err(_), _) if is_raid0 && self.has_left(&piece) => {
                self.read_in_place_of(&piece);
                return self.end_piece(&piece, Ok(()));
            }
            (Err(error), _) if is_raid0 => return self.end_piece(&piece, Err(error)),
            _ => return self.read_under_lock(piece),
        };
        self.put(piece, 0, buffer.bytes());
        self.end_piece(&piece, Ok(()));
    }

    /// Whether the extent of a piece has another place by now, or none.
    fn has_left(&self, piece: &Piece) -> bool {
        self.extents.get(piece.extent).place != Some(piece.place)
    }

    /// Line of its extent that a piece begins with.
    pub(super) fn first_line_of(&self, piece: &Piece) -> u64 {
        let Piece { set, stripe, row, column, .. } = *piece;
        let location = Location { stripe, unit: row, line_in_unit: column };
        let line = self.layout(set).line_of(location);
        line.0 - piece.place.first_line(self.header.config.extent_bytes).0
    }

    /// The lines of a piece, from where they are now.
    pub(super) fn read_in_place_of(&mut self, piece: &Piece) {
        let first = self.first_line_of(piece) * LINE_SIZE;
        let start = u64::from(piece.extent.0) * self.header.config.extent_bytes + first;
        let range = start..start + u64::from(piece.lines) * LINE_SIZE;
        self.read_in_place(piece.upper, piece.extent, range, piece.buffer_offset);
    }

    fn has_sums(&self, piece: &Piece, bytes: &[u8]) -> bool {
        let layout = self.layout(piece.set);
        let first = Checksums::index(layout, piece.stripe, piece.row, piece.column);
        bytes
            .chunks(LINE_SIZE as usize)
            .enumerate()
            .all(|(i, line)| self.checksums.get(piece.set, first + i as u64) == LineSum::of(line))
    }

    /// Copies lines of a piece, from its line `first` on, to where they are wanted.
    pub(super) fn put(&mut self, piece: Piece, first: u32, bytes: &[u8]) {
        let upper = self.uppers.get_mut(&piece.upper).expect("under way");
        let buffer = upper.buffer.as_mut().expect("of a read").bytes_mut();
        let at = piece.buffer_offset + first as usize * LINE_SIZE as usize;
        buffer[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Step 4. A piece that lies in several chunks is read in as many jobs.
    fn read_under_lock(&mut self, piece: Piece) {
        let columns = self.chunk_columns(piece.set);
        let (mut column, end) = (piece.column, piece.column + piece.lines);
        while column < end {
            let chunk = column / columns;
            let lines = ((chunk + 1) * columns).min(end) - column;
            let offset = (column - piece.column) as usize * LINE_SIZE as usize;
            let part =
                Piece { column, lines, buffer_offset: piece.buffer_offset + offset, ..piece };
            self.begin_piece(&part);
            let key = ChunkKey { set: piece.set, stripe: piece.stripe, chunk };
            self.want_read(key, part);
            column += lines;
        }
        self.end_piece(&piece, Ok(()));
    }

    /// The job has what it could get of a row.
    pub(in crate::volume) fn piece_recovered(
        &mut self,
        piece: Piece,
        lines: impl Iterator<Item = Option<Vec<u8>>>,
    ) {
        let mut result = Ok(());
        for (i, line) in lines.enumerate() {
            match line {
                Some(bytes) => self.put(piece, i as u32, &bytes),
                None => result = Err(IoError::Failed),
            }
        }
        self.end_piece(&piece, result);
    }
}

impl Piece {
    pub(super) fn row(&self) -> u32 {
        self.row
    }

    pub(super) fn stripe(&self) -> u64 {
        self.stripe
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn extent(&self) -> ExtentIndex {
        self.extent
    }

    pub(super) fn columns(&self) -> std::ops::Range<u32> {
        self.column..self.column + self.lines
    }
}
