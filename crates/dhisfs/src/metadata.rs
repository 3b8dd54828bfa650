//! Blocks of metadata in memory: those that were used last, and all that are newer than on the
//! device.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::format::directory_block::{self, Entry};
use crate::format::indirect;
use crate::format::inode::Inode;

/// What a block of metadata holds.
#[derive(Debug)]
pub(crate) enum Metadata {
    Inode(Inode),
    Directory(Vec<Entry>),
    Indirect(Vec<u64>),
}

struct Cached {
    metadata: Metadata,
    /// The inode that it belongs to.
    owner: u64,
    used: u64,
}

/// The blocks.
pub(crate) struct MetadataCache {
    block_bytes: usize,
    blocks: HashMap<u64, Cached>,
    /// Owner, block.
    by_owner: BTreeSet<(u64, u64)>,
    /// When it was used last, block.
    by_use: BTreeMap<u64, u64>,
    clock: u64,
    /// Changed by the transaction that is being collected.
    running: BTreeSet<u64>,
    /// In the journal, or on the way there, and not in their places yet: as they are there. They
    /// may have changed since.
    logged: BTreeMap<u64, Image>,
    /// Logged, and gone by the transaction that is being collected: only when it is durable they
    /// need no place any more.
    gone: BTreeSet<u64>,
}

/// A block as it is, or will be, on the device.
pub(crate) type Image = Arc<Vec<u8>>;

impl MetadataCache {
    pub(crate) fn new(block_bytes: usize) -> MetadataCache {
        MetadataCache {
            block_bytes,
            blocks: HashMap::new(),
            by_owner: BTreeSet::new(),
            by_use: BTreeMap::new(),
            clock: 0,
            running: BTreeSet::new(),
            logged: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    pub(crate) fn contains(&self, block: u64) -> bool {
        self.blocks.contains_key(&block)
    }

    pub(crate) fn owner(&self, block: u64) -> Option<u64> {
        self.blocks.get(&block).map(|cached| cached.owner)
    }

    pub(crate) fn insert(&mut self, block: u64, owner: u64, metadata: Metadata) {
        self.remove(block);
        self.clock += 1;
        self.by_use.insert(self.clock, block);
        self.by_owner.insert((owner, block));
        self.blocks.insert(block, Cached { metadata, owner, used: self.clock });
    }

    pub(crate) fn get(&mut self, block: u64) -> Option<&Metadata> {
        let cached = self.blocks.get_mut(&block)?;
        self.by_use.remove(&cached.used);
        self.clock += 1;
        self.by_use.insert(self.clock, block);
        cached.used = self.clock;
        Some(&cached.metadata)
    }

    /// To change it: it is part of the running transaction from now on.
    pub(crate) fn change(&mut self, block: u64) -> Option<&mut Metadata> {
        let cached = self.blocks.get_mut(&block)?;
        self.running.insert(block);
        Some(&mut cached.metadata)
    }

    /// Forgets a block that belongs to nothing any more, changed or not.
    pub(crate) fn remove(&mut self, block: u64) {
        if let Some(cached) = self.blocks.remove(&block) {
            self.by_use.remove(&cached.used);
            self.by_owner.remove(&(cached.owner, block));
        }
        self.running.remove(&block);
        if self.logged.contains_key(&block) {
            self.gone.insert(block);
        }
    }

    /// The blocks in memory that belong to an inode, itself among them.
    pub(crate) fn owned_by(&self, owner: u64) -> Vec<u64> {
        let range = self.by_owner.range((owner, 0)..=(owner, u64::MAX));
        range.map(|(_, block)| *block).collect()
    }

    fn encode(&self, block: u64) -> Vec<u8> {
        let Cached { metadata, owner, .. } = &self.blocks[&block];
        match metadata {
            Metadata::Inode(inode) => inode.encode(self.block_bytes, block),
            Metadata::Directory(entries) => {
                directory_block::encode(entries, self.block_bytes, block, *owner)
            }
            Metadata::Indirect(list) => indirect::encode(list, self.block_bytes, block, *owner),
        }
    }

    /// How many blocks the running transaction has changed.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// The running transaction goes to the journal, as the blocks are now; another one begins.
    pub(crate) fn freeze(&mut self) -> Vec<(u64, Image)> {
        for block in std::mem::take(&mut self.gone) {
            self.logged.remove(&block);
        }
        let running = std::mem::take(&mut self.running);
        let images: Vec<_> =
            running.into_iter().map(|block| (block, Image::new(self.encode(block)))).collect();
        self.logged.extend(images.iter().cloned());
        images
    }

    /// What has to go to its place before the journal can be emptied.
    pub(crate) fn logged(&self) -> Vec<(u64, Image)> {
        self.logged.iter().map(|(block, image)| (*block, Image::clone(image))).collect()
    }

    /// All that is in the journal is in its place.
    pub(crate) fn logged_is_home(&mut self) {
        self.logged.clear();
        self.gone.clear();
    }

    /// How many blocks there are, at most, that cannot be forgotten.
    pub(crate) fn pinned(&self) -> usize {
        self.running.len() + self.logged.len()
    }

    /// Forgets what was not used for longest, until there are only so many or none that may go.
    pub(crate) fn shrink(&mut self, blocks_max: usize) {
        if self.blocks.len() <= blocks_max {
            return;
        }
        let may_go =
            |block: &u64| !self.running.contains(block) && !self.logged.contains_key(block);
        let excess = self.blocks.len() - blocks_max;
        let old: Vec<u64> = self.by_use.values().copied().filter(may_go).take(excess).collect();
        for block in old {
            self.remove(block);
        }
    }
}
