//! Users that unpack an archive, copy the tree and remove it, each by himself (DCD Unix paper,
//! section 4.1), on a file system that writes metadata synchronously.
//!
//! Which blocks are written, and how often, is as in traces captured of `tar x`, `cp -r` and `rm
//! -r` on ext2 mounted `sync,dirsync`:
//!
//! ```text
//!   folder made      block of the parent folder, block of inodes, block of the folder
//!   file unpacked    block of the folder; for each piece: data, block of inodes
//!   file copied      the same, and the block of inodes once more
//!   file removed     block of the folder
//!   folder removed   block of inodes, block of the parent folder
//! ```
//!
//! A piece of an unpacked file ends where a record of the archive does. Data go to new places, one
//! behind the other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use super::pattern::Access;
use super::request;
use crate::random::Random;
use crate::trace::{Flags, Operation, Request};

/// Block of the file system.
const BLOCK_BYTES: u64 = 4096;
/// Inodes of 256 bytes.
const INODES_PER_BLOCK: u64 = 16;
/// What tar reads and writes at once.
const RECORD_BYTES: u64 = 10_240;
const HEADER_BYTES: u64 = 512;
/// What cp writes at once: the captured traces have 1.3 writes of data per copied file.
const COPY_BYTES: u64 = 16_384;
/// Read-ahead.
const READ_BYTES: u64 = 65_536;
/// Sizes of files are log-normal. The tree of the paper has a mean of 9.9 KB, a median of 4,121
/// bytes, and no file of more than 251,225.
const SIZE_SIGMA: f64 = 1.34;
const SIZE_MAX_MEANS: u64 = 28;

const SYNC_METADATA: Flags = Flags(Flags::SYNC.0 | Flags::METADATA.0);

/// What users do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// Untar, copy, remove both.
    All,
    /// Unpack a tree.
    Untar,
    /// Copy it.
    Copy,
    /// Remove it.
    Remove,
}

impl Task {
    fn steps(self) -> &'static [Step] {
        match self {
            Task::All => {
                &[Step::Untar, Step::Copy, Step::Remove(Tree::Original), Step::Remove(Tree::Copy)]
            }
            Task::Untar => &[Step::Untar],
            Task::Copy => &[Step::Copy],
            Task::Remove => &[Step::Remove(Tree::Original)],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Untar,
    Copy,
    Remove(Tree),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tree {
    Original,
    Copy,
}

/// Who does what, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsersSetup {
    pub(super) seed: u64,
    pub(super) users: u64,
    pub(super) task: Task,
    /// Files of a tree, and folders that they are in.
    pub(super) files: u64,
    pub(super) folders: u64,
    /// Their mean size.
    pub(super) file_bytes: u64,
    /// Mean time between two requests of a user.
    pub(super) think_ns: u64,
    pub(super) span_bytes: u64,
    /// What is copied has to be read.
    pub(super) is_cold: bool,
    /// Each piece of data is followed by a flush, as on ext2.
    pub(super) has_flushes: bool,
}

impl UsersSetup {
    /// Room that the users need at least.
    pub(super) fn span_bytes_needed(&self) -> u64 {
        let data_bytes = 2 * (self.file_bytes * SIZE_MAX_MEANS + BLOCK_BYTES);
        self.users * (2 * self.metadata_bytes() + data_bytes + 2 * BLOCK_BYTES)
    }

    /// Folders and inodes of a tree.
    fn metadata_bytes(&self) -> u64 {
        let inode_blocks = (self.folders + self.files).div_ceil(INODES_PER_BLOCK);
        (self.folders + inode_blocks) * BLOCK_BYTES
    }
}

/// The requests of all users, in order of time.
pub(super) struct Users {
    setup: UsersSetup,
    users: Vec<User>,
    /// Who comes next, and when; those who are done are not there.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Users {
    pub(super) fn new(setup: UsersSetup) -> Users {
        Users::from(setup, 0..setup.users)
    }

    /// Only that one; the others do nothing.
    pub(super) fn only(setup: UsersSetup, number: u64) -> Users {
        Users::from(setup, number..number + 1)
    }

    fn from(setup: UsersSetup, numbers: Range<u64>) -> Users {
        let next = (0..numbers.end - numbers.start).map(|index| Reverse((0, index as usize)));
        let next = next.collect();
        Users { setup, users: numbers.map(|number| User::new(&setup, number)).collect(), next }
    }
}

impl Iterator for Users {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        loop {
            let Reverse((time_ns, number)) = self.next.pop()?;
            let user = &mut self.users[number];
            let Some(access) = user.next_access(&self.setup) else { continue };
            let think_ns = user.random.exponential(self.setup.think_ns as f64) as u64;
            self.next.push(Reverse((time_ns.saturating_add(think_ns), number)));
            return Some(request(time_ns, access));
        }
    }
}

/// A user, somewhere in a step of the task.
struct User {
    random: Random,
    /// Sizes of files follow from this and their number: a copy is as large as the original.
    sizes_seed: u64,
    /// Where his part of the disk begins, and room for the data of a tree.
    start_bytes: u64,
    data_bytes: u64,
    step: usize,
    /// The next file and the next folder of this step.
    file: u64,
    folder: u64,
    /// Where the data of the next file are, in the tree that is written and in the one that is
    /// read.
    data_offset: u64,
    /// How far tar is in the archive.
    archive_bytes: u64,
    /// What comes next, of one file or folder.
    queue: VecDeque<Access>,
}

impl User {
    fn new(setup: &UsersSetup, number: u64) -> User {
        let part_bytes = setup.span_bytes / setup.users / BLOCK_BYTES * BLOCK_BYTES;
        let data_bytes = (part_bytes - 2 * setup.metadata_bytes()) / 2 / BLOCK_BYTES * BLOCK_BYTES;
        let mut seeds = Random::new(setup.seed ^ (number + 1).wrapping_mul(0xd1b5_4a32_d192_ed03));
        User {
            random: Random::new(seeds.bits()),
            sizes_seed: seeds.bits(),
            start_bytes: number * part_bytes,
            data_bytes,
            step: 0,
            file: 0,
            folder: 0,
            data_offset: 0,
            archive_bytes: 0,
            queue: VecDeque::new(),
        }
    }

    fn next_access(&mut self, setup: &UsersSetup) -> Option<Access> {
        loop {
            if let Some(access) = self.queue.pop_front() {
                return Some(access);
            }
            let step = *setup.task.steps().get(self.step)?;
            self.go_on(setup, step);
        }
    }

    /// Queues what the next file or folder of the step takes, or goes to the next step.
    fn go_on(&mut self, setup: &UsersSetup, step: Step) {
        // Files are spread evenly over the folders; a folder comes before its files.
        let folder_of_file = self.file * setup.folders / setup.files;
        let has_file = self.file < setup.files;
        if self.folder < setup.folders && (!has_file || self.folder <= folder_of_file) {
            let folder = self.folder;
            self.folder += 1;
            match step {
                Step::Untar => self.make_folder(setup, Tree::Original, folder),
                Step::Copy => {
                    self.read_metadata(setup, self.folder_block(setup, Tree::Original, folder));
                    self.make_folder(setup, Tree::Copy, folder);
                }
                // A folder is removed after its files: here, before those of the next.
                Step::Remove(tree) if folder > 0 => self.remove_folder(setup, tree, folder - 1),
                Step::Remove(_) => {}
            }
        } else if has_file {
            let file = self.file;
            self.file += 1;
            match step {
                Step::Untar => self.untar(setup, file, folder_of_file),
                Step::Copy => self.copy(setup, file, folder_of_file),
                Step::Remove(tree) => self.metadata(self.folder_block(setup, tree, folder_of_file)),
            }
        } else {
            if let Step::Remove(tree) = step {
                self.remove_folder(setup, tree, setup.folders - 1);
            }
            self.step += 1;
            (self.file, self.folder, self.data_offset, self.archive_bytes) = (0, 0, 0, 0);
        }
    }

    fn make_folder(&mut self, setup: &UsersSetup, tree: Tree, folder: u64) {
        self.metadata(self.folder_block(setup, tree, 0));
        self.metadata(self.inode_block(setup, tree, folder));
        self.metadata(self.folder_block(setup, tree, folder));
    }

    fn remove_folder(&mut self, setup: &UsersSetup, tree: Tree, folder: u64) {
        self.metadata(self.inode_block(setup, tree, folder));
        self.metadata(self.folder_block(setup, tree, 0));
    }

    fn untar(&mut self, setup: &UsersSetup, file: u64, folder: u64) {
        self.metadata(self.folder_block(setup, Tree::Original, folder));
        let inode = self.inode_block(setup, Tree::Original, setup.folders + file);
        let size = self.file_size(setup, file);
        let start = self.allocate(size) + self.data_start(setup, Tree::Original);
        self.archive_bytes += HEADER_BYTES;
        let mut done = 0;
        while done < size {
            let record_left = RECORD_BYTES - (self.archive_bytes + done) % RECORD_BYTES;
            let piece = record_left.min(size - done);
            self.data(setup, start, done, piece);
            self.metadata(inode);
            done += piece;
        }
        self.archive_bytes += size.next_multiple_of(HEADER_BYTES);
    }

    fn copy(&mut self, setup: &UsersSetup, file: u64, folder: u64) {
        let size = self.file_size(setup, file);
        let offset = self.allocate(size);
        let inode_number = setup.folders + file;
        if inode_number.is_multiple_of(INODES_PER_BLOCK) || file == 0 {
            self.read_metadata(setup, self.inode_block(setup, Tree::Original, inode_number));
        }
        self.metadata(self.folder_block(setup, Tree::Copy, folder));
        let inode = self.inode_block(setup, Tree::Copy, inode_number);
        self.metadata(inode);
        let source = offset + self.data_start(setup, Tree::Original);
        let start = offset + self.data_start(setup, Tree::Copy);
        let mut done = 0;
        while done < size {
            if setup.is_cold && done.is_multiple_of(READ_BYTES) {
                let size_bytes = READ_BYTES.min(size - done).next_multiple_of(BLOCK_BYTES);
                let flags = Flags::default();
                self.push(Operation::Read, source + done, size_bytes, flags);
            }
            let piece = COPY_BYTES.min(size - done);
            self.data(setup, start, done, piece);
            self.metadata(inode);
            done += piece;
        }
    }

    /// Room for a file behind the one before; from the beginning again where there is none.
    fn allocate(&mut self, size: u64) -> u64 {
        let size = size.next_multiple_of(BLOCK_BYTES);
        if self.data_offset + size > self.data_bytes {
            self.data_offset = 0;
        }
        let offset = self.data_offset;
        self.data_offset += size;
        offset
    }

    fn file_size(&self, setup: &UsersSetup, file: u64) -> u64 {
        let mut random = Random::new(self.sizes_seed ^ file.wrapping_mul(0x9fb2_1c65_1e98_df25));
        let median = setup.file_bytes as f64 / (SIZE_SIGMA * SIZE_SIGMA / 2.0).exp();
        let size = median * (SIZE_SIGMA * random.normal()).exp();
        (size as u64).clamp(1, setup.file_bytes * SIZE_MAX_MEANS)
    }

    /// The tree's folders, its inodes, the other tree's, data of the one, data of the other.
    fn folder_block(&self, setup: &UsersSetup, tree: Tree, folder: u64) -> u64 {
        let tree_start = match tree {
            Tree::Original => self.start_bytes,
            Tree::Copy => self.start_bytes + setup.metadata_bytes(),
        };
        tree_start + folder * BLOCK_BYTES
    }

    fn inode_block(&self, setup: &UsersSetup, tree: Tree, inode: u64) -> u64 {
        self.folder_block(setup, tree, setup.folders + inode / INODES_PER_BLOCK)
    }

    fn data_start(&self, setup: &UsersSetup, tree: Tree) -> u64 {
        let start = self.start_bytes + 2 * setup.metadata_bytes();
        if tree == Tree::Copy { start + self.data_bytes } else { start }
    }

    fn metadata(&mut self, offset_bytes: u64) {
        self.push(Operation::Write, offset_bytes, BLOCK_BYTES, SYNC_METADATA);
    }

    fn read_metadata(&mut self, setup: &UsersSetup, offset_bytes: u64) {
        if setup.is_cold {
            self.push(Operation::Read, offset_bytes, BLOCK_BYTES, Flags::METADATA);
        }
    }

    /// Writes the blocks that a piece of a file touches.
    fn data(&mut self, setup: &UsersSetup, file_start: u64, done: u64, piece: u64) {
        let first = done / BLOCK_BYTES * BLOCK_BYTES;
        let end = (done + piece).next_multiple_of(BLOCK_BYTES);
        self.push(Operation::Write, file_start + first, end - first, Flags::SYNC);
        if setup.has_flushes {
            self.push(Operation::Flush, 0, 0, Flags::PREFLUSH);
        }
    }

    fn push(&mut self, operation: Operation, offset_bytes: u64, size_bytes: u64, flags: Flags) {
        self.queue.push_back(Access { operation, offset_bytes, size_bytes, flags });
    }
}
