//! Proves on the real program that a power cut of the whole machine loses no flushed byte (C2, C9).
//! The volatile disks are those of `harness/volatile.rs`; the load is requests over one NBD
//! connection, so that the exact prefix can be told. dcd is killed with -9 at the instant at which
//! the disks lose what was not flushed, the memory that would have outlived dcd is removed, and the
//! same line is served again.

mod harness;

use harness::machine::{Crash, Machine, random_instant};
use harness::model::{Mix, Op, check_sectors, find_prefix};
use harness::nbd::Client;
use harness::random::Random;
use harness::{cycles, seed};
use std::time::Duration;

fn power_cuts(ack: &str, mix: Mix, bypass: &str, cuts: u64, salt: u64) {
    let seed = seed() ^ salt;
    let mut random = Random::new(seed);
    // Hot blocks are copied beneath it; two disks, so that they are.
    let create = "--segment-size 64k --read-area 2M";
    let mut machine = Machine::new(Crash::PowerCut, "6M", mix.volume, create);
    let flags = format!(
        "--quiet --ack {ack} --idle-max 10ms --idle-min 1ms --max-delay 20ms \
         --bypass-threshold {bypass} --one-disk no"
    );
    // What the volume surely holds, and the requests since.
    let mut flushed = vec![0; mix.volume as usize];
    let mut later: Vec<Op> = Vec::new();
    let (mut lost, mut kept) = (0, 0);
    for cut in 0..=cuts {
        let daemon = machine.serve(&flags);
        let mut client = Client::connect(&machine.site.socket());
        let found = client.read_all().unwrap();
        let where_ = || format!("seed {seed}, {ack}, after cut {cut}");
        if bypass == "1M" {
            let prefix = find_prefix(&found, &flushed, &later)
                .unwrap_or_else(|e| panic!("{}: {e}\n{}", where_(), daemon.log()));
            lost += later.len() - prefix;
            kept += prefix;
        } else {
            check_sectors(&found, &flushed, &later)
                .unwrap_or_else(|e| panic!("{}: {e}\n{}", where_(), daemon.log()));
        }
        // What recovery has shown must stay (C9), so it is the new beginning. It also must be so
        // after a cut that hits the next recovery: now and then there is no load at all.
        flushed = found;
        later.clear();
        if cut == cuts {
            drop(client);
            daemon.stop();
            assert!(machine.detach() == flushed, "{}: data-disk alone", where_());
            break;
        }
        let ops = if random.once_in(5) { 0 } else { random.below(250) };
        for _ in 0..ops {
            let op = mix.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("{}: {op:?}: {e:?}", where_()));
            let is_durable =
                ack == "durable" || matches!(op, Op::Flush | Op::Write { fua: true, .. });
            // FUA covers its own write; the prefix rule then covers those before it (C9). With
            // writes past the cache the rule has its exception, so only a flush counts.
            let settles = is_durable && (bypass == "1M" || op == Op::Flush);
            later.push(op);
            if settles {
                later.drain(..).for_each(|op| op.apply(&mut flushed));
            }
        }
        // One more in flight when the power goes.
        let op = mix.op(&mut random);
        client.send_op(&op).unwrap();
        later.push(op);
        random_instant(&mut random, Duration::from_micros(100));
        machine.crash(daemon, &mut random);
        machine.crashes.under_load += 1;
        machine.clear_away();
        machine.crash_again(&flags, &mut random);
    }
    if ack != "durable" && bypass == "1M" {
        assert!(lost > 0 && kept > 0, "lost {lost}, kept {kept}: the cuts hit nothing");
    }
    let checked = match bypass {
        "1M" => format!("{kept} changes kept and {lost} lost behind the last flush"),
        _ => "each sector compared".to_owned(),
    };
    machine.crashes.tell(
        &format!("blocks, {ack}, bypass {bypass}"),
        Crash::PowerCut,
        self::seed(),
        &checked,
    );
}

const MIX: Mix =
    Mix { volume: 8 << 20, sectors_max: 96, flush_every: 30, fua_every: 15, zero_every: 15 };

#[test]
fn power_cuts_in_memory_mode_lose_no_flushed_byte() {
    skip_without!(
        "power_cuts_in_memory_mode_lose_no_flushed_byte",
        "root",
        "fuse",
        "loop",
        "nbdfuse"
    );
    power_cuts("memory", MIX, "1M", cycles(25, 120), 11);
}

#[test]
fn power_cuts_in_log_mode_lose_no_flushed_byte() {
    skip_without!("power_cuts_in_log_mode_lose_no_flushed_byte", "root", "fuse", "loop", "nbdfuse");
    power_cuts("log", MIX, "1M", cycles(15, 80), 12);
}

#[test]
fn power_cuts_in_durable_mode_lose_no_acknowledged_byte() {
    skip_without!(
        "power_cuts_in_durable_mode_lose_no_acknowledged_byte",
        "root",
        "fuse",
        "loop",
        "nbdfuse"
    );
    power_cuts("durable", MIX, "1M", cycles(15, 50), 13);
}

#[test]
fn power_cuts_with_writes_past_the_cache_lose_no_flushed_byte() {
    skip_without!(
        "power_cuts_with_writes_past_the_cache_lose_no_flushed_byte",
        "root",
        "fuse",
        "loop",
        "nbdfuse"
    );
    let mix = Mix { sectors_max: 256, ..MIX };
    power_cuts("memory", mix, "64k", cycles(15, 50), 14);
}
