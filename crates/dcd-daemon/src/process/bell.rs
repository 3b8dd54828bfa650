//! Wakes a thread that waits for file descriptors when there is something in its queue.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// At most one wake-up is under way.
pub(crate) struct Bell {
    event: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    /// One that nobody has rung.
    pub(crate) fn new() -> io::Result<Bell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { event, rung: AtomicBool::new(false) })
    }

    /// Wakes; to be called after something was put into the queue.
    pub(crate) fn ring(&self) {
        // Only the first since the owner last looked needs to ring.
        if !self.rung.swap(true, Ordering::AcqRel) {
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// It has been heard: what is put into the queue from now on rings again. To be called before
    /// the queue is looked at.
    pub(crate) fn heard(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        // After the read: a sender that finds `false` rings again. One that found `true` put its
        // message into the queue before, and this swap, which reads what it wrote, makes the
        // message visible to us.
        self.rung.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
