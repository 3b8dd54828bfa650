//! Memory for I/O: aligned to 4 KiB, owned, handed over with the request or I/O it belongs to.
//!
//! Because a buffer travels inside [`crate::io::Io`] and comes back in [`crate::io::IoDone`], no
//! late or lost completion can touch memory that has been given to someone else (contract C26).

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::units::LINE_SIZE;

/// 4 KiB, aligned to 4 KiB, as direct I/O wants it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; LINE_SIZE as usize]);

/// Bytes aligned to 4 KiB. The length may be any number; the room is whole pages.
#[derive(Clone, Default)]
pub struct Buffer {
    pages: Vec<Page>,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Buffer {
        let pages = len.div_ceil(LINE_SIZE as usize);
        let pages = Page::new_vec_zeroed(pages).expect("memory for an I/O buffer");
        Buffer { pages, len }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }

    /// Bytes that it has memory for.
    pub fn room(&self) -> usize {
        self.pages.len() * LINE_SIZE as usize
    }

    /// Makes it `len` long, within its room. What is new is what was there before, so nothing has to be cleared for
    /// memory that is used again and again.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.room(), "{len} bytes in a buffer of {}", self.room());
        self.len = len;
    }

    /// Makes it `len` long; what is new is zero. Keeps its memory when it is large enough.
    pub fn resize(&mut self, len: usize) {
        let pages = len.div_ceil(LINE_SIZE as usize);
        if pages > self.pages.len() {
            self.pages.resize(pages, Page::new_zeroed());
        }
        let old = self.len;
        self.len = len;
        if len > old {
            self.bytes_mut()[old..].fill(0);
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

/// Memory of the segment buffers. In `memory` mode the driver gives memory that outlives its
/// process (contract C4); a plain [`Buffer`] serves the simulator and the other modes.
pub trait SegmentMemory: Send {
    /// All of it.
    fn bytes(&self) -> &[u8];
    /// All of it, to be changed.
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl SegmentMemory for Buffer {
    fn bytes(&self) -> &[u8] {
        Buffer::bytes(self)
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        Buffer::bytes_mut(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_keeps_its_bytes() {
        let mut buffer = Buffer::copy_of(&[7; 5000]);
        assert_eq!(buffer.bytes().as_ptr() as usize % 4096, 0);
        buffer.resize(6000);
        assert!(buffer.bytes()[..5000].iter().all(|b| *b == 7));
        assert!(buffer.bytes()[5000..].iter().all(|b| *b == 0));
        buffer.set_len(1);
        buffer.set_len(5000);
        assert!(buffer.bytes().iter().all(|b| *b == 7));
        assert_eq!(buffer.room(), 8192);
    }
}
