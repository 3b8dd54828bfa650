//! What all connections of a server together may have in flight, so that many clients cannot take
//! what one may not.
//!
//! A connection may always have a little in flight: whoever fills the budget slows down others with
//! much to do, and stops nobody. Beyond that, while somebody waits for room, everybody does: the
//! driver lets them in, in turn. Or those who have much in flight would take what they give back at
//! once, and who waits would wait for ever.

use std::cell::Cell;
use std::rc::Rc;

/// Most bytes of reads and writes in flight on all connections.
pub const BYTES_TOTAL_MAX: usize = 256 << 20;
/// Most requests in flight on all connections.
pub const REQUESTS_TOTAL_MAX: usize = 4096;
/// So many bytes and requests a connection may have although the budget is used up: 32 requests of
/// 4 KiB, and some.
const BYTES_ALWAYS: usize = 256 << 10;
const REQUESTS_ALWAYS: usize = 32;

/// See the module.
#[derive(Clone, Default)]
pub struct Budget(Rc<Counts>);

#[derive(Default)]
struct Counts {
    bytes: Cell<usize>,
    requests: Cell<usize>,
    /// Somebody waits for room; who comes now waits behind them.
    is_wanted: Cell<bool>,
    /// Some room was given back since.
    is_released: Cell<bool>,
}

impl Budget {
    /// One of which nothing is used.
    pub fn new() -> Budget {
        Budget::default()
    }

    /// Whether there may be room for connections that wait, until [`Budget::take_released`].
    pub fn is_released(&self) -> bool {
        self.0.is_released.get()
    }

    /// The same; asking forgets it.
    pub fn take_released(&self) -> bool {
        self.0.is_released.replace(false)
    }

    /// Whether there is room for a request of so many bytes, whoever waits.
    pub fn fits(&self, bytes: usize) -> bool {
        self.0.bytes.get() + bytes <= BYTES_TOTAL_MAX && self.0.requests.get() < REQUESTS_TOTAL_MAX
    }

    /// Whether somebody waits whose turn has not come; for the one whose turn it is nobody does.
    pub fn set_wanted(&self, is_wanted: bool) {
        self.0.is_wanted.set(is_wanted);
    }

    /// Bytes of all connections.
    pub fn bytes(&self) -> usize {
        self.0.bytes.get()
    }

    /// The part of a new connection.
    pub(super) fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0, requests: 0 }
    }
}

/// What one connection has in flight. What it still has when it is dropped is given back.
pub(super) struct Share {
    budget: Budget,
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
        let fits = self.budget.fits(bytes) && !self.budget.0.is_wanted.get();
        let is_little = self.requests < REQUESTS_ALWAYS && self.bytes + bytes <= BYTES_ALWAYS;
        if !fits && !is_little {
            self.budget.set_wanted(true);
        }
        fits || is_little
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.budget.0.bytes.set(self.budget.0.bytes.get() + bytes);
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.budget.0.bytes.set(self.budget.0.bytes.get() - bytes);
        self.released();
    }

    pub(super) fn begin_request(&mut self) {
        self.requests += 1;
        self.budget.0.requests.set(self.budget.0.requests.get() + 1);
    }

    pub(super) fn end_request(&mut self) {
        self.requests -= 1;
        self.budget.0.requests.set(self.budget.0.requests.get() - 1);
        self.released();
    }

    fn released(&self) {
        if self.budget.0.is_wanted.get() {
            self.budget.0.is_released.set(true);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.bytes.set(self.budget.0.bytes.get() - self.bytes);
        self.budget.0.requests.set(self.budget.0.requests.get() - self.requests);
        self.released();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_everything_stops_nobody() {
        let budget = Budget::new();
        let (mut greedy, mut modest) = (budget.share(), budget.share());
        greedy.begin_request();
        greedy.take(BYTES_TOTAL_MAX);
        assert!(!greedy.has_room(1));
        assert!(modest.has_room(BYTES_ALWAYS) && !modest.has_room(BYTES_ALWAYS + 1));
        modest.begin_request();
        modest.take(512);
        assert!(modest.has_room(4096) && !modest.has_room(BYTES_ALWAYS), "a little, in all");
        assert!(!budget.take_released(), "nothing was given back");
        greedy.give_back(2 * BYTES_ALWAYS);
        assert!(budget.is_released() && budget.take_released() && !budget.take_released());
        assert!(
            budget.fits(BYTES_ALWAYS) && !modest.has_room(BYTES_ALWAYS),
            "who waits goes first"
        );
        budget.set_wanted(false);
        assert!(modest.has_room(BYTES_ALWAYS));
    }

    #[test]
    fn requests_are_counted_too_and_given_back_by_who_goes() {
        let budget = Budget::new();
        let mut many = budget.share();
        (0..REQUESTS_TOTAL_MAX).for_each(|_| many.begin_request());
        many.take(100);
        let mut other = budget.share();
        assert!(other.has_room(0));
        (0..REQUESTS_ALWAYS).for_each(|_| other.begin_request());
        assert!(!other.has_room(0));
        drop(many);
        assert!(budget.take_released() && !other.has_room(0));
        budget.set_wanted(false);
        assert!(other.has_room(0));
        assert_eq!(budget.bytes(), 0);
    }
}
