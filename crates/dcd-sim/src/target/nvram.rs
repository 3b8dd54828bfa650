//! Non-volatile memory above another target.

use std::collections::BTreeMap;
use std::sync::Arc;

use dcd_engine::nvram::control::arms::ARMS;
use dcd_engine::nvram::{
    BelowId, BelowIo, GroupMap, HeadPosition, LastAddress, Nvram, NvramConfig, NvramInput,
    NvramOperation, NvramOutput, NvramPolicyKind, NvramRequest,
};
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{Duration, Lba, LbaRange, RequestId, Time};

use super::setup::{Head, NvramSetup};
use super::{ControlFacts, NvramFacts, Target, TargetDone, TargetFacts};
use crate::disk::model::{DiskOperation, DiskRequest, DiskRequestError};
use crate::disk::price::Bill;

/// A target with a tier of non-volatile memory above it. A flush is done at once: what was
/// acknowledged is safe.
pub struct NvramTarget<T> {
    nvram: Nvram,
    policy: NvramPolicyKind,
    below: T,
    below_done: Vec<TargetDone>,
    /// What is done and was not taken yet, and flushes.
    done: Vec<TargetDone>,
    /// How long the disk worked on the request whose I/O below has just ended.
    service: Duration,
    /// Where the head is, if the disk is not asked.
    estimate: Option<Estimate>,
}

/// Where the head is taken to be, and where what is under way below ends.
#[derive(Default)]
struct Estimate {
    head: LastAddress,
    ends: BTreeMap<u64, Lba>,
}

impl<T: Target> NvramTarget<T> {
    /// # Panics
    /// As [`Nvram::new`].
    pub fn new(config: NvramConfig, map: Arc<dyn GroupMap>, below: T) -> NvramTarget<T> {
        NvramTarget {
            nvram: Nvram::new(config, map),
            policy: config.policy,
            below,
            below_done: Vec::new(),
            done: Vec::new(),
            service: Duration(0),
            estimate: None,
        }
    }

    /// # Panics
    /// As [`Nvram::new`].
    pub(super) fn of_setup(setup: &NvramSetup, map: Arc<dyn GroupMap>, below: T) -> NvramTarget<T> {
        let estimate = (setup.head == Head::LastAddress).then(Estimate::default);
        NvramTarget { estimate, ..NvramTarget::new(setup.config, map, below) }
    }

    fn input(&mut self, now: Time, input: NvramInput) -> Result<(), DiskRequestError> {
        match &self.estimate {
            Some(estimate) => self.nvram.handle_input(now, input, &estimate.head),
            None => self.nvram.handle_input(now, input, &self.below),
        }
        while let Some(output) = self.nvram.poll_output() {
            match output {
                NvramOutput::Below(BelowIo { id, operation, range, .. }) => {
                    let operation = match operation {
                        NvramOperation::Read => DiskOperation::Read,
                        NvramOperation::Write => DiskOperation::Write,
                    };
                    let request = DiskRequest {
                        id: id.0,
                        operation,
                        offset_bytes: range.start.byte(),
                        size_bytes: range.bytes(),
                    };
                    if let Some(estimate) = &mut self.estimate {
                        estimate.ends.insert(id.0, Lba(range.end()));
                    }
                    self.below.submit(now, request, false)?;
                    // Some are done at once, and are to be taken before the next is submitted.
                    self.below.advance(now, &mut self.below_done);
                }
                NvramOutput::Reply(reply) => {
                    let service = match reply.stalled_since {
                        Some(since) => now.since(since),
                        None if reply.from_memory => Duration(0),
                        None => self.service,
                    };
                    self.done.push(TargetDone { id: reply.id.0, completed: now, service });
                }
            }
        }
        Ok(())
    }

    /// Tells the memory what has ended below, and at once what that makes it start and end.
    fn take_below_done(&mut self) {
        while !self.below_done.is_empty() {
            for done in std::mem::take(&mut self.below_done) {
                self.service = done.service;
                if let Some(estimate) = &mut self.estimate {
                    estimate.head =
                        estimate.ends.remove(&done.id).map_or(estimate.head, LastAddress);
                }
                let input = NvramInput::BelowDone(BelowId(done.id), true);
                self.input(done.completed, input).expect("it was there for the request");
            }
        }
    }
}

impl<T: Target> HeadPosition for NvramTarget<T> {
    fn block(&self) -> Lba {
        self.below.block()
    }

    fn cost(&self, now: Time, block: Lba) -> u64 {
        self.below.cost(now, block)
    }
}

impl<T: Target> Target for NvramTarget<T> {
    fn submit(
        &mut self,
        now: Time,
        request: DiskRequest,
        _is_fua: bool,
    ) -> Result<(), DiskRequestError> {
        let DiskRequest { id, operation, offset_bytes, size_bytes } = request;
        let operation = match operation {
            DiskOperation::Read => NvramOperation::Read,
            DiskOperation::Write => NvramOperation::Write,
            DiskOperation::Flush => {
                self.done.push(TargetDone { id, completed: now, service: Duration(0) });
                return Ok(());
            }
        };
        self.below.check(&request)?;
        let start = offset_bytes / BLOCK_SIZE;
        let end = (offset_bytes + size_bytes).div_ceil(BLOCK_SIZE);
        let range = LbaRange::new(start, end - start);
        // What will be read and cleaned are whole blocks, of which the last may be cut by the end
        // of the disk.
        let (offset_bytes, size_bytes) = (range.start.byte(), range.bytes());
        self.below.check(&DiskRequest { offset_bytes, size_bytes, ..request })?;
        let request = NvramRequest { id: RequestId(id), operation, range };
        self.input(now, NvramInput::Request(request))?;
        self.take_below_done();
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.below.memory_bytes()
    }

    fn bill(&self) -> Bill {
        self.below.bill()
    }

    fn check(&self, request: &DiskRequest) -> Result<(), DiskRequestError> {
        self.below.check(request)
    }

    fn next_event(&self) -> Option<Time> {
        if let Some(done) = self.done.first() {
            return Some(done.completed);
        }
        self.below.next_event().into_iter().chain(self.nvram.wake_up()).min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<TargetDone>) {
        done.append(&mut self.done);
        loop {
            let wake_up = self.nvram.wake_up();
            let next = self.below.next_event().into_iter().chain(wake_up).min();
            let Some(next) = next.filter(|next| *next <= now) else { break };
            self.below.advance(next, &mut self.below_done);
            if wake_up == Some(next) && self.below_done.is_empty() {
                self.input(next, NvramInput::Timeout).expect("it was there for the request");
            }
            self.take_below_done();
        }
        self.below.advance(now, &mut self.below_done);
        done.append(&mut self.done);
    }

    fn facts(&self) -> TargetFacts {
        let counters = self.nvram.counters();
        let bytes = |blocks: u64| blocks * BLOCK_SIZE;
        let has_hot_zone = self.policy == NvramPolicyKind::Stack;
        let ratio = self.nvram.hot_zone().map(|zone| zone.hit_ratio());
        let curve = ratio.map(|ratio| ratio.curve()).unwrap_or_default();
        TargetFacts {
            stalled_writes: counters.stalled_writes,
            overwrites: counters.overwrites,
            nvram: Some(NvramFacts {
                writes: counters.writes,
                write_bytes: bytes(counters.write_blocks),
                overwritten_bytes: bytes(counters.overwritten_blocks),
                bypasses: counters.bypasses,
                read_hits: counters.read_hits,
                read_misses: counters.read_misses,
                cleanings: counters.cleanings,
                cleaned_groups: counters.cleaned_groups,
                cleaning_writes: counters.cleaning_writes,
                cleaning_bytes: bytes(counters.cleaning_blocks),
                dirty_bytes: bytes(self.nvram.dirty_blocks()),
                control: self.nvram.control().map(|status| ControlFacts {
                    arm: status.arm().name,
                    does: status.arm().why,
                    switches: status.switches,
                    waited_ms: (ARMS.iter().zip(status.waited))
                        .map(|(arm, waited)| (arm.name, waited.0 as f64 / 1e6))
                        .collect(),
                }),
                hot_zone_bytes: has_hot_zone.then(|| bytes(self.nvram.hot_zone_blocks())),
                knee_bytes: ratio.map(|ratio| bytes(ratio.knee_blocks())),
                hit_ratio_by_bytes: curve
                    .into_iter()
                    .map(|(blocks, ratio)| (bytes(blocks), ratio))
                    .collect(),
            }),
            ..self.below.facts()
        }
    }
}
