//! How many requests of which size have come: what the bound of the paper's section 4.2.2 is
//! computed from (`dcd demo`), and its Figure 10 has on the x-axis.
//!
//! A class holds the sizes above the class before it, up to and including its own bound: 512,
//! 1 KiB, 2 KiB and so on; the last one holds all that is longer.

use dcd_engine::Operation;
use serde::{Deserialize, Serialize};

/// Bound of the first class.
const FIRST_CLASS_BYTES: u64 = 512;
/// Classes: 512 bytes to 1 MiB.
pub const CLASSES: usize = 12;

/// Requests so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// Writes by class of size.
    pub writes_by_size: [u64; CLASSES],
    /// Bytes of them, by class of size.
    pub write_bytes_by_size: [u64; CLASSES],
    /// Writes of zeroes and discards.
    pub zeroes: u64,
    /// Flushes.
    pub flushes: u64,
}

/// Largest size of a class.
pub fn class_bytes(class: usize) -> u64 {
    FIRST_CLASS_BYTES << class
}

/// Class of a size.
fn class_of(bytes: u64) -> usize {
    let units = bytes.div_ceil(FIRST_CLASS_BYTES).max(1);
    (units.next_power_of_two().trailing_zeros() as usize).min(CLASSES - 1)
}

impl RequestCounts {
    /// Counts one.
    pub fn count(&mut self, operation: &Operation) {
        match operation {
            Operation::Read { range, .. } => {
                self.reads += 1;
                self.read_bytes += range.bytes();
            }
            Operation::Write { data, .. } => {
                let bytes = data.len() as u64;
                let class = class_of(bytes);
                self.writes += 1;
                self.write_bytes += bytes;
                self.writes_by_size[class] += 1;
                self.write_bytes_by_size[class] += bytes;
            }
            Operation::WriteZeroes { .. } | Operation::Discard { .. } => self.zeroes += 1,
            Operation::Flush => self.flushes += 1,
            Operation::Drain
            | Operation::CancelDrain { .. }
            | Operation::Sequence(_)
            | Operation::Volume(_)
            | Operation::FillLeg { .. }
            | Operation::TakeOutLeg { .. }
            | Operation::Resize { .. }
            | Operation::ResizeReadArea { .. }
            | Operation::CancelResize { .. }
            | Operation::RemoveNvram
            | Operation::CancelNvramChange { .. }
            | Operation::Detach
            | Operation::DetachAccepting { .. }
            | Operation::CancelDetach
            | Operation::Shutdown => {}
        }
    }

    /// What has come since `earlier`, counted by the same daemon.
    pub fn since(&self, earlier: &RequestCounts) -> RequestCounts {
        let less = |now: &[u64; CLASSES], then: &[u64; CLASSES]| {
            std::array::from_fn(|class| now[class].saturating_sub(then[class]))
        };
        RequestCounts {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            writes_by_size: less(&self.writes_by_size, &earlier.writes_by_size),
            write_bytes_by_size: less(&self.write_bytes_by_size, &earlier.write_bytes_by_size),
            zeroes: self.zeroes.saturating_sub(earlier.zeroes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_engine::{Buffer, Lba};

    #[test]
    fn classes_end_at_powers_of_two() {
        //       512  1K  1K+   2K  4K  8K  1M        4M
        let sizes = [512, 1024, 1536, 2048, 4096, 8192, 1 << 20, 4 << 20];
        assert_eq!(sizes.map(class_of), [0, 1, 2, 2, 3, 4, 11, 11]);
        assert_eq!(class_bytes(CLASSES - 1), 1 << 20);
    }

    #[test]
    fn writes_are_counted_by_size() {
        let write = |bytes| Operation::Write { start: Lba(0), data: Buffer::zeroed(bytes) };
        let mut counts = RequestCounts::default();
        counts.count(&write(4096));
        let earlier = counts;
        counts.count(&write(4096));
        counts.count(&write(8192));
        counts.count(&Operation::Flush);
        let counts = counts.since(&earlier);
        assert_eq!((counts.writes, counts.write_bytes, counts.flushes), (2, 12288, 1));
        assert_eq!((counts.writes_by_size[3], counts.write_bytes_by_size[4]), (1, 8192));
    }
}
