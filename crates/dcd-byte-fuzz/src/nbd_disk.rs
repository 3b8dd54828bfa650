//! The client's side of NBD, as a network disk has it: whatever a server says, the negotiation ends
//! with facts that can be reckoned with, or with words that may be shown; no request is answered
//! twice, and a read that has ended well has each of its bytes from the server.
//!
//! The first byte: negotiation (odd), with TLS or without, or replies, which are a small program; in
//! which pieces they come, and whether they may be structured.

use dcd_protocol::nbd::negotiation::{Negotiation, Step};
use dcd_protocol::nbd::replies::{Asked, Asks, ReplyReader};
use dcd_protocol::nbd::wire::{SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};

use crate::input::Input;
use crate::text::assert_shown_safely;

/// Reads: so many, of so many bytes each, one behind the other.
const READS: u64 = 3;
const READ_BYTES: u32 = 600;
/// Then requests that want nothing but to be done.
const REQUESTS: u64 = 5;
/// Nothing that a server of this test sends has this byte.
const UNTOUCHED: u8 = 0xee;

pub(crate) fn run(input: &[u8]) {
    let mut program = Input(input);
    let how = program.u8();
    match how & 1 {
        1 => negotiate(program.0, how & 8 != 0),
        _ => replies(&mut program, how & 2 != 0, [usize::MAX, 1, 7, 33][usize::from(how >> 2 & 3)]),
    }
}

fn negotiate(mut said: &[u8], with_tls: bool) {
    let mut negotiation = Negotiation::new("an export", with_tls);
    loop {
        match negotiation.step() {
            Step::Send(bytes) => assert!(!bytes.is_empty() && bytes.len() < 100),
            // What follows would be encrypted; here it is as it comes.
            Step::Secure => negotiation.secured(),
            Step::Receive(count) => {
                assert!(count > 0 && count < 64 << 10, "a bounded answer");
                let Some((now, later)) = said.split_at_checked(count) else { return };
                said = later;
                if let Err(error) = negotiation.received(now) {
                    return assert_shown_safely(&error.to_string());
                }
            }
            Step::Agreed(facts) => {
                assert!(facts.minimum_block.is_power_of_two() && facts.minimum_block <= 64 << 10);
                let unit = facts.minimum_block.max(512);
                assert!(facts.maximum_payload >= unit && facts.maximum_payload % unit == 0);
                return;
            }
        }
    }
}

struct Requests {
    data: Vec<Vec<u8>>,
    ended: Vec<Option<Result<(), u32>>>,
}

impl Asks for Requests {
    fn asked(&self, cookie: u64) -> Option<Asked> {
        if cookie >= REQUESTS || self.ended[cookie as usize].is_some() {
            return None;
        }
        let offset = cookie * u64::from(READ_BYTES);
        let read = Asked::Data { offset, length: READ_BYTES };
        Some(if cookie < READS { read } else { Asked::Done })
    }

    fn data(&mut self, cookie: u64, at: usize, bytes: &[u8]) {
        let place = &mut self.data[cookie as usize][at..at + bytes.len()];
        assert!(place.iter().all(|byte| *byte == UNTOUCHED), "a byte came twice");
        place.copy_from_slice(bytes);
    }

    fn zeroes(&mut self, cookie: u64, at: usize, length: usize) {
        self.data(cookie, at, &vec![0; length]);
    }

    fn ended(&mut self, cookie: u64, result: Result<(), u32>) {
        let before = self.ended[cookie as usize].replace(result);
        assert!(before.is_none(), "answered twice");
        if cookie < READS && result.is_ok() {
            assert!(!self.data[cookie as usize].contains(&UNTOUCHED), "a hole of somebody else");
        }
        assert!(result != Err(0));
    }
}

fn replies(program: &mut Input<'_>, structured: bool, piece: usize) {
    let mut wire = Vec::new();
    while !program.is_empty() {
        let (what, cookie) = (program.u8(), u64::from(program.u8()));
        let head = |kind: u16, done: bool, length: usize| {
            let mut bytes = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
            bytes.extend(u16::from(done).to_be_bytes());
            bytes.extend(kind.to_be_bytes());
            bytes.extend(cookie.to_be_bytes());
            bytes.extend((length as u32).to_be_bytes());
            bytes
        };
        let done = what & 0x80 != 0;
        match what & 7 {
            0 => {
                let error = u32::from(program.u8() & 0x1c);
                wire.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
                wire.extend(error.to_be_bytes());
                wire.extend(cookie.to_be_bytes());
                if error == 0 && cookie < READS {
                    wire.extend(vec![0x11; READ_BYTES as usize]);
                }
            }
            kind @ (1 | 2) => {
                let (at, length) = (u64::from(program.u16()), usize::from(program.u16() % 700));
                let offset = (cookie * u64::from(READ_BYTES)).wrapping_add(at);
                if kind == 1 {
                    wire.extend(head(chunk::OFFSET_DATA, done, 8 + length));
                    wire.extend(offset.to_be_bytes());
                    wire.extend(vec![0x22; length]);
                } else {
                    wire.extend(head(chunk::OFFSET_HOLE, done, 12));
                    wire.extend(offset.to_be_bytes());
                    wire.extend((length as u32).to_be_bytes());
                }
            }
            3 => wire.extend(head(chunk::NONE, done, 0)),
            4 => {
                let length = usize::from(program.u8());
                wire.extend(head(chunk::ERROR, done, length));
                wire.extend(u32::from(program.u8()).to_be_bytes());
                wire.extend(vec![b'x'; length.saturating_sub(4)]);
            }
            _ => wire.push(program.u8() & 0x7f),
        }
    }
    let mut requests = Requests {
        data: vec![vec![UNTOUCHED; READ_BYTES as usize]; READS as usize],
        ended: vec![None; REQUESTS as usize],
    };
    let mut reader = ReplyReader::new(structured);
    for bytes in wire.chunks(piece.min(wire.len().max(1))) {
        if let Err(error) = reader.received(bytes, &mut requests) {
            return assert_shown_safely(&error.to_string());
        }
    }
}

/// Meaningful inputs.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut agreement = b"\x01NBDMAGICIHAVEOPT\0\x03".to_vec();
    let reply = |option: u8, kind: u8, payload: &[u8]| {
        let mut bytes = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
        bytes.extend([0, 0, 0, option, 0, 0, 0, kind, 0, 0, 0, payload.len() as u8]);
        bytes.extend(payload);
        bytes
    };
    agreement.extend(reply(8, 1, &[]));
    agreement.extend(reply(7, 3, &[0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 0, 16, 0, 0]));
    agreement.extend(reply(7, 3, &[0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 1, 13]));
    agreement.extend(reply(7, 1, &[]));
    let mut secured = agreement.clone();
    secured[0] |= 8;
    secured.splice(19..19, reply(5, 1, &[]));
    vec![
        agreement,
        b"\x01HTTP/1.1 400 Bad Request\r\n".to_vec(),
        // Simple replies, one of them an error.
        vec![4, 0, 3, 0, 0, 1, 0, 0, 4, 4],
        // A read in pieces, a hole in the middle, another one's end between them.
        vec![2, 1, 0, 0, 0, 200, 0, 0x83, 4, 0, 2, 0, 200, 0, 200, 0, 0x81, 0, 144, 1, 200, 0],
        // The same bytes twice; an error in the middle.
        vec![6, 1, 0, 0, 0, 200, 0, 1, 0, 100, 0, 200, 0],
        vec![10, 1, 1, 0, 0, 200, 0, 4, 1, 8, 5, 0x83, 1],
        secured,
    ]
}
