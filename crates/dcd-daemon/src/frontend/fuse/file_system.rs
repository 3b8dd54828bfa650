//! What the kernel may ask of the file system: a directory with the file [`FILE_NAME`] in it.
//!
//! Rules 1 and 2 of [`super`] are kept here, the third in [`super::volume`].
//!
//! Tests: `tests/fuse.rs`, on real mounts.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dcd_engine::io::{Operation, RequestError};
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::FILE_NAME;
use super::volume::Volume;

const ROOT: INodeNo = INodeNo::ROOT;
const DISK: INodeNo = INodeNo(2);

/// Largest write (and, since the kernel counts both in pages, read) in one request.
const WRITE_SIZE_MAX: u32 = 1 << 20;
/// Asynchronous requests the kernel may have under way; its own default of 12 starves a loop
/// device, which has 128 tags.
const BACKGROUND_MAX: u16 = 512;

/// How long the kernel may remember the file. It never changes, and a long time lets
/// `LOOP_GET_STATUS64` work on a mount whose daemon is dead.
const FILE_TTL: Duration = Duration::from_secs(365 * 86_400);
/// How long it may remember the directory: briefly, so that `stat` shows a dead mount.
const DIRECTORY_TTL: Duration = Duration::from_secs(1);

pub(super) struct DiskFileSystem {
    pub(super) volume: Arc<Volume>,
    pub(super) read_only: bool,
    /// Holes give space back.
    pub(super) trim: bool,
    pub(super) mounted_at: SystemTime,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl DiskFileSystem {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let size = self.volume.size_bytes;
        let (kind, perm, nlink, size) = match inode {
            ROOT => (FileType::Directory, 0o700, 2, 0),
            DISK => (FileType::RegularFile, 0o600, 1, size),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            // The time of the mount: the engine does not tell when the volume was last written.
            atime: self.mounted_at,
            mtime: self.mounted_at,
            ctime: self.mounted_at,
            crtime: self.mounted_at,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn reply_attributes(&self, inode: INodeNo, reply: ReplyAttr) {
        let ttl = if inode == DISK { FILE_TTL } else { DIRECTORY_TTL };
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&ttl, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// The reason why this inode cannot be written, if there is one.
    fn refuses_writes(&self, inode: INodeNo) -> Option<Errno> {
        match inode {
            DISK if self.read_only => Some(Errno::EROFS),
            DISK => None,
            _ => Some(Errno::EISDIR),
        }
    }
}

impl Filesystem for DiskFileSystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without ASYNC_DIO the kernel works on one request of a loop device at a time. All of
        // these are wishes; an old kernel that knows less is slower, not wrong.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(WRITE_SIZE_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX / 4 * 3);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(DISK) {
            Some(attributes) if parent == ROOT && name == FILE_NAME => {
                reply.entry(&FILE_TTL, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.reply_attributes(inode, reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Times are accepted and not kept, so that `cp -p` and `touch` do not stumble.
        let resizes = size.is_some_and(|size| inode != DISK || size != self.volume.size_bytes);
        if resizes || mode.is_some() || uid.is_some() || gid.is_some() {
            reply.error(Errno::EPERM);
        } else {
            self.reply_attributes(inode, reply);
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY
            && let Some(error) = self.refuses_writes(inode)
        {
            return reply.error(error);
        }
        // PARALLEL_DIRECT_WRITES: without it the kernel lets one writer in at a time.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
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
        if inode != DISK {
            return reply.error(Errno::EISDIR);
        }
        let end = offset.saturating_add(size.into()).min(self.volume.size_bytes);
        if offset >= end {
            return reply.data(&[]);
        }
        let range = self.volume.blocks_around(offset, end);
        let first = (offset - range.start.byte()) as usize;
        let wanted = first..first + (end - offset) as usize;
        self.volume.submitter.submit(
            Operation::read(range),
            false,
            Box::new(move |answer| match answer.result {
                Ok(()) => {
                    let buffer = answer.buffer.expect("the data of a read that succeeded");
                    reply.data(&buffer.bytes()[wanted]);
                }
                Err(error) => reply.error(errno(error)),
            }),
        );
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
        if let Some(error) = self.refuses_writes(inode) {
            return reply.error(error);
        }
        if offset >= self.volume.size_bytes {
            return reply.error(Errno::ENOSPC);
        }
        let room = usize::try_from(self.volume.size_bytes - offset).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        // The kernel puts O_DSYNC here for RWF_DSYNC, too. O_SYNC contains its bit.
        let fua = flags.0 & libc::O_DSYNC != 0;
        let length = data.len() as u32;
        let steps = self.volume.write_steps(offset, data);
        self.volume.change(offset, offset + u64::from(length), steps, fua, move |result| {
            match result {
                Ok(()) => reply.written(length),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    /// Closing promises nothing about durability.
    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.volume.submitter.submit(
            Operation::Flush,
            false,
            Box::new(move |answer| reply_empty(answer.result, reply)),
        );
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if let Some(error) = self.refuses_writes(inode) {
            return reply.error(error);
        }
        // Ranges as with a block device: one that starts beyond the end is a mistake, one that
        // crosses it is cut if the caller does not mean to make the file longer.
        let size = self.volume.size_bytes;
        let end = offset.saturating_add(length);
        if length == 0 || offset >= size {
            return reply.error(if length == 0 { Errno::EINVAL } else { Errno::ENOSPC });
        }
        if end > size && mode & libc::FALLOC_FL_KEEP_SIZE == 0 {
            return reply.error(Errno::ENOSPC);
        }
        let end = end.min(size);

        const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE;
        const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE;
        let steps = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            // The room is there; that is all this call asks.
            0 => return reply.ok(),
            // No space would come back; zeroes can be had with the other mode.
            PUNCH_HOLE if !self.trim => return reply.error(Errno::EOPNOTSUPP),
            PUNCH_HOLE => self.volume.zero_steps(offset, end, |range| Operation::Discard { range }),
            ZERO_RANGE => self.volume.zero_steps(offset, end, |range| Operation::WriteZeroes {
                range,
                may_unmap: false,
            }),
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        self.volume.change(offset, end, steps, false, move |result| reply_empty(result, reply));
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, FILE_NAME),
        ];
        for (next, (inode, kind, name)) in (1..).zip(entries) {
            if next > offset && reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        // A loop device takes its discard granularity from this block size.
        reply.statfs(self.volume.size_bytes / 4096, 0, 0, 1, 0, 4096, 255, 4096);
    }

    /// Only called on kernels that do not honour `default_permissions`.
    fn access(&self, _request: &Request, inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if self.read_only && inode == DISK && mask.contains(AccessFlags::W_OK) {
            reply.error(Errno::EROFS);
        } else {
            reply.ok();
        }
    }

    // There is one file, and it stays.

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mknod(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _new_parent: INodeNo,
        _new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}

fn reply_empty(result: Result<(), RequestError>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::Io | RequestError::ShuttingDown | RequestError::Cancelled => Errno::EIO,
        RequestError::NoSpace => Errno::ENOSPC,
        RequestError::ReadOnly => Errno::EROFS,
        // Nobody asks for these through a file.
        RequestError::Sequence(_)
        | RequestError::Volume(_)
        | RequestError::Leg(_)
        | RequestError::Resize(_)
        | RequestError::NvramChange(_)
        | RequestError::Lost { .. }
        | RequestError::Stuck { .. } => Errno::EIO,
    }
}
