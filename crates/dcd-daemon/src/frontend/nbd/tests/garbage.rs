//! Hostile bytes: whatever comes, in whatever pieces, nothing panics, the limits hold, and the
//! engine is only asked for what lies within the export (the [`MemoryDisk`] asserts that).
//!
//! A failure prints its seed, or proptest shrinks it.

use proptest::prelude::*;

use super::*;
use crate::frontend::nbd::connection::{BYTES_IN_FLIGHT_MAX, REQUESTS_IN_FLIGHT_MAX};

const SIZE: u64 = 1 << 20;

/// A small generator (SplitMix64), so that a seed says everything.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Feeds `bytes` in random pieces to a new connection, answers late and in any order, sends in
/// random pieces, and checks the limits after each step. Returns what the server sent, and
/// whether it had enough.
fn throw(bytes: &[u8], random: &mut Random) -> (Vec<u8>, bool) {
    let export = export(SIZE);
    let mut disk = MemoryDisk::new(&export);
    let mut connection = Connection::new(export);
    let mut rest = bytes;
    let mut held = Vec::new();
    let mut closed = false;
    let mut sent = Vec::new();
    let mut idle = 0;
    loop {
        assert!(connection.requests_in_flight() <= REQUESTS_IN_FLIGHT_MAX);
        assert!(connection.bytes_in_flight() <= BYTES_IN_FLIGHT_MAX);
        idle += 1;
        match random.below(4) {
            0 | 1 if connection.wants_input() && !rest.is_empty() => {
                let space = connection.receive_space();
                assert!(!space.is_empty());
                let count = space.len().min(rest.len());
                let count = match random.below(3) {
                    0 => count,
                    1 => 1 + random.below(count.min(40)),
                    _ => 1 + random.below(count),
                }
                .min(count);
                space[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                // Answers may come while the receive is under way.
                if random.below(2) == 0 && !held.is_empty() {
                    let event = held.swap_remove(random.below(held.len()));
                    disk.answer(&mut connection, event);
                }
                connection.received(count);
                idle = 0;
            }
            2 => {
                while let Some(event) = connection.poll_event() {
                    match event {
                        Event::Closed(_) => closed = true,
                        other => held.push(other),
                    }
                }
                if !held.is_empty() {
                    let event = held.swap_remove(random.below(held.len()));
                    disk.answer(&mut connection, event);
                    idle = 0;
                }
            }
            _ => {
                let waiting: usize = connection.transmit().map(<[u8]>::len).sum();
                assert!(waiting < 66 << 20);
                if waiting > 0 {
                    let count = 1 + random.below(waiting);
                    sent.extend(connection.transmit().flatten().take(count));
                    connection.transmitted(count);
                    idle = 0;
                }
            }
        }
        if connection.is_finished() || (idle > 200 && rest.is_empty()) {
            break;
        }
        assert!(idle < 1000, "the connection is stuck");
    }
    // Unless the client left the rest of something out, nothing is left.
    assert!(held.is_empty());
    assert_eq!(connection.requests_in_flight(), 0);
    assert_eq!(closed, connection.is_finished());
    (sent, closed)
}

/// Reads all the server has sent to a client with structured replies. Returns the cookies that
/// were answered, each of which must be answered once.
fn answered(sent: &[u8]) -> std::collections::BTreeSet<u64> {
    let mut reader = Reader(sent);
    reader.take(18);
    while reader.0.starts_with(&OPTION_REPLY_MAGIC.to_be_bytes()) {
        reader.option_reply();
    }
    let mut cookies = std::collections::BTreeSet::new();
    while !reader.0.is_empty() {
        let simple = reader.0.starts_with(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        let cookie = if simple { reader.simple().0 } else { reader.chunk().0 };
        assert!(cookies.insert(cookie), "{cookie} is answered twice");
    }
    cookies
}

/// A conversation with something of everything, and how many requests it has.
fn conversation(random: &mut Random, structured: bool) -> (Vec<u8>, u64) {
    let mut bytes = client_flags(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
    let wanted = [info::NAME, info::DESCRIPTION];
    bytes.extend(option_bytes(option::LIST, &[]));
    bytes.extend(option_bytes(option::INFO, &info_payload(b"", &wanted)));
    bytes.extend(option_bytes(option::LIST_META_CONTEXT, &meta_payload(b"", &[b"base:"])));
    bytes.extend(start_bytes(structured).split_off(4));
    let count = 1 + random.below(60) as u64;
    for cookie in 0..count {
        let number = random.below(9) as u16;
        let flags = if random.below(3) == 0 { random.below(32) as u16 } else { 0 };
        let offset = random.next() % (SIZE / 512 + 2) * 512;
        let length = match random.below(20) {
            0 => 0xffff_fe00,
            1 => 512 << random.below(12),
            _ => random.below(20) * 512,
        } as u32;
        match number {
            command::WRITE if length <= 1 << 20 => {
                bytes.extend(write_request(flags, cookie, offset, &vec![7; length as usize]));
            }
            // A goodbye is rare, or nothing after it would be tried.
            command::DISC if random.below(20) > 0 => {
                bytes.extend(request(command::FLUSH, flags, cookie, 0, 0));
            }
            command::WRITE => bytes.extend(request(number, flags, cookie, offset, u32::MAX)),
            _ => bytes.extend(request(number, flags, cookie, offset, length)),
        }
    }
    (bytes, count)
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.below(8) {
        let place = random.below(bytes.len());
        // Headers matter more than data: half of the changes are made near the front.
        let place = if random.below(2) == 0 { place.min(random.below(300)) } else { place };
        match random.below(6) {
            0 => bytes[place] = random.next() as u8,
            1 => bytes[place] ^= 1 << random.below(8),
            2 => bytes[place] = 0xff,
            3 => drop(bytes.remove(place)),
            4 => bytes.insert(place, random.next() as u8),
            _ => bytes.truncate(place.max(1)),
        }
        if bytes.is_empty() {
            return;
        }
    }
}

#[test]
fn mutated_conversations() {
    for seed in 0..3000 {
        let mut random = Random(seed);
        let structured = random.below(2) == 0;
        let (mut bytes, count) = conversation(&mut random, structured);
        let intact = seed % 4 == 0;
        if !intact {
            mutate(&mut bytes, &mut random);
        }
        let result = std::panic::catch_unwind(move || {
            let (sent, closed) = throw(&bytes, &mut random);
            if intact && structured {
                let answered = answered(&sent);
                assert!(closed || answered.iter().copied().eq(0..count));
            }
        });
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
fn noise() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut bytes = match seed % 3 {
            0 => Vec::new(),
            1 => client_flags(FLAG_FIXED_NEWSTYLE),
            _ => start_bytes(seed % 2 == 0),
        };
        let length = random.below(5000);
        bytes.extend((0..length).map(|_| random.next() as u8));
        let result = std::panic::catch_unwind(move || throw(&bytes, &mut random));
        assert!(result.is_ok(), "seed {seed}");
    }
}

/// A piece of what a client may send, most of it nearly right.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (0u32..12, payload).prop_map(|(number, payload)| option_bytes(number, &payload)),
        (any::<u32>(), any::<u16>()).prop_map(|(length, count)| {
            let mut payload = length.to_be_bytes().to_vec();
            payload.extend(count.to_be_bytes());
            option_bytes(option::GO, &payload)
        }),
        Just(start_bytes(true).split_off(4)),
        Just(start_bytes(false).split_off(4)),
        (0u16..10, 0u16..64, any::<u64>(), any::<u32>())
            .prop_map(|(number, flags, offset, length)| request(number, flags, 1, offset, length)),
        (0u16..9, 0u16..3, 0..SIZE / 512 + 1, 0u32..200).prop_map(
            |(number, flags, block, blocks)| request(number, flags, 2, block * 512, blocks * 512)
        ),
        (0u16..2, 0..SIZE / 512, 0usize..200).prop_map(|(flags, block, blocks)| {
            write_request(flags, 3, block * 512, &vec![1; blocks * 512])
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pieces_in_any_order(pieces in prop::collection::vec(piece(), 0..20), seed: u64) {
        let mut bytes = client_flags(FLAG_FIXED_NEWSTYLE);
        bytes.extend(pieces.concat());
        throw(&bytes, &mut Random(seed));
    }
}
