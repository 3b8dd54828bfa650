//! What a front-end says about its device, message by message. A message that is refused changes
//! nothing.
//!
//! The write cache (contract C7). Configuration says that there is one, so a guest flushes. A guest
//! may switch it off; from then on what is answered is durable. The front-end keeps that switch,
//! over resets of the guest and over the death of this process, and does not tell it again: a
//! daemon that began anew with "on" would lose writes of a guest that does not flush. So:
//!
//! - it is kept in the record of requests under way, which the front-end gives back, and
//! - where there is no record and the front-end has not read the configuration since it connected
//!   (it has, in the past, and may have been told "off" after that), nobody knows, and all writes
//!   are durable until the guest switches again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::QUEUES_MAX;
use super::config::{WRITE_CACHE_AT, feature};
use super::device::{Device, WriteCache};
use super::inflight::{Inflight, InflightError};
use super::memory::{GuestMemory, MemoryError, REGIONS_MAX, Region};
use super::message::{
    InflightMessage, Message, RegionMessage, config_changed, protocol_feature, reply_config,
    reply_inflight, reply_number, reply_ring_base, request,
};
use super::queue::{event, is_pipe};
use super::ring::{Ring, RingError};
use super::socket::send;

/// Features of the protocol that are offered.
pub const PROTOCOL_FEATURES: u64 = protocol_feature::MQ
    | protocol_feature::REPLY_ACK
    | protocol_feature::BACKEND_REQ
    | protocol_feature::CONFIG
    | protocol_feature::INFLIGHT_SHMFD
    | protocol_feature::CONFIGURE_MEM_SLOTS;

/// Why a message is refused.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A queue that there is not.
    #[error("queue {queue} of {QUEUES_MAX}")]
    Queue {
        /// Its number.
        queue: u32,
    },
    /// A ring that runs is not changed.
    #[error("cannot {operation} while queue {queue} is served")]
    Running {
        /// What was wanted.
        operation: &'static str,
        /// Its number.
        queue: u32,
    },
    /// Not a size of rings, or not where one can be.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// No index of a ring.
    #[error("{base} is no index of a ring")]
    Base {
        /// What was said.
        base: u32,
    },
    /// Features that were not offered.
    #[error("features {found:#x} that were not offered")]
    Features {
        /// Those.
        found: u64,
    },
    /// Something else than an eventfd.
    #[error("a descriptor for queue {queue} that is no eventfd")]
    NoEvent {
        /// Its number.
        queue: u8,
    },
    /// Kicks that nobody would hear.
    #[error("queue {queue} without a descriptor for kicks: rings are not polled")]
    Polling {
        /// Its number.
        queue: u8,
    },
    /// Configuration that is not the guest's to change.
    #[error("{len} bytes of configuration from {offset} on are not to be written")]
    Config {
        /// Where.
        offset: u32,
        /// How much.
        len: usize,
    },
    /// Not memory that can be shared.
    #[error("the guest's memory: {0}")]
    Memory(#[from] MemoryError),
    /// Rings, and no memory in which they could be.
    #[error(
        "the guest shares no memory: queue {queue} is to be served, and no part of the guest's memory was shared"
    )]
    NothingShared {
        /// Its number.
        queue: usize,
    },
    /// Not a record that can be gone on from.
    #[error(transparent)]
    Inflight(#[from] InflightError),
    /// The system refused.
    #[error("cannot look at a descriptor: {0}")]
    System(#[from] io::Error),
}

impl SessionError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            SessionError::Memory(MemoryError::NotSealed) | SessionError::NothingShared { .. } => {
                SHARE_HINT
            }
            SessionError::Inflight(InflightError::Foreign { .. }) => {
                "the virtual machine belongs to another volume's socket; start it anew to use this one"
            }
            SessionError::Inflight(InflightError::NotOurs) => {
                "start the virtual machine anew: what it has under way cannot be taken over"
            }
            _ => return None,
        })
    }
}

/// How a guest's memory comes to be shared.
pub const SHARE_HINT: &str = "give the virtual machine memory that others can share and nobody can cut short: QEMU \
    -object memory-backend-memfd,id=memory,size=SIZE,share=on -numa node,memdev=memory (or -machine memory-backend=memory); \
    libvirt <memoryBacking><source type='memfd'/><access mode='shared'/>";

impl SessionError {
    /// Whether nothing can come of the connection: it is ended, also where the front-end hears of
    /// the error.
    pub fn ends_connection(&self) -> bool {
        matches!(self, SessionError::NothingShared { .. })
    }
}

/// What becomes of a message.
#[derive(Debug)]
pub enum Answer {
    /// It is done, and has no answer of its own.
    Done,
    /// Its answer, with a file.
    Reply(Vec<u8>, Option<OwnedFd>),
    /// Not yet: see [`Session::resume`].
    Later,
}

/// What the next message waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    /// Requests of a ring that is stopped.
    StopRing { queue: u16 },
    /// Requests that were begun before the guest switched the write cache off.
    WriteThrough,
    /// The flush after them.
    Flush,
}

/// A connection's state.
pub struct Session {
    /// The device.
    pub device: Device,
    protocol_features: u64,
    channel: Option<OwnedFd>,
    waiting: Option<Waiting>,
    /// Whether any queue was served on this connection.
    has_started: bool,
    /// Whether the configuration was read on this connection, before that.
    has_read_config: bool,
    /// The front-end is to look whether the volume has grown.
    owes_news: bool,
}

impl Session {
    /// A connection that has just been made.
    pub fn new(device: Device) -> Session {
        Session {
            device,
            protocol_features: 0,
            channel: None,
            waiting: None,
            has_started: false,
            has_read_config: false,
            owes_news: false,
        }
    }

    /// Whether messages are answered even if they have no answer of their own.
    pub fn has_reply_ack(&self) -> bool {
        self.protocol_features & protocol_feature::REPLY_ACK != 0
    }

    /// Whether the next message has to wait.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Deals with a message, whose descriptors are as many as it needs.
    pub fn handle(
        &mut self,
        message: Message,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, SessionError> {
        let mut descriptors = descriptors.into_iter();
        let number = |request, number| Answer::Reply(reply_number(request, number), None);
        let answer = match message {
            Message::GetFeatures => number(request::GET_FEATURES, self.device.volume.features()),
            Message::GetProtocolFeatures => {
                number(request::GET_PROTOCOL_FEATURES, PROTOCOL_FEATURES)
            }
            Message::GetQueueCount => number(request::GET_QUEUE_NUM, QUEUES_MAX.into()),
            Message::GetMemorySlots => number(request::GET_MAX_MEM_SLOTS, REGIONS_MAX as u64),
            Message::SetFeatures(features) => self.set_features(features)?,
            Message::SetProtocolFeatures(features) => self.set_protocol_features(features)?,
            Message::SetOwner | Message::ResetOwner => Answer::Done,
            Message::SetMemoryTable(regions) => {
                let mut memory = GuestMemory::default();
                for (region, file) in regions.iter().zip(descriptors) {
                    memory = memory.with(map(region, file)?)?;
                }
                self.device.set_memory(memory);
                Answer::Done
            }
            Message::AddRegion(region) => {
                for file in descriptors {
                    let memory = self.device.memory.with(map(&region, file)?)?;
                    self.device.set_memory(memory);
                }
                Answer::Done
            }
            Message::RemoveRegion(RegionMessage { guest, user, size, .. }) => {
                self.device.set_memory(self.device.memory.without(guest, user, size)?);
                Answer::Done
            }
            Message::SetRingSize { queue, size } => {
                let size = Ring::check_size(size)?;
                let index = self.stopped("change the size", queue)?;
                self.device.queues[index].size = size;
                Answer::Done
            }
            Message::SetRingAddresses { queue, addresses } => {
                let index = self.stopped("change the addresses", queue)?;
                self.device.queues[index].addresses = Some(addresses);
                Answer::Done
            }
            Message::SetRingBase { queue, base } => {
                let index = self.stopped("change the base", queue)?;
                let base = u16::try_from(base).map_err(|_| SessionError::Base { base })?;
                self.device.queues[index].base = base;
                Answer::Done
            }
            Message::GetRingBase { queue } => self.stop_ring(queue)?,
            Message::SetRingEnable { queue, enable } => {
                let index = self.queue(queue)?;
                let queue = &mut self.device.queues[index];
                queue.enabled = enable;
                queue.has_work = enable && queue.running.is_some();
                Answer::Done
            }
            Message::SetRingKick { queue } => self.set_kick(queue, descriptors.next())?,
            Message::SetRingCall { queue } => self.set_call(queue, descriptors.next())?,
            Message::SetRingError { queue } => {
                let index = self.queue(queue.into())?;
                self.device.queues[index].error = one_bell(queue, descriptors.next())?;
                Answer::Done
            }
            Message::SetBackendChannel => {
                self.channel = descriptors.next();
                Answer::Done
            }
            Message::GetConfig { offset, size } => self.read_config(offset, size),
            Message::SetConfig { offset, bytes } => return self.write_config(offset, &bytes),
            Message::GetInflight(wanted) => self.create_inflight(&wanted)?,
            Message::SetInflight(announced) => self.set_inflight(&announced, descriptors.next())?,
        };
        self.start_queues()?;
        Ok(answer)
    }

    /// Features that the guest has accepted.
    fn set_features(&mut self, features: u64) -> Result<Answer, SessionError> {
        let found = features & !self.device.volume.features();
        if found != 0 {
            return Err(SessionError::Features { found });
        }
        // The kinds of indirect tables and events belong to the rings that are being served.
        let kept = feature::INDIRECT_DESC | feature::EVENT_IDX;
        if (features ^ self.device.features) & kept != 0 {
            self.check_stopped("change features")?;
        }
        self.device.features = features;
        if features & feature::PROTOCOL_FEATURES == 0 {
            // Then queues are enabled from the start.
            self.device.queues.iter_mut().for_each(|queue| queue.enabled = true);
        }
        Ok(Answer::Done)
    }

    /// Features of the protocol itself.
    fn set_protocol_features(&mut self, features: u64) -> Result<Answer, SessionError> {
        let found = features & !PROTOCOL_FEATURES;
        if found != 0 {
            return Err(SessionError::Features { found });
        }
        self.protocol_features = features;
        Ok(Answer::Done)
    }

    /// Serves a ring no more, and answers where it stands.
    fn stop_ring(&mut self, queue: u32) -> Result<Answer, SessionError> {
        let index = self.queue(queue)?;
        // Served no more; answered when all that was taken is done.
        self.device.queues[index].enabled = false;
        self.device.queues[index].has_work = false;
        self.waiting = Some(Waiting::StopRing { queue: index as u16 });
        Ok(Answer::Later)
    }

    /// The descriptor by which a guest announces requests.
    fn set_kick(&mut self, queue: u8, descriptor: Option<OwnedFd>) -> Result<Answer, SessionError> {
        let index = self.queue(queue.into())?;
        let kick = one_event(queue, descriptor)?;
        let kick = kick.ok_or(SessionError::Polling { queue })?;
        let is_always_on = self.device.features & feature::PROTOCOL_FEATURES == 0;
        let queue = &mut self.device.queues[index];
        queue.kick = Some(kick);
        queue.enabled |= is_always_on;
        Ok(Answer::Done)
    }

    /// The descriptor by which a guest is told of answers.
    fn set_call(&mut self, queue: u8, descriptor: Option<OwnedFd>) -> Result<Answer, SessionError> {
        let index = self.queue(queue.into())?;
        self.device.queues[index].call = one_bell(queue, descriptor)?;
        // What was done while there was no descriptor, or another.
        if self.device.queues[index].running.is_some() {
            self.device.queues[index].signal();
        }
        Ok(Answer::Done)
    }

    /// Makes an empty record of requests under way, for the front-end to keep.
    fn create_inflight(&mut self, wanted: &InflightMessage) -> Result<Answer, SessionError> {
        let write_cache = self.device.write_cache == WriteCache::On;
        let (queues, size) = (wanted.queues, wanted.queue_size);
        let (file, made) = Inflight::create(queues, size, self.device.volume.uuid, write_cache)?;
        Ok(Answer::Reply(reply_inflight(&made), Some(file)))
    }

    /// Takes the record of requests under way that the front-end has kept.
    fn set_inflight(
        &mut self,
        announced: &InflightMessage,
        file: Option<OwnedFd>,
    ) -> Result<Answer, SessionError> {
        self.check_stopped("change the record of requests")?;
        let file = file.as_ref().ok_or(SessionError::Inflight(InflightError::NotOurs))?;
        let record = Inflight::open(file.as_fd(), announced, self.device.volume.uuid)?;
        if self.device.write_cache == WriteCache::Unknown {
            let is_on = record.write_cache();
            self.device.write_cache = if is_on { WriteCache::On } else { WriteCache::Off };
        } else {
            record.set_write_cache(self.device.write_cache == WriteCache::On);
        }
        self.device.record = Some(record);
        Ok(Answer::Done)
    }

    /// Starts the queues that have all they need, if nothing is being stopped.
    fn start_queues(&mut self) -> Result<(), SessionError> {
        if self.waiting.is_none()
            && let Some(queue) = self.device.queue_without_memory()
        {
            return Err(SessionError::NothingShared { queue });
        }
        if self.waiting.is_none() && self.device.start_queues() && !self.has_started {
            self.has_started = true;
            // It goes on where it was; the volume may have grown while nobody served it.
            self.owes_news = !self.has_read_config;
        }
        Ok(())
    }

    /// Goes on with a message that was answered with [`Answer::Later`], once what it waits for has
    /// come.
    pub fn resume(&mut self) -> Option<Answer> {
        match self.waiting? {
            Waiting::StopRing { queue } => {
                let stopped = self.device.queues.get_mut(usize::from(queue))?;
                if stopped.under_way > 0 {
                    return None;
                }
                self.waiting = None;
                let base = stopped.stop();
                Some(Answer::Reply(reply_ring_base(queue.into(), base), None))
            }
            Waiting::WriteThrough if self.device.requests_under_way() > 0 => None,
            Waiting::WriteThrough => {
                self.waiting = Some(Waiting::Flush);
                self.device.flush_for_write_through();
                None
            }
            Waiting::Flush => {
                let is_durable = self.device.flushed_for_write_through.take()?;
                if !is_durable {
                    eprintln!(
                        "dcd: vhost-user: what the guest wrote before it switched its write cache off could not be flushed"
                    );
                }
                self.waiting = None;
                self.device.is_held = false;
                Some(Answer::Done)
            }
        }
    }

    /// Tells the front-end to read the configuration again, if it went on without.
    pub fn tell_news(&mut self) {
        let has_config = self.protocol_features & protocol_feature::CONFIG != 0;
        if std::mem::take(&mut self.owes_news)
            && has_config
            && let Some(channel) = &self.channel
        {
            // Nobody hears it: then the guest sees the old size until it is started anew.
            let _ = send(channel, &config_changed(), None);
        }
    }

    /// Whether [`Session::tell_news`] has something to tell.
    pub fn owes_news(&self) -> bool {
        self.owes_news
    }

    fn read_config(&mut self, offset: u32, size: u32) -> Answer {
        if !self.has_started {
            self.has_read_config = true;
            if self.device.write_cache == WriteCache::Unknown {
                self.device.write_cache = WriteCache::On;
            }
        }
        let config = self.device.volume.config(self.device.write_cache != WriteCache::Off);
        let end = (offset as usize).saturating_add(size as usize);
        // Nothing says that there is no such part.
        let part = config.get(offset as usize..end).unwrap_or(&[]);
        Answer::Reply(reply_config(offset, part), None)
    }

    fn write_config(&mut self, offset: u32, bytes: &[u8]) -> Result<Answer, SessionError> {
        let len = bytes.len();
        let at = WRITE_CACHE_AT.checked_sub(offset as usize);
        let Some(&value) = at.and_then(|at| bytes.get(at)) else {
            return Err(SessionError::Config { offset, len });
        };
        // Nothing else is the guest's; a front-end that writes all of it must not change the rest.
        let now = self.device.volume.config(value != 0);
        let end = (offset as usize).saturating_add(len);
        if len > 1 && now.get(offset as usize..end) != Some(bytes) {
            return Err(SessionError::Config { offset, len });
        }
        let write_cache = if value == 0 { WriteCache::Off } else { WriteCache::On };
        let before = std::mem::replace(&mut self.device.write_cache, write_cache);
        if let Some(record) = &self.device.record {
            record.set_write_cache(write_cache == WriteCache::On);
        }
        if write_cache == WriteCache::Off && before == WriteCache::On {
            // From now on it does not flush. What it would have flushed is flushed here, before it
            // goes on.
            self.device.is_held = true;
            self.waiting = Some(Waiting::WriteThrough);
            return Ok(Answer::Later);
        }
        Ok(Answer::Done)
    }

    fn queue(&self, queue: u32) -> Result<usize, SessionError> {
        let index = queue as usize;
        if index < self.device.queues.len() {
            Ok(index)
        } else {
            Err(SessionError::Queue { queue })
        }
    }

    fn stopped(&self, operation: &'static str, queue: u32) -> Result<usize, SessionError> {
        let index = self.queue(queue)?;
        if self.device.queues[index].running.is_some() {
            return Err(SessionError::Running { operation, queue });
        }
        Ok(index)
    }

    fn check_stopped(&self, operation: &'static str) -> Result<(), SessionError> {
        let running = self.device.queues.iter().position(|queue| queue.running.is_some());
        match running {
            Some(queue) => Err(SessionError::Running { operation, queue: queue as u32 }),
            None => Ok(()),
        }
    }
}

fn map(region: &RegionMessage, file: OwnedFd) -> Result<Region, MemoryError> {
    let RegionMessage { guest, size, user, offset } = *region;
    Region::map(guest, user, size, file, offset)
}

/// What this side rings: also a pipe, which user-mode Linux reads like an eventfd.
fn one_bell(queue: u8, descriptor: Option<OwnedFd>) -> Result<Option<OwnedFd>, SessionError> {
    let Some(descriptor) = descriptor else { return Ok(None) };
    match is_pipe(&descriptor).map_err(io::Error::from)? {
        true => Ok(Some(descriptor)),
        false => one_event(queue, Some(descriptor)),
    }
}

fn one_event(queue: u8, descriptor: Option<OwnedFd>) -> Result<Option<OwnedFd>, SessionError> {
    let Some(descriptor) = descriptor else { return Ok(None) };
    let found = event(descriptor).map_err(io::Error::from)?;
    found.map(Some).ok_or(SessionError::NoEvent { queue })
}
