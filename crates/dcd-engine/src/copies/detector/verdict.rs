//! What becomes of a repeat or of a sighting that has ended: a candidate, an occurrence, or
//! nothing.

use super::candidate::{Candidate, NASCENT_HITS, Sighting};
use super::merge::{self, Entry, Merged, shorten};
use super::repeats::Repeat;
use super::{DetectedId, Detector, Event, Occurrence, Place, Region};
use crate::units::{Line, Time};

/// Lines of a region that are looked at to find out what it is a part of.
const SAMPLES: u64 = 256;
/// Lines before and after an occurrence that come on trial: it may begin earlier, or end later,
/// than the list says.
const EDGE_LINES: u64 = 64;

impl Detector {
    /// The reading of a candidate's list has ended: was it an occurrence?
    pub(super) fn end_sighting(&mut self, slot: usize, sighting: Sighting) {
        let Some(candidate) = &self.candidates[slot] else { return };
        let Sighting { region, hits, last_time, .. } = sighting;
        let half = candidate.strong / 2;
        let is_dense = region.lines() <= 16 * u64::from(hits) + self.limits.quiet_lines;
        let is_known = candidate.latest.overlaps(&region);
        if hits < NASCENT_HITS || (hits as usize) < half || !is_dense || is_known {
            return;
        }
        if !self.is_part_of_larger(slot, &region, hits) {
            self.occurred(slot, region, last_time);
        }
    }

    /// Whether the lines of the candidate were read as a part of something that has half as many
    /// lines more and is repeated as a whole.
    fn is_part_of_larger(&self, slot: usize, region: &Region, hits: u32) -> bool {
        let is_larger = |others: u32| u64::from(others) * 2 >= u64::from(hits) * 3;
        let encloses = |other: &Region, others: u32| is_larger(others) && other.encloses(region);
        let is_repeat =
            |one: &&Repeat| encloses(&one.later, one.hits) && is_larger(self.lines_repeated(one));
        let repeats = self.repeats.active.iter().filter(is_repeat);
        let mut repeats: Vec<(Region, u64)> = repeats.map(|one| (one.earlier, 0)).collect();
        let mut slots = vec![0u64; self.candidates.len()];
        let mut samples = 0;
        let start = region.began.max(self.history.start());
        let step = (region.last + 1).saturating_sub(start).div_ceil(SAMPLES).max(1);
        for position in (start..=region.last).step_by(step as usize) {
            let line = self.history.line(position);
            if !self.strong_in(line).any(|other| other == slot) {
                continue;
            }
            samples += 1;
            self.strong_in(line).for_each(|other| slots[other] += 1);
            let places = self.history.places(line);
            for (earlier, count) in &mut repeats {
                *count += u64::from(places.iter().any(|place| earlier.contains(*place)));
            }
        }
        let most = |count: u64| count * 5 >= samples * 4;
        let in_candidate = |other: usize| {
            let candidate = self.candidates[other].as_ref();
            other != slot
                && most(slots[other])
                && candidate.is_some_and(|one| {
                    let now = one.sighting.as_ref();
                    encloses(&one.latest, one.latest_hits)
                        || now.is_some_and(|now| encloses(&now.region, now.hits))
                })
        };
        repeats.iter().any(|(_, count)| most(*count)) || (0..slots.len()).any(in_candidate)
    }

    /// How many lines of the later reading are in the earlier one, from a sample. Of those that are
    /// there more often than once its hits count each.
    fn lines_repeated(&self, repeat: &Repeat) -> u32 {
        let step = repeat.later.lines().div_ceil(SAMPLES);
        self.sample_repeated(repeat).count() as u32 * step as u32
    }

    /// Lines of the later reading that are in the earlier one: some of them, evenly.
    fn sample_repeated(&self, repeat: &Repeat) -> impl Iterator<Item = Line> {
        let step = repeat.later.lines().div_ceil(SAMPLES);
        let start = repeat.later.began.max(self.history.start());
        let positions = (start..=repeat.later.last).step_by(step as usize);
        let earlier = repeat.earlier;
        positions.map(|position| self.history.line(position)).filter(move |line| {
            self.history.places(*line).iter().any(|place| earlier.contains(*place))
        })
    }

    /// The candidates that have the line in their sequence.
    fn strong_in(&self, line: Line) -> impl Iterator<Item = usize> {
        let values = self.index.values(line);
        let count = values.len();
        let slot = move |number| {
            let Place { slot, place } = Place::decode(values[number]);
            let entry = self.candidates[slot].as_ref()?.entries.get(place)?;
            (entry.line == line && entry.is_strong()).then_some(slot)
        };
        (0..count).filter_map(slot)
    }

    /// The candidate's lines were read in this region. If that is so, and in order, the list is
    /// refined.
    fn occurred(&mut self, slot: usize, region: Region, time: Time) {
        let Some(candidate) = &self.candidates[slot] else { return };
        // Its first and last lines may have been missing in the list so far.
        let edges = Region {
            began: region.began.saturating_sub(EDGE_LINES).max(self.burst_began.min(region.began)),
            last: (region.last + EDGE_LINES).min(self.history.end() - 1),
        };
        let merged = merge::merge(&candidate.entries, self.lines_of(&edges), 0b1);
        if merged.met_strong * 2 < candidate.strong || !merged.is_in_order {
            return;
        }
        let candidate = self.replace_entries(slot, merged.entries);
        candidate.occurrences = candidate.occurrences.saturating_add(1);
        candidate.latest = region;
        candidate.latest_hits = merged.met as u32;
        candidate.last_seen = time;
        let id = candidate.id;
        if !candidate.is_confirmed {
            self.confirm(slot);
            return;
        }
        let seen = Occurrence {
            id,
            time,
            lines_read: merged.met_strong as u32,
            lines: candidate.strong as u32,
            occurrences: candidate.occurrences,
        };
        let has_changed = candidate.has_changed();
        if has_changed {
            candidate.tell();
        }
        self.tell(Event::Seen(seen));
        if has_changed {
            self.tell(Event::Changed(id));
        }
    }

    /// The candidate becomes a sequence if it was seen often enough.
    fn confirm(&mut self, slot: usize) {
        let Some(candidate) = &mut self.candidates[slot] else { return };
        let lines: Vec<Line> = candidate.lines().collect();
        if candidate.occurrences < self.settings.confirmations || !is_worth(&self.settings, &lines)
        {
            return;
        }
        candidate.is_confirmed = true;
        candidate.tell();
        let (id, created) = (candidate.id, candidate.created);
        self.tell(Event::Confirmed(id));
        // What it has all of, and was not seen without it since, is not needed any more.
        let common = self.common_lines(&lines);
        for (other, common) in (0..).zip(common) {
            let Some(candidate) = &self.candidates[other] else { continue };
            let is_part = common * 5 >= candidate.strong * 4 && candidate.strong < lines.len();
            if other != slot && is_part && candidate.latest.last <= created {
                self.give_up(other);
            }
        }
    }

    /// A stretch of the history has been read again: a new candidate, or one that is known.
    pub(super) fn end_repeat(&mut self, repeat: Repeat) {
        let Repeat { earlier, later, last_time, hits, .. } = repeat;
        // Shared lines may have counted for others, so that there are more of them than hits.
        let lines = earlier.lines().max(later.lines());
        let is_enough = u64::from(hits) * 2 >= u64::from(self.settings.lines_min)
            && u64::from(hits) * 10 >= lines;
        if !is_enough || self.is_nothing_new(&repeat) {
            return;
        }
        let first: Vec<Entry> = self.lines_of(&earlier).map(|line| Entry::new(line, 0b1)).collect();
        let merged = merge::merge(&first, self.lines_of(&later), 0b1);
        let is_dense = merged.met as u64 * 5 >= lines;
        let Merged { mut entries, met, is_in_order, .. } = merged;
        let both: Vec<Line> =
            entries.iter().filter(|entry| entry.is_strong()).map(|entry| entry.line).collect();
        if !is_dense || !is_in_order || !is_worth(&self.settings, &both) {
            return;
        }
        let common = self.common_lines(&both);
        let slots = 0..self.candidates.len();
        let candidate = |slot: usize| self.candidates[slot].as_ref();
        // 1. It is a candidate that is known: another occurrence, unless that was counted by its
        //    own list already.
        let is_same = |slot: &usize| {
            let strong = candidate(*slot).map_or(usize::MAX / 5, |one| one.strong);
            common[*slot] * 5 >= met * 3 && common[*slot] * 5 >= strong * 3
        };
        let same = slots.clone().filter(is_same);
        if let Some(slot) = same.max_by_key(|slot| (common[*slot], std::cmp::Reverse(*slot))) {
            if candidate(slot).is_some_and(|one| one.latest.overlaps(&later)) {
                self.absorb(slot, &both);
            } else if !self.is_part_of_larger(slot, &later, met as u32) {
                self.occurred(slot, later, last_time);
            }
            return;
        }
        // 2. It is a part of one that was seen there as a whole.
        let is_part = |slot: usize| {
            let reading = candidate(slot).is_some_and(|one| {
                let now = one.sighting.as_ref().filter(|now| now.hits as usize * 5 >= met * 4);
                one.latest.overlaps(&later) || now.is_some_and(|now| now.region.overlaps(&later))
            });
            common[slot] * 5 >= met * 4 && reading
        };
        if slots.clone().any(is_part) {
            return;
        }
        // 3. It is new. Candidates that are parts of it were only waiting for it.
        for slot in slots {
            let is_part = |one: &Candidate| !one.is_confirmed && common[slot] * 5 >= one.strong * 4;
            if self.candidates[slot].as_ref().is_some_and(is_part) {
                self.give_up(slot);
            }
        }
        shorten(&mut entries, self.settings.lines_max as usize);
        self.make_room(entries.len());
        let slot = self.add_candidate(entries, later, met as u32, last_time);
        self.confirm(slot);
    }

    /// Whether a candidate that was seen where the repeat is has nine of ten of its lines, from a
    /// sample.
    fn is_nothing_new(&self, repeat: &Repeat) -> bool {
        let seen: Vec<usize> = (0..self.candidates.len())
            .filter(|slot| {
                let candidate = self.candidates[*slot].as_ref();
                candidate.is_some_and(|one| {
                    one.latest.overlap(&repeat.later) * 10 >= repeat.later.lines() * 9
                })
            })
            .collect();
        if seen.is_empty() {
            return false;
        }
        let mut samples = 0;
        let mut common = vec![0; self.candidates.len()];
        for line in self.sample_repeated(repeat) {
            samples += 1;
            self.strong_in(line).for_each(|slot| common[slot] += 1);
        }
        seen.iter().any(|slot| common[*slot] * 10 >= samples * 9)
    }

    /// Both readings of a repeat had these lines. Those that the candidate does not have come into
    /// its list; it is no occurrence.
    fn absorb(&mut self, slot: usize, lines: &[Line]) {
        let Some(candidate) = &self.candidates[slot] else { return };
        let merged = merge::merge(&candidate.entries, lines.iter().copied(), 0b110);
        if merged.entries.len() == candidate.entries.len() {
            return;
        }
        let mut entries = merged.entries;
        // Takes back the bit of an occurrence that a merge appends.
        entries.iter_mut().for_each(|entry| entry.seen >>= 1);
        self.replace_entries(slot, entries);
    }

    /// The lines of a stretch, as far as the history has it.
    fn lines_of(&self, region: &Region) -> impl Iterator<Item = Line> {
        let start = region.began.max(self.history.start());
        (start..=region.last).map(|position| self.history.line(position))
    }

    /// How many of the lines each candidate has in its sequence, by slot.
    fn common_lines(&self, lines: &[Line]) -> Vec<usize> {
        let mut common = vec![0; self.candidates.len()];
        for line in lines {
            self.strong_in(*line).for_each(|slot| common[slot] += 1);
        }
        common
    }

    /// A new candidate in a free slot.
    pub(super) fn add_candidate(
        &mut self,
        entries: Vec<Entry>,
        latest: Region,
        latest_hits: u32,
        last_seen: Time,
    ) -> usize {
        let slot = self.candidates.iter().position(Option::is_none).expect("there is room");
        let id = DetectedId(self.next_id);
        self.next_id += 1;
        self.candidates[slot] = Some(Candidate {
            id,
            entries: Vec::new(),
            strong: 0,
            occurrences: 2,
            is_confirmed: false,
            created: self.history.end(),
            latest,
            latest_hits,
            last_seen,
            told_and_gone: 0,
            sighting: None,
            sightings: 0,
        });
        self.replace_entries(slot, entries);
        slot
    }

    /// Gives the candidate a new list, without what nobody will miss.
    fn replace_entries(&mut self, slot: usize, mut entries: Vec<Entry>) -> &mut Candidate {
        let candidate = self.candidates[slot].as_mut().expect("the slot is in use");
        for (place, entry) in candidate.entries.iter().enumerate() {
            self.index.remove(entry.line, Place { slot, place }.encode());
        }
        self.candidate_lines -= candidate.entries.len();
        let told = |entries: &[Entry]| entries.iter().filter(|entry| entry.told).count();
        let told_before = told(&candidate.entries);
        entries.retain(Entry::is_kept);
        let room = self.settings.candidate_lines_max as usize - self.candidate_lines;
        shorten(&mut entries, room.min(self.settings.lines_max as usize));
        entries.shrink_to_fit();
        for (place, entry) in entries.iter().enumerate() {
            self.index.insert(entry.line, Place { slot, place }.encode());
        }
        self.candidate_lines += entries.len();
        candidate.told_and_gone += told_before - told(&entries);
        candidate.entries = entries;
        candidate.recount();
        candidate
    }

    /// Takes the candidate out.
    pub(super) fn remove_candidate(&mut self, slot: usize) {
        self.replace_entries(slot, Vec::new());
        self.candidates[slot] = None;
    }

    /// Takes it out, and says so if anybody knew of it.
    fn give_up(&mut self, slot: usize) {
        if let Some(Candidate { id, is_confirmed: true, .. }) = self.candidates[slot] {
            self.tell(Event::Forgotten(id));
        }
        self.remove_candidate(slot);
    }

    /// Makes room for a new candidate of so many lines. Those that are not sequences go first,
    /// those that were seen longest ago before others; but sequences never take more than three
    /// quarters for ever, so that new ones can be found.
    fn make_room(&mut self, lines: usize) {
        let lines_max = self.settings.candidate_lines_max as usize;
        while self.candidate_lines + lines > lines_max
            || self.candidates.iter().all(Option::is_some)
        {
            let used = self.candidates.iter().flatten();
            let sequences = used.filter(|one| one.is_confirmed);
            let (count, sequence_lines) = sequences
                .fold((0, 0), |(count, lines), one| (count + 1, lines + one.entries.len()));
            let too_many =
                count * 4 > self.candidates.len() * 3 || sequence_lines * 4 > lines_max * 3;
            let rank = |slot: &usize| {
                let one = self.candidates[*slot].as_ref().expect("it is used");
                (one.is_confirmed != too_many, one.last_seen, one.latest.last, one.id)
            };
            let used = (0..self.candidates.len()).filter(|slot| self.candidates[*slot].is_some());
            let Some(slot) = used.min_by_key(rank) else { return };
            self.give_up(slot);
        }
    }

    /// Gives up candidates that did not come again.
    pub(super) fn forget_old_candidates(&mut self) {
        for slot in 0..self.candidates.len() {
            let Some(candidate) = &self.candidates[slot] else { continue };
            let lines = self.history.end() - candidate.latest.last;
            let is_old = lines > self.settings.forget_after_lines
                || self.now.since(candidate.last_seen) > self.settings.forget_after;
            if is_old && !candidate.is_confirmed {
                self.give_up(slot);
            }
        }
    }
}

/// Whether a copy of the lines is worth having.
fn is_worth(settings: &super::DetectorSettings, lines: &[Line]) -> bool {
    let jumps = merge::jumps(lines.iter().copied());
    lines.len() >= settings.lines_min as usize
        && jumps >= settings.jumps_min
        && lines.len() as u64 <= u64::from(jumps) * u64::from(settings.lines_per_jump_max)
}
