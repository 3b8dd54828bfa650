//! NBD requests and replies, with a model of the disk and of the protocol: each request is judged
//! here a second time, from the words of the specification, and each must be answered exactly once
//! by what that says. The model's disk answers late, in any order, and sometimes with an error.
//!
//! ```text
//! byte 0     what was negotiated: structured replies 1, block status 2; read-only 4, blocks of
//!            4 KiB 8, no trim 16, payloads of at most 16 KiB 32; pieces: 1 byte 64, 1000 bytes 128
//! 8 bytes    a request: command, flags, offset (2), length (2), how to scale them, what the disk
//!            does then
//! ```

use std::collections::{BTreeMap, VecDeque};

use dcd_daemon::frontend::nbd::protocol::{
    CONTEXT_ID, CONTEXT_NAME, ErrorCode, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, OPTION_MAGIC,
    REPLY_FLAG_DONE, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, command,
    command_flag, option,
};
use dcd_daemon::frontend::nbd::{
    BYTES_IN_FLIGHT_MAX, Connection, Event, Export, REQUESTS_IN_FLIGHT_MAX,
};
use dcd_engine::{Buffer, Operation, RequestError};

use crate::input::Input;

const SIZE: u64 = 256 << 10;
/// Longest write that is read to be dropped; the connection is cut above it.
const WRITE_DROPPED_MAX: u32 = 64 << 20;
/// Bytes of writes in one run; more would only cost time.
const DATA_MAX: usize = 512 << 10;

/// What must come of a request.
#[derive(Clone, PartialEq, Debug)]
enum Expected {
    /// This error.
    Error(u32),
    /// Success, with so many bytes of data to come for a read.
    Done,
    Data(Vec<u8>, u64),
    /// Descriptors for so many bytes.
    Status(u64),
}

/// A request that the engine has to be asked for.
struct Asked {
    cookie: u64,
    command: u16,
    flags: u16,
    offset: u64,
    length: u32,
}

struct Session {
    connection: Connection,
    structured: bool,
    block_status: bool,
    export: Export,
    disk: Vec<u8>,
    piece: usize,
    /// Accepted, and not yet seen as events.
    asked: VecDeque<Asked>,
    /// Events that wait for the disk.
    held: Vec<(Event, Asked)>,
    /// By cookie; removed by the reply.
    expected: BTreeMap<u64, Option<Expected>>,
    sent: Vec<u8>,
    closed: bool,
}

pub(crate) fn run(input: &[u8]) {
    let mut program = Input(input);
    let mut session = Session::start(program.u8());
    // Byte by byte, less is enough.
    let mut data_left = if session.piece == 1 { DATA_MAX >> 6 } else { DATA_MAX };
    for cookie in 1..=600 {
        if program.is_empty() || session.closed {
            break;
        }
        let (number, flags) = (program.u8(), u16::from(program.u8()));
        let (offset, length) = (u64::from(program.u16()), u32::from(program.u16()));
        let (scale, then) = (program.u8(), program.u8());
        let offset = match scale & 3 {
            0 => offset * 512,
            1 => offset * 4096,
            2 => offset,
            _ => u64::MAX - offset * 512,
        };
        let mut length = match scale >> 2 & 3 {
            0 => length * 512,
            1 => length.wrapping_mul(4096),
            2 => length,
            _ => length << 16,
        };
        let command = match number % 10 {
            8 => 0x77,
            9 => {
                session.garbage(number);
                break;
            }
            known => u16::from(known),
        };
        if command == command::WRITE && length <= WRITE_DROPPED_MAX {
            length = length.min(data_left as u32);
            data_left -= length as usize;
        }
        session.request(Asked { cookie, command, flags, offset, length });
        session.let_disk_work(then);
    }
    session.finish();
}

impl Session {
    fn start(how: u8) -> Session {
        let minimum_block = if how & 8 != 0 { 4096 } else { 512 };
        let export = Export {
            // A rest that is no whole block cannot be reached.
            size_bytes: SIZE + 300,
            minimum_block,
            preferred_block: 4096,
            maximum_payload: if how & 32 != 0 { 16 << 10 } else { 128 << 10 },
            read_only: how & 4 != 0,
            trim: how & 16 == 0,
            description: String::new(),
        };
        let structured = how & 3 != 0;
        let mut wire = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes().to_vec();
        let mut put = |number: u32, payload: &[u8]| {
            wire.extend(OPTION_MAGIC.to_be_bytes());
            wire.extend(number.to_be_bytes());
            wire.extend((payload.len() as u32).to_be_bytes());
            wire.extend(payload);
        };
        if structured {
            put(option::STRUCTURED_REPLY, &[]);
        }
        if how & 2 != 0 {
            let mut payload = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, CONTEXT_NAME.len() as u8];
            payload.extend(CONTEXT_NAME);
            put(option::SET_META_CONTEXT, &payload);
        }
        put(option::EXPORT_NAME, &[]);
        let mut session = Session {
            connection: Connection::new(export.clone()),
            structured,
            block_status: how & 2 != 0,
            export,
            disk: pattern(0, SIZE as usize),
            piece: [usize::MAX, 1, 1000, 1001][usize::from(how >> 6)],
            asked: VecDeque::new(),
            held: Vec::new(),
            expected: BTreeMap::new(),
            sent: Vec::new(),
            closed: false,
        };
        session.feed(&wire);
        assert!(!session.connection.in_handshake());
        session.take_sent();
        session.sent.clear();
        session
    }

    /// The specification's word on a request that is not a disconnect: an error, or that it is
    /// to be done.
    fn judge(&self, asked: &Asked) -> Result<(), ErrorCode> {
        let Asked { command, flags, offset, length, .. } = *asked;
        let allowed = command_flag::FUA
            | match command {
                command::READ if self.structured => command_flag::DF,
                command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
                command::BLOCK_STATUS => command_flag::REQ_ONE,
                _ => 0,
            };
        let changes = matches!(command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if command > command::BLOCK_STATUS || flags & !allowed != 0 {
            return Err(ErrorCode::Invalid);
        }
        if changes && self.export.read_only {
            return Err(ErrorCode::NotPermitted);
        }
        match command {
            command::FLUSH if (offset, length) != (0, 0) => return Err(ErrorCode::Invalid),
            command::FLUSH => return Ok(()),
            command::TRIM if !self.export.trim => return Err(ErrorCode::Invalid),
            command::BLOCK_STATUS if !self.block_status || length == 0 => {
                return Err(ErrorCode::Invalid);
            }
            _ => {}
        }
        let block = u64::from(self.export.minimum_block);
        if offset % block != 0 || u64::from(length) % block != 0 {
            return Err(ErrorCode::Invalid);
        }
        if u128::from(offset) + u128::from(length) > u128::from(SIZE) {
            let no_room = matches!(command, command::WRITE | command::WRITE_ZEROES);
            return Err(if no_room { ErrorCode::NoSpace } else { ErrorCode::Invalid });
        }
        let carries = matches!(command, command::READ | command::WRITE);
        if carries && length > self.export.maximum_payload {
            return Err(ErrorCode::Invalid);
        }
        Ok(())
    }

    fn request(&mut self, asked: Asked) {
        let Asked { cookie, command, flags, offset, length } = asked;
        let mut wire = REQUEST_MAGIC.to_be_bytes().to_vec();
        wire.extend(flags.to_be_bytes());
        wire.extend(command.to_be_bytes());
        wire.extend(cookie.to_be_bytes());
        wire.extend(offset.to_be_bytes());
        wire.extend(length.to_be_bytes());
        if command == command::DISC || command == command::WRITE && length > WRITE_DROPPED_MAX {
            self.feed(&wire);
            self.take_events();
            assert!(self.closed, "the connection ends");
            return;
        }
        if command == command::WRITE {
            wire.extend(data_of(cookie, length));
        }
        let verdict = self.judge(&asked);
        let is_hint_too_long = command == command::CACHE && length > self.export.maximum_payload;
        match verdict {
            Err(error) => {
                self.expected.insert(cookie, Some(Expected::Error(error as u32)));
            }
            Ok(()) if command != command::FLUSH && length == 0 || is_hint_too_long => {
                let empty = Expected::Data(Vec::new(), offset);
                let is_read = command == command::READ;
                self.expected.insert(cookie, Some(if is_read { empty } else { Expected::Done }));
            }
            Ok(()) => {
                self.expected.insert(cookie, None);
                self.asked.push_back(asked);
            }
        }
        self.feed(&wire);
        self.take_events();
        assert!(!self.closed);
    }

    /// No request begins like this.
    fn garbage(&mut self, byte: u8) {
        self.feed(&[byte; 28]);
        self.take_events();
        assert!(self.closed, "the connection is cut");
    }

    fn feed(&mut self, mut wire: &[u8]) {
        while !wire.is_empty() {
            assert!(self.connection.requests_in_flight() <= REQUESTS_IN_FLIGHT_MAX);
            assert!(self.connection.bytes_in_flight() <= BYTES_IN_FLIGHT_MAX);
            if !self.connection.wants_input() {
                self.take_events();
                if self.closed {
                    return;
                }
                // Back-pressure: it goes on when answers have been given and taken.
                self.answer(0, None);
                self.take_sent();
                continue;
            }
            let space = self.connection.receive_space();
            let count = space.len().min(wire.len()).min(self.piece);
            space[..count].copy_from_slice(&wire[..count]);
            self.connection.received(count);
            wire = &wire[count..];
        }
    }

    /// Events come in the order of the requests and ask for just that.
    fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            if let Event::Closed(_) = event {
                self.closed = true;
                continue;
            }
            let asked = self.asked.pop_front().expect("the engine is asked for nothing unasked");
            let fua = asked.flags & command_flag::FUA != 0;
            let (start, blocks) = (asked.offset / 512, u64::from(asked.length) / 512);
            match &event {
                Event::Request { operation, fua: found, .. } => {
                    assert_eq!(*found, fua);
                    match (asked.command, operation) {
                        (command::READ | command::CACHE, Operation::Read { range, .. })
                        | (command::TRIM, Operation::Discard { range }) => {
                            assert_eq!((range.start.0, range.blocks), (start, blocks));
                        }
                        (command::WRITE_ZEROES, Operation::WriteZeroes { range, may_unmap }) => {
                            assert_eq!((range.start.0, range.blocks), (start, blocks));
                            assert_eq!(*may_unmap, asked.flags & command_flag::NO_HOLE == 0);
                        }
                        (command::WRITE, Operation::Write { start: found, data }) => {
                            assert_eq!(found.0, start);
                            assert!(
                                data.bytes() == data_of(asked.cookie, asked.length),
                                "other data"
                            );
                        }
                        (command::FLUSH, Operation::Flush) => {}
                        (command, operation) => panic!("command {command}: {operation:?}"),
                    }
                }
                Event::BlockStatus { range, .. } => {
                    assert_eq!(asked.command, command::BLOCK_STATUS);
                    assert_eq!((range.start.0, range.blocks), (start, blocks));
                }
                Event::Closed(_) => {}
            }
            self.held.push((event, asked));
        }
    }

    /// `then`: how many answers (low two bits), which ones (next three), an error (next three).
    fn let_disk_work(&mut self, then: u8) {
        for _ in 0..then & 3 {
            let error = match then >> 5 {
                1 => Some(RequestError::Io),
                2 => Some(RequestError::NoSpace),
                3 => Some(RequestError::ShuttingDown),
                4 => Some(RequestError::ReadOnly),
                _ => None,
            };
            self.answer(usize::from(then >> 2 & 7), error);
        }
        if then & 3 == 3 {
            self.take_sent();
        }
    }

    fn answer(&mut self, which: usize, error: Option<RequestError>) {
        if self.held.is_empty() {
            return;
        }
        let (event, asked) = self.held.remove(which % self.held.len());
        let (offset, length) = (asked.offset as usize, asked.length as usize);
        if let Some(error) = error {
            let code = match error {
                RequestError::Io
                | RequestError::Cancelled
                | RequestError::Lost { .. }
                | RequestError::Stuck { .. }
                | RequestError::Sequence(_)
                | RequestError::Leg(_)
                | RequestError::Resize(_)
                | RequestError::NvramChange(_)
                | RequestError::Volume(_) => ErrorCode::Io,
                RequestError::NoSpace => ErrorCode::NoSpace,
                RequestError::ShuttingDown => ErrorCode::ShuttingDown,
                RequestError::ReadOnly => ErrorCode::NotPermitted,
            };
            self.expected.insert(asked.cookie, Some(Expected::Error(code as u32)));
            let (Event::Request { handle, .. } | Event::BlockStatus { handle, .. }) = event else {
                return;
            };
            self.connection.complete(handle, Err(error), None);
            return self.take_events();
        }
        let mut reply = Expected::Done;
        match event {
            Event::Request { handle, operation, .. } => {
                let buffer = match operation {
                    Operation::Read { .. } => {
                        let data = &self.disk[offset..offset + length];
                        if asked.command == command::READ {
                            reply = Expected::Data(data.to_vec(), asked.offset);
                        }
                        Some(Buffer::copy_of(data))
                    }
                    Operation::Write { data, .. } => {
                        self.disk[offset..offset + length].copy_from_slice(data.bytes());
                        Some(data)
                    }
                    Operation::Discard { .. } | Operation::WriteZeroes { .. } => {
                        self.disk[offset..offset + length].fill(0);
                        None
                    }
                    _ => None,
                };
                self.expected.insert(asked.cookie, Some(reply));
                self.connection.complete(handle, Ok(()), buffer);
            }
            Event::BlockStatus { handle, pieces_max, .. } => {
                reply = Expected::Status(length as u64);
                self.expected.insert(asked.cookie, Some(reply));
                assert!(pieces_max > 0);
                // Alternating pieces, not always up to the end.
                let pieces: Vec<(u64, bool)> =
                    (0..asked.offset / 512 % 50).map(|n| (n % 9, n % 3 == 0)).collect();
                self.connection.complete_block_status(handle, &pieces);
            }
            Event::Closed(_) => {}
        }
        self.take_events();
    }

    fn take_sent(&mut self) {
        let before = self.sent.len();
        let sent = &mut self.sent;
        self.connection.transmit().for_each(|slice| sent.extend_from_slice(slice));
        self.connection.transmitted(self.sent.len() - before);
        self.take_events();
    }

    /// Everything is answered, sent and as expected, and the connection ends.
    fn finish(mut self) {
        self.take_events();
        self.connection.stop_receiving();
        while !self.held.is_empty() {
            self.answer(0, None);
        }
        self.take_sent();
        assert!(self.connection.is_finished());
        assert_eq!(
            (self.connection.requests_in_flight(), self.connection.bytes_in_flight()),
            (0, 0)
        );
        assert!(self.asked.is_empty(), "a request was forgotten");
        let sent = std::mem::take(&mut self.sent);
        let mut replies = Replies(&sent);
        while !replies.0.is_empty() {
            self.check_reply(&mut replies);
        }
        assert!(self.expected.is_empty(), "{} requests have no answer", self.expected.len());
    }

    fn check_reply(&mut self, replies: &mut Replies) {
        let magic = replies.u32();
        if magic == SIMPLE_REPLY_MAGIC {
            let (error, cookie) = (replies.u32(), replies.u64());
            match self.expectation(cookie) {
                Expected::Done => assert_eq!(error, 0),
                Expected::Data(data, _) => {
                    assert!(!self.structured, "a read is answered in chunks");
                    assert_eq!(error, 0);
                    assert!(replies.take(data.len()) == data, "other data");
                }
                Expected::Error(code) => assert_eq!(error, code),
                Expected::Status(_) => panic!("a simple reply to BLOCK_STATUS"),
            }
            return;
        }
        assert_eq!(magic, STRUCTURED_REPLY_MAGIC);
        assert!(self.structured, "chunks were not negotiated");
        let (flags, kind, cookie) = (replies.u16(), replies.u16(), replies.u64());
        let length = replies.u32() as usize;
        let payload = replies.take(length);
        // One chunk for each reply.
        assert_eq!(flags, REPLY_FLAG_DONE);
        match (self.expectation(cookie), kind) {
            (Expected::Error(code), chunk::ERROR) => {
                assert_eq!(payload[..4], code.to_be_bytes());
                let words = usize::from(u16::from_be_bytes([payload[4], payload[5]]));
                assert_eq!(payload.len(), 6 + words);
            }
            (Expected::Data(data, _), chunk::NONE) => assert!(data.is_empty() && length == 0),
            (Expected::Data(data, offset), chunk::OFFSET_DATA) => {
                assert_eq!(payload[..8], offset.to_be_bytes());
                assert!(!data.is_empty() && payload[8..] == data, "other data");
            }
            (Expected::Status(bytes), chunk::BLOCK_STATUS) => {
                assert_eq!(payload[..4], CONTEXT_ID.to_be_bytes());
                let descriptors = payload[4..].chunks(8);
                let lengths = descriptors
                    .map(|d| u64::from(u32::from_be_bytes(d[..4].try_into().expect("4 bytes"))));
                let lengths: Vec<u64> = lengths.collect();
                assert!(!lengths.is_empty() && lengths.iter().all(|length| *length > 0));
                assert!(lengths.iter().sum::<u64>() <= bytes);
            }
            (expected, kind) => panic!("chunk {kind:#x} for {expected:?}"),
        }
    }

    fn expectation(&mut self, cookie: u64) -> Expected {
        let found = self.expected.remove(&cookie).expect("one answer for each request");
        found.expect("an answer comes after that of the disk")
    }
}

/// The data that a request writes.
fn data_of(cookie: u64, length: u32) -> Vec<u8> {
    pattern(cookie, length as usize)
}

/// Each block is filled with another byte, and begins with its number.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (block, number) in bytes.chunks_mut(512).zip(seed * 31..) {
        block.fill(number as u8);
        let start = number.to_le_bytes();
        let count = block.len().min(start.len());
        block[..count].copy_from_slice(&start[..count]);
    }
    bytes
}

/// What the server sent.
struct Replies<'a>(&'a [u8]);

impl<'a> Replies<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at_checked(count).expect("replies are whole");
        self.0 = rest;
        bytes
    }
    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().expect("two bytes"))
    }
    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }
    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().expect("eight bytes"))
    }
}
