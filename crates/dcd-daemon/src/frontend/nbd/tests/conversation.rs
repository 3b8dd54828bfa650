//! Conversations, byte by byte as a client would see them: negotiation, each command, limits.

use super::*;
use crate::frontend::nbd::connection::{BYTES_IN_FLIGHT_MAX, REQUESTS_IN_FLIGHT_MAX};

const SIZE: u64 = 1 << 20;

/// Negotiates up to the options, takes the greeting.
fn greeted() -> Connection {
    let mut connection = Connection::new(export(SIZE));
    let greeting = drain(&mut connection);
    let mut reader = Reader(&greeting);
    assert_eq!(reader.u64(), GREETING_MAGIC);
    assert_eq!(reader.u64(), OPTION_MAGIC);
    assert_eq!(reader.u16(), FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
    assert!(reader.0.is_empty());
    feed(&mut connection, &client_flags(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));
    connection
}

/// Sends an option and returns the types of the replies.
fn replies(connection: &mut Connection, number: u32, payload: &[u8]) -> Vec<u32> {
    assert!(feed(connection, &option_bytes(number, payload)).is_empty());
    let bytes = drain(connection);
    let mut reader = Reader(&bytes);
    let mut types = Vec::new();
    while !reader.0.is_empty() {
        let (option, reply, _) = reader.option_reply();
        assert_eq!(option, number);
        types.push(reply);
    }
    types
}

fn closed_with(connection: &mut Connection) -> Option<ProtocolError> {
    assert!(!connection.wants_input());
    assert!(connection.receive_space().is_empty());
    let Some(Event::Closed(how)) = connection.poll_event() else { panic!("not closed") };
    drain(connection);
    assert!(connection.is_finished());
    how
}

#[test]
fn options_are_answered() {
    use option_reply::*;
    let mut connection = greeted();
    let c = &mut connection;
    assert_eq!(replies(c, option::LIST, &[]), [SERVER, ACK]);
    assert_eq!(replies(c, option::LIST, &[0]), [ERR_INVALID]);
    assert_eq!(replies(c, option::STARTTLS, &[]), [ERR_UNSUP]);
    assert_eq!(replies(c, 4, &[1; 16384]), [ERR_UNSUP]);
    assert_eq!(replies(c, 0xffff_ffff, &[]), [ERR_UNSUP]);

    // INFO, with too little, too much and a foreign name.
    let all = [info::EXPORT, info::NAME, info::DESCRIPTION, info::BLOCK_SIZE, 77, 77];
    let good = info_payload(b"", &all);
    assert_eq!(replies(c, option::INFO, &good), [INFO, INFO, INFO, INFO, ACK]);
    for length in 0..good.len() {
        assert_eq!(replies(c, option::INFO, &good[..length]), [ERR_INVALID], "{length}");
    }
    assert_eq!(replies(c, option::INFO, &[&good[..], &[0]].concat()), [ERR_INVALID]);
    assert_eq!(replies(c, option::GO, &info_payload(b"x", &[])), [ERR_UNKNOWN]);
    assert_eq!(replies(c, option::GO, &info_payload(&[b'x'; 4096], &[])), [ERR_UNKNOWN]);
    assert_eq!(replies(c, option::GO, &info_payload(&[b'x'; 4097], &[])), [ERR_INVALID]);
    assert_eq!(replies(c, option::GO, &[0xff; 6]), [ERR_INVALID]);

    // Metadata contexts.
    let (list, set) = (option::LIST_META_CONTEXT, option::SET_META_CONTEXT);
    let one = meta_payload(b"", &[b"base:allocation"]);
    let wildcard = meta_payload(b"", &[b"base:"]);
    assert_eq!(replies(c, set, &one), [ERR_INVALID], "structured replies come first");
    assert_eq!(replies(c, option::STRUCTURED_REPLY, &[1]), [ERR_INVALID]);
    assert_eq!(replies(c, option::STRUCTURED_REPLY, &[]), [ACK]);
    assert_eq!(replies(c, list, &meta_payload(b"", &[])), [META_CONTEXT, ACK]);
    assert_eq!(replies(c, list, &wildcard), [META_CONTEXT, ACK]);
    assert_eq!(replies(c, list, &meta_payload(b"", &[b"qemu:x"])), [ACK]);
    assert_eq!(replies(c, set, &wildcard), [ACK]);
    assert_eq!(replies(c, set, &meta_payload(b"", &[])), [ACK]);
    assert_eq!(
        replies(c, set, &meta_payload(b"", &[b"x:", b"base:allocation"])),
        [META_CONTEXT, ACK]
    );
    assert_eq!(replies(c, set, &meta_payload(b"x", &[b"base:allocation"])), [ERR_UNKNOWN]);
    assert_eq!(replies(c, set, &meta_payload(b"", &[&[][..]; 65])), [ERR_TOO_BIG]);
    assert_eq!(replies(c, set, &meta_payload(b"", &[&[][..]; 64])), [ACK]);
    for length in 0..one.len() {
        assert_eq!(replies(c, set, &one[..length]), [ERR_INVALID]);
    }
    assert_eq!(replies(c, set, &[&one[..], &[0]].concat()), [ERR_INVALID]);

    assert_eq!(replies(c, option::ABORT, b"whatever"), [ACK]);
    assert_eq!(closed_with(c), None);
}

#[test]
fn go_tells_size_flags_and_blocks() {
    let mut connection = greeted();
    feed(&mut connection, &option_bytes(option::GO, &info_payload(b"", &[])));
    let bytes = drain(&mut connection);
    let mut reader = Reader(&bytes);
    let (_, _, payload) = reader.option_reply();
    let mut fields = Reader(payload);
    assert_eq!((fields.u16(), fields.u64()), (info::EXPORT, SIZE));
    // HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, MULTI_CONN, CACHE, FAST_ZERO
    assert_eq!(fields.u16(), 0b1101_0110_1101);
    let (_, _, payload) = reader.option_reply();
    let mut fields = Reader(payload);
    assert_eq!(fields.u16(), info::BLOCK_SIZE);
    assert_eq!((fields.u32(), fields.u32(), fields.u32()), (512, 4096, 32 << 20));
    assert!(!connection.in_handshake());
}

#[test]
fn export_name_starts_with_and_without_padding() {
    for (flags, length) in [(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES, 10), (FLAG_FIXED_NEWSTYLE, 134)]
    {
        let read_only = Export { read_only: true, ..export(SIZE) };
        let mut connection = Connection::new(read_only);
        drain(&mut connection);
        feed(&mut connection, &client_flags(flags));
        feed(&mut connection, &option_bytes(option::EXPORT_NAME, b""));
        let bytes = drain(&mut connection);
        assert_eq!(bytes.len(), length);
        // HAS_FLAGS, READ_ONLY, FLUSH, FUA, MULTI_CONN, CACHE
        assert_eq!(bytes[8..10], 0b0101_0000_1111u16.to_be_bytes());
        assert!(!connection.in_handshake());
    }
    let mut connection = greeted();
    feed(&mut connection, &option_bytes(option::EXPORT_NAME, b"other"));
    assert_eq!(closed_with(&mut connection), Some(ProtocolError::UnknownExport));
}

#[test]
fn broken_negotiation_ends_the_connection() {
    let mut connection = Connection::new(export(SIZE));
    feed(&mut connection, &client_flags(1 << 2 | FLAG_FIXED_NEWSTYLE));
    let found = ProtocolError::ClientFlags { found: 5 };
    assert_eq!(closed_with(&mut connection), Some(found));

    let mut connection = Connection::new(export(SIZE));
    feed(&mut connection, &client_flags(0));
    assert_eq!(closed_with(&mut connection), Some(ProtocolError::NotFixedNewstyle));

    let mut connection = greeted();
    feed(&mut connection, &[7; 16]);
    let found = ProtocolError::OptionMagic { found: 0x0707_0707_0707_0707 };
    assert_eq!(closed_with(&mut connection), Some(found));

    // The header is enough to be cut; nobody waits for 16 KiB and a byte, or for 4 GiB.
    for length in [16385, u32::MAX] {
        let mut connection = greeted();
        let mut header = option_bytes(option::GO, &[]);
        header[12..].copy_from_slice(&length.to_be_bytes());
        feed(&mut connection, &header);
        let how = ProtocolError::OptionTooLong { option: option::GO, length };
        assert_eq!(closed_with(&mut connection), Some(how));
    }

    let mut connection = greeted();
    for _ in 0..1024 {
        assert_eq!(replies(&mut connection, 99, &[]), [option_reply::ERR_UNSUP]);
    }
    feed(&mut connection, &option_bytes(99, &[]));
    assert_eq!(closed_with(&mut connection), Some(ProtocolError::TooManyOptions));
}

#[test]
fn negotiation_without_reading_replies_stalls() {
    let mut export = export(SIZE);
    export.description = "é".repeat(100_000);
    let mut connection = Connection::new(export);
    feed(&mut connection, &client_flags(FLAG_FIXED_NEWSTYLE));
    let all = option_bytes(option::LIST, &[]).repeat(1000);
    assert!(feed(&mut connection, &all).is_empty(), "one staging memory holds it");
    let mut sent = 0;
    while !connection.wants_input() {
        let bytes = drain(&mut connection);
        assert!(bytes.len() < 512 << 10);
        sent += bytes.len();
    }
    sent += drain(&mut connection).len();
    assert!(connection.in_handshake() && sent > 1000 * 4096);
}

#[test]
fn simple_replies() {
    let mut connection = started(export(SIZE), false);
    let mut disk = MemoryDisk::new(&export(SIZE));
    let mut bytes = write_request(command_flag::FUA, 1, 4096, &[9; 1024]);
    bytes.extend(request(command::READ, 0, 2, 4608, 1024));
    bytes.extend(request(command::FLUSH, 0, 3, 0, 0));
    bytes.extend(request(command::WRITE_ZEROES, command_flag::NO_HOLE, 4, 4096, 512));
    bytes.extend(request(command::TRIM, 0, 5, 4096, 512));
    bytes.extend(request(command::CACHE, 0, 6, 4096, 4096));
    bytes.extend(request(command::READ, command_flag::DF, 7, 0, 512));
    bytes.extend(request(command::BLOCK_STATUS, 0, 8, 0, 512));
    bytes.extend(request(command::READ, 0, 9, 0, 0));
    bytes.extend(request(command::DISC, 0, 0, 0, 0));
    feed(&mut connection, &bytes);
    assert_eq!(connection.requests_in_flight(), 6);
    // The last four are answered at once.
    assert_eq!(disk.serve(&mut connection), Some(None));
    assert_eq!((disk.fua, disk.flushes), (1, 1));
    assert!(!connection.is_finished());
    let bytes = drain(&mut connection);
    let mut reader = Reader(&bytes);
    assert_eq!(reader.simple(), (7, 22));
    assert_eq!(reader.simple(), (8, 22));
    assert_eq!(reader.simple(), (9, 0));
    assert_eq!(reader.simple(), (1, 0));
    assert_eq!(reader.simple(), (2, 0));
    assert_eq!(reader.take(1024), [[9; 512], [0; 512]].concat());
    for cookie in 3..7 {
        assert_eq!(reader.simple(), (cookie, 0));
    }
    assert!(reader.0.is_empty() && connection.is_finished());
    assert_eq!(connection.bytes_in_flight(), 0);
}

#[test]
fn structured_replies() {
    let mut connection = started(export(SIZE), true);
    let mut disk = MemoryDisk::new(&export(SIZE));
    let mut bytes = write_request(0, 1, 1024, &[9; 1024]);
    bytes.extend(request(command::READ, command_flag::DF, 2, 1536, 1024));
    bytes.extend(request(command::BLOCK_STATUS, 0, 3, 0, 1 << 20));
    bytes.extend(request(command::BLOCK_STATUS, command_flag::REQ_ONE, 4, 512, 4096));
    bytes.extend(request(command::READ, 0, 5, 512, 0));
    bytes.extend(request(command::READ, 0, 6, SIZE, 512));
    bytes.extend(request(command::BLOCK_STATUS, 0, 7, 0, 0));
    feed(&mut connection, &bytes);
    assert_eq!(disk.serve(&mut connection), None);
    let bytes = drain(&mut connection);
    let mut reader = Reader(&bytes);
    assert_eq!(reader.chunk(), (5, chunk::NONE, &[][..]));
    assert_eq!(reader.chunk_error(), (6, 22));
    assert_eq!(reader.chunk_error(), (7, 22));
    assert_eq!(reader.simple(), (1, 0));
    let (cookie, kind, payload) = reader.chunk();
    assert_eq!((cookie, kind), (2, chunk::OFFSET_DATA));
    let mut payload = Reader(payload);
    assert_eq!(payload.u64(), 1536);
    assert_eq!(payload.0, [[9; 512], [0; 512]].concat());
    for expected in [&[(1024, 2), (1024, 0), (SIZE as u32 - 2048, 2)][..], &[(512, 2)][..]] {
        let (_, kind, payload) = reader.chunk();
        assert_eq!((kind, payload.len()), (chunk::BLOCK_STATUS, 4 + 8 * expected.len()));
        let mut payload = Reader(payload);
        assert_eq!(payload.u32(), CONTEXT_ID);
        for descriptor in expected {
            assert_eq!((payload.u32(), payload.u32()), *descriptor);
        }
    }
    assert!(reader.0.is_empty());
}

#[test]
fn block_status_never_says_more_than_was_asked() {
    let status = |pieces: &[(u64, bool)], flags| {
        let mut connection = started(export(1 << 40), true);
        feed(&mut connection, &request(command::BLOCK_STATUS, flags, 4, 0, 0xffff_fe00));
        let Some(Event::BlockStatus { handle, range, .. }) = connection.poll_event() else {
            panic!("no block status")
        };
        assert_eq!(range, LbaRange::new(0, 0x7f_ffff));
        connection.complete_block_status(handle, pieces);
        let bytes = drain(&mut connection);
        let (_, _, payload) = Reader(&bytes).chunk();
        let mut reader = Reader(&payload[4..]);
        let count = reader.0.len() / 8;
        (0..count).map(|_| (reader.u32(), reader.u32())).collect::<Vec<_>>()
    };
    assert_eq!(status(&[], 0), [(0xffff_fe00, 0)]);
    assert_eq!(status(&[(u64::MAX, true)], 0), [(0xffff_fe00, 2)]);
    assert_eq!(
        status(&[(0, true), (1, false), (u64::MAX, true), (1, false)], 0),
        [(512, 0), (0xffff_fc00, 2)]
    );
    assert_eq!(status(&[(3, true), (2, true), (1, false)], command_flag::REQ_ONE), [(2560, 2)]);
    let many: Vec<_> = (0..5000).map(|i| (1, i % 2 == 0)).collect();
    assert_eq!(status(&many, 0).len(), 1024);
}

#[test]
fn bad_requests_are_told_why() {
    use command::*;
    let size = SIZE;
    for (number, flags, offset, length, error) in [
        (READ, 0, 1, 512, 22),
        (READ, 0, 0, 511, 22),
        (READ, 0, size, 512, 22),
        (READ, 0, size - 512, 1024, 22),
        (READ, 0, u64::MAX - 511, 512, 22),
        (READ, 0, u64::MAX - 511, 0xffff_fe00, 22),
        (READ, 0, 0, (32 << 20) + 512, 22),
        (READ, command_flag::NO_HOLE, 0, 512, 22),
        (FLUSH, 0, 0, 512, 22),
        (FLUSH, command_flag::DF, 0, 0, 22),
        (TRIM, 0, 0, 0xffff_fe00, 22),
        (TRIM, 0, 0, 0xffff_ffff, 22),
        (CACHE, 0, size, 512, 22),
        (WRITE_ZEROES, 0, 512, size as u32, 28),
        (WRITE_ZEROES, 0, 511, 512, 22),
        (WRITE_ZEROES, command_flag::DF, 0, 512, 22),
        (BLOCK_STATUS, 0, 0, 0xffff_fe00, 22),
        (8, 0, 0, 512, 22),
        (0xffff, 0xffff, u64::MAX, u32::MAX, 22),
    ] {
        let mut connection = started(export(size), true);
        feed(&mut connection, &request(number, flags, 0x0102, offset, length));
        assert!(connection.poll_event().is_none());
        let bytes = drain(&mut connection);
        let found = Reader(&bytes).chunk_error();
        assert_eq!(found, (0x0102, error), "{number} {flags} {offset} {length}");
    }
}

#[test]
fn data_of_a_bad_write_is_dropped() {
    let mut long = export(128 << 20);
    long.minimum_block = 4096;
    let mut connection = started(long.clone(), false);
    let mut disk = MemoryDisk::new(&long);
    for (cookie, offset, length, error) in [
        (1, 512, 4096, 22),
        (2, 4096, 512, 22),
        (3, 128 << 20, 4096, 28),
        (4, 0, (32 << 20) + 4096, 22),
        (5, 0, 64 << 20, 22),
        (6, 0, 4096, 0),
    ] {
        let data = vec![cookie as u8; length];
        let bytes = write_request(0, cookie, offset, &data);
        assert!(feed(&mut connection, &bytes).is_empty());
        disk.serve(&mut connection);
        assert_eq!(Reader(&drain(&mut connection)).simple(), (cookie, error));
    }
    feed(&mut connection, &request(command::WRITE, 0, 7, 0, (64 << 20) + 1));
    let how = ProtocolError::WriteTooLong { length: (64 << 20) + 1 };
    assert_eq!(closed_with(&mut connection), Some(how));
}

#[test]
fn read_only_and_trim_are_enforced() {
    let read_only = Export { read_only: true, ..export(SIZE) };
    let mut connection = started(read_only, false);
    let mut bytes = write_request(0, 1, 0, &[1; 512]);
    bytes.extend(request(command::TRIM, 0, 2, 0, 512));
    bytes.extend(request(command::WRITE_ZEROES, 0, 3, 0, 512));
    bytes.extend(request(command::WRITE, 0, 4, 0, 0));
    feed(&mut connection, &bytes);
    assert!(connection.poll_event().is_none());
    let bytes = drain(&mut connection);
    let mut reader = Reader(&bytes);
    for cookie in 1..=4 {
        assert_eq!(reader.simple(), (cookie, 1));
    }

    let mut connection = started(Export { trim: false, ..export(SIZE) }, false);
    feed(&mut connection, &request(command::TRIM, 0, 2, 0, 512));
    assert_eq!(Reader(&drain(&mut connection)).simple(), (2, 22));
}

#[test]
fn errors_of_the_engine_reach_the_client() {
    for structured in [false, true] {
        for (error, code) in REQUEST_ERRORS {
            let mut connection = started(export(SIZE), structured);
            let mut bytes = request(command::READ, 0, 1, 0, 4096);
            bytes.extend(write_request(0, 2, 0, &[1; 4096]));
            bytes.extend(request(command::FLUSH, 0, 3, 0, 0));
            feed(&mut connection, &bytes);
            for _ in 0..3 {
                let Some(Event::Request { handle, .. }) = connection.poll_event() else {
                    panic!("a request is missing")
                };
                connection.complete(handle, Err(error), None);
            }
            let bytes = drain(&mut connection);
            let mut reader = Reader(&bytes);
            for cookie in 1..=3 {
                let found = if structured { reader.chunk_error() } else { reader.simple() };
                assert_eq!(found, (cookie, code as u32));
            }
            assert!(reader.0.is_empty());
            assert_eq!(connection.bytes_in_flight(), 0);
        }
    }
}

#[test]
fn a_read_without_its_data_fails() {
    for buffer in [None, Some(Buffer::zeroed(512)), Some(Buffer::zeroed(8192))] {
        let mut connection = started(export(SIZE), false);
        feed(&mut connection, &request(command::READ, 0, 1, 0, 4096));
        let Some(Event::Request { handle, .. }) = connection.poll_event() else { panic!() };
        connection.complete(handle, Ok(()), buffer);
        assert_eq!(Reader(&drain(&mut connection)).simple(), (1, 5));
    }
}

#[test]
fn requests_in_flight_are_limited() {
    let mut connection = started(export(SIZE), false);
    let mut disk = MemoryDisk::new(&export(SIZE));
    let all = request(command::READ, 0, 1, 0, 512).repeat(20_000);
    let mut rest = feed(&mut connection, &all);
    let mut replies = 0;
    while !rest.is_empty() || connection.requests_in_flight() > 0 {
        assert!(connection.requests_in_flight() <= REQUESTS_IN_FLIGHT_MAX);
        // One answer makes room for one request.
        let event = connection.poll_event().unwrap();
        disk.answer(&mut connection, event);
        rest = feed(&mut connection, rest);
        replies += drain(&mut connection).len() / (16 + 512);
    }
    assert_eq!(replies, 20_000);
}

#[test]
fn bytes_in_flight_are_limited() {
    let big = export(1 << 30);
    let mut connection = started(big.clone(), false);
    let all = request(command::READ, 0, 1, 0, 24 << 20).repeat(4);
    feed(&mut connection, &all);
    assert_eq!(connection.requests_in_flight(), 2);
    assert!(!connection.wants_input() && connection.bytes_in_flight() <= BYTES_IN_FLIGHT_MAX);
    let Some(Event::Request { handle, .. }) = connection.poll_event() else { panic!() };
    connection.complete(handle, Ok(()), Some(Buffer::zeroed(24 << 20)));
    assert_eq!(connection.requests_in_flight(), 1, "the reply counts until it is sent");
    connection.transmitted((24 << 20) + 15);
    assert_eq!(connection.requests_in_flight(), 1);
    connection.transmitted(1);
    assert_eq!(connection.requests_in_flight(), 2);
}

#[test]
fn replies_that_nobody_reads_stall() {
    let mut connection = started(export(SIZE), true);
    let all = request(command::READ, 0, 1, 1, 1).repeat(100_000);
    let mut rest = feed(&mut connection, &all);
    assert!(rest.len() > all.len() / 2 && !connection.wants_input());
    let mut replies = 0;
    loop {
        let bytes = drain(&mut connection);
        assert!(bytes.len() < 512 << 10);
        let mut reader = Reader(&bytes);
        while !reader.0.is_empty() {
            assert_eq!(reader.chunk_error(), (1, 22));
            replies += 1;
        }
        if rest.is_empty() && connection.wants_input() && bytes.is_empty() {
            break;
        }
        rest = feed(&mut connection, rest);
    }
    assert_eq!(replies, 100_000);
}

#[test]
fn long_writes_go_straight_to_their_buffer() {
    for length in [512, 32 << 10, 64 << 10, (64 << 10) + 512, 300 << 10, 3 << 20, 32 << 20] {
        let big = export(64 << 20);
        let mut connection = started(big.clone(), false);
        let mut disk = MemoryDisk::new(&big);
        let data: Vec<u8> = (0..length).map(|i| (i * 7 + i / 512) as u8).collect();
        let mut bytes = write_request(0, 1, 512, &data);
        bytes.extend(write_request(0, 2, 0, &[5; 512]));
        bytes.extend(request(command::READ, 0, 3, 512, length as u32));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // Odd amounts, so that every boundary is crossed somewhere.
            let (now, later) = rest.split_at(rest.len().min(77_777));
            assert!(feed(&mut connection, now).is_empty());
            rest = later;
            disk.serve(&mut connection);
        }
        let bytes = drain(&mut connection);
        let mut reader = Reader(&bytes);
        assert_eq!(reader.simple(), (1, 0));
        assert_eq!(reader.simple(), (2, 0));
        assert_eq!(reader.simple(), (3, 0));
        assert!(reader.0 == data);
        assert_eq!(connection.bytes_in_flight(), 0);
    }
}

/// So that none of its data is received behind the header, and copied from there.
#[test]
fn behind_a_long_write_the_next_header_is_received_alone() {
    let big = export(64 << 20);
    let mut connection = started(big.clone(), false);
    let mut disk = MemoryDisk::new(&big);
    let long = write_request(0, 1, 0, &[7; 128 << 10]);
    let short = write_request(0, 2, 0, &[8; 4096]);
    feed(&mut connection, &long);
    let header = request(command::WRITE, 0, 0, 0, 0).len();
    assert_eq!(connection.receive_space().len(), header);
    connection.receive_space()[..10].copy_from_slice(&long[..10]);
    connection.received(10);
    assert_eq!(connection.receive_space().len(), header - 10, "the rest of it");
    feed(&mut connection, &long[10..header]);
    assert!(connection.receive_space().len() >= 64 << 10, "straight into its buffer");
    feed(&mut connection, &long[header..]);
    feed(&mut connection, &short[..header]);
    assert!(connection.receive_space().len() > 4096, "more may follow at once");
    feed(&mut connection, &short[header..]);
    // What nobody wants is not received in little pieces.
    feed(&mut connection, &write_request(0, 3, 1 << 40, &[9; 128 << 10])[..header]);
    assert!(connection.receive_space().len() > 4096);
    disk.serve(&mut connection);
    assert!(disk.bytes[4096..128 << 10].iter().all(|byte| *byte == 7));
}

#[test]
fn memory_under_way_stays_in_place() {
    for length in [4096usize, 512 << 10] {
        let mut connection = started(export(SIZE), false);
        let mut disk = MemoryDisk::new(&export(SIZE));
        let reads: Vec<u8> = (0..32).flat_map(|i| request(command::READ, 0, i, 0, 4096)).collect();
        feed(&mut connection, &reads);
        feed(&mut connection, &request(command::WRITE, 0, 99, 0, length as u32));
        feed(&mut connection, &[3; 100]);

        // While the kernel receives and sends, everything else goes on.
        let first = connection.poll_event().unwrap();
        disk.answer(&mut connection, first);
        let space = connection.receive_space();
        let space_place = (space.as_ptr(), space.len());
        let sent: Vec<(*const u8, usize)> =
            connection.transmit().map(|slice| (slice.as_ptr(), slice.len())).collect();
        let sent_length: usize = sent.iter().map(|slice| slice.1).sum();
        disk.serve(&mut connection);
        connection.transmitted(sent_length);
        drain(&mut connection);
        let again = connection.receive_space();
        assert_eq!(space_place, (again.as_ptr(), again.len()));
        let count = again.len().min(length - 100);
        again[..count].fill(3);
        connection.received(count);
        feed(&mut connection, &vec![3; length - 100 - count]);
        disk.serve(&mut connection);
        assert_eq!(Reader(&drain(&mut connection)).simple(), (99, 0));
        assert!(disk.bytes[..length].iter().all(|byte| *byte == 3));
    }
}

#[test]
fn a_client_that_promises_data_costs_little_before_it_comes() {
    let mut connection = started(export(1 << 30), false);
    feed(&mut connection, &request(command::WRITE, 0, 1, 0, 32 << 20));
    assert_eq!(connection.receive_space().len(), 64 << 10);
}

#[test]
fn a_hint_that_is_too_long_is_not_followed() {
    let mut connection = started(export(1 << 40), false);
    let mut bytes = request(command::CACHE, 0, 1, 0, 0xffff_fe00);
    bytes.extend(request(command::CACHE, 0, 2, 0, 32 << 20));
    bytes.extend(request(command::TRIM, 0, 3, 512, 0xffff_fe00));
    feed(&mut connection, &bytes);
    assert_eq!(Reader(&drain(&mut connection)).simple(), (1, 0));
    let Some(Event::Request { handle, operation: Operation::Read { range, .. }, .. }) =
        connection.poll_event()
    else {
        panic!("no read")
    };
    assert_eq!(range, LbaRange::new(0, 1 << 16));
    connection.complete(handle, Ok(()), None);
    assert_eq!(Reader(&drain(&mut connection)).simple(), (2, 0));
    let Some(Event::Request { operation: Operation::Discard { range }, .. }) =
        connection.poll_event()
    else {
        panic!("no discard")
    };
    assert_eq!(range, LbaRange::new(1, 0x7f_ffff));
}

#[test]
fn goodbye_waits_for_requests_in_flight() {
    let mut connection = started(export(SIZE), false);
    let mut bytes = write_request(0, 1, 0, &[1; 512]);
    bytes.extend(request(command::DISC, 0, 0, 0, 0));
    bytes.extend([0xff; 100]);
    feed(&mut connection, &bytes);
    let write = connection.poll_event().unwrap();
    assert!(matches!(connection.poll_event(), Some(Event::Closed(None))));
    assert!(!connection.is_finished() && !connection.wants_input());
    MemoryDisk::new(&export(SIZE)).answer(&mut connection, write);
    assert!(!connection.is_finished());
    assert_eq!(Reader(&drain(&mut connection)).simple(), (1, 0));
    assert!(connection.is_finished());
}

#[test]
fn the_driver_can_stop_it_in_the_middle_of_a_write() {
    let mut connection = started(export(SIZE), false);
    feed(&mut connection, &request(command::WRITE, 0, 1, 0, 512 << 10));
    connection.receive_space();
    connection.stop_receiving();
    assert!(connection.is_finished());
    connection.received(100);
    assert!(connection.is_finished() && connection.receive_space().is_empty());
}

#[test]
fn exports_are_made_presentable() {
    let odd = Export { size_bytes: 10_000, minimum_block: 4096, preferred_block: 0, ..export(0) };
    let mut connection = Connection::new(Export { maximum_payload: u32::MAX, ..odd });
    drain(&mut connection);
    feed(&mut connection, &start_bytes(false));
    let bytes = drain(&mut connection);
    let mut reader = Reader(&bytes);
    let mut fields = Reader(reader.option_reply().2);
    assert_eq!((fields.u16(), fields.u64()), (info::EXPORT, 8192));
    let mut fields = Reader(reader.option_reply().2);
    assert_eq!(fields.u16(), info::BLOCK_SIZE);
    assert_eq!((fields.u32(), fields.u32(), fields.u32()), (4096, 4096, 32 << 20));
}
