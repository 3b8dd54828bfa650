//! Proves on the real program, with real mounts: a file system on dcd's loop device, a load on it,
//! kill -9 at a random moment, the same `serve` line again, and then the file system's own journal
//! replay is all it needs. Its checker finds nothing to repair, and every file that was fsynced
//! before the kill is there, byte for byte. At the end the data-disk mounts without dcd.

mod harness;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use harness::random::{Random, sum, sum_of_file};
use harness::{Daemon, Site, cycles, search_path, seed, until};

struct FileSystem {
    name: &'static str,
    size: u64,
    make: &'static str,
    mount: &'static str,
    /// Without repair; ends with 0 only if there is nothing to repair.
    check: &'static str,
}

/// Fsynced files and their sums; a file that is being changed is not in it.
type Synced = Arc<Mutex<BTreeMap<String, u64>>>;

/// Files of 1 byte to 100 KB in a few directories: created, written again, renamed, removed. Goes on
/// until the disk goes away.
fn write_files(
    work: &Path,
    newest_tree: &Path,
    mut random: Random,
    synced: &Synced,
    count: &AtomicU64,
) -> std::io::Result<()> {
    for number in 0.. {
        let directory = work.join(format!("dir{}", random.below(5)));
        fs::create_dir_all(&directory)?;
        let name = format!("dir{}/file{}", random.below(5), random.below(60));
        let path = work.join(&name);
        fs::create_dir_all(path.parent().unwrap())?;
        synced.lock().unwrap().remove(&name);
        match random.below(10) {
            0 => drop(fs::remove_file(&path)),
            1 if path.exists() => {
                let to = format!("dir0/renamed{}", random.below(30));
                synced.lock().unwrap().remove(&to);
                fs::create_dir_all(work.join("dir0"))?;
                fs::rename(&path, work.join(&to))?;
            }
            _ => {
                let length =
                    if random.once_in(4) { random.below(100_000) } else { random.below(9000) };
                let bytes = random.bytes(1 + length as usize);
                let mut file = File::create(&path)?;
                file.write_all(&bytes)?;
                if random.once_in(2) {
                    file.sync_all()?;
                    File::open(path.parent().unwrap())?.sync_all()?;
                    File::open(work)?.sync_all()?;
                    synced.lock().unwrap().insert(name, sum(&bytes));
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        if number % 20 == 19 {
            // Old trees go, but not the one that tar writes now.
            for old in fs::read_dir(work)?.flatten() {
                let is_tree = old.file_name().to_string_lossy().starts_with("tree");
                if is_tree && old.path() != newest_tree && random.once_in(2) {
                    fs::remove_dir_all(old.path())?;
                }
            }
        }
    }
    Ok(())
}

/// 200 small files in 20 directories, as a tar archive.
fn make_tree(site: &Site, random: &mut Random) {
    for number in 0..200 {
        let path = site.path(&format!("source/d{}/f{number}", number % 20));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let length = 1 + random.below(12_000) as usize;
        fs::write(path, random.bytes(length)).unwrap();
    }
    site.run("tar cf tree.tar source");
}

struct Run {
    site: Site,
    kind: FileSystem,
    mount_point: PathBuf,
    synced: Synced,
    what: String,
}

impl Run {
    fn mount(&self, device: &str) {
        self.site.run(&format!("{} {device} mnt", self.kind.mount));
    }

    /// After a kill the device gives errors, which umount does not mind.
    fn unmount(&self, in_order: bool) {
        let unmount = || {
            let output = self.site.try_tool("umount", &["mnt"]);
            output.status.success().then_some(())
        };
        until("the file system is unmounted", unmount);
        if in_order {
            return;
        }
        self.site.unmount_all();
    }

    fn check(&self, device: &str) {
        // A file system in user space may let go of the device a moment after umount.
        let mut last = None;
        for _ in 0..20 {
            let line = format!("{} {device}", self.kind.check);
            let words: Vec<&str> = line.split_whitespace().collect();
            let output = self.site.try_tool(words[0], &words[1..]);
            if output.status.success() {
                return;
            }
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            if !text.contains("busy") {
                panic!("{}: {line}: {}\n{text}", self.what, output.status);
            }
            last = Some(text);
            std::thread::yield_now();
        }
        panic!("{}: {last:?}", self.what);
    }

    fn verify(&self) {
        for (name, expected) in self.synced.lock().unwrap().iter() {
            let path = self.mount_point.join("work").join(name);
            let found = fs::metadata(&path).map(|_| sum_of_file(&path));
            match found {
                Ok(found) => assert_eq!(found, *expected, "{}: {name} was fsynced", self.what),
                Err(error) => panic!("{}: {name} was fsynced: {error}", self.what),
            }
        }
    }

    fn serve(&self, cycle: u64) -> Daemon {
        let ack = ["memory", "log", "durable"][cycle as usize % 3];
        self.site.serve(&format!(
            "--quiet --fuse fuse --loop --ack {ack} --idle-max 50ms --segment-buffers 8"
        ))
    }

    /// Load until a seeded number of files was fsynced, and a bit more; then kill -9.
    fn load_and_kill(&self, daemon: Daemon, cycle: u64, random: &mut Random) {
        let work = self.mount_point.join("work");
        fs::create_dir_all(&work).unwrap();
        let tree = work.join(format!("tree{cycle}"));
        fs::create_dir_all(&tree).unwrap();
        let mut tar = Command::new("tar")
            .args(["xf", "tree.tar", "-C"])
            .arg(&tree)
            .current_dir(self.site.path(""))
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let writer = {
            let (synced, count, random) =
                (self.synced.clone(), count.clone(), Random::new(random.next()));
            std::thread::spawn(move || write_files(&work, &tree, random, &synced, &count))
        };
        let enough = 1 + random.below(40);
        until("enough files are fsynced", || {
            (count.load(Ordering::SeqCst) >= enough || writer.is_finished()).then_some(())
        });
        assert!(!writer.is_finished(), "{}: the load ended: {:?}", self.what, writer.join());
        for _ in 0..random.below(200_000) {
            std::hint::spin_loop();
        }
        daemon.kill();
        assert!(writer.join().unwrap().is_err(), "a disk that is gone gives errors");
        let _ = tar.wait();
    }
}

fn kill_cycles(kind: FileSystem, default_cycles: u64) {
    let seed = seed() ^ sum(kind.name.as_bytes());
    let mut random = Random::new(seed);
    let site = Site::with("24M", kind.size, "--segment-size 256k");
    fs::create_dir_all(site.path("fuse")).unwrap();
    fs::create_dir_all(site.path("mnt")).unwrap();
    make_tree(&site, &mut random);
    let mount_point = site.path("mnt");
    let mut run = Run { site, kind, mount_point, synced: Synced::default(), what: String::new() };
    let all = cycles(default_cycles, 250);
    let mut verified = 0;
    for cycle in 0..all {
        run.what = format!("{} seed {seed} cycle {cycle}", run.kind.name);
        let daemon = run.serve(cycle);
        let device = daemon.told("loop").unwrap().to_owned();
        if cycle == 0 {
            run.site.run(&format!("{} {device}", run.kind.make));
        } else {
            // The first mount replays the journal, as after any crash; then it must be clean.
            run.mount(&device);
            run.verify();
            run.unmount(true);
            run.check(&device);
        }
        run.mount(&device);
        run.verify();
        verified += run.synced.lock().unwrap().len();
        run.load_and_kill(daemon, cycle, &mut random);
        run.unmount(false);
    }
    assert!(all < 3 || verified > 10, "{verified} fsynced files prove nothing");
    // Once more, in order: mount, compare, unmount, detach; then without dcd.
    run.what = format!("{} seed {seed} after {all} cycles", run.kind.name);
    let mut daemon = run.serve(all);
    let device = daemon.told("loop").unwrap().to_owned();
    run.mount(&device);
    run.verify();
    run.unmount(true);
    run.site.dcd("detach --control ctl").ok();
    assert_eq!(daemon.wait_code(), Some(0), "{}", daemon.log());
    daemon.assert_no_panic();
    let device = run.site.run("losetup --find --show d").trim().to_owned();
    run.what += ", without dcd";
    run.check(&device);
    run.mount(&device);
    run.verify();
    run.unmount(true);
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
    let kind = FileSystem {
        name: "ext4",
        size: 96 << 20,
        make: "mkfs.ext4 -q -F",
        mount: "mount -t ext4",
        check: "e2fsck -fn",
    };
    kill_cycles(kind, 15);
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
    let kind = FileSystem {
        name: "xfs",
        size: 320 << 20,
        make: "mkfs.xfs -q -f",
        mount: "mount -t xfs",
        check: "xfs_repair -n",
    };
    kill_cycles(kind, 12);
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
    let kind = FileSystem {
        name: "btrfs",
        size: 192 << 20,
        make: "mkfs.btrfs -q -f",
        mount: "mount -t btrfs",
        check: "btrfs check --readonly",
    };
    kill_cycles(kind, 12);
}

/// ntfs-3g keeps no journal of its own. What it promises, and what is shown: fsynced files are there
/// and the structures that ntfsfix knows are right.
#[test]
fn ntfs_survives_kill_9() {
    skip_without!("ntfs_survives_kill_9", "root", "fuse", "loop", "mkntfs", "ntfs-3g", "ntfsfix");
    let kind = FileSystem {
        name: "ntfs",
        size: 96 << 20,
        make: "mkntfs -q -Q -F -p 0 -H 255 -S 63",
        mount: "ntfs-3g",
        check: "ntfsfix -n",
    };
    kill_cycles(kind, 12);
}
