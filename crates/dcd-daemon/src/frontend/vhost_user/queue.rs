//! A queue of the device: what the front-end has said about its ring, and the ring while it runs.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::chain::ChainError;
use super::config::feature;
use super::inflight::{Inflight, QueueRecord};
use super::memory::{GuestMemory, OutsideMemory};
use super::message::RingAddresses;
use super::ring::{Ring, RingError};
use super::{block::BlockError, inflight::Left};

/// Why a queue is not served any more. The guest has to start the device anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueueError {
    /// Its ring is none.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A chain is none.
    #[error("a chain that begins at descriptor {head}: {source}")]
    Chain {
        /// Where it begins.
        head: u16,
        /// What is wrong.
        source: ChainError,
    },
    /// A chain that is no request.
    #[error("a chain that begins at descriptor {head}: {source}")]
    Block {
        /// Where it begins.
        head: u16,
        /// What is wrong.
        source: BlockError,
    },
    /// A chain that is being served.
    #[error("descriptor {head} is available while its request is under way")]
    Twice {
        /// Where it begins.
        head: u16,
    },
    /// The answer has no place.
    #[error("the answer of a request: {0}")]
    Answer(OutsideMemory),
    /// More descriptors than the record was made for.
    #[error("a ring of {size} descriptors, and no record of requests under way for so many")]
    Record {
        /// Of the ring.
        size: u16,
    },
}

/// A queue that requests are taken from.
#[derive(Debug)]
pub struct Running {
    /// The ring.
    pub ring: Ring,
    /// What outlives this process, if the front-end keeps it.
    pub record: Option<QueueRecord>,
    /// Heads that an earlier daemon took, to be served before others.
    pub left: VecDeque<u16>,
    /// Heads whose requests are under way.
    pub taken: Vec<bool>,
}

/// A queue.
#[derive(Debug, Default)]
pub struct Queue {
    /// Descriptors; 0: not said yet.
    pub size: u16,
    /// Where the ring is, if said.
    pub addresses: Option<RingAddresses>,
    /// Where to begin, for who keeps no record.
    pub base: u16,
    /// Rung by the guest.
    pub kick: Option<OwnedFd>,
    /// Rung for the guest.
    pub call: Option<OwnedFd>,
    /// Rung when the queue is broken.
    pub error: Option<OwnedFd>,
    /// Whether the front-end wants it served.
    pub enabled: bool,
    /// While it is served.
    pub running: Option<Running>,
    /// Not to be served until it is set up anew.
    pub is_broken: bool,
    /// There may be chains to be taken.
    pub has_work: bool,
    /// Requests that the engine has.
    pub under_way: usize,
}

impl Queue {
    /// Begins to serve, if all is known that is needed. Whether it does now.
    pub fn start(
        &mut self,
        index: u16,
        memory: &GuestMemory,
        features: u64,
        record: Option<&Inflight>,
    ) -> Result<bool, QueueError> {
        let is_ready = self.enabled && !memory.is_empty() && self.kick.is_some() && self.size > 0;
        if self.running.is_some() || self.is_broken || !is_ready {
            return Ok(false);
        }
        let Some(addresses) = self.addresses else { return Ok(false) };
        let has_events = features & feature::EVENT_IDX != 0;
        let mut ring = Ring::new(memory, self.size, &addresses, has_events)?;
        let mut left = VecDeque::new();
        let mut queue_record = None;
        if let Some(record) = record {
            let no_record = QueueError::Record { size: self.size };
            let mut record = record.queue(index, self.size).ok_or(no_record)?;
            let Left { heads, is_new } = record.recover(ring.used_index());
            let after_left = ring.used_index().wrapping_add(heads.len() as u16);
            ring.go_on_from(if is_new { self.base } else { after_left });
            left = heads.into();
            queue_record = Some(record);
        } else {
            ring.go_on_from(self.base);
        }
        let taken = vec![false; self.size.into()];
        self.running = Some(Running { ring, record: queue_record, left, taken });
        // What came, or was done, while nobody served it has no signal any more.
        self.has_work = true;
        self.signal();
        Ok(true)
    }

    /// The guest's memory is somewhere else now.
    pub fn move_to(&mut self, memory: &GuestMemory) -> Result<(), QueueError> {
        if let (Some(running), Some(addresses)) = (&mut self.running, &self.addresses) {
            running.ring = running.ring.moved(memory, addresses)?;
        }
        Ok(())
    }

    /// Where a ring that is stopped stands.
    pub fn stop(&mut self) -> u16 {
        if let Some(running) = self.running.take() {
            // What was left and not taken yet is found again in the record.
            self.base = running.ring.next_available();
        }
        // The next start is with a new descriptor, as the protocol has it.
        self.kick = None;
        self.is_broken = false;
        self.base
    }

    /// The next chain to be served, which is on record from now on.
    pub fn take(&mut self) -> Result<Option<u16>, QueueError> {
        let Some(running) = &mut self.running else { return Ok(None) };
        let head = match running.left.pop_front() {
            Some(head) => head,
            None => {
                let taken = running.ring.take()?;
                let taken = match taken {
                    None if running.ring.wait() => running.ring.take()?,
                    taken => taken,
                };
                let Some(head) = taken else { return Ok(None) };
                if running.taken.get(usize::from(head)) != Some(&false) {
                    return Err(QueueError::Twice { head });
                }
                if let Some(record) = &mut running.record {
                    record.taken(head);
                }
                head
            }
        };
        match running.taken.get_mut(usize::from(head)) {
            Some(is_taken @ false) => *is_taken = true,
            _ => return Err(QueueError::Twice { head }),
        }
        Ok(Some(head))
    }

    /// Shows the guest that a request is done.
    pub fn done(&mut self, head: u16, len: u32) {
        let Some(Running { ring, record, taken, .. }) = &mut self.running else { return };
        if let Some(is_taken) = taken.get_mut(usize::from(head)) {
            *is_taken = false;
        }
        ring.put(head, len);
        if let Some(record) = record {
            record.about_to_publish(head);
        }
        ring.publish();
        if let Some(record) = record {
            record.published(head, ring.used_index());
        }
    }

    /// Wakes the guest if it wants to be woken for what was done.
    pub fn signal_if_wanted(&mut self) {
        if self.running.as_mut().is_some_and(|running| running.ring.wants_signal()) {
            self.signal();
        }
    }

    /// Wakes the guest.
    pub fn signal(&self) {
        self.call.iter().for_each(ring);
    }

    /// Serves it no more, and tells the front-end.
    pub fn fail(&mut self) {
        self.is_broken = true;
        self.has_work = false;
        self.error.iter().for_each(ring);
    }

    /// Whether kicks are to be waited for.
    pub fn listens(&self) -> bool {
        self.running.is_some() && self.enabled && !self.is_broken
    }

    /// The guest has kicked: hears it, so that it is not heard again.
    pub fn heard(&mut self) {
        self.has_work = true;
        if let Some(kick) = &self.kick {
            let _ = rustix::io::read(kick, &mut [0; 8]);
        }
    }
}

/// An eventfd that cannot hold up whoever reads or writes it; `None`: it is something else.
pub fn event(file: OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    // A file that is always ready to be read, or that waits when it is written, would hold up all
    // queues.
    let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let target = rustix::fs::readlink(name, Vec::new())?;
    if target.to_bytes() != b"anon_inode:[eventfd]" {
        return Ok(None);
    }
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK)?;
    Ok(Some(file))
}

/// Whether it is the end of a pipe that is written; then it does not wait for who reads it from now
/// on. The flag is that of this end, which the front-end does not use.
pub fn is_pipe(file: &OwnedFd) -> Result<bool, Errno> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
    let flags = rustix::fs::fcntl_getfl(file)?;
    if kind != FileType::Fifo || flags & OFlags::ACCMODE != OFlags::WRONLY {
        return Ok(false);
    }
    rustix::fs::fcntl_setfl(file, flags | OFlags::NONBLOCK)?;
    Ok(true)
}

fn ring(event: &OwnedFd) {
    // Full: then it has been rung and not been heard. Nobody reads the pipe: the same, and SIGPIPE
    // is ignored.
    let _ = rustix::io::write(event.as_fd(), &1u64.to_ne_bytes());
}
