//! Proves that the requests are as many and as large as in Haining's Table 7.1, and that a memory
//! in front of the disk that he had does with them what it does in his Table 7.3.

use dcd_engine::nvram::{NvramConfig, NvramPolicyKind};

use super::{Value, WorkloadKind, WorkloadSpec};
use crate::disk::profile::Profile;
use crate::replay::{Pace, Replay, ReplayFacts};
use crate::target::setup::{Groups, Head, NvramSetup, Setup};
use crate::trace::summary::Summarizer;

fn snake(disk: u64) -> WorkloadSpec {
    WorkloadSpec::new(WorkloadKind::Snake).with("disk", Value::Whole(disk - 5)).unwrap()
}

#[track_caller]
fn assert_near(what: &str, found: f64, wanted: f64, tolerance: f64) {
    assert!((found / wanted - 1.0).abs() <= tolerance, "{what}: {found}, wanted {wanted}");
}

#[test]
fn numbers_and_sizes_are_those_of_the_table() {
    for (disk, reads, read_kb, writes, write_kb) in
        [(5, 134_420.0, 5.354, 129_379.0, 6.876), (6, 146_782.0, 6.152, 240_632.0, 6.726)]
    {
        let mut summarizer = Summarizer::new(1_000_000_000);
        snake(disk).workload().unwrap().for_each(|request| summarizer.add(&request));
        let facts = summarizer.finish().unwrap();
        assert_eq!(facts.requests, (reads + writes) as u64);
        assert_near("reads", facts.reads.count as f64, reads, 0.03);
        assert_near("writes", facts.writes.count as f64, writes, 0.03);
        let mean_kb = |bytes: u64, count: u64| bytes as f64 / count as f64 / 1024.0;
        assert_near("read size", mean_kb(facts.reads.bytes, facts.reads.count), read_kb, 0.02);
        assert_near("write size", mean_kb(facts.writes.bytes, facts.writes.count), write_kb, 0.02);
        assert_near("six days", facts.duration_s, 6.0 * 86_400.0, 0.03);
        // Bursts every half minute or so, with silence between them.
        assert_near("burst", facts.bursts.requests.unwrap().mean, 16.0, 0.1);
        // It fits on the drive.
        assert!(facts.end_bytes <= 1_355_000_000, "{}", facts.end_bytes);
    }
}

fn simulate(disk: u64, capacity_bytes: u64, policy: NvramPolicyKind) -> ReplayFacts {
    let capacity_blocks = capacity_bytes / 512;
    let config = NvramConfig { capacity_blocks, policy, ..NvramConfig::default() };
    let setup = Setup {
        nvram: Some(NvramSetup { config, groups: Groups::Tracks, head: Head::Model }),
        ..Setup::of(Profile::load("hp-97560").unwrap(), 0)
    };
    let mut replay = Replay::new(setup.build().unwrap(), Pace::Open { stretch: 1.0 });
    snake(disk).workload().unwrap().for_each(|request| replay.add(&request).unwrap());
    replay.finish()
}

#[test]
fn a_memory_does_with_it_what_the_thesis_says() {
    for (disk, disk_writes, overwrites) in [(5, 33_538.0, 79_678.0), (6, 57_059.0, 143_191.0)] {
        let facts = simulate(disk, 128 << 10, NvramPolicyKind::Lru);
        assert_near("disk writes", facts.target.disk_writes as f64, disk_writes, 0.1);
        assert_near("overwrites", facts.target.overwrites as f64, overwrites, 0.05);
        let stalled = facts.target.stalled_writes as f64 / facts.writes as f64;
        assert!((0.0005..0.01).contains(&stalled), "few writes wait: {stalled}");
    }
    // Not fitted: Table 7.2, twice the memory.
    let facts = simulate(5, 256 << 10, NvramPolicyKind::Lru);
    assert_near("disk writes", facts.target.disk_writes as f64, 26_039.0, 0.15);
}
