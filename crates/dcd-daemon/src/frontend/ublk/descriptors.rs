//! The server's end of a device, `/dev/ublkcN`, and the requests that the driver leaves in memory shared with it. All
//! `unsafe` code around that is in this file.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::mpsc;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::uapi::Descriptor;

/// The first queue of a device. The driver lets nobody else have it while it is open.
pub struct ServerEnd {
    file: File,
    start: NonNull<Descriptor>,
    len: usize,
    queue_depth: u16,
    /// Its end tells that this one is closed: fields are dropped in turn, and the file is before it.
    _closed: mpsc::Sender<()>,
}

// SAFETY: the mapping is not bound to a thread, and is only read.
unsafe impl Send for ServerEnd {}

impl ServerEnd {
    /// Maps the requests of an open device. `closed` is dropped when all of it is.
    pub fn new(file: File, queue_depth: u16, closed: mpsc::Sender<()>) -> Result<ServerEnd, Errno> {
        // Whole pages are mapped, and unmapped, whatever is said.
        let len = usize::from(queue_depth) * size_of::<Descriptor>();
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe {
            let flags = MapFlags::SHARED | MapFlags::POPULATE;
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, &file, 0)
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        Ok(ServerEnd { file, start, len, queue_depth, _closed: closed })
    }

    /// How many tags there are.
    pub fn queue_depth(&self) -> u16 {
        self.queue_depth
    }

    /// The request of a tag; to be read after its fetch has ended and before it is answered.
    ///
    /// # Panics
    /// If there is no such tag.
    pub fn descriptor(&self, tag: u16) -> Descriptor {
        assert!(tag < self.queue_depth, "tag {tag} of {}", self.queue_depth);
        // SAFETY: within the mapping, just checked; any bytes are a descriptor. The driver writes it before the fetch
        // ends and not again before the answer; the kernel could at any time, hence one volatile copy.
        unsafe { self.start.add(usize::from(tag)).read_volatile() }
    }
}

impl AsFd for ServerEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; nobody holds a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}
