//! Checks a file system: the tree of names, the number of names of each file, that each block is
//! used once and is the device's to use, and that the device knows as many pointers as there are.

use std::collections::{HashMap, HashSet};

use dcd_client::BlockDevice;

use crate::error::FsResult;
use crate::file_system::FileSystem;
use crate::format::superblock::SUPERBLOCK;

/// So many problems are told one by one.
const PROBLEMS_MAX: usize = 1000;

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// In words, one for each; empty if all is well.
    pub problems: Vec<String>,
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links and special files.
    pub others: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Pointers between them.
    pub pointers: u64,
}

struct Checked {
    report: Report,
    /// Which inode uses a block.
    used: HashMap<u64, u64>,
    /// Names found, names noted, and whether it is a directory.
    inodes: HashMap<u64, Links>,
}

struct Links {
    found: u32,
    noted: u32,
}

impl Checked {
    fn problem(&mut self, text: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(text);
        }
    }

    /// Notes that a block is in use; whether that is news.
    fn use_block(&mut self, block: u64, owner: u64) -> bool {
        match self.used.insert(block, owner) {
            None => true,
            Some(other) => {
                self.problem(format!("block {block} belongs to inode {owner} and to {other}"));
                false
            }
        }
    }
}

impl<D: BlockDevice> FileSystem<D> {
    /// Checks everything. Nothing else may be done meanwhile, and everything is made durable
    /// before.
    pub fn check(&mut self) -> FsResult<Report> {
        self.sync()?;
        self.checkpoint()?;
        let mut checked =
            Checked { report: Report::default(), used: HashMap::new(), inodes: HashMap::new() };
        let superblock = self.superblock.clone();
        let fixed = [SUPERBLOCK].into_iter().chain(superblock.journal_headers);
        for block in fixed.chain(superblock.journal_indexes.clone()) {
            checked.use_block(block, SUPERBLOCK);
        }
        for block in self.journal.blocks() {
            checked.use_block(*block, SUPERBLOCK);
        }
        let fixed = superblock.journal_headers.len() + superblock.journal_indexes.len() + 2;
        checked.report.pointers = fixed as u64 + superblock.journal_blocks;
        for directory in [superblock.root, superblock.orphans] {
            checked.use_block(directory, directory);
            let noted = self.inode(directory).map_or(0, |inode| inode.links);
            checked.inodes.insert(directory, Links { found: 2, noted });
            self.check_tree(directory, &mut checked)?;
        }
        for (inode, links) in &checked.inodes {
            if links.found != links.noted && !self.is_orphan(*inode) {
                let text = format!(
                    "inode {inode} has {} names and says that it has {}",
                    links.found, links.noted
                );
                if checked.report.problems.len() < PROBLEMS_MAX {
                    checked.report.problems.push(text);
                }
            }
        }
        self.check_device(&mut checked)?;
        checked.report.blocks = checked.used.len() as u64;
        checked.report.problems.sort();
        Ok(checked.report)
    }

    fn is_orphan(&mut self, inode: u64) -> bool {
        let name = inode.to_string();
        matches!(self.find(self.superblock.orphans, name.as_bytes()), Ok(Some(_)))
    }

    /// A directory that is in use already, and all below it.
    fn check_tree(&mut self, root: u64, checked: &mut Checked) -> FsResult<()> {
        let mut open = vec![root];
        while let Some(directory) = open.pop() {
            checked.report.directories += 1;
            if let Err(error) = self.check_blocks(directory, checked) {
                checked.problem(format!("directory {directory}: {error}"));
                continue;
            }
            let listed = match self.list(directory) {
                Ok(listed) => listed,
                Err(error) => {
                    checked.problem(format!("directory {directory}: {error}"));
                    continue;
                }
            };
            for entry in listed {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                let inode = match self.inode(entry.inode) {
                    Ok(inode) => inode,
                    Err(error) => {
                        checked.problem(format!("{name:?} in directory {directory}: {error}"));
                        continue;
                    }
                };
                let (noted, kind, parent) = (inode.links, inode.kind(), inode.parent);
                let (is_directory, is_file) = (inode.is_directory(), inode.is_file());
                if kind != entry.kind {
                    checked.problem(format!("{name:?} in directory {directory} is another kind"));
                }
                if let Some(links) = checked.inodes.get_mut(&entry.inode) {
                    links.found += 1;
                    if is_directory {
                        checked.problem(format!("directory {} has several names", entry.inode));
                    }
                    continue;
                }
                let found = if is_directory { 2 } else { 1 };
                checked.inodes.insert(entry.inode, Links { found, noted });
                if !checked.use_block(entry.inode, entry.inode) {
                    continue;
                }
                if is_directory {
                    if parent != directory {
                        checked.problem(format!(
                            "directory {} is in {directory} and says that it is in {parent}",
                            entry.inode
                        ));
                    }
                    // Its `..` leads nowhere if it has no name.
                    if let Some(links) = checked.inodes.get_mut(&directory)
                        && directory != self.superblock.orphans
                    {
                        links.found += 1;
                    }
                    open.push(entry.inode);
                } else {
                    let count = if is_file {
                        &mut checked.report.files
                    } else {
                        &mut checked.report.others
                    };
                    *count += 1;
                    if let Err(error) = self.check_blocks(entry.inode, checked) {
                        checked.problem(format!("inode {}: {error}", entry.inode));
                    }
                }
            }
        }
        Ok(())
    }

    /// The blocks of a file or directory.
    fn check_blocks(&mut self, file: u64, checked: &mut Checked) -> FsResult<()> {
        let inode = self.inode(file)?;
        let (noted, size, is_directory) = (inode.blocks, inode.size, inode.is_directory());
        let end = size.div_ceil(self.block_bytes() as u64);
        let mut counted = 0;
        self.walk(file, &mut |this, walked| {
            counted += 1;
            checked.report.pointers += 1;
            let is_news = checked.use_block(walked.block, file);
            if walked.level == 0 && walked.index >= end {
                checked.problem(format!("inode {file} has a block behind its end"));
            }
            if walked.level == 0 && is_directory {
                // One pointer for each inode that is named in it.
                let entries = this.directory_block(walked.block, file)?;
                let mut inodes: Vec<u64> = entries.iter().map(|entry| entry.inode).collect();
                inodes.sort_unstable();
                inodes.dedup();
                checked.report.pointers += inodes.len() as u64;
            }
            // A list that was seen already may list itself.
            Ok(is_news)
        })?;
        if counted != noted {
            checked
                .problem(format!("inode {file} has {counted} blocks and says that it has {noted}"));
        }
        Ok(())
    }

    /// Whether the device agrees.
    fn check_device(&mut self, checked: &mut Checked) -> FsResult<()> {
        self.device.settle()?;
        let mapped = self.device.mapped(0..self.blocks())?;
        let is_mapped = |block: u64| {
            let run = mapped.partition_point(|run| run.end <= block);
            mapped.get(run).is_some_and(|run| run.contains(&block))
        };
        let mut missing: Vec<_> =
            checked.used.iter().filter(|(block, _)| !is_mapped(**block)).collect();
        missing.sort_unstable();
        let missing: Vec<String> = missing
            .into_iter()
            .map(|(block, owner)| {
                format!("block {block} of inode {owner} has no room on the device")
            })
            .collect();
        missing.into_iter().for_each(|text| checked.problem(text));
        let usage = self.device.usage()?;
        let waiting = self.allocator.all_waiting().count();
        let expected = (checked.used.len() + waiting) as u64;
        if usage.mapped > expected {
            let leaked = usage.mapped - expected;
            let waiting: HashSet<u64> = self.allocator.all_waiting().collect();
            let unused = mapped.iter().cloned().flatten();
            let mut unused = unused
                .filter(|block| !checked.used.contains_key(block) && !waiting.contains(block));
            let first = unused.next().map_or_else(String::new, |block| format!(", {block} first"));
            let text = format!("{leaked} blocks are allocated on the device and not used{first}");
            checked.problem(text);
        }
        if usage.pointers != checked.report.pointers {
            checked.problem(format!(
                "the device knows {} pointers, and there are {}",
                usage.pointers, checked.report.pointers
            ));
        }
        Ok(())
    }
}
