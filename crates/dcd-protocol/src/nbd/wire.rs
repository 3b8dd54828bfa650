//! Numbers and layouts of the NBD protocol, as in `proto.md` of the NBD project.
//!
//! Everything on the wire is big-endian; the structs here have exactly the layout of the wire, so
//! reading and writing them is a copy. Names follow the specification without its `NBD_` prefix.
//! There is no behaviour here: the server's is in the daemon (`frontend/nbd`), the client's beside this.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "NBDMAGIC", the first bytes of a server.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT", before every option and at the end of the greeting's magic.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before every simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before every chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag of server and client: options are answered.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag of server and client: no padding after the answer to EXPORT_NAME.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Padding after the answer to EXPORT_NAME, unless [`FLAG_NO_ZEROES`] was agreed upon.
pub const EXPORT_NAME_PADDING: usize = 124;

/// Longest string the specification allows: names, descriptions, queries.
pub const STRING_MAX: usize = 4096;

/// Options of the handshake.
pub mod option {
    /// Choose an export and start, without any way to report an error.
    pub const EXPORT_NAME: u32 = 1;
    /// Say goodbye.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Switch to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and start.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List the metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub mod option_reply {
    /// Set in every reply that is an error.
    pub const ERROR: u32 = 1 << 31;

    /// Done.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// A fact about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The server does not want to.
    pub const ERR_POLICY: u32 = ERROR + 2;
    /// The option is not known.
    pub const ERR_UNSUP: u32 = ERROR + 1;
    /// The payload of the option makes no sense.
    pub const ERR_INVALID: u32 = ERROR + 3;
    /// Not before STARTTLS.
    pub const ERR_TLS_REQD: u32 = ERROR + 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    /// The server is shutting down.
    pub const ERR_SHUTDOWN: u32 = ERROR + 7;
    /// The option asks for too much.
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
}

/// Kinds of facts about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The name.
    pub const NAME: u16 = 1;
    /// Words for a human.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// What the server can do with an export.
pub mod transmission_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes fail.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA flag is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The DF flag is understood.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the writes of all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is understood.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The FAST_ZERO flag is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands of the transmission phase.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the data follows the request.
    pub const WRITE: u16 = 1;
    /// Say goodbye; not answered.
    pub const DISC: u16 = 2;
    /// Make everything acknowledged durable.
    pub const FLUSH: u16 = 3;
    /// The contents are no longer wanted.
    pub const TRIM: u16 = 4;
    /// The range will be read soon.
    pub const CACHE: u16 = 5;
    /// Make the range read as zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Tell what is known of a range.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub mod command_flag {
    /// Reply only when durable.
    pub const FUA: u16 = 1 << 0;
    /// WRITE_ZEROES must not free the space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// READ must be answered in one piece.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS must be answered with one piece.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES must fail if it is not faster than a write.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Flag of a chunk: the last of its reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;

/// Types of chunks of a structured reply.
pub mod chunk {
    /// Nothing; the reply ends.
    pub const NONE: u16 = 0;
    /// An offset and data.
    pub const OFFSET_DATA: u16 = 1;
    /// An offset and a length of zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// A metadata context and descriptors.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error and a message.
    pub const ERROR: u16 = (1 << 15) + 1;
    /// An error, a message and an offset.
    pub const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// Flag of a `base:allocation` descriptor: the range reads as zeroes.
///
/// There is also "hole" (bit 0). It is never sent: whether space is allocated is for the data-disk
/// to know, and a clear bit means "allocated or unknown".
pub const STATE_ZERO: u32 = 1 << 1;

/// The one metadata context there is.
pub const CONTEXT_NAME: &[u8] = b"base:allocation";
/// Query that lists all contexts of the namespace `base`.
pub const CONTEXT_WILDCARD: &[u8] = b"base:";
/// The number by which replies name the context.
pub const CONTEXT_ID: u32 = 1;

/// Errors of requests. The numbers are those of Linux, by definition of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ErrorCode {
    /// The export is read-only.
    NotPermitted = 1,
    /// The server failed.
    Io = 5,
    /// The request makes no sense.
    Invalid = 22,
    /// No space left, or a write beyond the end.
    NoSpace = 28,
    /// The server is shutting down.
    ShuttingDown = 108,
}

macro_rules! wire {
    ($(#[$meta:meta])* $name:ident, $bytes:literal {
        $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type),* }
        const _: () = assert!(size_of::<$name>() == $bytes);
    };
}

wire! {
    /// The first thing a server sends.
    Greeting, 18 {
        /// [`GREETING_MAGIC`].
        magic: U64,
        /// [`OPTION_MAGIC`].
        option_magic: U64,
        /// Handshake flags.
        flags: U16,
    }
}

wire! {
    /// Before the payload of an option.
    OptionHeader, 16 {
        /// [`OPTION_MAGIC`].
        magic: U64,
        /// One of [`option`].
        option: U32,
        /// Of the payload, in bytes.
        length: U32,
    }
}

wire! {
    /// Before the payload of a reply to an option.
    OptionReplyHeader, 20 {
        /// [`OPTION_REPLY_MAGIC`].
        magic: U64,
        /// Which option is answered.
        option: U32,
        /// One of [`option_reply`].
        reply: U32,
        /// Of the payload, in bytes.
        length: U32,
    }
}

wire! {
    /// The answer to EXPORT_NAME; padding may follow.
    ExportNameReply, 10 {
        /// Of the export, in bytes.
        size: U64,
        /// Transmission flags.
        flags: U16,
    }
}

wire! {
    /// Payload of [`info::EXPORT`].
    InfoExport, 12 {
        /// [`info::EXPORT`].
        kind: U16,
        /// Of the export, in bytes.
        size: U64,
        /// Transmission flags.
        flags: U16,
    }
}

wire! {
    /// Payload of [`info::BLOCK_SIZE`].
    InfoBlockSize, 14 {
        /// [`info::BLOCK_SIZE`].
        kind: U16,
        /// Smallest unit of requests, in bytes.
        minimum: U32,
        /// Best unit of requests, in bytes.
        preferred: U32,
        /// Largest payload, in bytes.
        maximum: U32,
    }
}

wire! {
    /// A request; the data of a write follows.
    RequestHeader, 28 {
        /// [`REQUEST_MAGIC`].
        magic: U32,
        /// [`command_flag`].
        flags: U16,
        /// One of [`command`].
        command: U16,
        /// Chosen by the client; comes back in the reply. Nothing says it is unique.
        cookie: U64,
        /// In bytes.
        offset: U64,
        /// In bytes.
        length: U32,
    }
}

wire! {
    /// A simple reply; the data of a read follows.
    SimpleReply, 16 {
        /// [`SIMPLE_REPLY_MAGIC`].
        magic: U32,
        /// Zero, or one of [`ErrorCode`].
        error: U32,
        /// Of the request.
        cookie: U64,
    }
}

wire! {
    /// Before the payload of a chunk of a structured reply.
    ChunkHeader, 20 {
        /// [`STRUCTURED_REPLY_MAGIC`].
        magic: U32,
        /// [`REPLY_FLAG_DONE`] or nothing.
        flags: U16,
        /// One of [`chunk`].
        kind: U16,
        /// Of the request.
        cookie: U64,
        /// Of the payload, in bytes.
        length: U32,
    }
}

wire! {
    /// Payload of [`chunk::OFFSET_DATA`] up to the data.
    OffsetDataChunk, 28 {
        /// The chunk.
        header: ChunkHeader,
        /// Where the data lies on the export, in bytes.
        offset: U64,
    }
}

wire! {
    /// Payload of [`chunk::ERROR`] up to the message.
    ErrorChunk, 26 {
        /// The chunk.
        header: ChunkHeader,
        /// One of [`ErrorCode`].
        error: U32,
        /// Of the message, in bytes.
        message_length: U16,
    }
}

wire! {
    /// Payload of [`chunk::BLOCK_STATUS`] up to the descriptors.
    BlockStatusChunk, 24 {
        /// The chunk.
        header: ChunkHeader,
        /// [`CONTEXT_ID`].
        context: U32,
    }
}

wire! {
    /// What is known of a piece of the export.
    BlockDescriptor, 8 {
        /// In bytes, not zero.
        length: U32,
        /// [`STATE_ZERO`] or nothing.
        flags: U32,
    }
}
