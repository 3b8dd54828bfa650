//! What all clients of the control socket share.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

use crate::control::sequences::RangesBudget;
use crate::control::settings::SharedSettings;
use crate::event_loop::submitter::{DrainTicket, Submitter};
use crate::report::status_report::{DaemonFacts, StatusReport};

/// What the threads share.
pub(super) struct Shared {
    pub(super) submitter: Submitter,
    pub(super) facts: Arc<DaemonFacts>,
    /// What may be set while it serves.
    pub(super) settings: Option<SharedSettings>,
    pub(super) clients: AtomicUsize,
    /// For sequences that are being sent.
    pub(super) ranges: RangesBudget,
    pub(super) under_way: Mutex<UnderWay>,
    /// Held by whoever changes the size of the log: room that is taken for it is given back, too.
    pub(super) resizing: Mutex<()>,
}

/// What may be cancelled.
#[derive(Default)]
pub(super) struct UnderWay {
    pub(super) drains: Vec<DrainTicket>,
    /// First parts of detaches.
    pub(super) detaching: Vec<DrainTicket>,
    /// Detaches that wait until nobody uses the disk.
    pub(super) waiting: usize,
    /// How often those were cancelled.
    pub(super) waits_cancelled: u64,
    /// Clients that wait for a detach.
    pub(super) detaches: usize,
}

impl Shared {
    /// The picture of this moment, if the cache runs.
    pub(super) fn report(&self) -> Option<StatusReport> {
        let facts = self.facts.clone();
        self.submitter.ask(move |snapshot| StatusReport::of(&facts, snapshot)).flatten()
    }

    /// Each change, and what it asks of the loop, is one step: the loop hears of them in order.
    pub(super) fn under_way(&self) -> std::sync::MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
