//! Blocks of metadata in memory: those that were used last, and all that are newer than on the device.

use std::collections::{BTreeMap, BTreeSet, HashMap};

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
    /// In the journal, and not in their places yet.
    logged: BTreeSet<u64>,
}

impl MetadataCache {
    pub(crate) fn new(block_bytes: usize) -> MetadataCache {
        MetadataCache {
            block_bytes,
            blocks: HashMap::new(),
            by_owner: BTreeSet::new(),
            by_use: BTreeMap::new(),
            clock: 0,
            running: BTreeSet::new(),
            logged: BTreeSet::new(),
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
        self.logged.remove(&block);
    }

    /// The blocks in memory that belong to an inode, itself among them.
    pub(crate) fn owned_by(&self, owner: u64) -> Vec<u64> {
        let range = self.by_owner.range((owner, 0)..=(owner, u64::MAX));
        range.map(|(_, block)| *block).collect()
    }

    /// As it is on the device.
    pub(crate) fn encode(&self, block: u64) -> Vec<u8> {
        let Cached { metadata, owner, .. } = &self.blocks[&block];
        match metadata {
            Metadata::Inode(inode) => inode.encode(self.block_bytes, block),
            Metadata::Directory(entries) => {
                directory_block::encode(entries, self.block_bytes, block, *owner)
            }
            Metadata::Indirect(list) => indirect::encode(list, self.block_bytes, block, *owner),
        }
    }

    pub(crate) fn running(&self) -> &BTreeSet<u64> {
        &self.running
    }

    pub(crate) fn logged(&self) -> &BTreeSet<u64> {
        &self.logged
    }

    /// The running transaction is in the journal.
    pub(crate) fn running_is_logged(&mut self) {
        self.logged.append(&mut self.running);
    }

    /// All that is in the journal is in its place.
    pub(crate) fn logged_is_home(&mut self) {
        self.logged.clear();
    }

    /// How many blocks there are that cannot be forgotten.
    pub(crate) fn pinned(&self) -> usize {
        self.running.union(&self.logged).count()
    }

    /// Forgets what was not used for longest, until there are only so many or none that may go.
    pub(crate) fn shrink(&mut self, blocks_max: usize) {
        if self.blocks.len() <= blocks_max {
            return;
        }
        let may_go = |block: &u64| !self.running.contains(block) && !self.logged.contains(block);
        let excess = self.blocks.len() - blocks_max;
        let old: Vec<u64> = self.by_use.values().copied().filter(may_go).take(excess).collect();
        for block in old {
            self.remove(block);
        }
    }
}
