//! The log on models: what it leaves behind, what emptying it takes, one disk and two.

use dcd_engine::{AckMode, Duration};

use super::*;
use crate::disk::profile::Profile;

fn target() -> LogTarget {
    let model = || DiskModel::new(&Profile::load("nvme-ssd").unwrap(), 0).unwrap();
    let geometry = Geometry::fit(8 << 20, 128 << 10).unwrap();
    LogTarget::new(geometry, EngineConfig::default(), model(), model()).unwrap()
}

/// Requests one after the other, each waited for.
fn serve(target: &mut LogTarget, operation: DiskOperation, count: u64) {
    let mut done = Vec::new();
    for id in 0..count {
        let request = DiskRequest { id, operation, offset_bytes: id * 4096, size_bytes: 4096 };
        target.submit(target.now, request, false).unwrap();
        while done.is_empty() {
            let next = target.next_event().unwrap_or(target.now);
            target.advance(next.max(target.now), &mut done);
        }
        done.clear();
    }
}

#[test]
fn reads_leave_no_memory_behind() {
    let mut target = target();
    serve(&mut target, DiskOperation::Read, 3 * SPARE_MAX as u64);
    assert!(target.spare.len() <= SPARE_MAX && target.submitted.is_empty());
}

/// Each write is a record of its own, so half of what is logged is headers.
#[test]
fn memory_is_bounded_by_what_is_live_and_not_by_the_log() {
    let model = || DiskModel::new(&Profile::load("nvme-ssd").unwrap(), 0).unwrap();
    let geometry = Geometry::fit(64 * MIB, MIB / 8).unwrap();
    let config = EngineConfig { ack: AckMode::Durable, ..EngineConfig::default() };
    let mut target = LogTarget::new(geometry, config, model(), model()).unwrap();
    let mut largest = 0;
    for _ in 0..100 {
        serve(&mut target, DiskOperation::Write, 100);
        largest = target.content.memory_bytes().max(largest);
    }
    let log = target.facts().log.unwrap();
    assert!(log.cache_disk_write_bytes > 64 * MIB, "it was filled more than once: {log:?}");
    assert!(largest < 3 * MIB, "{largest} bytes");
}

#[test]
fn a_log_of_very_many_segments_takes_requests() {
    let model = || DiskModel::new(&Profile::load("nvme-ssd").unwrap(), 0).unwrap();
    let geometry = Geometry::fit(32 << 30, MIB / 8).unwrap();
    let config = EngineConfig::default();
    let mut target = LogTarget::new(geometry, config, model(), model()).unwrap();
    serve(&mut target, DiskOperation::Write, 1);
    assert_eq!(target.facts().log.unwrap().dirty_lines, 1);
}

#[test]
fn a_drain_writes_what_is_left_and_takes_its_time() {
    let mut target = target();
    serve(&mut target, DiskOperation::Write, 100);
    let facts = target.facts();
    let left = facts.log.as_ref().unwrap().dirty_lines;
    assert!(left > 0 && left <= 100, "{facts:?}");
    let drain = target.drain(target.now).unwrap();
    assert_eq!(facts.disk_write_bytes + drain.disk_write_bytes, 100 * 4096);
    assert!(drain.disk_writes > 0 && drain.seconds > 0.0, "{drain:?}");
    assert!(drain.cache_disk_write_bytes >= left * 4096, "what was in memory went to the log");
    assert_eq!(target.facts().log.unwrap().dirty_lines, 0);
    assert_eq!(target.drain(target.now).unwrap().disk_writes, 0, "nothing is left");
}

const MIB: u64 = 1 << 20;

fn log(one_disk: bool) -> LogTarget {
    let profile = Profile::load("barracuda-4lp-4gb").unwrap();
    let disk = || DiskModel::new(&profile, 0).unwrap();
    let geometry = Geometry::fit(16 * MIB, MIB / 8).unwrap();
    let config = EngineConfig { one_disk, ack: AckMode::Memory, ..EngineConfig::default() };
    LogTarget::new(geometry, config, disk(), disk()).unwrap()
}

fn request(id: u64, operation: DiskOperation, offset_bytes: u64) -> DiskRequest {
    DiskRequest { id, operation, offset_bytes, size_bytes: 4096 }
}

/// The same requests, done after a minute of rest: facts, and the time of the last read.
fn facts(mut log: LogTarget) -> (TargetFacts, Duration) {
    let mut now = Time::ZERO;
    let mut done = Vec::new();
    for id in 0..100 {
        let write = request(id, DiskOperation::Write, id * MIB);
        log.submit(now, write, false).unwrap();
        now = now.after(Duration::from_millis(1));
        log.advance(now, &mut done);
    }
    now = now.after(Duration::from_secs(60));
    log.advance(now, &mut done);
    log.submit(now, request(100, DiskOperation::Read, 500 * MIB), false).unwrap();
    log.advance(now.after(Duration::from_secs(1)), &mut done);
    assert_eq!(done.len(), 101);
    (log.facts(), done.last().unwrap().service)
}

#[test]
fn one_disk_does_the_work_of_both() {
    let ((two, _), (one, read)) = (facts(log(false)), facts(log(true)));
    let (two_log, one_log) = (two.log.unwrap(), one.log.unwrap());
    assert_eq!((one_log.destaged_lines, two_log.destaged_lines), (100, 100));
    assert_eq!((one_log.dirty_lines, one_log.failed_requests), (0, 0));
    // All that the log does is also done by the only disk there is; of two, each does its own.
    assert_eq!(one.disk_writes - one_log.cache_disk_writes, one_log.destage_writes);
    assert_eq!(two.disk_writes, two_log.destage_writes);
    assert_eq!(one.disk_reads - one_log.cache_disk_reads, 1);
    assert!(one_log.cache_disk_busy_percent > 0.0);
    assert!(one.disk_busy_percent > one_log.cache_disk_busy_percent);
    assert!(read > Duration::from_millis(1) && read < Duration::from_millis(40), "{read:?}");
}

#[test]
fn the_log_takes_its_room_from_the_data() {
    let (one, two) = (log(true), log(false));
    let last = two.data_disk.disk().capacity_bytes() / 4096 * 4096 - 4096;
    let at = |offset_bytes| request(0, DiskOperation::Read, offset_bytes);
    assert_eq!(two.check(&at(last)), Ok(()));
    assert!(matches!(one.check(&at(last)), Err(DiskRequestError::BeyondEnd { .. })));
    assert_eq!(one.check(&at(last - 16 * MIB)), Ok(()));
}
