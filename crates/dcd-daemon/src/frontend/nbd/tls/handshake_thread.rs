//! The thread that computes TLS handshakes, so that the loop does not.
//!
//! A step of a handshake takes up to milliseconds of a processor (signatures), and anybody who can
//! connect may ask for one. There is one thread, less urgent than the loop, that takes one step
//! after the other, of each address in turn; each connection has at most one under way, and those
//! of connections that have gone are not computed. So a flood of handshakes costs the good clients
//! nothing but the wait for their own, and a flood of one address not much of that.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::frontend::nbd::places::Origin;
use crate::frontend::nbd::server::ClientKey;
use crate::frontend::nbd::tls::files::TlsIdentity;
use crate::frontend::nbd::tls::{HandshakeStep, TlsAccess};

/// How much less urgent it is than the loop; see nice(2).
const NICE: i32 = 10;

/// See the module.
pub struct HandshakeThread {
    /// What it begins with, until it is started.
    waiting: Cell<Option<TlsIdentity>>,
    access: Arc<TlsAccess>,
    quiet: bool,
    queue: Arc<Queue>,
    done: Arc<Done>,
}

/// A step, and whose it is.
type Step = (ClientKey, HandshakeStep);

impl Drop for HandshakeThread {
    fn drop(&mut self) {
        self.queue.lanes().is_closed = true;
        self.queue.bell.notify_one();
    }
}

/// Steps that wait for the thread.
#[derive(Default)]
struct Queue {
    lanes: Mutex<Lanes<Step>>,
    bell: Condvar,
}

impl Queue {
    fn lanes(&self) -> MutexGuard<'_, Lanes<Step>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next step; none at the end.
    fn next(&self) -> Option<Step> {
        let mut lanes = self.lanes();
        loop {
            if lanes.is_closed {
                return None;
            }
            if let Some(step) = lanes.pop() {
                return Some(step);
            }
            lanes = self.bell.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What waits, by where it comes from: the lanes take turns.
struct Lanes<T> {
    lanes: VecDeque<(Origin, VecDeque<T>)>,
    is_closed: bool,
}

impl<T> Default for Lanes<T> {
    fn default() -> Lanes<T> {
        Lanes { lanes: VecDeque::new(), is_closed: false }
    }
}

impl<T> Lanes<T> {
    fn push(&mut self, origin: Origin, item: T) {
        match self.lanes.iter_mut().find(|(known, _)| *known == origin) {
            Some((_, lane)) => lane.push_back(item),
            None => self.lanes.push_back((origin, [item].into())),
        }
    }

    fn pop(&mut self) -> Option<T> {
        let (origin, mut lane) = self.lanes.pop_front()?;
        let item = lane.pop_front();
        if !lane.is_empty() {
            self.lanes.push_back((origin, lane));
        }
        item
    }
}

impl Lanes<Step> {
    fn forget(&mut self, origin: Origin, client: ClientKey) {
        if let Some((_, lane)) = self.lanes.iter_mut().find(|(known, _)| *known == origin) {
            lane.retain(|(known, _)| *known != client);
        }
        self.lanes.retain(|(_, lane)| !lane.is_empty());
    }
}

/// Steps that were computed, and a bell for them.
struct Done {
    steps: Mutex<Vec<Step>>,
    event: OwnedFd,
}

impl HandshakeThread {
    /// Without a thread yet: what is to be computed waits for it.
    pub fn new(identity: TlsIdentity, quiet: bool) -> io::Result<HandshakeThread> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let done = Arc::new(Done { steps: Mutex::new(Vec::new()), event });
        let access = identity.access().clone();
        let waiting = Cell::new(Some(identity));
        Ok(HandshakeThread { waiting, access, quiet, queue: Arc::default(), done })
    }

    /// Starts the thread, with what the calling one may do. It ends when this is dropped.
    pub fn start(&self) -> io::Result<()> {
        let Some(identity) = self.waiting.take() else { return Ok(()) };
        let (queue, done, quiet) = (self.queue.clone(), self.done.clone(), self.quiet);
        std::thread::Builder::new()
            .name("dcd-handshakes".into())
            .spawn(move || run(identity, &queue, &done, quiet))
            .map(drop)
    }

    /// Has a step computed.
    pub(crate) fn compute(&self, client: ClientKey, origin: Origin, step: HandshakeStep) {
        // If the thread has died, handshakes end by their time-out.
        self.queue.lanes().push(origin, (client, step));
        self.queue.bell.notify_one();
    }

    /// This client has gone: what waits for it is not computed.
    pub(crate) fn forget(&self, client: ClientKey, origin: Origin) {
        self.queue.lanes().forget(origin, client);
    }

    /// Whose certificates may do what.
    pub(crate) fn access(&self) -> &Arc<TlsAccess> {
        &self.access
    }

    /// What to wait for.
    pub(crate) fn event(&self) -> HandshakeEvent {
        HandshakeEvent(self.done.clone())
    }

    /// Steps that were computed since.
    pub(crate) fn take_done(&self) -> Vec<Step> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.done.event, &mut count);
        std::mem::take(&mut *self.done.steps.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Readable when steps were computed.
pub(crate) struct HandshakeEvent(Arc<Done>);

impl AsFd for HandshakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

fn run(mut identity: TlsIdentity, queue: &Queue, done: &Done, quiet: bool) {
    // On Linux it is of the thread. Without it handshakes share the processor evenly with the loop.
    let _ = rustix::process::nice(NICE);
    while let Some((client, mut step)) = queue.next() {
        let config = identity.current(|result| match result {
            Ok(()) if quiet => {}
            Ok(()) => eprintln!("dcd: the certificates have changed and were read again"),
            Err(error) => {
                eprintln!("dcd: the certificates have changed; those before stay in use: {error}");
                if let Some(hint) = error.hint() {
                    eprintln!("dcd: hint: {hint}");
                }
            }
        });
        // A mistake here or below ends this handshake, by its time-out, and no other.
        let run = std::panic::AssertUnwindSafe(|| step.run(config));
        if std::panic::catch_unwind(run).is_err() {
            continue;
        }
        done.steps.lock().unwrap_or_else(PoisonError::into_inner).push((client, step));
        let _ = rustix::io::write(&done.event, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_take_turns() {
        let mut lanes = Lanes::default();
        let (crowd, alone) = (Origin::Network(1), Origin::Network(2));
        (0..4).for_each(|number| lanes.push(crowd, number));
        lanes.push(alone, 10);
        lanes.push(crowd, 4);
        lanes.push(alone, 11);
        let order: Vec<i32> = std::iter::from_fn(|| lanes.pop()).collect();
        assert_eq!(order, [0, 10, 1, 11, 2, 3, 4]);
    }
}
