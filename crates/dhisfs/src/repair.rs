//! Mends a damaged file system as far as it can be mended. It is looked through without changing
//! anything; then files that nothing names any more, because what named them is damaged, get a name
//! in `lost+found`; only then goes what cannot be saved, since the device frees what nothing points
//! to. All of it are changes as any others, so a crash in the middle leaves a file system that is
//! mended in part.
//!
//! | damage | becomes |
//! |---|---|
//! | a list, or a pointer to a block that is not on the device, behind the end, or another file's that was seen before | a hole |
//! | a block of a directory | its names are lost; the files go to `lost+found` |
//! | an inode of a directory | made anew, with the names that are in its blocks |
//! | any other inode | its names go, and its contents with it |
//! | wrong counts of names or blocks, kinds, parents | what was counted |
//! | pointers that the device does not know | told again |
//! | blocks that are used for nothing | freed |

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dcd_client::{BlockDevice, PointerChange};

use crate::commit::{tell_pointers, tell_while_there_is_room};
use crate::error::FsResult;
use crate::file_system::FileSystem;
use crate::format::directory_block::{self, Entry};
use crate::format::inode::{Inode, MODE_DIRECTORY, slots};
use crate::format::superblock::SUPERBLOCK;
use crate::fsck::Report;
use crate::metadata::Metadata;
use crate::namespace::NewFile;
use crate::pointers::Need;

/// What is mended may let other damage be seen: so often it is looked through again.
const PASSES_MAX: usize = 12;
/// Pointers that the device may have and should not have: so many are tried.
const TRIES_MAX: usize = 1 << 20;
/// Where files go that have lost their name.
const LOST_AND_FOUND: &[u8] = b"lost+found";
const KIND_DIRECTORY: u8 = (MODE_DIRECTORY >> 12) as u8;

/// What a repair has done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Repaired {
    /// In words, one for each thing that was mended.
    pub done: Vec<String>,
    /// What was found afterwards: whatever could not be mended.
    pub left: Report,
}

/// Something to be mended.
enum Fix {
    /// A place in an inode or in a list becomes a hole.
    Clear { file: u64, from: u64, place: usize },
    /// A name goes.
    DropName { directory: u64, block: u64, name: Box<[u8]> },
    /// A name says what kind its file is.
    Kind { directory: u64, block: u64, name: Box<[u8]>, kind: u8 },
    /// An inode says how many names and blocks it has, how long it is, and where it is.
    Inode { inode: u64, links: u32, blocks: u64, size: u64, parent: u64 },
    /// An inode of a directory is made anew.
    Directory { inode: u64, parent: u64, blocks: Vec<u64> },
}

/// What was seen in one pass.
#[derive(Default)]
struct Seen {
    /// Which inode uses a block.
    used: HashMap<u64, u64>,
    /// Of files and directories that can be reached.
    inodes: BTreeMap<u64, Counted>,
    /// Blocks that have room on the device.
    mapped: BTreeSet<u64>,
    /// All pointers that the device has to know.
    pointers: Vec<(u64, u64)>,
    fixes: Vec<(String, Fix)>,
}

#[derive(Default)]
struct Counted {
    links: u32,
    blocks: u64,
    /// One more than the last block.
    end: u64,
    parent: u64,
    is_orphan: bool,
}

impl Seen {
    fn fix(&mut self, text: String, fix: Fix) {
        self.fixes.push((text, fix));
    }
}

/// A place that points to a block of a file.
#[derive(Clone, Copy)]
struct Place {
    file: u64,
    from: u64,
    place: usize,
    block: u64,
    level: usize,
    index: u64,
}

impl<D: BlockDevice> FileSystem<D> {
    /// Mends what can be mended. Nothing else may be done meanwhile.
    pub fn repair(&mut self) -> FsResult<Repaired> {
        let mut done = Vec::new();
        for _ in 0..PASSES_MAX {
            self.checkpoint()?;
            self.device.settle()?;
            self.directories = Default::default();
            let mut seen = self.look()?;
            let found = self.name_the_lost(&mut seen, &mut done)?;
            if found {
                continue;
            }
            if seen.fixes.is_empty() {
                if !self.mend_device(&seen, &mut done)? {
                    break;
                }
                continue;
            }
            for (text, fix) in std::mem::take(&mut seen.fixes) {
                self.change(|this| this.mend(fix))?;
                done.push(text);
            }
        }
        self.directories = Default::default();
        Ok(Repaired { done, left: self.check()? })
    }

    /// Goes through everything that can be reached, and changes nothing.
    fn look(&mut self) -> FsResult<Seen> {
        let mut seen = Seen::default();
        for run in self.device.mapped(0..self.blocks())? {
            seen.mapped.extend(run);
        }
        let superblock = self.superblock.clone();
        let headers = superblock.journal_headers.iter();
        let below = headers.chain(&superblock.journal_indexes);
        let below = below.chain([&superblock.root, &superblock.orphans]);
        seen.pointers.extend(below.map(|block| (SUPERBLOCK, *block)));
        let per_index = crate::format::superblock::Superblock::per_index(superblock.block_bytes);
        for (index, list) in
            superblock.journal_indexes.iter().zip(self.journal.blocks().chunks(per_index))
        {
            seen.pointers.extend(list.iter().map(|block| (*index, *block)));
        }
        let fixed: Vec<u64> = seen.pointers.iter().map(|(_, to)| *to).collect();
        seen.used.extend(fixed.into_iter().map(|block| (block, SUPERBLOCK)));
        seen.used.insert(SUPERBLOCK, SUPERBLOCK);
        let mut open = Vec::new();
        for directory in [superblock.root, superblock.orphans] {
            seen.used.insert(directory, directory);
            let counted = Counted { links: 2, parent: directory, ..Counted::default() };
            seen.inodes.insert(directory, counted);
            open.push(directory);
        }
        while let Some(directory) = open.pop() {
            self.look_at_directory(directory, &mut seen, &mut open)?;
        }
        self.look_at_counts(&mut seen)?;
        Ok(seen)
    }

    fn look_at_directory(
        &mut self,
        directory: u64,
        seen: &mut Seen,
        open: &mut Vec<u64>,
    ) -> FsResult<()> {
        if !self.inode(directory).is_ok_and(Inode::is_directory) {
            // Its blocks say whose they are.
            let blocks = self.blocks_of_directory(directory, seen)?;
            let text = format!(
                "directory {directory} was damaged and is made anew, with {} blocks of names",
                blocks.len()
            );
            let parent = seen.inodes[&directory].parent;
            seen.fix(text, Fix::Directory { inode: directory, parent, blocks });
            return Ok(());
        }
        let is_orphanage = directory == self.superblock.orphans;
        let mut names = BTreeSet::new();
        for block in self.look_at_blocks(directory, seen)? {
            // It was looked at.
            let entries = self.directory_block(block, directory)?.clone();
            let mut pointed_to = BTreeSet::new();
            for Entry { name, inode, kind } in entries {
                let text = String::from_utf8_lossy(&name).into_owned();
                let drop = Fix::DropName { directory, block, name: name.clone() };
                let why = self.look_at_name(directory, inode, kind, seen, open);
                let why = match why {
                    Ok(_) if !names.insert(name.clone()) => Err("is there twice"),
                    why => why,
                };
                match why {
                    Err(why) => {
                        seen.fix(format!("{text:?} in directory {directory} {why}: removed"), drop);
                    }
                    Ok(found) => {
                        if found != kind {
                            let text = format!("{text:?} in directory {directory} is another kind");
                            seen.fix(text, Fix::Kind { directory, block, name, kind: found });
                        }
                        if pointed_to.insert(inode) {
                            seen.pointers.push((block, inode));
                        }
                        let counted = seen.inodes.get_mut(&inode).expect("it was looked at");
                        counted.is_orphan |= is_orphanage;
                    }
                }
            }
        }
        Ok(())
    }

    /// What a name stands for: its kind, or why the name has to go.
    fn look_at_name(
        &mut self,
        directory: u64,
        inode: u64,
        kind: u8,
        seen: &mut Seen,
        open: &mut Vec<u64>,
    ) -> Result<u8, &'static str> {
        let found = match self.inode(inode) {
            Ok(found) => found.kind(),
            // It is made anew when its turn comes.
            Err(_) if kind == KIND_DIRECTORY && seen.mapped.contains(&inode) => KIND_DIRECTORY,
            Err(_) => return Err("has no inode"),
        };
        if !seen.mapped.contains(&inode) {
            return Err("has an inode without room on the device");
        }
        if let Some(counted) = seen.inodes.get_mut(&inode) {
            if found == KIND_DIRECTORY {
                return Err("is a directory that has another name");
            }
            counted.links += 1;
            return Ok(found);
        }
        if seen.used.insert(inode, inode).is_some() {
            return Err("has an inode that is something else");
        }
        let links = if found == KIND_DIRECTORY { 2 } else { 1 };
        seen.inodes.insert(inode, Counted { links, parent: directory, ..Counted::default() });
        if found == KIND_DIRECTORY {
            open.push(inode);
            // Its `..` leads nowhere if it has no name.
            let links = u32::from(directory != self.superblock.orphans);
            seen.inodes.get_mut(&directory).expect("it is being looked at").links += links;
        } else if self.look_at_blocks(inode, seen).is_err() {
            return Err("cannot be read");
        }
        Ok(found)
    }

    /// All blocks of a file or directory. Those of contents that stay, if it is a directory.
    fn look_at_blocks(&mut self, file: u64, seen: &mut Seen) -> FsResult<Vec<u64>> {
        let inode = self.inode(file)?;
        let is_directory = inode.is_directory();
        let end = match is_directory {
            true => u64::MAX,
            false => inode.size.div_ceil(self.block_bytes() as u64),
        };
        let mut stay = Vec::new();
        let mut open = self.places_of_inode(file)?;
        while let Some(at) = open.pop() {
            let Place { file, from, place, block, level, index } = at;
            let why = if !seen.mapped.contains(&block) {
                Some("has no room on the device")
            } else if seen.used.contains_key(&block) {
                Some("is used for something else")
            } else if level == 0 && index >= end {
                Some("is behind the end")
            } else if level > 0 && self.indirect(block, file).is_err() {
                Some("is a damaged list")
            } else if level == 0 && is_directory && self.directory_block(block, file).is_err() {
                Some("is damaged, and its names are lost")
            } else {
                None
            };
            if let Some(why) = why {
                let text = format!("block {block} of inode {file} {why}: removed from it");
                seen.fix(text, Fix::Clear { file, from, place });
                continue;
            }
            seen.used.insert(block, file);
            seen.pointers.push((from, block));
            let counted = seen.inodes.get_mut(&file).expect("it is being looked at");
            counted.blocks += 1;
            if level > 0 {
                open.extend(self.places_of_list(at)?);
            } else {
                counted.end = counted.end.max(index + 1);
                if is_directory {
                    stay.push(block);
                }
            }
        }
        Ok(stay)
    }

    fn places_of_inode(&mut self, file: u64) -> FsResult<Vec<Place>> {
        let slots = self.inode(file)?.slots.clone();
        let places = slots.into_iter().enumerate().filter(|(_, block)| *block != 0);
        let places = places.map(|(place, block)| {
            let (index, level) = self.below_slot(place);
            Place { file, from: file, place, block, level, index }
        });
        Ok(places.collect())
    }

    fn places_of_list(&mut self, list: Place) -> FsResult<Vec<Place>> {
        let Place { file, block: from, index, .. } = list;
        let level = list.level - 1;
        let span = self.span_of(level);
        let entries = self.indirect(from, file)?.iter().copied().enumerate();
        let places = entries.filter(|(_, block)| *block != 0).map(|(place, block)| Place {
            file,
            from,
            place,
            block,
            level,
            index: index + place as u64 * span,
        });
        Ok(places.collect())
    }

    /// Whether inodes say of themselves what was counted.
    fn look_at_counts(&mut self, seen: &mut Seen) -> FsResult<()> {
        let block_bytes = self.block_bytes() as u64;
        let mut fixes = Vec::new();
        for (inode, counted) in &seen.inodes {
            let Ok(noted) = self.inode(*inode) else { continue };
            let is_directory = noted.is_directory();
            let links = if counted.is_orphan { noted.links } else { counted.links };
            let size = if is_directory { counted.end * block_bytes } else { noted.size };
            let parent = if is_directory { counted.parent } else { noted.parent };
            // A directory may be longer than its last block: its last ones may have gone.
            let size = if is_directory && noted.size % block_bytes == 0 {
                noted.size.max(size)
            } else {
                size
            };
            let now = (links, counted.blocks, size, parent);
            if (noted.links, noted.blocks, noted.size, noted.parent) != now {
                let text = format!(
                    "inode {inode} had {} names and {} blocks and has {links} and {}",
                    noted.links, noted.blocks, counted.blocks
                );
                let blocks = counted.blocks;
                fixes.push((text, Fix::Inode { inode: *inode, links, blocks, size, parent }));
            }
        }
        // What is counted with damage in the way is counted again without it.
        if seen.fixes.is_empty() {
            seen.fixes = fixes;
        }
        Ok(())
    }

    /// Blocks that have room on the device and are used for nothing.
    fn unused(&self, seen: &Seen) -> Vec<u64> {
        let waiting: BTreeSet<u64> = self.allocator.all_waiting().collect();
        let unused = seen.mapped.iter().copied();
        unused.filter(|block| !seen.used.contains_key(block) && !waiting.contains(block)).collect()
    }

    /// Unused blocks that say that they belong to this directory.
    fn blocks_of_directory(&mut self, directory: u64, seen: &Seen) -> FsResult<Vec<u64>> {
        let mut found = Vec::new();
        for block in self.unused(seen) {
            if self.directory_block(block, directory).is_ok() {
                found.push(block);
            }
        }
        // More have no room in the inode itself: their files go to `lost+found`.
        found.truncate(slots(self.block_bytes()) - 3);
        Ok(found)
    }

    /// Names for inodes that nothing names. Whether there were any.
    fn name_the_lost(&mut self, seen: &mut Seen, done: &mut Vec<String>) -> FsResult<bool> {
        let made_anew: BTreeSet<u64> = seen
            .fixes
            .iter()
            .filter_map(|(_, fix)| match fix {
                Fix::Directory { blocks, .. } => Some(blocks.clone()),
                _ => None,
            })
            .flatten()
            .collect();
        let mut lost = BTreeSet::new();
        for block in self.unused(seen) {
            if self.inode(block).is_ok_and(|inode| inode.links > 0) {
                lost.insert(block);
            }
        }
        // Those that are named in directories that are lost, too, or made anew, come with these.
        let mut named = BTreeSet::new();
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for directory in lost.clone() {
            if self.inode(directory).is_ok_and(Inode::is_directory) {
                let places = self.places_of_inode(directory)?;
                blocks.extend(
                    places.iter().filter(|at| at.level == 0).map(|at| (at.block, directory)),
                );
            }
        }
        let owners: BTreeMap<u64, u64> = seen
            .fixes
            .iter()
            .filter_map(|(_, fix)| match fix {
                Fix::Directory { inode, blocks, .. } => Some((*inode, blocks)),
                _ => None,
            })
            .flat_map(|(inode, blocks)| blocks.iter().map(move |block| (*block, inode)))
            .collect();
        blocks.extend(owners.into_iter().filter(|(block, _)| made_anew.contains(block)));
        for (block, directory) in blocks {
            if let Ok(entries) = self.directory_block(block, directory) {
                let others = entries.iter().map(|entry| entry.inode);
                named.extend(others.filter(|inode| *inode != directory));
            }
        }
        // In a circle of directories one has to be named.
        let mut tops: Vec<u64> = lost.difference(&named).copied().collect();
        if tops.is_empty() && made_anew.is_empty() {
            tops.extend(lost.first());
        }
        // There is no place for them before the root directory is there again.
        let is_root_there = self.inode(self.root()).is_ok_and(Inode::is_directory);
        if tops.is_empty() || !is_root_there {
            return Ok(false);
        }
        for inode in tops {
            self.name_lost(inode)?;
            done.push(format!("inode {inode} had no name and is in lost+found"));
        }
        Ok(true)
    }

    fn name_lost(&mut self, inode: u64) -> FsResult<()> {
        let root = self.root();
        let directory = match self.find(root, LOST_AND_FOUND)? {
            Some((directory, KIND_DIRECTORY)) if self.inode(directory).is_ok() => directory,
            Some(_) => root,
            None => {
                let new = NewFile { mode: MODE_DIRECTORY | 0o700, ..NewFile::default() };
                self.create(root, LOST_AND_FOUND, &new)?
            }
        };
        self.change(|this| {
            let name = format!("#{inode}").into_bytes();
            let kind = this.inode(inode)?.kind();
            let room = this.room_for(directory, &name)?;
            let blocks = this.allocate(&room.wanted, room.wanted.len() + 1, Need::More)?;
            this.add(directory, Entry { name: name.into(), inode, kind }, &room, blocks)
        })
    }

    fn mend(&mut self, fix: Fix) -> FsResult<()> {
        match fix {
            Fix::Clear { file, from, place } => {
                let places = match from == file {
                    true => &mut self.change_inode(file)?.slots,
                    false => self.change_indirect(from, file)?,
                };
                let block = std::mem::take(&mut places[place]);
                if !places.contains(&block) {
                    self.pointers.delete(from, block);
                }
            }
            Fix::DropName { directory, block, name } => {
                let entries = self.change_directory_block(block, directory)?;
                let Some(at) = entries.iter().rposition(|entry| entry.name == name) else {
                    return Ok(());
                };
                let gone = entries.remove(at).inode;
                if !entries.iter().any(|entry| entry.inode == gone) {
                    self.pointers.delete(block, gone);
                }
            }
            Fix::Kind { directory, block, name, kind } => {
                let entries = self.change_directory_block(block, directory)?;
                entries.iter_mut().filter(|it| it.name == name).for_each(|it| it.kind = kind);
            }
            Fix::Inode { inode, links, blocks, size, parent } => {
                let noted = self.change_inode(inode)?;
                (noted.links, noted.blocks) = (links, blocks);
                (noted.size, noted.parent) = (size, parent);
            }
            Fix::Directory { inode, parent, blocks } => {
                let generation = self.new_generation();
                let block_bytes = self.block_bytes();
                let mut new = Inode::empty_directory(generation, block_bytes, self.now());
                new.parent = parent;
                new.blocks = blocks.len() as u64;
                new.size = new.blocks * block_bytes as u64;
                new.slots[..blocks.len()].copy_from_slice(&blocks);
                self.insert_metadata(inode, inode, Metadata::Inode(new));
                for block in blocks {
                    self.pointers.create(inode, block);
                }
            }
        }
        Ok(())
    }

    /// Whether the device had to be told something that it should have known.
    fn mend_device(&mut self, seen: &Seen, done: &mut Vec<String>) -> FsResult<bool> {
        let usage = self.device.usage()?;
        let (known, wanted) = (usage.pointers, seen.pointers.len() as u64);
        let creates = seen.pointers.iter().map(|(from, to)| PointerChange::create(*from, *to));
        // For those that find no room there may be some when others have gone; the check tells what
        // is left.
        tell_while_there_is_room(&mut self.device, &creates.collect::<Vec<_>>())?;
        self.is_unflushed = true;
        let told = self.device.usage()?.pointers.saturating_sub(known);
        if told > 0 {
            done.push(format!("the device did not know {told} of {wanted} pointers: told"));
        }
        // What is left is nobody's. Blocks of metadata say who may still point to them.
        let unused = self.unused(seen);
        for block in &unused {
            let mut bytes = vec![0; self.block_bytes()];
            crate::runs::read_blocks(&mut self.device, &[Some(*block)], &mut bytes)?;
            let owner = directory_block::decode(&bytes, *block, self.blocks()).map(|it| it.1);
            let owner = owner.or_else(|_| {
                crate::format::indirect::decode(&bytes, *block, self.blocks()).map(|it| it.1)
            });
            if let Ok(owner) = owner {
                tell_pointers(&mut self.device, &[PointerChange::delete(owner, *block)])?;
            }
        }
        // Blocks of contents do not say it: who points to anything is asked.
        if self.device.usage()?.pointers > wanted {
            let sources: BTreeSet<u64> = seen.pointers.iter().map(|(from, _)| *from).collect();
            let tries = sources.len().saturating_mul(unused.len());
            let tried = if tries <= TRIES_MAX { &unused[..] } else { &[] };
            for block in tried {
                let tries = sources.iter().map(|from| PointerChange::delete(*from, *block));
                tell_pointers(&mut self.device, &tries.collect::<Vec<_>>())?;
            }
        }
        // One that was allocated is freed with a pointer that comes and goes. One that was not has
        // no pointers.
        let mut unmanaged = Vec::new();
        for block in &unused {
            let pointer = PointerChange::create(SUPERBLOCK, *block);
            match self.device.change_pointers(&[pointer]).pop() {
                Some(Ok(())) => {
                    let gone = PointerChange::delete(SUPERBLOCK, *block);
                    tell_pointers(&mut self.device, &[gone])?;
                }
                _ => unmanaged.push(*block..*block + 1),
            }
        }
        self.device.discard(&unmanaged)?;
        self.device.flush()?;
        self.device.settle()?;
        self.measure()?;
        let mapped = self.device.usage()?.mapped;
        let freed = usage.mapped.saturating_sub(mapped);
        if freed > 0 {
            done.push(format!("{freed} blocks were used for nothing: freed"));
        }
        Ok(told + freed > 0)
    }
}
