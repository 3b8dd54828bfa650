//! Proves that a data-disk may grow below a cache that is dirty, clean, killed or detached: `serve`
//! refuses and names `dcd grow`, which loses nothing, shows the new part as it is, may be killed at
//! any moment, and never shrinks.

mod common;

use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::Folder;
use common::nbd::Nbd;
use serde_json::Value;

const SERVE: &str = "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl \
                     --memory-directory . --quiet --idle-max 1h --idle-min 1h";
const GROW: &str = "grow --cache-disk c --data-disk d --memory-directory .";
const LINE: u64 = 4096;

fn pair(size: u64) -> Folder {
    let folder = Folder::new();
    folder.disk("d", size);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    folder
}

/// The data-disk gets longer; its new part holds 9s.
fn lengthen(folder: &Folder, from: u64, to: u64) {
    let file = std::fs::File::options().write(true).open(folder.path("d")).unwrap();
    file.write_all_at(&vec![9; (to - from) as usize], from).unwrap();
}

fn report(folder: &Folder) -> Value {
    serde_json::from_str(&folder.dcd("check --cache-disk c --json").ok()).unwrap()
}

#[test]
fn a_dirty_pair_grows() {
    // The second ends within a line, which is zeroed, and part of it written after that.
    for old in [32 << 20, (32 << 20) + 6 * 512] {
        let new: u64 = 40 << 20;
        let folder = pair(old);
        let served = folder.serve(SERVE);
        let mut nbd = Nbd::connect(&folder.path("sock"));
        let last_line = (old - 1) / LINE * LINE;
        assert_eq!(nbd.write_zeroes(last_line, (old - last_line) as usize), 0);
        assert_eq!(nbd.write(old - 512, &[1; 512]), 0);
        assert_eq!(nbd.write(5 * LINE, &[2; 4096]), 0);
        folder.dcd(GROW).fails(1, "locked by another program", "stop it first");
        // What is not flushed lies in memory only.
        served.kill();
        lengthen(&folder, old, new);
        folder.dcd(SERVE).fails(1, "blocks of 512 bytes", "dcd grow --cache-disk c --data-disk d");
        folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").fails(
            1,
            "blocks of 512 bytes",
            "dcd grow",
        );
        let grown = folder.dcd(&format!("{GROW} --json")).ok();
        let grown: Value = serde_json::from_str(&grown).unwrap();
        assert_eq!((&grown["old_bytes"], &grown["new_bytes"]), (&old.into(), &new.into()));
        assert_eq!(report(&folder)["state"], "closed");
        assert!(folder.dcd(GROW).ok().contains("has its recorded size"), "once more is harmless");

        let served = folder.serve(SERVE);
        assert!(served.ready.contains(&format!("size={new} ")), "{}", served.ready);
        let mut nbd = Nbd::connect(&folder.path("sock"));
        assert_eq!(nbd.read(old - 512, 1024).unwrap()[..512], [1; 512]);
        assert_eq!(nbd.read(old - 512, 1024).unwrap()[512..], [9; 512]);
        assert_eq!(nbd.read(5 * LINE, 4096).unwrap(), [2; 4096]);
        assert_eq!(nbd.read(last_line, 512).unwrap(), [0; 512]);
        assert_eq!(nbd.write(new - 4096, &[3; 4096]), 0);
        drop(nbd);
        folder.dcd("detach --control ctl").ok();
        assert_eq!(served.wait().code, Some(0));
        let data = std::fs::read(folder.path("d")).unwrap();
        assert_eq!(data.len() as u64, new);
        assert!(data[new as usize - 4096..].iter().all(|byte| *byte == 3));
        assert!(data[old as usize..new as usize - 4096].iter().all(|byte| *byte == 9));
        assert_eq!(data[old as usize - 512..old as usize], [1; 512]);
    }
}

#[test]
fn a_detached_pair_stays_detached() {
    let folder = pair(32 << 20);
    lengthen(&folder, 32 << 20, 33 << 20);
    assert_eq!(folder.dcd(GROW).ok(), "grown: d from 32 MiB to 33 MiB\n");
    assert_eq!(report(&folder)["state"], "detached");
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = pair(32 << 20);
    folder.disk("d", 16 << 20);
    folder.dcd(GROW).fails(1, "has 32768 blocks", "not shrink");
    folder.dcd(SERVE).fails(1, "has 32768 blocks", "old size again");
    folder.disk("d", 40 << 20);
    folder.dcd("grow --cache-disk d --data-disk c --memory-directory .").fails(1, "swapped", "c");
    folder.dcd("grow --cache-disk d --data-disk d --memory-directory .").fails(1, "the same", "");
    folder.dcd("grow --cache-disk c").fails(2, "--data-disk", "usage");
    let before = std::fs::read(folder.path("c")).unwrap();
    folder.dcd("grow --cache-disk c --data-disk d --memory-directory none").fails(1, "none", "");
    assert!(before == std::fs::read(folder.path("c")).unwrap(), "nothing was written");
    // A change behind a dirty cache is noticed by grow as by serve.
    folder.dcd(GROW).ok();
    let served = folder.serve(SERVE);
    assert_eq!(Nbd::connect(&folder.path("sock")).write(0, &[1; 4096]), 0);
    assert_eq!(served.stop().code, Some(0));
    lengthen(&folder, 40 << 20, 41 << 20);
    let file = std::fs::File::options().write(true).open(folder.path("d")).unwrap();
    file.write_all_at(&[0x53, 0xef], 1080).unwrap();
    folder.dcd(GROW).fails(1, "was changed without dcd", "--accept-damage");
    folder.dcd(&format!("{GROW} --accept-damage")).ok();
}

/// kill -9 at many moments: each time the one size or the other can be served, with all that was
/// written.
#[test]
fn growing_may_be_killed() {
    let folder = pair(32 << 20);
    let mut size = 32u64 << 20;
    let mut kills_that_came_first = 0;
    for round in 0..30u64 {
        let served = folder.serve(SERVE);
        let mut nbd = Nbd::connect(&folder.path("sock"));
        if round > 0 {
            assert_eq!(nbd.read((round - 1) * LINE, 4096).unwrap(), [round as u8; 4096]);
        }
        assert_eq!(nbd.write(round * LINE, &[round as u8 + 1; 4096]), 0);
        assert_eq!(nbd.write(size - LINE, &[round as u8 + 1; 4096]), 0);
        drop(nbd);
        if round % 2 == 0 {
            served.kill();
        } else {
            assert_eq!(served.stop().code, Some(0));
        }
        let next = size + (1 << 20);
        lengthen(&folder, size, next);
        let mut grow = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(GROW.split_whitespace())
            .current_dir(folder.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(700 * round));
        let _ = grow.kill();
        kills_that_came_first += u32::from(!grow.wait().unwrap().success());
        let copies = folder.dcd("inspect superblock --cache-disk c --json").ok();
        let copies: Value = serde_json::from_str(&copies).unwrap();
        let counts = copies.as_array().unwrap().iter().find(|copy| copy["counts"] == true).unwrap();
        let recorded = counts["superblock"]["data_disk_blocks"].as_u64().unwrap() * 512;
        if recorded == size {
            folder.dcd(SERVE).fails(1, "blocks of 512 bytes", "dcd grow");
            folder.dcd(GROW).ok();
        } else {
            assert_eq!(recorded, next);
        }
        size = next;
    }
    assert!(kills_that_came_first > 3, "it was killed in the middle");
}
