//! What was done: counts, and where the time of a round went.

use std::collections::BTreeMap;
use std::time::Duration;

use dcd_engine::Engine;
use dcd_engine::volume::status::VolumeCounters;

use crate::faults::FaultKind;
use crate::legs::LegCounts;
use crate::model::Notes;

/// Where time went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Running the load.
    pub run: Duration,
    /// Copying disks and deciding what survives.
    pub crash: Duration,
    /// From open to running, crashes in between included.
    pub recover: Duration,
    /// Reading back, and comparing with the model.
    pub check: Duration,
}

/// What the read area did: whether it was tried at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyUse {
    /// Runs with a read area.
    pub runs: u64,
    /// Crash points of those runs.
    pub crash_points: u64,
    /// Lines that reads took from copies.
    pub lines_read: u64,
    /// Of them, those that had been read ahead.
    pub lines_read_ahead: u64,
    /// Copies that were damaged, and noticed.
    pub damaged: u64,
    /// True copies found after a crash.
    pub survived: u64,
    /// Copies that a start found changed in the log.
    pub changed: u64,
    /// Copies that a start did not believe.
    pub doubted: u64,
    /// Copy pages that a start could not read.
    pub pages_lost: u64,
}

impl CopyUse {
    /// Adds another.
    pub fn add(&mut self, other: &CopyUse) {
        self.runs += other.runs;
        self.crash_points += other.crash_points;
        self.lines_read += other.lines_read;
        self.lines_read_ahead += other.lines_read_ahead;
        self.damaged += other.damaged;
        self.survived += other.survived;
        self.changed += other.changed;
        self.doubted += other.doubted;
        self.pages_lost += other.pages_lost;
    }

    /// An engine has started.
    pub fn started(&mut self, engine: &Engine) {
        let start = engine.recovery_report();
        self.survived += engine.copy_counts().valid;
        self.changed += start.copies_changed;
        self.doubted += start.copies_doubted;
        self.pages_lost += start.copy_pages_lost;
    }

    /// An engine has come to its end.
    pub fn ended(&mut self, engine: &Engine) {
        let counters = engine.counters();
        self.lines_read += counters.read_copy_lines;
        self.lines_read_ahead += counters.read_ahead_used_lines;
        self.damaged += counters.copies_damaged;
    }
}

/// What happened to the members of volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeUse {
    /// Members that failed while the volume was used, or that somebody called failed.
    pub members_failed: u64,
    /// Members that a blank disk took the place of.
    pub members_replaced: u64,
    /// Disks that were put in the place of a member while that was served ...
    pub replacements: u64,
    /// ... and have taken it.
    pub replacements_done: u64,
    /// Growths of the volume that were begun.
    pub growths: u64,
    /// Those that the load has seen the end of.
    pub growths_done: u64,
    /// Starts with the wrong one of two disks that have been a member: refused.
    pub others_refused: u64,
    /// Cache-disks that were destroyed, and volumes imported ...
    pub imports: u64,
    /// ... imports that a power cut ended ...
    pub imports_cut: u64,
    /// ... and regions whose checksums were not known.
    pub regions_believed: u64,
    /// I/Os of members that failed once, or were slow.
    pub io_faults: u64,
    /// Lines that rotted, or could not be read any more.
    pub lines_rotted: u64,
    /// Rebuilds that were begun.
    pub rebuilds: u64,
    /// Scrubs that were begun.
    pub scrubs: u64,
    /// Scrubs that have read everything, those by time included.
    pub scrubs_ended: u64,
    /// Disks that came as spares.
    pub spares: u64,
    /// Of them, those that have taken the place of a member.
    pub spares_used: u64,
    /// Crash points after which a member was missing or not up to date.
    pub crash_points_degraded: u64,
    /// Members that were again as they had been at an earlier start.
    pub members_older: u64,
    /// Rebuilds that had ended, and were compared at once.
    pub rebuilds_compared: u64,
    /// Members that left to come back ...
    pub members_left: u64,
    /// ... and those that were brought up to date by what they had missed.
    pub members_caught_up: u64,
    /// Writes of members that were reported as done and were not, or landed elsewhere.
    pub writes_lost: u64,
    /// Checkpoints of volumes.
    pub checkpoints: u64,
    /// Extents that were moved.
    pub extents_moved: u64,
    /// Copies of extents on faster devices that were made.
    pub replicas_made: u64,
    /// Pieces that were read there.
    pub replica_reads: u64,
    /// Reads of what was read ahead along pointers.
    pub ahead_reads: u64,
    /// Lines that a start has written again.
    pub lines_redone: u64,
    /// Lines that were repaired.
    pub lines_repaired: u64,
    /// Lines that were given up.
    pub lines_lost: u64,
    /// Cache-disks that failed while the volume was used.
    pub cache_disks_failed: u64,
    /// Single I/Os of cache-disks that were to fail, and cache-disks that were given up for it.
    pub cache_disks_stumbled: u64,
    /// See there.
    pub cache_disks_given_up: u64,
    /// Starts from copies of cache-disks that had rotted, and those of them that were refused.
    pub cache_disks_rotten: u64,
    /// See there.
    pub rot_refused: u64,
}

impl VolumeUse {
    /// A volume has come to its end.
    pub fn ended(&mut self, counters: &VolumeCounters) {
        self.checkpoints += counters.checkpoints;
        self.extents_moved += counters.extents_moved;
        self.replicas_made += counters.replicas_made;
        self.replica_reads += counters.replica_reads;
        self.ahead_reads += counters.ahead_reads;
        self.lines_redone += counters.lines_redone;
        self.lines_repaired += counters.lines_repaired;
        self.lines_lost += counters.lines_lost;
        self.members_caught_up += counters.members_caught_up;
        self.scrubs_ended += counters.scrubs_ended;
        self.spares_used += counters.spares_used;
    }

    /// Adds another.
    pub fn add(&mut self, other: &VolumeUse) {
        self.members_failed += other.members_failed;
        self.cache_disks_failed += other.cache_disks_failed;
        self.cache_disks_stumbled += other.cache_disks_stumbled;
        self.cache_disks_given_up += other.cache_disks_given_up;
        self.cache_disks_rotten += other.cache_disks_rotten;
        self.rot_refused += other.rot_refused;
        self.members_replaced += other.members_replaced;
        self.replacements += other.replacements;
        self.replacements_done += other.replacements_done;
        self.growths += other.growths;
        self.growths_done += other.growths_done;
        self.others_refused += other.others_refused;
        self.imports += other.imports;
        self.imports_cut += other.imports_cut;
        self.regions_believed += other.regions_believed;
        self.io_faults += other.io_faults;
        self.lines_rotted += other.lines_rotted;
        self.rebuilds += other.rebuilds;
        self.scrubs += other.scrubs;
        self.scrubs_ended += other.scrubs_ended;
        self.spares += other.spares;
        self.spares_used += other.spares_used;
        self.crash_points_degraded += other.crash_points_degraded;
        self.members_older += other.members_older;
        self.rebuilds_compared += other.rebuilds_compared;
        self.members_left += other.members_left;
        self.members_caught_up += other.members_caught_up;
        self.writes_lost += other.writes_lost;
        self.checkpoints += other.checkpoints;
        self.extents_moved += other.extents_moved;
        self.replicas_made += other.replicas_made;
        self.replica_reads += other.replica_reads;
        self.ahead_reads += other.ahead_reads;
        self.lines_redone += other.lines_redone;
        self.lines_repaired += other.lines_repaired;
        self.lines_lost += other.lines_lost;
    }
}

/// What one or several runs did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// Requests answered.
    pub requests: u64,
    /// Crashes, each recovered from and checked; those during recovery included.
    pub crash_points: u64,
    /// Of them, those during recovery.
    pub nested: u64,
    /// Faults that struck, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Times that the cache-disk went away while clean, and requests went on without it.
    pub times_uncached: u64,
    /// Runs or their parts in which changes went past the log.
    pub times_past_the_log: u64,
    /// Ends of windows of ordered shipping that were compared.
    pub windows: u64,
    /// Times the log has grown.
    pub times_grown: u64,
    /// How often the read area has got another size.
    pub times_read_area_resized: u64,
    /// Times it has shrunk.
    pub times_shrunk: u64,
    /// Starts that were refused, where that is allowed.
    pub refused: u64,
    /// Blocks that failed to read, where that is allowed.
    pub errors: u64,
    /// Blocks that showed what the contract openly does not cover.
    pub uncovered: u64,
    /// What the read area did.
    pub copies: CopyUse,
    /// What happened to the members of volumes.
    pub volume: VolumeUse,
    /// What was done to legs.
    pub legs: LegCounts,
    /// Where the time went.
    pub times: Times,
}

impl Report {
    /// Adds what a check noted.
    pub fn note(&mut self, notes: Notes) {
        self.errors += notes.errors;
        self.uncovered += notes.uncovered;
    }

    /// Counts a fault.
    pub fn fault(&mut self, kind: FaultKind) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// Adds another report.
    pub fn add(&mut self, other: &Report) {
        self.runs += other.runs;
        self.requests += other.requests;
        self.crash_points += other.crash_points;
        self.nested += other.nested;
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        self.times_uncached += other.times_uncached;
        self.times_past_the_log += other.times_past_the_log;
        self.windows += other.windows;
        self.times_grown += other.times_grown;
        self.times_read_area_resized += other.times_read_area_resized;
        self.times_shrunk += other.times_shrunk;
        self.refused += other.refused;
        self.errors += other.errors;
        self.uncovered += other.uncovered;
        self.copies.add(&other.copies);
        self.volume.add(&other.volume);
        self.legs.add(&other.legs);
        self.times.run += other.times.run;
        self.times.crash += other.times.crash;
        self.times.recover += other.times.recover;
        self.times.check += other.times.check;
    }

    /// The same without times: what two runs of one seed must have in common.
    pub fn without_times(&self) -> Report {
        Report { times: Times::default(), ..self.clone() }
    }
}
