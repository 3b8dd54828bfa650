//! Proves on the real program that kill -9 of the daemon loses no acknowledged write, flushed or
//! not, in each ack mode (C5); that it may be killed again during recovery and during detach (C17,
//! C31); and that SIGTERM ends in order, which the next start tells.

mod harness;

use harness::machine::{Crash, Crashes};
use harness::model::{Mix, Op, difference, settle};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Site, cycles, seed, until};
use rustix::process::Signal;

const MIX: Mix =
    Mix { volume: 8 << 20, sectors_max: 96, flush_every: 40, fua_every: 20, zero_every: 15 };
/// A small cache, so that the log wraps, destages and writes checkpoints all the time; hot blocks
/// are copied beneath it.
const FLAGS: &str = "--quiet --idle-max 20ms --idle-min 1ms --segment-buffers 4 --one-disk no";

fn site() -> Site {
    Site::with("5M", MIX.volume, "--segment-size 64k --read-area 2M")
}

/// Spins for a while: a random instant for the kill, not a wait for anything.
fn random_instant(random: &mut Random) {
    let until = std::time::Instant::now() + std::time::Duration::from_micros(random.below(1500));
    while std::time::Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Writes, kills at random points with up to three requests in flight, starts again, compares.
fn kills_lose_nothing(ack: &str, kills: u64, whole_group: bool, salt: u64) {
    let crashes = Crashes { under_load: kills, ..Crashes::default() };
    let checked = kills_beside(ack, kills, whole_group, salt, |_, _| ());
    crashes.tell(&format!("blocks, {ack}"), Crash::Kill, seed(), &checked);
}

/// The same with something else before each change.
fn kills_beside(
    ack: &str,
    kills: u64,
    whole_group: bool,
    salt: u64,
    mut beside: impl FnMut(&Site, &mut Random),
) -> String {
    let seed = seed() ^ salt;
    let mut random = Random::new(seed);
    let site = site();
    let flags = format!("{FLAGS} --ack {ack}");
    let mut volume = vec![0; MIX.volume as usize];
    let mut pending: Vec<Op> = Vec::new();
    let (mut from_memory, mut acked) = (0, 0);
    for kill in 0..kills {
        let daemon = site.serve(&flags);
        assert_eq!(daemon.told("uuid").map(str::len), Some(36));
        let records: u64 = daemon.told("from-memory").unwrap().parse().unwrap();
        from_memory += records;
        let mut client = Client::connect(&site.socket());
        let found = client.read_all().unwrap();
        volume = settle(&found, volume, &pending).unwrap_or_else(|e| {
            panic!("seed {seed}, {ack}, before kill {kill}: {e}\n{}", daemon.log())
        });
        pending.clear();
        for _ in 0..random.below(60) {
            beside(&site, &mut random);
            let op = MIX.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("seed {seed}, kill {kill}, {op:?}: {e:?}"));
            op.apply(&mut volume);
            acked += 1;
        }
        beside(&site, &mut random);
        for _ in 0..random.below(4) {
            let op = MIX.op_apart(&mut random, &pending);
            client.send_op(&op).unwrap();
            pending.push(op);
        }
        random_instant(&mut random);
        if whole_group {
            daemon.kill_group();
        } else {
            daemon.kill();
        }
    }
    // At the end the data-disk alone holds it all.
    let found = site.detach();
    settle(&found, volume, &pending)
        .unwrap_or_else(|e| panic!("seed {seed}, {ack}, after detach: {e}"));
    // Thirty a kill are drawn on average; of a few kills it may be fewer.
    let enough = if kills < 20 { 0 } else { kills * 10 };
    assert!(acked > enough, "the load was too small to prove anything");
    if ack == "memory" && !whole_group {
        assert!(from_memory > 0, "no kill hit an acknowledged write that was only in memory");
    }
    format!("{acked} acknowledged changes compared")
}

#[test]
fn memory_mode_keeps_acknowledged_writes_over_kill_9() {
    kills_lose_nothing("memory", cycles(200, 200), false, 1);
}

#[test]
fn memory_mode_keeps_acknowledged_writes_over_kill_9_of_the_group() {
    kills_lose_nothing("memory", cycles(60, 80), true, 2);
}

#[test]
fn log_mode_keeps_acknowledged_writes_over_kill_9() {
    kills_lose_nothing("log", cycles(40, 60), false, 3);
}

#[test]
fn durable_mode_keeps_acknowledged_writes_over_kill_9() {
    kills_lose_nothing("durable", cycles(40, 60), true, 4);
}

/// The mode is switched at any moment (C35 to C39): what went past the log is in the kernel.
#[test]
fn kills_amid_switches_of_the_mode_lose_nothing() {
    let (mut switches, kills) = (0, cycles(40, 60));
    let mut is_past = false;
    let past = ["write-through", "write-around", "pass-through"];
    let checked = kills_beside("memory", kills, false, 5, |site, random| {
        if random.below(8) == 0 {
            is_past = !is_past;
            let mode = if is_past { past[random.below(3) as usize] } else { "write-back" };
            site.dcd(&format!("set --control ctl --no-wait mode={mode}")).ok();
            switches += 1;
        }
    });
    let crashes = Crashes { under_load: kills, ..Crashes::default() };
    let checked = format!("{checked}, {switches} switches");
    crashes.tell("blocks, modes switched", Crash::Kill, seed(), &checked);
    assert!(switches >= kills);
}

/// A load that leaves much dirty. What the volume holds then.
fn dirty(site: &Site, flags: &str, random: &mut Random, ops: u64) -> Vec<u8> {
    let daemon = site.serve(flags);
    let mut client = Client::connect(&site.socket());
    let mut volume = client.read_all().unwrap();
    for _ in 0..ops {
        let op = MIX.op(random);
        client.do_op(&op).unwrap();
        op.apply(&mut volume);
    }
    daemon.kill();
    volume
}

const LAZY: &str = "--quiet --idle-max 1h --idle-min 1h --dirty-high 95 --dirty-low 95";

#[test]
fn a_recovery_that_is_killed_begins_again() {
    let mut random = Random::new(seed() ^ 5);
    let site = Site::new("32M", MIX.volume);
    for round in 0..cycles(6, 3) {
        let volume = dirty(&site, LAZY, &mut random, 200);
        let mut before_ready = 0;
        for _ in 0..10 {
            let daemon = site.start(LAZY);
            // It makes its socket just before it recovers; from there, a random instant.
            until("the daemon has begun", || site.path("sock").exists().then_some(()));
            let spins = random.below(4);
            for _ in 0..spins {
                random_instant(&mut random);
            }
            daemon.kill();
            before_ready += 1;
            let _ = std::fs::remove_file(site.path("sock"));
        }
        assert_eq!(before_ready, 10);
        let daemon = site.serve(LAZY);
        let found = Client::connect(&site.socket()).read_all().unwrap();
        assert_eq!(difference(&found, &volume), None, "round {round}\n{}", daemon.log());
        daemon.kill();
    }
}

#[test]
fn a_detach_that_is_killed_begins_again_or_is_served() {
    let seed = seed() ^ 6;
    let mut random = Random::new(seed);
    let site = Site::new("32M", MIX.volume);
    let mut interrupted = 0;
    for round in 0..cycles(8, 5) {
        let volume = dirty(&site, LAZY, &mut random, 150);
        let slow = "slow:d,read=100us,write=4ms";
        for _ in 0..3 {
            // A slow disk makes the detach long enough to be hit.
            let line = format!("detach --cache-disk c --data-disk {slow} --memory-directory .");
            let before = harness::random::sum_of_file(&site.path("d"));
            let mut detach = site.start_line(&line);
            let share = random.below(6);
            for _ in 0..1 + share {
                random_instant(&mut random);
            }
            if share > 2 {
                // ... until it has begun to move something.
                until("the detach moves data or ends", || {
                    let moved = harness::random::sum_of_file(&site.path("d")) != before;
                    (moved || !detach.is_alive()).then_some(())
                });
            }
            interrupted += u64::from(detach.is_alive());
            detach.kill();
        }
        if random.once_in(2) {
            let daemon = site.serve(LAZY);
            let found = Client::connect(&site.socket()).read_all().unwrap();
            let log = daemon.log();
            assert_eq!(difference(&found, &volume), None, "seed {seed}, round {round}\n{log}");
            daemon.kill();
        }
        assert_eq!(difference(&site.detach(), &volume), None, "seed {seed}, round {round}");
    }
    assert!(interrupted > 0, "no detach was hit");
}

#[test]
fn sigterm_ends_in_order_and_the_next_start_says_so() {
    let mut random = Random::new(seed() ^ 7);
    for ack in ["memory", "log", "durable"] {
        let site = site();
        let flags = format!("--quiet --ack {ack}");
        let daemon = site.serve(&flags);
        let mut client = Client::connect(&site.socket());
        let mut volume = vec![0; MIX.volume as usize];
        for _ in 0..100 {
            let op = MIX.op(&mut random);
            client.do_op(&op).unwrap();
            op.apply(&mut volume);
        }
        daemon.stop();
        // The memory is gone with it: everything is in the log.
        let left = std::fs::read_dir(site.path("")).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        let is_memory = |name: &&std::ffi::OsString| name.to_string_lossy().ends_with(".segments");
        assert_eq!(left.iter().find(is_memory), None, "{ack}");
        let daemon = site.serve(&flags);
        assert_eq!(site.status()["recovery"]["was_closed"], true, "{ack}");
        let found = Client::connect(&site.socket()).read_all().unwrap();
        assert_eq!(difference(&found, &volume), None, "{ack}");
        daemon.kill();
        let daemon = site.serve(&flags);
        assert_eq!(site.status()["recovery"]["was_closed"], false, "{ack}");
        // A second signal ends at once, like a crash.
        daemon.signal(Signal::TERM);
    }
}
