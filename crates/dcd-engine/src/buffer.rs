//! Memory for I/O: aligned to 4 KiB, owned, handed over with the request or I/O it belongs to.
//!
//! Because a buffer travels inside [`crate::io::Io`] and comes back in [`crate::io::IoDone`], no
//! late or lost completion can touch memory that has been given to someone else (contract C26).

use crate::units::LINE_SIZE;

const PAGE_BYTES: usize = LINE_SIZE as usize;

/// Bytes aligned to 4 KiB, as direct I/O wants them. The length may be any number; the room is
/// whole pages.
#[derive(Default)]
pub struct Buffer {
    /// A page more than the room. Asked for as bytes and not as aligned pages, because only for
    /// bytes does the allocator take memory that the kernel has zeroed already; pages it would
    /// clear itself, and so touch all of a buffer that may never be used.
    memory: Vec<u8>,
    /// Where its first page begins.
    begin: usize,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Buffer {
        if len == 0 {
            return Buffer::default();
        }
        let memory = vec![0; len.next_multiple_of(PAGE_BYTES) + PAGE_BYTES];
        let begin = memory.as_ptr().align_offset(PAGE_BYTES);
        Buffer { memory, begin, len }
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
        &self.memory[self.begin..][..self.len]
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..][..self.len]
    }

    /// Bytes that it has memory for.
    pub fn room(&self) -> usize {
        self.memory.len().saturating_sub(PAGE_BYTES)
    }

    /// Makes it `len` long, within its room. What is new is what was there before, so nothing has
    /// to be cleared for memory that is used again and again.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.room(), "{len} bytes in a buffer of {}", self.room());
        self.len = len;
    }

    /// Makes it `len` bytes that hold anything, and so must be overwritten. Keeps its memory when
    /// it is large enough.
    pub fn set_any(&mut self, len: usize) {
        match len <= self.room() {
            true => self.len = len,
            false => *self = Buffer::zeroed(len),
        }
    }

    /// Makes it `len` zero bytes. Keeps its memory when it is large enough.
    pub fn set_zeroes(&mut self, len: usize) {
        self.set_any(len);
        self.bytes_mut().fill(0);
    }

    /// Makes it `len` long; what is new is zero. Keeps its memory when it is large enough.
    pub fn resize(&mut self, len: usize) {
        let old = self.len;
        if len > self.room() {
            let mut larger = Buffer::zeroed(len);
            larger.bytes_mut()[..old].copy_from_slice(self.bytes());
            *self = larger;
            return;
        }
        self.len = len;
        if len > old {
            self.bytes_mut()[old..].fill(0);
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        Buffer::copy_of(self.bytes())
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

    #[test]
    fn becomes_zeroes_of_any_length() {
        let mut buffer = Buffer::copy_of(&[7; 5000]);
        let address = buffer.bytes().as_ptr();
        for len in [6000, 100, 0, 8192] {
            buffer.set_zeroes(len);
            assert_eq!(buffer.bytes(), vec![0; len]);
            assert_eq!(buffer.bytes().as_ptr(), address);
            buffer.bytes_mut().fill(7);
        }
        buffer.set_zeroes(10_000);
        assert_eq!(buffer.bytes(), [0; 10_000]);
    }

    #[test]
    fn grows_beyond_its_room() {
        let mut buffer = Buffer::zeroed(0);
        assert!(buffer.bytes().is_empty() && buffer.room() == 0);
        buffer.resize(1);
        assert_eq!((buffer.bytes(), buffer.room()), (&[0][..], 4096));
        buffer.bytes_mut()[0] = 7;
        buffer.resize(3 * 4096 + 1);
        assert_eq!(buffer.bytes().as_ptr() as usize % 4096, 0);
        assert_eq!(buffer.room(), 4 * 4096);
        assert!(buffer.bytes()[0] == 7 && buffer.bytes()[1..].iter().all(|b| *b == 0));
        assert_eq!(buffer.clone().bytes(), buffer.bytes());
    }
}
