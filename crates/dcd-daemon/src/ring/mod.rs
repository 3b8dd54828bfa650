//! The io_uring ring: who owns what until the last completion.
//!
//! Everything the kernel may touch lives in a slab entry from the moment its operation is queued
//! until its completion has been seen: buffers, the mapping of the segment memory, files, sockets.
//! An entry's index is the `user_data` of its operation, and each operation has exactly one
//! completion (nothing multishot), so an index is never used twice at a time. A failing system call
//! says nothing about what the kernel took from the queue, so entries are freed by completions
//! only.
//!
//! Short transfers are continued and interrupted ones repeated here; callers see whole operations.
//! The kernel is behind [`Kernel`]: Linux, or one that is simulated. All `unsafe` code around the
//! ring is in these files.

pub mod busy_poll;
pub(crate) mod command_ring;
mod flushes;
pub(crate) mod kernel;
pub(crate) mod simulated_kernel;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use dcd_engine::{Buffer, Time};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::clock::Clock;
use crate::device::device_file::DeviceFile;
use crate::memory::segment_memory::Mapping;
use crate::ring::busy_poll::BusyPoll;
use crate::ring::flushes::Flushes;
use crate::ring::kernel::{Kernel, Submission, Wait, Work};

/// Longest single transfer; the kernel would cut off at 2 GiB anyway.
const TRANSFER_BYTES_MAX: usize = 1 << 30;
/// Zeroes are written from one shared piece of this size.
const ZEROES_BYTES: usize = 1 << 20;

static ZEROES: LazyLock<Buffer> = LazyLock::new(|| Buffer::zeroed(ZEROES_BYTES));

/// Where the bytes of a write are.
pub enum WriteSource {
    /// In a buffer, which comes back.
    Owned(Buffer),
    /// In the segment memory; stays mapped until the write has ended.
    Mapped(Arc<Mapping>, Range<usize>),
    /// So many zeroes.
    Zeroes(u64),
}

impl WriteSource {
    fn len(&self) -> u64 {
        match self {
            WriteSource::Owned(buffer) => buffer.len() as u64,
            WriteSource::Mapped(_, range) => range.len() as u64,
            WriteSource::Zeroes(length) => *length,
        }
    }
}

/// Something that can be received into.
///
/// # Safety
/// `space` must give memory that stays valid for writing, and is not otherwise touched, until the
/// completion has been seen or the implementor is dropped, whichever comes first.
pub unsafe trait Receiver {
    /// The socket.
    fn socket(&self) -> std::os::fd::BorrowedFd<'_>;
    /// Where to put what arrives.
    fn space(&self) -> (*mut u8, usize);
    /// Whether nothing can be done before all of the space is filled. Asked behind `space`.
    fn waits_for_all(&self) -> bool;
}

/// What an ended operation leaves.
pub enum Completed<K> {
    /// A read, write or flush of a disk has ended.
    Disk {
        /// The caller's name for it.
        key: K,
        /// How.
        result: Result<(), DiskError>,
        /// The buffer that it was given, if any.
        buffer: Option<Buffer>,
    },
    /// An attempt to zero a range by fallocate has ended.
    Zero {
        /// The caller's name for it.
        key: K,
        /// Byte address.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// What was tried.
        mode: ZeroMode,
        /// How.
        result: Result<(), DiskError>,
    },
    /// Bytes were received, or none will come any more.
    Received {
        /// The caller's name for it.
        key: K,
        /// How many; 0: the other side has closed.
        result: Result<usize, Errno>,
    },
    /// A command to a driver has ended.
    Command {
        /// The caller's name for it.
        key: K,
        /// The driver's answer; below zero an error number.
        result: i32,
        /// The buffer that it was given.
        buffer: Buffer,
    },
    /// A file descriptor is ready (or broken; trying will tell).
    Ready {
        /// The caller's name for it.
        key: K,
    },
}

/// Why a disk operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskError {
    /// The system's number.
    Errno(Errno),
    /// The disk ends before the end of the request.
    EndOfDisk,
}

/// Ways to zero a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroMode {
    /// Free the space (FALLOC_FL_PUNCH_HOLE).
    Punch,
    /// Keep the space (FALLOC_FL_ZERO_RANGE).
    ZeroRange,
}

impl ZeroMode {
    fn flags(self) -> i32 {
        libc::FALLOC_FL_KEEP_SIZE
            | match self {
                ZeroMode::Punch => libc::FALLOC_FL_PUNCH_HOLE,
                ZeroMode::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
            }
    }
}

/// An operation under way, with all that the kernel may touch.
enum Entry<K> {
    Read {
        key: K,
        file: Rc<DeviceFile>,
        offset: u64,
        buffer: Buffer,
        done: usize,
    },
    Write {
        key: K,
        file: Rc<DeviceFile>,
        offset: u64,
        source: WriteSource,
        done: u64,
        fua: bool,
    },
    /// `written`: the buffer of a write that this flush makes durable.
    Flush {
        key: K,
        file: Rc<DeviceFile>,
        written: Option<Buffer>,
    },
    Zero {
        key: K,
        file: Rc<DeviceFile>,
        offset: u64,
        length: u64,
        done: u64,
        mode: ZeroMode,
    },
    Receive {
        key: K,
        receiver: Rc<dyn Receiver>,
    },
    /// `head`: the first half of the command; the other is the address of the buffer.
    Command {
        key: K,
        file: Rc<dyn AsFd>,
        code: u32,
        head: [u8; 8],
        buffer: Buffer,
    },
    Poll {
        key: K,
        file: Rc<dyn AsFd>,
        flags: PollFlags,
    },
}

impl<K: Copy> Entry<K> {
    fn is_of_a_disk(&self) -> bool {
        !matches!(self, Entry::Receive { .. } | Entry::Command { .. } | Entry::Poll { .. })
    }

    /// Of a flush: the file.
    fn flushed(&self) -> Option<&Rc<DeviceFile>> {
        match self {
            Entry::Flush { file, .. } => Some(file),
            _ => None,
        }
    }

    /// The submission for (the rest of) this operation.
    fn submission(&mut self, name: u32) -> Submission {
        let fd = |file: &Rc<DeviceFile>| file.descriptor();
        let in_memory = match self {
            Entry::Read { file, .. } | Entry::Write { file, .. } | Entry::Flush { file, .. } => {
                file.is_in_memory
            }
            _ => false,
        };
        let (file, work) = match self {
            Entry::Read { file, offset, buffer, done, .. } => {
                let rest = &mut buffer.bytes_mut()[*done..];
                let length = rest.len().min(TRANSFER_BYTES_MAX) as u64;
                // Where a window of a share ends, the transfer is a short one.
                let (offset, length) = file.place(*offset + *done as u64, length);
                let (address, length) = (rest.as_mut_ptr(), length as u32);
                let work = Work::Read { address, length, offset };
                (fd(file), work)
            }
            Entry::Write { file, offset, source, done, fua, .. } => {
                let rest = source.len() - *done;
                let (address, most) = match source {
                    WriteSource::Owned(buffer) => {
                        (buffer.bytes()[*done as usize..].as_ptr(), TRANSFER_BYTES_MAX)
                    }
                    WriteSource::Mapped(mapping, range) => {
                        let range = range.start + *done as usize..range.end;
                        (mapping.address(&range), TRANSFER_BYTES_MAX)
                    }
                    WriteSource::Zeroes(_) => (ZEROES.bytes().as_ptr(), ZEROES_BYTES),
                };
                let flags = if *fua && file.tells_of_dsync() { libc::RWF_DSYNC } else { 0 };
                let (offset, length) = file.place(*offset + *done, rest.min(most as u64));
                (fd(file), Work::Write { address, length: length as u32, offset, flags })
            }
            Entry::Flush { file, .. } => (fd(file), Work::Sync),
            Entry::Zero { file, offset, length, done, mode, .. } => {
                let (offset, length) = file.place(*offset + *done, *length - *done);
                (fd(file), Work::Allocate { offset, length, mode: mode.flags() })
            }
            Entry::Receive { receiver, .. } => {
                let (address, length) = receiver.space();
                let length = length.min(TRANSFER_BYTES_MAX) as u32;
                let flags = if receiver.waits_for_all() { libc::MSG_WAITALL } else { 0 };
                (receiver.socket().as_raw_fd(), Work::Receive { address, length, flags })
            }
            Entry::Command { file, code, head, buffer, .. } => {
                let address = buffer.bytes_mut().as_mut_ptr() as u64;
                let mut command = [0; 16];
                command[..8].copy_from_slice(head);
                command[8..].copy_from_slice(&address.to_ne_bytes());
                (file.as_fd().as_raw_fd(), Work::Command { code: *code, command })
            }
            Entry::Poll { file, flags, .. } => {
                (file.as_fd().as_raw_fd(), Work::Poll { flags: u32::from(flags.bits()) })
            }
        };
        Submission { name, file, work, in_memory }
    }

    /// What is known after a completion: the end of the operation, or that it must go on.
    fn ended(mut self, result: i32) -> Result<Completed<K>, Entry<K>> {
        let errno = (result < 0).then(|| Errno::from_raw_os_error(-result));
        let again = matches!(errno, Some(Errno::INTR | Errno::AGAIN));
        if again && !matches!(self, Entry::Command { .. } | Entry::Poll { .. }) {
            return Err(self);
        }
        let moved = result.max(0) as u64;
        match &mut self {
            Entry::Read { buffer, done, .. } if errno.is_none() && moved > 0 => {
                *done += moved as usize;
                if *done < buffer.len() {
                    return Err(self);
                }
            }
            Entry::Write { source, done, .. } if errno.is_none() && moved > 0 => {
                *done += moved;
                if *done < source.len() {
                    return Err(self);
                }
            }
            Entry::Zero { file, offset, length, done, .. } if errno.is_none() => {
                // A part of it that lies in one window of a share is zeroed whole.
                *done += file.place(*offset + *done, *length - *done).1;
                if *done < *length {
                    return Err(self);
                }
            }
            _ => {}
        }
        Ok(match self {
            Entry::Read { key, buffer, done, .. } => {
                let result = match errno {
                    // A direct read cut short by the end of the disk cannot go on at an odd place.
                    Some(Errno::INVAL) if done > 0 => Err(DiskError::EndOfDisk),
                    Some(errno) => Err(DiskError::Errno(errno)),
                    None if done < buffer.len() => Err(DiskError::EndOfDisk),
                    None => Ok(()),
                };
                Completed::Disk { key, result, buffer: Some(buffer) }
            }
            Entry::Write { key, source, done, file, fua, .. } => {
                let result = match errno {
                    Some(errno) => Err(DiskError::Errno(errno)),
                    None if done < source.len() => Err(DiskError::EndOfDisk),
                    None => Ok(()),
                };
                let buffer = match source {
                    WriteSource::Owned(buffer) => Some(buffer),
                    _ => None,
                };
                if fua && !file.tells_of_dsync() && result.is_ok() {
                    return Err(Entry::Flush { key, file, written: buffer });
                }
                Completed::Disk { key, result, buffer }
            }
            Entry::Flush { key, written, .. } => {
                let result = errno.map_or(Ok(()), |errno| Err(DiskError::Errno(errno)));
                Completed::Disk { key, result, buffer: written }
            }
            Entry::Zero { key, offset, length, mode, .. } => {
                let result = errno.map_or(Ok(()), |errno| Err(DiskError::Errno(errno)));
                Completed::Zero { key, offset, length, mode, result }
            }
            Entry::Receive { key, .. } => {
                Completed::Received { key, result: errno.map_or(Ok(moved as usize), Err) }
            }
            Entry::Command { key, buffer, .. } => Completed::Command { key, result, buffer },
            Entry::Poll { key, .. } => Completed::Ready { key },
        })
    }
}

/// What is seen without a system call.
enum Look {
    /// Completions.
    Ended,
    /// Something has ended; a system call makes its completion.
    Waits,
    Nothing,
}

/// The ring; operations carry a key of type `K` that comes back with their completion.
pub struct Ring<K> {
    /// `None` only while it is dropped.
    kernel: Option<Box<dyn Kernel>>,
    slab: Vec<Option<Entry<K>>>,
    free: Vec<u32>,
    flushes: Flushes,
    /// Submissions that found the ring full.
    waiting: VecDeque<Submission>,
    /// Completions seen and not yet given out.
    seen: VecDeque<(u32, i32)>,
    /// The kernel has no more of them.
    has_seen_all: bool,
    disk_operations: usize,
    clock: Clock,
    busy_poll: BusyPoll,
    /// [`Ring::work`] has left what was queued to the next [`Ring::wait`].
    has_put_off: bool,
}

impl<K: Copy> Ring<K> {
    /// Makes a ring on this kernel, to be used by this thread only. It does not poll busily.
    pub fn new(kernel: Box<dyn Kernel>, clock: Clock) -> Ring<K> {
        Ring {
            kernel: Some(kernel),
            slab: Vec::new(),
            free: Vec::new(),
            flushes: Flushes::default(),
            waiting: VecDeque::new(),
            seen: VecDeque::new(),
            has_seen_all: false,
            disk_operations: 0,
            clock,
            busy_poll: BusyPoll::new(Duration::ZERO),
            has_put_off: false,
        }
    }

    /// Fills `buffer` from `offset` on.
    pub fn read(&mut self, key: K, file: &Rc<DeviceFile>, offset: u64, buffer: Buffer) {
        self.start(Entry::Read { key, file: file.clone(), offset, buffer, done: 0 });
    }

    /// Writes to `offset`; with `fua` it ends when it is durable.
    pub fn write(
        &mut self,
        key: K,
        file: &Rc<DeviceFile>,
        offset: u64,
        source: WriteSource,
        fua: bool,
    ) {
        self.start(Entry::Write { key, file: file.clone(), offset, source, done: 0, fua });
    }

    /// Makes durable what has been written.
    pub fn flush(&mut self, key: K, file: &Rc<DeviceFile>) {
        self.start(Entry::Flush { key, file: file.clone(), written: None });
    }

    /// Zeroes a range with fallocate.
    pub fn zero(
        &mut self,
        key: K,
        file: &Rc<DeviceFile>,
        offset: u64,
        length: u64,
        mode: ZeroMode,
    ) {
        self.start(Entry::Zero { key, file: file.clone(), offset, length, done: 0, mode });
    }

    /// Receives into the receiver's space.
    pub fn receive(&mut self, key: K, receiver: Rc<dyn Receiver>) {
        self.start(Entry::Receive { key, receiver });
    }

    /// Tells when the file descriptor is ready for `flags`, once.
    pub fn poll(&mut self, key: K, file: Rc<dyn AsFd>, flags: PollFlags) {
        self.start(Entry::Poll { key, file, flags });
    }

    /// Gives a driver a command of 16 bytes: `head`, and the address of `buffer`, of which it may
    /// read and write the whole room until the command has ended.
    pub fn command(
        &mut self,
        key: K,
        file: Rc<dyn AsFd>,
        code: u32,
        head: [u8; 8],
        buffer: Buffer,
    ) {
        self.start(Entry::Command { key, file, code, head, buffer });
    }

    /// How to wait from now on.
    pub fn set_busy_poll(&mut self, busy_poll: BusyPoll) {
        self.busy_poll = busy_poll;
    }

    /// Disk operations under way.
    pub fn disk_operations(&self) -> usize {
        self.disk_operations
    }

    fn start(&mut self, entry: Entry<K>) {
        if entry.is_of_a_disk() {
            self.disk_operations += 1;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slab.push(None);
                u32::try_from(self.slab.len() - 1).expect("fewer than 2^32 operations")
            }
        };
        self.put(index, entry);
    }

    /// Puts an entry in its place, and submits it unless it is a flush that has to wait.
    fn put(&mut self, index: u32, entry: Entry<K>) {
        let flushed = entry.flushed().cloned();
        let place = &mut self.slab[index as usize];
        debug_assert!(place.is_none());
        *place = Some(entry);
        if flushed.is_none_or(|file| self.flushes.may_begin(&file, index)) {
            self.submit_place(index);
        }
    }

    /// Queues the submission for what is in this place.
    fn submit_place(&mut self, index: u32) {
        // The addresses are taken after the entry is in its place; they point to the heap or the
        // mapping, so the slab itself may move.
        let entry = self.slab[index as usize].as_mut().expect("it was put there");
        let submission = entry.submission(index);
        self.queue(submission);
    }

    fn queue(&mut self, submission: Submission) {
        // In turn: what waits already goes first.
        if !self.waiting.is_empty() || !self.push(&submission) {
            self.waiting.push_back(submission);
            self.push_waiting();
        }
    }

    fn push(&mut self, submission: &Submission) -> bool {
        let Some(kernel) = &mut self.kernel else { return false };
        // SAFETY: what the submission points to is owned by a slab entry (or is static), which
        // stays until the completion has been seen, and is leaked if it never is (see `drop`).
        unsafe { kernel.push(submission) }
    }

    /// Whether something is under way on a disk.
    pub(crate) fn uses(&self, disk: &Rc<DeviceFile>) -> bool {
        let file_of = |entry: &Entry<K>| match entry {
            Entry::Read { file, .. }
            | Entry::Write { file, .. }
            | Entry::Flush { file, .. }
            | Entry::Zero { file, .. } => Some(Rc::as_ptr(file)),
            Entry::Receive { .. } | Entry::Command { .. } | Entry::Poll { .. } => None,
        };
        self.slab.iter().flatten().any(|entry| file_of(entry) == Some(Rc::as_ptr(disk)))
    }

    /// The last byte of a disk at which something is under way.
    pub(crate) fn reach_in(&self, disk: &Rc<DeviceFile>) -> Option<u64> {
        let end = |entry: &Entry<K>| match entry {
            Entry::Read { file, offset, buffer, .. } if Rc::ptr_eq(file, disk) => {
                Some(offset + buffer.len() as u64)
            }
            Entry::Write { file, offset, source, .. } if Rc::ptr_eq(file, disk) => {
                Some(offset + source.len())
            }
            Entry::Zero { file, offset, length, .. } if Rc::ptr_eq(file, disk) => {
                Some(offset + length)
            }
            _ => None,
        };
        self.slab.iter().flatten().filter_map(end).max()
    }

    /// Gives all that is queued to the kernel now, without waiting for anything to end. What it
    /// does not take (it is out of memory, or too much has ended unseen) is left for
    /// [`Ring::wait`].
    pub fn submit(&mut self) {
        self.push_waiting();
        let _ = self.kernel().enter(Wait::No);
    }

    fn push_waiting(&mut self) {
        let mut submitted = false;
        while let Some(submission) = self.waiting.front().copied() {
            if self.push(&submission) {
                self.waiting.pop_front();
            } else if !submitted {
                // Full: give what is there to the kernel, which makes room. An error (out of
                // memory, too many completions unseen) leaves it for the next `wait`.
                submitted = true;
                if self.kernel().enter(Wait::No).is_err() {
                    break;
                }
            } else {
                break;
            }
        }
    }

    fn kernel(&mut self) -> &mut dyn Kernel {
        &mut **self.kernel.as_mut().expect("it is taken only by drop")
    }

    /// Does some of what this thread does itself. True: that has ended, and answers to it come before
    /// the next [`Ring::wait`]. What is queued waits for that one, but not for another one behind it.
    pub fn work(&mut self) -> bool {
        self.push_waiting();
        let works = !self.has_put_off && self.kernel().work() && !self.kernel().has_more();
        self.has_put_off = works;
        if works {
            self.take_completions();
        }
        works
    }

    /// Submits what is queued, and waits until something has ended or the time is over; `None` waits
    /// without end. `now` is the caller's last look at the clock; returns the next one.
    pub fn wait(&mut self, timeout: Option<Duration>, now: Time) -> io::Result<Time> {
        self.push_waiting();
        let timeout = if self.seen.is_empty() && self.waiting.is_empty() {
            timeout
        } else {
            Some(Duration::ZERO)
        };
        let is_idle = timeout != Some(Duration::ZERO) && self.busy_poll.is_on();
        let (found, looked) = match is_idle {
            true => self.look(now, timeout),
            false => (Look::Nothing, Duration::ZERO),
        };
        let result = match (found, timeout) {
            (Look::Ended, _) => Ok(()),
            (Look::Waits, _) => self.kernel().enter(Wait::No),
            (Look::Nothing, timeout) => {
                let left = timeout.map(|timeout| timeout.saturating_sub(looked));
                self.kernel().enter(Wait::Until(left))
            }
        };
        match result.map_err(|error| (error.raw_os_error(), error)) {
            Ok(()) => {}
            // The time is over, a signal came, or completions must be seen first.
            Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => {}
            Err((_, error)) => return Err(error),
        }
        self.take_completions();
        let then = self.clock.now();
        if is_idle {
            let waited = Duration::from_nanos(then.since(now).0);
            self.busy_poll.waited((!self.seen.is_empty()).then_some(waited));
        }
        Ok(then)
    }

    /// Takes the completions that are in the queue.
    fn take_completions(&mut self) {
        let kernel = &mut **self.kernel.as_mut().expect("it is taken only by drop");
        while let Some(completion) = kernel.next_completion() {
            self.seen.push_back(completion);
        }
        self.has_seen_all = !kernel.has_more();
    }

    /// Takes all that there are: also those that did not fit into the queue, which the kernel
    /// keeps, and those that it only makes when it is asked, of which it makes a few at a time
    /// (since Linux 6.13, twenty). For who wants to be sure that something has not ended; else the
    /// next [`Ring::wait`] brings them, and what the first lead to is under way meanwhile.
    pub fn see_all(&mut self) {
        self.take_completions();
        while !self.has_seen_all {
            let before = self.seen.len();
            // After an error (out of memory) the next `wait` goes on.
            if self.kernel().enter(Wait::No).is_err() {
                return;
            }
            self.take_completions();
            if self.seen.len() == before {
                return;
            }
        }
    }

    /// Whether everything that had ended when [`Ring::wait`], or [`Ring::see_all`], returned has
    /// been seen.
    pub fn has_seen_all(&self) -> bool {
        self.has_seen_all
    }

    /// Submits what is queued, and looks for something that has ended, for as long as that is worth
    /// it and there is time. And how long that took, if it found nothing.
    fn look(&mut self, began: Time, timeout: Option<Duration>) -> (Look, Duration) {
        let window = self.busy_poll.window().min(timeout.unwrap_or(Duration::MAX));
        // An error leaves what is queued for the system call that waits.
        if window.is_zero() || self.kernel().enter(Wait::No).is_err() {
            return (Look::Nothing, Duration::ZERO);
        }
        let mut looked = Duration::ZERO;
        loop {
            let kernel = self.kernel();
            if kernel.has_completion() {
                return (Look::Ended, looked);
            }
            if kernel.has_more() {
                return (Look::Waits, looked);
            }
            if looked >= window {
                return (Look::Nothing, looked);
            }
            std::thread::yield_now();
            looked = Duration::from_nanos(self.clock.now().since(began).0);
        }
    }

    /// The next operation that has ended, of those that [`Ring::wait`] has seen.
    pub fn next_completed(&mut self) -> Option<Completed<K>> {
        while let Some((index, result)) = self.seen.pop_front() {
            let entry = self.slab[index as usize].take().expect("one completion per operation");
            let (is_disk, is_flush) = (entry.is_of_a_disk(), entry.flushed().is_some());
            match entry.ended(result) {
                Ok(completed) => {
                    if is_flush {
                        self.flush_ended(index, result);
                    }
                    self.free.push(index);
                    self.disk_operations -= usize::from(is_disk);
                    return Some(completed);
                }
                // It was interrupted, and is the one under way still.
                Err(rest) if is_flush => {
                    self.slab[index as usize] = Some(rest);
                    self.submit_place(index);
                }
                Err(rest) => self.put(index, rest),
            }
        }
        None
    }

    fn flush_ended(&mut self, index: u32, result: i32) {
        let ended = self.flushes.ended(index, result >= 0);
        self.seen.extend(ended.alike.into_iter().map(|index| (index, result)));
        if let Some(next) = ended.next {
            self.submit_place(next);
        }
    }

    /// Cancels what can be cancelled and waits until nothing is under way. Whether that worked
    /// within the time; if not, what the kernel may still touch must stay.
    pub fn close(&mut self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        // The kernel has not seen these: nothing of them will ever end.
        for submission in self.waiting.drain(..) {
            self.slab[submission.name as usize] = None;
        }
        for index in self.flushes.give_up() {
            self.slab[index as usize] = None;
        }
        let mut cancelled = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let now = self.clock.now();
            if self.wait(Some(left.min(Duration::from_millis(20))), now).is_err() {
                return false;
            }
            // Freed here, not given out: nobody waits for them any more. What would go on ends.
            while let Some((index, _)) = self.seen.pop_front() {
                self.slab[index as usize] = None;
            }
            if self.slab.iter().all(Option::is_none) {
                return true;
            }
            if !cancelled {
                cancelled = true;
                self.kernel().cancel_all();
            }
            if left.is_zero() {
                return false;
            }
        }
    }
}

impl<K> Drop for Ring<K> {
    fn drop(&mut self) {
        // Closing the ring does not wait for the kernel. What it may still write to is leaked: the
        // process is about to end, and a disk that hangs must not make that memory someone else's.
        drop(self.kernel.take());
        if self.slab.iter().any(Option::is_some) {
            std::mem::forget(std::mem::take(&mut self.slab));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Ring<u32> {
        Ring::new(crate::ring::kernel::linux().unwrap(), Clock::start())
    }

    fn disk(name: &str, size: u64) -> Rc<DeviceFile> {
        let path = std::env::temp_dir().join(format!("dcd-uring-{name}-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        let file = Rc::new(DeviceFile::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        file
    }

    fn next(ring: &mut Ring<u32>) -> Completed<u32> {
        loop {
            if let Some(completed) = ring.next_completed() {
                return completed;
            }
            ring.wait(Some(Duration::from_secs(5)), ring.clock.now()).unwrap();
        }
    }

    /// Zeroes of a share that lies in two pieces, with another between them.
    #[test]
    fn the_rest_of_a_share_is_zeroed() {
        use dcd_engine::format::share_directory::{NewShare, ShareState};
        use dcd_engine::units::Uuid;

        use crate::device::shares::{DirectoryChange, make_directory};
        const MIB: u64 = 1 << 20;
        let path = std::env::temp_dir().join(format!("dcd-uring-share-{}", std::process::id()));
        std::fs::write(&path, vec![7; 8 << 20]).unwrap();
        make_directory(&DeviceFile::open(&path).unwrap(), Uuid([1; 16])).unwrap();
        let mut change = DirectoryChange::begin(&path).unwrap();
        for (name, cache) in [("a", Uuid([2; 16])), ("b", Uuid([3; 16]))] {
            let (name, data_disk) = (name.into(), String::new());
            let new = NewShare { name, cache, size_bytes: MIB, data_disk };
            change.directory.allocate(new).unwrap();
            change.directory.set_state(cache, ShareState::InUse).unwrap();
        }
        change.directory.resize(Uuid([2; 16]), 2 * MIB).unwrap();
        change.write().unwrap();
        drop(change);
        let share = Rc::new(DeviceFile::open(&path.join("a")).unwrap());
        let mut ring = ring();
        ring.zero(1, &share, MIB - 8192, 16384, ZeroMode::Punch);
        assert!(matches!(next(&mut ring), Completed::Zero { key: 1, result: Ok(()), .. }));
        ring.read(2, &share, MIB - 12288, Buffer::zeroed(24576));
        let Completed::Disk { buffer: Some(buffer), result: Ok(()), .. } = next(&mut ring) else {
            panic!("the read failed");
        };
        let expected = [vec![7; 4096], vec![0; 16384], vec![7; 4096]].concat();
        assert!(buffer.bytes() == expected);
        let all = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(all[2 * MIB as usize..3 * MIB as usize].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn writes_come_back_from_reads() {
        let mut ring = ring();
        let file = disk("write", 1 << 20);
        let source = WriteSource::Owned(Buffer::copy_of(&[5; 8192]));
        ring.write(1, &file, 4096, source, true);
        assert!(matches!(
            next(&mut ring),
            Completed::Disk { key: 1, result: Ok(()), buffer: Some(_) }
        ));
        ring.flush(2, &file);
        assert!(matches!(next(&mut ring), Completed::Disk { key: 2, result: Ok(()), .. }));
        ring.read(3, &file, 0, Buffer::zeroed(16384));
        let Completed::Disk { key: 3, result: Ok(()), buffer: Some(buffer) } = next(&mut ring)
        else {
            panic!("the read failed");
        };
        assert_eq!(buffer.bytes()[4095..4097], [0, 5]);
        assert_eq!(buffer.bytes()[12287..12289], [5, 0]);
        assert_eq!(ring.disk_operations(), 0);
    }

    #[test]
    fn zeroes_longer_than_the_shared_piece_are_continued() {
        let mut ring = ring();
        let file = disk("zeroes", 4 << 20);
        let length = (ZEROES_BYTES + 8192) as u64;
        let full = WriteSource::Owned(Buffer::copy_of(&vec![9; 2 << 20]));
        ring.write(0, &file, 0, full, false);
        next(&mut ring);
        ring.write(1, &file, 4096, WriteSource::Zeroes(length), false);
        assert!(matches!(next(&mut ring), Completed::Disk { key: 1, result: Ok(()), .. }));
        let read = file.read_at(0, 2 << 20).unwrap();
        let end = 4096 + length as usize;
        assert!(read.bytes()[4096..end].iter().all(|b| *b == 0));
        assert_eq!((read.bytes()[4095], read.bytes()[end]), (9, 9));
    }

    #[test]
    fn a_read_past_the_end_says_so() {
        let mut ring = ring();
        let file = disk("end", 8192);
        for (key, offset) in [(1, 4096), (2, 8192)] {
            ring.read(key, &file, offset, Buffer::zeroed(8192));
            let Completed::Disk { result, .. } = next(&mut ring) else { panic!() };
            assert_eq!(result, Err(DiskError::EndOfDisk), "at {offset}");
        }
    }

    #[test]
    fn more_operations_than_the_ring_holds() {
        let mut ring = ring();
        let file = disk("many", 1 << 20);
        let count = 3 * crate::ring::kernel::RING_ENTRIES;
        for key in 0..count {
            ring.read(key, &file, 0, Buffer::zeroed(512));
        }
        let mut seen = vec![false; count as usize];
        for _ in 0..count {
            let Completed::Disk { key, result: Ok(()), .. } = next(&mut ring) else { panic!() };
            assert!(!std::mem::replace(&mut seen[key as usize], true));
        }
    }

    /// A kernel that ends what it has when it is told to.
    #[derive(Clone, Default)]
    struct Hand(Rc<std::cell::RefCell<InHand>>);

    #[derive(Default)]
    struct InHand {
        under_way: Vec<u32>,
        ended: VecDeque<(u32, i32)>,
    }

    impl Kernel for Hand {
        unsafe fn push(&mut self, submission: &Submission) -> bool {
            assert!(matches!(submission.work, Work::Sync));
            self.0.borrow_mut().under_way.push(submission.name);
            true
        }
        fn enter(&mut self, _: Wait) -> io::Result<()> {
            Ok(())
        }
        fn next_completion(&mut self) -> Option<(u32, i32)> {
            self.0.borrow_mut().ended.pop_front()
        }
        fn has_completion(&mut self) -> bool {
            !self.0.borrow().ended.is_empty()
        }
        fn has_more(&mut self) -> bool {
            false
        }
        fn cancel_all(&mut self) {}
    }

    impl Hand {
        /// Ends the one flush that the kernel has.
        fn end(&self, result: i32) {
            let InHand { under_way, ended } = &mut *self.0.borrow_mut();
            assert_eq!(under_way.len(), 1, "one at a time");
            ended.extend(under_way.drain(..).map(|name| (name, result)));
        }
    }

    /// Linux tells of an error of writing back once: whoever asked meanwhile is told as well.
    #[test]
    fn flushes_of_a_buffered_file_do_not_overlap() {
        let kernel = Hand::default();
        let mut ring: Ring<u32> = Ring::new(Box::new(kernel.clone()), Clock::start());
        let mut file = Rc::into_inner(disk("buffered", 8192)).unwrap();
        file.is_direct = false;
        let file = Rc::new(file);
        let ended = |ring: &mut Ring<u32>, count: usize| -> Vec<(u32, bool)> {
            let each = (0..count).map(|_| match next(ring) {
                Completed::Disk { key, result, .. } => (key, result.is_ok()),
                _ => panic!("a flush"),
            });
            each.collect()
        };
        (1..=3).for_each(|key| ring.flush(key, &file));
        kernel.end(-libc::EINTR);
        ring.wait(None, ring.clock.now()).unwrap();
        assert!(ring.next_completed().is_none(), "it goes on");
        kernel.end(0);
        assert_eq!(ended(&mut ring, 1), [(1, true)]);
        ring.flush(4, &file);
        kernel.end(-libc::EIO);
        assert_eq!(ended(&mut ring, 3), [(2, false), (3, false), (4, false)]);
        ring.flush(5, &file);
        kernel.end(0);
        assert_eq!(ended(&mut ring, 1), [(5, true)]);
        assert_eq!(ring.disk_operations(), 0);
    }

    /// What is short is done by this thread, what is long by the ring.
    #[test]
    fn files_in_memory_are_as_others() {
        let path = std::path::PathBuf::from(format!("/dev/shm/dcd-uring-{}", std::process::id()));
        let Ok(file) = std::fs::File::create(&path) else {
            return println!("skipped: there is no /dev/shm");
        };
        file.set_len(4 << 20).unwrap();
        let file = Rc::new(DeviceFile::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(file.is_in_memory && !disk("not-in-memory", 512).is_in_memory);
        let mut ring = ring();
        let lengths = [512, 4096, 1 << 20, 2 << 20];
        let mut offset = 0;
        for (key, length) in (0..).zip(lengths) {
            let source = WriteSource::Owned(Buffer::copy_of(&vec![key as u8 + 1; length]));
            ring.write(key, &file, offset, source, key % 2 == 0);
            ring.flush(key, &file);
            offset += length as u64;
        }
        assert_eq!(ring.disk_operations(), 2 * lengths.len());
        for _ in 0..2 * lengths.len() {
            assert!(matches!(next(&mut ring), Completed::Disk { result: Ok(()), .. }));
        }
        offset = 0;
        for (key, length) in (0..).zip(lengths) {
            ring.read(key, &file, offset, Buffer::zeroed(length));
            offset += length as u64;
        }
        for _ in lengths {
            let Completed::Disk { key, result: Ok(()), buffer: Some(buffer) } = next(&mut ring)
            else {
                panic!("a read failed");
            };
            let whole = buffer.len() == lengths[key as usize];
            assert!(whole && buffer.bytes().iter().all(|byte| *byte == key as u8 + 1));
        }
        ring.read(9, &file, (4 << 20) - 512, Buffer::zeroed(8192));
        let Completed::Disk { key: 9, result, .. } = next(&mut ring) else { panic!() };
        assert_eq!(result, Err(DiskError::EndOfDisk));
        assert_eq!(ring.disk_operations(), 0);
    }

    /// A kernel that always leaves something to this thread.
    struct Busy;

    impl Kernel for Busy {
        unsafe fn push(&mut self, _: &Submission) -> bool {
            true
        }
        fn work(&mut self) -> bool {
            true
        }
        fn enter(&mut self, _: Wait) -> io::Result<()> {
            Ok(())
        }
        fn next_completion(&mut self) -> Option<(u32, i32)> {
            None
        }
        fn has_completion(&mut self) -> bool {
            true
        }
        fn has_more(&mut self) -> bool {
            false
        }
        fn cancel_all(&mut self) {}
    }

    /// Clients are heard, however much there is to do.
    #[test]
    fn what_is_queued_is_put_off_once() {
        let mut ring: Ring<u32> = Ring::new(Box::new(Busy), Clock::start());
        let works: Vec<bool> = (0..6).map(|_| ring.work()).collect();
        assert_eq!(works, [true, false, true, false, true, false]);
    }

    #[test]
    fn closing_cancels_what_waits() {
        let mut ring = ring();
        let never = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        ring.poll(1, Rc::new(never), PollFlags::IN);
        assert!(ring.close(Duration::from_secs(5)));
    }
}
