//! The machine that an engine with a volume runs on: a cache-disk, the members, a clock. As
//! [`crate::host`], with members that fail, are not there, are replaced, and rot.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::end_mark::END_MARK_BYTES;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::legs::LegsParts;
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE, LegIndex, MemberIndex};
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::header::{VOLUME_HEADER_BYTES, VolumeHeader};
use dcd_engine::volume::format::label::{
    DiskTag, LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel, Standing,
};
use dcd_engine::volume::format::page::PAGE_BYTES;
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::volume::members::MemberInfo;
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::volume::status::Placed;
use dcd_engine::volume::{NewDisk, ReplaceError, VolumeParts};
use dcd_engine::{
    Buffer, Device, Duration, Engine, EngineConfig, Input, Io, IoData, IoDone, IoError,
    IoOperation, Lba, LbaRange, OpenError, Operation, Phase, RequestError, Superblock, Time, Uuid,
    VolumeError,
};
use dcd_testkit::{ended, range_of, read_into_used};

use super::options::{MoreFaults, VolumeOptions};
use super::truth::{Column, LinePlace, Sets};
use crate::disk::{Fate, FaultyDisk, Pages};
use crate::faults::IoKind;
use crate::host::io_kind;
use crate::legs::{Legs, LegsOf};
use crate::memory::PooledMemory;
use crate::model::{Shown, Violation, read_block};
use crate::random::Random;
use crate::running::{Flight, NotOpen, Running};

/// So short that regions lose their marks in a run, and are changed meanwhile, too.
const TWIN_QUIET: Duration = Duration::from_millis(300);
/// Pages of checksums that there is memory for, more than any volume here has.
const SUM_PAGES: u64 = 1 << 14;

/// Identity of the caches that are run.
pub(super) const UUID: Uuid = Uuid([0x5a; 16]);
/// I/Os after which a start, or whatever is waited for, must have come to its end.
const IOS_MAX: u64 = 200_000;
/// Longest read.
const READ_BLOCKS_MAX: u64 = 256;
/// An I/O of a leg that hangs ends so much later.
const HANG: Duration = Duration::from_secs(4000);

/// Seconds since 1970 when a machine is turned on.
const CALENDAR: u64 = 1_700_000_000;

/// A member's disk, and what is known of it.
#[derive(Clone)]
pub struct Member {
    /// The disk.
    pub disk: FaultyDisk,
    /// It was there at the last start.
    pub is_there: bool,
    /// Something was wrong with it since it was last known to be up to date.
    pub is_suspect: bool,
    /// Something was wrong with it at some time. A rebuild that has ended is known after the next
    /// write of the journal only.
    pub was_suspect: bool,
    /// Its disk is as it was before the last start: that it has missed something is known.
    pub is_older: bool,
    /// Lines in which it was not what it should be then. A rebuild writes them.
    pub older_lines: BTreeSet<u64>,
    /// What was on the disk that a blank one has replaced, until that is rebuilt.
    pub replaced: Option<Pages>,
    /// A rebuild was begun since.
    pub is_rebuilt: bool,
    /// Byte addresses of lines that were damaged and not written since.
    pub damaged: BTreeSet<u64>,
    /// Those that could not be read once. They are well, and may be written over themselves to
    /// repair them.
    pub unread: BTreeSet<u64>,
    /// Those of both that were written since: a power cut may take that away until a flush of this
    /// mark.
    pub healed: BTreeMap<u64, u64>,
}

/// A disk that takes the place of a member, or has had it.
#[derive(Clone)]
pub struct OtherDisk {
    /// Which member. Of a spare nothing.
    pub member: MemberIndex,
    /// It is, or was to be, a spare, and was never a member.
    pub is_spare: bool,
    /// What the engine that runs calls it; `None`: nothing any more.
    pub slot: Option<u8>,
    /// The disk.
    pub disk: FaultyDisk,
    /// Something was wrong with it.
    pub is_suspect: bool,
    /// As of a [`Member`].
    pub damaged: BTreeSet<u64>,
    unread: BTreeSet<u64>,
    healed: BTreeMap<u64, u64>,
}

impl OtherDisk {
    /// It is the member now, and what was is this.
    pub fn swap(&mut self, member: &mut Member) {
        std::mem::swap(&mut self.disk, &mut member.disk);
        std::mem::swap(&mut self.damaged, &mut member.damaged);
        std::mem::swap(&mut self.unread, &mut member.unread);
        std::mem::swap(&mut self.healed, &mut member.healed);
        // That one is not the older copy; should it come back, nobody looks out for it.
        member.is_older = false;
        member.older_lines.clear();
    }
}

/// An I/O that fails once, or is slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trap {
    /// Of a member; or of the cache-disk, which is neither slow nor tells lies.
    pub device: Device,
    /// Of this kind.
    pub io: IoKind,
    /// What becomes of it.
    pub trick: Trick,
}

/// What is wrong with an I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trick {
    /// It fails.
    Fail,
    /// A flush fails, and what it should have made durable may be gone.
    FailAndDrop,
    /// It ends twenty seconds later.
    Slow,
    /// It ends some seconds later, before anybody gives it up.
    Late,
    /// A write to a redundant set that is reported as done and never was.
    Lose,
    /// The same, and it lands elsewhere.
    Misdirect,
}

/// What a crash leaves.
#[derive(Clone)]
pub struct Wreck {
    /// The cache-disk, or its first leg.
    pub cache_disk: FaultyDisk,
    /// The other leg.
    pub legs: Option<Legs>,
    /// The members.
    pub members: Vec<Member>,
    /// Disks that take the place of a member, or have had it.
    pub others: Vec<OtherDisk>,
    /// Those that were let go before all who listen, by their tags: no start may believe them.
    pub let_go: BTreeSet<(MemberIndex, u64)>,
    /// The segment memory, if only the process died.
    pub memory: Option<Vec<u8>>,
    /// Lines of the volume that may be lost.
    pub lost: BTreeSet<u64>,
    /// Columns that such lines were in.
    pub lost_columns: BTreeSet<Column>,
    /// Columns of RAID 5 of which two lines were bad at once, mapped or not: one of them, or the
    /// parity, may have been given up. The next line of such a column that fails cannot be had from
    /// the others.
    pub given_up: BTreeSet<Column>,
    /// The lines of members that were bad in them then, whatever was mapped there.
    pub given_up_lines: BTreeSet<(MemberIndex, u64)>,
    /// The volume was imported, or has grown: stripes that nothing was placed on then are as they
    /// happened to be.
    pub is_imported: bool,
    /// After so many I/Os of the next start this member fails.
    pub fails_at: Option<(u64, MemberIndex, IoError)>,
    /// The clock goes on.
    pub now: Time,
}

/// The machine.
pub struct Machine {
    /// The engine, and what it waits for.
    pub running: Running,
    /// What a crash leaves, as it is now.
    pub state: Wreck,
    /// I/Os that will fail.
    pub traps: Vec<Trap>,
    /// After so many other reads of the cache-disk one fails.
    pub failing_read: Option<u64>,
    /// Traps that have struck.
    pub struck: u64,
    /// Of them, writes that were reported as done.
    pub writes_lost: u64,
    /// Members that have been rebuilt since the start, at the last look.
    pub members_rebuilt: u64,
    /// Members that were done without since the start, at the last look; `None`: it is not known
    /// yet which there are.
    members_failed: Option<u64>,
    /// A rebuilt member is as good as others only when that is durable.
    pub waits_for_rebuilds: bool,
    /// From one scrub by time to the next.
    scrub_every: Duration,
    /// A member has failed for so long when a spare takes its place; `None`: there are none.
    spare_after: Option<Duration>,
    /// The sets of the volume, and what they hold.
    pub sets: Sets,
    pub(super) capacity_bytes: u64,
    /// Members whose disks were not there, or could not be read, at the start.
    away: Vec<MemberIndex>,
    /// What the engine calls the disk of each member.
    slots: Vec<u8>,
    /// Members that another disk has taken the place of since the start.
    pub replaced: u64,
}

/// Disks with a new cache and a new volume.
pub fn new_volume(options: &VolumeOptions) -> Wreck {
    let header = VolumeHeader {
        uuid: UUID,
        config: options.config.clone(),
        pointers_max: options.pointers_max,
        journal_bytes: options.journal_bytes,
    };
    let geometry = options.cache.geometry();
    let area = VolumeArea::of(&header, geometry.end()).expect("it is small");
    let mut cache_disk =
        FaultyDisk::new((geometry.end() + area.bytes()) as usize + END_MARK_BYTES, 4096);
    let first = create(CreateOptions {
        uuid: UUID,
        geometry,
        data_disk: options.cache.data_disk(),
        data_disk_serial: String::new(),
        created_unix_seconds: 0,
        data_offset_bytes: 0,
        has_end_mark: true,
        has_legs: options.cache.legs.is_some(),
        volume: Some(header),
    });
    for (offset, bytes) in first {
        cache_disk.write(offset, bytes.bytes(), true).expect("a new disk");
    }
    cache_disk.shears = options.cache.shears;
    cache_disk.keeps_same_bytes = true;
    let members = (0..options.config.members as u8).map(|member| {
        let mut disk = FaultyDisk::new(options.member_bytes() as usize, 4096);
        let label = MemberLabel::first(UUID, MemberIndex(member));
        disk.write(0, label.encode().bytes(), true).expect("a new disk");
        disk.shears = options.cache.shears;
        disk.cannot_zero = options.cache.cannot_zero;
        Member {
            disk,
            is_there: true,
            is_suspect: false,
            was_suspect: false,
            is_older: false,
            older_lines: BTreeSet::new(),
            replaced: None,
            is_rebuilt: false,
            damaged: BTreeSet::new(),
            unread: BTreeSet::new(),
            healed: BTreeMap::new(),
        }
    });
    let legs = options.cache.legs.map(|legs| Legs::new(legs, UUID, &mut cache_disk));
    Wreck {
        cache_disk,
        legs,
        members: members.collect(),
        others: Vec::new(),
        let_go: BTreeSet::new(),
        memory: None,
        lost: BTreeSet::new(),
        lost_columns: BTreeSet::new(),
        given_up: BTreeSet::new(),
        given_up_lines: BTreeSet::new(),
        is_imported: false,
        fails_at: None,
        now: Time::ZERO,
    }
}

impl Machine {
    /// A machine with these disks.
    pub fn new(wreck: Wreck, options: &VolumeOptions, is_traced: bool) -> Machine {
        let slots = (0..wreck.members.len() as u8).collect();
        Machine {
            running: Running::new(wreck.now, is_traced),
            state: wreck,
            slots,
            replaced: 0,
            traps: Vec::new(),
            failing_read: None,
            struck: 0,
            writes_lost: 0,
            members_rebuilt: 0,
            members_failed: None,
            waits_for_rebuilds: options.more != MoreFaults::default(),
            scrub_every: Duration::from_secs(options.more.scrub_every_s.unwrap_or(0)),
            spare_after: options.more.spare_after_ms.map(Duration::from_millis),
            sets: Sets::new(&options.config),
            capacity_bytes: options.config.capacity_bytes(),
            away: Vec::new(),
        }
    }

    /// What the engine calls a member now.
    pub fn device_of(&self, member: MemberIndex) -> Device {
        Device::Member(MemberIndex(self.slots[usize::from(member.0)]))
    }

    /// The member that a device is, if it is one.
    fn member_of(&self, device: Device) -> Option<MemberIndex> {
        let Device::Member(slot) = device else { return None };
        let index = self.slots.iter().position(|known| *known == slot.0)?;
        Some(MemberIndex(index as u8))
    }

    /// A disk that has something else where only the old one has something is to take the place of a member.
    pub fn replace_member(
        &mut self,
        member: MemberIndex,
        tag: u64,
        accept_damage: bool,
    ) -> Result<MemberIndex, ReplaceError> {
        let old = &self.state.members[usize::from(member.0)].disk;
        let mut disk = FaultyDisk::new(old.len(), 4096);
        (disk.shears, disk.cannot_zero) = (old.shears, old.cannot_zero);
        for offset in self.sets.raid0_lines(member) {
            disk.rot(offset as usize, &[0xdb; LINE_SIZE as usize]);
        }
        let new = NewDisk { bytes: disk.len() as u64, tag: DiskTag(tag), accept_damage };
        let engine = self.running.engine.as_mut().expect("an engine runs");
        let slot = engine.replace_member(member, new)?;
        // One that may still be asked for something is kept, and so is one that may be what counts:
        // in its place another disk may be given by mistake, or none.
        let running = &self.running;
        let Wreck { others, let_go, .. } = &mut self.state;
        others.retain(|other| {
            let is_asked = |slot: u8| {
                running
                    .ios
                    .iter()
                    .any(|flight| flight.io.device == Device::Member(MemberIndex(slot)))
            };
            let is_of_others =
                other.is_spare || other.member != member || is_let_go(&other.disk, let_go);
            let label = label_of(|at, bytes| other.disk.peek(at, bytes));
            let may_count = label.is_some_and(|label| label.standing == Standing::Member);
            is_of_others || may_count || other.slot.is_some_and(is_asked)
        });
        let slot_of_new = Some(slot.0);
        let lost = self.sets.raid0_lines(member).filter(|_| accept_damage).collect();
        self.state.others.push(OtherDisk {
            member,
            is_spare: false,
            slot: slot_of_new,
            disk,
            is_suspect: false,
            damaged: lost,
            unread: BTreeSet::new(),
            healed: BTreeMap::new(),
        });
        self.input(Input::Timeout);
        Ok(slot)
    }

    /// A disk that has something else where only members have something is to be a spare.
    pub fn add_spare(&mut self, tag: u64) -> Result<MemberIndex, ReplaceError> {
        let old = &self.state.members[0].disk;
        let mut disk = FaultyDisk::new(old.len(), 4096);
        (disk.shears, disk.cannot_zero) = (old.shears, old.cannot_zero);
        for member in (0..self.state.members.len() as u8).map(MemberIndex) {
            for offset in self.sets.raid0_lines(member) {
                disk.rot(offset as usize, &[0xdb; LINE_SIZE as usize]);
            }
        }
        let new = NewDisk { bytes: disk.len() as u64, tag: DiskTag(tag), accept_damage: false };
        let engine = self.running.engine.as_mut().expect("an engine runs");
        let slot = engine.add_spare(new)?;
        // What became none is nothing any more.
        self.state.others.retain(|other| {
            let label = label_of(|at, bytes| other.disk.peek(at, bytes));
            !other.is_spare || other.slot.is_some() || label.is_some()
        });
        self.state.others.push(OtherDisk {
            member: MemberIndex(0),
            is_spare: true,
            slot: Some(slot.0),
            disk,
            is_suspect: false,
            damaged: BTreeSet::new(),
            unread: BTreeSet::new(),
            healed: BTreeMap::new(),
        });
        self.input(Input::Timeout);
        Ok(slot)
    }

    /// A spare is to be none any more.
    pub fn remove_spare(&mut self, spare: MemberIndex) -> Result<(), VolumeError> {
        let engine = self.running.engine.as_mut().expect("an engine runs");
        engine.remove_spare(spare)?;
        self.input(Input::Timeout);
        Ok(())
    }

    /// So long a member has failed when a spare takes its place, from now on; 0: none does.
    pub fn set_spare_after(&mut self, after: Duration) {
        self.spare_after = Some(after);
        let engine = self.running.engine.as_mut().expect("an engine runs");
        let config = EngineConfig { spare_after: after, ..engine.config().clone() };
        engine.configure(&config).expect("nothing else has changed");
        self.input(Input::Timeout);
    }

    /// As a driver sorts the disks that it is given, by their labels alone: those that are spares,
    /// or were, behind the members. Also one in whose place a spare has come is given.
    fn sort_disks(&mut self, members: &mut [Option<MemberInfo>]) -> Vec<MemberInfo> {
        let count = members.len() as u8;
        let mut infos = Vec::new();
        for (slot, info) in self.slots.iter_mut().zip(members.iter_mut()) {
            let label = info.and_then(|info| info.label);
            if label.is_some_and(|label| label.standing.is_of_other()) {
                *slot = count + infos.len() as u8;
                infos.extend(info.take());
            }
        }
        for other in &mut self.state.others {
            let label = label_of(|at, bytes| other.disk.peek(at, bytes));
            let Some(label) = label.filter(|_| other.disk.failing.is_none()) else { continue };
            let info = MemberInfo { label: Some(label), bytes: other.disk.len() as u64 };
            let index = usize::from(label.member.0);
            if label.standing.is_of_other() {
                other.slot = Some(count + infos.len() as u8);
                infos.push(info);
            } else if self.slots[index] >= count && members[index].is_none() {
                other.slot = Some(label.member.0);
                members[index] = Some(info);
            }
        }
        infos
    }

    /// Members may have moved to other disks.
    fn look_at_slots(&mut self) {
        let Some(volume) = self.engine().volume().filter(|volume| volume.is_open()) else { return };
        let slots: Vec<u8> = volume.status().members.iter().map(|member| member.disk.0).collect();
        for (index, slot) in slots.into_iter().enumerate() {
            let before = std::mem::replace(&mut self.slots[index], slot);
            if before == slot {
                continue;
            }
            self.replaced += 1;
            self.running.trace(|| format!("   member {index} is disk {slot} now, not {before}"));
            let state = self.member_state(MemberIndex(index as u8));
            let Wreck { members, others, let_go, .. } = &mut self.state;
            let new = others.iter_mut().find(|other| other.slot == Some(slot));
            let (new, member) = (new.expect("it was offered"), &mut members[index]);
            new.swap(member);
            (new.slot, new.member) = (Some(before), MemberIndex(index as u8));
            new.is_spare = false;
            if let Some(label) = label_of(|at, bytes| new.disk.peek(at, bytes)) {
                let_go.insert((MemberIndex(index as u8), label.disk.0));
            }
            member.is_suspect |= std::mem::take(&mut new.is_suspect);
            member.is_there = true;
            member.is_older = false;
            member.older_lines.clear();
            self.away.retain(|away| usize::from(away.0) != index);
            self.traps.retain(|trap| trap.device != Device::Member(MemberIndex(before)));
            member.is_rebuilt |= state != MemberState::UpToDate;
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        self.running.engine()
    }

    /// Its volume.
    pub fn volume(&self) -> &dcd_engine::volume::Volume {
        self.engine().volume().expect("it has one")
    }

    // ---- starting -----------------------------------------------------------------------------

    /// Opens the cache, with the members that are there.
    pub fn open(
        &mut self,
        options: &VolumeOptions,
        ios_max: Option<u64>,
        random: &mut Random,
    ) -> Result<(), NotOpen> {
        let violation = |what: &str| Err(NotOpen::Violation(Violation(what.into())));
        let (superblock, legs) = self.find_superblock()?;
        let header = {
            let mut bytes = vec![0; VOLUME_HEADER_BYTES];
            let primary = legs.as_ref().map(|parts| LegIndex(parts.choice.primary as u8));
            let disk = self.cache_disk_of(primary);
            disk.peek(superblock.volume_offset() as usize, &mut bytes);
            VolumeHeader::decode(&bytes)
                .map_err(|error| NotOpen::Refused(OpenError::Format(error)))?
        };
        let no_log = options.more.without_log;
        let config = EngineConfig {
            accept_damage: false,
            no_log,
            scrub_every: self.scrub_every,
            twin_quiet: TWIN_QUIET,
            spare_after: self.spare_after.unwrap_or(Duration(0)),
            legs,
            volume_memory_bytes: options.more.sum_pages.unwrap_or(SUM_PAGES) * PAGE_BYTES as u64,
            ..options.cache.engine()
        };
        let members = self.state.members.iter().map(|member| {
            let mut copies = [(); 2].map(|()| vec![0; MEMBER_LABEL_BYTES]);
            // A disk that cannot be read is as one that is not there.
            let is_readable = member.is_there
                && LABEL_OFFSETS
                    .into_iter()
                    .zip(&mut copies)
                    .all(|(offset, copy)| member.disk.read(offset, copy).is_ok());
            is_readable.then(|| MemberInfo {
                label: MemberLabel::newest(&copies[0], &copies[1]),
                bytes: member.disk.len() as u64,
            })
        });
        let mut members: Vec<Option<MemberInfo>> = members.collect();
        let infos = (0..).map(MemberIndex).zip(&members);
        self.away = infos.filter(|(_, info)| info.is_none()).map(|(index, _)| index).collect();
        let others = match self.spare_after {
            Some(_) => self.sort_disks(&mut members),
            None => Vec::new(),
        };
        let parts = VolumeParts { header, members, others, degraded: true };
        let size = Engine::segment_memory_size(&superblock.geometry, &config);
        let memory = self.state.memory.take();
        let opened = Engine::open_volume(
            self.running.now,
            superblock,
            self.state.cache_disk.len() as u64,
            parts,
            config,
            Box::new(PooledMemory::new(size, memory.as_deref())),
        );
        match opened {
            Ok(mut engine) => {
                self.tell_calendar(&mut engine, options, random);
                self.running.engine = Some(engine);
            }
            Err(error) => return Err(NotOpen::Refused(error)),
        }
        self.poll();
        let mut ios = 0;
        let mut are_compared = false;
        loop {
            if self.engine().legs_are_alike() && !std::mem::replace(&mut are_compared, true) {
                let end = self.running.engine().superblock().end() as usize;
                let legs = self.legs_of().expect("it has some");
                legs.compare(end).map_err(NotOpen::Violation)?;
            }
            if let Some((at, member, error)) = self.state.fails_at
                && ios >= at
            {
                self.state.fails_at = None;
                let member = &mut self.state.members[usize::from(member.0)];
                member.disk.failing = Some(error);
                member.is_suspect = true;
                self.struck += 1;
            }
            // A rebuild goes on while the log is still being opened.
            if self.has_failed() && self.volume().is_open() {
                self.note_losses();
            }
            match self.engine().phase().clone() {
                Phase::Opening if Some(ios) == ios_max => return Err(NotOpen::Interrupted),
                Phase::Opening if ios > IOS_MAX => return violation("recovery does not end"),
                Phase::Opening => self.end_one_io(random),
                Phase::Running => {
                    self.state.fails_at = None;
                    return Ok(());
                }
                Phase::Failed(error) => return Err(NotOpen::Refused(error)),
                Phase::Closed => return violation("closed by itself"),
            }
            ios += 1;
        }
    }

    /// A calendar that is wrong now and then.
    fn tell_calendar(&self, engine: &mut Engine, options: &VolumeOptions, random: &mut Random) {
        if options.more.scrub_every_s.is_none() {
            return;
        }
        let right = CALENDAR + self.running.now.0 / 1_000_000_000;
        let seconds = match random.below(8) {
            0 => random.below(2 * CALENDAR),
            1 => right.saturating_sub(random.below(1000)),
            _ => right,
        };
        engine.set_calendar(self.running.now, seconds);
    }

    /// From one scrub to the next, from now on.
    pub fn set_scrub_every(&mut self, every: Duration) {
        self.scrub_every = every;
        let engine = self.running.engine.as_mut().expect("an engine runs");
        let config = EngineConfig { scrub_every: every, ..engine.config().clone() };
        engine.configure(&config).expect("nothing else has changed");
        self.input(Input::Timeout);
    }

    /// The superblock of the cache-disk, and its legs if it is on some.
    fn find_superblock(&mut self) -> Result<(Superblock, Option<Box<LegsParts>>), NotOpen> {
        let (found, legs) = match &mut self.state.legs {
            Some(legs) => {
                let chosen = legs.choose(&mut self.state.cache_disk);
                let (found, parts) = chosen.map_err(NotOpen::Violation)?;
                (found, Some(Box::new(parts)))
            }
            None => {
                let copies = SUPERBLOCK_OFFSETS.map(|offset| {
                    let mut bytes = vec![0; 4096];
                    self.state.cache_disk.peek(offset as usize, &mut bytes);
                    bytes
                });
                (Superblock::newest(&copies[0], &copies[1]), None)
            }
        };
        let superblock = found.map_err(|error| NotOpen::Refused(OpenError::Format(error)))?;
        Ok((superblock, legs))
    }

    // ---- the loop -----------------------------------------------------------------------------

    pub(super) fn input(&mut self, input: Input) {
        self.running.give(input);
        self.poll();
        self.look_at_growth();
        self.look_at_slots();
        self.look_at_members();
    }

    /// A start has got to the members, or one is done without from now on: what nobody holds any
    /// more may be given up at once.
    fn look_at_members(&mut self) {
        let open = self.engine().volume().filter(|volume| volume.is_open());
        let failed = open.map(|volume| volume.status().counters.members_failed);
        if failed.is_some() && self.members_failed != failed {
            self.members_failed = failed;
            self.note_losses();
        }
    }

    fn poll(&mut self) {
        while let Some(io) = self.running.next_io() {
            self.start(io);
        }
    }

    fn start(&mut self, io: Io) {
        let flush_mark = self.disk(io.device).flush_mark();
        let slow = self.take_trap(&io, true);
        let is_slow = slow.is_some();
        let delay = match slow.map(|trap| trap.trick) {
            None => Duration(0),
            Some(Trick::Late) => Duration::from_secs(5),
            Some(_) => Duration::from_secs(20),
        };
        let mut not_before = if is_slow { self.running.now.after(delay) } else { Time::ZERO };
        if let (Device::Leg(leg), Some(mut legs)) = (io.device, self.legs_of())
            && legs.hangs(leg)
        {
            not_before = self.running.now.after(HANG);
        }
        self.running.ios.push(Flight { io, flush_mark, not_before, early: None });
    }

    /// Asks for something; the reply comes among [`Running::replies`].
    pub fn submit(&mut self, operation: Operation, fua: bool) {
        let request = self.running.request(operation, fua);
        self.input(request);
    }

    /// Lets time pass.
    pub fn pass(&mut self, duration: Duration) {
        self.running.now = self.running.now.after(duration);
        self.input(Input::Timeout);
    }

    /// Lets time pass until something happens. False if nothing ever will.
    pub fn wake(&mut self) -> bool {
        let Some(at) = self.running.next_moment() else { return !self.running.ios.is_empty() };
        self.running.now = at;
        self.input(Input::Timeout);
        true
    }

    /// Whether a member is being written at this byte address: what is there now is no promise yet.
    pub fn is_being_written(&self, member: MemberIndex, at: u64) -> bool {
        self.running.ios.iter().any(|flight| {
            flight.io.device == self.device_of(member)
                && io_kind(&flight.io.operation) != IoKind::Read
                && range_of(&flight.io.operation).contains(&at)
        })
    }

    /// Whether a member fails now.
    pub fn has_failed(&self) -> bool {
        self.state.members.iter().any(|member| member.disk.failing.is_some())
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.running.ios.is_empty()
    }

    /// Ends an I/O that may end now; without one, lets time pass.
    pub fn end_one_io(&mut self, random: &mut Random) {
        let Some(flight) = self.running.take_ready(random) else {
            self.wake();
            return;
        };
        let done = self.perform(flight, random);
        self.input(Input::IoDone(done));
    }

    /// Lets everything come to an end that will by itself. False if it does not.
    pub fn come_to_rest(&mut self, ios_max: u64, random: &mut Random) -> bool {
        for _ in 0..ios_max {
            if self.running.has_ready_io() {
                self.end_one_io(random);
                continue;
            }
            let before = self.running.now;
            if !self.wake() || self.running.now == before {
                return true;
            }
        }
        false
    }

    // ---- doing an I/O -------------------------------------------------------------------------

    fn disk(&mut self, device: Device) -> &mut FaultyDisk {
        match device {
            Device::CacheDisk => &mut self.state.cache_disk,
            Device::Member(slot) => match self.member_of(device) {
                Some(member) => &mut self.state.members[usize::from(member.0)].disk,
                None => {
                    let mut others = self.state.others.iter_mut();
                    let other = others.find(|other| other.slot == Some(slot.0));
                    &mut other.expect("a disk that was offered").disk
                }
            },
            Device::Leg(leg) => self.cache_disk_of(Some(leg)),
            Device::DataDisk | Device::Witness | Device::Nvram => {
                panic!("I/O of what a volume has not")
            }
        }
    }

    /// The cache-disk, or one of its legs.
    fn cache_disk_of(&mut self, leg: Option<LegIndex>) -> &mut FaultyDisk {
        match (leg, &mut self.state.legs) {
            (Some(leg), Some(legs)) => legs.disk_of(leg, &mut self.state.cache_disk),
            _ => &mut self.state.cache_disk,
        }
    }

    fn legs_of(&mut self) -> Option<LegsOf<'_>> {
        let Machine { running, state: Wreck { cache_disk: first, legs, .. }, .. } = self;
        legs.as_mut().map(|legs| LegsOf { running, first, legs })
    }

    fn take_trap(&mut self, io: &Io, is_slow: bool) -> Option<Trap> {
        let kind = io_kind(&io.operation);
        let fits = |trap: &Trap| {
            trap.device == io.device
                && trap.io == kind
                && matches!(trap.trick, Trick::Slow | Trick::Late) == is_slow
                && (matches!(
                    trap.trick,
                    Trick::Fail | Trick::FailAndDrop | Trick::Slow | Trick::Late
                ) || self.redundant_lines(io).is_some())
        };
        let index = self.traps.iter().position(fits)?;
        self.struck += 1;
        self.running.trace(|| format!("   a trap strikes {io:?}"));
        let trap = self.traps.swap_remove(index);
        // Of a lie about a write nobody can know.
        let is_noticed = matches!(trap.trick, Trick::Fail | Trick::FailAndDrop | Trick::Slow);
        match (self.member_of(io.device), io.device) {
            (Some(member), _) => {
                self.state.members[usize::from(member.0)].is_suspect |= is_noticed;
            }
            (None, Device::Member(slot)) => {
                let mut others = self.state.others.iter_mut();
                let other = others.find(|other| other.slot == Some(slot.0));
                other.expect("a disk that was offered").is_suspect |= is_noticed;
            }
            _ => {}
        }
        Some(trap)
    }

    /// Byte addresses of the lines of a write, if all are in a redundant set; and how large that
    /// set is there.
    fn redundant_lines(&self, io: &Io) -> Option<(Range<u64>, Range<u64>)> {
        let member = self.member_of(io.device)?;
        let IoOperation::Write { offset, data: IoData::Owned(buffer), .. } = &io.operation else {
            return None;
        };
        let (set, ..) = self.sets.column_at(member, *offset)?;
        let layout = self.sets.layout(set);
        let slice = layout.offset(0, 0)..layout.offset(layout.stripes(), 0);
        let lines = *offset..*offset + buffer.len() as u64;
        (layout.level().is_redundant() && lines.end <= slice.end).then_some((lines, slice))
    }

    /// A write is reported as done; what it was for is as it was, and perhaps other lines are not.
    fn lie(&mut self, io: Io, trick: Trick, random: &mut Random) -> IoDone {
        let (lines, slice) = self.redundant_lines(&io).expect("it was chosen for this");
        let (Some(member), IoOperation::Write { data: IoData::Owned(buffer), .. }) =
            (self.member_of(io.device), &io.operation)
        else {
            unreachable!("a write of a member")
        };
        let disk = &mut self.state.members[usize::from(member.0)];
        if disk.disk.failing.is_some() {
            return ended(io, Err(IoError::Failed));
        }
        self.writes_lost += 1;
        disk.older_lines.clear();
        disk.damaged.extend(lines.clone().step_by(LINE_SIZE as usize));
        if trick == Trick::Misdirect {
            let room = (slice.end - slice.start - (lines.end - lines.start)) / LINE_SIZE;
            let to = slice.start + random.below(room + 1) * LINE_SIZE;
            disk.disk.rot(to as usize, buffer.bytes());
            let hit = to..to + buffer.len() as u64;
            disk.damaged.extend(hit.step_by(LINE_SIZE as usize));
        }
        self.note_losses();
        ended(io, Ok(()))
    }

    fn perform(&mut self, flight: Flight, random: &mut Random) -> IoDone {
        let Flight { mut io, flush_mark, .. } = flight;
        let trap = self.take_trap(&io, false);
        let is_lie = |trap: &Trap| !matches!(trap.trick, Trick::Fail | Trick::FailAndDrop);
        if let Some(trap) = trap.filter(is_lie) {
            return self.lie(io, trap.trick, random);
        }
        let device = io.device;
        if trap.is_some() {
            self.fail_once(&io);
        }
        if let (Device::Leg(leg), Some(mut legs)) = (device, self.legs_of())
            && let Some(error) = legs.strike(leg, &io, random)
        {
            return ended(io, Err(error));
        }
        let result = match &mut io.operation {
            IoOperation::Read { offset, buffer } => {
                match trap.is_some() || self.is_failing_read(device) {
                    true => Err(IoError::Failed),
                    false => self.disk(device).read(*offset, buffer.bytes_mut()),
                }
            }
            IoOperation::Write { offset, data: IoData::Owned(buffer), fua } => {
                self.write(device, *offset, buffer.bytes(), *fua, trap, random)
            }
            IoOperation::Write { offset, data: IoData::SegmentMemory(range), fua } => {
                // The engine does not change these bytes meanwhile; the borrow checker cannot know.
                let engine = self.running.engine.take().expect("an engine runs");
                let bytes = &engine.segment_memory()[range.clone()];
                let result = self.write(device, *offset, bytes, *fua, trap, random);
                self.running.engine = Some(engine);
                result
            }
            IoOperation::WriteZeroes { .. } if self.disk(device).cannot_zero => {
                Err(IoError::Unsupported)
            }
            IoOperation::WriteZeroes { offset, length, .. } => {
                let zeroes = vec![0; *length as usize];
                self.write(device, *offset, &zeroes, false, trap, random)
            }
            IoOperation::Flush => match trap {
                Some(trap) => {
                    if trap.trick == Trick::FailAndDrop {
                        self.drop_unflushed(device, random);
                    }
                    Err(IoError::Failed)
                }
                None => self.flush(device, flush_mark),
            },
        };
        ended(io, result)
    }

    /// Whether a read of the cache-disk is under way.
    pub fn reads_cache_disk(&self) -> bool {
        let is_read = |io: &Io| matches!(io.operation, IoOperation::Read { .. });
        self.running
            .ios
            .iter()
            .any(|flight| flight.io.device == Device::CacheDisk && is_read(&flight.io))
    }

    fn is_failing_read(&mut self, device: Device) -> bool {
        let Some(others) = &mut self.failing_read else { return false };
        if device != Device::CacheDisk {
            return false;
        }
        let fails = *others == 0;
        *others = others.saturating_sub(1);
        if fails {
            self.failing_read = None;
            self.struck += 1;
            self.running.trace(|| "   this read of the cache-disk fails".into());
        }
        fails
    }

    /// What was written and not flushed will never be durable, whatever is flushed.
    fn drop_unflushed(&mut self, device: Device, random: &mut Random) {
        self.disk(device).drop_unflushed(random);
        if let Some(member) = self.member_of(device) {
            let member = &mut self.state.members[usize::from(member.0)];
            member.damaged.extend(std::mem::take(&mut member.healed).into_keys());
        }
    }

    fn flush(&mut self, device: Device, mark: u64) -> Result<(), IoError> {
        self.disk(device).flush(mark)?;
        if let Some(member) = self.member_of(device) {
            self.state.members[usize::from(member.0)].healed.retain(|_, healed| *healed > mark);
        }
        Ok(())
    }

    fn write(
        &mut self,
        device: Device,
        offset: u64,
        bytes: &[u8],
        fua: bool,
        trap: Option<Trap>,
        random: &mut Random,
    ) -> Result<(), IoError> {
        let result = match trap {
            Some(_) => {
                self.disk(device).land(offset, bytes, Fate::draw(random), random);
                Err(IoError::Failed)
            }
            None => self.disk(device).write(offset, bytes, fua),
        };
        if let Some(member) = self.member_of(device) {
            if result.is_err() {
                self.note_not_written(member, offset..offset + bytes.len() as u64);
                return result;
            }
            self.note_missed(member, offset..offset + bytes.len() as u64);
            let whole = offset.next_multiple_of(LINE_SIZE)..(offset + bytes.len() as u64);
            let is_written = |line: &u64| whole.contains(line) && line + LINE_SIZE <= whole.end;
            if self.state.members[usize::from(member.0)].damaged.iter().any(is_written) {
                // It may be a repair by somebody who has found out that this cannot be had any
                // more.
                self.note_losses();
            }
            let member = &mut self.state.members[usize::from(member.0)];
            let mark = member.disk.flush_mark();
            let healed = member.damaged.extract_if(.., is_written);
            let healed = healed.chain(member.unread.extract_if(.., is_written));
            member.healed.extend(healed.filter(|_| !fua).map(|line| (line, mark)));
        }
        result
    }

    /// A write has failed. Where the others cannot do without the member it goes on being believed,
    /// and its lines are not what they should be until they are written: the log has them, and
    /// checksums tell.
    fn note_not_written(&mut self, member: MemberIndex, range: Range<u64>) {
        let is_well = |other: MemberIndex| {
            !self.away.contains(&other) && self.member_state(other) == MemberState::UpToDate
        };
        let mut others = (0..self.state.members.len()).map(|index| MemberIndex(index as u8));
        if others.any(|other| other != member && !is_well(other)) {
            let lines =
                (range.start / LINE_SIZE..range.end.div_ceil(LINE_SIZE)).map(|l| l * LINE_SIZE);
            self.state.members[usize::from(member.0)].damaged.extend(lines);
        }
    }

    /// What is written to a set while a member is away that is not done without, because the others
    /// cannot, is missing on its disk: it will be believed when it comes back.
    fn note_missed(&mut self, written: MemberIndex, range: Range<u64>) {
        for away in self.away.clone() {
            if self.member_state(away) == MemberState::Stale {
                continue;
            }
            for line in range.clone().step_by(LINE_SIZE as usize) {
                let Some((set, ..)) = self.sets.column_at(written, line) else { continue };
                let layout = self.sets.layout(set);
                let places = (layout.place_of(written), layout.place_of(away));
                let (Some(place), Some(missing)) = places else { continue };
                let is_concerned = match layout.level() {
                    RaidLevel::Raid0 => false,
                    RaidLevel::Raid1 => layout.mirrors(place).contains(&missing),
                    RaidLevel::Raid5 => true,
                };
                if is_concerned {
                    self.state.members[usize::from(away.0)].damaged.insert(line);
                }
            }
        }
    }

    /// The lines of an I/O that fails once are as damaged as long as it lasts.
    fn fail_once(&mut self, io: &Io) {
        let Some(member) = self.member_of(io.device) else { return };
        // What was written before a flush that fails is as good as the disk makes it.
        if matches!(io.operation, IoOperation::Flush) {
            return;
        }
        let Range { start, end } = range_of(&io.operation);
        let index = usize::from(member.0);
        let before = self.state.members[index].damaged.clone();
        let lines = (start / LINE_SIZE..end.div_ceil(LINE_SIZE)).map(|l| l * LINE_SIZE);
        self.state.members[index].damaged.extend(lines.clone());
        self.note_losses();
        self.state.members[index].damaged = before;
        if matches!(io.operation, IoOperation::Read { .. }) {
            self.state.members[index].unread.extend(lines);
        }
    }

    // ---- what is lost -------------------------------------------------------------------------

    /// Where the lines of the volume are that are anywhere.
    pub fn places(&self) -> Result<Vec<(u64, LinePlace)>, Violation> {
        let volume = self.volume();
        let lines = volume.config().logical_bytes / LINE_SIZE;
        let mut places = Vec::new();
        for line in 0..lines {
            let Some(placed) = volume.place(Lba(line * (LINE_SIZE / BLOCK_SIZE))) else { continue };
            let place = self.sets.place_at(usize::from(placed.set), placed.member, placed.offset);
            let place = place.ok_or_else(|| {
                Violation(format!("line {line} is at {placed:?}, where its set has no data"))
            })?;
            places.push((line, place));
        }
        Ok(places)
    }

    fn is_bad(&self, member: MemberIndex, offset: u64, is_redundant: bool) -> bool {
        let disk = &self.state.members[usize::from(member.0)];
        let state = self.member_state(member);
        !disk.is_there
            || disk.disk.failing.is_some()
            || disk.damaged.contains(&offset)
            || is_redundant && state != MemberState::UpToDate
    }

    /// For people: where a block is, and how what it could be had from is.
    pub fn describe(&self, block: u64) -> String {
        let line = block / (LINE_SIZE / BLOCK_SIZE);
        let places = self.places().unwrap_or_default();
        let Some((_, place)) = places.into_iter().find(|(known, _)| *known == line) else {
            return "it has no place".into();
        };
        let layout = self.sets.layout(place.set);
        let offset = layout.offset(place.stripe, place.line_in_unit);
        let mut text = format!("{:?}, {place:?} at {offset}", layout.level());
        for member in (0..layout.places()).map(|place| layout.member(place)) {
            let disk = &self.state.members[usize::from(member.0)];
            let holds = self.sets.copies(place).any(|(copy, _)| copy == member);
            text += &format!("; {}: {:?}", member.0, self.member_state(member));
            for (is_so, what) in [
                (holds, "has it"),
                (!disk.is_there, "is not there"),
                (disk.disk.failing.is_some(), "fails"),
                (disk.damaged.contains(&offset), "damaged there"),
            ] {
                if is_so {
                    text += &format!(", {what}");
                }
            }
        }
        text
    }

    /// Something has gone wrong: what cannot be had any more may fail to read until it is
    /// overwritten.
    pub fn note_losses(&mut self) {
        let Ok(places) = self.places() else { return };
        self.note_given_up(&places);
        for (line, place) in places {
            let is_redundant = self.sets.layout(place.set).level().is_redundant();
            let is_bad = |member, offset| self.is_bad(member, offset, is_redundant);
            let column = place.column();
            let (own, offset) = self.sets.copies(place).next().expect("it is somewhere");
            let is_own_bad = is_bad(own, offset);
            let is_lost = self.sets.is_lost(place, is_bad);
            if is_own_bad && self.state.given_up.contains(&column) {
                self.state.lost.insert(line);
            }
            if is_lost {
                self.state.lost.insert(line);
                self.state.lost_columns.insert(place.column());
            }
        }
    }

    /// Columns of RAID 5 of which two lines are bad: those of lines that have a place, and those
    /// with damage.
    fn note_given_up(&mut self, places: &[(u64, LinePlace)]) {
        let mut columns: BTreeSet<Column> =
            places.iter().map(|(_, place)| place.column()).collect();
        for (index, member) in (0..).map(MemberIndex).zip(&self.state.members) {
            let damaged = member.damaged.iter();
            columns.extend(damaged.filter_map(|offset| self.sets.column_at(index, *offset)));
        }
        for column in columns {
            let is_bad = |member, offset| self.is_bad(member, offset, true);
            if !self.sets.is_doubly_bad(column, is_bad) {
                continue;
            }
            let layout = self.sets.layout(column.0);
            let offset = layout.offset(column.1, column.2);
            let members = (0..layout.places()).map(|place| layout.member(place));
            let bad: Vec<_> = members.filter(|member| is_bad(*member, offset)).collect();
            self.state.given_up.insert(column);
            self.state.given_up_lines.extend(bad.into_iter().map(|member| (member, offset)));
        }
    }

    /// Members that are up to date after a rebuild or a start are as good as others.
    pub fn clear_suspects(&mut self, is_after_start: bool) {
        let status = self.volume().status();
        let is_idle = self.volume().is_idle();
        for (member, status) in self.state.members.iter_mut().zip(&status.members) {
            let is_well = member.is_there
                && member.disk.failing.is_none()
                && status.state == MemberState::UpToDate;
            member.was_suspect |= member.is_suspect;
            // A start goes on with a rebuild, and may have ended it.
            member.is_rebuilt |= is_after_start;
            let is_known = is_idle || !self.waits_for_rebuilds;
            if member.is_suspect && is_well && member.is_rebuilt && is_known {
                member.is_suspect = false;
                member.replaced = None;
                for line in std::mem::take(&mut member.older_lines) {
                    member.damaged.remove(&line);
                }
            }
            member.is_rebuilt &= member.is_suspect;
            member.is_older &= member.is_suspect;
        }
    }

    /// Whether members are such that not everything can be written.
    pub fn may_refuse(&self) -> bool {
        let status = self.volume().status();
        self.sets.may_refuse(|member| {
            let index = usize::from(member.0);
            let disk = &self.state.members[index];
            disk.is_suspect || status.members[index].state != MemberState::UpToDate
        })
    }

    /// How the engine takes a member.
    pub fn member_state(&self, member: MemberIndex) -> MemberState {
        self.volume().member_state(member)
    }

    /// Whether a block may fail to be read.
    pub fn may_be_lost(&self, block: u64) -> bool {
        let is_given_up =
            |placed: Placed| self.state.given_up_lines.contains(&(placed.member, placed.offset));
        self.state.lost.contains(&(block / (LINE_SIZE / BLOCK_SIZE)))
            || self.volume().place(Lba(block)).is_some_and(is_given_up)
    }

    // ---- crashing -----------------------------------------------------------------------------

    /// The disks, now.
    pub fn disks(&self) -> Wreck {
        let mut wreck = Wreck { now: self.running.now, ..self.state.clone() };
        if let (Some(legs), Some(engine)) = (&mut wreck.legs, &self.running.engine) {
            legs.note(&engine.legs().collect::<Vec<_>>(), engine.leg_witness());
        }
        wreck
    }

    /// What a crash at this instant leaves.
    pub fn wreck(&self, power: bool, random: &mut Random) -> Wreck {
        let draw = |random: &mut Random, is_flying: bool| match is_flying && !power {
            // The process died and the disks live on: not torn.
            true => random.pick(&[Fate::Dropped, Fate::Kept]),
            false => Fate::draw(random),
        };
        let mut wreck = self.disks();
        self.forget_rebuilt_disks(&mut wreck);
        let memory = self.running.engine.as_ref().map(Engine::segment_memory);
        for flight in &self.running.ios {
            let disk = match flight.io.device {
                Device::CacheDisk => &mut wreck.cache_disk,
                Device::Member(slot) => match self.member_of(flight.io.device) {
                    Some(member) => &mut wreck.members[usize::from(member.0)].disk,
                    None => {
                        let mut others = wreck.others.iter_mut();
                        let other = others.find(|other| other.slot == Some(slot.0));
                        &mut other.expect("a disk that was offered").disk
                    }
                },
                Device::Leg(leg) => {
                    let legs = wreck.legs.as_mut().expect("the cache-disk is on legs");
                    legs.disk_of(leg, &mut wreck.cache_disk)
                }
                Device::DataDisk | Device::Witness | Device::Nvram => {
                    unreachable!("it was not started")
                }
            };
            let memory = memory.unwrap_or_default();
            let Some((offset, bytes)) = flight.written(memory, !disk.cannot_zero) else {
                continue;
            };
            let fate = draw(random, true);
            disk.land(offset, &bytes, fate, random);
            // On a disk that has failed, or did once there, it may be to repair what could not be
            // read. The next start does not write that again; what is torn its checksum finds, when
            // somebody reads it.
            if let (Some(member), IoOperation::Write { .. }) =
                (self.member_of(flight.io.device), &flight.io.operation)
            {
                let member = &mut wreck.members[usize::from(member.0)];
                let lines = offset..offset + bytes.len() as u64;
                let lines = lines.step_by(LINE_SIZE as usize);
                let is_repaired = |line: &u64| member.is_suspect || member.unread.contains(line);
                // What could not be read may have been right, and was written over itself.
                let is_torn = |line: &u64| {
                    let mut found = [0; LINE_SIZE as usize];
                    member.disk.peek(*line as usize, &mut found);
                    found != bytes[(*line - offset) as usize..][..found.len()]
                };
                let torn: Vec<u64> = lines.filter(is_repaired).filter(is_torn).collect();
                member.damaged.extend(torn);
            }
        }
        for other in &mut wreck.others {
            other.slot = None;
        }
        // A leg that vanished is there again.
        if let Some(legs) = &mut wreck.legs {
            (legs.disk.failing, wreck.cache_disk.failing) = (None, None);
            if power {
                legs.disk.power_cut(random, |random| draw(random, false));
            }
        }
        if power {
            wreck.cache_disk.power_cut(random, |random| draw(random, false));
            for member in &mut wreck.members {
                member.disk.power_cut(random, |random| draw(random, false));
                // What has rotted may be on the medium still.
                member.damaged.extend(std::mem::take(&mut member.healed).into_keys());
            }
            for other in &mut wreck.others {
                other.disk.power_cut(random, |random| draw(random, false));
            }
            wreck.memory = None;
        } else {
            wreck.memory = memory.map(<[u8]>::to_vec);
        }
        wreck
    }

    /// A disk from an earlier start is stale until it is rebuilt. What an engine that runs has
    /// begun to rebuild is not that disk any more, and a later start may end the rebuild and
    /// believe it.
    fn forget_rebuilt_disks(&self, wreck: &mut Wreck) {
        let is_running = |engine: &Engine| *engine.phase() == Phase::Running;
        if !self.running.engine.as_ref().is_some_and(is_running) {
            return;
        }
        let status = self.volume().status();
        for (member, status) in wreck.members.iter_mut().zip(&status.members) {
            member.is_older &= status.state == MemberState::Stale;
        }
    }

    // ---- reading back -------------------------------------------------------------------------

    /// What blocks show. They are ascending.
    pub fn read_blocks(
        &mut self,
        blocks: &[u64],
        random: &mut Random,
    ) -> Result<Vec<(u64, Shown)>, Violation> {
        let mut shown = Vec::with_capacity(blocks.len());
        let mut rest = blocks;
        while let Some(first) = rest.first().copied() {
            let end = first / READ_BLOCKS_MAX * READ_BLOCKS_MAX + READ_BLOCKS_MAX;
            let next = |count: usize| first + count as u64;
            let is_run = |count: &usize| rest.get(*count) == Some(&next(*count));
            let count = (1..).take_while(|count| is_run(count) && next(*count) < end).count() + 1;
            self.read_run(first, count as u64, random, &mut shown)?;
            rest = &rest[count..];
        }
        Ok(shown)
    }

    fn read_run(
        &mut self,
        first: u64,
        count: u64,
        random: &mut Random,
        shown: &mut Vec<(u64, Shown)>,
    ) -> Result<(), Violation> {
        let unit = LINE_SIZE / BLOCK_SIZE;
        let start = first / unit * unit;
        let end = (first + count).next_multiple_of(unit);
        match self.read_through(LbaRange::new(start, end - start), random)? {
            Some(bytes) => shown.extend((first..first + count).map(|block| {
                let at = ((block - start) * BLOCK_SIZE) as usize;
                (block, read_block(&bytes[at..at + BLOCK_SIZE as usize], block))
            })),
            None if end - start <= unit => {
                shown.extend((first..first + count).map(|block| (block, Shown::Error)));
            }
            None => {
                let middle = (start + (end - start) / unit / 2 * unit).max(first);
                self.read_run(first, middle - first, random, shown)?;
                self.read_run(middle, first + count - middle, random, shown)?;
            }
        }
        Ok(())
    }

    /// Reads now, and does whatever else must end before. `None`: an error.
    fn read_through(
        &mut self,
        range: LbaRange,
        random: &mut Random,
    ) -> Result<Option<Vec<u8>>, Violation> {
        let buffer = self.ask(read_into_used(range), random)?;
        Ok(buffer.ok().flatten().map(|buffer| buffer.bytes().to_vec()))
    }

    /// Asks, and waits for the answer: what was read, or why it failed.
    pub fn ask(
        &mut self,
        operation: Operation,
        random: &mut Random,
    ) -> Result<Result<Option<Buffer>, RequestError>, Violation> {
        let id = self.running.next_request;
        let what = self.running.is_traced.then(|| format!("{operation:?}"));
        self.submit(operation, false);
        for _ in 0..IOS_MAX {
            if let Some(index) = self.running.replies.iter().position(|reply| reply.id.0 == id) {
                let reply = self.running.replies.remove(index);
                return Ok(reply.result.map(|()| reply.buffer));
            }
            self.end_one_io(random);
        }
        Err(Violation(format!("a request is never answered {}", what.unwrap_or_default())))
    }
}

/// The label of a disk.
pub(super) fn label_of(read: impl Fn(usize, &mut [u8])) -> Option<MemberLabel> {
    let copies = LABEL_OFFSETS.map(|offset| {
        let mut bytes = vec![0; MEMBER_LABEL_BYTES];
        read(offset as usize, &mut bytes);
        bytes
    });
    MemberLabel::newest(&copies[0], &copies[1])
}

/// Whether no start may believe a disk.
pub(super) fn is_let_go(disk: &FaultyDisk, let_go: &BTreeSet<(MemberIndex, u64)>) -> bool {
    let label = label_of(|at, bytes| disk.peek(at, bytes));
    label.is_some_and(|label| let_go.contains(&(label.member, label.disk.0)))
}
