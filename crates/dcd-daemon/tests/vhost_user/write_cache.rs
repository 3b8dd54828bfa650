//! Contract C7: a guest that does not flush has durable writes.

use dcd_daemon::frontend::vhost_user::block::kind;
use dcd_daemon::frontend::vhost_user::config::{WRITE_CACHE_AT, feature};
use dcd_daemon::frontend::vhost_user::message::request;

use crate::client::{FEATURES, FrontEnd, Guest};
use crate::disk::{Asked, Running};

fn is_fua(server: &Running, guest: &mut Guest) -> bool {
    server.disk.asked();
    assert_eq!(guest.run(kind::OUT, 0, &[1; 512], 0).status, 0);
    match server.disk.asked()[..] {
        [Asked::Write(0, fua)] => fua,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_guest_that_flushes_has_a_write_cache() {
    let server = Running::new();
    let mut guest = Guest::new(1);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    assert_eq!(front_end.config()[WRITE_CACHE_AT], 1);
    assert!(!is_fua(&server, &mut guest));
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
    assert_eq!(server.disk.asked(), [Asked::Flush]);
}

#[test]
fn a_guest_that_cannot_flush_has_none() {
    let server = Running::new();
    let mut guest = Guest::new(1);
    let mut front_end = FrontEnd::connect(server.path());
    front_end.features = FEATURES & !feature::FLUSH;
    front_end.negotiate();
    front_end.config();
    assert!(front_end.share_memory(&guest));
    front_end.start(&guest);
    assert!(is_fua(&server, &mut guest));
}

#[test]
fn switching_it_off_flushes_what_was_written_and_makes_writes_durable() {
    let server = Running::new();
    let mut guest = Guest::new(1);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    assert!(!is_fua(&server, &mut guest));
    server.disk.asked();
    // One is under way, which the flush must wait for.
    server.disk.hold(true);
    guest.ask(0, kind::OUT, 8, &[2; 512], 0);
    server.disk.wait_until_held(1);
    let mut payload = [32u32, 1, 0].map(u32::to_ne_bytes).concat();
    payload.push(0);
    front_end.send(request::SET_CONFIG, 8, &payload, &[]);
    server.disk.hold(false);
    server.disk.release();
    assert_eq!(front_end.reply(request::SET_CONFIG).unwrap(), [0; 8]);
    assert_eq!(guest.next(0).status, 0);
    assert_eq!(server.disk.asked(), [Asked::Write(8, false), Asked::Flush]);
    assert_eq!(front_end.config()[WRITE_CACHE_AT], 0);
    assert!(is_fua(&server, &mut guest));
    // And on again.
    assert!(front_end.set_write_cache(true));
    assert!(!is_fua(&server, &mut guest));
    assert_eq!(front_end.config()[WRITE_CACHE_AT], 1);
}

#[test]
fn zeroes_and_discards_are_durable_too() {
    let server = Running::new();
    let mut guest = Guest::new(1);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    assert!(front_end.set_write_cache(false));
    server.disk.asked();
    let mut range = 8u64.to_le_bytes().to_vec();
    range.extend(8u32.to_le_bytes());
    range.extend([0; 4]);
    for kind in [kind::WRITE_ZEROES, kind::DISCARD] {
        assert_eq!(guest.run(kind, 0, &range, 0).status, 0);
    }
    assert_eq!(server.disk.asked(), [Asked::Zeroes(8, 8, true); 2]);
}

#[test]
fn the_switch_outlives_the_server_the_guest_and_the_record() {
    for is_on in [true, false] {
        let server = Running::new();
        let mut guest = Guest::new(1);
        let mut front_end = FrontEnd::set_up(server.path(), &guest);
        assert!(front_end.set_write_cache(is_on));
        assert_eq!(is_fua(&server, &mut guest), !is_on);
        server.leave();
        // 1. A new server, with the record.
        let server = Running::new();
        let mut front_end = FrontEnd::go_on(server.path(), &guest, front_end);
        assert_eq!(is_fua(&server, &mut guest), !is_on);
        // 2. The guest is reset: the front-end throws the record away, and asks for a new one.
        front_end.stop_queue(0);
        front_end.inflight = None;
        assert!(front_end.share_record(1));
        front_end.start(&guest);
        assert_eq!(is_fua(&server, &mut guest), !is_on);
        server.leave();
        // 3. A new server, with that.
        let server = Running::new();
        let mut front_end = FrontEnd::go_on(server.path(), &guest, front_end);
        assert_eq!(is_fua(&server, &mut guest), !is_on);
        server.leave();
        // 4. A new server, and a record that was thrown away in between: nobody knows.
        let server = Running::new();
        front_end.inflight = None;
        let _front_end = FrontEnd::go_on(server.path(), &guest, front_end);
        assert!(is_fua(&server, &mut guest), "it may be off");
    }
}

#[test]
fn the_rest_of_the_configuration_is_not_to_be_written() {
    let server = Running::new();
    let mut front_end = FrontEnd::connect(server.path());
    front_end.negotiate();
    let config = front_end.config();
    let write = |front_end: &mut FrontEnd, offset: u32, bytes: &[u8]| {
        let mut payload = [offset, bytes.len() as u32, 0].map(u32::to_ne_bytes).concat();
        payload.extend(bytes);
        front_end.set(request::SET_CONFIG, &payload, &[])
    };
    // All of it with another write cache may be.
    let mut off = config.clone();
    off[WRITE_CACHE_AT] = 0;
    assert!(write(&mut front_end, 0, &off));
    assert_eq!(front_end.config(), off);
    let mut larger = config.clone();
    larger[0] ^= 1;
    assert!(!write(&mut front_end, 0, &larger));
    assert!(!write(&mut front_end, 0, &[0]) && !write(&mut front_end, 33, &[0]));
    assert!(!write(&mut front_end, u32::MAX, &[0]) && !write(&mut front_end, 0, &[]));
    assert_eq!(front_end.config(), off);
}
