//! Proves on the real program that bad input is refused in one line with a hint and the documented
//! exit code, that nothing is written when it is, and that damage is never served as data: wrong,
//! foreign and stale caches, swapped, cut and bit-flipped disks, disks that changed behind the
//! cache, NBD peers that lie about lengths.

mod harness;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use harness::nbd::{Client, Failure};
use harness::random::Random;
use harness::{Outcome, Site, Value, assert_no_panic, cycles, seed};

const MIB: u64 = 1 << 20;
const LAZY: &str = "--quiet --idle-max 1h --idle-min 1h";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn serve_line(cache: &str, data: &str) -> String {
    format!(
        "serve --cache-disk {cache} --data-disk {data} --nbd unix:sock --memory-directory . --quiet"
    )
}

/// Refused with this, and neither disk nor anything else changed.
fn refused(site: &Site, line: &str, code: i32, error: &str, hint: &str) {
    let before = site.disks();
    let outcome = site.dcd(line);
    assert_no_panic(&outcome.stderr);
    outcome.fails(code, error, hint);
    assert!(site.disks() == before, "{line}: a disk was written to");
}

/// A cache with dirty lines: line n holds n+1, on the data-disk 200. Memory is gone, as after a
/// power cut, and nothing was acknowledged from it.
fn dirty_site() -> Site {
    let site = Site::with("3M", 4 * MIB, "--segment-size 64k");
    let daemon = site.serve(&format!("{LAZY} --ack durable"));
    let mut client = Client::connect(&site.socket());
    for line in 0..60 {
        client.write(line * 4096, &[200; 4096]).unwrap();
    }
    site.dcd("drain --control ctl").ok();
    for line in 0..60 {
        client.write(line * 4096, &[line as u8 + 1; 4096]).unwrap();
        client.flush().unwrap();
    }
    daemon.kill();
    forget_memory(&site);
    site
}

fn forget_memory(site: &Site) {
    for entry in fs::read_dir(site.path("")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().ends_with(".segments") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[test]
fn a_stale_cache_is_refused() {
    // The cache as it was before the data-disk went on without it.
    let site = Site::new("3M", 4 * MIB);
    let daemon = site.serve(LAZY);
    let mut client = Client::connect(&site.socket());
    client.write(0, &[1; 65536]).unwrap();
    client.flush().unwrap();
    daemon.stop();
    fs::copy(site.path("c"), site.path("c.old")).unwrap();
    let data = site.detach();
    assert_eq!(data[..65536], [1; 65536]);
    // The disk is used without dcd; then somebody takes the old cache. It was closed in order, so
    // that the beginning of the disk was dirty does not hide the change.
    let disk = File::options().write(true).open(site.path("d")).unwrap();
    disk.write_all_at(&[9; 65536], 0).unwrap();
    let before = fs::read(site.path("d")).unwrap();
    let outcome = site.dcd(&serve_line("c.old", "d"));
    outcome.fails(1, "changed", "--accept-damage");
    assert!(fs::read(site.path("d")).unwrap() == before);
}

#[test]
fn a_data_disk_changed_while_dirty_is_refused() {
    let site = dirty_site();
    let disk = File::options().write(true).open(site.path("d")).unwrap();
    // The last line: watched, and not in the log.
    disk.write_all_at(&[77; 4096], 4 * MIB - 4096).unwrap();
    refused(&site, &serve_line("c", "d"), 1, "changed", "--accept-damage");
    let detach = "detach --cache-disk c --data-disk d --memory-directory .";
    refused(&site, detach, 1, "changed", "--accept-damage");
    // Undone, it is the right disk again.
    disk.write_all_at(&[0; 4096], 4 * MIB - 4096).unwrap();
    assert_eq!(site.detach()[4096], 2);
}

#[test]
fn swapped_foreign_and_missing_disks_are_refused() {
    let site = dirty_site();
    refused(&site, &serve_line("d", "c"), 1, "swapped", "--cache-disk c --data-disk d");
    refused(&site, &serve_line("c", "c"), 1, "the same", "two disks");
    refused(&site, &serve_line("d", "d"), 1, "the same", "two disks");
    refused(&site, &serve_line("none", "d"), 1, "none", "");
    refused(&site, &serve_line("c", "none"), 1, "none", "");
    // Disks of other sizes.
    for size in [4 * MIB - 512, 4 * MIB + 512, 64 * MIB] {
        site.folder.disk("other", size);
        refused(&site, &serve_line("c", "other"), 1, "blocks", "lsblk");
    }
    // Another disk of the same size with something else on it.
    fs::write(site.path("other"), Random::new(2).bytes(4 << 20)).unwrap();
    refused(&site, &serve_line("c", "other"), 1, "changed", "--accept-damage");
    // Foreign content in the place of a cache.
    fs::write(site.path("text"), "not a disk at all").unwrap();
    refused(&site, &serve_line("text", "d"), 1, "17 bytes", "");
    fs::write(site.path("noise"), Random::new(1).bytes(3 << 20)).unwrap();
    refused(&site, &serve_line("noise", "d"), 1, "holds no cache", "dcd create");
    fs::create_dir(site.path("folder")).unwrap();
    refused(&site, &serve_line("folder", "d"), 1, "folder", "");
    for verb in ["check --cache-disk noise", "inspect superblock --cache-disk d"] {
        let outcome = site.dcd(verb);
        assert!(matches!(outcome.code, Some(1 | 4)), "{verb}: {:?}", outcome.code);
        assert_no_panic(&outcome.stderr);
    }
    assert_eq!(site.detach()[0], 1, "the right pair still works");
}

#[test]
fn a_cut_cache_disk_is_refused_or_right() {
    let original = dirty_site();
    let cache = fs::read(original.path("c")).unwrap();
    let whole = cache.len() as u64;
    let mut random = Random::new(seed() ^ 101);
    let mut lengths: Vec<u64> =
        [0, 1, 511, 4096, 65536, 65536 + 4096, 131_072, whole / 2, whole - 4096, whole - 1].into();
    lengths.extend((0..10).map(|_| random.below(whole)));
    for length in lengths {
        original.folder.disk("c", 0);
        fs::write(original.path("c"), &cache[..length as usize]).unwrap();
        examine(&original, &format!("cut to {length}"));
    }
}

/// Serves, checks and inspects a damaged copy: right data (or EIO where it is lost), or a refusal
/// in one line that wrote nothing. Returns whether it was served.
fn examine(site: &Site, what: &str) -> bool {
    let before = site.disks();
    for verb in [
        "check --cache-disk c --json",
        "check --cache-disk c",
        "inspect superblock --cache-disk c",
        "inspect checkpoint --cache-disk c --json",
        "inspect segments --cache-disk c",
        "inspect records --cache-disk c --json",
    ] {
        let Outcome { code, stderr, .. } = site.dcd(verb);
        assert_no_panic(&stderr);
        assert!(matches!(code, Some(0 | 1 | 4)), "{what}: {verb}: {code:?}: {stderr}");
        assert!(stderr.lines().count() <= 2, "{what}: {verb}: {stderr}");
    }
    assert!(site.disks() == before, "{what}: check or inspect wrote");
    let mut daemon = site.start(LAZY);
    let ready = daemon.wait_ready_or_end();
    if !ready {
        let code = daemon.wait_code();
        let log = daemon.log();
        assert_no_panic(&log);
        assert!(matches!(code, Some(1 | 4 | 5)), "{what}: {code:?}: {log}");
        let errors = log.lines().filter(|line| line.starts_with("dcd: error: ")).count();
        assert_eq!(errors, 1, "{what}: {log}");
        assert!(log.contains("hint: "), "{what}: {log}");
        assert!(site.disks() == before, "{what}: refused, and yet a disk was written to");
    } else {
        let mut client = Client::connect(&site.socket());
        for line in 0..60u64 {
            match client.read(line * 4096, 4096) {
                Ok(data) => assert!(
                    data.iter().all(|byte| *byte == line as u8 + 1),
                    "{what}: line {line} holds {:?}: wrong data was served\n{}",
                    &data[..4],
                    daemon.log()
                ),
                Err(Failure::Errno(5)) => {}
                Err(error) => panic!("{what}: {error:?}\n{}", daemon.log()),
            }
        }
        assert_no_panic(&daemon.log());
        daemon.kill();
    }
    let _ = fs::remove_file(site.path("dcd.log"));
    forget_memory(site);
    ready
}

#[test]
fn every_region_of_the_cache_disk_may_have_a_flipped_bit() {
    let site = dirty_site();
    let cache = fs::read(site.path("c")).unwrap();
    let data = fs::read(site.path("d")).unwrap();
    let superblock = json(&site.dcd("inspect superblock --cache-disk c --json").ok());
    let text = superblock.to_string();
    // The regions: both superblocks, both checkpoints (header, payload, unused), records, slots,
    // rest.
    let segments = json(&site.dcd("inspect segments --cache-disk c --json").ok());
    let live = segments.as_array().unwrap().iter().position(|s| s["live_slots"] != 0);
    let live = live.unwrap_or_else(|| panic!("no live segment: {text}"));
    let segment = json(&site.dcd(&format!("inspect segment {live} --cache-disk c --json")).ok());
    let mut random = Random::new(seed() ^ 102);
    let mut offsets = BTreeSet::new();
    for copy in [0, 65536] {
        offsets.extend(
            [0, 8, 12, 16, 32, 40, 56, 64, 72, 80, 104, 120, 124, 128, 192, 300, 4095]
                .map(|o| copy + o),
        );
        offsets.insert(copy + random.below(4096));
    }
    let segments_offset = {
        let bytes: [u8; 8] = cache[64..72].try_into().unwrap();
        u64::from_le_bytes(bytes)
    };
    let checkpoints = 131_072..segments_offset;
    let half = (checkpoints.end - checkpoints.start) / 2;
    for area in [checkpoints.start, checkpoints.start + half] {
        offsets.extend(
            [0, 8, 12, 16, 32, 40, 48, 56, 64, 72, 76, 80, 88, 200, 4096, 4100, 4104, 4112]
                .map(|o| area + o),
        );
        offsets.extend((0..4).map(|_| area + random.below(half)));
    }
    for record in segment["records"].as_array().unwrap().iter().take(3) {
        let offset = record["offset"].as_u64().unwrap();
        offsets.extend([0, 8, 12, 16, 32, 48, 64, 80, 96, 128, 200, 4095].map(|o| offset + o));
        for entry in record["entries"].as_array().unwrap() {
            offsets.extend([0, 100, 4095].map(|o| entry["offset"].as_u64().unwrap() + o));
        }
    }
    // Anywhere: slots in use, free segments, the rest.
    offsets.extend(
        (0..cycles(25, 500))
            .map(|_| segments_offset + random.below(cache.len() as u64 - segments_offset)),
    );
    let (mut served, mut refused) = (0, 0);
    for offset in offsets {
        fs::write(site.path("c"), &cache).unwrap();
        fs::write(site.path("d"), &data).unwrap();
        let bit = 1 << random.below(8);
        site.flip("c", offset, bit);
        if examine(&site, &format!("seed {}, byte {offset} ^ {bit:#x}", seed())) {
            served += 1;
        } else {
            refused += 1;
        }
    }
    assert!(served > 10, "{served} served, {refused} refused");
}

#[test]
fn unknown_versions_are_refused() {
    let site = Site::new("3M", 4 * MIB);
    for copy in [0, 65536] {
        let cache = File::options().write(true).open(site.path("c")).unwrap();
        cache.write_all_at(&99u32.to_le_bytes(), copy + 8).unwrap();
    }
    refused(&site, &serve_line("c", "d"), 1, "99", "version");
    let detach = "detach --cache-disk c --data-disk d --memory-directory .";
    refused(&site, detach, 1, "99", "version");
    let outcome = site.dcd("check --cache-disk c");
    assert!(matches!(outcome.code, Some(1 | 4)), "{:?} {}", outcome.code, outcome.stderr);
    assert!(
        outcome.stdout.contains("99") || outcome.stderr.contains("99"),
        "{}{}",
        outcome.stdout,
        outcome.stderr
    );
}

#[test]
fn caches_that_are_too_small_are_refused() {
    let site = Site::empty();
    site.folder.disk("d", 4 * MIB);
    for size in ["0", "4k", "512k", "1M"] {
        let outcome = site.dcd(&format!("create --cache-disk c --cache-size {size} --data-disk d"));
        assert!(
            matches!(outcome.code, Some(1 | 2)),
            "{size}: {:?} {}",
            outcome.code,
            outcome.stderr
        );
        assert_no_panic(&outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 2, "{size}: {}", outcome.stderr);
        assert!(!site.path("c").exists(), "{size}: a file was left behind");
    }
}

#[test]
fn two_daemons_on_one_pair_or_one_disk_are_refused() {
    let site = Site::new("3M", 4 * MIB);
    let daemon = site.serve(LAZY);
    let other = "serve --cache-disk c --data-disk d --nbd unix:other --memory-directory . --quiet";
    site.dcd(other).fails(1, "locked by another program", "stop it first");
    site.folder.disk("d2", 4 * MIB);
    site.dcd(&other.replace("disk d", "disk d2")).fails(1, "locked", "stop it first");
    fs::copy(site.path("c"), site.path("c2")).unwrap();
    site.dcd(&other.replace("disk c", "disk c2")).fails(1, "locked", "stop it first");
    site.dcd("detach --cache-disk c --data-disk d --memory-directory .").fails(1, "locked", "stop");
    // Another pair on the same socket.
    site.dcd("create --cache-disk c3 --cache-size 3M --data-disk d2").ok();
    let same = "serve --cache-disk c3 --data-disk d2 --nbd unix:sock --memory-directory . --quiet";
    site.dcd(same).fails(1, "sock", "");
    assert_eq!(Client::connect(&site.socket()).read(0, 512), Ok(vec![0; 512]));
    daemon.stop();
}

#[test]
fn sockets_that_cannot_be_made_are_refused() {
    let site = Site::new("3M", 4 * MIB);
    fs::write(site.path("file"), "x").unwrap();
    let long = "x".repeat(120);
    for socket in ["none/sock", "file/sock", "file", "/proc/sock", &long] {
        let line = format!(
            "serve --cache-disk c --data-disk d --memory-directory . --quiet --nbd unix:{socket}"
        );
        let before = site.disks();
        let outcome = site.dcd(&line);
        assert_no_panic(&outcome.stderr);
        outcome.fails(1, "", "");
        assert!(site.disks() == before, "{socket}");
    }
    assert_eq!(fs::read(site.path("file")).unwrap(), b"x", "a file is not taken for a socket");
    let line = "serve --cache-disk c --data-disk d --memory-directory . --nbd unix:s --control none/ctl --quiet";
    refused(&site, line, 1, "none/ctl", "");
    let line =
        "serve --cache-disk c --data-disk d --memory-directory . --nbd tcp:0.0.0.0:10999 --quiet";
    let outcome = site.dcd(line);
    assert!(matches!(outcome.code, Some(1 | 2)), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("TLS"), "{}", outcome.stderr);
}

#[test]
fn bad_keys_and_units_are_refused_before_anything_is_opened() {
    let site = Site::new("3M", 4 * MIB);
    for (flags, code) in [
        ("--max-delay 5", 2),
        ("--max-delay 0ms", 1),
        ("--io-timeout 0s", 1),
        ("--io-timeout 30us", 1),
        ("--member-timeout 999ms", 1),
        ("--dirty-high 101%", 2),
        ("--dirty-high 96", 1),
        ("--dirty-low 90 --dirty-high 50", 1),
        ("--bypass-threshold 1k", 1),
        ("--bypass-threshold 64q", 2),
        ("--bypass-threshold -1", 2),
        ("--segment-buffers 2", 1),
        ("--segment-buffers many", 2),
        ("--ack never", 2),
        ("--destage-policy worst", 2),
        ("--idle-max 1ms --idle-min 1s", 1),
        ("--destage-rate 99999999999999999999", 2),
        ("--nbd sock", 2),
        ("--one-disk maybe", 2),
        ("--unknown 1", 2),
    ] {
        refused(&site, &format!("{} {flags}", serve_line("c", "d")), code, "", "");
    }
    for text in [
        "bypass-threshold = \"64q\"",
        "bypass-treshold = \"64k\"",
        "max-delay = 5",
        "[x]\na = 1",
        "\u{0}",
        "accept-damage = true",
        "nbd = \"unix:s\"\nnbd = \"unix:s\"",
        "ack = 1",
        "dirty-high = \"200%\"",
    ] {
        fs::write(site.path("dcd.toml"), text).unwrap();
        refused(&site, &format!("{} --config dcd.toml", serve_line("c", "d")), 1, "dcd.toml", "");
    }
}

/// Sends bytes to the server as a peer that lies, and reads what it answers until it closes or is
/// silent.
fn send_raw(site: &Site, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(site.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        answer.extend(&buffer[..length]);
        if answer.len() > 1 << 20 {
            break;
        }
    }
    answer
}

#[test]
fn peers_that_lie_do_not_disturb_others() {
    let site = Site::new("3M", 4 * MIB);
    let mut daemon = site.serve("");
    let mut good = Client::connect(&site.socket());
    good.write(4096, &[7; 4096]).unwrap();
    let option = |number: u32, length: u32, data: &[u8]| {
        let mut bytes = b"\0\0\0\x03IHAVEOPT".to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        bytes
    };
    let go = option(7, 6, &[0; 6]);
    let request = |magic: u32, flags: u16, command: u16, offset: u64, length: u32| {
        let mut bytes = go.clone();
        bytes.extend(magic.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend([9; 8]);
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes
    };
    let magic = 0x2560_9513;
    let mut lies: Vec<Vec<u8>> = vec![
        vec![],
        vec![0xff; 64],
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"\xff\xff\xff\xff".to_vec(),
        option(7, u32::MAX, &[]),
        option(7, 1 << 20, &[0; 4096]),
        option(7, 5, &[0; 5]),
        option(7, 6, &[0xff, 0xff, 0xff, 0xff, 0, 0]),
        option(7, 6, &[0, 0, 0, 0, 0xff, 0xff]),
        option(6, 0, &[]),
        option(3, 4, &[1; 4]),
        option(10, 8, &[0xff; 8]),
        option(9, u32::MAX, &[]),
        option(1, 5000, &[b'x'; 5000]),
        option(1, 3, b"abc"),
        option(u32::MAX, 0, &[]),
        option(2, 0, &[]),
        request(0xdead_beef, 0, 0, 0, 512),
        request(magic, 0, 99, 0, 512),
        request(magic, 0xffff, 0, 0, 512),
        request(magic, 0, 0, u64::MAX, 512),
        request(magic, 0, 0, u64::MAX - 511, 512),
        request(magic, 0, 0, 0, u32::MAX),
        request(magic, 0, 1, 0, u32::MAX),
        request(magic, 0, 1, 4 * MIB, 512),
        request(magic, 0, 1, 0, 0),
        request(magic, 0, 1, 0, 511),
        request(magic, 0, 4, 0, u32::MAX),
        request(magic, 0, 6, u64::MAX, u32::MAX),
        request(magic, 0, 3, 5, 5),
        request(magic, 0, 7, 0, 0),
        request(magic, 0, 5, 0, u32::MAX),
    ];
    let mut random = Random::new(seed() ^ 103);
    for _ in 0..cycles(60, 1000) {
        // A good conversation with one byte wrong, or cut.
        let mut bytes = request(magic, 0, 0, 0, 4096);
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(3) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random.below(8),
            _ => {
                let noise = random.bytes(50);
                bytes.splice(at..at, noise);
            }
        }
        // Not a write: that would change what is compared below.
        if bytes.len() > go.len() + 8 && [1, 4, 6].contains(&bytes[go.len() + 7]) {
            continue;
        }
        lies.push(bytes);
    }
    for lie in &lies {
        send_raw(&site, lie);
        assert!(daemon.is_alive(), "{lie:02x?}: {}", daemon.log());
        assert_eq!(
            good.read(4096, 4096),
            Ok(vec![7; 4096]),
            "{lie:02x?}: others are served\n{}",
            daemon.log()
        );
    }
    // Many at once, that say nothing: there is still room for one that does.
    let silent: Vec<_> = (0..50).map(|_| UnixStream::connect(site.socket()).unwrap()).collect();
    assert_eq!(Client::connect(&site.socket()).read(4096, 4096), Ok(vec![7; 4096]));
    drop(silent);
    let memory =
        fs::read_to_string(format!("/proc/{}/status", daemon.pid().as_raw_nonzero())).unwrap();
    let resident = memory.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 200 << 10, "{kib} KiB of memory after lies about lengths");
    daemon.assert_no_panic();
    daemon.stop();
}

/// What is no disk is refused before it is opened: a pipe would be waited for.
#[test]
fn what_is_no_disk_is_not_read_as_a_cache_disk() {
    let site = Site::new("16M", 64 << 20);
    let _socket = std::os::unix::net::UnixListener::bind(site.path("socket")).unwrap();
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mkfifoat(rustix::fs::CWD, site.path("pipe"), mode).unwrap();
    for disk in ["socket", "pipe", "/dev/zero", "."] {
        for verb in ["check", "inspect superblock", "inspect dirty", "salvage"] {
            let outcome = site.dcd(&format!("{verb} --cache-disk {disk}"));
            outcome.fails(1, "is neither a file nor a block device", "give a disk image");
        }
    }
}

/// Whoever looks below a mount that is being made waits for dcd: it must not be dcd that does.
#[test]
fn a_mount_that_would_hide_what_is_opened_is_refused() {
    let site = Site::new("3M", 4 * MIB);
    for name in ["vol", "mem", "state"] {
        fs::create_dir(site.path(name)).unwrap();
    }
    std::os::unix::fs::symlink("vol", site.path("other-name")).unwrap();
    std::os::unix::fs::symlink("../c", site.path("vol/c-link")).unwrap();
    std::os::unix::fs::symlink("vol/sub/ctl", site.path("ctl-link")).unwrap();
    fs::create_dir(site.path("vol/sub")).unwrap();
    for (cache, flags, what) in [
        ("c", "--memory-directory mem --nbd unix:vol/sock --fuse vol", "the socket vol/sock"),
        ("c", "--memory-directory mem --control vol/sub/ctl --fuse other-name", "the socket vol"),
        ("c", "--memory-directory mem --control ctl-link --fuse vol/sub", "the socket ctl-link"),
        ("c", "--memory-directory vol --fuse vol", "the segment memory in vol"),
        ("c", "--memory-directory mem --fuse vol/..", "the cache-disk c"),
        ("vol/c-link", "--memory-directory mem --fuse vol", "the cache-disk vol/c-link"),
        ("c", "--memory-directory mem --fuse state", "the records of pairs in"),
        ("c", "--memory-directory mem --fuse /", "the cache-disk c"),
        ("c", "--memory-directory mem --fuse /proc", "the system's files in /proc"),
    ] {
        let line = format!("serve --cache-disk {cache} --data-disk d {flags}");
        refused(&site, &line, 1, &format!("would hide {what}"), "a directory of its own");
    }
    fs::write(site.path("vol/d"), [0; 8192]).unwrap();
    let line = "serve --null --data-disk vol/d --fuse other-name";
    refused(&site, line, 1, "would hide the disk vol/d", "a directory of its own");
}
