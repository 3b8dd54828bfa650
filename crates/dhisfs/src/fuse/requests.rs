//! Requests of the kernel and their answers.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dcd_client::BlockDevice;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::durable::Asks;
use super::tell;
use crate::directory::Listed;
use crate::error::{FsError, FsResult};
use crate::file::AttributesChange;
use crate::file_system::{FileSystem, Free, Room};
use crate::format::directory_block::NAME_BYTES_MAX;
use crate::format::inode::{Inode, MODE_DIRECTORY, MODE_LINK, Timestamp};
use crate::namespace::{NewFile, RenameMode};
use crate::shared::Shared;

/// How long the kernel may remember what it was told: nobody else changes anything.
const TTL: Duration = Duration::from_secs(3600);
/// Largest write (and, since the kernel counts both in pages, read) in one request.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Names whose files are looked at together.
const PREFETCH: usize = 64;

/// The handles of files that are open for reading alone, and of others.
const FOR_READING: FileHandle = FileHandle(0);
/// See [`FOR_READING`].
const FOR_WRITING: FileHandle = FileHandle(1);

fn handle(flags: i32) -> FileHandle {
    if flags & libc::O_ACCMODE == libc::O_RDONLY { FOR_READING } else { FOR_WRITING }
}

pub(super) struct Requests<D> {
    shared: Arc<Shared<D>>,
    asks: Asks,
    synchronous: bool,
    /// Open directories, as they were when they were opened or rewound.
    listings: Mutex<Listings>,
}

#[derive(Default)]
struct Listings {
    next: u64,
    open: HashMap<u64, Arc<Vec<Listed>>>,
}

/// What the kernel is told of a file.
struct Known {
    attributes: FileAttr,
    generation: Generation,
}

/// The number of an inode for the kernel, for which the root directory is 1.
fn number(root: u64, inode: u64) -> INodeNo {
    if inode == root { INodeNo::ROOT } else { INodeNo(inode + 1) }
}

fn block(root: u64, number: INodeNo) -> u64 {
    if number == INodeNo::ROOT { root } else { number.0.saturating_sub(1) }
}

fn kind(kind: u8) -> FileType {
    match kind {
        0o01 => FileType::NamedPipe,
        0o02 => FileType::CharDevice,
        0o04 => FileType::Directory,
        0o06 => FileType::BlockDevice,
        0o12 => FileType::Symlink,
        0o14 => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let since = Duration::from_nanos(time.unsigned_abs());
    if time < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let nanos = |since: Duration| Timestamp::try_from(since.as_nanos()).unwrap_or(Timestamp::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => nanos(since),
        Err(before) => -nanos(before.duration()),
    }
}

fn chosen(time: TimeOrNow) -> Timestamp {
    timestamp(match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    })
}

fn known(root: u64, block: u64, inode: &Inode, block_bytes: usize) -> Known {
    let attributes = FileAttr {
        ino: number(root, block),
        size: inode.size,
        blocks: inode.blocks * (block_bytes as u64 / 512),
        atime: system_time(inode.accessed),
        mtime: system_time(inode.modified),
        ctime: system_time(inode.changed),
        crtime: system_time(inode.created),
        kind: kind(inode.kind()),
        perm: (inode.mode & 0o7777) as u16,
        nlink: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.device,
        blksize: block_bytes as u32,
        flags: 0,
    };
    Known { attributes, generation: Generation(inode.generation) }
}

impl<D: BlockDevice + 'static> Requests<D> {
    pub(super) fn new(shared: Arc<Shared<D>>, asks: Asks, synchronous: bool) -> Requests<D> {
        Requests { shared, asks, synchronous, listings: Mutex::default() }
    }

    fn with<T>(&self, work: impl FnMut(&mut FileSystem<D>) -> FsResult<T>) -> Result<T, Errno> {
        self.shared.with(work).map_err(|error| errno_of(&error))
    }

    /// The same for what changes something.
    fn change<T>(
        &self,
        mut work: impl FnMut(&mut FileSystem<D>) -> FsResult<T>,
    ) -> Result<T, Errno> {
        let (done, room) = self.with(|fs| Ok((work(fs)?, fs.room())))?;
        if room != Room::Enough {
            self.asks.make_room();
        }
        Ok(done)
    }

    /// Answers a change: with a synchronous mount, when it is durable.
    fn answer<T: Send + 'static>(
        &self,
        result: Result<T, Errno>,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        self.answer_when(self.synchronous, result, reply);
    }

    fn answer_when<T: Send + 'static>(
        &self,
        is_durable: bool,
        result: Result<T, Errno>,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        if !is_durable || result.is_err() {
            return reply(result);
        }
        self.asks.when_durable(Box::new(move |durable| match durable {
            Ok(()) => reply(result),
            Err(error) => reply(Err(Errno::from_i32(error.errno()))),
        }));
    }

    fn listings(&self) -> std::sync::MutexGuard<'_, Listings> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of an open directory, and the inode of the root directory.
    fn listed(
        &self,
        directory: INodeNo,
        handle: FileHandle,
        offset: u64,
    ) -> Result<(Arc<Vec<Listed>>, u64), Errno> {
        let known = self.listings().open.get(&handle.0).cloned();
        // Rewound: as it is now.
        let known = known.filter(|_| offset > 0);
        self.with(|fs| {
            let block = block(fs.root(), directory);
            let parent = fs.inode(block)?.parent;
            let listed = match &known {
                Some(listed) => Arc::clone(listed),
                None => {
                    let dots = [(&b"."[..], block), (&b".."[..], parent)];
                    let dots = dots.map(|(name, inode)| Listed {
                        name: name.into(),
                        inode,
                        kind: (MODE_DIRECTORY >> 12) as u8,
                    });
                    let listed = dots.into_iter().chain(fs.list(block)?).collect();
                    let listed = Arc::new(listed);
                    self.listings().open.insert(handle.0, Arc::clone(&listed));
                    listed
                }
            };
            Ok((listed, fs.root()))
        })
    }

    fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        new: &NewFile,
        is_opened: bool,
    ) -> Result<Known, Errno> {
        self.change(|fs| {
            let root = fs.root();
            let made = fs.create(block(root, parent), name.as_bytes(), new)?;
            let block_bytes = fs.block_bytes();
            let known = known(root, made, fs.inode(made)?, block_bytes);
            if is_opened {
                fs.opened(made);
            }
            fs.looked_up(made);
            Ok(known)
        })
    }
}

/// The number of an error; what programs cannot be told in a number is told.
fn errno_of(error: &FsError) -> Errno {
    if !matches!(error, FsError::Refused(_) | FsError::Stopped) {
        tell(error);
    }
    Errno::from_i32(error.errno())
}

/// `None` for what is not there; but what has to be begun anew has to.
fn unless_refused<T>(result: FsResult<T>) -> FsResult<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error @ (FsError::NotInMemory { .. } | FsError::Alone | FsError::Later)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether the kernel remembers the inode of something in a list: it does not where it stands for
/// the directory or the one above.
fn counts(listed: &Listed, known: &Option<Known>) -> bool {
    known.is_some() && !matches!(&*listed.name, b"." | b"..")
}

fn entry(result: Result<Known, Errno>, reply: ReplyEntry) {
    match result {
        Ok(Known { attributes, generation }) => reply.entry(&TTL, &attributes, generation),
        Err(errno) => reply.error(errno),
    }
}

fn empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn attributes(result: Result<Known, Errno>, reply: ReplyAttr) {
    match result {
        Ok(Known { attributes, .. }) => reply.attr(&TTL, &attributes),
        Err(errno) => reply.error(errno),
    }
}

/// As `getxattr` and `listxattr` want it: how long it is, or what it is.
fn extended(result: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}

impl<D: BlockDevice + 'static> Filesystem for Requests<D> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // All of these are wishes; an old kernel that knows less is slower, not wrong.
        let wishes = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_ASYNC_DIO,
        ];
        for wish in wishes {
            let _ = config.add_capabilities(wish);
        }
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.with(|fs| {
            let root = fs.root();
            let inode = fs.lookup(block(root, parent), name.as_bytes())?;
            let block_bytes = fs.block_bytes();
            let known = known(root, inode, fs.inode(inode)?, block_bytes);
            fs.looked_up(inode);
            Ok(known)
        });
        entry(found, reply);
    }

    /// The kernel has an inode as often as it was told of one in an answer; before it forgets the
    /// last of these it may use the number, whether the inode has a name or not.
    fn forget(&self, _request: &Request, inode: INodeNo, times: u64) {
        // Nobody hears of an error; the next mount removes what could not be removed.
        let _ = self.change(|fs| fs.forgotten(block(fs.root(), inode), times));
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let found = self.with(|fs| {
            let (root, block_bytes) = (fs.root(), fs.block_bytes());
            let block = block(root, inode);
            Ok(known(root, block, fs.inode(block)?, block_bytes))
        });
        attributes(found, reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = AttributesChange {
            mode,
            uid,
            gid,
            size,
            accessed: accessed.map(chosen),
            modified: modified.map(chosen),
        };
        let changed = self.change(|fs| {
            let (root, block_bytes) = (fs.root(), fs.block_bytes());
            let block = block(root, inode);
            fs.set_attributes(block, &change)?;
            Ok(known(root, block, fs.inode(block)?, block_bytes))
        });
        self.answer(changed, |changed| attributes(changed, reply));
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        let found = self.with(|fs| {
            let block = block(fs.root(), inode);
            let inode = fs.inode(block)?;
            if inode.is_link() {
                Ok(inode.target.clone())
            } else {
                Err(FsError::Refused(libc::EINVAL))
            }
        });
        match found {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let (uid, gid) = (request.uid(), request.gid());
        let new = NewFile { mode, uid, gid, device, target: Vec::new() };
        let made = self.make(parent, name, &new, false);
        self.answer(made, |made| entry(made, reply));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = mode & 0o7777 | MODE_DIRECTORY;
        let new = NewFile { mode, uid: request.uid(), gid: request.gid(), ..NewFile::default() };
        let made = self.make(parent, name, &new, false);
        self.answer(made, |made| entry(made, reply));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes().to_vec();
        let (uid, gid) = (request.uid(), request.gid());
        let new = NewFile { mode: MODE_LINK | 0o777, uid, gid, device: 0, target };
        let made = self.make(parent, name, &new, false);
        self.answer(made, |made| entry(made, reply));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let new = NewFile { mode, uid: request.uid(), gid: request.gid(), ..NewFile::default() };
        let made = self.make(parent, name, &new, true);
        self.answer(made, move |made| match made {
            Ok(Known { attributes, generation }) => {
                let keep = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&TTL, &attributes, generation, handle(flags), keep);
            }
            Err(errno) => reply.error(errno),
        });
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.change(|fs| fs.unlink(block(fs.root(), parent), name.as_bytes()));
        self.answer(done, |done| empty(done, reply));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.change(|fs| fs.remove_directory(block(fs.root(), parent), name.as_bytes()));
        self.answer(done, |done| empty(done, reply));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameMode::NoReplace
        } else {
            return reply.error(Errno::EINVAL);
        };
        let done = self.change(|fs| {
            let root = fs.root();
            let from = (block(root, parent), name.as_bytes());
            fs.rename(from, (block(root, new_parent), new_name.as_bytes()), mode)
        });
        self.answer(done, |done| empty(done, reply));
    }

    fn link(
        &self,
        _request: &Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let done = self.change(|fs| {
            let (root, block_bytes) = (fs.root(), fs.block_bytes());
            let file = block(root, inode);
            fs.link(file, block(root, new_parent), new_name.as_bytes())?;
            let known = known(root, file, fs.inode(file)?, block_bytes);
            fs.looked_up(file);
            Ok(known)
        });
        self.answer(done, |done| entry(done, reply));
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.with(|fs| {
            let block = block(fs.root(), inode);
            fs.inode(block)?;
            fs.opened(block);
            Ok(())
        });
        match opened {
            Ok(()) => reply.opened(handle(flags.0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = |fs: &FileSystem<D>| block(fs.root(), inode);
        match self.shared.read(file, offset, size as usize) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(errno_of(&error)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut written = 0;
        let mut result = Ok(());
        while written < data.len() && result.is_ok() {
            let (at, rest) = (offset + written as u64, &data[written..]);
            match self.change(|fs| fs.write_some(block(fs.root(), inode), at, rest)) {
                Ok(some) => written += some,
                Err(errno) => result = Err(errno),
            }
        }
        // Less than was wanted is what was written before there was no more room.
        let result = if written > 0 { Ok(written as u32) } else { result.map(|()| 0) };
        // O_SYNC contains the bit of O_DSYNC.
        let is_durable = self.synchronous || flags.0 & libc::O_DSYNC != 0;
        self.answer_when(is_durable, result, |written| match written {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        });
    }

    /// Closing promises nothing about durability. But who has written, and closes when nothing is
    /// written any more, hears that it was for nothing.
    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        match handle == FOR_WRITING && self.shared.is_stopped() {
            true => reply.error(Errno::EIO),
            false => reply.ok(),
        }
    }

    fn release(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        empty(self.with(|fs| fs.closed(block(fs.root(), inode))), reply);
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.answer_when(true, Ok(()), |done| empty(done, reply));
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.answer_when(true, Ok(()), |done| empty(done, reply));
    }

    fn opendir(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut listings = self.listings();
        listings.next += 1;
        reply.opened(FileHandle(listings.next), FopenFlags::empty());
    }

    fn releasedir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings().open.remove(&handle.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let (listed, root) = match self.listed(inode, handle, offset) {
            Ok(listed) => listed,
            Err(errno) => return reply.error(errno),
        };
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, it) in (1..).zip(listed.iter()).skip(skipped) {
            let name = OsStr::from_bytes(&it.name);
            if reply.add(number(root, it.inode), next, kind(it.kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let (listed, root) = match self.listed(inode, handle, offset) {
            Ok(listed) => listed,
            Err(errno) => return reply.error(errno),
        };
        let mut at = usize::try_from(offset).unwrap_or(usize::MAX);
        while at < listed.len() {
            let some = &listed[at..listed.len().min(at + PREFETCH)];
            let found = self.with(|fs| {
                let inodes: Vec<u64> = some.iter().map(|it| it.inode).collect();
                fs.prefetch(&inodes)?;
                let block_bytes = fs.block_bytes();
                // What was removed since is left out, or the kernel would know the name for another
                // file that has the block now.
                let directory = block(root, inode);
                let found = some.iter().map(|it| {
                    let named = match *it.name == *b"." {
                        true => Some(it.inode),
                        false => unless_refused(fs.lookup(directory, &it.name))?,
                    };
                    if named != Some(it.inode) {
                        return Ok(None);
                    }
                    let inode = unless_refused(fs.inode(it.inode))?;
                    Ok(inode.map(|inode| known(root, it.inode, inode, block_bytes)))
                });
                let found = found.collect::<FsResult<Vec<_>>>()?;
                let told = some.iter().zip(&found).filter(|(it, known)| counts(it, known));
                told.for_each(|(it, _)| fs.looked_up(it.inode));
                Ok(found)
            });
            let found = match found {
                Ok(found) => found,
                Err(errno) => return reply.error(errno),
            };
            for (next, (it, known)) in found.iter().enumerate().map(|(i, it)| (i, (&some[i], it))) {
                at += 1;
                let Some(Known { attributes, generation }) = known else { continue };
                let name = OsStr::from_bytes(&it.name);
                let number = attributes.ino;
                if reply.add(number, at as u64, name, &TTL, attributes, *generation) {
                    // The rest is not in the answer.
                    let untold = some.iter().zip(&found).skip(next);
                    for (it, _) in untold.filter(|(it, known)| counts(it, known)) {
                        let _ = self.change(|fs| fs.forgotten(it.inode, 1));
                    }
                    return reply.ok();
                }
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let found = self.with(|fs| Ok((fs.blocks(), fs.free_blocks()?, fs.block_bytes() as u32)));
        match found {
            Ok((blocks, Free { on_disks, usable }, block_bytes)) => {
                // Every free block can become a file.
                let (names, size) = (NAME_BYTES_MAX as u32, block_bytes);
                reply.statfs(blocks, on_disks, usable, blocks, usable, size, names, size);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let done = self
            .change(|fs| fs.set_extended(block(fs.root(), inode), name.as_bytes(), value, flags));
        self.answer(done, |done| empty(done, reply));
    }

    fn getxattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let found = self.with(|fs| fs.extended(block(fs.root(), inode), name.as_bytes()));
        extended(found, size, reply);
    }

    fn listxattr(&self, _request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let found = self.with(|fs| fs.extended_names(block(fs.root(), inode)));
        extended(found, size, reply);
    }

    fn removexattr(&self, _request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.change(|fs| fs.remove_extended(block(fs.root(), inode), name.as_bytes()));
        self.answer(done, |done| empty(done, reply));
    }

    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn lseek(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let is_data = match whence {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.with(|fs| fs.seek(block(fs.root(), inode), offset, is_data)) {
            Ok(offset) => reply.offset(offset as i64),
            Err(errno) => reply.error(errno),
        }
    }
}
