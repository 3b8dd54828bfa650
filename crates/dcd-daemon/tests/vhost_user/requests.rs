//! What a guest may ask, and gets.

use std::os::fd::AsFd;

use dcd_daemon::frontend::vhost_user::block::kind;
use dcd_daemon::frontend::vhost_user::config::feature;
use dcd_daemon::frontend::vhost_user::message::{protocol_feature, request};
use dcd_engine::RequestError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::client::{
    FEATURES, FrontEnd, GUEST_START, Guest, MEMORY_BYTES, SLOT_BYTES, USER_START, pair, table,
};
use crate::disk::{Asked, DISK_BLOCKS, Disk, Running, volume};

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|byte| (byte as u8).wrapping_mul(7) ^ seed).collect()
}

#[test]
fn what_is_written_is_read_and_the_rest_is_as_said() {
    let server = Running::new();
    let mut guest = Guest::new(1);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    let config = front_end.config();
    assert_eq!(config[..8], DISK_BLOCKS.to_le_bytes());
    for (sector, len) in [(0, 512), (8, 4096), (100, SLOT_BYTES), (DISK_BLOCKS - 1, 512)] {
        let data = pattern(sector as u8, len);
        let written = guest.run(kind::OUT, sector, &data, 0);
        assert_eq!((written.status, written.len), (0, 1));
        let read = guest.run(kind::IN, sector, &[], len);
        assert_eq!((read.status, read.len as usize), (0, len + 1));
        assert_eq!(read.data, data);
    }
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
    let id = guest.run(kind::GET_ID, 0, &[], 20);
    assert_eq!((id.status, &id.data[..]), (0, &b"dcd-d1d1d1d1d1d1d1d1"[..]));
    // Zeroes and discards: start, blocks, flags.
    for (kind, flags) in [(kind::WRITE_ZEROES, 1u32), (kind::DISCARD, 0)] {
        let mut range = 8u64.to_le_bytes().to_vec();
        range.extend(8u32.to_le_bytes());
        range.extend(flags.to_le_bytes());
        guest.run(kind::OUT, 8, &pattern(1, 4096), 0);
        assert_eq!(guest.run(kind, 0, &range, 0).status, 0);
        assert_eq!(guest.run(kind::IN, 8, &[], 4096).data, vec![0; 4096]);
    }
    assert!(server.disk.asked().contains(&Asked::Zeroes(8, 8, false)));
    server.stop();
}

#[test]
fn what_cannot_be_is_answered_with_an_error_and_nothing_stops() {
    let server = Running::start(Disk::new(), volume());
    let mut guest = Guest::new(1);
    let _front_end = FrontEnd::set_up(server.path(), &guest);
    let range = |start: u64, blocks: u32, flags: u32| {
        let mut range = start.to_le_bytes().to_vec();
        range.extend(blocks.to_le_bytes());
        range.extend(flags.to_le_bytes());
        range
    };
    for (kind, sector, out, awaited, status) in [
        (kind::IN, DISK_BLOCKS, vec![], 512, 1),
        (kind::IN, u64::MAX, vec![], 512, 1),
        (kind::IN, 0, vec![], 100, 1),
        (kind::OUT, DISK_BLOCKS - 1, pattern(0, 1024), 0, 1),
        (kind::OUT, 0, pattern(0, 511), 0, 1),
        (kind::GET_ID, 0, vec![], 19, 1),
        (kind::DISCARD, 0, range(DISK_BLOCKS, 1, 0), 0, 1),
        (kind::DISCARD, 0, range(0, u32::MAX, 0), 0, 1),
        (kind::DISCARD, 0, range(0, 1, 1), 0, 2),
        (kind::WRITE_ZEROES, 0, range(0, 1, 2), 0, 2),
        (kind::WRITE_ZEROES, 0, pattern(0, 8), 0, 1),
        (kind::WRITE_ZEROES, 0, [range(0, 1, 0), range(1, 1, 0)].concat(), 0, 1),
        (77, 0, vec![], 0, 2),
    ] {
        let done = guest.run(kind, sector, &out, awaited);
        assert_eq!(done.status, status, "{kind} {sector} {out:?}");
        assert_eq!(done.data, vec![0; awaited], "nothing of this process is shown");
    }
    assert_eq!(server.disk.asked(), []);
    // Errors of the engine.
    server.disk.0.lock().unwrap().fails_with = Some(RequestError::NoSpace);
    assert_eq!(guest.run(kind::OUT, 0, &pattern(0, 512), 0).status, 1);
    assert_eq!(guest.run(kind::IN, 0, &[], 512).status, 1);
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 1);
}

#[test]
fn a_disk_of_large_blocks_and_no_writes_says_so() {
    let volume = dcd_daemon::frontend::vhost_user::Volume {
        logical_block_size: 4096,
        read_only: true,
        trim: true,
        blocks: 4092,
        ..volume()
    };
    let server = Running::start(Disk::new(), volume);
    let mut guest = Guest::new(1);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    let offered = front_end.get_number(request::GET_FEATURES);
    assert_eq!(offered & (feature::RO | feature::DISCARD), feature::RO);
    let config = front_end.config();
    assert_eq!(
        (&config[..8], &config[20..24]),
        (&4088u64.to_le_bytes()[..], &4096u32.to_le_bytes()[..])
    );
    assert_eq!(guest.run(kind::IN, 8, &[], 4096).status, 0);
    for (sector, len) in [(1, 4096), (0, 512), (4088, 4096)] {
        assert_eq!(guest.run(kind::IN, sector, &[], len).status, 1);
    }
}

#[test]
fn several_queues_are_served_at_a_time_and_each_is_stopped_when_it_is_empty() {
    let server = Running::new();
    let mut guest = Guest::new(2);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    for round in 0..50 {
        for queue in 0..2 {
            for place in 0..10u64 {
                let sector = (queue as u64 * 10 + place) * 8;
                guest.ask(queue, kind::OUT, sector, &pattern(round, 4096), 0);
            }
        }
        for queue in 0..2 {
            for _ in 0..10 {
                assert_eq!(guest.next(queue).status, 0);
            }
        }
    }
    // A queue with requests under way is stopped when they are done.
    server.disk.hold(true);
    for place in 0..5 {
        guest.ask(1, kind::OUT, place, &pattern(9, 512), 0);
    }
    server.disk.wait_until_held(5);
    front_end.send(request::GET_VRING_BASE, 0, &pair(1, 0), &[]);
    // The other one is served meanwhile.
    guest.ask(0, kind::FLUSH, 0, &[], 0);
    server.disk.wait_until_held(6);
    assert!(guest.poll(1).is_none());
    server.disk.hold(false);
    server.disk.release();
    let base = front_end.reply(request::GET_VRING_BASE).unwrap();
    assert_eq!(base, pair(1, 505));
    (0..5).for_each(|_| assert_eq!(guest.next(1).status, 0));
    assert_eq!(guest.next(0).status, 0);
    // What comes now waits until it is started again.
    guest.ask(1, kind::FLUSH, 0, &[], 0);
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
    assert!(guest.poll(1).is_none());
    front_end.start_queue(&guest, 1);
    assert_eq!(guest.next(1).status, 0);
    assert_eq!(front_end.stop_queue(1), 506);
}

#[test]
fn more_than_may_be_under_way_waits_in_the_ring() {
    let server = Running::new();
    let mut guest = Guest::new(2);
    let _front_end = FrontEnd::set_up(server.path(), &guest);
    server.disk.hold(true);
    for _ in 0..3 {
        for queue in 0..2 {
            for _ in 0..7 {
                guest.ask(queue, kind::IN, 0, &[], SLOT_BYTES);
            }
        }
    }
    server.disk.wait_until_held(42);
    server.disk.hold(false);
    server.disk.release();
    for queue in 0..2 {
        (0..21).for_each(|_| assert_eq!(guest.next(queue).status, 0));
    }
}

#[test]
fn a_second_front_end_is_refused_and_the_next_is_served() {
    let server = Running::new();
    let mut guest = Guest::new(1);
    let front_end = FrontEnd::set_up(server.path(), &guest);
    let mut second = FrontEnd::connect(server.path());
    second.send(request::GET_FEATURES, 0, &[], &[]);
    assert_eq!(second.reply(request::GET_FEATURES), None);
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
    drop(front_end);
    FrontEnd::connect_next(server.path());
}

#[test]
fn indices_go_over_their_end_with_events_and_without_and_on_record_or_not() {
    for features in
        [FEATURES, FEATURES & !feature::EVENT_IDX, FEATURES & !feature::PROTOCOL_FEATURES]
    {
        for has_record in [true, false] {
            let server = Running::new();
            let mut guest = Guest::new(1);
            guest.begin_at(0, u16::MAX - 20);
            let mut front_end = FrontEnd::connect(server.path());
            front_end.features = features;
            front_end.negotiate();
            assert!(!has_record || front_end.share_record(1));
            assert!(front_end.share_memory(&guest));
            front_end.start(&guest);
            for round in 0..3u8 {
                for place in 0..20 {
                    guest.ask(0, kind::OUT, place, &pattern(round, 512), 0);
                }
                (0..20).for_each(|_| assert_eq!(guest.next(0).status, 0));
                let base = front_end.stop_queue(0);
                assert_eq!(base as u16, (u16::MAX - 20).wrapping_add(20 * (u16::from(round) + 1)));
                front_end.start(&guest);
            }
            assert_eq!(guest.run(kind::IN, 19, &[], 512).data, pattern(2, 512));
        }
    }
}

/// As the driver of user-mode Linux begins: an answer to the message that agrees on answers, and a
/// table with room for regions that are not there.
#[test]
fn a_front_end_that_pads_its_structures_is_served() {
    let server = Running::new();
    let mut guest = Guest::new(1);
    let mut front_end = FrontEnd::connect(server.path());
    let protocol = front_end.get_number(request::GET_PROTOCOL_FEATURES);
    assert!(front_end.set(request::SET_PROTOCOL_FEATURES, &protocol.to_ne_bytes(), &[]));
    assert!(front_end.set(request::SET_FEATURES, &FEATURES.to_ne_bytes(), &[]));
    for room in [1, 31, 32, 7 * 32] {
        let mut padded = table(&[[GUEST_START, MEMORY_BYTES, USER_START, 0]]);
        padded.resize(40 + room, 0xee);
        assert!(front_end.set(request::SET_MEM_TABLE, &padded, &[guest.file.as_fd()]), "{room}");
    }
    front_end.start(&guest);
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
    // Who agrees on no answers gets none, and the next message is answered.
    drop(front_end);
    let mut other = FrontEnd::connect_next(server.path());
    let without = protocol & !protocol_feature::REPLY_ACK;
    other.send(request::SET_PROTOCOL_FEATURES, 8, &without.to_ne_bytes(), &[]);
    assert!(other.get_number(request::GET_FEATURES) & FEATURES != 0);
}

#[test]
fn a_pipe_is_rung_and_not_waited_for() {
    let server = Running::new();
    let mut guest = Guest::new(2);
    let mut front_end = FrontEnd::connect(server.path());
    // Each request is to be told of.
    front_end.features &= !feature::EVENT_IDX;
    front_end.negotiate();
    front_end.config();
    assert!(front_end.share_memory(&guest));
    front_end.start(&guest);
    let (bell, handle) = std::io::pipe().unwrap();
    let number = 1u64.to_ne_bytes();
    assert!(!front_end.set(request::SET_VRING_CALL, &number, &[bell.as_fd()]), "the wrong end");
    assert!(!front_end.set(request::SET_VRING_KICK, &number, &[bell.as_fd()]), "no kick");
    assert!(front_end.set(request::SET_VRING_CALL, &number, &[handle.as_fd()]));
    assert!(front_end.set(request::SET_VRING_ERR, &number, &[handle.as_fd()]));
    let heard = || {
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        let mut waited = [PollFd::new(&bell, PollFlags::IN)];
        assert_eq!(poll(&mut waited, Some(&patience)), Ok(1), "nobody has rung");
        let mut rung = [0; 8];
        assert_eq!(rustix::io::read(&bell, &mut rung), Ok(8));
        assert_eq!(u64::from_ne_bytes(rung), 1);
    };
    // What was done before it was there.
    heard();
    for _ in 0..3 {
        guest.ask(1, kind::FLUSH, 0, &[], 0);
        heard();
        assert_eq!(guest.poll(1).unwrap().status, 0);
    }
    // It is full, then closed: all queues are served.
    while rustix::io::write(&handle, &[0; 4096]).is_ok() {}
    let done = |guest: &mut Guest| {
        guest.ask(1, kind::FLUSH, 0, &[], 0);
        while guest.poll(1).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
    };
    done(&mut guest);
    drop(bell);
    done(&mut guest);
}
