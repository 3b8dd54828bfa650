//! Memory of requests that are done, for the next ones: asking the system for it, page by page,
//! takes longer than a request.

use crate::buffer::Buffer;

/// What is received first of a long write, when no memory is left over from another.
/// It grows with the data, so that a client has to send something to make us hold something.
const FIRST_RECEIVED: usize = 64 << 10;

/// Room of the smallest buffers; those of each further class have twice as much.
const ROOM_MIN: usize = 4 << 10;
const SMALL_CLASSES: usize = 5;
const CLASSES: usize = 9;

/// Buffers for the next requests of somebody, from requests that are done.
#[derive(Default)]
pub struct BufferPool {
    /// By class: each with at least its room.
    classes: [Vec<Buffer>; CLASSES],
    /// Bytes that are kept in small ones, and in large ones.
    small_bytes: usize,
    large_bytes: usize,
}

impl BufferPool {
    const SMALL_LENGTH_MAX: usize = ROOM_MIN << (SMALL_CLASSES - 1);
    const SMALL_BYTES_MAX: usize = 4 << 20;
    /// No longer buffer is kept.
    pub const LARGE_LENGTH_MAX: usize = ROOM_MIN << (CLASSES - 1);
    const LARGE_BYTES_MAX: usize = 8 << 20;
    /// Most bytes that are kept.
    pub const BYTES_MAX: usize = Self::SMALL_BYTES_MAX + Self::LARGE_BYTES_MAX;

    /// A buffer of any length for a read of `length` bytes; empty if there is none, and none is
    /// made.
    pub fn spare(&mut self, length: usize) -> Buffer {
        let first = class_for(length);
        // A small read leaves the large ones to others.
        let end = if first < SMALL_CLASSES { SMALL_CLASSES } else { CLASSES };
        for class in first..end {
            if let Some(buffer) = self.classes[class].pop() {
                *self.bytes_of(class) -= buffer.room();
                return buffer;
            }
        }
        Buffer::default()
    }

    /// A buffer of `length` bytes that hold anything, and so must be overwritten.
    pub fn take(&mut self, length: usize) -> Buffer {
        let mut buffer = self.spare(length);
        if buffer.room() == 0 && length <= Self::LARGE_LENGTH_MAX {
            // With the room of its class, so that others of that class can have it afterwards.
            buffer = Buffer::zeroed(ROOM_MIN << class_for(length));
        }
        buffer.set_any(length);
        buffer
    }

    /// A buffer with these bytes.
    pub fn take_copy(&mut self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.take(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// A buffer, longer than `filled`, in which to receive the rest of `length` bytes. It may have
    /// to grow, because new memory is given only to a client that has sent about as much.
    pub fn take_for_receiving(&mut self, length: usize, filled: usize) -> Buffer {
        if length > Self::SMALL_LENGTH_MAX {
            let length = length.min(Self::LARGE_LENGTH_MAX);
            let mut buffer = self.spare(length);
            if buffer.room() > 0 {
                buffer.set_any(length);
                return buffer;
            }
        }
        Buffer::zeroed(length.min(FIRST_RECEIVED.max(2 * filled)))
    }

    /// Keeps the memory of a request that is done, if that is worth while.
    pub fn put(&mut self, buffer: Option<Buffer>) {
        let Some(buffer) = buffer else { return };
        if !(ROOM_MIN..=Self::LARGE_LENGTH_MAX).contains(&buffer.room()) {
            return;
        }
        let class = (buffer.room() / ROOM_MIN).ilog2() as usize;
        let bytes_max = match class < SMALL_CLASSES {
            true => Self::SMALL_BYTES_MAX,
            false => Self::LARGE_BYTES_MAX,
        };
        let bytes = self.bytes_of(class);
        if *bytes + buffer.room() <= bytes_max {
            *bytes += buffer.room();
            self.classes[class].push(buffer);
        }
    }

    fn bytes_of(&mut self, class: usize) -> &mut usize {
        if class < SMALL_CLASSES { &mut self.small_bytes } else { &mut self.large_bytes }
    }
}

/// The class of which each buffer has that much room; behind all for more than any has.
fn class_for(length: usize) -> usize {
    length.div_ceil(ROOM_MIN).next_power_of_two().ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_was_put_into_it() {
        let mut pool = BufferPool::default();
        assert_eq!(pool.spare(4096).room(), 0);
        let [small, large] = [4096, 100 << 10].map(|length| pool.take(length));
        let addresses = [&small, &large].map(|buffer| buffer.bytes().as_ptr());
        for buffer in [small, large, Buffer::default(), Buffer::zeroed(2 << 20)] {
            pool.put(Some(buffer));
        }
        let again = [pool.take(512), pool.spare(80 << 10)];
        assert_eq!(again.map(|buffer| buffer.bytes().as_ptr()), addresses);
        assert_eq!(pool.spare(80 << 10).room() + pool.spare(512).room(), 0);
    }

    #[test]
    fn keeps_no_more_than_a_client_may_have() {
        let mut pool = BufferPool::default();
        for _ in 0..100 {
            pool.put(Some(Buffer::zeroed(64 << 10)));
            pool.put(Some(Buffer::zeroed(1 << 20)));
        }
        assert_eq!(pool.classes.map(|buffers| buffers.len()), [0, 0, 0, 0, 64, 0, 0, 0, 8]);
        assert_eq!(pool.small_bytes + pool.large_bytes, BufferPool::BYTES_MAX);
    }
}
