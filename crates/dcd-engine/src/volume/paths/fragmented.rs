//! Fragmented writes of a RAID 5 stripe: many short runs of new lines, as small random writes leave
//! them in the log.
//!
//! ```text
//! column     0 1 2 3 4 5 6 7                 n  new
//! unit 0     . n o n . . . .                 o  old, written along
//! unit 1     . . . n o o n .                 .  old, read for the parity in columns 1 to 6, not written
//! parity     . p p p p p p .
//! ```
//! A seek takes longer than a whole stripe unit takes to pass, and the new lines are on all members
//! anyway: each is read and written once, and what lies between the new lines of a row is written
//! along.
//!
//! 1. All old lines of the columns from the first to the last new one of a row are read, with one
//!    I/O for each member.
//! 2. Those between the new lines of a row count as new from here on: the journal has all that is
//!    written to a member. A crash while it is written leaves nothing torn that is not written
//!    again.
//!
//! A column of which a line can be had from no disk is left to plan.rs, as are all of them as soon
//! as a member is missing. Lost lines stay lost.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::Volume;
use super::super::checksums::LineSum;
use super::job::{Job, Kind};
use super::plan::Old;
use crate::units::LINE_SIZE;

impl Volume {
    /// Whether each member has more than one run of new lines, about. While members are missing,
    /// columns are done one by one.
    pub(super) fn is_fragmented(&self, job: &Job) -> bool {
        let layout = self.layout(job.key.set);
        let is_current = |place| self.is_current(job.key.set, place, job.key.stripe);
        matches!(job.kind, Kind::Write(_))
            && layout.parity_row().is_some()
            && job.is_fragmented
            && (0..layout.places()).all(is_current)
    }

    /// Each row's columns from its first to its last new one.
    pub(super) fn spans(&self, job: &Job) -> Vec<(u32, Range<u32>)> {
        let mut spans: Vec<(u32, Range<u32>)> = Vec::new();
        for (row, first, count) in job.new_runs() {
            match spans.last_mut() {
                Some((last, span)) if *last == row => span.end = first + count,
                _ => spans.push((row, first..first + count)),
            }
        }
        spans
    }

    /// Step 1: what is still to be read for a column; `None`: it is to be done as others are.
    pub(super) fn plan_fragmented(
        &self,
        job: &Job,
        spans: &[(u32, Range<u32>)],
        column: u32,
    ) -> Option<Vec<(usize, u32)>> {
        let mut cells = Vec::new();
        for row in 0..self.layout(job.key.set).data_units() {
            if job.is_new(row, column) {
                continue;
            }
            match self.old_in_parity(job, row, column) {
                Old::Known => {}
                Old::At(place) => cells.push((place, column)),
                Old::Nowhere => return None,
            }
        }
        let is_spanned = spans.iter().any(|(_, span)| span.contains(&column));
        Some(if is_spanned { cells } else { Vec::new() })
    }

    /// One I/O for each member: what lies between cells that are wanted is read with them, and
    /// ignored. Where that has failed once, each is read alone.
    pub(super) fn bridge_gaps(&self, job: &mut Job, cells: Vec<(usize, u32)>) -> Vec<(usize, u32)> {
        let mut by_place: BTreeMap<usize, Range<u32>> = BTreeMap::new();
        for (place, column) in &cells {
            let columns = by_place.entry(*place).or_insert(*column..*column);
            columns.end = column + 1;
        }
        let mut bridged = Vec::new();
        for (place, columns) in by_place {
            let may_bridge = !job.alone.iter().any(|(alone, _)| *alone == place);
            for cell in columns.map(|column| (place, column)) {
                if cells.binary_search(&cell).is_ok() {
                    bridged.push(cell);
                } else if may_bridge {
                    job.gaps.insert(cell);
                    bridged.push(cell);
                }
            }
        }
        bridged
    }

    /// Step 2.
    pub(super) fn keep_between(&self, job: &mut Job) {
        let rows = self.layout(job.key.set).data_units();
        let spans = self.spans(job);
        // Before anything is added: a column of which a line is missing needs its old lines as they
        // are.
        let is_whole = |column: u32| {
            let is_had =
                |row| job.is_new(row, column) || self.old_in_parity(job, row, column) == Old::Known;
            (0..rows).all(is_had)
        };
        let whole: Vec<u32> = job.columns.clone().filter(|column| is_whole(*column)).collect();
        for (row, span) in spans {
            for column in whole.iter().copied().filter(|column| span.contains(column)) {
                let is_lost = self.sum(job, row, column) == LineSum::Lost;
                if !job.is_new(row, column) && !is_lost && !job.lost.contains(&(row, column)) {
                    let line = match job.is_known(row, column) {
                        true => job.old(row, column).to_vec(),
                        // Never written.
                        false => vec![0; LINE_SIZE as usize],
                    };
                    job.put_new(row, column, &line);
                }
            }
        }
    }
}
