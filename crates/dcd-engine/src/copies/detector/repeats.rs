//! Stretches of the history that are being read again: how a candidate is found at its second
//! occurrence.

use super::Region;
use super::candidate::NASCENT_HITS;
use super::history::History;
use super::merge::is_near;
use crate::units::Time;

/// Repeats that are followed at once.
pub(super) const REPEATS_MAX: usize = 16;
/// How far before and after the place where it is expected a line may be. Behind: parallel reads
/// overtake one another. Ahead: lines that are missing now, and other programs' reads of then.
const WINDOW: (u64, u64) = (32, 64);
/// Two repeats that are not farther apart in the earlier reading are one with a hole, or two halves
/// that are read at the same time.
const HOLE_LINES: u64 = 2048;
/// Lines that are read again with which a repetition is over, and how many of them something new
/// makes good: a line that was missing in this repetition comes in the next one as if it belonged
/// to this.
const AGAIN_MAX: u32 = 32;
const AGAIN_FORGIVEN: u32 = 4;
/// Lines that are looked at to tell them from two occurrences.
const ALTERNATIVE_LINES: u64 = 32;

/// A stretch of the history, and the one that repeats it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    /// What is repeated.
    pub(super) earlier: Region,
    /// Where in it the repetition is now.
    cursor: u64,
    /// The repetition, up to its last line.
    pub(super) later: Region,
    pub(super) last_time: Time,
    /// Lines of the later one that are in the earlier one.
    pub(super) hits: u32,
    /// Lines that the later one had already and that were read again since, without anything new.
    again: u32,
}

impl Repeat {
    /// What the repetition has read already is being read again: that is the next repetition.
    pub(super) fn is_over(&self) -> bool {
        self.again >= AGAIN_MAX
    }
}

/// Those that are going on.
pub(super) struct Repeats {
    pub(super) active: Vec<Repeat>,
    /// The one that was replaced last.
    hand: usize,
}

impl Repeats {
    pub(super) fn new() -> Repeats {
        Repeats { active: Vec::with_capacity(REPEATS_MAX), hand: 0 }
    }

    /// The line at position `at` stands at `places` of the history too, and may begin a repeat
    /// there if it is at most `lines_ago`. A repeat ends before it is longer than `span_max`; parts
    /// of one are at most `quiet_lines` apart.
    pub(super) fn read(
        &mut self,
        places: &[u64],
        at: u64,
        now: Time,
        limits: &Limits,
        history: &History,
    ) {
        let Some(newest) = places.iter().copied().max() else { return };
        for repeat in &mut self.active {
            if newest >= repeat.later.began {
                let is_again = |place: &u64| repeat.later.contains(*place);
                repeat.again += u32::from(places.iter().any(is_again));
            }
        }
        let mut extended = 0u32;
        for place in places {
            match self.find(*place, newest) {
                Some(index) if extended & 1 << index != 0 => {}
                Some(index) => {
                    extended |= 1 << index;
                    let repeat = &mut self.active[index];
                    repeat.earlier.began = repeat.earlier.began.min(*place);
                    repeat.earlier.last = repeat.earlier.last.max(*place);
                    repeat.cursor = repeat.cursor.max(*place);
                    repeat.later.last = at;
                    repeat.last_time = now;
                    repeat.hits += 1;
                    repeat.again = repeat.again.saturating_sub(AGAIN_FORGIVEN);
                }
                None if at - *place > limits.lines_ago => {}
                None => {
                    if let Some(index) = self.begin(*place, at, now) {
                        extended |= 1 << index;
                    }
                }
            }
        }
        if extended != 0 {
            self.join(extended, limits, history);
        }
    }

    /// The one that goes on at this place of the history, with a line that was read last at
    /// `newest`.
    fn find(&self, place: u64, newest: u64) -> Option<usize> {
        // Mostly there is none: without branches that is soon known.
        let mut near = 0u32;
        for (index, repeat) in self.active.iter().enumerate() {
            near |= u32::from(is_near(repeat.cursor, place, WINDOW)) << index;
        }
        while near != 0 {
            let index = near.trailing_zeros() as usize;
            let repeat = &self.active[index];
            if newest < repeat.later.began && !repeat.is_over() {
                return Some(index);
            }
            near &= near - 1;
        }
        None
    }

    /// A new one, in the place of one of long ago that has not become anything; none if all are
    /// established.
    fn begin(&mut self, place: u64, at: u64, now: Time) -> Option<usize> {
        let repeat = Repeat {
            earlier: Region { began: place, last: place },
            cursor: place,
            later: Region { began: at, last: at },
            last_time: now,
            hits: 1,
            again: 0,
        };
        if self.active.len() < REPEATS_MAX {
            self.active.push(repeat);
            return Some(self.active.len() - 1);
        }
        for _ in 0..REPEATS_MAX {
            self.hand = (self.hand + 1) % REPEATS_MAX;
            if self.active[self.hand].hits < NASCENT_HITS {
                self.active[self.hand] = repeat;
                return Some(self.hand);
            }
        }
        None
    }

    /// Joins those that have just become established to others that they are parts of. They go on
    /// where the newer one is.
    fn join(&mut self, extended: u32, limits: &Limits, history: &History) {
        // From the highest: what is taken out does not move those that are still to be looked at.
        for index in (0..self.active.len()).rev() {
            let repeat = self.active[index];
            if extended & 1 << index == 0 || !repeat.hits.is_multiple_of(NASCENT_HITS) {
                continue;
            }
            let is_whole = |slot: usize| {
                let other = &self.active[slot];
                slot != index
                    && !other.is_over()
                    && other.hits >= NASCENT_HITS
                    // Else it is another repetition of the same.
                    && repeat.earlier.overlap(&other.earlier) * 2 < repeat.earlier.lines()
                    && is_within(&repeat.earlier, &other.earlier, HOLE_LINES)
                    && is_within(&repeat.later, &other.later, limits.quiet_lines)
                    && repeat.earlier.joined(&other.earlier).last
                        < repeat.later.joined(&other.later).began
                    && repeat.earlier.joined(&other.earlier).lines() < limits.span_max
                    && repeat.later.joined(&other.later).lines() < limits.span_max
                    && !is_alternative(&repeat, other, history)
            };
            let other = (0..self.active.len()).find(|slot| is_whole(*slot));
            let Some(other) = other else { continue };
            let other = &mut self.active[other];
            other.earlier = repeat.earlier.joined(&other.earlier);
            other.cursor = repeat.cursor;
            other.later = repeat.later.joined(&other.later);
            other.last_time = repeat.last_time;
            other.hits += repeat.hits;
            self.active.swap_remove(index);
        }
    }
}

/// Whether what is read now was read in `other`, too: then it is not a part of the same occurrence,
/// but of another one.
fn is_alternative(repeat: &Repeat, other: &Repeat, history: &History) -> bool {
    let (mut here, mut there) = (0, 0);
    let start = repeat.later.began.max(repeat.later.last.saturating_sub(ALTERNATIVE_LINES));
    for position in start..=repeat.later.last {
        let places = history.places(history.line(position));
        if places.iter().any(|place| repeat.earlier.contains(*place)) {
            here += 1;
            let is_other = |place: &u64| {
                let is_later = other.later.contains(*place) && *place < repeat.later.began;
                is_later || other.earlier.contains(*place)
            };
            there += usize::from(places.iter().any(is_other));
        }
    }
    there * 2 > here
}

/// What bounds a repeat, in lines.
pub(super) struct Limits {
    pub(super) lines_ago: u64,
    pub(super) span_max: u64,
    pub(super) quiet_lines: u64,
}

/// Whether two stretches overlap or are at most so far apart.
fn is_within(one: &Region, other: &Region, lines: u64) -> bool {
    one.began <= other.last + lines && other.began <= one.last + lines
}
