//! Copies of members from earlier times, and a cache-disk that fails. Both draw from generators of
//! their own, so that what else a run does stays as it is.

use dcd_engine::error::VolumeOpenError;
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE, MemberIndex};
use dcd_engine::volume::away::LogShare;
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel};
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::{Device, IoError, Lba, OpenError, Operation, RequestError};

use super::crash::Crash;
use super::machine::{Machine, Trap, Trick, Wreck};
use super::options::Focus;
use super::run::VolumeRun;
use crate::disk::Pages;
use crate::faults::IoKind;
use crate::model::Violation;
use crate::random::Random;
use crate::running::NotOpen;

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
    /// A start with a member as it was at an earlier one must be refused, if anything on it is
    /// nowhere else. Only looked at: the run goes on with the right disks.
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
        let right = wreck.clone();
        wreck.members[index].disk.restore(image.clone());
        let mut machine = Machine::new(wreck, &self.options, self.machine.running.is_traced);
        self.report.volume.members_older += 1;
        match machine.open(&self.options, None, random) {
            Err(NotOpen::Refused(OpenError::Volume(VolumeOpenError::MemberOlder {
                member,
                ..
            }))) if usize::from(member.0) == index => Ok(()),
            // It was another disk.
            Err(NotOpen::Refused(OpenError::Volume(VolumeOpenError::MemberReplaced {
                ..
            }))) if self.options.more.replaces_members => Ok(()),
            Ok(()) => {
                // At the start there may have been none, and what was in the log went there since.
                let blocks = raid0_blocks(&machine, MemberIndex(index as u8));
                if blocks.is_empty() {
                    return Ok(());
                }
                let mut unharmed = Machine::new(right, &self.options, false);
                match unharmed.open(&self.options, None, random) {
                    Ok(()) => {}
                    // For another reason, which the start of the run itself judges.
                    Err(NotOpen::Refused(_)) => return Ok(()),
                    Err(NotOpen::Violation(violation)) => return Err(violation),
                    Err(NotOpen::Interrupted) => unreachable!("nothing interrupts it"),
                }
                let shown = machine.read_blocks(&blocks, random)?;
                if shown == unharmed.read_blocks(&blocks, random)? {
                    return Ok(());
                }
                Err(Violation(format!(
                    "member {index} is as it was at an earlier start (label {then}, not {now}), and is believed"
                )))
            }
            Err(NotOpen::Refused(error)) => {
                Err(Violation(format!("an older member {index} is refused as {error}")))
            }
            Err(NotOpen::Violation(violation)) => Err(violation),
            Err(NotOpen::Interrupted) => unreachable!("nothing interrupts it"),
        }
    }

    /// The end in order: copies of members from while the volume was served are no members any
    /// more.
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
        let wreck = self.machine.disks();
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

    /// The cache-disk fails, the load goes on for a while, and then there is a crash. What was
    /// acknowledged is there afterwards.
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

    /// One I/O of the cache-disk fails, and the next are well: nobody notices (C21, C22).
    pub(super) fn cache_disk_stumbles(&mut self) {
        let mut random = Random::new(self.more.state() ^ 0x57b1e);
        let more = self.options.more;
        let may = (more.cache_disk_stumbles || more.cache_disk_rots) && !self.is_calm;
        if !may || !random.one_in(10) || !self.machine.traps.is_empty() {
            return;
        }
        // What is read again for the last one must not fail as well.
        if more.cache_disk_rots && self.machine.reads_cache_disk() {
            return;
        }
        let (io, trick) = match more.cache_disk_rots {
            true => (IoKind::Read, Trick::Fail),
            false => random.pick(&[
                (IoKind::Write, Trick::Fail),
                (IoKind::Flush, Trick::Fail),
                (IoKind::Flush, Trick::FailAndDrop),
            ]),
        };
        self.say(|| format!("the next {io:?} of the cache-disk: {trick:?}"));
        self.machine.traps.push(Trap { device: Device::CacheDisk, io, trick });
        self.report.volume.cache_disks_stumbled += 1;
    }

    /// The log had no room to write again what that failure may have lost: the next start finds it
    /// in the segment memory.
    pub(super) fn crash_if_given_up(&mut self) -> Result<bool, Violation> {
        if !self.has_given_up_cache_disk() {
            return Ok(false);
        }
        self.report.volume.cache_disks_given_up += 1;
        let mut random = Random::new(self.more.state() ^ 0x6_1e55);
        self.crash(Crash::real(false), &mut random).map(|()| true)
    }

    fn has_given_up_cache_disk(&self) -> bool {
        self.options.more.cache_disk_stumbles && self.machine.engine().status().cache_disk_failed
    }

    pub(super) fn lacks_cache_disk(&self) -> bool {
        self.has_no_cache_disk || self.has_given_up_cache_disk()
    }

    // ---- one thing again and again ------------------------------------------------------------

    /// Before a step. Whether it was a crash.
    pub(super) fn focus_step(&mut self) -> Result<bool, Violation> {
        let Some(focus) = self.options.more.focus.filter(|_| !self.is_calm) else {
            return Ok(false);
        };
        let mut random = Random::new(self.more.state() ^ 0xf0c05);
        match focus {
            Focus::Replace => self.replace_again(&mut random),
            Focus::Blocks => self.use_blocks(&mut random).map(|()| false),
            Focus::Checkpoints => self.cut_behind_checkpoint(&mut random).map(|()| false),
            Focus::SlowReads => self.read_late(&mut random).map(|()| false),
        }
    }

    /// What is there comes to the members, one of them is replaced (nearly always the same, so that
    /// what was found there is lost again), some of what is lost is written, and perhaps a flush
    /// fails and drops it.
    fn replace_again(&mut self, random: &mut Random) -> Result<bool, Violation> {
        if !random.one_in(3) {
            return Ok(false);
        }
        let members = self.options.config.members as u64;
        let member = if random.one_in(6) { random.below(members) } else { 0 };
        if random.one_in(2) {
            for _ in 0..3 {
                self.change_once(random)?;
            }
        }
        if !random.one_in(4) {
            // What is in the log is not lost.
            self.bring_down(random)?;
        }
        self.make_well(member, random)?;
        self.to_replace = Some(member as usize);
        let outcome = self.crash(Crash::real(random.one_in(2)), random);
        self.to_replace = None;
        outcome?;
        self.make_well(member, random)?;
        for _ in 0..random.below(4) {
            self.write_lost(MemberIndex(member as u8), random)?;
            match random.below(4) {
                0 => self.bring_down(random)?,
                1 => {}
                _ => {
                    for _ in 0..random.below(20) {
                        self.end_one_io(random)?;
                    }
                }
            }
            if random.one_in(3) {
                self.crash(Crash::probe(true), random)?;
            }
        }
        if random.one_in(2) {
            self.crash(Crash::real(true), random)?;
        }
        Ok(true)
    }

    /// Everything comes to the members. While one is away a drain waits for it.
    fn bring_down(&mut self, random: &mut Random) -> Result<(), Violation> {
        match self.machine.may_refuse() || self.machine.has_failed() {
            true => self.come_to_rest(random).map(|_| ()),
            false => self.do_now(Operation::Drain, random).map(|_| ()),
        }
    }

    /// A member is rebuilt, if there is anything to rebuild.
    fn make_well(&mut self, member: u64, random: &mut Random) -> Result<(), Violation> {
        let index = MemberIndex(member as u8);
        if self.machine.member_state(index) != MemberState::UpToDate {
            self.rebuild(index, random)?;
            self.finish_work(random)?;
        }
        self.machine.clear_suspects(false);
        Ok(())
    }

    fn write_lost(&mut self, member: MemberIndex, random: &mut Random) -> Result<(), Violation> {
        let lost: Vec<u64> = self.machine.state.lost.iter().copied().collect();
        if lost.is_empty() {
            return Ok(());
        }
        let blocks = LINE_SIZE / BLOCK_SIZE;
        for _ in 0..1 + random.below(6) {
            self.aim = Some((random.pick(&lost) * blocks, blocks));
            let outcome = self.change_once(random);
            self.aim = None;
            outcome?;
        }
        let is_all_raid0 = self.options.config.sets.iter().all(|set| set.level == RaidLevel::Raid0);
        if is_all_raid0 && random.one_in(3) && self.machine.traps.is_empty() {
            self.say(|| format!("a flush of {member:?} fails and drops"));
            self.machine.traps.push(Trap {
                device: self.machine.device_of(member),
                io: IoKind::Flush,
                trick: Trick::FailAndDrop,
            });
            self.had_losses = true;
        }
        if random.one_in(3) {
            self.ask_flush()?;
        }
        Ok(())
    }

    /// Blocks, and what somebody writes to them whether they are allocated or not.
    fn use_blocks(&mut self, random: &mut Random) -> Result<(), Violation> {
        if random.one_in(4) && self.hints.is_known() {
            return self.write_to_freed(random);
        }
        for _ in 0..1 + random.below(4) {
            self.hint(random)?;
        }
        let blocks = self.options.config.extent_bytes / BLOCK_SIZE;
        if random.one_in(2) {
            let extent = random.below(self.options.config.extents().min(24));
            self.aim = Some((extent * blocks, LINE_SIZE / BLOCK_SIZE));
            let outcome = self.change_once(random);
            self.aim = None;
            outcome?;
        }
        for _ in 0..random.below(3) {
            self.end_one_io(random)?;
        }
        Ok(())
    }

    /// Blocks that were freed are written as plain ones, and everything is collected once more:
    /// what was written stays.
    fn write_to_freed(&mut self, random: &mut Random) -> Result<(), Violation> {
        for _ in 0..1 + random.below(3) {
            self.allocate(random)?;
        }
        let before = self.hints.allocated();
        self.collect(random)?;
        if !self.hints.is_known() {
            return Ok(());
        }
        let blocks = self.options.config.extent_bytes / BLOCK_SIZE;
        let freed = before.into_iter().filter(|extent| !self.hints.is_allocated(*extent));
        for extent in freed.collect::<Vec<u64>>() {
            self.aim = Some((extent * blocks, LINE_SIZE / BLOCK_SIZE));
            let outcome = self.change_once(random);
            self.aim = None;
            outcome?;
        }
        match random.below(3) {
            0 => drop(self.come_to_rest(random)?),
            1 => {
                for _ in 0..random.below(12) {
                    self.end_one_io(random)?;
                }
            }
            _ => {}
        }
        self.collect(random)?;
        if random.one_in(2) {
            self.come_to_rest(random)?;
        }
        self.crash(Crash::probe(random.one_in(2)), random)
    }

    fn cut_behind_checkpoint(&mut self, random: &mut Random) -> Result<(), Violation> {
        let blocks = self.options.config.extent_bytes / BLOCK_SIZE;
        if random.one_in(3) {
            // Its place is another's soon.
            self.discard(random.below(self.options.config.extents()) * blocks, blocks)?;
        }
        for _ in 0..1 + random.below(3) {
            self.change_once(random)?;
        }
        if random.one_in(4) {
            self.machine.pass(dcd_engine::Duration::from_millis(300));
        }
        for _ in 0..random.below(60) {
            self.machine.end_one_io(random);
            self.take_replies()?;
            let checkpoints = self.machine.volume().status().counters.checkpoints;
            if std::mem::replace(&mut self.checkpoints, checkpoints) < checkpoints {
                self.crash(Crash::probe(true), random)?;
            }
        }
        Ok(())
    }

    fn read_late(&mut self, random: &mut Random) -> Result<(), Violation> {
        let blocks = self.options.config.extent_bytes / BLOCK_SIZE;
        let extents = self.options.config.extents();
        let member = MemberIndex(random.below(self.options.config.members as u64) as u8);
        if self.machine.traps.is_empty() && random.one_in(2) {
            self.machine.traps.push(Trap {
                device: self.machine.device_of(member),
                io: IoKind::Read,
                trick: Trick::Late,
            });
        }
        match random.below(4) {
            0 => self.read(random)?,
            1 => {
                // Its place is another's soon.
                let extent = random.below(extents.min(24));
                self.discard(extent * blocks, blocks)?;
                self.ask_flush()?;
            }
            2 => self.change_once(random)?,
            _ => {}
        }
        for _ in 0..random.below(20) {
            if !self.machine.running.has_ready_io() {
                break;
            }
            self.end_one_io(random)?;
        }
        Ok(())
    }

    // ---- what the log holds for members that are away
    // ---------------------------------------------

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

    /// While the cache-disk fails, or was given up after a failure, nothing can be asked of it.
    pub(super) fn may_fail_without_cache_disk(&self, error: RequestError) -> bool {
        self.lacks_cache_disk() && matches!(error, RequestError::Io | RequestError::NoSpace)
    }
}

/// Blocks of lines that are on RAID 0 and on this member.
fn raid0_blocks(machine: &Machine, member: MemberIndex) -> Vec<u64> {
    const LINE_BLOCKS: u64 = LINE_SIZE / BLOCK_SIZE;
    let volume = machine.volume();
    let is_there = |line: &u64| {
        let placed = volume.place(Lba(line * LINE_BLOCKS));
        placed
            .is_some_and(|placed| placed.tier.level == RaidLevel::Raid0 && placed.member == member)
    };
    let lines = (0..volume.config().logical_bytes / LINE_SIZE).filter(is_there);
    lines.flat_map(|line| line * LINE_BLOCKS..(line + 1) * LINE_BLOCKS).collect()
}
