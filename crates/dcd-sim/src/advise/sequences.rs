//! What a sequence would bring if the load came again: for loads that mostly read, as a boot or the
//! start of a program.

use serde::Serialize;

use super::grid::Grid;
use super::load::LoadFacts;
use super::words::{duration, ms, percent, size};
use super::{Advice, PaceFacts};
use crate::replay::ReadAccess;
use crate::sequence_runs::{SequenceMode, setup_for};
use crate::sweep::{Outcome, Point};

/// A load with fewer reads is not one of reads.
const READS_PERCENT_MIN: u64 = 50;
/// More is not kept as one sequence.
const READ_BYTES_MAX: u64 = 1 << 30;
/// Less than this is not worth a read area.
const LESS_PERCENT_MIN: f64 = 10.0;

/// What a sequence would bring.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SequenceAdvice {
    /// Where the copies would be; none: on the first part of the disk itself.
    pub cache_device: Option<String>,
    /// What is read, in different places.
    pub read_bytes: u64,
    /// What the disks spend on reads without it.
    pub before: ReadAccess,
    /// The same when the load comes again and its sequence is there.
    pub after: ReadAccess,
    /// For people.
    pub sentence: String,
}

/// Simulations of it: on each device of the grid, and on the disk itself. None if the load is no
/// such one.
pub fn points(load: &LoadFacts, grid: &Grid, pace: &PaceFacts) -> Vec<Point> {
    let summary = &load.summary;
    let (reads, bytes) = (summary.reads.count, summary.working_set.read_bytes);
    let is_read = reads * 100 >= (reads + summary.writes.count) * READS_PERCENT_MIN;
    // In front of a bucket there is no such area to compare.
    if grid.disk.is_object_store() {
        return Vec::new();
    }
    if reads == 0 || !is_read || bytes > READ_BYTES_MAX || pace.is_absurd() {
        return Vec::new();
    }
    // A line more for each read that does not begin with one.
    let lines = bytes / 4096 + reads.min(bytes / 512) + 1;
    let devices = grid.devices.iter().map(|device| Some(&device.profile)).chain([None]);
    let point = |cache_disk| Point {
        labels: Vec::new(),
        setup: setup_for(&grid.disk, cache_disk, lines, grid.seed),
        pace: pace.pace(),
        sequences: Some(SequenceMode::RecordThenReplay),
        memory_max: None,
    };
    devices.map(point).collect()
}

/// The best of their outcomes, in one sentence. The first of equals counts.
pub fn advice(advice: &Advice, grid: &Grid, outcomes: &[Outcome]) -> Option<SequenceAdvice> {
    let names = grid.devices.iter().map(|device| Some(device.name.clone())).chain([None]);
    let runs = names.zip(outcomes).filter_map(|(name, outcome)| {
        let facts = outcome.as_ref().ok()?;
        Some((name, facts.sequences.as_ref()?.before.access, facts.access))
    });
    let better = |best: (Option<String>, ReadAccess, ReadAccess), next| {
        let (_, _, access): &(Option<String>, ReadAccess, ReadAccess) = &next;
        if access.read_disk_time_ms < best.2.read_disk_time_ms { next } else { best }
    };
    let (cache_device, before, after) = runs.reduce(better)?;
    let read_bytes = advice.load.summary.working_set.read_bytes;
    let time = |access: &ReadAccess| match access.read_disk_time_ms {
        short if short < 1e3 => ms(short),
        long => duration(long / 1e3),
    };
    let less = match before.read_disk_time_ms {
        all if all > 0.0 => 100.0 - 100.0 * after.read_disk_time_ms / all,
        _ => 0.0,
    };
    let place = match &cache_device {
        Some(name) => format!("on {name}"),
        None => format!("on the first part of {} itself", advice.disk),
    };
    let sentence = match less >= LESS_PERCENT_MIN {
        true => format!(
            "Should it come again in this order, as a boot or the start of a program does, a sequence of {} in a read area \
             {place} would cut the disk time of its reads from {} to {} ({} less).",
            size(read_bytes),
            time(&before),
            time(&after),
            percent(less)
        ),
        false => format!(
            "Nor would a sequence help, should it come again in this order: the disk time of its reads would be {} instead \
             of {}.",
            time(&after),
            time(&before)
        ),
    };
    Some(SequenceAdvice { cache_device, read_bytes, before, after, sentence })
}
