//! Agreeing on an export: fixed newstyle, structured replies if the server has them, and GO.
//!
//! ```text
//! greeting -> flags, STRUCTURED_REPLY -> ACK or an error -> GO(name, BLOCK_SIZE) -> facts.. -> ACK
//! ```
//!
//! With TLS, STARTTLS comes first, and nothing else is said before it is answered with yes.
//!
//! [`Negotiation::step`] says what is to be sent and how many bytes are to be received; never is
//! more asked for than belongs to the negotiation, so that nothing has to be given back.

use zerocopy::{FromBytes, IntoBytes};

use super::wire::{
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_MAGIC, Greeting, InfoBlockSize, InfoExport,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHeader, OptionReplyHeader, STRING_MAX, info, option,
    option_reply, transmission_flag,
};

/// Longest payload of a reply to an option that is listened to: a name and a description fit.
const OPTION_REPLY_BYTES_MAX: u32 = 2 * STRING_MAX as u32;
/// Replies to an option that are listened to.
const OPTION_REPLIES_MAX: u32 = 64;
/// Longest payload that every server takes, where it does not say.
const PAYLOAD_DEFAULT: u32 = 32 << 20;
/// Longest that is asked for, whatever a server takes.
const PAYLOAD_MAX: u32 = 32 << 20;

/// What is known of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportFacts {
    /// In bytes.
    pub size_bytes: u64,
    /// [`transmission_flag`].
    pub flags: u16,
    /// Smallest unit of requests, in bytes; a power of 2.
    pub minimum_block: u32,
    /// Longest payload of a request, in bytes; a multiple of 4096 or of the smallest unit.
    pub maximum_payload: u32,
    /// Replies come in chunks.
    pub structured: bool,
}

impl ExportFacts {
    /// Whether a flag is set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether it takes no writes.
    pub fn is_read_only(&self) -> bool {
        self.has(transmission_flag::READ_ONLY)
    }

    /// Whether a flush on one connection covers the writes of all.
    pub fn can_multi_conn(&self) -> bool {
        self.has(transmission_flag::CAN_MULTI_CONN)
    }
}

/// Why there is no agreement.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NegotiationError {
    /// Some other service.
    #[error("it is no NBD server: it greets with {found:02x?}")]
    Greeting {
        /// The first bytes.
        found: [u8; 8],
    },
    /// An NBD server of before 2013.
    #[error("the server speaks an old form of NBD, expected fixed newstyle")]
    OldStyle,
    /// It does not know GO.
    #[error("the server does not know NBD_OPT_GO")]
    NoGo,
    /// It wants TLS.
    #[error("the server serves this only with TLS")]
    Tls,
    /// It has none.
    #[error("the server has no TLS (reply {reply:#x}){words}")]
    NoTls {
        /// Its reply.
        reply: u32,
        /// What it says.
        words: ServerWords,
    },
    /// There is no such export.
    #[error("the server has no such export{0}")]
    Unknown(ServerWords),
    /// It does not want to.
    #[error("the server refuses the export (reply {reply:#x}){words}")]
    Refused {
        /// Its reply.
        reply: u32,
        /// What it says.
        words: ServerWords,
    },
    /// Not what the protocol says.
    #[error("the server breaks the protocol: {0}")]
    Protocol(&'static str),
    /// Blocks of a size that nobody can use.
    #[error("the server wants blocks of {found} bytes, expected a power of 2, at most 65536")]
    BlockSize {
        /// The size.
        found: u32,
    },
}

/// What a server says, for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerWords(String);

impl ServerWords {
    /// Nothing in it does anything to a terminal.
    fn of(bytes: &[u8]) -> ServerWords {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
        ServerWords(text.chars().filter(|letter| !letter.is_control()).collect())
    }
}

impl std::fmt::Display for ServerWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_str() {
            "" => Ok(()),
            words => write!(f, ": it says {words:?}"),
        }
    }
}

/// What comes next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Receive exactly so many bytes, and bring them to [`Negotiation::received`].
    Receive(usize),
    /// Secure the connection: what is sent and received from now on is a record of TLS. Then call
    /// [`Negotiation::secured`].
    Secure,
    /// Both agree; requests follow.
    Agreed(ExportFacts),
}

enum State {
    Greeting,
    /// The header of a reply to this option.
    ReplyHeader(u32),
    /// The payload of a reply to this option, and which.
    Payload(u32, u32, usize),
    Securing,
    Agreed,
}

/// See the module.
pub struct Negotiation {
    export: String,
    with_tls: bool,
    state: State,
    to_send: Option<Vec<u8>>,
    replies: u32,
    structured: bool,
    size_and_flags: Option<(u64, u16)>,
    blocks: Option<(u32, u32)>,
}

impl Negotiation {
    /// About the export of this name, with TLS or without.
    ///
    /// # Panics
    /// If it is longer than [`STRING_MAX`]: no URI has one.
    pub fn new(export: &str, with_tls: bool) -> Negotiation {
        assert!(export.len() <= STRING_MAX, "a name of {} bytes", export.len());
        Negotiation {
            export: export.to_owned(),
            with_tls,
            state: State::Greeting,
            to_send: None,
            replies: 0,
            structured: false,
            size_and_flags: None,
            blocks: None,
        }
    }

    /// What comes next.
    pub fn step(&mut self) -> Step {
        if let Some(bytes) = self.to_send.take() {
            return Step::Send(bytes);
        }
        match self.state {
            State::Greeting => Step::Receive(size_of::<Greeting>()),
            State::ReplyHeader(_) => Step::Receive(size_of::<OptionReplyHeader>()),
            State::Payload(_, _, length) => Step::Receive(length),
            State::Securing => Step::Secure,
            State::Agreed => Step::Agreed(self.facts()),
        }
    }

    /// The connection is secure, as [`Step::Secure`] has asked for.
    ///
    /// # Panics
    /// If nobody has asked.
    pub fn secured(&mut self) {
        assert!(matches!(self.state, State::Securing), "nobody has asked for it");
        self.ask(option::STRUCTURED_REPLY, option_bytes(option::STRUCTURED_REPLY, &[]));
    }

    /// Takes what was received: as many bytes as [`Negotiation::step`] asked for.
    ///
    /// # Errors
    /// If there can be no agreement.
    pub fn received(&mut self, bytes: &[u8]) -> Result<(), NegotiationError> {
        match self.state {
            State::Greeting => self.greeted(bytes),
            State::ReplyHeader(asked) => {
                let short = NegotiationError::Protocol("a short reply");
                let (header, _) = OptionReplyHeader::read_from_prefix(bytes).map_err(|_| short)?;
                let (magic, answered) = (header.magic.get(), header.option.get());
                if magic != OPTION_REPLY_MAGIC || answered != asked {
                    return Err(NegotiationError::Protocol(
                        "a reply to an option that was not asked",
                    ));
                }
                self.replies += 1;
                if self.replies > OPTION_REPLIES_MAX {
                    return Err(NegotiationError::Protocol("replies without end"));
                }
                if header.length.get() > OPTION_REPLY_BYTES_MAX {
                    return Err(NegotiationError::Protocol(
                        "a reply to an option that is too long",
                    ));
                }
                let (reply, length) = (header.reply.get(), header.length.get() as usize);
                match length {
                    0 => self.replied(asked, reply, &[]),
                    length => {
                        self.state = State::Payload(asked, reply, length);
                        Ok(())
                    }
                }
            }
            State::Payload(asked, reply, _) => self.replied(asked, reply, bytes),
            State::Securing => Err(NegotiationError::Protocol("bytes before the handshake of TLS")),
            State::Agreed => Err(NegotiationError::Protocol("bytes behind the agreement")),
        }
    }

    fn greeted(&mut self, bytes: &[u8]) -> Result<(), NegotiationError> {
        let short = NegotiationError::Protocol("a short greeting");
        let (greeting, _) = Greeting::read_from_prefix(bytes).map_err(|_| short)?;
        if greeting.magic.get() != GREETING_MAGIC {
            return Err(NegotiationError::Greeting { found: greeting.magic.get().to_be_bytes() });
        }
        let is_fixed = greeting.flags.get() & FLAG_FIXED_NEWSTYLE != 0;
        if greeting.option_magic.get() != OPTION_MAGIC || !is_fixed {
            return Err(NegotiationError::OldStyle);
        }
        let flags = u32::from(greeting.flags.get() & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));
        let first = if self.with_tls { option::STARTTLS } else { option::STRUCTURED_REPLY };
        let mut hello = flags.to_be_bytes().to_vec();
        hello.extend(option_bytes(first, &[]));
        self.ask(first, hello);
        Ok(())
    }

    /// Sends this and waits for the replies to that option.
    fn ask(&mut self, option: u32, bytes: Vec<u8>) {
        self.replies = 0;
        self.to_send = Some(bytes);
        self.state = State::ReplyHeader(option);
    }

    fn replied(&mut self, asked: u32, reply: u32, payload: &[u8]) -> Result<(), NegotiationError> {
        self.state = State::ReplyHeader(asked);
        if reply == option_reply::ERR_TLS_REQD {
            return Err(NegotiationError::Tls);
        }
        if asked == option::STARTTLS {
            // What else comes in the clear anybody may have put there.
            if reply != option_reply::ACK || !payload.is_empty() {
                return Err(NegotiationError::NoTls { reply, words: ServerWords::of(payload) });
            }
            self.state = State::Securing;
            return Ok(());
        }
        if asked == option::STRUCTURED_REPLY {
            // Whoever does not know it answers simply.
            self.structured = reply == option_reply::ACK;
            let is_error = reply & option_reply::ERROR != 0;
            if !self.structured && !is_error {
                return Err(NegotiationError::Protocol("a strange reply to STRUCTURED_REPLY"));
            }
            self.ask(option::GO, self.go());
            return Ok(());
        }
        match reply {
            option_reply::INFO => self.informed(payload),
            option_reply::ACK if self.size_and_flags.is_none() => {
                Err(NegotiationError::Protocol("an export without a size"))
            }
            option_reply::ACK => {
                self.state = State::Agreed;
                Ok(())
            }
            option_reply::ERR_UNSUP => Err(NegotiationError::NoGo),
            option_reply::ERR_UNKNOWN => Err(NegotiationError::Unknown(ServerWords::of(payload))),
            reply => Err(NegotiationError::Refused { reply, words: ServerWords::of(payload) }),
        }
    }

    /// GO with the name, and the one piece of information that is asked for.
    fn go(&self) -> Vec<u8> {
        let mut payload = (self.export.len() as u32).to_be_bytes().to_vec();
        payload.extend(self.export.as_bytes());
        payload.extend(1u16.to_be_bytes());
        payload.extend(info::BLOCK_SIZE.to_be_bytes());
        option_bytes(option::GO, &payload)
    }

    fn informed(&mut self, payload: &[u8]) -> Result<(), NegotiationError> {
        let short = || NegotiationError::Protocol("a piece of information of a wrong length");
        let kind = payload.first_chunk::<2>().ok_or_else(short)?;
        match u16::from_be_bytes(*kind) {
            info::EXPORT => {
                let facts = InfoExport::read_from_bytes(payload).map_err(|_| short())?;
                self.size_and_flags = Some((facts.size.get(), facts.flags.get()));
            }
            info::BLOCK_SIZE => {
                let blocks = InfoBlockSize::read_from_bytes(payload).map_err(|_| short())?;
                let minimum = blocks.minimum.get();
                if !minimum.is_power_of_two() || minimum > 64 << 10 {
                    return Err(NegotiationError::BlockSize { found: minimum });
                }
                // Of one that takes less than one block nothing could be read.
                let unit = minimum.max(4096);
                let maximum = blocks.maximum.get().min(PAYLOAD_MAX) / unit * unit;
                if maximum == 0 {
                    return Err(NegotiationError::Protocol("a payload of less than one block"));
                }
                self.blocks = Some((minimum, maximum));
            }
            // Names and descriptions are for people.
            _ => {}
        }
        Ok(())
    }

    fn facts(&self) -> ExportFacts {
        let (size_bytes, flags) = self.size_and_flags.expect("told before the agreement");
        // A server that does not say takes blocks of 512 bytes for certain.
        let (minimum_block, maximum_payload) = self.blocks.unwrap_or((512, PAYLOAD_DEFAULT));
        let structured = self.structured;
        ExportFacts { size_bytes, flags, minimum_block, maximum_payload, structured }
    }
}

fn option_bytes(option: u32, payload: &[u8]) -> Vec<u8> {
    let header = OptionHeader {
        magic: OPTION_MAGIC.into(),
        option: option.into(),
        length: (payload.len() as u32).into(),
    };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(flags: u16) -> Vec<u8> {
        [&b"NBDMAGICIHAVEOPT"[..], &flags.to_be_bytes()].concat()
    }

    fn reply(option: u32, reply: u32, payload: &[u8]) -> Vec<u8> {
        let header = OptionReplyHeader {
            magic: OPTION_REPLY_MAGIC.into(),
            option: option.into(),
            reply: reply.into(),
            length: (payload.len() as u32).into(),
        };
        [header.as_bytes(), payload].concat()
    }

    fn export(size: u64, flags: u16) -> Vec<u8> {
        let facts =
            InfoExport { kind: info::EXPORT.into(), size: size.into(), flags: flags.into() };
        reply(option::GO, option_reply::INFO, facts.as_bytes())
    }

    fn blocks(minimum: u32, maximum: u32) -> Vec<u8> {
        let blocks = InfoBlockSize {
            kind: info::BLOCK_SIZE.into(),
            minimum: minimum.into(),
            preferred: 4096.into(),
            maximum: maximum.into(),
        };
        reply(option::GO, option_reply::INFO, blocks.as_bytes())
    }

    /// What comes of a server that says this.
    fn negotiate(said: &[Vec<u8>]) -> Result<ExportFacts, Option<NegotiationError>> {
        talk(Negotiation::new("x", false), said)
    }

    fn talk(
        mut negotiation: Negotiation,
        said: &[Vec<u8>],
    ) -> Result<ExportFacts, Option<NegotiationError>> {
        let said = said.concat();
        let mut rest = &said[..];
        loop {
            match negotiation.step() {
                Step::Send(bytes) => assert!(!bytes.is_empty()),
                Step::Secure => negotiation.secured(),
                Step::Receive(count) if count > rest.len() => return Err(None),
                Step::Receive(count) => {
                    let (now, later) = rest.split_at(count);
                    negotiation.received(now)?;
                    rest = later;
                }
                Step::Agreed(facts) => return Ok(facts),
            }
        }
    }

    #[test]
    fn both_agree() {
        let structured = reply(option::STRUCTURED_REPLY, option_reply::ACK, &[]);
        let simple = reply(option::STRUCTURED_REPLY, option_reply::ERR_UNSUP, b"no");
        let end = reply(option::GO, option_reply::ACK, &[]);
        let name = reply(option::GO, option_reply::INFO, b"\0\x01x");
        let facts = negotiate(&[
            greeting(3),
            structured,
            name,
            export(1 << 20, 5),
            blocks(1, 70000),
            end.clone(),
        ]);
        let expected = ExportFacts {
            size_bytes: 1 << 20,
            flags: 5,
            minimum_block: 1,
            maximum_payload: 69632,
            structured: true,
        };
        assert_eq!(facts, Ok(expected));
        let facts = negotiate(&[greeting(1), simple, export(512, 3), end]).unwrap();
        assert!(!facts.structured && facts.is_read_only() && !facts.can_multi_conn());
        assert_eq!((facts.minimum_block, facts.maximum_payload), (512, 32 << 20));
    }

    #[test]
    fn tls_comes_before_all_else() {
        let starts = reply(option::STARTTLS, option_reply::ACK, &[]);
        let structured = reply(option::STRUCTURED_REPLY, option_reply::ACK, &[]);
        let end = reply(option::GO, option_reply::ACK, &[]);
        let mut negotiation = Negotiation::new("x", true);
        assert_eq!(negotiation.step(), Step::Receive(18));
        negotiation.received(&greeting(3)).unwrap();
        let Step::Send(hello) = negotiation.step() else { panic!("it is greeted") };
        assert_eq!(hello[4..], option_bytes(option::STARTTLS, &[]));
        assert_eq!(negotiation.step(), Step::Receive(20));
        negotiation.received(&starts).unwrap();
        assert_eq!(negotiation.step(), Step::Secure);
        assert!(negotiation.received(&structured).is_err(), "not in the clear");

        let secured = || Negotiation::new("x", true);
        let said = [greeting(3), starts, structured.clone(), export(512, 1), end];
        assert!(talk(secured(), &said).is_ok());
        for answer in [
            reply(option::STARTTLS, option_reply::ERR_UNSUP, b"no"),
            reply(option::STARTTLS, option_reply::ERR_POLICY, &[]),
            reply(option::STARTTLS, option_reply::ACK, b"more"),
        ] {
            let failed = talk(secured(), &[greeting(3), answer]).unwrap_err().unwrap();
            assert!(matches!(failed, NegotiationError::NoTls { .. }), "{failed}");
        }
        // Somebody who answers as if nothing had been asked.
        let failed = talk(secured(), &[greeting(3), structured]).unwrap_err().unwrap();
        assert!(matches!(failed, NegotiationError::Protocol(_)), "{failed}");
    }

    #[test]
    fn or_not() {
        let structured = || reply(option::STRUCTURED_REPLY, option_reply::ACK, &[]);
        let fails = |said: &[Vec<u8>]| negotiate(said).unwrap_err().expect("an error");
        let http = b"HTTP/1.1 400 Bad Request".to_vec();
        assert!(matches!(fails(&[http]), NegotiationError::Greeting { .. }));
        assert_eq!(fails(&[greeting(0)]), NegotiationError::OldStyle);
        let tls = reply(option::STRUCTURED_REPLY, option_reply::ERR_TLS_REQD, &[]);
        assert_eq!(fails(&[greeting(3), tls]), NegotiationError::Tls);
        for (answer, expected) in [
            (reply(option::GO, option_reply::ERR_UNKNOWN, b"none\x1b[2J"), "no such export"),
            (reply(option::GO, option_reply::ERR_UNSUP, &[]), "NBD_OPT_GO"),
            (reply(option::GO, option_reply::ERR_POLICY, &[]), "refuses"),
            (reply(option::GO, option_reply::ACK, &[]), "without a size"),
            (reply(option::LIST, option_reply::ACK, &[]), "not asked"),
            (blocks(3, 4096), "power of 2"),
            (blocks(512, 4095), "less than one block"),
            (reply(option::GO, option_reply::INFO, &[0]), "wrong length"),
            ([&reply(option::GO, option_reply::ACK, &[])[..16], &[0xff; 4]].concat(), "too long"),
        ] {
            let error = fails(&[greeting(3), structured(), answer]).to_string();
            assert!(error.contains(expected) && !error.contains('\x1b'), "{error}");
        }
        let for_ever = vec![reply(option::GO, option_reply::INFO, b"\0\x01x"); 70];
        let error = fails(&[&[greeting(3), structured()], &for_ever[..]].concat());
        assert!(error.to_string().contains("without end"), "{error}");
    }
}
