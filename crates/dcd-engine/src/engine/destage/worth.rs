//! Whether *neighbours* of a victim's lines come along, by what the disk and the load have shown:
//! they save writes, since one long write costs less than several short ones; but those that would
//! have been overwritten before their own turn are written for nothing.

use crate::units::Duration;

/// Lines of a short write at most, and of a long one at least: between them a line cannot be drawn.
const SHORT_LINES_MAX: u64 = 2;
const LONG_LINES_MIN: u64 = 8;
/// Writes of each length until they are believed.
const WRITES_MIN: u32 = 16;
/// What a write weighs: one of so many.
const WRITES_WEIGHT: u64 = 16;
/// One of so many batches takes neighbours along all the same: without them no write is long.
const BATCHES_EACH: u32 = 64;

/// A mean in which what was long ago counts for little.
#[derive(Clone, Copy, Default)]
struct Mean {
    /// In 256ths.
    value: u64,
    count: u32,
}

impl Mean {
    fn note(&mut self, value: u64, weight: u64) {
        let value = value.saturating_mul(256);
        self.value = match self.count {
            0 => value,
            _ => self.value - self.value / weight + value / weight,
        };
        self.count = self.count.saturating_add(1);
    }
}

/// Writes of about one length.
#[derive(Clone, Copy, Default)]
struct Writes {
    lines: Mean,
    nanos: Mean,
}

/// Whether neighbours come along.
#[derive(Default)]
pub(super) struct Neighbours {
    short: Writes,
    long: Writes,
    /// Of late: lines that went to the data-disk, and that were overwritten in the log.
    destaged: u64,
    overwritten: u64,
    /// Of all, when the last batch began.
    destaged_before: u64,
    overwritten_before: u64,
    batches_without: u32,
}

impl Neighbours {
    /// A write of so many lines took so long.
    pub(super) fn write_ended(&mut self, lines: u64, took: Duration) {
        let writes = match lines {
            ..=SHORT_LINES_MAX => &mut self.short,
            LONG_LINES_MIN.. => &mut self.long,
            _ => return,
        };
        writes.lines.note(lines, WRITES_WEIGHT);
        writes.nanos.note(took.0, WRITES_WEIGHT);
    }

    /// Whether those of the batch that begins now should. `destaged`, `overwritten`: lines since
    /// the start, or longer.
    pub(super) fn come_along(&mut self, destaged: u64, overwritten: u64) -> bool {
        let recent = |sum: &mut u64, before: &mut u64, all: u64| {
            *sum = *sum - *sum / 8 + all.saturating_sub(*before);
            *before = all;
        };
        recent(&mut self.destaged, &mut self.destaged_before, destaged);
        recent(&mut self.overwritten, &mut self.overwritten_before, overwritten);
        if self.are_worth_it() || self.batches_without >= BATCHES_EACH {
            self.batches_without = 0;
            return true;
        }
        self.batches_without += 1;
        false
    }

    /// One that would have had its turn saves what a write costs whatever its length; one that
    /// would have been overwritten costs what its bytes take. That too many are destaged for that
    /// reason makes them look better than they are.
    fn are_worth_it(&self) -> bool {
        if self.short.nanos.count.min(self.long.nanos.count) < WRITES_MIN {
            return true;
        }
        let lines = self.long.lines.value - self.short.lines.value;
        let more = self.long.nanos.value.saturating_sub(self.short.nanos.value);
        let each_line = u128::from(more) * 256 / u128::from(lines);
        let for_its_lines = each_line * u128::from(self.short.lines.value) / 256;
        let each_write = u128::from(self.short.nanos.value).saturating_sub(for_its_lines);
        // Bytes are never free.
        u128::from(self.destaged) * each_write >= u128::from(self.overwritten) * each_line.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that needs this for each write, and for each line of it.
    fn disk(each_write_us: u64, each_line_us: u64) -> Neighbours {
        let mut neighbours = Neighbours::default();
        for _ in 0..40 {
            for lines in [1, 2, 16, 64] {
                let took = Duration::from_micros(each_write_us + lines * each_line_us);
                neighbours.write_ended(lines, took);
            }
        }
        neighbours
    }

    #[test]
    fn neighbours_come_along_where_they_save_more_than_they_cost() {
        // Each write, each line, of 100 lines destaged and overwritten.
        for (write, line, destaged, overwritten, come) in [
            (10_000, 40, 10, 90, true),
            (50, 50, 60, 40, true),
            (50, 50, 30, 70, false),
            (0, 50, 100, 0, true),
            (0, 50, 90, 10, false),
            (0, 0, 90, 10, false),
            (50, 0, 10, 90, true),
        ] {
            let mut neighbours = disk(write, line);
            let found = neighbours.come_along(destaged * 100, overwritten * 100);
            assert_eq!(found, come, "{write} {line} {destaged} {overwritten}");
        }
    }

    #[test]
    fn they_come_along_while_nothing_is_known_and_now_and_then() {
        assert!(Neighbours::default().come_along(10, 90));
        let mut neighbours = disk(0, 50);
        let with = (1..=3 * 65).filter(|i| neighbours.come_along(i * 10, i * 90)).count();
        assert_eq!(with, 3);
    }
}
