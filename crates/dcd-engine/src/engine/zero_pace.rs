//! How much is zeroed on the data-disk at a time: what the disk does in a moment, measured while it
//! runs.
//!
//! A disk that frees space does it in no time, however long the range; one that must write the
//! zeroes takes as long as its speed says. Nobody knows before which it is, and both may change
//! from one place to the next. So little is asked for first, and more as long as it takes no time.
//! What is behind a piece (a read, a flush) waits for it, and nothing may come near `io_timeout`.

use super::Engine;
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

/// The length of pieces.
pub(super) struct ZeroPace {
    /// Lines that may be on their way at once.
    lines: u64,
}

impl ZeroPace {
    pub(super) fn new() -> ZeroPace {
        ZeroPace { lines: START_LINES }
    }

    /// So many lines, all that were on their way together, took so long.
    fn took(&mut self, lines: u64, took: Duration, target: Duration, lines_max: u64) {
        if took > target {
            let by_speed = u128::from(lines) * u128::from(target.0) / u128::from(took.0);
            self.lines = (by_speed as u64).min(self.lines / 2);
        } else if took.0 <= target.0 / 4 && lines > self.lines / 2 {
            self.lines *= 2;
        }
        self.lines = self.lines.clamp(1, lines_max);
    }

    /// One has been given up.
    fn gave_up(&mut self) {
        self.lines = (self.lines / 8).max(1);
    }
}

impl Engine {
    /// Lines that may be asked for now, all in all.
    pub(super) fn zero_lines_max(&self) -> u64 {
        self.zero_pace.lines.min(self.zero_lines_sudden())
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
        let (target, most) = (self.zero_target(), self.zero_lines_sudden());
        self.zero_pace.took(lines, took, target, most);
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

    /// Zeroes `lines` on a disk that does `speed` lines a second; the longest that a piece took,
    /// and how many there were.
    fn zero(pace: &mut ZeroPace, lines: u64, speed: u64) -> (Duration, u32) {
        let (mut left, mut longest, mut pieces) = (lines, Duration(0), 0);
        while left > 0 {
            let piece = pace.lines.min(left);
            let took = Duration(piece * 1_000_000_000 / speed);
            pace.took(piece, took, TARGET, MOST);
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
        pace.took(32, Duration(1), TARGET, MOST);
        assert_eq!(pace.lines, 64);
    }
}
