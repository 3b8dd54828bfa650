//! A bare disk model.

use std::collections::HashMap;

use dcd_engine::nvram::HeadPosition;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{Device, Duration, Lba, Time};

use super::{Access, AccessFacts, DiskCounts, Target, TargetDone, TargetFacts};
use crate::disk::model::{DiskDone, DiskModel, DiskOperation, DiskRequest, DiskRequestError};
use crate::disk::price::{Bill, PriceProfile, Traffic, Usage};
use crate::disk::store::StoreFacts;

/// Requests to the disk for one of ours: itself, and a flush after it.
const PARTS: u64 = 2;
/// GETs a second by which an open store looks for news, counted with versitygw in three minutes of
/// rest.
const STORE_POLLS_PER_SECOND: f64 = 1.6;

/// A disk model that counts. A write with FUA is a write, and a flush after it.
#[derive(Debug)]
pub struct DiskTarget {
    disk: DiskModel,
    now: Time,
    /// What is spent on requests of several parts so far.
    open: HashMap<u64, Duration>,
    disk_done: Vec<DiskDone>,
    counts: DiskCounts,
    /// Before counting began.
    traffic_before: Traffic,
    store_before: StoreFacts,
    /// Reads and writes at the disk.
    transfers: HashMap<u64, Transfer>,
    /// The block behind the last one that was read or written.
    arm_at: u64,
    /// Reads that served clients, one by one, if somebody wants to see them.
    listed: Option<Vec<Access>>,
}

/// A read or write.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    start: u64,
    end: u64,
    /// On whose account it goes, if it reads for clients.
    serves: Option<Device>,
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
            traffic_before: Traffic::default(),
            store_before: StoreFacts::default(),
            transfers: HashMap::new(),
            arm_at: 0,
            listed: None,
        }
    }

    /// The disk.
    pub fn disk(&self) -> &DiskModel {
        &self.disk
    }

    /// The end of a window, as a request of that number.
    pub(super) fn commit(&mut self, now: Time, id: u64) {
        self.now = now;
        self.disk.commit(now, id * PARTS);
    }

    /// What is to be paid for what it did, if so much of it is taken.
    pub(super) fn device_bill(&self, room_bytes: u64) -> Option<(PriceProfile, Usage)> {
        let polls = self.disk.store().map_or(0.0, |_| STORE_POLLS_PER_SECOND);
        let usage = Usage {
            traffic: self.disk.traffic().since(&self.traffic_before),
            reads_per_second: polls,
            room_bytes,
            capacity_bytes: self.disk.capacity_bytes(),
            endurance_tbw: self.disk.endurance_tbw(),
        };
        Some((*self.disk.price()?, usage))
    }

    /// What came of a bucket since counting began.
    pub(super) fn store(&self) -> Option<StoreFacts> {
        self.disk.store().map(|store| store.since(&self.store_before))
    }

    pub(super) fn counts(&self) -> &DiskCounts {
        &self.counts
    }

    /// Takes a request. A read that serves those of clients goes on the account of that device: one
    /// disk may be both.
    pub(super) fn submit_for(
        &mut self,
        now: Time,
        request: DiskRequest,
        is_fua: bool,
        serves: Option<Device>,
    ) -> Result<(), DiskRequestError> {
        self.now = now;
        let DiskRequest { id, operation, offset_bytes, size_bytes } = request;
        self.disk.submit(now, DiskRequest { id: id * PARTS, ..request })?;
        self.counts.count(operation, size_bytes);
        if operation != DiskOperation::Flush {
            let start = offset_bytes / BLOCK_SIZE;
            let end = (offset_bytes + size_bytes).div_ceil(BLOCK_SIZE);
            self.transfers.insert(id, Transfer { start, end, serves });
        }
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

    /// Where the arm goes for what is done now, and how long it took. Drives serve one after the
    /// other.
    fn count_transfer(&mut self, id: u64, service: Duration) {
        let Some(Transfer { start, end, serves }) = self.transfers.remove(&id) else { return };
        let seek_blocks = match self.disk.has_arm() {
            true => start.abs_diff(self.arm_at),
            false => 0,
        };
        self.arm_at = end;
        if let Some(device) = serves {
            let access = &mut self.counts.served[served_index(device)];
            access.reads += 1;
            access.read_bytes += (end - start) * BLOCK_SIZE;
            access.time_ms += service.0 as f64 / 1e6;
            access.seek_distance += seek_blocks;
            if let Some(listed) = &mut self.listed {
                let access_ms = service.0 as f64 / 1e6;
                listed.push(Access { device, seek_distance: seek_blocks, access_ms });
            }
        }
    }

    /// Lists the reads that serve clients from now on.
    pub(super) fn list_accesses(&mut self) {
        self.listed = Some(Vec::new());
    }

    /// Those of them that are done.
    pub(super) fn take_listed(&mut self) -> Vec<Access> {
        self.listed.take().unwrap_or_default()
    }

    /// What it read for clients in the name of that device.
    pub(super) fn served(&self, device: Device) -> AccessFacts {
        self.counts.served[served_index(device)]
    }

    /// Counts from now on.
    pub(super) fn count_from(&mut self, now: Time) {
        self.counts = DiskCounts { since: now, ..DiskCounts::default() };
        self.traffic_before = self.disk.traffic();
        self.store_before = self.disk.store().unwrap_or_default();
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
        let serves = (request.operation == DiskOperation::Read).then_some(Device::DataDisk);
        self.submit_for(now, request, is_fua, serves)
    }

    fn bill(&self) -> Bill {
        Bill { disk: self.device_bill(self.disk.capacity_bytes()), cache_disk: None }
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
        for DiskDone { id, started, completed, .. } in std::mem::take(&mut self.disk_done) {
            let (id, is_flush) = (id / PARTS, id % PARTS == 1);
            let service = completed.since(started);
            self.counts.busy.0 += service.0;
            if !is_flush {
                self.count_transfer(id, service);
            }
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
            data_disk_access: self.served(Device::DataDisk),
            ..TargetFacts::default()
        }
    }
}

/// The place of a device among the counts.
fn served_index(device: Device) -> usize {
    match device {
        Device::CacheDisk => 0,
        Device::DataDisk => 1,
        Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
            unreachable!("one of each")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::profile::Profile;

    /// Reads and writes one after the other: what served clients, and how far the arm went for it.
    fn served(profile: &str) -> AccessFacts {
        let model = DiskModel::new(&Profile::load(profile).unwrap(), 0).unwrap();
        let mut target = DiskTarget::new(model);
        let (mut now, mut done) = (Time::ZERO, Vec::new());
        for (id, operation, offset_bytes) in [
            (0, DiskOperation::Read, 8192),
            (1, DiskOperation::Read, 12_288),
            (2, DiskOperation::Write, 4_096_000),
            (3, DiskOperation::Read, 4096),
            (4, DiskOperation::Flush, 0),
        ] {
            let request = DiskRequest { id, operation, offset_bytes, size_bytes: 4096 };
            target.submit(now, request, false).unwrap();
            now = target.next_event().unwrap();
            target.advance(now, &mut done);
        }
        assert_eq!(done.len(), 5);
        assert!(target.transfers.is_empty());
        let served = target.served(Device::DataDisk);
        target.count_from(now);
        assert_eq!(target.served(Device::DataDisk), AccessFacts::default());
        served
    }

    #[test]
    fn seeks_are_from_the_end_of_whatever_came_before() {
        let arm = served("hp-97560");
        assert_eq!((arm.reads, arm.read_bytes), (3, 3 * 4096));
        // To the first, none to its neighbour, and back from the write.
        assert_eq!(arm.seek_distance, 16 + (4_100_096 - 4096) / 512);
        assert!(arm.time_ms > 3.0, "{arm:?}");
        let none = served("nvme-ssd");
        assert_eq!((none.reads, none.seek_distance), (3, 0));
    }
}
