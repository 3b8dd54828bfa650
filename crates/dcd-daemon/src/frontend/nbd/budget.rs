//! What all connections of a server together may have in flight, so that many clients cannot take what one may not.
//!
//! A connection that has nothing in flight may always begin a small request: whoever fills the budget slows the
//! others down, and stops nobody.

use std::cell::Cell;
use std::rc::Rc;

/// Most bytes of reads and writes in flight on all connections.
pub const BYTES_TOTAL_MAX: usize = 256 << 20;
/// Most requests in flight on all connections.
pub const REQUESTS_TOTAL_MAX: usize = 4096;
/// A request of so many bytes may begin although the budget is used up, if it is the only one of its connection.
const BYTES_ALWAYS: usize = 32 << 10;

/// See the module.
#[derive(Clone, Default)]
pub struct Budget(Rc<Counts>);

#[derive(Default)]
struct Counts {
    bytes: Cell<usize>,
    requests: Cell<usize>,
    /// Somebody waits for room.
    is_wanted: Cell<bool>,
    /// Some room was given back since.
    is_released: Cell<bool>,
}

impl Budget {
    /// One of which nothing is used.
    pub fn new() -> Budget {
        Budget::default()
    }

    /// Whether there may be room for connections that wait; asking forgets it.
    pub fn take_released(&self) -> bool {
        let is_released = self.0.is_released.replace(false);
        if is_released {
            self.0.is_wanted.set(false);
        }
        is_released
    }

    /// Bytes of all connections.
    pub fn bytes(&self) -> usize {
        self.0.bytes.get()
    }

    /// The part of a new connection.
    pub(super) fn share(&self) -> Share {
        Share { counts: self.0.clone(), bytes: 0, requests: 0 }
    }
}

/// What one connection has in flight. What it still has when it is dropped is given back.
pub(super) struct Share {
    counts: Rc<Counts>,
    bytes: usize,
    requests: usize,
}

impl Share {
    /// Bytes of this connection.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a request of so many bytes may begin; if not, it is known that somebody waits.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let fits = self.counts.bytes.get() + bytes <= BYTES_TOTAL_MAX
            && self.counts.requests.get() < REQUESTS_TOTAL_MAX;
        let is_only_one = self.requests == 0 && self.bytes == 0 && bytes <= BYTES_ALWAYS;
        if !fits && !is_only_one {
            self.counts.is_wanted.set(true);
        }
        fits || is_only_one
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.counts.bytes.set(self.counts.bytes.get() + bytes);
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.counts.bytes.set(self.counts.bytes.get() - bytes);
        self.released();
    }

    pub(super) fn begin_request(&mut self) {
        self.requests += 1;
        self.counts.requests.set(self.counts.requests.get() + 1);
    }

    pub(super) fn end_request(&mut self) {
        self.requests -= 1;
        self.counts.requests.set(self.counts.requests.get() - 1);
        self.released();
    }

    fn released(&self) {
        if self.counts.is_wanted.get() {
            self.counts.is_released.set(true);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.counts.bytes.set(self.counts.bytes.get() - self.bytes);
        self.counts.requests.set(self.counts.requests.get() - self.requests);
        self.released();
    }
}
