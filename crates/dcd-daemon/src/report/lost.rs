//! What is lost, as it is told to people and programs: byte ranges of the disk.

use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE, LbaRange};
use serde::{Deserialize, Serialize};

use crate::units_text::format_size;

/// What to do when a detach is refused.
pub const NOT_DETACHED_HINT: &str = "all else is on the data-disk, and the pair stays one. Write these blocks anew (restore \
    what is in them), or detach with --accept-damage, which writes them to --lost-list and leaves what the data-disk has there";
/// What to do when a drain was not complete.
pub(crate) const NOT_DRAINED_HINT: &str = "all else is on the data-disk. They fail until they are written anew: restore what \
    is in them; --lost-list FILE lists them";

/// Changes that were acknowledged, and whose newest copy is damaged.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LostReport {
    /// Lines of 4 KiB of which something is lost.
    pub lines: u64,
    /// First byte and number of bytes of each, ascending.
    pub ranges: Vec<(u64, u64)>,
}

impl LostReport {
    /// Of what the engine says.
    pub fn of(lines: u64, ranges: &[LbaRange]) -> LostReport {
        let ranges = ranges.iter().map(|range| (range.start.byte(), range.blocks * BLOCK_SIZE));
        LostReport { lines, ranges: ranges.collect() }
    }

    /// Bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(_, bytes)| bytes).sum()
    }

    /// `77 lines (304 KiB) that were acknowledged are lost: ...`.
    pub fn words(&self) -> String {
        let (lines, s) = (self.lines, if self.lines == 1 { "" } else { "s" });
        // Where they are may not be known any more.
        let bytes = if self.ranges.is_empty() { lines * LINE_SIZE } else { self.bytes() };
        format!(
            "{lines} line{s} ({}) of what was acknowledged {} lost: the newest copy is damaged",
            format_size(bytes),
            if lines == 1 { "is" } else { "are" }
        )
    }
}
