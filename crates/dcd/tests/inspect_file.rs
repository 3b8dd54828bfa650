//! Proves that `dcd inspect --file` tells the blocks of the served device that really hold a file,
//! on ext4 and XFS, also behind a loop device with an offset, and that it says so when it cannot
//! know.

mod harness;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use harness::{Daemon, Site, Value};

const MIB: u64 = 1 << 20;

struct Mounted {
    site: Site,
    daemon: Daemon,
    device: String,
}

/// A file system on the served device, or on a loop device that begins `offset` bytes behind its
/// start.
fn mounted(make: &str, data_bytes: u64, offset: u64) -> Mounted {
    let site = Site::new("32M", data_bytes);
    for name in ["fuse", "mnt"] {
        fs::create_dir_all(site.path(name)).unwrap();
    }
    let daemon = site.serve("--quiet --fuse fuse --loop");
    let mut device = daemon.told("loop").unwrap().to_owned();
    if offset > 0 {
        device = site.run(&format!("losetup -f --show -o {offset} {device}")).trim().to_owned();
    }
    site.run(&format!("{make} {device}"));
    site.run(&format!("mount {device} mnt"));
    Mounted { site, daemon, device }
}

impl Mounted {
    fn inspect(&self, name: &str) -> Value {
        let line = format!("inspect --file mnt/{name} --control ctl --json");
        serde_json::from_str(&self.site.dcd(&line).ok()).unwrap()
    }

    /// What the data-disk holds at the pieces of a file, when all is there.
    fn on_disk(&self, told: &Value) -> Vec<u8> {
        self.site.dcd("drain --control ctl").ok();
        let disk = File::open(self.site.path("d")).unwrap();
        let mut content = Vec::new();
        for piece in told["pieces"].as_array().unwrap() {
            let mut bytes = vec![0; piece["bytes"].as_u64().unwrap() as usize];
            disk.read_exact_at(&mut bytes, piece["block"].as_u64().unwrap() * 512).unwrap();
            content.extend(bytes);
        }
        content
    }

    fn end(self, with_loop: bool) {
        self.site.run("umount mnt");
        if with_loop {
            self.site.run(&format!("losetup -d {}", self.device));
        }
        self.daemon.stop();
    }
}

/// Content that is nowhere else.
fn content(seed: u64) -> Vec<u8> {
    let mut random = harness::random::Random::new(seed);
    (0..300 << 10).map(|_| random.next() as u8).collect()
}

fn prove(make: &str, data_bytes: u64, offset: u64) {
    let here = mounted(make, data_bytes, offset);
    let path = here.site.path("mnt/file");
    fs::write(&path, content(7)).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let told = here.inspect("file");
    assert_eq!(told["file_system_offset"], offset);
    assert_eq!(told["not_yet_allocated"], false);
    let found = here.on_disk(&told);
    assert!(found[..300 << 10] == content(7)[..], "{told}");
    // For people, too; a directory has blocks on ext4.
    let text = here.site.dcd("inspect --file mnt/file --control ctl").ok();
    assert!(text.contains("mnt/file: 300 KiB in") && text.contains("begins at byte"), "{text}");
    // What is not written back has no blocks, and that is told.
    fs::write(here.site.path("mnt/new"), content(8)).unwrap();
    let told = here.inspect("new");
    let has_all = told["bytes"].as_u64().unwrap() >= 300 << 10;
    assert!(has_all || told["not_yet_allocated"] == true, "{told}");
    here.end(offset > 0);
}

#[test]
fn a_file_is_where_it_is_told_to_be() {
    skip_without!("inspect --file", "root", "fuse", "loop", "mkfs.ext4", "kernel-ext4");
    prove("mkfs.ext4 -q", 64 * MIB, 0);
}

#[test]
fn also_behind_a_loop_device_with_an_offset() {
    skip_without!("inspect --file, offset", "root", "fuse", "loop", "mkfs.ext4", "kernel-ext4");
    prove("mkfs.ext4 -q", 64 * MIB, 3 * MIB);
}

#[test]
fn and_on_xfs() {
    skip_without!("inspect --file, XFS", "root", "fuse", "loop", "mkfs.xfs", "kernel-xfs");
    prove("mkfs.xfs -q -f", 400 * MIB, 0);
}

#[test]
fn what_cannot_be_known_is_told_so() {
    let site = Site::new("8M", 16 * MIB);
    fs::write(site.path("file"), "x").unwrap();
    let inspect = |flags: &str| site.dcd(&format!("inspect --file file --control ctl {flags}"));
    inspect("").fails(6, "no daemon answers", "is the daemon running");
    let daemon = site.serve("--quiet");
    inspect("").fails(1, "file: its file system is not on the device of this dcd", "--offset");
    site.dcd("inspect --file none --control ctl").fails(1, "cannot look at none", "");
    site.dcd("inspect --file /proc/version --control ctl").fails(
        1,
        "only ext2, ext3, ext4, XFS, F2FS and dhisfs tell",
        "control socket",
    );
    site.dcd("inspect").fails(1, "what is to be inspected", "--file PATH");
    site.dcd("inspect --file file").fails(2, "--control", "");
    // Hints are for volumes.
    for line in
        ["hint set hot file", "hint get file", "hint watch .", "hint metadata .", "volume status"]
    {
        site.dcd(&format!("{line} --control ctl")).fails(
            1,
            "a plain data-disk, no volume",
            "--volume",
        );
    }
    site.dcd("hint set warm file --control ctl").fails(2, "there is no attribute `warm`", "");
    site.dcd("hint set hot,cold file --control ctl").fails(2, "contradict", "");
    fs::write(site.path("rules"), "[[rule]]\nmatch = \"*.c\"\nsett = \"hot\"\n").unwrap();
    site.dcd("hint watch . --rules rules --control ctl").fails(
        1,
        "rules:3:1: there is no key `sett`",
        "did you mean `set`",
    );
    daemon.stop();
}
