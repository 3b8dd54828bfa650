//! A ublk device on the event loop: what moves between the ring and the tags.

use std::rc::Rc;

use dcd_engine::{Buffer, Reply};

use crate::frontend::ublk::ServerEnd;
use crate::frontend::ublk::queue::{Answer, Fetched, Queue};
use crate::frontend::ublk::uapi::{COMMIT_AND_FETCH, FETCH};
use crate::ring::Ring;

/// Names what the server waits for in the ring: the fetch of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UblkKey(pub u16);

/// A device whose requests this loop answers.
pub struct UblkServer {
    end: Rc<ServerEnd>,
    queue: Queue,
}

impl UblkServer {
    /// Begins to fetch.
    pub fn start<K: Copy + From<UblkKey>>(
        end: ServerEnd,
        io_bytes_max: u32,
        ring: &mut Ring<K>,
    ) -> UblkServer {
        let queue = Queue::new(end.queue_depth(), io_bytes_max as usize);
        let server = UblkServer { end: Rc::new(end), queue };
        for tag in 0..server.end.queue_depth() {
            server.command(tag, FETCH, 0, server.queue.new_buffer(), ring);
        }
        // 1. All fetches in one system call. A crash before it leaves a device that the next start
        //    takes over as this one did; one behind it, a device that is taken over from the
        //    beginning.
        ring.submit();
        // 2. Only now: see `map`.
        server.end.map();
        server
    }

    /// A fetch has ended.
    pub fn fetched(&mut self, tag: u16, result: i32, buffer: Buffer) -> Fetched {
        self.queue.fetched(tag, result, || self.end.descriptor(tag), buffer)
    }

    /// Answers a request.
    pub fn complete<K: Copy + From<UblkKey>>(
        &mut self,
        tag: u16,
        reply: Reply,
        ring: &mut Ring<K>,
    ) {
        if let Some(answer) = self.queue.replied(tag, reply) {
            self.answer(tag, answer, ring);
        }
    }

    /// Tells the driver, and fetches the next request of the tag.
    pub fn answer<K: Copy + From<UblkKey>>(
        &mut self,
        tag: u16,
        answer: Answer,
        ring: &mut Ring<K>,
    ) {
        self.command(tag, COMMIT_AND_FETCH, answer.result, answer.buffer, ring);
    }

    /// Whether the device has ended, so that this can be dropped.
    pub fn is_over(&self) -> bool {
        self.queue.is_over()
    }

    fn command<K: Copy + From<UblkKey>>(
        &self,
        tag: u16,
        code: u32,
        result: i32,
        buffer: Buffer,
        ring: &mut Ring<K>,
    ) {
        let mut head = [0; 8];
        // The first two bytes: queue 0.
        head[2..4].copy_from_slice(&tag.to_ne_bytes());
        head[4..].copy_from_slice(&result.to_ne_bytes());
        ring.command(K::from(UblkKey(tag)), self.end.clone(), code, head, buffer);
    }
}
