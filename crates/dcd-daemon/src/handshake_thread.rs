//! The thread that computes TLS handshakes, so that the loop does not.
//!
//! A step of a handshake takes up to milliseconds of a processor (signatures), and anybody who can connect may ask for
//! one. There is one thread, less urgent than the loop, that takes one step after the other in the order they come; each
//! connection has at most one under way, and so many connections as there may be. So a flood of handshakes costs the
//! good clients nothing but the wait for their own handshake.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::frontend::nbd::tls::HandshakeStep;
use crate::nbd_server::ClientKey;
use crate::tls_files::TlsIdentity;

/// How much less urgent it is than the loop; see nice(2).
const NICE: i32 = 10;

/// See the module.
pub struct HandshakeThread {
    /// What it begins with, until it is started.
    waiting: Cell<Option<(TlsIdentity, Receiver<Step>)>>,
    quiet: bool,
    steps: Sender<Step>,
    done: Arc<Done>,
}

/// A step, and whose it is.
type Step = (ClientKey, HandshakeStep);

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
        let (steps, queue) = mpsc::channel();
        let waiting = Cell::new(Some((identity, queue)));
        Ok(HandshakeThread { waiting, quiet, steps, done })
    }

    /// Starts the thread, with what the calling one may do. It ends when this is dropped.
    pub fn start(&self) -> io::Result<()> {
        let Some((identity, queue)) = self.waiting.take() else { return Ok(()) };
        let (done, quiet) = (self.done.clone(), self.quiet);
        std::thread::Builder::new()
            .name("dcd-handshakes".into())
            .spawn(move || run(identity, &queue, &done, quiet))
            .map(drop)
    }

    /// Has a step computed.
    pub(crate) fn compute(&self, client: ClientKey, step: HandshakeStep) {
        // The thread ends only after this; if it has died, handshakes end by their time-out.
        let _ = self.steps.send((client, step));
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

fn run(mut identity: TlsIdentity, queue: &Receiver<Step>, done: &Done, quiet: bool) {
    // On Linux it is of the thread. Without it handshakes share the processor evenly with the loop.
    let _ = rustix::process::nice(NICE);
    while let Ok((client, mut step)) = queue.recv() {
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
