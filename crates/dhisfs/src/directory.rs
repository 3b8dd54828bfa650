//! Names in a directory. Its blocks list them in no order; in memory there is an index.

use std::collections::HashMap;

use dcd_client::{Allocation, Attributes, BlockDevice};

use crate::error::{FsError, FsResult, refuse};
use crate::file_system::FileSystem;
use crate::format::directory_block::{Entry, NAME_BYTES_MAX, room};
use crate::metadata::Metadata;

/// Names in memory, of all directories together; more only for the one that is used.
const NAMES_MAX: usize = 1 << 20;

/// Most blocks of a directory: some ten million names.
const BLOCKS_MAX: u64 = 1 << 20;

/// A name, for who lists a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The name.
    pub name: Box<[u8]>,
    /// What it names.
    pub inode: u64,
    /// The upper four bits of its mode.
    pub kind: u8,
}

#[derive(Clone, Copy)]
struct Known {
    inode: u64,
    kind: u8,
    /// Which block of the directory it is in.
    at: u64,
}

#[derive(Default)]
struct Index {
    names: HashMap<Box<[u8]>, Known>,
    /// What the names in each block take; `None` where there is no block.
    used: Vec<Option<usize>>,
}

/// Indexes of directories.
#[derive(Default)]
pub(crate) struct Directories {
    indexes: HashMap<u64, Index>,
    names: usize,
}

impl Directories {
    pub(crate) fn forget(&mut self, directory: u64) {
        if let Some(index) = self.indexes.remove(&directory) {
            self.names -= index.names.len();
        }
    }
}

/// Where a new name goes, and what that takes.
pub(crate) struct Room {
    at: u64,
    /// Blocks that have to be allocated: lists, and the last one for the names.
    pub(crate) wanted: Vec<Allocation>,
}

impl<D: BlockDevice> FileSystem<D> {
    fn index(&mut self, directory: u64) -> FsResult<&mut Index> {
        if !self.directories.indexes.contains_key(&directory) {
            let inode = self.inode(directory)?;
            if !inode.is_directory() {
                return refuse(libc::ENOTDIR);
            }
            let size = inode.size;
            if size / self.block_bytes() as u64 > BLOCKS_MAX {
                return refuse(libc::EIO);
            }
            let mut index = Index::default();
            let blocks = self.blocks_at(directory, 0..size / self.block_bytes() as u64)?;
            let present: Vec<u64> = blocks.iter().flatten().copied().collect();
            let missing = self.not_in_memory(&present);
            if self.may_begin_anew && !missing.is_empty() {
                return Err(FsError::NotInMemory { blocks: missing });
            }
            for (at, block) in (0..).zip(blocks) {
                let Some(block) = block else {
                    index.used.push(None);
                    continue;
                };
                let entries = self.directory_block(block, directory)?;
                index.used.push(Some(entries.iter().map(Entry::bytes).sum()));
                for Entry { name, inode, kind } in entries {
                    let known = Known { inode: *inode, kind: *kind, at };
                    index.names.insert(name.clone(), known);
                }
            }
            if self.directories.names + index.names.len() > NAMES_MAX {
                self.directories = Directories::default();
            }
            self.directories.names += index.names.len();
            self.directories.indexes.insert(directory, index);
        }
        Ok(self.directories.indexes.get_mut(&directory).expect("it is there now"))
    }

    /// What a name stands for, and which kind of file that is.
    pub(crate) fn find(&mut self, directory: u64, name: &[u8]) -> FsResult<Option<(u64, u8)>> {
        if name.len() > NAME_BYTES_MAX {
            return refuse(libc::ENAMETOOLONG);
        }
        let known = self.index(directory)?.names.get(name);
        Ok(known.map(|known| (known.inode, known.kind)))
    }

    /// All names, sorted; without `.` and `..`.
    pub fn list(&mut self, directory: u64) -> FsResult<Vec<Listed>> {
        let names = self.index(directory)?.names.iter();
        let mut listed: Vec<Listed> = names
            .map(|(name, known)| Listed {
                name: name.clone(),
                inode: known.inode,
                kind: known.kind,
            })
            .collect();
        listed.sort_unstable_by_key(|it| it.inode);
        Ok(listed)
    }

    pub(crate) fn is_empty(&mut self, directory: u64) -> FsResult<bool> {
        Ok(self.index(directory)?.names.is_empty())
    }

    /// Finds room for a name that is not there yet.
    pub(crate) fn room_for(&mut self, directory: u64, name: &[u8]) -> FsResult<Room> {
        if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return refuse(libc::EINVAL);
        }
        if name.len() > NAME_BYTES_MAX {
            return refuse(libc::ENAMETOOLONG);
        }
        let entry = Entry { name: name.into(), inode: 0, kind: 0 };
        let free = room(self.block_bytes()) - entry.bytes();
        let used = &self.index(directory)?.used;
        if let Some(at) = used.iter().position(|used| used.is_some_and(|used| used <= free)) {
            self.load_directory_block(directory, at as u64)?;
            return Ok(Room { at: at as u64, wanted: Vec::new() });
        }
        let hole = used.iter().position(Option::is_none);
        let at = hole.unwrap_or(used.len()) as u64;
        if at >= BLOCKS_MAX {
            return refuse(libc::EFBIG);
        }
        let lists = self.missing_lists(directory, [at].into_iter())?;
        let mut wanted = vec![self.list_allocation(directory, Attributes::NONE); lists];
        wanted.push(Allocation { near: Some(directory), attributes: Attributes::METADATA });
        Ok(Room { at, wanted })
    }

    /// Adds a name where there is room for it. `blocks` are those that were wanted.
    pub(crate) fn add(
        &mut self,
        directory: u64,
        entry: Entry,
        room: &Room,
        mut blocks: Vec<u64>,
    ) -> FsResult<()> {
        let Room { at, wanted } = room;
        let block_bytes = self.block_bytes() as u64;
        debug_assert_eq!(blocks.len(), wanted.len());
        if let Some(block) = blocks.pop() {
            self.insert_metadata(block, directory, Metadata::Directory(Vec::new()));
            self.attach(directory, *at, block, &mut blocks)?;
            let inode = self.change_inode(directory)?;
            inode.size = inode.size.max((at + 1) * block_bytes);
            let used = &mut self.index(directory)?.used;
            used.resize(used.len().max(*at as usize + 1), None);
            used[*at as usize] = Some(0);
        }
        let block = self.directory_block_at(directory, *at)?;
        let entries = self.change_directory_block(block, directory)?;
        let is_pointed_to = entries.iter().any(|it| it.inode == entry.inode);
        entries.push(entry.clone());
        if !is_pointed_to {
            self.pointers.create(block, entry.inode);
        }
        let bytes = entry.bytes();
        let known = Known { inode: entry.inode, kind: entry.kind, at: *at };
        let index = self.index(directory)?;
        *index.used[*at as usize].get_or_insert(0) += bytes;
        index.names.insert(entry.name, known);
        self.directories.names += 1;
        self.touch(directory)
    }

    /// Lets a name stand for something else.
    pub(crate) fn replace(&mut self, directory: u64, entry: Entry) -> FsResult<()> {
        let Entry { name, inode, kind } = entry;
        self.load_name(directory, &name)?;
        let Some(known) = self.index(directory)?.names.get_mut(&name) else {
            return refuse(libc::ENOENT);
        };
        let old = std::mem::replace(known, Known { inode, kind, at: known.at });
        let block = self.directory_block_at(directory, old.at)?;
        let entries = self.change_directory_block(block, directory)?;
        let was_pointed_to = entries.iter().any(|it| it.inode == inode);
        for entry in entries.iter_mut().filter(|it| it.name == name) {
            (entry.inode, entry.kind) = (inode, kind);
        }
        let is_pointed_to = entries.iter().any(|it| it.inode == old.inode);
        if !was_pointed_to {
            self.pointers.create(block, inode);
        }
        if !is_pointed_to {
            self.pointers.delete(block, old.inode);
        }
        self.touch(directory)
    }

    /// Removes a name.
    pub(crate) fn remove_name(&mut self, directory: u64, name: &[u8]) -> FsResult<()> {
        self.load_name(directory, name)?;
        let index = self.index(directory)?;
        let Some(known) = index.names.remove(name) else { return refuse(libc::ENOENT) };
        self.directories.names -= 1;
        let block = self.directory_block_at(directory, known.at)?;
        let entries = self.change_directory_block(block, directory)?;
        entries.retain(|entry| *entry.name != *name);
        let is_pointed_to = entries.iter().any(|entry| entry.inode == known.inode);
        let used = entries.iter().map(Entry::bytes).sum();
        if !is_pointed_to {
            self.pointers.delete(block, known.inode);
        }
        let at = known.at as usize;
        self.index(directory)?.used[at] = Some(used);
        // The first block stays: a directory that was used is used again.
        if used == 0 && at > 0 {
            self.detach(directory, known.at)?;
            let used = &mut self.index(directory)?.used;
            used[at] = None;
            while used.last().is_some_and(Option::is_none) {
                used.pop();
            }
            let blocks = used.len();
            let size = (blocks * self.block_bytes()) as u64;
            self.change_inode(directory)?.size = size;
        }
        self.touch(directory)
    }

    /// Brings the block with a name into memory, before anything is changed.
    pub(crate) fn load_name(&mut self, directory: u64, name: &[u8]) -> FsResult<()> {
        match self.index(directory)?.names.get(name).map(|known| known.at) {
            Some(at) => self.load_directory_block(directory, at),
            None => Ok(()),
        }
    }

    fn load_directory_block(&mut self, directory: u64, at: u64) -> FsResult<()> {
        let block = self.directory_block_at(directory, at)?;
        self.directory_block(block, directory).map(|_| ())
    }

    fn directory_block_at(&mut self, directory: u64, at: u64) -> FsResult<u64> {
        match self.block_at(directory, at)? {
            Some(block) => Ok(block),
            None => refuse(libc::EIO),
        }
    }

    fn touch(&mut self, directory: u64) -> FsResult<()> {
        let now = self.now();
        let inode = self.change_inode(directory)?;
        (inode.modified, inode.changed) = (now, now);
        Ok(())
    }
}
