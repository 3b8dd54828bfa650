//! Two readings of the same thing laid beside each other: what is in both, in the order of the
//! first.

use crate::units::Line;

/// A line of a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) line: Line,
    /// Equal to the candidate's count of sightings if the one that is going on has met this line.
    pub(super) mark: u32,
    /// Occurrences that had it: bit 0 the newest, bit 7 the eighth last.
    pub(super) seen: u8,
    /// It was in the sequence as it was told last.
    pub(super) told: bool,
}

impl Entry {
    pub(super) fn new(line: Line, seen: u8) -> Entry {
        Entry { line, mark: 0, seen, told: false }
    }

    /// Whether the sequence has it: two of the last eight occurrences did, one of them among the
    /// last four. What only one occurrence had may be another program's.
    pub(super) fn is_strong(&self) -> bool {
        self.seen.count_ones() >= 2 && self.seen & 0b1111 != 0
    }

    /// Whether it may be in the sequence later: it is, or was seen once in the last three
    /// occurrences.
    pub(super) fn is_kept(&self) -> bool {
        self.is_strong() || self.seen & 0b111 != 0
    }
}

/// How far from the place where it is expected, in lines before and after, a line may be to be in
/// order, in a list of `lines`. A share of the list, so that lines of a small set that are read at
/// random are not in order.
pub(super) fn window(lines: usize) -> (u64, u64) {
    ((lines as u64 / 16).clamp(2, 32), (lines as u64 / 8).clamp(4, 128))
}

/// Whether `place` is within the window around `cursor`.
pub(super) fn is_near(cursor: u64, place: u64, (back, ahead): (u64, u64)) -> bool {
    (place + back).wrapping_sub(cursor) <= back + ahead
}

/// Places in a list at which a reading may go on at once.
const CURSORS_MAX: usize = 4;

/// Measures whether places of a list come in its order.
struct Order {
    window: (u64, u64),
    /// Newest first. Long lists have more of them: services that start at the same time each read
    /// in order.
    cursors: Vec<u64>,
    cursors_max: usize,
    last: Option<Line>,
    steps: u64,
    in_order: u64,
}

impl Order {
    fn new(lines: usize) -> Order {
        let cursors_max = (lines / 1024).clamp(1, CURSORS_MAX);
        let cursors = Vec::with_capacity(CURSORS_MAX);
        Order { window: window(lines), cursors, cursors_max, last: None, steps: 0, in_order: 0 }
    }

    /// The line at `place` of the list comes next. Lines that follow one another on the disk follow
    /// one another in any list, so they say nothing.
    fn step(&mut self, place: u64, line: Line) {
        let follows = self.last.is_some_and(|last| is_read_ahead(last, line));
        self.last = Some(line);
        self.steps += u64::from(!follows);
        match self.cursors.iter().position(|cursor| is_near(*cursor, place, self.window)) {
            Some(index) => {
                self.in_order += u64::from(!follows);
                let cursor = self.cursors.remove(index);
                self.cursors.insert(0, cursor.max(place));
            }
            None => {
                self.cursors.truncate(self.cursors_max - 1);
                self.cursors.insert(0, place);
            }
        }
    }

    /// Whether three quarters did.
    fn holds(&self) -> bool {
        self.in_order * 4 >= self.steps * 3
    }
}

/// Two readings as one.
pub(super) struct Merged {
    /// In the order of the earlier one; what only the later one has stands behind its predecessor
    /// there. Bit 0 of `seen` says whether the later one had it.
    pub(super) entries: Vec<Entry>,
    /// Lines in both.
    pub(super) met: usize,
    /// Of those that were strong in the earlier one.
    pub(super) met_strong: usize,
    /// Whether the later one has them in nearly the same order.
    pub(super) is_in_order: bool,
}

/// Lays `later` beside `earlier`. What is in the later one alone has `seen` set to `seen_if_new`.
pub(super) fn merge(
    earlier: &[Entry],
    later: impl Iterator<Item = Line>,
    seen_if_new: u8,
) -> Merged {
    // The place of each line in the earlier one; of a line that is there twice, the first.
    let mut places: Vec<(Line, u32)> =
        (0..).zip(earlier).map(|(place, entry)| (entry.line, place)).collect();
    places.sort_unstable();
    let mut state = vec![State::Missed; earlier.len()];
    for pair in places.windows(2) {
        if pair[0].0 == pair[1].0 {
            state[pair[1].1 as usize] = State::Double;
        }
    }
    places.dedup_by_key(|place| place.0);

    let mut order = Order::new(places.len());
    let (mut met, mut met_strong) = (0, 0);
    let mut predecessor = 0;
    let mut new: Vec<(Line, u32, u32)> = Vec::new();
    for (number, line) in (0..).zip(later) {
        let Ok(found) = places.binary_search_by_key(&line, |place| place.0) else {
            new.push((line, predecessor, number));
            continue;
        };
        let place = places[found].1;
        predecessor = place + 1;
        if state[place as usize] == State::Met {
            continue;
        }
        state[place as usize] = State::Met;
        order.step(u64::from(place), line);
        met += 1;
        met_strong += usize::from(earlier[place as usize].is_strong());
    }
    new.sort_unstable_by_key(|(line, _, number)| (*line, *number));
    new.dedup_by_key(|(line, ..)| *line);
    new.sort_unstable_by_key(|(_, predecessor, number)| (*predecessor, *number));

    let mut entries = Vec::with_capacity(places.len() + new.len());
    let mut new = new.into_iter().peekable();
    for (place, entry) in (0..).zip(earlier) {
        while let Some((line, ..)) = new.next_if(|(_, predecessor, _)| *predecessor <= place) {
            entries.push(Entry::new(line, seen_if_new));
        }
        let bit = match state[place as usize] {
            State::Double => continue,
            State::Met => 1,
            State::Missed => 0,
        };
        entries.push(Entry { seen: entry.seen << 1 | bit, mark: 0, ..*entry });
    }
    entries.extend(new.map(|(line, ..)| Entry::new(line, seen_if_new)));
    Merged { entries, met, met_strong, is_in_order: order.holds() }
}

/// What became of a line of the earlier reading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Missed,
    Met,
    /// It is there already.
    Double,
}

/// Lines on trial for each that is in the sequence, at most: among reads of others there may be
/// some of its own.
const WEAK_FOR_EACH_STRONG: usize = 3;

/// Makes room: at most `max` entries, and no more on trial than [`WEAK_FOR_EACH_STRONG`] allows.
pub(super) fn shorten(entries: &mut Vec<Entry>, max: usize) {
    let strong = entries.iter().filter(|entry| entry.is_strong()).count();
    let mut room = (strong * WEAK_FOR_EACH_STRONG).min(max.saturating_sub(strong));
    entries.retain(|entry| {
        if entry.is_strong() {
            return true;
        }
        let stays = room > 0;
        room -= usize::from(stays);
        stays
    });
    entries.truncate(max);
}

/// Lines that a disk passes over without a seek: what it reads ahead.
const READ_AHEAD_LINES: u64 = 32;

/// Whether a disk that has read `last` reads `line` without a seek.
fn is_read_ahead(last: Line, line: Line) -> bool {
    line > last && line.0 - last.0 <= READ_AHEAD_LINES
}

/// Sequential reads that a disk with its read-ahead, and the kernel's, keeps apart.
const READ_AHEAD_STREAMS: usize = 8;

/// How often the arm has to go elsewhere to read these in their order. To go on with one of the
/// last few sequential reads does not count: files read at the same time need no copy.
pub(super) fn jumps(lines: impl Iterator<Item = Line>) -> u32 {
    let mut jumps = 0;
    // The last line of each stream, and the stream to be replaced next.
    let mut streams: [Option<Line>; READ_AHEAD_STREAMS] = [None; READ_AHEAD_STREAMS];
    let mut oldest = 0;
    for line in lines {
        let follows = |last: &Option<Line>| last.is_some_and(|last| is_read_ahead(last, line));
        match streams.iter_mut().find(|last| follows(last)) {
            Some(last) => *last = Some(line),
            None => {
                streams[oldest] = Some(line);
                oldest = (oldest + 1) % READ_AHEAD_STREAMS;
                jumps += 1;
            }
        }
    }
    jumps
}
