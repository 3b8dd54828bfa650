//! Replicas: made, read, and given up.
//!
//! ```text
//! 1. An extent that is hot and mostly read, whose place is on slow devices, is read and written
//!    to a free place of a RAID 0 set of fast ones, as one that is moved (migrate.rs). Changes of
//!    it wait meanwhile.
//! 2. Nothing is recorded: the place counts as taken in memory alone.
//!      Crash at any moment: its place is free, and the extent is where it was.
//! 3. Reads go there. What has not the checksum that it had in step 1, or cannot be read, is read
//!    from the extent's own place, and the replica is given up.
//! 4. A change of the extent gives it up before the change begins; it is made anew later.
//! ```
//! Replicas are for days on which all is well: while a member is away, replaced or rebuilt, lines
//! of RAID 0 are lost, or the volume grows, they are given up and none is made. An eighth of a set
//! is left to what has its place there, and more of them go when that is used.

use super::super::Volume;
use super::super::attributes::Attributes;
use super::super::checksums::LineSum;
use super::super::extents::{ExtentIndex, Place};
use super::read::Piece;
use super::repair::PAUSE;
use crate::buffer::Buffer;
use crate::io::IoError;
use crate::units::{LINE_SIZE, Time};

impl Volume {
    /// Notes an extent that should have a replica, or should have none.
    pub(in crate::volume) fn look_at_replica(&mut self, extent: ExtentIndex) {
        // A volume that has grown may have its region for temporary data there by now.
        let place = self.replicas.place(extent);
        let is_in_region = place.is_some_and(|place| self.extents.is_temporary(place));
        if self.is_to_be_replicated(extent) && !is_in_region {
            self.replicas.want(extent);
        } else {
            let place = self.replicas.forget(extent);
            self.give_replica_up(place);
        }
    }

    fn is_to_be_replicated(&self, extent: ExtentIndex) -> bool {
        let entry = self.extents.get(extent);
        let is_read = entry.attributes.contains(Attributes::HOT.or(Attributes::READ_MOST));
        let is_slow = entry.place.is_some_and(|place| self.extents.is_slow(place));
        // Without such a set millions would wait, and be looked at behind each input, for nothing.
        is_read && is_slow && !entry.is_dying && self.extents.has_set_for_replicas()
    }

    /// Step 4.
    pub(in crate::volume) fn change_comes(&mut self, extent: ExtentIndex) {
        if !self.replicas.is_unused() {
            let place = self.replicas.changed(self.now, extent);
            self.give_replica_up(place);
        }
    }

    fn give_replica_up(&mut self, place: Option<Place>) {
        if let Some(place) = place {
            self.counters.replicas_given_up += 1;
            self.free_place(place);
        }
    }

    /// One makes room for what has no place at all.
    pub(super) fn give_a_replica_up(&mut self) -> bool {
        let Some(extent) = self.replicas.last(None) else { return false };
        self.make_room_of(extent);
        true
    }

    /// It is made anew when there is room, and all is well.
    fn make_room_of(&mut self, extent: ExtentIndex) {
        let place = self.replicas.forget(extent);
        self.give_replica_up(place);
        self.replicas.want(extent);
    }

    fn all_is_well(&self) -> bool {
        self.away() == 0
            && self.lost.count() == 0
            && self.replacement.is_none()
            && self.growing.is_none()
    }

    /// The next extent that is to be copied, and where to.
    pub(super) fn next_replica(&mut self) -> Option<(ExtentIndex, Place)> {
        if !self.replicas.is_any_waiting() || !self.all_is_well() {
            return None;
        }
        let found = self.extents.find_for_replica()?;
        loop {
            let (writes, fresh) = (&self.writes, &self.fresh);
            let is_ready = |extent| !writes.is_wanted(extent) && !fresh.is_known(extent);
            let extent = self.replicas.take_waiting(is_ready)?;
            // What it is, or where, may have changed.
            if self.is_to_be_replicated(extent) {
                return Some((extent, self.extents.take(found)));
            }
        }
    }

    /// Whether there is one to be copied, and nothing but time in the way.
    pub(in crate::volume) fn is_a_replica_due(&self) -> bool {
        self.replicas.is_any_waiting()
            && self.all_is_well()
            && self.extents.find_for_replica().is_some()
    }

    /// Step 2.
    pub(super) fn replica_written(&mut self, extent: ExtentIndex, to: Place, sums: Box<[LineSum]>) {
        // A change has waited for the copy.
        if self.writes.is_wanted(extent) || !self.is_to_be_replicated(extent) {
            self.replicas.rest(self.now, extent);
            return self.give_place_back(to);
        }
        self.replicas.insert(extent, to, sums);
        self.counters.replicas_made += 1;
    }

    /// It could not be read, or written: tried again later.
    pub(super) fn replica_failed(&mut self, extent: ExtentIndex) {
        self.replicas.rest(self.now, extent);
    }

    /// Gives up what has to make room, or is of no use now.
    pub(in crate::volume) fn advance_replicas(&mut self) -> bool {
        if self.replicas.is_unused() {
            return false;
        }
        while let Some(extent) = self.replicas.take_rested(self.now) {
            self.look_at_replica(extent);
        }
        let mut moved = false;
        while let Some(extent) = self.next_to_go() {
            self.make_room_of(extent);
            moved = true;
        }
        moved
    }

    /// The next replica that has to go.
    fn next_to_go(&mut self) -> Option<ExtentIndex> {
        if !self.all_is_well() {
            return self.replicas.next_to_go(None);
        }
        let replicas = &self.replicas;
        let set = self.extents.crowded_by_replicas().find(|set| replicas.on_set(*set) > 0)?;
        self.replicas.next_to_go(Some(set))
    }

    /// Where reads of an extent go, if not to its own place.
    pub(super) fn replica_of(&self, extent: ExtentIndex) -> Option<Place> {
        self.replicas.place(extent)
    }

    /// Step 3.
    pub(super) fn replica_read(
        &mut self,
        piece: Piece,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let (extent, first) = (piece.extent(), self.first_line_of(&piece));
        let buffer = buffer.filter(|buffer| {
            let lines = buffer.bytes().chunks(LINE_SIZE as usize).map(LineSum::of);
            result.is_ok() && self.replicas.is_right(extent, piece.place(), first as usize, lines)
        });
        if let Some(buffer) = buffer {
            self.counters.replica_reads += 1;
            self.put(piece, 0, buffer.bytes());
            return self.end_piece(&piece, Ok(()));
        }
        if self.replicas.place(extent) == Some(piece.place()) {
            self.counters.replicas_bad += 1;
            let place = self.replicas.changed(self.now, extent);
            self.give_replica_up(place);
        }
        self.read_in_place_of(&piece);
        self.end_piece(&piece, Ok(()));
    }

    pub(in crate::volume) fn replicas_wake_up(&self) -> Option<Time> {
        let has_useless = self.replicas.len() > 0 && !self.all_is_well();
        match has_useless {
            true => Some(self.now.after(PAUSE)),
            false => self.replicas.wake_up(),
        }
    }
}
