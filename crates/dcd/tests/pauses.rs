//! Proves on the real program that a pause of it which is longer than every limit costs nothing but
//! the pause: under load, with requests in flight, again and again, and between kills. What ended
//! meanwhile is no hung disk (C26).

mod harness;

use std::time::Duration;

use harness::machine::Crash;
use harness::model::{Mix, Op, settle};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Site, Value, cycles, seed};
use rustix::process::Signal;

const MIX: Mix =
    Mix { volume: 8 << 20, sectors_max: 96, flush_every: 12, fua_every: 4, zero_every: 15 };
/// Limits that a disk under load does not reach, and a pause does.
const FLAGS: &str =
    "--quiet --idle-max 20ms --idle-min 1ms --segment-buffers 4 --io-timeout 5s --full-timeout 5s";
const PAUSE: Duration = Duration::from_millis(5300);
/// Daemons that are paused at the same time.
const LANES: u64 = 8;

fn is_healthy(status: &Value) -> bool {
    let zero = |name: &str| status["counters"][name] == 0;
    status["cache_disk_failed"] == false && zero("cache_disk_errors") && zero("data_disk_errors")
}

/// Requests in flight, a pause, all answers; and every other time a kill behind it, which is as
/// right as ever.
fn pauses_and_kills(lane: u64, pauses: u64) -> u64 {
    let seed = seed() ^ (77 + lane);
    let mut random = Random::new(seed);
    let site = Site::with("5M", MIX.volume, "--segment-size 64k --read-area 2M");
    let mut volume = vec![0; MIX.volume as usize];
    let mut pending: Vec<Op> = Vec::new();
    let mut daemon = site.serve(FLAGS);
    let mut answered = 0;
    for pause in 0..pauses {
        let mut client = Client::connect(&site.socket());
        let found = client.read_all().unwrap();
        volume = settle(&found, volume, &pending).unwrap_or_else(|e| {
            panic!("seed {seed}, before pause {pause}: {e}\n{}", daemon.log());
        });
        pending.clear();
        for _ in 0..random.below(30) {
            let op = MIX.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("seed {seed}, {op:?}: {e:?}"));
            op.apply(&mut volume);
        }
        for _ in 0..2 + random.below(20) {
            let op = MIX.op_apart(&mut random, &pending);
            client.send_op(&op).unwrap();
            pending.push(op);
        }
        harness::machine::random_instant(&mut random, Duration::from_micros(1500));
        daemon.signal(Signal::STOP);
        std::thread::sleep(PAUSE); // this is the pause
        daemon.signal(Signal::CONT);
        for _ in 0..pending.len() {
            let (cookie, result) = client.reply().unwrap();
            assert_eq!(result, Ok(()), "seed {seed}, pause {pause}, request {cookie}");
            answered += 1;
        }
        pending.drain(..).for_each(|op| op.apply(&mut volume));
        let status = site.status();
        assert!(is_healthy(&status), "seed {seed}, pause {pause}: {status}");
        if random.once_in(2) {
            let op = MIX.op(&mut random);
            client.send_op(&op).unwrap();
            pending.push(op);
            daemon.kill();
            daemon = site.serve(FLAGS);
        }
    }
    daemon.stop();
    settle(&site.detach(), volume, &pending).unwrap();
    answered
}

#[test]
fn pauses_between_kills_cost_nothing() {
    // As many as all tests with kills together do.
    let all = cycles(2 * LANES, 1000).next_multiple_of(LANES);
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| std::thread::spawn(move || pauses_and_kills(lane, all / LANES)))
        .collect();
    let answered: u64 = lanes.into_iter().map(|lane| lane.join().unwrap()).sum();
    eprintln!(
        "\npauses: {all} (longer than io-timeout, with {} between, DCD_SEED={}): {answered} requests that were in \
         flight answered",
        Crash::Kill.name(),
        seed()
    );
    assert!(answered >= 2 * all);
}

const MIRROR: &str = "extent = \"64k\"\njournal = \"2M\"\n[[set]]\nlevel = 1\n";

fn member(site: &Site, member: usize) -> (String, u64) {
    let report = site.dcd("volume status --control ctl --json").ok();
    let report: Value = serde_json::from_str(&report).unwrap();
    let member = &report["members"][member];
    (member["state"].as_str().unwrap().to_owned(), member["times_late"].as_u64().unwrap())
}

/// A megabyte, in requests that go to the log.
fn write(client: &mut Client, value: u8) {
    (0..4).for_each(|part| client.write(part << 18, &[value; 1 << 18]).unwrap());
}

/// A member that does not answer for a while (a drive that spins up) is late, which is said, and is
/// as it was when it answers. One that never answers is stale, which is said when it happens, at
/// the end, and by the next start.
#[test]
fn a_late_member_is_given_time_and_told_of() {
    let site = Site::empty();
    for disk in ["m0", "m1"] {
        site.folder.disk(disk, 33 << 20);
    }
    std::fs::write(site.path("v.toml"), MIRROR).unwrap();
    site.dcd(
        "create --cache-disk c --cache-size 16M --data-disk m0 --data-disk m1 --volume v.toml",
    )
    .ok();
    let serve = "serve --cache-disk c --data-disk m0 --data-disk faulty:m1,control=faults --nbd unix:sock \
                 --control ctl --memory-directory . --quiet --idle-max 20ms --member-timeout";
    // A third of a minute, and the time of a spin-up that is longer than that third of it.
    site.faults("faults", "");
    let daemon = site.start_line(&format!("{serve} 30s")).ready();
    assert_eq!(daemon.told("degraded"), None);
    let mut client = Client::connect(&site.socket());
    write(&mut client, 7);
    site.dcd("drain --control ctl").ok();
    site.faults("faults", "any hang");
    write(&mut client, 8);
    client.flush().unwrap();
    // What was asked before the rules changed is not late.
    harness::until("the member is late", || {
        write(&mut client, 8);
        (member(&site, 1).0 == "late").then_some(())
    });
    // Reads do not wait for it.
    assert_eq!(client.read(1 << 20, 4096).unwrap(), [0; 4096]);
    site.faults("faults", "");
    harness::until("it answers again", || (member(&site, 1).0 == "up-to-date").then_some(()));
    assert_eq!(member(&site, 1).1, 1);
    site.dcd("drain --control ctl").ok();
    daemon.stop();
    let log = std::fs::read_to_string(site.path("dcd.log")).unwrap();
    assert!(log.contains("member 1 (") && log.contains("is late: it does not answer"), "{log}");
    assert!(log.contains("answers again") && !log.contains("degraded"), "{log}");

    // Now it never does.
    let daemon = site.start_line(&format!("{serve} 3s")).ready();
    let mut client = Client::connect(&site.socket());
    site.faults("faults", "any hang");
    write(&mut client, 9);
    client.flush().unwrap();
    harness::until("it is done without", || {
        write(&mut client, 9);
        (member(&site, 1).0 == "stale").then_some(())
    });
    assert!(daemon.log().contains("is STALE"), "{}", daemon.log());
    site.faults("faults", "");
    site.dcd("drain --control ctl").ok();
    daemon.stop();
    let log = std::fs::read_to_string(site.path("dcd.log")).unwrap();
    assert!(log.contains("stopped. The volume is degraded: member 1 ("), "{log}");
    let daemon = site.start_line(&format!("{serve} 3s")).ready();
    assert_eq!(daemon.told("degraded"), Some("1"));
    let mut client = Client::connect(&site.socket());
    assert_eq!(client.read(0, 1 << 20).unwrap(), vec![9; 1 << 20]);
    site.dcd("volume rebuild 1 --control ctl").ok();
    harness::until("it is rebuilt", || (member(&site, 1).0 == "up-to-date").then_some(()));
    assert!(daemon.log().contains("is up to date again"), "{}", daemon.log());
    daemon.stop();
}
