//! Blocks from the device. Nothing here knows which blocks are free; some that were allocated and are not used (yet, or
//! any more) wait for the next file. What waits when the program ends is collected by the next mount.

use std::collections::{BTreeMap, HashMap};

use dcd_client::{Allocation, Attributes, BlockDevice};

use crate::error::FsResult;
use crate::file_system::FileSystem;

/// The device is asked for at least so many at once.
const BATCH: usize = 16;

/// Blocks between device and files.
#[derive(Default)]
pub(crate) struct Allocator {
    /// Allocated, and not in any file: by what they were allocated as.
    waiting: BTreeMap<u16, Vec<u64>>,
    /// Given to files by the running transaction: the device knows no pointer to them.
    fresh: HashMap<u64, Attributes>,
}

impl Allocator {
    /// How many blocks wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.values().map(Vec::len).sum()
    }

    /// What was fresh is part of a durable transaction.
    pub(crate) fn commit(&mut self) {
        self.fresh.clear();
    }

    /// A block of a file goes. If the device knows no pointer to it, it waits for another file.
    pub(crate) fn release(&mut self, block: u64) {
        if let Some(attributes) = self.fresh.remove(&block) {
            self.waiting.entry(attributes.bits()).or_default().push(block);
        }
    }

    /// A fresh block was given other attributes.
    pub(crate) fn set_attributes(&mut self, block: u64, attributes: Attributes) {
        if let Some(own) = self.fresh.get_mut(&block) {
            *own = attributes;
        }
    }

    fn take(&mut self, attributes: Attributes) -> Option<u64> {
        self.waiting.get_mut(&attributes.bits())?.pop()
    }
}

impl<D: BlockDevice> FileSystem<D> {
    /// A block for each of these. All that a change needs is to be asked for at once, before it changes anything.
    pub(crate) fn allocate(&mut self, wanted: &[Allocation]) -> FsResult<Vec<u64>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        debug_assert!(!self.has_changed, "what may not find room comes first");
        match self.try_allocate(wanted) {
            Err(error) if error.errno() == libc::ENOSPC && self.reclaim()? => {
                self.try_allocate(wanted)
            }
            result => result,
        }
    }

    fn try_allocate(&mut self, wanted: &[Allocation]) -> FsResult<Vec<u64>> {
        let mut found: Vec<Option<u64>> =
            wanted.iter().map(|it| self.allocator.take(it.attributes)).collect();
        let missing = found.iter().filter(|it| it.is_none()).count();
        let mut result = Ok(());
        if missing > 0 {
            let asked = wanted.iter().zip(&found).filter(|(_, it)| it.is_none());
            let mut asked: Vec<Allocation> = asked.map(|(wanted, _)| *wanted).collect();
            // The last kind is that of most blocks.
            let more = *asked.last().expect("something is missing");
            asked.extend((missing..BATCH).map(|_| more));
            self.is_unflushed = true;
            let answers = self.device.allocate(&asked);
            let mut places = found.iter_mut().filter(|it| it.is_none());
            for (asked, answer) in asked.iter().zip(answers) {
                let place = places.next();
                match (answer, place) {
                    (Ok(block), Some(place)) => *place = Some(block),
                    (Ok(block), None) => {
                        let key = asked.attributes.bits();
                        self.allocator.waiting.entry(key).or_default().push(block);
                    }
                    (Err(error), Some(_)) if result.is_ok() => result = Err(error.into()),
                    // Nobody needs it now.
                    (Err(_), _) => {}
                }
            }
        }
        // So that those that lie first are used first.
        for waiting in self.allocator.waiting.values_mut() {
            waiting.sort_unstable_by(|a, b| b.cmp(a));
        }
        let found = found.into_iter().zip(wanted);
        let found = found.filter_map(|(block, wanted)| Some((block?, wanted.attributes)));
        if result.is_err() {
            for (block, attributes) in found {
                self.allocator.waiting.entry(attributes.bits()).or_default().push(block);
            }
            return result.map(|()| Vec::new());
        }
        let mut blocks = Vec::new();
        for (block, attributes) in found {
            self.allocator.fresh.insert(block, attributes);
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// Frees all that can be freed. Whether there was anything.
    fn reclaim(&mut self) -> FsResult<bool> {
        let has_waiting = self.allocator.waiting() > 0;
        if !has_waiting && self.pointers.to_delete() == 0 && self.pointers.running() == 0 {
            return Ok(false);
        }
        // Afterwards nothing is fresh: what is not reachable is nobody's.
        self.checkpoint()?;
        self.allocator.waiting.clear();
        self.device.collect()?;
        self.is_unflushed = true;
        self.device.settle()?;
        Ok(true)
    }

    /// A block goes out of a file, and with it what only the running transaction hangs below it. What the device knows
    /// to be below it the device frees.
    pub(crate) fn forget(&mut self, block: u64) {
        let mut open = vec![block];
        while let Some(block) = open.pop() {
            open.extend(self.pointers.take_created_from(block));
            self.metadata.remove(block);
            self.allocator.release(block);
        }
    }
}
