//! Signals as something to wait for: SIGTERM, SIGINT and SIGUSR1 through a signalfd; SIGPIPE ignored.
//!
//! They are blocked in the calling thread, and so in those it starts afterwards, until the guard is
//! dropped. All `unsafe` code around signals is in this file.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGTERM, SIGINT: to end.
    Stop,
    /// SIGUSR1: to end, and to leave what can be left to the next start.
    Restart,
}

/// Blocks the signals and receives them.
pub struct Signals {
    event: OwnedFd,
    mask_before: libc::sigset_t,
}

impl Signals {
    /// Begins to receive SIGTERM, SIGINT and SIGUSR1. To be called before other threads are started.
    pub fn install() -> io::Result<Signals> {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        let mut mask_before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the sets are ours and are filled by the calls before they are read; ignoring
        // SIGPIPE installs no handler.
        unsafe {
            libc::sigemptyset(mask.as_mut_ptr());
            libc::sigaddset(mask.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(mask.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(mask.as_mut_ptr(), libc::SIGUSR1);
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

    /// The next that was received, if any.
    pub fn take(&self) -> Option<Signal> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.event, &mut info) {
                Ok(read) if read == info.len() => break,
                Err(Errno::INTR) => {}
                _ => return None,
            }
        }
        let (number, _) = info.split_first_chunk().expect("more than a number");
        Some(match i32::from_ne_bytes(*number) {
            libc::SIGUSR1 => Signal::Restart,
            _ => Signal::Stop,
        })
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
