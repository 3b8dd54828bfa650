//! Signals as something to wait for: SIGTERM and SIGINT through a signalfd; SIGPIPE ignored.
//!
//! They are blocked in the calling thread, and so in those it starts afterwards, until the guard is
//! dropped. All `unsafe` code around signals is in this file.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// Blocks the signals and receives them.
pub struct Signals {
    event: OwnedFd,
    mask_before: libc::sigset_t,
}

impl Signals {
    /// Begins to receive SIGTERM and SIGINT. To be called before other threads are started.
    pub fn install() -> io::Result<Signals> {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        let mut mask_before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the sets are ours and are filled by the calls before they are read; ignoring
        // SIGPIPE installs no handler.
        unsafe {
            libc::sigemptyset(mask.as_mut_ptr());
            libc::sigaddset(mask.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(mask.as_mut_ptr(), libc::SIGINT);
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            let error =
                libc::pthread_sigmask(libc::SIG_BLOCK, mask.as_ptr(), mask_before.as_mut_ptr());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let event = libc::signalfd(-1, mask.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if event < 0 {
                return Err(io::Error::last_os_error());
            }
            // The descriptor is new and nobody else's.
            Ok(Signals {
                event: OwnedFd::from_raw_fd(event),
                mask_before: mask_before.assume_init(),
            })
        }
    }

    /// Signals received since the last call.
    pub fn take(&self) -> usize {
        let mut count = 0;
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.event, &mut info) {
                Ok(n) if n == info.len() => count += 1,
                Err(Errno::INTR) => {}
                _ => return count,
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: a set that the system gave us.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask_before, std::ptr::null_mut());
        }
    }
}
