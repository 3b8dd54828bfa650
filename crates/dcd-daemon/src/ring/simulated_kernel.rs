//! A kernel that is simulated: files are real, time is not, and by a seed it does all that a kernel
//! may do.
//!
//! ```text
//! submissions   some are taken, or none: the queue is short, the kernel interrupted, out of memory, or busy
//! operations    end in any order, after nothing or after seconds; in part; interrupted; cancelled, failed once if asked to
//! completions   a few at a time, more of them when asked again; those that do not fit are kept beside the queue
//! time          goes on while somebody waits, and by hours when the machine is paused
//! ```
//!
//! Memory that it was given belongs to it until the completion: what is to be read into is
//! scribbled on, what is written is remembered, and either must be the same at the end. So a buffer
//! that was freed, touched or used again too early is noticed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use crate::ring::kernel::{Kernel, Submission, Wait, Work};

/// Random numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins with this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below this one.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// How this kernel is.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Submissions that fit into its queue.
    pub queue: usize,
    /// Completions that fit into the other.
    pub completions: usize,
    /// Completions that it makes in one call.
    pub made_at_once: usize,
    /// It takes nothing more while completions wait beside the queue (before Linux 5.19).
    pub is_busy_when_full: bool,
    /// One transfer in so many is short.
    pub short_in: u64,
    /// It does not know `fallocate` with these bits.
    pub refused_modes: i32,
    /// How long an operation may take, in nanoseconds, when it is slow.
    pub slow: u64,
    /// Some files are in memory: the loop does itself what is asked of them ([`Kernel::work`]).
    pub has_memory: bool,
}

struct UnderWay {
    submission: Submission,
    due: u64,
    began: u64,
    /// Sum of the memory that belongs to the kernel.
    sum: u64,
    is_slow: bool,
}

struct Inner {
    clock: &'static AtomicU64,
    random: Random,
    habits: Habits,
    queue: VecDeque<Submission>,
    under_way: Vec<UnderWay>,
    /// Ended; their completions are made when somebody asks.
    ended: VecDeque<(u32, i32)>,
    completions: VecDeque<(u32, i32)>,
    beside: VecDeque<(u32, i32)>,
    slow_again_at: u64,
    fail_next: Option<Errno>,
    violation: Option<String>,
    counts: Counts,
}

/// What has happened.
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)] // The names say it.
pub struct Counts {
    pub operations: u64,
    pub short: u64,
    pub interrupted: u64,
    pub failed: u64,
    pub calls_refused: u64,
    pub beside_the_queue: u64,
}

/// The kernel; copies are handles of the same.
#[derive(Clone)]
pub struct SimulatedKernel(Rc<RefCell<Inner>>);

impl SimulatedKernel {
    /// One that moves this clock.
    pub fn new(clock: &'static AtomicU64, habits: Habits, random: Random) -> SimulatedKernel {
        SimulatedKernel(Rc::new(RefCell::new(Inner {
            clock,
            random,
            habits,
            queue: VecDeque::new(),
            under_way: Vec::new(),
            ended: VecDeque::new(),
            completions: VecDeque::new(),
            beside: VecDeque::new(),
            slow_again_at: 0,
            fail_next: None,
            violation: None,
            counts: Counts::default(),
        })))
    }

    /// The next operation of a disk fails with this.
    pub fn fail_next(&self, errno: Errno) {
        self.0.borrow_mut().fail_next = Some(errno);
    }

    /// How long the oldest operation of a disk has been under way.
    pub fn oldest(&self) -> u64 {
        let inner = self.0.borrow();
        let of_disks = inner.under_way.iter().filter(|one| !is_poll(&one.submission.work));
        let now = inner.now();
        of_disks.map(|one| now - one.began).max().unwrap_or(0)
    }

    /// Time passes in which the process does not run; all that is under way ends.
    pub fn pause(&self, nanoseconds: u64) {
        let mut inner = self.0.borrow_mut();
        inner.clock.fetch_add(nanoseconds, Ordering::Relaxed);
        // It has used up a part of the time of all that is under way: nothing of that is slow, too.
        inner.slow_again_at = inner.slow_again_at.max(inner.now() + inner.habits.slow);
    }

    /// Whether an operation is slow.
    pub fn has_slow(&self) -> bool {
        self.0.borrow().under_way.iter().any(|one| one.is_slow)
    }

    /// The process dies: nothing of what is under way, or waits to be taken, is done any more.
    pub fn kill(&self) {
        let inner = &mut *self.0.borrow_mut();
        let queue = std::mem::take(&mut inner.queue);
        let under_way = std::mem::take(&mut inner.under_way);
        let names = queue.iter().chain(under_way.iter().map(|one| &one.submission));
        let ended = names.map(|one| (one.name, -Errno::CANCELED.raw_os_error()));
        inner.ended.extend(ended);
    }

    /// What the driver has done that it must not.
    pub fn violation(&self) -> Option<String> {
        self.0.borrow().violation.clone()
    }

    /// What has happened.
    pub fn counts(&self) -> Counts {
        self.0.borrow().counts
    }
}

impl Kernel for SimulatedKernel {
    unsafe fn push(&mut self, submission: &Submission) -> bool {
        let inner = &mut *self.0.borrow_mut();
        if inner.queue.len() >= inner.habits.queue {
            return false;
        }
        inner.queue.push_back(*submission);
        true
    }

    fn work(&mut self) -> bool {
        self.0.borrow_mut().work()
    }

    fn enter(&mut self, wait: Wait) -> io::Result<()> {
        self.0.borrow_mut().enter(wait)
    }

    fn next_completion(&mut self) -> Option<(u32, i32)> {
        self.0.borrow_mut().completions.pop_front()
    }

    fn has_completion(&mut self) -> bool {
        !self.0.borrow().completions.is_empty()
    }

    fn has_more(&mut self) -> bool {
        let inner = &mut *self.0.borrow_mut();
        inner.end_due();
        !inner.ended.is_empty() || !inner.beside.is_empty()
    }

    fn cancel_all(&mut self) {
        let inner = &mut *self.0.borrow_mut();
        for one in std::mem::take(&mut inner.under_way) {
            inner.ended.push_back((one.submission.name, -Errno::CANCELED.raw_os_error()));
        }
    }
}

fn is_poll(work: &Work) -> bool {
    matches!(work, Work::Poll { .. } | Work::Receive { .. } | Work::Command { .. })
}

/// The memory of an operation.
fn memory(work: &Work) -> Option<(*const u8, usize)> {
    match *work {
        Work::Read { address, length, .. } => Some((address.cast_const(), length as usize)),
        Work::Write { address, length, .. } => Some((address, length as usize)),
        _ => None,
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Inner {
    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let refused = |inner: &mut Inner, errno: Errno| {
            inner.counts.calls_refused += 1;
            Err(io::Error::from_raw_os_error(errno.raw_os_error()))
        };
        if !self.queue.is_empty() && self.random.one_in(24) {
            return refused(self, Errno::AGAIN);
        }
        if self.habits.is_busy_when_full && !self.beside.is_empty() && !self.queue.is_empty() {
            // It makes room, and takes nothing.
            self.make_completions();
            return refused(self, Errno::BUSY);
        }
        let most = if self.random.one_in(8) { 1 + self.random.below(4) } else { u64::MAX };
        for _ in 0..most.min(self.queue.len() as u64) {
            let submission = self.queue.pop_front().expect("counted");
            self.begin(submission);
        }
        let Wait::Until(timeout) = wait else {
            self.end_due();
            self.make_completions();
            return Ok(());
        };
        if self.random.one_in(24) {
            return refused(self, Errno::INTR);
        }
        let until = timeout.map(|timeout| self.now().saturating_add(nanoseconds(timeout)));
        loop {
            self.end_due();
            self.make_completions();
            if !self.completions.is_empty() {
                return Ok(());
            }
            let next = self.under_way.iter().map(|one| one.due).filter(|due| *due < u64::MAX).min();
            let at = match (next, until) {
                (Some(next), Some(until)) if next <= until => next,
                (Some(next), None) => next,
                (_, Some(until)) => {
                    self.clock.fetch_max(until, Ordering::Relaxed);
                    return refused(self, Errno::TIME);
                }
                (None, None) => {
                    self.note("the loop waits without end, and nothing is under way");
                    return refused(self, Errno::INTR);
                }
            };
            self.clock.fetch_max(at, Ordering::Relaxed);
        }
    }

    /// Does some of what is queued at once, before all others. Which file is in memory changes from
    /// one to the next: the driver knows no difference.
    fn work(&mut self) -> bool {
        let before = self.counts.operations;
        while self.habits.has_memory && self.random.one_in(2) {
            let is_short = |one: &Submission| {
                matches!(one.work, Work::Read { .. } | Work::Write { .. } | Work::Sync)
            };
            let Some(at) = self.queue.iter().position(is_short) else { break };
            let submission = self.queue.remove(at).expect("it is there");
            let began = self.now();
            let one = UnderWay { submission, due: began, began, sum: 0, is_slow: false };
            let result = match self.perform(&one) {
                Ok(done) => done as i32,
                Err(errno) => -errno.raw_os_error(),
            };
            self.completions.push_back((submission.name, result));
            self.counts.operations += 1;
        }
        self.counts.operations > before
    }

    fn note(&mut self, what: &str) {
        self.violation.get_or_insert_with(|| what.to_owned());
    }

    fn begin(&mut self, submission: Submission) {
        let now = self.now();
        // One slow operation at a time, and some time between them: what the driver does in several
        // of them is slow once.
        let is_slow = now >= self.slow_again_at && self.random.one_in(32);
        // A write may have a flush behind it.
        let is_read = matches!(submission.work, Work::Read { .. });
        let nearly = if is_read { 996 } else { 970 };
        let delay = match self.random.below(64) {
            _ if is_slow => self.habits.slow / 1000 * self.random.pick(&[500, nearly]),
            0..8 => self.random.below(1_000_000),
            8..40 => self.random.below(300_000),
            _ => 0,
        };
        let due = if is_poll(&submission.work) { u64::MAX } else { now + delay };
        if is_slow && due < u64::MAX {
            self.slow_again_at = due + self.habits.slow;
        }
        self.counts.operations += u64::from(due < u64::MAX);
        if let Work::Read { address, length, .. } = submission.work {
            let scribble = self.random.next() as u8;
            // SAFETY: it belongs to us from `push` until the completion, which is behind this.
            unsafe { address.write_bytes(scribble, length as usize) };
        }
        let sum = self.sum_of(&submission.work);
        self.under_way.push(UnderWay { submission, due, began: now, sum, is_slow });
    }

    fn sum_of(&self, work: &Work) -> u64 {
        memory(work).map_or(0, |(address, length)| {
            // SAFETY: valid for reading for as long as the operation is under way, as `push`
            // demands. Nobody may write to it: that is looked at here.
            sum(unsafe { std::slice::from_raw_parts(address, length) })
        })
    }

    /// Whatever is due ends, in any order.
    fn end_due(&mut self) {
        let now = self.now();
        loop {
            let due: Vec<usize> =
                (0..self.under_way.len()).filter(|at| self.under_way[*at].due <= now).collect();
            if due.is_empty() {
                return;
            }
            let at = self.random.pick(&due);
            let one = self.under_way.swap_remove(at);
            if self.sum_of(&one.submission.work) != one.sum {
                self.note("memory was touched while the kernel had it");
            }
            let result = match self.perform(&one) {
                Ok(done) => done as i32,
                Err(errno) => -errno.raw_os_error(),
            };
            self.ended.push_back((one.submission.name, result));
        }
    }

    fn perform(&mut self, one: &UnderWay) -> Result<usize, Errno> {
        let submission = &one.submission;
        if let Some(errno) = self.fail_next.take() {
            self.counts.failed += 1;
            return Err(errno);
        }
        if !one.is_slow && self.random.one_in(40) {
            self.counts.interrupted += 1;
            return Err(self.random.pick(&[Errno::INTR, Errno::AGAIN]));
        }
        let mut part = |length: u32| {
            let sectors = u64::from(length) / 512;
            match sectors > 1 && !one.is_slow && self.random.one_in(self.habits.short_in) {
                true => {
                    self.counts.short += 1;
                    (1 + self.random.below(sectors - 1)) as usize * 512
                }
                false => length as usize,
            }
        };
        let file = file(submission.file);
        match submission.work {
            Work::Read { address, length, offset } => {
                // SAFETY: as in `sum_of`, and for writing.
                let bytes = unsafe { std::slice::from_raw_parts_mut(address, part(length)) };
                rustix::io::pread(file, bytes, offset)
            }
            Work::Write { address, length, offset, .. } => {
                // SAFETY: as in `sum_of`.
                let bytes = unsafe { std::slice::from_raw_parts(address, part(length)) };
                rustix::io::pwrite(file, bytes, offset)
            }
            Work::Allocate { mode, .. } if mode & self.habits.refused_modes != 0 => {
                Err(Errno::OPNOTSUPP)
            }
            Work::Allocate { offset, length, mode } => {
                let mode = rustix::fs::FallocateFlags::from_bits_retain(mode as u32);
                rustix::fs::fallocate(file, mode, offset, length).map(|()| 0)
            }
            // The files last for as long as the test: nothing is lost without it.
            Work::Sync => Ok(0),
            Work::Receive { .. } | Work::Command { .. } | Work::Poll { .. } => Err(Errno::CANCELED),
        }
    }

    fn make_completions(&mut self) {
        while self.completions.len() < self.habits.completions {
            let Some(one) = self.beside.pop_front() else { break };
            self.completions.push_back(one);
        }
        for _ in 0..self.habits.made_at_once {
            let Some(one) = self.ended.pop_front() else { return };
            if self.completions.len() < self.habits.completions && self.beside.is_empty() {
                self.completions.push_back(one);
            } else {
                self.counts.beside_the_queue += 1;
                self.beside.push_back(one);
            }
        }
    }
}

fn file(file: RawFd) -> BorrowedFd<'static> {
    // SAFETY: `push` demands that it stays open until the completion; this is used before.
    unsafe { BorrowedFd::borrow_raw(file) }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
