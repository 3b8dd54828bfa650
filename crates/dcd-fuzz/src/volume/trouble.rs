//! Copies of members from earlier times, and a cache-disk that fails. Both draw from generators of their own, so that what else a
//! run does stays as it is.

use dcd_engine::error::VolumeOpenError;
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE, MemberIndex};
use dcd_engine::volume::away::LogShare;
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel};
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::{IoError, Lba, OpenError, Operation, RequestError};

use super::crash::Crash;
use super::machine::{Machine, NotOpen, Wreck};
use super::run::VolumeRun;
use crate::disk::Pages;
use crate::model::Violation;
use crate::random::Random;

/// Steps while a cache-disk fails.
const STEPS_MAX: u64 = 25;

/// The epoch of the newest label on a disk.
fn label_of(mut read: impl FnMut(usize, &mut [u8])) -> Option<u64> {
    let copies = LABEL_OFFSETS.map(|offset| {
        let mut bytes = vec![0; MEMBER_LABEL_BYTES];
        read(offset as usize, &mut bytes);
        bytes
    });
    MemberLabel::newest(&copies[0], &copies[1]).map(|label| label.epoch)
}

impl VolumeRun {
    /// A start with a member as it was at an earlier one must be refused, if anything on it is nowhere else. Only looked at:
    /// the run goes on with the right disks.
    pub(super) fn probe_older(&mut self, wreck: &Wreck) -> Result<(), Violation> {
        let mut random = Random::new(self.more.state() ^ 0x01de5);
        let is_tried = self.options.more.older_disks && !self.all_sets_are_redundant();
        if !is_tried || self.older.is_empty() || !random.one_in(2) {
            return Ok(());
        }
        let which = random.below(self.older.len() as u64) as usize;
        let index = random.below(wreck.members.len() as u64) as usize;
        let image = self.older[which][index].clone();
        // Labels may be one ahead of what the cache-disk knows.
        self.refuses_older(wreck, index, &image, 1, &mut random)
    }

    /// `ahead`: so much newer the label of the member must be than that of the image, at least.
    fn refuses_older(
        &mut self,
        wreck: &Wreck,
        index: usize,
        image: &Pages,
        ahead: u64,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let member = &wreck.members[index];
        let now = label_of(|offset, bytes| member.disk.peek(offset, bytes));
        let then = label_of(|offset, bytes| image.read(offset, bytes));
        let (Some(now), Some(then)) = (now, then) else { return Ok(()) };
        if !member.is_there || member.disk.failing.is_some() || now <= then + ahead {
            return Ok(());
        }
        let mut wreck = wreck.clone();
        wreck.fails_at = None;
        wreck.members[index].disk.restore(image.clone());
        let mut machine = Machine::new(wreck, &self.options, self.machine.is_traced);
        self.report.volume.members_older += 1;
        match machine.open(&self.options, None, random) {
            Err(NotOpen::Refused(OpenError::Volume(VolumeOpenError::MemberOlder {
                member,
                ..
            }))) if usize::from(member.0) == index => Ok(()),
            Ok(()) if !has_raid0_lines(&machine, MemberIndex(index as u8)) => Ok(()),
            Ok(()) => Err(Violation(format!(
                "member {index} is as it was at an earlier start (label {then}, not {now}), and is believed"
            ))),
            Err(NotOpen::Refused(error)) => {
                Err(Violation(format!("an older member {index} is refused as {error}")))
            }
            Err(NotOpen::Violation(violation)) => Err(violation),
            Err(NotOpen::Interrupted) => unreachable!("nothing interrupts it"),
        }
    }

    /// The end in order: copies of members from while the volume was served are no members any more.
    pub(super) fn close_and_probe(&mut self, random: &mut Random) -> Result<(), Violation> {
        let mut own = Random::new(self.more.state() ^ 0xe11d);
        let members = self.machine.state.members.iter();
        let images: Vec<Pages> = members.map(|member| member.disk.snapshot()).collect();
        let is_written = self.machine.volume().status().counters.member_writes > 0;
        let reply = self.do_now(Operation::Shutdown, random)?;
        if let Err(error) = reply.result {
            return Err(Violation(format!("an end in order failed: {error}")));
        }
        if !is_written || self.all_sets_are_redundant() {
            return Ok(());
        }
        let wreck = self.machine.state.clone();
        for (index, image) in images.iter().enumerate() {
            let member = &wreck.members[index];
            let now = label_of(|offset, bytes| member.disk.peek(offset, bytes));
            let then = label_of(|offset, bytes| image.read(offset, bytes));
            if now == then {
                return Err(Violation(format!("member {index} has no label of the end: {now:?}")));
            }
        }
        let index = own.below(images.len() as u64) as usize;
        self.refuses_older(&wreck, index, &images[index], 0, &mut own)
    }

    // ---- the cache-disk -----------------------------------------------------------------------

    /// The cache-disk fails, the load goes on for a while, and then there is a crash. What was acknowledged is there afterwards.
    pub(super) fn cache_disk_trouble(&mut self) -> Result<bool, Violation> {
        let mut random = Random::new(self.more.state() ^ 0xcac4e);
        if !self.options.more.cache_disk_fails || self.is_calm || !random.one_in(25) {
            return Ok(false);
        }
        let error = random.pick(&[IoError::Failed, IoError::Gone]);
        self.say(|| format!("the cache-disk fails: {error:?}"));
        self.machine.state.cache_disk.failing = Some(error);
        self.report.volume.cache_disks_failed += 1;
        self.has_no_cache_disk = true;
        for _ in 0..random.below(STEPS_MAX) {
            match random.below(8) {
                0..3 => self.change_once(&mut random)?,
                3 => self.read(&mut random)?,
                4 => self.ask_flush()?,
                _ => {
                    self.machine.end_one_io(&mut random);
                    self.take_replies()?;
                }
            }
        }
        let crash = Crash::real(random.one_in(2));
        let outcome = self.crash(crash, &mut random);
        self.has_no_cache_disk = false;
        outcome.map(|()| true)
    }

    // ---- what the log holds for members that are away ---------------------------------------------

    /// After each step: the share of the log is not passed by any change that was taken behind it.
    pub(super) fn look_at_log_share(&mut self) -> Result<(), Violation> {
        let volume = self.machine.volume();
        if !volume.is_open() {
            return Ok(());
        }
        let (away, share) = (volume.news().away, volume.status().log_share);
        let (away_before, before) = std::mem::replace(&mut self.log_share, (away, share));
        let LogShare { segments, segments_max, .. } = share;
        let is_same = away == away_before && away != 0 && !self.has_no_cache_disk;
        if is_same && before.segments > segments_max && segments > before.segments {
            return Err(Violation(format!(
                "lines for members that are away held {} segments, and hold {segments} of {segments_max} now",
                before.segments
            )));
        }
        Ok(())
    }

    /// While the cache-disk fails, nothing can be asked of it.
    pub(super) fn may_fail_without_cache_disk(&self, error: RequestError) -> bool {
        self.has_no_cache_disk && matches!(error, RequestError::Io | RequestError::NoSpace)
    }
}

/// Whether lines of the volume are on RAID 0 and on this member.
fn has_raid0_lines(machine: &Machine, member: MemberIndex) -> bool {
    let volume = machine.volume();
    (0..volume.config().logical_bytes / LINE_SIZE).any(|line| {
        let placed = volume.place(Lba(line * (LINE_SIZE / BLOCK_SIZE)));
        placed.is_some_and(|placed| placed.level == RaidLevel::Raid0 && placed.member == member)
    })
}
