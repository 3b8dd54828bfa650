//! Moving extents to the level that their attributes ask for, one at a time, when nothing else is
//! wanted of the members or the cap allows it.
//!
//! ```text
//! 1. A better place is taken. Changes of the extent wait from here on; reads go to the old place.
//! 2. The extent is read from the old place and written to the new one, durable.
//! 3. Its entry of the TTABLE is written to the journal, durable.
//!      Crash before: it is where it was. Crash behind: it is at the new place, whole.
//! 4. The old place is free.
//! ```
//!
//! An extent that fell back, because there was no room where it is wanted, waits until there is.

use std::collections::{BTreeMap, BTreeSet};

use super::super::checksums::LineSum;
use super::super::extents::{Entry, ExtentIndex, Part, Place};
use super::super::{Upper, UpperId, UpperOwner, Volume};
use super::journal::Then;
use super::repair::PAUSE;
use crate::buffer::Buffer;
use crate::io::IoError;
use crate::units::{Duration, LINE_SIZE, Time};

/// So many extents are looked at behind each input: of a large volume there are millions.
const LOOKED_AT_ONCE_MAX: usize = 2048;

/// Where a move stands.
#[derive(Debug)]
enum State {
    Reading {
        extent: ExtentIndex,
        to: Place,
        aim: Aim,
    },
    Writing {
        extent: ExtentIndex,
        to: Place,
    },
    /// Of a replica, with the checksums of its lines.
    WritingReplica {
        extent: ExtentIndex,
        to: Place,
        sums: Box<[LineSum]>,
    },
    Committing {
        extent: ExtentIndex,
    },
}

/// What an extent is read for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Aim {
    Move,
    /// It stays where it is, too (replicate.rs).
    Replica,
}

/// Extents that should be elsewhere.
#[derive(Default)]
pub(in crate::volume) struct Migration {
    waiting: BTreeSet<ExtentIndex>,
    /// Those for which there was no room, by where it would be; some may have gone, or be where
    /// they should be, since.
    without_room: BTreeMap<Part, BTreeSet<ExtentIndex>>,
    state: Option<State>,
    not_before: Time,
    /// Extents from this number on may be elsewhere than they should be, and nobody has looked: since
    /// a start, or since the volume has grown, which moves the region for temporary data.
    unseen_from: Option<u64>,
    /// Looked at since the last input.
    looked_at: usize,
}

impl Migration {
    /// More extents may be looked at.
    pub(in crate::volume) fn input_came(&mut self) {
        self.looked_at = 0;
    }

    /// All extents are to be looked at, a part behind each input.
    pub(in crate::volume) fn look_at_all(&mut self) {
        self.unseen_from = Some(0);
    }

    /// Extents that should be elsewhere, and are not on their way for want of time.
    pub(in crate::volume) fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub(in crate::volume) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.state.is_none() && self.unseen_from.is_none()
    }
}

impl Volume {
    /// Notes an extent if it should be elsewhere.
    pub(in crate::volume) fn queue_if_misplaced(&mut self, extent: ExtentIndex) {
        let entry = self.extents.get(extent);
        if self.extents.is_misplaced(entry, &self.header.config.placement) {
            self.migration.waiting.insert(extent);
        }
        self.look_at_replica(extent);
    }

    /// The next of those that nobody has looked at; whether there was one.
    fn look_at_unseen(&mut self) -> bool {
        let Some(from) = self.migration.unseen_from else { return false };
        if self.migration.looked_at >= LOOKED_AT_ONCE_MAX {
            return false;
        }
        self.migration.looked_at += 1;
        let extent = self.extents.next_known(from);
        self.migration.unseen_from = extent.map(|extent| u64::from(extent.0) + 1);
        if let Some(extent) = extent {
            self.queue_if_misplaced(extent);
        }
        true
    }

    pub(in crate::volume) fn migration_wake_up(&self) -> Option<Time> {
        if self.migration.unseen_from.is_some() {
            return Some(self.now.after(PAUSE));
        }
        let waits = self.migration.state.is_none()
            && (!self.migration.waiting.is_empty() || self.is_a_replica_due());
        (waits && self.migration.not_before > self.now).then_some(self.migration.not_before)
    }

    /// There is no better place for an extent than the one it has.
    fn wait_for_room(&mut self, extent: ExtentIndex) {
        self.counters.moves_without_room += 1;
        let placement = &self.header.config.placement;
        for part in self.extents.better_parts(self.extents.get(extent), placement) {
            self.migration.without_room.entry(part).or_default().insert(extent);
        }
    }

    /// One extent of each part that has room again is tried once more; where there is more room,
    /// others follow it.
    fn queue_where_is_room(&mut self) {
        for (part, extents) in &mut self.migration.without_room {
            if self.extents.has_room(*part) {
                self.migration.waiting.extend(extents.pop_first());
            }
        }
    }

    /// Steps 1 and 2.
    pub(in crate::volume) fn advance_migration(&mut self) -> bool {
        while self.look_at_unseen() {}
        if self.migration.waiting.is_empty() {
            self.queue_where_is_room();
        }
        if self.migration.state.is_some() || self.now < self.migration.not_before {
            return false;
        }
        let ready = |extent: &ExtentIndex| {
            !self.writes.is_changing(*extent)
                && !self.writes.is_new(*extent)
                && self.fresh.doubts(*extent) == 0
        };
        let Some(extent) = self.migration.waiting.iter().copied().find(ready) else {
            let Some((extent, to)) = self.next_replica() else { return false };
            self.start_move(extent, to, Aim::Replica);
            return true;
        };
        self.migration.waiting.remove(&extent);
        let entry = self.extents.get(extent);
        let placement = &self.header.config.placement;
        if !self.extents.is_misplaced(entry, placement) {
            return true;
        }
        let Some(to) = self.extents.allocate_better(entry, placement) else {
            self.wait_for_room(extent);
            return true;
        };
        self.start_move(extent, to, Aim::Move);
        true
    }

    fn start_move(&mut self, extent: ExtentIndex, to: Place, aim: Aim) {
        self.place_changed(to, true);
        self.writes.moving = Some(extent);
        self.migration.state = Some(State::Reading { extent, to, aim });
        let extent_bytes = self.header.config.extent_bytes;
        let id = self.own_upper(UpperOwner::Move, Buffer::zeroed(extent_bytes as usize), false);
        self.read_past_memory(id, u64::from(extent.0) * extent_bytes);
        self.piece_done(id, Ok(()));
    }

    pub(super) fn own_upper(&mut self, owner: UpperOwner, buffer: Buffer, fua: bool) -> UpperId {
        let id = UpperId(self.next_upper);
        self.next_upper += 1;
        let upper = Upper { owner, buffer: Some(buffer), pieces: 1, fua, result: Ok(()) };
        self.uppers.insert(id, upper);
        id
    }

    pub(in crate::volume) fn migration_upper_ended(
        &mut self,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let state = self.migration.state.take().expect("an extent is being moved");
        match (state, result, buffer) {
            (State::Reading { extent, to, aim }, Ok(()), Some(buffer)) => {
                self.migration.state = Some(match aim {
                    Aim::Move => State::Writing { extent, to },
                    Aim::Replica => {
                        let lines = buffer.bytes().chunks(LINE_SIZE as usize);
                        let sums = lines.map(LineSum::of).collect();
                        State::WritingReplica { extent, to, sums }
                    }
                });
                let id = self.own_upper(UpperOwner::Move, buffer, aim == Aim::Move);
                self.write_whole_extent(id, extent, to);
                self.piece_done(id, Ok(()));
            }
            (State::WritingReplica { extent, to, sums }, Ok(()), _) => {
                self.replica_written(extent, to, sums);
                self.end_move();
            }
            // Step 3.
            (State::Writing { extent, to }, Ok(()), _) => {
                let entry = self.extents.get(extent);
                self.change_entry(extent, Entry { place: Some(to), ..entry });
                self.migration.state = Some(State::Committing { extent });
                self.commit_place(extent, Then::Moved);
            }
            // What cannot be read stays, with its errors; what cannot be written has its old place.
            (
                State::Reading { extent, to, aim: Aim::Replica }
                | State::WritingReplica { extent, to, .. },
                ..,
            ) => {
                self.give_place_back(to);
                self.replica_failed(extent);
                self.end_move();
            }
            (State::Reading { to, .. } | State::Writing { to, .. }, ..) => {
                self.give_place_back(to);
                self.counters.moves_failed += 1;
                self.end_move();
            }
            (State::Committing { .. }, ..) => unreachable!("it has been written"),
        }
    }

    pub(in crate::volume) fn move_committed(&mut self, result: Result<(), IoError>) {
        let Some(State::Committing { extent }) = self.migration.state.take() else {
            unreachable!("an extent is being moved")
        };
        match result {
            Ok(()) => self.counters.extents_moved += 1,
            Err(_) => self.counters.moves_failed += 1,
        }
        self.end_move();
        // What it is may have changed meanwhile.
        if result.is_ok() {
            self.queue_if_misplaced(extent);
        }
    }

    fn end_move(&mut self) {
        self.writes.moving = None;
        let bytes = self.header.config.extent_bytes;
        let rate = self.header.config.migrate_bytes_per_second_max;
        if rate > 0 {
            let pause = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
            self.migration.not_before = self.now.after(Duration(pause as u64));
        }
    }
}
