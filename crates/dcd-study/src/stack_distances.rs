//! How many lines a least-recently-used memory finds, by its size, out of one reading of a load.
//!
//! The *stack distance* of a request for a line is the number of lines asked for since the last one
//! for it, its own included: a memory of so many lines, or more, still has it (Mattson and others
//! 1970). Exact up to [`LINES_MAX`] lines; beyond that only lines are followed whose hash is below
//! a limit, and distances count for as many as were passed over (Waldspurger and others 2015).

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use dcd_sim::trace::{Operation, Request};

/// Lines that are followed at most: some 200 MB.
const LINES_MAX: usize = 1 << 21;
/// Distances are told to one part in so many.
const STEPS_PER_OCTAVE: u64 = 64;
/// What a line may be large.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// Which requests ask for lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operations {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Both.
    All,
}

impl FromStr for Operations {
    type Err = String;

    fn from_str(text: &str) -> Result<Operations, String> {
        match text {
            "reads" => Ok(Operations::Reads),
            "writes" => Ok(Operations::Writes),
            "all" => Ok(Operations::All),
            _ => Err(format!("expected reads, writes or all, found `{}`", text.escape_debug())),
        }
    }
}

/// What has come out.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// Sizes of the memory at which it finds more than at smaller ones.
    pub sizes_bytes: Vec<u64>,
    /// The share of lines asked for that it finds, at those sizes.
    pub hit_ratios: Vec<f64>,
    /// Lines asked for, of those that were followed.
    pub lines: u64,
    /// The share of lines that was followed; 1: all of this is exact.
    pub sampled: f64,
}

/// Follows a load.
pub struct StackDistances {
    operations: Operations,
    line_bytes: u64,
    lines_max: usize,
    /// A line in 2^halvings is followed.
    halvings: u32,
    order: LinesByAge,
    /// Counts, by distance in steps; those of before a halving count half.
    found: BTreeMap<u64, f64>,
    lines: f64,
}

impl StackDistances {
    /// Of requests of that kind.
    ///
    /// # Errors
    /// If no line is so large.
    pub fn new(operations: Operations, line_bytes: u64) -> Result<StackDistances, String> {
        if !line_bytes.is_power_of_two() || !(512..=LINE_BYTES_MAX).contains(&line_bytes) {
            return Err(format!(
                "expected a power of two from 512 to {LINE_BYTES_MAX} bytes, found {line_bytes}"
            ));
        }
        Ok(StackDistances {
            operations,
            line_bytes,
            lines_max: LINES_MAX,
            halvings: 0,
            order: LinesByAge::default(),
            found: BTreeMap::new(),
            lines: 0.0,
        })
    }

    /// Notes a request.
    pub fn add(&mut self, request: &Request) {
        let is_wanted = match request.operation {
            Operation::Read => self.operations != Operations::Writes,
            Operation::Write => self.operations != Operations::Reads,
            Operation::Discard | Operation::Flush => false,
        };
        if !is_wanted || request.size_bytes == 0 {
            return;
        }
        let first = request.offset_bytes / self.line_bytes;
        let last = (request.offset_bytes + (request.size_bytes - 1)) / self.line_bytes;
        for line in first..=last {
            let line = (request.device, line);
            if !is_followed(line, self.halvings) {
                continue;
            }
            self.lines += 1.0;
            if let Some(distance) = self.order.ask(line) {
                let step = rounded_up(u64::from(distance) << self.halvings);
                *self.found.entry(step).or_default() += 1.0;
            } else if self.order.len() > self.lines_max {
                self.halve();
            }
        }
    }

    fn halve(&mut self) {
        self.halvings += 1;
        let halvings = self.halvings;
        self.order.retain(|line| is_followed(line, halvings));
        self.found.values_mut().for_each(|count| *count /= 2.0);
        self.lines /= 2.0;
    }

    /// What has come out so far.
    pub fn curve(&self) -> Curve {
        let mut so_far = 0.0;
        let points = self.found.iter().map(|(distance, count)| {
            so_far += count;
            (distance.saturating_mul(self.line_bytes), so_far / self.lines)
        });
        let (sizes_bytes, hit_ratios) = points.unzip();
        let sampled = 0.5f64.powi(self.halvings as i32);
        Curve { sizes_bytes, hit_ratios, lines: self.lines.ceil() as u64, sampled }
    }
}

/// The end of the step that a distance is in: a memory of that size has all of them.
fn rounded_up(distance: u64) -> u64 {
    let step = (distance.max(1).ilog2()).saturating_sub(STEPS_PER_OCTAVE.ilog2());
    distance.div_ceil(1 << step) << step
}

/// Whether a line is among those followed: its hash (splitmix64) begins with so many zeroes.
fn is_followed((device, line): (u32, u64), halvings: u32) -> bool {
    let mut hash = line.wrapping_add(u64::from(device) << 44).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ hash >> 31).leading_zeros() >= halvings
}

type Key = (u32, u64);

/// Lines in the order in which they were asked for last: a Fenwick tree over places, which counts
/// those that have a line. When the places are used up, the lines move together.
#[derive(Default)]
struct LinesByAge {
    places: Vec<Option<Key>>,
    counts: Vec<u32>,
    by_line: HashMap<Key, u32>,
}

impl LinesByAge {
    fn len(&self) -> usize {
        self.by_line.len()
    }

    /// A line is the newest now: how many were asked for since its last time, its own included;
    /// none if it was not known.
    fn ask(&mut self, line: Key) -> Option<u32> {
        if self.places.len() + 1 >= self.counts.len() {
            self.move_together();
        }
        let place = self.places.len() as u32;
        let before = self.by_line.insert(line, place);
        let distance = before.map(|before| {
            let distance = self.by_line.len() as u32 - self.count_before(before);
            self.places[before as usize] = None;
            self.change(before, u32::MAX);
            distance
        });
        self.places.push(Some(line));
        self.change(place, 1);
        distance
    }

    fn retain(&mut self, keep: impl Fn(Key) -> bool) {
        for place in &mut self.places {
            *place = place.filter(|line| keep(*line));
        }
        self.move_together();
    }

    /// Adds to the count at a place; `u32::MAX` takes one away.
    fn change(&mut self, place: u32, by: u32) {
        let mut at = place as usize + 1;
        while at < self.counts.len() {
            self.counts[at] = self.counts[at].wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    fn count_before(&self, place: u32) -> u32 {
        let (mut at, mut sum) = (place as usize, 0u32);
        while at > 0 {
            sum = sum.wrapping_add(self.counts[at]);
            at -= at & at.wrapping_neg();
        }
        sum
    }

    /// Makes room for as many again as there are lines.
    fn move_together(&mut self) {
        let lines: Vec<Key> = self.places.iter().flatten().copied().collect();
        let room = (lines.len() * 2).max(1 << 10);
        self.counts.clear();
        self.counts.resize(room + 1, 0);
        self.by_line.clear();
        self.places = lines.into_iter().map(Some).collect();
        self.places.reserve_exact(room - self.places.len());
        for place in 0..self.places.len() as u32 {
            let line = self.places[place as usize].expect("all of them have one");
            self.by_line.insert(line, place);
            self.change(place, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_sim::trace::Flags;

    fn request(operation: Operation, offset_bytes: u64, size_bytes: u64) -> Request {
        Request {
            time_ns: 0,
            operation,
            device: 0,
            offset_bytes,
            size_bytes,
            flags: Flags::default(),
            latency_ns: None,
            line: 1,
            column: 1,
        }
    }

    /// Some numbers that are not in order.
    fn numbers(count: usize, below: u64) -> Vec<u64> {
        let next = |seed: &u64| {
            let next = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            Some(next)
        };
        let seeds = std::iter::successors(Some(7u64), next);
        // Small ones come more often.
        let number = |seed: u64| {
            let uniform = seed >> 33;
            (uniform % below) * ((uniform / below) % below) / below
        };
        seeds.map(number).take(count).collect()
    }

    /// A plain list, newest first.
    #[test]
    fn distances_are_those_of_a_list() {
        let mut distances = StackDistances::new(Operations::All, 4096).unwrap();
        let mut list: Vec<u64> = Vec::new();
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        let asked = numbers(20_000, 60);
        for line in &asked {
            distances.add(&request(Operation::Read, line * 4096, 4096));
            if let Some(place) = list.iter().position(|known| known == line) {
                list.remove(place);
                *expected.entry(place as u64 + 1).or_default() += 1;
            }
            list.insert(0, *line);
        }
        let curve = distances.curve();
        assert_eq!((curve.sampled, curve.lines), (1.0, 20_000));
        let sizes: Vec<u64> = expected.keys().map(|distance| distance * 4096).collect();
        assert!(sizes.len() > 30, "{sizes:?}");
        assert_eq!(curve.sizes_bytes, sizes);
        let mut found = 0;
        for (ratio, count) in curve.hit_ratios.iter().zip(expected.values()) {
            found += count;
            assert_eq!(*ratio, found as f64 / 20_000.0);
        }
    }

    #[test]
    fn only_what_is_wanted_is_followed() {
        let curve = |operations| {
            let mut distances = StackDistances::new(operations, 4096).unwrap();
            // One line twice, by its last and its first byte; two lines by two bytes.
            distances.add(&request(Operation::Write, 4095, 1));
            distances.add(&request(Operation::Read, 0, 1));
            distances.add(&request(Operation::Write, 4095, 2));
            distances.add(&request(Operation::Discard, 0, 1 << 40));
            distances.add(&request(Operation::Flush, 0, 0));
            distances.curve()
        };
        assert_eq!((curve(Operations::Reads).lines, curve(Operations::Writes).lines), (1, 3));
        let all = curve(Operations::All);
        assert_eq!((all.lines, all.sizes_bytes), (4, vec![4096]));
        assert_eq!(all.hit_ratios, [0.5]);
        assert!(StackDistances::new(Operations::All, 1000).is_err());
        assert!("both".parse::<Operations>().is_err());
    }

    #[test]
    fn a_sample_is_near_the_truth() {
        let at = |lines_max| {
            let mut distances = StackDistances::new(Operations::All, 4096).unwrap();
            distances.lines_max = lines_max;
            for line in numbers(200_000, 40_000) {
                distances.add(&request(Operation::Write, line * 4096, 4096));
            }
            distances.curve()
        };
        let (all, some) = (at(LINES_MAX), at(2_000));
        assert_eq!(all.sampled, 1.0);
        assert!(some.sampled < 0.2, "{}", some.sampled);
        for size in [4 << 20, 16 << 20, 64 << 20] {
            let ratio = |curve: &Curve| {
                let place = curve.sizes_bytes.partition_point(|known| *known <= size);
                place.checked_sub(1).map_or(0.0, |place| curve.hit_ratios[place])
            };
            let (exact, near) = (ratio(&all), ratio(&some));
            assert!((exact - near).abs() < 0.03, "{size}: {exact}, {near}");
        }
    }
}
