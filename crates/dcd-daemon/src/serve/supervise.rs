//! Running a loop until somebody wants it to end, and ending it in order.
//!
//! ```text
//! detach asked (control socket)
//!   0. all is brought to the data-disk while the volume is still served
//!        cancelled here: serving goes on as if nothing had been asked
//!        so it does when something is lost that nobody has accepted, or when a disk fails
//! stop asked (signal, control socket), or 0 is done
//!   1. take no new NBD clients
//!   2. frontends with threads stop (ublk, loop device, FUSE): their last writes still come in
//!   3. the core is told to shut down or to detach (what came since 0 is moved, too)
//!        detach cancelled here: it becomes a shutdown, the pair stays one
//!   4. its answer is the end
//! ```
//!
//! A signal under users who would lose what they have not written yet (a mounted file system, an
//! open file, an NBD client) waits for them first: they are named, their file systems are synced,
//! and they are served on, until they have gone, a time limit, or a second signal. What was
//! acknowledged is safe in either case.
//!
//! A signal during a detach cancels it and stops in order. Whoever asks by signal once more does
//! not want to wait: the loop is left at once. That is a crash as far as the disks are concerned,
//! and as safe as one.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use dcd_engine::stats::{CacheDiskFailure, ModeReport, ModeState, Uncached};
use dcd_engine::units::LbaRange;
use dcd_engine::{Engine, Mode, Operation, RequestError};

use crate::control::settings::SharedSettings;
use crate::event_loop::core::Core;
use crate::event_loop::submitter::{Completion, DetachTerms, DrainTicket, StopKind, Submitter};
use crate::event_loop::{EventLoop, StopRequest};
use crate::frontend::Frontends;
use crate::process::service_manager::Notifier;
use crate::process::users::Users;
use crate::report::stuck::StuckReport;
use crate::report::trouble_words::TroubleTeller;
use crate::serve::error::ServeError;
use crate::serve::leg_news::LegNews;
use crate::serve::member_news::MemberNews;
use crate::serve::nvram_news::NvramNews;
use crate::serve::volume_news::VolumeTeller;
use crate::users::{self, Purpose, UserFinder};

/// How a daemon ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// In order; dirty data may be in the cache.
    ShutDown,
    /// The same, while somebody used the disk: what was not written to it yet, failed.
    ShutDownUnderUsers,
    /// The data-disk stands on its own.
    Detached,
    /// At once, because of a second signal; as after a crash.
    Aborted,
    /// Stopped before the cache was open. Nothing was changed.
    StoppedWhileOpening,
}

/// Step 0 of a detach.
struct Draining {
    waiting: Vec<Completion>,
    ticket: DrainTicket,
    answer: Answer,
    terms: DetachTerms,
}

/// Steps 1 to 4.
struct Stop {
    kind: StopKind,
    terms: DetachTerms,
    waiting: Vec<Completion>,
    /// What the core was told, and where its answer comes.
    asked: Option<(StopKind, Answer)>,
    /// How it was then; see [`is_past_the_log`].
    past_the_log: bool,
    /// A detach that is a shutdown now.
    cancelled: bool,
    /// Somebody used the disk.
    under_users: bool,
}

/// A signal has come, and somebody uses the disk, or may.
struct Hold {
    kind: StopKind,
    until: Instant,
    /// Those who were named.
    told: Users,
    /// Being looked for.
    looking: Option<mpsc::Receiver<Users>>,
    look_at: Instant,
    /// Their file systems are synced, the last time, and so long at most.
    syncing: Option<(mpsc::Receiver<()>, Instant)>,
}

/// How it is to end.
pub(crate) struct Manner {
    /// Without messages about signals.
    pub(crate) quiet: bool,
    /// How long a signal waits for users.
    pub(crate) stop_timeout: Duration,
    /// Who they are.
    pub(crate) users: UserFinder,
    /// What SIGHUP has read again.
    pub(crate) settings: Option<SharedSettings>,
}

/// A signal so soon behind another of its kind is the same one: nobody is as fast.
const SIGNAL_ECHO: Duration = Duration::from_millis(10);
/// How often users are looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How long the last sync of their file systems may take.
const SYNC_PATIENCE: Duration = Duration::from_secs(10);

type Answer = mpsc::Receiver<Result<(), RequestError>>;

/// Says how disks change.
pub(crate) struct DiskNews {
    /// Those of a volume.
    pub(crate) members: MemberNews,
    /// Those of the cache-disk.
    pub(crate) legs: LegNews,
    /// The memory in front of the log.
    pub(crate) nvram: NvramNews,
}

/// Turns the loop until it has ended in order, or has failed.
pub(crate) fn run_until_stopped<C: Core>(
    event_loop: &mut EventLoop<C>,
    frontends: &mut dyn Frontends,
    notifier: &mut Notifier,
    disks: &mut DiskNews,
    manner: Manner,
) -> Result<Outcome, ServeError> {
    let mut supervisor = Supervisor {
        event_loop,
        frontends,
        manner,
        draining: None,
        stop: None,
        hold: None,
        signalled: None,
    };
    let mut is_stopping = false;
    let (mut failure, mut mode) = (None, None);
    let mut volume = VolumeTeller::default();
    let mut trouble = TroubleTeller::default();
    loop {
        // The sign of life comes from here: a loop that does not turn gives none.
        let due = notifier.watchdog_due();
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        let guard_due = supervisor.event_loop.keep_others_away();
        let guard_due = guard_due.map(|due| due.saturating_duration_since(Instant::now()));
        let due = [due, guard_due].into_iter().flatten().min();
        let due = match &supervisor.hold {
            Some(_) => Some(due.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL)),
            None => due,
        };
        supervisor.event_loop.turn(due).map_err(ServeError::system("wait for the disks"))?;
        notifier.turn();
        supervisor.event_loop.tell_calendar();
        if is_stopping != supervisor.stop.is_some() {
            is_stopping = supervisor.stop.is_some();
            notifier.stopping();
        }
        let core = supervisor.event_loop.core();
        tell_failure(&mut failure, core.cache_disk_failure());
        // Without a cache-disk, or with no-log, it is not the mode that says so.
        let has_choice =
            |engine: &&Engine| engine.cache_disk_failure().is_none() && !engine.config().no_log;
        tell_mode(&mut mode, core.engine().filter(has_choice).map(Engine::mode));
        for news in volume.news(core.engine()) {
            told!(Warning, "volume", "dcd: {news}");
        }
        disks.members.look(supervisor.event_loop.now(), core.engine().and_then(Engine::volume));
        let legs = core.engine().into_iter().flat_map(Engine::legs);
        for news in disks.legs.look(legs, |place| supervisor.event_loop.leg_name(place)) {
            told!(Warning, "leg", "dcd: {news}");
        }
        let witness = core.engine().and_then(Engine::leg_witness);
        let name = || supervisor.event_loop.witness_name();
        if let Some(news) = disks.legs.look_at_witness(witness, name) {
            told!(Warning, "witness", "dcd: {news}");
        }
        let name = || supervisor.event_loop.nvram_name();
        if let Some(news) = disks.nvram.look(core.nvram_standing(), name) {
            told!(Warning, "nvram", "dcd: {news}");
        }
        let store = || supervisor.event_loop.store_report();
        if let Some(news) = trouble.news(core.destage_trouble(), store, || core.status()) {
            told!(Warning, "destage", "dcd: {news}");
        }
        if let Err(error) = supervisor.frontends.turn()
            && supervisor.stop.is_none()
        {
            // Nothing may be left half open: end in order, then tell why.
            supervisor.frontends.begin_stop(StopKind::Shutdown);
            shut_down_now(supervisor.event_loop)?;
            return Err(error.into());
        }
        while let Some(request) = supervisor.event_loop.take_stop_request() {
            match request {
                StopRequest::CancelDetach => supervisor.cancel_detach(),
                StopRequest::Stop { kind, terms, completion: Some(completion) } => {
                    supervisor.stop_asked(kind, terms, completion);
                }
                StopRequest::Stop { kind, completion: None, .. } => {
                    if supervisor.signal(kind) {
                        return Ok(Outcome::Aborted);
                    }
                }
            }
        }
        if supervisor.event_loop.take_settings_wanted() {
            supervisor.read_settings();
        }
        supervisor.look_at_hold(notifier);
        supervisor.look_at_drain();
        if let Some(end) = supervisor.look_at_stop() {
            return end;
        }
    }
}

/// Says aloud, also with `--quiet`, when the cache-disk is given up and what follows from it.
fn tell_failure(told: &mut Option<CacheDiskFailure>, now: Option<CacheDiskFailure>) {
    let Some(failure) = now.filter(|_| now != *told) else { return };
    *told = now;
    let error = failure.error;
    match failure.uncached {
        None => told!(
            Error,
            "cache-disk-failed",
            "dcd: the cache-disk has failed: {error}. It holds data that is nowhere else: writes \
             and flushes fail until a restart with it"
        ),
        // It will end one way or the other.
        Some(Uncached::WritingThrough) => {}
        Some(Uncached::PassingThrough) => told!(
            Error,
            "cache-disk-failed",
            "dcd: the cache-disk has failed: {error}. Nothing on it was newer than the data-disk: \
             going on UNCACHED, at the speed of the data-disk"
        ),
        Some(Uncached::Failed) => told!(
            Error,
            "cache-disk-failed",
            "dcd: the cache-disk has failed: {error}. The data-disk has failed, too: writes and \
             flushes fail until a restart"
        ),
    }
}

/// Tells once when another mode is reached, or a switch to it is given up.
fn tell_mode(told: &mut Option<(Mode, ModeState)>, now: Option<ModeReport>) {
    let Some(now) = now.map(|now| (now.mode, now.state)) else { return };
    if now.1 == ModeState::Draining || *told == Some(now) {
        return;
    }
    let before = told.replace(now);
    let (mode, state) = now;
    match (state, mode) {
        (ModeState::GivenUp(error), _) => {
            told!(
                Warning,
                "mode",
                "dcd: the switch of the mode is given up, and it stays what it was: {error}"
            );
        }
        (ModeState::Failed, _) => told!(
            Error,
            "data-disk-failed",
            "dcd: the data-disk has failed while writes went past the log: writes and flushes fail \
             until a restart"
        ),
        (ModeState::Reached, Mode::PassThrough) => {
            told!(
                Notice,
                "mode",
                "dcd: writes go past the log: the cache-disk is not touched any more"
            );
        }
        (ModeState::Reached, Mode::WriteThrough) => {
            told!(
                Notice,
                "mode",
                "dcd: writes go past the log; copies of what is written and read are kept"
            );
        }
        (ModeState::Reached, Mode::WriteAround) => {
            told!(Notice, "mode", "dcd: writes go past the log; copies of what is read are kept");
        }
        (ModeState::Reached, Mode::WriteBack) if before.is_some() => {
            told!(Notice, "mode", "dcd: writes go to the log");
        }
        _ => {}
    }
}

struct Supervisor<'a, C> {
    event_loop: &'a mut EventLoop<C>,
    frontends: &'a mut dyn Frontends,
    manner: Manner,
    draining: Option<Draining>,
    stop: Option<Stop>,
    hold: Option<Hold>,
    /// What the last signal asked for, and when.
    signalled: Option<(StopKind, Instant)>,
}

impl<C: Core> Supervisor<'_, C> {
    /// The control socket wants the end.
    fn stop_asked(&mut self, kind: StopKind, terms: DetachTerms, completion: Completion) {
        match (&mut self.stop, &mut self.draining) {
            (Some(stop), _) if stop.kind == kind && !stop.cancelled => {
                stop.waiting.push(completion);
            }
            // Another end than the one under way.
            (Some(_), _) => completion.complete_with(Err(RequestError::ShuttingDown)),
            (None, Some(draining)) if kind == StopKind::Detach => {
                draining.terms = terms;
                draining.waiting.push(completion);
            }
            (None, _) if kind == StopKind::Detach => self.begin_drain(terms, completion),
            (None, _) => {
                self.end_drain();
                self.hold = None;
                self.begin_stop(kind, terms, vec![completion]);
            }
        }
    }

    /// Somebody has sent a signal. Whether to end at once.
    fn signal(&mut self, kind: StopKind) -> bool {
        let is_detaching = match &self.stop {
            Some(stop) => stop.kind == StopKind::Detach && !stop.cancelled,
            None => self.draining.is_some(),
        };
        // Who signals a process and its group means one signal (`timeout` does).
        if self.signalled.is_some_and(|(of, then)| of == kind && then.elapsed() < SIGNAL_ECHO) {
            return false;
        }
        self.signalled = Some((kind, Instant::now()));
        if self.stop.is_some() && !is_detaching {
            return true;
        }
        self.cancel_detach();
        if self.stop.is_some() {
            self.tell_stopping(is_detaching);
        } else if let Some(hold) = self.hold.take() {
            // Whoever asks again does not want to wait for users.
            self.stop_under(kind, hold.told);
        } else if self.may_have_users(kind) {
            self.hold = Some(Hold {
                kind,
                until: Instant::now() + self.manner.stop_timeout,
                told: Users::default(),
                looking: Some(self.look_for_users(kind)),
                look_at: Instant::now(),
                syncing: None,
            });
        } else {
            self.tell_stopping(is_detaching);
            self.begin_stop(kind, DetachTerms::default(), Vec::new());
        }
        false
    }

    /// On a thread of its own: the file may lie on a disk that is slow, and the loop is asked to
    /// take it over.
    fn read_settings(&self) {
        let submitter = self.event_loop.submitter();
        match self.manner.settings.clone() {
            None => eprintln!("dcd: SIGHUP: nothing to do: there are no settings to read again"),
            Some(settings) => drop(in_the_background(&submitter.clone(), move || {
                settings.read_again(&submitter);
            })),
        }
    }

    fn tell_stopping(&self, is_detaching: bool) {
        if !self.manner.quiet {
            let what = if is_detaching { "; the detach is cancelled" } else { "" };
            told!(Info, "stopping", "dcd: stopping{what}; a second signal stops at once");
        }
    }

    fn may_have_users(&self, kind: StopKind) -> bool {
        let purpose = purpose_of(kind);
        let has_clients = purpose != Purpose::Restart && self.event_loop.nbd_connections() > 0;
        !self.manner.stop_timeout.is_zero() && (has_clients || self.manner.users.must_look(purpose))
    }

    fn look_for_users(&self, kind: StopKind) -> mpsc::Receiver<Users> {
        let (users, submitter) = (self.manner.users.clone(), self.event_loop.submitter());
        in_the_background(&self.event_loop.submitter(), move || {
            users.find(purpose_of(kind), &submitter)
        })
    }

    /// Those who use it are named, and served until they have gone, or for long enough.
    fn look_at_hold(&mut self, notifier: &Notifier) {
        let Some(mut hold) = self.hold.take() else { return };
        if let Some((synced, until)) = &hold.syncing {
            let is_over = !matches!(synced.try_recv(), Err(mpsc::TryRecvError::Empty));
            if is_over || Instant::now() >= *until {
                return self.stop_under(hold.kind, hold.told);
            }
            self.hold = Some(hold);
            return;
        }
        match hold.looking.as_ref().map(mpsc::Receiver::try_recv) {
            Some(Err(mpsc::TryRecvError::Empty)) => {}
            None => {
                if Instant::now() >= hold.look_at {
                    hold.looking = Some(self.look_for_users(hold.kind));
                }
            }
            Some(found) => {
                let found = found.unwrap_or_default();
                if found.is_empty() {
                    self.tell_stopping(false);
                    return self.begin_stop(hold.kind, DetachTerms::default(), Vec::new());
                }
                if hold.told != found {
                    let left = hold.until.saturating_duration_since(Instant::now()).as_secs_f64();
                    eprintln!(
                        "dcd: in use: {}. They are served on until they have gone, for {left:.0} s at most: unmount and \
                         disconnect them. A second signal stops under them: what they have not written yet fails",
                        found.words()
                    );
                    notifier.status(&format!("waits for its users: {}", found.words()));
                    if hold.told.is_empty() {
                        // What they have written so far is safe, whatever comes next.
                        self.event_loop.request(Operation::Flush, Completion::new(|_| ()));
                        drop(self.sync(&found));
                    }
                    hold.told = found;
                }
                hold.looking = None;
                hold.look_at = Instant::now() + LOOK_INTERVAL;
            }
        }
        if Instant::now() >= hold.until && !hold.told.is_empty() {
            hold.syncing = Some((self.sync(&hold.told), Instant::now() + SYNC_PATIENCE));
        }
        self.hold = Some(hold);
    }

    fn sync(&self, found: &Users) -> mpsc::Receiver<()> {
        let found = found.clone();
        in_the_background(&self.event_loop.submitter(), move || users::sync(&found))
    }

    /// The end, although somebody uses it.
    fn stop_under(&mut self, kind: StopKind, users: Users) {
        if !users.is_empty() {
            eprintln!(
                "dcd: stopping under its users: {}. What was acknowledged is safe in the cache; what they had not written yet \
                 fails. A second signal stops at once",
                users.words()
            );
        }
        self.begin_stop(kind, DetachTerms::default(), Vec::new());
        if let Some(stop) = &mut self.stop {
            stop.under_users = !users.is_empty();
        }
    }

    fn begin_drain(&mut self, terms: DetachTerms, completion: Completion) {
        let submitter = self.event_loop.submitter();
        let ticket = submitter.new_ticket();
        let (completion_of_drain, answer) = answer_of(submitter);
        self.event_loop.drain(ticket, completion_of_drain);
        self.draining = Some(Draining { waiting: vec![completion], ticket, answer, terms });
    }

    /// Those who wait for a detach are told that there will be none.
    fn end_drain(&mut self) {
        let Some(draining) = self.draining.take() else { return };
        self.event_loop.cancel_drain(draining.ticket);
        for completion in draining.waiting {
            completion.complete_with(Err(RequestError::Cancelled));
        }
    }

    fn cancel_detach(&mut self) {
        self.end_drain();
        let Some(stop) = &mut self.stop else { return };
        if stop.kind == StopKind::Detach && !stop.cancelled {
            stop.cancelled = true;
            // A core that has not been told to end yet will be told to shut down.
            if stop.asked.is_some() {
                self.event_loop.request(Operation::CancelDetach, Completion::new(|_| ()));
            }
        }
    }

    /// Step 0 is done, or there is no detach: then serving goes on.
    fn look_at_drain(&mut self) {
        let Some(draining) = &self.draining else { return };
        let Ok(result) = draining.answer.try_recv() else { return };
        let is_accepted = self.event_loop.core().all_lost_is_within(&draining.terms.accepted);
        let Draining { waiting, terms, .. } = self.draining.take().expect("looked at");
        match result {
            Err(RequestError::Lost { .. }) if is_accepted => {}
            Ok(()) => {}
            Err(error) => {
                return waiting.into_iter().for_each(|one| one.complete_with(Err(error)));
            }
        }
        self.begin_stop(StopKind::Detach, terms, waiting);
    }

    /// Steps 1 and 2.
    fn begin_stop(&mut self, kind: StopKind, terms: DetachTerms, waiting: Vec<Completion>) {
        self.event_loop.stop_listening();
        self.frontends.begin_stop(kind);
        self.stop = Some(Stop {
            kind,
            terms,
            waiting,
            asked: None,
            past_the_log: false,
            cancelled: false,
            under_users: false,
        });
    }

    /// Steps 3 and 4.
    fn look_at_stop(&mut self) -> Option<Result<Outcome, ServeError>> {
        let stop = self.stop.as_mut()?;
        let Some((asked, answer)) = &stop.asked else {
            if self.frontends.have_stopped() {
                stop.past_the_log = is_past_the_log(self.event_loop);
                let kind = if stop.cancelled { StopKind::Shutdown } else { stop.kind };
                let accepted = std::mem::take(&mut stop.terms.accepted);
                stop.asked = Some((kind, ask_to_stop(self.event_loop, kind, accepted)));
            }
            return None;
        };
        let mut result = answer.try_recv().ok()?;
        if result.is_ok() && *asked != stop.kind {
            // Cancelled before the core was told to detach.
            result = Err(RequestError::Cancelled);
        }
        let stop = self.stop.take().expect("looked at");
        let past_the_log = stop.past_the_log;
        for completion in stop.waiting {
            completion.complete_with(result);
        }
        let (operation, outcome) = match stop.kind {
            StopKind::Shutdown | StopKind::Restart if stop.under_users => {
                ("shut down in order", Outcome::ShutDownUnderUsers)
            }
            StopKind::Shutdown | StopKind::Restart => ("shut down in order", Outcome::ShutDown),
            StopKind::Detach => ("detach", Outcome::Detached),
        };
        Some(match result {
            Ok(()) => Ok(outcome),
            Err(RequestError::Cancelled) => Ok(Outcome::ShutDown),
            Err(RequestError::Lost { lines }) => Err(ServeError::NotDetached { lines }),
            Err(RequestError::Stuck { lines, zero_lines }) => {
                let engine = self.event_loop.core().engine();
                let store = self.event_loop.store_report();
                let report = StuckReport::of(lines, zero_lines, engine, store.as_ref());
                Err(ServeError::Stuck { operation: "detached", report })
            }
            Err(source) => Err(ServeError::Stop { operation, source, past_the_log }),
        })
    }
}

fn purpose_of(kind: StopKind) -> Purpose {
    match kind {
        StopKind::Shutdown => Purpose::Stop,
        StopKind::Restart => Purpose::Restart,
        StopKind::Detach => Purpose::Detach,
    }
}

/// Does something on a thread of its own, which may need answers of the loop. It is not waited for
/// at the end.
fn in_the_background<T: Send + 'static>(
    submitter: &Submitter,
    work: impl FnOnce() -> T + Send + 'static,
) -> mpsc::Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    let submitter = submitter.clone();
    // Without a thread the channel ends at once: as if there were nobody.
    let _ = std::thread::Builder::new().name("dcd-users".into()).spawn(move || {
        let _ = sender.send(work());
        submitter.wake();
    });
    receiver
}

/// A completion that sends the answer and wakes the loop: the answer may be there before the next
/// turn, so the loop must not go to sleep on it.
fn answer_of(submitter: Submitter) -> (Completion, Answer) {
    let (sender, receiver) = mpsc::channel();
    let completion = Completion::new(move |reply| {
        let _ = sender.send(reply.result);
        submitter.wake();
    });
    (completion, receiver)
}

/// Tells the core to end.
fn ask_to_stop<C: Core>(
    event_loop: &mut EventLoop<C>,
    kind: StopKind,
    accepted: Vec<LbaRange>,
) -> Answer {
    let operation = match kind {
        StopKind::Shutdown | StopKind::Restart => Operation::Shutdown,
        StopKind::Detach if accepted.is_empty() => Operation::Detach,
        StopKind::Detach => Operation::DetachAccepting { lost: accepted },
    };
    let (completion, answer) = answer_of(event_loop.submitter());
    event_loop.request(operation, completion);
    answer
}

/// Whether changes go past the log, or did until the data-disk failed: what no flush has covered is
/// nowhere else. To be asked before the end, for which the log is used again.
fn is_past_the_log<C: Core>(event_loop: &EventLoop<C>) -> bool {
    let mode = event_loop.core().engine().map(Engine::mode);
    mode.is_some_and(|it| it.mode != Mode::WriteBack || it.state == ModeState::Failed)
}

/// Ends in order, at once.
pub(crate) fn shut_down_now<C: Core>(event_loop: &mut EventLoop<C>) -> Result<(), ServeError> {
    let past_the_log = is_past_the_log(event_loop);
    let answer = ask_to_stop(event_loop, StopKind::Shutdown, Vec::new());
    loop {
        event_loop.turn(None).map_err(ServeError::system("wait for the disks"))?;
        if let Ok(result) = answer.try_recv() {
            let operation = "shut down in order";
            return result.map_err(|source| ServeError::Stop { operation, source, past_the_log });
        }
    }
}
