//! Runs unmodified NBD clients against the real program, with each ack mode: nbdinfo, nbdcopy over
//! 4 connections, nbdsh, qemu-io, qemu-img and fio with verification. And the same random load on
//! dcd and on a plain file: after `detach` the data-disk holds the same bytes.

mod harness;

use std::fs;
use std::os::unix::fs::FileExt;

use harness::model::{Mix, Op, difference};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Site, seed};
use serde_json::Value;

const ACK_MODES: [&str; 3] = ["memory", "log", "durable"];
const MIB: u64 = 1 << 20;

#[test]
fn nbdinfo_sees_the_export() {
    skip_without!("nbdinfo_sees_the_export", "nbdinfo");
    let site = Site::new("16M", 64 * MIB);
    for ack in ACK_MODES {
        let daemon = site.serve(&format!("--quiet --ack {ack}"));
        let uri = site.uri();
        let info: Value =
            serde_json::from_str(&site.run(&format!("nbdinfo --json {uri}"))).unwrap();
        let export = &info["exports"][0];
        assert_eq!(info["protocol"], "newstyle-fixed");
        assert_eq!(info["structured"], true);
        assert_eq!(export["export-name"], "");
        assert_eq!(export["export-size"], 64 * MIB);
        assert_eq!(export["contexts"], serde_json::json!(["base:allocation"]));
        for flag in ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero", "can_cache"]
        {
            assert_eq!(export[flag], true, "{ack}: {flag}");
        }
        assert_eq!(export["is_read_only"], false);
        assert_eq!(export["block_size_minimum"], 512);
        site.run(&format!("nbdinfo --list {uri}"));
        site.run(&format!("nbdinfo --map {uri}"));
        daemon.stop();
    }
    let daemon = site.serve("--quiet --read-only");
    let info: Value =
        serde_json::from_str(&site.run(&format!("nbdinfo --json {}", site.uri()))).unwrap();
    assert_eq!(info["exports"][0]["is_read_only"], true);
    daemon.stop();
}

#[test]
fn nbdcopy_over_four_connections_brings_the_same_bytes_back() {
    skip_without!("nbdcopy_over_four_connections_brings_the_same_bytes_back", "nbdcopy");
    let mut random = Random::new(seed());
    for ack in ACK_MODES {
        let site = Site::new("16M", 48 * MIB);
        let source = random.bytes(48 << 20);
        fs::write(site.path("source"), &source).unwrap();
        // Two ways: everything past the cache, and everything through it.
        for threshold in ["64k", "64M"] {
            let daemon = site.serve(&format!("--quiet --ack {ack} --bypass-threshold {threshold}"));
            let uri = site.uri();
            site.run(&format!("nbdcopy --connections=4 --requests=16 --flush source {uri}"));
            site.run(&format!("nbdcopy --connections=4 --requests=16 {uri} back"));
            assert!(fs::read(site.path("back")).unwrap() == source, "{ack} {threshold}: read back");
            fs::remove_file(site.path("back")).unwrap();
            daemon.kill();
        }
        assert!(site.detach() == source, "{ack}: data-disk after detach");
    }
}

#[test]
fn nbdsh_flushes_trims_zeroes_and_sees_itself_on_other_connections() {
    skip_without!("nbdsh_flushes_trims_zeroes_and_sees_itself_on_other_connections", "nbdsh");
    for ack in ACK_MODES {
        let site = Site::new("16M", 64 * MIB);
        let daemon = site.serve(&format!("--quiet --ack {ack} --idle-max 1h --idle-min 1h"));
        let script = r#"
assert h.can_multi_conn() and h.can_fua() and h.can_flush() and h.can_trim() and h.can_zero()
other = nbd.NBD()
other.connect_uri(uri)
h.pwrite(b"a" * 4096, 0)
assert other.pread(4096, 0) == b"a" * 4096, "visible on the other connection"
h.pwrite(b"b" * 512, 1024, nbd.CMD_FLAG_FUA)
assert other.pread(2048, 512) == b"a" * 512 + b"b" * 512 + b"a" * 1024
other.flush()
h.pwrite(b"c" * 65536, 1 << 20)
h.trim(8192, (1 << 20) + 4096)
assert h.pread(8192, (1 << 20) + 4096) == bytes(8192), "trimmed"
assert h.pread(4096, 1 << 20) == b"c" * 4096
h.zero(4096, (1 << 20) + 16384, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
assert other.pread(4096, (1 << 20) + 16384) == bytes(4096), "zeroed"
h.zero(512, (1 << 20) + 24576 + 512)
assert other.pread(1536, (1 << 20) + 24576) == b"c" * 512 + bytes(512) + b"c" * 512, "one sector"
h.cache(65536, 0)
for call in (lambda: h.pwrite(b"x" * 512, 64 << 20), lambda: h.pread(1024, (64 << 20) - 512)):
    try:
        call()
        raise AssertionError("beyond the end")
    except nbd.Error as error:
        assert error.errno in ("EINVAL", "ENOSPC", "ERANGE"), error
h.set_strict_mode(0)
for call in (lambda: h.pwrite(b"x" * 512, 64 << 20), lambda: h.pwrite(b"x" * 511, 0),
             lambda: h.pread(512, 100), lambda: h.trim(512, 64 << 20)):
    try:
        call()
        raise AssertionError("the server takes it")
    except nbd.Error as error:
        assert error.errno in ("EINVAL", "ENOSPC"), error
assert h.pread(4096, 0) == b"a" * 1024 + b"b" * 512 + b"a" * 2560
other.shutdown()
"#;
        let set = format!("uri = {:?}", site.uri());
        site.tool("nbdsh", &["-u", &site.uri(), "-c", &set, "-c", script]);
        let counters = &site.status()["counters"];
        assert!(counters["fuas"].as_u64() >= Some(2) && counters["flushes"].as_u64() >= Some(1));
        daemon.stop();
        let data = site.detach();
        assert!(data[..1024] == [b'a'; 1024] && data[1024..1536] == [b'b'; 512]);
        assert!(data[(1 << 20) + 4096..(1 << 20) + 12288].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn qemu_io_writes_and_verifies_patterns() {
    skip_without!("qemu_io_writes_and_verifies_patterns", "qemu-io");
    let site = Site::new("16M", 64 * MIB);
    for ack in ACK_MODES {
        let daemon = site.serve(&format!("--quiet --ack {ack}"));
        let commands = [
            "write -P 0x11 0 1M",
            "write -f -P 0x22 512 512",
            "writev -P 0x33 4k 1k 2k 1k",
            "aio_write -P 0x44 2M 64k",
            "aio_write -P 0x55 3M 64k",
            "aio_flush",
            "flush",
            "write -z 64k 4k",
            "discard 128k 64k",
            "read -P 0x11 0 512",
            "read -P 0x22 512 512",
            "read -P 0x33 4k 4k",
            "read -P 0 64k 4k",
            "read -P 0 128k 64k",
            "read -P 0x44 2M 64k",
            "read -P 0x55 3M 64k",
            "read -P 0x11 192k 64k",
        ];
        let uri = site.uri();
        let mut arguments = vec!["-f", "raw"];
        for command in &commands {
            arguments.extend(["-c", command]);
        }
        arguments.push(&uri);
        let output = site.tool("qemu-io", &arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            !text.contains("verification failed") && !text.contains("failed:"),
            "{ack}: {text}"
        );
        // It can tell: the same check with another pattern fails.
        let wrong = site.try_tool("qemu-io", &["-f", "raw", "-c", "read -P 0x77 0 512", &uri]);
        assert!(String::from_utf8_lossy(&wrong.stdout).contains("verification failed"));
        daemon.stop();
    }
}

#[test]
fn qemu_img_converts_there_and_back() {
    skip_without!("qemu_img_converts_there_and_back", "qemu-img");
    for ack in ACK_MODES {
        let site = Site::new("16M", 32 * MIB);
        let mut source = Random::new(seed()).bytes(32 << 20);
        source[5 << 20..9 << 20].fill(0);
        fs::write(site.path("source"), &source).unwrap();
        let daemon = site.serve(&format!("--quiet --ack {ack}"));
        let uri = site.uri();
        site.run(&format!("qemu-img convert -n -W -m 8 -f raw -O raw source {uri}"));
        site.run(&format!("qemu-img compare -f raw -F raw source {uri}"));
        site.run(&format!("qemu-img convert -f raw -O qcow2 {uri} copy.qcow2"));
        site.run("qemu-img compare -f raw -F qcow2 source copy.qcow2");
        daemon.stop();
        assert!(site.detach() == source, "{ack}");
    }
}

#[test]
fn fio_writes_and_verifies_checksums() {
    skip_without!("fio_writes_and_verifies_checksums", "fio");
    for ack in ACK_MODES {
        let site = Site::new("16M", 64 * MIB);
        let daemon = site.serve(&format!("--quiet --ack {ack} --idle-max 20ms"));
        let uri = site.uri();
        // 24 MiB of random writes through 16 MiB of cache: destaged meanwhile.
        let common = format!(
            "fio --name=v --ioengine=nbd --uri={uri} --size=24M --offset=8M --verify=crc32c \
             --verify_fatal=1 --thread --randseed=7 --output-format=terse"
        );
        site.run(&format!("{common} --rw=randwrite --bsrange=512-32k --iodepth=16 --fsync=64"));
        // The writes again and their verification by another run, after a kill.
        site.run(&format!("{common} --rw=randwrite --bs=4k --iodepth=32 --do_verify=0"));
        daemon.kill();
        let daemon = site.serve(&format!("--quiet --ack {ack} --idle-max 20ms"));
        site.run(&format!("{common} --rw=randwrite --bs=4k --iodepth=32 --verify_only"));
        daemon.assert_no_panic();
        daemon.stop();
    }
}

/// The same load on dcd and on a plain file, with restarts; then the two are the same.
fn like_a_plain_disk(flags: &str, cache: &str, create: &str, ops: u64, salt: u64) {
    let seed = seed() ^ salt;
    let mut random = Random::new(seed);
    let mix =
        Mix { volume: 16 * MIB, sectors_max: 300, flush_every: 50, fua_every: 20, zero_every: 10 };
    let site = Site::with(cache, mix.volume, create);
    let plain =
        fs::File::options().read(true).write(true).open(site.folder.disk("plain", mix.volume));
    let plain = plain.unwrap();
    let restarts = 4;
    for round in 0..restarts {
        let daemon = site.serve(&format!("--quiet {flags}"));
        let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&site.socket())).collect();
        for number in 0..ops / restarts {
            let op = mix.op(&mut random);
            let client = &mut clients[random.below(3) as usize];
            client.do_op(&op).unwrap_or_else(|error| {
                panic!(
                    "seed {seed}, {flags}, request {number}, {op:?}: {error:?}\n{}",
                    daemon.log()
                )
            });
            let range = op.range();
            match &op {
                Op::Write { data, .. } => plain.write_all_at(data, range.start as u64).unwrap(),
                Op::Flush => {}
                _ => plain.write_all_at(&vec![0; range.len()], range.start as u64).unwrap(),
            }
        }
        let expected = fs::read(site.path("plain")).unwrap();
        let found = clients[0].read_all().unwrap();
        assert_eq!(difference(&found, &expected), None, "seed {seed}, {flags}, round {round}");
        daemon.assert_no_panic();
        if round % 2 == 0 { daemon.stop() } else { daemon.kill() }
    }
    let expected = fs::read(site.path("plain")).unwrap();
    assert_eq!(difference(&site.detach(), &expected), None, "seed {seed}, {flags}, after detach");
}

#[test]
fn a_random_load_in_memory_mode_leaves_the_bytes_of_a_plain_disk() {
    like_a_plain_disk("--ack memory --idle-max 10ms", "8M", "", 3000, 21);
}

#[test]
fn a_random_load_in_log_mode_leaves_the_bytes_of_a_plain_disk() {
    like_a_plain_disk("--ack log --destage-policy least-valid-first", "8M", "", 2000, 22);
}

#[test]
fn a_random_load_in_durable_mode_leaves_the_bytes_of_a_plain_disk() {
    like_a_plain_disk("--ack durable --destage-policy last-write-first", "8M", "", 1500, 23);
}

#[test]
fn a_random_load_with_writes_past_the_cache_leaves_the_bytes_of_a_plain_disk() {
    like_a_plain_disk(
        "--bypass-threshold 64k --idle-max 10ms --full-timeout 15s",
        "8M",
        "",
        3000,
        24,
    );
}

#[test]
fn a_random_load_with_a_tiny_cache_leaves_the_bytes_of_a_plain_disk() {
    let flags = "--bypass-threshold 64k --idle-max 10ms --full-timeout 15s";
    like_a_plain_disk(flags, "3M", "--segment-size 64k", 3000, 25);
}
