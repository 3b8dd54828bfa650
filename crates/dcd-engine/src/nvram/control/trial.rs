//! What a memory would have done with another arm: the tier itself, without data, above a disk that
//! takes as long as the real one was measured to, with clients that ask as the real ones do. Of a
//! large memory a small part is tried, for some of the groups (*miniature simulation*, Waldspurger
//! and others 2017).

use std::collections::VecDeque;
use std::sync::Arc;

use super::disk_times::DiskTimes;
use crate::io::RequestId;
use crate::nvram::groups::{GroupMap, LastAddress};
use crate::nvram::tier::Tier;
use crate::nvram::{BelowIo, NvramConfig, NvramInput, NvramOperation, NvramOutput, NvramRequest};
use crate::units::{Lba, LbaRange, Time};

/// Waiting for a read counts one part in so many: what it costs depends on the arm but little.
const READ_PARTS: u64 = 20;
/// Requests that wait in a trial at most: then its clients are slower than the real ones.
const REQUESTS_MAX: usize = 1024;

/// When the next request comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrival {
    /// So long after the last one was done: whoever sends it has waited for that.
    AfterLast { nanoseconds: u64 },
    /// So long after the last one came.
    Later { nanoseconds: u64 },
}

/// A request that is not done.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Time,
    is_write: bool,
}

/// Requests of a kind, and how long they waited.
#[derive(Clone, Copy, Default, Debug)]
struct Waits {
    /// Of those that are done.
    done: u128,
    open: u64,
    /// Sum of the times at which those that are not done came.
    came: u128,
}

impl Waits {
    fn until(&self, now: Time) -> u128 {
        self.done + u128::from(self.open) * u128::from(now.0) - self.came
    }
}

/// A memory without data.
pub(super) struct Trial {
    tier: Tier,
    /// First come, first served.
    queue: VecDeque<BelowIo>,
    /// What the disk does, and until when.
    at_disk: Option<(Time, BelowIo)>,
    head: u64,
    /// Times of the disk are so many times as long: as many groups are not tried.
    one_in: u64,
    now: Time,
    came_at: Time,
    done_at: Time,
    asked: Vec<Option<Asked>>,
    unused: Vec<usize>,
    reads: Waits,
    writes: Waits,
    waited_before: u128,
}

impl Trial {
    /// Of a memory that is set up so; of one of which a part in so many is tried, that part.
    pub(super) fn new(config: &NvramConfig, map: Arc<dyn GroupMap>, one_in: u64) -> Trial {
        Trial {
            tier: Tier::new(*config, map),
            queue: VecDeque::new(),
            at_disk: None,
            head: 0,
            one_in,
            now: Time::ZERO,
            came_at: Time::ZERO,
            done_at: Time::ZERO,
            asked: Vec::new(),
            unused: Vec::new(),
            reads: Waits::default(),
            writes: Waits::default(),
            waited_before: 0,
        }
    }

    /// A request comes, or one of which nothing is tried. No more than so many steps are made;
    /// where they are not enough, the time before it is shorter for the trial.
    pub(super) fn request(
        &mut self,
        request: Option<NvramRequest>,
        is_past: bool,
        arrival: Arrival,
        times: &DiskTimes,
        steps: &mut u32,
    ) {
        while self.requests() >= REQUESTS_MAX {
            self.step(times);
        }
        let at = match arrival {
            Arrival::AfterLast { nanoseconds } => {
                while self.requests() > 0 && *steps > 0 {
                    *steps -= 1;
                    self.step(times);
                }
                self.done_at.0.saturating_add(nanoseconds).max(self.came_at.0)
            }
            Arrival::Later { nanoseconds } => self.came_at.0.saturating_add(nanoseconds),
        };
        self.advance(Time(at), times, steps);
        self.came_at = self.now;
        let Some(request) = request else {
            self.done_at = self.done_at.max(self.now);
            return;
        };
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.asked.push(None);
            self.asked.len() - 1
        });
        let is_write = request.operation == NvramOperation::Write;
        self.asked[slot] = Some(Asked { at: self.now, is_write });
        let waits = if is_write { &mut self.writes } else { &mut self.reads };
        waits.open += 1;
        waits.came += u128::from(self.now.0);
        let request = NvramRequest { id: RequestId(slot as u64), ..request };
        let input = match is_past {
            true => NvramInput::Past(request),
            false => NvramInput::Request(request),
        };
        self.input(input, times);
    }

    /// Requests that are not done.
    fn requests(&self) -> usize {
        self.asked.len() - self.unused.len()
    }

    /// So much time has passed since the last request came.
    pub(super) fn time_passed(&mut self, nanoseconds: u64, times: &DiskTimes, steps: &mut u32) {
        self.advance(Time(self.came_at.0.saturating_add(nanoseconds)), times, steps);
    }

    /// Waiting since the last time that this was asked, of those who still wait, too.
    pub(super) fn take_waited(&mut self) -> u64 {
        let reads = self.reads.until(self.now) / u128::from(READ_PARTS);
        let waited = self.writes.until(self.now) + reads;
        let more = waited.saturating_sub(self.waited_before);
        self.waited_before = waited;
        u64::try_from(more).unwrap_or(u64::MAX)
    }

    fn advance(&mut self, to: Time, times: &DiskTimes, steps: &mut u32) {
        while let Some(next) = self.next_event().filter(|next| *next <= to) {
            if *steps == 0 {
                self.now = self.now.max(next);
                return;
            }
            *steps -= 1;
            self.step(times);
        }
        self.now = self.now.max(to);
    }

    fn next_event(&self) -> Option<Time> {
        let at_disk = self.at_disk.map(|(end, _)| end);
        at_disk.into_iter().chain(self.tier.wake_up()).min()
    }

    /// What happens next.
    fn step(&mut self, times: &DiskTimes) {
        let Some(next) = self.next_event() else { return };
        self.now = self.now.max(next);
        match self.at_disk.take_if(|(end, _)| *end <= next) {
            Some((_, io)) => {
                // The next begins with its end, and not with what the memory makes of that.
                self.start_disk(times);
                self.input(NvramInput::BelowDone(io.id, true), times);
            }
            None => self.input(NvramInput::Timeout, times),
        }
    }

    fn input(&mut self, input: NvramInput, times: &DiskTimes) {
        self.tier.handle_input(self.now, input, &LastAddress(Lba(self.head)));
        while let Some(output) = self.tier.poll_output() {
            match output {
                NvramOutput::Below(io) => self.queue.push_back(io),
                NvramOutput::Reply(reply) => self.done(reply.id),
            }
        }
        self.start_disk(times);
    }

    fn start_disk(&mut self, times: &DiskTimes) {
        if self.at_disk.is_some() {
            return;
        }
        let Some(io) = self.queue.pop_front() else { return };
        let time = times.expected(&io, self.head).0 * self.one_in;
        self.at_disk = Some((Time(self.now.0.saturating_add(time)), io));
        self.head = io.range.end();
    }

    fn done(&mut self, id: RequestId) {
        let slot = id.0 as usize;
        let Asked { at, is_write } = self.asked[slot].take().expect("it was asked");
        self.unused.push(slot);
        let waits = if is_write { &mut self.writes } else { &mut self.reads };
        waits.open -= 1;
        waits.came -= u128::from(at.0);
        waits.done += u128::from(self.now.since(at).0);
        self.done_at = self.now;
    }
}

/// Cuts out of a request what is tried, if a group in so many is.
pub(super) fn sample(
    request: NvramRequest,
    map: &dyn GroupMap,
    one_in: u64,
) -> Option<NvramRequest> {
    if one_in == 1 {
        return Some(request);
    }
    let NvramRequest { range, .. } = request;
    let mut tried: Option<LbaRange> = None;
    let mut at = range.start.0;
    while at < range.end() {
        let group = map.group_of(Lba(at));
        let end = group.end().min(range.end());
        let hash = group.start.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if hash.is_multiple_of(one_in) {
            match &mut tried {
                None => tried = Some(LbaRange::new(at, end - at)),
                Some(tried) if tried.end() == at => tried.blocks += end - at,
                Some(_) => {}
            }
        }
        at = end;
    }
    tried.map(|range| NvramRequest { range, ..request })
}
