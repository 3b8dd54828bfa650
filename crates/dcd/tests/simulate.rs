//! Proves that `dcd simulate` puts the caches in front of the disk that its flags describe, and
//! that `dcd sweep` tells the same as `dcd simulate`, goes on after an interruption, and overwrites
//! nothing.

mod common;

use common::Folder;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Eight places written again and again, and others written once; a read now and then.
fn folder_with_trace() -> Folder {
    let folder = Folder::new();
    let mut trace = "t_us,op,off,len\n".to_owned();
    for number in 0..3000u64 {
        let place = if number % 2 == 0 { number / 2 % 8 } else { 100 + number * 7 };
        let op = if number % 10 == 9 { 'R' } else { 'W' };
        trace += &format!("{},{op},{},4096\n", number * 30_000, place * 8192);
    }
    std::fs::write(folder.path("t.csv"), trace).unwrap();
    folder
}

fn simulate(folder: &Folder, flags: &str) -> Value {
    json(&folder.dcd(&format!("simulate --trace t.csv --disk hp-97560 --json {flags}")).ok())
}

#[test]
fn memory_in_front_of_a_disk_absorbs_writes() {
    let folder = folder_with_trace();
    let bare = simulate(&folder, "");
    let mean = |facts: &Value, what: &str| facts[what]["response_ms"]["mean"].as_f64().unwrap();
    assert!(bare["nvram"].is_null() && bare["disk_writes"] == bare["writes"]);
    for policy in ["lru", "stf", "wstf", "lst", "stack"] {
        let facts = simulate(&folder, &format!("--nvram 256k --policy {policy} --low 40"));
        let writes = |facts: &Value| facts["disk_writes"].as_u64().unwrap();
        assert!(writes(&facts) < writes(&bare) * 6 / 10, "{policy}: {facts}");
        assert!(mean(&facts, "write") < mean(&bare, "write") / 10.0, "{policy}: {facts}");
        assert_eq!(facts["nvram"]["hot_zone_bytes"].is_null(), policy != "stack");
        let nvram = &facts["nvram"];
        let cleaned = nvram["cleaning_bytes"].as_u64().unwrap();
        let overwritten = nvram["overwritten_bytes"].as_u64().unwrap();
        let left = nvram["dirty_bytes"].as_u64().unwrap();
        let written = nvram["write_bytes"].as_u64().unwrap();
        // What is on its way to the disk counts as cleaned and as left.
        assert!(cleaned + overwritten + left >= written, "{facts}");
        assert!(cleaned + overwritten <= written, "{facts}");
    }
    let words =
        folder.dcd("simulate --trace t.csv --disk hp-97560 --nvram 256k --policy stack").ok();
    for wanted in ["writes into memory", "waited for room", "hot zone", "knee at"] {
        assert!(words.contains(wanted), "{wanted}: {words}");
    }
}

/// What `dcd create --volume` takes, on models of disks.
#[test]
fn a_volume_in_place_of_the_disk() {
    let folder = folder_with_trace();
    std::fs::write(folder.path("v5.toml"), "[[set]]\nlevel = 5\n").unwrap();
    std::fs::write(folder.path("two.toml"), "[[set]]\nlevel = 1\n[[set]]\nlevel = 0\n").unwrap();
    let volume = "--volume v5.toml --members 4 --cache-disk 256M --cache-disk-profile nvme-ssd";
    let without_log = simulate(&folder, &format!("{volume} --no-log"));
    let members = without_log["volume"]["members"].as_array().unwrap();
    let of_members = |key: &str| members.iter().map(|it| it[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(members.len(), 4);
    assert_eq!(of_members("writes"), without_log["disk_writes"]);
    let writes = without_log["writes"].as_u64().unwrap();
    // Data and parity.
    assert!((2 * writes..2 * writes + 200).contains(&of_members("writes")), "{without_log}");
    let mean = |facts: &Value| facts["write"]["response_ms"]["mean"].as_f64().unwrap();
    let with_log = simulate(&folder, volume);
    assert!(mean(&with_log) < mean(&without_log) / 100.0, "{with_log}");
    // What nobody has written is nowhere.
    let empty = simulate(&folder, &format!("{volume} --no-log --empty"));
    assert!(empty["disk_reads"].as_u64() < without_log["disk_reads"].as_u64(), "{empty}");

    // Hints say where: all of it on RAID 1, and half.
    let used = |flags: &str| {
        let volume = "--volume two.toml --members nvme-ssd,hp-97560 --cache-disk 256M";
        let facts = simulate(&folder, &format!("{volume} --cache-disk-profile nvme-ssd {flags}"));
        let sets = facts["volume"]["sets"].as_array().unwrap().clone();
        sets.iter().map(|set| set["used_extents"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let all = used("--hint 0..1G=important");
    assert!(all[0] > 100 && all[1] == 0, "{all:?}");
    std::fs::write(folder.path("hints"), "# the first\n0..64k = important\n\n").unwrap();
    assert_eq!(used("--hints hints")[0], 1);

    let words = folder.dcd(&format!("simulate --trace t.csv --disk hp-97560 {volume}")).ok();
    for wanted in ["member 3", "RAID 5, slow", "extents moved", "journal of the volume"] {
        assert!(words.contains(wanted), "{wanted}: {words}");
    }
    let fails = |flags: &str, code, wanted: &str| {
        let line = format!("simulate --trace t.csv --disk hp-97560 {flags}");
        folder.dcd(&line).fails(code, wanted, "");
    };
    fails("--volume v5.toml --cache-disk 256M", 2, "--members");
    fails("--volume v5.toml --members 4", 2, "--cache-disk");
    fails("--members 4", 2, "--volume");
    fails("--volume v5.toml --members 40 --cache-disk 256M", 2, "1 to 32 members");
    fails("--volume v5.toml --members 4 --cache-disk 256M --hint 5", 2, "START..END=ATTRIBUTES");
    for (flags, wanted) in [
        ("--members 2 --cache-disk 256M", "v5.toml:1:1: set 0: RAID 5 needs"),
        ("--members 4 --cache-disk 8M", "the tables of the volume need"),
        ("--members 4 --cache-disk 256M --hint 0..9T=hot", "a hint reaches"),
        ("--members 4 --cache-disk 256M --hints v5.toml", "v5.toml, line 1"),
        ("--members s3,s3,s3 --cache-disk 256M", "a store for a member"),
        ("--members a,b,c --cache-disk 256M", "`a`"),
    ] {
        fails(&format!("--volume v5.toml {flags}"), 1, wanted);
    }
    fails("--volume none.toml --members 4 --cache-disk 256M", 1, "cannot read none.toml");
}

#[test]
fn a_bound_stands_beside_the_policy() {
    let folder = folder_with_trace();
    for policy in ["auto", "lru", "lst", "gds"] {
        let facts = simulate(&folder, &format!("--nvram 256k --policy {policy} --bound"));
        let number = |facts: &Value| facts.as_u64().unwrap_or_else(|| panic!("{facts}"));
        let bound = &facts["bound"];
        let lower = number(&bound["lower_disk_writes"]);
        let clairvoyant = number(&bound["clairvoyant_disk_writes"]);
        let found = number(&facts["disk_writes"]);
        // 1,200 places are written once, far apart; the memory has room for 64, of which eight are
        // written again and again.
        assert_eq!((clairvoyant, number(&bound["bypasses"])), (1200 - 56, 0), "{facts}");
        assert!((900..=clairvoyant).contains(&lower) && found >= clairvoyant, "{facts}");
        // It changes nothing else.
        let mut without = facts.clone();
        without.as_object_mut().unwrap().remove("bound");
        assert_eq!(without, simulate(&folder, &format!("--nvram 256k --policy {policy}")));
    }
    let words = folder.dcd("simulate --trace t.csv --disk hp-97560 --nvram 256k --bound").ok();
    for wanted in ["disk writes, at least", "knowing what comes    1144; there are"] {
        assert!(words.contains(wanted), "{wanted}: {words}");
    }
    let load = "simulate --trace t.csv --disk hp-97560 --bound";
    folder.dcd(load).fails(2, "--nvram", "");
    folder.dcd(&format!("{load} --nvram 256k --cache-disk 64M")).fails(2, "--cache-disk", "");
}

#[test]
fn each_setting_of_the_memory_makes_a_difference() {
    let folder = folder_with_trace();
    let base = "--nvram 64k --policy lst";
    let first = simulate(&folder, base);
    for flags in [
        "--low 80",
        "--high 50",
        "--low 100 --high 100",
        "--idle 200ms",
        "--groups-at-once 1",
        "--group 8k",
        "--nvram-bypass 2k",
        "--low 0 --wear-floor 60",
    ] {
        let other = simulate(&folder, &format!("{base} {flags}"));
        assert_ne!(first, other, "{flags}");
    }
    let stack = |zone: &str| simulate(&folder, &format!("--nvram 64k --policy stack {zone}"));
    assert_ne!(stack("--hot-zone 10"), stack("--hot-zone 80"));
    let wstf = |age: &str| simulate(&folder, &format!("--nvram 64k --policy wstf {age}"));
    assert_ne!(wstf("--age-max 10ms"), wstf("--age-max 1h"));
}

#[test]
fn a_log_in_front_of_a_disk_is_the_engine() {
    let folder = folder_with_trace();
    let log = |flags: &str| simulate(&folder, &format!("--cache-disk 8M {flags}"));
    let facts = log("");
    let destaged = facts["log"]["destaged_lines"].as_u64().unwrap();
    let overwritten = facts["log"]["overwritten_lines"].as_u64().unwrap();
    let left = facts["log"]["dirty_lines"].as_u64().unwrap();
    assert_eq!(destaged + overwritten + left, 2700, "every line written: {facts}");
    assert!(facts["write"]["response_ms"]["mean"].as_f64().unwrap() < 1.0, "{facts}");
    let durable = log("--ack durable");
    assert!(durable["write"]["response_ms"]["mean"].as_f64().unwrap() > 5.0, "{durable}");
    assert_ne!(facts, log("--segment 256k"));
    assert_ne!(facts, log("--log-bypass 4k"));
    assert_ne!(durable, log("--ack durable --cache-disk-profile nvme-ssd"));
    assert_eq!(facts, log(""), "the same again");
    let both = log("--nvram 64k");
    assert!(both["nvram"]["writes"] == 2700 && both["log"]["destaged_lines"].is_u64(), "{both}");
}

/// Without a word it sets itself; a threshold alone is one of the policy that was the default.
#[test]
fn a_memory_sets_itself_unless_a_setting_says_otherwise() {
    let folder = folder_with_trace();
    let auto = simulate(&folder, "--nvram 64k");
    assert_eq!(auto, simulate(&folder, "--nvram 64k --policy auto"));
    let control = &auto["nvram"]["control"];
    assert!(control["arm"].is_string() && control["waited_ms"]["age"].is_f64(), "{control}");
    let fixed = simulate(&folder, "--nvram 64k --low 20");
    assert_eq!(fixed, simulate(&folder, "--nvram 64k --policy lru --high 90 --low 20"));
    assert!(fixed["nvram"]["control"].is_null());
    let policies = ["lru", "lst", "age-size", "gds"].map(|policy| {
        let load = "zipf,rate=40,requests=3000,size=1k,size-max=8k,span=64M";
        let flags = format!("--disk hp-97560 --nvram 64k --policy {policy} --json");
        folder.dcd(&format!("simulate --workload {load} {flags}")).ok()
    });
    assert!(policies.iter().enumerate().all(|(at, it)| !policies[..at].contains(it)));
}

#[test]
fn what_cannot_be_simulated_is_told() {
    let folder = folder_with_trace();
    for (flags, code, problem, hint) in [
        ("--policy lru", 2, "--nvram", ""),
        ("--destage fifo", 2, "--cache-disk", ""),
        ("--nvram 100", 2, "512 bytes", ""),
        ("--nvram 1M --hot-zone much", 2, "auto", ""),
        ("--nvram 1M --group 1000", 2, "multiple of 512", ""),
        ("--nvram 1M --groups-at-once 0", 2, "above 0", ""),
        ("--nvram 1M --policy auto --high 50", 1, "--high is only for", "than auto"),
        ("--nvram 1M --hot-zone 40", 1, "--hot-zone is only for", "--policy stack"),
        ("--nvram 1M --policy lst --age-max 1s", 1, "--age-max is only for", "--policy wstf"),
        ("--cache-disk 64k", 1, "needs at least", "--segment"),
        ("--cache-disk 4G", 1, "does not fit", "--cache-disk-profile"),
        ("--cache-disk 8M --segment 100k", 1, "power of two", "--segment"),
        ("--cache-disk 8M --segment-buffers 1", 1, "at least 3", ""),
        ("--cache-disk 8M --cache-disk-profile none", 1, "none", "dcd disk list"),
    ] {
        let line = format!("simulate --trace t.csv --disk hp-97560 {flags}");
        folder.dcd(&line).fails(code, problem, hint);
    }
}

const SIMPLE_DISK: &str = "title = \"test\"\n[simple]\ncapacity_bytes = CAPACITY\nchannels = 1\n\
    read_us = { median = 100, p99 = 200 }\nwrite_us = { median = WRITE, p99 = WRITE }\n\
    read_bytes_per_second = 100e6\nwrite_bytes_per_second = 100e6\n";

fn write_disk(folder: &Folder, capacity_bytes: u64, write_us: u64) {
    let profile = SIMPLE_DISK.replace("CAPACITY", &capacity_bytes.to_string());
    std::fs::write(folder.path("d.toml"), profile.replace("WRITE", &write_us.to_string())).unwrap();
}

/// The memory has blocks of 512 bytes, which it could not clean to a part of one.
#[test]
fn a_block_that_a_disk_of_odd_size_cuts_is_beyond_it() {
    let folder = Folder::new();
    write_disk(&folder, (1 << 20) + 324, 100);
    std::fs::write(folder.path("t.csv"), "t_us,op,off,len\n0,W,1048576,300\n").unwrap();
    folder.dcd("simulate --trace t.csv --disk d.toml").ok();
    let line = "simulate --trace t.csv --disk d.toml --nvram 64k";
    folder.dcd(line).fails(1, "512 bytes at 1048576 reach beyond the disk", "");
}

#[test]
fn requests_that_find_no_room_for_a_minute_fail_and_are_counted() {
    let folder = Folder::new();
    write_disk(&folder, 1 << 30, 200_000_000);
    let line = "simulate --workload uniform,size=4k,span=100M,reads=0,rate=100 --requests 2000 \
                --disk d.toml --cache-disk 3M --cache-disk-profile nvme-ssd";
    let facts = json(&folder.dcd(&format!("{line} --json")).ok());
    assert!(facts["log"]["failed_requests"].as_u64().unwrap() > 0, "{facts}");
    assert!(facts["drain"].is_null(), "the disk never takes what is in the log: {facts}");
    let words = folder.dcd(line).ok();
    assert!(words.contains("no room for 60 s"), "{words}");
}

#[test]
fn a_sweep_is_many_simulations() {
    let folder = folder_with_trace();
    let line = "sweep --trace t.csv --disk hp-97560,wd-4tb --nvram none,64k --policy lru,stack \
                --low 20,95 --cache-disk none,8M --segment 64k,128k";
    folder.dcd(&format!("{line} --out one.csv --jobs 1")).ok();
    let all = std::fs::read_to_string(folder.path("one.csv")).unwrap();
    // For each disk: without memory and with four settings of it; without log and with two.
    assert_eq!(all.lines().count(), 1 + 2 * (1 + 4) * (1 + 2), "{all}");
    folder.dcd(&format!("{line} --out two.csv --jobs 3")).ok();
    assert_eq!(all, std::fs::read_to_string(folder.path("two.csv")).unwrap());
    // Interrupted in the middle of a row.
    std::fs::write(folder.path("two.csv"), &all[..all.len() / 2]).unwrap();
    let rows = json(&folder.dcd(&format!("{line} --out two.csv --json")).ok());
    assert_eq!(all, std::fs::read_to_string(folder.path("two.csv")).unwrap());
    let row = &rows["rows"][5];
    let alone =
        simulate(&folder, "--nvram 64k --policy lru --low 20 --cache-disk 8M --segment 128k");
    assert_eq!((&row["nvram_bytes"], &row["segment_bytes"]), (&65536.into(), &131_072.into()));
    assert_eq!(row["disk_writes"].as_f64(), alone["disk_writes"].as_f64(), "{row}");
}

#[test]
fn a_sweep_overwrites_nothing_and_tells_what_failed() {
    let folder = folder_with_trace();
    let line = "sweep --trace t.csv --disk hp-97560 --nvram 64k";
    for name in ["mine.csv", "mine.json"] {
        std::fs::write(folder.path(name), "my notes").unwrap();
        let wanted = format!("{name}:1: this is no row");
        folder.dcd(&format!("{line} --out {name}")).fails(1, &wanted, "--out");
        assert_eq!(std::fs::read_to_string(folder.path(name)).unwrap(), "my notes");
    }
    folder.dcd(&format!("{line} --out mine.txt")).fails(2, "ends in .csv, .json", "");
    folder.dcd(&format!("{line} --out s.csv")).ok();
    folder.dcd(&format!("{line} --high 50 --out s.csv")).fails(1, "s.csv:2: this is no row", "");
    folder.dcd(&format!("{line} --nvram 1 --out t.csv")).fails(2, "at least 512", "");
    folder.dcd(&format!("{line} --trace none --out u.csv")).fails(2, "", "");
    folder.dcd("sweep --trace none --disk hp-97560 --out u.csv").fails(1, "cannot read", "");
    folder.dcd("sweep --trace /dev/null --disk hp-97560 --out u.csv").fails(
        1,
        "a pipe",
        "a file first",
    );
    // A point that fails is a row that says so.
    let told =
        folder.dcd("sweep --trace t.csv --disk hp-97560 --cache-disk 64k,8M --out v.csv").ok();
    assert_eq!(told, "2 rows in v.csv; 1 not simulated: column `error` tells why\n");
    let rows = std::fs::read_to_string(folder.path("v.csv")).unwrap();
    let failed = rows.lines().nth(1).unwrap();
    assert!(failed.ends_with("needs at least 2785280"), "{failed}");
    assert!(rows.lines().nth(2).unwrap().ends_with(','), "{rows}");
}

/// What decides a row and is no column of its own is in the column `settings`.
#[test]
fn rows_of_another_sweep_are_not_its_own() {
    let folder = folder_with_trace();
    let profile = |name: &str| {
        let text = folder.dcd(&format!("disk show {name}")).ok();
        std::fs::write(folder.path("own.toml"), text).unwrap();
    };
    profile("hp-97560");
    let line = "sweep --trace t.csv --disk own.toml --nvram 64k,128k";
    for kind in ["csv", "json"] {
        folder.dcd(&format!("{line} --out one.{kind}")).ok();
        folder.dcd(&format!("{line} --shard 0/2 --out part0.{kind}")).ok();
        let text = std::fs::read_to_string(folder.path(&format!("one.{kind}"))).unwrap();
        let first = if kind == "csv" { 2 } else { 1 };
        let refused = |more: &str| {
            let wanted = format!("one.{kind}:{first}: this is no row of this sweep");
            folder.dcd(&format!("{line} {more} --out one.{kind}")).fails(1, &wanted, "settings");
            folder.dcd(&format!("{line} {more} --shard 1/2 --out part1.{kind}")).ok();
            let parts = format!("part1.{kind} part0.{kind}");
            let merge = folder.dcd(&format!("{line} {more} --merge {parts} --out all.{kind}"));
            merge.fails(1, &format!("part0.{kind}:{first}: this is no row"), "settings");
            assert!(!folder.path(&format!("all.{kind}")).exists());
            std::fs::remove_file(folder.path(&format!("part1.{kind}"))).unwrap();
        };
        refused("--seed 7");
        refused("--device 0");
        profile("hp-2200a");
        refused("");
        profile("hp-97560");
        folder.dcd(&format!("{line} --out one.{kind}")).ok();
        let again = std::fs::read_to_string(folder.path(&format!("one.{kind}"))).unwrap();
        assert_eq!(again, text);
    }
}

/// Neither is read until memory is full, nor waited for.
#[test]
fn files_of_rows_are_files() {
    let folder = folder_with_trace();
    let line = "sweep --trace t.csv --disk hp-97560 --nvram 64k";
    let made = std::process::Command::new("mkfifo").arg(folder.path("pipe.csv")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", folder.path("zero.csv")).unwrap();
    for name in ["pipe.csv", "zero.csv"] {
        folder.dcd(&format!("{line} --out {name}")).fails(1, "expected a file, found", "");
        let merge = folder.dcd(&format!("{line} --merge {name} --out all.csv"));
        merge.fails(1, &format!("cannot read {name}: expected a file, found"), "");
        let merge = folder.dcd(&format!("advise --disk hp-97560 --merge {name}"));
        merge.fails(1, &format!("cannot read {name}: expected a file, found"), "");
    }
    // A line without an end.
    let large = std::fs::File::create(folder.path("large.csv")).unwrap();
    large.set_len(1 << 40).unwrap();
    folder.dcd(&format!("{line} --out large.csv")).fails(1, "large.csv:1: this is no row", "");
    let merge = folder.dcd(&format!("{line} --merge large.csv --out all.csv"));
    merge.fails(1, "large.csv:1: this is no row", "");
    let merge = folder.dcd("advise --disk hp-97560 --merge large.csv");
    merge.fails(1, "cannot read large.csv: the file is longer than", "");
    assert_eq!(large.metadata().unwrap().len(), 1 << 40);
}

#[test]
fn cleaning_does_not_end_above_where_it_begins() {
    let folder = folder_with_trace();
    let line = "simulate --trace t.csv --disk hp-97560 --nvram 64k";
    for flags in ["--high 10 --low 20", "--low 95"] {
        folder.dcd(&format!("{line} {flags}")).fails(1, "--low: expected at most --high", "--high");
    }
    folder.dcd(&format!("{line} --high 10")).ok();
}

/// Shards have all rows, each once, and together they are the file of one sweep, byte for byte.
#[test]
fn shards_of_a_sweep_make_one() {
    let folder = Folder::new();
    let line = "sweep --workload uniform,rate=40,requests=500 --workload zipf,rate=40,requests=500 \
                --disk hp-97560,wd-4tb --nvram none,64k --policy lru,stack";
    let read = |name: &str| std::fs::read_to_string(folder.path(name)).unwrap();
    for kind in ["csv", "json"] {
        folder.dcd(&format!("{line} --out one.{kind}")).ok();
        let parts = [0, 1, 2, 3, 4].map(|shard| format!("part{shard}.{kind}"));
        for (shard, part) in parts.iter().enumerate() {
            folder.dcd(&format!("{line} --shard {shard}/5 --out {part}")).ok();
        }
        let all = parts.join(" ");
        folder.dcd(&format!("{line} --merge {all} --out all.{kind}")).ok();
        assert_eq!(read(&format!("all.{kind}")), read(&format!("one.{kind}")));
        // In any order, and never over something.
        let turned = parts.iter().rev().cloned().collect::<Vec<_>>().join(" ");
        folder.dcd(&format!("{line} --merge {turned} --out all.{kind}")).fails(
            1,
            &format!("cannot create all.{kind}: File exists"),
            "nothing is overwritten: choose another name",
        );
        // A shard that was interrupted, is missing, or there twice.
        let part = read(&parts[2]);
        std::fs::write(folder.path(&parts[2]), &part[..part.len() - 10]).unwrap();
        let merge = |parts: &str| folder.dcd(&format!("{line} --merge {parts} --out more.{kind}"));
        merge(&all).fails(1, "1 of 12 rows are missing", "same command");
        folder.dcd(&format!("{line} --shard 2/5 --out {}", parts[2])).ok();
        assert_eq!(read(&parts[2]), part);
        merge(&parts[1..].join(" ")).fails(1, "3 of 12 rows are missing", "all shards");
        merge(&format!("{all} {}", parts[3])).fails(1, &parts[3], "each part once");
        std::fs::write(folder.path("other"), "something else\n").unwrap();
        merge(&format!("{all} other")).fails(1, "other:1", "");
        assert!(!folder.path(&format!("more.{kind}")).exists());
    }
    folder.dcd(&format!("{line} --shard 30/40 --out few.csv")).fails(1, "no row", "fewer");
    folder.dcd(&format!("{line} --shard 5/5 --out few.csv")).fails(2, "from 0 to 4", "");
    folder.dcd(&format!("{line} --shard 5 --out few.csv")).fails(2, "JOB_COMPLETION_INDEX", "");
}

/// Made-up loads, the settings of cleaning, and results as JSON lines.
#[test]
fn a_sweep_takes_several_loads_and_all_settings_of_the_memory() {
    let folder = Folder::new();
    let line = "sweep --workload uniform,rate=40,requests=2000 --workload zipf,rate=40,requests=2000,theta=1.1 \
                --disk hp-97560 --nvram none,256k --policy lru,stack --idle 0s,20ms \
                --groups-at-once all,1 --hot-zone auto,25";
    folder.dcd(&format!("{line} --out one.json --jobs 1")).ok();
    let all = std::fs::read_to_string(folder.path("one.json")).unwrap();
    let rows: Vec<Value> = all.lines().map(json).collect();
    // For each load: without memory; two idle times and two numbers of groups with LRU, and with
    // the stack model each of these with two hot zones.
    assert_eq!(rows.len(), 2 * (1 + 4 + 8), "{all}");
    let keys = ["load", "policy", "idle_ms", "groups_at_once", "hot_zone", "nvram_bytes"];
    let facts = |row: usize| keys.map(|key| rows[row][key].clone());
    assert!(facts(0)[0].as_str().unwrap().starts_with("uniform"), "{all}");
    let settings = |row: usize| Value::Array(facts(row)[1..].to_vec());
    assert_eq!(settings(0), serde_json::json!([null, null, null, null, null]));
    assert_eq!(settings(2), serde_json::json!(["lru", 0, "1", null, 262_144]));
    assert_eq!(settings(12), serde_json::json!(["stack", 20, "1", "25", 262_144]));
    assert!(facts(13)[0].as_str().unwrap().starts_with("zipf"), "{all}");
    // The same as alone.
    let alone = "simulate --workload uniform,rate=40,requests=2000 --disk hp-97560 --nvram 256k --policy stack \
                 --idle 20ms --groups-at-once 1 --hot-zone 25 --json";
    assert_eq!(rows[12]["disk_writes"], json(&folder.dcd(alone).ok())["disk_writes"]);

    // On several threads, and gone on with in the second load, the same to the byte.
    folder.dcd(&format!("{line} --out two.json --jobs 3")).ok();
    assert_eq!(all, std::fs::read_to_string(folder.path("two.json")).unwrap());
    std::fs::write(folder.path("two.json"), &all[..all.len() * 3 / 4]).unwrap();
    let again = json(&folder.dcd(&format!("{line} --out two.json --json")).ok());
    assert_eq!(all, std::fs::read_to_string(folder.path("two.json")).unwrap());
    assert_eq!(again["rows"].as_array(), Some(&rows));
    // As CSV the loads have commas in them.
    let as_csv = json(&folder.dcd(&format!("{line} --out one.csv --json")).ok());
    assert_eq!(as_csv["rows"].as_array(), Some(&rows));
    // Another load is another sweep.
    let other = line.replace("rate=40,requests=2000,theta", "rate=41,requests=2000,theta");
    folder.dcd(&format!("{other} --out one.json")).fails(1, "one.json:14: this is no row", "");
}

#[test]
fn flags_of_a_sweep_that_make_no_difference_are_refused() {
    let folder = folder_with_trace();
    let line = "sweep --trace t.csv --disk hp-97560 --out s.csv";
    for flag in
        ["--policy lst", "--high 50", "--low 5", "--idle 1s", "--groups-at-once 1", "--hot-zone 5"]
    {
        folder.dcd(&format!("{line} {flag}")).fails(2, "--nvram", "");
    }
    for flag in ["--segment 64k", "--destage lifo"] {
        folder.dcd(&format!("{line} {flag}")).fails(2, "--cache-disk", "");
    }
    folder.dcd(&format!("{line} --nvram 64k --policy lru,lst --hot-zone auto")).fails(
        1,
        "--hot-zone is only for --policy stack",
        "leave --hot-zone out",
    );
    folder.dcd(&format!("{line} --workload uniform")).fails(2, "--workload", "");
    folder.dcd("sweep --disk hp-97560 --out s.csv").fails(2, "--trace", "");
    assert!(!folder.path("s.csv").exists());
}
