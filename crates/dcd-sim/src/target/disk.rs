//! A bare disk model.

use std::collections::HashMap;

use dcd_engine::nvram::HeadPosition;
use dcd_engine::{Duration, Lba, Time};

use super::{DiskCounts, Target, TargetDone, TargetFacts};
use crate::disk::model::{DiskDone, DiskModel, DiskOperation, DiskRequest, DiskRequestError};

/// Requests to the disk for one of ours: itself, and a flush after it.
const PARTS: u64 = 2;

/// A disk model that counts. A write with FUA is a write, and a flush after it.
#[derive(Debug)]
pub struct DiskTarget {
    disk: DiskModel,
    now: Time,
    /// What is spent on requests of several parts so far.
    open: HashMap<u64, Duration>,
    disk_done: Vec<DiskDone>,
    counts: DiskCounts,
}

impl DiskTarget {
    /// That disk.
    pub fn new(disk: DiskModel) -> DiskTarget {
        DiskTarget {
            disk,
            now: Time::ZERO,
            open: HashMap::new(),
            disk_done: Vec::new(),
            counts: DiskCounts::default(),
        }
    }

    /// The disk.
    pub fn disk(&self) -> &DiskModel {
        &self.disk
    }

    pub(super) fn counts(&self) -> &DiskCounts {
        &self.counts
    }

    /// For what is done elsewhere in its name.
    pub(super) fn counts_mut(&mut self) -> &mut DiskCounts {
        &mut self.counts
    }
}

impl HeadPosition for DiskTarget {
    fn block(&self) -> Lba {
        self.disk.head_block()
    }

    fn cost(&self, now: Time, block: Lba) -> u64 {
        self.disk.access_ns(now, block)
    }
}

impl Target for DiskTarget {
    fn submit(
        &mut self,
        now: Time,
        request: DiskRequest,
        is_fua: bool,
    ) -> Result<(), DiskRequestError> {
        self.now = now;
        let DiskRequest { id, operation, size_bytes, .. } = request;
        self.disk.submit(now, DiskRequest { id: id * PARTS, ..request })?;
        self.counts.count(operation, size_bytes);
        if is_fua && operation == DiskOperation::Write {
            self.open.insert(id, Duration(0));
            // Disks without an arm may be done at once, and the model wants that taken first.
            self.disk.advance(now, &mut self.disk_done);
            let flush =
                DiskRequest { id: id * PARTS + 1, operation: DiskOperation::Flush, ..request };
            self.disk.submit(now, flush)?;
        }
        Ok(())
    }

    fn check(&self, request: &DiskRequest) -> Result<(), DiskRequestError> {
        self.disk.check(request)
    }

    fn next_event(&self) -> Option<Time> {
        match self.disk_done.first() {
            Some(done) => Some(done.completed),
            None => self.disk.next_event(),
        }
    }

    fn advance(&mut self, now: Time, done: &mut Vec<TargetDone>) {
        self.now = now;
        self.disk.advance(now, &mut self.disk_done);
        for DiskDone { id, started, completed, .. } in self.disk_done.drain(..) {
            let (id, is_flush) = (id / PARTS, id % PARTS == 1);
            let service = completed.since(started);
            self.counts.busy.0 += service.0;
            if self.open.is_empty() {
                done.push(TargetDone { id, completed, service });
                continue;
            }
            let service = match self.open.get_mut(&id) {
                Some(before) if !is_flush => {
                    *before = service;
                    continue;
                }
                Some(before) => Duration(before.0 + service.0),
                None => service,
            };
            self.open.remove(&id);
            done.push(TargetDone { id, completed, service });
        }
    }

    fn facts(&self) -> TargetFacts {
        let DiskCounts { reads, write_bytes, write_sizes, .. } = &self.counts;
        TargetFacts {
            disk_reads: *reads,
            disk_writes: write_sizes.count(),
            disk_write_bytes: *write_bytes,
            disk_write_kib: write_sizes.percentiles(1024.0),
            disk_busy_percent: self.counts.busy_percent(self.now),
            ..TargetFacts::default()
        }
    }
}
