//! The data-disks as one address space: extents on RAID 0, 1 and 5 sets, placed by what they are
//! (DHIS).
//!
//! A state machine below the engine's own: what [`Engine`](crate::Engine) sends to its data-disk
//! comes here, and what goes on to [`Device::Member`] and to the volume's area on the cache-disk
//! comes from here. Its paths are in `paths`: open, read, write, stripe (what a change of a RAID
//! set takes), journal, flush, checkpoint, migrate, rebuild.
//!
//! ```text
//! change -> extents -> chunks of stripes -> old lines read -> journal, durable -> members
//! ```
//!
//! **No write hole.** New lines and the parity that belongs to them are durable in the journal
//! before any member is written, and are written again after a crash. So a stripe is as before or
//! as after, also with a member missing.
//!
//! A volume reads and writes whole lines of 4 KiB; that is its logical block.

mod ahead;
pub mod away;
pub(crate) mod checksums;
pub mod config;
pub(crate) mod extents;
pub mod format;
mod free_map;
mod fresh;
pub mod growth;
pub mod import;
mod lateness;
mod lost;
mod lost_sums;
pub mod members;
mod missed;
mod page_map;
mod paths;
pub mod placement;
pub(crate) mod pointers;
pub mod raid;
mod replicas;
mod scrubs;
pub mod spares;
mod sparse_table;
pub mod status;
mod twin;
mod unlogged;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::checksums::Checksums;
use self::config::VolumeConfig;
use self::extents::{ExtentIndex, Extents, Place};
use self::format::area::VolumeArea;
use self::format::header::VolumeHeader;
use self::growth::bytes_needed;
use self::members::{MemberInfo, Members, StateChanges};
pub use dcd_block::attributes;
use dcd_block::attributes::Attributes;

pub use self::paths::grow::{GrowthCutShort, GrowthEnd, GrowthStage, GrowthStatus};
pub use self::paths::repair::{WorkKind, WorkStatus};
pub use self::paths::replace::{CutShort, NewDisk, ReplaceError};
pub(crate) use self::paths::requests::Above;
use self::paths::{
    checkpoint, flush, grow, job, journal, labels, migrate, more_pointers, open, read, repair,
    replace, sums, twin as twin_path, write,
};
use self::placement::RaidLevel;
use self::pointers::Pointers;
use self::raid::Layout;
use crate::buffer::Buffer;
use crate::config::{DataDiskInfo, EngineConfig};
use crate::error::VolumeOpenError;
use crate::io::{
    Device, Io, IoData, IoDone, IoError, IoId, IoOperation, IoOwner, RequestId, VolumeAnswer,
    VolumeError,
};
use crate::patience::Patience;
use crate::units::{BLOCK_SIZE, Duration, LINE_SIZE, Lba, LbaRange, MemberIndex, Time};

/// Until the engine has said what it was told.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(30);

/// What a driver gives to open a volume.
#[derive(Clone, Debug)]
pub struct VolumeParts {
    /// What it is made of.
    pub header: VolumeHeader,
    /// The members, in order; `None`: the disk is not there.
    pub members: Vec<Option<MemberInfo>>,
    /// Disks that are no members by their labels alone ([`Standing::is_of_other`]): spares, and
    /// those that were one and may be members by now. [`Device::Member`] of the numbers behind the
    /// members, in this order.
    ///
    /// [`Standing::is_of_other`]: format::label::Standing::is_of_other
    pub others: Vec<MemberInfo>,
    /// Open although members are missing that held something.
    pub degraded: bool,
}

/// Where a volume stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum VolumePhase {
    Opening,
    Running,
    Failed(VolumeOpenError),
}

/// What a volume wants.
pub(crate) enum VolumeOutput {
    /// Start this I/O.
    Io(Io),
    /// This I/O of the engine has ended.
    Done(IoDone),
    /// Discard this range, as if a client had asked for it.
    Discard(LbaRange),
    /// A write or flush of the cache-disk has failed.
    CacheDiskFailed(IoError),
    /// The labels of the end are written.
    Closed,
    /// What requests before this flush have changed is durable, or cannot be.
    Committed { id: RequestId, result: Result<(), VolumeError> },
    /// Its tables are written once more, for what it is to be: the superblock is to name them.
    TablesWritten {
        /// Size of their area.
        area_bytes: u64,
        /// Size of the volume, as users are to see it.
        blocks: u64,
    },
    /// It has this size now.
    Grown { blocks: u64 },
    /// It has not grown.
    NotGrown,
    /// Answer this request.
    Answer { id: RequestId, result: Result<Option<VolumeAnswer>, VolumeError> },
}

/// What an I/O is for.
enum Purpose {
    Open(open::Step),
    Read(read::Piece),
    Cells(job::JobId, job::CellRun),
    Written(job::JobId, MemberIndex),
    MemberFlush(flush::For, u64, MemberIndex),
    RebuiltLabel(MemberIndex),
    Label(labels::Step, MemberIndex),
    Journal,
    Checkpoint(checkpoint::Step),
    /// Whether nobody waits for them.
    Sums(sums::PageRun, bool),
    MorePointers(more_pointers::Step),
    Grow(grow::Step),
    Twin(twin_path::Step, MemberIndex),
    /// What a job copies to the disk that takes the place of a member.
    Copied(job::JobId),
    /// The same that a member was told with this I/O.
    Echo(IoId),
    Replace(replace::Step),
    /// A label, or a flush, of the spare of this number.
    Spare(u8),
    /// A label of one that waits.
    SpareLook(u8),
}

/// The device of an I/O of a disk that is no member yet, or not any more. A volume has no
/// data-disk.
const ELSEWHERE: Device = Device::DataDisk;

struct IoUnderWay {
    /// `None`: given up, its end changes nothing.
    purpose: Option<Purpose>,
    device: Device,
    /// By the clock of [`Patience`].
    started: Time,
}

/// An I/O of the engine, or of a path that reads or writes whole extents.
struct Upper {
    owner: UpperOwner,
    /// Of a read: filled piece by piece. Of a write: what is written.
    buffer: Option<Buffer>,
    /// Pieces that have not ended, and one while they are being started.
    pieces: u32,
    fua: bool,
    result: Result<(), IoError>,
}

/// Whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UpperOwner {
    Engine(IoId),
    /// The path that moves extents.
    Move,
    /// The one that reads them ahead.
    Ahead,
}

/// Names an [`Upper`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct UpperId(u64);

/// The volume. The engine owns it and drives it.
pub struct Volume {
    header: VolumeHeader,
    area: VolumeArea,
    layouts: Vec<Layout>,
    phase: VolumePhase,
    now: Time,
    /// The engine's.
    patience: Patience,
    /// After how long without an answer a member is done without, where others hold the same.
    member_timeout: Duration,
    /// After how long without a change there checksums are written to the twin.
    twin_quiet: Duration,
    cache_disk_timeout: Duration,
    outputs: VecDeque<VolumeOutput>,
    ios: BTreeMap<IoId, IoUnderWay>,
    next_io: u64,

    extents: Extents,
    checksums: Checksums,
    sum_pages: sums::SumPages,
    pointers: Pointers,
    /// Entries and slots that have changed, with what the journal has of them: pages are written
    /// with that.
    uncommitted_extents: BTreeMap<ExtentIndex, u64>,
    uncommitted_pointers: BTreeMap<u32, u64>,
    /// Entries on their way to the journal, the last of each extent.
    queued_extents: BTreeMap<ExtentIndex, u64>,
    /// Places that an extent has left, until the journal knows.
    left_places: BTreeMap<ExtentIndex, Vec<Place>>,
    fresh: fresh::Fresh,
    lost: lost::LostLines,
    /// Regions whose checksums the twin does not know.
    region_marks: twin::RegionMarks,
    /// `None`: there is none, or a start has not looked for it yet.
    twin: Option<Box<twin::Twin>>,
    /// Twins of an older generation do not count.
    twin_since: u64,
    /// Lines of redundant sets that are lost, where extents are.
    redundant_lost: u64,
    /// Pieces that are being read from a place; and places that are free when there are none.
    readers: BTreeMap<Place, u32>,
    free_after_readers: BTreeSet<Place>,
    members: Members,
    /// What those have missed that are away.
    missed: missed::Missed,
    state_changes: StateChanges,
    epoch: u64,
    /// Allocations and pointers have changed since a flush made them durable.
    has_changes_of_requests: bool,
    /// Flushes that wait for that.
    commits_under_way: u32,

    /// I/Os that came before the volume was open.
    early: Vec<Io>,
    uppers: BTreeMap<UpperId, Upper>,
    next_upper: u64,
    /// Discards of freed blocks that the engine was told of.
    discards_made: u64,
    unlogged_frees: unlogged::UnloggedFrees,
    /// Ended, but for the states of members that they rely on.
    ended: Vec<UpperId>,
    writes: write::Writes,
    jobs: job::Jobs,
    flushes: flush::Flushes,
    journal: journal::Journal,
    checkpoint: checkpoint::Checkpointing,
    opening: Option<Box<open::Opening>>,
    migration: migrate::Migration,
    replicas: replicas::Replicas,
    ahead: ahead::Ahead,
    more_pointers: Option<more_pointers::MorePointers>,
    growing: Option<Box<grow::Growing>>,
    last_growth: Option<GrowthStatus>,
    repair: repair::Repair,
    scrubs: scrubs::Scrubs,
    labels: labels::Labels,
    replacement: Option<Box<replace::Replacement>>,
    spares: spares::Spares,
    /// The number of the next disk that comes.
    next_slot: usize,
    counters: status::VolumeCounters,
    /// Whether extents without a place, of these attributes, would find one; forgotten when that
    /// may have changed.
    no_place_for: Option<(Attributes, bool)>,
    log_share: away::LogShare,
    degraded_allowed: bool,
    /// An older copy of a member is taken for a blank disk.
    accept_damage: bool,
    /// A member with so many errors and rotten lines is suspect; 0: none is.
    suspect_after: u64,
    /// There is no log above: a write that has ended is acknowledged.
    is_unlogged: bool,
}

impl Volume {
    /// Starts opening a volume whose area begins at `area_offset` of the cache-disk.
    pub(crate) fn open(
        now: Time,
        parts: VolumeParts,
        area_offset: u64,
    ) -> Result<Volume, VolumeOpenError> {
        let VolumeParts { header, members: infos, others, degraded } = parts;
        let config = &header.config;
        if infos.len() != config.members {
            let (expected, found) = (config.members, infos.len());
            return Err(VolumeOpenError::Members { expected, found });
        }
        let area = VolumeArea::of(&header, area_offset).ok_or(VolumeOpenError::Header)?;
        for (index, info) in infos.iter().enumerate() {
            let needed = bytes_needed(config, &area, MemberIndex(index as u8));
            if let Some(found) = info.map(|info| info.bytes).filter(|bytes| *bytes < needed) {
                let member = MemberIndex(index as u8);
                return Err(VolumeOpenError::MemberShort { member, needed, found });
            }
        }
        let has_twin = config.twin_region_pages > 0;
        let next_slot = config.members + others.len();
        let layouts: Vec<Layout> = config.sets.iter().map(Layout::new).collect();
        let mut volume = Volume {
            phase: VolumePhase::Opening,
            now,
            patience: Patience::new(now, MEMBER_TIMEOUT),
            member_timeout: MEMBER_TIMEOUT,
            twin_quiet: Duration(0),
            cache_disk_timeout: MEMBER_TIMEOUT,
            outputs: VecDeque::new(),
            ios: BTreeMap::new(),
            next_io: 0,
            extents: Extents::new(config),
            checksums: Checksums::new(config),
            sum_pages: sums::SumPages::new(),
            pointers: Pointers::new(header.pointers_max, config.extents() as u32),
            uncommitted_extents: BTreeMap::new(),
            uncommitted_pointers: BTreeMap::new(),
            queued_extents: BTreeMap::new(),
            left_places: BTreeMap::new(),
            fresh: fresh::Fresh::default(),
            lost: lost::LostLines::new(config),
            region_marks: twin::RegionMarks::new(area.regions()),
            twin: None,
            twin_since: 0,
            redundant_lost: 0,
            readers: BTreeMap::new(),
            free_after_readers: BTreeSet::new(),
            members: Members::new(&vec![format::root::MemberState::Stale; config.members]),
            missed: missed::Missed::new(&layouts),
            state_changes: StateChanges::default(),
            epoch: 0,
            has_changes_of_requests: false,
            commits_under_way: 0,
            early: Vec::new(),
            uppers: BTreeMap::new(),
            next_upper: 0,
            discards_made: 0,
            unlogged_frees: unlogged::UnloggedFrees::default(),
            ended: Vec::new(),
            writes: write::Writes::default(),
            jobs: job::Jobs::default(),
            flushes: flush::Flushes::default(),
            journal: journal::Journal::new(area.journal_lines()),
            checkpoint: checkpoint::Checkpointing::new(area.pages(), has_twin),
            opening: Some(Box::new(open::Opening::new(infos))),
            migration: migrate::Migration::default(),
            replicas: replicas::Replicas::default(),
            ahead: ahead::Ahead::default(),
            more_pointers: None,
            growing: None,
            last_growth: None,
            repair: repair::Repair::default(),
            scrubs: scrubs::Scrubs::default(),
            labels: labels::Labels::default(),
            replacement: None,
            next_slot,
            spares: spares::Spares::new(config.members, others),
            counters: status::VolumeCounters::default(),
            no_place_for: None,
            log_share: away::LogShare::default(),
            degraded_allowed: degraded,
            accept_damage: false,
            suspect_after: 0,
            is_unlogged: false,
            layouts,
            header,
            area,
        };
        volume.start_opening();
        Ok(volume)
    }

    /// What a disk must have to be this member.
    fn member_bytes_needed(&self, member: MemberIndex) -> u64 {
        bytes_needed(&self.header.config, &self.area, member)
    }

    /// What the engine was told. `accept_damage`: whoever opens it knows that a member is an older
    /// copy, and what that means: its lines of RAID 0 sets are lost.
    pub(crate) fn configure(&mut self, config: &EngineConfig) {
        self.accept_damage = config.accept_damage;
        self.suspect_after = config.suspect_after;
        self.scrubs.set_every(config.scrub_every);
        self.twin_quiet = config.twin_quiet;
        self.spares.set_after(config.spare_after);
        self.sum_pages.set_budget(config.volume_memory_bytes);
        self.member_timeout = config.member_timeout;
        self.cache_disk_timeout = config.io_timeout;
        self.is_unlogged = config.no_log;
    }

    /// After how long without an answer the cache-disk has failed.
    pub(crate) fn set_cache_disk_timeout(&mut self, timeout: Duration) {
        self.cache_disk_timeout = timeout;
    }

    /// After how long without an answer a member is done without.
    pub fn member_timeout(&self) -> Duration {
        self.member_timeout
    }

    /// What the volume looks like to the engine.
    pub fn data_disk_info(config: &VolumeConfig) -> DataDiskInfo {
        DataDiskInfo {
            blocks: config.blocks(),
            logical_block_size: LINE_SIZE as u32,
            physical_sector_size: LINE_SIZE as u32,
        }
    }

    /// Another part of what takes long may be done.
    pub(crate) fn input_came(&mut self) {
        self.repair.input_came();
        self.migration.input_came();
        self.replicas.input_came();
    }

    /// What counts of the time, and whether all that has ended is known.
    pub(crate) fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Takes an I/O for the data-disk.
    pub(crate) fn submit(&mut self, now: Time, io: Io) {
        self.now = now;
        if self.phase != VolumePhase::Running {
            return self.early.push(io);
        }
        self.scrubs.note_asked(now);
        let id = UpperId(self.next_upper);
        self.next_upper += 1;
        let mut upper = Upper {
            owner: UpperOwner::Engine(io.id),
            buffer: None,
            pieces: 1,
            fua: false,
            result: Ok(()),
        };
        match io.operation {
            IoOperation::Read { offset, buffer } => {
                let length = buffer.len() as u64;
                upper.buffer = Some(buffer);
                self.uppers.insert(id, upper);
                self.read(id, offset);
                self.follow_pointers(offset, length);
                self.piece_done(id, Ok(()));
            }
            IoOperation::Write { offset, data: IoData::Owned(buffer), fua } => {
                let length = buffer.len() as u64;
                upper.buffer = Some(buffer);
                upper.fua = fua;
                self.uppers.insert(id, upper);
                self.write(id, offset, length);
                self.piece_done(id, Ok(()));
            }
            IoOperation::Write { data: IoData::SegmentMemory(_), .. } => {
                unreachable!("segment memory goes to the cache-disk alone")
            }
            IoOperation::WriteZeroes { offset, length, .. } => {
                self.uppers.insert(id, upper);
                self.write_zeroes(id, offset, length);
                self.piece_done(id, Ok(()));
            }
            IoOperation::Flush => {
                self.uppers.insert(id, upper);
                self.flush(id);
            }
        }
    }

    /// An I/O of the volume has ended.
    pub(crate) fn io_done(&mut self, now: Time, done: IoDone) {
        self.now = now;
        let io = self.ios.remove(&done.id).expect("an I/O that was started");
        if let Device::Member(member) = io.device {
            let member = self.members.get_mut(member);
            member.in_flight -= 1;
            member.given_up -= u32::from(io.purpose.is_none());
        }
        self.heard_of(io.device);
        let Some(purpose) = io.purpose else { return };
        if let Some((purpose, done)) = self.hold_for_echo(io.device, purpose, done) {
            self.dispatch_done(purpose, io.device, done.result, done.buffer);
        }
    }

    fn dispatch_done(
        &mut self,
        purpose: Purpose,
        device: Device,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        if let (Device::Member(member), Err(_)) = (device, result) {
            let is_read = matches!(purpose, Purpose::Read(_) | Purpose::Cells(..));
            let member = self.members.get_mut(member);
            member.errors += 1;
            member.read_errors += u64::from(is_read);
        }
        let is_read = matches!(purpose, Purpose::Grow(grow::Step::Read(_)));
        let is_change = matches!(
            purpose,
            Purpose::Journal | Purpose::Checkpoint(_) | Purpose::MorePointers(_) | Purpose::Grow(_)
        ) && !is_read;
        if let (true, Err(error)) = (is_change, result) {
            self.cache_disk_failed();
            self.outputs.push_back(VolumeOutput::CacheDiskFailed(error));
        }
        match purpose {
            Purpose::Open(step) => self.open_io_done(step, result, buffer),
            Purpose::Read(piece) => self.piece_read(piece, result, buffer),
            Purpose::Cells(job, run) => self.cells_read(job, run, result, buffer),
            Purpose::Written(job, member) => self.cells_written(job, member, result),
            Purpose::MemberFlush(what, covers, member) => {
                self.member_flushed(what, covers, member, result);
            }
            Purpose::RebuiltLabel(member) => self.rebuilt_label_written(member, result),
            Purpose::Label(step, member) => self.label_io_done(step, member, result),
            Purpose::Journal => self.journal_written(result, buffer),
            Purpose::Checkpoint(step) => self.checkpoint_io_done(step, result, buffer),
            Purpose::Sums(run, is_for_later) => self.sums_read(run, is_for_later, result, buffer),
            Purpose::MorePointers(step) => self.more_pointers_io_done(step, result),
            Purpose::Grow(step) => self.growth_io_done(step, result, buffer),
            Purpose::Twin(step, member) => self.twin_io_done(step, member, result),
            Purpose::Copied(job) => self.cells_copied(job, result),
            Purpose::Echo(of) => self.echo_done(of, result),
            Purpose::Replace(step) => self.replace_io_done(step, result),
            Purpose::Spare(slot) => self.spare_io_done(slot, result),
            Purpose::SpareLook(slot) => self.spare_looked_at(slot, result, buffer),
        }
    }

    /// A write or flush of the cache-disk has failed, of the volume or of the log. What was written
    /// there and not flushed may be gone, and no later flush tells.
    pub(crate) fn cache_disk_failed(&mut self) {
        self.distrust_pages();
        self.distrust_more_pointers();
        self.distrust_growth();
    }

    /// Lets everything go on that can.
    pub(crate) fn advance(&mut self, now: Time) {
        self.now = now;
        self.no_place_for = None;
        self.look_at_late_members();
        self.give_up_late_cache_disk();
        if self.phase == VolumePhase::Opening {
            self.advance_opening();
        }
        if self.phase == VolumePhase::Running {
            self.advance_running();
            self.read_sums_for_later();
            self.drop_sum_pages();
        }
    }

    fn advance_running(&mut self) {
        loop {
            let mut moved = self.advance_writes();
            moved |= self.advance_jobs();
            moved |= self.advance_migration();
            moved |= self.advance_replicas();
            moved |= self.advance_scrubs();
            moved |= self.advance_repair();
            moved |= self.advance_replacement();
            moved |= self.advance_spares();
            moved |= self.look_at_spares();
            moved |= self.advance_labels();
            moved |= self.advance_flushes();
            moved |= self.advance_checkpoint();
            moved |= self.advance_more_pointers();
            moved |= self.advance_growth();
            moved |= self.advance_twin();
            // Last, because the others say what is to be written.
            moved |= self.advance_journal();
            moved |= self.end_uppers();
            moved |= self.advance_following();
            if !moved {
                break;
            }
        }
    }

    pub(crate) fn poll(&mut self) -> Option<VolumeOutput> {
        self.outputs.pop_front()
    }

    pub(crate) fn phase(&self) -> &VolumePhase {
        &self.phase
    }

    pub(crate) fn next_wake_up(&self) -> Option<Time> {
        let late = self.lateness_wake_up();
        let others = [self.migration_wake_up(), self.checkpoint_wake_up(), self.jobs_wake_up()];
        let (spares, repair) = (self.spares.wake_up(self.now), self.repair.wake_up(self.now));
        let replicas = self.replicas_wake_up();
        let more = [late, self.twin_wake_up(), self.scrubs_wake_up(), spares, repair, replicas];
        others.into_iter().chain(more).flatten().min()
    }

    /// Whether it has been opened, so that what it says of lines and members is true.
    pub fn is_open(&self) -> bool {
        self.phase == VolumePhase::Running
    }

    /// Whether nothing is under way: no I/O of the engine, no move, no rebuild or scrub, no change
    /// to be recorded.
    pub fn is_idle(&self) -> bool {
        self.uppers.is_empty()
            && self.writes.is_idle()
            && self.jobs.is_empty()
            && self.journal.is_idle()
            && self.migration.is_idle()
            && !self.is_a_replica_due()
            && self.more_pointers.is_none()
            && self.growing.is_none()
            && self.sum_pages.is_idle()
            && !self.repair.is_under_way()
            && self.replacement.is_none()
            && !self.spares.is_any_under_way()
            && self.is_twin_idle()
    }

    // ---- what every path needs ----------------------------------------------------------------

    fn start_io(&mut self, device: Device, operation: IoOperation, purpose: Purpose) {
        let id = IoId::of(IoOwner::Volume, self.next_io);
        self.next_io += 1;
        let started = self.patience.now();
        self.ios.insert(id, IoUnderWay { purpose: Some(purpose), device, started });
        let echo = self.echo_of(device, &operation);
        let device = match device {
            Device::Member(member) => {
                let member = self.members.get_mut(member);
                member.in_flight += 1;
                if let IoOperation::Read { offset, .. } | IoOperation::Write { offset, .. } =
                    &operation
                {
                    member.arm_at = *offset;
                }
                Device::Member(MemberIndex(member.slot))
            }
            device => device,
        };
        self.outputs.push_back(VolumeOutput::Io(Io { id, device, operation }));
        if let Some((slot, operation)) = echo {
            self.note_echo(id);
            self.start_io_elsewhere(slot, operation, Purpose::Echo(id));
        }
    }

    /// Of a disk that is no member.
    fn start_io_elsewhere(&mut self, slot: u8, operation: IoOperation, purpose: Purpose) {
        let id = IoId::of(IoOwner::Volume, self.next_io);
        self.next_io += 1;
        let (device, started) = (ELSEWHERE, self.patience.now());
        self.ios.insert(id, IoUnderWay { purpose: Some(purpose), device, started });
        let device = Device::Member(MemberIndex(slot));
        self.outputs.push_back(VolumeOutput::Io(Io { id, device, operation }));
    }

    /// The I/O of the engine for which this one reads what is at its place; `None` of what reads
    /// for something else: to write, to compare, to move, to compute what a member lacks.
    pub(crate) fn reads_for(&self, id: IoId) -> Option<IoId> {
        let Some(Purpose::Read(piece)) = &self.ios.get(&id)?.purpose else { return None };
        match self.uppers.get(&piece.upper)?.owner {
            UpperOwner::Engine(above) => Some(above),
            UpperOwner::Move | UpperOwner::Ahead => None,
        }
    }

    fn start_read(&mut self, device: Device, offset: u64, length: u64, purpose: Purpose) {
        let buffer = Buffer::zeroed(length as usize);
        self.start_io(device, IoOperation::Read { offset, buffer }, purpose);
    }

    fn start_write(
        &mut self,
        device: Device,
        offset: u64,
        data: Buffer,
        fua: bool,
        purpose: Purpose,
    ) {
        let data = IoData::Owned(data);
        self.start_io(device, IoOperation::Write { offset, data, fua }, purpose);
    }

    fn layout(&self, set: u8) -> &Layout {
        &self.layouts[usize::from(set)]
    }

    fn extent_lines(&self) -> u64 {
        self.header.config.extent_bytes / LINE_SIZE
    }

    fn is_current(&self, set: u8, place: usize, stripe: u64) -> bool {
        self.members.is_current(self.layout(set), set, place, stripe)
    }

    /// A piece of an I/O of the engine has ended.
    fn piece_done(&mut self, id: UpperId, result: Result<(), IoError>) {
        let upper = self.uppers.get_mut(&id).expect("it has pieces left");
        upper.pieces -= 1;
        upper.result = upper.result.and(result);
        if upper.pieces == 0 {
            self.ended.push(id);
        }
    }

    /// Tells the engine what has ended. While the state of a member is not durable that was done
    /// without, nothing is: after a crash that member would be believed, and with it what is older.
    fn end_uppers(&mut self) -> bool {
        if self.ended.is_empty() || !self.state_changes.is_empty() {
            return false;
        }
        self.scrubs.note_asked(self.now);
        for id in std::mem::take(&mut self.ended) {
            let upper = self.uppers.remove(&id).expect("it ends once");
            let Upper { owner, result, buffer, .. } = upper;
            match owner {
                UpperOwner::Engine(id) => {
                    self.outputs.push_back(VolumeOutput::Done(IoDone { id, result, buffer }));
                }
                UpperOwner::Move => self.migration_upper_ended(result, buffer),
                UpperOwner::Ahead => self.read_ahead_ended(result, buffer),
            }
        }
        true
    }

    fn answer(&mut self, id: RequestId, result: Result<Option<VolumeAnswer>, VolumeError>) {
        self.outputs.push_back(VolumeOutput::Answer { id, result });
    }

    /// An I/O to a member has not been done. Whether the others hold what it should hold, and it is
    /// done without from now on.
    fn do_without(&mut self, member: MemberIndex) -> bool {
        use self::format::root::MemberState;
        if self.members.get(member).state == MemberState::Stale {
            return true;
        }
        if !self.members.can_do_without(member, &self.layouts) {
            return false;
        }
        let found = self.members.get(member);
        if found.state == MemberState::UpToDate {
            // One with a label that is not known is not told from a copy of an earlier time.
            match found.is_present && !found.has_old_label {
                true => self.note_missed(member),
                // It has missed more than what is in the journal now.
                false => self.missed.forget(member),
            }
        }
        self.members.get_mut(member).state = MemberState::Stale;
        self.state_changes.waiting.push_back((member, MemberState::Stale));
        self.counters.members_failed += 1;
        self.repair_lost_member(member);
        true
    }

    /// A member that had all up to now gets nothing any more. What records in the ring have said may
    /// not be durable there: all before was flushed.
    fn note_missed(&mut self, member: MemberIndex) {
        self.missed.note(member);
        for region in self.journal.missed_regions() {
            self.missed.mark(region);
        }
    }

    // ---- looking from outside -----------------------------------------------------------------

    /// What it is made of.
    pub fn config(&self) -> &VolumeConfig {
        &self.header.config
    }

    /// Whether any extent of these bytes is a candidate for caching (DHIS section 3.3.2).
    pub(crate) fn has_candidate(&self, offset: u64, length: u64) -> bool {
        let random = Attributes::HOT.or(Attributes::WRITE_MOST).or(Attributes::RANDOM);
        self.extents_of(offset, length).any(|extent| {
            let attributes = self.extents.get(extent).attributes;
            attributes.contains(Attributes::METADATA) || attributes.contains(random)
        })
    }

    fn extent_of(&self, offset: u64) -> ExtentIndex {
        ExtentIndex((offset / self.header.config.extent_bytes) as u32)
    }

    fn extents_of(&self, offset: u64, length: u64) -> impl Iterator<Item = ExtentIndex> + use<> {
        let extent = self.header.config.extent_bytes;
        let end = (offset + length).div_ceil(extent).min(self.header.config.extents());
        (offset / extent..end).map(|index| ExtentIndex(index as u32))
    }

    /// The extent whose first block this is.
    fn extent_at(&self, block: Lba) -> Result<ExtentIndex, VolumeError> {
        let blocks = self.header.config.extent_bytes / BLOCK_SIZE;
        match block.0.is_multiple_of(blocks) && block.0 < self.header.config.blocks() {
            true => Ok(ExtentIndex((block.0 / blocks) as u32)),
            false => Err(VolumeError::BadBlock(block)),
        }
    }

    fn block_of(&self, extent: ExtentIndex) -> Lba {
        self.blocks_of(extent).start
    }

    fn blocks_of(&self, extent: ExtentIndex) -> LbaRange {
        let blocks = self.header.config.extent_bytes / BLOCK_SIZE;
        LbaRange::new(u64::from(extent.0) * blocks, blocks)
    }
}
