//! The tier with bytes makes the choices of the tier without: on the same requests, and a disk that
//! does one thing after the other, both write, overwrite and wait as often. The simulator runs the
//! one, the daemon the other. What a crash does is tried in `dcd-fuzz`.

use std::collections::VecDeque;
use std::sync::Arc;

use dcd_engine::nvram::durable::{
    DurableConfig, DurableNvram, DurableOutput, MediumPersist, MemoryMedium, NvramStart,
};
use dcd_engine::nvram::{
    BelowId, LastAddress, Nvram, NvramConfig, NvramCounters, NvramInput, NvramOperation,
    NvramOutput, NvramPolicyKind, NvramRequest, Regions,
};
use dcd_engine::units::Lba;
use dcd_engine::{Buffer, Duration, LbaRange, Operation, Reply, Request, RequestId, Time, Uuid};

const BYTES: usize = 1 << 20;
const GROUP_BLOCKS: u64 = 64;

/// Writes of 4 KiB and of any length, some of them large, half of them to few places.
fn writes() -> Vec<LbaRange> {
    let mut state = 7u64;
    let mut next = move |end: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    (0..4000)
        .map(|_| {
            let blocks = match next(8) {
                0 => 40 + next(30),
                1..4 => 1 + next(32),
                _ => 8,
            };
            let start = if next(2) == 0 { next(40) * 8 } else { next(20_000) };
            LbaRange::new(start, blocks)
        })
        .collect()
}

/// One write after the other; the disk ends one thing after each.
fn counts_without_bytes(config: NvramConfig) -> (NvramCounters, u64) {
    let mut nvram = Nvram::new(config, Arc::new(Regions::new(GROUP_BLOCKS)));
    let mut below: VecDeque<(BelowId, LbaRange)> = VecDeque::new();
    let (mut head, mut replies, mut now) = (LastAddress::default(), 0, Time::ZERO);
    let mut take = |nvram: &mut Nvram, below: &mut VecDeque<_>| {
        while let Some(output) = nvram.poll_output() {
            match output {
                NvramOutput::Below(io) => below.push_back((io.id, io.range)),
                NvramOutput::Reply(_) => replies += 1,
            }
        }
        replies
    };
    for (id, range) in (1..).zip(writes()) {
        now = now.after(Duration::from_micros(10));
        let request = NvramRequest { id: RequestId(id), operation: NvramOperation::Write, range };
        nvram.handle_input(now, NvramInput::Request(request), &head);
        while take(&mut nvram, &mut below) < id || below.len() > 40 {
            let (done, range) = below.pop_front().expect("somebody waits for it");
            head = LastAddress(Lba(range.end()));
            nvram.handle_input(now, NvramInput::BelowDone(done, true), &head);
        }
    }
    (nvram.counters(), below.len() as u64)
}

fn counts_with_bytes(config: NvramConfig) -> (NvramCounters, u64) {
    let start = NvramStart {
        cache: Uuid([1; 16]),
        expected: None,
        new_id: Uuid([2; 16]),
        volume_blocks: 1 << 20,
        unit_blocks: 1,
        may_be_lost: false,
    };
    let config = DurableConfig { nvram: config, group_blocks: GROUP_BLOCKS };
    let medium = Box::new(MemoryMedium::new(vec![0; BYTES], MediumPersist::Now));
    let mut tier = DurableNvram::open(Time::ZERO, config, medium, &start).unwrap();
    tier.begin();
    let mut below: VecDeque<Request> = VecDeque::new();
    let (mut replies, mut now) = (0, Time::ZERO);
    let mut take = |tier: &mut DurableNvram, below: &mut VecDeque<_>| {
        while let Some(output) = tier.poll_output() {
            match output {
                DurableOutput::Below(request) => below.push_back(request),
                DurableOutput::Reply(reply) => {
                    assert_eq!(reply.result, Ok(()));
                    replies += 1;
                }
                DurableOutput::Persist(_) => unreachable!("memory is durable at once"),
            }
        }
        replies
    };
    for (id, range) in (1..).zip(writes()) {
        now = now.after(Duration::from_micros(10));
        let data = Buffer::copy_of(&vec![id as u8; range.bytes() as usize]);
        let operation = Operation::Write { start: range.start, data };
        tier.request(now, Request { id: RequestId(id), operation, fua: false });
        while take(&mut tier, &mut below) < id || below.len() > 40 {
            let done = below.pop_front().expect("somebody waits for it");
            let Operation::Write { data, .. } = done.operation else { panic!("only writes") };
            assert!(done.fua, "what is below is durable");
            let reply = Reply { id: done.id, result: Ok(()), buffer: Some(data), answer: None };
            tier.below_done(now, reply);
        }
    }
    (tier.status().counters, below.len() as u64)
}

#[test]
fn bytes_change_no_choice() {
    for policy in [
        NvramPolicyKind::Lru,
        NvramPolicyKind::Fifo,
        NvramPolicyKind::Stf,
        NvramPolicyKind::WeightedStf { age_max: Duration::from_millis(5) },
        NvramPolicyKind::Lst,
        NvramPolicyKind::Stack,
        NvramPolicyKind::AgeSize,
        NvramPolicyKind::Gds,
        NvramPolicyKind::Auto,
    ] {
        for (high_percent, low_percent) in [(90, 20), (100, 100)] {
            let config =
                NvramConfig { policy, high_percent, low_percent, ..NvramConfig::default() };
            let (with_bytes, left) = counts_with_bytes(config);
            assert!(with_bytes.overwritten_blocks > 0 && with_bytes.cleaning_writes > 0);
            // 13 chunks of 128 slots, 64 of them spare.
            let config = NvramConfig { capacity_blocks: 1664 - 64, past_waits: true, ..config };
            assert_eq!(counts_without_bytes(config), (with_bytes, left), "{policy:?}");
        }
    }
}
