//! Proves on the real program that with `--destage-policy ordered` whatever the window hook has
//! kept of the data-disk is the state after some number of the requests, each whole, in their order
//! (C75); that nothing is written to the data-disk while the hook runs or fails; and that what does
//! not go together with it is refused.

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness::model::{Mix, Op, difference, find_prefix};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Site, cycles, random, seed, until};
use rustix::process::{Pid, Signal};

const MIX: Mix =
    Mix { volume: 4 << 20, sectors_max: 64, flush_every: 40, fua_every: 20, zero_every: 12 };
/// A small cache, so that windows are cut because it is half full, too.
const FLAGS: &str = "--quiet --idle-max 20ms --idle-min 1ms --segment-buffers 4 --one-disk no \
                     --destage-policy ordered --window-hook ./hook --ship-within 200ms";

fn site() -> Site {
    let site = Site::with("5M", MIX.volume, "--segment-size 64k");
    fs::create_dir(site.path("kept")).unwrap();
    hook(&site, "cp --reflink=auto \"$DCD_DATA_DISK\" new && mv new kept/$DCD_WINDOW");
    site
}

fn hook(site: &Site, command: &str) {
    let new = site.path("hook.new");
    fs::write(&new, format!("#!/bin/sh\n{command}\n")).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, site.path("hook")).unwrap();
}

/// Numbers of the windows that were kept, ascending.
fn kept(site: &Site) -> Vec<u64> {
    let names = fs::read_dir(site.path("kept")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut windows: Vec<u64> = names.map(|it| it.to_str().unwrap().parse().unwrap()).collect();
    windows.sort_unstable();
    windows
}

/// Requests one after the other and `kill -9` with one of them under way, again and again; each
/// time the cache-disk might be thrown away, and what was kept last counts.
#[test]
fn what_is_kept_is_a_point_of_the_order() {
    let seed = seed() ^ 0x6f72;
    let mut random = Random::new(seed);
    let site = site();
    // Those that no window has shown yet, behind `base`, which the last one shows.
    let mut ops: Vec<Op> = Vec::new();
    let mut pending: Option<Op> = None;
    let mut volume = vec![0; MIX.volume as usize];
    let (mut windows, mut requests) = (0, 0);
    let mut base = volume.clone();
    for kill in 0..cycles(12, 40) {
        let daemon = site.serve(FLAGS);
        let mut client = Client::connect(&site.socket());
        let found = client.read_all().unwrap();
        if let Some(op) = pending.take()
            && difference(&found, &volume).is_some()
        {
            op.apply(&mut volume);
            ops.push(op);
        }
        assert_eq!(difference(&found, &volume), None, "seed {seed}, before kill {kill}");
        for _ in 0..20 + random.below(300) {
            let op = MIX.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("seed {seed}, {kill}, {op:?}: {e:?}"));
            op.apply(&mut volume);
            ops.push(op);
            requests += 1;
        }
        if random.once_in(3) {
            site.dcd("drain --control ctl").ok();
            let last = *kept(&site).last().expect("a drain ends with a window");
            let image = fs::read(site.path(&format!("kept/{last}"))).unwrap();
            assert_eq!(difference(&image, &volume), None, "seed {seed}, window {last}");
        }
        let op = MIX.op(&mut random);
        client.send_op(&op).unwrap();
        pending = Some(op);
        daemon.kill();
        // The one under way may be in the last window.
        let with_pending: Vec<Op> = ops.iter().chain(&pending).cloned().collect();
        let mut shown = 0;
        for window in kept(&site) {
            let path = site.path(&format!("kept/{window}"));
            let image = fs::read(&path).unwrap();
            let point = find_prefix(&image, &base, &with_pending[shown..])
                .unwrap_or_else(|e| panic!("seed {seed}, kill {kill}, window {window}: {e}"));
            // Later windows show no less.
            shown += point;
            base = image;
            windows += 1;
            fs::remove_file(path).unwrap();
        }
        let _ = fs::remove_file(site.path("new"));
        if shown > ops.len() {
            // It was in a window, so it is durable.
            pending.take().expect("it is shown").apply(&mut volume);
        }
        ops.drain(..shown.min(ops.len()));
    }
    println!("{windows} windows, {requests} requests, seed {seed}");
    assert!(windows >= 12, "{windows} windows");
}

/// Nothing is written to the data-disk before the hook has ended well; it is tried again, told in
/// the status and once in the log, and a drain waits for it.
#[test]
fn a_hook_that_fails_holds_the_data_disk_as_it_is() {
    let site = site();
    hook(&site, "echo no room for a snapshot >&2; exit 3");
    let daemon = site.serve(&format!("{FLAGS} --drain-timeout 4s"));
    let mut client = Client::connect(&site.socket());
    let mut random = Random::new(seed());
    client.write(0, &random.bytes(8192)).unwrap();
    let failing = until("the hook fails", || {
        let ordered = site.status()["ordered"].clone();
        (ordered["failures"].as_u64()? >= 2).then_some(ordered)
    });
    assert_eq!(failing["problem"], "exit status 3: no room for a snapshot");
    assert_eq!(failing["state"], "failing");
    let before = random::sum_of_file(&site.path("d"));
    for place in 0..40 {
        client.write(place * 8192, &random.bytes(8192)).unwrap();
    }
    client.flush().unwrap();
    let drain = site.dcd("drain --control ctl");
    assert_ne!(drain.code, Some(0), "{}", drain.stdout);
    assert!(drain.stderr.contains("window hook"), "{}", drain.stderr);
    assert_eq!(random::sum_of_file(&site.path("d")), before, "the data-disk stays as it is");
    let log = daemon.log();
    assert_eq!(log.matches("no room for a snapshot").count(), 1, "{log}");
    assert!(site.status()["ordered"]["behind_seconds"].as_f64().unwrap() > 0.3);

    hook(&site, "cp \"$DCD_DATA_DISK\" new && mv new kept/$DCD_WINDOW");
    site.dcd("drain --control ctl").ok();
    let last = *kept(&site).last().unwrap();
    let image = fs::read(site.path(&format!("kept/{last}"))).unwrap();
    assert_eq!(difference(&image, &client.read_all().unwrap()), None);
    let status = site.status();
    assert_eq!(status["ordered"]["last_window"], last);
    assert_eq!(status["ordered"]["behind_seconds"], 0.0);
    assert_eq!(status["ordered"]["problem"], serde_json::Value::Null);
    assert!(daemon.log().contains("ended well again"));
    daemon.stop();
}

/// One that hangs is killed, with what it has started; and so it is when the daemon dies, before
/// the next one may write.
#[test]
fn a_hook_that_hangs_is_killed() {
    let site = site();
    hook(&site, "echo $$ > new && mv new pid; sleep 1000; true");
    let alive = || {
        let pid = fs::read_to_string(site.path("pid")).ok()?;
        fs::metadata(format!("/proc/{}", pid.trim())).ok()
    };
    let daemon = site.serve(&format!("{FLAGS} --window-hook-timeout 300ms"));
    until("it is given up", || {
        let problem = site.status()["ordered"]["problem"].as_str()?.to_owned();
        problem.contains("longer than 300ms").then_some(())
    });
    daemon.kill();
    let daemon = site.serve(&format!("{FLAGS} --window-hook-timeout 1000s"));
    until("the next one runs", alive);
    daemon.kill();
    until("it is killed with the daemon", || alive().is_none().then_some(()));
    hook(&site, "cp \"$DCD_DATA_DISK\" new && mv new kept/$DCD_WINDOW");
    let daemon = site.serve(FLAGS);
    until("the first window is kept again", || (!kept(&site).is_empty()).then_some(()));
    daemon.stop();
}

/// A hook that is killed because dcd ends has not failed: neither by dcd itself, nor by whoever
/// stops all processes of a service at once.
#[test]
fn a_hook_that_ends_with_dcd_has_not_failed() {
    let site = site();
    hook(&site, "echo $$ > new && mv new pid; exec sleep 1000");
    let term = |pid: i32| {
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    };
    for all_at_once in [false, true] {
        let _ = fs::remove_file(site.path("pid"));
        let mut daemon = site.serve(&format!("{FLAGS} --window-hook-timeout 1000s"));
        Client::connect(&site.socket()).write(0, &[7; 4096]).unwrap();
        let pid = until("it runs", || fs::read_to_string(site.path("pid")).ok());
        if all_at_once {
            let children = format!("/proc/{0}/task/{0}/children", daemon.pid().as_raw_nonzero());
            let children = fs::read_to_string(children).unwrap();
            term(pid.trim().parse().unwrap());
            children.split_whitespace().for_each(|pid| term(pid.parse().unwrap()));
            // The hook has ended before the daemon hears of it.
            std::thread::sleep(std::time::Duration::from_millis(400));
        }
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.wait_code(), Some(0), "{}", daemon.log());
        assert!(!daemon.log().contains("hook has failed"), "{}", daemon.log());
    }
}

/// The process that runs the hook dies while one runs: that is told, and nothing is written to the
/// data-disk.
#[test]
fn a_keeper_that_dies_is_told_of() {
    let site = site();
    hook(&site, "echo $$ > new && mv new pid; sleep 1000; true");
    let daemon = site.serve(&format!("{FLAGS} --window-hook-timeout 1000s"));
    let hook_pid = until("it runs", || fs::read_to_string(site.path("pid")).ok());
    let keeper = until("the keeper is found", || {
        let is_keeper = |pid: &str| {
            let of = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
            let parent = format!("PPid:\t{}\n", daemon.pid().as_raw_nonzero());
            Some(of("cmdline")?.contains("window-keeper") && of("status")?.contains(&parent))
        };
        let mut pids = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|it| it.unwrap().file_name().into_string().ok());
        pids.find(|pid| is_keeper(pid) == Some(true))
    });
    let kill = |pid: &str| {
        let pid: i32 = pid.trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    };
    kill(&keeper);
    until("it is told", || {
        let problem = site.status()["ordered"]["problem"].as_str()?.to_owned();
        problem.contains("start dcd again").then_some(())
    });
    assert!(daemon.log().contains("the window hook cannot be run"), "{}", daemon.log());
    kill(&hook_pid);
    daemon.kill();
}

#[test]
fn what_has_no_order_is_refused() {
    let site = site();
    let refused = |flags: &str, words: &str| {
        let line = "serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory .";
        let before = site.disks();
        let outcome = site.dcd(&format!("{line} {flags}"));
        assert_eq!(outcome.code, Some(1), "{flags}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(words), "{flags}: {}", outcome.stderr);
        assert_eq!(site.disks(), before);
    };
    let ordered = "--destage-policy ordered --window-hook ./hook";
    refused("--destage-policy ordered", "window-hook");
    refused(&format!("{ordered} --mode write-around"), "write-back");
    refused(&format!("{ordered} --no-log"), "write-back");
    refused(&format!("{ordered} --index-max 64M"), "index-max");
    refused(&format!("{ordered} --ship-within 1ms"), "ship-within");
    refused("--window-hook ./hook --window-hook-timeout 0s", "window-hook-timeout");

    let daemon = site.serve("--quiet --window-hook ./hook");
    assert!(kept(&site).is_empty(), "nothing is shipped in order");
    site.dcd("set --control ctl destage-policy=ordered ship-within=200ms").ok();
    until("the first window", || (!kept(&site).is_empty()).then_some(()));
    let refused = site.dcd("set --control ctl mode=pass-through");
    assert!(refused.code != Some(0) && refused.stderr.contains("write-back"), "{}", refused.stderr);
    site.dcd("set --control ctl destage-policy=first-write-first mode=pass-through").ok();
    daemon.stop();
    let daemon = site.serve("--quiet");
    let refused = site.dcd("set --control ctl destage-policy=ordered");
    assert!(
        refused.code != Some(0) && refused.stderr.contains("window-hook"),
        "{}",
        refused.stderr
    );
    daemon.stop();
}
