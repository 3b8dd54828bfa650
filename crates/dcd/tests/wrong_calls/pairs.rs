//! Disks that look right and do not belong together, as the record of pairs tells them.

use std::fs;

use crate::harness::nbd::Client;
use crate::world::{Call, World, call, detach, serve};

/// What is written stays in the log until somebody asks.
fn lazy(cache: &str, data: &str) -> String {
    format!("{} --control ctl --idle-max 1h --idle-min 1h", serve(cache, data))
}

/// Where nobody looks for what a file system changes.
const AT: u64 = 1220 * 4096;

/// A line that is in the log of `c` and not on `d`, by a daemon that has ended in order.
fn dirty(world: &World) {
    world.daemon(&lazy("c", "d"));
    let mut client = Client::connect(&world.site.socket());
    client.write(AT, &[7; 4096]).unwrap();
    client.flush().unwrap();
    drop(client);
    world.stop();
}

fn drained(world: &World) {
    world.daemon(&lazy("c", "d"));
    world.dcd("drain --control ctl");
    world.stop();
}

/// What a copy of a file would be.
fn copy(world: &World, from: &str, to: &str) {
    fs::copy(world.site.path(from), world.site.path(to)).unwrap();
}

/// The cache-disk as it was before it was drained.
fn older_copy(world: &World) {
    dirty(world);
    copy(world, "c", "c.old");
    drained(world);
    copy(world, "c.old", "c");
}

const GROW: &str = "grow --cache-disk c --data-disk d --memory-directory .";

const OLDER: (&str, &str) = ("is an older copy", "--trust-disks");
const OTHER: (&str, &str) = ("is not the data-disk of this cache", "--trust-disks");
const CHANGED: (&str, &str) = ("was written to since this cache", "--trust-disks");
const HAS_CACHE: (&str, &str) = ("belongs to cache", "--force");
const IS_CACHE: (&str, &str) = ("is the cache-disk of cache", "--force");

pub fn calls() -> Vec<Call> {
    let right = detach("c", "d");
    // A cache that has been served for a while, as on a loaded machine, knows how the data-disk was below
    // what it holds; of an older copy that is another disk by now.
    let trusting = format!("{right} --trust-disks --accept-damage");
    let mut calls = Vec::new();
    for (verb, line) in
        [("serve", serve("c", "d")), ("detach", right.clone()), ("grow", GROW.into())]
    {
        calls.push(call(
            &format!("{verb}: an older copy of the cache"),
            older_copy,
            &line,
            OLDER,
            &trusting,
        ));
        let touched = |world: &World| {
            older_copy(world);
            world.tool("touch d", "");
        };
        let name = format!("{verb}: an older copy, and a data-disk that somebody has touched");
        calls.push(call(&name, touched, &line, OLDER, &trusting));
        let dirty_and_changed = |world: &World| {
            dirty(world);
            world.write("d", 3_000_000, b"somebody was here");
        };
        let name = format!("{verb}: a data-disk that was changed behind its cache");
        calls.push(call(&name, dirty_and_changed, &line, CHANGED, &trusting));
    }
    for (verb, line) in [("serve", serve("c", "twin")), ("detach", detach("c", "twin"))] {
        let twin = |world: &World| {
            dirty(world);
            copy(world, "d", "twin");
        };
        let name = format!("{verb}: a twin of the data-disk");
        calls.push(call(&name, twin, &line, OTHER, &right));
        let empty = |world: &World| drop(world.site.folder.disk("twin", 8 << 20));
        let name = format!("{verb}: an empty cache and a disk of the same size");
        calls.push(call(&name, empty, &line, OTHER, &right));
        let killed = |world: &World| {
            world.daemon(&lazy("c", "d"));
            world.kill();
            copy(world, "d", "twin");
        };
        let name = format!("{verb}: a twin after a crash");
        calls.push(call(&name, killed, &line, OTHER, &right));
    }
    let second = "create --cache-disk n --cache-size 3M --data-disk d";
    calls.push(call("a second cache", dirty, second, HAS_CACHE, &right));
    let renamed = |world: &World| {
        dirty(world);
        world.tool("mv c moved", "");
    };
    let moved = detach("moved", "d");
    calls.push(call(
        "a second cache after the first was renamed",
        renamed,
        second,
        HAS_CACHE,
        &moved,
    ));
    let linked = |world: &World| {
        dirty(world);
        world.tool("ln d hard", "");
    };
    let other_name = "create --cache-disk n --cache-size 3M --data-disk hard";
    calls.push(call("a second cache, by another name", linked, other_name, HAS_CACHE, &right));
    let killed = |world: &World| {
        world.daemon(&lazy("c", "d"));
        world.kill();
    };
    calls.push(call("a second cache after a crash", killed, second, HAS_CACHE, &right));
    let forgotten = |world: &World| {
        dirty(world);
        fs::remove_dir_all(world.site.path("state/pairs")).unwrap();
    };
    calls.push(call(
        "a second cache for a file that came from elsewhere",
        forgotten,
        second,
        HAS_CACHE,
        &right,
    ));
    let made_before = |world: &World| {
        world.dcd("create --cache-disk c2 --cache-size 3M --data-disk d");
        dirty(world);
    };
    let flag = ("belongs to cache", "--trust-disks");
    calls.push(call(
        "a second cache that was made before",
        made_before,
        &serve("c2", "d"),
        flag,
        &right,
    ));
    let as_data = "create --cache-disk n --cache-size 3M --data-disk c";
    calls.push(call("a cache-disk as the data-disk", dirty, as_data, IS_CACHE, &right));
    calls
}

/// What must go on being right, whatever the record says or does not say.
pub fn right_calls() {
    // Lost, and nobody's business.
    let world = World::new();
    dirty(&world);
    fs::remove_dir_all(world.site.path("state/pairs")).unwrap();
    world.dcd(&detach("c", "d"));
    // Killed at any time.
    let world = World::new();
    for _ in 0..3 {
        world.daemon(&lazy("c", "d"));
        world.kill();
    }
    dirty(&world);
    world.dcd(&detach("c", "d"));
    // Detached, the data-disk takes another cache, and the cache another turn.
    world.dcd("create --cache-disk c2 --cache-size 3M --data-disk d");
    world.dcd(&detach("c", "d"));
    world.dcd(&detach("c2", "d"));
    // Both put back, as they once were together: who does that says so.
    let world = World::new();
    dirty(&world);
    for name in ["c", "d"] {
        copy(&world, name, &format!("{name}.old"));
    }
    drained(&world);
    for name in ["c", "d"] {
        copy(&world, &format!("{name}.old"), name);
    }
    world.dcd(&format!("{} --trust-disks", detach("c", "d")));
    assert_eq!(fs::read(world.site.path("d")).unwrap()[AT as usize..][..4096], [7; 4096]);
    // A cache that was thrown away: who did that says so.
    let world = World::new();
    dirty(&world);
    fs::remove_file(world.site.path("c")).unwrap();
    world.dcd("create --cache-disk c --cache-size 3M --data-disk d --force");
    world.dcd(&detach("c", "d"));
    // Moved, each to another name.
    let world = World::new();
    dirty(&world);
    for name in ["c", "d"] {
        fs::rename(world.site.path(name), world.site.path(&format!("{name}.new"))).unwrap();
    }
    world.dcd(&detach("c.new", "d.new"));
    // No place for a record.
    let world = World::new();
    fs::remove_dir_all(world.site.path("state")).unwrap();
    fs::write(world.site.path("state"), "").unwrap();
    dirty(&world);
    world.dcd(&detach("c", "d"));
}
