//! Proves `dcd hint` on a real ext4: attributes reach exactly the blocks of the files they are said
//! of, names decide where nothing else is said, directories hand theirs on, what changes is looked
//! at again, and files that share an extent do not take it from each other.
//!
//! The volume is one of this test's own, which speaks as a daemon does: what is proved is what the
//! command asks for.

mod harness;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dcd_daemon::device::fiemap::file_extents;
use dcd_engine::volume::attributes::{AttributeChange, Attributes};
use harness::{Daemon, Site, Value, until};
use serde_json::json;

const MIB: u64 = 1 << 20;

/// Attributes of extents, by number.
#[derive(Clone)]
struct Volume {
    extent_blocks: u64,
    blocks: u64,
    extents: Arc<Mutex<BTreeMap<u64, Attributes>>>,
}

impl Volume {
    /// Answers on the socket `ctl` until the test ends.
    fn serve(site: &Site, extent_bytes: u64, bytes: u64) -> Volume {
        let volume = Volume {
            extent_blocks: extent_bytes / 512,
            blocks: bytes / 512,
            extents: Arc::default(),
        };
        let listener = UnixListener::bind(site.path("ctl")).unwrap();
        let served = volume.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, served) = (client.unwrap(), served.clone());
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(&client).lines();
                    while let Some(Ok(line)) = lines.next() {
                        let asked: Value = serde_json::from_str(&line).unwrap();
                        let mut answer = served.answer(&asked["volume"]).to_string();
                        answer.push('\n');
                        let _ = (&client).write_all(answer.as_bytes());
                    }
                });
            }
        });
        volume
    }

    fn touched(&self, ranges: &Value) -> Vec<u64> {
        let numbers = |range: &Value| (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
        let ranges = ranges.as_array().unwrap().iter().map(numbers);
        let extents = ranges.flat_map(|(start, blocks)| {
            assert!(blocks > 0 && start + blocks <= self.blocks, "{start} {blocks}");
            start / self.extent_blocks..(start + blocks).div_ceil(self.extent_blocks)
        });
        extents.collect()
    }

    fn answer(&self, asked: &Value) -> Value {
        let mut extents = self.extents.lock().unwrap();
        if asked == "status" {
            return json!({"ok": true, "volume": {
                "volume_bytes": self.blocks * 512, "extent_bytes": self.extent_blocks * 512,
                "extents_mapped": 0, "migrations_waiting": 0, "raid0_lines_lost": 0, "pointers": 0, "pointers_max": 0, "memory_bytes": 0,
                "members": [], "sets": [], "work": null, "last_work": null, "has_failed": false,
                "counters": {},
            }});
        }
        let of = |extents: &BTreeMap<u64, Attributes>, extent| {
            extents.get(&extent).copied().unwrap_or(Attributes::NONE)
        };
        if let Some(places) = asked.get("places") {
            let place = |extent: u64| {
                let attributes = of(&extents, extent).to_string();
                json!({"block": extent * self.extent_blocks, "blocks": self.extent_blocks, "level": 1,
                       "set": 0, "temporary": false, "attributes": attributes})
            };
            let places: Vec<_> = self.touched(&places["ranges"]).into_iter().map(place).collect();
            return json!({"ok": true, "places": places});
        }
        let asked = &asked["set-attributes"];
        let words = |name: &str| asked[name].as_str().unwrap().split(',');
        let mask = |name| {
            let one = |word: &str| word.parse::<Attributes>().unwrap();
            words(name).map(one).fold(Attributes::NONE, Attributes::or)
        };
        let change = AttributeChange { set: mask("set"), clear: mask("clear") };
        for extent in self.touched(&asked["ranges"]) {
            let changed = of(&extents, extent).changed(change);
            extents.insert(extent, changed);
        }
        json!({"ok": true})
    }

    /// What each extent of a file is, in words; the file is written back first.
    fn of(&self, path: &Path) -> Vec<String> {
        let file = File::open(path).unwrap();
        let extents = self.extents.lock().unwrap();
        let mut all = Vec::new();
        for extent in file_extents(&file, true).unwrap() {
            let blocks = extent.physical / 512..(extent.physical + extent.length).div_ceil(512);
            let touched =
                blocks.start / self.extent_blocks..blocks.end.div_ceil(self.extent_blocks);
            all.extend(
                touched.map(|it| extents.get(&it).map_or("none".into(), ToString::to_string)),
            );
        }
        all
    }

    /// Whether all extents of a file are that.
    fn is(&self, path: &Path, words: &str) -> bool {
        let found = self.of(path);
        !found.is_empty() && found.iter().all(|found| found == words)
    }
}

/// An ext4 in a file, mounted at `mnt`.
fn mounted(extent_bytes: u64) -> (Site, Volume) {
    let site = Site::empty();
    site.folder.disk("fs", 64 * MIB);
    fs::create_dir_all(site.path("mnt")).unwrap();
    site.run("mkfs.ext4 -q -F -b 4096 fs");
    site.run("mount -o loop fs mnt");
    let volume = Volume::serve(&site, extent_bytes, 64 * MIB);
    (site, volume)
}

/// Writes a file of the file system.
fn write(site: &Site, name: &str, bytes: usize) {
    let path = site.path("mnt").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, vec![7; bytes]).unwrap();
}

fn watch(site: &Site, flags: &str) -> Daemon {
    site.start_line(&format!("hint watch mnt --control ctl --offset 0 --no-metadata {flags}"))
        .ready()
}

#[test]
fn what_is_said_of_files_reaches_their_blocks() {
    skip_without!("dcd hint set", "root", "loop", "mkfs.ext4", "kernel-ext4");
    let (site, volume) = mounted(4096);
    for name in ["a/one", "a/b/two", "three"] {
        write(&site, name, 100_000);
    }
    let path = |name: &str| site.path("mnt").join(name);
    let hint = |line: &str| site.dcd(&format!("hint {line} --control ctl --offset 0"));
    let told = hint("set important,random mnt/three").ok();
    assert!(told.contains("1 file: important,random, changed for 25 of 25 extents"), "{told}");
    assert!(volume.is(&path("three"), "important,random"));
    assert!(volume.is(&path("a/one"), "none"));
    // A directory, with all that is in it.
    hint("set -r temporary mnt/a").ok();
    assert!(volume.is(&path("a/one"), "temporary") && volume.is(&path("a/b/two"), "temporary"));
    assert!(volume.is(&path("three"), "important,random"));
    let get: Value = serde_json::from_str(&hint("get mnt/three mnt/a --json").ok()).unwrap();
    assert_eq!(get[0]["said"], "important,random");
    assert_eq!(get[0]["parts"][0]["attributes"], "important,random");
    assert_eq!(get[1]["said"], "temporary");
    // Said again it changes nothing; and it can be taken back.
    let told = hint("set important,random mnt/three").ok();
    assert!(told.contains("changed for 0 of 25 extents"), "{told}");
    hint("set none mnt/three").ok();
    assert!(volume.is(&path("three"), "none"));
    assert!(hint("get mnt/three").ok().contains("three  -"));
    site.run("umount mnt");
}

#[test]
fn names_and_directories_decide_as_files_are_written() {
    skip_without!("dcd hint watch", "root", "loop", "mkfs.ext4", "kernel-ext4");
    let (site, volume) = mounted(4096);
    let rules = "[[rule]]\nmatch = [\"*.c\", \"*.h\"]\nset = \"important\"\n\
                 [[rule]]\nmatch = \"*.o\"\nset = \"temporary\"\n";
    fs::write(site.path("rules"), rules).unwrap();
    write(&site, "src/old.c", 50_000);
    write(&site, "cold/x", 50_000);
    let path = |name: &str| site.path("mnt").join(name);
    site.dcd("hint set cold mnt/cold --control ctl --offset 0").ok();
    let daemon = watch(&site, "--rules rules --sync");
    // What was there before.
    assert!(volume.is(&path("src/old.c"), "important") && volume.is(&path("cold/x"), "cold"));
    // What is written, made in a directory with an attribute, or moved to another name.
    write(&site, "src/new.o", 80_000);
    write(&site, "cold/deep/y", 10_000);
    write(&site, "cold/z.c", 10_000);
    write(&site, "src/tmp123", 30_000);
    fs::rename(path("src/tmp123"), path("src/moved.c")).unwrap();
    for (name, words) in [
        ("src/new.o", "temporary"),
        ("cold/deep/y", "cold"),
        ("cold/z.c", "important"),
        ("src/moved.c", "important"),
    ] {
        until(name, || volume.is(&path(name), words).then_some(()));
    }
    // A file that grows, and one that is another now.
    let mut grown = File::options().append(true).open(path("src/old.c")).unwrap();
    grown.write_all(&[8; 200_000]).unwrap();
    drop(grown);
    until("the new part", || volume.is(&path("src/old.c"), "important").then_some(()));
    fs::rename(path("src/new.o"), path("src/kept")).unwrap();
    until("no hint any more", || volume.is(&path("src/kept"), "none").then_some(()));
    // What its owner says goes before the rules.
    site.dcd("hint set hot mnt/src/moved.c --control ctl --offset 0").ok();
    fs::write(path("src/moved.c"), [9; 40_000]).unwrap();
    until("its own attribute", || volume.is(&path("src/moved.c"), "hot").then_some(()));
    daemon.stop();
    site.run("umount mnt");
}

#[test]
fn blocks_that_are_chosen_later_are_waited_for() {
    skip_without!("dcd hint watch, delayed", "root", "loop", "mkfs.ext4", "kernel-ext4");
    let (site, volume) = mounted(4096);
    fs::write(site.path("rules"), "[[rule]]\nmatch = \"*.o\"\nset = \"temporary\"\n").unwrap();
    let daemon = watch(&site, "--rules rules");
    write(&site, "late.o", 400_000);
    // It has no blocks until the file system writes it back.
    std::thread::sleep(std::time::Duration::from_millis(600));
    site.run("sync -f mnt");
    until("its blocks", || volume.is(&site.path("mnt/late.o"), "temporary").then_some(()));
    daemon.stop();
    site.run("umount mnt");
}

#[test]
fn small_files_in_one_extent_do_not_make_each_other_less_safe() {
    skip_without!("dcd hint watch, large extents", "root", "loop", "mkfs.ext4", "kernel-ext4");
    let (site, volume) = mounted(MIB);
    fs::write(
        site.path("rules"),
        "[[rule]]\nmatch = \"*.c\"\nset = \"important\"\n[[rule]]\nmatch = \"*.o\"\nset = \"temporary\"\n",
    )
    .unwrap();
    for number in 0..20 {
        write(&site, &format!("{number}.c"), 8192);
        write(&site, &format!("{number}.o"), 8192);
        write(&site, &format!("{number}.txt"), 8192);
    }
    let daemon = watch(&site, "--rules rules --sync");
    for number in 0..20 {
        assert!(volume.is(&site.path(&format!("mnt/{number}.c")), "important"), "{number}");
    }
    daemon.stop();
    site.run("umount mnt");
}

#[test]
fn metadata_of_the_file_system_is_found() {
    skip_without!("dcd hint metadata", "root", "loop", "mkfs.ext4", "kernel-ext4");
    let (site, volume) = mounted(4096);
    let told = site.dcd("hint metadata mnt --control ctl --offset 0 --json").ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["file_system"], "ext4");
    let bytes = told["metadata_bytes"].as_u64().unwrap();
    assert!(bytes > MIB, "{told}");
    let extents = volume.extents.lock().unwrap();
    assert!(extents.values().all(|it| *it == Attributes::METADATA));
    assert!(extents.len() as u64 * 4096 >= bytes, "{} {bytes}", extents.len());
    assert!(extents.contains_key(&0));
    drop(extents);
    site.run("umount mnt");
}
