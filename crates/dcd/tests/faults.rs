//! Injects faults into the disks of the real program and shows what the contract promises
//! (C21-C26): errors where the data is not known, everything else goes on, and once the fault is
//! gone and dcd is started again, whatever was acknowledged and flushed is there.

mod harness;

use std::time::{Duration, Instant};

use harness::model::{Mix, check_sectors, difference};
use harness::nbd::{Client, EIO, ENOSPC, Failure};
use harness::random::Random;
use harness::{Site, seed, until};

const VOLUME: u64 = 8 << 20;
const DATA: &str = "faulty:d,control=data-faults";
const CACHE: &str = "faulty:c,control=cache-faults";
const LAZY: &str = "--quiet --idle-max 1h --idle-min 1h";

fn site() -> Site {
    Site::with("4M", VOLUME, "--segment-size 64k")
}

/// Sets a rule and waits until a request of `probe` fails because of it.
fn faults_until<T>(
    site: &Site,
    control: &str,
    rules: &str,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    site.faults(control, rules);
    until("the fault is in force", &mut probe)
}

/// Everything that a client has written and flushed.
struct Load {
    random: Random,
    mix: Mix,
    volume: Vec<u8>,
}

impl Load {
    fn new(salt: u64) -> Load {
        let mix =
            Mix { volume: VOLUME, sectors_max: 40, flush_every: 0, fua_every: 0, zero_every: 12 };
        Load { random: Random::new(seed() ^ salt), mix, volume: vec![0; VOLUME as usize] }
    }

    fn run(&mut self, client: &mut Client, ops: usize) {
        for _ in 0..ops {
            let op = self.mix.op(&mut self.random);
            client.do_op(&op).unwrap_or_else(|error| panic!("{op:?}: {error:?}"));
            op.apply(&mut self.volume);
        }
        client.flush().unwrap();
    }

    /// The volume is served and, after detach, on the data-disk.
    fn verify(&self, site: &Site) {
        let daemon = site.serve(LAZY);
        let found = Client::connect(&site.socket()).read_all().unwrap();
        assert_eq!(difference(&found, &self.volume), None, "{}", daemon.log());
        daemon.assert_no_panic();
        daemon.stop();
        assert_eq!(difference(&site.detach(), &self.volume), None, "after detach");
    }
}

/// C22: EIO of writes or flushes of the cache-disk. Nothing that a flush has answered for is lost,
/// and a flush that cannot be kept is not answered with success.
fn cache_disk_fails(rules: &str, ack: &str, salt: u64) {
    let site = site();
    let mut load = Load::new(salt);
    let daemon = site.serve_disks(CACHE, "d", &format!("{LAZY} --ack {ack}"));
    let mut client = Client::connect(&site.socket());
    load.run(&mut client, 60);
    // While it fails: each request is done or says it is not. Sectors of failed requests may hold
    // either; no flush that succeeds may be a lie.
    site.faults("cache-faults", rules);
    let mut unsure = Vec::new();
    let mut all_done = true;
    let mut believed = 0;
    let mut met = 0; // requests since the disk has failed for the first time
    let deadline = Instant::now() + harness::PATIENCE;
    while met < 80 {
        assert!(Instant::now() < deadline, "{rules}: no error in {} requests", unsure.len());
        let has_failed = || site.status()["counters"]["cache_disk_errors"] != 0;
        if met > 0 || (load.random.once_in(10) && has_failed()) {
            met += 1;
        }
        let op = load.mix.op(&mut load.random);
        let done = client.do_op(&op);
        unsure.push(op);
        match done {
            Ok(()) => {}
            Err(Failure::Errno(5 | 28)) => all_done = false,
            Err(other) => panic!("{rules}: {other:?}: {}", daemon.log()),
        }
        // A flush that is answered with success must be true, whatever the disk says (C22).
        if load.random.once_in(4) && client.flush().is_ok() && all_done {
            unsure.drain(..).for_each(|op| op.apply(&mut load.volume));
            believed += u64::from(met > 0);
        }
    }
    println!("{rules:?} {ack}: {believed} flushes succeeded, all requests done: {all_done}");
    daemon.assert_no_panic();
    daemon.kill();
    // The memory goes too: what was flushed must be on the disks.
    remove_segment_memory(&site);
    site.faults("cache-faults", "");
    let daemon = site.serve(&format!("{LAZY} --memory-lost"));
    let found = Client::connect(&site.socket()).read_all().unwrap();
    check_sectors(&found, &load.volume, &unsure)
        .unwrap_or_else(|error| panic!("{rules}, {ack}: {error}\n{}", daemon.log()));
    // And it is a whole cache again.
    load.volume = found;
    let mut client = Client::connect(&site.socket());
    load.run(&mut client, 30);
    drop(client);
    daemon.kill();
    load.verify(&site);
}

#[test]
fn cache_disk_write_errors_lose_nothing_flushed() {
    for (salt, ack) in ["memory", "log", "durable"].into_iter().enumerate() {
        cache_disk_fails("write eio\n", ack, 31 + salt as u64);
    }
}

#[test]
fn cache_disk_flush_errors_lose_nothing_flushed() {
    for (salt, ack) in ["memory", "log", "durable"].into_iter().enumerate() {
        cache_disk_fails("flush eio\n", ack, 41 + salt as u64);
    }
}

#[test]
fn one_error_of_the_cache_disk_is_survived_without_a_restart() {
    for rule in ["write eio once\n", "flush eio once\n"] {
        let site = site();
        let mut load = Load::new(51);
        let daemon = site.serve_disks(CACHE, "d", LAZY);
        let mut client = Client::connect(&site.socket());
        load.run(&mut client, 30);
        site.faults("cache-faults", rule);
        until("the error has happened", || {
            load.run(&mut client, 5);
            (site.status()["counters"]["cache_disk_errors"] != 0).then_some(())
        });
        load.run(&mut client, 30);
        assert_eq!(site.status()["cache_disk_failed"], false, "{rule}");
        drop(client);
        daemon.kill();
        load.verify(&site);
    }
}

/// C21, C23: the cache-disk cannot be read, or is gone, while it holds the only copy.
#[test]
fn dirty_blocks_that_cannot_be_read_give_eio_and_never_the_stale_copy() {
    for rule in ["read eio\n", "gone\n"] {
        let site = site();
        let daemon = site.serve_disks(CACHE, "d", &format!("{LAZY} --segment-buffers 3"));
        let mut client = Client::connect(&site.socket());
        // Older copies on the data-disk, newer ones in the log, out of the segment buffers.
        for line in 0..100 {
            client.write(line * 4096, &[1; 4096]).unwrap();
        }
        site.dcd("drain --control ctl").ok();
        for line in 0..100 {
            client.write(line * 4096, &[2; 4096]).unwrap();
            client.flush().unwrap();
        }
        faults_until(&site, "cache-faults", rule, || {
            let read = client.read(0, 4096);
            if let Ok(data) = &read {
                assert_eq!(data[..], [2; 4096], "{rule}");
            }
            read.err().map(|error| assert_eq!(error, EIO, "{rule}"))
        });
        for line in 0..100 {
            match client.read(line * 4096, 4096) {
                Ok(data) => assert_eq!(data[..], [2; 4096], "{rule}: line {line} is stale"),
                Err(error) => assert_eq!(error, EIO, "{rule}"),
            }
        }
        if rule.starts_with("gone") {
            let write = until("writes fail", || {
                client.write(0, &[3; 4096]).and_then(|()| client.flush()).err()
            });
            assert_eq!(write, EIO, "a cache that is gone while dirty takes no writes (C23)");
        }
        daemon.assert_no_panic();
        daemon.kill();
        let data = site.detach();
        assert!(data[4096..100 * 4096].iter().all(|byte| *byte == 2), "{rule}: all is there again");
    }
}

/// C24: destaging cannot write. Nothing is lost, other requests go on, later it works again.
#[test]
fn data_disk_write_errors_keep_blocks_dirty() {
    for rule in ["write eio\n", "flush eio\n", "write enospc\n", "write eio 0-4194304\n"] {
        let site = site();
        let mut load = Load::new(61);
        let daemon = site.serve_disks("c", DATA, "--quiet --idle-max 5ms --idle-min 1ms");
        let mut client = Client::connect(&site.socket());
        load.run(&mut client, 20);
        site.faults("data-faults", rule);
        until("destaging has met the error", || {
            load.run(&mut client, 1);
            (site.status()["counters"]["data_disk_errors"] != 0).then_some(())
        });
        assert_ne!(site.status()["dirty_bytes"], 0, "{rule}");
        load.run(&mut client, 20);
        let found = client.read_all().unwrap();
        assert_eq!(difference(&found, &load.volume), None, "{rule}");
        site.faults("data-faults", "");
        until("it is destaged after all", || (site.status()["dirty_bytes"] == 0).then_some(()));
        daemon.assert_no_panic();
        daemon.kill();
        load.verify(&site);
    }
}

/// C24: a read miss that fails is EIO for those sectors only.
#[test]
fn data_disk_read_errors_are_eio_for_those_sectors_only() {
    let site = site();
    let daemon = site.serve_disks("c", DATA, LAZY);
    let mut client = Client::connect(&site.socket());
    client.write(8192, &[5; 4096]).unwrap();
    let rule = "read eio 4096-16384\n";
    faults_until(&site, "data-faults", rule, || {
        client.read(4096, 4096).err().map(|e| assert_eq!(e, EIO))
    });
    assert_eq!(client.read(0, 4096), Ok(vec![0; 4096]));
    assert_eq!(client.read(8192, 4096), Ok(vec![5; 4096]), "in the cache");
    assert_eq!(client.read(12288, 512), Err(EIO));
    assert_eq!(client.read(16384, 4096), Ok(vec![0; 4096]));
    client.write(12288, &[6; 4096]).unwrap();
    assert_eq!(client.read(12288, 4096), Ok(vec![6; 4096]), "until overwritten");
    daemon.assert_no_panic();
    daemon.kill();
}

/// C26: a disk that does not answer is suspect after --io-timeout; its late answer harms nothing.
#[test]
fn a_disk_that_hangs_is_suspect_and_its_late_answer_harms_nothing() {
    for (disk, control, flags) in [
        (CACHE, "cache-faults", "--quiet --idle-max 1h --idle-min 1h"),
        (DATA, "data-faults", "--quiet --idle-max 5ms --idle-min 1ms"),
    ] {
        let site = site();
        let mut load = Load::new(71);
        let (cache, data) = if disk == CACHE { (CACHE, "d") } else { ("c", DATA) };
        let daemon =
            site.serve_disks(cache, data, &format!("{flags} --io-timeout 1s --full-timeout 3s"));
        let mut client = Client::connect(&site.socket());
        client.patience(Duration::from_secs(20));
        load.run(&mut client, 60);
        site.faults(control, "write hang\n");
        let mut unsure = Vec::new();
        let key = if disk == CACHE { "cache_disk_errors" } else { "data_disk_errors" };
        until("the disk is suspect", || {
            for _ in 0..5 {
                let op = load.mix.op(&mut load.random);
                match client.do_op(&op) {
                    Ok(()) | Err(Failure::Errno(_)) => unsure.push(op),
                    Err(gone) => panic!("{disk}: no answer: {gone:?}\n{}", daemon.log()),
                }
            }
            match client.flush() {
                Ok(()) | Err(Failure::Errno(_)) => {}
                Err(gone) => panic!("{disk}: a flush got no answer: {gone:?}\n{}", daemon.log()),
            }
            (site.status()["counters"][key] != 0).then_some(())
        });
        // The late answers come, while others go on.
        site.faults(control, "");
        for _ in 0..40 {
            let op = load.mix.op(&mut load.random);
            let _ = client.do_op(&op);
            unsure.push(op);
        }
        let before = client.read_all();
        daemon.assert_no_panic();
        daemon.kill();
        let daemon = site.serve(LAZY);
        let found = Client::connect(&site.socket()).read_all().unwrap();
        check_sectors(&found, &load.volume, &unsure)
            .unwrap_or_else(|e| panic!("{disk}: {e}\n{}", daemon.log()));
        if disk == DATA {
            // The cache-disk was well, so all that was acknowledged is there.
            assert_eq!(difference(&found, &before.unwrap()), None);
        }
        load.volume = found;
        daemon.kill();
        load.verify(&site);
    }
}

/// C25: a full cache makes writes wait, and fails them with ENOSPC after --full-timeout; none is
/// dropped, and it goes on when there is room.
#[test]
fn a_full_cache_waits_and_then_says_enospc() {
    let site = site();
    let mut load = Load::new(81);
    load.mix.zero_every = 0;
    site.faults("data-faults", "write eio\n");
    let daemon =
        site.serve_disks("c", DATA, "--quiet --idle-max 5ms --idle-min 1ms --full-timeout 200ms");
    let mut client = Client::connect(&site.socket());
    let (mut full, mut accepted) = (0, 0);
    for _ in 0..2000 {
        let op = load.mix.op(&mut load.random);
        match client.do_op(&op) {
            Ok(()) => {
                op.apply(&mut load.volume);
                accepted += 1;
            }
            Err(error) => {
                assert_eq!(error, ENOSPC);
                full += 1;
                // A request of several parts may be there in part: not at all certain any more.
                let range = op.range();
                let now = client.read(range.start as u64, range.len()).unwrap();
                load.volume[range].copy_from_slice(&now);
                if full == 3 {
                    break;
                }
            }
        }
    }
    assert!(full == 3 && accepted > 50, "{full} refused, {accepted} accepted");
    let found = client.read_all().unwrap();
    assert_eq!(difference(&found, &load.volume), None, "reads of a full cache");
    client.flush().unwrap();
    site.faults("data-faults", "");
    until("there is room again", || client.write(0, &[9; 4096]).ok());
    load.volume[..4096].fill(9);
    client.flush().unwrap();
    daemon.assert_no_panic();
    daemon.kill();
    load.verify(&site);
}

/// The data-disk vanishes and comes back.
#[test]
fn a_data_disk_that_vanishes_loses_nothing() {
    let site = site();
    let mut load = Load::new(91);
    let daemon = site.serve_disks("c", DATA, "--quiet --idle-max 5ms --idle-min 1ms");
    let mut client = Client::connect(&site.socket());
    load.run(&mut client, 40);
    site.dcd("drain --control ctl").ok();
    let miss = VOLUME - 4096;
    let gone = || client.read(miss, 4096).err();
    let _ = faults_until(&site, "data-faults", "gone\n", gone);
    for _ in 0..30 {
        let op = load.mix.op(&mut load.random);
        client.do_op(&op).unwrap_or_else(|e| panic!("{op:?}: {e:?}\n{}", daemon.log()));
        op.apply(&mut load.volume);
    }
    client.flush().unwrap();
    daemon.assert_no_panic();
    daemon.kill();
    load.verify(&site);
}

/// The file of the data-disk is unlinked while it is served: it takes writes and keeps nothing. That is
/// told once, and lasts.
#[test]
fn an_unlinked_data_disk_stays_in_trouble() {
    let site = site();
    let daemon = site.serve_disks("c", "d", "--idle-max 5ms --idle-min 1ms");
    let mut client = Client::connect(&site.socket());
    std::fs::remove_file(site.path("d")).unwrap();
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    let trouble = || site.status()["destage_error"].as_str().map(str::to_owned);
    until("it is told", || daemon.log().contains("the data-disk takes nothing").then_some(()));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        client.write(4096, &[2; 4096]).unwrap();
        assert_eq!(trouble().as_deref(), Some("gone"), "{}", daemon.log());
    }
    let log = daemon.log();
    assert_eq!(log.matches("takes nothing").count(), 1, "{log}");
    assert!(!log.contains("takes writes again"), "{log}");
    daemon.assert_no_panic();
    daemon.kill();
}

/// A daemon whose cache-disk has become clean and then goes away, and a load that it holds.
fn without_a_cache(site: &Site, ack: &str, salt: u64) -> (harness::Daemon, Client, Load) {
    let mut load = Load::new(salt);
    let flags = format!("--quiet --idle-max 5ms --idle-min 1ms --ack {ack}");
    let daemon = site.serve_disks(CACHE, "d", &flags);
    let mut client = Client::connect(&site.socket());
    load.run(&mut client, 40);
    site.dcd("drain --control ctl").ok();
    until("the cache-disk is clean", || (site.status()["cache_disk_clean"] == true).then_some(()));
    site.faults("cache-faults", "gone\n");
    (daemon, client, load)
}

/// C23: gone while clean. Nobody notices but the one who looks at the status, or at standard error;
/// and when it comes back, after a crash or an end in order, with or without the segment memory,
/// nothing old comes with it.
#[test]
fn a_cache_disk_that_is_gone_while_clean_is_done_without() {
    for (salt, ack) in ["memory", "log", "durable"].into_iter().enumerate() {
        for end in ["kill", "power cut", "stop", "detach"] {
            let site = site();
            let (daemon, mut client, mut load) = without_a_cache(&site, ack, 101 + salt as u64);
            load.run(&mut client, 60);
            let status = site.status();
            assert_eq!(status["uncached"], "passing-through", "{}", daemon.log());
            assert_eq!(
                (&status["dirty_bytes"], &status["cache_disk_failed"]),
                (&0.into(), &true.into())
            );
            assert_eq!(status["cache_disk_error"], "the device is gone");
            assert!(site.dcd("status --control ctl").ok().contains("UNCACHED"));
            assert_eq!(daemon.log().matches("UNCACHED").count(), 1, "said once: {}", daemon.log());
            site.dcd("drain --control ctl").ok();
            site.dcd("flush --control ctl").ok();
            let found = client.read_all().unwrap();
            assert_eq!(difference(&found, &load.volume), None);
            drop(client);
            daemon.assert_no_panic();
            match end {
                "stop" => daemon.stop(),
                "detach" => {
                    let told = site.dcd("detach --control ctl").ok();
                    assert!(told.contains("could not be marked"), "{told}");
                }
                _ => daemon.kill(),
            }
            if end == "power cut" {
                remove_segment_memory(&site);
            }
            site.faults("cache-faults", "");
            assert!(site.dcd("check --cache-disk c").ok().contains("the log is empty"));
            if end == "power cut" {
                // The boot is the same: it would be refused.
                site.serve(&format!("{LAZY} --memory-lost")).stop();
            }
            load.verify(&site);
        }
    }
}

/// A file of which somebody cuts the end off is as good as gone, clean or not: what is flushed is
/// on the data-disk, or the flush fails.
#[test]
fn a_cache_disk_that_is_cut_off_proves_nothing() {
    let cut = |site: &Site| {
        let file = std::fs::File::options().write(true).open(site.path("c")).unwrap();
        file.set_len(600 << 10).unwrap();
    };
    // Clean: it is done without.
    let site = site();
    let daemon = site.serve("--quiet --idle-max 20ms --idle-min 1ms");
    let mut client = Client::connect(&site.socket());
    until("it is clean", || (site.status()["cache_disk_clean"] == true).then_some(()));
    cut(&site);
    let mut load = Load::new(141);
    load.run(&mut client, 60);
    assert_eq!(site.status()["uncached"], "passing-through", "{}", daemon.log());
    drop(client);
    daemon.kill();
    let found = std::fs::read(site.path("d")).unwrap();
    assert_eq!(difference(&found, &load.volume), None);
    // Dirty: nothing is promised any more.
    let site = self::site();
    let daemon = site.serve(LAZY);
    let mut client = Client::connect(&site.socket());
    client.write(0, &[7; 4096]).unwrap();
    client.flush().unwrap();
    cut(&site);
    client.write(8192, &[8; 4096]).unwrap();
    assert!(client.flush().is_err());
    assert!(site.dcd("status --control ctl").ok().contains("cache-disk has failed"));
    drop(client);
    for verb in ["drain", "detach"] {
        let outcome = site.dcd(&format!("{verb} --control ctl --json"));
        assert_eq!(outcome.code, Some(5), "{verb}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("\"disk-failed\""), "{verb}: {}", outcome.stderr);
    }
    daemon.kill();
}

/// The same of a data-disk: what would be destaged stays dirty, and whoever waits for it is told.
#[test]
fn a_data_disk_that_is_cut_off_takes_nothing() {
    let site = site();
    let daemon = site.serve(&format!("{LAZY} --drain-timeout 4s"));
    let mut client = Client::connect(&site.socket());
    client.write(0, &[7; 4096]).unwrap();
    let file = std::fs::File::options().write(true).open(site.path("d")).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes / 2).unwrap();
    let drain = site.dcd("drain --control ctl");
    assert_eq!(drain.code, Some(8), "{}", drain.stderr);
    assert_eq!(site.status()["destage_error"], "gone");
    assert_ne!(site.status()["dirty_bytes"], 0);
    client.flush().expect("it is in the log");
    // Somebody makes it whole again: what was dirty goes there.
    file.set_len(bytes).unwrap();
    site.dcd("drain --control ctl").ok();
    drop(client);
    daemon.kill();
    assert_eq!(std::fs::read(site.path("d")).unwrap()[..4096], [7; 4096]);
}

/// C4 and C23: acknowledged in memory, the cache-disk is found gone, and the process dies at some
/// moment of the change: it is there.
#[test]
fn what_is_in_memory_when_the_cache_disk_is_gone_survives_the_process() {
    for pause in [0, 1, 5, 20, 60, 120] {
        let site = site();
        let (daemon, mut client, mut load) = without_a_cache(&site, "memory", 121);
        for _ in 0..20 {
            let op = load.mix.op(&mut load.random);
            client.do_op(&op).unwrap_or_else(|e| panic!("{op:?}: {e:?}\n{}", daemon.log()));
            op.apply(&mut load.volume);
        }
        std::thread::sleep(Duration::from_millis(pause));
        daemon.assert_no_panic();
        daemon.kill();
        site.faults("cache-faults", "");
        load.verify(&site);
    }
}

/// As a power cut takes it.
fn remove_segment_memory(site: &Site) {
    for entry in std::fs::read_dir(site.path("")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().ends_with(".segments") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}
