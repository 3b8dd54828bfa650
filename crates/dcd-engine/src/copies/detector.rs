//! Finds *sequences*: lines far from one another that are read one after the other again and again,
//! as at boot and at the start of a program, so that a copy of them in that order saves the disk
//! its seeks (ODSC 2005, which leaves finding them to future work and points to Peacock's thesis
//! and to Li's C-Miner).
//!
//! C-Miner cuts a recorded trace into windows and mines those together, which takes the whole
//! trace. Here reads come one at a time, memory is bounded, and nothing says where a start begins,
//! so it goes like this:
//!
//! 1. Each line read is appended to the `history`; long sequential reads are cut short before.
//! 2. A line that stands in the history already may be part of a repeat (`repeats`): when the lines
//!    after it are those that followed it then, in nearly that order, the repeat grows. Lines that
//!    are missing, additional or overtaken leave it as it is. It ends when nothing of it is read
//!    for a time, or for many lines.
//! 3. Both readings of a repeat that has ended are laid beside each other (`merge`). What is in
//!    both becomes a `candidate`; what is in one alone stays in its list, on trial.
//! 4. Further occurrences are found by the candidate's own list, so that the history may have
//!    forgotten the first ones. Each occurrence refines the list: what two of the last eight
//!    occurrences had is in the sequence.
//! 5. At the third occurrence it is confirmed and told; later it is told when seen, and when it has
//!    changed much.
//!
//! Two readings may be equal by chance when a few lines are read again and again at random, so it
//! is lines *in order* that count, within windows that are a small part of the list. What is read
//! as a part of something larger that repeats as a whole (the libraries at the beginning of a
//! program's start) is no occurrence of its own.
//!
//! Everything is decided by the reads and their times alone: the same reads give the same
//! sequences.
//!
//! Cost: a look-up in each of two tables of fixed size and a few comparisons for each line, 70 to
//! 300 ns. When an occurrence ends, its two readings are sorted: 0.3 ms for 1000 lines, 7 ms for
//! the longest. That is mostly in quiet, and a driver that says when it is quiet
//! (`Detector::wake_up`) does not have a request wait for it.
//!
//! Tests: `detector_tests.rs` has starts of programs among noise, and what must not be found.

mod candidate;
mod history;
mod line_index;
mod merge;
mod repeats;
mod settings;
mod verdict;

use std::collections::{BTreeSet, VecDeque};

use crate::units::{FRAGMENTS_PER_LINE, LbaRange, Line, Time};
use candidate::{Candidate, Sighting};
use history::{History, Streams};
use line_index::LineIndex;
use merge::Entry;
use repeats::{Limits, Repeat, Repeats};
pub use settings::DetectorSettings;

/// A line that was read within so many lines before is being read in parts: it is the same read.
const SAME_READ_LINES: u64 = 64;
/// Lines at least after which it is looked whether something has ended.
const CHECK_LINES_MIN: u64 = 64;

/// Number of a sequence, never used again by the same detector. Not its name on the cache-disk,
/// [`SequenceId`](crate::units::SequenceId): the detector knows sequences that have no copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct DetectedId(pub u64);

/// Lines that are read one after the other again and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DetectedSequence {
    /// Which.
    pub(crate) id: DetectedId,
    /// Its lines, in the order in which they are read; each once.
    pub(crate) lines: Vec<Line>,
    /// How often the arm of the disk has to go elsewhere to read them: seeks that a copy saves.
    pub(crate) jumps: u32,
    /// How often it has been seen.
    pub(crate) occurrences: u32,
    /// When it was read last.
    pub(crate) last_seen: Time,
}

/// A known sequence was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Occurrence {
    /// Which.
    pub(crate) id: DetectedId,
    /// When it was read: at its last line.
    pub(crate) time: Time,
    /// How many of its lines were.
    pub(crate) lines_read: u32,
    /// How many it had.
    pub(crate) lines: u32,
    /// How often it has been seen, this time included.
    pub(crate) occurrences: u32,
}

/// What the detector has to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DetectorEvent {
    /// A sequence was seen for the [`DetectorSettings::confirmations`]th time.
    Confirmed(DetectedSequence),
    /// A sequence was seen again, with an eighth of its lines or more other ones than when it was
    /// told last.
    Changed(DetectedSequence),
    /// A sequence was seen again.
    Seen(Occurrence),
    /// A sequence was given up: others were seen later and needed the room, or a larger one has all
    /// of it.
    Forgotten(DetectedId),
}

/// Events kept until they are polled; of more, the oldest are lost.
const EVENTS_MAX: usize = 1024;

enum Event {
    Confirmed(DetectedId),
    Changed(DetectedId),
    Seen(Occurrence),
    Forgotten(DetectedId),
}

/// A stretch of the history: positions, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Region {
    began: u64,
    last: u64,
}

impl Region {
    /// Before all that is read.
    const NONE: Region = Region { began: 0, last: 0 };

    fn lines(&self) -> u64 {
        self.last - self.began + 1
    }

    fn contains(&self, position: u64) -> bool {
        self.began <= position && position <= self.last
    }

    /// Positions in both.
    fn overlap(&self, other: &Region) -> u64 {
        (self.last.min(other.last) + 1).saturating_sub(self.began.max(other.began))
    }

    fn overlaps(&self, other: &Region) -> bool {
        self.overlap(other) > 0
    }

    /// Whether it contains the other, give or take a few lines.
    fn encloses(&self, other: &Region) -> bool {
        self.began <= other.began + SAME_READ_LINES && other.last <= self.last + SAME_READ_LINES
    }

    fn joined(&self, other: &Region) -> Region {
        Region { began: self.began.min(other.began), last: self.last.max(other.last) }
    }
}

/// Finds sequences.
pub(crate) struct Detector {
    settings: DetectorSettings,
    limits: Limits,
    streams: Streams,
    history: History,
    repeats: Repeats,
    /// By slot; a slot that is not used is empty.
    candidates: Vec<Option<Candidate>>,
    /// Entries of all.
    candidate_lines: usize,
    /// From a line to slots of candidates and places in their lists (`Place`).
    index: LineIndex,
    next_id: u64,
    events: VecDeque<Event>,
    /// The time of the last read.
    now: Time,
    /// Position of the history at which it is looked whether something has ended.
    check_at: u64,
    check_lines: u64,
    /// Position of the first line after the last quiet.
    burst_began: u64,
}

/// Where a line is in a candidate: its slot and the place in its list, in 16 bits each.
#[derive(Clone, Copy)]
struct Place {
    slot: usize,
    place: usize,
}

impl Place {
    fn decode(value: u32) -> Place {
        Place { slot: (value >> 16) as usize, place: value as usize & 0xffff }
    }

    fn encode(self) -> u32 {
        (self.slot << 16 | self.place) as u32
    }
}

impl Detector {
    /// Knows nothing yet. Takes all the memory it will ever need for what grows with the settings.
    pub(crate) fn new(settings: DetectorSettings) -> Detector {
        let settings = settings.limited();
        let limits = Limits {
            lines_ago: u64::from(settings.history_lines),
            span_max: u64::from(settings.lines_max) * 2,
            quiet_lines: u64::from(settings.gap_lines),
        };
        // All candidates are looked at: so that this is one for each line, however many there are.
        let check_lines = CHECK_LINES_MIN.max(u64::from(settings.candidates_max));
        // A repeat begins at most `lines_ago` back and is complete at most `span_max` later; until
        // it is looked at again, and while it waits for a larger one, some more lines come.
        let ring = limits.lines_ago + limits.span_max + limits.quiet_lines + 2 * check_lines;
        let history = History::new(ring as usize);
        Detector {
            streams: Streams::new(),
            check_at: history.end() + check_lines,
            burst_began: history.end(),
            check_lines,
            history,
            repeats: Repeats::new(),
            candidates: (0..settings.candidates_max).map(|_| None).collect(),
            candidate_lines: 0,
            index: LineIndex::new(settings.candidate_lines_max as usize),
            next_id: 0,
            events: VecDeque::new(),
            now: Time::ZERO,
            settings,
            limits,
        }
    }

    /// A client reads this, and the data-disk or a copy serves it.
    pub(crate) fn read(&mut self, now: Time, range: LbaRange) {
        self.quiet(now);
        self.now = self.now.max(now);
        let first = range.start.line().0;
        let end = range.start.0.saturating_add(range.blocks).div_ceil(FRAGMENTS_PER_LINE);
        if range.blocks == 0 {
            return;
        }
        let lines = self.streams.take(first, end, u64::from(self.settings.run_lines_max));
        for line in first..first + lines {
            self.line_is_read(Line(line));
        }
    }

    /// Nothing was read up to now. Without it, the next read says that there was quiet before.
    pub(crate) fn quiet(&mut self, now: Time) {
        if now.since(self.now) >= self.settings.gap {
            self.end(|_, _| true);
            self.burst_began = self.history.end();
        }
    }

    /// When to say [`Detector::quiet`] if nothing is read before.
    pub(crate) fn wake_up(&self) -> Option<Time> {
        let sightings = self.candidates.iter().flatten().any(|one| one.sighting.is_some());
        let active = sightings || !self.repeats.active.is_empty();
        active.then(|| self.now.after(self.settings.gap))
    }

    /// What there is to tell, oldest first. To be asked after each [`Detector::read`] and
    /// [`Detector::quiet`].
    pub(crate) fn poll_event(&mut self) -> Option<DetectorEvent> {
        while let Some(event) = self.events.pop_front() {
            let told = match event {
                Event::Confirmed(id) => self.sequence(id).map(DetectorEvent::Confirmed),
                Event::Changed(id) => self.sequence(id).map(DetectorEvent::Changed),
                Event::Seen(occurrence) => Some(DetectorEvent::Seen(occurrence)),
                Event::Forgotten(id) => Some(DetectorEvent::Forgotten(id)),
            };
            if told.is_some() {
                return told;
            }
        }
        None
    }

    /// A sequence that is known.
    pub(crate) fn sequence(&self, id: DetectedId) -> Option<DetectedSequence> {
        let known =
            self.candidates.iter().flatten().find(|one| one.id == id && one.is_confirmed)?;
        Some(DetectedSequence {
            id,
            lines: known.lines().collect(),
            jumps: merge::jumps(known.lines()),
            occurrences: known.occurrences,
            last_seen: known.last_seen,
        })
    }

    /// A sequence of earlier, of which there is a copy: it is known from now on without having to
    /// be found again. None if there is no room for it, or it is too short. Lines after the first
    /// [`DetectorSettings::lines_max`] are left out.
    pub(crate) fn restore(&mut self, lines: &[Line], occurrences: u32) -> Option<DetectedId> {
        let mut seen = BTreeSet::new();
        let lines = lines.iter().filter(|line| seen.insert(**line));
        let mut entries: Vec<Entry> = lines.map(|line| Entry::new(*line, 0b11)).collect();
        entries.truncate(self.settings.lines_max as usize);
        let fits =
            self.candidate_lines + entries.len() <= self.settings.candidate_lines_max as usize;
        let free = self.candidates.iter().any(Option::is_none);
        if !fits || !free || entries.len() < self.settings.lines_min as usize {
            return None;
        }
        let slot = self.add_candidate(entries, Region::NONE, 0, self.now);
        let known = self.candidates[slot].as_mut().expect("it was added");
        known.is_confirmed = true;
        known.occurrences = occurrences;
        known.tell();
        Some(known.id)
    }

    /// A sequence is of no use to the store any more. It may be found again.
    pub(crate) fn forget(&mut self, id: DetectedId) {
        let slot = self.candidates.iter().position(|one| one.as_ref().is_some_and(|c| c.id == id));
        if let Some(slot) = slot {
            self.remove_candidate(slot);
        }
    }

    /// Sequences that are known.
    pub(crate) fn sequences(&self) -> usize {
        self.candidates.iter().flatten().filter(|one| one.is_confirmed).count()
    }

    /// Candidates that are no sequences yet.
    pub(crate) fn candidates(&self) -> usize {
        self.candidates.iter().flatten().filter(|one| !one.is_confirmed).count()
    }

    /// Bytes of memory that it holds; for a moment, when a repeat ends, it needs a few megabytes
    /// more.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entries =
            |one: &Candidate| one.entries.capacity() * size_of::<Entry>() + size_of::<Candidate>();
        size_of::<Detector>()
            + self.history.memory_bytes()
            + self.index.memory_bytes()
            + self.candidates.iter().flatten().map(entries).sum::<usize>()
            + self.candidates.capacity() * size_of::<Option<Candidate>>()
            + self.events.capacity() * size_of::<Event>()
    }

    fn line_is_read(&mut self, line: Line) {
        let places = self.history.places(line);
        if places.iter().any(|place| self.history.end() - place <= SAME_READ_LINES) {
            return;
        }
        let at = self.history.push(line);
        for value in self.index.values(line).iter() {
            let Place { slot, place } = Place::decode(*value);
            let Some(candidate) = &mut self.candidates[slot] else { continue };
            if candidate.entries.get(place).is_none_or(|entry| entry.line != line) {
                continue;
            }
            let quiet_lines = self.limits.quiet_lines;
            if let Some(ended) = candidate.hit(place as u64, at, self.now, quiet_lines) {
                self.end_sighting(slot, ended);
            }
        }
        self.repeats.read(&places, at, self.now, &self.limits, &self.history);
        if at >= self.check_at {
            self.check_at = at + self.check_lines;
            self.end_what_is_over();
        }
    }

    /// Ends what has had no line for a time, or for many lines, or is as long as anything may be.
    /// What is a part of something larger that goes on waits for it, to be judged together.
    fn end_what_is_over(&mut self) {
        let at = self.history.end();
        let now = self.now;
        let Limits { span_max, quiet_lines, .. } = self.limits;
        let gap = self.settings.gap;
        let is_over = |region: &Region, last_time: Time| {
            at - region.last > quiet_lines
                || now.since(last_time) >= gap
                || at - region.began >= span_max
        };
        // The regions and hits of what goes on.
        let mut goes_on: Vec<(Region, u32)> = Vec::new();
        for repeat in &self.repeats.active {
            let is_done = repeat.is_over() || repeat.earlier.lines() >= span_max;
            if !is_done && !is_over(&repeat.later, repeat.last_time) {
                goes_on.push((repeat.later, repeat.hits));
            }
        }
        for sighting in self.candidates.iter().flatten().filter_map(|one| one.sighting) {
            if !is_over(&sighting.region, sighting.last_time) {
                goes_on.push((sighting.region, sighting.hits));
            }
        }
        let is_part = |region: &Region, hits: u32| {
            goes_on.iter().any(|(other, others)| *others > hits && other.encloses(region))
        };
        self.end(|region, hits_and_time| {
            let (hits, last_time) = hits_and_time;
            let must = at - region.began >= span_max;
            let nascent = hits < candidate::NASCENT_HITS;
            is_over(region, last_time) && (must || nascent || !is_part(region, hits))
        });
        self.forget_old_candidates();
    }

    /// Ends the repeats and sightings for which `ends` is so.
    fn end(&mut self, ends: impl Fn(&Region, (u32, Time)) -> bool) {
        let mut sightings: Vec<(usize, Sighting)> = Vec::new();
        for (slot, candidate) in (0..).zip(&mut self.candidates) {
            let Some(candidate) = candidate else { continue };
            let ended = |one: &mut Sighting| ends(&one.region, (one.hits, one.last_time));
            if let Some(sighting) = candidate.sighting.take_if(ended) {
                sightings.push((slot, sighting));
            }
        }
        // The larger ones first: others may be parts of them.
        sightings.sort_by_key(|(slot, sighting)| (std::cmp::Reverse(sighting.hits), *slot));
        for (slot, sighting) in sightings {
            self.end_sighting(slot, sighting);
        }
        let span_max = self.limits.span_max;
        let is_ended = |one: &mut Repeat| {
            let is_done = one.is_over() || one.earlier.lines() >= span_max;
            is_done || ends(&one.later, (one.hits, one.last_time))
        };
        let ended: Vec<Repeat> = self.repeats.active.extract_if(.., is_ended).collect();
        // In the order of time, but parts after what they are parts of.
        let after_wholes = |part: &Repeat| {
            let is_whole = |one: &&Repeat| one.hits > part.hits && one.later.encloses(&part.later);
            let wholes = ended.iter().filter(is_whole).map(|one| one.later.began);
            wholes.fold(part.later.began, u64::max)
        };
        let mut order: Vec<_> = ended
            .iter()
            .map(|one| (after_wholes(one), std::cmp::Reverse(one.hits), one.earlier.began, *one))
            .collect();
        order.sort_by_key(|(began, hits, earlier, _)| (*began, *hits, *earlier));
        for (.., repeat) in order {
            self.end_repeat(repeat);
        }
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

impl std::fmt::Debug for Detector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Detector")
            .field("settings", &self.settings)
            .field("sequences", &self.sequences())
            .field("candidates", &self.candidates())
            .finish_non_exhaustive()
    }
}
