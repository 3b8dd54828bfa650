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
    let last = two.data.first().disk().capacity_bytes() / 4096 * 4096 - 4096;
    let at = |offset_bytes| request(0, DiskOperation::Read, offset_bytes);
    assert_eq!(two.check(&at(last)), Ok(()));
    assert!(matches!(one.check(&at(last)), Err(DiskRequestError::BeyondEnd { .. })));
    assert_eq!(one.check(&at(last - 16 * MIB)), Ok(()));
}

/// Counted with the real program and versitygw, log of 256 MiB: 275 PUTs in one run and 305 in
/// another for 1 GiB in sequence, half of them data objects. Counting begins when the store is open.
#[test]
fn a_bucket_gets_as_many_requests_as_the_real_one() {
    // As that server answered: 8 MiB in 75 ms, a row in 1 ms.
    let mut here = Profile::load("s3").unwrap();
    let simple = here.simple.as_mut().unwrap();
    (simple.write_us.median, simple.write_us.p99) = (1000.0, 2000.0);
    simple.request_bytes_per_second = Some(115e6);
    let aws = Profile::load("s3").unwrap();
    let puts = |profile: &Profile, requests: u64, bytes: u64, place: &dyn Fn(u64) -> u64| {
        let bucket = DiskModel::behind_log(profile, 0).unwrap();
        let cache = DiskModel::new(&Profile::load("nvme-ssd").unwrap(), 0).unwrap();
        let geometry = Geometry::fit(256 * MIB, MIB).unwrap();
        let config = EngineConfig {
            destage_policy: dcd_engine::DestagePolicyKind::Ordered,
            keeps_windows: true,
            ..EngineConfig::default()
        };
        let mut target = LogTarget::new(geometry, config, cache, bucket).unwrap();
        let mut done = Vec::new();
        // The window of an empty log.
        target.advance(Time(1_000_000_000), &mut done);
        assert_eq!(target.store().unwrap().puts, 1);
        for id in 0..requests {
            // 52 MB a second, as fio did.
            let now = target.now.max(Time(1_000_000_000 + id * bytes * 19));
            target.advance(now, &mut done);
            let offset_bytes = place(id) * bytes;
            let request = DiskRequest {
                id,
                operation: DiskOperation::Write,
                offset_bytes,
                size_bytes: bytes,
            };
            target.submit(now, request, false).unwrap();
            while done.len() as u64 + 4 <= id {
                let next = target.next_event().unwrap().max(target.now);
                target.advance(next, &mut done);
            }
        }
        target.drain(target.now).unwrap();
        assert_eq!(target.engine.status().dirty_lines, 0);
        let store = target.store().unwrap();
        StoreFacts { puts: store.puts - 1, ..store }
    };
    let sequence = puts(&here, 8192, 128 << 10, &|id| id);
    assert!((260..=320).contains(&sequence.puts), "{sequence:?}");
    assert!((128..=160).contains(&sequence.data_objects), "{sequence:?}");
    assert!(sequence.put_bytes < (1 << 30) * 106 / 100, "{sequence:?}");
    // One that takes longer gets no more of them: what waits is emptied together.
    let slower = puts(&aws, 8192, 128 << 10, &|id| id);
    assert!((260..=320).contains(&slower.puts), "{slower:?}");
    for profile in [&here, &aws] {
        let scattered = puts(profile, 2000, 4096, &|id| id * 7919 % 1_000_003);
        // One batch, although its lines are in eight segments.
        assert_eq!((scattered.puts, scattered.data_objects), (3, 1), "{scattered:?}");
    }
    // 256 MiB of them, at random in 4 GiB: at most 300 PUTs for each GB, as in sequence.
    let random = puts(&here, 65_536, 4096, &|id| {
        id.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32).wrapping_mul(0xbf58_476d) % (1 << 20)
    });
    assert!(random.puts * 1_000_000_000 <= 300 * (256 << 20), "{random:?}");
}

/// What was there before counting began is in neither.
#[test]
fn a_bucket_is_billed_for_what_is_told_of_it() {
    let bucket = DiskModel::behind_log(&Profile::load("s3").unwrap(), 0).unwrap();
    let cache = DiskModel::new(&Profile::load("nvme-ssd").unwrap(), 0).unwrap();
    let config = EngineConfig {
        destage_policy: dcd_engine::DestagePolicyKind::Ordered,
        keeps_windows: true,
        ..EngineConfig::default()
    };
    let geometry = Geometry::fit(16 * MIB, 128 << 10).unwrap();
    let mut target = LogTarget::new(geometry, config, cache, bucket).unwrap();
    let mut all = 0;
    for pass in 0..2 {
        target.count_from(target.now);
        serve(&mut target, DiskOperation::Write, 100);
        target.drain(target.now).unwrap();
        let (store, bill) = (target.store().unwrap(), target.bill());
        let traffic = bill.disk.unwrap().1.traffic;
        let told = (store.puts, store.put_bytes, store.gets, store.get_bytes);
        let billed = (traffic.writes, traffic.write_bytes, traffic.reads, traffic.read_bytes);
        assert_eq!(told, billed, "{pass}");
        assert!(store.data_objects >= 1, "{store:?}");
        all += store.puts;
    }
    assert_eq!(all, target.data.first().disk().store().unwrap().puts);
}

/// As many as a load that the log cannot follow sends at once.
#[test]
fn writes_that_wait_take_memory() {
    let mut target = target();
    let before = target.memory_bytes();
    let mut done = Vec::new();
    for id in 0..64 {
        let request = DiskRequest {
            id,
            operation: DiskOperation::Write,
            offset_bytes: id * MIB,
            size_bytes: MIB,
        };
        target.submit(target.now, request, false).unwrap();
        target.advance(target.now, &mut done);
    }
    let waiting = (64 - done.len() as u64) * MIB;
    assert!(waiting > 32 * MIB, "{} are done at once", done.len());
    assert!(target.memory_bytes() - before >= waiting);
    while done.len() < 64 {
        let next = target.next_event().unwrap();
        target.advance(next.max(target.now), &mut done);
    }
    assert_eq!(target.waiting_bytes, 0);
}
