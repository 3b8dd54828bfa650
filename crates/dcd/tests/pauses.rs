//! Proves on the real program that a pause of it which is longer than every limit costs nothing but the pause: under
//! load, with requests in flight, again and again, and between kills. What ended meanwhile is no hung disk (C26).

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
    "--quiet --idle-max 20ms --idle-min 1ms --segment-buffers 4 --io-timeout 2s --full-timeout 2s";
const PAUSE: Duration = Duration::from_millis(2300);
/// Daemons that are paused at the same time.
const LANES: u64 = 8;

fn is_healthy(status: &Value) -> bool {
    let zero = |name: &str| status["counters"][name] == 0;
    status["cache_disk_failed"] == false && zero("cache_disk_errors") && zero("data_disk_errors")
}

/// Requests in flight, a pause, all answers; and every other time a kill behind it, which is as right as ever.
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
