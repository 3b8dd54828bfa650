//! Which pointers between blocks have come and gone, and what the device has still to be told.
//!
//! The device is told of a new pointer when the transaction that makes it is durable, and of one
//! that is gone when no image in the journal is needed any more: what is freed may be used again at
//! once, and an old image must not come back over it.
//!
//! The device has room for so many pointers. A change that makes some *reserves* them before
//! anything is changed, so nothing that is told, now or by a replay, finds that there is no room:
//! what the device has when all creates are told that are not told yet, before anything is deleted,
//! is never more than its room. A part is kept for changes that end in fewer pointers, and need
//! some on the way.

use std::collections::{BTreeMap, BTreeSet};

use dcd_client::{PointerChange, PointerVerb};

/// What is kept for changes that end in fewer pointers: a 64th of the room, between these.
const KEPT_MIN: u64 = 16;
/// See [`KEPT_MIN`].
const KEPT_MAX: u64 = 1024;

/// Of so many pointers, those that are kept for removing files.
pub(crate) fn kept(pointers_max: u64) -> u64 {
    (pointers_max / 64).clamp(KEPT_MIN, KEPT_MAX)
}

/// What a change wants pointers for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// There will be more.
    More,
    /// Something is removed in the end: it may use what is kept for that.
    ToRemove,
}

/// Changes of pointers.
#[derive(Default)]
pub(crate) struct Pointers {
    /// Of the transaction that is being collected: what differs from before it.
    running: BTreeMap<(u64, u64), PointerVerb>,
    /// How many of them are new.
    running_creates: u64,
    /// The same of a transaction on its way to the journal.
    frozen_creates: u64,
    /// Gone by transactions that are durable; the device still has them.
    to_delete: BTreeSet<(u64, u64)>,
    /// What the device has, or more: what goes with a block that it frees is seen when it is asked.
    told: u64,
    /// So many it has room for.
    max: u64,
}

impl Pointers {
    /// The device says what it has, while nothing is being told.
    pub(crate) fn measured(&mut self, pointers: u64, max: u64) {
        (self.told, self.max) = (pointers, max);
    }

    /// The device has room for so many.
    pub(crate) fn limit(&mut self, max: u64) {
        self.max = max;
    }

    /// How many can be made before something has to go.
    pub(crate) fn room(&self, need: Need) -> u64 {
        let kept = if need == Need::More { kept(self.max) } else { 0 };
        let spoken_for = self.told + self.frozen_creates + self.running_creates + kept;
        self.max.saturating_sub(spoken_for)
    }

    /// Whether there may be more room when all that is gone is told.
    pub(crate) fn may_become_fewer(&self) -> bool {
        let is_delete = |verb: &PointerVerb| *verb == PointerVerb::Delete;
        !self.to_delete.is_empty() || self.running.values().any(is_delete)
    }

    /// `from` points to `to` from now on.
    pub(crate) fn create(&mut self, from: u64, to: u64) {
        match self.running.remove(&(from, to)) {
            Some(PointerVerb::Delete) => {}
            Some(PointerVerb::Create) => {
                self.running.insert((from, to), PointerVerb::Create);
            }
            None => {
                self.running.insert((from, to), PointerVerb::Create);
                self.running_creates += 1;
            }
        }
    }

    /// `from` does not point to `to` any more.
    pub(crate) fn delete(&mut self, from: u64, to: u64) {
        match self.running.remove(&(from, to)) {
            Some(PointerVerb::Create) => self.running_creates -= 1,
            Some(PointerVerb::Delete) | None => {
                self.running.insert((from, to), PointerVerb::Delete);
            }
        }
    }

    /// What the running transaction lets a block point to newly; it is forgotten.
    pub(crate) fn take_created_from(&mut self, from: u64) -> Vec<u64> {
        let range = self.running.range((from, 0)..=(from, u64::MAX));
        let created: Vec<u64> = range
            .filter(|(_, verb)| **verb == PointerVerb::Create)
            .map(|((_, to), _)| *to)
            .collect();
        for to in &created {
            self.running.remove(&(from, *to));
        }
        self.running_creates -= created.len() as u64;
        created
    }

    /// How many changes there are in the running transaction.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// The changes of the running transaction, which goes to the journal; another one begins.
    pub(crate) fn freeze(&mut self) -> Vec<PointerChange> {
        self.frozen_creates = std::mem::take(&mut self.running_creates);
        let changes = std::mem::take(&mut self.running).into_iter();
        changes.map(|((from, to), verb)| PointerChange { verb, from, to }).collect()
    }

    /// A transaction with these is durable: what the device has to be told now.
    pub(crate) fn commit(&mut self, changes: Vec<PointerChange>) -> Vec<PointerChange> {
        let mut creates = Vec::new();
        for change in changes {
            let pointer = (change.from, change.to);
            match change.verb {
                // The device has it still, if it has not been told yet that it was gone.
                PointerVerb::Create if self.to_delete.remove(&pointer) => {}
                PointerVerb::Create => creates.push(change),
                PointerVerb::Delete => {
                    self.to_delete.insert(pointer);
                }
            }
        }
        // Also those that are about to be told.
        self.told += creates.len() as u64;
        self.frozen_creates = 0;
        creates
    }

    /// How many pointers the device has to forget.
    pub(crate) fn to_delete(&self) -> usize {
        self.to_delete.len()
    }

    /// What it has to forget; to be told when no image is needed any more.
    pub(crate) fn take_deletes(&mut self) -> Vec<PointerChange> {
        let deletes = std::mem::take(&mut self.to_delete).into_iter();
        deletes.map(|(from, to)| PointerChange::delete(from, to)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(pointers: &mut Pointers) -> Vec<PointerChange> {
        let frozen = pointers.freeze();
        pointers.commit(frozen)
    }

    #[test]
    fn what_comes_and_goes_is_nothing() {
        let mut pointers = Pointers::default();
        pointers.create(1, 2);
        pointers.delete(1, 2);
        assert_eq!(commit(&mut pointers), []);
        pointers.delete(1, 2);
        pointers.create(1, 2);
        assert_eq!(commit(&mut pointers), []);
        assert_eq!(pointers.take_deletes(), []);
    }

    #[test]
    fn what_comes_back_before_the_device_knows_stays() {
        let mut pointers = Pointers::default();
        pointers.delete(1, 2);
        pointers.delete(1, 3);
        assert_eq!(commit(&mut pointers), []);
        pointers.create(1, 2);
        pointers.create(1, 4);
        assert_eq!(commit(&mut pointers), [PointerChange::create(1, 4)]);
        assert_eq!(pointers.take_deletes(), [PointerChange::delete(1, 3)]);
    }

    #[test]
    fn what_comes_back_while_its_end_is_on_the_way_stays() {
        let mut pointers = Pointers::default();
        pointers.delete(1, 2);
        let frozen = pointers.freeze();
        pointers.create(1, 2);
        assert_eq!(pointers.commit(frozen), []);
        assert_eq!(commit(&mut pointers), []);
        assert_eq!(pointers.take_deletes(), []);
    }

    #[test]
    fn what_goes_while_it_is_on_the_way_is_told_first() {
        let mut pointers = Pointers::default();
        pointers.create(1, 2);
        let frozen = pointers.freeze();
        pointers.delete(1, 2);
        assert_eq!(pointers.commit(frozen), [PointerChange::create(1, 2)]);
        assert_eq!(commit(&mut pointers), []);
        assert_eq!(pointers.take_deletes(), [PointerChange::delete(1, 2)]);
    }
}
