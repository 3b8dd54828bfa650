//! A volume below the cache: what goes back and forth between the two.
//!
//! What a client asks of the volume goes down past the log. Blocks that the volume frees go down
//! through the log, as discards, so that they keep their place in the order of all changes.

use super::below::Below;
use super::{Engine, Phase};
use crate::error::OpenError;
use crate::io::{
    Operation, Output, Reply, Request, RequestError, RequestId, VolumeError, VolumeRequest,
};
use crate::units::{LbaRange, MemberIndex, Time};
use crate::volume::{Above, NewDisk, ReplaceError, Volume, VolumeOutput, VolumePhase};

/// What waits for the tables of the volume to be durable.
pub(super) enum BehindCommit {
    /// It is carried out then.
    CarryOut(Operation),
    /// It has been.
    Reply,
    /// It was cancelled, and has been answered.
    Nothing,
    /// The cache is being closed.
    Close,
}

impl Engine {
    /// A disk takes the place of a member of the volume while that serves: [`Device::Member`] of the
    /// number that comes back is asked from the next input on. How far it is, and whether it was
    /// done, [`Volume::status`] tells.
    ///
    /// # Errors
    /// If there is no volume or no such member, the disk is too small, something else is under way,
    /// or data would be lost and that was not accepted.
    ///
    /// [`Device::Member`]: crate::Device::Member
    pub fn replace_member(
        &mut self,
        member: MemberIndex,
        new: NewDisk,
    ) -> Result<MemberIndex, ReplaceError> {
        let Below::Volume(volume) = &mut self.below else {
            return Err(VolumeError::NoVolume.into());
        };
        match volume.is_open() {
            true => volume.replace_member(member, new),
            false => Err(VolumeError::Busy.into()),
        }
    }

    /// A disk becomes a spare of the volume: as [`Engine::replace_member`].
    ///
    /// # Errors
    /// If there is no volume, the disk is too small, or there are too many.
    pub fn add_spare(&mut self, new: NewDisk) -> Result<MemberIndex, ReplaceError> {
        let Below::Volume(volume) = &mut self.below else {
            return Err(VolumeError::NoVolume.into());
        };
        match volume.is_open() {
            true => volume.add_spare(new),
            false => Err(VolumeError::Busy.into()),
        }
    }

    /// A spare is to be none any more: it is let go when [`Volume::status`] has it no longer.
    ///
    /// # Errors
    /// If there is no volume or no such spare, or it takes the place of a member.
    pub fn remove_spare(&mut self, disk: MemberIndex) -> Result<(), VolumeError> {
        let Below::Volume(volume) = &mut self.below else { return Err(VolumeError::NoVolume) };
        match volume.is_open() {
            true => volume.remove_spare(disk),
            false => Err(VolumeError::Busy),
        }
    }

    /// Seconds since 1970: a volume is scrubbed by time if it is told, once and then from time to
    /// time, because clocks are put right.
    pub fn set_calendar(&mut self, now: Time, seconds: u64) {
        if let Below::Volume(volume) = &mut self.below {
            volume.set_calendar(now, seconds);
        }
    }

    pub(super) fn volume_request(&mut self, id: RequestId, wanted: VolumeRequest) {
        let Below::Volume(volume) = &mut self.below else {
            return self.reply(id, Err(RequestError::Volume(VolumeError::NoVolume)), None);
        };
        // Data for some of these blocks is on its way to the volume, acknowledged or not.
        let has_data = |range: LbaRange| {
            range.lines().any(|(line, _)| self.table.contains(line))
                || self.bypasses.iter().any(|bypass| bypass.range.overlaps(range))
                || self.stalled.iter().any(|stalled| stalled.change.range().overlaps(range))
                || self.passing_by.as_ref().is_some_and(|passing| passing.is_passed(range))
        };
        let has_changes = |range: LbaRange| {
            let (line, lines) = (range.start.line(), range.lines().count() as u64);
            has_data(range)
                || self.zeroes.overlaps(line, lines)
                || self.zeroes_destaging.overlaps(line, lines)
        };
        let above = Above { has_data: &has_data, has_changes: &has_changes };
        volume.request(self.now, id, wanted, &above);
    }

    /// Lets the volume go on, and the cache with what it brings, until neither brings anything for
    /// the other.
    pub(super) fn advance_volume(&mut self) {
        loop {
            self.let_volume_grow();
            let Below::Volume(volume) = &mut self.below else { return };
            volume.advance(self.now);
            if let VolumePhase::Failed(error) = volume.phase()
                && self.phase == Phase::Opening
            {
                self.phase = Phase::Failed(OpenError::Volume(error.clone()));
            }
            let mut has_brought = false;
            while let Some(output) = self.below.volume_mut().and_then(Volume::poll) {
                match output {
                    VolumeOutput::Io(io) => self.send(io),
                    VolumeOutput::Done(done) => {
                        has_brought = true;
                        self.io_done(done);
                    }
                    VolumeOutput::Discard(range) => {
                        has_brought = true;
                        self.discard_freed(range);
                    }
                    // Before the log has begun, the volume does not open with it.
                    VolumeOutput::CacheDiskFailed(error) if self.phase == Phase::Running => {
                        has_brought = true;
                        self.cache_disk_error_of_volume(error);
                    }
                    VolumeOutput::CacheDiskFailed(_) => {}
                    VolumeOutput::Closed => {
                        has_brought = true;
                        self.labels_written();
                    }
                    VolumeOutput::Committed { id, result } => {
                        has_brought = true;
                        self.committed(id, result.map_err(RequestError::Volume));
                    }
                    VolumeOutput::TablesWritten { area_bytes, blocks } => {
                        has_brought = true;
                        self.tables_written(area_bytes, blocks);
                    }
                    VolumeOutput::Grown { blocks } => {
                        has_brought = true;
                        self.volume_has_grown(blocks);
                    }
                    VolumeOutput::NotGrown => {
                        has_brought = true;
                        self.volume_has_not_grown();
                    }
                    VolumeOutput::Answer { id, result } => {
                        let (result, answer) = match result {
                            Ok(answer) => (Ok(()), answer),
                            Err(error) => (Err(RequestError::Volume(error)), None),
                        };
                        self.outputs.push_back(Output::Reply(Reply {
                            id,
                            result,
                            buffer: None,
                            answer,
                        }));
                    }
                }
            }
            has_brought |= self.advance_behind_discards();
            if !has_brought {
                return;
            }
            self.advance();
        }
    }

    /// So many discards are durable: the volume may make it durable that their blocks are free.
    /// False if there is nothing to wait for.
    pub(super) fn commit_discards(
        &mut self,
        id: RequestId,
        before: u64,
        behind: BehindCommit,
    ) -> bool {
        let Below::Volume(volume) = &mut self.below else { return false };
        volume.discards_durable(before);
        if !volume.has_changes_of_requests() {
            return false;
        }
        volume.commit_requests(self.now, id);
        self.behind_commits.insert(id, behind);
        true
    }

    fn committed(&mut self, id: RequestId, result: Result<(), RequestError>) {
        let behind = self.behind_commits.remove(&id).expect("it waits");
        match (behind, result) {
            (BehindCommit::CarryOut(operation), Ok(())) => {
                self.carry_out_behind_discards(Request { id, operation, fua: false });
            }
            (BehindCommit::CarryOut(_) | BehindCommit::Reply, result) => {
                self.reply(id, result, None);
            }
            (BehindCommit::Nothing, _) => {}
            // Blocks that are not free in the tables are freed by the next collection.
            (BehindCommit::Close, _) => self.close_tables(),
        }
    }

    /// Whether a flush waits for the tables of the volume, and is to be carried out then.
    pub(super) fn has_flush_behind_commits(&self) -> bool {
        let is_flush =
            |behind: &BehindCommit| matches!(behind, BehindCommit::CarryOut(Operation::Flush));
        self.behind_commits.values().any(is_flush)
    }
}
