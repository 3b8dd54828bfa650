//! The fixed newstyle negotiation: greeting, options, until the client starts or goes away.
//!
//! Nothing here holds anything of value before the client starts (no buffers, no engine), and an
//! option is looked at only when all of it is there; so a client that stops half-way costs one
//! small buffer. Rules for what a client may send, each closing a hole that was found in other
//! servers: the length of an option is limited before anything is allocated; every option must be
//! consumed to its last byte, else it is invalid; nothing the client sent is sent back; the number
//! of options is limited; nothing that came before STARTTLS counts after it, and nothing may come
//! with it.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::protocol::{
    CONTEXT_ID, CONTEXT_NAME, CONTEXT_WILDCARD, EXPORT_NAME_PADDING, ExportNameReply,
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_MAGIC, Greeting, InfoBlockSize, InfoExport,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHeader, OptionReplyHeader, STRING_MAX, info, option,
    option_reply, transmission_flag,
};
use super::send_queue::SendQueue;
use super::{Export, ProtocolError};

/// Longest payload of an option. The connection is cut above it.
pub(super) const OPTION_LENGTH_MAX: usize = 16 << 10;
/// Most options on a connection. The connection is cut above it.
pub(super) const OPTIONS_MAX: u32 = 1024;
/// Most queries in one LIST_META_CONTEXT or SET_META_CONTEXT.
const META_QUERIES_MAX: u32 = 64;

/// What the client has agreed to. Valid once it has started.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Agreement {
    /// Replies with data come in chunks.
    pub(super) structured_replies: bool,
    /// BLOCK_STATUS tells of [`CONTEXT_NAME`].
    pub(super) block_status: bool,
}

/// Whether bytes are protected.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Protection {
    /// No, and TLS is not offered: the socket is private in another way.
    #[default]
    None,
    /// Not yet. Nothing but STARTTLS and ABORT is understood before.
    TlsRequired,
    /// By TLS.
    Tls,
}

/// See the module.
#[derive(Default)]
pub(super) struct Handshake {
    protection: Protection,
    agreement: Agreement,
    /// The flags of the client have come.
    greeted: bool,
    no_zeroes: bool,
    options_seen: u32,
}

/// What became of some input.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Too little of it to do anything.
    NeedsMore,
    /// So many bytes are done with; there may be more to do.
    Consumed(usize),
    /// So many bytes are done with; what follows are requests.
    Starts(usize, Agreement),
    /// So many bytes, which were all there are, are done with; what follows are TLS records.
    StartsTls(usize),
    /// The client said goodbye.
    Aborted,
}

impl Handshake {
    /// Greets the client.
    pub(super) fn new(protection: Protection, out: &mut SendQueue) -> Handshake {
        let greeting = Greeting {
            magic: GREETING_MAGIC.into(),
            option_magic: OPTION_MAGIC.into(),
            flags: (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).into(),
        };
        out.push_bytes(greeting.as_bytes());
        Handshake { protection, ..Handshake::default() }
    }

    /// What goes on below TLS: the flags of the client hold, and of all options that came before
    /// nothing.
    pub(super) fn secured(&self) -> Handshake {
        Handshake {
            protection: Protection::Tls,
            greeted: self.greeted,
            no_zeroes: self.no_zeroes,
            ..Handshake::default()
        }
    }

    /// Does one step with the front of `input`. An error means that the connection must be cut.
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        export: &Export,
        out: &mut SendQueue,
    ) -> Result<Step, ProtocolError> {
        if !self.greeted {
            return self.handle_client_flags(input);
        }
        let Ok((header, rest)) = OptionHeader::read_from_prefix(input) else {
            return Ok(Step::NeedsMore);
        };

        // 1. All that can be told from the header, before waiting for the payload.
        self.check_header(&header)?;
        let (option, length) = (header.option.get(), header.length.get());

        // 2. The option, once it is complete.
        let Some(payload) = rest.get(..length as usize) else {
            return Ok(Step::NeedsMore);
        };
        self.options_seen += 1;
        let consumed = size_of::<OptionHeader>() + payload.len();
        let mut reply = OptionReply { option, out };
        match option {
            option::STARTTLS if !payload.is_empty() => reply.refuse(Refusal::Invalid),
            option::STARTTLS => match self.protection {
                Protection::None => reply.refuse(Refusal::Unsupported),
                Protection::Tls => reply.refuse(Refusal::Invalid),
                // Whoever sits between could have put them there, to be taken for what the client
                // says under TLS.
                Protection::TlsRequired if input.len() > consumed => {
                    return Err(ProtocolError::BytesBehindStartTls);
                }
                Protection::TlsRequired => {
                    reply.ack();
                    return Ok(Step::StartsTls(consumed));
                }
            },
            option::EXPORT_NAME if self.protection == Protection::TlsRequired => {
                // This option cannot fail in another way.
                return Err(ProtocolError::TlsRequired);
            }
            option::ABORT => {
                // Whatever payload it has is ignored, as the specification wants.
                reply.ack();
                return Ok(Step::Aborted);
            }
            _ if self.protection == Protection::TlsRequired => reply.refuse(Refusal::TlsRequired),
            option::EXPORT_NAME => {
                if !payload.is_empty() {
                    return Err(ProtocolError::UnknownExport);
                }
                self.reply_export_name(export, reply.out);
                return Ok(Step::Starts(consumed, self.agreement));
            }
            option::GO => {
                if self.handle_info(payload, export, &mut reply) {
                    return Ok(Step::Starts(consumed, self.agreement));
                }
            }
            option::INFO => {
                self.handle_info(payload, export, &mut reply);
            }
            option::LIST if !payload.is_empty() => reply.refuse(Refusal::Invalid),
            option::LIST => {
                let name_length = U32::new(0);
                let description = description(export);
                reply.push(option_reply::SERVER, &[name_length.as_bytes(), description]);
                reply.ack();
            }
            option::STRUCTURED_REPLY if !payload.is_empty() => reply.refuse(Refusal::Invalid),
            option::STRUCTURED_REPLY => {
                self.agreement.structured_replies = true;
                reply.ack();
            }
            option::LIST_META_CONTEXT => match MetaQuery::parse(payload, MetaVerb::List) {
                Ok(query) => reply.meta_context(query.matches, 0),
                Err(refusal) => reply.refuse(refusal),
            },
            option::SET_META_CONTEXT => {
                // A failure too must forget what was selected before.
                self.agreement.block_status = false;
                match self.select_meta_context(payload) {
                    Ok(selected) => {
                        self.agreement.block_status = selected;
                        reply.meta_context(selected, CONTEXT_ID);
                    }
                    Err(refusal) => reply.refuse(refusal),
                }
            }
            _ => reply.refuse(Refusal::Unsupported),
        }
        Ok(Step::Consumed(consumed))
    }

    fn check_header(&self, header: &OptionHeader) -> Result<(), ProtocolError> {
        if header.magic.get() != OPTION_MAGIC {
            return Err(ProtocolError::OptionMagic { found: header.magic.get() });
        }
        let (option, length) = (header.option.get(), header.length.get());
        if length as usize > OPTION_LENGTH_MAX {
            return Err(ProtocolError::OptionTooLong { option, length });
        }
        if self.options_seen >= OPTIONS_MAX {
            return Err(ProtocolError::TooManyOptions);
        }
        Ok(())
    }

    fn handle_client_flags(&mut self, input: &[u8]) -> Result<Step, ProtocolError> {
        let Ok((flags, _)) = U32::read_from_prefix(input) else {
            return Ok(Step::NeedsMore);
        };
        let flags = flags.get();
        let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        if flags & !known != 0 {
            return Err(ProtocolError::ClientFlags { found: flags });
        }
        if flags & u32::from(FLAG_FIXED_NEWSTYLE) == 0 {
            return Err(ProtocolError::NotFixedNewstyle);
        }
        self.no_zeroes = flags & u32::from(FLAG_NO_ZEROES) != 0;
        self.greeted = true;
        Ok(Step::Consumed(size_of::<U32>()))
    }

    fn reply_export_name(&self, export: &Export, out: &mut SendQueue) {
        let reply = ExportNameReply {
            size: export.size_bytes.into(),
            flags: transmission_flags(export, self.agreement).into(),
        };
        out.push_bytes(reply.as_bytes());
        if !self.no_zeroes {
            out.push_bytes(&[0; EXPORT_NAME_PADDING]);
        }
    }

    /// INFO and GO. Returns whether the export was accepted.
    fn handle_info(&self, payload: &[u8], export: &Export, reply: &mut OptionReply) -> bool {
        let wanted = match InfoQuery::parse(payload) {
            Ok(wanted) => wanted,
            Err(refusal) => {
                reply.refuse(refusal);
                return false;
            }
        };
        let export_info = InfoExport {
            kind: info::EXPORT.into(),
            size: export.size_bytes.into(),
            flags: transmission_flags(export, self.agreement).into(),
        };
        reply.push(option_reply::INFO, &[export_info.as_bytes()]);
        // Sent also to a client that did not ask: it may not understand it, then it is told by
        // EINVAL for each request that is not aligned.
        let block_size = InfoBlockSize {
            kind: info::BLOCK_SIZE.into(),
            minimum: export.minimum_block.into(),
            preferred: export.preferred_block.into(),
            maximum: export.maximum_payload.into(),
        };
        reply.push(option_reply::INFO, &[block_size.as_bytes()]);
        if wanted.name {
            reply.push(option_reply::INFO, &[U16::new(info::NAME).as_bytes()]);
        }
        if wanted.description && !export.description.is_empty() {
            let kind = U16::new(info::DESCRIPTION);
            reply.push(option_reply::INFO, &[kind.as_bytes(), description(export)]);
        }
        reply.ack();
        true
    }

    fn select_meta_context(&self, payload: &[u8]) -> Result<bool, Refusal> {
        let query = MetaQuery::parse(payload, MetaVerb::Set)?;
        if !self.agreement.structured_replies {
            return Err(Refusal::Invalid);
        }
        Ok(query.matches)
    }
}

/// What the client may use, given what it has agreed to.
fn transmission_flags(export: &Export, agreement: Agreement) -> u16 {
    use transmission_flag::*;
    let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
    if export.read_only {
        flags |= READ_ONLY;
    } else {
        // Zeroes are a record in the log: always faster than a write.
        flags |= SEND_WRITE_ZEROES | SEND_FAST_ZERO;
        if export.trim {
            flags |= SEND_TRIM;
        }
    }
    if agreement.structured_replies {
        flags |= SEND_DF;
    }
    flags
}

/// The description, no longer than a string may be.
fn description(export: &Export) -> &[u8] {
    let end = export.description.floor_char_boundary(STRING_MAX);
    &export.description.as_bytes()[..end]
}

/// Why an option fails. The client hears the kind and fixed words, nothing of what it sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Unsupported,
    Invalid,
    TlsRequired,
    UnknownExport,
    TooBig,
}

/// Writes replies to one option.
struct OptionReply<'a> {
    option: u32,
    out: &'a mut SendQueue,
}

impl OptionReply<'_> {
    fn push(&mut self, reply: u32, payload: &[&[u8]]) {
        let length: usize = payload.iter().map(|part| part.len()).sum();
        let header = OptionReplyHeader {
            magic: OPTION_REPLY_MAGIC.into(),
            option: self.option.into(),
            reply: reply.into(),
            length: (length as u32).into(),
        };
        self.out.push_bytes(header.as_bytes());
        for part in payload {
            self.out.push_bytes(part);
        }
    }

    fn ack(&mut self) {
        self.push(option_reply::ACK, &[]);
    }

    /// The answer to both options about metadata contexts.
    fn meta_context(&mut self, matches: bool, id: u32) {
        if matches {
            let id = U32::new(id);
            self.push(option_reply::META_CONTEXT, &[id.as_bytes(), CONTEXT_NAME]);
        }
        self.ack();
    }

    fn refuse(&mut self, refusal: Refusal) {
        let (reply, words) = match refusal {
            Refusal::Unsupported => (option_reply::ERR_UNSUP, "this option is not supported"),
            Refusal::Invalid => (option_reply::ERR_INVALID, "this option is not valid"),
            Refusal::TlsRequired => (option_reply::ERR_TLS_REQD, "this server wants TLS first"),
            Refusal::UnknownExport => (option_reply::ERR_UNKNOWN, "there is no such export"),
            Refusal::TooBig => (option_reply::ERR_TOO_BIG, "too many queries in this option"),
        };
        self.push(reply, &[words.as_bytes()]);
    }
}

/// The payload of an option, eaten from the front. Every method fails when there is too little.
struct Payload<'a>(&'a [u8]);

impl<'a> Payload<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(&mut self) -> Result<T, Refusal> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Refusal::Invalid)?;
        self.0 = rest;
        Ok(value)
    }

    /// A string with its length before it.
    fn take_string(&mut self) -> Result<&'a [u8], Refusal> {
        let length = self.take::<U32>()?.get() as usize;
        if length > STRING_MAX {
            return Err(Refusal::Invalid);
        }
        let (string, rest) = self.0.split_at_checked(length).ok_or(Refusal::Invalid)?;
        self.0 = rest;
        Ok(string)
    }

    fn finish(self) -> Result<(), Refusal> {
        if self.0.is_empty() { Ok(()) } else { Err(Refusal::Invalid) }
    }
}

/// Only the default export exists.
fn check_name(name: &[u8]) -> Result<(), Refusal> {
    if name.is_empty() { Ok(()) } else { Err(Refusal::UnknownExport) }
}

/// What INFO or GO asks for.
#[derive(Default)]
struct InfoQuery {
    name: bool,
    description: bool,
}

impl InfoQuery {
    fn parse(payload: &[u8]) -> Result<InfoQuery, Refusal> {
        let mut payload = Payload(payload);
        let name = payload.take_string()?;
        let count = payload.take::<U16>()?.get();
        let mut query = InfoQuery::default();
        for _ in 0..count {
            match payload.take::<U16>()?.get() {
                info::NAME => query.name = true,
                info::DESCRIPTION => query.description = true,
                // The others are sent anyway, or unknown and to be ignored.
                _ => {}
            }
        }
        payload.finish()?;
        check_name(name)?;
        Ok(query)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MetaVerb {
    List,
    Set,
}

/// What LIST_META_CONTEXT or SET_META_CONTEXT asks for.
struct MetaQuery {
    /// The one context there is is meant.
    matches: bool,
}

impl MetaQuery {
    fn parse(payload: &[u8], verb: MetaVerb) -> Result<MetaQuery, Refusal> {
        let mut payload = Payload(payload);
        let name = payload.take_string()?;
        let count = payload.take::<U32>()?.get();
        if count > META_QUERIES_MAX {
            return Err(Refusal::TooBig);
        }
        // To list without a query lists everything; to select without one selects nothing.
        let mut matches = count == 0 && verb == MetaVerb::List;
        for _ in 0..count {
            let query = payload.take_string()?;
            matches |= query == CONTEXT_NAME;
            matches |= query == CONTEXT_WILDCARD && verb == MetaVerb::List;
        }
        payload.finish()?;
        check_name(name)?;
        Ok(MetaQuery { matches })
    }
}
