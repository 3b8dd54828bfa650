//! A mounted file system: what is in memory, and what every change goes through.

use std::collections::{HashMap, HashSet};
use std::time::{SystemTime, UNIX_EPOCH};

use dcd_client::{BlockDevice, Usage};

use crate::allocate::Allocator;
use crate::directory::Directories;
use crate::error::{FsError, FsResult, refuse};
use crate::format::directory_block::{self, Entry};
use crate::format::indirect;
use crate::format::inode::{Inode, Timestamp};
use crate::format::superblock::{SUPERBLOCK, Superblock};
use crate::format::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, FormatError};
use crate::growth::Growth;
use crate::journal::Journal;
use crate::metadata::{Image, Metadata, MetadataCache};
use crate::pages::Pages;
use crate::pointers::{Need, Pointers};
use crate::rules::Rules;
use crate::runs::read_blocks;
use crate::watched::Watched;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Memory for blocks.
    pub cache_bytes: usize,
    /// Hints by name.
    pub rules: Rules,
    /// Blocks are had ahead for files that will grow, by what others of such a name became.
    pub project_growth: bool,
    /// Nothing is changed, not even what a crash has left: that is put right in memory.
    pub read_only: bool,
    /// Where the volume has no room for pointers of the file system, some is made.
    pub make_pointer_room: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            cache_bytes: 64 << 20,
            rules: Rules::default(),
            project_growth: true,
            read_only: false,
            make_pointer_room: false,
        }
    }
}

/// A mounted file system. One thread at a time; `shared.rs` lets others go on while one waits for a
/// disk.
pub struct FileSystem<D> {
    /// For everything, unless it is shared: then for what cannot wait.
    pub(crate) device: D,
    pub(crate) superblock: Superblock,
    pub(crate) journal: Journal,
    pub(crate) metadata: MetadataCache,
    pub(crate) pages: Pages,
    pub(crate) pointers: Pointers,
    pub(crate) allocator: Allocator,
    pub(crate) directories: Directories,
    pub(crate) growth: Growth,
    /// How often an inode was looked up or opened, and not forgotten or closed: it lives until it
    /// is not in here.
    pub(crate) held: HashMap<u64, u64>,
    /// Those without a name.
    pub(crate) orphans: HashSet<u64>,
    /// Inodes that are gone; somebody may still have the number.
    pub(crate) gone: HashSet<u64>,
    pub(crate) options: MountOptions,
    /// Something was told to the device since the last flush.
    pub(crate) is_unflushed: bool,
    /// The change under way has changed something already.
    pub(crate) has_changed: bool,
    /// What is under way can be left and begun anew: nothing has been changed or allocated for it,
    /// and who asked for it reads what it needs.
    pub(crate) may_begin_anew: bool,
    /// Blocks that were read for what is under way, and are as they were.
    pub(crate) arrived: HashMap<u64, Vec<u8>>,
    /// What the journal has of blocks that may not be in their places, if nothing may be changed.
    pub(crate) replayed: HashMap<u64, Image>,
    /// Blocks that are being read while others go on.
    pub(crate) reading: Watched,
    /// A commit or a checkpoint is being written.
    pub(crate) is_committing: bool,
    /// How many changes there were.
    pub(crate) changes: u64,
    /// Memory and device are apart: nothing is written any more.
    pub(crate) is_stopped: bool,
    next_generation: u64,
}

impl<D: BlockDevice> FileSystem<D> {
    /// Opens what is on the device, and brings it to where it was durable last.
    pub fn mount(device: D, options: MountOptions) -> FsResult<FileSystem<D>> {
        let mut file_system = FileSystem::open(device, options)?;
        if !file_system.options.read_only {
            file_system.remove_orphans()?;
            file_system.keep_some();
        }
        Ok(file_system)
    }

    /// The same to look at it or to mend it: files that were open without a name stay.
    pub fn open(mut device: D, options: MountOptions) -> FsResult<FileSystem<D>> {
        let geometry = device.geometry();
        if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&geometry.block_bytes) {
            return Err(FsError::BlockBytes { found: geometry.block_bytes });
        }
        if device.is_read_only() && !options.read_only {
            return Err(FsError::ReadOnlyDevice);
        }
        let mut bytes = vec![0; geometry.block_bytes];
        read_blocks(&mut device, &[Some(SUPERBLOCK)], &mut bytes)?;
        let superblock =
            Superblock::decode(&bytes, geometry.blocks).map_err(|source| match source {
                FormatError::Kind(_) => FsError::NotThere { source },
                // Nobody is to make a new one over it.
                _ => FsError::Damaged { block: SUPERBLOCK, source },
            })?;
        let journal = Journal::open(&mut device, &superblock)?;
        let mut file_system = FileSystem {
            device,
            metadata: MetadataCache::new(superblock.block_bytes),
            superblock,
            journal,
            pages: Pages::default(),
            pointers: Pointers::default(),
            allocator: Allocator::default(),
            growth: Growth::default(),
            directories: Directories::default(),
            held: HashMap::new(),
            orphans: HashSet::new(),
            gone: HashSet::new(),
            options,
            is_unflushed: false,
            has_changed: false,
            may_begin_anew: false,
            arrived: HashMap::new(),
            replayed: HashMap::new(),
            reading: Watched::default(),
            is_committing: false,
            changes: 0,
            is_stopped: false,
            next_generation: 0,
        };
        match file_system.options.read_only {
            true => file_system.recover_in_memory()?,
            false => file_system.recover()?,
        }
        // So that no inode of an earlier mount has the same: each takes at least one transaction.
        file_system.next_generation = file_system.journal.next_sequence() << 24;
        Ok(file_system)
    }

    /// Makes everything durable and brings it to its place.
    pub fn unmount(mut self) -> FsResult<D> {
        if !self.options.read_only {
            self.sync()?;
            // Nobody knows them any more.
            self.remove_orphans()?;
            self.checkpoint()?;
        }
        Ok(self.device)
    }

    /// The device below. What is in memory only is not there.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// What it was made with.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The inode of the root directory.
    pub fn root(&self) -> u64 {
        self.superblock.root
    }

    /// Size of its blocks.
    pub fn block_bytes(&self) -> usize {
        self.superblock.block_bytes
    }

    /// How many blocks the device has.
    pub fn blocks(&self) -> u64 {
        self.device.geometry().blocks
    }

    /// What the device has in use.
    pub fn usage(&mut self) -> FsResult<Usage> {
        let mut usage = self.device.usage()?;
        // What waits for the next file is as good as free.
        usage.mapped = usage.mapped.saturating_sub(self.allocator.waiting() as u64);
        Ok(usage)
    }

    /// How many blocks files can still have: each takes a pointer to it.
    pub fn free_blocks(&mut self) -> FsResult<Free> {
        let Usage { mapped, pointers_max, .. } = self.usage()?;
        self.pointers.limit(pointers_max);
        let on_disks = self.blocks().saturating_sub(mapped);
        Ok(Free { on_disks, usable: on_disks.min(self.pointers.room(Need::More)) })
    }

    /// Whether an error has ended all writing.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Whether nothing may be changed.
    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    pub(crate) fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::try_from(since.as_nanos()).unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn new_generation(&mut self) -> u64 {
        self.next_generation += 1;
        self.next_generation
    }

    /// Runs a change of the file system: all of it becomes part of one transaction, or none. What
    /// can fail comes before the first thing that is changed; where something fails later (a disk),
    /// nothing is written any more, so half a change is never durable.
    pub(crate) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> FsResult<T>,
    ) -> FsResult<T> {
        if self.options.read_only {
            return refuse(libc::EROFS);
        }
        if self.is_stopped {
            return Err(FsError::Stopped);
        }
        if self.may_begin_anew {
            if self.room() == Room::None {
                return Err(FsError::Later);
            }
        } else if !self.is_committing {
            self.make_room()?;
        }
        self.has_changed = false;
        let result = change(self);
        self.changes += 1;
        if result.is_err() && self.has_changed {
            self.is_stopped = true;
        }
        self.has_changed = false;
        result
    }

    /// Brings memory and journal to where another change fits.
    fn make_room(&mut self) -> FsResult<()> {
        let limits = self.limits();
        if self.wants_commit() {
            self.sync()?;
        }
        if self.metadata.pinned() > limits.pinned {
            self.checkpoint()?;
        }
        if self.pages.dirty() > limits.dirty {
            self.write_back()?;
        }
        self.shrink_caches();
        Ok(())
    }

    /// Whether there is room for another change, if others make room while changes go on: then
    /// there may be twice as much. The journal has room for that: half of it is always free.
    pub(crate) fn room(&self) -> Room {
        let limits = self.limits();
        let (running, pinned, dirty) = (self.running(), self.metadata.pinned(), self.pages.dirty());
        if running >= 2 * limits.running || pinned > 2 * limits.pinned || dirty > 2 * limits.dirty {
            Room::None
        } else if running >= limits.running || pinned > limits.pinned || dirty > limits.dirty {
            Room::Little
        } else {
            Room::Enough
        }
    }

    /// Whether so much is in the journal that it has to be emptied for memory.
    pub(crate) fn is_pinned_full(&self) -> bool {
        self.metadata.pinned() > self.limits().pinned
    }

    /// Whether more than contents of files has to be written to make room.
    pub(crate) fn wants_commit(&self) -> bool {
        let limits = self.limits();
        self.running() >= limits.running || self.metadata.pinned() > limits.pinned
    }

    /// What the running transaction takes in the journal, more or less.
    fn running(&self) -> usize {
        self.metadata.running() + self.pointers.running() / (self.block_bytes() / 32)
    }

    fn limits(&self) -> Limits {
        let blocks = self.options.cache_bytes / self.block_bytes();
        Limits {
            // An eighth, and what one change adds, fits in the half that is always left free.
            running: self.journal.blocks().len() / 8,
            pinned: (blocks / 4).max(64) / 2,
            dirty: blocks * 3 / 4 / 2,
        }
    }

    pub(crate) fn shrink_caches(&mut self) {
        let blocks = self.options.cache_bytes / self.block_bytes();
        self.pages.shrink(blocks * 3 / 4);
        self.metadata.shrink((blocks / 4).max(64));
    }

    /// Reads what is needed first. What is under way is left and begun anew where that can be.
    pub(crate) fn fetch(&mut self, block: u64) -> FsResult<Vec<u8>> {
        if let Some(bytes) = self.arrived.remove(&block) {
            return Ok(bytes);
        }
        if let Some(image) = self.replayed.get(&block) {
            return Ok(image.to_vec());
        }
        if self.may_begin_anew {
            return Err(FsError::NotInMemory { blocks: vec![block] });
        }
        let mut bytes = vec![0; self.block_bytes()];
        read_blocks(&mut self.device, &[Some(block)], &mut bytes)?;
        Ok(bytes)
    }

    /// The first of these blocks of metadata that are neither in memory nor have arrived, to be
    /// read at once.
    pub(crate) fn not_in_memory(&self, blocks: &[u64]) -> Vec<u64> {
        let is_missing = |block: &u64| {
            !self.metadata.contains(*block)
                && !self.arrived.contains_key(block)
                && !self.replayed.contains_key(block)
        };
        let mut missing: Vec<u64> =
            blocks.iter().copied().filter(is_missing).take(FETCH_MAX).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    fn load(&mut self, block: u64, kind: Expected, owner: u64) -> FsResult<()> {
        if self.metadata.contains(block) {
            return Ok(());
        }
        let bytes = self.fetch(block)?;
        let blocks = self.blocks();
        let decoded = match kind {
            Expected::Inode => {
                Inode::decode(&bytes, block, blocks).map(|inode| (Metadata::Inode(inode), block))
            }
            Expected::Directory => directory_block::decode(&bytes, block, blocks)
                .map(|(entries, owner)| (Metadata::Directory(entries), owner)),
            Expected::Indirect => indirect::decode(&bytes, block, blocks)
                .map(|(list, owner)| (Metadata::Indirect(list), owner)),
        };
        let (metadata, found) = decoded.map_err(|source| FsError::Damaged { block, source })?;
        if found != owner {
            return Err(wrong_kind(block));
        }
        self.cache_metadata(block, owner, metadata);
        Ok(())
    }

    fn cache_metadata(&mut self, block: u64, owner: u64, metadata: Metadata) {
        self.reading.touch(block);
        self.metadata.insert(block, owner, metadata);
    }

    /// A page of a file, from the device or new.
    pub(crate) fn cache_page(&mut self, file: u64, index: u64, block: u64, data: Vec<u8>) {
        self.reading.touch(block);
        self.pages.insert(file, index, block, data);
    }

    /// What is known of a file.
    pub fn inode(&mut self, block: u64) -> FsResult<&Inode> {
        if block == SUPERBLOCK || block >= self.blocks() || self.gone.contains(&block) {
            return refuse(libc::ESTALE);
        }
        self.load(block, Expected::Inode, block)?;
        match self.metadata.get(block) {
            Some(Metadata::Inode(inode)) => Ok(inode),
            _ => refuse(libc::ESTALE),
        }
    }

    /// Brings inodes that are asked for next into memory, with as few reads as possible.
    pub fn prefetch(&mut self, inodes: &[u64]) -> FsResult<()> {
        let blocks = self.blocks();
        let mut wanted: Vec<u64> = inodes
            .iter()
            .copied()
            .filter(|block| *block < blocks && !self.gone.contains(block))
            .filter(|block| !self.metadata.contains(*block))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let missing = self.not_in_memory(&wanted);
        if self.may_begin_anew && !missing.is_empty() {
            return Err(FsError::NotInMemory { blocks: missing });
        }
        let mut bytes = vec![0; missing.len() * self.block_bytes()];
        let places: Vec<_> = missing.iter().copied().map(Some).collect();
        read_blocks(&mut self.device, &places, &mut bytes)?;
        let read = missing.into_iter().zip(bytes.chunks(self.block_bytes()));
        self.arrived.extend(read.map(|(block, bytes)| (block, bytes.to_vec())));
        for block in wanted {
            // What is wrong with it is told to who asks for it.
            let image = self.replayed.get(&block).map(|image| image.to_vec());
            if let Some(bytes) = self.arrived.remove(&block).or(image)
                && let Ok(inode) = Inode::decode(&bytes, block, blocks)
            {
                self.cache_metadata(block, block, Metadata::Inode(inode));
            }
        }
        Ok(())
    }

    fn has_begun_to_change(&mut self) {
        self.has_changed = true;
        self.may_begin_anew = false;
    }

    pub(crate) fn change_inode(&mut self, block: u64) -> FsResult<&mut Inode> {
        self.inode(block)?;
        self.has_begun_to_change();
        match self.metadata.change(block) {
            Some(Metadata::Inode(inode)) => Ok(inode),
            _ => Err(wrong_kind(block)),
        }
    }

    pub(crate) fn directory_block(&mut self, block: u64, owner: u64) -> FsResult<&Vec<Entry>> {
        self.load(block, Expected::Directory, owner)?;
        if self.metadata.owner(block) != Some(owner) {
            return Err(wrong_kind(block));
        }
        match self.metadata.get(block) {
            Some(Metadata::Directory(entries)) => Ok(entries),
            _ => Err(wrong_kind(block)),
        }
    }

    pub(crate) fn change_directory_block(
        &mut self,
        block: u64,
        owner: u64,
    ) -> FsResult<&mut Vec<Entry>> {
        self.directory_block(block, owner)?;
        self.has_begun_to_change();
        match self.metadata.change(block) {
            Some(Metadata::Directory(entries)) => Ok(entries),
            _ => Err(wrong_kind(block)),
        }
    }

    pub(crate) fn indirect(&mut self, block: u64, owner: u64) -> FsResult<&Vec<u64>> {
        self.load(block, Expected::Indirect, owner)?;
        if self.metadata.owner(block) != Some(owner) {
            return Err(wrong_kind(block));
        }
        match self.metadata.get(block) {
            Some(Metadata::Indirect(list)) => Ok(list),
            _ => Err(wrong_kind(block)),
        }
    }

    pub(crate) fn change_indirect(&mut self, block: u64, owner: u64) -> FsResult<&mut Vec<u64>> {
        self.indirect(block, owner)?;
        self.has_begun_to_change();
        match self.metadata.change(block) {
            Some(Metadata::Indirect(list)) => Ok(list),
            _ => Err(wrong_kind(block)),
        }
    }

    /// A block of metadata that is new.
    pub(crate) fn insert_metadata(&mut self, block: u64, owner: u64, metadata: Metadata) {
        self.has_begun_to_change();
        self.cache_metadata(block, owner, metadata);
        let _ = self.metadata.change(block);
    }
}

/// How much is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Free {
    /// Blocks that nobody has.
    pub on_disks: u64,
    /// Blocks that files can have.
    pub usable: u64,
}

/// So many blocks are read at once for something that is begun anew then.
const FETCH_MAX: usize = 256;

/// What may be in memory and not on the device, or not in its place: in blocks.
struct Limits {
    running: usize,
    pinned: usize,
    dirty: usize,
}

/// Whether there is room for another change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Enough,
    /// Something should be written soon.
    Little,
    /// Something has to be written first.
    None,
}

/// What a block is read as.
#[derive(Clone, Copy)]
enum Expected {
    Inode,
    Directory,
    Indirect,
}

fn wrong_kind(block: u64) -> FsError {
    let source = FormatError::Place("block of metadata");
    FsError::Damaged { block, source }
}
