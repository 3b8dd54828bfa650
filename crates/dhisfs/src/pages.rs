//! Contents of files in memory: what was written and is not on the device yet, and what was written last.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use dcd_client::{BlockDevice, DeviceError};

use crate::runs::write_blocks;

struct Page {
    data: Box<[u8]>,
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
    /// Newer than on the device.
    dirty: BTreeSet<(u64, u64)>,
}

impl Pages {
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    pub(crate) fn get(&self, inode: u64, index: u64) -> Option<&[u8]> {
        self.pages.get(&(inode, index)).map(|page| &*page.data)
    }

    /// A page that is changed, if it is here.
    pub(crate) fn change(&mut self, inode: u64, index: u64) -> Option<&mut [u8]> {
        let page = self.pages.get_mut(&(inode, index))?;
        self.by_use.remove(&page.used);
        self.clock += 1;
        page.used = self.clock;
        self.by_use.insert(self.clock, (inode, index));
        self.dirty.insert((inode, index));
        Some(&mut page.data)
    }

    /// A new page, to be written to `block`.
    pub(crate) fn insert(&mut self, inode: u64, index: u64, block: u64, data: Box<[u8]>) {
        self.remove(inode, index..index + 1);
        self.clock += 1;
        self.by_use.insert(self.clock, (inode, index));
        let page = Page { data, block, used: self.clock };
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

    /// Writes all that is newer than on the device; not durable yet.
    pub(crate) fn write_back(&mut self, device: &mut impl BlockDevice) -> Result<(), DeviceError> {
        let dirty = self.dirty.iter().map(|key| &self.pages[key]);
        let mut dirty: Vec<_> = dirty.map(|page| (page.block, &*page.data)).collect();
        dirty.sort_unstable_by_key(|(block, _)| *block);
        write_blocks(device, dirty.into_iter())?;
        self.dirty.clear();
        Ok(())
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
