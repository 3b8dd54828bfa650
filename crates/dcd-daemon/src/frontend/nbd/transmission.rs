//! Requests and replies of the transmission phase: what a request header means, and the bytes of
//! each kind of reply.
//!
//! [`check`] is the one place where a request is judged; what comes out of it lies within the
//! export and is aligned. Nothing here knows of buffers or of what is in flight; see
//! `connection.rs`.

use dcd_engine::buffer::Buffer;
use dcd_engine::io::RequestError;
use dcd_engine::units::{BLOCK_SIZE, LbaRange};
use zerocopy::IntoBytes;

use super::Export;
use super::handshake::Agreement;
use super::protocol::{
    BlockDescriptor, BlockStatusChunk, CONTEXT_ID, ChunkHeader, ErrorChunk, ErrorCode,
    OffsetDataChunk, REPLY_FLAG_DONE, RequestHeader, SIMPLE_REPLY_MAGIC, STATE_ZERO,
    STRUCTURED_REPLY_MAGIC, SimpleReply, chunk, command, command_flag,
};
use super::send_queue::SendQueue;

/// Most descriptors in the answer to a BLOCK_STATUS.
pub(super) const DESCRIPTORS_MAX: usize = 1024;

/// What a request wants, checked. A range may be empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Command {
    Read(LbaRange),
    /// The data follows.
    Write(LbaRange),
    Disconnect,
    Flush,
    Trim(LbaRange),
    /// Read to have it in the cache.
    Cache(LbaRange),
    WriteZeroes {
        range: LbaRange,
        may_unmap: bool,
    },
    BlockStatus {
        range: LbaRange,
        pieces_max: usize,
    },
}

/// Why a request fails: a number for the client's program, words for its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub(super) code: ErrorCode,
    pub(super) words: &'static str,
}

impl Failure {
    const fn new(code: ErrorCode, words: &'static str) -> Failure {
        Failure { code, words }
    }

    const FLAGS: Failure = Failure::new(ErrorCode::Invalid, "flag not valid for this command");
    const UNALIGNED: Failure =
        Failure::new(ErrorCode::Invalid, "offset or length not a multiple of the minimum block");
    const BEYOND_END: Failure = Failure::new(ErrorCode::Invalid, "range beyond the end");
    const WRITE_BEYOND_END: Failure = Failure::new(ErrorCode::NoSpace, "write beyond the end");
    const TOO_LONG: Failure = Failure::new(ErrorCode::Invalid, "length above the maximum payload");
    const READ_ONLY: Failure = Failure::new(ErrorCode::NotPermitted, "the export is read-only");
    const NO_TRIM: Failure = Failure::new(ErrorCode::Invalid, "trim is not offered");
    const FLUSH_RANGE: Failure = Failure::new(ErrorCode::Invalid, "flush takes no range");
    const NO_CONTEXT: Failure =
        Failure::new(ErrorCode::Invalid, "no metadata context was negotiated");
    const EMPTY_STATUS: Failure = Failure::new(ErrorCode::Invalid, "no status of an empty range");
    const UNKNOWN: Failure = Failure::new(ErrorCode::Invalid, "unknown command");
    /// The engine answered a read without the data that was asked for.
    pub(super) const NO_DATA: Failure = Failure::new(ErrorCode::Io, "the data is missing");
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Failure {
        match error {
            RequestError::Io => Failure::new(ErrorCode::Io, "I/O error"),
            RequestError::NoSpace => Failure::new(ErrorCode::NoSpace, "no space"),
            RequestError::ShuttingDown => {
                Failure::new(ErrorCode::ShuttingDown, "the device is shutting down")
            }
            RequestError::ReadOnly => Failure::READ_ONLY,
            // Only drains and detaches are cancelled, find something lost, or get stuck, and no NBD
            // client asks for those, for sequences, or about the volume.
            RequestError::Cancelled
            | RequestError::Lost { .. }
            | RequestError::Stuck { .. }
            | RequestError::Sequence(_)
            | RequestError::Leg(_)
            | RequestError::Resize(_)
            | RequestError::NvramChange(_)
            | RequestError::Volume(_) => Failure::new(ErrorCode::Io, "cancelled"),
        }
    }
}

/// Judges a request. The magic number was checked before; the cookie means nothing here.
pub(super) fn check(
    header: &RequestHeader,
    export: &Export,
    agreement: Agreement,
) -> Result<Command, Failure> {
    let number = header.command.get();
    let flags = header.flags.get();
    if number == command::DISC {
        return Ok(Command::Disconnect);
    }

    // 1. Does the command exist, and may it have these flags? FUA is allowed on all of them.
    let flags_known = match number {
        command::READ if agreement.structured_replies => command_flag::DF,
        command::READ | command::WRITE | command::FLUSH | command::TRIM | command::CACHE => 0,
        command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
        command::BLOCK_STATUS => command_flag::REQ_ONE,
        _ => return Err(Failure::UNKNOWN),
    };
    if flags & !(flags_known | command_flag::FUA) != 0 {
        return Err(Failure::FLAGS);
    }

    // 2. May this client, on this export, give it?
    let writes = matches!(number, command::WRITE | command::TRIM | command::WRITE_ZEROES);
    if writes && export.read_only {
        return Err(Failure::READ_ONLY);
    }
    match number {
        command::TRIM if !export.trim => return Err(Failure::NO_TRIM),
        command::BLOCK_STATUS if !agreement.block_status => return Err(Failure::NO_CONTEXT),
        command::BLOCK_STATUS if header.length.get() == 0 => return Err(Failure::EMPTY_STATUS),
        command::FLUSH if header.offset.get() != 0 || header.length.get() != 0 => {
            return Err(Failure::FLUSH_RANGE);
        }
        command::FLUSH => return Ok(Command::Flush),
        _ => {}
    }

    // 3. Is the range good?
    let range = check_range(header, export)?;
    let carries_data = matches!(number, command::READ | command::WRITE);
    if carries_data && header.length.get() > export.maximum_payload {
        return Err(Failure::TOO_LONG);
    }
    Ok(match number {
        command::READ => Command::Read(range),
        command::WRITE => Command::Write(range),
        command::TRIM => Command::Trim(range),
        command::CACHE => Command::Cache(range),
        command::WRITE_ZEROES => {
            Command::WriteZeroes { range, may_unmap: flags & command_flag::NO_HOLE == 0 }
        }
        _ => {
            let one = flags & command_flag::REQ_ONE != 0;
            Command::BlockStatus { range, pieces_max: if one { 1 } else { DESCRIPTORS_MAX } }
        }
    })
}

/// The one place where offset and length of a request are checked.
fn check_range(header: &RequestHeader, export: &Export) -> Result<LbaRange, Failure> {
    let offset = header.offset.get();
    let length = u64::from(header.length.get());
    let block = u64::from(export.minimum_block);
    if !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
        return Err(Failure::UNALIGNED);
    }
    match offset.checked_add(length) {
        Some(end) if end <= export.size_bytes => {
            Ok(LbaRange::new(offset / BLOCK_SIZE, length / BLOCK_SIZE))
        }
        _ => match header.command.get() {
            command::WRITE | command::WRITE_ZEROES => Err(Failure::WRITE_BEYOND_END),
            _ => Err(Failure::BEYOND_END),
        },
    }
}

/// Writes the reply to one request.
pub(super) struct Reply<'a> {
    pub(super) cookie: u64,
    /// Whether this client gets structured replies.
    pub(super) structured: bool,
    pub(super) out: &'a mut SendQueue,
}

impl<'a> Reply<'a> {
    /// Success without data. Allowed as a simple reply to any request but a read.
    pub(super) fn done(self) {
        self.simple(0);
    }

    /// Success of a read of nothing.
    pub(super) fn done_read_of_nothing(self) {
        if self.structured {
            let header = self.chunk_header(chunk::NONE, 0);
            self.out.push_bytes(header.as_bytes());
        } else {
            self.simple(0);
        }
    }

    /// Success of a read. `data` is not empty.
    pub(super) fn data(self, offset: u64, data: Buffer) {
        if self.structured {
            let length = size_of::<u64>() + data.len();
            let header = OffsetDataChunk {
                header: self.chunk_header(chunk::OFFSET_DATA, length),
                offset: offset.into(),
            };
            self.out.push_bytes(header.as_bytes());
            self.out.push_payload(data);
        } else {
            let out = self.simple(0);
            out.push_payload(data);
        }
    }

    pub(super) fn fail(self, failure: Failure) {
        if self.structured {
            let message = failure.words.as_bytes();
            let message_length = message.len() as u16;
            let fixed = size_of::<ErrorChunk>() - size_of::<ChunkHeader>();
            let header = ErrorChunk {
                header: self.chunk_header(chunk::ERROR, fixed + message.len()),
                error: (failure.code as u32).into(),
                message_length: message_length.into(),
            };
            self.out.push_bytes(header.as_bytes());
            self.out.push_bytes(message);
        } else {
            self.simple(failure.code as u32);
        }
    }

    /// Success of a BLOCK_STATUS. `pieces` cover the front of the range, whose length is `blocks`
    /// and not zero: how many blocks, and whether they read as zeroes. Of what they leave out
    /// nothing is said, except that there must be one descriptor: without any piece it says that
    /// nothing is known.
    pub(super) fn block_status(self, blocks: u64, pieces: &[(u64, bool)], pieces_max: usize) {
        let mut rest = blocks;
        let mut descriptors: Vec<(u64, bool)> = Vec::with_capacity(pieces.len().min(pieces_max));
        for &(length, zero) in pieces {
            let length = length.min(rest);
            if length == 0 {
                continue;
            }
            let full = descriptors.len() == pieces_max;
            match descriptors.last_mut() {
                Some(last) if last.1 == zero => last.0 += length,
                _ if full => break,
                _ => descriptors.push((length, zero)),
            }
            rest -= length;
        }
        if descriptors.is_empty() {
            descriptors.push((blocks, false));
        }

        let fixed = size_of::<BlockStatusChunk>() - size_of::<ChunkHeader>();
        let length = fixed + descriptors.len() * size_of::<BlockDescriptor>();
        let header = BlockStatusChunk {
            header: self.chunk_header(chunk::BLOCK_STATUS, length),
            context: CONTEXT_ID.into(),
        };
        self.out.push_bytes(header.as_bytes());
        for (length, zero) in descriptors {
            // Fits: all pieces together are no longer than the request, whose length is 32 bits.
            let length = (length * BLOCK_SIZE) as u32;
            let flags = if zero { STATE_ZERO } else { 0 };
            let descriptor = BlockDescriptor { length: length.into(), flags: flags.into() };
            self.out.push_bytes(descriptor.as_bytes());
        }
    }

    fn simple(self, error: u32) -> &'a mut SendQueue {
        let reply = SimpleReply {
            magic: SIMPLE_REPLY_MAGIC.into(),
            error: error.into(),
            cookie: self.cookie.into(),
        };
        self.out.push_bytes(reply.as_bytes());
        self.out
    }

    fn chunk_header(&self, kind: u16, length: usize) -> ChunkHeader {
        ChunkHeader {
            magic: STRUCTURED_REPLY_MAGIC.into(),
            flags: REPLY_FLAG_DONE.into(),
            kind: kind.into(),
            cookie: self.cookie.into(),
            length: (length as u32).into(),
        }
    }
}
