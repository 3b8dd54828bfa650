//! What clients of NBD may make the daemon hold, together: who begins great writes and does not go
//! on takes the room that all share, and stops nobody; who waits for room gets it in turn.

mod harness;

use std::time::Duration;

use harness::Site;
use harness::nbd::{Client, Failure};

const MIB: usize = 1 << 20;
const WRITE: u16 = 1;
/// So many writes of 7 MiB fit into the 256 MiB that all clients share.
const HOLDERS: usize = 36;
const HELD: usize = 7 * MIB;
const READ: usize = 4096;

/// Clients that have begun a write each, and hold its room.
fn holders(site: &Site) -> Vec<Client> {
    let begin = |_| {
        let mut client = Client::connect(&site.socket());
        client.send(WRITE, 0, 0, HELD, &[]).unwrap();
        client
    };
    (0..HOLDERS).map(begin).collect()
}

#[test]
fn who_holds_the_room_that_all_share_stops_nobody_and_gives_it_back() {
    let site = Site::new("16M", 64 << 20);
    let daemon = site.serve("--quiet");
    let mut holders = holders(&site);
    // A little is always there, for everyone, for as long as it takes.
    let mut modest = Client::connect(&site.socket());
    for round in 0..200 {
        modest.write(round * 4096, &[7; 4096]).unwrap();
    }
    // These want more than is left, one behind the other.
    let mut waiting: Vec<(Client, u64)> = Vec::new();
    for number in 0..3 {
        let mut client = Client::connect(&site.socket());
        let cookie = client.send(WRITE, 0, (number as u64) << 23, HELD, &[]).unwrap();
        waiting.push((client, cookie));
    }
    // They cannot have it: the answer does not come, though a part of the data is sent.
    waiting[0].0.patience(Duration::from_millis(300));
    assert!(matches!(waiting[0].0.reply(), Err(Failure::Gone(_))));
    modest.flush().unwrap();
    // Who sends many requests at once gets them all, a little at a time, from memory as well as
    // from the disk.
    for offset in (0..MIB as u64).step_by(READ) {
        modest.write(offset, &[5; READ]).unwrap();
    }
    modest.patience(Duration::from_secs(20));
    for offset in (0..2 * MIB as u64).step_by(READ) {
        modest.send_read(offset, READ).unwrap();
    }
    for _ in 0..2 * MIB / READ {
        modest.reply().unwrap().1.unwrap();
        modest.data(READ).unwrap();
    }
    // One goes, so one of them fits; then another.
    for (number, (client, cookie)) in waiting.iter_mut().enumerate() {
        drop(holders.pop());
        client.patience(Duration::from_secs(60));
        client.send_rest(&vec![number as u8 + 1; HELD]);
        assert_eq!(client.reply().unwrap(), (*cookie, Ok(())), "waiting {number}");
        modest.write(0, &[9; 4096]).unwrap();
    }
    drop(holders);
    for number in 0..3u8 {
        let found = modest.read(u64::from(number) << 23, HELD).unwrap();
        let first = if number == 0 { 4096 } else { 0 };
        assert!(found[first..].iter().all(|byte| *byte == number + 1), "write {number}");
    }
    daemon.stop();
}
