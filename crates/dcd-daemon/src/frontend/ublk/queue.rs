//! The tags of a device, without I/O: a fetch that has ended becomes a request, a reply becomes an
//! answer.
//!
//! ```text
//!             fetch ended                reply
//!   Fetching -------------> Taken ------------------> Fetching (the answer is also the next fetch)
//!      |                      |
//!      | device stops         | the daemon ends first: no answer, so the driver sends it again
//!      v                      v
//!     Gone                   Held
//! ```
//!
//! Each request is answered once or held for the next daemon, never both: the states see to it. A
//! tag has a buffer of the longest request. The driver fills it with what is to be written before a
//! fetch ends, and takes from it what was read when it is answered. It travels with a read or write
//! into the engine and comes back with the reply.

use dcd_engine::units::{BLOCK_SIZE, Lba, LbaRange};
use dcd_engine::{Buffer, Operation, Reply, RequestError};
use rustix::io::Errno;

use super::uapi::{
    Descriptor, FLAG_FUA, FLAG_META, FLAG_NO_UNMAP, FLAG_SWAP, OPERATION_DISCARD, OPERATION_FLUSH,
    OPERATION_READ, OPERATION_WRITE, OPERATION_WRITE_ZEROES,
};

/// What becomes of a fetch that has ended.
#[derive(Debug)]
pub enum Fetched {
    /// A request for the engine.
    Request {
        /// What is wanted.
        operation: Operation,
        /// Answer when it is durable.
        fua: bool,
        /// What the kernel knows about the blocks.
        hint: Option<(LbaRange, Hint)>,
    },
    /// Something that is refused at once.
    Answer(Answer),
    /// The device stops, or has gone wrong: the tag is not used any more.
    Gone,
}

/// What the kernel says that blocks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint {
    /// Metadata of a file system.
    Metadata,
    /// Swapped memory.
    Swap,
}

/// What the driver is told of a request.
#[derive(Debug)]
pub struct Answer {
    /// Bytes that were moved, or an error number below zero.
    pub result: i32,
    /// The tag's buffer, for the next fetch; of a read, with what was read.
    pub buffer: Buffer,
}

#[derive(Debug)]
enum Tag {
    /// The driver has the buffer.
    Fetching,
    /// The engine has the request. Its buffer, unless that is in the request.
    Taken { bytes: u32, buffer: Option<Buffer> },
    /// Left to the next daemon.
    Held,
    /// Not used any more.
    Gone,
}

/// All tags of a device.
#[derive(Debug)]
pub struct Queue {
    tags: Vec<Tag>,
    io_bytes_max: usize,
}

impl Queue {
    /// Tags that are all about to be fetched.
    pub fn new(queue_depth: u16, io_bytes_max: usize) -> Queue {
        Queue { tags: (0..queue_depth).map(|_| Tag::Fetching).collect(), io_bytes_max }
    }

    /// A buffer for a fetch.
    pub fn new_buffer(&self) -> Buffer {
        Buffer::zeroed(self.io_bytes_max)
    }

    /// Whether no fetch is under way and nothing waits for a reply.
    pub fn is_over(&self) -> bool {
        self.tags.iter().all(|tag| matches!(tag, Tag::Gone | Tag::Held))
    }

    /// Requests that the engine has.
    pub fn requests_taken(&self) -> usize {
        self.tags.iter().filter(|tag| matches!(tag, Tag::Taken { .. })).count()
    }

    /// A fetch has ended with `result`; its buffer is back, and `descriptor` says what the request
    /// is.
    pub fn fetched(
        &mut self,
        tag: u16,
        result: i32,
        descriptor: impl FnOnce() -> Descriptor,
        mut buffer: Buffer,
    ) -> Fetched {
        let place = &mut self.tags[usize::from(tag)];
        assert!(matches!(place, Tag::Fetching), "tag {tag} was not fetched");
        if result != 0 {
            *place = Tag::Gone;
            return Fetched::Gone;
        }
        let descriptor = descriptor();
        let flags = descriptor.operation_and_flags;
        let range = LbaRange { start: Lba(descriptor.start), blocks: descriptor.blocks.into() };
        let bytes = descriptor.blocks.checked_mul(BLOCK_SIZE as u32);
        let fits = bytes.filter(|bytes| *bytes as usize <= self.io_bytes_max);
        let (operation, bytes) = match (flags as u8, fits) {
            (OPERATION_READ, Some(bytes)) => {
                let buffer = std::mem::take(&mut buffer);
                (Operation::Read { range, buffer }, bytes)
            }
            (OPERATION_WRITE, Some(bytes)) => {
                let mut data = std::mem::take(&mut buffer);
                data.set_len(bytes as usize);
                (Operation::Write { start: range.start, data }, bytes)
            }
            (OPERATION_FLUSH, _) => (Operation::Flush, 0),
            (OPERATION_DISCARD, _) => (Operation::Discard { range }, 0),
            (OPERATION_WRITE_ZEROES, _) => {
                let may_unmap = flags & FLAG_NO_UNMAP == 0;
                (Operation::WriteZeroes { range, may_unmap }, 0)
            }
            (OPERATION_READ | OPERATION_WRITE, None) => {
                return Fetched::Answer(Answer { result: error(Errno::INVAL), buffer });
            }
            _ => return Fetched::Answer(Answer { result: error(Errno::OPNOTSUPP), buffer }),
        };
        let hint = match flags {
            _ if bytes == 0 => None,
            _ if flags & FLAG_SWAP != 0 => Some((range, Hint::Swap)),
            _ if flags & FLAG_META != 0 => Some((range, Hint::Metadata)),
            _ => None,
        };
        let buffer = Some(buffer).filter(|buffer| buffer.room() > 0);
        *place = Tag::Taken { bytes, buffer };
        Fetched::Request { operation, fua: flags & FLAG_FUA != 0, hint }
    }

    /// The engine has replied. What the driver is to be told, if anything.
    pub fn replied(&mut self, tag: u16, reply: Reply) -> Option<Answer> {
        let place = &mut self.tags[usize::from(tag)];
        let Tag::Taken { bytes, buffer } = std::mem::replace(place, Tag::Fetching) else {
            panic!("tag {tag} has no request")
        };
        if reply.result == Err(RequestError::ShuttingDown) {
            // Not lost: whoever waits for it goes on waiting, until another daemon gets it or the
            // device is removed.
            *place = Tag::Held;
            return None;
        }
        let result = match reply.result {
            Ok(()) => bytes as i32,
            Err(RequestError::NoSpace) => error(Errno::NOSPC),
            Err(RequestError::ReadOnly) => error(Errno::PERM),
            Err(_) => error(Errno::IO),
        };
        let has_room = |buffer: &Buffer| buffer.room() >= self.io_bytes_max;
        let buffer = match (buffer, reply.buffer) {
            (Some(own), _) => own,
            // Of a read, the driver takes what was read from it.
            (None, Some(own)) if has_room(&own) => own,
            (None, Some(read)) if reply.result.is_ok() => {
                let mut own = self.new_buffer();
                own.set_len(read.len());
                own.bytes_mut().copy_from_slice(read.bytes());
                own
            }
            // It is with an I/O that was given up, or gone with one.
            (None, _) => self.new_buffer(),
        };
        Some(Answer { result, buffer })
    }
}

fn error(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

#[cfg(test)]
mod tests {
    use dcd_engine::RequestId;

    use super::*;

    const ROOM: usize = 64 << 10;

    fn descriptor(operation: u8, flags: u32, start: u64, blocks: u32) -> Descriptor {
        let operation_and_flags = u32::from(operation) | flags;
        Descriptor { operation_and_flags, blocks, start, address: 0 }
    }

    fn reply(result: Result<(), RequestError>, buffer: Option<Buffer>) -> Reply {
        Reply { id: RequestId(0), result, buffer, answer: None }
    }

    #[test]
    fn a_write_keeps_its_memory_all_the_way_round() {
        let mut queue = Queue::new(2, ROOM);
        let buffer = queue.new_buffer();
        let address = buffer.bytes().as_ptr();
        let write = descriptor(OPERATION_WRITE, FLAG_FUA | FLAG_META, 8, 16);
        let Fetched::Request { operation: Operation::Write { start, data }, fua: true, hint } =
            queue.fetched(1, 0, || write, buffer)
        else {
            panic!("not a write")
        };
        assert_eq!((start, data.len(), data.bytes().as_ptr()), (Lba(8), 8192, address));
        assert_eq!(hint, Some((LbaRange::new(8, 16), Hint::Metadata)));
        assert_eq!(queue.requests_taken(), 1);
        let answer = queue.replied(1, reply(Ok(()), Some(data))).unwrap();
        assert_eq!((answer.result, answer.buffer.room()), (8192, ROOM));
        assert_eq!(answer.buffer.bytes().as_ptr(), address);
    }

    #[test]
    fn a_read_brings_its_bytes() {
        let mut queue = Queue::new(1, ROOM);
        let mut own = queue.new_buffer();
        let address = own.bytes().as_ptr();
        for brings_its_own in [true, false] {
            let fetched = queue.fetched(0, 0, || descriptor(OPERATION_READ, 0, 0, 8), own);
            let Fetched::Request { operation: Operation::Read { mut buffer, .. }, .. } = fetched
            else {
                panic!("not a read")
            };
            buffer.set_zeroes(4096);
            buffer.bytes_mut().fill(7);
            let read = if brings_its_own { buffer } else { Buffer::copy_of(&[7; 4096]) };
            let answer = queue.replied(0, reply(Ok(()), Some(read))).unwrap();
            assert_eq!((answer.result, answer.buffer.room()), (4096, ROOM));
            assert_eq!(answer.buffer.bytes(), [7; 4096]);
            assert_eq!(answer.buffer.bytes().as_ptr() == address, brings_its_own);
            own = answer.buffer;
        }
    }

    #[test]
    fn errors_have_numbers_and_a_buffer_for_the_next_request() {
        for (failed, errno) in
            [(RequestError::Io, Errno::IO), (RequestError::NoSpace, Errno::NOSPC)]
        {
            let mut queue = Queue::new(1, ROOM);
            let buffer = queue.new_buffer();
            let Fetched::Request { .. } =
                queue.fetched(0, 0, || descriptor(OPERATION_WRITE, 0, 0, 8), buffer)
            else {
                panic!("not a request")
            };
            // The engine kept what was to be written.
            let answer = queue.replied(0, reply(Err(failed), None)).unwrap();
            assert_eq!((answer.result, answer.buffer.room()), (-errno.raw_os_error(), ROOM));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_without_the_engine() {
        let mut queue = Queue::new(2, ROOM);
        let buffer = queue.new_buffer();
        let long = descriptor(OPERATION_READ, 0, 0, (ROOM / 512) as u32 + 1);
        let Fetched::Answer(answer) = queue.fetched(0, 0, || long, buffer) else { panic!("taken") };
        assert_eq!(answer.result, -Errno::INVAL.raw_os_error());
        let unknown = descriptor(13, 0, 0, u32::MAX);
        let Fetched::Answer(answer) = queue.fetched(1, 0, || unknown, answer.buffer) else {
            panic!("taken")
        };
        assert_eq!(answer.result, -Errno::OPNOTSUPP.raw_os_error());
        // Both are fetched again.
        assert!(!queue.is_over() && queue.requests_taken() == 0);
    }

    #[test]
    fn zeroes_and_discards_may_be_longer_than_any_buffer() {
        let mut queue = Queue::new(2, ROOM);
        let blocks = u32::MAX >> 9;
        let zeroes = descriptor(OPERATION_WRITE_ZEROES, FLAG_NO_UNMAP, 0, blocks);
        let fetched = queue.fetched(0, 0, || zeroes, queue_buffer());
        let Fetched::Request {
            operation: Operation::WriteZeroes { range, may_unmap: false }, ..
        } = fetched
        else {
            panic!("not zeroes: {fetched:?}")
        };
        assert_eq!(range.blocks, u64::from(blocks));
        let answer = queue.replied(0, reply(Ok(()), None)).unwrap();
        assert_eq!((answer.result, answer.buffer.room()), (0, ROOM));
        let discard = descriptor(OPERATION_DISCARD, 0, 0, blocks);
        let fetched = queue.fetched(1, 0, || discard, queue_buffer());
        assert!(matches!(fetched, Fetched::Request { operation: Operation::Discard { .. }, .. }));
    }

    fn queue_buffer() -> Buffer {
        Buffer::zeroed(ROOM)
    }

    #[test]
    fn requests_are_held_at_the_end_and_tags_go_with_the_device() {
        let mut queue = Queue::new(2, ROOM);
        let buffer = queue.new_buffer();
        let Fetched::Request { .. } =
            queue.fetched(0, 0, || descriptor(OPERATION_FLUSH, 0, 0, 0), buffer)
        else {
            panic!("not a request")
        };
        assert!(queue.replied(0, reply(Err(RequestError::ShuttingDown), None)).is_none());
        assert!(!queue.is_over());
        let aborted = -Errno::NODEV.raw_os_error();
        let fetched = queue.fetched(1, aborted, || unreachable!("no request"), queue_buffer());
        assert!(matches!(fetched, Fetched::Gone) && queue.is_over());
    }
}
