//! Data-disks with a label, as the label tells them, without any record of the host.

use std::fs;

use crate::harness::nbd::Client;
use crate::world::{Call, World, call};

const CREATE: &str =
    "create --cache-disk lc --cache-size 3M --data-disk ld --labelled --segment-size 64k";
const SECOND: &str = "create --cache-disk n --cache-size 3M --data-disk ld";
const DETACH: &str = "detach --cache-disk lc --data-disk ld --memory-directory .";
const SERVE: &str = "serve --cache-disk lc --data-disk ld --nbd unix:sock --control ctl --memory-directory . \
                     --quiet --idle-max 1h --idle-min 1h";
const GROW: &str = "grow --cache-disk lc --data-disk ld --memory-directory .";
const HEAD: u64 = 1 << 20;

/// A labelled pair, closed, with a line in its log.
fn dirty(world: &World) {
    world.site.folder.disk("ld", HEAD + (8 << 20));
    world.dcd(CREATE);
    world.daemon(SERVE);
    let mut client = Client::connect(&world.site.socket());
    client.write(4096, &[7; 4096]).unwrap();
    client.flush().unwrap();
    drop(client);
    world.stop();
}

fn copy(world: &World, from: &str, to: &str) {
    fs::copy(world.site.path(from), world.site.path(to)).unwrap();
}

/// The host remembers nothing of it.
fn forget(world: &World) {
    let _ = fs::remove_dir_all(world.site.path("state/pairs"));
}

/// One of the disks as it was a session ago.
fn older(name: &'static str) -> impl Fn(&World) {
    move |world| {
        dirty(world);
        copy(world, name, &format!("{name}.old"));
        world.daemon(SERVE);
        world.stop();
        copy(world, name, &format!("{name}.new"));
        copy(world, &format!("{name}.old"), name);
        forget(world);
    }
}

/// Of another labelled cache, of the same size.
fn other(world: &World) {
    world.site.folder.disk("other", HEAD + (8 << 20));
    world.dcd("create --cache-disk oc --cache-size 3M --data-disk other --labelled");
    dirty(world);
    world.tool("mv ld own", "mv own ld");
    world.tool("mv other ld", "mv ld other");
    forget(world);
}

fn unlabelled(world: &World) {
    dirty(world);
    world.tool("mv ld own", "mv own ld");
    world.site.folder.disk("ld", HEAD + (8 << 20));
    forget(world);
}

fn detached(world: &World) {
    dirty(world);
    world.dcd(DETACH);
}

pub fn calls() -> Vec<Call> {
    let trusting = format!("{DETACH} --trust-disks --accept-damage");
    let mut calls = Vec::new();
    for (verb, line) in [("serve", SERVE), ("detach", DETACH), ("grow", GROW)] {
        let say = |what: &str| format!("{verb}: {what}");
        let data = ("the data-disk ld is an older copy", "--trust-disks");
        calls.push(call(&say("an older data-disk"), older("ld"), line, data, &trusting));
        let cache = ("the cache-disk lc is an older copy", "--trust-disks");
        calls.push(call(&say("an older cache-disk"), older("lc"), line, cache, &trusting));
        let whose = ("ld is the data-disk of cache", "dcd probe");
        calls.push(call(&say("the data-disk of another cache"), other, line, whose, DETACH));
        let none = ("ld has no label", "dcd probe");
        calls.push(call(&say("a disk without a label"), unlabelled, line, none, ""));
    }
    let dirty_label = ("ld is the data-disk of cache", "detach that cache first");
    let labelled = format!("{SECOND} --labelled");
    let forgotten = |world: &World| {
        dirty(world);
        forget(world);
    };
    calls.push(call("a second cache with a label", forgotten, &labelled, dirty_label, DETACH));
    let is_labelled = ("begins with the label of cache", "detach that cache first");
    calls.push(call("a second cache without", forgotten, SECOND, is_labelled, DETACH));
    let is_detached = ("begins with the label of cache", "--labelled takes the disk");
    calls.push(call("a cache without the label", detached, SECOND, is_detached, &labelled));
    let as_cache = "create --cache-disk ld --data-disk d";
    let content = ("ld looks like the labelled data-disk of a dcd cache", "--force");
    calls.push(call("a labelled disk as the cache-disk", detached, as_cache, content, &labelled));
    let moved = format!("{labelled} --label-head 2M");
    let elsewhere = ("has a label of 1 MiB already", "leave --label-head out");
    calls.push(call("another head", detached, &moved, elsewhere, &labelled));
    let damaged = |world: &World| {
        detached(world);
        world.write("ld", 100, &[1]);
        world.write("ld", 65_636, &[1]);
    };
    let unreadable = ("which cannot be read", "--label-head");
    let forced = format!("{labelled} --force");
    calls.push(call("a damaged label", damaged, &labelled, unreadable, &forced));
    let file = |world: &World| {
        world.site.folder.disk("ld", HEAD + (8 << 20));
        world.write("ld", 4 << 20, &[9; 100]);
    };
    let holds = ("ld holds 4 KiB that are not zero", "--force");
    calls.push(call(
        "a disk that holds something",
        file,
        CREATE,
        holds,
        &format!("{CREATE} --force"),
    ));
    for size in ["0", "64k", "1025k", "2G"] {
        let empty = |world: &World| drop(world.site.folder.disk("ld", HEAD + (8 << 20)));
        let line = format!("{CREATE} --label-head {size}");
        let name = format!("a head of {size}");
        calls.push(call(&name, empty, &line, ("is no size for the head", "128k to 1G"), CREATE));
    }
    let small = |world: &World| drop(world.site.folder.disk("ld", HEAD + 4096));
    calls.push(call(
        "hardly more than a head",
        small,
        CREATE,
        ("payload would begin", "larger"),
        "",
    ));
    calls.into_iter().map(|call| Call { name: format!("labels: {}", call.name), ..call }).collect()
}
