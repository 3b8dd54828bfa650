//! Requests under way when the server dies.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dcd_daemon::frontend::vhost_user::block::kind;
use dcd_daemon::frontend::vhost_user::message::request;
use dcd_daemon::serve::{ServeOptions, serve};
use dcd_engine::{RequestError, Uuid};

use crate::client::{FrontEnd, Guest};
use crate::disk::{Asked, Running, volume};
use crate::support;

#[test]
fn requests_under_way_are_sent_again_in_order_and_once() {
    let server = Running::new();
    let mut guest = Guest::new(2);
    let front_end = FrontEnd::set_up(server.path(), &guest);
    // Some are done, so that the record and the rings are somewhere in their middle.
    for place in 0..200u64 {
        assert_eq!(guest.run(kind::OUT, place, &[1; 512], 0).status, 0);
    }
    server.disk.asked();
    server.disk.hold(true);
    for place in 0..10u64 {
        guest.ask((place % 2) as usize, kind::OUT, place, &[place as u8; 512], 0);
        server.disk.wait_until_held(place as usize + 1);
    }
    // It dies with all of them; meanwhile the guest asks for more.
    server.leave();
    for place in 10..14u64 {
        guest.ask((place % 2) as usize, kind::OUT, place, &[place as u8; 512], 0);
    }
    let server = Running::new();
    server.disk.hold(true);
    let front_end = FrontEnd::go_on(server.path(), &guest, front_end);
    server.disk.wait_until_held(14);
    let asked = server.disk.asked();
    for queue in 0..2 {
        let of_queue =
            |asked: &&Asked| matches!(asked, Asked::Write(place, _) if place % 2 == queue);
        let places: Vec<Asked> = asked.iter().filter(of_queue).copied().collect();
        let expected: Vec<Asked> = (0..14)
            .filter(|place| place % 2 == queue)
            .map(|place| Asked::Write(place, false))
            .collect();
        assert_eq!(places, expected);
    }
    // It dies again, with some of them done.
    server.disk.hold(false);
    server.disk.release();
    for queue in 0..2 {
        (0..7).for_each(|_| assert_eq!(guest.next(queue).status, 0));
        assert_eq!(guest.outstanding(queue), 0);
    }
    server.disk.hold(true);
    guest.ask(0, kind::OUT, 50, &[5; 512], 0);
    server.disk.wait_until_held(1);
    server.leave();
    let server = Running::new();
    let _front_end = FrontEnd::go_on(server.path(), &guest, front_end);
    assert_eq!(guest.next(0).status, 0);
    assert_eq!(server.disk.asked(), [Asked::Write(50, false)]);
    assert_eq!(guest.run(kind::IN, 50, &[], 512).data, [5; 512]);
}

#[test]
fn a_front_end_that_goes_is_not_answered_and_the_next_waits_for_its_requests() {
    let server = Running::new();
    let mut guest = Guest::new(1);
    let front_end = FrontEnd::set_up(server.path(), &guest);
    server.disk.hold(true);
    guest.ask(0, kind::IN, 0, &[], 512);
    server.disk.wait_until_held(1);
    // The connection is lost, the server lives.
    let (_, inflight) = front_end.hang_up();
    let mut next = FrontEnd::connect(server.path());
    next.inflight = inflight;
    next.send(request::GET_FEATURES, 0, &[], &[]);
    server.disk.hold(false);
    server.disk.release();
    assert!(next.reply(request::GET_FEATURES).is_some());
    assert!(guest.poll(0).is_none(), "answered by whoever did not know the front-end");
    next.negotiate();
    assert!(next.share_record(1));
    assert!(next.share_memory(&guest));
    next.start(&guest);
    assert_eq!(guest.next(0).status, 0);
    assert_eq!(server.disk.asked(), [Asked::Read(0), Asked::Read(0)]);
}

#[test]
fn what_the_engine_refuses_because_it_ends_is_left_to_the_next_server() {
    let server = Running::new();
    let mut guest = Guest::new(1);
    let front_end = FrontEnd::set_up(server.path(), &guest);
    server.disk.0.lock().unwrap().fails_with = Some(RequestError::ShuttingDown);
    guest.ask(0, kind::OUT, 3, &[3; 512], 0);
    while server.disk.asked().is_empty() {
        std::thread::yield_now();
    }
    server.stop();
    assert!(guest.poll(0).is_none());
    let server = Running::new();
    let _front_end = FrontEnd::go_on(server.path(), &guest, front_end);
    assert_eq!(guest.next(0).status, 0);
    assert_eq!(server.disk.asked(), [Asked::Write(3, false)]);
}

#[test]
fn a_front_end_that_goes_on_is_told_to_look_at_the_size() {
    use std::io::Read;
    let server = Running::new();
    let mut guest = Guest::new(1);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    let before = front_end.config();
    server.leave();
    let larger = dcd_daemon::frontend::vhost_user::Volume { blocks: 1 << 20, ..volume() };
    let server = Running::start(crate::disk::Disk::new(), larger);
    let mut front_end = FrontEnd::go_on(server.path(), &guest, front_end);
    let mut news = [0; 12];
    front_end.channel.take().unwrap().read_exact(&mut news).unwrap();
    let expected = [request::BACKEND_CONFIG_CHANGE, 1, 0].map(u32::to_ne_bytes).concat();
    assert_eq!(news[..], expected);
    let after = front_end.config();
    assert_eq!(
        (&before[..8], &after[..8]),
        (&4096u64.to_le_bytes()[..], &(1u64 << 20).to_le_bytes()[..])
    );
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
}

#[test]
fn the_record_of_another_volume_is_refused() {
    let server = Running::new();
    let guest = Guest::new(1);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    let other = dcd_daemon::frontend::vhost_user::Volume { uuid: Uuid([1; 16]), ..volume() };
    let other = Running::start(crate::disk::Disk::new(), other);
    let mut moved = FrontEnd::connect(other.path());
    moved.inflight = front_end.inflight.take();
    moved.negotiate();
    assert!(!moved.share_record(1));
    drop(guest);
}

// The real daemon: this program once more.

/// Set for the child that is a daemon.
const CHILD: &str = "DCD_TEST_VHOST_USER_DIRECTORY";
const CACHE_BYTES: u64 = 16 << 20;
const DATA_BYTES: u64 = 32 << 20;

/// Not a test by itself: the daemon that is killed.
#[test]
fn child_daemon() {
    let Some(directory) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let options = ServeOptions {
        one_disk: Some(false),
        vhost_user: Some(directory.join("socket")),
        ..support::options(&directory)
    };
    serve(options, &mut |_| ()).unwrap();
}

fn start_daemon(directory: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "restart::child_daemon", "--nocapture"]).env(CHILD, directory);
    command.stdout(Stdio::null()).stdin(Stdio::null()).spawn().unwrap()
}

fn ask_to_end(daemon: &Child) {
    let pid = rustix::process::Pid::from_child(daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

fn wait_for_end(daemon: &mut Child) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while daemon.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < until, "the daemon does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn make_pair(directory: &Path) {
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).unwrap();
    support::make_disks(directory, *b"vhost-user-test.", CACHE_BYTES, DATA_BYTES);
}

#[test]
fn a_real_daemon_is_killed_or_ended_again_and_again_and_nothing_is_lost() {
    let name = format!("dcd-vhost-user-kill-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    make_pair(&directory);
    let socket = directory.join("socket");
    let cycles = std::env::var("DCD_CYCLES").ok().and_then(|cycles| cycles.parse().ok());
    let cycles = cycles.unwrap_or(5u64).min(200);
    let mut guest = Guest::new(2);
    let mut daemon = start_daemon(&directory);
    let mut front_end = FrontEnd::set_up(&socket, &guest);
    const PLACES: u64 = 64;
    // Each queue writes its own blocks: numbers that only go up. By place, what is there.
    let mut written = [[0u64; PLACES as usize]; 2];
    let mut number = 0u64;
    let mut done = 0;
    for cycle in 0..cycles {
        // As many as there is room for, one round after the other; then the daemon dies with the
        // last round.
        for round in 0..=cycle % 4 {
            let mut asked = Vec::new();
            for queue in 0..2 {
                for place in 0..20 {
                    number += 1;
                    let place = (number * 7 + place) % PLACES;
                    let sector = (queue as u64 * PLACES + place) * 8;
                    let bytes = number.to_le_bytes().repeat(512);
                    // One place once in a round: the order of two requests under way is nobody's
                    // promise.
                    if asked.iter().all(|(_, _, other, _)| *other != (queue, place)) {
                        let slot = guest.ask(queue, kind::OUT, sector, &bytes, 0);
                        asked.push((queue, slot, (queue, place), number));
                    }
                }
            }
            if round == cycle % 4 {
                match cycle % 2 {
                    0 => daemon.kill().unwrap(),
                    _ => ask_to_end(&daemon),
                }
                wait_for_end(&mut daemon);
                daemon = start_daemon(&directory);
                front_end = FrontEnd::go_on(&socket, &guest, front_end);
            }
            for queue in 0..2 {
                while guest.outstanding(queue) > 0 {
                    assert_eq!(guest.next(queue).status, 0);
                    done += 1;
                }
            }
            for (queue, _, (_, place), number) in asked {
                written[queue][place as usize] = number;
            }
        }
        for (queue, places) in written.iter().enumerate() {
            for (place, number) in places.iter().enumerate() {
                let sector = (queue as u64 * PLACES + place as u64) * 8;
                let read = guest.run(kind::IN, sector, &[], 4096);
                assert_eq!(read.status, 0);
                assert_eq!(
                    read.data,
                    number.to_le_bytes().repeat(512),
                    "queue {queue} place {place}"
                );
            }
        }
    }
    println!("{cycles} ends, every other by kill -9; {done} writes, each done once");
    drop(front_end);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let _ = std::fs::remove_dir_all(&directory);
}
