//! Who may change which blocks: claims of ranges, granted in order of arrival.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dcd_engine::units::LbaRange;

/// What a change wants: these blocks, together with others or alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) range: LbaRange,
    pub(super) exclusive: bool,
}

impl Claim {
    fn conflicts(self, other: Claim) -> bool {
        (self.exclusive || other.exclusive) && self.range.overlaps(other.range)
    }
}

/// The changes under way and those that wait for them, in order of arrival.
#[derive(Default)]
pub(super) struct RangeLocks {
    state: Mutex<LockState>,
}

#[derive(Default)]
struct LockState {
    next_ticket: u64,
    held: BTreeMap<u64, Claim>,
    waiting: VecDeque<Waiting>,
    /// Exclusive claims among both; while there are none, nobody has to wait or to search.
    exclusive_count: usize,
}

struct Waiting {
    ticket: u64,
    claim: Claim,
    start: Box<dyn FnOnce(Held) + Send>,
}

/// A claim that has been granted; dropping it gives it back, also when the completion that owns it
/// is dropped uncalled because the event loop has gone.
pub(super) struct Held {
    locks: Arc<RangeLocks>,
    ticket: u64,
}

impl RangeLocks {
    fn lock(&self) -> MutexGuard<'_, LockState> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `start` once the claim is granted: now, or when an earlier one is given back.
    pub(super) fn claim(self: &Arc<Self>, claim: Claim, start: Box<dyn FnOnce(Held) + Send>) {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.exclusive_count += usize::from(claim.exclusive);
        // Waiting ones count as well: who came first goes first, so nobody waits for ever.
        let blocked = state.exclusive_count > 0
            && (state.held.values().any(|held| claim.conflicts(*held))
                || state.waiting.iter().any(|earlier| claim.conflicts(earlier.claim)));
        if blocked {
            state.waiting.push_back(Waiting { ticket, claim, start });
        } else {
            state.held.insert(ticket, claim);
            drop(state);
            start(Held { locks: self.clone(), ticket });
        }
    }
}

impl LockState {
    /// Moves those whose turn has come from the waiting to the held.
    fn grant(&mut self) -> Vec<Waiting> {
        let mut granted = Vec::new();
        let mut still_waiting = VecDeque::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let blocked = self.held.values().any(|held| waiting.claim.conflicts(*held))
                || still_waiting
                    .iter()
                    .any(|earlier: &Waiting| waiting.claim.conflicts(earlier.claim));
            if blocked {
                still_waiting.push_back(waiting);
            } else {
                self.held.insert(waiting.ticket, waiting.claim);
                granted.push(waiting);
            }
        }
        self.waiting = still_waiting;
        granted
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let granted = {
            let mut state = self.locks.lock();
            if let Some(claim) = state.held.remove(&self.ticket) {
                state.exclusive_count -= usize::from(claim.exclusive);
            }
            if state.waiting.is_empty() { Vec::new() } else { state.grant() }
        };
        for waiting in granted {
            (waiting.start)(Held { locks: self.locks.clone(), ticket: waiting.ticket });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the claims in the order in which they are granted; `Held` are kept by name.
    type Granted = Arc<Mutex<Vec<(u32, Held)>>>;

    fn claim(locks: &Arc<RangeLocks>, granted: &Granted, name: u32, start: u64, exclusive: bool) {
        let granted = granted.clone();
        let claim = Claim { range: LbaRange::new(start, 2), exclusive };
        locks.claim(claim, Box::new(move |held| granted.lock().unwrap().push((name, held))));
    }

    fn give_back(granted: &Granted, name: u32) {
        let mut list = granted.lock().unwrap();
        let index = list.iter().position(|(n, _)| *n == name).expect("it was granted");
        let (_, held) = list.remove(index);
        drop(list); // the next one puts itself on the list
        drop(held);
    }

    fn names(granted: &Granted) -> Vec<u32> {
        granted.lock().unwrap().iter().map(|(name, _)| *name).collect()
    }

    //  block:    0 1 2 3 4
    //  1 shared  1 1
    //  2 shared  2 2              with 1
    //  3 alone     3 3            after 1 and 2
    //  4 shared      4 4          after 3, though neither 1 nor 2 is in its way
    //  5 alone           5 5 ..   at once
    #[test]
    fn claims_are_granted_in_order() {
        let locks = Arc::<RangeLocks>::default();
        let granted = Granted::default();
        claim(&locks, &granted, 1, 0, false);
        claim(&locks, &granted, 2, 0, false);
        claim(&locks, &granted, 3, 1, true);
        claim(&locks, &granted, 4, 2, false);
        claim(&locks, &granted, 5, 4, true);
        assert_eq!(names(&granted), [1, 2, 5]);
        give_back(&granted, 1);
        assert_eq!(names(&granted), [2, 5]);
        give_back(&granted, 2);
        assert_eq!(names(&granted), [5, 3]);
        give_back(&granted, 3);
        assert_eq!(names(&granted), [5, 4]);
        give_back(&granted, 4);
        give_back(&granted, 5);
        let state = locks.lock();
        assert!(state.held.is_empty() && state.waiting.is_empty());
        assert_eq!(state.exclusive_count, 0);
    }
}
