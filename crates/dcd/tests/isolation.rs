//! Proves that `--cpu` keeps the serving thread on its processor, that `--memory-max` refuses what
//! may come to need more and bounds the number of clients, and that `--null` serves the data-disk
//! without a cache.

mod harness;

use std::fs;

use harness::nbd::Client;
use harness::{Site, until};
use rustix::thread::CapabilitySet;

/// The processors that the thread named like this may run on.
fn allowed(pid: i32, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lines = tasks.flatten().filter_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let named = status.lines().next()?.split_whitespace().nth(1)? == name;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        named.then(|| line.trim().to_owned())
    });
    lines.collect()
}

/// The processors that the first thread may run on: others have its name, too, until they take
/// their own.
fn allowed_first(pid: i32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

fn first_processor() -> String {
    let own = allowed(rustix::process::getpid().as_raw_nonzero().get(), "isolation");
    let own = own.first().cloned().unwrap_or_else(|| "0".into());
    own.split([',', '-']).next().unwrap().to_owned()
}

#[test]
fn the_serving_thread_stays_on_its_processor_and_others_do_not() {
    let site = Site::new("8M", 16 << 20);
    let cpu = first_processor();
    let daemon = site.serve(&format!("--quiet --cpu {cpu}"));
    let pid = daemon.pid().as_raw_nonzero().get();
    assert_eq!(allowed_first(pid), cpu);
    until("the other threads run", || (allowed(pid, "dcd-control").len() == 1).then_some(()));
    let mut client = Client::connect(&site.socket());
    client.write(4096, &[7; 4096]).unwrap();
    assert_eq!(client.read(4096, 4096).unwrap(), [7; 4096]);
    daemon.stop();
    let line = "serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory . --cpu 9999";
    site.dcd(line).fails(1, "processor 9999 is not among", "nproc");
}

#[test]
fn too_little_memory_is_refused_with_the_sum() {
    let site = Site::with("64M", 64 << 20, "--read-area 8M");
    let before = site.disks();
    let line =
        "serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory . --memory-max";
    site.dcd(&format!("{line} 64M")).fails(1, "segment buffers", "allow at least");
    assert_eq!(site.disks(), before, "nothing was written");
    let Some(least) = least_of(&site.dcd(&format!("{line} 1M")).stderr) else {
        panic!("a hint with a size");
    };
    // With what the hint says there is room for one client.
    let daemon = site.serve(&format!("--quiet --memory-max {least}M"));
    let first = Client::connect(&site.socket());
    assert!(Client::try_connect(&site.socket()).is_err(), "there is room for one");
    let status = site.status();
    let of = |name: &str| status[name].as_u64().unwrap_or(0);
    let used = of("index_bytes") + status["copies"]["memory_bytes"].as_u64().unwrap();
    assert!(used < least << 20, "{used}");
    drop(first);
    until("the first has gone", || Client::try_connect(&site.socket()).ok());
    daemon.stop();
}

/// What is counted at worst is what a real run takes: of two caches, full of lines, more with each
/// slot than the other, never more than is counted, also while it writes a checkpoint and while it
/// starts after `kill -9`.
#[test]
fn memory_max_counts_what_is_used() {
    // Neither clean lines nor sequences are in it, so what is left can be seen.
    const FLAGS: &str =
        "--quiet --idle-max 1h --idle-min 1h --dirty-high 95 --dirty-low 95 --no-hot-blocks";
    let mut measured = Vec::new();
    for mib in [64u64, 1024] {
        let site = Site::new(&format!("{mib}M"), 1 << 30);
        let line = format!(
            "serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory . {FLAGS} --memory-max 1M"
        );
        let told = site.dcd(&line).stderr;
        // Without the one NBD client, whose requests are small here.
        let counted = (least_of(&told).unwrap() - 64) << 20;
        let daemon = site.serve(FLAGS);
        let mut client = Client::connect(&site.socket());
        for piece in 0..mib * 8 / 10 * 2 {
            client.write(piece << 19, &[piece as u8; 512 << 10]).unwrap();
        }
        // One line in eight lies in two slots.
        for line in 0..mib * 8 {
            client.write(line << 15, &[1; 512]).unwrap();
        }
        client.flush().unwrap();
        drop(client);
        let served = most_used(&daemon);
        daemon.kill();
        let daemon = site.serve(FLAGS);
        let started = most_used(&daemon);
        daemon.stop();
        println!("{mib} MiB: counted {counted}, serving {served}, starting {started}");
        let used = served.max(started);
        assert!(used <= counted, "{mib} MiB: {used} used, {counted} counted: {told}");
        measured.push((mib << 8, used, counted));
    }
    let [(small, small_used, small_counted), (large, large_used, large_counted)] = measured[..]
    else {
        unreachable!("two sizes")
    };
    // For each slot: the program and its buffers hide nothing of this. A MiB is nobody's.
    let slots = large - small;
    let used = large_used.saturating_sub(small_used + (1 << 20)) as f64 / slots as f64;
    let counted = (large_counted - small_counted) as f64 / slots as f64;
    println!("for each slot: used {used:.1}, counted {counted:.1}");
    assert!(used <= counted && used >= counted / 10.0, "{used:.1} used, {counted:.1} counted");
}

/// The most memory that it ever had, in bytes.
fn most_used(daemon: &harness::Daemon) -> u64 {
    let path = format!("/proc/{}/status", daemon.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// `allow at least 142 MiB`.
fn least_of(hint: &str) -> Option<u64> {
    let (_, rest) = hint.split_once("allow at least ")?;
    let (number, unit) = rest.split_once(' ')?;
    assert!(unit.starts_with("MiB"), "{hint}");
    Some(number.parse::<f64>().ok()?.ceil() as u64)
}

/// That it can do nothing else is shown where the rules are (`confine.rs`); this shows that they
/// hold while it serves, and that all that is done later is within them: a drain, a check-point, an
/// end that removes its sockets and its memory.
#[test]
fn what_serves_gives_up_other_rights() {
    let site = Site::new("8M", 16 << 20);
    let daemon = site.serve("--quiet");
    let is_confined = site.status()["isolation"]["files_confined"].as_bool().unwrap();
    let text = site.dcd("status --control ctl").ok();
    assert_eq!(text.contains("files confined"), is_confined, "{text}");
    let isolation = site.status()["isolation"].clone();
    let held = u64::from_str_radix(isolation["capabilities"].as_str().unwrap(), 16).unwrap();
    let needed = CapabilitySet::DAC_OVERRIDE | CapabilitySet::IPC_LOCK;
    assert_eq!(held & !needed.bits(), 0, "{isolation}");
    if isolation["system_calls_filtered"].as_bool().unwrap() {
        assert!(text.contains("system calls filtered"), "{text}");
    }
    let mut client = Client::connect(&site.socket());
    client.write(4096, &[5; 4096]).unwrap();
    client.flush().unwrap();
    site.dcd("drain --control ctl").ok();
    drop(client);
    daemon.stop();
    let left = fs::read_dir(site.path(".")).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> =
        left.filter(|name| name != "c" && name != "d" && name != "dcd.log").collect();
    assert!(left.is_empty(), "{left:?}");
    if !is_confined {
        harness::skipped("what_serves_gives_up_other_rights", "this kernel has no Landlock");
    }
}

#[test]
fn without_its_log_a_cache_is_its_data_disk() {
    let site = Site::new("8M", 16 << 20);
    let daemon = site.serve("--quiet");
    Client::connect(&site.socket()).write(4096, &[5; 4096]).unwrap();
    daemon.stop();
    let line = "serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory . --no-log";
    site.dcd(line).fails(1, "holds what is not on the data-disk yet", "dcd drain");
    let daemon = site.serve("--quiet");
    site.dcd("drain --control ctl").ok();
    daemon.stop();
    let daemon = site.serve("--quiet --no-log");
    let mut client = Client::connect(&site.socket());
    client.write(8192, &[9; 4096]).unwrap();
    assert_eq!(fs::read(site.path("d")).unwrap()[8192..8192 + 4096], [9; 4096]);
    assert_eq!(site.status()["uncached"], "passing-through");
    assert_eq!(site.status()["cache_disk_failed"], false);
    let text = site.dcd("status --control ctl").ok();
    assert!(text.contains("serves without its log"), "{text}");
    drop(client);
    daemon.stop();
    let daemon = site.serve("--quiet");
    assert_eq!(Client::connect(&site.socket()).read(8192, 4096).unwrap(), [9; 4096]);
    daemon.stop();
}

#[test]
fn the_null_layer_is_the_data_disk() {
    let site = Site::empty();
    site.folder.disk("d", 16 << 20);
    let cpu = first_processor();
    let line =
        format!("serve --null --data-disk d --nbd unix:sock --control ctl --cpu {cpu} --quiet");
    let daemon = site.start_line(&line).ready();
    let mut client = Client::connect(&site.socket());
    client.write(8192, &[9; 4096]).unwrap();
    client.flush().unwrap();
    assert_eq!(fs::read(site.path("d")).unwrap()[8192..8192 + 4096], [9; 4096]);
    assert_eq!(allowed_first(daemon.pid().as_raw_nonzero().get()), cpu);
    drop(client);
    daemon.stop();
    // Read-only as with a cache.
    let daemon = site.start_line(&format!("{line} --read-only")).ready();
    assert!(Client::connect(&site.socket()).write(0, &[1; 4096]).is_err());
    daemon.stop();
    site.dcd("serve --null --data-disk d --cache-disk c --nbd unix:sock").fails(
        1,
        "--cache-disk is only for serving without --null",
        "leave --cache-disk out",
    );
    for flag in ["--ack durable", "--bypass-threshold 4k", "--no-log", "--degraded"] {
        let name = flag.split(' ').next().unwrap();
        let line = format!("serve --null --data-disk d --nbd unix:sock {flag}");
        let only = format!("{name} is only for serving without --null");
        site.dcd(&line).fails(1, &only, &format!("leave {name} out"));
    }
    site.dcd("serve --null --data-disk d").fails(1, "nothing to serve on", "--nbd");
    site.dcd("serve --null --nbd unix:sock").fails(1, "--data-disk is not set", "--data-disk");
}
