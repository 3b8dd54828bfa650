//! Which pointers between blocks have come and gone, and what the device has still to be told.
//!
//! The device is told of a new pointer when the transaction that makes it is durable, and of one that is gone when no
//! image in the journal is needed any more: what is freed may be used again at once, and an old image must not come
//! back over it.

use std::collections::{BTreeMap, BTreeSet};

use dcd_client::{PointerChange, PointerVerb};

/// Changes of pointers.
#[derive(Default)]
pub(crate) struct Pointers {
    /// Of the transaction that is being collected: what differs from before it.
    running: BTreeMap<(u64, u64), PointerVerb>,
    /// Gone by transactions that are durable; the device still has them.
    to_delete: BTreeSet<(u64, u64)>,
}

impl Pointers {
    /// `from` points to `to` from now on.
    pub(crate) fn create(&mut self, from: u64, to: u64) {
        match self.running.remove(&(from, to)) {
            Some(PointerVerb::Delete) => {}
            Some(PointerVerb::Create) | None => {
                self.running.insert((from, to), PointerVerb::Create);
            }
        }
    }

    /// `from` does not point to `to` any more.
    pub(crate) fn delete(&mut self, from: u64, to: u64) {
        match self.running.remove(&(from, to)) {
            Some(PointerVerb::Create) => {}
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
        created
    }

    /// How many changes there are in the running transaction.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// The changes of the running transaction, which goes to the journal; another one begins.
    pub(crate) fn freeze(&mut self) -> Vec<PointerChange> {
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
