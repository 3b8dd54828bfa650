//! Which 4 KiB lines a trace touches, and how soon written sectors are written again.
//!
//! Exact up to [`LINES_MAX`] lines (1 GiB). Beyond that only lines are followed whose hash is below
//! a limit (spatial sampling, as in SHARDS): whenever there are too many, the limit is halved, the
//! lines above are forgotten, and what was counted so far is halved too. So memory stays below some
//! 50 MB however long the trace is.

use std::collections::HashMap;

use serde::Serialize;

use super::picture::TIME_BOUNDS;
use super::{Operation, Request};

/// Lines that are followed at most.
pub const LINES_MAX: usize = 1 << 18;

const LINE_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;
/// As many as [`TIME_BOUNDS`], and one for all that is longer.
const AGE_CLASSES: usize = TIME_BOUNDS.len() + 1;
const SECTORS: usize = (LINE_BYTES / SECTOR_BYTES) as usize;

/// What is known of a line.
#[derive(Clone, Copy, Default)]
struct LineState {
    read: bool,
    /// A bit for each sector.
    written: u8,
    written_ns: [u64; SECTORS],
}

/// Follows the lines of a trace.
pub(super) struct WorkingSet {
    lines: HashMap<(u32, u64), LineState>,
    lines_max: usize,
    /// The limit is 2^64 halved so often.
    halvings: u32,
    written: f64,
    within_30_s: f64,
    within_1000_s: f64,
    again: f64,
    /// Those written again, by the class of the time between.
    again_by_age: [f64; AGE_CLASSES],
    /// Lines followed that were read, and that were written.
    read_lines: usize,
    written_lines: usize,
}

/// How much is touched, and how much is written again.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct WorkingSetFacts {
    /// 4 KiB lines that were read or written, in bytes.
    pub bytes: u64,
    /// That were read.
    pub read_bytes: u64,
    /// That were written.
    pub written_bytes: u64,
    /// Share of the lines that was followed; 1 if all of this is exact.
    pub sampled: f64,
    /// Of the written 512-byte sectors: written again within 30 seconds.
    pub overwritten_30_s_percent: f64,
    /// Within 1000 seconds.
    pub overwritten_1000_s_percent: f64,
    /// At any time.
    pub overwritten_percent: f64,
}

impl WorkingSet {
    pub fn new(lines_max: usize) -> WorkingSet {
        WorkingSet {
            lines: HashMap::new(),
            lines_max,
            halvings: 0,
            written: 0.0,
            within_30_s: 0.0,
            within_1000_s: 0.0,
            again: 0.0,
            again_by_age: [0.0; AGE_CLASSES],
            read_lines: 0,
            written_lines: 0,
        }
    }

    /// Notes a read or write.
    pub fn add(&mut self, request: &Request) {
        let write = match request.operation {
            Operation::Read => false,
            Operation::Write => true,
            Operation::Discard | Operation::Flush => return,
        };
        let end = request.offset_bytes + request.size_bytes;
        let mut at = request.offset_bytes;
        while at < end {
            let line = at / LINE_BYTES;
            let end_of_line = end.min((line + 1).saturating_mul(LINE_BYTES));
            let key = (request.device, line);
            if is_followed(key, self.halvings) {
                if write {
                    let first = (at % LINE_BYTES / SECTOR_BYTES) as usize;
                    let last = ((end_of_line - 1) % LINE_BYTES / SECTOR_BYTES) as usize;
                    self.write(key, first..=last, request.time_ns);
                } else {
                    let was_read = &mut self.lines.entry(key).or_default().read;
                    self.read_lines += usize::from(!*was_read);
                    *was_read = true;
                }
                self.forget_too_many();
            }
            at = end_of_line;
        }
    }

    fn write(&mut self, key: (u32, u64), sectors: std::ops::RangeInclusive<usize>, now_ns: u64) {
        let state = self.lines.entry(key).or_default();
        self.written_lines += usize::from(state.written == 0);
        for sector in sectors {
            self.written += 1.0;
            if state.written & 1 << sector != 0 {
                let age_ns = now_ns - state.written_ns[sector];
                let within = |seconds: u64| f64::from(age_ns <= seconds * 1_000_000_000);
                self.again += 1.0;
                self.within_30_s += within(30);
                self.within_1000_s += within(1000);
                let class = TIME_BOUNDS.partition_point(|bound_ns| *bound_ns < age_ns);
                self.again_by_age[class] += 1.0;
            }
            state.written |= 1 << sector;
            state.written_ns[sector] = now_ns;
        }
    }

    fn forget_too_many(&mut self) {
        while self.lines.len() > self.lines_max {
            self.halvings += 1;
            let halvings = self.halvings;
            self.lines.retain(|key, _| is_followed(*key, halvings));
            let counts = [
                &mut self.written,
                &mut self.within_30_s,
                &mut self.within_1000_s,
                &mut self.again,
            ];
            counts.into_iter().chain(&mut self.again_by_age).for_each(|count| *count /= 2.0);
            self.read_lines = self.lines.values().filter(|state| state.read).count();
            self.written_lines = self.lines.values().filter(|state| state.written != 0).count();
        }
    }

    fn sampled(&self) -> f64 {
        0.5f64.powi(self.halvings as i32)
    }

    /// Lines touched so far, in bytes: all, read, written.
    pub fn touched_bytes(&self) -> [u64; 3] {
        [self.lines.len(), self.read_lines, self.written_lines]
            .map(|lines| (lines as f64 * LINE_BYTES as f64 / self.sampled()) as u64)
    }

    /// Sectors written again, by the time between (up to each bound, and beyond), and all written
    /// ones.
    pub fn overwrites_by_age(&self) -> (&[f64; AGE_CLASSES], f64) {
        (&self.again_by_age, self.written)
    }

    /// What has come out.
    pub fn facts(&self) -> WorkingSetFacts {
        let [bytes, read_bytes, written_bytes] = self.touched_bytes();
        let percent =
            |count: f64| if self.written > 0.0 { 100.0 * count / self.written } else { 0.0 };
        WorkingSetFacts {
            bytes,
            read_bytes,
            written_bytes,
            sampled: self.sampled(),
            overwritten_30_s_percent: percent(self.within_30_s),
            overwritten_1000_s_percent: percent(self.within_1000_s),
            overwritten_percent: percent(self.again),
        }
    }
}

/// Whether a line is among those followed: its hash (splitmix64) begins with so many zeroes.
fn is_followed((device, line): (u32, u64), halvings: u32) -> bool {
    if halvings == 0 {
        return true;
    }
    let mut hash = line.wrapping_add(u64::from(device) << 44).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ hash >> 31).leading_zeros() >= halvings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Flags;

    fn request(seconds: u64, operation: Operation, offset_bytes: u64, size_bytes: u64) -> Request {
        Request {
            time_ns: seconds * 1_000_000_000,
            operation,
            device: 0,
            offset_bytes,
            size_bytes,
            flags: Flags::default(),
            latency_ns: None,
            line: 0,
            column: 0,
        }
    }

    /// ```text
    /// sector:        6 7 8 9
    /// at 0 s         W W W W
    /// at 30 s          W W
    /// at 1000 s            W       of 8 written: 2 within 30 s, 3 within 1000 s, 4 ever
    /// at 1031 s          W
    /// ```
    #[test]
    fn overwrites_count_by_sector() {
        let mut set = WorkingSet::new(LINES_MAX);
        for (seconds, sector, sectors) in [(0, 6, 4), (30, 7, 2), (1000, 9, 1), (1031, 8, 1)] {
            set.add(&request(seconds, Operation::Write, sector * 512, sectors * 512));
        }
        let facts = set.facts();
        assert_eq!(facts.overwritten_30_s_percent, 25.0);
        assert_eq!(facts.overwritten_1000_s_percent, 37.5);
        assert_eq!(facts.overwritten_percent, 50.0);
        assert_eq!((facts.bytes, facts.written_bytes, facts.read_bytes), (8192, 8192, 0));
        set.add(&request(1032, Operation::Read, 8191, 2));
        set.add(&request(1032, Operation::Discard, 0, 1 << 40));
        let facts = set.facts();
        assert_eq!((facts.bytes, facts.read_bytes, facts.sampled), (12_288, 8192, 1.0));
        let (by_age, written) = set.overwrites_by_age();
        let class = |seconds: u64| {
            TIME_BOUNDS.iter().position(|bound| *bound == seconds * 1_000_000_000).unwrap()
        };
        // 30 s, 970 s between 300 and 1000 s, and 1031 s after that.
        assert_eq!([30, 1000, 3000].map(|bound| by_age[class(bound)]), [2.0, 1.0, 1.0]);
        assert_eq!((by_age.iter().sum::<f64>(), written), (4.0, 8.0));
    }

    /// The end of the last line is beyond 64 bits.
    #[test]
    fn the_last_line_of_all_can_be_touched() {
        let mut set = WorkingSet::new(LINES_MAX);
        set.add(&request(0, Operation::Write, u64::MAX - 600, 600));
        assert_eq!(set.facts().written_bytes, 4096);
    }

    #[test]
    fn large_sets_are_sampled_and_near_the_truth() {
        let mut set = WorkingSet::new(1000);
        // Every second line is written twice, ten seconds apart.
        for line in 0..40_000u64 {
            set.add(&request(0, Operation::Write, line * 4096, 4096));
        }
        for line in (0..40_000u64).step_by(2) {
            set.add(&request(10, Operation::Write, line * 4096, 4096));
        }
        assert!(set.lines.len() <= 1000);
        let facts = set.facts();
        let near = |found: f64, truth: f64| (found / truth - 1.0).abs() < 0.1;
        assert!(near(facts.bytes as f64, 40_000.0 * 4096.0), "{facts:?}");
        assert!(near(facts.overwritten_30_s_percent, 100.0 / 3.0), "{facts:?}");
        assert!(facts.sampled < 0.05);
    }
}
