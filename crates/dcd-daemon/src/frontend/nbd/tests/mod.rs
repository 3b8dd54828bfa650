//! Tests of the NBD server as a whole, and what they share: a disk in memory that answers
//! requests, and a client that speaks bytes.

mod conversation;
mod garbage;
mod interoperation;
mod session;

use dcd_engine::buffer::Buffer;
use dcd_engine::io::{Operation, RequestError};
use dcd_engine::units::{BLOCK_SIZE, LbaRange};

use super::protocol::*;
use super::{Connection, Event, Export, ProtocolError};

pub(super) fn export(size_bytes: u64) -> Export {
    Export {
        size_bytes,
        minimum_block: 512,
        preferred_block: 4096,
        maximum_payload: 32 << 20,
        read_only: false,
        trim: true,
        description: "a disk for tests".into(),
    }
}

/// Stands for the engine. Asserts what the engine may expect of a frontend.
pub(super) struct MemoryDisk {
    bytes: Vec<u8>,
    block: u64,
    pub(super) flushes: usize,
    pub(super) fua: usize,
}

impl MemoryDisk {
    pub(super) fn new(export: &Export) -> MemoryDisk {
        let bytes = vec![0; export.size_bytes as usize];
        MemoryDisk { bytes, block: u64::from(export.minimum_block), flushes: 0, fua: 0 }
    }

    fn slice(&mut self, range: LbaRange) -> &mut [u8] {
        assert!(range.blocks > 0, "empty requests are answered by the frontend");
        assert!(range.start.byte().is_multiple_of(self.block));
        assert!(range.bytes().is_multiple_of(self.block));
        let start = range.start.byte() as usize;
        &mut self.bytes[start..start + range.bytes() as usize]
    }

    fn handle(&mut self, operation: Operation) -> Option<Buffer> {
        match operation {
            Operation::Read { range, .. } => Some(Buffer::copy_of(self.slice(range))),
            Operation::Write { start, data } => {
                let range = LbaRange::new(start.0, data.len() as u64 / BLOCK_SIZE);
                self.slice(range).copy_from_slice(data.bytes());
                Some(data)
            }
            Operation::WriteZeroes { range, .. } | Operation::Discard { range } => {
                self.slice(range).fill(0);
                None
            }
            Operation::Flush => {
                self.flushes += 1;
                None
            }
            other => panic!("not a request of a client: {other:?}"),
        }
    }

    /// The same for a driver of its own.
    pub(super) fn handle_request(
        &mut self,
        operation: Operation,
        fua: bool,
    ) -> (Result<(), RequestError>, Option<Buffer>) {
        self.fua += usize::from(fua);
        (Ok(()), self.handle(operation))
    }

    /// What is on the disk.
    pub(super) fn handle_read(&self, start: usize, length: usize) -> &[u8] {
        &self.bytes[start..start + length]
    }

    /// Pieces of `range` as block status wants them.
    fn status(&mut self, range: LbaRange) -> Vec<(u64, bool)> {
        let blocks = self.slice(range).chunks(BLOCK_SIZE as usize);
        blocks.map(|block| (1, block.iter().all(|byte| *byte == 0))).collect()
    }

    /// Answers everything the connection wants. Returns how it closed, if it did.
    pub(super) fn serve(&mut self, connection: &mut Connection) -> Option<Option<ProtocolError>> {
        let mut closed = None;
        while let Some(event) = connection.poll_event() {
            if let Event::Closed(how) = event {
                closed = Some(how);
            } else {
                self.answer(connection, event);
            }
        }
        closed
    }

    pub(super) fn answer(&mut self, connection: &mut Connection, event: Event) {
        match event {
            Event::Request { handle, operation, fua } => {
                self.fua += usize::from(fua);
                let buffer = self.handle(operation);
                connection.complete(handle, Ok(()), buffer);
            }
            Event::BlockStatus { handle, range, .. } => {
                connection.complete_block_status(handle, &self.status(range));
            }
            Event::Closed(_) => {}
        }
    }
}

/// Gives `bytes` to the connection, as far as it wants them, and returns what it did not want.
pub(super) fn feed<'a>(connection: &mut Connection, mut bytes: &'a [u8]) -> &'a [u8] {
    while !bytes.is_empty() && connection.wants_input() {
        let space = connection.receive_space();
        assert!(!space.is_empty());
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        connection.received(count);
        bytes = &bytes[count..];
    }
    bytes
}

/// Takes everything the connection wants to send.
pub(super) fn drain(connection: &mut Connection) -> Vec<u8> {
    let bytes: Vec<u8> = connection.transmit().flatten().copied().collect();
    connection.transmitted(bytes.len());
    bytes
}

pub(super) fn client_flags(flags: u16) -> Vec<u8> {
    u32::from(flags).to_be_bytes().to_vec()
}

pub(super) fn option_bytes(number: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Payload of INFO and GO.
pub(super) fn info_payload(name: &[u8], wanted: &[u16]) -> Vec<u8> {
    let mut bytes = (name.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
    for kind in wanted {
        bytes.extend_from_slice(&kind.to_be_bytes());
    }
    bytes
}

/// Payload of LIST_META_CONTEXT and SET_META_CONTEXT.
pub(super) fn meta_payload(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let mut bytes = (name.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        bytes.extend_from_slice(&(query.len() as u32).to_be_bytes());
        bytes.extend_from_slice(query);
    }
    bytes
}

pub(super) fn request(number: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

pub(super) fn write_request(flags: u16, cookie: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = request(command::WRITE, flags, cookie, offset, data.len() as u32);
    bytes.extend_from_slice(data);
    bytes
}

/// What a client sends to start, with structured replies and block status or without.
pub(super) fn start_bytes(structured: bool) -> Vec<u8> {
    let mut bytes = client_flags(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
    if structured {
        bytes.extend(option_bytes(option::STRUCTURED_REPLY, &[]));
        let contexts = meta_payload(b"", &[CONTEXT_NAME]);
        bytes.extend(option_bytes(option::SET_META_CONTEXT, &contexts));
    }
    bytes.extend(option_bytes(option::GO, &info_payload(b"", &[info::BLOCK_SIZE])));
    bytes
}

/// A connection that has started.
pub(super) fn started(export: Export, structured: bool) -> Connection {
    let mut connection = Connection::new(export);
    assert!(connection.in_handshake());
    assert!(feed(&mut connection, &start_bytes(structured)).is_empty());
    assert!(!connection.in_handshake());
    drain(&mut connection);
    connection
}

/// Reads fields off the front of what the server sent.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }
    pub(super) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().unwrap())
    }
    pub(super) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }
    pub(super) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    /// One reply to an option: which, the type, the payload.
    pub(super) fn option_reply(&mut self) -> (u32, u32, &'a [u8]) {
        assert_eq!(self.u64(), OPTION_REPLY_MAGIC);
        let (option, reply, length) = (self.u32(), self.u32(), self.u32());
        (option, reply, self.take(length as usize))
    }

    /// A simple reply: cookie, error.
    pub(super) fn simple(&mut self) -> (u64, u32) {
        assert_eq!(self.u32(), SIMPLE_REPLY_MAGIC);
        let error = self.u32();
        (self.u64(), error)
    }

    /// A chunk, which is the last of its reply: cookie, type, payload.
    pub(super) fn chunk(&mut self) -> (u64, u16, &'a [u8]) {
        assert_eq!(self.u32(), STRUCTURED_REPLY_MAGIC);
        assert_eq!(self.u16(), REPLY_FLAG_DONE);
        let kind = self.u16();
        let cookie = self.u64();
        let length = self.u32() as usize;
        (cookie, kind, self.take(length))
    }

    /// A chunk that is an error: cookie, error.
    pub(super) fn chunk_error(&mut self) -> (u64, u32) {
        let (cookie, kind, payload) = self.chunk();
        assert_eq!(kind, chunk::ERROR);
        let mut payload = Reader(payload);
        let error = payload.u32();
        let length = payload.u16() as usize;
        assert!(length > 0 && std::str::from_utf8(payload.take(length)).is_ok());
        assert!(payload.0.is_empty());
        (cookie, error)
    }
}

/// Any request error, for tests of failures.
pub(super) const REQUEST_ERRORS: [(RequestError, ErrorCode); 4] = [
    (RequestError::Io, ErrorCode::Io),
    (RequestError::NoSpace, ErrorCode::NoSpace),
    (RequestError::ShuttingDown, ErrorCode::ShuttingDown),
    (RequestError::ReadOnly, ErrorCode::NotPermitted),
];
