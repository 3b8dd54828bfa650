//! What people are told of a store that says no, or that another dcd has.

use std::fs;
use std::time::{Duration, Instant};

use super::gateway::{Gateway, Refusal};
use super::harness::nbd::Client;
use super::harness::until;
use super::{FLAGS, InStore, serve_beside};

const FULL: Refusal = Refusal {
    path: "/",
    status: "507 Insufficient Storage",
    code: "XMinioStorageFull",
    message: "Storage backend has reached its minimum free drive threshold",
};
const QUOTA: Refusal =
    Refusal { path: "/", status: "403 Forbidden", code: "QuotaExceeded", message: "no more of it" };
/// Of the map alone: what is written there is asked for until it ends.
const REFUSED: Refusal = Refusal {
    path: "/map/",
    status: "403 Forbidden",
    code: "AccessDenied",
    message: "Access Denied.",
};

/// Within seconds of the first answer, wherever people look; and it goes on by itself.
#[test]
fn a_store_that_says_no_is_told_as_what_it_is() {
    let Some(mut it) = InStore::in_bucket("a_store_that_says_no_is_told_as_what_it_is") else {
        return;
    };
    let gateway = Gateway::start(it.server.as_ref().unwrap().port);
    it.site.variables[0].1 = format!("http://127.0.0.1:{}", gateway.port);
    it.create("--size 4M");
    let daemon = it.site.serve_disks("c", &it.store, &format!("{FLAGS} --drain-timeout 16s"));
    let mut client = Client::connect(&it.site.socket());
    client.write(0, &[1; 8192]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    assert_eq!(it.site.status()["store"]["state"], "ready");
    let mut byte = 1;
    for (refusal, state, words, hint) in [
        (FULL, "full", "is full: cannot write the object ", "make room"),
        (REFUSED, "refused", "refuses: cannot write the object ", "let the key"),
        (QUOTA, "full", "403 QuotaExceeded: no more of it", "raise the quota"),
    ] {
        byte += 1;
        gateway.says(Some(refusal));
        client.write(4096, &[byte; 4096]).unwrap();
        client.flush().unwrap();
        let (began, before) = (Instant::now(), daemon.log().len());
        let store = until("its status has it", || {
            let store = it.site.status()["store"].clone();
            (store["state"] == state).then_some(store)
        });
        let took = began.elapsed();
        println!("{state} after {took:?}: {store}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        let said = format!("{} {}", &refusal.status[..3], refusal.code);
        let problem = store["problem"].as_str().unwrap();
        assert!(problem.contains(words) && problem.contains(&said), "{problem}");
        let shown = it.site.dcd("status --control ctl").ok();
        assert!(shown.contains(words) && shown.contains(hint), "{shown}");
        let listed = it.site.dcd("list --json --memory-directory .").ok();
        assert!(listed.contains(words), "{listed}");
        let metrics = it.site.dcd("metrics --control ctl").ok();
        let metric = format!("dcd_store_trouble{{kind=\"{state}\"}} 1");
        assert!(metrics.contains(&metric), "{metrics}");
        // A person who waits reads what for, and at the end why, and what to do.
        let drained = it.site.dcd("drain --control ctl");
        assert_eq!(drained.code, Some(8), "{} {}", drained.stdout, drained.stderr);
        for wanted in ["dcd: draining waits: ", words, &said, hint, "not drained"] {
            assert!(drained.stderr.contains(wanted), "{wanted:?} in {}", drained.stderr);
        }
        let log = daemon.log()[before..].to_owned();
        assert!(log.contains(words) && log.contains(hint), "{log}");
        for text in [&shown, &drained.stderr, &log] {
            assert!(!text.contains("does not answer"), "{text}");
        }
        // The log takes changes all the while.
        client.write(8192, &[byte; 4096]).unwrap();
        client.flush().unwrap();
        gateway.says(None);
        until("it goes on by itself", || {
            let status = it.site.status();
            (status["store"]["state"] == "ready" && status["dirty_bytes"] == 0).then_some(())
        });
        it.site.dcd("drain --control ctl").ok();
        assert_eq!(it.image()[..12288], [[1; 4096], [byte; 4096], [byte; 4096]].concat());
        assert_eq!(it.site.dcd("status --control ctl").ok().matches(words).count(), 0);
    }
    daemon.stop();
}

/// versitygw with `--sidecar` has attributes of an object that it has not, when it was killed in
/// its PUT: it is there for whoever writes it, and not for whoever reads it. Nothing is written
/// behind that, and the store goes on as soon as the server is mended as the hint says.
#[test]
fn a_server_that_says_two_things_of_an_object_is_told_of() {
    let test = "a_server_that_says_two_things_of_an_object_is_told_of";
    let Some(mut it) = InStore::in_bucket(test) else { return };
    let sidecar = it.site.path("sidecar");
    fs::create_dir_all(&sidecar).unwrap();
    let server = it.server.as_mut().unwrap();
    server.stop();
    server.flags = vec!["--sidecar".into(), sidecar.display().to_string()];
    server.start();
    it.create("--size 4M");
    let daemon = it.serve();
    Client::connect(&it.site.socket()).write(0, &[1; 8192]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    daemon.stop();

    let log = format!("{}/map/wal", &it.store["s3://".len()..]);
    let last = || {
        let there = fs::read_dir(it.site.path(&format!("s3/{log}"))).unwrap();
        let names = there.map(|it| it.unwrap().file_name().into_string().unwrap());
        names.max().unwrap()
    };
    let before = last();
    let number: u64 = before.strip_suffix(".sst").unwrap().parse().unwrap();
    let half = format!("{log}/{:020}.sst", number + 1);
    fs::create_dir_all(sidecar.join(&half).join("meta")).unwrap();
    fs::write(sidecar.join(&half).join("meta/etag"), "\"0123\"").unwrap();
    let object = half.strip_prefix("bucket/").unwrap();
    let serve = format!("serve --cache-disk c --data-disk {} --nbd unix:sock", it.store);
    for _ in 0..2 {
        it.refused(
            &serve,
            &[object, "both that it is there and that it is not", "without --sidecar"],
        );
        assert_eq!(last(), before, "something was written behind it");
    }
    fs::remove_dir_all(sidecar.join(&half)).unwrap();
    let daemon = it.serve();
    let mut client = Client::connect(&it.site.socket());
    assert_eq!(client.read(0, 8192).unwrap(), [1; 8192]);
    client.write(4096, &[2; 4096]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    assert_eq!(it.image()[..8192], [[1; 4096], [2; 4096]].concat());

    // It happens to whoever serves the store, too, of which nothing has to be started anew.
    let number: u64 = last().strip_suffix(".sst").unwrap().parse().unwrap();
    // A lease may be renewed meanwhile.
    let halves = [1, 2, 3].map(|more| sidecar.join(format!("{log}/{:020}.sst", number + more)));
    for half in &halves {
        fs::create_dir_all(half.join("meta")).unwrap();
        fs::write(half.join("meta/etag"), "\"0123\"").unwrap();
    }
    client.write(0, &[3; 4096]).unwrap();
    client.flush().unwrap();
    until("its status tells it", || {
        let shown = it.site.dcd("status --control ctl").ok();
        shown.contains("both that it is there and that it is not").then_some(())
    });
    for half in &halves {
        let _ = fs::remove_dir_all(half);
    }
    it.site.dcd("drain --control ctl").ok();
    assert_eq!(it.image()[..8192], [[3; 4096], [2; 4096]].concat());
    daemon.stop();
}

/// Trying again is of no use then, and `dcd salvage` has what is nowhere else; not into the store,
/// which others serve.
#[test]
fn whoever_is_shut_out_is_told_by_whom_and_what_is_left() {
    let it = InStore::in_directory();
    it.create("--size 4M");
    let old = it.serve();
    let mut client = Client::connect(&it.site.socket());
    client.write(0, &[1; 8192]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    let same = it.another_name();
    fs::write(it.site.path("c2"), vec![0; 5 << 20]).unwrap();
    let new = serve_beside(&it, "c2", &same, "--take-over=now");
    let owner = it.info()["cache"].as_str().unwrap().to_owned();
    client.write(4096, &[2; 4096]).unwrap();
    client.flush().unwrap();
    let store = until("its status has it", || {
        let store = it.site.status()["store"].clone();
        (store["state"] == "taken-over").then_some(store)
    });
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let who = format!("it belongs to cache {owner} now on {} (", host.trim());
    assert!(store["problem"].as_str().unwrap().contains(&who), "{store}");
    let words = [who.as_str(), "trying again is of no use", "dcd salvage --cache-disk"];
    let has_all = |text: &str| {
        for wanted in words {
            assert!(text.contains(wanted), "{wanted:?} in {text}");
        }
        for wrong in ["tried again", "does not answer", "`dcd drain` again"] {
            assert!(!text.contains(wrong), "{wrong:?} in {text}");
        }
    };
    has_all(&it.site.dcd("status --control ctl").ok());
    drop(client);
    let began = Instant::now();
    for verb in ["drain", "detach"] {
        let outcome = it.site.dcd(&format!("{verb} --control ctl"));
        assert_eq!(outcome.code, Some(8), "{} {}", outcome.stdout, outcome.stderr);
        has_all(&outcome.stderr);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let listed = it.site.dcd("list --json --memory-directory .").ok();
    assert!(listed.contains(&who), "{listed}");
    let metrics = it.site.dcd("metrics --control ctl").ok();
    assert!(metrics.contains("dcd_store_trouble{kind=\"taken-over\"} 1"), "{metrics}");
    assert!(old.log().contains(words[1]), "{}", old.log());
    old.kill();

    // What it has is got back, and not into what somebody else serves.
    let into = it.site.dcd(&format!("salvage --cache-disk c --data-disk {}", it.store));
    assert_eq!(into.code, Some(1), "{}", into.stderr);
    for wanted in ["nothing is salvaged to the store", &owner, "a dcd serves it", "--to FILE"] {
        assert!(into.stderr.contains(wanted), "{wanted:?} in {}", into.stderr);
    }
    it.site.dcd("salvage --cache-disk c --to found").ok();
    assert_eq!(fs::read(it.site.path("found")).unwrap()[4096..8192], [2; 4096]);
    assert_eq!(it.image()[4096..8192], [1; 4096], "nobody has touched the store");
    new.stop();
}

/// The length of a lease is chosen when the store is taken, and holds for all who have it.
#[test]
fn a_lease_is_as_long_as_somebody_has_chosen() {
    let it = InStore::in_directory();
    let line = |lease: &str| {
        format!(
            "create --cache-disk c --cache-size 5M --size 4M --data-disk {} --lease {lease}",
            it.store
        )
    };
    for wrong in ["0s", "9s", "10500ms", "11m", "1000000000s"] {
        let outcome = it.site.dcd(&line(wrong));
        assert_eq!(outcome.code, Some(2), "{wrong}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("10s to 600s"), "{wrong}: {}", outcome.stderr);
        assert!(!it.site.path("c").exists());
    }
    it.site.folder.disk("d", 4 << 20);
    it.refused("create --cache-disk c --cache-size 5M --data-disk d --lease 10s", &["--lease"]);
    it.create("--size 4M --lease 10s");
    assert_eq!(it.info()["lease_seconds"], 10);
    let daemon = it.serve();
    Client::connect(&it.site.socket()).write(0, &[1; 4096]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    let shown = it.site.dcd("status --control ctl").ok();
    assert!(shown.contains("its lease of 10s is held"), "{shown}");
    // Renewed each third of it: others always see more than half, with what clocks may differ by.
    for _ in 0..6 {
        std::thread::sleep(Duration::from_secs(2));
        let left = it.info()["lease_left_seconds"].as_u64().unwrap();
        assert!((15..=20).contains(&left), "{left}");
        assert_eq!(it.site.status()["store"]["lease"], "held");
    }
    daemon.kill_group();
    let began = Instant::now();
    let same = it.another_name();
    fs::write(it.site.path("c2"), vec![0; 5 << 20]).unwrap();
    until("the lease has ended", || it.info()["lease_left_seconds"].is_null().then_some(()));
    assert!(began.elapsed() <= Duration::from_secs(21), "{:?}", began.elapsed());
    // Whoever takes it has it for as long, and another length if that is chosen.
    serve_beside(&it, "c2", &same, "--take-over").stop();
    assert_eq!(it.info()["lease_seconds"], 10);
    let create = "create --cache-disk c3 --cache-size 5M --take-over --data-disk";
    it.site.dcd(&format!("{create} {} --lease 2m", it.store)).ok();
    assert_eq!(it.info()["lease_seconds"], 120);
}
