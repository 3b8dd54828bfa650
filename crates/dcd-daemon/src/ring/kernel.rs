//! What a ring needs of the kernel: room for submissions, one system call, and completions.
//!
//! [`Uring`] is Linux. The other is
//! [`SimulatedKernel`](crate::ring::simulated_kernel::SimulatedKernel), which does the same to
//! files on a clock of its own, with all that a kernel may do and mostly does not.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

/// Operations that fit into the ring at once; more wait beside it.
pub(crate) const RING_ENTRIES: u32 = 1024;
/// Longest operation on a file in memory that this thread does itself, and the most that it does
/// before it looks around again: a part of a millisecond, as long as memory is not swapped out.
const AT_ONCE_BYTES_MAX: u32 = 1 << 20;
/// What an operation counts at least: its system call takes as long as so many bytes.
const AT_ONCE_BYTES_MIN: usize = 16 << 10;

/// What the kernel is to do.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Read to this address.
    Read {
        /// Where to.
        address: *mut u8,
        /// Bytes.
        length: u32,
        /// From where.
        offset: u64,
    },
    /// Write from this address.
    Write {
        /// Where from.
        address: *const u8,
        /// Bytes.
        length: u32,
        /// Where to.
        offset: u64,
        /// `RWF_DSYNC` or nothing.
        flags: i32,
    },
    /// `fdatasync`.
    Sync,
    /// `fallocate`.
    Allocate {
        /// From where.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Its mode.
        mode: i32,
    },
    /// Receive to this address.
    Receive {
        /// Where to.
        address: *mut u8,
        /// Bytes.
        length: u32,
        /// `MSG_WAITALL` or nothing.
        flags: i32,
    },
    /// A command to a driver.
    Command {
        /// Which.
        code: u32,
        /// Its bytes.
        command: [u8; 16],
    },
    /// Tell when it is ready.
    Poll {
        /// For what.
        flags: u32,
    },
}

/// An operation for the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    /// Comes back with the completion.
    pub name: u32,
    /// The file or socket.
    pub file: RawFd,
    /// What to do.
    pub work: Work,
    /// The file is in memory: no device is waited for.
    pub in_memory: bool,
}

/// How long a call waits for a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until there is one, or the time is over; `None`: without end.
    Until(Option<Duration>),
}

/// A kernel with one ring.
pub trait Kernel {
    /// Queues an operation, if there is room.
    ///
    /// # Safety
    /// What it points to, and its file, must stay until its completion has been seen.
    unsafe fn push(&mut self, submission: &Submission) -> bool;
    /// Does some of what this thread does itself. Whether that made completions.
    fn work(&mut self) -> bool {
        false
    }
    /// The system call: gives what is queued to the kernel, and waits.
    fn enter(&mut self, wait: Wait) -> io::Result<()>;
    /// The next completion: whose, and how.
    fn next_completion(&mut self) -> Option<(u32, i32)>;
    /// Whether there is one, without a system call.
    fn has_completion(&mut self) -> bool;
    /// Whether something has ended whose completion takes a system call: it did not fit, or is made
    /// when it is asked for; or something is left for [`Kernel::work`].
    fn has_more(&mut self) -> bool;
    /// Cancels all that is under way, as far as it can be.
    fn cancel_all(&mut self);
}

/// All that is ever asked of a ring, see [`entry`]; it refuses anything else.
const OPERATIONS: [u8; 7] = [
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::Recv::CODE,
    opcode::UringCmd16::CODE,
    opcode::PollAdd::CODE,
];
/// `IORING_REGISTER_SYNC_CANCEL`
const REGISTER_SYNC_CANCEL: u8 = 24;

/// The ring of Linux.
///
/// Operations on files in memory are not given to it: tmpfs makes nobody wait, so the kernel would
/// hand each to a thread of its own, which copies, and wakes us (io-wq; Linux 6.18). This thread
/// copies itself, a piece of the work in each turn.
pub(crate) struct Uring {
    ring: IoUring,
    /// What this thread is to do.
    at_once: VecDeque<Submission>,
    /// What it has done.
    done: VecDeque<(u32, i32)>,
}

impl Uring {
    /// Makes a ring, to be used by this thread only.
    pub(crate) fn new() -> io::Result<Uring> {
        // The flags spare interrupts of this thread; older kernels do not know them.
        // `taskrun_flag`: that something has ended can be seen without a system call.
        let mut builder = IoUring::builder();
        builder.dontfork().setup_cqsize(4 * RING_ENTRIES).setup_r_disabled();
        let ring = builder
            .clone()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_defer_taskrun()
            .build(RING_ENTRIES)
            .or_else(|_| {
                let mut builder = builder.clone();
                builder.setup_coop_taskrun().setup_taskrun_flag().build(RING_ENTRIES)
            })
            .or_else(|_| builder.build(RING_ENTRIES))?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring without waiting times (Linux before 5.11)",
            ));
        }
        // What a filter of system calls refuses could be had of a ring: a socket, a connection, a
        // file.
        let mut allowed: Vec<Restriction> = OPERATIONS.map(Restriction::sqe_op).into();
        allowed.push(Restriction::register_op(REGISTER_SYNC_CANCEL));
        ring.submitter().register_restrictions(&mut allowed)?;
        ring.submitter().register_enable_rings()?;
        Ok(Uring { ring, at_once: VecDeque::new(), done: VecDeque::new() })
    }

    /// Whether the ring has ended something whose completion takes a system call.
    fn ring_has_more(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.cq_overflow() || submission.taskrun()
    }
}

impl Kernel for Uring {
    unsafe fn push(&mut self, submission: &Submission) -> bool {
        if submission.in_memory && is_short(&submission.work) {
            self.at_once.push_back(*submission);
            return true;
        }
        let entry = entry(submission);
        // SAFETY: the caller keeps what it points to.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    fn work(&mut self) -> bool {
        let mut left = AT_ONCE_BYTES_MAX as usize;
        while left > 0
            && let Some(submission) = self.at_once.pop_front()
        {
            // SAFETY: whoever pushed it keeps what it points to until its completion has been seen.
            let result = unsafe { perform(&submission) };
            self.done.push_back((submission.name, result));
            left = left.saturating_sub(usize::try_from(result).unwrap_or(0).max(AT_ONCE_BYTES_MIN));
        }
        !self.done.is_empty()
    }

    fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let wait = if self.work() { Wait::No } else { wait };
        let submitter = self.ring.submitter();
        match wait {
            // Behind `has_more` it makes completions, too: the crate looks at the same flags.
            Wait::No => submitter.submit(),
            Wait::Until(None) => submitter.submit_and_wait(1),
            Wait::Until(Some(timeout)) => {
                let timespec = Timespec::from(timeout);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
        }
        .map(|_| ())
    }

    fn next_completion(&mut self) -> Option<(u32, i32)> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        let completion = self.ring.completion().next()?;
        Some((completion.user_data() as u32, completion.result()))
    }

    fn has_completion(&mut self) -> bool {
        !self.done.is_empty() || !self.ring.completion().is_empty()
    }

    fn has_more(&mut self) -> bool {
        !self.at_once.is_empty() || self.ring_has_more()
    }

    fn cancel_all(&mut self) {
        let time = Timespec::new().nsec(1_000_000);
        let _ = self.ring.submitter().register_sync_cancel(Some(time), CancelBuilder::any());
    }
}

/// Whether an operation on a file in memory takes so little that all others may wait for it.
fn is_short(work: &Work) -> bool {
    match work {
        Work::Read { length, .. } | Work::Write { length, .. } => *length <= AT_ONCE_BYTES_MAX,
        Work::Sync => true,
        Work::Allocate { .. } | Work::Receive { .. } | Work::Command { .. } | Work::Poll { .. } => {
            false
        }
    }
}

/// The system call for a [short](is_short) operation; what it returns, as a completion has it.
///
/// # Safety
/// What it points to must be there.
unsafe fn perform(submission: &Submission) -> i32 {
    let file = submission.file;
    // SAFETY: see above; a file that is not open is an error.
    let result = unsafe {
        match submission.work {
            Work::Read { address, length, offset } => {
                libc::pread64(file, address.cast(), length as usize, offset as i64)
            }
            Work::Write { address, length, offset, flags } => {
                let (iov_base, iov_len) = (address.cast_mut().cast(), length as usize);
                let bytes = libc::iovec { iov_base, iov_len };
                libc::pwritev2(file, &bytes, 1, offset as i64, flags)
            }
            Work::Sync => libc::fdatasync(file) as isize,
            _ => unreachable!("it is not short"),
        }
    };
    match result {
        0.. => result as i32,
        _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    }
}

fn entry(submission: &Submission) -> squeue::Entry {
    let fd = Fd(submission.file);
    let entry = match submission.work {
        Work::Read { address, length, offset } => {
            opcode::Read::new(fd, address, length).offset(offset).build()
        }
        Work::Write { address, length, offset, flags } => {
            opcode::Write::new(fd, address, length).offset(offset).rw_flags(flags).build()
        }
        Work::Sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        Work::Allocate { offset, length, mode } => {
            opcode::Fallocate::new(fd, length).offset(offset).mode(mode).build()
        }
        Work::Receive { address, length, flags } => {
            opcode::Recv::new(fd, address, length).flags(flags).build()
        }
        Work::Command { code, command } => opcode::UringCmd16::new(fd, code).cmd(command).build(),
        Work::Poll { flags } => opcode::PollAdd::new(fd, flags).build(),
    };
    entry.user_data(submission.name.into())
}

/// A ring of Linux.
pub fn linux() -> io::Result<Box<dyn Kernel>> {
    Ok(Box::new(Uring::new()?))
}
