//! Messages of the vhost-user protocol, from and to bytes, without I/O.
//!
//! ```text
//! header  request u32, flags u32 (version 1, reply 4, wants a reply 8), size of what follows u32
//! then    by request: a number, the state or addresses of a ring, regions of memory, configuration
//! beside  file descriptors, which belong to the message whose first byte they came with
//! ```
//!
//! Numbers are in the order of this machine, as the protocol has them. What is accepted has exactly
//! the size and the number of descriptors that its request asks for, but for structures that
//! front-ends send with padding.

use std::ops::RangeInclusive;

/// Length of a header.
pub const HEADER_BYTES: usize = 12;
/// Descriptors that one message may bring.
pub const DESCRIPTORS_MAX: usize = 8;
/// Longest configuration that is read or written.
pub const CONFIG_BYTES_MAX: usize = 256;
/// Longest payload: configuration with its three numbers, or eight regions.
pub const PAYLOAD_BYTES_MAX: usize = 12 + CONFIG_BYTES_MAX;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const FLAG_REPLY: u32 = 1 << 2;
const FLAG_NEED_REPLY: u32 = 1 << 3;
/// A ring without a descriptor: of the number that names it.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// Numbers of requests.
pub mod request {
    #![expect(missing_docs, reason = "the names are those of the specification")]
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
    /// The only one of this side.
    pub const BACKEND_CONFIG_CHANGE: u32 = 2;
}

/// Features of the protocol that both sides may have.
pub mod protocol_feature {
    #![expect(missing_docs, reason = "the names are those of the specification")]
    pub const MQ: u64 = 1 << 0;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
}

/// Why bytes are no message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// Another version of the protocol.
    #[error("expected version 1 of the protocol, found flags {flags:#x}")]
    Version {
        /// Of the header.
        flags: u32,
    },
    /// A reply to nothing.
    #[error("a reply (to request {request}) that nobody waits for")]
    Reply {
        /// Its number.
        request: u32,
    },
    /// Longer than any message.
    #[error("request {request} says that {size} bytes follow, the longest has {PAYLOAD_BYTES_MAX}")]
    TooLong {
        /// Its number.
        request: u32,
        /// What it says.
        size: u32,
    },
    /// Nothing that this side has said it can do.
    #[error("request {request} is not known")]
    Unknown {
        /// Its number.
        request: u32,
    },
    /// Not the size that the request has.
    #[error("request {request}: expected {expected} bytes, found {found}")]
    Size {
        /// Its number.
        request: u32,
        /// What it has always.
        expected: usize,
        /// What came.
        found: usize,
    },
    /// Too few descriptors, or too many.
    #[error("request {request}: expected {} descriptors, found {found}", range_words(expected))]
    Descriptors {
        /// Its number.
        request: u32,
        /// How many it needs.
        expected: RangeInclusive<usize>,
        /// How many came.
        found: usize,
    },
    /// A number that cannot be.
    #[error("request {request}: {value:#x} is no {what}")]
    Value {
        /// Its number.
        request: u32,
        /// What it should be.
        what: &'static str,
        /// What it is.
        value: u64,
    },
}

fn range_words(range: &RangeInclusive<usize>) -> String {
    match (range.start(), range.end()) {
        (start, end) if start == end => start.to_string(),
        (start, end) => format!("{start} to {end}"),
    }
}

/// The first bytes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Which request.
    pub request: u32,
    /// Whether it is to be answered even if it has no answer of its own.
    pub needs_reply: bool,
    /// How many bytes follow.
    pub size: usize,
}

impl Header {
    /// Reads one.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, MessageError> {
        let mut reader = Reader(bytes);
        let (request, flags, size) = (reader.u32(), reader.u32(), reader.u32());
        if flags & VERSION_MASK != VERSION {
            return Err(MessageError::Version { flags });
        }
        if flags & FLAG_REPLY != 0 {
            return Err(MessageError::Reply { request });
        }
        if size as usize > PAYLOAD_BYTES_MAX {
            return Err(MessageError::TooLong { request, size });
        }
        let needs_reply = flags & FLAG_NEED_REPLY != 0;
        Ok(Header { request, needs_reply, size: size as usize })
    }
}

/// A region as it is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionMessage {
    /// Where the guest has it.
    pub guest: u64,
    /// Its length.
    pub size: u64,
    /// Where the front-end has it.
    pub user: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

/// Where a ring is, in the front-end's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingAddresses {
    /// The table of descriptors.
    pub descriptors: u64,
    /// What the guest has ready.
    pub available: u64,
    /// What is done.
    pub used: u64,
}

/// A shared record of requests under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InflightMessage {
    /// Bytes of it.
    pub size: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// For so many queues.
    pub queues: u16,
    /// With so many descriptors each.
    pub queue_size: u16,
}

/// What the front-end wants. Its descriptors stay beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of the requests")]
pub enum Message {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemoryTable(Vec<RegionMessage>),
    SetRingSize { queue: u32, size: u32 },
    SetRingAddresses { queue: u32, addresses: RingAddresses },
    SetRingBase { queue: u32, base: u32 },
    GetRingBase { queue: u32 },
    SetRingKick { queue: u8 },
    SetRingCall { queue: u8 },
    SetRingError { queue: u8 },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueCount,
    SetRingEnable { queue: u32, enable: bool },
    SetBackendChannel,
    GetConfig { offset: u32, size: u32 },
    SetConfig { offset: u32, bytes: Vec<u8> },
    GetInflight(InflightMessage),
    SetInflight(InflightMessage),
    GetMemorySlots,
    AddRegion(RegionMessage),
    RemoveRegion(RegionMessage),
}

impl Message {
    /// Reads what follows a header. `descriptors`: how many came with it.
    pub fn parse(
        request: u32,
        payload: &[u8],
        descriptors: usize,
    ) -> Result<Message, MessageError> {
        use self::request::*;
        let mut reader = Reader(payload);
        let size = |expected| check_size(request, payload, expected);
        let bring = |expected: RangeInclusive<usize>| match expected.contains(&descriptors) {
            true => Ok(()),
            false => Err(MessageError::Descriptors { request, expected, found: descriptors }),
        };
        let (message, needed) = match request {
            GET_FEATURES
            | SET_OWNER
            | RESET_OWNER
            | GET_PROTOCOL_FEATURES
            | GET_QUEUE_NUM
            | SET_BACKEND_REQ_FD
            | GET_MAX_MEM_SLOTS => {
                size(0)?;
                match request {
                    GET_FEATURES => (Message::GetFeatures, 0..=0),
                    SET_OWNER => (Message::SetOwner, 0..=0),
                    RESET_OWNER => (Message::ResetOwner, 0..=0),
                    GET_PROTOCOL_FEATURES => (Message::GetProtocolFeatures, 0..=0),
                    GET_QUEUE_NUM => (Message::GetQueueCount, 0..=0),
                    SET_BACKEND_REQ_FD => (Message::SetBackendChannel, 1..=1),
                    _ => (Message::GetMemorySlots, 0..=0),
                }
            }
            SET_FEATURES | SET_PROTOCOL_FEATURES => {
                size(8)?;
                let features = reader.u64();
                match request {
                    SET_FEATURES => (Message::SetFeatures(features), 0..=0),
                    _ => (Message::SetProtocolFeatures(features), 0..=0),
                }
            }
            SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR | SET_VRING_NUM | SET_VRING_BASE
            | GET_VRING_BASE | SET_VRING_ENABLE | SET_VRING_ADDR => {
                Message::parse_of_ring(request, payload)?
            }
            SET_MEM_TABLE | ADD_MEM_REG | REM_MEM_REG => {
                Message::parse_of_memory(request, payload)?
            }
            GET_CONFIG | SET_CONFIG => {
                let (offset, length) = (reader.u32(), reader.u32());
                let _flags = reader.u32();
                if length as usize > CONFIG_BYTES_MAX {
                    let value = length.into();
                    return Err(MessageError::Value { request, what: "size of it", value });
                }
                size(12 + length as usize)?;
                let message = match request {
                    GET_CONFIG => Message::GetConfig { offset, size: length },
                    _ => Message::SetConfig { offset, bytes: reader.0.to_vec() },
                };
                (message, 0..=0)
            }
            GET_INFLIGHT_FD | SET_INFLIGHT_FD => {
                // Some front-ends fill the structure up to its alignment.
                if payload.len() != 24 {
                    size(20)?;
                }
                let inflight = InflightMessage {
                    size: reader.u64(),
                    offset: reader.u64(),
                    queues: reader.u16(),
                    queue_size: reader.u16(),
                };
                match request {
                    GET_INFLIGHT_FD => (Message::GetInflight(inflight), 0..=0),
                    _ => (Message::SetInflight(inflight), 1..=1),
                }
            }
            _ => return Err(MessageError::Unknown { request }),
        };
        bring(needed)?;
        Ok(message)
    }

    /// A message about one ring, and how many descriptors it needs.
    fn parse_of_ring(
        request: u32,
        payload: &[u8],
    ) -> Result<(Message, RangeInclusive<usize>), MessageError> {
        use self::request::*;
        let mut reader = Reader(payload);
        let size = |expected| check_size(request, payload, expected);
        Ok(match request {
            SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => {
                size(8)?;
                let value = reader.u64();
                let needed = if value & NO_DESCRIPTOR == 0 { 1..=1 } else { 0..=0 };
                let queue = u8::try_from(value & !NO_DESCRIPTOR)
                    .map_err(|_| MessageError::Value { request, what: "ring", value })?;
                match request {
                    SET_VRING_KICK => (Message::SetRingKick { queue }, needed),
                    SET_VRING_CALL => (Message::SetRingCall { queue }, needed),
                    _ => (Message::SetRingError { queue }, needed),
                }
            }
            SET_VRING_NUM | SET_VRING_BASE | GET_VRING_BASE | SET_VRING_ENABLE => {
                size(8)?;
                let (queue, number) = (reader.u32(), reader.u32());
                let message = match request {
                    SET_VRING_NUM => Message::SetRingSize { queue, size: number },
                    SET_VRING_BASE => Message::SetRingBase { queue, base: number },
                    GET_VRING_BASE => Message::GetRingBase { queue },
                    _ => Message::SetRingEnable { queue, enable: number != 0 },
                };
                (message, 0..=0)
            }
            _ => {
                size(40)?;
                let queue = reader.u32();
                let flags = reader.u32();
                if flags != 0 {
                    // Bit 0 asks for a log of what is written, which was not offered.
                    let value = flags.into();
                    return Err(MessageError::Value { request, what: "flag of a ring", value });
                }
                let (descriptors, used, available) = (reader.u64(), reader.u64(), reader.u64());
                let addresses = RingAddresses { descriptors, available, used };
                (Message::SetRingAddresses { queue, addresses }, 0..=0)
            }
        })
    }

    /// A message about the memory of the guest, and how many descriptors it needs.
    fn parse_of_memory(
        request: u32,
        payload: &[u8],
    ) -> Result<(Message, RangeInclusive<usize>), MessageError> {
        use self::request::*;
        let mut reader = Reader(payload);
        let size = |expected| check_size(request, payload, expected);
        Ok(match request {
            SET_MEM_TABLE => {
                let count = reader.u32() as usize;
                if count > DESCRIPTORS_MAX {
                    let value = count as u64;
                    return Err(MessageError::Value { request, what: "number of regions", value });
                }
                // Some front-ends (user-mode Linux) send their structure, with room for regions
                // that are not there.
                if payload.len() < 8 + 32 * count {
                    size(8 + 32 * count)?;
                }
                reader.u32();
                let regions = (0..count).map(|_| reader.region()).collect();
                (Message::SetMemoryTable(regions), count..=count)
            }
            _ => {
                size(40)?;
                reader.u64();
                let region = reader.region();
                match request {
                    ADD_MEM_REG => (Message::AddRegion(region), 1..=1),
                    // Some front-ends send the region's file along.
                    _ => (Message::RemoveRegion(region), 0..=1),
                }
            }
        })
    }
}

fn check_size(request: u32, payload: &[u8], expected: usize) -> Result<(), MessageError> {
    match payload.len() == expected {
        true => Ok(()),
        false => Err(MessageError::Size { request, expected, found: payload.len() }),
    }
}

/// Bytes of a message of this side.
fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).expect("messages are short");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    for number in [request, VERSION | flags, size] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// A reply with this payload.
pub fn reply(request: u32, payload: &[u8]) -> Vec<u8> {
    message(request, FLAG_REPLY, payload)
}

/// A reply with a number.
pub fn reply_number(request: u32, number: u64) -> Vec<u8> {
    reply(request, &number.to_ne_bytes())
}

/// Where a stopped ring stands.
pub fn reply_ring_base(queue: u32, base: u16) -> Vec<u8> {
    let mut payload = queue.to_ne_bytes().to_vec();
    payload.extend(u32::from(base).to_ne_bytes());
    reply(request::GET_VRING_BASE, &payload)
}

/// A part of the configuration.
pub fn reply_config(offset: u32, bytes: &[u8]) -> Vec<u8> {
    let size = u32::try_from(bytes.len()).expect("a configuration is short");
    let mut payload = Vec::with_capacity(12 + bytes.len());
    for number in [offset, size, 0] {
        payload.extend(number.to_ne_bytes());
    }
    payload.extend(bytes);
    reply(request::GET_CONFIG, &payload)
}

/// What the record of requests under way is like, whose descriptor goes with it.
pub fn reply_inflight(inflight: &InflightMessage) -> Vec<u8> {
    let mut payload = inflight.size.to_ne_bytes().to_vec();
    payload.extend(inflight.offset.to_ne_bytes());
    payload.extend(inflight.queues.to_ne_bytes());
    payload.extend(inflight.queue_size.to_ne_bytes());
    // Up to the structure's alignment, as front-ends have it.
    payload.extend([0; 4]);
    reply(request::GET_INFLIGHT_FD, &payload)
}

/// Asks the front-end to read the configuration again.
pub fn config_changed() -> Vec<u8> {
    message(request::BACKEND_CONFIG_CHANGE, 0, &[])
}

/// Numbers off the front; zeroes where there is nothing more. Sizes are checked beside it.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((bytes, rest)) = self.0.split_first_chunk() else {
            self.0 = &[];
            return [0; N];
        };
        self.0 = rest;
        *bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    fn region(&mut self) -> RegionMessage {
        let (guest, size, user, offset) = (self.u64(), self.u64(), self.u64(), self.u64());
        RegionMessage { guest, size, user, offset }
    }
}
