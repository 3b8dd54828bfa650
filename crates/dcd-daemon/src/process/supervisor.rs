//! A daemon that another process of dcd has started, and passes signals on to: one of several
//! caches that are served together.
//!
//! Whoever ends it does that through the process that has started it. A service manager may send
//! its signal to both all the same, and that is to end it once and not twice: see
//! [`crate::process::signals::Signals::take`]. When that process is killed, the daemon ends in
//! order: nobody would start, stop or hear it any more.

use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// The process that has started us, for those it was meant for.
const VARIABLE: &str = "DCD_SUPERVISOR";

/// Has a process know that we pass signals on to it.
pub(crate) fn supervise(command: &mut Command) {
    command.env(VARIABLE, getpid().as_raw_nonzero().to_string());
}

/// Who passes signals on to this process, if somebody does. From now on its end is ours.
pub(crate) fn supervisor() -> Option<Pid> {
    let said = std::env::var(VARIABLE).ok()?.parse().ok().and_then(Pid::from_raw)?;
    // First: it may be killed between the two.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    // Programs that we start see the variable, too.
    if getppid() != Some(said) {
        let _ = set_parent_process_death_signal(None);
        return None;
    }
    Some(said)
}
