//! Running a loop until somebody wants it to end, and ending it in order.
//!
//! ```text
//! stop asked (signal, control socket)
//!   1. take no new NBD clients
//!   2. frontends with threads stop (loop device, FUSE): their last writes still come in
//!   3. the core is told to shut down or to detach
//!   4. its answer is the end
//! ```
//!
//! Whoever asks again by signal does not want to wait: the loop is left at once. That is a crash as
//! far as the disks are concerned, and as safe as one.

use std::sync::mpsc;

use dcd_engine::{Operation, RequestError};

use crate::core::Core;
use crate::event_loop::EventLoop;
use crate::serve_error::ServeError;
use crate::submitter::{Completion, StopKind};

/// How a daemon ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// In order; dirty data may be in the cache.
    ShutDown,
    /// The data-disk stands on its own.
    Detached,
    /// At once, because of a second signal; as after a crash.
    Aborted,
    /// Stopped before the cache was open. Nothing was changed.
    StoppedWhileOpening,
}

/// Frontends with threads of their own, as the supervisor needs them.
pub(crate) trait Frontends {
    /// Told at each turn that something may have changed.
    fn turn(&mut self) -> Result<(), ServeError>;
    /// Begin to stop; may take a while, and may need the loop meanwhile.
    fn begin_stop(&mut self);
    /// Whether all have stopped.
    fn have_stopped(&mut self) -> bool;
}

/// No frontends with threads.
pub(crate) struct NoFrontends;

impl Frontends for NoFrontends {
    fn turn(&mut self) -> Result<(), ServeError> {
        Ok(())
    }
    fn begin_stop(&mut self) {}
    fn have_stopped(&mut self) -> bool {
        true
    }
}

struct Stop {
    kind: StopKind,
    waiting: Vec<Completion>,
    answer: Option<mpsc::Receiver<Result<(), RequestError>>>,
}

/// Turns the loop until it has ended in order, or has failed.
pub(crate) fn run_until_stopped<C: Core>(
    event_loop: &mut EventLoop<C>,
    frontends: &mut dyn Frontends,
    quiet: bool,
) -> Result<Outcome, ServeError> {
    let mut stop: Option<Stop> = None;
    loop {
        event_loop.turn(None).map_err(ServeError::system("wait for the disks"))?;
        if let Err(error) = frontends.turn()
            && stop.is_none()
        {
            // Nothing may be left half open: end in order, then tell why.
            frontends.begin_stop();
            shut_down_now(event_loop)?;
            return Err(error);
        }
        while let Some(request) = event_loop.take_stop_request() {
            match &mut stop {
                None => {
                    if !quiet && request.completion.is_none() {
                        eprintln!("dcd: stopping; a second signal stops at once");
                    }
                    event_loop.stop_listening();
                    frontends.begin_stop();
                    stop = Some(Stop {
                        kind: request.kind,
                        waiting: request.completion.into_iter().collect(),
                        answer: None,
                    });
                }
                Some(stop) => match request.completion {
                    None => return Ok(Outcome::Aborted),
                    Some(completion) if request.kind == stop.kind => stop.waiting.push(completion),
                    // Another end than the one under way.
                    Some(completion) => completion.complete_with(Err(RequestError::ShuttingDown)),
                },
            }
        }
        let Some(stop) = &mut stop else { continue };
        let Some(answer) = &stop.answer else {
            if frontends.have_stopped() {
                stop.answer = Some(ask_to_stop(event_loop, stop.kind));
            }
            continue;
        };
        if let Ok(result) = answer.try_recv() {
            for completion in stop.waiting.drain(..) {
                completion.complete_with(result);
            }
            let (operation, outcome) = match stop.kind {
                StopKind::Shutdown => ("shut down in order", Outcome::ShutDown),
                StopKind::Detach => ("detach", Outcome::Detached),
            };
            return match result {
                Ok(()) => Ok(outcome),
                Err(source) => Err(ServeError::Stop { operation, source }),
            };
        }
    }
}

/// Tells the core to end.
fn ask_to_stop<C: Core>(
    event_loop: &mut EventLoop<C>,
    kind: StopKind,
) -> mpsc::Receiver<Result<(), RequestError>> {
    let (sender, receiver) = mpsc::channel();
    let operation = match kind {
        StopKind::Shutdown => Operation::Shutdown,
        StopKind::Detach => Operation::Detach,
    };
    // The answer may be there before the next turn, so the loop must not go to sleep on it.
    let wake = event_loop.submitter();
    let completion = Completion::new(move |reply| {
        let _ = sender.send(reply.result);
        wake.wake();
    });
    event_loop.request(operation, completion);
    receiver
}

fn shut_down_now<C: Core>(event_loop: &mut EventLoop<C>) -> Result<(), ServeError> {
    let answer = ask_to_stop(event_loop, StopKind::Shutdown);
    loop {
        event_loop.turn(None).map_err(ServeError::system("wait for the disks"))?;
        if let Ok(result) = answer.try_recv() {
            let operation = "shut down in order";
            return result.map_err(|source| ServeError::Stop { operation, source });
        }
    }
}
