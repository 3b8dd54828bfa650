//! A ring for long commands to a driver (`IORING_OP_URING_CMD` with 80 bytes), one at a time, with
//! a time-out.
//!
//! The event loop's ring has short entries, and some of these commands take long or need answers of
//! the event loop meanwhile, so other threads give them, each with a ring of its own. All `unsafe`
//! code around them is in this file.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

/// Bytes of a command.
pub const COMMAND_BYTES: usize = 80;

/// The ring.
pub struct CommandRing {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// A command has not ended in time. Its end would be taken for that of another one.
    is_lost: bool,
}

/// Why a command has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// The driver refused.
    Errno(Errno),
    /// No answer in time, of this command or of one before.
    TimedOut,
}

impl CommandRing {
    /// Makes a ring.
    pub fn new() -> io::Result<CommandRing> {
        let ring = IoUring::builder().dontfork().build(2)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring without waiting times",
            ));
        }
        Ok(CommandRing { ring, is_lost: false })
    }

    /// Gives a command and waits for its answer. `fill` makes it, from the address of `buffer`,
    /// which the driver may read and write; it comes back.
    pub fn command(
        &mut self,
        file: &impl AsFd,
        code: u32,
        fill: impl FnOnce(u64) -> [u8; COMMAND_BYTES],
        mut buffer: Box<[u8]>,
        timeout: Duration,
    ) -> Result<(u32, Box<[u8]>), CommandError> {
        if self.is_lost {
            return Err(CommandError::TimedOut);
        }
        let command = fill(buffer.as_mut_ptr() as u64);
        let fd = Fd(file.as_fd().as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, code).cmd(command).build();
        // SAFETY: the command points to `buffer`, which is on the heap, and which is kept until the
        // completion has been seen, or leaked if that does not come in time. The ring is empty, so
        // there is room.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            return Err(CommandError::Errno(Errno::BUSY));
        }
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timespec = Timespec::from(left);
            let waited =
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec));
            if let Some(completion) = self.ring.completion().next() {
                return match completion.result() {
                    result @ 0.. => Ok((result as u32, buffer)),
                    result => Err(CommandError::Errno(Errno::from_raw_os_error(-result))),
                };
            }
            let errno = waited.err().and_then(|error| error.raw_os_error());
            if left.is_zero() || !matches!(errno, None | Some(libc::ETIME | libc::EINTR)) {
                // The driver may still write there.
                std::mem::forget(buffer);
                self.is_lost = true;
                return Err(CommandError::TimedOut);
            }
        }
    }
}
