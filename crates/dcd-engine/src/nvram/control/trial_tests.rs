//! A trial against the tier that it stands for, driven by hand.

use std::sync::Arc;

use proptest::prelude::*;

use super::arms::ARMS;
use super::disk_times::DiskTimes;
use super::trial::{Arrival, Trial};
use crate::io::RequestId;
use crate::nvram::groups::{LastAddress, Regions};
use crate::nvram::tier::Tier;
use crate::nvram::{
    BelowId, BelowIo, BelowPurpose, NvramConfig, NvramInput, NvramOperation, NvramOutput,
    NvramRequest,
};
use crate::units::{Duration, Lba, LbaRange, Time};

/// A memory above a disk that serves one I/O after the other.
struct Real {
    tier: Tier,
    times: DiskTimes,
    now: Time,
    head: u64,
    queue: Vec<(Option<Time>, BelowIo)>,
    done: Vec<RequestId>,
    /// Writes of cleanings that ended while a request was below.
    in_the_way: u32,
}

impl Real {
    fn new(config: NvramConfig) -> Real {
        let tier = Tier::new(config, Arc::new(Regions::new(16)));
        let (queue, done) = (Vec::new(), Vec::new());
        Real { tier, times: times(), now: Time::ZERO, head: 0, queue, done, in_the_way: 0 }
    }

    fn input(&mut self, input: NvramInput) {
        self.tier.handle_input(self.now, input, &LastAddress(Lba(self.head)));
        self.tier.check_invariants();
        while let Some(output) = self.tier.poll_output() {
            match output {
                NvramOutput::Below(io) => self.queue.push((None, io)),
                NvramOutput::Reply(reply) => self.done.push(reply.id),
            }
        }
        self.start();
    }

    fn start(&mut self) {
        let Some((end @ None, io)) = self.queue.first_mut() else { return };
        *end = Some(self.now.after(self.times.expected(io, self.head)));
        self.head = io.range.end();
    }

    /// The next event, if it comes until then.
    fn step(&mut self, until: Time) -> bool {
        let at_disk = self.queue.first().and_then(|(end, _)| *end);
        let wake_up = self.tier.wake_up();
        let Some(next) = at_disk.into_iter().chain(wake_up).min() else { return false };
        if next > until {
            return false;
        }
        self.now = next;
        if at_disk == Some(next) {
            let (_, io) = self.queue.remove(0);
            let is_request = |io: &BelowIo| io.purpose != BelowPurpose::Cleaning;
            let waits = self.queue.iter().any(|(_, io)| is_request(io));
            self.in_the_way += u32::from(waits && !is_request(&io));
            self.start();
            self.input(NvramInput::BelowDone(io.id, true));
        } else {
            self.input(NvramInput::Timeout);
        }
        true
    }

    fn request(&mut self, id: u64, operation: NvramOperation, range: LbaRange) {
        self.input(NvramInput::Request(NvramRequest { id: RequestId(id), operation, range }));
    }
}

/// Of a disk on which near is fast.
fn times() -> DiskTimes {
    let mut times = DiskTimes::new();
    for operation in [NvramOperation::Read, NvramOperation::Write] {
        for log2 in 0..12 {
            let range = LbaRange::new(1 << log2, 1 + log2);
            let (id, purpose) = (BelowId(0), BelowPurpose::Cleaning);
            let io = BelowIo { id, operation, range, purpose };
            (0..8).for_each(|_| times.measured(&io, 0, Duration(100_000 * (1 + log2))));
        }
    }
    times
}

fn config(arm: usize) -> NvramConfig {
    let capacity_blocks = 128;
    ARMS[arm].config(&NvramConfig { capacity_blocks, ..NvramConfig::default() })
}

proptest! {
    /// In a closed loop a trial that is told the true times makes its clients wait as long as the
    /// memory that it stands for does, to the nanosecond, with each arm.
    #[test]
    fn a_trial_waits_as_the_real_memory_does(
        arm in 0..ARMS.len(),
        requests in prop::collection::vec(
            (prop::bool::weighted(0.2), 0u64..1500, 1u64..48, prop_oneof![0u64..20_000, 0u64..3_000_000]), 1..150),
    ) {
        let mut real = Real::new(config(arm));
        let mut trial = Trial::new(&config(arm), Arc::new(Regions::new(16)), 1);
        let (mut waited, mut in_trial, mut done_at) = (0, 0, Time::ZERO);
        for (number, (is_read, start, blocks, think)) in (0u64..).zip(requests) {
            let operation = if is_read { NvramOperation::Read } else { NvramOperation::Write };
            let range = LbaRange::new(start, blocks);
            let came = done_at.after(Duration(think));
            while real.step(came) {}
            real.now = came;
            real.request(number, operation, range);
            while real.done.len() as u64 <= number {
                prop_assert!(real.step(Time(u64::MAX)), "request {} never ends", number);
            }
            done_at = real.now;
            waited += done_at.since(came).0 / if is_read { 20 } else { 1 };
            let request = NvramRequest { id: RequestId(number), operation, range };
            let (arrival, mut steps) = (Arrival::AfterLast { nanoseconds: think }, u32::MAX);
            trial.request(Some(request), false, arrival, &times(), &mut steps);
            in_trial += trial.take_waited();
        }
        // The last request may still be under way.
        trial.request(None, false, Arrival::AfterLast { nanoseconds: 0 }, &times(), &mut { u32::MAX });
        in_trial += trial.take_waited();
        // A twentieth is rounded down each time.
        prop_assert!(in_trial.abs_diff(waited) <= 150, "{} in the trial, {}", in_trial, waited);
    }
}

/// However much there is to clean.
#[test]
fn a_read_waits_for_one_write_of_a_cleaning_at_most() {
    let mut real = Real::new(config(0));
    for number in 0..50 {
        real.request(number, NvramOperation::Write, LbaRange::new(number * 64, 2));
    }
    for number in 50..80 {
        for _ in 0..3 {
            assert!(real.step(Time(u64::MAX)), "there is much to clean");
        }
        let before = real.in_the_way;
        real.request(number, NvramOperation::Read, LbaRange::new(100_000 + number, 1));
        while real.done.len() as u64 <= number {
            assert!(real.step(Time(u64::MAX)));
        }
        assert!(real.in_the_way - before <= 1);
        if real.tier.dirty_blocks() == 0 {
            break;
        }
    }
    assert!(real.in_the_way > 5, "reads came while it was cleaning");
}
