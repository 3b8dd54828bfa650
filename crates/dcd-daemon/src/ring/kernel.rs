//! What a ring needs of the kernel: room for submissions, one system call, and completions.
//!
//! [`Uring`] is Linux. The other is
//! [`SimulatedKernel`](crate::ring::simulated_kernel::SimulatedKernel), which does the same to
//! files on a clock of its own, with all that a kernel may do and mostly does not.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

/// Operations that fit into the ring at once; more wait beside it.
pub(crate) const RING_ENTRIES: u32 = 1024;

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
    /// The system call: gives what is queued to the kernel, and waits.
    fn enter(&mut self, wait: Wait) -> io::Result<()>;
    /// The next completion: whose, and how.
    fn next_completion(&mut self) -> Option<(u32, i32)>;
    /// Whether there is one, without a system call.
    fn has_completion(&mut self) -> bool;
    /// Whether something has ended whose completion takes a system call: it did not fit, or is made
    /// when it is asked for.
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
pub(crate) struct Uring(IoUring);

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
        Ok(Uring(ring))
    }
}

impl Kernel for Uring {
    unsafe fn push(&mut self, submission: &Submission) -> bool {
        let entry = entry(submission);
        // SAFETY: the caller keeps what it points to.
        unsafe { self.0.submission().push(&entry) }.is_ok()
    }

    fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let submitter = self.0.submitter();
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
        let completion = self.0.completion().next()?;
        Some((completion.user_data() as u32, completion.result()))
    }

    fn has_completion(&mut self) -> bool {
        !self.0.completion().is_empty()
    }

    fn has_more(&mut self) -> bool {
        let submission = self.0.submission();
        submission.cq_overflow() || submission.taskrun()
    }

    fn cancel_all(&mut self) {
        let time = Timespec::new().nsec(1_000_000);
        let _ = self.0.submitter().register_sync_cancel(Some(time), CancelBuilder::any());
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
        Work::Receive { address, length } => opcode::Recv::new(fd, address, length).build(),
        Work::Command { code, command } => opcode::UringCmd16::new(fd, code).cmd(command).build(),
        Work::Poll { flags } => opcode::PollAdd::new(fd, flags).build(),
    };
    entry.user_data(submission.name.into())
}

/// A ring of Linux.
pub fn linux() -> io::Result<Box<dyn Kernel>> {
    Ok(Box::new(Uring::new()?))
}
