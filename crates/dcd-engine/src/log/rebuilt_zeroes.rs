//! Which zero ranges a start would find, if the machine crashed now.
//!
//! That is not what is zero in the log now: what was brought to the data-disk since the last
//! checkpoint is replayed all the same, and a write past the log cuts it in two. A checkpoint has
//! room for so many ranges and no more, and the first thing that a start writes is a checkpoint: so
//! this, too, must never be more than it may list.
//!
//! Which checkpoint a start begins with is not always known: one that is being written, or whose
//! flush has failed, may be found or not. So there is one set for each that may be.

use crate::units::Line;
use crate::zero_ranges::{ZeroRange, ZeroRanges};

/// Checkpoints of which any may be found: the durable one, and those after it. Each failure of the
/// cache-disk adds one, and after a few of them it is given up.
const BASES_MAX: usize = 8;

/// Zero ranges as the next checkpoint would list them, and as a start would rebuild them.
#[derive(Clone, Debug)]
pub struct RebuiltZeroes {
    /// All that is not known to be on the data-disk.
    listed: ZeroRanges,
    /// What a replay makes of each checkpoint that may be found; the durable one first.
    rebuilt: Vec<ZeroRanges>,
}

impl Default for RebuiltZeroes {
    fn default() -> RebuiltZeroes {
        RebuiltZeroes::found(&ZeroRanges::default())
    }
}

impl RebuiltZeroes {
    /// After a start: as it was found, so it would be found again.
    pub fn found(zeroes: &ZeroRanges) -> RebuiltZeroes {
        RebuiltZeroes { listed: zeroes.clone(), rebuilt: vec![zeroes.clone()] }
    }

    /// What a checkpoint lists that is made now.
    pub fn listed(&self) -> &ZeroRanges {
        &self.listed
    }

    /// Most ranges that a start could find.
    pub fn rebuilt_max(&self) -> usize {
        self.rebuilt.iter().map(ZeroRanges::len).max().unwrap_or(0)
    }

    /// Ranges that a start finds with the durable checkpoint.
    pub fn rebuilt_from_durable(&self) -> usize {
        self.rebuilt[0].len()
    }

    /// Whether a start could find the line to be zero, below what else it finds of it.
    pub fn may_be_found(&self, line: Line) -> bool {
        self.rebuilt.iter().any(|zeroes| zeroes.contains(line))
    }

    /// A zero range has been logged.
    pub fn zeroed(&mut self, range: ZeroRange) {
        self.listed.insert(range);
        self.rebuilt.iter_mut().for_each(|zeroes| zeroes.insert(range));
    }

    /// A write past the log has been logged.
    pub fn overwritten(&mut self, line: Line, lines: u64) {
        self.listed.remove(line, lines);
        self.rebuilt.iter_mut().for_each(|zeroes| zeroes.remove(line, lines));
    }

    /// Nothing else than this is not on the data-disk. A replay does not know.
    pub fn destaged(&mut self, left: &ZeroRanges) {
        self.listed = left.clone();
    }

    /// A checkpoint is made: it may be found from now on.
    pub fn picture_taken(&mut self) {
        if self.rebuilt.len() == BASES_MAX {
            self.rebuilt.remove(1);
        }
        self.rebuilt.push(self.listed.clone());
    }

    /// The last one was never written.
    pub fn picture_dropped(&mut self) {
        assert!(self.rebuilt.len() > 1, "it was taken");
        self.rebuilt.pop();
    }

    /// The last one is durable: no other is found.
    pub fn picture_durable(&mut self) {
        self.rebuilt.drain(..self.rebuilt.len() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(line: u64, lines: u64) -> ZeroRange {
        ZeroRange { line: Line(line), lines, may_unmap: true }
    }

    /// Noticed: what is on the data-disk is taken for gone, although it is replayed.
    #[test]
    fn what_was_destaged_is_found_again_until_a_checkpoint_is_durable() {
        let mut zeroes = RebuiltZeroes::default();
        zeroes.zeroed(range(0, 100));
        zeroes.destaged(&ZeroRanges::default());
        assert_eq!((zeroes.listed().len(), zeroes.rebuilt_max()), (0, 1));
        zeroes.overwritten(Line(50), 1);
        assert_eq!((zeroes.listed().len(), zeroes.rebuilt_max()), (0, 2));
        zeroes.picture_taken();
        zeroes.zeroed(range(200, 1));
        assert_eq!((zeroes.rebuilt_max(), zeroes.rebuilt_from_durable()), (3, 3));
        zeroes.picture_durable();
        assert_eq!((zeroes.rebuilt_max(), zeroes.rebuilt_from_durable()), (1, 1));
    }

    /// Noticed: a checkpoint whose flush has failed is not thought of, although it may be found.
    #[test]
    fn a_checkpoint_that_failed_may_be_found() {
        let mut zeroes = RebuiltZeroes::default();
        zeroes.zeroed(range(0, 100));
        zeroes.picture_taken();
        zeroes.overwritten(Line(0), 100);
        zeroes.picture_taken();
        zeroes.zeroed(range(1000, 1));
        zeroes.picture_dropped();
        zeroes.zeroed(range(2000, 1));
        assert_eq!(zeroes.rebuilt_from_durable(), 2);
        for _ in 0..20 {
            zeroes.picture_taken();
        }
        assert_eq!(zeroes.rebuilt.len(), BASES_MAX);
        zeroes.picture_durable();
        assert_eq!(zeroes.rebuilt.len(), 1);
    }
}
