//! A candidate: a list of lines that was read at least twice in the same order, and the sighting of
//! it that may be going on.

use super::merge::{Entry, is_near, window};
use super::{DetectedId, Region};
use crate::units::{Line, Time};

/// Hits before which a sighting is nothing yet: shared lines are met all the time.
pub(super) const NASCENT_HITS: u32 = 8;
/// Hits in order at another place of the list with which a sighting goes on there.
const TRAIL_HITS: u32 = 4;

/// A list of lines that may be a sequence, or is one.
pub(super) struct Candidate {
    pub(super) id: DetectedId,
    pub(super) entries: Vec<Entry>,
    /// Of the entries, those in the sequence.
    pub(super) strong: usize,
    pub(super) occurrences: u32,
    pub(super) is_confirmed: bool,
    /// Position in the history at which it became a candidate.
    pub(super) created: u64,
    /// Where it was seen last.
    pub(super) latest: Region,
    /// How many of its lines were.
    pub(super) latest_hits: u32,
    pub(super) last_seen: Time,
    /// Lines that were in the sequence as it was told last and are not in the list any more.
    pub(super) told_and_gone: usize,
    pub(super) sighting: Option<Sighting>,
    /// Sightings so far.
    pub(super) sightings: u32,
}

/// The list is being read, perhaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sighting {
    pub(super) region: Region,
    pub(super) last_time: Time,
    /// Lines of the list that were met.
    pub(super) hits: u32,
    /// The farthest place in the list that was met in order.
    cursor: u64,
    /// Another place at which it may be going on.
    trail: Trail,
}

#[derive(Clone, Copy, Debug, Default)]
struct Trail {
    cursor: u64,
    began: u64,
    last: u64,
    hits: u32,
    /// Of the hits, those on lines that had been met before.
    repeated: u32,
}

impl Candidate {
    /// The lines of the sequence.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line> {
        self.entries.iter().filter(|entry| entry.is_strong()).map(|entry| entry.line)
    }

    /// Counts the strong entries again.
    pub(super) fn recount(&mut self) {
        self.strong = self.lines().count();
    }

    /// Whether so much has changed since it was told that it is worth telling again: an eighth.
    pub(super) fn has_changed(&self) -> bool {
        let differs = |entry: &&Entry| entry.told != entry.is_strong();
        let changed = self.entries.iter().filter(differs).count() + self.told_and_gone;
        changed * 8 > self.strong
    }

    /// The sequence is told as it is.
    pub(super) fn tell(&mut self) {
        self.told_and_gone = 0;
        for entry in &mut self.entries {
            entry.told = entry.is_strong();
        }
    }

    /// The line at `place` of the list is read, at position `at` of the history, at the latest
    /// `quiet_lines` after what belongs to it. A sighting that is over because the list is being
    /// read from its beginning again.
    pub(super) fn hit(
        &mut self,
        place: u64,
        at: u64,
        now: Time,
        quiet_lines: u64,
    ) -> Option<Sighting> {
        let window = window(self.entries.len());
        let Some(sighting) = &mut self.sighting else {
            let trail = Trail { cursor: place, began: at, last: at, hits: 1, repeated: 0 };
            self.begin(trail, now);
            self.mark(place);
            return None;
        };
        let is_met = self.entries[place as usize].mark == self.sightings;
        if is_near(sighting.cursor, place, window) {
            sighting.cursor = sighting.cursor.max(place);
            sighting.region.last = at;
            sighting.last_time = now;
            sighting.hits += u32::from(!is_met);
            self.mark(place);
            return None;
        }
        let trail = &mut sighting.trail;
        let goes_on = trail.hits > 0
            && at - trail.last <= quiet_lines
            && is_near(trail.cursor, place, window);
        if !goes_on {
            *trail = Trail { cursor: place, began: at, last: at, hits: 0, repeated: 0 };
        }
        // Lines that follow one another on the disk are one hit.
        if trail.hits == 0 || place != trail.cursor + 1 {
            trail.hits += 1;
            trail.repeated += u32::from(is_met);
        }
        trail.cursor = trail.cursor.max(place);
        trail.last = at;
        let trail = *trail;
        if trail.hits < TRAIL_HITS {
            return None;
        }
        if sighting.hits < NASCENT_HITS {
            self.begin(trail, now);
            self.mark(place);
            return None;
        }
        if trail.repeated + 1 >= TRAIL_HITS {
            let ended = *sighting;
            self.begin(trail, now);
            self.mark(place);
            return Some(ended);
        }
        // Both places stay alive: the old one needs one hit to go on.
        let hits = TRAIL_HITS - 1;
        sighting.trail = Trail { cursor: sighting.cursor, began: at, last: at, hits, repeated: 0 };
        sighting.cursor = trail.cursor;
        sighting.hits += trail.hits - trail.repeated;
        sighting.region.last = at;
        sighting.last_time = now;
        self.mark(place);
        None
    }

    fn begin(&mut self, trail: Trail, now: Time) {
        // A mark of 2^32 sightings ago would count as a hit; it does no harm.
        self.sightings = self.sightings.wrapping_add(1);
        self.sighting = Some(Sighting {
            region: Region { began: trail.began, last: trail.last },
            last_time: now,
            hits: trail.hits,
            cursor: trail.cursor,
            trail: Trail::default(),
        });
    }

    fn mark(&mut self, place: u64) {
        self.entries[place as usize].mark = self.sightings;
    }
}
