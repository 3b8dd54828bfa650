//! The record of requests under way, in memory that the front-end keeps while this process is gone:
//! what lets a daemon that was killed go on where it was, with no request lost and none answered
//! twice.
//!
//! ```text
//! queue 0   features u64, version u16, descriptors u16, last head u16, used index u16
//!           for each descriptor: under way u8, 5 bytes, next head u16, counter u64
//! queue 1   ...
//! at last   magic [u8; 8], UUID of the cache [u8; 16], write cache u8, 7 bytes
//! ```
//!
//! ```text
//! taken:  counter; under way = 1
//!           Crash before: the guest's available index still has it. After: it is sent again.
//! done:   1. next head = last head; last head = this one
//!         2. the guest's used index goes up, which the guest sees
//!         3. under way = 0
//!         4. used index = the guest's
//!           Crash before 2: it is sent again. Between 2 and 4: the two used indices differ, and
//!           the last head tells which one was done.
//! ```
//!
//! The layout of queues is the protocol's. What stands behind them is ours: whose record it is, so
//! that requests never go to another volume, and what the guest believes of the write cache (see
//! `session.rs`).
//!
//! The front-end could write anything here. It then harms its own guest only: heads are checked
//! like those of the ring.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use dcd_engine::Uuid;

use super::memory::{Area, MemoryError, SharedMemory};
use super::message::InflightMessage;
use super::{QUEUES_MAX, chain::CHAIN_MAX};

const QUEUE_HEADER: usize = 16;
const ENTRY: usize = 16;
const VERSION_AT: usize = 8;
const COUNT_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;
const VERSION: u16 = 1;

const TRAILER: u64 = 32;
const MAGIC: [u8; 8] = *b"dcd-vub1";
const UUID_AT: usize = 8;
const WRITE_CACHE_AT: usize = 24;

/// Why a record is not gone on from.
#[derive(Debug, thiserror::Error)]
pub enum InflightError {
    /// More than there can be, or none.
    #[error(
        "a record of {queues} queues with {queue_size} descriptors (expected 1 to {QUEUES_MAX}, and 1 to {CHAIN_MAX})"
    )]
    Bounds {
        /// Of queues.
        queues: u16,
        /// Of descriptors.
        queue_size: u16,
    },
    /// Too short for what it is said to hold.
    #[error("a record of {found} bytes for {queues} queues, expected {expected}")]
    Size {
        /// Of queues.
        queues: u16,
        /// What they take.
        expected: u64,
        /// What it has.
        found: u64,
    },
    /// Made by something else.
    #[error("requests under way that were begun by another program, or an incompatible version")]
    NotOurs,
    /// Made for another volume.
    #[error("requests under way that were begun on the cache {found}, this is {expected}")]
    Foreign {
        /// Of this cache.
        expected: Uuid,
        /// Of the other one.
        found: Uuid,
    },
    /// It cannot be mapped.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// The record of all queues.
#[derive(Debug)]
pub struct Inflight {
    memory: Rc<SharedMemory>,
    queues: u16,
    queue_size: u16,
    trailer: Area,
}

fn queue_bytes(queue_size: u16) -> u64 {
    // In pieces of a cache line, so that queues do not share one.
    let bytes = QUEUE_HEADER + ENTRY * usize::from(queue_size);
    bytes.next_multiple_of(64) as u64
}

fn record_bytes(queues: u16, queue_size: u16) -> Result<u64, InflightError> {
    let size_fits = (1..=CHAIN_MAX).contains(&queue_size);
    if !size_fits || !(1..=QUEUES_MAX).contains(&queues) {
        return Err(InflightError::Bounds { queues, queue_size });
    }
    Ok(u64::from(queues) * queue_bytes(queue_size) + TRAILER)
}

impl Inflight {
    /// A new record, the file it lies in, and how it is announced.
    pub fn create(
        queues: u16,
        queue_size: u16,
        uuid: Uuid,
        write_cache: bool,
    ) -> Result<(OwnedFd, InflightMessage), InflightError> {
        let size = record_bytes(queues, queue_size)?;
        let (memory, file) = SharedMemory::new("dcd-vhost-user", size)?;
        let record = Inflight::of(memory, queues, queue_size, size);
        record.trailer.write(UUID_AT, &uuid.0);
        record.set_write_cache(write_cache);
        record.trailer.write(0, &MAGIC);
        Ok((file, InflightMessage { size, offset: 0, queues, queue_size }))
    }

    fn of(memory: SharedMemory, queues: u16, queue_size: u16, size: u64) -> Inflight {
        let memory = Rc::new(memory);
        let trailer = Area::new(&memory, size - TRAILER, TRAILER);
        let trailer = trailer.expect("the record is as long as it should be");
        Inflight { memory, queues, queue_size, trailer }
    }

    /// The record that a front-end has kept.
    pub fn open(
        file: impl AsFd,
        announced: &InflightMessage,
        uuid: Uuid,
    ) -> Result<Inflight, InflightError> {
        let InflightMessage { size, offset, queues, queue_size } = *announced;
        let expected = record_bytes(queues, queue_size)?;
        if size != expected {
            return Err(InflightError::Size { queues, expected, found: size });
        }
        // Its numbers would not be aligned in memory.
        if !offset.is_multiple_of(2) {
            return Err(InflightError::NotOurs);
        }
        let record = Inflight::of(SharedMemory::map(file, offset, size)?, queues, queue_size, size);
        if record.trailer.read(0) != MAGIC {
            return Err(InflightError::NotOurs);
        }
        let found = Uuid(record.trailer.read(UUID_AT));
        if found != uuid {
            return Err(InflightError::Foreign { expected: uuid, found });
        }
        Ok(record)
    }

    /// Whether the guest believes that there is a write cache, so that it flushes.
    pub fn write_cache(&self) -> bool {
        self.trailer.read(WRITE_CACHE_AT) == [1]
    }

    /// Keeps what the guest believes.
    pub fn set_write_cache(&self, write_cache: bool) {
        self.trailer.write(WRITE_CACHE_AT, &[u8::from(write_cache)]);
    }

    /// The record of one queue of so many descriptors.
    pub fn queue(&self, queue: u16, size: u16) -> Option<QueueRecord> {
        if queue >= self.queues || size > self.queue_size {
            return None;
        }
        let bytes = queue_bytes(self.queue_size);
        let area = Area::new(&self.memory, u64::from(queue) * bytes, bytes)?;
        Some(QueueRecord { area, size, counter: 0 })
    }
}

/// What a daemon that has ended left under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// Heads of chains, in the order in which they were taken.
    pub heads: Vec<u16>,
    /// Whether anything was ever taken from this queue; else the front-end says where to begin.
    pub is_new: bool,
}

/// The record of one queue.
#[derive(Debug)]
pub struct QueueRecord {
    area: Area,
    size: u16,
    /// Of the next request.
    counter: u64,
}

impl QueueRecord {
    fn entry(head: u16) -> usize {
        QUEUE_HEADER + ENTRY * usize::from(head)
    }

    /// Brings the record up to date with the ring, whose used index this is, and tells what is
    /// under way.
    pub fn recover(&mut self, used_index: u16) -> Left {
        let is_new = self.area.load(VERSION_AT) != VERSION;
        if is_new {
            self.area.store(COUNT_AT, self.size);
            self.area.store(USED_AT, used_index);
            self.area.store(VERSION_AT, VERSION);
        }
        // 1. What the guest has seen done, and the record has not. One at a time is published
        //    (`queue.rs`); a longer batch is followed all the same.
        let batch = used_index.wrapping_sub(self.area.load(USED_AT));
        let mut head = self.area.load(LAST_HEAD_AT);
        for _ in 0..batch.min(self.size) {
            if head >= self.size {
                break;
            }
            self.area.write(Self::entry(head), &[0]);
            head = self.area.load(Self::entry(head) + NEXT_AT);
        }
        self.area.store(USED_AT, used_index);
        // 2. What is left, in order.
        let mut left: Vec<(u64, u16)> = (0..self.size)
            .filter(|head| self.area.read(Self::entry(*head)) != [0])
            .map(|head| (u64::from_le_bytes(self.area.read(Self::entry(head) + COUNTER_AT)), head))
            .collect();
        left.sort_unstable();
        self.counter = left.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        Left { heads: left.into_iter().map(|(_, head)| head).collect(), is_new }
    }

    /// A request was taken.
    pub fn taken(&mut self, head: u16) {
        let entry = Self::entry(head);
        self.area.write(entry + COUNTER_AT, &self.counter.to_le_bytes());
        self.counter = self.counter.wrapping_add(1);
        self.area.write(entry, &[1]);
    }

    /// Step 1: it is about to be shown as done.
    pub fn about_to_publish(&self, head: u16) {
        self.area.store(Self::entry(head) + NEXT_AT, self.area.load(LAST_HEAD_AT));
        self.area.store(LAST_HEAD_AT, head);
    }

    /// Steps 3 and 4: the guest has seen it.
    pub fn published(&self, head: u16, used_index: u16) {
        self.area.write(Self::entry(head), &[0]);
        self.area.store(USED_AT, used_index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: Uuid = Uuid([7; 16]);

    fn record() -> (OwnedFd, InflightMessage) {
        Inflight::create(2, 8, UUID, true).unwrap()
    }

    fn queue(file: &OwnedFd, announced: &InflightMessage) -> QueueRecord {
        Inflight::open(file, announced, UUID).unwrap().queue(1, 8).unwrap()
    }

    #[test]
    fn each_step_of_a_crash_is_gone_on_from() {
        for crashed_after in 0..=5 {
            let (file, announced) = record();
            let mut first = queue(&file, &announced);
            assert_eq!(first.recover(40), Left { heads: vec![], is_new: true });
            for head in [3, 1, 5] {
                first.taken(head);
            }
            // One is done, entirely.
            first.about_to_publish(3);
            first.published(3, 41);
            // And one in part: 1 taken again, 2 next head, 3 seen by the guest, 4 cleared, 5
            // counted.
            let mut used_index = 41;
            if crashed_after >= 2 {
                first.about_to_publish(1);
            }
            if crashed_after >= 3 {
                used_index = 42;
            }
            if crashed_after >= 4 {
                first.published(1, if crashed_after == 5 { 42 } else { 41 });
            }
            let left = queue(&file, &announced).recover(used_index);
            let expected = if used_index == 42 { vec![5] } else { vec![1, 5] };
            assert_eq!(left, Left { heads: expected, is_new: false }, "after {crashed_after}");
            // Once more changes nothing.
            assert_eq!(queue(&file, &announced).recover(used_index), left);
        }
    }

    #[test]
    fn requests_come_back_in_their_order_after_several_crashes() {
        let (file, announced) = record();
        let mut first = queue(&file, &announced);
        first.recover(0);
        [6, 2, 4].into_iter().for_each(|head| first.taken(head));
        let mut second = queue(&file, &announced);
        assert_eq!(second.recover(0).heads, [6, 2, 4]);
        second.taken(0);
        assert_eq!(queue(&file, &announced).recover(0).heads, [6, 2, 4, 0]);
        // The other queue has nothing of that.
        let other = Inflight::open(&file, &announced, UUID).unwrap().queue(0, 8);
        assert_eq!(other.unwrap().recover(0).heads, [] as [u16; 0]);
    }

    #[test]
    fn the_write_cache_and_the_owner_are_kept() {
        let (file, announced) = record();
        let first = Inflight::open(&file, &announced, UUID).unwrap();
        assert!(first.write_cache());
        first.set_write_cache(false);
        assert!(!Inflight::open(&file, &announced, UUID).unwrap().write_cache());
        let foreign = Inflight::open(&file, &announced, Uuid([8; 16])).unwrap_err();
        assert!(matches!(foreign, InflightError::Foreign { .. }), "{foreign}");
        let other = SharedMemory::new("other", announced.size).unwrap().1;
        let error = Inflight::open(&other, &announced, UUID).unwrap_err();
        assert!(matches!(error, InflightError::NotOurs), "{error}");
    }

    #[test]
    fn a_record_that_cannot_be_is_refused() {
        for (queues, queue_size) in [(0, 8), (1, 0), (QUEUES_MAX + 1, 8), (1, CHAIN_MAX + 1)] {
            let error = Inflight::create(queues, queue_size, UUID, true).unwrap_err();
            assert!(matches!(error, InflightError::Bounds { .. }), "{error}");
        }
        let (file, announced) = record();
        // More queues than there is memory for.
        let more = InflightMessage { queues: 3, ..announced };
        let error = Inflight::open(&file, &more, UUID).unwrap_err();
        assert!(matches!(error, InflightError::Size { .. }), "{error}");
        let beyond = InflightMessage { offset: 4096, ..announced };
        let error = Inflight::open(&file, &beyond, UUID).unwrap_err();
        assert!(matches!(error, InflightError::Memory(_)), "{error}");
        let record = Inflight::open(&file, &announced, UUID).unwrap();
        assert!(record.queue(2, 8).is_none() && record.queue(0, 16).is_none());
    }

    #[test]
    fn garbage_in_the_record_stays_within_it() {
        let (file, announced) = record();
        let (mapped, len) = (SharedMemory::map(&file, 0, announced.size).unwrap(), announced.size);
        let garbage: Vec<u8> = (0..len - TRAILER).map(|byte| (byte * 37) as u8 | 1).collect();
        assert!(mapped.write(0, &garbage));
        let left = queue(&file, &announced).recover(17);
        assert!(left.heads.len() <= 8 && left.heads.iter().all(|head| *head < 8));
    }
}
