//! Copies a region from one leg to others, piece by piece, but for the labels: each leg has its
//! own. What one leg cannot read is taken from another.

use std::ops::Range;

use super::{LegIndex, LegSet, Legs, Purpose};
use crate::buffer::Buffer;
use crate::format::leg_label::{LEG_LABEL_BYTES, LEG_LABEL_OFFSETS};
use crate::io::{IoData, IoError, IoOperation};
use crate::units::LINE_SIZE;

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 256 << 10;

/// What an I/O of it is.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Read,
    Write,
}

/// A region on its way.
pub(super) struct Copying {
    /// Its I/Os are known by that: those of one that was given up may end later.
    pub(super) number: u64,
    /// What is left of it.
    at: u64,
    until: u64,
    /// Of the piece under way.
    length: u64,
    /// After a piece that no leg could read whole: line by line, up to here.
    by_line_until: u64,
    from: LegIndex,
    /// Legs that could not read the piece.
    failed: LegSet,
    /// Legs that are to have it.
    to: LegSet,
    writes_left: u32,
    is_reading: bool,
    /// Lines that no leg could read.
    unreadable: u64,
}

/// Where a copy stands.
pub(super) enum CopyState {
    UnderWay,
    /// So many lines could be read from no leg; there the others are as they were.
    Done {
        unreadable: u64,
    },
}

/// Whether these bytes are, in part, a label.
pub(super) fn touches_label(offset: u64, length: u64) -> bool {
    LEG_LABEL_OFFSETS
        .iter()
        .any(|label| offset < label + LEG_LABEL_BYTES as u64 && *label < offset + length)
}

/// Without the labels: the first piece at or behind `at`.
fn next_piece(at: u64, until: u64, most: u64) -> Option<(u64, u64)> {
    let mut at = at;
    for label in LEG_LABEL_OFFSETS {
        if (label..label + LEG_LABEL_BYTES as u64).contains(&at) {
            at = label + LEG_LABEL_BYTES as u64;
        }
    }
    let next_label = LEG_LABEL_OFFSETS.into_iter().find(|label| *label > at);
    let end = until.min(at + most).min(next_label.unwrap_or(u64::MAX));
    // The log may have shrunk meanwhile.
    (at < end).then(|| (at, end - at))
}

impl Copying {
    fn new(number: u64, bytes: Range<u64>, from: LegIndex, to: LegSet) -> Copying {
        Copying {
            number,
            at: bytes.start,
            until: bytes.end,
            length: 0,
            by_line_until: 0,
            from,
            failed: LegSet::default(),
            to,
            writes_left: 0,
            is_reading: false,
            unreadable: 0,
        }
    }

    fn is_idle(&self) -> bool {
        !self.is_reading && self.writes_left == 0
    }
}

impl Legs {
    /// Begins to copy a region.
    pub(super) fn begin_copying(&mut self, region: u32, from: LegIndex, to: LegSet) -> Copying {
        self.copies_begun += 1;
        Copying::new(self.copies_begun, self.bytes_of(region), from, to)
    }

    /// The bytes of a region.
    pub(super) fn bytes_of(&self, region: u32) -> Range<u64> {
        let start = u64::from(region) * self.region_bytes;
        start..(start + self.region_bytes).min(self.end)
    }

    /// Begins the next piece, if none is under way.
    pub(super) fn copy_on(&mut self, copying: &mut Copying) -> CopyState {
        while copying.is_idle() {
            let is_by_line = copying.at < copying.by_line_until;
            let most = if is_by_line { LINE_SIZE } else { PIECE_BYTES };
            let Some((at, length)) = next_piece(copying.at, copying.until, most) else {
                return CopyState::Done { unreadable: copying.unreadable };
            };
            (copying.at, copying.length, copying.failed) = (at, length, LegSet::default());
            self.read_piece(copying);
        }
        CopyState::UnderWay
    }

    /// From the first leg that has not failed to; without one, in smaller pieces, or not at all.
    fn read_piece(&mut self, copying: &mut Copying) {
        let may = self.legs_that_count().without(copying.failed);
        let from = Some(copying.from).filter(|leg| may.contains(*leg));
        let Some(leg) = from.or(may.first()) else {
            if copying.length > LINE_SIZE {
                copying.by_line_until = copying.at + copying.length;
            } else {
                copying.unreadable += 1;
                copying.at += copying.length;
            }
            return;
        };
        copying.is_reading = true;
        let buffer = Buffer::zeroed(copying.length as usize);
        let operation = IoOperation::Read { offset: copying.at, buffer };
        copying.from = leg;
        self.start_io(leg, operation, Purpose::Copying(Step::Read, copying.number));
    }

    pub(super) fn copying_done(
        &mut self,
        step: Step,
        number: u64,
        leg: LegIndex,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let Some(mut copying) = self.take_copying(number) else { return };
        match (step, result, buffer) {
            (Step::Read, Ok(()), Some(buffer)) => {
                copying.is_reading = false;
                self.write_piece(&mut copying, &buffer);
            }
            (Step::Read, result, _) => {
                copying.is_reading = false;
                copying.failed.insert(leg);
                if let Err(error @ (IoError::Gone | IoError::TimedOut)) = result {
                    self.leg_failed(leg, error);
                }
                self.read_piece(&mut copying);
            }
            (Step::Write, result, _) => {
                copying.writes_left -= 1;
                if let Err(error) = result {
                    copying.to.remove(leg);
                    self.put_copying(copying);
                    return self.leg_failed(leg, error);
                }
            }
        }
        self.put_copying(copying);
    }

    /// To all that are to have it, and to those that could not read it.
    fn write_piece(&mut self, copying: &mut Copying, buffer: &Buffer) {
        let could_not = self.legs_that_count().and(copying.failed);
        let to: LegSet = copying.to.iter().chain(could_not.iter()).collect();
        copying.writes_left = to.len();
        for leg in to.iter() {
            let data = IoData::Owned(buffer.clone());
            let operation = IoOperation::Write { offset: copying.at, data, fua: false };
            self.start_io(leg, operation, Purpose::Copying(Step::Write, copying.number));
        }
        copying.at += copying.length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_left_out() {
        let mut pieces = Vec::new();
        let mut at = 0;
        while let Some((start, length)) = next_piece(at, 1 << 20, 256 << 10) {
            pieces.push((start >> 10, length >> 10));
            at = start + length;
        }
        assert_eq!(pieces[..4], [(0, 4), (8, 60), (72, 256), (328, 256)]);
        assert_eq!(pieces.last(), Some(&(840, 184)));
        assert_eq!(next_piece(4 << 10, 8 << 10, 4096), None);
        assert!(touches_label(0, 8192) && !touches_label(0, 4096) && touches_label(64 << 10, 8192));
    }
}
