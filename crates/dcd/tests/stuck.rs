//! Proves that `dcd drain` and `dcd detach` always answer, on line and off line: when nothing more
//! gets to the data-disk, they say what is left and why, with an exit code of their own, the pair
//! stays one, and later they end it.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use common::nbd::Nbd;
use common::{Folder, Outcome, Served};
use serde_json::Value;

const STUCK: i32 = 8;
const FLAGS: &str = "--drain-timeout 2s --io-timeout 1s";
const LINES: u64 = 50;

fn serve(folder: &Folder, data: &str) -> Served {
    folder.serve(&format!(
        "serve --cache-disk c {data} --nbd unix:sock --control ctl --memory-directory . --quiet \
         --idle-max 1h --idle-min 1h {FLAGS}"
    ))
}

fn write(folder: &Folder, first: u64, byte: u8) {
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for number in first..first + LINES {
        assert_eq!(nbd.write(number << 16, &[byte; 4096]), 0);
    }
    assert_eq!(nbd.flush(), 0);
}

/// It has answered in time, and says what there is to be said.
fn is_stuck(folder: &Folder, line: &str, why: &str, left: &str) {
    let begun = Instant::now();
    let Outcome { code, stderr, .. } = folder.dcd(line);
    assert_eq!(code, Some(STUCK), "dcd {line}: {stderr}");
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    for words in ["nothing more gets to the data-disk", why, left, "hint: "] {
        assert!(stderr.contains(words), "dcd {line}: no `{words}` in {stderr}");
    }
}

fn state(folder: &Folder) -> String {
    let report: Value =
        serde_json::from_str(&folder.dcd("check --cache-disk c --json").stdout).unwrap();
    report["state"].as_str().unwrap().to_owned()
}

/// On line, off line, and then all of it although it was stuck so often.
fn stuck_and_on(folder: &Folder, data: &str, why: &str, mend: impl Fn(&Folder)) {
    let left = "200 KiB stay in the cache";
    let served = serve(folder, &format!("--data-disk {data}"));
    write(folder, 0, 1);
    is_stuck(folder, "drain --control ctl", why, left);
    is_stuck(folder, "detach --control ctl", why, left);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.read(3 << 16, 4096).unwrap(), [1; 4096], "it serves");
    drop(nbd);
    assert_eq!(served.stop().code, Some(0));
    let line =
        format!("detach --cache-disk c --data-disk {data} --memory-directory . --drain-timeout 2s");
    for _ in 0..2 {
        is_stuck(folder, &line, why, left);
        assert_eq!(state(folder), "closed");
    }
    mend(folder);
    folder.dcd(&line).ok();
    assert_eq!(state(folder), "detached");
}

fn faulty_pair() -> Folder {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    folder
}

fn rules(folder: &Folder, rules: &str) {
    std::fs::write(folder.path("faults.new"), rules).unwrap();
    std::fs::rename(folder.path("faults.new"), folder.path("faults")).unwrap();
}

#[test]
fn a_data_disk_that_fails_is_told_of() {
    for (fault, why) in [("eio", "(I/O error)"), ("enospc", "(no space left on the device)")] {
        let folder = faulty_pair();
        rules(&folder, &format!("write {fault}\n"));
        let data = "faulty:d,control=faults";
        stuck_and_on(&folder, data, why, |folder| rules(folder, ""));
        let disk = std::fs::read(folder.path("d")).unwrap();
        assert!((0..LINES as usize).all(|number| disk[number << 16..][..4096] == [1; 4096]));
    }
}

/// Nothing is dirty but what is to be zeroed.
#[test]
fn zeroes_that_cannot_be_written_are_told_of() {
    let folder = faulty_pair();
    let served = serve(&folder, "--data-disk faulty:d,control=faults");
    rules(&folder, "write eio\n");
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.write_zeroes(1 << 20, 2 << 20), 0);
    assert_eq!(nbd.flush(), 0);
    drop(nbd);
    is_stuck(&folder, "drain --control ctl", "I/O error", "2 MiB stay to be zeroed");
    rules(&folder, "");
    folder.dcd("drain --control ctl").ok();
    assert_eq!(served.stop().code, Some(0));
}

/// A write that never ends: nothing else may be written, lest it is overtaken.
#[test]
fn a_data_disk_that_hangs_is_told_of() {
    let folder = faulty_pair();
    let served = serve(&folder, "--data-disk faulty:d,control=faults");
    write(&folder, 0, 1);
    rules(&folder, "write hang\n");
    is_stuck(&folder, "drain --control ctl", "has not ended", "200 KiB stay in the cache");
    is_stuck(&folder, "detach --control ctl", "has not ended", "200 KiB stay in the cache");
    rules(&folder, "");
    folder.dcd("detach --control ctl").ok();
    assert_eq!(served.wait().code, Some(0));
}

/// A file system that is full, below a sparse data-disk.
#[test]
fn a_full_file_system_below_the_data_disk_is_told_of() {
    struct Full(PathBuf);
    impl Drop for Full {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to mount a tmpfs");
        return;
    }
    let folder = Folder::new();
    let small = folder.path("small");
    std::fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=2M", "none"]).arg(&small);
    if !mount.status().is_ok_and(|status| status.success()) {
        println!("skipped: cannot mount a tmpfs");
        return;
    };
    let _full = Full(small);
    folder.disk("small/d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk small/d").ok();
    let filler = folder.path("small/filler");
    let mut free = std::fs::File::create(&filler).unwrap();
    let _ = std::io::copy(&mut std::io::repeat(1), &mut free);
    drop(free);
    stuck_and_on(&folder, "small/d", "no space", |_| std::fs::remove_file(&filler).unwrap());
}

/// Lines that belong on a member that is away, while others are written and destaged.
#[test]
fn a_member_that_is_away_is_told_of() {
    let folder = Folder::new();
    let config = "extent = \"64k\"\n[[set]]\nlevel = 0\n";
    std::fs::write(folder.path("v.toml"), config).unwrap();
    let members = ["m0", "m1", "m2"].map(|name| {
        folder.disk(name, 33 << 20);
        format!("--data-disk {name}")
    });
    let all = members.join(" ");
    folder.dcd(&format!("create --cache-disk c --cache-size 16M {all} --volume v.toml")).ok();
    let served = serve(&folder, &all);
    write(&folder, 0, 1);
    folder.dcd("drain --control ctl").ok();
    assert_eq!(served.stop().code, Some(0));
    let served = serve(&folder, &format!("{} {} --degraded", members[0], members[2]));
    write(&folder, 0, 2);
    is_stuck(&folder, "drain --control ctl", "member 1 of the volume is away", "stay in the cache");
    assert_eq!(served.stop().code, Some(0));
    let served = serve(&folder, &all);
    folder.dcd("drain --control ctl").ok();
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert!((0..LINES).all(|number| nbd.read(number << 16, 4096).unwrap() == [2; 4096]));
    drop(nbd);
    assert_eq!(served.stop().code, Some(0));
}

/// What gets on is not stuck, however slow.
#[test]
fn a_slow_disk_is_waited_for() {
    let folder = faulty_pair();
    let served = folder.serve(
        "serve --cache-disk c --data-disk slow:d,read=10ms,write=400ms --nbd unix:sock --control ctl \
         --memory-directory . --quiet --idle-max 1h --idle-min 1h --drain-timeout 100ms",
    );
    write(&folder, 0, 1);
    folder.dcd("drain --control ctl").ok();
    assert_eq!(served.stop().code, Some(0));
}
