//! The server's end of a device, `/dev/ublkcN`, and the requests that the driver leaves in memory
//! shared with it. All `unsafe` code around that is in this file.

use std::cell::OnceCell;
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
    /// Unmapped before the file is closed: fields are dropped in turn.
    requests: OnceCell<Requests>,
    file: File,
    queue_depth: u16,
    /// Takes what became of [`ServerEnd::map`]. Its end tells that all of this is closed, so it is
    /// the last.
    news: mpsc::Sender<Result<(), Errno>>,
}

impl ServerEnd {
    /// Of an open device. `news` is told when its requests have been mapped, and dropped when it is
    /// closed.
    pub fn new(file: File, queue_depth: u16, news: mpsc::Sender<Result<(), Errno>>) -> ServerEnd {
        ServerEnd { requests: OnceCell::new(), file, queue_depth, news }
    }

    /// Maps the requests; when all tags are being fetched, and before the device is started.
    ///
    /// Not earlier: Linux 6.12 remembers whose memory the mapping is in, and forgets that only for
    /// a device whose tags were all fetched. Nobody could take over what a daemon has mapped that
    /// died before its fetches.
    pub fn map(&self) {
        let mapped = Requests::map(&self.file, self.queue_depth).map(|requests| {
            let is_first = self.requests.set(requests).is_ok();
            assert!(is_first, "mapped twice");
        });
        // Whoever made the device may have given up by now.
        let _ = self.news.send(mapped);
    }

    /// How many tags there are.
    pub fn queue_depth(&self) -> u16 {
        self.queue_depth
    }

    /// The request of a tag; to be read after its fetch has ended and before it is answered.
    ///
    /// # Panics
    /// If there is no such tag, or nothing has been mapped: the driver has no requests before the
    /// device is started.
    pub fn descriptor(&self, tag: u16) -> Descriptor {
        self.requests.get().expect("a request of a device that was not mapped").get(tag)
    }
}

impl AsFd for ServerEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The mapping.
struct Requests {
    start: NonNull<Descriptor>,
    queue_depth: u16,
}

// SAFETY: the mapping is not bound to a thread, and is only read.
unsafe impl Send for Requests {}

impl Requests {
    fn map(file: &File, queue_depth: u16) -> Result<Requests, Errno> {
        let len = Requests::len(queue_depth);
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe {
            let flags = MapFlags::SHARED | MapFlags::POPULATE;
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, file, 0)
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        Ok(Requests { start, queue_depth })
    }

    /// Whole pages are mapped, and unmapped, whatever is said.
    fn len(queue_depth: u16) -> usize {
        usize::from(queue_depth) * size_of::<Descriptor>()
    }

    fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.queue_depth, "tag {tag} of {}", self.queue_depth);
        // SAFETY: within the mapping, just checked; any bytes are a descriptor. The driver writes
        // it before the fetch ends and not again before the answer; the kernel could at any time,
        // hence one volatile copy.
        unsafe { self.start.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        let len = Requests::len(self.queue_depth);
        // SAFETY: mapped in `map` with this length; nobody holds a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), len) };
    }
}
