//! The NBD negotiation, with a parser of its own on the client's side: every option that came
//! whole is answered, in order, by replies that parse, the last of which ends it.
//!
//! The first byte: whether valid client flags come first (1), and in which pieces the bytes come.

use dcd_daemon::frontend::nbd::protocol::{
    EXPORT_NAME_PADDING, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_MAGIC, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, option, option_reply,
};
use dcd_daemon::frontend::nbd::{Connection, Event, Export};

use crate::input::Input;

/// Longest option that a server should take before it cuts the connection.
const OPTION_LENGTH_MAX: usize = 16 << 10;

pub(crate) fn run(input: &[u8]) {
    let mut program = Input(input);
    let how = program.u8();
    let mut wire = Vec::new();
    if how & 1 != 0 {
        wire.extend(u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    }
    wire.extend_from_slice(program.0);
    let piece = [usize::MAX, 1, 7, 100][usize::from(how >> 1 & 3)];

    let mut connection = Connection::new(Export {
        size_bytes: 1 << 20,
        minimum_block: 512,
        preferred_block: 4096,
        maximum_payload: 1 << 20,
        read_only: how & 8 != 0,
        trim: how & 16 != 0,
        description: if how & 32 != 0 { "ä".repeat(5000) } else { "a disk".to_owned() },
    });
    let mut sent = Vec::new();
    let mut rest = &wire[..];
    // Bytes behind the start of the transmission are for the other target.
    while !rest.is_empty() && connection.in_handshake() {
        take_sent(&mut connection, &mut sent);
        if !connection.wants_input() {
            break;
        }
        let space = connection.receive_space();
        let count = space.len().min(rest.len()).min(piece);
        space[..count].copy_from_slice(&rest[..count]);
        connection.received(count);
        rest = &rest[count..];
    }
    // What had come and waited for room is answered, too.
    take_sent(&mut connection, &mut sent);
    let started = !connection.in_handshake();
    let mut closed = None;
    while let Some(event) = connection.poll_event() {
        match event {
            Event::Closed(how) => closed = Some(how),
            // Of requests that came in the same piece as the start.
            Event::Request { .. } | Event::BlockStatus { .. } => assert!(started),
        }
    }
    take_sent(&mut connection, &mut sent);
    check(&sent, &wire, started, closed.is_some());
}

fn take_sent(connection: &mut Connection, sent: &mut Vec<u8>) {
    // With room for them, more of what has come is answered.
    loop {
        let before = sent.len();
        connection.transmit().for_each(|slice| sent.extend_from_slice(slice));
        if sent.len() == before {
            return;
        }
        connection.transmitted(sent.len() - before);
    }
}

/// What is left of one side's bytes.
struct Wire<'a>(&'a [u8]);

impl<'a> Wire<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }
    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// The next option of the client, if it is whole and no reason to cut the connection.
fn next_option<'a>(client: &mut Wire<'a>) -> Option<(u32, &'a [u8])> {
    if client.u64()? != OPTION_MAGIC {
        return None;
    }
    let (number, length) = (client.u32()?, client.u32()? as usize);
    if length > OPTION_LENGTH_MAX {
        return None;
    }
    Some((number, client.take(length)?))
}

fn check(sent: &[u8], client: &[u8], started: bool, closed: bool) {
    let (mut server, mut client) = (Wire(sent), Wire(client));
    assert_eq!(server.u64(), Some(GREETING_MAGIC));
    assert_eq!(server.u64(), Some(OPTION_MAGIC));
    assert_eq!(server.u16(), Some(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));
    let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
    let Some(flags) = client.u32() else { return assert!(server.0.is_empty()) };
    if flags & !known != 0 || flags & u32::from(FLAG_FIXED_NEWSTYLE) == 0 {
        assert!(server.0.is_empty() && closed);
        return;
    }
    while !server.0.is_empty() {
        let (number, payload) = next_option(&mut client).expect("nothing is answered unasked");
        if number == option::EXPORT_NAME {
            assert!(payload.is_empty() && started);
            let padding =
                if flags & u32::from(FLAG_NO_ZEROES) == 0 { EXPORT_NAME_PADDING } else { 0 };
            assert!(server.take(10 + padding).is_some());
            return;
        }
        let last = loop {
            assert_eq!(server.u64(), Some(OPTION_REPLY_MAGIC));
            assert_eq!(server.u32(), Some(number), "answers come in the order of the options");
            let (kind, length) = (server.u32().expect("a type"), server.u32().expect("a length"));
            let data = server.take(length as usize).expect("as long as it says");
            match kind {
                option_reply::SERVER | option_reply::INFO | option_reply::META_CONTEXT => {
                    assert!(!data.is_empty() && data.len() <= 4096 + 4);
                }
                option_reply::ACK => {
                    assert!(data.is_empty());
                    break kind;
                }
                _ => {
                    assert!(kind & 1 << 31 != 0, "type {kind}");
                    // Fixed words, nothing of what the client sent.
                    assert!(data.len() < 100 && data.is_ascii());
                    break kind;
                }
            }
        };
        if number == option::GO && last == option_reply::ACK {
            // What follows are answers to requests.
            return assert!(started);
        }
        if number == option::ABORT {
            return assert!(closed && server.0.is_empty());
        }
    }
    let all_answered = next_option(&mut client).is_none_or(|(number, _)| {
        // This one cannot be refused but by going away; and there is a limit to options.
        number == option::EXPORT_NAME || closed
    });
    assert!(all_answered, "an option was not answered");
    assert!(!started);
}
