//! Pictures of a volume for people and drivers.

use std::ops::Range;

use super::attributes::Attributes;
use super::away::LogShare;
use super::config::SetConfig;
use super::extents::{ExtentIndex, SetRoom};
use super::format::root::{MemberState, ScrubRecord};
use super::members::{Member, MemberMask};
use super::placement::Tier;
use super::raid::SetLine;
use super::spares::{SpareState, SpareUse};
use super::{CutShort, GrowthStatus, Volume, WorkStatus};
use crate::units::{Duration, LINE_SIZE, Lba, Line, MemberIndex};

/// What a disk's arm passes over in the time that it takes to get to another place: 6 to 10 ms of
/// 30 to 40 MB/s, and less with the disks of today.
const BYTES_FOR_A_SEEK: u64 = 256 << 10;

/// What has happened since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // The names say it.
pub struct VolumeCounters {
    pub member_reads: u64,
    pub member_writes: u64,
    pub member_write_bytes: u64,
    pub stripe_jobs: u64,
    pub journal_records: u64,
    pub journal_bytes: u64,
    pub checkpoints: u64,
    pub records_replayed: u64,
    pub lines_redone: u64,
    pub lines_bad: u64,
    pub lines_repaired: u64,
    pub lines_lost: u64,
    pub extents_mapped: u64,
    pub extents_unmapped: u64,
    pub extents_moved: u64,
    pub moves_failed: u64,
    pub moves_without_room: u64,
    pub replicas_made: u64,
    /// For room, for a change, or because something is not well.
    pub replicas_given_up: u64,
    /// Found to be something else than what was copied, or not to be read.
    pub replicas_bad: u64,
    /// Pieces of reads that replicas have served.
    pub replica_reads: u64,
    /// Extents that were read because what was read points to them.
    pub extents_read_ahead: u64,
    /// Reads that these have served.
    pub ahead_reads: u64,
    pub members_failed: u64,
    pub members_rebuilt: u64,
    /// Of them, those that got what they had missed, and no more.
    pub members_caught_up: u64,
    pub members_replaced: u64,
    /// Of them, those that a spare has taken the place of.
    pub spares_used: u64,
    /// Scrubs that have read everything.
    pub scrubs_ended: u64,
    /// Lines that these found not as they should have been.
    pub scrubs_found: u64,
    /// Lines that scrubs passed by, ended or not, because their checksums could not be read.
    pub scrubs_not_compared: u64,
    pub blocks_allocated: u64,
    pub blocks_freed: u64,
    pub pages_unreadable: u64,
    pub twin_checkpoints: u64,
}

/// A member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// How it is.
    pub state: MemberState,
    /// Its disk is there.
    pub is_present: bool,
    /// Which [`Device::Member`](crate::Device) it is: its own number, unless another disk has taken
    /// its place since the start.
    pub disk: MemberIndex,
    /// Bytes that it has to get before it is up to date.
    pub bytes_to_rebuild: u64,
    /// They are what it has missed while it was away; else all that belongs there.
    pub is_missed_known: bool,
    /// I/Os that have failed since the start ...
    pub errors: u64,
    /// ... of them, reads.
    pub read_errors: u64,
    /// Lines that had not their checksum, since the start.
    pub lines_rotten: u64,
    /// Lines that were written anew from what the others have, since the start.
    pub lines_mended: u64,
    /// Its errors and rotten lines are as many as a disk that should be replaced has.
    pub is_suspect: bool,
    /// It has not answered for a third of `member-timeout`, and is given time.
    pub is_late: bool,
    /// How often that has happened since the start.
    pub times_late: u64,
}

impl MemberStatus {
    /// Whether it is there and up to date.
    pub fn is_whole(&self) -> bool {
        self.is_present && self.state == MemberState::UpToDate
    }
}

/// A set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetStatus {
    /// Its level, and the class of its devices.
    pub tier: Tier,
    /// How full it is.
    pub room: SetRoom,
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeStatus {
    /// All members, in order.
    pub members: Vec<MemberStatus>,
    /// All sets, in order.
    pub sets: Vec<SetStatus>,
    /// A rebuild or scrub, if one is under way.
    pub work: Option<WorkStatus>,
    /// The last one that has ended since the start.
    pub last_work: Option<WorkStatus>,
    /// All spares.
    pub spares: Vec<SpareStatus>,
    /// One takes the place of a member that has failed for so long; 0: never by itself.
    pub spare_after: Duration,
    /// Scrubs by time.
    pub scrubs: ScrubsStatus,
    /// Size of an extent in bytes.
    pub extent_bytes: u64,
    /// Extents with a place.
    pub extents_mapped: u64,
    /// Extents that should be elsewhere.
    pub moves_waiting: u64,
    /// Copies of extents on faster devices. They do not count as used room.
    pub replicas: u64,
    /// Lines of RAID 0 sets that a disk took along which was replaced: they cannot be read until
    /// they are written.
    pub raid0_lines_lost: u64,
    /// Lines of redundant sets that nothing tells any more: the same.
    pub redundant_lines_lost: u64,
    /// What the log holds for members that are away.
    pub log_share: LogShare,
    /// Pointers.
    pub pointers: u64,
    /// Pointers that its table has room for.
    pub pointers_max: u64,
    /// Memory of the tables.
    pub memory_bytes: u64,
    /// What has happened.
    pub counters: VolumeCounters,
    /// The journal cannot be written any more: redundant sets take no changes.
    pub has_failed: bool,
    /// The twin of the tables; `None`: the volume has none.
    pub twin: Option<TwinStatus>,
    /// The newest growth since the start.
    pub growth: Option<GrowthStatus>,
}

/// A spare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpareStatus {
    /// Which [`Device::Member`](crate::Device) it is.
    pub disk: MemberIndex,
    /// Its size in bytes.
    pub bytes: u64,
    /// How it is.
    pub state: SpareState,
}

/// Scrubs by time. Times are seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrubsStatus {
    /// From one to the next; 0: never by itself.
    pub every: Duration,
    /// The last one, and one that has not come to its end.
    pub record: ScrubRecord,
    /// When the next is due; `None`: never, or nobody knows the time.
    pub due: Option<u64>,
    /// It is due, and waits for members that are away or not up to date.
    pub waits_for_members: bool,
    /// What a scrub that has not come to its end has read, of `bytes_total`.
    pub bytes_done: u64,
    /// What one reads.
    pub bytes_total: u64,
}

/// How the twin of the tables is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TwinStatus {
    /// Members that have it whole, as labels say.
    pub holders: MemberMask,
    /// How many are to have it.
    pub holders_wanted: u32,
    /// It is being written to a member that has not had it.
    pub is_built: bool,
    /// Regions whose checksums it does not know ...
    pub regions_marked: u64,
    /// ... of so many.
    pub regions: u64,
}

/// What somebody should hear of at once. Members are bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeNews {
    /// Members that are suspect.
    pub suspect: u32,
    /// Lines whose reads fail until they are written.
    pub lines_lost: u64,
    /// Changes have failed because the log holds as much as it may for members that are away.
    pub refuses_changes: bool,
    /// Members that are away: not there, not up to date, or refusing every write.
    pub away: u32,
}

/// Where a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Which set.
    pub set: u8,
    /// Its level, and the class of its devices.
    pub tier: Tier,
    /// The member that it is read from first.
    pub member: MemberIndex,
    /// Byte address there.
    pub offset: u64,
    /// In the region for temporary data.
    pub is_temporary: bool,
}

impl Volume {
    /// What a member is.
    ///
    /// # Panics
    /// If there is none of that number.
    pub fn member_state(&self, member: MemberIndex) -> MemberState {
        self.members.get(member).state
    }

    /// How the members are. Cheap.
    pub fn member_statuses(&self) -> impl Iterator<Item = (MemberIndex, MemberStatus)> + '_ {
        self.members.iter().map(|(index, member)| {
            let status = MemberStatus {
                state: member.state,
                is_present: member.is_present,
                disk: MemberIndex(member.slot),
                bytes_to_rebuild: self.bytes_to_rebuild(index),
                is_missed_known: self.missed.is_noted(index),
                errors: member.errors,
                read_errors: member.read_errors,
                lines_rotten: member.lines_rotten,
                lines_mended: member.lines_mended,
                is_suspect: self.is_suspect(member),
                is_late: member.is_late,
                times_late: member.times_late,
            };
            (index, status)
        })
    }

    /// Replicas make room for others, so they take none.
    fn room_of_set(&self, set: u8) -> SetRoom {
        let mut room = self.extents.set_status(set);
        room.used -= self.replicas.on_set(set);
        room
    }

    /// A picture of it.
    pub fn status(&self) -> VolumeStatus {
        let set = |(index, set): (usize, &SetConfig)| SetStatus {
            tier: set.tier(),
            room: self.room_of_set(index as u8),
        };
        VolumeStatus {
            members: self.member_statuses().map(|(_, member)| member).collect(),
            sets: self.header.config.sets.iter().enumerate().map(set).collect(),
            work: match self.is_replacement_stuck() {
                true => None,
                false => self.work_status().or_else(|| self.replacement_status()),
            },
            last_work: self.repair.last,
            spares: self.spare_statuses().collect(),
            spare_after: self.spares.after(),
            scrubs: self.scrubs_status(),
            extent_bytes: self.header.config.extent_bytes,
            extents_mapped: self.extents.extents_mapped(),
            moves_waiting: self.migration.waiting(),
            replicas: self.replicas.len(),
            raid0_lines_lost: self.lost.count(),
            redundant_lines_lost: self.redundant_lost,
            log_share: self.log_share,
            pointers: self.pointers.len() as u64,
            pointers_max: self.pointers.slots().into(),
            memory_bytes: self.extents.memory_bytes()
                + self.checksums.memory_bytes()
                + self.pointers.memory_bytes()
                + self.lost.memory_bytes()
                + self.replicas.memory_bytes()
                + self.ahead.memory_bytes()
                + self.checkpoint.map.memory_bytes(),
            counters: self.counters,
            has_failed: self.journal.error.is_some(),
            twin: self.twin_status(),
            growth: self.growth_status(),
        }
    }

    fn scrubs_status(&self) -> ScrubsStatus {
        let record = self.scrub_record();
        let done = record.unfinished.map_or((0, 0), |it| (it.set, it.stripe));
        let due = self.scrubs.due(self.now);
        let is_due = due.is_some_and(|due| due <= self.now);
        ScrubsStatus {
            every: self.scrubs.every(),
            record,
            due: self.scrubs.due_in_calendar(self.now),
            waits_for_members: is_due
                && !self.member_statuses().all(|(_, member)| member.is_whole()),
            bytes_done: self.bytes_of_scrub(done),
            bytes_total: self.bytes_of_scrub((self.layouts.len() as u8, 0)),
        }
    }

    /// How the spares are. Cheap.
    pub fn spare_statuses(&self) -> impl Iterator<Item = SpareStatus> + '_ {
        self.spares.iter().map(|spare| SpareStatus {
            disk: MemberIndex(spare.slot),
            bytes: spare.bytes,
            state: spare.state,
        })
    }

    /// The last time that a spare has taken the place of a member, or has begun to.
    pub fn last_spare_use(&self) -> Option<SpareUse> {
        self.spares.last_use()
    }

    /// Why the last disk that was to take the place of a member has not.
    pub fn last_cut_short(&self) -> Option<CutShort> {
        self.repair.last.and_then(|last| last.cut_short)
    }

    fn is_suspect(&self, member: &Member) -> bool {
        self.suspect_after > 0 && member.errors + member.lines_rotten >= self.suspect_after
    }

    /// What has happened since the start.
    pub fn counters(&self) -> &VolumeCounters {
        &self.counters
    }

    /// Lines that the last scrub which has read everything found not as they should have been.
    pub fn lines_of_last_scrub(&self) -> u64 {
        self.scrubs.record.found
    }

    /// What somebody should hear of at once.
    pub fn news(&self) -> VolumeNews {
        let suspect = self.members.iter().filter(|(_, member)| self.is_suspect(member));
        VolumeNews {
            suspect: suspect.fold(0, |mask, (index, _)| mask | 1 << index.0),
            lines_lost: self.lost.count() + self.redundant_lost,
            refuses_changes: self.log_share.changes_refused > 0,
            away: if self.is_open() { self.away() } else { 0 },
        }
    }

    /// Where the line of a block is; `None`: nowhere, it reads as zeroes.
    ///
    /// # Panics
    /// If the block is beyond the end.
    pub fn place(&self, block: Lba) -> Option<Placed> {
        let extent_bytes = self.header.config.extent_bytes;
        let extent = self.extent_of(block.byte());
        let place = self.extents.get(extent).place?;
        let line = place.first_line(extent_bytes).0 + block.byte() % extent_bytes / LINE_SIZE;
        let layout = self.layout(place.set);
        let at = layout.locate(SetLine(line));
        let first = layout.data_places(at.stripe, at.unit).start;
        Some(Placed {
            set: place.set,
            tier: self.header.config.sets[usize::from(place.set)].tier(),
            member: layout.member(first),
            offset: layout.offset(at.stripe, at.line_in_unit),
            is_temporary: self.extents.is_temporary(place),
        })
    }

    /// Lines around one that lie in the same stripe as it does, one behind the other, if that has
    /// parity: written together they need it read and written once. Else that line alone.
    pub(crate) fn lines_that_share_parity(&self, line: Line) -> Range<Line> {
        self.lines_in_same_stripes(line, |_| 1)
    }

    /// Lines around one, one behind the other, in its stripe and in as many next to it as a
    /// member's arm passes over in about the time that it takes to get there, if there is parity.
    /// Else that line alone.
    pub(crate) fn lines_that_share_seeks(&self, line: Line) -> Range<Line> {
        self.lines_in_same_stripes(line, |unit_bytes| (BYTES_FOR_A_SEEK / unit_bytes).max(1))
    }

    /// Lines around one in the same group of stripes, one behind the other, if these have parity.
    /// Else that line alone. `stripes`: how many make a group, for a stripe unit of so many bytes.
    fn lines_in_same_stripes(&self, line: Line, stripes: impl Fn(u64) -> u64) -> Range<Line> {
        let extent_lines = self.extent_lines();
        let end = self.header.config.extents() * extent_lines;
        let group_of = |line: u64| {
            let place = self.extents.get(ExtentIndex((line / extent_lines) as u32)).place?;
            let layout = self.layout(place.set);
            let first = place.first_line(self.header.config.extent_bytes).0;
            layout.parity_row()?;
            let stripe = layout.locate(SetLine(first + line % extent_lines)).stripe;
            let unit_bytes = u64::from(layout.unit_lines()) * LINE_SIZE;
            Some((place.set, stripe / stripes(unit_bytes)))
        };
        let Some(group) = group_of(line.0) else { return line..Line(line.0 + 1) };
        let is_there = |other: &u64| group_of(*other) == Some(group);
        let before = (0..line.0).rev().take_while(is_there).count() as u64;
        let behind = (line.0 + 1..end).take_while(is_there).count() as u64;
        Line(line.0 - before)..Line(line.0 + 1 + behind)
    }

    /// Whether a block came from `alloc_block` and has not been freed.
    ///
    /// # Panics
    /// If the block is beyond the end.
    pub fn is_allocated(&self, block: Lba) -> bool {
        let extent = self.extent_of(block.byte());
        self.extents.get(extent).is_allocated()
    }

    /// What the extent of a block is.
    ///
    /// # Panics
    /// If the block is beyond the end.
    pub fn attributes(&self, block: Lba) -> Attributes {
        self.extents.get(self.extent_of(block.byte())).attributes
    }
}
