//! Members that do not answer in time, and the cache-disk.
//!
//! ```text
//! a third of member-timeout   late: the state says so. Reads that wait for it are given to the others that hold the same,
//!                             and new ones go there first. Writes and flushes go on waiting
//! member-timeout              done without (stale), where the others can; what it was asked is given up
//! an answer in between        no longer late: nothing has happened, nothing has to be rebuilt
//! io-timeout                  the cache-disk: a write of the journal or the tables has failed, and
//!                             with it the cache-disk, as one of the log; a page of checksums
//!                             cannot be read
//! ```
//!
//! What nobody else holds goes on waiting: who asked knows how long to wait
//! ([`EngineConfig::data_disk_timeout`]), and a write that was given up could land behind a newer
//! one. Time is that of [`Patience`](crate::patience::Patience): a pause of ours makes nobody late.
//!
//! [`EngineConfig::data_disk_timeout`]: crate::EngineConfig

use super::{ELSEWHERE, IoUnderWay, Purpose, RaidLevel, Volume, VolumePhase};
use crate::io::{Device, IoError, IoId};
use crate::units::{Duration, MemberIndex, Time};

/// Late is who has not answered for this part of `member-timeout`.
const LATE_PART: u64 = 3;

impl Volume {
    fn late_after(&self) -> Duration {
        Duration((self.member_timeout.0 / LATE_PART).max(1))
    }

    pub(super) fn look_at_late_members(&mut self) {
        if self.phase != VolumePhase::Running {
            return;
        }
        let (limit, late_after) = (self.member_timeout, self.late_after());
        // They are numbered as they were started: the first are the oldest.
        let late: Vec<IoId> = self
            .ios
            .iter()
            .take_while(|(_, io)| self.patience.is_over(io.started, late_after))
            .filter(|(_, io)| io.purpose.is_some() && matches!(io.device, Device::Member(_)))
            .map(|(id, _)| *id)
            .collect();
        self.give_up_late_elsewhere();
        for id in late {
            let Some(io) = self.ios.get(&id) else { continue };
            let Device::Member(member) = io.device else { continue };
            self.note_late(member);
            let Some(io) = self.ios.get(&id).filter(|io| self.is_for_others_too(io)) else {
                continue;
            };
            let is_over = self.patience.is_over(io.started, limit);
            let is_read = matches!(io.purpose, Some(Purpose::Read(_)));
            // A label that lands late is not believed for more than it says.
            // Nor is a twin that labels do not name, and they name no member that is given up.
            let is_label = matches!(
                io.purpose,
                Some(Purpose::Label(..) | Purpose::RebuiltLabel(_) | Purpose::Twin(..))
            );
            let can_go = is_label || self.members.is_done_without(member, &self.layouts);
            match is_over && can_go {
                true => self.give_up_io(id, member),
                false if is_read => self.read_elsewhere(id, member),
                false => {}
            }
        }
    }

    /// A disk that takes the place of a member is not waited for any longer than one.
    fn give_up_late_elsewhere(&mut self) {
        let limit = self.member_timeout;
        let is_late = |io: &IoUnderWay| {
            io.device == ELSEWHERE
                && io.purpose.is_some()
                && self.patience.is_over(io.started, limit)
        };
        let late: Vec<IoId> =
            self.ios.iter().filter(|(_, io)| is_late(io)).map(|(id, _)| *id).collect();
        for id in late {
            let purpose = self.ios.get_mut(&id).and_then(|io| io.purpose.take());
            if let Some(purpose) = purpose {
                self.dispatch_done(purpose, ELSEWHERE, Err(IoError::TimedOut), None);
            }
        }
    }

    /// What hangs on the cache-disk has failed. It may land later, as anything that fails.
    pub(super) fn give_up_late_cache_disk(&mut self) {
        if self.phase != VolumePhase::Running {
            return;
        }
        let limit = self.cache_disk_timeout;
        loop {
            // The oldest first: one that is in time has none behind it that is not.
            let next = self.ios_of_cache_disk().next();
            let Some((id, _)) = next.filter(|(_, io)| self.patience.is_over(io.started, limit))
            else {
                return;
            };
            let io = self.ios.get_mut(&id).expect("looked at");
            let purpose = io.purpose.take().expect("looked at");
            self.dispatch_done(purpose, Device::CacheDisk, Err(IoError::TimedOut), None);
        }
    }

    /// Those that somebody waits for.
    fn ios_of_cache_disk(&self) -> impl Iterator<Item = (IoId, &IoUnderWay)> {
        let ios = self.ios.iter().map(|(id, io)| (*id, io));
        ios.filter(|(_, io)| io.purpose.is_some() && io.device == Device::CacheDisk)
    }

    fn note_late(&mut self, member: MemberIndex) {
        let member = self.members.get_mut(member);
        member.times_late += u64::from(!member.is_late);
        member.is_late = true;
    }

    /// An I/O ends for those who wait for it. It may still land.
    fn give_up_io(&mut self, id: IoId, member: MemberIndex) {
        let Some(purpose) = self.ios.get_mut(&id).and_then(|io| io.purpose.take()) else { return };
        self.members.get_mut(member).given_up += 1;
        self.dispatch_done(purpose, Device::Member(member), Err(IoError::TimedOut), None);
    }

    /// The others are asked, if they are not late too. That is no error of the member.
    fn read_elsewhere(&mut self, id: IoId, member: MemberIndex) {
        if !self.members.can_do_without(member, &self.layouts)
            || self.members.iter().any(|(other, state)| other != member && state.is_late)
        {
            return;
        }
        let purpose = self.ios.get_mut(&id).and_then(|io| io.purpose.take());
        let Some(Purpose::Read(piece)) = purpose else { unreachable!("looked at") };
        self.members.get_mut(member).given_up += 1;
        self.piece_read(piece, Err(IoError::TimedOut), None);
    }

    /// A member has answered. It is late no more, unless something older still waits for it.
    pub(super) fn heard_of(&mut self, device: Device) {
        let Device::Member(member) = device else { return };
        if !self.members.get(member).is_late {
            return;
        }
        let late_after = self.late_after();
        let waits =
            |io: &IoUnderWay| io.device == device && self.patience.waited(io.started) >= late_after;
        if !self.ios.values().any(waits) {
            self.members.get_mut(member).is_late = false;
        }
    }

    /// When somebody may come to be late, or to be done without.
    pub(super) fn lateness_wake_up(&self) -> Option<Time> {
        let limits = [self.late_after(), self.member_timeout];
        let mut of_members = self
            .ios
            .values()
            .filter(|io| io.purpose.is_some() && matches!(io.device, Device::Member(_)));
        // The oldest that may; the others are looked at then, too, a step later at most.
        let of_members = of_members.find_map(|io| {
            let waited = self.patience.waited(io.started);
            let limit = limits.into_iter().find(|limit| waited < *limit)?;
            Some(self.patience.wake_up(io.started, limit))
        });
        let elsewhere = self.ios.values().find(|io| io.purpose.is_some() && io.device == ELSEWHERE);
        let elsewhere = elsewhere.map(|io| self.patience.wake_up(io.started, self.member_timeout));
        let of_cache_disk = self.ios_of_cache_disk().next();
        let of_cache_disk = of_cache_disk.filter(|_| self.phase == VolumePhase::Running);
        let of_cache_disk =
            of_cache_disk.map(|(_, io)| self.patience.wake_up(io.started, self.cache_disk_timeout));
        [of_members, elsewhere, of_cache_disk].into_iter().flatten().min()
    }

    /// Whether others hold the same, or what it was asked.
    fn is_for_others_too(&self, io: &IoUnderWay) -> bool {
        let set = match &io.purpose {
            Some(Purpose::Read(piece)) => piece.set,
            Some(Purpose::Cells(job, _) | Purpose::Written(job, _)) => match self.jobs.set_of(*job)
            {
                Some(set) => set,
                None => return false,
            },
            Some(Purpose::MemberFlush(_, _, member)) => {
                let member = self.members.get(*member);
                return member.newest_raid0 <= member.flushed;
            }
            Some(Purpose::Label(..) | Purpose::RebuiltLabel(_) | Purpose::Twin(..)) => return true,
            _ => return false,
        };
        matches!(io.device, Device::Member(_)) && self.layout(set).level() != RaidLevel::Raid0
    }
}
