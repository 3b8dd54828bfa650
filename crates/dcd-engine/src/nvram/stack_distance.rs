//! The hit ratio as a function of size, and its knee (Haining, chapter 4), found while running.
//!
//! Of a sample of the lines that are written it is known how many blocks were written between two
//! writes to the same line, each block counted once: the *stack distance*. A least-recently-used
//! memory of that size or more would have found the line. So the distances of all writes are the
//! hit ratio as a function of size (Mattson and others 1970), and with lines sampled by a hash of
//! their address they cost little (Waldspurger and others 2015). The curve rises steeply while hot
//! lines still find room, and slowly when only cold ones gain: between them is the *knee*.

use super::number_map::NumberMap;
use crate::units::{FragmentMask, LbaRange, Line};

/// Lines that are followed at most.
const SAMPLES_MAX: usize = 4096;
/// Steps of the curve.
const STEPS: usize = 64;
/// Sampled writes after which older ones count half.
const HALF_LIFE: u64 = 1 << 14;

/// The share of writes that find their line, by size of the memory.
#[derive(Clone, Debug)]
pub struct HitRatio {
    capacity_blocks: u64,
    /// A line in so many is followed.
    one_in: u64,
    /// Lines in the order in which they were written last, newest last. Blocks are those ever
    /// written of a line.
    order: BlocksByAge,
    /// Writes by stack distance, in steps of the capacity; the last is for those beyond it, and the
    /// first.
    hits: [u64; STEPS + 1],
    writes: u64,
}

impl HitRatio {
    /// For a memory of so many blocks.
    pub fn new(capacity_blocks: u64) -> HitRatio {
        let lines = capacity_blocks.div_ceil(8) as usize;
        HitRatio {
            capacity_blocks,
            one_in: lines.div_ceil(SAMPLES_MAX) as u64,
            order: BlocksByAge::new(lines.min(SAMPLES_MAX) * 2),
            hits: [0; STEPS + 1],
            writes: 0,
        }
    }

    /// Blocks were written.
    pub fn written(&mut self, range: LbaRange) {
        for (line, mask) in range.lines() {
            if !is_sampled(line, self.one_in) {
                continue;
            }
            let distance = self.order.write(line, mask).map(|blocks| blocks * self.one_in);
            let step = match distance {
                Some(distance) => distance * STEPS as u64 / self.capacity_blocks,
                None => STEPS as u64,
            };
            self.hits[step.min(STEPS as u64) as usize] += 1;
            self.writes += 1;
            if self.writes == HALF_LIFE {
                self.hits.iter_mut().for_each(|hits| *hits /= 2);
                self.writes /= 2;
            }
        }
    }

    /// The share of writes that a memory of so many blocks finds, for sizes in equal steps up to
    /// the capacity; empty before there were any.
    pub fn curve(&self) -> Vec<(u64, f64)> {
        let total: u64 = self.hits.iter().sum();
        if total == 0 {
            return Vec::new();
        }
        let mut found = 0;
        let steps = (1..).zip(&self.hits[..STEPS]);
        let at = |(step, hits): (u64, &u64)| {
            found += hits;
            (self.capacity_blocks * step / STEPS as u64, found as f64 / total as f64)
        };
        steps.map(at).collect()
    }

    /// The size beyond which more brings the least: where the curve is highest above the straight
    /// line from its beginning to its end. 0 for a curve that is such a line.
    pub fn knee_blocks(&self) -> u64 {
        let curve = self.curve();
        let Some((_, most)) = curve.last().copied() else { return 0 };
        let above = |(blocks, hits): &(u64, f64)| {
            hits - most * *blocks as f64 / self.capacity_blocks as f64
        };
        let highest = curve.iter().max_by(|a, b| above(a).total_cmp(&above(b)));
        highest.filter(|point| above(point) > 0.0).map_or(0, |(blocks, _)| *blocks)
    }
}

fn is_sampled(line: Line, one_in: u64) -> bool {
    // Neighbours must not be sampled alike: the high bits of a product depend on all bits below.
    let hash = line.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 32).is_multiple_of(one_in)
}

/// Lines by the age of their last write, with sums of their blocks: a Fenwick tree over places.
/// When the places are used up, the lines move together, and the oldest are forgotten.
#[derive(Clone, Debug)]
struct BlocksByAge {
    /// Line and blocks of a place.
    places: Vec<Option<(Line, FragmentMask)>>,
    sums: Vec<u64>,
    used: usize,
    by_line: NumberMap,
    total: u64,
}

impl BlocksByAge {
    fn new(lines: usize) -> BlocksByAge {
        let places = (lines * 2).max(16);
        BlocksByAge {
            places: vec![None; places],
            sums: vec![0; places + 1],
            used: 0,
            by_line: NumberMap::new(),
            total: 0,
        }
    }

    /// A line is the newest now. Blocks of the lines written since its last time, its own included;
    /// none if it was not known.
    fn write(&mut self, line: Line, mask: FragmentMask) -> Option<u64> {
        if self.used == self.places.len() {
            self.move_together();
        }
        let before = self.by_line.get(line.0).map(|place| place as usize);
        let (distance, mask) = match before {
            None => (None, mask),
            Some(place) => {
                let distance = self.total - self.sum_before(place);
                let (_, old) = self.places[place].take().expect("it is in the map");
                self.add(place, -i64::from(old.0.count_ones()));
                (Some(distance), old.or(mask))
            }
        };
        let place = self.used;
        self.used += 1;
        self.places[place] = Some((line, mask));
        self.add(place, i64::from(mask.0.count_ones()));
        self.by_line.insert(line.0, place as u32);
        distance
    }

    fn add(&mut self, place: usize, blocks: i64) {
        self.total = self.total.wrapping_add_signed(blocks);
        let mut at = place + 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add_signed(blocks);
            at += at & at.wrapping_neg();
        }
    }

    fn sum_before(&self, place: usize) -> u64 {
        let (mut at, mut sum) = (place, 0u64);
        while at > 0 {
            sum = sum.wrapping_add(self.sums[at]);
            at -= at & at.wrapping_neg();
        }
        sum
    }

    fn move_together(&mut self) {
        let kept = self.places.len() / 2;
        let lines: Vec<_> = self.places.iter().flatten().copied().collect();
        let newest = &lines[lines.len().saturating_sub(kept)..];
        self.places.fill(None);
        self.sums.fill(0);
        self.by_line.clear();
        (self.total, self.used) = (0, newest.len());
        for (place, (line, mask)) in newest.iter().enumerate() {
            self.places[place] = Some((*line, *mask));
            self.by_line.insert(line.0, place as u32);
            self.add(place, i64::from(mask.0.count_ones()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(number: u64) -> LbaRange {
        LbaRange { start: Line(number).lba(), blocks: 8 }
    }

    proptest! {
        /// Stack distances against a plain list.
        #[test]
        fn distances_are_those_of_a_list(lines in prop::collection::vec((0u64..40, 1u8..=255), 0..300)) {
            let mut order = BlocksByAge::new(40);
            let mut list: Vec<(u64, u8)> = Vec::new();
            for (number, mask) in lines {
                let at = list.iter().position(|(known, _)| *known == number);
                let expected = at.map(|at| list[at..].iter().map(|(_, m)| u64::from(m.count_ones())).sum());
                let old = at.map_or(0, |at| list.remove(at).1);
                list.push((number, mask | old));
                prop_assert_eq!(order.write(Line(number), FragmentMask(mask)), expected);
            }
        }
    }

    /// Ten hot lines, written again and again, among many that are written once.
    #[test]
    fn the_knee_is_where_the_hot_lines_fit() {
        let mut ratio = HitRatio::new(128 * 8);
        assert_eq!((ratio.knee_blocks(), ratio.curve()), (0, Vec::new()));
        for round in 0..2000 {
            for hot in 0..10 {
                ratio.written(line(hot));
                ratio.written(line(1000 + round * 10 + hot));
            }
        }
        // Twenty lines lie between two writes of a hot one.
        let knee = ratio.knee_blocks();
        assert!((20 * 8..=24 * 8).contains(&knee), "{knee}");
        let hits = ratio.curve().last().unwrap().1;
        assert!((0.49..=0.5).contains(&hits), "half of the writes can be found: {hits}");
    }

    #[test]
    fn of_a_large_memory_a_sample_will_do() {
        let lines = 64 * SAMPLES_MAX as u64;
        let mut ratio = HitRatio::new(lines * 8);
        for _ in 0..3 {
            (0..lines / 4).for_each(|number| ratio.written(line(number * 7)));
        }
        let knee = ratio.knee_blocks() as f64 / (lines * 8) as f64;
        assert!((0.22..=0.30).contains(&knee), "{knee}");
        assert!(ratio.order.by_line.len() <= 2 * SAMPLES_MAX);
    }

    #[test]
    fn what_no_size_helps_has_no_knee() {
        let mut ratio = HitRatio::new(1024);
        (0..5000).for_each(|number| ratio.written(line(number)));
        assert_eq!(ratio.knee_blocks(), 0);
    }
}
