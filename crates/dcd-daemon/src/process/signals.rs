//! Signals as something to wait for: SIGTERM, SIGINT and SIGUSR1 through a signalfd; SIGPIPE
//! ignored.
//!
//! A process that has a cache open receives all others that would kill it as well: none of them may
//! end it like `kill -9`. SIGQUIT ends it in order, SIGHUP has it read its settings again; of the
//! rest (SIGALRM, real-time signals and so on) it is said that nothing is done. SIGILL, SIGTRAP,
//! SIGFPE and SIGSYS of somebody else end it in order, too: those of its own mistakes, which the
//! kernel sends to the thread that made them, kill although they are blocked.
//!
//! Not received are SIGABRT, by which a service manager ends one that hangs, which would not look;
//! and SIGSEGV and SIGBUS, which have handlers that tell what has happened, and have to find them.
//!
//! They are blocked in the calling thread, and so in those it starts afterwards, until the guard is
//! dropped. All `unsafe` code around signals is in this file.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;

use rustix::io::Errno;
use rustix::process::Pid;

use crate::process::supervisor::supervisor;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGTERM, SIGINT: to end.
    Stop,
    /// SIGUSR1: to end, and to leave what can be left to the next start.
    Restart,
    /// SIGHUP: to read settings again, for who has some. Not of [`Signals::install`].
    ReadSettings,
}

/// What would end a process; see the module for those that are not in here. Not SIGPIPE: it is
/// ignored, and one that is blocked is received all the same, and the message about it makes the
/// next.
const OTHERS: [i32; 15] = [
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGFPE,
    libc::SIGSYS,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];

/// Blocks the signals and receives them.
pub struct Signals {
    event: OwnedFd,
    /// `None`: they stay blocked.
    mask_before: Option<libc::sigset_t>,
    /// Who passes signals on to us.
    supervisor: Option<Pid>,
    /// How often it wanted the end, and how often others did.
    ends_wanted: Cell<(u32, u32)>,
}

impl Signals {
    /// Begins to receive SIGTERM, SIGINT and SIGUSR1. To be called before other threads are
    /// started.
    pub fn install() -> io::Result<Signals> {
        Signals::receive([])
    }

    /// The same, and SIGHUP and SIGQUIT, for what would leave something half done when a terminal
    /// is closed or Ctrl-\ typed. Not where SIGHUP is ignored: nohup(1) was told to go on.
    pub fn install_with_hangup() -> io::Result<Signals> {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: without a new action it only fills in the one that counts, which is ours.
        let is_ignored = unsafe {
            libc::sigaction(libc::SIGHUP, std::ptr::null(), action.as_mut_ptr()) == 0
                && action.assume_init().sa_sigaction == libc::SIG_IGN
        };
        let hangup = (!is_ignored).then_some(libc::SIGHUP);
        Signals::receive(hangup.into_iter().chain([libc::SIGQUIT]))
    }

    /// Begins to receive all signals that can be received and would end the process, too. To be
    /// called before other threads are started.
    pub fn install_all() -> io::Result<Signals> {
        let mut all =
            Signals::receive(OTHERS.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()))?;
        // One that comes while the process ends would make a failure of an end in order.
        all.mask_before = None;
        all.supervisor = supervisor();
        Ok(all)
    }

    fn receive(others: impl IntoIterator<Item = i32>) -> io::Result<Signals> {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        let mut mask_before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the sets are ours and are filled by the calls before they are read; ignoring
        // SIGPIPE installs no handler.
        unsafe {
            libc::sigemptyset(mask.as_mut_ptr());
            libc::sigaddset(mask.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(mask.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(mask.as_mut_ptr(), libc::SIGUSR1);
            for signal in others {
                libc::sigaddset(mask.as_mut_ptr(), signal);
            }
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
                mask_before: Some(mask_before.assume_init()),
                supervisor: None,
                ends_wanted: Cell::default(),
            })
        }
    }

    /// Whether the end is wanted once more, now that this process wants it. Who passes signals on
    /// to us, and who sends them to us as well as to that one, want it once.
    fn is_another_end(&self, sender: Option<Pid>) -> bool {
        let (by_supervisor, by_others) = self.ends_wanted.get();
        let wanted = match self.supervisor.is_some() && sender == self.supervisor {
            true => (by_supervisor.saturating_add(1), by_others),
            false => (by_supervisor, by_others.saturating_add(1)),
        };
        self.ends_wanted.set(wanted);
        wanted.0.max(wanted.1) > by_supervisor.max(by_others)
    }

    /// The next that was received, if any.
    pub fn take(&self) -> Option<Signal> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.event, &mut info) {
                Ok(read) if read == info.len() => {}
                Err(Errno::INTR) => continue,
                _ => return None,
            }
            let word = |at: usize| {
                let bytes = info[at..].first_chunk().expect("more than its first words");
                i32::from_ne_bytes(*bytes)
            };
            let number = word(std::mem::offset_of!(libc::signalfd_siginfo, ssi_signo));
            let sender = word(std::mem::offset_of!(libc::signalfd_siginfo, ssi_pid));
            let end = match number {
                libc::SIGUSR1 => Some(Signal::Restart),
                libc::SIGTERM | libc::SIGINT | libc::SIGQUIT => Some(Signal::Stop),
                libc::SIGILL | libc::SIGTRAP | libc::SIGFPE | libc::SIGSYS => Some(Signal::Stop),
                _ => None,
            };
            if let Some(end) = end {
                match self.is_another_end(Pid::from_raw(sender)) {
                    true => return Some(end),
                    false => continue,
                }
            }
            match number {
                libc::SIGHUP => return Some(Signal::ReadSettings),
                other => eprintln!("dcd: signal {other}: nothing to do; SIGTERM ends dcd in order"),
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
        if let Some(before) = &self.mask_before {
            // SAFETY: a set that the system gave us.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        }
    }
}
/// Has a child receive all signals, whatever its parent has blocked: it would inherit that.
pub(crate) fn receive_in_child(command: &mut std::process::Command) {
    // SAFETY: between fork and exec only calls that are safe there: both fill or read a set that is
    // its own.
    unsafe {
        command.pre_exec(|| {
            let mut none = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            match libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}
