//! Proves on the real program, with real mounts: a file system on dcd's loop device, a load on it
//! (files, or SQLite transactions), a crash at a random moment, the same `serve` line again, and
//! then the file system's own journal replay is all it needs. Its checker finds nothing to repair,
//! every file that was fsynced before the crash is there, byte for byte, and so is every
//! transaction that was committed. The crash is a kill -9 of dcd, or a power cut of the machine
//! with both disks; some recoveries and detaches are hit by the next one. At the end the data-disk
//! mounts without dcd. Beside the files, free space is trimmed all the time, and now and then the
//! crash hits a `mkfs`, which discards the whole disk.

#[path = "../harness/mod.rs"]
mod harness;

mod files;
mod sqlite;
mod trimmer;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use files::Files;
use harness::machine::{Crash, Machine, random_instant};
use harness::random::{Random, sum};
use harness::{Daemon, cycles, seed, until};
use sqlite::Sqlite;
use trimmer::Trimmer;

struct FileSystem {
    name: &'static str,
    size: u64,
    make: &'static str,
    mount: &'static str,
    /// Without repair; ends with 0 only if there is nothing to repair.
    check: &'static str,
    /// What a crash may rightly leave that the mount refuses, and the tool that mends it.
    mend: Option<(&'static str, &'static str)>,
    /// Directories are whole after a crash, also those that were being changed.
    has_journal: bool,
}

/// What is done with the file system.
enum Load {
    Files(Files),
    Sqlite(Sqlite),
}

struct Run {
    machine: Machine,
    kind: FileSystem,
    load: Load,
    /// How often something that was fsynced or committed was compared.
    compared: u64,
    /// How often free space was trimmed beside the load, and a crash came amid a mkfs.
    trims: u64,
    cut_in_mkfs: u64,
    what: String,
}

impl Run {
    fn mount(&self, device: &str) {
        let line = format!("{} {device} mnt", self.kind.mount);
        if let Some((complaint, tool)) = self.kind.mend {
            let words: Vec<&str> = line.split_whitespace().collect();
            let output = self.machine.site.try_tool(words[0], &words[1..]);
            if output.status.success() {
                return;
            }
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(text.contains(complaint), "{}: {line}: {}\n{text}", self.what, output.status);
            self.machine.site.run(&format!("{tool} {device}"));
        }
        self.machine.site.run(&line);
    }

    /// After a crash the device gives errors, which umount does not mind.
    fn unmount(&self) {
        let unmount = || {
            let output = self.machine.site.try_tool("umount", &["mnt"]);
            output.status.success().then_some(())
        };
        until("the file system is unmounted", unmount);
    }

    fn check(&self, device: &str) {
        // A file system in user space may let go of the device a moment after umount; and btrfs
        // looks at all loop devices, also at one whose machine, another test's, has just crashed.
        let for_a_moment = ["busy", "could not check mount status"];
        let mut last = None;
        for _ in 0..50 {
            let line = format!("{} {device}", self.kind.check);
            let words: Vec<&str> = line.split_whitespace().collect();
            let output = self.machine.site.try_tool(words[0], &words[1..]);
            if output.status.success() {
                return;
            }
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            if !for_a_moment.iter().any(|reason| text.contains(reason)) {
                panic!("{}: {line}: {}\n{text}", self.what, output.status);
            }
            last = Some(text);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{}: {last:?}", self.what);
    }

    fn work(&self) -> PathBuf {
        self.machine.site.path("mnt/files")
    }

    fn verify(&mut self) {
        self.compared += match &self.load {
            Load::Files(files) => files.verify(&self.work(), self.kind.has_journal, &self.what),
            Load::Sqlite(sqlite) => sqlite.verify(&self.machine.site, &self.what),
        };
    }

    fn forget_files(&self) {
        if let Load::Files(files) = &self.load {
            files.forget();
        }
    }

    /// Load until a seeded number of fsyncs or commits has been seen, and a bit more; then the
    /// crash.
    fn load_and_crash(&mut self, daemon: Daemon, cycle: u64, random: &mut Random) {
        let work = self.work();
        fs::create_dir_all(&work).unwrap();
        let enough = 1 + random.below(40);
        let load_random = Random::new(random.next());
        match &self.load {
            Load::Files(files) => {
                let tree = work.join(format!("tree{cycle}"));
                fs::create_dir_all(&tree).unwrap();
                let mut tar = files::unpack_tree(&self.machine.site, &tree);
                let trimmer = Trimmer::start(&self.machine.site);
                let fsyncs = Arc::new(AtomicU64::new(0));
                let writer = {
                    let (files, fsyncs) = (files.clone(), fsyncs.clone());
                    std::thread::spawn(move || files.write(&work, &tree, load_random, &fsyncs))
                };
                until("enough files are fsynced", || {
                    (fsyncs.load(Ordering::SeqCst) >= enough || writer.is_finished()).then_some(())
                });
                assert!(
                    !writer.is_finished(),
                    "{}: the load ended: {:?}",
                    self.what,
                    writer.join()
                );
                random_instant(random, Duration::from_micros(200));
                self.machine.crash(daemon, random);
                assert!(writer.join().unwrap().is_err(), "a disk that is gone gives errors");
                let _ = tar.wait();
                self.trims += trimmer.stop();
            }
            Load::Sqlite(sqlite) => {
                let before = sqlite.committed();
                let writer = sqlite.write(&self.machine.site, load_random);
                until("enough transactions are committed", || {
                    (sqlite.committed() >= before + enough || writer.is_finished()).then_some(())
                });
                assert!(
                    !writer.is_finished(),
                    "{}: the load ended: {:?}",
                    self.what,
                    writer.join()
                );
                random_instant(random, Duration::from_micros(3000));
                self.machine.crash(daemon, random);
                writer.join().unwrap();
            }
        }
        self.machine.crashes.under_load += 1;
        self.unmount();
        self.machine.clear_away();
    }

    /// All of it is made anew, and the crash comes amid that.
    fn make_and_crash(&mut self, daemon: Daemon, device: &str, random: &mut Random) {
        let mut make = self.machine.site.start_tool(&format!("{} {device}", self.kind.make));
        random_instant(random, Duration::from_millis(60));
        self.machine.crash(daemon, random);
        let _ = make.wait();
        self.forget_files();
        self.cut_in_mkfs += 1;
        self.machine.crashes.under_load += 1;
        self.machine.clear_away();
    }
}

fn crash_cycles(crash: Crash, kind: FileSystem, load: Load, all: u64) {
    let what = match &load {
        Load::Files(_) => kind.name.to_owned(),
        Load::Sqlite(sqlite) => format!("SQLite {} on {}", sqlite.journal_mode, kind.name),
    };
    let start = seed() ^ sum(what.as_bytes());
    let mut random = Random::new(start);
    let machine = Machine::new(crash, "24M", kind.size, "--segment-size 256k");
    for name in ["fuse", "mnt"] {
        fs::create_dir_all(machine.site.path(name)).unwrap();
    }
    files::make_tree(&machine.site, &mut random);
    let what_of_run = String::new();
    let mut run =
        Run { machine, kind, load, compared: 0, trims: 0, cut_in_mkfs: 0, what: what_of_run };
    let mut flags = String::new();
    let mut is_made = false;
    for cycle in 0..all {
        run.what = format!("{what}, {}, DCD_SEED={}, cycle {cycle}", crash.name(), seed());
        let ack = ["memory", "log", "durable"][cycle as usize % 3];
        flags =
            format!("--quiet --fuse fuse --loop --ack {ack} --idle-max 50ms --segment-buffers 8");
        let daemon = run.machine.serve(&flags);
        let device = daemon.told("loop").unwrap().to_owned();
        if !is_made {
            run.machine.site.make_file_system(run.kind.make, &device);
        } else {
            // The first mount replays the journal, as after any crash; then it must be clean.
            run.mount(&device);
            run.verify();
            run.unmount();
            run.check(&device);
            if !run.kind.has_journal {
                // Half of a change to a directory may be an I/O error for the next one.
                run.forget_files();
                run.machine.site.make_file_system(run.kind.make, &device);
            }
        }
        let is_last = cycle + 1 == all;
        is_made = is_last || matches!(run.load, Load::Sqlite(_)) || !random.once_in(6);
        if is_made {
            run.mount(&device);
            run.load_and_crash(daemon, cycle, &mut random);
        } else {
            run.make_and_crash(daemon, &device, &mut random);
        }
        run.machine.crash_again(&flags, &mut random);
    }
    // Once more, in order: mount, compare, unmount, detach; then without dcd.
    run.what = format!("{what}, {}, DCD_SEED={}, after {all} cycles", crash.name(), seed());
    let mut daemon = run.machine.serve(&flags);
    let device = daemon.told("loop").unwrap().to_owned();
    run.mount(&device);
    run.verify();
    run.unmount();
    run.machine.site.dcd("detach --control ctl").ok();
    assert_eq!(daemon.wait_code(), Some(0), "{}", daemon.log());
    daemon.assert_no_panic();
    let device = run.machine.data_device();
    run.what += ", without dcd";
    run.check(&device);
    run.mount(&device);
    run.verify();
    run.unmount();
    let checked = match &run.load {
        Load::Files(files) => {
            let (left, lost) = (files.count(), files.names_lost());
            let lost = if lost > 0 { format!(", {lost} names lost") } else { String::new() };
            format!(
                "{left} fsynced files, {} comparisons{lost}, {} trims beside them, {} times amid a mkfs",
                run.compared, run.trims, run.cut_in_mkfs
            )
        }
        Load::Sqlite(sqlite) => format!("{} transactions committed", sqlite.committed()),
    };
    run.machine.crashes.tell(&what, crash, seed(), &checked);
    assert!(all < 3 || run.compared > 10, "{checked}: proves nothing");
}

const EXT4: FileSystem = FileSystem {
    name: "ext4",
    size: 96 << 20,
    make: "mkfs.ext4 -q -F",
    mount: "mount -t ext4 -o discard",
    check: "e2fsck -fn",
    mend: None,
    has_journal: true,
};

const XFS: FileSystem = FileSystem {
    name: "xfs",
    size: 320 << 20,
    make: "mkfs.xfs -q -f",
    mount: "mount -t xfs -o discard",
    check: "xfs_repair -n",
    mend: None,
    has_journal: true,
};

const BTRFS: FileSystem = FileSystem {
    name: "btrfs",
    size: 192 << 20,
    make: "mkfs.btrfs -q -f",
    mount: "mount -t btrfs",
    check: "btrfs check --readonly",
    mend: None,
    has_journal: true,
};

/// ntfs-3g keeps no journal of its own, and the kernel writes its blocks in any order. So a crash
/// may leave half of a change to a directory, and names with it; each cycle begins with a new file
/// system. What is shown: fsynced files that have their name have their content, and the structures
/// that ntfsfix knows are right. The first records of its file table it writes twice, one after the
/// other, and does not mount when a crash came between.
const NTFS: FileSystem = FileSystem {
    name: "ntfs",
    size: 96 << 20,
    make: "mkntfs -q -Q -F -p 0 -H 255 -S 63",
    mount: "ntfs-3g",
    check: "ntfsfix -n",
    mend: Some(("$MFTMirr does not match $MFT", "ntfsfix")),
    has_journal: false,
};

fn files() -> Load {
    Load::Files(Files::default())
}

fn sqlite(journal_mode: &'static str) -> Load {
    Load::Sqlite(Sqlite::new(journal_mode))
}

#[test]
fn ext4_survives_kill_9() {
    skip_without!(
        "ext4_survives_kill_9",
        "root",
        "fuse",
        "loop",
        "kernel-ext4",
        "mkfs.ext4",
        "e2fsck"
    );
    crash_cycles(Crash::Kill, EXT4, files(), cycles(12, 100));
}

#[test]
fn xfs_survives_kill_9() {
    skip_without!(
        "xfs_survives_kill_9",
        "root",
        "fuse",
        "loop",
        "kernel-xfs",
        "mkfs.xfs",
        "xfs_repair"
    );
    crash_cycles(Crash::Kill, XFS, files(), cycles(10, 100));
}

#[test]
fn btrfs_survives_kill_9() {
    skip_without!(
        "btrfs_survives_kill_9",
        "root",
        "fuse",
        "loop",
        "kernel-btrfs",
        "mkfs.btrfs",
        "btrfs"
    );
    crash_cycles(Crash::Kill, BTRFS, files(), cycles(10, 100));
}

#[test]
fn ntfs_survives_kill_9() {
    skip_without!("ntfs_survives_kill_9", "root", "fuse", "loop", "mkntfs", "ntfs-3g", "ntfsfix");
    crash_cycles(Crash::Kill, NTFS, files(), cycles(10, 40));
}

#[test]
fn sqlite_with_a_rollback_journal_survives_kill_9() {
    skip_without!(
        "sqlite_with_a_rollback_journal_survives_kill_9",
        "root",
        "fuse",
        "loop",
        "kernel-ext4",
        "mkfs.ext4",
        "e2fsck",
        "sqlite3"
    );
    crash_cycles(Crash::Kill, EXT4, sqlite("TRUNCATE"), cycles(5, 55));
}

#[test]
fn sqlite_with_a_wal_survives_kill_9() {
    skip_without!(
        "sqlite_with_a_wal_survives_kill_9",
        "root",
        "fuse",
        "loop",
        "kernel-ext4",
        "mkfs.ext4",
        "e2fsck",
        "sqlite3"
    );
    crash_cycles(Crash::Kill, EXT4, sqlite("WAL"), cycles(5, 55));
}

#[test]
fn ext4_survives_power_cuts() {
    skip_without!(
        "ext4_survives_power_cuts",
        "root",
        "fuse",
        "loop",
        "nbdfuse",
        "kernel-ext4",
        "mkfs.ext4",
        "e2fsck"
    );
    crash_cycles(Crash::PowerCut, EXT4, files(), cycles(4, 120));
}

#[test]
fn xfs_survives_power_cuts() {
    skip_without!(
        "xfs_survives_power_cuts",
        "root",
        "fuse",
        "loop",
        "nbdfuse",
        "kernel-xfs",
        "mkfs.xfs",
        "xfs_repair"
    );
    crash_cycles(Crash::PowerCut, XFS, files(), cycles(4, 110));
}

#[test]
fn btrfs_survives_power_cuts() {
    skip_without!(
        "btrfs_survives_power_cuts",
        "root",
        "fuse",
        "loop",
        "nbdfuse",
        "kernel-btrfs",
        "mkfs.btrfs",
        "btrfs"
    );
    crash_cycles(Crash::PowerCut, BTRFS, files(), cycles(4, 110));
}

#[test]
fn sqlite_with_a_rollback_journal_survives_power_cuts() {
    skip_without!(
        "sqlite_with_a_rollback_journal_survives_power_cuts",
        "root",
        "fuse",
        "loop",
        "nbdfuse",
        "kernel-ext4",
        "mkfs.ext4",
        "e2fsck",
        "sqlite3"
    );
    crash_cycles(Crash::PowerCut, EXT4, sqlite("TRUNCATE"), cycles(4, 105));
}

#[test]
fn sqlite_with_a_wal_survives_power_cuts() {
    skip_without!(
        "sqlite_with_a_wal_survives_power_cuts",
        "root",
        "fuse",
        "loop",
        "nbdfuse",
        "kernel-ext4",
        "mkfs.ext4",
        "e2fsck",
        "sqlite3"
    );
    crash_cycles(Crash::PowerCut, EXT4, sqlite("WAL"), cycles(4, 105));
}
