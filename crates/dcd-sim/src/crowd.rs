//! Several users at one disk: each waits for his own requests only, and all of them think on one
//! processor.
//!
//! A user submits a request, waits until it is done, thinks as long as lies between it and the next
//! in his stream, and submits that. The processor serves one user at a time, in the order in which
//! their requests were done. [`crate::replay`] has one request at a time, or does not wait at all;
//! here as many wait as there are users who do not think.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use dcd_engine::{Duration, Time};

use crate::disk::model::{DiskOperation, DiskRequest};
use crate::replay::ReplayError;
use crate::target::{Target, TargetDone, TargetFacts};
use crate::trace::{Flags, Operation, Request};

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct CrowdFacts {
    /// Until the last user was done.
    pub duration: Duration,
    /// How long the processor was busy.
    pub thinking: Duration,
    /// Response times of reads, in the order in which they were done.
    pub reads: Vec<Duration>,
    /// The same of writes.
    pub writes: Vec<Duration>,
    /// What disks and caches did until then.
    pub target: TargetFacts,
    /// The same after a long rest in which nobody came: what a cache still had to do.
    pub rested: TargetFacts,
}

/// A user.
struct User<S: Iterator<Item = Request>> {
    stream: std::iter::Peekable<S>,
    /// What he waits for, or last waited for, and since when.
    request: Option<(Request, Time)>,
}

struct Crowd<S: Iterator<Item = Request>> {
    target: Box<dyn Target>,
    users: Vec<User<S>>,
    /// Users who think, by when they are done with it.
    thinking: BinaryHeap<Reverse<(Time, usize)>>,
    /// Who waits for the request of that number.
    waiting: BTreeMap<u64, usize>,
    processor_free: Time,
    now: Time,
    number: u64,
    done: Vec<TargetDone>,
    facts: CrowdFacts,
}

/// Lets each stream be a user of the target. After the last is done, `rest` goes by.
///
/// # Errors
/// When the disk cannot have a request.
pub fn replay<S: Iterator<Item = Request>>(
    target: Box<dyn Target>,
    streams: Vec<S>,
    rest: Duration,
) -> Result<CrowdFacts, ReplayError> {
    let users: Vec<User<S>> = streams
        .into_iter()
        .map(|stream| User { stream: stream.peekable(), request: None })
        .collect();
    let mut crowd = Crowd {
        target,
        thinking: (0..users.len()).map(|user| Reverse((Time::ZERO, user))).collect(),
        users,
        waiting: BTreeMap::new(),
        processor_free: Time::ZERO,
        now: Time::ZERO,
        number: 0,
        done: Vec::new(),
        facts: CrowdFacts {
            duration: Duration(0),
            thinking: Duration(0),
            reads: Vec::new(),
            writes: Vec::new(),
            target: TargetFacts::default(),
            rested: TargetFacts::default(),
        },
    };
    while crowd.go_on()? {}
    crowd.facts.duration = crowd.now.since(Time::ZERO);
    crowd.facts.target = crowd.target.facts();
    crowd.target.advance(crowd.now.after(rest), &mut crowd.done);
    crowd.facts.rested = crowd.target.facts();
    Ok(crowd.facts)
}

impl<S: Iterator<Item = Request>> Crowd<S> {
    /// Does what comes next; says whether anything did.
    fn go_on(&mut self) -> Result<bool, ReplayError> {
        let request_at = self.thinking.peek().map(|Reverse((at, _))| *at);
        let done_at = self.target.next_event().filter(|_| !self.waiting.is_empty());
        let Some(now) = request_at.into_iter().chain(done_at).min() else { return Ok(false) };
        self.now = self.now.max(now);
        self.advance();
        // What was done just now may come before, but not take, the turn of who has thought.
        if request_at == Some(now)
            && let Some(Reverse((_, user))) = self.thinking.pop()
        {
            self.submit(user)?;
        }
        Ok(true)
    }

    fn submit(&mut self, user: usize) -> Result<(), ReplayError> {
        let Some(request) = self.users[user].stream.next() else { return Ok(()) };
        self.users[user].request = Some((request, self.now));
        let operation = match request.operation {
            Operation::Read => DiskOperation::Read,
            Operation::Write => DiskOperation::Write,
            Operation::Flush => DiskOperation::Flush,
            // Not simulated: nobody waits for it.
            Operation::Discard => {
                self.think(user, self.now);
                return Ok(());
            }
        };
        let is_fua = request.flags.contains(Flags::FUA) && operation == DiskOperation::Write;
        let disk_request = DiskRequest {
            id: self.number,
            operation,
            offset_bytes: request.offset_bytes,
            size_bytes: request.size_bytes,
        };
        self.target.submit(self.now, disk_request, is_fua)?;
        self.waiting.insert(self.number, user);
        self.number += 1;
        // It may be done at once, and the target wants that taken before it gets more.
        self.advance();
        Ok(())
    }

    fn advance(&mut self) {
        self.target.advance(self.now, &mut self.done);
        for TargetDone { id, completed, .. } in std::mem::take(&mut self.done) {
            let user = self.waiting.remove(&id).expect("somebody waits for it");
            let (request, submitted) = self.users[user].request.expect("he waits for it");
            let response = completed.since(submitted);
            match request.operation {
                Operation::Read => self.facts.reads.push(response),
                Operation::Write => self.facts.writes.push(response),
                Operation::Flush | Operation::Discard => {}
            }
            self.think(user, completed);
        }
    }

    /// He thinks from `done` on, when the processor is his, until his next request.
    fn think(&mut self, user: usize, done: Time) {
        let User { stream, request } = &mut self.users[user];
        let (Some(next), Some((request, _))) = (stream.peek(), request) else { return };
        let think = Duration(next.time_ns - request.time_ns);
        self.processor_free = self.processor_free.max(done).after(think);
        self.facts.thinking.0 += think.0;
        self.thinking.push(Reverse((self.processor_free, user)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::profile::Profile;
    use crate::target::setup::Setup;
    use crate::workload::{Value, WorkloadKind, WorkloadSpec};

    fn crowd(users: u64, think_ms: u64) -> CrowdFacts {
        let disk = Profile::load("barracuda-4lp-4gb").unwrap();
        let target = Setup::of(disk, 0).build().unwrap();
        let spec = WorkloadSpec::new(WorkloadKind::Users);
        let spec = spec.with("users", Value::Whole(users)).unwrap();
        let spec = spec.with("think", Value::Whole(think_ms * 1_000_000)).unwrap();
        let spec = spec.with("requests", Value::Whole(300)).unwrap();
        replay(target, spec.streams().unwrap(), Duration(0)).unwrap()
    }

    fn mean_ms(times: &[Duration]) -> f64 {
        times.iter().map(|time| time.0 as f64 / 1e6).sum::<f64>() / times.len() as f64
    }

    /// The same as a replay in a closed loop, whose requests come one at a time, too.
    #[test]
    fn a_single_user_waits_for_nobody() {
        let alone = crowd(1, 0);
        assert_eq!((alone.writes.len(), alone.thinking), (300, Duration(0)));
        let sum_ns: u64 = alone.writes.iter().map(|time| time.0).sum();
        assert_eq!(sum_ns, alone.duration.0);
        assert_eq!(alone.target.disk_writes, 300);
    }

    #[test]
    fn who_has_no_time_to_think_waits_for_all_others() {
        let (alone, four) = (crowd(1, 0), crowd(4, 0));
        assert_eq!(four.writes.len(), 1200);
        let (alone_ms, four_ms) = (mean_ms(&alone.writes), mean_ms(&four.writes));
        assert!(four_ms > 3.5 * alone_ms, "{alone_ms} {four_ms}");
        // All four are there until near the end.
        let busy_ms = four_ms * 1200.0 / 4.0;
        assert!(busy_ms > 0.95 * four.duration.0 as f64 / 1e6);
    }

    #[test]
    fn one_processor_thinks_for_all() {
        let (alone, four) = (crowd(1, 1000), crowd(4, 1000));
        assert!(alone.thinking.0 > 200 * 1_000_000_000);
        // The disk is idle: the processor is what they wait for.
        assert!(four.duration.0 > four.thinking.0 && four.thinking.0 > 3 * alone.thinking.0);
        assert!(four.duration.0 < four.thinking.0 + four.thinking.0 / 20);
        assert!(mean_ms(&four.writes) < 1.5 * mean_ms(&alone.writes));
    }
}
