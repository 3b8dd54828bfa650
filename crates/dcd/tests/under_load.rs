//! What changes below a file system while fio writes to it and verifies what it reads: legs of the
//! cache-disk are pulled, filled again, let go and added, replaced; modes are switched. No request
//! fails, and the file system is whole, in front of dcd and on the data-disk alone.

mod harness;

use std::fs;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use harness::random::Random;
use harness::{Daemon, Site, Value, cycles, seed, until};

/// An ext4 on the loop device of a daemon, and fio in it.
struct Load {
    site: Site,
    daemon: Daemon,
    device: String,
    fio: Child,
    runs: u32,
}

impl Load {
    fn start(site: Site, cache_disks: &str) -> Load {
        for directory in ["fuse", "mnt"] {
            fs::create_dir(site.path(directory)).unwrap();
        }
        let flags = "--quiet --fuse fuse --loop --idle-max 20ms --io-timeout 10s";
        let disks = format!("--data-disk d --control ctl --memory-directory . {flags}");
        let daemon = site.start_line(&format!("serve {cache_disks} {disks}")).ready();
        let device = daemon.told("loop").unwrap().to_owned();
        site.make_file_system("mkfs.ext4 -q", &device);
        site.tool("mount", &[device.as_str(), "mnt"]);
        let fio = Load::fio(&site);
        Load { site, daemon, device, fio, runs: 0 }
    }

    /// Writes, reads and verifies; ends by itself.
    fn fio(site: &Site) -> Child {
        site.start_tool(
            "fio --name=load --filename=mnt/file --size=24m --io_size=24m --rw=randwrite \
             --bsrange=4k-64k --fsync=8 --verify=crc32c --verify_backlog=64 --verify_fatal=1 \
             --ioengine=psync --output=fio.log",
        )
    }

    /// Begins again when it has ended, without an error.
    fn goes_on(&mut self) {
        if let Some(status) = self.fio.try_wait().unwrap() {
            self.assert_success(status);
            self.fio = Load::fio(&self.site);
        }
    }

    fn assert_success(&mut self, status: std::process::ExitStatus) {
        let said = fs::read_to_string(self.site.path("fio.log")).unwrap_or_default();
        assert!(status.success(), "{said}\n{}", self.daemon.log());
        self.runs += 1;
    }

    /// All is there, also on the data-disk alone. `cache_disks`: of the detach.
    fn end(mut self, what: &str, cache_disks: &str) {
        let status = self.fio.wait().unwrap();
        self.assert_success(status);
        println!("{what}, fio ran {} times", self.runs);
        let Load { site, daemon, device, .. } = self;
        site.tool("umount", &["mnt"]);
        site.tool("fsck.ext4", &["-f", "-n", device.as_str()]);
        let counters = site.status()["counters"].clone();
        assert!(counters["destaged_lines"].as_u64().unwrap() > 0, "{counters}");
        daemon.assert_no_panic();
        daemon.stop();
        let detach = format!("detach {cache_disks} --data-disk d --memory-directory .");
        site.dcd(&detach).ok();
        site.tool("fsck.ext4", &["-f", "-n", "d"]);
    }
}

/// Each leg is on a disk with a number, whose rules of faults stand beside it.
fn leg_spec(disk: u64) -> String {
    format!("faulty:leg{disk},control=faults{disk}")
}

/// Number, name and state of each leg.
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

fn in_sync(site: &Site) -> Vec<(u64, String)> {
    let used = legs(site).into_iter().filter(|(.., state)| state == "in-sync");
    used.map(|(disk, leg, _)| (disk, leg)).collect()
}

#[test]
fn legs_are_pulled_under_a_file_system() {
    const NAME: &str = "legs_are_pulled_under_a_file_system";
    skip_without!(NAME, "root", "fuse", "loop", "fio", "mkfs.ext4", "fsck.ext4");
    let mut random = Random::new(seed() ^ 0x9011);
    let site = Site::empty();
    site.folder.disk("d", 64 << 20);
    let create = "create --cache-disk leg0 --cache-disk leg1 --cache-size 12M --segment-size 64k";
    site.dcd(&format!("{create} --data-disk d")).ok();
    let disks = [0, 1].map(|disk| format!("--cache-disk {}", leg_spec(disk))).join(" ");
    let mut load = Load::start(site, &disks);
    let pulls = cycles(9, 300);
    for pull in 0..pulls {
        load.goes_on();
        let site = &load.site;
        // 1. One of both goes, at any moment.
        sleep(Duration::from_millis(random.below(60)));
        let (disk, leg) = in_sync(site)[random.below(2) as usize].clone();
        let rules = match random.below(10) {
            0 => "write hang\nflush hang",
            1..4 => "write eio",
            4..7 => "flush eio",
            _ => "gone",
        };
        site.faults(&format!("faults{disk}"), rules);
        until("it is out", || (in_sync(site).len() == 1).then_some(()));
        // 2. It comes back in one of three ways: as it is, let go and added, or another disk does.
        let fill = random.below(3) == 0;
        if !fill {
            site.dcd(&format!("cache-disk take-out {leg} --control ctl")).ok();
        }
        site.faults(&format!("faults{disk}"), "");
        if fill {
            site.dcd(&format!("cache-disk fill {leg} --control ctl")).ok();
        } else {
            let path = site.path(&format!("leg{disk}"));
            until("it is let go", || fs::File::open(&path).unwrap().try_lock().ok());
            let mut added = disk;
            if random.below(2) == 0 {
                added = 2 + pull;
                fs::remove_file(&path).unwrap();
                site.folder.disk(&format!("leg{added}"), 13 << 20);
            }
            site.dcd(&format!("cache-disk add {} --control ctl", leg_spec(added))).ok();
        }
        until("both are in sync", || (in_sync(site).len() == 2).then_some(()));
    }
    let disks = in_sync(&load.site);
    let disks: Vec<String> = disks.iter().map(|(it, _)| format!("--cache-disk leg{it}")).collect();
    load.end(&format!("{pulls} pulls"), &disks.join(" "));
}

#[test]
fn modes_are_switched_under_a_file_system() {
    const NAME: &str = "modes_are_switched_under_a_file_system";
    skip_without!(NAME, "root", "fuse", "loop", "fio", "mkfs.ext4", "fsck.ext4");
    let mut random = Random::new(seed() ^ 0x30de5);
    let site = Site::with("20M", 64 << 20, "--segment-size 64k --read-area 8M");
    let mut load = Load::start(site, "--cache-disk c --one-disk no");
    let switches = cycles(16, 600);
    // In a long run one each second.
    let pause = if switches > 100 { 1000 } else { 200 };
    let mut reached = std::collections::BTreeMap::new();
    for _ in 0..switches {
        load.goes_on();
        let mode = ["write-back", "write-through", "write-around", "pass-through"];
        let mode = mode[random.below(4) as usize];
        load.site.dcd(&format!("set mode={mode} --no-wait --control ctl")).ok();
        sleep(Duration::from_millis(pause));
        let is = load.site.status()["mode"]["mode"].as_str().unwrap().to_owned();
        *reached.entry(is).or_insert(0) += 1;
    }
    load.site.dcd("set mode=write-back --control ctl").ok();
    assert!(reached.len() > if switches > 100 { 3 } else { 1 }, "{reached:?}");
    load.end(&format!("{switches} switches, {reached:?}"), "--cache-disk c");
}
