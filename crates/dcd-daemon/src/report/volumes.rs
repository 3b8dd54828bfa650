//! How a volume is, for people and programs.

use dcd_engine::volume::format::root::MemberState;
use dcd_engine::volume::spares::SpareState;
use dcd_engine::volume::status::{
    MemberStatus, ScrubsStatus, SpareStatus, TwinStatus, VolumeCounters,
};
use dcd_engine::volume::{
    CutShort, GrowthCutShort, GrowthEnd, GrowthStage, GrowthStatus, Volume, WorkKind, WorkStatus,
};
use serde::{Deserialize, Serialize};

use crate::pair::new_member::MemberNames;
use crate::report::status_report::report_of;

/// A volume, for people and programs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Size that users see.
    pub volume_bytes: u64,
    /// What is placed at once.
    pub extent_bytes: u64,
    /// Extents with a place.
    pub extents_mapped: u64,
    /// Extents that are to be moved to another set.
    pub migrations_waiting: u64,
    /// Copies of extents on faster devices.
    #[serde(default)]
    pub replicas: u64,
    /// Lines of 4 KiB that were on RAID 0 and on a disk that was replaced: reads of them fail until
    /// they are written.
    pub raid0_lines_lost: u64,
    /// Lines of 4 KiB on RAID 1 and 5 that nothing tells any more: the same.
    #[serde(default)]
    pub redundant_lines_lost: u64,
    /// Bytes of the log that are held by what cannot be written to members that are away.
    #[serde(default)]
    pub log_held_bytes: u64,
    /// They may be so many; then changes of such lines fail.
    #[serde(default)]
    pub log_held_max_bytes: u64,
    /// Changes that have failed for that, since the start.
    #[serde(default)]
    pub changes_refused: u64,
    /// Pointers between blocks.
    pub pointers: u64,
    /// So many there can be.
    pub pointers_max: u64,
    /// Memory of all that.
    pub memory_bytes: u64,
    /// The data-disks, in order.
    pub members: Vec<MemberReport>,
    /// The RAID sets, in order.
    pub sets: Vec<SetReport>,
    /// The rebuild or scrub under way.
    pub work: Option<WorkReport>,
    /// The last one that has ended since the start.
    pub last_work: Option<WorkReport>,
    /// Disks that wait for a member to fail.
    #[serde(default)]
    pub spares: Vec<SpareReport>,
    /// One takes the place of a member that has failed for so long; 0: never by itself.
    #[serde(default)]
    pub spare_after_seconds: u64,
    /// Scrubs by time.
    #[serde(default)]
    pub scrub: ScrubsReport,
    /// The tables once more, on members: with them the volume outlives its cache-disk.
    #[serde(default)]
    pub twin: Option<TwinReport>,
    /// The growth under way, or the last one since the start.
    #[serde(default)]
    pub growth: Option<GrowthReport>,
    /// Redundant sets take no changes any more: their journal cannot be written.
    pub has_failed: bool,
    /// What has happened since the start.
    pub counters: VolumeCountersReport,
}

/// The word for a state of a member.
pub fn member_state_name(state: MemberState) -> &'static str {
    match state {
        MemberState::UpToDate => "up-to-date",
        MemberState::Stale => "stale",
        MemberState::Rebuilding { .. } => "rebuilding",
    }
}

/// The word for how a member is.
pub fn member_word(member: &MemberStatus) -> &'static str {
    match member.state {
        _ if !member.is_present => "missing",
        MemberState::UpToDate if member.is_late => "late",
        state => member_state_name(state),
    }
}

/// `members 1, 3`.
pub(crate) fn members_in_words(mask: u32) -> String {
    let numbers: Vec<String> =
        (0..u32::BITS).filter(|bit| mask & 1 << bit != 0).map(|bit| bit.to_string()).collect();
    let s = if numbers.len() == 1 { "" } else { "s" };
    format!("member{s} {}", numbers.join(", "))
}

impl VolumeReport {
    /// The report of this moment; `names` are the disks of its members.
    pub fn of(volume: &Volume, names: &MemberNames) -> VolumeReport {
        let (status, config) = (volume.status(), volume.config());
        let members = status.members.iter().enumerate().map(|(index, member)| MemberReport {
            member: index as u8,
            disk: names.get(member.disk),
            state: member_word(member).into(),
            bytes_to_rebuild: member.bytes_to_rebuild,
            is_missed_known: member.is_missed_known,
            errors: member.errors,
            read_errors: member.read_errors,
            lines_rotten: member.lines_rotten,
            lines_mended: member.lines_mended,
            suspect: member.is_suspect,
            times_late: member.times_late,
        });
        let sets = status.sets.iter().zip(&config.sets).enumerate();
        let sets = sets.map(|(index, (set, config))| SetReport {
            set: index as u8,
            level: set.tier.level.number(),
            class: set.tier.class.name().into(),
            members: config.members.iter().map(|member| member.0).collect(),
            stripe_unit_bytes: config.stripe_unit_bytes,
            extents: set.room.extents - set.room.temporary,
            extents_used: set.room.used.saturating_sub(set.room.temporary_used),
            temporary_extents: set.room.temporary,
            temporary_used: set.room.temporary_used,
        });
        let share = status.log_share;
        VolumeReport {
            volume_bytes: config.logical_bytes,
            extent_bytes: config.extent_bytes,
            extents_mapped: status.extents_mapped,
            migrations_waiting: status.moves_waiting,
            replicas: status.replicas,
            raid0_lines_lost: status.raid0_lines_lost,
            redundant_lines_lost: status.redundant_lines_lost,
            log_held_bytes: u64::from(share.segments) * share.segment_bytes,
            log_held_max_bytes: u64::from(share.segments_max) * share.segment_bytes,
            changes_refused: share.changes_refused,
            pointers: status.pointers,
            pointers_max: status.pointers_max,
            memory_bytes: status.memory_bytes,
            members: members.collect(),
            sets: sets.collect(),
            work: status.work.as_ref().map(WorkReport::of),
            last_work: status.last_work.as_ref().map(WorkReport::of),
            spares: status.spares.iter().map(|spare| SpareReport::of(spare, names)).collect(),
            spare_after_seconds: status
                .spare_after
                .0
                .div_ceil(dcd_engine::Duration::from_secs(1).0),
            scrub: ScrubsReport::of(&status.scrubs),
            twin: status.twin.as_ref().map(TwinReport::of),
            growth: status.growth.as_ref().map(GrowthReport::of),
            has_failed: status.has_failed,
            counters: VolumeCountersReport::from(&status.counters),
        }
    }

    /// Spares that can be used.
    pub fn spares_ready(&self) -> u64 {
        self.spares.iter().filter(|spare| spare.state == "ready").count() as u64
    }

    /// Members that have the twin whole.
    pub fn twin_holders(&self) -> u64 {
        self.twin.as_ref().map_or(0, |twin| twin.holders.len() as u64)
    }

    /// Regions whose checksums it does not have.
    pub fn twin_regions_marked(&self) -> u64 {
        self.twin.as_ref().map_or(0, |twin| twin.regions_marked)
    }

    /// Whether it is growing.
    pub fn is_growing(&self) -> bool {
        self.growth.as_ref().is_some_and(|growth| !growth.is_over())
    }

    /// Lines of 4 KiB whose reads fail until they are written.
    pub fn lines_lost(&self) -> u64 {
        self.raid0_lines_lost.saturating_add(self.redundant_lines_lost)
    }
}

/// A growth of the volume.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GrowthReport {
    /// Counts them since the start, from 1 on.
    pub number: u64,
    /// Size that users see before ...
    pub bytes_before: u64,
    /// ... and behind it.
    pub bytes_wanted: u64,
    /// What is done: `emptying`, `tables`, `superblock` or `twin`; or `grown`, or `cut-short`.
    pub state: String,
    /// Of one that was cut short, why.
    pub because: Option<String>,
}

impl GrowthReport {
    fn of(status: &GrowthStatus) -> GrowthReport {
        let (state, because) = match status.state {
            Ok(GrowthStage::Emptying) => ("emptying", None),
            Ok(GrowthStage::Tables) => ("tables", None),
            Ok(GrowthStage::Superblock) => ("superblock", None),
            Ok(GrowthStage::Twin) => ("twin", None),
            Err(GrowthEnd::Grown) => ("grown", None),
            Err(GrowthEnd::CutShort(why)) => ("cut-short", Some(growth_cut_short_name(why))),
        };
        GrowthReport {
            number: status.number,
            bytes_before: status.bytes_before,
            bytes_wanted: status.bytes_wanted,
            state: state.into(),
            because: because.map(Into::into),
        }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "grown" | "cut-short")
    }
}

fn growth_cut_short_name(why: GrowthCutShort) -> &'static str {
    match why {
        GrowthCutShort::CacheDisk => "the cache-disk has failed",
        GrowthCutShort::Member => "a member has failed",
        GrowthCutShort::Cancelled => "it was cancelled",
        GrowthCutShort::End => "dcd was ended",
    }
}

report_of! {
    /// [`VolumeCounters`] for programs.
    VolumeCountersReport of VolumeCounters {
        member_reads, member_writes, member_write_bytes, stripe_jobs, journal_records, journal_bytes, checkpoints,
        records_replayed, lines_redone, lines_bad, lines_repaired, lines_lost, extents_mapped, extents_unmapped,
        extents_moved, moves_failed, moves_without_room, replicas_made, replicas_given_up, replicas_bad, replica_reads, extents_read_ahead, ahead_reads, members_failed, members_rebuilt, members_caught_up, members_replaced, spares_used, scrubs_ended, scrubs_found, scrubs_not_compared,
        blocks_allocated, blocks_freed, pages_unreadable, twin_checkpoints,
    }
}

/// Scrubs of a volume. Times are seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubsReport {
    /// The time from one to the next; 0: never by itself.
    pub every_seconds: u64,
    /// When the last one ended that has read everything.
    pub ended: Option<u64>,
    /// Lines of 4 KiB that it found not as they should have been.
    pub found: u64,
    /// When the next is due; none: never, or before dcd has looked at the clock.
    pub due: Option<u64>,
    /// It is due, and waits for members that are away or not up to date.
    pub waits_for_members: bool,
    /// One that has not come to its end.
    pub unfinished: Option<UnfinishedReport>,
}

/// A scrub that has not come to its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnfinishedReport {
    /// When it began.
    pub began: u64,
    /// What it has read, in bytes of the members ...
    pub bytes_done: u64,
    /// ... of these.
    pub bytes_total: u64,
    /// Lines of 4 KiB that it found not as they should have been.
    pub found: u64,
    /// Somebody has stopped it: it goes on when the next is due.
    pub is_put_off: bool,
}

impl ScrubsReport {
    fn of(status: &ScrubsStatus) -> ScrubsReport {
        let record = &status.record;
        ScrubsReport {
            every_seconds: status.every.0.div_ceil(dcd_engine::Duration::from_secs(1).0),
            ended: (record.ended > 0).then_some(record.ended),
            found: record.found,
            due: status.due,
            waits_for_members: status.waits_for_members,
            unfinished: record.unfinished.map(|it| UnfinishedReport {
                began: it.began,
                bytes_done: status.bytes_done,
                bytes_total: status.bytes_total,
                found: it.found,
                is_put_off: it.is_put_off,
            }),
        }
    }
}

/// A disk that waits for a member to fail.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpareReport {
    /// As it was named.
    pub disk: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// `ready`, `labelling`, `in-use`, `leaving`, `failed`.
    pub state: String,
    /// Whose place it is taking.
    pub member: Option<u8>,
}

impl SpareReport {
    fn of(status: &SpareStatus, names: &MemberNames) -> SpareReport {
        let (state, member) = match status.state {
            SpareState::Labelling => ("labelling", None),
            SpareState::Ready => ("ready", None),
            SpareState::InUse(member) => ("in-use", Some(member.0)),
            SpareState::Leaving => ("leaving", None),
            SpareState::Failed => ("failed", None),
        };
        let (disk, state) = (names.get(status.disk), state.into());
        SpareReport { disk, size_bytes: status.bytes, state, member }
    }
}

/// Why another disk has not taken the place of a member.
pub(crate) fn cut_short_words(why: CutShort) -> &'static str {
    match why {
        CutShort::NewDisk => "the new disk failed",
        CutShort::Member => "the member has failed, or is there again, or was brought up to date",
        CutShort::Unreadable => "lines that nobody can read would be lost (--accept-damage)",
        CutShort::Cancelled => "somebody has stopped it",
        CutShort::End => "dcd ends",
        CutShort::Tables => "the journal of the volume cannot be written",
    }
}

/// The twin of a volume's tables.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TwinReport {
    /// Members that have it whole.
    pub holders: Vec<u8>,
    /// So many are to have it.
    pub holders_wanted: u32,
    /// It is being written to a member that has not had it.
    pub is_built: bool,
    /// Regions whose checksums are not in it yet ...
    pub regions_marked: u64,
    /// ... of so many.
    pub regions: u64,
}

impl TwinReport {
    fn of(status: &TwinStatus) -> TwinReport {
        TwinReport {
            holders: status.holders.members().map(|member| member.0).collect(),
            holders_wanted: status.holders_wanted,
            is_built: status.is_built,
            regions_marked: status.regions_marked,
            regions: status.regions,
        }
    }

    /// Whether the volume would be found again now.
    pub fn is_whole(&self) -> bool {
        self.holders.len() as u32 >= self.holders_wanted
    }
}

/// A data-disk of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberReport {
    /// Its number.
    pub member: u8,
    /// As it was named; none: it was not given.
    pub disk: Option<String>,
    /// `up-to-date`, `late`, `stale`, `rebuilding`, `missing`.
    pub state: String,
    /// Bytes that it has to get before it is up to date.
    #[serde(default)]
    pub bytes_to_rebuild: u64,
    /// They are what it has missed while it was away; else all that belongs there.
    #[serde(default)]
    pub is_missed_known: bool,
    /// I/Os that failed, since the start.
    pub errors: u64,
    /// Of them, reads.
    #[serde(default)]
    pub read_errors: u64,
    /// Lines of 4 KiB that were not what was written there, since the start.
    #[serde(default)]
    pub lines_rotten: u64,
    /// Lines that were written anew from what the others have, since the start.
    #[serde(default)]
    pub lines_mended: u64,
    /// Errors and rotten lines are as many as `suspect-after` says, or more.
    #[serde(default)]
    pub suspect: bool,
    /// How often it has kept others waiting, since the start.
    #[serde(default)]
    pub times_late: u64,
}

/// A RAID set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetReport {
    /// Its number.
    pub set: u8,
    /// 0, 1 or 5.
    pub level: u8,
    /// How fast its devices are: `fast` or `slow`.
    #[serde(default)]
    pub class: String,
    /// The members that it lies on.
    pub members: Vec<u8>,
    /// What lies together on one of them.
    pub stripe_unit_bytes: u64,
    /// Extents that fit into it, without those for temporary data.
    pub extents: u64,
    /// Of them, in use.
    pub extents_used: u64,
    /// Extents for temporary data.
    pub temporary_extents: u64,
    /// Of them, in use.
    pub temporary_used: u64,
}

/// A rebuild or scrub.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WorkReport {
    /// `rebuild`, `scrub` or `replace`.
    pub kind: String,
    /// The member that is rebuilt, or whose place another disk takes.
    pub member: Option<u8>,
    /// It gets what it has missed while it was away, and no more.
    #[serde(default)]
    pub is_of_missed: bool,
    /// Stripes that are done.
    pub done: u64,
    /// Of how many.
    pub total: u64,
    /// The same in bytes of the members ...
    #[serde(default)]
    pub bytes_done: u64,
    /// ... of these.
    #[serde(default)]
    pub bytes_total: u64,
    /// Lines of 4 KiB that were not what they should have been.
    pub mismatches: u64,
    /// Lines that nobody could read: for them a member was not replaced.
    #[serde(default)]
    pub lines_unreadable: u64,
    /// Lines that a scrub has passed by, because their checksums cannot be read.
    #[serde(default)]
    pub lines_not_compared: u64,
    /// A scrub that nobody has asked for: it leaves the members to others most of the time.
    #[serde(default)]
    pub is_by_time: bool,
    /// Of `bytes_done`, since it began or went on.
    #[serde(default)]
    pub bytes_per_second: u64,
    /// It has come, or comes, to its end before all is done.
    #[serde(default)]
    pub is_cut_short: bool,
    /// Why, of a disk that was to take the place of a member.
    #[serde(default)]
    pub because: Option<String>,
}

impl WorkReport {
    fn of(work: &WorkStatus) -> WorkReport {
        let (kind, member) = match work.kind {
            WorkKind::Rebuild(member) => ("rebuild", Some(member.0)),
            WorkKind::Scrub => ("scrub", None),
            WorkKind::Replace(member) => ("replace", Some(member.0)),
        };
        WorkReport {
            kind: kind.into(),
            member,
            is_of_missed: work.is_of_missed,
            done: work.stripes_done,
            total: work.stripes_total,
            bytes_done: work.bytes_done,
            bytes_total: work.bytes_total,
            mismatches: work.mismatches,
            lines_unreadable: work.lines_unreadable,
            lines_not_compared: work.lines_not_compared,
            is_by_time: work.is_by_time,
            bytes_per_second: work.bytes_per_second,
            is_cut_short: work.is_cut_short,
            because: work.cut_short.map(|why| cut_short_words(why).into()),
        }
    }

    /// How long it takes from now on, if it goes on as it did so far.
    pub fn seconds_left(&self) -> Option<u64> {
        self.bytes_total.saturating_sub(self.bytes_done).checked_div(self.bytes_per_second)
    }
}
