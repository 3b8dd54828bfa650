//! Files come, get other names, and go.

use dcd_client::{Allocation, AttributeChange, Attributes, BlockDevice};

use crate::error::{FsResult, refuse};
use crate::file_system::FileSystem;
use crate::format::directory_block::Entry;
use crate::format::inode::{
    Inode, MODE_DIRECTORY, MODE_FILE, MODE_KIND, MODE_LINK, slots, target_bytes_max,
};
use crate::metadata::Metadata;
use crate::pointers::Need;

/// Most names of a file.
const LINKS_MAX: u32 = 1 << 30;
/// So many directories may be in each other; programs stop at paths of 4096 bytes, which may be
/// relative.
const DEPTH_MAX: u32 = 1 << 20;
/// Set on a directory: what is made in it has its group.
const MODE_SET_GROUP: u32 = 0o2000;

/// A file to be made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewFile {
    /// Kind and permissions; a regular file if it says no kind.
    pub mode: u32,
    /// Who owns it.
    pub uid: u32,
    /// And which group, unless the directory says so.
    pub gid: u32,
    /// Of a special file.
    pub device: u32,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
}

/// What `rename` does with a file that has the new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// It goes.
    Replace,
    /// It stays, and nothing is renamed.
    NoReplace,
}

impl<D: BlockDevice> FileSystem<D> {
    /// What a name stands for.
    pub fn lookup(&mut self, directory: u64, name: &[u8]) -> FsResult<u64> {
        if name == b".." {
            let inode = self.inode(directory)?;
            return match (inode.is_directory(), inode.links) {
                (true, 0) => refuse(libc::ENOENT),
                (true, _) => Ok(inode.parent),
                (false, _) => refuse(libc::ENOTDIR),
            };
        }
        match self.find(directory, name)? {
            Some((inode, _)) => {
                self.growth.named(inode, name);
                Ok(inode)
            }
            None => refuse(libc::ENOENT),
        }
    }

    /// Makes a file, directory, link or special file.
    pub fn create(&mut self, directory: u64, name: &[u8], new: &NewFile) -> FsResult<u64> {
        self.change(|this| this.create_inside(directory, name, new))
    }

    fn create_inside(&mut self, directory: u64, name: &[u8], new: &NewFile) -> FsResult<u64> {
        if self.find(directory, name)?.is_some() {
            return refuse(libc::EEXIST);
        }
        let block_bytes = self.block_bytes();
        if new.target.len() > target_bytes_max(block_bytes) {
            return refuse(libc::ENAMETOOLONG);
        }
        let parent = self.inode(directory)?;
        if parent.links == 0 {
            return refuse(libc::ENOENT);
        }
        let (mut mode, mut gid, mut hint) = (new.mode, new.gid, parent.hint);
        if mode & MODE_KIND == 0 {
            mode |= MODE_FILE;
        }
        let kind = mode & MODE_KIND;
        if parent.mode & MODE_SET_GROUP != 0 {
            gid = parent.gid;
            if kind == MODE_DIRECTORY {
                mode |= MODE_SET_GROUP;
            }
        }
        if kind == MODE_DIRECTORY && parent.links >= LINKS_MAX {
            return refuse(libc::EMLINK);
        }
        if kind == MODE_FILE {
            hint = self.options.rules.apply(name, hint).unwrap_or(hint);
        }
        let own = if kind == MODE_FILE { hint } else { Attributes::NONE };
        let room = self.room_for(directory, name)?;
        let mut wanted = room.wanted.clone();
        let attributes = own.or(Attributes::METADATA);
        wanted.push(Allocation { near: Some(directory), attributes });
        // A pointer to each: the inode is named, and the others are in its directory.
        let mut blocks = self.allocate(&wanted, wanted.len(), Need::More)?;
        let block = blocks.pop().expect("as many as were wanted");

        let now = self.now();
        let size = if kind == MODE_LINK { new.target.len() as u64 } else { 0 };
        let inode = Inode {
            generation: self.new_generation(),
            mode,
            uid: new.uid,
            gid,
            links: if kind == MODE_DIRECTORY { 2 } else { 1 },
            size,
            blocks: 0,
            modified: now,
            changed: now,
            accessed: now,
            created: now,
            parent: if kind == MODE_DIRECTORY { directory } else { 0 },
            hint,
            hint_is_chosen: false,
            device: new.device,
            extended: Default::default(),
            slots: if kind == MODE_LINK { Vec::new() } else { vec![0; slots(block_bytes)] },
            target: new.target.clone(),
        };
        let entry = Entry { name: name.into(), inode: block, kind: inode.kind() };
        self.gone.remove(&block);
        self.insert_metadata(block, block, Metadata::Inode(inode));
        self.add(directory, entry, &room, blocks)?;
        match kind {
            MODE_DIRECTORY => self.count_links(directory, 1)?,
            MODE_FILE => self.growth.named(block, name),
            _ => {}
        }
        Ok(block)
    }

    /// Gives a file another name.
    pub fn link(&mut self, file: u64, directory: u64, name: &[u8]) -> FsResult<()> {
        self.change(|this| {
            let inode = this.inode(file)?;
            let (kind, links) = (inode.kind(), inode.links);
            if inode.is_directory() {
                return refuse(libc::EPERM);
            }
            if links == 0 || this.inode(directory)?.links == 0 {
                return refuse(libc::ENOENT);
            }
            if links >= LINKS_MAX {
                return refuse(libc::EMLINK);
            }
            if this.find(directory, name)?.is_some() {
                return refuse(libc::EEXIST);
            }
            let room = this.room_for(directory, name)?;
            let blocks = this.allocate(&room.wanted, room.wanted.len() + 1, Need::More)?;
            this.add(directory, Entry { name: name.into(), inode: file, kind }, &room, blocks)?;
            let now = this.now();
            let inode = this.change_inode(file)?;
            inode.links += 1;
            inode.changed = now;
            Ok(())
        })
    }

    /// Removes a name of a file; with the last one goes the file, when nobody knows it any more.
    pub fn unlink(&mut self, directory: u64, name: &[u8]) -> FsResult<()> {
        self.change(|this| {
            let file = this.lookup(directory, name)?;
            if this.inode(file)?.is_directory() {
                return refuse(libc::EISDIR);
            }
            this.load_name(directory, name)?;
            let orphanage = match this.inode(file)?.links {
                0..=1 => this.orphanage(file)?,
                _ => None,
            };
            this.remove_name(directory, name)?;
            this.drop_link(file, orphanage)
        })
    }

    /// Removes an empty directory; it goes when nobody knows it any more.
    pub fn remove_directory(&mut self, parent: u64, name: &[u8]) -> FsResult<()> {
        self.change(|this| {
            let directory = this.lookup(parent, name)?;
            if !this.inode(directory)?.is_directory() {
                return refuse(libc::ENOTDIR);
            }
            if !this.is_empty(directory)? {
                return refuse(libc::ENOTEMPTY);
            }
            this.load_name(parent, name)?;
            let orphanage = this.orphanage(directory)?;
            this.remove_name(parent, name)?;
            this.count_links(parent, -1)?;
            this.drop_directory(directory, orphanage)
        })
    }

    /// Gives a file another name in place of the one it has.
    pub fn rename(
        &mut self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        self.change(|this| this.rename_inside(from, to, mode))
    }

    fn rename_inside(
        &mut self,
        (old_parent, old_name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        let file = self.lookup(old_parent, old_name)?;
        let inode = self.inode(file)?;
        let (is_directory, kind) = (inode.is_directory(), inode.kind());
        let (hint, is_chosen, is_file) = (inode.hint, inode.hint_is_chosen, inode.is_file());
        if self.inode(new_parent)?.links == 0 {
            return refuse(libc::ENOENT);
        }
        if is_directory {
            self.refuse_into_itself(file, new_parent)?;
        }
        self.load_name(old_parent, old_name)?;
        self.load_name(new_parent, new_name)?;
        let replaced = self.find(new_parent, new_name)?.map(|(inode, _)| inode);
        let mut orphanage = None;
        match replaced {
            Some(_) if mode == RenameMode::NoReplace => return refuse(libc::EEXIST),
            // Two names of the same file: both stay.
            Some(replaced) if replaced == file => return Ok(()),
            Some(replaced) => match (is_directory, self.inode(replaced)?.is_directory()) {
                (true, false) => return refuse(libc::ENOTDIR),
                (false, true) => return refuse(libc::EISDIR),
                (true, true) if !self.is_empty(replaced)? => return refuse(libc::ENOTEMPTY),
                (true, true) => orphanage = self.orphanage(replaced)?,
                (false, false) if self.inode(replaced)?.links > 1 => {}
                (false, false) => orphanage = self.orphanage(replaced)?,
            },
            None => {}
        }
        let room = match replaced {
            Some(_) => None,
            // Blocks are allocated once in each change, and an orphan needs none here.
            None => Some(self.room_for(new_parent, new_name)?),
        };
        let blocks = match &room {
            // One pointer comes, and one goes.
            Some(room) if room.wanted.is_empty() => self.allocate(&[], 1, Need::ToRemove)?,
            Some(room) => self.allocate(&room.wanted, room.wanted.len() + 1, Need::More)?,
            None if orphanage.is_none() => self.allocate(&[], 1, Need::ToRemove)?,
            // It is in what the orphan has asked for.
            None => Vec::new(),
        };
        let new_hint = match is_file && !is_chosen {
            true => self.options.rules.apply(new_name, hint).filter(|new| *new != hint),
            false => None,
        };
        if let Some(new_hint) = new_hint {
            self.tell_hint(file, hint, new_hint)?;
        }

        // The new name comes first: the block with the old one may go with it.
        let entry = Entry { name: new_name.into(), inode: file, kind };
        match room {
            Some(room) => self.add(new_parent, entry, &room, blocks)?,
            None => self.replace(new_parent, entry)?,
        }
        self.remove_name(old_parent, old_name)?;
        if let Some(replaced) = replaced {
            if is_directory {
                self.count_links(new_parent, -1)?;
                self.drop_directory(replaced, orphanage)?;
            } else {
                self.drop_link(replaced, orphanage)?;
            }
        }
        if is_directory && old_parent != new_parent {
            self.count_links(old_parent, -1)?;
            self.count_links(new_parent, 1)?;
            self.change_inode(file)?.parent = new_parent;
        }
        let now = self.now();
        let inode = self.change_inode(file)?;
        inode.changed = now;
        inode.hint = new_hint.unwrap_or(inode.hint);
        Ok(())
    }

    /// A directory cannot go below itself. The kernel looks at that, too.
    fn refuse_into_itself(&mut self, directory: u64, new_parent: u64) -> FsResult<()> {
        let root = self.root();
        let mut above = new_parent;
        for _ in 0..DEPTH_MAX {
            if above == directory {
                return refuse(libc::EINVAL);
            }
            if above == root {
                return Ok(());
            }
            above = self.inode(above)?.parent;
        }
        // Damage: directories in a circle.
        refuse(libc::EIO)
    }

    /// Somebody opens a file.
    pub fn opened(&mut self, file: u64) {
        self.hold(file, 1);
    }

    /// And closes it.
    pub fn closed(&mut self, file: u64) -> FsResult<()> {
        self.growth.closed(file);
        self.release(file, 1)
    }

    /// Somebody has learned which inode a name stands for, and may use its number from now on
    /// without any name: as the kernel for descriptors, working directories, and what is being
    /// executed.
    pub fn looked_up(&mut self, inode: u64) {
        self.hold(inode, 1);
    }

    /// So many of those times count no more.
    pub fn forgotten(&mut self, inode: u64, times: u64) -> FsResult<()> {
        self.release(inode, times)
    }

    fn hold(&mut self, inode: u64, times: u64) {
        *self.held.entry(inode).or_default() += times;
    }

    /// What has no name goes with the last who knows it.
    fn release(&mut self, inode: u64, times: u64) -> FsResult<()> {
        match self.held.get_mut(&inode) {
            None => return Ok(()),
            Some(count) if *count > times => {
                *count -= times;
                return Ok(());
            }
            Some(_) => {}
        }
        // It is held until all is done that may have to be begun anew.
        if self.orphans.contains(&inode) {
            self.remove_orphan(inode)?;
        }
        self.held.remove(&inode);
        Ok(())
    }

    /// Where a file or directory goes whose last name is about to be removed while somebody knows
    /// its number: a directory that nobody sees, and that is emptied by the next mount. Until then
    /// it is all there.
    fn orphanage(&mut self, inode: u64) -> FsResult<Option<Orphanage>> {
        if !self.held.contains_key(&inode) {
            return Ok(None);
        }
        let name = inode.to_string().into_bytes();
        let room = self.room_for(self.superblock.orphans, &name)?;
        // One more: a new name for what takes the place of the file.
        let blocks = self.allocate(&room.wanted, room.wanted.len() + 2, Need::ToRemove)?;
        Ok(Some(Orphanage { name, room, blocks }))
    }

    /// A name of a file is gone.
    fn drop_link(&mut self, file: u64, orphanage: Option<Orphanage>) -> FsResult<()> {
        let now = self.now();
        let inode = self.change_inode(file)?;
        inode.links = inode.links.saturating_sub(1);
        inode.changed = now;
        let links = inode.links;
        match orphanage {
            Some(orphanage) => self.keep_orphan(file, orphanage),
            None if links == 0 => {
                self.free(file);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The name of a directory is gone.
    fn drop_directory(&mut self, directory: u64, orphanage: Option<Orphanage>) -> FsResult<()> {
        let Some(orphanage) = orphanage else {
            self.free(directory);
            return Ok(());
        };
        let (now, orphans) = (self.now(), self.superblock.orphans);
        let inode = self.change_inode(directory)?;
        // Nothing can be made in it any more.
        (inode.links, inode.parent, inode.changed) = (0, orphans, now);
        self.keep_orphan(directory, orphanage)
    }

    fn keep_orphan(&mut self, inode: u64, orphanage: Orphanage) -> FsResult<()> {
        let Orphanage { name, room, blocks } = orphanage;
        let kind = self.inode(inode)?.kind();
        let entry = Entry { name: name.into(), inode, kind };
        self.add(self.superblock.orphans, entry, &room, blocks)?;
        self.orphans.insert(inode);
        Ok(())
    }

    fn remove_orphan(&mut self, inode: u64) -> FsResult<()> {
        self.change(|this| {
            this.remove_name(this.superblock.orphans, inode.to_string().as_bytes())?;
            this.orphans.remove(&inode);
            this.free(inode);
            Ok(())
        })
    }

    /// Removes what was known without a name when the last mount ended.
    pub(crate) fn remove_orphans(&mut self) -> FsResult<()> {
        for orphan in self.list(self.superblock.orphans)? {
            self.remove_orphan(orphan.inode)?;
        }
        Ok(())
    }

    /// A directory comes or goes in this one.
    fn count_links(&mut self, directory: u64, more: i32) -> FsResult<()> {
        let inode = self.change_inode(directory)?;
        inode.links = inode.links.saturating_add_signed(more);
        Ok(())
    }

    /// Nothing names it any more. The device frees what the pointer that is gone has held.
    fn free(&mut self, inode: u64) {
        self.pages.remove(inode, 0..u64::MAX);
        self.directories.forget(inode);
        self.growth.gone(inode);
        self.allocator.file_is_gone(inode);
        for block in self.metadata.owned_by(inode) {
            self.forget(block);
        }
        self.forget(inode);
        self.gone.insert(inode);
    }

    /// Tells the device that a file is something else now; it tells the blocks of the file.
    pub(crate) fn tell_hint(
        &mut self,
        file: u64,
        old: Attributes,
        new: Attributes,
    ) -> FsResult<()> {
        let change = AttributeChange { set: new.without(old), clear: old.without(new) };
        self.is_unflushed = true;
        self.device.set_attributes(&[file], change)?;
        self.allocator.set_attributes(file, new.or(Attributes::METADATA));
        Ok(())
    }
}

/// A place for what has no name.
struct Orphanage {
    name: Vec<u8>,
    room: crate::directory::Room,
    blocks: Vec<u64>,
}
