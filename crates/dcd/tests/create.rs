//! Proves that `dcd create` makes what `inspect` and `check` find, and that it refuses whatever
//! would lose data, with the documented exit code, one line of error and a hint, and nothing
//! written.

mod common;

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use common::{Folder, Outcome};
use dcd_engine::format::creation_mark::CreationMark;
use serde_json::Value;

const CREATE: &str = "create --cache-disk c --cache-size 16M --data-disk d";

fn with_data_disk() -> Folder {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn what_is_made_is_found() {
    let folder = with_data_disk();
    let made = json(&folder.dcd(&format!("{CREATE} --json")).ok());
    let metadata = std::fs::metadata(folder.path("c")).unwrap();
    assert_eq!(metadata.len(), 16 << 20);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert!(metadata.blocks() * 512 >= 16 << 20, "the space is taken at once");
    let copies = json(&folder.dcd("inspect superblock --cache-disk c --json").ok());
    for copy in copies.as_array().unwrap() {
        assert_eq!(copy["superblock"]["uuid"], made["uuid"]);
        assert_eq!(copy["superblock"]["data_disk_blocks"], (64 << 20) / 512);
    }
    assert!(copies[0]["counts"] != copies[1]["counts"], "one of the two counts");
    let report = json(&folder.dcd("check --cache-disk c --json").ok());
    assert_eq!((&report["healthy"], &report["clean"]), (&true.into(), &true.into()));
    let segments = json(&folder.dcd("inspect segments --cache-disk c --json").ok());
    assert_eq!(segments.as_array().unwrap().len() as u64, made["segments"].as_u64().unwrap());
    folder.dcd("inspect segment 9999 --cache-disk c").fails(1, "there is no segment 9999", "");
    assert!(std::fs::read(folder.path("d")).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn an_existing_file_is_used_as_it_is_or_made_larger() {
    let folder = with_data_disk();
    folder.disk("c", 8 << 20);
    folder.dcd("create --cache-disk c --data-disk d --segment-size 64k").ok();
    let again = "create --cache-disk c --data-disk d --force --cache-size 32M --segment-size 1M";
    folder.dcd(again).ok();
    assert_eq!(std::fs::metadata(folder.path("c")).unwrap().len(), 32 << 20);
    let smaller = "create --cache-disk c --data-disk d --force --cache-size 8M";
    folder.dcd(smaller).ok();
    assert_eq!(std::fs::metadata(folder.path("c")).unwrap().len(), 32 << 20);
}

/// A cache larger than the disk that it lies on, to try it at full size.
#[test]
fn a_sparse_cache_disk_takes_what_is_written() {
    let folder = with_data_disk();
    let create = |rest: &str| folder.dcd(&format!("create --cache-disk c --data-disk d {rest}"));
    create("--cache-size 4T").fails(1, "no room for the cache", "--cache-size");
    assert!(!folder.path("c").exists(), "nothing was made");
    create("--cache-size 4T --sparse --fill").fails(2, "--sparse", "");
    create("--cache-size 4T --sparse").ok();
    let metadata = std::fs::metadata(folder.path("c")).unwrap();
    assert!(metadata.len() == 4 << 40 && metadata.blocks() * 512 < 16 << 20, "{metadata:?}");
    let report = json(&folder.dcd("check --cache-disk c --json").ok());
    assert_eq!((&report["healthy"], &report["clean"]), (&true.into(), &true.into()));
    // What has its room keeps it.
    create("--cache-size 16M --sparse --force").ok();
    assert_eq!(std::fs::metadata(folder.path("c")).unwrap().len(), 4 << 40);
}

#[test]
fn wrong_sizes_are_told_with_the_right_ones() {
    let folder = with_data_disk();
    let create = |rest: &str| folder.dcd(&format!("create --cache-disk c --data-disk d {rest}"));
    create("--cache-size 5q").fails(2, "unknown unit \"q\"", "4k, 16M");
    create("--cache-size big").fails(2, "--cache-size", "4k, 16M");
    create("").fails(1, "c does not exist, and without --cache-size", "--cache-size 256M");
    create("--cache-size 1M").fails(1, "needs at least", "give it 2 MiB");
    // The size that is told is one that can be.
    create("--cache-size 1728512").fails(1, "at least 1732608", "");
    create("--cache-size 1732608").ok();
    std::fs::remove_file(folder.path("c")).unwrap();
    create("--cache-size 4M --segment-size 1M").fails(1, "needs at least", "--segment-size 64k");
    create("--cache-size 16M --segment-size 100k").fails(1, "power of two", "--segment-size 1M");
    create("--cache-size 99t").fails(1, "at most", "largest");
    assert!(!folder.path("c").exists(), "nothing was made");
}

/// It is looked at to its last byte, and gets whole lines.
#[test]
fn a_file_may_end_anywhere() {
    let folder = with_data_disk();
    for (size, made) in [((3 << 20) + 100, (3 << 20) + 4096), ((3 << 20) - 512, 3 << 20)] {
        let file = std::fs::File::create(folder.path("c")).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(b"end", size - 3).unwrap();
        let create = "create --cache-disk c --data-disk d";
        folder.dcd(create).fails(1, "4 KiB that are not zero", "--force");
        assert_eq!(file.metadata().unwrap().len(), size);
        folder.dcd(&format!("{create} --force")).ok();
        assert_eq!(file.metadata().unwrap().len(), made);
    }
}

/// What is behind the part that the cache takes is somebody's, too, and would be wiped with it.
#[test]
fn what_is_behind_the_cache_is_looked_at() {
    let folder = with_data_disk();
    folder.disk("c", 64 << 20);
    let file = std::fs::File::options().write(true).open(folder.path("c")).unwrap();
    file.write_all_at(&[1; 4096], 40 << 20).unwrap();
    let create = "create --cache-disk c --cache-size 8M --data-disk d";
    folder.dcd(create).fails(1, "4 KiB that are not zero", "--force");
    folder.dcd(&format!("{create} --force")).ok();
}

/// The kernel writes to it, by a way of its own.
#[test]
fn a_file_that_is_swapped_to_is_nobodys_disk() {
    let folder = with_data_disk();
    std::fs::write(folder.path("swap file"), vec![0; 4 << 20]).unwrap();
    let swap = folder.path("swap file");
    let run = |program: &str| {
        Command::new(program).arg(&swap).output().is_ok_and(|it| it.status.success())
    };
    if !run("mkswap") || !run("swapon") {
        println!("skipped: no swap can be switched on here");
        return;
    }
    std::os::unix::fs::symlink("swap file", folder.path("swap")).unwrap();
    let create = folder.dcd("create --cache-disk c --cache-size 8M --data-disk swap");
    assert!(run("swapoff"));
    create.fails(1, "in use as swap space", "swapoff");
    assert!(!folder.path("c").exists());
}

/// Nobody could serve it: `serve` looks for the profile, too.
#[test]
fn a_model_that_is_nowhere_is_refused() {
    let folder = with_data_disk();
    let created = "create --cache-size 16M --data-disk";
    for line in [
        format!("{created} model:nosuch:d --cache-disk c"),
        format!("{created} faulty:model:nosuch:d,control=f --cache-disk c"),
        format!("{created} d --cache-disk model:nosuch:c"),
    ] {
        let error = "there is no disk profile `nosuch`";
        folder.dcd(&line).fails(1, error, "hp-97560, hp-c2247a");
        assert!(!folder.path("c").exists(), "{line}");
    }
    folder.dcd(&format!("{created} model:hp-97560:d --cache-disk c")).ok();
}

#[test]
fn wrong_disks_are_refused() {
    let folder = with_data_disk();
    folder.dcd("create --cache-disk d --data-disk d").fails(1, "the same disk", "of its own");
    std::fs::hard_link(folder.path("d"), folder.path("d2")).unwrap();
    folder.dcd("create --cache-disk d2 --data-disk d").fails(1, "the same disk", "of its own");
    let missing = "create --cache-disk c --cache-size 16M --data-disk nothing";
    folder.dcd(missing).fails(1, "the data-disk nothing does not exist", "");
    std::fs::create_dir(folder.path("folder")).unwrap();
    let directory = "create --cache-disk c --cache-size 16M --data-disk folder";
    folder.dcd(directory).fails(1, "found a directory", "disk image inside");
    folder.dcd("create --cache-disk folder --data-disk d").fails(1, "neither a file nor", "");
    folder.disk("empty", 0);
    let empty = "create --cache-disk c --cache-size 16M --data-disk empty";
    folder.dcd(empty).fails(1, "has 0 bytes", "truncate");
    assert!(!folder.path("c").exists(), "nothing was made");
}

#[test]
fn a_cache_that_belongs_to_a_pair_is_not_overwritten_unasked() {
    let folder = with_data_disk();
    let uuid = json(&folder.dcd(&format!("{CREATE} --json")).ok())["uuid"].to_string();
    let uuid = uuid.trim_matches('"');
    folder
        .serve("serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory . --quiet")
        .stop();
    let before = std::fs::read(folder.path("c")).unwrap();
    folder.dcd(CREATE).fails(1, &format!("already holds cache {uuid}"), "dcd detach");
    assert!(before == std::fs::read(folder.path("c")).unwrap(), "nothing was written");
    folder.dcd(&format!("{CREATE} --force")).ok();
    let after = std::fs::read(folder.path("c")).unwrap();
    assert!(before != after);
    // Detached, as a new one is, it holds nothing and belongs to nobody.
    let outcome = folder.dcd(CREATE);
    assert!(outcome.stderr.contains("which holds nothing"), "{}", outcome.stderr);
    outcome.ok();
    assert!(after != std::fs::read(folder.path("c")).unwrap());
}

/// What a cache that is detached leaves behind the end of a smaller one is nobody's.
#[test]
fn a_cache_leaves_nothing_behind_a_smaller_one() {
    let folder = with_data_disk();
    let create = |more: &str| {
        folder.dcd(&format!("create --cache-disk c --data-disk d --no-fill {more}")).ok();
    };
    folder.disk("c", 64 << 20);
    for more in [
        "--read-area 8M",
        "",
        "--segment-size 64k",
        "",
        "--segment-size 64k",
        "--cache-size 60M",
        "--cache-size 32M",
        "",
    ] {
        create(more);
    }
    // Segments, too.
    let cache = std::fs::File::options().write(true).open(folder.path("c")).unwrap();
    cache.write_all_at(&[7; 8192], 50 << 20).unwrap();
    create("--cache-size 32M");
    create("");
    // What is behind the end of the old one is not dcd's, nor is what took the place of its end.
    create("--cache-size 40M");
    cache.write_all_at(&[7; 4096], 50 << 20).unwrap();
    let smaller = "create --cache-disk c --data-disk d --no-fill --cache-size 32M";
    folder.dcd(smaller).fails(1, "4 KiB that are not zero", "--force");
    folder.dcd(&format!("{smaller} --force")).ok();
    let mut bytes = [0; 4096];
    std::fs::File::open(folder.path("c")).unwrap().read_exact_at(&mut bytes, 50 << 20).unwrap();
    assert!(bytes == [7; 4096]);
    cache.write_all_at(&[0; 4096], 50 << 20).unwrap();
    create("");
    cache.write_all_at(&[9; 132 << 10], 63 << 20).unwrap();
    create("--cache-size 32M");
    folder.dcd(smaller).fails(1, "132 KiB that are not zero", "--force");
}

/// What stands in the superblocks' place from the first write on lets it be begun again.
#[test]
fn a_creation_that_was_killed_is_begun_again() {
    let folder = with_data_disk();
    folder.dcd(CREATE).ok();
    let mark = CreationMark { end: 16 << 20 }.encode();
    let cache = std::fs::File::options().write(true).open(folder.path("c")).unwrap();
    // The log of the cache that was there before is still to be seen.
    cache.write_all_at(&[7; 4096], 5 << 20).unwrap();
    cache.write_all_at(&[0; 4096], 0).unwrap();
    for (first, second) in [(mark.bytes(), mark.bytes()), (mark.bytes(), &[0; 4096])] {
        cache.write_all_at(first, 0).unwrap();
        cache.write_all_at(second, 64 << 10).unwrap();
        folder.dcd("serve --cache-disk c --data-disk d --nbd unix:s").fails(
            1,
            "holds no cache",
            "",
        );
        folder.dcd(CREATE).ok();
    }
    // Without it, what is there is somebody's.
    for offset in [0, 64 << 10] {
        cache.write_all_at(&[0; 4096], offset).unwrap();
    }
    folder.dcd(CREATE).fails(1, "that are not zero", "--force");
}

#[test]
fn a_creation_that_is_stopped_leaves_nothing() {
    use rustix::process::Signal;
    let folder = with_data_disk();
    let full = "create --cache-disk c --cache-size 2G --fill --data-disk d";
    // Below `nohup` a lost terminal ends nothing.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignores_hangup = u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 == 1;
    for signal in [Signal::INT, Signal::HUP] {
        if signal == Signal::HUP && ignores_hangup {
            continue;
        }
        let child = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(full.split(' '))
            .current_dir(folder.path(""))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while !folder.path("c").exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        let outcome = Outcome::of(full, child.wait_with_output().unwrap());
        outcome.fails(7, "stopped before the cache was made", "run it again");
        assert!(!folder.path("c").exists());
    }
}

#[test]
fn a_file_system_is_not_overwritten_unasked() {
    let folder = with_data_disk();
    let disk = std::fs::File::options().write(true).open(folder.path("d")).unwrap();
    disk.write_all_at(&[0x53, 0xef], 1080).unwrap(); // the magic number of ext4
    folder.disk("other", 64 << 20);
    let swapped = "create --cache-disk d --data-disk other";
    folder.dcd(swapped).fails(1, "looks like an ext2, ext3 or ext4 file system", "--force");
    folder.dcd(&format!("{swapped} --force")).ok();
}

#[test]
fn what_is_no_cache_is_told_apart_from_a_damaged_one() {
    let folder = with_data_disk();
    folder.dcd(CREATE).ok();
    folder.dcd("check --cache-disk d").fails(1, "d is not a dcd cache", "swapped");
    folder.dcd("check --cache-disk none").fails(1, "none does not exist", "dcd create");
    folder.dcd("inspect segments --cache-disk d").fails(1, "d is not a dcd cache", "swapped");
    let cache = std::fs::File::options().write(true).open(folder.path("c")).unwrap();
    // One copy of the superblock damaged: everything can still be read, and check says so.
    cache.write_all_at(&[0xff], 100).unwrap();
    folder.dcd("check --cache-disk c").fails(4, "found 1 problem on c", "");
    let report = folder.dcd("check --cache-disk c --json");
    let report = json(&report.stdout);
    assert_eq!(report["superblocks_valid"], 1);
    assert_eq!(report["problems"][0]["what"], "superblock");
    let told = folder.dcd("inspect superblock --cache-disk c").ok();
    // No line ends with blanks, though a file has no serial number.
    assert!(told.contains("data_disk_serial") && told.lines().all(|line| !line.ends_with(' ')));
    // Both: only that can be told.
    cache.write_all_at(&[0xff], (64 << 10) + 100).unwrap();
    folder.dcd("check --cache-disk c").fails(4, "found 1 problem on c", "");
    folder.dcd("inspect segments --cache-disk c").fails(1, "is damaged", "dcd check");
    folder.dcd(CREATE).fails(1, "already holds a cache", "--force");
    folder.dcd(&format!("{CREATE} --force")).ok();
    folder.dcd("check --cache-disk c").ok();
}

/// Whatever byte of the first MiB is flipped, and wherever the disk is cut off, `check` and
/// `inspect` end in an orderly way.
#[test]
fn damage_anywhere_never_panics() {
    let folder = with_data_disk();
    folder.dcd(CREATE).ok();
    let whole = std::fs::read(folder.path("c")).unwrap();
    let verbs = ["check --cache-disk c", "inspect segments --cache-disk c"];
    let orderly = |what: &str| {
        for verb in verbs {
            let Outcome { code, stderr, .. } = folder.dcd(verb);
            assert!(matches!(code, Some(0 | 1 | 4)), "{verb}, {what}: {code:?} {stderr}");
        }
    };
    for cut in [0, 100, 4096, 65536, 65536 + 200, 131072, 200_000, 794_624, 15 << 20] {
        std::fs::write(folder.path("c"), &whole[..cut]).unwrap();
        orderly(&format!("cut at {cut}"));
    }
    for at in (0..200).step_by(8).chain((131_072..131_200).step_by(8)) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(folder.path("c"), damaged).unwrap();
        orderly(&format!("byte {at} flipped"));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure_worth_words() {
    let folder = with_data_disk();
    folder.dcd(CREATE).ok();
    let mut child = Command::new(env!("CARGO_BIN_EXE_dcd"))
        .args(["inspect", "segments", "--json", "--cache-disk"])
        .arg(folder.path("c"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stderr, b"");
}

#[test]
fn a_member_of_a_volume_is_nobodys_data_disk() {
    let folder = with_data_disk();
    folder.disk("m", 64 << 20);
    std::fs::write(folder.path("v.toml"), "[[set]]\nlevel = 0\n").unwrap();
    let volume = format!("{CREATE} --data-disk m --volume v.toml --json");
    let uuid = json(&folder.dcd(&volume).ok())["uuid"].as_str().unwrap().to_owned();
    let second = "create --cache-disk n --cache-size 16M --data-disk m";
    let is_member = format!("m is member 1 of the volume of cache {uuid}");
    folder.dcd(second).fails(1, &is_member, "--force");
    let probed = folder.dcd("probe m").ok();
    assert!(probed.starts_with(&is_member), "{probed}");
    let probed = json(&folder.dcd("probe m --json").ok());
    let expected = serde_json::json!({
        "device": "m", "role": "data-disk", "service": null, "cache": uuid, "data_disks": [],
        "attached": true, "member_of_volume": true, "witness": null,
    });
    assert_eq!(probed, expected);
    let probed = folder.dcd("probe --udev m").ok();
    assert_eq!(probed, format!("DCD_ROLE=data-disk\nDCD_UUID={uuid}\nDCD_ATTACHED=1\n"));
    // One copy of its label is enough, and one that cannot be read is still a label.
    let disk = std::fs::File::options().write(true).open(folder.path("m")).unwrap();
    disk.write_all_at(&[0; 4096], 0).unwrap();
    folder.dcd(second).fails(1, &is_member, "--force");
    disk.write_all_at(b"x", (64 << 10) + 4000).unwrap();
    folder.dcd(second).fails(1, "m is a member of a volume, by a label that cannot", "--force");
    assert!(!folder.path("n").exists());
    let forced = folder.dcd(&format!("{second} --force"));
    assert!(forced.stderr.contains("that is given up: m is a member"), "{}", forced.stderr);
    forced.ok();
}

/// What a terminal would obey is written in JSON as JSON can.
#[test]
fn no_name_in_json_is_obeyed_by_a_terminal() {
    let folder = Folder::new();
    let name = "d\u{9b}31m\u{202e}\u{7f}";
    folder.disk(name, 64 << 20);
    let create = format!("create --cache-disk c --cache-size 16M --data-disk {name} --json");
    let made = folder.dcd(&create).ok();
    assert!(made.contains("\"d\\u009b31m\\u202e\\u007f\""), "{made}");
    assert_eq!(json(&made)["data_disk"], name);
    let served = folder.serve(&format!(
        "serve --cache-disk c --data-disk {name} --nbd unix:s --control ctl --memory-directory ."
    ));
    for line in
        ["list --json --memory-directory .", "status --control ctl --json", "top --once --json ctl"]
    {
        let told = folder.dcd(line).ok();
        let is_obeyed = |c: char| dcd_client::plain::is_obeyed(c) && c != '\n';
        assert!(!told.contains(is_obeyed), "{line}: {told:?}");
        assert!(json(&told).is_object(), "{line}: {told}");
    }
    served.stop();
}
