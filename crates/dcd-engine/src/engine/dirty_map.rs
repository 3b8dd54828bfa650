//! Where the data-disk is dirty, for people: lines of the log, counted in cells of a range.
//!
//! It is taken while the engine serves, so in parts: each looks at some lines of the table and goes
//! on where the one before has stopped. A cell at least as large as a region of the table
//! ([`crate::log::regions`]) is known without a look at lines, so a whole disk is one part.

use std::ops::Range;

use super::Engine;
use crate::units::{FRAGMENTS_PER_LINE, Line};

/// Cells of a map, at most.
pub const DIRTY_CELLS_MAX: usize = 4096;
/// Lines that one part looks at, and the rest of the last one's bucket: well below 2 ms.
const PART_LINES: usize = 8192;

/// A map that is being made, or is whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirtyMap {
    start: Line,
    cell_lines: u64,
    cells: Vec<u32>,
    next_bucket: usize,
}

impl DirtyMap {
    /// Its first line.
    pub fn start(&self) -> Line {
        self.start
    }

    /// Lines in each cell.
    pub fn cell_lines(&self) -> u64 {
        self.cell_lines
    }

    /// How many lines of each cell are dirty, as far as it was made.
    pub fn cells(&self) -> &[u32] {
        &self.cells
    }

    fn count(&mut self, line: Line, lines: u32) {
        let cell = line.0.checked_sub(self.start.0).map(|behind| behind / self.cell_lines);
        let cell = cell.and_then(|cell| self.cells.get_mut(usize::try_from(cell).ok()?));
        if let Some(cell) = cell {
            *cell = cell.saturating_add(lines);
        }
    }
}

impl Engine {
    /// A map of `lines`, nothing of which is counted yet. It begins where a cell does, a cell has a
    /// power of two of lines, and there are at most `cells_max` and [`DIRTY_CELLS_MAX`]. With a
    /// budget of the index cells are not smaller than what is known without the cache-disk.
    pub fn begin_dirty_map(&self, lines: Range<Line>, cells_max: usize) -> DirtyMap {
        let cells_max = cells_max.clamp(1, DIRTY_CELLS_MAX) as u64;
        let disk_lines = self.data_disk.blocks.div_ceil(FRAGMENTS_PER_LINE);
        let end = lines.end.0.min(disk_lines);
        let start = lines.start.0.min(end);
        let mut cell_lines = if self.table.has_budget() { self.table.regions().0 } else { 1 };
        let cells = |cell_lines: u64| end.div_ceil(cell_lines) - start / cell_lines;
        while cells(cell_lines) > cells_max {
            cell_lines *= 2;
        }
        DirtyMap {
            start: Line(start / cell_lines * cell_lines),
            cell_lines,
            cells: vec![0; cells(cell_lines) as usize],
            next_bucket: 0,
        }
    }

    /// Counts on. Whether there is more to count; what changes meanwhile is counted or not.
    pub fn continue_dirty_map(&self, map: &mut DirtyMap) -> bool {
        let (region_lines, counts) = self.table.regions();
        if map.cell_lines >= region_lines {
            let first = map.start.0 / region_lines;
            let regions = map.cells.len() as u64 * (map.cell_lines / region_lines);
            for region in first..(first + regions).min(counts.len() as u64) {
                map.count(Line(region * region_lines), counts[region as usize]);
            }
            return false;
        }
        let bucket = map.next_bucket;
        match self.table.look_from(bucket, PART_LINES, |line| map.count(line, 1)) {
            Some(next) => map.next_bucket = next,
            None => return false,
        }
        true
    }
}
