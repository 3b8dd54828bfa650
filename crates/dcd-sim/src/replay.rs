//! Replays a trace on a disk model or a cache above one, on virtual time: request by request, in
//! memory that does not grow with the trace.
//!
//! A write with PREFLUSH has a flush before it and is done with the later of the two. Discards are
//! counted only. The *service time* of a request is what the disk spends on it, or how long it
//! waits for room in a cache; the *response time* is from its coming to its end, the *queue time*
//! is the rest (Haining, chapter 7).

use std::collections::HashMap;

use dcd_engine::Time;
use serde::Serialize;

use crate::bound::BoundFacts;
use crate::disk::model::{DiskOperation, DiskRequest, DiskRequestError};
use crate::disk::price::{Bill, CostFacts};
use crate::disk::store::StoreFacts;
use crate::distribution::{Distribution, Percentiles};
pub use crate::pace::Pace;
use crate::pace::Pacer;
use crate::target::{DrainFacts, Target, TargetDone, TargetFacts};
use crate::trace::{Flags, Operation, Request};

/// Requests that may wait at once.
pub const WAITING_MAX: usize = 1 << 20;
/// Parts of a request: a flush, and the request.
const PARTS: u64 = 2;

/// Why a request cannot be replayed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ReplayError {
    /// The disk refuses it.
    #[error(transparent)]
    Disk(#[from] DiskRequestError),
    /// The trace is of several disks.
    #[error("expected requests for device {first} only, found one for device {found}")]
    Devices {
        /// Of the first request.
        first: u32,
        /// Of this one.
        found: u32,
    },
    /// The disk is too slow.
    #[error("the disk cannot keep up: {WAITING_MAX} requests wait")]
    Overload,
    /// It takes too much memory.
    #[error("it takes more than {bytes} {TOO_MUCH_MEMORY}")]
    Memory {
        /// What it may take.
        bytes: u64,
    },
    /// The stretch is too large.
    #[error("stretched to more than a century")]
    TooLong,
}

impl ReplayError {
    /// What to call the field that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            ReplayError::Disk(DiskRequestError::Empty { .. }) => "size",
            ReplayError::Disk(
                DiskRequestError::BeyondEnd { .. } | DiskRequestError::NotInOrder { .. },
            ) => "address",
            ReplayError::Devices { .. } => "device",
            ReplayError::Overload | ReplayError::TooLong => "time",
            ReplayError::Memory { .. } => "memory",
        }
    }

    /// The next step.
    pub fn hint(&self) -> &'static str {
        match self {
            ReplayError::Disk(DiskRequestError::Empty { .. }) => {
                "a read or write has a size; a flush of its own is of the kind F"
            }
            ReplayError::Disk(DiskRequestError::BeyondEnd { .. }) => {
                "`dcd disk list` shows larger disks"
            }
            ReplayError::Disk(DiskRequestError::NotInOrder { .. }) => {
                "it is a disk for hosts that write zones in order; see docs/disk-models.md"
            }
            ReplayError::Devices { .. } => {
                "choose one with --device; `dcd trace summary` counts them"
            }
            ReplayError::Overload => {
                "the trace is from a faster disk: --closed-loop, or --stretch 10"
            }
            ReplayError::TooLong => "use a smaller --stretch",
            ReplayError::Memory { .. } => "give more with --memory-max, or a smaller --cache-disk",
        }
    }
}

/// In what is said of a simulation that was given up for this.
pub const TOO_MUCH_MEMORY: &str = "bytes of memory";

/// A request that is being served.
#[derive(Clone, Copy, Debug)]
struct Pending {
    operation: Operation,
    submitted_ns: u64,
    parts_left: u32,
    service_ns: u64,
}

/// Times of reads, of writes or of flushes.
#[derive(Clone, Default, Debug)]
struct Times {
    service: Distribution,
    queue: Distribution,
    response: Distribution,
}

/// Times of reads, of writes or of flushes, in milliseconds; none if there were none.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct TimesFacts {
    /// What the disk spent on a request.
    pub service_ms: Option<Percentiles>,
    /// How long it waited.
    pub queue_ms: Option<Percentiles>,
    /// Both.
    pub response_ms: Option<Percentiles>,
}

/// How a run with sequences was done.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SequenceRunFacts {
    /// As on the command line.
    pub mode: &'static str,
    /// How often the load had come before: to be recorded, or to be found.
    pub passes_before: u32,
    /// Simulated time that copying took after the last of them, rests between included.
    pub copying_s: f64,
    /// Without sequences.
    pub before: Box<ReplayFacts>,
}

/// What has come out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReplayFacts {
    /// All requests.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes that are requests of their own.
    pub flushes: u64,
    /// Discards, which the disk does not get.
    pub discards: u64,
    /// What disks and caches did.
    #[serde(flatten)]
    pub target: TargetFacts,
    /// Most requests at once.
    pub outstanding_max: u64,
    /// Memory that the simulation took, about; 0 where nobody looked.
    #[serde(skip)]
    pub memory_bytes_max: u64,
    /// Until the last was done.
    pub duration_s: f64,
    /// Until the last came; 0 where each waited for the one before.
    #[serde(skip)]
    pub arrivals_s: f64,
    /// Times of reads.
    pub read: TimesFacts,
    /// Times of writes.
    pub write: TimesFacts,
    /// Times of flushes that are requests of their own.
    pub flush: TimesFacts,
    /// What the disks spent on reads.
    #[serde(flatten)]
    pub access: ReadAccess,
    /// Of a run with sequences: how it was done, and what it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequences: Option<SequenceRunFacts>,
    /// How few writes to the disk there could be, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<BoundFacts>,
    /// What came of a bucket behind a log, emptying the log included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreFacts>,
    /// What the disks cost in a month that goes on like this, emptying the log included; none if
    /// they have no prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostFacts>,
    /// What that follows from, for whoever compares it with others.
    #[serde(skip)]
    pub bill: Bill,
    /// What it would take to move what a log still holds at the end; not part of the numbers above.
    pub drain: Option<DrainFacts>,
}

/// What the disks spent on the reads of clients. Parts are in [`TargetFacts`].
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ReadAccess {
    /// Sum of the access times of all disk reads that served reads of clients, those ahead of them
    /// included.
    pub read_disk_time_ms: f64,
    /// Sum of the distances that the arms went for them, in blocks of 512 bytes.
    pub seek_distance: u64,
    /// That time by read of a client; none if there were none.
    pub average_access_ms: Option<f64>,
}

impl ReplayFacts {
    /// The seconds that the price of a month follows from: a load that comes as it came.
    pub fn month_of_s(&self) -> f64 {
        if self.arrivals_s > 0.0 { self.arrivals_s } else { self.duration_s }
    }
}

impl ReadAccess {
    fn of(target: &TargetFacts, reads: u64) -> ReadAccess {
        let (data, cache) = (target.data_disk_access, target.cache_disk_access.unwrap_or_default());
        let read_disk_time_ms = data.time_ms + cache.time_ms;
        ReadAccess {
            read_disk_time_ms,
            seek_distance: data.seek_distance + cache.seek_distance,
            average_access_ms: (reads > 0).then(|| read_disk_time_ms / reads as f64),
        }
    }
}

/// A replay.
pub struct Replay {
    target: Box<dyn Target>,
    pacer: Pacer,
    device: Option<u32>,
    /// When it began; times of the trace count from there.
    start_ns: u64,
    number: u64,
    pending: HashMap<u64, Pending>,
    done: Vec<TargetDone>,
    end_ns: u64,
    /// When the last came.
    arrived_ns: u64,
    outstanding_max: usize,
    memory_bytes_max: u64,
    counts: [u64; 4],
    /// Of reads, writes and flushes.
    times: [Times; 3],
}

impl Replay {
    /// Of a trace on that disk or cache.
    pub fn new(target: Box<dyn Target>, pace: Pace) -> Replay {
        Replay::begin_at(target, pace, Time::ZERO)
    }

    /// The same, on a target for which it is that late already.
    pub fn begin_at(target: Box<dyn Target>, pace: Pace, start: Time) -> Replay {
        Replay {
            target,
            pacer: Pacer::new(pace),
            device: None,
            start_ns: start.0,
            number: 0,
            pending: HashMap::new(),
            done: Vec::new(),
            end_ns: start.0,
            arrived_ns: start.0,
            outstanding_max: 0,
            memory_bytes_max: 0,
            counts: [0; 4],
            times: Default::default(),
        }
    }

    /// Whether it takes no more memory than that, about.
    ///
    /// # Errors
    /// If it does.
    pub fn check_memory(&mut self, bytes_max: Option<u64>) -> Result<(), ReplayError> {
        let bytes = self.target.memory_bytes();
        self.memory_bytes_max = self.memory_bytes_max.max(bytes);
        match bytes_max {
            Some(most) if bytes > most => Err(ReplayError::Memory { bytes: most }),
            _ => Ok(()),
        }
    }

    /// Replays the next request.
    ///
    /// # Errors
    /// When the disk cannot have it; the replay is over then.
    pub fn add(&mut self, request: &Request) -> Result<(), ReplayError> {
        let first = *self.device.get_or_insert(request.device);
        if first != request.device {
            return Err(ReplayError::Devices { first, found: request.device });
        }
        self.counts[request.operation as usize] += 1;
        let end_ns = self.end_ns - self.start_ns;
        let submitted_ns =
            self.pacer.submission_ns(request, end_ns).ok_or(ReplayError::TooLong)? + self.start_ns;
        self.arrived_ns = submitted_ns;
        self.end_ns = self.end_ns.max(submitted_ns);
        if request.operation == Operation::Discard {
            return Ok(());
        }
        self.advance(submitted_ns);
        if self.pending.len() >= WAITING_MAX {
            return Err(ReplayError::Overload);
        }
        self.submit(submitted_ns, request)?;
        if self.pacer.is_closed() {
            self.wait_for_all();
        }
        Ok(())
    }

    fn submit(&mut self, now_ns: u64, request: &Request) -> Result<(), ReplayError> {
        let is_write = request.operation == Operation::Write;
        let operation = match request.operation {
            Operation::Read => DiskOperation::Read,
            Operation::Write => DiskOperation::Write,
            _ => DiskOperation::Flush,
        };
        let has = |flag| is_write && request.flags.contains(flag);
        let parts = [has(Flags::PREFLUSH).then_some(DiskOperation::Flush), Some(operation)];
        let number = self.number;
        self.number += 1;
        let pending = Pending {
            operation: request.operation,
            submitted_ns: now_ns,
            parts_left: parts.iter().flatten().count() as u32,
            service_ns: 0,
        };
        self.pending.insert(number, pending);
        self.outstanding_max = self.outstanding_max.max(self.pending.len());
        for (part, operation) in (0..).zip(parts) {
            let Some(operation) = operation else { continue };
            let disk_request = DiskRequest {
                id: number * PARTS + part,
                operation,
                offset_bytes: request.offset_bytes,
                size_bytes: request.size_bytes,
            };
            self.target.submit(Time(now_ns), disk_request, has(Flags::FUA))?;
            // It may be done at once, and the target wants that taken before it gets more.
            self.advance(now_ns);
        }
        Ok(())
    }

    /// Takes what is done by then.
    fn advance(&mut self, now_ns: u64) {
        self.target.advance(Time(now_ns), &mut self.done);
        for done in self.done.drain(..) {
            let number = done.id / PARTS;
            let pending = self.pending.get_mut(&number).expect("it was submitted");
            pending.parts_left -= 1;
            pending.service_ns += done.service.0;
            self.end_ns = self.end_ns.max(done.completed.0);
            if pending.parts_left > 0 {
                continue;
            }
            let Pending { operation, submitted_ns, service_ns, .. } = *pending;
            self.pending.remove(&number);
            let times = match operation {
                Operation::Read => &mut self.times[0],
                Operation::Write => &mut self.times[1],
                Operation::Flush => &mut self.times[2],
                Operation::Discard => continue,
            };
            let response_ns = done.completed.0 - submitted_ns;
            times.service.add(service_ns);
            times.response.add(response_ns);
            // Parts may overlap on disks that serve several at once.
            times.queue.add(response_ns.saturating_sub(service_ns));
        }
    }

    fn wait_for_all(&mut self) {
        while !self.pending.is_empty() {
            let event = self.target.next_event().expect("what is not done will be");
            self.advance(event.0);
        }
    }

    /// Waits for what is not done yet. What a cache holds then stays there; what moving it would
    /// take is told apart.
    pub fn finish(self) -> ReplayFacts {
        let (mut facts, mut target, end) = self.finish_pass();
        facts.drain = target.drain(end);
        facts.store = target.store();
        facts.bill = target.bill();
        facts.cost = facts.bill.month(facts.month_of_s());
        facts
    }

    /// The same, for a replay that others on the same target follow: without what emptying a cache
    /// would take.
    pub fn finish_pass(mut self) -> (ReplayFacts, Box<dyn Target>, Time) {
        self.wait_for_all();
        let [reads, writes, discards, flushes] = self.counts;
        let [read, write, flush] = self.times.map(|times| TimesFacts {
            service_ms: times.service.percentiles(1e6),
            queue_ms: times.queue.percentiles(1e6),
            response_ms: times.response.percentiles(1e6),
        });
        let target = self.target.facts();
        let facts = ReplayFacts {
            requests: reads + writes + discards + flushes,
            reads,
            writes,
            flushes,
            discards,
            access: ReadAccess::of(&target, reads),
            target,
            outstanding_max: self.outstanding_max as u64,
            memory_bytes_max: self.memory_bytes_max,
            duration_s: (self.end_ns - self.start_ns) as f64 / 1e9,
            arrivals_s: match self.pacer.is_closed() {
                true => 0.0,
                false => (self.arrived_ns - self.start_ns) as f64 / 1e9,
            },
            read,
            write,
            flush,
            sequences: None,
            bound: None,
            store: None,
            cost: None,
            bill: Bill::default(),
            drain: None,
        };
        (facts, self.target, Time(self.end_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::model::DiskModel;
    use crate::disk::profile::Profile;
    use crate::target::disk::DiskTarget;

    fn replay(pace: Pace) -> Replay {
        let profile = Profile::load("hp-2200a").unwrap();
        Replay::new(Box::new(DiskTarget::new(DiskModel::new(&profile, 0).unwrap())), pace)
    }

    fn request(time_us: u64, operation: Operation, offset_bytes: u64) -> Request {
        Request {
            time_ns: time_us * 1000,
            operation,
            device: 0,
            offset_bytes,
            size_bytes: 4096,
            flags: Flags::default(),
            latency_ns: None,
            line: 2,
            column: 1,
        }
    }

    const RECORDED: Pace = Pace::Open { stretch: 1.0 };

    #[test]
    fn who_waits_has_a_queue_time() {
        let mut open = replay(RECORDED);
        for n in 0..10 {
            open.add(&request(n, Operation::Read, n * 10_000_384)).unwrap();
        }
        let facts = open.finish();
        let read = facts.read;
        let mean = |p: Option<Percentiles>| p.unwrap().mean;
        assert_eq!((facts.requests, facts.reads, facts.outstanding_max), (10, 10, 10));
        assert!(mean(read.queue_ms) > mean(read.service_ms), "{read:?}");
        let sum = mean(read.queue_ms) + mean(read.service_ms);
        assert!((mean(read.response_ms) - sum).abs() < 1e-6);
        assert!(facts.write.response_ms.is_none());
    }

    #[test]
    fn nobody_waits_in_a_closed_loop() {
        let mut closed = replay(Pace::Closed);
        for n in 0..10 {
            closed.add(&request(n, Operation::Write, n * 10_000_384)).unwrap();
        }
        let facts = closed.finish();
        assert_eq!((facts.target.disk_writes, facts.target.disk_write_bytes), (10, 40_960));
        assert_eq!((facts.outstanding_max, facts.write.queue_ms.unwrap().max), (1, 0.0));
        let service_s = facts.write.service_ms.unwrap().mean * 10.0 / 1000.0;
        assert!((facts.duration_s - service_s).abs() < 1e-6, "{facts:?}");
    }

    /// The second came 70 ms after the end of the first, however long that takes now.
    #[test]
    fn a_closed_loop_keeps_the_time_between() {
        let mut closed = replay(Pace::Closed);
        let mut first = request(0, Operation::Read, 0);
        first.latency_ns = Some(30_000_000);
        closed.add(&first).unwrap();
        closed.add(&request(100_000, Operation::Read, 0)).unwrap();
        let facts = closed.finish();
        let service_s = facts.read.service_ms.unwrap().mean * 2.0 / 1000.0;
        assert!((facts.duration_s - service_s - 0.07).abs() < 1e-6, "{facts:?}");
    }

    #[test]
    fn stretching_makes_room() {
        let facts = [1.0, 1e6].map(|stretch| {
            let mut open = replay(Pace::Open { stretch });
            for n in 0..10 {
                open.add(&request(n, Operation::Read, n * 10_000_384)).unwrap();
            }
            open.finish()
        });
        assert!(facts[0].outstanding_max > 1 && facts[1].outstanding_max == 1, "{facts:?}");
        assert!(facts[1].duration_s > 9.0);
    }

    #[test]
    fn flags_cost_flushes_and_discards_nothing() {
        let response = |flags: Flags| {
            let mut open = replay(RECORDED);
            let write = Request { flags, ..request(0, Operation::Write, 81_920) };
            open.add(&write).unwrap();
            open.add(&request(900_000, Operation::Discard, 1 << 60)).unwrap();
            open.add(&request(900_000, Operation::Flush, 0)).unwrap();
            let facts = open.finish();
            assert_eq!((facts.discards, facts.flushes, facts.target.disk_writes), (1, 1, 1));
            facts.write.response_ms.unwrap().max
        };
        assert!(response(Flags::FUA.with(Flags::PREFLUSH)) >= response(Flags::default()));
    }

    #[test]
    fn what_the_disk_cannot_have_is_refused() {
        let mut open = replay(RECORDED);
        open.add(&request(0, Operation::Read, 0)).unwrap();
        let other = Request { device: 7, ..request(1, Operation::Read, 0) };
        assert_eq!(open.add(&other), Err(ReplayError::Devices { first: 0, found: 7 }));
        let beyond = open.add(&request(1, Operation::Read, 1 << 40)).unwrap_err();
        assert!(matches!(beyond, ReplayError::Disk(DiskRequestError::BeyondEnd { .. })));
        let mut stretched = replay(Pace::Open { stretch: 1e30 });
        assert_eq!(stretched.add(&request(1, Operation::Read, 0)), Err(ReplayError::TooLong));
    }
}
