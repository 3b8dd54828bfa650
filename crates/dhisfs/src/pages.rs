//! Contents of files in memory: what was written and is not on the device yet, and what was written
//! last.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

struct Page {
    /// Shared with a write that is under way; who changes it meanwhile gets a copy.
    data: Arc<Vec<u8>>,
    /// Where it belongs.
    block: u64,
    used: u64,
}

/// Blocks of files.
#[derive(Default)]
pub(crate) struct Pages {
    /// By inode and place in the file.
    pages: BTreeMap<(u64, u64), Page>,
    by_use: BTreeMap<u64, (u64, u64)>,
    clock: u64,
    /// Newer than on the device, or on the way there.
    dirty: BTreeSet<(u64, u64)>,
}

impl Pages {
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    pub(crate) fn get(&self, inode: u64, index: u64) -> Option<&[u8]> {
        self.pages.get(&(inode, index)).map(|page| &**page.data)
    }

    /// A page that is changed, if it is here.
    pub(crate) fn change(&mut self, inode: u64, index: u64) -> Option<&mut [u8]> {
        let page = self.pages.get_mut(&(inode, index))?;
        self.by_use.remove(&page.used);
        self.clock += 1;
        page.used = self.clock;
        self.by_use.insert(self.clock, (inode, index));
        self.dirty.insert((inode, index));
        Some(Arc::make_mut(&mut page.data).as_mut_slice())
    }

    /// A new page, to be written to `block`.
    pub(crate) fn insert(&mut self, inode: u64, index: u64, block: u64, data: Vec<u8>) {
        self.remove(inode, index..index + 1);
        self.clock += 1;
        self.by_use.insert(self.clock, (inode, index));
        let page = Page { data: Arc::new(data), block, used: self.clock };
        self.pages.insert((inode, index), page);
        self.dirty.insert((inode, index));
    }

    /// Forgets pages that do not belong to the file any more.
    pub(crate) fn remove(&mut self, inode: u64, indexes: Range<u64>) {
        let range = self.pages.range((inode, indexes.start)..(inode, indexes.end));
        let keys: Vec<_> = range.map(|(key, _)| *key).collect();
        for key in keys {
            let page = self.pages.remove(&key).expect("it was found");
            self.by_use.remove(&page.used);
            self.dirty.remove(&key);
        }
    }

    /// All that is newer than on the device, as it is now, in the order of the device.
    pub(crate) fn freeze(&self) -> Vec<FrozenPage> {
        let frozen = self.dirty.iter().map(|key| {
            let page = &self.pages[key];
            FrozenPage { key: *key, block: page.block, data: Arc::clone(&page.data) }
        });
        let mut frozen: Vec<_> = frozen.collect();
        frozen.sort_unstable_by_key(|page| page.block);
        frozen
    }

    /// These are on the device now; what has changed since is newer still.
    pub(crate) fn are_written(&mut self, frozen: &[FrozenPage]) {
        for FrozenPage { key, data, .. } in frozen {
            if self.pages.get(key).is_some_and(|page| Arc::ptr_eq(&page.data, data)) {
                self.dirty.remove(key);
            }
        }
    }

    /// Forgets what was not used for longest and is on the device, until there are only so many.
    pub(crate) fn shrink(&mut self, pages_max: usize) {
        if self.pages.len() <= pages_max {
            return;
        }
        let excess = self.pages.len() - pages_max;
        let clean = self.by_use.values().filter(|key| !self.dirty.contains(key));
        let old: Vec<_> = clean.take(excess).copied().collect();
        for (inode, index) in old {
            self.remove(inode, index..index + 1);
        }
    }
}

/// A page as it was at some moment.
pub(crate) struct FrozenPage {
    key: (u64, u64),
    /// Where it belongs.
    pub(crate) block: u64,
    /// What it held.
    pub(crate) data: Arc<Vec<u8>>,
}
