//! Proves on the real program that all frontends and connections together are one disk: several NBD
//! connections and users of the FUSE file change, read and flush overlapping ranges at once, and
//! for every sector there is an order that explains all they saw (C1, C8, C16, C33), also across
//! kill -9 (C4: nothing acknowledged is lost) and power cuts (C2, C3, C9, C14: what is left is a
//! prefix that covers all that was flushed, and no change is there in part).
//!
//! `history.rs`: what was seen. `register.rs`: the judge of one sector. `crash_state.rs`: of the
//! volume after a crash. `clients.rs`: the load. `judge_tests.rs`: the judge finds what is wrong.
//! Threads make the load, so a seed repeats the requests but not their moments; a failure
//! prints all requests on the sector.

#[path = "../harness/mod.rs"]
mod harness;

mod clients;
mod crash_state;
mod history;
mod judge_tests;
mod register;

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clients::{FuseClient, Notes, SECTORS, Shared, nbd_client};
use crash_state::{End, judge_stretch};
use harness::machine::{Crash, Machine, random_instant};
use harness::nbd::Client;
use harness::random::Random;
use harness::{cycles, seed, until};
use history::{Op, SECTOR, Stamp, ZERO, stamps_of};

const NBD_CLIENTS: usize = 6;
const FUSE_CLIENTS: usize = 2;

/// Lets all clients work until a random moment, crashes the machine, and returns what they noted.
fn stretch(
    machine: &mut Machine,
    daemon: harness::Daemon,
    shared: &std::sync::Arc<Shared>,
    random: &mut Random,
) -> Result<Vec<Op>, String> {
    shared.done.store(0, Ordering::SeqCst);
    shared.is_crashing.store(false, Ordering::SeqCst);
    let mut threads: Vec<std::thread::JoinHandle<Notes>> = Vec::new();
    for _ in 0..NBD_CLIENTS {
        let (client, shared) = (Client::connect(&machine.site.socket()), shared.clone());
        let random = Random::new(random.next());
        threads.push(std::thread::spawn(move || nbd_client(client, random, &shared)));
    }
    for _ in 0..FUSE_CLIENTS {
        let (client, shared) = (FuseClient::open(&machine.site.path("fuse/disk")), shared.clone());
        let random = Random::new(random.next());
        threads.push(std::thread::spawn(move || client.run(random, &shared)));
    }
    let enough = random.below(1500);
    until("enough requests are done", || {
        let is_enough = shared.done.load(Ordering::SeqCst) >= enough;
        (is_enough || threads.iter().any(|thread| thread.is_finished())).then_some(())
    });
    random_instant(random, Duration::from_millis(3));
    shared.is_crashing.store(true, Ordering::SeqCst);
    machine.crash(daemon, random);
    machine.crashes.under_load += 1;
    let mut ops = Vec::new();
    for thread in threads {
        ops.extend(thread.join().map_err(|_| "a client panicked")??);
    }
    machine.clear_away();
    Ok(ops)
}

fn read_all(machine: &Machine) -> Result<Vec<Stamp>, String> {
    let bytes = Client::connect(&machine.site.socket()).read_all().map_err(|e| format!("{e:?}"))?;
    stamps_of(&bytes, 0)
}

fn one_disk(crash: Crash, ack: &str, bypass: &str, stretches: u64, salt: u64) {
    let mut random = Random::new(seed() ^ salt);
    let mut machine = Machine::new(crash, "4M", (SECTORS * SECTOR) as u64, "--segment-size 64k");
    fs::create_dir_all(machine.site.path("fuse")).unwrap();
    let flags = format!(
        "--quiet --fuse fuse --ack {ack} --idle-max 10ms --idle-min 1ms --max-delay 20ms \
         --bypass-threshold {bypass}"
    );
    let end = if crash == Crash::Kill { End::Kill } else { End::PowerCut };
    let shared = Shared::new(ack == "durable", crash == Crash::PowerCut);
    let mut before = vec![ZERO; SECTORS];
    let mut ops: Vec<Op> = Vec::new();
    let mut judged = 0;
    for number in 0..=stretches {
        let what = format!("linearizability, {crash:?}, {ack}, DCD_SEED={}, {number}", seed());
        let daemon = machine.serve(&flags);
        let after = read_all(&machine).unwrap_or_else(|e| panic!("{what}: {e}"));
        judge_stretch(&before, &ops, end, &after, bypass == "1M")
            .unwrap_or_else(|e| panic!("{what}: {e}\n{}", daemon.log()));
        judged += ops.len();
        // What a recovery has shown stays (C9).
        before = after;
        if number == stretches {
            daemon.stop();
            machine.clear_away();
            break;
        }
        ops = stretch(&mut machine, daemon, &shared, &mut random)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        machine.crash_again(&flags, &mut random);
    }
    assert!(stamps_of(&machine.detach(), 0).unwrap() == before, "the data-disk alone");
    machine.crashes.tell(
        &format!("linearizability, {ack}, bypass {bypass}"),
        crash,
        seed(),
        &format!("{judged} concurrent requests judged"),
    );
    assert!(judged as u64 > stretches * 100, "{judged} requests prove nothing");
}

#[test]
fn memory_mode_is_one_disk_across_kill_9() {
    skip_without!("memory_mode_is_one_disk_across_kill_9", "root", "fuse");
    one_disk(Crash::Kill, "memory", "1M", cycles(10, 100), 21);
}

#[test]
fn log_mode_is_one_disk_across_kill_9() {
    skip_without!("log_mode_is_one_disk_across_kill_9", "root", "fuse");
    one_disk(Crash::Kill, "log", "1M", cycles(5, 50), 22);
}

/// Changes that overtook a bypassed write somebody had seen were found here.
#[test]
fn log_mode_with_writes_past_the_cache_is_one_disk_across_kill_9() {
    skip_without!("log_mode_with_writes_past_the_cache_is_one_disk_across_kill_9", "root", "fuse");
    one_disk(Crash::Kill, "log", "16k", cycles(5, 50), 22);
}

#[test]
fn memory_mode_is_one_disk_across_power_cuts() {
    skip_without!("memory_mode_is_one_disk_across_power_cuts", "root", "fuse", "loop", "nbdfuse");
    one_disk(Crash::PowerCut, "memory", "1M", cycles(8, 100), 23);
}

#[test]
fn durable_mode_is_one_disk_across_power_cuts() {
    skip_without!("durable_mode_is_one_disk_across_power_cuts", "root", "fuse", "loop", "nbdfuse");
    one_disk(Crash::PowerCut, "durable", "1M", cycles(5, 50), 24);
}
