//! Whom a start tells how far it is: behind a death with a large log it may take minutes, and who
//! asks meanwhile should not have to guess whether it hangs.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use dcd_engine::Engine;
use dcd_engine::units::LINE_SIZE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::waiting::answer_client;
use crate::process::service_manager::Notifier;
use crate::units_text::format_size;

/// A start that takes no longer is told of when it is over.
const QUIET: Duration = Duration::from_secs(2);
/// How often is said how far it is.
const INTERVAL: Duration = Duration::from_secs(5);
/// How often clients of the control socket are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Tells how far a start is.
pub(crate) struct OpeningTeller<'a> {
    control: Option<&'a UnixListener>,
    notifier: Option<&'a Notifier>,
    quiet: bool,
    begun: Instant,
    next_word: Instant,
    next_look: Instant,
}

impl<'a> OpeningTeller<'a> {
    /// Clients of `control` are told, and the service manager, and who reads stderr if not `quiet`.
    pub(crate) fn new(
        control: Option<&'a UnixListener>,
        notifier: Option<&'a Notifier>,
        quiet: bool,
    ) -> OpeningTeller<'a> {
        let begun = Instant::now();
        OpeningTeller {
            control,
            notifier,
            quiet,
            begun,
            next_word: begun + QUIET,
            next_look: begun + LOOK,
        }
    }

    /// How long nothing has to be told.
    pub(crate) fn patience(&self) -> Duration {
        LOOK
    }

    /// Asked all the time.
    pub(crate) fn tell(&mut self, engine: &Engine) {
        let now = Instant::now();
        if now >= self.next_word {
            self.next_word = now + INTERVAL;
            let words = self.words(engine, now);
            self.notifier.iter().for_each(|notifier| notifier.status(&words));
            if !self.quiet {
                eprintln!("dcd: {words}");
            }
        }
        if now >= self.next_look {
            self.next_look = now + LOOK;
            if let Some(control) = self.control.filter(|control| somebody_asks(control)) {
                let hint = "it serves when that is done: a start reads what was logged lately";
                answer_client(control, &self.words(engine, now), hint);
            }
        }
    }

    fn words(&self, engine: &Engine, now: Instant) -> String {
        let progress = engine.opening_progress();
        format!(
            "opening the cache for {} s: {} read, {} dirty so far",
            (now - self.begun).as_secs(),
            format_size(progress.bytes_read),
            format_size(progress.dirty_lines * LINE_SIZE),
        )
    }
}

fn somebody_asks(control: &UnixListener) -> bool {
    let mut events = [PollFd::new(control, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut events, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
