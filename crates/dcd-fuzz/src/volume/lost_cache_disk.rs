//! The cache-disk of a volume is destroyed, and the volume is imported from its members.

use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::end_mark::END_MARK_BYTES;
use dcd_engine::units::MemberIndex;
use dcd_engine::volume::Volume;
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel};
use dcd_engine::volume::import::{self, ImportDisks, ImportError, ImportReport};
use dcd_engine::{Buffer, IoError};

use super::crash::swap_disks;
use super::machine::{Machine, Member, OtherDisk, UUID, Wreck, label_of};
use super::options::VolumeOptions;
use super::run::VolumeRun;
use crate::disk::{Fate, FaultyDisk};
use crate::model::Violation;
use crate::random::Random;
use crate::running::NotOpen;

/// The disks of an import. After so many writes the power fails.
struct Disks<'a> {
    members: &'a mut [Member],
    cache_disk: FaultyDisk,
    writes_left: Option<u64>,
}

impl Disks<'_> {
    fn member(&mut self, member: MemberIndex) -> &mut FaultyDisk {
        &mut self.members[usize::from(member.0)].disk
    }

    fn take_write(&mut self) -> Result<(), IoError> {
        let Some(left) = &mut self.writes_left else { return Ok(()) };
        *left = left.checked_sub(1).ok_or(IoError::Gone)?;
        Ok(())
    }
}

impl ImportDisks for Disks<'_> {
    fn read_member(
        &mut self,
        member: MemberIndex,
        offset: u64,
        buffer: &mut Buffer,
    ) -> Result<(), IoError> {
        self.member(member).read(offset, buffer.bytes_mut())
    }

    fn write_member(
        &mut self,
        member: MemberIndex,
        offset: u64,
        bytes: &Buffer,
    ) -> Result<(), IoError> {
        self.take_write()?;
        self.member(member).write(offset, bytes.bytes(), false)
    }

    fn flush_member(&mut self, member: MemberIndex) -> Result<(), IoError> {
        let disk = self.member(member);
        let mark = disk.flush_mark();
        disk.flush(mark)
    }

    fn write_cache_disk(&mut self, offset: u64, bytes: &Buffer) -> Result<(), IoError> {
        self.take_write()?;
        self.cache_disk.write(offset, bytes.bytes(), false)
    }

    fn flush_cache_disk(&mut self) -> Result<(), IoError> {
        let mark = self.cache_disk.flush_mark();
        self.cache_disk.flush(mark)
    }

    fn progress(&mut self, _: u64, _: u64) {}
}

impl VolumeRun {
    /// Whether the twin alone must bring everything back: nothing is wrong with any member, and
    /// nothing is in the log alone.
    pub(super) fn may_lose_cache_disk(&self, wreck: &Wreck) -> bool {
        let is_well = |member: &Member| {
            member.is_there
                && member.disk.failing.is_none()
                && !member.is_suspect
                && !member.was_suspect
                && !member.is_older
                && member.damaged.is_empty()
        };
        self.options.more.loses_cache_disk
            && self.options.more.without_log
            && wreck.fails_at.is_none()
            && wreck.members.iter().all(is_well)
    }

    /// Destroys it.
    pub(super) fn lose_cache_disk(
        &mut self,
        wreck: &mut Wreck,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let twin = self.machine.volume().status().twin;
        let has_twin = twin.is_some_and(|twin| !twin.holders.is_none());
        self.say(|| "the cache-disk is destroyed".into());
        let old = wreck.cache_disk.clone();
        let mut refused = 0;
        let report = loop {
            let cut = random.one_in(3).then(|| random.below(60));
            match try_import(wreck, &self.options, cut) {
                Ok(report) => break report,
                Err(ImportError::Unwritable { .. }) if cut.is_some() => {
                    for member in &mut wreck.members {
                        member.disk.power_cut(random, Fate::draw);
                    }
                    self.report.volume.imports_cut += 1;
                }
                // Of two disks that have been a member one counts.
                Err(ImportError::Replaced { member }) if self.options.more.replaces_members => {
                    let is_left = |other: &OtherDisk| {
                        other.member == member
                            && label_of(|at, bytes| other.disk.peek(at, bytes)).is_some()
                    };
                    let others = wreck.others.iter().filter(|other| is_left(other)).count();
                    let mut which =
                        (0..wreck.others.len()).filter(|which| is_left(&wreck.others[*which]));
                    let Some(which) = which.nth(refused % others.max(1)) else {
                        return Err(Violation(format!("no disk of {member:?} is taken")));
                    };
                    refused += 1;
                    if refused > 6 {
                        return Err(Violation(format!("no disk of {member:?} is ever taken")));
                    }
                    swap_disks(wreck, which);
                }
                // It was being built.
                Err(ImportError::NobodyHasIt) if !has_twin => {
                    wreck.cache_disk = old;
                    return Ok(());
                }
                Err(error) => return Err(Violation(format!("no import: {error}"))),
            }
        };
        self.report.volume.imports += 1;
        self.report.volume.regions_believed += report.regions_believed;
        if report.lines_lost > 0 {
            return Err(Violation(format!("an import lost {} lines", report.lines_lost)));
        }
        // The old one is refused, should it come back.
        let mut returned = wreck.clone();
        returned.cache_disk = old;
        let mut machine = Machine::new(returned, &self.options, false);
        match machine.open(&self.options, None, random) {
            Err(NotOpen::Refused(_)) => Ok(()),
            Err(NotOpen::Violation(violation)) => Err(violation),
            _ => Err(Violation("the cache-disk that was lost is believed again".into())),
        }
    }
}

/// Replaces the cache-disk by one that is made of what the members have.
fn try_import(
    wreck: &mut Wreck,
    options: &VolumeOptions,
    writes_left: Option<u64>,
) -> Result<ImportReport, ImportError> {
    let labels = wreck.members.iter().filter_map(|member| {
        let copies = LABEL_OFFSETS.map(|offset| {
            let mut bytes = vec![0; MEMBER_LABEL_BYTES];
            member.disk.peek(offset as usize, &mut bytes);
            bytes
        });
        MemberLabel::newest(&copies[0], &copies[1])
    });
    let labels: Vec<MemberLabel> = labels.collect();
    let mut disks =
        Disks { members: &mut wreck.members, cache_disk: FaultyDisk::new(0, 4096), writes_left };
    let found = import::find(&labels, false, &mut disks)?;
    let geometry = options.cache.geometry();
    let bytes = geometry.end() + found.area_bytes();
    let mut cache_disk = FaultyDisk::new(bytes as usize + END_MARK_BYTES, 4096);
    cache_disk.shears = options.cache.shears;
    cache_disk.keeps_same_bytes = true;
    disks.cache_disk = cache_disk;
    let mut writes = create(CreateOptions {
        uuid: UUID,
        geometry,
        data_disk: Volume::data_disk_info(&found.header.config),
        data_disk_serial: String::new(),
        created_unix_seconds: 0,
        data_offset_bytes: 0,
        has_end_mark: true,
        has_legs: false,
        volume: Some(found.header.clone()),
    });
    let superblocks = writes.split_off(writes.len() - 2);
    let unwritable = |problem| ImportError::Unwritable { member: None, problem };
    for (offset, bytes) in &writes {
        disks.write_cache_disk(*offset, bytes).map_err(unwritable)?;
    }
    let report = found.write(geometry.end(), &mut disks)?;
    for (offset, bytes) in &superblocks {
        disks.write_cache_disk(*offset, bytes).map_err(unwritable)?;
    }
    disks.flush_cache_disk().map_err(unwritable)?;
    wreck.cache_disk = disks.cache_disk;
    wreck.memory = None;
    wreck.is_imported = true;
    Ok(report)
}
