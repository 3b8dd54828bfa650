//! How much is zeroed on the data-disk at a time: what the disk does in a moment, measured while it
//! runs.
//!
//! A disk that frees space does it in no time, however long the range; one that must write the
//! zeroes takes as long as its speed says. Nobody knows before which it is, and both may change
//! from one place to the next. So little is asked for first, and more as long as it takes no time.
//! What is behind a piece (a read, a flush) waits for it, and nothing may come near `io_timeout`.
//!
//! Where each round costs something by itself ([`super::fixed_cost`]), smaller ones would not make
//! anybody wait less, and all of them together would take hours. So lines may take as long as that
//! cost again: a round is about twice what the smallest would be.

use super::Engine;
use super::fixed_cost::{FixedCost, Round};
use crate::units::{Duration, LINE_SIZE};

/// What is asked for first: 256 KiB.
const START_LINES: u64 = 64;
/// The longest piece that any disk is asked for, by `io_timeout`: one that suddenly must write, and
/// writes no slower than this, does it in time.
const BYTES_PER_SECOND_SUDDEN: u64 = 20 << 20;
/// A piece that must be written slower than this is not waited for.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// Longest that a piece should take, and while somebody reads.
const TARGET: Duration = Duration::from_secs(1);
const TARGET_BESIDE_READS: Duration = Duration::from_millis(100);

/// What no round may pass.
#[derive(Clone, Copy)]
struct Limits {
    /// How long one should take.
    target: Duration,
    /// How long its lines may, whatever it costs by itself.
    for_lines: Duration,
    lines: u64,
}

/// The length of pieces.
pub(super) struct ZeroPace {
    /// Lines that may be on their way at once.
    lines: u64,
    /// What no size changes.
    fixed_cost: FixedCost,
}

impl ZeroPace {
    pub(super) fn new() -> ZeroPace {
        ZeroPace { lines: START_LINES, fixed_cost: FixedCost::new() }
    }

    /// Lines for the next round: fewer now and then, to see whether it takes less time. Of one line
    /// there are no fewer, so it is two.
    fn lines_now(&self) -> u64 {
        match self.fixed_cost.wants_another_size_than(self.lines) {
            true if self.lines == 1 => 2,
            true => (self.lines / 4).max(1),
            false => self.lines,
        }
    }

    /// So many lines, all that were on their way together, took so long.
    fn took(&mut self, lines: u64, took: Duration, limits: Limits) {
        let target = limits.target.0;
        self.fixed_cost.round_ended(Round { lines, took }, took.0 > target / 4);
        // It is no longer than the round: of that the lines took the rest.
        let cost = self.fixed_cost.believed().0;
        let for_lines = took.0 - cost;
        let for_lines_max = target.saturating_sub(cost).max(cost.min(limits.for_lines.0));
        if for_lines > for_lines_max {
            let by_speed = u128::from(lines) * u128::from(for_lines_max) / u128::from(for_lines);
            self.lines = (by_speed as u64).min(self.lines / 2);
        } else if for_lines <= for_lines_max / 4 && lines > self.lines / 2 {
            self.lines *= 2;
        }
        self.lines = self.lines.clamp(1, limits.lines);
    }

    /// One has been given up.
    fn gave_up(&mut self) {
        self.lines = (self.lines / 8).max(1);
    }
}

impl Engine {
    /// Lines that may be asked for now, all in all.
    pub(super) fn zero_lines_max(&self) -> u64 {
        self.zero_pace.lines_now().min(self.zero_lines_sudden())
    }

    fn zero_lines_sudden(&self) -> u64 {
        let bytes = u128::from(self.config.io_timeout.0) * u128::from(BYTES_PER_SECOND_SUDDEN);
        let lines = bytes / 1_000_000_000 / u128::from(LINE_SIZE);
        u64::try_from(lines).unwrap_or(u64::MAX).clamp(1, (1 << 30) / LINE_SIZE)
    }

    /// How long pieces should take.
    fn zero_target(&self) -> Duration {
        let most = match self.writes_through_for_readers() {
            true => TARGET_BESIDE_READS,
            false => TARGET,
        };
        most.min(Duration(self.config.io_timeout.0 / 10))
    }

    /// So many lines have been zeroed, and flushed if they were to be, in so long.
    pub(super) fn zeroing_took(&mut self, lines: u64, took: Duration) {
        let limits = Limits {
            target: self.zero_target(),
            for_lines: Duration(self.config.io_timeout.0 / 4),
            lines: self.zero_lines_sudden(),
        };
        self.zero_pace.took(lines, took, limits);
    }

    /// Zeroing was given up after its time was over.
    pub(super) fn zeroing_was_given_up(&mut self) {
        self.zero_pace.gave_up();
    }

    /// How much longer than another I/O one that zeroes so many lines may take before it is given
    /// up.
    pub(super) fn zero_allowance(lines: u64) -> Duration {
        let nanos = u128::from(lines) * u128::from(LINE_SIZE) * 1_000_000_000
            / u128::from(BYTES_PER_SECOND_MIN);
        Duration(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = (600 << 20) / LINE_SIZE;

    fn limits(target: Duration) -> Limits {
        Limits { target, for_lines: Duration::from_millis(7500), lines: MOST }
    }

    /// A disk, in nanoseconds.
    #[derive(Clone, Copy, Debug)]
    struct Disk {
        /// What each round costs.
        fixed: u64,
        line: u64,
        /// Rounds take up to so much more or less, in percent.
        noise: u64,
    }

    impl Disk {
        fn of_speed(lines_a_second: u64) -> Disk {
            Disk { fixed: 0, line: 1_000_000_000 / lines_a_second, noise: 0 }
        }

        fn takes(&self, lines: u64, random: &mut u64) -> Duration {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let percent = 100 - self.noise + (*random >> 33) % (2 * self.noise + 1);
            Duration((self.fixed + lines * self.line) * percent / 100)
        }

        /// Lines in a second, where they take no longer than `target`, or what a round costs.
        fn best(&self, target: Duration) -> f64 {
            let for_lines = target.0.saturating_sub(self.fixed).max(self.fixed);
            let lines = (for_lines / self.line.max(1)).clamp(1, MOST);
            lines as f64 * 1e9 / (self.fixed + lines * self.line) as f64
        }
    }

    /// So many rounds: their lines, and what they took.
    fn rounds(pace: &mut ZeroPace, disk: Disk, target: Duration, count: usize) -> (u64, Vec<u64>) {
        let (mut all, mut random) = (0, 1);
        let took = (0..count).map(|_| {
            let lines = pace.lines_now().min(MOST);
            let took = disk.takes(lines, &mut random);
            pace.took(lines, took, limits(target));
            all += lines;
            took.0
        });
        let took = took.collect();
        (all, took)
    }

    /// Rounds of one line took as long, and thousands of them hours.
    #[test]
    fn what_each_round_costs_is_no_reason_for_small_ones() {
        for (fixed, line) in
            [90, 300, 5000].into_iter().flat_map(|ms| [0, 1000, 1_000_000].map(|line| (ms, line)))
        {
            for (noise, target) in
                [0, 10, 30].into_iter().flat_map(|n| [TARGET, TARGET_BESIDE_READS].map(|t| (n, t)))
            {
                let disk = Disk { fixed: fixed * 1_000_000, line, noise };
                let mut pace = ZeroPace::new();
                // One that shrank because it was given up is as before soon.
                (0..3).for_each(|_| pace.gave_up());
                rounds(&mut pace, disk, target, 60);
                let (lines, took) = rounds(&mut pace, disk, target, 1000);
                let speed = lines as f64 * 1e9 / took.iter().sum::<u64>() as f64;
                let best = disk.best(target);
                assert!(speed * 3.0 > best, "{speed} of {best} lines/s: {disk:?}, {target:?}");
                // What an irregular disk costs looks like more than it is now and then.
                let most = target.0.max(if noise == 0 { 2 } else { 4 } * disk.fixed);
                let longer = took.into_iter().filter(|took| *took > most).count();
                assert!(longer <= 50 * noise as usize / 30, "{longer}: {disk:?}, {target:?}");
            }
        }
    }

    /// What a disk writes slowly stays in small rounds, however irregular it is.
    #[test]
    fn where_lines_take_the_time_rounds_stay_short() {
        for noise in [0, 10, 30] {
            for (speed, target) in [(64, TARGET_BESIDE_READS), (64, TARGET), (4, TARGET)] {
                let mut pace = ZeroPace::new();
                let disk = Disk { noise, fixed: 1_000_000, ..Disk::of_speed(speed) };
                rounds(&mut pace, disk, target, 3);
                let (_, took) = rounds(&mut pace, disk, target, 3000);
                let longest = took.into_iter().max().unwrap_or(0);
                let most = target.0 * (100 + noise) / 100;
                assert!(longest <= most, "{longest} ns: {disk:?}, {target:?}");
            }
        }
    }

    /// It may cost nearly `io_timeout`: all of a round must end before that.
    #[test]
    fn what_a_round_costs_does_not_bring_its_lines_near_the_timeout() {
        let mut pace = ZeroPace::new();
        let disk = Disk { fixed: 20_000_000_000, line: 1_000_000, noise: 0 };
        let (_, took) = rounds(&mut pace, disk, TARGET, 200);
        assert!(took.into_iter().all(|took| took <= 27_500_000_000));
        assert!(pace.lines > 1000, "{}", pace.lines);
    }

    /// It was a disk that frees space behind long flushes, and is one that writes.
    #[test]
    fn what_was_learnt_is_forgotten_when_the_disk_changes() {
        let mut pace = ZeroPace::new();
        rounds(&mut pace, Disk { fixed: 300_000_000, line: 0, noise: 0 }, TARGET_BESIDE_READS, 50);
        assert_eq!(pace.lines, MOST);
        let writes = Disk::of_speed(40_000);
        rounds(&mut pace, writes, TARGET_BESIDE_READS, 10);
        let (_, took) = rounds(&mut pace, writes, TARGET_BESIDE_READS, 1000);
        assert!(took.into_iter().all(|took| took <= TARGET_BESIDE_READS.0), "{}", pace.lines);
    }

    /// Zeroes `lines` on a disk that does `speed` lines a second; the longest that a piece took,
    /// and how many there were.
    fn zero(pace: &mut ZeroPace, lines: u64, speed: u64) -> (Duration, u32) {
        let (mut left, mut longest, mut pieces) = (lines, Duration(0), 0);
        while left > 0 {
            let piece = pace.lines_now().min(left);
            let took = Duration(piece * 1_000_000_000 / speed);
            pace.took(piece, took, limits(TARGET));
            (left, longest, pieces) = (left - piece, longest.max(took), pieces + 1);
        }
        (longest, pieces)
    }

    #[test]
    fn pieces_grow_and_shrink_with_the_speed_of_the_disk() {
        let tebibyte = (1 << 40) / LINE_SIZE;
        // It frees space.
        let mut pace = ZeroPace::new();
        let (_, pieces) = zero(&mut pace, tebibyte, 1 << 40);
        assert!(pieces < 2000, "{pieces}");
        // From here on it must write, 150 MB/s: once too long, then as it should be.
        let slow = (150 << 20) / LINE_SIZE;
        zero(&mut pace, 2 * MOST, slow);
        let (longest, pieces) = zero(&mut pace, 1 << 20, slow);
        assert!(longest <= TARGET, "{longest:?}");
        assert!(pieces < 120, "{pieces}");
    }

    #[test]
    fn however_slow_the_disk_a_piece_is_one_line_at_least() {
        let mut pace = ZeroPace::new();
        let (_, pieces) = zero(&mut pace, 100, 1);
        assert!(pieces > 20, "{pieces}");
        for _ in 0..20 {
            pace.gave_up();
        }
        assert_eq!(pace.lines, 1);
        // A piece that was smaller than it could have been says nothing about larger ones.
        pace.lines = 64;
        pace.took(32, Duration(1), limits(TARGET));
        assert_eq!(pace.lines, 64);
    }
}
