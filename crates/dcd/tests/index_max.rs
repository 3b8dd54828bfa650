//! `index-max` with the real binary: with memory for a small part of the index nothing is lost or old
//! over kill -9, the budget may change from one start to the next, and what it cannot be is refused.

mod harness;

use harness::model::{Mix, Op, settle};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Site, cycles, seed};

const MIX: Mix =
    Mix { volume: 16 << 20, sectors_max: 24, flush_every: 40, fua_every: 20, zero_every: 15 };
/// Nothing is destaged before the log is nearly full: the index is as large as it can be.
const FLAGS: &str = "--quiet --segment-buffers 4 --idle-max 1h --idle-min 1h --dirty-high 95";

/// A log of some thousand lines: tens of pages of the index.
fn site() -> Site {
    Site::with("12M", MIX.volume, "--segment-size 64k")
}

#[test]
fn kills_lose_nothing_of_an_index_that_is_mostly_on_the_cache_disk() {
    let seed = seed() ^ 0x696e_6465;
    let mut random = Random::new(seed);
    let site = site();
    let mut volume = vec![0; MIX.volume as usize];
    let mut pending: Vec<Op> = Vec::new();
    let (mut pages, kills) = (0, cycles(25, 60));
    for kill in 0..kills {
        // Without one, too: the next start with one finds an index that is in no order.
        let budget = ["--index-max 4k", "--index-max 16k", "--index-max 4k", ""][kill as usize % 4];
        let daemon = site.serve(&format!("{FLAGS} {budget}"));
        let mut client = Client::connect(&site.socket());
        let found = client.read_all().unwrap();
        volume = settle(&found, volume, &pending)
            .unwrap_or_else(|e| panic!("seed {seed}, before kill {kill}: {e}\n{}", daemon.log()));
        pending.clear();
        for _ in 0..random.below(400) {
            let op = MIX.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("seed {seed}, kill {kill}, {op:?}: {e:?}"));
            op.apply(&mut volume);
        }
        let status = site.status();
        let most = if budget.contains("16k") { 16 << 10 } else { 4 << 10 };
        assert_eq!(status["index_bytes_max"], if budget.is_empty() { 0 } else { most });
        pages += status["counters"]["index_pages_read"].as_u64().unwrap();
        for _ in 0..random.below(4) {
            let op = MIX.op_apart(&mut random, &pending);
            client.send_op(&op).unwrap();
            pending.push(op);
        }
        daemon.kill();
    }
    let found = site.detach();
    settle(&found, volume, &pending).unwrap_or_else(|e| panic!("seed {seed}, detached: {e}"));
    assert!(pages > 100 * kills, "only {pages} pages were read: most of the index was in memory");
}

#[test]
fn a_budget_that_cannot_be_is_refused() {
    let refused = |site: &Site, code: i32, flags: &str, error: &str| {
        let line = format!(
            "serve --cache-disk c --data-disk d --nbd unix:s --control ctl --memory-directory . {FLAGS} {flags}"
        );
        site.dcd(&line).fails(code, error, "");
    };
    let plain = site();
    refused(&plain, 1, "--index-max 1000", "at least a byte for each 4 KiB");
    refused(&plain, 2, "--index-max much", "much");
    let with_read_area = Site::with("12M", MIX.volume, "--segment-size 64k --read-area 2M");
    refused(&with_read_area, 1, "--index-max 64k", "read area");
    // Nothing of that has changed anything.
    let daemon = plain.serve(&format!("{FLAGS} --index-max 4k"));
    assert_eq!(plain.status()["dirty_bytes"], 0);
    // It is of the start.
    plain.dcd("set --control ctl index-max=8k").fails(1, "restart", "");
    daemon.stop();
}
