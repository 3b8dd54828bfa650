//! Memory of requests that are done, for the next ones: asking the system for it, page by page,
//! takes longer than a request.

use crate::buffer::Buffer;

/// What is received first of a long write, when no memory is left over from another.
/// It grows with the data, so that a client has to send something to make us hold something.
const FIRST_RECEIVED: usize = 64 << 10;

/// Buffers for the next requests of somebody, from requests that are done.
#[derive(Default)]
pub struct BufferPool {
    small: Vec<Buffer>,
    large: Vec<Buffer>,
}

impl BufferPool {
    const SMALL_LENGTH_MAX: usize = 64 << 10;
    const SMALL_MAX: usize = 64;
    /// No longer buffer is kept.
    pub const LARGE_LENGTH_MAX: usize = 1 << 20;
    const LARGE_MAX: usize = 8;
    /// Most bytes that are kept.
    pub const BYTES_MAX: usize =
        Self::SMALL_MAX * Self::SMALL_LENGTH_MAX + Self::LARGE_MAX * Self::LARGE_LENGTH_MAX;

    /// A buffer of any length for a read of `length` bytes; empty if there is none, and none is
    /// made.
    pub fn spare(&mut self, length: usize) -> Buffer {
        self.class(length).pop_if(|buffer| buffer.room() >= length).unwrap_or_default()
    }

    /// A buffer of `length` bytes that hold anything, and so must be overwritten.
    pub fn take(&mut self, length: usize) -> Buffer {
        match self.class(length).pop() {
            Some(mut buffer) => {
                buffer.set_any(length);
                buffer
            }
            None => Buffer::zeroed(length),
        }
    }

    /// A buffer, longer than `filled`, in which to receive the rest of `length` bytes. It may have
    /// to grow, because new memory is given only to a client that has sent about as much.
    pub fn take_for_receiving(&mut self, length: usize, filled: usize) -> Buffer {
        if length > Self::SMALL_LENGTH_MAX && !self.large.is_empty() {
            return self.take(length.min(Self::LARGE_LENGTH_MAX));
        }
        Buffer::zeroed(length.min(FIRST_RECEIVED.max(2 * filled)))
    }

    /// Keeps the memory of a request that is done, if that is worth while.
    pub fn put(&mut self, buffer: Option<Buffer>) {
        let Some(buffer) = buffer.filter(|buffer| buffer.room() > 0) else { return };
        let count_max = match buffer.room() {
            room if room <= Self::SMALL_LENGTH_MAX => Self::SMALL_MAX,
            room if room <= Self::LARGE_LENGTH_MAX => Self::LARGE_MAX,
            _ => return,
        };
        let buffers = self.class(buffer.room());
        if buffers.len() < count_max {
            buffers.push(buffer);
        }
    }

    fn class(&mut self, length: usize) -> &mut Vec<Buffer> {
        if length <= Self::SMALL_LENGTH_MAX { &mut self.small } else { &mut self.large }
    }
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
        assert_eq!((pool.small.len(), pool.large.len()), (64, 8));
    }
}
