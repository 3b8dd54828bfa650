//! Proves on the real program that `serve` and the verbs that speak to it fit together: what is
//! written is found again, `check` tells healthy from damaged, and each refusal has its exit code,
//! one line of error and a hint.

mod common;

use std::os::unix::fs::FileExt;

use common::nbd::Nbd;
use common::{Folder, Outcome};
use dcd_client::nbd::{NbdClient, NbdRequest};
use serde_json::Value;

const SERVE: &str = "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl \
                     --memory-directory . --quiet --idle-max 1h --idle-min 1h";

/// A cache of 16 MiB for a disk of 64 MiB.
fn pair() -> Folder {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    folder
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Writes line `number` full of `byte` for each number.
fn write_lines(nbd: &mut Nbd, numbers: std::ops::Range<u64>, byte: u8) {
    for number in numbers {
        assert_eq!(nbd.write(number * 4096, &[byte; 4096]), 0);
    }
}

#[test]
fn a_session_from_ready_to_detached() {
    let folder = pair();
    let served = folder.serve(SERVE);
    assert!(served.ready.contains("nbd=unix:sock"), "{}", served.ready);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    write_lines(&mut nbd, 0..20, 7);
    folder.dcd("flush --control ctl").ok();
    let status = json(&folder.dcd("status --control ctl --json").ok());
    assert_eq!(status["dirty_bytes"], 20 * 4096);
    assert_eq!(status["ack"], "memory");
    assert_eq!(status["response_times"]["writes"]["count"], 20);
    let panel = folder.dcd("status --control ctl").ok();
    for word in ["segments", "hit rate", "amplification", "response times of writes"] {
        assert!(panel.contains(word), "{word}: {panel}");
    }
    assert!(!panel.contains('\x1b'), "no colours without a terminal");
    folder.dcd("drain --control ctl").ok();
    let status = json(&folder.dcd("status --control ctl --json").ok());
    assert_eq!(status["dirty_bytes"], 0);
    write_lines(&mut nbd, 20..30, 8);
    drop(nbd);
    folder.dcd("detach --control ctl").ok();
    assert_eq!(served.wait().code, Some(0));
    let data = std::fs::read(folder.path("d")).unwrap();
    assert!(data[..20 * 4096].iter().all(|byte| *byte == 7));
    assert!(data[20 * 4096..30 * 4096].iter().all(|byte| *byte == 8));
    let report = json(&folder.dcd("check --cache-disk c --json").ok());
    assert_eq!((&report["state"], &report["clean"]), (&"detached".into(), &true.into()));
}

/// A file that is served and has another name, or was moved with its directory, is whole: it is
/// served on, and that its name leads elsewhere is said once, and in the status.
#[test]
fn a_name_that_leads_elsewhere_is_told_of() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("sub")).unwrap();
    folder.disk("sub/d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk sub/d").ok();
    let served = folder.serve(
        "serve --cache-disk c --data-disk sub/d --nbd unix:sock --control ctl --memory-directory . \
         --idle-max 1h --idle-min 1h",
    );
    let mut nbd = Nbd::connect(&folder.path("sock"));
    let status = || json(&folder.dcd("status --control ctl --json").ok());
    let until = |lost: &[&str]| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while status()["names_lost"] != serde_json::json!(lost) {
            assert!(std::time::Instant::now() < deadline, "{lost:?}: {}", status()["names_lost"]);
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    until(&[]);
    // Deleted, while there is a hard link; then another file has its name.
    std::fs::hard_link(folder.path("c"), folder.path("link")).unwrap();
    std::fs::remove_file(folder.path("c")).unwrap();
    until(&["c"]);
    folder.disk("c", 16 << 20);
    std::fs::rename(folder.path("sub"), folder.path("moved")).unwrap();
    until(&["c", "sub/d"]);
    let panel = folder.dcd("status --control ctl").ok();
    assert!(panel.contains("c leads elsewhere"), "{panel}");
    write_lines(&mut nbd, 0..20, 7);
    assert_eq!(nbd.flush(), 0);
    folder.dcd("drain --control ctl").ok();
    std::fs::rename(folder.path("link"), folder.path("c")).unwrap();
    std::fs::rename(folder.path("moved"), folder.path("sub")).unwrap();
    until(&[]);
    drop(nbd);
    let ended = served.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for name in ["c", "sub/d"] {
        let said = |what: &str| ended.stderr.matches(&format!("dcd: {name} {what}")).count();
        let counts =
            (said("does not lead to what is served"), said("leads to what is served again"));
        assert_eq!(counts, (1, 1), "{}", ended.stderr);
    }
}

/// With `--json` the line that says ready is an object, with what the words say.
#[test]
fn ready_is_an_object_with_json() {
    let folder = pair();
    let served = folder.serve(&format!("{SERVE} --json"));
    let ready = json(&served.ready);
    let status = json(&folder.dcd("status --control ctl --json").ok());
    assert_eq!((&ready["state"], &ready["uuid"]), (&"ready".into(), &status["uuid"]), "{ready}");
    assert_eq!(ready["size_bytes"], 64 << 20, "{ready}");
    assert_eq!(ready["nbd"], serde_json::json!(["unix:sock"]), "{ready}");
    assert_eq!((&ready["control"], &ready["dirty_bytes"]), (&"ctl".into(), &0.into()), "{ready}");
    let ended = served.stop();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
    folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    let served = folder.serve("slow-disk --json --disk d --nbd unix:sock --quiet");
    let ready = json(&served.ready);
    assert_eq!((&ready["state"], &ready["size_bytes"]), (&"ready".into(), &(64 << 20).into()));
}

/// Levels: errors and what was asked for always, drains not with --quiet, who asks with --verbose;
/// what takes long is told once when it begins and once when it ends.
#[test]
fn what_is_said_has_levels() {
    for (flag, begun, asked) in [("--quiet", 0, 0), ("--idle-max 1h", 1, 0), ("--verbose", 1, 1)] {
        let folder = pair();
        let line = format!(
            "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --memory-directory . {flag}"
        );
        let served = folder.serve(&line);
        let mut nbd = Nbd::connect(&folder.path("sock"));
        write_lines(&mut nbd, 0..4, 7);
        let drained: Value = json(&folder.dcd("drain ctl --json").ok());
        assert!(drained["moved_bytes"].as_u64().is_some(), "{drained}");
        folder.dcd("set ctl mode=pass-through").ok();
        drop(nbd);
        let said = served.stop().stderr;
        let times = |what: &str| said.matches(what).count();
        assert_eq!(times("dcd: drain: begun\n"), begun, "{flag}: {said}");
        assert_eq!(times("dcd: drain: done, "), begun, "{flag}: {said}");
        assert_eq!(times("dcd: control: drain\n"), asked, "{flag}: {said}");
        assert_eq!(times("dcd: writes go past the log"), 1, "{flag}: {said}");
    }
}

#[test]
fn after_a_kill_check_finds_it_healthy_and_detach_brings_it_home() {
    let folder = pair();
    let served = folder.serve(SERVE);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    write_lines(&mut nbd, 0..50, 1);
    assert_eq!(nbd.flush(), 0);
    write_lines(&mut nbd, 10..20, 2);
    assert_eq!(nbd.flush(), 0);
    served.kill();
    let report = json(&folder.dcd("check --cache-disk c --json").ok());
    assert_eq!((&report["state"], &report["clean"]), (&"open".into(), &false.into()));
    assert_eq!((&report["dirty_lines"], &report["slots_verified"]), (&50.into(), &50.into()));
    let records = json(&folder.dcd("inspect records --cache-disk c --json").ok());
    assert!(!records["records"].as_array().unwrap().is_empty());
    let create = "create --cache-disk c --data-disk d --force";
    folder.dcd(create).fails(1, "not on its data-disk yet", "dcd detach");
    // The same line brings everything back.
    let served = folder.serve(SERVE);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.read(15 * 4096, 4096).unwrap(), [2; 4096]);
    assert_eq!(served.stop().code, Some(0));
    let report = json(&folder.dcd("check --cache-disk c --json").ok());
    assert_eq!((&report["state"], &report["dirty_lines"]), (&"closed".into(), &50.into()));
    folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    let data = std::fs::read(folder.path("d")).unwrap();
    assert!(data[..10 * 4096].iter().all(|byte| *byte == 1));
    assert!(data[10 * 4096..20 * 4096].iter().all(|byte| *byte == 2));
    folder.dcd(create).ok();
}

/// What was acknowledged in memory only is found whatever `--segment-buffers` says later: fewer,
/// more, or nothing at all.
#[test]
fn memory_that_survived_keeps_its_number_of_buffers() {
    let folder = pair();
    let serve =
        |buffers: u32| folder.serve(&format!("{SERVE} --max-delay 1h --segment-buffers {buffers}"));
    let served = serve(8);
    write_lines(&mut Nbd::connect(&folder.path("sock")), 0..50, 1);
    served.kill();
    for buffers in [3, 40] {
        let served = serve(buffers);
        assert!(!served.ready.contains("from-memory=0 "), "{}", served.ready);
        let mut nbd = Nbd::connect(&folder.path("sock"));
        assert_eq!(nbd.read(20 * 4096, 4096).unwrap(), [1; 4096]);
        write_lines(&mut nbd, 50..60, 2);
        served.kill();
    }
    folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    let data = std::fs::read(folder.path("d")).unwrap();
    assert!(data[..50 * 4096].iter().all(|byte| *byte == 1));
    assert!(data[50 * 4096..60 * 4096].iter().all(|byte| *byte == 2));
    // After an end in order the setting counts again, and whoever asks is told nothing.
    let served = serve(4);
    write_lines(&mut Nbd::connect(&folder.path("sock")), 0..1, 3);
    served.kill();
    let loud = SERVE.replace(" --quiet", "");
    let stderr = folder.serve(&loud).stop().stderr;
    assert!(stderr.contains("had 4 segment buffers") && stderr.contains("then 16"), "{stderr}");
    let stderr = folder.serve(&loud).stop().stderr;
    assert!(!stderr.contains("segment buffers"), "{stderr}");
    // A file that was cut holds nobody knows what.
    let served = serve(4);
    write_lines(&mut Nbd::connect(&folder.path("sock")), 0..1, 3);
    served.kill();
    let mut names = std::fs::read_dir(folder.path("")).unwrap().map(|e| e.unwrap().path());
    let memory = names.find(|path| path.extension().is_some_and(|e| e == "segments")).unwrap();
    std::fs::File::options().write(true).open(memory).unwrap().set_len(100_000).unwrap();
    folder.dcd(SERVE).fails(1, "has 100000 bytes, which no dcd gave it", "restore it");
}

#[test]
fn a_dirty_cache_is_given_up_only_by_name() {
    let folder = pair();
    let served = folder.serve(SERVE);
    write_lines(&mut Nbd::connect(&folder.path("sock")), 0..5, 1);
    assert_eq!(served.stop().code, Some(0));
    let report = json(&folder.dcd("check --cache-disk c --json").ok());
    let uuid = report["uuid"].as_str().unwrap();
    let create = "create --cache-disk c --data-disk d";
    folder.dcd(create).fails(1, uuid, &format!("--force --uuid {uuid}"));
    let wrong = "--force --uuid 00000000-0000-0000-0000-000000000000";
    folder.dcd(&format!("{create} {wrong}")).fails(1, uuid, "--uuid");
    folder.dcd(&format!("{create} --uuid {uuid}")).fails(1, uuid, "--force");
    folder.dcd(&format!("{create} --force --uuid {uuid}")).ok();
}

/// What would be lost with a cache is listed before it is, to people and to programs.
#[test]
fn what_is_given_up_is_listed() {
    let folder = pair();
    let inspect = || json(&folder.dcd("inspect dirty --cache-disk c --json").ok());
    assert_eq!(inspect()["ranges"], json("[]"));
    let served = folder.serve(SERVE);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    write_lines(&mut nbd, 10..15, 1);
    write_lines(&mut nbd, 15..20, 2);
    assert_eq!(nbd.write(1000 * 4096 + 512, &[3; 1024]), 0);
    assert_eq!(served.stop().code, Some(0));
    let range = |line: u64, block: u64, bytes: u64| serde_json::json!({ "kind": "data", "offset": line * 4096 + block * 512, "bytes": bytes });
    let ranges = serde_json::json!([range(10, 0, 10 * 4096), range(1000, 1, 1024)]);
    let found = inspect();
    assert_eq!((&found["ranges"], &found["range_count"]), (&ranges, &2.into()));
    assert_eq!((&found["dirty_bytes"], &found["closed_in_order"]), (&41984.into(), &true.into()));
    let text = folder.dcd("inspect dirty --cache-disk c").ok();
    assert!(text.contains("40 KiB of data at byte 40960\n") && text.contains("2 ranges"), "{text}");

    let uuid = found["uuid"].as_str().unwrap();
    let create = "create --cache-disk c --data-disk d --force";
    let refused = folder.dcd(create);
    assert!(refused.stdout.starts_with("would be lost: 2 ranges, 41 KiB\n"), "{}", refused.stdout);
    assert!(refused.stdout.contains("1 KiB of data at byte 4096512\n"), "{}", refused.stdout);
    refused.fails(1, "2 ranges", "dcd inspect dirty");
    let refused = folder.dcd(&format!("{create} --json"));
    assert_eq!(json(&refused.stdout)["would_be_lost"]["ranges"], ranges);
    assert_eq!(inspect()["ranges"], ranges, "nothing was written");
    let made = json(&folder.dcd(&format!("{create} --json --uuid {uuid}")).ok());
    assert_eq!(made["lost"]["ranges"], ranges);
    assert_eq!(inspect()["ranges"], json("[]"));
}

/// Lines 0..50 written and durable, then the daemon killed. Returns the entries of the segment
/// that holds them.
fn with_dirty_segment() -> (Folder, Value) {
    let folder = pair();
    let served = folder.serve(SERVE);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for number in 0..50 {
        write_lines(&mut nbd, number..number + 1, number as u8 + 1);
        assert_eq!(nbd.flush(), 0);
    }
    served.kill();
    let segments = json(&folder.dcd("inspect segments --cache-disk c --json").ok());
    let segments = segments.as_array().unwrap();
    let first = segments.iter().position(|segment| segment["live_slots"] != 0).unwrap();
    let segment = folder.dcd(&format!("inspect segment {first} --cache-disk c --json")).ok();
    (folder, json(&segment))
}

fn flip_byte(folder: &Folder, offset: u64) {
    let file = std::fs::File::options().read(true).write(true).open(folder.path("c")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
}

#[test]
fn a_damaged_slot_is_found_and_named() {
    let (folder, segment) = with_dirty_segment();
    let entry = &segment["records"][3]["entries"][0];
    flip_byte(&folder, entry["offset"].as_u64().unwrap() + 1000);
    let Outcome { code, stdout, .. } = folder.dcd("check --cache-disk c --json");
    assert_eq!(code, Some(4));
    let report = json(&stdout);
    assert_eq!((&report["healthy"], &report["slots_damaged"]), (&false.into(), &1.into()));
    let problem = &report["problems"][0];
    assert_eq!((&problem["what"], &problem["block"]), (&"slot".into(), &entry["first_block"]));
    let index = segment["segment"].as_u64().unwrap();
    let again = json(&folder.dcd(&format!("inspect segment {index} --cache-disk c --json")).ok());
    assert_eq!(again["records"][3]["entries"][0]["valid"], false);
    assert!(folder.dcd("check --cache-disk c").stdout.contains("damaged: the newest copy of line"));
}

#[test]
fn a_durable_record_that_is_gone_is_damage_and_serve_refuses() {
    let (folder, segment) = with_dirty_segment();
    flip_byte(&folder, segment["records"][3]["offset"].as_u64().unwrap() + 200);
    // What the process held in memory would heal it; this machine lost its power.
    for entry in std::fs::read_dir(folder.path("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "segments") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let Outcome { code, stdout, .. } = folder.dcd("check --cache-disk c --json");
    assert_eq!(code, Some(4));
    assert_eq!(json(&stdout)["problems"][0]["what"], "record");
    let before = std::fs::read(folder.path("c")).unwrap();
    let detach = "detach --cache-disk c --data-disk d --memory-directory .";
    for line in [SERVE, detach] {
        // That the memory is lost is told before.
        let Outcome { code, stderr, .. } = folder.dcd(&format!("{line} --memory-lost"));
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("were durable are damaged"), "{stderr}");
        assert!(stderr.contains("--accept-damage"), "{stderr}");
    }
    assert!(before == std::fs::read(folder.path("c")).unwrap(), "nothing was written");
}

#[test]
fn wrong_disks_are_refused() {
    let folder = pair();
    let serve = |cache: &str, data: &str| {
        folder.dcd(&format!(
            "serve --cache-disk {cache} --data-disk {data} --nbd unix:sock --memory-directory ."
        ))
    };
    serve("d", "c").fails(1, "swapped", "--cache-disk c --data-disk d");
    serve("c", "c").fails(1, "the same", "two disks");
    serve("none", "d").fails(1, "none does not exist", "");
    serve("c", "none").fails(1, "none does not exist", "");
    folder.disk("small", 32 << 20);
    serve("c", "small").fails(1, "65536 blocks", "lsblk");
    folder.disk("zeroes", 16 << 20);
    serve("zeroes", "d").fails(
        1,
        "holds no cache",
        "if a cache was ever on it, do not make another one",
    );
    assert!(!folder.path("sock").exists(), "no socket was made");
}

#[test]
fn two_daemons_on_one_pair_are_refused() {
    let folder = pair();
    let served = folder.serve(SERVE);
    let second = "serve --cache-disk c --data-disk d --nbd unix:sock2 --memory-directory .";
    folder.dcd(second).fails(1, "locked by another program", "stop it first");
    let detach = "detach --cache-disk c --data-disk d --memory-directory .";
    folder.dcd(detach).fails(1, "locked by another program", "stop it first");
    folder.dcd("create --cache-disk c --data-disk d --force").fails(1, "", "");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_disk_that_fails_ends_with_5() {
    let folder = pair();
    std::fs::write(folder.path("faults"), "read eio\n").unwrap();
    let serve = "serve --cache-disk faulty:c,control=faults --data-disk d --nbd unix:sock \
                 --memory-directory .";
    let Outcome { code, stderr, .. } = folder.dcd(serve);
    assert_eq!(code, Some(5), "{stderr}");
}

#[test]
fn a_slow_disk_is_served_alone() {
    let folder = Folder::new();
    folder.disk("d", 1 << 20);
    let served = folder.serve("slow-disk --disk slow:d,read=8ms,write=8ms --nbd unix:s --quiet");
    let mut nbd = Nbd::connect(&folder.path("s"));
    let started = std::time::Instant::now();
    for number in 0..5 {
        assert_eq!(nbd.write(number * 4096, &[3; 4096]), 0);
    }
    assert!(started.elapsed() >= std::time::Duration::from_millis(40));
    assert_eq!(nbd.flush(), 0);
    assert_eq!(served.stop().code, Some(0));
    assert_eq!(std::fs::read(folder.path("d")).unwrap()[..4096], [3; 4096]);
}

#[test]
fn settings_come_from_a_file_and_flags_win() {
    let folder = pair();
    let text = "cache-disk = \"c\"\ndata-disk = \"d\"\nnbd = [\"unix:sock\"]\ncontrol = \"ctl\"\n\
                ack = \"log\"\nmemory-directory = \".\"\nbypass-threshold = \"64k\"\n";
    std::fs::write(folder.path("dcd.toml"), text).unwrap();
    let served = folder.serve("serve --config dcd.toml --quiet");
    let status = json(&folder.dcd("status --control ctl --json").ok());
    assert_eq!(status["ack"], "log");
    assert_eq!(served.stop().code, Some(0));
    let served = folder.serve("serve --config dcd.toml --quiet --ack durable");
    let status = json(&folder.dcd("status --control ctl --json").ok());
    assert_eq!(status["ack"], "durable");
    assert_eq!(served.stop().code, Some(0));
}

/// Waits for the status to say how many record.
fn wait_for_recorders(folder: &Folder, count: u64) {
    for _ in 0..2000 {
        let status = json(&folder.dcd("status --control ctl --json").ok());
        if status["recorders"] == count {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("never were there {count} recorders");
}

#[test]
fn a_running_daemon_records_what_it_is_asked_for() {
    let folder = pair();
    let served = folder.serve(SERVE);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    write_lines(&mut nbd, 0..3, 1);
    std::thread::scope(|scope| {
        let line = "trace record --control ctl t.csv --for 1s --json";
        let recording = scope.spawn(|| json(&folder.dcd(line).ok()));
        wait_for_recorders(&folder, 1);
        write_lines(&mut nbd, 10..12, 2);
        assert_eq!(nbd.read(4096 * 11, 512).unwrap(), [2; 512]);
        assert_eq!(nbd.write_zeroes(4096, 8192), 0);
        assert_eq!(nbd.flush(), 0);
        let told = recording.join().unwrap();
        assert_eq!((&told["requests"], &told["lost"]), (&5.into(), &0.into()), "{told}");
    });
    // Only what came while it recorded, and off again.
    wait_for_recorders(&folder, 0);
    let trace = std::fs::read_to_string(folder.path("t.csv")).unwrap();
    let without_times: Vec<&str> = trace
        .lines()
        .skip(1)
        .map(|line| {
            let (_, rest) = line.split_once(',').unwrap();
            let (rest, latency_us) = rest.rsplit_once(',').unwrap();
            assert!(latency_us.parse::<f64>().unwrap() > 0.0, "{line}");
            rest
        })
        .collect();
    let wanted =
        ["W,0,40960,4096,0", "W,0,45056,4096,0", "R,0,45056,512,0", "D,0,4096,8192,0", "F,0,0,0,0"];
    assert_eq!(without_times, wanted);
    let summary = json(&folder.dcd("trace summary t.csv --json").ok());
    assert_eq!((&summary["requests"], &summary["writes"]["count"]), (&5.into(), &2.into()));
    folder.dcd("trace record --control ctl t.csv --for 1s").fails(1, "File exists", "overwritten");
    folder.dcd("trace record --control none.sock n.csv").fails(6, "no daemon answers", "control");
    folder.dcd("trace record --control ctl /dev/sda n.csv").fails(2, "--control", "");
    folder.dcd("trace record n.csv").fails(2, "DEVICE", "");
    assert!(!folder.path("n.csv").exists());

    // The end of the daemon is the end of the recording, and what it saw is kept.
    std::thread::scope(|scope| {
        let line = "trace record --control ctl last.csv --for 1h --json";
        let recording = scope.spawn(|| json(&folder.dcd(line).ok()));
        wait_for_recorders(&folder, 1);
        write_lines(&mut nbd, 20..25, 3);
        folder.dcd("detach --control ctl --force").ok();
        assert_eq!(recording.join().unwrap()["requests"], 5);
    });
    assert_eq!(served.wait().code, Some(0));
}

/// Thirty-two reads at a time, one behind the other, as `fio --rw=read --iodepth=32` asks for them:
/// many are taken from the socket at once, and so come at the same time. They stay in their order.
#[test]
fn a_sequence_of_many_at_a_time_is_recorded_as_one() {
    let folder = pair();
    let served = folder.serve(SERVE);
    let mut nbd = NbdClient::connect(&folder.path("sock")).unwrap();
    let mut replies = nbd.receiver().unwrap();
    std::thread::scope(|scope| {
        let line = "trace record --control ctl t.csv --for 2s --json";
        let recording = scope.spawn(|| json(&folder.dcd(line).ok()));
        wait_for_recorders(&folder, 1);
        for round in 0..40u64 {
            for i in 0..32 {
                let offset = (round * 32 + i) * 4096;
                nbd.send(NbdRequest::Read { offset, length: 4096 }).unwrap();
            }
            for _ in 0..32 {
                replies.receive(|_| 4096).unwrap();
            }
        }
        assert_eq!(recording.join().unwrap()["requests"], 1280);
    });
    let trace = std::fs::read_to_string(folder.path("t.csv")).unwrap();
    let offsets = trace.lines().skip(1).map(|line| line.split(',').nth(3).unwrap());
    let offsets: Vec<u64> = offsets.map(|offset| offset.parse().unwrap()).collect();
    assert!(offsets.iter().copied().eq((0..1280).map(|i| i * 4096)), "{offsets:?}");
    drop(nbd);
    served.stop();
}

#[test]
fn what_was_recorded_survives_the_daemon() {
    let folder = pair();
    let served = folder.serve(SERVE);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    let line = "trace record --control ctl t.csv --for 1h";
    std::thread::scope(|scope| {
        let recording = scope.spawn(|| folder.dcd(line));
        wait_for_recorders(&folder, 1);
        write_lines(&mut nbd, 0..5, 1);
        // Ten times a second they are told.
        std::thread::sleep(std::time::Duration::from_secs(1));
        served.kill();
        recording.join().unwrap().fails(6, "until then, 5 requests in t.csv", "messages");
    });
    assert_eq!(std::fs::read_to_string(folder.path("t.csv")).unwrap().lines().count(), 6);
}

/// One that hangs is not waited for twice.
#[test]
fn a_second_signal_ends_a_recording_of_a_silent_daemon() {
    let folder = Folder::new();
    let listener = std::os::unix::net::UnixListener::bind(folder.path("ctl")).unwrap();
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_dcd"))
        .args(["trace", "record", "--control", "ctl", "t.csv"])
        .current_dir(folder.path(""))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stream));
    let mut asked = || lines.next().unwrap().unwrap();
    assert_eq!(asked(), r#"{"command":"record"}"#);
    let pid = rustix::process::Pid::from_child(&child);
    let signal = || rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    signal();
    assert_eq!(asked(), r#"{"command":"cancel"}"#);
    signal();
    let outcome = common::Outcome::of("trace record", child.wait_with_output().unwrap());
    outcome.fails(7, "gone without an answer", "");
    assert!(!folder.path("t.csv").exists());
}

#[test]
fn without_the_driver_ublk_says_which_module_is_missing() {
    if std::path::Path::new("/dev/ublk-control").exists() {
        println!(
            "skipped: without_the_driver_ublk_says_which_module_is_missing: there is a driver"
        );
        return;
    }
    let folder = pair();
    let line = "serve --cache-disk c --data-disk d --memory-directory . --ublk";
    folder.dcd(line).fails(1, "cannot open /dev/ublk-control", "modprobe ublk_drv");
    folder.dcd("slow-disk --disk d --ublk 3").fails(1, "/dev/ublk-control", "modprobe ublk_drv");
    folder.dcd("ublk list").fails(1, "/dev/ublk-control", "modprobe ublk_drv");
    // Nothing was begun.
    folder.dcd("check --cache-disk c").ok();
    let _served = folder.serve(SERVE);
    let status = json(&folder.dcd("status --control ctl --json").ok());
    assert_eq!(status["recovery"]["was_closed"], true, "{status}");
}
