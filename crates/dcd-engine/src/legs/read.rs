//! Reads: from the leg that answers soonest. One that cannot is asked no more for it, another is,
//! and what it could not read is written there again, so that it can the next time.
//!
//! 1. A leg fails to read.
//! 2. Another reads it, and the answer goes up.
//! 3. The same bytes are written where the first could not. Changes of these regions wait.
//!    Where one was under way already, the next read mends it; if mending fails, the leg counts no
//!    more.
//! 4. None can, and one of them has been mended meanwhile, for another read: they are asked again.
//!    Else a read would fail whose last leg went away, although one that counts has the bytes.
//!
//! A leg may also read something else than was written. Only the cache can tell: it *doubts* what
//! it got, reads again, from another leg then, and says if that is right.

use std::ops::RangeInclusive;

use super::{Asker, Kind, Leg, LegIndex, LegSet, Legs, Purpose, UpperId};
use crate::buffer::Buffer;
use crate::io::{IoData, IoDone, IoError, IoOperation};

/// Reads that are remembered.
const RECENT_READS: usize = 64;

/// With each read by another leg, this part of what its reads take is forgotten: a leg that is ten
/// times as slow is asked once in 600 reads.
const FORGIVEN_EACH: u64 = 256;

/// Who has read what.
pub(super) struct RecentRead {
    offset: u64,
    length: u64,
    pub(super) leg: LegIndex,
}

/// What legs have read wrongly.
pub(super) struct Doubt {
    offset: u64,
    length: u64,
    pub(super) wrong: LegSet,
}

impl Legs {
    /// Who has read all of this last.
    pub(crate) fn reader_of(&self, offset: u64, length: u64) -> Option<LegIndex> {
        let covers = |read: &&RecentRead| {
            read.offset <= offset && offset + length <= read.offset + read.length
        };
        self.recent_reads.iter().rev().find(covers).map(|read| read.leg)
    }

    /// What this leg has read here is not what was written. Another leg is asked next, if there is
    /// one.
    pub(crate) fn doubt(&mut self, offset: u64, length: u64, leg: LegIndex) {
        let is_it = |doubt: &Doubt| (doubt.offset, doubt.length) == (offset, length);
        let place = self.doubts.iter().position(is_it).unwrap_or_else(|| {
            self.doubts.push(Doubt { offset, length, wrong: LegSet::default() });
            self.doubts.len() - 1
        });
        self.doubts[place].wrong.insert(leg);
    }

    /// What was doubted is settled: these bytes are right, or none are.
    pub(crate) fn settle_doubt(&mut self, offset: u64, length: u64, right: Option<&[u8]>) {
        let is_it = |doubt: &Doubt| (doubt.offset, doubt.length) == (offset, length);
        let Some(place) = self.doubts.iter().position(is_it) else { return };
        let wrong = self.doubts.swap_remove(place).wrong;
        if let Some(bytes) = right {
            wrong.iter().for_each(|leg| self.leg_mut(leg).counters.errors += 1);
            self.mend(wrong, offset, bytes);
        }
    }

    /// Legs that are known to read something else there.
    fn wrong_at(&self, offset: u64, length: u64) -> LegSet {
        let overlaps =
            |doubt: &&Doubt| doubt.offset < offset + length && offset < doubt.offset + doubt.length;
        let mut wrong = LegSet::default();
        for doubt in self.doubts.iter().filter(overlaps) {
            doubt.wrong.iter().for_each(|leg| wrong.insert(leg));
        }
        wrong
    }

    /// The leg that is to read next, if one is left.
    fn leg_to_read(&self, failed: LegSet) -> Option<LegIndex> {
        let may = |(index, leg): &(LegIndex, &Leg)| leg.counts() && !failed.contains(*index);
        let cost = |leg: &Leg| u64::from(leg.in_flight + 1).saturating_mul(leg.read_time.0.max(1));
        self.indexed().filter(may).min_by_key(|(_, leg)| cost(leg)).map(|(index, _)| index)
    }

    /// A leg that was slow once must not go unread for ever: what it takes is told by its reads
    /// alone, and what it cannot read is found by them.
    fn forgive_others(&mut self, chosen: LegIndex) {
        for (index, leg) in self.legs.iter_mut().enumerate() {
            if index != usize::from(chosen.0) {
                leg.read_time.0 -= leg.read_time.0 / FORGIVEN_EACH;
            }
        }
    }

    /// Begins to read, from whichever leg is best.
    pub(super) fn read_from_a_leg(&mut self, id: UpperId, buffer: Buffer) {
        let upper = self.uppers.get_mut(&id).expect("it is read");
        let Kind::Read { offset, length, failed, .. } = upper.kind else { unreachable!("a read") };
        let error = upper.error.unwrap_or(IoError::Gone);
        let wrong = self.wrong_at(offset, length as u64);
        let leg = self.leg_to_read(failed.or(wrong)).or_else(|| self.leg_to_read(failed));
        let Some(leg) = leg else {
            return self.read_again_or_fail(id, error, buffer);
        };
        self.forgive_others(leg);
        let mut buffer = buffer;
        if buffer.len() != length {
            buffer = Buffer::zeroed(length);
        }
        self.start_io(leg, IoOperation::Read { offset, buffer }, Purpose::Part(id));
    }

    pub(super) fn read_done(
        &mut self,
        id: UpperId,
        leg: LegIndex,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let upper = self.uppers.get_mut(&id).expect("it is read");
        let Kind::Read { offset, failed, length, .. } = &mut upper.kind else {
            unreachable!("a read")
        };
        let (offset, length) = (*offset, *length as u64);
        if let Err(error) = result {
            failed.insert(leg);
            upper.error = Some(error);
            // A disk that does not answer, or is not there, will not take the bytes either.
            if matches!(error, IoError::Gone | IoError::TimedOut) {
                self.leg_failed(leg, error);
            }
            return self.read_from_a_leg(id, buffer.unwrap_or_default());
        }
        let failed = *failed;
        if self.recent_reads.len() == RECENT_READS {
            self.recent_reads.pop_front();
        }
        self.recent_reads.push_back(RecentRead { offset, length, leg });
        if !failed.is_empty()
            && let Some(buffer) = &buffer
        {
            self.mend(failed, offset, buffer.bytes());
        }
        self.end_read(id, Ok(()), buffer);
    }

    /// No leg is left that has not failed to read it.
    fn read_again_or_fail(&mut self, id: UpperId, error: IoError, buffer: Buffer) {
        let upper = self.uppers.get_mut(&id).expect("it is read");
        let Kind::Read { offset, length, failed, mends_seen } = &mut upper.kind else {
            unreachable!("a read")
        };
        // Once: where others are mended all the time, a read of what is lost would never end.
        let Some(seen) = *mends_seen else { return self.end_read(id, Err(error), Some(buffer)) };
        let is_mended_since = seen != self.mends_ended;
        if is_mended_since {
            (*failed, *mends_seen) = (LegSet::default(), None);
            return self.read_from_a_leg(id, buffer);
        }
        let regions = self.marks.regions_of(*offset, *length as u64);
        if self.is_mended_now(&regions) {
            return self.reads_behind_mends.push((id, buffer));
        }
        self.end_read(id, Err(error), Some(buffer));
    }

    pub(super) fn is_mended_now(&self, regions: &RangeInclusive<u32>) -> bool {
        let overlaps = |other: &RangeInclusive<u32>| {
            regions.start() <= other.end() && other.start() <= regions.end()
        };
        self.mending.iter().any(overlaps)
    }

    fn end_read(&mut self, id: UpperId, result: Result<(), IoError>, buffer: Option<Buffer>) {
        let upper = self.uppers.remove(&id).expect("it ends once");
        let Asker::Above(id) = upper.asker else { unreachable!("marks are not read") };
        self.outputs.push_back(super::LegsOutput::Done(IoDone { id, result, buffer }));
    }

    fn mend(&mut self, failed: LegSet, offset: u64, bytes: &[u8]) {
        let regions = self.marks.regions_of(offset, bytes.len() as u64);
        for leg in self.legs_that_count().and(failed).iter() {
            // What is written there now may be newer; and the label of a leg is its own.
            let is_written = regions.clone().any(|region| self.marks.is_written(region));
            if is_written || super::copying::touches_label(offset, bytes.len() as u64) {
                continue;
            }
            self.leg_mut(leg).counters.mended += 1;
            self.mending.push(regions.clone());
            let data = IoData::Owned(Buffer::copy_of(bytes));
            let operation = IoOperation::Write { offset, data, fua: true };
            self.start_io(leg, operation, Purpose::Mend(regions.clone()));
        }
    }

    pub(super) fn mended(
        &mut self,
        regions: &RangeInclusive<u32>,
        leg: LegIndex,
        result: Result<(), IoError>,
    ) {
        let place = self.mending.iter().position(|it| it == regions).expect("it is being mended");
        self.mending.swap_remove(place);
        self.mends_ended += 1;
        self.look_at_waiting = true;
        if let Err(error) = result {
            self.leg_failed(leg, error);
        }
        for (id, buffer) in std::mem::take(&mut self.reads_behind_mends) {
            self.read_from_a_leg(id, buffer);
        }
    }
}
