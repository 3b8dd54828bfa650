//! Legs of a cache-disk that are pulled while fio writes to an ext4 on the disk, and verifies what
//! it reads: each is filled again, let go and added, or replaced by another disk, while it serves.
//! No request fails, and the file system is whole.

mod harness;

use std::fs;
use std::process::Child;

use harness::random::Random;
use harness::{Site, Value, cycles, seed, until};

const NAME: &str = "legs_are_pulled_under_a_file_system";

/// Each disk is one of a pool, whose rules of faults stand beside it.
fn spec(disk: u64) -> String {
    format!("faulty:leg{disk},control=faults{disk}")
}

/// Legs, with the number of their disk.
fn legs(site: &Site) -> Vec<(u64, String, String)> {
    let told = site.dcd("cache-disk status --control ctl --json").ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    let text = |leg: &Value, key: &str| leg[key].as_str().unwrap().to_owned();
    let number = |leg: &Value| {
        let disk = leg["disk"].as_str().unwrap();
        disk.rsplit_once("leg").unwrap().1.parse().unwrap()
    };
    let legs = told["legs"].as_array().unwrap();
    legs.iter().map(|leg| (number(leg), text(leg, "leg"), text(leg, "state"))).collect()
}

fn in_sync(site: &Site) -> usize {
    legs(site).iter().filter(|(.., state)| state == "in-sync").count()
}

/// Writes, reads and verifies; ends by itself.
fn start_fio(site: &Site) -> Child {
    site.start_tool(
        "fio --name=load --filename=mnt/file --size=24m --io_size=24m --rw=randwrite --bsrange=4k-64k --fsync=8 \
         --verify=crc32c --verify_backlog=64 --verify_fatal=1 --ioengine=psync --output=fio.log",
    )
}

#[test]
fn legs_are_pulled_under_a_file_system() {
    skip_without!(NAME, "root", "fuse", "loop", "fio", "mkfs.ext4", "fsck.ext4");
    let mut random = Random::new(seed() ^ 0x9011);
    let site = Site::empty();
    site.folder.disk("d", 64 << 20);
    let create = "create --cache-disk leg0 --cache-disk leg1 --cache-size 12M --segment-size 64k";
    site.dcd(&format!("{create} --data-disk d")).ok();
    for directory in ["fuse", "mnt"] {
        fs::create_dir(site.path(directory)).unwrap();
    }
    let daemon = site.serve_disks(
        &spec(0),
        "d",
        &format!(
            "--cache-disk {} --quiet --fuse fuse --loop --idle-max 20ms --io-timeout 3s",
            spec(1)
        ),
    );
    let device = daemon.told("loop").unwrap().to_owned();
    site.make_file_system("mkfs.ext4 -q", &device);
    site.tool("mount", &[device.as_str(), "mnt"]);
    let mut fio = start_fio(&site);
    let mut runs = 0;
    for pull in 0..cycles(9, 300) {
        if let Some(status) = fio.try_wait().unwrap() {
            let said = fs::read_to_string(site.path("fio.log")).unwrap_or_default();
            assert!(status.success(), "{said}\n{}", daemon.log());
            runs += 1;
            fio = start_fio(&site);
        }
        // 1. One of both goes, at any moment.
        std::thread::sleep(std::time::Duration::from_millis(random.below(60)));
        let all = legs(&site);
        let used: Vec<_> = all.iter().filter(|(.., state)| state == "in-sync").collect();
        let (disk, leg, _) = used[random.below(2) as usize];
        let rules = match random.below(10) {
            0 => "write hang\nflush hang",
            1..4 => "write eio",
            4..7 => "flush eio",
            _ => "gone",
        };
        site.faults(&format!("faults{disk}"), rules);
        until("it is out", || (in_sync(&site) == 1).then_some(()));
        // 2. It comes back in one of three ways: as it is, let go and added, or another disk does.
        let fill = random.below(3) == 0;
        if !fill {
            site.dcd(&format!("cache-disk take-out {leg} --control ctl")).ok();
        }
        site.faults(&format!("faults{disk}"), "");
        // Rules are looked at every 50 ms.
        std::thread::sleep(std::time::Duration::from_millis(70));
        if fill {
            site.dcd(&format!("cache-disk fill {leg} --control ctl")).ok();
        } else {
            let path = site.path(&format!("leg{disk}"));
            until("it is let go", || fs::File::open(&path).unwrap().try_lock().ok());
            let mut added = *disk;
            if random.below(2) == 0 {
                added = 2 + pull;
                fs::remove_file(&path).unwrap();
                site.folder.disk(&format!("leg{added}"), 13 << 20);
            }
            site.dcd(&format!("cache-disk add {} --control ctl", spec(added))).ok();
        }
        until("both are in sync", || (in_sync(&site) == 2).then_some(()));
    }
    let status = fio.wait().unwrap();
    assert!(status.success(), "{}", fs::read_to_string(site.path("fio.log")).unwrap_or_default());
    println!("{} pulls, fio ran {} times", cycles(9, 300), runs + 1);
    site.tool("umount", &["mnt"]);
    site.tool("fsck.ext4", &["-f", "-n", device.as_str()]);
    let counters = site.status()["counters"].clone();
    assert!(counters["destaged_lines"].as_u64().unwrap() > 0, "{counters}");
    daemon.assert_no_panic();
    let disks: Vec<u64> = legs(&site)
        .iter()
        .filter(|(.., state)| state == "in-sync")
        .map(|(disk, ..)| *disk)
        .collect();
    daemon.stop();
    // What is there is what a start without one of them finds, and what is on the data-disk alone
    // behind a detach.
    let disk = |disk: u64| format!("--cache-disk leg{disk}");
    site.dcd(&format!("detach {} {} --data-disk d", disk(disks[0]), disk(disks[1]))).ok();
    site.tool("fsck.ext4", &["-f", "-n", "d"]);
}
