//! A volume below the cache: what goes back and forth between the two.
//!
//! What a client asks of the volume goes down past the log. Blocks that the volume frees go down through the log, as discards, so that
//! they keep their place in the order of all changes.

use std::collections::VecDeque;

use super::{Engine, Phase};
use crate::error::OpenError;
use crate::io::{
    Operation, Output, Reply, Request, RequestError, RequestId, VolumeError, VolumeRequest,
};
use crate::units::LbaRange;
use crate::volume::{Above, VolumeOutput, VolumePhase};

/// What waits for the tables of the volume to be durable.
pub(super) enum BehindCommit {
    /// It is carried out then.
    CarryOut(Operation),
    /// It has been.
    Reply,
    /// The cache is being closed.
    Close,
}

impl Engine {
    pub(super) fn volume_request(&mut self, id: RequestId, wanted: VolumeRequest) {
        let Some(mut volume) = self.volume.take() else {
            return self.reply(id, Err(RequestError::Volume(VolumeError::NoVolume)), None);
        };
        let has_data = |range| self.has_data_for(range);
        let has_changes = |range| self.has_data_for(range) || self.has_zeroes_for(range);
        let above = Above { has_data: &has_data, has_changes: &has_changes };
        volume.request(self.now, id, wanted, &above);
        self.volume = Some(volume);
    }

    /// Whether data for some of these blocks is on its way to the volume, acknowledged or not.
    fn has_data_for(&self, range: LbaRange) -> bool {
        range.lines().any(|(line, _)| self.table.contains(line))
            || self.has_bypass_of(range)
            || self.stalled.iter().any(|stalled| stalled.change.range().overlaps(range))
            || self.is_passed(range)
    }

    fn has_zeroes_for(&self, range: LbaRange) -> bool {
        let (line, lines) = (range.start.line(), range.lines().count() as u64);
        self.zeroes.overlaps(line, lines) || self.zeroes_destaging.overlaps(line, lines)
    }

    /// Lets the volume go on, and the cache with what it brings, until neither brings anything for the other.
    pub(super) fn advance_volume(&mut self) {
        loop {
            let Some(volume) = &mut self.volume else { return };
            volume.advance(self.now);
            if let VolumePhase::Failed(error) = volume.phase()
                && self.phase == Phase::Opening
            {
                self.phase = Phase::Failed(OpenError::Volume(error.clone()));
            }
            let mut has_brought = false;
            while let Some(output) = self.volume.as_mut().and_then(|volume| volume.poll()) {
                match output {
                    VolumeOutput::Io(io) => self.outputs.push_back(Output::Io(io)),
                    VolumeOutput::Done(done) => {
                        has_brought = true;
                        self.io_done(done);
                    }
                    VolumeOutput::Discard(range) => {
                        has_brought = true;
                        self.discard_freed(range);
                    }
                    VolumeOutput::Closed => {
                        has_brought = true;
                        self.labels_written();
                    }
                    VolumeOutput::Committed { id, result } => {
                        has_brought = true;
                        self.committed(id, result.map_err(RequestError::Volume));
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

    /// A flush, a drain or the end, behind the discards of blocks that were freed before: who freed them has been answered, and one that
    /// waits for room in the log is in no record yet (C2).
    pub(super) fn carry_out_behind_discards(&mut self, request: Request) {
        if matches!(request.operation, Operation::Flush)
            && let Some(error) = self.discard_untold.take()
        {
            return self.reply(request.id, Err(error), None);
        }
        match self.own_requests.is_empty() {
            true => self.carry_out_with_discards(self.own_requests_made, request),
            false => self.behind_discards.push_back((self.own_requests_made, request)),
        }
    }

    /// `made`: so many discards were acknowledged before.
    fn carry_out_with_discards(&mut self, made: u64, request: Request) {
        let is_for_journal = self
            .volume
            .as_ref()
            .is_some_and(|volume| volume.has_unlogged_frees() || volume.has_changes_of_requests());
        if is_for_journal && matches!(request.operation, Operation::Flush) {
            self.flushes_of_discards.insert(request.id, made);
        }
        self.carry_out(request);
    }

    /// So many discards are durable: the volume may make it durable that their blocks are free. False if there is nothing to wait for.
    pub(super) fn commit_discards(
        &mut self,
        id: RequestId,
        before: u64,
        behind: BehindCommit,
    ) -> bool {
        let Some(volume) = &mut self.volume else { return false };
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
            // Blocks that are not free in the tables are freed by the next collection.
            (BehindCommit::Close, _) => self.close_tables(),
        }
    }

    fn advance_behind_discards(&mut self) -> bool {
        let mut has_moved = false;
        // The oldest has the highest number.
        while let Some((made, _)) = self.behind_discards.front()
            && self.own_requests.last().is_none_or(|oldest| u64::MAX - oldest.0 >= *made)
        {
            let (made, request) = self.behind_discards.pop_front().expect("looked at");
            self.carry_out_with_discards(made, request);
            has_moved = true;
        }
        has_moved
    }

    /// There was no room for a discard: what was there may be read again after a crash, so no flush behind it says that all is well; if none
    /// waits, or one still waits for something else, the next does not.
    pub(super) fn discard_failed(&mut self, id: RequestId, error: RequestError) {
        let number = u64::MAX - id.0;
        self.volume.as_mut().expect("it has freed blocks").discard_failed(number);
        let is_refused = |(made, request): &(u64, Request)| {
            *made > number && matches!(request.operation, Operation::Flush)
        };
        let waiting = std::mem::take(&mut self.behind_discards);
        let (refused, waiting): (VecDeque<_>, VecDeque<_>) =
            waiting.into_iter().partition(is_refused);
        self.behind_discards = waiting;
        let mut before = self.behind_commits.values();
        let is_flush =
            |behind: &BehindCommit| matches!(behind, BehindCommit::CarryOut(Operation::Flush));
        if refused.is_empty() || before.any(is_flush) {
            self.discard_untold = Some(error);
        }
        for (_, request) in refused {
            self.reply(request.id, Err(error), None);
        }
    }

    /// Blocks that nobody points to any more leave the log and all copies, in the order of everything else.
    fn discard_freed(&mut self, range: LbaRange) {
        let number = self.own_requests_made;
        self.own_requests_made += 1;
        if self.close.is_some() || self.phase != Phase::Running || self.config.read_only {
            // They are found by the next collection.
            return self.volume.as_mut().expect("it has freed blocks").discard_failed(number);
        }
        let id = RequestId(u64::MAX - number);
        self.own_requests.insert(id);
        self.write_zeroes(id, range, true, false);
    }
}
